"""A site: local data, its block, its noise, and the ledger that says how often it took part."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, time
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from hushpoint._checks import require_count
from hushpoint._types import Array, Indices
from hushpoint.federated.agreed import Agreed
from hushpoint.federated.disk import Busy, Damaged
from hushpoint.federated.ends import ENDS, told_at_site
from hushpoint.federated.farewell import decode_farewell, farewell_reply, is_farewell
from hushpoint.federated.ledger import Ledger, Participation, SiteState, SiteStore, total_mu
from hushpoint.federated.terms import participation_mu, require_federated
from hushpoint.federated.wire import Refused, Reply, Request, as_numbers, decode, digest, encode, is_whole
from hushpoint.noise import source_for
from hushpoint.plan import Plan
from hushpoint.privacy.gaussian import gdp_epsilon
from hushpoint.privacy.guarantee import Budget
from hushpoint.problem import item_rows
from hushpoint.rows import Rows

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey


@dataclass(frozen=True)
class Window:
    """The hours of the day in which a site takes part, by its own clock; they may go over midnight."""

    opens: time
    closes: time

    def has(self, moment: datetime) -> bool:
        """Whether a moment is in the window."""
        now = moment.time()
        if self.opens <= self.closes:
            return self.opens <= now < self.closes
        return now >= self.opens or now < self.closes

    @staticmethod
    def parse(text: str) -> Window:
        """A window written as ``"22:00-06:00"``."""
        try:
            opens, closes = (time.fromisoformat(part.strip()) for part in text.split("-"))
        except ValueError:
            raise ValueError(f"window is {text!r}. Write the hours as '22:00-06:00'.") from None
        return Window(opens, closes)


def site_rows(plan: Plan, site: int, X: Any, y: ArrayLike) -> Rows:
    """The rows of one site as its client needs them: scaled and clipped as the plan says, and as many as it says."""
    facts = plan.facts
    if facts is None:
        raise ValueError("plan has no facts. Make it with a function of hushpoint.methods.")
    require_count("site", site, least=0, most=facts.items - 1)
    expected = int(facts.row_counts[site])
    if np.shape(X)[0] != expected:
        raise ValueError(
            f"site {site} holds {np.shape(X)[0]} rows and the plan says {expected}. The number of rows is public and "
            "the guarantee rests on it: correct the data or the plan."
        )
    if np.shape(X)[1] != facts.features:
        raise ValueError(f"site {site} has {np.shape(X)[1]} features and the plan says {facts.features}.")
    return item_rows(facts, X, y)


class Client:
    """One site of a federation, which is one item of the plan: a user with a row or more, or many people's rows.

    It answers only what its own copy of the plan allows: noise, clipping and the number of participations are its own
    terms, whatever the server says. ``answer`` takes and gives bytes and never raises: what goes wrong is a word.

    Parameters
    ----------
    plan : Plan
        What the site agreed to.
    site : int
        Which item of the plan it is.
    rows : Rows
        Its data, by ``site_rows``.
    store : SiteStore
        Its disk (``MemoryStore()`` inside one process).
    seed : int, optional
        For tests only: whoever knows it can take the noise away. None draws from the operating system.
    limit : Budget, optional
        What the site will spend in all runs together, whatever the plan allows; for methods with local noise.
    server_key, own_key
        The server's public key and the site's private one; None: unsigned, inside one process.
    window : Window, optional
        The hours in which it takes part.
    clock : callable
        What the time is.
    agreed : Agreed, optional
        The plan with the schema and the nonce of the run; None: the plan alone names it, inside one process.
    tell : callable, optional
        Told in fixed words, for the people of the site, why it declined and what is to be done.
    """

    def __init__(
        self,
        plan: Plan,
        site: int,
        rows: Rows,
        store: SiteStore,
        *,
        seed: int | None = None,
        limit: Budget | None = None,
        server_key: EllipticCurvePublicKey | None = None,
        own_key: EllipticCurvePrivateKey | None = None,
        window: Window | None = None,
        clock: Callable[[], datetime] = datetime.now,
        agreed: Agreed | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        facts = require_federated(plan)
        require_count("site", site, least=0, most=facts.items - 1)
        if rows.items != 1 or len(rows) != facts.row_counts[site]:
            raise ValueError(
                f"rows has {rows.items} items and {len(rows)} rows; site {site} of the plan is one item with "
                f"{facts.row_counts[site]}. Make them with site_rows(plan, site, X, y)."
            )
        if limit is not None and plan.noise.place != "block":
            raise ValueError(
                f"limit is given and {plan.method} has its noise at the server: a site cannot see to its own budget. "
                "Use federated_admm with noise='clients', or drop the limit."
            )
        self.plan, self.site, self.store, self.limit, self.window = plan, site, store, limit, window
        self.agreed = Agreed(plan) if agreed is None else agreed
        self._run, self._clock, self._tell = self.agreed.run, clock, tell
        self._server_key, self._own_key = server_key, own_key
        self._seed, self._request = seed, b""
        self._data = plan.operator.prepare(rows)
        self._reach = plan.operator.reach()
        self._mu = {unit: participation_mu(plan, unit, site) for unit in ("user", "record")}

    def answer(self, request: bytes) -> bytes:
        """The reply to a request; a move is in the ledger and on the disk before this returns."""
        asked: Request | None = None
        try:
            if is_farewell(request):
                return self._parted(request)
            asked = decode(request, Request, self._server_key)
            self._request = request
            if asked.site != self.site:
                raise Refused("the request is for another site")
            with self.store.held():
                reply, again = self._answer(asked)
                reply_bytes = encode(reply, self._own_key)
                if reply.status == "moved":
                    self.store.note(reply.run, reply.round, len(reply_bytes), again)
            self._say_why(reply.reason)
            return reply_bytes
        except Refused:
            reason = "refused"
        except Busy:
            reason = "busy"
        except OSError:  # nothing has left: what cannot be kept is not sent
            reason = "disk"
        except Exception:  # its text may quote data, so not a word of it leaves
            reason = "failed"
        self._say_why(reason)
        return encode(self._declined(asked, reason), self._own_key)

    def _say_why(self, reason: str) -> None:
        if reason and self._tell is not None:
            self._tell(told_at_site(reason))

    def _parted(self, data: bytes) -> bytes:
        """Keep the model of a run that is over, if it is one that the server signed, of this run and its schema."""
        try:
            letter = decode_farewell(data, self._server_key)
            if letter.run != self._run:
                raise Refused("the letter is of another run")
            if letter.model:
                from hushpoint.federated.models import require_model  # with it come tables, which a round does not need

                require_model(letter.model, self._described, self._run)
                self.store.keep_model(letter.model)
        except (ValueError, OSError):
            if self._tell is not None:
                self._tell(told_at_site("model"))
            return farewell_reply(data, False, self._own_key)
        if self._tell is not None:
            end = letter.outcome if letter.outcome in ENDS else "over"
            self._tell(f"the run is {end}." + (" The model is in model.json." if letter.model else ""))
        return farewell_reply(data, True, self._own_key)

    @property
    def _described(self) -> dict[str, Any]:
        """What the data are, as a model of them says it."""
        shape, facts = self.agreed.shape, self.plan.facts
        assert facts is not None
        return {"features": facts.features} if shape is None else shape.to_dict()

    def _answer(self, asked: Request) -> tuple[Reply, bool]:
        """What to say, and whether it was said before."""
        if asked.run != self._run or not 1 <= asked.round <= self.plan.steps:
            return self._declined(asked, "plan"), False
        if is_whole(asked.point) or not self._sane(asked.point, self.plan.operator.message_size):
            return self._declined(asked, "refused"), False
        ledger, lacking = self._ledger(asked)
        if ledger is None:
            return self._declined(asked, lacking), False
        pending = self.store.pending(ledger)
        if pending is not None:  # it may be sent now, and it counts now, of whatever run it is
            ledger = self.store.record(ledger, pending)
        state = self.store.state(self._run)
        last = ledger.last_round(self._run)
        if asked.round <= last:
            if state is not None and (state.round, state.point) == (asked.round, asked.name):
                return self._moved(asked, ledger, state), True
            if asked.round < last or ledger.of(self._run)[-1].point != asked.name:
                proof = state.request if state is not None and state.round == last and len(state.request) else None
                return self._declined(asked, "stale", ledger, proof), False
            # The ledger has the round and the state was lost: another message for the same round counts again.
        if self.window is not None and not self.window.has(self._clock()):
            return self._declined(asked, "away", ledger), False
        refusal = self._spent(ledger)
        if refusal:
            return self._declined(asked, refusal, ledger), False
        base = self._base(asked, state)
        if base is None:
            return self._said(asked, ledger, status="anchor"), False
        message = self._move(asked, base)
        moved = base + message if self.plan.operator.block_size else base
        state = SiteState(
            self._run,
            asked.round,
            asked.name,
            moved,
            base,
            message,
            ledger.checks[-1],
            as_numbers(self._request),
            json.dumps(self._mu),
        )
        self.store.save(state)
        return self._moved(asked, self._recorded(ledger, state), state), False

    @property
    def _own_noise(self) -> bool:
        """Whether what is spent is the site's to count."""
        return self.plan.noise.place == "block"

    def _ledger(self, asked: Request) -> tuple[Ledger | None, str]:
        """The ledger; None where it is lost, or an old copy, and which of them in a word.

        An old copy lacks a line that the state beside it was made after, or that the server has a message of.
        """
        try:
            ledger = self.store.ledger()
        except Damaged:
            # Where the server adds the noise, releases are counted, and there. The lost ledger stays lost for others.
            return (None, "ledger") if self._own_noise else (Ledger(lost=True), "")
        if not self._own_noise:
            return ledger, ""
        began_here = ledger.shows_last(self._run)
        if self._own_noise and began_here and asked.known > ledger.last_round(self._run):
            self.store.note_behind(self._run, asked.known)  # so that status says it, and whoever asks next
            return None, "old-ledger"
        return (None, "old-ledger") if self.store.is_old(ledger) else (ledger, "")

    def _recorded(self, ledger: Ledger, state: SiteState) -> Ledger:
        """The ledger with the participation whose message is in the state."""
        if ledger.lost:
            return ledger
        return self.store.record(ledger, Participation(self._run, state.round, state.point, self._mu))

    def _sane(self, vector: Array, size: int) -> bool:
        """Whether a vector from outside is one that a move can be computed from as exactly as the guarantee needs.

        Far from 0 rounding would add up to more than the stated tolerance, or a prox fail: an untrusted server could
        send points at which that depends on the data.
        """
        if len(vector) != size or not np.isfinite(vector).all():
            return False
        with np.errstate(over="ignore"):
            return float(np.linalg.norm(vector)) <= self._reach

    def _base(self, asked: Request, state: SiteState | None) -> Array | None:
        """The block that the server has: the last one, or the one before where its message was lost."""
        size, kind = self.plan.operator.block_size, self.plan.operator.nothing().dtype
        if size == 0 or asked.known == 0:
            return np.zeros(size, dtype=kind)  # the public start
        if asked.block is not None:
            return asked.block if asked.block.dtype == kind and self._sane(asked.block, size) else None
        for block in () if state is None else (state.block, state.base):
            if block.dtype == kind and digest(block) == asked.copy:
                return block
        return None

    def _move(self, asked: Request, base: Array) -> Array:
        """The message of one step from the public point; what leaves is exactly what the block moves by."""
        plan, step = self.plan, asked.round - 1
        # A source of its own for every move: a round that is computed again must not meet the same noise.
        kick = plan.noise.drawn(source_for(self._seed), "block", step, plan.operator.message_size, [self.site])
        for data in (self._data, plan.operator.without_data()):
            messages = attempt(plan, data, slice(0, 1), base[None, :], asked.point, step, kick)
            if messages is not None:  # to say that it failed would tell of the data, and cost nothing
                return np.asarray(messages[0])
        raise ArithmeticError

    def _spent(self, ledger: Ledger) -> str:
        """Which allowance one more participation would exceed, if any."""
        count = ledger.count(self._run)
        if any(one.run == self._run and one.count is None for one in ledger.vouched):
            return "cap"  # lines of this run were lost, and nobody said how many
        if self._own_noise and count >= self.plan.schedule.most(self.plan.steps):
            return "cap"
        if self.plan.schedule.cap is not None and count >= self.plan.schedule.cap:
            return "cap"
        if self.limit is None:
            return ""
        unit = self.limit.unit or self.plan.default_unit
        earlier, each = total_mu(ledger, unit), self._mu[unit]
        if earlier is None or each is None:  # nobody knows what some of those before have cost
            return "limit"
        mu = math.sqrt(earlier**2 + each**2) * (1 + 1e-12)
        return "" if math.isfinite(mu) and gdp_epsilon(mu, self.limit.delta) <= self.limit.epsilon else "limit"

    def _moved(self, asked: Request, ledger: Ledger, state: SiteState) -> Reply:
        return self._said(asked, ledger, status="moved", message=state.message)

    def _declined(self, asked: Request | None, reason: str, ledger: Ledger | None = None, proof: Any = None) -> Reply:
        if asked is None:
            return Reply(self._run, 0, self.site, "", "declined", reason)
        return self._said(asked, ledger, status="declined", reason=reason, proof=proof)

    def _said(self, asked: Request, ledger: Ledger | None, **what: Any) -> Reply:
        book = Ledger() if ledger is None else ledger
        return Reply(
            self._run,
            asked.round,
            self.site,
            asked.name,
            participations=book.count(self._run),
            last_round=book.last_round(self._run),
            **what,
        )


def attempt(
    plan: Plan, data: Any, chosen: Indices | slice, blocks: Array, point: Array, step: int, kick: Array | None
) -> Array | None:
    """The messages of one step from a public point; None where numbers fail, which they do by the data."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # a warning may quote data
            _, messages = plan.operator.local(data, chosen, blocks, point, plan.relaxation_at(step), _copied(kick))
    except (ArithmeticError, RuntimeError, ValueError):  # what numbers can do
        return None
    return messages if np.isfinite(messages).all() else None


def _copied(kick: Array | None) -> Array | None:
    return None if kick is None else kick.copy()
