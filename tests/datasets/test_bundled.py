"""Real data sets that ship inside libraries: documented numbers, labels, and a clear error without statsmodels."""

import sys

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dpadapt.datasets import bundled
from dpadapt.errors import DataUnavailable


def error(model, train, test, floor):
    """Log-loss relative to predicting the rate, or squared error relative to the variance."""
    fitted = make_pipeline(StandardScaler(), model).fit(*train)
    X, y = test
    if isinstance(model, Ridge):
        return float(np.mean((fitted.predict(X) - y) ** 2) / np.var(y))
    return log_loss(y, fitted.predict_proba(X)[:, 1]) / log_loss(y, np.full(len(y), floor))


def errors(domains, model, seeds=5):
    """Mean error on a held-out third of the target: trained on the source, trained on the rest of the target."""
    X, y = domains.target
    results = []
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(len(y))
        test, train = order[: len(y) // 3], order[len(y) // 3 :]
        held_out, own = (X.iloc[test], y.iloc[test]), (X.iloc[train], y.iloc[train])
        results.append([error(model, rows, held_out, own[1].mean()) for rows in (domains.source, own)])
    return np.mean(results, axis=0)


@pytest.mark.parametrize(
    ("domains", "model", "public", "private"),
    [
        (bundled.randhie_by_plan, Ridge(), 0.963, 0.918),
        (bundled.randhie_by_health, Ridge(), 0.951, 0.910),
        (bundled.fair_by_age, LogisticRegression(), 0.955, 0.871),
        (bundled.fair_by_children, LogisticRegression(), 0.941, 0.876),
    ],
)
def test_public_source_helps_but_the_target_itself_is_better(domains, model, public, private):
    # The documented numbers are means of 20 splits with sd up to 0.023; 0.03 is three standard errors of five.
    from_source, from_target = errors(domains(), model)
    assert [from_source, from_target] == pytest.approx([public, private], abs=0.03)
    assert from_target + 0.02 < from_source < 0.99


def test_any_visit_is_one_where_visits_are_positive():
    visits = bundled.randhie_by_plan().target.y
    any_visit = bundled.randhie_by_plan("any_visit").target.y
    assert set(any_visit) == {0, 1}
    assert ((visits > 0) == (any_visit == 1)).all()
    with pytest.raises(ValueError, match="label must be one of"):
        bundled.randhie_by_plan("visits")


def test_domains_cover_the_set_once():
    for domains, rows in ((bundled.randhie_by_health(), 20190), (bundled.fair_by_age(), 6366)):
        assert len(domains.source.y) + len(domains.target.y) == rows
        assert not domains.source.X.isna().any().any()


def test_loaded_tables_are_fresh_copies():
    bundled.fair().frame.loc[0, "age"] = -1
    assert bundled.fair().frame.loc[0, "age"] != -1


@pytest.mark.parametrize("load", [bundled.randhie, bundled.fair_by_age])
def test_missing_statsmodels_is_one_clear_line(monkeypatch, load):
    for name in ("statsmodels", "statsmodels.datasets.randhie", "statsmodels.datasets.fair"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(DataUnavailable, match=r"pip install 'dpadapt\[demo\]'$") as raised:
        load()
    assert "\n" not in str(raised.value)


def test_sets_of_scikit_learn_need_no_statsmodels(monkeypatch):
    monkeypatch.setitem(sys.modules, "statsmodels", None)
    assert bundled.digits().arrays["X"].shape == (1797, 64)
