"""What a privacy budget buys: the noise that it asks of a method, and how far that keeps the run from the optimum.

All of it from public facts. Statements and proofs: docs/utility.md, section 6.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hushpoint._checks import (
    require_choice,
    require_count,
    require_flag,
    require_fraction,
    require_nonnegative,
    require_positive,
)
from hushpoint.certificates import ADJACENCIES
from hushpoint.privacy.gaussian import round_up
from hushpoint.privacy.guarantee import Adjacency
from hushpoint.utility.convergence import (
    anchored_distance_bound,
    distance_bound,
    gradient_lipschitz,
    noise_power,
    reflected_prox_lipschitz,
    require_smoothness,
    splitting_lipschitz,
)


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
    mu: float, steps: int, *, items: int, features: int, gradient_bound: float, smoothness: float,
    strong_convexity: float, gamma: float, model_size: float, relaxation: float = 0.5, ridge_in_loss: bool = True,
    tolerance: float = 0.0, adjacency: Adjacency = "replace-one",
) -> Tradeoff:  # fmt: skip
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
    gamma, relaxation = require_positive("gamma", gamma), require_fraction("relaxation", relaxation)
    beta, m = require_smoothness(smoothness), require_nonnegative("strong_convexity", strong_convexity)
    if require_flag("ridge_in_loss", ridge_in_loss):
        lipschitz, inner, outer = reflected_prox_lipschitz(gamma, beta + m, m), m, 0.0
    else:
        lipschitz, inner, outer = splitting_lipschitz(gamma, relaxation, beta, m), 0.0, m
    moved = _side(adjacency) * 4 * require_positive("gradient_bound", gradient_bound) * gamma / (1 + gamma * inner) / n
    tol = require_nonnegative("tolerance", tolerance)
    std = _composed_std(mu, steps, moved + 4 * tol)
    start = start_distance(model_size, gamma, gradient_bound, inner)
    width = require_count("features", features)
    # What an inexact prox adds to R is at most 2 tol.
    distance = distance_bound(steps, lipschitz, relaxation, std, width, start, error=2 * tol)
    return Tradeoff(steps, std, distance, distance / (1 + gamma * outer) ** 2)


def federated_tradeoff(
    mu: float, rounds: int, *, features: int, gradient_bound: float, smoothness: float, strong_convexity: float,
    gamma: float, model_size: float, relaxation: float = 0.5, ridge_in_loss: bool = False, tolerance: float = 0.0,
    rows_per_item: int = 1, adjacency: Adjacency = "replace-one",
) -> Tradeoff:  # fmt: skip
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
    rounds, rows = require_count("rounds", rounds), require_count("rows_per_item", rows_per_item)
    return admm_tradeoff(
        mu, rounds, items=rows, features=features, gradient_bound=gradient_bound, smoothness=smoothness,
        strong_convexity=strong_convexity, gamma=gamma, model_size=model_size, relaxation=relaxation,
        ridge_in_loss=ridge_in_loss, tolerance=tolerance, adjacency=adjacency,
    )  # fmt: skip


def gradient_tradeoff(
    mu: float, steps: int, *, items: int, features: int, gradient_bound: float, smoothness: float,
    strong_convexity: float, step_size: float, model_size: float, adjacency: Adjacency = "replace-one",
) -> Tradeoff:  # fmt: skip
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
    mu: float, rounds: int, *, items: int, features: int, gradient_bound: float, smoothness: float,
    strong_convexity: float, gamma: float, model_size: float, active_prob: float = 1.0,
    largest_weight: float | None = None, adjacency: Adjacency = "replace-one",
) -> Tradeoff:  # fmt: skip
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
    released = distance + noise_power(std, features)
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


def _composed_std(mu: float, steps: int, shift: float) -> float:
    """Noise with which so many releases, each moved by ``shift`` at most, compose to mu."""
    mu = require_positive("mu", mu, remedy="Pass the mu of the budget, for example hp.privacy.gdp_mu(epsilon, delta).")
    return round_up(math.sqrt(steps) * shift / mu, 4e-15)


def _side(adjacency: Adjacency) -> float:
    require_choice("adjacency", adjacency, ADJACENCIES)
    return 1.0 if adjacency == "replace-one" else 0.5
