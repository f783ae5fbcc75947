"""Additive beside linear private models, defaults only: the tables of datasets.py, four budgets, many seeds.

python benchmarks/additive.py settled [--data DIRECTORY] [--seeds 10] [--only NAME ...]     # rules were made with these
python benchmarks/additive.py "held out" ...                                                # and run once on these
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import datasets
import numpy as np
from dataset import DataSet
from reference import reference

import hushpoint as hp
from hushpoint.preprocessing import TableEncoder
from hushpoint.schema import Category, Number, Schema

BUDGETS = (0.1, 0.3, 1.0, 3.0)
WORTH = 5.0  # points that the additive model gains without privacy, from which on it should gain with it


def table(data: DataSet, which: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The columns by name, and the targets."""
    numbers, categories, targets = data.rows(which)
    columns = dict(zip(data.columns, numbers.T, strict=True))
    return {**columns, **{category.name: category.values for category in categories}}, targets


def declared(data: DataSet) -> Schema:
    """What is publicly known of a table: whether values may be missing counts as that."""
    missing = {name: bool(np.isnan(data.numbers[:, j]).any()) for j, name in enumerate(data.columns)}
    columns = {
        name: Number(low, high, missing="indicator" if missing[name] else "error")
        for name, (low, high) in zip(data.columns, data.ranges, strict=True)
    }
    return Schema({**columns, **{category.name: Category(tuple(category.levels)) for category in data.categories}})


def linear(data: DataSet, epsilon: float, seed: int) -> tuple[float, float]:
    """Score in points, and seconds, of the linear estimator on declared ranges and categories."""
    encoder = TableEncoder(declared(data)).fit()
    common = facts(data, epsilon, seed) | {"row_norm": encoder.row_norm_}
    if data.task == "classification":
        model = hp.PrivateLogisticRegression(classes=[0.0, 1.0], **common)
    else:
        model = hp.PrivateLinearRegression(target_range=data.target_range, **common)
    (train, targets), (test, true) = table(data, data.train), table(data, data.test)
    started = time.perf_counter()
    model.fit(encoder.transform(train), targets)
    seconds = time.perf_counter() - started
    return 100 * model.score(encoder.transform(test), true), seconds


def additive(data: DataSet, epsilon: float, seed: int) -> tuple[float, float]:
    """The same of the additive estimator."""
    import pandas

    schema = declared(data).features
    common = facts(data, epsilon, seed) | {
        "ranges": {name: (column.low, column.high) for name, column in schema.items() if isinstance(column, Number)},
        "categories": {name: column.values for name, column in schema.items() if isinstance(column, Category)},
        "missing": [name for name, column in schema.items() if column.missing == "indicator"],
    }
    if data.task == "classification":
        model = hp.PrivateAdditiveClassifier(classes=[0.0, 1.0], **common)
    else:
        model = hp.PrivateAdditiveRegressor(target_range=data.target_range, **common)
    (train, targets), (test, true) = table(data, data.train), table(data, data.test)
    started = time.perf_counter()
    model.fit(pandas.DataFrame(train), targets)
    seconds = time.perf_counter() - started
    return 100 * model.score(pandas.DataFrame(test), true), seconds


def facts(data: DataSet, epsilon: float, seed: int) -> dict:
    """What both are told."""
    return {"epsilon": epsilon, "delta": len(data.train) ** -1.1, "adjacency": "zero-out", "random_state": seed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("group", choices=("settled", "held out"))
    parser.add_argument("--data", type=Path, help="directory with adult.csv.gz and california_housing.csv.gz")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--splits", type=int, default=1, help="so many random splits of each table, all seeds on each")
    parser.add_argument("--only", nargs="*")
    options = parser.parse_args()
    print(
        f"Accuracy in %, or 100 R2; zero-out, delta = n^-1.1, mean of {options.seeds} seeds"
        f"{f' on {options.splits} splits' if options.splits > 1 else ''}: linear / additive (gain)"
    )
    print("| data set | " + " | ".join(f"eps {epsilon:g}" for epsilon in BUDGETS) + " | not private | time |")
    print("|---" * (len(BUDGETS) + 3) + "|")
    gains, worth, ratios = [], {}, []
    for name in options.only or datasets.names(options.group, options.data):
        splits = [datasets.load(name, options.data, split) for split in range(options.splits)]
        points = 1 if splits[0].task == "classification" else 100
        plain = points * np.mean([[one.linear, one.additive] for one in map(reference, splits)], axis=0)
        possible = plain[1] - plain[0]
        cells, times = [], []
        for epsilon in BUDGETS:
            every = [(data, epsilon, seed) for data in splits for seed in range(options.seeds)]
            runs = [(linear(*one), additive(*one)) for one in every]
            scores = np.array([[left[0], right[0]] for left, right in runs])
            seconds = np.array([[left[1], right[1]] for left, right in runs])
            one, two = scores.mean(axis=0)
            spread = f", s.e. {np.diff(scores).std() / np.sqrt(len(runs)):.2f}" if options.splits > 1 else ""
            cells.append(f"{one:.2f} / {two:.2f} ({two - one:+.2f}{spread})")
            times.append(np.median(seconds[:, 1]) / np.median(seconds[:, 0]))
            gains.append(two - one)
            if possible >= WORTH:
                worth.setdefault(name, []).append((two - one, possible))
        ratios.append(float(np.median(times)))
        told = f"{plain[0]:.2f} / {plain[1]:.2f}"
        print(f"| {name} | {' | '.join(cells)} | {told} | {ratios[-1]:.1f}x |", flush=True)
    print(f"\nCells that lose more than 0.5: {np.mean(np.array(gains) < -0.5):.0%}; the most: {-min(gains):.2f}.")
    if worth:
        reached = [cells[-1][0] / cells[-1][1] for cells in worth.values()]
        print(
            f"Where {WORTH:g} points or more can be gained ({len(worth)} tables): mean gain "
            f"{np.mean([gain for cells in worth.values() for gain, _ in cells]):.1f}; at epsilon {BUDGETS[-1]:g} "
            f"{np.mean(reached):.0%} of what can be (least {min(reached):.0%})."
        )
    print(f"Time of a fit: {np.median(ratios):.1f} times the linear one (most {max(ratios):.1f}).")


if __name__ == "__main__":
    main()
