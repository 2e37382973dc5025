"""`audit_all`: lower bounds on epsilon for every mechanism and every estimator, each with a verdict in words.

Each is attacked with its own noise and with half of it. A bound above the claim refutes the claim. Half the noise is a
planted bug: only an attack that detects it could have detected such a flaw, so only then does the audit say "holds".
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from dpadapt import checks
from dpadapt.audit.battery_cases import Case, all_cases
from dpadapt.audit.measured_epsilon import LEAST_RUNS, LowerBound, check_confidence, lower_bound

Verdict = Literal["holds", "refuted", "undecided"]

# Runs of each mechanism and fits of each estimator on each data set. Every case detects half the noise with these,
# times its `effort`; about half of them would do for most.
DEFAULT_RUNS, DEFAULT_FITS = 20_000, 100
# The probability that no correct claim is refuted, over all cases together.
DEFAULT_CONFIDENCE = 0.99
# Added to the seed for the runs with half the noise, so that they do not repeat the noise of the others.
_SEED_SHIFT_OF_HALVED_RUNS = 10**6
# Runs of a case that can draw many at once by which its time is estimated beforehand. Chosen by hand.
_RUNS_TO_TIME = 20


@dataclass(frozen=True)
class AuditRow:
    """The result of the audit of one mechanism or estimator.

    Parameters
    ----------
    name : str
    claimed : float
        Epsilon at `delta`, by the accountant; NaN if the time was up before it was computed.
    delta : float
    measured : LowerBound or None
        With its own noise; None if the time was up before.
    halved : LowerBound or None
        With half the noise: a planted bug, which the same claim does not cover.
    heavy : bool
        Whether a run is a whole fit.
    effort : float
        How many runs were made for each that was asked for.
    tight : bool
        Whether the claim is exact for the data sets used.
    """

    name: str
    claimed: float
    delta: float
    measured: LowerBound | None
    halved: LowerBound | None
    heavy: bool = False
    effort: float = 1.0
    tight: bool = False

    @property
    def holds(self) -> bool:
        """Whether the measured bound is compatible with the claim, as far as it was measured."""
        return self.measured is None or not self.measured.refutes(self.claimed)

    @property
    def caught(self) -> bool:
        """Whether the planted bug was detected."""
        return self.halved is not None and self.halved.refutes(self.claimed)

    @property
    def verdict(self) -> Verdict:
        """Whether the claim is refuted, holds against an attack that detects half the noise, or neither."""
        if not self.holds:
            return "refuted"
        return "holds" if self.caught else "undecided"

    @property
    def words(self) -> str:
        """The verdict, and for an undecided case what would decide it."""
        if self.verdict != "undecided":
            return "holds" if self.verdict == "holds" else "REFUTED"
        if self.halved is None:
            return "not decided: the time was up"
        unit = "fits" if self.heavy else "runs"
        for favourable, how in ((False, "about {:,} would do"), (True, "more than {:,} are needed")):
            needed = self.halved.runs_to_refute(self.claimed, favourable=favourable) / self.effort
            if needed < math.inf:
                return f"too few {unit} to decide ({how.format(_rounded(needed))})"
        return f"not decided: this attack is too weak, and more {unit} would not help"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        bounds = {"measured": self.measured, "halved": self.halved}
        return {
            "name": self.name,
            "delta": self.delta,
            "claimed": None if math.isnan(self.claimed) else self.claimed,
            **{name: None if bound is None else bound.epsilon_lower for name, bound in bounds.items()},
            "runs": 0 if self.measured is None else self.measured.runs,
            "verdict": self.verdict,
            "words": self.words,
        }


def _rounded(number: float) -> int:
    """Return a number of at least 1 rounded up to two digits."""
    unit = 10 ** max(0, len(str(int(number))) - 2)
    return int(-(-number // unit) * unit)


class TimeUp(Exception):
    """The time for an audit is up; what was finished before is kept."""


class Pace:
    """How far an audit is, and when it must end.

    Parameters
    ----------
    seconds : float, optional
        `TimeUp` is raised after this long. Default: never.
    show : callable, optional
        Called with what is being done and the share of all work that is done, again and again.
    """

    def __init__(self, seconds: float | None = None, show: Callable[[str, float], None] | None = None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds
        self._show = show
        self._total = self._before = 0.0

    def expect(self, work: float) -> None:
        """Set the amount of all work, in any unit."""
        self._total = work

    def report(self, what: str, share: float, *, of: float = 0.0) -> None:
        """Say which share is done of the current part, which is this much work."""
        if self._show is not None:
            self._show(what, min(1.0, (self._before + share * of) / self._total) if self._total else 0.0)
        if self._end is not None and time.monotonic() > self._end:
            raise TimeUp

    def finish(self, work: float) -> None:
        """End the current part, which was this much work."""
        self._before += work


def audit_all(
    runs: int = DEFAULT_RUNS,
    fits: int = DEFAULT_FITS,
    *,
    confidence: float = DEFAULT_CONFIDENCE,
    seed: int | None = None,
    cases: Sequence[Case] | None = None,
    pace: Pace | None = None,
) -> list[AuditRow]:
    """Audit every mechanism and every private estimator.

    Parameters
    ----------
    runs : int, default=20_000
        Draws of each mechanism on each data set, at least 30; a case may need more or fewer, see `Case.effort`.
    fits : int, default=100
        Fits of each estimator on each data set, at least 30, as above.
    confidence : float, default=0.99
        Probability that no correct claim is refuted, over all cases together: each bound has its share of the risk.
    seed : int, optional
        For tests. Default: mechanisms draw secure noise.
    cases : sequence of Case, optional
        Default: `all_cases()`.
    pace : Pace, optional
        Shows progress and limits the time. Cases that are not finished in time are undecided.

    Returns
    -------
    list of AuditRow
    """
    runs = checks.count(runs, "runs", least=LEAST_RUNS)
    fits = checks.count(fits, "fits", least=LEAST_RUNS)
    confidence = check_confidence(confidence)
    pace = Pace() if pace is None else pace
    cases = all_cases() if cases is None else cases
    each = 1.0 - (1.0 - confidence) / max(1, len(cases))
    sizes = [max(LEAST_RUNS, round(case.effort * (fits if case.heavy else runs))) for case in cases]
    rows: list[AuditRow] = []
    try:
        times = [4 * size * _seconds_per_run(case, pace) for case, size in zip(cases, sizes, strict=True)]
        pace.expect(sum(times))
        for number, (case, size, expected) in enumerate(zip(cases, sizes, times, strict=True), 1):
            report = partial(pace.report, f"{number} of {len(cases)}: {case.name}", of=expected)
            rows.append(audit_case(case, size, each, seed=seed, report=report))
            pace.finish(expected)
    except TimeUp:
        rows += [AuditRow(case.name, math.nan, case.delta, None, None) for case in cases[len(rows) :]]
    return rows


def audit_case(
    case: Case,
    runs: int,
    confidence: float,
    *,
    seed: int | None = None,
    report: Callable[[float], None] = lambda share: None,
) -> AuditRow:
    """Audit one case with `runs` runs on each data set; `report` is called with the share of all runs that were made.

    `confidence` is that of this case's bounds alone.
    """
    made = 0

    def tick(new: int) -> None:
        nonlocal made
        made += new
        report(made / (4 * runs))

    measured, halved = (
        lower_bound(
            case.fit(noise, None if seed is None else seed + shift),
            case.D,
            case.D_neighbour,
            delta=case.delta,
            runs=runs,
            confidence=confidence,
            method=case.method,
            threshold=case.threshold,
            tick=tick,
        )
        for noise, shift in ((1.0, 0), (0.5, _SEED_SHIFT_OF_HALVED_RUNS))
    )
    return AuditRow(case.name, case.claimed, case.delta, measured, halved, case.heavy, case.effort, case.tight)


def _seconds_per_run(case: Case, pace: Pace) -> float:
    """Return about how long one run of a case takes."""
    pace.report("estimating the time", 0.0)
    fit, runs = case.fit(1.0, None), _RUNS_TO_TIME
    start = time.perf_counter()
    if hasattr(fit, "many"):
        fit.many(case.D, runs)
    else:
        fit(case.D)
        runs = 1
    return (time.perf_counter() - start) / runs


def summary(rows: Sequence[AuditRow]) -> str:
    """Return how many claims hold, are refuted or undecided, in one line."""
    counts = {verdict: sum(row.verdict == verdict for row in rows) for verdict in ("holds", "refuted", "undecided")}
    parts = [f"{counts['holds']} of {len(rows)} claims hold", f"refuted: {counts['refuted']}"]
    return ", ".join([*parts, f"undecided: {counts['undecided']}"]) + "."
