"""Rows in an array of double precision."""

from __future__ import annotations

from typing import Any

import numpy as np

from hushpoint._types import Array, Indices
from hushpoint.rows.store import Store


class ArrayRows(Store):
    """The rows of an array, which is kept and not copied."""

    in_memory = True

    def __init__(self, array: Array) -> None:
        self.array = np.asarray(array, dtype=np.float64)

    @property
    def shape(self) -> tuple[int, int]:
        return self.array.shape[0], self.array.shape[1]

    @property
    def plain(self) -> Array:
        return self.array

    arrays = plain

    def take(self, index: Any) -> ArrayRows:
        return ArrayRows(self.array[index])

    def __getitem__(self, index: Any) -> Array:
        return np.asarray(self.array[index])

    def __matmul__(self, points: Array) -> Array:
        return np.asarray(self.array @ points)

    def pull(self, weights: Array) -> Array:
        return np.asarray(self.array.T @ weights)

    def squared_norms(self) -> Array:
        from hushpoint._fixed import squared_lengths

        return squared_lengths(self.array)

    def scaled(self, factors: Array) -> ArrayRows:
        return ArrayRows(self.array * factors[:, None])

    def with_constant(self) -> ArrayRows:
        return ArrayRows(np.hstack([self.array, np.ones((len(self), 1))]))

    def ordered(self, order: Indices) -> ArrayRows:
        return self.take(order)

    def squares(self) -> ArrayRows:
        return ArrayRows(self.array**2)
