"""Splits of measurements on small made-up tables; test_realdata.py has the real ones."""

import numpy as np
import pandas as pd

from benchmarks.data import measurements
from benchmarks.data.convert_openml import WIND_STATIONS


def wind_table():
    table = pd.DataFrame({name: np.arange(4, dtype=np.float32) for name in WIND_STATIONS})
    return table.assign(year=1961, month=[1, 2, 1, 3], day=1)


def test_wind_puts_one_month_in_the_target_and_the_station_in_the_label(fake_load):
    dataset = fake_load(measurements, "wind", wind_table())
    domains = measurements.wind_by_month(1, "DUB")
    assert domains.target.y.tolist() == [0, 2]
    assert domains.source.y.tolist() == [1, 3]
    assert "DUB" not in domains.feature_names
    assert list(domains.source.X.columns) == list(domains.feature_names)
    assert (domains.source.X.dtypes == np.float64).all()
    assert domains.target.X.index.tolist() == [0, 1]
    assert domains.provenance == dataset.provenance


def test_airline_leaves_out_cancelled_flights_and_counts_minutes(fake_load):
    table = pd.DataFrame({"hour": [6, 18, 19], "sched_dep_time": [630, 1805, 1900], "dep_delay": [1.0, 2.0, np.nan]})
    fixed = {"month": 1, "day": 1, "dow": 0, "sched_arr_time": 2359, "distance": 100}
    fake_load(measurements, "airline", table.assign(**fixed), part="openml")
    domains = measurements.airline_by_hour(part="openml")
    assert domains.target.y.tolist() == [2]
    assert domains.target.X["sched_dep_minute"].tolist() == [18 * 60 + 5]
    assert len(domains.feature_names) == 6
