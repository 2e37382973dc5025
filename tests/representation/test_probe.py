"""`PrivateProbe`: every release is bounded, the encoder is an assumption on the receipt, bad input spends nothing."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline

from dpadapt import Ledger, PrivacyWarning, PrivateTransferClassifier, Public
from dpadapt.representation import PrivateProbe
from dpadapt.rows import row_shares


def data(n=300, seed=0, d=5):
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, d)) * np.linspace(2.0, 0.5, d)
    return X, np.argmax(X[:, :3] + 0.3 * random.standard_normal((n, 3)), axis=1)


PUBLIC = Public(data(100, seed=1)[0])


def test_a_probe_is_a_transfer_classifier_on_the_encoders_features():
    X, y = data(1000)
    settings = {"classes": [0, 1, 2], "random_state": 4}
    probe = PrivateProbe(encoder=np.cbrt, **settings).fit(X, y, public=PUBLIC)
    head = PrivateTransferClassifier(**settings).fit(np.cbrt(X), y, public=Public(np.cbrt(PUBLIC.X)))
    assert np.array_equal(probe.coef_, head.coef_)
    assert np.array_equal(probe.predict_proba(X), head.predict_proba(np.cbrt(X)))
    assert probe.privacy_.epsilon == head.privacy_.epsilon


def test_the_receipt_lists_the_encoder_among_its_assumptions():
    X, y = data(500)
    encoded = PrivateProbe(encoder=np.cbrt, classes=[0, 1, 2], random_state=0).fit(X, y, public=PUBLIC)
    plain = PrivateProbe(classes=[0, 1, 2], random_state=0).fit(X, y, public=PUBLIC)
    assert encoded.privacy_.assumptions[:-1] == plain.privacy_.assumptions
    assert "encoder (cbrt)" in encoded.privacy_.assumptions[-1]
    # The trial uses only a few rows, so this is an assumption too.
    assert "each row by itself" in encoded.privacy_.assumptions[-1]


def test_public_rows_make_a_probe_more_accurate():
    X, y = load_digits(return_X_y=True)
    public = Public(X[:500])
    probe, alone = (
        PrivateProbe(1.0, 1e-5, classes=range(10), random_state=0).fit(X[500:1400], y[500:1400], public=known)
        for known in (public, None)
    )
    assert probe.score(X[1400:], y[1400:]) > alone.score(X[1400:] / 16, y[1400:]) + 0.3


def test_a_frozen_encoder_in_a_pipeline_is_not_fitted_to_private_rows():
    X, y = data(1000)
    pca = PCA(2).fit(PUBLIC.X)
    before = pca.components_.copy()
    head = PrivateProbe(classes=[0, 1, 2], random_state=0)
    pipeline = make_pipeline(FrozenEstimator(pca), head)
    pipeline.fit(X, y, privateprobe__public=Public(pca.transform(PUBLIC.X)))
    assert np.array_equal(pca.components_, before)
    whole = PrivateProbe(encoder=pca, classes=[0, 1, 2], random_state=0).fit(X, y, public=PUBLIC)
    assert np.array_equal(whole.predict(X), pipeline.predict(X))
    assert clone(whole).encoder is not None


def test_an_encoder_is_not_fitted_to_private_rows_without_public_ones():
    X, y = data(1000)
    pca = PCA(2).fit(PUBLIC.X)
    before = pca.components_.copy(), pca.mean_.copy()
    PrivateProbe(encoder=pca, classes=[0, 1, 2], random_state=0).fit(X, y)
    assert all(np.array_equal(*pair) for pair in zip(before, (pca.components_, pca.mean_), strict=True))


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        (lambda X: X[0], "table"),
        (lambda X: X[:1], "table"),
        (lambda X: np.log(-np.abs(X) - 1), "finite"),
        (lambda X: X - X.mean(axis=0), "mixes rows"),
        (lambda X: X + np.random.default_rng().standard_normal(X.shape), "mixes rows"),
        (lambda X: X.astype(str), "numbers"),
        (lambda X: 1 // 0, "ZeroDivisionError: integer division"),
        (3, "TypeError|encoder must be"),
        ("word2vec", "encoder must be one of"),
    ],
)
def test_a_bad_encoder_is_refused_before_anything_is_spent(encoder, message):
    X, y = data(500)
    ledger = Ledger(5.0, 1e-5)
    with np.errstate(all="ignore"), pytest.raises((ValueError, TypeError), match=message):
        PrivateProbe(1.0, 1e-6, encoder=encoder, classes=[0, 1, 2]).fit(X, y, public=PUBLIC, ledger=ledger)
    assert ledger.entries == []


def test_an_encoder_that_mixes_rows_is_refused_even_if_the_first_public_rows_are_equal():
    X, y = data(500)
    public = Public(np.vstack([np.zeros((10, 5)), PUBLIC.X]))
    with pytest.raises(ValueError, match="mixes rows"):
        PrivateProbe(encoder=lambda X: X - X.mean(axis=0), classes=[0, 1, 2]).fit(X, y, public=public)


def test_an_extreme_private_row_causes_no_warning_of_the_encoder():
    X, y = data(500)
    X[7] = -1e4  # its exponential overflows, its feature does not
    probe = PrivateProbe(encoder=lambda X: 1 / (1 + np.exp(-X)), classes=[0, 1, 2], random_state=0)
    probe.fit(X, y, public=PUBLIC)


def test_the_error_of_an_encoder_on_private_rows_shows_none_of_them():
    X, y = data(500)

    def fussy(rows):
        if np.any(rows > 100):
            raise ValueError(f"bad row {rows[rows > 100]}")
        return rows

    X[7, 0] = 4711.0
    ledger = Ledger(5.0, 1e-5)
    with pytest.raises(ValueError, match="encoder fails on X") as caught:
        PrivateProbe(encoder=fussy, classes=[0, 1, 2]).fit(X, y, public=PUBLIC, ledger=ledger)
    error = caught.value
    assert "4711" not in str(error)
    assert error.__cause__ is None
    assert error.__context__ is None
    assert ledger.entries == []


def test_features_without_public_variance_take_no_part():
    X, y = data(1000)
    constant = np.column_stack([X, np.linspace(0, 1, len(X))])
    public = Public(np.column_stack([PUBLIC.X, np.zeros(100)]))
    model = PrivateProbe(classes=[0, 1, 2], random_state=0).fit(constant, y, public=public)
    assert np.all(model.coef_[:, -1] == 0)
    assert np.any(model.coef_[:, 0] != 0)


def test_a_warning_of_an_encoder_about_private_rows_is_not_shown():
    X, y = data(500)

    def chatty(rows):
        if np.any(rows > 100):
            warnings.warn(f"unusual row {rows[rows > 100]}", stacklevel=2)
        return np.tanh(rows)

    X[7, 0] = 4711.0
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        PrivateProbe(encoder=chatty, classes=[0, 1, 2], random_state=0).fit(X, y, public=PUBLIC)
    assert [str(each.message) for each in heard if not issubclass(each.category, PrivacyWarning)] == []


@pytest.mark.parametrize("labelled", [False, True], ids=["moments first", "labelled public"])
def test_rows_without_a_readable_label_are_no_evidence(labelled):
    X, y = data(3000)
    public = Public(*data(100, seed=1)) if labelled else PUBLIC
    for share in (0.0, 0.5):
        model = PrivateProbe(3.0, 1e-5, classes=[0, 1, 2], random_state=0)
        model.fit(X, y, public=public, persons=row_shares(np.arange(3000) < share * 3000))
        # Noise is taken for labels with probability 0.006, and an interval misses the share in 1 of 10 seeds.
        assert model.usable_share_[1] <= share <= model.usable_share_[2]
        assert (model.adopted_ > 0.05) == (share > 0)
        assert any("Compare how labels are written" in note for note in model.privacy_.warnings) == (share == 0)
    assert model.score(X, y) > 0.8
