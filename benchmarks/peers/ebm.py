"""DP-EBM (interpret) on a table, called by ../ebm.py in an environment of its own: a line of JSON with mean scores."""

from __future__ import annotations

import json
import sys
from itertools import product

import numpy as np
from interpret.privacy import DPExplainableBoostingClassifier, DPExplainableBoostingRegressor

TUNED = list(product((50, 300), (0.01, 0.05), (8, 32)))  # rounds, learning rate, bins


def score(data: dict, epsilon: float, delta: float, seed: int, **settings: float) -> float:
    """Test score in points of one fit, with all that a codebook says declared."""
    columns, kinds = data["columns"].tolist(), data["kinds"].tolist()
    bounds = {j: (float(low), float(high)) for j, (low, high) in enumerate(data["ranges"]) if kinds[j] == "continuous"}
    common = dict(
        feature_names=columns, feature_types=kinds, epsilon=epsilon, delta=delta, privacy_bounds=bounds,
        random_state=seed, **settings,
    )  # fmt: skip
    if "target_range" in data:
        low, high = map(float, data["target_range"])
        model = DPExplainableBoostingRegressor(privacy_target_min=low, privacy_target_max=high, **common)
    else:
        model = DPExplainableBoostingClassifier(**common)
    if "target_range" not in data:
        model.fit(data["train"], data["train_targets"].astype(int))
        return 100 * float((model.predict(data["test"]).astype(int) == data["test_targets"].astype(int)).mean())
    model.fit(data["train"], data["train_targets"])
    residual = np.clip(model.predict(data["test"]), low, high) - data["test_targets"]
    return 100 * (1 - float((residual**2).mean() / data["test_targets"].var()))


def main() -> None:
    path, delta, seeds, *epsilons = sys.argv[1:]
    data = dict(np.load(path, allow_pickle=True))
    found = {}
    for epsilon in map(float, epsilons):
        default = [score(data, epsilon, float(delta), seed) for seed in range(int(seeds))]
        best = max(
            np.mean(
                [
                    score(data, epsilon, float(delta), seed, max_rounds=rounds, learning_rate=rate, max_bins=bins)
                    for seed in range(2)
                ]
            )
            for rounds, rate, bins in TUNED
        )
        found[epsilon] = (float(np.mean(default)), float(best))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
