"""A schedule of one's own: users work in shifts, one shift a step. Who moves, and how often at the most.

Consensus ADMM with noise in the blocks is private whoever takes part, so that such a schedule has a guarantee.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

import hushpoint as hp


# recipe
@dataclass(frozen=True)
class Shifts(hp.schedules.Schedule):
    """Every ``shifts``-th block at a time, in turn."""

    name: ClassVar[str] = "shifts"
    shifts: int = 3

    def draw(self, step, source, position):
        return np.arange(step % self.shifts, self.blocks, self.shifts)

    def participations(self, steps):
        return -(-steps // self.shifts)


# end of the recipe


def main():
    """Plan, guarantee, run and JSON."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 4)) / 2
    y = X @ np.array([1.0, -1.0, 0.5, 0.0]) + 0.1 * rng.normal(size=6000)
    problem = hp.Problem(X, y, "huber", row_norm=2.0, groups=np.arange(6000) // 500)
    plan = hp.methods.federated_admm(problem, 30, 2.0, noise_std=0.2)
    plan = replace(plan, schedule=Shifts(problem.items, shifts=3))
    print(plan.guarantee(1e-5, unit="record"))
    again = hp.Plan.from_json(plan.to_json()).on(problem)
    model, saved = plan.run(seed=0).model, again.run(seed=0).model
    print("model:", model.round(2), "  saved and read:", saved.round(2))
    return plan, model, saved


if __name__ == "__main__":
    main()
