"""The tables on which additive private models are compared with linear ones, in two groups.

Rules are made while looking at the "settled" ones. The "held out" ones, of the same kinds, are for one run at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

import laws
import packaged
from dataset import DataSet, Table, data_set
from laws import classes, values

Group = Literal["settled", "held out"]

EVERYWHERE: dict[Group, dict[str, Callable[[], Table]]] = {
    "settled": {
        "digits": packaged.digits,
        "wage": packaged.wage,
        "bikeshare": packaged.bikeshare,
        "orange juice": packaged.orange_juice,
        "stock market": packaged.stock_market,
        "doctor visits": packaged.doctor_visits,
        "waves, classes": lambda: classes(partial(laws.waves, turns=(1, 1, 1.5, 2)), 10_000, 1),
        "valleys, values": lambda: values(laws.valleys, 5000, 2),
        "steps, classes": lambda: classes(laws.steps, 4000, 3),
        "linear, values": lambda: values(laws.linear, 8000, 4, explained=0.6),
        "incomes, classes": lambda: classes(laws.incomes, 20_000, 5),
        "mixed, classes": lambda: classes(laws.mixed, 30_000, 6),
        "rare, classes": lambda: classes(laws.valleys, 50_000, 7, spread=2, share=0.05),
        "missing, values": lambda: values(laws.missing, 10_000, 8),
        "crowd, classes": lambda: classes(laws.crowd, 20_000, 9),
        "few people, classes": lambda: classes(partial(laws.valleys, columns=2), 1000, 10),
    },
    "held out": {
        "default": packaged.default,
        "caravan": packaged.caravan,
        "trading volume": packaged.trading_volume,
        "affairs": packaged.affairs,
        "births": packaged.births,
        "private insurance": packaged.private_insurance,
        "waves, values": lambda: values(partial(laws.waves, turns=(0.5, 1, 3), idle=2), 3000, 11),
        "bumps, classes": lambda: classes(laws.bumps, 20_000, 12),
        "steps, values": lambda: values(partial(laws.steps, columns=6), 12_000, 13),
        "linear, classes": lambda: classes(partial(laws.linear, columns=12), 6000, 14, spread=2),
        "incomes, values": lambda: values(partial(laws.incomes, top=1e7), 10_000, 15, explained=0.5),
        "mixed, values": lambda: values(partial(laws.mixed, levels=(2, 5, 12, 40)), 6000, 16),
        "rare, waves": lambda: classes(partial(laws.waves, turns=(1, 1, 1)), 15_000, 17, share=0.1),
        "missing, classes": lambda: classes(partial(laws.missing, gone=0.3), 8000, 18),
        "crowd, values": lambda: values(partial(laws.crowd, columns=30, useful=6), 40_000, 19, explained=0.4),
        "few people, values": lambda: values(partial(laws.waves, turns=(1, 1.5)), 1400, 20),
        "pairs, classes": lambda: classes(laws.pairs, 15_000, 21),
    },
}
FROM_DIRECTORY: dict[Group, dict[str, Callable[[Path], Table]]] = {
    "settled": {"adult": packaged.adult},
    "held out": {"california": packaged.california},
}


def names(group: Group | None = None, directory: Path | None = None) -> list[str]:
    """The names of a group's data sets, or of all; with Adult and California where there is a directory of them."""
    groups: tuple[Group, ...] = ("settled", "held out") if group is None else (group,)
    return [name for each in groups for name in (*EVERYWHERE[each], *(FROM_DIRECTORY[each] if directory else ()))]


def load(name: str, directory: Path | None = None, split: int = 0) -> DataSet:
    """A data set by its name, its rows split at random by this seed."""
    for group in EVERYWHERE:
        if name in EVERYWHERE[group]:
            return data_set(name, group, EVERYWHERE[group][name](), split)
        if directory and name in FROM_DIRECTORY[group]:
            return data_set(name, group, FROM_DIRECTORY[group][name](directory), split)
    raise KeyError(f"no data set {name!r}; there are {', '.join(names(directory=directory))}")
