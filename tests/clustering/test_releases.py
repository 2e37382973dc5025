"""The plan costs what it should, follows from public facts, and the partition splits where the counts allow."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from dpadapt import Adjacency, Ledger, Public
from dpadapt.accounting.cost import epsilon as cost_of
from dpadapt.clustering.estimator import assumed_public, count_sources, noisy_counts
from dpadapt.clustering.inference import LABELS, Noise, make_cells, make_plan, partition, stage_mechanisms
from dpadapt.inputs.gate import sources_and_targets
from dpadapt.inputs.persons import IDS_ASSUMPTION, person_shares
from dpadapt.mechanisms.bounded import histogram


@pytest.fixture(scope="module")
def targets():
    return np.random.default_rng(0).standard_normal((80, 2))


@pytest.fixture(scope="module")
def cells():
    T = np.random.default_rng(0).standard_normal((300, 3))
    return make_cells(T, edges=np.geomspace(0.2, 1.0, 7), sizes=[20, 40, 80])


NOISES = [Noise("laplace", 0.4), Noise("laplace", 3.0), Noise("gaussian", 0.6), Noise("gaussian", 4.0)]
NOISES += [Noise(noise.law, noise.scale, whole=False) for noise in NOISES]


def plan_of(T, numbers=(3, 5), *, epsilon=1.0, adjacency=Adjacency.ADD_REMOVE, bound_epsilon=0.0, whole=True):
    mechanisms = stage_mechanisms("laplace", epsilon, 0.0, whole=whole)
    return make_plan(Public(T), T, numbers, mechanisms, adjacency, bound_epsilon)


@pytest.mark.parametrize(("noise", "delta"), [("laplace", 0.0), ("gaussian", 1e-6)])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("whole", [True, False])
def test_histograms_together_cost_epsilon(noise, delta, epsilon, whole):
    mechanisms = stage_mechanisms(noise, epsilon, delta, whole=whole)
    assert len(mechanisms) == len(LABELS)
    assert all(type(mechanism).__name__.startswith("Discrete") == whole for mechanism in mechanisms)
    # A counter: two equal events are two releases.
    spent = cost_of(Counter(mechanism.event() for mechanism in mechanisms), delta)
    assert 0.999 * epsilon <= spent <= epsilon * (1 + 1e-9)


def test_plan_lists_every_release_in_its_order(targets):
    assert [label for _, label in plan_of(targets).charges] == list(LABELS)
    with_bounds = plan_of(targets, bound_epsilon=0.1)
    assert [label for _, label in with_bounds.charges] == [*LABELS, "bound on the cost", "bound on the cost"]
    assert with_bounds.charges[-1][0].event() == with_bounds.charges[-2][0].event()
    assert sorted(with_bounds.without) == [3, 5]


def test_replace_one_doubles_the_noise_of_the_plan(targets):
    one, two = (plan_of(targets, adjacency=relation) for relation in (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE))
    assert [noise.scale for noise in two.noise] == pytest.approx([2 * noise.scale for noise in one.noise])


def released_counts(plan, S, T, shares=None):
    finest = count_sources(S, plan.around.cells, Public(T), shares)
    ledger = Ledger(epsilon=1e6, adjacency=Adjacency.ADD_REMOVE, unit=finest.unit, random_state=0)
    return noisy_counts(finest, plan, ledger.start_all(plan.charges))


@pytest.mark.parametrize("repeats", [1, 40])
def test_one_source_per_person_gives_the_counts_and_the_partition_of_sources(targets, repeats):
    """Where noise is negligible; the laws of the noise differ."""
    S = np.repeat(targets[:50] + 0.01, repeats, axis=0)
    rows = released_counts(plan_of(targets, epsilon=1e6), S, targets)
    persons = released_counts(
        plan_of(targets, epsilon=1e6, whole=False), S, targets, person_shares(range(len(S)), len(S))
    )
    assert persons.n_bands == rows.n_bands
    assert np.array_equal(persons.part, rows.part)
    assert persons.counts == pytest.approx(rows.counts, abs=1e-3)
    assert persons.coarse == pytest.approx(rows.coarse, abs=1e-3)


def test_sources_of_a_person_count_together_as_one(targets):
    """In chunks, too: the shares of a chunk are those of its rows."""
    S = np.vstack([np.repeat(targets[:1], 30, axis=0), targets[1:3], np.full((2, 2), 1e9)])
    ids = [*["a"] * 30, "b", "b", "b", None]
    finest = count_sources(S, plan_of(targets).around.cells, Public(targets), person_shares(ids, len(S)))
    assert finest.unit == "person"
    assert finest.value.sum() == pytest.approx(1 + 2 / 3)
    assert finest.value.max() >= 1 - 1e-9


def test_no_histogram_has_more_noise_than_the_plan_states(targets):
    """Laplace noise on reals grows with the number of bins; the gate must know at least that much."""
    plan = plan_of(targets, epsilon=0.01, whole=False)
    for noise, (mechanism, _), n_bins in zip(plan.noise, plan.charges, (70, plan.around.cells.n_bins), strict=True):
        drawn = mechanism.scale(histogram([], n_bins), Adjacency.ADD_REMOVE)
        assert drawn <= noise.scale <= drawn * (1 + 1e-3)
        assert mechanism.scale(histogram([], 1), Adjacency.ADD_REMOVE) < noise.scale


@pytest.mark.parametrize(("epsilon", "repeats", "n_bands"), [(3.0, 1, 2), (3.0, 300, 7), (0.01, 300, 2)])
def test_cells_are_counted_ring_by_ring_only_if_sources_far_exceed_the_noise(targets, epsilon, repeats, n_bands):
    sources = np.repeat(targets, repeats, axis=0)
    assert released_counts(plan_of(targets, epsilon=epsilon), sources, targets).n_bands == n_bands


def test_released_counts_are_those_of_the_sources_where_noise_is_negligible(targets):
    plan = plan_of(targets, epsilon=1e6)
    S = np.vstack([np.repeat(targets[:1], 30, axis=0), np.full((5, 2), 1e9)])
    released = released_counts(plan, S, targets)
    assert released.counts.sum() == released.counts.max() == 30
    # They are counted in the part of the bin that they are in: the nearest ring of a cell.
    code = plan.around.cells.codes(targets[:1])[0]
    assert code % 7 == 0
    assert released.counts.argmax() == released.part[code]
    ancestors = plan.around.cells.ancestors
    cell, band = divmod(released.parent[released.part[code]], released.n_bands)
    assert (ancestors[0][cell], band) == (ancestors[0][code // 7], 0)


def test_partition_splits_coarse_cells_as_finely_as_their_counts_allow(cells):
    coarse = np.zeros((20, 7))
    coarse[0, 0], coarse[1, 6] = 1e9, -5.0
    part, parent = partition(coarse, cells, 2, 4.0, 9.0)
    bands = np.tile([0, 0, 0, 1, 1, 1, 1], cells.ancestors.shape[1])
    # Whole parts lie in one coarse cell and band, and so do their parents.
    coarse_band = cells.ancestors[0][parent // 2] * 2 + parent % 2
    assert np.array_equal(np.repeat(cells.ancestors[0], 7) * 2 + bands, coarse_band[part])
    pieces = np.bincount(coarse_band, minlength=40)
    assert pieces[0] == (cells.ancestors[0] == 0).sum()
    assert (pieces[1:] == 1).all()
    assert len(np.unique(part)) == len(parent)
    # The parts of the finest cells of a split coarse cell have parents two levels above.
    split = np.flatnonzero(np.repeat(cells.ancestors[0] == 0, 7) & (bands == 0))
    above = cells.ancestors[max(len(cells.ancestors) - 3, 0)][split // 7]
    assert np.array_equal(parent[part[split]], above * 2)


def test_partition_splits_no_cell_whose_count_may_be_noise(cells):
    """Every coarse count is 40; the margin of a band of four is twice that of a count."""
    coarse = np.full((20, 7), 40.0)
    pieces = [np.bincount(partition(coarse, cells, 2, 4.0, margin)[1]).sum() for margin in (0.0, 60.0, 80.0)]
    assert pieces[0] > pieces[1] > pieces[2] == 40


def possible(noise, most):
    """Return the values of the noise: whole numbers, or numbers so close that sums over them are integrals."""
    step = 1.0 if noise.whole else 1e-3 * noise.scale
    return np.arange(-int(most * noise.scale / step), int(most * noise.scale / step) + 1) * step


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_moments_of_the_noise_are_at_most_the_stated_ones(noise):
    values = possible(noise, 100)
    probability = np.exp(noise.log_density(values))
    probability /= probability.sum()
    for s in np.array([0.1, 0.5, 0.9]) / noise.scale:
        moment = probability @ np.exp(s * values)
        assert moment <= np.exp(noise.log_moment(s)) * (1 + 1e-9)
        assert moment >= 0.95 * np.exp(noise.log_moment(s))


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_log_density_has_the_stated_variance(law, whole):
    noise = Noise(law, 3.0, whole)
    values = possible(noise, 70)
    probability = np.exp(noise.log_density(values))
    probability /= probability.sum()
    assert probability @ values**2 == pytest.approx(noise.variance, rel=0.02)


def test_blocks_are_checked_like_whole_tables(targets):
    public, cells = Public(pd.DataFrame(targets, columns=["a", "b"])), plan_of(targets).around.cells
    given = iter([targets[:3].astype(np.float32), targets[3:7].tolist()])
    _, blocks, T = sources_and_targets(given, public, blocks=True)
    assert np.array_equal(T, targets)
    whole = np.vstack([targets[:3].astype(np.float32), targets[3:7]])
    counted = count_sources(blocks, cells, public).value
    assert np.array_equal(counted, np.bincount(cells.codes(whole), minlength=cells.n_bins))
    for block, message in (
        (np.zeros((2, 3)), "each block of S must have the targets' 2 columns, got 3"),
        (np.zeros(2), "each block of S must be a table of numbers"),
        (pd.DataFrame(np.zeros((2, 2)), columns=["b", "a"]), "same order"),
    ):
        with pytest.raises(ValueError, match=message):
            count_sources(iter([block]), cells, public)
    with pytest.raises(ValueError, match="S must be a table of numbers"):
        sources_and_targets(iter([targets]), public)
    with pytest.raises(TypeError, match="S must be dense"):
        sources_and_targets(sparse.eye(2).tocsr(), public)


def test_number_of_rows_is_assumed_public_unless_rows_are_added_or_removed():
    facts = ["the columns and their order", "that all cells of the sources are numbers"]
    assert assumed_public("add-remove") == facts
    assert assumed_public("zero-out")[0] == assumed_public("replace-one")[0] == "the number of rows"
    assert assumed_public("add-remove", "person") == [*facts, IDS_ASSUMPTION]
    assert assumed_public("zero-out", "person") == ["the number of persons", *facts, IDS_ASSUMPTION]


def test_targets_are_finite_numbers_whose_distances_fit_single_precision(targets):
    for bad, message in (
        (targets * 1e40, r"up to 1e\+30"),
        (np.full((3, 2), np.nan), "NaN"),
        (targets[:0], "minimum of 1"),
    ):
        with pytest.raises(ValueError, match=f"public X must .*{message}"):
            sources_and_targets(targets, Public(bad))


class Fixed:
    """A run that returns the same counts, whatever it is given."""

    def __init__(self, value):
        self.value = value

    def release(self, bounded):
        return np.full(bounded.value.shape, self.value)


@pytest.mark.parametrize("count", [0.0, 1e5])
def test_the_partition_follows_from_released_counts_alone(targets, count):
    """Different sources, the same releases: what is released next must have the same bins."""
    plan = plan_of(targets)
    made = []
    for repeats in (0, 1, 3000):
        finest = count_sources(np.repeat(targets, repeats, axis=0), plan.around.cells, Public(targets), None)
        made.append(noisy_counts(finest, plan, [Fixed(count), Fixed(1.0)]))
    for other in made[1:]:
        assert other.n_bands == made[0].n_bands
        assert np.array_equal(other.part, made[0].part)
        assert np.array_equal(other.parent, made[0].parent)
