"""Tables without data: the epsilon that each accountant gives for the same run, and the noise a budget asks for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial

import numpy as np

from hushpoint import methods
from hushpoint.experiments.contenders import CONTENDERS, SHARE, Size, sampled_admm
from hushpoint.experiments.study import Cell, Record, json_number
from hushpoint.plan import Plan
from hushpoint.privacy import exact_mu, published
from hushpoint.privacy.gaussian import gaussian_rdp, gdp_epsilon, rdp_epsilon
from hushpoint.privacy.guarantee import Budget
from hushpoint.privacy.subsampling import poisson_epsilon, poisson_rdp_epsilon
from hushpoint.problem import Problem
from hushpoint.regularizers import L2

GUARANTEES = ("method", "label", "accountant", "basis", "view", "adjacency", "steps", "epsilon", "delta")
NOISE = ("method", "label", "epsilon", "steps", "noise_std", "adjacency", "view")

_ONE = "replace-one"
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
            row = {"method": settings["method"], "label": label, "accountant": accountant, "basis": basis, "view": view}
            row |= {"adjacency": adjacency, "steps": steps, "epsilon": json_number(epsilon_of(steps))}
            rows.append({**row, "delta": settings["delta"]})
    return {"rows": rows}


Accountant = tuple[str, str, str, Callable[[int], float]]  # basis, view, adjacency, and the epsilon of so many steps
Accountants = dict[str, Accountant]


def _composed(make: Callable[[int], Plan], delta: float, view: str) -> Accountants:
    """Gaussian and Renyi composition of all the steps of a plan, seen by a viewer."""

    def mu(steps: int) -> float:
        found = make(steps).guarantee(delta, "iterates").mu
        assert found is not None
        return found

    def renyi(steps: int) -> float:
        total = mu(steps)
        return rdp_epsilon(lambda alpha: gaussian_rdp(total, alpha), delta)

    return {
        "gdp": ("proved", view, _ONE, lambda steps: gdp_epsilon(mu(steps), delta)),
        "rdp": ("proved", view, _ONE, renyi),
    }


def _one_dimension(items: int) -> Problem:
    """The worst case of a last iterate: only the row in question curves the loss, the ridge alone contracts."""
    rows = np.zeros((items, 1))
    rows[0] = 1.0
    return Problem(rows, np.zeros(items), regularizer=L2(_RIDGE), row_norm=1.0, clip=_CLIP)


def _central(method: Callable[..., Plan], length: float, items: int, delta: float) -> Accountants:
    """Gaussian and Renyi composition, the last-iterate bound, and the exact loss of the last iterate."""
    problem = _one_dimension(items)
    noise_std = method(problem, 100, length, budget=Budget(1.0, delta, "iterates")).parameters["noise_std"]

    def make(steps: int) -> Plan:
        return method(problem, steps, length, noise_std=noise_std)

    return {
        **_composed(make, delta, "iterates"),
        "last_iterate": ("proved", "final", _ONE, lambda steps: make(steps).guarantee(delta, "final").epsilon),
        "exact": _exact(make, problem, delta),
    }


def _exact(make: Callable[[int], Plan], problem: Problem, delta: float) -> Accountant:
    return "exact", "final", _ONE, lambda steps: gdp_epsilon(exact_mu(make(steps), problem, view="final"), delta)


def _dp_gd(size: Size, delta: float) -> tuple[str, Accountants]:
    return "DP-GD with a ridge (full batch)", _central(methods.dp_sgd, 0.5, size.items, delta)


def _private_admm(size: Size, delta: float) -> tuple[str, Accountants]:
    return "one-block ADMM (Alg. 5) with a ridge", _central(methods.private_admm, 1.0, size.items, delta)


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

    def printed(steps: int) -> float:
        def rdp(alpha: float) -> float:
            return published.centralized_admm_rdp(
                alpha=alpha, steps=steps, loss_lipschitz=_CLIP, gamma=gamma, noise_std=noise_std, items=_USERS
            )

        return rdp_epsilon(rdp, delta, conversion="paper")

    return f"centralized ADMM (Alg. 2), {_USERS} users", {
        **_composed(make, delta, "messages"),
        "published": ("published", "final", _ONE, printed),
        "exact": _exact(make, problem, delta),
    }


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
        table: dict[float, float] = {}
        for alpha in np.geomspace(1.01, 1e4, 200).tolist():
            with suppress(ValueError):  # outside the printed condition
                table[alpha] = published.network_rdp(
                    alpha=alpha, participations=passes, loss_lipschitz=_CLIP, gamma=gamma, noise_std=noise_std,
                    items=size.items,
                )  # fmt: skip
        return rdp_epsilon((list(table), list(table.values())), delta, conversion="paper") if table else math.inf

    return "walk over the users (a step is a pass)", {
        "gdp": ("proved", "messages", _ONE, lambda passes: make(passes).guarantee(delta, "messages").epsilon),
        "rdp": ("proved", "network", _ONE, lambda passes: make(passes).guarantee(delta, "network").epsilon),
        "published": ("published", "network", _ONE, printed),
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
    size, name, delta, epsilon = Size(**settings["size"]), settings["method"], settings["delta"], settings["epsilon"]
    problem = Problem.declared(size.items, size.features, row_norm=1.0, clip=_CLIP)
    rows = []
    for steps in settings["steps"]:
        plan = _NOISES[name](problem, steps, 1.0, budget=Budget(epsilon, delta, adjacency="zero-out"))
        row = {"method": name, "label": CONTENDERS[name].label, "epsilon": epsilon, "steps": steps}
        row |= {"noise_std": plan.parameters["noise_std"], "adjacency": "zero-out", "view": plan.default_view}
        rows.append(row)
    return {"rows": rows}


_NOISES: dict[str, Callable[..., Plan]] = {
    "dp_gd": methods.dp_sgd,
    "dp_sgd_sampled": partial(methods.dp_sgd, sample_prob=SHARE),
    "private_admm": methods.private_admm,
    "anchored_admm": methods.anchored_admm,
    "federated_admm_local": sampled_admm,
}
