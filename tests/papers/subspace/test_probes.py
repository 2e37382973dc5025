"""`DescentProbe` and `LeastSquaresProbe`: every release is bounded, both learn, bad input spends nothing."""

import numpy as np
import pytest

from dpadapt import Adjacency, Ledger, Public, audit
from dpadapt.mechanisms.mechanism import SampledEvent
from dpadapt.papers.subspace.probes import DescentProbe, LeastSquaresProbe, probe_rows

PROBES = [
    (DescentProbe, {"rows": "unit", "n_steps": 6}),
    (DescentProbe, {"rows": "unit", "n_steps": 6, "batch_size": 50}),
    (DescentProbe, {"rows": "whitened", "n_steps": 6}),
    (LeastSquaresProbe, {"gram": "public"}),
    (LeastSquaresProbe, {"gram": "private"}),
]
every_probe = pytest.mark.parametrize(("estimator", "params"), PROBES, ids=lambda v: getattr(v, "__name__", str(v)))


def data(n=300, seed=0, d=5):
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, d)) * np.linspace(2.0, 0.5, d)
    return X, np.argmax(X[:, :3] + 0.3 * random.standard_normal((n, 3)), axis=1)


PUBLIC = Public(data(100, seed=1)[0])


@every_probe
@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one", "add-remove"])
def test_no_row_moves_a_release_beyond_its_sensitivity_and_nothing_else_leaks(estimator, params, adjacency):
    if params.get("batch_size") and adjacency != "zero-out":
        pytest.skip("samples of two data sets of different size can't be compared draw by draw")
    X, y = data(200)
    params = {**params, "classes": [0, 1, 2], "adjacency": adjacency, "n_rows": None}
    if adjacency == "add-remove":
        params["n_rows"] = 200
    relation = Adjacency.of(adjacency)

    def fit(rows, ledger):
        return estimator(2.0, 1e-5, **params).fit(*rows, public=PUBLIC, ledger=ledger)

    furthest = 0.0
    for row, label in ((np.full(5, 1e6), 2), (np.array([-9.0, 0, 9, 0, 0]), 0)):
        extreme = np.vstack([row, X[1:]]), np.append(label, y[1:])
        null = np.vstack([np.full(5, 1e200), X[1:]]), extreme[1]  # a row whose square overflows is a null row
        other = {"zero-out": null, "replace-one": (X, y), "add-remove": (X[1:], y[1:])}[adjacency]
        tape = audit.record(fit, extreme, adjacency=relation)
        played = audit.replay(fit, other, tape, adjacency=relation)
        noises = [
            (entry.event.event if isinstance(entry.event, SampledEvent) else entry.event).noise_multiplier
            for entry in tape.entries
            for _ in range(entry.times)
        ]
        for before, after, noise in zip(tape.releases, played.releases, noises, strict=True):
            moved, bound = np.linalg.norm(before.value - after.value), before.scale / noise
            assert moved <= bound * (1 + 1e-9)
            furthest = max(furthest, moved / bound)
        assert audit.leaks(lambda: estimator(2.0, 1e-5, **params), extreme, other, public=PUBLIC) == []
    assert furthest > 0.2  # the rows do matter


@every_probe
def test_a_fit_spends_its_budget_and_its_receipt_verifies(estimator, params):
    X, y = data(2000)
    model = estimator(0.7, 1e-5, classes=[0, 1, 2], random_state=0, **params).fit(X, y, public=PUBLIC)
    assert 0.69 < model.privacy_.epsilon <= 0.7 * (1 + 1e-9)
    model.privacy_.verify()


@pytest.mark.parametrize(
    ("estimator", "params"),
    [(DescentProbe, {"rows": "whitened", "n_steps": 100}), (LeastSquaresProbe, {"gram": "public"})],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_probes_learn(estimator, params):
    X, y = data(4000)
    assert estimator(2.0, 1e-5, classes=[0, 1, 2], random_state=0, **params).fit(X, y, public=PUBLIC).score(X, y) > 0.8


def test_rows_have_unit_length_or_are_whitened_by_public_rows():
    X = data(2000, seed=2)[0] + 5
    unit = probe_rows(X, 5, "unit").transform(X)
    assert np.allclose(np.linalg.norm(unit, axis=1), 1.0)
    whitened = probe_rows(X, 5, "whitened").transform(X)
    # Up to the floor under small variances: here 1% of the average.
    assert np.allclose(whitened.T @ whitened / len(X), np.eye(5), atol=0.1)


def test_bad_input_is_refused_before_anything_is_spent():
    X, y = data(500)
    ledger = Ledger(5.0, 1e-5)
    with pytest.raises(ValueError, match="momentum"):
        DescentProbe(momentum="fast").fit(X, y, ledger=ledger)
    with pytest.raises(ValueError, match="whitened"):
        DescentProbe(rows="whitened").fit(X, y, ledger=ledger)
    with pytest.raises(ValueError, match="gram='public'"):
        LeastSquaresProbe().fit(X, y, ledger=ledger)
    assert ledger.entries == []
