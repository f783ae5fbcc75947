"""A metric for gradient steps, learned privately: second moments of the features, and coordinates made from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hushpoint._threads import one_thread
from hushpoint._types import Array
from hushpoint.estimators.early_stopping import expected_excess
from hushpoint.estimators.planner import Parameters, clips_moved
from hushpoint.regularizers import Regularizer

_ABOVE_NOISE = 1.1  # an eigenvalue counts as seen if it exceeds the largest one of pure noise by a tenth
_FEW_DIRECTIONS = 1000  # that are looked at one by one
_LEAST_LENGTH = 1 / 30  # mean square of the rows, in units of row_norm^2, below which noisy estimates are not believed


@dataclass(frozen=True)
class Moments:
    """Noisy mean of ``a a'`` over the rows (or of its diagonal), and noisy mean of ``|a|^2``, constant included."""

    matrix: Array
    noise_std: float
    mean_square: float


def believed_square(released: float, noise_std: float, row_norm: float) -> float:
    """What a noisy mean squared length is taken for: a length of rows that can be, and not next to nothing."""
    return min(max(released, min(_LEAST_LENGTH * row_norm**2, 2 * noise_std)), row_norm**2)


@dataclass(frozen=True)
class Metric:
    """Coordinates in which the second moments are close to equal: ``x = W v``, ``W = basis diag(scales) basis'``.

    ``basis`` is None where W is diagonal. ``size`` estimates the mean squared length of a row in these coordinates,
    ``time`` is how long to descend in them (step size times steps).
    """

    basis: Array | None
    scales: Array
    size: float
    time: float

    @cached_property
    def matrix(self) -> Array:
        """W, or its diagonal."""
        if self.basis is None:
            return self.scales
        with one_thread():
            return np.asarray((self.basis * self.scales) @ self.basis.T)

    def apply(self, vector: Array) -> Array:
        """W times a vector."""
        from hushpoint._fixed import product

        return np.asarray(self.matrix * vector) if self.basis is None else product(self.matrix, vector)


def choose_metric(moments: Moments, plan: Parameters) -> Metric:
    """The metric ``(second moments + ridge)^(-1/2)`` and the time with the least expected excess risk.

    Post-processing of the released moments: it costs nothing. A large ridge gives the plain metric, a small one
    whitens the features. Directions that drown in the noise of the moments share what is left of the mean square.
    """
    if plan.metric == "diagonal":
        basis, seen = None, moments.matrix
        threshold = moments.noise_std * math.sqrt(2 * math.log(2 * plan.width))
        sure = seen > _ABOVE_NOISE * threshold
        seconds = np.where(sure, seen, 0.0)
    else:
        with one_thread():
            seen, basis = np.linalg.eigh(moments.matrix)
        # Noise alone has eigenvalues up to this edge, and lifts an eigenvalue m of the truth to m + edge^2/(4 m).
        edge = moments.noise_std * math.sqrt(2 * plan.width)
        sure = seen > _ABOVE_NOISE * edge
        seconds = np.where(sure, (seen + np.sqrt(np.maximum(seen**2 - edge**2, 0.0))) / 2, 0.0)
    total = moments.mean_square
    if not sure.all():
        hidden = plan.width - int(sure.sum())
        seconds[~sure] = max((total - seconds.sum()) / hidden, 0.01 * total / plan.width)
    ridges = total * np.geomspace(1e-5, 10, 25)
    times = np.geomspace(plan.largest_step / 2, plan.largest_step * plan.steps, 24)
    # Half of the guessed signal lies where the features vary, half is spread evenly over directions.
    values, counts = _grouped(seconds)
    signal = plan.signal * (values / seconds.sum() + 1 / plan.width) / 2
    unit_noise = plan.clip / (plan.items * plan.descent_mu / clips_moved(plan.adjacency))
    best = (math.inf, ridges[-1], times[0])
    for ridge in ridges:
        inside = values / (values + ridge)
        inside = inside / inside.max()
        noise = unit_noise * math.sqrt((counts * inside).sum())
        risk = expected_excess(inside, signal, times, np.asarray(noise), plan.curvature, plan.items, counts)
        found = int(risk.argmin())
        best = min(best, (float(risk[found]), ridge, times[found]))
    _, ridge, time = best
    inside = seconds / (seconds + ridge)
    scales = np.sqrt(1 / (seconds + ridge) / inside.max())
    return Metric(basis, scales, float(inside.sum() / inside.max()), float(time))


def _grouped(seconds: Array) -> tuple[Array, Array]:
    """Second moments that stand for others within half a percent of them where there are many, and for how many."""
    if len(seconds) <= _FEW_DIRECTIONS:
        return seconds, np.ones(len(seconds))
    _, places, counts = np.unique(np.rint(200 * np.log(seconds)), return_inverse=True, return_counts=True)
    return np.bincount(places, seconds) / counts, counts.astype(np.float64)


class MappedRidge(Regularizer):
    """``k/2 |z|^2`` of the coefficients ``z = W x`` in terms of x; the intercept's entry, if any, is free."""

    def __init__(self, strength: float, metric: Metric, free: int) -> None:
        chosen = metric.matrix if metric.basis is not None else np.diag(metric.matrix)
        kept = chosen[: len(chosen) - free]
        with one_thread():
            self._values, self._vectors = np.linalg.eigh(strength * kept.T @ kept)
        self._root = math.sqrt(strength) * kept

    def value(self, z: Array) -> Array:
        return np.asarray(0.5 * ((z @ self._root.T) ** 2).sum(axis=-1))

    def prox(self, v: Array, step: Array | float) -> Array:
        if v.ndim > 1:  # several points at once
            return np.asarray(((v @ self._vectors) / (1 + step * np.maximum(self._values, 0.0))) @ self._vectors.T)
        from hushpoint._fixed import product

        inside = product(self._vectors.T, v) / (1 + step * np.maximum(self._values, 0.0))
        return product(self._vectors, inside)
