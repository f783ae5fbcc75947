"""The server of a round of secure sums: it hands letters on, counts who answered, and opens one sum or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from hushpoint.secure import derivation
from hushpoint.secure.agreement import Terms
from hushpoint.secure.letters import KINDS, Advert, Present, packed_signatures, read, survivors_body, verify
from hushpoint.secure.masks import Masked, Words, words
from hushpoint.secure.packing import Refused, RoundFailed, pack, packed_set, pieces, unpack
from hushpoint.secure.primitives import ExchangeKey, digest
from hushpoint.secure.shares import SHARE, Weights
from hushpoint.secure.site import ENVELOPE


@dataclass(frozen=True)
class Opened:
    """The sum of the survivors' messages modulo 2^64, and who they are."""

    total: Words
    survivors: tuple[int, ...]


class Server:
    """One round at the server.

    ``take`` every letter that arrives; when as many answered as one waits for, ``requests`` closes the exchange and
    says what is to be sent to whom; after the last exchange ``opened`` is the sum. A server that was killed goes on
    from the state it kept, or begins a new round: it has no secrets to lose.

    Parameters
    ----------
    terms : Terms
        What the round asks.
    keep : callable, optional
        Called with the state whenever an exchange is closed, before the requests leave.
    """

    def __init__(self, terms: Terms, keep: Callable[[bytes], None] | None = None) -> None:
        self.terms = terms
        self._keep = keep
        self._log: list[bytes] = []
        self._phase = 0
        self._letters: dict[str, dict[int, bytes]] = {kind: {} for kind in KINDS}
        self._adverts: dict[int, Advert] = {}
        self._envelopes: dict[int, dict[int, bytes]] = {}
        self._signatures: dict[int, bytes] = {}
        self._shares: dict[int, Sequence[bytes]] = {}
        self._total: Masked | None = None
        self._present: Present | None = None
        self._sharers: tuple[int, ...] = ()
        self._survivors: tuple[int, ...] = ()

    @classmethod
    def restored(cls, state: bytes, terms: Terms, keep: Callable[[bytes], None] | None = None) -> Server:
        """The server as it was when it last closed an exchange."""
        context, *log = unpack("server", state)
        if context != terms.context:
            raise ValueError("state is of another round. Pass the terms it was made under.")
        found = cls(terms)
        for event in log:
            if event:
                found.take(event)
            else:
                found._close()
        found._keep = keep
        return found

    def to_bytes(self) -> bytes:
        """The state: letters taken, and where exchanges were closed. It holds no secret that letters do not hold."""
        return pack("server", self.terms.context, *self._log)

    # --- letters in, requests out

    @property
    def kind(self) -> str:
        """The kind of letter that the open exchange is about."""
        return KINDS[self._phase]

    @property
    def waiting(self) -> tuple[int, ...]:
        """The sites that may still answer in this exchange."""
        return tuple(site for site in self._asked() if site not in self._letters[self.kind])

    @property
    def answered(self) -> tuple[int, ...]:
        """The sites that have answered in this exchange."""
        return tuple(self._letters[self.kind])

    def take(self, letter: bytes) -> int:
        """Take a letter of the open exchange; its sender's number. ``Refused`` if it is not one, or a second one."""
        kind = self.kind
        site, body = read(kind, self.terms, letter)
        before = self._letters[kind].get(site)
        if before is not None:
            if before != digest(letter):
                raise Refused(f"site {site} sent two different {kind!r} letters in one round. The first one counts.")
            return site
        if site not in self._asked():
            raise Refused(f"site {site} was not asked for a {kind!r} letter.")
        getattr(self, f"_take_{kind}")(site, body, letter)
        self._letters[kind][site] = digest(letter)
        self._log.append(letter)
        return site

    def requests(self) -> dict[int, bytes]:
        """Close the exchange: what is sent to whom in the next one. ``RoundFailed`` if too few answered."""
        self._close()
        if self._keep is not None:
            self._keep(self.to_bytes())
        return self.pending()

    def pending(self) -> dict[int, bytes]:
        """The requests of the open exchange again, for sites that did not answer yet."""
        if self.kind == "masked":
            return {site: self._deliveries(site) for site in self._sharers}
        if self.kind == "shares":
            whole = pack("adverts", *(self._written[site] for site in self._asked()))
        elif self.kind == "survivors":
            whole = pack("survivors", packed_set(self._survivors))
        elif self.kind == "reveal":
            needed = sorted(self._signatures)[: self.terms.agreement.shares]
            whole = packed_signatures({site: self._signatures[site] for site in needed})
        else:
            raise ValueError("nobody was asked for anything yet. Tell the sites the terms of the round first.")
        return dict.fromkeys(self._asked(), whole)

    def opened(self) -> Opened:
        """The sum of the survivors' messages; ``RoundFailed`` if it cannot be opened."""
        if self.kind != "reveal" or self._total is None or self._present is None:
            raise ValueError("the round is not at its end. Take the letters of every exchange first.")
        if len(self._shares) < self.terms.agreement.shares:
            raise RoundFailed(self._too_few(len(self._shares), self.terms.agreement.shares))
        secrets = self._secrets()
        total = Masked(self._total.values)
        for site in self._survivors:
            total.take(derivation.own_mask(self.terms, self._present, site, secrets[site]))
        for lost in set(self._sharers) - set(self._survivors):
            key = ExchangeKey(secrets[lost])
            for site in self._survivors:
                shared = key.shared(self._present.by_site[site].mask)
                pair = derivation.pair_mask(self.terms, self._present, self._sharers, site, lost, shared)
                (total.take if site < lost else total.add)(pair)
        return Opened(words(total.values.tobytes(), self.terms.length), self._survivors)

    # --- one method for each kind of letter

    def _take_keys(self, site: int, body: bytes, letter: bytes) -> None:
        self._adverts[site] = Advert.read(self.terms, letter)

    def _take_shares(self, site: int, body: bytes, letter: bytes) -> None:
        (joined,) = unpack("envelopes", body, 1)
        others = [other for other in self._asked() if other != site]
        self._envelopes[site] = dict(zip(others, pieces(joined, ENVELOPE, len(others)), strict=True))

    def _take_masked(self, site: int, body: bytes, letter: bytes) -> None:
        values, signed = unpack("sum", body, 2)
        if len(values) != 8 * self.terms.length:
            raise Refused(f"the message of site {site} is not {self.terms.length} numbers.")
        if self._is_complete_by_terms:
            self._take_signature(site, signed)
        assert self._total is not None
        self._total.values += words(values, self.terms.length)

    def _take_survivors(self, site: int, body: bytes, letter: bytes) -> None:
        self._take_signature(site, unpack("survivors", letter, 3)[2])

    def _take_reveal(self, site: int, body: bytes, letter: bytes) -> None:
        (joined,) = unpack("shares", body, 1)
        self._shares[site] = pieces(joined, SHARE, len(self._sharers))

    # --- what stands between two exchanges

    @property
    def _is_complete_by_terms(self) -> bool:
        """Whether nobody of the round's roster may be missing: its survivors are then signed with the messages."""
        return self._present is not None and len(self._present.sites) == self.terms.agreement.survivors

    @property
    def _written(self) -> dict[int, bytes]:
        """The letters with the keys, by site."""
        found = {}
        for letter in self._log[: len(self._adverts)]:
            found[int.from_bytes(unpack("keys", letter, 3)[0], "big")] = letter
        return found

    def _asked(self) -> Sequence[int]:
        if self.kind == "keys":
            return range(len(self.terms.agreement.roster))
        if self.kind == "shares":
            return self._present.sites if self._present else ()
        return self._sharers if self.kind == "masked" else self._survivors

    def _close(self) -> None:
        arrived = tuple(sorted(self._letters[self.kind]))
        agreement = self.terms.agreement
        fewest = agreement.shares if self.kind == "survivors" else agreement.survivors
        if self.kind == "reveal":
            raise ValueError("the last exchange has no successor. Call opened().")
        if len(arrived) < fewest:
            raise RoundFailed(self._too_few(len(arrived), fewest))
        if self.kind == "keys":
            self._present = Present.of(agreement, self._adverts.values())
        elif self.kind == "shares":
            self._sharers = arrived
            self._total = Masked(words(bytes(8 * self.terms.length), self.terms.length))
        elif self.kind == "masked":
            self._survivors = arrived
            self._phase += self._is_complete_by_terms  # signed already
        self._phase += 1
        self._log.append(b"")

    def _deliveries(self, site: int) -> bytes:
        mine = (self._envelopes[other][site] for other in self._sharers if other != site)
        return pack("deliveries", packed_set(self._sharers), b"".join(mine))

    def _take_signature(self, site: int, signed: bytes) -> None:
        """A signature of the survivors that this server names, and of no other set."""
        assert self._present is not None
        survivors = self._survivors or self._present.sites
        verify("survivors", self.terms, site, survivors_body(self._present, self._sharers, survivors), signed)
        self._signatures[site] = signed

    def _secrets(self) -> dict[int, bytes]:
        """By sharer the secret that was revealed of it, checked: seeds by the commitment, keys by the public key."""
        ways = self._ways()
        current, found = next(ways), {}
        assert self._present is not None
        for place, site in enumerate(self._sharers):
            advert, arrived = self._present.by_site[site], site in self._survivors
            while True:
                secret = current.secret([self._shares[other][place] for other in current.sites])
                if secret is not None and self._is_secret(advert, secret, arrived):
                    break
                following = next(ways, None)
                if following is None:
                    raise RoundFailed(f"the shares of the secret of site {site} fit no key of it. Ask for a new round.")
                current = following
            found[site] = secret
        return found

    def _ways(self) -> Iterator[Weights]:
        """Sets of as many sites as are needed: the first one, and others that leave out who may have lied."""
        sites, needed = sorted(self._shares), self.terms.agreement.shares
        yield Weights(sites[:needed])
        if len(sites) > needed:
            for k in range(1, len(sites)):
                yield Weights((sites[k:] + sites[:k])[:needed])

    def _is_secret(self, advert: Advert, secret: bytes, arrived: bool) -> bool:
        if arrived:
            return derivation.commitment(self.terms, advert.site, secret) == advert.commitment
        return ExchangeKey(secret).public == advert.mask

    def _too_few(self, arrived: int, fewest: int) -> str:
        return (
            f"{arrived} sites answered with their {self.kind!r} letter, and {fewest} are needed. Ask for a new round: "
            "this one is never opened with another set."
        )
