"""What no implementation can beat here: drawing the normals of a step, and reading its data once."""

from __future__ import annotations

import numba as nb
import numpy as np

from hushpoint._threads import share
from hushpoint.noise import source_for

STRETCH = 1000


@nb.njit(nogil=True, fastmath=True)
def _read(flat, start, stop):
    total = 0.0
    for k in range(start, stop):
        total += flat[k]
    return total


def reader(table: np.ndarray):
    """A function that reads a table once, on all threads if it is large."""
    flat = table.reshape(-1)
    _read(flat, 0, 1)
    if flat.size < 1 << 19:
        return lambda: _read(flat, 0, flat.size)
    return lambda: share(lambda start, stop: _read(flat, start, stop), flat.size)


def drawer(count: int):
    """A function that draws so many normals with the fast seeded generator, others each time."""
    source, step = source_for(0), [0]
    addresses = np.arange(-(-count // STRETCH))

    def draw():
        step[0] += 1
        if count <= STRETCH:
            source.normals("limit", [0], step[0], count)
        else:
            source.normals("limit", addresses, step[0], STRETCH)

    draw()
    return draw


def numpy_drawer(count: int):
    """The same with NumPy's generator, for comparison."""
    generator = np.random.Generator(np.random.SFC64(0))
    return lambda: generator.standard_normal(count)
