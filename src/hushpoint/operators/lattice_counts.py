"""How many items have their values where, in whole numbers: counts of disjoint cells (docs/preprocessing.md)."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Self

import numpy as np
from numpy.typing import NDArray

from hushpoint._types import Array
from hushpoint.certificates import Certificate, Theorem
from hushpoint.operators.base import Operator
from hushpoint.operators.lattice_moments import LatticeMean, MeanGrid, root_above
from hushpoint.problem import Facts
from hushpoint.rows import ArrayRows, RowGrid, Rows

_FINEST, _COARSEST = 30, 16  # bits of the weight of an item; with fewer, rounding to whole numbers would cost
_MOST_BITS = 61  # of a sum, so that with noise it fits into 64


class LatticeCounts(LatticeMean):
    """The share of the items in each of some cells of each column: one release for all columns.

    The cells of a column are disjoint: up to its first edge, from one edge (left out) to the next one, and beyond the
    last; a missing value is in a cell of its own where the column has one, and in none otherwise. An item weighs
    ``2^k``, and each of r rows of a user ``floor(2^k/r)``. The rows are those of the raw columns, NaN where missing.
    Promises: of d columns each gets numbers of at least 0 from an item, at most ``2^k`` in all. So one item moves the
    sum by at most ``2^k sqrt(2 d)`` (replace-one) or ``2^k sqrt(d)`` (zero-out).

    Parameters
    ----------
    facts : Facts
        ``features`` is the number of columns.
    edges : sequence of arrays
        Public edges of the cells of each column, ascending.
    missing : sequence of bool
        Whether a column has a cell for what is missing.
    """

    name = "counts on a lattice"
    zero_out = "the unit is counted nowhere"

    def __init__(self, facts: Facts, edges: Sequence[Array], missing: Sequence[bool]) -> None:
        if not facts.features == len(edges) == len(missing):
            raise ValueError(f"edges are of {len(edges)} columns and facts of {facts.features}. Pass some for each.")
        self.edges, self.missing = tuple(np.asarray(one, dtype=np.float64) for one in edges), tuple(missing)
        self.sizes = [len(one) + 1 + absent for one, absent in zip(self.edges, self.missing, strict=True)]
        bits = min(_FINEST, _MOST_BITS - math.ceil(math.log2(facts.items)))
        super().__init__(facts, sum(self.sizes), _weights(bits))

    def coarser(self, bits: int) -> Self:
        found, left = copy.copy(self), self.grid.shares - bits
        if left < _COARSEST:
            raise ValueError(
                f"the noise is {2.0**-left:.3g} times too large for counts in whole numbers. Pass a larger budget, or "
                "declare all ranges (without learn = true)."
            )
        found.grid = _weights(left)
        found.unit = math.ldexp(1.0, -left)
        return found

    def prepare(self, rows: Rows) -> Rows:
        values = rows.store[:]
        cells = np.empty(values.shape)
        start = 0
        for column, (edges, absent, size) in enumerate(zip(self.edges, self.missing, self.sizes, strict=True)):
            given = values[:, column]
            known = start + np.searchsorted(edges, given, side="left")
            cells[:, column] = np.where(np.isnan(given), start + size - 1 if absent else self.message_size, known)
            start += size
        return replace(rows, store=ArrayRows(cells))

    def total(self, rows: Rows, shares: NDArray[np.int64]) -> NDArray[np.int64]:
        found = np.zeros(self.message_size + 1, dtype=np.int64)
        np.add.at(found, rows.store[:].astype(np.int64), shares[:, None])
        return found[:-1]  # the last is of values that are missing where no cell is for them

    def moved(self, adjacency: str) -> Fraction:
        heaviest = 1 << self.grid.shares
        return Fraction((1 if adjacency == "zero-out" else 2) * len(self.edges) * heaviest**2)

    def certificate(self, relaxation: float) -> Certificate:
        if type(self) is not LatticeCounts:
            return Operator.certificate(self, relaxation)
        units = ("user", "record") if self.facts.unit == "record" else ("user",)
        step = Fraction(2) ** -self.grid.exponent
        table = {
            (unit, one): root_above(self.moved(one) * step**2) for unit in units for one in ("replace-one", "zero-out")
        }
        return Certificate(None, table, theorem=Theorem("12", "sum"))


def _weights(bits: int) -> MeanGrid:
    """Items that weigh ``2^bits``: no entry of a row is in what is counted."""
    return MeanGrid(RowGrid.of(1.0, 0.0), 0, bits, degree=0)
