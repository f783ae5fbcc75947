"""Shamir's shares: any ``threshold`` of them give a secret of 32 bytes, fewer tell nothing.

A secret is the value at 0 of a polynomial of degree ``threshold - 1`` with uniform coefficients modulo a prime; the
share of site k is its value at k + 1. Python's integers take a time that depends on their values, which is seen at the
site itself only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod

from hushpoint._checks import require, require_count
from hushpoint.secure.packing import Refused

PRIME = (1 << 256) + 297  # the first one above all secrets
SHARE = 33  # bytes of a share
_SECRET = 32
_WIDE = 64  # bytes of randomness for a coefficient: as a remainder it is uniform to 2^-255


def split(secret: bytes, sites: Sequence[int], threshold: int, random: Callable[[int], bytes]) -> dict[int, bytes]:
    """The share of each site."""
    require(len(secret) == _SECRET, "secret", f"{len(secret)} bytes", f"Pass {_SECRET} bytes.")
    threshold = require_count("threshold", threshold, most=len(set(sites)))
    drawn = random(_WIDE * (threshold - 1))
    coefficients = [int.from_bytes(secret, "big")]
    coefficients += [int.from_bytes(drawn[k : k + _WIDE], "big") % PRIME for k in range(0, len(drawn), _WIDE)]
    return {site: _value(coefficients, site + 1).to_bytes(SHARE, "big") for site in sites}


def _value(coefficients: Sequence[int], place: int) -> int:
    """A polynomial at a small number: what is multiplied stays short, so one division at the end is enough."""
    total = 0
    for coefficient in reversed(coefficients):
        total = total * place + coefficient
    return total % PRIME


def checked(share: bytes) -> bytes:
    """A share as ``split`` writes one; ``Refused`` otherwise."""
    if len(share) != SHARE or int.from_bytes(share, "big") >= PRIME:
        raise Refused("a share is not one. Nothing was done with it.")
    return share


class Weights:
    """What the shares of certain sites are multiplied with to give the secret: Lagrange's weights at 0.

    Numerators and denominators are products of small whole numbers, and one inversion serves all.
    """

    def __init__(self, sites: Sequence[int]) -> None:
        require(len(set(sites)) == len(sites) > 0, "sites", sites, "Pass different ones, at least one.")
        self.sites = tuple(sites)
        places = [site + 1 for site in sites]
        whole = prod(places)
        below = [prod(other - one for other in places if other != one) % PRIME for one in places]
        self._weights = [whole // one * inverse % PRIME for one, inverse in zip(places, _inverses(below), strict=True)]

    def secret(self, shares: Sequence[bytes]) -> bytes | None:
        """The secret; None where the shares are not of one secret of 32 bytes."""
        values = (int.from_bytes(checked(share), "big") for share in shares)
        found = sum(w * value for w, value in zip(self._weights, values, strict=True)) % PRIME
        return found.to_bytes(_SECRET, "big") if found < 1 << 8 * _SECRET else None


def _inverses(numbers: Sequence[int]) -> Iterator[int]:
    """Inverses modulo the prime, in the order of the numbers, by one inversion of their product."""
    before = [1]
    for each in numbers:
        before.append(before[-1] * each % PRIME)
    rest = pow(before[-1], -1, PRIME)
    found = []
    for k in range(len(numbers) - 1, -1, -1):
        found.append(rest * before[k] % PRIME)
        rest = rest * numbers[k] % PRIME
    return reversed(found)
