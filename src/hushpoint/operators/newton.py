"""Damped Newton for many strongly convex problems at once, with a certified distance to each minimiser."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

_ITERATIONS = 100
_HALVINGS = 50


class SmoothProblems(Protocol):
    """Several smooth, strongly convex problems; ``active`` says which of them a call is about."""

    def evaluate(self, points: Array, active: Indices) -> tuple[Array, Array]:
        """Values and gradients."""

    def direction(self, points: Array, gradients: Array, active: Indices) -> Array:
        """Minus the inverse (generalised) Hessian times the gradients."""


class ProxNotSolved(RuntimeError):
    """A prox could not be solved to the tolerance that the guarantee states."""


def minimise(problems: SmoothProblems, start: Array, gradient_tolerance: Array) -> Array:
    """Minimisers with gradient norms at most ``gradient_tolerance``; raises where that cannot be reached.

    A step is accepted by Armijo's rule or, where differences of values drown in rounding, by the approximate Wolfe
    condition of Hager and Zhang on the slope.
    """
    points = start.copy()
    active = np.arange(len(points))
    values, gradients = problems.evaluate(points, active)
    for _ in range(_ITERATIONS):
        open_ = ~(np.linalg.norm(gradients, axis=1) <= gradient_tolerance[active])
        active, values, gradients = active[open_], values[open_], gradients[open_]
        if active.size == 0:
            return points
        directions = problems.direction(points[active], gradients, active)
        slopes = np.einsum("ij,ij->i", gradients, directions)
        lengths = np.ones(active.size)
        pending = np.arange(active.size)
        new_values, new_gradients = values.copy(), gradients.copy()
        for _ in range(_HALVINGS):
            who = active[pending]
            trial = points[who] + lengths[pending, None] * directions[pending]
            value, gradient = problems.evaluate(trial, who)
            rise, slope = value - values[pending], slopes[pending]
            end_slope = np.einsum("ij,ij->i", gradient, directions[pending])
            armijo = rise <= 1e-4 * lengths[pending] * slope
            flat = (rise <= 1e-12 * (1 + np.abs(values[pending]))) & (end_slope <= -0.8 * slope)
            good = armijo | flat
            done = pending[good]
            points[active[done]] = trial[good]
            new_values[done], new_gradients[done] = value[good], gradient[good]
            pending = pending[~good]
            if pending.size == 0:
                break
            lengths[pending] /= 2
        values, gradients = new_values, new_gradients
    raise ProxNotSolved(
        "a proximal step could not be solved to the stated tolerance in double precision; nothing of this step was "
        "released. Pass a larger tolerance= (it enters the guarantee) or a larger gamma."
    )
