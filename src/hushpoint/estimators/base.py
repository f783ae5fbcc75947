"""What all estimators share: the declared facts, the budget, the fit and its guarantee."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from hushpoint._checks import (
    require_choice,
    require_flag,
    require_fraction,
    require_nonnegative,
    require_positive,
    warn_of_large_delta,
)
from hushpoint._fixed import product, sparse_product
from hushpoint._refits import TellsOfRefits
from hushpoint._silence import silent_about, validated
from hushpoint._types import Array, Indices
from hushpoint.certificates import ADJACENCIES
from hushpoint.estimators import nonprivate
from hushpoint.estimators.constraints import Cone
from hushpoint.estimators.error_bars import ErrorBars, Intervals, bounds
from hushpoint.estimators.nonprivate import PENALTIES, PenaltyName
from hushpoint.estimators.penalty import Penalty
from hushpoint.estimators.planner import Parameters, plan_parameters
from hushpoint.estimators.training import train
from hushpoint.losses import Loss
from hushpoint.privacy.guarantee import Adjacency, Budget, Guarantee, checked_delta
from hushpoint.problem import Problem
from hushpoint.rows import scaled_to

_SPARSE_ENOUGH = 0.2  # share of nonzero entries below which products with a CSR copy are faster than with the table


@dataclass(frozen=True, eq=False)
class Design:
    """What is known of features beyond their number.

    Which parts of a model may be nothing, what they count as, and where a model of them has to be.
    """

    parts: Sequence[Indices]
    effective: float
    cone: Cone | None = None


class PrivateLinear(TellsOfRefits, BaseEstimator):
    """A linear model with declared facts and a budget.

    The estimators are dataclasses: scikit-learn reads their parameters off the signature that this writes.
    """

    epsilon: float
    delta: float | None
    row_norm: float | None
    penalty: PenaltyName | None
    alpha: float | Literal["auto"]
    l1_ratio: float
    fit_intercept: bool
    adjacency: Adjacency
    random_state: Any
    progress: bool
    lattice: bool
    _design: Design | None = None
    _errors: tuple[ErrorBars, ...] = ()
    _unit, _centre = 1.0, 0.0  # of targets: of a regression, half the width of their range, and its middle
    _one_of_several = False  # a run of PrivateSelect, whose number of runs nobody may count by their warnings

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _declare(self) -> tuple[Loss, int]:
        """The loss, and how many models there are, from what is declared alone."""
        raise NotImplementedError

    def _targets(self, y: NDArray[Any]) -> list[Array]:
        """What each model is to predict."""
        raise NotImplementedError

    def _checked_rows(self, X: Any, y: Any) -> tuple[Any, NDArray[Any]]:
        """X and y, once they are rows and targets that this estimator is for."""
        raise NotImplementedError

    def _keep(self, models: Array) -> None:
        """Set the attributes that predictions are made with."""
        raise NotImplementedError

    def _fit(self, X: Any, y: Array, targets: list[Array], loss: Loss, groups: ArrayLike | None) -> Array:
        """Models, a row per vector of targets, intercept last; sets the attributes of a fitted estimator."""
        penalty = self._penalty()
        if not math.isinf(self.epsilon):
            self._check_declared()
        signed = (-1.0, 1.0) if loss.labels == "two-class" else None
        problem = Problem(X, targets[0], loss, row_norm=self.row_norm, groups=groups, classes=signed)
        facts = problem.facts
        if self._cone is not None and len(targets) > 1:
            raise ValueError(
                f"there are constraints, and {len(targets)} classes. Which score should be monotone is open with more "
                "than two: declare two classes, or drop monotone=."
            )
        order = order_of_rows(problem, groups)
        ordered = [problem.rows.targets, *(target[order] for target in targets[1:])]
        if math.isinf(self.epsilon):
            return self._fit_without_noise(problem, ordered)
        delta = float(self.delta)  # type: ignore[arg-type]
        if not self._one_of_several:
            warn_of_large_delta(delta, facts.items, facts.unit, stacklevel=4)
        budget = Budget(self.epsilon, delta, adjacency=self.adjacency)
        named = self.penalty if penalty.l1 or penalty.l2 or penalty.automatic else None
        design = self._design
        plan = plan_parameters(
            facts.items,
            facts.features,
            budget,
            loss=loss,
            penalty=named,
            fit_intercept=self.fit_intercept,
            effective=None if design is None else design.effective,
        )
        trained = train(
            problem,
            ordered,
            plan,
            delta=delta,
            fit_intercept=self.fit_intercept,
            penalty=penalty,
            seed=self._seed(),
            progress=self.progress,
            lattice=self.lattice,
            parts=() if design is None else design.parts,
            cone=self._cone,
        )
        self.guarantee_: Guarantee = trained.guarantee
        self.parameters_: Parameters | None = plan
        self.n_iter_: int = trained.steps
        self.n_passes_: int = trained.passes
        self._errors = trained.errors
        return trained.models

    def _fit_without_noise(self, problem: Problem, targets: list[Array]) -> Array:
        strength = self._strength(problem)
        models, steps = nonprivate.solve(problem, targets, *strength, self.fit_intercept, self._cone)
        self._set_unprotected(problem, steps)
        self._errors = ()
        return models

    @property
    def _cone(self) -> Cone | None:
        return None if self._design is None else self._design.cone

    def _strength(self, problem: Problem) -> tuple[float, float]:
        """Of the penalty without privacy: alpha, and the share of L1 in it."""
        alpha = nonprivate.default_alpha(problem, self.penalty) if self.alpha == "auto" else float(self.alpha)
        return (0.0, 0.0) if self.penalty is None else (alpha, self._l1_share())

    def _l1_share(self) -> float:
        return {None: 0.0, "l2": 0.0, "l1": 1.0, "elasticnet": self.l1_ratio}[self.penalty]

    def _set_unprotected(self, problem: Problem, steps: int) -> None:
        unit, delta = problem.facts.unit, 1.0 if self.delta is None else self.delta
        reason = "epsilon is infinite: no noise was added"
        self.guarantee_ = Guarantee(math.inf, delta, None, unit, self.adjacency, "iterates", "proved", "1", (reason,))
        self.parameters_, self.n_iter_, self.n_passes_ = None, steps, steps

    def _checked(self, X: Any, y: Any, **options: Any) -> tuple[Any, NDArray[Any]]:
        """X and y as scikit-learn checks them; the constructor's arguments as we do."""
        self._check_parameters()
        self._tell_of_refits()
        X, y = validated(self, X, y, accept_sparse="csr", dtype=np.float64, **options)
        self._row_norm = self.row_norm  # what predicting scales by, whatever becomes of the parameter
        if not scipy.sparse.issparse(X) and np.count_nonzero(X) < _SPARSE_ENOUGH * X.size:
            X = scipy.sparse.csr_array(X)
        return X, y

    def _check_parameters(self) -> None:
        remedy = "Pass a positive number, or float('inf') for no privacy."
        if not (isinstance(self.epsilon, (int, float, np.number)) and math.isinf(self.epsilon) and self.epsilon > 0):
            require_positive("epsilon", self.epsilon, remedy=remedy)
        if self.delta is not None:
            checked_delta(self.delta)
        if self.row_norm is not None:
            require_positive("row_norm", self.row_norm)
        if self.alpha != "auto":
            require_nonnegative("alpha", self.alpha, remedy="Pass 'auto', or a number of 0 or more.")
        if self.l1_ratio != 0:
            require_fraction("l1_ratio", self.l1_ratio, remedy="Pass a number in [0, 1].")
        if self.penalty is not None:  # a Lasso's follows from l1_ratio
            require_choice("penalty", self.penalty, PENALTIES)
        require_choice("adjacency", self.adjacency, ADJACENCIES)
        require_flag("fit_intercept", self.fit_intercept)
        require_flag("progress", self.progress)
        require_flag("lattice", self.lattice)

    def _check_declared(self) -> None:
        if self.delta is None:
            raise ValueError(
                "delta is not declared. The guarantee is (epsilon, delta): pass delta well below one over the number "
                "of people, for example delta=1e-6."
            )
        if self.row_norm is None:
            raise ValueError(
                "row_norm is not declared. The privacy guarantee needs a bound on the length of every row that does "
                "not come from the data. Pass row_norm=R (rows longer than R are scaled down to it), for example "
                "row_norm=1.0 after hp.preprocessing has scaled each column by its known range."
            )

    def _penalty(self) -> Penalty:
        """The penalty of a private fit. Without a number for alpha, stopping early takes the place of a ridge."""
        if self.penalty is None:
            return Penalty()
        share = self._l1_share()
        if self.alpha == "auto":
            return Penalty(automatic=share > 0)
        return Penalty(l1=float(self.alpha) * share, l2=float(self.alpha) * (1 - share))

    def _restate(self, whole: Budget, guarantee: Guarantee) -> None:
        """Tell the cost of the selection that this was one run of: its own would be too small."""
        if self.parameters_ is not None:
            self.parameters_ = replace(self.parameters_, share_of=whole)

    def _seed(self) -> int | None:
        """None (the operating system's generator), the integer itself, or one drawn from a RandomState."""
        if self.random_state is None or isinstance(self.random_state, (int, np.integer)):
            return None if self.random_state is None else int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    @property
    def coef_std_(self) -> Array:
        """How far noise moves each coefficient; without noise not at all."""
        check_is_fitted(self)
        return self._deviations()[0].reshape(np.shape(self.coef_))

    @property
    def intercept_std_(self) -> Array | float:
        """How far noise moves the intercepts."""
        check_is_fitted(self)
        intercept = self._deviations()[1]
        return intercept if np.ndim(self.intercept_) else float(intercept[0])

    def _deviations(self) -> tuple[Array, Array]:
        """Found when they are asked for: they take longer than a small fit."""
        found = np.zeros((np.atleast_2d(self.coef_).shape[0], np.shape(self.coef_)[-1] + self.fit_intercept))
        for index, errors in enumerate(self._errors):
            found[index] = errors.deviations * self._unit
        return split_models(found, self.fit_intercept)

    def noise_roots(self) -> list[Array]:
        """For each model R with ``R R'`` the covariance of its coefficients due to noise; a vector is a diagonal."""
        check_is_fitted(self)
        width = np.shape(self.coef_)[-1]
        if not self._errors:
            return [np.zeros(width)] * len(np.atleast_2d(self.coef_))
        return [self._unit * errors.noise_root[:width] for errors in self._errors]

    def intervals(self, level: float = 0.95) -> Intervals:
        """Where the coefficients of the best linear model of the population lie: privacy noise and sampling together.

        For rows that are about normally distributed, targets that are well described by the model, and all of them
        declared wide enough. Where too little was released to tell, an error says what is missing. The middle of an
        interval is the model before its scale and offset were calibrated, with what early stopping and clipping kept
        from it added back: nearer to the truth than ``coef_``, which is made to predict.

        Guarantee: that of the model; nothing is spent and no row is read.

        Parameters
        ----------
        level : float
            The chance with which each interval covers.
        """
        check_is_fitted(self)
        if not 0 < require_fraction("level", level) < 1:
            raise ValueError(f"level is {level!r}. Pass a number between 0 and 1.")
        if not self._errors:
            raise ValueError(
                "epsilon is infinite, and intervals are made of what a private fit releases. Pass a finite epsilon, or "
                "use a package for statistics."
            )
        found = np.array([bounds(errors, level) for errors in self._errors]) * self._unit
        if not self.fit_intercept:
            return Intervals(found.reshape(*np.shape(self.coef_), 2), np.zeros((*np.shape(self.intercept_), 2)), level)
        middle = (found[:, -1] + self._centre).reshape(*np.shape(self.intercept_), 2)
        return Intervals(found[:, :-1].reshape(*np.shape(self.coef_), 2), middle, level)

    @silent_about("X")
    def _scores(self, X: Any, alone: bool = False) -> Array:
        """Linear predictions, a column per model. Rows are scaled down to the norm that training scaled them to.

        ``alone``: each is, to the bit, a function of its row and of the model, whatever other rows there are and
        however they are stored. A product of matrices is not: it sums in an order that depends on the shapes.
        """
        check_is_fitted(self)
        X = scaled_to(validated(self, X, accept_sparse="csr", dtype=np.float64, reset=False), self._row_norm)
        models = np.atleast_2d(self.coef_)
        if alone:
            multiply = sparse_product if scipy.sparse.issparse(X) else product
            return np.asarray(np.column_stack([multiply(X, model) for model in models]) + self.intercept_)
        return np.asarray(X @ models.T + self.intercept_, dtype=np.float64)

    def _predict_alone(self, X: Any) -> NDArray[Any]:
        """``predict``, each answer to the bit a function of its row and of the model: what noisy scores are made of."""
        return self._answers(self._scores(X, alone=True))

    def _answers(self, scores: Array) -> NDArray[Any]:
        """Predictions from linear ones, a column per model."""
        raise NotImplementedError

    def _in_whole_numbers(self) -> bool:
        """Whether the guarantee of every fit with these parameters is one in whole numbers, whatever the rows."""
        return bool(self.lattice)


def order_of_rows(problem: Problem, groups: ArrayLike | None) -> Any:
    """Where the problem's rows come from: it puts the rows of one user next to each other."""
    if groups is None:
        return slice(None)
    if problem.items < 2:
        raise ValueError(
            "groups has one user. A private model hides one user among others: pass at least two, or drop groups= "
            "to protect single records."
        )
    return np.argsort(np.unique(groups, return_inverse=True)[1], kind="stable")


def split_models(models: Array, fit_intercept: bool) -> tuple[Array, Array]:
    if fit_intercept:
        return models[:, :-1].copy(), models[:, -1].copy()
    return models, np.zeros(len(models))
