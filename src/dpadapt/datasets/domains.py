"""`Domains`: a source and a target population of one data set, and the helper that cuts a table into them."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

from dpadapt.datasets.provenance import Dataset


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
    """Two populations that differ: what transfer learning is about.

    For adaptation the source is public and the target private: `Public(*domains.source)` declares it so. For
    clustering the roles are the other way round. Nothing is scaled or centred, and no test rows are set aside.

    Parameters
    ----------
    source, target : Domain
        The two populations, with the same columns.
    feature_names : tuple of str
        One name per column.
    description : str
        How the two were told apart, in one line.
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
        """Say how the sets were told apart, without the data."""
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
    """Cut a table into two domains by two row masks. Features become float64 if they are `numbers`."""
    features = X.astype("float64") if numbers else X
    domains = []
    for role, mask in (("source", source), ("target", target)):
        if not mask.any():
            raise ValueError(
                f"The {role} has no rows in {dataset.name!r} ({dataset.status}). Choose another {role}, "
                "or get the complete set; see docs/datasets.md."
            )
        domains.append(Domain(features[mask].reset_index(drop=True), y[mask].reset_index(drop=True)))
    return Domains(
        source=domains[0],
        target=domains[1],
        feature_names=tuple(str(column) for column in X.columns),
        description=f"{dataset.name}: {description}",
        provenance=dataset.provenance,
    )


def pair(dataset: Dataset, *, source: Domain, target: Domain, description: str) -> Domains:
    """Two domains that are arrays already; the columns get the names x0, x1, ..."""
    return Domains(
        source=source,
        target=target,
        feature_names=tuple(f"x{column}" for column in range(source.X.shape[1])),
        description=f"{dataset.name}: {description}",
        provenance=dataset.provenance,
    )


def differ(source: Any, target: Any) -> None:
    """Check that source and target are not the same."""
    if source == target:
        raise ValueError(f"target must differ from source, got {source!r} for both.")
