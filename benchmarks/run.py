"""Hushpoint beside a plain per-record NumPy loop, in one process: ratios, with their spread.

Run with ``make bench``. Seconds depend on the machine; only the ratios mean anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import plain
from rich import box
from rich.console import Console
from rich.table import Table

import hushpoint as hp
from hushpoint.experiments.data import synthetic_lasso

STRENGTH, GAMMA, RELAXATION, SIGMA = 1e-3, 6.0, 0.5, 0.5
REPEATS = 7


def seconds_per_step(run: Callable[[], None], steps: int) -> np.ndarray:
    """Time of one step, once per repeat."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) / steps)
    return np.array(times)


def main() -> None:
    X, y, _ = synthetic_lasso(800, 64)
    problem = hp.Problem(X, y, regularizer=hp.regularizers.L1(STRENGTH), row_norm=1.0, clip=1.0)
    rng = np.random.default_rng(0)
    u, zhat, z = np.zeros((800, 64)), np.zeros(64), np.zeros(64)
    settings = (GAMMA, RELAXATION, SIGMA, STRENGTH, rng)
    cases = [
        (
            "centralized_admm step, n = 800, p = 64",
            lambda: plain.centralized_step(X, y, u, *settings),
            1,
            hp.methods.centralized_admm(problem, 1000, GAMMA, RELAXATION, noise_std=SIGMA),
        ),
        (
            "federated_admm round, 100 of 800 users",
            lambda: plain.federated_round(X, y, u, zhat, 100, *settings),
            1,
            hp.methods.federated_admm(problem, 500, GAMMA, RELAXATION, sample_size=100, noise_std=SIGMA),
        ),
        (
            "decentralized_admm hop",
            lambda: [plain.hop(X, y, u, zhat, *settings) for _ in range(200)],
            200,
            hp.methods.decentralized_admm(problem, 5000, GAMMA, RELAXATION, noise_std=SIGMA),
        ),
        (
            "dp_sgd step, all records",
            lambda: plain.gradient_step(X, y, z, 1.0, 0.01, STRENGTH, rng),
            1,
            hp.methods.dp_sgd(problem, 500, 1.0, noise_std=0.01),
        ),
    ]
    table = Table("what", "plain loop", "seeded", "ratio", "secure", "ratio", box=box.SIMPLE_HEAD)
    for name, loop, loop_steps, plan in cases:
        plan.run(seed=0)  # compile and warm up
        slow = seconds_per_step(loop, loop_steps)
        row = [name, _time(slow)]
        for seed in (1, None):
            fast = seconds_per_step(lambda: plan.run(seed=seed), plan.steps)  # noqa: B023 - called at once
            row += [_time(fast), f"{np.median(slow) / np.median(fast):.0f}x"]
        table.add_row(*row)
    console = Console(width=120)
    console.print(table)
    console.print(f"Median of {REPEATS} repeats (from the fastest to the slowest); ratio of medians.")


def _time(times: np.ndarray) -> str:
    low, middle, high = (1e6 * value for value in (times.min(), np.median(times), times.max()))
    return f"{middle:.0f} us ({low:.0f}-{high:.0f})"


if __name__ == "__main__":
    main()
