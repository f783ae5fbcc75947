"""The last step of a training: scale and offset of a model's scores (estimators/calibration.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import hushpoint as hp
from hushpoint.estimators import training
from hushpoint.estimators.calibration import Calibration
from hushpoint.estimators.metric import Metric, Moments
from hushpoint.estimators.planner import Parameters, plan_parameters
from hushpoint.problem import Problem

NORM = 3.0
LOSSES = pytest.mark.parametrize("loss", ["squared", "logistic"])


def some_data(loss: str, n: int = 5000) -> tuple[Any, Any, Any]:
    """Rows, targets, and the model that made them, its intercept last."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4)) * 0.7 + [0.5, 0.0, 0.0, 0.0]
    X *= np.minimum(1, NORM / np.linalg.norm(X, axis=1))[:, None]
    model = np.array([0.3, -0.3, 0.15, 0.0, -0.2] if loss == "squared" else [2.0, -2.0, 1.0, 0.0, -1.0])
    scores = X @ model[:-1] + model[-1]
    if loss == "squared":
        return X, np.clip(scores + 0.1 * rng.normal(size=n), -1, 1), model
    return X, np.where(rng.random(n) < 1 / (1 + np.exp(-scores)), 1.0, -1.0), model


def made_of(
    problem: Problem, model: Any, intercept: bool = True, diagonal: bool = False
) -> tuple[Calibration, Parameters]:
    """The calibration of a model, with moments that carry no noise."""
    plan = plan_parameters(problem.items, problem.features, 5.0, loss=problem.facts.loss, fit_intercept=intercept)
    constant = plan.constant * NORM if intercept else 0.0
    rows = problem.rows.store[:]
    centre = rows.mean(axis=0) if diagonal and intercept else None
    rows = np.column_stack([rows, np.full(len(rows), constant)]) if intercept else rows
    second = rows.T @ rows / len(rows)
    values, basis = np.linalg.eigh(second)
    if diagonal:
        basis, values = None, np.diag(second).copy()
        if centre is not None:
            values[:-1] -= centre**2
    moments = Moments(second, 1e-9, float(np.trace(second)), centre=centre)
    metric = Metric(basis, np.ones(plan.width), values, 1.0, 1.0, 1, moments)
    return Calibration.of(np.array(model), metric, constant, plan), plan


def calibrated(problem: Problem, model: Any, lattice: bool = True, **options: bool) -> Any:
    """The model with a new scale and offset, at a budget at which noise is small."""
    calibration, plan = made_of(problem, model, **options)
    last = training._calibration(calibration, problem.facts, plan, 5.0, lattice)
    assert last.facts is not None
    rows = calibration.look(last.facts, problem.rows)
    return calibration.applied(last.on(Problem.from_facts(last.facts).with_rows(rows)).run(seed=0).model)


def a_problem(loss: str, X: Any, y: Any, **more: Any) -> Problem:
    return Problem(X, y, loss, row_norm=NORM, classes=(-1.0, 1.0) if loss == "logistic" else None, **more)


@LOSSES
@pytest.mark.parametrize("lattice", [False, True], ids=["real numbers", "lattice"])
@pytest.mark.parametrize("diagonal", [False, True], ids=["full metric", "diagonal metric"])
@pytest.mark.parametrize(("scale", "offset"), [(0.3, 0.0), (3.0, 0.0), (1.0, 0.0), (0.5, 0.4)])
def test_scale_and_offset_are_found(loss: str, scale: float, offset: float, diagonal: bool, lattice: bool) -> None:
    """Would catch: a mean or deviation that is not undone, an offset beside the wrong scores."""
    X, y, model = some_data(loss)
    wrong = scale * model
    wrong[-1] += offset
    found = calibrated(a_problem(loss, X, y), wrong, lattice, diagonal=diagonal)
    assert found[:3] / model[:3] == pytest.approx(np.ones(3), abs=0.1)
    assert found[-1] == pytest.approx(model[-1], abs=0.15)


@LOSSES
@pytest.mark.parametrize("size", [1e-3, 1.0, 50.0])
def test_a_model_of_noise_is_taken_back(loss: str, size: float) -> None:
    X, y, model = some_data(loss)
    noise = size * np.random.default_rng(1).normal(size=5)
    noise[:4] -= model[:4] * (noise[:4] @ model[:4]) / (model[:4] @ model[:4])
    found = calibrated(a_problem(loss, X, y), noise)
    spread = [np.std(X @ one[:-1]) for one in (found, model)]
    assert spread[0] <= 0.1 * spread[1]
    # And what is left is the intercept that is best by itself.
    best = y.mean() if loss == "squared" else np.log((y > 0).mean() / (y < 0).mean())
    assert X.mean(axis=0) @ found[:-1] + found[-1] == pytest.approx(best, abs=0.05)


@LOSSES
def test_no_scale_is_negative(loss: str) -> None:
    """A model that points the wrong way is taken back, not turned round."""
    X, y, model = some_data(loss)
    assert not calibrated(a_problem(loss, X, y), -model)[:-1].any()


@LOSSES
def test_without_an_intercept_there_is_none_after_it(loss: str) -> None:
    """One column, no offset, and a model of the same direction."""
    X, y, model = some_data(loss)
    problem = a_problem(loss, X - X.mean(axis=0), y)
    calibration, _ = made_of(problem, 0.4 * model[:-1], intercept=False)
    assert calibration.mean == 0
    assert calibration.facts(problem.facts).features == 1
    found = calibrated(problem, 0.4 * model[:-1], intercept=False)
    assert found.shape == (4,)
    assert found[:3] / model[:3] == pytest.approx(np.full(3, found[0] / model[0]))
    assert found[0] / model[0] > 0.7


def test_a_model_that_says_nothing_does_no_harm() -> None:
    X, y, _ = some_data("squared")
    for nothing in (np.zeros(5), np.array([0, 0, 0, 0, 3.0]), np.full(5, 1e-200)):
        found = calibrated(a_problem("squared", X, y), nothing)
        assert np.isfinite(found).all()
        assert np.abs(found[:-1]).max() <= 1e-100
        assert found[-1] == pytest.approx(y.mean(), abs=0.05)


def test_a_score_is_to_the_bit_a_function_of_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch: products of a whole table, whose sums are in an order that other rows decide."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(400, 37)) * (rng.random((400, 37)) < 0.5) * 10.0 ** rng.uniform(-3, 3, size=(400, 1))
    y, model, order = np.ones(400), rng.normal(size=38), rng.permutation(400)
    np.save(tmp_path / "rows.npy", X)
    problem = a_problem("squared", X, y)
    calibration, _ = made_of(problem, model)
    facts = calibration.facts(problem.facts)

    def scores(features: Any) -> Any:
        return calibration.look(facts, a_problem("squared", features, y[: features.shape[0]]).rows).store[:]

    whole = scores(X)
    assert whole.shape == (400, 2)
    assert len(np.unique(whole[:, 0])) > 100
    assert (whole[:, 1] == 1).all()
    assert np.abs(whole[:, 0]).max() == 2  # some are cut
    np.testing.assert_array_equal(scores(X[order]), whole[order])
    np.testing.assert_array_equal(scores(scipy.sparse.csr_array(X)), whole)
    np.testing.assert_array_equal(scores(np.load(tmp_path / "rows.npy", mmap_mode="r")), whole)
    np.testing.assert_array_equal(np.vstack([scores(X[i : i + 1]) for i in range(400)]), whole)
    monkeypatch.setattr("hushpoint.rows.store._NUMBERS", 64)
    np.testing.assert_array_equal(scores(X.copy()), whole)


def test_no_row_of_scores_is_longer_than_declared() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(200, 4)) * 10.0 ** rng.uniform(-150, 150, size=(200, 1))
    for intercept in (True, False):
        for size in (1e-90, 1.0, 1e90):
            problem = a_problem("squared", X, np.ones(200))
            calibration, _ = made_of(problem, size * rng.normal(size=4 + intercept), intercept)
            facts = calibration.facts(problem.facts)
            rows = calibration.look(facts, problem.rows)
            lengths = (rows.store[:] ** 2).sum(axis=1)
            assert facts.row_norm is not None
            assert lengths.max() <= facts.row_norm**2 <= (5 if intercept else 4) * (1 + 1e-15)
            assert (rows.squared_norms >= lengths * (1 - 1e-15)).all()
            some = lengths > 0
            longest = rows.slope_limits[some] * np.sqrt(lengths[some])
            assert (longest <= calibration.clip * (1 + 1e-15)).all()


@pytest.mark.parametrize("penalty", [None, "l2"])
def test_calibration_is_for_models_without_a_penalty(penalty: Any) -> None:
    """A shrunk model grows where nobody asked for its size; where somebody did, it is left alone."""
    X, y, model = some_data("squared", 3000)
    alpha: Any = "auto" if penalty is None else 3.0
    fitted = hp.PrivateLinearRegression(
        8.0, 1e-6, NORM, target_range=(-1.0, 1.0), penalty=penalty, alpha=alpha, random_state=0
    ).fit(X, y)
    if penalty is None:
        assert fitted.coef_[:3] / model[:3] == pytest.approx(np.ones(3), abs=0.35)
    else:
        assert np.abs(fitted.coef_).max() < 0.5 * np.abs(model).max()


def narrow_columns(people: int, seed: int) -> tuple[Any, Any]:
    """Nine columns that fill a quarter of their ranges and go together, and targets linear in them."""
    rng = np.random.default_rng(seed)
    normal = rng.normal(size=(people, 10))
    X = (normal[:, 1:] + normal[:, :-1]) / np.sqrt(2) * 0.12
    signal = X @ np.linspace(-1, 1, 9)
    return X, 0.2 * (np.sqrt(0.6) * signal / signal.std() + np.sqrt(0.4) * rng.normal(size=people))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_curves_of_columns_that_hardly_vary_cost_little(seed: int) -> None:
    """Would catch: scores cut like outliers because the moments did not show how much they vary (0.06 to 0.19)."""
    (X, y), (test, true) = narrow_columns(4500, seed), narrow_columns(4500, 10 + seed)
    common: dict[str, Any] = {
        "epsilon": 3.0, "delta": 1e-4, "adjacency": "zero-out", "target_range": (-2, 2), "random_state": seed,
    }  # fmt: skip
    curves = hp.PrivateAdditiveRegressor(ranges=(-1, 1), **common).fit(X, y)
    line = hp.PrivateLinearRegression(row_norm=3.0, **common).fit(X, y)
    assert curves.encoder_.waves == 7
    assert curves.score(test, true) > line.score(test, true) - 0.03


def test_scores_are_cut_further_out_where_the_moments_leave_it_open() -> None:
    """By two deviations of the noise in what was not seen, at most twice as far, and for curves alone."""
    plan = plan_parameters(1000, 2, 5.0, fit_intercept=False)

    def cap(noise: float, curved: bool = True, model: tuple[float, float] = (0.0, 1.0)) -> float:
        moments = Moments(np.diag([4.0, 0.01]), noise, 4.01)
        metric = Metric(np.eye(2), np.ones(2), np.array([4.0, 0.01]), 1.0, 1.0, 1, moments)
        return Calibration.of(np.array(model), metric, 0.0, plan, curved=curved).cap

    assert cap(1e-9) == 2.0
    assert cap(0.01) == pytest.approx(2 * np.sqrt(1 + 0.02 / 0.01), abs=1e-3)
    assert 1024 * cap(0.01) % 1 == 0  # the same on all machines
    assert cap(0.01, curved=False) == 2.0
    assert cap(0.01, model=(1.0, 0.0)) == 2.0
    assert cap(0.1) == 4.0
    assert cap(0.1, model=(float("nan"), 1.0)) == 4.0
