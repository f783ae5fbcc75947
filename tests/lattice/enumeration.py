"""All that a program can do: it is run on every string of random choices, up to those that are too improbable.

Two kinds of choices. Bit by bit: words of a few bits, nothing left out. Or comparisons of
uniform numbers are the choices, each with its exact probability given those before, so that far fewer strings hold
nearly all of the probability; one number, the fraction of a normal, is a symbol over which is integrated. A part of a
program that was enumerated before is one choice of the whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from fractions import Fraction
from itertools import pairwise, zip_longest
from typing import Any

Polynomial = list[Fraction]
Option = tuple[Polynomial, Fraction, Fraction]
ZERO, ONE = Fraction(0), Fraction(1)


class Improbable(Exception):
    """The choices so far have a probability below the floor."""


class Enumerated:
    """Bits as a program reads them, here a path through the tree of all their values.

    The weight of a path is a polynomial in the symbol x on a part of (0, 1), its mass the integral. An option of a
    choice multiplies it by a polynomial and keeps the part from ``low`` to ``high``.
    """

    deepest = 10**9  # digits are never refused: what is too deep is too improbable

    def __init__(self, width: int, floor: float) -> None:
        self.width, self.floor = width, Fraction(floor)
        self.path: list[tuple[int, int]] = []
        self.start()

    def start(self) -> None:
        self._at, self.weight, self.low, self.high, self.mass = 0, [ONE], ZERO, ONE, ONE

    def choice(self, options: list[Option]) -> int:
        if self._at == len(self.path):
            self.path.append((0, len(options)))
        chosen = self.path[self._at][0]
        self._at += 1
        factor, low, high = options[chosen]
        self.low, self.high = max(self.low, low), min(self.high, high)
        product = [ZERO] * (len(self.weight) + len(factor) - 1)
        for i, a in enumerate(self.weight):
            for j, b in enumerate(factor):
                product[i + j] += a * b
        self.weight = product
        self.mass = ZERO
        if self.low < self.high:
            ends = ((self.high ** (k + 1) - self.low ** (k + 1)) / (k + 1) for k in range(len(self.weight)))
            self.mass = sum((each * end for each, end in zip(self.weight, ends, strict=True)), ZERO)
        if self.mass <= self.floor:
            raise Improbable
        return chosen

    def one_of(self, count: int) -> int:
        return self.choice([([Fraction(1, count)], ZERO, ONE)] * count)

    def word(self) -> int:
        return self.one_of(2**self.width)

    def coin(self) -> int:
        return self.one_of(2)

    def event(self, low: Fraction, high: Fraction) -> bool:
        """An event whose probability is between two bounds; what is counted is the lower bound of each side."""
        return bool(self.choice([([1 - high], ZERO, ONE), ([low], ZERO, ONE)]))

    def move_on(self) -> bool:
        """To the next path; False after the last."""
        del self.path[self._at :]
        while self.path:
            chosen, count = self.path.pop()
            if chosen + 1 < count:
                self.path.append((chosen + 1, count))
                return True
        return False


class Number:
    """A uniform number of which only comparisons are known: the last of ``rank`` falling ones below ``top``.

    ``top = None`` stands for the symbol x, ``rank = 0`` for ``top`` itself.
    """

    def __init__(self, bits: Enumerated) -> None:
        self.bits, self.rank, self.top = bits, 1, ONE
        self.is_symbol = False

    def digit(self, place: int) -> int:
        """Of the symbol."""
        assert self.is_symbol
        units = 2 ** (self.bits.width * (place + 1))
        count = 2**self.bits.width
        before = int(self.bits.low * units / count) if place else 0
        ends = [Fraction(before * count + k, units) for k in range(count + 1)]
        return self.bits.choice([([ONE], low, high) for low, high in pairwise(ends)])


def symbol(bits: Enumerated) -> Number:
    number = Number(bits)
    number.is_symbol = True
    return number


def less(one: Number, other: Number) -> bool:
    """``one`` is new. Below the last of m falling numbers under t is t/(m + 1) of what was possible."""
    bits, rank = one.bits, other.rank if not other.is_symbol else 0
    x = other.is_symbol or other.top is None
    share = Fraction(1, rank + 1) * (ONE if x else other.top)
    yes, no = ([ZERO, share], [ONE, -share]) if x else ([share], [1 - share])
    found = bits.choice([(no, ZERO, ONE), (yes, ZERO, ONE)])
    one.rank, one.top = rank + 1, None if x else other.top  # type: ignore[assignment]
    return bool(found)


def below(number: Number, numerator: int, denominator: int) -> bool:
    """A new number, or the symbol, against a ratio."""
    ratio = Fraction(numerator, denominator)
    if number.is_symbol:
        return bool(number.bits.choice([([ONE], ratio, ONE), ([ONE], ZERO, ratio)]))
    number.rank, number.top = 1, ratio
    return number.bits.event(ratio, ratio)


def weights(program: Callable[[Any], Any], width: int, floor: float) -> Iterator[tuple[Any, Polynomial, Fraction]]:
    """What each path returns, its weight and its mass."""
    bits = Enumerated(width, floor)
    more = True
    while more:
        bits.start()
        with suppress(Improbable):
            yield program(bits), bits.weight, bits.mass
        more = bits.move_on()


def outcomes(program: Callable[[Any], Any], width: int, floor: float) -> tuple[dict[Any, Fraction], Fraction]:
    """Lower bounds of the probabilities of all that a program returns, and what is missing from 1."""
    found: dict[Any, Fraction] = defaultdict(Fraction)
    for result, _, mass in weights(program, width, floor):
        found[result] += mass
    return found, 1 - sum(found.values(), ZERO)


def polynomials(program: Callable[[Any], Any], width: int, floor: float) -> dict[Any, Polynomial]:
    """The same as functions of the symbol."""
    found: dict[Any, Polynomial] = defaultdict(list)
    for result, weight, _ in weights(program, width, floor):
        found[result] = [a + b for a, b in zip_longest(found[result], weight, fillvalue=ZERO)]
    return found


def accepted(masses: dict[Any, Fraction], missing: Fraction) -> dict[Any, tuple[Fraction, Fraction]]:
    """Bounds of the probabilities of what is drawn when None means to try again."""
    kept = 1 - masses.get(None, ZERO)
    return {k: (mass / kept, (mass + missing) / kept) for k, mass in masses.items() if k is not None}
