"""Does one data-free plan suit many problems? The estimator's defaults beside full-batch DP-GD tuned on the test set.

The opponent picks its step size, steps, clip and whether to have an intercept by looking at the test accuracy, which no
honest user could do.

    python benchmarks/planner.py [NAME ...]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.datasets import load_breast_cancer, load_digits
from tables import Split, unit_rows

import hushpoint as hp

Array = NDArray[np.float64]

SEEDS = 10
BUDGETS = (0.1, 0.3, 1.0, 3.0)


def correlated(
    people: int = 5000,
    features: int = 30,
    condition: float = 100.0,
    flipped: float = 0.05,
    strength: float = 4.0,
    shift: float = 0.0,
    scales: float = 0.0,
) -> Split:
    """Normal features with a given condition number, logistic labels; ``scales``: decades between the features."""
    random = np.random.default_rng(0)
    rows = people + 20_000
    basis, _ = np.linalg.qr(random.standard_normal((features, features)))
    spectrum = np.geomspace(1, 1 / condition, features)
    table = random.standard_normal((rows, features)) * np.sqrt(spectrum) @ basis.T / (1.3 * np.sqrt(spectrum.sum()))
    direction = random.standard_normal(features)
    margin = table @ direction
    labels = random.random(rows) < expit(strength * margin / margin.std() + shift)
    labels ^= random.random(rows) < flipped
    if scales:
        table = table * np.geomspace(1, 10**-scales, features)[random.permutation(features)]
    return _split(unit_rows(table), labels, people)


def categories(people: int = 10_000, columns: int = 10, levels: int = 12) -> Split:
    """One-hot columns with frequent and rare levels."""
    random = np.random.default_rng(0)
    rows, tables, margin = people + 20_000, [], np.zeros(people + 20_000)
    for _ in range(columns):
        level = random.choice(levels, rows, p=random.dirichlet(np.full(levels, 0.5)))
        margin += random.standard_normal(levels)[level]
        tables.append(np.eye(levels)[level])
    labels = random.random(rows) < expit(2 * (margin - margin.mean()) / margin.std() - 1)
    return _split(np.hstack(tables) / np.sqrt(columns), labels, people)


def bundled(load: Callable[..., tuple[Array, Array]], label: Callable[[Array], NDArray[np.bool_]]) -> Split:
    """A data set that comes with scikit-learn; its scaling is taken as known."""
    table, target = load(return_X_y=True)
    table = (table - table.mean(0)) / np.maximum(table.std(0), 1e-9) / np.sqrt(table.shape[1])
    order = np.random.default_rng(0).permutation(len(table))
    return _split(unit_rows(table)[order], label(target)[order], int(0.75 * len(table)))


def _split(table: Array, labels: NDArray[np.bool_], people: int) -> Split:
    numbers = labels.astype(float)
    return Split(table[:people], numbers[:people], table[people:], numbers[people:])


PROBLEMS: dict[str, Callable[[], Split]] = {
    "isotropic": lambda: correlated(condition=1.01),
    "condition 100": correlated,
    "condition 10^4": lambda: correlated(20_000, 50, condition=1e4),
    "noisy labels": lambda: correlated(10_000, 20, 30, flipped=0.2, strength=2),
    "imbalanced": lambda: correlated(10_000, 20, 30, shift=-4),
    "scales over 10^3": lambda: correlated(20_000, 20, 10, scales=3),
    "wide": lambda: correlated(2000, 200),
    "one-hot": categories,
    "breast cancer": lambda: bundled(load_breast_cancer, lambda target: target > 0),
    "digits, odd or even": lambda: bundled(load_digits, lambda target: target % 2 > 0),
}


def descend(table: Array, signs: Array, mu: float, clip: float, step: float, steps: int) -> Array:
    """Full-batch DP-GD with clipped gradients and tail averaging, zero-out: all seeds at once, a column each."""
    random, people = np.random.default_rng(1), len(table)
    limits = (clip / np.maximum(np.linalg.norm(table, axis=1), 1e-12))[:, None]
    noise = clip * np.sqrt(steps) / (people * mu)
    model, tail = np.zeros((table.shape[1], SEEDS)), np.zeros((table.shape[1], SEEDS))
    for done in range(steps):
        slopes = -signs[:, None] * np.minimum(expit(-signs[:, None] * (table @ model)), limits)
        model = model - step * (table.T @ slopes / people + noise * random.standard_normal(model.shape))
        if done >= steps // 2:
            tail += model
    return tail / (steps - steps // 2)


def tuned(data: Split, mu: float) -> float:
    """The best test accuracy over a grid."""
    best, signs = 0.0, 2 * data.train_targets - 1
    length = float(np.linalg.norm(data.train, axis=1).mean())
    for intercept, clip in product((False, True), (0.1, 0.3, 0.6, 1.0)):
        train, test = data.train, data.test
        if intercept:
            train, test = (np.column_stack([part, np.full(len(part), length)]) for part in (train, test))
        for steps, step in ((1, 10.0), (10, 3.0), (10, 30.0), (100, 3.0), (100, 10.0), (100, 30.0), (100, 100.0)):
            model = descend(train, signs, mu, clip * length, step, steps)
            right = (test @ model > 0) == (data.test_targets > 0)[:, None]
            best = max(best, 100 * float(right.mean()))
    return best


def main() -> None:
    names = sys.argv[1:] or list(PROBLEMS)
    print(
        "Test accuracy in %: defaults (deviation over seeds) / DP-GD tuned on the test set. Zero-out, delta = n^-1.1."
    )
    print("| problem | n x p | " + " | ".join(f"eps {epsilon:g}" for epsilon in BUDGETS) + " |")
    print("|---" * (len(BUDGETS) + 2) + "|")
    for name in names:
        data, cells = PROBLEMS[name](), []
        people = len(data.train)
        for epsilon in BUDGETS:
            scores = []
            for seed in range(SEEDS):
                model = hp.PrivateLogisticRegression(
                    epsilon=epsilon, delta=people**-1.1, row_norm=1.0, adjacency="zero-out", random_state=seed
                ).fit(data.train, data.train_targets)
                scores.append(100 * model.score(data.test, data.test_targets))
            opponent = tuned(data, hp.privacy.gdp_mu(epsilon, people**-1.1))
            cells.append(f"{np.mean(scores):.2f} ({np.std(scores):.2f}) / {opponent:.2f}")
        print(f"| {name} | {people} x {data.train.shape[1]} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
