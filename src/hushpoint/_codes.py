"""Losses and regularisers as plain numbers, for compiled code."""

SQUARED, LOGISTIC, RAMP = 0, 1, 2


LossCode = tuple[int, float, float, float]
"""Kind, width of the ramp, lowest and highest slope (nan: the class decides)."""

PenaltyCode = tuple[float, float, bool]
"""L1 strength, L2 strength, and whether the last coordinate is left out."""
