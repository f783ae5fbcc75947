"""Losses and regularisers as plain numbers, for compiled code."""

from __future__ import annotations

import math

from hushpoint.losses import Absolute, Huber, Logistic, Loss, Quantile, SmoothedHinge, Squared
from hushpoint.regularizers import L1, L2, ElasticNet, Regularizer, WithoutIntercept, Zero

SQUARED, LOGISTIC, RAMP = 0, 1, 2


LossCode = tuple[int, float, float, float]
"""Kind, width of the ramp, lowest and highest slope (nan: the class decides)."""

PenaltyCode = tuple[float, float, bool]
"""L1 strength, L2 strength, and whether the last coordinate is left out."""


def coded_loss(loss: Loss) -> LossCode | None:
    """A loss for compiled code, or None if it is not one of the named ones."""
    if type(loss) is Squared:
        return (SQUARED, 0.0, 0.0, 0.0)
    if type(loss) is Logistic:
        return (LOGISTIC, 0.0, 0.0, 0.0)
    if type(loss) is Huber:
        return (RAMP, 1.0, -loss.transition, loss.transition)
    if type(loss) is SmoothedHinge:
        return (RAMP, loss.width, math.nan, math.nan)
    if type(loss) is Absolute:
        return (RAMP, 0.0, -1.0, 1.0)
    if type(loss) is Quantile:
        return (RAMP, loss.smoothing, -loss.level, 1 - loss.level)
    return None


def coded_penalty(penalty: Regularizer) -> PenaltyCode | None:
    """A regulariser for compiled code, or None if it is neither L1, L2 nor their sum."""
    if type(penalty) is WithoutIntercept:
        inner = coded_penalty(penalty.base)
        return None if inner is None else (inner[0], inner[1], True)
    if type(penalty) is Zero:
        return (0.0, 0.0, False)
    if type(penalty) is L1:
        return (penalty.strength, 0.0, False)
    if type(penalty) is L2:
        return (0.0, penalty.strength, False)
    if type(penalty) is ElasticNet:
        return (penalty.l1, penalty.l2, False)
    return None
