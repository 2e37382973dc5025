"""Careful encodings of the three tables by hand, with what a person knows about the subject; the measure to meet.

No range, category or median is taken from private rows: ranges are what the subject allows, medians and frequent
categories are those of public rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ByHand:
    """How a person encodes a table.

    Parameters
    ----------
    ranges : mapping of str to (float, float)
        Numbers; missing ones get the public median, and a column that says so if public rows lack some.
    values : mapping of str to sequence
        Categories whose values are known.
    frequent : mapping of str to int
        Categories of which the most frequent public values are kept.
    dates : sequence of str
        Dates: months, weekdays, and days since the first public one.
    bounds : (float, float), optional
        Range of the label of a regression.
    """

    ranges: Mapping[str, tuple[float, float]]
    values: Mapping[str, Sequence[Any]]
    frequent: Mapping[str, int]
    dates: Sequence[str] = ()
    bounds: tuple[float, float] | None = None

    def encoder(self, public: pd.DataFrame) -> Callable[[pd.DataFrame], Array]:
        """Return a function that encodes a table by these rules and by public rows."""
        medians = {name: float(public[name].median()) for name in self.ranges}
        gaps = {name for name in self.ranges if public[name].isna().any()}
        listed = {name: list(values) for name, values in self.values.items()}
        for name, most in self.frequent.items():
            listed[name] = public[name].value_counts().index[:most].tolist()
        first = {name: pd.to_datetime(public[name]).min() for name in self.dates}
        last = {name: pd.to_datetime(public[name]).max() for name in self.dates}

        def encode(frame: pd.DataFrame) -> Array:
            parts: list[Any] = []
            for name, (low, high) in self.ranges.items():
                numbers = frame[name].fillna(medians[name]).clip(low, high)
                parts.append(2 * (numbers - low) / (high - low) - 1)
                if name in gaps:
                    parts.append(frame[name].isna())
            for name, values in listed.items():
                parts += [frame[name] == value for value in values]
                parts.append(~frame[name].isin(values) & frame[name].notna())
                parts.append(frame[name].isna())
            for name in self.dates:
                day = pd.to_datetime(frame[name])
                parts += [day.dt.month == month for month in range(1, 13)]
                parts += [day.dt.day_of_week == weekday for weekday in range(7)]
                parts.append(((day - first[name]) / (last[name] - first[name]) * 2 - 1).clip(-1, 1))
            return np.column_stack([np.asarray(part, dtype=np.float64) for part in parts])

        return encode


HOTEL = ByHand(
    ranges={
        "lead_time": (0, 700),
        "stays_in_weekend_nights": (0, 20),
        "stays_in_week_nights": (0, 50),
        "adults": (0, 5),
        "children": (0, 5),
        "babies": (0, 3),
        "is_repeated_guest": (0, 1),
        "previous_cancellations": (0, 10),
        "previous_bookings_not_canceled": (0, 50),
        "booking_changes": (0, 15),
        "days_in_waiting_list": (0, 365),
        "required_car_parking_spaces": (0, 8),
        "total_of_special_requests": (0, 5),
        "near_christmas": (0, 1),
        "near_new_years": (0, 1),
        "historical_adr": (0, 300),
    },
    values={
        "meal": (
            "bed_and_breakfast",
            "breakfast_and_one_other_meal",
            "breakfast_lunch_and_dinner",
            "no_meal_package",
        ),
        "market_segment": ("corporate", "direct", "groups", "offline_travel_agent", "online_travel_agent"),
        "distribution_channel": ("corporate", "direct", "ta_to"),
        "reserved_room_type": tuple("abcdefghl"),
        "assigned_room_type": tuple("abcdefghil"),
        "customer_type": ("contract", "group", "transient", "transient_party"),
        "company": ("not_applicable",),
    },
    frequent={"country": 15, "agent": 20},
    dates=("arrival_date",),
    bounds=(0.0, 500.0),
)

CHURN = ByHand(
    ranges={
        "female": (0, 1),
        "senior_citizen": (0, 1),
        "partner": (0, 1),
        "dependents": (0, 1),
        "tenure": (0, 72),
        "phone_service": (0, 1),
        "paperless_billing": (0, 1),
        "monthly_charges": (0, 120),
        "total_charges": (0, 9000),
    },
    values={
        "multiple_lines": ("No", "Yes", "No phone service"),
        "internet_service": ("DSL", "Fiber optic", "No"),
        **dict.fromkeys(
            (
                "online_security",
                "online_backup",
                "device_protection",
                "tech_support",
                "streaming_tv",
                "streaming_movies",
            ),
            ("No", "Yes", "No internet service"),
        ),
        "contract": ("Month-to-month", "One year", "Two year"),
        "payment_method": (
            "Bank transfer (automatic)",
            "Credit card (automatic)",
            "Electronic check",
            "Mailed check",
        ),
    },
    frequent={},
)

WAGES = ByHand(
    ranges={
        "year": (68, 88),
        "birth_yr": (40, 55),
        "age": (14, 46),
        "msp": (0, 1),
        "nev_mar": (0, 1),
        "grade": (0, 18),
        "collgrad": (0, 1),
        "not_smsa": (0, 1),
        "c_city": (0, 1),
        "south": (0, 1),
        "union": (0, 1),
        "wks_ue": (0, 104),
        "ttl_exp": (0, 30),
        "tenure": (0, 30),
        "hours": (0, 168),
        "wks_work": (0, 104),
    },
    values={"race": (1, 2, 3), "ind_code": tuple(range(1, 13)), "occ_code": tuple(range(1, 14))},
    frequent={},
    bounds=(0.0, 6.0),
)
