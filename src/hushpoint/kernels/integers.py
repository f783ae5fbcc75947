"""Sums of gradients over rows of whole numbers: exact, and so the same in any order and on any machine.

A row's slope is one scalar function of its exact inner product with a public point of whole numbers, cut and truncated
to a whole number; sums of such multiples of rows are taken in double precision, where whole numbers below 2^53 are
exact, and carried over to 64-bit integers before they could grow beyond.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushpoint._codes import LOGISTIC, LossCode
from hushpoint._compiled import inner, loop
from hushpoint._fixed import dot, logistic_slope, slope
from hushpoint._threads import share
from hushpoint._types import Array
from hushpoint.kernels.table import block_add, block_dots
from hushpoint.rows import Store

POINT_BITS = 33  # with rows of 19 bits every partial sum of an inner product is at most 2^52
_EXACT = 1 << 53
_NUMBERS = 1 << 17  # in the rows of one group
_GROUPS = 64  # at most
_BLOCK = 64  # rows that are multiplied, and then added, while they are close by
_WORTH_SHARING = 1 << 17  # numbers in the features from which on threads pay


@dataclass(frozen=True)
class Slopes:
    """The slopes of rows at a point, as whole numbers: ``trunc(weight phi'(t) share)``, none beyond its limit.

    ``most`` bounds every entry of ``slope * row``. ``shares`` has a number for every row, or one for all.
    """

    loss: LossCode
    weights: tuple[float, float]  # of the negative and of the positive class
    targets: Array
    limits: Array
    shares: Array
    most: int

    def of(self, place: slice) -> tuple[Array, Array, Array]:
        """Targets, limits and shares of some rows."""
        return self.targets[place], self.limits[place], self.shares if len(self.shares) == 1 else self.shares[place]


def rounded(point: Array) -> tuple[Array, int]:
    """A point as whole numbers of at most 33 bits in all, and the power of two that they are to be divided by.

    Promises: their Euclidean length is at most 2^33. A point with an entry that is not finite, or with none that is
    larger than 1e-290, is read as 0: it is public.
    """
    whole = np.empty(len(point))
    return whole, int(_rounded(np.ascontiguousarray(point), whole))


@loop
def _rounded(point, whole):
    largest = 0.0
    for j in range(point.size):
        size = abs(point[j])
        if not size < math.inf:  # NaN too
            largest = math.inf
            break
        largest = max(largest, size)
    if not 1e-290 < largest < math.inf:
        for j in range(point.size):
            whole[j] = 0.0
        return 0
    # With a largest entry between 1/2 and 1 no square can overflow, and those that vanish do not count.
    power = -math.frexp(largest)[1]
    factor = math.ldexp(1.0, power)
    for j in range(point.size):
        whole[j] = point[j] * factor
    # Below 2^32 but for rounding, and by at most half a unit an entry longer after it.
    more = POINT_BITS - 1 - math.frexp(math.sqrt(dot(whole, whole)))[1]
    factor = math.ldexp(1.0, more)
    for j in range(point.size):
        whole[j] = np.rint(whole[j] * factor)
    return power + more


class Sums:
    """Sums of gradients over the rows of one store, at one public point after another; what they share is kept.

    ``constant``, where it is not 0, follows every row, in units of ``2^-exponent`` as the rows are.
    """

    def __init__(self, store: Store, slopes: Slopes, constant: int, exponent: int) -> None:
        self._store, self._slopes, self._constant, self._exponent = store, slopes, constant, exponent
        self._width, self._worth, self._flush = store.width, store.stored >= _WORTH_SHARING, _EXACT // slopes.most
        # A group has a sum of its own, as wide as the rows are: next to the rows' numbers that should be little.
        self._least = max(_BLOCK, store.rows_of(max(_NUMBERS, 16 * store.width)))
        if self._flush < _BLOCK:
            raise ValueError(f"messages of up to {slopes.most} cannot be added exactly. Use a coarser grid.")

    def at(self, point: Array) -> NDArray[np.int64]:
        """``sum_i s_i a_i`` over all rows, the constant included (as a last entry) where there is one."""
        whole, power = rounded(point)
        width, constant = self._width, self._constant
        last = float(whole[width]) if constant else 0.0
        unit = math.ldexp(1.0, min(-(power + self._exponent), 1023))
        setting = float(constant), last, unit, self._flush
        losses, found = (self._slopes.loss, self._slopes.weights), np.zeros(width + 1, dtype=np.int64)
        for table, arrays in self._tables():
            count = len(arrays[0])
            size = max(self._least, -(-count // _GROUPS))
            totals = np.zeros((-(-count // size), width + 1), dtype=np.int64)
            share(partial(_sums, table, arrays, losses, setting, whole[:width], size, totals), len(totals), self._worth)
            found += totals.sum(axis=0)
        if not constant:
            return found[:width]
        found[width] *= constant
        return found

    def _tables(self) -> Iterator[tuple[Any, tuple[Array, Array, Array]]]:
        """The rows as compiled code reads them, with what goes with each: at once, or in parts."""
        table = self._store.arrays
        if table is not None:
            yield table, (self._slopes.targets, self._slopes.limits, self._slopes.shares)
            return
        for place, part in self._store.chunks():
            yield part.arrays, self._slopes.of(place)


def square_sums(arrays: Any, width: int, shares: NDArray[np.int64], coarse: int) -> NDArray[np.int64]:
    """Sums of the squares in each column of a CSR matrix of whole numbers cut by ``2^coarse``, rows by their shares."""
    found = np.zeros(width, dtype=np.int64)
    _square_sums(*arrays, shares, math.ldexp(1.0, -coarse), found)
    return found


@loop
def _square_sums(data, indices, starts, shares, factor, found):
    for i in range(shares.size):
        for k in range(starts[i], starts[i + 1]):
            entry = np.int64(data[k] * factor)  # toward 0
            found[indices[k]] += shares[i] * entry * entry


@loop
def _sums(table, arrays, losses, setting, point, size, totals, first_group, last_group):
    """Sums of the groups of rows; the last entry of a total is the sum of the slopes."""
    targets = arrays[0]
    flush = setting[3]
    slopes, part = np.empty(_BLOCK), np.zeros(point.size)
    for group in range(first_group, last_group):
        stop = min((group + 1) * size, targets.size)
        total, held = totals[group], 0
        for start in range(group * size, stop, _BLOCK):
            end = min(start + _BLOCK, stop)
            block_dots(table, start, end, point, slopes)
            _whole_slopes(arrays, losses, setting, start, end, slopes)
            for k in range(end - start):
                total[point.size] += np.int64(slopes[k])
            block_add(table, start, end, slopes, part)
            held += end - start
            if held + _BLOCK > flush:
                _carry(part, total)
                held = 0
        _carry(part, total)


@inner
def _whole_slopes(arrays, losses, setting, start, end, out):
    """The slopes of some rows as whole numbers, in place of their exact inner products with the point."""
    targets, limits, shares = arrays
    loss, (negative, positive) = losses
    constant, last, unit, _ = setting
    margin = constant * last
    for k in range(end - start):
        out[k] = (out[k] + margin) * unit
    if loss[0] == LOGISTIC:  # by itself, so that compiled code takes several rows at a time
        for k in range(end - start):
            out[k] = logistic_slope(out[k], targets[start + k])
    else:
        for k in range(end - start):
            out[k] = slope(loss, out[k], targets[start + k])
    if negative != 1.0 or positive != 1.0:
        for k in range(end - start):
            out[k] *= positive if targets[start + k] > 0 else negative
    if shares.size == 1:
        for k in range(end - start):
            out[k] *= shares[0]
    else:
        for k in range(end - start):
            out[k] *= shares[start + k]
    for k in range(end - start):
        found, limit = out[k] if out[k] == out[k] else 0.0, limits[start + k]
        out[k] = np.trunc(min(max(found, -limit), limit))


@inner
def _carry(part, total):
    """Add the sums so far, which are exact, to the integers."""
    for j in range(part.size):
        total[j] += np.int64(part[j])
        part[j] = 0.0
