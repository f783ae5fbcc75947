"""Rows that stay where they are: on disk, or in single precision. They are read, widened and scaled when needed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushpoint._types import Array, Indices
from hushpoint.rows.array import ArrayRows
from hushpoint.rows.store import Store


class StreamedRows(Store):
    """A table of numbers and a factor for each row: row i is ``factors[i]`` times row i of the table."""

    def __init__(self, table: NDArray[Any], factors: Array | None = None) -> None:
        self.table = np.asarray(table)  # a memory map is one still, without its own class
        self.factors = np.ones(len(table)) if factors is None else factors

    @property
    def in_memory(self) -> bool:  # type: ignore[override]
        return not is_on_disk(self.table)

    @property
    def shape(self) -> tuple[int, int]:
        return self.table.shape[0], self.table.shape[1]

    @property
    def arrays(self) -> tuple[NDArray[Any], Array]:
        return self.table, self.factors

    def take(self, index: Any) -> ArrayRows:
        part = self.table[index].astype(np.float64)
        part *= self.factors[index][..., None]
        return ArrayRows(part)

    def pull_columns(self, chosen: Indices | slice, weights: Array) -> Array:
        return np.asarray((self.table[:, chosen] * self.factors[:, None]).T @ weights)

    def scaled(self, factors: Array) -> StreamedRows:
        return StreamedRows(self.table, self.factors * factors)

    def with_constant(self) -> StreamedRows:
        if is_on_disk(self.table):
            raise ValueError(
                "X is memory-mapped and fit_intercept is True. Write a column of ones into the file instead."
            )
        return StreamedRows(np.hstack([self.table, np.ones((len(self), 1), dtype=self.table.dtype)]))

    def ordered(self, order: Indices) -> StreamedRows:
        if (order[1:] > order[:-1]).all():
            return self
        if is_on_disk(self.table):
            raise ValueError(
                "X is memory-mapped and groups is not sorted. Write the rows of each user together, in order."
            )
        return StreamedRows(self.table[order])


def is_on_disk(array: Any) -> bool:
    """Whether an array, or what it is a view of, is a memory map."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            return True
        array = array.base
    return False
