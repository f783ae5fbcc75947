"""Scores of private models: on public rows as they are, on held-out private ones with noise (docs/selection.md)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier, is_regressor
from sklearn.metrics import check_scoring

from hushpoint._checks import require_range, shown
from hushpoint._types import Array, Indices
from hushpoint.estimators.merits import whole_score
from hushpoint.noise import Source

Score = Callable[[Any, Source, int], float]

_BOUNDED = {"classifier": ("accuracy",), "regressor": ("neg_mean_squared_error", "neg_mean_absolute_error")}


@dataclass(frozen=True)
class BoundedScore:
    """A mean over items of a number from 0 to 1; errors are measured within the declared ``target_range``.

    On the ``lattice`` the mean and its noise are of whole numbers.
    """

    name: str
    target_range: tuple[float, float] | None = None
    lattice: bool = True

    def on(self, X: Any, y: Any, owners: Indices | None, mu: float) -> Score:
        """The mean over these held-out items, made mu-GDP."""
        true = np.asarray(y)
        items = np.arange(len(true)) if owners is None else np.unique(owners, return_inverse=True)[1]
        if self.lattice:
            return whole_score(self.merits, X, true, items, mu)
        counts = np.bincount(items)
        std = (1 + 1e-12) / (len(counts) * mu)  # replaced or zeroed, one item moves the mean by at most 1/len(counts)

        def score(model: Any, source: Source, run: int) -> float:
            merits = self.merits(np.asarray(model.predict(X)), true)
            noise = float(source.normals("select-score", [0], run, 1, std)[0, 0])
            return float(np.mean(np.bincount(items, merits) / counts)) + noise

        return score

    def merits(self, predicted: NDArray[Any], true: NDArray[Any]) -> Array:
        """What each row adds to the score: a number from 0 to 1 that depends on that row alone."""
        if self.target_range is None:
            return np.asarray(predicted == true, dtype=np.float64)
        low, high = self.target_range
        targets = np.asarray(true, dtype=np.float64)
        miss = np.abs(np.clip(predicted, low, high) - np.clip(targets, low, high)) / (high - low)
        miss = np.where(np.isfinite(miss), np.clip(miss, 0.0, 1.0), 1.0)
        return np.asarray(1 - miss**2 if self.name == "neg_mean_squared_error" else 1 - miss)

    def in_units(self, value: float) -> float:
        """The score in units of the target."""
        if self.target_range is None:
            return value
        low, high = self.target_range
        return (value - 1) * (high - low) ** (2 if self.name == "neg_mean_squared_error" else 1)


@dataclass(frozen=True)
class PublicScore:
    """A score on public rows: any that scikit-learn has, without noise."""

    rows: tuple[Any, Any]
    scoring: Any

    def on(self, X: Any, y: Any, owners: Indices | None, mu: float) -> Score:
        """The score on the public rows, whatever was held out."""

        def score(model: Any, source: Source, run: int) -> float:
            value = float(check_scoring(model, self.scoring)(model, *self.rows))
            return -math.inf if math.isnan(value) else value

        return score

    def in_units(self, value: float) -> float:
        """The score as scikit-learn gave it."""
        return value


def checked_score(
    estimator: Any, scoring: Any, public_validation: Any, lattice: bool = True
) -> BoundedScore | PublicScore:
    """The score that was asked for; of private rows only one that no row can move far."""
    if public_validation is not None:
        if not (isinstance(public_validation, (tuple, list)) and len(public_validation) == 2):
            raise ValueError(f"public_validation is {shown(public_validation)}. Pass a pair (X, y) of public rows.")
        return PublicScore((public_validation[0], public_validation[1]), scoring)
    kind = "classifier" if is_classifier(estimator) else "regressor" if is_regressor(estimator) else None
    if kind is None:
        raise ValueError(
            f"estimator is a {type(estimator).__name__}, neither a classifier nor a regressor. "
            "Pass public_validation=(X, y) to score it on public rows."
        )
    choices = _BOUNDED[kind]
    name = choices[0] if scoring is None else scoring
    if not isinstance(name, str) or name not in choices:
        raise ValueError(
            f"scoring is {shown(name)}. A score of private rows needs a bound on what one row does to it: choose "
            f"one of {', '.join(map(repr, choices))}, or pass public_validation=(X, y), where any score is free."
        )
    return BoundedScore(name, _target_range(estimator) if kind == "regressor" else None, lattice)


def _target_range(estimator: Any) -> tuple[float, float]:
    declared = estimator.get_params().get("target_range")
    if declared is None:
        raise ValueError(
            "target_range is not declared. The noisy score needs a range of the target that does not come from the "
            "data. Pass target_range=(low, high) to the estimator, or public_validation=(X, y) to PrivateSelect."
        )
    low, high = (float(end) for end in declared)
    return require_range("target_range", low, high)
