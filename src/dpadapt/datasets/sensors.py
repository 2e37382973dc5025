"""Domains of measurements: wind, gas sensors, CT slices, superconductors. Splits of papers 1 and 5.

.. [1] R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical Guarantees.
   ICML 2024.
.. [5] Differentially Private Source-Target Clustering. Under review.
"""

from collections.abc import Collection

import pandas as pd

from dpadapt._validate import count, one_of
from dpadapt.datasets.convert_openml import WIND_STATIONS
from dpadapt.datasets.convert_uci import quarters
from dpadapt.datasets.domains import Domains, differ, split_rows
from dpadapt.datasets.loading import load

QUARTERS = ("low", "middle-low", "middle-high", "high")


def wind_by_month(month: int = 1, station: str = "MAL") -> Domains:
    """Wind speed at one station from the eleven others; the target is one month, the source the other eleven.

    Appendix E.1 of [1]_ says that source and target are different months. Its sizes (Table 4: 6,016 source rows,
    158 + 200 + 200 target rows, 11 inputs) are those of a month of 31 days with one station as the label.

    Parameters
    ----------
    month : int, default=1
        The target month, 1 to 12.
    station : str, default="MAL"
        Code of the station to predict; MAL is Malin Head, the target on OpenML.

    Returns
    -------
    domains : Domains
        Speeds in knots, as label and as features.

    References
    ----------
    .. [1] R. Bassily et al. Differentially Private Domain Adaptation with Theoretical Guarantees. ICML 2024.

    Examples
    --------
    >>> wind_by_month(month=1)  # doctest: +SKIP
    Domains(6016 source rows, 558 target rows, 11 features: wind: other months -> month 1, label MAL)
    >>> wind_by_month(month=13)
    Traceback (most recent call last):
        ...
    ValueError: month must be at most 12, got 13.
    """
    if count(month, "month") > 12:
        raise ValueError(f"month must be at most 12, got {month!r}.")
    one_of(station, WIND_STATIONS, "station")
    dataset = load("wind")
    frame = dataset.frame
    target = frame["month"] == month
    return split_rows(
        dataset,
        frame[[name for name in WIND_STATIONS if name != station]],
        y=frame[station].astype("float64"),
        source=~target,
        target=target,
        description=f"other months -> month {month}, label {station}",
    )


def gas_by_batch(batch: int = 6) -> Domains:
    """Concentration of a gas from 16 sensors that drift; the target is one batch, the source all the others.

    Appendix E.1 of [1]_, Table 4: 133 inputs are the 128 sensor features and five indicators of the gas. The sizes
    there (613 + 1,000 + 2,000) point to batch 7 as the target, with 3,000 source rows left out.

    Parameters
    ----------
    batch : int, default=6
        The target batch, 1 to 10. The compact file lacks 7 and 10; 6 is its largest.

    Returns
    -------
    domains : Domains
        The label is the concentration in ppmv.

    References
    ----------
    .. [1] R. Bassily et al. Differentially Private Domain Adaptation with Theoretical Guarantees. ICML 2024.

    Examples
    --------
    >>> gas_by_batch(6)  # doctest: +SKIP
    Domains(4397 source rows, 2300 target rows, 133 features: gas: other batches -> batch 6, label concentration)
    >>> gas_by_batch(11)
    Traceback (most recent call last):
        ...
    ValueError: batch must be at most 10, got 11.
    """
    if count(batch, "batch") > 10:
        raise ValueError(f"batch must be at most 10, got {batch!r}.")
    dataset = load("gas")
    frame = dataset.frame
    target = frame["batch"] == batch
    # Six gases, five indicators: gas 1 is the reference, as the 133 inputs of the paper imply.
    indicators = pd.DataFrame({f"gas{gas}": frame["gas"] == gas for gas in range(2, 7)})
    features = frame[[f"f{index}" for index in range(1, 129)]]
    return split_rows(
        dataset,
        pd.concat([features, indicators], axis=1),
        y=frame["concentration"].astype("float64"),
        source=~target,
        target=target,
        description=f"other batches -> batch {batch}, label concentration",
    )


def slice_by_patient(patients: Collection[int] = (1,)) -> Domains:
    """Position of a CT slice on the body axis; the target are some patients, the source all the others.

    Appendix E.1 of [1]_ divides by patient and does not say which; Table 4 has 7,803 source and 1,539 target rows.

    Parameters
    ----------
    patients : collection of int, default=(1,)
        The target patients. The compact file holds patients 0 and 1 only.

    Returns
    -------
    domains : Domains
        384 histogram features; the label is the position, 0 (top of the head) to 180 (soles).

    References
    ----------
    .. [1] R. Bassily et al. Differentially Private Domain Adaptation with Theoretical Guarantees. ICML 2024.

    Examples
    --------
    >>> slice_by_patient([1])  # doctest: +SKIP
    Domains(583 source rows, 99 target rows, 384 features: slice: other patients -> patients 1, label reference)
    >>> slice_by_patient([-1])
    Traceback (most recent call last):
        ...
    ValueError: patients must be a whole number of at least 0, got -1.
    """
    wanted = sorted(count(patient, "patients", least=0) for patient in patients)
    dataset = load("slice")
    frame = dataset.frame
    target = frame["patientId"].isin(wanted)
    return split_rows(
        dataset,
        frame.drop(columns=["patientId", "reference"]),
        y=frame["reference"].astype("float64"),
        source=~target,
        target=target,
        description=f"other patients -> patients {', '.join(map(str, wanted))}, label reference",
    )


def superconductivity_by_elements(most: int = 4) -> Domains:
    """Critical temperature; the source are materials of few elements, the target those of more.

    A split of ours, not of a paper: cuprates of many elements behave unlike simple compounds, so the shift is strong.

    Parameters
    ----------
    most : int, default=4
        Materials with at most this many elements are the source.

    Returns
    -------
    domains : Domains
        The label is the critical temperature in kelvin.

    Examples
    --------
    >>> superconductivity_by_elements()  # doctest: +SKIP
    Domains(11956 source rows, 9307 target rows, 77 features: superconductivity: at most 4 elements -> more)
    >>> superconductivity_by_elements(most=0)
    Traceback (most recent call last):
        ...
    ValueError: most must be a whole number of at least 1, got 0.
    """
    count(most, "most")
    dataset = load("superconductivity")
    frame = dataset.frame
    source = frame["number_of_elements_derived"] <= most
    return split_rows(
        dataset,
        frame.drop(columns=["critical_temp", "quarter"]),
        y=frame["critical_temp"].astype("float64"),
        source=source,
        target=~source,
        description=f"at most {most} elements -> more",
    )


def superconductivity_by_quarter(
    source: str = "high", target: str = "middle-high", *, by: str = "critical_temp"
) -> Domains:
    """Materials of one quarter of the set as the source, of another as the target.

    Section 6 of [5]_ cuts the set in four "following the domain adaptation setup of Pardoe & Stone (2010)" and does
    not say by which column; figure 3 shows high to middle-high. Pardoe and Stone cut by a feature that correlates
    moderately with the label; `by="wtd_std_Valence"` does that here.

    Parameters
    ----------
    source, target : {"low", "middle-low", "middle-high", "high"}
        Two different quarters.
    by : str, default="critical_temp"
        The column to cut by, in four parts of equal size. It is left out of the features.

    Returns
    -------
    domains : Domains
        The label is the critical temperature in kelvin. Clustering ignores it.

    References
    ----------
    .. [5] Differentially Private Source-Target Clustering. Under review.

    Examples
    --------
    >>> superconductivity_by_quarter("high", "middle-high")  # doctest: +SKIP
    Domains(5315 source rows, 5316 target rows, 77 features: superconductivity: critical_temp high -> middle-high)
    >>> superconductivity_by_quarter("high", "high")
    Traceback (most recent call last):
        ...
    ValueError: target must differ from source, got 'high' for both.
    """
    one_of(source, QUARTERS, "source")
    one_of(target, QUARTERS, "target")
    differ(source, target)
    dataset = load("superconductivity")
    frame = dataset.frame.drop(columns="quarter")
    one_of(by, list(frame.columns), "by")
    quarter = quarters(frame[by].to_numpy())
    return split_rows(
        dataset,
        frame.drop(columns={"critical_temp", by}),
        y=frame["critical_temp"].astype("float64"),
        source=quarter == QUARTERS.index(source),
        target=quarter == QUARTERS.index(target),
        description=f"{by} {source} -> {target}",
    )
