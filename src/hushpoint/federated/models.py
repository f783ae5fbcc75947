"""The model of a run as a file that ``hushpoint predict``, ``evaluate`` and ``report`` take, and what a site checks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hushpoint._types import Array
from hushpoint.federated.shape import Shape
from hushpoint.plan import Plan
from hushpoint.privacy.guarantee import Guarantee
from hushpoint.schema import Schema
from hushpoint.tables.array_model import ArrayModel
from hushpoint.tables.model_file import LINEAR, TableModel, read_model

# By their losses; a linear model of any other loss has no probabilities, and is called just that.
_KINDS = {"logistic": "logistic", "smoothed_hinge": "svc", "huber": "huber"}
_LEARNED = ("low", "high", "learn")  # of a number whose range is learned, what is another one afterwards
_OF_ARRAYS = ("-1", "1")  # the classes of arrays: the targets of a two-class loss


def model_of_plan(
    plan: Plan, shape: Shape | None, vector: Array, guarantees: Sequence[Guarantee], run: Mapping[str, Any]
) -> TableModel | ArrayModel:
    """What a vector that a plan has made is to people who want predictions; ``run`` says where it comes from."""
    facts, public = plan.facts, plan.public_facts
    assert facts is not None
    assert public is not None
    unit = plan.default_unit if plan.budget is None else plan.budget.unit or plan.default_unit
    guarantee = next((one for one in guarantees if one.unit == unit), guarantees[0])
    parameters = {
        **plan.parameters,
        "loss": facts.loss.to_dict(),
        "regularizer": facts.regularizer.to_dict(),
        "clip": facts.clip,
        "weights": facts.weights,
    }
    details = {
        "rows": facts.rows if public.knows_rows else None,
        "users": None,
        "steps": run["rounds"],
        "parameters": {name: plain(value) for name, value in parameters.items()},
        "guarantees": [str(one) for one in guarantees],
        "federation": {"method": plan.method, "sites": facts.items, **run},
    }
    kind = _KINDS.get(facts.loss.name or "", LINEAR)
    coefficients, intercept = (vector[:-1], vector[-1]) if facts.fit_intercept else (vector, np.float64(0.0))
    norms = (None, facts.row_norm) if facts.fit_intercept else (facts.row_norm, None)
    classes: tuple[str, ...] | None = None
    if facts.loss.labels == "two-class":  # with a score for the second class
        coefficients, intercept = coefficients[None, :], np.atleast_1d(intercept)
        classes = _OF_ARRAYS
    if shape is None or shape.schema is None:
        return ArrayModel(kind, coefficients, intercept, classes, guarantee, norms[0], norms[1], details=details)
    if classes is not None:
        classes = tuple(shape.schema.classes)
    encoding = {"scale": "columns", "row_norm": norms[0]}
    return TableModel(
        kind, shape.schema, coefficients, intercept, classes, guarantee, encoding, details, whole_norm=norms[1]
    )


def model_bytes(model: TableModel | ArrayModel) -> bytes:
    """A model as its file holds it."""
    return (json.dumps(model.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def require_model(content: bytes, schema: Mapping[str, Any], run: str, learned: Sequence[str] = ()) -> None:
    """What a site checks of a model that it is handed: that it can be read, and is of the agreed schema and run.

    ``learned`` are the columns whose ranges were agreed to be learned.
    """
    model = read_model(content.decode("utf-8"), "the model that was handed over")
    found = {"features": model.features} if isinstance(model, ArrayModel) else model.schema.to_dict()
    if not _same(found, schema, learned):
        raise ValueError("the model that was handed over is of another schema than was agreed on.")
    if model.details.get("federation", {}).get("run") != run:
        raise ValueError("the model that was handed over is of another run.")


def _same(found: Mapping[str, Any], agreed: Mapping[str, Any], learned: Sequence[str]) -> bool:
    """Whether two schemas are the same, but for ranges that were learned in between."""
    if "columns" not in found or "columns" not in agreed:
        return dict(found) == dict(agreed)
    one, other = (Schema.from_dict(record).to_dict() for record in (found, agreed))
    for record in (one, other):
        record["columns"] = {
            name: {key: value for key, value in column.items() if name not in learned or key not in _LEARNED}
            for name, column in record["columns"].items()
        }
    return one == other


def plain(value: Any) -> Any:
    """A parameter as JSON can hold it."""
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)
