"""The saved tables of a study as numbers, and the frontier as README.md shows it.

python tests/study_tables.py    prints that table
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hushpoint.experiments.frontier_table import Row, grid_of
from hushpoint.plots import read_rows

LASSO = Path(__file__).parents[1] / "docs" / "study" / "lasso" / "tables"


def read_numbers(rows: Iterable[Mapping[str, str]]) -> list[dict[str, Any]]:
    """Rows of a saved table as the study had them: numbers and parameters, nothing for an empty cell."""
    return [{name: _value(text) for name, text in row.items()} for row in rows]


def _value(text: str) -> Any:
    if text.startswith("{"):
        return json.loads(text)
    try:
        return float(text) if text else None
    except ValueError:
        return text


def markdown_table(frontier: Sequence[Row], least: float = 0.0) -> str:
    """The table from an epsilon on; bold: the lowest of what is proved, where it is below that of the model 0."""
    epsilons, plain, said = grid_of([row for row in frontier if not row.get("basis") or row["epsilon"] >= least])
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


def _lowest(frontier: Sequence[Row], epsilon: float) -> str | None:
    zero = min((row["excess_mean"] for row in frontier if row["method"] == "zero"), default=math.inf)
    here = [row for row in frontier if row.get("basis") == "proved" and row["epsilon"] == epsilon]
    best = min(here, key=lambda row: row["excess_mean"], default=None)
    return best["label"] if best and best["excess_mean"] < 0.99 * zero else None


def readme_table() -> str:
    """From the committed study; below epsilon = 0.1 nothing is gained, as the sentences beside it say."""
    return markdown_table(read_numbers(read_rows(LASSO / "frontier.csv")), least=0.1)


if __name__ == "__main__":
    print(readme_table(), end="")
