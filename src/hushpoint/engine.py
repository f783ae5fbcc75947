"""Algorithm 1: the only loop. It knows blocks, messages and noise, and nothing of privacy."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hushpoint._files import save_arrays
from hushpoint._threads import ahead
from hushpoint._types import Array, Indices
from hushpoint.noise import Place, Source, source_for
from hushpoint.schedules import Schedule

if TYPE_CHECKING:
    from hushpoint.kernels import Kernel
    from hushpoint.operators.base import Operator
    from hushpoint.plan import Plan
    from hushpoint.privacy.guarantee import Guarantee

Callback = Callable[[int, Array], Any]
Drawn = Callable[[Place, int], Array | None]
"""What noise adds in a place, to so many numbers; None: nothing."""
Status = Literal["finished", "stopped", "interrupted"]


@dataclass
class State:
    """Where a run stands. Private where blocks carry no noise: never publish it, publish the model.

    ``shared`` is what the messages made; ``public`` is its last release; ``participations`` counts moves of each block;
    ``kernel`` is what made the blocks; ``planned`` is the most steps that any run of it set out to do; ``models`` is
    how many models runs have returned; ``watched`` is whether a callback was given models on the way.
    """

    shared: Array
    public: Array
    blocks: Array
    participations: Indices
    fingerprint: str
    steps: int = 0
    planned: int = 0
    models: int = 0
    position: int = -1
    tail_start: int = 0
    tail_sum: Array = field(default_factory=lambda: np.zeros(0))
    kernel: str = "plain"
    watched: bool = False
    seed: int | None = None

    def save(self, path: str | Path) -> None:
        """Write the state to one file, whole or not at all."""
        save_arrays(Path(path), {**self.__dict__, "seed": "" if self.seed is None else str(self.seed)})

    @staticmethod
    def load(path: str | Path) -> State:
        """The state that ``save`` wrote."""
        with np.load(path, allow_pickle=False) as file:
            record = {name: value if value.ndim else value.item() for name, value in file.items()}
        return State(**{**record, "seed": int(record["seed"]) if record["seed"] else None})

    def copy(self) -> State:
        """A state of its own, so that a run never changes the one it was given."""
        return deepcopy(self)


@dataclass(frozen=True)
class Result:
    """What a run gives: the model to publish, its guarantee, how it was reached, and the state to continue from."""

    model: Array
    status: Status
    history: dict[str, Any]
    state: State = field(repr=False)
    plan: Plan = field(repr=False)
    guarantee: Guarantee | None = None


class RunFailed(RuntimeError):
    """A step failed. ``state`` is where the run stood before it, or None if the step had begun to change it."""

    def __init__(self, message: str, state: State | None) -> None:
        super().__init__(message)
        self.state = state


def run(
    plan: Plan,
    *,
    seed: int | None = None,
    progress: bool = False,
    history: bool | Literal["models"] = False,
    state: State | None = None,
    callback: Callback | None = None,
    kernel: Literal["auto", "plain"] = "auto",
) -> Result:
    """Run a plan; see ``Plan.run``."""
    operator = plan.operator
    if operator.needs_rows and (plan.problem is None or not plan.problem.has_rows):
        raise ValueError("the plan has no rows: its problem is declared. Bind data with plan.on(Problem(X, y, ...)).")
    if history is True and plan.problem is None:
        raise ValueError("history is True and the plan has no problem to take the objective of. Pass history='models'.")
    if plan.noise.std and plan.noise.unit != operator.unit:
        raise ValueError(
            f"noise has the unit {plan.noise.unit!r} and the messages of the {operator.name} operator "
            f"{operator.unit!r}. Pass Noise(std, place, unit=operator.unit)."
        )
    fast = _kernel(plan, state, kernel)
    current = _begin(plan, state, seed, fast)
    source = source_for(current.seed)
    rows = plan.problem.rows if operator.needs_rows and plan.problem else None
    data = operator.prepare(rows) if fast is None or rows is None else fast.prepare(rows)
    watched = history is not False or callback is not None or plan.tail_average is not None
    target = plan.steps if current.steps < plan.steps else current.steps + plan.steps
    current.planned = max(current.planned, target)
    current.watched = current.watched or callback is not None
    _open_tail(plan, current, target)
    record: dict[str, list[Any]] = {"step": []}
    status: Status = "finished"
    z = operator.release(current.public)
    model = np.array(operator.model(z))
    with _progress_bar(progress, plan, current.steps, target) as advance, _held_interrupt() as interrupted:
        while current.steps < target:
            count = 1
            if fast is None:
                _step(plan, data, source, current, z)
            else:
                count = 1 if watched else min(fast.at_once, target - current.steps)
                _advance(fast, data, source, current, z, count)
            z = operator.release(current.public)
            model = np.array(operator.model(z))  # a copy: what a caller does with a model must not touch the run
            if plan.tail_average is not None and current.steps > current.tail_start:
                current.tail_sum += model
            _remember(record, history, plan, current.steps, model)
            advance(count)
            if interrupted():
                status = "interrupted"
                break
            if callback is not None and callback(current.steps, model.copy()):
                status = "stopped"
                break
    if plan.tail_average is not None and current.steps > current.tail_start:
        model = current.tail_sum / (current.steps - current.tail_start)
    current.models += 1
    return Result(model, status, {name: np.array(values) for name, values in record.items()}, current, plan)


def _advance(fast: Kernel, data: Any, source: Source, state: State, z: Array, count: int) -> None:
    """Some steps by a kernel; where one fails, the state stands before it."""
    try:
        fast.advance(data, source, state, z, count)
    except RuntimeError as error:
        raise RunFailed(f"step {state.steps + 1}: {error}", state) from error


def _kernel(plan: Plan, state: State | None, choice: str) -> Kernel | None:
    """The kernel to run with: the plan's, unless the caller or the state says otherwise."""
    if state is not None and state.fingerprint != plan.fingerprint():
        raise ValueError("state belongs to another plan. Continue it with the plan that made it (steps may differ).")
    fast = plan.operator.kernel(plan) if choice == "auto" else None
    if state is None or state.kernel == ("plain" if fast is None else fast.name):
        return fast
    if state.kernel == "plain":
        return None
    raise ValueError(
        f"state was made by the {state.kernel!r} kernel, which keeps other numbers than the plain loop. "
        "Continue it with kernel='auto' and the problem that made it."
    )


def _begin(plan: Plan, state: State | None, seed: int | None, fast: Kernel | None) -> State:
    if state is not None:
        # A secure run goes on with a fresh key; a seeded one with its own seed, at addresses it has not drawn yet.
        return replace(state.copy(), seed=state.seed if seed is None else seed)
    counts = np.zeros(plan.operator.blocks, dtype=np.int64)
    shared, blocks = plan.operator.start()
    if fast is not None:
        blocks = fast.blocks()
    name = "plain" if fast is None else fast.name
    return State(shared, shared, blocks, counts, plan.fingerprint(), kernel=name, seed=seed)


def _open_tail(plan: Plan, state: State, target: int) -> None:
    """Where the tail average begins: in the last fraction of the plan's steps."""
    if plan.tail_average is None:
        state.tail_sum = np.zeros(0)
        return
    start = target - max(1, round(plan.tail_average * plan.steps))
    if state.tail_start != start or state.tail_sum.size == 0:
        state.tail_start = max(start, state.steps)
        state.tail_sum = np.zeros(plan.operator.model(plan.operator.release(state.public)).shape)


def _step(plan: Plan, data: Any, source: Source, state: State, z: Array) -> None:
    """One update of Algorithm 1 from the public point z, on the state."""
    operator, step = plan.operator, state.steps
    relaxation = plan.relaxation_at(step)
    chosen, resting, position = choose(plan, source, step, state.position, state.participations, state.planned)
    total = operator.nothing()
    if operator.rests_with_noise and resting.size:
        idle = _kick(plan, source, resting, step)
        total += 0.0 if idle is None else relaxation * idle.sum(axis=0)
    changed = False
    parts = list(_parts(chosen, operator.blocks, operator.chunk))
    for part, kick in ahead(lambda part: _kick(plan, source, part, step), parts):
        multiplicity = None if operator.multiplicity is None else operator.multiplicity[part]
        try:
            block, summed = operator.move(data, part, state.blocks[part], z, relaxation, kick, multiplicity)
        except RuntimeError as error:
            raise RunFailed(f"step {step + 1}: {error}", None if changed else state) from error
        state.blocks[part] = block
        changed = True
        total += summed
    drawn = drawn_by(plan, source, step)
    state.shared, state.public = settle(operator, state.shared, total, chosen, relaxation, drawn)
    if chosen is None:
        state.participations += 1
    else:
        state.participations[chosen] += 1
    state.position = position
    state.steps += 1


def settle(
    operator: Operator, shared: Array, total: Array, chosen: Indices | None, relaxation: float, drawn: Drawn
) -> tuple[Array, Array]:
    """The second half of a step, where messages arrive: what is shared after their sum, and what is public of it.

    The loop, a server, replicas of a run (one row each) and the exact oracle all end a step with this, each with noise
    of its own.
    """
    on_sum, total = drawn("sum", operator.message_size), operator.cut(total)
    shared = operator.combine(shared, total if on_sum is None else total + on_sum, chosen, relaxation)
    fresh = drawn("release", shared.shape[-1])
    return shared, shared if fresh is None else shared + fresh


def drawn_by(plan: Plan, source: Source, step: int) -> Drawn:
    """The noise of a plan where messages arrive, drawn from one source."""

    def drawn(place: Place, size: int) -> Array | None:
        found = plan.noise.drawn(source, place, step, size)
        return None if found is None else found[0]

    return drawn


def choose(
    plan: Plan, source: Source, step: int, position: int, participations: Indices, planned: int
) -> tuple[Indices | None, Indices, int]:
    """Who moves in one of ``planned`` steps (None: all), who rests at its cap, and where a walk then stands."""
    schedule, cap = plan.schedule, plan.schedule.cap
    chosen = schedule.pick(step, source, position, participations)
    if schedule.law == "own":
        chosen, cap = _members(chosen, schedule), min(schedule.most(step + 1), schedule.most(planned))
        if participations.max(initial=0) > schedule.most(planned):  # what it states is what it is held to
            raise ValueError(
                f"{type(schedule).__name__}.participations({planned}) is {schedule.most(planned)}, and a block has "
                "moved more often already. Let it never fall as steps are added."
            )
    if chosen is not None and len(chosen):
        position = int(chosen[-1])
    if cap is None:
        return chosen, np.zeros(0, dtype=np.int64), position
    everyone = np.arange(plan.operator.blocks) if chosen is None else chosen
    free = participations[everyone] < cap
    return everyone[free], everyone[~free], position


def _members(chosen: Any, schedule: Schedule) -> Indices | None:
    """What a schedule from outside drew: blocks that are there, each once."""
    if chosen is None:
        return None
    members = np.asarray(chosen)
    whole = members.ndim == 1 and (members.dtype.kind in "iu" or not members.size)
    if not whole or (members.size and not 0 <= members.min() <= members.max() < schedule.blocks):
        raise ValueError(f"{type(schedule).__name__}.draw gave no list of numbers from 0 to {schedule.blocks - 1}.")
    if len(np.unique(members)) != len(members):
        raise ValueError(f"{type(schedule).__name__}.draw named a block twice. Name each block at most once a step.")
    return members.astype(np.int64)


def _parts(chosen: Indices | None, blocks: int, chunk: int | None) -> Iterator[Indices | slice]:
    """The chosen blocks in chunks: slices where all move, so that nothing is copied."""
    count = blocks if chosen is None else len(chosen)
    size = count if chunk is None else chunk
    for start in range(0, count, max(1, size)):
        if chosen is not None:
            yield chosen[start : start + size]
        else:
            yield slice(None) if size >= blocks else slice(start, min(start + size, blocks))


def _kick(plan: Plan, source: Source, part: Indices | slice, step: int) -> Array | None:
    """Noise kept in the blocks, plus errors; None where there is neither."""
    if plan.errors is None and plan.noise.place != "block":
        return None  # without a list of all blocks in every step
    members = np.arange(plan.operator.blocks)[part] if isinstance(part, slice) else part
    size = plan.operator.message_size
    kick = plan.noise.drawn(source, "block", step, size, members)
    if plan.errors is None:
        return kick
    return (0.0 if kick is None else kick) + plan.errors(step, members, size)


def _remember(record: dict[str, list[Any]], history: bool | str, plan: Plan, step: int, model: Array) -> None:
    if history is False:
        return
    record["step"].append(step)
    if history is True:
        record.setdefault("objective", []).append(plan.objective(model))
    else:
        record.setdefault("models", []).append(model)


@contextmanager
def _progress_bar(show: bool, plan: Plan, done: int, target: int) -> Iterator[Callable[[int], None]]:
    if not show:
        yield lambda count: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as bar:
        task = bar.add_task(plan.method or plan.operator.name, completed=done, total=target)
        yield lambda count: bar.advance(task, count)


@contextmanager
def _held_interrupt() -> Iterator[Callable[[], bool]]:
    """Hold Ctrl-C back until the step is whole; a second one goes through at once. Who ignores it goes on doing so."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before in (None, signal.SIG_IGN):
        yield lambda: False
        return
    pressed = False

    def hold(number: int, frame: Any) -> None:
        nonlocal pressed
        pressed = True
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, hold)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)
