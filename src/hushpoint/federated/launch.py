"""Flower's commands with the settings that work offline, on the folder of a federation."""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hushpoint.federated.disk import read_lines
from hushpoint.federated.folder import Federation, Outcome, Site
from hushpoint.federated.health import watch_over
from hushpoint.federated.in_process import run_in_process, site_store
from hushpoint.federated.note import SUPERLINK, Note, note_path, read_note
from hushpoint.federated.secure.rehearsal import rehearsal, rehearse
from hushpoint.federated.watch import events
from hushpoint.problem import Problem
from hushpoint.rows import ArrayRows, Rows

_CONNECTION = "hushpoint"

_APP = '''\
"""The Flower app of this federation. Hushpoint does the work; Flower carries the bytes."""

from hushpoint.federated.apps import client, server

__all__ = ["client", "server"]
'''

_PROJECT = """\
[project]
name = "hushpoint-federation"
version = "1.0.0"
description = "Private federated training with Hushpoint"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "hushpoint"

[tool.flwr.app.components]
serverapp = "app:server"
clientapp = "app:client"

[tool.flwr.app.config]
folder = ""
ticket = ""
"""


def write_app(federation: Federation) -> None:
    """The app that Flower is handed, and where it finds the SuperLink."""
    for name, text in (("app.py", _APP), ("pyproject.toml", _PROJECT)):
        federation.app.mkdir(parents=True, exist_ok=True)
        (federation.app / name).write_text(text, encoding="utf-8")


def environment(home: Path) -> dict[str, str]:
    """The caller's environment, with Flower kept from phoning home and from looking elsewhere for its settings."""
    return {
        **os.environ,
        "FLWR_HOME": str(home.resolve()),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.25",
        "UV_OFFLINE": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    }


def serve_superlink(federation: Federation, tell: Callable[[str], None]) -> None:
    """Run Flower's SuperLink in this process, with TLS, known sites only, and its control closed to other machines.

    It keeps its state in memory: messages never touch its disk, and after a crash the sites join again by themselves.
    """
    _prepare(federation)
    os.environ.update({**environment(federation.flower), SUPERLINK: str(os.getpid())})
    from flwr.superlink import main
    from flwr.superlink.cli import flower_superlink

    host, _, port = federation.address.rpartition(":")
    keys = federation.keys
    sys.argv = [
        "flower-superlink",
        *("--host", host.strip("[]"), "--port", port),
        *("--ssl-ca-certfile", str(keys / "ca.crt")),
        *("--ssl-certfile", str(keys / "server.crt"), "--ssl-keyfile", str(keys / "server.key")),
        "--enable-supernode-auth",
        "--disable-runtime-dependency-installation",
    ]
    module: Any = main
    create = module.create_app
    module.create_app = lambda *args, **options: OwnHostOnly(create(*args, **options))
    threading.Thread(target=_register, args=(federation, tell), daemon=True).start()
    watch_over(federation)
    flower_superlink()


class OwnHostOnly:
    """Let other machines reach only what sites need.

    Whoever reaches Flower's control interface can register nodes and start programs on the server, and the interface
    asks for no password; it shares its port with the one that sites use.
    """

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan" or _is_for_sites(scope) or _is_own_host(scope):
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await send({"type": "http.response.start", "status": 403, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            await send({"type": "websocket.close"})


def _is_for_sites(scope: Any) -> bool:
    path = scope.get("path", "")
    return scope["type"] == "http" and path.startswith("/v1/fleet/") and ".." not in path


def _is_own_host(scope: Any) -> bool:
    client, server = scope.get("client"), scope.get("server")
    if not client:
        return False
    return client[0] in ("127.0.0.1", "::1") or (server is not None and client[0] == server[0])


def _prepare(federation: Federation) -> None:
    from hushpoint.federated.keys import load_private

    if not federation.is_secure:
        federation.agreed()
    load_private(federation.keys / "signing.key")
    federation.site_keys(federation.count)
    federation.flower.mkdir(parents=True, exist_ok=True)
    write_app(federation)
    _write_connection(federation)


def _here(federation: Federation) -> str:
    """The address of the SuperLink as this machine calls it."""
    host, _, port = federation.address.rpartition(":")
    return f"{'127.0.0.1' if host in ('0.0.0.0', '[::]') else host}:{port}"


def _write_connection(federation: Federation) -> None:
    text = (
        f"[superlink]\ndefault = {json.dumps(_CONNECTION)}\n\n[superlink.{_CONNECTION}]\n"
        f"address = {json.dumps(_here(federation))}\n"
        f"root-certificates = {json.dumps(str((federation.keys / 'ca.crt').resolve()))}\n"
    )
    (federation.flower / "config.toml").write_text(text, encoding="utf-8")


def _register(federation: Federation, tell: Callable[[str], None]) -> None:
    """Make the keys of the roster known to the SuperLink, as soon as it is up; again where a key was added."""
    import httpx
    from flwr.proto.control_pb2 import RegisterNodeRequest
    from flwr.supercore.control import ControlHttpClient
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    from hushpoint.federated.keys import load_public

    known: set[bytes] = set()
    announced = False
    client = ControlHttpClient.from_server_address(
        _here(federation),
        insecure=False,
        root_certificates=(federation.keys / "ca.crt").read_bytes(),
        interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
    )
    while True:
        try:
            for path in sorted((federation.folder / "roster").glob("*.pub")):
                key = public_key_to_bytes(load_public(path))
                if key not in known:
                    client.RegisterNode(RegisterNodeRequest(public_key=key, name=path.stem))
                    known.add(key)
            if not announced:
                logging.getLogger("uvicorn.access").setLevel(logging.WARNING)  # a line for each of many small calls
                tell(f"The SuperLink is at {federation.address}; {len(known)} sites may join.")
                announced = True
        except (httpx.HTTPError, ValueError):  # not up yet, or a key that is being written
            pass
        time.sleep(0.5 if not announced else 5.0)


def become_supernode(site: Site) -> None:
    """Turn this process into Flower's own ``flower-supernode``, which runs the program that the SuperLink sends it."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port = door.getsockname()[1]
    place = site.folder.resolve()
    arguments = [
        *("flower-supernode", "--superlink", site.address),
        *("--root-certificates", str(place / "ca.crt")),
        *("--auth-supernode-private-key", str(place / "site.key")),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--node-config", f"folder={json.dumps(str(place))}"),
    ]
    program = str(Path(sys.executable).with_name("flower-supernode"))
    os.execve(program, arguments, environment(place / "flower"))


def run(
    federation: Federation,
    tell: Callable[[dict[str, Any]], None],
    timeout: float | None = None,
    hear: Callable[[dict[str, Any]], None] | None = None,
) -> Outcome:
    """Start a run on the SuperLink, or go on with it, and watch its rounds until it ends; ``hear`` has all events."""
    _prepare(federation)
    _require_superlink(federation)
    ticket, place = secrets.token_hex(8), federation.run
    told, heard = len(read_lines(place / "rounds.jsonl")), len(events(place))
    options = {"folder": str(federation.folder.resolve()), "ticket": ticket}
    config = " ".join(f"{name}={json.dumps(value)}" for name, value in options.items())
    command = [str(Path(sys.executable).with_name("flwr")), "run", str(federation.app), _CONNECTION]
    log = federation.flower / "run.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*command, "--stream", "-c", config],
            env=environment(federation.flower),
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
    try:
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            note = read_note(place, ticket)
            ended = process.poll() is not None if note is None else bool(note.outcome) or not note.is_alive
            records = read_lines(place / "rounds.jsonl")
            for record in records[told:]:
                tell(record)
            told = max(told, len(records))
            if hear is not None:
                news = events(place)[heard:]
                for event in news:
                    hear(event)
                heard += len(news)
            if ended:
                return _outcome(read_note(place, ticket), log)
            if until is not None and time.monotonic() > until:
                return Outcome("unfinished", "it goes on at the server, and is no longer watched")
            time.sleep(0.2)
    except KeyboardInterrupt:
        return Outcome("unfinished", "it goes on at the server; to end it, end the SuperLink")
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
        note_path(place, ticket).unlink(missing_ok=True)


def _require_superlink(federation: Federation) -> None:
    host, _, port = _here(federation).rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10.0).close()
    except OSError:
        raise ValueError(
            f"there is no SuperLink at {federation.address}. "
            f"Start it: hushpoint federated superlink {federation.folder}"
        ) from None


def _outcome(note: Note | None, log: Path) -> Outcome:
    if note is None or not note.outcome:
        return Outcome("died", f"the server's process ended without a word; what Flower said is in {log}")
    return Outcome(note.outcome, note.words)


# --- all sites on one machine


def simulate(federation: Federation, place: Path, tell: Callable[[str], None]) -> Outcome:
    """Run all sites on this machine with Flower's simulation engine, unsigned, and with ledgers of their own."""
    if federation.is_secure:
        federation = rehearsal(federation, place)
    # Ray listens on all interfaces and cannot be kept from it: a secret keeps others out.
    os.environ.update(environment(place / "flower"))
    os.environ.update({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)})
    place.mkdir(parents=True, exist_ok=True)
    from hushpoint.federated.apps import answer_at, conduct
    from hushpoint.federated.flower import client_app, server_app

    try:
        import ray
        from flwr.simulation import run_simulation
    except ImportError:
        raise ValueError("the simulation needs ray. Install it with: pip install 'hushpoint[federated]'") from None

    count = federation.count
    folders = [str(federation.site(site, count).resolve()) for site in range(count)]
    stores = [str(site_store(place, site).directory.resolve()) for site in range(count)]
    outcomes: list[Outcome] = []

    def answer_of(context: Any) -> Any:
        site = int(context.node_config["partition-id"])
        return answer_at(folders[site], stores[site])

    def serve(grid: Any, context: Any) -> None:
        try:
            outcomes.append(conduct(federation, grid, place=place / "run", signed=False, tell=tell))
        except ValueError as error:  # written by us, and without data
            outcomes.append(Outcome("refused", str(error)))

    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    try:
        run_simulation(
            server_app(serve),
            client_app(answer_of),
            num_supernodes=count,
            backend_config={
                "init_args": {"num_cpus": min(count, os.cpu_count() or 1), "log_to_driver": False},
                "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            },
        )
    except RuntimeError:  # by which Flower says that the server app raised
        if not outcomes:
            raise ValueError("the simulation failed before its first round.") from None
    finally:
        ray.shutdown()
    return outcomes[0] if outcomes else Outcome("died", "the simulation ended without a word")


def simulate_in_process(federation: Federation, place: Path, tell: Callable[[dict[str, Any]], None]) -> Outcome:
    """Run all sites in this process, without Flower."""
    if federation.is_secure:
        return rehearse(rehearsal(federation, place), place, tell)
    agreed = federation.agreed()
    plan = agreed.plan
    assert plan.facts is not None
    count = plan.operator.blocks
    rows = [Site(federation.site(site, count)).rows() for site in range(count)]
    problem = Problem.from_facts(plan.facts).with_rows(_stacked(rows))
    options = federation.server_options()
    result = run_in_process(
        plan, problem, directory=place, callback=lambda record: tell(vars(record)),
        seed=options["seed"], quorum=options["quorum"], validation=options.get("validation"), agreed=agreed,
    )  # fmt: skip
    return Outcome(result.server.status, result.server.why)


def _stacked(parts: list[Rows]) -> Rows:
    ends = np.cumsum([0, *(len(part) for part in parts)])
    limits = [part.limits for part in parts if part.limits is not None]
    return Rows(
        ArrayRows(np.vstack([part.store[:] for part in parts])),
        np.concatenate([part.targets for part in parts]),
        parts[0].loss,
        np.concatenate([part.squared_norms for part in parts]),
        np.concatenate(limits) if limits else None,
        None if parts[0].offsets is None else ends.astype(np.int64),
    )
