"""The tour: every method on one synthetic Lasso, without noise and with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich import box
from rich.console import Console, JustifyMethod
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from hushpoint import methods
from hushpoint.experiments.data import synthetic_lasso
from hushpoint.plan import Plan
from hushpoint.privacy.guarantee import Budget
from hushpoint.problem import Problem
from hushpoint.regularizers import L1

_STRENGTH = 2e-4
_CLIP = 0.5
_GAMMA = 6.0  # where consensus ADMM is fastest on this problem
_EPSILON, _DELTA = 5.0, 1e-6

_COLUMNS: dict[str, JustifyMethod] = {
    "method": "left",
    "steps": "right",
    "gap": "right",
    "private\nsteps": "right",
    "private\ngap": "right",
    "against": "left",
    "s": "right",
}


@dataclass(frozen=True)
class Stop:
    """One method of the tour: a plan without noise that runs to the optimum, and a short one with a budget."""

    name: str
    paper: str
    make: Callable[..., Plan]
    exact: dict[str, Any]
    private: dict[str, Any]


def stops(items: int, features: int) -> list[Stop]:
    """The methods, with parameters that suit a well-conditioned Lasso."""
    few = max(1, items // 10)
    consensus = {"gamma": _GAMMA, "relaxation": 1.0}
    blockwise = {"gamma": _GAMMA, "relaxation": 0.7}  # at 1, moving some of the blocks need not converge
    sampled = {"rounds": 1200, **blockwise}
    walk = {"hops": 150 * items, **blockwise}
    hand_over = {"hops": 2 * items, "gamma": _GAMMA, "participation_cap": 4}
    # A circulant graph: everybody knows the users 1, 4, 16, 64 and 256 places away, so a walk mixes quickly.
    strides = [sign * 4**k for k in range(5) for sign in (-1, 1)]
    neighbours = [sorted({(user + stride) % items for stride in strides}) for user in range(items)]
    return [
        Stop(
            "dp_sgd", "sec. 4", methods.dp_sgd,
            {"steps": 1500, "step_size": 40.0}, {"steps": 40, "step_size": 15.0},
        ),
        Stop(
            "dp_sgd, sampled", "sec. 4", methods.dp_sgd,
            {"steps": 1500, "step_size": 2.0, "sample_prob": 0.1, "tail_average": 0.2},
            {"steps": 100, "step_size": 8.0, "sample_prob": 0.1},
        ),
        Stop(
            "dp_cd", "sec. 4", methods.dp_cd,
            {"steps": 100 * features, "step_size": 40.0}, {"steps": 2 * features, "step_size": 10.0},
        ),
        Stop(
            "private_admm", "Alg. 5", methods.private_admm,
            {"steps": 300, "gamma": 30.0}, {"steps": 10, "gamma": 30.0, "tail_average": 0.5},
        ),
        Stop(
            "centralized_admm", "Alg. 2", methods.centralized_admm,
            {"steps": 120, **consensus}, {"steps": 10, "gamma": _GAMMA},
        ),
        Stop(
            "centralized, subsets", "Alg. 2", methods.centralized_admm,
            {"steps": 1200, **blockwise, "schedule": few}, {"steps": 40, "gamma": _GAMMA, "schedule": few},
        ),
        Stop(
            "federated_admm", "Alg. 3", methods.federated_admm,
            {**sampled, "sample_size": few},
            {"rounds": 40, "gamma": _GAMMA, "sample_size": few, "participation_cap": 4},
        ),
        Stop(
            "federated_admm, sum", "ours", methods.federated_admm,
            {**sampled, "sample_prob": 0.1, "noise": "sum", "clip_residual": 1e3},
            {"rounds": 40, "gamma": _GAMMA, "sample_prob": 0.1, "noise": "sum", "clip_residual": _GAMMA * _CLIP},
        ),
        Stop(
            "anchored_admm", "ours", methods.anchored_admm,
            {"rounds": 120, **consensus, "radius": 1e3}, {"rounds": 20, "gamma": _GAMMA},
        ),
        Stop("decentralized_admm", "Alg. 4", methods.decentralized_admm, walk, hand_over),
        Stop(
            "decentralized, graph", "ours", methods.decentralized_admm,
            {**walk, "graph": neighbours}, {**hand_over, "graph": neighbours},
        ),
    ]  # fmt: skip


def run_tour(items: int, features: int, seed: int, console: Console | None = None) -> list[dict[str, Any]]:
    """Run every method, print a table and return its rows."""
    from sklearn.linear_model import Lasso

    console = Console() if console is None else console
    X, y, _ = synthetic_lasso(items, features, seed=seed)
    exact = Problem(X, y, regularizer=L1(_STRENGTH), row_norm=1.0)
    clipped = Problem(X, y, regularizer=L1(_STRENGTH), row_norm=1.0, clip=_CLIP)
    reference = Lasso(alpha=_STRENGTH, fit_intercept=False, tol=1e-14, max_iter=100_000).fit(X, y).coef_
    best, zero = exact.objective(reference), exact.objective(np.zeros(features))
    console.print(
        f"Lasso, {items} records, {features} features. Gap: how far the objective is above scikit-learn's optimum, "
        f"relative to it; the model 0 has a gap of {zero / best - 1:.2f}."
    )
    rows: list[dict[str, Any]] = []
    journey = stops(items, features)
    with _progress(console) as bar:
        task = bar.add_task("", total=2 * len(journey))
        for stop in journey:
            bar.update(task, description=stop.name)
            started = time.perf_counter()
            quiet = stop.make(exact, noise_std=0.0, **stop.exact)
            private = stop.make(clipped, budget=Budget(_EPSILON, _DELTA), **stop.private)
            results = []
            for plan in (quiet, private):
                results.append(plan.run(seed=seed))
                bar.advance(task)
            gap, private_gap = (exact.objective(result.model) / best - 1 for result in results)
            rows.append(
                {
                    "method": stop.name,
                    "paper": stop.paper,
                    "steps": quiet.steps,
                    "gap": max(gap, 0.0),
                    "private steps": private.steps,
                    "private gap": private_gap,
                    "guarantee": results[1].guarantee,
                    "seconds": time.perf_counter() - started,
                }
            )
    console.print(_table(rows))
    console.print(
        f"Private runs spend epsilon = {_EPSILON:g} at delta = {_DELTA:g} for one record. Against 'iterates': whoever "
        "runs the method is trusted. Against 'messages': nobody is, so the noise is far larger and does not shrink "
        "with the number of records."
    )
    return rows


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for name, justify in _COLUMNS.items():
        table.add_column(name, justify=justify, no_wrap=True)
    for row in rows:
        table.add_row(
            row["method"],
            str(row["steps"]),
            f"{row['gap']:.0e}",
            str(row["private steps"]),
            f"{row['private gap']:.2f}",
            row["guarantee"].view,
            f"{row['seconds']:.1f}",
        )
    return table


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True)
