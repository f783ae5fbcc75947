"""Quantiles of private numbers, found by bisection with Gaussian noise on every count (docs/preprocessing.md).

Every round asks, of each search, whether its threshold ``t`` lies below the quantile. The answer is the sign of

    S(t) = sum over items of (share of the item's values at or below t) - q,      plus N(0, s^2),

where an item is a record, or a user with several. An item's term lies in [-q, 1-q] and is 0 where its values are
missing. So one replaced item moves S by at most 1, one zeroed item by at most ``max(q, 1-q)``; ``k`` searches at once
are a vector, and the rounds compose: ``mu = Delta sqrt(rounds)/s``.

On the lattice all of this is in whole numbers (``counts.py``) and holds for the program; without it, floating-point
numbers stand for real ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushpoint._checks import require_choice, require_count, require_flag, require_inside, require_positive
from hushpoint._silence import silent_about
from hushpoint._types import Array, Indices
from hushpoint.certificates import ADJACENCIES
from hushpoint.lattice import rounded_normals
from hushpoint.noise import Source, source_for
from hushpoint.preprocessing._input import names_of, require_pair, require_ranges
from hushpoint.preprocessing.counts import WholeShares, finest_parts, whole_weights
from hushpoint.privacy.gaussian import gdp_epsilon, gdp_mu, round_up
from hushpoint.privacy.guarantee import Adjacency, Arithmetic, Budget, Guarantee, Unit, checked_delta
from hushpoint.rows import ArrayRows, SparseRows, StreamedRows, checked

_SECTION = "1.2, with docs/preprocessing.md"
_QUANTILE = "Pass a number between 0 and 1, for example 0.5."


class PrivateEstimate(NamedTuple):
    """An estimate that may be published, and what publishing it costs."""

    value: Any
    guarantee: Guarantee


class _Terms(NamedTuple):
    """What searches may spend, for whom, and how fine their grids are."""

    epsilon: float | None
    mu: float | None
    delta: float
    adjacency: Adjacency
    groups: ArrayLike | None
    rounds: int
    smallest: float | None
    seed: int | None
    lattice: bool


@dataclass(frozen=True)
class Grid:
    """``2^rounds`` cells between two public bounds, wide where numbers are large: the steps of an inverse sinh."""

    low: float
    high: float
    smallest: float
    rounds: int

    def edges(self, index: int) -> float:
        """The edge with this number, from 0 (low) to ``2^rounds`` (high)."""
        cells = 1 << self.rounds
        if index in (0, cells):
            return self.low if index == 0 else self.high
        first, last = math.asinh(self.low / self.smallest), math.asinh(self.high / self.smallest)
        value = self.smallest * math.sinh(first + (last - first) * index / cells)
        return min(max(value, self.low), self.high)


class _Shares:
    """One column, sorted once: the weight at or below any threshold. Missing values weigh nothing."""

    def __init__(self, values: Array, weights: Array | None) -> None:
        known = ~np.isnan(values)
        kept = values[known]
        order = np.argsort(kept, kind="stable")
        self.values = kept[order]
        self.total = float(known.sum() if weights is None else weights[known].sum())
        self.below = None if weights is None else np.concatenate([[0.0], np.cumsum(weights[known][order])])

    def statistic(self, threshold: float, quantile: float) -> float:
        """``S(threshold)``."""
        count = int(np.searchsorted(self.values, threshold, side="right"))
        return (count if self.below is None else float(self.below[count])) - quantile * self.total


def sensitivity(quantiles: Sequence[float], adjacency: str) -> float:
    """How far one changed item moves the vector of statistics of simultaneous searches."""
    if adjacency == "replace-one":
        return round_up(math.sqrt(len(quantiles)))
    return round_up(math.sqrt(sum(max(q, 1 - q) ** 2 for q in quantiles)))


class _Counted(NamedTuple):
    """Searches that are about to begin: what is counted, for which quantiles, and with how much noise."""

    columns: Sequence[Any]
    quantiles: Sequence[Any]
    std: Any
    whole: bool  # the counts, the quantiles and the noise are whole numbers

    def noise(self, source: Source, step: int) -> NDArray[Any]:
        """What a round adds to its counts."""
        if self.whole:
            return rounded_normals(source, "quantile search", [0], step, len(self.quantiles), self.std)
        return source.normals("quantile search", [0], step, len(self.quantiles), self.std)


def search(counted: _Counted, grids: Sequence[Grid], source: Source) -> tuple[list[tuple[float, float]], NDArray[Any]]:
    """The grid cell each search ends in, and everything that was released on the way, one row a round."""
    rounds = grids[0].rounds
    left, right = [0] * len(grids), [1 << rounds] * len(grids)
    released = np.empty((rounds, len(grids)), dtype=np.int64 if counted.whole else np.float64)
    for step in range(rounds):
        middle = [(a + b) // 2 for a, b in zip(left, right, strict=True)]
        asked = zip(counted.columns, grids, middle, counted.quantiles, strict=True)
        released[step] = [column.statistic(grid.edges(index), q) for column, grid, index, q in asked]
        released[step] += counted.noise(source, step)[0]
        for j, index in enumerate(middle):
            if released[step, j] < 0:
                left[j] = index
            else:
                right[j] = index
    cells = zip(grids, left, right, strict=True)
    return [(grid.edges(a), grid.edges(b)) for grid, a, b in cells], released


@silent_about("values or groups")
def private_quantile(
    values: ArrayLike,
    quantile: float,
    low: float,
    high: float,
    *,
    epsilon: float | None = None,
    mu: float | None = None,
    delta: float,
    adjacency: Adjacency = "replace-one",
    groups: ArrayLike | None = None,
    rounds: int = 16,
    smallest: float | None = None,
    seed: int | None = None,
    lattice: bool = True,
) -> PrivateEstimate:
    """A quantile of private numbers: the least grid value with about ``quantile`` of them at or below it.

    Guarantee: mu-GDP, replace-one or zero-out, for one record, or for one user with ``groups``, against anyone who
    sees every noisy count. With probability ``1 - beta`` the rank of the answer is wrong by at most
    ``s sqrt(2 ln(rounds/beta))`` items and one grid cell, where ``s = sqrt(rounds)/mu`` (docs/preprocessing.md).

    Parameters
    ----------
    values : array of shape (n,)
        Numbers; NaN is missing and counts nowhere.
    quantile : float
        In (0, 1); 0.5 is the median.
    low, high : float
        Public bounds. May be coarse, such as -1e6 and 1e6: the cost grows with the number of rounds only.
    epsilon, mu : float
        What may be spent: exactly one of them.
    delta : float
        The delta of (epsilon, delta).
    adjacency : {"replace-one", "zero-out"}
    groups : array of shape (n,), optional
        The user each value belongs to; users then count equally.
    rounds : int
        Noisy counts; the grid has ``2^rounds`` cells.
    smallest : float, optional
        Differences below this do not matter: cells are even up to there, and widen in proportion above. Default:
        1e-9 of the distance between the bounds.
    seed : int, optional
        None draws from the operating system; an integer is for experiments.
    lattice : bool
        Count in whole numbers, with noise that is drawn exactly: the guarantee is then about the program. False:
        floating-point numbers stand for real ones; for experiments.
    """
    column = _as_floats("values", values)
    if column.ndim != 1 or not len(column):
        raise ValueError(f"values has shape {column.shape}. Pass a vector with one number an item.")
    terms = _Terms(epsilon, mu, delta, adjacency, groups, rounds, smallest, seed, lattice)
    return _quantile_of(column, quantile, (low, high), terms)


@silent_about("X or groups")
def private_ranges(
    X: Any,
    bounds: Any,
    *,
    quantiles: tuple[float, float] = (0.05, 0.95),
    epsilon: float | None = None,
    mu: float | None = None,
    delta: float,
    adjacency: Adjacency = "replace-one",
    groups: ArrayLike | None = None,
    rounds: int = 16,
    smallest: float | None = None,
    seed: int | None = None,
    lattice: bool = True,
) -> PrivateEstimate:
    """A range (low, high) of every column, by two private quantiles of each.

    Guarantee: as ``private_quantile``, for all columns together: one record may differ in every column, so the noise
    grows with the square root of their number. The value has shape (columns, 2), low below high in every row.

    Parameters
    ----------
    X : array or data frame of shape (n, columns)
        NaN is missing.
    bounds : pair, list of pairs or dictionary
        Public (low, high) of each column, however coarse.
    quantiles : pair of float
        Which quantiles make the range.
    epsilon, mu, delta, adjacency, groups, rounds, smallest, seed, lattice
        As in ``private_quantile``.
    """
    table = _as_floats("X", X)
    if table.ndim != 2 or 0 in table.shape:
        raise ValueError(f"X has shape {table.shape}. Pass a table of shape (rows, columns).")
    pairs = require_ranges("bounds", bounds, table.shape[1], names_of(X))
    lower, upper = require_pair("quantiles", quantiles)
    both = [require_inside("quantile", end, remedy=_QUANTILE) for end in (lower, upper)]
    terms = _Terms(epsilon, mu, delta, adjacency, groups, rounds, smallest, seed, lattice)
    cells, guarantee = _spend(table.T, both, pairs, terms)
    # Outer edges of both cells: never an empty range, even of a constant column or of crossed searches.
    found = np.array(cells).reshape(len(pairs), 4)
    return PrivateEstimate(np.column_stack([found.min(axis=1), found.max(axis=1)]), guarantee)


@silent_about("X or groups")
def private_row_norm(
    X: Any,
    largest: float,
    *,
    quantile: float = 0.9,
    epsilon: float | None = None,
    mu: float | None = None,
    delta: float,
    adjacency: Adjacency = "replace-one",
    groups: ArrayLike | None = None,
    rounds: int = 16,
    smallest: float | None = None,
    seed: int | None = None,
    lattice: bool = True,
) -> PrivateEstimate:
    """A bound on the length of rows that about ``quantile`` of them keep: to be declared as ``row_norm``.

    Guarantee: as ``private_quantile`` of the rows' lengths.

    Parameters
    ----------
    X : array, SciPy sparse matrix or data frame of shape (n, features)
        A memory map (``np.load(..., mmap_mode="r")``) is read in chunks.
    largest : float
        A public bound, however coarse.
    quantile : float
        The share of rows that need not be scaled down.
    epsilon, mu, delta, adjacency, groups, rounds, smallest, seed, lattice
        As in ``private_quantile``.
    """
    largest = require_positive("largest", largest, remedy="Pass a public bound on the length of any row.")
    terms = _Terms(epsilon, mu, delta, adjacency, groups, rounds, smallest, seed, lattice)
    store = checked(X)
    with np.errstate(over="ignore"):  # an infinite length is longer than every threshold, as it should be
        # To the bit a function of the row alone: squares are summed in one order for every place and every storage, and
        # square roots are rounded as the standard says. Of rows in a store from outside, or in other coordinates,
        # nobody knows.
        lengths = np.sqrt(store.squared_norms())
    found = _quantile_of(lengths, quantile, (0.0, largest), terms)
    if isinstance(store, (ArrayRows, SparseRows, StreamedRows)):
        return found
    return found._replace(guarantee=replace(found.guarantee, arithmetic="real"))


def _quantile_of(column: Array, quantile: float, bounds: tuple[float, float], terms: _Terms) -> PrivateEstimate:
    quantile = require_inside("quantile", quantile, remedy=_QUANTILE)
    cells, guarantee = _spend([column], [quantile], [require_pair("(low, high)", bounds)], terms)
    return PrivateEstimate(cells[0][1], guarantee)


def _spend(columns: Any, each: list[float], bounds: Any, terms: _Terms) -> tuple[list[tuple[float, float]], Guarantee]:
    """Search each of the quantiles in every column, with the noise that the budget asks for."""
    grids = [_grid(low, high, terms.smallest, terms.rounds) for low, high in bounds for _ in each]
    mu, delta, adjacency = _allowed_mu(terms.epsilon, terms.mu, terms.delta), terms.delta, terms.adjacency
    require_choice("adjacency", adjacency, ADJACENCIES)
    counting = _in_whole_numbers if require_flag("lattice", terms.lattice) else _in_real_numbers
    quantiles, rounds, source = each * len(columns), grids[0].rounds, source_for(terms.seed)
    cells, _ = search(counting(columns, quantiles, rounds, mu, terms), grids, source)
    searches = "one quantile" if len(quantiles) == 1 else f"{len(quantiles)} quantiles"
    how = f"{searches} searched on a public grid in {rounds} rounds of noisy counts"
    unit: Unit = "record" if terms.groups is None else "user"
    numbers: Arithmetic = "whole" if terms.lattice else "real"
    spent, told = gdp_epsilon(mu, delta), source.describe()
    whom = unit, adjacency
    return cells, Guarantee(
        spent, delta, mu, *whom, "iterates", "proved", _SECTION, (how,), source=told, arithmetic=numbers
    )


def _in_whole_numbers(columns: Any, quantiles: list[float], rounds: int, mu: float, terms: _Terms) -> _Counted:
    order, counts = _users(terms.groups, len(columns[0]))
    items = len(columns[0]) if counts is None else len(counts)
    parts, scale = finest_parts(items, counts is not None, quantiles, terms.adjacency, rounds, mu)
    weights = None if counts is None else whole_weights(order, counts, parts.heaviest)
    each = len(quantiles) // len(columns)
    shares = [one for column in columns for one in [WholeShares(column, weights, parts.one)] * each]
    return _Counted(shares, [parts.quantile(q) for q in quantiles], scale, whole=True)


def _in_real_numbers(columns: Any, quantiles: list[float], rounds: int, mu: float, terms: _Terms) -> _Counted:
    weights, each, adjacency = (
        _user_weights(terms.groups, len(columns[0])),
        len(quantiles) // len(columns),
        terms.adjacency,
    )
    shares = [one for column in columns for one in [_Shares(column, weights)] * each]
    std = round_up(sensitivity(quantiles, adjacency) * math.sqrt(rounds) / mu, 1e-14)
    return _Counted(shares, quantiles, std, whole=False)


def _allowed_mu(epsilon: float | None, mu: float | None, delta: float) -> float:
    checked_delta(delta)
    if (epsilon is None) == (mu is None):
        given = "both epsilon and mu" if mu is not None else "neither epsilon nor mu"
        raise ValueError(f"{given} were given. Pass exactly one of them: what this estimate may spend.")
    if mu is not None:
        return require_positive("mu", mu)
    assert epsilon is not None
    return gdp_mu(Budget(epsilon, delta).epsilon, delta)


def _grid(low: float, high: float, smallest: float | None, rounds: int) -> Grid:
    require_count("rounds", rounds, most=52)
    if smallest is None:
        return default_grid(low, high, int(rounds))
    return Grid(low, high, require_positive("smallest", smallest), int(rounds))


def default_grid(low: float, high: float, rounds: int) -> Grid:
    """The grid for bounds of which nothing more is known."""
    return Grid(low, high, require_positive("smallest", 1e-9 * (high - low)), rounds)


def _as_floats(name: str, values: Any) -> Array:
    try:
        with np.errstate(all="ignore"):  # a warning would tell of an entry
            return np.asarray(values).astype(np.float64)
    except (OverflowError, TypeError, ValueError):
        raise ValueError(f"{name} has entries that are not numbers. Encode or leave out text columns.") from None


def _users(groups: ArrayLike | None, rows: int) -> tuple[Indices, Indices | None]:
    """The order that puts the rows of each user together, and how many each has; None: every row is an item."""
    if groups is None:
        return np.arange(rows), None
    from hushpoint.problem import _checked_groups

    order, _, counts = _checked_groups(groups, rows)
    return order, counts


def _user_weights(groups: ArrayLike | None, rows: int) -> Array | None:
    """One over the number of rows of a row's user: users count equally, and none counts more than once."""
    order, counts = _users(groups, rows)
    if counts is None:
        return None
    weights: Array = np.empty(rows)
    weights[order] = np.repeat(1.0 / counts, counts)
    return weights
