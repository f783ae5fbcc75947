"""An estimator trained by secure sums, for a study: the chain of plans that a federation runs, and the sums' law."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hushpoint import engine
from hushpoint._types import Array
from hushpoint.estimators.base import PrivateLinear
from hushpoint.estimators.metric import Metric
from hushpoint.estimators.training import Answer, Link, follow
from hushpoint.experiments.secure_bytes import plan_bytes
from hushpoint.experiments.secure_sums import SecureTerms
from hushpoint.experiments.seeds import derived
from hushpoint.federated.secure.covenant import Covenant, estimator_covenant
from hushpoint.federated.secure.public import Public
from hushpoint.federated.secure.trainings import EstimatorTraining
from hushpoint.privacy.guarantee import Adjacency, Budget, Unit
from hushpoint.problem import Problem
from hushpoint.secure.claim import SecureClaim


@dataclass(frozen=True)
class SecureTraining:
    """An estimator's chain of plans by secure sums, all within one budget.

    Parameters
    ----------
    estimator : PrivateLinear
        With declared classes and row norm; its epsilon and delta are not looked at.
    terms : SecureTerms
    budget : Budget
        With unit and adjacency.
    rounds : int
        The most sums for one model.
    """

    estimator: PrivateLinear
    terms: SecureTerms
    budget: Budget
    rounds: int

    def covenant(self, problem: Problem) -> Covenant:
        """What the sites agree on: each item of the problem is at a site of its own."""
        facts, budget = problem.facts, Budget(self.budget.epsilon, self.budget.delta)
        unit, _ = self._whose
        return estimator_covenant(
            self.terms.agreement, self.estimator, facts.features, [1] * self.terms.sites, budget, unit=unit,
            rounds=self.rounds, spare=self.terms.spare,
        )  # fmt: skip

    def run(self, problem: Problem, seed: int) -> tuple[Array, list[Link], int]:
        """The model, the plans that made it, and how many bytes that takes."""
        sizes: list[int] = []
        answers: list[Answer] = []
        metrics: list[Metric] = []

        def agree(metric: Metric) -> Metric:
            metrics.append(metric)
            return metric

        def ask(place: int, link: Link) -> Answer:
            public = Public(tuple(answers), metrics[0] if metrics else None).to_bytes()
            sizes.append(plan_bytes(link.plan, self.terms, len(public)))
            facts, rows = link.plan.facts, link.look(problem.rows)
            assert facts is not None  # plans of a chain have them
            if link.model is not None:
                rows = replace(rows, targets=problem.rows.targets - link.offset)
            bound = self.terms.shared(link.plan).on(Problem.from_facts(facts).with_rows(rows))
            result = engine.run(bound, seed=derived(seed, "plan", place))
            answers.append(Answer(result.model, link.plan.operator.release(result.state.public)))
            return answers[-1]

        covenant = self.covenant(problem)
        found, links = follow(covenant.training.links(agree), ask)
        self._require_within(links, covenant)
        return found.models[0], links, sum(sizes)

    def _require_within(self, links: Sequence[Link], covenant: Covenant) -> None:
        """An error if the plans cost more than the budget has, with the spare rounds at the average of the others."""
        spent = self.terms.joined([(link.plan, link.plan.steps) for link in links], *self._whose)
        training = covenant.training
        assert isinstance(training, EstimatorTraining)
        more = 1 + self.terms.spare / training.declared.parameters.rounds_taken
        parts = spent.squared * more, spent.spread * more, spent.missed * more
        total = SecureClaim(*parts, *self._whose, self.terms.colluders)
        self.terms.require_within(total, covenant.whole)

    @property
    def _whose(self) -> tuple[Unit, Adjacency]:
        assert self.budget.unit is not None
        assert self.budget.adjacency is not None
        return self.budget.unit, self.budget.adjacency
