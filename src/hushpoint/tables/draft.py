"""A first draft of a schema: whatever was read from the data stands in comments, for public knowledge to declare."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hushpoint import cells
from hushpoint._checks import require
from hushpoint.schema import FORMAT, toml_key, toml_value
from hushpoint.tables.reading import read_chunks

MOST_CATEGORIES = 50
_MISSING_WORDS = ("", "?", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "none", ".", "-")


@dataclass
class _Seen:
    """What the draft knows of one column."""

    number: bool = True
    truth: bool = False
    low: float = np.inf
    high: float = -np.inf
    values: set[str] = field(default_factory=set)
    absent: set[str] = field(default_factory=set)
    missing: bool = False

    def look(self, given: Any) -> None:
        absent = cells.missing(given, _MISSING_WORDS)
        self.missing |= bool(absent.any())
        self.absent |= {cell for cell in given[absent].tolist() if isinstance(cell, str)}
        kept = given[~absent]
        if len(self.values) <= MOST_CATEGORIES:
            self.values |= set(cells.texts(kept))
            self.truth = bool((cells.truths(np.array(list(self.values), dtype=object), ()) >= 0).all())
        if self.number and len(kept):
            try:
                numbers = cells.numbers(kept, ())
            except ValueError:
                self.number = False
                return
            finite = numbers[np.isfinite(numbers)]
            if len(finite):
                self.low, self.high = min(self.low, float(finite.min())), max(self.high, float(finite.max()))

    def suggestions(self, target: bool) -> list[str]:
        """Settings that fit the cells. A target of two words keeps its words: predictions are made in them."""
        if not self.values:
            return ['kind = "ignore"  # no cell is filled']
        if self.truth and len(self.values) <= 2 and not target:
            return ['kind = "boolean"', *self._policy()]
        if self.number and np.isfinite(self.low) and not (target and self.truth):
            return [
                'kind = "number"',
                f"low = {toml_value(self.low)}  # the least in the data: write a bound that is publicly known",
                f"high = {toml_value(self.high)}  # the largest in the data: write a bound that is publicly known",
                *self._policy(),
            ]
        if len(self.values) <= MOST_CATEGORIES:
            values = toml_value(sorted(self.values))
            return [
                'kind = "category"',
                f"values = {values}  # those in the data: write all that can be",
                *self._policy(),
            ]
        return [f'kind = "ignore"  # more than {MOST_CATEGORIES} different texts: names, codes or free text']

    def _policy(self) -> list[str]:
        if not self.missing:
            return []
        return ['missing = "indicator"  # some cells are missing: an extra feature says which']


def draft_schema(data: Any, target: str | None = None, groups: str | None = None) -> str:
    """A schema in TOML to be completed by hand. Reads the data: the draft itself is private.

    Only the names of the columns and the roles given here are declared. Kinds, ranges, categories and missing cells
    that were seen stand in comments: they are not public. Until a person puts public knowledge in their place and takes
    the marks away, reading the schema is an error that names the columns.

    Parameters
    ----------
    data : path, data frame or dictionary of columns
    target, groups : str, optional
        The column to predict, and the column that says whose row it is.
    """
    seen: dict[str, _Seen] = {}
    for chunk in read_chunks(data) if isinstance(data, (str, Path)) else [data]:
        for name in cells.names_of(chunk):
            seen.setdefault(str(name), _Seen()).look(cells.column_of(chunk, name))
    for role, name in (("target", target), ("groups", groups)):
        require(name is None or name in seen, role, name, f"Name one of the columns: {', '.join(map(repr, seen))}.")
    source = f" from {Path(data).name}" if isinstance(data, (str, Path)) else ""
    absent = {""}.union(*(column.absent for name, column in seen.items() if name != groups))
    text = [
        f"# A draft{source}. It is private: its comments hold values of the data. It declares nothing yet.",
        "# Under each column stands what its cells look like. Correct every line to what is publicly known (a code",
        "# book, a law, a physical limit) and then take its # away: what is declared is published with the model.",
        "# If only coarse bounds of a number are known, write them and learn = true: a part of the budget then finds a",
        "# narrower range. hushpoint fit refuses, and names the columns, until everything is declared.",
        f"format = {FORMAT}",
        f"target = {toml_value(target)}" if target else '# target = ""  # the column to predict',
        f"groups = {toml_value(groups)}"
        if groups
        else '# groups = ""  # the column that says whose row it is, if a person may have several rows',
        f"# missing_values = {toml_value(sorted(absent))}  # what a missing cell looks like",
    ]
    for name, column in seen.items():
        commented = [f"# {line}" for line in column.suggestions(name == target)]
        lines = ['kind = "ignore"  # whose row it is'] if name == groups else commented
        text += ["", f"[columns.{toml_key(name)}]", *lines]
    return "\n".join(text) + "\n"
