"""What whole numbers cost: steps and fits on the lattice beside the same in floating point, in one run."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse
from timing import in_turn, ratio, shown

import hushpoint as hp
from hushpoint import engine

_SIZES = ((800, 64, 300), (30_000, 108, 30), (1_000_000, 50, 5))
_WIDE = (30_000, 20_000, 100)  # rows, columns, entries of a row that are not 0


def section(repeats: int) -> tuple[str, list[str], list[list[str]]]:
    """The table: seconds both ways, with secure noise, and their ratio."""
    rows = []
    for name, works, units in _cases():
        for work in works.values():
            work()  # compiles, and makes whole numbers of rows that several runs share
        often = repeats if units else min(repeats, 3)
        times = in_turn({kind: (work, units or 1) for kind, work in works.items()}, often)
        plain, whole = times["floating point"], times["lattice"]
        rows.append([name, shown(plain), shown(whole), ratio(whole, plain)])
    columns = ["what", "floating point", "lattice", "lattice/floating point"]
    return "Whole numbers beside floating-point ones (secure noise)", columns, rows


def _cases() -> Iterator[tuple[str, dict, int]]:
    """Names, the same work both ways, and how many steps it has; 0: a whole fit, preparation included."""
    for n, p, steps in _SIZES:
        X, y = _rows(n, p)
        problem = hp.Problem(X, y, "logistic", row_norm=1.0)
        yield _steps(f"dp_sgd step, {n} x {p}", steps, lambda on, s=steps, d=problem: _sgd(d, s, on))
        if n == 30_000:
            yield _steps("dp_sgd step, a tenth of them", 100, lambda on, d=problem: _sgd(d, 100, on, 0.1))
        if n < 100_000:
            yield _steps(f"dp_cd step, {n} x {p}", 2000, lambda on, d=problem: _cd(d, 2000, on))
        yield _fit(f"PrivateLogisticRegression.fit, {n} x {p}", X, y)
    yield from _users()
    X, y = _sparse_rows()
    problem = hp.Problem(X, y, "logistic", row_norm=1.0)
    name = f"{_WIDE[0]} x {_WIDE[1]}, sparse"
    yield _steps(f"dp_sgd step, {name}", 20, lambda on, d=problem: _sgd(d, 20, on))
    yield _fit(f"PrivateLogisticRegression.fit, {name}", X, y)


def _users() -> Iterator[tuple[str, dict, int]]:
    rng = np.random.default_rng(1)
    counts = rng.integers(22, 252, size=139)
    X, y = _rows(int(counts.sum()), 28)
    users = hp.Problem(X, y, "logistic", row_norm=1.0, groups=np.repeat(np.arange(139), counts))
    yield _steps(
        "dp_fedavg round, 139 users of 22 to 251 rows", 20,
        lambda on: hp.methods.dp_fedavg(users, 20, 5, 0.5, 1.0, noise_std=0.1, lattice=on),
    )  # fmt: skip
    yield _steps(
        "anchored_admm round, the same", 20,
        lambda on: hp.methods.anchored_admm(users, 20, 5.0, noise_std=0.1, lattice=on),
    )  # fmt: skip


def _sgd(problem: hp.Problem, steps: int, on: bool, sample_prob: float = 1.0) -> hp.Plan:
    return hp.methods.dp_sgd(problem, steps, 0.5, sample_prob, noise_std=0.01, lattice=on)


def _cd(problem: hp.Problem, steps: int, on: bool) -> hp.Plan:
    return hp.methods.dp_cd(problem, steps, noise_std=0.01, lattice=on)


def _steps(name, steps, make):
    plans = {"floating point": make(False), "lattice": make(True)}
    return name, {kind: lambda plan=plan: engine.run(plan, seed=None) for kind, plan in plans.items()}, steps


def _fit(name, X, y):
    def fit(on: bool) -> object:
        settings = {"epsilon": 1.0, "delta": 1e-7, "row_norm": 1.0, "classes": [False, True], "lattice": on}
        return hp.PrivateLogisticRegression(**settings).fit(X, y)

    return name, {"floating point": lambda: fit(False), "lattice": lambda: fit(True)}, 0


def _rows(n: int, p: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, p))
    X /= 1.1 * np.sqrt(p)
    return X, X[:, 0] + 0.1 * rng.standard_normal(n) > 0


def _sparse_rows() -> tuple[scipy.sparse.csr_array, np.ndarray]:
    n, p, filled = _WIDE
    rng = np.random.default_rng(0)
    X = scipy.sparse.random_array((n, p), density=filled / p, format="csr", rng=rng)
    X.data /= np.sqrt(filled)
    return X, np.asarray(X.sum(axis=1)).ravel() > X.sum() / n
