"""What the benchmarks call a data set: a table as it comes, what is publicly known of it, and a fixed split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Range = tuple[float, float]


class Category(NamedTuple):
    """A column of words with the words that may occur in it."""

    name: str
    values: NDArray[np.str_]
    levels: list[str]


class Table(NamedTuple):
    """Columns and target, before it is said who trains on which rows."""

    columns: dict[str, Range]
    numbers: Array
    categories: list[Category]
    target: Array
    target_range: Range | None = None
    test: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class DataSet:
    """A table with numbers (nan where missing) and categories, and a target: 0 and 1, or a number of a known range.

    ``ranges`` and ``levels`` are what a codebook would say, or round numbers for what is measured, written by somebody
    who had seen the tables: no private choice, but none that is fitted to them either. Where a scale has ends (grey
    values, hours, marks) the range is the scale, and so is what the data reach; Adult's are those of tables.py, which
    are its smallest and largest values. Values may lie outside.
    """

    name: str
    task: Literal["classification", "regression"]
    group: Literal["settled", "held out"]
    columns: list[str]
    numbers: Array
    ranges: list[Range]
    categories: list[Category]
    target: Array
    target_range: Range | None
    train: NDArray[np.intp]
    test: NDArray[np.intp]

    def rows(self, which: NDArray[np.intp]) -> tuple[Array, list[Category], Array]:
        """Numbers, categories and targets of some rows."""
        categories = [Category(name, values[which], levels) for name, values, levels in self.categories]
        return self.numbers[which], categories, self.target[which]


def category(name: str, values: Any, levels: list[Any] | None = None) -> Category:
    """A column of anything as words; without ``levels``, all the codebook has occur, and are read from the column."""
    words = np.asarray(values).astype(str)
    return Category(name, words, sorted(set(words.tolist())) if levels is None else [str(level) for level in levels])


def data_set(name: str, group: Literal["settled", "held out"], table: Table, split: int = 0) -> DataSet:
    """Split at random by this seed, a quarter to test on; or as the table itself says."""
    people = len(table.target)
    if table.test is None:
        order = np.random.default_rng(split).permutation(people)
        test, train = np.sort(order[: people // 4]), np.sort(order[people // 4 :])
    else:
        test, train = np.flatnonzero(table.test), np.flatnonzero(~table.test)
    return DataSet(
        name,
        "classification" if table.target_range is None else "regression",
        group,
        list(table.columns),
        table.numbers.astype(float),
        [(float(low), float(high)) for low, high in table.columns.values()],
        table.categories,
        table.target.astype(float),
        table.target_range,
        train,
        test,
    )
