"""The convergence oracle (theory 7): without noise every method reaches the optimum of its problem.

Optima come from ``oracles.reference``, which shares no code with hushpoint, and objectives are evaluated there too: a
wrong loss, weight or penalty in ``Problem`` cannot hide behind itself.
"""

from dataclasses import dataclass
from functools import cache

import networkx as nx
import numpy as np
import pytest
import scipy.sparse
from oracles import reference
from sklearn import linear_model

import hushpoint as hp
from hushpoint import methods
from hushpoint.regularizers import L1, L2, ElasticNet, GroupL1

EXACT, SAMPLED = 1e-8, 1e-6  # relative objective gaps

SHAPES = {"tall": (30, 5), "wide": (12, 18)}
USERS = {"tall": (1, 2, 3, 4, 7, 13), "wide": (1, 2, 3, 6)}  # rows of each user
MODELS = {  # loss, l1, l2
    "lasso": ("squared", 0.05, 0.0),
    "ridge": ("squared", 0.0, 0.1),
    "elastic net": ("squared", 0.03, 0.1),
    "l1 logistic": ("logistic", 0.02, 0.0),
    "l2 logistic": ("logistic", 0.0, 0.05),
    "huber": ("huber", 0.05, 0.0),
}
ITEMS = ("records", "users", "users by rows")


@dataclass(frozen=True)
class Instance:
    """A problem of hushpoint, the same objective written independently, and its minimiser."""

    problem: hp.Problem
    target: reference.Objective
    best: np.ndarray
    value: float

    def gap(self, model):
        return (self.target(model) - self.value) / self.value

    @property
    def smoothness(self):
        """Of the mean loss and of its single coordinates: what a step size may be, from the data."""
        X, weights = self.target.X, self.target.weights
        scale = 0.25 if self.target.loss.kind == "logistic" else 1.0
        return scale * np.linalg.norm(X.T * np.sqrt(weights), 2) ** 2, scale * (weights @ X**2).max()

    @property
    def gamma(self):
        return {"logistic": 30.0}.get(self.target.loss.kind, 10.0)


def penalty(l1, l2):
    """The regulariser of hushpoint with these strengths."""
    if l1 and l2:
        return ElasticNet(l1, l2)
    return L1(l1) if l1 else L2(l2)


@cache
def instance(model, shape="tall", items="records", sparse=False, clip=None, intercept=False, row_norm=None, seed=1):
    rows, features = SHAPES[shape]
    loss, l1, l2 = MODELS[model]
    X = reference.table(rows, features, seed)
    if sparse:
        X = X * (np.random.default_rng(seed).random(X.shape) < 0.4)
    if loss == "logistic":
        y = reference.labels(X, seed)
    else:
        y = reference.numbers(X, seed, outliers=3 if loss == "huber" else 0) + (2.0 if intercept else 0.0)
    groups = None if items == "records" else reference.unequal_groups(rows, USERS[shape], seed)
    weights = "rows" if items == "users by rows" else "items"
    problem = hp.Problem(
        scipy.sparse.csr_array(X) if sparse else X,
        y,
        loss=loss,
        regularizer=penalty(l1, l2),
        groups=groups,
        weights=weights,
        clip=clip,
        fit_intercept=intercept,
        row_norm=row_norm,
    )
    target = reference.objective(
        X, y, loss, reference.row_weights(rows, groups, weights), l1, l2, clip, intercept, row_norm
    )
    best = reference.optimum(target)
    return Instance(problem, target, best, target(best))


def final_gap(plan, example, tolerance, seed=0, every=20):
    """The gap where the run first looks done, or at its end: it stops early only to save time."""

    def stop(step, model):
        return step % every == 0 and example.gap(model) < tolerance / 2

    return example.gap(plan.run(seed=seed, callback=stop).model)


# --- the references themselves --------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("model", MODELS)
def test_the_reference_agrees_with_scikit_learn(model, shape):
    # A wrong oracle would bless a wrong library: it must match code that nobody here wrote.
    example = instance(model, shape)
    loss, l1, l2 = MODELS[model]
    X, y, rows = example.target.X, example.target.y, len(example.target.y)
    common = {"fit_intercept": False, "tol": 1e-14, "max_iter": 200_000}
    if model == "huber":
        # scikit-learn's Huber regression estimates a scale as well. Instead: Huber is a Lasso in z and one shift a row,
        # whose shifts weigh as much as the slope at which Huber turns linear.
        wide = np.hstack([X, np.eye(rows) * (l1 * rows / reference.HUBER)])
        peer = linear_model.Lasso(alpha=l1, **common).fit(wide, y).coef_[: X.shape[1]]
    elif loss == "squared" and l1:
        peer = linear_model.ElasticNet(alpha=l1 + l2, l1_ratio=l1 / (l1 + l2), **common).fit(X, y).coef_
    elif loss == "squared":
        peer = linear_model.Ridge(alpha=l2 * rows, solver="cholesky", fit_intercept=False).fit(X, y).coef_
    elif l2:
        peer = linear_model.LogisticRegression(C=1 / (rows * l2), solver="newton-cholesky", **common).fit(X, y).coef_[0]
    else:
        saga = {"solver": "saga", "l1_ratio": 1.0, "random_state": 0, **common, "tol": 1e-10, "max_iter": 20_000}
        peer = linear_model.LogisticRegression(C=1 / (rows * l1), **saga).fit(X, y).coef_[0]
    assert -1e-13 < example.gap(peer) < 1e-10


@pytest.mark.parametrize("items", ITEMS)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("clip", [None, 0.3])
def test_the_objective_of_a_problem_is_the_stated_one(model, items, clip):
    # Users weighted wrongly, rows sorted without their targets, a factor 2 in a loss, a cut at C instead of C/|a|.
    example = instance(model, items=items, clip=clip)
    for seed in range(3):
        z = np.random.default_rng(seed).normal(size=example.problem.features)
        # A truncated loss may differ by a constant where its slope is never within the limit; here it always is.
        assert example.problem.objective(z) == pytest.approx(example.target(z), rel=1e-12)
        smooth = example.target.gradient(z) - example.target.l2 * z
        np.testing.assert_allclose(example.problem.gradient(z), smooth, atol=1e-13)


# --- methods in which everything moves at every step ----------------------------------------------------------------

EVERYTHING_MOVES = {
    "dp_sgd": lambda e: methods.dp_sgd(e.problem, 20_000, 1 / e.smoothness[0], noise_std=0),
    "dp_cd": lambda e: methods.dp_cd(e.problem, 60_000, 1 / e.smoothness[1], noise_std=0),
    "private_admm": lambda e: methods.private_admm(e.problem, 1000, e.gamma, noise_std=0),
    "centralized_admm": lambda e: methods.centralized_admm(e.problem, 2000, e.gamma, noise_std=0),
    "federated_admm": lambda e: methods.federated_admm(e.problem, 2000, e.gamma, 0.8, noise_std=0),
    "federated_admm sum": lambda e: methods.federated_admm(
        e.problem, 2000, e.gamma, noise="sum", clip_residual=1e6, noise_std=0
    ),
    "anchored_admm": lambda e: methods.anchored_admm(e.problem, 2000, e.gamma, radius=1e6, noise_std=0),
}


@pytest.mark.parametrize("items", ITEMS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("method", EVERYTHING_MOVES)
def test_every_method_reaches_the_optimum(method, model, shape, items):
    # A wrong prox, weight, step or mean ends elsewhere; wrong batches or padding of users show with unequal sizes, the
    # Woodbury branch with fewer rows than features.
    example = instance(model, shape, items)
    assert abs(final_gap(EVERYTHING_MOVES[method](example), example, EXACT)) < EXACT


@pytest.mark.parametrize("relaxation", [0.2, 0.9, "per step"])
def test_the_relaxation_does_not_move_the_optimum(relaxation):
    # A relaxation applied to a part of the step only (the message, not the block) has other fixed points.
    example = instance("lasso", items="users by rows")
    steps = 600
    if relaxation == "per step":
        relaxation = list(np.linspace(0.2, 0.9, steps))
    for plan in (
        methods.private_admm(example.problem, steps, 10.0, relaxation, noise_std=0),
        methods.centralized_admm(example.problem, steps, 3.0, relaxation, noise_std=0),
        methods.anchored_admm(example.problem, steps, 3.0, relaxation, radius=1e6, noise_std=0),
    ):
        assert abs(example.gap(plan.run(seed=0).model)) < EXACT


# --- methods in which a part moves ----------------------------------------------------------------------------------


def ring_with_chords(users):
    graph = nx.cycle_graph(users)
    graph.add_edges_from((k, (k + users // 2) % users) for k in range(0, users, 2) if users > 4)
    return graph


def central(schedule):
    return lambda problem, **call: methods.centralized_admm(
        problem, schedule=problem.items // 3 if schedule == "subset" else schedule, **call
    )


def walk(graph):
    return lambda problem, steps, **call: methods.decentralized_admm(problem, steps, graph=graph(problem.items), **call)


def federated(**sampling):
    return lambda problem, steps, **call: methods.federated_admm(problem, steps, **sampling, **call)


def anchored(**sampling):
    return lambda problem, steps, **call: methods.anchored_admm(problem, steps, radius=1e6, **sampling, **call)


A_PART_MOVES = {
    "cyclic": central("cyclic"),
    "permuted": central("permuted"),
    "single": central("single"),
    "subset": central("subset"),
    "federated size": federated(sample_size=2),
    "federated prob": federated(sample_prob=0.3),
    "federated sum": federated(sample_prob=0.3, noise="sum", clip_residual=1e6),
    "walk": walk(lambda users: "complete"),
    "walk on a ring": walk(nx.cycle_graph),
    "walk on a graph": walk(ring_with_chords),
    "anchored prob": anchored(sample_prob=0.3),
    "anchored size": anchored(sample_size=2),
}


def plan_of(example, method):
    """The plan of a method, and how near the optimum it must end."""
    if method in EVERYTHING_MOVES:
        return EVERYTHING_MOVES[method](example), EXACT
    return A_PART_MOVES[method](example.problem, steps=60_000, gamma=example.gamma / 3, noise_std=0), SAMPLED


@pytest.mark.parametrize("items", ITEMS)
@pytest.mark.parametrize("model", ["lasso", "l2 logistic"])
@pytest.mark.parametrize("method", A_PART_MOVES)
def test_sampled_methods_reach_the_optimum(method, model, items):
    # The mean must stay the mean of *all* blocks: dividing by the sample, forgetting a weight or carrying z instead of
    # zhat (erratum 3) ends elsewhere.
    example = instance(model, "tall", items)
    plan, tolerance = plan_of(example, method)
    assert abs(final_gap(plan, example, tolerance, every=100)) < tolerance


@pytest.mark.parametrize("items", ["records", "users by rows"])
@pytest.mark.parametrize("model", ["ridge", "elastic net", "l1 logistic", "huber"])
@pytest.mark.parametrize("method", ["subset", "federated prob", "walk", "anchored prob"])
def test_sampled_methods_reach_the_optimum_of_every_loss(method, model, items):
    # As above, with more features than rows: users' proxes go through the Woodbury identity.
    example = instance(model, "wide", items)
    plan, tolerance = plan_of(example, method)
    assert abs(final_gap(plan, example, tolerance, every=100)) < tolerance


# --- intercept, sparse rows, declared norms -------------------------------------------------------------------------

EVERY_KIND = [*EVERYTHING_MOVES, "permuted", "federated prob", "walk"]


@pytest.mark.parametrize("model", ["lasso", "elastic net", "l2 logistic"])
@pytest.mark.parametrize("method", EVERY_KIND)
def test_an_intercept_is_fitted_and_not_penalised(method, model):
    # The penalty must spare the last coordinate in every method's own prox, ridge_in_loss included.
    example = instance(model, intercept=True)
    plan, tolerance = plan_of(example, method)
    assert abs(final_gap(plan, example, tolerance)) < tolerance


def test_an_intercept_is_that_of_scikit_learn():
    # The constant column must be 1, and the last coordinate the intercept.
    example = instance("lasso", intercept=True)
    X, y = example.target.X[:, :-1], example.target.y
    peer = linear_model.Lasso(alpha=MODELS["lasso"][1], tol=1e-14, max_iter=100_000).fit(X, y)
    model = methods.private_admm(example.problem, 500, 10.0, noise_std=0).run(seed=0).model
    coefficients, intercept = example.problem.split(model)
    np.testing.assert_allclose(coefficients, peer.coef_, atol=1e-7)
    assert intercept == pytest.approx(peer.intercept_, abs=1e-7)


@pytest.mark.parametrize("items", ITEMS)
@pytest.mark.parametrize("method", EVERY_KIND)
def test_sparse_rows_reach_the_optimum(method, items):
    # Sparse rows have code of their own in every prox and gradient.
    example = instance("lasso", items=items, sparse=True)
    plan, tolerance = plan_of(example, method)
    assert abs(final_gap(plan, example, tolerance)) < tolerance


@pytest.mark.parametrize("storage", ["csr_array", "csc_array", "coo_array", "csr_matrix", "duplicates"])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_sparse_input_equals_dense_input(loss, grouped, storage):
    # The same iterates with noise, whatever the storage: entries stored twice are added, an empty row moves nothing,
    # long rows are scaled the same way.
    rng = np.random.default_rng(3)
    X = rng.normal(size=(15, 6)) * (rng.random((15, 6)) < 0.4)
    X[4] = 0
    y = reference.labels(X, 3) if loss == "logistic" else reference.numbers(X, 3)
    if storage == "duplicates":
        whole = scipy.sparse.csr_array(X)
        sparse = scipy.sparse.csr_array(
            (np.repeat(whole.data / 2, 2), np.repeat(whole.indices, 2), 2 * whole.indptr), shape=X.shape
        )
    else:
        sparse = getattr(scipy.sparse, storage)(X)
    facts = {
        "loss": loss,
        "regularizer": L1(0.02),
        "groups": rng.integers(4, size=15) if grouped else None,
        "row_norm": 1.5,
        "clip": 0.4,
    }
    dense, same = hp.Problem(X, y, **facts), hp.Problem(sparse, y, **facts)
    for method, call in {
        "dp_sgd": {"steps": 15, "step_size": 0.5, "sample_prob": 0.5},
        "dp_cd": {"steps": 15},
        "dp_fedavg": {"rounds": 8, "local_steps": 3, "local_step_size": 0.4, "clip_update": 0.3},
        "private_admm": {"steps": 8, "gamma": 2.0},
        "centralized_admm": {"steps": 8, "gamma": 2.0, "schedule": 3},
        "anchored_admm": {"rounds": 8, "gamma": 2.0},
        "decentralized_admm": {"hops": 15, "gamma": 2.0},
    }.items():
        runs = [getattr(methods, method)(p, noise_std=0.1, **call).run(seed=5).model for p in (dense, same)]
        np.testing.assert_allclose(runs[0], runs[1], atol=1e-7 if grouped or method == "private_admm" else 1e-12)


@pytest.mark.parametrize("items", ITEMS)
@pytest.mark.parametrize("method", ["dp_sgd", "private_admm", "centralized_admm", "anchored_admm"])
def test_rows_longer_than_the_declared_norm_are_scaled_down(method, items):
    # Targets must not be scaled along, and the intercept's constant counts in the length.
    example = instance("huber", items=items, intercept=True, row_norm=0.9)
    plan, tolerance = plan_of(example, method)
    assert abs(final_gap(plan, example, tolerance)) < tolerance


# --- what is placed where -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ridge_in_loss", [True, False])
@pytest.mark.parametrize("items", ITEMS)
@pytest.mark.parametrize("model", ["ridge", "elastic net", "l2 logistic"])
def test_a_ridge_counts_once_wherever_it_sits(model, items, ridge_in_loss):
    # A ridge counted twice, lost, or scaled by the weights when it moves from r into the losses.
    example = instance(model, items=items)
    placed = {"ridge_in_loss": ridge_in_loss, "noise_std": 0}
    for plan, tolerance in (
        (methods.private_admm(example.problem, 1000, example.gamma, **placed), EXACT),
        (methods.centralized_admm(example.problem, 2000, example.gamma / 3, **placed), EXACT),
        (methods.federated_admm(example.problem, 9000, example.gamma / 3, sample_prob=0.4, **placed), SAMPLED),
        (methods.decentralized_admm(example.problem, 60_000, example.gamma / 3, **placed), SAMPLED),
    ):
        assert abs(final_gap(plan, example, tolerance, every=50)) < tolerance


@pytest.mark.parametrize("items", ITEMS)
@pytest.mark.parametrize("model", ["lasso", "ridge", "l2 logistic", "huber"])
@pytest.mark.parametrize("method", [*EVERYTHING_MOVES, "subset"])
def test_a_clipped_problem_has_the_optimum_of_the_truncated_losses(method, model, items):
    # Clipping a step or a user instead of truncating each row's loss (theory 3c) has other fixed points.
    clip = 0.2 if model == "l2 logistic" else 0.5
    example = instance(model, items=items, clip=clip)
    # The clip must matter, or this would test nothing.
    slopes = np.abs(reference.Scalar(example.target.loss.kind).slope(example.target.X @ example.best, example.target.y))
    assert (slopes > example.target.loss.limit).sum() >= 3
    plan, tolerance = plan_of(example, method)
    assert abs(final_gap(plan, example, tolerance)) < tolerance


@pytest.mark.parametrize("items", ITEMS)
@pytest.mark.parametrize(
    ("model", "facts"),
    [
        ("l1 logistic", {"row_norm": 2.5}),
        ("l2 logistic", {"row_norm": 1.0}),
        ("huber", {"row_norm": 2.5}),
        ("lasso", {"clip": 0.5}),
    ],
)
@pytest.mark.parametrize("sample_prob", [1.0, 0.3])
def test_the_default_radius_of_anchored_admm_does_not_move_the_optimum(model, facts, items, sample_prob):
    # radius = gamma L must be enough at relaxation 1/2, the tolerance of the prox included, also for a sample.
    example = instance(model, items=items, **facts)
    plan = methods.anchored_admm(example.problem, 9000, example.gamma / 3, sample_prob=sample_prob, noise_std=0)
    assert plan.operator.radius == pytest.approx(example.gamma / 3 * example.problem.facts.gradient_bound)
    tolerance = EXACT if sample_prob == 1 else SAMPLED
    assert abs(final_gap(plan, example, tolerance)) < tolerance


def test_a_radius_too_small_does_move_the_optimum():
    # Without this, the test above would also pass if the radius were ignored.
    example = instance("lasso")
    plan = methods.anchored_admm(example.problem, 500, 3.0, radius=0.05, noise_std=0)
    assert example.gap(plan.run(seed=0).model) > 1e-3


# --- general ADMM ---------------------------------------------------------------------------------------------------


def regression(rows=40, features=8, seed=4):
    X = reference.table(rows, features, seed)
    rng = np.random.default_rng(seed)
    steps = np.repeat([2.0, -1.0, 0.0], [3, 2, features - 5])
    return X, X @ steps + 0.2 * rng.normal(size=rows)


def differences(features):
    return np.diff(np.eye(features), axis=0)


def assert_reaches(plan, best, objective, tolerance=EXACT):
    result = plan.run(seed=0)
    value = objective(best)
    assert abs(objective(result.model) - value) < tolerance * value
    assert plan.objective(best) == pytest.approx(value, rel=1e-9)
    np.testing.assert_allclose(result.model, best, atol=1e-4)


@pytest.mark.parametrize("ratio", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("relaxation", [0.5, 0.9])
def test_fused_lasso(ratio, relaxation):
    # A tall A: a model read off z instead of x, A' forgotten in the x step. The penalty |x|_1 + ratio |D x|_1 is the L1
    # norm of [I; ratio D] x.
    X, y = regression()
    A, strength = np.vstack([np.eye(8), ratio * differences(8)]), 0.02
    best, duality_gap = reference.analysis_lasso(X, y, A, strength)
    assert duality_gap < 1e-13
    assert np.sum(np.abs(np.diff(best)) < 1e-10) >= 2  # some neighbours are fused
    plan = methods.private_admm(hp.Problem(X, y), 2000, 3.0, relaxation, A=A, penalty=L1(strength), noise_std=0)

    def objective(x):
        return ((X @ x - y) ** 2).mean() / 2 + strength * np.abs(A @ x).sum()

    assert_reaches(plan, best, objective)


def test_fused_lasso_as_a_lasso_in_the_jumps():
    # A penalty that reaches the free coordinate: only the jumps D x are penalised, and z = (x_0, D x). scikit-learn
    # solves it once the free column is projected out.
    X, y = regression()
    A, strength = np.vstack([np.eye(8)[:1], differences(8)]), 0.02
    back = np.linalg.inv(A)  # x = cumulative sums of z
    columns = X @ back
    free = columns[:, :1]
    project = np.eye(len(y)) - free @ np.linalg.pinv(free)
    lasso = linear_model.Lasso(alpha=strength, fit_intercept=False, tol=1e-15, max_iter=200_000)
    jumps = lasso.fit(project @ columns[:, 1:], project @ y).coef_
    start = np.linalg.lstsq(free, y - columns[:, 1:] @ jumps, rcond=None)[0]
    best = back @ np.concatenate([start, jumps])
    plan = methods.private_admm(
        hp.Problem(X, y), 3000, 1.0, A=A, penalty=GroupL1(strength, tuple((k,) for k in range(1, 8))), noise_std=0
    )

    def objective(x):
        return ((X @ x - y) ** 2).mean() / 2 + strength * np.abs(np.diff(x)).sum()

    assert_reaches(plan, best, objective)


@pytest.mark.parametrize("clip", [None, 0.3])
@pytest.mark.parametrize("loss", ["logistic", "huber"])
def test_fused_models_of_other_losses(loss, clip):
    # Newton's method in the x step must use A'A, with a ridge beside it.
    X, y = regression()
    if loss == "logistic":
        y = reference.labels(X, 4)
    A, strength, ridge = np.vstack([np.eye(8)[:1], differences(8)]), 0.01, 0.02
    back = np.linalg.inv(A)
    problem = hp.Problem(X, y, loss=loss, regularizer=L2(ridge), clip=clip)
    direct = reference.objective(X, y, loss, l2=ridge, clip=clip)

    def objective(x):
        return direct(x) + strength * np.abs(A @ x).sum()

    plan = methods.private_admm(problem, 1500, 5.0, A=A, penalty=L1(strength), noise_std=0)
    # Certified in z = A x: a subgradient s of an m-strongly convex function bounds the gap by |s|^2/(2 m).
    model = plan.run(seed=0).model
    z = A @ model
    moved = np.abs(z) > 1e-6
    gradient = back.T @ direct.gradient(model)
    shortest = np.where(moved, gradient + strength * np.sign(z), np.maximum(np.abs(gradient) - strength, 0))
    convexity = ridge * np.linalg.svd(back, compute_uv=False)[-1] ** 2
    assert shortest @ shortest / (2 * convexity) < EXACT * objective(model)
    assert 0 < moved.sum() < 8
    assert plan.objective(model) == pytest.approx(objective(model), rel=1e-9)


@pytest.mark.parametrize("with_offset", [False, True])
@pytest.mark.parametrize("with_a", [False, True])
def test_general_b_and_c(with_a, with_offset):
    # B with B'B no multiple of the identity has no prox: its z step is a Lasso of its own. With x = A^-1 (c - B z) the
    # problem is a Lasso in z.
    X, y = regression(features=6)
    rng = np.random.default_rng(5)
    B = np.eye(6) + 0.2 * rng.normal(size=(6, 6))
    A = np.eye(6) + 0.2 * rng.normal(size=(6, 6)) if with_a else None
    c = rng.normal(size=6) if with_offset else None
    inverse = np.eye(6) if A is None else np.linalg.inv(A)
    offset = np.zeros(6) if c is None else c
    strength = 0.15
    target = reference.objective(-X @ inverse @ B, y - X @ inverse @ offset, l1=strength)
    z = reference.optimum(target)
    assert 0 < np.sum(z == 0) < 6
    plan = methods.private_admm(hp.Problem(X, y), 150, 5.0, A=A, B=B, c=c, penalty=L1(strength), noise_std=0)
    forward = np.eye(6) if A is None else A

    def objective(x):
        return target(np.linalg.solve(B, offset - forward @ x))

    assert_reaches(plan, inverse @ (offset - B @ z), objective)


def test_an_offset_alone():
    # x - z = c penalises x - c; a c that reaches only one of the two steps ends elsewhere.
    X, y = regression(features=6)
    c = np.linspace(-1, 1, 6)
    target = reference.objective(X, y - X @ c, l1=0.05)
    best = c + reference.optimum(target)
    plan = methods.private_admm(hp.Problem(X, y), 500, 5.0, c=c, penalty=L1(0.05), noise_std=0)
    assert_reaches(plan, best, lambda x: target(x - c))


@pytest.mark.parametrize("scales", ["equal", "unequal"])
def test_tall_b(scales):
    # Two copies of every constraint x = z, one of them scaled: B is tall, with B'B a multiple of the identity or not.
    X, y = regression(features=6)
    factor = np.diag(np.full(6, 2.0) if scales == "equal" else np.linspace(0.5, 2.0, 6))
    A = np.vstack([np.eye(6), factor])
    best = linear_model.Lasso(alpha=0.03, fit_intercept=False, tol=1e-15, max_iter=100_000).fit(X, y).coef_

    def objective(x):
        return ((X @ x - y) ** 2).mean() / 2 + 0.03 * np.abs(x).sum()

    plan = methods.private_admm(hp.Problem(X, y), 200, 10.0, A=A, B=-A, penalty=L1(0.03), noise_std=0)
    assert_reaches(plan, best, objective)


# --- methods that end near the optimum, not at it -------------------------------------------------------------------


@pytest.mark.parametrize("sampling", [{"sample_prob": 0.2}, {"sample_size": 10}])
def test_the_floor_of_sampled_dp_sgd_falls_with_the_step(sampling):
    # The variance floor is about proportional to the step. A sample drawn once and kept, or divided by the wrong size,
    # leaves a bias that does not fall.
    example = instance("lasso")

    def floor(step, steps):
        run = methods.dp_sgd(example.problem, steps, step, noise_std=0, **sampling).run(seed=7, history=True)
        return run.history["objective"][steps // 2 :].mean() / example.value - 1

    floors = [floor(0.8, 1000), floor(0.2, 2000), floor(0.05, 4000)]
    assert floors[0] > 1e-3
    assert floors[1] < floors[0] / 2
    assert floors[2] < floors[1] / 2


def test_sampled_dp_sgd_with_falling_steps_reaches_the_optimum():
    # The mean over samples must be the whole gradient, users weighted by rows included.
    example = instance("ridge", items="users by rows")
    steps = 4000
    sizes = 1 / (1 + 0.1 * np.arange(steps))
    model = methods.dp_sgd(example.problem, steps, sizes, sample_prob=0.5, noise_std=0).run(seed=1).model
    assert example.gap(model) < 1e-3


@pytest.mark.parametrize(("items", "graph"), [("records", "complete"), ("users", "complete"), ("users", "ring")])
def test_the_stateless_walk_ends_near_and_nearer_with_a_smaller_gamma(items, graph):
    # It keeps no state, so a constant gamma leaves a bias; a sign or a factor in the step would leave one that stays.
    example = instance("ridge", items=items)
    graph = nx.cycle_graph(example.problem.items) if graph == "ring" else graph

    def gap(gamma, hops):
        plan = methods.stateless_walk(example.problem, hops, gamma, graph=graph, noise_std=0, tail_average=0.5)
        return example.gap(plan.run(seed=2).model)

    gaps = [gap(4.0, 600), gap(0.8, 1000), gap(0.1, 3000)]
    assert gaps[0] > 2 * gaps[1] > 4 * gaps[2] > 0
    assert gaps[2] < 1e-2
