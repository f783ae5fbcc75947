"""Several gradient steps on the rows of each item, and how far they came in whole units: the messages of DP-FedAvg."""

from __future__ import annotations

import numpy as np

from hushpoint._compiled import inner, loop
from hushpoint._fixed import slope
from hushpoint._threads import share
from hushpoint._types import Array, Indices
from hushpoint.kernels.fixed_rows import ROOM, FixedRows, fixed_add, fixed_dot, make_whole

_WORTH_SHARING = 1 << 19  # multiplications of a round from which on threads pay


def summed_updates(
    rows: FixedRows, chosen: Indices, counts: Indices, z: Array, steps: int, size: float, unit: float, most: int
) -> Indices:
    """The sum of the messages of the chosen items, each counted so many times."""
    setting = rows.loss, steps, size, unit, float(most)
    work = z.size * steps * int((rows.spans[chosen + 1] - rows.spans[chosen]).sum())
    totals: list[Indices] = []

    def part(start: int, stop: int) -> None:
        total = np.zeros(z.size, dtype=np.int64)
        _sum(rows.parts, setting, chosen[start:stop], counts[start:stop], z, total)
        totals.append(total)  # in any order: sums of whole numbers are exact

    share(part, len(chosen), worth=work >= _WORTH_SHARING)
    return np.asarray(np.sum(totals, axis=0, dtype=np.int64))


def each_update(
    rows: FixedRows, chosen: Indices, points: Array, steps: int, size: float, unit: float, most: int
) -> Indices:
    """The message of each chosen item, from a point of its own."""
    messages = np.zeros((len(chosen), points.shape[1]), dtype=np.int64)
    _each(rows.parts, (rows.loss, steps, size, unit, float(most)), chosen, points, messages)
    return messages


@inner
def _update(rows, setting, item, z, update, point, gradient, room):
    """The message of one item, in whole numbers."""
    table, targets, _, limits, spans = rows
    loss, steps, size, unit, most = setting
    first, last = spans[item], spans[item + 1]
    for j in range(z.size):
        update[j] = 0.0
    for _ in range(steps):
        for j in range(z.size):
            point[j] = z[j] + update[j]
            gradient[j] = 0.0
        for i in range(first, last):
            steep = slope(loss, fixed_dot(table, i, point, room), targets[i])
            steep = min(max(steep, -limits[i]), limits[i])
            fixed_add(table, i, steep / (last - first), gradient, room)
        for j in range(z.size):
            update[j] -= size * gradient[j]
    make_whole(update, unit, most)


@loop
def _sum(rows, setting, chosen, counts, z, total):
    update, point, gradient = np.empty(z.size), np.empty(z.size), np.empty(z.size)
    room = np.empty(max(ROOM, z.size))
    for k in range(chosen.size):
        _update(rows, setting, chosen[k], z, update, point, gradient, room)
        for j in range(z.size):
            total[j] += counts[k] * np.int64(update[j])


@loop
def _each(rows, setting, chosen, points, out):
    width = points.shape[1]
    update, point, gradient, room = np.empty(width), np.empty(width), np.empty(width), np.empty(max(ROOM, width))
    for k in range(chosen.size):
        _update(rows, setting, chosen[k], points[k], update, point, gradient, room)
        for j in range(width):
            out[k, j] = np.int64(update[j])
