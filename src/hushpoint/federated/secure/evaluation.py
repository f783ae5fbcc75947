"""Figures of the trained model on rows that the sites held out, as one more secure sum at the end."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from hushpoint.estimators.declared import Declared
from hushpoint.estimators.held_out import LOG_LOSS, HeldOut
from hushpoint.estimators.training import Answer, Chain, Found, Link
from hushpoint.federated.secure.price import priced
from hushpoint.noise import Noise
from hushpoint.operators.lattice_moments import LatticeMeans
from hushpoint.plan import Plan
from hushpoint.schedules import EveryBlock
from hushpoint.tables.figures import Figure
from hushpoint.tables.noisy_figures import Released, of_numbers

EVALUATION_SHARE = 0.05  # of the budget, unless one is named


@dataclass(frozen=True)
class Evaluation:
    """How many items each site holds out, all public, and what their figures may cost together."""

    items: tuple[int, ...]
    mu: float

    def after(self, links: Chain, declared: Declared) -> Chain:
        """A chain of plans with one more at its end."""
        found = yield from links
        answer = yield from self._asked(declared, found)
        return replace(found, held_out=answer.model if answer.model.size else None)

    def figures(self, declared: Declared, found: Found, width: float, louder: float = 1.0) -> dict[str, Figure]:
        """What was released, in the units of people: ``width`` is that of a regression's declared range.

        ``louder`` is how much more noise the sum had than its plan says.
        """
        if found.held_out is None:
            return {}
        asked, plan = self._plan(declared)
        means, noise = asked.means(found.held_out), asked.noise(louder * plan.noise.std / sum(self.items))
        if "right" not in means:
            right, place, off_middle = (Released(means[name], noise[name], self.mu) for name in means)
            return of_numbers(right, place, off_middle, width)
        told = {"accuracy": Figure(means["right"], noise["right"])}
        if "log_loss" in means:
            told["log_loss"] = Figure(LOG_LOSS * (1 - means["log_loss"]), LOG_LOSS * noise["log_loss"])
        return told

    def to_dict(self) -> dict[str, Any]:
        """The evaluation as JSON can hold it."""
        return asdict(self)

    @staticmethod
    def from_dict(record: Mapping[str, Any]) -> Evaluation:
        """What ``to_dict`` gave."""
        return Evaluation(tuple(record["items"]), record["mu"])

    def _asked(self, declared: Declared, found: Found) -> Generator[Link, Answer, Answer]:
        asked, plan = self._plan(declared)
        look = partial(asked.look, found.models, declared.fit_intercept)
        return (yield Link("held out", plan, self.mu, look))

    def _plan(self, declared: Declared) -> tuple[HeldOut, Plan]:
        asked = HeldOut.of(declared.facts.loss, declared.models)
        facts = asked.facts(declared.facts, sum(self.items))
        plan = Plan(LatticeMeans(facts), EveryBlock(facts.items), Noise(0.0, "sum"), 1, relaxation=1.0, facts=facts)
        return asked, priced(plan, self.mu, facts.unit, declared.parameters.adjacency)
