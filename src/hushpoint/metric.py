"""A metric for gradient steps, learned privately: second moments of the features, and coordinates made from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushpoint.noise import Source
from hushpoint.privacy.guarantee import Adjacency
from hushpoint.problem import Rows
from hushpoint.regularizers import Regularizer
from hushpoint.utility.early_stopping import expected_excess
from hushpoint.utility.planner import Parameters

Array = NDArray[np.float64]

_CHUNK = 1 << 14
_ABOVE_NOISE = 1.1  # an eigenvalue counts as seen if it exceeds the largest one of pure noise by a tenth
_LEAST_LENGTH = 1 / 30  # mean square of the rows, in units of row_norm^2, below which noisy estimates are not believed


@dataclass(frozen=True)
class Moments:
    """Noisy mean of ``a a'`` over the rows (or of its diagonal), and noisy mean of ``|a|^2``, constant included."""

    matrix: Array
    noise_std: float
    mean_square: float


def moment_sensitivity(row_norm: float, constant: float, adjacency: Adjacency) -> float:
    """How far one item moves the sum of ``a a'``, in the Frobenius norm; ``constant`` is the last entry of each row.

    The entry ``constant^2`` is public and left out. Zero-out: ``|a|^4 + 2 constant^2 |a|^2``, at its largest.
    Replace-one: ``|a a' - b b'|^2 = |a|^4 + |b|^4 - 2 (a.b)^2``, constants included. An item of several rows is a
    mean of such matrices, and a difference of means is no longer than the longest difference.
    """
    if adjacency == "zero-out":
        return row_norm * math.hypot(row_norm, math.sqrt(2) * constant)
    return math.sqrt(2) * math.hypot(row_norm, constant) ** 2


def release_moments(
    rows: Rows, row_weights: Array, row_norm: float, constant: float, plan: Parameters, source: Source
) -> Moments:
    """The moments with Gaussian noise that costs ``plan.moment_mu`` and ``plan.length_mu``.

    Rows must be no longer than ``row_norm``; ``row_weights`` are those of the objective.
    """
    width, items = plan.width, plan.items
    diagonal = plan.metric == "diagonal"
    # On the diagonal the constant stands alone, and is public.
    sensitivity = moment_sensitivity(row_norm, 0.0 if diagonal else constant, plan.adjacency)
    scale = sensitivity / (items * plan.moment_mu)
    exact = _mean_of_squares(rows, row_weights) if diagonal else _mean_of_products(rows, row_weights)
    if constant:
        exact = _with_constant(exact, rows, row_weights, constant, diagonal)
    noise = source.normals("second moments", np.arange(1 if diagonal else width), 0, width, scale)
    if diagonal:
        noise = noise[0]
        if constant:
            noise[-1] = 0.0
    else:
        # An entry off the diagonal is counted twice by the Frobenius norm: half the variance, in both places.
        upper = np.triu(noise, 1) / math.sqrt(2)
        noise = upper + upper.T + np.diag(np.diag(noise))
        if constant:
            noise[-1, -1] = 0.0  # constant^2 is public
    square = float(row_weights @ np.minimum(rows.squared_norms, row_norm**2))
    square_noise = row_norm**2 / (items * plan.length_mu)
    square += float(source.normals("mean square", [0], 0, 1, square_noise)[0, 0])
    square = min(max(square, min(_LEAST_LENGTH * row_norm**2, 2 * square_noise)), row_norm**2)
    return Moments(exact + noise, scale, square + constant**2)


def _mean_of_products(rows: Rows, row_weights: Array) -> Array:
    """Weighted mean of ``a a'``, a chunk of rows at a time."""
    total = np.zeros((rows.features.shape[1],) * 2)
    for start in range(0, len(rows), _CHUNK):
        part = rows.features[start : start + _CHUNK]
        weights = row_weights[start : start + _CHUNK]
        weighted = part.multiply(weights[:, None]).tocsr() if rows.sparse else part * weights[:, None]
        product = part.T @ weighted
        total += product.toarray() if rows.sparse else product
    return total


def _mean_of_squares(rows: Rows, row_weights: Array) -> Array:
    """Weighted mean of each squared feature, a chunk of rows at a time."""
    total = np.zeros(rows.features.shape[1])
    for start in range(0, len(rows), _CHUNK):
        part = rows.features[start : start + _CHUNK]
        squares = part.multiply(part).tocsr() if rows.sparse else part**2
        total += squares.T @ row_weights[start : start + _CHUNK]
    return total


def _with_constant(exact: Array, rows: Rows, row_weights: Array, constant: float, diagonal: bool) -> Array:
    if diagonal:
        return np.append(exact, constant**2)
    means = constant * np.asarray(rows.features.T @ row_weights)
    return np.block([[exact, means[:, None]], [means[None, :], np.full((1, 1), constant**2)]])


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
        return np.asarray((self.basis * self.scales) @ self.basis.T)

    def apply(self, vector: Array) -> Array:
        """W times a vector."""
        return np.asarray(self.matrix * vector if self.basis is None else self.matrix @ vector)


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
    signal = plan.signal * (seconds / seconds.sum() + 1 / plan.width) / 2
    best = (math.inf, ridges[-1], times[0])
    for ridge in ridges:
        inside = seconds / (seconds + ridge)
        inside = inside / inside.max()
        noise = plan.clip * math.sqrt(inside.sum()) / (plan.items * plan.descent_mu / _per_record(plan))
        risk = expected_excess(inside, signal, times, np.asarray(noise), plan.curvature, plan.items)
        found = int(risk.argmin())
        best = min(best, (float(risk[found]), ridge, times[found]))
    _, ridge, time = best
    inside = seconds / (seconds + ridge)
    scales = np.sqrt(1 / (seconds + ridge) / inside.max())
    return Metric(basis, scales, float(inside.sum() / inside.max()), float(time))


def _per_record(plan: Parameters) -> float:
    """How many clip lengths one item moves a sum of gradients."""
    return 2.0 if plan.adjacency == "replace-one" else 1.0


class Mapped:
    """The features ``[X, constant] W`` without forming them: two products with X in place of one with a dense copy."""

    def __init__(self, features: Any, constant: float, metric: Metric) -> None:
        self.features, self.constant, self.metric = features, constant, metric
        self.shape = (features.shape[0], len(metric.scales))

    def __matmul__(self, model: Array) -> Array:
        point = self.metric.apply(model)
        if not self.constant:
            return np.asarray(self.features @ point)
        return np.asarray(self.features @ point[:-1] + self.constant * point[-1])

    @property
    def T(self) -> _Transposed:
        """The transpose, for products with vectors."""
        return _Transposed(self)

    def squared_norms(self) -> Array:
        """Squared lengths of the mapped rows, rounded up further than products with W round."""
        count = self.shape[0]
        squared = np.empty(count)
        weights = self.metric.matrix
        rest = weights[-1] * self.constant if self.constant and self.metric.basis is not None else 0.0
        within = weights[: self.shape[1] - bool(self.constant)]
        for start in range(0, count, _CHUNK):
            part = self.features[start : start + _CHUNK]
            if self.metric.basis is None:
                squares = part.multiply(part).tocsr() if hasattr(part, "multiply") else part**2
                length = np.asarray(squares @ within**2)
                if self.constant:
                    length = length + (self.constant * weights[-1]) ** 2
            else:
                mapped = np.asarray(part @ within) + rest
                length = np.einsum("ij,ij->i", mapped, mapped)
            squared[start : start + _CHUNK] = length
        spread = float(self.metric.scales.max() / self.metric.scales.min())
        return np.asarray(squared * (1 + 1e-12 + 32 * np.finfo(np.float64).eps * spread))


class _Transposed:
    def __init__(self, mapped: Mapped) -> None:
        self.mapped = mapped

    def __matmul__(self, slopes: Array) -> Array:
        total = np.asarray(self.mapped.features.T @ slopes)
        if self.mapped.constant:
            total = np.append(total, self.mapped.constant * slopes.sum())
        return np.asarray(self.mapped.metric.apply(total))  # W is symmetric


class MappedRidge(Regularizer):
    """``k/2 |z|^2`` of the coefficients ``z = W x`` in terms of x; the intercept's entry, if any, is free."""

    def __init__(self, strength: float, metric: Metric, free: int) -> None:
        chosen = metric.matrix if metric.basis is not None else np.diag(metric.matrix)
        kept = chosen[: len(chosen) - free]
        self._values, self._vectors = np.linalg.eigh(strength * kept.T @ kept)
        self._root = math.sqrt(strength) * kept

    def value(self, z: Array) -> Array:
        return np.asarray(0.5 * ((z @ self._root.T) ** 2).sum(axis=-1))

    def prox(self, v: Array, step: Array | float) -> Array:
        return np.asarray(((v @ self._vectors) / (1 + step * np.maximum(self._values, 0.0))) @ self._vectors.T)
