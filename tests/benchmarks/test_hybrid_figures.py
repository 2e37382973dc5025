"""Figures 1 to 3 of paper 3: points run with the constants of the paper."""

import math

import pytest

from benchmarks.data.synthetic import APPENDIX_D_EASY, GaussianPair
from benchmarks.hybrid import figures


def test_a_point_of_figure_1_runs_algorithm_1_and_keeps_every_round():
    pair = GaussianPair(12, 10, 1.0, 0.02, 0.01, "half-space")
    row = figures.measure((figures.Setting("Figure 1", pair, 150, 0.01, 3), 0))
    assert 1 <= len(row["losses"]) <= 3
    assert all(0 <= loss <= 1 for loss in row["losses"])
    assert row["epsilon"] == math.inf
    assert row["final"] in row["losses"]


def test_figure_3_has_the_records_of_the_papers_formula_and_stays_private():
    """n² = 52 R T / (8 kappa² epsilon) ln(the same), and a twentieth more for the histograms."""
    kappa = 0.08 / (4 * (APPENDIX_D_EASY.divergence + 1))
    inner = 52 * 50 * figures.PRIVATE_ROUNDS / (8 * kappa**2 * 0.5)
    assert figures.private_sizes(50) == pytest.approx(1.05 * math.sqrt(inner * math.log(inner)), abs=3)
    setting = figures.Setting(
        "Figure 3", APPENDIX_D_EASY, figures.private_sizes(50), 0.08, figures.PRIVATE_ROUNDS, steps=50
    )
    row = figures.measure((setting, 0))
    assert row["epsilon"] <= 0.5


def test_a_control_fits_once_on_s_or_on_t():
    pair = GaussianPair(3, 2, 1.0, 0.4, 0.3, "ball")
    setting = figures.Setting("Figure 2", pair, 500, 0.01, 1)
    on_s, on_t = (
        figures.measure_control((figures.Control("one fit", setting, population=which), 0)) for which in ("S", "T")
    )
    # The ball has 30% of T and 6% of S, so that records of T show more of its border.
    assert on_t["loss on T"] < on_s["loss on T"] < 0.3
    assert on_s["constant on S"] == pytest.approx(0.055, abs=0.01)


def test_figure_2_at_the_papers_size_learns_from_squares():
    """Ellipsoids are hyperplanes of squares: of raw columns no hyperplane is better than the constant label."""
    pair = GaussianPair(3, 2, 1.0, 0.4, 0.3, "ball")
    found = figures.measure((figures.Setting("Figure 2, whole", pair, 4000, 0.01, 1), 0))
    assert found["losses"][0] < 0.15 < found["constant"]
