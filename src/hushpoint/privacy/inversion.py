"""One draw of a law on 1, 2, ... from a uniform number, by inversion in decimals that err to known sides.

``K`` is the least ``k`` with ``U Z < t_1 + ... + t_k``, for the terms ``t`` of the law and their sum ``Z``. Both sides
are known to lie between two decimals of 120 digits, U by 256 random bits. As long as these do not overlap the answer is
that for the infinite string of bits and for real numbers: the law is the one of the formula. Where they overlap, with
probability at most 2^-255 for each ``k``, it is an error and never a guess (docs/selection.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal

Between = tuple[Decimal, Decimal]

_DIGITS = 120
_BITS = 256
_UNDECIDED = "256 random bits do not decide a draw. The source is not random: do not release anything drawn from it."


def _context(rounding: str) -> Context:
    return Context(_DIGITS, rounding, Emin=MIN_EMIN, Emax=MAX_EMAX)


# Every operation names its context: operators such as ``-x`` would round to the 28 digits of the default one.
_DOWN, _UP = _context(ROUND_FLOOR), _context(ROUND_CEILING)
_LESS, _MORE = (_DOWN.add(Decimal(1), Decimal(f"{sign}1e-118")) for sign in "-+")  # beyond a rounding to nearest


def times(one: Between, other: Between) -> Between:
    """The product of two numbers, none of them negative."""
    return _DOWN.multiply(one[0], other[0]), _UP.multiply(one[1], other[1])


def over(one: Between, count: int) -> Between:
    """A number divided by a whole one."""
    return _DOWN.divide(one[0], Decimal(count)), _UP.divide(one[1], Decimal(count))


def exactly(number: float) -> Between:
    """The number that a float is, which 120 digits may not hold."""
    return _DOWN.create_decimal_from_float(number), _UP.create_decimal_from_float(number)


def rest_of(number: float) -> Between:
    """``1 - number``."""
    return _DOWN.subtract(Decimal(1), Decimal(number)), _UP.subtract(Decimal(1), Decimal(number))


def log_inverse(number: float) -> Between:
    """``ln(1/number)`` of a number below 1. Decimal logarithms are the right ones, rounded to nearest."""
    return _around(_UP.ln(Decimal(number)).copy_negate())


def exp_less_one(number: float) -> Between:
    """``exp(number) - 1``. Decimal exponentials are the right ones, rounded to nearest."""
    low, high = _around(_UP.exp(Decimal(number)))
    return _DOWN.subtract(low, Decimal(1)), _UP.subtract(high, Decimal(1))


def _around(nearest: Decimal) -> Between:
    return _DOWN.multiply(nearest, _LESS), _UP.multiply(nearest, _MORE)


def least_count(terms: Iterator[Between], whole: Between, word: Callable[[], int]) -> int:
    """The draw: so many terms are more than a uniform part of the whole. ``word`` gives 64 random bits."""
    bits = 0
    for _ in range(_BITS // 64):
        bits = bits << 64 | word()
    unit = Decimal(1 << _BITS)
    low, high = times((_DOWN.divide(Decimal(bits), unit), _UP.divide(Decimal(bits + 1), unit)), whole)
    below = above = Decimal(0)
    count = 0
    while True:
        term = next(terms)
        count += 1
        below, above = _DOWN.add(below, term[0]), _UP.add(above, term[1])
        if high <= below:
            return count
        if low < above:
            raise ArithmeticError(_UNDECIDED)
