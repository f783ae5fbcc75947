"""Events whose probability is an exponential, from comparisons alone (von Neumann 1951).

The longest falling run ``x > v1 > v2 > ... > vn`` of uniform numbers has ``P(n >= m) = x^m / m!``, so n is even with
probability ``1 - x + x^2/2! - ... = exp(-x)``.
"""

from __future__ import annotations

from hushpoint.lattice.uniform import Uniform, below, less
from hushpoint.lattice.words import Bits


def half(bits: Bits) -> bool:
    """True with probability ``exp(-1/2)``.

    The run below x = 1/2, with the first bit of every number tossed as a coin: it has to fall below 1/2 too.
    """
    last, run = Uniform(bits), 0
    while bits.coin():
        if run:
            following = Uniform(bits)
            if not less(following, last):
                break
            last = following
        run += 1
    return run % 2 == 0


def one(bits: Bits) -> bool:
    """True with probability ``exp(-1)``."""
    return half(bits) and half(bits)


def ratio(bits: Bits, numerator: int, denominator: int) -> bool:
    """True with probability ``exp(-numerator/denominator)``, for a ratio from 0 to 1."""
    last, run = Uniform(bits), 0
    if below(last, numerator, denominator):
        run = 1
        while less(following := Uniform(bits), last):
            last = following
            run += 1
    return run % 2 == 0
