"""Paper 3's own experiments: Subsample-Test-Reweigh on Appendices B, C and D, beside the paper's figures.

R. Kohen, O. Sheffet. Transfer Learning In Differential Privacy's Hybrid-Model. ICML 2022. Part of `python -m benchmarks
hybrid`. All populations are synthetic, so no files are needed. Epsilon is 0.5 and delta 1e-4 throughout, for the
curator's records and for each person, as in the paper. Seconds are CPU seconds of the fit, tests by people included.
"""

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data.synthetic import APPENDIX_C, APPENDIX_D_EASY, APPENDIX_D_HARD, GaussianPair
from benchmarks.hybrid.reweigh_claims import DELTA, EPSILON, SIX, Row
from benchmarks.hybrid.separator import SeparatorLearner
from benchmarks.theory.reweigh import parity_rows
from dpadapt.accounting.ledger import Ledger
from dpadapt.hybrid.agents import SimulatedAgents
from dpadapt.hybrid.questions import Squares
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.papers.reweigh.learners import DescentLearner, Learner
from dpadapt.papers.reweigh.learners_discrete import ParityLearner, SparseLearner, most_frequent
from dpadapt.papers.reweigh.parity import NOTHING, equations, pack
from dpadapt.papers.reweigh.reweigh import SubsampleTestReweigh

# Appendix B: private parity at the sizes of Corollary B.3, and at smaller sizes that suffice.


PARITY_EPSILON, PARITY_BETA = 0.5, 1e-3
# Our number of batches, and the records that a batch keeps per bit. Chosen by hand; neighbouring values not compared.
PARITY_BATCHES, KEPT_PER_BIT = 12, 4.0
_DRAWN_AT_ONCE = 100_000  # records


def parity_row(n_features: int, share: float, paper: bool, *, seeds: int) -> dict[str, Any]:
    """Learn a random parity of bits that are set with probability `share`, with the paper's constants or ours."""
    # The divergence of unbiased bits from these bits; the corollary is for polynomial divergences.
    divergence = (1 / (4 * share * (1 - share))) ** n_features - 1
    learner, n = ParityLearner(PARITY_BATCHES), 0
    if paper:
        batches, each = parity_rows(n_features, PARITY_BETA, PARITY_EPSILON, max(1.0, divergence))
        learner, n = ParityLearner(batches, keep=PARITY_EPSILON / 4), batches * each
    mechanism = learner.mechanism(PARITY_EPSILON, n_features)
    if not paper:
        keep = mechanism.scale(equations(np.zeros((1, 1), dtype=np.uint64), np.zeros(1, bool)), Adjacency.REPLACE_ONE)
        n = int(PARITY_BATCHES * KEPT_PER_BIT * n_features / keep)
    runs = []
    for seed in range(seeds):
        random = np.random.default_rng([seed, n_features])
        secret = random.random(n_features) < 0.5
        words, labels = draw(n, secret, share, random)
        ledger = Ledger(PARITY_EPSILON, adjacency=Adjacency.REPLACE_ONE, random_state=seed)
        start = time.process_time()
        answers = ledger.release(mechanism, equations(words, labels), label="parity")
        answer = most_frequent(answers)
        given = (answers != NOTHING).all(axis=1)
        runs.append(
            {
                "seconds": time.process_time() - start,
                "right": float(answer is not None and bool((answer == secret).all())),
                "answers": float(given.sum()),
                "wrong": float(((answers[given] == 1) != secret).any(axis=1).sum()),
            }
        )
    row: dict[str, Any] = {"n": n, "batches": learner.n_batches, "divergence": divergence, "features": n_features}
    return row | {"paper": paper} | {name: [run[name] for run in runs] for name in runs[0]}


def draw(
    n: int, secret: NDArray[np.bool_], share: float, random: np.random.Generator
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Draw packed records of bits and their labels, the parity of the secret bits."""
    words, labels = [], []
    for start in range(0, n, _DRAWN_AT_ONCE):
        size = min(_DRAWN_AT_ONCE, n - start)
        # One byte per bit: `share` is rounded to a multiple of 1/256.
        bits = random.integers(0, 256, (size, len(secret)), dtype=np.uint8) < round(256 * share)
        labels.append(np.count_nonzero(bits[:, secret], axis=1) % 2 == 1)
        words.append(pack(bits))
    return np.concatenate(words), np.concatenate(labels)


# Appendices C and D.


# The ball of Appendix D as an ellipsoid: six weights that differ up to fourfold.
SQUEEZED = GaussianPair(200, 6, 1.0, 0.4, 0.3, "ball", spread=4.0)
# Only the six relevant columns of Appendix D, hard.
APPENDIX_D_SIX = GaussianPair(6, 6, 1.0, 0.4, 0.3, "ball")
TEST_ROWS = 20_000
_GENERIC = DescentLearner(Squares(1.0))


@dataclass(frozen=True)
class Setting:
    """One row of a table: a population, a learner, and how much data.

    Parameters
    ----------
    part : str
    name : str
        Its name in the table.
    pair : GaussianPair
    learner : Learner
    n : int
        The curator's records.
    alpha : float
    adjacency : str
    target : float
        The error that counts as success.
    epsilon : float
        inf: not private.
    people : int
        Number of people.
    rounds : int
    test_error : float
    learning_rate : float or None
    """

    part: str
    name: str
    pair: GaussianPair
    learner: Learner
    n: int
    alpha: float
    adjacency: str = "replace-one"
    target: float = 0.16
    epsilon: float = EPSILON
    people: int = 40_000
    rounds: int = 1
    test_error: float = 1e-3
    learning_rate: float | None = None


@dataclass(frozen=True)
class Piece:
    """The work of one process at a time: a setting, or a parity, on some seeds."""

    part: str
    key: str
    seeds: int


def _settings() -> list[Setting]:
    squares = DescentLearner(Squares(0.1))
    easy: dict[str, Any] = {"part": "Appendix D, easy", "pair": APPENDIX_D_EASY, "learner": squares, "alpha": 0.08}
    hard: dict[str, Any] = {"part": "Appendix D, hard", "pair": APPENDIX_D_HARD, "alpha": 0.0125, "target": 0.02}
    hard |= {"people": 200_000, "test_error": 0.05}
    knows, guesses, neither = SparseLearner(6, exactly=True), SparseLearner(), SparseLearner(passes=3)
    return [
        Setting(name="descent, one round", n=1_000, adjacency="add-remove", **easy),
        Setting(name="descent, one round", n=2_000, **easy),
        Setting(name="descent, four rounds paid", n=8_000, rounds=4, people=80_000, **easy),
        Setting(name="descent, not private", n=2_000, epsilon=math.inf, **easy),
        Setting(name="knows k", learner=knows, n=150_000, **hard),
        Setting(name="does not know k", learner=guesses, n=150_000, **hard),
        Setting(name="does not know k", learner=guesses, n=100_000, **hard),
        Setting(name="knows k, not private", learner=knows, n=75_000, epsilon=math.inf, **hard),
        Setting(name="neither k, radius nor weights", learner=neither, n=1_000_000, **hard),
        Setting(name="the same, weights differ", learner=neither, n=1_000_000, **{**hard, "pair": SQUEEZED}),
        Setting(name="descent on all 200 squares", learner=_GENERIC, n=150_000, **hard),
        Setting(
            part=SIX,
            name="descent, eight rounds",
            pair=APPENDIX_D_SIX,
            learner=DescentLearner(Squares(1.0, 1.0)),
            n=600_000,
            alpha=0.02,
            target=0.08,
            people=800_000,
            rounds=8,
            test_error=0.05,
        ),
        Setting(
            part="Appendix C",
            name="separator, not private",
            pair=APPENDIX_C,
            learner=SeparatorLearner(),
            n=90_000,
            alpha=0.01,
            target=0.02,
            epsilon=math.inf,
            people=150_000,
            rounds=4,
            test_error=0.05,
            learning_rate=2.0,
        ),
    ]


SETTINGS = {f"{one.part}: {one.name}, n = {one.n:,}, {one.adjacency}": one for one in _settings()}
PARITIES = {
    "d = 128, even bits, the paper's sizes": (128, 0.5, True),
    "d = 128, a bit is set with probability 0.45, the paper's sizes": (128, 0.45, True),
    "d = 64, even bits, the paper's sizes": (64, 0.5, True),
    "d = 128, even bits, ours": (128, 0.5, False),
    "d = 128, a bit is set with probability 0.2, ours": (128, 0.2, False),
}


# Numbers in the curator's table of a quick run, at most. A fit copies the table, and takes up to three times its size.
_MOST_QUICK_NUMBERS = 40_000_000


def pieces(*, quick: bool) -> list[Piece]:
    """Return all pieces of work, the longest first."""
    todo = []
    for key, setting in SETTINGS.items():
        # A quick run has less than a gigabyte of memory.
        if quick and setting.n * setting.pair.n_features > _MOST_QUICK_NUMBERS:
            continue
        # Twenty seeds; five where millions of numbers must be drawn or without privacy; two for the generic learner.
        heavy = setting.n * setting.pair.n_features > 4e7 or not math.isfinite(setting.epsilon)
        full = 2 if setting.learner is _GENERIC else 5 if heavy else 20
        todo.append(Piece("settings", key, (1 if setting.n >= 50_000 else 5) if quick else full))
    todo.sort(key=lambda piece: -piece.seeds * SETTINGS[piece.key].n * SETTINGS[piece.key].pair.n_features)
    return todo + [Piece("parity", key, 1 if quick else 3) for key in PARITIES]


def measure(piece: Piece) -> Row:
    """Return the row of one piece."""
    if piece.part == "parity":
        return {"part": "Appendix B", "name": piece.key, **parity_row(*PARITIES[piece.key], seeds=piece.seeds)}
    setting = SETTINGS[piece.key]
    runs = [_fit(setting, seed) for seed in range(piece.seeds)]
    row: Row = {
        "part": setting.part,
        "name": setting.name,
        "n": setting.n,
        "adjacency": setting.adjacency if math.isfinite(setting.epsilon) else "not private",
        "target": setting.target,
        "divergence": setting.pair.divergence,
        "people": setting.people,
    }
    return row | {name: [run[name] for run in runs] for name in runs[0]}


def _fit(setting: Setting, seed: int) -> dict[str, float]:
    """Draw, fit and test once."""
    pair, single = setting.pair, setting.n >= 50_000 and setting.adjacency != "add-remove"
    X, y = pair.curator(setting.n, seed=seed, single=single)
    X_people, y_people = pair.target(setting.people + TEST_ROWS, seed=seed, single=single)
    X_test, y_test = X_people[-TEST_ROWS:], y_people[-TEST_ROWS:]
    # Without privacy a person's answer is true except with probability about e^-20.
    answers = setting.epsilon if math.isfinite(setting.epsilon) else 20.0
    agents = SimulatedAgents(X_people[:-TEST_ROWS], y_people[:-TEST_ROWS], answers, random_state=seed)
    model = SubsampleTestReweigh(
        setting.learner,
        alpha=setting.alpha,
        epsilon=setting.epsilon,
        delta=DELTA,
        # With a larger divergence the weights would concentrate on less than one record.
        divergence=min(pair.divergence, 100.0),
        n_rounds=setting.rounds,
        learning_rate=setting.learning_rate,
        test_error=setting.test_error,
        classes=[0, 1],
        adjacency=setting.adjacency,
        n_rows=setting.n if setting.adjacency == "add-remove" else None,
        random_state=seed,
    )
    start = time.process_time()
    model.fit(X, y, agents=agents)
    seconds = time.process_time() - start
    predicted = model.predict(X_test)
    return {
        "error": _error(predicted, y_test),
        "balanced": _balanced(predicted, y_test),
        "constant": float(min(np.mean(y_test == 0), np.mean(y_test == 1))),
        "S-only, tested": model.baselines_["S-only"].estimate,
        "constant, tested": model.baselines_["constant"].estimate,
        "rounds": float(model.rounds_),
        "asked": float(model.users_asked_),
        "accepted": float(model.accepted_),
        "seconds": seconds,
        "epsilon": model.privacy_.epsilon,
    }


def _error(predicted: NDArray[Any], y: NDArray[Any]) -> float:
    return float(np.mean(predicted != y))


def _balanced(predicted: NDArray[Any], y: NDArray[Any]) -> float:
    return float(np.mean([np.mean(predicted[y == label] != label) for label in (0, 1)]))
