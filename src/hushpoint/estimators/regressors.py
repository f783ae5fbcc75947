"""Private regressors: ``fit`` with an epsilon, and nothing to tune."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin

from hushpoint._checks import require_positive, require_range, shown
from hushpoint._silence import silent_about
from hushpoint._types import Array
from hushpoint.estimators.base import PrivateLinear, split_models
from hushpoint.estimators.nonprivate import PenaltyName
from hushpoint.estimators.penalty import Penalty
from hushpoint.losses import Huber, Loss, Squared
from hushpoint.privacy.guarantee import Adjacency


class _PrivateRegressor(RegressorMixin, PrivateLinear):
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
        X, numbers = self._checked_rows(X, y)
        loss, _ = self._declare()
        targets = self._targets(numbers)
        self._keep(self._fit(X, targets[0], targets, loss, groups))
        return self

    def _checked_rows(self, X: Any, y: Any) -> tuple[Any, Array]:
        X, y = self._checked(X, y, y_numeric=True)
        return X, y.astype(np.float64)

    def _declare(self) -> tuple[Loss, int]:
        return self._scaled_loss(self._target_scale()[1]), 1

    def _targets(self, y: Array) -> list[Array]:
        if not math.isfinite(self.epsilon):
            return [y]
        centre, half = self._target_scale()
        # Clipped first: a huge target must not show as an overflow.
        return [np.clip((np.clip(y, centre - half, centre + half) - centre) / half, -1.0, 1.0)]

    def _keep(self, models: Array) -> None:
        centre, half = self._target_scale()
        coef, intercept = split_models(models * half, self.fit_intercept)
        self.coef_, self.intercept_ = coef[0], float(intercept[0]) + centre
        self._unit, self._centre = half, centre
        declared = self._declared_range() if math.isfinite(self.epsilon) else None
        self._low, self._high = declared or (-math.inf, math.inf)

    def predict(self, X: Any) -> Array:
        """Predicted targets; of a private model clipped to ``target_range``."""
        return self._answers(self._scores(X))

    def _answers(self, scores: Array) -> Array:
        return np.clip(scores[:, 0], self._low, self._high)

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


@dataclass(eq=False, repr=False)
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

    epsilon: float = 1.0
    delta: float | None = None
    row_norm: float | None = None
    target_range: tuple[float, float] | None = None
    penalty: PenaltyName | None = None
    alpha: float | Literal["auto"] = "auto"
    l1_ratio: float = 0.5
    fit_intercept: bool = True
    adjacency: Adjacency = "replace-one"
    random_state: Any = None
    progress: bool = False
    lattice: bool = True


@dataclass(eq=False, repr=False)
class PrivateLasso(_PrivateRegressor):
    """Lasso, or elastic net with ``l1_ratio`` below 1, with an (epsilon, delta) guarantee and nothing to tune.

    Parameters are those of `PrivateLinearRegression` without ``penalty``. ``alpha`` is scikit-learn's; "auto" removes
    coefficients that cannot be told from the noise.
    """

    epsilon: float = 1.0
    delta: float | None = None
    row_norm: float | None = None
    target_range: tuple[float, float] | None = None
    alpha: float | Literal["auto"] = "auto"
    l1_ratio: float = 1.0
    fit_intercept: bool = True
    adjacency: Adjacency = "replace-one"
    random_state: Any = None
    progress: bool = False
    lattice: bool = True

    @property
    def penalty(self) -> PenaltyName:  # type: ignore[override]
        """The penalty that ``l1_ratio`` makes."""
        return "l1" if self.l1_ratio == 1 else "elasticnet" if self.l1_ratio > 0 else "l2"


@dataclass(eq=False, repr=False)
class PrivateHuberRegressor(_PrivateRegressor):
    """Regression with the Huber loss, with an (epsilon, delta) guarantee and nothing to tune.

    Parameters are those of `PrivateLinearRegression`, and:

    Parameters
    ----------
    transition : float, optional
        Residual, in units of the target, up to which the loss is quadratic. Declared: it is not estimated from the
        data, unlike scikit-learn's scale. Default: a tenth of the width of ``target_range``, 1.345 without one.
    """

    epsilon: float = 1.0
    delta: float | None = None
    row_norm: float | None = None
    target_range: tuple[float, float] | None = None
    transition: float | None = None
    penalty: PenaltyName | None = None
    alpha: float | Literal["auto"] = "auto"
    l1_ratio: float = 0.5
    fit_intercept: bool = True
    adjacency: Adjacency = "replace-one"
    random_state: Any = None
    progress: bool = False
    lattice: bool = True

    def _scaled_loss(self, half: float) -> Loss:
        if self.transition is not None:
            return Huber(require_positive("transition", self.transition) / half)
        declared = self._declared_range()
        return Huber(1.345) if declared is None else Huber(0.1 * (declared[1] - declared[0]) / half)
