"""A federation of 10,000 users in one process, against the plan alone: python benchmarks/crowd.py

Processor seconds of ``run_in_process`` and of ``plan.run``, for users of one row and of five, and their ratio. Where
all users move and have one row each, ``federated_admm`` has a compiled shortcut that computes no single message: there
the ratio says what a message of every user costs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import hushpoint as hp
from hushpoint.federated import run_in_process


def problem(users: int, rows: int, loss: str) -> hp.Problem:
    """Users of so many rows each."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(users * rows, 10)) / 4
    y = X @ rng.normal(size=10) + 0.1 * rng.normal(size=len(X))
    groups = None if rows == 1 else np.repeat(np.arange(users), rows)
    y = np.sign(y) if loss == "logistic" else y
    ridge = hp.regularizers.L2(0.05)
    return hp.Problem(X, y, loss=loss, regularizer=ridge, row_norm=1.0, clip=2.0, groups=groups)


def plans(data: hp.Problem, rounds: int) -> dict[str, hp.Plan]:
    """The methods that a federation runs."""
    noise: dict[str, Any] = {"noise_std": 0.05}
    methods = hp.methods
    return {
        "federated_admm": methods.federated_admm(data, rounds, gamma=2.0, **noise),
        "federated_admm, a tenth": methods.federated_admm(data, rounds, 2.0, sample_size=data.items // 10, **noise),
        "anchored_admm": methods.anchored_admm(data, rounds, gamma=2.0, **noise),
        "dp_fedavg": methods.dp_fedavg(data, rounds, 3, 0.1, 1.0, **noise),
        "dp_sgd": methods.dp_sgd(data, rounds, 0.5, **noise),
    }


def seconds(run: Callable[[], Any]) -> float:
    """Processor seconds of the better of two runs, after one that compiles."""
    run()
    found = []
    for _ in range(2):
        began = time.process_time()
        run()
        found.append(time.process_time() - began)
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    print(f"{arguments.users} users, {arguments.rounds} rounds: rows each, plan.run and run_in_process in seconds")
    for rows in (1, 5):
        for loss in ("squared", "logistic"):
            data = problem(arguments.users, rows, loss)
            for name, plan in plans(data, arguments.rounds).items():
                alone = seconds(partial(plan.run, seed=1))
                federated = seconds(partial(run_in_process, plan, data, seed=1))
                print(f"{rows} {loss:9} {name:24} {alone:7.4f} {federated:7.4f} ratio {federated / alone:5.1f}")


if __name__ == "__main__":
    main()
