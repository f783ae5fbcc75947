"""A site of a federation with secure sums: its rows, its ledger, and what it answers to whom."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hushpoint._checks import require_count
from hushpoint._types import Array
from hushpoint.estimators.training import Link, Ranges
from hushpoint.federated.client import Window
from hushpoint.federated.disk import Busy, Damaged
from hushpoint.federated.ends import told_at_site
from hushpoint.federated.ledger import Ledger, Participation
from hushpoint.federated.models import require_model
from hushpoint.federated.secure.covenant import Covenant
from hushpoint.federated.secure.price import encoding_of, fits, round_price
from hushpoint.federated.secure.public import Course, Public
from hushpoint.federated.secure.spending import claimed, within_limit
from hushpoint.federated.secure.store import OpenRound, SecureStore
from hushpoint.federated.secure.wire import END, Ask, Question, Said, decode_ask, encode
from hushpoint.noise import source_for
from hushpoint.privacy.guarantee import Budget
from hushpoint.rows import Rows
from hushpoint.secure.agreement import Terms
from hushpoint.secure.claim import SecureClaim
from hushpoint.secure.encoding import Encoding
from hushpoint.secure.masks import Words
from hushpoint.secure.packing import Refused, number, pack, unpack
from hushpoint.secure.site import Site

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

_BLOCK = "block.secret"
_SAME = 1e-9  # as far as two machines may differ in how much noise they compute


class Declined(Exception):
    """A request is not answered with a letter; why is a word of ``wire.REASONS``."""


@dataclass(frozen=True)
class SiteData:
    """The rows of a site, and the targets of each model in their order (None: those of the rows).

    Where ranges of columns are learned, ``values`` are the columns as they are, and ``encoded`` gives the rows once the
    ranges are known; ``rows`` are those with the public bounds. ``held_out`` are rows that no training sees.
    """

    rows: Rows
    targets: Sequence[Array] | None = None
    values: Rows | None = None
    encoded: Callable[[Ranges], SiteData] | None = None
    held_out: SiteData | None = None

    def to_tell(self) -> SiteData:
        """The held-out rows; where there are several models, with the place of the class as target."""
        assert self.held_out is not None  # seen to when the site was made
        rows, targets = self.held_out.rows, self.held_out.targets
        if targets is not None and len(targets) > 1:
            rows = replace(rows, targets=np.argmax(targets, axis=0).astype(np.float64))
        return SiteData(rows)


class SecureSite:
    """One site. ``answer`` takes and gives bytes and never raises: what goes wrong is a word.

    The noise, how many rounds it takes part in, and what is computed from its rows are its own terms, whatever the
    server says; what it is told of public results it computes again, and goes by if it agrees.

    Parameters
    ----------
    covenant : Covenant
        What the site agreed to: its own copy.
    number : int
        Which site it is.
    data : SiteData
        As many items as the covenant says.
    store : SecureStore
        Its disk.
    signing : bytes
        Its private Ed25519 key; the public half is in the roster.
    limit : Budget, optional
        What the site will spend in all runs together, whatever the covenant allows.
    server_key, own_key
        With which requests and replies are signed; None: inside one process.
    window : Window, optional
        The hours in which it takes part.
    seed : int, optional
        For tests only: whoever knows it can take the noise away.
    tell : callable, optional
        Told in fixed words, for the people of the site, why it declined and what is to be done.
    """

    def __init__(
        self,
        covenant: Covenant,
        number: int,
        data: SiteData,
        store: SecureStore,
        signing: bytes,
        *,
        limit: Budget | None = None,
        server_key: EllipticCurvePublicKey | None = None,
        own_key: EllipticCurvePrivateKey | None = None,
        window: Window | None = None,
        clock: Callable[[], datetime] = datetime.now,
        seed: int | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self.covenant, self.number = covenant, require_count("number", number, least=0, most=covenant.sites - 1)
        _require_as_agreed(covenant, number, data)
        _require_columns(covenant, data)
        self.store, self.limit, self.window, self._clock = store, limit, window, clock
        self._data, self._signing, self._seed = data, signing, seed
        self._server_key, self._own_key, self._tell = server_key, own_key, tell
        self._course: tuple[bytes, Course] | None = None  # of the public results with this digest
        self._prepared: tuple[Any, Any] = (None, None)
        self._encoded: tuple[Ranges | None, SiteData] = (None, data)
        self._check = ""  # where the ledger stands

    def answer(self, request: bytes) -> bytes:
        """The reply to a request; what it costs is in the ledger, and what a restart needs on the disk, before that."""
        asked = Ask(self.covenant.run, self.number, 0, END)
        try:
            asked = decode_ask(request, self._server_key)
            if asked.site != self.number:
                raise Refused("the request is for another site.")
            if asked.run != self.covenant.run:
                raise Declined("plan")
            with self.store.held():
                said = self._answered(asked)
        except Declined as why:
            said = self._said(asked, "declined", str(why))
        except Refused:
            said = self._said(asked, "declined", "refused")
        except Busy:
            said = self._said(asked, "declined", "busy")
        except OSError:  # nothing has left: what cannot be kept is not sent
            said = self._said(asked, "declined", "disk")
        except Exception:  # its text may quote data, so not a word of it leaves
            said = self._said(asked, "declined", "failed")
        if said.reason and self._tell is not None:
            self._tell(told_at_site(said.reason))
        return encode(said, self._own_key)

    def spent(self) -> SecureClaim:
        """What the site has let happen in this run, by its ledger."""
        return self._spent(self.store.ledger())

    def _require_own(self, model: bytes) -> None:
        """That a model which is handed over is one of this run and of the schema that was accepted."""
        about, facts = self.covenant.about, self.covenant.training.facts
        schema = about.get("schema", {"features": facts.features})
        try:
            require_model(model, schema, self.covenant.name, self.covenant.training.to_learn)
        except (ValueError, RecursionError):
            raise Declined("model") from None

    # --- an exchange

    def _answered(self, asked: Ask) -> Said:
        if asked.kind == END:
            self.store.forget_round(self.covenant.run)
            if asked.payload:
                self._require_own(asked.payload)
                self.store.keep_model(asked.payload)
            return self._said(asked, "letter")
        if asked.public:
            self.store.keep_public(asked.public)
        if asked.kind == "keys":
            return self._begun(asked)
        question, site, ledger = self._open(asked.round)
        if asked.kind == "masked":
            letter = site.mask(asked.payload, lambda: self._message(question, asked.round, ledger))
        else:
            letter = {"shares": site.share, "survivors": site.sign, "reveal": site.reveal}[asked.kind](asked.payload)
        return self._said(asked, "letter", letter=letter)

    def _begun(self, asked: Ask) -> Said:
        """The keys of a new round, once the question is one that the site wants to answer."""
        question, ledger = Question.from_bytes(asked.question), self._ledger()
        if asked.round < ledger.last_round(self.covenant.run):
            raise Declined("stale")  # of a server that was restored from an old copy
        course = self._known(question)
        if course is None:
            return self._said(asked, "history")
        encoding = self._encoding(course, question)
        site = self._site(asked.question, ledger, self._state(), asked.round)
        if asked.round > site.last:  # a repetition costs nothing
            self._require_willing(ledger, round_price(encoding, *self._whose))
        terms = self._terms(question, asked.round, encoding)
        return self._said(asked, "letter", letter=site.advertise(terms))

    def _open(self, round_number: int) -> tuple[Question, Site, Ledger]:
        """The open round, as it was kept."""
        ledger, state, kept = self._ledger(), self._state(), self.store.open_round()
        if not state or kept is None:
            raise Declined("over")
        site = self._site(kept.question, ledger, state, round_number)
        if site.last != round_number:
            raise Declined("over")
        return Question.from_bytes(kept.question), site, ledger

    def _state(self) -> bytes:
        """The secrets of the open round; none where it is another run's, which is over here then."""
        kept = self.store.open_round()
        return kept.state if kept is not None and kept.run == self.covenant.run else b""

    def _site(self, question: bytes, ledger: Ledger, state: bytes, round_number: int) -> Site:
        agreement, run, kept = self.covenant.agreement, self.covenant.run, self.store.open_round()
        last, lasts = ledger.last_round(run), {} if kept is None else dict(kept.lasts)

        def keep(secrets: bytes) -> None:
            lasts[run] = max(round_number, lasts.get(run, 0))
            self.store.keep_round(OpenRound(run, question, secrets, self._check, lasts))

        if not state:
            return Site(agreement, self.number, self._signing, keep, last=max(last, lasts.get(run, 0)))
        return Site.restored(state, agreement, self._signing, keep, last=last)

    def _message(self, question: Question, round_number: int, ledger: Ledger) -> Words:
        """The whole numbers of the site with its noise, once they are in the ledger.

        Where they are in it and no letter is in the round's state, the site was killed in between, or the state is an
        old copy, and a letter may have left: one round has one.
        """
        if ledger.last_round(self.covenant.run) >= round_number:
            raise Declined("over")
        course = self._known(question)
        if course is None:
            raise Declined("over")
        encoding = self._encoding(course, question)
        price = round_price(encoding, *self._whose)
        self._require_willing(ledger, price)
        told = self._told(course, question, round_number)
        point = question.point_digest.hex()[:24]
        entry = Participation(self.covenant.run, round_number, point, {}, asdict(price))
        self._check = self.store.record(ledger, entry).checks[-1]
        # A source of its own for every message: a round that is computed again must not meet the same noise.
        noise = encoding.noise(source_for(self._seed), self.number, round_number)
        return told.view(np.uint64) + noise.view(np.uint64)

    # --- what is asked

    def _known(self, question: Question) -> Course | None:
        """The chain at the place that is asked about; None where earlier results are not known here."""
        if self._course is not None and self._course[0] == question.public:
            return self._at(self._course[1], question)
        data = self.store.public()
        if data is None:
            if question.place:
                return None
            data = Public().to_bytes()
        if Public.digest_of(data) != question.public:
            if question.place or Public.digest_of(Public().to_bytes()) != question.public:
                return None
            data = Public().to_bytes()
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            course = Course(self.covenant.training, Public.from_bytes(data))
        self._course = question.public, course
        return self._at(course, question)

    def _at(self, course: Course, question: Question) -> Course:
        if course.link is None or course.place != question.place or question.step >= course.link.plan.steps:
            raise Declined("plan")
        return course

    def _encoding(self, course: Course, question: Question) -> Encoding:
        """How the plan encodes, with the noise that was asked for where it is what the plan says."""
        assert course.link is not None
        plan = course.link.plan
        own = encoding_of(plan, self.covenant.agreement, self.covenant.training.unit, self.covenant.training.adjacency)
        if abs(question.scale - own.scale) > max(1.0, _SAME * own.scale):
            raise Declined("plan")
        point = question.point
        if point.shape != np.shape(plan.operator.release(plan.operator.start()[0])) or not np.isfinite(point).all():
            raise Refused("the point is not one of the plan.")
        with np.errstate(over="ignore"):
            if float(np.linalg.norm(point)) > plan.operator.reach():
                raise Refused("the point is farther out than the plan allows.")
        return replace(own, scale=question.scale)

    def _terms(self, question: Question, round_number: int, encoding: Encoding) -> Terms:
        digests = question.plan_digest(self.covenant.digest), question.point_digest
        return Terms(self.covenant.agreement, round_number, *digests, encoding.length)

    def _told(self, course: Course, question: Question, round_number: int) -> NDArray[np.int64]:
        """The sum of the messages of the site's items: whole numbers, a function of its rows and of public ones."""
        link = course.link
        assert link is not None
        operator, step = link.plan.operator, question.step
        base = self._base(operator.block_size, round_number)
        times = operator.multiplicity
        if times is not None:
            times = times[[self.number]]
        for data in (self._look(course), operator.without_data()):
            try:
                with warnings.catch_warnings(), np.errstate(all="ignore"):
                    warnings.simplefilter("ignore")  # a warning may quote data
                    moved, told = operator.told(data, base, question.point, link.plan.relaxation_at(step), times)
            except (ArithmeticError, RuntimeError, ValueError):  # to say that it failed would tell of the data
                continue
            if operator.block_size:
                blocks = base.tobytes(), np.asarray(moved, dtype=np.int64).tobytes()
                self.store.keep(_BLOCK, pack("block", self.covenant.run, round_number, *blocks), secret=True)
            return np.asarray(told, dtype=np.int64)
        raise ArithmeticError

    def _base(self, size: int, round_number: int) -> Any:
        """The block before this round; where it was lost, the public start."""
        start = np.zeros((1, size), dtype=np.int64)
        kept = self.store.load(_BLOCK) if size else None
        if not kept:
            return start
        run, last, before, after = unpack("block", kept, 4)
        found = np.frombuffer(before if number(last) == round_number else after, dtype=np.int64)
        return found.reshape(1, -1).copy() if (run.decode(), found.size) == (self.covenant.run, size) else start

    def _look(self, course: Course) -> Any:
        """The rows as the operator of the plan wants them, made once a plan."""
        link = course.link
        assert link is not None
        if self._prepared[0] is not link:
            data = self._data_for(link)
            rows, targets = link.look(data.rows), data.targets
            if link.model is not None and targets is not None:
                rows = replace(rows, targets=targets[link.model] - link.offset)
            self._prepared = link, link.plan.operator.prepare(rows)
        return self._prepared[1]

    def _data_for(self, link: Link) -> SiteData:
        """The rows that a plan asks about: raw columns, or rows encoded with what was learned of these."""
        values, encoded = self._data.values, self._data.encoded
        if link.part == "ranges":
            assert values is not None  # seen to when the site was made
            return SiteData(values)
        if self._encoded[0] != link.ranges:
            assert encoded is not None
            assert link.ranges is not None
            data = encoded(link.ranges)
            _require_as_agreed(self.covenant, self.number, data)
            self._encoded = link.ranges, data
        data = self._encoded[1]
        return data.to_tell() if link.part == "held out" else data

    # --- what it costs

    def _ledger(self) -> Ledger:
        """The ledger; declined where it is lost, or older than what the site did last."""
        try:
            ledger = self.store.ledger()
        except Damaged:
            raise Declined("ledger") from None
        kept = self.store.open_round()
        if ledger.lost:
            raise Declined("ledger")
        if kept is not None and kept.check not in ledger.checks:
            raise Declined("old-ledger")
        self._check = ledger.checks[-1]
        return ledger

    def _spent(self, ledger: Ledger) -> SecureClaim:
        return claimed(ledger.of(self.covenant.run), self.covenant)

    def _require_willing(self, ledger: Ledger, price: SecureClaim) -> None:
        """Whether one more round of this price is within the covenant, the site's own limit, and its hours."""
        if self.window is not None and not self.window.has(self._clock()):
            raise Declined("away")
        if any(one.run == self.covenant.run for one in ledger.vouched):
            raise Declined("closed")
        if ledger.before or not fits(self._spent(ledger).joined(price), self.covenant.whole):
            raise Declined("cap")  # what was vouched for may have been spent here
        if self.limit is not None and not within_limit(ledger, price, self.covenant, self.limit):
            raise Declined("limit")

    @property
    def _whose(self) -> Any:
        training = self.covenant.training
        return self.covenant.agreement, training.unit, training.adjacency

    def _said(self, asked: Ask, status: str, reason: str = "", letter: bytes = b"") -> Said:
        return Said(asked.run, self.number, asked.round, asked.kind, status, reason, letter)


def _require_as_agreed(covenant: Covenant, number: int, data: SiteData) -> None:
    """Whether the rows of a site are as many, and as wide, as the guarantee takes them to be: all of it is public."""
    training = covenant.training
    _require_counts(covenant, number, data.rows, 1 if training.sites_are_items else covenant.items[number])
    if training.held_out:
        if data.held_out is None:
            raise ValueError(
                f"site {number} has no held-out rows, and the covenant asks for figures on them. Name their file in "
                'site.toml: test = "test.csv".'
            )
        _require_counts(covenant, number, data.held_out.rows, training.held_out[number], "held-out ")


def _require_counts(covenant: Covenant, number: int, rows: Rows, items: int, kind: str = "") -> None:
    facts, alone = covenant.training.facts, covenant.training.sites_are_items
    counts = {"items": rows.items, "columns": rows.store.width}
    agreed = {"items": items, "columns": facts.width}
    if facts.unit == "record":  # each row is an item
        counts["rows"], agreed["rows"] = len(rows), agreed["items"]
    elif alone and facts.knows_rows:
        counts["rows"], agreed["rows"] = len(rows), int(facts.row_counts[number])
    for name, found in counts.items():
        if found != agreed[name]:
            raise ValueError(
                f"site {number} holds {found} {kind}{name} and the covenant says {agreed[name]}. How many there are is "
                "public, and the guarantee rests on it: correct the data, or agree anew."
            )
    if facts.unit == "user" and rows.offsets is None:
        raise ValueError(
            f"the rows of site {number} name no users, and the covenant protects users. Pass groups: whose row each is."
        )


def _require_columns(covenant: Covenant, data: SiteData) -> None:
    """Whether the columns whose ranges are learned are there, for the same items."""
    search = covenant.training.to_learn
    if not search:
        return
    values = data.values
    if values is None or data.encoded is None:
        raise ValueError(f"the ranges of {', '.join(map(repr, search))} are to be learned. Pass their values.")
    same = np.array_equal(values.counts, data.rows.counts) and values.store.width == len(search)
    if not same:
        raise ValueError("values are of other items or columns than the rows. Read both from the same table.")
