"""Scalar losses of generalised linear models: ``phi(t, b)``, convex in the margin ``t = a.x``.

A loss knows its value, its first two derivatives, its prox and the constants that every guarantee rests
on. All functions broadcast. Your own loss takes three methods and its constants::

    @dataclass(frozen=True)
    class LogCosh(Loss):
        name: ClassVar[str] = "log_cosh"
        lipschitz: ClassVar[float] = 1.0
        smoothness: ClassVar[float] = 1.0

        def value(self, t, b):
            return np.logaddexp(t - b, b - t) - np.log(2.0)

        def derivative(self, t, b):
            return np.tanh(t - b)

        def curvature(self, t, b):
            return 1.0 - np.tanh(t - b) ** 2

The prox, the inverse derivative and the truncation (gradient clipping) then come for free. By its ``name`` it is
found (``loss="log_cosh"``) and a plan with it can be saved; whoever reads that imports its module first.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.special import expit, logit

from hushpoint._checks import require_inside, require_nonnegative, require_positive
from hushpoint._codes import LOGISTIC, RAMP, SQUARED, LossCode
from hushpoint._named import Named
from hushpoint._types import Array

Labels = Literal["two-class", "numeric"]

_EPS = float(np.finfo(np.float64).eps)
_HUGE = float(np.finfo(np.float64).max)
_PROX_TOLERANCE = 1e-13  # relative to 1 + |v|; ten times finer than what is promised
_NEWTON_STEPS = 40  # from here on only bisection, so that the number of steps is bounded for any loss
_MAX_STEPS = _NEWTON_STEPS + 1100  # bisection from the widest to the narrowest float64 interval
_CHUNK = 1 << 14  # work arrays of 128 kB stay in the cache: twice as fast as one pass over all entries


class Loss(Named):
    """A scalar loss ``phi(t, b)``, convex in the margin ``t`` for every target ``b``.

    Promises: ``|derivative| <= lipschitz``, ``strong_convexity <= curvature <= smoothness`` everywhere.
    The defaults of the constants (infinity, infinity, 0) promise nothing and are always true.
    """

    _exact = ("code", "slope_code", "is_quadratic", "logistic_weights")
    _code = ("prox", "inverse_derivative", "_slopes")  # forms of one derivative

    @property
    def lipschitz(self) -> float:
        """Largest ``|derivative|``; infinity if unbounded."""
        return np.inf

    @property
    def smoothness(self) -> float:
        """Largest curvature; infinity if the derivative jumps."""
        return np.inf

    @property
    def strong_convexity(self) -> float:
        """Smallest curvature."""
        return 0.0

    @property
    def labels(self) -> Labels:
        """Kind of target: "two-class" (encoded -1 and +1) or "numeric"."""
        return "numeric"

    @property
    def code(self) -> LossCode | None:
        """The loss for compiled code; None: only NumPy knows it."""
        return None

    @property
    def slope_code(self) -> tuple[LossCode, tuple[float, float]] | None:
        """A code whose slopes are its own, times a weight of the negative and one of the positive class."""
        return None if self.code is None else (self.code, (1.0, 1.0))

    @property
    def is_quadratic(self) -> bool:
        """Whether it is ``(t - b)^2 / 2``: proxes and minimisers are then linear equations."""
        return False

    @property
    def logistic_weights(self) -> dict[float, float] | None:
        """The weights of the classes with which it is the logistic loss; None: it is another."""
        return None

    @abstractmethod
    def value(self, t: Array, b: Array) -> Array:
        """Return ``phi(t, b)``."""

    @abstractmethod
    def derivative(self, t: Array, b: Array) -> Array:
        """Return the derivative in ``t``; at a kink, any subgradient."""

    @abstractmethod
    def curvature(self, t: Array, b: Array) -> Array:
        """Return the second derivative in ``t``; at a jump of the derivative, any value between."""

    def prox(self, v: Array, b: Array, scale: Array | float) -> Array:
        """Return ``argmin_t phi(t, b) + (t - v)^2 / (2 scale)``.

        Promises: an error of at most ``1e-12 (1 + |v| + |t|)`` whatever the curvature says, up to the
        rounding of the derivative; a bounded number of steps for every input; ``v`` where ``scale`` is 0.

        Parameters
        ----------
        v, b : arrays
            Centres and targets.
        scale : array or float
            Prox steps, not negative. For a row ``a`` and a prox step ``gamma`` in the space of models this is
            ``gamma |a|^2``.
        """
        v, b, scale = np.broadcast_arrays(_float(v), _float(b), _checked_scale(scale))
        shape = v.shape
        v, b, scale = v.ravel(), b.ravel(), scale.ravel()
        t = np.empty_like(v)
        for start in range(0, v.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            t[part] = _bracketed_newton(self, v[part], b[part], scale[part])
        return t.reshape(shape)

    def inverse_derivative(self, slope: Array | float, b: Array) -> Array:
        """Return a ``t`` at which ``slope`` is a (sub)derivative, by bisection.

        Promises: minus infinity where every derivative exceeds ``slope``, plus infinity where none reaches it
        (looked for up to ``|t| = 1e35``); otherwise neighbouring floats around a solution.
        """
        slope, b = np.broadcast_arrays(_float(slope), _float(b))
        low, high = np.zeros_like(slope), np.zeros_like(slope)
        for width in 2.0 ** np.arange(121):
            never_low, never_high = self.derivative(low, b) > slope, self.derivative(high, b) < slope
            if not (never_low.any() or never_high.any()):
                break
            low, high = np.where(never_low, -width, low), np.where(never_high, width, high)
        for _ in range(_MAX_STEPS):
            middle = 0.5 * (low + high)
            if np.all((middle == low) | (middle == high)):
                break
            below = self.derivative(middle, b) <= slope
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.where(never_low, -np.inf, np.where(never_high, np.inf, 0.5 * (low + high)))

    def truncated(self, limit: Array | float) -> "Truncated":
        """Return this loss with its derivative cut at ``-limit`` and ``limit``."""
        return Truncated(self, limit)

    def _slopes(self, t: Array, b: Array) -> tuple[Array, Array]:
        """Return derivative and curvature together, for losses that can share work between them."""
        return self.derivative(t, b), self.curvature(t, b)

    def _prox_start(self, v: Array, b: Array, scale: Array) -> Array:
        """Return where the search for the prox starts; a good guess saves steps, a bad one does no harm."""
        return v


@dataclass(frozen=True)
class Squared(Loss):
    """Least squares: ``(t - b)^2 / 2``. Its derivative is unbounded: private only when truncated."""

    name: ClassVar[str] = "squared"
    smoothness: ClassVar[float] = 1.0
    strong_convexity: ClassVar[float] = 1.0
    code = (SQUARED, 0.0, 0.0, 0.0)
    is_quadratic = True

    def value(self, t: Array, b: Array) -> Array:
        return 0.5 * np.square(np.subtract(t, b))

    def derivative(self, t: Array, b: Array) -> Array:
        return np.subtract(t, b)

    def curvature(self, t: Array, b: Array) -> Array:
        return np.ones(np.broadcast_shapes(np.shape(t), np.shape(b)))

    def prox(self, v: Array, b: Array, scale: Array | float) -> Array:
        scale = _checked_scale(scale)
        # Two weights rather than v + w (b - v): nothing cancels when v or b is large.
        return (1.0 / (1.0 + scale)) * v + (scale / (1.0 + scale)) * b

    def inverse_derivative(self, slope: Array | float, b: Array) -> Array:
        return np.add(b, slope)


@dataclass(frozen=True)
class Logistic(Loss):
    """Logistic loss ``log(1 + exp(-b t))`` for ``b`` in {-1, +1}; its prox takes about five Newton steps."""

    name: ClassVar[str] = "logistic"
    lipschitz: ClassVar[float] = 1.0
    smoothness: ClassVar[float] = 0.25
    labels: ClassVar[Labels] = "two-class"
    code = (LOGISTIC, 0.0, 0.0, 0.0)
    logistic_weights: ClassVar = {-1.0: 1.0, 1.0: 1.0}

    def value(self, t: Array, b: Array) -> Array:
        return np.logaddexp(0.0, -np.multiply(b, t))

    def derivative(self, t: Array, b: Array) -> Array:
        return -b * expit(-np.multiply(b, t))

    def curvature(self, t: Array, b: Array) -> Array:
        # 1 - expit(x) would lose all digits for large x; expit(-x) keeps them.
        margin = np.multiply(b, t)
        return expit(margin) * expit(-margin)

    def inverse_derivative(self, slope: Array | float, b: Array) -> Array:
        return -b * logit(np.clip(-np.multiply(b, slope), 0.0, 1.0))

    def _slopes(self, t: Array, b: Array) -> tuple[Array, Array]:
        share = expit(-b * t)
        return -b * share, share * (1.0 - share)

    def _prox_start(self, v: Array, b: Array, scale: Array) -> Array:
        # With x = b t and m = b v the equation is x = m + scale q, q = expit(-x), so x - m is at most
        # scale expit(-m) and about at most log(1 + scale) - m. From there, one Newton step on the same
        # equation in the variable q, which is log((1 - q) / q) = m + scale q. Newton in x alone would creep,
        # one unit a step, for large scales.
        margin = b * v
        reach = np.minimum(scale * expit(-margin), np.maximum(np.log1p(scale) - margin, 0.0))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            share = np.clip(reach / scale, 1e-300, 1.0 - _EPS)
            spread = scale * share * (1.0 - share)
            guess = np.clip(-logit(share) - margin, 0.0, reach)
            start = b * (margin + reach + (guess - reach) * (spread / (1.0 + spread)))
        return np.where(np.isfinite(start), start, v)


class _Ramp(Loss):
    """A loss whose derivative is ``(t - b) / width`` clipped to an interval of slopes around 0."""

    @abstractmethod
    def _ramp(self, b: Array) -> tuple[float, Array | float, Array | float]:
        """Return width, lowest slope and highest slope; a width of 0 is a jump."""

    @property
    def _ramp_code(self) -> LossCode:
        width, lowest, highest = self._ramp(np.array(np.nan))  # nan comes through where the class decides
        return RAMP, width, float(lowest), float(highest)

    @property
    def smoothness(self) -> float:
        width, _, _ = self._ramp(np.ones(()))
        return 1.0 / width if width > 0 else np.inf

    def value(self, t: Array, b: Array) -> Array:
        width, _, _ = self._ramp(b)
        slope = self.derivative(t, b)
        return slope * np.subtract(t, b) - (0.5 * width) * np.square(slope)

    def derivative(self, t: Array, b: Array) -> Array:
        width, lowest, highest = self._ramp(b)
        residual = np.subtract(t, b)
        if width > 0:
            return np.clip(residual / width, lowest, highest)
        return np.where(residual > 0, highest, np.where(residual < 0, lowest, 0.0))

    def curvature(self, t: Array, b: Array) -> Array:
        width, lowest, highest = self._ramp(b)
        residual = np.subtract(t, b)
        inside = (residual > width * lowest) & (residual < width * highest)
        return np.where(inside, self.smoothness, 0.0)

    def prox(self, v: Array, b: Array, scale: Array | float) -> Array:
        scale = _checked_scale(scale)
        width, lowest, highest = self._ramp(b)
        total = np.where(width + scale > 0, width + scale, 1.0)  # width = scale = 0: the clip below returns v
        on_ramp = (width / total) * v + (scale / total) * b
        return np.clip(on_ramp, v - scale * highest, v - scale * lowest)

    def inverse_derivative(self, slope: Array | float, b: Array) -> Array:
        width, lowest, highest = self._ramp(b)
        on_ramp = b + np.multiply(width, slope)
        return np.where(slope < lowest, -np.inf, np.where(slope > highest, np.inf, on_ramp))


@dataclass(frozen=True)
class Huber(_Ramp):
    """Huber loss of ``r = t - b``: ``r^2/2`` up to ``|r| = transition``, then linear.

    Promises: it is the squared loss truncated at ``transition``.
    """

    transition: float = 1.345

    name: ClassVar[str] = "huber"
    code = _Ramp._ramp_code

    def __post_init__(self) -> None:
        object.__setattr__(self, "transition", require_positive("transition", self.transition))

    @property
    def lipschitz(self) -> float:
        return self.transition

    def _ramp(self, b: Array) -> tuple[float, Array | float, Array | float]:
        return 1.0, -self.transition, self.transition


@dataclass(frozen=True)
class SmoothedHinge(_Ramp):
    """Hinge ``max(0, 1 - b t)`` for ``b`` in {-1, +1}, made quadratic where ``1 - width <= b t <= 1``.

    Promises: 0 for ``b t >= 1``, ``(1 - b t)^2 / (2 width)`` between, ``1 - b t - width/2`` below.
    """

    width: float = 0.5

    name: ClassVar[str] = "smoothed_hinge"
    lipschitz: ClassVar[float] = 1.0
    labels: ClassVar[Labels] = "two-class"
    code = _Ramp._ramp_code

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", require_positive("width", self.width))

    def _ramp(self, b: Array) -> tuple[float, Array | float, Array | float]:
        # b t - 1 = b (t - b) since b^2 = 1, so the hinge point is t = b for both classes.
        return self.width, np.minimum(np.negative(b), 0.0), np.maximum(np.negative(b), 0.0)


@dataclass(frozen=True)
class Absolute(_Ramp):
    """Absolute loss ``|t - b|``."""

    name: ClassVar[str] = "absolute"
    lipschitz: ClassVar[float] = 1.0
    code = _Ramp._ramp_code

    def _ramp(self, b: Array) -> tuple[float, Array | float, Array | float]:
        return 0.0, -1.0, 1.0


@dataclass(frozen=True)
class Quantile(_Ramp):
    """Pinball loss of ``r = b - t``: ``level r`` if ``r >= 0``, else ``(level - 1) r``.

    Promises: its minimiser over a sample is the ``level`` quantile. With ``smoothing`` h > 0 it is replaced
    by its Moreau envelope, which is 1/h smooth and at most ``h max(level, 1 - level)^2 / 2`` smaller.
    """

    level: float = 0.5
    smoothing: float = 0.0

    name: ClassVar[str] = "quantile"
    code = _Ramp._ramp_code

    def __post_init__(self) -> None:
        remedy = "Pass a number strictly between 0 and 1, for example level=0.5."
        object.__setattr__(self, "level", require_inside("level", self.level, remedy=remedy))
        object.__setattr__(self, "smoothing", require_nonnegative("smoothing", self.smoothing))

    @property
    def lipschitz(self) -> float:
        return max(self.level, 1.0 - self.level)

    def _ramp(self, b: Array) -> tuple[float, Array | float, Array | float]:
        return self.smoothing, -self.level, 1.0 - self.level


@dataclass(frozen=True, eq=False)
class Truncated(Loss):
    """A loss with its derivative cut at ``-limit`` and ``limit``: gradient clipping as a convex loss.

    Promises: convex, ``limit``-Lipschitz, as smooth as ``base``, equal to ``base`` where its derivative is
    within the limit. With ``limit = C / |a|`` for a row ``a`` the gradient in the space of models has norm at
    most ``C``, and the prox there is ``v + clip(x - v, gamma C)``, ``x`` being the prox of the untruncated
    loss. The constants of per-row limits depend on the rows: a guarantee rests on ``C``, not on them.

    Parameters
    ----------
    base : Loss
        The loss to truncate.
    limit : float or array
        Positive, broadcast against the margins; infinity leaves an entry untouched.
    """

    base: Loss
    limit: Array | float

    name: ClassVar[str] = "truncated"

    def __post_init__(self) -> None:
        limit = _float(self.limit)
        if not np.all(limit > 0):
            # Per-row limits come from the data (C / |a|), so their values stay out of the message.
            got = f"of shape {limit.shape} with an entry that is not" if limit.ndim else float(limit)
            raise ValueError(
                f"limit must be positive and is {got}. Pass a positive number or array; np.inf for no limit."
            )
        if limit.ndim:
            limit = limit.copy()
            limit.flags.writeable = False
        object.__setattr__(self, "limit", limit if limit.ndim else float(limit))

    @property
    def lipschitz(self) -> float:
        return min(self.base.lipschitz, float(np.max(self.limit, initial=0.0)))

    @property
    def smoothness(self) -> float:
        return self.base.smoothness

    @property
    def strong_convexity(self) -> float:
        return self.base.strong_convexity if np.all(np.isinf(self.limit)) else 0.0

    @property
    def labels(self) -> Labels:
        return self.base.labels

    def value(self, t: Array, b: Array) -> Array:
        limit = np.asarray(self.limit)
        low, high = self.base.inverse_derivative(-limit, b), self.base.inverse_derivative(limit, b)
        touch = np.clip(t, low, high)  # where the linear piece through t touches the base loss
        touch = np.where(np.isfinite(touch), touch, 0.0)  # it never does: the constant is free, take this one
        return self.base.value(touch, b) + self.derivative(t, b) * (t - touch)

    def derivative(self, t: Array, b: Array) -> Array:
        return np.clip(self.base.derivative(t, b), np.negative(self.limit), self.limit)

    def curvature(self, t: Array, b: Array) -> Array:
        return np.where(np.abs(self.base.derivative(t, b)) <= self.limit, self.base.curvature(t, b), 0.0)

    def prox(self, v: Array, b: Array, scale: Array | float) -> Array:
        scale = _checked_scale(scale)
        with np.errstate(invalid="ignore"):
            reach = np.where(scale > 0, scale * self.limit, 0.0)  # a row of zeros: scale 0, limit infinity
        return np.clip(self.base.prox(v, b, scale), v - reach, v + reach)

    def inverse_derivative(self, slope: Array | float, b: Array) -> Array:
        inside = self.base.inverse_derivative(slope, b)
        below, above = slope < np.negative(self.limit), slope > self.limit
        return np.where(below, -np.inf, np.where(above, np.inf, inside))

    def to_dict(self) -> dict[str, Any]:
        raise ValueError(
            "loss is a Truncated, which runs and cannot be written to JSON: its limits may come from rows. "
            "Write its base, and the clipping bound beside it."
        )

    def truncated(self, limit: Array | float) -> "Truncated":
        return Truncated(self.base, np.minimum(self.limit, Truncated(self.base, limit).limit))


@dataclass(frozen=True)
class ClassWeighted(Loss):
    """A two-class loss times a declared weight for each class.

    Promises: the constants of the base, times the largest or the smallest weight.
    """

    base: Loss
    negative: float
    positive: float

    name: ClassVar[str] = "class-weighted"
    labels: ClassVar[Labels] = "two-class"

    def __post_init__(self) -> None:
        if self.base.labels != "two-class":
            raise ValueError(f"base is the {self.base.name} loss. Class weights need a two-class loss.")
        for side in ("negative", "positive"):
            object.__setattr__(self, side, require_positive(side, getattr(self, side)))

    @property
    def lipschitz(self) -> float:
        return self.base.lipschitz * max(self.negative, self.positive)

    @property
    def smoothness(self) -> float:
        return self.base.smoothness * max(self.negative, self.positive)

    @property
    def strong_convexity(self) -> float:
        return self.base.strong_convexity * min(self.negative, self.positive)

    @property
    def logistic_weights(self) -> dict[float, float] | None:
        inner = self.base.logistic_weights
        return None if inner is None else {-1.0: self.negative * inner[-1.0], 1.0: self.positive * inner[1.0]}

    @property
    def slope_code(self) -> tuple[LossCode, tuple[float, float]] | None:
        inner = self.base.slope_code
        if inner is None:
            return None
        code, (negative, positive) = inner
        return code, (self.negative * negative, self.positive * positive)

    def value(self, t: Array, b: Array) -> Array:
        return self._weights(b) * self.base.value(t, b)

    def derivative(self, t: Array, b: Array) -> Array:
        return self._weights(b) * self.base.derivative(t, b)

    def curvature(self, t: Array, b: Array) -> Array:
        return self._weights(b) * self.base.curvature(t, b)

    def _weights(self, b: Array) -> Array:
        return np.where(np.asarray(b) > 0, self.positive, self.negative)


def resolve(loss: str | Loss) -> Loss:
    """Return the loss with this name and default parameters, or the loss itself."""
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, type) and issubclass(loss, Loss):
        raise ValueError(f"loss is the class {loss.__name__}. Pass an object of it: {loss.__name__}(...).")
    if not isinstance(loss, str):
        raise ValueError(f"loss is a {type(loss).__name__}. Pass a Loss object or a name. {Loss.names()}")
    if loss not in Loss._known:
        raise ValueError(f"loss is {loss!r}, which is unknown. {Loss.names()}")
    return Loss.from_dict({"name": loss})


def _bracketed_newton(loss: Loss, v: Array, b: Array, scale: Array) -> Array:
    """Solve ``t - v + scale phi'(t) = 0`` entry by entry.

    The derivative of ``phi`` is monotone, so the solution lies between ``v`` and ``v - scale phi'(v)``. An
    entry is done when its residual, which bounds the error, or its bracket is below tolerance: no appeal to
    the curvature, which only sets the speed.
    """
    out = np.empty_like(v)
    place = np.arange(v.size)
    end = v - scale * loss.derivative(v, b)
    low, high = np.minimum(v, end), np.maximum(v, end)
    t = np.clip(loss._prox_start(v, b, scale), low, high)
    floor = _PROX_TOLERANCE * (1.0 + np.abs(v))
    low, high = low - floor, high + floor  # a solution at an end is then inside
    last = np.full_like(v, np.inf)
    for step in range(_MAX_STEPS):
        slope, curvature = loss._slopes(t, b)
        residual = t - v + scale * slope
        error = np.abs(residual)
        # As np.where(residual <= 0, t, low) would, but without its branches: the signs are a coin toss here.
        low = np.maximum(low, t - _HUGE * (residual > 0))
        high = np.minimum(high, t + _HUGE * (residual < 0))
        tolerance = floor + (4 * _EPS) * np.abs(t)
        # Written so that nan counts as done: it goes out as nan instead of going round.
        active = (error > tolerance) & (high - low > tolerance)
        remaining = np.count_nonzero(active)
        if 2 * remaining <= place.size:
            out[place] = t
            if not remaining:
                return out
            keep = np.flatnonzero(active)
            place, active = place[keep], active[keep]
            t, v, b, scale, low, high, floor = (a[keep] for a in (t, v, b, scale, low, high, floor))
            residual, error, last, curvature, tolerance = (
                a[keep] for a in (residual, error, last, curvature, tolerance)
            )
        newton = t - residual / (1.0 + scale * curvature)
        # Newton is trusted while it stays inside the bracket and at least halves the residual.
        trusted = (newton > low) & (newton < high) & (error <= 0.5 * last) & (step < _NEWTON_STEPS)
        moved = np.where(trusted, newton, 0.5 * (low + high))
        t = np.where(active, moved, t)
        last = error
    out[place] = t
    return out


def _float(values: Array | float) -> Array:
    return np.asarray(values, dtype=np.float64)


def _checked_scale(scale: Array | float) -> Array:
    scale = _float(scale)
    if not np.all((scale >= 0) & (scale < np.inf)):
        # gamma |a|^2 depends on the data: the message gives the shape only.
        raise ValueError(
            f"scale has a negative, infinite or nan entry; its shape is {scale.shape}. "
            "Pass prox steps gamma |a|^2 with gamma positive and the row a finite."
        )
    return scale
