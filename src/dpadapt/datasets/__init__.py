"""Data sets: real ones by name, their splits into a source and a target domain, and synthetic shifts.

`load` finds a set on disk or downloads it. Functions named `<set>_by_<what>` give the domains of the papers.
`bundled` needs no files, `synthetic` no data.
"""

from dpadapt.datasets import bundled, synthetic
from dpadapt.datasets.domains import Domain, Domains
from dpadapt.datasets.events import airline_by_hour, california_by_coast, california_by_latitude, news_by_day
from dpadapt.datasets.images import mnist_by_digit, office_by_domain
from dpadapt.datasets.loading import available, load
from dpadapt.datasets.people import accent_by_country, adult_by_sex, german_by_residence
from dpadapt.datasets.provenance import Dataset, Source
from dpadapt.datasets.reviews import amazon_by_domain, amazon_ratings_by_domain
from dpadapt.datasets.sensors import (
    gas_by_batch,
    slice_by_patient,
    superconductivity_by_elements,
    superconductivity_by_quarter,
    wind_by_month,
)

__all__ = [
    "Dataset",
    "Domain",
    "Domains",
    "Source",
    "accent_by_country",
    "adult_by_sex",
    "airline_by_hour",
    "amazon_by_domain",
    "amazon_ratings_by_domain",
    "available",
    "bundled",
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
    "synthetic",
    "wind_by_month",
]
