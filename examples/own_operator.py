"""An operator of one's own with an accounting rule of its own: a mean of vectors, clipped ever tighter.

    z <- z + (1/n) (sum_i clip(x_i - z, C lambda_t) + noise)

The certificate bounds a step at its largest lambda. The rule knows that the clip shrinks with lambda: it adds up what
each step really costs, which is less.
"""

import math

import numpy as np

import hushpoint as hp


# recipe
class ClippedMean(hp.operators.Operator):
    """The mean of rows, by steps from the last estimate to rows that are cut to ``radius`` times the relaxation."""

    name = "clipped mean"
    places = ("sum",)

    def __init__(self, facts, radius):
        self.facts, self.radius = facts, radius
        self.blocks, self.message_size = facts.items, facts.width

    def start(self):
        return np.zeros(self.message_size), np.zeros((self.blocks, 0))

    def local(self, data, chosen, block, z, relaxation, kick):
        offsets = np.asarray(data.take(chosen).features) - z
        lengths = np.linalg.norm(offsets, axis=1, keepdims=True)
        return block, offsets / np.maximum(1.0, lengths / (self.radius * relaxation))

    def combine(self, shared, total, chosen, relaxation):
        return shared + total / self.blocks

    def certificate(self, relaxation):
        moved = 2 * self.radius * relaxation
        because = f"rows within {moved / 2:g} of the last estimate"
        return hp.Certificate(None, {"record": moved}, because, theorem=hp.Theorem(place="sum"))


def by_the_step(question):
    """Every step is one Gaussian release, with the sensitivity of its own relaxation."""
    plan = question.plan
    shifts = [
        plan.operator.certificate(plan.relaxation_at(step)).shift(question.unit, question.adjacency)
        for step in range(question.steps)
    ]
    mu = math.sqrt(sum(shift**2 for shift in shifts)) / plan.noise.std
    return hp.privacy.gaussian_spend(question, mu, "1", plan.certificate.because, "iterates")


hp.privacy.register_rule(ClippedMean, by_the_step, "iterates")
# end of the recipe


def main():
    """Plan, guarantee, run; and the oracle that looks for a broken promise."""
    rng = np.random.default_rng(0)
    X = np.array([3.0, -2.0, 1.0]) + rng.normal(size=(2000, 3))
    neighbour = X.copy()
    neighbour[0] = 1e6
    problem, other = (hp.Problem(table, np.zeros(len(X)), row_norm=10.0) for table in (X, neighbour))
    plan = hp.Plan(
        ClippedMean(problem.facts, radius=6.0),
        hp.schedules.EveryBlock(problem.items),
        hp.noise.Noise(60.0, "sum"),
        steps=8,
        relaxation=tuple(0.7**step for step in range(8)),
        facts=problem.facts,
        problem=problem,
    )
    print(plan.guarantee(delta=1e-6))
    print("broken promises:", hp.privacy.broken_promises(plan, plan.on(other), item=0) or "none found")
    model = plan.run(seed=0).model
    print("private mean:", model.round(2), "  mean:", X.mean(axis=0).round(2))
    return plan, model


if __name__ == "__main__":
    main()
