"""Shapes with constraints: which coefficients give monotone curves, and the nearest such model to a given one.

A constraint is a cone of models, ``conditions @ coefficients >= 0``: times a scale that is not negative, a model of the
cone stays in it. So it can be met before the scale of a model is learned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import nnls

from hushpoint._threads import one_thread
from hushpoint._types import Array, Indices
from hushpoint.preprocessing import TableEncoder, shapes
from hushpoint.regularizers import Regularizer
from hushpoint.schema import Boolean, Category, Column, Number

ConstrainedBy = Literal["descent", "admm", "projection"]
WAYS: tuple[ConstrainedBy, ...] = ("descent", "admm", "projection")

_MET = 1e-10  # a condition counts as met if it fails by no more than this of the largest failure there was
_MOST_ROUNDS = 30


@dataclass(frozen=True, eq=False)
class Block:
    """What is asked of one column's coefficients v: ``rows @ v`` is nowhere negative.

    ``lift`` added to v raises every condition by at least 1.
    """

    places: Indices
    rows: Array
    lift: Array

    def make_sure(self, model: Array) -> None:
        """Lift the column's coefficients by what rounding left missing."""
        found = model[self.places]
        rounding = 1e-14 * float((np.abs(self.rows) @ np.abs(found)).max())
        short = rounding - float((self.rows @ found).min())
        if short > 0 and np.any(found):
            model[self.places] += short * self.lift


@dataclass(frozen=True, eq=False)
class Cone:
    """The linear models whose columns are monotone as declared, and how a private training gets there.

    "descent": every step ends at the nearest of them. "admm": steps of general ADMM. "projection": only the result is
    moved. After the first two little is left to move.
    """

    blocks: Sequence[Block]
    by: ConstrainedBy = "descent"

    def conditions(self, width: int) -> Array:
        """All conditions on a model of so many coefficients, a row each."""
        parts = []
        for block in self.blocks:
            part = np.zeros((len(block.rows), width))
            part[:, block.places] = block.rows
            parts.append(part)
        return np.vstack(parts)

    def nearest(self, model: Array, root: Array) -> Array:
        """The model of the cone with the least ``(v - model)' (root root')^-1 (v - model)``, certified to be in it.

        ``root`` is a square matrix, or a vector that stands for a diagonal one.
        """
        conditions = self.conditions(len(model))
        with one_thread():
            images = conditions * root if root.ndim == 1 else conditions @ root
            step = _least_step(images, conditions @ model)
            found = model + (root * step if root.ndim == 1 else root @ step)
        for block in self.blocks:
            block.make_sure(found)
        return np.asarray(found)


class MappedCone(Regularizer):
    """A cone of models ``root @ x`` in terms of x: 0 inside, infinity outside."""

    def __init__(self, cone: Cone, root: Array) -> None:
        conditions = cone.conditions(len(root))
        with one_thread():
            self.images = np.asarray(conditions * root if root.ndim == 1 else conditions @ root)

    def value(self, z: Array) -> Array:
        values = z @ self.images.T
        allowed = 1e-8 * (np.linalg.norm(z, axis=-1, keepdims=True) * np.linalg.norm(self.images, axis=1))
        return np.where((values < -allowed).any(axis=-1), np.inf, 0.0)

    def prox(self, v: Array, step: Array | float) -> Array:
        if v.ndim > 1:
            return np.array([self.prox(one, step) for one in v]).reshape(v.shape)
        with one_thread():
            return v + _least_step(self.images, self.images @ v)


def _least_step(images: Array, values: Array) -> Array:
    """The shortest x with ``images @ x + values >= 0``.

    Conditions are taken up as they fail, since few hold with equality. The dual is least squares with weights that are
    not negative.
    """
    scales = np.linalg.norm(images, axis=1)
    images, values = images / scales[:, None], values / scales
    step, missed = np.zeros(images.shape[1]), values
    taken = np.zeros(len(values), dtype=bool)
    tolerance = -_MET * float(values.min(initial=0.0))
    for _ in range(_MOST_ROUNDS):
        failing = (missed < -tolerance) & ~taken
        if not failing.any():
            break
        taken |= failing
        chosen = images[taken]
        start = -np.linalg.lstsq(chosen, values[taken], rcond=None)[0]
        try:
            weights, _ = nnls(chosen.T, start)
        except RuntimeError:  # it gave up: each column is lifted at the end
            break
        step = weights @ chosen
        missed = values + images @ step
    return np.asarray(step)


def cone_of(encoder: TableEncoder, by: ConstrainedBy = "descent") -> Cone | None:
    """What the schema of an encoder asks of a linear model of its rows; None if nothing."""
    blocks = []
    for name, column in encoder.schema_.features.items():
        direction = getattr(column, "monotone", None)
        if direction is not None:
            blocks += _blocks(column, encoder.places(name), 1.0 if direction == "increasing" else -1.0)
    return Cone(blocks, by) if blocks else None


def _blocks(column: Column, places: Indices, sign: float) -> list[Block]:
    """The conditions of one column; of a category with one value there are none."""
    if isinstance(column, Boolean):
        return [Block(places, np.array([[sign]]), np.array([sign]))]
    if isinstance(column, Category):
        levels = len(column.values)
        rows, lift = np.diff(np.eye(levels), axis=0), np.arange(levels, dtype=np.float64)
        return [Block(places, sign * rows, sign * lift)] if levels > 1 else []
    assert isinstance(column, Number)
    knots = len(places) + 1 if column.steps is None else shapes.pieces(column.steps)
    rows = np.diff(shapes.at_knots(knots, len(places) - 1), axis=0)
    lift = np.zeros(len(places))
    lift[0] = sign / rows[0, 0]
    return [Block(places, sign * rows, lift)]
