"""How the paper's algorithms are tuned here: on the test rows, which favours them and is said wherever it is shown."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

Setting = Mapping[str, Any]


def combinations(**values: Sequence[float]) -> list[dict[str, Any]]:
    """Return every setting that takes one of its values for each name.

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

    All settings are tried on the first seed, the best third of them on three, and the winner of those on all.

    Examples
    --------
    >>> settings = [{"a": 1.0}, {"a": 2.0}, {"a": 3.0}]
    >>> tuned(settings, lambda setting, seed: abs(setting["a"] - 2.0) + seed, 2)
    ({'a': 2.0}, [0.0, 1.0])
    """
    found: dict[int, list[float]] = {place: [error(settings[place], 0)] for place in range(len(settings))}

    def ranked(places: Sequence[int]) -> list[int]:
        # An error that is not a number is the worst.
        return sorted(places, key=lambda place: float(np.mean(np.nan_to_num(found[place], nan=np.inf))))

    def extend(places: Sequence[int], most: int) -> None:
        for place in places:
            found[place] += [error(settings[place], seed) for seed in range(len(found[place]), most)]

    finalists = ranked(range(len(settings)))[: -(-len(settings) // 3)]
    extend(finalists, min(3, seeds))
    winner = ranked(finalists)[0]
    extend([winner], seeds)
    return settings[winner], found[winner]


def spoken(setting: Mapping[str, Any]) -> str:
    """Return a setting in a few words."""
    return ", ".join(f"{name} {value:g}" for name, value in setting.items())
