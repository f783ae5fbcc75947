"""One coordinate at a time, in whole numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpoint._types import Array, Indices
from hushpoint.certificates import Certificate
from hushpoint.kernels.lattice_columns import ROW_BITS, row_exponent, whole_columns
from hushpoint.operators.gradient import ONE_COORDINATE, CoordinateGradient
from hushpoint.operators.sensitivity import moved_certificate
from hushpoint.problem import Facts
from hushpoint.rows import Rows

if TYPE_CHECKING:
    from hushpoint.kernels import Kernel
    from hushpoint.plan import Plan

_BOUND_BITS = 39  # of a message at most: 2^14 of them are summed exactly in double precision
_LEAST_BITS = ROW_BITS + 1  # of the bound: the slope of the longest row still has a bit
_TOTAL_BITS = 62  # of a sum of messages
_USER_BITS = 20  # of the rows whose messages a user sums before it divides by their number
_RANGE = 400  # exponents of declared numbers with which no power of two here leaves double precision
_FINEST = 52 - 6  # the first grid: inner products up to 2^6
_COARSEST = _FINEST - 60 * 8  # the last one: up to 2^486
_INSIDE = 1 - 2.0**-48  # more than a root, a division and a product are off


def lattice_obstacle(facts: Facts) -> str:
    """Why a problem cannot be on the lattice, and the remedy; empty: it can."""
    if facts.loss.code is None:
        return f"the {facts.loss.name} loss is known to NumPy only. Use a loss of hushpoint.losses"
    if facts.row_norm is None:
        return "row_norm is not declared. Declare it on Problem"
    if not math.isfinite(facts.gradient_bound):
        return f"the {facts.loss.name} loss has no bound on its gradient. Pass clip=C to Problem"
    for name, number in (("row_norm", facts.row_norm), ("the gradient bound", facts.gradient_bound)):
        if abs(math.frexp(number)[1]) > _RANGE:
            return f"{name} is {number:g}, beyond 2^-{_RANGE} to 2^{_RANGE}. Scale the columns"
    return ""


class LatticeCoordinateGradient(CoordinateGradient):
    """DP-CD whose messages are whole numbers of steps of a lattice, summed exactly.

    A row is ``a~ = trunc(2^e a)``, the model ``w~ = rint(2^k w)``, the slope of the row's loss at their inner product a
    whole number s~, cut so that ``|s~| |a~| <= K``. A row's message about coordinate j is ``s~ a~_j``; that of a user
    is the rounded mean over its rows, or with ``weights="rows"`` their sum. What is shared is the model and k, which
    falls when the model has outgrown its grid.

    Promises: the message of an item is a function of its rows and the public model, bit for bit, and at most K steps
    of ``unit``, its rows times as many with ``weights="rows"``; K unit is at most the gradient bound.
    """

    def __init__(self, facts: Facts, step_size: float, coarsened: int = 0) -> None:
        super().__init__(facts, step_size)
        self.coarsened = coarsened
        self.row_exponent = row_exponent(float(facts.row_norm or 1.0))
        self.finest, self.coarsest = _FINEST - self.row_exponent, _COARSEST - self.row_exponent
        # The sum of all messages stays below 2^62, by public numbers.
        bits = min(_BOUND_BITS, _TOTAL_BITS - int(self.counted).bit_length()) - coarsened
        if bits < _LEAST_BITS:
            raise ValueError(
                f"noise_std, or the noise that the budget needs, is more than 2^{_LEAST_BITS} times what one item can "
                "change: whole numbers of 64 bits do not hold both. Pass lattice=False, or ask for less noise."
            )
        exponent = math.frexp(facts.gradient_bound)[1] - bits
        self.unit: float = math.ldexp(1.0, exponent)
        self.bound = int(facts.gradient_bound / self.unit)

    @property
    def counted(self) -> int:
        """How many messages of length 1 make the mean gradient: one per item, or one per row."""
        return self.facts.rows if self.facts.weights == "rows" else self.facts.items

    def coarser(self, bits: int) -> LatticeCoordinateGradient:
        return LatticeCoordinateGradient(self.facts, self.step_size, self.coarsened + bits)

    def prepare(self, rows: Rows) -> Any:
        """The columns as whole numbers; of each row target, factor and limit of its slope; and the users of rows."""
        columns = whole_columns(rows.store, self.row_exponent)
        pulls = np.full(len(rows), math.ldexp(1.0, -self.row_exponent) / self.unit)
        limits = np.full(len(rows), float(self.bound))
        owners, shares = np.zeros(0, dtype=np.int64), np.zeros(0)
        if rows.offsets is not None and self.facts.weights == "items":
            # A user of more than 2^20 rows makes their messages smaller first, so that their sum stays below 2^60.
            _, lengths = np.frexp(rows.counts - 0.5)
            folds = np.ldexp(1.0, np.maximum(0, lengths - _USER_BITS))
            owners, shares = np.repeat(np.arange(rows.items), rows.counts), folds / rows.counts
            pulls, limits = pulls / folds[owners], limits / folds[owners]
        with np.errstate(divide="ignore", invalid="ignore"):
            limits = np.floor(limits / np.sqrt(columns.squares) * _INSIDE)
        limits[columns.squares == 0] = 0.0
        table = columns.entries, columns.places, columns.starts, columns.dense
        return table, (rows.targets, pulls, limits, owners, shares, self.bound)

    def start(self) -> tuple[Array, Array]:
        return np.append(np.zeros(self.facts.width), self.finest), np.zeros((self.blocks, 0))

    def model(self, z: Array) -> Array:
        return z[:-1]

    def local(
        self, data: Any, chosen: Indices | slice, block: Array, z: Array, relaxation: float, kick: Array | None
    ) -> tuple[Array, Array]:
        from hushpoint.kernels.lattice_coordinates import column_sums, gridded, whole_margins

        columns, people = data
        members = np.arange(self.blocks)[chosen] if isinstance(chosen, slice) else chosen
        exponent, grid, margins = int(z[-1]), np.empty(self.blocks), np.empty(len(people[0]))
        gridded(z[:-1], exponent, grid)
        whole_margins(columns, grid, margins)
        sums = np.empty(len(members), dtype=np.int64)
        tau = math.ldexp(1.0, -exponent - self.row_exponent)
        column_sums(columns, people, self.facts.loss.code, tau, members, margins, sums)
        return block, sums[:, None]

    def combine(self, shared: Array, total: Array, chosen: Indices | None, relaxation: float) -> Array:
        from hushpoint.kernels.lattice_coordinates import fitting

        moved = self._moved(shared[:-1], total * self.unit, self.counted, chosen, relaxation)
        return np.append(moved, fitting(moved, int(shared[-1]), self.coarsest))

    def kernel(self, plan: Plan) -> Kernel | None:
        """Steps that update the inner products of the rows with the model, the same to the bit."""
        from hushpoint.kernels.draw import coded_schedule
        from hushpoint.kernels.lattice_coordinates import LatticeCoordinates

        loss, penalty = self.facts.loss.code, self.facts.regularizer.code
        schedule = None if plan.schedule.cap is not None else coded_schedule(plan.schedule)
        if type(self) is not LatticeCoordinateGradient or loss is None or penalty is None or schedule is None:
            return None
        return LatticeCoordinates(plan, self, loss, penalty, schedule)

    def certificate(self, relaxation: float) -> Certificate:
        facts, moved = self.facts, np.full(self.facts.items, 2 * self.bound * self.unit)
        if facts.weights == "rows":
            moved = moved * facts.row_counts
        certificate = moved_certificate(None, moved, facts, 0.0, facts.because, ONE_COORDINATE)
        table = dict(certificate.sensitivity)
        if facts.rows_per_item is not None and facts.weights == "items":
            for pair in table.keys() & {("record", "replace-one"), ("record", "zero-out")}:
                table[pair] = table[pair] + 2 * self.unit  # the mean of a user is rounded: at most a step, or two
        return replace(self._of_one_coordinate(certificate), sensitivity=table)
