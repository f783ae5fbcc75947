"""The counts of quantile searches in whole numbers (docs/preprocessing.md).

A quantile is ``q`` of ``one = 2^m`` parts. A row weighs 1, or ``floor(2^k/n_i)`` if its user has ``n_i`` rows, so that
an item weighs at most ``heaviest = 2^k`` (1 for records). With w the weights of the rows that have a value,

    S(t) = one * (sum of w at or below t) - q * (sum of w).

An item's term lies between ``-q heaviest`` and ``(one - q) heaviest``, and is 0 where its values are missing. It is a
function of the item's own values: they are compared with public numbers, which is exact, and weights are whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hushpoint._types import Array, Indices
from hushpoint.lattice import WIDEST
from hushpoint.privacy.whole import whole_scale

_FINEST, _HEAVIEST = 30, 20  # bits of a quantile and of a user's weight: no more is to be gained
_COARSEST = 10  # bits of either below which a search is not worth its budget
_ROOM = 1 << 62  # for sums; noise of at most 2^40 takes less than 2^60, so that both fit into 64 bits


@dataclass(frozen=True)
class Parts:
    """How fine the whole numbers are."""

    one: int
    heaviest: int

    def quantile(self, share: float) -> int:
        """The quantile that is searched: the nearest one that is neither nothing nor everything."""
        return min(max(round(Fraction(share) * self.one), 1), self.one - 1)

    def squared_sensitivity(self, quantiles: Sequence[float], adjacency: str) -> int:
        """Squared length of the move that one changed item makes in the counts of simultaneous searches, at most."""
        if adjacency == "replace-one":
            return len(quantiles) * (self.one * self.heaviest) ** 2
        found = [self.quantile(share) for share in quantiles]
        return sum((max(q, self.one - q) * self.heaviest) ** 2 for q in found)


def finest_parts(
    items: int, users: bool, quantiles: Sequence[float], adjacency: str, rounds: int, mu: float
) -> tuple[Parts, int]:
    """The finest numbers whose sums and whose noise fit, and the noise's scale S. All from public numbers."""
    for bits in range(_FINEST + (_HEAVIEST if users else 0), _COARSEST * (2 if users else 1) - 1, -1):
        weight = min(_HEAVIEST, bits // 2) if users else 0
        parts = Parts(1 << (bits - weight), 1 << weight)
        if mu > 0 and items << bits < _ROOM:
            # the rounds of a search are one release: squared lengths add up
            scale = whole_scale(rounds * parts.squared_sensitivity(quantiles, adjacency), mu)
            if scale <= WIDEST:
                return parts, scale
    raise ValueError(
        f"mu is {mu:g} with {items} items, for which counts in whole numbers have no room. Pass a larger epsilon or "
        "mu, or lattice=False for counts in floating-point numbers."
    )


class WholeShares:
    """One column, sorted once: the weight at or below any threshold. Missing values weigh nothing."""

    def __init__(self, values: Array, weights: Indices | None, one: int) -> None:
        known = ~np.isnan(values)
        kept, self.one = values[known], one
        if weights is None:
            self.values, self.below = np.sort(kept), None
            self.total = len(kept)
        else:
            order = np.argsort(kept, kind="stable")
            self.values = kept[order]
            self.below = np.concatenate([[0], np.cumsum(weights[known][order])])
            self.total = int(self.below[-1])

    def statistic(self, threshold: float, quantile: int) -> int:
        """``S(threshold)``."""
        count = int(np.searchsorted(self.values, threshold, side="right"))
        weight = count if self.below is None else int(self.below[count])
        return self.one * weight - quantile * self.total


def whole_weights(order: Indices, counts: Indices, heaviest: int) -> Indices:
    """``floor(heaviest/n_i)`` for each row of a user with ``n_i`` rows."""
    weights = np.empty(len(order), dtype=np.int64)
    weights[order] = np.repeat(heaviest // counts, counts)
    return weights
