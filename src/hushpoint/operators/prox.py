"""Proximal steps of data: of the whole data set at once, and of each item on its own.

``s = gamma / (1 + gamma ridge)`` below: a ridge in the function only shrinks the point and the step of a prox,
``prox_{gamma (f + ridge/2 |.|^2)}(v) = prox_{s f}(v / (1 + gamma ridge))``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg

from hushpoint._types import Array, Indices
from hushpoint.losses import Loss
from hushpoint.operators.newton import conjugate_gradients, minimise, not_solved
from hushpoint.rows import Rows
from hushpoint.rows.items import rows_of_items

if TYPE_CHECKING:
    from hushpoint.kernels.users import UsersProx

CHUNK = 1 << 18  # numbers in one temporary array
LARGE = 2000  # features from which on no square matrix of them is formed


class WholeProx:
    """``argmin_x sum_j weight_j phi(a_j.x, b_j) + ridge/2 |x|^2 + |A x - v|^2/(2 gamma)``, over all rows.

    Squared loss: one Cholesky factor for all steps. Other smooth losses: damped Newton until the certified
    distance ``|A (x_hat - x)|``, ``gamma |gradient| / w`` or for A = I ``gamma |gradient| / (1 + gamma ridge)``, is at
    most the ``tolerance``. With more than ``LARGE`` features no Hessian is formed: directions come from conjugate
    gradients. One point: rows are read in chunks, whatever they are stored in.
    """

    def __init__(
        self, rows: Rows, weights: Array, gamma: float, ridge: float, A: Array | None, tolerance: float
    ) -> None:
        from hushpoint.kernels.passes import passes_over

        self.rows, self.weights, self.gamma, self.ridge, self.A = rows, weights, gamma, ridge, A
        self.width = rows.store.width
        self.large = self.width > LARGE
        if A is None:
            self._base: Array = np.full(1, 1 / gamma + ridge)  # the diagonal of what is added to the Hessian
            self.gradient_tolerance = tolerance * (1 + gamma * ridge) / gamma
        else:
            self._base = A.T @ A / gamma + ridge * np.eye(self.width)
            self.gradient_tolerance = tolerance * float(np.linalg.svd(A, compute_uv=False)[-1]) / gamma
        self._passes = passes_over(rows)
        self._curvatures = np.empty(len(rows))
        self._curved_at: Array | None = None  # the point that the curvatures are of
        self._factor: Any = None
        if rows.loss.is_quadratic and rows.limits is None and not self.large:
            self._factor = scipy.linalg.cho_factor(self.hessian(weights))
            self._pull = rows.store.pull(weights * rows.targets)

    def solve(self, points: Array, guess: Array) -> Array:
        """The minimiser for ``v = points`` (one point, or one a row), starting from ``guess``."""
        many = np.atleast_2d(points)
        targets = many if self.A is None else many @ self.A
        if self._factor is not None:
            found = np.asarray(scipy.linalg.cho_solve(self._factor, (self._pull + targets / self.gamma).T).T)
        else:
            self._points = many
            start = np.broadcast_to(guess, (len(many), self.width))
            found = minimise(self, start, np.full(len(many), self.gradient_tolerance))
        return found.reshape(*points.shape[:-1], -1)

    def gradient(self, points: Array, active: Indices) -> Array:
        gaps = (points if self.A is None else points @ self.A.T) - self._points[active]
        pulls = gaps if self.A is None else gaps @ self.A
        rest = self.ridge * points + pulls / self.gamma
        if len(points) == 1:
            return np.asarray(self._sum_at(points[0])[None, :] + rest)
        rows = self.rows
        margins = rows.store @ points.T  # a column for each point
        slopes = self.weights[:, None] * self._loss().derivative(margins, rows.targets[:, None])
        return np.asarray(rows.store.pull(slopes).T + rest)

    def gradient_at(self, x: Array, point: Array) -> Array:
        """The gradient at x for one ``v = point``, where A = I."""
        return np.asarray(self._sum_at(x) + self.ridge * x + (x - point) / self.gamma)

    def _sum_at(self, x: Array) -> Array:
        """The weighted sum of the rows' gradients at x; their curvatures are kept."""
        total = self._passes.gradient(np.ascontiguousarray(x), self.weights, self._curvatures)
        self._curved_at = x.copy()
        return total

    def _curvatures_at(self, x: Array) -> Array:
        if self._curved_at is None or not np.array_equal(self._curved_at, x):
            self._sum_at(x)
        return self._curvatures

    def _loss(self) -> Loss:
        limits = self.rows.limits
        return self.rows.loss if limits is None else self.rows.loss.truncated(limits[:, None])

    def direction(self, points: Array, gradients: Array, active: Indices) -> Array:
        if len(points) == 1 or self.large or self.rows.store.sparse:
            return np.stack([self._one_direction(x, g) for x, g in zip(points, gradients, strict=True)])
        margins = self.rows.store @ points.T
        curvature = self.weights[:, None] * self._loss().curvature(margins, self.rows.targets[:, None])
        features = self.rows.store[:]  # many small problems: all Hessians at once
        hessians = np.matmul(features.T, curvature.T[:, :, None] * features)
        hessians += self._base * np.eye(self.width) if self.A is None else self._base
        return -np.asarray(np.linalg.solve(hessians, gradients[:, :, None])[:, :, 0])

    def _one_direction(self, x: Array, gradient: Array) -> Array:
        curvatures = self._curvatures_at(x)
        if not self.large:
            return -np.asarray(scipy.linalg.cho_solve(scipy.linalg.cho_factor(self.hessian(curvatures)), gradient))

        def product(vector: Array) -> Array:
            base = self._base * vector if self.A is None else self._base @ vector
            return self._passes.hessian_times(curvatures, vector) + base

        return conjugate_gradients(product, -gradient, 0.3 * self.gradient_tolerance)

    def hessian(self, curvatures: Array) -> Array:
        """The Hessian where the rows have these curvatures."""
        hessian = self._passes.hessian(curvatures)
        if self.A is None:
            hessian[np.diag_indices(self.width)] += self._base
            return hessian
        return hessian + self._base

    def factor_at(self, x: Array) -> Any:
        """The Cholesky factor of the Hessian at x."""
        return scipy.linalg.cho_factor(self.hessian(self._curvatures_at(x)))


class RowProx:
    """``prox_{gamma f_i}`` where every item is one row: one scalar equation an item, along that row."""

    def __init__(self, rows: Rows, gamma: float, ridge: float) -> None:
        self.rows, self._shrink = rows, 1 / (1 + gamma * ridge)
        self._step = gamma * self._shrink

    def solve(self, chosen: Indices | slice, points: Array, guess: Array) -> Array:
        """The proxes of the chosen items at the rows of ``points``, which is overwritten; no guess is needed."""
        rows = self.rows.pick(chosen)
        if self._shrink != 1:
            points *= self._shrink
        squared = rows.squared_norms
        margins = rows.store.dots(points)
        moved = rows.row_loss.prox(margins, rows.targets, self._step * squared) - margins
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows here is cut by whoever clips
            along = np.divide(moved, squared, out=np.zeros_like(moved), where=squared > 0)
            rows.store.add_to(points, along)
        return points


@dataclass(frozen=True)
class _Batch:
    """Items of similar size, their rows padded to one length; padding has weight 0."""

    items: Indices
    index: Indices  # (items, length): rows
    weights: Array  # (items, length): 1 / rows of the item, 0 on padding


class ItemsProx:
    """``prox_{gamma f_i}`` where f_i is the mean loss over the rows of item i, for many items at once.

    Squared loss: one inverse an item, of the smaller of (rows, features), for all steps. Other smooth losses: damped
    Newton until ``gamma |gradient| / (1 + gamma ridge) <= tolerance`` for every item, compiled for the named losses;
    NumPy takes items in batches of similar size.
    """

    def __init__(self, rows: Rows, gamma: float, ridge: float, tolerance: Array) -> None:
        if rows.offsets is None:
            raise ValueError("the rows have no users. Use RowProx for items of one row.")
        self.rows, self._shrink = rows, 1 / (1 + gamma * ridge)
        self._step = gamma * self._shrink
        self._gradient_tolerance = tolerance / self._step
        self._squared = rows.loss.is_quadratic and rows.limits is None
        self._compiled = None if self._squared else _compiled_users(rows, self._step, self._gradient_tolerance)
        if self._compiled is not None:
            return
        self._batches = list(_batches(rows.offsets))
        self._home = np.empty((rows.items, 2), dtype=np.int64)  # item -> its batch, its place there
        for number, batch in enumerate(self._batches):
            self._home[batch.items] = np.stack([np.full(len(batch.items), number), np.arange(len(batch.items))], axis=1)
        self._inverses = [self._factor(batch) for batch in self._batches] if self._squared else []

    def solve(self, chosen: Indices | slice, points: Array, guess: Array) -> Array:
        """The proxes of the chosen items at the rows of ``points``, starting from ``guess``."""
        if self._compiled is not None:
            who = np.arange(self.rows.items)[chosen]
            guesses = np.ascontiguousarray(np.broadcast_to(guess, points.shape))
            found, solved = self._compiled.solve(who, points * self._shrink, guesses)
            if not solved:
                raise not_solved()
            return found
        homes = self._home[chosen]
        guesses = np.broadcast_to(guess, points.shape)
        result = np.empty_like(points)
        for number, batch in enumerate(self._batches):
            mine = np.flatnonzero(homes[:, 0] == number)
            places = homes[mine, 1]
            for part in _parts(len(mine), batch.index.shape[1], points.shape[1]):
                at = mine[part]
                result[at] = self._solve_batch(number, places[part], points[at] * self._shrink, guesses[at])
        return result

    def _solve_batch(self, number: int, places: Indices, points: Array, guess: Array) -> Array:
        batch = self._batches[number]
        local = _LocalProblems(self.rows, batch, places, points, self._step)
        if self._squared:
            return local.solve_squared(self._inverses[number][places])
        return minimise(local, guess, self._gradient_tolerance[batch.items[places]])

    def _factor(self, batch: _Batch) -> Array:
        size = min(batch.index.shape[1], self.rows.store.width)
        inverses = np.empty((len(batch.items), size, size))
        for part in _parts(len(batch.items), batch.index.shape[1], self.rows.store.width):
            places = np.arange(len(batch.items))[part]
            local = _LocalProblems(self.rows, batch, places, np.empty((len(places), 0)), self._step)
            inverses[part] = np.linalg.inv(_system(local.features, self._step * local.weights))
        return inverses


def _compiled_users(rows: Rows, step: float, gradient_tolerance: Array) -> UsersProx | None:
    if rows.loss.code is None:
        return None
    from hushpoint.kernels.users import UsersProx

    return UsersProx(rows, rows.loss.code, step, gradient_tolerance)


class _LocalProblems:
    """``mean_j phi(a_j.x, b_j) + |x - v|^2/(2 step)`` for some items of a batch."""

    def __init__(self, rows: Rows, batch: _Batch, places: Indices, points: Array, step: float) -> None:
        index = batch.index[places]
        self.weights = batch.weights[places]
        self.features = rows.store[index.reshape(-1)].reshape(*index.shape, -1)
        self.targets = rows.targets[index]
        self.loss: Loss = rows.loss
        self.limits = None if rows.limits is None else rows.limits[index]
        self.points, self.step = points, step
        self.wide = index.shape[1] < self.features.shape[2]  # fewer rows than features

    def solve_squared(self, inverses: Array) -> Array:
        if self.wide:  # x = v - step X'W (I + step XX'W)^-1 (X v - b)
            gaps = _margins(self.features, self.points) - self.targets
            inner = self.weights * _margins(inverses, gaps)
            return self.points - self.step * _pull(self.features, inner)
        right = self.points + self.step * _pull(self.features, self.weights * self.targets)
        return _margins(inverses, right)

    def _loss(self, active: Indices) -> Loss:
        return self.loss if self.limits is None else self.loss.truncated(self.limits[active])

    def gradient(self, points: Array, active: Indices) -> Array:
        features = self.features[active]
        slopes = self._loss(active).derivative(_margins(features, points), self.targets[active])
        return _pull(features, self.weights[active] * slopes) + (points - self.points[active]) / self.step

    def direction(self, points: Array, gradients: Array, active: Indices) -> Array:
        features = self.features[active]
        curvature = self._loss(active).curvature(_margins(features, points), self.targets[active])
        scales = self.step * self.weights[active] * curvature
        system = _system(features, scales)
        if not self.wide:
            return np.asarray(-self.step * np.linalg.solve(system, gradients[:, :, None])[:, :, 0])
        # Woodbury: (I + X'SX)^-1 g = g - X'S (I + XX'S)^-1 X g
        inner = np.linalg.solve(system, _margins(features, gradients)[:, :, None])[:, :, 0]
        return -self.step * (gradients - _pull(features, scales * inner))


def _system(features: Array, scales: Array) -> Array:
    """``I + X'SX`` for each item, or its companion ``I + XX'S`` where that is smaller; S = diag(scales)."""
    scaled = features * scales[:, :, None]
    if features.shape[1] < features.shape[2]:
        system = np.matmul(features, scaled.transpose(0, 2, 1))
    else:
        system = np.matmul(features.transpose(0, 2, 1), scaled)
    diagonal = np.arange(system.shape[1])
    system[:, diagonal, diagonal] += 1.0
    return np.asarray(system)


def _margins(features: Array, points: Array) -> Array:
    return np.asarray(np.matmul(features, points[:, :, None])[:, :, 0])


def _pull(features: Array, slopes: Array) -> Array:
    return np.asarray(np.matmul(slopes[:, None, :], features)[:, 0, :])


def _batches(offsets: Indices) -> Iterator[_Batch]:
    """Items in groups whose sizes differ by less than a quarter, so that little is padded."""
    counts = np.diff(offsets)
    order = np.argsort(counts, kind="stable")
    start = 0
    while start < len(order):
        stop = int(np.searchsorted(counts[order], 1.25 * counts[order[start]] + 1, side="left"))
        items = order[start:stop]
        length = int(counts[items].max())
        index = np.repeat(offsets[items][:, None], length, axis=1)
        inside = np.arange(length) < counts[items][:, None]
        index[inside] = rows_of_items(offsets, items)[0]
        yield _Batch(items, index, inside / counts[items][:, None])
        start = stop


def _parts(items: int, length: int, width: int) -> Iterator[slice]:
    """Slices of a batch whose temporaries stay small."""
    size = max(1, CHUNK // (width * (length + min(length, width))))
    for start in range(0, items, size):
        yield slice(start, min(start + size, items))
