"""A plan: everything a run does and everything accounting needs, without a single row of data."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hushpoint._checks import require_choice, require_count, require_fraction, shown
from hushpoint._described import described
from hushpoint._named import Named
from hushpoint._types import Array, Indices
from hushpoint.certificates import Certificate
from hushpoint.noise import Noise, source_for
from hushpoint.operators.base import Operator
from hushpoint.privacy.guarantee import Adjacency, Budget, Guarantee, Unit, View
from hushpoint.problem import PRIVATE, Facts, Problem
from hushpoint.regularizers import Regularizer
from hushpoint.schedules import Schedule

if TYPE_CHECKING:
    from hushpoint.engine import Callback, Result, State

_OTHER_PLAN = (
    "the plan was changed after {} made it, so that its parameters describe another one. Make it anew with the "
    "settings that it is to have."
)
Errors = Callable[[int, Indices, int], Array]


@dataclass(frozen=True)
class Plan:
    """An operator, who moves, what noise is added, and how often: Algorithm 1 with all its choices made.

    Parameters
    ----------
    operator, schedule, noise
        R with its certificate; which blocks move at each step; what is added and where.
    steps : int
        Number of noisy updates.
    relaxation : float or sequence of float
        The lambda of Algorithm 1, in (0, 1]; one number, or one per step.
    tail_average : float, optional
        The model is the mean of the public points over this last fraction of the steps.
    errors : callable, optional
        ``errors(step, blocks, size)`` gives the errors e of Algorithm 1, a row per block; data-free, or uncertified.
    facts : Facts, optional
        The public facts of the problem, for plans that methods make.
    method, parameters : str and dict
        The call that made the plan: with the facts, what a plan is saved as.
    budget : Budget, optional
        What the noise was calibrated to.
    """

    operator: Operator
    schedule: Schedule
    noise: Noise
    steps: int = 100
    relaxation: float | tuple[float, ...] = 0.5
    tail_average: float | None = None
    errors: Errors | None = None
    facts: Facts | None = None
    method: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    budget: Budget | None = None
    problem: Problem | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_count("steps", self.steps)
        object.__setattr__(self, "relaxation", checked_relaxation(self.relaxation, self.steps))
        if self.tail_average is not None:
            require_fraction("tail_average", self.tail_average, remedy="Pass a fraction in (0, 1], or None.")
        if not isinstance(self.schedule, Schedule):
            raise ValueError(
                f"schedule is {shown(self.schedule)}. Pass a schedule of hushpoint.schedules, or your own."
            )
        if self.noise.place not in self.operator.places:
            raise ValueError(
                f"noise is placed on the {self.noise.place!r} and the {self.operator.name} operator takes it on "
                f"{' or '.join(map(repr, self.operator.places))}. Pass Noise(std, place) with one of these."
            )
        if self.noise.unit is not None and self.noise.unit != self.operator.unit:
            raise ValueError(
                f"noise has the unit {self.noise.unit!r} and the messages of the {self.operator.name} operator "
                f"{self.operator.unit!r}. Pass Noise(std, place, unit=operator.unit)."
            )
        if self.operator.samplings is not None and self.schedule.law not in self.operator.samplings:
            raise ValueError(
                f"schedule is {self.schedule.law!r} and the {self.operator.name} operator works with "
                f"{', '.join(map(repr, self.operator.samplings))} only. Choose one of these."
            )
        if self.errors is not None and "block" not in self.operator.places:
            raise ValueError(
                f"errors is given and the {self.operator.name} operator has no blocks for it. Drop errors=."
            )
        self._check_facts()
        if self.schedule.blocks != self.operator.blocks:
            raise ValueError(
                f"schedule is over {self.schedule.blocks} blocks and the operator has {self.operator.blocks}. "
                "Build both for the same number."
            )

    def _check_facts(self) -> None:
        """Operator, plan and problem must speak of the same facts: bounds of one do not hold for another."""
        problem_facts = None if self.problem is None else self.problem.facts
        known = [facts for facts in (self.operator.facts, self.facts, problem_facts) if facts]
        for facts in known[1:]:
            if not facts.agree_with(known[0]):
                what = ", ".join(known[0].differences(facts))
                raise ValueError(
                    f"problem has other facts than the plan ({what}). Make the plan again from this problem."
                )

    def relaxation_at(self, step: int) -> float:
        """The relaxation of one step."""
        if isinstance(self.relaxation, tuple):
            return self.relaxation[step % len(self.relaxation)]
        return self.relaxation

    @property
    def largest_relaxation(self) -> float:
        """The largest relaxation of any step."""
        return max(self.relaxation) if isinstance(self.relaxation, tuple) else self.relaxation

    @property
    def certificate(self) -> Certificate:
        """The promises of one step at the largest relaxation; none where they are of other code than what runs."""
        return self.operator.own_certificate(self.largest_relaxation)

    @property
    def default_view(self) -> View:
        """Who is meant when nobody is named: a server or peers that see messages, or readers of the iterates."""
        if self.budget is not None and self.budget.view is not None:
            return self.budget.view
        watched = self.operator.watcher != "curator"
        return "messages" if watched and self.noise.place == "block" else "iterates"

    @property
    def default_adjacency(self) -> Adjacency:
        """Zero-out where sampling secretly is what amplifies, else replace-one."""
        if self.budget is not None and self.budget.adjacency is not None:
            return self.budget.adjacency
        sampled = self.noise.place == "sum" and self.schedule.law == "poisson"
        return "zero-out" if sampled else self.operator.adjacency

    @property
    def default_unit(self) -> Unit:
        """What an item is, unless a budget says otherwise."""
        if self.budget is not None and self.budget.unit is not None:
            return self.budget.unit
        return "record" if self.facts is None else self.facts.unit

    def guarantee(
        self,
        delta: float,
        view: View | None = None,
        adjacency: Adjacency | None = None,
        unit: Unit | None = None,
        item: int | None = None,
        *,
        allow_published: bool = False,
        observers: Sequence[int] | None = None,
    ) -> Guarantee:
        """What a viewer learns from the plan.

        Parameters
        ----------
        delta : float
            The delta of (epsilon, delta)-differential privacy.
        view : {"final", "iterates", "messages", "network"}, optional
            Who looks. Default: the messages where they leave people's hands with noise of their own, else the iterates.
        adjacency : {"replace-one", "zero-out"}, optional
            Default replace-one; zero-out where secret sampling amplifies.
        unit : {"user", "record"}, optional
            Who is protected. Default: what an item is.
        item : int, optional
            One item; default the worst.
        allow_published : bool
            Accept bounds of the paper that are not proved; the guarantee then says "published".
        observers : sequence of int, optional
            In the network view, peers that collude; default the worst single peer.
        """
        from hushpoint.privacy.accounting import account

        return account(
            self,
            delta,
            view=view,
            adjacency=adjacency,
            unit=unit,
            item=item,
            allow_published=allow_published,
            observers=observers,
        )

    def objective(self, model: Array) -> float:
        """What the plan minimises, at one model. Reads the data: not private."""
        if self.problem is None:
            raise ValueError("the plan has no problem to take the objective of. Bind one with plan.on(problem).")
        return self.problem.objective(model) + self.operator.extra_objective(model)

    def on(self, problem: Problem) -> Plan:
        """The same plan bound to a problem with the same facts, so that it can run."""
        bound = replace(self, problem=problem)
        if self.facts is None or self.facts.knows_rows or not problem.facts.knows_rows:
            return bound
        self._require_as_made(self.facts)  # the operator is made again, of facts that know the rows of users
        made = _made(self.method, problem, self.parameters)
        return replace(self, operator=made.operator, facts=problem.facts, problem=problem)

    def run(
        self,
        seed: int | None = None,
        progress: bool = False,
        history: bool | Literal["models"] = False,
        state: State | None = None,
        kernel: Literal["auto", "plain"] = "auto",
        callback: Callback | None = None,
    ) -> Result:
        """Run the plan. ``result.guarantee`` is stated at the budget's delta; without a budget at ``n**-1.1``.

        Parameters
        ----------
        seed : int, optional
            None draws noise from the operating system through a cryptographic stream. An integer is for experiments.
        progress : bool
            Show a progress bar.
        history : bool or "models"
            True records the objective at every step: it costs a pass over the data and is not private. "models"
            records the public point at every step.
        state : State, optional
            Continue from ``result.state``: a run that was cut short goes on to the plan's number of steps; a finished
            one goes on for as many again. All steps are accounted for together.
        kernel : {"auto", "plain"}
            "plain" forces the whole-array loop; "auto" uses a faster loop of the same law where the operator has one.
            ``state.blocks`` holds the blocks only after a plain run.
        callback : callable, optional
            ``callback(step, model)`` after every step; return True to stop.
        """
        from hushpoint import engine

        require_choice("kernel", kernel, ("auto", "plain"))
        if not isinstance(history, bool) and history != "models":
            raise ValueError(f"history is {shown(history)}. Pass False, True (the objective) or 'models'.")
        if state is not None and not isinstance(state, engine.State):
            raise ValueError(f"state is {shown(state)}. Pass result.state of an earlier run, or State.load(path).")
        if callback is not None and not callable(callback):
            raise ValueError(f"callback is {shown(callback)}. Pass a function callback(step, model).")
        if state is not None and self.budget is not None and state.steps >= self.steps:
            raise ValueError(
                f"state has done {state.steps} steps and the budget was for {self.steps}: it is spent. "
                "Make a plan with more steps for a larger budget."
            )
        result = engine.run(
            self, seed=seed, progress=progress, history=history, state=state, callback=callback, kernel=kernel
        )
        return replace(result, guarantee=self._spent(result))

    def _spent(self, result: Result) -> Guarantee:
        """The guarantee of a run; epsilon = infinity where there is none.

        A run cut short is accounted as if it had gone on: when to stop may have depended on the data. The final and
        network views, which know one model, are lost when a run stops early or goes on from a state that gave one.
        """
        from hushpoint.privacy.accounting import account, ask

        items = 0 if self.facts is None else self.facts.items
        delta = self.budget.delta if self.budget else items**-1.1 if items > 1 else 1e-5
        state, asked = result.state, ask(self)
        only_the_last = result.status == "finished" and state.models == 1
        wider: dict[View, View] = {"final": "iterates", "network": "messages"}
        view = asked.view if only_the_last else wider.get(asked.view, asked.view)
        try:
            spent = account(self, delta, view=view, steps=max(state.planned, 1), source=source_for(state.seed))
        except ValueError as error:
            missing = (str(error).rstrip("."),)
            return Guarantee(math.inf, delta, None, asked.unit, asked.adjacency, view, "proved", "1", missing)
        secrets = []
        if "objective" in result.history:
            secrets.append("the recorded objectives stay unpublished")
        one_model = spent.view in ("final", "network")
        if "models" in result.history and one_model:
            secrets.append("the recorded models stay unpublished")
        if state.watched and one_model:
            secrets.append("the callback, which was given every model, kept silent")
        return replace(spent, assumptions=(*spent.assumptions, *secrets))

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON can hold it: the public facts and the call that made it."""
        if self.method is None or self.facts is None:
            raise ValueError("the plan was not made by a function of hushpoint.methods, so it cannot be saved as JSON.")
        own = {"schedule": self.schedule.to_dict()} if self.schedule.law == "own" else {}
        facts = self.public_facts
        assert facts is not None
        record = facts.to_dict()
        made = self._require_as_made(facts)
        if (made.steps, made.tail_average) != (self.steps, self.tail_average) or made.noise != self.noise:
            raise ValueError(_OTHER_PLAN.format(self.method))
        return {
            "method": self.method,
            "facts": record,
            "parameters": {name: _plain(value) for name, value in self.parameters.items()},
            "budget": None if self.budget is None else self.budget.to_dict(),
            **own,
        }

    def _require_as_made(self, facts: Facts) -> Plan:
        """The plan that its method makes of its parameters, once it is seen to be this one."""
        made = _made(self.method, Problem.from_facts(facts), self.parameters)
        if self.schedule.law == "own":  # one from outside takes the place of the method's, and is saved beside it
            made = replace(made, schedule=self.schedule)
        ours, theirs = ((p.operator, p.schedule, p.relaxation, p.errors) for p in (self, made))
        if described(ours) != described(theirs):
            raise ValueError(_OTHER_PLAN.format(self.method))
        return made

    @property
    def public_facts(self) -> Facts | None:
        """The facts that may leave. Rows per item do if they were declared, or the guarantee rests on them anyway."""
        facts = self.facts
        if facts is None or facts.rows_declared or facts.weights == "rows" or self.default_unit == "record":
            return facts
        return replace(facts, rows_per_item=PRIVATE)

    def to_json(self) -> str:
        """The plan as a JSON text."""
        return json.dumps(self.to_dict())

    @staticmethod
    def from_json(text: str) -> Plan:
        """The plan that ``to_json`` wrote. It accounts; bind a problem with ``on`` to run it."""
        try:
            record = json.loads(text)
        except ValueError:
            raise ValueError("text is no JSON. Pass what to_json gave.") from None
        if not isinstance(record, dict):
            raise ValueError("text is no JSON of a plan. Pass what to_json gave.")
        import_module("hushpoint.methods")  # ours are found by name, as those of others are
        require_choice("method", record.get("method"), sorted(METHODS))
        problem = Problem.from_facts(Facts.from_dict(record["facts"]))
        parameters = dict(record["parameters"])
        if parameters.get("penalty") is not None:
            parameters["penalty"] = Regularizer.from_dict(parameters["penalty"])
        plan = _made(record["method"], problem, parameters)
        if record.get("schedule") is not None:
            plan = replace(plan, schedule=Schedule.from_dict(record["schedule"]))
        budget = record.get("budget")
        return replace(plan, problem=None, budget=None if budget is None else Budget(**budget))

    def fingerprint(self) -> str:
        """What a state must agree on to be continued: all but the number of steps and what is made of them."""
        loose = ("steps", "rounds", "hops", "tail_average")
        made = {name: value for name, value in self.parameters.items() if name not in loose}
        pieces = [self.operator, self.schedule, self.noise, self.relaxation, self.errors, self.method, self.facts, made]
        return hashlib.sha256(described(pieces).encode()).hexdigest()


METHODS: dict[str, Callable[..., Plan]] = {}
"""Functions that make plans, by the names that they register."""


def _made(method: str | None, problem: Problem, parameters: dict[str, Any]) -> Plan:
    """The plan that a method makes."""
    return METHODS[str(method)](problem, **parameters)


def _plain(value: Any) -> Any:
    """A parameter of a method as JSON can hold it."""
    return value.to_dict() if isinstance(value, Named) else value


def checked_relaxation(relaxation: float | Sequence[float], steps: int) -> float | tuple[float, ...]:
    """A relaxation in (0, 1], or one per step."""
    remedy = "Pass a number in (0, 1], or one per step."
    if isinstance(relaxation, (Sequence, np.ndarray)) and not isinstance(relaxation, str) and np.ndim(relaxation):
        if len(relaxation) != steps:
            raise ValueError(f"relaxation has {len(relaxation)} entries for {steps} steps. {remedy}")
        return tuple(require_fraction("relaxation", value, remedy=remedy) for value in relaxation)
    return require_fraction("relaxation", relaxation, remedy=remedy)
