"""Categories that are declared, not learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Literal

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, validate_data

from hushpoint._checks import require, require_choice, require_flag, shown
from hushpoint._silence import silent_about
from hushpoint._types import Array, Indices
from hushpoint.schema import ONLY_IF_PUBLIC


@dataclass(eq=False, repr=False)
class DeclaredOneHot(TransformerMixin, BaseEstimator):
    """One indicator for every declared category of every column.

    Learns nothing: which categories occur in the data is itself private, so the set is declared. Fitting checks the
    shape and the names of the columns and costs no privacy. Every row has at most one 1 in each column's block, so its
    length is at most the square root of the number of columns, ``row_norm_``.

    Parameters
    ----------
    categories : list of lists, or dictionary of lists by column name
        The categories of each column. ``None`` among them stands for a missing value.
    unseen : {"error", "ignore"}
        What a value outside the declared set does: an error, or a block of zeros.
    sparse_output : bool
        Return a CSR matrix.
    """

    categories: Any = None
    unseen: Literal["error", "ignore"] = "error"
    sparse_output: bool = False

    @silent_about("X")
    def fit(self, X: Any, y: Any = None) -> DeclaredOneHot:
        """Check that every column has its categories."""
        require_choice("unseen", self.unseen, ("error", "ignore"))
        require_flag("sparse_output", self.sparse_output)
        columns = _columns(X)
        validate_data(self, X=X, reset=True, skip_check_array=True)
        names = getattr(self, "feature_names_in_", None)
        self.categories_ = _checked_categories(self.categories, len(columns), names)
        self.n_features_in_ = len(self.categories_)
        self.row_norm_ = float(np.sqrt(len(self.categories_)))
        return self

    @silent_about("X")
    def transform(self, X: Any) -> Any:
        """The indicators, of shape (rows, categories in all)."""
        check_is_fitted(self)
        columns = _columns(X)
        validate_data(self, X=X, reset=False, skip_check_array=True)
        if len(columns) != len(self.categories_):
            raise ValueError(
                f"X has {len(columns)} columns and was fitted with {len(self.categories_)}. Pass the same."
            )
        names = getattr(self, "feature_names_in_", range(len(columns)))
        offsets = np.cumsum([0, *map(len, self.categories_)])
        codes = [
            codes_of(column, known, f"column {name!r}", self.unseen)
            for column, known, name in zip(columns, self.categories_, names, strict=True)
        ]
        positions = np.column_stack(codes)
        values = (positions >= 0).astype(np.float64)
        return indicators(np.maximum(positions, 0) + offsets[:-1], values, int(offsets[-1]), self.sparse_output)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """One name a category: column_category."""
        check_is_fitted(self)
        names = _check_feature_names_in(self, input_features)
        pairs = zip(names, self.categories_, strict=True)
        return np.array([f"{name}_{category}" for name, known in pairs for category in known], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.input_tags.allow_nan = True
        return tags


def codes_of(column: NDArray[Any], known: Sequence[Any], who: str, unseen: str) -> Indices:
    """The number of each cell's category, -1 for one that is not declared."""
    index = {category: number for number, category in enumerate(known)}
    cells = column.tolist()
    if column.dtype.kind in "fO":  # a missing value has many spellings, and NaN does not equal itself
        cells = [None if cell is None or type(cell).__name__ == "NAType" or cell != cell else cell for cell in cells]
    try:
        codes = np.fromiter(map(index.get, cells, repeat(-1)), dtype=np.int64, count=len(cells))
    except TypeError:
        raise ValueError(f"{who} has cells that cannot be categories. Pass words or numbers.") from None
    if unseen == "error" and (codes < 0).any():
        raise ValueError(
            f"{who} has values, or missing ones, outside its declared categories. To allow them, declare them (None "
            f"stands for a missing value), or pass unseen='ignore' for a block of zeros. {ONLY_IF_PUBLIC}"
        )
    return codes


def indicators(positions: Indices, values: Array, width: int, sparse: bool) -> Any:
    """A table with ``values[i, j]`` at column ``positions[i, j]`` of row i, all positions of a row being different."""
    rows, entries = positions.shape
    if not sparse:
        if entries == width and (positions == np.arange(width)).all():  # numbers alone, each at its place
            return values
        table = np.zeros((rows, width))
        table[np.arange(rows)[:, None], positions] = values
        return table
    starts = np.arange(rows + 1, dtype=np.int64) * entries
    matrix = scipy.sparse.csr_array((values.reshape(-1), positions.reshape(-1), starts), shape=(rows, width))
    matrix.eliminate_zeros()
    return matrix


def _columns(X: Any) -> list[NDArray[Any]]:
    if hasattr(X, "columns"):
        return [np.asarray(X.iloc[:, j]) for j in range(X.shape[1])]
    table = np.asarray(X) if hasattr(X, "dtype") else np.array(X, dtype=object)
    if table.ndim != 2:
        raise ValueError(f"X has {table.ndim} dimension(s). Pass a table of shape (rows, columns).")
    return list(table.T)


def _checked_categories(categories: Any, features: int, names: Sequence[str] | None) -> list[list[Any]]:
    if categories is None:
        raise ValueError(
            "categories is not declared. Which categories occur in the data is private: pass the public set of each "
            "column, a list of lists or a dictionary by column name, for example {'sex': ['female', 'male']}."
        )
    if isinstance(categories, Mapping):
        if names is None:
            raise ValueError("categories is a dictionary and X has no column names. Pass a data frame, or a list.")
        if set(map(str, categories)) != set(names):
            raise ValueError(
                f"categories names the columns {sorted(map(str, categories))} and X has {sorted(names)}. "
                "Declare every column of X and no other."
            )
        categories = [categories[name] for name in names]
    if isinstance(categories, (str, bytes)) or not isinstance(categories, Sequence) or len(categories) != features:
        told = f"has {len(categories)} entries" if isinstance(categories, Sequence) else f"is {shown(categories)}"
        raise ValueError(f"categories {told} and X has {features} columns. Pass one list of categories a column.")
    checked = []
    for position, known in enumerate(categories):
        who = f"categories of column {names[position] if names is not None else position!r}"
        listed = isinstance(known, (Sequence, np.ndarray)) and not isinstance(known, (str, bytes))
        require(listed and len(known) > 0, who, known, "Pass a list with at least one category.")
        if len(set(known)) != len(known):
            raise ValueError(f"{who} has a category twice. Name each once.")
        checked.append(known.tolist() if isinstance(known, np.ndarray) else list(known))
    return checked
