"""Bytes that can be read in one way only: a kind and parts, each with its length."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import pairwise

Part = bytes | str | int


class Refused(ValueError):
    """A message or a request that is not answered: nothing was revealed, and nothing changed."""


class RoundFailed(ValueError):
    """A round that cannot be opened any more. The next attempt is a new round, with fresh noise."""


def pack(kind: str, *parts: Part) -> bytes:
    """A kind and parts as bytes. Different kinds or parts never give the same bytes."""
    fields = [(len(parts) + 1).to_bytes(4, "big")]
    for part in (kind, *parts):
        field = part if isinstance(part, bytes) else part.encode() if isinstance(part, str) else part.to_bytes(8, "big")
        fields += (len(field).to_bytes(4, "big"), field)
    return b"".join(fields)


def unpack(kind: str, data: bytes, count: int | None = None) -> list[bytes]:
    """The parts that were packed under a kind; ``Refused`` for whatever else, bytes at the end included."""
    if len(data) < 4:
        raise _damaged(kind)
    fields, place = [], 4
    for _ in range(int.from_bytes(data[:4], "big")):
        start = place + 4
        place = start + int.from_bytes(data[place:start], "big")
        if start > len(data) or place > len(data):
            raise _damaged(kind)
        fields.append(data[start:place])
    if place != len(data) or not fields or fields[0] != kind.encode() or count not in (None, len(fields) - 1):
        raise _damaged(kind)
    return fields[1:]


def number(data: bytes) -> int:
    """A whole number that was packed as a part."""
    if len(data) != 8:
        raise _damaged("number")
    return int.from_bytes(data, "big")


def packed_set(sites: Iterable[int]) -> bytes:
    """Sites in rising order, two bytes each."""
    ordered = sorted(sites)
    return struct.pack(f">{len(ordered)}H", *ordered)


def unpacked_set(data: bytes) -> tuple[int, ...]:
    """The sites that were packed; ``Refused`` unless they rise."""
    if len(data) % 2:
        raise _damaged("set of sites")
    sites: tuple[int, ...] = struct.unpack(f">{len(data) // 2}H", data)
    if any(one >= other for one, other in pairwise(sites)):
        raise _damaged("set of sites")
    return sites


def pieces(data: bytes, size: int, count: int) -> Sequence[bytes]:
    """A byte string cut into so many pieces of one size."""
    if len(data) != size * count:
        raise _damaged("list")
    return [data[k : k + size] for k in range(0, size * count, size)]


def _damaged(kind: str) -> Refused:
    return Refused(f"a message of kind {kind!r} was expected, and the bytes are none. Nothing was done.")
