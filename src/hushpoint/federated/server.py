"""The server: who is asked, what is made of the answers, and what is released. It never sees rows.

A round is opened, answered and closed. What decides it is on the disk before anything leaves: who is asked and from
which point when it opens, the new public point with its noise when it closes. A server that is killed reopens the round
it was in, from the same point, and sites answer with the same bytes.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from hushpoint._checks import require_fraction
from hushpoint._types import Array, Indices
from hushpoint.engine import drawn_by, settle
from hushpoint.federated.agreed import Agreed
from hushpoint.federated.answers import Answers
from hushpoint.federated.ends import LOST, who_and_why
from hushpoint.federated.farewell import Farewell, encode_farewell, was_taken
from hushpoint.federated.record import ServerState, ServerStore
from hushpoint.federated.terms import default_delta, require_federated, spent, trust, units
from hushpoint.federated.wire import Refused, Reply, Request, as_bytes, decode, digest, encode, encoded_size
from hushpoint.noise import source_for
from hushpoint.operators.base import is_within
from hushpoint.plan import Plan
from hushpoint.privacy.guarantee import Guarantee, Unit
from hushpoint.problem import Problem

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

    from hushpoint.tables.array_model import ArrayModel
    from hushpoint.tables.model_file import TableModel

Status = Literal["running", "finished", "spent", "lost"]

_LONGEST = 1e100  # a message that is longer is no message, whatever the method
_WITH_A_LEDGER = ("stale", "cap", "limit", "away")  # reasons for which a site has looked into its ledger


@dataclass(frozen=True)
class Verdict:
    """What the server makes of a reply; ``again`` is a further request to that site in the same round."""

    status: Literal["taken", "declined", "refused", "late", "anchored"]
    reason: str = ""
    again: bytes | None = None


@dataclass
class RoundRecord:
    """One line of the log: who was asked and answered, what travelled, and what has been spent by now."""

    round: int
    asked: list[int]
    answered: list[int]
    declined: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    attempts: int = 1
    bytes_down: int = 0
    bytes_up: int = 0
    seconds: float = 0.0
    objective: float | None = None
    epsilon: dict[str, float | str] = field(default_factory=dict)


class Server:
    """The server of a federation. It needs only the sum of the messages, each with its public multiplicity.

    That sum is made in ``_total``, and there is the seam for secure aggregation: a server that learns nothing but the
    sum can still combine and release (in the anchored method its noise is added to the release, so nothing else needs
    to be seen). What it would lose is the copy of each block, with which it restores a site that lost its own and
    checks that a message is as short as the method promises.

    Parameters
    ----------
    plan : Plan
        What all agreed to; made of declared facts, no rows.
    store : ServerStore
        Its disk (``ServerStore.in_memory()`` inside one process).
    seed : int, optional
        For tests only. None draws sample and noise from the operating system.
    quorum : float
        The share of the sites asked that must have answered for a round to be closed.
    validation : Problem, optional
        A public data set, whose objective is logged each round.
    own_key, site_keys
        The server's private key and the public key of every site; None: unsigned, inside one process.
    delta : float, optional
        Where epsilon is read; default the budget's.
    agreed : Agreed, optional
        The plan with the schema and the nonce of the run; None: the plan alone names it, inside one process.
    """

    def __init__(
        self,
        plan: Plan,
        store: ServerStore,
        *,
        seed: int | None = None,
        quorum: float = 1.0,
        validation: Problem | None = None,
        own_key: EllipticCurvePrivateKey | None = None,
        site_keys: Sequence[EllipticCurvePublicKey] | None = None,
        delta: float | None = None,
        agreed: Agreed | None = None,
    ) -> None:
        facts = require_federated(plan)
        self.plan, self.store, self.validation = plan, store, validation
        self.quorum = require_fraction("quorum", quorum)
        self.delta = default_delta(plan) if delta is None else delta
        if site_keys is not None and len(site_keys) != facts.items:
            raise ValueError(f"site_keys has {len(site_keys)} keys for {facts.items} sites. Pass one each.")
        self._own_key, self._site_keys, self._seed = own_key, site_keys, seed
        self.agreed = Agreed(plan) if agreed is None else agreed
        self.run, self._source = self.agreed.run, source_for(seed)
        store.open(plan, self.run)
        found = store.load(self.run, plan.steps)
        self.state = found or ServerState.start(plan, self.run)
        self._round = RoundRecord(0, [], [])
        self._answers = self._no_answers()
        self._waiting: set[int] = set()
        self._anchored: set[int] = set()
        self._ahead = 0
        self._claims: dict[int, int] = {}  # later rounds that sites say they know of, without a proof
        self._began = 0.0
        if found is not None:
            store.tell(self)  # it may have been killed before it did

    # --- where the run stands

    @property
    def status(self) -> Status:
        """``finished`` after the plan's rounds, ``spent`` where no site may take part any more.

        ``lost`` where the last rounds were run in a life that this server has no memory of: they are counted, and their
        model is not here.
        """
        if self.state.rounds >= self.plan.steps:
            return "lost" if self.state.lost else "finished"
        return "spent" if not self._free().any() else "running"

    @property
    def why(self) -> str:
        """Why there is no further round, where the plan has more."""
        if self.status == "spent":
            return who_and_why(dict.fromkeys(range(self.sites), "cap"))
        return LOST if self.status == "lost" else ""

    @property
    def finished(self) -> bool:
        """Whether there is no further round."""
        return self.status != "running"

    @property
    def sites(self) -> int:
        """How many there are."""
        return self.plan.operator.blocks

    @property
    def exchange(self) -> str:
        """What the open round is called."""
        return str(self.state.rounds + 1)

    @property
    def asked(self) -> set[int]:
        """Sites of the open round."""
        chosen = self.state.chosen
        return set() if chosen is None else {int(site) for site in chosen}

    @property
    def waiting(self) -> set[int]:
        """Sites of the open round that have not answered."""
        return set(self._waiting)

    @property
    def has_quorum(self) -> bool:
        """Whether the open round can be closed."""
        chosen = self.state.chosen
        if self._ahead >= self._round.round:
            return False  # it was closed in another life, and must be left
        return chosen is not None and len(self._answers) >= math.ceil(self.quorum * len(chosen) - 1e-9)

    @property
    def is_stuck(self) -> bool:
        """Whether sites know of this round from a life that this server has no memory of."""
        return self._ahead >= self._round.round

    @property
    def model(self) -> Array:
        """The model that the rounds so far have released."""
        state = self.state
        if state.tail_count:
            return state.tail_sum / state.tail_count
        operator = self.plan.operator
        return np.array(operator.model(operator.release(state.public)))

    def guarantees(self, site: int | None = None) -> list[Guarantee]:
        """What has been spent so far, for a site as a whole and for one record of it.

        With local noise it is the statement of the site that took part most often, by the sites' own ledgers.
        """
        count = self._count(site)
        return [self.statement(count, unit, site) for unit in units(self.plan)]

    def statement(self, count: int, unit: Unit, site: int | None = None) -> Guarantee:
        """What so many participations or releases cost."""
        said = spent(self.plan, count, delta=self.delta, unit=unit, site=site, seed=self._seed)
        if trust(self.plan) == "nobody" and self._seed is None:
            said = replace(said, source="noise drawn by each site itself")  # the server cannot know how
        return said

    # --- a round

    def open_round(self, available: Collection[int]) -> dict[int, bytes]:
        """Requests to the sites of the next round, of those available; a round that is open is opened again.

        Sites that have answered an open round already are not asked again.
        """
        self._open(available)
        self._waiting = {site for site in self._round.asked if site in available} - self._answers.sites
        self._will_ask(sorted(self._waiting))
        return {site: self._request(site) for site in sorted(self._waiting)}

    def ask(self) -> Indices:
        """The sites of the next round, where server and sites are one process and no request is encoded."""
        self._open(None)
        assert self.state.chosen is not None
        asked, state = np.sort(self.state.chosen), self.state
        if len(asked):
            request = Request(self.run, state.rounds + 1, 0, state.token, 0, digest(state.blocks[0]), self._point())
            self._round.bytes_down += encoded_size(request, site=asked, known=state.known[asked])
        return asked

    def _open(self, available: Collection[int] | None) -> None:
        if self.finished:
            raise ValueError(f"the run is {self.status}. Make a new plan for more rounds.")
        state = self.state
        self._require_room()
        if state.chosen is None:
            state.chosen, state.token = self._choose(available), secrets.token_hex(8)
        if self._round.round != state.rounds + 1:
            asked = state.chosen.tolist()
            self._round = RoundRecord(state.rounds + 1, asked, [], attempts=0)
            self._answers, self._began = self._no_answers(), time.monotonic()
        self._round.attempts += 1
        self._anchored, self._ahead, self._claims = set(), 0, {}

    def receive(self, site: int, reply: bytes) -> Verdict:
        """Take an answer, or say why not. A message that is refused has left all the same: its site has counted it."""
        self._round.bytes_up += len(reply)
        if not 0 <= site < self.plan.operator.blocks:
            return Verdict("refused", "no site of the plan")
        try:
            said = decode(reply, Reply, None if self._site_keys is None else self._site_keys[site])
            if said.site != site or said.run != self.run or said.last_round > self.plan.steps:
                raise Refused("the reply is of another site or run")
        except Refused:
            return self._refuse(site, "signature or form")
        name = digest(self._point(), self.state.token)
        if (said.round, said.point) != (self._round.round, name) and said.reason != "refused":
            return Verdict("late")
        if site not in self._waiting:
            return Verdict("late")
        self._heard(site, said)
        if said.status == "anchor":
            if site in self._anchored:
                return self._refuse(site, "asks for its block again and again")
            self._anchored.add(site)
            self._will_ask([site])
            return Verdict("anchored", again=self._request(site, with_block=True))
        self._waiting.discard(site)
        if said.status == "declined":
            self._round.declined[str(site)] = said.reason
            return Verdict("declined", said.reason)
        assert said.message is not None
        fault = self._fault(site, said.message)
        if fault:
            return self._refuse(site, fault)
        self._answers.put(site, said.message)
        self._round.refused.pop(str(site), None)
        self._round.declined.pop(str(site), None)
        return Verdict("taken")

    def receive_all(self, sites: Indices, messages: Array, participations: Indices) -> None:
        """Take the answers of sites of this process: their code is the plan's, so all that may fail is numbers."""
        if not np.isfinite(messages).all():
            raise ValueError("a message is not finite. Clip the losses.")
        name, state = digest(self._point(), self.state.token), self.state
        if len(sites):
            this = self._round.round
            reply = Reply(self.run, this, 0, name, "moved", participations=0, last_round=this, message=messages[0])
            self._round.bytes_up += encoded_size(reply, site=sites, participations=participations)
        state.participations[sites] = np.maximum(state.participations[sites], participations)
        self._answers.put_all(sites, messages)

    def close_round(self) -> RoundRecord:
        """Combine, add noise, release: all of it on the disk before anybody is told."""
        if not self.has_quorum:
            raise ValueError(
                f"{len(self._answers)} of {len(self._round.asked)} sites have answered, below the quorum of "
                f"{self.quorum:g}. Open the round again, or wait."
            )
        plan, state = self.plan, self.state
        operator, step = plan.operator, state.rounds
        answered, messages = self._answers.stacked()
        drawn = drawn_by(plan, self._source, step)
        shared, public = settle(
            operator, state.shared, self._total(answered, messages), answered, plan.relaxation_at(step), drawn
        )
        if not np.isfinite(shared).all():
            raise ValueError("the sum of the messages overflows: a site sends huge numbers. Clip the losses.")
        state.shared, state.public = shared, public
        if operator.block_size:
            state.blocks[answered] += messages
        state.known[answered] = step + 1
        state.taken[answered] += 1
        state.end_round(step + 1)
        state.released = step + 1
        self._add_to_tail()
        record = self._closed(answered)
        state.last_record = dict(vars(record))
        self.store.save(state)
        self.store.log(state.last_record)
        self.store.tell(self)
        self._answers, self._waiting = self._no_answers(), set()
        return record

    def abandon_round(self) -> bool:
        """Leave a round that sites have already answered in a life that this server has no memory of.

        Where a server was restored from an old copy, sites decline its rounds as stale. It then goes on after the last
        round that one of them knows of; the rounds between are counted as spent. False where there is nothing to leave.
        """
        if self._ahead < self._round.round:
            return False
        state = self.state
        state.skip_to(self._ahead, self.plan.steps)
        self.store.save(state)
        self.store.tell(self)
        self._answers, self._waiting, self._ahead = self._no_answers(), set(), 0
        return True

    def farewell(self, outcome: str) -> dict[int, bytes]:
        """What every site is told at the end: how it ended, and the last public model."""
        model = self.model_file(outcome)
        from hushpoint.federated.models import model_bytes

        content = b"" if model is None else model_bytes(model)
        letter = encode_farewell(Farewell(self.run, outcome, content), self._own_key)
        return dict.fromkeys(range(self.sites), letter)

    def took(self, site: int, letter: bytes, reply: bytes) -> bool:
        """Whether a site has kept what it was told at the end."""
        return was_taken(letter, reply, None if self._site_keys is None else self._site_keys[site])

    def model_file(self, status: str | None = None) -> TableModel | ArrayModel | None:
        """The last public model as people use it; None before the first round, and where it cannot be one."""
        vector = self.model
        if not self.state.released or not np.isfinite(vector).all():
            return None
        run = {"run": self.run, "status": status or self.status, "rounds": self.state.released}
        run |= {"planned_rounds": self.plan.steps}
        from hushpoint.federated.models import model_of_plan

        return model_of_plan(self.plan, self.agreed.shape, vector, self.guarantees(), run)

    def leave_round(self) -> bool:
        """After too few answers: whether the round was left for one that sites know of, which is no attempt."""
        return self.abandon_round()

    # --- parts of it

    def _choose(self, available: Collection[int] | None) -> Indices:
        """Who is asked, of all or of those available.

        Where sampling amplifies nothing, sites that are not there are replaced by others.
        """
        plan, step = self.plan, self.state.rounds
        drawn = plan.schedule.draw(step, self._source, -1)
        everyone = np.arange(plan.operator.blocks)
        chosen = everyone if drawn is None else drawn
        there = everyone >= 0 if available is None else np.isin(everyone, list(available))
        if plan.operator.block_size and not there[chosen].all():
            others = plan.schedule.among(there, step, self._source)
            chosen = chosen if others is None else others
        return np.asarray(chosen[self._free()[chosen]], dtype=np.int64)

    def _free(self) -> NDArray[np.bool_]:
        """Sites that have not used up their participations."""
        cap = self.plan.schedule.cap
        if cap is None:
            return np.ones(self.plan.operator.blocks, dtype=np.bool_)
        return np.asarray(np.maximum(self.state.participations, self.state.taken) < cap)

    def _require_room(self) -> None:
        """Where messages are summed exactly, a sum must fit whatever the sites send from this point."""
        operator = self.plan.operator
        if operator.unit is not None and not is_within(self._point(), operator.reach()):
            raise ValueError(
                f"the public point is farther than {operator.reach():g} from 0, where sites decline: their sum might "
                "not fit into 64 bits. Make a new plan with less noise, or with lattice=False."
            )

    def _point(self) -> Array:
        return self.plan.operator.release(self.state.public)

    def _request(self, site: int, with_block: bool = False) -> bytes:
        state = self.state
        block = state.blocks[site] if with_block and self.plan.operator.block_size else None
        known, copy = int(state.known[site]), digest(state.blocks[site])
        request = Request(self.run, state.rounds + 1, site, state.token, known, copy, self._point(), block)
        data = encode(request, self._own_key)
        self._round.bytes_down += len(data)
        return data

    def _will_ask(self, sites: list[int]) -> None:
        """Count, on the disk and beforehand, that these sites may answer and the answer be lost."""
        state = self.state
        state.unheard[sites] = np.maximum(1, state.unheard[sites] + ~state.asked[sites])
        state.asked[sites] = True
        self.store.save(state)

    def _heard(self, site: int, said: Reply) -> None:
        """What a site says of itself: how often it took part by its own ledger, and in which round last."""
        if said.status != "declined" or said.reason in _WITH_A_LEDGER:
            self.state.participations[site] = max(self.state.participations[site], said.participations)
            self.state.unheard[site] = 0
        if said.reason == "stale":
            self._claims[site] = said.last_round
            self._ahead = max(self._ahead, self._proven(site, said), self._claimed_by_most())

    def _proven(self, site: int, said: Reply) -> int:
        """The round that this server has asked a site for in a life that it has no memory of; 0 without a proof.

        One site that lies must not end a run, and one that does not must be believed: what was released counts. So a
        site shows the request for that round, which bears this server's signature.
        """
        try:
            proof = b"" if said.proof is None else as_bytes(said.proof)
            shown = decode(proof, Request, None if self._own_key is None else self._own_key.public_key())
        except Refused:
            return 0
        now, name = self._round.round, digest(self._point(), self.state.token)
        later = shown.round > now or (shown.round == now and shown.name != name)
        known = shown.run == self.run and shown.site == site and shown.round <= self.plan.steps
        return shown.round if later and known else 0

    def _claimed_by_most(self) -> int:
        """The round that more than half of those asked say they know of: sites may have lost what proves it.

        One alone is not believed, though nobody else was asked.
        """
        claims = sorted(self._claims.values(), reverse=True)
        most = max(len(self._round.asked) // 2, min(1, self.sites - 1))
        return claims[most] if len(claims) > most else 0

    def _fault(self, site: int, message: Array) -> str:
        """Why a message cannot be one of the method's; empty if it can. Never says what is in it."""
        operator, plan = self.plan.operator, self.plan
        if len(message) != operator.message_size:
            return f"{len(message)} numbers for {operator.message_size}"
        if message.dtype != operator.nothing().dtype:
            return "numbers of another kind than the plan's"
        if not np.isfinite(message).all():
            return "numbers that are not finite"
        block = self.state.blocks[site] if operator.block_size else np.zeros(0)
        able = operator.is_plausible(message, block, self._point(), plan.largest_relaxation, plan.noise.std)
        return "" if able and is_within(message, _LONGEST) else "longer than the method allows"

    def _refuse(self, site: int, reason: str) -> Verdict:
        self._waiting.discard(site)
        self._round.refused[str(site)] = reason
        return Verdict("refused", reason)

    def _no_answers(self) -> Answers:
        return Answers(self.plan.operator.nothing())

    def _total(self, answered: Indices, messages: Array) -> Array:
        """The sum of the messages with their multiplicities: all that combining and releasing need.

        It is added up row after row, so that the same answers give the same bits.
        """
        operator = self.plan.operator
        counted = messages if operator.multiplicity is None else operator.multiplicity[answered, None] * messages
        return np.asarray(operator.nothing() + counted.sum(axis=0))

    def _add_to_tail(self) -> None:
        state, plan = self.state, self.plan
        if plan.tail_average is None:
            return
        if state.rounds > plan.steps - max(1, round(plan.tail_average * plan.steps)):
            model = plan.operator.model(self._point())
            state.tail_sum = model + (state.tail_sum if state.tail_count else 0.0)
            state.tail_count += 1

    def _closed(self, answered: Indices) -> RoundRecord:
        record = self._round
        record.answered = answered.tolist()
        for site in self._waiting:
            record.declined[str(site)] = "no answer"
        record.seconds = round(time.monotonic() - self._began, 3)
        if self.validation is not None:
            record.objective = self.validation.objective(self.model)
        for guarantee in self.guarantees():
            epsilon = guarantee.epsilon
            record.epsilon[guarantee.unit] = epsilon if math.isfinite(epsilon) else "inf"
        return record

    def _count(self, site: int | None) -> int:
        """What the noise is accounted for: participations of a site, or releases of the server."""
        if trust(self.plan) != "nobody":
            return self.state.rounds
        return int(self.state.accounted.max() if site is None else self.state.accounted[site])
