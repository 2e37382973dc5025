"""`TableModel`: a private estimator for data frames and files, encoded by a schema. `dpadapt fit` uses it too."""

import filecmp
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dpadapt.accounting.ledger import Ledger
from dpadapt.data import Public
from dpadapt.errors import NoLedgerWarning, PrivacyError
from dpadapt.inputs.gate import declared_public
from dpadapt.inputs.persons import ids_assumption, mean_factor, person_shares
from dpadapt.inputs.sources import DEFAULT_MEMORY, Source
from dpadapt.learning.base import PrivateEstimator
from dpadapt.learning.fit_summary import FitSummary
from dpadapt.rows import Shares, row_shares
from dpadapt.tables.cells import parse_numbers
from dpadapt.tables.encoding import (
    category_columns,
    check_columns,
    encode_features,
    encode_labels,
    feature_names,
    has_unknown_columns,
)
from dpadapt.tables.reading import MOST_PUBLIC_ROWS, Table, TableChunks, as_table, in_files, sampled_table, table_chunks
from dpadapt.tables.schema import Encoded, Number, Schema, mixed_classes

_ASSUMED_OF_SCHEMA = "the schema: column names, ranges, categories, what stands for missing cells"
_ASSUMED_OF_ALL_LABELS = "that every private row has a label of the kind that the schema states"


@dataclass(frozen=True, eq=False, repr=False)
class EncodedRows:
    """A table, as read and encoded. Of a private table it holds private rows and is no release.

    Parameters
    ----------
    table : Table
        The rows that are used: public rows without a label are left out.
    X : ndarray
        Encoded features.
    y : ndarray or None
        Encoded labels, if the table has any. A private row without a label has any label here, and counts nothing.
    shares : Shares or None
        How much each private row counts: 0 without a label, or without an id where persons are protected.
    tasks, unseen : ndarray or None
        As in `Public`.
    unknown : bool
        Whether the table has columns that the schema does not know.
    weights : ndarray or None
        Sample weights of private rows; NaN where there is none.
    stream : Source or None
        Private rows that were read in chunks. `X` has no rows then, and `table` the columns alone.
    sampled : int
        Number of rows of a public table of which these are a random sample; 0 if these are all of them.
    """

    table: Table
    X: NDArray[np.float64]
    y: NDArray[Any] | None
    shares: Shares | None = None
    tasks: Any = None
    unseen: Any = None
    unknown: bool = False
    weights: NDArray[np.float64] | None = None
    stream: Source | None = None
    sampled: int = 0

    def __repr__(self) -> str:
        return f"EncodedRows({self.table.origin})"

    @property
    def declared(self) -> Public:
        """The rows, declared public for estimators. Private rows are refused."""
        if self.table.private:
            raise PrivacyError(f"{self.table.origin}: these rows are private and can't be declared public.")
        return Public(self.X, self.y, tasks=self.tasks, unseen=self.unseen)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.X) if self.stream is None else self.stream.read()

    @property
    def words(self) -> str:
        """Number of public rows, and whether they have labels, in words."""
        return f"{len(self.declared.X):,} rows {'without labels' if self.y is None else 'with labels'}"

    @property
    def notes(self) -> list[str]:
        """What a person should know about the columns: public facts, without names of unknown columns."""
        notes = [f"{self.table.origin}: columns that the schema does not know are not used."] if self.unknown else []
        if self.sampled:
            used = f"a random sample of {MOST_PUBLIC_ROWS:,} of its {self.sampled:,} rows"
            notes.append(f"{self.table.origin}: {used} stands for the public table.")
        return notes


def _has(name: str) -> Callable[["TableModel"], bool]:
    """Return a check that the estimator has the method `name`; scikit-learn then shows the method or hides it."""
    return lambda self: hasattr(vars(self).get("model_", self.estimator), name)


class TableModel(PrivateEstimator):
    """A private estimator that is fitted on tables as they come, and predicts for tables.

    Rows are encoded by the schema, from which also the range of the label or its classes are taken. Public, private and
    new rows are encoded alike, whatever the order of their columns; columns that the schema does not know are not used.
    Missing cells, unknown categories and values out of range are encoded without a message, because a message would
    reveal something about private rows. Rows without a label are left out: public ones before the fit, private ones by
    counting nothing, so that their number stays unknown.

    **Privacy.** The encoding of a private row depends on that row and on the schema alone, so that the estimator's
    guarantee for one encoded row is one for one row of the table; with `person`, for all rows of one person. The
    receipt is the estimator's; it states in addition that the schema is assumed public. The names of the private
    table's columns are assumed public. A private row whose label is missing or can't be read counts nothing, without a
    message.

    Parameters
    ----------
    estimator : private estimator
        Such as `PrivateTransferRegressor` or `PrivateTransferClassifier`. What the schema says about the label
        (`target_bounds`, `classes`) is set where the estimator leaves it open.
    schema : Schema
        What is known about the columns; see `Schema.infer`.
    label : str, optional
        The column to predict. None: for clusterings, which have no label.
    person : str, optional
        The column with the id of each row's person: all rows of one person together are then protected. The schema must
        ignore it. Default: single rows are protected.
    weight : str, optional
        The column with the sample weight of each private row; a cell that is missing, negative or no number counts as
        0. The estimator needs `max_weight`, and the schema must ignore the column (`Schema.ignoring`). Default: all
        rows count alike, as public rows always do.
    encoding : str, optional
        Of text files, such as "latin-1". Default: found out.

    Attributes
    ----------
    model_ : estimator
        The estimator, fitted on encoded rows. Its fitted attributes, such as ``coef_``, are attributes of the table
        model too.
    privacy_ : Receipt
        What the fit released and what it cost.
    notes_ : list of str
        What a person should know about the columns.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from dpadapt import Ledger, PrivateTransferRegressor, Public
    >>> from dpadapt.tables import Schema
    >>> rng = np.random.default_rng(0)
    >>> def visits(n):
    ...     age = rng.integers(18, 90, n).astype(float)
    ...     table = pd.DataFrame({"age": age, "plan": rng.choice(["free", "paid"], n), "cost": 20 * age})
    ...     return table.mask(rng.random((n, 3)) < [0.1, 0.1, 0.0])  # some cells are missing
    >>> public, private, new = visits(300), visits(500), visits(5)
    >>> schema = Schema.infer(public, dataset="visits")
    >>> model = TableModel(PrivateTransferRegressor(epsilon=1.0), schema, label="cost")
    >>> ledger = Ledger(epsilon=3.0, delta=1e-6)
    >>> model.fit(private, public=Public(public), ledger=ledger).predict(new).shape
    (5,)
    >>> bool(model.privacy_.epsilon <= 1.0)
    True
    """

    def __init__(
        self,
        estimator: Any,
        schema: Schema,
        *,
        label: str | None = None,
        person: str | None = None,
        weight: str | None = None,
        encoding: str | None = None,
    ) -> None:
        self.estimator = estimator
        self.schema = schema
        self.label = label
        self.person = person
        self.weight = weight
        self.encoding = encoding

    def __getattr__(self, name: str) -> Any:
        """Return a fitted attribute of the estimator."""
        if name.endswith("_") and not name.startswith("_") and "model_" in vars(self):
            return getattr(vars(self)["model_"], name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __sklearn_tags__(self) -> Any:
        """Declare to scikit-learn what the estimator is, and that cells may be texts or missing."""
        tags = self.estimator.__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        tags.input_tags.allow_nan = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return "model_" in vars(self)

    @property
    def task(self) -> Literal["regression", "classification", "clustering"]:
        """What the estimator does."""
        if is_regressor(self.estimator):
            return "regression"
        return "classification" if is_classifier(self.estimator) else "clustering"

    def configured(self) -> Any:
        """Return a new, unfitted estimator with what the schema says about the label; no row is read."""
        if not isinstance(self.schema, Schema):
            raise TypeError(f"schema must be a dpadapt.Schema, got {type(self.schema).__name__}. See Schema.infer.")
        if not hasattr(self.estimator, "fit"):
            raise TypeError(f"estimator must be a private estimator, got {type(self.estimator).__name__}.")
        task = self.task
        if self.person is not None and not self._counts_rows:
            raise ValueError(f"person: {type(self.estimator).__name__} protects rows, not persons. Leave it out.")
        if self.person in [column.name for column in self.schema.features(self.label)]:
            raise ValueError(
                f'person: set type = "ignore" for the column {self.person!r} in the schema: it is no feature.'
            )
        if self.weight is not None:
            self._check_weight()
        wanted: dict[str, Any] = {}
        if task != "clustering" and self.label is None:
            raise ValueError("label must name the column to predict.")
        if self.label is not None and task == "regression":
            wanted["target_bounds"] = self.schema.bounds(self.label)
        elif self.label is not None:
            wanted["classes"] = list(self.schema.classes(self.label))
            if mixed := mixed_classes(wanted["classes"]):
                raise ValueError(f"the label {self.label!r} {mixed}")
            wanted["groups"] = category_columns(self.schema, self.label)
        model = clone(self.estimator)
        known = model.get_params(deep=False)
        return model.set_params(**{k: v for k, v in wanted.items() if k in known and known[k] is None})

    def _check_weight(self) -> None:
        if "sample_weight" not in signature(self.estimator.fit).parameters:
            raise ValueError(f"weight: {type(self.estimator).__name__} takes no sample weights. Leave it out.")
        if any(column.name == self.weight for column in self.schema.features(None)):
            raise ValueError(
                f"weight: the column {self.weight!r} is a feature or the label. Give schema.ignoring({self.weight!r}), "
                f'or set type = "ignore" for it in the schema.'
            )
        mean_factor(self.estimator.max_weight, self.estimator.mean_weight)

    @property
    def _counts_rows(self) -> bool:
        """Whether the estimator can be told how much each row counts."""
        return "persons" in signature(self.estimator.fit).parameters

    def _check_combination(self, public: Any) -> None:
        """Refuse parameters of the estimator that can't be, before a table is read."""
        if isinstance(self.estimator, PrivateEstimator):
            self.estimator._check_each_parameter()

    def _taken_for_granted(self, given: Mapping[str, Any]) -> list[tuple[type[Warning], str]]:
        """Return the warning of the estimator about a missing ledger; bounds are those of the schema."""
        asked = {"ledger": given.get("ledger"), "persons": self.person}
        if not isinstance(self.estimator, PrivateEstimator):
            return []
        granted = self.estimator._taken_for_granted(asked)
        return [(category, text) for category, text in granted if category is NoLedgerWarning]

    def fit(self, X: Any, y: Any = None, *, public: Public | None = None, ledger: Ledger | None = None) -> "TableModel":
        """Fit the estimator on private rows, helped by public ones.

        Parameters
        ----------
        X : DataFrame of pandas or polars, pyarrow Table or Dataset, or path of a file or of a folder
            Private rows. Files, folders and datasets are read in chunks, where the estimator can do with that: they
            may be larger than memory.
        y : array-like, optional
            Private labels. Default: the column `label` of `X`.
        public : Public, optional
            A public table, as a data frame or a path, with or without the label. It is not protected.
        {ledger}
        """
        self.configured()
        known = None
        if public is not None:
            if same_table(declared_public(public).X, X):
                raise PrivacyError("public holds the private X itself, which would not be protected. Give other rows.")
            known = self.encode_public(public)
        return self.fit_encoded(self.encode_private(X, y), public=known, ledger=ledger)

    def encode_private(self, X: Any, y: Any = None, *, empty: bool = False) -> EncodedRows:
        """Return private rows to fit on, encoded; `empty` accepts a table without rows."""
        if y is None and self.reads_chunks and in_files(X):
            origin = f"X {X}" if isinstance(X, str | Path) else "X"
            return self.encode_chunks(table_chunks(X, origin=origin, private=True, empty=empty, encoding=self.encoding))
        if isinstance(X, str | Path) and Path(X).is_dir():
            raise ValueError(
                f"X {X}: a folder is read in chunks, which can't be done with {type(self.estimator).__name__}, with "
                f"persons or with weights. Give one file or a data frame."
            )
        return self._encoded(_with_labels(self._table(X, empty=empty), self.label, y), needs_label=True)

    def _table(self, X: Any, *, empty: bool = False) -> Table:
        return as_table(X, origin="X", private=True, empty=empty, encoding=self.encoding)

    @property
    def reads_chunks(self) -> bool:
        """Whether private rows can be read in chunks: where each release is a sum over rows that are alike."""
        streams = isinstance(self.estimator, PrivateEstimator) and self.estimator._streams
        # A row without a label counts nothing, which only some estimators can be told.
        plain = self.label is not None and self.person is None and self.weight is None
        return streams and self._counts_rows and plain

    def encode_chunks(
        self,
        chunks: TableChunks,
        *,
        memory: int | str = DEFAULT_MEMORY,
        done: Callable[[int], None] = lambda n_rows: None,
    ) -> EncodedRows:
        """Read and encode private rows in chunks; `memory` is what they may take there, the rest goes to a file.

        `done` is called with the number of rows of each chunk.
        """
        schema, label = self.schema, self.label
        check_columns(chunks.header, schema, label=label)

        def encoded() -> Iterator[tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]]:
            for chunk in chunks:
                y, labelled = self._private_labels(chunk)
                yield encode_features(chunk, schema, label=label), y, labelled
                done(len(labelled))

        stream = Source(encoded, memory)
        stream.read()
        unknown, nothing = has_unknown_columns(chunks.header, schema), np.zeros((0, 0))
        return EncodedRows(chunks.header, nothing, None, unknown=unknown, stream=stream)

    def encode_for_evaluation(
        self, X: Any, y: Any = None, *, person: str | None = None
    ) -> tuple[NDArray[np.float64], NDArray[Any], NDArray[np.bool_], Shares | None]:
        """Return private features and labels to evaluate on, which rows have a label, and the shares of persons' rows.

        There may be no row. Unlike in a fit, rows may lack a label whatever the estimator is, and `person` may name a
        column of ids though the model was fitted without one.
        """
        table = as_table(X, origin="X", private=True, empty=True, encoding=self.encoding)
        table = _with_labels(table, self.label, y)
        check_columns(table, self.schema, label=self.label)
        labels, labelled = self._private_labels(table)
        shares = None if person is None else self._person_shares(table, person)
        return encode_features(table, self.schema, label=self.label), labels, labelled, shares

    def encode_public(self, public: Any) -> EncodedRows:
        """Return public rows, encoded; rows without a label are left out, unless there is no label at all."""
        data = public.X if isinstance(public, Public) else public
        sampled = 0
        if isinstance(data, Table):
            table = data
        elif in_files(data):
            origin = f"public {data}" if isinstance(data, str | Path) else "public"
            table, n_rows = sampled_table(table_chunks(data, origin=origin, private=False, encoding=self.encoding))
            sampled = n_rows if n_rows > len(table.frame) else 0
        else:
            table = as_table(public, origin="public", private=False, encoding=self.encoding)
        beside: dict[str, Any] = {"sampled": sampled}
        if isinstance(public, Public):
            table = _with_labels(table, self.label, public.y)
            beside |= {name: getattr(public, name) for name in ("tasks", "unseen")}
        return self._encoded(table, needs_label=False, **beside)

    def _encoded(
        self, table: Table, *, needs_label: bool, tasks: Any = None, unseen: Any = None, sampled: int = 0
    ) -> EncodedRows:
        schema, label = self.schema, self.label
        check_columns(table, schema, label=label, optional=None if needs_label else label)
        unknown = has_unknown_columns(table, schema)
        if label is None or label not in table.frame.columns:
            rows = encode_features(table, schema, label=label)
            shares = self._person_shares(table, self.person) if table.private and self.person is not None else None
            return EncodedRows(table, rows, None, shares, tasks, unseen, unknown, sampled=sampled)
        if table.private:
            y, labelled = self._private_labels(table)
            weights = None if self.weight is None else self._weights(table, self.weight)
            rows, shares = encode_features(table, schema, label=label), self._shares(table, labelled)
            return EncodedRows(table, rows, y, shares, unknown=unknown, weights=weights)
        y, labelled = encode_labels(table, schema, label=label, task=self.task)
        if not labelled.all():
            table = replace(table, frame=table.frame[labelled].reset_index(drop=True))
            tasks = None if tasks is None else np.asarray(tasks)[labelled]
            unseen = unseen if unseen is None or np.ndim(unseen) == 0 else np.asarray(unseen)[labelled]
        rows = encode_features(table, schema, label=label)
        return EncodedRows(table, rows, y, None, tasks, unseen, unknown, sampled=sampled)

    def _private_labels(self, table: Table) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return one label for each row, and which rows have one of their own; the others count nothing."""
        label = self.label or ""
        y, labelled = encode_labels(table, self.schema, label=label, task=self.task)
        of_schema = self.schema.bounds(label) if self.task == "regression" else self.schema.classes(label)
        whole = np.full(len(labelled), np.asarray(of_schema)[0])
        whole = whole.astype(np.result_type(whole, y), copy=False)
        whole[labelled] = y
        return whole, labelled

    def _weights(self, table: Table, weight: str) -> NDArray[np.float64]:
        """Return the sample weight of each private row; NaN where a cell holds no number."""
        if weight not in table.frame.columns:
            raise ValueError(
                f"{table.origin}: there is no column {weight!r}, which weight (--weight) names. Correct it."
            )
        # The schema says nothing about the cells of a column that it ignores; one table has one decimal mark.
        marks = [column.decimal for column in self.schema.columns if isinstance(column, Number)]
        return parse_numbers(table.frame[weight], "," if "," in marks else ".")

    def _shares(self, table: Table, labelled: NDArray[np.bool_]) -> Shares | None:
        """Return how much each private row counts, alike whether all rows have labels or not."""
        if not self._counts_rows:
            if not labelled.all():
                raise ValueError(
                    f"{table.origin}: the label {self.label!r} is missing in some row, or not of the kind that the "
                    f"schema states, and {type(self.estimator).__name__} can't leave a row out unnoticed. Remove such "
                    f"rows, or use a transfer estimator."
                )
            return None
        if self.person is None:
            return row_shares(labelled)
        # A person without any label still counts as a person: the number of persons must not tell who has labels.
        return self._person_shares(table, self.person).where(labelled)

    def _person_shares(self, table: Table, person: str) -> Shares:
        if person not in table.frame.columns:
            raise ValueError(
                f"{table.origin}: there is no column {person!r}, which person (--person) names. Correct it."
            )
        ids = table.frame[person]
        return person_shares(ids, len(ids))

    def fit_encoded(
        self,
        private: EncodedRows,
        *,
        public: EncodedRows | None = None,
        agents: Any = None,
        ledger: Ledger | None = None,
    ) -> "TableModel":
        """Fit the estimator on rows that `encode_private` and `encode_public` have read and encoded; `fit` ends here.

        `agents` are people who answer for themselves, for the estimators that ask them instead of public rows.
        """
        model = self.configured()
        beside: dict[str, Any] = {} if public is None else {"public": public.declared}
        if agents is not None:
            beside["agents"] = agents
        if private.shares is not None:
            beside["persons"] = private.shares
        if private.weights is not None:
            beside["sample_weight"] = private.weights
        rows: tuple[Any, ...] = (private.X,) if self.label is None else (private.X, private.y)
        if private.stream is not None:
            rows = (private.stream,)
        if isinstance(ledger, Ledger) and self.label is not None:
            # No cap of its own: it only says in the ledger what is predicted.
            ledger = ledger.child(math.inf, ledger.delta, label=f"predict {self.label}")
        model.fit(*rows, **beside, ledger=ledger)
        # Facts that are assumed public belong on the receipt; the estimator does not know these.
        model.privacy_ = replace(model.privacy_, assumptions=(*model.privacy_.assumptions, *self._assumed()))
        self.notes_ = [*(public.notes if public is not None else []), *private.notes]
        self.model_ = model
        return self

    def _assumed(self) -> list[str]:
        encoders = [
            f"the encoder of {column.name} ({column.encoder}): it was made without the private rows"
            for column in self.schema.features(self.label)
            if isinstance(column, Encoded)
        ]
        labels = [] if self.label is None or self._counts_rows else [_ASSUMED_OF_ALL_LABELS]
        ids = [] if self.person is None else [ids_assumption(self.person)]
        return [_ASSUMED_OF_SCHEMA, *labels, *encoders, *ids]

    def encode(self, X: Any) -> NDArray[np.float64]:
        """Return rows to predict, encoded as numbers; their label may be missing.

        Rows to predict are treated as private: no message shows a value.
        """
        table = as_table(X, origin="X", private=True, encoding=self.encoding)
        check_columns(table, self.schema, label=self.label, optional=self.label)
        return encode_features(table, self.schema, label=self.label)

    def summary(self) -> FitSummary:
        """Return what the fit of the estimator released, adopted, estimated and assumed."""
        check_is_fitted(self)
        summary: FitSummary = self.model_.summary()
        return summary

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return the names of the encoded features, such as "plan = free"."""
        return np.array(feature_names(self.schema, self.label), dtype=object)

    @available_if(_has("predict"))  # type: ignore[untyped-decorator]
    def predict(self, X: Any) -> NDArray[Any]:
        """Return the prediction for each row of a table."""
        check_is_fitted(self)
        return np.asarray(self.model_.predict(self.encode(X)))

    @available_if(_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class, in the order of ``classes_``, for each row of a table."""
        check_is_fitted(self)
        return np.asarray(self.model_.predict_proba(self.encode(X)))

    @available_if(_has("predict_interval"))  # type: ignore[untyped-decorator]
    def predict_interval(self, X: Any, *, coverage: float = 0.9) -> NDArray[np.float64]:
        """Return the lower and the upper end of an interval for each row of a table, if fitted with `intervals`."""
        check_is_fitted(self)
        return np.asarray(self.model_.predict_interval(self.encode(X), coverage=coverage))

    @available_if(_has("predict_set"))  # type: ignore[untyped-decorator]
    def predict_set(self, X: Any, *, coverage: float = 0.9) -> NDArray[np.bool_]:
        """Return which classes belong to the set of each row of a table, if fitted with `intervals`."""
        check_is_fitted(self)
        return np.asarray(self.model_.predict_set(self.encode(X), coverage=coverage))

    @available_if(_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the score of the second class (two classes) or of each class, for each row of a table."""
        check_is_fitted(self)
        return np.asarray(self.model_.decision_function(self.encode(X)))

    @available_if(_has("score"))  # type: ignore[untyped-decorator]
    def score(self, X: Any, y: Any = None) -> float:
        """Return R² or the share of correct classes; `y` defaults to the column `label` of `X`.

        A score of private rows is exact: it is no release, and nobody may see it. `dpadapt.evaluate` releases one.
        """
        check_is_fitted(self)
        rows = self._encoded(_with_labels(self._table(X), self.label, y), needs_label=True)
        counted = np.ones(len(rows.X), dtype=bool) if rows.shares is None else rows.shares.values > 0
        return float(self.model_.score(rows.X[counted], None if rows.y is None else rows.y[counted]))


def _with_labels(table: Table, label: str | None, y: Any) -> Table:
    """Return the table with labels that were given apart from it."""
    if y is None or label is None:
        return table
    import pandas as pd

    typed = hasattr(y, "dtype") or hasattr(y, "dtypes")
    # A list label by label: NumPy would make a table of it if all its labels were lists.
    labels = np.asarray(y, dtype=object).ravel() if typed else np.fromiter(y, dtype=object)
    if len(labels) != len(table.frame):
        raise ValueError("y must have one label for each row of X.")
    return replace(table, frame=table.frame.assign(**{label: pd.Series(labels, dtype=object)}))


def same_table(public: Any, private: Any) -> bool:
    """Return whether two tables are one object, or files with the same contents, or folders with one such file."""
    if public is private:
        return True
    if not isinstance(public, str | Path) or not isinstance(private, str | Path):
        return False
    try:
        firsts, seconds = (_files_of(Path(path)) for path in (public, private))
        return any(filecmp.cmp(one, other, shallow=False) for one in firsts for other in seconds)
    except OSError:  # a file that can't be read is refused later, by name
        return False


def _files_of(path: Path) -> list[Path]:
    inside = list(path.iterdir()) if path.is_dir() else [path]
    return [file for file in inside if file.is_file()]
