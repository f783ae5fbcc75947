"""The two apps that Flower runs: what ``app/app.py`` of a federation hands over."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from hushpoint.federated.flower import Answer, Rounds, client_app, hello_reply, is_hello, server_app
from hushpoint.federated.folder import Federation, Site
from hushpoint.federated.ledger import SiteStore
from hushpoint.federated.note import SUPERLINK, leave_note
from hushpoint.federated.processes import end_with
from hushpoint.federated.record import ServerStore
from hushpoint.federated.server import Server
from hushpoint.federated.table import headline, line_of
from hushpoint.federated.terms import plan_digest


def site_answer(site: Site, *, signed: bool = True, store: SiteStore | None = None) -> Answer:
    """What a site answers to any bytes: who it is, or what its client says."""
    client = site.client(signed=signed, store=store)
    key, run = site.own_key() if signed else None, plan_digest(client.plan)

    def answer(payload: bytes) -> bytes:
        if is_hello(payload):
            return hello_reply(payload, client.site, run, key)
        return client.answer(payload)

    return answer


def conduct(federation: Federation, grid: Any, *, place: Path, signed: bool, tell: Callable[[str], None]) -> str:
    """Run a federation over a grid of Flower, or go on with it; how it ended."""
    plan = federation.plan()
    sites = federation.site_keys(plan.operator.blocks) if signed else None
    own = federation.own_key() if signed else None
    store = ServerStore(place)
    try:
        server = Server(plan, store, own_key=own, site_keys=sites, **federation.server_options())
        tell(headline())
        outcome = Rounds(server, grid, federation.pace(), sites).conduct(lambda record: tell(line_of(vars(record))))
        store.tell(server)
    finally:
        store.close()
    return outcome


def _wait_briefly() -> None:
    """Keep Flower from waiting for minutes for the rest of one reply: its site may have been killed while it sent it.

    All others would wait as well, however short ``round_timeout`` is. The site is asked again.
    """
    from flwr.supercore.inflatable.inflatable_utils import pull_objects
    from flwr.superlink.grid import http_grid

    module: Any = http_grid
    module.pull_objects = partial(pull_objects, max_time=5.0, initial_backoff=0.1, backoff_cap=0.5)


def _end_with_superlink() -> None:
    """End when the SuperLink is killed. Flower would try to reach it for ever, unless a chain of signals arrives.

    Nothing is lost: whatever the server has done is on disk before it goes on.
    """
    superlink = os.environ.get(SUPERLINK)
    if superlink:  # a SuperLink that was started by hand is its owner's to watch
        end_with(int(superlink))


def _serve(grid: Any, context: Any) -> None:
    _end_with_superlink()
    _wait_briefly()
    federation = Federation(Path(str(context.run_config["folder"])))
    place, ticket = federation.run, str(context.run_config["ticket"])
    leave_note(place, ticket)
    try:
        outcome, words = conduct(federation, grid, place=place, signed=True, tell=_print), ""
    except ValueError as error:  # written by us, and without data
        outcome, words = "refused", str(error)
    leave_note(place, ticket, outcome, words)
    if outcome not in ("finished", "spent"):
        raise RuntimeError(f"the run {outcome}. {words}")


def _print(words: str) -> None:
    print(words, flush=True)


@lru_cache(maxsize=64)
def answer_at(folder: str, store: str | None = None) -> Answer:
    """``site_answer`` by name, made once a process; with a store elsewhere it is a simulation, and unsigned."""
    return site_answer(Site(Path(folder)), signed=store is None, store=None if store is None else SiteStore(store))


server = server_app(_serve)
client = client_app(lambda context: answer_at(str(context.node_config["folder"])))
