"""Maps that splitting methods are made of: prox, reflected prox, and their composition."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from hushpoint._checks import require_positive
from hushpoint._types import Array
from hushpoint.certificates import Certificate
from hushpoint.operators.base import FixedPoint


class Proximable(Protocol):
    """A convex function with a prox and two constants; every regulariser is one."""

    @property
    def strong_convexity(self) -> float: ...

    @property
    def smoothness(self) -> float: ...

    def prox(self, v: Array, step: float) -> Array: ...


def reflection_lipschitz(gamma: float, strong_convexity: float, smoothness: float) -> float:
    """Lipschitz constant of the reflected prox of a function with these constants (Giselsson and Boyd 2017)."""
    curved = 1.0 if math.isinf(smoothness) else (gamma * smoothness - 1) / (gamma * smoothness + 1)
    return max(curved, (1 - gamma * strong_convexity) / (1 + gamma * strong_convexity))


@dataclass(frozen=True)
class Prox:
    """The prox of a function: ``v -> argmin_x f(x) + |x - v|^2/(2 gamma)``.

    Promises: Lipschitz with constant ``1/(1 + gamma m)`` when the function is ``m``-strongly convex.
    """

    function: Proximable
    gamma: float

    def __post_init__(self) -> None:
        require_positive("gamma", self.gamma)

    @property
    def lipschitz(self) -> float:
        return 1 / (1 + self.gamma * self.function.strong_convexity)

    def __call__(self, point: Array) -> Array:
        return self.function.prox(point, self.gamma)


@dataclass(frozen=True)
class ReflectedProx:
    """Reflect a point through the prox of a function: ``v -> 2 prox(v) - v``.

    Promises: Lipschitz with constant ``max((g*b - 1)/(g*b + 1), (1 - g*m)/(1 + g*m))`` when the function is
    ``b``-smooth and ``m``-strongly convex (Giselsson and Boyd 2017), and 1 otherwise.
    """

    function: Proximable
    gamma: float

    def __post_init__(self) -> None:
        require_positive("gamma", self.gamma)

    @property
    def lipschitz(self) -> float:
        return reflection_lipschitz(self.gamma, self.function.strong_convexity, self.function.smoothness)

    def __call__(self, point: Array) -> Array:
        return 2 * self.function.prox(point, self.gamma) - point


class LionsMercier(FixedPoint):
    """The composition ``R_1 R_2`` of two reflected proxes (Lions and Mercier 1979); relaxed, Douglas-Rachford.

    Its fixed points u give minimisers ``prox_{gamma f_2}(u)`` of ``f_1 + f_2``, which is what is released.
    Promises: Lipschitz with the product of the two constants. Its functions are opaque, so it states no sensitivity.
    """

    name = "Lions-Mercier"

    def __init__(self, first: Proximable, second: Proximable, gamma: float, size: int) -> None:
        super().__init__(size)
        self.outer, self.inner = ReflectedProx(first, gamma), ReflectedProx(second, gamma)

    def apply(self, point: Array) -> Array:
        return self.outer(self.inner(point))

    def release(self, shared: Array) -> Array:
        return self.inner.function.prox(shared, self.inner.gamma)

    def certificate(self, relaxation: float) -> Certificate:
        return Certificate(
            self.outer.lipschitz * self.inner.lipschitz,
            because=("product of the constants of two reflected proxes",),
            missing=("LionsMercier does not know how its functions depend on the data. Use private_admm.",),
        )
