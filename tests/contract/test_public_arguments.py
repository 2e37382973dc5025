"""What a statistic is given besides private rows is the same for all private rows, once the releases are the same.

Targets, centres, lists of predictors, factors, coefficients and limits must be public or released. One that was
computed from private rows may move a statistic by less than its bound allows, and is still a leak.
"""

import inspect
import sys

import pytest
from cases import CASES
from requirements import fit_of, neighbours

from dpadapt import Adjacency, audit
from dpadapt.audit.replay import _same
from dpadapt.mechanisms import bounded, bounded_neighbours
from dpadapt.papers.adaptation import bounded_losses

# What makers are given of private rows; everything else is public.
PRIVATE = {"rows", "codes", "ballots", "weights", "ranks", "inside", "losses", "moments", "parts", "counts", "X", "y"}
PRIVATE |= {"shares", "places", "statistic", "matrix", "vector"}
MAKERS = {
    name: getattr(module, name)
    for module in (bounded, bounded_losses, bounded_neighbours)
    for name, function in vars(module).items()
    if inspect.isfunction(function) and function.__module__ == module.__name__ and not name.startswith("_")
}
# Public arguments that are more than a limit. Limits and numbers show in the noise and in the shape of a release, which
# every replay compares.
ARRAYS = {"coef", "public", "public_means", "factors", "targets", "centres", "caps", "group", "kept"}
LIMITS = {"clip_norm", "radius", "limit", "max_norm", "max_target", "dtype"}
# A public function of one row, made from public rows before the charge.
FUNCTIONS = {"mapped"}
# Where statistics with such arguments are used.
PACKAGES = tuple(
    f"dpadapt.{name}." for name in ("papers.adaptation", "papers.reweigh", "papers.source_target", "clustering")
)
USED = [case for case in CASES if not case.recipe.slow and case.cls.__module__.startswith(PACKAGES)]


def watched(monkeypatch):
    """Return a list that grows by the public arguments of every statistic that is made."""
    seen = []

    def watch(name, maker):
        signature = inspect.signature(maker)

        def wrapper(*args, **kwargs):
            given = signature.bind(*args, **kwargs).arguments
            seen.append((name, {key: value for key, value in given.items() if key not in PRIVATE}))
            return maker(*args, **kwargs)

        return wrapper

    for name, maker in MAKERS.items():
        wrapper = watch(name, maker)
        for module in [module for key, module in sys.modules.items() if key.startswith("dpadapt.")]:
            if getattr(module, name, None) is maker:
                monkeypatch.setattr(module, name, wrapper)
    return seen


@pytest.mark.parametrize("case", USED, ids=str)
def test_public_arguments_of_statistics_do_not_depend_on_private_rows(case, monkeypatch):
    seen = watched(monkeypatch)
    tape = audit.record(fit_of(case, "zero-out"), neighbours(case, "zero-out")[0])
    first = list(seen)
    seen.clear()
    audit.replay(fit_of(case, "zero-out"), case.stranger(), tape, adjacency=Adjacency.ZERO_OUT)
    assert [name for name, _ in first] == [name for name, _ in seen]
    for (name, before), (_, after) in zip(first, seen, strict=True):
        assert _same(before, after), name


def test_every_maker_is_watched():
    parameters = {name: set(inspect.signature(maker).parameters) for name, maker in MAKERS.items()}
    known = PRIVATE | ARRAYS | LIMITS | FUNCTIONS
    assert {key for keys in parameters.values() for key in keys if not key.startswith("n_")} == known
    with_arrays = {name for name, keys in parameters.items() if keys & ARRAYS}
    users = {
        key
        for key, module in sys.modules.items()
        if key.startswith("dpadapt.") and not key.startswith("dpadapt.mechanisms")
        if any(getattr(module, name, None) is MAKERS[name] for name in with_arrays)
    }
    assert len(users) > 4
    assert all(user.startswith(PACKAGES) for user in users)
