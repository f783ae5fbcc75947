"""A site in the rounds of secure sums (Bonawitz et al. 2017): what it answers, once, and what it refuses.

Every answer is stored, with all that a restart needs, *before* it is handed out: ``keep`` is called with the site's
state. If ``keep`` fails, the site takes no further part in the round.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np

from hushpoint._checks import require, require_count
from hushpoint.secure import derivation
from hushpoint.secure.agreement import Agreement, Terms
from hushpoint.secure.letters import (
    Advert,
    Present,
    statement,
    survivors_body,
    unpacked_signatures,
    verify,
    written,
)
from hushpoint.secure.masks import Masked, Words
from hushpoint.secure.packing import Refused, number, pack, pieces, unpack, unpacked_set
from hushpoint.secure.primitives import (
    KEY,
    TAG,
    ExchangeKey,
    digest,
    keystream,
    opened,
    sealed,
    signature,
    signing_public,
)
from hushpoint.secure.shares import SHARE, checked, split
from hushpoint.secure.site_state import SiteRound

ENVELOPE = 2 * SHARE + TAG  # bytes of an envelope


class Site:
    """One site of an agreement.

    Parameters
    ----------
    agreement : Agreement
        The site's own copy of what all agreed on.
    number : int
        Its place in the roster.
    signing : bytes
        The private key, 32 bytes, whose public half is in the roster.
    keep : callable
        Called with the site's state before anything leaves. It must be on the disk when the call returns, readable by
        the site only (mode 0600), in no backup, over the state before.
    last : int
        The last round in the site's ledger; a site takes only rounds above it.
    random : callable
        So many random bytes; the operating system's unless a test needs the same ones again.
    """

    def __init__(
        self,
        agreement: Agreement,
        number: int,
        signing: bytes,
        keep: Callable[[bytes], None],
        *,
        last: int = 0,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.agreement = agreement
        self.number = require_count("number", number, least=0, most=len(agreement.roster) - 1)
        is_own = signing_public(signing) == agreement.roster.sites[number][1]
        require(is_own, "signing", "not the key of this site", "Pass the private half of the key in the roster.")
        self.last = require_count("last", last, least=0)
        self._signing, self._keep, self._random = signing, keep, random
        self._round: SiteRound | None = None

    @classmethod
    def restored(
        cls,
        state: bytes,
        agreement: Agreement,
        signing: bytes,
        keep: Callable[[bytes], None],
        *,
        last: int = 0,
        random: Callable[[int], bytes] = os.urandom,
    ) -> Site:
        """The site as it was when it was last kept.

        A state from before the last round of the ledger is an old copy: its round is over for this site.
        """
        agreed, place, before, held = unpack("site", state, 4)
        require(agreed == agreement.digest, "state", "of another agreement", "Pass the agreement it was made under.")
        found = cls(agreement, number(place), signing, keep, last=max(last, number(before)), random=random)
        if held and number(before) >= last:
            found._round = SiteRound.from_bytes(held, agreement)
        return found

    def to_bytes(self) -> bytes:
        """The state that ``keep`` is given."""
        held = self._round.to_bytes() if self._round else b""
        return pack("site", self.agreement.digest, self.number, self.last, held)

    # --- the exchanges of a round

    def advertise(self, terms: Terms) -> bytes:
        """Begin a round: two fresh key pairs and a commitment. What is left of an earlier round is erased."""
        require(terms.agreement == self.agreement, "terms", "of another agreement", "Make them from the agreed one.")
        if self._round is not None and terms.round == self._round.terms.round:
            return self._once("keys", terms.context, lambda _: b"")  # was answered, with these terms or with others
        if terms.round <= self.last:
            raise Refused(f"round {terms.round} is not above the last one, {self.last}. Ask for a new round.")
        mask, transport, seed, mixing = (self._random(KEY) for _ in range(4))
        self._round = SiteRound(terms, mask=mask, transport=transport, seed=seed, mixing=mixing)
        self.last = terms.round

        def answer(held: SiteRound) -> bytes:
            said = derivation.commitment(terms, self.number, held.seed)
            advert = Advert(self.number, ExchangeKey(held.mask).public, ExchangeKey(held.transport).public, said)
            return self._letter("keys", advert.body)

        return self._once("keys", terms.context, answer)

    def share(self, request: bytes) -> bytes:
        """Given the letters of all who advertised: a share of both secrets for each of them, in envelopes."""

        def answer(held: SiteRound) -> bytes:
            letters = unpack("adverts", request)
            own = self._sent("keys")
            if own not in letters:
                raise Refused("the site's own keys are not among those of the round.")
            others = (Advert.read(held.terms, letter) for letter in letters if letter != own)
            present = Present.of(self.agreement, [Advert(self.number, *_keys_of(own)), *others])
            return self._shared(held, present)

        return self._once("shares", request, answer)

    def mask(self, request: bytes, message: Callable[[], Words]) -> bytes:
        """Given the envelopes from the others: the message under all masks.

        ``message`` is called when everything was checked and never for a repetition: it writes the ledger line, draws
        fresh noise and returns integers modulo 2^64.
        """

        def answer(held: SiteRound) -> bytes:
            self._take_shares(held, request)
            values = message()
            fits = values.dtype == np.uint64 and values.shape == (held.terms.length,)
            require(fits, "message", values, f"Pass {held.terms.length} integers modulo 2^64 (uint64).")
            return self._masked(held, values)

        return self._once("masked", request, answer)

    def sign(self, request: bytes) -> bytes:
        """Given the sites whose messages arrived: a signature of that set, once."""

        def answer(held: SiteRound) -> bytes:
            (packed,) = unpack("survivors", request, 1)
            body = self._signable(held, unpacked_set(packed))
            return self._letter("survivors", body)

        return self._once("survivors", request, answer)

    def reveal(self, request: bytes) -> bytes:
        """Given enough signatures of the same set: of each sharer one share, of its seed or of its mask key."""

        def answer(held: SiteRound) -> bytes:
            if not held.survivors:
                raise Refused("no set of survivors was signed by this site.")
            self._check_signatures(held, unpacked_signatures(request))
            arrived = set(held.survivors)
            shares = [held.held[site][site not in arrived] for site in held.sharers]
            held.held.clear()
            return self._letter("reveal", pack("shares", b"".join(shares)))

        return self._once("reveal", request, answer)

    def end(self) -> None:
        """Erase what is left of the round, opened or not."""
        self._round = None
        self._keep(self.to_bytes())

    # --- how they are made

    def _once(self, kind: str, request: bytes, answer: Callable[[SiteRound], bytes]) -> bytes:
        """The answer to a request: a new one is kept before it leaves, the same one is repeated, others are refused."""
        held = self._round
        if held is None:
            raise Refused("the site has no state of such a round, and takes no further part in it.")
        asked = digest(request)
        if kind in held.letters:
            before, letter = held.letters[kind]
            if before != asked:
                raise Refused(f"the site has sent its {kind!r} letter of this round, to another request.")
            return letter
        letter = answer(held)
        held.letters[kind] = asked, letter
        try:
            self._keep(self.to_bytes())
        except BaseException:
            self._round = None  # what is in memory may not be on the disk
            raise
        return letter

    def _letter(self, kind: str, body: bytes) -> bytes:
        assert self._round is not None
        return written(kind, self._round.terms, self.number, body, self._signing)

    def _sent(self, kind: str) -> bytes:
        """A letter of this round that has to be there by now."""
        assert self._round is not None
        if kind not in self._round.letters:
            raise Refused(f"the site has not sent its {kind!r} letter of this round yet.")
        return self._round.letters[kind][1]

    def _shared(self, held: SiteRound, present: Present) -> bytes:
        terms, own = held.terms, self.number
        stream = keystream(derivation.polynomials(terms, present, own, held.mixing))

        def drawn(count: int) -> bytes:
            return bytes(stream.update(bytes(count)))

        seeds = split(held.seed, present.sites, self.agreement.shares, drawn)
        keys = split(held.mask, present.sites, self.agreement.shares, drawn)
        transport = ExchangeKey(held.transport)
        envelopes, opening = [], {}
        for other in _without(present.sites, own):
            shared = transport.shared(present.by_site[other].transport)
            about = derivation.about_envelope(terms, present, own, other)
            envelopes.append(sealed(derivation.envelope(about, shared), seeds[other] + keys[other], about))
            opening[other] = derivation.envelope(derivation.about_envelope(terms, present, other, own), shared)
        held.present, held.opening, held.held = present, opening, {own: (seeds[own], keys[own])}
        held.transport = held.mixing = b""  # not needed any more
        return self._letter("shares", pack("envelopes", b"".join(envelopes)))

    def _take_shares(self, held: SiteRound, request: bytes) -> None:
        """Open the envelopes that were handed on. Nothing is changed unless all of them are sound."""
        self._sent("shares")
        assert held.present is not None
        packed, envelopes = unpack("deliveries", request, 2)
        sharers = unpacked_set(packed)
        self._check_set("sharers", sharers, held.present.sites)
        others = _without(sharers, self.number)
        found = {}
        for other, envelope in zip(others, pieces(envelopes, ENVELOPE, len(others)), strict=True):
            about = derivation.about_envelope(held.terms, held.present, other, self.number)
            try:
                both = opened(held.opening[other], envelope, about)
            except Refused:
                raise Refused(
                    f"the envelope from site {other} was changed, or is meant for another place. None was used."
                ) from None
            found[other] = checked(both[:SHARE]), checked(both[SHARE:])
        held.held = {self.number: held.held[self.number], **found}
        held.sharers = sharers

    def _masked(self, held: SiteRound, values: Words) -> bytes:
        terms, present, own = held.terms, held.present, self.number
        assert present is not None
        masked = Masked(values)
        masked.add(derivation.own_mask(terms, present, own, held.seed))
        key = ExchangeKey(held.mask)
        for other in _without(held.sharers, own):
            shared = key.shared(present.by_site[other].mask)
            pair = derivation.pair_mask(terms, present, held.sharers, own, other, shared)
            (masked.add if own < other else masked.take)(pair)
        held.seed = held.mask = b""  # the others have shares of them
        held.opening.clear()
        signed = b""
        if len(present.sites) == self.agreement.survivors:  # nobody may be missing: there is one set to sign
            body = self._signable(held, present.sites, is_sent=True)
            signed = signature(self._signing, statement("survivors", terms, own, body))
        return self._letter("masked", pack("sum", masked.values.tobytes(), signed))

    def _signable(self, held: SiteRound, survivors: Sequence[int], *, is_sent: bool = False) -> bytes:
        """The set as it is signed, remembered; ``Refused`` if the site must not sign it."""
        if not is_sent:
            self._sent("masked")
        assert held.present is not None
        self._check_set("survivors", survivors, held.sharers)
        if held.survivors not in ((), tuple(survivors)):
            raise Refused("the site has signed another set of survivors for this round.")
        held.survivors = tuple(survivors)
        return survivors_body(held.present, held.sharers, survivors)

    def _check_set(self, name: str, sites: Sequence[int], among: Sequence[int]) -> None:
        fewest = self.agreement.survivors
        if self.number not in sites or not set(sites) <= set(among):
            raise Refused(f"the {name} are not sites of this round with this one among them.")
        if len(sites) < fewest:
            raise Refused(f"{len(sites)} {name} are named, and sums are opened with {fewest} or more.")

    def _check_signatures(self, held: SiteRound, signatures: dict[int, bytes]) -> None:
        assert held.present is not None
        needed = self.agreement.shares
        if len(signatures) < needed or not set(signatures) <= set(held.survivors):
            raise Refused(f"{len(signatures)} signatures of survivors were shown, and {needed} are needed.")
        body = survivors_body(held.present, held.sharers, held.survivors)
        for site in list(signatures)[:needed]:
            verify("survivors", held.terms, site, body, signatures[site])


def _without(sites: Sequence[int], own: int) -> list[int]:
    return [site for site in sites if site != own]


def _keys_of(letter: bytes) -> tuple[bytes, bytes, bytes]:
    """The keys in a letter of one's own."""
    mask, transport, said = unpack("advert", unpack("keys", letter, 3)[1], 3)
    return mask, transport, said
