"""Studies of secure sums: the price of a plan as a federation sets it, and runs with noise of the sum's law.

Masks hide everything but the sum, so the sum's law is all that a model depends on: no letter is written here. What is
the same as in a federation is what decides how good the model is: whole numbers, noise for the honest survivors alone,
the slack of the guarantee, and room for rounds that fail.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from hushpoint._source import Source
from hushpoint.federated.secure.covenant import SPARE
from hushpoint.federated.secure.price import encoding_of, fits, priced, round_price, share_of, whole_budget
from hushpoint.lattice import discrete_gaussians
from hushpoint.noise import Noise, Place
from hushpoint.plan import Plan
from hushpoint.privacy.guarantee import Adjacency, Budget, Guarantee, Unit
from hushpoint.secure.agreement import Agreement, Roster
from hushpoint.secure.claim import SecureClaim

_OTHERS = "shares beyond the honest ones, "


@dataclass(frozen=True)
class SharedNoise(Noise):
    """Noise of a secure sum: ``std`` is that of the fewest honest survivors, and all ``sites`` add their shares.

    A share is a discrete Gaussian of variance ``scale^2/honest``. Sums of discrete Gaussians are so to within a factor
    ``exp(10 n exp(-pi^2 scale^2/honest))`` (docs/secure.md): at the scales of ``priced`` that is 1 to the last digit.
    """

    sites: int = 1
    honest: int = 1

    def drawn(
        self, source: Source, place: Place, step: int, size: int, items: Sequence[int] | NDArray[Any] = (0,)
    ) -> NDArray[Any] | None:
        if place != self.place or self.std == 0:
            return None
        squared, others = self.scale**2, self.sites - self.honest
        total = discrete_gaussians(source, place, items, step, size, squared)
        if others:
            total = total + discrete_gaussians(
                source, _OTHERS + place, items, step, size, others * squared, self.honest
            )
        return total


@dataclass(frozen=True)
class SecureTerms:
    """What the sites of a study agree on: all are waited for, some may collude with the server.

    Parameters
    ----------
    sites, colluders : int
        n and c. Noise is shared by the honest ones of the n that are waited for, n - c.
    spare : int
        For how many failed rounds of average cost there is room.
    """

    sites: int
    colluders: int = 1
    spare: int = SPARE

    @cached_property
    def agreement(self) -> Agreement:
        """The numbers of an agreement; its keys stand for sites, and nothing is signed."""
        roster = Roster(tuple((f"site {k}", k.to_bytes(32, "big")) for k in range(self.sites)))
        return Agreement("study", roster, self.sites, self.colluders)

    def whole(self, budget: Budget, unit: Unit, adjacency: Adjacency) -> SecureClaim:
        """The most that a site lets happen: within the budget, less the slack."""
        return whole_budget(budget, unit, adjacency, self.colluders)

    def shared(self, plan: Plan) -> Plan:
        """A plan with noise for its honest survivors, run with that of all sites."""
        noise = plan.noise
        return replace(plan, noise=SharedNoise(noise.std, noise.place, noise.unit, self.sites, self.agreement.honest))

    def planned(self, plan: Plan, budget: Budget) -> Plan:
        """A plan on the lattice, its noise chosen anew for secure sums within the budget.

        ``noise_std`` among its parameters is that on the mean of all messages.
        """
        unit, adjacency = _whose(plan, budget)
        whole = self.whole(budget, unit, adjacency)
        made = priced(plan, share_of(whole, plan.steps, self.spare), unit, adjacency)
        self.require_within(self.claim(made, unit, adjacency), whole)
        assert made.facts is not None  # plans of methods have them
        told = {**made.parameters, "noise_std": made.noise.std / made.facts.items}
        return self.shared(replace(made, parameters=told, budget=budget))

    def claim(self, plan: Plan, unit: Unit, adjacency: Adjacency) -> SecureClaim:
        """What the rounds of a plan cost together, the spare ones as well."""
        return self.joined([(plan, plan.steps + self.spare)], unit, adjacency)

    def joined(self, plans: Sequence[tuple[Plan, int]], unit: Unit, adjacency: Adjacency) -> SecureClaim:
        """What so many rounds of each plan cost together."""
        total = SecureClaim(0.0, 0.0, 0.0, unit, adjacency, self.colluders)
        for plan, rounds in plans:
            encoding = encoding_of(plan, self.agreement, unit, adjacency)
            price = round_price(encoding, self.agreement, unit, adjacency)
            total = total.joined(*[price] * rounds)
        return total

    def guarantee(self, plan: Plan) -> Guarantee:
        """What is promised of a plan that ``planned`` made, whether or not rounds fail."""
        assert plan.budget is not None
        return self.claim(plan, *_whose(plan, plan.budget)).guarantee(plan.budget.delta)

    def std(self, plan: Plan) -> float:
        """The standard deviation of the noise of all sites together."""
        return plan.noise.std * math.sqrt(self.sites / self.agreement.honest)

    @staticmethod
    def require_within(spent: SecureClaim, whole: SecureClaim) -> None:
        """An error if rounds cost more than the budget has, the slack included."""
        if not fits(spent, whole):
            raise RuntimeError("the rounds cost more than the budget has, slack and spare ones counted.")


def _whose(plan: Plan, budget: Budget) -> tuple[Unit, Adjacency]:
    """Whom a budget is about."""
    return budget.unit or plan.default_unit, budget.adjacency or plan.default_adjacency
