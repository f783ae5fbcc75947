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
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from numpy.typing import NDArray
from scipy import special, stats

import hushpoint as hp
from hushpoint import noise as noise_room
from hushpoint.estimators import base, training
from hushpoint.estimators.metric import Metric, Moments
from hushpoint.estimators.planner import Parameters, plan_parameters
from hushpoint.estimators.training import Answer
from hushpoint.losses import ClassWeighted, Logistic, Loss
from hushpoint.noise import Source
from hushpoint.operators.gradient import Gradient
from hushpoint.operators.lattice_gradient import LatticeGradient
from hushpoint.operators.moments import MeanSquare, SecondMoments
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
            y = np.where(np.arange(len(X)) % 2, 1.0, -1.0)
        else:
            y = np.r_[np.full(len(item), targets[side]), np.where(np.arange(len(rest)) % 2, 1.0, -1.0)]
        features = scipy.sparse.csr_array(X) if len(rest) % 2 else X
        worlds.append(Problem(features, y, loss, row_norm=NORM, groups=owners))
    return worlds[0], worlds[1]


def plan_for(problem: Problem, intercept: bool, diagonal: bool, adjacency: Adjacency, **more: Any) -> Parameters:
    plan = plan_parameters(
        problem.items,
        problem.features,
        2.0,
        loss=problem.facts.loss,
        penalty="l1" if diagonal else None,
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


def released_moments(problem: Problem, plan: Parameters, constant: float, seed: int, noise: float = 1.0) -> Moments:
    """What a training reads of its first two releases; ``noise`` is a factor on theirs."""
    seen = []

    def choose(moments: Moments, plan: Parameters) -> Metric:
        seen.append(moments)
        return Metric(None, np.ones(plan.width), 1.0, 1.0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "choose_metric", choose)
        links = training.chain(problem.facts, plan, fit_intercept=constant > 0, lattice=False)
        link = next(links)
        for place in range(2):
            noisy = replace(link.plan, noise=replace(link.plan.noise, std=noise * link.plan.noise.std))
            result = noisy.on(problem).run(seed=training._seed_of(seed, place))
            link = links.send(Answer(result.model, result.model))
    return seen[0]


def exact_moments(problem: Problem, plan: Parameters, constant: float) -> Moments:
    return released_moments(problem, plan, constant, 0, noise=0.0)


def moved_by(
    worlds: tuple[Problem, Problem], intercept: bool, diagonal: bool, adjacency: Adjacency
) -> tuple[float, ...]:
    """Distance of the two worlds' sums, and what is claimed: of the moments, and of the squared lengths."""
    plan = plan_for(worlds[0], intercept, diagonal, adjacency)
    constant = plan.constant * NORM if intercept else 0.0
    one, other = (exact_moments(world, plan, constant) for world in worlds)
    facts = worlds[0].facts
    claimed = SecondMoments(facts, constant, diagonal).certificate(1.0).shift(facts.unit, adjacency)
    assert claimed == pytest.approx(moments_moved(NORM, 0.0 if diagonal else constant, adjacency), rel=1e-12)
    assert MeanSquare(facts).certificate(1.0).shift(facts.unit, adjacency) == NORM**2
    # the claim is what the noise was scaled to
    assert one.noise_std * plan.items * plan.moment_mu == pytest.approx(claimed, rel=1e-12)
    moments = plan.items * float(np.linalg.norm(one.matrix - other.matrix))
    return moments, claimed, plan.items * abs(one.mean_square - other.mean_square), NORM**2


SHAPES = [
    (users, intercept, diagonal) for users in (False, True) for intercept in (False, True) for diagonal in (False, True)
]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("users", "intercept", "diagonal"), SHAPES)
def test_no_item_moves_the_moments_further_than_claimed(
    users: bool, intercept: bool, diagonal: bool, adjacency: Adjacency
) -> None:
    """Would catch: a constant left out of D, sums over a user's rows in place of means, rows that escape row_norm."""
    rng = np.random.default_rng(1)
    for trial in range(25):
        count = rng.integers(1, 6, size=2) if users else (1, 1)
        rest = some_rows(rng, 7 + trial % 2, 3)
        mine = some_rows(rng, count[0], 3)
        # For the moments, a row of zeros is what zero-out does.
        other = some_rows(rng, count[1], 3) if adjacency == "replace-one" else np.zeros((count[1], 3))
        moments, claimed, squares, largest = moved_by(
            two_worlds(mine, other, rest, users), intercept, diagonal, adjacency
        )
        assert moments <= claimed * (1 + 1e-12)
        assert squares <= largest * (1 + 1e-12)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("users", "intercept", "diagonal"), SHAPES)
def test_some_item_moves_the_moments_as_far_as_claimed(
    users: bool, intercept: bool, diagonal: bool, adjacency: Adjacency
) -> None:
    """So that the test above can fail: a claim 1% smaller is refuted."""
    constant = 0.25 * NORM if intercept and not diagonal else 0.0
    mine = np.array([[NORM, 0.0, 0.0]])
    across = -(constant**2) / NORM  # then the rows with their constants are orthogonal
    other = np.array([[across, math.sqrt(NORM**2 - across**2), 0.0]])
    if adjacency == "zero-out":
        other = np.zeros((1, 3))
    if users:
        mine, other = np.repeat(mine, 3, axis=0), np.repeat(other, 2, axis=0)
    rest = np.random.default_rng(2).normal(size=(6, 3))
    moments, claimed, squares, largest = moved_by(two_worlds(mine, other, rest, users), intercept, diagonal, adjacency)
    assert 0.99 * claimed <= moments <= claimed * (1 + 1e-12)
    if adjacency == "zero-out":
        assert squares >= 0.99 * largest


def test_a_user_counts_once_however_many_rows() -> None:
    """A user's rows repeated ten times change neither moments nor gradients."""
    rng = np.random.default_rng(3)
    mine, rest = some_rows(rng, 2, 3), some_rows(rng, 6, 3)
    worlds = two_worlds(mine, np.repeat(mine, 10, axis=0), rest, True, "logistic", targets=(1.0, 1.0))
    for diagonal in (False, True):
        moments, _, squares, _ = moved_by(worlds, True, diagonal, "replace-one")
        assert moments <= 1e-12
        assert squares <= 1e-12
        one, other = (descent_on(world, True, diagonal, "replace-one") for world in worlds)
        assert total(one, np.ones(4)) == pytest.approx(total(other, np.ones(4)), abs=1e-12)


# --- 2. how far one item moves a sum of gradients


@dataclass
class Spy:
    """What one fit released on the way: moments, metric, the descents with their iterates, and every draw's scale.

    Draws go by the name of the operator that they are for.
    """

    moments: list[Moments] = field(default_factory=list)
    metrics: list[Metric] = field(default_factory=list)
    descents: list[Plan] = field(default_factory=list)
    paths: list[Array] = field(default_factory=list)
    draws: list[tuple[str, float]] = field(default_factory=list)

    def forget(self) -> None:
        for record in (self.moments, self.metrics, self.descents, self.paths, self.draws):
            record.clear()


@contextmanager
def spying(steps: int | None = None, noise: dict[str, float] | None = None, lattice: bool = False) -> Iterator[Spy]:
    """Watch fits, in real numbers or on the lattice.

    ``steps`` shortens them; ``noise`` plants a bug: factors on the noise of some operators.
    """
    spy = Spy()
    choose, run, normals, whole = training.choose_metric, Plan.run, Source.normals, noise_room.rounded_normals
    planned, running = base.plan_parameters, [""]

    def watched_choice(moments: Moments, plan: Parameters) -> Metric:
        spy.moments.append(moments)
        spy.metrics.append(choose(moments, plan))
        return spy.metrics[-1]

    def watched_run(plan: Plan, **options: Any) -> Any:
        running[0] = plan.operator.name.removesuffix(" on a lattice")
        result = run(plan, **{**options, "history": "models"})
        if isinstance(plan.operator, (Gradient, LatticeGradient)):
            spy.descents.append(plan)
            spy.paths.append(np.vstack([np.zeros(len(result.model)), result.history["models"]]))
        return result

    def watched_normals(source: Source, role: str, items: Any, step: int, size: int, scale: float = 1.0) -> Array:
        assert role == "sum"
        spy.draws.append((running[0], scale))
        return (noise or {}).get(running[0], 1.0) * normals(source, role, items, step, size, scale)

    def watched_whole(source: Source, role: str, items: Any, step: int, size: int, scale: int) -> Any:
        assert role == "sum"
        spy.draws.append((running[0], scale))
        drawn = (noise or {}).get(running[0], 1.0) * whole(source, role, items, step, size, scale)
        return np.rint(drawn).astype(np.int64)

    def train(*arguments: Any, **options: Any) -> Any:
        return training.train(*arguments, **{**options, "lattice": lattice})

    def short_plan(*arguments: Any, **options: Any) -> Parameters:
        plan = planned(*arguments, **options)
        return plan if steps is None else replace(plan, steps=steps)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "choose_metric", watched_choice)
        patch.setattr(Plan, "run", watched_run)
        patch.setattr(Source, "normals", watched_normals)
        patch.setattr(noise_room, "rounded_normals", watched_whole)
        patch.setattr(base, "plan_parameters", short_plan)
        patch.setattr(base, "train", train)
        yield spy


def descent_on(problem: Problem, intercept: bool, diagonal: bool, adjacency: Adjacency) -> Plan:
    """The descent that ``train`` makes of a problem, in a metric that does not depend on the problem."""
    plan = plan_for(problem, intercept, diagonal, adjacency, steps=2)
    rng = np.random.default_rng(plan.width)
    root = rng.normal(size=(plan.width, plan.width)) * np.geomspace(1, 0.01, plan.width)
    second = np.diag(root @ root.T) if diagonal else root @ root.T
    fixed = Moments(second, 1e-6, float(np.sum(root**2)))
    with spying() as spy, pytest.MonkeyPatch.context() as patch:
        choose = training.choose_metric
        patch.setattr(training, "choose_metric", lambda moments, plan: choose(fixed, plan))
        targets = [problem.rows.targets]
        training.train(problem, targets, plan, delta=1e-6, fit_intercept=intercept, seed=0, lattice=False)
    return spy.descents[0]


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
    found = operator.move(operator.prepare(rows_of(descent)), slice(None), blocks, point, 1.0, None, counted)[1]
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
    table = (np.column_stack([X, np.full(len(X), mapped.constant)]) if intercept else X) @ W
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
    exact = exact_moments(problem, plan, constant)
    released = [released_moments(problem, plan, constant, seed) for seed in range(3000)]
    unit = moments_moved(NORM, constant, "replace-one") / (50 * plan.moment_mu)
    noise = (np.stack([moments.matrix for moments in released]) - exact.matrix) / unit
    square = np.array([moments.mean_square for moments in released]) - exact.mean_square
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


def test_the_diagonal_carries_the_stated_noise() -> None:
    problem = Problem(np.random.default_rng(8).normal(size=(40, 3)), np.ones(40), row_norm=NORM)
    plan = plan_for(problem, True, True, "zero-out")
    exact = exact_moments(problem, plan, 0.5)
    noise = np.stack([released_moments(problem, plan, 0.5, seed).matrix for seed in range(2000)])
    noise = (noise - exact.matrix) * 40 * plan.moment_mu / NORM**2
    assert np.all(noise[:, -1] == 0)  # the constant is public
    assert two_sided(float((noise[:, :-1] ** 2).sum()), noise[:, :-1].size) > ALARM / 2
    assert two_sided(float((noise[:, :-1] ** 2).sum()) / 1.2, noise[:, :-1].size) < ALARM / 2
    assert uncorrelated(noise[:, :-1])


def test_without_an_intercept_no_entry_of_the_diagonal_is_public() -> None:
    """Would catch: the noise left out for a constant that is not there, so that the last feature's moment is exact."""
    problem = Problem(np.random.default_rng(8).normal(size=(40, 3)), np.ones(40), row_norm=NORM)
    plan = plan_for(problem, False, True, "zero-out")
    exact = exact_moments(problem, plan, 0.0)
    drawn = [released_moments(problem, plan, 0.0, seed) for seed in range(500)]
    noise = np.stack([moments.matrix - exact.matrix for moments in drawn]) * 40 * plan.moment_mu / NORM**2
    for column in noise.T:
        assert two_sided(float((column**2).sum()), column.size) > ALARM / 3


def noises_of_fits(runs: int, noise: dict[str, float] | None = None) -> Array:
    """A row each of all noise that reached a fit of three classes: moments, mean square, three descents of two steps.

    In units of what the guarantee claims, so that each entry should be a standard normal.
    """
    X, y = np.random.default_rng(9).normal(size=(60, 2)), np.arange(60) % 3
    classifier = hp.PrivateLogisticRegression(20.0, 1e-3, row_norm=NORM, fit_intercept=False)
    problem = Problem(X, y, "squared", row_norm=NORM)
    plan = plan_parameters(60, 2, hp.Budget(20.0, 1e-3), loss="logistic", fit_intercept=False)
    exact = exact_moments(problem, plan, 0.0)
    found = []
    with spying(steps=2, noise=noise) as spy:
        for seed in range(runs):
            spy.forget()
            classifier.set_params(random_state=seed).fit(X, y)
            assert classifier.parameters_ == replace(plan, steps=2)
            unit = math.sqrt(2) * NORM**2 / (60 * plan.moment_mu)
            off = ((spy.moments[0].matrix - exact.matrix) / unit)[np.triu_indices(2)] * [1, math.sqrt(2), 1]
            square = (spy.moments[0].mean_square - exact.mean_square) * 60 * plan.length_mu / NORM**2
            found.append(np.concatenate([off, [square], *(descent_noise(spy, k, plan, 3) for k in range(3))]))
    return np.array(found)


def descent_noise(spy: Spy, index: int, plan: Parameters, models: int) -> Array:
    """The noise of every step of one descent, in units of what the budget demands."""
    descent, path = spy.descents[index], spy.paths[index]
    demanded = 2 * clip_of(descent) * math.sqrt(len(path) - 1) * math.sqrt(models) / plan.descent_mu
    return step_noise(descent, path).ravel() / demanded


def step_noise(descent: Plan, path: Array) -> Array:
    """What was added to the sums of gradients, recovered from the iterates of a run without a penalty."""
    moved = np.diff(path, axis=0) * descent.operator.blocks / descent.operator.step_size  # type: ignore[attr-defined]
    return -moved - np.array([total(descent, point) for point in path[:-1]])


def test_all_noise_of_a_fit_is_fresh_and_large_enough() -> None:
    """Moments, mean square, the steps, and the classes: no noise is used twice, and all is what the budget asks for."""
    draws = noises_of_fits(150)
    assert draws.shape == (150, 4 + 3 * 2 * 2)
    for part in (slice(0, 3), slice(3, 4), slice(4, None)):
        assert two_sided(float((draws[:, part] ** 2).sum()), draws[:, part].size) > ALARM / 4
    assert uncorrelated(draws)


def test_one_seed_for_all_classes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "_seed_of", lambda seed, place: seed)
    assert not uncorrelated(noises_of_fits(60))


@pytest.mark.parametrize("operator", ["gradient", "second moments", "mean square"])
def test_halved_noise_in_one_place_is_caught(operator: str) -> None:
    draws = noises_of_fits(60, {operator: 0.5})
    part = {"second moments": slice(0, 3), "mean square": slice(3, 4), "gradient": slice(4, None)}[operator]
    assert two_sided(float((draws[:, part] ** 2).sum()), draws[:, part].size) < ALARM


def test_fits_without_a_seed_share_no_noise() -> None:
    X, y = np.random.default_rng(10).normal(size=(30, 2)), np.arange(30) % 2
    classifier = hp.PrivateLogisticRegression(1.0, 1e-3, row_norm=NORM)
    assert np.all(classifier.fit(X, y).coef_ != hp.PrivateLogisticRegression(1.0, 1e-3, NORM).fit(X, y).coef_)
    assert "operating system" in str(classifier.guarantee_)


# --- 4. the budget


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_the_parts_never_exceed_the_budget(adjacency: Adjacency) -> None:
    """Added up as exact fractions: would catch shares that do not sum to one, and rounding to the wrong side."""
    from fractions import Fraction

    for epsilon in (1e-3, 0.01, 0.1, 1.0, 8.0, 50.0):
        for delta in (1e-12, 1e-6, 1e-2):
            whole = Fraction(gdp_mu(epsilon, delta)) ** 2
            for items in (1, 30, 10**4, 10**10):
                plan = plan_parameters(items, 7, hp.Budget(epsilon, delta), adjacency=adjacency)
                for classes in (1, 3, 10):
                    parts = [plan.moment_mu, plan.length_mu, *([plan.descent_mu / math.sqrt(classes)] * classes)]
                    spent = sum((Fraction(part) ** 2 for part in parts), Fraction(0))
                    assert whole * (1 - Fraction(1, 10**8)) <= spent <= whole


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("epsilon", "classes", "diagonal"), [(1e-3, 2, False), (1.0, 10, True), (50.0, 3, False)])
def test_what_was_drawn_is_what_is_reported(epsilon: float, classes: int, diagonal: bool, adjacency: Adjacency) -> None:
    """The budget read off the scales that the random source was asked for, and not off the plan."""
    items, delta = 60, 1e-4
    X, y = np.random.default_rng(11).normal(size=(items, 3)), np.arange(items) % classes
    classifier = hp.PrivateLogisticRegression(
        epsilon, delta, NORM, penalty="l1" if diagonal else None, adjacency=adjacency, random_state=0
    )
    with spying() as spy:
        classifier.fit(X, y)
    constant = 0.0 if diagonal else 0.25 * NORM
    models, steps = (classes if classes > 2 else 1), classifier.n_iter_
    scales = {kind: [scale for name, scale in spy.draws if name == kind] for kind in {name for name, _ in spy.draws}}
    counted = {kind: len(drawn) for kind, drawn in scales.items()}
    assert counted == {"second moments": 1, "mean square": 1, "gradient": steps}
    spent = [
        moments_moved(NORM, constant, adjacency) / scales["second moments"][0],
        NORM**2 / scales["mean square"][0],
    ]
    moved = np.repeat([clip_of(descent) for descent in spy.descents], steps // models) * (
        2 if adjacency == "replace-one" else 1
    )
    spent.extend(moved / np.array(scales["gradient"]))
    reported = classifier.guarantee_
    assert reported.mu is not None
    assert len(spy.descents) == models
    assert math.sqrt(math.fsum(part**2 for part in spent)) == pytest.approx(reported.mu, rel=1e-12)
    assert gdp_mu(epsilon, delta) * (1 - 1e-8) <= reported.mu <= gdp_mu(epsilon, delta)
    assert reported.epsilon <= epsilon
    for descent in spy.descents:
        stated = descent.guarantee(delta, view="iterates", adjacency=adjacency).mu
        plan = classifier.parameters_
        assert stated == pytest.approx(plan.descent_mu / math.sqrt(models), rel=1e-12)  # type: ignore[union-attr]


def test_nothing_but_public_facts_decides_the_plan() -> None:
    """Two data sets of one shape that have nothing else in common: the same draws, steps, passes and plan."""
    rng = np.random.default_rng(12)
    seen = []
    for X in (rng.normal(size=(40, 3)), np.zeros((40, 3)), 1e120 * rng.normal(size=(40, 3)), np.eye(40)[:, :3]):
        regressor = hp.PrivateLinearRegression(1.0, 1e-4, NORM, target_range=(-5.0, 5.0), random_state=0)
        with spying() as spy:
            regressor.fit(X, 1e6 * X[:, 0].clip(-1, 1))
        public = [draw for draw in spy.draws if draw[0] != "gradient"]
        seen.append((public, len(spy.draws), regressor.n_iter_, regressor.n_passes_, regressor.parameters_))
    assert all(one == seen[0] for one in seen[1:])


# --- 5. an audit of the whole fit


Pair = tuple[tuple[Array, float], tuple[Array, float]]
CROWD = np.random.default_rng(13).normal(size=(24, 2)) * 0.2 * NORM
FLIPPED: Pair = ((np.array([NORM, 0.0]), 0.0), (np.array([NORM, 0.0]), 1.0))  # the gradients as far apart as can be
TURNED: Pair = ((np.array([NORM, 0.0]), 0.0), (np.array([0.0, NORM]), 0.0))  # the moments as far apart as can be


def audit_fit(
    estimator: Any, pair: Pair, labels: Array, runs: int, steps: int = 2, **spied: Any
) -> tuple[float, float]:
    """Lower bound on the true mu, and the budget's mu, from tests that see every release.

    The scores are the likelihood ratios of the two worlds given the noisy moments, and given moments and gradients: no
    score tells the worlds apart better. Their rates at 0 are compared with the trade-off curve of the budget.
    """
    worlds = [(np.vstack([CROWD, row]), np.append(labels, label)) for row, label in pair]
    problems = [Problem(X, np.ones(len(X)), row_norm=NORM) for X, _ in worlds]
    scores: list[list[Array]] = [[], []]
    with spying(steps, **spied) as spy:
        for side, (X, y) in enumerate(worlds):
            for run in range(runs):
                spy.forget()
                estimator.set_params(random_state=2 * run + side).fit(X, y)
                if not run + side:
                    plan = estimator.parameters_
                    constant = plan.constant * NORM * estimator.fit_intercept
                    exact = [exact_moments(problem, plan, constant) for problem in problems]
                scores[side].append(likelihood_ratios(spy, exact, worlds, estimator))
    budget = gdp_mu(estimator.epsilon, estimator.delta)
    above = [(np.array(mine) > 0).sum(axis=0) for mine in scores]
    share = ALARM / 8  # two scores, two rates, and either world as the one to be detected
    found = special.ndtri(_lower(above[1], runs, share)) - special.ndtri(_upper(above[0], runs, share))
    turned = special.ndtri(_lower(runs - above[0], runs, share)) - special.ndtri(_upper(runs - above[1], runs, share))
    return float(max(found.max(), turned.max(), 0.0)), budget


def likelihood_ratios(spy: Spy, exact: list[Moments], worlds: list[tuple[Array, Array]], estimator: Any) -> Array:
    """Log of the densities' ratio, second world over first, at the noise that the budget demands."""
    moved = exact[1].matrix - exact[0].matrix
    middle = (exact[1].matrix + exact[0].matrix) / 2
    early = float(((spy.moments[0].matrix - middle) * moved).sum()) / exact[0].noise_std ** 2
    late = 0.0
    for index, (descent, path) in enumerate(zip(spy.descents, spy.paths, strict=True)):
        metric, constant = spy.metrics[0], estimator.parameters_.constant * NORM * estimator.fit_intercept
        look = partial(last_gradient, descent, metric, constant, points=path[:-1])
        gradients = [look(X[-1], target_of(estimator, y, index)) for X, y in worlds]
        moved = gradients[1] - gradients[0]
        # The sum of all others' gradients is the same in both worlds; what stands out is the last item's.
        rows = rows_of(descent)
        store = rows.store.store if isinstance(rows.store, Mapped) else rows.store
        own = look(store[-1], rows.targets[-1])
        seen = step_noise(descent, path) + own - (gradients[0] + gradients[1]) / 2
        late += float((seen * moved).sum()) / descent.noise.std**2
    return np.array([early, early + late])


def target_of(estimator: Any, y: Array, index: int) -> float:
    """The last item's target as the descents see it."""
    if isinstance(estimator, hp.PrivateLinearRegression):
        low, high = estimator.target_range or (-1.0, 1.0)
        return float(2 * (y[-1] - low) / (high - low) - 1)
    ones = estimator.classes_ if len(estimator.classes_) > 2 else estimator.classes_[1:]
    return 1.0 if y[-1] == ones[index] else -1.0


def last_gradient(descent: Plan, metric: Metric, constant: float, row: Array, target: float, points: Array) -> Array:
    """The clipped gradient of one row at every point, written down independently."""
    image = metric.apply(np.append(row, constant) if constant else row)
    limit = clip_of(descent) / np.linalg.norm(image)
    slopes = rows_of(descent).loss.derivative(points @ image, np.full(len(points), target)).clip(-limit, limit)
    return np.outer(slopes, image)


EPSILON, DELTA = 3.0, 1e-3  # mu is about 1
TWO = (np.arange(24) % 2).astype(float)
DECLARED = {"epsilon": EPSILON, "delta": DELTA, "row_norm": NORM}


LATTICE = pytest.mark.parametrize("lattice", [False, True], ids=["real numbers", "lattice"])


@LATTICE
@pytest.mark.parametrize("pair", [FLIPPED, TURNED], ids=["label flipped", "row turned"])
def test_logistic_regression_keeps_its_promise(pair: Pair, lattice: bool) -> None:
    found, budget = audit_fit(hp.PrivateLogisticRegression(**DECLARED), pair, TWO, 120, lattice=lattice)
    assert found <= budget


@LATTICE
def test_linear_regression_keeps_its_promise(lattice: bool) -> None:
    (first, _), (second, _) = FLIPPED
    regressor = hp.PrivateLinearRegression(**DECLARED, target_range=(-1.0, 1.0))
    found, budget = audit_fit(regressor, ((first, -1.0), (second, 1.0)), TWO - 0.5, 120, lattice=lattice)
    assert found <= budget


@pytest.mark.parametrize(
    ("estimator", "pair", "noise"),
    [
        (hp.PrivateLogisticRegression(**DECLARED), FLIPPED, {"gradient": 0.25}),
        (hp.PrivateLinearRegression(**DECLARED, target_range=(0.0, 1.0)), FLIPPED, {"gradient": 0.25}),
        (hp.PrivateLogisticRegression(**DECLARED), TURNED, {"second moments": 0.0}),
    ],
    ids=["logistic, a quarter of the noise on gradients", "linear, the same", "moments without noise"],
)
@LATTICE
def test_the_audit_catches_missing_noise(estimator: Any, pair: Pair, noise: dict[str, float], lattice: bool) -> None:
    found, budget = audit_fit(estimator, pair, TWO, 100, noise=noise, lattice=lattice)
    assert found > budget


def test_the_audit_catches_a_budget_that_is_not_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an intercept the opposite row turns round the gradients of all ten classes; each spends everything."""
    make = training._priced
    monkeypatch.setattr(
        training,
        "_priced",
        lambda operator, facts, mu, *given: make(
            operator, facts, math.sqrt(10) * mu if isinstance(operator, Gradient) else mu, *given
        ),
    )
    row, labels = np.array([NORM, 0.0]), (np.arange(24) % 10).astype(float)
    several = hp.PrivateLinearSVC(**DECLARED, fit_intercept=False)  # its slopes at 0 are beyond every limit
    found, budget = audit_fit(several, ((row, 0.0), (-row, 0.0)), labels, 200, steps=1)
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
