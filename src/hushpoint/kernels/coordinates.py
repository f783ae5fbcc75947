"""Coordinate descent that keeps the inner products of the rows with the model: a step reads one column.

Draws are those of the plain loop, and so is the arithmetic up to the rounding of the inner products, which are updated
instead of computed anew. They are the state: a resumed run is the uninterrupted one bit for bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hushpoint._codes import LossCode, PenaltyCode
from hushpoint._compiled import inner, inner_sum, loop
from hushpoint._keyed import first_uniforms, scratch, secure_normals, seeded_normals, start_eight
from hushpoint._types import Array
from hushpoint.kernels.draw import CYCLIC, ScheduleCode
from hushpoint.kernels.scalar import slopes
from hushpoint.noise import Source, role_word, word
from hushpoint.rows import Rows

if TYPE_CHECKING:
    from hushpoint.engine import State
    from hushpoint.plan import Plan

_EIGHT = 8  # addresses that start together


@dataclass
class CompiledCoordinates:
    """One coordinate a step. ``state.blocks`` holds the inner products of the rows with the model."""

    plan: Plan
    step_size: float
    items: int
    row_weights: Array
    loss: LossCode
    penalty: PenaltyCode
    schedule: ScheduleCode

    name: ClassVar[str] = "coordinates"
    at_once: ClassVar[int] = 1 << 10

    def blocks(self) -> Array:
        """All 0, as the model is."""
        return np.zeros((len(self.row_weights), 1))

    def prepare(self, rows: Rows) -> tuple[Any, ...]:
        """Columns one after the other (a copy of the features), targets, limits of slopes, weights."""
        entries, places, starts = rows.store.column_arrays()
        table = entries, places.astype(np.int64, copy=False), starts.astype(np.int64, copy=False)
        return *table, rows.targets, rows.slope_limits, self.row_weights

    def advance(self, data: tuple[Any, ...], source: Source, state: State, z: Array, count: int) -> None:
        plan, first = self.plan, state.steps
        word(first + count)  # addresses would come again beyond
        steps = self.step_size * np.array([plan.relaxation_at(first + k) for k in range(count)])
        keys = source.secure, source.key, role_word("schedule"), role_word("sum")
        method = self.loss, self.penalty, plan.noise.std, self.items, self.schedule[0]
        shared = state.shared.copy()
        margins = state.blocks[:, 0]
        state.position = _coordinates(keys, first, steps, data, method, state.participations, margins, shared)
        state.shared = state.public = shared
        state.steps += count


@inner_sum
def _pull(data, loss, column, margins):
    """The weighted sum of the slopes of the rows along one column."""
    entries, places, starts, targets, limits, weights = data
    total = 0.0
    first, last = starts[column], starts[column + 1]
    if places.size == 0:
        for i in range(margins.size):
            total += weights[i] * slopes(loss, margins[i], targets[i], limits[i])[0] * entries[first + i]
    else:
        for k in range(first, last):
            i = places[k]
            total += weights[i] * slopes(loss, margins[i], targets[i], limits[i])[0] * entries[k]
    return total


@inner
def _shift(data, column, by, margins):
    """The inner products after coordinate ``column`` has moved."""
    entries, places, starts = data[0], data[1], data[2]
    first, last = starts[column], starts[column + 1]
    if places.size == 0:
        for i in range(margins.size):
            margins[i] += by * entries[first + i]
    else:
        for k in range(first, last):
            margins[places[k]] += by * entries[k]


@loop
def _coordinates(keys, first, step_sizes, data, method, participations, margins, model):
    """Many steps, eight addresses at a time; returns the last coordinate."""
    secure, key, draw_role, noise_role = keys
    loss, (l1, l2, skip_last), noise, items, kind = method
    room, kick = scratch(key), np.zeros(1)
    coins, kicks = np.empty(_EIGHT), np.zeros(_EIGHT)
    steps, nobody = np.empty(_EIGHT, dtype=np.int64), np.zeros(_EIGHT, dtype=np.int64)
    penalised = model.size - 1 if skip_last else model.size
    column = np.int64(-1)
    for start in range(0, step_sizes.size, _EIGHT):
        count = min(_EIGHT, step_sizes.size - start)
        for k in range(count):
            steps[k] = first + start + k
        if kind != CYCLIC:
            first_uniforms(secure, draw_role, nobody[:count], steps, coins[:count], room)
        if noise > 0:
            if not secure:
                start_eight(noise_role, nobody[:count], steps, room)
            for k in range(count):
                if secure:
                    secure_normals(noise_role, nobody[k], steps[k], noise, kick, room)
                else:
                    seeded_normals(room[3][k], noise, kick)
                kicks[k] = kick[0]
        for k in range(count):
            column = steps[k] % model.size if kind == CYCLIC else np.int64(coins[k] * model.size)
            step = step_sizes[start + k]
            value = model[column] - step * (_pull(data, loss, column, margins) + kicks[k]) / items
            if column < penalised:
                value = math.copysign(max(abs(value) - step * l1, 0.0), value) / (1.0 + step * l2)
            if value != model[column]:
                _shift(data, column, value - model[column], margins)
                model[column] = value
            participations[column] += 1
    return column
