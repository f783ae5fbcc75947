"""A model of arrays, which a federation with NumPy data trains: the same file as that of a table, without a schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hushpoint._checks import require_choice
from hushpoint._files import written_whole
from hushpoint._types import Array
from hushpoint._version import __version__
from hushpoint.privacy.guarantee import Adjacency, Guarantee
from hushpoint.schema import Number
from hushpoint.tables.arrays import load_arrays
from hushpoint.tables.model_file import FORMAT, FORMAT_VERSION, KINDS, scores_alone
from hushpoint.tables.outcomes import Outcomes
from hushpoint.tables.scoring import Deviations, ScoringModel

if TYPE_CHECKING:
    from hushpoint.tables.evaluation import Evaluation


@dataclass(frozen=True, eq=False)
class ArrayModel(ScoringModel):
    """A model of the rows of an array, with its guarantee; it holds nothing else that comes from the data.

    Parameters
    ----------
    kind, coefficients, intercept, classes, guarantee, details, whole_norm
        As in ``TableModel``.
    row_norm : float, optional
        Longer rows are scaled down to it, as they were in training.
    target_range : (float, float), optional
        Between which numbers predictions lie.
    """

    kind: str
    coefficients: Array
    intercept: Any
    classes: tuple[str, ...] | None
    guarantee: Guarantee
    row_norm: float | None = None
    whole_norm: float | None = None
    target_range: tuple[float, float] | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    deviations: Deviations | None = None

    schema: ClassVar[None] = None

    def __post_init__(self) -> None:
        require_choice("model", self.kind, KINDS)
        if len(np.atleast_2d(self.coefficients)) != self._scores:
            raise ValueError("the model's coefficients do not belong to its classes. The file was changed.")
        if not (np.isfinite(self.coefficients).all() and np.isfinite(self.intercept).all()):
            raise ValueError("the model has coefficients that are not finite numbers. The file was changed.")

    @property
    def features(self) -> int:
        """Length of a row."""
        return int(self.coefficients.shape[-1])

    @property
    def feature_names(self) -> list[str]:
        """What each coefficient belongs to: columns of X by number."""
        return [f"x{j}" for j in range(self.features)]

    @property
    def target(self) -> str:
        """What is predicted, by the name that it has in a file."""
        return "y"

    @property
    def declared_range(self) -> Number | None:
        """The declared range of the target, if there is one."""
        return None if self.target_range is None else Number(*self.target_range)

    @property
    def declared_norm(self) -> float | None:
        """The length that longer rows are scaled down to, with or without the intercept's 1; None: no row is."""
        return self.row_norm if self.whole_norm is None else self.whole_norm

    def parts(self, path: Path) -> Iterator[Any]:
        """The rows in a .npz file (X) or a .npy file (a last column more than the features is y, and left out)."""
        if path.suffix not in (".npz", ".npy"):
            raise ValueError(
                f"data is {str(path)!r} and the model is of arrays with {self.features} features. Pass a .npz file "
                "with X, or a .npy file."
            )
        if not path.is_file():
            raise ValueError(f"there is no file {str(path)!r}. Name a .npz or .npy file.")
        yield load_arrays(path, self.features)[0]

    def decision_function(self, table: Any) -> Array:
        """A score for each row of an array."""
        return scores_alone(self, np.asarray(table, dtype=np.float64), self.row_norm)

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
        """How good the model is on a .npz or .npy file with y: exactly, or with noise and a guarantee."""
        from hushpoint.tables.evaluation import check_budget, scored

        check_budget(epsilon, delta, adjacency, seed)
        if groups is not None:
            raise ValueError(f"groups is {groups!r} and arrays have no columns by name. Leave it out.")
        if epsilon is not None and self.classes is None and self.target_range is None:
            raise ValueError(
                "epsilon is given and the model declares no range of y, without which no error is bounded. Leave it "
                "out for exact figures."
            )
        place = Path(data)
        next(self.parts(place))  # the right kind of file
        X, y = load_arrays(place, self.features)
        if y is None or not len(y):
            raise ValueError(f"{place.name!r} has no y, or no rows. To be scored the model needs both.")
        scores = self.decision_function(X)
        seen = Outcomes(self._truth(y), scores, self.answers(scores), np.arange(len(y)), np.ones(len(y), np.int64))
        return scored(self, seen, place.name, "record", epsilon, delta, adjacency, seed)

    def _truth(self, y: Array) -> NDArray[Any]:
        if self.classes is None:
            declared = self.declared_range
            return y if declared is None else np.clip(y, declared.low, declared.high)
        names = np.array([label_of(value) for value in y.tolist()])
        if not np.isin(names, self.classes).all():
            raise ValueError("y has classes that the model does not know.")
        return names

    def to_dict(self) -> dict[str, Any]:
        """The model as JSON can hold it."""
        encoding = {"row_norm": self.row_norm, "whole_norm": self.whole_norm, "target_range": self.target_range}
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
            "encoding": {name: value for name, value in encoding.items() if value is not None},
            "details": dict(self.details),
            "schema": {"features": self.features},
        }

    @staticmethod
    def from_dict(record: Mapping[str, Any]) -> ArrayModel:
        """What ``to_dict`` gave."""
        encoding, target_range = record["encoding"], record["encoding"].get("target_range")
        model = ArrayModel(
            record["model"],
            np.array(record["coefficients"], dtype=np.float64),
            np.array(record["intercept"], dtype=np.float64),
            None if record["classes"] is None else tuple(record["classes"]),
            Guarantee.from_dict(record["guarantee"]),
            encoding.get("row_norm"),
            encoding.get("whole_norm"),
            None if target_range is None else (target_range[0], target_range[1]),
            record["details"],
        )
        if model.features != record["schema"]["features"] or model.feature_names != record["features"]:
            raise ValueError("the model has other features than it names. The file was changed.")
        return model

    def save(self, path: str | Path, force: bool = False) -> None:
        """Write one JSON file, whole or not at all; an existing file is kept unless ``force``."""
        with written_whole(path, force) as text:
            json.dump(self.to_dict(), text, indent=2, ensure_ascii=False, allow_nan=False)
            text.write("\n")


def label_of(value: Any) -> str:
    """The name of a class that is a number: 1 and 1.0 are the same."""
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)
