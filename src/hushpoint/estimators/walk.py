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
    step = time / steps
    left, shares = averaged(1 - step * curvatures, steps, tail, momentum)
    return Walk(left, unit_noise * math.sqrt(steps) * step * np.sqrt((shares**2).sum(axis=1)))


def averaged(kept: Array, steps: int, tail: float, momentum: float = 0.0) -> tuple[Array, Array]:
    """Where each step keeps so much of the point: what the tail average has of the first one, and of each step's noise.

    With ``momentum`` each step is made from beyond the point reached, as far as that says.
    """
    last = max(1, round(tail * steps))
    if momentum:
        return _with_momentum(kept[:, None], steps, last, momentum)
    powers = kept[:, None] ** np.arange(steps + 1)
    shares = np.zeros((len(kept), steps))
    for back in range(last):
        # The iterate after step k = steps - back has the noise of step j times a^(k-j).
        reached = steps - back
        shares[:, :reached] += powers[:, reached - 1 :: -1][:, :reached]
    return powers[:, steps - last + 1 :].mean(axis=1), shares / last


def _with_momentum(kept: Array, steps: int, last: int, momentum: float) -> tuple[Array, Array]:
    # Of each point: what is not learned (in the first column), and what it has of the noise of each step.
    point = np.zeros((len(kept), steps + 1))
    point[:, 0] = 1.0
    before, mean = point, np.zeros_like(point)
    for done in range(steps):
        reached = kept * (point + (momentum * (point - before)))
        reached[:, done + 1] += 1.0
        before, point = point, reached
        if done >= steps - last:
            mean += point / last
    return mean[:, 0], mean[:, 1:]
