"""The note by which the server's process, which Flower starts, tells the command that asked for it how it goes."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from hushpoint._files import write_json
from hushpoint.federated.processes import is_alive

SUPERLINK = "HUSHPOINT_SUPERLINK"  # the environment variable that names the process of the SuperLink to the server's


@dataclass(frozen=True)
class Note:
    """Which process runs the server, and how it ended; no outcome while it runs."""

    process: int
    outcome: str = ""
    words: str = ""

    @property
    def is_alive(self) -> bool:
        """Whether the process is there."""
        return is_alive(self.process)


def note_path(place: Path, ticket: str) -> Path:
    """Where the note of a ticket is."""
    return place / f"note.{ticket}.json"


def leave_note(place: Path, ticket: str, outcome: str = "", words: str = "") -> None:
    """Leave word of this process."""
    place.mkdir(parents=True, exist_ok=True)
    write_json(note_path(place, ticket), asdict(Note(os.getpid(), outcome, words)))


def read_note(place: Path, ticket: str) -> Note | None:
    """The note, if there is one."""
    try:
        return Note(**json.loads(note_path(place, ticket).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
