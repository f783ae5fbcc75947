"""What travels between a server and a site: a letter of a round or what leads to it, and signatures on both."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hushpoint._types import Array
from hushpoint.secure.letters import KINDS
from hushpoint.secure.packing import Refused, number, pack, unpack

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

END = "end"
ASKED = (*KINDS, END)
STATUSES = ("letter", "history", "declined")
REASONS = (
    "",
    "refused",  # not from the server, not for this site, or not as the rules of a round want it
    "plan",  # for another covenant, or for a plan that does not follow from it
    "stale",  # its ledger has later rounds than the server knows of
    "over",  # its round is over for this site, or the site has lost what it knew of it
    "closed",  # its ledger was lost, or an old copy, in this covenant: only another one goes on
    "cap",  # one more round would be beyond what the covenant allows
    "limit",  # one more round would be beyond the site's own limit
    "ledger",  # the ledger is lost: nobody knows what was spent
    "old-ledger",  # it is an old copy, which counts as lost
    "model",  # at the end it was handed a model of another run or schema, which it did not take
    "away",  # outside the hours of the site
    "busy",  # another process of the site is at work
    "disk",  # the site could not write what it has to keep: nothing left
    "failed",  # the site could not compute its answer
)


@dataclass(frozen=True)
class Question:
    """What a round sums: a step of a plan, at a public point, with noise of a whole deviation.

    ``place`` is that of the plan in the chain, and ``public`` the digest of what it follows from.
    """

    place: int
    step: int
    scale: int
    public: bytes
    point: Array

    def to_bytes(self) -> bytes:
        """All of it."""
        return pack("question", self.place, self.step, self.scale, self.public, self.point.astype("<f8").tobytes())

    @staticmethod
    def from_bytes(data: bytes) -> Question:
        """What ``to_bytes`` wrote."""
        place, step, scale, public, point = unpack("question", data, 5)
        if len(point) % 8 or len(public) != 32:
            raise Refused("a question is damaged. Nothing was done.")
        values = np.frombuffer(point, dtype="<f8").astype(np.float64)
        return Question(number(place), number(step), number(scale), public, values)

    def plan_digest(self, covenant: bytes) -> bytes:
        """What is asked but for the point, in 32 bytes: the covenant, earlier results, the plan and its noise."""
        return hashlib.sha256(pack("plan", covenant, self.public, self.place, self.step, self.scale)).digest()

    @property
    def point_digest(self) -> bytes:
        """The point in 32 bytes."""
        return hashlib.sha256(self.point.astype("<f8").tobytes()).digest()


@dataclass(frozen=True)
class Ask:
    """The server asks a site for the letter of an exchange.

    ``question`` is given with the first one, ``public`` once more where the site asked for it; ``payload`` is what the
    exchange before gave. At the end ``payload`` is the model that all sites trained.
    """

    run: str
    site: int
    round: int
    kind: str
    question: bytes = b""
    public: bytes = b""
    payload: bytes = b""


@dataclass(frozen=True)
class Said:
    """What a site says: its letter; that it lacks earlier results ("history"); or why not."""

    run: str
    site: int
    round: int
    kind: str
    status: str
    reason: str = ""
    letter: bytes = b""


def encode(record: Ask | Said, key: EllipticCurvePrivateKey | None = None) -> bytes:
    """A record as bytes, signed where there is a key."""
    if isinstance(record, Ask):
        body = pack(
            "ask", record.run, record.site, record.round, record.kind, record.question, record.public, record.payload
        )
    else:
        body = pack(
            "said", record.run, record.site, record.round, record.kind, record.status, record.reason, record.letter
        )
    if key is None:
        return pack("signed", body, b"")
    from hushpoint.federated.keys import sign

    return pack("signed", body, sign(key, body))


def decode_ask(data: bytes, key: EllipticCurvePublicKey | None = None) -> Ask:
    """A request; ``Refused`` where it is something else, or not signed by the key's owner."""
    run, site, round_number, kind, *rest = unpack("ask", _verified(data, key), 7)
    return Ask(_word(run), number(site), number(round_number), _one_of(kind, ASKED), *rest)


def decode_said(data: bytes, key: EllipticCurvePublicKey | None = None) -> Said:
    """A reply; ``Refused`` where it is something else, or not signed by the key's owner."""
    run, site, round_number, kind, status, reason, letter = unpack("said", _verified(data, key), 7)
    said = _one_of(kind, ASKED), _one_of(status, STATUSES), _one_of(reason, REASONS)
    return Said(_word(run), number(site), number(round_number), *said, letter)


def _verified(data: bytes, key: EllipticCurvePublicKey | None) -> bytes:
    if not isinstance(data, bytes):
        raise Refused("a record is bytes. Nothing was done.")
    body, signature = unpack("signed", data, 2)
    if key is not None:
        from hushpoint.federated.keys import verify

        if not verify(key, signature, body):
            raise Refused("the signature is missing, or of another key. Nothing was done.")
    return body


def _word(data: bytes) -> str:
    try:
        return data.decode("ascii")
    except UnicodeDecodeError:
        raise Refused("a name is not in plain letters. Nothing was done.") from None


def _one_of(data: bytes, known: tuple[str, ...]) -> str:
    found = _word(data)
    if found not in known:
        raise Refused("a record says something unheard of. Nothing was done.")
    return found
