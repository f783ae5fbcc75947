"""Scores of private rows in whole numbers, with noise that is drawn exactly (docs/selection.md).

A row's merit, from 0 to 1, becomes a whole number of ``2^b`` parts; a user's is the mean over its rows, rounded down.
An item adds at most ``2^b`` and at least 0, so replaced or zeroed it moves the sum by at most ``2^b``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushpoint._described import is_ours
from hushpoint._types import Array, Indices
from hushpoint.lattice import WIDEST, rounded_normals
from hushpoint.noise import Source
from hushpoint.privacy.whole import whole_scale

_FINEST = 20  # bits of a merit; a sum over all rows that a machine can hold stays far below 2^62

Merits = Callable[[NDArray[Any], NDArray[Any]], Array]


def predicts_alone(model: Any) -> bool:
    """Whether a prediction of the model can be had that is, to the bit, a function of its row alone.

    Not of a class from outside, which may have another ``predict`` than the one that it inherits from.
    """
    return is_ours(type(model)) and hasattr(model, "_predict_alone")


def whole_score(
    merits: Merits, X: Any, true: NDArray[Any], items: Indices, mu: float
) -> Callable[[Any, Source, int], float]:
    """The mean merit of these items, made mu-GDP: a whole sum and a whole noise, then divided."""
    counts = np.bincount(items)
    bits, scale = finest(mu)

    def score(model: Any, source: Source, run: int) -> float:
        predicted = np.asarray(model._predict_alone(X) if predicts_alone(model) else model.predict(X))
        whole = whole_sum(merits(predicted, true), items, counts, bits)
        noise = rounded_normals(source, "select-score", [0], run, 1, scale)
        return (whole + int(noise[0, 0])) / (len(counts) << bits)

    return score


def whole_sum(merits: Array, items: Indices, counts: Indices, bits: int) -> int:
    """The sum over items of merits in whole parts. One item, replaced or zeroed, moves it by at most ``2^bits``."""
    # Comparisons, the four operations and a power of two: rounded in every place as the standard says.
    parts = np.floor(merits * 2.0**bits).astype(np.int64)
    sums = np.zeros(len(counts), dtype=np.int64)
    np.add.at(sums, items, parts)
    return int((sums // counts).sum())


def finest(mu: float) -> tuple[int, int]:
    """Bits of a merit, as many as leave room for the noise, and the noise's scale."""
    for bits in range(_FINEST, -1, -1):
        scale = whole_scale(1 << 2 * bits, mu)
        if scale <= WIDEST:
            return bits, scale
    raise ValueError(f"a score may spend mu = {mu:g}, too little for any noise. Choose a larger epsilon.")
