"""A loss of one's own: sqrt(1 + (t - b)^2) - 1, a smooth cousin of Huber's. Three methods and two constants.

It runs in every method, by name in a saved plan, and in a federation.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import hushpoint as hp
from hushpoint.federated import run_in_process


# recipe
@dataclass(frozen=True)
class PseudoHuber(hp.losses.Loss):
    """Quadratic near the target, of slope 1 far away."""

    name: ClassVar[str] = "pseudo_huber"
    lipschitz: ClassVar[float] = 1.0
    smoothness: ClassVar[float] = 1.0

    def value(self, t, b):
        return np.hypot(1.0, t - b) - 1.0

    def derivative(self, t, b):
        return (t - b) / np.hypot(1.0, t - b)

    def curvature(self, t, b):
        return np.hypot(1.0, t - b) ** -3


# end of the recipe


def main():
    """Plan, guarantee, run, JSON and a federation in one process."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 4)) / 2
    y = X @ np.array([1.0, -1.0, 0.5, 0.0]) + 0.1 * rng.standard_t(2, size=6000)
    problem = hp.Problem(X, y, loss="pseudo_huber", row_norm=2.0, groups=np.arange(6000) // 1000)
    plan = hp.methods.dp_sgd(problem, 40, 1.0, budget=hp.Budget(1.0, 1e-5, unit="record"))
    print(plan.guarantee(1e-5, unit="record"))
    again = hp.Plan.from_json(plan.to_json()).on(problem)
    model, saved = plan.run(seed=0).model, again.run(seed=0).model
    federated = run_in_process(again, problem, seed=0).model
    print("model:", model.round(2), "  saved and read:", saved.round(2), "  federated:", federated.round(2))
    return plan, model, saved, federated


if __name__ == "__main__":
    main()
