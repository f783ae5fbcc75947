"""Passes over all rows: the gradient of their losses, and products with its Hessian. The data is read once a pass.

Rows are summed in groups, and the sums of the groups in order: the result does not depend on the number of threads.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from hushpoint._compiled import loop
from hushpoint._threads import share
from hushpoint._types import Array
from hushpoint.kernels.scalar import slopes
from hushpoint.kernels.table import TILE, tile_add, tile_dots
from hushpoint.rows import Rows

_NUMBERS = 1 << 17  # in the rows of one group, and in temporary arrays
_GROUPS = 64  # at most
_WORTH_SHARING = 1 << 17  # numbers in the features from which on threads pay


class Passes:
    """Passes over the rows of one data set; losses that only NumPy knows go chunk by chunk."""

    def __init__(self, rows: Rows) -> None:
        store = rows.store
        self.rows, self.width = rows, store.width
        self._loss = rows.loss.code
        self._large = store.stored >= _WORTH_SHARING
        self._chunk = len(rows) if store.whole else max(TILE, store.rows_of(_NUMBERS))
        self._size = max(self._chunk, -(-len(rows) // _GROUPS))
        self._groups = -(-len(rows) // self._size)
        self._table: Any = None if self._loss is None else store.arrays

    def gradient(self, model: Array, weights: Array, curvatures: Array | None = None) -> Array:
        """``sum_i weights_i phi'(a_i.x) a_i``; ``weights_i phi''(a_i.x)`` goes to ``curvatures``, one number a row."""
        if self._table is None:
            return self._numpy_gradient(model, weights, curvatures)
        keep = np.empty(0) if curvatures is None else curvatures
        return self._summed(_gradient, (self.rows.targets, self.rows.slope_limits, weights), self._loss, model, keep)

    def hessian_times(self, curvatures: Array, vector: Array) -> Array:
        """``sum_i curvatures_i (a_i.v) a_i``."""
        if self._table is None:
            return self.rows.store.pull(curvatures * self.rows.margins(vector))
        return self._summed(_product, curvatures, vector)

    def hessian(self, curvatures: Array) -> Array:
        """``sum_i curvatures_i a_i a_i'``, chunk by chunk."""
        return self.rows.store.gram(curvatures, self._chunk)

    def _summed(self, sums: Any, *arguments: Any) -> Array:
        totals = np.zeros((self._groups, self.width))
        share(partial(sums, self._table, *arguments, self._size, totals), self._groups, worth=self._large)
        return np.asarray(totals.sum(axis=0))

    def _numpy_gradient(self, model: Array, weights: Array, curvatures: Array | None) -> Array:
        rows, total = self.rows, np.zeros(self.width)
        for start in range(0, len(rows), self._chunk):
            index = slice(start, start + self._chunk)
            part = rows if self._chunk >= len(rows) else rows.pick(index)
            margins, loss = part.margins(model), part.row_loss
            total += part.store.pull(weights[index] * loss.derivative(margins, part.targets))
            if curvatures is not None:
                curvatures[index] = weights[index] * loss.curvature(margins, part.targets)
        return total


def passes_over(rows: Rows) -> Passes:
    """The passes over some rows, prepared once."""
    return rows.once(Passes)


@loop
def _gradient(table, arrays, loss, model, curvatures, size, totals, first_group, last_group):
    targets, limits, weights = arrays
    tile = np.empty(TILE)
    for group in range(first_group, last_group):
        stop = min((group + 1) * size, targets.size)
        for first in range(group * size, stop, TILE):
            count = min(TILE, stop - first)
            tile_dots(table, first, count, model, tile)
            for k in range(count):
                i = first + k
                slope, curvature = slopes(loss, tile[k], targets[i], limits[i])
                tile[k] = weights[i] * slope
                if curvatures.size > 0:
                    curvatures[i] = weights[i] * curvature
            tile_add(table, first, count, tile, totals[group])


@loop
def _product(table, curvatures, vector, size, totals, first_group, last_group):
    tile = np.empty(TILE)
    for group in range(first_group, last_group):
        stop = min((group + 1) * size, curvatures.size)
        for first in range(group * size, stop, TILE):
            count = min(TILE, stop - first)
            tile_dots(table, first, count, vector, tile)
            for k in range(count):
                tile[k] *= curvatures[first + k]
            tile_add(table, first, count, tile, totals[group])
