"""What the data of the sites look like: tables with declared columns, or arrays with a number of features."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hushpoint._checks import require_count
from hushpoint._types import Array
from hushpoint.schema import Schema
from hushpoint.tables.arrays import REMEDY, load_arrays


def toml_settings(path: Path) -> dict[str, Any]:
    """What a TOML file says."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(
            f"{str(path)!r} cannot be read: {error.strerror}. Make a federation: hushpoint federated init."
        ) from None
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is no valid TOML: {error}.") from None


@dataclass(frozen=True)
class Shape:
    """What the local data look like: a table with declared columns, or arrays with a number of features."""

    schema: Schema | None = None
    arrays: int = 0

    @staticmethod
    def read(path: Path) -> Shape:
        """From ``schema.toml``: the schema of a table, or ``features = N`` for NumPy data."""
        settings = toml_settings(path)
        if set(settings) == {"features"}:
            return Shape(arrays=require_count("features", settings["features"]))
        try:
            shape = Shape(Schema.from_dict(settings))
            assert shape.schema is not None
            shape.schema.target_column  # noqa: B018  a schema without a target says so here
        except ValueError as error:
            raise ValueError(f"{str(path)!r} declares too little or wrongly:\n{error}") from None
        return shape

    @property
    def features(self) -> int:
        """Length of an encoded row."""
        return self.arrays if self.schema is None else len(self._encoder().get_feature_names_out())

    def to_dict(self) -> dict[str, Any]:
        """The shape as JSON can hold it: a schema, or the number of features."""
        return {"features": self.arrays} if self.schema is None else self.schema.to_dict()

    @staticmethod
    def from_dict(record: Mapping[str, Any]) -> Shape:
        """What ``to_dict`` gave."""
        if set(record) == {"features"}:
            return Shape(arrays=record["features"])
        return Shape(Schema.from_dict(dict(record)))

    @property
    def names(self) -> list[str]:
        """The features by name."""
        if self.schema is None:
            return [f"x{j}" for j in range(self.arrays)]
        return [str(name) for name in self._encoder().get_feature_names_out()]

    @property
    def row_norm(self) -> float:
        """A length of rows, the constant of an intercept included, that is known without looking at any."""
        return 1.0 if self.schema is None else float(np.hypot(self._encoder().typical_row_norm_, 1.0))

    @property
    def two_classes(self) -> bool:
        """Whether the target is one of two classes."""
        return self.schema is not None and self.schema.task == "classification"

    def _encoder(self) -> Any:
        from hushpoint.preprocessing import TableEncoder

        if self.schema is not None and self.schema.to_learn:
            names = ", ".join(map(repr, self.schema.to_learn))
            raise ValueError(
                f"schema.toml leaves the range of {names} to be learned, which an estimator does that sites train by "
                "secure sums ([secure], and a name in [model]), and no other plan. Declare it, without learn = true."
            )
        return TableEncoder(self.schema).fit()

    def load(self, path: Path) -> tuple[Array, Array]:
        """The features and the targets in a file; those of two classes as -1 and 1."""
        if not path.is_file():
            raise ValueError(f'there is no file {str(path)!r}. Name the data in site.toml: data = "...".')
        if self.schema is None:
            return self._loaded_arrays(path)
        from hushpoint.tables.reading import read_chunks
        from hushpoint.tables.training import declared_targets, require_declared

        encoder, parts, targets = self._encoder(), [], []
        for chunk in read_chunks(path):
            require_declared(self.schema, chunk)
            parts.append(encoder.transform(chunk))
            targets.append(declared_targets(self.schema, chunk))
        values = np.concatenate(targets)
        if self.two_classes:
            if len(self.schema.classes) != 2:
                raise ValueError(f"target {self.schema.target!r} has {len(self.schema.classes)} classes. Declare two.")
            values = np.where(values == self.schema.classes[1], 1.0, -1.0)
        return np.vstack(parts), values.astype(np.float64)

    def _loaded_arrays(self, path: Path) -> tuple[Array, Array]:
        X, y = load_arrays(path, self.arrays)
        if y is None:
            raise ValueError(f"{path.name!r} has no y. {REMEDY}")
        return X, y
