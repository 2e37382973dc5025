"""Rows on the workers of a Dask cluster: the same model, bit for bit; lost workers; no private value in logs."""

import gc
import mmap
import os
import pickle
import signal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dpadapt import (
    Ledger,
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateTransferRegressor,
    Public,
    checks,
)
from dpadapt.accounting.ledger import Run
from dpadapt.inputs.gate import label_codes
from dpadapt.integrations import dask as workers
from dpadapt.integrations.dask import OnCluster, OnWorkers, _Group
from dpadapt.rows import rows_by_block
from tests.inputs.streamed import MAKERS, assert_same, data_of

pytest.importorskip("distributed", reason="needs Dask: pip install 'dpadapt[scale]'")
import cloudpickle
import dask.array as da
import dask.dataframe as dd
from distributed import Client, LocalCluster

# Dask's own warnings are no matter of these tests.
pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.filterwarnings("ignore::dpadapt.errors.PrivacyWarning"),
]


def started(n_workers):
    return LocalCluster(n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=None)


@pytest.fixture(scope="module")
def client():
    with started(2) as cluster, Client(cluster) as client:
        yield client


def arrays(X, y, size=7777):
    return da.from_array(X, chunks=(size, 3)), da.from_array(y, chunks=size + 11)


def frames(X, y, parts):
    names = [f"x{j}" for j in range(X.shape[1])]
    return dd.from_pandas(pd.DataFrame(X, columns=names), npartitions=parts), dd.from_pandas(
        pd.Series(y), npartitions=3
    )


@pytest.mark.parametrize("kind", ["regressor", "classifier"])
def test_two_workers_give_the_model_of_the_same_rows_in_memory(client, rows, kind):
    X, y, public = data_of(kind, rows)
    whole = MAKERS[kind](intervals=True).fit(X, y, public=public)
    assert_same(whole, MAKERS[kind](intervals=True).fit(*arrays(X, y), public=public))
    frame = frames(X, y, 5)
    named = Public(pd.DataFrame(public.X, columns=frame[0].columns), public.y)
    fitted = MAKERS[kind](intervals=True).fit(*frame, public=named)
    assert np.array_equal(whole.coef_, fitted.coef_)
    assert list(fitted.feature_names_in_) == list(frame[0].columns)


def test_predictions_on_dask_are_lazy_and_the_same(client, rows):
    X, y, public = data_of("classifier", rows)
    model = MAKERS["classifier"]().fit(X, y, public=public)
    array, frame = arrays(X, y)[0], frames(X, y, 4)[0]
    for method in ("predict", "predict_proba", "decision_function"):
        lazy = getattr(model, method)(array)
        assert hasattr(lazy, "__dask_graph__")
        assert np.array_equal(lazy.compute(), getattr(model, method)(X))
    assert np.array_equal(np.asarray(model.predict(frame).compute()), model.predict(X))
    fitted = PrivateTransferRegressor(random_state=0, public_model="linear", intervals=True)
    fitted.fit(X, y.astype(float), public=Public(public.X, public.y.astype(float)))
    lazy = fitted.predict_interval(array, coverage=0.8)
    assert np.array_equal(lazy.compute(), fitted.predict_interval(X, coverage=0.8))


@pytest.mark.parametrize("at", [2, 60, *(pytest.param(at, marks=pytest.mark.slow) for at in (1, 5))])
def test_a_worker_that_dies_in_any_stage_changes_nothing(rows, at, monkeypatch):
    X, y, public = data_of("regressor", rows)
    calm, struck = Ledger(9.0, 1e-5), Ledger(9.0, 1e-5)
    whole = MAKERS["regressor"]().fit(X, y, public=public, ledger=calm)
    with started(2) as cluster, Client(cluster):
        count, release = [0], Run.release

        def killing(self, bounded):
            count[0] += 1
            if count[0] == at:
                os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)
            return release(self, bounded)

        monkeypatch.setattr(Run, "release", killing)
        model = MAKERS["regressor"]().fit(*arrays(X, y), public=public, ledger=struck)
    assert count[0] >= at
    assert_same(whole, model)
    # Nothing was charged twice.
    assert struck.spent() == calm.spent()


def test_bad_rows_on_a_worker_are_refused_at_no_cost_and_never_logged(client, rows):
    X, y, _ = data_of("regressor", rows)
    bad = X.copy()
    bad[-1] = np.nan
    bad[-2] = 17.25
    ledger = Ledger(1.0, 1e-5)
    with pytest.raises(ValueError, match="NaN") as caught:
        PrivateLinearRegression().fit(*arrays(bad, y), ledger=ledger)
    assert "17.25" not in str(caught.value)
    assert ledger.spent() == 0
    assert "17.25" not in str(client.get_worker_logs())
    with pytest.raises(ValueError, match="not among the classes"):
        PrivateLogisticRegression(classes=[0, 1]).fit(*arrays(X, np.where(y > 3, 7, 0)), ledger=ledger)


def test_rows_that_can_not_be_computed_are_refused_without_a_value(client):
    def secret(block):
        raise ValueError(f"could not convert string to float: 'LION', {block.shape}")

    X, y = da.zeros((100, 2), chunks=50), da.zeros(100, chunks=50)
    ledger = Ledger(1.0, 1e-5)
    for bad in ((X.map_blocks(secret, dtype=float), y), (X, y.map_blocks(secret, dtype=float))):
        with pytest.raises(ValueError, match=r"can't be computed on the workers \(ValueError\)") as caught:
            PrivateLinearRegression().fit(*bad, ledger=ledger)
        assert "LION" not in str(caught.value)
        assert caught.value.__context__ is None
    assert ledger.entries == []


def test_the_text_of_an_error_on_a_worker_comes_back_only_if_it_is_ours(client):
    def conversion(part):
        return float("ZEBRA7731")

    def lookup(part):
        return {}["ZEBRA7731"]

    blocks = OnWorkers(client, [(client.submit(_Group, b"digest", [1, 2]), 2)], 2, [b"digest"])
    for function in (conversion, lookup):
        with pytest.raises(ValueError, match="a worker can't compute a sum over its rows") as caught:
            list(blocks.results(function))
        assert "ZEBRA7731" not in str(caught.value)
        assert caught.value.__context__ is None
        with pytest.raises(ValueError, match="a worker can't"):
            blocks.map(function)
    # The worker did not raise it: Dask would write the arguments of the task, private rows, into its logs.
    assert "ZEBRA7731" not in str(client.get_worker_logs())
    with pytest.raises(ValueError, match="epsilon must be"):
        list(blocks.results(lambda part: checks.positive(-1, "epsilon")))


def _first_of(part, own):
    return part.X[own].sum(axis=0)


def test_row_numbers_of_a_sample_are_never_logged(client, rows):
    # They would tell who is in a sample. A result that can't be pickled is an error outside the computation of sums.
    X, y, _ = data_of("regressor", rows)
    blocks = OnCluster(*arrays(X, y)).blocks(lambda X, y: (np.asarray(X), np.asarray(y)))
    own = rows_by_block(np.array([7, 4242]), blocks.n_rows)
    expected = np.sum(list(blocks.results(_first_of, own)), axis=0)

    def broken():
        import pickle

        from dpadapt.integrations import dask as workers

        class Broken:
            loads = pickle.loads

            @staticmethod
            def dumps(value):
                raise MemoryError

        workers.pickle = Broken

    def mended():
        import pickle

        from dpadapt.integrations import dask as workers

        workers.pickle = pickle

    client.run(broken)
    try:
        found = np.sum(list(blocks.results(_first_of, own)), axis=0)
    finally:
        client.run(mended)
    assert np.array_equal(found, expected)
    assert "4242" not in str(client.get_worker_logs())


@pytest.mark.parametrize("setting", ["65536", "", "many", "\N{SUPERSCRIPT TWO}", "9" * 23])
def test_sums_are_computed_whatever_the_environment_says_about_memory(setting, monkeypatch):
    for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"):
        monkeypatch.setenv(name, setting)
    group = _Group(b"digest", [np.ones((1000, 300)), np.ones((10, 300))])
    found = workers._results(group, pickle.dumps(np.sum), None)
    assert found.parts == [300_000.0, 3000.0]
    (kept, _) = workers._mapped(group, pickle.dumps(np.negative), None).parts
    assert kept.sum() == -300_000.0
    # What is kept goes back to the system when Dask drops it, whatever lies behind it in memory.
    while isinstance(kept, np.ndarray | memoryview):
        kept = kept.obj if isinstance(kept, memoryview) else kept.base
    assert isinstance(kept, mmap.mmap)


def test_rows_that_dask_has_dropped_leave_no_copies_in_the_memory_of_a_worker(client):
    # Stages of 26 MB. Intermediate arrays and dropped stages go back to the system.
    X = np.random.default_rng(0).standard_normal((163_840, 20))

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    blocks = OnCluster(da.from_array(X, chunks=(8192, 20)), da.from_array(X[:, 0], chunks=8192)).blocks(
        lambda X, y: (np.asarray(X), np.asarray(y))
    )
    before, size = sum(client.run(resident).values()), X.nbytes / 1e6
    first = blocks.map(lambda part: np.sqrt(np.abs(part.X)) + part.X**2)
    assert sum(client.run(resident).values()) - before < 1.5 * size
    # A later stage lies behind the first in memory.
    second = blocks.map(lambda part: np.sqrt(np.abs(part.X)))
    del first
    gc.collect()
    client.run(gc.collect)
    assert sum(client.run(resident).values()) - before < 1.5 * size
    assert second.n_rows == len(X)


@pytest.mark.parametrize("errors", ["warn", "raise"])
def test_a_worker_computes_an_extreme_row_without_a_warning(errors):
    with np.errstate(all=errors):
        assert workers._safely(lambda: np.exp(np.array([1e4]))) == np.inf


def test_labels_of_dask_are_read_one_by_one(client):
    labels = np.array([2**53 + 1, 0.0, True, 1, np.float32(1)] * 4, dtype=object)
    classes = np.array([0, 1, 2**53 + 1])
    blocks = OnCluster(da.from_array(np.zeros((20, 2)), chunks=(3, 2)), da.from_array(labels, chunks=2)).blocks(
        lambda X, y: (np.asarray(X), label_codes(y, classes, "y"))
    )
    (codes,) = blocks.results(lambda part: part.y)
    assert codes.tolist() == [2, 0, 1, 1, 1] * 4


def test_other_bad_input(client, rows):
    X, y, _ = data_of("regressor", rows)
    with pytest.raises(ValueError, match="same number of rows"):
        PrivateLinearRegression().fit(arrays(X, y)[0], arrays(X, y[:-1])[1])
    with pytest.raises(ValueError, match="y must be an array or a series of Dask"):
        PrivateLinearRegression().fit(arrays(X, y)[0], y)
    with pytest.raises(ValueError, match="persons can't be given"):
        PrivateLinearRegression().fit(*arrays(X, y), persons=np.arange(len(X)))


@pytest.fixture
def packed(monkeypatch):
    """Return what is packed for workers."""
    packed, dumps = [], cloudpickle.dumps

    def spy(function, *options, **named):
        packed.append(dumps(function, *options, **named))
        return packed[-1]

    monkeypatch.setattr(cloudpickle, "dumps", spy)
    return packed


def test_functions_that_go_to_workers_hold_neither_ledger_nor_noise(client, rows, packed):
    """None of them refers to a ledger, a run or a generator of noise."""
    X, y, public = data_of("regressor", rows)
    MAKERS["regressor"](intervals=True).fit(*arrays(X, y), public=public, ledger=Ledger(9.0, 1e-5))
    assert len(packed) > 50
    for one in packed:
        assert b"dpadapt.accounting" not in one or b"receipt" in one
        assert b"dpadapt.mechanisms.randomness" not in one


def test_the_seed_of_the_noise_stays_with_the_coordinator(client, rows, packed):
    for kind, make in MAKERS.items():
        X, y, public = data_of(kind, rows)
        model = make(intervals=True).set_params(random_state=1_234_567_891)
        model.fit(*arrays(X, y), public=public)
        model.predict(arrays(X, y)[0]).sum().compute()
    seed = pickle.dumps(1_234_567_891, protocol=5)[-5:-1]
    assert len(packed) > 50
    assert not any(seed in one for one in packed)


def test_a_row_keeps_its_label_where_the_order_of_rows_is_drawn_at_random(client):
    table = pd.DataFrame({"x": np.arange(6000.0), "y": np.arange(6000.0)})
    shuffled = dd.from_pandas(table, npartitions=3).map_partitions(lambda part: part.sample(frac=1))
    blocks = OnCluster(shuffled[["x"]], shuffled["y"]).blocks(plain)
    assert all(blocks.results(lambda part: bool((part.X[:, 0] == part.y).all())))


def test_rows_that_come_back_different_from_a_lost_worker_are_refused():
    table = pd.DataFrame({"x": np.arange(40_000.0), "y": np.arange(40_000.0)})
    with started(2) as cluster, Client(cluster):
        shuffled = dd.from_pandas(table, npartitions=2).map_partitions(lambda part: part.sample(frac=1))
        blocks = OnCluster(shuffled[["x"]], shuffled["y"]).blocks(plain)
        kept = blocks.map(lambda part: part.X)
        assert sum(kept.results(len)) == 40_000
        os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)
        with pytest.raises(RuntimeError, match="came back different from before"):
            list(kept.results(len))


def plain(X, y):
    return np.asarray(X, dtype=float), np.asarray(y, dtype=float)
