"""The performance table: right rows, and a private step that does the same work as the non-private one."""

import numpy as np
import pytest

from benchmarks.performance import performance
from benchmarks.performance.performance import Case
from dpadapt.accounting import ledger
from dpadapt.accounting.ledger import Run
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import clipped_outer_sum
from dpadapt.mechanisms.noise import Gaussian
from dpadapt.mechanisms.randomness import SeededRandom

TINY = (
    Case("softmax, batch of 1,024", 200, 6, 4, 0.25, 20, np.float32),
    Case("softmax, full batch", 200, 6, 4, 1.0, 20, np.float32),
    Case("binary, full batch", 150, 5, 1, 1.0, 20, np.float64),
)


@pytest.fixture
def tiny(monkeypatch):
    """Small cases, and no processes of their own."""
    monkeypatch.setattr(performance, "CASES", TINY)
    monkeypatch.setattr(performance, "steps_memory", lambda: 1.0)
    monkeypatch.setattr(performance, "calibration_times", lambda: {"Poisson, cold": 1.0, "Poisson, cached": 0.0})
    monkeypatch.setattr(performance, "import_time", lambda: 0.5)


class Unaccounted:
    """In the ledger's place: a true run at any noise, whose first batch is that of the non-private step."""

    def __init__(self, **limits):
        pass

    def start(self, plan, *, label):
        return Run(plan, Adjacency.ZERO_OUT, SeededRandom(1), ledger._draw)


def first_steps(case, monkeypatch, *, clip_norm):
    """Return where both steps lead from the same coefficients, the private one with noise that nobody sees."""
    monkeypatch.setattr(
        performance, "clipped_outer_sum", lambda rows, weights, _: clipped_outer_sum(rows, weights, clip_norm)
    )
    monkeypatch.setattr(performance, "Gaussian", lambda _: Gaussian(1e-12))
    monkeypatch.setattr(performance, "Ledger", Unaccounted)
    X, y, coef = performance.problem(case)
    coef = coef + 0.3 * np.random.default_rng(5).standard_normal(coef.shape).astype(case.dtype)
    return coef, performance._non_private(case, X, y, coef)(), performance._dpadapt(case, X, y, coef)()


@pytest.mark.parametrize("case", TINY, ids=lambda case: case.name)
def test_private_step_computes_the_non_private_gradient_under_a_huge_clip(case, monkeypatch):
    start, plain, private = first_steps(case, monkeypatch, clip_norm=1e4)
    tolerance = 1e-5 * np.abs(plain - start).max()
    np.testing.assert_allclose(private - start, plain - start, rtol=0, atol=tolerance)


@pytest.mark.parametrize("case", TINY, ids=lambda case: case.name)
def test_private_step_differs_once_the_clip_binds(case, monkeypatch):
    start, plain, private = first_steps(case, monkeypatch, clip_norm=0.5)
    assert np.abs(private - plain).max() > 0.1 * np.abs(plain - start).max()


@pytest.mark.usefixtures("tiny")
def test_table_has_a_row_per_case_and_contender():
    results = performance.run(quick=True)
    rows = [(row["case"], row["what"]) for row in results["steps"]]
    assert rows == [(case.name, what) for case in TINY for what in ("non-private", "dpadapt")]
    assert all(row["ratio"] == 1 for row in results["steps"] if row["what"] == "non-private")
    assert all(row["ms"] >= 0 for row in results["steps"])


@pytest.mark.usefixtures("tiny")
def test_table_has_the_peers_that_are_found(monkeypatch):
    from benchmarks.performance import peers

    monkeypatch.setattr(peers, "peer_steps", lambda case, X, y, coef: {"a peer": lambda: X @ coef})
    results = performance.run(quick=False)
    assert [row["what"] for row in results["steps"]] == ["non-private", "dpadapt", "a peer"] * 3


@pytest.mark.usefixtures("tiny")
def test_table_prints_every_row_and_its_target(capsys):
    performance.show(performance.run(quick=True))
    printed = capsys.readouterr().out
    assert printed.count("dpadapt") >= len(TINY)
    for target in performance.TARGETS.values():
        assert f"<= {target}" in printed


def test_targets_name_the_cases_that_are_run():
    assert set(performance.TARGETS) == {case.name for case in performance.CASES}


@pytest.mark.parametrize("case", TINY, ids=lambda case: case.name)
def test_step_returns_coefficients(case):
    for step in performance.step_contenders(case, peers=False).values():
        assert step().shape == performance.problem(case)[2].shape
