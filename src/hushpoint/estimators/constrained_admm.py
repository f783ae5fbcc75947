"""The steps of a training within constraints: general private ADMM in the learned metric.

``min f(x) + g(z)`` subject to ``A x = z``: f is the mean loss, A x the constrained slopes of the curves beside x itself,
and g says that no slope is negative. It takes as long a walk from zero as the descent whose place it takes.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from hushpoint._threads import one_thread
from hushpoint._types import Array
from hushpoint.estimators.constraints import Cone
from hushpoint.estimators.metric import Metric
from hushpoint.noise import Noise
from hushpoint.operators.admm import GeneralADMM
from hushpoint.plan import Plan
from hushpoint.privacy.gaussian import round_up
from hushpoint.privacy.guarantee import Adjacency
from hushpoint.problem import Facts
from hushpoint.regularizers import Box, Zero
from hushpoint.schedules import EveryBlock

_RELAXATION = 0.5
_LIFT = 4e-15


def admm_plan(facts: Facts, cone: Cone, metric: Metric, mu: float, adjacency: Adjacency, tail: float | None) -> Plan:
    """A plan of general ADMM on rows in the coordinates of a metric, all of whose steps together cost mu."""
    slopes = slopes_in_metric(cone, metric, facts.features)
    A = np.vstack([slopes, np.eye(facts.features)])
    free = len(A) - len(slopes)
    low = (*(0.0,) * len(slopes), *(-math.inf,) * free)
    operator = GeneralADMM(
        replace(facts, regularizer=Zero()), metric.time / metric.steps, Box(low, math.inf), A=A, extra_penalty=False
    )
    shift = operator.certificate(_RELAXATION).shift(facts.unit, adjacency)
    std = round_up(shift * math.sqrt(metric.steps) / mu, _LIFT)
    plan = Plan(operator, EveryBlock(1), Noise(std, "block"), metric.steps, relaxation=_RELAXATION, facts=operator.facts)
    return replace(plan, tail_average=tail)


def slopes_in_metric(cone: Cone, metric: Metric, width: int) -> Array:
    """Some conditions of each column, twice as many as it has coefficients, as rows of length 1 in a metric."""
    rows = []
    for block in cone.blocks:
        chosen = np.unique(np.linspace(0, len(block.rows) - 1, 2 * len(block.places) + 1).astype(int))
        part = np.zeros((len(chosen), width))
        part[:, block.places] = block.rows[chosen]
        rows.append(part)
    conditions = np.vstack(rows)
    with one_thread():
        mapped = conditions * metric.matrix if metric.basis is None else conditions @ metric.matrix
    return np.asarray(mapped / np.linalg.norm(mapped, axis=1, keepdims=True))
