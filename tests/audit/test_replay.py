"""A replay names what depends on private data without a release: planted leaks are detected, a clean fit has none."""

from functools import partial

import numpy as np
import pytest

from dpadapt.audit import PathDiffers, leaks, record, replay
from dpadapt.audit.replay import leaked
from dpadapt.mechanisms import Adjacency, Bounded, DiscreteLaplace, Gaussian, Laplace, clipped_sum, histogram, votes
from dpadapt.mechanisms.events import GaussianEvent
from dpadapt.mechanisms.mechanism import Repeated, Sampled
from tests.audit.fakes import D_NEIGHBOUR, D, Fake, X, y


def sum_of(X, drawn, index):
    """Return the clipped sum of the rows at `index`, which is appended to `drawn`."""
    drawn.append(index)
    return clipped_sum(X[index], 1.0)


class Sampling(Fake):
    """Clean too: a sum over Poisson batches; subclasses leak what was drawn."""

    def released(self, ledger, X):
        run = ledger.start(Sampled(Gaussian(2.0), rate=0.4, steps=6), label="sums")
        total = 0.0
        for batch in run.batches(len(X)):
            drawn = []
            noisy = run.release(batch.of(partial(sum_of, X, drawn)))
            total = total + self.share(noisy, drawn[0])
        return total

    def share(self, noisy, index):
        return noisy


class Indices(Sampling):
    def share(self, noisy, index):
        self.last_batch_ = index
        return noisy


class BatchSize(Sampling):
    def share(self, noisy, index):
        return noisy / max(1, len(index))


class Counted(Fake):
    """Clean: integers."""

    def released(self, ledger, X):
        return ledger.release(DiscreteLaplace(2.0), histogram(np.floor(X[:, 0] + 1), 2), label="counts")


class ReadsExact(Fake):
    def released(self, ledger, X):
        statistic = clipped_sum(X, 1.0)
        noisy = ledger.release(Gaussian(2.0), statistic, label="sum")
        return noisy if statistic.value[0] > 1e6 else noisy + 1.0


class KeepsExact(Fake):
    """Takes hold of the exact sum before the release and uses it afterwards."""

    def released(self, ledger, X):
        statistic = clipped_sum(X, 1.0)
        exact = statistic.value
        ledger.release(Gaussian(2.0), statistic, label="sum")
        return exact


class ReadsCounts(Counted):
    def released(self, ledger, X):
        statistic = histogram(np.floor(X[:, 0] + 1), 2)
        return ledger.release(DiscreteLaplace(2.0), statistic, label="counts") + statistic.value


class ReadsBatch(Fake):
    """Reads the exact sum of a batch, which the released statistic shares with the one that was computed."""

    def released(self, ledger, X):
        run = ledger.start(Sampled(Gaussian(2.0), rate=1.0, steps=1), label="sum")
        batch = next(run.batches(len(X)))
        computed = clipped_sum(X, 1.0)
        run.release(batch.of(lambda index: computed))
        return computed.value


class Parameter(Fake):
    """Changes a parameter by the private rows."""

    def finish(self, X, y):
        self.clip_norm = float(np.abs(X).max())


class Labels(Fake):
    def finish(self, X, y):
        self.labels_ = np.unique(y)


class Scale(Fake):
    def finish(self, X, y):
        self.scale_ = float(np.abs(X).max())


class HiddenCopy(Fake):
    def finish(self, X, y):
        self._rows = {"cache": [X]}


class LastBit(Fake):
    """The released mean, rounded by something private."""

    def finish(self, X, y):
        self.mean_ = self.mean_ + (1e-17 * X.sum() if X.sum() else 0) * 1e3


class Missing(Fake):
    def finish(self, X, y):
        if 2 in y:
            self.has_two_ = True


class Bounds(Fake):
    """Clips at the longest private row, so that the noise depends on the data."""

    def released(self, ledger, X):
        return ledger.release(Gaussian(2.0), clipped_sum(X, float(np.linalg.norm(X, axis=1).max())), label="sum")


class Stop(Fake):
    """Stops by the private rows, not by their releases."""

    def released(self, ledger, X):
        run = ledger.start(Repeated(Gaussian(2.0), 9), label="sums")
        total = 0.0
        for _ in range(9 if np.abs(X).max() > 1 else 3):
            total = total + run.release(clipped_sum(X, 1.0))
        return total


class StopSooner(Fake):
    """Makes fewer releases on the neighbour."""

    def released(self, ledger, X):
        run = ledger.start(Repeated(Gaussian(2.0), 9), label="sums")
        return sum(run.release(clipped_sum(X, 1.0)) for _ in range(3 if np.abs(X).max() > 1 else 9))


class Label(Fake):
    """Makes the same releases, but their labels depend on the data."""

    def released(self, ledger, X):
        return ledger.release(Gaussian(2.0), clipped_sum(X, 1.0), label=f"sum of {np.abs(X).max():.0f}")


class Kind(Fake):
    def released(self, ledger, X):
        mechanism = Laplace(2.0) if np.abs(X).max() > 1 else Gaussian(2.0)
        return ledger.release(mechanism, votes(X), label="sum")


class Width(Fake):
    def released(self, ledger, X):
        kept = X[:, np.abs(X).max(axis=0) < 6]
        return ledger.release(Gaussian(2.0), clipped_sum(kept, 1.0), label="sum").sum()


@pytest.mark.parametrize("clean", [Fake, Sampling, Counted])
def test_a_clean_fit_shows_no_leak(clean):
    assert leaks(clean, D, D_NEIGHBOUR) == []


@pytest.mark.parametrize(
    ("planted", "named"),
    [
        (Labels, ["labels_"]),
        (Scale, ["scale_"]),
        (HiddenCopy, ["_rows"]),
        (LastBit, ["mean_"]),
        (Missing, ["has_two_"]),
        (Bounds, ["path"]),
        (Stop, ["path"]),
        (StopSooner, ["path"]),
        (Label, ["path"]),
        (Kind, ["path"]),
        (Width, ["path"]),
        (Parameter, ["clip_norm"]),
    ],
)
def test_planted_leaks_are_named(planted, named):
    assert leaks(planted, D, D_NEIGHBOUR) == named


def test_equal_data_shows_no_leak_of_the_data():
    for planted in (Labels, Scale, HiddenCopy, Bounds, Stop):
        assert leaks(planted, D, (X.copy(), y.copy())) == []


@pytest.mark.parametrize(("planted", "named"), [(Indices, ["last_batch_"]), (BatchSize, ["mean_"])])
def test_what_depends_on_the_samples_is_named_even_on_equal_data(planted, named):
    assert leaks(planted, D, D) == named


@pytest.mark.parametrize("planted", [ReadsExact, KeepsExact, ReadsCounts, ReadsBatch])
@pytest.mark.parametrize("poison", [np.nan, 1e300])
def test_what_reads_an_exact_value_after_its_release_is_named_even_on_equal_data(planted, poison):
    def fitted(data, ledger):
        return planted().fit(*data, ledger=ledger)

    names = leaked(fitted, D, record(fitted, D), adjacency=Adjacency.ZERO_OUT, poison=poison)
    # A comparison with NaN is false, as that of the exact value was: such a leak takes another number to be found.
    assert names == ([] if planted is ReadsExact and np.isnan(poison) else ["mean_"])


def fit(data, ledger):
    return ledger.release(Gaussian(2.0), clipped_sum(data[0], 1.0), label="sum")


def test_a_tape_holds_the_releases_and_a_replay_repeats_them():
    tape = record(fit, D, seed=3)
    (release,) = tape.releases
    assert (release.kind, release.event, release.scale) == ("Gaussian", GaussianEvent(2.0), 2.0)
    assert np.array_equal(release.noisy, tape.result)
    assert [entry.label for entry in tape.entries] == ["sum"]
    again = replay(fit, D_NEIGHBOUR, tape, seed=3)
    assert np.array_equal(again.result, tape.result)
    assert not np.array_equal(again.releases[0].value, release.value)


def test_changing_a_released_array_in_place_does_not_change_the_tape():
    def overwrite(data, ledger):
        noisy = fit(data, ledger)
        noisy *= 0
        return noisy

    tape = record(overwrite, D)
    assert np.any(tape.releases[0].noisy != 0)


def test_a_replay_with_another_number_or_kind_of_releases_is_refused():
    def twice(data, ledger):
        return [fit(data, ledger), fit(data, ledger)]

    with pytest.raises(PathDiffers, match="more releases"):
        replay(twice, D, record(fit, D))
    with pytest.raises(PathDiffers, match="fewer releases"):
        replay(fit, D, record(twice, D))
    with pytest.raises(PathDiffers, match="differs in kind, shape or noise"):
        replay(fit, (X[:, :1], y), record(fit, D))


def test_poison_leaves_the_data_alone():
    def whole(data, ledger):
        statistic = Bounded(data[0], l2=1.0)
        ledger.release(Gaussian(2.0), statistic, label="rows")
        return statistic

    rows = X.copy()
    played = replay(whole, (rows,), record(whole, (rows,)), poison=np.nan)
    assert np.array_equal(rows, X)
    assert np.isnan(played.result.value).all()
    assert np.array_equal(played.releases[0].value, X)


def test_a_tape_groups_the_entries_by_charge():
    def charges(data, ledger):
        child = ledger.child(np.inf, 0.0, label="child")
        child.start_all([(Gaussian(2.0), "a"), (Repeated(Laplace(2.0), 3), "b")])
        ledger.start(Gaussian(1.0), label="c")

    tape = record(charges, D)
    assert [[entry.label for entry in charge] for charge in tape.charges] == [["child: a", "child: b"], ["c"]]
    assert [entry.label for entry in tape.entries] == ["child: a", "child: b", "c"]


def test_a_row_added_at_the_end_changes_no_other_rows_part_in_a_sample():
    def sampled(n_rows, ledger):
        # A child with a seed of its own draws its samples from the same streams.
        child = ledger.child(np.inf, 0.0, label="child", random_state=n_rows)
        return [
            index.tolist()
            for parent in (ledger, child)
            for index in indices(parent.start(Sampled(Gaussian(2.0), rate=0.3, steps=4), label="x"), n_rows)
        ]

    def indices(run, n_rows):
        drawn = []
        for batch in run.batches(n_rows):
            run.release(batch.of(partial(sum_of, np.ones((n_rows, 1)), drawn)))
        return drawn

    shorter, longer = (record(sampled, n_rows).result for n_rows in (200, 201))
    assert shorter == [[row for row in index if row < 200] for index in longer]
    assert len(set(map(tuple, shorter))) == 8
    assert record(sampled, 200, samples=1).result != shorter
    # Four deviations of the mean size of eight samples.
    assert abs(np.mean([len(index) for index in shorter]) - 60) < 4 * np.sqrt(200 * 0.3 * 0.7 / 8)


def test_record_can_reduce_the_noise():
    def wide(data, ledger):
        return ledger.release(Gaussian(2.0), clipped_sum(np.zeros((1, 4000)), 1.0), label="x")

    # Seeded; the deviation of a standard deviation over n normals is 1 / sqrt(2 n): four of them.
    assert record(wide, D).result.std() == pytest.approx(2.0, rel=0.05)
    assert record(wide, D, noise=0.5).result.std() == pytest.approx(1.0, rel=0.05)


def test_the_adjacency_of_the_estimator_is_used():
    class Swap(Fake):
        adjacency = "replace-one"

        def released(self, ledger, X):
            assert ledger.adjacency is Adjacency.REPLACE_ONE
            return super().released(ledger, X)

    assert leaks(Swap, D, D_NEIGHBOUR) == []
