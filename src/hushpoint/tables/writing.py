"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


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
    draft = place.with_name(f".{place.name}.{secrets.token_hex(4)}.part")
    try:
        try:
            with draft.open("x", encoding="utf-8", newline="") as text:
                yield text
                text.flush()
                os.fsync(text.fileno())
            if force:
                os.replace(draft, place)
            else:
                _publish(draft, place)
        except FileExistsError:
            raise _taken(place) from None
        except OSError as error:
            raise ValueError(f"{str(path)!r} cannot be written: {error.strerror}.") from None
    finally:
        draft.unlink(missing_ok=True)


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
