"""How good are the estimators' defaults? Adult and California housing, several budgets, many seeds.

python benchmarks/accuracy.py --data DIRECTORY     # with adult.csv.gz and california_housing.csv.gz
python benchmarks/accuracy.py --data DIRECTORY --floating-point     # Adult with lattice=False, for comparison
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import r2_score
from tables import adult, california

import hushpoint as hp

BUDGETS = (0.1, 0.3, 1.0, 3.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="directory of the two tables")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--floating-point", action="store_true", help="Adult with lattice=False, and nothing else")
    options = parser.parse_args()
    print(f"Defaults only, delta = n^-1.1, mean of {options.seeds} seeds (standard deviation).\n")
    _adult(options.data, options.seeds, not options.floating_point)
    if options.floating_point:
        return
    _california(options.data, options.seeds)


def _adult(directory: Path, seeds: int, lattice: bool) -> None:
    data = adult(directory)
    people = len(data.train)
    started = time.process_time()
    reference = LogisticRegression(C=100.0, max_iter=1000).fit(data.train, data.train_targets)
    spent, score = time.process_time() - started, 100 * reference.score(data.test, data.test_targets)
    print(f"Adult, test accuracy in %. scikit-learn without privacy (C = 100): {score:.2f} ({spent:.2f} CPU s)")
    print("| adjacency | " + " | ".join(f"eps {epsilon:g}" for epsilon in BUDGETS) + " | steps | CPU s a fit |")
    print("|---" * (len(BUDGETS) + 3) + "|")
    for adjacency in ("zero-out", "replace-one"):
        cells, steps, seconds = [], [], []
        for epsilon in BUDGETS:
            scores = []
            for seed in range(seeds):
                started = time.process_time()
                model = hp.PrivateLogisticRegression(
                    epsilon=epsilon,
                    delta=people**-1.1,
                    row_norm=1.0,
                    adjacency=adjacency,
                    random_state=seed,
                    lattice=lattice,
                ).fit(data.train, data.train_targets)
                seconds.append(time.process_time() - started)
                scores.append(100 * model.score(data.test, data.test_targets))
            cells.append(f"{np.mean(scores):.2f} ({np.std(scores):.2f})")
            steps.append(str(model.n_iter_))
        print(f"| {adjacency} | {' | '.join(cells)} | {', '.join(steps)} | {np.median(seconds):.2f} |", flush=True)


def _california(directory: Path, seeds: int) -> None:
    print("\nCalifornia housing, R2 minus that of least squares on the same split, predictions of both clipped")
    print("| estimator (zero-out) | " + " | ".join(f"eps {epsilon:g}" for epsilon in BUDGETS) + " |")
    print("|---" * (len(BUDGETS) + 1) + "|")
    for estimator in (hp.PrivateLinearRegression, hp.PrivateHuberRegressor):
        cells = []
        for epsilon in BUDGETS:
            gaps = []
            for seed in range(seeds):
                data = california(directory, seed)
                least_squares = LinearRegression(fit_intercept=False).fit(data.train, data.train_targets)
                best = r2_score(data.test_targets, np.clip(least_squares.predict(data.test), -1, 1))
                model = estimator(
                    epsilon=epsilon,
                    delta=len(data.train) ** -1.1,
                    row_norm=1.0,
                    target_range=(-1.0, 1.0),
                    adjacency="zero-out",
                    random_state=seed,
                ).fit(data.train, data.train_targets)
                gaps.append(model.score(data.test, data.test_targets) - best)
            cells.append(f"{np.mean(gaps):+.4f} ({np.std(gaps):.4f})")
        print(f"| {estimator.__name__} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
