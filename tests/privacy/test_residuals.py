"""The mean square of a regression's residuals (docs/privacy.md, section 8): sensitivity, noise, bits, budget, audit.

Statistical tests have fixed seeds and call a correct program wrong with probability at most 1e-6 each.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from numpy.typing import NDArray
from scipy import stats

import hushpoint as hp
from hushpoint.estimators import training
from hushpoint.estimators.planner import Parameters, plan_parameters
from hushpoint.estimators.residuals import Residuals
from hushpoint.estimators.training import Answer, Link
from hushpoint.privacy import gdp_mu
from hushpoint.privacy.guarantee import Adjacency
from hushpoint.problem import Problem

Array = NDArray[np.float64]
ADJACENCIES: tuple[Adjacency, ...] = ("replace-one", "zero-out")
LATTICE = pytest.mark.parametrize("lattice", [False, True], ids=["real numbers", "lattice"])
ALARM, NORM, CAP = 1e-6, 2.0, 0.3
MODEL = np.array([0.4, -0.3, 0.2, 0.1])


def a_problem(X: Any, y: Any, groups: Any = None) -> Problem:
    return Problem(X, y, "squared", row_norm=NORM, groups=groups)


def mean_square(problem: Problem, lattice: bool, residuals: Residuals | None = None) -> float:
    """What would be released without noise."""
    chosen = residuals or Residuals(MODEL, 0.05, CAP, True)
    operator = chosen.operator(problem.facts, lattice)
    rows = operator.prepare(chosen.look(problem.rows))
    found = operator.move(rows, slice(None), np.zeros((rows.items, 0)), np.zeros(1), 1.0, None, None)[1]
    return float(operator.combine(np.zeros(1), operator.cut(found), None, 1.0)[0])


def two_worlds(rng: np.random.Generator, users: bool, targets: tuple[float, float]) -> list[Problem]:
    """Two problems that differ in their first item, a row or a user, whose targets are these."""
    rest, y = rng.normal(size=(8, 3)), rng.uniform(-1, 1, size=8)
    worlds = []
    for target in targets:
        count = int(rng.integers(1, 6)) if users else 1
        mine = rng.normal(size=(count, 3)) * 10.0 ** rng.uniform(-3, 100)
        groups = np.r_[np.zeros(count), 1 + np.arange(8) // 2] if users else None
        worlds.append(a_problem(np.vstack([mine, rest]), np.r_[np.full(count, target), y], groups))
    return worlds


@LATTICE
@pytest.mark.parametrize("users", [False, True])
def test_no_item_moves_the_mean_square_further_than_claimed(users: bool, lattice: bool) -> None:
    """Would catch: residuals that are not capped, sums over a user's rows, a cap that is not squared.

    And some item moves it as far: a claim 1% smaller is refuted.
    """
    rng, found = np.random.default_rng(0), []
    for targets in [(0.15, 1e6), (0.05, np.inf), (0.05, np.nan), *rng.uniform(-1, 1, size=(20, 2))]:
        one, other = two_worlds(rng, users, tuple(np.nan_to_num(targets, nan=0.7, posinf=1e300)))
        residuals = Residuals(MODEL, 0.05, CAP, True)
        for adjacency in ADJACENCIES:
            claimed = residuals.operator(one.facts, lattice).certificate(1.0).shift(one.facts.unit, adjacency)
            assert claimed == pytest.approx(CAP**2, rel=1e-5)
            moved = one.items * abs(mean_square(one, lattice) - mean_square(other, lattice))
            assert moved <= claimed * (1 + 1e-12)
            found.append(moved / claimed)
    exact = [a_problem(np.zeros((3, 3)), np.array([y, 0.15, 0.15])) for y in (0.15, 5.0)]  # the model says 0.15 there
    assert abs(mean_square(exact[0], lattice) - mean_square(exact[1], lattice)) * 3 >= 0.99 * CAP**2


@LATTICE
def test_what_is_no_number_counts_as_the_largest(lattice: bool) -> None:
    """A released model may be anything: then every residual is the cap, and none is without a bound."""
    problem = a_problem(np.ones((4, 3)), np.zeros(4))
    for model in (np.full(4, np.nan), np.array([np.inf, -np.inf, 0, 0]), np.full(4, 1e300)):
        with np.errstate(all="ignore"):
            released = mean_square(problem, lattice, Residuals(model, 0.0, CAP, True))
        assert released == pytest.approx(CAP**2, rel=1e-5)


def test_a_residual_is_to_the_bit_a_function_of_its_row() -> None:
    """Would catch: products of a whole table, whose sums are in an order that other rows decide."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(400, 37)) * (rng.random((400, 37)) < 0.5) * 10.0 ** rng.uniform(-3, 3, size=(400, 1))
    y, order = rng.uniform(-1, 1, size=400), rng.permutation(400)
    residuals = Residuals(rng.normal(size=38) / 40, 0.1, 2.0, True)

    def sizes(features: Any, targets: Array) -> Array:
        return residuals.look(a_problem(features, targets).rows).store[:]

    whole = sizes(X, y)
    assert len(np.unique(whole)) > 300
    assert whole.max() <= 2.0
    np.testing.assert_array_equal(sizes(X[order], y[order]), whole[order])
    np.testing.assert_array_equal(sizes(scipy.sparse.csr_array(X), y), whole)
    np.testing.assert_array_equal(np.vstack([sizes(X[i : i + 1], y[i : i + 1]) for i in range(400)]), whole)


def chained(problem: Problem, plan: Parameters, lattice: bool) -> Link:
    """The link about residuals, after others that were answered without data."""
    links = training.chain(problem.facts, plan, fit_intercept=True, lattice=lattice)

    def ask(place: int, link: Link) -> Answer:
        return Answer(*(2 * [np.random.default_rng(place).uniform(0.1, 0.3, link.plan.operator.message_size)]))

    _, passed = training.follow(links, ask)
    assert [link.part for link in passed].count("residual") == 1
    return passed[-1]


def plan_of(problem: Problem, mu: float, **more: Any) -> Parameters:
    return replace(plan_parameters(problem.items, problem.features, mu, loss="squared"), **more)


@LATTICE
def test_the_mean_square_carries_the_noise_that_is_charged(lattice: bool) -> None:
    """Would catch: noise that is forgotten in part, or made for the whole budget and charged for its share."""
    rng = np.random.default_rng(3)
    problem = a_problem(rng.normal(size=(60, 3)), rng.uniform(-1, 1, size=60))
    plan = plan_of(problem, 3.0, residual_share=0.1)
    link = chained(problem, plan, lattice)
    cap = link.plan.facts.row_norm  # type: ignore[union-attr]
    assert cap is not None
    bound = link.plan.on(Problem.from_facts(link.plan.facts).with_rows(link.look(problem.rows)))  # type: ignore[arg-type]
    exact = mean_square(problem, lattice, link.look.__self__)  # type: ignore[attr-defined]
    drawn = np.array([bound.run(seed=seed).model[0] - exact for seed in range(500)])
    demanded = cap**2 / (60 * plan.mu * math.sqrt(0.1))
    for factor, passes in [(1.0, True), (0.5, False), (0.8, False)]:
        tail = float(stats.chi2.cdf(((factor * drawn / demanded) ** 2).sum(), 500))
        assert (2 * min(tail, 1 - tail) > ALARM) is passes


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_the_share_is_part_of_the_budget(adjacency: Adjacency) -> None:
    """Would catch: a share that is spent beside the budget, or for which nothing is bought."""
    bought = 0
    for items in (100, 3000, 10**5, 10**8):
        for epsilon in (0.1, 1.0, 8.0):
            plan = plan_parameters(items, 7, hp.Budget(epsilon, 1e-9), loss="squared", adjacency=adjacency)
            parts = [plan.target_mu, plan.mean_mu, plan.moment_mu, plan.length_mu, plan.descent_mu]
            parts += [plan.calibration_mu, plan.residual_mu]
            spent = sum((Fraction(part) ** 2 for part in parts), Fraction(0))
            assert spent <= Fraction(gdp_mu(epsilon, 1e-9)) ** 2 <= spent * (1 + Fraction(1, 10**8))
            assert plan.residual_share == 0 or 0.002 <= plan.residual_share <= 0.02
            bought += plan.residual_share > 0
    assert 4 <= bought < 12
    X = np.random.default_rng(4).normal(size=(3000, 3))
    model = hp.PrivateLinearRegression(3.0, 1e-6, 4.0, target_range=(-9, 9), adjacency=adjacency, random_state=0)
    model.fit(X, X.sum(axis=1))
    assert model.parameters_.residual_share > 0
    assert model.guarantee_.mu == pytest.approx(gdp_mu(3.0, 1e-6), rel=1e-8)
    assert "residuals" in str(model.parameters_)


@pytest.mark.parametrize("more", [{"loss": "logistic"}, {"penalty": "l2"}, {"penalty": "l1"}, {"effective": 5.0}])
def test_nothing_is_bought_where_there_are_no_intervals(more: Any) -> None:
    assert plan_parameters(10**6, 7, 1.0, **{"loss": "squared", **more}).residual_share == 0
    assert plan_parameters(10**6, 2000, 1.0, loss="squared").residual_share == 0
    assert plan_parameters(10**6, 7, 1.0, loss="squared").residual_share > 0


@LATTICE
def test_an_audit_sees_no_more_than_the_share(lattice: bool) -> None:
    """Two data sets as far apart as can be, told apart by the release; with a third of the noise it shows."""
    worlds = [a_problem(np.zeros((20, 3)), np.r_[0.15, np.full(18, 0.2), y]) for y in (0.15, 9.0)]
    plan = plan_of(worlds[0], 2.0, residual_share=0.25)
    link = chained(worlds[0], plan, lattice)
    residuals = Residuals(MODEL, 0.05, link.plan.facts.row_norm, True)  # type: ignore[union-attr, arg-type]
    exact = [mean_square(world, lattice, residuals) for world in worlds]
    drawn = []
    for side, world in enumerate(worlds):
        rows = residuals.look(world.rows)
        bound = link.plan.on(Problem.from_facts(link.plan.facts).with_rows(rows))  # type: ignore[arg-type]
        drawn.append(np.array([bound.run(seed=2 * seed + side).model[0] for seed in range(200)]) - exact[side])
    for factor, caught in [(1.0, False), (0.25, True)]:
        alarms, hits = (int((exact[side] + factor * drawn[side] > sum(exact) / 2).sum()) for side in (0, 1))
        least = float(stats.beta.ppf(ALARM / 2, hits, 201 - hits)) if hits else 0.0
        most = float(stats.beta.ppf(1 - ALARM / 2, alarms + 1, 200 - alarms)) if alarms < 200 else 1.0
        assert bool(stats.norm.ppf(least) - stats.norm.ppf(most) > plan.residual_mu) is caught
