"""The frontier as a table of methods and budgets: in the terminal, and as Markdown for a document."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table

from hushpoint.experiments.study import table_of_methods

Row = Mapping[str, Any]

TITLE = "Test objective above the non-private optimum, in thousandths: mean (std)"
_PUBLISHED = "By a published bound that does not hold: not comparable"
_NEGATIVE = "Below 0: better on test rows than the optimum of the training rows"


def read_numbers(rows: Iterable[Mapping[str, str]]) -> list[dict[str, Any]]:
    """Rows of a saved table with numbers for the text of numbers, as the study had them; nothing for an empty cell."""
    return [{name: _value(text) for name, text in row.items()} for row in rows]


def _value(text: str) -> Any:
    if text == "":
        return None
    try:
        return float(text)
    except ValueError:
        return text


def terminal_table(frontier: Sequence[Row]) -> Table:
    """A line a method, a column an epsilon, narrow enough for 80 columns."""
    epsilons, lines, notes = _grid(frontier)
    table = table_of_methods(TITLE, *(f"eps\n{epsilon:g}" for epsilon in epsilons), caption="\n".join(notes) or None)
    for label, cells in lines:
        table.add_row(label, *("\n".join(cell).strip() for cell in cells))
    return table


def markdown_table(frontier: Sequence[Row], least: float = 0.0) -> str:
    """The same table from an epsilon on; bold: the lowest of what is proved, where it is below that of the model 0."""
    epsilons, plain, said = _grid([row for row in frontier if not row.get("basis") or row["epsilon"] >= least])
    lines = [(label.replace("*", "\\*"), cells) for label, cells in plain]
    notes = [note.replace("*", "\\*") for note in said]
    lowest = {epsilon: _lowest(frontier, epsilon) for epsilon in epsilons}
    text = [
        "| method | " + " | ".join(f"eps {epsilon:g}" for epsilon in epsilons) + " |",
        "|---|" + "---:|" * len(epsilons),
    ]
    for label, cells in lines:
        shown = []
        for epsilon, (mean, spread) in zip(epsilons, cells, strict=True):
            mean = f"**{mean}**" if label == lowest[epsilon] else mean
            shown.append(f"{mean} {spread}".strip())
        text.append(f"| {label} | " + " | ".join(shown) + " |")
    return "\n".join([*text, "", ". ".join([*notes, ""]).rstrip()]).rstrip() + "\n"


def _grid(frontier: Sequence[Row]) -> tuple[list[float], list[tuple[str, list[tuple[str, str]]]], list[str]]:
    """The budgets, the lines (a label, then a mean and a spread for each budget), and notes."""
    private = [row for row in frontier if row.get("basis")]
    epsilons = sorted({row["epsilon"] for row in private})
    lines = []
    for row in frontier:
        if row["method"] == "zero":
            lines.append((row["label"], [(_mean(row["excess_mean"]), _spread(row["excess_std"]))] * len(epsilons)))
    for name in dict.fromkeys(row["method"] for row in private):
        own = {row["epsilon"]: row for row in private if row["method"] == name}
        some = next(iter(own.values()))
        cells = [
            (_mean(own[e]["excess_mean"]), _spread(own[e]["excess_std"])) if e in own else ("none", "")
            for e in epsilons
        ]
        lines.append((some["label"] + (" *" if some["basis"] == "published" else ""), cells))
    notes = [f"* {_PUBLISHED}"] if any(row["basis"] == "published" for row in private) else []
    if any(row["excess_mean"] < 0 for row in private):
        notes.append(_NEGATIVE)
    return epsilons, lines, notes


def _lowest(frontier: Sequence[Row], epsilon: float) -> str | None:
    zero = min((row["excess_mean"] for row in frontier if row["method"] == "zero"), default=math.inf)
    here = [row for row in frontier if row.get("basis") == "proved" and row["epsilon"] == epsilon]
    best = min(here, key=lambda row: row["excess_mean"], default=None)
    return best["label"] if best and best["excess_mean"] < 0.99 * zero else None


def _mean(value: float) -> str:
    thousandths = 1000 * value
    if abs(thousandths) >= 1000:
        return "> 1000"
    return f"{thousandths:.{0 if abs(thousandths) >= 100 else 1 if abs(thousandths) >= 10 else 2}f}"


def _spread(value: float) -> str:
    return f"({_mean(value)})" if 1000 * value < 1000 else ""
