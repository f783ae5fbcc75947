"""Tables without data: the epsilon that each accountant gives for the same run, and the noise a budget asks for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from hushpoint import methods
from hushpoint.experiments.contenders import CONTENDERS, SHARE, Size
from hushpoint.experiments.study import Cell, Record
from hushpoint.plan import Plan
from hushpoint.privacy import exact_mu, published
from hushpoint.privacy.gaussian import gaussian_rdp, gdp_epsilon, rdp_epsilon
from hushpoint.privacy.guarantee import Budget
from hushpoint.privacy.subsampling import poisson_epsilon, poisson_rdp_epsilon
from hushpoint.problem import Problem
from hushpoint.regularizers import L2

GUARANTEES = ("method", "label", "accountant", "basis", "view", "adjacency", "steps", "epsilon", "delta")
NOISE = ("method", "label", "epsilon", "steps", "noise_std", "adjacency", "view")

_CLIP = 0.4
_RIDGE = 0.05  # makes a step contract, which the last-iterate bound lives on
_USERS = 20  # of the small consensus problem, whose exact loss can be computed
_LONGEST_EXACT = 100


def cells(size: Size, steps: Sequence[int], epsilons: Sequence[float], delta: float) -> list[Cell]:
    """A cell for each method of the two tables."""
    common: Record = {"size": asdict(size), "steps": list(steps), "delta": delta}
    made = [Cell(f"guarantees-{name}", guarantee_rows, {**common, "method": name}, 1.0) for name in _ACCOUNTED]
    middle = min(epsilons, key=lambda epsilon: abs(math.log(epsilon)))
    for name in _NOISES:
        made.append(Cell(f"noise-{name}", noise_rows, {**common, "method": name, "epsilon": middle}, 1.0))
    return made


def tables(results: dict[str, Record]) -> dict[str, tuple[Sequence[str], list[Record]]]:
    """The two tables."""
    guarantees = [row for name in _ACCOUNTED for row in results[f"guarantees-{name}"]["rows"]]
    noises = [row for name in _NOISES for row in results[f"noise-{name}"]["rows"]]
    return {"guarantees": (GUARANTEES, guarantees), "noise": (NOISE, noises)}


# --- guarantees


def guarantee_rows(settings: Record) -> Record:
    """A cell: the epsilons of one method, at noise with which 100 steps (10 passes) have epsilon = 1."""
    label, accountants = _ACCOUNTED[settings["method"]](Size(**settings["size"]), settings["delta"])
    rows = []
    for accountant, (basis, view, adjacency, epsilon_of) in accountants.items():
        for steps in settings["steps"]:
            if accountant == "exact" and steps > _LONGEST_EXACT:
                continue
            epsilon = epsilon_of(steps)
            rows.append(
                {
                    "method": settings["method"],
                    "label": label,
                    "accountant": accountant,
                    "basis": basis,
                    "view": view,
                    "adjacency": adjacency,
                    "steps": steps,
                    "epsilon": epsilon if math.isfinite(epsilon) else "inf",
                    "delta": settings["delta"],
                }
            )
    return {"rows": rows}


Accountants = dict[str, tuple[str, str, str, Callable[[int], float]]]


def _gaussian(mu: float, delta: float) -> float:
    return gdp_epsilon(mu, delta)


def _renyi(mu: float, delta: float) -> float:
    return rdp_epsilon(lambda alpha: gaussian_rdp(mu, alpha), delta)


def _one_dimension(items: int) -> Problem:
    """The worst case of a last iterate: only the row in question curves the loss, the ridge alone contracts."""
    rows = np.zeros((items, 1))
    rows[0] = 1.0
    return Problem(rows, np.zeros(items), regularizer=L2(_RIDGE), row_norm=1.0, clip=_CLIP)


def _central(make: Callable[[Problem, int, dict[str, Any]], Plan], items: int, delta: float) -> Accountants:
    """Gaussian and Renyi composition, the last-iterate bound, and the exact loss of the last iterate."""
    problem = _one_dimension(items)
    noise = {"noise_std": make(problem, 100, {"budget": Budget(1.0, delta, "iterates")}).parameters["noise_std"]}

    def mu(steps: int) -> float:
        found = make(problem, steps, noise).guarantee(delta, "iterates").mu
        assert found is not None
        return found

    def last(steps: int) -> float:
        return make(problem, steps, noise).guarantee(delta, "final").epsilon

    def exact(steps: int) -> float:
        small = make(problem, steps, noise)
        return gdp_epsilon(exact_mu(small, problem, view="final"), delta)

    one = "replace-one"
    return {
        "gdp": ("proved", "iterates", one, lambda steps: _gaussian(mu(steps), delta)),
        "rdp": ("proved", "iterates", one, lambda steps: _renyi(mu(steps), delta)),
        "last_iterate": ("proved", "final", one, last),
        "exact": ("exact", "final", one, exact),
    }


def _dp_gd(size: Size, delta: float) -> tuple[str, Accountants]:
    def make(problem: Problem, steps: int, level: dict[str, Any]) -> Plan:
        return methods.dp_sgd(problem, steps, 0.5, **level)

    return "DP-GD with a ridge (full batch)", _central(make, size.items, delta)


def _private_admm(size: Size, delta: float) -> tuple[str, Accountants]:
    def make(problem: Problem, steps: int, level: dict[str, Any]) -> Plan:
        return methods.private_admm(problem, steps, 1.0, **level)

    return "one-block ADMM (Alg. 5) with a ridge", _central(make, size.items, delta)


def _dp_sgd(size: Size, delta: float) -> tuple[str, Accountants]:
    problem = Problem.declared(size.items, size.features, row_norm=1.0, clip=_CLIP)
    plan = methods.dp_sgd(problem, 100, 1.0, sample_prob=SHARE, budget=Budget(1.0, delta))
    multiplier = plan.noise.std / _CLIP
    return "DP-SGD (10% sampled)", {
        "pld": ("proved", "iterates", "zero-out", lambda steps: poisson_epsilon(multiplier, SHARE, steps, delta)),
        "rdp": ("proved", "iterates", "zero-out", lambda steps: poisson_rdp_epsilon(multiplier, SHARE, steps, delta)),
        "gdp": ("proved", "iterates", "zero-out", lambda steps: gdp_epsilon(math.sqrt(steps) / multiplier, delta)),
    }


def _consensus(size: Size, delta: float) -> tuple[str, Accountants]:
    """Algorithm 2 with few users: what is proved, what was printed, and what a pair of data sets really has."""
    problem = Problem(np.ones((_USERS, 1)), np.zeros(_USERS), row_norm=1.0, clip=_CLIP)
    gamma = 0.05  # nearly linear losses, which attain the erratum
    plan = methods.centralized_admm(problem, 100, gamma, budget=Budget(1.0, delta, "iterates"))
    noise_std = plan.parameters["noise_std"]

    def make(steps: int) -> Plan:
        return methods.centralized_admm(problem, steps, gamma, noise_std=noise_std)

    def mu(steps: int) -> float:
        found = make(steps).guarantee(delta, "iterates").mu
        assert found is not None
        return found

    def printed(steps: int) -> float:
        def rdp(alpha: float) -> float:
            return published.centralized_admm_rdp(
                alpha=alpha, steps=steps, loss_lipschitz=_CLIP, gamma=gamma, noise_std=noise_std, items=_USERS
            )

        return rdp_epsilon(rdp, delta, conversion="paper")

    one = "replace-one"
    return f"centralized ADMM (Alg. 2), {_USERS} users", {
        "gdp": ("proved", "messages", one, lambda steps: _gaussian(mu(steps), delta)),
        "rdp": ("proved", "messages", one, lambda steps: _renyi(mu(steps), delta)),
        "published": ("published", "final", one, printed),
        "exact": (
            "exact", "final", one,
            lambda steps: gdp_epsilon(exact_mu(make(steps), problem, view="final"), delta),
        ),
    }  # fmt: skip


def _walk(size: Size, delta: float) -> tuple[str, Accountants]:
    """A walk in passes over all users: the local bound, the proved network bound, and the printed one."""
    problem = Problem.declared(size.items, size.features, row_norm=1.0, clip=_CLIP)
    gamma = 0.1
    noise_std = methods.stateless_walk(
        problem, 10 * size.items, gamma, participation_cap=10, budget=Budget(1.0, delta)
    ).parameters["noise_std"]

    def make(passes: int) -> Plan:
        return methods.stateless_walk(
            problem, passes * size.items, gamma, participation_cap=passes, noise_std=noise_std
        )

    def printed(passes: int) -> float:
        table = []
        for alpha in np.geomspace(1.01, 1e4, 200):
            try:
                value = published.network_rdp(
                    alpha=float(alpha), participations=passes, loss_lipschitz=_CLIP, gamma=gamma,
                    noise_std=noise_std, items=size.items,
                )  # fmt: skip
            except ValueError:
                continue  # outside the printed condition
            table.append((float(alpha), value))
        if not table:
            return math.inf
        return rdp_epsilon(([a for a, _ in table], [v for _, v in table]), delta, conversion="paper")

    one = "replace-one"
    return "walk over the users (a step is a pass)", {
        "gdp": ("proved", "messages", one, lambda passes: make(passes).guarantee(delta, "messages").epsilon),
        "rdp": ("proved", "network", one, lambda passes: make(passes).guarantee(delta, "network").epsilon),
        "published": ("published", "network", one, printed),
    }


_ACCOUNTED: dict[str, Callable[[Size, float], tuple[str, Accountants]]] = {
    "dp_gd": _dp_gd,
    "dp_sgd_sampled": _dp_sgd,
    "private_admm": _private_admm,
    "centralized_admm": _consensus,
    "decentralized_walk": _walk,
}


# --- noise


def noise_rows(settings: Record) -> Record:
    """A cell: the noise of one method against the number of steps."""
    size, delta, epsilon = Size(**settings["size"]), settings["delta"], settings["epsilon"]
    problem = Problem.declared(size.items, size.features, row_norm=1.0, clip=_CLIP)
    rows = []
    for steps in settings["steps"]:
        budget = Budget(epsilon, delta, adjacency="zero-out")
        plan = _NOISES[settings["method"]](problem, steps, budget)
        rows.append(
            {
                "method": settings["method"],
                "label": CONTENDERS[settings["method"]].label,
                "epsilon": epsilon,
                "steps": steps,
                "noise_std": plan.parameters["noise_std"],
                "adjacency": "zero-out",
                "view": plan.default_view,
            }
        )
    return {"rows": rows}


def _spread_out(problem: Problem, rounds: int, budget: Budget) -> Plan:
    cap = max(1, math.ceil(1.5 * SHARE * rounds))
    size = max(1, round(SHARE * problem.items))
    return methods.federated_admm(problem, rounds, 1.0, sample_size=size, participation_cap=cap, budget=budget)


_NOISES: dict[str, Callable[[Problem, int, Budget], Plan]] = {
    "dp_gd": lambda problem, steps, budget: methods.dp_sgd(problem, steps, 1.0, budget=budget),
    "dp_sgd_sampled": lambda problem, steps, budget: methods.dp_sgd(
        problem, steps, 1.0, sample_prob=SHARE, budget=budget
    ),
    "private_admm": lambda problem, steps, budget: methods.private_admm(problem, steps, 1.0, budget=budget),
    "anchored_admm": lambda problem, steps, budget: methods.anchored_admm(problem, steps, 1.0, budget=budget),
    "federated_admm_local": _spread_out,
}
