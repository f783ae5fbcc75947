"""Scikit-learn estimators: ``fit`` with an epsilon, and nothing to tune.

Attributes are loaded when first used: the planner needs no scikit-learn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hushpoint._on_demand import on_demand

if TYPE_CHECKING:
    from hushpoint.estimators.additive import PrivateAdditiveClassifier, PrivateAdditiveRegressor
    from hushpoint.estimators.classifiers import PrivateLinearSVC, PrivateLogisticRegression
    from hushpoint.estimators.regressors import PrivateHuberRegressor, PrivateLasso, PrivateLinearRegression
    from hushpoint.estimators.selection import PrivateSelect

__all__ = ["PrivateAdditiveClassifier", "PrivateAdditiveRegressor"]
__all__ += ["PrivateHuberRegressor", "PrivateLasso", "PrivateLinearRegression", "PrivateLinearSVC"]
__all__ += ["PrivateLogisticRegression", "PrivateSelect"]

__getattr__, __dir__ = on_demand(
    __name__,
    __all__,
    {
        "hushpoint.estimators.additive": ["PrivateAdditiveClassifier", "PrivateAdditiveRegressor"],
        "hushpoint.estimators.classifiers": ["PrivateLinearSVC", "PrivateLogisticRegression"],
        "hushpoint.estimators.regressors": ["PrivateHuberRegressor", "PrivateLasso", "PrivateLinearRegression"],
        "hushpoint.estimators.selection": ["PrivateSelect"],
    },
)
