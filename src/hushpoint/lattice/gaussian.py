"""The discrete Gaussian ``P(k) ~ exp(-k^2/(2 s^2))``, exactly, for rational s^2: Canonne, Kamath and Steinke (2020).

This is the program in plain Python, for few draws and for words of any width; ``compiled`` is the same one, step for
step, and reads the same words. Bernoulli events of probability exp(-x) come from falling runs, one comparison with x
each, where the paper takes a comparison with x/1, x/2, ...: the same events at fewer words.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

from hushpoint.lattice.bernoulli import one, ratio
from hushpoint.lattice.uniform import whole_below
from hushpoint.lattice.words import Bits

FARTHEST = 1 << 20  # scales of the Laplace law: its chance of it is exp(-2^20)
FAR = "a Laplace number is beyond 2^20 of its scale. The source is not random: do not release anything of it."


@dataclass(frozen=True)
class Width:
    """What the program needs of ``s^2 = numerator / denominator``, as whole numbers.

    ``step``: t = floor(s) + 1, the scale of the Laplace law. A proposal y is accepted with probability ``exp(-x)``,
    ``x = (|y| - s^2/t)^2 / (2 s^2) = (|y| per - centre)^2 / whole``.
    """

    step: int
    per: int
    centre: int
    whole: int

    @classmethod
    def of(cls, numerator: int, denominator: int) -> Width:
        """From s^2."""
        step = isqrt(numerator // denominator) + 1
        return cls(step, denominator * step, numerator, 2 * numerator * denominator * step**2)


def discrete_gaussian(bits: Bits, width: Width) -> int:
    """One draw."""
    while True:
        found = attempt(bits, width)
        if found is not None:
            return found


def attempt(bits: Bits, width: Width) -> int | None:
    """One try: a draw, or None where the next try has to begin anew."""
    proposed = laplace(bits, width.step)
    return proposed if proposed is not None and accepted(bits, abs(proposed), width) else None


def laplace(bits: Bits, step: int) -> int | None:
    """``P(y) ~ exp(-|y|/t)``; None where it is rejected."""
    rest = whole_below(bits, step)
    if not ratio(bits, rest, step):
        return None
    whole = 0
    while one(bits):
        whole += 1
        if whole == FARTHEST:
            raise ArithmeticError(FAR)
    magnitude = rest + step * whole
    if not bits.coin():
        return magnitude
    return -magnitude if magnitude else None  # 0 has one sign, or it would come twice as often


def accepted(bits: Bits, magnitude: int, width: Width) -> bool:
    """True with probability ``exp(-x)``: as many events of exp(-1) as x has whole units, then one for what is left."""
    left = (magnitude * width.per - width.centre) ** 2
    while left >= width.whole:
        if not one(bits):
            return False
        left -= width.whole
    return ratio(bits, left, width.whole)
