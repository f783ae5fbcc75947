"""Privacy: guarantees, their accounting and calibration, and the oracles that check them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hushpoint.privacy import gaussian, last_iterate, network, published, subsampling
    from hushpoint.privacy.accounting import Question, Spend, account, gaussian_spend, register_rule
    from hushpoint.privacy.auditor import AuditReport, audit, strongest_canary
    from hushpoint.privacy.calibration import calibrated_std, rounds_affordable
    from hushpoint.privacy.exact import exact_mu, exact_rdp
    from hushpoint.privacy.gaussian import gdp_delta, gdp_epsilon, gdp_mu
    from hushpoint.privacy.guarantee import Budget, Guarantee, compose
    from hushpoint.privacy.promises import broken_promises

_HOMES = {
    "AuditReport": "auditor",
    "Budget": "guarantee",
    "Guarantee": "guarantee",
    "Question": "accounting",
    "Spend": "accounting",
    "account": "accounting",
    "audit": "auditor",
    "broken_promises": "promises",
    "calibrated_std": "calibration",
    "compose": "guarantee",
    "exact_mu": "exact",
    "exact_rdp": "exact",
    "gaussian_spend": "accounting",
    "gdp_delta": "gaussian",
    "gdp_epsilon": "gaussian",
    "gdp_mu": "gaussian",
    "register_rule": "accounting",
    "rounds_affordable": "calibration",
    "strongest_canary": "auditor",
}
_MODULES = ("gaussian", "last_iterate", "network", "published", "subsampling")

__all__ = [
    "AuditReport",
    "Budget",
    "Guarantee",
    "Question",
    "Spend",
    "account",
    "audit",
    "broken_promises",
    "calibrated_std",
    "compose",
    "exact_mu",
    "exact_rdp",
    "gaussian",
    "gaussian_spend",
    "gdp_delta",
    "gdp_epsilon",
    "gdp_mu",
    "last_iterate",
    "network",
    "published",
    "register_rule",
    "rounds_affordable",
    "strongest_canary",
    "subsampling",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"hushpoint.privacy.{_HOMES[name]}"), name)
    if name in _MODULES:
        return import_module(f"hushpoint.privacy.{name}")
    raise AttributeError(f"module 'hushpoint.privacy' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
