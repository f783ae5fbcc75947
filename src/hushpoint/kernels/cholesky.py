"""Small symmetric systems in compiled code."""

from __future__ import annotations

import math

from hushpoint._compiled import inner
from hushpoint.kernels.table import dot


@inner
def factor(matrix, size):
    """Overwrite the lower triangle of the leading ``size`` rows with its Cholesky factor; False if it has none."""
    for i in range(size):
        for j in range(i):
            matrix[i, j] = (matrix[i, j] - dot(matrix[i, :j], matrix[j, :j])) / matrix[j, j]
        rest = matrix[i, i] - dot(matrix[i, :i], matrix[i, :i])
        if not rest > 0.0:
            return False
        matrix[i, i] = math.sqrt(rest)
    return True


@inner
def solve(matrix, size, right):
    """Overwrite ``right`` with the solution, given the factor."""
    for i in range(size):
        right[i] = (right[i] - dot(matrix[i, :i], right[:i])) / matrix[i, i]
    for i in range(size - 1, -1, -1):
        value = right[i] / matrix[i, i]
        right[i] = value
        for j in range(i):
            right[j] -= matrix[i, j] * value
