"""Consensus ADMM with full participation, without its n x p state.

Where every item is one row of a generalised linear loss and all move at every step, block i enters the released models
only through ``t_i = a_i.u_i`` and through the mean of the blocks. Of its noise only ``a_i.eta_i = sigma |a_i| g_i`` and
the mean matter, and

    mean(eta) = (sigma/n) (sum_i g_i a_i/|a_i| + F h),   F F' = n I - sum_i a_i a_i'/|a_i|^2,

with g and h standard normal: n + p draws a step instead of n p, and two matrix-vector products. The law of the models
is exactly that of the plain loop; blocks and messages are not formed, so whoever asks for them gets the plain loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from hushpoint.kernels.codes import LossCode
from hushpoint.kernels.scalar import prox_rows
from hushpoint.noise import Source
from hushpoint.problem import Rows

if TYPE_CHECKING:
    from hushpoint.engine import State
    from hushpoint.plan import Plan

Array = NDArray[np.float64]


@dataclass
class ConsensusShortcut:
    """The shortcut for one plan. ``state.blocks`` holds the t_i, one number an item."""

    plan: Plan
    gamma: float
    ridge: float
    loss: LossCode | None  # None: a loss that only NumPy knows

    name: ClassVar[str] = "shortcut"
    at_once: ClassVar[int] = 1  # every step needs its public point

    def blocks(self) -> Array:
        """``t_i = a_i.u_i = 0``."""
        return np.zeros((self.plan.operator.blocks, 1))

    def prepare(self, rows: Rows) -> _Prepared:
        """What every step needs of the rows."""
        squared = rows.squared_norms
        inverse = np.divide(1.0, squared, out=np.zeros_like(squared), where=squared > 0)
        width = rows.features.shape[1]
        gram = np.zeros((width, width))
        step = max(1, (1 << 18) // width)
        for start in range(0, len(rows), step):  # chunks: no second copy of the features
            part = rows.features[start : start + step]
            part = part.toarray() if rows.sparse else part
            gram += (part * inverse[start : start + step, None]).T @ part
        # The matrix may be singular, so its root comes from eigenvalues.
        values, vectors = np.linalg.eigh(len(rows) * np.eye(width) - gram)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        scales = self.gamma / (1 + self.gamma * self.ridge) * squared
        return _Prepared(rows, inverse, np.sqrt(squared), root, scales)

    def advance(self, data: _Prepared, source: Source, state: State, z: Array, count: int) -> None:
        """One step from the public point z."""
        plan, step = self.plan, state.steps
        relaxation, noise = plan.relaxation_at(step), plan.noise.std
        rows, items = data.rows, len(data.rows)
        shrink = 1 / (1 + self.gamma * self.ridge)
        along = state.blocks[:, 0]
        at_z = rows.margins(z)
        margins = shrink * (2 * at_z - along)
        if self.loss is None:
            found = rows.row_loss.prox(margins, rows.targets, data.scales)
        else:
            found = prox_rows(self.loss, margins, rows.targets, data.scales, rows.slope_limits)
        pull = (found - margins) * data.inverse  # x_i = shrink (2 z - u_i) + pull_i a_i
        change = 2 * relaxation * (found - at_z)
        weights = 2 * relaxation * pull
        mean_noise: Array | float = 0.0
        if noise > 0:
            g = source.normals("along", [0], step, items)[0]
            change += relaxation * noise * data.lengths * g
            weights += relaxation * noise * g * data.lengths * data.inverse
            mean_noise = relaxation * noise / items * (data.root @ source.normals("across", [0], step, len(z))[0])
        state.blocks[:, 0] = along + change
        drift = 2 * relaxation * ((2 * shrink - 1) * z - shrink * state.shared)
        state.shared = state.shared + drift + np.asarray(rows.features.T @ weights) / items + mean_noise
        state.public = state.shared
        state.participations += 1
        state.steps += 1


@dataclass(frozen=True)
class _Prepared:
    rows: Rows
    inverse: Array  # 1 / |a_i|^2, 0 for a row of zeros
    lengths: Array  # |a_i|
    root: Array  # F
    scales: Array  # prox step along a row
