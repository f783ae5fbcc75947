"""A federation with secure sums inside one process: the same server and sites, and nothing between them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hushpoint.estimators.training import Found
from hushpoint.federated.in_process import site_store
from hushpoint.federated.secure.covenant import Covenant
from hushpoint.federated.secure.record import SecureServerStore
from hushpoint.federated.secure.run import run_to_end
from hushpoint.federated.secure.server import SecureServer
from hushpoint.federated.secure.site import SecureSite, SiteData
from hushpoint.federated.secure.store import InMemory, SecureStore
from hushpoint.federated.server import RoundRecord
from hushpoint.noise import source_for
from hushpoint.privacy.guarantee import Guarantee
from hushpoint.secure.agreement import Agreement, Roster
from hushpoint.secure.primitives import signing_public


@dataclass(frozen=True)
class SecureResult:
    """What a federation found, what it cost, and the log of its rounds."""

    found: Found | None
    guarantee: Guarantee
    rounds: list[RoundRecord]
    server: SecureServer
    sites: list[SecureSite]


def agreement_of(
    count: int, run: str, *, survivors: int | None = None, colluders: int = 1
) -> tuple[Agreement, list[bytes]]:
    """An agreement among sites of one process, and their private keys."""
    keys = [os.urandom(32) for _ in range(count)]
    roster = Roster(tuple((f"site {k}", signing_public(key)) for k, key in enumerate(keys)))
    return Agreement(run, roster, count if survivors is None else survivors, colluders), keys


def run_secure(
    covenant: Covenant,
    data: Sequence[SiteData],
    keys: Sequence[bytes],
    *,
    directory: str | Path | None = None,
    seed: int | None = None,
    callback: Callable[[RoundRecord], Any] | None = None,
) -> SecureResult:
    """Run a covenant with a server and all of its sites.

    Parameters
    ----------
    data : sequence of SiteData
        The rows of each site.
    keys : sequence of bytes
        The private key of each.
    directory : path, optional
        Where server and sites keep their files; None keeps them in memory.
    seed : int, optional
        For experiments: the noise follows from it.
    callback : callable, optional
        Called with the record of every round.
    """
    place = None if directory is None else Path(directory)
    server = SecureServer(
        covenant, SecureServerStore.in_memory() if place is None else SecureServerStore(place / "run")
    )
    stores = [InMemory() if place is None else SecureStore(site_store(place, site)) for site in range(covenant.sites)]
    sites = [
        SecureSite(covenant, site, data[site], stores[site], keys[site], seed=None if seed is None else seed + site)
        for site in range(covenant.sites)
    ]
    records: list[RoundRecord] = []

    def told(record: RoundRecord) -> None:
        records.append(record)
        if callback is not None:
            callback(record)

    run_to_end(server, sites, told)
    for site, request in server.farewell(b"").items():
        sites[site].answer(request)
    server.store.close()
    words = source_for(seed).describe() if seed is not None else "noise drawn by each site itself"
    return SecureResult(server.found, replace(server.guarantee(), source=words), records, server, sites)
