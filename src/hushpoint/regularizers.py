"""Regularisers ``r(z)`` of the model: convex functions that are public and have an explicit prox.

Your own regulariser takes two methods::

    @dataclass(frozen=True)
    class NonNegative(Regularizer):
        def value(self, z):
            return np.where(np.any(z < 0, axis=-1), np.inf, 0.0)

        def prox(self, v, step):
            return np.maximum(v, 0.0)

and more speed from the constants it can honestly declare. Sums are written ``L1(0.1) + L2(0.2)`` and keep an
explicit prox, or refuse.
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from hushpoint._checks import require_count, require_nonnegative, require_positive
from hushpoint._codes import PenaltyCode
from hushpoint._named import Named
from hushpoint._types import Array, Indices

Values = Array | float

_INSIDE = 1e-12  # relative slack with which a constraint counts as met: a projection rounds


class Regularizer(Named):
    """A convex function of the model with an explicit prox.

    Promises: ``prox`` is exact up to rounding; ``strong_convexity`` and ``smoothness`` are true bounds, whose
    defaults (0 and infinity) promise nothing; ``separable`` only if r is a sum over coordinates.
    """

    _exact = ("code", "quadratic")

    @property
    def strong_convexity(self) -> float:
        """A k such that ``r - k/2 |z|^2`` is convex."""
        return 0.0

    @property
    def smoothness(self) -> float:
        """Lipschitz constant of the gradient; infinity where there is none."""
        return np.inf

    @property
    def separable(self) -> bool:
        """Whether r is a sum over coordinates: then the prox takes one step per coordinate."""
        return False

    @property
    def code(self) -> PenaltyCode | None:
        """The regulariser for compiled code, which knows L1, L2 and their sum; None: only NumPy knows it."""
        return None

    @abstractmethod
    def value(self, z: Array) -> Array:
        """Return ``r(z)``, over the last axis; infinity outside a constraint."""

    @abstractmethod
    def prox(self, v: Array, step: Values) -> Array:
        """Return ``argmin_z r(z) + |z - v|^2 / (2 step)``, over the last axis.

        Parameters
        ----------
        v : array
            A model, or an array whose last axis is the model.
        step : float or array
            Positive. An array holds one step per coordinate and needs a separable regulariser.
        """

    def prox_coordinate(self, v: Values, step: Values, index: Indices | int, size: int | None = None) -> Array:
        """Return the prox of some coordinates only, for a separable regulariser.

        Override it where the coordinates are not all treated alike.

        Parameters
        ----------
        v : array or float
            The values of those coordinates.
        step : array or float
            Positive; one for all, or one each.
        index : array or int
            Which coordinates they are: one for all, or one each.
        size : int, optional
            Length of the whole model, where the regulariser needs it (`WithoutIntercept`).
        """
        if not self.separable:
            raise ValueError(
                f"{type(self).__name__} is not separable: it has no prox of single coordinates. "
                "Use a separable one such as L1, L2, ElasticNet or Box, or a method that takes full steps."
            )
        return self.prox(np.asarray(v, dtype=np.float64), step)

    def quadratic(self) -> "tuple[Regularizer, float]":
        """Return ``(rest, k)`` with ``r(z) = rest(z) + k/2 |z|^2``."""
        return self, 0.0

    def __add__(self, other: object) -> "Regularizer":
        if not isinstance(other, Regularizer):
            return NotImplemented
        return _sum(self, other)


class _Separable(Regularizer):
    separable: ClassVar[bool] = True


@dataclass(frozen=True)
class Zero(_Separable):
    """No regularisation: ``r = 0``."""

    name: ClassVar[str] = "zero"
    smoothness: ClassVar[float] = 0.0
    code = (0.0, 0.0, False)

    def value(self, z: Array) -> Array:
        return np.zeros(np.shape(z)[:-1])

    def prox(self, v: Array, step: Values) -> Array:
        _checked_step(step)
        return np.array(v, dtype=np.float64)


@dataclass(frozen=True)
class L1(_Separable):
    """``strength |z|_1``, which sets coordinates to exactly 0."""

    strength: float

    name: ClassVar[str] = "l1"

    def __post_init__(self) -> None:
        object.__setattr__(self, "strength", require_nonnegative("strength", self.strength))

    @property
    def smoothness(self) -> float:
        return np.inf if self.strength else 0.0

    @property
    def code(self) -> PenaltyCode:
        return self.strength, 0.0, False

    def value(self, z: Array) -> Array:
        return self.strength * _total(np.abs(z))

    def prox(self, v: Array, step: Values) -> Array:
        threshold = self.strength * _checked_step(step)
        return v - np.clip(v, -threshold, threshold)


@dataclass(frozen=True)
class L2(_Separable):
    """Ridge: ``strength/2 |z|^2``."""

    strength: float

    name: ClassVar[str] = "l2"

    def __post_init__(self) -> None:
        object.__setattr__(self, "strength", require_nonnegative("strength", self.strength))

    @property
    def strong_convexity(self) -> float:
        return self.strength

    @property
    def smoothness(self) -> float:
        return self.strength

    @property
    def code(self) -> PenaltyCode:
        return 0.0, self.strength, False

    def value(self, z: Array) -> Array:
        return (0.5 * self.strength) * _total(np.square(z))

    def prox(self, v: Array, step: Values) -> Array:
        return v / (1.0 + self.strength * _checked_step(step))

    def quadratic(self) -> tuple[Regularizer, float]:
        return Zero(), self.strength


@dataclass(frozen=True)
class ElasticNet(_Separable):
    """``l1 |z|_1 + l2/2 |z|^2``.

    Parameters
    ----------
    l1, l2 : float or tuple of floats
        Not negative; one for all coordinates or one each.
    """

    l1: float | tuple[float, ...]
    l2: float | tuple[float, ...]

    name: ClassVar[str] = "elastic_net"

    def __post_init__(self) -> None:
        object.__setattr__(self, "l1", _strength("l1", self.l1))
        object.__setattr__(self, "l2", _strength("l2", self.l2))

    @property
    def strong_convexity(self) -> float:
        return float(np.min(self.l2))

    @property
    def smoothness(self) -> float:
        return np.inf if np.any(self.l1) else float(np.max(self.l2))

    @property
    def code(self) -> PenaltyCode | None:
        l1, l2 = self.l1, self.l2
        return None if isinstance(l1, tuple) or isinstance(l2, tuple) else (l1, l2, False)

    def value(self, z: Array) -> Array:
        l1, l2 = _fitting("l1", self._l1, z), _fitting("l2", self._l2, z)
        return _weighted(l1, np.abs(z)) + _weighted(0.5 * l2, np.square(z))

    def prox(self, v: Array, step: Values) -> Array:
        return _shrunk(v, _checked_step(step), _fitting("l1", self._l1, v), _fitting("l2", self._l2, v))

    def prox_coordinate(self, v: Values, step: Values, index: Indices | int, size: int | None = None) -> Array:
        if self._l1.ndim or self._l2.ndim:
            v, index = _matched(v, index)
        return _shrunk(v, _checked_step(step), _entries(self._l1, index), _entries(self._l2, index))

    def quadratic(self) -> tuple[Regularizer, float]:
        one_for_all = self.code
        return (self, 0.0) if one_for_all is None else (L1(one_for_all[0]), one_for_all[1])

    @cached_property
    def _l1(self) -> Array:
        return np.array(self.l1, dtype=np.float64)

    @cached_property
    def _l2(self) -> Array:
        return np.array(self.l2, dtype=np.float64)


@dataclass(frozen=True)
class GroupL1(Regularizer):
    """``strength * sum_g sqrt(len(g)) |z_g|``, which sets whole groups to exactly 0.

    Parameters
    ----------
    strength : float
        Not negative.
    groups : tuple of tuples of int
        Disjoint groups of coordinates; those in no group are not penalised.
    """

    strength: float
    groups: tuple[tuple[int, ...], ...]

    name: ClassVar[str] = "group_l1"

    def __post_init__(self) -> None:
        object.__setattr__(self, "strength", require_nonnegative("strength", self.strength))
        try:
            groups = tuple(tuple(require_count("groups", i, least=0) for i in group) for group in self.groups)
        except TypeError:
            remedy = "Pass a tuple of tuples of coordinates, for example ((0, 1), (2, 3))."
            raise ValueError(f"groups is {self.groups!r}. {remedy}") from None
        if not all(groups):
            raise ValueError(f"groups is {groups!r}. Leave out empty groups.")
        members = [i for group in groups for i in group]
        if len(set(members)) < len(members):
            raise ValueError(f"groups is {groups!r}. Put every coordinate in one group at most.")
        object.__setattr__(self, "groups", groups)

    @property
    def smoothness(self) -> float:
        return np.inf if self.strength and self.groups else 0.0

    def value(self, z: Array) -> Array:
        return self.strength * _total(np.sqrt(self._sizes) * self._lengths(np.asarray(z, dtype=np.float64)))

    def prox(self, v: Array, step: Values) -> Array:
        z = np.array(v, dtype=np.float64)
        threshold = self.strength * _one_step(self, step) * np.sqrt(self._sizes)
        lengths = self._lengths(z)
        kept = np.maximum(0.0, 1.0 - threshold / np.where(lengths > 0, lengths, 1.0))
        z[..., self._members] *= np.repeat(kept, self._sizes, axis=-1)
        return z

    @cached_property
    def _members(self) -> Indices:
        return np.array([i for group in self.groups for i in group], dtype=np.int64)

    @cached_property
    def _sizes(self) -> Indices:
        return np.array([len(group) for group in self.groups], dtype=np.int64)

    def _lengths(self, z: Array) -> Array:
        """Return the Euclidean length of every group."""
        if not self.groups:
            return np.zeros((*z.shape[:-1], 0))
        if self._members.max() >= z.shape[-1]:
            raise ValueError(
                f"groups names coordinate {self._members.max()} of a model that has {z.shape[-1]}. "
                "Count coordinates from 0, and leave out those that do not exist."
            )
        starts = np.concatenate(([0], np.cumsum(self._sizes)[:-1]))
        lengths: Array = np.sqrt(np.add.reduceat(np.square(z[..., self._members]), starts, axis=-1))
        return lengths


@dataclass(frozen=True)
class Box(_Separable):
    """Constraint ``low <= z <= high``.

    Parameters
    ----------
    low, high : float or tuple of floats
        Bounds, one for all coordinates or one each; infinite where there is none.
    """

    low: float | tuple[float, ...]
    high: float | tuple[float, ...]

    name: ClassVar[str] = "box"

    def __post_init__(self) -> None:
        low, high = _bound("low", self.low), _bound("high", self.high)
        if isinstance(low, tuple) and isinstance(high, tuple) and len(low) != len(high):
            raise ValueError(f"low has {len(low)} entries and high has {len(high)}. Pass one per coordinate.")
        if not np.all((np.less_equal(low, high)) & np.less(low, np.inf) & np.greater(high, -np.inf)):
            raise ValueError(f"low is {low!r} and high is {high!r}. Pass bounds with a finite point between them.")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def value(self, z: Array) -> Array:
        low, high = _fitting("low", self._low, z), _fitting("high", self._high, z)
        below, above = z < low - _INSIDE * (1.0 + np.abs(low)), z > high + _INSIDE * (1.0 + np.abs(high))
        return np.where(np.any(below | above, axis=-1), np.inf, 0.0)

    def prox(self, v: Array, step: Values) -> Array:
        _checked_step(step)
        return np.clip(v, _fitting("low", self._low, v), _fitting("high", self._high, v))

    def prox_coordinate(self, v: Values, step: Values, index: Indices | int, size: int | None = None) -> Array:
        _checked_step(step)
        v, index = _matched(v, index)
        return np.clip(v, _entries(self._low, index), _entries(self._high, index))

    @cached_property
    def _low(self) -> Array:
        return np.array(self.low, dtype=np.float64)

    @cached_property
    def _high(self) -> Array:
        return np.array(self.high, dtype=np.float64)


@dataclass(frozen=True)
class Ball(Regularizer):
    """Constraint ``|z| <= radius`` in the Euclidean norm."""

    radius: float

    name: ClassVar[str] = "ball"

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", require_positive("radius", self.radius))

    def value(self, z: Array) -> Array:
        return np.where(np.linalg.norm(z, axis=-1) > self.radius * (1.0 + _INSIDE), np.inf, 0.0)

    def prox(self, v: Array, step: Values) -> Array:
        _one_step(self, step)
        length = np.linalg.norm(v, axis=-1, keepdims=True)
        return np.asarray(v * (self.radius / np.maximum(length, self.radius)))


@dataclass(frozen=True)
class Ridged(Regularizer):
    """A regulariser plus ridge: ``base(z) + strength/2 |z|^2``.

    Promises: ``prox_s(v) = base.prox(v / (1 + s k), s / (1 + s k))``, exact for every convex base.
    """

    base: Regularizer
    strength: float

    name: ClassVar[str] = "ridged"

    def __post_init__(self) -> None:
        _require_regularizer("base", self.base)
        object.__setattr__(self, "strength", require_nonnegative("strength", self.strength))

    @property
    def strong_convexity(self) -> float:
        return self.base.strong_convexity + self.strength

    @property
    def smoothness(self) -> float:
        return self.base.smoothness + self.strength

    @property
    def separable(self) -> bool:
        return self.base.separable

    def value(self, z: Array) -> Array:
        return self.base.value(z) + (0.5 * self.strength) * _total(np.square(z))

    def prox(self, v: Array, step: Values) -> Array:
        step = _checked_step(step)
        shrink = 1.0 / (1.0 + self.strength * step)
        return self.base.prox(shrink * v, shrink * step)

    def prox_coordinate(self, v: Values, step: Values, index: Indices | int, size: int | None = None) -> Array:
        step = _checked_step(step)
        shrink = 1.0 / (1.0 + self.strength * step)
        return self.base.prox_coordinate(shrink * v, shrink * step, index, size)

    def quadratic(self) -> tuple[Regularizer, float]:
        rest, ridge = self.base.quadratic()
        return rest, ridge + self.strength


@dataclass(frozen=True)
class Boxed(_Separable):
    """A separable regulariser within a box.

    Promises: the prox is the clipped prox of ``base``, exact because a convex function of one coordinate is
    smallest, within an interval, at the point nearest to its minimiser.
    """

    base: Regularizer
    box: Box

    name: ClassVar[str] = "boxed"

    def __post_init__(self) -> None:
        _require_regularizer("base", self.base)
        if not self.base.separable:
            raise ValueError(
                f"base is a {type(self.base).__name__}, which is not separable: within a box it has no "
                "explicit prox. Pass a separable one such as L1, L2 or ElasticNet."
            )
        if not isinstance(self.box, Box):
            raise TypeError(f"box is a {type(self.box).__name__}. Pass a Box.")

    @property
    def strong_convexity(self) -> float:
        return self.base.strong_convexity

    def value(self, z: Array) -> Array:
        return self.base.value(z) + self.box.value(z)

    def prox(self, v: Array, step: Values) -> Array:
        return self.box.prox(self.base.prox(v, step), step)

    def prox_coordinate(self, v: Values, step: Values, index: Indices | int, size: int | None = None) -> Array:
        return self.box.prox_coordinate(self.base.prox_coordinate(v, step, index, size), step, index, size)

    def quadratic(self) -> tuple[Regularizer, float]:
        rest, ridge = self.base.quadratic()
        return _within(rest, self.box), ridge


@dataclass(frozen=True)
class WithoutIntercept(Regularizer):
    """A regulariser of all coordinates but the last, the intercept, which stays free."""

    base: Regularizer

    name: ClassVar[str] = "without_intercept"

    def __post_init__(self) -> None:
        _require_regularizer("base", self.base)

    @property
    def smoothness(self) -> float:
        return self.base.smoothness

    @property
    def separable(self) -> bool:
        return self.base.separable

    @property
    def code(self) -> PenaltyCode | None:
        inner = self.base.code
        return None if inner is None or inner[2] else (inner[0], inner[1], True)

    def value(self, z: Array) -> Array:
        return self.base.value(z[..., :-1])

    def prox(self, v: Array, step: Values) -> Array:
        z = np.array(v, dtype=np.float64)
        step = _checked_step(step)
        if step.ndim:
            step = np.broadcast_to(step, z.shape)[..., :-1]
        z[..., :-1] = self.base.prox(z[..., :-1], step)
        return z

    def prox_coordinate(self, v: Values, step: Values, index: Indices | int, size: int | None = None) -> Array:
        if size is None:
            raise ValueError("size is not given. Pass the length of the model: it tells which index is the intercept.")
        v, index = _matched(v, index)
        step = np.broadcast_to(_checked_step(step), v.shape)
        z = v.copy()
        free = index % size == size - 1
        z[~free] = self.base.prox_coordinate(v[~free], step[~free], index[~free] % size, size - 1)
        return z


def _sum(first: Regularizer, second: Regularizer) -> Regularizer:
    """Add two regularisers: their ridges add up, and what remains must have a rule."""
    if isinstance(first, Zero):
        return second
    if isinstance(second, Zero):
        return first
    (one, ridge), (two, other_ridge) = first.quadratic(), second.quadratic()
    rest = _sum_of_rests(one, two)
    if rest is None:
        raise TypeError(
            f"{type(first).__name__} + {type(second).__name__} has no explicit prox here. The sums that have "
            "one: anything + Zero, anything + L2, L1, L2 and ElasticNet among themselves, separable + Box."
        )
    return _with_ridge(rest, ridge + other_ridge)


def _sum_of_rests(one: Regularizer, two: Regularizer) -> Regularizer | None:
    for this, that in ((one, two), (two, one)):
        if isinstance(this, Zero):
            return that
        if isinstance(this, Box) and that.separable:
            return _within(that, this)
        if isinstance(this, Boxed) and that.separable:
            base = _sum_of_rests(this.base, that)
            return None if base is None else _within(base, this.box)
    if isinstance(one, L1) and isinstance(two, L1):
        return L1(one.strength + two.strength)
    return None


def _within(base: Regularizer, box: Box) -> Regularizer:
    if isinstance(base, Zero):
        return box
    if isinstance(base, Box):
        return _intersection(base, box)
    if isinstance(base, Boxed):
        return Boxed(base.base, _intersection(base.box, box))
    return Boxed(base, box)


def _intersection(one: Box, two: Box) -> Box:
    return Box(np.maximum(one.low, two.low).tolist(), np.minimum(one.high, two.high).tolist())


def _with_ridge(rest: Regularizer, ridge: float) -> Regularizer:
    if ridge == 0.0:
        return rest
    if isinstance(rest, Zero):
        return L2(ridge)
    if isinstance(rest, L1):
        return ElasticNet(rest.strength, ridge)
    if isinstance(rest, Boxed):
        return Boxed(_with_ridge(rest.base, ridge), rest.box)
    return Ridged(rest, ridge)


def _total(values: Array) -> Array:
    return np.asarray(np.sum(values, axis=-1))


def _weighted(strength: Array, values: Array) -> Array:
    """Sum of values, each with its strength or all with one."""
    return np.asarray(values @ strength) if strength.ndim else strength * _total(values)


def _shrunk(v: Values, step: Array, l1: Array, l2: Array) -> Array:
    """The prox of ``l1 |z| + l2/2 z^2``, coordinate by coordinate."""
    threshold = l1 * step
    return (v - np.clip(v, -threshold, threshold)) / (1.0 + l2 * step)


def _fitting(argument: str, numbers: Array, z: Array) -> Array:
    """One number for all coordinates of a model, or one each."""
    if numbers.ndim and numbers.size != np.shape(z)[-1]:
        raise ValueError(
            f"{argument} has {numbers.size} entries for a model of {np.shape(z)[-1]}. Pass one per coordinate."
        )
    return numbers


def _entries(numbers: Array, index: Indices | int) -> Array:
    """The numbers of some coordinates."""
    try:
        return np.asarray(numbers[index]) if numbers.ndim else numbers
    except IndexError:
        raise ValueError("index has an entry outside the model. Pass indices of its coordinates.") from None


def _checked_step(step: Values) -> Array:
    step = np.asarray(step, dtype=np.float64)
    if not np.all((step > 0) & (step < np.inf)):
        got = f"an array of shape {step.shape} with an entry that is not" if step.ndim else f"{float(step)!r}"
        raise ValueError(f"step must be positive and finite, and is {got}. Pass positive steps.")
    return step


def _one_step(regularizer: Regularizer, step: Values) -> float:
    """Return the step as a number; with a step per coordinate a non-separable prox is another problem."""
    step = _checked_step(step)
    if step.ndim:
        raise ValueError(
            f"step is an array of shape {step.shape}, and {type(regularizer).__name__} is not separable. "
            "Pass one step for all coordinates."
        )
    return float(step)


def _matched(v: Values, index: Indices | int) -> tuple[Array, Indices]:
    """Return the values and one index for each."""
    v, index = np.asarray(v, dtype=np.float64), np.asarray(index)
    if index.shape != v.shape and index.ndim:
        # Broadcasting a column of values against a row of indices would mix up the coordinates.
        raise ValueError(f"index has shape {index.shape} and v has shape {v.shape}. Pass one index per value.")
    return v, np.broadcast_to(index, v.shape)


def _require_regularizer(argument: str, value: object) -> None:
    if not isinstance(value, Regularizer):
        raise TypeError(f"{argument} is a {type(value).__name__}. Pass a Regularizer such as L1(0.1).")


def _strength(argument: str, value: Any) -> float | tuple[float, ...]:
    if np.ndim(value) == 0:
        return require_nonnegative(argument, value)
    strengths = _bound(argument, value)
    if not (np.size(strengths) and np.all(np.isfinite(strengths)) and np.min(strengths) >= 0):
        raise ValueError(f"{argument} has an entry below 0, or not finite, or none. Pass one number per coordinate.")
    return strengths


def _bound(argument: str, value: Any) -> float | tuple[float, ...]:
    try:
        bound = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        bound = np.empty((0, 0))
    if bound.ndim > 1:
        raise ValueError(f"{argument} is {value!r}. Pass a number, or one number per coordinate.")
    return float(bound) if bound.ndim == 0 else tuple(bound.tolist())
