"""General ADMM as a fixed-point operator with one block."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from hushpoint._checks import require_nonnegative, require_positive
from hushpoint._types import Array, Indices
from hushpoint.certificates import Certificate, Theorem
from hushpoint.operators.base import Operator
from hushpoint.operators.prox import LARGE, WholeProx
from hushpoint.operators.sensitivity import moved_certificate, require_smooth, stated_tolerance
from hushpoint.operators.splitting import reflection_lipschitz
from hushpoint.problem import Facts
from hushpoint.regularizers import Regularizer
from hushpoint.rows import Rows

if TYPE_CHECKING:
    from hushpoint.kernels import Kernel
    from hushpoint.plan import Plan


class GeneralADMM(Operator):
    """ADMM for ``min f(x) + g(z)`` subject to ``A x + B z = c``, with all data in f (Algorithm 5).

    ``z = argmin g + |B z + u|^2/(2 gamma)``, ``x = argmin f + |A x + 2 B z + u - c|^2/(2 gamma)``,
    ``R(u) = u + 2 (A x + B z - c)``. f is the weighted mean of the losses plus ``ridge/2 |x|^2``.
    Promises: one item moves R by at most ``4 L gamma w_i s/(s^2 + gamma ridge) + 4 tolerance`` with
    ``s = sqrt(gamma ridge)`` clipped to the singular values of A; Lipschitz with the product of the constants of the
    two reflected proxes.
    """

    name = "general ADMM"
    takes_many_points = True
    facts: Facts

    def __init__(
        self,
        facts: Facts,
        gamma: float,
        penalty: Regularizer,
        ridge: float = 0.0,
        A: ArrayLike | None = None,
        B: ArrayLike | None = None,
        c: ArrayLike | None = None,
        tolerance: float | None = None,
        extra_penalty: bool = False,
    ) -> None:
        require_smooth(facts, "the prox of the whole data set")
        self._extra_penalty = extra_penalty  # g is not part of the objective of the problem
        self.facts, self.gamma, self.penalty = facts, require_positive("gamma", gamma), penalty
        self.ridge = require_nonnegative("ridge", ridge)
        self.constraint = _Constraint(facts.width, A, B, c)
        self.block_size = self.message_size = self.constraint.size
        self.tolerance = stated_tolerance(tolerance, facts.gradient_bound * gamma / facts.items, gamma)

    def prepare(self, rows: Rows) -> WholeProx:
        weights = rows.shared_out(self.facts.item_weights)
        return WholeProx(rows, weights, self.gamma, self.ridge, self.constraint.A, self.tolerance)

    def release(self, shared: Array) -> Array:
        return self.constraint.argmin_z(self.penalty, shared, self.gamma)

    def local(
        self, data: WholeProx, chosen: Indices | slice, block: Array, z: Array, relaxation: float, kick: Array | None
    ) -> tuple[Array, Array]:
        on = self.constraint
        image = on.times_b(z)
        x = data.solve(on.c - 2 * image - block, self.model(z))
        residual = 2 * (on.times_a(x) + image - on.c)
        message = relaxation * (residual if kick is None else residual + kick)
        return block + message, message

    def combine(self, shared: Array, total: Array, chosen: Indices | None, relaxation: float) -> Array:
        return shared + total

    def kernel(self, plan: Plan) -> Kernel | None:
        """Where the prox takes Newton steps: one that remembers its last solution and a factor."""
        direct = self.facts.loss.is_quadratic and self.facts.clip is None and self.facts.width <= LARGE
        if type(self) is not GeneralADMM or plan.errors is not None or self.constraint.A is not None or direct:
            return None
        from hushpoint.kernels.whole import RememberingADMM

        return RememberingADMM(plan)

    def model(self, z: Array) -> Array:
        """The x that fits z best, ``A x = c - B z``; z itself where x = z."""
        return self.constraint.x_from(z)

    def extra_objective(self, model: Array) -> float:
        return float(self.penalty.value(self.constraint.z_from(model))) if self._extra_penalty else 0.0

    def certificate(self, relaxation: float) -> Certificate:
        facts, on, gamma = self.facts, self.constraint, self.gamma
        low, high = on.a_range
        x_smooth = (facts.smoothness + self.ridge) / low**2 if on.a_square else math.inf
        z_low, z_high = on.b_range
        z_smooth = self.penalty.smoothness / z_low**2 if on.b_square else math.inf
        lipschitz = reflection_lipschitz(gamma, self.ridge / high**2, x_smooth) * reflection_lipschitz(
            gamma, self.penalty.strong_convexity / z_high**2, z_smooth
        )
        s = min(max(math.sqrt(gamma * self.ridge), low), high)
        moved = 4 * facts.gradient_bound * gamma * s / (s**2 + gamma * self.ridge) * facts.item_weights
        because = [*facts.because, *(self.penalty.own_words() if self._extra_penalty else ())]
        if self.ridge:
            because.append(f"the ridge {self.ridge:g} sits with the losses")
        return moved_certificate(lipschitz, moved, facts, self.tolerance, because, Theorem("3a"))


class _Constraint:
    """``A x + B z = c``; None stands for A = I, B = -I, c = 0."""

    def __init__(self, width: int, A: ArrayLike | None, B: ArrayLike | None, c: ArrayLike | None) -> None:
        self.A = None if A is None else _matrix("A", A)
        if self.A is not None and self.A.shape[1] != width:
            raise ValueError(
                f"A has {self.A.shape[1]} columns for a model of length {width}. Pass one column a feature."
            )
        self.size = width if self.A is None else self.A.shape[0]
        self.a_range = (1.0, 1.0) if self.A is None else _full_column_rank("A", self.A)
        self.B = None if B is None else _matrix("B", B)
        if self.B is not None and self.B.shape[0] != self.size:
            raise ValueError(f"B has {self.B.shape[0]} rows and A x has {self.size} entries. Pass as many.")
        self.b_range = (1.0, 1.0) if self.B is None else _full_column_rank("B", self.B)
        self.c = np.zeros(self.size) if c is None else _numbers("c", c)
        if self.c.shape != (self.size,) or not np.isfinite(self.c).all():
            raise ValueError(f"c has shape {self.c.shape}. Pass {self.size} finite numbers, one per row of A.")
        self._a_inverse = None if self.A is None else np.linalg.pinv(self.A)
        self._b_inverse = None if self.B is None else np.linalg.pinv(self.B)
        self.plain = self.A is None and self.B is None and c is None
        self.a_square = self.A is None or self.A.shape[0] == self.A.shape[1]
        self.b_square = self.B is None or self.B.shape[0] == self.B.shape[1]

    def times_a(self, x: Array) -> Array:
        return x if self.A is None else x @ self.A.T

    def times_b(self, z: Array) -> Array:
        return -z if self.B is None else z @ self.B.T

    def x_from(self, z: Array) -> Array:
        if self.plain:
            return z
        right = self.c - self.times_b(z)
        return right if self._a_inverse is None else right @ self._a_inverse.T

    def z_from(self, x: Array) -> Array:
        right = self.c - self.times_a(x)
        return -right if self._b_inverse is None else right @ self._b_inverse.T

    def argmin_z(self, penalty: Regularizer, u: Array, gamma: float) -> Array:
        """``argmin_z g(z) + |B z + u|^2/(2 gamma)``: a prox where B'B is a multiple of the identity."""
        if self.B is None or self._b_inverse is None:
            return penalty.prox(u, gamma)
        low, high = self.b_range
        if high - low <= 1e-12 * high:
            return penalty.prox(-(u @ self.B) / high**2, gamma / high**2)
        return _accelerated_argmin(penalty, self.B, u, gamma, low, high, start=-(u @ self._b_inverse.T))


def _accelerated_argmin(
    penalty: Regularizer, B: Array, u: Array, gamma: float, low: float, high: float, start: Array
) -> Array:
    """Accelerated proximal gradient with the momentum of a strongly convex problem, to rounding error."""
    step = gamma / high**2
    momentum = (high - low) / (high + low)
    z = previous = start
    for _ in range(int(40 * high / low) + 100):
        ahead = z + momentum * (z - previous)
        previous, z = z, penalty.prox(ahead - step * ((ahead @ B.T + u) @ B) / gamma, step)
        if np.abs(z - previous).max() <= 1e-15 * (1 + np.abs(z).max()):
            break
    return z


def _numbers(name: str, value: ArrayLike) -> Array:
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} does not convert to numbers. Pass an array of numbers.") from None


def _matrix(name: str, value: ArrayLike) -> Array:
    matrix = _numbers(name, value)
    if matrix.ndim != 2 or matrix.size == 0 or not np.isfinite(matrix).all():
        raise ValueError(f"{name} has shape {matrix.shape} or entries that are not finite. Pass a finite table.")
    return matrix


def _full_column_rank(name: str, matrix: Array) -> tuple[float, float]:
    """Smallest and largest singular value of a matrix with full column rank."""
    values = np.linalg.svd(matrix, compute_uv=False)
    rank = int((values > values[0] * max(matrix.shape) * np.finfo(float).eps).sum())
    if rank < matrix.shape[1]:
        raise ValueError(
            f"{name} has rank {rank} and {matrix.shape[1]} columns. Remove dependent columns for full column rank."
        )
    return float(values[-1]), float(values[0])
