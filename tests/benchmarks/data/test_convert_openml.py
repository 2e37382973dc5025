"""Converters of OpenML and scikit-learn, on small made-up frames in their formats."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.data import convert_openml


def test_wind_gets_four_digit_years_and_the_station_order():
    table = pd.DataFrame({name: [10.5] for name in reversed(convert_openml.WIND_STATIONS)})
    table = table.assign(year=[61], month=pd.Categorical(["1"]), day=[31])
    frame = convert_openml.wind(table)
    assert list(frame.columns) == ["year", "month", "day", *convert_openml.WIND_STATIONS]
    assert frame.loc[0, ["year", "month", "day"]].tolist() == [1961, 1, 31]
    assert frame.dtypes["year"] == np.int16
    assert convert_openml.wind(table.assign(year=[1961])).loc[0, "year"] == 1961


def test_mnist_takes_the_last_ten_thousand_as_test():
    rows = 10_002
    table = pd.DataFrame(np.zeros((rows, 784), dtype=np.int64)).rename(columns=lambda index: f"pixel{index + 1}")
    table.loc[0, "pixel29"] = 255
    arrays = convert_openml.mnist(table.assign(**{"class": pd.Categorical(["3", "7"] * (rows // 2))}))
    assert arrays["X_train"].shape == (2, 28, 28)
    assert arrays["X_test"].shape == (10_000, 28, 28)
    assert arrays["X_train"][0, 1, 0] == 255
    assert arrays["y_train"].tolist() == [3, 7]
    assert arrays["X_train"].dtype == np.uint8


@pytest.mark.parametrize(("month", "weekday"), [("c-8", "c-7"), (8, 7), ("8", "7")])
def test_airline_understands_numbers_and_categories(month, weekday):
    row = {"DepDelay": -3, "Month": month, "DayofMonth": 21, "DayOfWeek": weekday, "CRSDepTime": 1934}
    row |= {"CRSArrTime": 2055, "UniqueCarrier": "AA", "Origin": "ORD", "Dest": "LGA", "Distance": 733}
    frame = convert_openml.airline(pd.DataFrame([row]))
    wanted = {"month": 8, "day": 21, "dow": 6, "hour": 19, "minute": 34, "dep_delay": -3, "distance": 733}
    assert {name: frame.loc[0, name] for name in wanted} == wanted
