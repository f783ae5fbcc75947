"""Numbers of a declared range as a line and waves of it, so that a linear model of them is a smooth curve.

Every entry is made of the four operations alone, whose results do not depend on where in an array a number stands: an
encoded row is, to the bit, a function of the row (docs/privacy.md, section 11).
"""

from __future__ import annotations

import math

import numpy as np

from hushpoint._types import Array

MOST_WAVES = 7
_HEIGHT = 0.35  # of the first wave, beside a line that goes from -1 to 1
_FALL = 1.5  # the wave of frequency k has (k/2)^-1.5 of that: what is smooth is learned first
_BEND = 0.02  # of a wide range from 0, half of the axis is for its first fiftieth
_SINE = tuple((-1) ** k * math.pi ** (2 * k + 1) / math.factorial(2 * k + 1) for k in range(11))


def heights(waves: int) -> Array:
    """The factors of the waves."""
    return np.array([_HEIGHT * (k / 2) ** -_FALL for k in range(2, waves + 2)])


def squared_length(waves: int) -> float:
    """No number is longer than this, encoded: the line and all waves at their ends."""
    return 1 + float(np.square(heights(waves)).sum())


def is_wide(low: float, high: float) -> bool:
    """Whether a range is one of incomes or counts, whose lower end matters most: from 0, or nearly, far up."""
    return low >= 0 and high >= 1000 * max(low, 1.0)


def positions(values: Array, low: float, high: float) -> Array:
    """Where in its declared range a number lies, from 0 to 1; a wide range from 0 is bent."""
    share = np.clip((np.clip(values, low, high) - low) / (high - low), 0.0, 1.0)
    return np.clip(share * (1 + _BEND) / (share + _BEND), 0.0, 1.0) if is_wide(low, high) else share


def encoded(values: Array, low: float, high: float, waves: int) -> Array:
    """A column for the line ``2u - 1`` and one for each wave ``cos(pi k u)`` times its height, k = 2, 3, ..."""
    u = positions(values, low, high)
    found = np.empty((len(u), 1 + waves))
    found[:, 0] = 2 * u - 1
    if waves:
        one = -_sine(u - 0.5)  # cos(pi u)
        before, last = np.ones_like(one), one
        for place, height in enumerate(heights(waves), start=1):
            before, last = last, 2 * one * last - before  # of the cosines of multiples of an angle
            found[:, place] = height * np.clip(last, -1.0, 1.0)
    return found


def _sine(t: Array) -> Array:
    """``sin(pi t)`` for t from -1/2 to 1/2, by its series."""
    square, found = t * t, np.zeros_like(t)
    for factor in reversed(_SINE):
        found = found * square + factor
    return found * t
