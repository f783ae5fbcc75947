"""Utility: how close a noisy run comes to the optimum, from public facts alone."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hushpoint.utility.convergence import (
    anchored_distance_bound,
    anchored_residual_bound,
    contraction,
    distance_bound,
    distance_limit,
    gradient_lipschitz,
    reflected_prox_lipschitz,
    residual_bound,
    splitting_lipschitz,
)
from hushpoint.utility.tradeoffs import (
    Tradeoff,
    admm_tradeoff,
    anchored_tradeoff,
    best_steps,
    federated_tradeoff,
    gradient_tradeoff,
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
    "reflected_prox_lipschitz",
    "residual_bound",
    "splitting_lipschitz",
    "start_distance",
]


def __getattr__(name: str) -> Any:
    if name in ("Parameters", "plan_parameters"):  # of the estimators, which stand above
        return getattr(import_module("hushpoint.estimators.planner"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
