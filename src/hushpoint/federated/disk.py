"""Files that survive a kill at any moment: arrays written whole, lines appended with a chain of checks."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Damaged(ValueError):
    """A file is missing, or not what was written."""


class Busy(ValueError):
    """Another process holds the folder."""


def load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a file; ``Damaged`` where they are not whole."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except Exception:  # zipfile, zlib and NumPy have a dozen ways to say that bytes were lost
        raise Damaged(f"{path.name} is missing or damaged") from None


def append_line(path: Path, record: Mapping[str, Any], check: str | None = None) -> str:
    """One more JSON line, on the disk when this returns; ``check`` chains it to the line before.

    A file that is not there is made for its owner alone.
    """
    text = json.dumps(record, sort_keys=True)
    after = "" if check is None else _next_check(check, text)
    line = text if check is None else json.dumps({**record, "check": after}, sort_keys=True)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600), "a+b") as file:
        file.seek(0)
        data = file.read()
        if len(data) > _whole(data):
            file.truncate(_whole(data))  # what a killed process had begun to write
        file.write(line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    return after


def read_chain(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The lines of a chained file and their checks; ``Damaged`` where one is missing or changed.

    A last line without its end is one that was being written when the process was killed: it does not count.
    """
    try:
        data = path.read_bytes()
    except OSError:
        raise Damaged(f"{path.name} is missing") from None
    lines: list[dict[str, Any]] = []
    checks: list[str] = []
    for text in data[: _whole(data)].decode("utf-8", "replace").splitlines():
        try:
            record = json.loads(text)
            found = record.pop("check")
        except (ValueError, AttributeError, KeyError):
            raise Damaged(f"{path.name} is damaged") from None
        check = _next_check(checks[-1] if checks else "", json.dumps(record, sort_keys=True))
        if found != check:
            raise Damaged(f"{path.name} is damaged")
        lines.append(record)
        checks.append(check)
    return lines, checks


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON lines of a log, but for one that was being written when the process was killed."""
    if not path.exists():
        return []
    data = path.read_bytes()
    return [json.loads(text) for text in data[: _whole(data)].decode().splitlines()]


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a folder against other processes; ``Busy`` where one has it. A killed holder lets go."""
    try:
        import fcntl
    except ImportError:  # a system without advisory locks: one process a folder is then the user's to see to
        yield
        return
    with (folder / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Busy(f"another process is at work in {str(folder)!r}. Wait for it, or end it.") from None
        yield


def _next_check(check: str, text: str) -> str:
    return hashlib.sha256(f"{check}\n{text}".encode()).hexdigest()[:32]


def _whole(data: bytes) -> int:
    """How many bytes the complete lines are."""
    return data.rfind(b"\n") + 1
