"""``rint(S Z)`` of a standard normal Z, exactly: algorithm N of Karney (2016), and a rounding in whole numbers.

This is the program in plain Python, for few draws and for words of any width; ``compiled`` is the same one, step for
step, and reads the same words.
"""

from __future__ import annotations

from hushpoint.lattice.bernoulli import half
from hushpoint.lattice.uniform import Uniform, below, less, whole_below
from hushpoint.lattice.words import Bits

WIDEST = 1 << 40  # scale: 2 S (x + 1) stays far within 64 bits
FARTHEST = 1 << 20  # standard deviations: never reached by a normal, whose chance of it is exp(-2^39)
FAR = "a normal number is beyond 2^20 standard deviations. The source is not random: do not release anything of it."


def rounded_normal(bits: Bits, scale: int) -> int:
    """One draw."""
    while True:
        found = attempt(bits, scale)
        if found is not None:
            return found


def attempt(bits: Bits, scale: int) -> int | None:
    """One try: a draw, or None where the next try has to begin anew."""
    whole = whole_part(bits)
    if whole is None:
        return None
    fraction = Uniform(bits)
    for _ in range(whole + 1):  # N4: exp(-x (2k + x)/2) as k + 1 factors
        if not factor(bits, whole, fraction):
            return None
    magnitude = whole * scale + nearest(fraction, scale)
    return -magnitude if bits.coin() else magnitude


def whole_part(bits: Bits) -> int | None:
    """k with probability in proportion to ``exp(-k^2/2)``; None where it is rejected (N1, N2)."""
    whole = 0
    while half(bits):
        whole += 1
        if whole == FARTHEST:
            raise ArithmeticError(FAR)
    for _ in range(whole * (whole - 1)):
        if not half(bits):
            return None
    return whole


def factor(bits: Bits, whole: int, fraction: Uniform) -> bool:
    """True with probability ``exp(-x (2k + x)/(2k + 2))``: a falling run below x, kept up by a test at each step.

    The test has probability ``(2k + x)/(2k + 2)``: passed outright in k of k + 1 cases, else in half of them if
    another uniform number is less than x.
    """
    last, run = fraction, 0
    while True:
        outright = whole_below(bits, whole + 1) < whole
        if not outright and not bits.coin():
            break
        following = Uniform(bits)
        if not less(following, last):
            break
        if not outright and not less(Uniform(bits), fraction):
            break
        last = following
        run += 1
    return run % 2 == 0


def nearest(fraction: Uniform, scale: int) -> int:
    """The whole number nearest to ``scale * x``, x the fraction.

    Digits are read until they leave only one half-way point ``h + 1/2`` in question; then x is compared with it.
    """
    known, units, place = 0, 1, 0
    while units < 2 * scale:
        known = (known << fraction.bits.width) | fraction.digit(place)
        units <<= fraction.bits.width
        place += 1
    under = scale * known // units
    return under if below(fraction, 2 * under + 1, 2 * scale) else under + 1
