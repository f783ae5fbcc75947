"""More data than memory: trains on rows generated on disk and watches anonymous memory. Called by run.py --stream."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

import hushpoint as hp

FEATURES = 100


def anonymous() -> int:
    """Bytes of anonymous memory of this process."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))


def generate(path: Path, gigabytes: float) -> None:
    """Write rows of a logistic model, a chunk at a time; nearly all of them are longer than 1."""
    rows = int(gigabytes * 1e9) // (8 * FEATURES)
    table = np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=(rows, FEATURES))
    rng = np.random.default_rng(0)
    for start in range(0, rows, 50_000):
        part = table[start : start + 50_000]
        part[:] = rng.standard_normal(part.shape) * 0.12
    table.flush()


def section(gigabytes: float = 4.0) -> tuple[str, list[str], list[list[str]]]:
    """The table: seconds of a step, and the most anonymous memory at any step."""
    folder = Path(tempfile.mkdtemp(prefix="hushpoint-bench-"))
    try:
        if shutil.disk_usage(folder).free < 2e9 * gigabytes:
            return "More data than memory", ["what"], [["not enough free disk: skipped"]]
        generate(folder / "rows.npy", gigabytes)
        X = np.load(folder / "rows.npy", mmap_mode="r")
        labels = np.random.default_rng(1).random(len(X)) < 0.5
        rows = []
        start = time.perf_counter()
        problem = hp.Problem(X, labels, "logistic", row_norm=1.0)
        rows.append(
            ["Problem(...): check and measure every row", f"{time.perf_counter() - start:.1f} s", _mb(anonymous())]
        )
        for name, plan in (
            ("private_admm step", hp.methods.private_admm(problem, 3, 10.0, noise_std=1.0)),
            ("dp_sgd step, all records", hp.methods.dp_sgd(problem, 3, 1.0, noise_std=0.01)),
        ):
            most, ticks = [0], [time.perf_counter()]

            def watch(step, model, most=most, ticks=ticks):
                most[0] = max(most[0], anonymous())
                ticks.append(time.perf_counter())

            plan.run(seed=0, callback=watch)
            rows.append([name, f"{np.median(np.diff(ticks)):.1f} s", _mb(most[0])])
        title = f"{X.nbytes / 1e9:.1f} GB on disk, {len(X)} rows"
        return title, ["what", "time", "anonymous memory"], rows
    finally:
        shutil.rmtree(folder)


def _mb(count: int) -> str:
    return f"{count / 1e6:.0f} MB"
