"""Figures about a model on a table, as scikit-learn computes them: exact, and as private as the table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hushpoint._types import Array
from hushpoint.labels import probabilities
from hushpoint.tables.outcomes import Outcomes
from hushpoint.tables.scoring import ScoringModel


@dataclass(frozen=True)
class Figure:
    """A number about a model on a table, and the standard deviation of the noise in it.

    ``value`` is None where there is no such number: it is hidden by its noise, or undefined for this table.
    """

    value: float | None
    noise_std: float | None = None


_NAMES = {
    "accuracy": "accuracy",
    "baseline_accuracy": "accuracy of always answering the commonest class",
    "log_loss": "log loss",
    "roc_auc": "area under the curve",
    "r2": "R2",
    "rmse": "root mean squared error",
    "baseline_rmse": "root mean squared error of always answering the mean",
}


def in_words(figures: Mapping[str, Figure], absent: str) -> list[tuple[str, str]]:
    """What each figure is called and what it is, with the deviation of its noise after ±."""
    return [(_NAMES[name], _told(figure) or absent) for name, figure in figures.items()]


def _told(figure: Figure) -> str:
    if figure.value is None:
        return ""
    value = f"{figure.value:.4f}" if abs(figure.value) < 10 else f"{figure.value:.5g}"
    return value if figure.noise_std is None else f"{value} ± {figure.noise_std:.2g}"


def exact_figures(model: ScoringModel, seen: Outcomes) -> dict[str, Figure]:
    """Figures without noise, the first of which is the score."""
    found = _of_numbers(seen) if model.classes is None else _of_classes(model, seen)
    return {name: Figure(None if math.isnan(value) else float(value)) for name, value in found.items()}


def _of_classes(model: ScoringModel, seen: Outcomes) -> dict[str, float]:
    assert model.classes is not None
    hits = [_mean(seen.true == name, seen.weights) for name in model.classes]
    found = {"accuracy": _mean(seen.true == seen.answers, seen.weights), "baseline_accuracy": max(hits)}
    if model.has_probabilities:
        found["log_loss"] = _log_loss(model.classes, seen)
    if len(model.classes) == 2:
        found["roc_auc"] = _area(seen, model.classes[1]) if min(hits) > 0 else math.nan
    return found


def _of_numbers(seen: Outcomes) -> dict[str, float]:
    centred = seen.true - _mean(seen.true, seen.weights)
    squared, spread = _mean((seen.true - seen.answers) ** 2, seen.weights), _mean(centred**2, seen.weights)
    score = 1 - squared / spread if spread > 0 else math.nan  # of a constant target there is nothing to explain
    return {"r2": score, "rmse": math.sqrt(squared), "baseline_rmse": math.sqrt(spread)}


def _mean(values: Array, weights: Array) -> float:
    return float(np.average(values, weights=weights))


def _log_loss(classes: tuple[str, ...], seen: Outcomes) -> float:
    chances = probabilities(seen.scores)
    own = chances[np.arange(len(chances)), [classes.index(name) for name in seen.true.tolist()]]
    return _mean(-np.log(np.maximum(own, np.finfo(np.float64).eps)), seen.weights)  # the least that scikit-learn takes


def _area(seen: Outcomes, positive: str) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(seen.true == positive, seen.scores, sample_weight=seen.weights))
