"""Sums of which nobody sees the parts: a round after Bonawitz et al. (2017), bytes in and bytes out (docs/secure.md).

Encoding, agreement and claims need nothing but NumPy; sites and servers need the extra ``secure``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hushpoint._on_demand import on_demand

if TYPE_CHECKING:
    from hushpoint.secure.agreement import Agreement, Roster, Terms
    from hushpoint.secure.claim import SecureClaim, calibrated
    from hushpoint.secure.encoding import Encoding
    from hushpoint.secure.packing import Refused, RoundFailed
    from hushpoint.secure.server import Opened, Server
    from hushpoint.secure.site import Site

__all__ = ["Agreement", "Encoding", "Opened", "Refused", "Roster", "RoundFailed", "SecureClaim", "Server", "Site"]
__all__ += ["Terms", "calibrated"]

__getattr__, __dir__ = on_demand(
    __name__,
    __all__,
    {
        "hushpoint.secure.agreement": ["Agreement", "Roster", "Terms"],
        "hushpoint.secure.claim": ["SecureClaim", "calibrated"],
        "hushpoint.secure.encoding": ["Encoding"],
        "hushpoint.secure.packing": ["Refused", "RoundFailed"],
        "hushpoint.secure.server": ["Opened", "Server"],
        "hushpoint.secure.site": ["Site"],
    },
)
