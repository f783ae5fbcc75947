"""One-block ADMM whose prox remembers: it starts from its last solution, and keeps the factor of a Hessian.

A step then takes a few passes over the data and rarely a new Hessian. The draws are those of the plain loop and the
prox is certified to the same tolerance, so that the models agree with the plain loop's to what the tolerance allows.
What is remembered (the last solution, and where the Hessian was taken) is in the state, so that a resumed run is the
uninterrupted one bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.linalg

from hushpoint._types import Array
from hushpoint.noise import Source
from hushpoint.rows import Rows

if TYPE_CHECKING:
    from hushpoint.engine import State
    from hushpoint.operators.prox import WholeProx
    from hushpoint.plan import Plan

_MOST = 40  # gradients before Newton takes over
_PATIENCE = 8  # gradients of a step that a factor is allowed, and more the dearer a new one is


def approach(
    gradient: Callable[[Array], Array], start: Array, tolerance: float, inverse: Callable[[Array], Array], most: int
) -> tuple[Array, int, bool]:
    """L-BFGS, where ``inverse`` is about the inverse Hessian: a point, the gradients taken, and whether it is solved.

    Solved means that the gradient at that point is at most the tolerance, as in ``minimise``; it gives up after
    ``most`` gradients.
    """
    x, slope_at = start, gradient(start)
    taken = 1
    pairs: list[tuple[Array, Array, float]] = []
    while not np.linalg.norm(slope_at) <= tolerance:
        rest, shares = slope_at.copy(), []
        for move, change, scale in reversed(pairs):
            shares.append(scale * float(move @ rest))
            rest -= shares[-1] * change
        direction = -inverse(rest)
        for (move, change, scale), part in zip(pairs, reversed(shares), strict=True):
            direction -= (scale * float(change @ direction) + part) * move
        first = float(slope_at @ direction)
        length = 1.0
        while True:
            if not first < 0 or taken >= most:
                return x, taken, False
            trial = x + length * direction
            found = gradient(trial)
            taken += 1
            slope = float(found @ direction)
            if slope <= 0.1 * abs(first):  # it may rise a little: an exact search is not worth its gradients
                break
            length = -length * first / (slope - first)  # where a line through both slopes is 0
        move, change = trial - x, found - slope_at
        if float(move @ change) > 0:
            pairs.append((move, change, 1 / float(move @ change)))
        x, slope_at = trial, found
    return x, taken, True


class RememberingProx:
    """A ``WholeProx`` of one point after the other."""

    def __init__(self, prox: WholeProx) -> None:
        self.prox = prox
        self.last = np.full(prox.width, np.nan)
        self.centre = np.full(prox.width, np.nan)  # where the Hessian was taken; nan: nowhere yet
        self._factor: Any = None
        self._patience = _PATIENCE + prox.width // 50

    def recall(self, last: Array, centre: Array) -> None:
        """Remember what a state remembers."""
        if not np.array_equal(centre, self.centre, equal_nan=True):
            self._factor = None
        self.last, self.centre = last.copy(), centre.copy()

    def solve(self, points: Array, guess: Array) -> Array:
        """The minimiser for one point; the guess counts the first time only."""
        prox, point = self.prox, points.reshape(-1)
        start = guess.copy() if np.isnan(self.last[0]) else self.last
        if prox.large:
            self.last = prox.solve(point, start)
            return self.last.reshape(points.shape)
        if np.isnan(self.centre[0]):
            self.centre = start
        if self._factor is None:
            self._factor = prox.factor_at(self.centre)
        inverse = partial(scipy.linalg.cho_solve, self._factor, check_finite=False)
        found, taken, solved = approach(
            lambda x: prox.gradient_at(x, point), start, prox.gradient_tolerance, inverse, _MOST
        )
        if not solved:
            found = prox.solve(point, found)
        self.last = found
        if not solved or taken > self._patience:
            self.centre, self._factor = found, None
        return found.reshape(points.shape)


@dataclass
class RememberingADMM:
    """One-block ADMM with a prox that remembers. ``state.blocks``: u, the last x, and where the Hessian was taken."""

    plan: Plan

    name: ClassVar[str] = "remembering"
    at_once: ClassVar[int] = 16

    def blocks(self) -> Array:
        """u = 0, and nothing to remember."""
        return np.vstack([self.plan.operator.start()[1], np.full((2, self.plan.operator.block_size), np.nan)])

    def prepare(self, rows: Rows) -> RememberingProx:
        return RememberingProx(self.plan.operator.prepare(rows))

    def advance(self, data: RememberingProx, source: Source, state: State, z: Array, count: int) -> None:
        plan, operator = self.plan, self.plan.operator
        for k in range(count):
            step = state.steps
            relaxation = plan.relaxation_at(step)
            start = operator.release(state.public) if k else z
            kick = plan.noise.drawn(source, "block", step, operator.message_size)
            data.recall(state.blocks[1], state.blocks[2])
            block, message = operator.local(data, slice(None), state.blocks[:1], start, relaxation, kick)
            state.blocks = np.vstack([block, data.last, data.centre])
            state.shared = state.public = operator.combine(state.shared, message.sum(axis=0), None, relaxation)
            state.participations += 1
            state.steps += 1
