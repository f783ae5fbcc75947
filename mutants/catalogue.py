"""All bugs there are to plant."""

from __future__ import annotations

from mutants import federation, lattice, methods, people, privacy
from mutants.mutant import Mutant

CATALOGUE: list[Mutant] = [*privacy.BUGS, *methods.BUGS, *people.BUGS, *federation.BUGS, *lattice.BUGS]
