"""Bad input: every estimator fits it with finite attributes, or refuses it before it charges, showing nothing private.

Cases are drawn, with a fixed seed, from all combinations of an estimator, an argument and a kind of bad value. A marker
stands in every private cell that is bad, and in one of the others.
"""

import datetime
import importlib
import inspect
import math
import pkgutil
import random
import re
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import chain, zip_longest
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import is_classifier

import dpadapt
from dpadapt import Adjacency, Ledger, PrivacyError, Public
from dpadapt.errors import BudgetExceeded
from dpadapt.learning.base import PrivateEstimator
from dpadapt.learning.linear import PrivateLinearRegression
from dpadapt.mechanisms import Gaussian

WORD, NUMBER = "ZEBRA7731", 77319.125  # what no message may show
N, N_PUBLIC, D = 397, 60, 3  # no message may show the number of private rows
DEFAULT, THOROUGH = 300, 3000
OPTIONAL = ("dpadapt.networks", "dpadapt.integrations.flower")  # they need torch or Flower
REFUSALS = (ValueError, TypeError, PrivacyError, BudgetExceeded)
CALIBRATING = ("mirror.base", "subspace.probes", "subspace.solvers")
# Parameters of the estimators that have them: few steps, and noise that can be repeated.
DEFAULTS = {"epsilon": 8.0, "delta": 1e-3, "n_steps": 5, "n_clusters": 3, "n_epochs": 1, "random_state": 0}
# Other ways through a fit.
OPTIONS: dict[str, Any] = {
    "step": "first-order", "noise": "paper", "average": "tail", "start": "cold", "whiten": True, "batch_size": 40,
    "sampling_rate": 0.5, "solver": "statistics", "prior": "same-population", "gram": "private",
    "rows": "whitened", "projection": "hard", "n_components": 2, "basis": np.eye(D)[:, :2], "radius": 1.5,
    "certificate_share": 0.2, "constants": "paper", "coreset_distance": None, "standardise": False, "form": "convex",
    "fit_intercept": False, "target_bounds": (-2.0, 3.0), "lambda2": 0.1, "kappa_inf": 0.1, "bandwidth": 1.0,
}  # fmt: skip
# Not numbers of the model: a column that is constant in public has scale infinity, a class that is never predicted has
# no precision.
BY_DESIGN = {"public_scale_", "own_effect_", "public_by_class_"}


def estimators() -> list[type]:
    """Return every class that takes private rows and that no other class derives from."""
    for module in pkgutil.walk_packages(dpadapt.__path__, "dpadapt.", onerror=lambda name: None):
        if not module.name.startswith(OPTIONAL):
            importlib.import_module(module.name)
    leaves, todo = set(), [PrivateEstimator]
    while todo:
        cls = todo.pop()
        children = [child for child in cls.__subclasses__() if child.__module__.startswith("dpadapt.")]
        todo += children
        # A model of tables takes no arrays; tests/tables has bad tables of all kinds.
        if not children and not cls.__module__.startswith((*OPTIONAL, "dpadapt.tables")):
            leaves.add(cls)
    return sorted(leaves, key=lambda cls: cls.__name__)


def good(cls: type, draw: random.Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return parameters and arguments of a fit that succeeds; the marker is one of the private numbers."""
    known = inspect.signature(cls).parameters
    params = {name: value for name, value in DEFAULTS.items() if name in known}
    if draw.random() < 0.5:
        params |= draw.choice([{}, *({name: value} for name, value in OPTIONS.items() if name in known)])
    labels_in, tasks = is_classifier(cls(**params)), "basis" in known
    if labels_in and draw.random() < 0.5:
        params["classes"] = [0, 1]
    rng = np.random.default_rng(draw.getrandbits(32))
    X, X_public = rng.uniform(-1, 1, (N, D)), rng.uniform(-1, 1, (N_PUBLIC, D))
    y, y_public = X @ [1.0, -1.0, 0.5], X_public @ [1.0, -1.0, 0.5] + 0.1 * rng.standard_normal(N_PUBLIC)
    if labels_in:
        y, y_public = (y > 0).astype(int), (y_public > 0).astype(int)
    else:
        y[5] = NUMBER
    X[7, 1] = NUMBER
    accepted = inspect.signature(cls.fit).parameters
    given = {next(name for name in accepted if name != "self"): X, "y": y}
    if "public" in accepted:
        given["public X"], given["public y"] = X_public, y_public
        given["tasks"] = np.arange(N_PUBLIC) % 4 if tasks else None
    return params, given


def cell(value: Any) -> Callable[[np.ndarray], Any]:
    """Return the bad value that has `value` in one cell, among objects."""

    def bad(array: np.ndarray) -> np.ndarray:
        changed = array.astype(object)
        changed[(9,) + (1,) * (array.ndim - 1)] = value
        return changed

    return bad


def number(value: float) -> Callable[[np.ndarray], Any]:
    """Return the bad value that has `value` in one cell, among floats."""

    def bad(array: np.ndarray) -> np.ndarray:
        changed = array.astype(np.float64)
        changed[(9,) + (1,) * (array.ndim - 1)] = value
        return changed

    return bad


def filled(value: Any, dtype: Any = None) -> Callable[[np.ndarray], Any]:
    return lambda array: np.full(array.shape, value, dtype=dtype)


def frame(array: np.ndarray, names: Any = "abcdefgh") -> pd.DataFrame:
    table = np.atleast_2d(array.T).T
    return pd.DataFrame(table, columns=list(names)[: table.shape[1]])


def ragged(array: np.ndarray, value: float) -> list[Any]:
    rows = [list(np.atleast_1d(row)) for row in array]
    return [*rows[:3], [value], *rows[4:]]


def structured(array: np.ndarray, word: str) -> np.ndarray:
    return np.array([(float(np.ravel(row)[0]), word) for row in array], dtype=[("a", "f8"), ("b", "U20")])


def bad_arrays(word: str, value: float) -> dict[str, Callable[[np.ndarray], Any]]:
    """Return what stands in the place of an array, by its name: functions of the good one."""
    return {
        "text": cell(word),
        "quoted text": cell(f'it\'s {word}\n"or so"'),
        "bytes": cell(word.encode()),
        "None": cell(None),
        "dict": cell({word: 1}),
        "list": cell([value, word]),
        "date": cell(datetime.date(1977, 3, 1)),
        "datetime": cell(datetime.datetime(1977, 3, 1)),
        "timestamp": cell(pd.Timestamp("1977-03-01")),
        "missing": cell(pd.NA),
        "no time": cell(pd.NaT),
        "complex": cell(complex(value, value)),
        "huge whole number": cell(10**400),
        "large whole number": cell(int(1000 * value) * 10**20),
        "fraction": cell(Fraction(value)),
        "decimal": cell(Decimal(value)),
        "signalling decimal": cell(Decimal("sNaN")),
        "number in text": cell(str(value)),
        "nan in text": cell("nan"),
        "object": cell(object()),
        "function": cell(len),
        "NaN": number(math.nan),
        "inf": number(math.inf),
        "-inf": number(-math.inf),
        "largest": number(1.7e308),
        "1e308": number(1e308),
        "1e200": number(-1e200),
        "1e155": number(1e155),
        "1e59": number(1e59),
        "all 1e59": filled(1e59),
        "all large": lambda array: array * 1e55,
        "all small": lambda array: array * 1e-155,
        "denormal": number(5e-324),
        "1e-200": number(1e-200),
        "all 1e308": filled(1e308),
        "all 1e-320": filled(1e-320),
        "all zeros": filled(0.0),
        "all alike": filled(value),
        "all text": filled(word),
        "all numbers in text": lambda array: array.astype(str),
        "all bytes": filled(word.encode()),
        "all None": filled(None, object),
        "datetime64": filled(np.datetime64("1977-03-01")),
        "timedelta64": filled(np.timedelta64(int(value), "s")),
        "all complex": lambda array: array + 1j,
        "all bool": lambda array: array > 0,
        "half precision": lambda array: array.astype(np.float16),
        "long double": lambda array: array.astype(np.longdouble) * np.longdouble(10) ** 4000,
        "uint64": filled(2**64 - 1, np.uint64),
        "void": lambda array: structured(array, word),
        "empty": lambda array: [],
        "0 rows": lambda array: array[:0],
        "1 row": lambda array: array[:1],
        "2 rows": lambda array: array[:2],
        "0 columns": lambda array: array.reshape(len(array), -1)[:, :0],
        "1-d": lambda array: array.ravel(),
        "2-d": lambda array: np.column_stack([array, array]),
        "one column": lambda array: array.reshape(len(array), -1)[:, :1],
        "3-d": lambda array: np.stack([np.atleast_2d(array)] * 2, axis=-1),
        "scalar": lambda array: value,
        "word": lambda array: word,
        "set": lambda array: {word},
        "mapping": lambda array: {word: array},
        "generator": lambda array: (row for row in array),
        "ragged": lambda array: ragged(array, value),
        "sparse": lambda array: scipy.sparse.csr_matrix(np.atleast_2d(array)),
        "masked": lambda array: np.ma.masked_array(array, mask=np.arange(array.size).reshape(array.shape) == 4),
        "longer": lambda array: np.concatenate([array, array[:1]]),
        "shorter": lambda array: array[:-1],
        "columns more": lambda array: np.column_stack([array.reshape(len(array), -1), array]),
        "columns fewer": lambda array: array.reshape(len(array), -1)[:, :-1],
        "list of rows": lambda array: array.tolist(),
        "frame": frame,
        "frame in another order": lambda array: frame(array, "cbahgfed"),
        "frame with other names": lambda array: frame(array, "xyzuvwst"),
        "frame with numbered columns": lambda array: frame(array, range(8)),
        "frame with mixed names": lambda array: frame(array, ["a", 1, 2.5, None, "b", "c", "d", "e"]),
        "frame with equal names": lambda array: frame(array, "aaaaaaaa"),
        "frame with dates": lambda array: frame(array).assign(a=pd.Timestamp("1977-03-01")),
        "frame with spans": lambda array: frame(array).assign(a=pd.Timedelta(days=int(value))),
        "frame with categories": lambda array: frame(array).assign(a=pd.Categorical([word] * len(array))),
        "frame with text": lambda array: frame(array).assign(a=word),
        "frame with missing": lambda array: frame(array).astype("Float64").mask(frame(array) > 1000),
        "series": lambda array: pd.Series(array.reshape(len(array), -1)[:, 0]),
        "unknown labels": filled(3),
        "many labels": lambda array: np.arange(array.size).reshape(array.shape) % 40,
        "mixed labels": cell("0"),
    }


BAD = bad_arrays(WORD, NUMBER)
BAD_IN_PUBLIC = bad_arrays("PUBLIC", 12345.5)  # public values may be shown
BAD_LEDGERS = {"text": "ledger", "path": "a.ledger", "dict": {}, "class": Ledger, "number": 1.0}
BAD_PUBLIC = {"array": np.zeros((5, D)), "pair": (np.zeros((5, D)), np.zeros(5)), "class": Public, "text": "public"}
# What stands in the place of a parameter.
BAD_PARAMETERS: dict[str, Any] = {
    "None": None, "text": "no", "empty text": "", "bytes": b"1", "number in text": "1", "NaN": math.nan,
    "inf": math.inf, "-inf": -math.inf, "negative": -1.0, "-1": -1, "0": 0, "0.0": 0.0, "1": 1, "1.5": 1.5,
    "1e308": 1e308, "1e-320": 1e-320, "1e-12": 1e-12, "huge": 10**400, "True": True, "list": [], "dict": {}, "set": {1},
    "array": np.ones(2), "nans": np.full((D, 2), math.nan), "complex": 1j, "fraction": Fraction(1, 2),
    "decimal": Decimal("0.5"), "date": datetime.date(1977, 3, 1), "object": object(), "class": dict,
    "numpy": np.float32(0.5), "reversed": (1.0, -1.0), "far apart": (-1e308, 1e308), "one": (1.0,), "texts": ("a", "b"),
    "same": [1, 1], "three": [0, 1, 2], "nested": [[0, 1], [1, 2]], "zeros": np.zeros((D, 2)), "ragged": [[1], [1, 2]],
}  # fmt: skip


@dataclass(frozen=True)
class BadCase:
    """One estimator, one of its arguments, and what is wrong with it."""

    cls: type
    argument: str
    kind: str
    seed: int

    def __str__(self) -> str:
        return f"{self.cls.__name__}-{self.argument}-{self.kind}".replace(" ", "_")

    def make(self) -> tuple[Callable[[], Any], Ledger]:
        """Return a function that fits with the bad value, and the ledger that it may charge."""
        draw = random.Random(self.seed)
        params, given = good(self.cls, draw)
        if self.argument == "parameters":
            name, _, kind = self.kind.partition("=")
            params[name] = BAD_PARAMETERS[kind]
        adjacency = inspect.signature(self.cls).parameters.get("adjacency")
        relation = Adjacency.of("zero-out" if adjacency is None else adjacency.default)
        if adjacency is not None and "adjacency" not in params and "n_rows" in inspect.signature(self.cls).parameters:
            relation = draw.choice(list(Adjacency))
            params["adjacency"] = relation.value
            if relation is Adjacency.ADD_REMOVE and "n_rows" not in params:
                params["n_rows"] = 400
        ledger = Ledger(math.inf if adjacency is None else 1e6, 0.5, adjacency=relation)

        # The same kind in private and public rows may agree with itself.
        changed = [name for name in given if name == self.argument or (self.argument == "both X" and name[-1] in "XS")]
        for name in changed:
            values = BAD_IN_PUBLIC if name in ("public X", "public y", "tasks") else BAD
            with np.errstate(all="ignore"):
                given[name] = values[self.kind](np.arange(N_PUBLIC) % 4 if given[name] is None else given[name])

        def fit() -> Any:
            rows, y, *beside = given.values()
            passed: dict[str, Any] = {"ledger": BAD_LEDGERS[self.kind] if self.argument == "ledger" else ledger}
            if beside and (self.argument in given or draw.random() < 0.75):
                labelled = self.argument in ("public y", "tasks") or draw.random() < 0.67
                labels = beside[1:] if labelled else [None, None]
                passed["public"] = Public(beside[0], labels[0], tasks=labels[1])
            if self.argument == "public":
                passed["public"] = BAD_PUBLIC[self.kind]
            return self.cls(**params).fit(rows, y, **passed)

        return fit, ledger


def all_cases() -> list[BadCase]:
    """Return every combination: one kind for each argument of each estimator, then another for each, and so on."""
    draw, groups = random.Random(15), []
    for cls in estimators():
        parameters, accepted = inspect.signature(cls).parameters, inspect.signature(cls.fit).parameters
        arguments = [name for name in accepted if name in ("X", "S", "y")]
        if "public" in accepted:
            arguments += ["public X", "public y", "both X"] + (["tasks"] if "basis" in parameters else [])
            groups.append([(cls, "public", kind) for kind in BAD_PUBLIC])
        groups += [[(cls, argument, kind) for kind in BAD] for argument in arguments]
        groups.append([(cls, "ledger", kind) for kind in BAD_LEDGERS])
        groups.append([(cls, "parameters", f"{name}={kind}") for name in parameters for kind in BAD_PARAMETERS])
    for group in groups:
        draw.shuffle(group)
    rounds = [list(filter(None, turn)) for turn in zip_longest(*groups)]
    for turn in rounds:
        draw.shuffle(turn)
    return [BadCase(*case, seed) for seed, case in enumerate(chain.from_iterable(rounds))]


def attached(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all that are attached to it, suppressed or not: some loggers show those too."""
    todo, seen = [error], set()
    while todo:
        one = todo.pop()
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            todo += [other for other in (one.__context__, one.__cause__) if other is not None]


def require_nothing_private(text: str) -> None:
    assert WORD not in text
    assert not re.search(r"7\.?7319\.?1|77319", text)
    assert not re.search(r"(?<![\d.])39[5-9](?![\d.])", text), "a number of private rows"
    counts = not text.startswith("public") and "by public" not in text
    assert not (counts and re.search(r"\b[01] sample|shape=\([012],", text)), "a number of private rows"


def not_finite(model: Any) -> list[str]:
    """Return the fitted attributes that hold a number that is not finite."""

    def finite(value: Any) -> bool:
        if isinstance(value, dict):
            return all(map(finite, value.values()))
        if isinstance(value, list | tuple):
            return all(map(finite, value))
        if isinstance(value, float | np.ndarray) and np.asarray(value).dtype.kind == "f":
            return bool(np.isfinite(value).all())
        return True

    fitted = {name: value for name, value in vars(model).items() if name.endswith("_") and name not in BY_DESIGN}
    return [name for name, value in fitted.items() if not finite(value)]


@contextmanager
def quick_calibration() -> Iterator[None]:
    """Replace the noise of sampled steps, which takes seconds to find, by more noise than any case needs."""
    with ExitStack() as stack:
        for module in CALIBRATING:
            stack.enter_context(mock.patch(f"dpadapt.papers.{module}.calibrate", return_value=10.0))
        yield


def check(case: BadCase) -> str:
    """Fit, and return "fitted" or "refused"."""
    fit, ledger = case.make()
    with warnings.catch_warnings(record=True) as heard, np.errstate(all="raise"), quick_calibration():
        warnings.simplefilter("always")
        try:
            model = fit()
        except Exception as error:
            caught: Exception | None = error
        else:
            caught = None
    for warning in heard:
        require_nothing_private(str(warning.message))
    if caught is None:
        assert not_finite(model) == [], "not finite"
        assert ledger.n_charges <= 1, "charged more than once"
        return "fitted"
    assert type(caught) in REFUSALS, "".join(traceback.format_exception(caught))
    assert ledger.entries == [], f"charged before: {caught}"
    for error in attached(caught):
        require_nothing_private(str(error))
    shown = "".join(traceback.format_exception(caught))
    assert WORD not in shown
    assert str(caught)
    return "refused"


CASES = all_cases()


@pytest.mark.parametrize("case", CASES[:DEFAULT], ids=str)
def test_bad_input_is_refused_before_the_charge_and_shows_nothing(case):
    check(case)


@pytest.mark.slow
def test_three_thousand_bad_inputs():
    outcomes, failures = Counter(), []
    for case in CASES[DEFAULT : DEFAULT + THOROUGH]:
        try:
            outcomes[check(case)] += 1
        except AssertionError as error:
            failures.append(f"{case}: {error}")
    print(f"{sum(outcomes.values())} bad inputs of estimators: {dict(outcomes)}, {len(failures)} failures")
    assert failures == []
    assert min(outcomes["fitted"], outcomes["refused"]) > THOROUGH / 10  # both happen


class Careless(PrivateLinearRegression):
    """Breaks one promise at a time."""

    def __init__(self, fault="none", epsilon=1.0, delta=1e-6, *, adjacency="zero-out", n_rows=None, random_state=None):
        super().__init__(epsilon, delta, adjacency=adjacency, n_rows=n_rows, random_state=random_state)
        self.fault = fault

    def fit(self, X, y, *, public=None, ledger=None):
        if self.fault == "value":
            np.asarray(y).astype(np.float64)
        if self.fault == "count" and len(y) != len(X):
            raise ValueError(f"X and y must have equally many rows, got {len(X)} and {len(y)}.")
        if self.fault == "early":
            self._ledger(ledger).start(Gaussian(50.0), label="early")
        if self.fault == "late":
            super().fit(X, y, public=public, ledger=ledger)
            return super().fit(X, y, public=public, ledger=ledger)
        super().fit(X, y, public=public, ledger=ledger)
        if self.fault == "infinite":
            self.coef_ = self.coef_ / 0.0
        return self


@pytest.mark.parametrize(
    ("fault", "argument", "kind"),
    [
        ("value", "y", "text"),
        ("value", "y", "all text"),
        ("count", "y", "shorter"),
        ("early", "X", "NaN"),
        ("late", "X", "frame"),
        ("infinite", "X", "all bool"),
    ],
)
def test_a_careless_estimator_is_found(fault, argument, kind):
    case = BadCase(Careless, argument, kind, 1)
    check(case)
    with mock.patch.dict(DEFAULTS, fault=fault), pytest.raises(AssertionError):
        check(case)
