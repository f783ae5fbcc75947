"""Is the accuracy that ``hp.utility.expected_accuracy`` promises the one that models have?

It is told n, p, the budget, the score of a non-private fit on the same rows and the rate of the larger class, as a
user would guess them; not the spectrum, the shape of the features, or where the signal lies. ``settled`` problems were
looked at while the method was made, ``"held out"`` ones were run once, at the end.

    python benchmarks/expected.py [settled] ["held out"] [--data DIRECTORY]     # the latter: Adult and California
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from planner import categories
from scipy.special import expit
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import r2_score
from tables import Split, adult, california, unit_rows

import hushpoint as hp

SEEDS = 5
TEST_ERROR = 0.002  # of two close models' scores on 20,000 test rows
BUDGETS = (0.1, 0.3, 1.0, 3.0)
Problem = Callable[[], tuple[Split, bool]]


def generated(
    people: int, features: int, condition: float, strength: float, shift: float = 0.0, *, along: float = 0.5,
    shape: str = "normal", filled: float = 0.7, regression: bool = False, seed: int = 0,
) -> tuple[Split, bool]:  # fmt: skip
    """Rows with a given condition number. ``strength``: deviation of the log-odds, or of the signal over the noise."""
    random = np.random.default_rng(seed)
    rows = people + 20_000
    basis, _ = np.linalg.qr(random.standard_normal((features, features)))
    spectrum = np.geomspace(1, 1 / condition, features)
    raw = random.standard_normal((rows, features))
    if shape == "long tails":
        raw = random.standard_t(4, (rows, features)) / np.sqrt(2)
    if shape == "in a box":
        raw = random.uniform(-1, 1, (rows, features)) * np.sqrt(3)
    table = raw * np.sqrt(spectrum) @ basis.T * np.sqrt(filled / spectrum.sum())
    direction = basis @ (random.standard_normal(features) * spectrum ** (along / 2 - 0.5))
    table = unit_rows(table)
    score = table @ direction
    score = strength * (score - score.mean()) / score.std()
    if regression:
        targets = np.clip(0.3 * (score + random.standard_normal(rows)) / np.hypot(strength, 1), -1, 1)
    else:
        targets = (random.random(rows) < expit(score + shift)).astype(float)
    return Split(table[:people], targets[:people], table[people:], targets[people:]), not regression


def one_hot(people: int, columns: int, levels: int) -> tuple[Split, bool]:
    return categories(people, columns, levels), True


SETTLED: dict[str, Problem] = {
    "small": partial(generated, 1000, 5, 10, 3),
    "small, more features": partial(generated, 2000, 20, 30, 3, 1),
    "steep": partial(generated, 5000, 30, 1000, 4, along=0),
    "flat": partial(generated, 5000, 50, 1, 2),
    "rare class": partial(generated, 10_000, 20, 100, 2, 3),
    "long tails": partial(generated, 10_000, 20, 30, 3, shape="long tails"),
    "wide": partial(generated, 5000, 200, 100, 4, along=1),
    "many people": partial(generated, 50_000, 50, 100, 2, 1, filled=0.3),
    "one-hot": partial(one_hot, 10_000, 10, 12),
    "regression, small": partial(generated, 1000, 5, 10, 1.5, regression=True),
    "regression, steep": partial(generated, 5000, 30, 1000, 1, along=0, regression=True),
    "regression": partial(generated, 10_000, 20, 30, 2, regression=True),
    "regression, wide": partial(generated, 10_000, 100, 100, 1, along=1, regression=True),
}
HELD_OUT: dict[str, Problem] = {
    "tiny": partial(generated, 1000, 10, 100, 2, seed=1),
    "in a box": partial(generated, 3000, 12, 5, 1.5, 0.5, shape="in a box", seed=2),
    "strong signal": partial(generated, 20_000, 100, 300, 8, seed=3),
    "weak signal": partial(generated, 20_000, 40, 20, 0.8, seed=4),
    "very steep": partial(generated, 30_000, 60, 3000, 3, 2, along=0.3, seed=5),
    "200 features": partial(generated, 20_000, 200, 50, 3, shape="long tails", seed=6),
    "short rows": partial(generated, 8000, 15, 10, 3, filled=0.1, seed=7),
    "one-hot, few levels": partial(one_hot, 5000, 20, 4),
    "one-hot, many levels": partial(one_hot, 30_000, 8, 25),
    "regression, tiny": partial(generated, 2000, 10, 100, 1, regression=True, seed=8),
    "regression, long tails": partial(generated, 20_000, 50, 300, 2, shape="long tails", regression=True, seed=9),
    "regression, strong": partial(generated, 5000, 8, 3, 4, regression=True, seed=10),
    "regression, weak": partial(generated, 30_000, 150, 30, 0.5, along=1, regression=True, seed=11),
}


def real(directory: Path) -> dict[str, Problem]:
    return {
        "Adult": lambda: (adult(directory), True),
        "California": lambda: (california(directory, 0), False),
    }


def compare(name: str, problem: Problem, adjacency: str, seeds: int) -> list[tuple[float, bool, float, float]]:
    """Print a row: of each budget what was expected, in what range, and what was achieved."""
    data, two_class = problem()
    people, features = data.train.shape
    make, without = hp.PrivateLinearRegression, LinearRegression()
    declared: dict = {"target_range": (-1.0, 1.0)}
    base = 0.5
    if two_class:
        make, without, declared = hp.PrivateLogisticRegression, LogisticRegression(C=100.0, max_iter=2000), {}
        base = max(data.test_targets.mean(), 1 - data.test_targets.mean())
    without.fit(data.train, data.train_targets)
    guess = without.score(data.test, data.test_targets)
    if not two_class:  # private predictions are clipped to the declared range as well
        guess = r2_score(data.test_targets, np.clip(without.predict(data.test), -1, 1))
    expected = hp.utility.expected_accuracy(
        people, features, BUDGETS, guess=guess, base_rate=base, adjacency=adjacency,
        loss="logistic" if two_class else "squared",
    )  # fmt: skip
    cells, found = [], []
    for row in expected.rows():
        runs = [
            make(
                epsilon=row["epsilon"], delta=expected.delta, row_norm=1.0, adjacency=adjacency, random_state=seed,
                **declared,
            ).fit(data.train, data.train_targets).score(data.test, data.test_targets)
            for seed in range(seeds)
        ]  # fmt: skip
        achieved = float(np.mean(runs))
        low, high = row["low"] - TEST_ERROR, row["high"] + TEST_ERROR
        inside, runs_inside = low <= achieved <= high, np.mean([low <= run <= high for run in runs])
        found.append((achieved - row["expected"], inside, row["high"] - row["low"], float(runs_inside)))
        mark = "" if inside else " (!)"
        cells.append(f"{row['expected']:.3f} ({row['low']:.3f}-{row['high']:.3f}) / {achieved:.3f}{mark}")
    print(f"| {name} | {people} x {features} | {guess:.3f} | {' | '.join(cells)} |", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", help='settled, "held out"; default: both')
    parser.add_argument("--data", type=Path, help="directory of adult.csv.gz and california_housing.csv.gz")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--adjacency", default="zero-out")
    options = parser.parse_args()
    groups = {"settled": SETTLED, "held out": HELD_OUT}
    if unknown := set(options.groups) - groups.keys():
        parser.error(f"no such group: {', '.join(unknown)}")
    chosen = {name: groups[name] for name in options.groups or ([] if options.data else groups)}
    if options.data:
        chosen["real"] = real(options.data)
    print(
        f"Expected (range) / achieved, mean of {options.seeds} seeds; {options.adjacency}, delta = n^-1.1; "
        "(!) is outside."
    )
    for group, problems in chosen.items():
        print(f"\n{group}\n| problem | n x p | no privacy | " + " | ".join(f"eps {e:g}" for e in BUDGETS) + " |")
        print("|---" * (len(BUDGETS) + 3) + "|")
        cells = [
            cell for name, one in problems.items() for cell in compare(name, one, options.adjacency, options.seeds)
        ]
        errors, inside, widths, runs = (np.array(column, float) for column in zip(*cells, strict=True))
        print(
            f"Achieved minus expected: mean {errors.mean():+.4f}, mean size {np.abs(errors).mean():.4f}, largest "
            f"{np.abs(errors).max():.4f}. In the range: {inside.mean():.0%} of {len(cells)} means, {runs.mean():.0%} "
            f"of the runs; mean width {widths.mean():.3f}."
        )


if __name__ == "__main__":
    main()
