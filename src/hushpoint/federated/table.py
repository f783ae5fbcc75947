"""The rounds of a run as lines of a table, for people who watch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def headline() -> str:
    """The names of the columns of ``line_of``."""
    return " round  asked  answered  bytes down        up  seconds    objective  epsilon"


def line_of(record: Mapping[str, Any]) -> str:
    """One round as a line of a table."""
    objective = record.get("objective")
    spent = ", ".join(f"{_short(value)} ({unit})" for unit, value in record.get("epsilon", {}).items())
    notes = {**record.get("declined", {}), **record.get("refused", {})}
    said = "".join(f"; site {site}: {reason}" for site, reason in sorted(notes.items()))
    return (
        f"{record['round']:>6} {len(record['asked']):>6} {len(record['answered']):>9} {record['bytes_down']:>11,} "
        f"{record['bytes_up']:>9,} {record['seconds']:>8.1f} "
        f"{'' if objective is None else format(objective, '.8g'):>12}  {spent}{said}"
    )


def _short(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"
