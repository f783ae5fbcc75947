"""Sums of gradients over rows of whole numbers: exact, and so the same in any order and on any machine.

A row's slope is one scalar function of its exact inner product with a public point of whole numbers, cut and truncated
to a whole number; sums of such multiples of rows are taken in double precision, where whole numbers below 2^53 are
exact, and carried over to 64-bit integers before they could grow beyond.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushpoint._codes import LossCode
from hushpoint._compiled import loop
from hushpoint._fixed import slope
from hushpoint._threads import share
from hushpoint._types import Array
from hushpoint.kernels.table import TILE, tile_add, tile_dots
from hushpoint.rows import Store

POINT_BITS = 33  # with rows of 19 bits every partial sum of an inner product is at most 2^52
_EXACT = 1 << 53
_NUMBERS = 1 << 17  # in the rows of one group
_GROUPS = 64  # at most
_WORTH_SHARING = 1 << 17  # numbers in the features from which on threads pay


@dataclass(frozen=True)
class Slopes:
    """The slopes of rows at a point, as whole numbers: ``trunc(weight phi'(t) share)``, none beyond its limit.

    ``most`` bounds every entry of ``slope * row``.
    """

    loss: LossCode
    weights: tuple[float, float]  # of the negative and of the positive class
    targets: Array
    limits: Array
    shares: Array
    most: int


def rounded(point: Array) -> tuple[Array, int]:
    """A point as whole numbers of at most 33 bits in all, and the power of two that they are to be divided by.

    Promises: their Euclidean length is at most 2^33. What is not finite becomes 0: the point is public.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        length = float(np.sqrt(np.square(point).sum()))
    if not 0 < length < math.inf:
        largest = float(np.abs(point).max(initial=0.0))
        length = largest * math.sqrt(len(point)) if largest < 1e300 else math.inf
    if not 0 < length < math.inf:
        return np.zeros(len(point)), 0
    # Below 2^32 but for rounding, and by at most half a unit an entry longer after it.
    power = POINT_BITS - 1 - math.frexp(length)[1]
    return np.rint(np.ldexp(point, power)), power


def gradient(store: Store, slopes: Slopes, constant: int, point: Array, exponent: int) -> NDArray[np.int64]:
    """``sum_i s_i a_i`` over the rows of a store, the constant included (as a last entry) where there is one."""
    whole, power = rounded(point)
    width = store.width
    last = float(whole[width]) if constant else 0.0
    setting = float(constant), last, math.ldexp(1.0, -(power + exponent)), max(TILE, _EXACT // slopes.most)
    total = np.zeros(width + bool(constant), dtype=np.int64)
    for place, table in _tables(store):
        arrays = slopes.targets[place], slopes.limits[place], slopes.shares[place]
        count = len(arrays[0])
        size = max(TILE, store.rows_of(_NUMBERS), -(-count // _GROUPS))
        totals = np.zeros((-(-count // size), width + 1), dtype=np.int64)

        def sums(
            start: int, stop: int, table: Any = table, arrays: Any = arrays, size: int = size, totals: Any = totals
        ) -> None:
            _sums(table, arrays, (slopes.loss, slopes.weights), setting, whole[:width], size, totals, start, stop)

        share(sums, len(totals), worth=store.stored >= _WORTH_SHARING)
        found = totals.sum(axis=0)
        total[:width] += found[:width]
        if constant:
            total[width] += constant * found[width]
    return total


def _tables(store: Store) -> Iterator[tuple[slice, Any]]:
    """The rows as compiled code reads them: at once, or in parts."""
    if store.arrays is not None:
        yield slice(0, len(store)), store.arrays
        return
    for place, part in store.chunks():
        yield place, part.arrays


@loop
def _sums(table, arrays, losses, setting, point, size, totals, first_group, last_group):
    """Sums of the groups of rows; the last entry of a total is the sum of the slopes."""
    targets, limits, shares = arrays
    loss, (negative, positive) = losses
    constant, last, unit, flush = setting
    tile, part = np.empty(TILE), np.zeros(point.size)
    for group in range(first_group, last_group):
        stop = min((group + 1) * size, targets.size)
        total, held = totals[group], 0
        for first in range(group * size, stop, TILE):
            count = min(TILE, stop - first)
            if held + count > flush:
                _carry(part, total)
                held = 0
            tile_dots(table, first, count, point, tile)
            for k in range(count):
                i = first + k
                margin = (tile[k] + constant * last) * unit
                weight = positive if targets[i] > 0 else negative
                found = slope(loss, margin, targets[i]) * weight * shares[i]
                if not abs(found) <= limits[i]:
                    found = math.copysign(limits[i], found) if found == found else 0.0
                tile[k] = np.trunc(found)
                total[point.size] += np.int64(tile[k])
            tile_add(table, first, count, tile, part)
            held += count
        _carry(part, total)


@loop
def _carry(part, total):
    for j in range(part.size):
        total[j] += np.int64(part[j])
        part[j] = 0.0
