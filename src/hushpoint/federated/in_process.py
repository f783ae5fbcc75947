"""A whole federation inside one process: the same server and sites, and nothing between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hushpoint._types import Array, Indices
from hushpoint.federated.client import Client
from hushpoint.federated.crowd import Crowd
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
    participations: Indices  # of each site, by its own count


def run_in_process(
    plan: Plan,
    problem: Problem,
    *,
    seed: int | None = None,
    directory: str | Path | None = None,
    quorum: float = 1.0,
    validation: Problem | None = None,
    callback: Callable[[RoundRecord], Any] | None = None,
    apart: bool | None = None,
) -> FederatedResult:
    """Run a plan with a server and one site for each item of the problem.

    Parameters
    ----------
    plan, problem
        A plan of ``federated_admm``, ``anchored_admm``, ``dp_sgd`` or ``dp_fedavg``, and the data of all sites.
    seed : int, optional
        For experiments; the model is then that of ``plan.run(seed, kernel="plain")``, to rounding and on the lattice
        to the bit.
    directory : path, optional
        Where server and sites keep their files; None keeps them in memory.
    quorum, validation
        As in ``Server``.
    callback : callable, optional
        Called with the record of every round.
    apart : bool, optional
        Whether every site is a ``Client`` of its own, with a ledger, that gets and gives bytes as when it is deployed.
        By default it is with a directory; without one all sites move together, which is much faster for many.
    """
    place = None if directory is None else Path(directory)
    if apart is False and place is not None:
        raise ValueError("apart is False and directory is given. Files are those of single sites: drop one of the two.")
    store = ServerStore.in_memory() if place is None else ServerStore(place / "run")
    server = Server(plan, store, seed=seed, quorum=quorum, validation=validation)
    one_by_one = place is not None if apart is None else apart
    sites = _Apart(plan, problem, place, seed) if one_by_one else _Together(plan, problem, seed)
    records = []
    while not server.finished:
        sites.answer(server)
        if not server.has_quorum and server.abandon_round():
            continue
        records.append(server.close_round())
        if callback is not None:
            callback(records[-1])
    server.store.close()
    return FederatedResult(server.model, server.guarantees(), records, server, sites.participations)


class _Apart:
    """Every site by itself."""

    def __init__(self, plan: Plan, problem: Problem, place: Path | None, seed: int | None) -> None:
        self._everyone = range(plan.operator.blocks)
        self._clients = [
            Client(plan, site, problem.rows.take(np.array([site])), site_store(place, site), seed=seed)
            for site in self._everyone
        ]

    def answer(self, server: Server) -> None:
        """A round, answered."""
        waiting = server.open_round(self._everyone)
        while waiting:
            replies = {site: self._clients[site].answer(request) for site, request in waiting.items()}
            verdicts = {site: server.receive(site, reply) for site, reply in replies.items()}
            waiting = {site: verdict.again for site, verdict in verdicts.items() if verdict.again is not None}

    @property
    def participations(self) -> Indices:
        """By their ledgers."""
        return np.array([len(client.store.ledger().entries) for client in self._clients], dtype=np.int64)


class _Together:
    """All sites at once."""

    def __init__(self, plan: Plan, problem: Problem, seed: int | None) -> None:
        self._crowd = Crowd(plan, problem.rows, seed)

    def answer(self, server: Server) -> None:
        """A round, answered."""
        asked = server.ask()
        moved, messages = self._crowd.move(
            asked, server.state.rounds, server.plan.operator.release(server.state.public)
        )
        server.receive_all(moved, messages, self._crowd.participations[moved])

    @property
    def participations(self) -> Indices:
        """By their own count."""
        return self._crowd.participations


def site_store(place: Path | None, site: int) -> SiteStore:
    """The ledger of a site in a run on one machine; that of its own folder is for runs in earnest."""
    if place is None:
        return MemoryStore()
    folder = place / "sites" / f"{site:04d}"
    return SiteStore(folder) if folder.exists() else SiteStore.create(folder)
