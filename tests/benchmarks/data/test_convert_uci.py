"""Converters of the UCI archive, on small made-up files in its formats."""

import io
import zipfile

import numpy as np
import pandas as pd
import pytest

from benchmarks.data import convert_uci


def zipped(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def gas_line(gas, level, start):
    return f"{gas};{level:.6f} " + " ".join(f"{index}:{start + index:.6f}" for index in range(1, 129)) + " \n"


def test_gas_reads_all_ten_batches():
    files = {f"Dataset/batch{batch}.dat": gas_line(1 + batch % 6, 10 * batch, batch) for batch in range(1, 11)}
    frame = convert_uci.gas(zipped({**files, "Dataset/batch1.dat": gas_line(1, 10, 0) + gas_line(2, 20, 1)}))
    assert list(frame.columns[:4]) == ["batch", "gas", "concentration", "f1"]
    assert frame.shape == (11, 131)
    assert frame["batch"].tolist() == [1, 1, *range(2, 11)]
    assert frame.loc[1, ["gas", "concentration", "f1", "f128"]].tolist() == [2, 20, 2, 129]
    assert frame.dtypes["f1"] == np.float32
    assert frame.dtypes["batch"] == np.int8


def test_news_strips_blanks_and_drops_the_address():
    header = "url, timedelta, n_tokens_title, data_channel_is_tech, weekday_is_sunday, is_weekend, shares"
    row = "http://example.org/, 731.0, 12.0, 1.0, 0.0, 0.0, 593"
    content = zipped({"OnlineNewsPopularity/OnlineNewsPopularity.csv": f"{header}\n{row}\n", "x/names.txt": ""})
    frame = convert_uci.news(content)
    assert list(frame.columns) == [
        *("timedelta", "n_tokens_title", "data_channel_is_tech", "weekday_is_sunday", "is_weekend", "shares"),
        *("random_sample", "contiguous_head"),
    ]
    assert frame.iloc[0].tolist() == [731, 12, 1, 0, 0, 593, True, False]
    assert frame.dtypes["weekday_is_sunday"] == np.uint8
    assert frame.dtypes["shares"] == np.int32


def test_adult_joins_train_and_test_and_cleans_the_labels():
    row = "39, State-gov, 77516, Bachelors, 13, Never-married, ?, Not-in-family, White, Male, 2174, 0, 40, Cuba, {}\n"
    content = {"adult.data": row.format("<=50K") + "\n", "adult.test": "|1x3 Cross validator\n" + row.format(">50K.")}
    frame = convert_uci.adult(zipped(content))
    assert list(frame.columns) == [*convert_uci.ADULT_COLUMNS, "split"]
    assert frame["income"].tolist() == ["<=50K", ">50K"]
    assert frame["split"].tolist() == ["train", "test"]
    assert frame["occupation"].tolist() == ["?", "?"]
    assert frame.dtypes["age"] == np.int32
    assert isinstance(frame.dtypes["sex"], pd.CategoricalDtype)


def test_superconductivity_gets_quarters_of_equal_size():
    table = pd.DataFrame(
        {"number_of_elements": range(1, 9), "mean_fie": 1.0, "critical_temp": [8, 7, 6, 5, 4, 3, 2, 2]}
    )
    frame = convert_uci.superconductivity(zipped({"train.csv": table.to_csv(index=False), "unique_m.csv": ""}))
    assert list(frame.columns) == ["number_of_elements_derived", "mean_fie", "critical_temp", "quarter"]
    assert frame["quarter"].tolist() == [3, 3, 2, 2, 1, 1, 0, 0]
    # OpenML has the same columns.
    pd.testing.assert_frame_equal(frame, convert_uci.superconductivity_columns(table))


@pytest.mark.parametrize("convert", [convert_uci.news, convert_uci.slices, convert_uci.adult, convert_uci.accent])
def test_other_files_are_an_error_that_names_the_missing_file(convert):
    with pytest.raises(ValueError, match="the zip has no file"):
        convert(zipped({"readme.txt": "moved"}))
    with pytest.raises(ValueError, match="not a zip file"):
        convert(b"<html>not found</html>")
