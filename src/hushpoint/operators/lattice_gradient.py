"""Gradient methods on a lattice: messages of whole numbers, summed exactly (docs/privacy.md, section 11)."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from hushpoint._checks import require_positive
from hushpoint._types import Array, Indices
from hushpoint.certificates import Certificate
from hushpoint.operators.base import is_within
from hushpoint.operators.gradient import SAMPLED_SUM, Descent
from hushpoint.operators.sensitivity import moved_certificate
from hushpoint.operators.whole import require_left
from hushpoint.problem import Facts
from hushpoint.rows import BITS, RowGrid, Rows, Turn, integer_rows, slope_limits

if TYPE_CHECKING:
    from hushpoint.kernels.integers import Sums

_RECORD_BITS = 39  # of a message: 2^14 of them add up exactly in double precision
_USER_BITS = 45  # more, since a user's rows share them; 2^8 add up exactly
_TURNED_BITS = 40  # of a message before it is turned, where the bound is on what becomes of it: 2^13 add up exactly
_BEYOND_ONE = 3  # bits of slopes above 1, where rows are turned
_MOST_BITS = 61  # of a sum, so that with noise it fits into 64


@dataclass(frozen=True)
class GradientGrid:
    """On which lattice gradients are: that of the rows, of the slopes (``2^-slope_exponent``), and of the sum.

    A sum is seen through ``turn``, if there is one, and divided by ``2^shift`` before noise is added.
    """

    rows: RowGrid
    slope_exponent: int
    turn: Turn | None = None
    shift: int = 0

    @property
    def fine(self) -> int:
        """What a bound on messages is counted in: ``2^-fine``."""
        return self.rows.exponent + self.slope_exponent + (0 if self.turn is None else self.turn.exponent)

    @property
    def unit(self) -> float:
        """The step of what is released."""
        return math.ldexp(1.0, self.shift - self.fine)

    @staticmethod
    def of(facts: Facts) -> GradientGrid:
        """The finest grid for the gradients of a problem with a declared row norm."""
        if facts.row_norm is None or not math.isfinite(facts.gradient_bound):
            raise ValueError("; ".join(facts.missing) or "row_norm is not declared. Pass row_norm=R.")
        rows = RowGrid.of(facts.row_norm)
        summed = facts.rows if facts.weights == "rows" else facts.items
        bits = _RECORD_BITS if facts.rows_per_item is None else _USER_BITS
        bits = min(bits, _MOST_BITS - math.ceil(math.log2(summed)))
        longest = math.frexp(facts.gradient_bound)[1]  # below 2 to this power
        return GradientGrid(rows, bits - longest - rows.exponent)

    @staticmethod
    def turned(
        facts: Facts, row_norm: float, constant: float, weights: Array, column: Array | None = None
    ) -> GradientGrid:
        """The grid for rows of a norm, with a constant, seen through a matrix, where slopes are about 1."""
        rows, turn = RowGrid.of(row_norm, constant), Turn.of(weights, column)
        bits = min(_TURNED_BITS, _MOST_BITS - math.ceil(math.log2(facts.items)))
        # Dividing the sum keeps it within 64 bits after the turn too.
        fine = rows.exponent + bits - BITS - _BEYOND_ONE + turn.exponent
        excess = math.ceil(math.log2(facts.items) + math.log2(facts.gradient_bound)) + fine - _MOST_BITS
        return GradientGrid(rows, bits - BITS - _BEYOND_ONE, turn, turn.allowed_shift(excess))

    @property
    def slope_bits(self) -> int:
        """Of the slopes of an item in all, where rows are turned."""
        return self.slope_exponent + _BEYOND_ONE


class LatticeGradient(Descent):
    """``z <- prox_{g r}(z - g (G + eta))`` as ``Gradient``, with messages of whole numbers and exact sums.

    The message of an item is the sum over its rows of ``s a``: a row of whole numbers times a whole slope, which is cut
    so that the message, seen through the grid's matrix, is no longer than K. It depends on nothing but the item's rows
    and the public point, to the bit; ``unit`` is the step of the lattice after the cut of the sum.
    Promises: one item moves the cut sum by at most ``2 K 2^-shift`` steps (replace-one) or ``K 2^-shift`` (zero-out),
    and ``sqrt(p)`` more where the shift is not 0. No Lipschitz constant: rounding is no contraction.
    """

    name = "gradient on a lattice"
    places = ("sum",)
    federates = True
    facts: Facts
    unit: float

    def __init__(self, facts: Facts, step_size: float, sampled: float, grid: GradientGrid) -> None:
        if facts.loss.slope_code is None:
            raise ValueError(f"loss is {facts.loss.name!r}, which compiled code does not know. Pass lattice=False.")
        self.facts, self.step_size, self.sampled = facts, require_positive("step_size", step_size), sampled
        self.grid, self.unit = grid, grid.unit
        self.blocks, self.message_size = facts.items, facts.width
        self.counted = facts.items / facts.rows if facts.weights == "rows" else 1.0  # what a step of the sum is worth
        self.longest = whole_multiple(facts.gradient_bound, grid.fine)
        self.most = 1 << (grid.slope_bits + BITS) if grid.turn is not None else math.ceil(self.longest)

    def coarser(self, bits: int) -> Self:
        found, turn = copy.copy(self), self.grid.turn
        shift = self.grid.shift + bits
        found.grid = replace(self.grid, shift=shift if turn is None else turn.allowed_shift(shift))
        found.unit = found.grid.unit
        require_left("the bound on gradients", self.facts.gradient_bound, found.unit)
        return found

    def prepare(self, rows: Rows) -> Rows:
        grid = self.grid
        integers = integer_rows(rows.store, grid.rows)
        squared = integers.squared if grid.turn is None else grid.turn.squared_lengths(integers)
        counts = np.ones(len(rows))
        if self.facts.weights == "items":
            counts = np.repeat(rows.counts, rows.counts).astype(np.float64)
        limits = slope_limits(squared, counts, self.longest)
        if grid.turn is not None:
            limits = np.minimum(limits, np.floor(2.0**grid.slope_bits / counts))
        return replace(rows, store=integers, squared_norms=integers.squared, limits=limits)

    def local(
        self, data: Rows, chosen: Indices | slice, block: Array, z: Array, relaxation: float, kick: Array | None
    ) -> tuple[Array, Any]:
        items = np.arange(data.items)[chosen]
        alone = [self.move(data, np.array([item]), block, z, relaxation, None, None)[1] for item in items]
        return block, np.array(alone, dtype=np.int64).reshape(-1, self.message_size)

    def move(
        self,
        data: Rows,
        chosen: Indices | slice,
        block: Array,
        z: Array,
        relaxation: float,
        kick: Array | None,
        multiplicity: Array | None,
    ) -> tuple[Array, Any]:
        point = self.looked_at(z)
        point = point if self.grid.turn is None else self.grid.turn.back(point)
        return block, data.take(chosen).once(self._sums).at(point)

    def _sums(self, rows: Rows) -> Sums:
        from hushpoint.kernels.integers import Slopes, Sums

        assert self.facts.loss.slope_code is not None
        code, weights = self.facts.loss.slope_code
        shares = np.array([2.0**self.grid.slope_exponent])
        if self.facts.weights == "items" and rows.offsets is not None:
            shares = shares / np.repeat(rows.counts, rows.counts)
        slopes = Slopes(code, weights, rows.targets, rows.slope_limits, shares, self.most)
        return Sums(rows.store, slopes, self.grid.rows.constant, self.grid.rows.exponent)

    def cut(self, total: NDArray[Any]) -> NDArray[Any]:
        if self.grid.turn is not None:
            return self.grid.turn.shifted(total, self.grid.shift)
        return total >> self.grid.shift

    def stepped(self, point: Array, total: Array, relaxation: float) -> Array:
        step = relaxation * self.step_size
        summed = total * (self.counted * self.unit)
        return self.facts.regularizer.prox(point - step * summed / self.sampled, step)

    def is_plausible(self, message: Array, block: Array, z: Array, relaxation: float, noise_std: float) -> bool:
        if self.grid.turn is not None:
            return bool(np.abs(message).max(initial=0) <= self.most)
        return is_within(message.astype(np.float64), self.longest * float(np.max(times_counted(self.facts))))

    def certificate(self, relaxation: float) -> Certificate:
        facts, bound = self.facts, math.ldexp(self.longest, -self.grid.fine)
        theorem = replace(SAMPLED_SUM, forgets=False)
        plain = moved_certificate(None, 2 * bound * times_counted(facts), facts, 0.0, facts.because, theorem)
        slack = cut_slack(self.message_size, self.unit) if self.grid.shift else 0.0
        table = {whom: round_sum(moved, slack) for whom, moved in plain.sensitivity.items()}
        missing = (*plain.missing, "rounding to a lattice is no contraction")
        return replace(plain, sensitivity=table, missing=missing)


def times_counted(facts: Facts) -> float | Array:
    """How often K one item may be in the sum: one number, or one per item."""
    return np.asarray(facts.row_counts, dtype=np.float64) if facts.weights == "rows" else 1.0


def whole_multiple(bound: float, exponent: int) -> float:
    """The largest whole number of steps of ``2^-exponent`` within a bound; exact, since 53 bits hold it."""
    return float(math.floor(Fraction(bound) * Fraction(2) ** exponent))


def cut_slack(size: int, unit: float) -> float:
    """By how much dividing two vectors of whole numbers and rounding down can move them apart."""
    return math.sqrt(size) * (1 + 1e-15) * unit


def round_sum(moved: float | Array, slack: float) -> float | Array:
    """A sum of two bounds, rounded up."""
    return moved if slack == 0 else (moved + slack) * (1 + 1e-15)
