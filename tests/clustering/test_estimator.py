"""The private clustering estimator: privacy of every release, the gate, refusals, and scikit-learn's checks."""

import pickle
import traceback

import numpy as np
import pandas as pd
import pytest

from dpadapt import Adjacency, Ledger, PrivacyError, PrivacyWarning, Public, persist
from dpadapt.clustering import PrivateSourceTargetClustering, inference
from dpadapt.clustering.solver import cluster_t, nearest, non_private
from dpadapt.mechanisms.events import GaussianEvent, LaplaceEvent

GAUSSIAN = {"epsilon": 3.0, "delta": 1e-6, "noise": "gaussian"}
FRAME = pd.DataFrame(np.arange(40.0).reshape(20, 2), columns=["x", "y"])


def make(n_clusters=5, epsilon=1.0, **params):
    return PrivateSourceTargetClustering(n_clusters, epsilon, **{"random_state": 0, **params})


@pytest.fixture(scope="module")
def pair():
    """Targets in two blobs; sources fill one of them."""
    random = np.random.default_rng(0)
    T = np.vstack([random.standard_normal((100, 2)), random.standard_normal((100, 2)) + 8.0])
    return random.standard_normal((1500, 2)), T, Public(T)


def cost(S, T, centres):
    return float(np.minimum(nearest(T, T[centres])[1], nearest(T, S)[1]).mean())


def test_centres_are_placed_where_there_are_no_sources(pair):
    S, T, public = pair
    ours, alone, best = make(6).fit(S, public=public).centers_, cluster_t(T, 6), non_private(S, T, 6)
    assert (T[ours][:, 0] > 4).sum() > (T[alone][:, 0] > 4).sum()
    gap = (cost(S, T, ours) - cost(S, T, best)) / (cost(S, T, alone) - cost(S, T, best))
    assert gap < 0.3


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("sources", ["empty", "far", "one", "not finite"])
def test_useless_sources_give_exactly_the_centres_of_the_targets_alone(pair, epsilon, sources):
    S, T, public = pair
    rows = {"empty": S[:0], "far": S + 1e4, "one": S[:1], "not finite": np.full((9, 2), np.nan)}[sources]
    model = make(7, epsilon).fit(rows, public=public)
    assert np.array_equal(model.centers_, cluster_t(T, 7))
    assert model.cost_estimate_ == pytest.approx(nearest(T, T[model.centers_])[1].mean())
    assert model.privacy_.epsilon == pytest.approx(epsilon)  # the same path, and the same price


PERSONAL = [{}, GAUSSIAN, {"epsilon": 0.1}, {"epsilon": 10.0}]


@pytest.mark.parametrize("params", PERSONAL, ids=str)
@pytest.mark.parametrize("n_persons", [0, 1])
def test_at_most_one_person_gives_exactly_the_centres_of_the_targets_alone(pair, params, n_persons):
    """A person with very many sources; without ids, nobody counts."""
    S, T, public = pair
    model = make(7, **params).fit(S, public=public, persons=np.full(len(S), "ann" if n_persons else None))
    assert np.array_equal(model.centers_, cluster_t(T, 7))
    assert model.privacy_.epsilon == pytest.approx(params.get("epsilon", 1.0))
    assert model.privacy_.unit == "person"


@pytest.mark.parametrize("params", [{}, GAUSSIAN], ids=["laplace", "gaussian"])
def test_persons_with_several_sources_move_centres_as_well(pair, params):
    S, T, public = pair
    best, alone = (cost(S, T, centres) for centres in (non_private(S, T, 6), cluster_t(T, 6)))
    for ids in (np.arange(len(S)), np.arange(len(S)) // 5):
        model = make(6, **params).fit(S, public=public, persons=ids)
        assert (cost(S, T, model.centers_) - best) / (alone - best) < 0.3
        kinds = {type(entry.event) for entry in model.privacy_.entries}
        assert kinds == {GaussianEvent if params else LaplaceEvent}


def test_persons_are_refused_where_they_are_not_protected_and_nothing_is_spent(pair):
    S, _, public = pair
    ledger = Ledger(epsilon=5.0, adjacency=Adjacency.ADD_REMOVE, unit="person")
    for rows, params, message in (
        (iter([S]), {}, "S must be a table of numbers"),
        (S, {"certificate_share": 0.5}, "certificate_share must be 0 with persons"),
        (S, {"epsilon": 1e-12}, "noise_multiplier is too large"),
    ):
        with pytest.raises(ValueError, match=message):
            make(**params).fit(rows, public=public, persons=np.arange(len(S)), ledger=ledger)
    with pytest.raises(ValueError, match="persons must hold an id for some rows"):
        make(adjacency="zero-out").fit(S, public=public, persons=[None] * len(S))
    assert ledger.entries == []


def test_saved_models_hold_no_id(pair, tmp_path):
    S, _, public = pair
    model = make().fit(S, public=public, persons=["ZEBRA7731"] * len(S))
    persist.save(model, tmp_path)
    assert b"ZEBRA7731" not in pickle.dumps(model)
    assert not any(b"ZEBRA7731" in path.read_bytes() for path in tmp_path.iterdir())
    assert persist.load(tmp_path).model.privacy_.unit == "person"


def test_several_numbers_of_centres_share_one_release(pair):
    S, _, public = pair
    ledger = Ledger(epsilon=1.0, adjacency=Adjacency.ADD_REMOVE)
    model = make([2, 5, 9]).fit(S, public=public, ledger=ledger)
    assert {k: len(set(rows.tolist())) for k, rows in model.centers_.items()} == {2: 2, 5: 5, 9: 9}
    assert list(model.cost_estimate_) == [2, 5, 9]
    assert len(ledger.entries) == 2


def test_sources_in_blocks_give_the_same_release(pair):
    S, _, public = pair
    whole = make().fit(S, public=public)
    blocks = make().fit(iter([S[:1], S[1:900], S[900:900], S[900:]]), public=public)
    assert np.array_equal(whole.centers_, blocks.centers_)
    assert whole.cost_estimate_ == blocks.cost_estimate_
    assert np.array_equal(make().fit(iter([]), public=public).centers_, make().fit(S[:0], public=public).centers_)


def test_rows_out_of_range_change_no_fitted_value(pair):
    """The number of sources is used nowhere: rows out of range leave every fitted value as it is."""
    S, _, public = pair
    more = np.vstack([S, np.full((1000, 2), 1e7)])
    first, second = make().fit(S, public=public), make().fit(more, public=public)
    assert np.array_equal(first.centers_, second.centers_)
    assert first.cost_estimate_ == second.cost_estimate_


def refused(message, *, n_clusters=5, S=None, public=None, error=ValueError, pair=None, **params):
    S = pair[0] if S is None else S
    ledger = Ledger(epsilon=5.0, delta=1e-5, adjacency=Adjacency.ADD_REMOVE)
    with pytest.raises(error, match=message) as failure:
        make(n_clusters, **params).fit(S, public=pair[2] if public is None else public, ledger=ledger)
    assert ledger.entries == []
    return failure.value


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_clusters": 0}, "n_clusters"),
        ({"n_clusters": 2.5}, "n_clusters"),
        ({"n_clusters": []}, "n_clusters"),
        ({"n_clusters": [3, -1]}, "n_clusters"),
        ({"n_clusters": 201}, "n_clusters must be at most the number of targets, 200"),
        ({"noise": "uniform"}, "noise must be one of"),
        ({"noise": "gaussian"}, "delta must be positive"),
        ({"gate": 0.0}, "gate"),
        ({"gamma": 0.7}, "gamma"),
        ({"certificate_share": 1.0}, "certificate_share"),
        ({"certificate_share": 0.1, **GAUSSIAN}, "certificate_share"),
        ({"S": iter([np.zeros((5, 3))])}, "columns"),
        ({"S": iter([np.zeros((5, 2))]), "certificate_share": 0.1}, "certificate_share"),
        ({"S": iter([[[10**400, 0]]])}, "numbers"),
        ({"S": iter([FRAME[["y", "x"]]]), "public": Public(FRAME)}, "same order"),
        ({"S": iter([np.zeros((5, 2), complex)])}, "numbers"),
        ({"public": Public(np.full((5, 2), np.nan))}, "finite"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_spent(pair, params, message):
    refused(message, pair=pair, **params)


def test_public_data_must_be_declared_and_not_be_the_sources(pair):
    S, T, _ = pair
    refused("Public", public=T, error=TypeError, pair=pair)
    refused("private", S=S, public=Public(S), error=PrivacyError, pair=pair)
    with pytest.raises(ValueError, match="public"):
        make().fit(S)


@pytest.mark.parametrize("cell", ["ZEBRA7731", b"ZEBRA7731", {"ZEBRA7731": 1}])
@pytest.mark.parametrize("blocks", [False, True])
def test_errors_show_no_cell_of_the_sources(pair, cell, blocks):
    rows = pair[0][:20].astype(object)
    rows[3, 1] = cell
    error = refused("numbers", S=iter([rows]) if blocks else rows, pair=pair)
    assert "ZEBRA7731" not in "".join(traceback.format_exception(error))
    assert error.__context__ is None


def test_repeated_targets_give_distinct_centres(pair):
    S = pair[0]
    for T in (np.zeros((20, 2)), np.repeat(np.arange(10.0).reshape(5, 2), 4, axis=0)):
        model = make(3).fit(S, public=Public(T))
        assert len(set(model.centers_.tolist())) == 3
        assert np.isfinite(model.cost_estimate_)
    assert len(make(4).fit(S, public=Public(np.arange(8.0).reshape(4, 2))).centers_) == 4


def test_centres_that_cost_no_less_are_those_of_the_targets_alone(pair, monkeypatch):
    S, T, public = pair
    monkeypatch.setattr(inference, "_EMPTY_ODDS", 1e300)
    assert np.array_equal(make(6).fit(S, public=public).centers_, cluster_t(T, 6))


def test_changing_fitted_centres_does_not_change_the_next_fit(pair):
    """The answer without sources is kept for the next fit with the same targets."""
    _, T, public = pair
    no_sources = np.empty((0, 2))
    model = make(5).fit(no_sources, public=public)
    model.centers_[:] = 0
    several = make([3, 5]).fit(no_sources, public=public)
    several.centers_.clear()
    assert np.array_equal(make(5).fit(no_sources, public=public).centers_, cluster_t(T, 5))
    assert list(make([3, 5]).fit(no_sources, public=public).centers_) == [3, 5]


def test_repeated_number_of_centres_is_charged_once(pair):
    S, _, public = pair
    model = make([4, 4], certificate_share=0.5).fit(S, public=public)
    assert [entry.label for entry in model.privacy_.entries].count(model.privacy_.entries[-1].label) == 1


def test_no_warning_reveals_a_cell_too_large_for_a_float(pair, recwarn):
    S, _, public = pair
    rows = S.astype(np.longdouble)
    rows[3, 0] = np.longdouble("1e400")
    make().fit(rows, public=public)
    assert [each for each in recwarn if not issubclass(each.category, PrivacyWarning)] == []


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3])
def test_very_small_gaussian_budget_gives_the_centres_of_the_targets_alone(pair, epsilon):
    S, T, public = pair
    model = make(epsilon=epsilon, delta=1e-6, noise="gaussian").fit(S, public=public)
    assert model.privacy_.epsilon <= epsilon
    assert np.array_equal(model.centers_, cluster_t(T, 5))


def test_budgets_too_small_for_the_noise_are_refused_before_anything_is_spent(pair):
    refused("certificate_share must be larger", certificate_share=1e-12, pair=pair)
    refused("too large for integers", epsilon=1e-18, pair=pair)


def test_cost_estimate_is_at_most_the_bound(pair):
    S, _, public = pair
    model = make([2, 6, 20], epsilon=1e6, certificate_share=0.5).fit(S, public=public)
    assert all(model.cost_estimate_[k] <= model.cost_bound_[k] for k in (2, 6, 20))
