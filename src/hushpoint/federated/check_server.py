"""A server before a run: settings, keys, roster, agreement, certificate, disk, clock, address."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from hushpoint.federated.check import (
    RENEWAL,
    Line,
    Wrong,
    certificate_line,
    folder_line,
    looked,
    own_clock,
    secret_file,
    versions_line,
)
from hushpoint.federated.folder import Federation, Site
from hushpoint.federated.health import health_address
from hushpoint.federated.log import now
from hushpoint.federated.reach import Trouble, host_and_port, reach
from hushpoint.federated.secure.folder import SecureFederation, read_covenant

_EVERYWHERE = ("0.0.0.0", "::")


def check_server(federation: Federation, *, offline: bool = False, clock: Callable[[], datetime] = now) -> list[Line]:
    """Every look at the folder of a server; ``offline`` opens no socket."""
    keys = federation.keys
    lines = [
        looked("settings", lambda: _settings(federation)),
        versions_line(),
        looked("keys", lambda: _keys(federation)),
        looked("roster", lambda: _roster(federation)),
        looked("agreement", lambda: _agreement(federation)),
        looked("run", lambda: _run(federation)),
        folder_line(federation.folder),
        certificate_line([keys / "ca.crt", keys / "server.crt"], clock, RENEWAL),
        looked("clock", lambda: _clock(federation, clock)),
    ]
    return lines if offline else [*lines, looked("address", lambda: _address(federation))]


def _settings(federation: Federation) -> str:
    settings, pace = federation.server(), federation.pace()
    health_address(settings.get("health"))
    if pace.resend_after > pace.round_timeout:
        raise Wrong("resend_after is longer than round_timeout", "A silent site is then never asked again: lower it.")
    if "validation" in settings and not (federation.folder / str(settings["validation"])).is_file():
        raise Wrong("there is no file of the name that validation gives", "Put it there, or correct server.toml.")
    if federation.seed is not None:
        raise Wrong("[testing] has a seed: anyone can compute the noise", "Remove it, unless this is a test.")
    return f"{federation.count} sites, {'secure sums' if federation.is_secure else 'a plan'}"


def _keys(federation: Federation) -> str:
    from hushpoint.federated.keys import certificate_fault, load_public

    for name in ("signing.key", "server.key"):
        secret_file(federation.keys / name)
    if load_public(federation.keys / "signing.pub") != federation.own_key().public_key():
        raise Wrong("signing.pub is not of signing.key", "Restore the pair: sites believe the key that they have.")
    host, _ = host_and_port(federation.address)
    fault = certificate_fault(federation.keys, "127.0.0.1" if host in _EVERYWHERE else host)
    if fault:
        raise Wrong(fault, RENEWAL)
    return "there, for this user alone, and matching"


def _roster(federation: Federation) -> str:
    count = federation.count
    if federation.is_secure:
        SecureFederation(federation).roster()
    keys = Counter(key.public_numbers() for key in federation.site_keys(count))
    if len(keys) != count:
        raise Wrong("two sites have the same key", "A folder was handed out twice: make new keys at one of them.")
    return f"the keys of {count} sites are here, each another one"


def _agreement(federation: Federation) -> str:
    if federation.is_secure:
        secure = SecureFederation(federation)
        covenant = secure.covenant()
        if not secure.is_as_made():
            raise Wrong(
                "federation.toml, schema.toml or a key has changed since covenant.json was made",
                f"Undo that, or agree anew: hushpoint federated plan {federation.folder}",
            )
        _require_same(federation, lambda folder: read_covenant(folder / "covenant.json").digest == covenant.digest)
        return f"covenant {covenant.fingerprint}"
    name = federation.agreed().run
    _require_same(federation, lambda folder: Site(folder).agreed().run == name)
    return f"run {name}"


def _require_same(federation: Federation, same: Callable[[Path], bool]) -> None:
    """Sites whose folders are here have the same agreement; those elsewhere say so when they come."""
    for site in range(federation.count):
        folder = federation.site(site, federation.count)
        if folder.exists() and not same(folder):
            words = f"the folder of site {site} has another agreement"
            raise Wrong(words, f"Hand it out again: hushpoint federated plan {federation.folder}")


def _run(federation: Federation) -> str:
    """Whether what is in run/ is of this agreement: a server goes on with no other."""
    secure = federation.is_secure
    name = SecureFederation(federation).covenant().name if secure else federation.agreed().run
    try:
        record = json.loads((federation.run / "run.json").read_text(encoding="utf-8"))
        found, status = record["run"], str(record["status"])
    except (OSError, ValueError, KeyError, TypeError):
        return "not begun"
    if found != name:
        words = f"{federation.run} holds a run of another agreement"
        raise Wrong(words, "Move it away: what was spent there stays counted at the sites.")
    return status


def _clock(federation: Federation, clock: Callable[[], datetime]) -> str:
    run = federation.run
    own_clock([federation.keys / "server.crt", run / "rounds.jsonl", run / "server.npz", run / "run.json"], clock)
    return "not behind what was written here"


def _address(federation: Federation) -> str:
    """Whether the SuperLink is there, or could be."""
    host, port = host_and_port(federation.bind)
    found = reach(federation.here, federation.keys / "ca.crt")
    if not isinstance(found, Trouble):
        return f"the SuperLink is at {federation.bind}; sites call {federation.address}"
    if found.code != "unreachable":
        raise Wrong(f"at {federation.here} there is something else: {found.words}", found.remedy)
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        words = f"nobody can listen at {federation.bind}: {error.strerror}"
        raise Wrong(words, "Correct bind in server.toml (address is what sites call), or end what is there.") from None
    return f"{federation.bind} is free for the SuperLink; sites call {federation.address}"
