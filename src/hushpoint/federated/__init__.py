"""Federated training: one server and its sites, in process or on Flower, written once.

A plan says what all agree on; a ``Client`` keeps a site's data, block and ledger; a ``Server`` asks, combines and
releases. Both take and give bytes, so that whatever carries them (a loop, Flower's simulation, Flower's deployment)
cannot change what is computed or counted.
"""

from hushpoint.federated import secure
from hushpoint.federated.client import Client, Window, site_rows
from hushpoint.federated.in_process import FederatedResult, run_in_process
from hushpoint.federated.ledger import Ledger, MemoryStore, Participation, SiteStore
from hushpoint.federated.record import ServerStore
from hushpoint.federated.server import RoundRecord, Server, Verdict
from hushpoint.federated.terms import plan_digest, spent
from hushpoint.federated.wire import Refused, Reply, Request, decode, encode

__all__ = [
    "Client",
    "FederatedResult",
    "Ledger",
    "MemoryStore",
    "Participation",
    "Refused",
    "Reply",
    "Request",
    "RoundRecord",
    "Server",
    "ServerStore",
    "SiteStore",
    "Verdict",
    "Window",
    "decode",
    "encode",
    "plan_digest",
    "run_in_process",
    "secure",
    "site_rows",
    "spent",
]
