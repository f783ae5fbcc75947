"""Privacy of Gaussian sums over a secret random sample: Poisson samples and samples of a fixed size.

One step releases ``sum over the sampled items of message_i + N(0, s^2 I)``, every message of norm at most
``bound``; ``noise_multiplier = s / bound`` throughout. Who is sampled is drawn afresh at every step, from coins
that do not depend on the data, and is never revealed. Later messages may depend on everything released before.

The pairs that dominate one step, in units of ``bound`` (q the probability of being sampled):

    zero-out      (1-q) N(0, s^2) + q N(1, s^2)   against   N(0, s^2),               and the reverse
    replace-one   (1-q) N(0, s^2) + q N(1, s^2)   against   (1-q) N(0, s^2) + q N(-1, s^2)

*Why they dominate.* Reveal the other items' coins: the divergence is jointly convex, so the worst revealed case
is a bound. What is left is ``P = (1-q) N(0) + q N(v)`` against ``Q = (1-q) N(0) + q N(w)`` with
``|v|, |w| <= 1`` in any dimension. For ``a = e^epsilon >= 1``, with ``k = (a-1)(1-q)/q`` and Z standard normal,

    [P - a Q]_+  integrates to  q E [1 - k exp(X - |v|^2/2s^2) - a exp(Y - |v-w|^2/2s^2)]_+,
    X = -<v, Z>/s,  Y = <w-v, Z>/s.

The bracket is a convex function of a sum of two terms, one increasing in X and one increasing in Y: it is
supermodular in (X, Y), so its mean grows with their correlation (Slepian) and is largest when -v and w-v point
the same way. On a line its derivative in ``|v|/s`` is k times a normal density, in ``|v-w|/s`` it is a times
one: it grows with both lengths, which are at most 1 and 2. Both are attained at v = 1, w = -1. For a < 1 swap P
and Q. Zero-out, w = 0, is on a line from the start: either direction grows with ``|v|``. A message that depends on
state the item keeps to itself is a mixture of messages, and joint convexity covers it. Dominating pairs compose,
adaptively too (Zhu, Dong and Wang 2022).

How the numbers stay sound is said in ``privacy_loss``, which composes these pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy import special

from hushpoint._checks import require, require_choice, require_count, require_fraction, require_inside, require_positive
from hushpoint._types import Array
from hushpoint.certificates import ADJACENCIES
from hushpoint.privacy.gaussian import gdp_epsilon, gdp_mu, rdp_epsilon, round_up
from hushpoint.privacy.privacy_loss import (
    ACCURACY,
    ROUGH,
    Profile,
    antipodal_profile,
    composed_epsilon,
    remove_profile,
    two_way_profile,
)

Adjacency = Literal["zero-out", "replace-one"]
FixedSizeMethod = Literal["renyi", "profile"]

_LARGEST_ORDER = 1e4  # Renyi orders above it are charged as if unsampled


# --- Poisson samples


def _check_step(noise_multiplier: float, sample_prob: float, steps: int) -> None:
    remedy = "Pass the standard deviation of the noise on the sum divided by the bound on one message, above 0."
    require_positive("noise_multiplier", noise_multiplier, remedy=remedy)
    _check_sampling(sample_prob, steps)


def _check_sampling(sample_prob: float, steps: int) -> None:
    require_fraction("sample_prob", sample_prob, remedy="Pass a probability above 0, at most 1.")
    require_count("steps", steps)


def _check_delta(delta: float) -> None:
    require_inside("delta", delta, remedy="Pass a probability between 0 and 1, for example 1e-6.")


def _shift(adjacency: Adjacency) -> int:
    """How far one item can move the sum when it is sampled, in units of the bound."""
    return 1 if adjacency == "zero-out" else 2


def _ever_sampled(sample_prob: float, steps: int) -> float:
    """Probability that one item is in at least one of the samples, rounded up."""
    return round_up(-math.expm1(steps * math.log1p(-sample_prob)), 1e-12)


def _poisson_profiles(noise_multiplier: float, sample_prob: float, adjacency: Adjacency) -> list[Profile]:
    if adjacency == "replace-one":
        return [antipodal_profile(1 / noise_multiplier, sample_prob)]
    remove = remove_profile(1 / noise_multiplier, sample_prob)
    return [remove, remove.reversed()]


def poisson_epsilon(
    noise_multiplier: float, sample_prob: float, steps: int, delta: float, adjacency: Adjacency = "zero-out"
) -> float:
    """Epsilon at delta of Gaussian sums over secret Poisson samples, released one after the other.

    Every item is in a step's sample with probability ``sample_prob``, independently of all else and never
    revealed; a step releases the sum of the sampled messages, each of norm at most ``bound``, plus
    ``N(0, (noise_multiplier * bound)^2 I)``. Then the ``steps`` releases together are (epsilon, delta)-DP for one
    item's presence (zero-out) or value (replace-one). Proved; rounded up, by about 1e-4 of epsilon.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise on the *sum* divided by the norm bound of one message.
    sample_prob : float
        Probability of being sampled; 1 is the Gaussian mechanism, answered exactly.
    steps : int
        Number of releases.
    delta : float
        Between 0 and 1. Below 1e-15 the bound stays one but may be looser.
    adjacency : "zero-out" or "replace-one"
    """
    _check_step(noise_multiplier, sample_prob, steps)
    _check_delta(delta)
    require_choice("adjacency", adjacency, ADJACENCIES)
    return _poisson_epsilon(noise_multiplier, sample_prob, int(steps), delta, adjacency, ACCURACY)


@lru_cache(maxsize=256)  # every run of a plan asks again
def _poisson_epsilon(
    noise_multiplier: float, sample_prob: float, steps: int, delta: float, adjacency: Adjacency, accuracy: float
) -> float:
    unsampled = gdp_epsilon(round_up(_shift(adjacency) * math.sqrt(steps) / noise_multiplier), delta)
    if sample_prob == 1 or unsampled == 0:
        return unsampled
    if _ever_sampled(sample_prob, steps) <= delta:
        return 0.0  # the two worlds differ only if the item is ever sampled
    epsilon = 0.0
    for profile in _poisson_profiles(noise_multiplier, sample_prob, adjacency):
        epsilon = max(epsilon, composed_epsilon(profile, steps, delta, accuracy, epsilon))
    return min(unsampled, epsilon)


def poisson_noise(
    epsilon: float, delta: float, sample_prob: float, steps: int, adjacency: Adjacency = "zero-out"
) -> float:
    """Noise multiplier that spends a budget on Gaussian sums over secret Poisson samples.

    The result meets ``poisson_epsilon(result, sample_prob, steps, delta, adjacency) <= epsilon``, and leaves at
    most 0.1% of epsilon unspent.

    Parameters
    ----------
    epsilon, delta : float
        The budget: epsilon above 0, delta between 0 and 1.
    sample_prob, steps, adjacency
        As for `poisson_epsilon`.
    """
    require(0 < epsilon < math.inf, "epsilon", epsilon, "Pass a positive number, for example 1.0.")
    _check_delta(delta)
    _check_sampling(sample_prob, steps)
    require_choice("adjacency", adjacency, ADJACENCIES)
    shift, total = _shift(adjacency), gdp_mu(epsilon, delta)
    if sample_prob == 1:
        multiplier = shift * math.sqrt(steps) / total
        while gdp_epsilon(round_up(shift * math.sqrt(steps) / multiplier), delta) > epsilon:
            multiplier = round_up(multiplier)
        return multiplier
    ever = _ever_sampled(sample_prob, steps)
    require(
        ever > delta,
        "delta",
        delta,
        f"An item is sampled at all with probability {ever:.3g}, so no noise would meet this budget on paper and "
        "expose whoever is sampled. Pass a delta well below that.",
    )

    def evaluate(multiplier: float, accuracy: float) -> float:
        return _poisson_epsilon(multiplier, sample_prob, int(steps), delta, adjacency, accuracy)

    # the central limit: mu = shift * q * sqrt(steps (exp(1/multiplier^2) - 1))
    guess = 1 / math.sqrt(math.log1p((total / (shift * sample_prob)) ** 2 / steps))
    rough, slope = _solve_multiplier(lambda noise: evaluate(noise, ROUGH), epsilon, guess, -1.0, 0.004)
    return _solve_multiplier(lambda noise: evaluate(noise, ACCURACY), epsilon, rough, slope, 0.0004)[0]


def _solve_multiplier(
    evaluate: Callable[[float], float], epsilon: float, guess: float, slope: float, waste: float
) -> tuple[float, float]:
    """A multiplier whose evaluated epsilon, falling in it, is at most epsilon and short of it by ``waste`` at most.

    Secant steps on logarithms inside a bracket, halving the bracket whenever one would leave it. Begins with a
    guess of the multiplier and of the slope, and returns both.
    """
    low, high = -math.inf, math.inf  # log multipliers that spend too much, and that do not
    at = math.log(guess)
    previous: tuple[float, float] | None = None
    for _ in range(80):
        spent = evaluate(math.exp(at))
        excess = math.log(spent / epsilon) if 0 < spent < math.inf else math.copysign(math.inf, spent - epsilon)
        if -waste <= excess <= 0:
            return math.exp(at), slope
        low, high = (at, high) if excess > 0 else (low, at)
        if previous is not None and math.isfinite(excess):
            slope = min((excess - previous[1]) / (at - previous[0]), -0.05)
        previous = (at, excess) if math.isfinite(excess) else None
        following = at + min(max(-(excess + 0.4 * waste) / slope, -1.0), 1.0)
        if not low < following < high:
            following = (low + high) / 2
        if high - low < 1e-6:
            break
        at = following
    return math.exp(high), slope


# --- Renyi divergences beside it


def poisson_rdp(noise_multiplier: float, sample_prob: float, alpha: float) -> float:
    """Renyi divergence of order alpha of one Poisson-sampled Gaussian sum, zero-out.

    ``log A(alpha) / (alpha - 1)`` with ``A = E_{x ~ N(0, s^2)} (1-q + q exp((2x-1)/(2 s^2)))^alpha``, s the
    noise multiplier: the larger of the two directions (Mironov, Talwar and Zhang 2019, Theorem 5). Whole orders
    by the binomial sum, orders below 32 by a trapezoidal rule that is accurate to rounding, others by the
    chord of the convex function ``(alpha - 1) rdp(alpha)``, which is a bound. Never above the unsampled
    ``alpha/(2 s^2)``, which stands in for orders above 10,000.
    """
    _check_step(noise_multiplier, sample_prob, 1)
    require(1 < alpha < math.inf, "alpha", alpha, "Renyi orders are above 1: pass for example alpha=2.0.")
    unsampled = round_up(alpha / (2 * noise_multiplier**2))
    if sample_prob == 1 or alpha > _LARGEST_ORDER:
        return unsampled
    return min(unsampled, _at_any_order(lambda order: _poisson_log_moment(noise_multiplier, sample_prob, order), alpha))


def _at_any_order(log_moment: Callable[[float], float | None], alpha: float) -> float:
    """``log_moment(alpha)/(alpha-1)`` rounded up, by the chord between whole orders where it is not known."""
    value = log_moment(alpha)
    if value is None:
        below, above = float(math.floor(alpha)), float(math.floor(alpha) + 1)
        left, right = log_moment(below) if below > 1 else 0.0, log_moment(above)
        assert left is not None
        assert right is not None
        value = left + (alpha - below) * (right - left)
    return round_up(max(value, 0.0) / (alpha - 1), 1e-9)


def _poisson_log_moment(noise: float, prob: float, alpha: float) -> float | None:
    """``log A(alpha)``, or None at orders that are neither whole nor small.

    From ``A - 1``, which keeps its digits however small: the first two terms of the binomial sum make up the 1,
    and under the integral ``1 + alpha (m - 1)`` does, m the mixture's ratio, of mean 1, to the plain normal.
    """
    if alpha == math.floor(alpha):
        count = np.arange(2.0, alpha + 1)
        rise = count * (count - 1) / (2 * noise**2)
        terms = (
            _log_binomial(alpha, count)
            + count * math.log(prob)
            + (alpha - count) * math.log1p(-prob)
            + rise
            + np.log(-np.expm1(-rise))
        )
        return float(np.logaddexp(0.0, special.logsumexp(terms)))
    width = noise * min(0.25, 0.5 * noise)
    size = (alpha + 26 * noise) / width
    if alpha > 32 or size > 1e6:
        return None
    points = np.arange(math.ceil(size), dtype=np.float64) * width - 13 * noise
    ratio = np.logaddexp(math.log1p(-prob), math.log(prob) + (points - 0.5) / noise**2)
    small = np.minimum(ratio, 20 / alpha)
    excess = np.log(np.maximum(np.expm1(alpha * small) - alpha * np.expm1(small), 1e-300))
    large = np.maximum(ratio, 20 / alpha)
    beyond = alpha * large + np.log1p((alpha - 1) * np.exp(-alpha * large) - alpha * np.exp((1 - alpha) * large))
    density = -0.5 * (points / noise) ** 2 - math.log(noise * math.sqrt(2 * math.pi))
    total = special.logsumexp(np.where(ratio < 20 / alpha, excess, beyond) + density) + math.log(width)
    return float(np.logaddexp(0.0, total))


def _log_binomial(total: float, chosen: Array) -> Array:
    whole: Array = special.gammaln(total + 1) - special.gammaln(chosen + 1) - special.gammaln(total - chosen + 1)
    return whole


def poisson_rdp_epsilon(noise_multiplier: float, sample_prob: float, steps: int, delta: float) -> float:
    """Epsilon at delta, zero-out, through `poisson_rdp`: for comparison, never below `poisson_epsilon`'s truth."""
    _check_step(noise_multiplier, sample_prob, steps)
    _check_delta(delta)
    return rdp_epsilon(lambda alpha: steps * poisson_rdp(noise_multiplier, sample_prob, alpha), delta)


# --- samples of a fixed size


def _check_sample(sample_size: int, items: int) -> None:
    whole = all(isinstance(count, int | np.integer) and not isinstance(count, bool) for count in (sample_size, items))
    require(
        whole and 1 <= sample_size <= items,
        "sample_size of items",
        f"{sample_size} of {items}",
        "Pass whole numbers, at least one item in the sample and no more than there are.",
    )


def fixed_size_rdp(noise_multiplier: float, sample_size: int, items: int, alpha: float) -> float:
    """Renyi divergence of order alpha of one Gaussian sum over a uniform sample of fixed size.

    The sample of ``sample_size`` items is drawn without replacement and never revealed; ``gamma`` is its part of
    the items. With ``eps(j) = 2 j / noise_multiplier^2`` the divergence of the unsampled sum, in which a
    replaced message moves by twice its bound, at whole orders

        1/(alpha-1) log(1 + gamma^2 C(alpha,2) min(4 (e^eps(2) - 1), 2 e^eps(2))
                          + 2 sum_{j=3}^alpha gamma^j C(alpha,j) e^((j-1) eps(j)))

    (Wang, Balle and Kasiviswanathan 2019, Theorem 9, a Gaussian's divergence of infinite order being infinite);
    between them the chord of ``(alpha - 1) rdp`` (their Corollary 10); never above ``eps(alpha)``. Replace-one, at
    the level of whole items, for messages that do not depend on state kept by the items. The same number holds
    for zero-out and is not to be halved there: the item that fills the place of an unsampled one moves too.
    """
    _check_step(noise_multiplier, 1.0, 1)
    _check_sample(sample_size, items)
    require(1 < alpha < math.inf, "alpha", alpha, "Renyi orders are above 1: pass for example alpha=2.0.")
    unsampled = round_up(2 * alpha / noise_multiplier**2)
    if sample_size == items or alpha > _LARGEST_ORDER:
        return unsampled
    part = sample_size / items
    return min(unsampled, _at_any_order(lambda order: _fixed_size_log_moment(noise_multiplier, part, order), alpha))


def _fixed_size_log_moment(noise: float, part: float, alpha: float) -> float | None:
    if alpha != math.floor(alpha):
        return None
    order = np.arange(2.0, alpha + 1)
    terms = math.log(2) + order * (order - 1) * 2 / noise**2  # (j-1) eps(j)
    pair = 4 / noise**2  # eps(2)
    terms[0] = min(math.log(4) + pair + math.log(-math.expm1(-pair)), math.log(2) + pair)
    terms += order * math.log(part) + _log_binomial(alpha, order)
    return float(np.logaddexp(0.0, special.logsumexp(terms)))


def fixed_size_epsilon(
    noise_multiplier: float, sample_size: int, items: int, steps: int, delta: float, method: FixedSizeMethod = "renyi"
) -> float:
    """Epsilon at delta of Gaussian sums over secret samples of a fixed size; the setting is `fixed_size_rdp`'s.

    ``"renyi"``: the smaller of `fixed_size_rdp` converted and of no amplification at all,
    ``mu = 2 sqrt(steps)/noise_multiplier``. ``"profile"``: composition of the profile

        max(H((1-g) N(0) + g N(2) || N(0)), H(N(0) || (1-g) N(0) + g N(2))),  g = sample_size/items,

    of noise ``noise_multiplier``, which dominates one step (Zhu, Dong and Wang 2022; the argument of this module's
    description with ``|v| <= 2``, v and w being measured from the item that fills the place) and is never larger
    than the unsampled one: much smaller numbers, by the same means as `poisson_epsilon`. Both hold for
    replace-one and zero-out, at the level of whole items, without state kept by the items.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise on the *sum* divided by the norm bound of one message.
    sample_size, items : int
        Size of every sample, and public number of items.
    steps : int
        Number of releases, each with its own sample.
    delta : float
        Between 0 and 1.
    method : "renyi" or "profile"
    """
    _check_step(noise_multiplier, 1.0, steps)
    _check_sample(sample_size, items)
    _check_delta(delta)
    require(method in ("renyi", "profile"), "method", method, "Choose 'renyi' or 'profile'.")
    unsampled = gdp_epsilon(round_up(2 * math.sqrt(steps) / noise_multiplier), delta)
    if sample_size == items or unsampled == 0:
        return unsampled
    if method == "profile":
        return min(unsampled, _fixed_size_profile(noise_multiplier, sample_size / items, int(steps), delta))
    sampled = rdp_epsilon(lambda alpha: steps * fixed_size_rdp(noise_multiplier, sample_size, items, alpha), delta)
    return min(unsampled, sampled)


@lru_cache(maxsize=256)
def _fixed_size_profile(noise_multiplier: float, part: float, steps: int, delta: float) -> float:
    return composed_epsilon(two_way_profile(2 / noise_multiplier, part), steps, delta)
