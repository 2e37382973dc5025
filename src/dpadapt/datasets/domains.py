"""Data sets with their provenance (`Source`, `Dataset`), and their split into two populations (`Domain`, `Domains`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy.typing as npt
import pandas as pd

Arrays: TypeAlias = Mapping[str, npt.NDArray[Any]]
Data: TypeAlias = pd.DataFrame | Arrays | str
Status: TypeAlias = Literal["complete", "partial", "stand-in"]


@dataclass(frozen=True)
class Source:
    """One part of a data set: what it holds, who published it, and on what terms.

    Parameters
    ----------
    name, part : str
        The set, and which of its parts this is.
    what : str
        Shape and content in a few words.
    status : {"complete", "partial", "stand-in"}
        Whether this is the published set, a part of it, or another set in its place.
    note : str
        What a result computed from these data must say.
    origin, licence : str
        Who published the data, and on what terms, as far as known.

    Examples
    --------
    >>> from dpadapt.datasets import bundled
    >>> bundled.digits().source.status
    'complete'
    """

    name: str
    part: str
    what: str
    status: Status
    note: str
    origin: str
    licence: str


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A loaded data set, with its provenance.

    Parameters
    ----------
    data : DataFrame, mapping of str to ndarray, or str
        The content; `frame`, `arrays` and `text` return it with its type checked.
    source : Source
    status : {"complete", "partial", "stand-in"}
        Of the data actually loaded. It may differ from that of `source`: a download may be complete where the file of
        this collection is partial.
    note : str
        What a result computed from these data must say.
    path : Path or None
        The file that was read, if any.

    Examples
    --------
    >>> from dpadapt.datasets import bundled
    >>> data = bundled.digits()
    >>> data
    Dataset(digits, part 'images', complete)
    >>> data.arrays["X"].shape
    (1797, 64)
    """

    data: Data
    source: Source
    status: Status
    note: str
    path: Path | None = None

    @property
    def name(self) -> str:
        """Name of the set."""
        return self.source.name

    @property
    def frame(self) -> pd.DataFrame:
        """The table; `TypeError` if the set is not a table."""
        if not isinstance(self.data, pd.DataFrame):
            raise self._not("a table")
        return self.data

    @property
    def arrays(self) -> Arrays:
        """The named arrays; `TypeError` if the set is not made of arrays."""
        if not isinstance(self.data, Mapping):
            raise self._not("made of arrays")
        return self.data

    @property
    def text(self) -> str:
        """The text; `TypeError` if the set is not plain text."""
        if not isinstance(self.data, str):
            raise self._not("plain text")
        return self.data

    @property
    def provenance(self) -> str:
        """One line that a report can print: set, status, note, origin, licence."""
        source = self.source
        return (
            f"{source.name} ({source.part}), {self.status}: {self.note} "
            f"Origin: {source.origin}. Licence: {source.licence}."
        )

    def _not(self, wanted: str) -> TypeError:
        """Return the error for data of another kind, with the name of the property to use instead."""
        held = {pd.DataFrame: "frame", str: "text"}.get(type(self.data), "arrays")
        return TypeError(f"{self.name!r} (part {self.source.part!r}) is not {wanted}. Use its `.{held}`.")

    def __repr__(self) -> str:
        return f"Dataset({self.name}, part {self.source.part!r}, {self.status})"


class Domain(NamedTuple):
    """Features and labels of one population. Unpacks: `X, y = domains.target`.

    Parameters
    ----------
    X : DataFrame, ndarray or sparse array of shape (n_rows, n_features)
    y : Series or ndarray of shape (n_rows,)

    Examples
    --------
    >>> from dpadapt.datasets import bundled
    >>> X, y = bundled.fair_by_age().source
    >>> X.shape, y.shape
    ((2496, 8), (2496,))
    """

    X: Any
    y: Any


@dataclass(frozen=True, eq=False, repr=False)
class Domains:
    """A source and a target population of one data set.

    For adaptation the source is public and the target private: `Public(*domains.source)`. For clustering the source is
    private and the target public. Nothing is scaled or centred, and no test rows are held out.

    Parameters
    ----------
    source, target : Domain
        The two populations, with the same columns.
    feature_names : tuple of str
        One name per column.
    description : str
        How the rows were assigned to the two, in one line.
    provenance : str
        Set, status (complete, partial, stand-in), origin and licence. Results must state it.

    Examples
    --------
    >>> from dpadapt.data import Public
    >>> from dpadapt.datasets import bundled
    >>> domains = bundled.randhie_by_plan()
    >>> domains
    Domains(10997 source rows, 9193 target rows, 9 features: randhie: free care -> plans with cost sharing)
    >>> public = Public(*domains.source)
    """

    source: Domain
    target: Domain
    feature_names: tuple[str, ...]
    description: str
    provenance: str

    def __repr__(self) -> str:
        return (
            f"Domains({self.source.X.shape[0]} source rows, {self.target.X.shape[0]} target rows, "
            f"{len(self.feature_names)} features: {self.description})"
        )


def split_rows(
    dataset: Dataset,
    X: pd.DataFrame,
    *,
    y: "pd.Series[Any]",
    source: Any,
    target: Any,
    description: str,
    numbers: bool = True,
) -> Domains:
    """Split a table into two domains by two row masks. Features become float64 if they are `numbers`."""
    features = X.astype("float64") if numbers else X
    domains = []
    for role, mask in (("source", source), ("target", target)):
        if not mask.any():
            raise ValueError(
                f"The {role} has no rows in {dataset.name!r} ({dataset.status}). Choose another {role}, "
                "or get the complete set; see docs/papers/data.md."
            )
        domains.append(Domain(features[mask].reset_index(drop=True), y[mask].reset_index(drop=True)))
    return Domains(
        source=domains[0],
        target=domains[1],
        feature_names=tuple(str(column) for column in X.columns),
        description=f"{dataset.name}: {description}",
        provenance=dataset.provenance,
    )
