"""Domains of images: digits and office items. The splits of paper 5, section 6."""

from typing import Any

import numpy as np

from dpadapt._validate import count, one_of
from dpadapt.datasets.domains import Domain, Domains, differ, pair
from dpadapt.datasets.loading import load

OFFICE_DOMAINS = ("amazon", "webcam", "dslr", "caltech10")


def mnist_by_digit(source: int = 1, target: int = 7) -> Domains:
    """Images of one digit as the source, of another as the target.

    Section 6 of [5]_ has the pairs (1, 7), (5, 2) and (9, 6), each way, and clusters them.

    Parameters
    ----------
    source, target : int
        Two different digits.

    Returns
    -------
    domains : Domains
        784 pixels from 0 to 1, training and test images together; the label is the digit.

    References
    ----------
    .. [5] Differentially Private Source-Target Clustering. Under review.

    Examples
    --------
    >>> mnist_by_digit(1, 7)  # doctest: +SKIP
    Domains(7877 source rows, 7293 target rows, 784 features: mnist: digit 1 -> digit 7)
    >>> mnist_by_digit(1, 1)
    Traceback (most recent call last):
        ...
    ValueError: target must differ from source, got 1 for both.
    """
    check_digits(source, target)
    dataset = load("mnist")
    arrays = dataset.arrays
    images = np.concatenate([arrays["X_train"], arrays["X_test"]])
    digits = np.concatenate([arrays["y_train"], arrays["y_test"]])
    return pair(
        dataset,
        source=digit_domain(images, digits, digit=source, white=255),
        target=digit_domain(images, digits, digit=target, white=255),
        description=f"digit {source} -> digit {target}",
    )


def check_digits(source: int, target: int) -> None:
    """Check that these are two different digits."""
    for name, digit in (("source", source), ("target", target)):
        if count(digit, name, least=0) > 9:
            raise ValueError(f"{name} must be a digit, 0 to 9, got {digit!r}.")
    differ(source, target)


def digit_domain(images: Any, digits: Any, *, digit: int, white: float) -> Domain:
    """All images of one digit, flattened, from 0 to 1."""
    chosen = images[digits == digit]
    return Domain(chosen.reshape(len(chosen), -1) / white, digits[digits == digit].astype(np.int64))


def office_by_domain(source: str = "amazon", target: str = "webcam") -> Domains:
    """Images of office items from two origins, as counts of visual words.

    Section 6 of [5]_ clusters all pairs of amazon, webcam and dslr of Office-31. This is a stand-in: the ten classes
    shared with Caltech, as 800 SURF counts.

    Parameters
    ----------
    source, target : {"amazon", "webcam", "dslr", "caltech10"}
        Two different origins.

    Returns
    -------
    domains : Domains
        800 counts, not normalised; the label is the class, 1 to 10.

    References
    ----------
    .. [5] Differentially Private Source-Target Clustering. Under review.

    Examples
    --------
    >>> office_by_domain("amazon", "webcam")  # doctest: +SKIP
    Domains(958 source rows, 295 target rows, 800 features: office_caltech10: amazon -> webcam)
    >>> office_by_domain("amazon", "ebay")
    Traceback (most recent call last):
        ...
    ValueError: target must be one of 'amazon', 'webcam', 'dslr', 'caltech10', got 'ebay'.
    """
    one_of(source, OFFICE_DOMAINS, "source")
    one_of(target, OFFICE_DOMAINS, "target")
    differ(source, target)
    dataset = load("office_caltech10")
    arrays = dataset.arrays
    domains = [
        Domain(arrays[f"{name}_X"].astype(np.float64), arrays[f"{name}_y"].astype(np.int64))
        for name in (source, target)
    ]
    return pair(dataset, source=domains[0], target=domains[1], description=f"{source} -> {target}")
