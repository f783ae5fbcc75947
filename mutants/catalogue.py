"""All bugs there are to plant."""

from __future__ import annotations

from mutants import federated_sums, federation, lattice, methods, people, pieces, privacy, secure, visible, whole
from mutants.mutant import Mutant

CATALOGUE: list[Mutant] = [
    *privacy.BUGS,
    *methods.BUGS,
    *people.BUGS,
    *pieces.BUGS,
    *federation.BUGS,
    *lattice.BUGS,
    *whole.BUGS,
    *secure.BUGS,
    *federated_sums.BUGS,
    *visible.BUGS,
]
