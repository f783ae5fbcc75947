"""Every method, iterate by iterate and with noise, against its textbook recursion on the same draws.

The recursions are written with loops over items, in the letters of the paper (with zhat carried, erratum 3) or of
theory 3 and 4d, and with proxes and gradients of their own. Draws are taken from the addresses that runs use.
"""

from dataclasses import dataclass
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from oracles import reference
from scipy.special import expit

import hushpoint as hp
from hushpoint import methods, schedules
from hushpoint.noise import Noise, seeded_source
from hushpoint.regularizers import L1, L2, Box, ElasticNet, Zero

SEED = 11
SOURCE = seeded_source(SEED)
CLOSE = {"rtol": 0, "atol": 1e-9}


def eta(item, step, size, std):
    """The noise of one block at one step."""
    return SOURCE.normals("block", [item], step, size, std)[0]


def soft(v, threshold):
    return np.sign(v) * np.maximum(np.abs(v) - threshold, 0)


def clip(v, radius):
    length = np.linalg.norm(v)
    return v if length <= radius else v * (radius / length)


def run(plan):
    """The models of a run, one per step."""
    return plan.run(seed=SEED, history="models", kernel="plain").history["models"]


def draws(plan):
    """Who moves at each step, as lists."""
    position, chosen = -1, []
    for step in range(plan.steps):
        drawn = plan.schedule.draw(step, SOURCE, position)
        drawn = range(plan.schedule.blocks) if drawn is None else drawn
        chosen.append([int(block) for block in drawn])
        position = chosen[-1][-1] if chosen[-1] else position
    return chosen


@dataclass(frozen=True)
class Item:
    """One record or user: the mean loss over its rows, with a gradient and a prox of its own."""

    X: np.ndarray
    y: np.ndarray
    loss: str
    clip: float | None
    weight: float

    def slopes(self, z):
        t = self.X @ z
        slopes = -self.y * expit(-self.y * t) if self.loss == "logistic" else t - self.y
        if self.loss == "huber":
            slopes = np.clip(slopes, -reference.HUBER, reference.HUBER)
        if self.clip is not None:
            limits = self.clip / np.linalg.norm(self.X, axis=1)
            slopes = np.clip(slopes, -limits, limits)
        return slopes

    def gradient(self, z):
        return sum(slope * row for slope, row in zip(self.slopes(z), self.X, strict=True)) / len(self.y)

    def prox(self, v, gamma, ridge=0.0):
        """Newton's method on the optimality condition, halving steps that do not reduce it."""
        size = len(v)
        x = v.copy()

        def condition(x):
            return self.gradient(x) + ridge * x + (x - v) / gamma

        for _ in range(100):
            g = condition(x)
            if np.linalg.norm(g) < 1e-13 * (1 + 1 / gamma):
                break
            hessian = (ridge + 1 / gamma) * np.eye(size)
            for row, slope, bumped in zip(self.X, self.slopes(x), self._bumped(x), strict=True):
                hessian += np.outer(row, row) * (bumped - slope) / 1e-6 / len(self.y)
            direction, length = np.linalg.solve(hessian, g), 1.0
            while np.linalg.norm(condition(x - length * direction)) > np.linalg.norm(g) and length > 1e-10:
                length /= 2
            x = x - length * direction
        assert np.linalg.norm(condition(x)) * gamma < 1e-11
        return x

    def _bumped(self, x):
        """Slopes where every margin is 1e-6 larger."""
        shift = [np.linalg.lstsq(row[None], [1e-6], rcond=None)[0] for row in self.X]
        return [self._only(j).slopes(x + shift[j])[0] for j in range(len(self.y))]

    def _only(self, j):
        return Item(self.X[j : j + 1], self.y[j : j + 1], self.loss, self.clip, 1.0)


@dataclass(frozen=True)
class Example:
    problem: hp.Problem
    items: list[Item]

    @property
    def width(self):
        return self.items[0].X.shape[1]

    @property
    def n(self):
        return len(self.items)

    def prox_r(self, v, step, ridge=True):
        """Of the regulariser, an elastic net at most; ``ridge=False`` leaves the quadratic part out."""
        rest, k = self.problem.regularizer.quadratic()
        return soft(v, step * getattr(rest, "strength", 0.0)) / (1 + (step * k if ridge else 0.0))


def example(items="records", loss="squared", regularizer=None, clip=None, n=9, p=4, seed=0):
    X = reference.table(n, p, seed) * 1.5
    y = reference.labels(X, seed) if loss == "logistic" else reference.numbers(X, seed)
    signed = np.where(y == 1, 1.0, -1.0) if loss == "logistic" else y
    regularizer = L1(0.03) if regularizer is None else regularizer
    if items == "records":
        problem = hp.Problem(X, y, loss=loss, regularizer=regularizer, clip=clip)
        members = [[k] for k in range(n)]
    else:
        groups = reference.unequal_groups(n, (1, 2, 2, n - 5), seed)
        weights = "rows" if items == "users by rows" else "items"
        problem = hp.Problem(X, y, loss=loss, regularizer=regularizer, clip=clip, groups=groups, weights=weights)
        members = [list(np.flatnonzero(groups == user)) for user in range(4)]
    weight = [len(rows) / n if items == "users by rows" else 1 / len(members) for rows in members]
    return Example(
        problem, [Item(X[rows], signed[rows], loss, clip, w) for rows, w in zip(members, weight, strict=True)]
    )


EXAMPLES = [
    {"items": "records"},
    {"items": "users by rows"},
    {"items": "users", "loss": "logistic"},
    {"items": "records", "loss": "logistic", "regularizer": ElasticNet(0.02, 0.1)},
    {"items": "records", "clip": 0.4, "regularizer": L2(0.1)},
    {"items": "users by rows", "loss": "huber", "clip": 0.6},
]
every_example = pytest.mark.parametrize("make", EXAMPLES, ids=lambda make: "-".join(map(str, make.values())))


def tight(example):
    """Newton's proxes of users to 1e-11, so that iterates can be compared to 1e-9."""
    return {} if example.problem.facts.rows_per_item is None else {"tolerance": 1e-11}


# --- gradient methods -----------------------------------------------------------------------------------------------


@every_example
@pytest.mark.parametrize("sampling", [{}, {"sample_prob": 0.4}, {"sample_size": 2}], ids=["all", "poisson", "fixed"])
@pytest.mark.parametrize("varying", [False, True], ids=["one step", "a step each"])
def test_dp_sgd_is_its_recursion(make, sampling, varying):
    # Division by the drawn instead of the expected sample, noise scaled by the step twice or by n, the prox taken with
    # another step than the gradient's, a user's weight lost: all change the first iterates.
    e, steps, std = example(**make), 12, 0.3
    sizes = np.linspace(0.9, 0.1, steps) if varying else np.full(steps, 0.4)
    plan = methods.dp_sgd(e.problem, steps, sizes if varying else 0.4, noise_std=std, **sampling)
    expected_size = sampling.get("sample_size", sampling.get("sample_prob", 1.0) * e.n)
    z, models = np.zeros(e.width), []
    for step, (g, sample) in enumerate(zip(sizes, draws(plan), strict=True)):
        G = sum((e.n * e.items[i].weight * e.items[i].gradient(z) for i in sample), np.zeros(e.width)) / expected_size
        noise = SOURCE.normals("sum", [0], step, e.width, std * expected_size)[0] / expected_size
        z = e.prox_r(z - g * (G + noise), g)
        models.append(z)
    np.testing.assert_allclose(run(plan), models, **CLOSE)


@every_example
@pytest.mark.parametrize("sampling", [{}, {"sample_prob": 0.4}, {"sample_size": 2}], ids=["all", "poisson", "fixed"])
@pytest.mark.parametrize("bound", [0.2, 4.0])
def test_dp_fedavg_is_its_recursion(make, sampling, bound):
    # Local steps that all start from z, a clip of the sum or of single steps, a weight inside the clip, noise scaled by
    # the local step, a prox with another step than that of the updates.
    e, rounds, g, K, server, std = example(**make), 8, 0.4, 3, 0.7, 0.05
    plan = methods.dp_fedavg(e.problem, rounds, K, g, bound, server, noise_std=std, **sampling)
    expected_size = sampling.get("sample_size", sampling.get("sample_prob", 1.0) * e.n)
    z, models = np.zeros(e.width), []
    for step, sample in enumerate(draws(plan)):
        total = SOURCE.normals("sum", [0], step, e.width, std * expected_size)[0]
        for i in sample:
            x = z
            for _ in range(K):
                x = x - g * e.items[i].gradient(x)
            total = total + e.n * e.items[i].weight * clip(x - z, bound)
        z = e.prox_r(z + server * total / expected_size, server * K * g)
        models.append(z)
    np.testing.assert_allclose(run(plan), models, **CLOSE)


@every_example
@pytest.mark.parametrize("varying", [False, True], ids=["one step", "a step each"])
def test_dp_cd_is_its_recursion(make, varying):
    # Another coordinate than the drawn one, noise on all of them, a prox of all of them.
    e, steps, std = example(**make), 25, 0.2
    sizes = np.linspace(0.9, 0.1, steps) if varying else np.full(steps, 0.5)
    plan = methods.dp_cd(e.problem, steps, sizes if varying else 0.5, noise_std=std)
    z, models = np.zeros(e.width), []
    for step, (g, (j,)) in enumerate(zip(sizes, draws(plan), strict=True)):
        slope = sum(item.weight * item.gradient(z)[j] for item in e.items)
        noise = SOURCE.normals("sum", [0], step, 1, std * e.n)[0, 0] / e.n
        z = z.copy()
        z[j] = e.prox_r(z[j] - g * (slope + noise), g)
        models.append(z)
    np.testing.assert_allclose(run(plan), models, **CLOSE)


def test_dp_cd_with_bounds_takes_those_of_its_coordinate():
    # A box with one bound per coordinate: the bound of the first one for whichever is drawn.
    low, high = (-0.1, -0.2, -0.3, 0.1), (0.1, 0.05, 0.3, 0.2)
    e = example(regularizer=Box(low, high))
    plan = methods.dp_cd(e.problem, 25, 0.5, noise_std=0.5)
    z, models = np.zeros(e.width), []
    for step, (j,) in enumerate(draws(plan)):
        slope = sum(item.weight * item.gradient(z)[j] for item in e.items)
        noise = SOURCE.normals("sum", [0], step, 1, 0.5 * e.n)[0, 0] / e.n
        z = z.copy()
        z[j] = np.clip(z[j] - 0.5 * (slope + noise), low[j], high[j])
        models.append(z)
    np.testing.assert_allclose(run(plan), models, **CLOSE)


def test_dp_cd_steps_as_long_as_the_declared_facts_allow():
    # 1/(smoothness row_norm^2), from what is declared: a default read off the data would leak it.
    X = reference.table(9, 4, 0)
    y = reference.numbers(X, 0)
    for loss, smoothness in (("squared", 1.0), ("logistic", 0.25)):
        targets = y > np.median(y) if loss == "logistic" else y
        problem = hp.Problem(X, targets, loss=loss, row_norm=3.0)
        default = methods.dp_cd(problem, 20, noise_std=0.1)
        stated = methods.dp_cd(problem, 20, 1 / (smoothness * 9), noise_std=0.1)
        np.testing.assert_array_equal(run(default), run(stated))


def algorithm_1(blocks, R, relaxations, active, noises):
    """The paper's Algorithm 1, literally: all blocks in order, rho_k in {0, 1}."""
    u, history = np.zeros(sum(blocks)), []
    edges = np.concatenate([[0], np.cumsum(blocks)])
    for lam, rho, noise in zip(relaxations, active, noises, strict=True):
        target, new = R(u), u.copy()
        for b in range(len(blocks)):
            part = slice(edges[b], edges[b + 1])
            new[part] = u[part] + (b in rho) * lam * (target[part] + noise[part] - u[part])
        u = new
        history.append(u)
    return np.array(history)


def test_dp_sgd_and_dp_cd_are_algorithm_1_in_the_letters_of_the_paper():
    # R = I - (2/beta) grad f, lambda = g beta/2, sigma = 2 noise_std/beta: the translation on which the accounting of
    # gradient methods as fixed-point iterations rests.
    e, steps, std, g = example(regularizer=Zero()), 20, 0.3, 0.4
    X = np.vstack([item.X for item in e.items])
    beta = np.linalg.norm(X, 2) ** 2 / e.n
    sigma, lam = 2 * std / beta, g * beta / 2

    def R(u):
        return u - 2 / beta * sum(item.gradient(u) for item in e.items) / e.n

    # eta of Algorithm 1 from the noise of the gradient: minus, since a gradient is subtracted
    unit = np.array([SOURCE.normals("sum", [0], step, e.width, 1.0)[0] for step in range(steps)])
    literal = algorithm_1([e.width], R, [lam] * steps, [[0]] * steps, -sigma * unit)
    np.testing.assert_allclose(run(methods.dp_sgd(e.problem, steps, g, noise_std=std)), literal, **CLOSE)

    plan = methods.dp_cd(e.problem, steps, g, noise_std=std)
    first = np.array([SOURCE.normals("sum", [0], step, 1, 1.0)[0] for step in range(steps)])
    literal = algorithm_1([1] * e.width, R, [lam] * steps, draws(plan), -sigma * np.repeat(first, e.width, axis=1))
    np.testing.assert_allclose(run(plan), literal, **CLOSE)


class GradientMap(hp.operators.FixedPoint):
    """``I - (2/beta) grad f``, as a researcher would write it."""

    def __init__(self, example, beta):
        super().__init__(example.width)
        self.example, self.beta = example, beta

    def apply(self, point):
        return point - 2 / self.beta * sum(item.weight * item.gradient(point) for item in self.example.items)


def test_dp_sgd_is_the_engine_on_the_gradient_map():
    # The engine's own Algorithm 1: lambda must multiply noise and errors as it multiplies R, one value per step.
    e, steps, std, beta = example(regularizer=Zero()), 15, 0.3, 3.0
    sizes = np.linspace(0.6, 0.2, steps)
    errors = [SOURCE.normals("sum", [0], step, e.width, std * e.n) / e.n for step in range(steps)]
    plan = hp.Plan(
        GradientMap(e, beta),
        schedules.EveryBlock(1),
        Noise(0.0),
        steps=steps,
        relaxation=tuple(sizes * beta / 2),
        errors=lambda step, blocks, size: -2 / beta * errors[step],
    )
    np.testing.assert_allclose(run(plan), run(methods.dp_sgd(e.problem, steps, sizes, noise_std=std)), **CLOSE)


# --- Algorithm 5 ----------------------------------------------------------------------------------------------------


def whole_prox(e, v, gamma, ridge, A=None):
    """``argmin_x f(x) + ridge/2 |x|^2 + |A x - v|^2/(2 gamma)``, f the weighted mean over items, by Newton's method."""
    A = np.eye(e.width) if A is None else A
    x = np.zeros(e.width)

    def condition(x):
        loss = sum(item.weight * item.gradient(x) for item in e.items)
        return loss + ridge * x + A.T @ (A @ x - v) / gamma

    for _ in range(100):
        g = condition(x)
        if np.linalg.norm(g) < 1e-13:
            break
        hessian = ridge * np.eye(e.width) + A.T @ A / gamma
        for item in e.items:
            for row, slope, bumped in zip(item.X, item.slopes(x), item._bumped(x), strict=True):
                hessian += item.weight / len(item.y) * np.outer(row, row) * (bumped - slope) / 1e-6
        direction, length = np.linalg.solve(hessian, g), 1.0
        while np.linalg.norm(condition(x - length * direction)) > np.linalg.norm(g) and length > 1e-10:
            length /= 2
        x = x - length * direction
    assert np.linalg.norm(condition(x)) < 1e-12
    return x


@every_example
@pytest.mark.parametrize("ridge_in_loss", [True, False], ids=["ridge in f", "ridge in g"])
def test_private_admm_is_algorithm_5(make, ridge_in_loss):
    # A reflection of the wrong point, lambda missing on the noise, eta instead of eta/2 inside 2 lambda(...).
    e, steps, gamma, lam, sigma = example(**make), 8, 2.0, 0.6, 0.4
    plan = methods.private_admm(
        e.problem, steps, gamma, lam, noise_std=sigma, ridge_in_loss=ridge_in_loss, tolerance=1e-12
    )
    ridge = e.problem.regularizer.quadratic()[1] if ridge_in_loss else 0.0
    u, models = np.zeros(e.width), []
    for step in range(steps):
        z = e.prox_r(u, gamma, ridge=not ridge_in_loss)
        x = whole_prox(e, 2 * z - u, gamma, ridge)
        u = u + 2 * lam * (x - z + eta(0, step, e.width, sigma) / 2)
        models.append(e.prox_r(u, gamma, ridge=not ridge_in_loss))
    np.testing.assert_allclose(run(plan), models, **CLOSE)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("relaxation", [0.7, "per step"])
def test_private_admm_with_a_b_c_is_algorithm_5(loss, relaxation):
    # Signs of B and c, B' B in the z step, noise with as many coordinates as A has rows.
    e, steps, gamma, sigma, kappa = example(loss=loss, regularizer=L2(0.1)), 8, 1.5, 0.3, 0.05
    rng = np.random.default_rng(2)
    A = np.vstack([np.eye(e.width), np.diff(np.eye(e.width), axis=0)])
    B = -np.vstack([np.eye(3), rng.normal(size=(len(A) - 3, 3))])
    c = rng.normal(size=len(A))
    lambdas = np.linspace(0.9, 0.3, steps) if relaxation == "per step" else np.full(steps, relaxation)
    given = list(lambdas) if relaxation == "per step" else relaxation
    plan = methods.private_admm(
        e.problem, steps, gamma, given, A=A, B=B, c=c, penalty=L1(kappa), noise_std=sigma, tolerance=1e-12
    )

    def argmin_z(u):
        target = reference.objective(B * np.sqrt(len(u)), -u * np.sqrt(len(u)), l1=gamma * kappa)
        return reference.optimum(target, precision=1e-12)

    u, models = np.zeros(len(A)), []
    for step, lam in enumerate(lambdas):
        z = argmin_z(u)
        x = whole_prox(e, c - 2 * B @ z - u, gamma, 0.1, A)
        u = u + 2 * lam * (A @ x + B @ z - c + eta(0, step, len(A), sigma) / 2)
        models.append(np.linalg.lstsq(A, c - B @ argmin_z(u), rcond=None)[0])
    np.testing.assert_allclose(run(plan), models, **CLOSE)


@dataclass(frozen=True)
class WholeLoss:
    """The mean squared loss with its prox: what LionsMercier needs of a function."""

    X: np.ndarray
    y: np.ndarray
    strong_convexity: float = 0.0
    smoothness: float = np.inf

    def prox(self, v, step):
        n, p = self.X.shape
        return np.linalg.solve(np.eye(p) + step * self.X.T @ self.X / n, v + step * self.X.T @ self.y / n)


@pytest.mark.parametrize("relaxation", [0.3, 1.0])
def test_private_admm_is_lions_mercier(relaxation):
    # R_1 R_2 in the right order: released is the prox of the *second* function. Also: one address for one noise.
    e, steps, gamma, sigma = example(), 15, 2.0, 0.3
    loss = WholeLoss(np.vstack([item.X for item in e.items]), np.concatenate([item.y for item in e.items]))
    operator = hp.operators.LionsMercier(loss, L1(0.03), gamma, e.width)
    plan = hp.Plan(operator, schedules.EveryBlock(1), Noise(sigma), steps=steps, relaxation=relaxation)
    admm = methods.private_admm(e.problem, steps, gamma, relaxation, noise_std=sigma)
    np.testing.assert_allclose(run(plan), run(admm), **CLOSE)


# --- consensus ------------------------------------------------------------------------------------------------------


def consensus(e, plan, gamma, lambdas, sigma=0.0, s=0.0, ridge=0.0, residual=np.inf, cap=None):
    """Algorithms 2, 3 and 4 with zhat carried: sigma is the noise in the blocks, s the noise on the sum (3f)."""
    u = [np.zeros(e.width) for _ in e.items]
    zhat, moves, models = np.zeros(e.width), [0] * e.n, []
    for step, chosen in enumerate(draws(plan)):
        z = e.prox_r(zhat, gamma, ridge=not ridge)
        change = np.zeros(e.width)
        for i in chosen:
            if cap is not None and moves[i] == cap:
                continue
            moves[i] += 1
            x = e.items[i].prox(2 * z - u[i], gamma, ridge)
            moved = 2 * lambdas[step] * (clip(x - z, residual) + eta(i, step, e.width, sigma) / 2)
            u[i] = u[i] + moved
            change += e.items[i].weight * moved
        if s:
            change += SOURCE.normals("sum", [0], step, e.width, s)[0] / e.n
        elif cap is None:
            mean = sum(item.weight * block for item, block in zip(e.items, u, strict=True))
            np.testing.assert_allclose(zhat + change, mean, atol=1e-12)  # what Algorithm 2 writes
        zhat = zhat + change
        models.append(e.prox_r(zhat, gamma, ridge=not ridge))
    return models


@every_example
@pytest.mark.parametrize("schedule", ["all", "cyclic", "permuted", "single", 2])
def test_centralized_admm_is_algorithm_2(make, schedule):
    # Noise drawn for another item than the one that moves, zhat as the mean over movers, weights lost, a stale z.
    e, gamma, lam, sigma = example(**make), 1.5, 0.6, 0.3
    plan = methods.centralized_admm(e.problem, 8, gamma, lam, schedule=schedule, noise_std=sigma, **tight(e))
    np.testing.assert_allclose(run(plan), consensus(e, plan, gamma, [lam] * 8, sigma), **CLOSE)


def test_the_schedules_of_algorithm_2_are_what_their_names_say():
    # "cyclic" and "permuted" must visit everybody in each pass, "permuted" in a fresh order; a subset has no repeats.
    e = example()
    orders = {}
    for schedule in ("all", "cyclic", "permuted", "single", 4):
        plan = methods.centralized_admm(e.problem, 3 * e.n, 1.0, schedule=schedule, noise_std=0)
        orders[schedule] = draws(plan)
        assert plan.run(seed=SEED).state.participations.sum() == sum(map(len, orders[schedule]))
    everyone = list(range(e.n))
    assert orders["all"] == [everyone] * (3 * e.n)
    assert orders["cyclic"] == [[i] for i in 3 * everyone]
    passes = [[i for (i,) in orders["permuted"][k * e.n : (k + 1) * e.n]] for k in range(3)]
    assert [sorted(order) for order in passes] == [everyone] * 3
    assert passes[0] != passes[1] != passes[2]
    assert all(len(set(sample)) == 4 for sample in orders[4])
    assert len(set(map(tuple, orders[4]))) > 10


@pytest.mark.parametrize("items", ["records", "users by rows"])
def test_ridge_in_the_losses_and_a_relaxation_per_step(items):
    # The ridge inside prox_{gamma f_i} shrinks both the point and the step; the relaxation belongs to the step.
    e, gamma, sigma = example(items, loss="logistic", regularizer=ElasticNet(0.02, 0.2)), 1.5, 0.2
    lambdas = np.linspace(0.9, 0.2, 8)
    plan = methods.centralized_admm(
        e.problem, 8, gamma, list(lambdas), noise_std=sigma, ridge_in_loss=True, schedule=3, **tight(e)
    )
    np.testing.assert_allclose(run(plan), consensus(e, plan, gamma, lambdas, sigma, ridge=0.2), **CLOSE)


@every_example
@pytest.mark.parametrize("sampling", [{}, {"sample_prob": 0.4}, {"sample_size": 2}], ids=["all", "poisson", "fixed"])
@pytest.mark.parametrize("residual", [None, 0.1], ids=["", "clipped"])
def test_federated_admm_is_algorithm_3(make, sampling, residual):
    # z carried instead of zhat (erratum 3), a sum divided by the sample instead of n, the clip after the noise.
    e, gamma, lam, sigma = example(**make), 1.5, 0.6, 0.3
    plan = methods.federated_admm(
        e.problem, 8, gamma, lam, noise_std=sigma, clip_residual=residual, **sampling, **tight(e)
    )
    expected = consensus(e, plan, gamma, [lam] * 8, sigma, residual=np.inf if residual is None else residual)
    np.testing.assert_allclose(run(plan), expected, **CLOSE)


@every_example
def test_noise_on_the_sum_is_theory_3f(make):
    # Noise that reaches the blocks, or is scaled by the relaxation, or is divided by the sample.
    e, gamma, lam, s = example(**make), 1.5, 0.6, 0.8
    plan = methods.federated_admm(
        e.problem, 8, gamma, lam, noise="sum", noise_std=s, clip_residual=0.15, sample_prob=0.5, **tight(e)
    )
    np.testing.assert_allclose(run(plan), consensus(e, plan, gamma, [lam] * 8, s=s, residual=0.15), **CLOSE)


def path_graph(users):
    """A path whose nodes are named so that sorting them shuffles the path."""
    return nx.relabel_nodes(nx.path_graph(users), dict(enumerate(np.random.default_rng(0).permutation(users).tolist())))


@every_example
@pytest.mark.parametrize("graph", ["complete", "ring", "path"])
def test_decentralized_admm_is_algorithm_4(make, graph):
    # The token must go to neighbours only, carry zhat, and move the block of its holder.
    e, gamma, lam, sigma, hops = example(**make), 1.5, 0.6, 0.3, 25
    graph = {"ring": nx.cycle_graph, "path": path_graph}.get(graph, lambda users: "complete")(e.n)
    plan = methods.decentralized_admm(e.problem, hops, gamma, lam, graph=graph, noise_std=sigma, **tight(e))
    walk = [holder for (holder,) in draws(plan)]
    if graph != "complete":
        assert all(graph.has_edge(a, b) for a, b in pairwise(walk))
    np.testing.assert_allclose(run(plan), consensus(e, plan, gamma, [lam] * hops, sigma), **CLOSE)


@pytest.mark.parametrize("cap", [1, 3])
def test_users_at_their_cap_do_not_move(cap):
    # A cap that is stated but not enforced is a privacy bug; the walk itself goes on.
    e, gamma, lam, sigma = example("users by rows"), 1.5, 0.6, 0.3
    for plan in (
        methods.decentralized_admm(e.problem, 25, gamma, lam, participation_cap=cap, noise_std=sigma),
        methods.decentralized_admm(
            e.problem, 25, gamma, lam, participation_cap=cap, noise_std=sigma, graph=nx.cycle_graph(4)
        ),
        methods.federated_admm(e.problem, 15, gamma, lam, participation_cap=cap, noise_std=sigma, sample_prob=0.5),
        methods.federated_admm(e.problem, 5, gamma, lam, participation_cap=cap, noise_std=sigma),
    ):
        expected = consensus(e, plan, gamma, [lam] * plan.steps, sigma, cap=cap)
        np.testing.assert_allclose(run(plan), expected, **CLOSE)
        assert plan.run(seed=SEED).state.participations.max() == cap


# --- anchored ADMM and the stateless walk (ours) --------------------------------------------------------------------


@every_example
@pytest.mark.parametrize("sampling", [{}, {"sample_prob": 0.4}, {"sample_size": 2}], ids=["all", "poisson", "fixed"])
@pytest.mark.parametrize(("radius", "lam"), [(0.3, 0.5), (100.0, 0.8)])
def test_anchored_admm_is_theory_3e(make, sampling, radius, lam):
    # Noise that is kept (it must be fresh at each release), the clip around zhat instead of z, increments clipped
    # instead of offsets, another first z than that of the public start.
    e, gamma, s, rounds = example(**make), 1.5, 0.2, 10
    plan = methods.anchored_admm(e.problem, rounds, gamma, lam, radius=radius, noise_std=s, **sampling, **tight(e))
    u = [np.zeros(e.width) for _ in e.items]
    z, models, clipped = e.prox_r(np.zeros(e.width), gamma), [], 0
    for step, chosen in enumerate(draws(plan)):
        for i in chosen:
            x = e.items[i].prox(2 * z - u[i], gamma)
            offset = u[i] + 2 * lam * (x - z) - z
            clipped += np.linalg.norm(offset) > radius
            u[i] = z + clip(offset, radius)
        zhat = sum(item.weight * block for item, block in zip(e.items, u, strict=True))
        z = e.prox_r(zhat + SOURCE.normals("release", [0], step, e.width, s)[0], gamma)
        models.append(z)
    np.testing.assert_allclose(run(plan), models, **CLOSE)
    assert (clipped > 0) == (radius < 1)  # both cases are tested


@pytest.mark.parametrize("graph", ["complete", "ring"])
@pytest.mark.parametrize(
    "make",
    [
        {"regularizer": Zero()},
        {"regularizer": L2(0.1)},
        {"items": "users", "loss": "logistic", "regularizer": L2(0.2)},
        {"items": "users", "clip": 0.5, "regularizer": L2(0.1)},
    ],
    ids=str,
)
def test_stateless_walk_is_theory_4d(make, graph):
    # prox at z, not at a reflection; the ridge inside every prox and nowhere else.
    e, gamma, lam, sigma, hops = example(**make), 0.8, 0.4, 0.3, 25
    graph = nx.cycle_graph(e.n) if graph == "ring" else graph
    plan = methods.stateless_walk(e.problem, hops, gamma, lam, graph=graph, noise_std=sigma, **tight(e))
    ridge = e.problem.regularizer.quadratic()[1]
    z, models = np.zeros(e.width), []
    for step, (i,) in enumerate(draws(plan)):
        z = z + 2 * lam * (e.items[i].prox(z, gamma, ridge) - z) + lam * eta(i, step, e.width, sigma)
        models.append(z)
    np.testing.assert_allclose(run(plan), models, **CLOSE)


def test_a_user_of_the_stateless_walk_at_its_cap_still_adds_noise():
    # Theory 4d counts every hop's noise: a hop that adds none makes the network guarantee too small.
    e, gamma, lam, sigma, hops, cap = example(regularizer=L2(0.1)), 0.8, 0.4, 0.3, 30, 2
    plan = methods.stateless_walk(e.problem, hops, gamma, lam, participation_cap=cap, noise_std=sigma)
    z, models, moves = np.zeros(e.width), [], [0] * e.n
    for step, (i,) in enumerate(draws(plan)):
        drift = np.zeros(e.width) if moves[i] == cap else e.items[i].prox(z, gamma, 0.1) - z
        moves[i] += moves[i] < cap
        z = z + 2 * lam * drift + lam * eta(i, step, e.width, sigma)
        models.append(z)
    assert sum(moves) < hops  # somebody was at the cap
    np.testing.assert_allclose(run(plan), models, **CLOSE)


def test_the_model_is_the_one_after_the_last_update():
    # The paper returns z_K, one update older than what its K steps cost; ours is the prox after the last one.
    e = example()
    for plan in (
        methods.private_admm(e.problem, 7, 1.5, noise_std=0.3),
        methods.federated_admm(e.problem, 7, 1.5, noise_std=0.3),
        methods.anchored_admm(e.problem, 7, 1.5, radius=1.0, noise_std=0.3),
        methods.dp_sgd(e.problem, 7, 0.2, noise_std=0.3),
    ):
        result = plan.run(seed=SEED, history="models")
        assert len(result.history["models"]) == 7
        np.testing.assert_array_equal(result.model, result.history["models"][-1])
