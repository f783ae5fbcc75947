"""Rows in other coordinates."""

from __future__ import annotations

from typing import Any

import numpy as np

from hushpoint._types import Array
from hushpoint.rows.array import ArrayRows
from hushpoint.rows.store import CHUNK, Store


class Mapped(Store):
    """The rows ``[X, constant] W`` without forming them: two products with X in place of one with a dense copy.

    Where the metric has a centre, that is taken off the rows of X first.
    """

    whole = True

    def __init__(self, store: Store, constant: float, metric: Any) -> None:
        self.store, self.constant, self.metric = store, constant, metric  # whose W is symmetric

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.store), len(self.metric.scales)

    def take(self, index: Any) -> ArrayRows:
        rows = self.store[index]
        if self.metric.centre is not None:
            rows = rows - self.metric.centre
        if self.constant:
            rows = np.column_stack([rows, np.full(len(rows), self.constant)])
        return ArrayRows(self._turned(rows.T).T)

    def __matmul__(self, points: Array) -> Array:
        turned = self._turned(points)
        if not self.constant:
            return self.store @ turned
        return np.asarray(self.store @ turned[:-1] + (self.constant * turned[-1] - self._at_centre(turned)))

    def _at_centre(self, turned: Array) -> Any:
        return 0.0 if self.metric.centre is None else self.metric.centre @ turned[:-1]

    def pull(self, weights: Array) -> Array:
        total, summed = self.store.pull(weights), weights.sum(axis=0)
        if self.metric.centre is not None:
            total = total - np.multiply.outer(self.metric.centre, summed)
        if self.constant:
            total = np.concatenate([total, self.constant * summed[None]])
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
        centre = None if self.metric.centre is None else self.metric.centre * within**2
        for place, part in self.store.chunks(CHUNK):
            if self.metric.basis is None:
                length = part.squares() @ within**2
                if centre is not None:
                    # Where terms cancel, the error is one of the first and the last of them.
                    last = float(centre @ self.metric.centre)
                    length = np.maximum(length - 2 * (part @ centre) + last, 0.0) + 1e-12 * (length + last)
                if self.constant:
                    length = length + (self.constant * weights[-1]) ** 2
            else:
                mapped = part @ within + rest
                length = np.einsum("ij,ij->i", mapped, mapped)
            squared[place] = length
        spread = float(self.metric.scales.max() / self.metric.scales.min())
        return np.asarray(squared * (1 + 1e-12 + 32 * np.finfo(np.float64).eps * spread))
