"""Seeds for everything a study draws, each with a name."""

from __future__ import annotations

import hashlib
import json


def derived(seed: int, *name: str | int | float) -> int:
    """A seed of 62 bits that belongs to one use of the study's seed."""
    digest = hashlib.sha256(json.dumps([seed, *name]).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 2
