"""The walk over users of one row each, compiled: a hop is one scalar prox, one block and p normals.

It draws at the addresses of the plain loop and does the same arithmetic, so the two agree to rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numba as nb
import numpy as np
from numpy.typing import NDArray

from hushpoint._keyed import fill_normals, fill_uniforms
from hushpoint.kernels.codes import RAMP, SQUARED, PenaltyCode, ScalarLoss
from hushpoint.noise import Source, role_word
from hushpoint.problem import Rows

if TYPE_CHECKING:
    from hushpoint.engine import State
    from hushpoint.plan import Plan
    from hushpoint.schedules import Walk

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass
class CompiledWalk:
    """Decentralized ADMM, many hops a call."""

    plan: Plan
    schedule: Walk
    gamma: float
    ridge: float
    loss: ScalarLoss
    penalty: PenaltyCode

    name: ClassVar[str] = "plain"  # its states are those of the plain loop
    at_once: ClassVar[int] = 1 << 13

    def blocks(self) -> Array:
        return self.plan.operator.start()[1]

    def prepare(self, rows: Rows) -> tuple[Rows, Array, Indices, Indices]:
        """The rows, limits of slopes for all of them, and the neighbour lists in one piece."""
        limits = np.full(len(rows), math.inf) if rows.limits is None else rows.limits
        lists = self.schedule.neighbours or ()
        starts = np.concatenate([[0], np.cumsum([len(others) for others in lists])]).astype(np.int64)
        flat = np.array([other for others in lists for other in others], dtype=np.int64)
        return rows, limits, starts, flat

    def advance(
        self, data: tuple[Rows, Array, Indices, Indices], source: Source, state: State, z: Array, count: int
    ) -> None:
        """So many hops, on the state."""
        plan, (rows, limits, starts, flat) = self.plan, data
        relaxations = np.array([plan.relaxation_at(state.steps + hop) for hop in range(count)])
        shared = state.shared.copy()
        state.position = _hops(
            (source.secure, source.key, role_word("schedule"), role_word("block")),
            state.steps,
            relaxations,
            plan.noise.std,
            (rows.features, rows.targets, rows.squared_norms, limits),
            self.loss.code,
            (self.gamma, 1 / (1 + self.gamma * self.ridge)),
            self.penalty.code,
            (starts, flat, -1 if self.schedule.cap is None else self.schedule.cap),
            state.position,
            state.participations,
            state.blocks,
            shared,
        )
        state.shared = state.public = shared
        state.steps += count


@nb.njit(cache=True)
def _prox(kind, width, lowest, highest, v, b, scale, limit):
    """``argmin_t phi(t, b) + (t - v)^2/(2 scale)`` for a loss whose slope is cut at ``limit``."""
    if scale == 0.0:
        return v
    if kind == SQUARED:
        t = v / (1.0 + scale) + scale / (1.0 + scale) * b
    elif kind == RAMP:
        if math.isnan(lowest):  # the hinge: slopes towards the class
            lowest, highest = min(-b, 0.0), max(-b, 0.0)
        total = width + scale
        t = min(max(width / total * v + scale / total * b, v - scale * highest), v - scale * lowest)
    else:
        t = _logistic_prox(b * v, scale) * b
    reach = scale * limit
    return min(max(t, v - reach), v + reach)


@nb.njit(cache=True)
def _logistic_prox(m, scale):
    """Solve ``x = m + scale / (1 + exp(x))`` by Newton inside a bracket."""
    low, high = m, m + scale / (1.0 + math.exp(min(m, 700.0)))
    x = min(high, max(m, math.log1p(scale)))
    for _ in range(200):
        share = 1.0 / (1.0 + math.exp(min(max(x, -700.0), 700.0)))
        gap = x - m - scale * share
        if gap > 0:
            high = x
        else:
            low = x
        if abs(gap) <= 1e-13 * (1.0 + abs(m)) or high - low <= 1e-15 * (1.0 + abs(x)):
            break
        newton = x - gap / (1.0 + scale * share * (1.0 - share))
        x = newton if low < newton < high else 0.5 * (low + high)
    return x


@nb.njit(cache=True)
def _hops(keys, first, relaxations, noise, data, loss, steps, penalty, graph, position, participations, blocks, shared):
    secure, key, draw_role, noise_role = keys
    features, targets, squared_norms, limits = data
    kind, width, lowest, highest = loss
    gamma, shrink = steps
    l1, l2, skip_last = penalty
    starts, flat, cap = graph
    items, size = blocks.shape
    penalised = size - 1 if skip_last else size
    coin, who, kick, z = np.empty(1), np.empty(1, dtype=np.int64), np.zeros((1, size)), np.empty(size)
    for hop in range(relaxations.size):
        step, relaxation = np.uint32(first + hop), relaxations[hop]
        fill_uniforms(secure, key, draw_role, np.uint32(0), step, coin)
        if flat.size == 0 or position < 0:
            position = np.int64(coin[0] * items)
        else:
            position = flat[starts[position] + np.int64(coin[0] * (starts[position + 1] - starts[position]))]
        if 0 <= cap <= participations[position]:
            continue
        participations[position] += 1
        block, row = blocks[position], features[position]
        margin = 0.0
        for j in range(size):
            value = shared[j]
            if j < penalised:
                value = math.copysign(max(abs(value) - gamma * l1, 0.0), value) / (1.0 + gamma * l2)
            z[j] = value
            margin += row[j] * (shrink * (2 * value - block[j]))
        squared = squared_norms[position]
        along = 0.0
        if squared > 0:
            scale = gamma * shrink * squared
            found = _prox(kind, width, lowest, highest, margin, targets[position], scale, limits[position])
            along = (found - margin) / squared
        if noise > 0:
            who[0] = position
            fill_normals(secure, key, noise_role, who, step, noise, kick)
        for j in range(size):
            x = shrink * (2 * z[j] - block[j]) + along * row[j]
            message = 2 * relaxation * (x - z[j]) + relaxation * kick[0, j]
            block[j] += message
            shared[j] += message / items
    return position
