"""Private classifiers: ``fit`` with an epsilon, and nothing to tune."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import ClassifierMixin

from hushpoint._checks import require_positive, shown
from hushpoint._silence import require_labels, silent_about
from hushpoint._types import Array
from hushpoint.estimators import nonprivate
from hushpoint.estimators.base import PrivateLinear, order_of_rows, split_models
from hushpoint.estimators.nonprivate import PenaltyName
from hushpoint.estimators.penalty import Penalty
from hushpoint.labels import READ_FROM_LABELS, class_set, declared_classes, probabilities, signs
from hushpoint.losses import ClassWeighted, Logistic, Loss, SmoothedHinge
from hushpoint.privacy.guarantee import Adjacency
from hushpoint.problem import Problem


class _PrivateClassifier(ClassifierMixin, PrivateLinear):
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
        X, y = self._checked_rows(X, y)
        if len(self.classes_) < 2:
            raise ValueError(
                "y has one class only. Pass labels of at least two classes, or declare the classes that can occur: "
                "classes=['no', 'yes']."
            )
        several = len(self.classes_) > 2
        targets = self._targets(y)
        self._softmax = False
        if several and math.isinf(self.epsilon) and self._multinomial() and len(np.unique(y)) == len(self.classes_):
            models = self._fit_multinomial(X, y, groups)
        else:
            models = self._fit(X, targets[0], targets, self._loss(several), groups)
        if self.classes is None and math.isfinite(self.epsilon):
            stated = self.guarantee_
            self.guarantee_ = replace(stated, assumptions=(*stated.assumptions, READ_FROM_LABELS))
        self._keep(models)
        return self

    def _checked_rows(self, X: Any, y: Any) -> tuple[Any, NDArray[Any]]:
        X, y = self._checked(X, y)
        if self.classes is None:  # of declared ones it is known what they are
            require_labels(y)
        self.classes_ = class_set(y, self.classes)
        return X, y

    def _declare(self) -> tuple[Loss, int]:
        self.classes_, self._softmax = declared_classes(self.classes), False
        several = len(self.classes_) > 2
        return self._loss(several), len(self.classes_) if several else 1

    def _targets(self, y: NDArray[Any]) -> list[Array]:
        return [signs(y, one) for one in (self.classes_ if len(self.classes_) > 2 else self.classes_[1:])]

    def _keep(self, models: Array) -> None:
        self.coef_, self.intercept_ = split_models(models, self.fit_intercept)

    def decision_function(self, X: Any) -> Array:
        """Signed distance-like score: above 0 means ``classes_[1]``; with more classes, a column each."""
        scores = self._scores(X)
        return np.asarray(scores[:, 0]) if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely class of each row."""
        scores = self.decision_function(X)
        return self._answers(scores[:, None] if scores.ndim == 1 else scores)

    def _answers(self, scores: Array) -> NDArray[Any]:
        index = (scores[:, 0] > 0).astype(int) if len(self.classes_) == 2 else scores.argmax(axis=1)
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
        problem = Problem(X, signs(y, y[0]), "logistic", row_norm=self.row_norm, groups=groups)
        labels = y[order_of_rows(problem, groups)]
        models, steps = nonprivate.multinomial(problem, labels, *self._strength(problem), self.fit_intercept)
        self._softmax = True
        self._set_unprotected(problem, steps)
        self._errors = ()
        return models


@dataclass(eq=False, repr=False)
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
    lattice : bool
        Sum whole numbers and draw noise exactly, so that the guarantee is one for the program. False: floating-point
        noise, for experiments.

    Attributes
    ----------
    coef_, intercept_, classes_, n_features_in_
    coef_std_, intercept_std_
        The deviation that noise gives coefficients and intercept; nan where its law is not known (an L1 penalty).
    guarantee_ : Guarantee
        What was spent, for whom and against whom.
    parameters_ : Parameters
        The plan; ``print`` explains it.
    n_iter_, n_passes_ : int
        Noisy steps, and passes over the data.
    """

    epsilon: float = 1.0
    delta: float | None = None
    row_norm: float | None = None
    penalty: PenaltyName | None = "l2"
    alpha: float | Literal["auto"] = "auto"
    l1_ratio: float = 0.5
    fit_intercept: bool = True
    adjacency: Adjacency = "replace-one"
    class_weight: dict[Any, float] | None = None
    random_state: Any = None
    progress: bool = False
    lattice: bool = True
    classes: Any = None

    def predict_proba(self, X: Any) -> Array:
        """Probability of each class, a column each; with several classes the models' answers, made to sum to 1."""
        scores = self.decision_function(X)
        return np.asarray(softmax(scores, axis=1)) if self._softmax else probabilities(scores)

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithm of ``predict_proba``."""
        return np.log(self.predict_proba(X))

    def _base_loss(self) -> Loss:
        return Logistic()

    def _multinomial(self) -> bool:
        return self.class_weight is None


@dataclass(eq=False, repr=False)
class PrivateLinearSVC(_PrivateClassifier):
    """Linear support vector machine (smoothed hinge loss) with an (epsilon, delta) guarantee and nothing to tune.

    Parameters are those of `PrivateLogisticRegression`, and:

    Parameters
    ----------
    width : float
        Length of margin over which the hinge is rounded off.
    """

    epsilon: float = 1.0
    delta: float | None = None
    row_norm: float | None = None
    penalty: PenaltyName | None = "l2"
    alpha: float | Literal["auto"] = "auto"
    l1_ratio: float = 0.5
    width: float = 1.0
    fit_intercept: bool = True
    adjacency: Adjacency = "replace-one"
    class_weight: dict[Any, float] | None = None
    random_state: Any = None
    progress: bool = False
    lattice: bool = True
    classes: Any = None

    def _base_loss(self) -> Loss:
        return SmoothedHinge(self.width)
