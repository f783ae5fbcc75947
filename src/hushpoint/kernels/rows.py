"""Consensus ADMM over users of one row each, compiled: rounds of some users, and walks of one user at a time.

Both draw at the addresses of the plain loop and do the same arithmetic, so they agree with it to rounding; their states
are its states.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from hushpoint._codes import LossCode, PenaltyCode
from hushpoint._compiled import inner, loop
from hushpoint._keyed import first_uniforms, scratch, secure_normals, seeded_normals, start_eight
from hushpoint._threads import share
from hushpoint._types import Array
from hushpoint.kernels.draw import coded_schedule, draw_members
from hushpoint.kernels.scalar import prox, release
from hushpoint.kernels.table import row_add, row_dot, table_of
from hushpoint.noise import Source, role_word, word
from hushpoint.rows import Rows

if TYPE_CHECKING:
    from hushpoint.engine import State
    from hushpoint.plan import Plan
    from hushpoint.schedules import Walk

_EIGHT = 8  # addresses that start together
_GROUP = 512  # users with a sum of their own: sums of groups are added in order, whichever thread made them
_WORTH_SHARING = 1 << 17  # numbers in the messages of a round from which on threads pay


@dataclass
class _CompiledRows:
    plan: Plan
    gamma: float
    ridge: float
    loss: LossCode
    penalty: PenaltyCode

    name: ClassVar[str] = "plain"

    def blocks(self) -> Array:
        return self.plan.operator.start()[1]

    def prepare(self, rows: Rows) -> tuple[Any, ...]:
        """Rows, targets, squared lengths, and limits of slopes for all of them."""
        return table_of(rows.store), rows.targets, rows.squared_norms, rows.slope_limits

    def _method(self) -> tuple[Any, ...]:
        """What does not change from step to step."""
        return self.loss, (self.gamma, 1 / (1 + self.gamma * self.ridge)), self.penalty, self.plan.noise.std

    def _relaxations(self, first: int, count: int) -> Array:
        word(first + count)  # addresses would come again beyond
        return np.array([self.plan.relaxation_at(first + k) for k in range(count)])


@dataclass
class CompiledRounds(_CompiledRows):
    """Rounds in which a drawn set of users moves."""

    at_once: ClassVar[int] = 256

    def advance(self, data: tuple[Any, ...], source: Source, state: State, z: Array, count: int) -> None:
        from hushpoint.engine import choose

        plan, method, first = self.plan, self._method(), state.steps
        relaxations = self._relaxations(first, count)
        keys = source.secure, source.key, role_word("block")
        schedule = coded_schedule(plan.schedule)
        shared = state.shared.copy()
        if schedule is not None and schedule[2] * shared.size < _WORTH_SHARING:
            last = _rounds(keys, first, relaxations, data, method, schedule, state.participations, state.blocks, shared)
            state.position = state.position if last < 0 else last
        else:
            for k in range(count):
                chosen, _, state.position = choose(
                    plan, source, first + k, state.position, state.participations, state.planned
                )
                members = np.arange(len(state.blocks)) if chosen is None else chosen
                self._large_round(keys, first + k, relaxations[k], data, members, state.blocks, shared)
                state.participations[members] += 1
        state.steps += count
        state.shared = state.public = shared

    def _large_round(
        self, keys: Any, step: int, relaxation: float, data: Any, members: Any, blocks: Array, shared: Array
    ) -> None:
        """One round on all threads."""
        method, z = self._method(), np.empty_like(shared)
        release(shared, self.gamma, self.penalty, z)
        totals = np.zeros((max(1, -(-len(members) // _GROUP)), len(z)))

        def groups(start: int, stop: int) -> None:
            for group in range(start, stop):
                part = members[group * _GROUP : (group + 1) * _GROUP]
                _move_all(keys, step, relaxation, data, method, part, z, blocks, totals[group])

        share(groups, len(totals))
        shared += totals.sum(axis=0) / len(blocks)


@dataclass
class CompiledWalk(_CompiledRows):
    """A walk: one user a hop, drawn inside the loop."""

    at_once: ClassVar[int] = 1 << 13

    @cached_property
    def _graph(self) -> tuple[Any, ...]:
        """Where each user's neighbours start in one long list, that list, the role of its draws, and the cap."""
        schedule = cast("Walk", self.plan.schedule)
        lists = schedule.neighbours or ()
        starts = np.concatenate([[0], np.cumsum([len(others) for others in lists])]).astype(np.int64)
        flat = np.array([other for others in lists for other in others], dtype=np.int64)
        return starts, flat, role_word("schedule"), -1 if schedule.cap is None else schedule.cap

    def advance(self, data: tuple[Any, ...], source: Source, state: State, z: Array, count: int) -> None:
        relaxations = self._relaxations(state.steps, count)
        keys = source.secure, source.key, role_word("block")
        shared = state.shared.copy()
        state.position = _hops(
            keys, state.steps, relaxations, data, self._method(), self._graph,
            state.position, state.participations, state.blocks, shared,
        )  # fmt: skip
        state.shared = state.public = shared
        state.steps += count


@inner
def _move(item, data, method, z, relaxation, kick, block, total):
    """Move one block from the public point z and add its message to the total; ``kick`` becomes the message."""
    table, targets, squared_norms, limits = data
    loss, (gamma, shrink), _, _ = method
    squared = squared_norms[item]
    weight = 0.0
    if squared > 0:
        margin = shrink * (2 * row_dot(table, item, z) - row_dot(table, item, block))
        found = prox(loss, margin, targets[item], gamma * shrink * squared, limits[item])
        weight = 2 * relaxation * ((found - margin) / squared)
    of_z, of_block = 2 * relaxation * (2 * shrink - 1), 2 * relaxation * shrink
    for j in range(z.size):
        kick[j] = of_z * z[j] - of_block * block[j] + relaxation * kick[j]
    row_add(table, item, weight, kick)
    for j in range(z.size):
        block[j] += kick[j]
        total[j] += kick[j]


@inner
def _kick(keys, item, step, noise, state, kick, room):
    """The noise of one block in one step: ``state`` is the SFC64 state of its address."""
    secure, _, role = keys
    if noise == 0:
        for j in range(kick.size):
            kick[j] = 0.0
    elif secure:
        secure_normals(role, item, step, noise, kick, room)
    else:
        seeded_normals(state, noise, kick)


@loop
def _move_all(keys, step, relaxation, data, method, members, z, blocks, total):
    """Move the blocks of some users; the sum of their messages goes to ``total``."""
    secure, key, role = keys
    noise = method[3]
    room, kick, steps = scratch(key), np.empty(z.size), np.empty(_EIGHT, dtype=np.int64)
    for k in range(_EIGHT):
        steps[k] = step
    for j in range(total.size):
        total[j] = 0.0
    for start in range(0, members.size, _EIGHT):
        part = members[start : start + _EIGHT]
        if noise > 0 and not secure:
            start_eight(role, part, steps, room)
        for k in range(part.size):
            _kick(keys, part[k], step, noise, room[3][k], kick, room)
            _move(part[k], data, method, z, relaxation, kick, blocks[part[k]], total)


@loop
def _rounds(keys, first, relaxations, data, method, schedule, participations, blocks, shared):
    """Many rounds; returns the last user that was drawn."""
    secure, key, _ = keys
    _, (gamma, _), penalty, _ = method
    items, size = blocks.shape
    room, coins, members = scratch(key), np.empty(items), np.empty(items, dtype=np.int64)
    z, total = np.empty(size), np.empty(size)
    last = -1
    for k in range(relaxations.size):
        count, drawn = draw_members(secure, schedule, first + k, participations, members, coins, room)
        last = drawn if drawn >= 0 else last
        release(shared, gamma, penalty, z)
        _move_all(keys, first + k, relaxations[k], data, method, members[:count], z, blocks, total)
        for j in range(size):
            shared[j] += total[j] / items
        for member in members[:count]:
            participations[member] += 1
    return last


@loop
def _hops(keys, first, relaxations, data, method, graph, position, participations, blocks, shared):
    """Many hops, eight addresses at a time; returns where the walk stands after them."""
    secure, key, role = keys
    _, (gamma, _), penalty, noise = method
    starts, flat, draw_role, cap = graph
    items, size = blocks.shape
    room, z, total, kick = scratch(key), np.empty(size), np.empty(size), np.empty(size)
    coins, steps, nobody = np.empty(_EIGHT), np.empty(_EIGHT, dtype=np.int64), np.zeros(_EIGHT, dtype=np.int64)
    path = np.empty(_EIGHT, dtype=np.int64)
    for start in range(0, relaxations.size, _EIGHT):
        count = min(_EIGHT, relaxations.size - start)
        for k in range(count):
            steps[k] = first + start + k
        first_uniforms(secure, draw_role, nobody[:count], steps, coins[:count], room)
        for k in range(count):
            if flat.size == 0 or position < 0:
                position = np.int64(coins[k] * items)
            else:
                position = flat[starts[position] + np.int64(coins[k] * (starts[position + 1] - starts[position]))]
            path[k] = position
        if noise > 0 and not secure:
            start_eight(role, path[:count], steps, room)
        for k in range(count):
            item = path[k]
            if 0 <= cap <= participations[item]:
                continue
            participations[item] += 1
            _kick(keys, item, steps[k], noise, room[3][k], kick, room)
            release(shared, gamma, penalty, z)
            for j in range(size):
                total[j] = 0.0
            _move(item, data, method, z, relaxations[start + k], kick, blocks[item], total)
            for j in range(size):
                shared[j] += total[j] / items
    return position
