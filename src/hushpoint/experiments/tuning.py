"""The same tuning effort for every method: a grid of as many settings, tried on separate data of the same law."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console

Settings = dict[str, Any]


def product(**choices: Sequence[Any]) -> list[Settings]:
    """Every combination of the choices."""
    names = list(choices)
    return [dict(zip(names, values, strict=True)) for values in itertools.product(*choices.values())]


def choices(grid: Sequence[Settings]) -> dict[str, list[Any]]:
    """The values of every parameter in a grid, in the order in which they come."""
    return {name: list(dict.fromkeys(settings[name] for settings in grid)) for name in grid[0]}


def say_grids(console: Console, grids: Mapping[str, Sequence[Settings]]) -> None:
    """Print what each grid tries, by the label of its method."""
    for label, grid in grids.items():
        words = (
            f"{name} {', '.join('none' if value is None else f'{value:g}' for value in values)}"
            for name, values in choices(grid).items()
        )
        console.print(f"  {label}: {'; '.join(words)}", highlight=False)
    console.print()


def require_equal_effort(grids: Mapping[str, Sequence[Settings]]) -> int:
    """The number of settings of every grid; an error where they differ."""
    sizes = {name: len(grid) for name, grid in grids.items()}
    if len(set(sizes.values())) != 1:
        raise ValueError(f"grids have {sizes} settings. Give every method the same number.")
    return next(iter(sizes.values()))


def tuned(grid: Sequence[Settings], score: Callable[[Settings], Sequence[float]]) -> dict[str, Any]:
    """The setting with the lowest mean score (the first of equals), its place in the grid, and every mean.

    A setting whose score is not a number, or for which there is no guarantee, counts as infinitely bad.
    """
    means = []
    for settings in grid:
        scores = list(score(settings))
        mean = math.fsum(scores) / len(scores) if scores and all(map(math.isfinite, scores)) else math.inf
        means.append(mean)
    best = min(range(len(grid)), key=lambda k: means[k])
    if math.isinf(means[best]):
        return {"chosen": None, "means": [None] * len(grid)}
    finite = [mean if math.isfinite(mean) else None for mean in means]
    return {"chosen": dict(grid[best]), "place": best, "means": finite}
