"""How far coefficients may be off: by the privacy noise alone, and by noise and sampling together.

All of it is computed from public numbers: the law of the noise, released moments and the released model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.optimize import brentq, root
from scipy.special import expit
from scipy.stats import norm

from hushpoint._threads import one_thread
from hushpoint._types import Array, Indices
from hushpoint.estimators.calibration import Calibration
from hushpoint.estimators.metric import Metric
from hushpoint.estimators.penalty import Penalty
from hushpoint.estimators.uncertainty import NoiseLaw, residual_left
from hushpoint.estimators.walk import Walk, averaged, walked
from hushpoint.losses import Logistic, Loss
from hushpoint.problem import Facts

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(31)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_MOST_CUT = 0.85  # of the cap's square; beyond, the mean square says little about how large residuals are
_MOST_LEFT = 0.25  # of what was to be learned in a direction: beyond, adding it back is a guess
_MOST_NOISE = 0.2  # of the square of a model's scores; beyond, the curvature at the model is not that at the truth

_NO_RESIDUALS = "the residuals drown in the noise of their mean square. Spend a larger epsilon."
_CUT_RESIDUALS = "the residuals are larger than what gradients were clipped at. Spend a larger epsilon."


@dataclass(frozen=True, eq=False)
class Slopes:
    """Means over rows of the loss's slope, squared slope and curvature, times 1, t and t squared.

    t is the score less its mean over its deviation; slopes are cut as they were.
    """

    slope: Array
    square: Array
    curvature: Array


@dataclass(frozen=True, eq=False)
class Scores:
    """Normal scores of rows: true ones, and those that a model gives instead, whose slopes are cut.

    ``limits`` holds the largest slopes, a line for each node of t, and ``weights`` how often each is. ``cut`` is where
    t is cut in the model's scores. ``residual`` is the deviation of a regression's targets from the true scores;
    targets of two classes follow those as log-odds.
    """

    loss: Loss
    limits: Array
    weights: Array
    residual: float | None
    cut: float = math.inf

    def slopes(self, true: tuple[float, float], model: tuple[float, float]) -> Slopes:
        """By quadrature, for scores of these means and deviations."""
        t = np.clip(_NODES, -self.cut, self.cut)
        if self.residual is not None:
            reach = np.minimum(self.limits, self.loss.lipschitz) / self.residual
            flat, curved = self.residual**2 * _cut_square(reach), 2 * norm.cdf(reach) - 1
            return self._means(t, np.zeros_like(self.limits), flat, curved)
        chance, scores = expit(true[0] + true[1] * _NODES)[:, None], (model[0] + model[1] * t)[:, None]
        slope = square = curvature = np.zeros(1)
        for sign, share in ((1.0, chance), (-1.0, 1 - chance)):
            label = np.full_like(scores, sign)
            whole = self.loss.derivative(scores, label)
            cut = np.clip(whole, -self.limits, self.limits)
            slope, square = slope + share * cut, square + share * cut**2
            curvature = curvature + share * (cut == whole) * self.loss.curvature(scores, label)
        return self._means(t, slope, square, curvature)

    def _means(self, t: Array, *values: Array) -> Slopes:
        return Slopes(
            *(t ** np.arange(3)[:, None] @ (_WEIGHTS * (self.weights * value).sum(axis=1)) for value in values)
        )


def _cut_square(reach: Array | float) -> Array:
    """Mean of the smaller of ``z^2`` and ``reach^2``, z standard normal."""
    reach = np.asarray(reach, dtype=np.float64)
    return np.asarray(2 * norm.cdf(reach) - 1 - 2 * reach * norm.pdf(reach) + 2 * reach**2 * norm.sf(reach))


@dataclass(frozen=True, eq=False)
class ErrorBars:
    """The error of one model: that of its descent, projected off the model by the calibration, and the calibration's.

    Parameters
    ----------
    law : NoiseLaw
        Of the descent.
    loss : Loss
    model : array
        After the descent, before calibrating; the intercept last where there is one.
    limit : float
        Largest slope of a row of typical length.
    tail : float
        What fraction of the steps is averaged.
    items : int
    spread : float
        Of the target of a regression.
    offset : float
        What was taken off the targets.
    penalty : Penalty
    doubts : tuple of str
        Why there are no intervals.
    known : bool
        Whether the law is that of the steps that were made.
    calibration : Calibration, optional
    answer : array
        What the calibration released; empty without one.
    scale_noise : float
        The deviation of the noise on one step's gradient of the calibration, over the root of its number of steps.
    released : float, optional
        Deviation of a regression's residuals, by a release of its own. Without it, it is guessed.
    """

    law: NoiseLaw
    loss: Loss
    model: Array
    limit: float
    tail: float
    items: int
    spread: float
    offset: float
    penalty: Penalty
    doubts: tuple[str, ...]
    known: bool = True
    calibration: Calibration | None = None
    answer: Array = field(default_factory=lambda: np.zeros(0))
    scale_noise: float = 0.0
    released: float | None = None

    def calibrated(self, calibration: Calibration, answer: Array, noise: float) -> ErrorBars:
        """The same after a calibration whose noise, on one step's gradient over the root of their number, is this."""
        return replace(self, calibration=calibration, answer=answer, scale_noise=noise)

    def louder(self, factor: float) -> ErrorBars:
        """The same where every noise was so much larger than the plans say: shares of it add up to more."""
        law = replace(self.law, unit_noise=factor * self.law.unit_noise)
        return replace(self, law=law, scale_noise=factor * self.scale_noise)

    def with_residuals(self, cap: float, mean_square: float, noise: float) -> ErrorBars:
        """The same with the mean square of the residuals, none counted larger than a cap, and the noise of it."""
        share = mean_square / cap**2
        if share < 3 * noise / cap**2:
            return replace(self, doubts=(*self.doubts, _NO_RESIDUALS))
        if share > _MOST_CUT:
            return replace(self, doubts=(*self.doubts, _CUT_RESIDUALS))
        reach = brentq(lambda z: float(_cut_square(z)) / z**2 - share, 0.1, 1e9)
        return replace(self, released=cap / reach)

    @property
    def residual(self) -> float | None:
        """Deviation of the residuals of a regression."""
        if self.loss.labels == "two-class":
            return None
        return residual_left(self.spread, self.scores[1]) if self.released is None else self.released

    @property
    def intercept(self) -> bool:
        return bool(self.law.constant)

    @cached_property
    def seen(self) -> Scores:
        """What the descent knows of rows: lengths are those of normal ones."""
        inside = self.law.metric.seconds * self.law.metric.scales**2
        freedom = float(inside.sum() ** 2 / (inside**2).sum())
        others = max(freedom - 1 - self.intercept, 0.5)
        # Chi-squared by the cube of a normal number (Wilson and Hilferty): good enough for lengths, for any freedom.
        cubes = 1 - 2 / (9 * others) + math.sqrt(2 / (9 * others)) * _NODES
        squares = (self.intercept + _NODES[:, None] ** 2 + others * np.maximum(cubes, 0.0) ** 3) / freedom
        limits = self.limit / np.sqrt(np.maximum(squares, 1e-9))
        return Scores(self.loss, limits, _WEIGHTS, self.residual)

    @cached_property
    def scores(self) -> tuple[float, float]:
        """Mean and deviation of the scores after the descent, had it gone on."""
        return self.law.metric.expected_scores(self.model, self.law.constant)

    @cached_property
    def true_scores(self) -> tuple[float, float]:
        """Mean and deviation of those true scores of which clipped gradients make these."""
        if self.residual is not None or self.scores[1] < 1e-6:
            return self.scores
        start = np.array(self.scores)

        def missed(true: Array) -> Array:
            mean, slope = self.seen.slopes((true[0], true[1]), self.scores).slope[:2]
            return np.array([mean if self.intercept else true[0], slope])

        found = root(missed, start)
        return (float(found.x[0]), float(found.x[1])) if found.success else self.scores

    @cached_property
    def slopes(self) -> Slopes:
        """Of the loss near the model."""
        return self.seen.slopes(self.true_scores, self.scores)

    @cached_property
    def walk(self) -> Walk:
        """The descent without a penalty, direction by direction of the metric."""
        metric = self.law.metric
        return walked(self.curvatures, metric.time, metric.steps, self.tail, self.law.unit_noise, metric.momentum)

    @cached_property
    def curvatures(self) -> Array:
        """Of the mean loss along the directions of the metric; where there may be nothing, nothing calls noise back."""
        metric = self.law.metric
        curvature = max(float(self.slopes.curvature[0]), 1e-3 * self.loss.smoothness)
        return np.asarray(curvature * metric.least * metric.scales**2)

    @cached_property
    def scale_error(self) -> tuple[Array, Array]:
        """What calibrating has not learned of scale and offset, as a matrix, and a root of their noise."""
        assert self.calibration is not None
        cut, size = self.calibration.cap, 1 + self.intercept
        t = np.clip(_NODES, -cut, cut)
        limits = self.calibration.clip / np.sqrt(t**2 + self.intercept + 1e-12)[:, None]
        scale, offset = float(self.answer[0]), float(self.answer[1]) if self.intercept else 0.0
        seen = Scores(self.loss, limits, np.ones(1), self.residual, cut)
        found = seen.slopes((offset, scale), (offset, scale)).curvature
        values, basis = np.linalg.eigh(np.array([[found[2], found[1]], [found[1], found[0]]])[:size, :size])
        steps = self.calibration.steps
        walk = walked(values, steps * self.calibration.step_size, steps, self.tail, self.scale_noise)
        return (basis * walk.left) @ basis.T, basis * walk.deviation

    @cached_property
    def span(self) -> Array:
        """What scale and offset are multiplied with, as columns."""
        assert self.calibration is not None
        column = self.calibration.model / self.calibration.deviation
        if not self.intercept:
            return column[:, None]
        column[-1] -= self.calibration.mean / self.calibration.deviation
        return np.column_stack([column, np.eye(len(column))[-1]])

    @cached_property
    def half(self) -> Array:
        """H with ``H H'`` the second moments of the rows, a constant of 1 last where there is an intercept."""
        metric = self.law.metric
        assert metric.basis is not None
        half = metric.basis * np.sqrt(metric.seconds)
        if self.intercept:
            half[-1] /= self.law.constant
        return np.asarray(half)

    def _root(self, grown: Array | float = 1.0) -> Array:
        """R with ``R R'`` the covariance of the descent's noise, each direction's grown by a factor."""
        metric = self.law.metric
        if self.penalty.l2:
            return self._penalised_root()
        along = metric.scales * self.walk.deviation * grown
        root = along.copy() if metric.basis is None else metric.basis * along
        if self.intercept:
            root[-1] *= self.law.constant
        return np.asarray(root)

    def _penalised_root(self) -> Array:
        """The same where each step ends with the prox of a penalty, which leaves the intercept alone.

        The prox divides by ``S S'``, which turns directions: in the coordinates ``S' x`` a step is symmetric again.
        """
        metric, step = self.law.metric, self.law.metric.time / self.law.metric.steps
        noise = self.law.unit_noise * math.sqrt(metric.steps) * step
        if metric.basis is None:
            pull = 1 + step * self.penalty.l2 * metric.scales**2
            pull[len(pull) - self.intercept :] = 1.0
            _, shares = averaged((1 - step * self.curvatures) / pull, metric.steps, self.tail)
            root = metric.scales * noise / pull * np.sqrt((shares**2).sum(axis=1))
        else:
            kept = metric.matrix[: len(metric.matrix) - self.intercept]
            prox = np.linalg.cholesky(np.eye(len(metric.matrix)) + step * self.penalty.l2 * kept.T @ kept)
            turned = np.linalg.solve(prox, metric.basis)
            values, directions = np.linalg.eigh((turned * (1 - step * self.curvatures)) @ turned.T)
            back = np.linalg.solve(prox.T, directions)
            _, shares = averaged(values, metric.steps, self.tail, metric.momentum)
            squares, axes = np.linalg.eigh((shares @ shares.T) * (back.T @ back))
            root = metric.matrix @ back @ (noise * axes * np.sqrt(np.maximum(squares, 0.0)))
        if self.intercept:
            root[-1] *= self.law.constant
        return np.asarray(root)

    @cached_property
    def noise_root(self) -> Array:
        """R with ``R R'`` the covariance of the released model due to noise; a vector stands for a diagonal."""
        if self.law.metric.basis is None:
            return self._wide_root()
        with one_thread():
            root = self._root()
            if self.calibration is None:
                return root
            scale = max(float(self.answer[0]), 0.0) / self.calibration.deviation
            return np.hstack([scale * self._off_model(root), self.span @ self.scale_error[1]])

    def _wide_root(self) -> Array:
        """Of a diagonal metric, where every coefficient stands for itself."""
        root, centre = self._root(), self.law.metric.centre
        if self.intercept and centre is not None:
            root[-1] = math.hypot(root[-1], float(np.linalg.norm(root[:-1] * centre)))
        if self.calibration is None:
            return root
        scale = max(float(self.answer[0]), 0.0) / self.calibration.deviation
        return np.asarray(np.hypot(scale * root, np.linalg.norm(self.span @ self.scale_error[1], axis=1)))

    def _off_model(self, root: Array) -> Array:
        """What calibrating leaves of errors: those to which it can add no multiple of the model or of a constant."""
        weighed = (self.span.T @ self.half) @ self.half.T
        return np.asarray(root - self.span @ np.linalg.lstsq(weighed @ self.span, weighed @ root, rcond=None)[0])

    @cached_property
    def deviations(self) -> Array:
        """The deviation of each coefficient due to noise, the intercept's last where there is one."""
        if self.penalty.sparse or not self.known:
            return np.full(len(self.model), np.nan)
        root = self.noise_root
        return np.asarray(np.linalg.norm(root, axis=1) if root.ndim > 1 else root)

    def middle(self) -> Array:
        """The coefficients with what stopping early kept from them added back."""
        model, metric = self.model, self.law.metric
        assert metric.basis is not None
        left, stretch = self.walk.left, np.ones(len(model))
        if self.intercept:
            stretch[-1] = self.law.constant
        with one_thread():
            learned = stretch * (metric.basis @ ((metric.basis.T @ (model / stretch)) / (1 - left)))
        (mean, deviation), (true_mean, true_deviation) = self.scores, self.true_scores
        scale = true_deviation / deviation if deviation > 0 else 1.0
        learned *= scale
        if self.intercept:
            learned[-1] += true_mean - scale * mean
        return np.asarray(learned)

    def covariance(self) -> Array:
        """Of the error of ``middle``: noise and sampling."""
        with one_thread():
            noise = self._root(1 / (1 - self.walk.left))
            half = np.linalg.solve(self._weighted(self.slopes.curvature), np.eye(len(noise)))
            return np.asarray(noise @ noise.T + half @ self._weighted(self.slopes.square) @ half / self.items)

    def _weighted(self, weights: Array) -> Array:
        """Mean of a weight times ``x x'``, the weight a function of the score, for normal rows."""
        moments = self.half @ self.half.T
        model = self.middle()
        ones = moments[:, -1] if self.intercept else np.zeros(len(model))
        along = moments @ model
        mean = float(along[-1]) if self.intercept else 0.0
        along -= mean * ones
        along /= math.sqrt(max(float(model @ moments @ model) - mean**2, 1e-300))
        both = np.outer(ones, along)
        least, turned, most = weights
        return np.asarray(least * moments + turned * (both + both.T) + (most - least) * np.outer(along, along))

    def doubt(self) -> str | None:
        """Why there are no intervals, and what would help."""
        if self.doubts:
            return self.doubts[0]
        if self.loss.labels != "two-class" and self.released is None:
            return "the budget was too small to buy how large the residuals are. Spend a larger epsilon."
        left = float(self.walk.left.max())
        if left > _MOST_LEFT:
            return (
                f"the noise made training stop when {left:.0%} of some direction was not learned, too much to be added "
                "back. Spend a larger epsilon, or declare a smaller row_norm."
            )
        with one_thread():
            noise = float(np.square(self.half.T @ self._root()).sum())
            square = float(np.square(self.half.T @ self.model).sum())
        if self.residual is None and noise > _MOST_NOISE * square:
            return (
                f"noise is {min(noise / square, 1.0):.0%} of what the model says, so how the loss is curved at the "
                "truth is not known. Spend a larger epsilon, or declare a smaller row_norm."
            )
        return None


@dataclass(frozen=True, eq=False)
class Intervals:
    """For each coefficient and intercept, its lower and upper end in a last axis of two.

    Parameters
    ----------
    coef : array of the shape of ``coef_`` and (2,)
    intercept : array of the shape of ``intercept_`` and (2,)
    level : float
    """

    coef: Array
    intercept: Array
    level: float


def bounds(errors: ErrorBars, level: float) -> Array:
    """Lower and upper ends for a model, a line per coefficient (intercept last); an error where they are not known."""
    doubt = errors.doubt()
    if doubt is not None:
        raise ValueError(f"there are no intervals for this model: {doubt}")
    middle, reach = errors.middle(), norm.ppf((1 + level) / 2) * np.sqrt(np.diag(errors.covariance()))
    middle[-1] += errors.offset * errors.intercept
    return np.column_stack([middle - reach, middle + reach])


def doubts_about(
    facts: Facts, metric: Metric, penalty: Penalty | None, parts: Sequence[Indices], constrained: bool = False
) -> tuple[str, ...]:
    """What speaks against intervals from the start."""
    found = []
    if penalty is not None and penalty.sparse:
        found.append("an L1 penalty takes off what is no noise of a known law. Fit without one.")
    elif penalty is not None and penalty.l2:
        found.append("the penalty makes coefficients smaller on purpose. Fit with alpha='auto' or penalty=None.")
    if metric.basis is None:
        found.append(
            "of so many features only the squares were released, not how they go together. Use at most 999 features."
        )
    elif metric.unseen:
        found.append(
            f"{metric.unseen} of {len(metric.seconds)} directions of the features drown in the noise of their moments. "
            "Leave out features that hardly vary or follow from others, declare a smaller row_norm, or spend a larger "
            "epsilon."
        )
    if parts:
        found.append("parts of the model were made smaller by what is likely to be noise. See shape_std.")
    if constrained:
        found.append("a constraint moves the model beside what noise and sampling do. coef_std_ is what is known.")
    if facts.unit == "user":
        found.append("the rows of one user go together, and how is not known. coef_std_ is what is known.")
    if facts.loss.labels == "two-class" and type(facts.loss) is not Logistic:
        found.append(
            "scores of this loss are no log-odds, so what sampling does is not known. Use a logistic loss, without "
            "class_weight."
        )
    return tuple(found)
