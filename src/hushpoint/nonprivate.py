"""The same objectives without privacy: scikit-learn's solvers where it has one, quasi-Newton and ADMM elsewhere."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
import scipy.optimize
import scipy.sparse
from numpy.typing import NDArray

from hushpoint.losses import ClassWeighted, Logistic, Squared
from hushpoint.problem import Problem
from hushpoint.regularizers import ElasticNet

Array = NDArray[np.float64]
PenaltyName = Literal["l2", "l1", "elasticnet"]

PENALTIES = ("l2", "l1", "elasticnet")
_TOLERANCE = 1e-10
_ITERATIONS = 20_000


def default_alpha(problem: Problem, penalty: PenaltyName | None) -> float:
    """What "auto" means without privacy: scikit-learn's default strength, beside the mean loss."""
    if penalty is None:
        return 0.0
    if isinstance(problem.facts.loss, Squared) and penalty != "l2":
        return 1.0
    return 1 / len(problem.rows)


def solve(
    problem: Problem,
    targets: list[Array],
    penalty: PenaltyName | None,
    alpha: float,
    l1_ratio: float,
    fit_intercept: bool,
) -> tuple[Array, int]:
    """Minimisers of the mean loss plus penalty, a row per vector of targets (intercept last), and the iterations."""
    share = _l1_share(penalty, l1_ratio)
    l1, l2 = (0.0, 0.0) if penalty is None else (alpha * share, alpha * (1 - share))
    found, steps = [], 0
    for target in targets:
        model, count = _solve_one(problem, target, l1, l2, fit_intercept)
        found.append(model)
        steps += count
    return np.array(found), max(steps, 1)


def multinomial(
    problem: Problem,
    labels: NDArray[Any],
    penalty: PenaltyName | None,
    alpha: float,
    l1_ratio: float,
    fit_intercept: bool,
) -> tuple[Array, int]:
    """Scikit-learn's multinomial logistic regression, a row per class (intercept last), and the iterations."""
    share = _l1_share(penalty, l1_ratio)
    rows = problem.rows
    model = _logistic(len(rows), alpha if penalty else 0.0, share, fit_intercept, None)
    model.fit(rows.features, labels, sample_weight=problem.row_weights * len(rows))
    return _stacked(model.coef_, model.intercept_, fit_intercept), int(np.max(model.n_iter_))


def _l1_share(penalty: PenaltyName | None, l1_ratio: float) -> float:
    return {None: 0.0, "l2": 0.0, "l1": 1.0, "elasticnet": l1_ratio}[penalty]


def _solve_one(problem: Problem, target: Array, l1: float, l2: float, fit_intercept: bool) -> tuple[Array, int]:
    loss, rows = problem.facts.loss, problem.rows
    weights = problem.row_weights * len(rows)
    base = loss.base if isinstance(loss, ClassWeighted) else loss
    if isinstance(base, Logistic):
        strength = l1 + l2
        per_class = {-1.0: loss.negative, 1.0: loss.positive} if isinstance(loss, ClassWeighted) else None
        model = _logistic(len(rows), strength, l1 / strength if strength else 0.0, fit_intercept, per_class)
        model.fit(rows.features, target, sample_weight=weights)
        return _stacked(model.coef_, model.intercept_, fit_intercept)[0], int(np.max(model.n_iter_))
    if isinstance(base, Squared):
        model = _least_squares(len(rows), l1, l2, fit_intercept, scipy.sparse.issparse(rows.features))
        model.fit(rows.features, target, sample_weight=weights)
        intercept = np.atleast_1d(np.asarray(model.intercept_, dtype=np.float64))
        return _stacked(np.atleast_2d(model.coef_), intercept, fit_intercept)[0], int(
            getattr(model, "n_iter_", None) or 1
        )
    return _generic(problem, target, l1, l2, fit_intercept)


def _logistic(rows: int, alpha: float, share: float, fit_intercept: bool, class_weight: Any) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(
        C=np.inf if alpha == 0 else 1 / (rows * alpha),
        l1_ratio=share,
        solver="saga" if share > 0 else "lbfgs",
        tol=1e-7 if share > 0 else _TOLERANCE,
        max_iter=_ITERATIONS,
        fit_intercept=fit_intercept,
        class_weight=class_weight,
        random_state=0,
    )


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
    return LinearRegression(fit_intercept=fit_intercept)


def _generic(problem: Problem, target: Array, l1: float, l2: float, fit_intercept: bool) -> tuple[Array, int]:
    """Losses that scikit-learn does not have: quasi-Newton, or private ADMM without noise where L1 is asked for."""
    facts, rows = problem.facts, problem.rows
    groups = np.repeat(np.arange(facts.items), rows.counts) if facts.unit == "user" else None
    full = Problem(rows.features, target, facts.loss, ElasticNet(l1, l2), groups=groups, fit_intercept=fit_intercept)
    if l1 > 0:
        from hushpoint.methods import private_admm

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = private_admm(full, steps=500, gamma=10.0, relaxation=0.5, noise_std=0.0).run(seed=0)
        return run.model, 500
    ridge = np.full(full.facts.width, l2)
    if fit_intercept:
        ridge[-1] = 0.0
    optimise: Any = scipy.optimize.minimize
    found = optimise(
        full.objective,
        np.zeros(full.facts.width),
        jac=lambda z: full.gradient(z) + ridge * z,
        method="L-BFGS-B",
        tol=1e-14,
        options={"maxiter": _ITERATIONS, "maxfun": 2 * _ITERATIONS},
    )
    return np.asarray(found.x), int(found.nit)


def _stacked(coef: Array, intercept: Array, fit_intercept: bool) -> Array:
    coef = np.atleast_2d(coef)
    return np.column_stack([coef, np.broadcast_to(intercept, len(coef))]) if fit_intercept else np.asarray(coef)
