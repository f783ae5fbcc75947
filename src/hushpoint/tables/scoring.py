"""What every kind of model in a file can do once it gives a score to each row: answers, probabilities, a ranking."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hushpoint._types import Array
from hushpoint.labels import probabilities
from hushpoint.schema import Number

if TYPE_CHECKING:
    from hushpoint.privacy.guarantee import Guarantee

ADDITIVE = "additive"  # for either task: the same estimators, on more features


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


class ScoringModel:
    """A model that is a score for each row: of tables with a schema, or of arrays."""

    kind: str
    coefficients: Array
    intercept: Any
    classes: tuple[str, ...] | None
    guarantee: Guarantee
    details: Mapping[str, Any]
    deviations: Deviations | None

    @property
    @abstractmethod
    def target(self) -> str:
        """What is predicted, by name."""

    @property
    @abstractmethod
    def declared_range(self) -> Number | None:
        """Between which numbers predictions lie; None for classes, or where nothing was declared."""

    @property
    @abstractmethod
    def declared_norm(self) -> float | None:
        """The length that longer rows are scaled down to; None: no row is."""

    @abstractmethod
    def decision_function(self, table: Any) -> Array:
        """A score for each row, or one for each row and class if there are several."""

    @property
    def _scores(self) -> int:
        return 1 if self.classes is None or len(self.classes) == 2 else len(self.classes)

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

    def predict(self, table: Any) -> NDArray[Any]:
        """Classes, or numbers inside the declared range, of rows as ``decision_function`` takes them."""
        return self.answers(self.decision_function(table))

    def answers(self, scores: Array) -> NDArray[Any]:
        """What ``predict`` makes of the scores of a decision function."""
        if self.classes is None:
            declared = self.declared_range
            return np.asarray(scores if declared is None else np.clip(scores, declared.low, declared.high))
        best = (scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(np.array(self.classes)[best])

    @property
    def no_probabilities(self) -> str:
        """Why there are none, where ``has_probabilities`` is not so."""
        if self.classes is None:
            return f"target {self.target!r} is a number, and the model has no probabilities"
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
