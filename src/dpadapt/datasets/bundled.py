"""Real data sets that ship inside installed libraries, so nothing is downloaded. For demos, examples and tests.

`digits` and `breast_cancer` come with scikit-learn, `randhie` and `fair` with statsmodels (``dpadapt[demo]``). The last
two record medical visits and affairs, which deserve protection. In their splits the public source helps, but a model
trained on the private target is clearly better. The splits were selected for this property out of about thirty: they
are fine for a demo, but no evidence for a method.
"""

import importlib
from typing import TYPE_CHECKING

import numpy as np

from dpadapt.checks import one_of
from dpadapt.datasets.domains import Data, Dataset, Domains, Source, split_rows
from dpadapt.errors import DataUnavailable

if TYPE_CHECKING:
    import pandas as pd


_RANDHIE = Source(
    name="randhie",
    part="people",
    what="20,190 person-years x 10: visits to a doctor, insurance plan, health",
    status="complete",
    note="As it ships in statsmodels, a subset of the variables.",
    origin="RAND Health Insurance Experiment; Cameron & Trivedi 2005",
    licence="public domain",
)
_FAIR = Source(
    name="fair",
    part="women",
    what="6,366 women x 9: marriage, age, children, religiousness, education, occupations, affairs",
    status="complete",
    note="As it ships in statsmodels.",
    origin="Fair 1978, survey of Redbook magazine 1974",
    licence="included in statsmodels with permission of the author",
)
_DIGITS = Source(
    name="digits",
    part="images",
    what="1,797 handwritten digits, 8 x 8 pixels of 0 to 16: X, y",
    status="complete",
    note="As it ships in scikit-learn: the test part of the original.",
    origin="UCI 80, Alpaydin & Kaynak 1998",
    licence="CC BY 4.0",
)
_BREAST_CANCER = Source(
    name="breast_cancer",
    part="tumours",
    what="569 tumours x 31: 30 features of cell nuclei, benign (1) or malignant (0)",
    status="complete",
    note="As it ships in scikit-learn.",
    origin="UCI 17, Wolberg, Street, Mangasarian 1993",
    licence="CC BY 4.0",
)


def _dataset(data: Data, source: Source) -> Dataset:
    return Dataset(data, source, source.status, source.note)


def _from_statsmodels(source: Source) -> Dataset:
    """Return the table that statsmodels ships under the name of `source`."""
    try:
        module = importlib.import_module(f"statsmodels.datasets.{source.name}")
    except ImportError:
        raise DataUnavailable(
            f"{source.name!r} ships inside statsmodels, which is not installed. Run: pip install 'dpadapt[demo]'"
        ) from None
    return _dataset(module.load_pandas().data, source)


def randhie() -> Dataset:
    """Load the RAND Health Insurance Experiment: visits to a doctor in 20,190 person-years.

    A row is one year of one person. Most people have several rows, and the file does not say which rows belong to one
    person. So protecting one row protects one year, not one person, and random test rows share people with the training
    rows.

    Returns
    -------
    dataset : Dataset
        A table: mdvis (visits), lncoins, idp, lpi, fmde (insurance plan), physlm, disea, hlthg, hlthf, hlthp (health).

    Examples
    --------
    >>> randhie().frame.shape
    (20190, 10)
    """
    return _from_statsmodels(_RANDHIE)


def fair() -> Dataset:
    """Load Fair's survey: marriage and affairs of 6,366 women.

    Returns
    -------
    dataset : Dataset
        A table: rate_marriage, age, yrs_married, children, religious, educ, occupation, occupation_husb, affairs.

    Examples
    --------
    >>> fair().frame.shape
    (6366, 9)
    """
    return _from_statsmodels(_FAIR)


def digits() -> Dataset:
    """Load 1,797 handwritten digits of 8 x 8 pixels.

    Returns
    -------
    dataset : Dataset
        Arrays X of shape (1797, 64) with values 0 to 16, and y.

    Examples
    --------
    >>> sorted(digits().arrays)
    ['X', 'y']
    """
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return _dataset({"X": X, "y": y}, _DIGITS)


def breast_cancer() -> Dataset:
    """Load the Wisconsin diagnostic breast cancer set: 569 tumours.

    Returns
    -------
    dataset : Dataset
        A table of 30 features and the column benign (1 or 0).

    Examples
    --------
    >>> int(breast_cancer().frame["benign"].sum())
    357
    """
    from sklearn.datasets import load_breast_cancer

    frame = load_breast_cancer(as_frame=True).frame
    return _dataset(frame.rename(columns={"target": "benign"}), _BREAST_CANCER)


def randhie_by_plan(label: str = "log_visits") -> Domains:
    """Return people with free care as the public source, people who pay a share themselves as the private target.

    The source can't show how price changes behaviour: nobody in it pays. Ridge regression of `log_visits`, mean
    squared error over variance on a held-out third of the target: 0.963 (sd 0.007 over 20 splits) trained on the
    source, 0.918 trained on the other two thirds of the target. For `any_visit` the log-loss relative to predicting the
    target's rate is 1.010 and 0.951, the area under the ROC curve 0.622 and 0.650.

    Parameters
    ----------
    label : {"log_visits", "any_visit"}, default="log_visits"
        log(1 + visits), or 1 for any visit at all, else 0.

    Examples
    --------
    >>> randhie_by_plan()
    Domains(10997 source rows, 9193 target rows, 9 features: randhie: free care -> plans with cost sharing)
    """
    dataset = randhie()
    free = dataset.frame["lncoins"] == 0
    return _randhie(dataset, free, label, "free care -> plans with cost sharing")


def randhie_by_health(label: str = "log_visits") -> Domains:
    """Return healthy people as the public source, people in worse health as the private target.

    Healthy means: self-rated health good or excellent, no physical limitation, and a disease score below 13.7 (the
    lower two thirds). Ridge regression of `log_visits`, mean squared error over variance on a held-out third of the
    target: 0.951 (sd 0.007 over 20 splits) trained on the source, 0.910 trained on the other two thirds of the target.
    For `any_visit` the log-loss relative to predicting the target's rate is 0.951 and 0.943, a small gap.

    Parameters
    ----------
    label : {"log_visits", "any_visit"}, default="log_visits"
        log(1 + visits), or 1 for any visit at all, else 0.

    Examples
    --------
    >>> randhie_by_health("any_visit")
    Domains(10913 source rows, 9277 target rows, 9 features: randhie: healthy -> in worse health)
    """
    dataset = randhie()
    frame = dataset.frame
    healthy = (frame["hlthf"] == 0) & (frame["hlthp"] == 0) & (frame["physlm"] == 0) & (frame["disea"] < 13.7)
    return _randhie(dataset, healthy, label, "healthy -> in worse health")


def _randhie(dataset: Dataset, source: "pd.Series[bool]", label: str, description: str) -> Domains:
    one_of(label, ("log_visits", "any_visit"), "label")
    visits = dataset.frame["mdvis"]
    return split_rows(
        dataset,
        dataset.frame.drop(columns="mdvis"),
        y=np.log1p(visits) if label == "log_visits" else (visits > 0).astype("int64"),
        source=source,
        target=~source,
        description=description,
    )


def fair_by_age() -> Domains:
    """Return women over 27 as the public source, younger women as the private target; the label is any affair, 1 or 0.

    Logistic regression, log-loss on a held-out third of the target relative to predicting the target's rate: 0.955 (sd
    0.016 over 20 splits) trained on the source, 0.871 trained on the other two thirds of the target; area under the ROC
    curve 0.718 and 0.746.

    Examples
    --------
    >>> fair_by_age()
    Domains(2496 source rows, 3870 target rows, 8 features: fair: women over 27 -> younger women)
    """
    dataset = fair()
    return _fair(dataset, dataset.frame["age"] > 27, "women over 27 -> younger women")


def fair_by_children() -> Domains:
    """Return women with children as the public source, women without as the private target; the label is any affair.

    Logistic regression, log-loss on a held-out third of the target relative to predicting the target's rate: 0.941 (sd
    0.019 over 20 splits) trained on the source, 0.876 trained on the other two thirds of the target; area under the ROC
    curve 0.725 and 0.747.

    Examples
    --------
    >>> fair_by_children()
    Domains(3952 source rows, 2414 target rows, 8 features: fair: women with children -> without)
    """
    dataset = fair()
    return _fair(dataset, dataset.frame["children"] > 0, "women with children -> without")


def _fair(dataset: Dataset, source: "pd.Series[bool]", description: str) -> Domains:
    return split_rows(
        dataset,
        dataset.frame.drop(columns="affairs"),
        y=(dataset.frame["affairs"] > 0).astype("int64"),
        source=source,
        target=~source,
        description=description,
    )
