"""Flower's commands with the settings that work offline, on the folder of a federation."""

from __future__ import annotations

import hashlib
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
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from hushpoint.federated.check import RENEWAL, certificate_line
from hushpoint.federated.disk import read_lines
from hushpoint.federated.folder import Federation, Outcome, Site
from hushpoint.federated.health import watch_over
from hushpoint.federated.in_process import run_in_process, site_store
from hushpoint.federated.log import now
from hushpoint.federated.note import SUPERLINK, Note, note_path, read_note
from hushpoint.federated.secure.rehearsal import rehearsal, rehearse
from hushpoint.federated.watch import events
from hushpoint.problem import Problem
from hushpoint.rows import ArrayRows, Rows

_TOKEN, _SECRET = "control.token", "runner.secret"  # made anew at each start of the SuperLink
_LAST_WORDS = 2.0  # seconds in which what the server's process said last comes to the log
_UVICORN = {
    "access_log": False,  # a line for each of many small calls
    "timeout_keep_alive": 60,  # seconds: a site at work would otherwise shake hands anew
    "timeout_graceful_shutdown": 1,  # seconds: sites that wait for a letter would keep it for longer
}

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
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",
        "UV_OFFLINE": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    }


def serve_superlink(federation: Federation, tell: Callable[[str], None]) -> None:
    """Run Flower's SuperLink in this process, with TLS, known sites only, and its control closed to other machines.

    It keeps its state in memory: messages never touch its disk, and after a crash the sites join again by themselves.
    """
    _prepare(federation)
    _require_free(federation.bind)
    line = certificate_line([federation.keys / "ca.crt", federation.keys / "server.crt"], now, RENEWAL)
    if line.state == "problem":
        tell(f"certificate: {line.words}. {line.remedy}")
    os.environ.update({**environment(federation.flower), SUPERLINK: str(os.getpid())})
    import uvicorn
    from flwr.superlink import main
    from flwr.superlink.cli import flower_superlink

    from hushpoint.federated.door import Counter, Door

    host, _, port = federation.bind.rpartition(":")
    keys, flower = federation.keys, federation.flower
    token = _fresh_secret(flower / _TOKEN)
    _fresh_secret(flower / _SECRET)
    trusted = ("--ssl-ca-certfile", str(keys / "ca.crt"))
    sys.argv = [
        "flower-superlink",
        *("--host", host.strip("[]"), "--port", port),
        *trusted,
        *("--ssl-certfile", str(keys / "server.crt"), "--ssl-keyfile", str(keys / "server.key")),
        "--enable-supernode-auth",
        "--disable-runtime-dependency-installation",
        *("--isolation", "process", "--superexec-auth-secret-file", str(flower / _SECRET)),
    ]
    module: Any = main
    create, serve = module.create_app, uvicorn.run

    def behind_the_door(*args: Any, **options: Any) -> Door:
        app = create(*args, **options)
        return Door(app, Counter(app), token)

    module.create_app = behind_the_door
    uvicorn.run = lambda **options: serve(**{**options, **_UVICORN})
    threading.Thread(target=_register, args=(federation, token, tell), daemon=True).start()
    watch_over(federation)
    runner = subprocess.Popen(_runner(federation), stdin=subprocess.DEVNULL)
    try:
        flower_superlink()
    finally:
        runner.terminate()
        runner.wait()


def _require_free(bind: str) -> None:
    host, _, port = bind.rpartition(":")
    try:
        family, kind, _, _, place = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as door:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            door.bind(place)
    except OSError as error:
        raise ValueError(
            f"the server cannot listen at {bind}: {error.strerror}. Write where it can in server.toml: bind = "
            f'"0.0.0.0:{port}" is every address of this machine; address is where sites call it.'
        ) from None


def _runner(federation: Federation) -> list[str]:
    """Flower's process that starts the server's; it ends with this one. A secret keeps others from its place."""
    return [
        str(Path(sys.executable).with_name("flower-superexec")),
        *("--runtime-api-address", federation.here),
        *("--root-certificates", str(federation.keys / "ca.crt")),
        *("--superexec-auth-secret-file", str(federation.flower / _SECRET)),
        *("--parent-pid", str(os.getpid())),
    ]


def _fresh_secret(path: Path) -> str:
    """A new secret in a file that only its owner may read."""
    path.unlink(missing_ok=True)
    secret = secrets.token_hex(32)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secret)
    return secret


def _prepare(federation: Federation) -> None:
    from hushpoint.federated.keys import load_private

    if not federation.is_secure:
        federation.agreed()
    load_private(federation.keys / "signing.key")
    federation.site_keys(federation.count)
    federation.flower.mkdir(parents=True, exist_ok=True)
    write_app(federation)


def _control(federation: Federation, token: str) -> Any:
    """A client of the SuperLink's control interface."""
    from flwr.supercore.control import ControlHttpClient
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

    from hushpoint.federated.letters import WithToken

    return ControlHttpClient.from_server_address(
        federation.here,
        insecure=False,
        root_certificates=(federation.keys / "ca.crt").read_bytes(),
        interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI"), WithToken(token)],
    )


def _register(federation: Federation, token: str, tell: Callable[[str], None]) -> None:
    """Make the keys of the roster known to the SuperLink, as soon as it is up; again where a key was added."""
    import httpx
    from flwr.proto.control_pb2 import RegisterNodeRequest
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    from hushpoint.federated.keys import load_public

    known: set[bytes] = set()
    announced = False
    client = _control(federation, token)
    while True:
        try:
            for path in sorted((federation.folder / "roster").glob("*.pub")):
                key = public_key_to_bytes(load_public(path))
                if key not in known:
                    client.RegisterNode(RegisterNodeRequest(public_key=key, name=path.stem))
                    known.add(key)
            if not announced:
                elsewhere = f", called {federation.address}" if federation.address != federation.bind else ""
                tell(f"The SuperLink is at {federation.bind}{elsewhere}; {len(known)} sites may join.")
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
    ticket, place = secrets.token_hex(8), federation.run
    told, heard = len(read_lines(place / "rounds.jsonl")), len(events(place))
    log = federation.flower / "run.log"
    stream = _start(federation, {"folder": str(federation.folder.resolve()), "ticket": ticket}, log)
    try:
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            note = read_note(place, ticket)
            ended = not stream.is_alive() if note is None else bool(note.outcome) or not note.is_alive
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
        stream.join(_LAST_WORDS)
        note_path(place, ticket).unlink(missing_ok=True)


def _start(federation: Federation, options: dict[str, Any], log: Path) -> threading.Thread:
    """Have the SuperLink start the server's process; the thread that writes what it says into the log until it ends."""
    os.environ.update(environment(federation.flower))
    import httpx
    from flwr.cli.build import build_fab_from_disk
    from flwr.common.serde import fab_to_proto, user_config_to_proto
    from flwr.proto.control_pb2 import StartRunRequest, StreamLogsRequest
    from flwr.supercore.fab import Fab

    for name in ("flwr", "httpx"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    token, fab = federation.flower / _TOKEN, build_fab_from_disk(federation.app)
    try:
        client = _control(federation, token.read_text(encoding="ascii"))
        started = client.StartRun(
            StartRunRequest(
                fab=fab_to_proto(Fab(hashlib.sha256(fab).hexdigest(), fab, {})),
                override_config=user_config_to_proto(options),
            )
        )
    except (OSError, httpx.TransportError):
        raise ValueError(
            f"there is no SuperLink at {federation.here}. Start it: hushpoint federated superlink {federation.folder}"
        ) from None
    except httpx.HTTPStatusError as error:
        raise ValueError(
            f"the SuperLink at {federation.here} does not start the run (HTTP {error.response.status_code}): it is "
            f"that of another folder, or was started by somebody who does not share {str(token)!r}."
        ) from None

    def write() -> None:
        with log.open("a", encoding="utf-8") as file, suppress(httpx.HTTPError, ValueError):
            for part in client.StreamLogs(StreamLogsRequest(run_id=started.run_id, after_timestamp=0.0)):
                file.write(part.log_output)
                file.flush()

    stream = threading.Thread(target=write, daemon=True)
    stream.start()
    return stream


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
        raise ValueError("the simulation needs Ray. Install it with: pip install 'hushpoint[simulation]'") from None

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
