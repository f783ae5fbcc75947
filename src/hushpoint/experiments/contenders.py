"""The methods of the study, each with its label, whom it trusts, its grid, and how a plan is made of a setting.

All are calibrated by the same accountant to the same epsilon, delta and adjacency (zero-out, which the amplification of
secret sampling needs), except the one marked as published. ``reach`` is the sum of the step sizes of a run: a gradient
method with it and an ADMM with gamma = reach/steps go about as far, so that they can share a grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from hushpoint import methods
from hushpoint._types import Array
from hushpoint.experiments.data import synthetic_lasso
from hushpoint.experiments.secure_bytes import round_bytes
from hushpoint.experiments.secure_sums import SecureTerms, SharedNoise
from hushpoint.experiments.tuning import Settings, product
from hushpoint.plan import Plan
from hushpoint.privacy.guarantee import Adjacency, Budget, Guarantee, View
from hushpoint.problem import Problem
from hushpoint.regularizers import L1

ADJACENCY: Adjacency = "zero-out"
SHARE = 0.1  # of the users take part in a round, as in the paper
CURATOR, AGGREGATOR, SECURE = "trusted curator", "trusted aggregator", "nobody trusted, secure sums"
PEERS, NOBODY = "peers only", "nobody trusted, local noise"


@dataclass(frozen=True)
class Size:
    """How much data: the paper's numbers, and how it is held where users have many rows or sites many records."""

    items: int = 1000
    features: int = 64
    support: int = 8
    test_rows: int = 1000
    rows_per_user: int = 20
    sites: int = 20


@dataclass(frozen=True)
class Sample:
    """One draw: the rows of ``items`` records (the first row of each user), all rows of the users, and a test set."""

    size: Size
    rows: Array
    targets: Array
    user_rows: Array
    user_targets: Array
    test_rows: Array
    test_targets: Array

    def problem(self, strength: float, clip: float | None) -> Problem:
        """One record an item."""
        return Problem(self.rows, self.targets, regularizer=L1(strength), row_norm=1.0, clip=clip)

    def plain(self, strength: float, clip: float | None) -> Problem:
        """One record an item, without the regulariser, for the walk that has no room for it."""
        return Problem(self.rows, self.targets, row_norm=1.0, clip=clip)

    def by_user(self, strength: float, clip: float | None) -> Problem:
        """One user an item, each with several rows of its own."""
        users = np.arange(len(self.user_rows)) % self.size.items
        return Problem(
            self.user_rows, self.user_targets, regularizer=L1(strength), row_norm=1.0, clip=clip, groups=users
        )

    def by_site(self, strength: float, clip: float | None) -> Problem:
        """The same records as ``problem``, held by a few sites."""
        sites = np.arange(self.size.items) % self.size.sites
        return Problem(
            self.rows, self.targets, regularizer=L1(strength), row_norm=1.0, clip=clip, groups=sites, weights="rows"
        )

    def test(self, strength: float) -> Problem:
        """The test set, with the objective that is reported."""
        return Problem(self.test_rows, self.test_targets, regularizer=L1(strength), row_norm=1.0)


@lru_cache(maxsize=16)
def draw(size: Size, seed: int) -> Sample:
    """Data of the paper's law: training rows and test rows of one ground truth."""
    owned = size.items * size.rows_per_user
    rows, targets, _ = synthetic_lasso(owned + size.test_rows, size.features, size.support, seed=seed)
    first = slice(size.items)
    return Sample(size, rows[first], targets[first], rows[:owned], targets[:owned], rows[owned:], targets[owned:])


Make = Callable[[Problem, Settings, dict[str, Any]], Plan]


@dataclass(frozen=True)
class Contender:
    """A method of the study. ``sent`` is how many numbers one round sends over the network, per feature.

    ``secure`` are the terms of its secure sums for so many sites, where nobody is trusted with messages.
    """

    name: str
    label: str
    trust: str
    make: Make
    full: tuple[Settings, ...]
    quick: tuple[Settings, ...]
    problem: Callable[[Sample, float, float | None], Problem] = Sample.problem
    view: View | None = None
    unit: Any = None
    sent: Callable[[Plan], float] = lambda plan: 0.0
    published: bool = False
    secure: Callable[[int], SecureTerms] | None = None

    def plan(self, sample: Sample, strength: float, settings: Settings, epsilon: float, delta: float) -> Plan:
        """The plan of a setting, with the noise that the budget asks for."""
        problem = self.problem(sample, strength, settings["clip"])
        if self.published:
            return _published_plan(problem, settings, self.make, epsilon, delta)
        budget = Budget(epsilon, delta, view=self.view, adjacency=ADJACENCY, unit=self.unit)
        if self.secure is not None:
            silent = self.make(problem, settings, {"noise_std": 0.0, "lattice": True})
            return self.secure(problem.items).planned(silent, budget)
        return self.make(problem, settings, {"budget": budget})

    def guarantee(self, plan: Plan, delta: float) -> Guarantee:
        """What is proved of a plan that this method made."""
        if self.secure is not None:
            return self.secure(plan.schedule.blocks).guarantee(plan)
        return plan.guarantee(delta, self.view, ADJACENCY, self.unit)


def _reaching(method: Callable[..., Plan], **options: Any) -> Make:
    """So many steps that together go as far as ``reach``."""

    def make(problem: Problem, settings: Settings, level: dict[str, Any]) -> Plan:
        steps = settings["steps"]
        return method(problem, steps, settings["reach"] / steps, tail_average=settings["tail"], **options, **level)

    return make


def _in_rounds(method: Callable[..., Plan]) -> Make:
    """So many rounds with a gamma; further choices of the setting where it has them."""

    def make(problem: Problem, settings: Settings, level: dict[str, Any]) -> Plan:
        names = {"tail": "tail_average", "relaxation": "relaxation"}
        options = {option: settings[name] for name, option in names.items() if name in settings}
        return method(problem, settings["rounds"], settings["gamma"], **options, **level)

    return make


def _summed(problem: Problem, settings: Settings, level: dict[str, Any]) -> Plan:
    gamma = settings["gamma"]
    message = gamma / (1 + gamma) * settings["clip"]  # as far as a row of length 1 can pull
    return methods.federated_admm(
        problem, settings["rounds"], gamma, settings["relaxation"], sample_prob=SHARE, noise="sum",
        clip_residual=message, **level,
    )  # fmt: skip


def sampled_admm(problem: Problem, rounds: int, gamma: float, *, capped: bool = True, **options: Any) -> Plan:
    """Federated ADMM with a share of the users a round, each of whom takes part little more often than on average."""
    cap = math.ceil(1.5 * SHARE * rounds) if capped else None
    some = max(1, round(SHARE * problem.items))
    return methods.federated_admm(problem, rounds, gamma, sample_size=some, participation_cap=cap, **options)


def _walk(problem: Problem, settings: Settings, level: dict[str, Any]) -> Plan:
    passes, gamma = settings["passes"], settings["gamma"]
    hops, cap = passes * problem.items, 2 * passes
    budget = level["budget"]
    # The accountant of the network view is slow, and the noise is proportional to gamma and clip: asked once, checked
    # each time.
    ratio = _walk_noise(problem.items, passes, budget)
    for noise in ({"noise_std": ratio * gamma * settings["clip"] * (1 + 1e-9)}, level):
        plan = methods.stateless_walk(problem, hops, gamma, settings["relaxation"], participation_cap=cap, **noise)
        if plan.guarantee(budget.delta, budget.view, budget.adjacency).epsilon <= budget.epsilon:
            break
    return replace(plan, budget=budget)


@lru_cache
def _walk_noise(items: int, passes: int, budget: Budget) -> float:
    problem = Problem.declared(items, 1, row_norm=1.0, clip=1.0)
    plan = methods.stateless_walk(problem, passes * items, 1.0, participation_cap=2 * passes, budget=budget)
    return float(plan.parameters["noise_std"])


def _token(problem: Problem, settings: Settings, level: dict[str, Any]) -> Plan:
    hops, cap = settings["passes"] * problem.items, 2 * settings["passes"]
    return methods.decentralized_admm(
        problem, hops, settings["gamma"], participation_cap=cap, tail_average=settings["tail"], **level
    )


def _published_plan(problem: Problem, settings: Settings, make: Make, epsilon: float, delta: float) -> Plan:
    """The least noise with which the paper's central bound, as printed, gives the epsilon."""

    def plan_at(noise_std: float) -> Plan:
        return make(problem, settings, {"noise_std": noise_std})

    def stated(noise_std: float) -> float:
        plan = plan_at(noise_std)
        return plan.guarantee(delta, "final", "replace-one", allow_published=True).epsilon

    low = high = 4.0  # the bound is printed for sigma >= 4 only
    while stated(high) > epsilon:
        low, high = high, 2 * high
        if high > 1e12:
            raise ValueError(f"no noise has the published epsilon {epsilon}.")
    while high > low * (1 + 1e-4):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if stated(middle) <= epsilon else (middle, high)
    return plan_at(high)


def a_third(sites: int) -> SecureTerms:
    """A third of the sites may collude with the server."""
    return SecureTerms(sites, sites // 3)


def _both_ways(share: float) -> Callable[[Plan], float]:
    """The model to everyone who takes part, and an answer from each."""
    return lambda plan: 2 * (share * plan.schedule.blocks)


def _by_letters(plan: Plan) -> float:
    """All letters of a round of secure sums, as if they were numbers of 8 bytes."""
    noise, width = plan.noise, plan.operator.message_size
    assert isinstance(noise, SharedNoise)
    return round_bytes(SecureTerms(noise.sites, noise.sites - noise.honest), width, width) / (8 * width)


_REACH = (1.0, 10.0, 60.0, 300.0, 1200.0, 5000.0)
_ANCHORED = (0.02, 0.3, 2.0, 6.0, 20.0, 60.0)
_WIDE = (0.1, 1.0, 10.0, 60.0, 300.0, 1500.0)
_GAMMA = (0.01, 0.1, 0.5, 2.0, 6.0, 20.0)
_SMALL = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
_SITES = (0.05, 0.5, 4.0, 15.0, 40.0, 100.0)
_CLIP = (0.05, 0.15)
_TAIL = (None, 0.5)


def _grids(name: str, counts: tuple[int, int], size: str, sizes: tuple[float, ...], **last: Any) -> dict[str, Any]:
    """48 settings, and 16 of the shorter ones: sizes from next to nothing to large, two clips, and one more choice."""
    ((other, values),) = last.items()
    full = product(**{name: counts, size: sizes, "clip": _CLIP, other: values})
    some = tuple(sizes[k] for k in (0, 2, 4, 5))
    quick = product(**{name: counts[:1], size: some, "clip": _CLIP, other: values})
    return {"full": tuple(full), "quick": tuple(quick)}


CONTENDERS: dict[str, Contender] = {
    contender.name: contender
    for contender in (
        Contender(
            "dp_gd", "DP-GD (full batch)", CURATOR, _reaching(methods.dp_sgd),
            **_grids("steps", (30, 100), "reach", _REACH, tail=_TAIL),
        ),
        Contender(
            "dp_sgd_sampled", "DP-SGD (10% sampled)", CURATOR, _reaching(methods.dp_sgd, sample_prob=SHARE),
            **_grids("steps", (100, 300), "reach", _REACH, tail=_TAIL),
        ),
        Contender(
            "private_admm", "one-block ADMM (Alg. 5)", CURATOR, _reaching(methods.private_admm),
            **_grids("steps", (30, 10), "reach", _REACH, tail=_TAIL),
        ),
        Contender(
            "anchored_admm", "anchored ADMM", AGGREGATOR, _in_rounds(methods.anchored_admm),
            **_grids("rounds", (100, 30), "gamma", _ANCHORED, tail=_TAIL),
            sent=_both_ways(1.0),
        ),
        Contender(
            "federated_admm_sum", "federated ADMM (noise on the sum)", AGGREGATOR, _summed,
            **_grids("rounds", (200, 60), "gamma", _WIDE, relaxation=(1.0, 0.5)),
            sent=_both_ways(SHARE),
        ),
        Contender(
            "federated_admm_published", "federated ADMM (central bound as published)", AGGREGATOR,
            _in_rounds(partial(sampled_admm, capped=False)),
            **_grids("rounds", (20, 100), "gamma", _WIDE, relaxation=(0.5, 0.1)),
            sent=_both_ways(SHARE), view="final", published=True,
        ),
        Contender(
            "secure_anchored", "anchored ADMM (secure sums)", SECURE, _in_rounds(methods.anchored_admm),
            **_grids("rounds", (100, 30), "gamma", _ANCHORED, tail=_TAIL),
            view="messages", sent=_by_letters, secure=SecureTerms,
        ),
        Contender(
            "secure_dp_gd", "DP-GD (secure sums)", SECURE, _reaching(methods.dp_sgd),
            **_grids("steps", (30, 100), "reach", _REACH, tail=_TAIL),
            view="messages", sent=_by_letters, secure=SecureTerms,
        ),
        Contender(
            "secure_third", "anchored ADMM (secure sums, a third colludes)", SECURE, _in_rounds(methods.anchored_admm),
            **_grids("rounds", (100, 30), "gamma", _ANCHORED, tail=_TAIL),
            view="messages", sent=_by_letters, secure=a_third,
        ),
        Contender(
            "decentralized_walk", "stateless walk (seen by peers)", PEERS, _walk,
            **_grids("passes", (1, 2), "gamma", _SMALL, relaxation=(0.25, 0.5)),
            problem=Sample.plain, view="network", sent=lambda plan: 1.0,
        ),
        Contender(
            "federated_admm_local", "federated ADMM (Alg. 3, local noise)", NOBODY, _in_rounds(sampled_admm),
            **_grids("rounds", (20, 100), "gamma", _GAMMA, tail=_TAIL),
            sent=_both_ways(SHARE),
        ),
        Contender(
            "decentralized_admm", "decentralized ADMM (Alg. 4, local noise)", NOBODY, _token,
            **_grids("passes", (2, 10), "gamma", _GAMMA, tail=_TAIL),
            sent=lambda plan: 1.0,
        ),
        Contender(
            "local_users", "federated ADMM (20 rows a user)", NOBODY, _in_rounds(sampled_admm),
            **_grids("rounds", (20, 50), "gamma", _GAMMA, tail=_TAIL),
            problem=Sample.by_user, sent=_both_ways(SHARE),
        ),
        Contender(
            "local_sites", "federated ADMM (20 sites)", NOBODY, _in_rounds(methods.federated_admm),
            **_grids("rounds", (20, 40), "gamma", _SITES, tail=_TAIL),
            problem=Sample.by_site, unit="record", sent=_both_ways(1.0),
        ),
    )
}  # fmt: skip
