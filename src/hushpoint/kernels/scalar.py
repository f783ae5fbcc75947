"""Compiled proxes of the named losses along a row, and of the named regularisers."""

from __future__ import annotations

import math

from hushpoint._codes import RAMP, SQUARED
from hushpoint._compiled import inner, loop


@inner
def prox(loss, v, b, scale, limit):
    """``argmin_t phi(t, b) + (t - v)^2/(2 scale)`` for a coded loss whose slope is cut at ``limit``."""
    kind, width, lowest, highest = loss
    if scale == 0.0:
        return v
    if kind == SQUARED:
        t = (v + scale * b) / (1.0 + scale)
    elif kind == RAMP:
        if math.isnan(lowest):  # the hinge: slopes towards the class
            lowest, highest = min(-b, 0.0), max(-b, 0.0)
        total = width + scale
        t = min(max((width * v + scale * b) / total, v - scale * highest), v - scale * lowest)
    else:
        t = _logistic_prox(b * v, scale) * b
    reach = scale * limit
    return min(max(t, v - reach), v + reach)


@inner
def slopes(loss, t, b, limit):
    """Derivative and curvature of a coded loss whose slope is cut at ``limit``."""
    kind, width, lowest, highest = loss
    if kind == SQUARED:
        slope, curvature = t - b, 1.0
    elif kind == RAMP:
        if math.isnan(lowest):
            lowest, highest = min(-b, 0.0), max(-b, 0.0)
        gap = t - b
        if (gap <= width * lowest and gap < 0) or (lowest == 0.0 and gap <= 0):
            slope, curvature = lowest, 0.0
        elif (gap >= width * highest and gap > 0) or (highest == 0.0 and gap >= 0):
            slope, curvature = highest, 0.0
        elif width > 0:
            slope, curvature = gap / width, 1.0 / width
        else:
            slope, curvature = 0.0, 0.0  # at the kink
    else:
        share = 1.0 / (1.0 + math.exp(min(max(b * t, -700.0), 700.0)))
        slope, curvature = -b * share, share * (1.0 - share)
    if abs(slope) > limit:
        return math.copysign(limit, slope), 0.0
    return slope, curvature


@loop
def release(shared, gamma, penalty, z):
    """``z = prox_{gamma r}(shared)``."""
    l1, l2, skip_last = penalty
    penalised = z.size - 1 if skip_last else z.size
    for j in range(z.size):
        value = shared[j]
        if j < penalised:
            value = math.copysign(max(abs(value) - gamma * l1, 0.0), value) / (1.0 + gamma * l2)
        z[j] = value


@inner
def _logistic_prox(m, scale):
    """Solve ``x = m + scale / (1 + exp(x))`` by Halley's method inside a bracket."""
    low, high = m, m + scale
    x = m if scale <= 8.0 else min(max(m, math.log1p(scale)), high)
    # From an error e to at most (0.0024 scale^2 + 0.021 scale) e^3: |gap| bounds e, and the slope is at least 1.
    cubic = 0.01 * scale * scale + 0.1 * scale
    for _ in range(200):
        share = 1.0 / (1.0 + math.exp(min(max(x, -700.0), 700.0)))
        gap = x - m - scale * share
        if gap > 0:
            high = x
        else:
            low = x
            high = min(high, x - gap)  # the share falls with x
        if abs(gap) <= 1e-13 * (1.0 + abs(m)) or high - low <= 1e-15 * (1.0 + abs(x)):
            break
        curve = scale * share * (1.0 - share)
        slope = 1.0 + curve
        halley = x - 2.0 * gap * slope / (2.0 * slope * slope + gap * curve * (1.0 - 2.0 * share))
        if not low <= halley <= high:
            x = 0.5 * (low + high)
            continue
        x = halley
        if cubic * abs(gap) ** 3 <= 1e-14 * (1.0 + abs(m)):
            break
    return x
