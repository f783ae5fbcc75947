"""Rows of whole numbers seen through a public matrix of whole numbers: their lengths, and sums of them, exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushpoint._types import Array
from hushpoint.rows.integer import IntegerRows
from hushpoint.rows.sparse import SparseRows
from hushpoint.rows.store import Store

FULL_BITS = 33  # of a row of the matrix: with rows of 19 bits every partial sum of a product is at most 2^52
DIAGONAL_BITS = 31  # of an entry on the diagonal: products with halves of 64-bit integers fit into 64 bits
LIMB = 10  # bits of a total that are multiplied at a time


@dataclass(frozen=True, eq=False)
class Turn:
    """The matrix ``matrix 2^-exponent``, of whole numbers; a vector stands for a diagonal.

    ``column``, beside a diagonal, is added to the last column of the matrix, whose entry on the diagonal is the last
    one: what follows every row as a constant then moves all of its entries, which is how rows are centred.
    """

    matrix: Array
    exponent: int
    column: Array | None = None

    @staticmethod
    def of(weights: Array, column: Array | None = None) -> Turn:
        """A matrix rounded to the finest whole numbers that sums stay exact with."""
        if weights.ndim == 1:
            largest = float(np.abs(weights if column is None else np.append(weights, column)).max())
            power = DIAGONAL_BITS - 1 - math.frexp(largest)[1]
        else:
            power = FULL_BITS - 1 - math.frexp(math.sqrt(float(np.square(weights).sum(axis=1).max())))[1]
        rounded = None if column is None else np.rint(np.ldexp(column, power))
        return Turn(np.rint(np.ldexp(weights, power)), power, rounded)

    @property
    def diagonal(self) -> bool:
        """Whether it only scales."""
        return self.matrix.ndim == 1

    def allowed_shift(self, least: int) -> int:
        """The smallest power of two, from a least one on, that sums can be divided by."""
        return max(least, DIAGONAL_BITS) if self.diagonal else LIMB * max(0, -(-least // LIMB))

    def back(self, z: Array) -> Array:
        """The transposed matrix times a point: its inner products with rows are those of z with the turned rows."""
        from hushpoint._fixed import product

        seen = self.matrix * z if self.diagonal else product(self.matrix.T, z)
        if self.column is not None:
            seen[-1] += product(self.column[None, :], z)[0]
        return np.asarray(np.ldexp(seen, -self.exponent))

    def squared_lengths(self, rows: IntegerRows) -> Array:
        """Squared lengths of all rows, turned, rounded up: a function of the row alone, for every kind of store."""
        constant = rows.grid.constant
        if self.diagonal and rows.matrix is not None:  # at once, without a copy
            return rows.once(self, lambda: self._lengths(rows, constant))
        return rows.once(self, lambda: np.concatenate([self._lengths(part, constant) for _, part in rows.chunks()]))

    def _lengths(self, part: Store, constant: int) -> Array:
        from hushpoint._fixed import product, sparse_product, sparse_squared_lengths, squared_lengths

        width = part.width
        if not self.diagonal:
            turned = part @ self.matrix[:, :width].T  # exact, in any order
            if constant:
                turned += constant * self.matrix[:, width]
            found, last = squared_lengths(turned), 0.0
        else:
            last = float(constant * self.matrix[width]) if constant else 0.0
            sparse = part.matrix if isinstance(part, (SparseRows, IntegerRows)) else None
            if sparse is not None:
                found = sparse_squared_lengths(sparse, self.matrix)
            else:
                found = squared_lengths(part[:] * self.matrix[:width])
            if self.column is not None:
                # |d a + h c|^2 = |d a|^2 + 2 c (d h).a + |h c|^2, so that zeros cost nothing; where terms cancel, the
                # error is one of the terms, none of which is larger than the first and the last together.
                moved = constant * self.column[:width]
                cross = 2 * moved * self.matrix[:width]
                constant_part = float(squared_lengths(moved[None, :])[0])
                slack = 2 * (width + 16) * 2.0**-52 * (found + constant_part)
                found = found + (product(part[:], cross) if sparse is None else sparse_product(sparse, cross))
                found = np.maximum(found + constant_part, 0.0) + slack
        return np.asarray((found + last * last) * (1 + (width + 8) * 2.0**-52))

    def shifted(self, total: NDArray[np.int64], shift: int) -> NDArray[np.int64]:
        """``floor(matrix total / 2^shift)``, exactly; the answer must fit into 64 bits, which public bounds see to."""
        if self.diagonal:
            factors = self.matrix.astype(np.int64)
            high, low = total >> DIAGONAL_BITS, total & ((1 << DIAGONAL_BITS) - 1)
            highs, lows = factors * high, factors * low  # below 2^61, and so are the two that may be added
            if self.column is not None:
                column = self.column.astype(np.int64)
                highs, lows = highs + column * high[-1], lows + column * low[-1]
            return np.asarray((highs + (lows >> DIAGONAL_BITS)) >> (shift - DIAGONAL_BITS))
        count = -(-64 // LIMB)
        limbs = np.stack([(total >> (LIMB * k)) & ((1 << LIMB) - 1) for k in range(count - 1)], axis=1)
        limbs = np.column_stack([limbs, total >> (LIMB * (count - 1))])  # the last one has the sign
        # Below sqrt(p) 2^33 2^10, so exact for up to 2^20 columns.
        products = (self.matrix @ limbs.astype(np.float64)).astype(np.int64)
        found = np.zeros(len(products), dtype=np.int64)
        for k in range(shift // LIMB):
            found = (found + products[:, k]) >> LIMB
        for k in range(shift // LIMB, count):
            found = found + (products[:, k] << (LIMB * (k - shift // LIMB)))
        return found
