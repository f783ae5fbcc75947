"""The last letter of a run: the server hands every site the model, signed, and the site says that it has it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hushpoint.federated.wire import Refused

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

_MAGIC = b"hushpoint farewell 1\n"
_MOST = 1 << 28  # bytes of a model
_TAKEN, _REFUSED = b"hushpoint taken\n", b"hushpoint not taken\n"


@dataclass(frozen=True)
class Farewell:
    """What all sites are told at the end: how the run ended, and the last public model."""

    run: str
    outcome: str
    model: bytes


def is_farewell(data: bytes) -> bool:
    """Whether bytes are a last letter."""
    return isinstance(data, bytes) and data.startswith(_MAGIC)


def encode_farewell(letter: Farewell, key: EllipticCurvePrivateKey | None = None) -> bytes:
    """The letter as bytes, signed as a whole where there is a key."""
    header = json.dumps({"run": letter.run, "outcome": letter.outcome}).encode()
    content = _MAGIC + len(header).to_bytes(4, "little") + len(letter.model).to_bytes(4, "little") + header
    content += letter.model
    if key is None:
        return content
    from hushpoint.federated.keys import sign

    return content + sign(key, content)


def decode_farewell(data: bytes, key: EllipticCurvePublicKey | None = None) -> Farewell:
    """The letter in the bytes; ``Refused`` where they are something else, or not signed by the key's owner."""
    try:
        start = len(_MAGIC) + 8
        header, body = (int.from_bytes(data[place : place + 4], "little") for place in (start - 8, start - 4))
        end = start + header + body
        if not is_farewell(data) or body > _MOST or len(data) < end:
            raise Refused("the bytes are no last letter")
        if key is not None:
            from hushpoint.federated.keys import verify

            if not verify(key, data[end:], data[:end]):
                raise Refused("the signature is missing, or of another key")
        fields = json.loads(data[start : start + header])
        letter = Farewell(fields["run"], fields["outcome"], data[start + header : end])
    except Refused:
        raise
    except Exception:
        raise Refused("the bytes are no last letter") from None
    if not (isinstance(letter.run, str) and isinstance(letter.outcome, str)):
        raise Refused("the letter does not say what it is about")
    return letter


def farewell_reply(letter: bytes, taken: bool, key: EllipticCurvePrivateKey | None = None) -> bytes:
    """What a site says to a last letter: whether it has the model now."""
    word = _TAKEN if taken else _REFUSED
    if key is None:
        return word
    from hushpoint.federated.keys import sign

    return word + sign(key, word + letter)


def was_taken(letter: bytes, reply: bytes, key: EllipticCurvePublicKey | None = None) -> bool:
    """Whether the site says, with its signature, that it has the model of this letter."""
    if not reply.startswith(_TAKEN):
        return False
    if key is None:
        return True
    from hushpoint.federated.keys import verify

    return verify(key, reply[len(_TAKEN) :], _TAKEN + letter)
