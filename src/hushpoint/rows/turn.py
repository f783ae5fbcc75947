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
    """The matrix ``matrix 2^-exponent``, of whole numbers; a vector stands for a diagonal."""

    matrix: Array
    exponent: int

    @staticmethod
    def of(weights: Array) -> Turn:
        """A matrix rounded to the finest whole numbers that sums stay exact with."""
        if weights.ndim == 1:
            power = DIAGONAL_BITS - 1 - math.frexp(float(np.abs(weights).max()))[1]
        else:
            power = FULL_BITS - 1 - math.frexp(math.sqrt(float(np.square(weights).sum(axis=1).max())))[1]
        return Turn(np.rint(np.ldexp(weights, power)), power)

    @property
    def diagonal(self) -> bool:
        """Whether it only scales."""
        return self.matrix.ndim == 1

    def allowed_shift(self, least: int) -> int:
        """The smallest power of two, from a least one on, that sums can be divided by."""
        return max(least, DIAGONAL_BITS) if self.diagonal else LIMB * max(0, -(-least // LIMB))

    def squared_lengths(self, rows: IntegerRows) -> Array:
        """Squared lengths of all rows, turned, rounded up: a function of the row alone, for every kind of store."""
        constant = rows.grid.constant
        if self.diagonal and rows.matrix is not None:  # at once, without a copy
            return rows.once(self, lambda: self._lengths(rows, constant))
        return rows.once(self, lambda: np.concatenate([self._lengths(part, constant) for _, part in rows.chunks()]))

    def _lengths(self, part: Store, constant: int) -> Array:
        from hushpoint._fixed import sparse_squared_lengths, squared_lengths

        width = part.width
        if not self.diagonal:
            turned = part @ self.matrix[:, :width].T  # exact, in any order
            if constant:
                turned += constant * self.matrix[:, width]
            found, last = squared_lengths(turned), 0.0
        else:
            last = float(constant * self.matrix[width]) if constant else 0.0
            if isinstance(part, (SparseRows, IntegerRows)):
                found = sparse_squared_lengths(part.matrix, self.matrix)
            else:
                found = squared_lengths(part[:] * self.matrix[:width])
        return np.asarray((found + last * last) * (1 + (width + 8) * 2.0**-52))

    def shifted(self, total: NDArray[np.int64], shift: int) -> NDArray[np.int64]:
        """``floor(matrix total / 2^shift)``, exactly; the answer must fit into 64 bits, which public bounds see to."""
        if self.diagonal:
            factors = self.matrix.astype(np.int64)
            high, low = total >> DIAGONAL_BITS, total & ((1 << DIAGONAL_BITS) - 1)
            return np.asarray((factors * high + (factors * low >> DIAGONAL_BITS)) >> (shift - DIAGONAL_BITS))
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
