"""What the curator releases: moments, models by descent, and weights that give the rows the people's means."""

import math

import numpy as np
import pytest

from dpadapt import Ledger
from dpadapt.hybrid.curator_releases import (
    DESCENT_STEPS,
    TILT_RELEASES,
    Tilt,
    descend,
    find_tilt,
    release_moments,
    release_total,
)
from dpadapt.hybrid.mapped_questions import public_map
from dpadapt.mechanisms.mechanism import Gaussian, Repeated
from dpadapt.rows import Rows

WHERE = public_map(3, (-2, 2), None)


def curators_rows(n=4000, seed=0):
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, 3))
    return Rows(WHERE.transform(X), (X[:, 0] > 0).astype(float), intercept=True)


def quiet(steps, noise=1e-3):
    """Return a run whose noise hardly matters."""
    return Ledger(math.inf, random_state=0).start(Repeated(Gaussian(noise), steps), label="test")


def released_moments(rows, n):
    return release_moments(quiet(1), rows, WHERE, n_rows=n, public=True, noise=1e-3 * WHERE.max_norm**2)


def test_released_moments_are_those_of_the_rows():
    rows = curators_rows()
    moments = released_moments(rows, rows.n_rows)
    assert np.allclose(moments.mean, rows.X.mean(axis=0), atol=1e-5)
    assert np.allclose(moments.covariance, np.cov(rows.X.T, bias=True), atol=1e-4)


def test_without_a_public_number_of_rows_the_release_estimates_it():
    rows = curators_rows()
    moments = release_moments(quiet(1), rows, WHERE, n_rows=9000, public=False, noise=1e-3)
    assert moments.n_rows == pytest.approx(4000, rel=1e-3)
    assert np.allclose(moments.mean, rows.X.mean(axis=0), atol=1e-4)


def test_tilted_rows_have_the_peoples_means():
    rows = curators_rows()
    wanted = np.array([0.6, 0.0, -0.4])
    moments = released_moments(rows, rows.n_rows)
    tilt = find_tilt(quiet(TILT_RELEASES), rows, WHERE, moments, wanted, bound=10.0, noise=0.005, scale=0.01)
    weights = tilt.of(rows.X)
    assert weights.min() >= 0
    assert weights.max() <= 1
    assert np.abs(weights @ rows.X / weights.sum() - wanted).max() < 0.06
    total = release_total(quiet(1), rows, tilt, rows.n_rows)
    assert total == pytest.approx(weights.sum(), abs=0.1)
    assert total * tilt.bound == pytest.approx(rows.n_rows, rel=0.1)


def test_a_null_row_has_no_weight():
    X = np.vstack([np.zeros(3), np.full(3, np.nan)])
    tilt = Tilt(np.ones(3), 0.0, 2.0)
    assert release_total(quiet(1, 1e-9), Rows(X, np.zeros(2), intercept=True), tilt, 1.0) == pytest.approx(0.5)


class Fixed:
    """A run that releases the same numbers whatever the rows are, and overwrites the exact ones."""

    def __init__(self, steps):
        self._ledger = Ledger(math.inf, random_state=0)
        self._random = np.random.default_rng(0)
        self._ledger._draw = self._draw
        self.run = self._ledger.start(Repeated(Gaussian(1.0), steps), label="test")
        self.scales = []

    def _draw(self, mechanism, bounded, scale, random):
        self.scales.append(scale)
        noisy = 300.0 + 30.0 * self._random.standard_normal(bounded.value.shape)
        bounded.value[...] = np.nan
        return noisy


def stages(rows):
    """Return what each stage gives with fixed releases, and the noise of each release."""
    runs = [Fixed(1), Fixed(TILT_RELEASES), Fixed(1), Fixed(DESCENT_STEPS), Fixed(DESCENT_STEPS)]
    second, tilted, total, weighted, plain = (fixed.run for fixed in runs)
    moments = release_moments(second, rows, WHERE, n_rows=900.0, public=False, noise=1.0)
    tilt = find_tilt(tilted, rows, WHERE, moments, np.array([0.3, 0.0, -0.2]), bound=5.0, noise=0.01, scale=1.0)
    summed = release_total(total, rows, tilt, moments.n_rows)
    models = [
        descend(run, rows, moments.second, summed, clip_norm=1.0, blur=0.1, weights=weights)
        for run, weights in ((weighted, tilt.weights), (plain, None))
    ]
    numbers = [moments.n_rows, moments.mean, moments.covariance, tilt.theta, tilt.offset, tilt.bound, summed, *models]
    return numbers, [scale for fixed in runs for scale in fixed.scales]


def test_every_stage_reads_the_rows_only_through_its_releases():
    numbers, scales = stages(curators_rows(700, 0))
    other = curators_rows(300, 1)
    other.X *= 0.1
    numbers_other, scales_other = stages(other)
    for one, two in zip(numbers, numbers_other, strict=True):
        assert np.array_equal(one, two)
    assert scales == scales_other
    # Noise over sensitivity is 1 here, so that a scale is a sensitivity.
    bounds = [WHERE.max_norm**2, *[WHERE.max_norm] * TILT_RELEASES, 1.0, *[1.0] * 2 * DESCENT_STEPS]
    assert scales == pytest.approx(bounds)
