"""Messages on a lattice: its step, the most steps that a message may be long, and how long a vector of integers is."""

from __future__ import annotations

import math
from collections.abc import Iterable

_BITS = 30  # of the length of a message, in steps: truncation is then a billionth of it
MOST_IN_ALL = 1 << 62
_FINEST = -900  # exponent of a step whose inverse is a number


def unit_for(bound: float, messages: int, spare: int = 1) -> float:
    """The step of a lattice on which so many messages, each up to ``2**spare`` times the bound, have an exact sum."""
    bits = min(_BITS, MOST_IN_ALL.bit_length() - 1 - spare - messages.bit_length())
    return 2.0 ** max(math.frexp(bound)[1] - bits, _FINEST)


def most_steps(name: str, bound: float, unit: float, messages: int) -> int:
    """How many steps long a message may be; refused, by public numbers, where none is left or a sum could overflow."""
    require_left(name, bound, unit)
    most = int(bound / unit)
    if messages * most >= MOST_IN_ALL:
        raise ValueError(
            f"{name} is {bound:g}, or {most} units of {unit:g}, {messages} times in a sum of 64 bits. Pass "
            "lattice=False."
        )
    return most


def require_left(name: str, bound: float, unit: float) -> None:
    """Refuse a lattice so coarse, for the sake of its noise, that the longest message is less than one step of it."""
    if bound < unit:
        raise ValueError(
            f"{name} is {bound:g}, less than one unit of {unit:g}: next to that noise nothing of a message is left. "
            "Pass less noise, a larger budget, or lattice=False."
        )


def is_whole_within(vector: Iterable[int], most: int) -> bool:
    """Whether a vector of Python's integers is at most so long, to the last digit."""
    return sum(entry * entry for entry in vector) <= most * most
