"""No neighbour moves a `Bounded` further than its stated bound, for every maker, norm and adjacency.

Neighbours are generated at random from extreme values. The only tolerance is for the rounding of the sum itself: 1e-9
of the sum of absolute terms in float64, 1e-5 in float32. These sums have few rows; for many rows,
`test_rounding_of_long_sums_stays_a_small_share_of_the_bound` measures the rounding.
"""

import inspect
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpadapt.errors import PrivacyError
from dpadapt.inputs.persons import person_shares, weighted
from dpadapt.mechanisms import Adjacency, bounded
from dpadapt.mechanisms.bounded import (
    Bounded,
    added,
    clipped_gram,
    clipped_outer_sum,
    clipped_outer_sums,
    clipped_sum,
    clipped_term_sum,
    coarser_histogram,
    histogram,
    histogram_of_blocks,
    kept_entries,
    responses,
    soft_histogram,
    square_root_histogram,
    threshold_votes,
    votes,
    weighted_votes,
)
from dpadapt.rows import FLOAT32_EXCESS, Rows, norm_bounds, row_shares

NORMS = {"l1": 1, "l2": 2, "linf": np.inf}
ROUNDING = {np.float64: 1e-9, np.float32: 1e-5}
NULL = "null"

EXTREME = [0.0, -0.0, 1.0, -1.0, 0.5, 1e300, -1e300, 1e308, 1e200, 1e155, 1e30, -1e30, 1e19, 1e-19, 1e-23, 1e-25, 1e-45]
EXTREME += [1e-160, 1e-170, 5e-324, math.nan, math.inf, -math.inf]
extreme = st.one_of(st.sampled_from(EXTREME), st.floats(-3, 3))
dtypes = st.sampled_from([np.float64, np.float32])
clips = st.sampled_from([1.0, 0.3, 1e-7, 1e4])


def cast(values, dtype):
    with np.errstate(over="ignore"):
        return np.asarray(values, dtype=np.float64).astype(dtype)


@dataclass(frozen=True)
class Maker:
    """How to test one maker: strategies for its records and options, how to call it, and the tolerated rounding."""

    name: str
    record: st.SearchStrategy
    options: st.SearchStrategy
    make: object  # (records, options) -> Bounded
    rounding: object = staticmethod(lambda options: 1e-9)
    adjacencies: tuple = tuple(Adjacency)


def table(records, width, dtype):
    """Return the records as a matrix; the null record is a row of NaN."""
    rows = [np.full(width, np.nan) if record is NULL else record[:width] for record in records]
    return cast(rows, dtype).reshape(len(records), width)


def labelled(records, width, dtype):
    rows = [[np.nan] * width + [0.0] if record is NULL else [*record[:width], record[-1]] for record in records]
    whole = cast(rows, dtype).reshape(len(records), width + 1)
    return whole[:, :width].copy(), whole[:, width].copy()


def make_outer_sum(records, options, shares=None, make=clipped_outer_sum):
    """Call `clipped_outer_sum` with weights that depend on the row and its label in extreme ways."""
    width, dtype, clip_norm, intercept, kind = options
    X, y = labelled(records, width, dtype)

    def weights(block):
        with np.errstate(all="ignore"):
            score = (block.X.sum(axis=1) + 1) * block.y
            if kind == "label":
                return block.y.copy()
            if kind == "product":
                return score
            if kind == "reciprocal":
                return 1 / (score - score)
            if kind == "wide":
                return np.column_stack([block.y, score, np.ones_like(score)])
            return np.column_stack([np.full_like(score, kind), -block.y])

    return make(Rows(X, y, intercept=intercept, shares=shares), weights, clip_norm)


def make_later_outer_sum(records, options, shares=None):
    """Return the third of several outer sums of the same rows: the limits of its weights were held by the first."""

    def make(rows, weights, clip_norm):
        sums = clipped_outer_sums(rows, clip_norm)
        sums(lambda block: np.zeros(len(block.X), block.X.dtype))
        sums(lambda block: np.full((len(block.X), 2), 1e30, block.X.dtype))
        return sums(weights)

    return make_outer_sum(records, options, shares, make)


def make_term_sum(records, options, shares=None):
    """Call `clipped_term_sum` with terms in two parts, as the gradients of a network are."""
    width, dtype, clip_norm = options
    terms = table(records, width, dtype)
    squares = np.einsum("ij,ij->i", terms, terms, dtype=np.float64)

    def part(rows, squares):
        def combine(factors):
            return factors.astype(dtype) @ np.where((factors == 0)[:, None], 0, rows)

        return norm_bounds(squares, width), combine

    halves = slice(0, 2), slice(2, None)
    with np.errstate(all="ignore"):
        parts = [part(terms[half], squares[half]) for half in halves]
        return clipped_term_sum(parts, width, clip_norm, dtype=dtype, shares=shares)


records = st.lists(extreme, min_size=4, max_size=4)
codes = st.sampled_from([0, 1, 2, 3, -1, 7, 10**9, 0.5, 1e300, -1e300, math.nan, math.inf])
places = st.one_of(codes, st.floats(0, 9))
KINDS = ["label", "product", "reciprocal", "wide", math.inf, math.nan, 1e300, 1e30, 1e-30, 0.0]
kinds = st.sampled_from(KINDS)


def coded(records):
    """Return the codes of records; the null record has none."""
    return np.array([-1 if record is NULL else record for record in records])


def halves_of(rows, place):
    """Return rows in three blocks, one of which is empty."""
    return rows[:place], rows[:0], rows[place:]


def make_added(records, places, shares=None):
    """Call `added` with clipped sums over parts of the records."""
    blocks = np.split(np.arange(len(records)), np.minimum(places, len(records)))
    rows = table(records, 3, np.float64)
    return added(clipped_sum(rows[own], 0.7, None if shares is None else shares.take(own)) for own in blocks)


def make_codes(maker):
    def make(records, options):
        return maker(coded(records), options)

    return make


MAKERS = [
    Maker(
        "clipped_sum",
        records,
        st.tuples(st.integers(1, 4), dtypes, clips),
        lambda records, o: clipped_sum(table(records, o[0], o[1]), o[2]),
    ),
    Maker(
        "clipped_gram",
        records,
        st.tuples(st.integers(1, 4), dtypes, clips),
        lambda records, o: clipped_gram(table(records, o[0], o[1]), o[2]),
    ),
    Maker(
        "clipped_gram",
        records,
        st.tuples(st.integers(1, 3), dtypes, clips, st.booleans()),
        lambda records, o: clipped_gram(Rows(*labelled(records, o[0], o[1]), intercept=o[3]), o[2]),
        rounding=lambda o: ROUNDING[o[1]],
    ),
    Maker(
        "clipped_outer_sum",
        records,
        st.tuples(st.integers(1, 3), dtypes, clips, st.booleans(), kinds),
        make_outer_sum,
        rounding=lambda o: ROUNDING[o[1]],
    ),
    Maker(
        "clipped_term_sum",
        records,
        st.tuples(st.integers(1, 4), dtypes, clips),
        make_term_sum,
        rounding=lambda o: ROUNDING[o[1]],
    ),
    Maker("histogram", codes, st.integers(1, 4), make_codes(histogram)),
    Maker(
        "soft_histogram",
        records,
        st.tuples(st.integers(1, 4), dtypes),
        lambda records, o: soft_histogram(table(records, *o)),
    ),
    Maker(
        "histogram_of_blocks",
        codes,
        st.tuples(st.integers(1, 4), st.integers(0, 5)),
        lambda records, o: make_codes(
            lambda codes, n: histogram_of_blocks([codes[: o[1]], codes[o[1] :], codes[:0]], n)
        )(records, o[0]),
    ),
    Maker(
        "added",
        records,
        st.tuples(st.integers(1, 4), dtypes, clips, st.integers(0, 5)),
        lambda records, o: added(clipped_sum(part, o[2]) for part in halves_of(table(records, o[0], o[1]), o[3])),
    ),
    Maker(
        "added",
        codes,
        st.tuples(st.integers(1, 4), st.integers(0, 5)),
        lambda records, o: added(histogram(part, o[0]) for part in halves_of(coded(records), o[1])),
    ),
    Maker(
        "coarser_histogram",
        codes,
        st.lists(st.integers(-1, 2), min_size=1, max_size=4),
        lambda records, o: coarser_histogram(make_codes(histogram)(records, len(o)), o, 3),
    ),
    Maker(
        "votes",
        records,
        st.tuples(st.integers(1, 4), dtypes),
        lambda records, o: votes(table(records, *o)),
    ),
    Maker(
        "votes",
        st.lists(st.integers(-5, 5), min_size=4, max_size=4),
        st.integers(1, 4),
        lambda records, o: votes(
            np.array([r[:o] if r is not NULL else [0] * o for r in records], dtype=int).reshape(-1, o)
        ),
    ),
    Maker(
        "responses",
        codes,
        st.integers(2, 4),
        make_codes(responses),
        adjacencies=(Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE),
    ),
    Maker(
        "clipped_gram",
        records,
        st.tuples(st.integers(1, 3), dtypes, clips),
        # A map that is far from linear, and not finite for some rows.
        lambda records, o: clipped_gram(Rows(*labelled(records, o[0], o[1])), o[2], lambda X: 1 / (X - 1) ** 3),
        rounding=lambda o: ROUNDING[o[1]],
    ),
    Maker("square_root_histogram", places, st.integers(1, 9), make_codes(square_root_histogram)),
    Maker(
        "clipped_outer_sums",
        records,
        st.tuples(st.integers(1, 3), dtypes, clips, st.booleans(), kinds),
        make_later_outer_sum,
        rounding=lambda o: ROUNDING[o[1]],
    ),
]
ids = [f"{maker.name}{i}" for i, maker in enumerate(MAKERS)]


def neighbour(records, at, other, adjacency):
    """Return the neighbour of `records` in which record `at` is removed, null, or replaced by `other`."""
    if adjacency is Adjacency.ADD_REMOVE:
        return [*records[:at], *records[at + 1 :]]
    return [*records[:at], NULL if adjacency is Adjacency.ZERO_OUT else other, *records[at + 1 :]]


def excess(first, second, adjacency, tolerance, bound=None):
    """Return by how much two neighbours' distance exceeds the stated bound, in the worst norm."""
    gap = np.ravel(first.value).astype(np.float64) - np.ravel(second.value).astype(np.float64)
    worst = -math.inf
    for norm, order in NORMS.items():
        try:
            limit = (bound or first).sensitivity(norm, adjacency)
        except PrivacyError:
            continue
        worst = max(worst, float(np.linalg.norm(gap, order)) - limit * (1 + 1e-12) - tolerance)
    return worst


def check(maker, data, adjacency):
    records = data.draw(st.lists(maker.record, min_size=1, max_size=5))
    at = data.draw(st.integers(0, len(records) - 1))
    other = data.draw(maker.record)
    options = data.draw(maker.options)
    first = maker.make(records, options)
    second = maker.make(neighbour(records, at, other, adjacency), options)
    assert first.value.shape == second.value.shape
    assert np.isfinite(first.value).all()
    if maker.name == "responses":
        # One record determines one entry.
        assert np.count_nonzero(first.value != second.value) <= 1
        assert first.n_categories == options
        assert ((first.value >= 0) & (first.value < options)).all()
        return
    largest = max(first.l1 or 0, first.l2 or 0) * len(records)
    assert excess(first, second, adjacency, largest * maker.rounding(options), first) <= 0
    if first.monotone and adjacency is not Adjacency.REPLACE_ONE:
        assert (first.value >= second.value).all()


@pytest.mark.parametrize("maker", MAKERS, ids=ids)
@pytest.mark.parametrize("adjacency", list(Adjacency))
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(data=st.data())
def test_no_neighbour_moves_further_than_the_bound(maker, adjacency, data):
    if adjacency in maker.adjacencies:
        check(maker, data, adjacency)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", KINDS)
def test_no_pair_of_row_and_label_exceeds_the_bound(kind, dtype):
    """One row alone, all pairs of extreme values: a tiny row with a huge label must be clipped despite underflow."""
    for x in EXTREME:
        for y in EXTREME:
            for clip_norm, intercept in ((1.0, False), (1.0, True), (1e-4, False)):
                made = make_outer_sum([[x, y]], (1, dtype, clip_norm, intercept, kind))
                assert np.linalg.norm(made.value) <= clip_norm, (x, y, clip_norm, intercept)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_extreme_rows_raise_no_numerical_error(dtype):
    """Under `np.errstate(all="raise")` an error would reveal that a row is extreme."""
    for pair in [cast([[x, y]], dtype) for x in EXTREME for y in EXTREME]:
        label = pair[:, 0].copy()
        with np.errstate(all="raise"):
            rows = Rows(pair, label, intercept=True, max_norm=1.0)
            for clip_norm in (1.0, 1e-7):
                clipped_sum(pair, clip_norm)
                clipped_gram(pair, clip_norm)
                clipped_gram(rows, clip_norm)
                clipped_outer_sum(rows, lambda block: block.y.copy(), clip_norm)
                clipped_outer_sum(rows, lambda block: np.column_stack([block.y, block.y]), clip_norm)
            histogram(pair[0], 3)
            soft_histogram(pair)
            responses(pair[0], 3)
            square_root_histogram(pair[0], 3)
            votes(pair)
            weighted_votes([np.array([True])], pair[:, 0])
            threshold_votes([[0]], [True], pair[:, 0], 3)


@pytest.mark.parametrize("maker", [clipped_gram, votes, histogram, soft_histogram, square_root_histogram])
def test_a_replacement_bound_that_is_too_low_is_detected(maker):
    D, D_neighbour, make = {
        clipped_gram: ([[1.0, 0.0]], [[0.0, 1.0]], lambda rows: clipped_gram(rows, 1.0)),
        votes: ([[1, 0]], [[0, 1]], votes),
        histogram: ([0], [1], lambda codes: histogram(codes, 2)),
        soft_histogram: ([[1.0, 0.0]], [[0.0, 1.0]], soft_histogram),
        square_root_histogram: ([0], [4], lambda codes: square_root_histogram(codes, 5)),
    }[maker]
    first, second = make(D), make(D_neighbour)
    assert -1e-9 < excess(first, second, Adjacency.REPLACE_ONE, 0.0) <= 0  # tight
    low = replace(first, replaced={norm: 0.99 * bound for norm, bound in first.replaced.items()})
    assert excess(first, second, Adjacency.REPLACE_ONE, 0.0, low) > 0


# Persons: several rows with one id.

# Makers whose records are codes.
# Options under which a row of ones, or of the code 1, counts fully; True for makers that need none.
PERSONAL = {
    "clipped_sum": (records, st.none(), lambda rows, o, shares: clipped_sum(table(rows, 3, np.float64), 0.7, shares)),
    "clipped_gram": (
        records,
        st.booleans(),
        lambda rows, o, shares: clipped_gram(Rows(*labelled(rows, 3, np.float64), intercept=o, shares=shares), 0.7),
    ),
    "clipped_outer_sums": (
        records,
        st.tuples(st.just(3), st.just(np.float64), st.just(0.7), st.booleans(), kinds),
        make_later_outer_sum,
    ),
    "clipped_term_sum": (
        records,
        st.none(),
        lambda rows, o, shares: make_term_sum(rows, (4, np.float64, 0.7), shares),
    ),
    "histogram": (
        codes,
        st.none(),
        lambda rows, o, shares: histogram(coded(rows), 3, shares),
    ),
    "histogram_of_blocks": (
        codes,
        st.lists(st.integers(0, 12), max_size=3).map(sorted),
        lambda rows, o, shares: histogram_of_blocks(np.split(coded(rows), np.minimum(o, len(rows))), 3, shares),
    ),
    "added": (records, st.lists(st.integers(0, 12), max_size=3).map(sorted), make_added),
    "coarser_histogram": (
        codes,
        st.lists(st.integers(-1, 1), min_size=1, max_size=4),
        lambda rows, o, shares: coarser_histogram(histogram(coded(rows), len(o), shares), o, 2),
    ),
    "soft_histogram": (
        records,
        st.none(),
        lambda rows, o, shares: soft_histogram(table(rows, 3, np.float64), shares),
    ),
    "square_root_histogram": (
        places,
        st.none(),
        lambda rows, o, shares: square_root_histogram(coded(rows), 6, shares),
    ),
    "votes": (records, st.none(), lambda rows, o, shares: votes(table(rows, 3, np.float64), shares)),
}


def persons_statistic(make, persons, options):
    """Return the statistic of the rows of all persons, mixed; a person is a list of rows."""
    owned = [(name, row) for name, rows in enumerate(persons) for row in rows]
    owned = owned[::2] + owned[1::2]
    return make([row for _, row in owned], options, person_shares([name for name, _ in owned], len(owned)))


# What shares do is the same under every adjacency; the bounds of each are those of rows, above.
MAINLY_ZERO_OUT = [
    pytest.param(adjacency, marks=[] if adjacency is Adjacency.ZERO_OUT else pytest.mark.thorough)
    for adjacency in Adjacency
]


@pytest.mark.parametrize("name", PERSONAL)
@pytest.mark.parametrize("adjacency", MAINLY_ZERO_OUT)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(data=st.data())
def test_no_person_moves_a_statistic_further_than_the_bound(name, adjacency, data):
    """A person is blanked out, removed or replaced, with all rows; the other one may have more or fewer rows."""
    record, options, make = PERSONAL[name]
    options = data.draw(options)
    person = st.lists(record, min_size=1, max_size=7)
    persons = data.draw(st.lists(person, min_size=2, max_size=4))
    at = data.draw(st.integers(0, len(persons) - 1))
    other = data.draw(person)
    if adjacency is Adjacency.ZERO_OUT:
        other = [NULL] * data.draw(st.integers(1, 7))
    changed = [*persons[:at], *([] if adjacency is Adjacency.ADD_REMOVE else [other]), *persons[at + 1 :]]
    first, second = (persons_statistic(make, some, options) for some in (persons, changed))
    assert first.unit == "person"
    assert excess(first, second, adjacency, 1e-9 * max(first.l1 or 0, first.l2 or 0) * len(persons)) <= 0


# Sample weights: a row with its weight is the record.

weights = st.one_of(st.floats(0, 5), st.sampled_from([-1.0, 0.0, 3.0, 1e9, 1e300, math.inf, math.nan]))


def weighted_statistic(make, units, options, unit):
    """Return the statistic of the rows of all units, each a list of rows with their weights; 3 is the largest."""
    owned = [(name, *pair) for name, pairs in enumerate(units) for pair in pairs]
    owned = owned[::2] + owned[1::2]
    plain = row_shares(np.ones(len(owned), dtype=bool))
    if unit == "person":
        plain = person_shares([name for name, *_ in owned], len(owned))
    shares = weighted(plain, [weight for *_, weight in owned], max_weight=3.0)
    return make([row for _, row, _ in owned], options, shares)


@pytest.mark.parametrize("name", PERSONAL)
@pytest.mark.parametrize("unit", ["row", "person"])
@pytest.mark.parametrize("adjacency", MAINLY_ZERO_OUT)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(data=st.data())
def test_no_weighted_record_moves_a_statistic_further_than_the_bound(name, unit, adjacency, data):
    """A row with its weight, or a person with several, is blanked out, removed or replaced with any other weights."""
    record, options, make = PERSONAL[name]
    options = data.draw(options)
    one = st.lists(st.tuples(record, weights), min_size=1, max_size=6 if unit == "person" else 1)
    units = data.draw(st.lists(one, min_size=2, max_size=4))
    at = data.draw(st.integers(0, len(units) - 1))
    other = data.draw(one)
    if adjacency is Adjacency.ZERO_OUT:
        other = [(NULL, weight) for _, weight in other]
    changed = [*units[:at], *([] if adjacency is Adjacency.ADD_REMOVE else [other]), *units[at + 1 :]]
    first, second = (weighted_statistic(make, some, options, unit) for some in (units, changed))
    assert first.unit == unit
    assert excess(first, second, adjacency, 1e-9 * max(first.l1 or 0, first.l2 or 0) * len(units)) <= 0


def test_sums_in_float32_are_refused_for_persons():
    shares = person_shares([1, 1, 2, 3], 4)
    rows = Rows(np.ones((4, 2), dtype=np.float32), np.ones(4), shares=shares)
    for made in (
        clipped_gram(rows, 1.0),
        clipped_outer_sum(rows, lambda block: np.ones(4, dtype=np.float32), 1.0),
        make_term_sum([[1.0] * 4] * 4, (4, np.float32, 0.7), shares),
    ):
        for adjacency in Adjacency:
            with pytest.raises(PrivacyError, match="float32"):
                made.sensitivity("l2", adjacency)


def test_terms_of_every_part_count_by_their_own_shares():
    """The first part holds two persons with one row each, the second one person with six rows."""
    total = make_term_sum([[1.0, 0.0, 0.0, 0.0]] * 8, (4, np.float64, 0.7), person_shares([1, 2, *[3] * 6], 8))
    assert total.value == pytest.approx([3 * 0.7, 0.0, 0.0, 0.0], rel=1e-9)


def test_rows_of_every_block_count_by_their_own_shares():
    """The first block holds two persons with one row each, the second one person with six rows."""
    total = histogram_of_blocks([[0, 1], [], [0] * 6], 2, person_shares([1, 2, *[3] * 6], 8))
    assert total.value == pytest.approx([2.0, 1.0])
    assert total.unit == "person"


def test_grouped_shares_stay_fractions_of_persons():
    counts = histogram([0, 1, 2, 2], 3, person_shares([1, 1, 1, 2], 4))
    grouped = coarser_histogram(counts, [0, 0, -1], 1)
    assert grouped.value == pytest.approx([2 / 3])
    assert grouped.unit == "person"


def test_shares_must_be_those_of_all_rows():
    for n in (3, 5):
        shares = person_shares(range(n), n)
        with pytest.raises(ValueError, match="one entry per row"):
            make_term_sum([[1.0] * 4] * 4, (4, np.float64, 0.7), shares)
        with pytest.raises(ValueError, match="one entry per row"):
            histogram_of_blocks([[0, 1], [0, 1]], 2, shares)


def test_only_sums_over_rows_with_the_same_bounds_are_added():
    with pytest.raises(PrivacyError, match="different bounds"):
        added([clipped_sum([[1.0]], 1.0), clipped_sum([[1.0]], 2.0)])
    with pytest.raises(PrivacyError, match="different bounds"):
        added([histogram([0], 2, person_shares(["a"], 1)), histogram([0], 2)])
    with pytest.raises(PrivacyError, match="different bounds"):
        added([clipped_sum([[1.0]], 1.0, person_shares(["a"], 1)), clipped_sum([[1.0]], 1.0)])
    with pytest.raises(PrivacyError, match="sum over rows"):
        added([responses([0], 2), responses([1], 2)])
    with pytest.raises(ValueError, match="one block"):
        added([])


def test_adding_leaves_the_parts_as_they_are():
    parts = [clipped_sum([[0.5]], 1.0), clipped_sum([[0.25]], 1.0)]
    assert added(parts).value == 0.75
    assert [float(part.value[0]) for part in parts] == [0.5, 0.25]


def test_every_maker_with_shares_is_tested_with_persons():
    taking = {
        name
        for name, value in vars(bounded).items()
        if inspect.isfunction(value)
        and not name.startswith("_")
        and ("shares" in inspect.signature(value).parameters or ".unit" in inspect.getsource(value))
    }
    assert taking == PERSONAL.keys()


def test_every_public_maker_is_in_the_battery():
    public = {
        name
        for name, value in vars(bounded).items()
        if inspect.isfunction(value) and value.__module__ == bounded.__name__ and not name.startswith("_")
    }
    assert public == {maker.name for maker in MAKERS} | SCORE_MAKERS.keys()


def test_missing_bounds_follow_from_stronger_ones_and_double_under_replace_one():
    one = clipped_sum([[1.0]], 2.0)
    assert one.sensitivity("linf", Adjacency.ZERO_OUT) == 2.0
    assert one.sensitivity("l2", Adjacency.REPLACE_ONE) == 4.0
    with pytest.raises(PrivacyError, match="no l1 bound"):
        one.sensitivity("l1", Adjacency.ZERO_OUT)
    gram = clipped_gram([[1.0]], 2.0)
    assert gram.sensitivity("l2", Adjacency.REPLACE_ONE) == 4.0 * math.sqrt(2)
    assert gram.sensitivity("l2", Adjacency.REPLACE_ONE, doubled=True) == 8.0
    assert isinstance(gram, Bounded)


@pytest.mark.parametrize("shape", [(0, 3), (0, 2, 2), (4, 0)])
def test_empty_tables_have_statistics_of_the_usual_shape(shape):
    rows = np.zeros(shape)
    assert clipped_sum(rows, 1.0).value.shape == shape[1:]
    if len(shape) == 2:
        assert clipped_gram(rows, 1.0).value.shape == (shape[1], shape[1])
        assert votes(rows).value.shape == shape[1:]
        made = clipped_outer_sum(Rows(rows, np.zeros(shape[0])), lambda block: np.ones(len(block.y)), 1.0)
        assert made.value.shape == shape[1:]
    assert histogram([], 3).value.tolist() == [0, 0, 0]
    assert clipped_term_sum([], 3, 1.0).value.tolist() == [0, 0, 0]


def test_a_table_with_several_entries_per_record_is_refused():
    for make in (histogram, responses, square_root_histogram):
        with pytest.raises(ValueError, match="one entry per record"):
            make([[0, 1], [1, 1]], 3)
    for make in (lambda rows: clipped_sum(rows, 1.0), lambda rows: clipped_gram(rows, 1.0), votes):
        with pytest.raises(ValueError, match="axes"):
            make([1.0, 2.0])


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, math.nan, math.inf, None, "1"])
def test_clip_norms_must_be_positive(clip_norm):
    rows = Rows(np.ones((1, 1)), np.ones(1))
    for make in (
        lambda: clipped_sum([[1.0]], clip_norm),
        lambda: clipped_gram([[1.0]], clip_norm),
        lambda: clipped_outer_sum(rows, lambda block: block.y.copy(), clip_norm),
        lambda: clipped_term_sum([], 3, clip_norm),
    ):
        with pytest.raises(ValueError, match="clip_norm must be a positive number"):
            make()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_clipped_rows_keep_their_direction(dtype):
    X = cast([[3.0, 4.0], [0.3, 0.4]], dtype)
    assert clipped_sum(X, 1.0).value == pytest.approx([0.9, 1.2], rel=1e-5)
    assert clipped_gram(X, 1.0).value == pytest.approx(np.outer([0.6, 0.8], [0.6, 0.8]) * 1.25, rel=1e-5)
    made = clipped_outer_sum(Rows(X, cast([5.0, 1.0], dtype)), lambda block: block.y.copy(), 1.0)
    # In float32 terms are clipped a little shorter, to leave room for rounding.
    assert made.value == pytest.approx([0.9, 1.2], rel=1e-5 if dtype == np.float64 else 2e-3)


@pytest.mark.parametrize("row", [[30.0, 40.0], [1e200, 0.0], [0.0, 0.0]])
def test_second_moments_clip_rows_together_with_their_constant(row):
    gram = clipped_gram(Rows(np.array([row]), np.zeros(1), intercept=True), 0.5)
    assert np.linalg.norm(gram.value) <= gram.l2


def test_second_moments_in_float32_need_a_public_number_of_rows():
    gram = clipped_gram(Rows(np.ones((3, 2), np.float32), np.zeros(3)), 1.0)
    with pytest.raises(PrivacyError, match="number of rows"):
        gram.sensitivity("l2", Adjacency.ADD_REMOVE)


@pytest.mark.parametrize(("dtype", "share"), [(np.float64, 1e-10), (np.float32, 2e-3)])
def test_rounding_of_long_sums_stays_a_small_share_of_the_bound(dtype, share):
    """All rows have the same direction, so that the sum is as long, and its rounding as coarse, as possible."""
    rng = np.random.default_rng(0)
    X = (1 + 0.01 * rng.standard_normal((16_384, 20))).astype(dtype)
    y = np.full(len(X), 100.0, dtype)
    moved = []
    for at in (0, 777, 16_383):
        X_null = X.copy()
        X_null[at] = np.nan
        sums = [clipped_outer_sum(Rows(rows, y), lambda block: block.y.copy(), 1.0).value for rows in (X, X_null)]
        moved.append(float(np.linalg.norm(sums[0] - sums[1])))
    assert max(moved) <= 1 + share


# Votes with weights: one record has one weight, and votes for or against each candidate.
VOTE_WEIGHTS = [0.0, 1.0, 0.5, -3.0, 1e300, math.nan, math.inf, -math.inf, 5e-324]
RULES, THRESHOLDS = 3, 4


def vote_record(rng):
    """Return a weight, whether the record belongs inside, and a rank, any integer, for each rule."""
    weight = rng.choice(VOTE_WEIGHTS) if rng.random() < 0.5 else rng.uniform(-0.5, 1.5)
    return [weight, rng.integers(2), *rng.choice([-5, 0, 1, 2, 3, 4, 9, 10**9], RULES)]


def make_votes(table):
    return weighted_votes([table[:, 2 + rule] > 1 for rule in range(RULES)], table[:, 0])


def make_thresholds(table):
    return threshold_votes(table[:, 2:].astype(np.int64), table[:, 1] > 0, table[:, 0], THRESHOLDS)


def make_kept(table):
    return kept_entries(make_votes(table), [True, False, True])


SCORE_MAKERS = {"weighted_votes": make_votes, "threshold_votes": make_thresholds, "kept_entries": make_kept}
# A null record has no weight.
NULL_VOTE = [0.0, 0, *[0] * RULES]


def vote_neighbours(rng, adjacency):
    """Return the tables of two neighbouring data sets."""
    records = [vote_record(rng) for _ in range(int(rng.integers(1, 6)))]
    at = int(rng.integers(len(records)))
    other = records.copy()
    if adjacency is Adjacency.ADD_REMOVE:
        del other[at]
    else:
        other[at] = NULL_VOTE if adjacency is Adjacency.ZERO_OUT else vote_record(rng)
    return [np.array(part, dtype=float).reshape(-1, 2 + RULES) for part in (records, other)]


@pytest.mark.parametrize("name", SCORE_MAKERS)
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_no_neighbour_moves_a_score_further_than_the_bound(name, adjacency):
    rng = np.random.default_rng(0)
    furthest = 0.0
    for _ in range(300):
        first, second = (SCORE_MAKERS[name](table) for table in vote_neighbours(rng, adjacency))
        gap = np.abs(first.value - second.value)
        assert first.value.shape == second.value.shape
        assert np.isfinite(first.value).all()
        assert gap.max() <= first.sensitivity("linf", adjacency) * (1 + 1e-12) + 1e-12
        assert gap.sum() <= first.sensitivity("l1", adjacency) * (1 + 1e-12) + 1e-12
        furthest = max(furthest, gap.max() / first.sensitivity("linf", adjacency))
        if adjacency is not Adjacency.REPLACE_ONE:
            assert (first.value >= second.value - 1e-12).all()  # monotone
    assert furthest > 0.999  # a smaller bound would have been detected


def test_threshold_scores_are_the_weights_of_correctly_classified_records():
    rng = np.random.default_rng(1)
    n = 50
    ranks, inside, weights = rng.integers(0, 6, (n, 2)), rng.random(n) < 0.4, rng.random(n)
    scores = threshold_votes(ranks, inside, weights, 5).value
    for rule in range(2):
        for threshold in range(5):
            correct = (ranks[:, rule] <= threshold) == inside
            assert scores[rule, threshold] == pytest.approx(weights[correct].sum())


def test_a_ballot_is_yes_or_no():
    assert weighted_votes([np.array([3.0, 0.0]), np.array([-2, 5])], [1.0, 0.5]).value.tolist() == [1.0, 1.5]


def test_an_entry_is_kept_once_or_not_at_all():
    """An index that names an entry twice would let one record move two entries where the bound counts one."""
    scores = make_votes(np.array([[1.0, 1, 2, 0, 2]]))
    assert kept_entries(scores, [False, True, True]).value.tolist() == [0.0, 1.0]
    for kept in ([0, 0, 0, 0], [0, 0, 2], [True], [[True, True, True]]):
        with pytest.raises(ValueError, match="True or False for each entry"):
            kept_entries(scores, kept)


@pytest.mark.parametrize(
    "change",
    [
        {"l1": 0.5},
        {"l2": 2.0},
        {"linf": 0.5},
        {"replaced": {"l2": 1.5}},
        {"monotone": True},
        {"n_categories": 3},
        {"fixed_rows": True},
        {"per_row": True},
        {"unit": "person"},
        {"value": np.zeros(3)},
        {"value": np.zeros(2, dtype=np.int64)},
    ],
)
def test_statistics_are_bounded_alike_only_if_all_that_noise_depends_on_agrees(change):
    made = clipped_sum([[0.5, 0.1]], 1.0)
    other = made.with_value(np.array([0.3, 0.2]))
    assert other.value.tolist() == [0.3, 0.2]
    assert {name: value for name, value in vars(other).items() if name in ("l1", "l2", "unit", "replaced")} == {
        name: value for name, value in vars(made).items() if name in ("l1", "l2", "unit", "replaced")
    }
    assert other.bounded_as(made)
    assert other.bounded_as(made.with_value(np.zeros(2)))
    assert clipped_sum([[9.0, 0.1]], 1.0).bounded_as(made)
    # A statistic whose bounds were changed afterwards is not taken for one that shares them.
    assert not replace(other, **change).bounded_as(made.with_value(np.zeros(2)))
    assert not made.with_value(np.zeros(2)).bounded_as(replace(other, **change))


def test_a_statistic_of_a_batch_keeps_every_other_field():
    """`of_batch` copies the fields by itself: a field that it left out would be a bound that is not checked."""
    made = replace(make_votes(np.array([[1.0, 1, 2, 0, 2]])), unit="person", fixed_rows=True, per_row=True)
    batch = object()
    marked = made.of_batch(batch)
    assert vars(marked) == vars(replace(made, batch=batch))
    assert made.batch is None


def test_replacement_does_not_double_the_bound_of_a_score():
    scores = make_votes(np.array([[1.0, 1, 2, 0, 0]]))
    assert scores.sensitivity("linf", Adjacency.REPLACE_ONE) == 1.0
    assert replace(scores, replaced={}).sensitivity("linf", Adjacency.REPLACE_ONE) == 2.0


def test_ranks_must_be_a_table():
    with pytest.raises(ValueError, match="axes"):
        threshold_votes([0, 1], [True, False], [1.0, 1.0], 3)


def test_the_text_of_a_statistic_shows_its_bounds_and_not_its_value():
    secret = 0.4711
    for statistic in (clipped_sum([[secret]], 1.0), clipped_gram([[math.sqrt(secret)]], 1.0), votes([[secret]])):
        assert secret == pytest.approx(float(np.ravel(statistic.value)[0]))
        for text in (str(statistic), repr(statistic), f"{statistic}"):
            assert "4711" not in text
            assert "l2=1.0" in text


def aligned_rows():
    """Return rows whose sums in float32 stay near a power of two, so that neighbours are rounded on different grids."""
    n = 16_384
    X, later = np.zeros((n, 8), np.float32), np.arange(8192, n)
    X[:8192, 0] = 1 - 4e-6
    X[8192:, 0] = np.where(later // 8 % 2 == 0, 0.5, -0.5) + np.float32(0.65 * 2.0**-13)
    return X


def test_rounding_in_float32_stays_within_its_allowance_on_every_level():
    """Sums of groups and of pairs just at a power of two, where zeroing a row changes the grid of their rounding."""
    rng = np.random.default_rng(0)
    furthest = 0.0
    for n in (128, 256, 1000, 2048, 4096):
        for _ in range(12):
            # Lengths of about 1, so that the sums of 128, 256, ... rows lie at powers of two.
            X = (1 - rng.uniform(0, 4e-5) * rng.uniform(0.5, 1, (n, 1))).astype(np.float32)
            without = X.copy()
            without[rng.integers(n)] = 0
            sums = [clipped_outer_sum(Rows(rows, np.ones(n)), float32_ones, 1.01).value for rows in (X, without)]
            furthest = max(furthest, abs(float(np.linalg.norm(sums[0] - sums[1])) - 1))
    # Terms are about 1 long, so what exceeds 1 is rounding, and 4e-5 is how much shorter they may be.
    assert 2.0**-24 < furthest <= FLOAT32_EXCESS + 4e-5


@pytest.mark.parametrize(("dtype", "clip_norm"), [(np.float32, 1e20), (np.float64, 1e200)])
def test_a_clipping_norm_whose_limits_overflow_is_refused(dtype, clip_norm):
    with pytest.raises(ValueError, match="clip_norm is too large"):
        clipped_outer_sum(
            Rows(np.zeros((2, 1), dtype), np.zeros(2)), lambda block: np.full(2, np.inf, dtype), clip_norm
        )


@pytest.mark.parametrize("n_columns", [None, 2])
def test_weights_of_fewer_digits_than_their_rows_do_not_exceed_the_bound(n_columns):
    shape = (1,) if n_columns is None else (1, n_columns)
    made = clipped_outer_sum(Rows(np.array([[1e45]]), np.zeros(1)), lambda block: np.ones(shape, np.float32), 1.0)
    assert np.linalg.norm(made.value) <= 1.0


def test_a_clipped_row_is_hardly_shorter_than_the_clipping_norm():
    made = clipped_outer_sum(Rows(np.full((1, 4), 7.0, np.float32), np.zeros(1)), float32_ones, 1.0)
    assert 0.997 < np.linalg.norm(made.value) <= 1.0


def test_sums_of_many_blocks_clip_each_row_by_its_own_length():
    # Two blocks of 16,384 rows, of which the rows of the second are long.
    X = np.ones((32_768, 1))
    X[16_384:] = 100.0
    sums = clipped_outer_sums(Rows(X, np.zeros(len(X))), 1.0)
    for _ in range(2):
        total = sums(lambda block: np.ones(len(block.X))).value
        assert total[0] == pytest.approx(32_768, rel=1e-9)


def float32_ones(block):
    return np.ones(len(block.X), np.float32)


@pytest.mark.parametrize("n_columns", [None, 3])
def test_rounding_in_float32_moves_a_sum_by_less_than_the_bound(n_columns):
    X = aligned_rows()
    without = X.copy()
    without[0] = 0

    def weights(block):
        ones = np.array(block.y, dtype=block.X.dtype)
        return ones if n_columns is None else np.column_stack([ones, *[0 * ones] * (n_columns - 1)])

    # Rows are a little shorter than the clipping norm, so that they stay as they are.
    sums = [clipped_outer_sum(Rows(rows, np.ones(len(rows))), weights, 1.01) for rows in (X, without)]
    assert np.linalg.norm(sums[0].value - sums[1].value) <= sums[0].l2
    grams = [clipped_gram(Rows(rows, np.ones(len(rows))), 1.01) for rows in (X, without)]
    assert np.linalg.norm(grams[0].value - grams[1].value) <= grams[0].l2


def test_the_term_of_a_row_that_tiny_clipping_norms_make_subnormal_stays_within_the_bound():
    """A quotient that is subnormal may be rounded up by any amount: several of these rows would exceed the bound."""
    rng = np.random.default_rng(0)
    for clip_norm in (1e-160, 1e-165, 1e-169):
        for row in rng.uniform(0.1, 1, 50) * 1e154:
            assert abs(clipped_sum([[row]], clip_norm).value[0]) <= clip_norm
            assert abs(clipped_gram([[row]], clip_norm).value[0, 0]) <= clip_norm**2


def test_a_term_whose_factor_is_subnormal_stays_within_the_bound():
    rng = np.random.default_rng(0)
    clip_norm = 1e-100
    for row, weight in rng.uniform(0.1, 1, (50, 2)) * (1e150, 1e73):
        rows = Rows(np.array([[row]]), np.zeros(1))
        made = clipped_outer_sum(rows, lambda block, weight=weight: np.full((1, 2), weight), clip_norm)
        assert np.linalg.norm(made.value) <= clip_norm


def test_a_term_whose_factor_is_too_small_for_float32_stays_within_the_bound():
    rng = np.random.default_rng(0)
    clip_norm = 1e-5
    for term in rng.uniform(0.1, 1, 50).astype(np.float32) * np.float32(1e38):

        def combine(factors, term=term):
            return factors.astype(np.float32) * term

        made = clipped_term_sum([(np.array([float(term)]), combine)], 1, clip_norm)
        assert abs(made.value[0]) <= clip_norm


@pytest.mark.parametrize(
    "statistic",
    [votes([[1, 0]]), soft_histogram([[0.5, 0.5]]), clipped_sum([[1.0, 0.0]], 1.0), clipped_sum([[9.0, 0.0]], 9.0)],
    ids=["votes", "soft histogram", "sum", "long sum"],
)
def test_only_a_histogram_becomes_a_coarser_one(statistic):
    """One record moves several entries of the others, and their groups by more than 1."""
    with pytest.raises(ValueError, match="must be a histogram"):
        coarser_histogram(statistic, [0, 0], 1)


@pytest.mark.parametrize("group", [[0], [0, 0, 0], [[0, 0]]])
def test_every_bin_of_a_histogram_has_one_group(group):
    with pytest.raises(ValueError, match="a bin for each of its bins"):
        coarser_histogram(histogram([0, 1], 2), group, 1)


def test_a_statistic_with_an_entry_per_row_is_neither_sampled_nor_added():
    each = replace(clipped_sum([[1.0]], 1.0), per_row=True)
    with pytest.raises(PrivacyError, match="which rows were drawn"):
        each.sensitivity("l2", Adjacency.ZERO_OUT, doubled=True)
    for part in (each, clipped_sum([[1.0]], 1.0).of_batch(object())):
        with pytest.raises(PrivacyError, match="sum over rows"):
            added([part, part])


def test_a_table_has_one_axis_for_records_and_one_for_entries():
    """A third axis would hold further entries of a record, which the bound does not count."""
    for make in (votes, soft_histogram):
        for rows in ([1, 0], [[[1, 0], [1, 1]]]):
            with pytest.raises(ValueError, match="axes"):
                make(rows)


def test_one_share_does_not_stand_for_all_rows():
    for make in (
        lambda shares: clipped_sum([[1.0], [1.0]], 1.0, shares),
        lambda shares: votes([[1], [1]], shares),
        lambda shares: histogram([0, 1], 2, shares),
    ):
        with pytest.raises(ValueError, match="one entry per row"):
            make(person_shares(["a"], 1))


def test_a_cell_of_none_is_null_and_changes_no_other_record():
    assert clipped_sum([[0.5, None], [0.5, 0.25]], 1.0).value.tolist() == [0.5, 0.25]
    assert square_root_histogram([None, 0.0], 1).value == pytest.approx(square_root_histogram([0.0], 1).value)
    assert weighted_votes([np.array([True, True])], [None, 0.5]).value.tolist() == [0.5]


def test_whether_a_record_belongs_inside_is_no_index():
    """Numbers 0 and 1 are answers: as an index they would count record 1 several times."""
    made = threshold_votes([[0.0], [1.0], [2.0]], [1, 1, 0], [1.0, 1.0, 0.5], 3)
    assert made.value.tolist() == [[1.5, 2.5, 2.0]]


def test_rows_of_float32_are_added_up_in_float64():
    """Their sums are bounded also where the number of rows is private: see `fixed_rows`."""
    rows = np.ones((3, 2), np.float32)
    assert clipped_sum(rows, 1.0).value.dtype == soft_histogram(rows).value.dtype == votes(rows).value.dtype == float
