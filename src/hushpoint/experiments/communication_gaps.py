"""The gap against rounds and bytes, and what secure sums cost in both: rows, a table and sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from rich.table import Table

from hushpoint.experiments.communication_methods import ESTIMATOR
from hushpoint.experiments.study import number, table_of_methods

Row = dict[str, Any]

GAPS = (
    "method", "label", "trust", "epsilon", "rounds", "rounds_used", "bytes", "gap_mean", "gap_std", "runs",
)  # fmt: skip
_PAIR = ("secure_anchored", "anchored_admm")


def gap_rows(tried: Sequence[Row], methods: Sequence[str], shown: Sequence[float], runs: int) -> list[Row]:
    """Every number of rounds that was tried with all users, method by method and budget by budget."""
    own = [
        {"rounds_used": row["rounds"], **row, "runs": runs} for row in tried
        if row["method"] in methods and row["epsilon"] in shown and row["share"] == 1 and "gap_mean" in row
    ]  # fmt: skip
    return sorted(own, key=lambda row: (methods.index(row["method"]), -row["epsilon"], row["rounds"]))


def gap_table(gaps: Sequence[Row]) -> Table:
    """A line for each method at each budget, a column for each number of rounds."""
    columns = sorted({row["rounds"] for row in gaps})
    title = "Mean gap to the non-private objective in %, against planned rounds"
    table = table_of_methods(title, "eps", *(f"{rounds:g}" for rounds in columns))
    for epsilon in sorted({row["epsilon"] for row in gaps}, reverse=True):
        for method in dict.fromkeys(row["method"] for row in gaps):
            own = {row["rounds"]: row for row in gaps if (row["method"], row["epsilon"]) == (method, epsilon)}
            if own:
                cells = (_percent(own[rounds]) if rounds in own else "" for rounds in columns)
                table.add_row(next(iter(own.values()))["label"], f"{epsilon:g}", *cells)
    return table


def secure_summary(rows: Sequence[Row], gaps: Sequence[Row], users: int) -> list[str]:
    """What secure sums cost in rounds and in bytes, and how far the estimator comes."""
    return [*_against_trusted(rows, users), *_estimator(gaps)]


def _against_trusted(rows: Sequence[Row], users: int) -> list[str]:
    secure, trusted = (
        {row["epsilon"]: row for row in rows if (row["method"], row["share"]) == (name, 1)} for name in _PAIR
    )
    budgets = [epsilon for epsilon in secure if epsilon in trusted and math.isfinite(epsilon)]
    if not budgets:
        return []
    pairs = [
        f"{_needed(secure[epsilon])} instead of {_needed(trusted[epsilon])} at epsilon = {epsilon:g}"
        for epsilon in budgets
    ]
    whom = (
        f"With nobody trusted, by secure sums of all {users} users, {trusted[budgets[0]]['label']} comes within 1% in"
    )
    return [f"{whom} {'; '.join(pairs)}."]


def _needed(row: Row) -> str:
    if row["rounds"] is None:
        return f"no number of rounds ({_percent(row)}% at best)"
    return f"{row['rounds']:g} round{'' if row['rounds'] == 1 else 's'} and {size_of(row['bytes'])}"


def _estimator(gaps: Sequence[Row]) -> list[str]:
    own = [row for row in gaps if row["method"] == ESTIMATOR]
    if not own:
        return []
    parts = []
    for epsilon in dict.fromkeys(row["epsilon"] for row in own):
        here = [row for row in own if row["epsilon"] == epsilon]
        first, best = here[0], min(here, key=itemgetter("gap_mean"))
        text = f"{_percent(first)}% above the optimum with {first['rounds']:g} rounds"
        if best is not first:
            text += f" and {_percent(best)}% with {best['rounds']:g}"
        parts.append(f"{text} at epsilon = {epsilon:g}")
    return [f"{own[0]['label']} is {'; '.join(parts)}."]


def _percent(row: Row) -> str:
    return number(100 * row["gap_mean"])


def budget_is(epsilon: float) -> str:
    """A budget, at the beginning of a sentence."""
    return "Without noise" if math.isinf(epsilon) else f"At epsilon = {epsilon:g}"


def size_of(count: float) -> str:
    """So many bytes, for people."""
    return f"{number(count / 1e6)} MB" if count >= 1e6 else f"{number(count / 1e3)} kB"
