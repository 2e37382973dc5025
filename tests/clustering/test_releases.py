"""The plan costs what it should, follows from public facts, and its partition follows from released counts alone."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from dpadapt import Adjacency, Ledger, Public
from dpadapt.accounting.cost import epsilon as cost_of
from dpadapt.clustering.public_cells import make_cells
from dpadapt.clustering.releases import (
    LABELS,
    Noise,
    assumed_public,
    checked_inputs,
    declared_targets,
    make_plan,
    partition,
    release,
    source_codes,
    stage_mechanisms,
)


@pytest.fixture(scope="module")
def targets():
    return np.random.default_rng(0).standard_normal((80, 2))


@pytest.fixture(scope="module")
def cells():
    T = np.random.default_rng(0).standard_normal((300, 3))
    return make_cells(T, edges=np.array([0.2, 0.5, 1.0]), sizes=[20, 40, 80], bands=np.array([0, 1, 1]))


def plan_of(T, numbers=(3, 5), **options):
    given = {"noise": "laplace", "epsilon": 1.0, "delta": 0.0, "adjacency": Adjacency.ADD_REMOVE, "bound_epsilon": 0.0}
    return make_plan(Public(T), T, numbers, **given | options)


@pytest.mark.parametrize(("noise", "delta"), [("laplace", 0.0), ("gaussian", 1e-6)])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_histograms_together_cost_epsilon(noise, delta, epsilon):
    mechanisms = stage_mechanisms(noise, epsilon, delta)
    assert len(mechanisms) == len(LABELS)
    spent = cost_of({mechanism.event(): 1 for mechanism in mechanisms}, delta)
    assert 0.999 * epsilon <= spent <= epsilon * (1 + 1e-9)


def test_plan_lists_every_release_in_its_order(targets):
    assert [label for _, label in plan_of(targets).charges] == list(LABELS)
    with_bounds = plan_of(targets, bound_epsilon=0.1)
    assert [label for _, label in with_bounds.charges] == [*LABELS, "bound on the cost", "bound on the cost"]
    assert with_bounds.bound_epsilon == 0.1
    assert sorted(with_bounds.without) == [3, 5]


def test_replace_one_doubles_the_noise_of_the_plan(targets):
    one, two = (plan_of(targets, adjacency=relation) for relation in (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE))
    assert [noise.scale for noise in two.noise] == pytest.approx([2 * noise.scale for noise in one.noise])


@pytest.mark.parametrize(
    ("width", "epsilon", "n_bands", "scales"), [(2, 1.0, 3, 4.0), (2, 5.0, 3, 1.5), (4, 1.0, 4, 1.5), (4, 0.1, 2, 1.5)]
)
def test_resolution_follows_from_the_noise_and_the_number_of_columns(width, epsilon, n_bands, scales):
    plan = plan_of(np.random.default_rng(1).standard_normal((40, width)), epsilon=epsilon)
    assert plan.around.cells.n_bands == n_bands
    assert plan.least_in_part == pytest.approx(scales * plan.noise[-1].scale)


def test_released_counts_are_those_of_the_sources_where_noise_is_negligible(targets):
    plan = plan_of(targets, epsilon=1e6)
    S = np.vstack([np.repeat(targets[:1], 30, axis=0), np.full((5, 2), 1e9)])
    codes = source_codes(S, plan.around.cells, Public(targets))
    ledger = Ledger(epsilon=1e6, adjacency=Adjacency.ADD_REMOVE, random_state=0)
    released = release(codes, plan, ledger.start_all(plan.charges))
    for counts in (released.profile, released.coarse, released.counts):
        assert counts.sum() == counts.max() == 30
    assert released.profile.argmax() == 0  # the nearest ring
    assert released.coarse.argmax() == released.parent[released.counts.argmax()]


def test_partition_splits_coarse_bins_as_finely_as_their_counts_allow(cells):
    coarse = np.zeros(40)
    coarse[:3] = 1e9, 0.0, -5.0
    part, parent = partition(coarse, cells, 4.0)
    assert np.array_equal(cells.coarse()[:-1], parent[part])  # whole parts lie in one coarse bin
    pieces = np.bincount(parent, minlength=40)
    assert pieces[0] == (cells.ancestors[0] == 0).sum()
    assert (pieces[1:] == 1).all()
    assert len(np.unique(part)) == len(parent)


@pytest.mark.parametrize("noise", [Noise("laplace", 3.0), Noise("gaussian", 3.0)], ids=str)
def test_log_density_has_the_stated_variance(noise):
    values = np.arange(-200, 201)
    probability = np.exp(noise.log_density(values))
    probability /= probability.sum()
    assert probability @ values**2 == pytest.approx(noise.variance, rel=0.02)


def test_targets_must_be_declared(targets):
    with pytest.raises(ValueError, match="public must hold the targets"):
        declared_targets(None)
    with pytest.raises(TypeError, match="public must be wrapped"):
        declared_targets(targets)


def test_blocks_are_checked_like_whole_tables(targets):
    public, cells = Public(pd.DataFrame(targets, columns=["a", "b"])), plan_of(targets).around.cells
    blocks, T = checked_inputs(iter([targets[:3].astype(np.float32), targets[3:7].tolist()]), public)
    assert np.array_equal(T, targets)
    whole = np.vstack([targets[:3].astype(np.float32), targets[3:7]])
    assert np.array_equal(source_codes(blocks, cells, public), cells.codes(whole))
    for block, message in (
        (np.zeros((2, 3)), "each block of S must have the targets' 2 columns, got 3"),
        (np.zeros(2), "each block of S must be a table of numbers"),
        (pd.DataFrame(np.zeros((2, 2)), columns=["b", "a"]), "same order"),
    ):
        with pytest.raises(ValueError, match=message):
            source_codes(iter([block]), cells, public)
    with pytest.raises(TypeError, match="S must be dense"):
        checked_inputs(sparse.eye(2).tocsr(), public)


def test_number_of_rows_is_assumed_public_unless_rows_are_added_or_removed():
    facts = ["the columns and their order", "that all cells of the sources are numbers"]
    assert assumed_public("add-remove") == facts
    assert assumed_public("zero-out")[0] == assumed_public("replace-one")[0] == "the number of rows"


def test_sources_that_are_no_table_show_neither_a_value_nor_their_number(targets):
    for sources in ([[77.0, 1.0]] * 731 + [[77.0]], np.full((731, 2), "secret77"), np.full((731, 2), 77j)):
        with pytest.raises(ValueError, match="must be a table of numbers") as failure:
            checked_inputs(sources, Public(targets))
        assert "77" not in str(failure.value)
        assert "73" not in str(failure.value)
        assert failure.value.__context__ is None


def test_targets_are_finite_numbers_whose_distances_fit_single_precision(targets):
    for bad, message in (
        (targets * 1e40, r"up to 1e\+30"),
        (np.full((3, 2), np.nan), "NaN"),
        (targets[:0], "minimum of 1"),
    ):
        with pytest.raises(ValueError, match=f"public X must .*{message}"):
            checked_inputs(targets, Public(bad))
