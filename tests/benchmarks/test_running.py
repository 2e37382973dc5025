"""What all benchmarks share: a command that refuses bad options before it measures, and work in several processes."""

import sys

import pytest

from benchmarks.running import command, measured, watched


def double(number):
    return 2 * number


def test_command_refuses_a_file_in_a_missing_folder_before_measuring(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["x", f"--out={tmp_path / 'missing' / 'r.json'}"])
    with pytest.raises(SystemExit):
        command("x", "About.", lambda quick: pytest.fail("measured"), print)
    assert "--out must name a file" in capsys.readouterr().err


@pytest.mark.parametrize("processes", [1, 2])
def test_every_piece_comes_with_its_own_result(processes):
    assert sorted(measured(double, [1, 2, 3], processes)) == [(1, 2), (2, 4), (3, 6)]


def test_a_log_has_one_line_per_piece(capsys):
    assert list(watched(double, [1, 2], 1, name=lambda piece: f"piece {piece}")) == [(1, 2), (2, 4)]
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line] == ["1 of 2: piece 1", "2 of 2: piece 2"]
