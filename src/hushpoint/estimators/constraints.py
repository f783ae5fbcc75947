"""Shapes with constraints: which coefficients give monotone curves, and the nearest such model to a released one.

A constraint is a cone of models, ``rows @ coefficients >= 0``: times a scale that is not negative, a model of the cone
stays in it. So it can be met before the scale of a model is learned, and after its waves were made smaller.
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
from hushpoint.schema import Boolean, Category, Column, Number

ConstrainedBy = Literal["projection", "admm"]

_MET = 1e-9  # a condition counts as met if it fails by no more than this of what its terms amount to
_MOST_ROUNDS = 40


@dataclass(frozen=True, eq=False)
class Block:
    """What is asked of one column's coefficients v: ``rows @ v`` is nowhere negative.

    ``lift`` added to v raises every condition by at least 1.
    """

    places: Indices
    rows: Array
    lift: Array

    def missed(self, model: Array) -> Array:
        """The conditions, and what their terms amount to."""
        return np.asarray(self.rows @ model[self.places])

    def worst(self, model: Array) -> Indices:
        """Where the conditions fail most: the local minima among those that fail."""
        values = self.missed(model)
        tolerance = _MET * float((np.abs(self.rows) @ np.abs(model[self.places])).max())
        padded = np.concatenate([[np.inf], values, [np.inf]])
        lowest = (values <= padded[:-2]) & (values <= padded[2:]) & (values < -tolerance)
        return np.flatnonzero(lowest)

    def made_sure(self, model: Array) -> None:
        """Lift the column's coefficients by what is still missing, for rounding a little more."""
        found = model[self.places]
        rounding = 1e-14 * float((np.abs(self.rows) @ np.abs(found)).max())
        short = rounding - float((self.rows @ found).min())
        if short > 0 and np.any(found):
            model[self.places] += short * self.lift


@dataclass(frozen=True, eq=False)
class Cone:
    """The linear models whose columns are monotone as declared, and how a private training gets there.

    "projection": by moving what was released to the nearest of them. "admm": by steps within constraints, and then so.
    """

    blocks: Sequence[Block]
    by: ConstrainedBy = "projection"

    def nearest(self, model: Array, root: Array) -> Array:
        """The model of the cone with the least ``(v - model)' (root root')^-1 (v - model)``, certified to be in it.

        ``root`` is a square matrix, or a vector that stands for a diagonal one. Conditions are taken up as they fail:
        few of them hold with equality.
        """
        chosen: list[Array] = []
        found = model.copy()
        with one_thread():
            for _ in range(_MOST_ROUNDS):
                failing = [self._row(block, at, len(model)) for block in self.blocks for at in block.worst(found)]
                if not failing:
                    break
                chosen += failing
                found = _moved(model, root, np.array(chosen))
        for block in self.blocks:
            block.made_sure(found)
        return found

    @staticmethod
    def _row(block: Block, at: int, width: int) -> Array:
        row = np.zeros(width)
        row[block.places] = block.rows[at]
        return row / np.abs(row).max()


def _moved(model: Array, root: Array, conditions: Array) -> Array:
    """The nearest model for some conditions: its dual is least squares with weights that are not negative."""
    images = (conditions * root if root.ndim == 1 else conditions @ root).T
    scales = np.linalg.norm(images, axis=0)
    images = images / scales
    misses = conditions @ model / scales
    start = -np.linalg.lstsq(images.T, misses, rcond=None)[0]
    try:
        weights, _ = nnls(images, start)
    except RuntimeError:  # it gave up: the last lift of each column is still to come
        return model.copy()
    step = images @ weights
    return np.asarray(model + (root * step if root.ndim == 1 else root @ step))


def cone_of(encoder: TableEncoder, by: ConstrainedBy = "projection") -> Cone | None:
    """What the schema of an encoder asks of a linear model of its rows; None if nothing."""
    blocks = []
    for name, column in encoder.schema_.features.items():
        direction = getattr(column, "monotone", None)
        if direction is not None:
            blocks.append(_block(column, encoder.places(name), 1.0 if direction == "increasing" else -1.0))
    return Cone(blocks, by) if blocks else None


def _block(column: Column, places: Indices, sign: float) -> Block:
    if isinstance(column, Boolean):
        return Block(places[:1], np.array([[sign]]), np.array([sign]))
    if isinstance(column, Category):
        levels = len(column.values)
        rows = np.diff(np.eye(levels), axis=0)
        return Block(places[:levels], sign * rows, sign * np.arange(levels, dtype=np.float64))
    assert isinstance(column, Number)
    knots = len(places) + 1 if column.steps is None else shapes.pieces(column.steps)
    rows = np.diff(shapes.at_knots(knots, len(places) - 1), axis=0)
    lift = np.zeros(len(places))
    lift[0] = sign / rows[0, 0]
    return Block(places, sign * rows, lift)
