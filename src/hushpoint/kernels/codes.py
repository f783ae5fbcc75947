"""Losses and regularisers as plain numbers, for compiled code."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hushpoint.losses import Absolute, Huber, Logistic, Loss, Quantile, SmoothedHinge, Squared
from hushpoint.regularizers import L1, L2, ElasticNet, Regularizer, WithoutIntercept, Zero

SQUARED, LOGISTIC, RAMP = 0, 1, 2


@dataclass(frozen=True)
class ScalarLoss:
    """Kind, width of the ramp, lowest and highest slope (nan: the class decides)."""

    code: tuple[int, float, float, float]


@dataclass(frozen=True)
class PenaltyCode:
    """L1 strength, L2 strength, and whether the last coordinate is left out."""

    code: tuple[float, float, bool]


def coded_loss(loss: Loss) -> ScalarLoss | None:
    """A loss for compiled code, or None if it is not one of the named ones."""
    if type(loss) is Squared:
        return ScalarLoss((SQUARED, 0.0, 0.0, 0.0))
    if type(loss) is Logistic:
        return ScalarLoss((LOGISTIC, 0.0, 0.0, 0.0))
    if type(loss) is Huber:
        return ScalarLoss((RAMP, 1.0, -loss.transition, loss.transition))
    if type(loss) is SmoothedHinge:
        return ScalarLoss((RAMP, loss.width, math.nan, math.nan))
    if type(loss) is Absolute:
        return ScalarLoss((RAMP, 0.0, -1.0, 1.0))
    if type(loss) is Quantile:
        return ScalarLoss((RAMP, loss.smoothing, -loss.level, 1 - loss.level))
    return None


def coded_penalty(penalty: Regularizer) -> PenaltyCode | None:
    """A regulariser for compiled code, or None if it is neither L1, L2 nor their sum."""
    if type(penalty) is WithoutIntercept:
        inner = coded_penalty(penalty.base)
        return None if inner is None else PenaltyCode((*inner.code[:2], True))
    if type(penalty) is Zero:
        return PenaltyCode((0.0, 0.0, False))
    if type(penalty) is L1:
        return PenaltyCode((penalty.strength, 0.0, False))
    if type(penalty) is L2:
        return PenaltyCode((0.0, penalty.strength, False))
    if type(penalty) is ElasticNet:
        return PenaltyCode((penalty.l1, penalty.l2, False))
    return None
