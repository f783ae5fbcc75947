"""What travels between a server and its sites: signed bytes, a vector or two of numbers and a short header.

Numbers are doubles; on the lattice, messages and blocks are integers of 64 bits, and the header says so.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hushpoint._types import Array

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey


_MAGIC = b"hushpoint federated 1\n"
_LENGTHS = struct.Struct("<II")  # of the header and of the vectors, in bytes
_WIDTH = 8  # bytes of a number, of either kind
_TENS = 10 ** np.arange(1, 19)
OVERHEAD = 512  # bytes beyond the numbers that no record exceeds


class Refused(ValueError):
    """Bytes that are no record of this run, or not by whom they should be. The text never quotes them."""


@dataclass(frozen=True, eq=False)
class Request:
    """The server asks a site to move from the public point of a round.

    ``token`` names this opening of the round: a server that lost its memory and opens the round again has another one.
    ``known`` is the round of the last message of this site that the server has (0: none) and ``copy`` the digest of the
    block that it made of it: what the server does not have never happened, except in the site's ledger. ``block`` is
    that block itself, where the site asked for it.
    """

    run: str
    round: int
    site: int
    token: str
    known: int
    copy: str
    point: Array
    block: Array | None = None

    @property
    def name(self) -> str:
        """What a reply refers to: this opening of the round, and its public point."""
        return digest(self.point, self.token)


@dataclass(frozen=True, eq=False)
class Reply:
    """What a site answers: it ``moved``, needs an ``anchor`` (the server's copy of its block), or ``declined``.

    ``participations`` and ``last_round`` are read off the site's own ledger. ``reason`` is a word of ``REASONS``.
    """

    run: str
    round: int
    site: int
    point: str
    status: str
    reason: str = ""
    participations: int = 0
    last_round: int = 0
    message: Array | None = None


STATUSES = ("moved", "anchor", "declined")
REASONS = (
    "",
    "refused",  # the request was not from the server, or not for this site
    "plan",  # it was for another plan than the site agreed to
    "stale",  # its round is over for this site
    "cap",  # the participations that the plan allows are used up
    "limit",  # the site's own budget is used up
    "ledger",  # the ledger is lost: nobody knows what was spent
    "away",  # outside the hours of the site
    "busy",  # another process of the site is at work
    "disk",  # the site could not write what it has to keep: nothing left
    "failed",  # the site could not compute its move
)

Record = TypeVar("Record", Request, Reply)
_VECTORS: dict[type, tuple[str, ...]] = {Request: ("point", "block"), Reply: ("message",)}


def digest(vector: Array, token: str = "") -> str:
    """The name of a vector."""
    return hashlib.sha256(token.encode() + _bytes(vector)).hexdigest()[:24]


def encode(record: Request | Reply, key: EllipticCurvePrivateKey | None = None) -> bytes:
    """A record as bytes, signed where there is a key."""
    names = _VECTORS[type(record)]
    header = {name: value for name, value in _shallow(record).items() if name not in names}
    vectors = {name: getattr(record, name) for name in names if getattr(record, name) is not None}
    header["kind"] = type(record).__name__
    header["vectors"] = {name: len(vector) for name, vector in vectors.items()}
    whole = [name for name, vector in vectors.items() if is_whole(vector)]
    if whole:
        header["whole"] = whole
    text = json.dumps(header, separators=(",", ":"), sort_keys=True).encode()
    body = b"".join(_bytes(vector) for vector in vectors.values())
    content = _MAGIC + _LENGTHS.pack(len(text), len(body)) + text + body
    if key is None:
        return content
    from hushpoint.federated.keys import sign  # needs the extra, which runs inside one process do without

    return content + sign(key, content)


def encoded_size(record: Request | Reply, **numbers: NDArray[Any]) -> int:
    """How many bytes such records come to in all, unsigned, that differ in these numbers of their headers alone."""
    count = len(next(iter(numbers.values())))
    digits = sum(
        int(_digits(values).sum()) - count * len(str(getattr(record, name))) for name, values in numbers.items()
    )
    return count * len(encode(record)) + digits


def _digits(values: NDArray[Any]) -> NDArray[Any]:
    return np.searchsorted(_TENS, values, side="right") + 1


def decode(data: bytes, kind: type[Record], key: EllipticCurvePublicKey | None = None) -> Record:
    """The record in the bytes; ``Refused`` where they are something else or not signed by the key's owner.

    Without a key nothing is verified: for the inside of one process.
    """
    try:
        content, signature, header, body = _split(data)
        if key is not None:
            from hushpoint.federated.keys import verify

            if not verify(key, signature, content):
                raise Refused("the signature is missing, or of another key")
        fields = json.loads(header)
        lengths = fields.pop("vectors")
        if set(fields) & set(_VECTORS[kind]):
            raise Refused("the record has a vector in its header")
        names = [name for name in _VECTORS[kind] if name in lengths]
        if fields.pop("kind") != kind.__name__ or len(names) != len(lengths):
            raise Refused("the record is of another kind")
        whole = _names(fields.pop("whole", []), names)
        ends: list[int] = list(accumulate(_WIDTH * _count(lengths[name]) for name in names))
        if (ends[-1] if ends else 0) != len(body):
            raise Refused("the record has not the numbers that it announces")
        parts = [body[start:end] for start, end in pairwise((0, *ends))]
        vectors: dict[str, Any] = {name: _numbers(part, name in whole) for name, part in zip(names, parts, strict=True)}
        record = kind(**fields, **vectors)
        _check_fields(record)
    except Refused:
        raise
    except Exception:
        raise Refused("the bytes are no record") from None
    return record


def _split(data: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    start = len(_MAGIC) + _LENGTHS.size
    if not isinstance(data, bytes) or len(data) < start or not data.startswith(_MAGIC):
        raise Refused("the bytes are no record")
    header, body = _LENGTHS.unpack(data[len(_MAGIC) : start])
    end = start + header + body
    if header > OVERHEAD or len(data) < end or len(data) - end > OVERHEAD:
        raise Refused("the bytes are no record")
    return data[:end], data[end:], data[start : start + header], data[start + header : end]


def _check_fields(record: Request | Reply) -> None:
    """Types as announced: what came from outside is not yet what the annotations say."""
    whole = (
        ("round", "site", "known") if isinstance(record, Request) else ("round", "site", "participations", "last_round")
    )
    for name in whole:
        _count(getattr(record, name))
    if not isinstance(record.run, str):
        raise Refused("the record names no run")
    if isinstance(record, Request):
        if not (isinstance(record.token, str) and record.token.isascii() and isinstance(record.copy, str)):
            raise Refused("the request does not say what it is about")
    elif record.status not in STATUSES or record.reason not in REASONS or not isinstance(record.point, str):
        raise Refused("the reply says something unheard of")
    elif (record.message is None) == (record.status == "moved"):
        raise Refused("the reply has a message without a move, or a move without a message")


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**32:
        raise Refused("the record has a number out of range")
    return value


def _shallow(record: Request | Reply) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def is_whole(vector: NDArray[Any]) -> bool:
    """Whether the numbers of a vector are integers, and not real numbers that happen to be whole."""
    return bool(vector.dtype.kind == "i")


def _names(value: Any, known: list[str]) -> list[str]:
    if not isinstance(value, list) or not all(name in known for name in value):
        raise Refused("the record names vectors that it does not have")
    return value


def _numbers(part: bytes, whole: bool) -> NDArray[Any]:
    if whole:
        return np.frombuffer(part, dtype="<i8").astype(np.int64)
    return np.frombuffer(part, dtype="<f8").astype(np.float64)


def _bytes(vector: NDArray[Any]) -> bytes:
    return np.ascontiguousarray(vector, dtype="<i8" if is_whole(vector) else "<f8").tobytes()
