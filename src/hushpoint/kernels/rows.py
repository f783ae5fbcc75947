"""Consensus ADMM over users of one row each, compiled: rounds of some users, and walks of one user at a time.

Both draw at the addresses of the plain loop and do the same arithmetic, so they agree with it to rounding; their states
are its states.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numba as nb
import numpy as np
from numpy.typing import NDArray

from hushpoint._keyed import fill_normals, fill_uniforms
from hushpoint.kernels.codes import LossCode, PenaltyCode
from hushpoint.kernels.scalar import prox
from hushpoint.noise import Source, role_word
from hushpoint.problem import Rows
from hushpoint.schedules import Walk

if TYPE_CHECKING:
    from hushpoint.engine import State
    from hushpoint.plan import Plan

Array = NDArray[np.float64]


@dataclass
class _CompiledRows:
    plan: Plan
    gamma: float
    ridge: float
    loss: LossCode
    penalty: PenaltyCode

    name: ClassVar[str] = "plain"

    def blocks(self) -> Array:
        """The blocks at the start."""
        return self.plan.operator.start()[1]

    def prepare(self, rows: Rows) -> tuple[Any, ...]:
        """Rows, targets, squared lengths, and limits of slopes for all of them."""
        return rows.features, rows.targets, rows.squared_norms, rows.slope_limits

    def _method(self) -> tuple[Any, ...]:
        """What does not change from step to step."""
        return self.loss, (self.gamma, 1 / (1 + self.gamma * self.ridge)), self.penalty, self.plan.noise.std


@dataclass
class CompiledRounds(_CompiledRows):
    """Rounds in which a drawn set of users moves."""

    at_once: ClassVar[int] = 256

    def advance(self, data: tuple[Any, ...], source: Source, state: State, z: Array, count: int) -> None:
        """So many rounds, on the state."""
        from hushpoint.engine import choose

        plan, method = self.plan, self._method()
        keys = source.secure, source.key, role_word("block")
        for _ in range(count):
            step = state.steps
            chosen, _, state.position = choose(plan, source, step, state.position, state.participations)
            members = np.arange(len(state.blocks)) if chosen is None else chosen
            state.shared = _round(
                keys, step, plan.relaxation_at(step), data, method, members, state.blocks, state.shared
            )
            state.participations[members] += 1
            state.steps += 1
        state.public = state.shared


@dataclass
class CompiledWalk(_CompiledRows):
    """A walk: one user a hop, drawn inside the loop."""

    at_once: ClassVar[int] = 1 << 13

    @cached_property
    def _graph(self) -> tuple[Any, ...]:
        """Where each user's neighbours start in one long list, that list, the role of its draws, and the cap."""
        schedule = self.plan.schedule
        lists = (schedule.neighbours or ()) if isinstance(schedule, Walk) else ()
        starts = np.concatenate([[0], np.cumsum([len(others) for others in lists])]).astype(np.int64)
        flat = np.array([other for others in lists for other in others], dtype=np.int64)
        return starts, flat, role_word("schedule"), -1 if schedule.cap is None else schedule.cap

    def advance(self, data: tuple[Any, ...], source: Source, state: State, z: Array, count: int) -> None:
        """So many hops, on the state."""
        plan = self.plan
        relaxations = np.array([plan.relaxation_at(state.steps + hop) for hop in range(count)])
        keys = source.secure, source.key, role_word("block")
        shared = state.shared.copy()
        state.position = _hops(
            keys, state.steps, relaxations, data, self._method(), self._graph,
            state.position, state.participations, state.blocks, shared,
        )  # fmt: skip
        state.shared = state.public = shared
        state.steps += count


@nb.njit(cache=True)
def _release(shared, gamma, penalty, z):
    """``z = prox_{gamma r}(shared)``."""
    l1, l2, skip_last = penalty
    penalised = z.size - 1 if skip_last else z.size
    for j in range(z.size):
        value = shared[j]
        if j < penalised:
            value = math.copysign(max(abs(value) - gamma * l1, 0.0), value) / (1.0 + gamma * l2)
        z[j] = value


@nb.njit(cache=True)
def _move(item, data, method, z, relaxation, kick, block, total):
    """Move one block from the public point z and add its message to the total."""
    features, targets, squared_norms, limits = data
    loss, (gamma, shrink), _, _ = method
    row, squared = features[item], squared_norms[item]
    margin = 0.0
    for j in range(z.size):
        margin += row[j] * (shrink * (2 * z[j] - block[j]))
    along = 0.0
    if squared > 0:
        along = (prox(loss, margin, targets[item], gamma * shrink * squared, limits[item]) - margin) / squared
    for j in range(z.size):
        x = shrink * (2 * z[j] - block[j]) + along * row[j]
        message = 2 * relaxation * (x - z[j]) + relaxation * kick[j]
        block[j] += message
        total[j] += message


@nb.njit(cache=True)
def _round(keys, step, relaxation, data, method, members, blocks, shared):
    secure, key, role = keys
    _, (gamma, _), penalty, noise = method
    items, size = blocks.shape
    z, total, kick, who = np.empty(size), np.zeros(size), np.zeros((1, size)), np.empty(1, dtype=np.int64)
    _release(shared, gamma, penalty, z)
    for item in members:
        if noise > 0:
            who[0] = item
            fill_normals(secure, key, role, who, np.uint32(step), noise, kick)
        _move(item, data, method, z, relaxation, kick[0], blocks[item], total)
    return shared + total / items


@nb.njit(cache=True)
def _hops(keys, first, relaxations, data, method, graph, position, participations, blocks, shared):
    secure, key, role = keys
    _, (gamma, _), penalty, noise = method
    starts, flat, draw_role, cap = graph
    items, size = blocks.shape
    z, total, kick = np.empty(size), np.empty(size), np.zeros((1, size))
    coin, who = np.empty(1), np.empty(1, dtype=np.int64)
    for hop in range(relaxations.size):
        step = np.uint32(first + hop)
        fill_uniforms(secure, key, draw_role, np.uint32(0), step, coin)
        if flat.size == 0 or position < 0:
            position = np.int64(coin[0] * items)
        else:
            position = flat[starts[position] + np.int64(coin[0] * (starts[position + 1] - starts[position]))]
        if 0 <= cap <= participations[position]:
            continue
        participations[position] += 1
        if noise > 0:
            who[0] = position
            fill_normals(secure, key, role, who, step, noise, kick)
        _release(shared, gamma, penalty, z)
        total[:] = 0.0
        _move(position, data, method, z, relaxations[hop], kick[0], blocks[position], total)
        for j in range(size):
            shared[j] += total[j] / items
    return position
