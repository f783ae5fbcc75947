"""Error bars on simulated data of stated laws: how often 95% intervals cover, and how right ``coef_std_`` is.

Rows are normal with correlation 0.3 and declared 5 long at most (of 8 features few are longer). A target is a linear
score plus normal noise, or a class with these log-odds; what is to be covered are the coefficients of that law.

    python benchmarks/intervals.py [DATA_SETS] [REFITS]
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hushpoint as hp

FEATURES, NORM, DELTA = 8, 5.0, 1e-6
CELLS = [("linear", 20_000, 1.0), ("linear", 20_000, 3.0), ("linear", 5000, 1.0)]
CELLS += [("logistic", 20_000, 1.0), ("logistic", 20_000, 3.0)]

Array = NDArray[np.float64]


def truth(kind: str) -> Array:
    """The coefficients, the intercept last."""
    return np.append(np.linspace(-1, 1, FEATURES) * (0.5 if kind == "linear" else 0.8), 0.3)


def drawn(kind: str, people: int, seed: int) -> tuple[Array, Any]:
    """A data set."""
    rng = np.random.default_rng(seed)
    root = np.linalg.cholesky(0.3 * np.ones((FEATURES, FEATURES)) + 0.7 * np.eye(FEATURES))
    X = rng.normal(size=(people, FEATURES)) @ root.T
    scores = X @ truth(kind)[:-1] + truth(kind)[-1]
    if kind == "linear":
        return X, scores + 0.7 * rng.normal(size=people)
    return X, (rng.random(people) < 1 / (1 + np.exp(-scores))).astype(int)


def estimator(kind: str, epsilon: float, seed: int) -> Any:
    """As anyone would have it, but for the seed."""
    if kind == "linear":
        return hp.PrivateLinearRegression(epsilon, DELTA, NORM, target_range=(-5, 5), random_state=seed)
    return hp.PrivateLogisticRegression(epsilon, DELTA, NORM, classes=[0, 1], random_state=seed)


def all_of(model: Any, coef: str, intercept: str) -> Array:
    """Coefficients and intercept of something, a line each."""
    return np.append(np.ravel(getattr(model, coef)), getattr(model, intercept))


def covered(kind: str, people: int, epsilon: float, data_sets: int) -> tuple[Array, int, float]:
    """Whether each interval covers, a line per data set; how many were refused; and the mean width."""
    found, widths, refused = [], [], 0
    for seed in range(data_sets):
        model = estimator(kind, epsilon, seed).fit(*drawn(kind, people, 10_000 + seed))
        try:
            intervals = model.intervals(0.95)
        except ValueError:
            refused += 1
            continue
        ends = np.vstack([intervals.coef.reshape(-1, 2), np.reshape(intervals.intercept, (-1, 2))])
        found.append((ends[:, 0] <= truth(kind)) & (truth(kind) <= ends[:, 1]))
        widths.append(np.diff(ends).mean())
    return np.array(found), refused, float(np.mean(widths))


def stated_over_seen(kind: str, people: int, epsilon: float, refits: int) -> Array:
    """Mean ``coef_std_`` over the deviation of the coefficients, over refits of one data set."""
    X, y = drawn(kind, people, 1)
    fits = [estimator(kind, epsilon, seed).fit(X, y) for seed in range(refits)]
    stated = np.array([all_of(model, "coef_std_", "intercept_std_") for model in fits])
    seen = np.array([all_of(model, "coef_", "intercept_") for model in fits])
    return np.asarray(stated.mean(axis=0) / seen.std(axis=0))


def main(data_sets: int = 500, refits: int = 200) -> None:
    """A line per setting."""
    print(f"{data_sets} data sets; coef_std_ over the deviation of {refits} refits, least and most of 9 coefficients")
    for kind, people, epsilon in CELLS:
        hits, refused, width = covered(kind, people, epsilon, data_sets)
        each, ratio = hits.mean(axis=0), stated_over_seen(kind, people, epsilon, refits)
        said = f"coverage {hits.mean():.1%} ({each.min():.1%} to {each.max():.1%}), mean width {width:.3f}"
        refits_say = f"coef_std_ {ratio.min():.2f} to {ratio.max():.2f}, mean {ratio.mean():.2f}"
        print(f"{kind:8} n={people} epsilon={epsilon:g}: {said}, {refused} refused; {refits_say}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
