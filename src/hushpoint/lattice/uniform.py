"""Uniform numbers in (0, 1) of which only the digits that a comparison asks for are drawn (Karney's u-rands)."""

from __future__ import annotations

from hushpoint.lattice.words import Bits

KNOWN = 256  # bits of the real numbers that uniform ones are compared with
TIED = "two random numbers agree in 256 bits. The source is not random: do not release anything drawn from it."


class Uniform:
    """One uniform number: a digit is a word, drawn when it is first asked for and kept from then on."""

    __slots__ = ("bits", "digits")

    def __init__(self, bits: Bits) -> None:
        self.bits = bits
        self.digits: list[int] = []

    def digit(self, place: int) -> int:
        """The digit at a place after the point."""
        if place == len(self.digits):
            if place == self.bits.deepest:
                raise ArithmeticError(TIED)
            self.digits.append(self.bits.word())
        return self.digits[place]


def less(one: Uniform, other: Uniform) -> bool:
    """Whether one number is less than another: the first digit in which they differ decides."""
    place = 0
    while True:
        a, b = one.digit(place), other.digit(place)
        if a != b:
            return a < b
        place += 1


def below(number: Uniform, numerator: int, denominator: int) -> bool:
    """Whether a number is less than ``numerator / denominator``.

    What the digits seen leave of the ratio, times the denominator, is the rest: nothing left, or less, and the number
    is not below; a whole unit of the last digit left, and it is, whatever digits follow.
    """
    rest, place = numerator, 0
    while True:
        rest = (rest << number.bits.width) - number.digit(place) * denominator
        if rest <= 0:
            return False
        if rest >= denominator:
            return True
        place += 1


def beneath(number: Uniform, first_bits: int) -> bool:
    """Whether a number is less than a real one in (0, 1), of which the first 256 bits are given.

    The first digit in which they differ decides; where the bits that are given agree, nothing does, and it is an error.
    """
    width, left = number.bits.width, KNOWN
    while True:
        digit = number.digit((KNOWN - left) // width)
        left -= width
        if left < 0:
            raise ArithmeticError(TIED)
        known = (first_bits >> left) & ((1 << width) - 1)
        if digit != known:
            return digit < known


def whole_below(bits: Bits, count: int) -> int:
    """A whole number from 0 to ``count - 1``, all as likely: so many coins, tossed again while they are too many."""
    size = (count - 1).bit_length()
    while True:
        drawn = 0
        for place in range(size):
            drawn |= bits.coin() << place
        if drawn < count:
            return drawn
