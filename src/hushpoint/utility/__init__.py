"""Utility: how close a noisy run comes to the optimum, from public facts alone."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hushpoint.utility.bounds import (
    Tradeoff,
    admm_tradeoff,
    anchored_distance_bound,
    anchored_residual_bound,
    anchored_tradeoff,
    best_steps,
    contraction,
    distance_bound,
    distance_limit,
    federated_tradeoff,
    gradient_lipschitz,
    gradient_tradeoff,
    published_distance_bound,
    published_learning_rate,
    reflected_prox_lipschitz,
    residual_bound,
    splitting_lipschitz,
    start_distance,
)

if TYPE_CHECKING:
    from hushpoint.estimators.planner import Parameters, plan_parameters

__all__ = [
    "Parameters",
    "Tradeoff",
    "admm_tradeoff",
    "anchored_distance_bound",
    "anchored_residual_bound",
    "anchored_tradeoff",
    "best_steps",
    "contraction",
    "distance_bound",
    "distance_limit",
    "federated_tradeoff",
    "gradient_lipschitz",
    "gradient_tradeoff",
    "plan_parameters",
    "published_distance_bound",
    "published_learning_rate",
    "reflected_prox_lipschitz",
    "residual_bound",
    "splitting_lipschitz",
    "start_distance",
]


def __getattr__(name: str) -> Any:
    if name in ("Parameters", "plan_parameters"):  # of the estimators, which stand above
        return getattr(import_module("hushpoint.estimators.planner"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
