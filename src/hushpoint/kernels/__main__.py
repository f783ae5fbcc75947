"""``python -m hushpoint.kernels``: compile everything now, so that no first run has to wait."""

from __future__ import annotations

import time

import numpy as np

import hushpoint as hp


def compile_all() -> float:
    """Run every compiled loop once on a few rows, seeded and secure; returns the seconds that took."""
    start = time.perf_counter()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 4))
    y = np.where(rng.random(40) < 0.5, 1, 0)
    rows = hp.Problem(X, y, "logistic", row_norm=1.0)
    users = hp.Problem(X, y, "logistic", row_norm=1.0, groups=np.repeat(np.arange(4), (2, 8, 14, 16)))
    for plan in (
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
    ):
        plan.run(seed=0)
    return time.perf_counter() - start


if __name__ == "__main__":
    print(f"Compiled in {compile_all():.0f} s; from now on this comes from the cache.")
