"""Private moments: both releases stay within their bounds, and public rows are recoloured as far as evidence goes."""

import math

import numpy as np
import pytest

from dpadapt import Adjacency, Ledger, PrivateTransferClassifier, Public
from dpadapt.learning.base import Budget
from dpadapt.representation import PrivateProbe, feature_moments
from dpadapt.representation.feature_moments import (
    Moments,
    distinct_correlations,
    estimate,
    moved_variances,
    plan_moments,
    public_estimate,
    recoloured,
    release_moments,
    shrunk_mean,
)
from dpadapt.rows import InMemory, Part

random = np.random.default_rng(11)
D = 6
PUBLIC = random.standard_normal((300, D)) * np.linspace(3.0, 0.3, D) + 1.0
ROWS = random.standard_normal((40, D)) * 2.0 - 1.0
EXTREME = [np.full(D, 1e6), -np.full(D, 1e6), np.eye(D)[0] * 1e-9, PUBLIC.mean(axis=0), np.full(D, 1e-300), ROWS[3]]
NULL = np.full(D, np.nan)


def plan_for(n=2000, mu=1.0, factor=1.0, X=PUBLIC):
    plan = plan_moments(Public(X), X, Budget(mu, float(n), factor))
    assert plan is not None
    return plan


class Caught:
    """A run that keeps the bounded statistic and releases it without noise."""

    def release(self, bounded):
        self.bounded = bounded
        return bounded.value.astype(float)


def in_two(X):
    """Return rows in two blocks."""
    return InMemory([Part(part, np.zeros(len(part))) for part in (X[:7], X[7:])], len(X))


def bounded_statistics(X):
    runs = [Caught(), Caught()]
    release_moments(plan_for(), runs, in_two(X))
    return [run.bounded for run in runs]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_no_neighbour_moves_either_release_beyond_its_bound(adjacency, dtype):
    if adjacency is Adjacency.ADD_REMOVE and dtype is np.float32:
        return  # refused: see `Bounded.fixed_rows`
    furthest = [0.0, 0.0]
    for row in EXTREME:
        first = np.vstack([ROWS, row]).astype(dtype)
        others = {
            Adjacency.ZERO_OUT: [np.vstack([ROWS, NULL])],
            Adjacency.ADD_REMOVE: [ROWS],
            Adjacency.REPLACE_ONE: [np.vstack([ROWS, other]) for other in EXTREME],
        }[adjacency]
        for second in others:
            pairs = zip(bounded_statistics(first), bounded_statistics(second.astype(dtype)), strict=True)
            for place, (before, after) in enumerate(pairs):
                moved = np.linalg.norm(before.value.astype(float) - after.value.astype(float))
                bound = before.sensitivity("l2", adjacency)
                assert bound == pytest.approx(math.sqrt(2) if adjacency is Adjacency.REPLACE_ONE else 1.0)
                assert moved <= bound * (1 + (1e-9 if dtype is np.float64 else 1e-5))
                furthest[place] = max(furthest[place], moved / bound)
    # The bounds are needed: much less noise would not be private.
    assert furthest[0] > 0.99
    assert furthest[1] > 0.8


def test_a_null_row_adds_nothing_to_either_release():
    for before, after in zip(bounded_statistics(ROWS), bounded_statistics(np.vstack([ROWS, NULL])), strict=True):
        assert np.allclose(before.value, after.value, rtol=1e-12, atol=1e-12)


def test_what_a_row_adds_does_not_depend_on_other_rows():
    whole = [bounded.value for bounded in bounded_statistics(ROWS)]
    parts = [bounded_statistics(ROWS[i : i + 1]) for i in range(len(ROWS))]
    for place in range(2):
        assert np.allclose(whole[place], sum(part[place].value for part in parts), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_everything_together_costs_exactly_mu_and_the_head_has_95_percent(factor):
    plan = plan_for(mu=0.7, factor=factor)
    spent = sum(one.steps / one.event().noise_multiplier ** 2 for one, _ in plan.charges)
    assert spent == pytest.approx(0.7**2, rel=1e-9)
    assert plan.head.mu**2 == pytest.approx(0.95 * 0.7**2)
    assert [label for _, label in plan.charges] == ["feature lengths", "feature directions", "gradient"]


def test_the_planned_noise_is_that_of_the_release():
    for adjacency, factor in ((Adjacency.ZERO_OUT, 1.0), (Adjacency.REPLACE_ONE, 2.0)):
        plan = plan_for(factor=factor)
        runs = Ledger(9.0, 1e-5, adjacency=adjacency, random_state=3).start_all(plan.charges)
        exact = release_moments(plan, [Caught(), Caught()], in_two(ROWS))
        noisy = release_moments(plan, runs, in_two(ROWS))
        off = (noisy.second - exact.second)[np.triu_indices(D, 1)]
        # 15 normal numbers: their root mean square is within a factor 2 of its expectation with probability 0.9999.
        assert 0.5 < np.sqrt(np.mean(off**2)) / (plan.noise / math.sqrt(2)) < 2.0


def test_without_noise_the_moments_are_those_of_the_directions():
    plan = plan_for(n=len(ROWS), mu=10.0)
    moments = release_moments(plan, [Caught(), Caught()], in_two(ROWS))
    units = (ROWS - plan.frame.center) / plan.frame.scale
    lengths = np.linalg.norm(units, axis=1)
    directions = units / lengths[:, None] @ plan.frame.basis
    assert np.allclose(moments.mean, directions.mean(axis=0))
    assert np.allclose(moments.second, directions.T @ directions / len(ROWS))
    assert np.allclose(moments.squares, np.diag(moments.second))
    assert moments.length == pytest.approx(np.median(lengths), rel=0.1)


def test_pure_noise_gives_no_correlations_and_a_planted_one_is_found():
    k, error = 200, 0.01
    draw = np.random.default_rng(0).standard_normal((k, k)) * error * math.sqrt(2)
    noise = (draw + draw.T) / 2 * math.sqrt(1)
    assert np.linalg.norm(distinct_correlations(noise, error * 1.1)) == 0.0
    axis = np.ones(k) / math.sqrt(k)
    found = distinct_correlations(noise + np.outer(axis, axis), error * 1.1)
    edge = error * 1.1 * math.sqrt(k)
    assert axis @ found @ axis == pytest.approx((1 - edge**2) ** 2, abs=0.1)


def test_moments_like_the_public_ones_change_nothing():
    public = np.array([4.0, 2.0, 1.0, 1.0, 0.5, 0.5])
    assert np.array_equal(moved_variances(public, public + 0.01, 0.1), public)
    assert np.array_equal(shrunk_mean(public, public + 0.01, 0.1), public)
    # Evidence moves whole blocks, and no further than to 5%.
    assert moved_variances(public, 3 * public, 1e-6) == pytest.approx(3 * public)
    assert moved_variances(public, -public, 1e-6) == pytest.approx(0.05 * public)
    assert shrunk_mean(public, public + 5.0, 1e-6) == pytest.approx(public + 5.0)


def test_recoloured_public_rows_whiten_private_rows_of_another_kind():
    shift = np.random.default_rng(2).standard_normal((D, D))
    private = np.random.default_rng(3).standard_normal((5000, D)) @ shift + 2.0
    plan = plan_for(n=len(private), mu=50.0)
    runs = [Caught(), Caught()]
    prepared = recoloured(plan.frame, estimate(plan, release_moments(plan, runs, in_two(private))), 2)
    alike = recoloured(plan.frame, public_estimate(plan.frame), 2)

    def condition(preparation):
        rows = preparation.coordinates.transform(private, np.ones(1 + D))[:, 1:]
        return np.linalg.cond(np.cov(rows.T))

    assert condition(prepared) < 0.25 * condition(alike)


def shifted_data(n=6000, d=60):
    """Return private rows around a point far from the public ones, in ten directions; labels; two kinds of rows."""
    draw = np.random.default_rng(5)
    mixing, center = draw.standard_normal((10, d)), 4.0 * draw.standard_normal(d)

    def private(rows):
        hidden = draw.standard_normal((rows, 10))
        return hidden, hidden @ mixing + center + 0.1 * draw.standard_normal((rows, d))

    hidden, X = private(n)
    y = np.argmax(hidden[:, :3], axis=1)
    return X, y, draw.standard_normal((500, d)) / np.arange(1, d + 1), private(500)[1]


def test_a_probe_survives_public_rows_of_another_kind():
    X, y, other, same = shifted_data()
    settings = {"epsilon": 0.5, "delta": 1e-5, "classes": [0, 1, 2], "random_state": 0}
    fits = [
        cls(**settings).fit(X[:4000], y[:4000], public=Public(known)).score(X[4000:], y[4000:])
        for cls, known in ((PrivateProbe, other), (PrivateTransferClassifier, other), (PrivateProbe, same))
    ]
    assert fits[0] > fits[1] + 0.05
    assert fits[2] > 0.9


@pytest.mark.parametrize(
    ("n", "labels"),
    [
        (800, ["usable labels", "gradient"]),
        (4000, ["usable labels", "feature lengths", "feature directions", "gradient"]),
    ],
)
def test_moments_are_released_only_where_the_budget_is_enough_and_the_forecast_uses_the_same_plan(n, labels):
    X, y, other, _ = shifted_data()
    probe = PrivateProbe(1.0, 1e-6, classes=[0, 1, 2], random_state=0)
    fitted = probe.fit(X[:n], y[:n], public=Public(other))
    assert [entry.label.rpartition(": ")[2] for entry in fitted.privacy_.entries] == labels
    forecast, head = (
        cls(1.0, 1e-6, classes=[0, 1, 2]).forecast(Public(other), n)
        for cls in (PrivateProbe, PrivateTransferClassifier)
    )
    # 5% of the budget is missing: slightly more noise.
    assert (forecast == head) == ("feature lengths" not in labels)
    assert head.blur <= forecast.blur < 1.2 * head.blur
    assert forecast.gate == "none"


def test_labelled_public_rows_start_a_public_model_and_no_moments_are_released():
    X, y, other, _ = shifted_data()
    public = Public(other, np.arange(500) % 3)
    probe = PrivateProbe(1.0, 1e-6, classes=[0, 1, 2], random_state=0).fit(X, y, public=public)
    assert not [entry for entry in probe.privacy_.entries if "feature" in entry.label]


def test_constant_features_take_no_part_and_without_any_variance_the_head_has_the_budget():
    X, y, other, _ = shifted_data()
    known = other.copy()
    known[:, 3] = 7.0
    settings = {"classes": [0, 1, 2], "random_state": 0}
    probe = PrivateProbe(**settings).fit(X, y, public=Public(known))
    assert np.all(probe.coef_[:, 3] == 0)
    assert np.any(probe.coef_[:, 4] != 0)
    flat = PrivateProbe(**settings).fit(X, y, public=Public(np.ones_like(other)))
    assert not [entry for entry in flat.privacy_.entries if "feature" in entry.label]


def test_a_noisy_histogram_gives_a_median_between_its_edges():
    edges = 2.0 ** (np.arange(-16, 41) / 4.0)
    counts = np.zeros(58)
    counts[30:33] = 25, 50, 25
    assert feature_moments._median_length(counts, edges) == pytest.approx(math.sqrt(edges[30] * edges[31]))
    noisy = counts + 3.0 * np.random.default_rng(0).standard_normal(58)
    assert feature_moments._median_length(noisy, edges) == pytest.approx(math.sqrt(edges[30] * edges[31]), rel=0.3)
    for place in (0, 57):
        assert edges[0] <= feature_moments._median_length(100.0 * (np.arange(58) == place), edges) <= edges[-1]
    assert edges[0] <= feature_moments._median_length(np.full(58, -1.0), edges) <= edges[-1]


def test_moments_of_nothing_but_noise_keep_the_model_finite():
    plan = plan_for(mu=0.2)
    noise = np.random.default_rng(1).standard_normal((D, D))
    prepared = recoloured(plan.frame, estimate(plan, Moments(1e-9, np.zeros(D), np.diag(noise), noise + noise.T)), 3)
    assert all(np.isfinite(array).all() for array in (prepared.coordinates.basis, prepared.sample))
    assert np.all(prepared.coordinates.shares > 0)
