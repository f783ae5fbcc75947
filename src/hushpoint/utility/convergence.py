"""How far a noisy fixed-point iteration is from its fixed point: bounds from public constants, no data.

Statements and proofs: docs/utility.md. With ``c`` the Lipschitz constant of the relaxed map, the mean square distance
``E`` to the fixed point follows ``E <- (1-q) E + q ((c sqrt(E) + lambda zeta)^2 + lambda^2 N sigma^2)``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hushpoint._checks import (
    require,
    require_count,
    require_fraction,
    require_inside,
    require_nonnegative,
    require_positive,
    shown,
)
from hushpoint.operators.splitting import reflection_lipschitz

# --- Lipschitz constants


def contraction(operator_lipschitz: float, relaxation: float) -> float:
    """Lipschitz constant of the relaxed map of all blocks, ``c = 1 - lambda (1 - tau)``.

    Parameters
    ----------
    operator_lipschitz : float
        tau, the Lipschitz constant of R, from 0 to 1.
    relaxation : float
        lambda, in (0, 1].
    """
    tau = _require_lipschitz("operator_lipschitz", operator_lipschitz)
    return 1 - require_fraction("relaxation", relaxation) * (1 - tau)


def gradient_lipschitz(step: float, smoothness: float, strong_convexity: float = 0.0) -> float:
    """Lipschitz constant of ``I - g grad f``: ``max(|1 - g m|, |1 - g beta|)``; above 1 for steps beyond 2/beta.

    With the best step ``2/(beta + m)`` it is ``(beta - m)/(beta + m)``.
    """
    step = require_positive("step", step)
    require_positive("smoothness", smoothness)
    beta, m = _require_curvature(smoothness, strong_convexity)
    return max(abs(1 - step * m), abs(1 - step * beta))


def reflected_prox_lipschitz(gamma: float, smoothness: float, strong_convexity: float = 0.0) -> float:
    """Lipschitz constant of ``2 prox_{gamma f} - I``: ``max((gamma beta-1)/(gamma beta+1), (1-gamma m)/(1+gamma m))``.

    Below 1 only if f is both smooth and strongly convex; ``smoothness`` may be infinite, which gives 1.
    """
    gamma = require_positive("gamma", gamma)
    beta, m = _require_curvature(smoothness, strong_convexity)
    return reflection_lipschitz(gamma, m, beta)


def splitting_lipschitz(gamma: float, relaxation: float, smoothness: float, strong_convexity: float) -> float:
    """tau of a relaxed ADMM step when one function is smooth and the *other* strongly convex.

    The composition of the two reflected proxes is then only non-expansive, but relaxed it is a contraction:
    ``c^2 = 1 - 4 lambda/(gamma beta + 1/(gamma m) + 1/(1 - lambda))`` (docs/utility.md, 1). Returned is the number
    for which ``contraction(tau, relaxation)`` is c: every bound here that takes a Lipschitz constant holds with it, at
    this relaxation. 1 at relaxation 1. In consensus beta is that of every item's loss and m that of the regulariser.
    """
    relaxation = require_fraction("relaxation", relaxation)
    gap = _splitting_gap(require_positive("gamma", gamma), relaxation, smoothness, strong_convexity)
    return max(0.0, 1 - gap / (1 + math.sqrt(1 - gap)) / relaxation)  # 1 - c = (1 - c^2)/(1 + c)


def _splitting_gap(gamma: float, relaxation: float, smoothness: float, strong_convexity: float) -> float:
    """``1 - c^2`` of a relaxed step with one smooth and one strongly convex function."""
    beta = require_smoothness(smoothness)
    m = require_nonnegative("strong_convexity", strong_convexity)
    if relaxation == 1 or m == 0 or math.isinf(beta):
        return 0.0
    return 4 * relaxation / (gamma * beta + 1 / (gamma * m) + 1 / (1 - relaxation))


# --- distance to the fixed point


def distance_bound(
    steps: int, lipschitz: float, relaxation: float, noise_std: float | Sequence[float], dimension: int,
    start_distance: float, active_prob: float = 1.0, error: float = 0.0, weights: Sequence[float] | None = None,
) -> float:  # fmt: skip
    """Bound on ``E|u_T - u*|^2`` after T noisy steps of a contraction.

    ``r^T |u_0 - u*|^2 + (1 - r^T) lambda^2 N sigma^2/(1 - c^2)`` with ``c = 1 - lambda (1 - tau)`` and
    ``r = 1 - q (1 - c^2)``; with errors the recursion above, step by step. An equality for R = tau I, and for
    tau times a rotation at relaxation 1. For lipschitz = 1 it grows with every step: see `residual_bound`.

    Parameters
    ----------
    steps : int
        T, at least 0.
    lipschitz : float
        tau, the Lipschitz constant of R, from 0 to 1.
    relaxation : float
        lambda, in (0, 1].
    noise_std : float
        sigma of Algorithm 1; with ``weights``, one number or one per block.
    dimension : int
        N, the coordinates of u (in consensus items times features); with ``weights``, the coordinates of one block.
    start_distance : float
        ``|u_0 - u*|``, or a bound on it; not squared.
    active_prob : float
        q, the probability with which each block is active, independent of state, error and noise.
    error : float
        zeta, with ``E|e|^2 <= zeta^2``, for errors that are independent of the step's noise.
    weights : sequence of float, optional
        Weights of the blocks, which sum to 1. All lengths, the answer's too, are then in the weighted norm
        ``sum_i w_i |u_i|^2`` in which weighted consensus is non-expansive. With equal weights the answer is 1/n of
        that without; it bounds the distance of the (weighted) mean of the blocks.
    """
    steps = require_count("steps", steps, least=0)
    start = require_nonnegative("start_distance", start_distance) ** 2
    relaxed = _Relaxed(lipschitz, relaxation, noise_std, dimension, active_prob, error, weights)
    return relaxed.after(steps, start)


def distance_limit(
    lipschitz: float, relaxation: float, noise_std: float | Sequence[float], dimension: int, error: float = 0.0,
    weights: Sequence[float] | None = None,
) -> float:  # fmt: skip
    """What `distance_bound` tends to as the steps grow; infinite for lipschitz = 1 with noise or errors.

    ``lambda^2 (c zeta + sqrt(zeta^2 + (1 - c^2) N sigma^2))^2/(1 - c^2)^2``: whoever is active, since that changes
    only how fast it is reached.
    """
    return _Relaxed(lipschitz, relaxation, noise_std, dimension, 1.0, error, weights).limit


class _Relaxed:
    """The recursion of the mean square distance, with ``noise`` and ``error`` as they reach u."""

    def __init__(
        self, lipschitz: float, relaxation: float, noise_std: float | Sequence[float], dimension: int,
        active_prob: float, error: float, weights: Sequence[float] | None,
    ) -> None:  # fmt: skip
        tau = _require_lipschitz("lipschitz", lipschitz)
        relaxation = require_fraction("relaxation", relaxation)
        step = relaxation * (1 - tau)
        self.c, self.gap = 1 - step, step * (2 - step)  # 1 - c^2 without cancellation
        self.noise = relaxation**2 * noise_power(noise_std, require_count("dimension", dimension), weights)
        self.prob = require_fraction("active_prob", active_prob)
        self.error = relaxation * require_nonnegative("error", error)

    @property
    def limit(self) -> float:
        """The fixed point of the recursion, where x = sqrt(E) solves ``gap x^2 - 2 c error x = error^2 + noise``."""
        if self.noise == self.error == 0:
            return 0.0
        if self.gap == 0:
            return math.inf
        root = self.c * self.error + math.sqrt(self.error**2 + self.gap * self.noise)
        return (root / self.gap) ** 2

    def after(self, steps: int, start: float) -> float:
        if self.error == 0:
            return _linear(steps, start, self.gap, self.noise, self.prob)
        value, limit = start, self.limit
        for _ in range(steps):
            if math.isfinite(limit) and abs(value - limit) <= 1e-12 * limit:
                return max(value, limit)  # it gets no further than the limit, from either side
            value += self.prob * ((self.c * math.sqrt(value) + self.error) ** 2 + self.noise - value)
        return value


def _linear(steps: int, start: float, gap: float, added: float, prob: float) -> float:
    """``E <- (1 - q gap) E + q added``, so many times from the start."""
    if steps == 0:
        return start
    if gap == 0:
        return start + steps * prob * added
    if prob * gap == 1:
        return added
    exponent = steps * math.log1p(-prob * gap)
    return math.exp(exponent) * start - math.expm1(exponent) * added / gap


def residual_bound(
    steps: int, relaxation: float, noise_std: float | Sequence[float], dimension: int, start_distance: float,
    active_prob: float = 1.0, weights: Sequence[float] | None = None,
) -> float:  # fmt: skip
    """Bound on the mean over the steps of ``E|u_k - R u_k|^2``, k < T, for R that is only non-expansive.

    ``|u_0 - u*|^2/(T q lambda (1-lambda)) + lambda N sigma^2/(1-lambda)``, for any fixed point u*. In consensus ADMM
    ``u_i - R_i u = 2 (z - x_i)``; for ``R = I - (2/beta) grad f`` it is 2/beta times the gradient.

    Parameters
    ----------
    steps : int
        T, at least 1.
    relaxation : float
        lambda, in (0, 1): at 1 there is no such bound (a rotation never comes closer).
    noise_std, dimension, start_distance, active_prob, weights
        As in `distance_bound`.
    """
    steps, relaxation = require_count("steps", steps), _require_averaged(relaxation)
    start = require_nonnegative("start_distance", start_distance) ** 2
    kept = 1 - relaxation
    first = start / (steps * require_fraction("active_prob", active_prob) * relaxation * kept)
    return first + relaxation * noise_power(noise_std, require_count("dimension", dimension), weights) / kept


# --- anchored ADMM: fresh noise on each release


def anchored_distance_bound(
    rounds: int, gamma: float, relaxation: float, noise_std: float, features: int, start_distance: float,
    smoothness: float, strong_convexity: float, active_prob: float = 1.0,
) -> float:  # fmt: skip
    """Bound on ``E sum_i w_i |u_i - u_i*|^2`` after rounds of anchored ADMM in which nothing is clipped.

    ``r^T E0 + (1 - r^T) 4 lambda p s^2/((1 + gamma m)(1 - c^2))`` with ``c^2`` of `splitting_lipschitz` and
    ``r = 1 - q (1 - c^2)``. At relaxation 1/2 the default radius ``gamma L`` never clips. The next release adds
    ``p s^2`` to the mean of the blocks, and the model is its prox.

    Parameters
    ----------
    rounds, gamma, relaxation, noise_std
        T; the prox step; lambda, in (0, 1); s, the standard deviation of each release's noise.
    features : int
        p, the length of the model.
    start_distance : float
        ``sqrt(sum_i w_i |u_i - u_i*|^2)`` at the start; see `start_distance`.
    smoothness, strong_convexity : float
        beta of every item's loss; m of the regulariser.
    active_prob : float
        q, the probability with which each item takes part.
    """
    rounds = require_count("rounds", rounds, least=0)
    gamma, relaxation = require_positive("gamma", gamma), _require_averaged(relaxation)
    gap = _splitting_gap(gamma, relaxation, smoothness, strong_convexity)
    start = require_nonnegative("start_distance", start_distance) ** 2
    power = noise_power(noise_std, require_count("features", features))
    added = 4 * relaxation * power / (1 + gamma * strong_convexity)
    return _linear(rounds, start, gap, added, require_fraction("active_prob", active_prob))


def anchored_residual_bound(
    rounds: int, relaxation: float, noise_std: float, features: int, start_distance: float, active_prob: float = 1.0
) -> float:
    """Bound on the mean over the rounds of ``E sum_i w_i |x_i - z|^2`` at the released points, for any convex problem.

    ``E0/(4 T q lambda (1-lambda)) + p s^2/(1-lambda)``, where nothing is clipped and a solution exists; no smoothness
    and no strong convexity needed. Parameters as in `anchored_distance_bound`.
    """
    rounds, relaxation = require_count("rounds", rounds), _require_averaged(relaxation)
    start = require_nonnegative("start_distance", start_distance) ** 2
    active = require_fraction("active_prob", active_prob)
    first = start / (4 * rounds * active * relaxation * (1 - relaxation))
    return first + noise_power(noise_std, require_count("features", features)) / (1 - relaxation)


# --- shared pieces


def noise_power(noise_std: float | Sequence[float], size: int, weights: Sequence[float] | None = None) -> float:
    """``N sigma^2``, or in the weighted norm ``sum_i w_i p sigma_i^2``."""
    if weights is None:
        return size * require_nonnegative("noise_std", noise_std) ** 2
    shares = [require_positive("weights", weight) for weight in weights]
    if abs(math.fsum(shares) - 1) > 1e-9:
        raise ValueError(f"weights sum to {math.fsum(shares):g}. Divide them by their sum.")
    stds = noise_std if isinstance(noise_std, (Sequence, np.ndarray)) else [noise_std] * len(shares)
    if len(stds) != len(shares):
        raise ValueError(f"noise_std has {len(stds)} entries for {len(shares)} weights. Pass one number, or one each.")
    powers = (share * require_nonnegative("noise_std", std) ** 2 for share, std in zip(shares, stds, strict=True))
    return size * math.fsum(powers)


def _require_lipschitz(name: str, value: Any) -> float:
    remedy = "Pass the Lipschitz constant of a non-expansive operator, from 0 to 1."
    number = require_nonnegative(name, value, remedy=remedy)
    require(number <= 1, name, value, remedy)
    return number


def _require_averaged(relaxation: Any) -> float:
    return require_inside("relaxation", relaxation, remedy="Pass a number in (0, 1): at 1 there is no such bound.")


def require_smoothness(smoothness: Any) -> float:
    """A smoothness constant; infinite where nothing is known."""
    if isinstance(smoothness, float) and smoothness == math.inf:
        return math.inf
    return require_nonnegative("smoothness", smoothness, remedy="Pass a number >= 0, or math.inf where unknown.")


def _require_curvature(smoothness: Any, strong_convexity: Any) -> tuple[float, float]:
    """The two constants of one function: the second cannot exceed the first."""
    beta, m = require_smoothness(smoothness), require_nonnegative("strong_convexity", strong_convexity)
    if m > beta:
        raise ValueError(
            f"strong_convexity is {shown(strong_convexity)} and smoothness is {shown(smoothness)}. "
            "The curvature of a function is at least the first and at most the second: pass them in this order."
        )
    return beta, m
