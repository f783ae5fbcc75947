"""What all sites agree on before anything is masked: who they are, how many may collude, and what a round asks."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

from hushpoint._checks import require, require_count
from hushpoint.secure.packing import pack

_KEY = 32
_SPOKEN = 40  # hexadecimal digits read out: two rosters with equal ones cost 2^80 attempts
MOST_SITES = 1 << 16
MOST_ROUND = (1 << 32) - 1  # noise has addresses of 32 bits


@dataclass(frozen=True)
class Roster:
    """The agreed sites and the public keys that they sign with. A change of it is a new agreement of every site.

    Parameters
    ----------
    sites : tuple of (str, bytes)
        Name and Ed25519 key of each. A site's number is its place here.
    """

    sites: tuple[tuple[str, bytes], ...]

    def __post_init__(self) -> None:
        names, keys = [name for name, _ in self.sites], [key for _, key in self.sites]
        require(2 <= len(self.sites) <= MOST_SITES, "sites", f"{len(self.sites)} of them", "Agree on two or more.")
        require(len(set(names)) == len(names), "sites", "a list with a name twice", "Give each site its own name.")
        remedy = "Pass a public key of 32 bytes for each site, its own."
        require(all(len(key) == _KEY for key in keys), "sites", "a list with a key of another length", remedy)
        require(len(set(keys)) == len(keys), "sites", "a list with a key twice", remedy)

    def __len__(self) -> int:
        return len(self.sites)

    @cached_property
    def digest(self) -> bytes:
        """All of it in 32 bytes."""
        return _digest(pack("roster", *(pack("site", name, key) for name, key in self.sites)))

    @property
    def fingerprint(self) -> str:
        """What the sites compare by telephone, or by any way that the server has no hand in."""
        told = self.digest.hex()[:_SPOKEN]
        return " ".join(told[k : k + 4] for k in range(0, _SPOKEN, 4))


@dataclass(frozen=True)
class Agreement:
    """Who sums with whom, and what is protected against whom. Every site holds its own copy.

    Parameters
    ----------
    run : str
        An identifier that is never used again.
    roster : Roster
        The n agreed sites.
    survivors : int
        The fewest sites with which a sum is opened, m.
    colluders : int, default 1
        How many sites may be curious, or collude with the server, c. A site knows its own noise: with 0 the other sites
        are trusted, and the guarantee is one against the server and outsiders only.
    threshold : int, optional
        How many shares give a secret. ``2 threshold > n + c`` and at most ``survivors``; by default the fewest.
    """

    run: str
    roster: Roster
    survivors: int
    colluders: int = 1
    threshold: int | None = None

    def __post_init__(self) -> None:
        n = len(self.roster)
        require(bool(self.run), "run", self.run, "Pass a name that was never used before.")
        survivors = require_count("survivors", self.survivors, most=n)
        colluders = require_count("colluders", self.colluders, least=0)
        require(
            colluders < survivors,
            "colluders",
            colluders,
            f"Of {survivors} survivors at least one must be honest: pass fewer, or ask for more survivors.",
        )
        threshold = fewest_shares(n, colluders) if self.threshold is None else self.threshold
        threshold = require_count("threshold", threshold)
        require(2 * threshold > n + colluders, "threshold", threshold, f"Pass {fewest_shares(n, colluders)} or more.")
        require(
            survivors >= threshold,
            "survivors",
            survivors,
            f"Two sets of {survivors} of {n} sites could both be opened. Wait for {threshold} or more.",
        )
        object.__setattr__(self, "threshold", threshold)

    @property
    def shares(self) -> int:
        """The threshold as a number."""
        return int(self.threshold or 0)

    @property
    def honest(self) -> int:
        """The fewest honest survivors, h = m - c: as many share the noise."""
        return self.survivors - self.colluders

    @cached_property
    def digest(self) -> bytes:
        """All of it in 32 bytes."""
        numbers = (len(self.roster), self.survivors, self.colluders, self.shares)
        return _digest(pack("agreement", self.run, self.roster.digest, *numbers))


def fewest_shares(sites: int, colluders: int) -> int:
    """The least threshold: no two sets of so many signatures, colluders signing both, are of different sets."""
    return (sites + colluders) // 2 + 1


@dataclass(frozen=True)
class Terms:
    """What one round asks. A site makes its own from the plan it agreed to and the point it was given.

    Parameters
    ----------
    agreement : Agreement
        Who takes part.
    round : int
        From 1 on; a site takes only rounds above its last one.
    plan, point : bytes
        Digests, 32 bytes each, of the plan (earlier results included) and of the public point.
    length : int
        Numbers in a message.
    """

    agreement: Agreement
    round: int
    plan: bytes
    point: bytes
    length: int

    def __post_init__(self) -> None:
        require_count("round", self.round, most=MOST_ROUND)
        require_count("length", self.length)
        for name in ("plan", "point"):
            value = getattr(self, name)
            require(len(value) == _KEY, name, f"{len(value)} bytes", "Pass a digest of 32 bytes.")

    @cached_property
    def context(self) -> bytes:
        """All of it in 32 bytes: what every signature and every key of the round is bound to."""
        return _digest(pack("terms", self.agreement.digest, self.round, self.plan, self.point, self.length))


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
