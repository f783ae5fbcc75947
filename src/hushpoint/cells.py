"""Cells of a column as numbers, truths or categories. No message repeats a cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushpoint._types import Array, Indices
from hushpoint.schema import ONLY_IF_PUBLIC

Codes = Indices

UNSEEN, MISSING = -1, -2
_TRUTHS = dict.fromkeys(("true", "yes", "1", "t", "y"), 1) | dict.fromkeys(("false", "no", "0", "f", "n"), 0)


def names_of(table: Any) -> list[Any]:
    """The names of the columns of a dictionary of columns or of a data frame, and never cells of something else."""
    if not (isinstance(table, Mapping) or hasattr(table, "columns")):
        raise ValueError(
            f"the table is a {type(table).__name__}. Pass a data frame or a dictionary of columns: they have names."
        )
    return list(getattr(table, "columns", table))


def column_of(table: Any, name: str) -> NDArray[Any]:
    """One column of a dictionary of columns or of a data frame."""
    cells = table[name]
    # A list of texts must stay one: NumPy would turn a mixed list into texts, missing cells included.
    column = np.array(cells, dtype=object) if isinstance(cells, (list, tuple)) else np.asarray(cells)
    if column.ndim != 1:
        raise ValueError(f"column {name!r} has shape {column.shape}. Pass one value a row.")
    return column


def numbers(column: NDArray[Any], missing_values: Sequence[str], name: str = "") -> Array:
    """Numbers, NaN where missing."""
    if column.dtype.kind in "fiub":
        return column.astype(np.float64)
    cells = column.astype(object)
    cells[missing(column, missing_values)] = np.nan
    try:
        return cells.astype(np.float64)
    except (OverflowError, TypeError, ValueError):
        raise ValueError(
            f"column {name!r} has cells that are not numbers. To allow them, name in missing_values what stands for a "
            f"missing number, or declare the kind category. {ONLY_IF_PUBLIC}"
        ) from None


def truths(column: NDArray[Any], missing_values: Sequence[str]) -> Codes:
    """1 for true, 0 for false, ``MISSING`` or ``UNSEEN``."""
    if column.dtype.kind == "b":
        return column.astype(np.int64)
    cells = texts(column)
    spellings = {cell: _TRUTHS.get(cell.casefold(), UNSEEN) for cell in set(cells)}
    return _looked_up(column, cells, spellings, missing_values)


def categories(column: NDArray[Any], values: Sequence[str], missing_values: Sequence[str]) -> Codes:
    """The number of each cell's category, ``MISSING`` or ``UNSEEN``. A declared category is never missing."""
    index = {value: number for number, value in enumerate(values)}
    return _looked_up(column, texts(column), index, [v for v in missing_values if v not in index])


def texts(column: NDArray[Any]) -> list[str]:
    """Cells as they would be written; whole numbers without a point."""
    cells: list[Any] = column.tolist()
    return cells if _all_texts(cells) else [_text(cell) for cell in cells]


def missing(column: NDArray[Any], missing_values: Sequence[str]) -> NDArray[np.bool_]:
    """Which cells hold nothing: None, NaN and their kin, and the texts declared to mean it."""
    if column.dtype.kind in "iub":
        return np.zeros(len(column), dtype=np.bool_)
    if column.dtype.kind == "f":
        return np.asarray(np.isnan(column))
    tokens = frozenset(missing_values)
    cells = column.tolist()
    asked = map(tokens.__contains__, cells) if _all_texts(cells) else map(_is_missing, cells, repeat(tokens))
    return np.fromiter(asked, dtype=np.bool_, count=len(cells))


def _looked_up(column: NDArray[Any], cells: list[str], index: dict[str, int], missing_values: Sequence[str]) -> Codes:
    codes = np.fromiter(map(index.get, cells, repeat(UNSEEN)), dtype=np.int64, count=len(cells))
    codes[missing(column, missing_values)] = MISSING
    return codes


def _all_texts(cells: list[Any]) -> bool:
    return set(map(type, cells)) <= {str}


def _text(cell: Any) -> str:
    if isinstance(cell, float) and cell.is_integer():
        return repr(int(cell))
    return str(cell)


def _is_missing(cell: Any, tokens: frozenset[str]) -> bool:
    if isinstance(cell, str):
        return cell in tokens
    return cell is None or type(cell).__name__ in ("NAType", "NaTType") or bool(cell != cell)
