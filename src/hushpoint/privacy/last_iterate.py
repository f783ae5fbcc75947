"""Privacy of the last iterate alone: what is left to see when only the final model is released."""

from __future__ import annotations

import math

from hushpoint._checks import require
from hushpoint.privacy.gaussian import round_up


def _amplification(lipschitz: float, steps: int) -> float:
    """``(1+c)(1-c^T) / ((1-c)(1+c^T))``, as ``tanh(-T ln(c)/2) (1+c)/(1-c)``; T at c = 1."""
    if steps == 0 or lipschitz == 1:
        return float(steps)
    if lipschitz == 0:
        return 1.0
    value = math.tanh(-0.5 * steps * math.log(lipschitz)) * (1 + lipschitz) / (1 - lipschitz)
    return min(value, float(steps))


def _check_lipschitz(lipschitz: float) -> None:
    if not 0 <= lipschitz <= 1:
        raise ValueError(
            f"lipschitz is {lipschitz!r}. The last-iterate bound needs steps that are Lipschitz with a "
            "constant from 0 to 1 on every data set; otherwise composition only: compose_mu over the steps."
        )


def last_iterate_mu(shift_over_noise: float, lipschitz: float, steps: int) -> float:
    """mu of the last of many noisy steps, when nothing but the last iterate is released.

    ``mu = (Delta/s) sqrt((1+c)(1-c^T) / ((1-c)(1+c^T)))``, and ``sqrt(T) Delta/s`` at c = 1: never more than
    composition, and for c < 1 bounded by ``(Delta/s) sqrt((1+c)/(1-c))`` however long the run (shifted
    interpolation; Bok, Su and Altschuler 2024). An equality for a scalar linear map with a constant shift.

    Holds only if every step is c-Lipschitz on every data set, is shifted by at most Delta between neighbours,
    and adds isotropic Gaussian noise of standard deviation s to the whole state, in the norm in which the
    step is c-Lipschitz; every block moves and is noised at every step; relaxation and gamma are constant; the
    start is the same and data-free; and nothing else is released: no history, no tail average, no
    data-dependent stop.

    Parameters
    ----------
    shift_over_noise : float
        ``Delta/s``, the mu of one step, at least 0.
    lipschitz : float
        c, from 0 to 1. Above 1 there is no such theorem: composition only.
    steps : int
        T, the number of noisy steps, at least 0.
    """
    remedy = "Pass the shift of one step divided by its noise standard deviation, a number of at least 0."
    require(shift_over_noise >= 0, "shift_over_noise", shift_over_noise, remedy)
    whole = steps >= 0 and float(steps).is_integer()
    require(whole, "steps", steps, "Pass the number of noisy steps, a whole number of at least 0.")
    _check_lipschitz(lipschitz)
    if shift_over_noise == 0 or steps == 0:
        return 0.0
    if steps == 1:
        return shift_over_noise
    return round_up(shift_over_noise * math.sqrt(_amplification(lipschitz, steps)))


def inexact_shift(shift: float, relaxation: float, tolerance: float, items: int = 1) -> float:
    """Shift of one step of the whole state when every prox is solved to a certified tolerance.

    ``sqrt((Delta + 4 lambda tol)^2 + (n-1) (4 lambda tol)^2)``: the changed item's block moves by Delta and
    by its solver's error, every other block by its solver's error, on both data sets. One item (or the
    whole-data prox of general ADMM): ``Delta + 4 lambda tol``. For items of equal weights.

    Parameters
    ----------
    shift : float
        Delta, the changed block's shift under an exact prox (in consensus ``4 lambda L gamma``), at least 0.
    relaxation : float
        lambda, in (0, 1].
    tolerance : float
        Certified distance to the exact prox, fixed and public before the run, at least 0.
    items : int
        n, the number of blocks.
    """
    require(shift >= 0, "shift", shift, "Pass the shift under an exact prox, a number of at least 0.")
    require(0 < relaxation <= 1, "relaxation", relaxation, "Pass a number in (0, 1], for example 0.5.")
    require(tolerance >= 0, "tolerance", tolerance, "Pass the certified prox error, a number of at least 0.")
    require(items >= 1 and float(items).is_integer(), "items", items, "Pass a whole number of at least 1.")
    error = 4 * relaxation * tolerance
    return round_up(math.hypot(shift + error, math.sqrt(items - 1) * error), 2e-15)
