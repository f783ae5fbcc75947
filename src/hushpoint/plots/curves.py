"""From the rows of a table to curves: which rows make one, where it goes and how it looks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

Row = Mapping[str, Any]
Rows = Iterable[Row]

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILLION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#595959"
SPARE = [
    (BLUE, "o"), (VERMILLION, "^"), (GREEN, "s"), (PURPLE, "D"), (ORANGE, "P"), (BLACK, "X"), (SKY, "v"),
    (GREY, "h"), (BLUE, "<"), (VERMILLION, ">"), (GREEN, "*"), (PURPLE, "p"), (ORANGE, "d"), (BLACK, "8"),
]  # fmt: skip
METHODS = {
    "private_admm": (BLUE, "o"),
    "anchored_admm": (GREEN, "s"),
    "federated_admm_local": (VERMILLION, "^"),
    "federated_admm_published": (VERMILLION, "^"),
    "secure_anchored": (VERMILLION, "*"),
    "secure_dp_gd": (BLACK, "8"),
    "secure_third": (ORANGE, "d"),
    "federated_admm_sum": (SKY, "v"),
    "decentralized_walk": (PURPLE, "D"),
    "decentralized_admm": (GREY, "h"),
    "local_users": (BLUE, "<"),
    "local_sites": (GREEN, ">"),
    "dp_sgd_sampled": (ORANGE, "P"),
    "dp_gd": (BLACK, "X"),
    "estimator": (PURPLE, "p"),
    "estimator_rounds": (SKY, "H"),
}


@dataclass(frozen=True)
class Series:
    """One curve: where it goes, and how it looks."""

    label: str
    colour: str
    marker: str
    published: bool
    x: tuple[float, ...]
    y: tuple[float, ...]
    spread: tuple[float, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.x)

    def above_zero(self, x: bool, y: bool) -> Series:
        """Without the points that log axes of x or of y have no place for."""
        spread = self.spread or (0.0,) * len(self.x)
        points = [p for p in zip(self.x, self.y, spread, strict=True) if (p[0] > 0 or not x) and (p[1] > 0 or not y)]
        return self.through(*_columns(points))

    def through(self, x: tuple[float, ...], y: tuple[float, ...], spread: tuple[float, ...]) -> Series:
        """Looking the same, and going elsewhere."""
        return replace(self, x=x, y=y, spread=spread)


def checked(name: str, table: Rows, *columns: str) -> list[Row]:
    rows = list(table)
    if not rows:
        raise ValueError(f"the table {name!r} has no rows. Run the study first.")
    absent = [column for column in columns if column not in rows[0]]
    if absent:
        raise ValueError(f"the table {name!r} lacks the columns {', '.join(absent)}. It has: {', '.join(rows[0])}.")
    return rows


def number_in(row: Row, column: str) -> float:
    """A cell as a number; an empty or absent one is not a number."""
    value = row.get(column)
    if value is None or value in ("", "None"):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"the column {column!r} holds {value!r}. It should hold numbers.") from None


def split_by_budget(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Rows with a budget, and those without one, to compare with."""
    private = [row for row in rows if math.isfinite(number_in(row, "epsilon"))]
    return private, [row for row in rows if not math.isfinite(number_in(row, "epsilon"))]


def grouped(rows: Sequence[Row], *columns: str) -> dict[Any, list[Row]]:
    """Rows by the text of some columns, in the order in which they come; numbers in their own."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        key = tuple(str(row.get(column) or "") for column in columns)
        groups.setdefault(key if len(key) > 1 else key[0], []).append(row)
    if columns == ("epsilon",):
        groups = dict(sorted(groups.items(), key=lambda entry: number_in(entry[1][0], "epsilon")))
    return groups


def by_curve(rows: Sequence[Row]) -> dict[Any, list[Row]]:
    """The rows of each curve, which is one by its method and by what its guarantee is about."""
    return grouped(rows, "method", "label", "basis", "trust", "view", "adjacency")


def label_of(row: Row) -> str:
    return str(row.get("label") or row.get("method") or "")


def styled(
    rows: Sequence[Row], x: str, y: str, spread: str = "", *, by: str = "", of: Sequence[Row] | None = None
) -> dict[str, list[Series]]:
    """The curves of a table, by the text of one column; colours and markers as for the whole table ``of``."""
    looks: dict[tuple[str, ...], Series] = {}
    taken: set[tuple[str, str, bool]] = set()
    everything = rows if of is None else of
    usual = usual_adjacency(everything)
    reserved = {METHODS[row["method"]] for row in everything if row["method"] in METHODS}
    for key, (row, *_) in by_curve(everything).items():
        published = row.get("basis") == "published" or str(row.get("method")).endswith("_published")
        spare = [METHODS[row["method"]]] if row["method"] in METHODS else []
        spare += [look for look in SPARE if look not in reserved]
        colour, marker = next((look for look in spare if (*look, published) not in taken), SPARE[0])
        taken.add((colour, marker, published))
        other = row.get("adjacency") not in (None, "", usual)
        label = label_of(row) + (f" ({row['adjacency']})" if other else "")
        looks[key] = Series(label, colour, marker, published, (), ())
    curves: dict[str, list[Series]] = {}
    for key, own in by_curve(rows).items():
        part = str(own[0].get(by) or "") if by else ""
        curves.setdefault(part, []).append(looks[key].through(*points_of(own, x, y, spread)))
    return curves or {"": []}


def points_of(rows: Sequence[Row], x: str, y: str, spread: str = "") -> tuple[tuple[float, ...], ...]:
    """Finite points in order, as their x, their y and their spread; an unknown spread is 0."""
    points = []
    for row in rows:
        where, what = number_in(row, x), number_in(row, y)
        wide = number_in(row, spread) if spread else 0.0
        if math.isfinite(where) and math.isfinite(what):
            points.append((where, what, wide if math.isfinite(wide) and wide > 0 else 0.0))
    return _columns(sorted(points))


def most_usual(rows: Sequence[Row], everywhere: Sequence[Row]) -> Row:
    """Of the rows of one method and budget, that with the rounds which most budgets have; of equals the longest."""
    lengths = [number_in(row, "rounds") for row in everywhere]
    return max(rows, key=lambda row: (lengths.count(number_in(row, "rounds")), number_in(row, "rounds")))


def usual_adjacency(rows: Sequence[Row]) -> str:
    named = [str(row["adjacency"]) for row in rows if row.get("adjacency")]
    return max(dict.fromkeys(named), key=named.count) if named else ""


def _columns(points: Sequence[tuple[float, float, float]]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(point[k] for point in points) for k in range(3))


def levels_in(rows: Sequence[Row], column: str) -> list[tuple[str, float]]:
    """What to compare with: a name and a value each."""
    return [(label_of(row), value) for row in rows if math.isfinite(value := number_in(row, column))]
