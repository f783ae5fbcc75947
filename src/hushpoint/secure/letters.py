"""Letters: what a site sends, signed, with the kind and the terms of the round in the signature."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from hushpoint.secure.agreement import Agreement, Terms
from hushpoint.secure.packing import Refused, number, pack, packed_set, unpack, unpacked_set
from hushpoint.secure.primitives import KEY, SIGNATURE, digest, is_signed, signature

KINDS = ("keys", "shares", "masked", "survivors", "reveal")
"""The letters of a round, in their order. Survivors are signed in the masked letter where nobody may be missing."""

_TAG = "hushpoint secure sums 1"  # no other use of a signing key begins with this


def statement(kind: str, terms: Terms, site: int, body: bytes) -> bytes:
    """What is signed."""
    return pack(_TAG, kind, terms.context, site, body)


def written(kind: str, terms: Terms, site: int, body: bytes, signing: bytes) -> bytes:
    """A letter."""
    return pack(kind, site, body, signature(signing, statement(kind, terms, site, body)))


def read(kind: str, terms: Terms, letter: bytes) -> tuple[int, bytes]:
    """Sender and body of a letter; ``Refused`` unless an agreed site signed it for this round."""
    sender, body, signed = unpack(kind, letter, 3)
    site = number(sender)
    verify(kind, terms, site, body, signed)
    return site, body


def verify(kind: str, terms: Terms, site: int, body: bytes, signed: bytes) -> None:
    """``Refused`` unless the agreed site of this number signed the statement."""
    sites = terms.agreement.roster.sites
    if site >= len(sites):
        raise Refused(f"a letter is from site {site}, and the agreement has sites 0 to {len(sites) - 1}.")
    if len(signed) != SIGNATURE or not is_signed(sites[site][1], statement(kind, terms, site, body), signed):
        raise Refused(
            f"a letter of kind {kind!r} is not signed by site {site} for this round, plan and point. Nothing was done."
        )


@dataclass(frozen=True)
class Advert:
    """The public keys of one site for one round, and a commitment to the seed of its own mask."""

    site: int
    mask: bytes
    transport: bytes
    commitment: bytes

    @cached_property
    def body(self) -> bytes:
        """As it is signed."""
        return pack("advert", self.mask, self.transport, self.commitment)

    @staticmethod
    def read(terms: Terms, letter: bytes) -> Advert:
        """From a letter."""
        site, body = read("keys", terms, letter)
        parts = unpack("advert", body, 3)
        if any(len(part) != KEY for part in parts):
            raise Refused(f"the keys of site {site} are not 32 bytes each.")
        return Advert(site, *parts)


@dataclass(frozen=True)
class Present:
    """The round's roster: the sites that take part, with their keys, in rising order."""

    adverts: tuple[Advert, ...]

    @staticmethod
    def of(agreement: Agreement, adverts: Iterable[Advert]) -> Present:
        """At least m distinct sites, all with keys of their own; ``Refused`` otherwise."""
        ordered = tuple(sorted(adverts, key=lambda advert: advert.site))
        found = Present(ordered)
        if len(set(found.sites)) != len(ordered):
            raise Refused("a site is listed twice for one round.")
        if len(ordered) < agreement.survivors:
            raise Refused(
                f"{len(ordered)} sites are in the round, and sums are opened with {agreement.survivors} or more."
            )
        keys = [key for advert in ordered for key in (advert.mask, advert.transport)]
        if len(set(keys)) != len(keys):
            raise Refused("two public keys of one round are equal: one was copied, or is not fresh.")
        return found

    @cached_property
    def sites(self) -> tuple[int, ...]:
        """Their numbers."""
        return tuple(advert.site for advert in self.adverts)

    @cached_property
    def by_site(self) -> dict[int, Advert]:
        """Their keys by number."""
        return {advert.site: advert for advert in self.adverts}

    @cached_property
    def packed(self) -> bytes:
        """Sites and keys as bytes."""
        return pack("present", *(pack("one", advert.site, advert.body) for advert in self.adverts))

    @cached_property
    def digest(self) -> bytes:
        """Sites and keys in 32 bytes."""
        return digest(self.packed)

    @staticmethod
    def unpacked(agreement: Agreement, data: bytes) -> Present:
        """From bytes."""
        ones = (unpack("one", each, 2) for each in unpack("present", data))
        return Present.of(agreement, (Advert(number(site), *unpack("advert", body, 3)) for site, body in ones))


def survivors_body(present: Present, sharers: Sequence[int], survivors: Sequence[int]) -> bytes:
    """What survivors sign: the round's roster with keys, who shared secrets, and whose messages arrived."""
    return pack("set", present.digest, packed_set(sharers), packed_set(survivors))


def packed_signatures(signatures: dict[int, bytes]) -> bytes:
    """Signatures of one set, by site."""
    ordered = sorted(signatures)
    return pack("signatures", packed_set(ordered), b"".join(signatures[site] for site in ordered))


def unpacked_signatures(data: bytes) -> dict[int, bytes]:
    """The signatures by site."""
    sites, signed = unpack("signatures", data, 2)
    found = unpacked_set(sites)
    if len(signed) != SIGNATURE * len(found):
        raise Refused("signatures do not fit the sites that are named. Nothing was done.")
    return {site: signed[SIGNATURE * k : SIGNATURE * (k + 1)] for k, site in enumerate(found)}
