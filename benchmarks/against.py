"""This tree against another commit, side by side: the same work in turn, ratios of the medians.

    python benchmarks/against.py HEAD~1
    python benchmarks/against.py v0.1 --only fit --rounds 9

Each round runs both trees in processes of their own, one after the other; within a process the fastest of several
repeats counts. A ratio above 1 means that this tree is slower.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import numpy as np

ROOT = Path(__file__).parents[1]


def _work() -> Iterator[tuple[str, Callable[[], object], int]]:
    """What is timed: a name, a call, and how often."""
    import scipy.sparse

    import hushpoint as hp

    rng = np.random.default_rng(0)

    def problem(rows: int, width: int, groups: int = 0, loss: str = "logistic") -> hp.Problem:
        X = rng.normal(size=(rows, width)) / np.sqrt(width)
        y = np.where(X[:, 0] + 0.3 * rng.normal(size=rows) > 0, 1, -1)
        users = np.sort(rng.integers(0, groups, rows)) if groups else None
        return hp.Problem(X, y, loss, hp.regularizers.L2(0.01), row_norm=1.0, groups=users)

    small, large, users = problem(800, 64), problem(500_000, 20), problem(15_000, 28, groups=139)
    for name, plan, often in (
        ("dp_sgd 800 x 64", hp.methods.dp_sgd(small, 300, 0.5, noise_std=0.1), 7),
        ("dp_sgd sampled 800 x 64", hp.methods.dp_sgd(small, 300, 0.5, 0.1, noise_std=0.1), 7),
        ("dp_sgd 500,000 x 20", hp.methods.dp_sgd(large, 10, 0.5, noise_std=0.1), 5),
        ("dp_cd 800 x 64", hp.methods.dp_cd(small, 5000, noise_std=0.1), 7),
        ("private_admm 800 x 64", hp.methods.private_admm(small, 60, 5.0, noise_std=0.1), 7),
        ("centralized_admm 800 x 64", hp.methods.centralized_admm(small, 300, 5.0, noise_std=0.1), 7),
        ("federated_admm 139 users", hp.methods.federated_admm(users, 20, 2.0, noise_std=0.1), 5),
        ("anchored_admm 139 users", hp.methods.anchored_admm(users, 20, 2.0, noise_std=0.1), 5),
        ("dp_fedavg 139 users", hp.methods.dp_fedavg(users, 20, 3, 0.1, 1.0, noise_std=0.1), 5),
        ("decentralized_admm, hops", hp.methods.decentralized_admm(small, 20_000, 2.0, noise_std=0.1), 7),
        ("stateless_walk, hops", hp.methods.stateless_walk(small, 500, 0.5, noise_std=0.1), 5),
    ):
        yield name, lambda plan=plan: plan.run(seed=1), often
    X = rng.normal(size=(30_000, 108)) / 10
    y = (X[:, 0] + 0.1 * rng.normal(size=30_000) > 0).astype(int)
    sparse = scipy.sparse.random_array((20_000, 2000), density=0.01, format="csr", rng=rng)
    labels = (np.asarray(sparse.sum(axis=1)).ravel() > sparse.sum() / 20_000).astype(int)

    def fit(rows: object, target: object) -> Callable[[], object]:
        return lambda: hp.PrivateLogisticRegression(epsilon=1.0, delta=1e-6, row_norm=1.5, random_state=0).fit(
            rows, target
        )

    yield "fit 30,000 x 108", fit(X, y), 5
    yield "fit 30,000 x 108, three classes", fit(X, rng.integers(0, 3, 30_000)), 3
    yield "fit sparse 20,000 x 2,000", fit(sparse, labels), 3
    yield "guarantee, Poisson", lambda: hp.methods.dp_sgd(small, 99, 0.5, 0.1, noise_std=0.1).guarantee(1e-6), 5


def _measured(only: str) -> dict[str, float]:
    found = {}
    for name, call, often in _work():
        if only in name:
            call()
            times = []
            for _ in range(often):
                began = time.process_time()
                call()
                times.append(time.process_time() - began)
            found[name] = min(times)
    return found


def _child(source: Path, only: str) -> dict[str, float]:
    settings = {**os.environ, "PYTHONPATH": str(source), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--measure", "--only", only]
    return json.loads(subprocess.run(command, env=settings, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    """Time both trees in turn, and print a table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("commit", nargs="?", default="HEAD~1")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--only", default="", help="work whose name has this in it")
    options.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.measure:
        print(json.dumps(_measured(chosen.only)))
        return
    with tempfile.TemporaryDirectory() as place:
        other = Path(place) / "other"
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "-q", "--detach", other, chosen.commit], check=True)
        try:
            both = [
                (_child(other / "src", chosen.only), _child(ROOT / "src", chosen.only)) for _ in range(chosen.rounds)
            ]
        finally:
            subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", other], check=True)
    print(f"{'CPU seconds, median of ' + str(chosen.rounds):34}{chosen.commit[:10]:>12}{'here':>12}{'ratio':>8}")
    for name in both[0][1]:
        there, here = (median(pair[side][name] for pair in both) for side in (0, 1))
        print(f"{name:34}{there:12.4f}{here:12.4f}{here / there:8.3f}")


if __name__ == "__main__":
    main()
