"""Timing of things side by side: in turn, so that whatever else the machine does slows all of them."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np


def in_turn(works: dict[str, tuple[Callable[[], object], int]], repeats: int) -> dict[str, np.ndarray]:
    """Seconds of one unit of each work, ``repeats`` times; a work is a function and how many units it does."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, (work, units) in works.items():
            start = time.perf_counter()
            work()
            times[name].append((time.perf_counter() - start) / units)
    return {name: np.array(values) for name, values in times.items()}


def shown(seconds: np.ndarray) -> str:
    """Median, and from the fastest to the slowest."""
    middle, low, high = float(np.median(seconds)), seconds.min(), seconds.max()
    unit, scale = ("us", 1e6) if middle < 1e-3 else ("ms", 1e3) if middle < 1 else ("s", 1.0)
    digits = 2 if middle * scale < 10 else 1 if middle * scale < 100 else 0
    return f"{middle * scale:.{digits}f} {unit} ({low * scale:.{digits}f}-{high * scale:.{digits}f})"


def ratio(slow: np.ndarray, fast: np.ndarray) -> str:
    """How many times the fast one fits into the slow one: median over the repeats, and the extremes."""
    ratios = slow / fast
    digits = 0 if np.median(ratios) >= 10 else 2
    return f"{np.median(ratios):.{digits}f}x ({ratios.min():.{digits}f}-{ratios.max():.{digits}f})"


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """The slope of log time in log size."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
