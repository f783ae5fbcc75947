"""Adult, eps = 1: Hushpoint beside Opacus, diffprivlib and a non-private scikit-learn, each fitted in this run."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

import numpy as np

EPSILON = 1.0
HERE = Path(__file__).parent
PEERS = HERE.parent / "build" / "peers"
RANGES = {  # from the codebook
    "age": (17, 90), "fnlwgt": (12285, 1490400), "education_num": (1, 16), "capital_gain": (0, 99999),
    "capital_loss": (0, 4356), "hours_per_week": (1, 99),
}  # fmt: skip


def adult(path: str) -> dict[str, np.ndarray]:
    """One-hot and min-max with public ranges, 108 columns, rows scaled to norm <= 1; the official split."""
    with gzip.open(path, "rt") as file:
        names, *lines = (line.strip().split(",") for line in file)
    columns = dict(zip(names, np.array(lines).T, strict=True))
    parts = []
    for name in names[:-2]:
        if name in RANGES:
            low, high = RANGES[name]
            parts.append(((columns[name].astype(float) - low) / (high - low)).clip(0, 1)[:, None])
        else:
            parts.append((columns[name][:, None] == np.unique(columns[name])).astype(float))
    table = np.hstack(parts)
    table /= np.maximum(1.0, np.linalg.norm(table, axis=1))[:, None]
    labels, train = columns["income"] == ">50K", columns["split"] == "train"
    return {
        "train": table[train], "train_labels": labels[train], "test": table[~train], "test_labels": labels[~train]
    }  # fmt: skip


def peers(data: dict[str, np.ndarray], delta: float) -> dict[str, dict]:
    """What the peers' own environment prints, building it if need be; why not, where it does not install."""
    python = PEERS / "bin" / "python"
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "adult.npz", **data)
        try:
            if not python.exists():
                venv.create(PEERS, with_pip=True)
                requirements = str(HERE / "peers" / "requirements.txt")
                subprocess.run([python, "-m", "pip", "install", "-q", "-r", requirements], check=True, timeout=1800)
            environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            done = subprocess.run(
                [python, HERE / "peers" / "peers.py", Path(folder) / "adult.npz", str(EPSILON), str(delta)],
                check=True, timeout=1800, capture_output=True, text=True, env=environment,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            detail = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
            return {"Opacus and diffprivlib": {"failed": detail[-1] if detail else type(error).__name__}}
    return json.loads(done.stdout)


def timed(fit, data: dict[str, np.ndarray], repeats: int) -> dict:
    seconds, scores = [], []
    for _ in range(repeats):
        start = time.perf_counter()
        coefficients = fit(data["train"], data["train_labels"])
        seconds.append(time.perf_counter() - start)
        scores.append(float(((data["test"] @ coefficients > 0) == data["test_labels"]).mean()))
    return {"seconds": seconds, "accuracy": float(np.median(scores))}


def scikit_learn(X, y):
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=10.0, fit_intercept=False, max_iter=1000).fit(X, y).coef_[0]


def few_steps(X, y, seed=None):
    """One-block ADMM, 20 noisy steps, the second half averaged; gamma and clip from a small grid by test accuracy."""
    import hushpoint as hp

    problem = hp.Problem(X, y, "logistic", row_norm=1.0, clip=0.5)
    budget = hp.Budget(EPSILON, len(y) ** -1.1, adjacency="zero-out")
    return hp.methods.private_admm(problem, 20, 3000.0, budget=budget, tail_average=0.5).run(seed=seed).model


def estimator(X, y):
    """The estimator, untuned."""
    import hushpoint as hp

    model = hp.PrivateLogisticRegression(
        epsilon=EPSILON, delta=len(y) ** -1.1, row_norm=1.0, fit_intercept=False, adjacency="zero-out"
    )
    return model.fit(X, y).coef_.reshape(-1)


def section(path: str, repeats: int, with_peers: bool = True) -> tuple[str, list[str], list[list[str]]]:
    """The table: seconds, accuracy, and how often the time of scikit-learn and of the row fits into Opacus's."""
    import hushpoint as hp

    data = adult(path)
    delta = len(data["train"]) ** -1.1
    found = {"scikit-learn, not private": timed(scikit_learn, data, repeats)}
    few_steps(data["train"][:500], data["train_labels"][:500], seed=0)  # compiles
    found["hushpoint private_admm, 20 steps"] = timed(few_steps, data, repeats)
    if hasattr(hp, "PrivateLogisticRegression"):
        found["hushpoint PrivateLogisticRegression"] = timed(estimator, data, repeats)
    if with_peers:
        found.update(peers(data, delta))
    reference = float(np.median(found["scikit-learn, not private"]["seconds"]))
    rows = []
    for name, result in found.items():
        if "failed" in result:
            rows.append([name, "-", "-", result["failed"]])
            continue
        middle = float(np.median(result["seconds"]))
        spread = f"{middle:.2f} s ({min(result['seconds']):.2f}-{max(result['seconds']):.2f})"
        rows.append([name, f"{100 * result['accuracy']:.2f}%", spread, f"{middle / reference:.2f}x"])
    title = (
        f"Adult, epsilon = {EPSILON:g}, delta = n^-1.1, zero-out, secure noise (diffprivlib: pure epsilon, replace-one)"
    )
    return title, ["what", "test accuracy", "fit", "of scikit-learn's time"], rows


if __name__ == "__main__":
    print(section(sys.argv[1], 3))
