"""Reading arrays from files, as federations of NumPy data have them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hushpoint._types import Array

REMEDY = "Save X (rows, features) and y (rows,) with np.savez, or one table with y in the last column with np.save."


def load_arrays(path: Path, features: int) -> tuple[Array, Array | None]:
    """The rows and the targets in a .npz or .npy file; None for targets that are not there."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.lib.npyio.NpzFile):
            with loaded:
                X = np.asarray(loaded["X"], dtype=np.float64)
                y = np.asarray(loaded["y"], dtype=np.float64) if "y" in loaded.files else None
        else:
            table = np.asarray(loaded, dtype=np.float64)
            X, y = (table, None) if table.shape[1] == features else (table[:, :-1], table[:, -1])
    except Exception:  # of NumPy and zipfile; their texts quote what is in the file
        raise ValueError(f"{path.name!r} does not hold NumPy data as expected. {REMEDY}") from None
    if X.ndim != 2 or X.shape[1] != features or (y is not None and y.shape != (X.shape[0],)):
        shape = "no y" if y is None else f"y of shape {y.shape}"
        raise ValueError(f"{path.name!r} has X of shape {X.shape}, {shape}, and features = {features}. {REMEDY}")
    return X, y
