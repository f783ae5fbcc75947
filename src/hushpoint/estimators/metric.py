"""A metric for gradient steps, learned privately: moments of the features, and coordinates made from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hushpoint._threads import one_thread
from hushpoint._types import Array
from hushpoint.estimators import few_rounds
from hushpoint.estimators.constraints import Cone
from hushpoint.estimators.early_stopping import expected_excess
from hushpoint.estimators.planner import Parameters, clips_moved
from hushpoint.estimators.walk import walked
from hushpoint.regularizers import Regularizer

_ABOVE_NOISE = 1.1  # an eigenvalue counts as seen if it exceeds the largest one of pure noise by a tenth
_SURELY = 2.5  # deviations of the noise
_FEW_DIRECTIONS = 1000  # that are looked at one by one
_LEAST_LENGTH = 1 / 30  # mean square of the rows, in units of row_norm^2, below which noisy estimates are not believed


@dataclass(frozen=True)
class Moments:
    """Noisy mean of ``a a'`` over the rows (or of its diagonal), and noisy mean of ``|a|^2``, constant included.

    ``noise_std`` is that of an entry of the diagonal, ``length_noise`` that of the mean square. ``centre`` holds what
    is taken off the rows before they are mapped, and ``centre_noise`` its noise; the matrix is still that of the rows.
    ``constant`` is the last entry of every row, if there is one.
    """

    matrix: Array
    noise_std: float
    mean_square: float
    length_noise: float = 0.0
    centre: Array | None = None
    centre_noise: float = 0.0
    constant: float = 0.0


def believed_centre(means: Array, noise_std: float) -> Array:
    """What noisy means are taken for: those that noise alone would hardly reach, and 0 for the others."""
    return np.where(np.abs(means) > noise_std * math.sqrt(2 * math.log(len(means) + 1)), means, 0.0)


def believed_square(released: float, noise_std: float, row_norm: float) -> float:
    """What a noisy mean squared length is taken for: a length of rows that can be, and not next to nothing."""
    return min(max(released, min(_LEAST_LENGTH * row_norm**2, 2 * noise_std)), row_norm**2)


@dataclass(frozen=True)
class Metric:
    """Coordinates in which the second moments are close to equal: ``x = W v``, ``W = basis diag(scales) basis'``.

    ``basis`` is None where W is diagonal. ``moments`` are those it was made from, ``seconds`` what they are taken for,
    direction by direction. ``size`` estimates the mean squared length of a row in these coordinates, ``time`` is how
    long to descend in them (step size times steps), ``steps`` in how many steps, with which ``momentum``, the last
    fraction ``tail`` of them averaged.
    """

    basis: Array | None
    scales: Array
    seconds: Array
    size: float
    time: float
    steps: int
    moments: Moments
    momentum: float = 0.0
    tail: float = 0.5

    @property
    def centre(self) -> Array | None:
        """What is taken off the rows first."""
        return self.moments.centre

    @cached_property
    def unseen(self) -> int:
        """In how many directions of a full metric there may be nothing.

        The smallest released moment is at most that of the direction with the smallest true one: that, and a normal
        number of the noise's deviation. Above 2.5 of these there is something in every direction, in 99.4% of cases.
        """
        if not self.momentum or self.basis is None:
            return int((self._released <= _SURELY * self.moments.noise_std).sum())
        with one_thread():  # the directions are not those of the released matrix
            values = np.linalg.eigvalsh(self.moments.matrix)
        return int((values <= _SURELY * self.moments.noise_std).sum())

    @cached_property
    def least(self) -> Array:
        """Second moments along each direction, 0 where there may be nothing: rare categories have next to none."""
        released, noise = self._released, self.moments.noise_std
        if self.basis is None:
            return np.where(released > noise * math.sqrt(2 * math.log(2 * len(released))), self.seconds, 0.0)
        if not self.unseen:
            return self.seconds
        return np.where(released > _ABOVE_NOISE * noise * math.sqrt(2 * len(released)), self.seconds, 0.0)

    @property
    def _released(self) -> Array:
        """The released moments along each direction."""
        if self.basis is None:
            return self.moments.matrix
        with one_thread():
            return np.asarray(np.einsum("ij,ij->j", self.basis, self.moments.matrix @ self.basis))

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

    def column(self, constant: float) -> Array | None:
        """What a constant after every row is to be multiplied with so that the centre is taken off the row."""
        return None if self.centre is None else np.append(-self.scales[:-1] * self.centre / constant, 0.0)

    def model(self, vector: Array, constant: float) -> Array:
        """The linear model of the rows as they are, its intercept last where there is a constant."""
        found = self.apply(vector)
        if constant:
            found[-1] *= constant
        if self.centre is not None:
            found[-1] -= self.centre @ found[:-1]
        return found

    def times(self, rows: Array) -> Array:
        """Rows times W."""
        return np.asarray(rows * self.scales if self.basis is None else rows @ self.matrix)

    def nearest(self, cone: Cone, model: Array, constant: float) -> Array:
        """The model of a cone that is nearest in these coordinates; the mean score by a known centre stays."""
        root = self.matrix.copy()
        if constant:
            root[-1] *= constant
        found = cone.nearest(model, root)
        if self.centre is not None:
            found[-1] -= self.centre @ (found - model)[:-1]
        return found

    def expected_scores(self, model: Array, constant: float) -> tuple[float, float]:
        """Mean and deviation of a model's scores by the released moments; without a constant, the mean counts as 0.

        The deviation is one from this mean, whose noise it makes room for.
        """
        coefficients = model[: len(model) - bool(constant)]
        length = float(coefficients @ coefficients)
        if self.basis is None:
            seconds = self.seconds[: len(coefficients)]
            square = float(seconds @ coefficients**2)
            if self.centre is None:
                return 0.0, math.sqrt(square)
            square += self.moments.centre_noise**2 * length
            return float(model[-1] + self.centre @ coefficients), math.sqrt(square)
        along = self.basis.T @ (np.append(coefficients, model[-1] / constant) if constant else model)
        square = float(self.seconds @ along**2)
        if not constant:
            return 0.0, math.sqrt(square)
        mean = float(self.basis[-1] @ (self.seconds * along)) / constant
        noise = (self.moments.noise_std / constant) ** 2 / 2  # of a feature's mean, in the last column of the matrix
        return mean, math.sqrt(max(square - mean**2, 0.01 * square) + noise * length)


def choose_metric(moments: Moments, plan: Parameters) -> Metric:
    """The metric ``(second moments + ridge)^(-1/2)`` and the time with the least expected excess risk.

    Post-processing of the released moments: it costs nothing. A large ridge gives the plain metric, a small one
    whitens the features. Directions that drown in the noise of the moments share what is left of the mean square, and
    steps are short enough for as much of it as one of them can have without being seen.
    """
    if plan.rounds is not None and moments.matrix.ndim > 1:
        return _metric_for_few(moments, plan)
    seconds, basis, hidden = _denoised(moments, plan)
    total = moments.mean_square
    # Half of the guessed signal lies where the features vary, half is spread evenly over directions.
    values, counts = _grouped(seconds)
    signal = plan.signal * (values / seconds.sum() + 1 / plan.width) / 2
    unit_noise = plan.clip / (plan.items * plan.descent_mu / clips_moved(plan.adjacency))
    least, reach, momentum = min(plan.steps, plan.most_steps), 1.0, 0.0
    if plan.rounds is not None:
        least, momentum = plan.most_steps, few_rounds.momentum(plan.two_class)
        reach = few_rounds.STEP / (1 - momentum)
    best = (math.inf, 0.0, 0.0, 0)
    for ridge in total * np.geomspace(1e-5, 10, 25):
        inside = values / (values + ridge)
        largest = inside.max()
        inside = inside / largest
        size = float((counts * inside).sum())
        curvature = _curvature(plan, size, hidden, ridge, largest)
        longest = reach * plan.largest_step * min(least, plan.most_steps / curvature)
        times = np.geomspace(min(plan.largest_step, longest) / 2, longest, 24)
        noise = np.asarray(unit_noise * math.sqrt(size))
        risk = expected_excess(inside, signal, times, noise, plan.curvature, plan.items, counts)
        found = int(risk.argmin())
        steps = max(least, math.ceil(times[found] * curvature / plan.largest_step / reach * (1 - 1e-9)))
        best = min(best, (float(risk[found]), ridge, times[found], steps))
    _, ridge, time, steps = best
    inside = seconds / (seconds + ridge)
    scales = np.sqrt(1 / (seconds + ridge) / inside.max())
    time *= 1 - momentum  # which carries a step on for so much longer
    size = float(inside.sum() / inside.max())
    return Metric(basis, scales, seconds, size, float(time), steps, moments, momentum, plan.tail_average)


def _metric_for_few(moments: Moments, plan: Parameters) -> Metric:
    """The metric for a walk in so few steps that each is about as long as it can be, with a ridge chosen by a law."""
    total = moments.mean_square
    seconds, basis, edge = few_rounds.told_apart(moments.matrix, moments.noise_std, total, moments.constant)
    ridge = few_rounds.ridge(plan.strength, total, plan.width)
    curvature = 1.0
    if not plan.two_class:  # steps that are too long go astray
        ridge = max(ridge, plan.caution * edge)
        curvature = max(1.0, (1 + plan.caution * edge / (float(seconds.min()) + ridge)) / few_rounds.STABLE)
    inside = seconds / (seconds + ridge)
    largest = inside.max()
    scales = np.sqrt(1 / (seconds + ridge) / largest)
    size = float(inside.sum() / largest)
    time = few_rounds.STEP * plan.largest_step / curvature * plan.most_steps
    if not plan.two_class:
        time = _time_for_few(plan, inside / largest, seconds, time)
    momentum = few_rounds.momentum(plan.two_class)
    return Metric(basis, scales, seconds, size, time, plan.most_steps, moments, momentum, plan.tail_average)


def _time_for_few(plan: Parameters, inside: Array, seconds: Array, longest: float) -> float:
    """For how long a regression walks, with the least expected risk: where all is noise, not as long as it can."""
    signal = plan.signal * (seconds / seconds.sum() + 1 / plan.width) / 2
    noise = plan.clip * math.sqrt(float(inside.sum())) * clips_moved(plan.adjacency) / (plan.items * plan.descent_mu)

    def risk(time: float) -> float:
        momentum = few_rounds.momentum(plan.two_class)
        walk = walked(plan.curvature * inside, time, plan.most_steps, plan.tail_average, noise, momentum)
        return float((signal * walk.left**2 + inside * walk.deviation**2).sum())

    return float(min(longest * np.geomspace(1 / 64, 1, 13), key=risk))


@dataclass(frozen=True)
class _Hidden:
    """What directions that were not seen are each taken to have, and the most that one of them can have."""

    each: float
    most: float


def _denoised(moments: Moments, plan: Parameters) -> tuple[Array, Array | None, _Hidden]:
    """Second moments along each direction, the directions, and what is said of those not seen."""
    total = moments.mean_square
    if plan.metric == "diagonal":
        basis, seen = None, moments.matrix
        threshold = moments.noise_std * math.sqrt(2 * math.log(2 * plan.width))
        sure = seen > _ABOVE_NOISE * threshold
        seconds = np.where(sure, seen, 0.0)
        if moments.centre is not None:
            seconds[:-1] = np.maximum(seconds[:-1] - moments.centre**2, 0.01 * seconds[:-1])
    else:
        seen, basis = moments.matrix, None
        if seen.ndim > 1:  # a vector is a matrix of which the eigenvalues are known, and its basis does not matter
            with one_thread():
                seen, basis = np.linalg.eigh(moments.matrix)
        # Noise alone has eigenvalues up to this edge, and lifts an eigenvalue m of the truth to m + edge^2/(4 m).
        edge = moments.noise_std * math.sqrt(2 * plan.width)
        threshold = _ABOVE_NOISE * edge
        sure = seen > threshold
        seconds = np.where(sure, (seen + np.sqrt(np.maximum(seen**2 - edge**2, 0.0))) / 2, 0.0)
    left = total - float(seconds.sum())
    if sure.all():
        return seconds, basis, _Hidden(1.0, 0.0)
    left = max(left, 0.0) + 2 * math.hypot(moments.length_noise, moments.noise_std * math.sqrt(float(sure.sum())))
    each = max((total - float(seconds.sum())) / (plan.width - int(sure.sum())), 0.01 * total / plan.width)
    seconds[~sure] = each
    return seconds, basis, _Hidden(each, max(min(threshold, left), each))


def _curvature(plan: Parameters, size: float, hidden: _Hidden, ridge: float, largest: float) -> float:
    """A bound to go by on the largest second moment in the metric, where those that were seen have at most 1.

    Of a full metric, one direction that was not seen may have all that the others like it are taken to share. Of a
    diagonal one nothing is known about directions between the coordinates: they may have any part of the whole size.
    """
    if plan.metric == "full":
        return max(1.0, plan.caution * hidden.most / (hidden.each + ridge) / largest)
    return float(max(1.0, plan.caution * size**plan.crowding))


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
