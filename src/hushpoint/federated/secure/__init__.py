"""Federations in which nobody is trusted with a message: every release is a sum of which nobody sees the parts.

A training is a chain of plans. Each step of each plan is a round of ``hushpoint.secure``: sites add noise to whole
numbers, the server opens their sum, and the next plan follows from what is
public by then (docs/privacy.md, section 12).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hushpoint._on_demand import on_demand

if TYPE_CHECKING:
    from hushpoint.federated.secure.covenant import Covenant
    from hushpoint.federated.secure.in_process import SecureResult, fit_across, run_secure
    from hushpoint.federated.secure.server import SecureServer
    from hushpoint.federated.secure.site import SecureSite

__all__ = ["Covenant", "SecureResult", "SecureServer", "SecureSite", "fit_across", "run_secure"]

__getattr__, __dir__ = on_demand(
    __name__,
    __all__,
    {
        "hushpoint.federated.secure.covenant": ["Covenant"],
        "hushpoint.federated.secure.in_process": ["SecureResult", "fit_across", "run_secure"],
        "hushpoint.federated.secure.server": ["SecureServer"],
        "hushpoint.federated.secure.site": ["SecureSite"],
    },
)
