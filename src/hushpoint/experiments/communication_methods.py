"""Data and methods of the study of communication: users with truths of their own, and who trains on them how."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from hushpoint import methods
from hushpoint._types import Array, Indices
from hushpoint.estimators import PrivateLogisticRegression
from hushpoint.experiments.contenders import AGGREGATOR, NOBODY, SECURE
from hushpoint.experiments.secure_bytes import plan_bytes
from hushpoint.experiments.secure_sums import SecureTerms
from hushpoint.experiments.secure_training import SecureTraining
from hushpoint.experiments.tuning import Settings, product
from hushpoint.plan import Plan
from hushpoint.privacy.guarantee import Adjacency, Budget, Guarantee
from hushpoint.problem import Problem
from hushpoint.regularizers import L2

ADJACENCY: Adjacency = "zero-out"  # which the amplification of secret samples needs
DELTA = 1e-5
_ROW_NORM, _RIDGE = 1.5, 1e-3


@dataclass(frozen=True)
class Size:
    """How many users, with how many rows each (uniformly from a range), of how many features."""

    users: int = 300
    fewest: int = 20
    most: int = 30
    features: int = 20


@dataclass(frozen=True, eq=False)
class Sample:
    """The rows of all users."""

    rows: Array
    labels: NDArray[np.bool_]
    owners: Indices

    def problem(self, clip: float | None = None) -> Problem:
        """Users as items; ``clip`` is for methods that clip rows."""
        if clip not in self._problems:
            self._problems[clip] = Problem(
                self.rows, self.labels, "logistic", L2(_RIDGE), _ROW_NORM, self.owners, clip=clip
            )
        return self._problems[clip]

    @cached_property
    def _problems(self) -> dict[float | None, Problem]:
        return {}

    @cached_property
    def best(self) -> float:
        """The least objective."""
        problem = self.problem()

        def value_and_slope(z: Array) -> tuple[float, Array]:
            return problem.objective(z), problem.gradient(z) + _RIDGE * z

        return float(minimize(value_and_slope, np.zeros(problem.features), jac=True, tol=1e-9).fun)

    def gap(self, model: Array) -> float:
        """How far the objective of a model is above the least one, relative to it; infinite for what is no model."""
        objective = self.problem().objective(model) if np.isfinite(model).all() else math.inf
        return objective / self.best - 1 if math.isfinite(objective) else math.inf


@lru_cache(maxsize=32)
def draw(size: Size, seed: int) -> Sample:
    """Users whose rows and truths differ: features of falling size around means of the user's own.

    How many rows each has is the same in every draw, as it is public.
    """
    rng = np.random.default_rng(seed)
    owners = np.repeat(np.arange(size.users), size.fewest + np.arange(size.users) % (size.most + 1 - size.fewest))
    scales = (1.0 + np.arange(size.features)) ** -0.5
    scales /= np.linalg.norm(scales)
    means = 0.5 * scales * rng.normal(size=(size.users, size.features))
    rows = means[owners] + scales * rng.normal(size=(len(owners), size.features))
    truths = rng.choice([-3.0, 3.0], size=size.features) + 1.5 * rng.normal(size=(size.users, size.features))
    chances = 1 / (1 + np.exp(-np.einsum("ij,ij->i", rows, truths[owners])))
    return Sample(rows, rng.random(len(owners)) < chances, owners)


# --- methods

Make = Callable[[Sample, int, float, Settings, dict[str, Any]], Plan]


@dataclass(frozen=True)
class Method:
    """One line of the table: how a plan is made of a setting, and the settings that are tried.

    ``secure``: all users take part in every round, each a site of its own, and nobody sees more than the sum.
    """

    label: str
    trust: str
    make: Make
    grid: tuple[Settings, ...]
    secure: bool = False


def _anchored(sample: Sample, rounds: int, share: float, choice: Settings, level: dict[str, Any]) -> Plan:
    gamma = choice["gamma"]
    return methods.anchored_admm(
        sample.problem(), rounds, gamma, choice["relaxation"], sample_prob=share, radius=gamma * choice["clip"],
        tail_average=choice["tail"], **level,
    )  # fmt: skip


def _anchored_on_lattice(sample: Sample, rounds: int, share: float, choice: Settings, level: dict[str, Any]) -> Plan:
    return _anchored(sample, rounds, share, choice, {**level, "lattice": True})


def _local(sample: Sample, rounds: int, share: float, choice: Settings, level: dict[str, Any]) -> Plan:
    gamma = choice["gamma"]
    some: dict[str, Any] = {}
    if share < 1:  # no sample is secret here: only a cap bounds how often a user takes part
        size = max(1, round(share * sample.problem().items))
        some = {"sample_size": size, "participation_cap": min(rounds, math.ceil(1.5 * share * rounds))}
    return methods.federated_admm(
        sample.problem(), rounds, gamma, choice["relaxation"], clip_residual=gamma * choice["clip"],
        tail_average=choice["tail"], **some, **level,
    )  # fmt: skip


def _averaging(sample: Sample, rounds: int, share: float, choice: Settings, level: dict[str, Any]) -> Plan:
    step, local_steps = choice["step"], choice.get("local_steps", 1)
    return methods.dp_fedavg(
        sample.problem(), rounds, local_steps, step, local_steps * step * choice["clip"], sample_prob=share,
        tail_average=choice["tail"], **level,
    )  # fmt: skip


def _rows_clipped(sample: Sample, rounds: int, share: float, choice: Settings, level: dict[str, Any]) -> Plan:
    problem = sample.problem(choice["clip"])
    return methods.dp_sgd(problem, rounds, choice["step"], sample_prob=share, tail_average=choice["tail"], **level)


TAILS = (None, 0.5)
_CLIP = (0.03, 0.1, 0.3)  # of a user's gradient
_ADMM = tuple(product(gamma=(20.0, 60.0, 200.0, 600.0), clip=_CLIP, relaxation=(0.5, 0.9), tail=TAILS))
_STEPS = (3.0, 6.0, 10.0, 16.0, 25.0, 40.0, 60.0, 100.0)
METHODS = {
    "anchored_admm": Method("anchored ADMM", AGGREGATOR, _anchored, _ADMM),
    "secure_anchored": Method("anchored ADMM (secure sums)", SECURE, _anchored_on_lattice, _ADMM, secure=True),
    "dp_fedavg": Method(
        "DP-FedAvg", AGGREGATOR, _averaging,
        tuple(product(step=(4.0, 8.0, 16.0, 32.0), local_steps=(4, 12), clip=_CLIP, tail=TAILS)),
    ),
    "dp_fedsgd": Method(
        "DP-FedSGD", AGGREGATOR, _averaging, tuple(product(step=_STEPS, clip=_CLIP, tail=TAILS)),
    ),
    "dp_sgd_rows": Method(
        "DP-SGD over users (rows clipped)", AGGREGATOR, _rows_clipped,
        tuple(product(step=_STEPS, clip=(0.1, 0.3, 1.0), tail=TAILS)),
    ),
    "federated_admm_local": Method("federated ADMM (local noise)", NOBODY, _local, _ADMM),
}  # fmt: skip


def level(epsilon: float) -> dict[str, Any]:
    """What the budget says about noise."""
    return {"budget": Budget(epsilon, DELTA, adjacency=ADJACENCY, unit="user")}


class Plans:
    """Plans of a method at one budget, number of rounds and share, with noise in proportion to the bound of a message.

    Settings differ in nothing else that the accountant looks at, so that it is asked once for all of them. Plans of one
    sample are good for every other one, since all have the same facts.
    """

    def __init__(self, method: str, size: Size, rounds: int, share: float, epsilon: float | None) -> None:
        about = METHODS[method]
        self._make = partial(about.make, draw(size, 0), rounds, share)
        self._ratio = 0.0
        self._terms = SecureTerms(size.users) if about.secure else None
        self._budget = None if epsilon is None else level(epsilon)["budget"]
        if epsilon is not None and self._terms is None:
            first = self._make(about.grid[0], level(epsilon))
            self._ratio = first.noise.std / first.certificate.shift("user", ADJACENCY) * (1 + 1e-9)

    def plan(self, choice: Settings) -> Plan:
        """The plan of a setting."""
        if self._terms is not None and self._budget is not None:
            return self._terms.planned(self._make(choice, {"noise_std": 0.0}), self._budget)
        unit = self._make(choice, {"noise_std": 1.0})
        wanted = self._ratio * unit.certificate.shift("user", ADJACENCY)
        return self._make(choice, {"noise_std": wanted / unit.noise.std})

    def guarantee(self, plan: Plan) -> Guarantee:
        """What is proved of one of these plans."""
        if self._terms is not None and self._budget is not None:
            return self._terms.guarantee(plan)
        return plan.guarantee(DELTA, adjacency=ADJACENCY, unit="user")


ESTIMATOR, ESTIMATOR_LABEL = "estimator", "PrivateLogisticRegression (secure sums, untuned)"
FEWEST_ROUNDS = 6  # of an estimator


def estimator_training(size: Size, epsilon: float, rounds: int) -> SecureTraining:
    """The estimator for the objective of the study, each user a site of its own. There is nothing to tune."""
    made = PrivateLogisticRegression(
        epsilon, DELTA, _ROW_NORM, alpha=_RIDGE, fit_intercept=False, adjacency=ADJACENCY, classes=[False, True]
    )
    return SecureTraining(made, SecureTerms(size.users), level(epsilon)["budget"], rounds)


def sent_bytes(method: str, size: Size, plan: Plan, messages: float) -> int:
    """Bytes of a run: of so many requests and replies, or of all letters of all rounds of secure sums."""
    if METHODS[method].secure:
        return plan_bytes(plan, SecureTerms(size.users))
    return round(messages * round_trip(method, size.features))


@lru_cache
def round_trip(method: str, features: int) -> int:
    """Bytes of a request and its reply, measured in a small federation of the same method and features (unsigned)."""
    from hushpoint.federated import run_in_process

    sample, about = draw(Size(users=12, features=features), 0), METHODS[method]
    plan = about.make(sample, 3, 1.0, about.grid[0], {"noise_std": 0.1})
    last = run_in_process(plan, sample.problem(plan.facts.clip if plan.facts else None), seed=0).rounds[-1]
    return math.ceil((last.bytes_down + last.bytes_up) / len(last.answered))
