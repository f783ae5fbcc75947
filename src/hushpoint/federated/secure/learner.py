"""The model that a federation with secure sums trains: from what all agreed on to an estimator, and back to a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from hushpoint.estimators.base import PrivateLinear
from hushpoint.estimators.declared import finished, rows_of
from hushpoint.estimators.training import Found, Ranges
from hushpoint.federated.models import plain
from hushpoint.federated.secure.covenant import Covenant
from hushpoint.federated.secure.ranges import value_rows
from hushpoint.federated.secure.site import SiteData
from hushpoint.federated.secure.trainings import EstimatorTraining
from hushpoint.privacy.guarantee import Budget, Guarantee
from hushpoint.schema import Number, Schema
from hushpoint.tables.array_model import ArrayModel, label_of
from hushpoint.tables.model_file import ESTIMATORS, TableModel, estimator_class
from hushpoint.tables.ranges import RANGE_SHARE, with_ranges

KINDS = ("logistic", "svc", "linear", "lasso", "huber")
UNITS = ("record", "user", "site")


@dataclass(frozen=True)
class Learner:
    """An estimator as all parties make it of the agreement, with the encoder of its tables if there are tables.

    Parameters
    ----------
    kind : {"logistic", "svc", "linear", "lasso", "huber"}
    estimator : PrivateLinear
        Not fitted.
    schema, encoder
        None for NumPy data.
    by_site : bool
        Whether a site as a whole is one user.
    range_share : float
        Of the budget, for ranges that the schema wants learned.
    """

    kind: str
    estimator: PrivateLinear
    schema: Schema | None
    encoder: Any
    by_site: bool
    range_share: float = RANGE_SHARE

    @staticmethod
    def of(about: Mapping[str, Any], budget: Budget) -> Learner:
        """From what a covenant says it is about."""
        options = dict(about["model"])
        kind, row_norm = options.pop("name"), options.pop("row_norm", None)
        share = options.pop("range_share", RANGE_SHARE)
        by_site = about["unit"] == "site"
        if "features" in about["schema"]:
            make = estimator_class(kind, _task(kind))
            _require_known(options, make().get_params(deep=False))
            whole = {"epsilon": budget.epsilon, "delta": budget.delta, "row_norm": row_norm}
            return Learner(kind, make(**whole, **options), None, None, by_site)
        from hushpoint.tables.training import chosen_kind, linear_model

        schema = Schema.from_dict(about["schema"])
        chosen_kind(kind, schema)  # whether it suits the target
        bounds = [(column.low, column.high) for column in schema.to_learn.values()]
        coarse = with_ranges(schema, bounds)  # of which features, and how long a row, does not depend on ranges
        encoder, estimator = linear_model(coarse, kind, budget.epsilon, budget.delta, row_norm, options)
        return Learner(kind, estimator, schema, encoder, by_site, share)

    def features(self, about: Mapping[str, Any]) -> int:
        """Length of a row."""
        return int(about["schema"]["features"]) if self.encoder is None else len(self.encoder.get_feature_names_out())

    @property
    def to_learn(self) -> dict[str, Number]:
        """The columns whose ranges are learned first."""
        return {} if self.schema is None else self.schema.to_learn

    def data(self, covenant: Covenant, path: Path, test: Path | None = None) -> SiteData:
        """The rows of a site, as the plans ask for them; ``test`` has those that no training sees, if any are asked."""
        from hushpoint.tables.training import values_to_learn

        training = covenant.training
        assert isinstance(training, EstimatorTraining)
        encoded = partial(self._encoded, training, path, test if training.held_out else None)
        if training.ranges is None:
            return encoded(None)
        assert self.schema is not None
        values, users = values_to_learn(path, self.schema)
        columns = value_rows(training.facts, values, self._users(users, len(values)))
        return replace(encoded(training.ranges.bounds), values=columns, encoded=encoded)

    def _encoded(self, training: EstimatorTraining, path: Path, test: Path | None, ranges: Ranges | None) -> SiteData:
        """The rows, encoded with ranges where any are learned."""
        held_out = None if test is None else self._encoded(training, test, None, ranges)
        from hushpoint.federated.folder import Shape
        from hushpoint.tables.training import matrices

        if self.schema is None:
            X, y = Shape(arrays=training.facts.features).load(path)
            users = None
        else:
            schema, encoder = self._with(ranges)
            X, y, users = matrices(path, schema, encoder)
        asked = self._users(users, len(y))
        rows, targets = rows_of(self.estimator, training.declared, X, _known_labels(self.estimator, y), asked)
        return SiteData(rows, targets, held_out=held_out)

    def _with(self, ranges: Ranges | None) -> tuple[Schema, Any]:
        """The schema and the encoder, with ranges where any are learned."""
        assert self.schema is not None
        if ranges is None:
            return self.schema, self.encoder
        schema = with_ranges(self.schema, ranges)
        return schema, clone(self.encoder).set_params(schema=schema).fit()

    def _users(self, users: Any, rows: int) -> Any:
        """Whose row each is: the site's own where all of them count as one user."""
        return np.zeros(rows, dtype=np.int64) if self.by_site else users

    def figures(self, covenant: Covenant, found: Found, louder: float) -> dict[str, Any]:
        """How good the model is on rows that the sites held out, and how noisy each figure is; nothing if not asked."""
        training = covenant.training
        if not isinstance(training, EstimatorTraining) or training.evaluation is None:
            return {}
        low, high = getattr(self.estimator, "target_range", None) or (-1.0, 1.0)
        told = training.evaluation.figures(training.declared, found, high - low, louder)
        return {name: asdict(figure) for name, figure in told.items()}

    def model(
        self, covenant: Covenant, found: Found, guarantee: Guarantee, rounds: int, run: Mapping[str, Any]
    ) -> TableModel | ArrayModel:
        """What was found as people use it, with its guarantee; ``run`` says where it comes from."""
        training = covenant.training
        assert isinstance(training, EstimatorTraining)
        fitted = finished(self.estimator, training.declared, found, guarantee, rounds)
        if self.schema is not None:
            from hushpoint.tables.training import table_model

            schema, encoder = self._with(found.ranges)
            made: TableModel = table_model(
                self.kind, schema, encoder, fitted, guarantee, training.facts.items, list(self.to_learn)
            )
            if self.by_site:
                counts = {"rows": None, "users": None, "sites": training.facts.items}
                made = replace(made, details={**made.details, **counts})
            return replace(made, details={**made.details, "federation": dict(run)})
        facts, options = training.facts, fitted.get_params(deep=False)
        unit = "sites" if self.by_site else "rows" if facts.unit == "record" else "users"
        details = {
            unit: facts.items,
            "steps": np.asarray(fitted.n_iter_).max().item(),
            "parameters": {name: plain(value) for name, value in options.items()},
            "federation": dict(run),
        }
        return ArrayModel(
            self.kind,
            np.asarray(fitted.coef_, dtype=np.float64),
            np.asarray(fitted.intercept_, dtype=np.float64),
            tuple(label_of(one) for one in fitted.classes_.tolist()) if hasattr(fitted, "classes_") else None,
            guarantee,
            row_norm=facts.row_norm,
            target_range=options.get("target_range"),
            details=details,
        )


def _known_labels(estimator: PrivateLinear, y: Any) -> Any:
    """The targets of a site; labels that nobody declared are an error, in words that repeat none."""
    from hushpoint.labels import class_set

    if hasattr(estimator, "classes"):
        class_set(y, estimator.classes)
    return y


def _task(kind: str) -> str:
    return next(task for task, kinds in ESTIMATORS.items() if kind in kinds)


def _require_known(options: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    unknown = [name for name in options if name not in known]
    if unknown:
        raise ValueError(f"[model] has {', '.join(map(repr, unknown))}, which the model does not take.")
