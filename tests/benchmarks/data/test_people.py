"""Splits of people on small made-up tables; test_realdata.py has the real ones."""

import pandas as pd
import pytest

from benchmarks.data import people


def adult_table(split="train"):
    table = pd.DataFrame(
        {
            "age": [30, 40, 50, 60],
            "workclass": ["Private", "State-gov", "?", "Private"],
            "sex": ["Male", "Female", "Female", "Female"],
            "income": ["<=50K", ">50K", ">50K", "<=50K"],
        }
    )
    words = "education marital_status occupation relationship race native_country".split()
    numbers = "fnlwgt education_num capital_gain capital_loss hours_per_week".split()
    table = table.assign(**dict.fromkeys(words, "same"), **dict.fromkeys(numbers, 1), split=split)
    return table.astype(dict.fromkeys([*words, "workclass", "sex", "income", "split"], "category"))


def test_adult_one_hot_has_no_column_for_sex_or_for_missing(fake_load):
    fake_load(people, "adult", adult_table())
    domains = people.adult_by_sex()
    assert not any(name.startswith("sex") or name.endswith("?") for name in domains.feature_names)
    assert domains.target.X[["workclass=Private", "workclass=State-gov"]].to_numpy().tolist() == [[0, 1], [1, 0]]


def test_adult_without_marked_rows_says_so(fake_load):
    fake_load(people, "adult", adult_table("unknown"))
    with pytest.raises(ValueError, match="rows='train' is not marked in this copy"):
        people.adult_by_sex()
    assert people.adult_by_sex(rows="all").target.y.tolist() == [1, 0]
