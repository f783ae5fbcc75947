"""Means over items on a lattice, asked for once: of rows of whole numbers, their second moments and squared lengths."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hushpoint._types import Array, Indices
from hushpoint.certificates import ADJACENCIES, Certificate, Theorem
from hushpoint.operators.base import Operator
from hushpoint.operators.lattice_gradient import cut_slack
from hushpoint.operators.whole import require_left
from hushpoint.problem import Facts
from hushpoint.rows import BITS, RowGrid, Rows, SparseRows, integer_rows

_MOST_BITS = 61  # of a sum, so that with noise it fits into 64
_SHARE_BITS = 20  # of the shares that the rows of a user have, at most
_EXACT = 1 << 53
_CHUNK = 1 << 14  # rows that are multiplied together, at most

# Whole numbers that stand for 1 on the diagonal and for sqrt(2) off it: 41/29 is less than sqrt(2) by 3 in 10^4.
_ON_DIAGONAL, _OFF_DIAGONAL = 29, 41


@dataclass(frozen=True)
class MeanGrid:
    """Rows on a grid, divided by ``2^coarse``; a user's rows weigh ``floor(2^shares/rows)`` each.

    ``degree`` is how many entries of a row are multiplied with each other.
    """

    rows: RowGrid
    coarse: int
    shares: int
    degree: int

    @staticmethod
    def of(facts: Facts, constant: float, factor_bits: int, degree: int = 2) -> MeanGrid:
        """The finest grid with which sums of products of entries, times a factor, fit into 64 bits."""
        if facts.row_norm is None:
            raise ValueError("row_norm is not declared. Pass row_norm=R.")
        room = _MOST_BITS - factor_bits - math.ceil(math.log2(facts.items))
        shares = 0 if facts.rows_per_item is None else min(max(room - 26, 12), _SHARE_BITS)
        coarse = BITS - min(BITS, (room - shares) // degree)
        return MeanGrid(RowGrid.of(facts.row_norm, constant), coarse, shares, degree)

    @property
    def exponent(self) -> int:
        """Products of entries are counted in steps of ``2^-exponent``."""
        return self.degree * (self.rows.exponent - self.coarse) + self.shares

    def chunks(self, shares: NDArray[np.int64]) -> list[slice]:
        """Rows whose sums are exact: a share times a product of entries stays below 2^53 in all."""
        most = _EXACT >> (self.degree * (BITS - self.coarse) + 1)
        summed = np.cumsum(shares)
        edges, start = [0], 0
        while start < len(shares):
            reached = int(np.searchsorted(summed, (summed[start - 1] if start else 0) + most, side="right"))
            start = min(max(reached, start + 1), start + _CHUNK, len(shares))
            edges.append(start)
        return [slice(first, last) for first, last in pairwise(edges)]

    def part(self, store: Any, place: slice) -> Any:
        """Some rows, divided, as an array or a matrix."""
        part = store.take(place)
        if isinstance(part, SparseRows):
            matrix = part.matrix  # an object of its own: its entries are replaced, and never written to
            matrix.data = np.trunc(np.ldexp(matrix.data, -self.coarse))
            return matrix
        return np.trunc(np.ldexp(part[:], -self.coarse)) if self.coarse else part[:]


class LatticeMean(Operator):
    """The mean over items of the mean over their rows of a function of a row, in whole numbers; items count equally.

    The sum of the messages is divided by ``2^shift`` before noise is added.
    """

    places = ("sum",)
    samplings = ("all",)  # the sum is divided by the number of items
    federates = True
    facts: Facts
    unit: float
    zero_out = "the unit's term in the mean is 0"

    def __init__(self, facts: Facts, size: int, grid: MeanGrid) -> None:
        self.facts, self.blocks, self.message_size, self.grid, self.shift = facts, facts.items, size, grid, 0
        self.unit = math.ldexp(1.0, -grid.exponent)

    def coarser(self, bits: int) -> Self:
        found = copy.copy(self)
        found.shift, found.unit = self.shift + bits, math.ldexp(self.unit, bits)
        longest = math.ldexp(math.sqrt(self.moved("zero-out")), -self.grid.exponent)
        require_left("the bound on moments", longest, found.unit)
        return found

    def prepare(self, rows: Rows) -> Rows:
        integers = integer_rows(rows.store, self.grid.rows)
        return replace(rows, store=integers, squared_norms=integers.squared, limits=None)

    def local(
        self, data: Rows, chosen: Indices | slice, block: Array, z: Array, relaxation: float, kick: Array | None
    ) -> tuple[Array, Any]:
        items = np.arange(data.items)[chosen]
        alone = [self.move(data, np.array([item]), block, z, relaxation, None, None)[1] for item in items]
        return block, np.array(alone, dtype=np.int64).reshape(-1, self.message_size)

    def move(
        self,
        data: Rows,
        chosen: Indices | slice,
        block: Array,
        z: Array,
        relaxation: float,
        kick: Array | None,
        multiplicity: Array | None,
    ) -> tuple[Array, Any]:
        rows = data.take(chosen)
        shares = (1 << self.grid.shares) // rows.counts
        return block, self.total(rows, np.repeat(shares, rows.counts))

    @abstractmethod
    def total(self, rows: Rows, shares: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sum over the rows, each times its share."""

    def cut(self, total: NDArray[Any]) -> NDArray[Any]:
        return total >> self.shift

    def combine(self, shared: Array, total: Array, chosen: Indices | None, relaxation: float) -> Array:
        return shared + relaxation * (total * self.unit / self.facts.items - shared)

    @abstractmethod
    def moved(self, adjacency: str) -> Fraction:
        """The square of how far one item moves the sum of the messages before it is cut."""

    def certificate(self, relaxation: float) -> Certificate:
        if type(self) not in (LatticeMeans, LatticeMoments, LatticeMeanSquare):
            return super().certificate(relaxation)
        units = ("user", "record") if self.facts.unit == "record" else ("user",)
        slack = cut_slack(self.message_size, self.unit) if self.shift else 0.0
        step = Fraction(2) ** -self.grid.exponent
        bounds = {one: (root_above(self.moved(one) * step**2) + slack) * (1 + 4e-16) for one in ADJACENCIES}
        table = {(unit, adjacency): bound for unit in units for adjacency, bound in bounds.items()}
        because = (f"rows scaled to norm <= {self.facts.row_norm:g}",)
        return Certificate(None, table, because=because, theorem=Theorem("8", "sum"))


class LatticeMeans(LatticeMean):
    """The mean of the rows, in whole numbers.

    Promises: with Q the largest squared length of a row and ``2^k`` what the shares of a user add up to at most, one
    item moves the sum by at most ``2^k sqrt(Q)`` (zero-out), or twice that (replace-one).
    """

    name = "means on a lattice"

    def __init__(self, facts: Facts, constant: float = 0.0) -> None:
        super().__init__(facts, facts.width, MeanGrid.of(facts, constant, 1, degree=1))

    def total(self, rows: Rows, shares: NDArray[np.int64]) -> NDArray[np.int64]:
        found = np.zeros(rows.store.width, dtype=np.int64)
        for place in self.grid.chunks(shares):
            found += _whole(self.grid.part(rows.store, place).T @ shares[place].astype(np.float64))
        return found

    def moved(self, adjacency: str) -> Fraction:
        longest = Fraction(self.grid.rows.most, 1 << (2 * self.grid.coarse))
        return (1 if adjacency == "zero-out" else 4) * longest * (1 << self.grid.shares) ** 2


class LatticeMoments(LatticeMean):
    """The mean of ``a a'`` over the rows, or of its diagonal, as ``SecondMoments``; ``constant`` follows every row.

    A message holds 29 times the entries on the diagonal and 41 times those above it, so that its length is at most 29
    times the Frobenius norm; what is public is left out.
    Promises: with Q the largest squared length of a row, c the constant and ``2^k`` what the shares of a user add up to
    at most, one item moves the sum by at most ``29 2^k sqrt(Q^2 + 2 c^2 Q)`` (zero-out) or ``29 2^k sqrt(2) (Q + c^2)``
    (replace-one), since the inner product of two sums of ``a a'`` is not negative.
    """

    name = "second moments on a lattice"

    def __init__(self, facts: Facts, constant: float = 0.0, diagonal: bool = False) -> None:
        self.constant, self.diagonal = constant, diagonal
        self.width = facts.width + bool(constant)
        size = (self.width if diagonal else self.width * (self.width + 1) // 2) - bool(constant)
        super().__init__(facts, size, MeanGrid.of(facts, constant, _OFF_DIAGONAL.bit_length()))

    @property
    def _whole_constant(self) -> int:
        return self.grid.rows.constant >> self.grid.coarse

    def total(self, rows: Rows, shares: NDArray[np.int64]) -> NDArray[np.int64]:
        if self.diagonal and rows.store.sparse and rows.store.arrays is not None:
            from hushpoint.kernels.integers import square_sums

            return _ON_DIAGONAL * square_sums(rows.store.arrays, rows.store.width, shares, self.grid.coarse)
        width, constant = rows.store.width, self._whole_constant if not self.diagonal else 0
        squares = np.zeros(width if self.diagonal else (width, width), dtype=np.int64)
        means = np.zeros(width, dtype=np.int64)
        for place in self.grid.chunks(shares):
            part, weights = self.grid.part(rows.store, place), shares[place].astype(np.float64)
            squares += _whole(_diagonal(part, weights) if self.diagonal else _products(part, weights))
            if constant:
                means += _whole(part.T @ weights)
        if self.diagonal:
            return _ON_DIAGONAL * squares
        if constant:
            squares = np.block([[squares, constant * means[:, None]], [np.zeros((1, width + 1), dtype=np.int64)]])
        return (self._factors * squares[self._above])[: self.message_size]  # the public entry, if any, is the last

    def matrix(self, released: Array) -> Array:
        """The symmetric matrix, or its diagonal, that a released vector stands for."""
        entries = released / (_ON_DIAGONAL if self.diagonal else self._factors[: self.message_size])
        if self.constant:
            entries = np.append(entries, self.constant**2)
        if self.diagonal:
            return np.asarray(entries)
        found = np.empty((self.width, self.width))
        found[self._above] = found.T[self._above] = entries
        return found

    def noise_on_diagonal(self, std: float) -> float:
        """The noise on an entry of the diagonal, where that on a message is ``std``."""
        return std / _ON_DIAGONAL

    @cached_property
    def _above(self) -> tuple[Indices, Indices]:
        return np.triu_indices(self.width)

    @cached_property
    def _factors(self) -> NDArray[np.int64]:
        return np.where(self._above[0] == self._above[1], _ON_DIAGONAL, _OFF_DIAGONAL)

    def moved(self, adjacency: str) -> Fraction:
        longest = Fraction(self.grid.rows.most, 1 << (2 * self.grid.coarse))
        square = 0 if self.diagonal else self._whole_constant**2
        factor = (_ON_DIAGONAL << self.grid.shares) ** 2
        if adjacency == "zero-out":
            return factor * (longest**2 + 2 * square * longest)
        return factor * 2 * (longest + square) ** 2


class LatticeMeanSquare(LatticeMean):
    """The mean of ``|a|^2`` over the rows, in whole numbers.

    Promises: one item moves the sum by at most ``2^k Q``, replaced or zeroed: its term lies between 0 and that.
    """

    name = "mean square on a lattice"

    def __init__(self, facts: Facts, constant: float = 0.0) -> None:
        super().__init__(facts, 1, MeanGrid.of(facts, constant, 1))

    def total(self, rows: Rows, shares: NDArray[np.int64]) -> NDArray[np.int64]:
        lengths = np.floor(np.ldexp(rows.squared_norms, -2 * self.grid.coarse)).astype(np.int64)
        return np.atleast_1d((shares * lengths).sum())

    def moved(self, adjacency: str) -> Fraction:
        return Fraction((self.grid.rows.most >> (2 * self.grid.coarse)) << self.grid.shares) ** 2


@lru_cache(maxsize=256)
def root_above(square: Fraction) -> float:
    """The square root of a fraction, rounded up."""
    found = math.sqrt(square)
    while Fraction(found) ** 2 < square:
        found = math.nextafter(found, math.inf)
    return found


def _whole(sums: Any) -> NDArray[np.int64]:
    return np.asarray(sums).astype(np.int64)


def _products(part: Any, weights: Array) -> Any:
    if not isinstance(part, np.ndarray):
        return (part.T @ part.multiply(weights[:, None])).toarray()
    return part.T @ part if (weights == 1).all() else part.T @ (part * weights[:, None])


def _diagonal(part: Any, weights: Array) -> Any:
    if isinstance(part, np.ndarray):
        return (part * part).T @ weights
    squares = part.copy()
    squares.data *= squares.data
    return squares.T @ weights
