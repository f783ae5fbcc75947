"""What a round of a plan costs a site, and how much all rounds together may cost."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from hushpoint._checks import require
from hushpoint.noise import Noise, bits_missing
from hushpoint.plan import Plan
from hushpoint.privacy.gaussian import gdp_mu, round_up
from hushpoint.privacy.guarantee import Adjacency, Budget, Unit
from hushpoint.secure.agreement import Agreement
from hushpoint.secure.claim import SecureClaim
from hushpoint.secure.encoding import Encoding

_SUMS = 2.0**61  # lattices keep the sums of all messages below, so that with noise they fit into 64 bits
_SPREAD = 1e-4  # the part of epsilon that is kept for the slack of shared noise
_MISSED = 1e-6  # the part of delta for what is too rare to be looked at
_FAR = 20.0  # deviations within which the laws of noise are compared: beyond, what is missed counts times e^epsilon
_MOST = 100.0  # epsilon; the slack grows with its exponential
_SPARE = 1 - 1e-9  # rounding must not carry the sum of the prices over the whole
_LIFT = 4e-15  # more than accounting rounds up


def whole_budget(budget: Budget, unit: Unit, adjacency: Adjacency, colluders: int) -> SecureClaim:
    """The most that a site may let happen: a claim that is within the budget, whatever rounds it is spent on."""
    remedy = f"Pass one of at most {_MOST:g}: beyond it nothing is protected."
    require(budget.epsilon <= _MOST, "epsilon", budget.epsilon, remedy)
    spread = _SPREAD * budget.epsilon
    missed = _MISSED * budget.delta * math.exp(-budget.epsilon) / 2

    def claim(mu: float) -> SecureClaim:
        return SecureClaim(mu**2, spread, missed, unit, adjacency, colluders)

    low, high = 0.0, gdp_mu(budget.epsilon, budget.delta)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if claim(middle).delta(budget.epsilon) <= budget.delta else (low, middle)
    return claim(low * _SPARE)  # so that the epsilon that is read off it is within the budget too


def share_of(whole: SecureClaim, rounds: int, spare: int) -> float:
    """The mu that is planned with, where so many spare rounds of average cost may be needed beside the planned ones."""
    return math.sqrt(whole.squared * rounds / (rounds + spare)) * _SPARE


def priced(plan: Plan, mu: float, *whose: Any) -> Plan:
    """The plan with noise on its sums, at which all its steps together cost mu, or a little less.

    ``whose`` are the unit and the adjacency that mu is for.
    """
    if plan.operator.unit is None:
        raise ValueError(
            f"the plan of {plan.method} is for real numbers, and secure sums are of whole ones. Pass lattice=True, "
            "which the 'logistic', 'squared' and 'huber' losses have."
        )
    std = round_up(plan.certificate.shift(*whose) * math.sqrt(plan.steps) / mu, _LIFT)
    step = plan.operator.unit
    if bits := bits_missing(std, step):
        silent = Noise(0.0, plan.noise.place)
        return priced(replace(plan, operator=plan.operator.coarser(bits), noise=silent), mu, *whose)
    return replace(plan, noise=Noise(step * math.ceil(std / step), plan.noise.place, step), budget=None)


def encoding_of(plan: Plan, agreement: Agreement, unit: Unit, adjacency: Adjacency) -> Encoding:
    """How the sums of a plan are encoded: on the lattice of its operator, with the noise of the plan."""
    assert plan.operator.unit is not None
    sites = len(agreement.roster)
    return Encoding(
        plan.operator.unit,
        _SUMS * plan.operator.unit / sites,
        plan.certificate.shift(unit, adjacency),
        plan.operator.message_size,
        plan.noise.scale,
        sites,
        agreement.honest,
        whole=True,
    )


def round_price(encoding: Encoding, agreement: Agreement, unit: Unit, adjacency: Adjacency) -> SecureClaim:
    """What one round costs.

    A lattice is at least ``2^10 sqrt(p)`` steps fine, so that the slack of a round is below ``2^-15 mu^2``: within what
    ``whole_budget`` keeps for it.
    """
    return SecureClaim.of_rounds(encoding, agreement, 1, unit=unit, adjacency=adjacency, tail=_FAR)


def fits(spent: SecureClaim, whole: SecureClaim) -> bool:
    """Whether a claim is within another one, part by part."""
    within = spent.squared <= whole.squared and spent.spread <= whole.spread and spent.missed <= whole.missed
    return within and (spent.unit, spent.adjacency) == (whole.unit, whole.adjacency)
