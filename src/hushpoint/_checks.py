"""Checks of user input. Every message names the argument, the value and the remedy."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Sequence
from typing import Any


def require_positive(name: str, value: Any, *, remedy: str = "Pass a positive number.") -> float:
    """A finite number above zero."""
    number = _number(name, value, remedy)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name} is {shown(value)}. {remedy}")
    return number


def require_nonnegative(name: str, value: Any, *, remedy: str = "Pass a finite number, 0 or larger.") -> float:
    """A finite number, zero or above."""
    number = _number(name, value, remedy)
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{name} is {shown(value)}. {remedy}")
    return number


def require_fraction(name: str, value: Any, *, remedy: str = "Pass a number in (0, 1].") -> float:
    """A number in (0, 1]."""
    number = _number(name, value, remedy)
    if not 0 < number <= 1:
        raise ValueError(f"{name} is {shown(value)}. {remedy}")
    return number


def require_count(name: str, value: Any, *, least: int = 1, most: int | None = None, remedy: str = "") -> int:
    """A whole number in a range."""
    span = f"from {least} to {most}" if most is not None else f"of at least {least}"
    remedy = remedy or f"Pass a whole number {span}."
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} is {shown(value)}. {remedy}") from None
    if isinstance(value, bool) or number < least or (most is not None and number > most):
        raise ValueError(f"{name} is {shown(value)}. {remedy}")
    return number


def require_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """One of a few words."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} is {shown(value)}. Choose one of: {', '.join(map(repr, choices))}.")


def require_flag(name: str, value: Any) -> bool:
    """True or False, not something that merely counts as one of them."""
    if type(value).__name__ not in ("bool", "bool_"):
        raise ValueError(f"{name} is {shown(value)}. Pass True or False.")
    return bool(value)


def shown(value: Any) -> str:
    """A value as a message may quote it: words and numbers themselves, of anything that may hold data only the kind."""
    if value is None or isinstance(value, (str, numbers.Number)):
        return repr(value)
    shape = getattr(value, "shape", None)
    return f"a {type(value).__name__}" + (f" of shape {shape}" if isinstance(shape, tuple) else "")


def _number(name: str, value: Any, remedy: str) -> float:
    if isinstance(value, (bool, str, bytes)):
        raise ValueError(f"{name} is {shown(value)}. {remedy}")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {shown(value)}. {remedy}") from None
