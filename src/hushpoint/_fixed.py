"""Arithmetic whose every bit is a function of the numbers alone, and not of where they stand or who computes it.

Sums are taken in one order, whatever the storage: entry j of a row goes to lane j mod 8, lanes are added in pairs. An
entry that is 0 changes nothing, so a row that leaves out its zeros has the same sums. Only the four operations, whose
results are fixed by the standard for every processor, and no fused ones: compiled code may use vectors and gives the
same bits. Whatever an item sends on the lattice is made of these (docs/privacy.md, section 11), but for the proxes of
users with several rows, which have one order of their own.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from hushpoint._codes import RAMP, SQUARED
from hushpoint._compiled import inner, loop
from hushpoint._types import Array

_intrinsic: Any = intrinsic  # its types count the typing context as an argument
_LANES = 8
_TERMS = tuple(1.0 / math.factorial(k) for k in range(12, -1, -1))
_LOG2_HIGH = 0.693147180369123816490  # of ln 2: 33 bits, so that a small multiple of it is exact
_LOG2_LOW = 1.90821492927058770002e-10


@inner
def _paired(a, b, c, d, e, f, g, h):
    return ((a + b) + (c + d)) + ((e + f) + (g + h))


@inner
def dot(row, point):
    """Inner product of two vectors."""
    a = b = c = d = e = f = g = h = 0.0
    size = point.size
    full = size - size % _LANES
    for j in range(0, full, _LANES):
        a += row[j] * point[j]
        b += row[j + 1] * point[j + 1]
        c += row[j + 2] * point[j + 2]
        d += row[j + 3] * point[j + 3]
        e += row[j + 4] * point[j + 4]
        f += row[j + 5] * point[j + 5]
        g += row[j + 6] * point[j + 6]
        h += row[j + 7] * point[j + 7]
    if full < size:
        a += row[full] * point[full]
    if full + 1 < size:
        b += row[full + 1] * point[full + 1]
    if full + 2 < size:
        c += row[full + 2] * point[full + 2]
    if full + 3 < size:
        d += row[full + 3] * point[full + 3]
    if full + 4 < size:
        e += row[full + 4] * point[full + 4]
    if full + 5 < size:
        f += row[full + 5] * point[full + 5]
    if full + 6 < size:
        g += row[full + 6] * point[full + 6]
    return _paired(a, b, c, d, e, f, g, h)


@inner
def sparse_dot(data, indices, start, stop, point, lanes):
    """The same of a row that leaves out zeros; ``lanes`` is room for eight numbers."""
    for lane in range(_LANES):
        lanes[lane] = 0.0
    for k in range(start, stop):
        lanes[indices[k] & 7] += data[k] * point[indices[k]]
    return _paired(lanes[0], lanes[1], lanes[2], lanes[3], lanes[4], lanes[5], lanes[6], lanes[7])


@loop
def _squares(table, out):
    for i in range(out.size):
        out[i] = dot(table[i], table[i])


@loop
def _sparse_squares(data, indices, starts, factors, out):
    lanes = np.empty(_LANES)
    for i in range(out.size):
        for lane in range(_LANES):
            lanes[lane] = 0.0
        for k in range(starts[i], starts[i + 1]):
            entry = np.float64(data[k])
            if factors.size > 0:
                entry *= factors[indices[k]]
            lanes[indices[k] & 7] += entry * entry
        out[i] = _paired(lanes[0], lanes[1], lanes[2], lanes[3], lanes[4], lanes[5], lanes[6], lanes[7])


@loop
def _products(matrix, vector, out):
    for i in range(out.size):
        out[i] = dot(matrix[i], vector)


@loop
def _sparse_products(data, indices, starts, vector, out):
    lanes = np.empty(_LANES)
    for i in range(out.size):
        out[i] = sparse_dot(data, indices, starts[i], starts[i + 1], vector, lanes)


def squared_lengths(table: Array) -> Array:
    """Squared length of each row of an array."""
    out = np.empty(len(table))
    _squares(np.ascontiguousarray(table), out)
    return out


def sparse_squared_lengths(matrix: Any, factors: Array | None = None) -> Array:
    """Squared length of each row of a CSR matrix, its columns first multiplied by factors where there are some."""
    out = np.empty(matrix.shape[0])
    _sparse_squares(matrix.data, matrix.indices, matrix.indptr, np.empty(0) if factors is None else factors, out)
    return out


def product(matrix: Array, vector: Array) -> Array:
    """A matrix times a vector, the same bits with any number of threads."""
    out = np.empty(len(matrix))
    _products(np.ascontiguousarray(matrix), np.ascontiguousarray(vector), out)
    return out


@_intrinsic
def _with_bits(typing_context, bits):
    """The number that has these 64 bits."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), generate


def sparse_product(matrix: Any, vector: Array) -> Array:
    """The same of a CSR matrix."""
    out = np.empty(matrix.shape[0])
    _sparse_products(matrix.data, matrix.indices, matrix.indptr, np.ascontiguousarray(vector), out)
    return out


@inner
def exp_minus(x):
    """``exp(-x)`` for x of 0 or more, to a few units in the last place; beyond 600 that of 600."""
    bounded = min(x, 600.0)
    whole = math.floor(bounded * 1.4426950408889634 + 0.5)
    rest = (whole * _LOG2_HIGH - bounded) + whole * _LOG2_LOW
    total = _TERMS[0] * rest + _TERMS[1]
    total = total * rest + _TERMS[2]
    total = total * rest + _TERMS[3]
    total = total * rest + _TERMS[4]
    total = total * rest + _TERMS[5]
    total = total * rest + _TERMS[6]
    total = total * rest + _TERMS[7]
    total = total * rest + _TERMS[8]
    total = total * rest + _TERMS[9]
    total = total * rest + _TERMS[10]
    total = total * rest + _TERMS[11]
    total = total * rest + _TERMS[12]
    return total * _with_bits((1023 - np.int64(whole)) << 52)  # the last factor is 2^-whole


@inner
def slope(loss, t, b):
    """Derivative of a coded loss in the margin t; at a kink a subgradient."""
    kind, width, lowest, highest = loss
    if kind == SQUARED:
        return t - b
    if kind == RAMP:
        if math.isnan(lowest):  # the hinge: slopes towards the class
            lowest, highest = min(-b, 0.0), max(-b, 0.0)
        gap = t - b
        if width > 0:
            return min(max(gap / width, lowest), highest)
        return highest if gap > 0 else (lowest if gap < 0 else 0.0)
    return logistic_slope(t, b)


@inner
def logistic_slope(t, b):
    """Derivative of ``log(1 + exp(-b t))`` in t."""
    part = exp_minus(abs(t))
    return -b * ((part if b * t > 0 else 1.0) / (1.0 + part))
