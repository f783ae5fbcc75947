"""Rounds of secure sums in process, reproducible, with whatever may go wrong."""

from __future__ import annotations

import random

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="needs the extra 'secure'")

from hushpoint.secure import Agreement, Roster, Server, Site, Terms
from hushpoint.secure.primitives import signing_public

PLAN, POINT = b"plan".ljust(32), b"point".ljust(32)


class Sites:
    """Sites of one agreement with seeded randomness, and the states that each of them kept."""

    def __init__(self, n, survivors, colluders=1, *, seed=0, threshold=None, run="run"):
        draws = random.Random(seed)
        self.signing = [draws.randbytes(32) for _ in range(n)]
        roster = Roster(tuple((f"site {k}", signing_public(key)) for k, key in enumerate(self.signing)))
        self.agreement = Agreement(run, roster, survivors, colluders, threshold)
        self.kept = [[] for _ in range(n)]
        self.random = [random.Random(seed * 1000 + k + 1).randbytes for k in range(n)]
        self.sites = [self.site(k) for k in range(n)]

    def site(self, k, **options):
        return Site(self.agreement, k, self.signing[k], self.kept[k].append, random=self.random[k], **options)

    def restored(self, k, state, **options):
        return Site.restored(
            state, self.agreement, self.signing[k], self.kept[k].append, random=self.random[k], **options
        )

    def terms(self, number=1, length=3, plan=PLAN, point=POINT):
        return Terms(self.agreement, number, plan, point, length)

    def __len__(self):
        return len(self.sites)


def answer(site, kind, request, message):
    """What a site answers to a request of the server."""
    if kind == "masked":
        return site.mask(request, lambda: message)
    return {"shares": site.share, "survivors": site.sign, "reveal": site.reveal}[kind](request)


def advertised(sites, terms, absent=()):
    """A server that has the keys of all sites but some."""
    server = Server(terms)
    for site in sites.sites:
        if site.number not in absent:
            server.take(site.advertise(terms))
    return server


def played(sites, terms, messages, absent=None, until=None):
    """A round in which sites vanish from the exchange named on; the server after it, or before an exchange."""
    absent, gone = absent or {}, set()
    gone |= set(absent.get("keys", ()))
    server = advertised(sites, terms, gone)
    while server.kind != "reveal":
        requests = server.requests()
        if server.kind == until:
            return server, requests
        gone |= set(absent.get(server.kind, ()))
        for k in requests:
            if k not in gone:
                server.take(answer(sites.sites[k], server.kind, requests[k], messages[k]))
    return server


def messages_for(n, length=3, seed=0):
    return np.random.default_rng(seed).integers(0, 1 << 64, size=(n, length), dtype=np.uint64)
