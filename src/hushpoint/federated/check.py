"""What can be known to be wrong before anything is spent: a line for each thing that was looked at.

No line repeats a cell, a name that only the data has, or how many rows there are: it says what was agreed, and
whether it is so.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from hushpoint.federated.log import now

ROOM = 100_000_000  # bytes that a party needs for its state and its logs
_RENEW = timedelta(days=30)
_DRIFT = timedelta(seconds=60)
_WRITE = "Free some space, or let this user write there."


@dataclass(frozen=True)
class Line:
    """One thing that was looked at: "ok", a "problem" with its remedy, "unknown" where it cannot be seen from here."""

    what: str
    state: str
    words: str
    remedy: str = ""

    def to_dict(self) -> dict[str, str]:
        """As JSON has it."""
        return asdict(self)


class Wrong(ValueError):
    """A problem, and what to do about it."""

    def __init__(self, words: str, remedy: str) -> None:
        super().__init__(words)
        self.remedy = remedy


class Unknown(Exception):
    """It cannot be seen from here."""


Look = Callable[[], str]


def looked(what: str, look: Look, *, data: bool = False) -> Line:
    """What a look found. Where it is at ``data``, no text of an error is repeated but that of ``Wrong``."""
    try:
        return Line(what, "ok", look())
    except Unknown as error:
        return Line(what, "unknown", str(error))
    except Wrong as error:
        return Line(what, "problem", str(error), error.remedy)
    except ValueError as error:
        if not data:
            words, _, remedy = str(error).partition(". ")
            return Line(what, "problem", words.rstrip("."), remedy)
    except OSError as error:
        if not data:
            return Line(what, "problem", f"it cannot be read: {error.strerror}", "Let this user read and write it.")
    except Exception:
        pass
    words = "it cannot be used as the agreement says" if data else "it cannot be looked at"
    return Line(what, "problem", words, "Start it with the data in reach, and read what it says." if data else "")


# --- what both sides have


def folder_line(folder: Path) -> Line:
    """Whether there is room, and whether it can be written to."""

    def look() -> str:
        if shutil.disk_usage(folder).free < ROOM:
            raise Wrong(f"the disk has less than {ROOM // 10**6} MB left", _WRITE)
        draft = folder / f".check.{secrets.token_hex(4)}"
        try:
            with draft.open("xb") as file:
                file.write(bytes(4096))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise Wrong(f"{folder} cannot be written to: {error.strerror}", _WRITE) from None
        finally:
            draft.unlink(missing_ok=True)
        return "there is room, and it can be written to"

    return looked("disk", look)


def certificate_line(places: Sequence[Path], clock: Callable[[], datetime], remedy: str) -> Line:
    """Whether certificates are valid, now and for some time."""

    def look() -> str:
        from hushpoint.federated.keys import validity

        dates, moment = [validity(place) for place in places], clock()
        starts, ends = max(start for start, _ in dates), min(end for _, end in dates)
        if moment < starts:
            raise Wrong(f"the certificate is valid from {starts:%Y-%m-%d %H:%M} UTC on", "Set the clock (NTP).")
        if moment >= ends:
            raise Wrong(f"the certificate expired on {ends:%Y-%m-%d}", remedy)
        if moment >= ends - _RENEW:
            raise Wrong(f"the certificate expires on {ends:%Y-%m-%d}", remedy)
        return f"valid until {ends:%Y-%m-%d}"

    return looked("certificate", look)


def own_clock(files: Sequence[Path], clock: Callable[[], datetime]) -> None:
    """Whether the clock was set back: then what was written here is of the future."""
    times = [datetime.fromtimestamp(file.stat().st_mtime, UTC) for file in files if file.exists()]
    if times and clock() < max(times) - _DRIFT:
        raise Wrong("the clock is behind what was written here", "Set the clock (NTP).")


def secret_file(path: Path) -> None:
    """Whether a private file is there, and for its owner alone."""
    if not path.is_file():
        raise Wrong(f"there is no {path.name}", "Make it: hushpoint federated keys (at a site with --own).")
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise Wrong(f"{path.name} can be read by others", f"Close it: chmod 600 {path}")


def versions_line() -> Line:
    """What is installed, and whether it can carry messages."""

    def look() -> str:
        import hushpoint.federated.node  # noqa: F401  says so where Flower is missing, or of another version

        return ", ".join(_version(name) for name in ("hushpoint", "flwr", "cryptography"))

    return looked("versions", look)


def _version(name: str) -> str:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"{name} (not installed as a package)"


def vitals(folder: Path, certificates: Sequence[Path], clock: Callable[[], datetime] = now) -> Iterator[Line]:
    """What may go wrong while a server runs, and costs little to look at."""
    yield folder_line(folder)
    yield certificate_line(certificates, clock, RENEWAL)


RENEWAL = "Renew it (hushpoint federated rotate DIR), and hand ca.crt to every site (docs/operations.md)."
