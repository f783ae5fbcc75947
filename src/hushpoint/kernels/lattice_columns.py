"""Rows of whole numbers column after column: what coordinate descent on the lattice reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from hushpoint._types import Indices
from hushpoint.rows import IntegerRows

WholeColumns = tuple[NDArray[np.float32], Indices, Indices, bool]
"""Entries column after column, their rows, where each column starts, and whether zeros are stored (then no rows)."""


def whole_columns(rows: IntegerRows) -> WholeColumns:
    """The columns of rows of whole numbers; single precision holds 24 bits, and they have 19."""
    if rows.sparse:
        held: Any = rows.arrays
        matrix: Any = scipy.sparse.csr_array(held, shape=rows.shape) if held is not None else _gathered(rows)
        columns = matrix.tocsc()
        return columns.data.astype(np.float32), _long(columns.indices), _long(columns.indptr), False
    entries = np.empty((rows.width, len(rows)), dtype=np.float32)
    if rows.arrays is not None:
        entries[:] = rows.arrays.T
    else:
        for place, part in rows.chunks():
            entries[:, place] = part[:].T
    return entries.reshape(-1), np.zeros(0, dtype=np.int64), len(rows) * np.arange(rows.width + 1), True


def _gathered(rows: IntegerRows) -> Any:
    return scipy.sparse.vstack([part.plain for _, part in rows.chunks()])


def _long(numbers: NDArray[Any]) -> Indices:
    return numbers.astype(np.int64, copy=False)
