"""A problem: public facts, and the rows of the items (records, or users with several rows each)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushpoint import losses
from hushpoint._checks import require_choice, require_count, require_flag, require_positive, shown
from hushpoint._silence import silent_about
from hushpoint._types import Array, Indices
from hushpoint.labels import class_set, has_missing, signs
from hushpoint.losses import Loss
from hushpoint.regularizers import Regularizer, WithoutIntercept, Zero
from hushpoint.rows import Rows, bounded_rows, checked

Weights = Literal["items", "rows"]

PRIVATE: Literal["private"] = "private"
ROWS_ARE_PRIVATE = (
    "the number of rows of each user was read from groups and did not leave with the plan. Bind the problem with "
    "plan.on(problem), or declare it: Problem.declared(rows_per_item=...)."
)


@dataclass(frozen=True)
class Facts:
    """What is public about a problem: all that accounting, calibration and planning may use.

    ``width`` is the length of the model: the features, and one more with an intercept. ``rows_per_item`` is None where
    every item is one row (the unit is then the record, not the user), and ``PRIVATE`` in a plan from a file where it
    did not leave: how many rows a user has is private unless it was declared, or users weigh by it.
    """

    items: int
    features: int
    loss: Loss
    regularizer: Regularizer
    row_norm: float | None = None
    clip: float | None = None
    rows_per_item: tuple[int, ...] | Literal["private"] | None = field(default=None, repr=False)
    weights: Weights = "items"
    fit_intercept: bool = False
    rows_declared: bool = field(default=True, compare=False)

    def __post_init__(self) -> None:
        require_choice("weights", self.weights, ("items", "rows"))
        for name in ("items", "features"):
            object.__setattr__(self, name, require_count(name, getattr(self, name)))
        for name in ("row_norm", "clip"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, require_positive(name, getattr(self, name)))
        if isinstance(self.rows_per_item, str):
            if (self.rows_per_item, self.weights) != (PRIVATE, "items"):
                raise ValueError(f"rows_per_item is {self.rows_per_item!r}. Pass one number per item.")
        elif self.rows_per_item is not None:
            if len(self.rows_per_item) != self.items:
                raise ValueError(
                    f"rows_per_item has {len(self.rows_per_item)} entries for {self.items} items. Pass one each."
                )
            if min(self.rows_per_item) < 1:
                raise ValueError("rows_per_item has an entry below 1. Every item needs a row.")

    @property
    def width(self) -> int:
        """Length of the model."""
        return self.features + self.fit_intercept

    @property
    def unit(self) -> Literal["user", "record"]:
        """What an item is."""
        return "record" if self.rows_per_item is None else "user"

    @property
    def rows(self) -> int:
        """Rows in all."""
        return int(self.row_counts.sum())

    @property
    def knows_rows(self) -> bool:
        """Whether the rows of each item are known here."""
        return self.rows_per_item != PRIVATE

    @cached_property
    def row_counts(self) -> Indices:
        """Rows of each item."""
        if self.rows_per_item is None:
            return np.ones(self.items, dtype=np.int64)
        if not self.knows_rows:
            raise ValueError(ROWS_ARE_PRIVATE)
        return np.array(self.rows_per_item, dtype=np.int64)

    def identity(self) -> dict[str, Any]:
        """What makes these facts those of one problem; rows per item only where items weigh by them."""
        held = {name: getattr(self, name) for name in ("items", "features", "loss", "regularizer", "row_norm", "clip")}
        counts = self.rows_per_item if self.weights == "rows" else self.unit
        return {**held, "rows": counts, "weights": self.weights, "fit_intercept": self.fit_intercept}

    def differences(self, other: Facts) -> list[str]:
        """Names of the facts in which another problem differs."""
        ours, theirs = self.identity(), other.identity()
        return [name for name in ours if ours[name] != theirs[name]] or ["rows per item"]

    def agree_with(self, other: Facts) -> bool:
        """Whether both speak of one problem; rows per item that one of them does not know are no difference."""
        if (self.unit, self.weights) == (other.unit, other.weights) and not (self.knows_rows and other.knows_rows):
            return replace(self, rows_per_item=PRIVATE) == replace(other, rows_per_item=PRIVATE)
        return self == other

    @cached_property
    def item_weights(self) -> Array:
        """Weights of the items in the objective; they sum to one."""
        if self.weights == "rows":
            return self.row_counts / self.rows
        return np.full(self.items, 1.0 / self.items)

    @property
    def gradient_bound(self) -> float:
        """L: bound on the gradient norm of the loss of one row; infinite where nothing declared gives one."""
        bound = math.inf if self.row_norm is None else self.loss.lipschitz * self.row_norm
        return bound if self.clip is None else min(bound, self.clip)

    @property
    def smoothness(self) -> float:
        """Bound on the curvature of the loss of one row; infinite where nothing declared gives one."""
        return math.inf if self.row_norm is None else self.loss.smoothness * self.row_norm**2

    @property
    def because(self) -> tuple[str, ...]:
        """What the gradient bound rests on."""
        norm = () if self.row_norm is None else (f"rows scaled to norm <= {self.row_norm:g}",)
        clip = () if self.clip is None else (f"gradients clipped at {self.clip:g}",)
        return (*norm, *clip, *self.loss.own_words(), *self.regularizer.own_words())

    @property
    def missing(self) -> tuple[str, ...]:
        """Why there is no bound on what one row does; empty where there is one."""
        if math.isfinite(self.gradient_bound):
            return ()
        if self.row_norm is None and math.isfinite(self.loss.lipschitz):
            return (
                "row_norm is not declared. The privacy guarantee needs a bound on the length of every row that does "
                "not come from the data. Pass row_norm=R (rows longer than R are scaled down to it), for example "
                "row_norm=1.0 after scaling each column by its known range.",
            )
        return (
            f"the {self.loss.name} loss has no bound on its gradient. Pass clip=C to Problem (every row's gradient is "
            "then at most C long, the truncated loss), or use a loss with bounded slope such as 'huber'.",
        )

    def to_dict(self) -> dict[str, Any]:
        """The facts as JSON can hold them."""
        counts = self.rows_per_item
        record = {fact.name: getattr(self, fact.name) for fact in fields(self) if fact.compare}
        pieces = {"loss": self.loss.to_dict(), "regularizer": self.regularizer.to_dict()}
        return {**record, **pieces, "rows_per_item": list(counts) if isinstance(counts, tuple) else counts}

    @staticmethod
    def from_dict(record: dict[str, Any]) -> Facts:
        """The facts that ``to_dict`` wrote."""
        counts = record["rows_per_item"]
        pieces = {"loss": Loss.from_dict(record["loss"]), "regularizer": Regularizer.from_dict(record["regularizer"])}
        return Facts(**{**record, **pieces, "rows_per_item": tuple(counts) if isinstance(counts, list) else counts})


@silent_about("X or y")
def item_rows(facts: Facts, X: Any, y: ArrayLike) -> Rows:
    """The rows of one item of a problem with these facts, for whoever holds no other.

    Targets of a two-class loss are -1 and +1, as all holders agree: one of them may have seen one class only.
    """
    store = checked(X)
    if facts.loss.labels == "two-class":
        try:
            targets = np.asarray(y, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):  # of NumPy; their texts quote entries
            targets = np.zeros(0)
        if targets.shape != (len(store),) or not np.isin(targets, (-1.0, 1.0)).all():
            raise ValueError(f"y has entries other than -1 and 1, which the {facts.loss.name} loss needs. Recode it.")
    else:
        targets, _ = _checked_targets(y, len(store), facts.loss)
    offsets = None if facts.rows_per_item is None else np.array([0, len(targets)], dtype=np.int64)
    return bounded_rows(facts, store, targets, offsets)


class Problem:
    """Minimise over z the weighted mean over items of their loss, plus a regulariser.

    Parameters
    ----------
    X : array, SciPy sparse matrix, data frame or ``hushpoint.rows.Store`` of shape (rows, features)
        An array that needs no change is kept, not copied: do not write to it afterwards. A memory-mapped array
        (``np.load(path, mmap_mode="r")``) stays on disk and an array of single precision stays one: their rows are
        read, widened to double precision and scaled chunk by chunk.
    y : array of shape (rows,)
        Numbers, or for a two-class loss any two values.
    loss : str or Loss
        "squared" ((a.z - b)^2/2), "logistic", "huber", "smoothed_hinge", "absolute", "quantile", or an object of
        ``hushpoint.losses``.
    regularizer : Regularizer, optional
    row_norm : float, optional
        Declared bound on the length of a row, the intercept's constant included; longer rows are scaled down to it.
        None: undeclared, nothing is scaled.
    groups : array of shape (rows,), optional
        The user each row belongs to. Items are then users, and a user's loss is the mean over its rows.
    weights : {"items", "rows"}
        Whether items count equally or by their number of rows.
    clip : float, optional
        Bound on the gradient norm of each row: its loss is truncated (its slope is cut at ``clip`` / row length).
    fit_intercept : bool
        Append a constant feature of 1 (before the rows are scaled); it is the last entry of the model and is not
        regularised.
    classes : pair, optional
        The two labels of a two-class loss, declared: then others in ``y`` are an error, and one of them may be absent.
        None: they are read from ``y``, which makes them public.
    """

    @silent_about("X, y or groups")
    def __init__(
        self,
        X: Any,
        y: ArrayLike,
        loss: str | Loss = "squared",
        regularizer: Regularizer | None = None,
        row_norm: float | None = None,
        groups: ArrayLike | None = None,
        weights: Weights = "items",
        clip: float | None = None,
        fit_intercept: bool = False,
        classes: Any = None,
    ) -> None:
        chosen_loss = losses.resolve(loss)
        store = checked(X)
        targets, self.classes = _checked_targets(y, len(store), chosen_loss, classes)
        self.classes_read = self.classes is not None and classes is None
        counts: tuple[int, ...] | None = None
        offsets: Indices | None = None
        self.users: NDArray[Any] | None = None
        if groups is not None:
            order, self.users, row_counts = _checked_groups(groups, len(targets))
            store, targets = store.ordered(order), targets[order]
            counts = tuple(row_counts.tolist())
            offsets = np.concatenate([[0], np.cumsum(row_counts)]).astype(np.int64)
        items = len(targets) if counts is None else len(counts)
        self.facts: Facts = _facts(
            regularizer, fit_intercept, items=items, features=store.width, loss=chosen_loss, row_norm=row_norm,
            clip=clip, rows_per_item=counts, weights=weights, rows_declared=counts is None,
        )  # fmt: skip
        self._rows: Rows | None = bounded_rows(self.facts, store, targets, offsets)

    @classmethod
    def declared(
        cls,
        items: int,
        features: int,
        loss: str | Loss = "squared",
        regularizer: Regularizer | None = None,
        row_norm: float | None = None,
        clip: float | None = None,
        rows_per_item: int | Sequence[int] | None = None,
        weights: Weights = "items",
        fit_intercept: bool = False,
    ) -> Problem:
        """A problem with facts only: it accounts, calibrates and plans, and refuses to run."""
        require_count("items", items)
        counts: tuple[int, ...] | None = None
        if rows_per_item is not None:
            of_each = rows_per_item if isinstance(rows_per_item, (Sequence, np.ndarray)) else [rows_per_item] * items
            counts = tuple(require_count("rows_per_item", count) for count in of_each)
        facts = _facts(
            regularizer, fit_intercept, items=items, features=features, loss=losses.resolve(loss), row_norm=row_norm,
            clip=clip, rows_per_item=counts, weights=weights,
        )  # fmt: skip
        return cls.from_facts(facts)

    @classmethod
    def from_facts(cls, facts: Facts) -> Problem:
        """A problem with facts only."""
        problem = cls.__new__(cls)
        problem.facts, problem.classes, problem.users, problem._rows = facts, None, None, None
        problem.classes_read = False
        return problem

    def with_rows(self, rows: Rows) -> Problem:
        """The same facts with other rows, which must respect them."""
        problem = Problem.from_facts(self.facts)
        problem.classes, problem.users, problem._rows = self.classes, self.users, rows
        problem.classes_read = self.classes_read
        return problem

    @property
    def rows(self) -> Rows:
        """The private rows."""
        if self._rows is None:
            raise ValueError("the problem is declared: it has facts and no rows. Build it with Problem(X, y, ...).")
        return self._rows

    @property
    def word_of_store(self) -> str | None:
        """What a store that is not of this package is believed; None where the rows are in one that is."""
        kind = None if self._rows is None else self._rows.store.from_outside
        return None if kind is None else f"{kind}, which gives the same rows whatever it is asked"

    @property
    def has_rows(self) -> bool:
        """Whether there is data, or facts only."""
        return self._rows is not None

    @property
    def items(self) -> int:
        """Number of items."""
        return self.facts.items

    @property
    def features(self) -> int:
        """Number of features, without the intercept."""
        return self.facts.features

    @property
    def regularizer(self) -> Regularizer:
        """The regulariser as it acts on the model: the intercept is left out."""
        return self.facts.regularizer

    @cached_property
    def row_weights(self) -> Array:
        """Weight of each row in the objective; they sum to one."""
        return self.rows.shared_out(self.facts.item_weights)

    def objective(self, model: ArrayLike) -> float:
        """Weighted mean of the losses plus the regulariser, at one model. Reads the data: not private."""
        point = self._checked_model(model)
        rows = self.rows
        losses_of_rows = rows.row_loss.value(rows.margins(point), rows.targets)
        return float(self.row_weights @ losses_of_rows + self.facts.regularizer.value(point))

    def gradient(self, model: ArrayLike) -> Array:
        """Gradient of the weighted mean of the losses, at one model. Reads the data: not private."""
        point = self._checked_model(model)
        from hushpoint.kernels.passes import passes_over

        return passes_over(self.rows).gradient(point, self.row_weights)

    def split(self, model: Array) -> tuple[Array, float]:
        """The coefficients and the intercept of a model."""
        if self.facts.fit_intercept:
            return model[:-1], float(model[-1])
        return model, 0.0

    def _checked_model(self, model: ArrayLike) -> Array:
        point = np.asarray(model, dtype=np.float64)
        if point.shape != (self.facts.width,):
            raise ValueError(f"model has shape {point.shape}. Pass a vector of length {self.facts.width}.")
        return point

    def __repr__(self) -> str:
        facts = self.facts
        kind = "users" if facts.unit == "user" else "records"
        declared = "" if self.has_rows else ", facts only"
        return f"Problem({facts.items} {kind}, {facts.features} features, {facts.loss.name}{declared})"


def _facts(regularizer: Regularizer | None, fit_intercept: bool, **known: Any) -> Facts:
    chosen = Zero() if regularizer is None else regularizer
    if not isinstance(chosen, Regularizer):
        raise ValueError(
            f"regularizer is {shown(regularizer)}. Pass an object of hushpoint.regularizers such as L1(0.1), or None."
        )
    if require_flag("fit_intercept", fit_intercept) and chosen != Zero():
        chosen = WithoutIntercept(chosen)
    facts = Facts(regularizer=chosen, fit_intercept=bool(fit_intercept), **known)
    chosen.value(np.zeros(facts.width))  # a regulariser for models of another length says so here
    return facts


def _checked_targets(y: Any, rows: int, loss: Loss, classes: Any = None) -> tuple[Array, NDArray[Any] | None]:
    values = np.asarray(y)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise ValueError(f"y has shape {values.shape}. Pass one target per row.")
    if len(values) != rows:
        raise ValueError(f"y has {len(values)} entries and X has {rows} rows. Pass one target per row.")
    if loss.labels == "two-class":
        return _two_classes(values, loss, classes)
    if classes is not None:
        raise ValueError(f"classes is given and the {loss.name} loss takes numbers. Drop classes=.")
    try:
        if values.dtype.kind not in "fiubO":
            raise TypeError
        numbers = values.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"y is not numeric and the {loss.name} loss needs numbers. "
            "Convert it, or use a two-class loss such as 'logistic'."
        ) from None
    if not np.isfinite(numbers).all():
        raise ValueError("y has NaN or infinite entries. Remove those rows before training.")
    return numbers, None


def _two_classes(values: NDArray[Any], loss: Loss, declared: Any) -> tuple[Array, NDArray[Any]]:
    if has_missing(values) or (values.dtype.kind == "f" and not np.isfinite(values).all()):
        raise ValueError("y has missing, NaN or infinite entries. Remove those rows before training.")
    classes = class_set(values, declared)
    if len(classes) != 2:
        if declared is not None:
            raise ValueError(
                f"classes declares {len(classes)} classes and the {loss.name} loss needs two. Declare two."
            )
        found = "one class only" if len(classes) == 1 else "more than two different values"
        raise ValueError(
            f"y has {found} and the {loss.name} loss needs two classes. Pass labels with two values, or declare them, "
            "for example classes=('no', 'yes')."
        )
    return signs(values, classes[1]), classes


def _checked_groups(groups: Any, rows: int) -> tuple[Indices, NDArray[Any], Indices]:
    ids = np.asarray(groups)
    if ids.ndim != 1 or len(ids) != rows:
        raise ValueError(f"groups has shape {ids.shape} and X has {rows} rows. Pass one user id per row.")
    if has_missing(ids):
        raise ValueError("groups has NaN or missing entries. Give every row a user.")
    try:
        users, membership, counts = np.unique(ids, return_inverse=True, return_counts=True)
    except TypeError:
        raise ValueError("groups mixes ids of different kinds. Pass ids of one kind.") from None
    return np.argsort(membership, kind="stable"), users, counts.astype(np.int64)
