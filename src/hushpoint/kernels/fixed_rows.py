"""Rows in compiled code for messages on the lattice: no bit depends on where a row stands, or how it is stored.

Inner products are those of ``_fixed``. A row with a factor is multiplied out before it is used, as it is where rows are
held in memory, so that a table, a file and a matrix that leaves out zeros give the same bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from hushpoint._codes import LossCode
from hushpoint._compiled import inner
from hushpoint._fixed import dot, sparse_dot
from hushpoint._types import Array, Indices
from hushpoint.kernels.table import table_of
from hushpoint.rows import Rows, Store

ROOM = 8  # numbers that a row needs beside it, at least
_EPS = 2.0**-52


@dataclass(frozen=True, eq=False)
class FixedRows:
    """The rows of some items as compiled loops take them; ``spans`` is where the rows of each item begin."""

    table: Any
    targets: Array
    squared_norms: Array
    limits: Array
    spans: Indices
    loss: LossCode

    @staticmethod
    def of(rows: Rows) -> FixedRows:
        """From rows whose loss has a code."""
        assert rows.loss.code is not None  # a method on the lattice takes no other loss
        spans = np.arange(len(rows) + 1) if rows.offsets is None else rows.offsets
        return FixedRows(
            fixed_table(rows.store), rows.targets, rows.squared_norms, rows.slope_limits, spans, rows.loss.code
        )

    @property
    def parts(self) -> tuple[Any, ...]:
        """All of it for a compiled loop."""
        return self.table, self.targets, self.squared_norms, self.limits, self.spans


def fixed_table(store: Store) -> Any:
    """A table of rows each of which is, to the bit, what it would be among others."""
    held: Any = store
    while not held.whole and isinstance(getattr(held, "store", None), Store):
        held = held.store
    if held.whole:
        raise ValueError(
            "X is in other coordinates, computed for all rows at once: their last digits depend on one another. Pass "
            "the rows themselves, or lattice=False."
        )
    return table_of(store)


def fixed_dot(table, i, point, room):
    """Inner product of row i with a point; ``room`` is for as many numbers as a row has, ``ROOM`` at least."""
    raise NotImplementedError("compiled code only")


def fixed_add(table, i, weight, total, room):
    """``total += weight * row i``."""
    raise NotImplementedError("compiled code only")


@inner
def _multiplied(row, factor, room):
    for j in range(row.size):
        room[j] = float(row[j]) * factor


@inner
def _add(weight, row, total):
    for j in range(total.size):
        total[j] += weight * row[j]


@inner
def _add_sparse(weight, data, indices, start, stop, total):
    for k in range(start, stop):
        total[indices[k]] += weight * data[k]


@overload(fixed_dot)
def _fixed_dot(table, i, point, room):
    if isinstance(table, types.Array):
        return lambda table, i, point, room: dot(table[i], point)
    if len(table) == 2:

        def streamed(table, i, point, room):
            _multiplied(table[0][i], table[1][i], room)
            return dot(room, point)

        return streamed
    return lambda table, i, point, room: sparse_dot(table[0], table[1], table[2][i], table[2][i + 1], point, room)


@overload(fixed_add)
def _fixed_add(table, i, weight, total, room):
    if isinstance(table, types.Array):
        return lambda table, i, weight, total, room: _add(weight, table[i], total)
    if len(table) == 2:

        def streamed(table, i, weight, total, room):
            _multiplied(table[0][i], table[1][i], room)
            _add(weight, room, total)

        return streamed
    return lambda table, i, weight, total, room: _add_sparse(
        weight, table[0], table[1], table[2][i], table[2][i + 1], total
    )


@inner
def make_whole(vector, unit, most):
    """Turn a vector into whole units, cut to ``most`` of them in length and truncated toward 0; no number: all 0.

    Promises: the entries are integers whose squares sum to at most ``most^2``, whatever the vector was. ``dot`` of p
    numbers is within p + 2 roundings of the exact sum of squares, which are fewer than the slack has room for.
    """
    slack = 2.0 * (vector.size + 16) * _EPS
    longest = most * unit * (1.0 - slack)
    length = math.sqrt(dot(vector, vector))
    factor = 1.0 / unit
    if length > longest:
        factor = longest / length / unit
    for j in range(vector.size):
        vector[j] = np.trunc(vector[j] * factor)
    if not dot(vector, vector) <= most * most * (1.0 - slack):
        for j in range(vector.size):
            vector[j] = 0.0
