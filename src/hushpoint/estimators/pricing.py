"""What noise a plan of a training needs, for all of its steps together to cost a share of the budget."""

from __future__ import annotations

import math

from hushpoint.noise import Noise, bits_missing
from hushpoint.operators.base import Operator
from hushpoint.plan import Plan
from hushpoint.privacy.gaussian import round_up
from hushpoint.privacy.guarantee import Adjacency
from hushpoint.problem import Facts
from hushpoint.schedules import EveryBlock

_LIFT = 4e-15  # more than accounting rounds up: what a plan states is then within its share


def priced(operator: Operator, facts: Facts, mu: float, adjacency: Adjacency, steps: int = 1) -> Plan:
    """Everybody's messages, summed in every step, with noise at which all steps together cost mu or a little less."""
    std = noise_std(operator, facts, mu, adjacency, steps)
    unit = operator.unit
    if unit is not None:
        if bits := bits_missing(std, unit):
            return priced(operator.coarser(bits), facts, mu, adjacency, steps)
        std = unit * math.ceil(std / unit)
    noise = Noise(std, "sum", unit)
    return Plan(operator, EveryBlock(facts.items), noise, steps, relaxation=1.0, facts=facts)


def noise_std(
    operator: Operator, facts: Facts, mu: float, adjacency: Adjacency, steps: int, relaxation: float = 1.0
) -> float:
    """The noise of a step, where all of them together may cost mu."""
    moved = operator.certificate(relaxation).shift(facts.unit, adjacency)
    return round_up(moved * math.sqrt(steps) / mu, _LIFT)
