"""The training of an estimator as it is known before any row is: for those who hold some of the rows, or none."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushpoint._types import Array
from hushpoint.estimators.base import PrivateLinear
from hushpoint.estimators.penalty import Penalty
from hushpoint.estimators.planner import Parameters, plan_parameters
from hushpoint.estimators.training import Agree, Chain, Found, chain
from hushpoint.privacy.guarantee import Guarantee, Unit
from hushpoint.problem import PRIVATE, Facts, Problem
from hushpoint.rows import Rows


@dataclass(frozen=True)
class Declared:
    """What the chain of an estimator's plans follows from, before the first answer.

    Parameters
    ----------
    facts : Facts
        Of all rows together, wherever they are.
    parameters : Parameters
        How to train, with noise for a budget.
    penalty : Penalty
    fit_intercept : bool
    models : int
        How many there are: one, or one a class.
    """

    facts: Facts
    parameters: Parameters
    penalty: Penalty
    fit_intercept: bool
    models: int = 1

    @staticmethod
    def of(
        estimator: PrivateLinear, items: int, features: int, mu: float, *, unit: Unit = "record", rounds: int | None
    ) -> Declared:
        """The training of an estimator with declared classes or target range, for so many items.

        Parameters
        ----------
        mu : float
            What all plans together may cost; the estimator's epsilon is not looked at.
        rounds : int, optional
            How many steps all plans of one model may have together.
        """
        estimator._check_parameters()
        estimator._check_declared()
        loss, models = estimator._declare()
        penalty = estimator._penalty()
        named = estimator.penalty if penalty.l1 or penalty.l2 or penalty.automatic else None
        parameters = plan_parameters(
            items,
            features,
            mu,
            loss=loss,
            penalty=named,
            fit_intercept=estimator.fit_intercept,
            adjacency=estimator.adjacency,
            rounds=rounds,
        )
        several = {} if unit == "record" else {"rows_per_item": PRIVATE}
        declared = Problem.declared(items, features, loss, row_norm=estimator.row_norm).facts
        record = {**declared.to_dict(), **several}
        return Declared(Facts.from_dict(record), parameters, penalty, estimator.fit_intercept, models)

    def links(self, agree: Agree | None = None) -> Chain:
        """The chain of plans."""
        return chain(
            self.facts,
            self.parameters,
            fit_intercept=self.fit_intercept,
            penalty=self.penalty,
            models=self.models,
            agree=agree,
        )

    def to_dict(self) -> dict[str, Any]:
        """The training as JSON can hold it."""
        return {
            "facts": self.facts.to_dict(),
            "parameters": self.parameters.to_dict(),
            "penalty": asdict(self.penalty),
            "fit_intercept": self.fit_intercept,
            "models": self.models,
        }

    @staticmethod
    def from_dict(record: dict[str, Any]) -> Declared:
        """What ``to_dict`` gave."""
        return Declared(
            Facts.from_dict(record["facts"]),
            Parameters(**record["parameters"]),
            Penalty(**record["penalty"]),
            record["fit_intercept"],
            record["models"],
        )


def rows_of(
    estimator: PrivateLinear, declared: Declared, X: Any, y: NDArray[Any], groups: ArrayLike | None
) -> tuple[Rows, list[Array]]:
    """Some of the rows as the plans ask for them, and the targets of each model in their order."""
    estimator._declare()
    facts, targets = declared.facts, estimator._targets(y)
    signed = (-1.0, 1.0) if facts.loss.labels == "two-class" else None
    problem = Problem(X, targets[0], facts.loss, row_norm=facts.row_norm, groups=groups, classes=signed)
    order = slice(None) if groups is None else np.argsort(np.unique(groups, return_inverse=True)[1], kind="stable")
    return problem.rows, [problem.rows.targets, *(target[order] for target in targets[1:])]


def finished(estimator: PrivateLinear, declared: Declared, found: Found, guarantee: Guarantee, steps: int) -> Any:
    """The estimator, fitted: what was found is taken for its own."""
    estimator._declare()
    estimator.guarantee_, estimator.parameters_ = guarantee, declared.parameters
    estimator.n_iter_ = estimator.n_passes_ = steps
    estimator._errors = found.errors
    estimator._row_norm = declared.facts.row_norm
    estimator.n_features_in_ = declared.facts.features
    estimator._keep(found.models)
    return estimator
