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

from hushpoint._codes import LossCode, PenaltyCode
from hushpoint._compiled import inner, inner_sum, loop
from hushpoint._fixed import slope
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
_BLOCK = 1 << 10  # rows whose messages are summed in double precision: each below 2^39, so the sum is below 2^49
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
def _whole_slope(loss, margin, target, pull, limit):
    """The slope of a row as a whole number of at most ``limit``, which is one."""
    value = slope(loss, margin, target) * pull
    if not abs(value) <= limit:
        value = math.copysign(limit, value) if value == value else 0.0
    return np.rint(value)


@inner
def _slopes(columns, people, loss, tau, first, start, count, margins, out):
    """Whole slopes of the rows of some entries of a column."""
    targets, pulls, limits = people[0], people[1], people[2]
    if columns[3]:
        for k in range(count):
            i = start - first + k
            out[k] = _whole_slope(loss, margins[i] * tau, targets[i], pulls[i], limits[i])
    else:
        for k in range(count):
            i = columns[1][start + k]
            out[k] = _whole_slope(loss, margins[i] * tau, targets[i], pulls[i], limits[i])


@inner_sum
def _products(slopes, entries, start, count):
    """A sum of whole numbers, exact in any order: see ``_BLOCK``."""
    total = 0.0
    for k in range(count):
        total += slopes[k] * np.float64(entries[start + k])
    return total


@inner
def _mean(own, share, bound):
    """The message of a user: the mean over its rows, rounded, and within the bound whatever was rounded."""
    return min(max(np.int64(np.rint(np.float64(own) * share)), -bound), bound)


@inner
def _column_sum(columns, people, loss, tau, column, margins, slopes):
    """The sum of the messages of all items about one coordinate."""
    entries, places, starts, dense = columns
    owners, shares, bound = people[3], people[4], people[5]
    first, last = starts[column], starts[column + 1]
    total, own, owner = np.int64(0), np.int64(0), np.int64(-1)
    for start in range(first, last, _BLOCK):
        count = min(_BLOCK, last - start)
        _slopes(columns, people, loss, tau, first, start, count, margins, slopes)
        if owners.size == 0:
            total += np.int64(_products(slopes, entries, start, count))
            continue
        for k in range(count):
            i = start - first + k if dense else places[start + k]
            if owners[i] != owner:
                if owner >= 0:
                    total += _mean(own, shares[owner], bound)
                own, owner = np.int64(0), owners[i]
            own += np.int64(slopes[k] * np.float64(entries[start + k]))
    if owner >= 0:
        total += _mean(own, shares[owner], bound)
    return total


@loop
def column_sums(columns, people, loss, tau, chosen, margins, out):
    """Fill in the sums of the messages about some coordinates."""
    slopes = np.empty(_BLOCK)
    for k in range(chosen.size):
        out[k] = _column_sum(columns, people, loss, tau, chosen[k], margins, slopes)


@loop
def _coordinates(keys, first, step_sizes, kicks, data, method, participations, margins, shared):
    """Many steps; returns the last coordinate."""
    secure, key, role = keys
    columns, people = data
    loss, (l1, l2, skip_last), unit, counted, row_exponent, lowest, kind = method
    room, slopes, coins = scratch(key), np.empty(_BLOCK), np.empty(_EIGHT)
    steps, nobody = np.empty(_EIGHT, dtype=np.int64), np.zeros(_EIGHT, dtype=np.int64)
    model, exponent = shared[:-1], np.int64(shared[-1])
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
            first_uniforms(secure, role, nobody[:count], steps, coins[:count], room)
        for k in range(count):
            column = steps[k] % model.size if kind == CYCLIC else np.int64(coins[k] * model.size)
            step = step_sizes[start + k]
            total = _column_sum(columns, people, loss, tau, column, margins, slopes) + kicks[start + k]
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
        lattice = operator.unit, operator.counted, operator.row_exponent, operator.coarsest
        method = self.loss, self.penalty, *lattice, self.schedule[0]
        shared, margins = state.shared.copy(), state.blocks[:, 0]
        state.position = _coordinates(keys, first, steps, kicks, data, method, state.participations, margins, shared)
        state.shared = state.public = shared
        state.steps += count
