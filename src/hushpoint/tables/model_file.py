"""A trained model in one JSON file: coefficients, schema and guarantee, all that is needed to predict and to quote."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hushpoint._checks import require_choice
from hushpoint._files import written_whole
from hushpoint._fixed import product, squared_lengths
from hushpoint._types import Array
from hushpoint._version import __version__
from hushpoint.privacy.guarantee import Adjacency, Guarantee
from hushpoint.schema import Number, Schema
from hushpoint.tables.scoring import ADDITIVE, Deviations, ScoringModel

if TYPE_CHECKING:
    from hushpoint.tables.array_model import ArrayModel
    from hushpoint.tables.evaluation import Evaluation

FORMAT = "hushpoint table model"
FORMAT_VERSION = 2
TOLD_FROM_NOISE = 2.0  # deviations from zero, from which a coefficient is more than noise
LINEAR = "linear"  # of classes too, where a federation trained it with a loss that no estimator has
ESTIMATORS = {
    "classification": {
        "logistic": "PrivateLogisticRegression",
        "svc": "PrivateLinearSVC",
        ADDITIVE: "PrivateLogisticRegression",
    },
    "regression": {
        "linear": "PrivateLinearRegression",
        "lasso": "PrivateLasso",
        "huber": "PrivateHuberRegressor",
        ADDITIVE: "PrivateLinearRegression",
    },
}
KINDS = tuple(dict.fromkeys(kind for kinds in ESTIMATORS.values() for kind in kinds))


@dataclass(frozen=True, eq=False)
class TableModel(ScoringModel):
    """A model of a table, with its public schema and its guarantee; it holds nothing else that comes from the data.

    Parameters
    ----------
    kind : str
        "logistic" or "svc"; "linear", "lasso" or "huber"; "additive".
    schema : Schema
    coefficients : array of shape (features,), (1, features) or (classes, features)
    intercept : float or array of shape (1,) or (classes,)
    classes : tuple of str, optional
        The classes, in the order of the coefficients and probabilities.
    guarantee : Guarantee
    encoding : mapping
        How the table became a matrix: the arguments of ``TableEncoder``. With ``row_norm``, longer rows are scaled
        down to it as they were in training.
    details : mapping
        Rows or users, steps and parameters of the training, for the record. Of users' rows there is no number: it
        would tell how many one of them has.
    deviations : Deviations, optional
        How far noise moves the model; files of before they were kept have none.
    whole_norm : float, optional
        Rows that are longer than this, the intercept's constant 1 included, are scaled down to it, the 1 as well: so
        were those that a plan was trained on.
    """

    kind: str
    schema: Schema
    coefficients: Array
    intercept: Any
    classes: tuple[str, ...] | None
    guarantee: Guarantee
    encoding: Mapping[str, Any] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    deviations: Deviations | None = None
    whole_norm: float | None = None

    def __post_init__(self) -> None:
        require_choice("model", self.kind, KINDS)
        if self.coefficients.shape[-1] != len(self.feature_names):
            raise ValueError(
                f"the model has {self.coefficients.shape[-1]} coefficients and the schema {len(self.feature_names)} "
                "features. The file was changed, or its schema was."
            )
        task = self.schema.task
        either = (ADDITIVE, LINEAR)
        classifies = task == "classification" if self.kind in either else self.kind in ESTIMATORS["classification"]
        if (self.classes is None) == classifies or len(np.atleast_2d(self.coefficients)) != self._scores:
            raise ValueError("the model's coefficients do not belong to its classes. The file was changed.")
        if self.kind not in (*ESTIMATORS[task], LINEAR):
            raise ValueError(f"a {self.kind} model cannot predict {self.schema.target!r}. The file was changed.")
        if not (np.isfinite(self.coefficients).all() and np.isfinite(self.intercept).all()):
            raise ValueError("the model has coefficients that are not finite numbers. The file was changed.")
        noise = self.deviations
        if noise is not None and (noise.coefficients.shape, np.shape(noise.intercept)) != (
            self.coefficients.shape,
            np.shape(self.intercept),
        ):
            raise ValueError("the model's deviations do not belong to its coefficients. The file was changed.")

    @property
    def feature_names(self) -> list[str]:
        """What each coefficient belongs to."""
        return list(map(str, self._encoder().get_feature_names_out()))

    @property
    def target(self) -> str:
        """The column that is predicted."""
        return str(self.schema.target)

    @property
    def declared_range(self) -> Number | None:
        """The declared target, if it is a number."""
        column = self.schema.target_column
        return column if isinstance(column, Number) else None

    @property
    def declared_norm(self) -> float | None:
        """The length that longer rows are scaled down to, with or without the intercept's 1; None: no row is."""
        return self.encoding.get("row_norm") if self.whole_norm is None else self.whole_norm

    def parts(self, path: Path) -> Iterator[Any]:
        """The table in a file, part by part, as ``predict`` takes it."""
        from hushpoint.tables.reading import read_chunks

        return read_chunks(path)

    def decision_function(self, table: Any) -> Array:
        """Scores of a data frame or a dictionary of columns: one a row, or one a row and class if there are several."""
        rows = self._encoder().transform(table)
        scores = as_long_as(rows, rows @ np.atleast_2d(self.coefficients).T + self.intercept, self.whole_norm)
        return np.asarray(scores[:, 0] if scores.shape[1] == 1 else scores)

    def shape(self, column: str, values: Any = None) -> tuple[NDArray[Any], Array]:
        """What a column adds to the score: values of it, and a contribution for each (a column each with classes).

        Contributions have mean 0 over the declared range or categories. Default values: 101 places along the range, or
        all categories.
        """
        from hushpoint.estimators.additive import shape_of

        require_choice("column", column, tuple(self.schema.features))
        return shape_of(self._encoder(row_norm=None), np.atleast_2d(self.coefficients), column, values)

    def decision_alone(self, table: Any) -> Array:
        """``decision_function``, each number to the bit a function of its row and of the model.

        A product of matrices is not: it sums in an order that depends on which other rows there are. Noisy scores are
        made of these (docs/privacy.md, section 11).
        """
        rows = self._encoder(row_norm=None).transform(table)
        return scores_alone(self, rows, self.encoding.get("row_norm"))

    def score(
        self,
        data: Any,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        groups: str | None = None,
        adjacency: Adjacency | None = None,
        seed: int | None = None,
    ) -> Evaluation:
        """How good the model is on a table with the target column: exactly, or with noise and a guarantee.

        Accuracy, or R2 and the root mean squared error, beside what a constant answer would have. With users each
        counts once, by the mean over their rows.

        Guarantee: with ``epsilon``, that of the result, for one row of this table, or one user. Without, none: the
        figures are exact and as private as the table.

        Parameters
        ----------
        data : path, data frame or dictionary of columns
            Rows with the declared features, the target, and the groups column if the schema has one.
        epsilon : float, optional
            What the figures may spend. None: no noise.
        delta : float, optional
            Default: ``n**-1.1``, n the number of rows, or of users. 1/n or more is refused.
        groups : str, optional
            The column that says whose row it is, where it is not that of the schema.
        adjacency : {"replace-one", "zero-out"}, optional
        seed : int, optional
            None draws noise from the operating system; an integer is for experiments.
        """
        from hushpoint.tables.evaluation import evaluate

        return evaluate(self, data, epsilon, delta, groups, adjacency, seed)

    def to_dict(self) -> dict[str, Any]:
        """The model as JSON can hold it."""
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "hushpoint_version": __version__,
            "model": self.kind,
            "features": self.feature_names,
            "coefficients": self.coefficients.tolist(),
            "intercept": np.asarray(self.intercept).tolist(),
            "classes": None if self.classes is None else list(self.classes),
            "guarantee": self.guarantee.to_dict(),
            "encoding": {**self.encoding, **({} if self.whole_norm is None else {"whole_norm": self.whole_norm})},
            "details": dict(self.details),
            "schema": self.schema.to_dict(),
            **({} if self.deviations is None else {"deviations": self.deviations.to_dict()}),
        }

    def save(self, path: str | Path, force: bool = False) -> None:
        """Write one JSON file, whole or not at all; an existing file is kept unless ``force``."""
        with written_whole(path, force) as text:
            json.dump(self.to_dict(), text, indent=2, ensure_ascii=False, allow_nan=False)
            text.write("\n")

    def _encoder(self, **changed: Any) -> Any:
        from hushpoint.preprocessing import TableEncoder

        return TableEncoder(self.schema, **{**self.encoding, **changed}).fit()


def estimator_class(kind: str, task: str) -> Any:
    """The estimator that trains a kind of model."""
    from hushpoint import estimators

    return getattr(estimators, ESTIMATORS[task][kind])


def as_long_as(rows: Any, scores: Array, norm: float | None) -> Array:
    """Scores of rows that are scaled down to a norm together with the 1 of their intercept; None: as they are."""
    if norm is None:
        return scores
    lengths = np.sqrt(squared_lengths(np.asarray(rows)) + 1.0)
    return np.asarray(scores * np.minimum(1.0, norm / lengths)[:, None])


def scores_alone(model: TableModel | ArrayModel, rows: Array, row_norm: float | None) -> Array:
    """Scores of rows that are encoded, each to the bit a function of its row and of the model."""
    from hushpoint.rows.reading import scaled_to

    rows = scaled_to(rows, row_norm)
    scores = np.column_stack([product(rows, each) for each in np.atleast_2d(model.coefficients)]) + model.intercept
    scores = as_long_as(rows, scores, model.whole_norm)
    return np.asarray(scores[:, 0] if scores.shape[1] == 1 else scores)


def _waves(encoding: Mapping[str, Any]) -> dict[str, Any]:
    """Those of an additive model; files of before there were any have none."""
    return {"waves": encoding["waves"]} if "waves" in encoding else {}


def load_model(path: str | Path) -> TableModel | ArrayModel:
    """Read a model that ``save``, ``hushpoint fit`` or a federation wrote.

    A model of tables, or where a federation's data are arrays, one of arrays (``hushpoint.tables.array_model``).
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"model {str(path)!r} cannot be read: {error.strerror}.") from None
    except ValueError:
        text = ""
    return read_model(text, f"model {str(path)!r}")


def read_model(text: str, what: str) -> TableModel | ArrayModel:
    """``load_model`` of what a file says; ``what`` is what errors call it."""
    try:
        record = json.loads(text)
    except ValueError:
        raise ValueError(f"{what} is no valid JSON. Train it again: hushpoint fit.") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise ValueError(f"{what} is no model that hushpoint fit, or a federation, wrote.")
    if record.get("format_version") != FORMAT_VERSION:
        raise ValueError(
            f"{what} has format version {record.get('format_version')!r} and this is Hushpoint "
            f"{__version__}, which reads version {FORMAT_VERSION}. Train it again: hushpoint fit."
        )
    try:
        if set(record["schema"]) == {"features"}:
            from hushpoint.tables.array_model import ArrayModel

            return ArrayModel.from_dict(record)
        model = TableModel(
            record["model"],
            Schema.from_dict(record["schema"]),
            np.array(record["coefficients"], dtype=np.float64),
            np.array(record["intercept"], dtype=np.float64),
            None if record["classes"] is None else tuple(record["classes"]),
            Guarantee.from_dict(record["guarantee"]),
            {**{name: record["encoding"][name] for name in ("scale", "row_norm")}, **_waves(record["encoding"])},
            record["details"],
            Deviations.from_dict(record["deviations"]) if record.get("deviations") is not None else None,
            record["encoding"].get("whole_norm"),
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{what} is incomplete or changed ({error}). Train it again.") from None
    if model.feature_names != record.get("features"):
        raise ValueError(f"{what} names other features than its schema gives. The file was changed.")
    return model
