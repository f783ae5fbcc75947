"""Monotone additive models: no constraint, and the three ways to meet one, on the same budget.

python benchmarks/constrained.py [--seeds 10] [--people 2000] [--only NAME ...]     # tables of stated laws
python benchmarks/constrained.py --data DIRECTORY [--ways free descent projection]  # Adult
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from dataset import Array

import hushpoint as hp

BUDGETS = (0.1, 0.3, 1.0, 3.0)
WAYS = ("free", "descent", "admm", "projection")
_UNSEEN = 20_000
_ADULT = {"education_num": 1, "hours_per_week": 1, "capital_gain": 1}  # income falls with high age: that is left free


def smooth(random: np.random.Generator, people: int) -> tuple[Array, Array]:
    """Six columns uniform on [0, 1]: two rise like tanh, one falls, one is linear, one does nothing, one is free."""
    u = random.random((people, 6))
    parts = [np.tanh(3 * (u[:, 0] - 0.5)), np.tanh(4 * (u[:, 1] - 0.3)), -(u[:, 2] ** 2), 0.5 * u[:, 3]]
    return u, sum(map(_standardised, parts)) + np.sin(2 * np.pi * u[:, 5])


def thresholds(random: np.random.Generator, people: int) -> tuple[Array, Array]:
    """Six columns uniform on [0, 1]: each but the last two jumps up at one or two places; the last is free."""
    u = random.random((people, 6))
    signal = (u[:, 0] > 0.3) + 1.0 * (u[:, 1] > 0.6) - (u[:, 2] > 0.5) + (u[:, 3] > 0.2) + (u[:, 3] > 0.8)
    return u, signal + 0.5 * np.sin(2 * np.pi * u[:, 5])


def saturating(random: np.random.Generator, people: int) -> tuple[Array, Array]:
    """Six columns that crowd at the low end of [0, 1] (beta 1, 4): all but the last two saturate; the last is free."""
    u = random.beta(1, 4, (people, 6))
    parts = [1 - np.exp(-8 * u[:, 0]), 1 - np.exp(-4 * u[:, 1]), -np.sqrt(u[:, 2]), np.minimum(u[:, 3], 0.2)]
    return u, sum(map(_standardised, parts)) + np.sin(2 * np.pi * u[:, 5])


def weak(random: np.random.Generator, people: int) -> tuple[Array, Array]:
    """Twenty columns uniform on [0, 1] with weak effects of known direction, as scores of risk have them."""
    u = random.random((people, 20))
    return u, _turned(20) @ np.sqrt(u.T + 0.05)


LAWS = {"smooth": smooth, "thresholds": thresholds, "saturating": saturating, "weak": weak}


def directions(law: str) -> dict[int, int]:
    """What is declared to be monotone: all but the last column, and of the weak effects all."""
    if law == "weak":
        return {column: int(sign) for column, sign in enumerate(_turned(20))}
    return {0: 1, 1: 1, 2: -1, 3: 1, 4: 1}


def scores(task: str, law: str, people: int, epsilon: float, seed: int, way: str) -> tuple[float, float]:
    """Accuracy in % and log-loss, or 100 R2 and the mean squared error, on unseen rows."""
    random = np.random.default_rng([seed, *map(ord, law)])
    X, signal = LAWS[law](random, people + _UNSEEN)
    signal = _standardised(signal)
    facts = {
        "epsilon": epsilon, "delta": people**-1.1, "ranges": (0.0, 1.0), "adjacency": "zero-out", "random_state": seed,
        **({} if way == "free" else {"monotone": directions(law), "constrained_by": way}),
    }  # fmt: skip
    if task == "classes":
        y = (random.random(len(X)) < 1 / (1 + np.exp(-2 * signal))).astype(int)
        model: Any = hp.PrivateAdditiveClassifier(classes=[0, 1], **facts)
    else:
        y = np.sqrt(0.6) * signal + np.sqrt(0.4) * random.standard_normal(len(X))
        model = hp.PrivateAdditiveRegressor(target_range=(-4.0, 4.0), **facts)
    model.fit(X[:people], y[:people])
    return judged(model, X[people:], y[people:], task)


def judged(model: Any, X: Any, y: Array, task: str) -> tuple[float, float]:
    """Score in points, and what is lost in the mean."""
    if task == "classes":
        margins = model.decision_function(X)
        return 100 * model.score(X, y), float(np.logaddexp(0, -margins * (2 * y - 1)).mean())
    return 100 * model.score(X, y), float(np.square(model.predict(X) - y).mean())


def adult(data: Path, epsilon: float, seed: int, way: str) -> tuple[float, float]:
    """The same on Adult, where three columns are declared to be rising."""
    import datasets
    import pandas
    from additive import declared, facts, table

    from hushpoint.schema import Category, Number

    known = datasets.load("adult", data)
    schema = declared(known).features
    constraint = {} if way == "free" else {"monotone": _ADULT, "constrained_by": way}
    model = hp.PrivateAdditiveClassifier(
        classes=[0.0, 1.0],
        ranges={name: (column.low, column.high) for name, column in schema.items() if isinstance(column, Number)},
        categories={name: column.values for name, column in schema.items() if isinstance(column, Category)},
        missing=[name for name, column in schema.items() if column.missing == "indicator"],
        **facts(known, epsilon, seed),
        **constraint,
    )
    (train, targets), (test, true) = table(known, known.train), table(known, known.test)
    model.fit(pandas.DataFrame(train), targets)
    return judged(model, pandas.DataFrame(test), true, "classes")


def _standardised(values: Array) -> Array:
    return (values - values.mean()) / values.std()


def _turned(count: int) -> Array:
    return np.where(np.arange(count) % 3 == 2, -1.0, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--people", type=int, default=2000)
    parser.add_argument("--only", nargs="*", choices=LAWS)
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=WAYS)
    parser.add_argument("--data", type=Path, help="directory with adult.csv.gz: Adult in place of the laws")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        f"Accuracy in % (log-loss) or 100 R2 (squared error); zero-out, delta = n^-1.1, mean of {options.seeds} seeds"
    )
    print("| table | way | " + " | ".join(f"eps {epsilon:g}" for epsilon in BUDGETS) + " | seconds |")
    print("|---" * (len(BUDGETS) + 3) + "|")
    if options.data is None:
        tables = [(law, task) for law in options.only or LAWS for task in ("classes", "values")]
    else:
        tables = [("adult", "classes")]
    means: dict[str, list[float]] = {way: [] for way in options.ways}
    for law, task in tables:
        for way in options.ways:
            cells, started = [], time.perf_counter()
            for epsilon in BUDGETS:
                runs = [
                    scores(task, law, options.people, epsilon, seed, way)
                    if options.data is None
                    else adult(options.data, epsilon, seed, way)
                    for seed in range(options.seeds)
                ]
                score, lost = np.mean(runs, axis=0)
                cells.append(f"{score:.2f} ({lost:.4f})")
                means[way].append(float(score))
            seconds = (time.perf_counter() - started) / options.seeds / len(BUDGETS)
            print(f"| {law}, {task} | {way} | {' | '.join(cells)} | {seconds:.1f} |", flush=True)
    print("Mean of all cells: " + ", ".join(f"{way} {np.mean(found):.2f}" for way, found in means.items()))


if __name__ == "__main__":
    main()
