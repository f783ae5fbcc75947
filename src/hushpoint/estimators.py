"""Scikit-learn estimators: ``fit`` with an epsilon, and nothing to tune."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from hushpoint import nonprivate
from hushpoint._checks import (
    require_choice,
    require_flag,
    require_fraction,
    require_nonnegative,
    require_positive,
    require_range,
    shown,
    warn_of_large_delta,
)
from hushpoint._refits import TellsOfRefits
from hushpoint._silence import require_labels, silent_about, validated
from hushpoint.certificates import ADJACENCIES
from hushpoint.labels import READ_FROM_LABELS, class_set, signs
from hushpoint.losses import ClassWeighted, Huber, Logistic, Loss, SmoothedHinge, Squared
from hushpoint.nonprivate import PENALTIES, PenaltyName
from hushpoint.privacy.guarantee import Adjacency, Budget, Guarantee, checked_delta
from hushpoint.problem import Problem
from hushpoint.rows import scaled_to
from hushpoint.training import Penalty, train
from hushpoint.utility.planner import Parameters, plan_parameters

Array = NDArray[np.float64]

__all__ = [
    "PrivateHuberRegressor",
    "PrivateLasso",
    "PrivateLinearRegression",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
]

_SPARSE_ENOUGH = 0.2  # share of nonzero entries below which products with a CSR copy are faster than with the table


class _PrivateLinear(TellsOfRefits, BaseEstimator):
    """What all estimators share: the declared facts, the budget, the fit and its guarantee."""

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
    _one_of_several = False  # a run of PrivateSelect, whose number of runs nobody may count by their warnings

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _fit(self, X: Any, y: Array, targets: list[Array], loss: Loss, groups: ArrayLike | None) -> Array:
        """Models, a row per vector of targets, intercept last; sets the attributes of a fitted estimator."""
        penalty = self._penalty()
        if not math.isinf(self.epsilon):
            self._check_declared()
        signed = (-1.0, 1.0) if loss.labels == "two-class" else None
        problem = Problem(X, targets[0], loss, row_norm=self.row_norm, groups=groups, classes=signed)
        facts = problem.facts
        order = _order_of_rows(problem, groups)
        ordered = [problem.rows.targets, *(target[order] for target in targets[1:])]
        if math.isinf(self.epsilon):
            return self._fit_without_noise(problem, ordered)
        delta = float(self.delta)  # type: ignore[arg-type]
        if not self._one_of_several:
            warn_of_large_delta(delta, facts.items, facts.unit, stacklevel=4)
        plan = plan_parameters(
            facts.items,
            facts.features,
            Budget(self.epsilon, delta),
            loss=loss,
            penalty=self.penalty if penalty.l1 or penalty.l2 or penalty.automatic else None,
            fit_intercept=self.fit_intercept,
            adjacency=self.adjacency,
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
        )
        self.guarantee_: Guarantee = trained.guarantee
        self.parameters_: Parameters | None = plan
        self.n_iter_: int = plan.steps * len(ordered)
        self.n_passes_: int = trained.passes
        return trained.models

    def _fit_without_noise(self, problem: Problem, targets: list[Array]) -> Array:
        alpha = nonprivate.default_alpha(problem, self.penalty) if self.alpha == "auto" else float(self.alpha)
        models, steps = nonprivate.solve(problem, targets, self.penalty, alpha, self.l1_ratio, self.fit_intercept)
        self._set_unprotected(problem, steps)
        return models

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
        share = {"l2": 0.0, "l1": 1.0, "elasticnet": self.l1_ratio}[self.penalty]
        if self.alpha == "auto":
            return Penalty(automatic=share > 0)
        return Penalty(l1=float(self.alpha) * share, l2=float(self.alpha) * (1 - share))

    def _seed(self) -> int | None:
        """None (the operating system's generator), the integer itself, or one drawn from a RandomState."""
        if self.random_state is None or isinstance(self.random_state, (int, np.integer)):
            return None if self.random_state is None else int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    @silent_about("X")
    def _scores(self, X: Any) -> Array:
        """Linear predictions, a column per model. Rows are scaled down to the norm that training scaled them to."""
        check_is_fitted(self)
        X = scaled_to(validated(self, X, accept_sparse="csr", dtype=np.float64, reset=False), self._row_norm)
        return np.asarray(X @ np.atleast_2d(self.coef_).T + self.intercept_, dtype=np.float64)


class _PrivateClassifier(ClassifierMixin, _PrivateLinear):
    classes: Any
    class_weight: dict[Any, float] | None

    @silent_about("X, y or groups")
    def fit(self, X: Any, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Train the model.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (rows, features)
            Rows longer than ``row_norm`` are scaled down to it.
        y : array of shape (rows,)
            Labels of two or more classes. Which classes there are is public: declare them as ``classes``, or they are
            read from ``y`` and the guarantee says so.
        groups : array of shape (rows,), optional
            The user of each row: the guarantee is then for users, who count equally however many rows they have.
        """
        X, y = self._checked(X, y)
        if self.classes is None:  # of declared ones it is known what they are
            require_labels(y)
        self.classes_ = class_set(y, self.classes)
        if len(self.classes_) < 2:
            raise ValueError(
                "y has one class only. Pass labels of at least two classes, or declare the classes that can occur: "
                "classes=['no', 'yes']."
            )
        several = len(self.classes_) > 2
        ones = self.classes_ if several else self.classes_[1:]
        targets = [signs(y, one) for one in ones]
        self._softmax = False
        if several and math.isinf(self.epsilon) and self._multinomial() and len(np.unique(y)) == len(self.classes_):
            models = self._fit_multinomial(X, y, groups)
        else:
            models = self._fit(X, targets[0], targets, self._loss(several), groups)
        if self.classes is None and math.isfinite(self.epsilon):
            stated = self.guarantee_
            self.guarantee_ = replace(stated, assumptions=(*stated.assumptions, READ_FROM_LABELS))
        self.coef_, self.intercept_ = _split(models, self.fit_intercept)
        return self

    def decision_function(self, X: Any) -> Array:
        """Signed distance-like score: above 0 means ``classes_[1]``; with more classes, a column each."""
        scores = self._scores(X)
        return np.asarray(scores[:, 0]) if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely class of each row."""
        scores = self.decision_function(X)
        index = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[index])

    @silent_about("X, y or sample_weight")
    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Accuracy on these rows, without noise: not private for them."""
        with np.errstate(all="ignore"):
            return float(super().score(X, y, sample_weight))

    def _loss(self, several: bool) -> Loss:
        base, weights = self._base_loss(), self._weights()
        if weights is None:
            return base
        if several:
            raise ValueError("class_weight is given and there are more than two classes. It works with two only.")
        return ClassWeighted(base, *weights)

    def _weights(self) -> list[float] | None:
        """The declared weight of each class; with noise divided by the largest, as clip and step are planned for 1."""
        if self.class_weight is None:
            return None
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"class_weight is {self.class_weight!r}. Weights that depend on how frequent the classes are would "
                "read the data. Pass declared ones, for example class_weight={0: 1.0, 1: 3.0}."
            )
        if not isinstance(self.class_weight, dict):
            raise ValueError(
                f"class_weight is {shown(self.class_weight)}. Pass a dictionary of declared weights, for example "
                "class_weight={0: 1.0, 1: 3.0}."
            )
        known = {label: require_positive("class_weight", weight) for label, weight in self.class_weight.items()}
        unknown = [label for label in known if label not in self.classes_.tolist()]
        if unknown:
            raise ValueError(
                f"class_weight names {unknown}, which are no classes. Name classes of y, or declared ones; others "
                "weigh 1."
            )
        weights = [known.get(label, 1.0) for label in self.classes_.tolist()]
        if min(weights) < 1e-12 * max(weights):
            raise ValueError(
                "class_weight gives one class more than 1e12 times the weight of another. Choose closer ones."
            )
        return weights if math.isinf(self.epsilon) else [weight / max(weights) for weight in weights]

    def _penalty(self) -> Penalty:
        """The penalty beside a loss whose weights were divided by the largest: divided likewise."""
        penalty = super()._penalty()
        if self.class_weight is None or math.isinf(self.epsilon):
            return penalty
        largest = max(self.class_weight.get(label, 1.0) for label in self.classes_.tolist())
        return replace(penalty, l1=penalty.l1 / largest, l2=penalty.l2 / largest)

    def _base_loss(self) -> Loss:
        raise NotImplementedError

    def _multinomial(self) -> bool:
        """Whether several classes without noise are fitted jointly, as scikit-learn does."""
        return False

    def _fit_multinomial(self, X: Any, y: NDArray[Any], groups: ArrayLike | None) -> Array:
        raise NotImplementedError


class PrivateLogisticRegression(_PrivateClassifier):
    """Logistic regression with an (epsilon, delta) guarantee and nothing to tune.

    Noisy gradient descent in a metric that is learned from a small share of the budget; every number is chosen by
    ``hp.utility.plan_parameters`` from public facts. With more than two classes, one model for each class against the
    rest: the metric is shared and every model gets ``mu / sqrt(number of classes)`` of the remaining budget.

    Parameters
    ----------
    epsilon : float
        ``float("inf")``: no noise, scikit-learn's solution.
    delta : float
        Must be declared; well below one over the number of people.
    row_norm : float
        Declared bound on the length of a row of X, never read off the data. Longer rows are scaled down to it.
    penalty : {"l2", "l1", "elasticnet"} or None
    alpha : float or "auto"
        Strength of the penalty beside the *mean* loss (scikit-learn's C is ``1/(n alpha)``). "auto": stopping early
        takes the place of a ridge, and an L1 penalty removes what cannot be told from the noise.
    l1_ratio : float
        Share of L1 in "elasticnet".
    fit_intercept : bool
    adjacency : {"replace-one", "zero-out"}
        What the guarantee compares: one person's data replaced by others', or left out with n public.
    classes : sequence, optional
        The class labels that can occur, declared. Then a label outside them is an error, a class without a member is
        not. None: they are read from ``y``, and the guarantee says that they count as public.
    class_weight : dict, optional
        Declared weights of two classes; training depends on their ratio only, and a number for ``alpha`` stands beside
        the weighted loss as in scikit-learn. "balanced" would read the data and is refused.
    random_state : int, RandomState or None
        None draws noise from the operating system's generator. Anything else is for experiments, and the guarantee
        says so.
    progress : bool
        Show a progress bar.

    Attributes
    ----------
    coef_, intercept_, classes_, n_features_in_
    guarantee_ : Guarantee
        What was spent, for whom and against whom.
    parameters_ : Parameters
        The plan; ``print`` explains it.
    n_iter_, n_passes_ : int
        Noisy steps, and passes over the data.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        row_norm: float | None = None,
        penalty: PenaltyName | None = "l2",
        alpha: float | Literal["auto"] = "auto",
        l1_ratio: float = 0.5,
        fit_intercept: bool = True,
        adjacency: Adjacency = "replace-one",
        class_weight: dict[Any, float] | None = None,
        random_state: Any = None,
        progress: bool = False,
        classes: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.row_norm = row_norm
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.adjacency = adjacency
        self.class_weight = class_weight
        self.random_state = random_state
        self.progress = progress
        self.classes = classes

    def predict_proba(self, X: Any) -> Array:
        """Probability of each class, a column each; with several classes the models' answers, made to sum to 1."""
        scores = self._scores(X)
        if len(self.classes_) == 2:
            upper = expit(scores[:, 0])
            return np.column_stack([1 - upper, upper])
        if self._softmax:
            return np.asarray(softmax(scores, axis=1))
        each = np.maximum(expit(scores), np.finfo(np.float64).tiny)
        return np.asarray(each / each.sum(axis=1, keepdims=True))

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithm of ``predict_proba``."""
        return np.log(self.predict_proba(X))

    def _base_loss(self) -> Loss:
        return Logistic()

    def _multinomial(self) -> bool:
        return self.class_weight is None

    def _fit_multinomial(self, X: Any, y: NDArray[Any], groups: ArrayLike | None) -> Array:
        problem = Problem(X, signs(y, y[0]), "logistic", row_norm=self.row_norm, groups=groups)
        order = _order_of_rows(problem, groups)
        alpha = nonprivate.default_alpha(problem, self.penalty) if self.alpha == "auto" else float(self.alpha)
        models, steps = nonprivate.multinomial(
            problem, y[order], self.penalty, alpha, self.l1_ratio, self.fit_intercept
        )
        self._softmax = True
        self._set_unprotected(problem, steps)
        return models


class PrivateLinearSVC(_PrivateClassifier):
    """Linear support vector machine (smoothed hinge loss) with an (epsilon, delta) guarantee and nothing to tune.

    Parameters are those of `PrivateLogisticRegression`, and:

    Parameters
    ----------
    width : float
        Length of margin over which the hinge is rounded off.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        row_norm: float | None = None,
        penalty: PenaltyName | None = "l2",
        alpha: float | Literal["auto"] = "auto",
        l1_ratio: float = 0.5,
        width: float = 1.0,
        fit_intercept: bool = True,
        adjacency: Adjacency = "replace-one",
        class_weight: dict[Any, float] | None = None,
        random_state: Any = None,
        progress: bool = False,
        classes: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.row_norm = row_norm
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.width = width
        self.fit_intercept = fit_intercept
        self.adjacency = adjacency
        self.class_weight = class_weight
        self.random_state = random_state
        self.progress = progress
        self.classes = classes

    def _base_loss(self) -> Loss:
        return SmoothedHinge(self.width)


class _PrivateRegressor(RegressorMixin, _PrivateLinear):
    target_range: tuple[float, float] | None

    @silent_about("X, y or groups")
    def fit(self, X: Any, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Train the model.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (rows, features)
            Rows longer than ``row_norm`` are scaled down to it.
        y : array of shape (rows,)
            Targets; those outside ``target_range`` are clipped to it.
        groups : array of shape (rows,), optional
            The user of each row: the guarantee is then for users, who count equally however many rows they have.
        """
        X, y = self._checked(X, y, y_numeric=True)
        y = y.astype(np.float64)
        centre, half = self._target_scale()
        targets = y
        if math.isfinite(self.epsilon):  # clipped first: a huge target must not show as an overflow
            targets = np.clip((np.clip(y, centre - half, centre + half) - centre) / half, -1.0, 1.0)
        models = self._fit(X, targets, [targets], self._scaled_loss(half), groups) * half
        coef, intercept = _split(models, self.fit_intercept)
        self.coef_, self.intercept_ = coef[0], float(intercept[0]) + centre
        declared = self._declared_range() if math.isfinite(self.epsilon) else None
        self._low, self._high = declared or (-math.inf, math.inf)
        return self

    def predict(self, X: Any) -> Array:
        """Predicted targets; of a private model clipped to ``target_range``."""
        return np.clip(self._scores(X)[:, 0], self._low, self._high)

    @silent_about("X, y or sample_weight")
    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """R squared on these rows, without noise: not private for them."""
        with np.errstate(all="ignore"):
            return float(super().score(X, y, sample_weight))

    def _target_scale(self) -> tuple[float, float]:
        """Centre and half-width of the declared range: inside, targets lie in [-1, 1]."""
        declared = self._declared_range()
        if math.isinf(self.epsilon):
            return 0.0, 1.0
        if declared is None:
            raise ValueError(
                "target_range is not declared. The privacy guarantee needs the range of the target, and reading it off "
                "the data would reveal its extremes. Pass target_range=(low, high) as it is publicly known."
            )
        low, high = declared
        if not self.fit_intercept:
            return 0.0, max(abs(low), abs(high))
        return (low + high) / 2, (high - low) / 2

    def _declared_range(self) -> tuple[float, float] | None:
        if self.target_range is None:
            return None
        try:
            low, high = (float(bound) for bound in self.target_range)
        except (TypeError, ValueError):
            raise ValueError(f"target_range is {shown(self.target_range)}. Pass a pair (low, high).") from None
        return require_range("target_range", low, high)

    def _penalty(self) -> Penalty:
        """In units in which the target lies in [-1, 1]: the loss shrinks by the square, an L1 penalty only once."""
        penalty, (_, half) = super()._penalty(), self._target_scale()
        return Penalty(penalty.l1 / half, penalty.l2, penalty.automatic)

    def _scaled_loss(self, half: float) -> Loss:
        return Squared()


class PrivateLinearRegression(_PrivateRegressor):
    """Linear regression with an (epsilon, delta) guarantee and nothing to tune.

    Residuals are clipped on the way (a bound on every gradient is what privacy rests on), which also makes the fit
    robust to outliers. Parameters are those of `PrivateLogisticRegression`, and:

    Parameters
    ----------
    target_range : (float, float)
        Declared range of the target, never read off the data. Targets and private predictions are clipped to it.
    penalty : {"l2", "l1", "elasticnet"} or None
        Default None: least squares; with "l2", scikit-learn's ``Ridge(alpha=n * alpha)``.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        row_norm: float | None = None,
        target_range: tuple[float, float] | None = None,
        penalty: PenaltyName | None = None,
        alpha: float | Literal["auto"] = "auto",
        l1_ratio: float = 0.5,
        fit_intercept: bool = True,
        adjacency: Adjacency = "replace-one",
        random_state: Any = None,
        progress: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.row_norm = row_norm
        self.target_range = target_range
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.adjacency = adjacency
        self.random_state = random_state
        self.progress = progress


class PrivateLasso(_PrivateRegressor):
    """Lasso, or elastic net with ``l1_ratio`` below 1, with an (epsilon, delta) guarantee and nothing to tune.

    Parameters are those of `PrivateLinearRegression` without ``penalty``. ``alpha`` is scikit-learn's; "auto" removes
    coefficients that cannot be told from the noise.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        row_norm: float | None = None,
        target_range: tuple[float, float] | None = None,
        alpha: float | Literal["auto"] = "auto",
        l1_ratio: float = 1.0,
        fit_intercept: bool = True,
        adjacency: Adjacency = "replace-one",
        random_state: Any = None,
        progress: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.row_norm = row_norm
        self.target_range = target_range
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.adjacency = adjacency
        self.random_state = random_state
        self.progress = progress

    @property
    def penalty(self) -> PenaltyName:  # type: ignore[override]
        """The penalty that ``l1_ratio`` makes."""
        return "l1" if self.l1_ratio == 1 else "elasticnet" if self.l1_ratio > 0 else "l2"


class PrivateHuberRegressor(_PrivateRegressor):
    """Regression with the Huber loss, with an (epsilon, delta) guarantee and nothing to tune.

    Parameters are those of `PrivateLinearRegression`, and:

    Parameters
    ----------
    transition : float, optional
        Residual, in units of the target, up to which the loss is quadratic. Declared: it is not estimated from the
        data, unlike scikit-learn's scale. Default: a tenth of the width of ``target_range``, 1.345 without one.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        row_norm: float | None = None,
        target_range: tuple[float, float] | None = None,
        transition: float | None = None,
        penalty: PenaltyName | None = None,
        alpha: float | Literal["auto"] = "auto",
        l1_ratio: float = 0.5,
        fit_intercept: bool = True,
        adjacency: Adjacency = "replace-one",
        random_state: Any = None,
        progress: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.row_norm = row_norm
        self.target_range = target_range
        self.transition = transition
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.adjacency = adjacency
        self.random_state = random_state
        self.progress = progress

    def _scaled_loss(self, half: float) -> Loss:
        if self.transition is not None:
            return Huber(require_positive("transition", self.transition) / half)
        declared = self._declared_range()
        return Huber(1.345) if declared is None else Huber(0.1 * (declared[1] - declared[0]) / half)


def _order_of_rows(problem: Problem, groups: ArrayLike | None) -> Any:
    """Where the problem's rows come from: it puts the rows of one user next to each other."""
    if groups is None:
        return slice(None)
    if problem.items < 2:
        raise ValueError(
            "groups has one user. A private model hides one user among others: pass at least two, or drop groups= "
            "to protect single records."
        )
    return np.argsort(np.unique(groups, return_inverse=True)[1], kind="stable")


def _split(models: Array, fit_intercept: bool) -> tuple[Array, Array]:
    if fit_intercept:
        return models[:, :-1].copy(), models[:, -1].copy()
    return models, np.zeros(len(models))
