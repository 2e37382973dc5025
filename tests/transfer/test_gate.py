"""Both gates: estimates of the slope, how far to go along a change, and shrinkage block by block."""

import math

import numpy as np
import pytest
from scipy.stats import chi2, norm

from dpadapt.learning.losses import softmax
from dpadapt.transfer import gate
from dpadapt.transfer.gate import (
    Path,
    Slope,
    keep,
    least_threshold,
    loss_differences,
    regret,
    row_divergences,
    slope_from_change,
    slope_from_losses,
    unseen_factors,
)
from dpadapt.transfer.regression_plan import dyadic_blocks

random = np.random.default_rng(4)


def _changes(gradient, stiffness, variance, repeats):
    """Noisy changes of two classes (one free direction), as the descent makes them."""
    noise = np.sqrt(variance) * random.standard_normal((repeats, len(gradient)))
    one = (gradient + noise) / stiffness / math.sqrt(2.0)
    return np.stack([one, -one], axis=2)


@pytest.mark.parametrize("size", [0.0, 0.3, 2.0])
def test_slope_from_a_change_is_unbiased_and_its_scatter_right(size):
    # 4000 draws: the standard error is 0.016 of the scatter; 0.08 is five of them.
    stiffness, variance = random.uniform(0.5, 2.0, 30), random.uniform(0.1, 0.3, 30)
    gradient = size * random.standard_normal(30)
    errors, scatters = [], []
    for change in _changes(gradient, stiffness, variance, 4000):
        slope = slope_from_change(change, stiffness, variance)
        truth = math.sqrt(2.0) * float(gradient @ change[:, 0])
        errors.append(slope.value - truth)
        scatters.append(math.sqrt(max(slope.scatter**2 - (0.3 * slope.value) ** 2, 0.0)))
    assert abs(np.mean(errors)) < 0.08 * np.std(errors)
    assert np.mean(scatters) == pytest.approx(np.std(errors), rel=0.15)
    assert abs(np.mean(errors) + np.sum(variance / stiffness)) > 0.5 * np.std(errors)  # without the correction it fails


def test_two_estimates_are_weighted_by_precision():
    both = Slope(1.0, 0.1).with_other(Slope(2.0, 0.2))
    assert both.value == pytest.approx((1.0 / 0.01 + 2.0 / 0.04) / 125.0)
    assert both.scatter == pytest.approx(1 / math.sqrt(125.0))


class _Quadratic:
    """A path along which the divergence is bend c²."""

    def __init__(self, bend):
        self.bend, self.scatter = bend, math.sqrt(2.0 * bend)

    def divergence(self, c):
        return self.bend * c**2

    def steepness(self, c):
        return 2.0 * self.bend * c


def _how_far(value, scatter, bend, caution, tolerance):
    return Slope(value, scatter).fraction(_Quadratic(bend), caution, tolerance)


@pytest.mark.parametrize(("value", "scatter"), [(0.1, 0.3), (1.0, 0.6), (0.01, 0.1), (0.5, 0.1)])
def test_worst_case_stays_within_the_tolerance(value, scatter):
    bend, caution, tolerance = 0.7, 1.75, 0.02
    c = _how_far(value, scatter, bend, caution, tolerance)
    assert c > 0
    assert bend * c**2 - (value - caution * scatter) * c <= tolerance * (1 + 1e-9)
    # A little further would be too far, unless the gain itself turns there or the change ends.
    further = 1.05 * c
    beyond = bend * further**2 - (value - caution * scatter) * further > tolerance
    assert beyond or c == pytest.approx(min(1.0, value / (2 * bend)), abs=1e-6)


def _mean_gain(caution, tolerance, gradient, n_repeats=800):
    """Mean gain (as a share of the bend) of going as far as a gate with this caution says, in the quadratic model."""
    stiffness, variance = np.ones(10), np.full(10, 0.02)
    gains = []
    for change in _changes(gradient, stiffness, variance, n_repeats):
        path = _Quadratic(0.5 * 0.8 * float(np.sum(change**2)))
        slope = math.sqrt(2.0) * float(gradient @ change[:, 0])
        noise = 0.1
        mean = slope - path.bend + noise * random.standard_normal()
        measured = slope_from_losses(mean, noise, path, optimism=0.0, n_rows=1e9)
        c = slope_from_change(change, stiffness, variance).with_other(measured).fraction(path, caution, tolerance)
        gains.append(c * slope - path.divergence(c))
    return float(np.mean(gains))


@pytest.mark.parametrize("size", [0.0, 0.05, 0.1, 0.2, 0.5])
def test_gate_does_no_harm_and_an_over_confident_one_does(size):
    gradient = np.full(10, size)
    noise_cost = 0.5 * 0.8 * 10 * 0.02  # what adopting pure noise would cost
    assert _mean_gain(1.75, 0.0, gradient) > -0.02 * noise_cost
    assert _mean_gain(1.75, 0.1 * noise_cost, gradient) > -0.1 * noise_cost
    if size == 0.0:
        assert _mean_gain(-1.75, 0.0, gradient) < -0.2 * noise_cost


def _scores(size):
    return random.standard_normal((500, 3)), size * random.standard_normal((500, 3))


@pytest.mark.parametrize("size", [0.1, 3.0])
def test_gain_is_the_slope_less_the_divergence_exactly(size, monkeypatch):
    monkeypatch.setattr(gate, "_COUNTED_DIVERGENCE", 1.0)
    before, move = _scores(size)
    codes = random.integers(0, 3, 500)
    path = Path(before, before + move)
    whole = float(np.mean(loss_differences(before, before + move, codes)))
    slope = slope_from_losses(whole, 0.0, path, optimism=0.0, n_rows=500.0).value
    gradient = softmax(before.copy()) - np.eye(3)[codes]
    assert slope == pytest.approx(-float(np.mean(np.sum(gradient * move, axis=1))))
    for c in (0.2, 0.5, 1.0):
        gain = float(np.mean(loss_differences(before, before + c * move, codes)))
        assert slope * c - path.divergence(c) == pytest.approx(gain)
        rise = (path.divergence(c + 1e-5) - path.divergence(c - 1e-5)) / 2e-5
        assert path.steepness(c) == pytest.approx(rise, rel=1e-4)


def test_the_whole_change_is_adopted_where_private_rows_have_a_class_that_public_rows_lack():
    # The public model gives the third class e^-20 everywhere and the change brings it up: the loss falls in a straight
    # line, which a parabola with the end's curvature takes for one that turns.
    before = np.column_stack([random.standard_normal((500, 2)), np.full(500, -20.0)])
    after = before + np.array([0.0, 0.0, 21.0])
    path = Path(before, after)
    gain = float(np.mean(loss_differences(before, after, np.arange(500) % 3)))
    slope = slope_from_losses(gain, 0.0, path, optimism=0.0, n_rows=500.0)
    assert slope.fraction(path, 2.5, 0.0) > 0.95
    p = softmax(after.copy())
    parabola = 0.5 * 21.0**2 * float(np.mean(p[:, 2] * (1.0 - p[:, 2])))
    assert (gain + parabola) / (2.0 * parabola) < 0.7


def test_divergence_follows_the_measured_one_by_its_precision():
    scores, move = _scores(1.0)
    path = Path(scores, scores + move)
    whole = path.divergence(1.0)
    assert gate._COUNTED_DIVERGENCE * float(np.mean(row_divergences(scores, scores + move))) == pytest.approx(whole)
    exact = path.as_measured(0.4 * whole, 0.0)
    for c in (0.3, 1.0):
        assert exact.divergence(c) == pytest.approx(0.4 * path.divergence(c))
        assert exact.steepness(c) == pytest.approx(0.4 * path.steepness(c))
    assert path.as_measured(0.4 * whole, 1e3 * whole).divergence(1.0) == pytest.approx(whole, rel=1e-3)
    assert 0.0 < path.as_measured(-5.0 * whole, 0.0).divergence(1.0) < whole
    assert path.as_measured(5.0 * whole, 0.0).divergence(1.0) == whole  # never more than public rows say
    assert path.divergence(1.0) == whole  # the original is left as it is


def test_gate_shuts_on_noise_and_opens_on_signal():
    random = np.random.default_rng(1)
    blocks = dyadic_blocks(np.arange(60))
    variance = np.full(60, 1e-3)
    losses = []
    for _ in range(200):
        noise = random.standard_normal(60) * np.sqrt(variance)
        losses.append(np.sum((keep(noise, variance, blocks, error=1.0).factors * noise) ** 2))
    assert np.mean(losses) < 0.004
    shift = np.zeros(60)
    shift[:10] = 0.3
    kept = keep(shift + noise, variance, blocks, error=1.0)
    assert np.all(kept.factors[:10] > 0.7)
    assert kept.established > 0.5


# Unseen groups.


def test_the_noise_that_is_left_of_an_unseen_group_is_bounded_whatever_it_was():
    """At most half of the expected standard deviation, which is sqrt(0.5) times that of the residuals."""
    for error in (0.3, 1.0, 50.0):
        noise = np.geomspace(1e-6, 1e6, 200) * math.sqrt(error)
        factors = unseen_factors(np.zeros(200), noise**2, error)
        assert (factors * noise <= 0.5 * math.sqrt(0.5 * error) * (1 + 1e-9)).all()
        assert (np.diff(factors) <= 0).all()


def test_an_unseen_group_keeps_its_effect_where_noise_is_small_or_the_effect_is_large():
    factors = unseen_factors(np.array([0.5, 30.0, 2.0]), np.array([1e-4, 4.0, 4.0]), 1.0)
    assert factors[0] > 0.99
    assert factors[1] > 0.99
    assert factors[2] == pytest.approx(0.5 / 4.5)


def test_the_factor_has_the_least_expected_error():
    random = np.random.default_rng(0)
    effects = math.sqrt(0.5) * random.standard_normal(200_000)
    noise = 0.8 * random.standard_normal(200_000)
    factor = float(unseen_factors(np.zeros(1), np.array([0.64]), 1.0)[0])
    errors = {k: np.mean((k * factor * (effects + noise) - effects) ** 2) for k in (0.8, 1.0, 1.2)}
    assert min(errors, key=errors.get) == 1.0


def _risk_by_quadrature(k, threshold, energy):
    """E|(1 - t/X)+ r - m|² - |m|² without Stein's identity: over r along m, and the squared length of the rest."""
    along = math.sqrt(energy) + np.linspace(-9, 9, 2001)
    weight = norm.pdf(along - math.sqrt(energy)) * (along[1] - along[0])
    rest = chi2.ppf((np.arange(1000) + 0.5) / 1000, k - 1) if k > 1 else np.zeros(1)
    squares = along[:, None] ** 2 + rest
    factor = np.maximum(1 - threshold / np.maximum(squares, 1e-300), 0)
    loss = (factor * along[:, None] - math.sqrt(energy)) ** 2 + factor**2 * rest - energy
    return float(weight @ loss.mean(axis=1))


CASES = [
    *[(1, 2.0, 1.0), (2, 3.0, 4.0), (4, 4.0, 8.0), (16, 20.0, 3.0), (3, 1.0, 0.0), (1, 6.0, 9.0)],
    *[(2, 1.0, 0.0), (4, 12.0, 2.0), (16, 14.0, 30.0)],
]


@pytest.mark.parametrize(("k", "threshold", "energy"), CASES)
def test_formula_agrees_with_quadrature(k, threshold, energy):
    direct = _risk_by_quadrature(k, threshold, energy)
    assert regret(k, threshold, energy) == pytest.approx(direct, abs=2e-3)
    assert regret(k, 1.5 * threshold + 1, energy) != pytest.approx(direct, abs=2e-3)  # the test can fail


def test_without_a_threshold_the_regret_is_the_noise():
    # (1 - 0) r against 0: expected k - energy.
    assert regret(5, 0.0, 2.0) == pytest.approx(3.0)


@pytest.mark.parametrize("k", [1, 2, 7, 64])
@pytest.mark.parametrize("variance", [1e-4, 1e-2, 0.3])
@pytest.mark.parametrize("allowed", [1e-4, 1e-2])
def test_chosen_threshold_keeps_the_worst_regret_within_what_is_allowed(k, variance, allowed):
    threshold = least_threshold(k, variance, allowed)
    if math.isinf(threshold):
        return
    energies = np.concatenate([[0.0], np.geomspace(0.1, 20 * k + 200, 60)])
    worst = max(variance * regret(k, threshold, float(e)) / (1 + e * variance) for e in energies)
    assert worst <= allowed * 1.1


def test_thresholds_grow_with_noise_and_shrink_with_tolerance():
    by_noise = [least_threshold(4, v, 1e-3) for v in (1e-4, 1e-3, 1e-2, 1e-1)]
    assert by_noise == sorted(by_noise)
    by_tolerance = [least_threshold(4, 1e-2, a) for a in (1e-1, 1e-2, 1e-3)]
    assert by_tolerance == sorted(by_tolerance)


@pytest.mark.parametrize(("variance", "allowed"), [(0.1, 0.0), (0.1, -1.0), (0.0, 0.1), (math.nan, 0.1)])
def test_without_allowed_loss_the_threshold_is_infinite(variance, allowed):
    assert least_threshold(3, variance, allowed) == math.inf
