"""Training under a budget: private second moments, the metric they give, noisy gradient descent in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushpoint.metric import (
    Mapped,
    MappedRidge,
    Metric,
    choose_metric,
    release_moments,
)
from hushpoint.noise import Noise, source_for
from hushpoint.operators.gradient import Gradient
from hushpoint.plan import Plan
from hushpoint.privacy.gaussian import compose_mu, gdp_epsilon
from hushpoint.privacy.guarantee import Guarantee
from hushpoint.problem import Facts, Problem, Rows
from hushpoint.regularizers import ElasticNet, Regularizer, Zero
from hushpoint.schedules import EveryBlock
from hushpoint.utility.planner import Parameters

Array = NDArray[np.float64]

_SMALLEST_NORM = 1e-60


@dataclass(frozen=True)
class Penalty:
    """A penalty on the coefficients, never on the intercept: ``l1 |z|_1 + l2/2 |z|^2``.

    ``automatic`` asks for the L1 strength below which a coefficient cannot be told from the noise.
    """

    l1: float = 0.0
    l2: float = 0.0
    automatic: bool = False


@dataclass(frozen=True)
class Trained:
    """Linear models, a row each (the intercept last where there is one), and what all of them together cost."""

    models: Array
    guarantee: Guarantee
    passes: int


def train(
    problem: Problem,
    targets: Sequence[Array],
    plan: Parameters,
    *,
    delta: float,
    fit_intercept: bool,
    penalty: Penalty | None = None,
    seed: int | None = None,
    progress: bool = False,
) -> Trained:
    """Train one linear model for each vector of targets, under one budget.

    The second moments are released once and serve all; the descents share what is left equally, ``mu / sqrt(K)`` each.

    Parameters
    ----------
    problem : Problem
        With rows scaled to a declared ``row_norm``, without intercept and regulariser.
    targets : sequence of arrays
        In the order of the problem's rows.
    """
    norm = _checked_norm(problem, plan, penalty, fit_intercept)
    rows = problem.rows
    source = source_for(seed)
    constant = plan.constant * norm if fit_intercept else 0.0
    moments = release_moments(rows, problem.row_weights, norm, constant, plan, source)
    metric = choose_metric(moments, plan)
    mapped = Mapped(rows.features, constant, metric)
    squared = mapped.squared_norms()
    clip = plan.clip * math.sqrt(metric.size)
    with np.errstate(divide="ignore"):
        limits = clip / np.sqrt(squared)
    facts = Facts(
        items=plan.items,
        features=plan.width,
        loss=problem.facts.loss,
        regularizer=_in_metric(penalty, metric, plan, clip, int(fit_intercept)),
        clip=clip,
        rows_per_item=problem.facts.rows_per_item,
        weights=problem.facts.weights,
    )
    models, spent = np.empty((len(targets), plan.width)), [plan.moment_mu, plan.length_mu]
    assumptions: tuple[str, ...] = ()
    for index, target in enumerate(targets):
        data = Rows(mapped, target, problem.facts.loss, squared, limits, rows.offsets)
        descent = _descent(facts, metric, plan, clip, len(targets))
        result = descent.on(Problem.from_facts(facts).with_rows(data)).run(
            seed=_seed_of(seed, index), progress=progress
        )
        if result.status != "finished":
            raise KeyboardInterrupt
        stated = descent.guarantee(delta, view="iterates", adjacency=plan.adjacency)
        if stated.mu is None:
            raise AssertionError("noisy gradient descent on all items has a Gaussian guarantee")
        spent.append(stated.mu)
        assumptions = stated.assumptions
        model = result.model
        if penalty is not None and (penalty.l1 or penalty.automatic):
            # The average of sparse models is not sparse: the support is that of the last one.
            model = np.where(_last_point(descent, result.state.shared) == 0, 0.0, model)
        models[index] = metric.apply(model)
    if fit_intercept:
        models[:, -1] *= constant
    mu = compose_mu(spent)
    guarantee = Guarantee(
        gdp_epsilon(mu, delta),
        delta,
        mu,
        problem.facts.unit,
        plan.adjacency,
        "iterates",
        "proved",
        "8",
        (f"rows scaled to norm <= {norm:g}", f"second moments released with {plan.moment_share:.2g} of the budget")
        + assumptions
        + (("its terms in the second moments are 0 as well",) if plan.adjacency == "zero-out" else ())
        + ((f"one budget for {len(targets)} models, split equally",) if len(targets) > 1 else ()),
        source=source.describe(),
    )
    return Trained(models, guarantee, passes=2 + plan.steps * len(targets))


def _checked_norm(problem: Problem, plan: Parameters, penalty: Penalty | None, fit_intercept: bool) -> float:
    """The declared row norm, once the plan is known to be one for this problem: its noise holds for no other."""
    facts = problem.facts
    if facts.row_norm is None:
        raise ValueError("; ".join(facts.missing) or "row_norm is not declared. Pass row_norm=R.")
    if not _SMALLEST_NORM <= facts.row_norm <= 1 / _SMALLEST_NORM:
        raise ValueError(
            f"row_norm is {facts.row_norm:g}. Pass a number from {_SMALLEST_NORM:g} to {1 / _SMALLEST_NORM:g}: the "
            "squares of others leave the range of floating-point numbers."
        )
    if facts.weights != "items":
        raise ValueError("weights is 'rows'. The noise is for items of equal weight: pass weights='items'.")
    if (plan.items, plan.width) != (facts.items, facts.features + fit_intercept):
        raise ValueError(
            f"plan is for {plan.items} items and {plan.width} coefficients, the problem has {facts.items} items and "
            f"{facts.features + fit_intercept} coefficients. Make the plan for this problem."
        )
    if penalty is not None and (penalty.l1 or penalty.automatic) and plan.metric != "diagonal":
        raise ValueError("plan has a full metric and the penalty is L1. Make the plan with penalty='l1'.")
    return facts.row_norm


def _descent(facts: Facts, metric: Metric, plan: Parameters, clip: float, models: int) -> Plan:
    """Noisy gradient descent whose steps together cost ``descent_mu / sqrt(models)``."""
    mu = plan.descent_mu / math.sqrt(models)
    moved = (2.0 if plan.adjacency == "replace-one" else 1.0) * clip
    heaviest = float(facts.items * facts.item_weights.max())
    return Plan(
        operator=Gradient(facts, metric.time / plan.steps, facts.items),
        schedule=EveryBlock(facts.items),
        noise=Noise(moved * heaviest * math.sqrt(plan.steps) / mu, "sum"),
        relaxation=1.0,
        steps=plan.steps,
        tail_average=plan.tail_average,
        facts=facts,
    )


def _in_metric(penalty: Penalty | None, metric: Metric, plan: Parameters, clip: float, free: int) -> Regularizer:
    if penalty is None or not (penalty.l1 or penalty.l2 or penalty.automatic):
        return Zero()
    counted = np.ones(plan.width)
    counted[plan.width - free :] = 0.0
    if penalty.automatic:
        # In the metric's units every coefficient carries the same noise; below it nothing can be told from zero.
        reach = math.sqrt(2 * math.log(2 * plan.width))
        noise = clip / (plan.items * plan.descent_mu) * (2.0 if plan.adjacency == "replace-one" else 1.0)
        threshold = reach * (noise + plan.clip / math.sqrt(plan.items))
        return ElasticNet(tuple(threshold * counted), tuple(penalty.l2 * counted))
    if penalty.l1:
        return ElasticNet(tuple(penalty.l1 * metric.scales * counted), tuple(penalty.l2 * metric.scales**2 * counted))
    return MappedRidge(penalty.l2, metric, free)


def _last_point(descent: Plan, shared: Array) -> Array:
    return np.asarray(descent.operator.release(shared))


def _seed_of(seed: int | None, index: int) -> int | None:
    """A seed for each model: two runs with one seed would add the same noise twice."""
    if seed is None:
        return None
    high, low = np.random.SeedSequence([seed, index]).generate_state(2, np.uint64)
    return int(high) << 64 | int(low)
