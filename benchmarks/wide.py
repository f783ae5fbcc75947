"""Many columns: text, one-hot cells and a grid, the estimators' defaults beside scikit-learn without privacy.

python benchmarks/wide.py [NAME ...] [--seeds 3] [--words 20000] [--people 30000]     # the last two for text only
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.linear_model import LogisticRegression, Ridge

import hushpoint as hp

Array = NDArray[np.float64]

BUDGETS = (0.3, 1.0, 3.0)


class Wide(NamedTuple):
    """Rows to train and to test on, how long a row can be, and the range of a regression's target."""

    train: Any
    train_targets: Array
    test: Any
    test_targets: Array
    row_norm: float
    target_range: tuple[float, float] | None = None


def text(people: int = 30_000, words: int = 20_000, seed: int = 0) -> Wide:
    """Two classes of documents of Zipf words, tf-idf rows of length 1; 10,000 more documents to test on.

    The word of rank r has a chance proportional to 1 / (r + 10). One word in five, whatever its rank, tells the class:
    its chance is multiplied by exp(t) in one class and by exp(-t) in the other, t normal of deviation 0.36. A document
    is of the second class with chance 0.48, and has 20 words and a Poisson number more, of a mean that is gamma with
    shape 2 and mean 40. An entry is (1 + log count) * log(1 / chance): the chance is the law's, since a share counted
    in the documents would be private itself.
    """
    random = np.random.default_rng(seed)
    rows = people + 10_000
    chance = 1 / (np.arange(words) + 10.0)
    chance /= chance.sum()
    tilt = random.normal(0, 0.36, words) * (random.random(words) < 0.2)
    labels = random.random(rows) < 0.48
    lengths = 20 + random.poisson(random.gamma(2, 20, rows))
    starts = np.concatenate([[0], np.cumsum(lengths)])
    drawn = np.empty(starts[-1], dtype=np.int32)
    kind = np.repeat(labels, lengths)
    for label in (False, True):
        tilted = chance * np.exp(tilt if label else -tilt)
        edges = np.cumsum(tilted / tilted.sum())[:-1]
        drawn[kind == label] = np.searchsorted(edges, random.random(np.count_nonzero(kind == label)), side="right")
    counts = sparse.csr_matrix((np.ones(len(drawn)), drawn, starts), shape=(rows, words))
    counts.sum_duplicates()
    counts.data = (1 + np.log(counts.data)) * -np.log(chance[counts.indices])
    lengths = np.sqrt(np.add.reduceat(counts.data**2, counts.indptr[:-1]))
    counts.data /= np.repeat(lengths, np.diff(counts.indptr))
    return Wide(counts[:people], labels[:people].astype(float), counts[people:], labels[people:].astype(float), 1.0)


def cells(people: int = 16_500, columns: int = 6, count: int = 60, seed: int = 0) -> Wide:
    """Columns of beta law (2, 3), each cut into equal cells, one-hot over sqrt(columns): every row has length 1.

    The target is a sum of a sine of one turn for each column, phases at random, of which 0.6 of the variance is signal
    and the rest normal noise; its deviation is 1/3 and its range [-1, 1].
    """
    random = np.random.default_rng(seed)
    rows = people + 5500
    values = random.beta(2, 3, (rows, columns))
    table = np.eye(count)[(values * count).astype(int)].reshape(rows, -1) / np.sqrt(columns)
    signal = np.sin(2 * np.pi * values + random.uniform(0, 2 * np.pi, columns)).sum(1)
    return _regression(table, signal, random, people, 1.0)


def grid(people: int = 16_500, side: int = 19, seed: int = 0) -> Wide:
    """Places on a map, each as side * side pyramids around the points of a grid, mapped from [0, 1] to [-1, 1].

    So every row is near -1 in nearly all of its columns: one large direction that all rows share. A quarter of the
    places are uniform on the unit square, the others in ten round towns of deviation 0.06. A pyramid is the product of
    two triangles, 1 at its point and 0 at the next ones. The target is sin(2 pi x) cos(pi y) + sin(2 pi (x + y)), of
    which 0.6 of the variance is signal; its deviation is 1/3 and its range [-1, 1]. No row is longer than ``side``.
    """
    random = np.random.default_rng(seed)
    rows = people + 5500
    towns = random.uniform(0.1, 0.9, (10, 2))[random.integers(10, size=rows)]
    near = towns + random.normal(0, 0.06, (rows, 2))
    places = np.where(random.random((rows, 1)) < 0.25, random.random((rows, 2)), near).clip(0, 1)
    points = np.linspace(0, 1, side)
    across, along = (1 - np.minimum(1, np.abs(places[:, [axis]] - points) * (side - 1)) for axis in (0, 1))
    table = 2 * (across[:, :, None] * along[:, None, :]).reshape(rows, -1) - 1
    x, y = places.T
    signal = np.sin(2 * np.pi * x) * np.cos(np.pi * y) + np.sin(2 * np.pi * (x + y))
    return _regression(table, signal, random, people, float(side))


def _regression(table: Array, signal: Array, random: np.random.Generator, people: int, row_norm: float) -> Wide:
    noise = random.standard_normal(len(signal))
    target = (np.sqrt(0.6) * (signal - signal.mean()) / signal.std() + np.sqrt(0.4) * noise) / 3
    target = target.clip(-1, 1)
    return Wide(table[:people], target[:people], table[people:], target[people:], row_norm, (-1.0, 1.0))


def constant_score(data: Wide) -> float:
    """What predicting the same for everybody gives: the test share of the more frequent class, or an R2 of 0."""
    if data.target_range:
        return 0.0
    return 100 * float((data.test_targets == (data.train_targets.mean() > 0.5)).mean())


def plain_score(data: Wide) -> float:
    """Test accuracy in % or R2 of scikit-learn; the penalty is the best of three on a fifth of the training rows."""
    if data.target_range:
        models = [Ridge(penalty * data.row_norm**2) for penalty in (0.001, 0.01, 0.1)]
    else:
        models = [LogisticRegression(C=strength, max_iter=300) for strength in (0.3, 1.0, 3.0)]
    kept = len(data.train_targets) * 4 // 5
    fits = [model.fit(data.train[:kept], data.train_targets[:kept]) for model in models]
    best = max(fits, key=lambda model: model.score(data.train[kept:], data.train_targets[kept:]))
    return _scored(best.fit(data.train, data.train_targets), data)


def private_score(data: Wide, epsilon: float, seed: int) -> float:
    """Test accuracy in % or R2 of the estimator with its defaults."""
    common = {
        "epsilon": epsilon, "delta": len(data.train_targets) ** -1.1, "row_norm": data.row_norm,
        "adjacency": "zero-out", "random_state": seed,
    }  # fmt: skip
    if data.target_range:
        model = hp.PrivateLinearRegression(target_range=data.target_range, **common)
    else:
        model = hp.PrivateLogisticRegression(**common)
    return _scored(model.fit(data.train, data.train_targets), data)


def _scored(model: Any, data: Wide) -> float:
    score = float(model.score(data.test, data.test_targets))
    return score if data.target_range else 100 * score


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="text, long text, cells, grid; all unless given")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--words", type=int, default=20_000)
    parser.add_argument("--people", type=int, default=30_000, help="documents of text; long text has 200,000")
    options = parser.parse_args()
    problems: dict[str, Callable[[], Wide]] = {
        "text": lambda: text(options.people, options.words),
        "long text": lambda: text(200_000, options.words),
        "cells": cells,
        "grid": grid,
    }
    print(f"Defaults, zero-out, delta = n^-1.1, mean of {options.seeds} seeds (deviation): test accuracy in % or R2.")
    budgets = " | ".join(f"eps {epsilon:g}" for epsilon in BUDGETS)
    print(f"| data set | n x p | constant | {budgets} | not private | s a fit |")
    print("|---" * (len(BUDGETS) + 5) + "|")
    for name in options.names or problems:
        data, shown, seconds = problems[name](), [], []
        digits = 3 if data.target_range else 2
        for epsilon in BUDGETS:
            started = time.perf_counter()
            scores = [private_score(data, epsilon, seed) for seed in range(options.seeds)]
            seconds.append((time.perf_counter() - started) / options.seeds)
            shown.append(f"{np.mean(scores):.{digits}f} ({np.std(scores):.{digits}f})")
        size = " x ".join(map(str, data.train.shape))
        constant, plain = (f"{score(data):.{digits}f}" for score in (constant_score, plain_score))
        row = [name, size, constant, *shown, plain, f"{np.median(seconds):.1f}"]
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
