"""What all benchmarks share: work in several processes, which goes on after an interruption."""

import pytest

from benchmarks.running import in_order, measured, watched


def double(number):
    return 2 * number


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
