"""Domains of articles, flights and districts. The regression splits of paper 1, Appendix E.1, and two of ours.

.. [1] R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical Guarantees.
   ICML 2024.
"""

import math
from collections.abc import Collection

import pandas as pd

from dpadapt._validate import count, one_of
from dpadapt.datasets.domains import Domains, split_rows
from dpadapt.datasets.loading import load
from dpadapt.datasets.provenance import Dataset
from dpadapt.errors import DataUnavailable

_WEATHER = ("temp", "humid", "wind_speed", "precip", "visib")
_HOUSING = (
    "longitude latitude housing_median_age total_rooms total_bedrooms population households median_income"
).split()


def news_by_day(rows: str = "random_sample") -> Domains:
    """Popularity of an article; Monday to Saturday are the source, Sunday the target.

    Appendix E.1 of [1]_. Its 50 inputs are the 58 features without the eight that name the day.

    Parameters
    ----------
    rows : {"random_sample", "all"}, default="random_sample"
        Of the compact file, the 20,412 rows drawn about uniformly, or all 25,238, which over-represent early 2013.
        A download has every row in both.

    Returns
    -------
    domains : Domains
        The label is the logarithm of the number of shares.

    References
    ----------
    .. [1] R. Bassily et al. Differentially Private Domain Adaptation with Theoretical Guarantees. ICML 2024.

    Examples
    --------
    >>> news_by_day()  # doctest: +SKIP
    Domains(19036 source rows, 1376 target rows, 50 features: news: Monday to Saturday -> Sunday, label log(shares))
    >>> news_by_day(rows="Sunday")
    Traceback (most recent call last):
        ...
    ValueError: rows must be one of 'random_sample', 'all', got 'Sunday'.
    """
    one_of(rows, ("random_sample", "all"), "rows")
    dataset = load("news")
    frame = dataset.frame
    if rows == "random_sample":
        frame = frame[frame["random_sample"]]
    other = ("timedelta", "is_weekend", "shares", "random_sample", "contiguous_head")
    features = [name for name in frame.columns if name not in other and not name.startswith("weekday_is_")]
    sunday = frame["weekday_is_sunday"] == 1
    return split_rows(
        dataset,
        frame[features],
        y=frame["shares"].astype("float64").map(math.log),
        source=~sunday,
        target=sunday,
        description="Monday to Saturday -> Sunday, label log(shares)",
    )


def airline_by_hour(
    hours: Collection[int] = range(17, 24), delay: str = "dep_delay", *, part: str = "nyc13"
) -> Domains:
    """Delay of a flight in minutes; the target are some hours of the day, the source all others.

    Appendix E.1 of [1]_ divides flights out of Chicago by the hour and does not say which; Table 4 has 11 inputs.
    This is a stand-in: flights out of New York in 2013. The 11 inputs are ours: date, day of the week, scheduled times
    in minutes, distance and the weather. Cancelled flights and those without weather are left out.

    Parameters
    ----------
    hours : collection of int, default=range(17, 24)
        Scheduled hours of departure, 0 to 23, that make the target.
    delay : {"dep_delay", "arr_delay"}, default="dep_delay"
        What to predict.
    part : {"nyc13", "openml"}, default="nyc13"
        Which file; "openml" has neither weather (6 inputs remain) nor arrival delay, and 10 million rows.

    Returns
    -------
    domains : Domains

    References
    ----------
    .. [1] R. Bassily et al. Differentially Private Domain Adaptation with Theoretical Guarantees. ICML 2024.

    Examples
    --------
    >>> airline_by_hour()  # doctest: +SKIP
    Domains(231900 source rows, 94998 target rows, 11 features: airline_nyc13: other hours -> hours 17, ...)
    >>> airline_by_hour(delay="arr_delay", part="openml")
    Traceback (most recent call last):
        ...
    ValueError: delay='arr_delay' is not in part 'openml'. Use 'dep_delay', or part='nyc13'.
    """
    one_of(delay, ("dep_delay", "arr_delay"), "delay")
    one_of(part, ("nyc13", "openml"), "part")
    if part == "openml" and delay == "arr_delay":
        raise ValueError("delay='arr_delay' is not in part 'openml'. Use 'dep_delay', or part='nyc13'.")
    wanted = sorted(count(hour, "hours", least=0) for hour in hours)
    dataset = load("airline", part)
    frame = dataset.frame
    features = pd.DataFrame(
        {
            "month": frame["month"],
            "day": frame["day"],
            "dow": frame["dow"],
            "sched_dep_minute": frame["sched_dep_time"] // 100 * 60 + frame["sched_dep_time"] % 100,
            "sched_arr_minute": frame["sched_arr_time"] // 100 * 60 + frame["sched_arr_time"] % 100,
            "distance": frame["distance"],
            **{name: frame[name] for name in _WEATHER if name in frame.columns},
        }
    )
    complete = features.notna().all(axis=1) & frame[delay].notna()
    target = frame["hour"].isin(wanted)
    return split_rows(
        dataset,
        features,
        y=frame[delay].astype("float64"),
        source=~target & complete,
        target=target & complete,
        description=f"other hours -> hours {', '.join(map(str, wanted))}, label {delay}",
    )


def california_by_coast() -> Domains:
    """House value by district; the source is inland, the target the coast and the islands.

    A split of ours, not of a paper. Districts without a number of bedrooms are left out.

    Returns
    -------
    domains : Domains
        The label is the median house value in units of 100,000 dollars (capped at 5 by the census).

    Raises
    ------
    DataUnavailable
        If the copy at hand is scikit-learn's, which has no column `ocean_proximity`.

    Examples
    --------
    >>> california_by_coast()  # doctest: +SKIP
    Domains(6496 source rows, 13937 target rows, 8 features: california_housing: inland -> coast)
    """
    dataset = load("california_housing")
    if dataset.frame["ocean_proximity"].isna().all():
        raise DataUnavailable(
            "california_by_coast needs the column ocean_proximity, which this copy lacks. Set DPADAPT_DATA to a folder "
            "that holds california_housing/housing.parquet, or use california_by_latitude."
        )
    return _california(dataset, dataset.frame["ocean_proximity"] == "INLAND", "inland -> coast")


def california_by_latitude(latitude: float = 36.0) -> Domains:
    """House value by district; the source is the south of California, the target the north.

    A split of ours, not of a paper. Districts without a number of bedrooms are left out.

    Parameters
    ----------
    latitude : float, default=36.0
        Districts south of it are the source.

    Returns
    -------
    domains : Domains
        The label is the median house value in units of 100,000 dollars (capped at 5 by the census).

    Examples
    --------
    >>> california_by_latitude()  # doctest: +SKIP
    Domains(11693 source rows, 8740 target rows, 8 features: california_housing: south of 36 degrees -> north)
    >>> california_by_latitude(51.5)
    Traceback (most recent call last):
        ...
    ValueError: latitude must lie in California, between 32.5 and 42, got 51.5.
    """
    if not 32.5 < latitude < 42:
        raise ValueError(f"latitude must lie in California, between 32.5 and 42, got {latitude!r}.")
    dataset = load("california_housing")
    return _california(dataset, dataset.frame["latitude"] < latitude, f"south of {latitude:g} degrees -> north")


def _california(dataset: Dataset, source: "pd.Series[bool]", description: str) -> Domains:
    """Split the districts that are complete."""
    frame = dataset.frame
    complete = frame["total_bedrooms"].notna()
    return split_rows(
        dataset,
        frame[_HOUSING],
        y=frame["median_house_value"].astype("float64") / 100_000,
        source=source & complete,
        target=~source & complete,
        description=description,
    )
