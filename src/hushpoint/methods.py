"""The methods of the paper and ours, each a thin assembly of operator, schedule and noise."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, ParamSpec, cast

import numpy as np
from numpy.typing import ArrayLike

from hushpoint._checks import require_choice, require_count, require_flag, require_nonnegative, require_positive, shown
from hushpoint.noise import Noise, Place, bits_missing, whole_std
from hushpoint.operators.admm import GeneralADMM
from hushpoint.operators.averaging import LocalSteps
from hushpoint.operators.base import Operator
from hushpoint.operators.consensus import AnchoredADMM, ConsensusADMM, StatelessProx, SummedADMM
from hushpoint.operators.gradient import CoordinateGradient, Gradient
from hushpoint.operators.lattice_blocks import LatticeBlocks
from hushpoint.operators.lattice_coordinate import LatticeCoordinateGradient
from hushpoint.operators.lattice_gradient import GradientGrid, LatticeGradient
from hushpoint.operators.lattice_steps import LatticeSteps
from hushpoint.plan import METHODS, Plan, checked_relaxation
from hushpoint.privacy.calibration import calibrated_std
from hushpoint.privacy.guarantee import Budget
from hushpoint.problem import Facts, Problem
from hushpoint.regularizers import Regularizer
from hushpoint.schedules import (
    Cyclic,
    EveryBlock,
    FixedSample,
    OneBlock,
    Permuted,
    PoissonSample,
    Schedule,
    Walk,
    walk_on,
)

__all__ = [
    "anchored_admm",
    "centralized_admm",
    "decentralized_admm",
    "dp_cd",
    "dp_fedavg",
    "dp_sgd",
    "federated_admm",
    "private_admm",
    "stateless_walk",
]

Relaxation = float | Sequence[float]

# Whether a method is on the lattice (docs/privacy.md, section 11) where nothing is said and nothing stands in the way.
# Not for its cost, which is about nothing (docs/performance.md), but for what only real numbers have: the bound for the
# final model of dp_sgd, that for one record of a site in anchored_admm, the exact oracle for all of them. What is for
# release (estimators, selection, ranges) is on the lattice.
_ON_LATTICE = {"dp_sgd": False, "dp_cd": False, "dp_fedavg": False, "anchored_admm": False}
Arguments = ParamSpec("Arguments")


@dataclass(frozen=True)
class _Parts:
    """What a method puts together. Noise as the caller counts it is ``scale`` times smaller than the plan's.

    ``told`` is how arguments are recorded that JSON cannot hold as they were given, or that were left to the method.
    """

    operator: Operator
    schedule: Schedule
    place: Place
    steps: int
    relaxation: Relaxation
    tail_average: float | None
    scale: float = 1.0
    told: Mapping[str, Any] = field(default_factory=dict)


def _method(make: Callable[Arguments, _Parts]) -> Callable[Arguments, Plan]:
    """A method by its name: its arguments are checked and recorded, its parts become a plan with noise."""
    signature = inspect.signature(make)

    @functools.wraps(make)
    def method(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Plan:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            if "lattice" in kwargs and "lattice" not in signature.parameters:
                raise ValueError(
                    f"lattice is {shown(kwargs['lattice'])} and {make.__name__} has no lattice: what it releases is no "
                    f"sum of bounded messages (docs/privacy.md, section 5). Use {', '.join(_ON_LATTICE)}, or leave "
                    "lattice= out."
                ) from None
            make(*args, **kwargs)  # Python's own error says more
            raise
        bound.apply_defaults()
        given = bound.arguments
        _check_arguments(given)
        parts = make(*args, **kwargs)
        noise_std, budget = _checked_level(given["noise_std"], given["budget"])
        parameters = {
            name: _plain(value)
            for name, value in {**given, **parts.told}.items()
            if name != "problem" and value is not None
        }
        plan = Plan(
            parts.operator,
            parts.schedule,
            Noise(parts.scale * (1.0 if noise_std is None else noise_std), parts.place),
            steps=parts.steps,
            relaxation=checked_relaxation(parts.relaxation, parts.steps),
            tail_average=parts.tail_average,
            facts=given["problem"].facts,
            method=make.__name__,
            parameters=parameters,
            budget=budget,
            problem=given["problem"],
        )
        if parts.operator.unit is not None:
            return _on_lattice(plan, parts.operator.unit, budget, parts.scale)
        return plan if budget is None else _calibrated(plan, budget, parts.scale)

    method.__signature__ = signature.replace(return_annotation="Plan")  # type: ignore[attr-defined]
    METHODS[make.__name__] = method
    return method


def _check_arguments(given: Mapping[str, Any]) -> None:
    """What methods share."""
    if not isinstance(given["problem"], Problem):
        raise ValueError(f"problem is a {type(given['problem']).__name__}. Pass a hushpoint.Problem.")
    for name in ("steps", "rounds", "hops", "participation_cap"):
        if name in given and (given[name] is not None or name != "participation_cap"):
            require_count(name, given[name])
    if "ridge_in_loss" in given:
        require_flag("ridge_in_loss", given["ridge_in_loss"])


def _checked_level(noise_std: float | None, budget: Budget | None) -> tuple[float | None, Budget | None]:
    """How much noise: a standard deviation, or a budget."""
    if (noise_std is None) == (budget is None):
        both = "neither is given" if budget is None else "both are given"
        raise ValueError(
            f"noise_std is {noise_std!r} and budget is {budget!r}: {both}. Pass noise_std=s (0 for a run "
            "without privacy) or budget=Budget(epsilon, delta)."
        )
    if noise_std is not None:
        require_nonnegative("noise_std", noise_std)
    elif not isinstance(budget, Budget):
        raise ValueError(f"budget is {budget!r}. Pass hushpoint.Budget(epsilon, delta).")
    return noise_std, budget


def _calibrated(plan: Plan, budget: Budget, scale: float) -> Plan:
    """The plan with the least noise for a budget, recorded as the caller would have counted it."""
    least = calibrated_std(plan, budget)
    noise_std = least / scale
    while noise_std * scale < least:  # rounding must not take noise away
        noise_std = math.nextafter(noise_std, math.inf)
    kept = {name: value for name, value in plan.parameters.items() if name != "budget"}
    noise = replace(plan.noise, std=noise_std * scale)
    return replace(plan, noise=noise, parameters={**kept, "noise_std": noise_std})


def _on_lattice(plan: Plan, unit: float, budget: Budget | None, scale: float) -> Plan:
    """The plan with noise of whole steps, at least what was asked for, on the finest lattice that has room for it."""
    std = plan.noise.std if budget is None else calibrated_std(plan, budget)
    if bits := bits_missing(std, unit):
        plan = replace(plan, operator=plan.operator.coarser(bits))
        return _on_lattice(plan, cast(float, plan.operator.unit), budget, scale)
    std = whole_std(std, unit) if budget is None else unit * math.ceil(std / unit)
    parameters = plan.parameters
    if budget is not None:
        parameters = {name: value for name, value in parameters.items() if name != "budget"} | {
            "noise_std": std / scale
        }
    return replace(plan, noise=Noise(std, plan.noise.place, unit), parameters=parameters)


def _chosen_lattice(method: str, asked: bool | None, obstacle: str) -> bool:
    """Whether a method runs on the lattice: as asked, else as is its default where nothing stands in the way."""
    if asked is None:
        return _ON_LATTICE[method] and not obstacle
    if require_flag("lattice", asked) and obstacle:
        raise ValueError(f"lattice is True and {obstacle}, or pass lattice=False.")
    return asked


def _no_lattice(facts: Facts, rows_known: bool = True) -> str:
    """Why messages made of gradients cannot be whole numbers, and what to do; empty if they can."""
    if facts.row_norm is None:
        return "row_norm is not declared. Pass row_norm=R on Problem (rows longer than R are scaled down to it)"
    if not 1e-60 <= facts.row_norm <= 1e60:
        return f"row_norm is {facts.row_norm:g}, far from 1. Scale the rows to a norm from 1e-60 to 1e60"
    if facts.missing:
        return facts.missing[0].rstrip(".")
    if not 1e-250 <= facts.gradient_bound <= 1e250:
        return f"gradients are bounded by {facts.gradient_bound:g}, far from 1. Pass a clip from 1e-250 to 1e250"
    if facts.loss.slope_code is None:
        return f"loss is {facts.loss.name!r}, which has no compiled form. Use a loss of hushpoint.losses"
    if rows_known and not facts.knows_rows:
        return "the rows of each user are not known here. Declare them"
    return ""


def _plain(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value


@_method
def dp_sgd(
    problem: Problem,
    steps: int,
    step_size: float | Sequence[float],
    sample_prob: float = 1.0,
    *,
    noise_std: float | None = None,
    budget: Budget | None = None,
    sample_size: int | None = None,
    tail_average: float | None = None,
    lattice: bool | None = None,
) -> _Parts:
    """Noisy proximal gradient descent, on all items or on a sample (DP-SGD).

    ``z <- prox_{g r}(z - g (G + eta))`` with G the mean gradient over items, or the sum over a sample divided by its
    expected size, and ``eta`` normal of standard deviation ``noise_std``. Gradients are bounded by ``Problem(clip=)``
    or by the loss and ``row_norm``.

    Parameters
    ----------
    step_size : float or sequence of float
        The step g; one number, or one per step.
    sample_prob : float
        Probability with which each item joins the sample of a step, independently. 1: all items.
    sample_size : int, optional
        Sample exactly so many items instead, without replacement.
    noise_std : float
        Standard deviation of the noise on the mean gradient.
    tail_average : float, optional
        Return the mean model of this last fraction of the steps.
    lattice : bool, optional
        Sum whole numbers and draw noise exactly, so that the guarantee holds for the program to the last bit
        (docs/lattice.md). Default False. Needs a declared ``row_norm`` and a loss of ``hushpoint.losses``; entries of
        rows below ``row_norm/2^18`` count as 0. The final model is then accounted as every iterate is.
    """
    facts = problem.facts
    schedule = _sampled(facts.items, sample_size, sample_prob)
    sampled = _expected_sample(schedule)
    largest, ratio = _steps_as_relaxation(step_size, steps)
    chosen = _chosen_lattice("dp_sgd", lattice, _no_lattice(facts, rows_known=facts.weights == "rows"))
    if not chosen:
        told = {"lattice": False}
        return _Parts(Gradient(facts, largest, sampled), schedule, "sum", steps, ratio, tail_average, sampled, told)
    operator = LatticeGradient(facts, largest, sampled, GradientGrid.of(facts))
    scale = sampled / operator.counted
    return _Parts(operator, schedule, "sum", steps, ratio, tail_average, scale, {"lattice": True})


@_method
def dp_cd(
    problem: Problem,
    steps: int,
    step_size: float | Sequence[float] | None = None,
    *,
    noise_std: float | None = None,
    budget: Budget | None = None,
    tail_average: float | None = None,
    lattice: bool | None = None,
) -> _Parts:
    """Noisy proximal coordinate descent (DP-CD): one uniformly drawn coordinate a step.

    Parameters
    ----------
    step_size : float or sequence of float, optional
        Default ``1/(loss smoothness * row_norm^2)``, never from the data.
    noise_std : float
        Standard deviation of the noise on that coordinate of the mean gradient.
    tail_average : float, optional
        Return the mean model of this last fraction of the steps.
    lattice : bool, optional
        As in ``dp_sgd``.
    """
    facts = problem.facts
    if step_size is None:
        if not np.isfinite(facts.smoothness):
            raise ValueError(
                f"step_size is not given and has no default: the {facts.loss.name} loss has no smoothness bound "
                "or row_norm is not declared. Pass step_size=g, or row_norm=R on Problem with a smooth loss."
            )
        step_size = 1 / facts.smoothness
    largest, ratio = _steps_as_relaxation(step_size, steps)
    schedule = OneBlock(facts.width)
    chosen = _chosen_lattice("dp_cd", lattice, _no_lattice(facts, rows_known=False))
    if not chosen:
        told, plain = {"lattice": False}, CoordinateGradient(facts, largest)
        return _Parts(plain, schedule, "sum", steps, ratio, tail_average, facts.items, told)
    operator = LatticeCoordinateGradient(facts, largest, GradientGrid.of(facts))
    return _Parts(operator, schedule, "sum", steps, ratio, tail_average, operator.counted, {"lattice": True})


@_method
def private_admm(
    problem: Problem,
    steps: int,
    gamma: float,
    relaxation: Relaxation = 0.5,
    *,
    noise_std: float | None = None,
    budget: Budget | None = None,
    A: ArrayLike | None = None,
    B: ArrayLike | None = None,
    c: ArrayLike | None = None,
    penalty: Regularizer | None = None,
    ridge_in_loss: bool = True,
    tolerance: float | None = None,
    tail_average: float | None = None,
) -> _Parts:
    """General private ADMM with one block (Algorithm 5): the prox of the whole data set, noise of the model's size.

    Minimises ``f(x) + g(z)`` subject to ``A x + B z = c``, by default ``x = z``. f is the weighted mean of the losses,
    plus the quadratic part of the regulariser; g is the rest of it, or ``penalty``.

    Parameters
    ----------
    gamma : float
        Step of the proxes.
    relaxation : float or sequence of float
        The lambda of Algorithm 1, in (0, 1].
    noise_std : float
        The sigma of Algorithm 1.
    A, B : arrays, optional
        Matrices of full column rank; default identity and minus identity.
    c : array, optional
        Default 0.
    penalty : Regularizer, optional
        g, where it is not the regulariser of the problem (which must then be zero or a ridge).
    ridge_in_loss : bool
        Whether the quadratic part of the regulariser sits in f, where it makes the sensitivity smaller, or in g.
    tolerance : float, optional
        Certified distance of a computed ``A x`` from the exact one; enters the sensitivity. Default 1e-6 L gamma/n.
    tail_average : float, optional
        Return the mean model of this last fraction of the steps.
    """
    rest, ridge = _split_ridge(problem.facts, ridge_in_loss)
    if penalty is not None:
        if not isinstance(penalty, Regularizer):
            raise ValueError(f"penalty is {shown(penalty)}. Pass an object of hushpoint.regularizers such as L1(0.1).")
        if rest.smoothness != 0:
            raise ValueError(
                f"penalty is {penalty!r} and the problem has the regularizer {problem.regularizer!r}. "
                "Pass the penalty alone; only a ridge may stay on the problem."
            )
        rest = penalty
    operator = GeneralADMM(problem.facts, gamma, rest, ridge, A, B, c, tolerance, extra_penalty=penalty is not None)
    return _Parts(operator, EveryBlock(1), "block", steps, relaxation, tail_average)


@_method
def centralized_admm(
    problem: Problem,
    steps: int,
    gamma: float,
    relaxation: Relaxation = 0.5,
    *,
    noise_std: float | None = None,
    budget: Budget | None = None,
    schedule: Literal["all", "cyclic", "permuted", "single"] | int = "all",
    clip_residual: float | None = None,
    ridge_in_loss: bool = False,
    tolerance: float | None = None,
    tail_average: float | None = None,
) -> _Parts:
    """Centralized consensus ADMM, one block per item (Algorithm 2).

    Parameters
    ----------
    steps : int
        Number of noisy updates; with "cyclic", "permuted" and "single" each moves one block.
    schedule : {"all", "cyclic", "permuted", "single"} or int
        All blocks at every step; one in a fixed order; one in an order drawn anew on each pass; one drawn
        uniformly; or a uniformly drawn subset of so many.
    noise_std : float
        The sigma of Algorithm 1.
    clip_residual : float, optional
        The paper's clip of ``x - z``. Not non-expansive; prefer ``Problem(clip=)``.
    ridge_in_loss : bool
        Whether the quadratic part of the regulariser sits in every item's loss instead of in r.
    gamma, relaxation, tolerance, tail_average
        As in ``private_admm``.
    """
    facts = problem.facts
    chosen: Schedule
    if isinstance(schedule, str):
        require_choice("schedule", schedule, ("all", "cyclic", "permuted", "single"))
        kinds = {"all": EveryBlock, "cyclic": Cyclic, "permuted": Permuted, "single": OneBlock}
        chosen = kinds[schedule](facts.items)  # type: ignore[abstract]
    else:
        remedy = f"Pass 'all', 'cyclic', 'permuted', 'single', or a subset size from 1 to {facts.items}."
        chosen = FixedSample(facts.items, require_count("schedule", schedule, most=facts.items, remedy=remedy))
    rest, ridge = _split_ridge(facts, ridge_in_loss)
    operator = ConsensusADMM(facts, gamma, rest, ridge, clip_residual, tolerance)
    return _Parts(operator, chosen, "block", steps, relaxation, tail_average)


@_method
def federated_admm(
    problem: Problem,
    rounds: int,
    gamma: float,
    relaxation: Relaxation = 0.5,
    *,
    sample_size: int | None = None,
    sample_prob: float | None = None,
    noise: Literal["clients", "sum"] = "clients",
    noise_std: float | None = None,
    budget: Budget | None = None,
    clip_residual: float | None = None,
    participation_cap: int | None = None,
    ridge_in_loss: bool = False,
    tolerance: float | None = None,
    tail_average: float | None = None,
) -> _Parts:
    """Federated consensus ADMM (Algorithm 3), carrying ``zhat`` rather than z between rounds.

    Parameters
    ----------
    sample_size, sample_prob : int or float, optional
        Users of a round: a subset of fixed size, or each with a probability. Neither: all of them.
    noise : {"clients", "sum"}
        "clients": each user adds noise of standard deviation ``noise_std`` (sigma) to its block and message, and trusts
        nobody. "sum": a trusted server adds noise of standard deviation ``noise_std`` to the sum of messages, which
        must be bounded by ``clip_residual``.
    clip_residual : float, optional
        The paper's clip of ``x - z``.
    participation_cap : int, optional
        Public bound on the rounds that one user takes part in; users stop there.
    gamma, relaxation, ridge_in_loss, tolerance, tail_average
        As in ``centralized_admm``.
    """
    require_choice("noise", noise, ("clients", "sum"))
    facts = problem.facts
    schedule = _sampled(facts.items, sample_size, sample_prob, participation_cap, unsaid=None)
    if noise == "sum" and clip_residual is None:
        raise ValueError("noise is 'sum' and clip_residual is None. Pass clip_residual=C, which bounds each message.")
    rest, ridge = _split_ridge(facts, ridge_in_loss)
    kind = ConsensusADMM if noise == "clients" else SummedADMM
    operator = kind(facts, gamma, rest, ridge, clip_residual, tolerance, watcher="server")
    return _Parts(operator, schedule, "block" if noise == "clients" else "sum", rounds, relaxation, tail_average)


@_method
def decentralized_admm(
    problem: Problem,
    hops: int,
    gamma: float,
    relaxation: Relaxation = 0.5,
    *,
    graph: Any = "complete",
    noise_std: float | None = None,
    budget: Budget | None = None,
    clip_residual: float | None = None,
    participation_cap: int | None = None,
    ridge_in_loss: bool = False,
    tolerance: float | None = None,
    tail_average: float | None = None,
) -> _Parts:
    """Fully decentralized consensus ADMM (Algorithm 4): a token with ``zhat`` walks from user to user.

    Parameters
    ----------
    graph : "complete" or networkx graph
        Who may hand the token to whom; "complete": uniformly to anyone, the holder included. The nodes of a graph are
        the users in sorted order.
    participation_cap : int, optional
        Public bound on the contributions of one user; at its cap a user passes the token on unchanged.
    gamma, relaxation, noise_std, clip_residual, ridge_in_loss, tolerance, tail_average
        As in ``centralized_admm``.
    """
    schedule = walk_on(graph, problem.items, participation_cap)
    rest, ridge = _split_ridge(problem.facts, ridge_in_loss)
    operator = ConsensusADMM(problem.facts, gamma, rest, ridge, clip_residual, tolerance, watcher="peers")
    return _Parts(operator, schedule, "block", hops, relaxation, tail_average, told={"graph": _listed(schedule)})


@_method
def anchored_admm(
    problem: Problem,
    rounds: int,
    gamma: float,
    relaxation: Relaxation = 0.5,
    *,
    sample_prob: float = 1.0,
    sample_size: int | None = None,
    noise_std: float | None = None,
    budget: Budget | None = None,
    radius: float | None = None,
    tolerance: float | None = None,
    tail_average: float | None = None,
    lattice: bool | None = None,
) -> _Parts:
    """Consensus ADMM with a trusted aggregator: blocks without noise near the public point, fresh noise a release.

    Parameters
    ----------
    sample_prob, sample_size : float or int, optional
        Users of a round: each with a probability, or a subset of fixed size.
    noise_std : float
        Standard deviation of the noise on each released mean.
    radius : float, optional
        How far a block may be from the public point. Default gamma L, which at relaxation 1/2 never clips.
    lattice : bool, optional
        Keep blocks of whole numbers and draw noise exactly, so that the guarantee holds for the program to the last bit
        (docs/lattice.md). Default False. There is then no smaller bound for one record than for its whole user.
    gamma, relaxation, tolerance, tail_average
        As in ``centralized_admm``.
    """
    schedule = _sampled(problem.items, sample_size, sample_prob)
    facts = problem.facts
    obstacle = _off_lattice(facts, budget)
    if not obstacle and radius is None and facts.missing:
        obstacle = "nothing bounds a block. Pass radius=r, or declare what bounds the gradients of the losses"
    chosen = _chosen_lattice("anchored_admm", lattice, obstacle)
    kind = LatticeBlocks if chosen else AnchoredADMM
    operator = kind(facts, gamma, problem.regularizer, 0.0, radius, tolerance)
    scale = float(operator.summed) if isinstance(operator, LatticeBlocks) else 1.0  # its noise is on the sum
    return _Parts(
        operator, schedule, "release", rounds, relaxation, tail_average, scale=scale, told={"lattice": chosen}
    )


@_method
def dp_fedavg(
    problem: Problem,
    rounds: int,
    local_steps: int,
    local_step_size: float,
    clip_update: float,
    server_step: float = 1.0,
    *,
    sample_prob: float = 1.0,
    sample_size: int | None = None,
    noise_std: float | None = None,
    budget: Budget | None = None,
    tail_average: float | None = None,
    lattice: bool | None = None,
) -> _Parts:
    """Federated averaging with a trusted aggregator (DP-FedAvg): local gradient steps, clipped updates, a noisy sum.

    With one local step and nothing clipped it is ``dp_sgd`` with the step ``server_step * local_step_size``. With more
    it settles near the optimum, not at it, where users differ.

    Parameters
    ----------
    local_steps, local_step_size : int and float
        Gradient steps that a user goes from the public point on the mean loss of its rows, and their size.
    clip_update : float
        Updates longer than this are scaled down to it.
    server_step : float
        How much of the mean update is taken; the regulariser's prox then has the step
        ``server_step * local_steps * local_step_size``.
    sample_prob, sample_size : float or int, optional
        Users of a round: each with a probability, or a subset of fixed size.
    noise_std : float
        Standard deviation of the noise on the mean update (the sum over the sample divided by its expected size).
    tail_average : float, optional
        Return the mean model of this last fraction of the rounds.
    lattice : bool, optional
        Send updates of whole numbers and draw noise exactly, so that the guarantee holds for the program to the last
        bit (docs/lattice.md). Default False. There is then no smaller bound for one record than for its whole user.
    """
    schedule = _sampled(problem.items, sample_size, sample_prob)
    sampled = _expected_sample(schedule)
    chosen = _chosen_lattice("dp_fedavg", lattice, _off_lattice(problem.facts, budget))
    kind = LatticeSteps if chosen else LocalSteps
    operator = kind(problem.facts, local_steps, local_step_size, clip_update, sampled, server_step)
    scale = sampled * operator.per_item if isinstance(operator, LatticeSteps) else sampled
    return _Parts(operator, schedule, "sum", rounds, 1.0, tail_average, scale=scale, told={"lattice": chosen})


@_method
def stateless_walk(
    problem: Problem,
    hops: int,
    gamma: float,
    relaxation: Relaxation = 0.5,
    *,
    graph: Any = "complete",
    noise_std: float | None = None,
    budget: Budget | None = None,
    participation_cap: int | None = None,
    tolerance: float | None = None,
    tail_average: float | None = None,
) -> _Parts:
    """A walk whose users keep nothing: ``z <- z + 2 lambda (prox_{gamma f_i}(z) - z) + lambda eta``.

    With a constant gamma it settles near the optimum, not at it, as stochastic gradient descent does.

    Parameters
    ----------
    graph, participation_cap
        As in ``decentralized_admm``; a user at its cap adds noise and leaves its prox step out.
    gamma, relaxation, noise_std, tolerance, tail_average
        As in ``centralized_admm``. The regulariser must be zero or a ridge: it sits inside every user's prox.
    """
    schedule = walk_on(graph, problem.items, participation_cap)
    operator = StatelessProx(problem.facts, gamma, tolerance)
    return _Parts(operator, schedule, "block", hops, relaxation, tail_average, told={"graph": _listed(schedule)})


def _off_lattice(facts: Facts, budget: Budget | None) -> str:
    """What keeps the rounds of users off the lattice; empty: nothing."""
    if facts.loss.code is None:
        return f"loss is {facts.loss.name!r}, which has no compiled form. Use a loss of hushpoint.losses"
    if isinstance(budget, Budget) and budget.unit == "record" and facts.unit == "user":
        return "budget is for one record of a user, for which whole numbers have no smaller bound. Ask for unit='user'"
    return ""


def _split_ridge(facts: Facts, ridge_in_loss: bool) -> tuple[Regularizer, float]:
    return facts.regularizer.quadratic() if ridge_in_loss else (facts.regularizer, 0.0)


def _sampled(
    items: int, size: int | None, prob: float | None, cap: int | None = None, *, unsaid: float | None = 1.0
) -> Schedule:
    """Who takes part; a probability that is ``unsaid`` is one that the caller did not give."""
    if size is not None:
        if prob != unsaid:
            raise ValueError(f"sample_size is {size} and sample_prob is {prob}. Pass one of them.")
        return FixedSample(items, size, cap=cap)
    schedule = PoissonSample(items, 1.0 if prob is None else prob, cap=cap)
    return EveryBlock(items, cap=cap) if schedule.prob == 1 else schedule


def _expected_sample(schedule: Schedule) -> float:
    return schedule.probability * schedule.most_at_once


def _listed(walk: Walk) -> Any:
    """The graph of a walk as JSON can hold it."""
    return "complete" if walk.neighbours is None else [list(row) for row in walk.neighbours]


def _steps_as_relaxation(step_size: float | Sequence[float], steps: int) -> tuple[float, Relaxation]:
    """The largest step size, and each step's share of it: a gradient step is a relaxed one."""
    if isinstance(step_size, (Sequence, np.ndarray)) and not isinstance(step_size, str):
        sizes = [require_positive("step_size", size) for size in step_size]
        if len(sizes) != steps:
            raise ValueError(f"step_size has {len(sizes)} entries for {steps} steps. Pass one number, or one per step.")
        return max(sizes), tuple(size / max(sizes) for size in sizes)
    return require_positive("step_size", step_size), 1.0
