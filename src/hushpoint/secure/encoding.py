"""Messages as integers: truncated, checked, noised, and taken modulo 2^64. Sums of them as numbers again."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushpoint._checks import require, require_count, require_positive
from hushpoint._source import Source
from hushpoint._types import Array
from hushpoint.lattice import WIDEST, discrete_gaussians

Whole = NDArray[np.int64]
Words = NDArray[np.uint64]

_ROLE = "secure sum"
_ROOM = 1 << 62  # sums stay below it, so that they never wrap around modulo 2^64
_FAR = 40  # standard deviations: the noise is farther with probability below 1e-300
FINENESS = 1 << 10  # rounding moves a message by less than a thousandth of what a unit does


@dataclass(frozen=True)
class Encoding:
    """The lattice of a round: every number of it is public, and in the plan that all sites agreed to.

    Parameters
    ----------
    step : float
        Distance of lattice points, a power of two.
    bound : float
        The length of a message at the most.
    sensitivity : float
        How far one unit moves one message: bound or twice it at user level, less for one row.
    length : int
        Numbers in a message.
    scale : int
        Standard deviation of the noise on the sum, in steps; 0 for no noise, and no privacy.
    sites, honest : int
        Of the agreement: all sites, and the fewest honest survivors, who share the noise.
    whole : bool, default False
        Whether rounding adds nothing to the sensitivity: one unit is a whole message (truncation only shortens it), or
        rows were truncated before they were added.
    """

    step: float
    bound: float
    sensitivity: float
    length: int
    scale: int
    sites: int
    honest: int
    whole: bool = False

    def __post_init__(self) -> None:
        step = require_positive("step", self.step)
        require(math.frexp(step)[0] == 0.5, "step", step, "Pass a power of two.")
        require_positive("bound", self.bound)
        require_positive("sensitivity", self.sensitivity)
        n = require_count("sites", self.sites)
        h = require_count("honest", self.honest, most=n)
        p, scale = require_count("length", self.length), require_count("scale", self.scale, least=0, most=WIDEST)
        fine = (Fraction(self.sensitivity) / Fraction(step)) ** 2 >= FINENESS**2 * p
        require(fine, "step", step, f"Pass {self.sensitivity / (FINENESS * math.sqrt(p)):g} or less: rounding costs.")
        room = _ROOM - n * self.limit
        fits = room > 0 and room**2 * h > _FAR**2 * scale**2 * n
        require(fits, "step", step, "Sums of so many steps could wrap around 2^64: pass a larger step.")

    @property
    def limit(self) -> Fraction:
        """The bound in steps, K."""
        return Fraction(self.bound) / Fraction(self.step)

    @property
    def distance(self) -> float:
        """How far one unit moves the integers of a message, D, rounded up."""
        moved = self.sensitivity / self.step
        if self.whole:
            return moved
        return math.nextafter(math.nextafter(moved + math.sqrt(self.length), math.inf), math.inf)

    def truncated(self, message: Array) -> tuple[Whole, bool]:
        """A message in whole steps, rounded toward zero, and whether it is sound.

        One that is too long (compared in whole numbers), not finite or of another length is the vector 0: it is sent
        and counted like any other. Shorten messages to a little less than the bound, for the rounding of that.
        """
        values: NDArray[Any] = np.asarray(message, dtype=np.float64)
        if values.shape == (self.length,) and bool(np.isfinite(values).all()):
            with np.errstate(over="ignore"):
                steps = np.trunc(values / self.step)
            if bool(np.isfinite(steps).all()) and self._is_short(steps):
                return steps.astype(np.int64), True
        return np.zeros(self.length, dtype=np.int64), False

    def _is_short(self, steps: Array) -> bool:
        squared = sum(int(step) ** 2 for step in steps.tolist())
        return squared <= self.limit**2

    def noise(self, source: Source, site: int, round_number: int) -> Whole:
        """A site's part of the noise: discrete Gaussian of variance ``scale^2 / honest``, exactly.

        The source has to be one of this run alone: the same source, site and round give the same noise.
        """
        if self.scale == 0:
            return np.zeros(self.length, dtype=np.int64)
        address = source, _ROLE, (site,), round_number, self.length
        return discrete_gaussians(*address, self.scale**2, self.honest).reshape(self.length)

    def encoded(self, message: Array, source: Source, site: int, round_number: int) -> tuple[Words, bool]:
        """What a site masks: its message in steps and its noise, modulo 2^64; and whether the message was sound."""
        steps, is_sound = self.truncated(message)
        return steps.view(np.uint64) + self.noise(source, site, round_number).view(np.uint64), is_sound

    def decoded(self, total: Words) -> Array:
        """An opened sum as numbers: the integers from -2^63 to 2^63 that it stands for, times the step."""
        return np.asarray(total, dtype=np.uint64).view(np.int64).astype(np.float64) * self.step
