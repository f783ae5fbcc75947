"""What an operator promises: a Lipschitz constant, the sensitivity of what is noised, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushpoint._checks import require_choice

Array = NDArray[np.float64]
UNITS = ("user", "record")
ADJACENCIES = ("replace-one", "zero-out")


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
    """

    lipschitz: float | None
    sensitivity: Mapping[Any, float | Array] = field(default_factory=dict)
    because: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.lipschitz is not None and not (math.isfinite(self.lipschitz) and self.lipschitz >= 0):
            raise ValueError(f"lipschitz is {self.lipschitz}. Pass a finite number >= 0, or None where there is none.")
        table: dict[tuple[str, str], float | Array] = {}
        for key, bound in self.sensitivity.items():
            unit, adjacency = (key, "replace-one") if isinstance(key, str) else key
            require_choice("sensitivity unit", unit, UNITS)
            require_choice("sensitivity adjacency", adjacency, ADJACENCIES)
            if not np.all(np.isfinite(bound)) or np.any(np.asarray(bound) < 0):
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
