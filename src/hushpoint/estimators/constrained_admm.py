"""The steps of a training within constraints: general private ADMM in the learned metric.

``min f(x) + g(z)`` subject to ``A x = z``: f is the mean loss, A x the constrained slopes of the curves beside x
itself, and g says that no slope is negative. The walk from zero is as long as that of the descent whose place it takes.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from hushpoint._threads import one_thread
from hushpoint.estimators.constraints import Cone
from hushpoint.estimators.metric import Metric
from hushpoint.estimators.pricing import noise_std
from hushpoint.noise import Noise
from hushpoint.operators.admm import GeneralADMM
from hushpoint.plan import Plan
from hushpoint.privacy.guarantee import Adjacency
from hushpoint.problem import Facts
from hushpoint.regularizers import Box, Zero
from hushpoint.schedules import EveryBlock

_RELAXATION = 0.5
_WEIGHT = 0.5  # of the slopes beside x: more makes the steps shorter


def admm_plan(facts: Facts, cone: Cone, metric: Metric, mu: float, adjacency: Adjacency, tail: float | None) -> Plan:
    """A plan of general ADMM on rows in the coordinates of a metric, all of whose steps together cost mu."""
    with one_thread():
        slopes = metric.times(cone.conditions(facts.features))
        slopes /= np.linalg.norm(slopes, axis=1, keepdims=True)
        slopes *= _WEIGHT / np.linalg.norm(slopes, ord=2)
    low = (*(0.0,) * len(slopes), *(-math.inf,) * facts.features)
    operator = GeneralADMM(
        replace(facts, regularizer=Zero()),
        metric.time / metric.steps,
        Box(low, math.inf),
        A=np.vstack([slopes, np.eye(facts.features)]),
    )
    noise = Noise(noise_std(operator, facts, mu, adjacency, metric.steps, _RELAXATION), "block")
    plan = Plan(operator, EveryBlock(1), noise, metric.steps, relaxation=_RELAXATION, facts=operator.facts)
    return replace(plan, tail_average=tail)
