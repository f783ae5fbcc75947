"""What is publicly known about a table: the kind of each column, its range or its categories, and the target."""

from __future__ import annotations

import itertools
import json
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Literal

Missing = Literal["error", "indicator"]
Unseen = Literal["error", "ignore"]
Monotone = Literal["increasing", "decreasing"]
FORMAT = 1
MOST_STEPS = 100
ENCODING = 1  # of what a table becomes: whoever changes the encoder gives it another number; federations agree on it

_REMEDY = {
    "number": "Write the range that is publicly known, for example low = 0 and high = 120; values outside are clipped.",
    "category": 'Write the categories that are publicly known, for example values = ["no", "yes"].',
}
# What every message says to whom a table does not fit what was declared.
LEAVE_OUT = "leave those rows out; in training that changes n, which is published too."
ONLY_IF_PUBLIC = (
    "Do so only if such cells are publicly known to occur: what is declared because of this table is published with "
    f"the model. Otherwise {LEAVE_OUT}"
)


@dataclass(frozen=True)
class Number:
    """A number in a public range; values outside are clipped to it.

    With ``learn`` the range is only a coarse bound, and training spends a part of its budget on a narrower one. Of
    additive models: ``monotone`` says how the target may depend on it, and ``steps`` that it does so in steps, as many
    equal ones, or with these inner cuts.
    """

    kind: ClassVar[str] = "number"
    low: float
    high: float
    missing: Missing = "error"
    learn: bool = False
    monotone: Monotone | None = None
    steps: int | tuple[float, ...] | None = None


@dataclass(frozen=True)
class Category:
    """One of a public set of words; numbers are compared by how they are written.

    ``monotone`` (additive models): the target rises, or falls, with the values in their declared order.
    """

    kind: ClassVar[str] = "category"
    values: tuple[str, ...]
    unseen: Unseen = "error"
    missing: Missing = "error"
    monotone: Monotone | None = None


@dataclass(frozen=True)
class Boolean:
    """True or false, yes or no, 1 or 0.

    ``monotone`` (additive models): "increasing" if true can only add.
    """

    kind: ClassVar[str] = "boolean"
    missing: Missing = "error"
    monotone: Monotone | None = None


@dataclass(frozen=True)
class Ignored:
    """A column that is in the file and not used."""

    kind: ClassVar[str] = "ignore"


Column = Number | Category | Boolean | Ignored
_KINDS: dict[str, type[Column]] = {kind.kind: kind for kind in (Number, Category, Boolean, Ignored)}


@dataclass(frozen=True)
class Schema:
    """The public description of a table.

    Parameters
    ----------
    columns : mapping of str to Number, Category, Boolean or Ignored
        Every column of the table, in the order of the features.
    target : str, optional
        The column to predict: a category or a boolean is classified, a number is a regression.
    groups : str, optional
        The column that says whose row it is; it needs no entry in ``columns``.
    missing_values : tuple of str
        What a missing cell looks like in a text file.
    """

    columns: Mapping[str, Column]
    target: str | None = None
    groups: str | None = None
    missing_values: tuple[str, ...] = ("",)

    def __post_init__(self) -> None:
        faults = [fault for name, column in self.columns.items() for fault in _faults(name, column)]
        if self.target is not None:
            if self.target not in self.columns:
                faults.append(f"target is {self.target!r}, which is no declared column. Declare it like the others.")
            elif isinstance(self.columns[self.target], Ignored):
                faults.append(f"target {self.target!r} is of kind 'ignore'. Give it the kind category or number.")
            if self.target == self.groups:
                faults.append(f"groups and target are both {self.target!r}. Name two columns.")
        if not self.features:
            faults.append("no column is left to predict from. Declare at least one number, category or boolean.")
        _refuse(faults)

    @property
    def features(self) -> dict[str, Column]:
        """The columns to predict from."""
        apart = (self.target, self.groups)
        kept = self.columns.items()
        return {name: column for name, column in kept if name not in apart and not isinstance(column, Ignored)}

    @property
    def task(self) -> Literal["classification", "regression"]:
        """What predicting the target is."""
        return "regression" if isinstance(self.target_column, Number) else "classification"

    @property
    def target_column(self) -> Column:
        """The target's declaration."""
        if self.target is None:
            raise ValueError(
                'the schema has no target. Write target = "column" at its top, or name it: --target COLUMN, '
                "target=... in Python."
            )
        return self.columns[self.target]

    @property
    def classes(self) -> tuple[str, ...]:
        """The declared classes of a classification."""
        column = self.target_column
        return column.values if isinstance(column, Category) else ("false", "true")

    @property
    def to_learn(self) -> dict[str, Number]:
        """The features whose range is to be learned with privacy."""
        return {name: column for name, column in self.features.items() if isinstance(column, Number) and column.learn}

    def with_roles(self, target: str | None = None, groups: str | None = None) -> Schema:
        """The same columns with another target or another user column, where one is given."""
        return Schema(self.columns, target or self.target, groups or self.groups, self.missing_values)

    def to_dict(self) -> dict[str, Any]:
        """The schema as JSON can hold it."""
        record: dict[str, Any] = {"format": FORMAT, "missing_values": list(self.missing_values)}
        for name in ("target", "groups"):
            if getattr(self, name) is not None:
                record[name] = getattr(self, name)
        record["columns"] = {name: _column_record(column) for name, column in self.columns.items()}
        return record

    @staticmethod
    def from_dict(record: Mapping[str, Any]) -> Schema:
        """The schema that ``to_dict`` or a TOML file holds. Every fault is named at once."""
        faults = [
            f"{key!r} is not a setting of a schema. Use: format, target, groups, missing_values, columns."
            for key in record
            if key not in ("format", "target", "groups", "missing_values", "columns")
        ]
        if record.get("format", FORMAT) != FORMAT:
            faults.append(f"format is {record['format']!r}. This version of Hushpoint reads format {FORMAT}.")
        for key in ("target", "groups"):
            if not isinstance(record.get(key, ""), str):
                faults.append(f"{key} is {record[key]!r}. Write the name of a column.")
        missing_values = record.get("missing_values", [""])
        if not isinstance(missing_values, list) or not all(isinstance(v, str) for v in missing_values):
            faults.append('missing_values is not a list of texts. Write for example missing_values = ["", "NA"].')
        entries = record.get("columns", {})
        if not isinstance(entries, Mapping) or not entries:
            faults.append("there are no columns. Declare each one, for example [columns.age].")
            entries = {}
        columns: dict[str, Column] = {}
        for name, entry in entries.items():
            try:
                columns[name] = _column(name, entry)
            except ValueError as error:
                faults.append(str(error))
        _refuse(faults)
        return Schema(columns, record.get("target"), record.get("groups"), tuple(missing_values))

    def to_toml(self) -> str:
        """The schema as a TOML file."""
        record = self.to_dict()
        tables = [f"{key} = {toml_value(record[key])}\n" for key in record if key != "columns"]
        for name, entry in record["columns"].items():
            lines = [f"{key} = {toml_value(value)}" for key, value in entry.items()]
            tables.append("\n".join(["", f"[columns.{toml_key(name)}]", *lines, ""]))
        return "".join(tables)


def load_schema(path: str | Path) -> Schema:
    """Read a schema from a TOML or JSON file; what is not declared is an error that names the column."""
    place = Path(path)
    try:
        text = place.read_text(encoding="utf-8")
        record = json.loads(text) if place.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise ValueError(
            f"schema {str(path)!r} cannot be read: {error.strerror}. Draft one: hushpoint schema."
        ) from None
    except ValueError as error:
        raise ValueError(f"schema {str(path)!r} is no valid TOML or JSON: {error}.") from None
    if not isinstance(record, dict):
        raise ValueError(f"schema {str(path)!r} is no table of settings. Draft one: hushpoint schema.")
    try:
        return Schema.from_dict(record)
    except ValueError as error:
        raise ValueError(f"schema {str(path)!r} declares too little or wrongly:\n{error}") from None


def toml_key(name: str) -> str:
    """A name as a TOML key."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_value(name)


def toml_value(value: Any) -> str:
    """A text, number, flag or list of them as TOML."""
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _column(name: str, entry: Any) -> Column:
    who = f"column {name!r}"
    if not isinstance(entry, Mapping):
        raise ValueError(f"{who} is no table. Write [columns.{toml_key(name)}] and under it its kind.")
    kind = entry.get("kind")
    if kind not in _KINDS:
        told = "has no kind" if kind is None else f"has the kind {kind!r}"
        raise ValueError(f"{who} {told}. Choose one of: {', '.join(_KINDS)}.")
    settings = {key: value for key, value in entry.items() if key != "kind"}
    known = [setting.name for setting in fields(_KINDS[kind])]
    for key in settings:
        if key not in known:
            raise ValueError(f"{who} has the setting {key!r}. A {kind} takes: {', '.join(known) or 'nothing'}.")
    needed = {"number": ("low", "high"), "category": ("values",)}.get(kind, ())
    absent = [key for key in needed if key not in settings]
    if absent:
        raise ValueError(f"{who} is a {kind} and does not declare {' and '.join(absent)}. {_REMEDY[kind]}")
    if isinstance(settings.get("values"), list):
        settings["values"] = tuple(_word(value) for value in settings["values"])
    if isinstance(settings.get("steps"), list):
        settings["steps"] = tuple(settings["steps"])
    return _KINDS[kind](**settings)


def _word(value: Any) -> Any:
    """A category as text; a number as it is written."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    return repr(int(value)) if float(value).is_integer() else repr(value)


def _faults(name: str, column: Column) -> list[str]:
    who = f"column {name!r}"
    faults = []
    if isinstance(column, Number):
        ends = (column.low, column.high)
        good = all(isinstance(v, (int, float)) and not isinstance(v, bool) and math.isfinite(v) for v in ends)
        if not (good and column.low < column.high and math.isfinite(column.high - column.low)):
            faults.append(f"{who} has low = {column.low!r} and high = {column.high!r}. {_REMEDY['number']}")
        if not isinstance(column.learn, bool):
            faults.append(f"{who} has learn = {column.learn!r}. Write true or false.")
        if good and not _are_steps(column):
            faults.append(
                f"{who} has steps = {column.steps!r}. Write how many equal ones (2 to {MOST_STEPS}), or their inner "
                "cuts in ascending order, between low and high: steps = [25, 40, 65]."
            )
        if column.steps is not None and column.learn is True:
            faults.append(f"{who} has steps and learn = true. Declare the range that the steps are of.")
    if isinstance(column, Category):
        if not isinstance(column.values, tuple) or not all(isinstance(v, str) for v in column.values):
            faults.append(f"{who} has values that are not a list of texts or numbers. {_REMEDY['category']}")
        elif len(set(column.values)) < max(1, len(column.values)):
            faults.append(f"{who} has no values, or one of them twice. {_REMEDY['category']}")
        if column.unseen not in ("error", "ignore"):
            faults.append(f"{who} has unseen = {column.unseen!r}. Choose 'error' or 'ignore'.")
    if not isinstance(column, Ignored) and column.missing not in ("error", "indicator"):
        faults.append(f"{who} has missing = {column.missing!r}. Choose 'error' or 'indicator'.")
    if not isinstance(column, Ignored) and column.monotone not in (None, "increasing", "decreasing"):
        faults.append(f"{who} has monotone = {column.monotone!r}. Choose 'increasing' or 'decreasing'.")
    return faults


def _are_steps(column: Number) -> bool:
    steps = column.steps
    if steps is None or (type(steps) is int and 2 <= steps <= MOST_STEPS):
        return True
    if not isinstance(steps, tuple) or not 1 <= len(steps) < MOST_STEPS:
        return False
    if not all(isinstance(cut, (int, float)) and not isinstance(cut, bool) for cut in steps):
        return False
    ends = (column.low, *steps, column.high)
    return all(one < next_one for one, next_one in itertools.pairwise(ends))


def _column_record(column: Column) -> dict[str, Any]:
    settings = {setting.name: getattr(column, setting.name) for setting in fields(column)}
    settings = {key: value for key, value in settings.items() if value is not None}
    return {"kind": column.kind} | {key: list(v) if isinstance(v, tuple) else v for key, v in settings.items()}


def _refuse(faults: list[str]) -> None:
    if faults:
        raise ValueError("\n".join(f"- {fault}" for fault in faults) if len(faults) > 1 else faults[0])
