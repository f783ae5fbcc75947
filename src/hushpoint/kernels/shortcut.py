"""Consensus ADMM with full participation, without its n x p state.

Where every item is one row of a generalised linear loss and all move at every step, block i enters the released models
only through ``t_i = a_i.u_i`` and through the mean of the blocks. Of its noise only ``a_i.eta_i = sigma |a_i| g_i`` and
the mean matter, and

    mean(eta) = (sigma/n) (sum_i g_i a_i/|a_i| + F h),   F F' = n I - sum_i a_i a_i'/|a_i|^2,

with g and h standard normal: n + p draws a step instead of n p, and one pass over the rows. The law of the models
is exactly that of the plain loop; blocks and messages are not formed, so whoever asks for them gets the plain loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hushpoint._codes import LossCode, PenaltyCode
from hushpoint._compiled import loop
from hushpoint._keyed import normals_at, scratch
from hushpoint._threads import share
from hushpoint._types import Array
from hushpoint.kernels.passes import passes_over
from hushpoint.kernels.scalar import prox, release
from hushpoint.kernels.table import TILE, add, copy, dot, tile_add, tile_dots
from hushpoint.noise import Source, role_word, word
from hushpoint.rows import Rows

if TYPE_CHECKING:
    from hushpoint.engine import State
    from hushpoint.plan import Plan

STRETCH = 1024  # rows whose normals come from one address
GROUP = 16 * STRETCH  # rows with a sum of their own: sums of groups are added in order, whichever thread made them
_WORTH_SHARING = 1 << 19  # numbers in the features from which on threads pay


@dataclass
class ConsensusShortcut:
    """The shortcut for one plan. ``state.blocks`` holds the t_i, one number an item."""

    plan: Plan
    gamma: float
    ridge: float
    loss: LossCode | None  # None: a loss that only NumPy knows
    penalty: PenaltyCode | None  # None: a regulariser that only NumPy knows

    name: ClassVar[str] = "shortcut"

    @property
    def at_once(self) -> int:
        """Many steps, if the public point can be made in compiled code."""
        return 1 if self.loss is None or self.penalty is None else 256

    def blocks(self) -> Array:
        """``t_i = a_i.u_i = 0``."""
        return np.zeros((self.plan.operator.blocks, 1))

    def prepare(self, rows: Rows) -> _Prepared:
        squared = rows.squared_norms
        inverse = np.sqrt(np.divide(1.0, squared, out=np.zeros_like(squared), where=squared > 0))
        width = rows.store.width
        # The matrix may be singular, so its root comes from eigenvalues.
        values, vectors = np.linalg.eigh(len(rows) * np.eye(width) - passes_over(rows).hessian(inverse**2))
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        scales = self.gamma / (1 + self.gamma * self.ridge) * squared
        table = rows.store.arrays
        return _Prepared(rows, inverse, root, (table, rows.targets, scales, rows.slope_limits, inverse, squared))

    def advance(self, data: _Prepared, source: Source, state: State, z: Array, count: int) -> None:
        plan, first = self.plan, state.steps
        word(first + count)  # addresses would come again beyond
        relaxations = np.array([plan.relaxation_at(first + k) for k in range(count)])
        keys = source.secure, source.key, role_word("along"), role_word("across")
        setting = self.loss, 1 / (1 + self.gamma * self.ridge), plan.noise.std
        t, shared, z = state.blocks[:, 0], state.shared.copy(), z.copy()
        totals = np.zeros((-(-len(t) // GROUP), len(z)))
        penalty = (0.0, 0.0, False) if self.penalty is None else self.penalty
        compiled = self.loss is not None and data.arrays[0] is not None
        if compiled and t.size * z.size < _WORTH_SHARING:
            prox_of_r = self.gamma, penalty
            _steps(keys, first, relaxations, setting, prox_of_r, data.arrays, data.root, t, z, shared, totals)
        else:
            for k in range(count):
                if k:
                    release(shared, self.gamma, penalty, z)
                if compiled:
                    move = partial(_groups, keys, first + k, relaxations[k], setting, data.arrays, t, z, totals)
                    share(move, len(totals))
                else:
                    self._numpy_move(data, source, first + k, relaxations[k], t, z, totals)
                _combine(keys, first + k, relaxations[k], *setting[1:], data.root, totals, len(t), z, shared)
        state.shared = state.public = shared
        state.participations += count
        state.steps += count

    def _numpy_move(
        self, data: _Prepared, source: Source, step: int, relaxation: float, t: Array, z: Array, totals: Array
    ) -> None:
        """``_groups`` over all rows, for losses and stores that only NumPy knows."""
        rows, noise = data.rows, self.plan.noise.std
        at_z = rows.margins(z)
        margins = 1 / (1 + self.gamma * self.ridge) * (2 * at_z - t)
        found = rows.row_loss.prox(margins, rows.targets, data.arrays[2])
        stretches = -(-len(t) // STRETCH)
        g = noise * source.normals("along", np.arange(stretches), step, STRETCH).reshape(-1)[: len(t)]
        t += relaxation * (2 * (found - at_z) + rows.squared_norms * data.inverse * g)
        weights = relaxation * data.inverse * (2 * (found - margins) * data.inverse + g)
        totals[:] = 0.0
        totals[0] = rows.store.pull(weights)


@dataclass(frozen=True)
class _Prepared:
    rows: Rows
    inverse: Array  # 1 / |a_i|, 0 for a row of zeros
    root: Array  # F
    arrays: tuple[Any, ...]  # table, targets, prox steps along the rows, limits of slopes, inverse, squared lengths


@loop
def _groups(keys, step, relaxation, setting, arrays, t, z, totals, first_group, last_group):
    """Move the t_i of some groups of rows from the public point z; their weighted sums go to ``totals``."""
    secure, key, role, _ = keys
    loss, shrink, noise = setting
    table, targets, scales, limits, inverse, squared = arrays
    room, g, zeros = scratch(key), np.zeros(STRETCH), np.zeros(z.size)
    at_z, weights = np.empty(TILE), np.empty(TILE)
    for group in range(first_group, last_group):
        total = totals[group]
        copy(zeros, total)
        last = min((group + 1) * GROUP, t.size)
        for start in range(group * GROUP, last, STRETCH):
            stop = min(start + STRETCH, last)
            if noise > 0:
                normals_at(secure, role, start // STRETCH, step, noise, g[: stop - start], room)
            for first in range(start, stop, TILE):
                count = min(TILE, stop - first)
                tile_dots(table, first, count, z, at_z)
                for k in range(count):
                    i = first + k
                    margin = shrink * (2 * at_z[k] - t[i])
                    found = prox(loss, margin, targets[i], scales[i], limits[i])
                    kick = g[i - start]
                    t[i] += relaxation * (2 * (found - at_z[k]) + squared[i] * inverse[i] * kick)
                    weights[k] = relaxation * inverse[i] * (2 * (found - margin) * inverse[i] + kick)
                tile_add(table, first, count, weights, total)


@loop
def _combine(keys, step, relaxation, shrink, noise, root, totals, items, z, shared):
    """The mean of the blocks after a step from z, on ``shared``."""
    secure, key, _, role = keys
    h = np.zeros(z.size)
    if noise > 0:
        normals_at(secure, role, np.int64(0), step, relaxation * noise, h, scratch(key))
    total = np.zeros(z.size)
    for group in range(len(totals)):
        add(1.0, totals[group], total)
    for j in range(z.size):
        drift = 2 * relaxation * ((2 * shrink - 1) * z[j] - shrink * shared[j])
        shared[j] += drift + (total[j] + dot(root[j], h)) / items


@loop
def _steps(keys, first, relaxations, setting, prox_of_r, arrays, root, t, z, shared, totals):
    """Many steps, the first of them from z."""
    _, shrink, noise = setting
    gamma, penalty = prox_of_r
    for k in range(relaxations.size):
        if k > 0:
            release(shared, gamma, penalty, z)
        _groups(keys, first + k, relaxations[k], setting, arrays, t, z, totals, 0, len(totals))
        _combine(keys, first + k, relaxations[k], shrink, noise, root, totals, t.size, z, shared)
