"""No neighbour moves a statistic of bounded losses further than its stated bound, for every maker and adjacency."""

import inspect
import math

import numpy as np
import pytest

from dpadapt import Ledger, PrivacyError
from dpadapt.mechanisms import Adjacency, Gaussian, bounded, clipped_gram
from dpadapt.mechanisms.bounded import clipped_outer_sum
from dpadapt.papers.adaptation import bounded_losses
from dpadapt.papers.adaptation.bounded_losses import (
    SquaredLossGradients,
    extremes_in_ball,
    gradient_bounds,
    limited_rows,
    listed_discrepancy,
    loss_bound,
    minimise_in_ball,
    own_losses,
    squared_loss_discrepancy,
    squared_loss_gradient,
)
from dpadapt.rows import Rows

D = 3
EXTREME = [0.0, 1.0, -1.0, 0.5, 1e300, -1e300, 1e200, 1e30, 1e-30, 1e-170, 5e-324, math.nan, math.inf, -math.inf]
NULL = [math.nan] * (D + 1)


def record(rng):
    """Return a row and its target: ordinary, with a huge target, or of extreme values."""
    kind = rng.integers(4)
    if kind == 0:
        return rng.choice(EXTREME, D + 1)
    row = rng.standard_normal(D + 1) * rng.choice([0.3, 3.0, 1e4])
    if kind == 1:
        row[-1] = rng.choice([-1e9, 1e9])
    return row


def neighbours(rng, adjacency):
    records = [record(rng) for _ in range(int(rng.integers(1, 6)))]
    at = int(rng.integers(len(records)))
    other = records.copy()
    if adjacency is Adjacency.ADD_REMOVE:
        del other[at]
    else:
        other[at] = NULL if adjacency is Adjacency.ZERO_OUT else record(rng)
    return [np.array(part, dtype=float).reshape(-1, D + 1) for part in (records, other)]


def limited(table, max_norm=1.0, max_target=1.0):
    return limited_rows(table[:, :D], table[:, D], max_norm=max_norm, max_target=max_target)


PUBLIC = limited(np.random.default_rng(9).standard_normal((8, D + 1))).moments().divided(8)
LISTED = np.random.default_rng(8).standard_normal((5, D))


def make_gradient(table, rng, case):
    direction = rng.standard_normal(D)
    coef = direction / np.linalg.norm(direction) * rng.choice([0.0, 0.5, case, 100.0])
    return lambda t: squared_loss_gradient(limited(t, 0.7, 1.3).moments(), coef, case)


def make_gradients(table, rng, case):
    direction = rng.standard_normal(D)
    coef = direction / np.linalg.norm(direction) * rng.choice([0.0, 0.5, case, 100.0])
    # The sums are made once and used at several points.
    elsewhere = rng.standard_normal(D)

    def make(t):
        with SquaredLossGradients(limited(t, 0.7, 1.3).moments(), case) as at:
            at(elsewhere.copy())
            return at(coef.copy())

    return make


def make_weighted_gradient(table, rng, case):
    # Factors are public and belong to positions, so removing a record would shift them: all are equal here.
    # One above 1 must not lift a record above its bound.
    factor = rng.random() * rng.choice([1.0, 1.0, 5.0])
    coef = case * np.eye(D)[0]
    return lambda t: squared_loss_gradient(limited(t).moments(np.full(len(t), factor)), coef, case)


def make_discrepancy(table, rng, case):
    return lambda t: squared_loss_discrepancy(limited(t).moments(), PUBLIC, case, 5.0)


def make_listed(table, rng, case):
    def make(t):
        rows = limited(t)
        losses = (rows.X @ LISTED.T * 1e3 - rows.y[:, None]) ** 2
        return listed_discrepancy(losses, np.arange(5.0), case, 5.0)

    return make


def make_own(table, rng, case):
    factor = rng.choice([0.8, 5.0])
    return lambda t: own_losses(np.prod(t, axis=1), case, np.full(len(t), factor))


MAKERS = {
    "squared_loss_gradient": make_gradient,
    "squared_loss_gradient, weighted": make_weighted_gradient,
    "SquaredLossGradients": make_gradients,
    "squared_loss_discrepancy": make_discrepancy,
    "listed_discrepancy": make_listed,
    "own_losses": make_own,
}
NORMS = {"l1": 1, "l2": 2, "linf": np.inf}


# own_losses has one entry per record, so it is refused under ADD_REMOVE.
SUPPORTED = [(n, a) for n in MAKERS for a in Adjacency if not (n == "own_losses" and a is Adjacency.ADD_REMOVE)]


@pytest.mark.parametrize(("name", "adjacency"), SUPPORTED)
def test_no_neighbour_moves_further_than_the_bound(name, adjacency):
    rng = np.random.default_rng(len(name))
    furthest = 0.0
    for _ in range(400):
        case = float(rng.choice([0.25, 1.0, 10.0]))
        table, other = neighbours(rng, adjacency)
        with np.errstate(all="ignore"):
            make = MAKERS[name](table, rng, case)
            first, second = make(table), make(other)
        assert np.isfinite(first.value).all()
        gap = np.ravel(first.value - second.value)
        norm = "l2" if "gradient" in name.lower() else "l1"
        bound = first.sensitivity(norm, adjacency)
        moved = float(np.linalg.norm(gap, NORMS[norm]))
        assert moved <= bound * (1 + 1e-12) + 1e-12
        furthest = max(furthest, moved / bound)
    # The bound is approached, so a bound of half the size would be detected.
    assert furthest > 0.5


@pytest.mark.parametrize("reach", [0.25, 1.0, 5.0, 100.0])
def test_the_replacement_bound_of_gradients_is_tight(reach):
    rng = np.random.default_rng(0)
    w = np.array([reach, 0.0])
    x = rng.standard_normal((60_000, 2))
    x /= np.linalg.norm(x, axis=1, keepdims=True) * np.where(
        rng.random((len(x), 1)) < 0.7, 1, rng.uniform(1, 3, (len(x), 1))
    )
    y = np.where(rng.random(len(x)) < 0.7, rng.choice([-1.0, 1.0], len(x)), rng.uniform(-1, 1, len(x)))
    g = 2 * x * (x @ w - y)[:, None]
    single, replaced = gradient_bounds(1.0, 1.0, reach)
    assert 0.98 * single <= np.linalg.norm(g, axis=1).max() <= single * (1 + 1e-12)
    # The largest distance of two points is the largest width of the set.
    directions = np.column_stack([np.cos(np.linspace(0, np.pi, 361)), np.sin(np.linspace(0, np.pi, 361))])
    widths = np.ptp(g @ directions.T, axis=0)
    assert 0.98 * replaced <= widths.max() <= replaced * (1 + 1e-12)
    assert replaced <= 2 * single


def test_the_gradient_of_moments_is_the_sum_of_the_rows_gradients():
    rng = np.random.default_rng(1)
    X, y, w, c = rng.uniform(-0.5, 0.5, (20, D)), rng.uniform(-1, 1, 20), np.array([0.3, -0.2, 0.1]), rng.random(20)
    rows = limited_rows(X, y, max_norm=1.0, max_target=1.0)
    expected = 2 * X.T @ (c * (X @ w - y))
    assert squared_loss_gradient(rows.moments(c), w, 1.0).value == pytest.approx(expected, abs=1e-12)
    # Coefficients outside the ball are clipped to it.
    clipped = squared_loss_gradient(rows.moments(), 10 * w, 0.5).value
    assert clipped == pytest.approx(squared_loss_gradient(rows.moments(), 0.5 * w / np.linalg.norm(w), 0.5).value)


def test_gradients_outside_a_block_are_refused():
    """There a numerical error would reveal an extreme row."""
    at = SquaredLossGradients(limited(np.ones((1, D + 1))).moments(), 1.0)
    with pytest.raises(PrivacyError, match="with SquaredLossGradients"):
        at(np.ones(D))
    with at:
        at(np.ones(D))
    with pytest.raises(PrivacyError, match="with SquaredLossGradients"):
        at(np.ones(D))


def test_extreme_rows_raise_no_numerical_error():
    """Under `np.errstate(all="raise")` an error would reveal that a row is extreme."""
    for x in EXTREME:
        for y in EXTREME:
            with np.errstate(all="raise"):
                moments = limited_rows([[x]], [y], max_norm=1.0, max_target=1.0).moments([0.7])
                for size in (0.3, 1e-200, 1e200):
                    squared_loss_gradient(moments, np.full(1, size), 1.0)
                    with SquaredLossGradients(moments, 1.0) as at:
                        at(np.full(1, size))
                moments.divided(3.0)
                squared_loss_discrepancy(moments, moments, 1.0, 2.0)
                listed_discrepancy([[x, y]], [0.0, 0.0], 1.0, 5.0)
                own_losses([x, y], 1.0, [0.5, 0.5])


def test_limits_are_enforced_and_losses_bounded():
    rows = limited_rows([[3.0, 4.0], [0.3, 0.4], [math.inf, 0.0]], [9.0, 0.5, 1.0], max_norm=1.0, max_target=2.0)
    assert np.allclose(rows.X, [[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]])
    assert rows.y.tolist() == [2.0, 0.5, 0.0]
    assert loss_bound(1.0, 2.0, 3.0) == 25.0
    with pytest.raises(ValueError, match="one entry per record"):
        own_losses([[1.0]], 1.0)
    with pytest.raises(ValueError, match="max_norm"):
        limited_rows([[1.0]], [1.0], max_norm=0.0, max_target=1.0)
    with pytest.raises(ValueError, match="at least 1"):
        rows.moments().divided(0)


def test_limits_hold_for_float32():
    """0.1 is larger in float32, and lengths have larger rounding errors: both would exceed the limit."""
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((500, 7)).astype(np.float32), np.full(500, 9.0, dtype=np.float32)
    rows = limited_rows(X, y, max_norm=0.1, max_target=0.1)
    assert np.linalg.norm(rows.X.astype(np.float64), axis=1).max() <= 0.1
    assert rows.y.astype(np.float64).max() <= 0.1
    assert own_losses(y, 0.1).value.astype(np.float64).max() <= 0.1
    assert listed_discrepancy(y[:1, None], [0.0], 0.1, 1.0).value.astype(np.float64) <= 0.1


@pytest.mark.parametrize("radius", [math.nan, math.inf, 1e200])
def test_a_radius_whose_square_overflows_is_refused(radius):
    """Coefficients whose square overflows too would not be shortened to it."""
    moments = limited(np.ones((1, D + 1))).moments()
    with pytest.raises(ValueError, match="radius must be at most 1e100"):
        squared_loss_gradient(moments, np.full(D, 1e250), radius)


@pytest.mark.parametrize("targets", [(0.9, 0.1), (0.1, 0.9)])
def test_the_discrepancy_is_the_largest_difference_in_both_directions(targets):
    """The private losses are larger in one case, the public ones in the other."""
    rng = np.random.default_rng(4)
    rows = [limited(np.column_stack([rng.uniform(-0.3, 0.3, (6, D)), np.full(6, y)])) for y in targets]
    private, public = rows
    coefs = rng.standard_normal((4000, D))
    coefs *= (0.5 * rng.random(4000) ** (1 / D) / np.linalg.norm(coefs, axis=1))[:, None]
    sums = [((part.X @ coefs.T - part.y[:, None]) ** 2).sum(axis=0) for part in rows]
    largest = np.abs(sums[0] - sums[1]).max()
    value = float(squared_loss_discrepancy(private.moments(), public.moments().divided(6), 0.5, 6.0).value)
    assert largest <= value * (1 + 1e-9)
    assert value <= 1.05 * largest


def test_moments_of_all_rows_are_computed_once():
    """Several releases need the same sums; weighted sums are others, and must not be mistaken for them."""
    rows = limited_rows([[0.5, 0.1], [0.2, 0.4]], [0.3, -0.2], max_norm=1.0, max_target=1.0)
    assert rows.moments() is rows.moments()
    assert rows.moments([0.0, 1.0]).gram.tolist() == np.outer([0.2, 0.4], [0.2, 0.4]).tolist()
    assert rows.moments([1.0, 1.0]).gram == pytest.approx(rows.moments().gram)


def test_every_public_maker_is_in_the_battery():
    makers = {
        name
        for name, value in vars(bounded_losses).items()
        if (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__ == bounded_losses.__name__
        and getattr(value if inspect.isfunction(value) else value.__call__, "__annotations__", {}).get("return")
        is bounded.Bounded
    }
    assert makers == {name.split(",")[0] for name in MAKERS}


def test_statistics_that_need_a_fixed_number_of_rows_are_refused_under_add_remove():
    single = Rows(np.ones((4, 2), np.float32), np.zeros(4, np.float32))
    ones = lambda block: np.ones(len(block.y), block.X.dtype)  # noqa: E731
    for value in (own_losses([0.5, 0.2], 1.0), clipped_outer_sum(single, ones, 1.0), clipped_gram(single, 1.0)):
        ledger = Ledger(10.0, 1e-5, adjacency=Adjacency.ADD_REMOVE, random_state=0)
        with pytest.raises(PrivacyError, match="number of rows is public"):
            ledger.release(Gaussian(10.0), value, label="x")
        assert ledger.entries == []
        assert Ledger(10.0, 1e-5, random_state=0).release(Gaussian(10.0), value, label="x").shape


# Minimum and maximum of a quadratic in a ball equal those of projected descent from many starts.


def descend(A, b, radius, rng, starts=60):
    """Return the least value of w'Aw - 2b'w in the ball, by projected descent from many starts."""
    size = np.abs(np.linalg.eigvalsh(A)).max() + 1e-12
    W = rng.standard_normal((starts, len(b)))
    W *= radius * rng.uniform(0, 1, (starts, 1)) / np.linalg.norm(W, axis=1, keepdims=True)
    for _ in range(5000):
        after = W - (W @ A - b) / size
        length = np.linalg.norm(after, axis=1, keepdims=True)
        after = np.where(length > radius, after * radius / np.maximum(length, 1e-300), after)
        if np.abs(after - W).max() < 1e-13:
            break
        W = after
    return float((np.einsum("ij,jk,ik->i", W, A, W) - 2 * W @ b).min())


@pytest.mark.parametrize("kind", ["general", "hard", "nearly hard", "definite", "no linear part"])
def test_extremes_equal_those_of_projected_descent(kind):
    rng = np.random.default_rng(len(kind))
    for _ in range(6):
        d = int(rng.integers(1, 6))
        A = rng.standard_normal((d, d))
        A = A @ A.T if kind == "definite" else (A + A.T) / 2
        b = rng.standard_normal(d) * (kind != "no linear part")
        if "hard" in kind:
            # No component, or one of 1e-9, along the eigenvectors of the least and the greatest eigenvalue.
            for v in np.linalg.eigh(A)[1].T[[0, -1]]:
                b = 0.1 * (b - v * (v @ b)) + (1e-9 * v if "nearly" in kind else 0.0)
        radius = float(rng.choice([0.1, 1.0, 5.0]))
        low, high = extremes_in_ball(A, b, radius)
        assert low == pytest.approx(descend(A, b, radius, rng), abs=1e-8)
        assert high == pytest.approx(-descend(-A, -b, radius, rng), abs=1e-8)
        w = minimise_in_ball(A, b, radius)
        assert np.linalg.norm(w) <= radius * (1 + 1e-12)
        assert w @ A @ w - 2 * b @ w == pytest.approx(low, abs=1e-10)
