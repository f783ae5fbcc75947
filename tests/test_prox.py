"""Proximal steps of data are what they say: minimisers, to a certified distance, for every loss and shape of data.

The reference is independent of the library: derivatives are written out again here, a minimiser is certified by the
optimality condition (the objective is strongly convex, so a small gradient is a small distance), and SciPy finds it
once more. All data comes from fixed seeds; the bounds are theorems, so there are no false alarms beyond rounding.
"""

import math
import re
from unittest import mock

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

import hushpoint as hp
from hushpoint import methods
from hushpoint.engine import RunFailed
from hushpoint.kernels import whole
from hushpoint.kernels.users import UsersProx
from hushpoint.losses import Absolute, Huber, Logistic, Quantile, SmoothedHinge, Squared
from hushpoint.operators import newton
from hushpoint.operators.newton import ProxNotSolved
from hushpoint.operators.prox import ItemsProx, RowProx, WholeProx

few = settings(derandomize=True, deadline=None, max_examples=15)
seeds = st.integers(0, 2**32 - 1)
gammas = st.floats(-2, 2).map(lambda exponent: 10.0**exponent)
ridges = st.sampled_from([0.0, 0.3, 5.0])

# loss -> its derivative in t, written out again
LOSSES = {
    "squared": (Squared(), lambda t, b: t - b),
    "logistic": (Logistic(), lambda t, b: -b * expit(-b * t)),
    "huber": (Huber(0.9), lambda t, b: np.clip(t - b, -0.9, 0.9)),
    "smoothed hinge": (SmoothedHinge(0.4), lambda t, b: -b * np.clip((1 - b * t) / 0.4, 0, 1)),
    "quantile": (Quantile(0.7, smoothing=0.2), lambda t, b: np.clip((t - b) / 0.2, -0.7, 0.3)),
}
TWO_CLASS = ("logistic", "smoothed hinge")
smooth_losses = pytest.mark.parametrize("name", LOSSES)
clips = pytest.mark.parametrize("clip", [None, 0.5])
solvers = pytest.mark.parametrize("solver", ["compiled", "numpy"])
storages = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])


def make_problem(rng, name, rows, width, clip=None, sparse=False, groups=None, row_norm=2.0):
    X = rng.normal(size=(rows, width)) * 10 ** rng.uniform(-1, 0.7, size=(rows, 1))
    if sparse:
        X = scipy.sparse.csr_array(X * (rng.random((rows, width)) < 0.5))
    y = rng.choice([-1.0, 1.0], size=rows) if name in TWO_CLASS else rng.normal(size=rows) * 3
    if name in TWO_CLASS:
        y[:2] = -1.0, 1.0
    return hp.Problem(X, y, LOSSES[name][0], row_norm=row_norm, clip=clip, groups=groups)


def dense(problem):
    features = problem.rows.features
    return features.toarray() if scipy.sparse.issparse(features) else features


def slopes(problem, name, rows, x):
    """Derivatives of the row losses, cut where the gradient of a row would be longer than the clip."""
    features = dense(problem)[rows]
    slope = LOSSES[name][1](features @ x, problem.rows.targets[rows])
    if problem.facts.clip is None:
        return slope
    lengths = np.linalg.norm(features, axis=1)
    limit = np.divide(problem.facts.clip, lengths, out=np.full(len(lengths), np.inf), where=lengths > 0)
    return np.clip(slope, -limit, limit)


def gradient(problem, name, rows, weights, gamma, ridge, A, v, x):
    """Gradient of ``sum_j weight_j phi_j(a_j.x) + ridge/2 |x|^2 + |A x - v|^2/(2 gamma)``."""
    A = np.eye(len(x)) if A is None else A
    return dense(problem)[rows].T @ (weights * slopes(problem, name, rows, x)) + ridge * x + A.T @ (A @ x - v) / gamma


def distance_bound(A, gamma, ridge, pull):
    """How far a point with this gradient can be from the minimiser, measured by ``|A (x - x*)|``."""
    if A is None:
        return gamma * float(np.linalg.norm(pull)) / (1 + gamma * ridge)
    return gamma * float(np.linalg.norm(pull)) / float(np.linalg.svd(A, compute_uv=False)[-1])


def scipy_minimiser(problem, name, rows, weights, gamma, ridge, A, v):
    """The minimiser once more, by SciPy from 0, on values that are integrals of the derivatives above."""
    loss = problem.rows.loss
    features, targets = dense(problem)[rows], problem.rows.targets[rows]
    if problem.rows.limits is not None:
        loss = loss.truncated(problem.rows.limits[rows])
    square = np.eye(features.shape[1]) if A is None else A

    def value(x):
        gap = square @ x - v
        return weights @ loss.value(features @ x, targets) + ridge / 2 * x @ x + gap @ gap / (2 * gamma)

    def slope(x):
        return gradient(problem, name, rows, weights, gamma, ridge, A, v, x)

    start = scipy.optimize.minimize(value, np.zeros(features.shape[1]), jac=slope, method="BFGS").x
    return scipy.optimize.root(slope, start, tol=1e-13).x


def users_prox(solver, *arguments):
    """The prox of users, compiled or by NumPy, which losses of one's own still need."""
    if solver == "compiled":
        return ItemsProx(*arguments)
    with mock.patch("hushpoint.operators.prox._compiled_users", return_value=None):
        return ItemsProx(*arguments)


SHAPES = {"tall": (30, 4), "wide": (5, 9), "square": (6, 6)}


def constraint(rng, kind, width):
    if kind == "identity":
        return None
    rows = width + 3 if kind == "tall" else width
    return rng.normal(size=(rows, width)) + 2 * np.eye(rows, width)


# --- The whole data set ----------------------------------------------------------------------------------------------


@storages
@clips
@smooth_losses
@given(
    seed=seeds,
    gamma=gammas,
    ridge=ridges,
    shape=st.sampled_from(list(SHAPES)),
    kind=st.sampled_from(["identity", "square", "tall"]),
)
@few
def test_whole_prox_meets_the_optimality_condition(name, clip, sparse, seed, gamma, ridge, shape, kind):
    # catches: weights, ridge, A or gamma in the wrong place of the gradient, sparse and dense that differ
    rng = np.random.default_rng(seed)
    rows, width = SHAPES[shape]
    problem = make_problem(rng, name, rows, width, clip, sparse)
    weights = rng.dirichlet(np.ones(rows))
    A = constraint(rng, kind, width)
    tolerance = 1e-8 * gamma
    prox = WholeProx(problem.rows, weights, gamma, ridge, A, tolerance)
    v = rng.normal(size=width if A is None else len(A)) * 5
    x = prox.solve(v, rng.normal(size=width) * 3)
    pull = gradient(problem, name, slice(None), weights, gamma, ridge, A, v, x)
    rounding = 1e-12 * (1 + np.linalg.norm(v))
    if A is not None:
        rounding *= np.linalg.cond(A) ** 2
    assert distance_bound(A, gamma, ridge, pull) <= tolerance * (1 + 1e-6) + rounding


@storages
@clips
@smooth_losses
def test_whole_prox_is_the_minimiser_that_scipy_finds(name, clip, sparse):
    # catches: an optimality condition that is the wrong one on both sides: values are compared here
    rng = np.random.default_rng(3)
    for rows, width in ((12, 3), (3, 5)):
        problem = make_problem(rng, name, rows, width, clip, sparse)
        weights = rng.dirichlet(np.ones(rows))
        for kind in ("identity", "tall"):
            A = constraint(rng, kind, width)
            v = rng.normal(size=width if A is None else len(A)) * 3
            x = WholeProx(problem.rows, weights, 0.7, 0.2, A, 1e-10).solve(v, np.zeros(width))
            reference = scipy_minimiser(problem, name, slice(None), weights, 0.7, 0.2, A, v)
            np.testing.assert_allclose(x, reference, atol=1e-7)


@clips
@smooth_losses
def test_whole_prox_of_many_points_is_that_of_each(name, clip):
    # catches: problems solved together that see each other's points
    rng = np.random.default_rng(5)
    problem = make_problem(rng, name, 8, 3, clip)
    prox = WholeProx(problem.rows, problem.row_weights, 2.0, 0.1, None, 1e-11)
    points = rng.normal(size=(6, 3)) * 10 ** rng.uniform(-1, 2, size=(6, 1))
    together = prox.solve(points, np.zeros(3))
    alone = np.stack([prox.solve(point, np.zeros(3)) for point in points])
    np.testing.assert_allclose(together, alone, atol=1e-9)


def test_whole_prox_of_nothing_is_the_identity():
    # catches: a data set without influence that moves the model all the same
    problem = hp.Problem(np.zeros((4, 3)), np.arange(4.0), "huber", row_norm=1.0)
    v = np.array([1.0, -2.0, 3.0])
    np.testing.assert_array_equal(WholeProx(problem.rows, problem.row_weights, 2.0, 0.0, None, 1e-9).solve(v, v), v)
    np.testing.assert_allclose(
        WholeProx(problem.rows, problem.row_weights, 2.0, 0.5, None, 1e-12).solve(v, v), v / 2, atol=1e-11
    )


# --- One row an item -------------------------------------------------------------------------------------------------


@storages
@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("name", LOSSES)
@given(seed=seeds, gamma=gammas, ridge=ridges)
@few
def test_row_prox_meets_the_optimality_condition(name, clip, sparse, seed, gamma, ridge):
    # catches: |a| for |a|^2 in the scalar equation, the ridge's shrinkage of point or step left out
    rng = np.random.default_rng(seed)
    problem = make_problem(rng, name, 7, 4, clip, sparse)
    points = rng.normal(size=(7, 4)) * 10 ** rng.uniform(-1, 2, size=(7, 1))
    found = RowProx(problem.rows, gamma, ridge).solve(slice(None), points.copy(), np.zeros(4))
    for row in range(7):
        one = slice(row, row + 1)
        pull = gradient(problem, name, one, np.ones(1), gamma, ridge, None, points[row], found[row])
        # the scalar equation is solved to 1e-12 of its margin, and divided by the length of the row
        length = max(1e-3, np.linalg.norm(dense(problem)[row]))
        slack = 1e-11 * (1 + np.linalg.norm(points[row])) * (1 + gamma * length**2) / length
        assert distance_bound(None, gamma, ridge, pull) <= slack


@pytest.mark.parametrize("sparse", [False, True])
def test_row_prox_of_the_absolute_loss_is_the_clipped_step(sparse):
    # catches: the kink: x = v - gamma a sign(...) where that does not cross it, else on it (brute force by minimising)
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(40, 3)), rng.normal(size=40)
    problem = hp.Problem(scipy.sparse.csr_array(X) if sparse else X, y, Absolute(), row_norm=5.0)
    points, gamma = rng.normal(size=(40, 3)) * 2, 0.3
    found = RowProx(problem.rows, gamma, 0.0).solve(slice(None), points.copy(), np.zeros(3))
    kinks = 0
    for x, v, a, b in zip(found, points, X, y, strict=True):
        best = v + (x - v) @ a / (a @ a) * a  # the step is along the row
        np.testing.assert_allclose(x, best, atol=1e-12)
        line = np.linspace(-1, 1, 20001) * gamma
        values = np.abs(a @ v + line * (a @ a) - b) + line**2 * (a @ a) / (2 * gamma)
        np.testing.assert_allclose(x, v + line[values.argmin()] * a, atol=1e-4 * np.linalg.norm(a))
        kinks += abs(a @ x - b) < 1e-9
    assert 0 < kinks < 40


def test_row_prox_of_chosen_items_is_theirs():
    # catches: items taken by position: the rows of one person moved by the data of another
    rng = np.random.default_rng(1)
    for sparse in (False, True):
        problem = make_problem(rng, "huber", 9, 3, None, sparse)
        points = rng.normal(size=(9, 3))
        prox = RowProx(problem.rows, 0.7, 0.1)
        everyone = prox.solve(slice(None), points.copy(), np.zeros(3))
        chosen = np.array([7, 2, 4])
        np.testing.assert_array_equal(prox.solve(chosen, points[chosen], np.zeros(3)), everyone[chosen])


def test_row_prox_of_a_row_of_zeros_is_the_identity():
    # catches: 0/0 in the direction of the step
    problem = hp.Problem([[0.0, 0.0], [1.0, 0.0]], [1.0, 2.0], "huber", row_norm=1.0, clip=0.5)
    points = np.array([[9.0, -4.0], [9.0, -4.0]])
    found = RowProx(problem.rows, 2.0, 0.0).solve(slice(None), points.copy(), np.zeros(2))
    np.testing.assert_array_equal(found[0], points[0])
    np.testing.assert_allclose(found[1], [8.0, -4.0])  # the displacement clipped at gamma C = 1


# --- Users with several rows -----------------------------------------------------------------------------------------


@solvers
@storages
@clips
@smooth_losses
@given(seed=seeds, gamma=gammas, ridge=ridges, width=st.sampled_from([2, 8]))
@few
def test_items_prox_meets_the_optimality_condition(solver, name, clip, sparse, seed, gamma, ridge, width):
    # catches: padding that weighs, rows of another user, a mean that is a sum, Woodbury on the wrong side
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 16, size=6)  # wide (fewer rows than features) and tall users in one problem
    groups = np.repeat(np.arange(6), counts)
    problem = make_problem(rng, name, len(groups), width, clip, sparse, groups)
    tolerance = 1e-8 * gamma * 10 ** rng.uniform(-1, 1, size=6)
    prox = users_prox(solver, problem.rows, gamma, ridge, tolerance)
    points = rng.normal(size=(6, width)) * 10 ** rng.uniform(-1, 1, size=(6, 1))
    found = prox.solve(slice(None), points.copy(), rng.normal(size=width))
    offsets = problem.rows.offsets
    for item in range(6):
        rows = slice(offsets[item], offsets[item + 1])
        weights = np.full(counts[item], 1 / counts[item])
        pull = gradient(problem, name, rows, weights, gamma, ridge, None, points[item], found[item])
        rounding = 1e-12 * (1 + np.linalg.norm(points[item])) * (1 + 4 * gamma)
        assert distance_bound(None, gamma, ridge, pull) <= tolerance[item] * (1 + 1e-6) + rounding
    chosen = np.array([4, 0, 5])
    np.testing.assert_allclose(
        prox.solve(chosen, points[chosen], np.zeros(width)), found[chosen], atol=2.1 * tolerance.max() + 1e-9
    )


@solvers
@clips
@smooth_losses
def test_items_prox_is_the_minimiser_that_scipy_finds(solver, name, clip):
    # catches: the same mistake in a prox and in its optimality condition
    rng = np.random.default_rng(4)
    groups = np.array([0, 0, 0, 0, 1, 1, 2])
    for width in (2, 6):
        problem = make_problem(rng, name, 7, width, clip, False, groups)
        points = rng.normal(size=(3, width)) * 3
        found = users_prox(solver, problem.rows, 0.7, 0.2, np.full(3, 1e-10)).solve(
            slice(None), points.copy(), np.zeros(width)
        )
        for item in range(3):
            rows = np.flatnonzero(groups == item)
            weights = np.full(len(rows), 1 / len(rows))
            reference = scipy_minimiser(problem, name, rows, weights, 0.7, 0.2, None, points[item])
            np.testing.assert_allclose(found[item], reference, atol=1e-7)


@solvers
@smooth_losses
def test_users_of_one_row_are_records(solver, name):
    # catches: two code paths for the same prox that disagree
    rng = np.random.default_rng(2)
    X = rng.normal(size=(5, 3))
    y = np.array([-1.0, 1.0, 1.0, -1.0, 1.0])
    alone, grouped = (hp.Problem(X, y, LOSSES[name][0], row_norm=1.0, groups=g) for g in (None, np.arange(5)))
    points = rng.normal(size=(5, 3)) * 3
    one = RowProx(alone.rows, 2.0, 0.1).solve(slice(None), points.copy(), np.zeros(3))
    two = users_prox(solver, grouped.rows, 2.0, 0.1, np.full(5, 1e-11)).solve(slice(None), points.copy(), np.zeros(3))
    np.testing.assert_allclose(one, two, atol=1e-10)


@solvers
def test_one_user_with_all_rows_is_the_whole_data_set(solver):
    # catches: a user's mean that is not the mean of the whole data set
    rng = np.random.default_rng(2)
    for name in LOSSES:
        problem = make_problem(rng, name, 9, 3, None, False, np.zeros(9, dtype=int))
        v = rng.normal(size=3) * 3
        one = users_prox(solver, problem.rows, 2.0, 0.1, np.full(1, 1e-11)).solve(
            slice(None), v[None, :].copy(), np.zeros(3)
        )
        two = WholeProx(problem.rows, problem.row_weights, 2.0, 0.1, None, 1e-11).solve(v, np.zeros(3))
        np.testing.assert_allclose(one[0], two, atol=1e-10)


def test_items_prox_needs_users():
    # catches: records sent to the slow path without a word
    with pytest.raises(ValueError, match="RowProx"):
        ItemsProx(make_problem(np.random.default_rng(0), "huber", 4, 2).rows, 1.0, 0.0, np.ones(4))


# --- The certified distance is exact at its edge ---------------------------------------------------------------------


@solvers
def test_a_guess_is_accepted_at_its_tolerance_and_not_beyond(solver):
    # catches: a stopping rule off by any factor (gamma, 1 + gamma ridge, w): the guess below is at a known distance.
    # Losses without curvature there: the gradient at the guess is exactly (1 + gamma ridge)/gamma times the distance.
    X, far = np.tile([1.0, 0.0, 0.0], (6, 1)), np.full(6, 1e6)
    problem = hp.Problem(X, far, "huber", row_norm=1.0)
    tall = hp.Problem(X, far, "huber", row_norm=1.0, groups=[0, 0, 0, 1, 1, 1])
    wide = hp.Problem(X, far, "huber", row_norm=1.0, groups=[0, 0, 1, 1, 2, 2])  # fewer rows than features
    A = np.array([[2.0, 0.1, 0.0], [0.0, 1.0, 0.3], [0.2, 0.0, 0.4], [0.0, 0.0, 0.1]])
    left, values, right = np.linalg.svd(A, full_matrices=False)
    v, tolerance = np.array([1.0, 2.0, -1.0]), 1e-2
    for gamma in (0.1, 30.0):
        for ridge in (0.0, 0.7):
            whole = WholeProx(problem.rows, problem.row_weights, gamma, ridge, None, tolerance)
            items = users_prox(solver, tall.rows, gamma, ridge, np.full(2, tolerance))
            few_rows = users_prox(solver, wide.rows, gamma, ridge, np.full(3, tolerance))
            for solve in (
                lambda guess, prox=whole: prox.solve(v, guess),
                lambda guess, prox=items: prox.solve(slice(None), np.tile(v, (2, 1)), guess)[1],
                lambda guess, prox=few_rows: prox.solve(slice(None), np.tile(v, (3, 1)), guess)[1],
            ):
                exact = (v + gamma * 1.345 * np.eye(3)[0]) / (1 + gamma * ridge)
                for share, kept in ((0.999, True), (1.001, False)):
                    guess = exact + share * tolerance * np.array([0.0, 0.6, 0.8])
                    found = solve(guess)
                    assert np.array_equal(found, guess) is kept
                    assert np.linalg.norm(found - exact) <= tolerance
    # general A, along its smallest singular value: |A (guess - exact)| is the tolerance there
    gamma = 2.0
    prox = WholeProx(problem.rows, problem.row_weights, gamma, 0.0, A, tolerance)
    point = np.array([1.0, 2.0, -1.0, 0.5])
    exact = np.linalg.lstsq(A, point, rcond=None)[0] + gamma * 1.345 * np.linalg.solve(A.T @ A, np.eye(3)[0])
    for share, kept in ((0.999, True), (1.001, False)):
        guess = exact + share * tolerance / values[-1] * right[-1]
        found = prox.solve(point, guess)
        assert np.array_equal(found, guess) is kept
        assert np.linalg.norm(A @ (found - exact)) <= tolerance
    assert left.shape == (4, 3)


@solvers
@clips
@smooth_losses
@given(seed=seeds, gamma=gammas, ridge=ridges, exponent=st.floats(-6, 1))
@few
def test_computed_proxes_are_within_the_tolerance(solver, name, clip, seed, gamma, ridge, exponent):
    # catches: a certificate that holds for the gradient and not for the point
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(3), (1, 4, 9))
    problem = make_problem(rng, name, 14, 4, clip, False, groups)
    tolerance = gamma * 10**exponent
    v = rng.normal(size=4) * 5
    weights = problem.row_weights
    rough, fine = (
        WholeProx(problem.rows, weights, gamma, ridge, None, tol).solve(v, np.zeros(4))
        for tol in (tolerance, 1e-11 * gamma)
    )
    assert np.linalg.norm(rough - fine) <= tolerance + 1e-10 * gamma
    points = rng.normal(size=(3, 4)) * 5
    rough, fine = (
        users_prox(solver, problem.rows, gamma, ridge, np.full(3, tol)).solve(slice(None), points.copy(), np.zeros(4))
        for tol in (tolerance, 1e-11 * (1 + gamma))
    )
    assert np.linalg.norm(rough - fine, axis=1).max() <= tolerance + 1e-10 * (1 + gamma)


# --- Newton from bad places ------------------------------------------------------------------------------------------


@solvers
@clips
@smooth_losses
@pytest.mark.parametrize("gamma", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("start", [0.0, 1e3, 1e6])
def test_newton_converges_from_bad_starts(solver, name, clip, gamma, start):
    # catches: undamped Newton (it diverges on the logistic loss), a search that stalls where values drown in rounding
    rng = np.random.default_rng(8)
    for _ in range(4):
        groups = np.repeat(np.arange(3), (2, 5, 12))
        problem = make_problem(rng, name, 19, 4, clip, False, groups, row_norm=1.0)
        tolerance = 1e-6 * gamma / 19 + 1e-13 * start  # the library's default, and the rounding of a far point
        guess, v = start * rng.normal(size=4), rng.normal(size=4) * 3
        x = WholeProx(problem.rows, problem.row_weights, gamma, 0.0, None, tolerance).solve(v, guess)
        pull = gradient(problem, name, slice(None), problem.row_weights, gamma, 0.0, None, v, x)
        assert distance_bound(None, gamma, 0.0, pull) <= tolerance * (1 + 1e-6) + 1e-9 * (name == "squared")
        points = np.tile(v, (3, 1))
        found = users_prox(solver, problem.rows, gamma, 0.0, np.full(3, tolerance)).solve(slice(None), points, guess)
        for item, rows in enumerate((slice(0, 2), slice(2, 7), slice(7, 19))):
            weights = np.full(rows.stop - rows.start, 1 / (rows.stop - rows.start))
            pull = gradient(problem, name, rows, weights, gamma, 0.0, None, v, found[item])
            assert distance_bound(None, gamma, 0.0, pull) <= tolerance * (1 + 1e-6) + 1e-9 * (name == "squared")


@clips
@smooth_losses
@pytest.mark.parametrize("gamma", [1e-3, 1.0, 1e3])
def test_newton_converges_for_points_far_away(name, clip, gamma):
    # catches: exponentials that overflow, or a flat loss in whose tail the first steps are not damped enough
    rng = np.random.default_rng(9)
    for distance in (1e2, 1e4):
        problem = make_problem(rng, name, 10, 3, clip, row_norm=1.0)
        v = distance * rng.normal(size=3)
        tolerance = 1e-6 * gamma + 1e-12 * distance
        x = WholeProx(problem.rows, problem.row_weights, gamma, 0.0, None, tolerance).solve(v, v)
        pull = gradient(problem, name, slice(None), problem.row_weights, gamma, 0.0, None, v, x)
        assert distance_bound(None, gamma, 0.0, pull) <= 2 * tolerance


STEEP = {
    # narrow bends far apart, next to no curvature from 1/gamma: found by random search, all well posed
    "two rows": (1e-4, 1e4, [[1.3, 0.9], [-2.5, -0.5]], [-868.0, 841.0], [-1642.0, 224.0]),
    "three rows": (1e-4, 1e5, [[0.0, 0.3], [-0.4, -0.8], [-0.3, 0.8]], [44.0, -10.0, -255.0], [95.0, 129.0]),
    "four rows": (
        1e-3,
        1e5,
        [[-2.1, 1.5], [2.5, -0.6], [0.7, -0.3], [0.1, -0.3]],
        [-35.0, 30.0, 8.0, 56.0],
        [61.0, -8.0],
    ),
    "five rows, unit scale": (
        1e-4,
        1e5,
        [[0.7, 0.0], [0.3, -2.0], [0.1, 0.6], [0.3, -0.6], [-3.1, 0.6]],
        [0.0, 1.0, 1.0, 0.0, 0.0],
        [-1.0, -1.0],
    ),
}


@pytest.mark.parametrize("case", STEEP)
def test_newton_does_not_zigzag_between_narrow_bends(case):
    # catches: backtracking that degrades to steepest descent: theory 3d wants a solver that cannot fail, since a
    # failure depends on the data and its probability would have to be added to delta
    smoothing, gamma, X, y, v = STEEP[case]
    problem = hp.Problem(X, y, Quantile(0.5, smoothing=smoothing), row_norm=1.0)
    v = np.array(v)
    tolerance = 1e-6 * problem.facts.gradient_bound * gamma / len(y)  # the library's default
    x = WholeProx(problem.rows, problem.row_weights, gamma, 0.0, None, tolerance).solve(v, v)
    margins = problem.rows.features @ x - problem.rows.targets
    pull = problem.rows.features.T @ np.clip(margins / smoothing, -0.5, 0.5) / len(y) + (x - v) / gamma
    assert gamma * np.linalg.norm(pull) <= tolerance * (1 + 1e-6)


# --- What cannot be solved -------------------------------------------------------------------------------------------


def awkward_problem(groups=None):
    rng = np.random.default_rng(6)
    X = rng.normal(size=(12, 3))
    y = np.where(X[:, 0] + rng.normal(size=12) > 0, 1.0, -1.0)
    return hp.Problem(X, y, "logistic", row_norm=1.0, groups=groups)


def no_numbers_of_data(message, problem):
    numbers = [float(number) for number in re.findall(r"\d+\.\d+(?:e[-+]?\d+)?", message)]
    assert numbers == [], f"{message!r} prints numbers"
    for value in (*dense(problem).ravel(), *problem.rows.targets):
        assert repr(float(value)) not in message


@solvers
def test_an_impossible_tolerance_raises(solver):
    # catches: a prox returned though it is not as good as the guarantee says
    problem, users = awkward_problem(), awkward_problem(np.arange(12) // 4)
    v = np.array([30.0, -20.0, 10.0])
    with pytest.raises(ProxNotSolved, match="larger tolerance") as caught:
        WholeProx(problem.rows, problem.row_weights, 3.0, 0.0, None, 1e-300).solve(v, v)
    no_numbers_of_data(str(caught.value), problem)
    with pytest.raises(ProxNotSolved, match="larger tolerance") as caught:
        users_prox(solver, users.rows, 3.0, 0.0, np.full(3, 1e-300)).solve(slice(None), np.tile(v, (3, 1)), v)
    no_numbers_of_data(str(caught.value), users)


def failing_from(call, monkeypatch):
    """Make the solver fail at its so-manieth call, and only then."""
    calls = []

    def counted(honest):
        def sometimes(*arguments):
            calls.append(None)
            if len(calls) == call:
                raise ProxNotSolved("not solved; nothing of this step was released.")
            return honest(*arguments)

        return sometimes

    monkeypatch.setattr("hushpoint.operators.prox.minimise", counted(newton.minimise))
    monkeypatch.setattr("hushpoint.kernels.whole.approach", counted(whole.approach))
    monkeypatch.setattr(UsersProx, "solve", counted(UsersProx.solve))


@pytest.mark.parametrize("method", ["private", "centralized", "anchored", "stateless"])
def test_a_failed_run_can_go_on_where_it_stood(method, monkeypatch):
    # catches: a state that has half a step in it, or noise of the failed step that is drawn anew (seeded runs)
    users = awkward_problem(np.arange(12) // 4)
    common = {"gamma": 3.0, "noise_std": 0.5}
    plan = {
        "private": lambda: methods.private_admm(users, 6, **common),
        "centralized": lambda: methods.centralized_admm(users, 6, **common),
        "anchored": lambda: methods.anchored_admm(users, 6, **common),
        "stateless": lambda: methods.stateless_walk(users, 6, **common),
    }[method]()
    whole = plan.run(seed=4)
    failing_from(4, monkeypatch)
    with pytest.raises(RunFailed, match="step 4: not solved") as caught:
        plan.run(seed=4)
    no_numbers_of_data(str(caught.value), users)
    state = caught.value.state
    assert state is not None
    assert state.steps == 3
    rest = plan.run(state=state)
    np.testing.assert_array_equal(rest.model, whole.model)
    np.testing.assert_array_equal(rest.state.blocks, whole.state.blocks)
    np.testing.assert_array_equal(rest.state.participations, whole.state.participations)


def test_a_run_with_an_impossible_tolerance_fails():
    # catches: the solver's failure swallowed by the engine, or raised as something that callers do not expect
    problem = awkward_problem()
    plan = methods.private_admm(problem, 5, 3.0, noise_std=0.5, tolerance=1e-300)
    with pytest.raises(RunFailed, match=r"step \d: .*tolerance") as caught:  # a first step from 0 may be exact
        plan.run(seed=1)
    assert isinstance(caught.value, RuntimeError)
    assert isinstance(caught.value.__cause__, ProxNotSolved)
    no_numbers_of_data(str(caught.value), problem)
    state = caught.value.state
    assert str(caught.value).startswith(f"step {state.steps + 1}:")
    done = methods.private_admm(problem, max(1, state.steps), 3.0, noise_std=0.5, tolerance=1e-9).run(seed=1).state
    expected = done.blocks if state.steps else np.zeros_like(state.blocks)
    np.testing.assert_allclose(state.blocks[0], expected[0], atol=1e-7)  # u; the rest is what the prox remembers


def test_a_step_that_had_begun_leaves_no_state(monkeypatch):
    # catches: a state with the new blocks of some users and the old ones of others, offered as one to continue from
    users = awkward_problem(np.arange(12) // 4)
    plan = methods.centralized_admm(users, 6, 3.0, noise_std=0.5)
    plan.operator.chunk = 1  # one user at a time
    failing_from(5, monkeypatch)  # the second user of the second step
    with pytest.raises(RunFailed, match="step 2") as caught:
        plan.run(seed=4)
    assert caught.value.state is None


def test_default_tolerances_are_those_of_the_guarantee():
    # catches: a default that is not divided by n in 3a, or that tells the most rows of a user in 3b
    problem, users = awkward_problem(), awkward_problem(np.arange(12) // 4)
    assert methods.private_admm(problem, 5, 3.0, noise_std=1.0).operator.tolerance == pytest.approx(1e-6 * 3.0 / 12)
    assert methods.centralized_admm(problem, 5, 3.0, noise_std=1.0).operator.tolerance == 0
    assert methods.centralized_admm(users, 5, 3.0, noise_std=1.0).operator.tolerance == pytest.approx(1e-9 * 3.0)
    assert methods.private_admm(problem, 5, 3.0, noise_std=1.0, tolerance=0.1).operator.tolerance == 0.1
    for bad in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="tolerance is"):
            methods.private_admm(problem, 5, 3.0, noise_std=1.0, tolerance=bad)
