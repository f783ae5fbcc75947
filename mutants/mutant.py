"""One bug to plant."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A privacy bug, and the tests that must notice it.

    Parameters
    ----------
    name, room : str
        What it is called, and the part of the house that it is in.
    file : str
        From the project's root.
    old, new : str
        The text to replace, which occurs once in the file, and what takes its place.
    tests : tuple of str
        Test files or tests, as pytest takes them: those of the room, and no others.
    why : str
        What the bug would mean for people in the data.
    """

    name: str
    room: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    why: str

    @property
    def is_compiled(self) -> bool:
        """Whether the cache of compiled code depends on the file."""
        compiled = ("/_keyed.py", "/_fixed.py", "/kernels/", "/lattice/")
        return any(part in self.file for part in compiled)
