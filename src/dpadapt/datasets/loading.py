"""`load` a data set by name; `available` lists them."""

from dpadapt.datasets import registry
from dpadapt.datasets.provenance import Dataset, Source
from dpadapt.datasets.store import obtain


def available() -> tuple[Source, ...]:
    """List every file that `load` knows, with its origin, licence, and whether it is complete.

    Returns
    -------
    sources : tuple of Source
        One per file. Sets with several files have several entries, told apart by `part`.

    See Also
    --------
    dpadapt.datasets.bundled : Real sets that need no download.

    Examples
    --------
    >>> for source in available()[:3]:
    ...     print(source.name, source.part, source.status)
    wind speeds complete
    wind stations complete
    gas batches partial
    """
    return registry.SOURCES


def load(name: str, part: str | None = None, *, download: bool = True) -> Dataset:
    """Load a data set, with its provenance.

    Looks for `$DPADAPT_DATA/<set>/<file>`, then in the user's cache, then downloads from the original source into the
    cache. Files are verified by checksum on every load; a download is trusted on first use (see `docs/datasets.md`).

    Parameters
    ----------
    name : str
        A set of `available()`; "airline" is short for "airline_nyc13".
    part : str, optional
        Which file of the set; the first one if left out.
    download : bool, default=True
        Whether to go to the original source if the set is not on disk.

    Returns
    -------
    dataset : Dataset
        The table (`.frame`), arrays (`.arrays`) or text (`.text`), with `status`, `note` and `provenance`.

    Raises
    ------
    DataUnavailable
        If the set is nowhere to be had, or a file has the wrong checksum. The message says what to do.
    ValueError
        If there is no such set or part.

    Examples
    --------
    >>> load("german", part="south").frame.shape  # doctest: +SKIP
    (1000, 21)
    >>> load("german", part="north")
    Traceback (most recent call last):
        ...
    ValueError: part of 'german' must be one of 'south', 'statlog', got 'north'.
    """
    return obtain(registry.find(name, part), download=download)
