"""Faster loops with the same law as the plain one, for operators that have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from hushpoint._types import Array
from hushpoint.noise import Source
from hushpoint.rows import Rows

if TYPE_CHECKING:
    from hushpoint.engine import State


class Kernel(Protocol):
    """A loop that stands in for the plain one; resuming is exact within one kernel."""

    @property
    def name(self) -> str:
        """Which states it can continue."""

    @property
    def at_once(self) -> int:
        """The most steps of one call."""

    def prepare(self, rows: Rows) -> Any:
        """What the steps need of the rows, computed once."""

    def blocks(self) -> Array:
        """The blocks, or what stands for them, at the start."""

    def advance(self, data: Any, source: Source, state: State, z: Array, count: int) -> None:
        """So many steps from the public point z, on the state; where one raises, the state stands before it."""
