"""Moves of blocks on the lattice: what each item of anchored ADMM keeps, in whole units from the public point.

A block is kept as integers U, the public point is rounded to integers Z. With ``d = u - z`` (both in real numbers) and
``x = prox_{gamma f_i}(2 z - u)`` the offset is ``d + 2 lambda (x - z)``; what is kept is Z plus the offset in whole
units, cut to the radius.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hushpoint._compiled import inner, loop
from hushpoint._threads import share
from hushpoint._types import Array, Indices
from hushpoint.kernels.fixed_rows import ROOM, FixedRows, fixed_add, fixed_dot, fixed_table, make_whole
from hushpoint.kernels.scalar import prox
from hushpoint.kernels.users import UsersProx
from hushpoint.rows import Rows

_WORTH_SHARING = 1 << 17  # numbers in the blocks from which on threads pay


class RowMoves:
    """Items of one row: one scalar equation an item, along that row."""

    def __init__(self, rows: Rows, gamma: float, ridge: float) -> None:
        self._rows, self._gamma, self._shrink = FixedRows.of(rows), gamma, 1 / (1 + gamma * ridge)
        self._items = rows.items

    def kept(
        self, chosen: Indices | slice, blocks: Indices, anchors: Indices, relaxation: float, unit: float, most: int
    ) -> Indices:
        """The new blocks of the chosen items; ``anchors`` is Z, one row for all of them or one each."""
        who, found = np.arange(self._items)[chosen], np.empty_like(blocks)
        rows = self._rows
        setting = rows.loss, self._gamma, self._shrink, relaxation, unit, float(most)

        def part(start: int, stop: int) -> None:
            own = anchors if len(anchors) == 1 else anchors[start:stop]
            _rows(rows.parts, setting, who[start:stop], blocks[start:stop], own, found[start:stop])

        share(part, len(who), worth=blocks.size >= _WORTH_SHARING)
        return found


class UserMoves:
    """Items of several rows: one Newton method a user, which knows nothing of the others.

    A user's prox is made of its own rows, point and guess. Scratch arrays are as long as the longest user of a part
    asks for, but each user reads only what it wrote itself, in loops over its own rows from its own first one: how far
    the arrays go on, and who was there before, changes no operation and no order. A user whose prox is not solved moves
    as one without data, for itself alone.
    """

    def __init__(self, rows: Rows, gamma: float, ridge: float, tolerance: float) -> None:
        assert rows.loss.code is not None
        fixed_table(rows.store)
        self._items, self._shrink = rows.items, 1 / (1 + gamma * ridge)
        step = gamma * self._shrink
        self._proxes = UsersProx(rows, rows.loss.code, step, np.full(rows.items, tolerance / step))

    def kept(
        self, chosen: Indices | slice, blocks: Indices, anchors: Indices, relaxation: float, unit: float, most: int
    ) -> Indices:
        """As for rows."""
        who = np.arange(self._items)[chosen]
        z, gap = unit * anchors, unit * (blocks - anchors)
        points = self._shrink * (z - gap)
        guesses = np.ascontiguousarray(np.broadcast_to(z, points.shape))
        found, solved = self._proxes.solve_each(who, points, guesses)
        found[~solved] = points[~solved]
        return _from_offsets(found, z, gap, anchors, relaxation, unit, most)


class IdleMoves:
    """Stands for the data of an item whose loss is 0."""

    def __init__(self, gamma: float, ridge: float) -> None:
        self._shrink = 1 / (1 + gamma * ridge)

    def kept(
        self, chosen: Indices | slice, blocks: Indices, anchors: Indices, relaxation: float, unit: float, most: int
    ) -> Indices:
        """As for rows."""
        z, gap = unit * anchors, unit * (blocks - anchors)
        return _from_offsets(self._shrink * (z - gap), z, gap, anchors, relaxation, unit, most)


def _from_offsets(
    found: Array, z: Any, gap: Any, anchors: Indices, relaxation: float, unit: float, most: int
) -> Indices:
    offsets = found - z
    offsets *= 2 * relaxation
    offsets += gap
    _make_all_whole(offsets, unit, float(most))
    return np.asarray(anchors + offsets.astype(np.int64))


@loop
def _make_all_whole(table, unit, most):
    for k in range(table.shape[0]):
        make_whole(table[k], unit, most)


@inner
def _offset(rows, setting, item, block, anchor, offset, point, room):
    """The offset of one item of one row, in whole numbers."""
    table, targets, squared_norms, limits, _ = rows
    loss, gamma, shrink, relaxation, unit, most = setting
    for j in range(block.size):
        offset[j] = unit * (block[j] - anchor[j])
        point[j] = shrink * (unit * anchor[j] - offset[j])
    squared, weight = squared_norms[item], 0.0
    if squared > 0:
        margin = fixed_dot(table, item, point, room)
        found = prox(loss, margin, targets[item], gamma * shrink * squared, limits[item])
        weight = 2 * relaxation * ((found - margin) / squared)
    of_gap, of_z = 1 - 2 * relaxation * shrink, 2 * relaxation * (shrink - 1)
    for j in range(block.size):
        offset[j] = of_gap * offset[j] + of_z * (unit * anchor[j])
    fixed_add(table, item, weight, offset, room)
    make_whole(offset, unit, most)


@loop
def _rows(rows, setting, chosen, blocks, anchors, out):
    width, each = blocks.shape[1], 0 if anchors.shape[0] == 1 else 1
    offset, point, room = np.empty(width), np.empty(width), np.empty(max(ROOM, width))
    for k in range(chosen.size):
        anchor = anchors[each * k]
        _offset(rows, setting, chosen[k], blocks[k], anchor, offset, point, room)
        for j in range(width):
            out[k, j] = anchor[j] + np.int64(offset[j])
