"""Scikit-learn estimators: ``fit`` with an epsilon, and nothing to tune.

Attributes are loaded when first used: the planner needs no scikit-learn.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hushpoint.estimators.classifiers import PrivateLinearSVC, PrivateLogisticRegression
    from hushpoint.estimators.regressors import PrivateHuberRegressor, PrivateLasso, PrivateLinearRegression
    from hushpoint.estimators.selection import PrivateSelect

_HOMES = {
    "PrivateHuberRegressor": "regressors",
    "PrivateLasso": "regressors",
    "PrivateLinearRegression": "regressors",
    "PrivateLinearSVC": "classifiers",
    "PrivateLogisticRegression": "classifiers",
    "PrivateSelect": "selection",
}

__all__ = [
    "PrivateHuberRegressor",
    "PrivateLasso",
    "PrivateLinearRegression",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateSelect",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
