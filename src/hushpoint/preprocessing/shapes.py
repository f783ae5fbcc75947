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


Steps = int | tuple[float, ...]


def pieces(steps: Steps) -> int:
    """How many pieces a number has: so many equal ones, or one more than inner cuts."""
    return steps if isinstance(steps, int) else len(steps) + 1


def stepped(values: Array, low: float, high: float, steps: Steps) -> Array:
    """Positions of the piece that a number is in, as equally spaced places from 0 to 1; a cut is in the upper piece."""
    count = pieces(steps)
    if isinstance(steps, int):
        place = np.minimum(np.floor(positions(values, low, high) * count), count - 1.0)
    else:
        place = np.searchsorted(np.asarray(steps), np.clip(values, low, high), side="right").astype(np.float64)
    return place / (count - 1)


def at_knots(knots: int, waves: int) -> Array:
    """The entries at so many equally spaced positions, both ends among them, a row each."""
    return _of_positions(np.arange(knots) / (knots - 1), waves)


def places(low: float, high: float, count: int) -> Array:
    """So many numbers of a range, whose positions are evenly spaced."""
    share = np.linspace(0.0, 1.0, count)
    if is_wide(low, high):
        share = share * _BEND / (1 + _BEND - share)
    return np.clip(low + share * (high - low), low, high)


def encoded(
    values: Array, low: float, high: float, waves: int, steps: Steps | None = None, straight: bool = False
) -> Array:
    """A column for the line ``2u - 1`` and one for each wave ``cos(pi k u)`` times its height, k = 2, 3, ...

    ``straight``: as many straight pieces as there are columns, between which they are as said. A combination of them is
    then monotone where its values at the ends of the pieces are.
    """
    u = positions(values, low, high) if steps is None else stepped(values, low, high, steps)
    if not straight or steps is not None:
        return _of_positions(u, waves)
    ends = at_knots(waves + 2, waves)
    place = u * (waves + 1)
    piece = np.minimum(np.floor(place), float(waves)).astype(np.int64)
    share = (place - piece)[:, None]
    return np.asarray((1 - share) * ends[piece] + share * ends[piece + 1])


def _of_positions(u: Array, waves: int) -> Array:
    found = np.empty((len(u), 1 + waves))
    found[:, 0] = 2 * u - 1
    if waves:
        one = -_sine(u - 0.5)  # cos(pi u)
        before, last = np.ones_like(one), one
        for place, height in enumerate(heights(waves), start=1):
            before, last = last, 2 * one * last - before  # of the cosines of multiples of an angle
            found[:, place] = height * np.clip(last, -1.0, 1.0)
    return found


def fitting(waves: int, steps: Steps | None) -> int:
    """How many waves are of use: a number of K pieces has K values, and a line and K - 2 waves give any of them."""
    return waves if steps is None else min(waves, pieces(steps) - 2)


def _sine(t: Array) -> Array:
    """``sin(pi t)`` for t from -1/2 to 1/2, by its series."""
    square, found = t * t, np.zeros_like(t)
    for factor in reversed(_SINE):
        found = found * square + factor
    return found * t
