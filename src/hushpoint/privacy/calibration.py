"""Noise for a budget, and rounds for a budget. Never over it: every answer is checked by the accountant itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from hushpoint._checks import require_kind
from hushpoint.privacy.accounting import Spend, answer, ask
from hushpoint.privacy.gaussian import gdp_mu
from hushpoint.privacy.guarantee import Budget

if TYPE_CHECKING:
    from hushpoint.plan import Plan

_WASTE = 2e-4  # part of epsilon that a search may leave unspent
_MOST_ROUNDS = 1 << 40


def calibrated_std(plan: Plan, budget: Budget) -> float:
    """The smallest noise (``plan.noise.std``) with which the plan stays within the budget."""

    def epsilon_at(std: float) -> float:
        return spend_at(std).epsilon(budget.delta)

    def spend_at(std: float) -> Spend:
        noisy = replace(plan, noise=replace(plan.noise, std=std, unit=None))
        return answer(ask(noisy, budget.view, budget.adjacency, budget.unit))

    at_one = spend_at(1.0)
    if at_one.mu is not None:
        if math.isinf(at_one.mu):
            raise ValueError(
                f"view is {budget.view or plan.default_view!r}, and no noise of this method protects it: "
                f"{at_one.because[0]}. Choose another view or a method with noise at the clients."
            )
        # mu is proportional to 1/std
        return _lifted(at_one.mu / gdp_mu(budget.epsilon, budget.delta), epsilon_at, budget.epsilon)
    if at_one.calibrated is not None:
        return _lifted(at_one.calibrated(budget.epsilon, budget.delta), epsilon_at, budget.epsilon)
    return _searched(epsilon_at, budget.epsilon)


def _lifted(std: float, epsilon_at: Callable[[float], float], epsilon: float) -> float:
    """Lift past the rounding of the last few operations."""
    for lift in (0.0, 1e-15, 1e-13, 1e-11, 1e-9, 1e-7):
        if epsilon_at(std * (1 + lift)) <= epsilon:
            return std * (1 + lift)
    return _searched(epsilon_at, epsilon, std)


def _searched(epsilon_at: Callable[[float], float], epsilon: float, guess: float = 1.0) -> float:
    """Bisection for a loss that falls with the noise; returns the noisy end, which is within the budget."""
    low = high = guess
    for _ in range(200):
        if epsilon_at(high) <= epsilon:
            break
        low, high = high, 2 * high
    else:
        raise ValueError(f"epsilon is {epsilon}, which no noise reaches for this plan and view. Choose a larger one.")
    while epsilon_at(low) <= epsilon and low > 1e-200:
        low, high = low / 2, low
    while high / low > 1 + 1e-6 and epsilon_at(high) < epsilon * (1 - _WASTE):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if epsilon_at(middle) <= epsilon else (middle, high)
    return high


def rounds_affordable(plan: Plan, budget: Budget) -> int | float:
    """How many steps (rounds, hops) of the plan's noise a budget pays for: 0 if not one, infinity if any number.

    With the last-iterate bound of a contraction the loss stays bounded, so any number may be affordable. A schedule of
    relaxations or step sizes is cut where it is too long, and begins anew where it ends, as in a run that goes on.
    """

    require_kind("budget", budget, Budget, remedy="Call rounds_affordable(plan, Budget(epsilon, delta)).")

    def affordable(steps: int) -> bool:
        asked = ask(_lasting(plan, steps), budget.view, budget.adjacency, budget.unit, steps=steps)
        return answer(asked).epsilon(budget.delta) <= budget.epsilon

    if plan.noise.std == 0:
        return 0
    low, high = 0, 1
    while affordable(high):
        low, high = high, 2 * high
        if high > _MOST_ROUNDS:
            return math.inf
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if affordable(middle) else (low, middle)
    return low


def _lasting(plan: Plan, steps: int) -> Plan:
    """The plan whose run makes so many steps; one that repeats its schedule need not spell it out."""
    if isinstance(plan.relaxation, tuple):
        steps = min(steps, len(plan.relaxation))
        return replace(plan, steps=steps, relaxation=plan.relaxation[:steps])
    return replace(plan, steps=steps)
