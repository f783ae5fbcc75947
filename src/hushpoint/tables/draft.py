"""A first draft of a schema: kinds guessed from the data, and what only public knowledge may declare left open."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hushpoint.tables import cells
from hushpoint.tables.reading import read_chunks
from hushpoint.tables.schema import FORMAT, toml_key, toml_value

MOST_CATEGORIES = 50
_MISSING_WORDS = ("", "?", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "none", ".", "-")
_MARK = "# read from the data: replace it by what is publicly known, and take the # away"


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

    def lines(self, target: bool) -> list[str]:
        """The column's settings. A target of two words keeps its words: predictions are made in them."""
        if not self.values:
            return ['kind = "ignore"  # no cell is filled']
        if self.truth and len(self.values) <= 2 and not target:
            return ['kind = "boolean"', *self._policy()]
        if self.number and np.isfinite(self.low) and not (target and self.truth):
            suggested = [f"# low = {toml_value(self.low)}", f"# high = {toml_value(self.high)}"]
            return ['kind = "number"', _MARK, *suggested, *self._policy()]
        if len(self.values) <= MOST_CATEGORIES:
            return ['kind = "category"', _MARK, f"# values = {toml_value(sorted(self.values))}", *self._policy()]
        return [f'kind = "ignore"  # more than {MOST_CATEGORIES} different texts: names, codes or free text']

    def _policy(self) -> list[str]:
        if not self.missing:
            return ['missing = "error"']
        return ['missing = "indicator"  # some cells are missing: an extra feature says which']


def draft_schema(data: Any, target: str | None = None, groups: str | None = None) -> str:
    """A schema in TOML to be completed by hand. Reads the data: the draft itself is private.

    Ranges, categories and classes that were seen stand in comments. They are not public, so they declare nothing:
    until each is replaced by what is publicly known, reading the schema is an error that names the columns.

    Parameters
    ----------
    data : path, data frame or dictionary of columns
    target, groups : str, optional
        The column to predict, and the column that says whose row it is.
    """
    seen: dict[str, _Seen] = {}
    for chunk in read_chunks(data) if isinstance(data, (str, Path)) else [data]:
        for name in getattr(chunk, "columns", chunk):
            seen.setdefault(str(name), _Seen()).look(cells.column_of(chunk, name))
    for role, name in (("target", target), ("groups", groups)):
        if name is not None and name not in seen:
            raise ValueError(f"{role} is {name!r}. Name one of the columns: {', '.join(map(repr, seen))}.")
    source = f" from {Path(data).name}" if isinstance(data, (str, Path)) else ""
    absent = {""}.union(*(column.absent for name, column in seen.items() if name != groups))
    text = [
        f"# A draft{source}. It declares nothing yet, and it is private: it holds values of the data.",
        '# Wherever a line says "read from the data", write what is publicly known instead (a code book, a law, a',
        "# physical limit), not what the data happens to show: ranges and categories become part of the model.",
        "# If only coarse bounds of a number are known, write them and learn = true: a part of the budget then finds a",
        "# narrower range. hushpoint fit refuses, and names the columns, until everything is declared.",
        f"format = {FORMAT}",
        f"target = {toml_value(target)}" if target else '# target = ""  # the column to predict',
        f"groups = {toml_value(groups)}"
        if groups
        else '# groups = ""  # the column that says whose row it is, if a person may have several rows',
        f"missing_values = {toml_value(sorted(absent))}  # what a missing cell looks like",
    ]
    for name, column in seen.items():
        lines = ['kind = "ignore"  # whose row it is'] if name == groups else column.lines(name == target)
        text += ["", f"[columns.{toml_key(name)}]", *lines]
    return "\n".join(text) + "\n"
