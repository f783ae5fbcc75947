"""Rows of whole numbers: those of another store on a grid, so that sums of them are exact (docs/privacy.md, 11)."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar, cast

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from hushpoint._types import Array
from hushpoint.rows.array import ArrayRows
from hushpoint.rows.sparse import SparseRows
from hushpoint.rows.store import Store

BITS = 19  # of the longest row: with points of 33 bits every partial sum of an inner product is below 2^53
_SLACK = Fraction(1, 1 << 40)  # more than rounding can lift a row above its norm

Made = TypeVar("Made")


@dataclass(frozen=True)
class RowGrid:
    """Rows ``a`` as ``trunc(a 2^exponent)``, and a constant that follows every row, in the same units (0: none).

    ``most`` bounds the squared length of a row of whole numbers without the constant: a row beyond it counts as 0.
    With the constant none is longer than ``2^19 (1 + 2^-40)``.
    """

    exponent: int
    constant: int
    most: int

    @staticmethod
    def of(row_norm: float, constant: float = 0.0) -> RowGrid:
        """The finest grid for rows of a declared norm."""
        mantissa, power = math.frexp(math.hypot(row_norm, constant) * (1 + 1e-15 * bool(constant)))
        exponent = BITS - power + (mantissa == 0.5)
        longest = Fraction(row_norm) * Fraction(2) ** exponent
        shrunk = math.trunc(Fraction(constant) * Fraction(2) ** exponent)
        return RowGrid(exponent, shrunk, math.floor(longest**2 * (1 + _SLACK)))


class IntegerRows(Store):
    """The rows of a store as whole numbers; ``squared`` holds their squared lengths.

    They are kept in single precision, which has room for 24 bits, where the rows are in memory; rows on disk, or in a
    store from outside, are read and cut anew whenever they are needed. A row that is longer than the grid allows, which
    none is that was scaled to its norm, is a row of zeros.
    Promises: a row of whole numbers is a function of that row alone, whatever kind of store it comes from.
    """

    def __init__(self, store: Store, grid: RowGrid) -> None:
        self.store, self.grid = store, grid
        self.sparse, self.squared = store.sparse, np.empty(len(store))
        self._table: Any = None
        self._made: dict[Hashable, Any] = {}
        if store.in_memory and store.sparse:
            whole, self.squared = self._cut(store if isinstance(store, SparseRows) else store.take(slice(None)))
            self._table = whole.matrix
            self._table.data = self._table.data.astype(np.float32)
            return
        table = np.empty(store.shape if store.in_memory else (0, 0), dtype=np.float32)
        for place, part in store.chunks():
            whole, self.squared[place] = self._cut(part)
            if store.in_memory:
                table[place] = whole.array
        self._table = table if store.in_memory else None

    @property
    def shape(self) -> tuple[int, int]:
        return self.store.shape

    @property
    def stored(self) -> int:
        return self.store.stored

    @property
    def from_outside(self) -> str | None:
        return self.store.from_outside

    @property
    def matrix(self) -> Any:
        """All rows as a CSR matrix of single precision, where they are kept as one; else None."""
        return self._table if self.sparse else None

    @property
    def arrays(self) -> Any:
        if self._table is None or not self.sparse:
            return self._table
        return self._table.data, self._table.indices, self._table.indptr

    def take(self, index: Any) -> Store:
        if self._table is None:
            cut: Store = self._cut(self.store.take(index))[0]
            return cut
        rows: Any = self._table[index]
        if not self.sparse:
            return ArrayRows(rows)
        rows = rows.astype(np.float64)
        rows.has_canonical_format = True  # as the whole has: no need to look
        return SparseRows(rows)

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What is made of these rows for a purpose, made the first time only."""
        if key not in self._made:
            self._made[key] = make()
        return cast(Made, self._made[key])

    def _cut(self, part: Store) -> tuple[Any, Array]:
        """Rows in memory as whole numbers, entry by entry, so that no place decides anything; their squared lengths."""
        unit = 2.0**self.grid.exponent
        if isinstance(part, SparseRows):
            # Copies: a matrix that was passed in a store is still its owner's, who may rearrange its entries.
            places = part.matrix.indices.copy(), part.matrix.indptr.copy()
            matrix = scipy.sparse.csr_array((np.trunc(part.matrix.data * unit), *places), shape=part.shape, copy=False)
            matrix.has_canonical_format = True
            whole: Any = SparseRows(matrix)
        else:
            whole = ArrayRows(np.trunc(part[:] * unit))
        with np.errstate(over="ignore", invalid="ignore"):
            # Exact up to the bound and far beyond, in any order: a sum that is not exact is above it anyway.
            squared = whole.squared_norms()
            allowed: NDArray[np.bool_] = squared <= self.grid.most
        if not allowed.all():
            squared[~allowed] = 0.0
            _erase(whole, ~allowed)
        return whole, squared


def _erase(rows: Any, some: NDArray[np.bool_]) -> None:
    if isinstance(rows, SparseRows):
        rows.matrix.data[np.repeat(some, np.diff(rows.matrix.indptr))] = 0.0
    else:
        rows.array[some] = 0.0


def integer_rows(store: Store, grid: RowGrid) -> IntegerRows:
    """The rows of a store on a grid, made once for all who ask."""
    made: dict[RowGrid, IntegerRows] = store.__dict__.setdefault("_integer_rows", {})
    if grid not in made:
        made[grid] = IntegerRows(store, grid)
    return made[grid]


def slope_limits(squared: Array, counts: Array, longest: float) -> Array:
    """The largest whole slope s of each row with ``s |row| count <= longest``, whatever way the last digits round.

    A row of zeros has none.
    Square root, product, quotient and the last product are each off by 2^-53 at most, which 2^-48 covers.
    """
    lengths = counts * np.sqrt(squared)
    return np.asarray(np.where(lengths > 0, np.floor(longest / np.maximum(lengths, 0.5) * (1 - 2.0**-48)), 0.0))
