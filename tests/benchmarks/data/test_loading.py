"""Downloads, checksums and the cache: every file that is parsed has been verified."""

import hashlib
import io
import json
import urllib.error
import zipfile
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from benchmarks.data import loading, sources
from benchmarks.data.loading import differ, pair, serialise
from benchmarks.data.people import accent_by_country
from benchmarks.data.sources import SourceFile, UciArchive
from dpadapt.datasets.domains import Dataset, Domain, Source
from dpadapt.errors import DataUnavailable

FRAME = pd.DataFrame({"x": [1.0, 2.0], "word": ["a", "b"]})
COMPACT, _ = serialise(FRAME)
SOURCE = SourceFile(
    name="toy",
    part="rows",
    file="toy.parquet",
    sha256=hashlib.sha256(COMPACT).hexdigest(),
    what="2 rows",
    status="partial",
    note="2 of 3 rows.",
    origin="made up",
    licence="CC0",
)


def with_remotes(*remotes):
    return replace(SOURCE, remotes=remotes)


def archive(convert=lambda raw: FRAME, **options):
    return UciArchive("static/public/0/toy.zip", convert, **options)


def fetcher(raw=b"raw", log=None):
    def get(remote):
        if log is not None:
            log.append(str(remote))
        return loading.Fetched(raw, "sha256:" + hashlib.sha256(raw).hexdigest())

    return get


def offline(remote):
    raise urllib.error.URLError("no route to host")


def put(folder, content=COMPACT):
    (folder / "toy").mkdir(parents=True)
    (folder / "toy" / "toy.parquet").write_bytes(content)


def test_file_in_dpadapt_data_comes_first(empty_home, tmp_path, monkeypatch):
    put(tmp_path / "data")
    put(empty_home, b"damaged, but never read")
    monkeypatch.setenv("DPADAPT_DATA", str(tmp_path / "data"))
    dataset = loading.obtain(SOURCE, fetcher=offline)
    pd.testing.assert_frame_equal(dataset.frame, FRAME)
    assert dataset.path == tmp_path / "data" / "toy" / "toy.parquet"
    assert (dataset.status, dataset.note) == ("partial", "2 of 3 rows.")


def test_wrong_checksum_is_an_error_that_names_file_and_remedy(empty_home):
    put(empty_home, COMPACT + b"x")
    with pytest.raises(DataUnavailable, match=r"toy\.parquet has sha256 .* expected .*Replace it"):
        loading.obtain(SOURCE, fetcher=fetcher())


def test_download_is_complete_and_says_where_it_came_from(empty_home):
    dataset = loading.obtain(with_remotes(archive()), fetcher=fetcher())
    pd.testing.assert_frame_equal(dataset.frame, FRAME)
    assert dataset.status == "complete"
    assert dataset.note == "The full set. Downloaded from UCI archive static/public/0/toy.zip."
    assert "toy (rows), complete" in dataset.provenance
    assert "CC0" in dataset.provenance


def test_damaged_download_is_found_on_the_next_load(empty_home):
    source = with_remotes(archive())
    path = loading.obtain(source, fetcher=fetcher()).path
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataUnavailable, match=r"rows-.*parquet has sha256 .*Delete it"):
        loading.obtain(source, fetcher=fetcher())
    path.unlink()
    assert loading.obtain(source, fetcher=fetcher()).path == path


def test_source_that_changed_since_the_first_download_is_refused(empty_home):
    source = with_remotes(archive())
    loading.obtain(source, fetcher=fetcher(b"first")).path.unlink()
    with pytest.raises(DataUnavailable, match=r"now has checksum sha256:.*delete .*rows\.json and load again"):
        loading.obtain(source, fetcher=fetcher(b"second"))
    (empty_home / "toy" / "rows.json").unlink()
    assert loading.obtain(source, fetcher=fetcher(b"second")).status == "complete"


def test_record_cannot_point_outside_its_folder(empty_home, tmp_path):
    (tmp_path / "secret.parquet").write_bytes(COMPACT)
    (empty_home / "toy").mkdir(parents=True)
    fields = {"file": "../../../secret.parquet", "sha256": SOURCE.sha256, "origin": "", "origin_checksum": ""}
    (empty_home / "toy" / "rows.json").write_text(json.dumps({**fields, "note": "", "status": "complete"}))
    with pytest.raises(DataUnavailable, match="not available"):
        loading.obtain(with_remotes(archive()), fetcher=offline)


def test_set_downloaded_as_a_zip_serves_its_split_from_then_on(empty_home):
    rows = "".join(f"{accent},{','.join(['1.5'] * 12)}\n" for accent in ("US", "UK", "ES"))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        made.writestr("accent-mfcc-data-1.csv", "language," + ",".join(f"X{i}" for i in range(1, 13)) + "\n" + rows)
    loading.obtain(sources.find("accent", None), fetcher=fetcher(buffer.getvalue()))
    domains = accent_by_country()
    assert domains.source.y.tolist() == [0, 1]
    assert domains.target.X.shape == (1, 12)
    assert "Downloaded from UCI archive static/public/518/" in domains.provenance


class Response(io.BytesIO):
    def __init__(self, content, headers):
        super().__init__(content)
        self.headers = headers


def serve(monkeypatch, content, headers):
    asked = []

    def urlopen(address, timeout):
        asked.append((address, timeout))
        return Response(content, headers)

    monkeypatch.setattr(loading.urllib.request, "urlopen", urlopen)
    return asked


@pytest.mark.parametrize("headers", [{"Content-Length": "600000"}, {}])
def test_uci_archive_is_read_whole_with_its_checksum(monkeypatch, capsys, headers):
    content = b"z" * 600_000
    asked = serve(monkeypatch, content, headers)
    fetched = loading.fetch(UciArchive("static/public/2/adult.zip", lambda raw: FRAME))
    assert asked == [("https://archive.ics.uci.edu/static/public/2/adult.zip", 30)]
    assert fetched.raw == content
    assert fetched.checksum == "sha256:" + hashlib.sha256(content).hexdigest()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "adult.zip" in captured.err


def test_arrays_get_names_by_position():
    half = Domain(np.ones((2, 3)), np.zeros(2))
    domains = pair(
        Dataset({"x": np.ones(2)}, Source("toy", "rows", "2 rows", "partial", "", "", ""), "partial", ""),
        source=half,
        target=half,
        description="same",
    )
    assert domains.feature_names == ("x0", "x1", "x2")
    assert repr(domains) == "Domains(2 source rows, 2 target rows, 3 features: toy: same)"


def test_source_and_target_must_differ():
    differ(1, 2)
    with pytest.raises(ValueError, match="target must differ from source, got 'a' for both"):
        differ("a", "a")
