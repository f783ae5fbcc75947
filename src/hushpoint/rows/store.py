"""Where rows live: what the library asks of a store of rows, and answers for one that says no more than it must."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Self

import numpy as np
import scipy.linalg.blas
from numpy.typing import DTypeLike, NDArray

from hushpoint._described import is_ours
from hushpoint._types import Array, Indices

_NUMBERS = 1 << 18  # in one chunk
CHUNK = 1 << 14  # rows whose moments are summed together


class Store(ABC):
    """Rows of numbers, wherever and however they are kept; answers are in double precision.

    A new kind answers two questions: its ``shape`` (rows and width), and ``take(index)``, some of its rows in memory,
    as ``ArrayRows`` or ``SparseRows`` (index: a slice, or integers). It may then be passed to ``Problem`` as X. All
    other questions have an answer made of chunks of such rows; a kind that knows a better one overrides it.

    - ``store @ points`` and ``pull(weights)``: products with a vector or the columns of a table, from the right and,
      transposed, from the left. ``gram(weights, size)``, ``second_moments(weights)``, ``second_means(weights)``: sums
      of weighted products of the rows with themselves.
    - ``chunks(size)``: the rows in parts, with their places. ``store[index]``: some rows as an array.
    - ``squared_norms()``, ``largest()``, ``finite()``: what the checks and the bound on rows are made of.
    - ``scaled(factors)``, ``with_constant()``, ``ordered(order)``: the rows of a problem from those that were passed.
      A store that cannot append a constant or change the order of its rows says so, and is not copied.
    - ``times(factors)``, ``squares()``, ``dots(points)``, ``summed_dots(points)``, ``add_to(points, factors)``: row by
      row, for rows that are few enough to be in memory.
    - ``by_columns()``, ``pull_columns(chosen, weights)``, ``column_arrays()``: the same rows the other way round.
    - ``arrays``: what compiled code reads (kernels/table.py); None: NumPy does the work chunk by chunk, or on
      ``store[:]`` where a method has as many numbers in memory anyway.

    All answers are about the same numbers: the bound on rows, and with it the guarantee, rests on that. So the kinds of
    this package have no subclasses, which might change some answers and inherit others.
    """

    sparse: bool = False  # zeros are not stored: an array of the rows would be many times as large
    in_memory: bool = False  # a copy of the rows may be kept beside them
    whole: bool = False  # a product has a cost of its own, whatever the number of rows: take all of them at once

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        _require_direct(cls)

    def __new__(cls, *args: Any, **options: Any) -> Self:
        _require_direct(cls)  # again: a mixin may have kept the first look from happening
        return super().__new__(cls)

    @property
    def from_outside(self) -> str | None:
        """Its kind, where that is not of this package: whose word it is that these are the rows."""
        return None if is_ours(type(self)) else type(self).__name__

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    @abstractmethod
    def take(self, index: Any) -> Store:
        """Some rows, in memory."""

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def width(self) -> int:
        """Length of a row."""
        return self.shape[1]

    @property
    def stored(self) -> int:
        """How many numbers are kept."""
        return len(self) * self.width

    @property
    def plain(self) -> Any:
        """What NumPy or SciPy take for these rows, where they are such a thing; else the store."""
        return self

    @property
    def arrays(self) -> Any:
        """What compiled code reads; None: nothing."""
        return None

    def rows_of(self, numbers: int) -> int:
        """How many rows hold about so many numbers."""
        return max(1, numbers // max(1, self.stored // len(self)))

    def chunks(self, size: int | None = None) -> Iterator[tuple[slice, Store]]:
        """The rows in parts, in memory one after the other, with their places."""
        size = self.rows_of(_NUMBERS) if size is None else size
        for start in range(0, len(self), size):
            place = slice(start, min(start + size, len(self)))
            yield place, self.take(place)

    def __getitem__(self, index: Any) -> Array:
        return self.take(index)[:]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        table = np.asarray(self[:], dtype=dtype)
        return table.copy() if copy else table

    def __matmul__(self, points: Array) -> Array:
        found = np.empty((len(self), *np.shape(points)[1:]))
        for place, part in self.chunks():
            found[place] = part @ points
        return found

    def pull(self, weights: Array) -> Array:
        """The sum of the rows, each times its weight; for several weights a row, a column each."""
        total = np.zeros((self.width, *np.shape(weights)[1:]))
        for place, part in self.chunks():
            total += part.pull(weights[place])
        return total

    def gram(self, weights: Array, size: int) -> Array:
        """``sum_i weights_i a_i a_i'`` for weights of at least 0, so many rows at a time."""
        total = np.zeros((self.width, self.width), order="F")
        for place, part in self.chunks(size):
            scaled = part[:] * np.sqrt(weights[place])[:, None]
            total = scipy.linalg.blas.dsyrk(1.0, scaled.T, beta=1.0, c=total, lower=1, overwrite_c=1)
        return np.asarray(np.tril(total) + np.tril(total, -1).T)

    def second_moments(self, weights: Array) -> Array:
        """``sum_i weights_i a_i a_i'``, both halves computed."""
        total = np.zeros((self.width, self.width))
        for place, part in self.chunks(CHUNK):
            rows = part[:]
            total += rows.T @ (rows * weights[place][:, None])
        return total

    def second_means(self, weights: Array) -> Array:
        """The diagonal of the second moments."""
        total = np.zeros(self.width)
        for place, part in self.chunks(CHUNK):
            total += part.squares().pull(weights[place])
        return total

    def squared_norms(self) -> Array:
        """Squared length of each row, to the bit a function of that row alone, and the same for all kinds."""
        return np.concatenate([part.squared_norms() for _, part in self.chunks()])

    def largest(self) -> Array:
        """Largest absolute entry of each row."""
        return np.concatenate([np.abs(part[:]).max(axis=1) for _, part in self.chunks()])

    def finite(self) -> bool:
        """Whether every entry is a number."""
        return all(bool(np.isfinite(part[:]).all()) for _, part in self.chunks())

    def scaled(self, factors: Array) -> Store:
        """Each row times a factor."""
        return ScaledRows(self, factors)

    def with_constant(self) -> Store:
        """The rows with a last column of ones."""
        raise ValueError(
            f"X is a {type(self).__name__} and fit_intercept is True. Give its rows a last column of ones instead."
        )

    def ordered(self, order: Indices) -> Store:
        """The rows in another order."""
        if (order[1:] > order[:-1]).all():
            return self
        raise ValueError(
            f"X is a {type(self).__name__} and groups is not sorted. Keep the rows of each user together, in order."
        )

    def squares(self) -> Store:
        """Every entry squared."""
        return self.take(slice(None)).squares()

    def times(self, factors: Array) -> Array:
        """Every row times its factors: one, or one for each entry."""
        return np.asarray(self[:] * factors)

    def dots(self, points: Array) -> Array:
        """Inner product of each row with its own point."""
        return np.asarray(np.einsum("ij,ij->i", self[:], points))

    def summed_dots(self, points: Array) -> Array:
        """The same, summed in another order, which the bits of seeded models depend on."""
        return np.asarray(self.times(points).sum(axis=1))

    def add_to(self, points: Array, factors: Array) -> None:
        """Add to each point its own row, times a factor."""
        points += factors[:, None] * self[:]

    def by_columns(self) -> Store:
        """The same rows, arranged for ``pull_columns``."""
        return self

    def pull_columns(self, chosen: Indices | slice, weights: Array) -> Array:
        """``pull`` of some columns."""
        return np.asarray(self[:][:, chosen].T @ weights)

    def column_arrays(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Entries column after column, their rows, and where each column starts; no rows where zeros are stored."""
        entries = np.ascontiguousarray(self[:].T).reshape(-1)
        return entries, np.zeros(0, dtype=np.int64), len(self) * np.arange(self.width + 1)


@lru_cache(maxsize=64)
def _require_direct(kind: type[Store]) -> None:
    for base in kind.__mro__[1:]:
        if base is not Store and is_ours(base):
            raise TypeError(f"{kind.__name__} derives from {base.__name__}. Derive from Store, and hold the other.")


class ScaledRows(Store):
    """The rows of another store, each times a factor when it is read."""

    def __init__(self, store: Store, factors: Array) -> None:
        self.store, self.factors = store, factors

    @property
    def from_outside(self) -> str | None:
        return self.store.from_outside

    @property
    def shape(self) -> tuple[int, int]:
        return self.store.shape

    def take(self, index: Any) -> Store:
        return self.store.take(index).scaled(self.factors[index])

    def __matmul__(self, points: Array) -> Array:
        found = self.store @ points
        return np.asarray((found.T * self.factors).T)

    def pull(self, weights: Array) -> Array:
        return self.store.pull((weights.T * self.factors).T)
