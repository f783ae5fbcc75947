"""Damped Newton for many strongly convex problems at once, with a certified distance to each minimiser."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np

from hushpoint._types import Array, Indices

_ITERATIONS = 200
_SECTIONS = 60  # evaluations of a line search; halving alone resolves a step to rounding in so many


class SmoothProblems(Protocol):
    """Several smooth, strongly convex problems; ``active`` says which of them a call is about."""

    def gradient(self, points: Array, active: Indices) -> Array:
        """Gradients, a row each."""

    def direction(self, points: Array, gradients: Array, active: Indices) -> Array:
        """Minus the inverse (generalised) Hessian times the gradients."""


class ProxNotSolved(RuntimeError):
    """A prox could not be solved to the tolerance that the guarantee states."""


def not_solved() -> ProxNotSolved:
    """What is raised where a tolerance cannot be reached."""
    return ProxNotSolved(
        "a proximal step could not be solved to the stated tolerance in double precision; nothing of this step was "
        "released. Declare row_norm= on Problem, or pass a larger tolerance= (it enters the guarantee) or a smaller "
        "gamma."
    )


def minimise(problems: SmoothProblems, start: Array, gradient_tolerance: Array) -> Array:
    """Minimisers with gradient norms at most ``gradient_tolerance``; raises where that cannot be reached.

    Newton directions with nearly exact line searches: on losses made of quadratic pieces (Huber, smoothed hinge, any
    truncated squared loss) a cheaper search can zigzag between the bends for thousands of steps.
    """
    points = start.copy()
    active = np.arange(len(points))
    gradients = problems.gradient(points, active)
    for _ in range(_ITERATIONS):
        open_ = ~(np.linalg.norm(gradients, axis=1) <= gradient_tolerance[active])
        active, gradients = active[open_], gradients[open_]
        if active.size == 0:
            return points
        directions = problems.direction(points[active], gradients, active)
        points[active], gradients = _search(problems, points[active], gradients, directions, active)
    raise not_solved()


def conjugate_gradients(product: Callable[[Array], Array], right: Array, floor: float) -> Array:
    """A direction d with ``product(d)`` near ``right``: to a hundredth, or to the floor. Always a descent direction."""
    found, residual = np.zeros_like(right), right.copy()
    along = residual.copy()
    squared = float(residual @ residual)
    enough = max(1e-2 * math.sqrt(squared), floor)
    for _ in range(max(100, len(right))):
        if math.sqrt(squared) <= enough:
            break
        image = product(along)
        curvature = float(along @ image)
        if not curvature > 0:
            break
        found += squared / curvature * along
        residual -= squared / curvature * image
        before, squared = squared, float(residual @ residual)
        along = residual + squared / before * along
    return found if found.any() else right


def _search(
    problems: SmoothProblems, points: Array, gradients: Array, directions: Array, active: Indices
) -> tuple[Array, Array]:
    """Steps along the directions that end where the slope has nearly vanished, and the gradients there.

    The slope along a direction grows, from below 0 at the start. The full step is taken unless the slope has by then
    turned up; otherwise the root of the slope is bracketed and found by false position and halving in turn.
    """
    slopes = np.einsum("ij,ij->i", gradients, directions)
    low, low_slope = np.zeros(len(points)), slopes.copy()
    high, high_slope = np.ones(len(points)), np.full(len(points), np.inf)
    lengths = np.ones(len(points))
    found, found_gradients = points.copy(), gradients.copy()
    pending = np.arange(len(points))
    for section in range(_SECTIONS):
        trial = points[pending] + lengths[pending, None] * directions[pending]
        gradient = problems.gradient(trial, active[pending])
        slope = np.einsum("ij,ij->i", gradient, directions[pending])
        found[pending], found_gradients[pending] = trial, gradient
        rising = slope > 0
        low[pending[~rising]], low_slope[pending[~rising]] = lengths[pending[~rising]], slope[~rising]
        high[pending[rising]], high_slope[pending[rising]] = lengths[pending[rising]], slope[rising]
        # A full Newton step that does not overshoot, or a slope that has all but vanished, ends the search.
        done = np.abs(slope) <= 1e-3 * np.abs(slopes[pending])
        if section == 0:
            done |= ~rising | (slope <= 0.1 * np.abs(slopes[pending]))
        pending = pending[~done]
        if pending.size == 0:
            break
        rise, fall = high_slope[pending], low_slope[pending]
        halfway = (low[pending] + high[pending]) / 2
        with np.errstate(invalid="ignore"):
            crossing = (low[pending] * rise - high[pending] * fall) / (rise - fall)
        lengths[pending] = np.where((section % 2 == 0) & np.isfinite(crossing), crossing, halfway)
    return found, found_gradients
