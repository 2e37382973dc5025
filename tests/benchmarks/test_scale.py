"""The benchmark of large data: a fit from memory and one from files are the same."""

from benchmarks.scale import run as scale


def test_a_small_fit_from_memory_and_from_files_is_the_same(tmp_path):
    scale.write_files(tmp_path, 3000, 3)
    memory, files = (scale.fitted("classifier", mode, 3000, 3, tmp_path) for mode in ("memory", "files"))
    assert files["coef"] == memory["coef"]
    assert files["entries"] == memory["entries"]
