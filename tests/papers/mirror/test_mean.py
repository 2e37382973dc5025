"""`PDADPMDMean`: its error against the formula, its ridge, public rows that have no covariance."""

import math

import numpy as np
import pytest

from dpadapt import Ledger, Public
from dpadapt.accounting.cost import gaussian_mu
from dpadapt.papers.mirror.mean import PDADPMDMean, public_shape


def test_error_of_the_private_mean_is_that_of_its_formula():
    random = np.random.default_rng(0)
    deviations = np.linspace(0.3, 1.0, 12)
    public = Public(random.standard_normal((300, 12)) * deviations + 1.0)
    X = random.standard_normal((3000, 12)) * deviations + 1.2
    clip, repeats = 60.0, 200
    errors = [
        np.sum((PDADPMDMean(1.0, 1e-5, clip_norm=clip, random_state=s).fit(X, public=public).mean_ - X.mean(0)) ** 2)
        for s in range(repeats)
    ]
    _, shape, _ = public_shape(public.X, 12, None)
    wanted = (clip / (3000 * gaussian_mu(1.0, 1e-5))) ** 2 * np.sum(shape**2)
    # The sum of 12 weighted squares has relative deviation below sqrt(2 / 6); four standard errors.
    assert np.mean(errors) == pytest.approx(wanted, rel=4 * math.sqrt(1 / 3 / repeats))


def noise_over_isotropic(public):
    """The squared error by noise in the geometry of S over that of isotropic noise, 90% of rows unclipped in both."""
    _, shape, clip_norm = public_shape(public, public.shape[1], None)
    isotropic = np.quantile(np.linalg.norm(public - public.mean(axis=0), axis=1), 0.9)
    return clip_norm**2 * np.sum(shape**2) / (isotropic**2 * public.shape[1])


def test_noise_in_the_geometry_of_the_public_rows_has_no_less_error_than_isotropic_noise():
    """The trace inequality for any variances; and the clipping norms that are used, for those of the benchmark."""
    random = np.random.default_rng(0)
    for _ in range(200):
        variances = random.gamma(0.5, size=50) + 1e-6
        assert np.sum(1 / variances) * np.sum(variances**2) >= 50 * np.sum(variances)
    few = np.where(np.arange(50) < 3, 1.0, 0.2)
    assert np.sum(few**-2) * np.sum(few**4) / (50 * np.sum(few**2)) == pytest.approx(15, abs=0.5)
    assert noise_over_isotropic(random.standard_normal((20_000, 50)) * few) == pytest.approx(11, abs=1)
    equal = random.standard_normal((20_000, 50))
    assert noise_over_isotropic(equal[:2000]) == pytest.approx(1.11, abs=0.02)
    assert noise_over_isotropic(equal) == pytest.approx(1.01, abs=0.01)


def test_the_public_shape_is_the_covariance_scaled_to_largest_eigenvalue_one():
    X = np.random.default_rng(0).standard_normal((400, 3)) * [2.0, 1.0, 0.5]
    mean, shape, clip_norm = public_shape(X, 3, 0.0)
    covariance = np.cov(X.T, bias=True)
    assert mean == pytest.approx(X.mean(axis=0))
    assert shape == pytest.approx(covariance / np.linalg.eigvalsh(covariance)[-1])
    lengths = np.linalg.norm(np.linalg.solve(shape, (X - mean).T), axis=0)
    # The default clips a tenth of the public rows; leverages are small here.
    assert np.mean(lengths <= clip_norm) == pytest.approx(0.9, abs=0.02)


def test_public_rows_without_a_usable_covariance_are_refused_before_anything_is_spent():
    X = np.random.default_rng(0).standard_normal((600, 30))
    ledger = Ledger(epsilon=5.0, delta=1e-5)
    with pytest.raises(ValueError, match="ridge"):
        PDADPMDMean(ridge=0.0).fit(X, public=Public(X[:12] + 0), ledger=ledger)
    with pytest.raises(ValueError, match="all alike"):
        PDADPMDMean().fit(X, public=Public(np.ones((9, 30))), ledger=ledger)
    assert ledger.entries == []
