"""Blocks in files: the same objects come back, nobody else can read them, a full disk is an error that says so."""

import errno
import gc
import mmap
import os
import stat
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from dpadapt import disk
from dpadapt.inputs import sources as spill
from dpadapt.inputs.sources import Source, Spill
from dpadapt.rows import Rows, row_shares


@dataclass(frozen=True)
class Stage:
    rows: Rows
    columns: np.ndarray
    nothing: None = None


def stages(n=5, rows=1000):
    random = np.random.default_rng(0)
    for _ in range(n):
        X = random.standard_normal((rows, 6))
        # The last is a part of a larger array, in another order.
        yield Stage(Rows(X, X[:, 0].copy(), shares=row_shares(X[:, 1] > 0), max_norm=2.0), X.T[1:4])


@pytest.mark.parametrize("memory", [0, 100_000, 10**9])
def test_what_was_kept_comes_back_as_often_as_it_is_asked_for(memory):
    place = Spill(memory)
    kept = place.kept(stages())
    for _ in range(2):
        for got, wanted in zip(kept.results(lambda stage: stage), stages(), strict=True):
            assert np.array_equal(got.columns, wanted.columns)
            for name in ("X", "y", "norms", "inverse_norms", "leverage"):
                assert np.array_equal(getattr(got.rows, name), getattr(wanted.rows, name))
            assert np.array_equal(got.rows.shares.values, wanted.rows.shares.values)
    mapped = kept.map(lambda stage: stage.rows.X[:, :2])
    assert [part.tolist() for part in mapped.results(lambda part: part[0])] == [
        stage.rows.X[0, :2].tolist() for stage in stages()
    ]


def test_arrays_that_are_still_held_stay_valid_when_the_next_block_is_read():
    kept = Spill(0).kept(stages())
    held = list(kept.results(lambda stage: stage.rows.X))
    assert all(np.array_equal(X, stage.rows.X) for X, stage in zip(held, stages(), strict=True))


def test_memory_is_used_up_to_the_limit_and_given_back():
    place = Spill(200_000)
    kept = place.kept(stages())
    in_memory = [one for one, _ in kept._parts]
    assert any(in_memory)
    assert not all(in_memory)
    # Once a block is in the file, so are the later ones: a pass reads the file from start to end.
    assert in_memory == sorted(in_memory, reverse=True)
    assert place._free < 100_000
    del kept
    gc.collect()
    assert place._free == 200_000


def test_a_stage_leaves_the_spare_bytes_to_later_ones():
    place = Spill(10**6)
    kept = place.kept(stages(n=20), spare=400_000)
    assert 400_000 <= place._free < 600_000
    assert not all(one for one, _ in kept._parts)
    later = kept.map(lambda stage: stage.columns)
    assert place._free < 100_000
    assert [len(part) for part in later.results(lambda part: part)] == [3] * 20


def test_reading_leaves_a_quarter_of_the_memory_free(monkeypatch):
    left = []
    kept = Spill.kept

    def noted(self, parts, spare=0):
        stage = kept(self, parts, spare)
        left.append((self._free, spare))
        return stage

    monkeypatch.setattr(Spill, "kept", noted)
    X = np.zeros((16_384, 64))
    Source(lambda: ((X, X[:, 0]) for _ in range(8)), memory="64MB").read()
    assert left[0][0] >= left[0][1] == 16 * 2**20
    Source(lambda: ((X, X[:, 0]) for _ in range(8)), memory="1GB").read()
    assert left[1][1] == 96 * 2**20


def test_a_copy_in_own_pages_is_equal_and_belongs_to_nobody_else():
    (stage,) = stages(n=1)
    copied = spill.in_own_pages(stage)
    assert np.array_equal(copied.columns, stage.columns)
    assert np.array_equal(copied.rows.X, stage.rows.X)
    assert not np.shares_memory(copied.rows.X, stage.rows.X)
    base = copied.rows.X
    while isinstance(base, np.ndarray | memoryview):
        base = base.obj if isinstance(base, memoryview) else base.base
    assert isinstance(base, mmap.mmap)


def test_the_file_has_no_name_and_only_its_owner_may_read_it(tmp_path):
    kept = Spill(0, tmp_path).kept(stages())
    assert list(tmp_path.iterdir()) == []
    facts = os.fstat(kept._file.fileno())
    assert facts.st_nlink == 0
    assert stat.S_IMODE(facts.st_mode) & 0o077 == 0
    assert facts.st_size > 5 * 1000 * 6 * 8


def test_the_pickle_of_a_block_holds_no_rows():
    kept = Spill(0).kept(stages(rows=5000))
    assert all(len(part.head) < 5000 for _, part in kept._parts)


def test_a_full_disk_is_named(tmp_path, monkeypatch):
    def full(descriptor, content):
        raise OSError(errno.ENOSPC, "No space left on device: 17.5")

    monkeypatch.setattr(spill.os, "write", full)
    with pytest.raises(OSError, match="no room for the private rows") as caught:
        Spill(0, tmp_path).kept(stages())
    assert "17.5" not in str(caught.value)
    assert "counts as spent" in str(caught.value)
    assert caught.value.__context__ is None


def test_a_network_file_system_is_refused(tmp_path, monkeypatch):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 0:1 / {tmp_path} rw - nfs4 server:/x rw\n")
    monkeypatch.setattr(disk, "_MOUNTS", mounts)
    with pytest.raises(ValueError, match=r"network file system \(nfs4\).*TMPDIR"):
        Spill(0, tmp_path)


def test_a_short_write_is_completed(monkeypatch):
    write = os.write
    monkeypatch.setattr(spill.os, "write", lambda descriptor, content: write(descriptor, content[:1001]))
    kept = Spill(0).kept(stages())
    assert all(
        np.array_equal(got.rows.X, wanted.rows.X)
        for got, wanted in zip(kept.results(lambda stage: stage), stages(), strict=True)
    )


def test_the_temporary_folder_is_the_default(monkeypatch, tmp_path):
    monkeypatch.setattr(spill.tempfile, "gettempdir", lambda: str(tmp_path))
    assert Spill()._folder == Path(tmp_path).resolve()
