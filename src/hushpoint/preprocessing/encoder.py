"""A whole table as a matrix whose rows have a length that is known without looking at them.

Whoever changes what a table becomes gives ``schema.ENCODING`` another number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from hushpoint import cells
from hushpoint._checks import require_choice, require_flag, require_kind, require_positive, shown
from hushpoint._fixed import squared_lengths
from hushpoint._silence import silent_about
from hushpoint._types import Array, Indices
from hushpoint.preprocessing import shapes
from hushpoint.preprocessing.onehot import indicators
from hushpoint.preprocessing.scaling import scaled
from hushpoint.schema import ONLY_IF_PUBLIC, Boolean, Category, Column, Number, Schema


@dataclass(eq=False, repr=False)
class TableEncoder(TransformerMixin, BaseEstimator):
    """Encode a table as its schema declares: learns nothing, costs no privacy.

    A number is clipped to its range and mapped to [-1, 1]; a boolean is -1 or 1; a category is one-hot. A missing cell
    is 0 with an indicator of its own where the schema says ``missing = "indicator"``, and an error otherwise. So every
    column gives a row exactly one entry, of size at most 1, and no row is longer than the square root of the number of
    columns: the least bound that holds for every table. (With ``waves`` a number gives more entries, and the bound
    counts them.)

    Parameters
    ----------
    schema : Schema or dict
        What is declared (``hushpoint.tables.load_schema``). Target, user and ignored columns are left out.
    scale : {"columns", "unit"}
        "columns": entries as described, ``row_norm_`` the square root of the number of columns. "unit": everything
        divided by that, ``row_norm_`` = 1. The estimators give the same model either way; where ``Problem`` appends a
        constant 1 for an intercept, the first is better: the 1 is then as long as one column, not as all together.
    waves : int
        How many waves of growing frequency each number is to have beside its own entry, up to 7: a linear model of them
        is a smooth curve of the number (an additive model). A wide range from 0 (incomes, counts) is then bent, so
        that its lower end has most of the axis. A missing number has no waves.
    row_norm : float, optional
        A declared norm, smaller than the bound: longer rows are scaled down to it.
    sparse_output : bool
        Return a CSR matrix.

    Attributes
    ----------
    row_norm_ : float
        The bound on the length of every row.
    typical_row_norm_ : float
        The length of a row whose numbers lie anywhere in their ranges with equal chance (a third of their squares).
        As public as the bound and shorter: declared to an estimator as its ``row_norm``, it costs less noise, and rows
        that are longer are scaled down in training.
    """

    schema: Schema | Mapping[str, Any] | None = None
    scale: Literal["columns", "unit"] = "columns"
    row_norm: float | None = None
    sparse_output: bool = False
    waves: int | None = None

    @silent_about("X")
    def fit(self, X: Any = None, y: Any = None) -> TableEncoder:
        """Read the schema; a table, if given, is only asked for its columns."""
        require_choice("scale", self.scale, ("columns", "unit"))
        require_flag("sparse_output", self.sparse_output)
        self.schema_ = _checked_schema(self.schema)
        if self.schema_.to_learn:
            raise ValueError(
                f"the schema leaves the range of {', '.join(map(repr, self.schema_.to_learn))} to be learned, which an "
                "encoder does not do. Declare it, or train with hushpoint.tables.fit_model."
            )
        if self.waves is not None and not (type(self.waves) is int and 0 <= self.waves <= shapes.MOST_WAVES):
            raise ValueError(
                f"waves is {shown(self.waves)}. Pass a whole number from 0 to {shapes.MOST_WAVES}, or None."
            )
        if self.waves is None and any(getattr(column, "steps", None) for column in self.schema_.features.values()):
            raise ValueError(
                "the schema has columns with steps, which an encoder without waves does not make. Pass waves=."
            )
        self._most = sum(map(self._longest, self.schema_.features.values()))
        told = Counter(one for name, column in self.schema_.features.items() for one in self._names(name, column))
        if max(told.values(), default=0) > 1:
            twice = told.most_common(1)[0][0]
            raise ValueError(f"two features are called {twice!r}. Rename one of the columns that they come from.")
        bound = math.sqrt(self._most) if self.scale == "columns" else 1.0
        self.row_norm_ = bound if self.row_norm is None else min(bound, require_positive("row_norm", self.row_norm))
        features = self.schema_.features.values()
        share = sum(map(self._typical, features)) / self._most
        self.typical_row_norm_ = min(self.row_norm_, bound * math.sqrt(share))
        if X is not None:
            _require_columns(self.schema_, X)
        return self

    @silent_about("X")
    def transform(self, X: Any) -> Any:
        """The encoded rows of a data frame or a dictionary of columns."""
        check_is_fitted(self)
        schema = self.schema_
        _require_columns(schema, X)
        positions, values, offset = [], [], 0
        for name, column in schema.features.items():
            where, what = _encoded(name, column, cells.column_of(X, name), schema.missing_values, self.waves)
            positions.append(where + offset)
            values.append(what)
            offset += len(self._names(name, column))
        if len({len(column) for column in values}) != 1:
            raise ValueError("the columns of X have different lengths. Pass one value a row in each.")
        entries = np.column_stack(values)
        if self.scale == "unit":
            entries /= math.sqrt(self._most)
        if self.row_norm is not None:
            lengths = np.sqrt(squared_lengths(entries))  # of one row the same bits among any others
            entries *= np.minimum(1.0, self.row_norm_ / np.maximum(lengths, self.row_norm_))[:, None]
        return indicators(np.column_stack(positions), entries, offset, self.sparse_output)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """The column, column~k for its waves, column=category, and column (missing)."""
        check_is_fitted(self)
        features = self.schema_.features.items()
        return np.array([told for name, column in features for told in self._names(name, column)], dtype=object)

    @property
    def effective_width_(self) -> float:
        """What the features count as: the sum of their largest squares (``plan_parameters``)."""
        check_is_fitted(self)
        widths = 0.0
        for name, column in self.schema_.features.items():
            waves = self._waves(column)
            widths += len(self._names(name, column)) - waves + shapes.squared_length(waves) - 1
        return widths

    def column_entries(self, name: str, given: NDArray[Any]) -> Array:
        """The entries that cells of one column have in encoded rows, and zeros elsewhere."""
        check_is_fitted(self)
        offset, width = self.places(name)[0], len(self.get_feature_names_out())
        where, what = _encoded(name, self.schema_.features[name], given, self.schema_.missing_values, self.waves)
        if what.ndim == 1:
            where, what = where[:, None], what[:, None]
        if self.scale == "unit":
            what = what / math.sqrt(self._most)
        return np.asarray(indicators(where + offset, what, width, False))

    def wave_places(self) -> list[Indices]:
        """Where in an encoded row the waves of each number are."""
        check_is_fitted(self)
        features = self.schema_.features.items()
        return [self.places(name)[1:] for name, column in features if self._waves(column)]

    def places(self, name: str) -> Indices:
        """Where in an encoded row a column has its entries: a number and its waves, or categories as declared.

        The entry of a missing cell is not among them.
        """
        check_is_fitted(self)
        offset = 0
        for other, column in self.schema_.features.items():
            width = len(self._names(other, column))
            if other == name:
                return np.arange(offset, offset + width - (getattr(column, "missing", "") == "indicator"))
            offset += width
        raise ValueError(f"there is no feature {name!r}. Name a declared one.")

    def _waves(self, column: Column) -> int:
        """How many waves a column has."""
        return shapes.fitting(self.waves, column.steps) if isinstance(column, Number) and self.waves else 0

    def _names(self, name: str, column: Column) -> list[str]:
        known = [f"{name}={value}" for value in column.values] if isinstance(column, Category) else [name]
        known += [f"{name}~{k}" for k in range(2, self._waves(column) + 2)]
        return [*known, f"{name} (missing)"] if getattr(column, "missing", "") == "indicator" else known

    def _longest(self, column: Column) -> float:
        """Bound on the squared length of a column's entries."""
        return shapes.squared_length(self._waves(column))

    def _typical(self, column: Column) -> float:
        """The mean square of a column's entries where every place of a range is as likely as others."""
        return 1 / 3 + (self._longest(column) - 1) / 2 if isinstance(column, Number) else 1.0

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "schema_")


def _checked_schema(schema: Any) -> Schema:
    known = Schema.from_dict(schema) if isinstance(schema, Mapping) else schema
    remedy = "Pass a Schema: hushpoint.tables.load_schema('data.schema.toml')."
    return require_kind("schema", known, Schema, remedy=remedy)


def _require_columns(schema: Schema, table: Any) -> None:
    known = cells.names_of(table)
    absent = [name for name in schema.features if name not in known]
    if absent:
        raise ValueError(f"the table lacks {', '.join(map(repr, absent))}. It needs every declared feature.")


def _encoded(
    name: str, column: Column, given: NDArray[Any], tokens: tuple[str, ...], waves: int | None
) -> tuple[cells.Codes, Array]:
    """Where in the column's block each row has its entries, and the entries: one, or with waves a table of them."""
    if isinstance(column, Category):
        codes = cells.categories(given, column.values, tokens)
        if column.unseen == "error" and (codes == cells.UNSEEN).any():
            raise ValueError(
                f"column {name!r} has categories that are not declared. To allow them, declare them too, or in a "
                f'schema unseen = "ignore". {ONLY_IF_PUBLIC}'
            )
        where, what, size = np.maximum(codes, 0), np.where(codes == cells.UNSEEN, 0.0, 1.0), len(column.values)
        missing = codes == cells.MISSING
    elif isinstance(column, Boolean):
        codes = cells.truths(given, tokens)
        if (codes == cells.UNSEEN).any():
            raise ValueError(
                f"column {name!r} has cells that are not yes/no, true/false or 1/0. To allow them, name them in "
                f"missing_values, or declare the kind category. {ONLY_IF_PUBLIC}"
            )
        where, what, size = np.zeros_like(codes), 2.0 * codes - 1.0, 1
        missing = codes == cells.MISSING
    else:
        assert isinstance(column, Number)
        values = cells.numbers(given, tokens, name)
        missing = np.isnan(values)
        where, size = np.zeros(len(values), dtype=np.int64), 1
        known = np.where(missing, column.low, values)
        if waves is None:
            what = scaled(known, column.low, column.high, (-1.0, 1.0))
        else:
            waves = shapes.fitting(waves, column.steps)
            straight = column.monotone is not None
            what = shapes.encoded(known, column.low, column.high, waves, column.steps, straight)
            where, size = np.broadcast_to(np.arange(1 + waves), (len(values), 1 + waves)), 1 + waves
    if missing.any():
        if column.missing == "error":
            raise ValueError(
                f'column {name!r} has missing cells. To allow them, declare missing = "indicator" in the schema, or '
                f"name the column in missing= of an additive model (an extra feature says which). {ONLY_IF_PUBLIC}"
            )
        if what.ndim > 1:
            what[missing] = 0.0
            where, missing = where.copy(), (missing[:, None] & (np.arange(size) == 0))
        where, what = np.where(missing, size, where), np.where(missing, 1.0, what)
    return where, what
