"""All sites of a run in one process, asked and moved together.

Between a server and sites in one process there is nothing: nobody to sign for, nothing to encode, no crash to survive.
What a site answers, what it counts and when it has had enough is as in ``Client``, for many at once.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hushpoint._types import Array, Indices
from hushpoint.federated.client import attempt
from hushpoint.noise import source_for
from hushpoint.operators.base import is_within
from hushpoint.plan import Plan
from hushpoint.rows import Rows


class Crowd:
    """The sites of a plan with their blocks and their counts, each with the rows of one item."""

    def __init__(self, plan: Plan, rows: Rows, seed: int | None) -> None:
        self._plan, self._seed = plan, seed
        self._data, self._bare = plan.operator.prepare(rows), plan.operator.without_data()
        kind, count = plan.operator.nothing().dtype, plan.operator.blocks
        self._blocks = np.zeros((count, plan.operator.block_size), dtype=kind)
        self.participations = np.zeros(count, dtype=np.int64)

    def move(self, sites: Indices, step: int, point: Array) -> tuple[Indices, Array]:
        """Those of the sites that move from a public point, and their messages."""
        operator = self._plan.operator
        if not (np.isfinite(point).all() and is_within(point, operator.reach())):
            return sites[:0], np.zeros((0, operator.message_size))
        willing = sites[self.participations[sites] < self._most]
        # A source of its own for every round: one that is computed again must not meet the same noise.
        source = source_for(self._seed)
        pieces: list[Array] = []
        done = np.ones(len(willing), dtype=np.bool_)
        for part in _parts(len(willing), operator.chunk):
            some = willing[part]
            where = part if len(willing) == operator.blocks else some  # a slice copies nothing
            kick = self._plan.noise.drawn(source, "block", step, operator.message_size, some)
            found = attempt(self._plan, self._data, where, self._blocks[where], point, step, kick)
            if found is None:
                done[part], found = self._one_by_one(some, point, step, kick)
            if operator.block_size:
                self._blocks[where] += found
            pieces.append(found)
        messages = np.concatenate(pieces) if len(pieces) != 1 else pieces[0]
        moved, messages = (willing, messages) if done.all() else (willing[done], messages[done])
        self.participations[moved] += 1
        return moved, messages

    @property
    def _most(self) -> int:
        """How often a site takes part, by its own terms."""
        plan, most = self._plan, self._plan.steps
        if plan.noise.place == "block":
            most = min(most, plan.schedule.most(plan.steps))
        return most if plan.schedule.cap is None else min(most, plan.schedule.cap)

    def _one_by_one(
        self, sites: Indices, point: Array, step: int, kick: Array | None
    ) -> tuple[NDArray[np.bool_], Array]:
        """Where some of the sites cannot be moved together with others: which can at all, and their messages."""
        messages = np.zeros((len(sites), self._plan.operator.message_size), dtype=self._plan.operator.nothing().dtype)
        done = np.zeros(len(sites), dtype=np.bool_)
        for place, site in enumerate(sites):
            own = None if kick is None else kick[place : place + 1]
            for data in (self._data, self._bare):
                found = attempt(self._plan, data, sites[place : place + 1], self._blocks[[site]], point, step, own)
                if found is not None:
                    messages[place], done[place] = found[0], True
                    break
        return done, messages


def _parts(count: int, chunk: int | None) -> Iterator[slice]:
    size = max(1, count if chunk is None else chunk)
    return (slice(start, min(start + size, count)) for start in range(0, max(count, 1), size))
