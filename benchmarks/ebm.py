"""Additive models beside DP-EBM (interpret), each fitted in this run: Adult and California, four budgets.

python benchmarks/ebm.py --data DIRECTORY [--seeds 10] [--only adult]

DP-EBM has an environment of its own in build/ebm. Tuned, it has the best of eight settings *on the test rows*, which
costs it no privacy here, and would in earnest.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import venv
from pathlib import Path

import datasets
import numpy as np
from additive import BUDGETS, additive
from dataset import DataSet

HERE = Path(__file__).parent
HOME = HERE.parent / "build" / "ebm"


def as_table(data: DataSet) -> dict[str, np.ndarray]:
    """What DP-EBM is told: cells as objects, the kind of each column, and ranges."""
    columns = [*data.columns, *(category.name for category in data.categories)]
    kinds = ["continuous"] * len(data.columns) + ["nominal"] * len(data.categories)

    def cells(which: np.ndarray) -> np.ndarray:
        numbers, categories, _ = data.rows(which)
        return np.column_stack([numbers.astype(object), *(category.values.astype(object) for category in categories)])

    known = {} if data.target_range is None else {"target_range": np.array(data.target_range)}
    return known | {
        "columns": np.array(columns), "kinds": np.array(kinds), "ranges": np.array(data.ranges),
        "train": cells(data.train), "train_targets": data.target[data.train],
        "test": cells(data.test), "test_targets": data.target[data.test],
    }  # fmt: skip


def peers(data: DataSet, seeds: int) -> dict[str, list[float]]:
    """Scores of DP-EBM by epsilon: defaults, and tuned."""
    python = HOME / "bin" / "python"
    if not python.exists():
        venv.create(HOME, with_pip=True)
        requirements = str(HERE / "peers" / "ebm.txt")
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", requirements], check=True, timeout=1800)
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "table.npz", **as_table(data))
        delta = len(data.train) ** -1.1
        command = [python, HERE / "peers" / "ebm.py", Path(folder) / "table.npz", repr(delta), str(seeds)]
        done = subprocess.run([*command, *map(str, BUDGETS)], check=True, capture_output=True, text=True)
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", nargs="*", default=["adult", "california"])
    options = parser.parse_args()
    print(f"Accuracy in %, or 100 R2; zero-out (add or remove), delta = n^-1.1, mean of {options.seeds} seeds.")
    print("| data set | model | " + " | ".join(f"eps {epsilon:g}" for epsilon in BUDGETS) + " |")
    print("|---" * (len(BUDGETS) + 2) + "|")
    for name in options.only:
        data = datasets.load(name, options.data)
        scores = [np.mean([additive(data, e, seed)[0] for seed in range(options.seeds)]) for e in BUDGETS]
        theirs = peers(data, options.seeds)
        for model, cells in (
            ("ours", scores),
            ("DP-EBM, defaults", [default for default, _ in theirs.values()]),
            ("DP-EBM, tuned on the test rows", [tuned for _, tuned in theirs.values()]),
        ):
            print(f"| {name} | {model} | " + " | ".join(f"{cell:.2f}" for cell in cells) + " |", flush=True)


if __name__ == "__main__":
    main()
