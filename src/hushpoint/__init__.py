"""Hushpoint: private optimisation as noisy fixed-point iteration, with guarantees that hold.

Attributes are loaded when first used, so that ``import hushpoint`` stays fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hushpoint._on_demand import on_demand
from hushpoint._version import __version__

if TYPE_CHECKING:
    from hushpoint import (
        federated,
        lattice,
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
    from hushpoint.certificates import Certificate, Theorem
    from hushpoint.engine import Result, State
    from hushpoint.estimators import (
        PrivateAdditiveClassifier,
        PrivateAdditiveRegressor,
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

__all__ = ["Budget", "Certificate", "Guarantee", "Plan", "Problem", "Result", "State", "Theorem", "__version__"]
__all__ += ["PrivateAdditiveClassifier", "PrivateAdditiveRegressor"]
__all__ += ["PrivateHuberRegressor", "PrivateLasso", "PrivateLinearRegression", "PrivateLinearSVC"]
__all__ += ["PrivateLogisticRegression", "PrivateSelect"]
__all__ += ["federated", "lattice", "losses", "methods", "noise", "operators", "preprocessing", "privacy"]
__all__ += ["regularizers", "schedules", "tables", "utility"]

__getattr__, __dir__ = on_demand(
    __name__,
    __all__,
    {
        "hushpoint.certificates": ["Certificate", "Theorem"],
        "hushpoint.engine": ["Result", "State"],
        "hushpoint.estimators": [name for name in __all__ if name.startswith("Private")],
        "hushpoint.plan": ["Plan"],
        "hushpoint.privacy.guarantee": ["Budget", "Guarantee"],
        "hushpoint.problem": ["Problem"],
    },
)
