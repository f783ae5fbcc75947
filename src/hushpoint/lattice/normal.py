"""``rint(S Z)`` of a standard normal Z, exactly: algorithm N of Karney (2016), its whole part from a table, and a
rounding in whole numbers.

This is the program in plain Python, for few draws and for words of any width; ``compiled`` is the same one, step for
step, and reads the same words.
"""

from __future__ import annotations

from hushpoint.lattice.uniform import KNOWN, Uniform, below, beneath, less, whole_below
from hushpoint.lattice.words import Bits

_FINE = 600
WIDEST = 1 << 40  # scale: 2 S (x + 1) stays far within 64 bits


def _cumulated() -> list[int]:
    """The first 256 bits of ``P(whole part <= k)``, k = 0, 1 and so on up to the first one whose bits are all 1.

    In units of 2^-600: the series of exp(-1/2), its powers, and their sums, each rounded down a few thousand times in
    all, without those from k = 30 on, which add up to less than 2^-600. So all are within 2^-500 of the truth.
    """
    root = term = 1 << _FINE
    for n in range(1, 200):
        term //= 2 * n
        root += -term if n % 2 else term
    weights = [1 << _FINE]
    for k in range(1, 30):
        weight = weights[-1]
        for _ in range(2 * k - 1):
            weight = weight * root >> _FINE
        weights.append(weight)
    error, total, found = 1 << _FINE - 500, sum(weights), [0]
    while found[-1] < (1 << KNOWN) - 1:
        share = sum(weights[: len(found)])
        least, most = (share - error << KNOWN) // (total + error), (share + error << KNOWN) // (total - error)
        if least != most:
            raise ArithmeticError("a threshold is not known to 256 bits.")
        found.append(least)
    return found[1:]


CUMULATED = _cumulated()


def rounded_normal(bits: Bits, scale: int) -> int:
    """One draw."""
    while True:
        found = attempt(bits, scale)
        if found is not None:
            return found


def attempt(bits: Bits, scale: int) -> int | None:
    """One try: a draw, or None where the next try has to begin anew."""
    whole = whole_part(bits)
    fraction = Uniform(bits)
    for _ in range(whole + 1):  # N4: exp(-x (2k + x)/2) as k + 1 factors
        if not factor(bits, whole, fraction):
            return None
    magnitude = whole * scale + nearest(fraction, scale)
    return -magnitude if bits.coin() else magnitude


def whole_part(bits: Bits) -> int:
    """k with probability in proportion to ``exp(-k^2/2)``: where a uniform number falls among the sums of these."""
    number, whole = Uniform(bits), 0
    while not beneath(number, CUMULATED[whole]):
        whole += 1
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
