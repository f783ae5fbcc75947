"""Gradient methods: all coordinates of the model, or one coordinate at a time."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np

from hushpoint._checks import require_inside, require_positive
from hushpoint._types import Array, Indices
from hushpoint.certificates import Certificate, Theorem
from hushpoint.operators.base import Operator
from hushpoint.operators.sensitivity import moved_certificate
from hushpoint.problem import Facts
from hushpoint.rows import Rows

if TYPE_CHECKING:
    from hushpoint.kernels import Kernel
    from hushpoint.plan import Plan


_SECRET = ("poisson", "fixed")
SAMPLED_SUM = Theorem("3g", "sum", ("all", *_SECRET), "participations", amplified_by=_SECRET, forgets=True)
ONE_COORDINATE = Theorem("3g", "sum", ("single",))


class Descent(Operator):
    """Steps on a model that is public before the first of them: where they begin is free to choose.

    With ``momentum`` the gradient is taken beyond the model: as far as it is from the one before, times the momentum.
    What is shared is then that point, followed by the model. Both are made of noisy sums, so a step with momentum
    reveals what one without reveals, and costs the same.
    """

    begin: Array | None = None  # None: zero
    momentum: float = 0.0

    def start(self) -> tuple[Array, Array]:
        blocks = np.zeros((self.blocks, self.block_size))
        point = np.zeros(self.message_size) if self.begin is None else self.begin.copy()
        return np.concatenate([point, point]) if self.momentum else point, blocks

    def starting_at(self, point: Array) -> Self:
        """The same from a public point."""
        found = copy.copy(self)
        found.begin = np.array(point, dtype=np.float64)
        return found

    def with_momentum(self, momentum: float) -> Self:
        """The same with momentum."""
        found = copy.copy(self)
        found.momentum = require_inside("momentum", momentum)
        return found

    def looked_at(self, z: Array) -> Array:
        """Where the gradient is taken, of a public point."""
        return z[..., : self.message_size] if self.momentum else z

    def model(self, z: Array) -> Array:
        return z[..., self.message_size :] if self.momentum else z

    @abstractmethod
    def stepped(self, point: Array, total: Array, relaxation: float) -> Array:
        """The model after a step from a point, given the sum of the messages."""

    def combine(self, shared: Array, total: Array, chosen: Indices | None, relaxation: float) -> Array:
        found = self.stepped(self.looked_at(shared), total, relaxation)
        if not self.momentum:
            return found
        return np.concatenate([found + self.momentum * (found - self.model(shared)), found], axis=-1)


class Gradient(Descent):
    """``z <- prox_{g r}(z - g (G + eta))``: DP-SGD, with G the clipped gradients of a sample over its expected size.

    With ``R = I - (2/beta) grad f`` this is Algorithm 1 at relaxation ``g beta/2``. The messages are item gradients;
    ``sampled`` is the expected number of items in a sample.
    Promises: one item moves the sum of messages by at most 2 L n w_i (replace-one) or L n w_i (zero-out); the step is
    ``max(|1 - g m|, |1 - g beta|) / (1 + g m_r)``-Lipschitz on the full data.
    """

    name = "gradient"
    places = ("sum",)
    federates = True
    takes_many_points = True
    facts: Facts

    def __init__(self, facts: Facts, step_size: float, sampled: float) -> None:
        self.facts, self.step_size, self.sampled = facts, require_positive("step_size", step_size), sampled
        self.blocks, self.message_size = facts.items, facts.width
        self.multiplicity = _counts(facts) if facts.weights == "rows" else None

    def local(
        self, data: Rows, chosen: Indices | slice, block: Array, z: Array, relaxation: float, kick: Array | None
    ) -> tuple[Array, Array]:
        rows, z = data.take(chosen), self.looked_at(z)
        slopes = rows.row_loss.derivative(rows.margins(z), rows.targets) / np.repeat(rows.counts, rows.counts)
        per_row = rows.store.times(slopes[:, None])
        if rows.offsets is None:
            return block, per_row
        return block, np.add.reduceat(per_row, rows.offsets[:-1], axis=0)

    def move(
        self,
        data: Rows,
        chosen: Indices | slice,
        block: Array,
        z: Array,
        relaxation: float,
        kick: Array | None,
        multiplicity: Array | None,
    ) -> tuple[Array, Array]:
        """The sum of the messages in one pass over the rows, without a gradient per item."""
        from hushpoint.kernels.passes import passes_over

        rows, z = data.take(chosen), self.looked_at(z)
        row_weights = rows.shared_out(multiplicity)
        if rows is data and len(rows) == self.facts.rows:
            return block, passes_over(rows).gradient(z, row_weights)
        slopes = rows.row_loss.derivative(rows.margins(z), rows.targets)
        return block, rows.store.pull(slopes * row_weights)

    def stepped(self, point: Array, total: Array, relaxation: float) -> Array:
        step = relaxation * self.step_size
        return self.facts.regularizer.prox(point - step * total / self.sampled, step)

    def step_lipschitz(self, relaxation: float) -> float | None:
        step, beta = relaxation * self.step_size, self.facts.smoothness
        if self.momentum:  # what is shared is moved by more than a step
            return None
        if math.isinf(beta) or self.sampled != self.facts.items:  # a sample over its expected size is no mean
            return None
        return max(1.0, abs(1 - step * beta)) / (1 + step * self.facts.regularizer.strong_convexity)

    def certificate(self, relaxation: float) -> Certificate:
        theorem = replace(SAMPLED_SUM, forgets=not self.momentum)
        return gradient_certificate(self.facts, self.step_lipschitz(relaxation), theorem)


class CoordinateGradient(Operator):
    """One coordinate of the proximal gradient step: DP-CD. The blocks are the coordinates of the model.

    Promises: the sensitivity of the gradient, since one coordinate is no longer than the whole. No Lipschitz
    constant: moving one block of a non-expansive map is not non-expansive in general.
    """

    name = "coordinate gradient"
    places = ("sum",)
    message_size = 1
    samplings = ("single", "cyclic", "permuted")  # one coordinate at a time
    facts: Facts

    def __init__(self, facts: Facts, step_size: float) -> None:
        if not facts.regularizer.separable:
            raise ValueError(
                f"regularizer is {facts.regularizer!r}, which does not separate over coordinates, or does not say so. "
                "Use L1, L2, ElasticNet or Box with dp_cd, or another method."
            )
        self.facts, self.step_size = facts, require_positive("step_size", step_size)
        self.blocks = facts.width

    @cached_property
    def _row_weights(self) -> Array:
        """How much each row counts in the sum over all items."""
        return np.repeat(_counts(self.facts) / self.facts.row_counts, self.facts.row_counts)

    def prepare(self, rows: Rows) -> Rows:
        return replace(rows, store=rows.store.by_columns())

    def start(self) -> tuple[Array, Array]:
        return np.zeros(self.facts.width), np.zeros((self.blocks, 0))

    def local(
        self, data: Rows, chosen: Indices | slice, block: Array, z: Array, relaxation: float, kick: Array | None
    ) -> tuple[Array, Array]:
        slopes = self._row_weights * data.row_loss.derivative(data.margins(z), data.targets)
        return block, data.store.pull_columns(chosen, slopes)[:, None]

    def combine(self, shared: Array, total: Array, chosen: Indices | None, relaxation: float) -> Array:
        return self._moved(shared, total, self.facts.items, chosen, relaxation)

    def _moved(self, model: Array, total: Array, counted: int, chosen: Indices | None, relaxation: float) -> Array:
        """The model after the chosen coordinates have gone a proximal step along the mean of so many."""
        step = relaxation * self.step_size
        if chosen is None:
            chosen = np.arange(self.blocks)
        moved = model.copy()
        moved[chosen] = self.facts.regularizer.prox_coordinate(
            model[chosen] - step * total / counted, step, chosen, size=self.blocks
        )
        return moved

    def kernel(self, plan: Plan) -> Kernel | None:
        """Steps that update the inner products of the rows with the model, and read one column each."""
        from hushpoint.kernels.coordinates import CompiledCoordinates
        from hushpoint.kernels.draw import coded_schedule

        loss, penalty = self.facts.loss.code, self.facts.regularizer.code
        schedule = None if plan.schedule.cap is not None else coded_schedule(plan.schedule)
        if type(self) is not CoordinateGradient or loss is None or penalty is None or schedule is None:
            return None
        return CompiledCoordinates(plan, self.step_size, self.facts.items, self._row_weights, loss, penalty, schedule)

    def certificate(self, relaxation: float) -> Certificate:
        return self._of_one_coordinate(gradient_certificate(self.facts, None, ONE_COORDINATE))

    @staticmethod
    def _of_one_coordinate(certificate: Certificate) -> Certificate:
        return replace(
            certificate,
            because=(*certificate.because, "one coordinate of a gradient is no longer than the gradient"),
            missing=(*certificate.missing, "updates of single coordinates are not non-expansive in general"),
        )


def gradient_certificate(facts: Facts, lipschitz: float | None, theorem: Theorem) -> Certificate:
    """Sensitivity of the sum of item gradients, each counted ``n w_i`` times."""
    return moved_certificate(lipschitz, 2 * facts.gradient_bound * _counts(facts), facts, 0.0, facts.because, theorem)


def _counts(facts: Facts) -> Array:
    """How often the message of each item counts, n w_i: once where items weigh equally."""
    return np.asarray(facts.items * facts.item_weights)
