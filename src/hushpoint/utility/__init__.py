"""Utility: how close a noisy run comes to the optimum, from public facts alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hushpoint._on_demand import on_demand
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
    from hushpoint.estimators.expected import ExpectedAccuracy, expected_accuracy
    from hushpoint.estimators.planner import Parameters, plan_parameters

__all__ = ["ExpectedAccuracy", "Parameters", "Tradeoff"]
__all__ += ["anchored_distance_bound", "anchored_residual_bound", "contraction", "distance_bound", "distance_limit"]
__all__ += ["gradient_lipschitz", "reflected_prox_lipschitz", "residual_bound", "splitting_lipschitz"]
__all__ += ["admm_tradeoff", "anchored_tradeoff", "best_steps", "federated_tradeoff", "gradient_tradeoff"]
__all__ += ["expected_accuracy", "plan_parameters", "start_distance"]

# Of the estimators, which stand above.
__getattr__, __dir__ = on_demand(
    __name__,
    __all__,
    {
        "hushpoint.estimators.expected": ["ExpectedAccuracy", "expected_accuracy"],
        "hushpoint.estimators.planner": ["Parameters", "plan_parameters"],
    },
)
