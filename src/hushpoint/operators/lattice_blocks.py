"""Anchored ADMM on the lattice: blocks are whole numbers, what is shared is their exact sum."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from hushpoint._types import Array, Indices
from hushpoint.certificates import Certificate
from hushpoint.operators.consensus import FRESH_NOISE, AnchoredADMM
from hushpoint.operators.sensitivity import item_certificate
from hushpoint.operators.whole import MOST_IN_ALL, is_whole_within, most_steps, unit_for
from hushpoint.problem import Facts
from hushpoint.regularizers import Regularizer
from hushpoint.rows import Rows

if TYPE_CHECKING:
    from hushpoint.kernels.lattice_blocks import IdleMoves, RowMoves, UserMoves

_SPARE = 18  # bits for how many times the radius the public point may be from 0


class LatticeBlocks(AnchoredADMM):
    """Anchored ADMM on a lattice of step ``unit``: blocks are integers within ``most`` steps of the public point.

    The public point is rounded to integers Z. A participant keeps ``U_i = Z + k_i``, k_i its clipped move in whole
    units, truncated toward 0; the message is the change of U_i. What is shared is the sum of all U_i (n_i times each
    where items weigh by their rows), and each release adds fresh noise to that sum; a release is divided by the number
    of terms afterwards. Promises: k_i is a function of the item's own rows and block and of the public point, to the
    bit, and at most ``most = floor(radius/unit)`` long. One row moves it by no more than the item can.
    """

    name = "anchored ADMM on a lattice"
    unit: float

    def __init__(
        self,
        facts: Facts,
        gamma: float,
        penalty: Regularizer,
        ridge: float = 0.0,
        radius: float | None = None,
        tolerance: float | None = None,
    ) -> None:
        super().__init__(facts, gamma, penalty, ridge, radius, tolerance)
        self.multiplicity = facts.row_counts if facts.weights == "rows" else None
        self.summed = facts.rows if facts.weights == "rows" else facts.items  # terms of the sum
        self.unit = unit_for(self.radius, self.summed, _SPARE)
        self.most = most_steps("radius", self.radius, self.unit, self.summed)
        self.chunk = max(64, (1 << 18) // facts.width)

    def coarser(self, bits: int) -> Self:
        other = copy.copy(self)
        other.unit = self.unit * 2.0**bits
        other.most = most_steps("radius", self.radius, other.unit, self.summed)
        return other

    def unclipped(self) -> Self:
        raise ValueError("steps on a lattice are not linear. Make the plan with lattice=False.")

    def prepare(self, rows: Rows) -> RowMoves | UserMoves:  # type: ignore[override]
        from hushpoint.kernels.lattice_blocks import RowMoves, UserMoves

        if rows.offsets is None:
            return RowMoves(rows, self.gamma, self.ridge)
        return UserMoves(rows, self.gamma, self.ridge, self.tolerance)

    def without_data(self) -> IdleMoves:  # type: ignore[override]
        from hushpoint.kernels.lattice_blocks import IdleMoves

        return IdleMoves(self.gamma, self.ridge)

    def start(self) -> tuple[Any, Any]:
        return self.nothing(), np.zeros((self.blocks, self.block_size), dtype=np.int64)

    def release(self, shared: Array) -> Array:
        return self.penalty.prox(shared * (self.unit / self.summed), self.gamma)

    def anchor(self, z: Array) -> Indices:
        """The public point, or one per row, in whole units; refused where a sum of blocks there could overflow."""
        with np.errstate(over="ignore"):
            steps = np.rint(z / self.unit)
        if not np.all(np.abs(steps) <= self._farthest):
            raise RuntimeError(
                f"the public point has a coordinate beyond {self._farthest * self.unit:g}, where the sum of the blocks "
                "does not fit into 64 bits. Add less noise, or pass a larger radius or lattice=False."
            )
        return steps.astype(np.int64)

    @property
    def _farthest(self) -> int:
        """The largest coordinate of the public point, in steps, at which no sum of blocks can overflow."""
        return MOST_IN_ALL // self.summed - self.most - 1

    def local(
        self, data: Any, chosen: Indices | slice, block: Any, z: Array, relaxation: float, kick: Array | None
    ) -> tuple[Any, Any]:
        moved = data.kept(chosen, block, np.atleast_2d(self.anchor(z)), relaxation, self.unit, self.most)
        return moved, moved - block

    def told(self, data: Any, block: Any, z: Array, relaxation: float, times: Any) -> tuple[Any, Any]:
        moved, _ = self.local(data, slice(None), block, z, relaxation, None)
        away = moved - self.anchor(z)  # at most ``most`` steps long, whatever the point and the block are
        return moved, away.sum(axis=0) if times is None else times @ away

    def learned(self, shared: Array, z: Array, total: Array, relaxation: float) -> Array:
        return self.anchor(z) * self.summed + total

    def combine(self, shared: Array, total: Array, chosen: Indices | None, relaxation: float) -> Array:
        return shared + total

    def is_plausible(self, message: Any, block: Any, z: Array, relaxation: float, noise_std: float) -> bool:
        # In Python's integers: those of a stranger's message may be too long for a difference in int64.
        parts = zip(message.tolist(), block.tolist(), self.anchor(z).tolist(), strict=True)
        return is_whole_within([sent + kept - here for sent, kept, here in parts], self.most)

    def reach(self) -> float:
        """So that no sum of blocks overflows; the guarantee itself holds at any point."""
        return self._farthest * self.unit / (1 + 1e-9)

    def certificate(self, relaxation: float) -> Certificate:
        facts = self.facts
        counts = facts.row_counts if facts.weights == "rows" else np.ones(facts.items, dtype=np.int64)
        whole = self.most * self.unit * counts
        table = {("user", "replace-one"): 2 * whole, ("user", "zero-out"): whole}
        # One row may change all of a move, and without it the block need not be the public point.
        table |= {("record", "replace-one"): 2 * whole, ("record", "zero-out"): 2 * whole}
        because = (f"blocks stay within {self.most * self.unit:g} of the public point, in whole numbers",)
        missing = ("rounding the public point is not non-expansive",)
        return item_certificate(facts, table, because, missing, FRESH_NOISE)
