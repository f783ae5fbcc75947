"""Features that stay where they are: on disk, or in single precision. Rows are read, widened and scaled when needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = NDArray[np.float64]

_NUMBERS = 1 << 18  # in one chunk


class StreamedRows:
    """A table of numbers and a factor for each row: row i is ``factors[i]`` times row i of the table.

    It stands in for an array in products with vectors and in choosing rows, which it does in double precision and in
    chunks. ``np.asarray`` gives the whole of it, in memory.
    """

    ndim = 2

    def __init__(self, table: NDArray[Any], factors: Array | None = None) -> None:
        self.table = np.asarray(table)  # a memory map is one still, without its own class
        self.factors = np.ones(len(table)) if factors is None else factors

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.table.shape[0], self.table.shape[1]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Array:
        if isinstance(index, tuple):  # rows and columns
            rows, columns = index
            return np.asarray(
                self.table[index] * (self.factors[rows][:, None] if np.ndim(columns) else self.factors[rows])
            )
        part = self.table[index].astype(np.float64)
        part *= self.factors[index][..., None]
        return np.asarray(part)

    def chunks(self) -> Iterator[tuple[slice, Array]]:
        """Rows in chunks, with their places."""
        size = max(1, _NUMBERS // self.shape[1])
        for start in range(0, len(self), size):
            place = slice(start, min(start + size, len(self)))
            yield place, self[place]

    def __matmul__(self, other: Array) -> Array:
        found = np.empty((len(self), *np.shape(other)[1:]))
        for place, part in self.chunks():
            found[place] = part @ other
        return found

    @property
    def T(self) -> _Transposed:
        """The transpose, for products."""
        return _Transposed(self)

    def __mul__(self, other: Any) -> Array:
        return np.asarray(self[:] * other)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:].astype(np.float64 if dtype is None else dtype)

    def copy(self) -> Array:
        """The whole table, in memory."""
        return self[:]


class _Transposed:
    def __init__(self, rows: StreamedRows) -> None:
        self._rows = rows

    def __matmul__(self, other: Array) -> Array:
        total = np.zeros((self._rows.shape[1], *np.shape(other)[1:]))
        for place, part in self._rows.chunks():
            total += part.T @ other[place]
        return total


def is_on_disk(array: Any) -> bool:
    """Whether an array, or what it is a view of, is a memory map."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            return True
        array = array.base
    return False
