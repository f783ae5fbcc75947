"""What every site of a federation with secure sums agrees to, in one file, by which it names the run."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from hushpoint._checks import require, require_count, require_inside
from hushpoint.estimators.base import PrivateLinear
from hushpoint.estimators.declared import Declared
from hushpoint.estimators.training import Part
from hushpoint.federated.secure.evaluation import EVALUATION_SHARE, Evaluation
from hushpoint.federated.secure.price import fits, share_of, whole_budget
from hushpoint.federated.secure.ranges import RangeSearch
from hushpoint.federated.secure.trainings import EstimatorTraining, Training, plan_training, training_from_dict
from hushpoint.plan import Plan
from hushpoint.preprocessing.few_rounds import ROUNDS as RANGE_ROUNDS
from hushpoint.privacy.guarantee import Budget, Guarantee, Unit
from hushpoint.problem import Facts
from hushpoint.schema import Number
from hushpoint.secure.agreement import Agreement, Roster
from hushpoint.secure.claim import SecureClaim
from hushpoint.tables.budget import settled_delta
from hushpoint.tables.ranges import RANGE_SHARE

_FORMAT = 2
ROUNDS = 20  # that a federation takes where it is not said: deployed, each takes seconds
SPARE = 2  # rounds that may fail


@dataclass(frozen=True)
class Covenant:
    """Who sums with whom, what is trained, how much of it a site allows, and what else gives numbers their meaning.

    Parameters
    ----------
    agreement : Agreement
        The sites, their keys, and how many of them may collude or be away.
    training : Training
        The chain of plans.
    items : tuple of int
        How many items (rows, or users) each site holds, all of them public; where the sites are the items of a plan,
        how many rows each has, or 1 where that is private.
    whole : SecureClaim
        The most that a site lets happen in this run: it answers no round that would take its total beyond.
    budget : Budget
        What that is, in words.
    spare : int
        For how many failed rounds of average cost there is room.
    about : mapping
        What else all agree on: the schema of the tables, the options of the model.
    """

    agreement: Agreement
    training: Training
    items: tuple[int, ...]
    whole: SecureClaim
    budget: Budget
    spare: int = SPARE
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sites, facts = len(self.agreement.roster), self.training.facts
        require(len(self.items) == sites, "items", f"{len(self.items)} numbers", f"Pass one for each of {sites} sites.")
        for count in self.items:
            require_count("items", count)
        total = sites if self.training.sites_are_items else sum(self.items)
        require(total == facts.items, "items", f"{total} in all", f"The training is of {facts.items}.")
        if self.training.sites_are_items:
            agreed = _rows_of_sites(facts)
            require(tuple(self.items) == agreed, "items", self.items, f"The plan is for {agreed} rows.")
        held_out = self.training.held_out
        if held_out:
            told = f"{len(held_out)} numbers"
            require(len(held_out) == sites, "held_out", told, f"Pass one for each of {sites} sites.")
        colluders = self.agreement.colluders
        said = f"against {self.whole.colluders} colluders"
        require(self.whole.colluders == colluders, "whole", said, f"The agreement is for {colluders}.")
        claim = SecureClaim(0.0, 0.0, 0.0, self.training.unit, self.training.adjacency, self.agreement.colluders)
        require(fits(claim, self.whole), "whole", "for another unit", "Pass one for the unit of the training.")
        settled_delta(self.budget.delta, facts.items, "site" if self.about.get("unit") == "site" else facts.unit)
        promised = self.whole.delta(self.budget.epsilon) <= self.budget.delta
        require(promised, "whole", "more than the budget", "Pass what price.whole_budget gives.")

    @property
    def run(self) -> str:
        """The name of the run."""
        return self.agreement.run

    @property
    def sites(self) -> int:
        """How many there are."""
        return len(self.agreement.roster)

    @cached_property
    def digest(self) -> bytes:
        """All of it in 32 bytes."""
        return hashlib.sha256(self.to_json().encode()).digest()

    @property
    def name(self) -> str:
        """A short one, by which a node says what it agreed to."""
        return self.digest.hex()[:32]

    @property
    def fingerprint(self) -> str:
        """What people compare by telephone before they accept it; it covers the sites' keys."""
        told = self.digest.hex()[:40]
        return " ".join(told[k : k + 4] for k in range(0, 40, 4))

    def items_for(self, part: Part) -> tuple[int, ...]:
        """How many items each site has for a part of the training."""
        return self.training.held_out if part == "held out" else self.items

    def promise(self) -> Guarantee:
        """What is promised whatever happens, once every site holds to the covenant."""
        return self.stated(self.whole)

    def stated(self, claim: SecureClaim) -> Guarantee:
        """A claim in words, with all that it rests on."""
        made = claim.guarantee(self.budget.delta)
        alone = ("each site counts as one user",) if self.about.get("unit") == "site" else ()
        return replace(made, assumptions=(*made.assumptions, *alone, *self.training.grounds))

    def to_json(self) -> str:
        """The covenant as all parties keep it."""
        agreement = self.agreement
        record = {
            "format": _FORMAT,
            "kind": "secure sums",
            "run": agreement.run,
            "roster": [[name, key.hex()] for name, key in agreement.roster.sites],
            "survivors": agreement.survivors,
            "colluders": agreement.colluders,
            "threshold": agreement.shares,
            "training": self.training.to_dict(),
            "items": list(self.items),
            "whole": asdict(self.whole),
            "budget": self.budget.to_dict(),
            "spare": self.spare,
            "about": dict(self.about),
        }
        return json.dumps(record, indent=1, sort_keys=True, allow_nan=False)

    @staticmethod
    def from_json(text: str) -> Covenant:
        """What ``to_json`` wrote."""
        try:
            record = json.loads(text)
            if record["kind"] != "secure sums":
                raise KeyError
            if record["format"] != _FORMAT:
                raise ValueError(
                    f"the covenant has format {record['format']} and this version of hushpoint reads {_FORMAT}. Run "
                    "the version that it was made with, the same for all parties, or agree anew with this one."
                )
            roster = Roster(tuple((name, bytes.fromhex(key)) for name, key in record["roster"]))
            numbers = (record[name] for name in ("survivors", "colluders", "threshold"))
            return Covenant(
                Agreement(record["run"], roster, *numbers),
                training_from_dict(record["training"]),
                tuple(record["items"]),
                SecureClaim(**record["whole"]),
                Budget(**record["budget"]),
                record["spare"],
                record["about"],
            )
        except (KeyError, TypeError, AttributeError, json.JSONDecodeError):
            raise ValueError("the text is no covenant of a federation with secure sums. Make it anew.") from None


def estimator_covenant(
    agreement: Agreement,
    estimator: PrivateLinear,
    features: int,
    items: Sequence[int],
    budget: Budget,
    *,
    unit: Unit = "record",
    rounds: int = ROUNDS,
    spare: int = SPARE,
    to_learn: Mapping[str, Number] | None = None,
    range_share: float = RANGE_SHARE,
    held_out: Sequence[int] | None = None,
    evaluation_share: float = EVALUATION_SHARE,
    about: Mapping[str, Any] | None = None,
) -> Covenant:
    """A covenant to train an estimator: nothing else is to be chosen.

    Parameters
    ----------
    estimator : PrivateLinear
        With declared classes or target range, row norm and adjacency; its epsilon and delta are not looked at.
    features : int
    items : sequence of int
        Rows of each site, or users where ``unit`` is "user" (all of a user's rows are at one site).
    rounds : int
        In how many rounds, for each model of a class.
    spare : int
        For how many failed rounds of average cost room is kept.
    to_learn : mapping of str to Number, optional
        Columns whose ranges are learned first, in a few rounds more.
    range_share : float
        The share of the budget (of mu squared) for these.
    held_out : sequence of int, optional
        Items of each site that no training sees, beside ``items``: at the end they tell how good the model is.
    evaluation_share : float
        The share of the budget (of mu squared) for that.
    """
    require_count("spare", spare, least=0)
    whole = whole_budget(budget, unit, estimator.adjacency, agreement.colluders)
    beside = (RANGE_ROUNDS if to_learn else 0) + (held_out is not None)
    told = None if held_out is None else tuple(require_count("held_out", count) for count in held_out)

    def planned(taken: int) -> EstimatorTraining:
        """The training, with room for spare rounds beside so many."""
        mu = share_of(whole, taken + beside, spare)
        ranges = evaluation = None
        if told is not None:
            share = require_inside("evaluation_share", evaluation_share, remedy="Pass a number between 0 and 1.")
            evaluation, mu = Evaluation(told, math.sqrt(share) * mu), math.sqrt(1 - share) * mu
        if to_learn:
            share = require_inside("range_share", range_share, remedy="Pass the ranges' share, between 0 and 1.")
            ranges, mu = RangeSearch.of(to_learn, math.sqrt(share) * mu), math.sqrt(1 - share) * mu
        declared = Declared.of(estimator, sum(items), features, mu, unit=unit, rounds=rounds)
        return EstimatorTraining(declared, ranges, evaluation)

    taken = require_count("rounds", rounds)
    training = planned(taken)
    while (fewer := training.declared.parameters.rounds_taken) < taken:  # with little budget, few rounds are enough
        taken = fewer
        training = planned(taken)
    return Covenant(agreement, training, tuple(items), whole, budget, spare, about or {})


def plan_covenant(
    agreement: Agreement,
    plan: Plan,
    budget: Budget,
    *,
    spare: int = SPARE,
    about: Mapping[str, Any] | None = None,
) -> Covenant:
    """A covenant to run a plan whose items are the sites. Its noise is chosen anew, for the budget."""
    require_count("spare", spare, least=0)
    unit, adjacency = budget.unit or plan.default_unit, budget.adjacency or plan.default_adjacency
    whole = whole_budget(budget, unit, adjacency, agreement.colluders)
    planned = plan_training(plan, share_of(whole, plan.steps, spare), unit, adjacency)
    training = training_from_dict(planned.to_dict())  # as all parties will read it, without what is private
    return Covenant(agreement, training, _rows_of_sites(training.facts), whole, budget, spare, about or {})


def _rows_of_sites(facts: Facts) -> tuple[int, ...]:
    """How many rows each site has, where sites are the items; where that is private each counts as one."""
    return tuple(facts.row_counts.tolist()) if facts.knows_rows else (1,) * facts.items
