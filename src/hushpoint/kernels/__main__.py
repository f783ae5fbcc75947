"""``python -m hushpoint.kernels``: compile everything now, so that no first run has to wait."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.sparse import csr_array

import hushpoint as hp
from hushpoint._types import Array


def compile_all() -> float:
    """Run every compiled loop once on a few rows, seeded and secure, however they are stored; returns the seconds."""
    start = time.perf_counter()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 4))
    y = np.where(rng.random(40) < 0.5, 1, 0)
    for table in (X, X.astype(np.float32), csr_array(X)):  # each has loops of its own
        for plan in _plans(table, y):
            plan.run(seed=0)
    return time.perf_counter() - start


def _plans(table: Any, y: Array) -> Iterator[hp.Plan]:
    """A plan for every compiled loop."""
    rows = hp.Problem(table, y, "logistic", row_norm=1.0)
    users = hp.Problem(table, y, "logistic", row_norm=1.0, groups=np.repeat(np.arange(4), (2, 8, 14, 16)))
    yield from (
        hp.methods.centralized_admm(rows, 2, 1.0, noise_std=1.0),
        hp.methods.federated_admm(rows, 2, 1.0, noise_std=1.0, sample_size=5),
        hp.methods.decentralized_admm(rows, 2, 1.0, noise_std=1.0),
        hp.methods.private_admm(rows, 2, 1.0, noise_std=1.0),
        hp.methods.dp_sgd(rows, 2, 1.0, noise_std=1.0),
        hp.methods.dp_cd(rows, 2, noise_std=1.0),
        hp.methods.dp_cd(rows, 2, noise_std=1.0, lattice=True),
        hp.methods.federated_admm(users, 2, 1.0, noise_std=1.0),
        hp.methods.dp_fedavg(users, 2, 2, 0.5, 1.0, noise_std=1.0, lattice=True),
        hp.methods.anchored_admm(rows, 2, 1.0, noise_std=1.0, lattice=True),
        hp.methods.anchored_admm(users, 2, 1.0, noise_std=1.0, lattice=True),
    )


if __name__ == "__main__":
    print(f"Compiled in {compile_all():.0f} s; from now on this comes from the cache.")
