"""Are predicted probabilities what is observed? Adult, the estimator's defaults, zero-out, in bins of the prediction.

python benchmarks/reliability.py --data DIRECTORY     # with adult.csv.gz
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path

import numpy as np
from tables import adult

import hushpoint as hp

BUDGETS = (0.1, 0.3, 1.0)
EDGES = (0.0, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="directory of adult.csv.gz")
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    data = adult(options.data)
    people = len(data.train)
    bins = " | ".join(f"{low:g}-{high:g}" for low, high in pairwise(EDGES))
    print(
        "Adult, test rows by predicted probability of the larger income: mean predicted / observed share (share of the "
        f"rows).\nMeans over {options.seeds} seeds; zero-out, delta = n^-1.1. Error: mean size of the difference over "
        f"rows.\n| epsilon | {bins} | error |"
    )
    print("|---" * (len(EDGES) + 1) + "|")
    for epsilon in BUDGETS:
        sums = np.zeros((3, len(EDGES) - 1))
        errors = []
        for seed in range(options.seeds):
            model = hp.PrivateLogisticRegression(
                epsilon=epsilon, delta=people**-1.1, row_norm=1.0, adjacency="zero-out", random_state=seed
            ).fit(data.train, data.train_targets)
            predicted = model.predict_proba(data.test)[:, 1]
            place = np.digitize(predicted, EDGES[1:-1])
            one = [np.bincount(place, w, len(EDGES) - 1) for w in (np.ones(len(place)), predicted, data.test_targets)]
            errors.append(np.abs(one[1] - one[2]).sum() / len(place))
            sums += one
        counts, said, seen = sums
        with np.errstate(invalid="ignore"):
            cells = [
                f"{a:.2f} / {b:.2f} ({share:.1%})"
                for a, b, share in zip(said / counts, seen / counts, counts / counts.sum(), strict=True)
            ]
        print(f"| {epsilon:g} | {' | '.join(cells)} | {np.mean(errors):.3f} |", flush=True)


if __name__ == "__main__":
    main()
