"""Rows as whole numbers, column after column: what coordinate descent on the lattice reads."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushpoint._types import Array, Indices
from hushpoint.rows.store import Store

ROW_BITS = 19
LONGEST_ROW = float(1 << 2 * ROW_BITS)  # squared


@dataclass(frozen=True, eq=False)
class WholeColumns:
    """Whole numbers, of which every row is at most 2^19 long; single precision holds them exactly.

    ``places`` are the rows of the entries, empty where zeros are stored; ``squares`` are the squared lengths of the
    rows, exact.
    """

    entries: NDArray[np.float32]
    places: Indices
    starts: Indices
    dense: bool
    squares: Array


def row_exponent(row_norm: float) -> int:
    """The largest e with ``2^e row_norm <= 2^19``."""
    fraction, exponent = math.frexp(row_norm)
    return ROW_BITS - exponent + (fraction == 0.5)


def whole_columns(store: Store, exponent: int) -> WholeColumns:
    """The columns of ``trunc(2^exponent a)``; a row that is longer than 2^19 then, or no number, is 0.

    Each row is a function of that row alone, the same for all kinds of stores: its entries are multiplied by a power
    of two and truncated, both exact, and a sum of squares of whole numbers is exact in any order while it is below
    2^53, and beyond 2^53 in any order once it is.
    """
    scale = math.ldexp(1.0, exponent)
    if store.sparse:
        return _sparse(store, scale)
    entries = np.empty((store.width, len(store)), dtype=np.float32)
    squares = np.empty(len(store))
    for place, part in store.chunks():
        whole = _truncated(part[:], scale)
        with np.errstate(over="ignore", invalid="ignore"):
            squares[place] = np.einsum("ij,ij->i", whole, whole)
        fits = squares[place] <= LONGEST_ROW  # false for nan
        if not fits.all():
            whole[~fits] = 0.0
            squares[place][~fits] = 0.0
        entries[:, place] = whole.T
    starts = len(store) * np.arange(store.width + 1)
    return WholeColumns(entries.reshape(-1), np.zeros(0, dtype=np.int64), starts, True, squares)


def _sparse(store: Store, scale: float) -> WholeColumns:
    entries, places, starts = store.column_arrays()
    whole, places = _truncated(entries, scale), places.astype(np.int64, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.bincount(places, whole * whole, minlength=len(store)).astype(np.float64, copy=False)
    fits = squares <= LONGEST_ROW
    if not fits.all():
        whole[~fits[places]] = 0.0
        squares[~fits] = 0.0
    return WholeColumns(whole.astype(np.float32), places, starts.astype(np.int64, copy=False), False, squares)


def _truncated(numbers: Any, scale: float) -> Array:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        whole = np.multiply(numbers, scale)
        return np.asarray(np.trunc(whole, out=whole))
