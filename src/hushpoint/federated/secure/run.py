"""The rounds of a server and its sites in one process: requests and replies go from hand to hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hushpoint.federated.secure.server import SecureServer
from hushpoint.federated.secure.site import SecureSite
from hushpoint.federated.server import RoundRecord


def run_to_end(server: SecureServer, sites: Sequence[SecureSite], tell: Callable[[RoundRecord], Any]) -> None:
    """Run until the chain is at its end, or nothing more may be asked; an error where too few sites answer."""
    while not server.finished:
        waiting = server.open_round(range(len(sites)))
        while waiting:
            replies = {site: sites[site].answer(request) for site, request in waiting.items()}
            verdicts = {site: server.receive(site, reply) for site, reply in replies.items()}
            waiting = {site: verdict.again for site, verdict in verdicts.items() if verdict.again is not None}
        if not server.has_quorum:
            said = {**server.record.declined, **server.record.refused}
            raise ValueError(
                f"too few sites have answered: {', '.join(f'site {k} ({why})' for k, why in said.items())}."
            )
        record = server.close_round()
        if record is not None:
            tell(record)
