"""Private additive models: a smooth curve for each number, a step for each category, and nothing to tune."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted

from hushpoint import cells
from hushpoint._checks import require_choice, shown
from hushpoint._refits import TellsOfRefits
from hushpoint._silence import silent_about, validated
from hushpoint._types import Array
from hushpoint.estimators.base import Design, PrivateLinear
from hushpoint.estimators.classifiers import PrivateLogisticRegression
from hushpoint.estimators.constraints import WAYS, ConstrainedBy, cone_of
from hushpoint.estimators.planner import Parameters, plan_waves
from hushpoint.estimators.regressors import PrivateLinearRegression
from hushpoint.preprocessing import TableEncoder
from hushpoint.preprocessing._input import require_pair
from hushpoint.preprocessing.shapes import places
from hushpoint.privacy.guarantee import Adjacency, Budget, Guarantee
from hushpoint.schema import Category, Column, Missing, Monotone, Number, Schema

_PLENTY = 10.0  # the epsilon whose waves a fit without noise has
_SHAPE_POINTS = 101


class _PrivateAdditive(TellsOfRefits, BaseEstimator):
    """A linear model of the encoded columns, and what the columns are."""

    epsilon: float
    delta: float | None
    ranges: Any
    categories: Mapping[Any, Sequence[Any]] | None
    missing: Sequence[Any]
    monotone: Mapping[Any, int] | None
    steps: Mapping[Any, Any] | None
    constrained_by: ConstrainedBy
    adjacency: Adjacency
    random_state: Any
    progress: bool
    lattice: bool
    guarantee_: Guarantee
    parameters_: Parameters | None
    _one_of_several = False

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = len(self.missing) > 0
        tags.input_tags.string = tags.input_tags.categorical = self.categories is not None
        return tags

    def _fit(self, X: Any, y: ArrayLike, groups: ArrayLike | None, two_class: bool) -> Self:
        self._tell_of_refits()
        require_choice("constrained_by", self.constrained_by, WAYS)
        if (known := _names_of(X)) is not None:  # what is not declared is asked for before a cell is looked at
            self._columns(known)
        table = self._table(X, reset=True)
        names = list(table)
        schema = Schema(self._columns(names))
        people = len(table[names[0]]) if groups is None else len(np.unique(np.asarray(groups)))
        waves = self._waves(people, len(names), two_class)
        self.encoder_ = TableEncoder(schema, waves=waves).fit()
        self.linear_ = self._linear(self.encoder_.row_norm_)
        self.linear_._one_of_several = self._one_of_several
        self.linear_._design = Design(
            self.encoder_.wave_places(),
            self.encoder_.effective_width_,
            cone_of(self.encoder_, self.constrained_by),
        )
        self.linear_.fit(self.encoder_.transform(table), y, groups=groups)
        self.guarantee_, self.parameters_ = self.linear_.guarantee_, self.linear_.parameters_
        self.coef_, self.intercept_ = self.linear_.coef_, self.linear_.intercept_
        self.n_iter_, self.n_passes_ = self.linear_.n_iter_, self.linear_.n_passes_
        return self

    def _restate(self, whole: Budget, guarantee: Guarantee) -> None:
        """Tell the cost of the selection that this was one run of, in the linear model too."""
        self.linear_._one_of_several = False
        self.linear_.set_params(epsilon=whole.epsilon, delta=whole.delta)
        self.linear_.guarantee_ = guarantee
        self.linear_._restate(whole, guarantee)
        self.parameters_ = self.linear_.parameters_

    @silent_about("X")
    def _predict_alone(self, X: Any) -> NDArray[Any]:
        """``predict``, each answer to the bit a function of its row and of the model."""
        return self.linear_._predict_alone(self._encoded(X))

    def _in_whole_numbers(self) -> bool:
        """Whether the guarantee of every fit with these parameters is one in whole numbers: steps of ADMM are not."""
        return bool(self.lattice) and (self.constrained_by != "admm" or not self.monotone)

    def _check_parameters(self) -> None:
        """What can be checked of the constructor's arguments without a table."""
        self._linear(1.0)._check_parameters()

    def _check_columns(self, X: Any) -> None:
        """Whether every column of a table is declared."""
        self._columns(list(clone(self)._table(X, reset=True)))

    def _linear(self, row_norm: float) -> PrivateLinear:
        """The linear estimator that trains the model."""
        raise NotImplementedError

    def _waves(self, people: int, columns: int, two_class: bool) -> int:
        epsilon = self.epsilon
        if not isinstance(epsilon, (int, float, np.number)) or not epsilon > 0 or math.isinf(epsilon):
            epsilon = _PLENTY  # what is not a budget is refused further on
        delta = 1e-6 if self.delta is None or not 0 < self.delta < 1 else self.delta
        return plan_waves(people, columns, Budget(float(epsilon), delta, adjacency=self.adjacency), two_class=two_class)

    def _table(self, X: Any, reset: bool) -> dict[str, NDArray[Any]]:
        """The columns by name (x0, x1, ... where they have none), as scikit-learn checks them."""
        if self.categories:  # cells of any kind: an array of numbers would lose them
            validated(self, X, reset=reset, skip_check_array=True)
            if np.ndim(X) != 2:
                raise ValueError(f"X has {np.ndim(X)} dimension(s). Pass a table of shape (rows, columns).")
            if 0 in np.shape(X):
                raise ValueError(f"X has shape {np.shape(X)}. Pass at least one row and one column.")
        else:
            allowed: Any = "allow-nan" if len(self.missing) else True
            checked = validated(self, X, reset=reset, dtype=np.float64, ensure_all_finite=allowed)
            X = checked if not hasattr(X, "iloc") else X
        names = getattr(self, "feature_names_in_", None)
        names = [f"x{j}" for j in range(self.n_features_in_)] if names is None else [str(name) for name in names]
        if hasattr(X, "iloc"):
            return {name: np.asarray(X.iloc[:, j]) for j, name in enumerate(names)}
        cells = X if hasattr(X, "dtype") else np.array(X, dtype=object)
        return {name: np.asarray(cells[:, j]) for j, name in enumerate(names)}

    def _columns(self, names: list[str]) -> dict[str, Column]:
        """What is declared of each column."""
        if isinstance(self.missing, str) or not isinstance(self.missing, (Sequence, np.ndarray)):
            raise ValueError(f"missing is {shown(self.missing)}. Pass a list of columns: missing=[{names[0]!r}].")
        categories = _looked_up("categories", self.categories or {}, names)
        for name, values in categories.items():
            if isinstance(values, str) or not isinstance(values, (Sequence, np.ndarray)):
                raise ValueError(f"categories of column {name!r} is {shown(values)}. Pass a list of its values.")
        ranges = self._ranges(names, categories)
        may_miss = set(_looked_up("missing", dict.fromkeys(self.missing), names))
        for who, given in (("monotone", self.monotone), ("steps", self.steps)):
            if given is not None and not isinstance(given, Mapping):
                raise ValueError(f"{who} is {shown(given)}. Pass a dictionary by column: {who}={{{names[0]!r}: ...}}.")
        directions = _directions(_looked_up("monotone", self.monotone or {}, names))
        steps = _steps(_looked_up("steps", self.steps or {}, names))
        found: dict[str, Column] = {}
        for name in names:
            rest: Missing = "indicator" if name in may_miss else "error"
            if name in categories:
                values = tuple(cells.texts(np.array(list(categories[name]), dtype=object)))
                found[name] = Category(values, missing=rest, monotone=directions.get(name))
                if name in steps:
                    raise ValueError(f"steps names {name!r}, which is a category. Only numbers have steps.")
            else:
                low, high = require_pair(f"ranges of column {name!r}", ranges[name])
                found[name] = Number(low, high, rest, monotone=directions.get(name), steps=steps.get(name))
        return found

    def _ranges(self, names: list[str], categories: Mapping[str, Any]) -> dict[str, Any]:
        needed = [name for name in names if name not in categories]
        if self.ranges is None:
            if needed:
                raise ValueError(
                    f"ranges is not declared. An additive model needs the public range of every number, and reading it "
                    f"off the data would reveal its extremes: pass ranges={{{needed[0]!r}: (low, high), ...}}, a list "
                    "of pairs in the order of the columns, or one pair for all."
                )
            return {}
        if isinstance(self.ranges, Mapping):
            found = _looked_up("ranges", self.ranges, names)
            if both := sorted(found.keys() & categories.keys()):
                raise ValueError(f"ranges and categories both name {both[0]!r}. A column is a number or a category.")
        elif _is_pair(self.ranges):
            found = dict.fromkeys(needed, self.ranges)
        else:
            pairs = list(self.ranges) if isinstance(self.ranges, (Sequence, np.ndarray)) else []
            if len(pairs) != len(names):
                raise ValueError(
                    f"ranges is {shown(self.ranges)} and X has {len(names)} columns. Pass a pair (low, high) a column "
                    "(None for a category), a dictionary by name, or one pair for all."
                )
            found = {name: pair for name, pair in zip(names, pairs, strict=True) if pair is not None}
        absent = [name for name in needed if name not in found]
        if absent:
            raise ValueError(
                f"ranges and categories declare nothing of {', '.join(map(repr, absent))}. Declare a range or the "
                "categories of every column."
            )
        return found

    @property
    def coef_std_(self) -> Array:
        """How far noise moves each coefficient."""
        check_is_fitted(self)
        return self.linear_.coef_std_

    @property
    def intercept_std_(self) -> Array | float:
        """How far noise moves the intercepts."""
        check_is_fitted(self)
        return self.linear_.intercept_std_

    def _encoded(self, X: Any) -> Any:
        check_is_fitted(self)
        return self.encoder_.transform(self._table(X, reset=False))

    def shape(self, column: Any, values: ArrayLike | None = None) -> tuple[NDArray[Any], Array]:
        """What a column adds to the score: values of it, and a contribution for each (a column each with classes).

        Contributions of a number have mean 0 over its declared range, those of categories over the categories.

        Parameters
        ----------
        column : str or int
            By name, or by place.
        values : array, optional
            Where to look; default: 101 places along the range, or all categories.
        """
        return shape_of(self.encoder_, np.atleast_2d(self.coef_), self._column_named(column), values)

    def shape_std(self, column: Any, values: ArrayLike | None = None) -> tuple[NDArray[Any], Array]:
        """How far noise moves what ``shape`` says: values of a column, and a deviation for each.

        Two deviations to either side make a band. Waves that were taken back count as if they had not been.

        Parameters
        ----------
        column, values
            As of ``shape``.
        """
        name = self._column_named(column)
        return shape_deviations(self.encoder_, self.linear_.noise_roots(), name, values)

    def _column_named(self, column: Any) -> str:
        check_is_fitted(self)
        return next(iter(_looked_up("column", {column: None}, list(self.encoder_.schema_.features))))


def shape_of(
    encoder: TableEncoder, models: Array, name: str, values: ArrayLike | None = None
) -> tuple[NDArray[Any], Array]:
    """What a column of an encoded table adds to the scores of linear models, less its mean over what is declared."""
    asked, entries = _less_their_mean(encoder, name, values)
    found = entries @ models.T
    return asked, found[:, 0] if found.shape[1] == 1 else found


def shape_deviations(
    encoder: TableEncoder, roots: Sequence[Array], name: str, values: ArrayLike | None = None
) -> tuple[NDArray[Any], Array]:
    """The deviation of ``shape_of`` where that of the coefficients has these roots; a vector stands for a diagonal."""
    asked, entries = _less_their_mean(encoder, name, values)
    found = np.column_stack([np.linalg.norm(entries * r if r.ndim == 1 else entries @ r, axis=1) for r in roots])
    return asked, found[:, 0] if found.shape[1] == 1 else found


def _less_their_mean(encoder: TableEncoder, name: str, values: ArrayLike | None) -> tuple[NDArray[Any], Array]:
    """Values of a column, and the encoded column at them less its mean over what is declared."""
    column = encoder.schema_.features[name]
    if isinstance(column, Category):
        everywhere: NDArray[Any] = np.array(column.values, dtype=object)
    elif isinstance(column, Number):
        everywhere = places(column.low, column.high, _SHAPE_POINTS)
    else:
        everywhere = np.array([False, True])
    asked = everywhere if values is None else np.asarray(values)
    both = encoder.column_entries(name, np.concatenate([everywhere, asked]))
    return asked, both[len(everywhere) :] - both[: len(everywhere)].mean(axis=0)


@dataclass(eq=False, repr=False)
class PrivateAdditiveClassifier(ClassifierMixin, _PrivateAdditive):
    """Additive logistic regression with an (epsilon, delta) guarantee and nothing to tune.

    The log-odds are a sum over the columns: a line and smooth waves for a number, a constant for each category. How
    many waves follows from the number of people, the number of columns and the budget; waves that cannot be told from
    noise are taken back. Everything is clipped to what is declared, and nothing is read off the data.

    Guarantee: ``guarantee_``, that of `PrivateLogisticRegression` on the encoded columns.

    Parameters
    ----------
    epsilon, delta : float
    ranges : dict, list of pairs, or pair
        The publicly known range of every number: by column name (or place), in the order of the columns (None for a
        category), or one for all. A range from 0 up to 1000 and more (incomes, counts) is bent, so that its lower end
        has most of the axis.
    categories : dict, optional
        The publicly known categories of each column that has some, by name or place.
    missing : sequence
        Columns whose values may be missing: they are then a level of their own. Elsewhere a missing value is an error.
    monotone : dict, optional
        Columns, by name or place, with which the log-odds of ``classes_[1]`` (a regressor's prediction) can only rise,
        +1, or fall, -1: a number over its range, a category in the order that was declared. Missing values are free.
    steps : dict, optional
        Numbers whose curve is to be constant in pieces: how many equal ones the range has (2 to 100), or the inner
        cuts, ``{"age": [25, 40, 65]}``, each of which belongs to the piece above it.
    constrained_by : {"descent", "admm", "projection"}
        How ``monotone`` is met. "descent": every noisy step ends at the nearest monotone model. "admm": every step is
        one of general private ADMM, within the constraints; slower, and its guarantee is in floating point.
        "projection": the model is trained as if there were no constraint, and then moved to the nearest monotone one.
    adjacency : {"replace-one", "zero-out"}
    classes : sequence, optional
        The class labels that can occur, declared. None: they are read from ``y``, and the guarantee says so.
    random_state, progress, lattice
        As of `PrivateLogisticRegression`.

    Attributes
    ----------
    classes_, coef_, intercept_, coef_std_, intercept_std_, guarantee_, parameters_, n_iter_, n_passes_, n_features_in_
        As of `PrivateLogisticRegression`; the coefficients belong to ``encoder_.get_feature_names_out()``.
    encoder_ : TableEncoder
    linear_ : PrivateLogisticRegression
    """

    epsilon: float = 1.0
    delta: float | None = None
    ranges: Any = None
    categories: Mapping[Any, Sequence[Any]] | None = None
    missing: Sequence[Any] = ()
    monotone: Mapping[Any, int] | None = None
    steps: Mapping[Any, int | Sequence[float]] | None = None
    constrained_by: ConstrainedBy = "descent"
    adjacency: Adjacency = "replace-one"
    classes: Any = None
    random_state: Any = None
    progress: bool = False
    lattice: bool = True

    @silent_about("X, y or groups")
    def fit(self, X: Any, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Train the model.

        Parameters
        ----------
        X : data frame or array of shape (rows, columns)
            As it comes: numbers, and categories as words or numbers.
        y : array of shape (rows,)
            Labels of two or more classes.
        groups : array of shape (rows,), optional
            The user of each row: the guarantee is then for users.
        """
        self._fit(X, y, groups, two_class=True)
        self.classes_ = self.linear_.classes_
        return self

    def _linear(self, row_norm: float) -> PrivateLinear:
        return PrivateLogisticRegression(
            epsilon=self.epsilon, delta=self.delta, row_norm=row_norm, adjacency=self.adjacency,
            classes=self.classes, random_state=self.random_state, progress=self.progress, lattice=self.lattice,
        )  # fmt: skip

    @silent_about("X")
    def decision_function(self, X: Any) -> Array:
        """Log-odds of ``classes_[1]``; with more classes, a column each."""
        rows = self._encoded(X)
        return np.asarray(self.linear_.decision_function(rows))

    @silent_about("X")
    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely class of each row."""
        rows = self._encoded(X)
        return np.asarray(self.linear_.predict(rows))

    @silent_about("X")
    def predict_proba(self, X: Any) -> Array:
        """Probability of each class, a column each."""
        rows = self._encoded(X)
        return np.asarray(self.linear_.predict_proba(rows))

    @silent_about("X, y or sample_weight")
    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Accuracy on these rows, without noise: not private for them."""
        rows = self._encoded(X)
        return float(self.linear_.score(rows, y, sample_weight))


@dataclass(eq=False, repr=False)
class PrivateAdditiveRegressor(RegressorMixin, _PrivateAdditive):
    """Additive regression with an (epsilon, delta) guarantee and nothing to tune.

    Parameters are those of `PrivateAdditiveClassifier` without ``classes``, and:

    Parameters
    ----------
    target_range : (float, float)
        Declared range of the target, never read off the data. Targets and private predictions are clipped to it.
    """

    epsilon: float = 1.0
    delta: float | None = None
    ranges: Any = None
    target_range: tuple[float, float] | None = None
    categories: Mapping[Any, Sequence[Any]] | None = None
    missing: Sequence[Any] = ()
    monotone: Mapping[Any, int] | None = None
    steps: Mapping[Any, int | Sequence[float]] | None = None
    constrained_by: ConstrainedBy = "descent"
    adjacency: Adjacency = "replace-one"
    random_state: Any = None
    progress: bool = False
    lattice: bool = True

    @silent_about("X, y or groups")
    def fit(self, X: Any, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Train the model.

        Parameters
        ----------
        X : data frame or array of shape (rows, columns)
            As it comes: numbers, and categories as words or numbers.
        y : array of shape (rows,)
            Targets; those outside ``target_range`` are clipped to it.
        groups : array of shape (rows,), optional
            The user of each row: the guarantee is then for users.
        """
        return self._fit(X, y, groups, two_class=False)

    def _linear(self, row_norm: float) -> PrivateLinear:
        return PrivateLinearRegression(
            epsilon=self.epsilon, delta=self.delta, row_norm=row_norm, target_range=self.target_range,
            adjacency=self.adjacency, random_state=self.random_state, progress=self.progress, lattice=self.lattice,
        )  # fmt: skip

    @silent_about("X")
    def predict(self, X: Any) -> Array:
        """Predicted targets; of a private model clipped to ``target_range``."""
        rows = self._encoded(X)
        return np.asarray(self.linear_.predict(rows))

    @silent_about("X, y or sample_weight")
    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """R squared on these rows, without noise: not private for them."""
        rows = self._encoded(X)
        return float(self.linear_.score(rows, y, sample_weight))


def _looked_up(who: str, declared: Mapping[Any, Any], names: list[str]) -> dict[str, Any]:
    """What is declared, by name; columns may be named by their place."""
    found = {}
    for key, value in declared.items():
        name = names[key] if isinstance(key, (int, np.integer)) and 0 <= key < len(names) and key not in names else key
        if name not in names:
            raise ValueError(f"{who} names {shown(key)}, which X does not have. Its columns are {', '.join(names)}.")
        found[name] = value
    return found


def _directions(declared: Mapping[str, Any]) -> dict[str, Monotone]:
    """The declared +1 and -1 in words."""
    words: dict[Any, Monotone] = {1: "increasing", -1: "decreasing"}
    for name, sign in declared.items():
        if not isinstance(sign, (int, float, np.number)) or isinstance(sign, bool) or sign not in words:
            raise ValueError(f"monotone of column {name!r} is {shown(sign)}. Pass +1 (can only rise) or -1.")
    return {name: words[sign] for name, sign in declared.items()}


def _steps(declared: Mapping[str, Any]) -> dict[str, int | tuple[float, ...]]:
    """Numbers of steps, and inner cuts; the schema checks what they are."""
    found: dict[str, int | tuple[float, ...]] = {}
    for name, steps in declared.items():
        if isinstance(steps, (int, np.integer)) and not isinstance(steps, bool):
            found[name] = int(steps)
            continue
        try:
            found[name] = tuple(float(cut) for cut in steps)
        except (TypeError, ValueError):
            raise ValueError(f"steps of column {name!r} is {shown(steps)}. Pass a number, or inner cuts.") from None
    return found


def _names_of(X: Any) -> list[str] | None:
    """The names of a data frame's columns, as scikit-learn takes them; None for an array."""
    columns = getattr(X, "columns", None)
    if columns is None:
        return None
    names = list(columns)
    if not all(isinstance(name, str) for name in names):
        return [f"x{j}" for j in range(len(names))]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"X has two columns called {twice!r}. Rename one.")
    return names


def _is_pair(value: Any) -> bool:
    return isinstance(value, (Sequence, np.ndarray)) and len(value) == 2 and all(np.isscalar(bound) for bound in value)
