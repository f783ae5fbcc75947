"""Training under a budget (docs/privacy.md, section 8): sensitivities, law of the noise, budget, and the whole fit.

Statistical tests have fixed seeds and call a correct program wrong with probability at most 1e-6 each.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from numpy.typing import NDArray
from scipy import special, stats

import hushpoint as hp
from hushpoint import noise as noise_room
from hushpoint._described import described
from hushpoint.estimators import base, planner, training
from hushpoint.estimators.calibration import Calibration
from hushpoint.estimators.metric import Metric, Moments, choose_metric
from hushpoint.estimators.planner import Parameters, plan_parameters
from hushpoint.estimators.training import Answer, Link
from hushpoint.losses import ClassWeighted, Logistic, Loss
from hushpoint.noise import Source
from hushpoint.operators.gradient import Gradient
from hushpoint.operators.moments import SecondMoments
from hushpoint.plan import Plan
from hushpoint.privacy import gdp_mu
from hushpoint.privacy.auditor import _lower, _upper
from hushpoint.privacy.guarantee import Adjacency
from hushpoint.problem import Problem
from hushpoint.rows import Mapped, Rows

Array = NDArray[np.float64]
ADJACENCIES: tuple[Adjacency, ...] = ("replace-one", "zero-out")
ALARM = 1e-6
NORM = 2.0  # not 1: a forgotten power of row_norm shows


# --- what both oracles share: crowds of neighbouring data sets


def some_rows(rng: np.random.Generator, count: int, width: int) -> Array:
    """Rows of every kind: ordinary, zero, tiny, far too long, along an axis, one repeated."""
    rows = rng.normal(size=(count, width)) * NORM
    kind = rng.integers(6, size=count)
    rows[kind == 1] = 0.0
    rows[kind == 2] *= 10.0 ** rng.uniform(-130, -3)
    rows[kind == 3] *= 10.0 ** rng.uniform(1, 150)
    rows[kind == 4] = 0.0
    rows[kind == 4, rng.integers(width)] = rng.choice([-1.0, 1.0]) * 1e3
    rows[kind == 5] = rows[0]
    return rows


def two_worlds(
    mine: Array, other: Array, rest: Array, groups: bool, loss: str | Loss = "squared", targets: Any = None
) -> tuple[Problem, Problem]:
    """Two problems that differ in their first item: a row, or a user with all rows given."""
    worlds = []
    for side, item in enumerate((mine, other)):
        X = np.vstack([item, rest])
        owners = np.r_[np.zeros(len(item)), 1 + np.arange(len(rest)) // 3] if groups else None
        if targets is None:
            y = np.r_[np.ones(len(item)), np.where(np.arange(len(rest)) % 2, 1.0, -1.0)]
        else:
            y = np.r_[np.full(len(item), targets[side]), np.where(np.arange(len(rest)) % 2, 1.0, -1.0)]
        features = scipy.sparse.csr_array(X) if len(rest) % 2 else X
        worlds.append(Problem(features, y, loss, row_norm=NORM, groups=owners))
    return worlds[0], worlds[1]


@contextmanager
def diagonal_metric(chosen: bool = True) -> Iterator[None]:
    """Plans have a diagonal metric, and so means, without a penalty: what wide data have."""
    with pytest.MonkeyPatch.context() as patch:
        if chosen:
            patch.setattr(planner, "_LARGEST_FULL", 0)
        yield


def plan_for(problem: Problem, intercept: bool, diagonal: bool, adjacency: Adjacency, **more: Any) -> Parameters:
    with diagonal_metric(diagonal):
        plan = plan_parameters(
            problem.items,
            problem.features,
            2.0,
            loss=problem.facts.loss,
            fit_intercept=intercept,
            adjacency=adjacency,
        )
    return replace(plan, **more)


# --- 1. how far one item moves the moments


def moments_moved(norm: float, constant: float, adjacency: Adjacency) -> float:
    """How far an item moves the sum of second moments, as docs/privacy.md has it."""
    if adjacency == "zero-out":
        return norm * math.sqrt(norm**2 + 2 * constant**2)
    return math.sqrt(2) * (norm**2 + constant**2)


def first_links(problem: Problem, plan: Parameters, intercept: bool, lattice: bool = False) -> list[Link]:
    """The links about rows before the descents: which they are, and what they ask for, depends on no answer."""
    links, found = training.chain(problem.facts, plan, fit_intercept=intercept, lattice=lattice), []
    link = next(links)
    while link.part != "descent":
        if link.part != "target":
            found.append(link)
        nothing = np.zeros(link.plan.operator.message_size)
        link = links.send(Answer(nothing, nothing))
    return found


def exact_answer(link: Link, problem: Problem) -> Array:
    """What a link of one step would release without noise."""
    operator, blocks = link.plan.operator, np.zeros((problem.items, 0))
    rows = operator.prepare(link.look(problem.rows))
    found = operator.move(rows, slice(None), blocks, np.zeros(operator.message_size), 1.0, None, None)[1]
    return operator.combine(np.zeros(operator.message_size), operator.cut(found), None, 1.0)


def exact_answers(problem: Problem, plan: Parameters, intercept: bool, lattice: bool = False) -> dict[str, Array]:
    return {link.part: exact_answer(link, problem) for link in first_links(problem, plan, intercept, lattice)}


def released_answers(problem: Problem, links: list[Link], runs: int) -> list[dict[str, Array]]:
    """What the first links release in so many runs, noise and all."""
    plans = {link.part: link.plan.on(problem) for link in links}
    return [
        {part: plan.run(seed=training._seed_of(seed, place)).model for place, (part, plan) in enumerate(plans.items())}
        for seed in range(runs)
    ]


def matrix_of(link: Link, released: Array) -> Array:
    operator = link.plan.operator
    assert isinstance(operator, SecondMoments)
    return operator.matrix(released)


def moved_by(
    worlds: tuple[Problem, Problem], intercept: bool, diagonal: bool, adjacency: Adjacency, lattice: bool = False
) -> dict[str, tuple[float, float]]:
    """Distance of the two worlds' sums, and what is claimed: of the means, the moments and the squared lengths."""
    plan = plan_for(worlds[0], intercept, diagonal, adjacency)
    constant = 0.0 if diagonal or not intercept else plan.constant * NORM
    links = first_links(worlds[0], plan, intercept, lattice)
    unit = worlds[0].facts.unit
    expected = {
        "means": NORM if adjacency == "zero-out" else 2 * NORM,
        "second moments": (29 if lattice else 1) * moments_moved(NORM, constant, adjacency),
        "length": NORM**2,
    }
    assert [link.part for link in links] == [*(["means"] if diagonal and intercept else []), "second moments", "length"]
    found = {}
    for link in links:
        claimed = link.plan.operator.certificate(1.0).shift(unit, adjacency)
        assert claimed == pytest.approx(expected[link.part], rel=1e-3 if lattice else 1e-12)
        # the claim is what the noise was scaled to
        assert link.plan.noise.std * link.mu == pytest.approx(claimed, rel=1e-5 if lattice else 1e-12)
        assert link.plan.noise.std * link.mu >= claimed
        one, other = (exact_answer(link, world) for world in worlds)
        found[link.part] = plan.items * float(np.linalg.norm(one - other)), float(claimed)
    return found


SHAPES = [
    (users, intercept, diagonal) for users in (False, True) for intercept in (False, True) for diagonal in (False, True)
]


LATTICE = pytest.mark.parametrize("lattice", [False, True], ids=["real numbers", "lattice"])


@LATTICE
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("users", "intercept", "diagonal"), SHAPES)
def test_no_item_moves_the_moments_further_than_claimed(
    users: bool, intercept: bool, diagonal: bool, adjacency: Adjacency, lattice: bool
) -> None:
    """Would catch: a constant left out of D, sums over a user's rows in place of means, rows that escape row_norm."""
    rng = np.random.default_rng(1)
    for trial in range(25):
        count = rng.integers(1, 6, size=2) if users else (1, 1)
        rest = some_rows(rng, 7 + trial % 2, 3)
        mine = some_rows(rng, count[0], 3)
        # For the moments, a row of zeros is what zero-out does.
        other = some_rows(rng, count[1], 3) if adjacency == "replace-one" else np.zeros((count[1], 3))
        found = moved_by(two_worlds(mine, other, rest, users), intercept, diagonal, adjacency, lattice)
        for moved, claimed in found.values():
            assert moved <= claimed * (1 + 1e-12)


@LATTICE
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("users", "intercept", "diagonal"), SHAPES)
def test_some_item_moves_the_moments_as_far_as_claimed(
    users: bool, intercept: bool, diagonal: bool, adjacency: Adjacency, lattice: bool
) -> None:
    """So that the test above can fail: a claim 1% smaller is refuted."""
    constant = 0.25 * NORM if intercept and not diagonal else 0.0
    mine = np.array([[NORM, 0.0, 0.0]])
    across = -(constant**2) / NORM  # then the rows with their constants are orthogonal
    other = np.array([[across, math.sqrt(NORM**2 - across**2), 0.0]])
    if adjacency == "zero-out":
        other = np.zeros((1, 3))
    opposite = other if adjacency == "zero-out" else -mine  # as far from a row as can be
    if users:
        mine, other, opposite = (np.repeat(row, k, axis=0) for row, k in ((mine, 4), (other, 2), (opposite, 2)))
    rest = np.random.default_rng(2).normal(size=(6, 3))
    found = moved_by(two_worlds(mine, other, rest, users), intercept, diagonal, adjacency, lattice)
    moved, claimed = found["second moments"]
    assert 0.99 * claimed <= moved <= claimed * (1 + 1e-12)
    if adjacency == "zero-out":
        moved, claimed = found["length"]
        assert moved >= 0.99 * claimed
    if diagonal and intercept:
        found = moved_by(two_worlds(mine, opposite, rest, users), intercept, diagonal, adjacency, lattice)
        moved, claimed = found["means"]
        assert 0.99 * claimed <= moved <= claimed * (1 + 1e-12)


@LATTICE
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("users", [False, True])
def test_no_target_moves_mean_and_mean_square_further_than_claimed(
    users: bool, adjacency: Adjacency, lattice: bool
) -> None:
    """Would catch: the constant left out of D, targets that escape [-1, 1], sums over a user's rows."""
    rng, rest, found = np.random.default_rng(18), some_rows(np.random.default_rng(19), 6, 3), []
    for targets in [(1.0, 0.0 if adjacency == "zero-out" else -1.0), (5.0, -7.0), *rng.uniform(-1, 1, size=(10, 2))]:
        pair = (targets[0], 0.0) if adjacency == "zero-out" else tuple(targets)  # a target of 0 is what zero-out does
        counts = rng.integers(1, 6, size=2) if users else (1, 1)
        worlds = two_worlds(some_rows(rng, counts[0], 3), some_rows(rng, counts[1], 3), rest, users, targets=pair)
        plan = plan_for(worlds[0], True, False, adjacency)
        link = next(training.chain(worlds[0].facts, plan, fit_intercept=True, lattice=lattice))
        assert link.part == "target"
        claimed = float(link.plan.operator.certificate(1.0).shift(worlds[0].facts.unit, adjacency))
        assert claimed == pytest.approx((29 if lattice else 1) * moments_moved(1.0, 0.7, adjacency), rel=1e-3)
        assert link.plan.noise.std * link.mu >= claimed
        one, other = (exact_answer(link, world) for world in worlds)
        found.append(plan.items * float(np.linalg.norm(one - other)) / claimed)
        assert found[-1] <= 1 + 1e-12
    assert max(found) > 0.92


def test_a_user_counts_once_however_many_rows() -> None:
    """A user's rows repeated ten times change neither means nor moments nor gradients."""
    rng = np.random.default_rng(3)
    mine, rest = some_rows(rng, 2, 3), some_rows(rng, 6, 3)
    worlds = two_worlds(mine, np.repeat(mine, 10, axis=0), rest, True, "logistic", targets=(1.0, 1.0))
    for diagonal in (False, True):
        for moved, _ in moved_by(worlds, True, diagonal, "replace-one").values():
            assert moved <= 1e-12
        one, other = (descent_on(world, True, diagonal, "replace-one") for world in worlds)
        assert total(one, np.ones(4)) == pytest.approx(total(other, np.ones(4)), abs=1e-12)


# --- 2. how far one item moves a sum of gradients


@dataclass(frozen=True)
class Run:
    """One plan of a fit as it ran: what it was for, on whose rows, its iterates from the start on, and its answer."""

    link: Link
    plan: Plan
    path: Array
    answer: Array


@dataclass
class Spy:
    """What one fit released, the metrics that were made of it, and the scale of every draw, by what it was for."""

    runs: list[Run] = field(default_factory=list)
    metrics: list[Metric] = field(default_factory=list)
    plans: list[Parameters] = field(default_factory=list)  # with which the metrics were made
    draws: list[tuple[str, float]] = field(default_factory=list)

    def forget(self) -> None:
        for record in (self.runs, self.metrics, self.plans, self.draws):
            record.clear()

    def of(self, part: str) -> list[Run]:
        return [run for run in self.runs if run.link.part == part]


@contextmanager
def spying(
    steps: int | None = None, noise: dict[str, float] | None = None, lattice: bool = False, **more: Any
) -> Iterator[Spy]:
    """Watch fits, in real numbers or on the lattice.

    ``steps`` shortens descents and calibrations; ``noise`` plants a bug: factors on the noise of some parts; the rest
    takes the place of numbers of the plan.
    """
    spy = Spy()
    choose, run, normals, whole = training.choose_metric, Plan.run, Source.normals, noise_room.rounded_normals
    planned, follow, calibrated, running = base.plan_parameters, training.follow, Calibration.of, list[Link]()

    def watched_choice(moments: Moments, plan: Parameters) -> Metric:
        found = choose(moments, plan)
        spy.plans.append(plan)
        spy.metrics.append(found if steps is None else replace(found, steps=steps))
        return spy.metrics[-1]

    def watched_follow(links: Any, ask: Callable[[int, Link], Answer]) -> Any:
        def watched_ask(place: int, link: Link) -> Answer:
            running[:] = [link]
            return ask(place, link)

        return follow(links, watched_ask)

    def watched_run(plan: Plan, **options: Any) -> Any:
        result = run(plan, **{**options, "history": "models"})
        path = np.vstack([np.zeros(len(result.model)), result.history["models"]])
        spy.runs.append(Run(running[0], plan, path, result.model))
        return result

    def watched_normals(source: Source, role: str, items: Any, step: int, size: int, scale: float = 1.0) -> Array:
        assert role == "sum"
        part = running[0].part
        spy.draws.append((part, scale))
        return (noise or {}).get(part, 1.0) * normals(source, role, items, step, size, scale)

    def watched_whole(source: Source, role: str, items: Any, step: int, size: int, scale: int) -> Any:
        assert role == "sum"
        part = running[0].part
        spy.draws.append((part, scale))
        drawn = (noise or {}).get(part, 1.0) * whole(source, role, items, step, size, scale)
        return np.rint(drawn).astype(np.int64)

    def train(*arguments: Any, **options: Any) -> Any:
        return training.train(*arguments, **{**options, "lattice": lattice})

    def changed_plan(*arguments: Any, **options: Any) -> Parameters:
        return replace(planned(*arguments, **options), **more)

    def short_calibration(*arguments: Any, **options: Any) -> Calibration:
        found = calibrated(*arguments, **options)
        return found if steps is None else replace(found, steps=steps)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "choose_metric", watched_choice)
        patch.setattr(training, "follow", watched_follow)
        patch.setattr(Calibration, "of", staticmethod(short_calibration))
        patch.setattr(Plan, "run", watched_run)
        patch.setattr(Source, "normals", watched_normals)
        patch.setattr(noise_room, "rounded_normals", watched_whole)
        patch.setattr(base, "plan_parameters", changed_plan)
        patch.setattr(base, "train", train)
        yield spy


def descent_on(problem: Problem, intercept: bool, diagonal: bool, adjacency: Adjacency) -> Plan:
    """The descent that ``train`` makes of a problem, in a metric that does not depend on the problem."""
    plan = plan_for(problem, intercept, diagonal, adjacency)
    rng = np.random.default_rng(plan.width)
    root = rng.normal(size=(plan.width, plan.width)) * np.geomspace(1, 0.01, plan.width)
    second = np.diag(root @ root.T) if diagonal else root @ root.T
    centre = 0.3 * rng.normal(size=plan.width - 1) if diagonal and intercept else None
    fixed = Moments(second, 1e-6, float(np.sum(root**2)), centre=centre)
    with spying(steps=2) as spy, pytest.MonkeyPatch.context() as patch:
        choose = training.choose_metric
        patch.setattr(training, "choose_metric", lambda moments, plan: choose(fixed, plan))
        patch.setattr(training, "believed_target", lambda *released: (0.0, 1.0))
        targets = [problem.rows.targets]
        training.train(problem, targets, plan, delta=1e-6, fit_intercept=intercept, seed=0, lattice=False)
    (descent,) = spy.of("descent")
    return descent.plan


def clip_of(descent: Plan) -> float:
    assert descent.facts is not None
    assert descent.facts.clip is not None
    return descent.facts.clip


def rows_of(descent: Plan) -> Rows:
    assert descent.problem is not None
    return descent.problem.rows


def total(descent: Plan, point: Array, without: int | None = None) -> Array:
    """The sum of gradients as the run computes it; ``without`` one item under zero-out."""
    counted = np.ones(descent.operator.blocks)
    if without is not None:
        counted[without] = 0.0
    operator, blocks = descent.operator, np.zeros((descent.operator.blocks, 0))
    chosen = slice(None) if operator.unit is None else np.flatnonzero(counted)  # whole numbers have no weights
    found = operator.move(operator.prepare(rows_of(descent)), chosen, blocks, point, 1.0, None, counted)[1]
    return found if operator.unit is None else operator.cut(found) * operator.unit


LOSSES: dict[str, Loss | str] = {
    "logistic": "logistic",
    "weighted": ClassWeighted(Logistic(), 0.1, 50.0),
    "squared": "squared",
    "hinge": "smoothed_hinge",
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("users", "intercept", "diagonal"), SHAPES)
def test_no_item_moves_a_sum_of_gradients_further_than_claimed(
    loss: str, users: bool, intercept: bool, diagonal: bool
) -> None:
    """Would catch: lengths taken before the metric, weights applied after the clip, a constant that is not counted."""
    rng = np.random.default_rng(4)
    for trial in range(4):
        count = rng.integers(1, 6, size=2) if users else (1, 1)
        worlds = two_worlds(
            some_rows(rng, count[0], 3),
            some_rows(rng, count[1], 3),
            some_rows(rng, 7 + trial % 2, 3),
            users,
            LOSSES[loss],
            targets=rng.choice([-1.0, 1.0], size=2),
        )
        one, other = (descent_on(world, intercept, diagonal, "replace-one") for world in worlds)
        alone = descent_on(worlds[0], intercept, diagonal, "zero-out")
        assert clip_of(one) == clip_of(other)
        for scale in (0.0, 0.1, 10.0, 1e6):
            point = scale * rng.normal(size=one.operator.message_size)
            assert np.linalg.norm(total(one, point) - total(other, point)) <= 2 * clip_of(one) * (1 + 1e-9)
            assert np.linalg.norm(total(alone, point) - total(alone, point, without=0)) <= clip_of(alone) * (1 + 1e-9)
        # and the noise was scaled to these lengths
        for descent, length in ((one, 2 * clip_of(one)), (alone, clip_of(alone))):
            plan = plan_for(worlds[0], intercept, diagonal, "zero-out" if descent is alone else "replace-one")
            assert descent.noise.std == pytest.approx(length * math.sqrt(descent.steps) / plan.descent_mu, rel=1e-12)


@pytest.mark.parametrize(("users", "intercept", "diagonal"), SHAPES)
def test_some_item_moves_a_sum_of_gradients_as_far_as_claimed(users: bool, intercept: bool, diagonal: bool) -> None:
    """So that the test above can fail: a long row with either label, where the weighted slope is beyond the limit."""
    row = np.repeat(np.array([[0.0, 0.0, 1e3]]), 4 if users else 1, axis=0)
    rest = np.random.default_rng(5).normal(size=(6, 3))
    worlds = two_worlds(row, row, rest, users, ClassWeighted(Logistic(), 50.0, 50.0), targets=(-1.0, 1.0))
    one, other = (descent_on(world, intercept, diagonal, "replace-one") for world in worlds)
    start = np.zeros(one.operator.message_size)
    assert np.linalg.norm(total(one, start) - total(other, start)) >= 0.99 * 2 * clip_of(one)
    assert np.linalg.norm(total(one, start) - total(one, start, without=0)) >= 0.99 * clip_of(one)


@pytest.mark.parametrize(("users", "intercept", "diagonal"), SHAPES)
def test_mapped_rows_do_what_a_dense_copy_would(users: bool, intercept: bool, diagonal: bool) -> None:
    """The gradient that runs, against one written down: rows times W, each slope cut at C over the row's length."""
    rng = np.random.default_rng(6)
    world, _ = two_worlds(*(some_rows(rng, count, 3) for count in (3 if users else 1, 2, 8)), users, "logistic")
    descent = descent_on(world, intercept, diagonal, "replace-one")
    rows = rows_of(descent)
    mapped = rows.features
    assert isinstance(mapped, Mapped)
    X = mapped.store[:]
    W = mapped.metric.matrix if mapped.metric.basis is not None else np.diag(mapped.metric.matrix)
    assert (mapped.metric.centre is not None) is (diagonal and intercept)
    if diagonal and intercept:
        X = X - mapped.metric.centre
    table = (np.column_stack([X, np.full(len(X), mapped.constant)]) if intercept else X) @ W
    np.testing.assert_allclose(mapped[:], table, rtol=1e-12, atol=1e-300)
    lengths = np.linalg.norm(table, axis=1)
    assert np.all(np.sqrt(rows.squared_norms) >= lengths * (1 - 1e-15))
    assert np.sqrt(rows.squared_norms) == pytest.approx(lengths, rel=1e-9)
    for scale in (0.0, 1.0, 100.0):
        point = scale * rng.normal(size=W.shape[0])
        slopes = Logistic().derivative(table @ point, rows.targets)
        with np.errstate(divide="ignore"):
            slopes = np.clip(slopes, -clip_of(descent) / lengths, clip_of(descent) / lengths)
        expected = table.T @ (slopes / np.repeat(rows.counts, rows.counts))
        assert total(descent, point) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def calibration_on(
    problem: Problem, intercept: bool, adjacency: Adjacency, lattice: bool, curved: bool
) -> tuple[Plan, Calibration]:
    """The calibration that ``train`` makes of a problem, for a model that does not depend on the problem.

    Where it is ``curved``, all of it drowns in the noise of the moments, and scores are cut further out.
    """
    plan = plan_for(problem, intercept, False, adjacency)
    model = np.random.default_rng(plan.width).normal(size=plan.width)
    moments = Moments(np.eye(plan.width), 0.5 if curved else 1e-6, float(plan.width))
    metric = Metric(np.eye(plan.width), np.ones(plan.width), np.full(plan.width, 0.1), 1.0, 1.0, 1, moments)
    calibration = Calibration.of(model, metric, plan.constant * NORM if intercept else 0.0, plan, curved=curved)
    assert calibration.cap > 2.3 if curved else calibration.cap == 2
    made = training._calibration(calibration, problem.facts, plan, 0.5, lattice)
    assert made.facts is not None
    rows = calibration.look(made.facts, problem.rows)
    return made.on(Problem.from_facts(made.facts).with_rows(rows)), calibration


@LATTICE
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("users", "intercept"), [(False, False), (False, True), (True, False), (True, True)])
def test_no_item_moves_a_calibration_further_than_claimed(
    loss: str, users: bool, intercept: bool, lattice: bool
) -> None:
    """Would catch: scores that are not cut, limits by the length of a row and not of its score, users that add up."""
    rng = np.random.default_rng(16)
    for trial in range(4):
        curved = trial % 2 == 1
        count = rng.integers(1, 6, size=2) if users else (1, 1)
        worlds = two_worlds(
            some_rows(rng, count[0], 3),
            some_rows(rng, count[1], 3),
            some_rows(rng, 7 + trial % 2, 3),
            users,
            LOSSES[loss],
            targets=rng.choice([-1.0, 1.0], size=2),
        )
        for adjacency in ADJACENCIES:
            (one, calibration), (other, _) = (
                calibration_on(world, intercept, adjacency, lattice, curved) for world in worlds
            )
            moved = (2 if adjacency == "replace-one" else 1) * min(calibration.clip, one.facts.gradient_bound)  # type: ignore[union-attr]
            claimed = one.operator.certificate(1.0).shift(worlds[0].facts.unit, adjacency)
            assert claimed == pytest.approx(moved, rel=1e-6)
            assert one.noise.std == pytest.approx(claimed * math.sqrt(one.steps) / 0.5, rel=1e-6)
            assert rows_of(one).store.squared_norms().max() <= (calibration.cap**2 + intercept) * (1 + 1e-15)
            for scale in (0.0, 0.1, 10.0, 1e6):
                point = scale * rng.normal(size=1 + intercept)
                if adjacency == "replace-one":
                    apart = total(one, point) - total(other, point)
                else:
                    apart = total(one, point) - total(one, point, without=0)
                assert np.linalg.norm(apart) <= claimed * (1 + 1e-12)


@LATTICE
@pytest.mark.parametrize(("users", "intercept"), [(False, False), (False, True), (True, False), (True, True)])
def test_some_item_moves_a_calibration_as_far_as_claimed(users: bool, intercept: bool, lattice: bool) -> None:
    """So that the test above can fail: a row with a large score and either label, its slope beyond the limit."""
    row = np.repeat(np.array([[0.0, 0.0, 1e3]]), 4 if users else 1, axis=0)
    rest = np.random.default_rng(5).normal(size=(6, 3))
    worlds = two_worlds(row, row, rest, users, ClassWeighted(Logistic(), 50.0, 50.0), targets=(-1.0, 1.0))
    start = np.zeros(1 + intercept)
    for curved in (False, True):
        (one, calibration), (other, _) = (
            calibration_on(world, intercept, "replace-one", lattice, curved) for world in worlds
        )
        assert np.linalg.norm(total(one, start) - total(other, start)) >= 0.99 * 2 * calibration.clip
        assert np.linalg.norm(total(one, start) - total(one, start, without=0)) >= 0.99 * calibration.clip


# --- 3. the law of the noise


def two_sided(sum_of_squares: float, count: int) -> float:
    """p-value of a sum of squares of standard normals."""
    tail = float(stats.chi2.cdf(sum_of_squares, count))
    return 2 * min(tail, 1 - tail)


def moment_noise_is_right(noise: Array, public: bool) -> bool:
    """``noise`` in units of its standard deviation: symmetric, variance 1 on the diagonal and 1/2 off it."""
    if not np.allclose(noise, noise.transpose(0, 2, 1), rtol=0, atol=1e-9):
        return False
    width = noise.shape[1]
    diagonal = noise[:, np.arange(width), np.arange(width)]
    if public:
        if np.any(np.abs(diagonal[:, -1]) > 1e-9):
            return False
        diagonal = diagonal[:, :-1]
    above = math.sqrt(2) * noise[:, *np.triu_indices(width, 1)]
    chances = [two_sided(float((part**2).sum()), part.size) for part in (diagonal, above)]
    everything = np.hstack([diagonal, above])
    return min(chances) > ALARM / 4 and uncorrelated(everything)


def uncorrelated(draws: Array) -> bool:
    """Whether columns of independent draws show no correlation, all pairs together (Fisher's transformation)."""
    runs, width = draws.shape
    between = np.arctanh(np.corrcoef(draws, rowvar=False)[np.triu_indices(width, 1)].clip(-1 + 1e-12, 1 - 1e-12))
    return bool(np.all(np.abs(between) * math.sqrt(runs - 3) < stats.norm.isf(ALARM / (8 * len(between)))))


@pytest.fixture(scope="module", params=[False, True], ids=["no intercept", "intercept"])
def moment_noises(request: pytest.FixtureRequest) -> tuple[Array, Array, bool]:
    """Noise of many full moments and mean squares, in units of what is claimed."""
    intercept = bool(request.param)
    X = np.random.default_rng(7).normal(size=(50, 3))
    problem = Problem(X, np.ones(50), row_norm=NORM)
    plan = plan_for(problem, intercept, False, "replace-one", mu=20.0)
    constant = plan.constant * NORM if intercept else 0.0
    links = first_links(problem, plan, intercept)
    exact = exact_answers(problem, plan, intercept)
    released = released_answers(problem, links, 3000)
    unit = moments_moved(NORM, constant, "replace-one") / (50 * plan.moment_mu)
    noise = np.stack([matrix_of(links[0], one["second moments"] - exact["second moments"]) for one in released]) / unit
    if intercept:  # what is put back is public
        noise[:, -1, -1] -= constant**2 / unit
    square = np.array([one["length"] - exact["length"] for one in released])[:, 0]
    return noise, square * 50 * plan.length_mu / NORM**2, intercept


PLANTED: dict[str, Callable[[Array], Array]] = {
    "halved": lambda noise: noise / 2,
    "a tenth less": lambda noise: 0.9 * noise,
    "one triangle only": lambda noise: np.triu(noise),
    "full variance off the diagonal": lambda noise: noise * (math.sqrt(2) - (math.sqrt(2) - 1) * np.eye(len(noise[0]))),
    "half the variance on the diagonal": lambda noise: noise * (1 - (1 - math.sqrt(0.5)) * np.eye(len(noise[0]))),
    "one number for a whole row": lambda noise: np.broadcast_to(noise[:, :1, :1], noise.shape),
}


def test_the_moments_carry_the_stated_noise(moment_noises: tuple[Array, Array, bool]) -> None:
    noise, square, intercept = moment_noises
    assert moment_noise_is_right(noise, intercept)
    assert two_sided(float((square**2).sum()), len(square)) > ALARM
    upper = noise[:, *np.triu_indices(noise.shape[1])]
    drawn = upper[:, :-1] if intercept else upper
    assert uncorrelated(np.column_stack([drawn, square]))


@pytest.mark.parametrize("bug", PLANTED)
def test_wrong_noise_on_the_moments_is_caught(bug: str, moment_noises: tuple[Array, Array, bool]) -> None:
    noise, _, intercept = moment_noises
    assert not moment_noise_is_right(PLANTED[bug](noise), intercept)


def test_the_diagonal_and_the_means_carry_the_stated_noise() -> None:
    """In the messages themselves: nothing of them is public. The constant is no part of them."""
    problem = Problem(np.random.default_rng(8).normal(size=(40, 3)), np.ones(40), row_norm=NORM)
    plan = plan_for(problem, True, True, "zero-out")
    links, exact = first_links(problem, plan, True), exact_answers(problem, plan, True)
    drawn = released_answers(problem, links, 2000)
    demanded = {"second moments": NORM**2 / plan.moment_mu, "means": NORM / plan.mean_mu}
    noises = []
    for part, unit in demanded.items():
        noise = np.stack([one[part] - exact[part] for one in drawn]) * 40 / unit
        assert noise.shape == (2000, 3)
        assert two_sided(float((noise**2).sum()), noise.size) > ALARM / 2
        assert two_sided(float((noise**2).sum()) / 1.2, noise.size) < ALARM / 2
        noises.append(noise)
    assert uncorrelated(np.hstack(noises))
    matrix = matrix_of(links[1], drawn[0]["second moments"])
    assert matrix[-1] == (plan.constant * NORM) ** 2


def test_without_an_intercept_no_entry_of_the_diagonal_is_public() -> None:
    """Would catch: the noise left out for a constant that is not there, so that the last feature's moment is exact."""
    problem = Problem(np.random.default_rng(8).normal(size=(40, 3)), np.ones(40), row_norm=NORM)
    plan = plan_for(problem, False, True, "zero-out")
    links, exact = first_links(problem, plan, False), exact_answers(problem, plan, False)["second moments"]
    drawn = [one["second moments"] for one in released_answers(problem, links[:1], 500)]
    noise = np.stack([matrix_of(links[0], one - exact) for one in drawn]) * 40 * plan.moment_mu / NORM**2
    assert noise.shape == (500, 3)
    for column in noise.T:
        assert two_sided(float((column**2).sum()), column.size) > ALARM / 3


PARTS = {  # columns of what noises_of_fits gives
    "means": slice(0, 2),
    "second moments": slice(2, 4),
    "length": slice(4, 5),
    "descent": slice(5, 23),
    "calibration": slice(23, 35),
}


def noises_of_fits(runs: int, noise: dict[str, float] | None = None) -> Array:
    """A row each of all noise that reached a fit of three classes: means, moments, mean square, and of each class a
    descent and a calibration of two steps.

    In units of what the guarantee claims, so that each entry should be a standard normal.
    """
    X, y = np.random.default_rng(9).normal(size=(60, 2)) + 0.5, np.arange(60) % 3
    classifier = hp.PrivateLogisticRegression(20.0, 1e-3, row_norm=NORM)
    problem = Problem(X, y, "squared", row_norm=NORM)
    found = []
    with diagonal_metric(), spying(steps=2, noise=noise) as spy:
        plan = plan_parameters(60, 2, hp.Budget(20.0, 1e-3), loss="logistic")
        exact = exact_answers(problem, plan, True)
        sizes = {"means": 2 * NORM, "second moments": math.sqrt(2) * NORM**2, "length": NORM**2}
        mus = {"means": plan.mean_mu, "second moments": plan.moment_mu, "length": plan.length_mu}
        for seed in range(runs):
            spy.forget()
            classifier.set_params(random_state=seed).fit(X, y)
            assert classifier.parameters_ == plan
            off = [(spy.of(part)[0].answer - exact[part]) * 60 * mus[part] / sizes[part] for part in sizes]
            steps = [descent_noise(run, plan.descent_mu, 3) for run in spy.of("descent")]
            steps += [descent_noise(run, plan.calibration_mu, 3) for run in spy.of("calibration")]
            found.append(np.concatenate([*off, *steps]))
    return np.array(found)


def descent_noise(run: Run, mu: float, models: int) -> Array:
    """The noise of every step of one descent, in units of what the budget demands."""
    demanded = 2 * clip_of(run.plan) * math.sqrt(len(run.path) - 1) * math.sqrt(models) / mu
    return step_noise(run).ravel() / demanded


def step_noise(run: Run) -> Array:
    """What was added to the sums of gradients, recovered from the iterates of a run without a penalty."""
    operator: Any = run.plan.operator
    moved = np.diff(run.path, axis=0) * operator.blocks / operator.step_size
    return -moved - np.array([total(run.plan, point) for point in run.path[:-1]])


def test_all_noise_of_a_fit_is_fresh_and_large_enough() -> None:
    """All releases, their steps, and the classes: no noise is used twice, and all is what the budget asks for."""
    draws = noises_of_fits(150)
    assert draws.shape == (150, PARTS["calibration"].stop)
    for part in PARTS.values():
        assert two_sided(float((draws[:, part] ** 2).sum()), draws[:, part].size) > ALARM / 6
    assert uncorrelated(draws)


def test_one_seed_for_all_classes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "_seed_of", lambda seed, place: seed)
    assert not uncorrelated(noises_of_fits(60))


@pytest.fixture(scope="module")
def halved_noises() -> Array:
    """Noise that is half of what it should be in all places, each of which is looked at alone."""
    return noises_of_fits(60, dict.fromkeys(PARTS, 0.5))


@pytest.mark.parametrize("part", PARTS)
def test_halved_noise_in_one_place_is_caught(part: str, halved_noises: Array) -> None:
    draws = halved_noises[:, PARTS[part]]
    assert two_sided(float((draws**2).sum()), draws.size) < ALARM


def test_fits_without_a_seed_share_no_noise() -> None:
    X, y = np.random.default_rng(10).normal(size=(30, 2)), np.arange(30) % 2
    classifier, another = (hp.PrivateLogisticRegression(1.0, 1e-3, NORM).fit(X, y) for _ in range(2))
    # The coefficients of so few people may be 0, where calibrating found nothing in them. An intercept never is.
    assert classifier.intercept_ != another.intercept_
    assert "operating system" in str(classifier.guarantee_)


# --- 4. the budget


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_the_parts_never_exceed_the_budget(adjacency: Adjacency) -> None:
    """Added up as exact fractions: would catch shares that do not sum to one, and rounding to the wrong side."""
    from fractions import Fraction

    for epsilon in (1e-3, 0.01, 0.1, 1.0, 8.0, 50.0):
        for delta in (1e-12, 1e-6, 1e-2):
            whole = Fraction(gdp_mu(epsilon, delta)) ** 2
            for items, penalty, diagonal in product((1, 30, 10**4, 10**10), (None, "l2", "l1"), (False, True)):
                with diagonal_metric(diagonal):
                    plan = plan_parameters(items, 7, hp.Budget(epsilon, delta), penalty=penalty, adjacency=adjacency)
                for classes in (1, 3, 10):
                    once = [plan.mean_mu, plan.moment_mu, plan.length_mu]
                    each = [plan.descent_mu / math.sqrt(classes), plan.calibration_mu / math.sqrt(classes)]
                    spent = sum((Fraction(part) ** 2 for part in once + each * classes), Fraction(0))
                    assert whole * (1 - Fraction(1, 10**8)) <= spent <= whole


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(
    ("epsilon", "classes", "diagonal", "penalty"),
    [(1e-3, 2, False, "l2"), (1.0, 10, True, "l1"), (50.0, 3, False, None), (1.0, 10, True, None)],
)
def test_what_was_drawn_is_what_is_reported(
    epsilon: float, classes: int, diagonal: bool, penalty: Any, adjacency: Adjacency
) -> None:
    """The budget read off the scales that the random source was asked for, and not off the plan."""
    items, delta = 60, 1e-4
    X, y = np.random.default_rng(11).normal(size=(items, 3)), np.arange(items) % classes
    classifier = hp.PrivateLogisticRegression(
        epsilon, delta, NORM, penalty=penalty, alpha=0.01 if penalty else "auto", adjacency=adjacency, random_state=0
    )
    with diagonal_metric(diagonal), spying() as spy:
        classifier.fit(X, y)
    constant = 0.0 if diagonal else 0.25 * NORM
    models, steps = (classes if classes > 2 else 1), spy.metrics[0].steps
    calibrations = 0 if penalty else models
    scales = {kind: [scale for name, scale in spy.draws if name == kind] for kind in {name for name, _ in spy.draws}}
    counted = {kind: len(drawn) for kind, drawn in scales.items()}
    expected = {"means": int(diagonal), "second moments": 1, "length": 1, "descent": steps * models}
    expected["calibration"] = 20 * calibrations
    assert counted == {kind: count for kind, count in expected.items() if count}
    assert (classifier.n_iter_, classifier.n_passes_) == (steps * models, len(spy.draws))
    twice = 2 if adjacency == "replace-one" else 1
    sizes = {
        "means": [twice * NORM],
        "second moments": [moments_moved(NORM, constant, adjacency)],
        "length": [NORM**2],
        "descent": np.repeat([twice * clip_of(run.plan) for run in spy.of("descent")], steps),
        "calibration": np.repeat([twice * clip_of(run.plan) for run in spy.of("calibration")], 20),
    }
    spent = np.concatenate([np.array(sizes[kind]) / drawn for kind, drawn in scales.items()])
    reported = classifier.guarantee_
    assert reported.mu is not None
    assert len(spy.of("descent")) == models
    assert len(spy.of("calibration")) == calibrations
    assert math.sqrt(math.fsum(spent**2)) == pytest.approx(reported.mu, rel=1e-12)
    assert gdp_mu(epsilon, delta) * (1 - 1e-8) <= reported.mu <= gdp_mu(epsilon, delta)
    assert reported.epsilon <= epsilon
    plan = classifier.parameters_
    assert plan is not None
    shares = {"descent": plan.descent_mu / math.sqrt(models), "calibration": plan.calibration_mu / math.sqrt(models)}
    for part, share in shares.items():
        for run in spy.of(part):
            stated = run.plan.guarantee(delta, view="iterates", adjacency=adjacency).mu
            assert stated == pytest.approx(share, rel=1e-12)


@pytest.mark.parametrize("diagonal", [False, True])
def test_nothing_but_public_facts_and_releases_decides_the_plans(diagonal: bool) -> None:
    """Data sets of one shape that have nothing else in common: one plan, and the same draws up to the descents.

    Sent the same answers, they have the same descents and calibrations too: as many steps, of one size, clip and noise.
    """
    rng = np.random.default_rng(12)
    seen = []
    tables = (rng.normal(size=(40, 3)), np.zeros((40, 3)), 1e120 * rng.normal(size=(40, 3)), np.eye(40)[:, :3])
    for X in tables:
        regressor = hp.PrivateLinearRegression(1.0, 1e-4, NORM, target_range=(-5.0, 5.0), random_state=0)
        with diagonal_metric(diagonal), spying() as spy:
            regressor.fit(X, 1e6 * X[:, 0].clip(-1, 1))
        public = [draw for draw in spy.draws if draw[0] not in ("descent", "calibration")]
        told = regressor.guarantee_.mu, regressor.guarantee_.epsilon, regressor.parameters_
        steps = len(spy.of("calibration")[0].path), len(spy.of("descent")[0].path) - spy.metrics[0].steps
        links = training.chain(Problem(X, X[:, 0], row_norm=NORM, clip=1.0).facts, told[2], fit_intercept=True)
        _, passed = training.follow(links, lambda place, link: Answer(*(2 * [some_answer(link)])))
        seen.append((public, told, steps, [described((link.plan, link.look, link.mu)) for link in passed]))
    assert all(one == seen[0] for one in seen[1:])


def some_answer(link: Link) -> Array:
    """A release that looks like one of data."""
    size = link.plan.operator.message_size
    return np.random.default_rng(size).uniform(0.1, 1.0, size)


def test_what_was_released_decides_the_number_of_steps() -> None:
    """Would catch: a descent of more steps than its noise is for, or of a number that the data decide.

    Features of one direction that moments this noisy cannot show: the released lengths ask for more and shorter steps.
    """
    X = np.outer(np.random.default_rng(17).choice([-1.0, 1.0], size=300), np.ones(20)) * NORM / math.sqrt(20)
    regressor = hp.PrivateLinearRegression(3.0, 1e-4, NORM, target_range=(-1.0, 1.0), random_state=0)
    with spying() as spy:
        regressor.fit(X, X[:, 0].clip(-1, 1))
    (run,) = spy.of("descent")
    plan = regressor.parameters_
    assert plan is not None
    assert plan.steps < run.plan.steps == spy.metrics[0].steps == len(run.path) - 1 == regressor.n_iter_ <= 200
    again = choose_metric(spy.metrics[0].moments, spy.plans[0])
    assert (again.steps, again.time) == (spy.metrics[0].steps, spy.metrics[0].time)
    assert run.plan.noise.std == pytest.approx(
        2 * clip_of(run.plan) * math.sqrt(again.steps) / plan.descent_mu, rel=1e-12
    )
    assert f"{again.steps} noisy steps" in str(regressor.guarantee_)


# --- 5. an audit of the whole fit


Pair = tuple[tuple[Array, float], tuple[Array, float]]
CROWD = np.random.default_rng(13).normal(size=(24, 2)) * 0.2 * NORM
FLIPPED: Pair = ((np.array([NORM, 0.0]), 0.0), (np.array([NORM, 0.0]), 1.0))  # the gradients as far apart as can be
TURNED: Pair = ((np.array([NORM, 0.0]), 0.0), (np.array([0.0, NORM]), 0.0))  # the moments as far apart as can be
OPPOSITE: Pair = ((np.array([NORM, 0.0]), 0.0), (np.array([-NORM, 0.0]), 0.0))  # the means as far apart as can be


def data_of(one: tuple[Array, float], labels: Array) -> tuple[Array, Array]:
    """A world: the crowd, and the item that the worlds differ in, last."""
    row, label = one
    return np.vstack([CROWD, row]), np.append(labels, label)


def watched_fits(
    estimator: Any,
    world: tuple[Array, Array],
    side: int,
    runs: int,
    steps: int = 2,
    diagonal: bool = False,
    **spied: Any,
) -> list[Spy]:
    """What so many fits of one world released."""
    found = []
    for run in range(runs):
        with diagonal_metric(diagonal), spying(steps, **spied) as spy:
            estimator.set_params(random_state=2 * run + side).fit(*world)
        found.append(spy)
    return found


def audit_fit(
    estimator: Any, pair: Pair, labels: Array, runs: int, first: list[Spy] | None = None, **options: Any
) -> tuple[float, float]:
    """Lower bound on the true mu, and the budget's mu, from tests that see every release.

    The scores are the likelihood ratios of the two worlds given the releases before the descents, the calibrations
    alone, all before these, and all: no score tells the worlds apart better. Their rates at 0 are compared with the
    trade-off curve of the budget. ``first`` are fits of the first world, where several pairs share it.
    """
    worlds = [data_of(one, labels) for one in pair]
    problems = [Problem(X, targets_of(estimator, y), row_norm=NORM) for X, y in worlds]
    fits = [
        watched_fits(estimator, worlds[0], 0, runs, **options) if first is None else first,
        watched_fits(estimator, worlds[1], 1, runs, **options),
    ]
    assert [len(released) for released in fits] == [runs, runs]
    early = [one.link for one in fits[0][0].runs if one.link.model is None]
    exact = [{link.part: exact_answer(link, problem) for link in early} for problem in problems]
    scores = [
        [likelihood_ratios(spy, exact, worlds, side, estimator) for spy in released]
        for side, released in enumerate(fits)
    ]
    budget = gdp_mu(estimator.epsilon, estimator.delta)
    above = [(np.array(mine) > 0).sum(axis=0) for mine in scores]
    share = ALARM / 16  # four scores, two rates, and either world as the one to be detected
    found = special.ndtri(_lower(above[1], runs, share)) - special.ndtri(_upper(above[0], runs, share))
    turned = special.ndtri(_lower(runs - above[0], runs, share)) - special.ndtri(_upper(runs - above[1], runs, share))
    return float(max(found.max(), turned.max(), 0.0)), budget


def likelihood_ratios(
    spy: Spy, exact: list[dict[str, Array]], worlds: list[tuple[Array, Array]], side: int, estimator: Any
) -> Array:
    """Log of the densities' ratio, second world over first, at the noise that the budget demands.

    ``side`` is the world that the releases are from.
    """
    constant = estimator.parameters_.constant * NORM * estimator.fit_intercept
    early = late = last = 0.0
    for run in spy.runs:
        part, operator = run.link.part, run.plan.operator
        if run.link.model is None:
            moved, middle = exact[1][part] - exact[0][part], (exact[1][part] + exact[0][part]) / 2
            early += float((run.answer - middle) @ moved) * operator.blocks**2 / run.plan.noise.std**2
            continue
        images = partial(image_in_metric, spy.metrics[0], constant)
        if part == "calibration":
            images = partial(image_in_scores, run.link.look.func.__self__)  # type: ignore[attr-defined]
        targets = [target_of(estimator, y, run.link.model) - run.link.offset for _, y in worlds]
        gradients = [last_gradient(run, images(X[-1]), target) for (X, _), target in zip(worlds, targets, strict=True)]
        moved = gradients[1] - gradients[0]
        # The sum of all others' gradients is the same in both worlds; what stands out is the last item's.
        seen = step_noise(run) + gradients[side] - (gradients[0] + gradients[1]) / 2
        ratio = float((seen * moved).sum()) / run.plan.noise.std**2
        late, last = (late + ratio, last) if part == "descent" else (late, last + ratio)
    return np.array([early, early + late, last, early + late + last])


def targets_of(estimator: Any, y: Array) -> Array:
    """The targets of a regression, in [-1, 1]; of classes no release before the descents knows anything."""
    if not isinstance(estimator, hp.PrivateLinearRegression):
        return np.ones(len(y))
    low, high = estimator.target_range or (-1.0, 1.0)
    return 2 * (y - low) / (high - low) - 1


def target_of(estimator: Any, y: Array, index: int) -> float:
    """The last item's target as the descents see it, but for an offset."""
    if isinstance(estimator, hp.PrivateLinearRegression):
        return float(targets_of(estimator, y)[-1])
    ones = estimator.classes_ if len(estimator.classes_) > 2 else estimator.classes_[1:]
    return 1.0 if y[-1] == ones[index] else -1.0


def image_in_metric(metric: Metric, constant: float, row: Array) -> Array:
    """A row as a descent sees it, written down independently."""
    centred = row if metric.centre is None else row - metric.centre
    return metric.apply(np.append(centred, constant) if constant else centred)


def image_in_scores(calibration: Calibration, row: Array) -> Array:
    """A row as a calibration sees it, written down independently."""
    score = row @ calibration.model[: len(row)] + (calibration.model[-1] if calibration.intercept else 0.0)
    cut = min(max((score - calibration.mean) / calibration.deviation, -calibration.cap), calibration.cap)
    return np.array([cut, 1.0] if calibration.intercept else [cut])


def last_gradient(run: Run, image: Array, target: float) -> Array:
    """The clipped gradient of one row at every point of a run."""
    points, limit = run.path[:-1], clip_of(run.plan) / np.linalg.norm(image)
    slopes = rows_of(run.plan).loss.derivative(points @ image, np.full(len(points), target)).clip(-limit, limit)
    return np.outer(slopes, image)


EPSILON, DELTA = 3.0, 1e-3  # mu is about 1
TWO = (np.arange(24) % 2).astype(float)
DECLARED = {"epsilon": EPSILON, "delta": DELTA, "row_norm": NORM}


@pytest.fixture(
    scope="module",
    params=product([False, True], [False, True]),
    ids=lambda kind: f"{'diagonal' if kind[0] else 'full'} metric, {'lattice' if kind[1] else 'real numbers'}",
)
def first_world(request: pytest.FixtureRequest) -> tuple[list[Spy], dict[str, bool]]:
    """Fits of the world that all pairs begin with, and how they were made."""
    options = dict(zip(("diagonal", "lattice"), request.param, strict=True))
    return watched_fits(hp.PrivateLogisticRegression(**DECLARED), data_of(FLIPPED[0], TWO), 0, 120, **options), options


@pytest.mark.parametrize("pair", [FLIPPED, TURNED, OPPOSITE], ids=["label flipped", "row turned", "opposite row"])
def test_logistic_regression_keeps_its_promise(pair: Pair, first_world: tuple[list[Spy], dict[str, bool]]) -> None:
    first, options = first_world
    assert all(np.array_equal(one, other) for one, other in zip(pair[0], FLIPPED[0], strict=True))
    found, budget = audit_fit(hp.PrivateLogisticRegression(**DECLARED), pair, TWO, 120, first, **options)
    assert found <= budget


@LATTICE
def test_linear_regression_keeps_its_promise(lattice: bool) -> None:
    (first, _), (second, _) = FLIPPED
    regressor = hp.PrivateLinearRegression(**DECLARED, target_range=(-1.0, 1.0))
    found, budget = audit_fit(regressor, ((first, -1.0), (second, 1.0)), TWO - 0.5, 120, lattice=lattice)
    assert found <= budget


# What these release without noise is all that differs before the descents: every run tells the worlds apart, whatever
# its seed. Runs that are all right show 2 * ndtri(share ** (1 / runs)): 1.4 after 60, where the budget is 0.96.
CERTAIN = {"runs": 60}


@pytest.mark.parametrize(
    ("estimator", "pair", "noise", "options"),
    [
        (hp.PrivateLogisticRegression(**DECLARED), FLIPPED, {"descent": 0.25}, {}),
        (hp.PrivateLinearRegression(**DECLARED, target_range=(0.0, 1.0)), FLIPPED, {"descent": 0.12}, {}),
        (hp.PrivateLinearRegression(**DECLARED, target_range=(0.0, 1.0)), FLIPPED, {"target": 0.0}, CERTAIN),
        (hp.PrivateLogisticRegression(**DECLARED), TURNED, {"second moments": 0.0}, CERTAIN),
        (hp.PrivateLogisticRegression(**DECLARED), OPPOSITE, {"means": 0.0}, {**CERTAIN, "diagonal": True}),
        (
            hp.PrivateLinearSVC(**DECLARED, fit_intercept=False),
            OPPOSITE,
            {"calibration": 0.2},
            {"steps": 1, "calibration_share": 0.8},
        ),
    ],
    ids=[
        "logistic, a quarter of the noise on gradients",
        "linear, an eighth of it",
        "target without noise",
        "moments without noise",
        "means without noise",
        "a fifth of the noise on the calibration",
    ],
)
@LATTICE
def test_the_audit_catches_missing_noise(
    estimator: Any, pair: Pair, noise: dict[str, float], options: Any, lattice: bool
) -> None:
    found, budget = audit_fit(estimator, pair, TWO, **{"runs": 100, **options}, noise=noise, lattice=lattice)
    assert found > budget


@pytest.mark.parametrize("part", ["descent", "calibration"])
def test_the_audit_catches_a_budget_that_is_not_split(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an intercept the opposite row turns round the gradients of all ten classes; each spends everything."""
    make = training._priced
    calibration = part == "calibration"

    def unsplit(operator: Any, facts: Any, mu: float, *given: Any) -> Plan:
        meant = isinstance(operator, Gradient) and (facts.row_norm is not None) is calibration
        return make(operator, facts, math.sqrt(10) * mu if meant else mu, *given)

    monkeypatch.setattr(training, "_priced", unsplit)
    labels = (np.arange(24) % 10).astype(float)
    several = hp.PrivateLinearSVC(**DECLARED, fit_intercept=False)  # its slopes at 0 are beyond every limit
    options = {"calibration_share": 0.9} if calibration else {}
    found, budget = audit_fit(several, OPPOSITE, labels, 120, steps=1, **options)
    assert found > budget


# --- 6. facts that train must not take on trust


def small_problem(**options: Any) -> Problem:
    rng = np.random.default_rng(14)
    return Problem(
        rng.normal(size=(30, 2)), np.where(rng.random(30) < 0.5, 1.0, -1.0), "logistic", None, NORM, **options
    )


def test_train_refuses_items_of_unequal_weight() -> None:
    problem = small_problem(groups=np.minimum(np.arange(30), 4), weights="rows")
    plan = plan_for(problem, True, False, "replace-one")
    with pytest.raises(ValueError, match="weights"):
        training.train(problem, [problem.rows.targets], plan, delta=1e-6, fit_intercept=True, seed=0)


def test_train_refuses_a_plan_for_another_number_of_items() -> None:
    problem = small_problem()
    plan = replace(plan_for(problem, True, False, "replace-one"), items=3000)
    with pytest.raises(ValueError, match="items"):
        training.train(problem, [problem.rows.targets], plan, delta=1e-6, fit_intercept=True, seed=0)


@pytest.mark.parametrize("size", [1e-90, 1e90])
def test_the_sensitivity_scales_with_the_rows(size: float) -> None:
    """A sensitivity that underflows to 0 is a release without noise."""
    facts = Problem.declared(30, 2, "logistic", row_norm=size).facts
    certificate = SecondMoments(facts, 0.25 * size).certificate(1.0)
    for adjacency in ADJACENCIES:
        expected = size * moments_moved(1.0, 0.25, adjacency) * size
        assert certificate.shift("record", adjacency) == pytest.approx(expected, rel=1e-12, abs=0)


@pytest.mark.parametrize("where", ["row", "target"])
def test_no_warning_tells_of_one_record(where: str) -> None:
    X, y = np.random.default_rng(15).normal(size=(30, 2)), np.linspace(0, 1, 30)
    (X[0] if where == "row" else y[:1])[:] = 1.7e308
    regressor = hp.PrivateLinearRegression(1.0, 1e-3, NORM, target_range=(0.0, 0.1), random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        regressor.fit(X, y)
