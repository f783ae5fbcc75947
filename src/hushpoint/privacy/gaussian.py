"""Gaussian differential privacy: the currency every guarantee is counted in.

A mechanism is mu-GDP when telling two neighbouring data sets apart is at least as hard as telling ``N(0, 1)``
from ``N(mu, 1)`` with one draw. Everything here is a statement about those two normals, and every bound is
rounded to the safe side: epsilon and delta up, the allowed mu down.

How the numbers stay sound. With ``top = mu/2 - epsilon/mu`` and the Mills ratio ``R(x) = Phi(x)/phi(x)``,

    delta = Phi(top) - exp(epsilon) Phi(top - mu) = phi(top) (R(top) - R(top - mu)),

because ``exp(epsilon) phi(top - mu) = phi(top)``. No exponential of epsilon is ever formed, and where the two
Mills ratios nearly agree their difference is integrated from the derivative ``R'(x) = 1 + x R(x)`` instead.
The slopes are ``d delta/d mu = phi(top)`` and ``d delta/d epsilon = -phi(top) R(top - mu)``; both are
log-concave, hence so is delta in mu and in epsilon, and Newton steps approach the root from the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy import special

from hushpoint._checks import require
from hushpoint._types import Array

RdpTable = tuple[Sequence[float], Sequence[float]]
RdpCurve = Callable[[float], float] | RdpTable
Conversion = Literal["paper", "improved"]

SMALLEST_DELTA = 1e-300
"""A delta below this is treated as 0."""

LARGEST_EPSILON = 1e12
"""A larger epsilon protects nobody, and its squares leave the range of floating-point numbers."""

_DENSE_ORDERS = {1.0 + 10.0 ** (k / 12) for k in range(-36, 73)}
_WHOLE_ORDERS = {float(k) for k in (*range(2, 65), 128, 256, 512, 1024)}
ORDERS: tuple[float, ...] = tuple(sorted(_DENSE_ORDERS | _WHOLE_ORDERS))
"""Renyi orders tried by default: dense from 1.001 to a million, with the whole numbers up to 64."""

_ROOT_TWO_PI = math.sqrt(2 * math.pi)
_LOG_ROOT_TWO_PI = 0.5 * math.log(2 * math.pi)
_UNDERFLOW = -38.6  # phi(x) is below the smallest positive float for every x under this
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)


def round_up(value: float, relative: float = 1e-15) -> float:
    """Lift a non-negative bound past the rounding of the few operations that made it."""
    return value * (1 + relative)


def _check_mu(mu: float) -> float:
    require(mu >= 0, "mu", mu, "Pass sensitivity divided by noise standard deviation, a number of at least 0.")
    return float(mu)


def _check_epsilon(epsilon: float) -> float:
    require(epsilon >= 0, "epsilon", epsilon, "Pass a number of at least 0.")
    return float(epsilon)


def _check_delta(delta: float) -> float:
    require(0 <= delta <= 1, "delta", delta, "Pass a probability from 0 to 1, for example 1e-6.")
    return float(delta)


def _check_order(alpha: float) -> None:
    require(alpha > 1, "alpha", alpha, "Renyi orders are above 1: pass for example alpha=2.0.")


# --- delta of mu-GDP


def _mills(x: float) -> float:
    """``Phi(x)/phi(x)``; grows without bound for positive x, so call it at x of at most a few units."""
    return math.sqrt(math.pi / 2) * float(special.erfcx(-x / math.sqrt(2)))


def _mills_slope(points: Array) -> Array:
    """``R'(x) = 1 + x R(x)``, by the continued fraction of R far to the left, where that sum would cancel."""
    if points[-1] > -10:
        return 1.0 + points * math.sqrt(math.pi / 2) * special.erfcx(-points / math.sqrt(2))
    tail = np.zeros_like(points)
    for level in range(12, 0, -1):
        tail = level / (tail - points)
    return tail / (tail - points)


def _mills_rise(top: float, width: float) -> float:
    """``R(top) - R(top - width)`` without cancellation, for top of at most 1."""
    high = _mills(top)
    difference = high - _mills(top - width)
    if difference > 0.1 * high:
        return difference
    points = top - 0.5 * width * (1.0 - _NODES)
    return 0.5 * width * float(_WEIGHTS @ _mills_slope(points))


def _log_delta(mu: float, epsilon: float) -> float:
    """Natural logarithm of delta for finite positive mu, neither padded nor clipped."""
    top = mu / 2 - epsilon / mu
    if top > 1:  # then mu > 2 and the difference is at least 0.68
        return math.log(float(special.ndtr(top)) - math.exp(-top * top / 2) / _ROOT_TWO_PI * _mills(top - mu))
    return -top * top / 2 - _LOG_ROOT_TWO_PI + math.log(_mills_rise(top, mu))


def _pad(mu: float, epsilon: float) -> float:
    """Bound on the relative error of delta: 1e-12, and what the rounding of ``top`` does to the density."""
    offset = epsilon / mu
    return 1e-12 + 1e-15 * (1 + abs(mu / 2 - offset)) * (mu / 2 + offset)


def _surely_underflows(mu: float, epsilon: float) -> bool:
    """True when delta is below the smallest positive float whatever the rounding of ``top``."""
    return epsilon / mu * (1 - 1e-15) - mu / 2 * (1 + 1e-15) > -_UNDERFLOW


def gdp_delta(mu: float, epsilon: float) -> float:
    """Smallest delta for which a mu-GDP mechanism is (epsilon, delta)-DP.

    ``delta = Phi(-epsilon/mu + mu/2) - exp(epsilon) Phi(-epsilon/mu - mu/2)``, exact for the Gaussian
    mechanism (Balle and Wang 2018; Dong, Roth and Su 2022), rounded up by about 1e-12 of itself. Accurate
    down to 1e-300; where the true value is too small for a float, the smallest positive one and not 0.

    Parameters
    ----------
    mu : float
        Sensitivity divided by noise standard deviation, at least 0; infinity gives 1.
    epsilon : float
        At least 0; infinity gives 0 for finite mu.
    """
    mu = _check_mu(mu)
    epsilon = _check_epsilon(epsilon)
    if mu == 0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    if math.isinf(epsilon):
        return 0.0
    if _surely_underflows(mu, epsilon):
        return math.nextafter(0.0, 1.0)
    value = math.exp(_log_delta(mu, epsilon))
    return min(1.0, math.nextafter(value * (1 + _pad(mu, epsilon)), math.inf))


# --- its inverses


def _lift_until_safe(mu: float, epsilon: float, delta: float, scale: float) -> float:
    """Smallest step up from epsilon that meets delta in floating point."""
    step = 1e-16 * (epsilon + scale)
    while gdp_delta(mu, epsilon) > delta:
        epsilon += step
        step *= 2
    return epsilon


def _lower_until_safe(mu: float, epsilon: float, delta: float) -> float:
    """A mu at least 1e-13 of itself lower, for the rounding of what is computed from it, that meets both."""
    step = 1e-13 * mu
    mu -= step
    while gdp_delta(mu, epsilon) > delta or gdp_epsilon(mu, delta) > epsilon:
        mu -= step
        step *= 2
    return mu


@lru_cache(maxsize=1024)  # every run of a plan asks again
def _newton_epsilon(mu: float, delta: float) -> float:
    log_target = math.log(delta)
    epsilon = mu * mu / 2 + mu * math.sqrt(-2 * log_target)  # Phi(top) <= delta already holds here
    if math.isinf(epsilon):
        return math.inf
    scale = 0.0
    for _ in range(60):
        top = mu / 2 - epsilon / mu
        log_delta = _log_delta(mu, epsilon)
        log_slope = -top * top / 2 - _LOG_ROOT_TWO_PI + math.log(_mills(top - mu)) - log_delta
        scale = math.exp(-log_slope)
        step = (log_delta + _pad(mu, epsilon) - log_target) * scale
        epsilon = max(0.0, epsilon + step)
        if abs(step) <= 1e-13 * epsilon:
            break
    return _lift_until_safe(mu, epsilon, delta, scale)


def gdp_epsilon(mu: float, delta: float) -> float:
    """Smallest epsilon for which a mu-GDP mechanism is (epsilon, delta)-DP.

    The root of ``gdp_delta(mu, epsilon) = delta``, 0 if delta is met there, rounded up: the returned value
    always satisfies ``gdp_delta(mu, epsilon) <= delta``.

    Parameters
    ----------
    mu : float
        Sensitivity divided by noise standard deviation, at least 0; infinity gives infinity.
    delta : float
        Probability from 0 to 1; below 1e-300 it counts as 0, for which the answer is infinity unless mu is 0.
    """
    mu = _check_mu(mu)
    delta = _check_delta(delta)
    if mu == 0 or delta == 1:
        return 0.0
    if math.isinf(mu) or delta < SMALLEST_DELTA:
        return math.inf
    mu = max(mu, 1e-305)  # what is smaller underflows in the formulas; more is safe
    if gdp_delta(mu, 0.0) <= delta:
        return 0.0
    return _newton_epsilon(mu, delta)


@lru_cache(maxsize=1024)
def _newton_mu(epsilon: float, delta: float) -> float:
    log_target = math.log(delta)
    root = math.sqrt(-2 * log_target)
    by_tail = 2 * epsilon / (math.sqrt(root * root + 2 * epsilon) + root)  # there Phi(top) <= delta
    at_zero = 2 * math.sqrt(2) * float(special.erfinv(delta))  # exact at epsilon = 0, safe above it
    mu = max(by_tail, at_zero)
    for _ in range(60):
        top = mu / 2 - epsilon / mu
        log_delta = _log_delta(mu, epsilon)
        scale = math.exp(log_delta + top * top / 2 + _LOG_ROOT_TWO_PI)
        step = (log_target - log_delta - _pad(mu, epsilon)) * scale
        mu = max(mu + step, mu / 2)  # the floor matters for delta near 1, where phi(top) vanishes
        if abs(step) <= 1e-13 * mu:
            break
    return _lower_until_safe(mu, epsilon, delta)


def gdp_mu(epsilon: float, delta: float) -> float:
    """Largest mu for which every mu-GDP mechanism is (epsilon, delta)-DP.

    The root of ``gdp_delta(mu, epsilon) = delta`` in mu, rounded down: the returned value always satisfies
    ``gdp_delta(mu, epsilon) <= delta`` and ``gdp_epsilon(mu, delta) <= epsilon``.

    Parameters
    ----------
    epsilon : float
        At least 0; infinity asks for nothing and gives infinity. A number above 1e12 counts as 1e12.
    delta : float
        Probability from 0 to 1; below 1e-300 it counts as 0, for which no noise is enough: the answer is 0.
    """
    epsilon = _check_epsilon(epsilon)
    delta = _check_delta(delta)
    if math.isinf(epsilon) or delta == 1:
        return math.inf
    if delta < SMALLEST_DELTA:
        return 0.0
    return _newton_mu(min(epsilon, LARGEST_EPSILON), delta)


# --- composition and Renyi divergences


def compose_mu(mus: Iterable[float], repeats: int = 1) -> float:
    """mu of several Gaussian releases about the same people, each allowed to depend on the earlier ones.

    Adaptive composition of mu_t-GDP mechanisms is ``sqrt(sum mu_t^2)``-GDP, and no smaller mu holds for
    Gaussian releases.

    Parameters
    ----------
    mus : iterable of float
        The releases, each at least 0. None at all gives 0.
    repeats : int
        How many times the whole list is released.
    """
    values = [_check_mu(mu) for mu in mus]
    whole = repeats >= 0 and float(repeats).is_integer()
    require(whole, "repeats", repeats, "Pass a whole number of at least 0.")
    spent = [mu for mu in values if mu > 0]
    if not spent or repeats == 0:
        return 0.0
    if len(spent) == 1 and repeats == 1:
        return spent[0]
    return round_up(math.hypot(*spent) * math.sqrt(repeats))


def gaussian_rdp(mu: float, alpha: float) -> float:
    """Renyi divergence of order alpha between ``N(0, 1)`` and ``N(mu, 1)``: ``alpha mu^2 / 2``.

    Every mu-GDP mechanism is (alpha, alpha mu^2/2)-RDP for every alpha above 1. The converse is false: a mu
    must never be read off an RDP curve.
    """
    mu = _check_mu(mu)
    _check_order(alpha)
    return 0.0 if mu == 0 else round_up(alpha * mu * mu / 2)


def _paper_conversion(alpha: float, rdp: float, delta: float) -> float:
    return round_up(rdp - math.log(delta) / (alpha - 1))


def _improved_conversion(alpha: float, rdp: float, delta: float) -> float:
    shrink = math.log1p(-1 / alpha)
    price = (math.log(delta) + math.log(alpha)) / (alpha - 1)
    rounding = 1e-15 * (rdp - shrink + (math.log(alpha) - math.log(delta)) / (alpha - 1))
    return max(0.0, rdp + shrink - price + rounding)


def _convert(alpha: float, rdp: float, delta: float, conversion: Conversion) -> float:
    _check_order(alpha)
    require(rdp >= 0, f"rdp at alpha = {alpha!r}", rdp, "Pass a divergence: at least 0, perhaps infinite.")
    if math.isinf(alpha) or math.isinf(rdp):
        return rdp
    return (_paper_conversion if conversion == "paper" else _improved_conversion)(alpha, rdp, delta)


def _minimise(function: Callable[[float], float], grid: Sequence[float]) -> float:
    """Least value of a function found on a grid and by golden section beside its best point."""
    values = [function(point) for point in grid]
    best = int(np.argmin(values))
    left = grid[best - 1] if best > 0 else grid[0] - 20.0
    right = grid[best + 1] if best + 1 < len(grid) else grid[-1] + 20.0
    least, ratio = values[best], (math.sqrt(5) - 1) / 2
    a, b = right - ratio * (right - left), left + ratio * (right - left)
    value_a, value_b = function(a), function(b)
    while right - left > 1e-7:
        least = min(least, value_a, value_b)
        if value_a <= value_b:
            right, b, value_b = b, a, value_a
            a = right - ratio * (right - left)
            value_a = function(a)
        else:
            left, a, value_a = a, b, value_b
            b = left + ratio * (right - left)
            value_b = function(b)
    return min(least, value_a, value_b)


def _epsilon_from_table(table: RdpTable, delta: float, conversion: Conversion) -> float:
    orders, values = table
    require(
        len(orders) == len(values) > 0,
        "rdp",
        f"{len(orders)} orders and {len(values)} values",
        "Pass one value for each order, and at least one order.",
    )
    pairs = zip(orders, values, strict=True)
    return min(_convert(float(alpha), float(value), delta, conversion) for alpha, value in pairs)


def rdp_epsilon(rdp: RdpCurve, delta: float, conversion: Conversion = "improved") -> float:
    """Epsilon at delta of a mechanism known by its Renyi divergences.

    ``"paper"``: the least over alpha of ``rdp(alpha) + ln(1/delta)/(alpha-1)`` (Mironov 2017).
    ``"improved"``: the least over alpha of ``rdp(alpha) + ln(1-1/alpha) - ln(delta alpha)/(alpha-1)``, at
    least 0 (Balle, Barthe, Gaboardi, Hsu and Sato 2020), never larger. Every order gives a valid bound, so an
    approximate optimum is safe. For one mu the answer of `gdp_epsilon` is never larger than either.

    Parameters
    ----------
    rdp : callable or pair of sequences
        The curve alpha -> Renyi divergence, defined (perhaps infinite) for every alpha above 1, and minimised
        over alpha continuously, starting from `ORDERS`; or ``(orders, values)``: minimised over those orders.
    delta : float
        Probability from 0 to 1; 0 gives infinity, except for a bounded divergence of infinite order.
    conversion : "paper" or "improved"
    """
    delta = _check_delta(delta)
    require(conversion in ("paper", "improved"), "conversion", conversion, "Choose 'paper' or 'improved'.")
    if delta == 1:
        return 0.0
    if not callable(rdp):
        return _epsilon_from_table(rdp, delta, conversion) if delta > 0 else _pure_epsilon(rdp)
    if delta == 0:
        return math.inf
    curve = rdp

    def at_log_order(position: float) -> float:
        alpha = 1.0 + math.exp(position)
        return _convert(alpha, float(curve(alpha)), delta, conversion)

    return _minimise(at_log_order, [math.log(alpha - 1.0) for alpha in ORDERS])


def _pure_epsilon(table: RdpTable) -> float:
    """Epsilon at delta = 0: the divergence of infinite order, where it is known."""
    return min((float(v) for alpha, v in zip(*table, strict=True) if math.isinf(alpha)), default=math.inf)
