"""What few rounds cost: trainings in so many noisy sums over all plans, beside those that take as many as they like.

``settled`` problems were looked at while the rules were made, ``"held out"`` ones were run once, at the end. Splits and
seeds are the same for every number of rounds.

    python benchmarks/rounds.py [settled] ["held out"] [--data DIRECTORY]     # the latter: Adult and California
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from expected import generated, one_hot, real
from planner import Array, bundled
from sklearn.datasets import load_digits
from sklearn.metrics import r2_score
from tables import Split

import hushpoint as hp
from hushpoint.estimators.training import Trained, train
from hushpoint.utility import plan_parameters

BUDGETS = (0.1, 0.3, 1.0, 3.0)
ROUNDS = (20, 15, 12, 10)
Problem = Callable[[], tuple[Split, bool]]

SETTLED: dict[str, Problem] = {
    "small": partial(generated, 1000, 5, 10, 3),
    "steep": partial(generated, 5000, 30, 1000, 4, along=0),
    "flat": partial(generated, 5000, 50, 1, 2),
    "rare class": partial(generated, 10_000, 20, 100, 2, 3),
    "wide": partial(generated, 5000, 200, 100, 4, along=1),
    "one-hot": partial(one_hot, 10_000, 10, 12),
    "regression, steep": partial(generated, 5000, 30, 1000, 1, along=0, regression=True),
    "regression": partial(generated, 10_000, 20, 30, 2, regression=True),
}
HELD_OUT: dict[str, Problem] = {
    "digits": lambda: (bundled(load_digits, lambda target: target % 2 > 0), True),
    "very steep": partial(generated, 30_000, 60, 3000, 3, 2, along=0.3, seed=5),
    "long tails": partial(generated, 20_000, 200, 50, 3, shape="long tails", seed=6),
    "short rows": partial(generated, 8000, 15, 10, 3, filled=0.1, seed=7),
    "one-hot, many levels": partial(one_hot, 30_000, 8, 25),
    "regression, long tails": partial(generated, 20_000, 50, 300, 2, shape="long tails", regression=True, seed=9),
    "regression, weak": partial(generated, 30_000, 150, 30, 0.5, along=1, regression=True, seed=11),
}


def fitted(data: Split, two_class: bool, epsilon: float, adjacency: str, rounds: int | None, seed: int) -> Trained:
    """A model; an error if it took more rounds or more budget than declared."""
    people, features = data.train.shape
    loss, targets = ("logistic", 2 * data.train_targets - 1) if two_class else ("squared", data.train_targets)
    budget = hp.Budget(epsilon, people**-1.1, adjacency=adjacency)
    plan = plan_parameters(people, features, budget, loss=loss, rounds=rounds)
    problem = hp.Problem(data.train, targets, loss, row_norm=1.0)
    trained = train(problem, [problem.rows.targets], plan, delta=budget.delta, fit_intercept=True, seed=seed)
    assert rounds is None or trained.passes <= rounds
    assert trained.guarantee.epsilon <= epsilon
    return trained


def score(data: Split, two_class: bool, model: Array) -> float:
    """Accuracy or 100 R2 on the test rows, predictions of a regression clipped to the declared range."""
    predicted = data.test @ model[:-1] + model[-1]
    if two_class:
        return 100 * float(((predicted > 0) == (data.test_targets > 0)).mean())
    return 100 * float(r2_score(data.test_targets, np.clip(predicted, -1, 1)))


def compare(name: str, problem: Problem, adjacency: str, seeds: int, budgets: tuple[float, ...]) -> None:
    """Rows of the table, one per budget: rounds and score of the free choice, then what fewer rounds change."""
    data, two_class = problem()
    for epsilon in budgets:
        scores, passes = [], []
        for rounds in (None, *ROUNDS):
            fits = [fitted(data, two_class, epsilon, adjacency, rounds, seed) for seed in range(seeds)]
            scores.append(np.array([score(data, two_class, fit.models[0]) for fit in fits]))
            passes.append(fits[0].passes)
        cells = [
            f"{one.mean():+.2f} ({one.std(ddof=1) / np.sqrt(seeds):.2f})" for one in np.array(scores[1:]) - scores[0]
        ]
        free = f"{scores[0].mean():.2f} in {passes[0]}"
        print(
            f"| {name} | {'x'.join(map(str, data.train.shape))} | {epsilon:g} | {free} | {' | '.join(cells)} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", help='settled, "held out"; default: both, or with --data none')
    parser.add_argument("--data", type=Path, help="directory of adult.csv.gz and california_housing.csv.gz")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--adjacency", default="zero-out")
    parser.add_argument("--epsilon", type=float, nargs="*", default=BUDGETS)
    options = parser.parse_args()
    groups = {"settled": SETTLED, "held out": HELD_OUT}
    if unknown := set(options.groups) - groups.keys():
        parser.error(f"no such group: {', '.join(unknown)}")
    chosen = {name: groups[name] for name in options.groups or ([] if options.data else groups)}
    if options.data:
        chosen["real"] = real(options.data)
    print(
        f"Test accuracy in %, or 100 R2, with as many rounds as the planner likes, and how much fewer change it "
        f"(standard error of {options.seeds} pairs); {options.adjacency}, delta = n^-1.1."
    )
    for group, problems in chosen.items():
        print(
            f"\n{group}\n| problem | n x p | eps | free | " + " | ".join(f"{rounds} rounds" for rounds in ROUNDS) + " |"
        )
        print("|---" * (len(ROUNDS) + 4) + "|")
        for name, problem in problems.items():
            compare(name, problem, options.adjacency, options.seeds, tuple(options.epsilon))


if __name__ == "__main__":
    main()
