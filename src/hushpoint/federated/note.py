"""The note by which the server's process, which Flower starts, tells the command that asked for it how it goes."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from hushpoint.tables.writing import written_whole


@dataclass(frozen=True)
class Note:
    """Which process runs the server, and how it ended; no outcome while it runs."""

    process: int
    outcome: str = ""
    words: str = ""

    @property
    def is_alive(self) -> bool:
        """Whether the process is there."""
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return not _is_zombie(self.process)


def note_path(place: Path, ticket: str) -> Path:
    """Where the note of a ticket is."""
    return place / f"note.{ticket}.json"


def leave_note(place: Path, ticket: str, outcome: str = "", words: str = "") -> None:
    """Leave word of this process."""
    place.mkdir(parents=True, exist_ok=True)
    with written_whole(note_path(place, ticket), force=True) as file:
        file.write(json.dumps(asdict(Note(os.getpid(), outcome, words))) + "\n")


def read_note(place: Path, ticket: str) -> Note | None:
    """The note, if there is one."""
    try:
        return Note(**json.loads(note_path(place, ticket).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _is_zombie(process: int) -> bool:
    """Whether a killed process merely waits for its parent to notice; only Linux says."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] == "Z"
    except (OSError, ValueError, IndexError):
        return False
