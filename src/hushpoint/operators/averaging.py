"""Federated averaging: several gradient steps where the data is, one clipped update sent."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from hushpoint._checks import require_count, require_positive
from hushpoint._types import Array, Indices
from hushpoint.certificates import Certificate
from hushpoint.operators.base import Operator
from hushpoint.operators.consensus import clip_rows
from hushpoint.operators.gradient import SAMPLED_SUM, Gradient
from hushpoint.operators.sensitivity import item_certificate
from hushpoint.problem import ROWS_ARE_PRIVATE, Facts
from hushpoint.rows import Rows

_NUMBERS = 1 << 16  # of the rows that are moved at a time: temporaries that stay in the cache


class LocalSteps(Operator):
    """DP-FedAvg: an item goes K gradient steps of size g from the public point and sends how far it came, clipped.

    ``v_i = clip(x_K - z, clip_update)`` with ``x_0 = z``, ``x_{k+1} = x_k - g grad f_i(x_k)``; then
    ``z <- prox_{s K g r}(z + s (sum of n w_i v_i)/sampled)`` with s the server's step. At K = 1 with nothing clipped
    this is the proximal gradient step of size s g; at K > 1 it settles near the optimum, not at it, where items differ.
    Promises: an update is at most ``b = min(clip_update, K g L)`` long, n w_i times in the sum; one row of an item
    moves it by at most 2 b, and by ``2 K g L/n_i`` where that is smaller and ``g beta <= 2``. No Lipschitz constant.
    """

    name = "local steps"
    places = ("sum",)
    federates = True
    zero_out = "the item's message is 0"
    takes_many_points = True
    facts: Facts

    def __init__(
        self,
        facts: Facts,
        local_steps: int,
        local_step_size: float,
        clip_update: float,
        sampled: float,
        server_step: float = 1.0,
    ) -> None:
        self.facts, self.sampled = facts, sampled
        self.local_steps = require_count("local_steps", local_steps)
        self.local_step_size = require_positive("local_step_size", local_step_size)
        self.clip_update = require_positive("clip_update", clip_update)
        self.server_step = require_positive("server_step", server_step)
        self.blocks, self.message_size = facts.items, facts.width
        rows = facts.rows if facts.knows_rows else facts.items
        self.chunk = max(1, _NUMBERS * facts.items // (rows * facts.width))
        self._gradient = Gradient(facts, self.local_step_size, sampled)
        self.multiplicity = self._gradient.multiplicity

    def local(
        self, data: Rows, chosen: Indices | slice, block: Array, z: Array, relaxation: float, kick: Array | None
    ) -> tuple[Array, Array]:
        rows = data.take(chosen)
        if rows is data:  # all rows, where they are stored: read once, not at every step
            rows = replace(rows, store=rows.store.take(slice(None)))
        update = np.zeros((rows.items, self.message_size))
        with np.errstate(over="ignore", invalid="ignore"):  # steps that are too long may diverge; the clip sees to it
            for _ in range(self.local_steps):
                _, slopes = self._gradient.local(rows, slice(None), block, z + update, relaxation, kick)
                update -= self.local_step_size * slopes
        return block, clip_rows(update, self.clip_update)

    def combine(self, shared: Array, total: Array, chosen: Indices | None, relaxation: float) -> Array:
        step = relaxation * self.server_step
        moved = shared + step * total / self.sampled
        return self.facts.regularizer.prox(moved, step * self.local_steps * self.local_step_size)

    def certificate(self, relaxation: float) -> Certificate:
        facts = self.facts
        reach = self.local_steps * self.local_step_size * facts.gradient_bound
        whole = min(self.clip_update, reach)
        # The steps of two worlds drift apart by what their gradients differ by, if a step itself is non-expansive.
        steady = self.local_step_size * facts.smoothness <= 2
        counts = facts.items * facts.item_weights
        table = {("user", "replace-one"): 2 * whole * counts, ("user", "zero-out"): whole * counts}
        missing = ["clipping an update as a whole is not non-expansive"]
        if facts.knows_rows:
            share = reach / facts.row_counts if steady else np.full(facts.items, math.inf)
            table["record", "replace-one"] = np.minimum(2 * whole, 2 * share) * counts
            table["record", "zero-out"] = np.minimum(2 * whole, share) * counts
        else:
            missing.append(ROWS_ARE_PRIVATE)
        because = (f"updates are clipped to {self.clip_update:g}", *facts.because)
        return item_certificate(facts, table, because, missing, SAMPLED_SUM)
