"""Whether a site reaches its server, and if not why, in words: name, port, certificate, clock."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

CODES = ("unreachable", "no TLS", "certificate", "clock", "duplicate", "not admitted")
AHEAD, BEHIND = 4, 300  # seconds by which a site's clock may differ: Flower turns it away beyond

_CERTIFICATE = {  # by OpenSSL's numbers
    9: ("is not valid yet by this machine's clock", "Set the clocks (NTP), here and at the server."),
    10: ("has expired", "Ask for a new ca.crt: the server makes its certificate anew (docs/operations.md)."),
    62: ("is not for this name", "Make it for the names that sites use: hushpoint federated keys DIR --host NAME."),
    64: ("is not for this address", "Make it for the address that sites use: hushpoint federated keys DIR --host IP."),
}
_FOREIGN = (
    "is one that ca.crt did not sign",
    "It is another server, or its certificate was made anew: ask for its ca.crt.",
)


@dataclass(frozen=True)
class Trouble:
    """What is in the way, by a name of ``CODES``, and what to do."""

    code: str
    words: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.code}: {self.words}. {self.remedy}"


_HUNG_UP = Trouble(  # a proxy does so where what is behind it is not there
    "unreachable",
    "what listens there hangs up before TLS begins",
    "Is the SuperLink started? Look at proxies and firewalls on the way to it, and at the address.",
)


@dataclass(frozen=True)
class Reached:
    """The server was there. ``ahead`` is by how many seconds this machine's clock is before it, where it said its."""

    ahead: int | None


def host_and_port(address: str) -> tuple[str, int]:
    """The parts of ``host:port``."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def reach(
    address: str, authority: Path, *, timeout: float = 5.0, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> Reached | Trouble:
    """Call the server as a site does, and hang up: TCP, TLS with the federation's authority, and what time it is."""
    host, port = host_and_port(address)
    try:
        context = ssl.create_default_context(cafile=str(authority))
    except (OSError, ssl.SSLError):
        return Trouble("certificate", f"{authority.name} holds no certificate", "Ask whoever runs the server for it.")
    try:
        with socket.create_connection((host, port), timeout=timeout) as line:
            return _greet(context, line, host, clock)
    except socket.gaierror:
        return Trouble(
            "unreachable", f"there is no host called {host!r} here", "Correct superlink in site.toml, or DNS."
        )
    except ConnectionRefusedError:
        words = f"nobody listens at {address}"
        return Trouble(
            "unreachable", words, "Start it there: hushpoint federated superlink DIR. Or correct the address."
        )
    except TimeoutError:
        return Trouble("unreachable", f"{address} does not answer", "Look at firewalls, the address and the route.")
    except OSError:
        return Trouble(
            "unreachable", f"there is no way to {address}", "Look at the network, the address and the route."
        )


def _greet(context: ssl.SSLContext, line: socket.socket, host: str, clock: Callable[[], datetime]) -> Reached | Trouble:
    try:
        with context.wrap_socket(line, server_hostname=host) as secret:
            secret.sendall(
                f"GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode("ascii", "replace")
            )
            answer = secret.recv(4096)
    except ssl.SSLCertVerificationError as error:
        words, remedy = _CERTIFICATE.get(error.verify_code, _FOREIGN)
        return Trouble("certificate", f"the server's certificate {words}", remedy)
    except TimeoutError:
        raise
    except ssl.SSLEOFError:
        return _HUNG_UP
    except ssl.SSLError:
        return Trouble(
            "no TLS", "what listens there does not speak TLS as this federation does", "Correct the address."
        )
    except OSError:
        return _HUNG_UP
    there = _time_in(answer)
    if there is None:
        return Reached(None)
    ahead = round((clock() - there).total_seconds())
    return _clock_trouble(ahead) or Reached(ahead)


def _clock_trouble(ahead: int) -> Trouble | None:
    """By how much clocks may differ is Flower's to say: signatures of a node carry a time."""
    if -BEHIND <= ahead <= AHEAD:
        return None
    words = f"this machine's clock is {abs(ahead)} s {'ahead of' if ahead > 0 else 'behind'} the server's"
    return Trouble("clock", words, "Set both (NTP). The server admits nobody whose clock is that far off.")


def _time_in(answer: bytes) -> datetime | None:
    """The ``Date`` of an HTTP answer."""
    for text in answer.decode("latin-1").split("\r\n"):
        name, _, value = text.partition(":")
        if name.lower() == "date":
            try:
                found = parsedate_to_datetime(value.strip())
            except ValueError:
                return None
            return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return None
