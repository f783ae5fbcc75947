"""Gaussian noise, where it goes, and the random sources it is drawn from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from numpy.typing import NDArray

from hushpoint._checks import require_choice, require_nonnegative
from hushpoint._source import Source, role_word, secure_source, seeded_source, source_for, word
from hushpoint.lattice import WIDEST, rounded_normals

__all__ = ["Noise", "Place", "Source", "role_word", "secure_source", "seeded_source", "source_for", "word"]

Place = Literal["block", "sum", "release"]
PLACES = ("block", "sum", "release")


@dataclass(frozen=True)
class Noise:
    """Gaussian noise of standard deviation ``std`` on every coordinate, added in one place.

    Parameters
    ----------
    std : float
        Standard deviation of ``eta`` in Algorithm 1 for ``place="block"`` (what reaches the block is the relaxation
        times ``eta``); of the noise on the summed messages for ``"sum"``; of the noise on each release for
        ``"release"``.
    place : {"block", "sum", "release"}
        ``"block"``: kept in the block and in its message (Algorithms 1 to 5). ``"sum"``: added to the sum of the
        messages, kept in what is shared. ``"release"``: fresh at each release, kept nowhere.
    unit : float, optional
        Step of the lattice that the messages are on, a power of two: noise is then ``rint(S Z)`` steps, drawn exactly,
        with ``S = std/unit`` a whole number up to 2^40 (docs/privacy.md, section 11). None: real numbers, in double
        precision.
    """

    std: float
    place: Place = "block"
    unit: float | None = None

    def __post_init__(self) -> None:
        require_nonnegative("std", self.std)
        require_choice("place", self.place, PLACES)
        if self.unit is not None:
            if not (0 < self.unit < math.inf and math.frexp(self.unit)[0] == 0.5):
                raise ValueError(f"unit is {self.unit!r}. Pass a power of two, or None for real numbers.")
            if not (self.std / self.unit).is_integer() or self.std / self.unit > WIDEST:
                raise ValueError(
                    f"std is {self.std!r}, which is not a whole number of units of {self.unit!r} up to 2^40. Round it "
                    "up to one, or take a larger unit."
                )

    @property
    def scale(self) -> int:
        """The standard deviation in steps of the lattice."""
        return int(self.std / self.unit) if self.unit is not None else 0

    def drawn(
        self, source: Source, place: Place, step: int, size: int, items: Sequence[int] | NDArray[Any] = (0,)
    ) -> NDArray[Any] | None:
        """What a step adds in a place, one row an item; None where this is not the place, or there is no noise.

        On a lattice these are whole numbers: so many units.
        """
        if place != self.place or self.std == 0:
            return None
        if self.unit is not None:
            return rounded_normals(source, place, items, step, size, self.scale)
        return source.normals(place, items, step, size, self.std)


def bits_missing(std: float, unit: float) -> int:
    """By how many powers of two a unit is too small for so much noise, 200 at most; 0 if it is not."""
    if std <= WIDEST * unit:
        return 0
    steps = min(std / unit, 2.0**300)  # of which no message has anything left
    return min(max(1, math.ceil(math.log2(steps)) - WIDEST.bit_length() + 1), 200)


def whole_std(std: float, unit: float) -> float:
    """The least multiple of a unit that is a standard deviation, but for rounding of the last digits."""
    return unit * math.ceil(std / unit * (1 - 1e-14))
