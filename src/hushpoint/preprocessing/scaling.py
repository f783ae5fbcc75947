"""Numbers scaled by declared or privately estimated ranges, and rows cut to a declared length."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from hushpoint._checks import require_positive
from hushpoint._refits import TellsOfRefits
from hushpoint._silence import silent_about
from hushpoint._types import Array
from hushpoint.preprocessing._input import require_numbers, require_pair, require_ranges
from hushpoint.preprocessing.quantiles import private_ranges
from hushpoint.privacy.guarantee import Adjacency


def scaled(table: Array, low: ArrayLike, high: ArrayLike, output: tuple[float, float]) -> Array:
    """Clipped to [low, high] and mapped onto the output range, never outside it by rounding."""
    bottom, top = output
    low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    share = (np.clip(table, low, high) - low) / (high - low)
    return np.asarray(np.clip(bottom + (top - bottom) * share, bottom, top))


class RangeScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Clip every column to a declared range and scale it to [-1, 1].

    Learns nothing: fitting checks the shape and the names of the columns, so it costs no privacy.

    Parameters
    ----------
    ranges : pair, list of pairs or dictionary
        Public (low, high): one for all columns, one a column, or by column name.
    output : pair of float
        The range after scaling; (-1, 1) by default, which for rows of a given length carries twice the signal of
        (0, 1).
    """

    ranges_: Array

    def __init__(self, ranges: Any = None, output: tuple[float, float] = (-1.0, 1.0)) -> None:
        self.ranges = ranges
        self.output = output

    def fit(self, X: Any, y: Any = None) -> RangeScaler:
        """Check that every column has a range."""
        require_pair("output", self.output)
        table = require_numbers(self, X, reset=True)
        self.ranges_ = require_ranges("ranges", self.ranges, table.shape[1], getattr(self, "feature_names_in_", None))
        return self

    def transform(self, X: Any) -> Array:
        """The scaled table."""
        check_is_fitted(self)
        table = require_numbers(self, X, reset=False)
        return scaled(table, self.ranges_[:, 0], self.ranges_[:, 1], require_pair("output", self.output))


@dataclass(eq=False, repr=False)
class PrivateRangeScaler(TellsOfRefits, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Scale every column by a range that is learned with differential privacy inside coarse public bounds.

    Guarantee: ``guarantee_`` after fitting, for all columns together (docs/preprocessing.md); compose it with that of
    the training by ``hushpoint.privacy.compose``. Every fit spends anew: cross-validation fits several times.

    Parameters
    ----------
    bounds : pair, list of pairs or dictionary
        Public (low, high) of each column, however coarse, for example (-1e6, 1e6).
    epsilon, delta : float
        What the ranges may spend; their share of the budget, on top of what the training spends.
    quantiles : pair of float
        Which quantiles make the range.
    adjacency : {"replace-one", "zero-out"}
    output : pair of float
        The range after scaling.
    rounds : int
        Noisy counts of each search.
    smallest : float, optional
        Differences below this do not matter; default 1e-9 of the distance between the bounds.
    random_state : int, optional
        None draws from the operating system; an integer is for experiments.
    lattice : bool
        Count in whole numbers, with noise that is drawn exactly, so that the guarantee is about the program.
    """

    bounds: Any = None
    epsilon: float = 0.1
    delta: float | None = None
    quantiles: tuple[float, float] = (0.05, 0.95)
    adjacency: Adjacency = "replace-one"
    output: tuple[float, float] = (-1.0, 1.0)
    rounds: int = 16
    smallest: float | None = None
    random_state: int | None = None
    lattice: bool = field(default=True, kw_only=True)

    @silent_about("X or groups")
    def fit(self, X: Any, y: Any = None, groups: ArrayLike | None = None) -> PrivateRangeScaler:
        """Learn the ranges, and spend the budget."""
        require_pair("output", self.output)
        if self.delta is None:
            raise ValueError(
                "delta is not declared. Pass a delta well below one over the number of people, for example 1e-6."
            )
        self._tell_of_refits()
        table = require_numbers(self, X, reset=True, missing=True)
        bounds = require_ranges("bounds", self.bounds, table.shape[1], getattr(self, "feature_names_in_", None))
        self.ranges_, self.guarantee_ = private_ranges(
            table,
            bounds,
            quantiles=self.quantiles,
            epsilon=self.epsilon,
            delta=self.delta,
            adjacency=self.adjacency,
            groups=groups,
            rounds=self.rounds,
            smallest=self.smallest,
            seed=self.random_state,
            lattice=self.lattice,
        )
        return self

    def transform(self, X: Any) -> Array:
        """The scaled table; a missing number stays missing."""
        check_is_fitted(self)
        table = require_numbers(self, X, reset=False, missing=True)
        return scaled(table, self.ranges_[:, 0], self.ranges_[:, 1], require_pair("output", self.output))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.non_deterministic = self.random_state is None
        return tags


class RowNormalizer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Scale rows longer than a declared norm down to it; shorter rows stay as they are.

    Learns nothing and costs no privacy. Dense and SciPy sparse tables.

    Parameters
    ----------
    row_norm : float
        The length that no row exceeds afterwards.
    """

    def __init__(self, row_norm: float = 1.0) -> None:
        self.row_norm = row_norm

    def fit(self, X: Any, y: Any = None) -> RowNormalizer:
        """Check the shape."""
        require_positive("row_norm", self.row_norm)
        require_numbers(self, X, reset=True, sparse=True)
        return self

    def transform(self, X: Any) -> Any:
        """The rows, none longer than the norm."""
        from hushpoint.rows import scaled_to

        check_is_fitted(self)
        table = require_numbers(self, X, reset=False, sparse=True)
        return scaled_to(table, require_positive("row_norm", self.row_norm))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
