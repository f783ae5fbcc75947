"""Who moves: which blocks a step updates. The object that draws is the object that is accounted for."""

from __future__ import annotations

import itertools
import math
import operator
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hushpoint._checks import require_count, require_fraction
from hushpoint._named import Named
from hushpoint._types import Array, Indices
from hushpoint.noise import Source

COINS = 1 << 53  # numbers in [0, 1) that a coin can show


@dataclass(frozen=True)
class Schedule(Named):
    """Chooses blocks at each step, independently of the data.

    ``cap`` is a public bound on the participations of each item; the run enforces it: who has reached the cap is not
    asked again.

    A schedule of your own takes two methods::

        @dataclass(frozen=True)
        class EveryOther(Schedule):
            def draw(self, step, source, position):
                return np.arange(step % 2, self.blocks, 2)

            def participations(self, steps):
                return -(-steps // 2)

    ``dataclasses.replace(plan, schedule=EveryOther(n))`` puts it into a plan; random numbers of a step are
    ``source.uniforms("schedule", 0, step, size)``. It has a guarantee where the theorem holds for whoever takes part
    (noise in the blocks of consensus ADMM, anchored ADMM), with the number of participations that it states, which
    must not fall as steps are added and which the run enforces at every step. With a ``name`` in its body, a plan with
    it can be saved.
    """

    law: ClassVar[str] = "own"  # as theorems and compiled loops know it; that of a schedule from outside is its own

    blocks: int
    cap: int | None = field(default=None, kw_only=True)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__module__ != __name__:  # whatever it derives from, and whatever it states
            cls.law = "own"

    def __post_init__(self) -> None:
        require_count("blocks", self.blocks)
        if self.cap is not None:
            require_count("cap", self.cap)

    @abstractmethod
    def draw(self, step: int, source: Source, position: int) -> Indices | None:
        """Blocks that move in a step; None: all. ``position`` is where a walk stood before the step, -1 at first."""

    def pick(self, step: int, source: Source, position: int, participations: Indices) -> Indices | None:
        """``draw``, in view of how often each block has moved."""
        return self.draw(step, source, position)

    def among(self, there: NDArray[np.bool_], step: int, source: Source) -> Indices | None:
        """Blocks of a step that are there, where some of those drawn are not; None: nobody takes their place."""
        return None

    @abstractmethod
    def participations(self, steps: int) -> int:
        """The most that one block can move in so many steps."""

    @property
    def most_at_once(self) -> int:
        """The most blocks that move in one step."""
        return self.blocks

    @property
    def probability(self) -> float:
        """With which a block moves in a step, where that is a coin of its own."""
        return 1.0

    @property
    def chance(self) -> float:
        """The same as the program tosses its coins, which accounting counts with: a little more than was asked for."""
        return self.probability

    def most(self, steps: int) -> int:
        """The most that one block can move, given the cap."""
        count = self.participations(steps)
        return count if self.cap is None else min(count, self.cap)


@dataclass(frozen=True)
class EveryBlock(Schedule):
    """All blocks at every step."""

    name = "every_block"
    law = "all"

    def draw(self, step: int, source: Source, position: int) -> None:
        return None

    def participations(self, steps: int) -> int:
        return steps


@dataclass(frozen=True)
class Cyclic(Schedule):
    """One block a step, in a fixed order."""

    name = "cyclic"
    law = "cyclic"
    most_at_once = 1

    def draw(self, step: int, source: Source, position: int) -> Indices:
        return np.array([step % self.blocks])

    def participations(self, steps: int) -> int:
        return -(-steps // self.blocks)


@dataclass(frozen=True)
class Permuted(Schedule):
    """One block a step, in a fresh random order on each pass."""

    name = "permuted"
    law = "permuted"
    most_at_once = 1

    def draw(self, step: int, source: Source, position: int) -> Indices:
        # The order of a pass is drawn at the address of the pass, so it can be drawn again at every step of it.
        turn, place = divmod(step, self.blocks)
        return np.argsort(source.uniforms("order", 0, turn, self.blocks))[place : place + 1]

    def pick(self, step: int, source: Source, position: int, participations: Indices) -> Indices:
        """The block drawn, or one that has not moved in this pass: a resumed run may draw the pass another order."""
        chosen, turn = self.draw(step, source, position), step // self.blocks
        waiting = np.flatnonzero(participations <= turn)
        if participations[chosen[0]] <= turn or waiting.size == 0:
            return chosen
        return waiting[(source.uniforms("order again", 0, step, 1) * waiting.size).astype(np.int64)]

    def participations(self, steps: int) -> int:
        return -(-steps // self.blocks)


@dataclass(frozen=True)
class OneBlock(Schedule):
    """One uniformly drawn block a step."""

    name = "one_block"
    law = "single"
    most_at_once = 1

    def draw(self, step: int, source: Source, position: int) -> Indices:
        return _uniform_index(source, step, self.blocks)

    def participations(self, steps: int) -> int:
        return steps


@dataclass(frozen=True)
class PoissonSample(Schedule):
    """Each block independently with probability ``prob``."""

    name = "poisson"
    law = "poisson"

    prob: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_fraction("sample_prob", self.prob, remedy="Pass a probability in (0, 1].")

    @property
    def probability(self) -> float:
        return self.prob

    @property
    def chance(self) -> float:
        return math.ceil(Fraction(self.prob) * COINS) / COINS  # so many of the numbers a coin can show are below it

    def draw(self, step: int, source: Source, position: int) -> Indices:
        return np.flatnonzero(source.uniforms("schedule", 0, step, self.blocks) < self.prob)

    def participations(self, steps: int) -> int:
        return steps


@dataclass(frozen=True)
class FixedSample(Schedule):
    """A uniformly drawn subset of ``size`` blocks, without replacement."""

    name = "fixed_size"
    law = "fixed"

    size: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        remedy = f"Pass a whole number from 1 to the number of items, {self.blocks}."
        require_count("sample_size", self.size, most=self.blocks, remedy=remedy)

    def draw(self, step: int, source: Source, position: int) -> Indices:
        if self.size == self.blocks:
            return np.arange(self.blocks)
        return np.sort(np.argpartition(self._numbers(step, source), self.size)[: self.size])

    def among(self, there: NDArray[np.bool_], step: int, source: Source) -> Indices:
        """Who comes next in the order in which ``draw`` itself chooses (equal numbers: by place, once in 2^53)."""
        order = np.argsort(self._numbers(step, source), kind="stable")
        return np.sort(order[there[order]][: self.size])

    def _numbers(self, step: int, source: Source) -> Array:
        """Independent uniform numbers, of which the positions of the smallest are a uniform subset.

        They are drawn again where the last of these is equal to another number: its place would decide.
        """
        for attempt in itertools.count():
            numbers = source.uniforms("schedule", attempt, step, self.blocks)
            if np.count_nonzero(numbers <= np.partition(numbers, self.size - 1)[self.size - 1]) == self.size:
                break
        return numbers

    @property
    def most_at_once(self) -> int:
        return self.size

    def participations(self, steps: int) -> int:
        return steps


@dataclass(frozen=True)
class Walk(Schedule):
    """A token that walks from user to user: the holder moves, then hands over to a random neighbour.

    ``neighbours`` holds for each user the users it may hand over to; None is the complete graph in which the next user
    is uniform over all, the holder included. The first holder is uniform.
    """

    name = "walk"
    law = "walk"
    most_at_once = 1

    neighbours: tuple[tuple[int, ...], ...] | None = None

    def draw(self, step: int, source: Source, position: int) -> Indices:
        if self.neighbours is None or position < 0:
            return _uniform_index(source, step, self.blocks)
        others = self.neighbours[position]
        return np.array([others[int(_uniform_index(source, step, len(others))[0])]])

    def participations(self, steps: int) -> int:
        return steps


def _uniform_index(source: Source, step: int, count: int) -> Indices:
    return (source.uniforms("schedule", 0, step, 1) * count).astype(np.int64)


def walk_on(graph: Any, users: int, cap: int | None = None) -> Walk:
    """The walk on ``"complete"``, on a connected networkx graph (its sorted nodes are the users) or neighbour lists."""
    if isinstance(graph, str):
        if graph != "complete":
            raise ValueError(f"graph is {graph!r}. Pass 'complete' or a networkx graph.")
        return Walk(users, cap=cap)
    if isinstance(graph, Sequence):
        neighbours = _checked_lists(graph)
    elif hasattr(graph, "adj"):
        if graph.is_directed():
            raise ValueError("graph is directed. Pass an undirected networkx graph.")
        try:
            nodes = sorted(graph.nodes)
        except TypeError:
            raise ValueError("graph has nodes of different kinds. Number them, or name them all by strings.") from None
        number = {node: index for index, node in enumerate(nodes)}
        neighbours = tuple(tuple(sorted(number[other] for other in graph.adj[node])) for node in nodes)
    else:
        raise ValueError(f"graph is a {type(graph).__name__}. Pass 'complete' or a networkx graph.")
    if len(neighbours) != users:
        raise ValueError(f"graph has {len(neighbours)} nodes for {users} users. Give every user a node.")
    if not _connected(neighbours):
        raise ValueError("graph is not connected. Add edges: a walk must be able to reach every user.")
    return Walk(users, neighbours, cap=cap)


def _checked_lists(lists: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
    """Neighbour lists whose entries are users and whose edges go both ways."""
    remedy = "Pass 'complete', a networkx graph, or for each user the list of its neighbours."
    try:
        neighbours = tuple(tuple(operator.index(other) for other in others) for others in lists)
    except TypeError:
        raise ValueError(f"graph is not made of lists of user numbers. {remedy}") from None
    edges = {(user, other) for user, others in enumerate(neighbours) for other in others}
    if any((other, user) not in edges for user, other in edges):
        raise ValueError(f"graph has an edge to nowhere, or one that goes one way only. {remedy}")
    return neighbours


def _connected(neighbours: tuple[tuple[int, ...], ...]) -> bool:
    seen, waiting = {0}, [0]
    while waiting:
        for other in neighbours[waiting.pop()]:
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return len(seen) == len(neighbours) and all(neighbours)
