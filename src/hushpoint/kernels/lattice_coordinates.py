"""Coordinate descent in whole numbers: messages, exact inner products of the rows with the model, and the loop.

The public model w is read as whole numbers ``rint(2^k w)`` of length at most 2^33 (its grid), and rows are at most 2^19
long, so an inner product and every part of one is at most 2^52: exact in double precision, in any order. That is why
inner products that are updated are those that are computed anew, and the loop here is the plain one bit for bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hushpoint._codes import LOGISTIC, SQUARED, LossCode, PenaltyCode
from hushpoint._compiled import inner, inner_sum, loop
from hushpoint._fixed import logistic_slope, slope
from hushpoint._keyed import first_uniforms, scratch
from hushpoint._types import Array
from hushpoint.kernels.draw import CYCLIC, ScheduleCode
from hushpoint.lattice.draws import rounded_normals_of_steps
from hushpoint.noise import Source, role_word, word
from hushpoint.rows import Rows

if TYPE_CHECKING:
    from hushpoint.engine import State
    from hushpoint.operators.lattice_coordinate import LatticeCoordinateGradient
    from hushpoint.plan import Plan

_EIGHT = 8  # addresses that start together
_BLOCK = 1 << 8  # rows whose messages are summed in double precision: each below 2^45, so the sum is below 2^53
# A whole number v counts as ceil(|v|/16)^2: where the sum of these is at most 2^58, the vector is at most 2^33 long.
_FARTHEST = float(1 << 33)
_MOST = 1 << 58
_TOO_FAR = 1 << 59
_COARSENING = 8  # bits that a grid loses when the model has outgrown it


@inner
def _counted(whole):
    """What one number of the grid counts towards the length; more than all may count where it is too far or nan."""
    if not abs(whole) <= _FARTHEST:
        return np.int64(_TOO_FAR)
    part = np.int64(math.ceil(abs(whole) / 16.0))
    return part * part


@inner
def _spread(model, exponent):
    """What the numbers of a model on a grid count together; more than may be where one is too far."""
    scale, total = math.ldexp(1.0, exponent), np.int64(0)
    for j in range(model.size):
        total += _counted(np.rint(model[j] * scale))
        if total > _MOST:
            return total
    return total


@loop
def fitting(model, exponent, lowest):
    """The exponent of the grid that a public model is read on: as before, or coarser where it has outgrown that."""
    while exponent > lowest and _spread(model, exponent) > _MOST:
        exponent -= _COARSENING
    return exponent


@loop
def gridded(model, exponent, grid):
    """Fill in the whole numbers of a model; all 0 where it is too long for any grid. Returns what they count."""
    total, scale = _spread(model, exponent), math.ldexp(1.0, exponent)
    for j in range(model.size):
        grid[j] = np.rint(model[j] * scale) if total <= _MOST else 0.0
    return total


@inner
def _shift(columns, column, by, margins):
    """The inner products after a coordinate of the grid has moved by a whole number."""
    entries, places, starts, dense = columns
    first, last = starts[column], starts[column + 1]
    if dense:
        for i in range(margins.size):
            margins[i] += by * np.float64(entries[first + i])
    else:
        for k in range(first, last):
            margins[places[k]] += by * np.float64(entries[k])


@loop
def whole_margins(columns, grid, margins):
    """Fill in the inner products of all rows with the grid."""
    margins[:] = 0.0
    for j in range(grid.size):
        if grid[j] != 0.0:
            _shift(columns, j, grid[j], margins)


@inner
def _cut(value, limit):
    """A number as a whole one of at most ``limit``, which is whole; 0 for nan."""
    found = value if value == value else 0.0
    return np.rint(min(max(found, -limit), limit))


@inner
def _whole_slopes(rows, loss, count, values):
    """Whole slopes of some rows, in place of their margins; ``rows`` holds targets, shares and limits."""
    targets, shares, limits = rows
    kind, width, lowest, highest = loss
    if kind == LOGISTIC:  # where a loop knows its loss, compiled code takes several rows at a time
        for k in range(count):
            values[k] = logistic_slope(values[k], targets[k])
    elif kind == SQUARED:
        for k in range(count):
            values[k] -= targets[k]
    elif width > 0 and not math.isnan(lowest):
        for k in range(count):
            values[k] = min(max((values[k] - targets[k]) / width, lowest), highest)
    else:
        for k in range(count):
            values[k] = slope(loss, values[k], targets[k])
    for k in range(count):
        values[k] = _cut(values[k] * shares[k], limits[k])


@inner_sum
def _products(slopes, entries, count):
    """A sum of whole numbers, exact in any order: see ``_BLOCK``."""
    total = 0.0
    for k in range(count):
        total += slopes[k] * np.float64(entries[k])
    return total


@inner
def _column_sum(columns, rows, loss, tau, column, margins, room):
    """The sum of the messages of all items about one coordinate."""
    entries, places, starts, dense = columns
    targets, shares, limits = rows
    first, last = starts[column], starts[column + 1]
    slopes, gathered = room[0], (room[1], room[2], room[3])
    total = np.int64(0)
    for start in range(first, last, _BLOCK):
        count = min(_BLOCK, last - start)
        if dense:
            at, to = start - first, start - first + count
            near = margins[at:to]
            for k in range(count):
                slopes[k] = near[k] * tau
            _whole_slopes((targets[at:to], shares[at:to], limits[at:to]), loss, count, slopes)
        else:
            for k in range(count):
                i = places[start + k]
                slopes[k] = margins[i] * tau
                gathered[0][k], gathered[1][k], gathered[2][k] = targets[i], shares[i], limits[i]
            _whole_slopes(gathered, loss, count, slopes)
        total += np.int64(_products(slopes, entries[start : start + count], count))
    return total


@loop
def column_sums(columns, rows, loss, tau, chosen, margins, out):
    """Fill in the sums of the messages about some coordinates."""
    room = np.empty((4, _BLOCK))
    for k in range(chosen.size):
        out[k] = _column_sum(columns, rows, loss, tau, chosen[k], margins, room)


@loop
def _coordinates(keys, first, step_sizes, kicks, data, method, participations, margins, shared):
    """Many steps; returns the last coordinate."""
    secure, key, role = keys
    columns, rows = data
    loss, (l1, l2, skip_last), unit, shift, counted, row_exponent, lowest, kind = method
    words, room, coins = scratch(key), np.empty((4, _BLOCK)), np.empty(_EIGHT)
    steps, nobody = np.empty(_EIGHT, dtype=np.int64), np.zeros(_EIGHT, dtype=np.int64)
    model, exponent = shared[:-1], int(shared[-1])
    penalised = model.size - 1 if skip_last else model.size
    grid = np.empty(model.size)
    spread = gridded(model, exponent, grid)
    scale, tau = math.ldexp(1.0, exponent), math.ldexp(1.0, -exponent - row_exponent)
    column = np.int64(-1)
    for start in range(0, step_sizes.size, _EIGHT):
        count = min(_EIGHT, step_sizes.size - start)
        for k in range(count):
            steps[k] = first + start + k
        if kind != CYCLIC:
            first_uniforms(secure, role, nobody[:count], steps, coins[:count], words)
        for k in range(count):
            column = steps[k] % model.size if kind == CYCLIC else np.int64(coins[k] * model.size)
            step = step_sizes[start + k]
            total = (_column_sum(columns, rows, loss, tau, column, margins, room) >> shift) + kicks[start + k]
            value = model[column] - step * (np.float64(total) * unit) / counted
            if column < penalised:
                value = (value - min(max(value, -(l1 * step)), l1 * step)) / (1.0 + l2 * step)
            model[column] = value
            participations[column] += 1
            whole = np.rint(value * scale)
            if whole == grid[column] and spread <= _MOST:
                continue
            spread += _counted(whole) - _counted(grid[column])
            if spread <= _MOST:
                _shift(columns, column, whole - grid[column], margins)
                grid[column] = whole
            else:
                exponent = fitting(model, exponent, lowest)
                spread = gridded(model, exponent, grid)
                scale, tau = math.ldexp(1.0, exponent), math.ldexp(1.0, -exponent - row_exponent)
                whole_margins(columns, grid, margins)
    shared[-1] = exponent
    return column


@dataclass
class LatticeCoordinates:
    """One coordinate a step. ``state.blocks`` holds the exact inner products of the rows with the grid."""

    plan: Plan
    operator: LatticeCoordinateGradient
    loss: LossCode
    penalty: PenaltyCode
    schedule: ScheduleCode

    name: ClassVar[str] = "lattice coordinates"
    at_once: ClassVar[int] = 1 << 10

    def blocks(self) -> Array:
        """All 0, as the model is."""
        return np.zeros((self.operator.facts.rows, 1))

    def prepare(self, rows: Rows) -> Any:
        """The columns as whole numbers, and what is known of the rows."""
        return self.operator.prepare(rows)

    def advance(self, data: Any, source: Source, state: State, z: Array, count: int) -> None:
        plan, operator, first = self.plan, self.operator, state.steps
        word(first + count)  # addresses would come again beyond
        steps = operator.step_size * np.array([plan.relaxation_at(first + k) for k in range(count)])
        kicks = np.zeros(count, dtype=np.int64)
        if plan.noise.std:
            kicks = rounded_normals_of_steps(source, "sum", 0, first, count, plan.noise.scale)
        keys = source.secure, source.key, role_word("schedule")
        lattice = operator.unit, operator.grid.shift, operator.counted, operator.grid.rows.exponent, operator.coarsest
        method = self.loss, self.penalty, *lattice, self.schedule[0]
        shared, margins = state.shared.copy(), state.blocks[:, 0]
        state.position = _coordinates(keys, first, steps, kicks, data, method, state.participations, margins, shared)
        state.shared = state.public = shared
        state.steps += count
