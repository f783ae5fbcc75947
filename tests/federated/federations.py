"""Small federations for the tests, and a carrier that loses, delays or kills as a test asks it to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

import hushpoint as hp
from hushpoint.federated import (
    Client,
    MemoryStore,
    Reply,
    Request,
    Server,
    ServerStore,
    SiteStore,
    decode,
    encode,
    plan_digest,
)

SITES, FEATURES = 6, 4


def problem(weights="rows", loss="squared", clip=2.0, seed=0, **facts):
    """Six sites of three to eight rows, each with its own shift."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(SITES), rng.integers(3, 9, SITES))
    X = rng.normal(size=(len(groups), FEATURES)) + 0.3 * rng.normal(size=(SITES, FEATURES))[groups]
    y = X @ rng.normal(size=FEATURES) + 0.1 * rng.normal(size=len(groups))
    if loss == "logistic":
        y = np.sign(y)
    regularizer = facts.pop("regularizer", hp.regularizers.L2(0.05))
    return hp.Problem(
        X, y, loss=loss, regularizer=regularizer, row_norm=3.0, clip=clip, groups=groups, weights=weights, **facts
    )


def local(data, rounds=6, noise_std=0.5, **options):
    return hp.methods.federated_admm(data, rounds, 1.5, noise_std=noise_std, **options)


def anchored(data, rounds=6, noise_std=0.05, **options):
    return hp.methods.anchored_admm(data, rounds, 1.5, noise_std=noise_std, **options)


def asked(plan, round, site=0, known=0, point=None, token="", copy="", **more):
    """A request to a site, as bytes."""
    start = np.zeros(plan.operator.message_size)
    return encode(
        Request(plan_digest(plan), round, site, token, known, copy, start if point is None else point, **more)
    )


def said(client, request):
    """What a site answers."""
    return decode(client.answer(request), Reply)


class Federation:
    """A server and its sites on disk (or in memory), which can be built again as after a kill."""

    def __init__(self, plan, data, folder: Path | None = None, seed: int | None = 5, **options):
        self.plan, self.data, self.folder, self.seed, self.options = plan, data, folder, seed, options
        self.memory = {}
        if folder is not None:
            for site in range(plan.operator.blocks):
                if not (folder / str(site)).exists():
                    SiteStore.create(folder / str(site))
        self._server = None

    def store(self, site):
        if self.folder is not None:
            return SiteStore(self.folder / str(site))
        return self.memory.setdefault(site, MemoryStore())

    def client(self, site, **options):
        rows = self.data.rows.take(np.array([site]))
        return Client(self.plan, site, rows, self.store(site), **{"seed": self.seed, **options})

    @property
    def server(self):
        if self._server is None:
            store = ServerStore.in_memory() if self.folder is None else ServerStore(self.folder / "server")
            self._server = Server(self.plan, store, seed=self.seed, **self.options)
        return self._server

    def forget_server(self):
        """As after kill -9: what is not on the disk is gone."""
        if self._server is not None:
            self._server.store.close()
        self._server = None

    def ledger(self, site):
        return self.store(site).ledger()

    def round(self, carry: Callable[[int, bytes], bytes | None] = lambda site, reply: reply, available=None):
        """One attempt at a round; ``carry`` may change a reply or lose it. The record, or None without a quorum."""
        server = self.server
        waiting = server.open_round(range(SITES) if available is None else available)
        while waiting:
            verdicts = {}
            for site, request in waiting.items():
                reply = carry(site, self.client(site).answer(request))
                if reply is not None:
                    verdicts[site] = server.receive(site, reply)
            waiting = {site: verdict.again for site, verdict in verdicts.items() if verdict.again is not None}
        return server.close_round() if server.has_quorum else None

    def run(self, carry=lambda site, reply: reply):
        while not self.server.finished:
            self.round(carry)
        return self.server.model
