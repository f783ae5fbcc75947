"""A training on data that are only assumed: what its plan would do, from public facts and a few numbers.

The data are normal scores in directions whose second moments fall off evenly on a log axis. Their releases are what a
plan expects of them, and how well the model's scores go with the best ones follows from the bias and the variance of
its descent (docs/utility.md, "What epsilon is needed").
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtr, ndtri, owens_t

from hushpoint._types import Array
from hushpoint.estimators.calibration import _SHORTER
from hushpoint.estimators.early_stopping import bias, variance
from hushpoint.estimators.metric import Metric, Moments, choose_metric
from hushpoint.estimators.planner import Parameters, clips_moved
from hushpoint.estimators.training import _TARGET_CONSTANT
from hushpoint.losses import Loss, Squared
from hushpoint.operators.moments import MeanOfRows, Means, MeanSquare, SecondMoments
from hushpoint.problem import Facts
from hushpoint.regularizers import Zero

_LEVELS = 500  # different second moments at most
_DRAWS = 40
_FLATTEST = 1e-3  # of a loss's smoothness
_PROBIT = 1.702  # logistic noise is close to normal noise of this deviation
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(41)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


@dataclass(frozen=True)
class Assumed:
    """What data are taken to be like, in units of ``row_norm``.

    ``condition`` is the largest second moment over the smallest, ``filled`` the mean square of the centred rows.
    ``along``: how the signal goes with the second moments, 0 for evenly over the directions and 1 in proportion.
    ``spread`` is the deviation of a regression's target, in half-widths of its range.
    """

    condition: float
    along: float
    filled: float
    spread: float

    def directions(self, width: int) -> tuple[Array, Array, Array]:
        """Second moments, shares of the signal, and how many directions each stands for."""
        levels = min(width, _LEVELS)
        counts = np.diff(np.rint(np.linspace(0, width, levels + 1)))
        values = np.geomspace(1, 1 / self.condition, levels)
        shares = values**self.along
        return values * self.filled / (counts @ values), shares / (counts @ shares), counts


@dataclass(frozen=True)
class Target:
    """What is to be predicted: ``most`` is the share of the larger class, ``goes_with`` the correlation with scores.

    The score that predicts best and what it predicts (before it is cut into classes) are normal. ``score`` is the
    accuracy, or R2, that it has.
    """

    two_class: bool
    most: float
    goes_with: float
    score: float

    @property
    def base_rate(self) -> float:
        """The score of a model that knows nothing."""
        return self.most if self.two_class else 0.0

    @property
    def cut(self) -> float:
        """Where the latent number is cut into classes."""
        return float(ndtri(self.most))

    def logits(self) -> tuple[float, float]:
        """Mean and deviation of the best scores as log-odds."""
        deviation = _PROBIT * self.goes_with / math.sqrt(1 - self.goes_with**2)
        return self.cut * math.hypot(deviation, _PROBIT), deviation


@dataclass(frozen=True)
class Outcome:
    """Simulated models: how their scores go with the best ones, and the errors of the two calibrated numbers."""

    goes_with: Array
    scale_error: Array
    offset_error: Array


def outcome(plan: Parameters, loss: Loss, data: Assumed, target: Target) -> Outcome:
    """What a plan makes of data like these, many times over: noise from one fixed seed."""
    spread = 1.0
    if plan.target_share:
        noise = _released(_moments_of(plan, 1, _TARGET_CONSTANT), plan, plan.target_mu)
        spread = math.sqrt(min(data.spread**2 + noise, 1.0))
        plan = plan.for_targets(spread)
    seconds, shares, counts = data.directions(plan.width - 1)
    metric = _metric(plan, np.repeat(seconds, counts.astype(int)), data.filled)
    first = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(int)
    inside = seconds * metric.scales[first] ** 2
    whole = float(counts @ inside) + plan.constant**2 * float(metric.scales[-1]) ** 2
    limit = plan.clip * math.sqrt(metric.size / whole)
    size, curvature, kept = _landscape(loss, limit, data.spread, target)
    progress = curvature * inside * metric.time
    learned = 1 - bias(progress)
    unit_noise = plan.clip * math.sqrt(metric.size) * clips_moved(plan.adjacency) / (plan.items * plan.descent_mu)
    added = (unit_noise * metric.time) ** 2 * inside * variance(progress)
    random = np.random.default_rng(0)
    half = random.standard_normal((_DRAWS // 2, len(seconds)))
    noise = np.concatenate([half, -half]) * np.sqrt(added)
    best = kept * size * np.sqrt(shares)  # of one direction of each level
    found = learned * best + noise
    along = (found * best).sum(axis=1) + ((counts - 1) * learned * best**2).sum()
    square = (found**2).sum(axis=1) + ((counts - 1) * ((learned * best) ** 2 + added)).sum()
    goes_with = np.maximum(along, 0.0) / (kept * size * np.sqrt(square))
    errors = _calibration_noise(plan, loss, data, target) * random.standard_normal((2, _DRAWS // 2))
    scale, offset = np.concatenate([errors, errors[::-1]], axis=1)
    return Outcome(np.minimum(goes_with, 1.0), scale, offset)


def scores(found: Outcome, data: Assumed, target: Target) -> Array:
    """Accuracy, or R2, of simulated models."""
    reached = np.minimum(found.goes_with * target.goes_with, 1 - 1e-9)
    if not target.two_class:
        return np.asarray(reached**2 - (found.scale_error**2 + found.offset_error**2) / data.spread**2)
    # Calibrated scores are cut at 0: where that is, in deviations of the scores.
    softened = np.sqrt(1 - reached**2) / _PROBIT
    scale = np.maximum(reached + softened * found.scale_error, 1e-9)
    return agreement(target.cut, reached, -(target.cut + softened * found.offset_error) / scale)


def agreement(cut: float, goes_with: Array, threshold: Array) -> Array:
    """How often two normals of this correlation agree, one above ``-cut`` and the other above its threshold."""
    cut, other = cut or 1e-12, np.where(threshold == 0, 1e-12, -threshold)
    rest = np.sqrt(1 - goes_with**2)
    both = (ndtr(cut) + ndtr(other) - (cut * other < 0)) / 2
    both = both - owens_t(cut, (other / cut - goes_with) / rest) - owens_t(other, (cut / other - goes_with) / rest)
    return np.asarray(1 - ndtr(cut) - ndtr(other) + 2 * both)


def _metric(plan: Parameters, seconds: Array, filled: float) -> Metric:
    """The metric that the plan makes of noisy moments; of a full matrix, its eigenvalues as noise lifts them."""
    diagonal = plan.metric == "diagonal"
    noise = _released(_moments_of(plan, plan.width - 1, plan.constant, diagonal), plan, plan.moment_mu)
    seen = np.append(seconds, plan.constant**2)
    if not diagonal:
        edge = noise * math.sqrt(2 * plan.width)
        seen = np.where(seen > edge / 2, seen + edge**2 / (4 * seen), edge)
    facts = _facts(plan.items, plan.width - 1)
    length_noise = _released(MeanSquare(facts), plan, plan.length_mu)
    centre, centre_noise = None, 0.0
    if plan.mean_share:
        centre, centre_noise = np.zeros(plan.width - 1), _released(Means(facts), plan, plan.mean_mu)
    total = filled + plan.constant**2
    return choose_metric(Moments(seen, noise, total, length_noise, centre, centre_noise), plan)


@lru_cache(maxsize=256)
def _landscape(loss: Loss, limit: float, spread: float, target: Target) -> tuple[float, float, float]:
    """Deviation of the best scores, mean curvature on the way to where clipped descent ends, and where, as a share."""
    cut = loss.truncated(limit)
    if not target.two_class:
        curvature = float(_WEIGHTS @ cut.curvature(np.zeros_like(_NODES), spread * _NODES))
        return spread * target.goes_with, max(curvature, _FLATTEST * loss.smoothness), 1.0
    mean, size = target.logits()
    best = mean + size * _NODES
    positive, ones = ndtr(best / _PROBIT), np.ones_like(best)

    def pull(kept: float) -> float:
        slopes = positive * cut.derivative(kept * best, ones) + (1 - positive) * cut.derivative(kept * best, -ones)
        return -float(_WEIGHTS @ (_NODES * slopes))

    low, high = 1e-3, 8.0
    for _ in range(16):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if pull(middle) > 0 else (low, middle)
    return size, max(pull(0.0) / (high * size), _FLATTEST * loss.smoothness), high


def _calibration_noise(plan: Parameters, loss: Loss, data: Assumed, target: Target) -> float:
    clip = math.sqrt(2) * (max(0.7, plan.clip) if target.two_class else plan.clip)
    noise = clip * clips_moved(plan.adjacency) / (plan.items * plan.calibration_mu)
    time = plan.calibration_steps * plan.largest_step / _SHORTER
    curvature = _landscape(loss, clip / math.sqrt(2), data.spread, target)[1]
    return noise * time * math.sqrt(float(variance(np.asarray(curvature * time))))


def _facts(people: int, features: int) -> Facts:
    return Facts(people, features, Squared(), Zero(), row_norm=1.0)


def _moments_of(plan: Parameters, features: int, constant: float, diagonal: bool = False) -> SecondMoments:
    return SecondMoments(_facts(plan.items, features), constant, diagonal)


def _released(operator: MeanOfRows, plan: Parameters, mu: float) -> float:
    """The noise on an entry of a mean that costs mu."""
    std = operator.certificate(1.0).shift("record", plan.adjacency) / mu
    return std / plan.items
