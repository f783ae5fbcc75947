"""Compiled scalar proxes of the named losses."""

from __future__ import annotations

import math

import numba as nb
import numpy as np

from hushpoint.kernels.codes import RAMP, SQUARED


@nb.njit(cache=True)
def prox(loss, v, b, scale, limit):
    """``argmin_t phi(t, b) + (t - v)^2/(2 scale)`` for a coded loss whose slope is cut at ``limit``."""
    kind, width, lowest, highest = loss
    if scale == 0.0:
        return v
    if kind == SQUARED:
        t = v / (1.0 + scale) + scale / (1.0 + scale) * b
    elif kind == RAMP:
        if math.isnan(lowest):  # the hinge: slopes towards the class
            lowest, highest = min(-b, 0.0), max(-b, 0.0)
        total = width + scale
        t = min(max(width / total * v + scale / total * b, v - scale * highest), v - scale * lowest)
    else:
        t = _logistic_prox(b * v, scale) * b
    reach = scale * limit
    return min(max(t, v - reach), v + reach)


@nb.njit(cache=True)
def prox_rows(loss, points, targets, scales, limits):
    """The prox of every row."""
    found = np.empty_like(points)
    for i in range(points.size):
        found[i] = prox(loss, points[i], targets[i], scales[i], limits[i])
    return found


@nb.njit(cache=True)
def _logistic_prox(m, scale):
    """Solve ``x = m + scale / (1 + exp(x))`` by Newton inside a bracket."""
    low, high = m, m + scale / (1.0 + math.exp(min(m, 700.0)))
    x = min(high, max(m, math.log1p(scale)))
    for _ in range(200):
        share = 1.0 / (1.0 + math.exp(min(max(x, -700.0), 700.0)))
        gap = x - m - scale * share
        if gap > 0:
            high = x
        else:
            low = x
        if abs(gap) <= 1e-13 * (1.0 + abs(m)) or high - low <= 1e-15 * (1.0 + abs(x)):
            break
        newton = x - gap / (1.0 + scale * share * (1.0 - share))
        x = newton if low < newton < high else 0.5 * (low + high)
    return x
