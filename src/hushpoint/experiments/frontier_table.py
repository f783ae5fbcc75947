"""The frontier as a table of methods and budgets, for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from hushpoint.experiments.study import table_of_methods

Row = Mapping[str, Any]

TITLE = "Test objective above the non-private optimum, in thousandths: mean (std)"
_PUBLISHED = "By a published bound that does not hold: not comparable"
_NEGATIVE = "Below 0: better on test rows than the optimum of the training rows"


def terminal_table(frontier: Sequence[Row]) -> Table:
    """A line a method, a column an epsilon, narrow enough for 80 columns."""
    epsilons, lines, notes = grid_of(frontier)
    table = table_of_methods(TITLE, *(f"eps\n{epsilon:g}" for epsilon in epsilons), caption="\n".join(notes) or None)
    for label, cells in lines:
        table.add_row(label, *("\n".join(cell).strip() for cell in cells))
    return table


def grid_of(frontier: Sequence[Row]) -> tuple[list[float], list[tuple[str, list[tuple[str, str]]]], list[str]]:
    """The budgets, the lines (a label, then a mean and a spread for each budget), and notes."""
    private = [row for row in frontier if row.get("basis")]
    epsilons = sorted({row["epsilon"] for row in private})
    lines = [(row["label"], [_cell(row)] * len(epsilons)) for row in frontier if row["method"] == "zero"]
    for name in dict.fromkeys(row["method"] for row in private):
        own = {row["epsilon"]: row for row in private if row["method"] == name}
        some = next(iter(own.values()))
        cells = [_cell(own[epsilon]) if epsilon in own else ("none", "") for epsilon in epsilons]
        lines.append((some["label"] + (" *" if some["basis"] == "published" else ""), cells))
    notes = [f"* {_PUBLISHED}"] if any(row["basis"] == "published" for row in private) else []
    if any(row["excess_mean"] < 0 for row in private):
        notes.append(_NEGATIVE)
    return epsilons, lines, notes


def _cell(row: Row) -> tuple[str, str]:
    spread = f"({_mean(row['excess_std'])})" if 1000 * row["excess_std"] < 1000 else ""
    return _mean(row["excess_mean"]), spread


def _mean(value: float) -> str:
    thousandths = 1000 * value
    if abs(thousandths) >= 1000:
        return "> 1000"
    return f"{thousandths:.{0 if abs(thousandths) >= 100 else 1 if abs(thousandths) >= 10 else 2}f}"
