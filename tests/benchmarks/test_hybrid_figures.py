"""Figures 1 to 3 of paper 3: points run with the paper's constants, and verdicts follow the numbers that are shown."""

import math

import pytest

from benchmarks.hybrid import figures
from benchmarks.transfer.common import judged
from dpadapt.datasets.synthetic import APPENDIX_D_EASY, GaussianPair


@pytest.mark.parametrize(
    ("lead", "half", "verdict"),
    [(0.2, 0.1, "holds"), (-0.2, 0.1, "missed"), (0.1, 0.2, "undecided"), (5.0, math.inf, "undecided")],
)
def test_a_verdict_needs_an_interval_on_one_side_of_zero(lead, half, verdict):
    assert judged("a claim", "a number", lead, half)["verdict"] == verdict


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


def row(figure, n, losses, *, steps=0, alpha=0.01):
    values = {"final": losses[-1], "constant": 0.3, "accepted": False, "seconds": 1.0, "epsilon": 0.5}
    return {
        "figure": figure,
        "columns": 5,
        "n": n,
        "steps": steps,
        "alpha": alpha,
        "most": 9,
        "losses": losses,
        **values,
    }


ROWS = [
    *(row("Figure 1", 100, [0.5 + jitter] * 40) for jitter in (0.0, 0.01, 0.02)),
    *(row("Figure 1", 900, [0.3] * 20 + [0.1 + jitter] * 20) for jitter in (0.0, 0.01, 0.02)),
    *(row("Figure 2", 100, [0.2 + jitter] * 40) for jitter in (0.0, 0.3, 0.1)),
    *(row("Figure 2", 900, [0.2 + jitter] * 40) for jitter in (0.1, 0.2, 0.0)),
    *(row("Figure 3", 100, [0.4] * 3, steps=50, alpha=0.08) for _ in range(3)),
    *(row("Figure 3", 200, [0.2] * 2, steps=100, alpha=0.08) for _ in range(3)),
    row("Figure 1, whole", 90_000, [0.4, 0.3]),
    row("Figure 2, whole", 200_000, [0.4, 0.3]),
]


def test_verdicts_follow_the_numbers():
    found = {claim["claim"]: claim["verdict"] for claim in figures.claims({"quick": False, "rows": ROWS})}
    assert found == {
        "Figure 1a: the loss on T falls as the sample grows": "holds",
        "Figure 1c: the loss on T falls along the run": "holds",
        "Figure 1a: with the largest sample the loss is at most 2 alpha": "missed",
        "Theorem 3.1 in Figure 1a: at most 2 alpha + 2 tau": "missed",
        "Figure 1b: runs halt after fewer rounds as the sample grows": "undecided",
        "Figure 2a: the loss on T falls as the sample grows": "undecided",
        "Figure 2c: the loss on T falls along the run": "undecided",
        "Figure 2a: with the largest sample the loss is at most 2 alpha": "missed",
        "Figure 2b: runs of all sizes halt, after about 1,000 rounds": "missed",
        "Figure 3a: Algorithm 4 converges, private": "holds",
        "Figure 3a: the runs converge to 2 alpha": "missed",
        "Figure 3b: fewer rounds with more steps": "holds",
        "Figure 3c: the loss on T starts lower with more steps": "holds",
    }


def test_the_page_has_all_figures_and_the_work_of_the_papers_sizes(tmp_path):
    results = {"quick": False, "rows": ROWS, "versions": {"python": "3"}}
    figures.write_report(results, tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8").count("<svg") == 6
    text = figures.markdown(results)
    # Half a second a round and 50 runs; 1 s over 3 rounds of 50 steps, or 2 of 100.
    assert "1,300 rounds, 50 runs: 9.0 hours" in text
    assert "1,000 rounds, 50 runs: 6.9 hours" in text
    assert "5833 CPU microseconds a step" in text


def test_figure_2_at_the_papers_size_learns_from_squares():
    """Ellipsoids are hyperplanes of squares: of raw columns no hyperplane is better than the constant label."""
    pair = GaussianPair(3, 2, 1.0, 0.4, 0.3, "ball")
    found = figures.measure((figures.Setting("Figure 2, whole", pair, 4000, 0.01, 1), 0))
    assert found["losses"][0] < 0.15 < found["constant"]


def test_a_run_of_one_figure_leaves_the_sections_of_the_others(tmp_path):
    path = tmp_path / "page.md"
    results = {"quick": False, "rows": ROWS, "versions": {"python": "3"}}
    figures.write_markdown(results, path)
    before = path.read_text(encoding="utf-8")
    one = [row("Figure 1", n, [0.25, 0.24]) for n in (100, 900) for _ in range(2)]
    figures.write_markdown({**results, "rows": one}, path)
    after = path.read_text(encoding="utf-8")
    assert "0.240 +-0.000" in after
    assert "0.240 +-0.000" not in before
    second = figures.markers("figure2")[0]
    assert after.split(second)[1] == before.split(second)[1]
    assert all(before.count(line) == 1 for part in figures.PARTS for line in figures.markers(part))
