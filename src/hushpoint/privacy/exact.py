"""The linear-Gaussian oracle: the exact privacy loss of plans whose every step is affine.

With a squared loss and a quadratic regulariser, and nothing clipped, every view is a Gaussian vector, linear in the
noises, and a changed label moves its mean. The loss is then exactly ``mu = min |eta|`` over noises ``eta`` that move
the view as the label does, infinite if none does. The matrices are read off the operator's own code, one unit vector
at a time, so the oracle tests what runs. It takes data: its answers are for tests and studies, not for release.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from hushpoint._checks import require_choice, require_count, require_kind, shown
from hushpoint._types import Array, Indices
from hushpoint.certificates import UNITS
from hushpoint.engine import choose, settle
from hushpoint.noise import Place, Source, seeded_source
from hushpoint.privacy.accounting import require_plan
from hushpoint.privacy.guarantee import VIEWS, Unit, View
from hushpoint.problem import Problem
from hushpoint.rows import Rows

if TYPE_CHECKING:
    from hushpoint.plan import Plan


def exact_mu(
    plan: Plan,
    problem: Problem,
    item: int = 0,
    view: View | None = None,
    label_shift: ArrayLike | None = None,
    *,
    unit: Unit | None = None,
    seed: int = 0,
    path: Sequence[int] | None = None,
    observers: Sequence[int] = (),
    published_model: bool = True,
) -> float:
    """Exact mu of changing the labels of one item, given who moved when.

    Parameters
    ----------
    plan, problem
        A plan with squared loss and quadratic regulariser, and its data. Clipping is left out: with the default
        ``label_shift`` it is the size of the change that a clip of L would have allowed.
    item : int
        The item whose labels change.
    view : {"final", "iterates", "messages", "network"}, optional
        Default that of the plan.
    label_shift : float or array, optional
        Change of the labels of the item's rows (of its first row for ``unit="record"``). Default: the one that changes
        the gradient of each changed row by twice the gradient bound.
    unit : {"user", "record"}, optional
        Whether all rows of the item change or one.
    seed : int
        Draws the schedule, where it is random.
    path : sequence of int, optional
        A given path of a walk instead, one user per hop.
    observers : sequence of int
        In the network view, the peers that look (they see what arrives and know their own noise).
    published_model : bool
        In the network view, whether the final model is seen too.
    """
    require_plan("plan", plan)
    require_kind("problem", problem, Problem, remedy="Pass the data as hushpoint.Problem(X, y, ...).")
    if plan.facts is not None and (plan.facts.items, plan.facts.width) != (problem.items, problem.facts.width):
        raise ValueError("problem has other items or features than the plan. Pass the problem that the plan is for.")
    view = plan.default_view if view is None else view
    unit = plan.default_unit if unit is None else unit
    require_choice("view", view, VIEWS)
    require_choice("unit", unit, UNITS)
    rows, changed = _two_worlds(problem, item, label_shift, unit)
    if view == "messages" and plan.noise.place != "block":
        return math.inf
    system = _System(replace(plan, operator=plan.operator.unclipped()), rows, changed)
    if path is not None:
        _check_path(plan, path)
    system.run(seeded_source(seed), path, view, tuple(observers), published_model)
    return system.mu()


def exact_rdp(
    plan: Plan, problem: Problem, alpha: float, paths: Sequence[Sequence[int]], item: int = 0, **options: Any
) -> float:
    """Exact Renyi loss of a walk whose path is revealed, averaged over the given equally likely paths."""
    losses = [exact_mu(plan, problem, item, path=path, **options) for path in paths]
    exponents = np.array([alpha * (alpha - 1) * mu**2 / 2 for mu in losses])
    top = exponents.max()
    return float((top + np.log(np.mean(np.exp(exponents - top)))) / (alpha - 1))


class _System:
    """The affine recursion of (shared, public, blocks), its response to every noise, and the shift of its mean."""

    def __init__(self, plan: Plan, rows: Rows, changed: Rows) -> None:
        self.plan, self.operator = plan, plan.operator
        self.here, self.there = self.operator.prepare(rows), self.operator.prepare(changed)
        shared, blocks = self.operator.start()
        self.widths = shared.size, shared.size, blocks.size
        self.block_shape = blocks.shape
        self.state = np.concatenate([shared, shared, blocks.ravel()])
        self.shift = np.zeros(self.state.size)
        self.response = np.zeros((self.state.size, 0))
        self.seen_shift: list[Array] = []
        self.seen_response: list[Array] = []

    def run(
        self, source: Source, path: Sequence[int] | None, view: View, observers: tuple[int, ...], published_model: bool
    ) -> None:
        """Go through all steps and collect what the viewer sees."""
        plan, position = self.plan, -1
        counts = np.zeros(self.operator.blocks, dtype=np.int64)
        for step in range(plan.steps):
            if path is None:
                chosen, resting, position = choose(plan, source, step, position, counts, plan.steps)
            else:
                position = path[step]
                holder = np.array([position])
                free = plan.schedule.cap is None or counts[position] < plan.schedule.cap
                chosen, resting = (holder, holder[:0]) if free else (holder[:0], holder)
            mine = view == "network" and position in observers
            if mine:
                self._see(self._public())
            self._advance(chosen, resting, plan.relaxation_at(step), hidden=not mine)
            counts[slice(None) if chosen is None else chosen] += 1
            if view == "iterates":
                self._see(self._public())
            elif view == "messages":
                self._see(self._messages(chosen))
        if view == "final" or (view == "network" and published_model):
            self._see(self._model())

    def mu(self) -> float:
        """Length of the shortest noise that does what the change of data does."""
        if not self.seen_shift:
            return 0.0
        width = self.response.shape[1]
        matrix = np.vstack([np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in self.seen_response])
        shift = np.concatenate(self.seen_shift)
        size = float(np.linalg.norm(shift))
        if size == 0:
            return 0.0
        noise = np.linalg.lstsq(matrix, shift, rcond=1e-13)[0]
        if np.linalg.norm(matrix @ noise - shift) > 1e-7 * size:
            return math.inf
        return float(np.linalg.norm(noise))

    def _advance(self, chosen: Indices | None, resting: Indices, relaxation: float, hidden: bool) -> None:
        base = self._step(self.here, self.state, chosen, resting, relaxation)
        identity = np.eye(self.state.size)
        # One-sided differences of an affine map are exact up to rounding.
        matrix = np.stack(
            [self._step(self.here, self.state + unit, chosen, resting, relaxation) - base for unit in identity], axis=1
        )
        moved = self._step(self.there, self.state, chosen, resting, relaxation) - base
        columns = [
            self._step(self.here, self.state, chosen, resting, relaxation, noise) - base
            for noise in self._noises(chosen, resting)
        ]
        self.shift = matrix @ self.shift + moved
        self.response = matrix @ self.response
        if hidden and columns:  # a viewer's own noise is known to it
            self.response = np.hstack([self.response, np.stack(columns, axis=1)])
        self.state = base

    def _noises(self, chosen: Indices | None, resting: Indices) -> list[tuple[int, int]]:
        """Every coordinate of noise of a step, as (row, column) of where it is added."""
        operator = self.operator
        if self.plan.noise.place == "block":
            movers = operator.blocks if chosen is None else len(chosen)
            count = movers + (len(resting) if operator.rests_with_noise else 0)
            return [(row, column) for row in range(count) for column in range(operator.message_size)]
        width = operator.message_size if self.plan.noise.place == "sum" else self.widths[0]
        return [(0, column) for column in range(width)]

    def _step(
        self,
        data: Any,
        state: Array,
        chosen: Indices | None,
        resting: Indices,
        relaxation: float,
        noise: tuple[int, int] | None = None,
    ) -> Array:
        """One noise-free step with at most one coordinate of noise set to its standard deviation."""
        operator, place, std = self.operator, self.plan.noise.place, self.plan.noise.std
        shared, public, blocks = self._split(state)
        part = slice(None) if chosen is None else chosen
        movers = operator.blocks if chosen is None else len(chosen)
        kick = np.zeros((movers + len(resting), operator.message_size))
        if noise is not None and place == "block":
            kick[noise] = std
        multiplicity = None if operator.multiplicity is None else operator.multiplicity[part]
        total = np.zeros(operator.message_size)
        blocks = blocks.copy()
        if movers:
            z = operator.release(public)
            blocks[part], total = operator.move(data, part, blocks[part], z, relaxation, kick[:movers], multiplicity)
        if operator.rests_with_noise:
            total = total + relaxation * kick[movers:].sum(axis=0)

        def drawn(where: Place, size: int) -> Array | None:
            return None if noise is None or where != place else std * np.eye(1, size, noise[1])[0]

        shared, public = settle(operator, shared, total, chosen, relaxation, drawn)
        return np.concatenate([shared, public, blocks.ravel()])

    def _split(self, state: Array) -> tuple[Array, Array, Array]:
        first, second = self.widths[0], self.widths[0] + self.widths[1]
        return state[:first], state[first:second], state[second:].reshape(self.block_shape)

    def _public(self) -> Array:
        """Reads off what is public."""
        width = self.widths[0]
        reader = np.zeros((width, self.state.size))
        reader[:, width : 2 * width] = np.eye(width)
        return reader

    def _model(self) -> Array:
        """Reads off the model, affine in what is public."""
        public = self._split(self.state)[1]

        def model(point: Array) -> Array:
            return self.operator.model(self.operator.release(point))

        base = model(public)
        reader = np.zeros((base.size, self.state.size))
        width = self.widths[0]
        for column, unit in enumerate(np.eye(width)):
            reader[:, width + column] = model(public + unit) - base
        return reader

    def _messages(self, chosen: Indices | None) -> Array:
        """Reads off the new blocks of who moved: with what was seen before, their messages. The token, if stateless."""
        if self.widths[2] == 0:
            return self._public()
        size = self.block_shape[1]
        members = np.arange(self.block_shape[0]) if chosen is None else chosen
        reader = np.zeros((len(members) * size, self.state.size))
        for number, block in enumerate(members):
            start = 2 * self.widths[0] + int(block) * size
            reader[number * size : (number + 1) * size, start : start + size] = np.eye(size)
        return reader

    def _see(self, reader: Array) -> None:
        self.seen_shift.append(reader @ self.shift)
        self.seen_response.append(reader @ self.response)


def _two_worlds(problem: Problem, item: int, label_shift: ArrayLike | None, unit: Unit) -> tuple[Rows, Rows]:
    """The rows without clipping, and the same with changed labels."""
    facts, rows = problem.facts, problem.rows
    rest, _ = facts.regularizer.quadratic()
    if not facts.loss.is_quadratic or rest.smoothness != 0:
        raise ValueError(
            f"the exact oracle needs the squared loss and a zero or L2 regularizer, not {facts.loss.name} and "
            f"{facts.regularizer!r}. Use hushpoint.privacy.audit for others."
        )
    require_count("item", item, least=0, most=facts.items - 1)
    start, stop = (item, item + 1) if rows.offsets is None else (rows.offsets[item], rows.offsets[item + 1])
    mine = np.arange(start, stop if unit == "user" else start + 1)
    plain = replace(rows, limits=None)
    if label_shift is None:
        if not math.isfinite(facts.gradient_bound):
            raise ValueError(
                "label_shift is not given and the problem has no gradient bound. Pass label_shift or clip."
            )
        table = rows.store[mine]
        aligned = np.where(table @ table[0] >= 0, 1.0, -1.0)
        label_shift = 2 * facts.gradient_bound * aligned / np.sqrt(rows.squared_norms[mine])
    targets = rows.targets.copy()
    targets[mine] += _checked_shift(label_shift, len(mine))
    return plain, replace(plain, targets=targets)


def _checked_shift(label_shift: ArrayLike, rows: int) -> Array:
    told = f"Pass a number, or one for each of the item's {rows} rows that change."
    try:
        shift = np.asarray(label_shift, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"label_shift is {shown(label_shift)}. {told}") from None
    if shift.shape not in ((), (1,), (rows,)):
        raise ValueError(f"label_shift has shape {shift.shape}. {told}")
    return shift


def _check_path(plan: Plan, path: Sequence[int]) -> None:
    if plan.schedule.law != "walk":
        raise ValueError(f"path is given and the schedule is {plan.schedule.law!r}. Only a walk has a path.")
    if len(path) != plan.steps:
        raise ValueError(f"path has {len(path)} hops and the plan {plan.steps}. Pass one user per hop.")
