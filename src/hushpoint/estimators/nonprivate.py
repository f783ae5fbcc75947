"""The same objectives without privacy: scikit-learn's solvers where it has a good one, Newton's method elsewhere."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from hushpoint._types import Array
from hushpoint.estimators.constraints import Cone
from hushpoint.problem import Problem

PenaltyName = Literal["l2", "l1", "elasticnet"]

PENALTIES = ("l2", "l1", "elasticnet")
_TOLERANCE = 1e-10
_CONSTRAINED_TOLERANCE = 1e-8  # conditions are met to about as much
_ITERATIONS = 20_000
_NEWTON_STEPS = 200
_LARGEST_NEWTON = 1000  # coefficients up to which scikit-learn solves Newton's equations: p^2 numbers, p^3 operations


def default_alpha(problem: Problem, penalty: PenaltyName | None) -> float:
    """What "auto" means without privacy: scikit-learn's default strength, beside the mean loss."""
    if penalty is None:
        return 0.0
    if problem.facts.loss.is_quadratic and penalty != "l2":
        return 1.0
    return 1 / len(problem.rows)


def solve(
    problem: Problem, targets: list[Array], alpha: float, share: float, fit_intercept: bool, cone: Cone | None = None
) -> tuple[Array, int]:
    """Minimisers of the mean loss plus penalty, a row per vector of targets (intercept last), and the iterations.

    With a cone, its member with the least.
    """
    found, steps = [], 0
    for target in targets:
        if cone is None:
            model, count = _solve_one(problem, target, alpha * share, alpha * (1 - share), fit_intercept)
        else:
            model, count = _within(cone, problem, target, alpha, fit_intercept)
        found.append(model)
        steps += count
    return np.array(found), max(steps, 1)


def multinomial(
    problem: Problem, labels: NDArray[Any], alpha: float, share: float, fit_intercept: bool
) -> tuple[Array, int]:
    """Scikit-learn's multinomial logistic regression, a row per class (intercept last), and the iterations."""
    coefficients = problem.rows.store.width * len(np.unique(labels))
    model = _logistic(len(problem.rows), alpha, share if alpha else 0.0, fit_intercept, coefficients)
    return _fitted(model, problem, labels)


def _solve_one(problem: Problem, target: Array, l1: float, l2: float, fit_intercept: bool) -> tuple[Array, int]:
    loss, rows = problem.facts.loss, problem.rows
    per_class = loss.logistic_weights
    if per_class and l1 == 0 and np.ptp(target) > 0:  # scikit-learn needs a member of both classes
        model = _logistic(len(rows), l2, 0.0, fit_intercept, rows.store.width, per_class)
    elif loss.is_quadratic:
        model = _least_squares(len(rows), l1, l2, fit_intercept, rows.store.sparse)
    else:
        return _newton(problem, target, l1, l2, fit_intercept)
    models, steps = _fitted(model, problem, target)
    return models[0], steps


def _within(cone: Cone, problem: Problem, target: Array, ridge: float, fit_intercept: bool) -> tuple[Array, int]:
    """Newton steps within a cone: to its member with the least quadratic model of the loss, the nearest to Newton's."""
    rows, loss, weights = problem.rows, problem.facts.loss, problem.row_weights
    features = rows.store[:]
    if fit_intercept:
        features = np.column_stack([features, np.ones(len(features))])
    counted = np.full(features.shape[1], ridge)
    counted[rows.store.width :] = 0.0
    model, margins = np.zeros(features.shape[1]), np.zeros(len(features))

    def objective(margins: Array, model: Array) -> float:
        return float(weights @ loss.value(margins, target) + counted @ model**2 / 2)

    for step in range(1, _NEWTON_STEPS + 1):
        gradient = features.T @ (weights * loss.derivative(margins, target)) + counted * model
        curvature = weights * np.maximum(loss.curvature(margins, target), 1e-3 * loss.smoothness)
        hessian = (features.T * curvature) @ features + np.diag(counted)
        # Collinear features, as in a one-hot table, leave directions without curvature.
        hessian[np.diag_indices_from(hessian)] += 1e-10 * np.trace(hessian)
        values, basis = np.linalg.eigh(hessian)
        root = basis / np.sqrt(np.maximum(values, 1e-12 * values[-1]))
        turn = cone.nearest(model - root @ (root.T @ gradient), root) - model
        change = features @ turn
        before, size = objective(margins, model), 1.0
        decrease = float(gradient @ turn)
        small = np.abs(change).max() <= _CONSTRAINED_TOLERANCE * (1 + np.abs(margins).max())
        if small or -decrease <= np.finfo(np.float64).eps * before:
            return model, step
        enough = 1e-4 * decrease
        while size > 1e-10 and objective(margins + size * change, model + size * turn) > before + size * enough:
            size /= 2
        model, margins = model + size * turn, margins + size * change
    return model, _NEWTON_STEPS


def _logistic(
    rows: int, alpha: float, share: float, fit_intercept: bool, coefficients: int, class_weight: Any = None
) -> Any:
    from sklearn.linear_model import LogisticRegression

    smooth = "newton-cholesky" if coefficients <= _LARGEST_NEWTON else "lbfgs"
    return LogisticRegression(
        C=np.inf if alpha == 0 else 1 / (rows * alpha),
        l1_ratio=share,
        solver="saga" if share > 0 else smooth,
        tol=_TOLERANCE,
        max_iter=_ITERATIONS,
        fit_intercept=fit_intercept,
        class_weight=class_weight,
        random_state=0,
    )


def _fitted(model: Any, problem: Problem, target: NDArray[Any]) -> tuple[Array, int]:
    """Fit with the problem's weights. Collinear features, as in a one-hot table, are no reason to warn."""
    rows = problem.rows
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", scipy.linalg.LinAlgWarning)
        model.fit(rows.features, target, sample_weight=problem.row_weights * len(rows))
    models, steps = np.atleast_2d(model.coef_), getattr(model, "n_iter_", None)
    if model.fit_intercept:
        models = np.column_stack([models, np.broadcast_to(model.intercept_, len(models))])
    return models, 1 if steps is None else int(np.max(steps))


def _least_squares(rows: int, l1: float, l2: float, fit_intercept: bool, sparse: bool) -> Any:
    from sklearn.linear_model import ElasticNet as ElasticNetRegression
    from sklearn.linear_model import LinearRegression, Ridge

    if l1 > 0:
        return ElasticNetRegression(
            alpha=l1 + l2, l1_ratio=l1 / (l1 + l2), fit_intercept=fit_intercept, tol=1e-12, max_iter=_ITERATIONS
        )
    if l2 > 0:
        return Ridge(
            alpha=rows * l2, fit_intercept=fit_intercept, tol=_TOLERANCE, solver="sparse_cg" if sparse else "auto"
        )
    return LinearRegression(fit_intercept=fit_intercept, tol=_TOLERANCE)


def _newton(problem: Problem, target: Array, l1: float, l2: float, fit_intercept: bool) -> tuple[Array, int]:
    """Proximal Newton steps with a line search: each quadratic model of the loss is a penalised least squares fit.

    Unlike first-order solvers it does not mind features on different scales.
    """
    from sklearn.exceptions import ConvergenceWarning

    rows, loss, weights = problem.rows, problem.facts.loss, problem.row_weights
    coef, intercept, margins = np.zeros(rows.store.width), 0.0, np.zeros(len(rows))

    def objective(margins: Array, coef: Array) -> float:
        return float(weights @ loss.value(margins, target)) + penalty(coef)

    def penalty(coef: Array) -> float:
        return float(l1 * np.abs(coef).sum() + l2 / 2 * coef @ coef)

    for step in range(1, _NEWTON_STEPS + 1):
        slopes = loss.derivative(margins, target)
        # Where the loss is straight, a little curvature keeps the model of it bounded.
        curvature = np.maximum(loss.curvature(margins, target), 1e-3 * loss.smoothness)
        total = float(weights @ curvature)
        inner = _least_squares(len(rows), l1 / total, l2 / total, fit_intercept, rows.store.sparse)
        if l1 > 0:
            inner.set_params(warm_start=True, max_iter=1000)
            inner.coef_ = coef.copy()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # what counts is the outer loop's end
            shares = weights * curvature / total * len(rows)
            inner.fit(rows.features, margins - slopes / curvature, sample_weight=shares)
        turn, lift = inner.coef_ - coef, float(inner.intercept_) - intercept
        change = rows.store @ turn + lift
        before = objective(margins, coef)
        decrease = float(weights @ (slopes * change)) + penalty(inner.coef_) - penalty(coef)
        small = np.abs(change).max() <= _TOLERANCE * (1 + np.abs(margins).max())
        if small or -decrease <= np.finfo(np.float64).eps * before:
            return np.append(inner.coef_, float(inner.intercept_)) if fit_intercept else inner.coef_, step
        size = 1.0
        while size > 1e-10 and objective(margins + size * change, coef + size * turn) > before + 1e-4 * size * decrease:
            size /= 2
        coef, intercept, margins = coef + size * turn, intercept + size * lift, margins + size * change
    warnings.warn(f"Newton's method did not converge in {_NEWTON_STEPS} steps.", ConvergenceWarning, stacklevel=2)
    return np.append(coef, intercept) if fit_intercept else coef, _NEWTON_STEPS
