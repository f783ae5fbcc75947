"""Comparisons of uniform numbers in compiled code."""

from __future__ import annotations

import numpy as np

from hushpoint._compiled import inner
from hushpoint.lattice.compiled.bits import coins, digit

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@inner
def product(a, b):
    """The product of two words as two words, the higher first: four products of halves."""
    low_a, high_a, low_b, high_b = a & _LOW, a >> _HALF, b & _LOW, b >> _HALF
    one, two = low_a * high_b, high_a * low_b
    carried = ((low_a * low_b) >> _HALF) + (one & _LOW) + (two & _LOW)
    return high_a * high_b + (one >> _HALF) + (two >> _HALF) + (carried >> _HALF), a * b


@inner
def less(bits, one, other):
    """Whether one uniform number is less than another."""
    place = 0
    while True:
        a, b = digit(bits, one, place), digit(bits, other, place)
        if a != b:
            return a < b
        place += 1


@inner
def below(bits, number, numerator, denominator):
    """Whether a uniform number is less than a ratio of words, the denominator below 2^63."""
    rest, place = numerator, 0
    while True:
        high, low = product(digit(bits, number, place), denominator)
        if high >= rest:
            return False
        over = rest - high - np.uint64(low != np.uint64(0))  # the rest is the words (over, -low)
        rest = np.uint64(0) - low
        if over != np.uint64(0) or rest >= denominator:
            return True
        place += 1


@inner
def whole_below(bits, count):
    """A whole number from 0 to ``count - 1``, all as likely; ``count`` below 2^63."""
    size = 0
    while (count - 1) >> size:
        size += 1
    while True:
        drawn = np.int64(coins(bits, size))
        if drawn < count:
            return drawn
