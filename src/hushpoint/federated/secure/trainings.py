"""What a federation with secure sums trains: an estimator's chain of plans, or one plan of a method."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hushpoint.estimators.declared import Declared
from hushpoint.estimators.training import Agree, Chain, Found, Link
from hushpoint.federated.secure.evaluation import Evaluation
from hushpoint.federated.secure.price import priced
from hushpoint.federated.secure.ranges import RangeSearch, after_ranges
from hushpoint.plan import Plan
from hushpoint.preprocessing.few_rounds import ROUNDS as RANGE_ROUNDS
from hushpoint.privacy.guarantee import Adjacency, Unit
from hushpoint.problem import Facts
from hushpoint.rows import Rows

WITH_PLANS = ("anchored_admm", "dp_sgd", "dp_fedavg")
"""Methods whose sites add up whole numbers, and keep no noise of their own."""


class Training(Protocol):
    """A chain of plans that all parties run, each with what it knows."""

    @property
    def facts(self) -> Facts:
        """Of all sites' rows together."""

    @property
    def unit(self) -> Unit:
        """Who is protected."""

    @property
    def adjacency(self) -> Adjacency:
        """What the guarantee compares."""

    @property
    def sites_are_items(self) -> bool:
        """Whether a site is one item of the facts; else it holds some of them."""

    @property
    def grounds(self) -> tuple[str, ...]:
        """What its guarantee rests on."""

    @property
    def models(self) -> int:
        """How many models are trained: one, or one a class."""

    @property
    def rounds(self) -> int:
        """The most that it asks for, of one model."""

    @property
    def to_learn(self) -> tuple[str, ...]:
        """The columns whose ranges are learned first."""

    @property
    def held_out(self) -> tuple[int, ...]:
        """How many items each site holds out for figures at the end; none where there are no figures."""

    def links(self, agree: Agree | None = None) -> Chain:
        """The plans."""

    def kept_back(self, link: Link) -> float:
        """The mu squared that plans after this one are to cost."""

    def to_dict(self) -> dict[str, Any]:
        """The training as JSON can hold it."""


@dataclass(frozen=True)
class EstimatorTraining:
    """The training of an estimator, with rows at the sites as items.

    Before it, ranges of columns may be learned; after it, held-out rows may tell how good the model is.
    """

    declared: Declared
    ranges: RangeSearch | None = None
    evaluation: Evaluation | None = None
    sites_are_items = False

    @property
    def facts(self) -> Facts:
        return self.declared.facts

    @property
    def unit(self) -> Unit:
        return self.facts.unit

    @property
    def adjacency(self) -> Adjacency:
        return self.declared.parameters.adjacency

    @property
    def grounds(self) -> tuple[str, ...]:
        facts = self.facts
        said = [f"rows scaled to norm <= {facts.row_norm:g}"]
        if facts.loss.labels == "two-class":
            said.append("the set of classes is declared")
        if facts.unit == "user":
            said.append("all rows of a user are at one site")
        if self.adjacency == "zero-out":
            said.append("zero-out means that the unit's losses, and its terms in means, moments and counts, are 0")
        return tuple(said)

    @property
    def models(self) -> int:
        return self.declared.models

    @property
    def rounds(self) -> int:
        asked = self.declared.parameters.rounds
        assert asked is not None  # the covenant declares them
        return asked + (RANGE_ROUNDS if self.ranges else 0) + (self.evaluation is not None)

    @property
    def to_learn(self) -> tuple[str, ...]:
        return () if self.ranges is None else self.ranges.names

    @property
    def held_out(self) -> tuple[int, ...]:
        return () if self.evaluation is None else self.evaluation.items

    def links(self, agree: Agree | None = None) -> Chain:
        links = self.declared.links(agree)
        if self.evaluation is not None:
            links = self.evaluation.after(links, self.declared)
        if self.ranges is None:
            return (yield from links)
        ranges = yield from self.ranges.links(self.facts, self.adjacency)
        return (yield from after_ranges(links, ranges))

    def kept_back(self, link: Link) -> float:
        parameters, models = self.declared.parameters, self.declared.models
        if link.part in ("ranges", "target", "means", "second moments", "length"):
            return 0.0  # without these there is nothing: they come first, whatever is left for the rest
        after = models - 1 - (link.model or 0)
        last = 0.0 if self.evaluation is None else self.evaluation.mu**2
        if link.part == "residual":
            return last
        later = parameters.residual_mu**2 + last
        if link.part == "descent":
            return later + parameters.calibration_mu**2 + parameters.descent_mu**2 * after / models
        return later + parameters.calibration_mu**2 * after / models if link.part == "calibration" else 0.0

    def to_dict(self) -> dict[str, Any]:
        ranges = None if self.ranges is None else self.ranges.to_dict()
        evaluation = None if self.evaluation is None else self.evaluation.to_dict()
        return {
            "kind": "estimator", "declared": self.declared.to_dict(), "ranges": ranges, "evaluation": evaluation,
        }  # fmt: skip


@dataclass(frozen=True)
class PlanTraining:
    """One plan over sites as its items, with noise for a mu."""

    plan: Plan
    mu: float
    unit: Unit
    adjacency: Adjacency
    sites_are_items = True
    models = 1
    to_learn = ()
    held_out = ()

    def __post_init__(self) -> None:
        # Of a covenant from outside too: what certificates say holds for messages of the steps they are for.
        if self.plan.method not in WITH_PLANS or self.plan.schedule.law != "all":
            raise ValueError(
                f"the plan is of {self.plan.method} with the schedule {self.plan.schedule.law!r}. Secure sums take "
                f"{', '.join(WITH_PLANS)} with all sites in every round: who takes part is seen by all."
            )

    @property
    def facts(self) -> Facts:
        assert self.plan.facts is not None  # plans of methods have them
        return self.plan.facts

    @property
    def grounds(self) -> tuple[str, ...]:
        return self.plan.certificate.because

    @property
    def rounds(self) -> int:
        return self.plan.steps

    def links(self, agree: Agree | None = None) -> Chain:
        plan = priced(self.plan, self.mu, self.unit, self.adjacency)
        answer = yield Link("plan", plan, self.mu, _as_they_are)
        return Found(np.array([answer.model]), ())

    def kept_back(self, link: Link) -> float:
        return 0.0

    def to_dict(self) -> dict[str, Any]:
        record = {"mu": self.mu, "unit": self.unit, "adjacency": self.adjacency}
        return {"kind": "plan", "plan": self.plan.to_dict(), **record}


def training_from_dict(record: dict[str, Any]) -> Training:
    """What ``to_dict`` of a training gave."""
    if record["kind"] == "estimator":
        ranges = None if record["ranges"] is None else RangeSearch.from_dict(record["ranges"])
        evaluation = None if record["evaluation"] is None else Evaluation.from_dict(record["evaluation"])
        return EstimatorTraining(Declared.from_dict(record["declared"]), ranges, evaluation)
    if record["kind"] != "plan":
        raise KeyError(record["kind"])
    plan = Plan.from_json(json.dumps(record["plan"]))
    return PlanTraining(plan, record["mu"], record["unit"], record["adjacency"])


def plan_training(plan: Plan, mu: float, unit: Unit | None = None, adjacency: Adjacency | None = None) -> PlanTraining:
    """The training with one plan; an error where its steps cannot be made of secure sums."""
    training = PlanTraining(plan, mu, unit or plan.default_unit, adjacency or plan.default_adjacency)
    next(training.links())  # an error of it belongs here
    return training


def _as_they_are(rows: Rows) -> Rows:
    return rows
