"""The sensitivity oracle: what a certificate promises of one step, tried on two data sets at many states.

A promise that is broken here is false. One that holds here is not proved: that takes a proof, and then this.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpoint._checks import require_count
from hushpoint._described import described
from hushpoint._types import Array, Indices
from hushpoint.privacy.accounting import require_plan

if TYPE_CHECKING:
    from hushpoint.operators.base import Operator
    from hushpoint.plan import Plan

_SLACK = 1 + 1e-9  # rounding of what is measured
_SPREADS = (0.1, 1.0, 10.0)
_same = partial(np.allclose, rtol=1e-9, atol=1e-12)
Broken = Iterator[tuple[str, float]]
"""What is broken, and by how much where that is measured."""


def broken_promises(
    plan: Plan,
    neighbour: Plan,
    item: int = 0,
    *,
    unit: str | None = None,
    adjacency: str = "replace-one",
    trials: int = 30,
    seed: int = 0,
) -> list[str]:
    """Promises of a certificate that do not hold for two data sets that differ in one unit.

    Parameters
    ----------
    plan, neighbour : Plan
        The same plan bound to both data sets (``plan.on(problem)``, or operators that hold their data).
    item : int
        The item in which they differ, and the only one.
    unit : {"user", "record"}, optional
        Whether they differ in the whole item or in one row of it; default that of the plan.
    adjacency : {"replace-one", "zero-out"}
        How they differ; for zero-out the neighbour is the one in which the unit counts for nothing.
    trials : int
        States that are tried, at each of three distances from the start and at the relaxations of the plan in turn.
    seed : int
        Of the states.

    Returns
    -------
    list of str
        A sentence for each promise that was seen to be broken, with the worst that was measured. None found is no
        proof: blocks and points are random, and what a block keeps without noise over many steps is not looked at.
    """
    for name, one in (("plan", plan), ("neighbour", neighbour)):
        require_plan(name, one, "Pass a plan that is bound to data.")
    items = plan.operator.blocks if plan.facts is None else plan.facts.items
    require_count("item", item, least=0, most=items - 1)
    require_count("trials", trials)
    pair = _Pair(plan, neighbour, item, plan.default_unit if unit is None else unit, adjacency)
    rng = np.random.default_rng(seed)
    worst = dict(pair.broken_at_rest())
    for trial in range(trials * len(_SPREADS)):
        for told, measured in pair.broken(rng, _SPREADS[trial % len(_SPREADS)], plan.relaxation_at(trial)):
            worst[told] = max(worst.get(told, 0.0), measured)
    return [told + (f": {measured:.6g} times what is allowed" if measured else "") for told, measured in worst.items()]


class _Pair:
    def __init__(self, plan: Plan, neighbour: Plan, item: int, unit: str, adjacency: str) -> None:
        plan.certificate.shift(unit, adjacency, item)  # an error where nothing is promised of them
        self.plan, self.neighbour, self.item, self.unit, self.adjacency = plan, neighbour, item, unit, adjacency
        self.here, self.there = plan.operator, neighbour.operator
        self.worlds = (self.here, _prepared(plan)), (self.there, _prepared(neighbour))
        everyone = "all" in plan.certificate.theorem.laws
        self.chosen = slice(None) if everyone else np.array([item % plan.operator.blocks])

    def broken_at_rest(self) -> Broken:
        """What must not depend on the data, whatever the state."""
        if described(self.plan.certificate) != described(self.neighbour.certificate):
            yield "the certificate depends on the data", 0.0
        if not all(map(np.array_equal, self.here.start(), self.there.start())):
            yield "the start depends on the data", 0.0

    def broken(self, rng: np.random.Generator, spread: float, relaxation: float) -> Broken:
        """What does not hold at one random state, or between it and another one."""
        self.relaxation, self.certificate = relaxation, self.here.own_certificate(relaxation)
        states = [self._state(rng, spread) for _ in range(2)]
        shared, blocks = states[0]
        allowed = self.certificate.shift(self.unit, self.adjacency, self.item)
        here, there = (self._noised(*world, shared, blocks) for world in self.worlds)
        length = float(np.linalg.norm(here - there))
        if length > allowed * _SLACK:
            told = f"one {self.unit} ({self.adjacency}) moves what is noised beyond the stated sensitivity"
            yield told, length / allowed if allowed else np.inf
        rate = self.here.step_lipschitz(relaxation)
        if rate is not None and self.here.multiplicity is None:
            ends = [_joined(*self._step(*self.worlds[0], *state)[:2]) for state in states]
            before, after = np.linalg.norm(_joined(*states[0]) - _joined(*states[1])), np.linalg.norm(ends[0] - ends[1])
            if after > rate * before * _SLACK + 1e-9:
                yield "a step moves two states apart beyond its Lipschitz constant", float(after / before / rate)
        yield from self._broken_after_noise(shared)
        theorem = self.certificate.theorem
        if theorem.counts == "participations" and self.here.blocks > 1:
            others = np.delete(np.arange(self.here.blocks), self.item % self.here.blocks)
            if not _same(*(self._step(*world, shared, blocks, others)[2] for world in self.worlds)):
                yield "an item moves steps in which it takes no part, and pays for none of them", 0.0
        if theorem.walks and self.here.block_size:
            yield "the token is not all that is kept: there are blocks", 0.0
        if theorem.amplified_by:
            yield from self._broken_sample(rng, shared, blocks, "fixed" in theorem.amplified_by)

    def _broken_after_noise(self, shared: Array) -> Broken:
        both, total = (self.here, self.there), np.ones(self.here.message_size)
        for name, (mine, yours) in {
            "release": [operator.release(shared) for operator in both],
            "model": [operator.model(self.here.release(shared)) for operator in both],
            "combine": [operator.combine(shared, total, self._who, self.relaxation) for operator in both],
        }.items():
            if not np.array_equal(mine, yours):
                yield f"{name} depends on the data, after the noise", 0.0

    def _broken_sample(self, rng: np.random.Generator, shared: Array, blocks: Array, stateless: bool) -> Broken:
        """What secret samples need: bounded messages of one's own, a sum of them, and nothing else."""
        (operator, data), (_, other) = self.worlds
        z, everyone = operator.release(shared), np.arange(operator.blocks)
        if stateless and operator.block_size:
            yield "a sample of fixed size hides nobody whose block is kept", 0.0
        some = np.sort(rng.choice(everyone, rng.integers(1, len(everyone) + 1), replace=False))
        others = some[some != self.item]

        def messages(rows: Any, chosen: Any) -> Array:
            return operator.local(rows, chosen, blocks[chosen], z, self.relaxation, None)[1]

        sent = messages(data, some)
        if not _same(sent, np.vstack([messages(data, some[k : k + 1]) for k in range(len(some))])):
            yield "the message of an item depends on who else is in the sample", 0.0
        if len(others) and not _same(messages(data, others), messages(other, others)):
            yield "the messages of other items depend on the item's data", 0.0
        counted = np.ones(len(everyone)) if operator.multiplicity is None else operator.multiplicity
        stated = self.certificate.sensitivity
        bound = stated.get(("user", "zero-out"), stated.get(("record", "zero-out"), np.inf))
        excess = np.linalg.norm(counted[some, None] * sent, axis=1) / np.broadcast_to(bound, len(everyone))[some]
        if excess.max() > _SLACK:
            yield "a message is longer in the sum than the zero-out sensitivity", float(excess.max())
        each = None if operator.multiplicity is None else counted[some]
        total = operator.move(data, some, blocks[some], z, self.relaxation, None, each)[1]
        if not np.allclose(total, counted[some] @ sent, rtol=1e-9, atol=1e-9):
            yield "what is noised is not the sum of the messages", 0.0
        combined = [operator.combine(shared, total, chosen, self.relaxation) for chosen in (some, some[:1], None)]
        if any(not np.array_equal(combined[0], one) for one in combined[1:]):
            yield "what is made of the sum depends on who was in the sample, or on how many", 0.0

    def _noised(self, operator: Operator, data: Any, shared: Array, blocks: Array) -> Array:
        """What a step adds noise to. In the blocks that is R, of which they take ``relaxation`` times the change."""
        combined, moved, total = self._step(operator, data, shared, blocks)
        kept = moved if operator.block_size else total
        return {"release": combined, "sum": total, "block": kept / self.relaxation}[self.plan.noise.place]

    def _state(self, rng: np.random.Generator, spread: float) -> tuple[Array, Array]:
        shared, blocks = self.here.start()
        blocks = blocks + spread * rng.normal(size=blocks.shape)
        if self.here.block_size:  # what is shared is what the blocks make it: their mean, with their multiplicities
            counted = np.ones(len(blocks)) if self.here.multiplicity is None else self.here.multiplicity
            return counted @ blocks / len(blocks), blocks
        return shared + spread * rng.normal(size=shared.shape), blocks

    def _step(
        self, operator: Operator, data: Any, shared: Array, blocks: Array, chosen: Indices | None = None
    ) -> tuple[Array, Array, Array]:
        """What is shared, the blocks and the sum of the messages, after a step without noise."""
        who = self.chosen if chosen is None else chosen
        counted = None if operator.multiplicity is None else operator.multiplicity[who]
        z, blocks = operator.release(shared), blocks.copy()
        blocks[who], total = operator.move(data, who, blocks[who], z, self.relaxation, None, counted)
        return operator.combine(shared, total, self._who, self.relaxation), blocks, total

    @property
    def _who(self) -> Indices | None:
        return None if isinstance(self.chosen, slice) else self.chosen


def _prepared(plan: Plan) -> Any:
    rows = plan.problem.rows if plan.operator.needs_rows and plan.problem is not None else None
    return plan.operator.prepare(rows)


def _joined(shared: Array, blocks: Array) -> Array:
    """A state as one vector; what is shared is not counted twice where blocks hold it."""
    return blocks.ravel() if blocks.size else shared
