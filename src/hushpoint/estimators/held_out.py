"""How good models are on rows that no training saw: what each such row tells, within public bounds.

A row tells some numbers from 0 to 1, each a function of that row and of public numbers to the bit: only comparisons
and the four operations, which are rounded alike everywhere. Their means are released with noise (docs/privacy.md,
section 8).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from hushpoint._fixed import _LOG2_HIGH, _LOG2_LOW, _TERMS
from hushpoint._types import Array
from hushpoint.estimators.calibration import scores_alone
from hushpoint.losses import Loss
from hushpoint.problem import Facts
from hushpoint.regularizers import Zero
from hushpoint.rows import ArrayRows, Rows

Merit = Literal["right", "log_loss", "squared error", "place", "off the middle"]

LOG_LOSS = 4.0  # a row counts with at most so much: with a probability of 1.8% for what is true, or less
_ATANH = tuple(1.0 / (2 * k + 1) for k in range(16, -1, -1))


@dataclass(frozen=True)
class HeldOut:
    """What is asked about held-out rows: some merits, each with its share of what they may cost together.

    The shares are of mu squared and add up to 1.
    """

    shares: tuple[tuple[Merit, float], ...]

    @staticmethod
    def of(loss: Loss, models: int) -> HeldOut:
        """For the models of a training."""
        if loss.labels != "two-class":
            return HeldOut((("squared error", 0.7), ("place", 0.2), ("off the middle", 0.1)))
        if models == 1 and loss.logistic_weights is not None:  # scores are log odds
            return HeldOut((("right", 0.5), ("log_loss", 0.5)))
        return HeldOut((("right", 1.0),))

    def facts(self, facts: Facts, items: int) -> Facts:
        """What is public of these numbers as rows: each is at most half its weight off the middle."""
        return replace(facts, items=items, features=len(self.shares), regularizer=Zero(), row_norm=0.5, clip=None)

    def look(self, models: Array, intercept: bool, rows: Rows) -> Rows:
        """The numbers that rows tell, less a half and times their weights.

        Targets are those of a regression, less nothing; signs; or the place of the class, where there are more models
        than one.
        """
        scores = _scores(models, intercept, rows)
        told = np.array([_told(merit, scores, rows.targets) for merit, _ in self.shares])
        told = np.where(np.isfinite(told) & np.isfinite(models).all(), told, 0.0)  # no number: as bad as can be
        table = (told.T - 0.5) * np.sqrt([share for _, share in self.shares])
        return replace(rows, store=ArrayRows(table), squared_norms=(table**2).sum(axis=1), limits=None)

    def means(self, released: Array) -> dict[Merit, float]:
        """The mean of each number, of what was released."""
        return {
            merit: float(value) / math.sqrt(share) + 0.5
            for value, (merit, share) in zip(released, self.shares, strict=True)
        }

    def noise(self, std: float) -> dict[Merit, float]:
        """The deviation of the noise of each mean, where that of what was released is ``std``."""
        return {merit: std / math.sqrt(share) for merit, share in self.shares}


def _scores(models: Array, intercept: bool, rows: Rows) -> Array:
    """Of each row by each model, a column each."""
    width = rows.store.width
    scores = np.column_stack([scores_alone(rows, model[:width]) for model in models])
    return scores + (models[:, -1] if intercept else 0.0)


def _told(merit: Merit, scores: Array, targets: Array) -> Array:
    first = scores[:, 0]
    if merit == "right":
        answers = np.where(first > 0, 1.0, -1.0) if scores.shape[1] == 1 else scores.argmax(axis=1)
        return np.asarray(answers == targets, dtype=np.float64)
    if merit == "log_loss":
        return np.asarray(1 - np.minimum(log_loss_alone(first * targets), LOG_LOSS) / LOG_LOSS)
    true = np.clip(targets, -1.0, 1.0)
    if merit == "squared error":
        miss = (np.clip(first, -1.0, 1.0) - true) / 2
        return np.asarray(1 - miss * miss)
    return np.asarray((true + 1) / 2 if merit == "place" else true * true)


def log_loss_alone(margins: Array) -> Array:
    """``log(1 + exp(-m))``, to a few units in the last place, by the four operations alone."""
    size = np.minimum(np.abs(margins), 600.0)
    whole = np.floor(size * 1.4426950408889634 + 0.5)
    small = np.ldexp(_polynomial(_TERMS, (whole * _LOG2_HIGH - size) + whole * _LOG2_LOW), -whole.astype(np.int32))
    ratio = small / (2 + small)
    return np.asarray(2 * ratio * _polynomial(_ATANH, ratio * ratio) + np.where(margins < 0, size, 0.0))


def _polynomial(factors: Sequence[float], x: Array) -> Array:
    total = np.full(np.shape(x), factors[0])
    for factor in factors[1:]:
        total = total * x + factor
    return total
