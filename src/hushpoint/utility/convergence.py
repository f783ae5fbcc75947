"""How far a noisy fixed-point iteration is from its fixed point: bounds from public constants, no data.

Statements and proofs: docs/utility.md. With ``c`` the Lipschitz constant of the relaxed map, the mean square distance
``E`` to the fixed point follows ``E <- (1-q) E + q ((c sqrt(E) + lambda zeta)^2 + lambda^2 N sigma^2)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from hushpoint._checks import (
    require_choice,
    require_count,
    require_flag,
    require_fraction,
    require_nonnegative,
    require_positive,
    shown,
)
from hushpoint.operators.splitting import reflection_lipschitz
from hushpoint.privacy import published
from hushpoint.privacy.gaussian import round_up

Adjacency = Literal["replace-one", "zero-out"]


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
    beta = _require_smoothness(smoothness)
    m = require_nonnegative("strong_convexity", strong_convexity)
    if relaxation == 1 or m == 0 or math.isinf(beta):
        return 0.0
    return 4 * relaxation / (gamma * beta + 1 / (gamma * m) + 1 / (1 - relaxation))


# --- distance to the fixed point


def distance_bound(
    steps: int,
    lipschitz: float,
    relaxation: float,
    noise_std: float | Sequence[float],
    dimension: int,
    start_distance: float,
    active_prob: float = 1.0,
    error: float = 0.0,
    weights: Sequence[float] | None = None,
) -> float:
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
    lipschitz: float,
    relaxation: float,
    noise_std: float | Sequence[float],
    dimension: int,
    error: float = 0.0,
    weights: Sequence[float] | None = None,
) -> float:
    """What `distance_bound` tends to as the steps grow; infinite for lipschitz = 1 with noise or errors.

    ``lambda^2 (c zeta + sqrt(zeta^2 + (1 - c^2) N sigma^2))^2/(1 - c^2)^2``: whoever is active, since that changes
    only how fast it is reached.
    """
    return _Relaxed(lipschitz, relaxation, noise_std, dimension, 1.0, error, weights).limit


class _Relaxed:
    """The recursion of the mean square distance, with ``noise`` and ``error`` as they reach u."""

    def __init__(
        self,
        lipschitz: float,
        relaxation: float,
        noise_std: float | Sequence[float],
        dimension: int,
        active_prob: float,
        error: float,
        weights: Sequence[float] | None,
    ) -> None:
        tau = _require_lipschitz("lipschitz", lipschitz)
        relaxation = require_fraction("relaxation", relaxation)
        step = relaxation * (1 - tau)
        self.c, self.gap = 1 - step, step * (2 - step)  # 1 - c^2 without cancellation
        self.noise = relaxation**2 * _noise_power(noise_std, require_count("dimension", dimension), weights)
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
    steps: int,
    relaxation: float,
    noise_std: float | Sequence[float],
    dimension: int,
    start_distance: float,
    active_prob: float = 1.0,
    weights: Sequence[float] | None = None,
) -> float:
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
    steps = require_count("steps", steps)
    relaxation = _require_averaged(relaxation)
    start = require_nonnegative("start_distance", start_distance) ** 2
    kept = 1 - relaxation
    first = start / (steps * require_fraction("active_prob", active_prob) * relaxation * kept)
    return first + relaxation * _noise_power(noise_std, require_count("dimension", dimension), weights) / kept


# --- anchored ADMM: fresh noise on each release


def anchored_distance_bound(
    rounds: int,
    gamma: float,
    relaxation: float,
    noise_std: float,
    features: int,
    start_distance: float,
    smoothness: float,
    strong_convexity: float,
    active_prob: float = 1.0,
) -> float:
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
    power = _noise_power(noise_std, require_count("features", features))
    added = 4 * relaxation * power / (1 + gamma * strong_convexity)
    return _linear(rounds, start, gap, added, require_fraction("active_prob", active_prob))


def anchored_residual_bound(
    rounds: int, relaxation: float, noise_std: float, features: int, start_distance: float, active_prob: float = 1.0
) -> float:
    """Bound on the mean over the rounds of ``E sum_i w_i |x_i - z|^2`` at the released points, for any convex problem.

    ``E0/(4 T q lambda (1-lambda)) + p s^2/(1-lambda)``, where nothing is clipped and a solution exists; no smoothness
    and no strong convexity needed. Parameters as in `anchored_distance_bound`.
    """
    rounds = require_count("rounds", rounds)
    relaxation = _require_averaged(relaxation)
    start = require_nonnegative("start_distance", start_distance) ** 2
    active = require_fraction("active_prob", active_prob)
    first = start / (4 * rounds * active * relaxation * (1 - relaxation))
    return first + _noise_power(noise_std, require_count("features", features)) / (1 - relaxation)


# --- the paper's bound, for comparison


def published_distance_bound(
    steps: int,
    lipschitz: float,
    noise_std: float,
    dimension: int,
    start_distance: float,
    active_prob: float = 1.0,
    error: float = 0.0,
) -> float:
    """The paper's bound on ``E|u_T - u*|^2`` as printed, for comparison only; use `distance_bound`.

    ``(1 - q^2 (1-tau)/8)^(T-1) D + 8 ((sqrt(N) sigma + zeta)/(sqrt(q)(1-tau)) + (N sigma^2 + zeta^2)/(q (1-tau))^3)``,
    "for some relaxation", if ``sigma^2 > 1 - tau``. `distance_bound` at relaxation 1 is never larger. The printed one
    is looser because it treats the noise as an error that need not have mean zero (hence the term linear in sigma),
    has 1/q^3 where inactive blocks add no noise and so no q is needed, and q^2/8 for q in the rate.

    Parameters
    ----------
    steps : int
        T, at least 2: the printed k + 1.
    lipschitz, noise_std, dimension, start_distance, active_prob, error
        As in `distance_bound`.
    """
    return published.utility_bound(
        steps=require_count("steps", steps, least=2) - 1,
        contraction=lipschitz,
        block_prob=active_prob,
        dimension=dimension,
        noise_std=noise_std,
        initial_distance_squared=require_nonnegative("start_distance", start_distance) ** 2,
        error_std=error,
    )


def published_learning_rate(
    lipschitz: float, noise_std: float, dimension: int, active_prob: float = 1.0, error: float = 0.0
) -> float:
    """The relaxation that the paper's proof takes, for comparison only: mostly above 1, where no relaxation is.

    The printed interval of its lemma is `hushpoint.privacy.published.learning_rate_range`.
    """
    return published.proof_relaxation(
        contraction=lipschitz, block_prob=active_prob, dimension=dimension, noise_std=noise_std, error_std=error
    )


# --- what a privacy budget buys


@dataclass(frozen=True)
class Tradeoff:
    """What a method promises at a privacy budget: all of it from public facts.

    ``noise_std`` is what the method takes for the budget; ``distance`` bounds ``E|u_T - u*|^2`` (in consensus the
    weighted mean over the blocks), ``model_distance`` bounds ``E|z_T - z*|^2`` for the model.
    """

    steps: int
    noise_std: float
    distance: float
    model_distance: float


def start_distance(model_size: float, gamma: float, gradient_bound: float, ridge: float = 0.0) -> float:
    """Bound on ``|u_0 - u*|`` of an ADMM that starts at zero: ``|1 - gamma ridge| |z*| + gamma L``.

    For consensus in the weighted norm. ``u_i* = z* - gamma grad f_i(z*)``, and ``ridge`` is the part of f_i that is no
    loss. ``model_size`` is a public guess of a bound on ``|z*|``.
    """
    size = require_nonnegative("model_size", model_size)
    gamma, bound = require_positive("gamma", gamma), require_nonnegative("gradient_bound", gradient_bound)
    return abs(1 - gamma * require_nonnegative("ridge", ridge)) * size + gamma * bound


def admm_tradeoff(
    mu: float,
    steps: int,
    *,
    items: int,
    features: int,
    gradient_bound: float,
    smoothness: float,
    strong_convexity: float,
    gamma: float,
    model_size: float,
    relaxation: float = 0.5,
    ridge_in_loss: bool = True,
    tolerance: float = 0.0,
    adjacency: Adjacency = "replace-one",
) -> Tradeoff:
    """Accuracy of `private_admm` (A = I) when all its iterates together are mu-GDP.

    ``sigma = sqrt(T) (4 L gamma/(n (1 + gamma m)) + 4 tol)/mu``, N = features, and tau of the reflected prox of f where
    the ridge sits with the losses; `splitting_lipschitz` and no ``1 + gamma m`` where it sits with g.

    Parameters
    ----------
    mu, steps
        The budget, a mu of Gaussian differential privacy (``hp.privacy.gdp_mu``); T, at least 1.
    items, features : int
        n and the length of the model.
    gradient_bound, smoothness : float
        L and beta of one row's loss.
    strong_convexity : float
        m, of the ridge.
    gamma, relaxation, ridge_in_loss, tolerance
        As in ``private_admm``; a tolerance of 0 stands for exact proxes.
    model_size : float
        A public guess of a bound on ``|z*|``: the length of the optimal model.
    adjacency : {"replace-one", "zero-out"}
    """
    n, steps = require_count("items", items), require_count("steps", steps)
    step = _ridged_step(gamma, relaxation, smoothness, strong_convexity, ridge_in_loss)
    moved = step.moved(gradient_bound, adjacency) / n
    return step.tradeoff(mu, steps, moved, tolerance, features, model_size, gradient_bound)


def federated_tradeoff(
    mu: float,
    rounds: int,
    *,
    features: int,
    gradient_bound: float,
    smoothness: float,
    strong_convexity: float,
    gamma: float,
    model_size: float,
    relaxation: float = 0.5,
    ridge_in_loss: bool = False,
    tolerance: float = 0.0,
    rows_per_item: int = 1,
    adjacency: Adjacency = "replace-one",
) -> Tradeoff:
    """Accuracy of consensus ADMM with noise in the blocks, everyone in every round, when all messages are mu-GDP.

    ``sigma = sqrt(T) (4 L gamma/((1 + gamma m) n_i) + 4 tol)/mu``, ``1 + gamma m`` where the ridge sits in every
    item's loss. In the weighted norm the noise has power ``p sigma^2``, so the number of items does not appear.

    Parameters
    ----------
    rows_per_item : int
        1 protects items as a whole. The number of rows of the smallest item protects single rows (record level).
    mu, features, gradient_bound, smoothness, strong_convexity, gamma, model_size, relaxation, ridge_in_loss, tolerance
        As in `admm_tradeoff`.
    """
    rounds = require_count("rounds", rounds)
    step = _ridged_step(gamma, relaxation, smoothness, strong_convexity, ridge_in_loss)
    moved = step.moved(gradient_bound, adjacency) / require_count("rows_per_item", rows_per_item)
    return step.tradeoff(mu, rounds, moved, tolerance, features, model_size, gradient_bound)


@dataclass(frozen=True)
class _Ridged:
    """An ADMM step whose ridge sits with the losses or with the other function."""

    gamma: float
    relaxation: float
    lipschitz: float
    inner: float  # the ridge that sits with the losses
    outer: float  # the ridge that sits with the other function

    def moved(self, gradient_bound: float, adjacency: Adjacency) -> float:
        """How far one item of weight 1 moves R."""
        L = require_positive("gradient_bound", gradient_bound)
        return _side(adjacency) * 4 * L * self.gamma / (1 + self.gamma * self.inner)

    def tradeoff(
        self,
        mu: float,
        steps: int,
        moved: float,
        tolerance: float,
        features: int,
        model_size: float,
        gradient_bound: float,
    ) -> Tradeoff:
        tol = require_nonnegative("tolerance", tolerance)
        std = _composed_std(mu, steps, moved + 4 * tol)
        start = start_distance(model_size, self.gamma, gradient_bound, self.inner)
        error = 2 * tol  # what an inexact prox adds to R
        width = require_count("features", features)
        distance = distance_bound(steps, self.lipschitz, self.relaxation, std, width, start, error=error)
        return Tradeoff(steps, std, distance, distance / (1 + self.gamma * self.outer) ** 2)


def _ridged_step(
    gamma: float, relaxation: float, smoothness: float, strong_convexity: float, ridge_in_loss: bool
) -> _Ridged:
    gamma, relaxation = require_positive("gamma", gamma), require_fraction("relaxation", relaxation)
    beta, m = _require_smoothness(smoothness), require_nonnegative("strong_convexity", strong_convexity)
    if require_flag("ridge_in_loss", ridge_in_loss):
        return _Ridged(gamma, relaxation, reflected_prox_lipschitz(gamma, beta + m, m), m, 0.0)
    return _Ridged(gamma, relaxation, splitting_lipschitz(gamma, relaxation, beta, m), 0.0, m)


def gradient_tradeoff(
    mu: float,
    steps: int,
    *,
    items: int,
    features: int,
    gradient_bound: float,
    smoothness: float,
    strong_convexity: float,
    step_size: float,
    model_size: float,
    adjacency: Adjacency = "replace-one",
) -> Tradeoff:
    """Accuracy of `dp_sgd` on all items when all its iterates together are mu-GDP.

    ``noise_std = sqrt(T) 2 L/(n mu)`` on the mean gradient. A step is a contraction with constant
    ``max(1, |1 - g beta|)/(1 + g m)``, the ridge m being in the regulariser, and its noise has standard deviation
    ``g noise_std/(1 + g m)``.

    Parameters
    ----------
    step_size : float
        g, small enough for a contraction: below ``2/(beta - m)``.
    mu, steps, items, features, gradient_bound, smoothness, strong_convexity, model_size, adjacency
        As in `admm_tradeoff`.
    """
    n, steps = require_count("items", items), require_count("steps", steps)
    g = require_positive("step_size", step_size)
    shrink = 1 / (1 + g * require_nonnegative("strong_convexity", strong_convexity))
    lipschitz = shrink * gradient_lipschitz(g, smoothness)
    if lipschitz > 1:
        raise ValueError(
            f"step_size is {step_size}, with which a step is no contraction: its Lipschitz constant is {lipschitz:g}. "
            f"Pass at most 2/smoothness = {2 / smoothness:g}."
        )
    L = require_positive("gradient_bound", gradient_bound)
    std = _composed_std(mu, steps, _side(adjacency) * 2 * L / n)
    start = require_nonnegative("model_size", model_size)
    distance = distance_bound(steps, lipschitz, 1.0, shrink * g * std, require_count("features", features), start)
    return Tradeoff(steps, std, distance, distance)


def anchored_tradeoff(
    mu: float,
    rounds: int,
    *,
    items: int,
    features: int,
    gradient_bound: float,
    smoothness: float,
    strong_convexity: float,
    gamma: float,
    model_size: float,
    active_prob: float = 1.0,
    largest_weight: float | None = None,
    adjacency: Adjacency = "replace-one",
) -> Tradeoff:
    """Accuracy of `anchored_admm` at relaxation 1/2, with its default radius, when all its releases are mu-GDP.

    ``s = sqrt(T) 2 gamma L max_i w_i/mu`` at item level, then `anchored_distance_bound`; the model is the prox of the
    last release, which adds ``p s^2``.

    Parameters
    ----------
    active_prob : float
        The probability with which each item takes part in a round; it does not change the noise.
    largest_weight : float, optional
        The largest of the items' weights; default 1/items.
    mu, items, features, gradient_bound, smoothness, strong_convexity, gamma, model_size, adjacency
        As in `admm_tradeoff`; the ridge is in the regulariser.
    """
    n, rounds = require_count("items", items), require_count("rounds", rounds)
    gamma = require_positive("gamma", gamma)
    heaviest = 1 / n if largest_weight is None else require_fraction("largest_weight", largest_weight)
    L = require_positive("gradient_bound", gradient_bound)
    std = _composed_std(mu, rounds, _side(adjacency) * 2 * gamma * L * heaviest)
    start = start_distance(model_size, gamma, gradient_bound)
    distance = anchored_distance_bound(
        rounds, gamma, 0.5, std, features, start, smoothness, strong_convexity, active_prob
    )
    released = distance + _noise_power(std, features)
    return Tradeoff(rounds, std, distance, released / (1 + gamma * strong_convexity) ** 2)


def best_steps(bound: Callable[[int], float], largest: int) -> int:
    """The number of steps, from 1 to ``largest``, at which a bound is least; the smallest one of several.

    For bounds that fall and then rise, as all trade-offs here do with exact proxes (docs/utility.md, 6), in a number
    of calls that grows with the logarithm of ``largest``. For others, the best of a geometric grid, improved nearby.

    >>> best_steps(lambda steps: (steps - 30) ** 2, largest=10_000)
    30
    """
    largest = require_count("largest", largest)
    grid = [1]
    while grid[-1] < largest:
        grid.append(min(largest, max(grid[-1] + 1, grid[-1] * 5 // 4)))
    values = [bound(steps) for steps in grid]
    best = values.index(min(values))
    low, high = grid[max(0, best - 1)], grid[min(len(grid) - 1, best + 1)]
    while low < high:
        middle = (low + high) // 2
        if bound(middle) <= bound(middle + 1):
            high = middle
        else:
            low = middle + 1
    return low if bound(low) <= values[best] else grid[best]


# --- shared pieces


def _composed_std(mu: float, steps: int, shift: float) -> float:
    """Noise with which so many releases, each moved by ``shift`` at most, compose to mu."""
    mu = require_positive("mu", mu, remedy="Pass the mu of the budget, for example hp.privacy.gdp_mu(epsilon, delta).")
    return round_up(math.sqrt(steps) * shift / mu, 4e-15)


def _side(adjacency: Adjacency) -> float:
    require_choice("adjacency", adjacency, ("replace-one", "zero-out"))
    return 1.0 if adjacency == "replace-one" else 0.5


def _noise_power(noise_std: float | Sequence[float], size: int, weights: Sequence[float] | None = None) -> float:
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
    if number > 1:
        raise ValueError(f"{name} is {shown(value)}. {remedy}")
    return number


def _require_averaged(relaxation: Any) -> float:
    remedy = "Pass a number in (0, 1): at 1 there is no such bound."
    number = require_fraction("relaxation", relaxation, remedy=remedy)
    if number == 1:
        raise ValueError(f"relaxation is {shown(relaxation)}. {remedy}")
    return number


def _require_smoothness(smoothness: Any) -> float:
    """A smoothness constant; infinite where nothing is known."""
    if isinstance(smoothness, float) and smoothness == math.inf:
        return math.inf
    return require_nonnegative("smoothness", smoothness, remedy="Pass a number >= 0, or math.inf where unknown.")


def _require_curvature(smoothness: Any, strong_convexity: Any) -> tuple[float, float]:
    """The two constants of one function: the second cannot exceed the first."""
    beta, m = _require_smoothness(smoothness), require_nonnegative("strong_convexity", strong_convexity)
    if m > beta:
        raise ValueError(
            f"strong_convexity is {shown(strong_convexity)} and smoothness is {shown(smoothness)}. "
            "The curvature of a function is at least the first and at most the second: pass them in this order."
        )
    return beta, m
