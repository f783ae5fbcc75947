"""Gradient sums and moments of whole numbers: exact, bounded in integers, and a function of each item alone."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import hushpoint as hp
from hushpoint._compiled import loop
from hushpoint.estimators import planner
from hushpoint.estimators.planner import plan_parameters
from hushpoint.estimators.training import Answer, Link, chain, follow
from hushpoint.kernels.integers import Slopes, _whole_slopes, rounded
from hushpoint.lattice import rounded_normals
from hushpoint.losses import ClassWeighted, Logistic
from hushpoint.noise import seeded_source
from hushpoint.operators.lattice_gradient import GradientGrid, LatticeGradient
from hushpoint.operators.lattice_moments import LatticeMeanSquare, LatticeMoments
from hushpoint.plan import Plan
from hushpoint.problem import Problem
from hushpoint.rows import RowGrid, Turn, integer_rows

NORM = 2.0


def strange_rows(rng: np.random.Generator, count: int, width: int) -> Any:
    """Rows of every kind: ordinary, zero, tiny, denormal, far too long, along an axis, exactly as long as declared."""
    rows = rng.normal(size=(count, width))
    kind = rng.integers(8, size=count)
    rows[kind == 1] = 0.0
    rows[kind == 2] *= 1e-130
    rows[kind == 3] *= 1e-310
    rows[kind == 4] *= 1e150
    rows[kind == 5] = NORM * np.eye(width)[0]
    rows[kind == 6] *= NORM / np.linalg.norm(rows[kind == 6], axis=1, keepdims=True)
    return rows


def a_problem(
    seed: int, users: bool, loss: Any = "logistic", rows: int = 40, sparse: bool = False, **more: Any
) -> Problem:
    rng = np.random.default_rng(seed)
    X = strange_rows(rng, rows, 5)
    y = np.where(rng.random(rows) < 0.5, 1.0, -1.0)
    owners = np.sort(rng.integers(9, size=rows)) if users else None
    features = scipy.sparse.csr_array(X) if sparse else X
    classes = None if loss in ("squared", "huber") else (-1.0, 1.0)
    return Problem(features, y, loss, row_norm=NORM, groups=owners, classes=classes, **more)


def gradient_of(problem: Problem) -> LatticeGradient:
    return LatticeGradient(problem.facts, 1.0, problem.items, GradientGrid.of(problem.facts))


def total_of(operator: Any, problem: Problem, point: Any, look: Any = lambda rows: rows) -> Any:
    rows = operator.prepare(look(problem.rows))
    return operator.move(rows, slice(None), np.zeros((problem.items, 0)), point, 1.0, None, None)[1]


# --- 1. exact


@pytest.mark.parametrize("users", [False, True], ids=["records", "users"])
@pytest.mark.parametrize("loss", ["logistic", "smoothed_hinge", ClassWeighted(Logistic(), 0.3, 7.0)])
def test_a_sum_of_gradients_is_that_of_pythons_integers(loss: Any, users: bool) -> None:
    """Would catch: a partial sum beyond 2^53, a slope that depends on its place, a row that is cut differently."""
    for seed in range(6):
        problem = a_problem(seed, users, loss, sparse=seed % 2 == 1)
        operator = gradient_of(problem)
        rows = operator.prepare(problem.rows)
        point = np.random.default_rng(seed + 100).normal(size=5) * 10.0 ** (seed - 2)
        whole, power = rounded(point)
        table = [[int(entry) for entry in row] for row in rows.store[:]]
        share = 2.0**operator.grid.slope_exponent
        code = problem.facts.loss
        total = [0] * 5
        for i, row in enumerate(table):
            margin = sum(a * int(w) for a, w in zip(row, whole, strict=True))
            t = math.ldexp(float(margin), -(power + operator.grid.rows.exponent))
            owner = int(np.searchsorted(problem.rows.offsets, i, side="right")) - 1 if users else i
            slope = float(code.derivative(np.array(t), np.array(rows.targets[i]))) * share / rows.counts[owner]
            limit = int(rows.slope_limits[i])
            own = min(max(slope, -limit), limit)
            found = operator.local(rows, np.array([owner]), np.zeros((1, 0)), point, 1.0, None)[1]
            assert found.dtype == np.int64
            if not users:  # the slope by itself, from the row's message
                k = int(np.argmax(np.abs(row)))
                whole_slope = int(found[0, k]) // row[k] if row[k] else 0
                assert whole_slope * np.array(row) == pytest.approx(found[0], abs=0)
                assert abs(whole_slope - own) <= 1 + 1e-12 * abs(own)
            if not users or i == problem.rows.offsets[owner]:  # type: ignore[index]
                total = [a + int(b) for a, b in zip(total, found[0], strict=True)]
        assert total == [int(entry) for entry in total_of(operator, problem, point)]


@pytest.mark.parametrize("scale", [1e-285, 1e-200, 1e-162, 1e-154, 1.0, 1e154, 1e300])
def test_a_rounded_point_is_never_longer_than_33_bits(scale: float) -> None:
    """Would catch: a length from squares that vanish or overflow, after which partial sums are beyond 2^53."""
    for width in (1, 7, 1000):
        point = np.random.default_rng(width).normal(size=width) * scale
        whole, power = rounded(point)
        assert sum(int(entry) ** 2 for entry in whole) <= 1 << 66
        assert (whole == np.rint(whole)).all()
        assert np.abs(whole).max() >= 2**31 / math.sqrt(width)
        np.testing.assert_allclose(np.ldexp(whole, -power), point, rtol=0, atol=scale * math.sqrt(width) * 2.0**-29)
    for nothing in (
        [0.0, 0.0],
        [1e-300, 0.0],
        [math.nan, 1.0],
        [1.0, math.nan, 2.0],
        [math.inf, math.nan, 1.0],
        [1.0, -math.inf],
    ):
        assert not rounded(np.array(nothing))[0].any()


def slopes_at(slopes: Any, margins: Any, start: int, end: int) -> Any:
    out = np.zeros(64)
    out[: end - start] = margins[start:end]
    arrays = slopes.targets, slopes.limits, slopes.shares
    _slopes_of(arrays, (slopes.loss, slopes.weights), (3.0, 5.0, 2.0**-30, 1), start, end, out)
    return out[: end - start]


@loop
def _slopes_of(arrays, losses, setting, start, end, out):  # type: ignore[no-untyped-def]
    _whole_slopes(arrays, losses, setting, start, end, out)


@pytest.mark.parametrize("loss", ["logistic", "smoothed_hinge", "huber", ClassWeighted(Logistic(), 0.3, 7.0)])
def test_a_slope_does_not_depend_on_its_place(loss: Any) -> None:
    """To the last of 53 bits, which cutting to 20 of them would hide: lanes of a vector that round differently."""
    rng = np.random.default_rng(0)
    code, weights = a_problem(0, False, loss).facts.loss.slope_code  # type: ignore[misc]
    targets, margins = np.where(rng.random(64) < 0.5, 1.0, -1.0), np.rint(rng.normal(size=64) * 2.0**31)
    slopes = Slopes(code, weights, targets, np.full(64, 2.0**53), np.array([2.0**50]), 1)
    together = slopes_at(slopes, margins, 0, 64)
    assert len(np.unique(together)) > 1
    for i in range(64):
        assert slopes_at(slopes, margins, i, i + 1)[0] == together[i]
    for start in range(1, 9):
        np.testing.assert_array_equal(slopes_at(slopes, margins, start, 64), together[start:])


def test_many_long_messages_are_added_exactly() -> None:
    """Rows along one axis with steep slopes: sums far beyond 2^53, of odd numbers that rounding would change."""
    n = 70_000
    X = np.zeros((n, 3))
    X[:, 0] = NORM * (1 - (np.arange(n) % 8) * 2.0**-19)
    problem = Problem(X, np.ones(n), "logistic", row_norm=NORM, classes=(-1.0, 1.0))
    operator, point = gradient_of(problem), np.array([-3.0, 0, 0])
    each = operator.local(operator.prepare(problem.rows), np.arange(8), np.zeros((8, 0)), point, 1.0, None)[1]
    assert abs(int(each[0, 0])) * n > 1 << 53
    assert (each[:, 0] % 2 == 1).any()
    total = total_of(operator, problem, point)
    assert [int(entry) for entry in total] == [n // 8 * sum(map(int, column)) for column in each.T]


@pytest.mark.parametrize("users", [False, True], ids=["records", "users"])
@pytest.mark.parametrize("diagonal", [False, True])
def test_moments_are_those_of_pythons_integers(users: bool, diagonal: bool) -> None:
    problem = a_problem(3, users)
    operator = LatticeMoments(problem.facts, 0.5, diagonal)
    rows = operator.prepare(problem.rows)
    grid = operator.grid
    shares = np.repeat((1 << grid.shares) // rows.counts, rows.counts)
    expected: dict[tuple[int, int], int] = {}
    for row, share in zip(rows.store[:], shares, strict=True):
        entries = [math.trunc(entry / 2**grid.coarse) for entry in row] + [grid.rows.constant >> grid.coarse]
        for j in range(6):
            for k in range(j, 6):
                expected[j, k] = expected.get((j, k), 0) + int(share) * entries[j] * entries[k]
    found = total_of(operator, problem, np.zeros(1))
    if diagonal:
        assert [int(entry) for entry in found] == [29 * expected[j, j] for j in range(5)]
    else:
        order = [(j, k) for j in range(6) for k in range(j, 6)][:-1]
        assert [int(entry) for entry in found] == [(29 if j == k else 41) * expected[j, k] for j, k in order]


def test_a_turned_sum_is_that_of_pythons_integers() -> None:
    rng = np.random.default_rng(0)
    for size in (1, 3, 40):
        for weights in (rng.normal(size=(size, size)) * 10.0 ** rng.integers(-5, 5), rng.random(size) + 1e-3):
            turn = Turn.of(weights)
            total = rng.integers(-(1 << 61), 1 << 61, size=size)
            matrix = np.diag(turn.matrix) if turn.diagonal else turn.matrix
            for least in (31, 50, 60):
                shift = turn.allowed_shift(least)
                exact = [sum(int(w) * int(t) for w, t in zip(row, total, strict=True)) >> shift for row in matrix]
                if all(abs(entry) < 1 << 63 for entry in exact):
                    assert [int(entry) for entry in turn.shifted(total, shift)] == exact


# --- 2. bounded


@pytest.mark.parametrize("weights", ["items", "rows"])
@pytest.mark.parametrize("users", [False, True], ids=["records", "users"])
@pytest.mark.parametrize("loss", ["logistic", "squared", ClassWeighted(Logistic(), 0.1, 50.0)])
def test_no_item_sends_more_than_k(loss: Any, users: bool, weights: Any) -> None:
    """Would catch: limits that forget a user's other rows, a class weight after the cut, K computed in floats."""
    for seed in range(5):
        problem = a_problem(seed, users, loss, clip=0.7, weights=weights)
        operator = gradient_of(problem)
        rows = operator.prepare(problem.rows)
        counted = problem.facts.row_counts if weights == "rows" else np.ones(problem.items)
        for scale in (0.0, 1.0, 1e9):
            point = scale * np.random.default_rng(seed).normal(size=5)
            sent = operator.local(rows, slice(None), np.zeros((problem.items, 0)), point, 1.0, None)[1]
            for message, count in zip(sent, counted, strict=True):
                assert sum(int(entry) ** 2 for entry in message) <= (int(operator.longest) * int(count)) ** 2
        claimed = operator.certificate(1.0).shift(problem.facts.unit, "zero-out")
        assert claimed == math.ldexp(operator.longest, -operator.grid.fine) * counted.max()


def test_the_bound_is_reached() -> None:
    """So that the test above can fail."""
    problem = Problem(NORM * np.eye(2), [1.0, -1.0], "logistic", row_norm=NORM, clip=0.7)
    operator = gradient_of(problem)
    sent = operator.local(
        operator.prepare(problem.rows), slice(None), np.zeros((2, 0)), np.array([-9.0, 9.0]), 1.0, None
    )[1]
    assert np.linalg.norm(sent, axis=1).min() >= operator.longest * (1 - 1e-4)


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("users", [False, True], ids=["records", "users"])
def test_turned_messages_and_moments_keep_their_bounds(
    users: bool, diagonal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every plan of a training: two neighbours' cut sums are no further apart than the certificate says."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        worlds = []
        rest = strange_rows(rng, 30, 4)
        for side in range(2):
            mine = strange_rows(rng, 1 + 4 * side if users else 1, 4)
            owners = np.r_[np.zeros(len(mine)), 1 + np.arange(30) // 3] if users else None
            y = np.where(np.arange(30 + len(mine)) % 2, 1.0, -1.0)
            worlds.append(Problem(np.vstack([mine, rest]), y, "logistic", row_norm=NORM, groups=owners))
        if diagonal:
            monkeypatch.setattr(planner, "_LARGEST_FULL", 0)
        parameters = plan_parameters(worlds[0].items, 4, 2.0)
        links = chain(worlds[0].facts, parameters, fit_intercept=True)

        def ask(place: int, link: Link, rng: Any = rng, worlds: Any = worlds) -> Answer:
            operator = link.plan.operator
            allowed = operator.certificate(1.0).shift(worlds[0].facts.unit, "replace-one")
            for scale in (0.0, 1.0, 1e4):
                point = scale * rng.normal(size=operator.message_size)
                cuts = [operator.cut(total_of(operator, world, point, link.look)) for world in worlds]
                assert np.linalg.norm((cuts[0] - cuts[1]).astype(float)) * operator.unit <= allowed
            released = np.abs(rng.normal(size=operator.message_size)) + 0.1
            return Answer(released, released)

        _, passed = follow(links, ask)
        assert passed[0].part == ("means" if diagonal else "second moments")
        assert passed[-1].part == "calibration"


def test_the_mean_square_is_bounded_by_its_certificate() -> None:
    problem = a_problem(1, True)
    operator = LatticeMeanSquare(problem.facts, 0.5)
    sent = operator.local(
        operator.prepare(problem.rows), slice(None), np.zeros((problem.items, 0)), np.zeros(1), 1.0, None
    )[1]
    assert (sent >= 0).all()
    assert sent.max() * operator.unit <= operator.certificate(1.0).shift("user", "zero-out")


def test_a_row_beyond_its_norm_counts_as_nothing() -> None:
    """Rows of a problem are scaled to the norm; a store that is not is cut off all the same."""
    from hushpoint.rows import ArrayRows

    grid = RowGrid.of(1.0)
    rows = integer_rows(ArrayRows(np.array([[1.0, 0.0], [1.0, 1e-3], [np.nan, 0.0], [1e300, 1e300]])), grid)
    assert rows[:].tolist() == [[2.0**19, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    assert rows.squared.tolist() == [2.0**38, 0.0, 0.0, 0.0]


# --- 3. to the bit


def fitted(X: Any, y: Any, **more: Any) -> Any:
    return hp.PrivateLogisticRegression(1.0, 1e-4, NORM, random_state=3, **more).fit(X, y).coef_


def test_a_model_does_not_depend_on_place_storage_or_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(3000, 7)) * (rng.random((3000, 7)) < 0.5)
    y = np.where(X[:, 0] + rng.normal(size=3000) > 0, 1.0, -1.0)
    for penalty in ("l2", "l1"):
        whole = fitted(X, y, penalty=penalty)
        order = rng.permutation(3000)
        np.testing.assert_array_equal(fitted(X[order], y[order], penalty=penalty), whole)
        np.testing.assert_array_equal(fitted(scipy.sparse.csr_array(X), y, penalty=penalty), whole)
        monkeypatch.setenv("HUSHPOINT_THREADS", "1")
        np.testing.assert_array_equal(fitted(X, y, penalty=penalty), whole)
        monkeypatch.delenv("HUSHPOINT_THREADS")
    np.save(tmp_path / "rows.npy", X)
    stores = [X, X[order], scipy.sparse.csr_array(X), np.load(tmp_path / "rows.npy", mmap_mode="r")]
    for options in ({}, {"sample_size": 3000}):
        models = []
        for features in stores:
            labels = y[order] if features is stores[1] else y
            problem = Problem(features, labels, "logistic", row_norm=NORM, classes=(-1.0, 1.0))
            models.append(hp.methods.dp_sgd(problem, 5, 1.0, noise_std=0.1, lattice=True, **options).run(seed=1).model)
        monkeypatch.setattr("hushpoint.rows.store._NUMBERS", 1 << 9)
        problem = Problem(stores[3], y, "logistic", row_norm=NORM, classes=(-1.0, 1.0))
        models.append(hp.methods.dp_sgd(problem, 5, 1.0, noise_std=0.1, lattice=True, **options).run(seed=1).model)
        for model in models[1:]:
            np.testing.assert_array_equal(model, models[0])


def test_a_model_does_not_depend_on_the_threads_of_linear_algebra() -> None:
    code = (
        "import numpy as np, hushpoint as hp; r = np.random.default_rng(0); X = r.normal(size=(400, 150));"
        "m = hp.PrivateLogisticRegression(5.0, 1e-3, 12.0, random_state=0, alpha=0.01).fit(X, X[:, 0] > 0);"
        "print(m.coef_.tobytes().hex())"
    )
    found = set()
    for threads in ("1", "2"):
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": threads, "HUSHPOINT_THREADS": threads}
        run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        found.add(run.stdout)
    assert len(found) == 1


# --- 4. what is said of it


def test_the_noise_of_a_plan_is_drawn_exactly_and_at_the_stated_scale() -> None:
    """Would catch: normals in floating point that are rounded afterwards, or small whole numbers times the scale."""
    plan = hp.methods.dp_sgd(a_problem(2, False), 3, 1.0, noise_std=0.7, lattice=True)
    source = seeded_source(4)
    for step in range(3):
        drawn = plan.noise.drawn(source, "sum", step, 5)
        np.testing.assert_array_equal(drawn, rounded_normals(source, "sum", (0,), step, 5, plan.noise.scale))
    assert plan.noise.scale * plan.noise.unit == plan.noise.std >= 0.7 * 40 * (1 - 1e-13)


def test_a_cut_of_the_sum_is_paid_for() -> None:
    """Two sums that differ by a message of length K differ by up to sqrt(p) more after they were rounded down."""
    operator = gradient_of(a_problem(1, False))
    for bits in (1, 7, 20):
        coarse = operator.coarser(bits)
        low = np.full(5, (1 << bits) - 1)
        apart = np.linalg.norm(coarse.cut(low + np.ones(5, dtype=np.int64)) - coarse.cut(low)) * coarse.unit
        assert apart == pytest.approx(math.sqrt(5) * coarse.unit)
        for adjacency, times in (("replace-one", 2), ("zero-out", 1)):
            least = times * Fraction(operator.longest) * Fraction(operator.unit)
            stated = Fraction(coarse.certificate(1.0).shift("record", adjacency))
            assert stated >= least + Fraction(math.sqrt(5)) * Fraction(coarse.unit)
            assert operator.certificate(1.0).shift("record", adjacency) == least


@pytest.mark.parametrize("made", ["dp_sgd", "dp_cd", "dp_fedavg", "anchored_admm"])
def test_noise_that_leaves_nothing_of_a_message_is_refused_in_words(made: str) -> None:
    problem = a_problem(2, True)
    more = {"dp_sgd": (1.0,), "dp_cd": (1.0,), "dp_fedavg": (2, 0.1, 1.0), "anchored_admm": (1.0,)}[made]
    for noise_std in (1e20, 1e300):
        with pytest.raises(ValueError, match=r"nothing of a message is left\. Pass less noise.*lattice=False"):
            getattr(hp.methods, made)(problem, 3, *more, noise_std=noise_std, lattice=True)
    with pytest.raises(ValueError, match=r"nothing of a message is left"):
        hp.PrivateLogisticRegression(1e-12, 1e-13, NORM).fit(np.eye(5), [0, 1, 0, 1, 0])


@pytest.mark.parametrize("options", [{}, {"sample_prob": 0.1}, {"sample_size": 4}])
@pytest.mark.parametrize("users", [False, True], ids=["records", "users"])
def test_a_budget_is_kept_and_a_plan_comes_back_from_its_file(users: bool, options: Any) -> None:
    problem = a_problem(2, users)
    for epsilon in (0.01, 1.0, 30.0):
        plan = hp.methods.dp_sgd(problem, 20, 1.0, budget=hp.Budget(epsilon, 1e-5), lattice=True, **options)
        guarantee = plan.guarantee(1e-5)
        assert epsilon * (1 - 1e-3) <= guarantee.epsilon <= epsilon
        assert guarantee.arithmetic == "whole"
        assert "floating-point" not in str(guarantee)
        again = Plan.from_json(plan.to_json())
        assert again.noise == plan.noise
        assert again.guarantee(1e-5).epsilon == guarantee.epsilon


def test_without_noise_it_is_gradient_descent() -> None:
    problem = a_problem(4, True)
    real, whole = (
        hp.methods.dp_sgd(problem, 30, 1.0, noise_std=0.0, lattice=lattice).run(seed=0).model
        for lattice in (False, True)
    )
    np.testing.assert_allclose(whole, real, atol=1e-4 * np.abs(real).max())


def test_the_last_iterate_has_no_smaller_bound_on_the_lattice() -> None:
    problem = Problem.declared(100, 3, "logistic", regularizer=hp.regularizers.L2(0.1), row_norm=1.0)
    plan = hp.methods.dp_sgd(problem, 500, 1.0, noise_std=0.1, lattice=True)
    assert plan.guarantee(1e-5, view="final").epsilon == plan.guarantee(1e-5, view="iterates").epsilon


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"loss": "logistic"}, "row_norm is not declared"),
        ({"loss": "squared", "row_norm": 1.0}, "no bound on its gradient"),
        ({"loss": "logistic", "row_norm": 1e-200}, "far from 1"),
    ],
)
def test_what_has_no_lattice_says_why(made: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        hp.methods.dp_sgd(Problem.declared(10, 3, **made), 5, 1.0, noise_std=1.0, lattice=True)
    assert hp.methods.dp_sgd(Problem.declared(10, 3, **made), 5, 1.0, noise_std=1.0).noise.unit is None
