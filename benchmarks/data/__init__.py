"""The papers' data sets: loaded by name, and split into source and target domains as in the papers.

`load` reads a set from disk or downloads it. Functions named `<set>_by_<what>` return domains.
See `docs/papers/data.md`.
"""

from benchmarks.data.loading import available, load
from benchmarks.data.measurements import (
    airline_by_hour,
    california_by_coast,
    california_by_latitude,
    gas_by_batch,
    mnist_by_digit,
    news_by_day,
    office_by_domain,
    slice_by_patient,
    superconductivity_by_elements,
    superconductivity_by_quarter,
    wind_by_month,
)
from benchmarks.data.people import (
    accent_by_country,
    adult_by_sex,
    amazon_by_domain,
    amazon_ratings_by_domain,
    german_by_residence,
)

__all__ = [
    "accent_by_country",
    "adult_by_sex",
    "airline_by_hour",
    "amazon_by_domain",
    "amazon_ratings_by_domain",
    "available",
    "california_by_coast",
    "california_by_latitude",
    "gas_by_batch",
    "german_by_residence",
    "load",
    "mnist_by_digit",
    "news_by_day",
    "office_by_domain",
    "slice_by_patient",
    "superconductivity_by_elements",
    "superconductivity_by_quarter",
    "wind_by_month",
]
