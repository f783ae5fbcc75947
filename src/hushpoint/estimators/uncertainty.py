"""How far the noise of a training moves its models, from public numbers: its own law, and the moments it released."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import expit

from hushpoint._threads import one_thread
from hushpoint._types import Array, Indices
from hushpoint.estimators.early_stopping import variance
from hushpoint.estimators.metric import Metric
from hushpoint.estimators.walk import walked
from hushpoint.losses import Loss

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(41)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


@dataclass(frozen=True, eq=False)
class NoiseLaw:
    """The law of the noise in a model before it is calibrated.

    ``unit_noise`` is the deviation of the noise on one step's mean gradient over the square root of the number of
    steps; ``curvature`` what is taken for the loss's second derivative, clipped as it was.
    """

    metric: Metric
    constant: float
    unit_noise: float
    curvature: float

    @cached_property
    def root(self) -> Array:
        """R with ``R R'`` the covariance of the coefficients (intercept last); a vector stands for a diagonal."""
        metric = self.metric
        inside = metric.seconds * metric.scales**2
        if metric.momentum:
            steps, tail = metric.steps, metric.tail
            curvatures = self.curvature * inside
            along = walked(curvatures, metric.time, steps, tail, self.unit_noise, metric.momentum).deviation
        else:
            along = self.unit_noise * metric.time * np.sqrt(variance(self.curvature * inside * metric.time))
        if metric.basis is None:
            return np.asarray(metric.scales * along)
        root = metric.basis * (metric.scales * along)
        if self.constant:
            root[-1] *= self.constant
        return np.asarray(root)

    def energies(self, model: Array, parts: Sequence[Indices]) -> tuple[Array, Array]:
        """Mean squares of the scores that parts of a model have, and what noise alone is expected to give them."""
        basis, seconds = self.metric.basis, self.metric.seconds
        if basis is None:
            have = [float((seconds * model**2)[part].sum()) for part in parts]
            expected = [float((seconds * self.root**2)[part].sum()) for part in parts]
            return np.array(have), np.array(expected)
        have, expected = [], []
        with one_thread():
            for part in parts:
                half = basis[part] * np.sqrt(seconds)
                have.append(float(np.square(model[part] @ half).sum()))
                expected.append(float(np.square(self.root[part].T @ half).sum()))
        return np.array(have), np.array(expected)

    def sparse(self, model: Array, reach: float, free: int) -> Array:
        """The model without coefficients that are within so many deviations of noise; the last ``free`` ones stay."""
        told = np.abs(model) > reach * self.root
        told[len(told) - free :] = True
        return np.where(told, model, 0.0)

    def shrunk(self, model: Array, parts: Sequence[Indices]) -> Array:
        """The model, each of these parts of it made smaller by as much of it as is likely to be noise.

        The positive-part rule of James and Stein, with the noise known and scores in place of coefficients.
        """
        found = model.copy()
        for part, have, expected in zip(parts, *self.energies(model, parts), strict=True):
            found[part] *= max(0.0, 1 - expected / have) if have > 0 else 0.0
        return found

    def trust(self, model: Array) -> float:
        """By how much a whole model is to be made smaller, by the same rule."""
        everything = np.arange(len(model) - bool(self.constant))
        (have,), (expected,) = self.energies(model, [everything])
        return max(0.0, 1 - float(expected) / float(have)) if have > 0 else 0.0


def mean_curvature(loss: Loss, limit: float, mean: float, deviation: float, spread: float) -> float:
    """Mean second derivative of a loss with slopes cut at a limit, for normal scores and targets that they predict.

    Targets of two classes follow the scores as log-odds; others are scores and a normal residual, which has of the
    targets' spread what the scores leave.
    """
    cut = loss.truncated(limit)
    scores = mean + deviation * _NODES
    if loss.labels == "two-class":
        positive = expit(scores)
        found = positive * cut.curvature(scores, np.ones_like(scores))
        found += (1 - positive) * cut.curvature(scores, -np.ones_like(scores))
        return float(_WEIGHTS @ found)
    residual = residual_left(spread, deviation)
    return float(_WEIGHTS @ cut.curvature(np.zeros_like(_NODES), residual * _NODES))


def residual_left(spread: float, deviation: float) -> float:
    """What scores of a deviation leave of a target's spread: a guess, where nothing was released of residuals."""
    return math.sqrt(max(spread**2 - deviation**2, 0.1 * spread**2))
