"""A regulariser of one's own: the Lasso for coefficients that cannot be negative. A value and a prox."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import hushpoint as hp
from hushpoint.federated import run_in_process


# recipe
@dataclass(frozen=True)
class NonNegativeL1(hp.regularizers.Regularizer):
    """``strength`` times the sum of coefficients, none of them below 0."""

    name: ClassVar[str] = "nonnegative_l1"
    strength: float

    def value(self, z):
        return np.where(np.any(z < 0, axis=-1), np.inf, self.strength * np.sum(z, axis=-1))

    def prox(self, v, step):
        return np.maximum(v - step * self.strength, 0.0)


# end of the recipe


def main():
    """Plan, guarantee, run, JSON and a federation in one process."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 4)) / 2
    y = X @ np.array([1.0, -1.0, 0.5, 0.0]) + 0.1 * rng.normal(size=6000)
    regularizer = NonNegativeL1(0.01)
    problem = hp.Problem(X, y, "huber", regularizer, row_norm=2.0, groups=np.arange(6000) // 1000)
    plan = hp.methods.dp_sgd(problem, 40, 1.0, budget=hp.Budget(1.0, 1e-5, unit="record"))
    print(plan.guarantee(1e-5, unit="record"))
    again = hp.Plan.from_json(plan.to_json()).on(problem)
    model, saved = plan.run(seed=0).model, again.run(seed=0).model
    federated = run_in_process(again, problem, seed=0).model
    print("model:", model.round(2), "  saved and read:", saved.round(2), "  federated:", federated.round(2))
    return plan, model, saved, federated


if __name__ == "__main__":
    main()
