"""Domains of product reviews. The sentiment splits of paper 1, Appendix E.1."""

import numpy as np

from dpadapt._validate import one_of
from dpadapt.datasets.domains import Domain, Domains, differ, pair, split_rows
from dpadapt.datasets.loading import load

AMAZON_DOMAINS = ("books", "dvd", "electronics", "kitchen")


def amazon_by_domain(source: str = "books", target: str = "dvd", *, rows: str = "train") -> Domains:
    """Whether a review is positive, from word counts; two kinds of products.

    The multi-domain sentiment set of Appendix E.1 of [1]_ in the form most papers use. The regression on stars of
    that appendix is `amazon_ratings_by_domain`.

    Parameters
    ----------
    source, target : {"books", "dvd", "electronics", "kitchen"}
        Two different kinds of products.
    rows : {"train", "test"}, default="train"
        The 2,000 reviews usually trained on, or the several thousand usually tested on.

    Returns
    -------
    domains : Domains
        A sparse CSR array of 5,000 counts; the label is 1 for a positive review, else 0.

    References
    ----------
    .. [1] R. Bassily et al. Differentially Private Domain Adaptation with Theoretical Guarantees. ICML 2024.

    Examples
    --------
    >>> amazon_by_domain("books", "dvd")  # doctest: +SKIP
    Domains(2000 source rows, 2000 target rows, 5000 features: amazon_reviews: books -> dvd)
    >>> amazon_by_domain("books", "music")
    Traceback (most recent call last):
        ...
    ValueError: target must be one of 'books', 'dvd', 'electronics', 'kitchen', got 'music'.
    """
    from scipy.sparse import csr_array

    one_of(rows, ("train", "test"), "rows")
    _check_products(source, target)
    dataset = load("amazon_reviews", part="counts")
    arrays = dataset.arrays
    domains = []
    for name in (source, target):
        data, indices, indptr, label = (arrays[f"{name}_{rows}_{key}"] for key in ("data", "indices", "indptr", "y"))
        shape = (len(indptr) - 1, 5000)
        counts = csr_array((data.astype(np.float64), indices.astype(np.int32), indptr.astype(np.int32)), shape=shape)
        domains.append(Domain(counts, (label > 0).astype(np.int64)))
    return pair(dataset, source=domains[0], target=domains[1], description=f"{source} -> {target}")


def amazon_ratings_by_domain(source: str = "books", target: str = "dvd") -> Domains:
    """Stars of a review, from its text; two kinds of products.

    Appendix E.1 of [1]_, Table 5: twelve pairs, as a regression. Turning the text into numbers is left to the caller:
    fit the vectoriser on public reviews only.

    Parameters
    ----------
    source, target : {"books", "dvd", "electronics", "kitchen"}
        Two different kinds of products.

    Returns
    -------
    domains : Domains
        Columns title and text; the label is the number of stars: 1, 2, 4 or 5.

    References
    ----------
    .. [1] R. Bassily et al. Differentially Private Domain Adaptation with Theoretical Guarantees. ICML 2024.

    Examples
    --------
    >>> amazon_ratings_by_domain("books", "dvd")  # doctest: +SKIP
    Domains(2000 source rows, 2000 target rows, 2 features: amazon_reviews: books -> dvd, label stars)
    >>> amazon_ratings_by_domain("books", "music")
    Traceback (most recent call last):
        ...
    ValueError: target must be one of 'books', 'dvd', 'electronics', 'kitchen', got 'music'.
    """
    _check_products(source, target)
    dataset = load("amazon_reviews", part="text")
    frame = dataset.frame
    return split_rows(
        dataset,
        frame[["title", "text"]],
        y=frame["rating"].astype("float64"),
        source=frame["domain"] == source,
        target=frame["domain"] == target,
        description=f"{source} -> {target}, label stars",
        numbers=False,
    )


def _check_products(source: str, target: str) -> None:
    """Check that these are two different kinds of products."""
    one_of(source, AMAZON_DOMAINS, "source")
    one_of(target, AMAZON_DOMAINS, "target")
    differ(source, target)
