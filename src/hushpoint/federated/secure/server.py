"""The server of a federation with secure sums: it hands letters on, and learns sums of which nobody sees the parts."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hushpoint._types import Array
from hushpoint.estimators.training import Answer, Found, Link
from hushpoint.federated.ends import FAILED
from hushpoint.federated.secure.covenant import Covenant
from hushpoint.federated.secure.price import encoding_of, fits, round_price
from hushpoint.federated.secure.public import Course, Public
from hushpoint.federated.secure.record import SecureServerStore
from hushpoint.federated.secure.wire import END, Ask, Question, decode_said, encode
from hushpoint.federated.server import RoundRecord, Verdict
from hushpoint.privacy.guarantee import Guarantee
from hushpoint.secure.agreement import Terms
from hushpoint.secure.claim import SecureClaim
from hushpoint.secure.packing import Refused, RoundFailed
from hushpoint.secure.server import Server

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

Status = Literal["running", "finished", "spent"]
_DISPENSABLE = ("calibration", "residual", "held out")  # plans without which there is a model all the same
_LEAVING = ("masked", "survivors", "reveal")  # exchanges by which a masked message may have left


@dataclass(eq=False)
class SecureState:
    """Where a run stands: the plans that are answered, the steps of the next one, and the open round.

    ``louder`` is how much more noise a sum had than its plan says, at most: each survivor adds a share for the fewest
    honest ones. ``rounds`` is the last round that was begun, and ``failed`` of how many of them a masked message may
    have left in vain.
    """

    public: bytes
    shared: Array
    point: Array
    steps: int = 0
    tail_sum: Array = field(default_factory=lambda: np.zeros(0))
    tail_count: int = 0
    rounds: int = 0
    failed: int = 0
    louder: float = 1.0
    spent: dict[str, float] = field(default_factory=lambda: {"squared": 0.0, "spread": 0.0, "missed": 0.0})
    question: bytes = b""
    round_state: bytes = b""
    is_out: bool = False
    ended: str = ""


class SecureServer:
    """The server. It holds no secret of anybody's: what it is told are sums with noise.

    An exchange of letters is opened, answered and closed; the last one of a round opens its sum. A server that is
    killed goes on with the exchange that was open.

    Parameters
    ----------
    covenant : Covenant
        What all agreed to.
    store : SecureServerStore
        Its disk.
    own_key, site_keys
        With which requests and replies are signed; None: inside one process.
    """

    def __init__(
        self,
        covenant: Covenant,
        store: SecureServerStore,
        *,
        own_key: EllipticCurvePrivateKey | None = None,
        site_keys: Sequence[EllipticCurvePublicKey] | None = None,
    ) -> None:
        self.covenant, self.store = covenant, store
        self.run, self.sites = covenant.name, covenant.sites
        self._own_key, self._site_keys = own_key, site_keys
        store.open(covenant)
        found = store.load()
        data = Public().to_bytes() if found is None else found.public
        self._course = Course(covenant.training, Public.from_bytes(data))
        self.state = found or SecureState(data, *self._start())
        self._round: Server | None = None
        self._question: Question | None = None
        if self.state.round_state:
            self._question = Question.from_bytes(self.state.question)
            self._round = Server.restored(self.state.round_state, self._terms(self._question), self._keep)
        self.record = RoundRecord(self.state.rounds, list(range(self.sites)) if self._round else [], [])
        self._waiting: set[int] = set()
        self._informed: set[int] = set()  # asked last with the public results
        self._told: dict[int, bytes] = {}  # the public results that a site was sent last
        self._began = time.monotonic()

    # --- where the run stands

    @property
    def status(self) -> Status:
        """``finished`` at the end of the chain; ``spent`` where nothing more may be asked before."""
        if self._course.link is None:
            return "finished"
        return "spent" if self.state.ended else "running"

    @property
    def why(self) -> str:
        """Why there is no further round, where the chain is not at its end."""
        return FAILED if self.status == "spent" else ""

    @property
    def finished(self) -> bool:
        """Whether there is no further round."""
        return self.status != "running"

    @property
    def waiting(self) -> set[int]:
        """Sites that have not answered in the open exchange."""
        return set(self._waiting)

    @property
    def asked(self) -> set[int]:
        """Sites that the open exchange is for."""
        return set() if self._round is None else {*self._round.waiting, *self._answered()}

    @property
    def exchange(self) -> str:
        """What the open exchange is called."""
        return f"{self.state.rounds}.{'' if self._round is None else self._round.kind}"

    @property
    def has_quorum(self) -> bool:
        """Whether the open exchange can be closed."""
        if self._round is None:
            return False
        agreement = self.covenant.agreement
        fewest = agreement.shares if self._round.kind in ("survivors", "reveal") else agreement.survivors
        return len(self._answered()) >= fewest

    @property
    def is_stuck(self) -> bool:
        """Whether who has not answered will not: letters after the keys are of a round that a site may have lost."""
        return self._round is not None and self._round.kind != "keys" and not self._waiting

    @property
    def found(self) -> Found | None:
        """What the chain found; None before its end. Its error bars know of the noise of all survivors."""
        return self._louder(self._course.found)

    def _louder(self, found: Found | None) -> Found | None:
        if found is None:
            return None
        return replace(found, errors=tuple(errors.louder(self.state.louder) for errors in found.errors))

    @property
    def spent(self) -> SecureClaim:
        """What the rounds so far cost the site that took part in all of them."""
        training, agreement = self.covenant.training, self.covenant.agreement
        squared, spread, missed = (self.state.spent[name] for name in ("squared", "spread", "missed"))
        return SecureClaim(squared, spread, missed, training.unit, training.adjacency, agreement.colluders)

    def guarantee(self) -> Guarantee:
        """What the run costs, in words: what was spent, or all that is promised while it goes on or rounds have failed.

        Which rounds fail, and when a run stops, may be the server's choice in view of what it has learned. Then only
        what no choice can exceed is a statement that holds (docs/privacy.md, section 12).
        """
        if self.state.failed or self.status != "finished":
            return self.covenant.promise()
        return self.covenant.stated(self.spent)

    # --- an exchange

    def open_round(self, available: Collection[int]) -> dict[int, bytes]:
        """Requests to the sites that the open exchange waits for, of those available; a round is begun if none is."""
        if self._round is None:
            self._begin()
        assert self._round is not None
        waiting = set(self._round.waiting) & set(available)
        self._waiting = waiting
        self.record.attempts += 1
        return {site: self._request(site) for site in sorted(waiting)}

    def receive(self, site: int, reply: bytes) -> Verdict:
        """Take an answer, or say why not."""
        self.record.bytes_up += len(reply)
        if not 0 <= site < self.sites or self._round is None:
            return Verdict("late")
        try:
            said = decode_said(reply, None if self._site_keys is None else self._site_keys[site])
            if said.site != site or said.run != self.covenant.run:
                raise Refused("the reply is of another site or run.")
        except Refused:
            return self._refuse(site, "signature or form")
        if (said.round, said.kind) != (self.state.rounds, self._round.kind) or site not in self._waiting:
            return Verdict("late")
        if said.status == "history" and site not in self._informed:
            return Verdict("anchored", again=self._request(site, with_public=True))
        self._waiting.discard(site)
        if said.status == "declined":
            self.record.declined[str(site)] = said.reason
            return Verdict("declined", said.reason)
        try:
            if said.status != "letter" or self._round.take(said.letter) != site:
                raise Refused("the letter is another site's.")
        except Refused:
            return self._refuse(site, "not a letter of this exchange")
        self.record.refused.pop(str(site), None)
        self.record.declined.pop(str(site), None)
        return Verdict("taken")

    def close_round(self) -> RoundRecord | None:
        """Close the open exchange: go on to the next one, or open the sum. The record of a round that is over."""
        if self._round is None or not self.has_quorum:
            raise ValueError("too few sites have answered in this exchange. Wait, or give the round up.")
        try:
            if self._round.kind == "reveal":
                opened = self._round.opened()
            else:
                self._round.requests()
                return None
        except RoundFailed:
            self.abandon_round()
            return None
        self._learn(opened.total.view(np.int64), opened.survivors)
        return self._closed(opened.survivors)

    def abandon_round(self) -> bool:
        """Give the open round up: the next one has fresh noise, and what may have left of this one counts."""
        if self._round is None:
            return False
        self.state.failed += self.state.is_out
        self._clear()
        self.record.refused["all"] = "the round was given up"
        self.store.log(asdict(self.record))
        self._look_ahead()
        return True

    def leave_round(self) -> bool:
        """After too few answers: keys are waited for on, anything else is given up. Whether that was no attempt."""
        if self._round is not None and self._round.kind != "keys":
            self.abandon_round()
        return False

    @property
    def so_far(self) -> Found | None:
        """What the chain would find if it ended with the public point of today; None where that is no model yet."""
        if self._course.link is None:
            return self.found
        course = Course(self.covenant.training, Public.from_bytes(self.state.public))
        if self.state.steps:
            course.go_on(self._answer())
        while course.link is not None:
            link, before = course.link, course.before
            if link.part in _DISPENSABLE:
                course.go_on(Answer(np.zeros(0), np.zeros(0)))
            elif before is not None and (before.part, before.model) == (link.part, link.model) == (
                "descent",
                link.model,
            ):
                course.go_on(course.answers[-1])  # a descent that stays where it is
            else:
                return None
        return self._louder(course.found)

    def took(self, site: int, letter: bytes, reply: bytes) -> bool:
        """Whether a site has kept what it was told at the end."""
        try:
            said = decode_said(reply, None if self._site_keys is None else self._site_keys[site])
        except Refused:
            return False
        return (said.site, said.run, said.kind, said.status) == (site, self.covenant.run, END, "letter")

    def farewell(self, content: bytes) -> dict[int, bytes]:
        """What every site is told at the end: to erase its secrets, and the model."""
        run, last = self.covenant.run, self.state.rounds
        return {site: encode(Ask(run, site, last, END, payload=content), self._own_key) for site in range(self.sites)}

    # --- parts of it

    @property
    def _link(self) -> Link:
        assert self._course.link is not None
        return self._course.link

    @property
    def _question_now(self) -> Question:
        assert self._question is not None
        return self._question

    def _answered(self) -> set[int]:
        assert self._round is not None
        return set(self._round.answered)

    def _start(self) -> tuple[Array, Array]:
        """The public start of the next plan, and the point that is released of it."""
        if self._course.link is None:
            return np.zeros(0), np.zeros(0)
        operator = self._course.link.plan.operator
        shared = np.asarray(operator.start()[0], dtype=np.float64)
        return shared, np.asarray(operator.release(shared), dtype=np.float64)

    def _begin(self) -> None:
        """A new round: its number, its question and its terms are on the disk before anybody is asked."""
        if self.finished:
            raise ValueError(f"the run is {self.status}. Agree anew for more rounds.")
        state, link = self.state, self._link
        state.rounds += 1
        digest = Public.digest_of(state.public)
        self._question = Question(self._course.place, state.steps, link.plan.noise.scale, digest, state.point)
        state.question = self._question.to_bytes()
        self._round = Server(self._terms(self._question), self._keep)
        self._keep(self._round.to_bytes())
        self.record = RoundRecord(state.rounds, list(range(self.sites)), [], attempts=0)
        self._began = time.monotonic()

    def _terms(self, question: Question) -> Terms:
        digests = question.plan_digest(self.covenant.digest), question.point_digest
        return Terms(self.covenant.agreement, self.state.rounds, *digests, self._link.plan.operator.message_size)

    def _keep(self, round_state: bytes) -> None:
        """What is on the disk before the requests of an exchange leave; messages that may leave count from then on."""
        state = self.state
        state.round_state = round_state
        if self._round is not None and self._round.kind in _LEAVING and not state.is_out:
            state.is_out = True
            total = self.spent.joined(self._price())
            state.spent = {name: getattr(total, name) for name in state.spent}
        self.store.save(state)

    def _request(self, site: int, with_public: bool = False) -> bytes:
        assert self._round is not None
        kind, question = self._round.kind, self._question_now
        ask = Ask(self.covenant.run, site, self.state.rounds, kind)
        self._informed.discard(site)
        if kind != "keys":
            ask = Ask(ask.run, site, ask.round, kind, payload=self._round.pending()[site])
        elif with_public or (self.state.steps == 0 and self._told.get(site) != question.public):
            ask = Ask(ask.run, site, ask.round, kind, question.to_bytes(), self.state.public)
            self._told[site] = question.public
            self._informed.add(site)
        else:
            ask = Ask(ask.run, site, ask.round, kind, question.to_bytes())
        data = encode(ask, self._own_key)
        self.record.bytes_down += len(data)
        return data

    def _learn(self, total: Any, survivors: Sequence[int]) -> None:
        """What the opened sum makes of the public point; on to the next plan where this was the last step."""
        state, plan = self.state, self._link.plan
        operator = plan.operator
        weight = self._share(survivors)
        if len(survivors) < self.sites:
            total = total / weight
        shares = len(survivors) / self.covenant.agreement.honest
        state.louder = max(state.louder, math.sqrt(shares) / weight)
        shared = operator.learned(state.shared, state.point, total, plan.relaxation_at(state.steps))
        if not np.isfinite(shared).all():
            raise ValueError("the sum of the messages overflows: a site sends huge numbers.")
        state.shared, state.point = shared, np.asarray(operator.release(shared), dtype=np.float64)
        state.steps += 1
        if plan.tail_average is not None and state.steps > plan.steps - max(1, round(plan.tail_average * plan.steps)):
            state.tail_sum = operator.model(state.point) + (state.tail_sum if state.tail_count else 0.0)
            state.tail_count += 1
        self._clear()
        if state.steps >= plan.steps:
            self._go_on(self._answer())
        self._look_ahead()

    def _share(self, survivors: Sequence[int]) -> float:
        """How much of the weight of all items the survivors have: it is public."""
        training = self.covenant.training
        items = self.covenant.items_for(self._link.part)
        weights = training.facts.item_weights if training.sites_are_items else np.array(items)
        return float(weights[list(survivors)].sum() / weights.sum())

    def _answer(self) -> Answer:
        """What the steps of this plan made public."""
        state, operator = self.state, self._link.plan.operator
        model = state.tail_sum / state.tail_count if state.tail_count else operator.model(state.point)
        return Answer(np.array(model, dtype=np.float64), state.point.copy())

    def _go_on(self, answer: Answer) -> None:
        """To the next plan of the chain."""
        state = self.state
        self._course.go_on(answer)
        state.public = self._course.public.to_bytes()
        state.shared, state.point = self._start()
        state.steps, state.tail_sum, state.tail_count = 0, np.zeros(0), 0

    def _look_ahead(self) -> None:
        """See to it that the next round can be paid for, or that there is none."""
        while self._course.link is not None and not self.state.ended and not self._is_affordable():
            self._make_do()
        self.store.save(self.state)

    def _is_affordable(self) -> bool:
        """Whether one more round leaves what the plans after this one need."""
        kept = self.covenant.training.kept_back(self._link)
        later = SecureClaim(kept, 0.0, 0.0, self.spent.unit, self.spent.adjacency, self.spent.colluders)
        return fits(self.spent.joined(self._price(), later), self.covenant.whole)

    def _make_do(self) -> None:
        """Failed rounds have used up what this plan could spend: go on with what it made, or without it, or end."""
        if self.state.steps:
            self._go_on(self._answer())
        elif self._link.part in _DISPENSABLE:
            self._go_on(Answer(np.zeros(0), np.zeros(0)))
        else:
            self.state.ended = "spent"

    def _price(self) -> SecureClaim:
        training, agreement = self.covenant.training, self.covenant.agreement
        encoding = encoding_of(self._link.plan, agreement, training.unit, training.adjacency)
        return round_price(encoding, agreement, training.unit, training.adjacency)

    def _clear(self) -> None:
        """No round is open."""
        self._round, self._question, self._waiting = None, None, set()
        self.state.round_state, self.state.question, self.state.is_out = b"", b"", False

    def _refuse(self, site: int, reason: str) -> Verdict:
        self._waiting.discard(site)
        self.record.refused[str(site)] = reason
        return Verdict("refused", reason)

    def _closed(self, survivors: Sequence[int]) -> RoundRecord:
        record = self.record
        record.answered = list(survivors)
        record.seconds = round(time.monotonic() - self._began, 3)
        record.epsilon[self.covenant.training.unit] = self.spent.epsilon(self.covenant.budget.delta)
        self.store.log(asdict(record))
        return record
