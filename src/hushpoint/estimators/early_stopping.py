"""What noisy gradient descent with tail averaging is expected to reach: the bias of stopping, the variance of noise.

In a direction of curvature ``h``, gradient steps of total length ``time`` (step size times steps) leave a share
``bias(h * time)`` of what was to be learned, and noise of variance ``(noise * time)^2 * variance(h * time)``, where
``noise`` is the standard deviation of one step's noise over the square root of the number of steps. Both are those of
the average over the last half of the run, in the limit of many small steps (docs/utility.md).
"""

from __future__ import annotations

import math

import numpy as np

from hushpoint._types import Array

_SMALL = 1e-3  # below, the closed forms lose digits and the limits at 0 are right to 0.1%


def bias(progress: Array) -> Array:
    """Mean of ``exp(-progress s)`` over s in [1/2, 1]: what the tail average has not yet learned."""
    u = np.maximum(progress, _SMALL)
    half = np.exp(-u / 2)
    return np.asarray(2 * half * (1 - half) / u)


def variance(progress: Array) -> Array:
    """Variance of the tail average in units of ``(noise * time)^2``: 2/3 at 0, about ``2/progress^2`` far out."""
    u = np.maximum(progress, _SMALL)
    half = -np.expm1(-u / 2)
    whole = half * (2 - half)  # 1 - exp(-u)
    before_the_tail = half**2 * whole / (2 * u)
    in_the_tail = 0.5 - 2 * half / u + whole / (2 * u)
    return np.asarray(4 / u**2 * (before_the_tail + in_the_tail))


def expected_excess(
    second_moments: Array,
    signal: Array,
    time: Array,
    noise: Array,
    curvature: float,
    people: float = math.inf,
    counts: Array | float = 1.0,
) -> Array:
    """Expected squared error of the predictions after noisy gradient descent from zero, summed over directions.

    Parameters
    ----------
    second_moments, signal : arrays
        Along the last axis, the directions: mean square of the features, and a guess of the variance of the best
        predictions.
    time, noise : arrays
        As above; they broadcast against the axes before the last.
    curvature : float
        Guess of the second derivative of the loss.
    people : float
        How many were sampled: what is learned of each direction carries an error of ``1/(curvature * people)``.
    counts : array
        How many directions each entry stands for.
    """
    progress = curvature * second_moments * time[..., None]
    left = bias(progress)
    missed = (counts * signal * left**2).sum(axis=-1)
    overfitted = (counts * (1 - left) ** 2).sum(axis=-1) / (curvature * people)
    spread = (counts * second_moments * variance(progress)).sum(axis=-1)
    return np.asarray(missed + overfitted + (noise * time) ** 2 * spread)
