"""Rows in chunks: the model of the same rows in memory, bit for bit; what can't be read is refused, at no cost."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone

from dpadapt import (
    Ledger,
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateProbe,
    PrivateSubspaceRegressor,
    Public,
    Source,
)
from dpadapt.inputs.sources import Part, _in_blocks, memory_in_bytes
from dpadapt.learning.base import PrivateEstimator
from dpadapt.papers.adaptation import CnvxAdap
from dpadapt.papers.mirror import (
    PDADPMDClassifier,
    PDADPMDRegressor,
)
from dpadapt.papers.subspace import DPAMBSSGD, DescentProbe
from tests.inputs.streamed import MAKERS, N_COLUMNS, assert_same, data_of


def in_chunks(X, y, size, **options):
    return Source(lambda: ((X[k : k + size], y[k : k + size]) for k in range(0, len(X), size)), **options)


def frame(X, y):
    return pd.DataFrame({**{f"x{j}": X[:, j] for j in range(X.shape[1])}, "y": y})


@pytest.mark.parametrize("size", [999, 16_384, 20_000])
@pytest.mark.parametrize("kind", ["regressor", "classifier"])
def test_chunks_give_the_model_of_the_same_rows_in_memory(rows, kind, size):
    X, y, public = data_of(kind, rows)
    model = MAKERS[kind](intervals=True)
    whole = clone(model).fit(X, y, public=public)
    assert whole.adopted_ > 0
    assert_same(whole, model.fit(in_chunks(X, y, size, memory="64MB"), public=public))
    assert np.array_equal(whole.calibration_.above, model.calibration_.above)


SUMMING = [
    (MAKERS["regressor"](prior="same-population"), "regressor", "labelled"),
    (MAKERS["classifier"](classes=[0, 1]), "classifier", "unlabelled"),
    (PrivateLinearRegression(target_bounds=(-3, 3)), "regressor", "none"),
    (PrivateLinearRegression(solver="descent"), "regressor", "labelled"),
    (PrivateLogisticRegression(classes=[0, 1]), "classifier", "none"),
    (PrivateProbe(classes=[0, 1]), "classifier", "unlabelled"),
    (PrivateProbe(), "classifier", "labelled"),
    (PrivateSubspaceRegressor(), "regressor", "tasks"),
    (PrivateSubspaceRegressor(basis=np.eye(N_COLUMNS)[:, :2]), "regressor", "none"),
    (PDADPMDRegressor(n_steps=5), "regressor", "labelled"),
    (PDADPMDClassifier(n_steps=5, step="first-order"), "classifier", "labelled"),
    (DescentProbe(n_steps=5, rows="whitened", batch_size=900), "classifier", "labelled"),
    (DPAMBSSGD(batch_size=9000), "regressor", "none"),
]


@pytest.mark.parametrize(("model", "kind", "given"), SUMMING)
def test_no_estimator_uses_rows_that_are_not_present(rows, model, kind, given):
    X, y, public = data_of(kind, rows)
    tasks = Public(public.X, public.y, tasks=np.arange(len(public.y)) % 5)
    public = {"none": None, "labelled": public, "unlabelled": Public(public.X), "tasks": tasks}[given]
    X, y, present = X[:3000], y[:3000], np.arange(3000) % 2 > 0
    # The rows that are not present say something else in each of the two fits.
    others = [np.where(present[:, None], X, -X[::-1]), np.where(present, y, y[::-1])]
    fitted = [
        clone(model).set_params(random_state=0).fit(Source(lambda a=a, b=b: [(a, b, present)]), public=public)
        for a, b in ((X, y), others)
    ]
    assert np.array_equal(fitted[0].coef_, fitted[1].coef_)


def test_no_estimator_that_reads_chunks_is_left_out_here():
    classes, reading = [PrivateEstimator], set()
    while classes:
        classes += (own := classes.pop()).__subclasses__()
        if own._streams and "fit" in vars(own) | vars(own.__mro__[1]) and own.__module__.startswith("dpadapt."):
            reading.add(own)
    assert {one for one in reading if "__init__" in vars(one)} == {type(model) for model, _, _ in SUMMING}


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_files_give_the_model_of_the_same_rows_in_memory(rows, tmp_path, ending):
    X, y, public = data_of("regressor", rows)
    whole = MAKERS["regressor"]().fit(X, y, public=public)
    table, folder = frame(X, y), tmp_path / "rows"
    folder.mkdir()
    for k, (start, end) in enumerate([(0, 7), (7, 20_000), (20_000, len(X))]):
        part = table.iloc[start:end]
        if ending == "csv":
            part.to_csv(folder / f"{k}.csv", index=False)
        else:
            part.to_parquet(folder / f"{k}.parquet", row_group_size=5000, index=False)
    (folder / "_SUCCESS").touch()
    assert_same(whole, MAKERS["regressor"]().fit(Source.from_files(folder, label="y"), public=public))
    if ending == "parquet":
        dataset = pyarrow.dataset.dataset(str(folder), exclude_invalid_files=True)
        assert_same(whole, MAKERS["regressor"]().fit(Source.from_files(dataset, label="y"), public=public))


def test_rows_that_are_not_present_count_as_null_rows(rows):
    X, y, public = data_of("regressor", rows)
    present = np.random.default_rng(0).random(len(X)) < 0.5
    nothing = np.where(present[:, None], X, 1e6)
    chunks = [(nothing[:20_000], y[:20_000], present[:20_000]), (nothing[20_000:], y[20_000:], present[20_000:])]
    model = MAKERS["regressor"]().fit(Source(lambda: chunks), public=public)
    null = MAKERS["regressor"]().fit(np.where(present[:, None], X, 1e200), y, public=public)
    assert model.coef_ == pytest.approx(null.coef_, rel=1e-6)


@pytest.mark.parametrize("marks", [[np.ones(4)], [np.ones(5), None], [None, np.ones(5)], [np.ones((5, 1))]])
def test_marks_of_present_rows_that_do_not_fit_are_refused(marks):
    chunks = [(np.zeros((5, 2)), np.zeros(5), *([] if mark is None else [mark])) for mark in marks]
    assert "which rows are present" in refused(Source(lambda: chunks))


def test_chunks_are_put_together_to_blocks():
    sizes = [1, 16_384, 40_000, 3]
    X = np.arange(sum(sizes), dtype=float)[:, None]
    ends = np.cumsum(sizes)
    parts = list(
        _in_blocks(Part(X[end - size : end], X[end - size : end, 0]) for size, end in zip(sizes, ends, strict=True))
    )
    assert [len(part.X) for part in parts] == [16_384, 16_384, 16_384, 56_388 - 3 * 16_384]
    assert np.array_equal(np.concatenate([part.X for part in parts]), X)


# Bad input


def refused(source, model=None, *, kind=ValueError, **fit):
    """Return the message of a refusal that spends nothing."""
    ledger = Ledger(5.0, 1e-5)
    with pytest.raises(kind) as caught:
        (model or PrivateLinearRegression()).fit(source, ledger=ledger, **fit)
    assert ledger.spent() == 0
    return str(caught.value)


def test_estimators_that_need_all_rows_say_so():
    source = Source(lambda: [(np.zeros((5, 2)), np.zeros(5))])
    assert "can't read private rows in chunks" in refused(source, CnvxAdap(), kind=TypeError)


def test_labels_persons_and_weights_beside_a_source_are_refused():
    source = Source(lambda: [(np.zeros((5, 2)), np.zeros(5))])
    assert "y must be left out" in refused(source, y=np.zeros(5))
    assert "persons can't be given" in refused(source, persons=np.arange(5))
    assert "sample_weight can't be given" in refused(
        source, PrivateLinearRegression(max_weight=2), sample_weight=[1] * 5
    )
    assert "classes must be declared" in refused(source, PrivateLogisticRegression())


def test_chunks_of_another_width_or_with_missing_cells_are_refused_without_a_value():
    wide = Source(lambda: [(np.zeros((5, 2)), np.zeros(5)), (np.full((5, 3), 17.5), np.zeros(5))])
    assert "17.5" not in refused(wide)
    missing = Source(lambda: [(np.zeros((5, 2)), np.zeros(5)), (np.full((5, 2), np.nan), np.full(5, 17.5))])
    text = refused(missing)
    assert "NaN" in text
    assert "17.5" not in text
    text = refused(Source(lambda: [(np.zeros((5, 2)), np.zeros(5)), (np.zeros((5, 2)), ["17.5x"] * 5)]))
    assert "17.5" not in text
    unknown = Source(lambda: [(np.zeros((5, 2)), ["a", "b", "a", "b", "secret"])])
    assert "secret" not in refused(unknown, PrivateLogisticRegression(classes=["a", "b"]))


def test_too_few_rows_and_other_public_columns_are_refused():
    for chunks in ([], [(np.zeros((0, 2)), np.zeros(0))], [(np.zeros((1, 2)), np.zeros(1))]):
        assert "at least two rows" in refused(Source(lambda chunks=chunks: chunks))
        # As in memory, whatever the adjacency is.
        unknown = PrivateLinearRegression(adjacency="add-remove", n_rows=100)
        with pytest.raises(ValueError, match="at least two rows"):
            unknown.fit(Source(lambda chunks=chunks: chunks))
    source = Source(lambda: [(np.zeros((5, 2)), np.zeros(5))])
    assert "2 columns, got 3" in refused(source, public=Public(np.random.default_rng(0).random((9, 3)), np.zeros(9)))


def test_files_with_other_columns_are_refused_by_name(tmp_path):
    pq.write_table(pa.table({"a": [1.0, 2.0], "y": [1.0, 2.0]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": [1, 2], "y": [1.0, 2.0]}), tmp_path / "2.parquet")
    text = refused(Source.from_files(tmp_path, label="y"))
    assert "2.parquet: column 'a' has another type than in the files before" in text
    (tmp_path / "2.parquet").unlink()
    assert "label must name a column" in refused(Source.from_files(tmp_path, label="cost"))
    assert "no such file" in refused(Source.from_files(tmp_path / "nothing.parquet", label="y"))
    pq.write_table(pa.table({"a": ["17.5", "b"], "y": [1.0, 2.0]}), tmp_path / "1.parquet")
    text = refused(Source.from_files(tmp_path, label="y"))
    assert "some columns hold no numbers" in text
    assert "17.5" not in text
    (tmp_path / "notes.txt").write_text("17.5")
    assert "CSV and Parquet files" in refused(Source.from_files(tmp_path, label="y"))


def test_names_of_columns_are_compared_and_kept(rows, tmp_path):
    X, y, public = data_of("regressor", rows)
    names = [f"x{j}" for j in range(N_COLUMNS)]
    frame(X, y).to_parquet(tmp_path / "rows.parquet")
    source = Source.from_files(tmp_path / "rows.parquet", label="y")
    swapped = Public(pd.DataFrame(public.X, columns=names[::-1]), public.y)
    assert "in the same order" in refused(source, MAKERS["regressor"](), public=swapped)
    model = MAKERS["regressor"]().fit(source, public=Public(pd.DataFrame(public.X, columns=names), public.y))
    assert list(model.feature_names_in_) == names


def test_names_of_columns_are_not_shown_because_a_file_may_lack_its_header(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("ZEBRA,17.25,y\n" + "a,2,3\n" * 9)
    assert "ZEBRA" not in refused(Source.from_files(path, label="y"))
    path.write_text("31,17.25,y\n" + "1,2,3\n" * 9)
    public = Public(pd.DataFrame(np.random.default_rng(0).random((9, 2)), columns=["a", "b"]), np.arange(9.0))
    text = refused(Source.from_files(path, label="y"), public=public)
    assert "in the same order" in text
    assert "17.25" not in text


def test_a_folder_in_the_folder_is_refused_and_not_read(tmp_path):
    (tmp_path / "old").mkdir()
    for folder in (tmp_path, tmp_path / "old"):
        (folder / "a.csv").write_text("a,y\n" + "1,2\n" * 10)
    assert "holds the folder 'old'" in refused(Source.from_files(tmp_path, label="y"))


def test_whole_and_decimal_numbers_in_text_files_are_one_type(tmp_path):
    (tmp_path / "1.csv").write_text("a,y\n" + "1,2\n" * 10)
    (tmp_path / "2.csv").write_text("a,y\n" + "1.5,2\n" * 10)
    model = PrivateLinearRegression().fit(Source.from_files(tmp_path, label="y"))
    assert model.n_features_in_ == 1


def test_a_file_that_vanishes_while_it_is_read_is_an_error_that_spends_nothing(tmp_path):
    for k in range(40):
        pq.write_table(pa.table({"a": np.arange(20_000.0), "y": np.arange(20_000.0)}), tmp_path / f"{k:02}.parquet")
    source = Source.from_files(tmp_path, label="y")

    def chunks():
        for k, chunk in enumerate(source.chunks()):
            if k == 0:
                # A few of the next files may be open already.
                (tmp_path / "39.parquet").unlink()
            yield chunk

    text = refused(Source(chunks))
    assert "39.parquet: the file was changed or removed" in text


@pytest.mark.parametrize("line_break", ["\n", "\r\n"])
def test_a_line_break_in_a_label_is_read_wherever_it_stands_in_a_file(tmp_path, line_break):
    """A parser reads some bytes at a time, and such a cell may stand at the border."""
    n_rows, row = 40_000, f'"1.5","two{line_break}lines"\r\n'
    (tmp_path / "a.csv").write_bytes(f"a,y\r\n{row * n_rows}".encode())
    chunks = [labels for _, labels in Source.from_files(tmp_path / "a.csv", label="y").chunks()]
    assert set(np.concatenate(chunks)) == {f"two{line_break}lines"}
    assert sum(map(len, chunks)) == n_rows


@pytest.mark.parametrize("n_rows", [10, 40_000])
def test_a_damaged_csv_is_refused_without_a_value(tmp_path, n_rows):
    (tmp_path / "a.csv").write_text("a,y\n" + "1,2\n" * n_rows + "17.5x,3\n")
    text = refused(Source.from_files(tmp_path / "a.csv", label="y"))
    assert "some columns hold no numbers" in text
    assert "17.5" not in text


@pytest.mark.parametrize(
    ("memory", "number"), [("2GB", 2**31), ("64 MiB", 2**26), (10**9, 10**9), ("0.5g", 2**29), ("1tb", 2**40)]
)
def test_amounts_of_memory(memory, number):
    assert memory_in_bytes(memory, "memory") == number


@pytest.mark.parametrize("memory", ["much", "-1GB", True, None, "1e9", 100, "10MB", float("nan")])
def test_amounts_of_memory_that_are_refused(memory):
    with pytest.raises(ValueError, match=r"^--memory must be"):
        memory_in_bytes(memory, "--memory")


def test_a_source_shows_no_rows_and_must_be_a_function():
    assert repr(Source(lambda: [(np.full((2, 2), 17.5), [17.5, 17.5])])) == "Source(private rows)"
    with pytest.raises(TypeError, match="must be a function"):
        Source([np.zeros((N_COLUMNS, 2))])
