"""Which key is for what. Every derivation names its purpose, the terms, the round's roster with keys, and the sites."""

from __future__ import annotations

from collections.abc import Sequence

from hushpoint.secure.agreement import Terms
from hushpoint.secure.letters import Present
from hushpoint.secure.packing import pack, packed_set
from hushpoint.secure.primitives import derived

ENVELOPE = "shares of the seed and of the mask key"  # the one kind of envelope


def commitment(terms: Terms, site: int, seed: bytes) -> bytes:
    """What a site says of its seed beforehand, so that the server notices forged shares of it."""
    return derived(seed, pack("commitment", terms.context, site))


def own_mask(terms: Terms, present: Present, site: int, seed: bytes) -> bytes:
    """The key of a site's own mask."""
    return derived(seed, pack("own mask", terms.context, present.digest, site))


def pair_mask(terms: Terms, present: Present, sharers: Sequence[int], one: int, other: int, shared: bytes) -> bytes:
    """The key of the mask that two sites have in common, if both were told of the same sharers."""
    low, high = sorted((one, other))
    return derived(shared, pack("pair mask", terms.context, present.digest, packed_set(sharers), low, high))


def envelope(about: bytes, shared: bytes) -> bytes:
    """The key of one envelope: each seals one."""
    return derived(shared, about)


def about_envelope(terms: Terms, present: Present, sender: int, receiver: int) -> bytes:
    """What an envelope is bound to."""
    return pack("envelope", terms.context, present.digest, sender, receiver, ENVELOPE)


def polynomials(terms: Terms, present: Present, site: int, mixing: bytes) -> bytes:
    """The key from which a site draws the polynomials of its shares: the same ones whenever it is asked again."""
    return derived(mixing, pack("polynomials", terms.context, present.digest, site))
