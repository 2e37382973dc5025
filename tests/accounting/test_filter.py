"""The filter's rule: what each event adds to each sum, what is accepted, and that no adaptive analyst gets past it."""

import math
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.special import expit, ndtr, ndtri

from benchmarks.ledger.analyst import Analyst, GaussianNoise, Response
from benchmarks.ledger.run import CAPS, MIXTURES, SAMPLED, fixed_in_advance, reach, sampled_runs, waste
from dpadapt.accounting import Ledger, calibrate, cost, epsilon
from dpadapt.accounting.cost import gaussian_delta, gaussian_epsilon, gaussian_mu, pure_epsilon
from dpadapt.accounting.filter import (
    RULES,
    Filter,
    Sums,
    _gaussian_profile,
    _mu_squared,
    _renyi_cap,
    _sampled_mu,
)
from dpadapt.errors import BudgetExceeded
from dpadapt.mechanisms import Adjacency, DiscreteGaussian, Gaussian, Laplace, NonPrivate, RandomizedResponse
from dpadapt.mechanisms.events import (
    BoundedRangeEvent,
    ConcentratedEvent,
    Entry,
    GaussianEvent,
    LaplaceEvent,
    NonPrivateEvent,
    PureEvent,
    SampledEvent,
    renyi_divergence,
)
from dpadapt.mechanisms.mechanism import Repeated, Sampled

ROWS = Adjacency.ZERO_OUT


def entries(*events):
    return [Entry("x", *event) if isinstance(event, tuple) else Entry("x", event) for event in events]


# What an event adds to each sum.


def mu_of(event, times=1):
    return math.sqrt(_mu_squared(event, times, 1e-11, ROWS))


@pytest.mark.parametrize("size", [1e-6, 0.01, 0.3, 1.0, 4.0, 12.0])
def test_the_mu_of_a_pure_event_is_the_least_that_dominates_randomized_response(size):
    p = expit(size)
    assert mu_of(PureEvent(size)) == pytest.approx(ndtri(p) - ndtri(1 - p), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("size", [0.01, 0.3, 1.0, 4.0, 12.0])
def test_the_mu_of_laplace_noise_dominates_its_profile_and_touches_it(size):
    mu, x = mu_of(LaplaceEvent(1 / size)), np.linspace(0, size, 400, endpoint=False)
    laplace = -np.expm1((x - size) / 2)
    gaussian = np.array([gaussian_delta(mu, e) for e in x])
    assert (laplace <= gaussian * (1 + 1e-9) + 1e-15).all()
    assert (laplace / gaussian).max() > 0.999


@pytest.mark.parametrize("size", [0.01, 0.3, 1.0, 4.0, 12.0])
def test_the_mu_of_a_choice_is_the_largest_over_all_worst_choices_of_its_range(size):
    # The worst choices of range epsilon: power p and false positive rate q whose logits differ by epsilon.
    middle = np.linspace(-20, 20, 4001)
    differences = ndtri(expit(middle + size / 2)) - ndtri(expit(middle - size / 2))
    assert mu_of(BoundedRangeEvent(size)) == pytest.approx(differences.max(), rel=1e-6)
    assert mu_of(BoundedRangeEvent(size)) < mu_of(PureEvent(size))


def test_the_inequality_behind_choices_holds():
    z = np.linspace(1e-3, 8, 2000)
    density = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    assert ((2 * ndtr(z) - 1) * density - z * ndtr(z) * ndtr(-z) > 0).all()


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE])
@pytest.mark.parametrize(("noise", "rate", "steps"), [(1.5, 0.01, 500), (3.0, 0.1, 50), (0.8, 0.02, 20)])
def test_a_sampled_run_is_dominated_but_for_its_tail(noise, rate, steps, adjacency):
    event, tail = SampledEvent(GaussianEvent(noise), rate), 1e-11
    mu = _sampled_mu(event, steps, tail, adjacency)
    # Another grid and other points than those of the conversion.
    distribution = cost.pld({event: steps}, adjacency, grid=2.3e-4, pessimistic=False)
    points = np.geomspace(1e-3, 30, 400)
    run = np.asarray(distribution.get_delta_for_epsilon(points))
    gaussian = np.array([gaussian_delta(mu, x) for x in points])
    assert (run <= tail + (1 - tail) * gaussian * (1 + 1e-6)).all()
    # And not much larger than need be: with a mu 3% smaller, some level would not be covered.
    pessimistic = np.asarray(cost.pld({event: steps}, adjacency).get_delta_for_epsilon(points))
    assert (pessimistic > tail + (1 - tail) * np.array([gaussian_delta(mu / 1.03, x) for x in points])).any()
    assert mu < math.sqrt(steps) / noise


def test_a_profile_does_not_overflow_where_rounding_makes_a_difference_of_logarithms_positive():
    assert _gaussian_profile(0.3522519415129706, np.array([1679579031.3425448])) == 0


@pytest.mark.parametrize("event", [PureEvent(1e-9), LaplaceEvent(1e9)])
def test_the_renyi_divergence_of_a_tiny_epsilon_is_no_rounding_error(event):
    assert event.renyi(1, 2, ROWS) <= 1e-18 * (1 + 1e-9)


def test_the_published_run_has_the_mu_that_was_derived():
    event = SampledEvent(GaussianEvent(1.5), 0.01)
    assert _sampled_mu(event, 2000, 1e-5 * 0.8e-6, ROWS) == pytest.approx(0.353, abs=5e-4)


@pytest.mark.parametrize("order", [2, 5, 32])
@pytest.mark.parametrize("size", [1e-4, 0.1, 1.0, 5.0])
def test_renyi_divergences_agree_with_the_integrals(size, order):
    p = expit(size)
    response = math.log(p**order * (1 - p) ** (1 - order) + (1 - p) ** order * p ** (1 - order)) / (order - 1)
    assert PureEvent(size).renyi(1, order, ROWS) == pytest.approx(response, rel=1e-4, abs=1e-13)
    peer = renyi_divergence(LaplaceEvent(1 / size), 1, order)
    assert LaplaceEvent(1 / size).renyi(1, order, ROWS) == pytest.approx(peer, rel=1e-4, abs=1e-13)
    assert GaussianEvent(1 / size).renyi(3, order, ROWS) == pytest.approx(3 * order * size**2 / 2)
    assert ConcentratedEvent(size).renyi(2, order, ROWS) == pytest.approx(2 * order * size)
    assert BoundedRangeEvent(size).renyi(1, order, ROWS) == pytest.approx(min(order * size**2 / 8, response))
    assert renyi_divergence(BoundedRangeEvent(size), 1, order) == pytest.approx(order * size**2 / 8)


def test_a_sample_never_adds_more_than_all_rows():
    for adjacency in Adjacency:
        sampled = SampledEvent(GaussianEvent(2.0), 0.1)
        for rule in RULES:
            terms = Filter.of(rule, 3.0, 1e-5, adjacency)
            part, whole = terms.sums(entries((sampled, 10))), terms.sums(entries((GaussianEvent(2.0), 10)))
            assert part.gaussian <= whole.gaussian
            assert part.renyi <= whole.renyi
    assert SampledEvent(GaussianEvent(2.0), 0.1).renyi(10, 8, Adjacency.REPLACE_ONE) == pytest.approx(10 * 8 / 8)
    assert SampledEvent(GaussianEvent(2.0), 0.1).renyi(10, 8, ROWS) < 1
    # Nor by rounding, where there is hardly anything to add.
    assert SampledEvent(GaussianEvent(1e100), 0.1).renyi(10, 2, ROWS) <= GaussianEvent(1e100).renyi(10, 2, ROWS)


def test_sampled_laplace_noise_counts_as_the_pure_event_that_it_is():
    event = SampledEvent(LaplaceEvent(1.0), 0.1)
    pure = math.log1p(0.1 * math.expm1(1.0))
    assert mu_of(event, 4) == pytest.approx(2 * mu_of(PureEvent(pure)))
    assert event.renyi(1, 8, ROWS) == pytest.approx(PureEvent(pure).renyi(1, 8, ROWS))


def test_what_a_sum_can_not_hold_is_infinite():
    terms = Filter.of("mixed", 3.0, 1e-5, ROWS)
    assert Filter.of("mixed", 3.0, 0.0, ROWS).sums(entries(GaussianEvent(2.0))).plain == math.inf
    assert terms.sums(entries(ConcentratedEvent(0.1))).gaussian == math.inf
    assert terms.sums(entries(NonPrivateEvent())) == Sums(math.inf, math.inf, math.inf, 0, 1)
    assert terms.sums(entries(GaussianEvent(2.0)), Sums(parts=30)).plain == math.inf
    assert terms.sums(entries(GaussianEvent(1e-200))).gaussian == math.inf
    assert math.isinf(terms.level(Sums(math.inf, math.inf, math.inf, 0, 3)))


# What is accepted.


@pytest.mark.parametrize(("cap", "delta"), CAPS)
@pytest.mark.parametrize("rule", RULES)
def test_the_rule_is_that_of_the_theorem(rule, cap, delta):
    """Each sum's cap, written out again."""
    terms = Filter.of(rule, cap, delta, ROWS)
    share, plain = {"mixed": (0.42, 0.5), "gaussian": (0.55, 0.45), "renyi": (0.0, 0.45)}[rule]
    full = Sums(plain=cap, gaussian=math.inf, renyi=math.inf, charges=2)
    assert terms.level(full) == cap
    if share:
        tails = 0.01 * share * delta
        mu = gaussian_mu(cap, (share * delta - tails) / (1 - tails))
        full = Sums(math.inf, mu**2, math.inf, 1000, 2)
        assert terms.level(full) == pytest.approx(cap, rel=1e-8)
        assert terms.level(Sums(math.inf, mu**2, math.inf, 1001, 2)) == math.inf
    if rule != "gaussian":
        a = terms.order
        cap_of_order = cap + (math.log((1 - share - plain) * delta) + math.log(a)) / (a - 1) - math.log(1 - 1 / a)
        assert terms.level(Sums(math.inf, math.inf, cap_of_order, 0, 2)) == pytest.approx(cap, rel=1e-9)
    else:
        assert terms.level(Sums(math.inf, math.inf, 0.0, 0, 2)) == math.inf


@pytest.mark.parametrize("rule", RULES)
def test_the_first_charge_costs_exactly_what_it_costs_and_may_close_the_ledger(rule):
    plan = Sampled(Gaussian(calibrate(1.0, 1e-6, steps=50, rate=0.1)), 0.1, 50)
    ledger = Ledger(1.0, 1e-6, rule=rule)
    ledger.start(plan, label="whole budget")
    assert ledger.spent() == pytest.approx(epsilon(plan, 1e-6))
    assert ledger.remaining() < 0.05
    with pytest.raises(BudgetExceeded):
        ledger.start(Gaussian(calibrate(0.1, 1e-6)), label="more")


def test_entries_of_one_charge_have_their_exact_joint_cost():
    ledger = Ledger(3.0, 1e-6)
    ledger.start_all([(Gaussian(5.0), "a"), (Laplace(5.0), "b"), (RandomizedResponse(0.1), "c")])
    assert ledger.spent() == epsilon([Gaussian(5.0), Laplace(5.0), RandomizedResponse(0.1)], 1e-6)
    ledger.start(Gaussian(50.0), label="d")
    # From the second charge on the filter's number counts, which is larger.
    assert ledger.spent() > epsilon([Gaussian(5.0), Laplace(5.0), RandomizedResponse(0.1), Gaussian(50.0)], 1e-6)


@pytest.mark.parametrize(
    ("event", "steps", "by_a_sum"),
    [(ConcentratedEvent(0.01), 1, False), (SampledEvent(LaplaceEvent(5.0), 0.1), 100, True)],
)
def test_a_first_charge_without_a_privacy_loss_distribution_costs_the_least_that_is_known(event, steps, by_a_sum):
    terms = Filter.of("mixed", 1.0, 1e-6, Adjacency.REPLACE_ONE)
    level = terms.level(terms.sums(entries((event, steps))))
    exact = epsilon({event: steps}, 1e-6, adjacency=Adjacency.REPLACE_ONE)
    assert level != exact
    assert (level < exact) == by_a_sum
    assert terms.needs(Sums(), entries((event, steps))) == min(level, exact)


@pytest.mark.parametrize(
    "before",
    [
        Sums(0.9, 1e-9, 1e-9, 0, 1),
        Sums(0.1, 10.0, 10.0, 0, 1),
        Sums(5.0, 10.0, 1e-3, 0, 1),
        Sums(5.0, 1e-4, 10.0, 0, 1),
        Sums(5.0, 5.0, 5.0, 0, 1),
    ],
)
@pytest.mark.parametrize("rule", RULES)
def test_room_is_that_of_the_largest_gaussian_release_that_is_accepted(rule, before):
    terms = Filter.of(rule, 1.0, 1e-6, ROWS)
    room = terms.room(before)
    assert not terms.accepts(terms.needs(before, entries(GaussianEvent(1 / (1.001 * room + 1e-9)))))
    if room:
        assert terms.accepts(terms.needs(before, entries(GaussianEvent(1 / (0.999 * room)))))


def test_without_delta_only_the_pure_sum_counts():
    ledger = Ledger(1.0, 0.0)
    ledger.start(Repeated(Laplace(10.0), 4), label="a")
    with pytest.raises(BudgetExceeded, match="needs a delta above 0"):
        ledger.start(Gaussian(1e6), label="b")
    with pytest.raises(BudgetExceeded):
        ledger.start(DiscreteGaussian(1e6), label="b")
    ledger.start(RandomizedResponse(0.6), label="c")
    assert ledger.spent() == pytest.approx(1.0)
    assert ledger.remaining() == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(BudgetExceeded):
        ledger.start(RandomizedResponse(1e-3), label="d")


def test_the_thousand_and_first_sampled_run_closes_the_gaussian_sum():
    terms = Filter.of("gaussian", 3.0, 1e-5, ROWS)
    tiny = entries((SampledEvent(GaussianEvent(100.0), 1e-3), 1))
    assert terms.needs(Sums(math.inf, 0.1, math.inf, 999, 999), tiny) < 3
    assert terms.needs(Sums(math.inf, 0.1, math.inf, 1000, 1000), tiny) == math.inf


# The plain sum: what a person adds up.


def test_the_parts_of_delta_of_all_charges_are_fixed_beforehand_and_add_up_to_no_more_than_their_share():
    for rule in RULES:
        terms = Filter.of(rule, 3.0, 1e-6, ROWS)
        parts = [terms._part(before) for before in range(100)]
        assert sum(parts) <= terms.plain_share * terms.delta
        sums, charge = Sums(), entries(GaussianEvent(8.0))
        for part in parts[:5]:
            added = terms.sums(charge, sums)
            assert added.plain == epsilon(Gaussian(8.0), part)
            assert added.parts == 1
            # Pure charges in between take no part.
            sums += added
            sums += terms.sums(entries(PureEvent(0.2)), sums)
        assert sums.parts == 5
        assert terms._part(100) == 0


def test_a_charge_of_many_pure_releases_has_the_cheaper_of_its_two_costs():
    terms = Filter.of("mixed", 3.0, 1e-6, ROWS)
    many, one = terms.sums(entries((LaplaceEvent(50.0), 200))), terms.sums(entries(LaplaceEvent(2.0)))
    assert many.plain == epsilon({LaplaceEvent(50.0): 200}, terms._part(0)) < 4.0
    assert many.parts == 1
    assert (one.plain, one.parts) == (0.5, 0)


@pytest.mark.parametrize("cap", [3.0, 10.0, 50.0])
@pytest.mark.parametrize("rule", RULES)
def test_a_fit_and_an_evaluation_cost_about_the_sum_of_their_epsilons(rule, cap):
    fit, evaluation = Gaussian(calibrate(1.0, 1e-6)), Laplace(2.0)
    for plans in ((fit, evaluation), (evaluation, fit)):
        ledger = Ledger(cap, 1e-6, rule=rule)
        for plan in plans:
            ledger.start(plan, label="x")
        assert ledger.spent() <= 1.58


def test_spent_is_at_most_a_little_more_than_the_sum_of_the_receipts():
    """Charges of Gaussian and of pure noise, of at least epsilon 0.1 each, in any order and under any cap."""
    rng = np.random.default_rng(0)
    for charges, most in ((2, 1.08), (5, 1.15)):
        for _ in range(200):
            cap, receipts = rng.choice([3.0, 10.0, 50.0]), np.exp(rng.uniform(np.log(0.1), np.log(3.0), charges))
            terms, sums = Filter.of("mixed", cap, 1e-6, ROWS), Sums()
            for each in receipts:
                gaussian = GaussianEvent(1 / gaussian_mu(each, 1e-6))
                sums += terms.sums(entries(rng.choice([gaussian, PureEvent(each)])), sums)
            assert terms.level(sums) <= most * receipts.sum()


@pytest.mark.parametrize("fit", [0.1, 0.3, 1.0, 3.0])
def test_many_gaussian_fits_cost_at_most_4_percent_more_than_where_the_gaussian_sum_has_most_of_delta(fit):
    mu, costs = gaussian_mu(fit, 1e-6), []
    for terms in (Filter.of("mixed", 50.0, 1e-6, ROWS), Filter(50.0, 1e-6, ROWS, 0.8, 8)):
        sums = Sums()
        for _ in range(10):
            sums += terms.sums(entries(GaussianEvent(1 / mu)), sums)
        costs.append(terms.level(sums))
    assert costs[0] <= 1.04 * costs[1]


def test_a_refused_charge_changes_nothing(tmp_path):
    for ledger in (Ledger(1.0, 1e-6), Ledger.open(tmp_path / "ledger", epsilon=1.0, delta=1e-6)):
        ledger.start(Gaussian(20.0), label="a")
        ledger.start(Laplace(5.0), label="b")
        before = ledger._store.sums(), ledger.spent(), ledger.remaining(), ledger.entries
        for large in (Gaussian(0.5), Laplace(0.5), Sampled(Gaussian(0.5), 0.5, 10)):
            with pytest.raises(BudgetExceeded):
                ledger.start(large, label="c")
        assert (ledger._store.sums(), ledger.spent(), ledger.remaining(), ledger.entries) == before
        ledger.start(Gaussian(1 / (0.999 * ledger._filter.room(before[0]))), label="d")


def test_a_durable_ledger_counts_as_one_in_memory(tmp_path):
    path = tmp_path / "ledger"
    durable, memory = Ledger.open(path, epsilon=20.0, delta=1e-6), Ledger(20.0, 1e-6)
    durable.allow("anna", 15.0)
    for noise in (4.0, 6.0, 5.0):
        for ledger in (durable.allowance("anna"), memory):
            ledger.start(Gaussian(noise), label="x")
            ledger.start(Laplace(noise), label="y")
    again = Ledger.open(path)
    sums = memory._store.sums()
    assert sums.parts == 3
    assert again._store.sums() == sums
    assert (again.allowance("anna")._store.sums().plain, again.allowance("anna")._store.sums().parts) == (sums.plain, 3)


@pytest.mark.parametrize("rule", RULES)
def test_extreme_caps_have_a_filter(rule):
    for cap in (1e-9, 1e-3, 50.0, 1e6, math.inf):
        for delta in (0.0, 1e-300, 1e-12, 0.999):
            terms = Filter.of(rule, cap, delta, ROWS)
            assert terms.order >= 2
            assert terms.needs(Sums(), entries(PureEvent(1e-10))) <= 1.0
            if math.isfinite(cap):
                assert terms.room(Sums(1e-10, 1e-10, 1e-10, 0, 1)) >= 0


def test_a_sum_that_is_better_than_private_at_epsilon_0_has_level_0():
    assert Filter.of("renyi", 1e-9, 1e-6, ROWS).level(Sums(math.inf, math.inf, 0.0, 0, 2)) == 0.0


@pytest.mark.parametrize("cap", [1e-3, 1.0, 50.0])
def test_the_order_of_a_renyi_sum_of_its_own_admits_more_gaussian_noise_than_others(cap):
    terms = Filter.of("renyi", cap, 1e-6, ROWS)
    admitted = [_renyi_cap(cap, terms._renyi_delta, factor * terms.order) / factor for factor in (1, 0.8, 1.25)]
    assert max(admitted) == admitted[0]


def test_an_order_is_a_whole_number_that_a_float_holds():
    for rule in ("mixed", "renyi"):
        assert Filter.of(rule, 1e-30, 1e-300, ROWS).order == 2**53


def test_a_delta_below_the_precision_of_the_distribution_charges_a_run_as_if_on_all_rows():
    event, terms = SampledEvent(GaussianEvent(2.0), 0.01), Filter.of("mixed", 3.0, 1e-14, ROWS)
    assert terms.sums(entries((event, 100))).gaussian == pytest.approx(100 / 4)


def test_bad_rules_are_named():
    with pytest.raises(ValueError, match="rule must be one of"):
        Ledger(1.0, 1e-6, rule="pld")
    with pytest.raises(ValueError, match="share"):
        Filter(1.0, 1e-6, ROWS, 1.2, 4)
    with pytest.raises(ValueError, match="order"):
        Filter(1.0, 1e-6, ROWS, 0.8, 1)


# How much of a cap the rule leaves unused, compared with the exact cost of the same events fixed in advance.


@pytest.mark.parametrize(("cap", "delta"), CAPS[:3])
@pytest.mark.parametrize(
    ("mixture", "rule", "most"),
    [
        ("10 Gaussian releases", "gaussian", 0.04),
        ("10 Gaussian releases", "mixed", 0.055),
        ("10 Gaussian releases", "renyi", 0.12),
        ("5 Gaussian, 5 Laplace of a tenth of the cap", "mixed", 0.14),
        ("20 responses of 2% of the cap, 1 Gaussian", "mixed", 0.12),
    ],
)
def test_little_of_the_cap_is_wasted(mixture, rule, most, cap, delta):
    assert 0 <= waste(rule, cap, delta, MIXTURES[mixture]) <= most


@pytest.mark.slow
@pytest.mark.parametrize(("cap", "delta", "most"), [(1.0, 1e-6, 0.055), (3.0, 1e-5, 0.07), (10.0, 1e-5, 0.115)])
def test_little_of_the_cap_is_wasted_on_sampled_runs(cap, delta, most):
    assert 0 <= waste("mixed", cap, delta, MIXTURES[SAMPLED]) <= most


# Adaptive analysts.


@dataclass(frozen=True)
class Unshared(Filter):
    """A planted bug: the Gaussian and the Rényi sum are each given all of delta."""

    def level(self, sums):
        halves = [Filter(self.epsilon, self.delta, self.adjacency, share, self.order) for share in (1.0, 0.0)]
        return min(half.level(sums) for half in halves)


TWO_STEPS = {"firsts": (0.02, 0.3, 0.5, 0.7, 0.9)}
THREE_STEPS = {"firsts": (0.1, 0.5, 0.9), "middles": (0.3, 0.8), "nodes": 201}


@pytest.mark.thorough
@pytest.mark.parametrize("rule", RULES)
def test_no_adaptive_analyst_gets_past_the_cap(rule):
    terms = Filter.of(rule, 1.0, 1e-6, ROWS)
    assert reach(terms, **TWO_STEPS) <= 1 + 1e-6
    assert reach(terms, **THREE_STEPS) <= 1 + 1e-6


@pytest.mark.thorough
def test_the_analyst_is_strong():
    """Gaussian noise alone reaches the cap of a filter that adds it up exactly, whatever the steps."""
    assert reach(Filter(1.0, 1e-6, ROWS, 1.0, 2), **TWO_STEPS) > 0.95
    assert reach(Filter.of("mixed", 1.0, 1e-6, ROWS), **TWO_STEPS) > 0.5


def test_the_analyst_gets_past_charges_that_are_costed_as_if_fixed_in_advance():
    assert reach(fixed_in_advance(1.0, 1e-6), firsts=(0.5,), bisections=9, nodes=151) > 1.5


def test_the_analyst_gets_past_sums_that_do_not_share_delta():
    terms = Filter.of("mixed", 1.0, 1e-6, ROWS)
    planted = Unshared(terms.epsilon, terms.delta, terms.adjacency, terms.share, terms.order)
    assert reach(planted, **TWO_STEPS) > 1.1


def test_the_ledger_refuses_what_the_filter_refuses():
    """Along the branches of the analyst's tree, the ledger accepts the largest charge, and nothing larger."""
    terms = Filter.of("mixed", 1.0, 1e-6, ROWS)
    analyst = Analyst(terms, firsts=(0.5,))
    make = {GaussianNoise: lambda mu: Gaussian(1 / mu), Response: RandomizedResponse}
    for first in (GaussianNoise(0.1), Response(0.2)):
        before = analyst.after(Sums(), first)
        for kind in (GaussianNoise, Response):
            size = analyst.largest(before, kind).size
            ledger = Ledger(1.0, 1e-6)
            ledger.start(make[type(first)](first.size), label="first")
            with pytest.raises(BudgetExceeded, match="over this ledger's cap"):
                ledger.start(make[kind](size * 1.001), label="second")
            ledger.start(make[kind](size * 0.999), label="second")


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize(("cap", "delta"), CAPS)
@pytest.mark.parametrize("rule", RULES)
def test_no_adaptive_analyst_gets_past_any_cap(rule, cap, delta):
    terms = Filter.of(rule, cap, delta, ROWS)
    shares = (0.005, 0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97)
    two = reach(terms, firsts=shares, nodes=901)
    three = reach(terms, firsts=shares, middles=(0.05, 0.2, 0.4, 0.6, 0.8, 0.95), nodes=401)
    print(f"{rule} at cap ({cap:g}, {delta:g}): two steps {two:.4f}, three steps {three:.4f} times delta")
    assert max(two, three) <= 1 + 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(("cap", "delta"), CAPS[:3])
def test_no_analyst_gets_past_the_cap_with_sampled_runs_either(cap, delta):
    terms = Filter.of("mixed", cap, delta, ROWS)
    reached = reach(terms, firsts=(0.1, 0.5, 0.9), middles=(0.4,), nodes=201, fixed=sampled_runs(cap))
    print(f"with sampled runs at cap ({cap:g}, {delta:g}): {reached:.4f} times delta")
    assert reached <= 1 + 1e-6


def test_spent_is_a_level_at_which_the_same_charges_are_accepted():
    """Stopping before `spent` passes a level fixed beforehand is private at that level."""
    ledger = Ledger(3.0, 1e-5)
    for noise in (8.0, 12.0, 9.0):
        ledger.start(Gaussian(noise), label="x")
    spent, terms, before = ledger.spent(), ledger._filter, Sums()
    level = replace(terms, epsilon=spent * (1 + 1e-9))
    for noise in (8.0, 12.0, 9.0):
        charge = entries(GaussianEvent(noise))
        assert level.needs(before, charge) <= level.epsilon
        before += level.sums(charge, before)
    assert spent < gaussian_epsilon(1 / 8.0, 1e-5) + gaussian_epsilon(1 / 12.0, 1e-5) + gaussian_epsilon(1 / 9.0, 1e-5)


EVENTS = [
    GaussianEvent(3.0),
    LaplaceEvent(3.0),
    PureEvent(0.3),
    BoundedRangeEvent(0.3),
    ConcentratedEvent(0.1),
    SampledEvent(LaplaceEvent(3.0), 0.2),
    SampledEvent(GaussianEvent(3.0), 0.2),
]


@pytest.mark.parametrize("event", EVENTS, ids=str)
@pytest.mark.parametrize("rule", RULES)
def test_every_release_of_a_charge_is_added_to_every_sum(event, rule):
    """Seven releases add seven times as much as one, whether they are one entry or several, beside another event."""
    terms, other = Filter.of(rule, 3.0, 1e-5, ROWS), BoundedRangeEvent(0.01)
    one, plan, beside = (terms.sums(entries(part)) for part in (event, (event, 7), other))
    apart = terms.sums(entries(event, other, (event, 2), event, (event, 3)))
    assert one.charges == plan.charges == apart.charges == 1
    exact, pure = epsilon({event: 7}, terms._part(0)), pure_epsilon({event: 7})
    assert plan.plain == (exact if exact < 0.98 * pure else pure)
    assert apart.plain > plan.plain
    for name in ("gaussian", "renyi"):
        single, several, divided, rest = (getattr(sums, name) for sums in (one, plan, apart, beside))
        if math.isinf(single):
            assert several == divided == math.inf
        elif name == "gaussian" and event == EVENTS[-1]:
            # A sampled run is converted as a whole, which is cheaper than step by step.
            assert 2 * single < several <= divided - rest <= 7 * single * (1 + 1e-9)
        else:
            assert several == pytest.approx(7 * single)
            assert divided - rest == pytest.approx(7 * single)


def test_sampled_runs_count_by_the_filters_adjacency():
    event, costs, added = SampledEvent(GaussianEvent(3.0), 0.2), [], []
    for adjacency in (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE):
        terms = Filter.of("mixed", 3.0, 1e-5, adjacency)
        costs.append(terms.needs(Sums(), entries((event, 7))))
        assert costs[-1] == epsilon({event: 7}, 1e-5, adjacency=adjacency)
        added.append(terms.sums(entries((event, 7))).gaussian)
    # Noise is relative to the sensitivity, which doubles if a record is replaced: equal multipliers cost less there.
    assert costs[0] > 1.1 * costs[1]
    assert added[0] > 1.1 * added[1]


@pytest.mark.parametrize("rule", RULES)
def test_a_delta_has_a_filter_or_is_refused_by_name(rule):
    terms = Filter.of(rule, 1.0, 1e-300, ROWS)
    assert terms.needs(Sums(), entries(PureEvent(0.5))) <= 0.5
    assert terms.needs(terms.sums(entries(PureEvent(0.6))), entries(PureEvent(0.6))) > 1.0
    for tiny in (sys.float_info.min, 1e-301):
        with pytest.raises(ValueError, match=r"delta must be 0 or at least 1e-300"):
            Ledger(1.0, tiny, rule=rule)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.5, 0.0)])
def test_a_filter_answers_for_a_ledger_that_does_not_exist_yet(epsilon, delta):
    terms = Filter.of("mixed", epsilon, delta, Adjacency.ZERO_OUT)
    fitting = Gaussian(calibrate(epsilon, delta)) if delta else Laplace(1 / epsilon)
    for plan in (fitting, Repeated(fitting), fitting.event()):
        assert terms.allows(plan)
        assert Ledger(epsilon, delta).allows(plan)
    for plan in (Repeated(fitting, steps=2), NonPrivate()):
        assert not terms.allows(plan)
        assert not Ledger(epsilon, delta).allows(plan)
    assert not terms.allows(fitting, terms.sums([Entry("an earlier fit", fitting.event())]))
