"""Files that are there whole or not at all."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np


def require_free(path: str | Path, force: bool = False) -> Path:
    """A place to write to: its folder exists, and nothing is there unless ``force``."""
    place = Path(path)
    if not place.parent.is_dir():
        raise ValueError(f"there is no folder {str(place.parent)!r}. Make it first.")
    if place.is_dir():
        raise ValueError(f"{str(path)!r} is a folder. Name a file.")
    if not force and place.exists():
        raise _taken(place)
    return place


@contextmanager
def written_whole(path: str | Path, force: bool = False) -> Iterator[IO[str]]:
    """A text file to write, which appears under its name only once it is complete.

    Without ``force`` an existing file is never replaced, not even one that another process made in the meantime.
    """
    place = require_free(path, force)
    try:
        with _draft(place, os.replace if force else _publish, "x", encoding="utf-8", newline="") as text:
            yield text
    except FileExistsError:
        raise _taken(place) from None
    except OSError as error:
        raise ValueError(f"{str(path)!r} cannot be written: {error.strerror}.") from None


def write_text(path: str | Path, text: str, force: bool = False) -> None:
    """A text file, as `written_whole` writes it."""
    with written_whole(path, force) as file:
        file.write(text)


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """A JSON file in the place of what was there."""
    write_text(path, json.dumps(record, indent=1) + "\n", force=True)


def write_bytes(path: Path, content: bytes) -> None:
    """A file in the place of what was there."""
    with _draft(path, os.replace, "xb") as file:
        file.write(content)


def save_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Arrays in one file in the place of what was there, for its owner alone, on the disk when this returns."""
    with _draft(path, os.replace, "xb", opener=_private) as file:
        np.savez(file, allow_pickle=False, **{name: np.asarray(value) for name, value in arrays.items()})
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a new name in a folder survive a power cut."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # not every system opens folders
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _draft(place: Path, publish: Callable[[Path, Path], None], mode: str, **options: Any) -> Iterator[IO[Any]]:
    """A file under a name of its own, on the disk before ``publish`` gives it the right one."""
    draft = place.with_name(f".{place.name}.{secrets.token_hex(4)}.part")
    try:
        with open(draft, mode, **options) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        publish(draft, place)
    finally:
        draft.unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _publish(draft: Path, place: Path) -> None:
    """Give a complete file its name, unless the name is taken."""
    try:
        os.link(draft, place)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links: take the name first, then fill it in one move
        place.open("x").close()
        os.replace(draft, place)


def _taken(place: Path) -> ValueError:
    return ValueError(f"{str(place)!r} exists. Choose another name, or pass --force (force=True) to replace it.")
