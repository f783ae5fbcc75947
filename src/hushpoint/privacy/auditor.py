"""The auditor: run on two neighbouring data sets many times and compare with the whole claimed trade-off curve.

A guarantee says how well anyone can tell the two apart, at every false-positive rate. The auditor builds one test (a
linear score fitted on one half of the runs) and measures its rates on the other half with exact binomial confidence
bounds. A claim is caught when the measured rates are impossible under it anywhere on the curve. A single epsilon at a
small delta has no power: with 10,000 runs it never notices halved noise; the curve does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy import special, stats

from hushpoint._checks import require, require_choice, require_count, require_inside, require_kind
from hushpoint._types import Array, Indices
from hushpoint.operators.base import LOSS_IS_ZERO
from hushpoint.privacy.accounting import answer, ask, require_plan
from hushpoint.privacy.guarantee import Adjacency, Guarantee, Unit
from hushpoint.privacy.replicas import released_models
from hushpoint.problem import Problem
from hushpoint.rows import ArrayRows

if TYPE_CHECKING:
    from hushpoint.plan import Plan

Sampler = Callable[[Problem, int], Array]

_THRESHOLDS = 24
_CONFIDENCE = "Pass a number in (0, 1) such as 1 - 1e-6."


@dataclass(frozen=True)
class AuditReport:
    """What an audit found, at a stated confidence.

    ``mu_lower`` and ``epsilon_lower`` (at the claim's delta) are lower bounds on the true loss; ``caught`` says that
    the claim is violated somewhere on its curve.
    """

    mu_lower: float
    epsilon_lower: float
    claimed: Guarantee
    caught: bool
    runs: int
    confidence: float

    def __str__(self) -> str:
        verdict = "The claim is violated." if self.caught else "Consistent with the claim."
        claim = f"epsilon = {self.claimed.epsilon:.4g} at delta = {self.claimed.delta:g}"
        if self.claimed.mu is not None:
            claim += f" (mu = {self.claimed.mu:.4g})"
        return (
            f"{verdict} Claimed: {claim}. Measured with {self.runs} runs on each side, confidence {self.confidence}: "
            f"mu >= {self.mu_lower:.4g}, epsilon >= {self.epsilon_lower:.4g}."
        )


def audit(
    plan: Plan,
    problem: Problem,
    neighbour: Problem | None = None,
    runs: int = 10_000,
    *,
    view: str = "final",
    adjacency: Adjacency | None = None,
    delta: float = 1e-5,
    confidence: float = 1 - 1e-6,
    seed: int = 0,
    claimed_plan: Plan | None = None,
    sampler: Sampler | None = None,
) -> AuditReport:
    """Audit the guarantee of a plan.

    Parameters
    ----------
    plan, problem, neighbour
        What runs, and two data sets that differ in one item. None: the strongest canary for the loss, in the
        heaviest item.
    runs : int
        Repetitions on each of the two data sets.
    view : {"final", "iterates"}
        What is released: the final model, or the model after every step.
    adjacency : optional
        The relation between the two data sets; default that of the plan.
    delta : float
        Where the claim is quoted; the comparison uses the whole curve.
    confidence : float
        One minus the chance that a true claim is called violated.
    seed : int
        The runs are seeded: an audit is an experiment.
    claimed_plan : Plan, optional
        The plan whose guarantee is claimed, where it is not the one that runs.
    sampler : callable, optional
        ``sampler(problem, seed)`` gives what one run releases, to audit code of one's own against the plan's claim.
    """
    require_choice("view", view, ("final", "iterates"))
    require_count("runs", runs, least=100, remedy="Pass at least 100 runs; 10,000 give a useful answer.")
    _check_worlds(plan, problem, neighbour, claimed_plan)
    require_inside("confidence", confidence, remedy=_CONFIDENCE)
    require_count("seed", seed, least=0, remedy="Pass a whole number, 0 or larger: an audit is an experiment.")
    remedy = "Pass a function of a problem and a seed, or None."
    require(sampler is None or callable(sampler), "sampler", sampler, remedy)
    question = ask(plan if claimed_plan is None else claimed_plan, view, adjacency)  # type: ignore[arg-type]
    if neighbour is None:
        if question.adjacency == "zero-out" and question.item_level and plan.operator.zero_out != LOSS_IS_ZERO:
            raise ValueError(
                f"neighbour is not given, and zero-out means that {plan.operator.zero_out}, which no data set does. "
                "Pass neighbour= and adjacency='replace-one'."
            )
        heaviest = int(np.argmax(problem.facts.item_weights))
        problem, neighbour = strongest_canary(problem, heaviest, adjacency=question.adjacency, unit=question.unit)
    spend = answer(question)
    claimed = question.plan.guarantee(delta, question.view, question.adjacency, question.unit)
    worlds = []
    for side, world in enumerate((problem, neighbour)):
        seeds = [_run_seed(seed, side, run) for run in range(runs)]
        if sampler is None:
            worlds.append(released_models(plan.on(world), seeds, every_step=view == "iterates"))
        else:
            worlds.append(np.stack([np.ravel(sampler(world, one)) for one in seeds]))
    low, high = _rates(worlds[0], worlds[1], 1 - confidence)
    mu_lower = float(np.max(special.ndtri(low) - special.ndtri(high), initial=0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        epsilon_lower = float(np.max(np.log(np.maximum(low - delta, 0)) - np.log(high), initial=0.0))
    caught = mu_lower > claimed.mu if claimed.mu is not None else _violates(spend.epsilon, low, high)
    return AuditReport(mu_lower, epsilon_lower, claimed, caught, runs, confidence)


def _check_worlds(plan: Plan, problem: Problem, neighbour: Problem | None, claimed_plan: Plan | None) -> None:
    require_plan("plan", plan)
    if claimed_plan is not None:
        require_plan("claimed_plan", claimed_plan)
    worlds = {"problem": problem} if neighbour is None else {"problem": problem, "neighbour": neighbour}
    for name, world in worlds.items():
        require_kind(name, world, Problem, remedy="Pass the data as hushpoint.Problem(X, y, ...).")
        if not world.has_rows:
            raise ValueError(f"{name} has no rows: it is declared. An audit runs: pass hushpoint.Problem(X, y, ...).")


def strongest_canary(
    problem: Problem, item: int = 0, *, adjacency: Adjacency = "replace-one", unit: Unit | None = None
) -> tuple[Problem, Problem]:
    """Two problems that differ in one unit whose gradients are as far apart as the loss allows.

    The changed rows (all of the item, or its first for ``unit="record"``) become equal: the longest row that is allowed
    (``row_norm``, or the longest in the data) along the first feature, with targets far out on either side, or with the
    two classes. For zero-out the second problem has rows of zeros instead, which have no gradient.
    """
    facts, rows = problem.facts, problem.rows
    start, stop = (item, item + 1) if rows.offsets is None else (rows.offsets[item], rows.offsets[item + 1])
    changed = slice(start, stop if (unit or facts.unit) == "user" else start + 1)
    length = facts.row_norm if facts.row_norm is not None else float(np.sqrt(rows.squared_norms.max()))
    far = 1.0 if facts.loss.labels == "two-class" else 1e6
    lengths = (length, 0.0 if adjacency == "zero-out" else length)
    first, second = (
        _with_canary(problem, changed, size, side * far) for side, size in zip((-1.0, 1.0), lengths, strict=True)
    )
    return first, second


def _with_canary(problem: Problem, changed: slice, length: float, target: float) -> Problem:
    rows = problem.rows
    features = rows.store[:].copy()
    targets, squared_norms = rows.targets.copy(), rows.squared_norms.copy()
    features[changed] = 0.0
    features[changed, 0] = length
    targets[changed], squared_norms[changed] = target, length**2
    limits = rows.limits
    if limits is not None and problem.facts.clip is not None:
        limits = limits.copy()
        limits[changed] = problem.facts.clip / length if length else math.inf
    return problem.with_rows(
        replace(rows, store=ArrayRows(features), targets=targets, squared_norms=squared_norms, limits=limits)
    )


def _run_seed(seed: int, side: int, run: int) -> int:
    return (seed << 40) + (side << 36) + run


def _rates(one: Array, other: Array, alarm: float) -> tuple[Array, Array]:
    """Lower bounds on true-positive and upper bounds on false-positive rates of several tests, jointly valid."""
    half = len(one) // 2
    direction = _direction(one[:half], other[:half])
    scores = [world @ direction for world in (one, other)]
    fitted = np.concatenate([scores[0][:half], scores[1][:half]])
    thresholds = np.quantile(fitted, np.linspace(0.01, 0.99, _THRESHOLDS))
    count = len(one) - half
    above_one = (scores[0][half:, None] > thresholds).sum(axis=0)
    above_other = (scores[1][half:, None] > thresholds).sum(axis=0)
    # Both directions: the other world as "positive", and the first one with the test turned round.
    share = alarm / (4 * _THRESHOLDS)
    low = np.concatenate([_lower(above_other, count, share), _lower(count - above_one, count, share)])
    high = np.concatenate([_upper(above_one, count, share), _upper(count - above_other, count, share)])
    return low, high


def _direction(one: Array, other: Array) -> Array:
    """Fisher's direction: the best linear test between two Gaussians of the same covariance."""
    gap = other.mean(axis=0) - one.mean(axis=0)
    spread = (np.atleast_2d(np.cov(one, rowvar=False)) + np.atleast_2d(np.cov(other, rowvar=False))) / 2
    ridge = 1e-10 * np.trace(spread) / len(gap) + 1e-300
    return np.asarray(np.linalg.solve(spread + ridge * np.eye(len(gap)), gap))


def _lower(hits: Indices, count: int, alarm: float) -> Array:
    """Clopper-Pearson lower bound of a rate."""
    return np.asarray(np.where(hits > 0, stats.beta.ppf(alarm, np.maximum(hits, 1), count - hits + 1), 0.0))


def _upper(hits: Indices, count: int, alarm: float) -> Array:
    """Clopper-Pearson upper bound of a rate."""
    return np.asarray(np.where(hits < count, stats.beta.ppf(1 - alarm, hits + 1, np.maximum(count - hits, 1)), 1.0))


def _violates(epsilon: Callable[[float], float], low: Array, high: Array) -> bool:
    """Whether ``TPR <= e^epsilon FPR + delta`` fails for some point of a claimed curve."""
    for delta in np.geomspace(1e-4, 0.5, 24):
        claimed = epsilon(float(delta))
        if math.isfinite(claimed) and bool(np.any(low > math.exp(claimed) * high + delta)):
            return True
    return False
