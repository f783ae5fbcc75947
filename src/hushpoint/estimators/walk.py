"""A noisy descent of a quadratic, exactly: what its tail average has not learned, and how far noise moves it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hushpoint._types import Array


@dataclass(frozen=True)
class Walk:
    """A descent of a quadratic: what its tail average has not learned, and the deviation of its noise."""

    left: Array
    deviation: Array


def walked(curvatures: Array, time: float, steps: int, tail: float, unit_noise: float, momentum: float = 0.0) -> Walk:
    """Steps of total length ``time`` along directions of these curvatures, exactly.

    ``unit_noise`` is the deviation of the noise on one step's gradient over the root of the number of steps.
    """
    if momentum:
        return _with_momentum(curvatures, time / steps, steps, tail, unit_noise * math.sqrt(steps), momentum)
    step, last = time / steps, max(1, round(tail * steps))
    powers = (1 - step * curvatures[:, None]) ** np.arange(steps + 1)
    averaged = np.zeros((len(curvatures), steps))  # of the noise of each step, what the average has
    for back in range(last):
        # The iterate after step k = steps - back has the noise of step j times a^(k-j).
        reached = steps - back
        averaged[:, :reached] += powers[:, reached - 1 :: -1][:, :reached]
    deviation = unit_noise * math.sqrt(steps) * step / last * np.sqrt((averaged**2).sum(axis=1))
    return Walk(powers[:, steps - last + 1 :].mean(axis=1), deviation)


def _with_momentum(curvatures: Array, step: float, steps: int, tail: float, noise: float, momentum: float) -> Walk:
    """The same where each gradient is taken beyond the point reached, as far as ``momentum`` says."""
    last = max(1, round(tail * steps))
    # Of each point: what is not learned (in the first column), and what it has of the noise of each step.
    point = np.zeros((len(curvatures), steps + 1))
    point[:, 0] = 1.0
    before, averaged, kept = point, np.zeros_like(point), 1 - step * curvatures[:, None]
    for done in range(steps):
        reached = kept * (point + (momentum * (point - before)))
        reached[:, done + 1] -= step * noise
        before, point = point, reached
        if done >= steps - last:
            averaged += point / last
    return Walk(averaged[:, 0], np.sqrt((averaged[:, 1:] ** 2).sum(axis=1)))
