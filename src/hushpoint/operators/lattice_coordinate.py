"""One coordinate at a time on a lattice: messages of whole numbers, summed exactly (docs/privacy.md, section 11)."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from hushpoint._types import Array, Indices
from hushpoint.certificates import Certificate
from hushpoint.operators.gradient import ONE_COORDINATE, CoordinateGradient
from hushpoint.operators.lattice_gradient import GradientGrid, cut_slack, round_sum, times_counted, whole_multiple
from hushpoint.operators.sensitivity import moved_certificate
from hushpoint.operators.whole import require_left
from hushpoint.problem import Facts
from hushpoint.rows import Rows, integer_rows, slope_limits

if TYPE_CHECKING:
    from hushpoint.kernels import Kernel
    from hushpoint.plan import Plan

_FINEST = 52 - 6  # the first grid of models: inner products up to 2^6
_COARSEST = _FINEST - 60 * 8  # the last one: up to 2^486


class LatticeCoordinateGradient(CoordinateGradient):
    """DP-CD whose messages are whole numbers of steps of a lattice, summed exactly.

    A row is ``a~ = trunc(2^e a)``, the public model ``w~ = rint(2^k w)``, the slope of the row's loss at their inner
    product a whole number s~, cut so that ``|s~| |a~| <= K`` (K over the number of its rows for a row of a user); a
    row's message about coordinate j is ``s~ a~_j``. What is shared is the model and k, which falls when the model has
    outgrown its grid. With ``weights="rows"`` a row counts as an item does elsewhere.

    Promises: the message of an item is a function of its rows and of the public model, bit for bit, and at most K long,
    its number of rows times as long with ``weights="rows"``. One item moves the cut sum by at most ``2 K 2^-shift``
    steps (replace-one) or ``K 2^-shift`` (zero-out), and one step more where the shift is not 0.
    """

    unit: float

    def __init__(self, facts: Facts, step_size: float, grid: GradientGrid) -> None:
        super().__init__(facts, step_size)
        self.grid, self.unit = grid, grid.unit
        self.longest = whole_multiple(facts.gradient_bound, grid.fine)

    @property
    def counted(self) -> int:
        """What the sum is divided by: items, or rows where these weigh equally."""
        return self.facts.rows if self.facts.weights == "rows" else self.facts.items

    @property
    def finest(self) -> int:
        """The k of the first grid of models."""
        return _FINEST - self.grid.rows.exponent

    @property
    def coarsest(self) -> int:
        """The least k; a model that is too long even then counts as 0."""
        return _COARSEST - self.grid.rows.exponent

    def coarser(self, bits: int) -> Self:
        found = copy.copy(self)
        found.grid = replace(self.grid, shift=self.grid.shift + bits)
        found.unit = found.grid.unit
        require_left("the bound on gradients", self.facts.gradient_bound, found.unit)
        return found

    def prepare(self, rows: Rows) -> Any:
        """The columns as whole numbers; and of each row its target, the factor of its slope and the slope's limit."""
        from hushpoint.kernels.lattice_columns import whole_columns

        integers, (_, (negative, positive)) = integer_rows(rows.store, self.grid.rows), self._loss
        counts = np.ones(len(rows))
        if self.facts.weights == "items":
            counts = np.repeat(rows.counts, rows.counts).astype(np.float64)
        shares = np.where(rows.targets > 0, positive, negative) * math.ldexp(1.0, self.grid.slope_exponent) / counts
        return whole_columns(integers), (rows.targets, shares, slope_limits(integers.squared, counts, self.longest))

    @property
    def _loss(self) -> Any:
        assert self.facts.loss.slope_code is not None
        return self.facts.loss.slope_code

    def start(self) -> tuple[Array, Array]:
        return np.append(np.zeros(self.facts.width), self.finest), np.zeros((self.blocks, 0))

    def model(self, z: Array) -> Array:
        return z[:-1]

    def local(
        self, data: Any, chosen: Indices | slice, block: Array, z: Array, relaxation: float, kick: Array | None
    ) -> tuple[Array, Any]:
        from hushpoint.kernels.lattice_coordinates import column_sums, gridded, whole_margins

        columns, rows = data
        members = np.arange(self.blocks)[chosen] if isinstance(chosen, slice) else chosen
        exponent, grid, margins = int(z[-1]), np.empty(self.blocks), np.empty(len(rows[0]))
        gridded(z[:-1], exponent, grid)
        whole_margins(columns, grid, margins)
        sums = np.empty(len(members), dtype=np.int64)
        tau = math.ldexp(1.0, -exponent - self.grid.rows.exponent)
        column_sums(columns, rows, self._loss[0], tau, members, margins, sums)
        return block, sums[:, None]

    def cut(self, total: NDArray[Any]) -> NDArray[Any]:
        return total >> self.grid.shift

    def combine(self, shared: Array, total: Array, chosen: Indices | None, relaxation: float) -> Array:
        from hushpoint.kernels.lattice_coordinates import fitting

        moved = self._moved(shared[:-1], total * self.unit, self.counted, chosen, relaxation)
        return np.append(moved, fitting(moved, int(shared[-1]), self.coarsest))

    def kernel(self, plan: Plan) -> Kernel | None:
        """Steps that update the inner products of the rows with the model: the plain ones to the bit."""
        from hushpoint.kernels.draw import coded_schedule
        from hushpoint.kernels.lattice_coordinates import LatticeCoordinates

        penalty = self.facts.regularizer.code
        schedule = None if plan.schedule.cap is not None else coded_schedule(plan.schedule)
        if type(self) is not LatticeCoordinateGradient or penalty is None or schedule is None:
            return None
        return LatticeCoordinates(plan, self, self._loss[0], penalty, schedule)

    def certificate(self, relaxation: float) -> Certificate:
        facts, bound = self.facts, math.ldexp(self.longest, -self.grid.fine)
        plain = moved_certificate(None, 2 * bound * times_counted(facts), facts, 0.0, facts.because, ONE_COORDINATE)
        slack = cut_slack(self.message_size, self.unit) if self.grid.shift else 0.0
        table = {whom: round_sum(moved, slack) for whom, moved in plain.sensitivity.items()}
        return replace(self._of_one_coordinate(plain), sensitivity=table)
