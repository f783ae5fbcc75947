"""Means over items, asked for once: of the rows, of their second moments, and of their squared length."""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import cached_property

import numpy as np

from hushpoint._types import Array, Indices
from hushpoint.certificates import ADJACENCIES, Certificate, Theorem
from hushpoint.operators.base import Operator
from hushpoint.problem import Facts
from hushpoint.rows import Rows


class MeanOfRows(Operator):
    """The mean over items of the mean over their rows of a function of a row; items count equally.

    R is constant, ``shared -> mean``: one step at relaxation 1 is the answer.
    """

    places = ("sum",)
    samplings = ("all",)  # the sum is divided by the number of items
    federates = True
    facts: Facts
    zero_out = "the unit's term in the mean is 0"

    def __init__(self, facts: Facts, size: int) -> None:
        self.facts, self.blocks, self.message_size = facts, facts.items, size

    def local(
        self, data: Rows, chosen: Indices | slice, block: Array, z: Array, relaxation: float, kick: Array | None
    ) -> tuple[Array, Array]:
        rows = data.take(chosen)
        alone = (self.move(rows, np.array([item]), block, z, relaxation, None, None)[1] for item in range(rows.items))
        return block, np.array(list(alone)).reshape(-1, self.message_size)

    def move(
        self,
        data: Rows,
        chosen: Indices | slice,
        block: Array,
        z: Array,
        relaxation: float,
        kick: Array | None,
        multiplicity: Array | None,
    ) -> tuple[Array, Array]:
        """The sum of the messages in chunks of rows, without a message per item."""
        rows = data.take(chosen)
        return block, self.total(rows, rows.shared_out(multiplicity))

    @abstractmethod
    def total(self, rows: Rows, row_weights: Array) -> Array:
        """Weighted sum over the rows."""

    def combine(self, shared: Array, total: Array, chosen: Indices | None, relaxation: float) -> Array:
        return shared + relaxation * (total / self.facts.items - shared)

    def certificate(self, relaxation: float) -> Certificate:
        norm = self.facts.row_norm
        if type(self) not in (Means, SecondMoments, MeanSquare):
            return super().certificate(relaxation)
        if norm is None:
            return Certificate(None, missing=("row_norm is not declared. Pass row_norm=R.",))
        units = ("user", "record") if self.facts.unit == "record" else ("user",)
        moved = {(unit, adjacency): self.moved(norm, adjacency) for unit in units for adjacency in ADJACENCIES}
        return Certificate(None, moved, because=(f"rows scaled to norm <= {norm:g}",), theorem=Theorem("8", "sum"))

    @abstractmethod
    def moved(self, row_norm: float, adjacency: str) -> float:
        """How far one item moves the sum of the messages."""


class Means(MeanOfRows):
    """The mean of the rows.

    Promises: one item moves the sum by at most ``row_norm`` (zero-out), or twice that (replace-one).
    """

    name = "means"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts, facts.width)

    def total(self, rows: Rows, row_weights: Array) -> Array:
        return rows.store.pull(row_weights)

    def moved(self, row_norm: float, adjacency: str) -> float:
        return row_norm if adjacency == "zero-out" else 2 * row_norm


class SecondMoments(MeanOfRows):
    """The mean of ``a a'`` over the rows, or of its diagonal; ``constant``, if not 0, is the last entry of every row.

    A message is a vector in which the Euclidean norm is the Frobenius norm: the entries on the diagonal, and
    ``sqrt(2)`` times those above it. The entry ``constant^2`` is public and left out; so is, on the diagonal alone,
    all that the constant touches.
    Promises: one item moves the sum by at most ``sqrt(R^4 + 2 c^2 R^2)`` (zero-out), since ``|a a'|^2`` without its
    public entry is ``|a|^4 + 2 c^2 |a|^2``, or by ``sqrt(2) (R^2 + c^2)`` (replace-one), since
    ``|a a' - b b'|^2 = |a|^4 + |b|^4 - 2 (a.b)^2``, constants included. An item of several rows is a mean of such
    matrices, and a difference of means is no longer than the longest difference.
    """

    name = "second moments"

    def __init__(self, facts: Facts, constant: float = 0.0, diagonal: bool = False) -> None:
        self.constant, self.diagonal = constant, diagonal
        self.width = facts.width + bool(constant)
        super().__init__(facts, (self.width if diagonal else self.width * (self.width + 1) // 2) - bool(constant))

    def total(self, rows: Rows, row_weights: Array) -> Array:
        store, constant = rows.store, self.constant
        exact = store.second_means(row_weights) if self.diagonal else store.second_moments(row_weights)
        if constant and self.diagonal:
            exact = np.append(exact, constant**2)
        elif constant:
            means = constant * store.pull(row_weights)
            exact = np.block([[exact, means[:, None]], [means[None, :], np.full((1, 1), constant**2)]])
        message = exact if self.diagonal else self._lengths * exact[self._above]
        return message[: self.message_size]  # the public entry, if any, is the last

    def matrix(self, released: Array) -> Array:
        """The symmetric matrix, or its diagonal, that a released vector stands for."""
        entries = np.append(released, self.constant**2) if self.constant else released
        if self.diagonal:
            return entries
        found = np.empty((self.width, self.width))
        found[self._above] = found.T[self._above] = entries / self._lengths
        return found

    def noise_on_diagonal(self, std: float) -> float:
        """The noise on an entry of the diagonal, where that on a message is ``std``."""
        return std

    @cached_property
    def _above(self) -> tuple[Indices, Indices]:
        return np.triu_indices(self.width)

    @cached_property
    def _lengths(self) -> Array:
        return np.where(self._above[0] == self._above[1], 1.0, math.sqrt(2))

    def moved(self, row_norm: float, adjacency: str) -> float:
        constant = 0.0 if self.diagonal else self.constant
        if adjacency == "zero-out":
            return row_norm * math.hypot(row_norm, math.sqrt(2) * constant)
        return math.sqrt(2) * math.hypot(row_norm, constant) ** 2


class MeanSquare(MeanOfRows):
    """The mean of ``|a|^2`` over the rows, none counted longer than ``row_norm``.

    Promises: one item moves the sum by at most ``row_norm^2``, replaced or zeroed: its term lies between 0 and that.
    """

    name = "mean square"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts, 1)

    def total(self, rows: Rows, row_weights: Array) -> Array:
        longest = math.inf if self.facts.row_norm is None else self.facts.row_norm**2
        return np.atleast_1d(row_weights @ np.minimum(rows.squared_norms, longest))

    def moved(self, row_norm: float, adjacency: str) -> float:
        return row_norm**2
