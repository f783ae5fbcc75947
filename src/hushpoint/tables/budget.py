"""The delta of a release about a known number of people."""

from __future__ import annotations

from hushpoint.privacy.guarantee import checked_delta


def settled_delta(delta: float | None, items: int, unit: str) -> float:
    """The delta that is declared, or ``items**-1.1``. One of 1/items or more is refused."""
    if delta is None:
        if items < 2:
            raise ValueError(f"there is one {unit} only. A private model hides one among others: pass at least two.")
        return float(items**-1.1)
    if checked_delta(delta) >= 1 / items:
        raise ValueError(
            f"delta is {delta:g} and there are {items} {unit}s. Pass a delta well below 1/{items}: from there on, "
            "publishing everything about somebody now and then would count as private."
        )
    return delta
