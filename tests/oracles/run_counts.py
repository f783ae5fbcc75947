"""The probabilities of the number of runs, from the definition of each law."""

from __future__ import annotations

import math


def pmf(law, count):
    """``P(K = count)``."""
    if law.one_run or count < 1:
        return float(count == 1)
    if law.distribution == "poisson":
        log_term = count * math.log(law.parameter) - math.lgamma(count + 1) - law.parameter
        return math.exp(log_term) / -math.expm1(-law.parameter)
    term = (1 - law.parameter) ** count
    if law.distribution == "geometric":
        return law.parameter * term / (1 - law.parameter)
    return term / (count * law.log_inverse)
