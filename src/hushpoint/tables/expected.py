"""What a model of a table was expected to score, at its epsilon and at others: from what the model file says."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hushpoint import losses
from hushpoint.privacy.gaussian import gdp_mu
from hushpoint.schema import Schema
from hushpoint.tables.model_file import TableModel

if TYPE_CHECKING:
    from hushpoint.estimators.expected import ExpectedAccuracy

_LOSSES = {"logistic": "logistic", "svc": "smoothed_hinge", "linear": "squared", "lasso": "squared", "huber": "huber"}


_WITHOUT_PENALTY = "The penalty is left out of all of this."


def require_guess(schema: Schema, guess: float | None, base_rate: float | None) -> None:
    """Refuse a guess that cannot be, and a target of several classes: before a budget is spent."""
    from hushpoint.estimators.expected import assumed_target

    two_class = schema.task == "classification"
    if two_class and len(schema.classes) > 2:
        raise ValueError(
            f"the target {schema.target!r} has {len(schema.classes)} classes, and what is expected is known for two "
            "classes and for numbers only. Leave out --curve."
        )
    assumed_target(losses.resolve("logistic" if two_class else "squared"), guess, base_rate)


def expected_of(model: TableModel, guess: float | None = None, base_rate: float | None = None) -> ExpectedAccuracy:
    """`hp.utility.expected_accuracy` for a model's table: from its plan and its guarantee, all of them public."""
    from hushpoint.estimators.expected import EPSILONS, expected_accuracy
    from hushpoint.estimators.planner import clips_moved

    plan, stated = model.details["plan"], model.guarantee
    counted = plan["items"] * plan["mu"] / clips_moved(plan["adjacency"]) / plan["strength"] - 1
    found = expected_accuracy(
        plan["items"],
        plan["width"] - 1,
        sorted({*EPSILONS, float(f"{stated.epsilon:.6g}")}),
        guess=guess,
        base_rate=base_rate,
        delta=stated.delta,
        adjacency=plan["adjacency"],
        loss=_LOSSES.get(model.kind, "logistic" if model.classes else "squared"),
        effective=counted,
        share=min(1.0, (plan["mu"] / gdp_mu(stated.epsilon, stated.delta)) ** 2),
    )
    return replace(found, remark=_WITHOUT_PENALTY) if _penalised(model) else found


def _penalised(model: TableModel) -> bool:
    """Whether a penalty keeps anything from the model; an automatic one of squares does not."""
    given = model.details.get("parameters") or {}
    penalty, alpha = given.get("penalty", "l1" if model.kind == "lasso" else None), given.get("alpha", "auto")
    return alpha != 0 and (penalty in ("l1", "elasticnet") or (penalty is not None and alpha != "auto"))
