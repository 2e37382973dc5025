"""The real sets: shapes as documented, sizes as in the papers."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.data import measurements, people
from benchmarks.data.loading import available, load

pytestmark = pytest.mark.realdata


@pytest.mark.parametrize("source", [s for s in available() if s.file], ids=lambda s: f"{s.name}-{s.part}")
def test_compact_file_loads_and_carries_its_provenance(source):
    dataset = load(source.name, source.part, download=False)
    assert dataset.source is source
    assert dataset.status in dataset.provenance
    rows = len(dataset.frame) if isinstance(dataset.data, pd.DataFrame) else 0
    if rows:
        assert f"{rows:,}" in source.what


@pytest.mark.parametrize("source", [s for s in available() if s.name == "fresh"], ids=lambda s: s.part)
def test_fresh_task_has_the_documented_sizes_and_no_missing_values(source):
    arrays = load("fresh", source.part, download=False).arrays
    sizes = f"{len(arrays['ys']):,} public + {len(arrays['yt']):,} private rows x {arrays['Xs'].shape[1]}"
    assert source.what.startswith(sizes)
    assert arrays["Xs"].shape == (len(arrays["ys"]), arrays["Xt"].shape[1])
    assert len(arrays["Xt"]) == len(arrays["yt"])
    assert all(np.isfinite(values).all() for values in arrays.values())


@pytest.mark.parametrize(
    ("make", "source", "target", "features"),
    [
        (lambda: measurements.wind_by_month(1, "MAL"), 6016, 558, 11),  # paper 1, table 4
        (measurements.gas_by_batch, 4397, 2300, 133),  # inputs as in paper 1, table 4; batch 7 is not in the file
        (measurements.news_by_day, 19036, 1376, 50),  # inputs as in paper 1, table 4
        (lambda: measurements.news_by_day("all"), 23563, 1675, 50),
        (measurements.slice_by_patient, 583, 99, 384),
        (measurements.airline_by_hour, 231900, 94998, 11),
        (lambda: people.adult_by_sex("labels"), 20380, 9782, 14),  # paper 1, table 7: 20,379 and 6847 + 978 + 1957
        (people.adult_by_sex, 20380, 9782, 103),
        (people.german_by_residence, 562, 438, 20),  # paper 1, table 7
        (people.accent_by_country, 210, 119, 12),  # paper 1, table 7
        (measurements.superconductivity_by_elements, 11956, 9307, 77),
        (measurements.superconductivity_by_quarter, 5315, 5316, 77),
        (lambda: measurements.superconductivity_by_quarter(by="wtd_std_Valence"), 5315, 5316, 76),
        (measurements.california_by_coast, 6496, 13937, 8),
        (measurements.california_by_latitude, 11693, 8740, 8),
        (measurements.office_by_domain, 958, 295, 800),
        (people.amazon_by_domain, 2000, 2000, 5000),
        (lambda: people.amazon_by_domain("kitchen", "electronics", rows="test"), 5945, 5681, 5000),
        (people.amazon_ratings_by_domain, 2000, 2000, 2),
        (lambda: measurements.mnist_by_digit(1, 7), 7877, 7293, 784),
    ],
)
def test_split_has_the_documented_sizes(make, source, target, features):
    domains = make()
    assert domains.source.X.shape == (source, features)
    assert domains.target.X.shape == (target, features)
    assert len(domains.source.y) == source
    assert len(domains.target.y) == target
    assert len(domains.feature_names) == features
    assert not pd.isna(np.asarray(domains.target.y)).any()
    if isinstance(domains.source.X, pd.DataFrame):
        assert not domains.source.X.isna().any().any()


def test_missing_batch_says_that_the_set_is_partial():
    with pytest.raises(ValueError, match=r"The target has no rows in 'gas' \(partial\)"):
        measurements.gas_by_batch(7)


def test_counts_and_labels_of_reviews_match():
    domains = people.amazon_by_domain("books", "dvd")
    assert domains.source.X.shape[0] == len(domains.source.y)
    assert set(domains.source.y) == {0, 1}
    assert domains.source.X.sum() > 0
