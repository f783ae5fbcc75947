"""Quantiles of a column in a few rounds of many counts: a round is dear, a count is not (docs/preprocessing.md).

Every round counts the items in some cells of the column, which are disjoint: one item is in one of them, so that any
number of cells costs the same. What is here is a public function of noisy shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from hushpoint._types import Array
from hushpoint.preprocessing.quantiles import Grid, default_grid

ROUNDS, LEVELS = 4, 4  # rounds, and in how many halvings each of them narrows a search
_PARTS = 1 << LEVELS


class _Counted(NamedTuple):
    """A round: the grid edges between its cells, both ends of the grid left out, and the noisy shares of its cells."""

    edges: tuple[int, ...]
    shares: Array


@dataclass(frozen=True, eq=False)
class CellSearch:
    """The search for quantiles of one column, after some rounds.

    Parameters
    ----------
    grid : Grid
        Of ``2^(rounds * levels)`` public cells, as a bisection has it.
    quantiles : tuple of float
    missing : bool
        Whether the shares of a round end with that of the items whose value is missing.
    at : tuple of pairs
        Between which edges of the grid each search is.
    counted : tuple
        The rounds so far.
    """

    grid: Grid
    quantiles: tuple[float, ...]
    missing: bool
    at: tuple[tuple[int, int], ...]
    counted: tuple[_Counted, ...] = ()

    @staticmethod
    def of(low: float, high: float, quantiles: Sequence[float], missing: bool) -> CellSearch:
        """A search between two public bounds that has not begun."""
        grid, everywhere = default_grid(low, high, ROUNDS * LEVELS), (0, 1 << (ROUNDS * LEVELS))
        return CellSearch(grid, tuple(quantiles), missing, (everywhere,) * len(quantiles))

    @property
    def edges(self) -> Array:
        """The public edges between the cells of the next round: values are counted up to the first one, and so on."""
        return np.maximum.accumulate([self.grid.edges(index) for index in self._asked])

    def after(self, shares: Array) -> CellSearch:
        """The search once these noisy shares were released.

        It goes on in the part of its cell in which the share of what lies below passes the quantile. Of the edges
        between parts as many are taken to be passed as seem to be: where noise makes them contradict each other, that
        is a place in their middle.
        """
        expected = len(self._asked) + 1 + self.missing
        if np.shape(shares) != (expected,) or not np.isfinite(shares).all():
            raise ValueError(f"shares are not {expected} finite numbers. Pass those of all cells that were counted.")
        counted = (*self.counted, _Counted(self._asked, np.asarray(shares, dtype=np.float64)))
        last = 1 << self.grid.rounds
        below = believed_shares(counted, last, self.missing)
        at = []
        for cell, quantile in zip(self.at, self.quantiles, strict=True):
            edges = _parts(*cell)
            passed = sum(below[edge] < quantile * below[last] for edge in edges[1:-1])
            at.append((edges[passed], edges[passed + 1]))
        return replace(self, at=tuple(at), counted=counted)

    @property
    def found(self) -> tuple[float, float]:
        """From the lower edge of the lowest cell that a search is at, to the upper edge of the highest one."""
        left, right = zip(*self.at, strict=True)
        return self.grid.edges(min(left)), self.grid.edges(max(right))

    @property
    def _asked(self) -> tuple[int, ...]:
        """Edges of the grid: each search's cell in equal parts; what lies between and beside these is a cell each."""
        inner = {edge for cell in self.at for edge in _parts(*cell)}
        return tuple(sorted(inner - {0, 1 << self.grid.rounds}))


def believed_shares(counted: Sequence[_Counted], last: int, missing: bool) -> dict[int, float]:
    """The share of the items at or below every edge, by least squares from all rounds.

    The shares of a round add up to 1, which is known without noise; the missing ones are taken for a cell at the end.
    """
    end = last + missing
    lines = [(0, *one.edges, *((last, end) if missing else (last,))) for one in counted]
    edges = sorted({edge for line in lines for edge in line})
    place = {edge: k for k, edge in enumerate(edges)}
    table = np.zeros((sum(len(line) - 1 for line in lines), len(edges)))
    row = 0
    for line in lines:
        for lower, upper in pairwise(line):
            table[row, place[upper]], table[row, place[lower]] = 1.0, -1.0
            row += 1
    told = np.concatenate([one.shares for one in counted]) - table[:, -1]
    inner = np.linalg.lstsq(table[:, 1:-1], told, rcond=None)[0]
    return dict(zip(edges, [0.0, *inner.tolist(), 1.0], strict=True))


def _parts(left: int, right: int) -> list[int]:
    """The edges of the equal parts of a cell of the grid, its own ends included."""
    return [left + (right - left) * k // _PARTS for k in range(_PARTS + 1)]
