"""A whole federation inside one process: the same server and sites, and nothing between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hushpoint._types import Array
from hushpoint.federated.agreed import Agreed
from hushpoint.federated.client import Client
from hushpoint.federated.ledger import MemoryStore, SiteStore
from hushpoint.federated.record import ServerStore
from hushpoint.federated.server import RoundRecord, Server
from hushpoint.plan import Plan
from hushpoint.privacy.guarantee import Guarantee
from hushpoint.problem import Problem


@dataclass(frozen=True)
class FederatedResult:
    """The model that a federation made, what it cost, and the log of its rounds."""

    model: Array
    guarantees: list[Guarantee]
    rounds: list[RoundRecord]
    server: Server
    clients: list[Client]


def run_in_process(
    plan: Plan,
    problem: Problem,
    *,
    seed: int | None = None,
    directory: str | Path | None = None,
    quorum: float = 1.0,
    validation: Problem | None = None,
    callback: Callable[[RoundRecord], Any] | None = None,
    agreed: Agreed | None = None,
) -> FederatedResult:
    """Run a plan with a server and one client for each item of the problem.

    Parameters
    ----------
    plan, problem
        A plan of ``federated_admm``, ``anchored_admm``, ``dp_sgd`` or ``dp_fedavg``, and the data of all sites.
    seed : int, optional
        For experiments; the model is then that of ``plan.run(seed)``, to rounding and on the lattice to the bit.
    directory : path, optional
        Where server and sites keep their files; None keeps them in memory.
    quorum, validation
        As in ``Server``.
    callback : callable, optional
        Called with the record of every round.
    agreed : Agreed, optional
        The schema of tables and the name of the run, where the plan is of a folder.
    """
    place = None if directory is None else Path(directory)
    server = Server(
        plan,
        ServerStore.in_memory() if place is None else ServerStore(place / "run"),
        seed=seed,
        quorum=quorum,
        validation=validation,
        agreed=agreed,
    )
    everyone = range(plan.operator.blocks)
    clients = [
        Client(plan, site, problem.rows.take(np.array([site])), site_store(place, site), seed=seed, agreed=agreed)
        for site in everyone
    ]
    records = []
    while not server.finished:
        waiting = server.open_round(everyone)
        while waiting:
            replies = {site: clients[site].answer(request) for site, request in waiting.items()}
            verdicts = {site: server.receive(site, reply) for site, reply in replies.items()}
            waiting = {site: verdict.again for site, verdict in verdicts.items() if verdict.again is not None}
        if not server.has_quorum and server.abandon_round():
            continue
        records.append(server.close_round())
        if callback is not None:
            callback(records[-1])
    if place is not None:
        for site, letter in server.farewell(server.status).items():
            clients[site].answer(letter)
    server.store.close()
    return FederatedResult(server.model, server.guarantees(), records, server, clients)


def site_store(place: Path | None, site: int) -> SiteStore:
    """The ledger of a site in a run on one machine; that of its own folder is for runs in earnest."""
    if place is None:
        return MemoryStore()
    folder = place / "sites" / f"{site:04d}"
    return SiteStore(folder) if folder.exists() else SiteStore.create(folder)
