"""A trained model in one JSON file: coefficients, schema and guarantee, all that is needed to predict and to quote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hushpoint._checks import require_choice
from hushpoint._files import written_whole
from hushpoint._types import Array
from hushpoint._version import __version__
from hushpoint.labels import probabilities
from hushpoint.privacy.guarantee import Adjacency, Guarantee
from hushpoint.schema import Number, Schema

if TYPE_CHECKING:
    from hushpoint.tables.evaluation import Evaluation

FORMAT = "hushpoint table model"
FORMAT_VERSION = 2
TOLD_FROM_NOISE = 2.0  # deviations from zero, from which a coefficient is more than noise
ADDITIVE = "additive"  # for either task: the same estimators, on more features
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
class Deviations:
    """How far noise moves a model: deviations of coefficients, of the intercept, and of each column's shape.

    Shapes are those of an additive model, at the places at which ``TableModel.shape`` gives them by default.
    """

    coefficients: Array
    intercept: Any
    shapes: Mapping[str, Array] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The deviations as JSON can hold them."""
        shapes = {name: found.tolist() for name, found in self.shapes.items()}
        return {
            "coefficients": self.coefficients.tolist(),
            "intercept": np.asarray(self.intercept).tolist(),
            "shapes": shapes,
        }

    @staticmethod
    def from_dict(record: Mapping[str, Any]) -> Deviations:
        """What ``to_dict`` gave."""
        shapes = {str(name): np.array(found, dtype=np.float64) for name, found in record["shapes"].items()}
        coefficients = np.array(record["coefficients"], dtype=np.float64)
        return Deviations(coefficients, np.array(record["intercept"], dtype=np.float64), shapes)


@dataclass(frozen=True, eq=False)
class TableModel:
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

    def __post_init__(self) -> None:
        require_choice("model", self.kind, KINDS)
        if self.coefficients.shape[-1] != len(self.feature_names):
            raise ValueError(
                f"the model has {self.coefficients.shape[-1]} coefficients and the schema {len(self.feature_names)} "
                "features. The file was changed, or its schema was."
            )
        task = self.schema.task
        classifies = task == "classification" if self.kind == ADDITIVE else self.kind in ESTIMATORS["classification"]
        if (self.classes is None) == classifies or len(np.atleast_2d(self.coefficients)) != self._scores:
            raise ValueError("the model's coefficients do not belong to its classes. The file was changed.")
        if self.kind not in ESTIMATORS[task]:
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
    def _scores(self) -> int:
        return 1 if self.classes is None or len(self.classes) == 2 else len(self.classes)

    @property
    def feature_names(self) -> list[str]:
        """What each coefficient belongs to."""
        return list(map(str, self._encoder().get_feature_names_out()))

    @property
    def trained_on(self) -> str:
        """How many rows, or how many users: the public n."""
        for unit in ("users", "rows"):
            if self.details.get(unit) is not None:
                return f"{self.details[unit]:,} {unit}"
        return "an unknown number of rows"

    @property
    def score_titles(self) -> list[str]:
        """What each line of coefficients speaks for."""
        if self.classes is None:
            return ["coefficient"]
        return list(self.classes) if len(np.atleast_2d(self.coefficients)) > 1 else [f"towards {self.classes[1]}"]

    def decision_function(self, table: Any) -> Array:
        """Scores of a data frame or a dictionary of columns: one a row, or one a row and class if there are several."""
        scores = self._encoder().transform(table) @ np.atleast_2d(self.coefficients).T + self.intercept
        return np.asarray(scores[:, 0] if scores.shape[1] == 1 else scores)

    def predict(self, table: Any) -> NDArray[Any]:
        """Classes, or numbers inside the declared range, from a data frame or a dictionary of columns."""
        return self.answers(self.decision_function(table))

    def answers(self, scores: Array) -> NDArray[Any]:
        """What ``predict`` makes of the scores of a decision function."""
        if self.classes is None:
            declared = self.schema.target_column
            assert isinstance(declared, Number)
            return np.asarray(np.clip(scores, declared.low, declared.high))
        best = (scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(np.array(self.classes)[best])

    @property
    def no_probabilities(self) -> str:
        """Why there are none, where ``has_probabilities`` is not so."""
        if self.classes is None:
            return f"target {self.schema.target!r} is a number, and the model has no probabilities"
        return f"the model is of kind {self.kind!r} and has no probabilities: a logistic one has"

    def predict_proba(self, table: Any) -> Array:
        """Probabilities of the classes, in the order of ``classes``; logistic models only.

        With several classes, each one's probability against the rest, made to sum to 1.
        """
        if not self.has_probabilities:
            raise ValueError(f"{self.no_probabilities}.")
        return probabilities(self.decision_function(table))

    @property
    def has_probabilities(self) -> bool:
        """Whether scores are log-odds."""
        return self.classes is not None and self.kind in ("logistic", ADDITIVE)

    def shape(self, column: str, values: Any = None) -> tuple[NDArray[Any], Array]:
        """What a column adds to the score: values of it, and a contribution for each (a column each with classes).

        Contributions have mean 0 over the declared range or categories. Default values: 101 places along the range, or
        all categories.
        """
        from hushpoint.estimators.additive import shape_of

        require_choice("column", column, tuple(self.schema.features))
        return shape_of(self._encoder(row_norm=None), np.atleast_2d(self.coefficients), column, values)

    @property
    def z_values(self) -> Array | None:
        """Each coefficient over the deviation that noise gives it; None where that is not known."""
        noise = self.deviations
        if noise is None or not (np.isfinite(noise.coefficients).all() and (noise.coefficients > 0).all()):
            return None
        return np.asarray(self.coefficients / noise.coefficients)

    @property
    def ranking(self) -> list[int]:
        """Features in the order of how far they stand out of the noise; largest first where its law is not known."""
        weights = self.coefficients if self.z_values is None else self.z_values
        return [int(j) for j in np.argsort(-np.abs(np.atleast_2d(weights)).max(axis=0), kind="stable")]

    def decision_alone(self, table: Any) -> Array:
        """``decision_function``, each number to the bit a function of its row and of the model.

        A product of matrices is not: it sums in an order that depends on which other rows there are. Noisy scores are
        made of these (docs/privacy.md, section 11).
        """
        from hushpoint._fixed import product
        from hushpoint.rows.reading import scaled_to

        rows = self._encoder(row_norm=None).transform(table)
        rows = scaled_to(rows, self.encoding.get("row_norm"))
        models = np.atleast_2d(self.coefficients)
        scores = np.column_stack([product(rows, model) for model in models]) + self.intercept
        return np.asarray(scores[:, 0] if scores.shape[1] == 1 else scores)

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
            "encoding": dict(self.encoding),
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


def _waves(encoding: Mapping[str, Any]) -> dict[str, Any]:
    """Those of an additive model; files of before there were any have none."""
    return {"waves": encoding["waves"]} if "waves" in encoding else {}


def load_model(path: str | Path) -> TableModel:
    """Read a model that ``save`` or ``hushpoint fit`` wrote."""
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"model {str(path)!r} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise ValueError(f"model {str(path)!r} is no valid JSON. Train it again: hushpoint fit.") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise ValueError(f"model {str(path)!r} is no model that hushpoint fit wrote.")
    if record.get("format_version") != FORMAT_VERSION:
        raise ValueError(
            f"model {str(path)!r} has format version {record.get('format_version')!r} and this is Hushpoint "
            f"{__version__}, which reads version {FORMAT_VERSION}. Train it again: hushpoint fit."
        )
    try:
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
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"model {str(path)!r} is incomplete or changed ({error}). Train it again.") from None
    if model.feature_names != record.get("features"):
        raise ValueError(f"model {str(path)!r} names other features than its schema gives. The file was changed.")
    return model
