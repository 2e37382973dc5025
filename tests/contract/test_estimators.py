"""Battery (b): ours, on every method of the table, with labelled, unlabelled and no public data."""

import datetime
import math
import pickle
import traceback

import numpy as np
import pytest
from cases import CASES
from sklearn.model_selection import GridSearchCV, cross_val_score

from dpadapt import Adjacency, BudgetExceeded, Ledger, PrivacyError, Public, audit
from dpadapt.accounting import epsilon

every_case = pytest.mark.parametrize("case", CASES, ids=str)
every_public_case = pytest.mark.parametrize("case", [c for c in CASES if c.method.beside == "public"], ids=str)


@every_case
def test_receipt_stays_within_the_budget_and_verifies(case):
    model = case.fit(*case.data())
    receipt = model.privacy_
    assert 0 < receipt.epsilon <= 2.0 * (1 + 1e-9)
    assert receipt.delta == 1e-5
    assert receipt.seeded
    assert receipt.epsilon == pytest.approx(2.0, rel=1e-6)  # what may be spent is used
    verdict = receipt.verify()
    assert verdict.lower <= receipt.epsilon * (1 + 1e-6) <= verdict.upper * (1 + 1e-3)
    assert any("number of rows" in fact for fact in receipt.assumptions)


@every_case
def test_callers_ledger_is_charged_the_same_events(case):
    ledger = Ledger(epsilon=5.0, delta=1e-5)
    model = case.fit(*case.data(), ledger=ledger)
    assert ledger._store.tally() == model.privacy_.tally()
    assert ledger.spent() == pytest.approx(model.privacy_.epsilon)
    assert all(type(model).__name__ in entry.label for entry in ledger.entries)
    case.fit(*case.data(), ledger=ledger)
    # Two fits compose as events: less than the sum of their epsilons.
    assert model.privacy_.epsilon < ledger.spent() < 2 * model.privacy_.epsilon


@every_case
def test_too_small_a_cap_raises_before_any_draw(case):
    ledger = Ledger(epsilon=1.0, delta=1e-5)
    drawn = []
    ledger._draw = lambda *release: drawn.append(release)
    with pytest.raises(BudgetExceeded, match="cap"):
        case.fit(*case.data(), ledger=ledger)
    assert drawn == []
    assert ledger.entries == []


def _neighbours(case):
    """Yield the data and versions of it with one record changed: huge, zero, another label."""
    X, y = case.data()
    for row, target in ((np.full(4, 1e6), y[1]), (np.zeros(4), y[0]), (X[5] * -3, y[np.argmax(y != y[7])])):
        X_other, y_other = X.copy(), y.copy()
        X_other[7], y_other[7] = row, target
        yield (X, y), (X_other, y_other)


@every_case
@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
def test_replay_finds_no_leak(case, adjacency):
    fit = case.beside()
    for data, neighbour in _neighbours(case):
        assert audit.leaks(lambda: case.make(adjacency=adjacency), data, neighbour, **fit) == []


@every_case
def test_replay_under_add_remove_finds_no_leak(case):
    X, y = case.data()
    make = lambda: case.make(adjacency="add-remove", n_rows=400)  # noqa: E731
    assert audit.leaks(make, (X, y), (X[:-1], y[:-1]), **case.beside()) == []


@every_case
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_no_record_moves_a_release_further_than_its_noise_assumes(case, adjacency):
    params = {"adjacency": adjacency, "n_rows": 400 if adjacency == "add-remove" else None}
    relation = Adjacency.of(adjacency)

    def fit(data, ledger):
        return case.make(**params).fit(*data, **case.beside(), ledger=ledger)

    X, y = case.data()
    without = (X, y) if adjacency == "replace-one" else (X[1:], y[1:])
    furthest = 0.0
    for row in (np.full(4, 1e6), np.full(4, -1.0), np.array([1e3, -1e3, 0.0, 0.0])):
        for target in np.unique(y)[[0, -1]]:
            extreme = np.vstack([row, X[1:]]), np.append(target, y[1:])
            tape = audit.record(fit, extreme, adjacency=relation)
            played = audit.replay(fit, without, tape, adjacency=relation)
            noises = [entry.event.noise_multiplier for entry in tape.entries for _ in range(entry.times)]
            for before, after, noise in zip(tape.releases, played.releases, noises, strict=True):
                bound = before.scale / noise
                moved = np.linalg.norm(before.value - after.value)
                assert moved <= bound * (1 + 1e-9) + 1e-9
                furthest = max(furthest, moved / bound)
    assert furthest > 0.1  # the records do matter


@every_case
def test_a_row_beyond_all_bounds_raises_no_warning(case):
    X, y = case.data()
    X[5] = [1e300, -1e300, 1e200, 0.0]
    assert np.isfinite(case.fit(X, y).coef_).all()


@every_case
def test_huge_and_zero_rows_follow_the_same_path(case):
    X, y = case.data()
    for extreme in (1e8, 0.0):
        X_other = X.copy()
        X_other[:40] = extreme
        model = case.fit(X_other, y)
        assert np.isfinite(model.coef_).all()
        assert [e.event for e in model.privacy_.entries] == [e.event for e in case.fit(X, y).privacy_.entries]


@every_case
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_non_finite_rows_are_refused_and_nothing_is_spent(case, bad):
    X, y = case.data()
    X[3, 1] = bad
    ledger = Ledger(epsilon=5.0, delta=1e-5)
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        case.fit(X, y, ledger=ledger)
    assert ledger.entries == []


SECRET = "ZEBRA7731"


@every_case
@pytest.mark.parametrize(
    "cell",
    [
        SECRET,
        f'it\'s {SECRET} "or so"',
        f"'\n{SECRET}\"",
        SECRET.encode(),
        {SECRET: 1},
        datetime.date(1977, 3, 1),
        10**400,
    ],
    ids=["text", "both quotes", "two lines", "bytes", "dict", "date", "too large"],
)
def test_no_cell_is_shown_when_rows_are_refused(case, cell):
    X, y = case.data()
    X = X.astype(object)
    X[3, 1] = cell
    ledger = Ledger(epsilon=5.0, delta=1e-5)
    with pytest.raises((ValueError, TypeError)) as failure:
        case.fit(X, y, ledger=ledger)
    error = failure.value
    assert SECRET not in "".join(traceback.format_exception(error))
    # Some loggers walk the chain whether it is suppressed or not.
    assert error.__context__ is None
    assert error.__cause__ is None
    assert ledger.entries == []


@every_public_case
def test_the_private_rows_are_refused_as_public_ones(case):
    X, y = case.data()
    ledger = Ledger(epsilon=5.0, delta=1e-5)
    with pytest.raises(PrivacyError, match="public holds the private X"):
        case.make().fit(X, y, public=Public(X, y), ledger=ledger)
    assert ledger.entries == []


@every_case
def test_pickled_model_predicts_the_same(case):
    X, y = case.data()
    model = case.fit(X, y)
    copy = pickle.loads(pickle.dumps(model))
    assert np.array_equal(copy.predict(X), model.predict(X))
    assert copy.privacy_ == model.privacy_


@every_case
def test_seeded_repeats_and_unseeded_does_not(case):
    X, y = case.data()
    first, second = case.fit(X, y), case.fit(X, y)
    assert np.array_equal(first.coef_, second.coef_)
    # What was drawn, not the coefficients: noise that explains the whole correction leaves the public model.
    drawn = []
    for _ in range(2):
        ledger = Ledger(epsilon=5.0, delta=1e-5)
        draw = ledger._draw
        ledger._draw = lambda *release, draw=draw: drawn.append(draw(*release)) or drawn[-1]
        secure = case.fit(X, y, random_state=None, ledger=ledger)
        assert not secure.privacy_.seeded
    assert len(drawn) % 2 == 0
    assert all(not np.array_equal(*pair) for pair in zip(drawn, drawn[len(drawn) // 2 :], strict=False))


@every_case
@pytest.mark.parametrize("params", [{"epsilon": 0.0}, {"epsilon": -1.0}, {"epsilon": math.nan}, {"epsilon": "1"}])
def test_bad_epsilon_is_named(case, params):
    with pytest.raises(ValueError, match="epsilon must be a positive number"):
        case.fit(*case.data(), **params)


@every_case
@pytest.mark.parametrize("delta", [-0.1, 1.0, 0.0, math.nan])
def test_bad_delta_is_named(case, delta):
    with pytest.raises(ValueError, match="delta must"):
        case.fit(*case.data(), delta=delta)


@every_case
def test_ledger_of_another_adjacency_is_refused(case):
    ledger = Ledger(epsilon=5.0, delta=1e-5, adjacency=Adjacency.REPLACE_ONE)
    with pytest.raises(PrivacyError, match="agree"):
        case.fit(*case.data(), ledger=ledger)
    assert ledger.entries == []


@every_case
def test_large_delta_is_said_on_the_receipt(case):
    X, y = case.data()
    model = case.fit(X, y, delta=0.01)
    assert any("1/n" in text for text in model.privacy_.warnings)
    assert not any("1/n" in text for text in case.fit(X, y).privacy_.warnings)


@every_case
def test_hopeless_budget_spends_nothing_and_says_so(case):
    X, y = case.data()
    ledger = Ledger(epsilon=5.0, delta=1e-5)
    model = case.fit(X, y, epsilon=1e-4, delta=1e-9, ledger=ledger)
    assert ledger.entries == []
    assert model.privacy_.epsilon == 0.0
    assert any("nothing was spent" in text for text in model.privacy_.warnings)


@every_public_case
def test_raw_arrays_as_public_data_are_refused(case):
    X, y = case.data()
    with pytest.raises(TypeError, match="Public"):
        case.make().fit(X, y, public=(X, y))


@every_public_case
def test_public_columns_must_match(case):
    X, y = case.data()
    with pytest.raises(ValueError, match="columns"):
        case.make().fit(X, y, public=Public(X[:, :3], y))


# One entry per fit.
LINEAR = next(case for case in CASES if case.method.name == "linear")


def test_every_cross_validation_fit_is_charged():
    case = LINEAR
    X, y = case.data()
    ledger = Ledger(epsilon=50.0, delta=1e-5)
    params = {"ledger": ledger, "public": case.public_data()}
    cross_val_score(case.make(), X, y, cv=4, params=params)
    assert len(ledger.entries) == 4


def test_every_grid_search_fit_is_charged():
    case = next(c for c in CASES if c.method.name == "linear" and c.public == "none")
    X, y = case.data()
    ledger = Ledger(epsilon=100.0, delta=1e-5)
    grid = GridSearchCV(case.make(epsilon=1.0), {"target_bounds": [(-1, 1), (-3, 3)]}, cv=3)
    grid.fit(X, y, ledger=ledger)
    assert len(ledger.entries) == 2 * 3 + 1  # and the refit
    assert ledger.spent() == pytest.approx(epsilon(ledger._store.tally(), 1e-5))


def test_parallel_cross_validation_fails_loudly_with_a_ledger_in_memory():
    case = LINEAR
    X, y = case.data()
    params = {"ledger": Ledger(epsilon=50.0, delta=1e-5), "public": case.public_data()}
    with pytest.raises(pickle.PicklingError) as failure:
        cross_val_score(case.make(), X, y, cv=2, n_jobs=2, params=params)
    assert "n_jobs=1" in str(failure.value.__cause__)


def test_parallel_cross_validation_with_a_durable_ledger_charges_every_fit(tmp_path):
    case = LINEAR
    X, y = case.data()
    ledger = Ledger.open(tmp_path / "a.ledger", epsilon=50.0, delta=1e-5)
    params = {"ledger": ledger, "public": case.public_data()}
    cross_val_score(case.make(), X, y, cv=2, n_jobs=2, params=params)
    assert len(ledger.entries) == 2
