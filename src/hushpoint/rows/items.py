"""The private part of a problem: rows, their targets, and the items that they belong to."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np

from hushpoint._types import Array, Indices
from hushpoint.losses import Loss
from hushpoint.rows.store import Store

Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class Rows:
    """The private part: rows, targets, and which rows belong to which item (consecutive ones).

    ``limits`` bounds the slope of each row's loss (clip / row length), None without clipping; ``offsets`` is None where
    every item is one row.
    """

    store: Store
    targets: Array
    loss: Loss
    squared_norms: Array
    limits: Array | None = None
    offsets: Indices | None = None
    _made: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def features(self) -> Any:
        """The rows as an array or a SciPy matrix, where they are one."""
        return self.store.plain

    @property
    def items(self) -> int:
        """Number of items."""
        return len(self.targets) if self.offsets is None else len(self.offsets) - 1

    @cached_property
    def counts(self) -> Indices:
        """Rows of each item."""
        return np.ones(len(self), dtype=np.int64) if self.offsets is None else np.diff(self.offsets)

    def shared_out(self, weights: Array | None) -> Array:
        """The weight of each item, shared equally by its rows; None: items count once."""
        return self._shares if weights is None else np.repeat(weights / self.counts, self.counts)

    @cached_property
    def _shares(self) -> Array:
        return np.repeat(1 / self.counts, self.counts)

    @cached_property
    def slope_limits(self) -> Array:
        """``limits``, infinite where nothing is clipped."""
        return np.full(len(self), math.inf) if self.limits is None else self.limits

    @property
    def row_loss(self) -> Loss:
        """The loss of every row, truncated where the problem clips."""
        return self.loss if self.limits is None else self.loss.truncated(self.limits)

    def margins(self, model: Array) -> Array:
        """Inner product of every row with one model, or with that of its item where there is one for each."""
        if model.ndim == 1:
            return self.store @ model
        return self.store.summed_dots(np.repeat(model, self.counts, axis=0))

    def once(self, make: Callable[[Rows], Made]) -> Made:
        """What a function makes of these rows, made the first time only."""
        if make not in self._made:
            self._made[make] = make(self)
        return cast(Made, self._made[make])

    def pick(self, index: Any) -> Rows:
        """Some rows, as items of one row each."""
        limits = None if self.limits is None else self.limits[index]
        return Rows(self.store.take(index), self.targets[index], self.loss, self.squared_norms[index], limits)

    def take(self, items: Indices | slice) -> Rows:
        """Some items, in the order given."""
        if isinstance(items, slice) and items == slice(None):
            return self
        if self.offsets is None:
            return self.pick(items)
        chosen = np.arange(self.items)[items]
        rows, counts = rows_of_items(self.offsets, chosen)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return replace(self.pick(rows), offsets=offsets)


def rows_of_items(offsets: Indices, chosen: Indices) -> tuple[Indices, Indices]:
    """Indices of the rows of the chosen items, one item after the other, and how many each has."""
    starts, counts = offsets[chosen], offsets[chosen + 1] - offsets[chosen]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(starts, counts) + within, counts
