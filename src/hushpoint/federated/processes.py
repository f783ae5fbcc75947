"""Processes of this machine that depend on one another without being parent and child."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

_LOOK = 0.25  # seconds between two looks


def is_alive(process: int) -> bool:
    """Whether a process is there, and is not one that has ended and waits for its parent to notice."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _is_zombie(process)


def end_with(process: int) -> None:
    """End this process at once when another one ends, whatever this one is doing then."""
    threading.Thread(target=_watch, args=(process,), daemon=True).start()


def _watch(process: int) -> None:
    while is_alive(process):
        time.sleep(_LOOK)
    os._exit(1)


def _is_zombie(process: int) -> bool:
    """Only Linux says."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] == "Z"
    except (OSError, ValueError, IndexError):
        return False
