"""Rows of a data set in compiled code, however they are stored: inner products with them, and sums of them.

A table is an array; a pair of an array and the factors of its rows; or the three arrays of a CSR matrix. Arithmetic is
in double precision whatever the storage.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from hushpoint._compiled import inner, inner_sum
from hushpoint.rows import Store

TILE = 4  # rows that are read together: a point or a sum is then loaded once for all of them


def table_of(store: Store) -> Any:
    """Rows as compiled code takes them; those of a store without such arrays are read into memory.

    An array is in C order: code for another order sums in another one, and a store from outside may give either,
    depending on whether a row of anybody had to be scaled.
    """
    table = store[:] if store.arrays is None else store.arrays
    return np.ascontiguousarray(table) if isinstance(table, np.ndarray) else table


@inner_sum
def dot(row, point):
    """Inner product of two vectors."""
    total = 0.0
    for j in range(point.size):
        total += row[j] * point[j]
    return total


@inner_sum
def add(weight, row, total):
    """``total += weight * row``."""
    for j in range(total.size):
        total[j] += weight * row[j]


@inner
def copy(source, target):
    """``target = source``: much faster to compile than a slice."""
    for j in range(target.size):
        target[j] = source[j]


@inner_sum
def _four_dots(rows, i, point, out):
    one, two, three, four = 0.0, 0.0, 0.0, 0.0
    for j in range(point.size):
        one += rows[i, j] * point[j]
        two += rows[i + 1, j] * point[j]
        three += rows[i + 2, j] * point[j]
        four += rows[i + 3, j] * point[j]
    out[0], out[1], out[2], out[3] = one, two, three, four


@inner_sum
def _add_four(rows, i, weights, total):
    one, two, three, four = weights[0], weights[1], weights[2], weights[3]
    a, b, c, d = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
    for j in range(total.size):
        total[j] = total[j] + one * a[j] + two * b[j] + three * c[j] + four * d[j]


@inner
def _sparse_dot(data, indices, start, stop, point):
    # One number at a time: instructions that collect several of them from a vector take three to four times as long.
    total = 0.0
    for k in range(start, stop):
        total += data[k] * point[np.uint64(indices[k])]
    return total


@inner_sum
def _sparse_add(weight, data, indices, start, stop, total):
    for k in range(start, stop):
        total[indices[k]] += weight * data[k]


def row_dot(table, i, point):
    """Inner product of row i with a point."""
    raise NotImplementedError("compiled code only")


def row_add(table, i, weight, total):
    """``total += weight * row i``."""
    raise NotImplementedError("compiled code only")


@overload(row_dot)
def _row_dot(table, i, point):
    if isinstance(table, types.Array):
        return lambda table, i, point: dot(table[i], point)
    if len(table) == 2:
        return lambda table, i, point: table[1][i] * dot(table[0][i], point)
    return lambda table, i, point: _sparse_dot(table[0], table[1], table[2][i], table[2][i + 1], point)


@overload(row_add)
def _row_add(table, i, weight, total):
    if isinstance(table, types.Array):
        return lambda table, i, weight, total: add(weight, table[i], total)
    if len(table) == 2:
        return lambda table, i, weight, total: add(table[1][i] * weight, table[0][i], total)
    return lambda table, i, weight, total: _sparse_add(weight, table[0], table[1], table[2][i], table[2][i + 1], total)


def tile_dots(table, i, count, point, out):
    """Inner products of the rows i, ..., i + count - 1, at most TILE of them, with a point."""
    raise NotImplementedError("compiled code only")


def tile_add(table, i, count, weights, total):
    """``total`` plus the weighted sum of the rows i, ..., i + count - 1, at most TILE of them."""
    raise NotImplementedError("compiled code only")


@overload(tile_dots)
def _tile_dots(table, i, count, point, out):
    dense = isinstance(table, types.Array)

    def dots(table, i, count, point, out):
        if dense and count == TILE:
            _four_dots(table, i, point, out)
        else:
            for k in range(count):
                out[k] = row_dot(table, i + k, point)

    return dots


@overload(tile_add)
def _tile_add(table, i, count, weights, total):
    dense = isinstance(table, types.Array)

    def sums(table, i, count, weights, total):
        if dense and count == TILE:
            _add_four(table, i, weights, total)
        else:
            for k in range(count):
                row_add(table, i + k, weights[k], total)

    return sums


@inner_sum
def _eight_dots(rows, i, point, out):
    one, two, three, four, five, six, seven, eight = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    a, b, c, d, e, f, g, h = (
        rows[i], rows[i + 1], rows[i + 2], rows[i + 3], rows[i + 4], rows[i + 5], rows[i + 6], rows[i + 7],
    )  # fmt: skip
    for j in range(point.size):
        x = point[j]
        one += a[j] * x
        two += b[j] * x
        three += c[j] * x
        four += d[j] * x
        five += e[j] * x
        six += f[j] * x
        seven += g[j] * x
        eight += h[j] * x
    out[0], out[1], out[2], out[3], out[4], out[5], out[6], out[7] = one, two, three, four, five, six, seven, eight


@inner_sum
def _add_eight(rows, i, weights, total):
    one, two, three, four = weights[0], weights[1], weights[2], weights[3]
    five, six, seven, eight = weights[4], weights[5], weights[6], weights[7]
    a, b, c, d, e, f, g, h = (
        rows[i], rows[i + 1], rows[i + 2], rows[i + 3], rows[i + 4], rows[i + 5], rows[i + 6], rows[i + 7],
    )  # fmt: skip
    for j in range(total.size):
        total[j] = (
            total[j] + one * a[j] + two * b[j] + three * c[j] + four * d[j]
            + five * e[j] + six * f[j] + seven * g[j] + eight * h[j]
        )  # fmt: skip


def block_dots(table, start, stop, point, out):
    """Inner products of the rows from start to stop with a point, however many there are."""
    raise NotImplementedError("compiled code only")


def block_add(table, start, stop, weights, total):
    """``total`` plus the weighted sum of the rows from start to stop."""
    raise NotImplementedError("compiled code only")


@overload(block_dots)
def _block_dots(table, start, stop, point, out):
    dense = isinstance(table, types.Array)

    def dots(table, start, stop, point, out):
        done = start
        if dense:
            for i in range(start, stop - 7, 8):
                _eight_dots(table, i, point, out[i - start :])
                done = i + 8
        for i in range(done, stop):
            out[i - start] = row_dot(table, i, point)

    return dots


@overload(block_add)
def _block_add(table, start, stop, weights, total):
    dense = isinstance(table, types.Array)

    def sums(table, start, stop, weights, total):
        done = start
        if dense:
            for i in range(start, stop - 7, 8):
                _add_eight(table, i, weights[i - start :], total)
                done = i + 8
        for i in range(done, stop):
            row_add(table, i, weights[i - start], total)

    return sums


@inner_sum
def _outer_four(rows, i, weights, out):
    a, b, c, d = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
    for j in range(out.shape[0]):
        one, two, three, four = weights[0] * a[j], weights[1] * b[j], weights[2] * c[j], weights[3] * d[j]
        line = out[j]
        for k in range(j + 1):
            line[k] = line[k] + one * a[k] + two * b[k] + three * c[k] + four * d[k]


@inner_sum
def _outer(row, weight, out):
    for j in range(out.shape[0]):
        factor, line = weight * row[j], out[j]
        for k in range(j + 1):
            line[k] += factor * row[k]


@inner_sum
def _sparse_outer(data, indices, start, stop, weight, out):
    for j in range(start, stop):
        factor, line = weight * data[j], out[indices[j]]
        for k in range(start, stop):
            if indices[k] <= indices[j]:
                line[indices[k]] += factor * data[k]


def tile_outer(table, i, count, weights, out):
    """The lower triangle of ``out`` plus the weighted sum of a a' over the rows i, ..., i + count - 1."""
    raise NotImplementedError("compiled code only")


@overload(tile_outer)
def _tile_outer(table, i, count, weights, out):
    if isinstance(table, types.Array):

        def outer(table, i, count, weights, out):
            if count == TILE:
                _outer_four(table, i, weights, out)
            else:
                for k in range(count):
                    _outer(table[i + k], weights[k], out)

    elif len(table) == 2:

        def outer(table, i, count, weights, out):
            for k in range(count):
                _outer(table[0][i + k], table[1][i + k] ** 2 * weights[k], out)

    else:

        def outer(table, i, count, weights, out):
            for k in range(count):
                _sparse_outer(table[0], table[1], table[2][i + k], table[2][i + k + 1], weights[k], out)

    return outer
