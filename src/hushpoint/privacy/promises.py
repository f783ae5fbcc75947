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


def broken_promises(
    plan: Plan, neighbour: Plan, item: int = 0, *, unit: str | None = None, trials: int = 30, seed: int = 0
) -> list[str]:
    """Promises of a certificate that do not hold for two data sets that differ in one unit; none found: empty.

    Parameters
    ----------
    plan, neighbour : Plan
        The same plan bound to both data sets (``plan.on(problem)``, or operators that hold their data).
    item : int
        The item in which they differ.
    unit : {"user", "record"}, optional
        Whether they differ in the whole item or in one row of it; default that of the plan.
    trials : int
        States that are tried, at each of three distances from the start.
    seed : int
        Of the states.
    """
    for name, one in (("plan", plan), ("neighbour", neighbour)):
        require_plan(name, one, "Pass a plan that is bound to data.")
    items = plan.operator.blocks if plan.facts is None else plan.facts.items
    require_count("item", item, least=0, most=items - 1)
    require_count("trials", trials)
    pair = _Pair(plan, neighbour, item, plan.default_unit if unit is None else unit)
    rng = np.random.default_rng(seed)
    found: dict[str, None] = {}
    if described(plan.certificate) != described(neighbour.certificate):
        found["the certificate depends on the data"] = None
    if not all(map(np.array_equal, plan.operator.start(), neighbour.operator.start())):
        found["the start depends on the data"] = None
    for trial in range(trials * len(_SPREADS)):
        found.update(dict.fromkeys(pair.broken(rng, _SPREADS[trial % len(_SPREADS)])))
    return list(found)


class _Pair:
    def __init__(self, plan: Plan, neighbour: Plan, item: int, unit: str) -> None:
        self.plan, self.item, self.unit = plan, item, unit
        self.here, self.there = plan.operator, neighbour.operator
        self.data, self.other = _prepared(plan), _prepared(neighbour)
        self._worlds = (self.here, self.data), (self.there, self.other)
        self.relaxation = plan.largest_relaxation
        self.certificate = plan.certificate
        everyone = "all" in self.certificate.theorem.laws
        self.chosen = slice(None) if everyone else np.array([item % plan.operator.blocks])

    def broken(self, rng: np.random.Generator, spread: float) -> Iterator[str]:
        """What does not hold at one random state, or between it and another one."""
        states = [self._state(rng, spread) for _ in range(2)]
        shared, blocks = states[0]
        if (self.unit, "replace-one") in self.certificate.sensitivity:
            allowed = self.certificate.shift(self.unit, "replace-one", self.item)
            moved = self._noised(self.here, self.data, *states[0]) - self._noised(self.there, self.other, *states[0])
            length = float(np.linalg.norm(moved))
            if length > allowed * _SLACK:
                yield f"one {self.unit} moves what is noised by {length:.6g}, above the sensitivity {allowed:.6g}"
        rate = self.here.step_lipschitz(self.relaxation)
        if rate is not None and self.here.multiplicity is None:
            ends = [_joined(*self._step(self.here, self.data, *state)[:2]) for state in states]
            before = np.linalg.norm(_joined(*states[0]) - _joined(*states[1]))
            after = np.linalg.norm(ends[0] - ends[1])
            if after > rate * before * _SLACK + 1e-9:
                yield f"a step moves two states apart by {after / before:.6g}, above its Lipschitz constant {rate:.6g}"
        both, total = (self.here, self.there), np.ones(self.here.message_size)
        after_noise = {
            "release": [operator.release(shared) for operator in both],
            "model": [operator.model(self.here.release(shared)) for operator in both],
            "combine": [operator.combine(shared, total, self._who, self.relaxation) for operator in both],
        }
        for name, (mine, yours) in after_noise.items():
            if not np.array_equal(mine, yours):
                yield f"{name} depends on the data, after the noise"
        theorem = self.certificate.theorem
        if theorem.counts == "participations" and self.here.blocks > 1:
            others = np.delete(np.arange(self.here.blocks), self.item % self.here.blocks)
            if not _same(*(self._step(*world, shared, blocks, others)[2] for world in self._worlds)):
                yield "an item moves steps in which it takes no part, and pays for none of them"
        if theorem.walks and self.here.block_size:
            yield "the token is not all that is kept: there are blocks"
        if theorem.amplified_by:
            yield from self._broken_sample(rng, shared, blocks, "fixed" in theorem.amplified_by)

    def _broken_sample(self, rng: np.random.Generator, shared: Array, blocks: Array, stateless: bool) -> Iterator[str]:
        """What secret samples need: bounded messages of one's own, a sum of them, and nothing else."""
        operator, z, everyone = self.here, self.here.release(shared), np.arange(self.here.blocks)
        if stateless and operator.block_size:
            yield "a sample of fixed size hides nobody whose block is kept"
        some = np.sort(rng.choice(everyone, rng.integers(1, len(everyone) + 1), replace=False))
        others = some[some != self.item]

        def messages(data: Any, chosen: Any) -> Array:
            return operator.local(data, chosen, blocks[chosen], z, self.relaxation, None)[1]

        sent = messages(self.data, some)
        if not _same(sent, np.vstack([messages(self.data, some[k : k + 1]) for k in range(len(some))])):
            yield "the message of an item depends on who else is in the sample"
        if len(others) and not _same(messages(self.data, others), messages(self.other, others)):
            yield "the messages of other items depend on the item's data"
        counted = np.ones(len(everyone)) if operator.multiplicity is None else operator.multiplicity
        bound = self.certificate.sensitivity.get(("user", "zero-out"), np.inf)
        longest = np.linalg.norm(counted[some, None] * sent, axis=1)
        if np.any(longest > np.broadcast_to(bound, len(everyone))[some] * _SLACK):
            yield "a message is longer in the sum than the zero-out sensitivity"
        each = None if operator.multiplicity is None else counted[some]
        total = operator.move(self.data, some, blocks[some], z, self.relaxation, None, each)[1]
        if not np.allclose(total, counted[some] @ sent, rtol=1e-9, atol=1e-9):
            yield "what is noised is not the sum of the messages"
        combined = [operator.combine(shared, total, chosen, self.relaxation) for chosen in (some, some[:1], None)]
        if any(not np.array_equal(combined[0], one) for one in combined[1:]):
            yield "what is made of the sum depends on who was in the sample, or on how many"

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
