"""Generated data for experiments."""

from __future__ import annotations

import numpy as np

from hushpoint._types import Array


def synthetic_lasso(items: int, features: int, support: int = 8, seed: int = 0) -> tuple[Array, Array, Array]:
    """The paper's Lasso: rows on the unit sphere, a sparse model, label noise of variance 0.01.

    Returns features, targets and the model they came from.
    """
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(items, features))
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    model = np.zeros(features)
    model[rng.choice(features, size=support, replace=False)] = rng.uniform(size=support)
    return rows, rows @ model + 0.1 * rng.normal(size=items), model
