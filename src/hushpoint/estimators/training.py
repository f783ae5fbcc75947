"""Training under a budget, as a chain of plans: moments, length, noisy gradient descent in their metric, calibration.

Every plan follows from public facts and from what the plans before it released, so whoever can run a plan can train:
the engine here, sites whose sums a server adds, a cluster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Literal

import numpy as np

from hushpoint._types import Array, Indices
from hushpoint.estimators.calibration import Calibration
from hushpoint.estimators.constrained_admm import admm_plan
from hushpoint.estimators.constraints import Cone, MappedCone
from hushpoint.estimators.error_bars import ErrorBars, doubts_about
from hushpoint.estimators.metric import MappedRidge, Metric, Moments, believed_centre, believed_square, choose_metric
from hushpoint.estimators.penalty import Penalty
from hushpoint.estimators.planner import Parameters, clips_moved
from hushpoint.estimators.residuals import Residuals
from hushpoint.estimators.uncertainty import NoiseLaw, mean_curvature
from hushpoint.losses import Loss
from hushpoint.noise import Noise, bits_missing, source_for
from hushpoint.operators.base import Operator
from hushpoint.operators.gradient import Descent, Gradient
from hushpoint.operators.lattice_gradient import GradientGrid, LatticeGradient
from hushpoint.operators.lattice_moments import LatticeMeans, LatticeMeanSquare, LatticeMoments
from hushpoint.operators.moments import Means, MeanSquare, SecondMoments
from hushpoint.plan import Plan
from hushpoint.privacy.gaussian import round_up
from hushpoint.privacy.guarantee import Adjacency, Guarantee, compose
from hushpoint.problem import Facts, Problem
from hushpoint.regularizers import ElasticNet, Regularizer, Zero
from hushpoint.rows import ArrayRows, Mapped, Rows
from hushpoint.schedules import EveryBlock

_SMALLEST_NORM = 1e-60
_TARGET_CONSTANT = 0.7  # with which mean and mean square of a target are as noisy as each other
_TOLD = 0.3  # deviations of noise, from which on a coefficient is kept: few that the threshold let through have so much
_SLOPE = 0.5  # of a logistic loss at 0
_LIFT = 4e-15  # more than accounting rounds up: what a plan states is then within its share


Part = Literal[
    "ranges", "target", "means", "second moments", "length", "descent", "calibration", "residual", "held out", "plan"
]
Ranges = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Link:
    """One plan of a training: facts and no rows, and how whoever holds rows of the problem looks at them for it.

    ``part`` says what it is for; ``mu`` is the share of the budget that the plan may cost. ``model`` says for which
    model it is, whose targets take the place of the rows' own, less ``offset``; None: for all of them. ``ranges`` are
    those of columns that were learned before: the rows are encoded with them.
    """

    part: Part
    plan: Plan
    mu: float
    look: Callable[[Rows], Rows]
    model: int | None = None
    offset: float = 0.0
    ranges: Ranges | None = None


@dataclass(frozen=True)
class Answer:
    """What a plan made public: its model, and the public point after its last step.

    No numbers at all stand for a plan of the end (calibration, residuals, held-out rows) that could not be paid for.
    """

    model: Array
    last: Array


@dataclass(frozen=True, eq=False)
class Found:
    """Linear models, a row each (the intercept last where there is one), and what is known of their errors.

    ``ranges`` are those of columns that were learned on the way, if any were; ``held_out`` is what rows told that no
    training saw, if they were asked.
    """

    models: Array
    errors: tuple[ErrorBars, ...]
    ranges: Ranges | None = field(default=None, kw_only=True)
    held_out: Array | None = field(default=None, kw_only=True)


Chain = Generator[Link, Answer, Found]
Agree = Callable[[Metric], Metric]
"""The metric that all who run a chain go by, given one's own: two machines may differ in its last digits."""


@dataclass(frozen=True)
class Trained(Found):
    """Models, and what all of them together cost."""

    guarantee: Guarantee
    steps: int
    passes: int


def chain(
    facts: Facts,
    parameters: Parameters,
    *,
    fit_intercept: bool,
    penalty: Penalty | None = None,
    models: int = 1,
    parts: Sequence[Indices] = (),
    cone: Cone | None = None,
    lattice: bool = True,
    agree: Agree | None = None,
) -> Chain:
    """The plans of a training, each a function of public facts and of the answers sent so far; returns what is found.

    The moments are released once and serve all; K descents share their part of the budget equally, ``mu / sqrt(K)``
    each, and so do the calibrations.

    Parameters
    ----------
    facts : Facts
        Of a problem with rows scaled to a declared ``row_norm``, without intercept and regulariser.
    models : int
        How many vectors of targets there are.
    parts : sequence of integer arrays
        Parts of the model that may be nothing: of each is taken off what is likely to be noise.
    cone : Cone, optional
        Where the models have to be, in place of a penalty: each is there before it is calibrated.
    lattice : bool
        Whether every plan sums whole numbers and its noise is drawn exactly (docs/privacy.md, section 11).
    agree : callable, optional
        The metric to go on with, given the one that was chosen; where several run the chain, that of one of them.
    """
    norm = _checked_norm(facts, parameters, penalty, fit_intercept)
    constant = parameters.constant * norm if fit_intercept else 0.0
    offset, spread = 0.0, 1.0
    if parameters.target_share:
        mean, spread = yield from _target(facts, parameters, lattice)
        spread = math.hypot(spread, 0.0 if fit_intercept else mean)
        offset, parameters = mean * fit_intercept, parameters.for_targets(spread)
    metric = choose_metric((yield from _moments(facts, parameters, constant, lattice)), parameters)
    metric = metric if agree is None else agree(metric)
    clip = parameters.clip * math.sqrt(metric.size)
    share = parameters.descent_mu / math.sqrt(models)
    free = cone is None or cone.by != "descent"
    penalised = _in_metric(penalty, metric, parameters, clip, int(fit_intercept))
    regularizer = penalised if free else MappedCone(cone, metric.matrix)  # type: ignore[arg-type]
    mapped = replace(facts, features=parameters.width, regularizer=regularizer, row_norm=None, clip=clip)
    descent, look = _descent(mapped, metric, parameters, norm, constant, share, cone, lattice)
    doubts = doubts_about(facts, metric, penalty, parts, cone is not None)
    found, errors = np.empty((models, parameters.width)), list[ErrorBars]()
    for index in range(models):
        answer = yield Link("descent", descent, share, look, index, offset)
        model = answer.model
        if penalty is not None and (penalty.l1 or penalty.automatic):
            # The average of sparse models is not sparse: the support is that of the last one.
            model = np.where(descent.operator.model(answer.last) == 0, 0.0, model)
        found[index] = metric.model(model, constant)
        law = noise_law(facts.loss, metric, constant, clip, spread, share, found[index], parameters)
        if penalty is not None and penalty.automatic:
            found[index] = law.sparse(found[index], _TOLD, int(fit_intercept))
        bars = ErrorBars(
            law,
            facts.loss,
            found[index].copy(),
            clip / math.sqrt(metric.size),
            parameters.tail_average,
            facts.items,
            spread=spread,
            offset=offset,
            penalty=penalty or Penalty(),
            doubts=doubts,
            known=cone is None or cone.by != "admm",
        )
        errors.append(bars)
        if parts:
            found[index] = law.shrunk(found[index], parts)
        if cone is not None:
            found[index] = metric.nearest(cone, found[index], constant)
    if parameters.calibration_share:
        share = parameters.calibration_mu / math.sqrt(models)
        for index in range(models):
            trust = 1.0 if parameters.rounds is None else errors[index].law.trust(found[index])
            calibration = Calibration.of(found[index].copy(), metric, constant, parameters, trust)
            last = _calibration(calibration, facts, parameters, share, lattice)
            look = partial(calibration.look, calibration.facts(facts))
            answer = yield Link("calibration", last, share, look, index, offset)
            if not answer.model.size:  # nothing was left to pay for it
                continue
            found[index] = calibration.applied(answer.model)
            noise = last.noise.std / last.facts.items / math.sqrt(last.steps)  # type: ignore[union-attr]
            errors[index] = errors[index].calibrated(calibration, answer.model, noise)
    if parameters.residual_share:
        cap = min(errors[0].limit, facts.loss.lipschitz)
        residuals = Residuals(found[0].copy(), offset, cap, fit_intercept)
        share = parameters.residual_mu
        last = _priced(residuals.operator(facts, lattice), residuals.facts(facts), share, parameters.adjacency)
        answer = yield Link("residual", last, share, residuals.look)
        if answer.model.size:
            errors[0] = errors[0].with_residuals(cap, float(answer.model[0]), last.noise.std / facts.items)
    if fit_intercept:
        found[:, -1] += offset
    return Found(found, tuple(errors))


def _target(facts: Facts, parameters: Parameters, lattice: bool) -> Generator[Link, Answer, tuple[float, float]]:
    """Mean and spread of a regression's target."""
    plan = _target_plan(facts, parameters, lattice)
    answer = yield Link("target", plan, parameters.target_mu, _targets_as_rows)
    return believed_target(answer.model, plan, facts.items)


def _moments(facts: Facts, parameters: Parameters, constant: float, lattice: bool) -> Generator[Link, Answer, Moments]:
    """Means where they are bought, second moments and mean square of the rows."""
    centre, centre_noise = None, 0.0
    if parameters.mean_share:
        means = _priced(
            LatticeMeans(facts, constant) if lattice else Means(facts), facts, parameters.mean_mu, parameters.adjacency
        )
        released = yield Link("means", means, parameters.mean_mu, _as_they_are)
        centre_noise = means.noise.std / facts.items
        centre = believed_centre(released.model, centre_noise)
    kind: type[SecondMoments | LatticeMoments] = LatticeMoments if lattice else SecondMoments
    second = kind(facts, constant, diagonal=parameters.metric == "diagonal")
    moments = _priced(second, facts, parameters.moment_mu, parameters.adjacency)
    products = yield Link("second moments", moments, parameters.moment_mu, _as_they_are)
    moment_noise = second.noise_on_diagonal(moments.noise.std) / facts.items
    matrix = second.matrix(products.model)
    if parameters.length_share:
        mean_square = LatticeMeanSquare(facts, constant) if lattice else MeanSquare(facts)
        length = _priced(mean_square, facts, parameters.length_mu, parameters.adjacency)
        square = yield Link("length", length, parameters.length_mu, _as_they_are)
        length_noise, found = length.noise.std / facts.items, float(square.model[0])
    else:
        found, length_noise = float(np.trace(matrix)) - constant**2, moment_noise * math.sqrt(parameters.width)
    assert facts.row_norm is not None  # checked before anything is asked
    believed = believed_square(found, length_noise, facts.row_norm)
    if centre is not None:
        believed = max(believed - float(centre @ centre), believed / 30)
    return Moments(matrix, moment_noise, believed + constant**2, length_noise, centre, centre_noise, constant)


def _descent(
    mapped: Facts,
    metric: Metric,
    parameters: Parameters,
    norm: float,
    constant: float,
    share: float,
    cone: Cone | None,
    lattice: bool,
) -> tuple[Plan, Callable[[Rows], Rows]]:
    """The plan of a model's steps in a metric, and how rows are looked at for it."""
    look: Callable[[Rows], Rows] = partial(_look_in_metric, metric, constant, float(mapped.clip or 0.0))
    if cone is not None and cone.by == "admm":
        return admm_plan(mapped, cone, metric, share, parameters.adjacency, parameters.tail_average), look
    step = metric.time / metric.steps
    gradient: Descent = Gradient(mapped, step, mapped.items)
    if lattice:
        grid = GradientGrid.turned(mapped, norm, constant, metric.matrix, metric.column(constant))
        gradient, look = LatticeGradient(mapped, step, mapped.items, grid), _as_they_are
    if metric.momentum:
        gradient = gradient.with_momentum(metric.momentum)
    plan = _priced(gradient, mapped, share, parameters.adjacency, metric.steps)
    return replace(plan, tail_average=parameters.tail_average), look


def noise_law(
    loss: Loss,
    metric: Metric,
    constant: float,
    clip: float,
    spread: float,
    mu: float,
    model: Array,
    parameters: Parameters,
) -> NoiseLaw:
    """The law of a model's noise, after a descent that cost mu."""
    mean, deviation = metric.expected_scores(model, constant)
    # Nearly all rows are about as long as the typical one.
    curvature = mean_curvature(loss, clip / math.sqrt(metric.size), mean, deviation, spread)
    noise = clip * clips_moved(parameters.adjacency) / (parameters.items * mu)
    return NoiseLaw(metric, constant, noise, max(curvature, 1e-3 * loss.smoothness))


def _target_plan(facts: Facts, parameters: Parameters, lattice: bool) -> Plan:
    """Mean and mean square of targets in [-1, 1]: second moments of rows of one entry, with a constant."""
    alone = replace(facts, features=1, regularizer=Zero(), row_norm=1.0, clip=None)
    operator = (LatticeMoments if lattice else SecondMoments)(alone, _TARGET_CONSTANT)
    return _priced(operator, alone, parameters.target_mu, parameters.adjacency)


def _targets_as_rows(rows: Rows) -> Rows:
    targets = np.clip(rows.targets, -1.0, 1.0)[:, None]
    return replace(rows, store=ArrayRows(targets), squared_norms=targets[:, 0] ** 2, limits=None)


def believed_target(released: Array, plan: Plan, items: int) -> tuple[float, float]:
    """Mean and spread of the target by noisy ones; the spread, rather too large than too small, is at most 1."""
    operator = plan.operator
    assert isinstance(operator, (LatticeMoments, SecondMoments))
    noise = operator.noise_on_diagonal(plan.noise.std) / items
    matrix = operator.matrix(released)
    mean = min(max(float(matrix[0, 1]) / _TARGET_CONSTANT, -1.0), 1.0)
    return mean, math.sqrt(min(max(float(matrix[0, 0]) - mean**2, 0.0) + noise, 1.0))


def _calibration(calibration: Calibration, facts: Facts, parameters: Parameters, share: float, lattice: bool) -> Plan:
    """A descent in the scale and the offset of a model's scores, which are one column of rows, or two."""
    scores = calibration.facts(facts)
    operator: Descent = Gradient(scores, calibration.step_size, scores.items)
    if lattice:
        operator = LatticeGradient(scores, calibration.step_size, scores.items, GradientGrid.of(scores))
    if calibration.begin is not None:
        operator = operator.starting_at(calibration.begin)
    plan = _priced(operator, scores, share, parameters.adjacency, calibration.steps)
    return replace(plan, tail_average=parameters.tail_average)


def follow(links: Chain, ask: Callable[[int, Link], Answer]) -> tuple[Found, list[Link]]:
    """What a chain finds, and its links; ``ask`` runs a plan, given its place in the chain."""
    passed = [next(links)]
    while True:
        answer = ask(len(passed) - 1, passed[-1])
        try:
            passed.append(links.send(answer))
        except StopIteration as end:
            return end.value, passed


def spent(links: Sequence[Link], parameters: Parameters, delta: float, source: str | None = None) -> Guarantee:
    """What all plans of a chain together cost, against anyone who sees every iterate of each.

    A plan counts with its whole share, or more where it states more: no digit depends on how a metric was rounded.
    """
    stated = [link.plan.guarantee(delta, view="iterates", adjacency=parameters.adjacency) for link in links]
    charged = [
        one if one.mu is None else replace(one, mu=max(one.mu, link.mu))
        for one, link in zip(stated, links, strict=True)
    ]
    descents = [at for at, link in enumerate(links) if link.part == "descent"]
    return replace(
        compose(*charged),
        section="8",
        assumptions=(
            *_of(links, "second moments").plan.certificate.because,
            f"second moments released with {parameters.moment_share:.2g} of the budget",
            *stated[descents[-1]].assumptions,
            *(("its terms in means and moments are 0 as well",) if parameters.adjacency == "zero-out" else ()),
            *((f"one budget for {len(descents)} models, split equally",) if len(descents) > 1 else ()),
        ),
        source=source,
    )


def _of(links: Sequence[Link], part: Part) -> Link:
    return next(link for link in links if link.part == part)


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
    lattice: bool = True,
    parts: Sequence[Indices] = (),
    cone: Cone | None = None,
) -> Trained:
    """Train one linear model for each vector of targets, under one budget: the chain on rows at hand.

    Parameters
    ----------
    problem : Problem
        With rows scaled to a declared ``row_norm``, without intercept and regulariser.
    targets : sequence of arrays
        In the order of the problem's rows.
    """
    source = source_for(seed)
    look_once = lru_cache(maxsize=2)(lambda look: look(problem.rows))

    def ask(place: int, link: Link) -> Answer:
        rows = look_once(link.look)
        if link.model is not None:
            rows = replace(rows, targets=targets[link.model] - link.offset)
        facts = link.plan.facts
        assert facts is not None  # plans of a chain have them
        bound = link.plan.on(Problem.from_facts(facts).with_rows(rows))
        result = bound.run(seed=_seed_of(seed, place), progress=progress and link.part == "descent")
        if result.status != "finished":
            raise KeyboardInterrupt
        return Answer(result.model, link.plan.operator.release(result.state.public))

    links = chain(
        problem.facts,
        plan,
        fit_intercept=fit_intercept,
        penalty=penalty,
        models=len(targets),
        parts=parts,
        cone=cone,
        lattice=lattice,
    )
    found, passed = follow(links, ask)
    guarantee = spent(passed, plan, delta, source.describe())
    if problem.word_of_store is not None:
        guarantee = replace(guarantee, assumptions=(*guarantee.assumptions, problem.word_of_store))
    steps = sum(link.plan.steps for link in passed if link.part == "descent")
    return Trained(found.models, found.errors, guarantee, steps, passes=sum(link.plan.steps for link in passed))


def _priced(operator: Operator, facts: Facts, mu: float, adjacency: Adjacency, steps: int = 1) -> Plan:
    """Everybody's messages, summed in every step, with noise at which all steps together cost mu or a little less."""
    std = round_up(operator.certificate(1.0).shift(facts.unit, adjacency) * math.sqrt(steps) / mu, _LIFT)
    unit = operator.unit
    if unit is not None:
        if bits := bits_missing(std, unit):
            return _priced(operator.coarser(bits), facts, mu, adjacency, steps)
        std = unit * math.ceil(std / unit)
    noise = Noise(std, "sum", unit)
    return Plan(operator, EveryBlock(facts.items), noise, steps, relaxation=1.0, facts=facts)


def _as_they_are(rows: Rows) -> Rows:
    return rows


def _look_in_metric(metric: Metric, constant: float, clip: float, rows: Rows) -> Rows:
    """The rows in the coordinates of a metric, with slopes cut where a gradient would be longer than the clip."""
    mapped = Mapped(rows.store, constant, metric)
    squared = mapped.squared_norms()
    with np.errstate(divide="ignore"):
        limits = clip / np.sqrt(squared)
    return replace(rows, store=mapped, squared_norms=squared, limits=limits)


def _checked_norm(facts: Facts, plan: Parameters, penalty: Penalty | None, fit_intercept: bool) -> float:
    """The declared row norm, once the plan is known to be one for this problem: its noise holds for no other."""
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


def _in_metric(penalty: Penalty | None, metric: Metric, plan: Parameters, clip: float, free: int) -> Regularizer:
    if penalty is None or not (penalty.l1 or penalty.l2 or penalty.automatic):
        return Zero()
    counted = np.ones(plan.width)
    counted[plan.width - free :] = 0.0
    if penalty.automatic:
        # In the metric's units every coefficient carries the same noise, of which the largest are kept out. Of what
        # sampling adds two deviations are: all of it would keep out too much that matters.
        noise = clip / (plan.items * plan.descent_mu) * clips_moved(plan.adjacency)
        slope = min(plan.clip, _SLOPE) if plan.two_class else plan.clip
        sampled = slope * metric.scales * np.sqrt(metric.seconds / plan.items)
        threshold = np.hypot(math.sqrt(2 * math.log(2 * plan.width)) * noise, 2 * sampled)
        return ElasticNet(tuple(threshold * counted), tuple(penalty.l2 * counted))
    if penalty.l1:
        return ElasticNet(tuple(penalty.l1 * metric.scales * counted), tuple(penalty.l2 * metric.scales**2 * counted))
    return MappedRidge(penalty.l2, metric, free)


def _seed_of(seed: int | None, place: int) -> int | None:
    """A seed for each plan of a chain: two runs with one seed would add the same noise twice."""
    if seed is None:
        return None
    high, low = np.random.SeedSequence([seed, place]).generate_state(2, np.uint64)
    return int(high) << 64 | int(low)
