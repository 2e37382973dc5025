"""`audit_model`: what can be checked about a saved model and its receipt, without the private rows.

The first checks read the receipt: does a second accountant confirm it, do its entries add up, do they agree with the
model's parameters and with the ledger. The others refit the same method with the same parameters on made-up rows of the
same columns: is everything that is drawn charged, is the noise as large as the entries say, does one row move a
statistic further than its noise allows for, and does anything leave except through releases. Last, the refits are
attacked, as in the battery. If the receipt protects persons, made-up persons have several rows each, and neighbours
differ in all rows of one of them.

No check reads a private row, and none proves privacy. A receipt that was forged together with everything that it could
be compared with looks genuine, except to a ledger.
"""

import inspect
import math
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from dpadapt import checks
from dpadapt.accounting.closed_forms import gaussian_epsilon, gaussian_mu
from dpadapt.accounting.cost import add_entries
from dpadapt.accounting.cost import epsilon as cost_of
from dpadapt.accounting.ledger import Ledger
from dpadapt.accounting.receipt import Receipt
from dpadapt.audit.battery import DEFAULT_CONFIDENCE, DEFAULT_FITS, Pace, TimeUp, Verdict, audit_case
from dpadapt.audit.battery_cases import Case
from dpadapt.audit.measured_epsilon import LEAST_RUNS, LowerBound, check_confidence
from dpadapt.audit.releases import ReleaseScores
from dpadapt.audit.replay import Release, Tape, leaks, record, replay
from dpadapt.data import Public
from dpadapt.errors import PrivacyError
from dpadapt.hybrid.agents import SimulatedAgents
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import Bounded
from dpadapt.mechanisms.mechanism import (
    ConcentratedEvent,
    Event,
    GaussianEvent,
    Mechanism,
    NonPrivateEvent,
    PureEvent,
    SampledEvent,
)
from dpadapt.mechanisms.randomness import Random
from dpadapt.persist import Saved, load
from dpadapt.persons import IDS_ASSUMPTION, Unit
from dpadapt.tables import Category, Number, Schema, TableModel

Data = tuple[Any, ...]
Pair = tuple[Data, Data]
# A row and its label, if it has one.
Record = tuple[NDArray[np.float64], Any]

# Relative difference between a receipt's epsilon and the cost of its entries that still counts as equal. Accountants of
# two versions may differ by the step of their grid, 1e-4 of a typical epsilon.
_EPSILON_TOLERANCE = 1e-4
# Relative difference between the costs of a model and of its refit that still counts as equal. The rate of Poisson
# samples depends on the number of rows, and their noise is calibrated to within a percent of the budget.
_REFIT_TOLERANCE = 0.02
# Made-up private rows: enough that the budget of an ordinary model is worth spending, few enough for many refits. More
# rows are slower. Chosen by hand.
_FEWEST_MADE_UP_ROWS, _MOST_MADE_UP_ROWS = 60, 4_000
# Where persons are protected, that many persons are made up instead, with one row up to this many each. The person in
# whom neighbours differ has more rows than all others, so that rows that count fully move a sum the furthest. More rows
# are slower. Chosen by hand.
_MOST_ROWS_OF_OTHERS, _ROWS_OF_LAST_PERSON = 3, 6
# How many times as many rows are tried if the first number does not make the receipt's releases. Chosen by hand.
_MORE_MADE_UP_ROWS = 8
# Made-up public rows, at least, and for each column. Chosen by hand.
_MADE_UP_PUBLIC_ROWS, _PUBLIC_ROWS_PER_COLUMN = 150, 4
# Made-up people of a hybrid model, between these numbers. Fewer than the first can't be divided among the questions.
_FEWEST_MADE_UP_PEOPLE, _MOST_MADE_UP_PEOPLE = 1_000, 20_000
# Refits whose drawn noise is measured, at most, and single draws that are enough. Chosen by hand.
_MOST_MEASURED_REFITS, _ENOUGH_DRAWS = 20, 2_000
# Scale of whole-number noise above which its moments are those of continuous noise, up to 1e-4; mean size of noise
# below which nothing can be measured, because it is 0 in nearly every draw.
_WIDE_NOISE, _NO_NOISE = 50.0, 1e-3
# A value beyond every range, and one whose square overflows, which makes its row null.
_FAR_VALUE, _OVERFLOWING_VALUE = 1e6, 1e200
# Budgets at which the fewest refits detect half the noise, as in the battery: the mu of Gaussian noise; the epsilon of
# counts, and of Laplace noise; epsilon and delta of releases on Poisson samples, and of zCDP releases. With each, how
# many times as many refits are needed as for Gaussian noise.
_ATTACKED_MU = 2.0
_ATTACKED_PURE, _PURE_EFFORT = 2.0, 3.0
_ATTACKED_LAPLACE, _LAPLACE_EFFORT = 1.0, 6.0
_ATTACKED_SAMPLED, _SAMPLED_EFFORT = (1.0, 0.2), 6.0
_ATTACKED_CONCENTRATED, _CONCENTRATED_EFFORT = (2.0, 0.05), 8.0


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Parameters
    ----------
    check : str
        What was checked.
    verdict : {"holds", "refuted", "undecided"}
    words : str
        What was found.
    """

    check: str
    verdict: Verdict
    words: str


@dataclass(frozen=True)
class ModelAudit:
    """The result of the audit of a saved model.

    Parameters
    ----------
    receipt : Receipt or None
        The receipt; None if it does not belong to the model.
    findings : tuple of Finding
        In the order of the checks.
    """

    receipt: Receipt | None = field(repr=False)
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        """Whether some check refutes the receipt, all confirm it, or some are undecided."""
        verdicts = {finding.verdict for finding in self.findings}
        return "refuted" if "refuted" in verdicts else "undecided" if "undecided" in verdicts else "holds"

    @property
    def words(self) -> str:
        """The verdict in one line."""
        failed = [finding.check for finding in self.findings if finding.verdict == "refuted"]
        if failed or self.receipt is None:
            return f"REFUTED: don't rely on this receipt ({'; '.join(failed)})."
        claim = f"epsilon = {self.receipt.epsilon:.4g}, delta = {self.receipt.delta:.3g}"
        undecided = sum(finding.verdict == "undecided" for finding in self.findings)
        if undecided:
            return f"No check refutes the receipt ({claim}), but undecided: {undecided} of {len(self.findings)} checks."
        return f"holds: all {len(self.findings)} checks agree with the receipt ({claim}). This is no proof."

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        return {
            "verdict": self.verdict,
            "words": self.words,
            "receipt": None if self.receipt is None else self.receipt.to_dict(),
            "checks": [vars(finding) for finding in self.findings],
        }


def audit_model(
    folder: str | Path,
    *,
    ledger: Ledger | None = None,
    fits: int = DEFAULT_FITS,
    confidence: float = DEFAULT_CONFIDENCE,
    seed: int | None = None,
    pace: Pace | None = None,
) -> ModelAudit:
    """Audit a model that `dpadapt.save` or `dpadapt fit` wrote.

    Parameters
    ----------
    folder : str or Path
        The model's folder.
    ledger : Ledger, optional
        The ledger of the private data set, to look for the model's charges in. Nothing is charged.
    fits : int, default=100
        Refits on each of two made-up data sets, at least 30; some kinds of noise need several times as many.
    confidence : float, default=0.99
        Probability that no statistical check refutes a correct model.
    seed : int, optional
        For tests. Default: the drawn noise that is measured is secure noise, as in a real fit.
    pace : Pace, optional
        Shows progress and limits the time. Checks that are not finished in time are undecided.

    Raises
    ------
    ValueError
        If the folder holds no model, or a damaged one.

    Examples
    --------
    >>> import tempfile
    >>> from dpadapt import PrivateLinearRegression, save
    >>> X = np.linspace(-1, 1, 200)[:, None]
    >>> model = PrivateLinearRegression(epsilon=4.0).fit(X, X[:, 0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, folder)
    ...     audit = audit_model(folder, seed=0)
    >>> audit.verdict
    'holds'
    """
    fits = checks.count(fits, "fits", least=LEAST_RUNS)
    # Two checks are statistical: the drawn noise, and the attack.
    each = 1.0 - (1.0 - check_confidence(confidence)) / 2
    pace = Pace() if pace is None else pace
    belongs = "receipt.json belongs to the model"
    try:
        saved = load(folder)
    except ValueError as error:
        if "does not belong to model.json" not in str(error):
            raise
        words = "its checksum is not the one in model.json: one of the two was changed or exchanged"
        return ModelAudit(None, (Finding(belongs, "refuted", words),))
    if isinstance(saved.model, TableModel):
        # Refits are made on encoded rows, which is where the releases begin.
        saved = replace(saved, model=saved.model.model_)
    receipt: Receipt = saved.model.privacy_
    findings = [Finding(belongs, "holds", "its checksum is the one in model.json"), *_receipt_findings(saved)]
    if ledger is not None:
        findings.append(_ledger_finding(saved, ledger))
    if math.isinf(receipt.epsilon):
        findings.append(Finding("refits on made-up rows", "undecided", "not made: the receipt claims no protection"))
    elif not receipt.entries:
        findings.append(_nothing_released(receipt))
    else:
        findings += _refit_findings(saved, fits, each, seed, pace)
    return ModelAudit(receipt, tuple(findings))


# The receipt itself.


def _receipt_findings(saved: Saved) -> list[Finding]:
    """Return what the receipt, compared with itself and with the model's parameters, shows."""
    receipt, params = saved.model.privacy_, saved.model.get_params(deep=False)
    return [
        _second_accountant(receipt),
        _entries_add_up(receipt),
        _within_budget(receipt, params),
        _unseeded(receipt, params),
        *([_persons(saved)] if receipt.unit == "person" else []),
    ]


def _persons(saved: Saved) -> Finding:
    """Return whether a receipt that claims to protect persons is that of a fit which was given persons."""
    check = "the fit was given persons"
    if "persons" not in inspect.signature(type(saved.model).fit).parameters:
        return Finding(check, "refuted", "the receipt claims to protect persons, and the method takes none")
    if IDS_ASSUMPTION not in saved.model.privacy_.assumptions:
        return Finding(check, "refuted", "the receipt claims to protect persons, and assumes nothing about their ids")
    return Finding(
        check, "holds", "the receipt says what is assumed of ids; refits are given persons with several rows"
    )


def _second_accountant(receipt: Receipt) -> Finding:
    check = "a second accountant confirms the receipt"
    try:
        bounds = receipt.verify()
    except PrivacyError as error:
        return Finding(check, "refuted", str(error))
    limits = f"at least {bounds.lower:.4g}" + (f", at most {bounds.upper:.4g}" if math.isfinite(bounds.upper) else "")
    return Finding(check, "holds", f"claimed {receipt.epsilon:.4g}; {limits} ({bounds.accountant})")


def _entries_add_up(receipt: Receipt) -> Finding:
    check = "the entries cost what the receipt claims"
    cost = cost_of(receipt.tally(), receipt.delta, adjacency=receipt.adjacency)
    words = f"together they cost epsilon = {cost:.4g}, claimed is {receipt.epsilon:.4g}"
    if cost == receipt.epsilon or abs(cost - receipt.epsilon) <= _EPSILON_TOLERANCE * receipt.epsilon:
        return Finding(check, "holds", words)
    return Finding(check, "refuted", f"{words}: an entry was removed or changed, or the claim was")


def _within_budget(receipt: Receipt, params: dict[str, Any]) -> Finding:
    check = "the receipt keeps to the model's budget"
    # As in the ledger, noise that is calibrated to the budget may cost it up to rounding.
    wrong = [] if receipt.epsilon <= params["epsilon"] * (1 + 1e-9) else ["epsilon"]
    wrong += [] if receipt.delta == params["delta"] else ["delta"]
    wrong += [] if receipt.adjacency is Adjacency.of(params["adjacency"]) else ["adjacency"]
    words = f"the model may spend epsilon = {params['epsilon']:.4g}, delta = {params['delta']:.3g}"
    if wrong:
        return Finding(
            check, "refuted", f"{words}, by {params['adjacency']}; the receipt differs in {', '.join(wrong)}"
        )
    return Finding(check, "holds", words)


def _unseeded(receipt: Receipt, params: dict[str, Any]) -> Finding:
    check = "all noise is secret"
    leaked = [entry.label for entry in receipt.entries if isinstance(entry.event, NonPrivateEvent)]
    if leaked:
        return Finding(check, "refuted", f"released without noise: {', '.join(leaked)}")
    if receipt.seeded:
        return Finding(check, "refuted", "noise came from a seed, and whoever knows it can subtract the noise")
    if receipt.entries and params.get("random_state") is not None:
        return Finding(check, "refuted", "the model was fitted with a seed, but the receipt does not say so")
    return Finding(check, "holds", "no entry was seeded or released without noise")


def _ledger_finding(saved: Saved, ledger: Ledger) -> Finding:
    """Return whether the ledger has the charges of the receipt."""
    check, receipt = "the ledger was charged", saved.model.privacy_
    if ledger.adjacency is not receipt.adjacency:
        words = f"the ledger counts neighbours by {ledger.adjacency.value}, the receipt by {receipt.adjacency.value}"
        return Finding(check, "refuted", words)
    if ledger.unit != receipt.unit:
        return Finding(check, "refuted", f"the ledger protects one {ledger.unit}, the receipt says one {receipt.unit}")
    dataset = saved.extra.get("schema", {}).get("dataset", ledger.dataset)
    if ledger.dataset not in ("", dataset):
        words = f"the ledger is that of the data set {ledger.dataset!r}, the model that of {dataset!r}"
        return Finding(check, "refuted", words)
    name = type(saved.model).__name__
    # A ledger puts the names of the ledgers in between, if there are any, before that of the estimator.
    charged = Counter((_after(name, entry.label), entry.event, entry.times, entry.seeded) for entry in ledger.entries)
    wanted = Counter((entry.label, entry.event, entry.times, entry.seeded) for entry in receipt.entries)
    lacking = [label for label, *_ in (wanted - charged)]
    if lacking:
        words = f"not in the ledger, or with other noise: {', '.join(lacking)}"
        return Finding(check, "refuted", words)
    return Finding(check, "holds", "it has every entry of the receipt")


def _after(name: str, label: str) -> str:
    """Return what follows the estimator's name in the label of a ledger's entry; the whole label if it is not there."""
    _, separator, rest = f": {label}".rpartition(f": {name}: ")
    return rest if separator else label


def _nothing_released(receipt: Receipt) -> Finding:
    """Return whether a receipt without entries says why it has none."""
    check = "nothing was released"
    people = any("people's answers" in fact for fact in receipt.assumptions)
    if people or any("nothing was released" in warning for warning in receipt.warnings):
        return Finding(check, "holds", "the receipt has no entries, and says why: the model uses no private row")
    return Finding(check, "refuted", "the receipt has no entries and does not say why: they may have been removed")


# Made-up rows of the same columns, from public facts alone.


@dataclass(frozen=True, eq=False)
class _MadeUp:
    """The model's method and parameters, with what is needed to refit it on made-up rows.

    Parameters
    ----------
    saved : Saved
    params : dict
        The model's parameters, without a seed.
    adjacency : Adjacency
    unit : {"row", "person"}
        What the receipt protects. For persons, the last part of the private data holds their ids.
    n_columns : int
        Columns of the encoded rows.
    public : Public or None
    more_rows : int, default=1
        Multiplies the number of private rows, or persons.
    """

    saved: Saved
    params: dict[str, Any]
    adjacency: Adjacency
    unit: Unit
    n_columns: int
    public: Public | None
    more_rows: int = 1

    @classmethod
    def of(cls, saved: Saved) -> "_MadeUp":
        model = saved.model
        params = {**model.get_params(deep=False), "random_state": None}
        width = int(model.n_features_in_)
        if params.get("encoder") is not None:
            # A public map of one row; the refit starts from features.
            params["encoder"], width = None, int(model.coef_.shape[1])
        # What the fit found out, and listed as public, is given to the refit: made-up labels may lack a class.
        params |= {name: getattr(model, f"{name}_") for name in ("mode", "classes") if name in params}
        made_up = cls(saved, params, Adjacency.of(params["adjacency"]), model.privacy_.unit, width, None)
        return replace(made_up, public=made_up._public_rows()) if saved.method.beside == "public" else made_up

    def with_budget(self, epsilon: float, delta: float) -> "_MadeUp":
        """Return the same with another budget."""
        return replace(self, params={**self.params, "epsilon": epsilon, "delta": delta})

    def make(self) -> Any:
        """Return a new, unfitted estimator."""
        return self.saved.method.estimator(**self.params)

    def beside(self) -> dict[str, Any]:
        """Return what a refit is given beside its private rows. People are made anew: each answers once."""
        if self.saved.method.beside == "public":
            return {"public": self.public}
        asked = sum(self.saved.model.people_asked_.values())
        if not asked:
            return {}
        n_people = min(max(asked, _FEWEST_MADE_UP_PEOPLE), _MOST_MADE_UP_PEOPLE)
        X, y = self._labelled(n_people, seed=2)
        return {"agents": SimulatedAgents(X, y, 1.0, random_state=0)}

    def fit(self, data: Data, ledger: Ledger) -> Any:
        """Fit a new estimator."""
        if self.unit == "row":
            return self.make().fit(*data, ledger=ledger, **self.beside())
        *rows, ids = data
        return self.make().fit(*rows, persons=ids, ledger=ledger, **self.beside())

    def record(self, data: Data) -> Tape:
        """Return the releases of a fit on `data`."""
        return record(self.fit, data, adjacency=self.adjacency, unit=self.unit)

    def replayed(self, pair: Pair) -> tuple[Tape, Tape | None]:
        """Return a refit, and its replay on the neighbouring rows; None if that takes another path."""
        tape = self.record(pair[0])
        try:
            return tape, replay(self.fit, pair[1], tape, adjacency=self.adjacency, unit=self.unit)
        except PrivacyError:
            return tape, None

    @property
    def clusters(self) -> bool:
        """Whether the method chooses public rows, so that private rows have no labels."""
        return self.saved.method.task == "clustering"

    def rows(self) -> Data:
        """Return made-up private rows, with labels if the method learns some, and with ids of persons if there are."""
        n = _FEWEST_MADE_UP_ROWS
        if not self.clusters:
            # Several times as many as make the budget worth spending: below that, a fit releases nothing.
            mu = gaussian_mu(self.params["epsilon"], self.params["delta"])
            n = self.more_rows * max(n, math.ceil(30 * self.adjacency.factor / mu))
            n = min(n, _MOST_MADE_UP_ROWS)
        # Everybody has a row in the first round, and some have one in each further round, so that rows of others lie
        # between the rows of a person.
        rounds = _MOST_ROWS_OF_OTHERS if self.unit == "person" else 1
        persons = np.arange(n)
        ids = np.concatenate([persons[persons % rounds >= k] for k in range(rounds)])
        X, y = self._labelled(len(ids), seed=1)
        rows = (X,) if self.clusters else (X, y)
        return (*rows, ids) if self.unit == "person" else rows

    def pairs(self) -> list[Pair]:
        """Return neighbouring data sets, whose last row or person differs as strongly as possible."""
        rows = self.rows()
        # Rows that are all alike are contradicted most strongly.
        alike = np.full_like(rows[0], -1.0)
        low, high = (None, None) if self.clusters else self._labels()
        same = (alike,) if self.clusters else (alike, np.full_like(rows[1], low))
        bases = [rows, (*same, *rows[len(same) :])]
        ones = np.ones(self.n_columns)
        wanted = [(-ones, high), (ones, high), (ones, low), (_FAR_VALUE * ones, high)]
        if self.clusters:
            wanted = [(ones, None), (0.5 * ones, None)]
            if self.adjacency is Adjacency.ADD_REMOVE:
                bases.append(tuple(part[:0] for part in rows))  # the last row or person is then the only one
        if self.unit == "row":
            return [self._pair(base, [record]) for base in bases for record in wanted]
        # Rows that all pull one way, and rows that differ.
        persons = [[record] * _ROWS_OF_LAST_PERSON for record in wanted] + [wanted]
        return [self._pair(base, person) for base in bases for person in persons]

    def _pair(self, base: Data, records: list[Record]) -> Pair:
        """Return `base` with these rows in place of its last row or person, and its neighbour.

        In the neighbour a person has one row: how many rows a person has is private.
        """
        others = self._without_last(base)
        if self.adjacency is Adjacency.ADD_REMOVE:
            return self._with_last(others, records), others
        row, label = records[0]
        if self.adjacency is Adjacency.ZERO_OUT:
            other = (np.full(self.n_columns, _OVERFLOWING_VALUE), label)
        elif label is None:
            other = (-row, None)
        else:
            low, high = self._labels()
            other = (-row, low if label == high else high)
        return self._with_last(others, records), self._with_last(others, [other])

    def _without_last(self, data: Data) -> Data:
        """Return `data` without its last row or person."""
        kept = np.arange(len(data[0])) < len(data[0]) - 1 if self.unit == "row" else data[-1] != data[-1].max(initial=0)
        return tuple(part[kept] for part in data)

    def _with_last(self, others: Data, records: list[Record]) -> Data:
        """Return `others` with one more row, or one more person whose rows have rows of others between them."""
        rows, labels = zip(*records, strict=True)
        more: list[Any] = [rows] if self.clusters else [rows, labels]
        if self.unit == "person":
            more.append(others[-1].max(initial=0) + 1)
        places = np.maximum(len(others[0]) - np.arange(len(records)), 0)
        return tuple(np.insert(part, places, values, axis=0) for part, values in zip(others, more, strict=True))

    def _labels(self) -> tuple[Any, Any]:
        """Return two labels as far apart as possible."""
        if self.saved.method.task == "regression":
            return -_FAR_VALUE, _FAR_VALUE
        return self.saved.model.classes_[0], self.saved.model.classes_[-1]

    def _labelled(self, n: int, *, seed: int) -> tuple[NDArray[np.float64], Any]:
        """Return made-up rows, as the schema encodes them, and labels that depend on them."""
        random = np.random.default_rng(seed)
        X = self._features(n, random)
        score = X @ np.linspace(1.0, -1.0, self.n_columns) + 0.1 * random.standard_normal(n)
        if self.saved.method.task == "regression":
            low, high = checks.bounds(self.params.get("target_bounds"), "target_bounds")
            return X, low + (high - low) / (1 + np.exp(-score))
        if self.clusters:
            return X, None
        classes = self.saved.model.classes_
        order = np.argsort(np.argsort(score))
        return X, classes[order * len(classes) // n]

    def _features(self, n: int, random: np.random.Generator) -> NDArray[np.float64]:
        """Return rows in the ranges that the schema is encoded to, or in [-1, 1] if no schema was saved."""
        anything = random.uniform(-1, 1, (n, self.n_columns))
        if "schema" not in self.saved.extra:
            return anything
        schema = Schema.from_dict(self.saved.extra["schema"], origin="the model's schema")
        start = 0
        for column in schema.features(self.saved.extra.get("label")):
            if isinstance(column, Number):
                start += 1
            elif isinstance(column, Category):
                width = len(column.values)
                anything[:, start : start + width] = np.eye(width)[random.integers(0, width, n)][
                    :, : self.n_columns - start
                ]
                start += width
            else:
                # Features of an encoder lie in [-1, 1] too; how many there are depends on the encoder.
                break
        return anything

    def _public_rows(self) -> Public:
        n = max(_MADE_UP_PUBLIC_ROWS, _PUBLIC_ROWS_PER_COLUMN * self.n_columns)
        if self.clusters:
            n = max(n, int(np.max(self.params["n_clusters"])))
        X, y = self._labelled(n, seed=0)
        return Public(X) if self.clusters else Public(X, y, tasks=np.arange(n) % 5)


# Refits.

# What can end a check before it is decided.
_NOT_REFITTED = (TimeUp, ValueError, TypeError, PrivacyError)


def _refit_findings(saved: Saved, fits: int, confidence: float, seed: int | None, pace: Pace) -> list[Finding]:
    """Return what refits on made-up rows show; checks for which no time is left are undecided."""
    receipt: Receipt = saved.model.privacy_
    try:
        pace.report("refitting on made-up rows", 0.0)
        made_up = _like_the_receipt(_MadeUp.of(saved), receipt)
        pairs = made_up.pairs()
    except _NOT_REFITTED as error:
        return [_not_decided("refits on made-up rows", error)]
    tapes: list[tuple[Tape, Tape | None]] = []

    def replays() -> list[tuple[Tape, Tape | None]]:
        for pair in pairs[len(tapes) :]:
            pace.report("refitting on made-up rows", 0.0)
            tapes.append(made_up.replayed(pair))
        return tapes

    steps: list[tuple[str, Callable[[], Finding]]] = [
        (
            "a refit costs what the receipt claims",
            lambda: _same_cost(receipt, replays()[0][0], made_up.params["epsilon"]),
        ),
        ("every draw of a refit is charged", lambda: _charged_draws(tape for tape, _ in replays())),
        (f"one {made_up.unit} moves no statistic beyond its noise", lambda: _moved(replays())),
        ("replays find no leak", lambda: _no_leak(made_up, pairs, pace)),
        ("the noise that is drawn is as large as claimed", lambda: _drawn_noise(made_up, confidence, seed, pace)),
        ("an attack does not refute the claim", lambda: _attack(made_up, fits, confidence, seed, pace)),
    ]
    findings = []
    for check, step in steps:
        try:
            findings.append(replace(step(), check=check))
        except _NOT_REFITTED as error:
            findings.append(_not_decided(check, error))
    return findings


def _not_decided(check: str, error: Exception) -> Finding:
    """Return the finding of a check that ended by an error. Rows were made up, so its text shows nothing private."""
    words = "the time was up" if isinstance(error, TimeUp) else f"the refit failed ({error})"
    return Finding(check, "undecided", f"not decided: {words}")


def _like_the_receipt(made_up: _MadeUp, receipt: Receipt) -> _MadeUp:
    """Return the refit with few or more rows, with or without public rows and labels: what makes the same releases.

    How many private rows there were, and what helped them, is not saved.
    """
    if made_up.clusters:
        return made_up
    wanted = [(entry.label, entry.times) for entry in receipt.entries]
    given = made_up.public
    for more_rows in (1, _MORE_MADE_UP_ROWS):
        for public in (given, Public(given.X), None) if given is not None else (None,):
            candidate = replace(made_up, public=public, more_rows=more_rows)
            try:
                refit = candidate.record(candidate.rows()).result
            except ValueError:  # such as intervals, which need public rows
                continue
            entries = refit.privacy_.entries
            if [(entry.label, entry.times) for entry in entries] == wanted:
                return candidate
    return made_up


def _same_cost(receipt: Receipt, tape: Tape, budget: float) -> Finding:
    cost = tape.result.privacy_.epsilon
    words = f"a refit with the same parameters costs epsilon = {cost:.4g}, claimed is {receipt.epsilon:.4g}"
    if not tape.releases:
        return Finding("", "undecided", "not decided: the budget is too small for as few rows as are made up here")
    if abs(cost - receipt.epsilon) <= _REFIT_TOLERANCE * cost:
        return Finding("", "holds", words)
    if abs(cost - budget) > _REFIT_TOLERANCE * budget:
        # The noise of some papers does not use up the budget; how much it uses may depend on the number of rows.
        return Finding("", "undecided", f"{words}; this may depend on the number of rows")
    return Finding("", "refuted", f"{words}: entries are missing, or have other noise than the method draws")


def _inner(event: Event) -> Event:
    """Return what one release costs if it uses all rows."""
    return event.event if isinstance(event, SampledEvent) else event


def _charged_draws(tapes: Iterable[Tape]) -> Finding:
    drawn = 0
    for tape in tapes:
        charged: Counter[Event] = Counter()
        for entry in tape.entries:
            charged[_inner(entry.event)] += entry.times
        made = Counter(release.event for release in tape.releases)
        if made - charged:
            return Finding("", "refuted", f"drawn without a charge: {', '.join(map(str, made - charged))}")
        drawn += len(tape.releases)
    return Finding("", "holds", f"{drawn:,} draws, each of them charged before")


def _moved(tapes: Sequence[tuple[Tape, Tape | None]]) -> Finding:
    """Return whether a record moved a statistic further than its noise, at the entry's multiplier, allows for."""
    furthest = 0.0
    for tape, other in tapes:
        if other is None:
            return Finding(
                "", "refuted", "a refit on neighbouring rows makes other releases, which shows the neighbour"
            )
        for own, theirs in zip(tape.releases, other.releases, strict=True):
            furthest = max(furthest, _share_of_bound(own, theirs))
    words = f"at most {furthest:.3g} times what its noise covers, on {len(tapes)} pairs of neighbours"
    # Sums are rounded; SECURITY.md says by how much.
    return Finding("", "holds" if furthest <= 1 + 1e-6 else "refuted", words)


def _share_of_bound(own: Release, other: Release) -> float:
    """Return how far a value moved, over the sensitivity that scale and noise multiplier imply; 0 if not known."""
    if own.kind == "RandomParity" or own.scale == 0 or own.value.shape != other.value.shape:
        return 0.0
    moved = np.abs(np.asarray(own.value, dtype=np.float64) - other.value)
    match own.event:
        case GaussianEvent(noise_multiplier=multiplier):
            return float(np.linalg.norm(moved)) * multiplier / own.scale
        case ConcentratedEvent(rho=rho):
            return float(np.linalg.norm(moved)) * math.sqrt(0.5 / rho) / own.scale
        case event if own.kind in ("Laplace", "DiscreteLaplace"):
            return float(moved.sum()) / cost_of(event, 0.0) / own.scale
        case event:
            # A choice by scores: one of them moves by at most scale times epsilon.
            return float(moved.max(initial=0.0)) / cost_of(event, 0.0) / own.scale


def _no_leak(made_up: _MadeUp, pairs: Sequence[Pair], pace: Pace) -> Finding:
    subject = _Refitted(made_up)
    leaking: set[str] = set()
    for pair in pairs:
        pace.report("replaying refits", 0.0)
        leaking.update(leaks(lambda: subject, *pair, unit=made_up.unit))
    if leaking:
        return Finding(
            "", "refuted", f"depends on private rows other than through releases: {', '.join(sorted(leaking))}"
        )
    return Finding("", "holds", f"bit-identical on {len(pairs)} pairs of neighbours, given the same released values")


class _Refitted:
    """Fits a new estimator each time it is fitted, with new people if there are any."""

    def __init__(self, made_up: _MadeUp) -> None:
        self.adjacency = made_up.adjacency
        self._made_up = made_up

    def fit(self, *data: Any, ledger: Ledger) -> Any:
        """Fit on `data`."""
        return self._made_up.fit(data, ledger)


# The noise that is drawn.


@dataclass(frozen=True)
class _Sizes:
    """Sizes of drawn noise: squares of normal noise or absolute values of Laplace noise, over their claimed mean.

    Parameters
    ----------
    sizes : ndarray
        Each has mean 1 if the noise is as claimed.
    variance : float
        Of each of them, if the noise is as claimed.
    halved : float
        Their mean if the noise is half as large.
    """

    sizes: NDArray[np.float64]
    variance: float
    halved: float


def _drawn_noise(made_up: _MadeUp, confidence: float, seed: int | None, pace: Pace) -> Finding:
    parts: list[_Sizes] = []
    rows = made_up.rows()
    for number in range(_MOST_MEASURED_REFITS):
        pace.report("measuring drawn noise", 0.0)
        parts += _noise_of_a_fit(made_up, rows, None if seed is None else seed + number)
        if not parts or sum(len(part.sizes) for part in parts) >= _ENOUGH_DRAWS:
            break
    n = sum(len(part.sizes) for part in parts)
    if not n:
        return Finding("", "undecided", "not decided: the method draws choices, whose noise is not seen")
    mean = sum(float(part.sizes.sum()) for part in parts) / n
    deviation = math.sqrt(sum(len(part.sizes) * part.variance for part in parts)) / n
    # Both distributions are skewed to the right: below the mean, they have lighter tails than the normal one.
    limit = 1.0 + float(ndtri(1.0 - confidence)) * deviation
    halved = sum(len(part.sizes) * part.halved for part in parts) / n
    words = f"{mean:.3f} times its claimed mean size over {n:,} draws; below {limit:.3f} would refute it"
    if mean < limit:
        return Finding("", "refuted", words)
    if halved + deviation > limit:
        return Finding("", "undecided", f"{words}, and so few draws might not detect half the noise")
    return Finding("", "holds", f"{words}, and half the noise would give {halved:.3f}")


def _noise_of_a_fit(made_up: _MadeUp, rows: Data, seed: int | None) -> list[_Sizes]:
    """Return the sizes of all noise that one refit draws, from the noise source of real fits."""
    ledger = Ledger(math.inf, adjacency=made_up.adjacency, unit=made_up.unit, random_state=seed)
    original, sizes = ledger._draw, []

    def draw(mechanism: Mechanism, bounded: Bounded, scale: float, random: Random) -> Any:
        value = np.array(bounded.value)
        noisy = original(mechanism, bounded, scale, random)
        drawn = _sizes(type(mechanism).__name__, np.ravel(np.asarray(noisy) - value), scale)
        if drawn is not None:
            sizes.append(drawn)
        return noisy

    ledger._draw = draw
    made_up.fit(rows, ledger)
    return sizes


def _sizes(kind: str, noise: NDArray[Any], scale: float) -> _Sizes | None:
    """Return the sizes of noise that a mechanism of this kind drew at this scale; None for choices."""
    if kind == "Gaussian":
        return _Sizes((noise / scale) ** 2, 2.0, 0.25)
    if kind == "Laplace":
        return _Sizes(np.abs(noise) / scale, 1.0, 0.5)
    if kind in ("DiscreteGaussian", "DiscreteLaplace"):
        power = 2 if kind == "DiscreteGaussian" else 1
        (first, second), (halved, _) = (_moments(power, width) for width in (scale, scale / 2))
        if first < _NO_NOISE:
            return None
        return _Sizes(np.abs(noise.astype(np.float64)) ** power / first, second / first**2 - 1.0, halved / first)
    return None


def _moments(power: int, scale: float) -> tuple[float, float]:
    """Return the first two moments of |k|^power for discrete Laplace (power 1) or Gaussian (power 2) noise."""
    if scale > _WIDE_NOISE:
        return (scale, 2 * scale**2) if power == 1 else (scale**2, 3 * scale**4)
    k = np.arange(1.0, 2 + math.ceil(60 * scale))
    weights = 2 * np.exp(-k / scale if power == 1 else -0.5 * (k / scale) ** 2)
    total = 1.0 + float(weights.sum())
    return float((weights * k**power).sum()) / total, float((weights * k ** (2 * power)).sum()) / total


# The attack.


def _attack(made_up: _MadeUp, fits: int, confidence: float, seed: int | None, pace: Pace) -> Finding:
    """Attack refits on the pair of neighbours that they tell apart best, as the battery attacks estimators."""
    if made_up.adjacency is Adjacency.REPLACE_ONE and _kinds(made_up) & {SampledEvent}:
        return Finding("", "undecided", "not attacked: releases on samples, neighbours by replace-one")
    terms = _terms(made_up, fits, confidence)
    subject = terms.made_up
    pair = max(subject.pairs(), key=lambda pair: _separation(*subject.replayed(pair)))
    entries = subject.record(pair[0]).entries
    claimed = cost_of(add_entries({}, entries), terms.delta, adjacency=subject.adjacency)

    def fit(noise: float, start: int | None) -> ReleaseScores:
        first = secrets.randbits(48) if start is None else start
        return ReleaseScores(lambda: _Refitted(subject), *pair, noise=noise, seed=first, unit=subject.unit)

    case = Case(
        "refit",
        type(made_up.saved.model),
        lambda: claimed,
        terms.delta,
        terms.method,
        fit,
        *pair,
        heavy=True,
        effort=terms.effort,
        threshold=terms.threshold,
    )
    runs = round(terms.effort * fits)
    row = audit_case(
        case, runs, confidence, seed=seed, report=lambda share: pace.report("attacking refits", share, of=1.0)
    )
    if row.measured is None or row.halved is None:
        raise TimeUp
    budget = "" if made_up is subject else f"at epsilon = {subject.params['epsilon']:.3g}, where fewer refits decide, "
    words = (
        f"{row.words}: epsilon >= {row.measured.epsilon_lower:.3g} of {claimed:.3g} claimed "
        f"{budget}by {runs:,} refits on each of two data sets; "
        f"half the noise gave {row.halved.epsilon_lower:.3g}"
    )
    return Finding("", row.verdict, words)


@dataclass(frozen=True)
class _Terms:
    """How refits are attacked: with which budget, at which delta, by which bound, and with how many times the fits."""

    made_up: _MadeUp
    delta: float
    method: str
    effort: float
    threshold: float | None = None


def _kinds(made_up: _MadeUp) -> set[type[Event]]:
    """Return the kinds of releases of a refit."""
    return {type(entry.event) for entry in made_up.record(made_up.rows()).entries}


def _terms(made_up: _MadeUp, fits: int, confidence: float) -> _Terms:
    """Return the budget at which the fewest refits decide: the model's own, unless it would need too many."""
    kinds, delta = _kinds(made_up), made_up.params["delta"]
    if SampledEvent in kinds:
        return _Terms(made_up.with_budget(*_ATTACKED_SAMPLED), _ATTACKED_SAMPLED[1], "any", _SAMPLED_EFFORT)
    if ConcentratedEvent in kinds:
        concentrated = made_up.with_budget(*_ATTACKED_CONCENTRATED)
        return _Terms(concentrated, _ATTACKED_CONCENTRATED[1], "any", _CONCENTRATED_EFFORT)
    if kinds <= {GaussianEvent}:
        mu = gaussian_mu(made_up.params["epsilon"], delta)
        # Half the noise doubles mu: each kind of error then has probability Φ(-mu).
        many = 10**9
        errors = np.full((1, 2), round(many * float(ndtr(-mu))))
        seen = LowerBound(0.0, delta, "gaussian", many, 0.0, 0.0, 0.0, confidence, many, "errors", errors, many)
        enough = seen.runs_to_refute(made_up.params["epsilon"]) <= fits
        larger = made_up.with_budget(gaussian_epsilon(_ATTACKED_MU, delta), delta)
        return _Terms(made_up if enough else larger, delta, "gaussian", 1.0, ReleaseScores.threshold)
    if kinds <= {PureEvent}:
        own = 1.0 <= made_up.params["epsilon"] <= 3.0
        pure = made_up if own else made_up.with_budget(_ATTACKED_PURE, delta)
        return _Terms(pure, 0.0, "any", _PURE_EFFORT, ReleaseScores.threshold)
    return _Terms(made_up.with_budget(_ATTACKED_LAPLACE, delta), 0.0, "any", _LAPLACE_EFFORT)


def _separation(tape: Tape, other: Tape | None) -> float:
    """Return how far the releases of two neighbours are apart, in noise scales."""
    if other is None:
        return 0.0
    moved = (
        float(np.square(np.asarray(own.value, dtype=np.float64) - theirs.value).sum()) / own.scale**2
        for own, theirs in zip(tape.releases, other.releases, strict=True)
        if own.scale > 0 and own.value.shape == theirs.value.shape
    )
    return math.sqrt(math.fsum(moved))
