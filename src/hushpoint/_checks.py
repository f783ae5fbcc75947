"""Checks of user input. Every message names the argument, the value and the remedy."""

from __future__ import annotations

import math
import numbers
import operator
import warnings
from collections.abc import Sequence
from typing import Any, TypeVar, cast

Kind = TypeVar("Kind")

_NARROWEST, _WIDEST = 1e-150, 1e150  # widths whose squares are neither 0 nor infinite


def require(condition: bool, name: str, value: Any, remedy: str) -> None:
    """Unless a condition holds, an error that names the argument, its value and the remedy."""
    if not condition:
        raise ValueError(f"{name} is {shown(value)}. {remedy}")


def require_positive(name: str, value: Any, *, remedy: str = "Pass a positive number.") -> float:
    """A finite number above zero."""
    number = _number(name, value, remedy)
    require(math.isfinite(number) and number > 0, name, value, remedy)
    return number


def require_nonnegative(name: str, value: Any, *, remedy: str = "Pass a finite number, 0 or larger.") -> float:
    """A finite number, zero or above."""
    number = _number(name, value, remedy)
    require(math.isfinite(number) and number >= 0, name, value, remedy)
    return number


def require_fraction(name: str, value: Any, *, remedy: str = "Pass a number in (0, 1].") -> float:
    """A number in (0, 1]."""
    number = _number(name, value, remedy)
    require(0 < number <= 1, name, value, remedy)
    return number


def require_inside(name: str, value: Any, *, remedy: str = "Pass a number between 0 and 1.") -> float:
    """A number in (0, 1)."""
    number = _number(name, value, remedy)
    require(0 < number < 1, name, value, remedy)
    return number


def require_count(name: str, value: Any, *, least: int = 1, most: int | None = None, remedy: str = "") -> int:
    """A whole number in a range."""
    span = f"from {least} to {most}" if most is not None else f"of at least {least}"
    remedy = remedy or f"Pass a whole number {span}."
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} is {shown(value)}. {remedy}") from None
    inside = number >= least and (most is None or number <= most)
    require(inside and not isinstance(value, bool), name, value, remedy)
    return number


def require_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """One of a few words."""
    remedy = f"Choose one of: {', '.join(map(repr, choices))}."
    require(isinstance(value, str) and value in choices, name, value, remedy)


def require_flag(name: str, value: Any) -> bool:
    """True or False, not something that merely counts as one of them."""
    require(type(value).__name__ in ("bool", "bool_"), name, value, "Pass True or False.")
    return bool(value)


def require_range(name: str, low: float, high: float) -> tuple[float, float]:
    """A range (low, high) whose ends, width and squared width are safe numbers."""
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"{name} is ({low:g}, {high:g}). Pass finite numbers, low below high.")
    if not _NARROWEST < high - low < _WIDEST:
        raise ValueError(
            f"{name} is ({low:g}, {high:g}), {high - low:g} wide. Pass a range between {_NARROWEST:g} and {_WIDEST:g} "
            "wide: other units of the target help."
        )
    return low, high


def require_kind(name: str, value: Any, kind: type[Kind], *, remedy: str) -> Kind:
    """An object of a class."""
    require(isinstance(value, kind), name, value, remedy)
    return cast(Kind, value)


def warn_of_large_delta(delta: float, items: int, unit: str, stacklevel: int) -> None:
    """Warn where delta is no promise: at 1/n or more."""
    if delta >= 1 / items:
        warnings.warn(
            f"delta is {delta:g} and there are {items} {unit}s: with a delta of 1/n or more, "
            "publishing somebody's data now and then would count as private. Pass a delta well below 1/n.",
            UserWarning,
            stacklevel=stacklevel + 1,
        )


def shown(value: Any) -> str:
    """A value as a message may quote it: words and numbers themselves, of anything that may hold data only the kind."""
    if value is None or isinstance(value, (str, numbers.Number)):
        return repr(value)
    shape = getattr(value, "shape", None)
    return f"a {type(value).__name__}" + (f" of shape {shape}" if isinstance(shape, tuple) else "")


def _number(name: str, value: Any, remedy: str) -> float:
    require(not isinstance(value, (bool, str, bytes)), name, value, remedy)
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {shown(value)}. {remedy}") from None
