"""What all benchmarks share: a command that refuses bad options before it measures, and work in several processes."""

import sys

import pytest

from benchmarks.running import command, in_order, measured, watched


def double(number):
    return 2 * number


def test_command_refuses_a_file_in_a_missing_folder_before_measuring(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["x", f"--out={tmp_path / 'missing' / 'r.json'}"])
    with pytest.raises(SystemExit):
        command("x", "About.", lambda quick: pytest.fail("measured"), print)
    assert "--out must name a file" in capsys.readouterr().err


def test_a_page_states_the_run_that_wrote_it(tmp_path, monkeypatch):
    results, page = tmp_path / "r.json", tmp_path / "page.md"
    results.write_text('{"versions": {"measured on": "2026-01-02", "python": "4"}}')
    page.write_text("- `python -m benchmarks evaluate`: measured on 2025-01-01; python 3. Data: a.\n")
    monkeypatch.setattr(sys, "argv", ["x", f"--results={results}", f"--markdown={page}"])
    writers = {"markdown": ("write", lambda results, path: None)}
    command("benchmarks.evaluate.run", "About.", lambda quick: pytest.fail("measured"), print, writers=writers)
    assert "measured on 2026-01-02; python 4. Data: a." in page.read_text()


@pytest.mark.parametrize("processes", [1, 2])
def test_every_piece_comes_with_its_own_result(processes):
    assert sorted(measured(double, [1, 2, 3], processes)) == [(1, 2), (2, 4), (3, 6)]


@pytest.mark.parametrize("kept", [(), (1,), (3, 1)])
def test_results_come_in_the_order_of_the_pieces(kept, tmp_path, monkeypatch, capsys):
    """Stored results are read first, so an interrupted run yields pieces in another order."""
    monkeypatch.setenv("DPADAPT_BENCHMARK_KEEP", str(tmp_path))
    in_order(double, kept, 1, name=str)
    assert in_order(double, [2, 1, 3], 1, name=str) == [4, 2, 6]


def test_an_interrupted_run_goes_on_with_the_pieces_that_it_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("DPADAPT_BENCHMARK_KEEP", str(tmp_path))
    pieces = watched(double, [1, 2, 3], 1, name=str)
    assert next(pieces) == (1, 2)
    pieces.close()
    calls = []

    def double_again(number):
        calls.append(number)
        return 2 * number

    double_again.__module__ = double.__module__
    assert sorted(watched(double_again, [1, 2, 3], 1, name=str)) == [(1, 2), (2, 4), (3, 6)]
    assert calls == [2, 3]
    assert sorted(watched(double_again, [1, 2, 3], 1, name=str)) == [(1, 2), (2, 4), (3, 6)]
    assert calls == [2, 3]
