"""The two apps that Flower runs: what ``app/app.py`` of a federation hands over."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hushpoint.federated.client import Client
from hushpoint.federated.ends import Outcome, told_at_site
from hushpoint.federated.farewell import is_farewell
from hushpoint.federated.flower import Answer, Rounds, client_app, hello_reply, is_hello, run_of_hello, server_app
from hushpoint.federated.folder import Federation, Site, is_secure
from hushpoint.federated.ledger import SiteStore
from hushpoint.federated.letters import WholeGrid
from hushpoint.federated.log import Log, now
from hushpoint.federated.note import SUPERLINK, leave_note
from hushpoint.federated.processes import end_with
from hushpoint.federated.record import ServerStore
from hushpoint.federated.server import RoundRecord, Server
from hushpoint.federated.table import headline, line_of
from hushpoint.federated.terms import sample_is_secret
from hushpoint.federated.watch import Watched
from hushpoint.federated.wire import Reply, decode

if TYPE_CHECKING:  # with secure sums come estimators and scikit-learn, which other sites need not hold
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

    from hushpoint.federated.secure.folder import SecureFederation
    from hushpoint.federated.secure.site import SecureSite
    from hushpoint.federated.secure.wire import Said

_FAREWELL = 15.0  # seconds in which sites may take the model; those that come later are handed it by the next run
_OVER = ("finished", "spent")  # ends after which there is no further round


def site_answer(site: Site, *, signed: bool = True, store: SiteStore | None = None, log: Log | None = None) -> Answer:
    """What a site answers to any bytes: who it is, or what its client says. The log is told what, and why."""
    client: Client | SecureSite
    read: Callable[[bytes], Reply | Said]
    tell = None if log is None else log.told
    if is_secure(site.folder):
        from hushpoint.federated.secure.folder import SecureSiteFolder
        from hushpoint.federated.secure.wire import decode_said

        client, signed = SecureSiteFolder(site).secure_site(store=store, tell=tell), True
        run, number, read = client.covenant.name, client.number, decode_said
    else:
        client = site.client(signed=signed, store=store, tell=tell)
        run, number, read = client.agreed.run, client.site, partial(decode, kind=Reply)
    answer = answering(client, run, number, site.own_key() if signed else None, tell)

    def told(payload: bytes) -> bytes:
        asked = now()  # when an answer is ready may tell of the data
        reply = answer(payload)
        if log is not None and is_hello(payload):
            log.greeted(run_of_hello(payload), run)
        elif log is not None and not is_farewell(payload):
            said = read(reply)
            log.answered(said.round, said.status, said.reason, asked)
        return reply

    return told


def answering(
    client: Client | SecureSite,
    run: str,
    number: int,
    key: EllipticCurvePrivateKey | None,
    tell: Callable[[str], None] | None,
) -> Answer:
    """The answers of a site that has agreed to a run."""

    def answer(payload: bytes) -> bytes:
        if not is_hello(payload):
            return client.answer(payload)
        if tell is not None and run_of_hello(payload) not in ("", run):
            tell(told_at_site("plan"))
        return hello_reply(payload, number, run, key)

    return answer


def conduct(federation: Federation, grid: Any, *, place: Path, signed: bool, tell: Callable[[str], None]) -> Outcome:
    """Run a federation over a grid of Flower, or go on with it; how it ended. At the end sites are handed the model."""
    if federation.is_secure:
        from hushpoint.federated.secure.folder import SecureFederation

        return conduct_secure(SecureFederation(federation), grid, place=place, tell=tell)
    agreed = federation.agreed()
    sites = federation.site_keys(agreed.plan.operator.blocks) if signed else None
    own = federation.own_key() if signed else None
    store = ServerStore(place)
    try:
        server = Server(agreed.plan, store, own_key=own, site_keys=sites, agreed=agreed, **federation.server_options())
        tell(headline())
        watched = Watched(server, place, discreet=sample_is_secret(agreed.plan))
        rounds = Rounds(cast(Server, watched), grid, federation.pace(), sites)
        watched.ask(rounds.directory)
        ended = finish(rounds, store, lambda record: tell(line_of(vars(record))))
        watched.end(ended.name, ended.words)
        return ended
    finally:
        store.close()


def finish(rounds: Rounds[Server], store: ServerStore, tell: Callable[[RoundRecord], None]) -> Outcome:
    """Conduct a run to its end, write how it ended, and hand every site that is there the model."""
    server = rounds.server
    name = rounds.conduct(tell)
    why = "" if name == "finished" else rounds.why
    counts = [
        f"by this server's count site {site} has taken part {int(server.state.accounted[site])} times at most"
        for site, reason in sorted(rounds.told.items())
        if reason in ("ledger", "old-ledger") and name != "finished"
    ]
    why = _joined(why, *counts)
    store.tell(server, name, why)
    if name in _OVER:
        why = _joined(why, _not_handed(rounds.part(server.farewell(name), _FAREWELL), server.sites))
    return Outcome(name, why)


def conduct_secure(federation: SecureFederation, grid: Any, *, place: Path, tell: Callable[[str], None]) -> Outcome:
    """The same with secure sums."""
    from hushpoint.federated.secure.outcome import write_model
    from hushpoint.federated.secure.record import SecureServerStore
    from hushpoint.federated.secure.server import SecureServer

    covenant, keys, store = federation.current(), federation.site_keys(), SecureServerStore(place)
    try:
        server = SecureServer(covenant, store, own_key=federation.base.own_key(), site_keys=keys)
        tell(headline())
        watched, learner = Watched(server, place), federation.learner(covenant)
        rounds = Rounds(cast(SecureServer, watched), grid, federation.base.pace(), keys)
        watched.ask(rounds.directory)

        def told(record: RoundRecord) -> None:
            store.tell(server, "running")
            write_model(server, learner, place / "model.json", "running")
            tell(line_of(vars(record)))

        name = rounds.conduct(told)
        why = "" if name == "finished" else rounds.why
        model = write_model(server, learner, place / "model.json", name)
        store.tell(server, name, why)
        if server.finished or name in _OVER:
            why = _joined(why, _not_handed(rounds.part(server.farewell(model), _FAREWELL), server.sites))
        watched.end(name, why)
    finally:
        store.close()
    return Outcome(name, why)


def _not_handed(taken: set[int], sites: int) -> str:
    """Which sites have not said that they have the model."""
    absent = sorted(set(range(sites)) - taken)
    if not absent:
        return ""
    return f"site {', '.join(map(str, absent))} did not take the model: start it, and run this again"


def _joined(*words: str) -> str:
    return "; ".join(part for part in words if part)


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
        ended = conduct(federation, WholeGrid(grid), place=place, signed=True, tell=_print)
    except ValueError as error:  # written by us, and without data
        ended = Outcome("refused", str(error))
    leave_note(place, ticket, ended.name, ended.words)
    if ended.name not in _OVER:
        raise RuntimeError(ended.sentence)


def _print(words: str) -> None:
    print(words, flush=True)


@lru_cache(maxsize=64)
def answer_at(folder: str, store: str | None = None) -> Answer:
    """``site_answer`` by name, made once a process; with a store elsewhere it is a simulation, and unsigned."""
    return site_answer(Site(Path(folder)), signed=store is None, store=None if store is None else SiteStore(store))


server = server_app(_serve)
client = client_app(lambda context: answer_at(str(context.node_config["folder"])))
