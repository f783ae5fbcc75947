"""What a site must remember of a round, as bytes: secrets until they are no longer needed, and every letter sent."""

from __future__ import annotations

from dataclasses import dataclass, field

from hushpoint.secure.agreement import Agreement, Terms
from hushpoint.secure.letters import Present
from hushpoint.secure.packing import Part, number, pack, packed_set, pieces, unpack, unpacked_set
from hushpoint.secure.primitives import KEY
from hushpoint.secure.shares import SHARE


@dataclass(repr=False)
class SiteRound:
    """One round as a site knows it.

    ``letters`` holds, by kind, the digest of the request that was answered and the answer. ``opening`` are the keys of
    the envelopes to come, ``held`` the two shares (of the seed, of the mask key) that each sharer gave this site.
    """

    terms: Terms
    mask: bytes = b""
    transport: bytes = b""
    seed: bytes = b""
    mixing: bytes = b""
    letters: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)
    present: Present | None = None
    opening: dict[int, bytes] = field(default_factory=dict)
    held: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    sharers: tuple[int, ...] = ()
    survivors: tuple[int, ...] = ()

    def to_bytes(self) -> bytes:
        """All of it; whoever can read this can take the masks of the site off."""
        terms = self.terms
        held = sorted(self.held)
        opening = sorted(self.opening)
        fields: list[Part] = [terms.round, terms.plan, terms.point, terms.length]
        fields += [self.mask, self.transport, self.seed, self.mixing]
        fields.append(pack("letters", *(pack("letter", kind, *pair) for kind, pair in self.letters.items())))
        fields.append(self.present.packed if self.present else b"")
        fields += [packed_set(opening), b"".join(self.opening[site] for site in opening)]
        fields += [packed_set(held), b"".join(self.held[site][0] + self.held[site][1] for site in held)]
        fields += [packed_set(self.sharers), packed_set(self.survivors)]
        return pack("site round", *fields)

    @staticmethod
    def from_bytes(data: bytes, agreement: Agreement) -> SiteRound:
        """What ``to_bytes`` wrote."""
        parts = unpack("site round", data, 16)
        terms = Terms(agreement, number(parts[0]), parts[1], parts[2], number(parts[3]))
        found = SiteRound(terms, mask=parts[4], transport=parts[5], seed=parts[6], mixing=parts[7])
        for letter in unpack("letters", parts[8]):
            kind, asked, answer = unpack("letter", letter, 3)
            found.letters[kind.decode()] = asked, answer
        found.present = Present.unpacked(agreement, parts[9]) if parts[9] else None
        sites = unpacked_set(parts[10])
        found.opening = dict(zip(sites, pieces(parts[11], KEY, len(sites)), strict=True))
        sites = unpacked_set(parts[12])
        both = pieces(parts[13], 2 * SHARE, len(sites))
        found.held = {site: (pair[:SHARE], pair[SHARE:]) for site, pair in zip(sites, both, strict=True)}
        found.sharers, found.survivors = unpacked_set(parts[14]), unpacked_set(parts[15])
        return found
