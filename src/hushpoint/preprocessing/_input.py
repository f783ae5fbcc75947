"""What the transformers share: tables of numbers, and ranges declared per column."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hushpoint._checks import require, shown
from hushpoint._silence import silent_about, validated
from hushpoint._types import Array


@silent_about("X")
def require_numbers(transformer: Any, X: Any, *, reset: bool, sparse: bool = False, missing: bool = False) -> Any:
    """A table of numbers that has the columns seen at fit; no message repeats a cell."""
    return validated(
        transformer,
        X,
        reset=reset,
        dtype=np.float64,
        accept_sparse="csr" if sparse else False,
        ensure_all_finite="allow-nan" if missing else True,
    )


def names_of(X: Any) -> tuple[str, ...] | None:
    """Column names, of what has any."""
    columns = getattr(X, "columns", None)
    return None if columns is None else tuple(map(str, columns))


def require_ranges(name: str, ranges: Any, features: int, columns: Sequence[str] | None) -> Array:
    """Declared (low, high) per column as an array of shape (features, 2).

    One pair is for all columns; a list has one pair a column; a dictionary names them.
    """
    if ranges is None:
        raise ValueError(
            f"{name} is not declared. Scaling needs a range for every column that does not come from the data: pass "
            f"{name}=(low, high) for all columns, a list of such pairs, or a dictionary by column name, for example "
            "(0, 120) for an age. Values outside are clipped."
        )
    if isinstance(ranges, Mapping):
        return np.array([_pair(name, pair, who) for who, pair in _by_name(name, ranges, features, columns)])
    pairs = [ranges] * features if _is_pair(ranges) else ranges
    listed = isinstance(pairs, (Sequence, np.ndarray)) and not isinstance(pairs, (str, bytes))
    require(listed, name, ranges, "Pass a pair (low, high), a list of pairs, or a dictionary.")
    if len(pairs) != features:
        raise ValueError(f"{name} has {len(pairs)} pairs and X has {features} columns. Pass one (low, high) a column.")
    labels = columns if columns is not None else range(features)
    return np.array([_pair(name, pair, who) for who, pair in zip(labels, pairs, strict=True)])


def require_pair(name: str, pair: Any) -> tuple[float, float]:
    """Two finite numbers, the first below the second."""
    if _is_pair(pair):
        low, high = float(pair[0]), float(pair[1])
        if math.isfinite(low) and math.isfinite(high) and low < high and math.isfinite(high - low):
            return low, high
    told = f"({pair[0]!r}, {pair[1]!r})" if _is_pair(pair) else shown(pair)
    raise ValueError(f"{name} is {told}. Pass a pair (low, high) of finite numbers, low below high.")


def _by_name(name: str, ranges: Mapping[Any, Any], features: int, columns: Sequence[str] | None) -> list[Any]:
    if columns is None:
        raise ValueError(f"{name} is a dictionary and X has no column names. Pass a data frame, or a list of pairs.")
    undeclared = [column for column in columns if column not in ranges]
    unknown = [str(column) for column in ranges if column not in columns]
    if undeclared or unknown:
        told = [f"does not declare {', '.join(map(repr, undeclared))}"] * bool(undeclared)
        told += [f"names {', '.join(map(repr, unknown))}, which X does not have"] * bool(unknown)
        raise ValueError(f"{name} {' and '.join(told)}. Pass one (low, high) for every column of X.")
    return [(column, ranges[column]) for column in columns]


def _pair(name: str, pair: Any, who: Any) -> tuple[float, float]:
    return require_pair(f"{name} of column {who!r}", pair)


def _is_pair(value: Any) -> bool:
    if not isinstance(value, (Sequence, np.ndarray)) or len(value) != 2:
        return False
    return all(isinstance(v, numbers.Real) and not isinstance(v, bool) for v in value)
