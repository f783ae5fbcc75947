"""Hushpoint: private optimisation as noisy fixed-point iteration, with guarantees that hold.

Attributes are loaded when first used, so that ``import hushpoint`` stays fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hushpoint._version import __version__

if TYPE_CHECKING:
    from hushpoint import (
        federated,
        losses,
        methods,
        noise,
        operators,
        preprocessing,
        privacy,
        regularizers,
        schedules,
        tables,
        utility,
    )
    from hushpoint.certificates import Certificate
    from hushpoint.engine import Result, State
    from hushpoint.estimators import (
        PrivateHuberRegressor,
        PrivateLasso,
        PrivateLinearRegression,
        PrivateLinearSVC,
        PrivateLogisticRegression,
        PrivateSelect,
    )
    from hushpoint.plan import Plan
    from hushpoint.privacy.guarantee import Budget, Guarantee
    from hushpoint.problem import Problem

_HOMES = {
    "Budget": "hushpoint.privacy.guarantee",
    "Certificate": "hushpoint.certificates",
    "Guarantee": "hushpoint.privacy.guarantee",
    "Plan": "hushpoint.plan",
    "PrivateHuberRegressor": "hushpoint.estimators",
    "PrivateLasso": "hushpoint.estimators",
    "PrivateLinearRegression": "hushpoint.estimators",
    "PrivateLinearSVC": "hushpoint.estimators",
    "PrivateLogisticRegression": "hushpoint.estimators",
    "PrivateSelect": "hushpoint.estimators",
    "Problem": "hushpoint.problem",
    "Result": "hushpoint.engine",
    "State": "hushpoint.engine",
}
_MODULES = (
    "federated",
    "losses",
    "methods",
    "noise",
    "operators",
    "preprocessing",
    "privacy",
    "regularizers",
    "schedules",
    "tables",
    "utility",
)

__all__ = [
    "Budget",
    "Certificate",
    "Guarantee",
    "Plan",
    "PrivateHuberRegressor",
    "PrivateLasso",
    "PrivateLinearRegression",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateSelect",
    "Problem",
    "Result",
    "State",
    "__version__",
    "federated",
    "losses",
    "methods",
    "noise",
    "operators",
    "preprocessing",
    "privacy",
    "regularizers",
    "schedules",
    "tables",
    "utility",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _MODULES:
        return import_module(f"hushpoint.{name}")
    raise AttributeError(f"module 'hushpoint' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
