"""How much noise a sum of whole numbers needs, in whole numbers."""

from __future__ import annotations

from math import isqrt


def whole_scale(squared: int, mu: float) -> int:
    """The least whole S with which ``rint(S Z)`` on every entry hides a move of this squared length: mu-GDP.

    Exact: ``squared <= mu^2 S^2``, the float mu being the ratio of two whole numbers that it is.
    """
    above, below = mu.as_integer_ratio()
    return isqrt((squared * below**2 - 1) // above**2) + 1
