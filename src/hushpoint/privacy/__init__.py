"""Privacy: guarantees, their accounting and calibration, and the oracles that check them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hushpoint._on_demand import on_demand

if TYPE_CHECKING:
    from hushpoint.privacy import gaussian, last_iterate, network, published, subsampling
    from hushpoint.privacy.accounting import Question, Spend, account, gaussian_spend, register_rule
    from hushpoint.privacy.auditor import AuditReport, audit, strongest_canary
    from hushpoint.privacy.calibration import calibrated_std, rounds_affordable
    from hushpoint.privacy.exact import exact_mu, exact_rdp
    from hushpoint.privacy.gaussian import gdp_delta, gdp_epsilon, gdp_mu
    from hushpoint.privacy.guarantee import Budget, Guarantee, compose
    from hushpoint.privacy.promises import broken_promises

__all__ = ["AuditReport", "Budget", "Guarantee", "Question", "Spend"]
__all__ += ["account", "audit", "broken_promises", "calibrated_std", "compose", "exact_mu", "exact_rdp"]
__all__ += ["gaussian_spend", "gdp_delta", "gdp_epsilon", "gdp_mu", "register_rule", "rounds_affordable"]
__all__ += ["strongest_canary"]
__all__ += ["gaussian", "last_iterate", "network", "published", "subsampling"]

__getattr__, __dir__ = on_demand(
    __name__,
    __all__,
    {
        "hushpoint.privacy.accounting": ["Question", "Spend", "account", "gaussian_spend", "register_rule"],
        "hushpoint.privacy.auditor": ["AuditReport", "audit", "strongest_canary"],
        "hushpoint.privacy.calibration": ["calibrated_std", "rounds_affordable"],
        "hushpoint.privacy.exact": ["exact_mu", "exact_rdp"],
        "hushpoint.privacy.gaussian": ["gdp_delta", "gdp_epsilon", "gdp_mu"],
        "hushpoint.privacy.guarantee": ["Budget", "Guarantee", "compose"],
        "hushpoint.privacy.promises": ["broken_promises"],
    },
)
