"""Rows in other coordinates."""

from __future__ import annotations

from typing import Any

import numpy as np

from hushpoint._types import Array
from hushpoint.rows.array import ArrayRows
from hushpoint.rows.store import CHUNK, Store


class Mapped(Store):
    """The rows ``[X, constant] W`` without forming them: two products with X in place of one with a dense copy."""

    whole = True

    def __init__(self, store: Store, constant: float, metric: Any) -> None:
        self.store, self.constant, self.metric = store, constant, metric  # whose W is symmetric

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.store), len(self.metric.scales)

    def take(self, index: Any) -> ArrayRows:
        rows = self.store[index]
        if self.constant:
            rows = np.column_stack([rows, np.full(len(rows), self.constant)])
        return ArrayRows(self._turned(rows.T).T)

    def __matmul__(self, points: Array) -> Array:
        turned = self._turned(points)
        if not self.constant:
            return self.store @ turned
        return np.asarray(self.store @ turned[:-1] + self.constant * turned[-1])

    def pull(self, weights: Array) -> Array:
        total = self.store.pull(weights)
        if self.constant:
            total = np.concatenate([total, self.constant * weights.sum(axis=0)[None]])
        return self._turned(total)

    def _turned(self, points: Array) -> Array:
        """W times a vector, or the columns of a table."""
        weights = self.metric.matrix
        return np.asarray((weights * points.T).T if self.metric.basis is None else weights @ points)

    def squared_norms(self) -> Array:
        """Squared lengths of the mapped rows, rounded up further than products with W round."""
        squared = np.empty(len(self))
        weights = self.metric.matrix
        rest = weights[-1] * self.constant if self.constant and self.metric.basis is not None else 0.0
        within = weights[: self.width - bool(self.constant)]
        for place, part in self.store.chunks(CHUNK):
            if self.metric.basis is None:
                length = part.squares() @ within**2
                if self.constant:
                    length = length + (self.constant * weights[-1]) ** 2
            else:
                mapped = part @ within + rest
                length = np.einsum("ij,ij->i", mapped, mapped)
            squared[place] = length
        spread = float(self.metric.scales.max() / self.metric.scales.min())
        return np.asarray(squared * (1 + 1e-12 + 32 * np.finfo(np.float64).eps * spread))
