"""Rows in a SciPy matrix that leaves out zeros."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from hushpoint._types import Array, Indices
from hushpoint.rows.store import CHUNK, Store


class SparseRows(Store):
    """The rows of a CSR matrix of double precision; ``by_columns`` gives those of a CSC matrix."""

    sparse = True
    in_memory = True

    def __init__(self, matrix: Any) -> None:
        if matrix.format != "csr" or not matrix.has_canonical_format:  # products and compiled code rest on both
            matrix = scipy.sparse.csr_array(matrix, copy=True)
            matrix.sum_duplicates()
        self.matrix = matrix.astype(np.float64, copy=False)

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape[0], self.matrix.shape[1]

    @property
    def stored(self) -> int:
        return int(self.matrix.nnz)

    @property
    def plain(self) -> Any:
        return self.matrix

    @property
    def arrays(self) -> Any:
        return self.matrix.data, self.matrix.indices, self.matrix.indptr

    def take(self, index: Any) -> SparseRows:
        part = self.matrix[index]
        part.has_canonical_format = True  # as the whole has: no need to look
        return SparseRows(part)

    def __getitem__(self, index: Any) -> Array:
        return np.asarray(self.matrix[index].toarray())

    def __matmul__(self, points: Array) -> Array:
        return np.asarray(self.matrix @ points)

    def pull(self, weights: Array) -> Array:
        return np.asarray(self.matrix.T @ weights)

    def gram(self, weights: Array, size: int) -> Array:
        total = np.zeros((self.width, self.width), order="F")
        for start in range(0, len(self), size):
            part = self.matrix[start : start + size]
            total += (part.T @ part.multiply(weights[start : start + size, None])).toarray()
        return total

    def second_moments(self, weights: Array) -> Array:
        return self.gram(weights, CHUNK)

    def squared_norms(self) -> Array:
        from hushpoint._fixed import sparse_squared_lengths

        return sparse_squared_lengths(self.matrix)

    def largest(self) -> Array:
        return np.asarray(abs(self.matrix).max(axis=1).toarray()).reshape(-1)

    def finite(self) -> bool:
        return bool(np.isfinite(self.matrix.data).all())

    def scaled(self, factors: Array) -> SparseRows:
        return SparseRows(self.matrix.multiply(factors[:, None]).tocsr())

    def with_constant(self) -> SparseRows:
        blocks: Any = [self.matrix, np.ones((len(self), 1))]
        return SparseRows(scipy.sparse.csr_array(scipy.sparse.hstack(blocks)))

    def ordered(self, order: Indices) -> SparseRows:
        return self.take(order)

    def squares(self) -> SparseRows:
        squared = self.matrix.copy()
        squared.data *= squared.data
        squared.has_canonical_format = True  # its entries stand where they stood
        return SparseRows(squared)

    def times(self, factors: Array) -> Array:
        return np.asarray(self.matrix.multiply(factors).toarray())

    def dots(self, points: Array) -> Array:
        entries = self.matrix.data * points[self._owners, self.matrix.indices]
        return np.asarray(np.bincount(self._owners, entries, minlength=len(self)), dtype=np.float64)

    summed_dots = dots

    def add_to(self, points: Array, factors: Array) -> None:
        points[self._owners, self.matrix.indices] += factors[self._owners] * self.matrix.data

    @cached_property
    def _owners(self) -> Indices:
        """The row of each entry."""
        return np.repeat(np.arange(len(self)), np.diff(self.matrix.indptr))

    def by_columns(self) -> SparseRows:
        turned = SparseRows(self.matrix)
        turned.matrix = self.matrix.tocsc()
        return turned

    def pull_columns(self, chosen: Indices | slice, weights: Array) -> Array:
        return np.asarray(self.matrix[:, chosen].T @ weights)

    def column_arrays(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        columns = self.matrix.tocsc()
        return columns.data, columns.indices, columns.indptr
