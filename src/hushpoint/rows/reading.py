"""From what a user passes to the rows of a problem: checked, and none longer than declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from hushpoint._types import Array, Indices
from hushpoint.rows.array import ArrayRows
from hushpoint.rows.items import Rows
from hushpoint.rows.sparse import SparseRows
from hushpoint.rows.store import Store
from hushpoint.rows.streamed import StreamedRows, is_on_disk

if TYPE_CHECKING:
    from hushpoint.problem import Facts

_SHORTEST, _LONGEST = 1e-140, 1e100  # lengths of rows whose squares and their inverses are safe numbers


def checked(X: Any) -> Store:
    """A store of the rows of an array, a SciPy matrix or a data frame, or of a store; finite ones."""
    features = X if isinstance(X, Store) else _numbers(X)
    if len(features.shape) != 2:
        raise ValueError(f"X has {len(features.shape)} dimension(s). Pass a table of shape (rows, features).")
    if 0 in features.shape:
        raise ValueError(f"X has shape {features.shape}. Pass at least one row and one feature.")
    store = features if isinstance(features, Store) else _stored(features)
    if store.from_outside and not isinstance(store.take(slice(0, 1)), Store):
        raise ValueError(f"X is a {type(X).__name__} whose take() gives no Store. Let it give ArrayRows or SparseRows.")
    if not store.finite():
        raise ValueError("X has NaN or infinite entries. Remove or impute them before training.")
    return store


def _numbers(X: Any) -> Any:
    """A CSR matrix of double precision, or an array: of double precision unless it can be streamed."""
    if scipy.sparse.issparse(X):
        matrix: Any = X
        matrix = scipy.sparse.csr_array(matrix).astype(np.float64)
        matrix.sum_duplicates()
        return matrix
    try:
        on_disk = is_on_disk(X)
        table = np.asarray(X)
        if table.dtype.kind not in ("fiub" if on_disk else "fiubO"):
            raise TypeError
        if on_disk and table.ndim == 2:
            return table
        with np.errstate(all="ignore"):  # a warning would tell of an entry
            return np.asarray(table, dtype=np.float32 if table.dtype == np.float32 else np.float64, order="C")
    except (TypeError, ValueError):
        raise ValueError(
            f"X is a {type(X).__name__} that does not convert to numbers. Encode text and missing columns first."
        ) from None


def _stored(features: Any) -> Store:
    """Rows on disk or in single precision are streamed."""
    if scipy.sparse.issparse(features):
        return SparseRows(features)
    streamed = is_on_disk(features) or features.dtype == np.float32
    return StreamedRows(features) if streamed else ArrayRows(features)


def bounded_rows(facts: Facts, store: Store, targets: Array, offsets: Indices | None) -> Rows:
    """Rows with the constant of an intercept, scaled to the declared norm, and the limits of their slopes."""
    if facts.fit_intercept:
        store = store.with_constant()
    store, squared_norms = _bounded(store, facts.row_norm)
    limits = None
    if facts.clip is not None:
        with np.errstate(divide="ignore"):
            limits = facts.clip / np.sqrt(squared_norms)
    return Rows(store, targets, facts.loss, squared_norms, limits, offsets)


def scaled_to(features: Any, row_norm: float | None) -> Any:
    """Rows scaled down to a norm, as those of a problem are; None: as they come."""
    if row_norm is None:
        return features
    store = SparseRows(features) if scipy.sparse.issparse(features) else ArrayRows(features)
    return _bounded(store, row_norm)[0].plain


def _bounded(store: Store, row_norm: float | None) -> tuple[Store, Array]:
    """Rows scaled down to the bound, and their squared lengths. The caller's array is never changed."""
    parts = [_factors(part, row_norm) for _, part in store.chunks()]
    factors, squared = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    if (factors == 1.0).all():
        return store, squared
    return store.scaled(factors), squared


def _factors(store: Store, row_norm: float | None) -> tuple[Array, Array]:
    """What brings each row within the bound, and its squared length then.

    Rows so long or so short that their squares overflow or underflow would escape both bound and clip: the first are
    scaled down even without a declared norm, the second become zero.
    """
    bound = _LONGEST if row_norm is None else min(row_norm, _LONGEST)
    with np.errstate(over="ignore", under="ignore"):
        squared = store.squared_norms()
    lengths = np.sqrt(squared)
    odd = np.flatnonzero(~((squared > _SHORTEST**2) & (squared < _LONGEST**2)))
    if odd.size:
        part = store.take(odd)
        largest = part.largest()
        shrink = 1 / np.where(largest > 1e-300, largest, 1.0)  # the inverse of less is no number
        with np.errstate(over="ignore"):
            lengths[odd] = largest * np.maximum(np.sqrt(part.scaled(shrink).squared_norms()), 1.0)
    long, short = lengths > bound, (lengths > 0) & (lengths < _SHORTEST)
    if not (long.any() or short.any()):
        return np.ones(len(lengths)), np.where(lengths > 0, squared, 0.0)
    # The last factor keeps a row inside the bound whatever way its length was rounded.
    inside = 1 - (store.width + 8) * np.finfo(np.float64).eps
    factors = np.where(long, bound / np.where(long, lengths, 1.0) * inside, np.where(short, 0.0, 1.0))
    return factors, np.where(long, bound**2, np.where(short, 0.0, squared))
