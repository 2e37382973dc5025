"""`python -m benchmarks`: every benchmark of the table explains itself."""

import pytest

from benchmarks.__main__ import BENCHMARKS, main


def test_unknown_benchmark_is_named(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["magic"])
    printed = capsys.readouterr().err
    assert all(name in printed for name in BENCHMARKS)


def test_help_lists_every_benchmark(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    printed = capsys.readouterr().out
    assert all(name in printed for name in BENCHMARKS)
    # Without a name, the same.
    assert main([]) == 0
    assert capsys.readouterr().out == printed
