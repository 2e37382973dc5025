"""`audit_all`: lower bounds on epsilon for every mechanism and every estimator, each with a verdict.

Each is attacked with its own noise and with half of it. A bound above the claim refutes the claim. Half the noise is a
planted bug: only an attack that detects it could have detected such a flaw, so only then is the verdict "holds".
"""

from dataclasses import dataclass

from dpadapt.audit.measured_epsilon import LEAST_RUNS, LowerBound, lower_bound

# Added to the seed for the runs with half the noise, so that they do not repeat the noise of the others.
_SEED_SHIFT_OF_HALVED_RUNS = 10**6


@dataclass(frozen=True)
class AuditRow:
    """The result for one case: the bounds with its own noise and with half of it."""

    name: str
    claimed: float
    delta: float
    measured: LowerBound
    halved: LowerBound
    tight: bool

    @property
    def holds(self):
        """Whether the measured bound is compatible with the claim."""
        return not self.measured.refutes(self.claimed)

    @property
    def caught(self):
        """Whether the planted bug was detected."""
        return self.halved.refutes(self.claimed)

    @property
    def verdict(self):
        """Whether the claim is refuted, holds against an attack that detects half the noise, or neither."""
        if not self.holds:
            return "refuted"
        return "holds" if self.caught else "undecided"

    def __str__(self):
        bounds = f"{self.measured.epsilon_lower:7.3f} {self.halved.epsilon_lower:7.3f}"
        needed = "" if self.caught else f", {self.halved.runs_to_refute(self.claimed):g} runs may decide"
        return f"{self.name:70} {self.delta:7.3g} {self.claimed:7.3f} {bounds}  {self.verdict}{needed}"


def audit_all(cases, runs=20_000, fits=100, *, confidence=0.99, seed=None):
    """Return a row for each case.

    Every case detects half the noise with these `runs` of a mechanism or `fits` of an estimator, times its `effort`;
    about half of them would do for most. With probability `confidence` no correct claim is refuted, over all cases
    together: each bound has its share of the risk.
    """
    each = 1.0 - (1.0 - confidence) / len(cases)
    sizes = [max(LEAST_RUNS, round(case.effort * (fits if case.heavy else runs))) for case in cases]
    return [audit_case(case, size, each, seed) for case, size in zip(cases, sizes, strict=True)]


def audit_case(case, runs, confidence, seed=None):
    """Audit one case with `runs` runs on each data set; `confidence` is that of this case's bounds alone."""
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
        )
        for noise, shift in ((1.0, 0), (0.5, _SEED_SHIFT_OF_HALVED_RUNS))
    )
    return AuditRow(case.name, case.claimed, case.delta, measured, halved, case.tight)


def table(rows):
    """Return the rows as text, with the number of each verdict below them."""
    counts = {verdict: sum(row.verdict == verdict for row in rows) for verdict in ("holds", "refuted", "undecided")}
    head = f"{'lower bounds on epsilon':70} {'delta':>7} {'claimed':>7} {'own':>7} {'half':>7}"
    counted = ", ".join(f"{verdict}: {count}" for verdict, count in counts.items())
    return "\n".join([head, *map(str, rows), f"{len(rows)} claims; {counted}"])
