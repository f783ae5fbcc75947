"""What an operator promises: a Lipschitz constant, the sensitivity of what is noised, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from hushpoint._checks import require_choice
from hushpoint._types import Array

UNITS = ("user", "record")
ADJACENCIES = ("replace-one", "zero-out")


@dataclass(frozen=True)
class Theorem:
    """What kind of release the sensitivity of a certificate is about, and so which composition holds for it.

    The defaults claim least: Algorithm 1, in which every step is a release about everybody, all blocks move, and no
    sample hides anyone.

    Parameters
    ----------
    section : str
        Where it is proved (docs/privacy.md).
    place : {"block", "sum", "release"}
        Where the noise is that the sensitivity is about.
    laws : tuple of str
        Laws of schedules with which it holds (``Schedule.law``; "own" is any schedule at all).
    counts : {"steps", "participations"}
        Whether an item pays for every step, or only for those in which its own block moves.
    amplified_by : tuple of str
        Laws of secret samples that make a release cost less. To state one is to promise that the noise is on a sum of
        messages, that the message of an item is a function of its own rows, its own block and public values, and that
        it is no longer in that sum than the zero-out sensitivity; for "fixed" also that no block is kept.
    walks : bool
        Whether what is shared is a token, nothing is kept elsewhere, and a step is as Lipschitz in it as R is.
    forgets : bool
        With noise on the sum: whether that noise reaches every coordinate of what is shared alike and nothing else is
        kept, so that who sees the final model only sees less.
    """

    section: str = "3a"
    place: Literal["block", "sum", "release"] = "block"
    laws: tuple[str, ...] = ("all",)
    counts: Literal["steps", "participations"] = "steps"
    amplified_by: tuple[str, ...] = ()
    walks: bool = False
    forgets: bool = False

    def __post_init__(self) -> None:
        require_choice("place", self.place, ("block", "sum", "release"))
        require_choice("counts", self.counts, ("steps", "participations"))


@dataclass(frozen=True)
class Certificate:
    """Promises about one step, good for every data set that has the declared facts.

    Parameters
    ----------
    lipschitz : float or None
        Lipschitz constant of R (all blocks together). None: there is none.
    sensitivity : mapping
        (unit, adjacency) -> how far one changed item moves the quantity that the noise is added to: R at the item's
        block, the sum of the messages, or the release. A number, or one number per item. A missing pair has no bound.
        A plain mapping unit -> number is read as replace-one.
    because : tuple of str
        Why the promises hold, and on what they rest.
    missing : tuple of str
        What would have to be declared for the promises that are not made.
    theorem : Theorem
        What composition of so many steps holds.
    """

    lipschitz: float | None
    sensitivity: Mapping[Any, float | Array] = field(default_factory=dict)
    because: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    theorem: Theorem = Theorem()

    def __post_init__(self) -> None:
        if self.lipschitz is not None and not (math.isfinite(self.lipschitz) and self.lipschitz >= 0):
            raise ValueError(f"lipschitz is {self.lipschitz}. Pass a finite number >= 0, or None where there is none.")
        table: dict[tuple[str, str], float | Array] = {}
        for key, bound in self.sensitivity.items():
            unit, adjacency = (key, "replace-one") if isinstance(key, str) else key
            require_choice("sensitivity unit", unit, UNITS)
            require_choice("sensitivity adjacency", adjacency, ADJACENCIES)
            if not _is_bound(bound):
                raise ValueError(f"sensitivity for {unit}, {adjacency} is not a finite number >= 0. Leave it out.")
            table[unit, adjacency] = bound
        object.__setattr__(self, "sensitivity", table)
        for name in ("because", "missing"):
            words = getattr(self, name)
            object.__setattr__(self, name, (words,) if isinstance(words, str) else tuple(words))

    def shift(self, unit: str, adjacency: str = "replace-one", item: int | None = None) -> float:
        """The sensitivity for one item, or for the worst one."""
        require_choice("unit", unit, UNITS)
        require_choice("adjacency", adjacency, ADJACENCIES)
        if (unit, adjacency) not in self.sensitivity:
            wanted = " ".join(self.missing) or f"The operator states none for one {unit}."
            raise ValueError(f"there is no sensitivity for one {unit} ({adjacency}): {wanted}")
        bound = np.asarray(self.sensitivity[unit, adjacency])
        if item is None or bound.ndim == 0:
            return float(bound.max())
        return float(bound[item])


def _is_bound(bound: float | Array) -> bool:
    """Whether it is finite and at least 0, in every entry; NaN is not."""
    if isinstance(bound, float):
        return 0 <= bound < math.inf
    entries = np.asarray(bound)
    return bool(entries.size == 0 or (entries.min() >= 0 and entries.max() < math.inf))
