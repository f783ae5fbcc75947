"""Proxes of users with any number of rows, one user at a time and without padding, compiled.

``argmin_x mean_j phi(a_j.x, b_j) + |x - v|^2/(2 step)`` over the rows of a user, by the damped Newton method of
``operators.newton``, to the same certified distance: a point is accepted when the norm of its gradient, computed at
that very point, is at most the tolerance. Users with fewer rows than features are solved in as many unknowns as rows:
``x = v - step X'a`` with ``a_j = phi'(a_j.x, b_j)/rows``, whose system needs only the inner products of the rows.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hushpoint._codes import LossCode
from hushpoint._compiled import inner, loop
from hushpoint._threads import share
from hushpoint._types import Array, Indices
from hushpoint.kernels.cholesky import factor, solve
from hushpoint.kernels.scalar import slopes
from hushpoint.kernels.table import TILE, copy, dot, row_add, row_dot, table_of, tile_add, tile_dots, tile_outer
from hushpoint.rows import Rows

_ITERATIONS = 200
_SECTIONS = 60  # evaluations of a line search
_WORTH_SHARING = 1 << 20  # multiplications of one Newton step, over all users, from which on threads pay


class UsersProx:
    """The proxes of the users of some rows, for one step length and one tolerance a user."""

    def __init__(self, rows: Rows, loss: LossCode, step: float, gradient_tolerance: Array) -> None:
        counts, width = rows.counts, rows.store.width
        self._rows = table_of(rows.store), rows.targets, rows.slope_limits, rows.offsets
        self._setting = loss, step
        self._tolerance = gradient_tolerance
        few = counts < width
        self._starts = np.concatenate([[0], np.cumsum(np.where(few, counts**2, 0))]).astype(np.int64)
        self._products = np.empty(self._starts[-1])
        if few.any():
            share(lambda a, b: _inner_products(self._rows, self._starts, a, b, width, self._products), rows.items)
        self._work = counts * np.minimum(counts, width) * width  # of one Newton step

    def solve(self, chosen: Indices, points: Array, guesses: Array) -> tuple[Array, bool]:
        """The proxes of the chosen users at the rows of ``points``, and whether all were solved."""
        found, solved = self.solve_each(chosen, points, guesses)
        return found, bool(solved.all())

    def solve_each(self, chosen: Indices, points: Array, guesses: Array) -> tuple[Array, NDArray[np.bool_]]:
        """The same, and which of them were solved."""
        found, solved = np.empty_like(points), np.zeros(len(chosen), dtype=np.bool_)

        def users(start: int, stop: int) -> None:
            _users(
                self._rows, self._setting, self._tolerance, self._starts, self._products, chosen[start:stop],
                points[start:stop], guesses[start:stop], found[start:stop], solved[start:stop],
            )  # fmt: skip

        share(users, len(chosen), worth=self._work[chosen].sum() >= _WORTH_SHARING)
        return found, solved


@loop
def _inner_products(rows, starts, first, last, width, out):
    """The inner products of the rows of each user that has fewer rows than features."""
    table, _, _, offsets = rows
    line, zeros = np.empty(width), np.zeros(width)
    for user in range(first, last):
        count = offsets[user + 1] - offsets[user]
        if starts[user] == starts[user + 1]:
            continue
        square = out[starts[user] : starts[user + 1]]
        for j in range(count):
            copy(zeros, line)
            row_add(table, offsets[user] + j, 1.0, line)
            for k in range(j + 1):
                square[count * j + k] = square[count * k + j] = row_dot(table, offsets[user] + k, line)


@loop
def _users(rows, setting, tolerances, starts, products, chosen, points, guesses, found, solved):
    """Solve the proxes of the chosen users."""
    offsets, width = rows[3], points.shape[1]
    longest = 0
    for user in chosen:
        longest = max(longest, offsets[user + 1] - offsets[user])
    size = min(longest, width)
    system, rooms, lines = np.empty((size, size)), np.empty((8, longest)), np.empty((5, width))
    for k in range(chosen.size):
        user = chosen[k]
        span = offsets[user], offsets[user + 1]
        if starts[user] == starts[user + 1]:
            copy(guesses[k], found[k])
            solved[k] = _by_features(rows, setting, span, tolerances[user], points[k], found[k], system, rooms, lines)
        else:
            square = products[starts[user] : starts[user + 1]]
            solved[k] = _by_rows(
                rows, setting, span, tolerances[user], square, points[k], guesses[k], found[k], system, rooms, lines
            )


@inner
def _gradient(rows, setting, span, point, x, curvatures, out):
    """The gradient at x and the curvatures of its rows; returns the norm."""
    table, targets, limits, _ = rows
    loss, step = setting
    start, stop = span
    for j in range(out.size):
        out[j] = (x[j] - point[j]) / step
    tile = np.empty(TILE)
    for first in range(start, stop, TILE):
        count = min(TILE, stop - first)
        tile_dots(table, first, count, x, tile)
        for k in range(count):
            slope, curvature = slopes(loss, tile[k], targets[first + k], limits[first + k])
            tile[k] = slope / (stop - start)
            curvatures[first + k - start] = curvature / (stop - start)
        tile_add(table, first, count, tile, out)
    return math.sqrt(dot(out, out))


@inner
def _next_length(section, low, low_slope, high, high_slope):
    """Where a line search looks next: false position and halving in turn."""
    crossing = (low * high_slope - high * low_slope) / (high_slope - low_slope)
    if section % 2 == 0 and math.isfinite(crossing):
        return crossing
    return (low + high) / 2


@inner
def _ends(section, slope, first_slope):
    """Whether a line search ends: a full step that does not overshoot, or a slope that has all but vanished."""
    if section == 0 and slope <= 0.1 * abs(first_slope):
        return True
    return abs(slope) <= 1e-3 * abs(first_slope)


@inner
def _by_features(rows, setting, span, tolerance, point, x, system, rooms, lines):
    """Newton on the user's x, which starts where it stands."""
    table, step, width = rows[0], setting[1], point.size
    curvatures, gradient, direction, origin = rooms[0], lines[0], lines[1], lines[2]
    norm = _gradient(rows, setting, span, point, x, curvatures, gradient)
    for _ in range(_ITERATIONS):
        if norm <= tolerance:
            return True
        for j in range(width):
            for k in range(j + 1):
                system[j, k] = 0.0
        for first in range(span[0], span[1], TILE):
            at = first - span[0]
            tile_outer(table, first, min(TILE, span[1] - first), curvatures[at : at + TILE], system)
        for j in range(width):
            for k in range(j + 1):
                system[j, k] *= step
            system[j, j] += 1.0
        if not factor(system, width):
            return False
        copy(gradient, direction)
        solve(system, width, direction)
        for j in range(width):
            direction[j] *= -step
        first_slope = dot(gradient, direction)
        copy(x, origin)
        low, low_slope, high, high_slope, length = 0.0, first_slope, 1.0, math.inf, 1.0
        for section in range(_SECTIONS):
            for j in range(width):
                x[j] = origin[j] + length * direction[j]
            norm = _gradient(rows, setting, span, point, x, curvatures, gradient)
            slope = dot(gradient, direction)
            if slope > 0:
                high, high_slope = length, slope
            else:
                low, low_slope = length, slope
            if not norm > tolerance or _ends(section, slope, first_slope):
                break
            length = _next_length(section, low, low_slope, high, high_slope)
    return False


@inner
def _residual(rows, setting, span, margins, a, curvatures, out):
    """``phi'(margins)/rows - a`` and the curvatures there."""
    count = span[1] - span[0]
    for j in range(count):
        i = span[0] + j
        slope, curvature = slopes(setting[0], margins[j], rows[1][i], rows[2][i])
        out[j] = slope / count - a[j]
        curvatures[j] = curvature / count


@inner
def _times(square, vector, out):
    for j in range(vector.size):
        out[j] = dot(square[vector.size * j : vector.size * (j + 1)], vector)


@inner
def _by_rows(rows, setting, span, tolerance, square, point, guess, x, system, rooms, lines):
    """Newton on the user's a, with ``x = point - step X'a``; the gradient at x is X' times the residual."""
    table, step, count = rows[0], setting[1], span[1] - span[0]
    base, margins, a = rooms[0, :count], rooms[1, :count], rooms[2, :count]
    curvatures, residual, change = rooms[3, :count], rooms[4, :count], rooms[5, :count]
    right, image = rooms[6, :count], rooms[7, :count]
    copy(guess, x)
    if _gradient(rows, setting, span, point, x, curvatures, lines[0]) <= tolerance:
        return True
    # Start from the model of the losses at the guess: one Newton step from there.
    for j in range(count):
        base[j] = row_dot(table, span[0] + j, point)
        margins[j] = row_dot(table, span[0] + j, guess)
        a[j] = 0.0
    _residual(rows, setting, span, margins, a, curvatures, residual)
    for j in range(count):
        residual[j] += curvatures[j] * (base[j] - margins[j])
    if not _dual_step(square, step, curvatures, residual, right, image, system, a):
        return False
    wanted = 0.5 * tolerance
    for _ in range(6):
        if not _dual_newton(
            rows, setting, span, wanted, square, base, margins, a, curvatures, residual, change, right, image, system
        ):
            return False
        copy(point, x)
        for first in range(0, count, TILE):
            part = min(TILE, count - first)
            for k in range(part):
                right[k] = -step * a[first + k]
            tile_add(table, span[0] + first, part, right, x)
        if _gradient(rows, setting, span, point, x, curvatures, lines[0]) <= tolerance:
            return True
        wanted *= 0.1
    return False


@inner
def _dual_step(square, step, curvatures, residual, right, image, system, out):
    """``out = (I + step D K)^-1 residual`` with D = diag(curvatures) and K the inner products."""
    count = residual.size
    _times(square, residual, image)
    for j in range(count):
        root = math.sqrt(curvatures[j])
        right[j] = root * image[j]
        for k in range(j + 1):
            system[j, k] = step * root * square[count * j + k] * math.sqrt(curvatures[k])
        system[j, j] += 1.0
    if not factor(system, count):
        return False
    solve(system, count, right)
    for j in range(count):
        out[j] = residual[j] - step * math.sqrt(curvatures[j]) * right[j]
    return True


@inner
def _dual_newton(
    rows, setting, span, tolerance, square, base, margins, a, curvatures, residual, change, right, image, system
):
    """Move a until the norm of the gradient, ``sqrt(residual' K residual)``, is at most the tolerance."""
    step, count = setting[1], a.size
    _times(square, a, image)
    for j in range(count):
        margins[j] = base[j] - step * image[j]
    _residual(rows, setting, span, margins, a, curvatures, residual)
    for _ in range(_ITERATIONS):
        _times(square, residual, image)
        if dot(residual, image) <= tolerance**2:
            return True
        if not _dual_step(square, step, curvatures, residual, right, image, system, change):
            return False
        _times(square, change, image)
        first_slope = -step * dot(residual, image)
        low, low_slope, high, high_slope, length, at = 0.0, first_slope, 1.0, math.inf, 1.0, 0.0
        for section in range(_SECTIONS):
            for j in range(count):
                a[j] += (length - at) * change[j]
                margins[j] -= (length - at) * step * image[j]
            at = length
            _residual(rows, setting, span, margins, a, curvatures, residual)
            slope = -step * dot(residual, image)
            if slope > 0:
                high, high_slope = length, slope
            else:
                low, low_slope = length, slope
            if _ends(section, slope, first_slope):
                break
            length = _next_length(section, low, low_slope, high, high_slope)
    return False
