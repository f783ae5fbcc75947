"""Federated averaging on the lattice: updates are whole numbers, bounded and summed exactly."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from hushpoint._types import Array, Indices
from hushpoint.certificates import Certificate
from hushpoint.operators.averaging import LocalSteps
from hushpoint.operators.gradient import SAMPLED_SUM
from hushpoint.operators.sensitivity import item_certificate
from hushpoint.operators.whole import most_steps, unit_for
from hushpoint.problem import Facts
from hushpoint.rows import Rows

if TYPE_CHECKING:
    from hushpoint.kernels.fixed_rows import FixedRows

_SAMPLED_WHOLE_SUM = replace(SAMPLED_SUM, forgets=False)  # rounding a point to the lattice is no contraction


class LatticeSteps(LocalSteps):
    """DP-FedAvg on a lattice of step ``unit``: the update of an item, in whole units, truncated toward 0.

    An item sends ``k_i = trunc(clip(x_K - z, b)/unit)``, n_i times in the sum where items weigh by their rows, once
    elsewhere. Promises: k_i is a function of the item's own rows and of the public point, to the bit, and at most
    ``most = floor(b/unit)`` long, ``b = min(clip_update, K g L)``. One row moves it by no more than the item can.
    """

    name = "local steps on a lattice"
    unit: float

    def __init__(
        self,
        facts: Facts,
        local_steps: int,
        local_step_size: float,
        clip_update: float,
        sampled: float,
        server_step: float = 1.0,
    ) -> None:
        super().__init__(facts, local_steps, local_step_size, clip_update, sampled, server_step)
        self.chunk = None  # there are no temporaries
        self.multiplicity = facts.row_counts if facts.weights == "rows" else None
        self._messages = facts.rows if facts.weights == "rows" else facts.items
        self._bound = min(clip_update, self.local_steps * self.local_step_size * facts.gradient_bound)
        self.unit = unit_for(self._bound, self._messages)
        self.most = most_steps("clip_update", self._bound, self.unit, self._messages)

    @property
    def per_item(self) -> float:
        """How often an item counts in the sum, on average: noise on the sum is so much larger than on the mean."""
        return self._messages / self.facts.items

    def coarser(self, bits: int) -> Self:
        other = copy.copy(self)
        other.unit = self.unit * 2.0**bits
        other.most = most_steps("clip_update", self._bound, other.unit, self._messages)
        return other

    def unclipped(self) -> Self:
        raise ValueError("steps on a lattice are not linear. Make the plan with lattice=False.")

    def prepare(self, rows: Rows) -> FixedRows:
        from hushpoint.kernels.fixed_rows import FixedRows

        return FixedRows.of(rows)

    def local(
        self, data: Any, chosen: Indices | slice, block: Array, z: Array, relaxation: float, kick: Array | None
    ) -> tuple[Array, Any]:
        from hushpoint.kernels.lattice_steps import each_update

        who = np.arange(len(data.spans) - 1)[chosen]
        points = np.ascontiguousarray(np.broadcast_to(z, (len(who), self.message_size)))
        return block, each_update(data, who, points, *self._setting)

    def move(
        self,
        data: Any,
        chosen: Indices | slice,
        block: Array,
        z: Array,
        relaxation: float,
        kick: Array | None,
        multiplicity: Any,
    ) -> tuple[Array, Any]:
        """The sum of the messages, without an update per item in memory."""
        from hushpoint.kernels.lattice_steps import summed_updates

        who = np.arange(len(data.spans) - 1)[chosen]
        counts = np.ones(len(who), dtype=np.int64) if multiplicity is None else multiplicity
        return block, summed_updates(data, who, counts, z, *self._setting)

    @property
    def _setting(self) -> tuple[int, float, float, int]:
        return self.local_steps, self.local_step_size, self.unit, self.most

    def combine(self, shared: Array, total: Array, chosen: Indices | None, relaxation: float) -> Array:
        return super().combine(shared, total * (self.unit / self.per_item), chosen, relaxation)

    def certificate(self, relaxation: float) -> Certificate:
        facts = self.facts
        counts = facts.row_counts if facts.weights == "rows" else np.ones(facts.items, dtype=np.int64)
        whole = self.most * self.unit * counts
        table = {("user", "replace-one"): 2 * whole, ("user", "zero-out"): whole}
        # One row may change all of an update, and without it the update need not be 0.
        table |= {("record", "replace-one"): 2 * whole, ("record", "zero-out"): 2 * whole}
        because = (f"updates are cut to {self.most * self.unit:g}, in whole numbers", *facts.because)
        missing = ("clipping an update as a whole is not non-expansive",)
        return item_certificate(facts, table, because, missing, _SAMPLED_WHOLE_SUM)
