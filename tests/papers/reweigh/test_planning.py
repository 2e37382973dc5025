"""The paper's formulas give the paper's figures."""

import math

import pytest

from dpadapt.papers.reweigh.planning import (
    Descent,
    algorithm_4_cost,
    paper_noise_variance,
    paper_people,
    paper_rounds,
    paper_rows,
    parity_rows,
    plan,
)

EASY = {"alpha": 0.08, "epsilon": 0.5, "delta": 1e-4, "divergence": 0.3515}


def test_appendix_d_needs_324_7_million_records_as_in_the_paper():
    sizes = plan(**EASY, descent=Descent(0.1, 0.006, 9), n_rounds=997, n_steps=50_000_000, density=0.08 / (4 * 1.3515))
    assert sizes.rows == pytest.approx(324_700_000, rel=1e-3)
    assert sizes.noise == pytest.approx(math.sqrt(20))
    assert "324,6" in str(sizes)


def test_one_bit_each_needs_a_twentieth_of_the_people():
    sizes = plan(**EASY)
    assert sizes.rounds == paper_rounds(0.08, 0.3515) == 141_569
    assert sizes.people == 687_191
    assert sizes.people_exact < sizes.people / 20
    # At 1,000 rounds, as the paper's runs took.
    assert paper_people(0.08, 1e-6 / 2000, 0.5, 1e-4) == 564_566


def test_algorithm_4_costs_a_tenth_of_what_its_accountant_says():
    cost = algorithm_4_cost(324_700_000, 0.08 / (4 * 1.3515), 997, 50_000_000, math.sqrt(20), 1e-4)
    assert cost.truncated <= 0.5
    assert cost.renyi == pytest.approx(0.057, abs=0.001)
    assert algorithm_4_cost(324_700_000, 0.0148, 997, 50_000_000, 1.0, 1e-4).truncated == math.inf  # not its conditions


def test_the_planned_records_keep_the_claimed_cost():
    sizes = plan(**EASY, descent=Descent(1.0, 0.5, 9))
    cost = algorithm_4_cost(sizes.rows, sizes.density, sizes.rounds, sizes.steps, sizes.noise, 1e-4)
    assert cost.renyi <= cost.truncated <= 0.5 * (1 + 1e-6)


def test_the_papers_noise_is_the_larger_of_two_terms():
    for epsilon, delta, size in ((0.5, 1e-4, 30.0), (0.5, 1e-4, 1e12), (0.9, 1e-2, 40.0), (0.1, 1e-6, 2.0)):
        second = (16 / epsilon * math.log(1 / delta) + 8) / math.log(size)
        assert paper_noise_variance(epsilon, delta, size) == pytest.approx(max(20.0, second), rel=1e-12)
    with pytest.raises(ValueError, match="density times n_rows"):
        paper_noise_variance(0.5, 1e-4, 1.0)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("size", [5.0, 1e3, 1e7])
def test_the_second_term_halves_the_conversion_to_epsilon(epsilon, size):
    """The proof of Theorem A.4: with this noise the term of ln(1/delta) is at most half of epsilon."""
    square = paper_noise_variance(epsilon, 1e-5, size)
    assert 8 * math.log(1e5) / (square * math.log(size) - 8) <= epsilon / 2 * (1 + 1e-12)


def test_strongly_convex_losses_need_the_printed_number_of_steps():
    L, D, d, alpha, beta, square, strong = 1.5, 2.0, 7, 0.01, 1e-6, 20.0, 0.3
    length = L**2 + square * L**2 * d
    first = 4 * length / (strong * alpha) * math.log(length / (strong * alpha))
    second = 8 * D**2 * L**2 * math.log(2 / beta) / alpha**2
    steps = Descent(L, D, d, strong).steps(alpha, beta, square)
    assert steps == math.ceil(max(first, second))
    convex = Descent(L, D, d).steps(alpha, beta, square)
    assert convex == math.ceil(max(9 * D**2 * length / alpha**2, second))
    # At small alpha the first term falls behind: R goes as 1 / alpha instead of 1 / alpha^2, up to the confidence term.
    assert steps < convex / 5
    # A strong term decides at once; a weak one makes the first term the larger.
    assert Descent(L, D, d, 100.0).steps(alpha, beta, square) == math.ceil(second)
    assert Descent(L, D, d, 1e-3).steps(alpha, beta, square) > convex


def test_strong_convexity_lowers_the_planned_records():
    convex = plan(**EASY, descent=Descent(1.0, 2.0, 9))
    strong = plan(**EASY, descent=Descent(1.0, 2.0, 9, strong_convexity=1.0))
    assert strong.steps < convex.steps
    assert strong.rows < convex.rows
    cost = algorithm_4_cost(strong.rows, strong.density, strong.rounds, strong.steps, strong.noise, 1e-4)
    assert cost.renyi <= cost.truncated <= 0.5 * (1 + 1e-6)


def test_algorithm_2_scales_as_the_theorem_says():
    small, large = plan(**EASY, sample_size=100), plan(**{**EASY, "epsilon": 0.25}, sample_size=200)
    assert large.rows == pytest.approx(4 * small.rows, rel=1e-6)
    assert plan(**EASY).rows is None
    assert paper_rows(0.01, 1e-6, 38.2, 201) > 1e12  # "15 * 10^12" in Appendix D, worst case


def test_corollary_b3_sizes():
    assert parity_rows(64, 1e-3, 0.5, 1.0) == (27, 96_337)
    assert parity_rows(128, 1e-3, 0.5, 1.0) == (27, 204_029)


@pytest.mark.parametrize("divergence", [-0.1, math.inf, math.nan, "1", True])
def test_an_unusable_divergence_is_refused(divergence):
    with pytest.raises(ValueError, match="divergence must be"):
        plan(0.08, 0.5, 1e-4, divergence)


@pytest.mark.parametrize(
    ("change", "name"), [({"alpha": 0.2}, "alpha"), ({"delta": 0.0}, "delta"), ({"epsilon": -1.0}, "epsilon")]
)
def test_bad_targets_are_named(change, name):
    with pytest.raises(ValueError, match=f"{name} must"):
        plan(**{**EASY, **change})


def test_too_few_records_for_the_density_are_refused():
    with pytest.raises(ValueError, match="density times n_rows"):
        algorithm_4_cost(10, 0.01, 1, 1, 5.0, 1e-4)
