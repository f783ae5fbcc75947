"""What a server shows of itself to machines, over HTTP, where server.toml asks for it: ``/healthz`` and ``/metrics``.

Only what is public in a run is shown. Where the guarantee counts on nobody knowing who was asked, how many answered,
what travelled and when a round ended are no public facts, and are left out.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from hushpoint.federated.disk import read_lines

if TYPE_CHECKING:
    from hushpoint.federated.folder import Federation

PORT = 9464
_TEXT = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class Metric:
    """One number, or several by label, in Prometheus' text format."""

    name: str
    kind: str  # counter or gauge
    help: str
    values: tuple[tuple[str, float], ...]  # by label, "" for none

    def __str__(self) -> str:
        lines = [f"# HELP {self.name} {self.help}", f"# TYPE {self.name} {self.kind}"]
        lines += [f"{self.name}{label} {value:.15g}" for label, value in self.values]
        return "\n".join(lines) + "\n"


def health_address(setting: Any) -> tuple[str, int] | None:
    """Where ``health`` in server.toml wants it: a port of this machine, ``host:port``, or nowhere."""
    if setting is None or setting is False:
        return None
    if type(setting) is int and 0 < setting < 65536:
        return "127.0.0.1", setting
    host, _, port = str(setting).rpartition(":")
    if not (host and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"health in server.toml is {setting!r}. Write a port, health = {PORT}, or host:port.")
    return host.strip("[]"), int(port)


def metrics(run: Path, sites: int, expires: float | None = None, clock: Callable[[], float] = time.time) -> str:
    """The state of a run as Prometheus reads it."""
    return "".join(map(str, _metrics(run, sites, expires, clock)))


def _metrics(run: Path, sites: int, expires: float | None, clock: Callable[[], float]) -> Iterator[Metric]:
    record, log = _read(run / "run.json"), run / "rounds.jsonl"
    yield Metric("hushpoint_sites", "gauge", "Sites of the federation.", (("", sites),))
    if expires is not None:
        about = "When the certificate of the server expires, in seconds since 1970."
        yield Metric("hushpoint_certificate_expires_timestamp_seconds", "gauge", about, (("", expires),))
    status = str(record.get("status", "not begun"))
    yield Metric("hushpoint_run_status", "gauge", "What the run is.", ((f'{{status="{status}"}}', 1),))
    if record.get("secret_sample", True):  # also while nothing says that it is not
        return
    rounds = _rounds(log)
    done = [one for one in rounds if one.get("answered")]
    yield Metric("hushpoint_rounds_total", "counter", "Rounds that were completed.", (("", len(done)),))
    if "planned_rounds" in record:
        about = "Rounds that the plan has."
        yield Metric("hushpoint_rounds_planned", "gauge", about, (("", record["planned_rounds"]),))
    if "failed_rounds" in record:
        about = "Rounds that were given up after messages may have left."
        yield Metric("hushpoint_failed_rounds_total", "counter", about, (("", record["failed_rounds"]),))
    answered = len(done[-1]["answered"]) if done else 0
    yield Metric("hushpoint_sites_answered", "gauge", "Sites that answered in the last round.", (("", answered),))
    ways = tuple((f'{{direction="{way}"}}', sum(one[f"bytes_{way}"] for one in rounds)) for way in ("down", "up"))
    yield Metric("hushpoint_bytes_total", "counter", "Bytes of messages, seen from the server.", ways)
    if rounds:
        age = max(0, int(clock() - log.stat().st_mtime))
        yield Metric("hushpoint_last_round_age_seconds", "gauge", "Seconds since a round ended.", (("", age),))


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _rounds(path: Path) -> list[dict[str, Any]]:
    try:
        return read_lines(path)
    except (OSError, ValueError):
        return []


def watch_over(federation: Federation) -> ThreadingHTTPServer | None:
    """Show how a server does, where server.toml asks for it."""
    from hushpoint.federated.check import vitals
    from hushpoint.federated.keys import validity

    address = health_address(federation.server().get("health"))
    if address is None:
        return None
    certificate, sites = federation.keys / "server.crt", federation.count

    def numbers() -> str:
        return metrics(federation.run, sites, validity(certificate)[1].timestamp())

    def problems() -> list[str]:
        lines = vitals(federation.folder, [federation.keys / "ca.crt", certificate])
        return [line.what for line in lines if line.state == "problem"]

    return serve(address, numbers, problems)


def serve(
    address: tuple[str, int], metrics: Callable[[], str], problems: Callable[[], list[str]]
) -> ThreadingHTTPServer:
    """Answer in a thread of its own until ``shutdown`` is called.

    ``problems`` names what is wrong; where anything is, ``/healthz`` has the code 503.
    """

    class Handler(_Handler):
        pages: ClassVar[dict[str, Callable[[], tuple[int, str]]]] = {
            "/metrics": lambda: (200, metrics()),
            "/healthz": lambda: _healthz(problems()),
        }

    try:
        server = ThreadingHTTPServer(address, Handler)
    except OSError as error:
        raise ValueError(
            f"health in server.toml is {address[0]}:{address[1]}, where nobody can listen now: {error.strerror}. "
            "Choose another port."
        ) from None
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def _healthz(wrong: list[str]) -> tuple[int, str]:
    return (503, "".join(f"{one}\n" for one in wrong)) if wrong else (200, "ok\n")


class _Handler(BaseHTTPRequestHandler):
    """Two pages, and nothing about who asks is written down."""

    pages: ClassVar[dict[str, Callable[[], tuple[int, str]]]] = {}
    timeout = 5.0
    server_version, sys_version = "hushpoint", ""

    def do_GET(self) -> None:
        page = self.pages.get(self.path.partition("?")[0])
        try:
            code, text = (404, "there are /healthz and /metrics\n") if page is None else page()
        except Exception:  # what its text may quote is nobody's who asks
            code, text = 500, "failed\n"
        content = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", _TEXT)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        pass
