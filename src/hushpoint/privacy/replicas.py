"""Many independent runs of one plan at once, for audits: the engine's step with one row of state per run.

Each run has its own seeded source and draws exactly what ``plan.run(seed)`` would draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpoint._types import Array, Indices
from hushpoint.engine import choose, settle
from hushpoint.noise import Place, Source, seeded_source

if TYPE_CHECKING:
    from hushpoint.plan import Plan


_TOGETHER = 4096  # runs whose state is held at a time


def released_models(plan: Plan, seeds: Sequence[int], every_step: bool) -> Array:
    """What each run releases, one row a seed: the final model, or the models of all steps one after the other."""
    if not plan.operator.takes_many_points or plan.problem is None:
        return np.stack([_one_by_one(plan, seed, every_step) for seed in seeds])
    data = plan.operator.prepare(plan.problem.rows)
    parts = [seeds[start : start + _TOGETHER] for start in range(0, len(seeds), _TOGETHER)]
    return np.vstack([_Replicas(plan, data, part).run(every_step) for part in parts])


def _one_by_one(plan: Plan, seed: int, every_step: bool) -> Array:
    result = plan.run(seed=seed, history="models" if every_step else False)
    return np.concatenate(list(result.history["models"])) if every_step else result.model


class _Replicas:
    def __init__(self, plan: Plan, data: Any, seeds: Sequence[int]) -> None:
        self.plan, self.operator, self.data = plan, plan.operator, data
        self.sources: list[Source] = [seeded_source(seed) for seed in seeds]
        shared, blocks = self.operator.start()
        count = len(seeds)
        self.shared = np.tile(shared, (count, 1))
        self.public = self.shared
        self.blocks = np.tile(blocks, (count, 1, 1))
        self.participations = np.zeros((count, self.operator.blocks), dtype=np.int64)
        self.positions = np.full(count, -1)

    def run(self, every_step: bool) -> Array:
        released = []
        steps, tail = self.plan.steps, self.plan.tail_average
        averaged = 1 if tail is None or every_step else max(1, round(tail * steps))
        for step in range(steps):
            self._step(step)
            if every_step or step >= steps - averaged:
                released.append(self.operator.model(self.operator.release(self.public)))
        return np.hstack(released) if every_step else np.mean(released, axis=0)

    def _step(self, step: int) -> None:
        operator, relaxation = self.operator, self.plan.relaxation_at(step)
        owners, items, resting = self._movers(step)
        totals = np.tile(operator.nothing(), (len(self.sources), 1))
        if items.size:
            z = operator.release(self.public)[owners]
            kick = self._kick(owners, items, step)
            block, messages = operator.local(self.data, items, self.blocks[owners, items], z, relaxation, kick)
            self.blocks[owners, items] = block
            if operator.multiplicity is not None:
                messages = messages * operator.multiplicity[items, None]
            np.add.at(totals, owners, messages)
        if operator.rests_with_noise and resting[0].size:
            idle = self._kick(*resting, step)
            np.add.at(totals, resting[0], 0.0 if idle is None else relaxation * idle)

        def drawn(place: Place, size: int) -> Array | None:
            return _stacked([self.plan.noise.drawn(source, place, step, size) for source in self.sources])

        self.shared, self.public = settle(operator, self.shared, totals, None, relaxation, drawn)
        self.participations[owners, items] += 1

    def _movers(self, step: int) -> tuple[Indices, Indices, tuple[Indices, Indices]]:
        """Runs and items of everybody who moves, run after run; and of those who rest at their cap."""
        moving, idle = [], []
        everyone = np.arange(self.operator.blocks)
        for run, source in enumerate(self.sources):
            chosen, resting, self.positions[run] = choose(
                self.plan, source, step, self.positions[run], self.participations[run], self.plan.steps
            )
            moving.append(everyone if chosen is None else chosen)
            idle.append(resting)
        return *_owned(moving), _owned(idle)

    def _kick(self, owners: Indices, items: Indices, step: int) -> Array | None:
        noise, size = self.plan.noise, self.operator.message_size
        ends = np.searchsorted(owners, np.arange(1, len(self.sources)))
        each = zip(self.sources, np.split(items, ends), strict=True)
        return _stacked([noise.drawn(source, "block", step, size, mine) for source, mine in each])


def _stacked(parts: list[Array | None]) -> Array | None:
    there = [part for part in parts if part is not None]
    return np.vstack(there) if there else None


def _owned(lists: list[Indices]) -> tuple[Indices, Indices]:
    lengths = [len(part) for part in lists]
    return np.repeat(np.arange(len(lists)), lengths), np.concatenate(lists)
