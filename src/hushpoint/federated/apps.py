"""The two apps that Flower runs: what ``app/app.py`` of a federation hands over."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hushpoint.federated.client import Client
from hushpoint.federated.flower import (
    Answer,
    Conducted,
    Rounds,
    client_app,
    hello_reply,
    is_hello,
    run_of_hello,
    server_app,
)
from hushpoint.federated.folder import Federation, Site, is_secure
from hushpoint.federated.ledger import SiteStore
from hushpoint.federated.letters import WholeGrid
from hushpoint.federated.log import Log, now
from hushpoint.federated.note import SUPERLINK, leave_note
from hushpoint.federated.processes import end_with
from hushpoint.federated.record import ServerStore
from hushpoint.federated.server import RoundRecord, Server
from hushpoint.federated.table import headline, line_of
from hushpoint.federated.terms import plan_digest, sample_is_secret
from hushpoint.federated.watch import Watched
from hushpoint.federated.wire import Reply, decode

if TYPE_CHECKING:  # with secure sums come estimators and scikit-learn, which other sites need not hold
    from hushpoint.federated.secure.folder import SecureFederation
    from hushpoint.federated.secure.site import SecureSite
    from hushpoint.federated.secure.wire import Said

_FAREWELL = 15.0  # seconds in which sites may take the model; later ones ask whoever has it


def site_answer(site: Site, *, signed: bool = True, store: SiteStore | None = None, log: Log | None = None) -> Answer:
    """What a site answers to any bytes: who it is, or what its client says."""
    client: Client | SecureSite
    read: Callable[[bytes], Reply | Said]
    if is_secure(site.folder):
        from hushpoint.federated.secure.folder import SecureSiteFolder
        from hushpoint.federated.secure.wire import decode_said

        client, signed = SecureSiteFolder(site).secure_site(store=store), True
        run, number, read = client.covenant.name, client.number, decode_said
    else:
        client = site.client(signed=signed, store=store)
        run, number, read = plan_digest(client.plan), client.site, partial(decode, kind=Reply)
    key = site.own_key() if signed else None

    def answer(payload: bytes) -> bytes:
        if is_hello(payload):
            if log is not None:
                log.greeted(run_of_hello(payload), run)
            return hello_reply(payload, number, run, key)
        asked = now()  # when an answer is ready may tell of the data
        reply = client.answer(payload)
        if log is not None:
            said = read(reply)
            log.answered(said.round, said.status, said.reason, asked)
        return reply

    return answer


def conduct(federation: Federation, grid: Any, *, place: Path, signed: bool, tell: Callable[[str], None]) -> str:
    """Run a federation over a grid of Flower, or go on with it; how it ended."""
    if federation.is_secure:
        from hushpoint.federated.secure.folder import SecureFederation

        return conduct_secure(SecureFederation(federation), grid, place=place, tell=tell)
    plan = federation.plan()
    sites = federation.site_keys(plan.operator.blocks) if signed else None
    own = federation.own_key() if signed else None
    store = ServerStore(place)
    try:
        server = Server(plan, store, own_key=own, site_keys=sites, **federation.server_options())
        tell(headline())
        watched = Watched(server, place, discreet=sample_is_secret(plan))
        rounds = Rounds(cast(Conducted, watched), grid, federation.pace(), sites)
        watched.ask(rounds.directory)
        outcome = rounds.conduct(lambda record: tell(line_of(vars(record))))
        watched.end(outcome)
        store.tell(server)
    finally:
        store.close()
    return outcome


def conduct_secure(federation: SecureFederation, grid: Any, *, place: Path, tell: Callable[[str], None]) -> str:
    """The same with secure sums; at the end every site is handed the model."""
    from hushpoint.federated.secure.outcome import write_model
    from hushpoint.federated.secure.record import SecureServerStore
    from hushpoint.federated.secure.server import SecureServer

    covenant, keys, store = federation.covenant(), federation.site_keys(), SecureServerStore(place)
    try:
        server = SecureServer(covenant, store, own_key=federation.base.own_key(), site_keys=keys)
        tell(headline())
        watched = Watched(server, place)
        rounds = Rounds(cast(Conducted, watched), grid, federation.base.pace(), keys)
        watched.ask(rounds.directory)

        def told(record: RoundRecord) -> None:
            store.tell(server, "running")
            tell(line_of(vars(record)))

        outcome = rounds.conduct(told)
        watched.end(outcome)
        model = write_model(server, federation.learner(covenant), place / "model.json")
        store.tell(server, outcome)
        if server.finished:
            rounds.part(server.farewell(model), _FAREWELL)
    finally:
        store.close()
    return outcome


def _end_with_superlink() -> None:
    """End when the SuperLink is killed. Flower would try to reach it for ever, unless a chain of signals arrives.

    Nothing is lost: whatever the server has done is on disk before it goes on.
    """
    superlink = os.environ.get(SUPERLINK)
    if superlink:  # a SuperLink that was started by hand is its owner's to watch
        end_with(int(superlink))


def _serve(grid: Any, context: Any) -> None:
    _end_with_superlink()
    federation = Federation(Path(str(context.run_config["folder"])))
    place, ticket = federation.run, str(context.run_config["ticket"])
    leave_note(place, ticket)
    try:
        outcome, words = conduct(federation, WholeGrid(grid), place=place, signed=True, tell=_print), ""
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
