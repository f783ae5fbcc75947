"""The bytes of a round of secure sums in which nobody is missing: the sizes of its letters, as the protocol packs them.

A round among hundreds of sites takes minutes of processor time, and its sizes follow from public numbers alone.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from hushpoint.experiments.secure_sums import SecureTerms
from hushpoint.federated.secure.public import Public
from hushpoint.federated.secure.wire import Ask, Question, Said, encode
from hushpoint.plan import Plan
from hushpoint.secure.letters import Advert, packed_signatures
from hushpoint.secure.packing import pack, packed_set
from hushpoint.secure.primitives import KEY, SIGNATURE
from hushpoint.secure.shares import SHARE
from hushpoint.secure.site import ENVELOPE

EXCHANGES = 4  # keys, shares, masked, reveal: survivors sign with their messages
_RUN = 32 * "0"  # runs have names of 32 letters
_START = len(Public().to_bytes())  # what is public before the first answer


def plan_bytes(plan: Plan, terms: SecureTerms, public: int = _START) -> int:
    """Bytes of all rounds of a plan, all sites together, up and down, unsigned by those who carry them.

    With its first round every site gets the ``public`` bytes: what is known from earlier plans.
    """
    operator = plan.operator
    point = np.asarray(operator.release(operator.start()[0])).size
    one = round_bytes(terms, operator.message_size, point)
    return plan.steps * one + terms.sites * public


@lru_cache
def round_bytes(terms: SecureTerms, message: int, point: int) -> int:
    """Bytes of one round: four requests to every site and its four letters.

    ``message`` and ``point`` are numbers in a message and in the public point.
    """
    n = terms.sites
    keys = _letter("keys", Advert(0, bytes(KEY), bytes(KEY), bytes(KEY)).body)
    shares = _letter("shares", pack("envelopes", bytes(ENVELOPE * (n - 1))))
    masked = _letter("masked", pack("sum", bytes(8 * message), bytes(SIGNATURE)))
    revealed = _letter("reveal", pack("shares", bytes(SHARE * n)))
    question = Question(0, 0, 0, bytes(KEY), np.zeros(point)).to_bytes()
    adverts = pack("adverts", *(keys for _ in range(n)))
    deliveries = pack("deliveries", packed_set(range(n)), bytes(ENVELOPE * (n - 1)))
    signed = packed_signatures(dict.fromkeys(range(terms.agreement.shares), bytes(SIGNATURE)))
    asked = (("keys", question, b""), ("shares", b"", adverts), ("masked", b"", deliveries), ("reveal", b"", signed))
    said = (("keys", keys), ("shares", shares), ("masked", masked), ("reveal", revealed))
    down = sum(len(encode(Ask(_RUN, 0, 1, kind, first, b"", rest))) for kind, first, rest in asked)
    up = sum(len(encode(Said(_RUN, 0, 1, kind, "letter", letter=letter))) for kind, letter in said)
    return n * (down + up)


def _letter(kind: str, body: bytes) -> bytes:
    return pack(kind, 0, body, bytes(SIGNATURE))
