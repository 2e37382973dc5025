"""Record what every recipe of the contract releases and predicts, and compare two such records bit for bit.

    .venv/bin/python -m tools.tape before.json
    .venv/bin/python -m tools.tape after.json --compare before.json

A change of structure must change no released value, receipt or prediction. Digests depend on the processor's linear
algebra: compare records of one machine only.
"""

import argparse
import hashlib
import json
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "contract"))
# What a fitted estimator of any kind answers for new rows.
_ANSWERS = ("predict", "predict_proba", "decision_function", "transform")


def digest(values: Any) -> str:
    """Return a digest of numbers or texts, bit for bit."""
    array = np.asarray(values)
    content = array.tobytes() if array.dtype.kind in "biufc" else repr(array.tolist()).encode()
    return hashlib.sha256(f"{array.shape}".encode() + content).hexdigest()[:16]


def answers(estimator: Any, rows: Any) -> dict[str, str]:
    """Return digests of what an estimator predicts for rows; the kind of error where it can't."""
    said = {}
    for name in _ANSWERS:
        if hasattr(estimator, name):
            try:
                said[name] = digest(getattr(estimator, name)(rows))
            except Exception as error:
                said[name] = type(error).__name__
    return said


def record(only: str = "") -> dict[str, Any]:
    """Return the record of every recipe whose name contains `only`, under each of its adjacencies."""
    from cases import CASES

    from dpadapt import Adjacency, audit

    tapes = {}
    for case in CASES:
        for adjacency in case.recipe.adjacencies:
            name = f"{case}, {adjacency}"
            if only not in name:
                continue

            def fit(data: Any, ledger: Any, case: Any = case, adjacency: str = adjacency) -> Any:
                return case.fit(data, ledger=ledger, adjacency=adjacency)

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tape = audit.record(fit, case.data(), adjacency=Adjacency.of(adjacency))
                tapes[name] = {
                    "charges": [str(entry) for entry in tape.entries],
                    "released": [digest(release.noisy) for release in tape.releases],
                    "receipt": digest(str(tape.result.privacy_)),
                    "answers": answers(tape.result, case.to_predict()),
                }
    return tapes


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a record; with --compare return 1 if it differs from an earlier one, and say where."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="where the record is written")
    parser.add_argument("--compare", type=Path, help="an earlier record of the same machine")
    parser.add_argument("--only", default="", help="only recipes whose name contains this text")
    options = parser.parse_args(arguments)
    tapes = record(options.only)
    options.file.write_text(json.dumps(tapes, indent=1), encoding="utf-8")
    if options.compare is None:
        print(f"{len(tapes)} fits recorded")
        return 0
    before = json.loads(options.compare.read_text(encoding="utf-8"))
    before = {name: tape for name, tape in before.items() if options.only in name}
    different = 0
    for name in sorted(before.keys() | tapes.keys()):
        old, new = before.get(name, {}), json.loads(json.dumps(tapes.get(name, {})))
        if parts := [part for part in ("charges", "released", "receipt", "answers") if old.get(part) != new.get(part)]:
            different += 1
            print(f"{name}: {', '.join(parts)}")
    print(f"{len(before.keys() & tapes.keys())} fits compared, {different} differ")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
