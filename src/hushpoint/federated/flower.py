"""The adapter to Flower: a client app and a server app that only carry bytes between a ``Server`` and its ``Client``s.

Flower knows nodes by numbers of its own. Which site a node is, the node says itself when asked (hello), signed with the
site's key; a reply counts for a site only by the site's signature on it, whoever carried it.
"""

from __future__ import annotations

import json
import os
import secrets
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from hushpoint.federated.ends import lasting_reasons, spent_reasons, who_and_why
from hushpoint.federated.keys import sign, verify
from hushpoint.federated.server import RoundRecord, Verdict
from hushpoint.federated.wire import Refused

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # Flower reads it when it is imported
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")

try:
    from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
except ImportError:
    raise ValueError("Flower is not installed. Install it with: pip install 'hushpoint[federated]'") from None

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

Answer = Callable[[bytes], bytes]

_RECORD = "hushpoint"
_HELLO = b"hushpoint hello 1\n"
_TOKEN = 32  # letters that make one hello unlike another
_FAILED = b"hushpoint failed"
_PAUSE = 0.5  # seconds between two looks for replies: Flower has no way to be told
_SOON = 0.02  # seconds to the next look after a reply came, or a request left; from there it takes its time
_LOOK = 1.0  # seconds between two looks for nodes
_SPENT = spent_reasons()
_FOR_GOOD = lasting_reasons()


# --- the envelope


def packed(payload: bytes) -> RecordDict:
    """Bytes as the content of a Flower message."""
    return RecordDict({_RECORD: ConfigRecord({"payload": payload})})


def unpacked(message: Message) -> bytes | None:
    """The bytes in a Flower message; None where there are none."""
    try:
        payload = message.content[_RECORD]["payload"]
    except Exception:  # an error, or content of another kind
        return None
    return payload if isinstance(payload, bytes) else None


def guarded(answer: Answer) -> Answer:
    """The same answers, but where one fails a fixed word: the text of an exception or a warning may quote data."""

    def answered(payload: bytes) -> bytes:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return answer(payload)
        except Exception:
            return _FAILED

    return answered


# --- who is who


def is_hello(payload: bytes) -> bool:
    """Whether a node is asked which site it is."""
    return payload.startswith(_HELLO)


def hello(run: str) -> bytes:
    """The question which site a node is, by a server that is at work on a run."""
    return _HELLO + secrets.token_hex(_TOKEN // 2).encode() + run.encode()


def run_of_hello(payload: bytes) -> str:
    """On which run a server is at work that says hello."""
    return payload[len(_HELLO) + _TOKEN :].decode("ascii", "replace")


def hello_reply(payload: bytes, site: int, run: str, key: EllipticCurvePrivateKey | None) -> bytes:
    """The answer to hello: the site and the run it agreed to, signed together with what was asked."""
    said = json.dumps({"site": site, "run": run}).encode()
    return len(said).to_bytes(2, "little") + said + (b"" if key is None else sign(key, _signed(payload, said)))


def read_hello(
    payload: bytes, reply: bytes, sites: int, keys: Sequence[EllipticCurvePublicKey] | None
) -> tuple[int, str]:
    """The site that a node is, and the run it agreed to; ``Refused`` where it cannot be that site."""
    try:
        size = int.from_bytes(reply[:2], "little")
        said = reply[2 : 2 + size]
        record = json.loads(said)
        site, run = record["site"], record["run"]
    except (ValueError, TypeError, KeyError):
        raise Refused("the bytes are no answer to hello") from None
    if type(site) is not int or not 0 <= site < sites or not isinstance(run, str):
        raise Refused("the node names no site")
    if keys is not None and not verify(keys[site], reply[2 + size :], _signed(payload, said)):
        raise Refused("the signature is missing, or of another key")
    return site, run


def _signed(payload: bytes, said: bytes) -> bytes:
    return payload + b"\n" + said


@dataclass
class Directory:
    """Which node is which site, by what the nodes say of themselves."""

    grid: Grid
    run: str
    sites: int
    keys: Sequence[EllipticCurvePublicKey] | None = None
    patience: float = 30.0  # seconds after which a node that does not say who it is is asked again
    node_of: dict[int, int] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    others: dict[int, int] = field(default_factory=dict)  # sites that agreed to another run, and their nodes
    _asked: dict[int, float] = field(default_factory=dict)
    _open: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    _online: set[int] = field(default_factory=set)

    def refresh(self) -> None:
        """Look who is there, and ask those who are new."""
        self._online = set(self.grid.get_node_ids())
        known, now = set(self.node_of.values()), time.monotonic()
        news = [
            node
            for node in sorted(self._online - known - self.refused)
            if now - self._asked.get(node, -self.patience) >= self.patience
        ]
        questions = [(node, hello(self.run)) for node in news]
        letters = [_letter(payload, node, MessageType.QUERY, "hello", 4 * self.patience) for node, payload in questions]
        for (node, payload), name in zip(questions, _pushed(self.grid, letters), strict=True):
            self._asked[node] = now
            if name is not None:
                self._open[name] = (node, payload)
        for name, letter in _pulled(self.grid, self._open):
            node, payload = self._open.pop(name)
            said = unpacked(letter)
            if said is not None and said != _FAILED:  # a site that could not start is asked again
                self._believe(node, payload, said)

    def _believe(self, node: int, payload: bytes, said: bytes) -> None:
        try:
            site, run = read_hello(payload, said, self.sites, self.keys)
        except Refused:
            self.refused.add(node)  # it will not change its mind; a site that mends its key comes as a new node
            return
        if run == self.run:
            self.node_of[site] = node
            self.others.pop(site, None)
        else:
            self.others[site] = node

    @property
    def available(self) -> set[int]:
        """Sites whose node is there."""
        return {site for site, node in self.node_of.items() if node in self._online}


def _letter(payload: bytes, node: int, kind: str, group: str, seconds: float) -> Message:
    return Message(
        content=packed(payload), message_type=kind, dst_node_id=node, group_id=group, ttl=max(float(seconds), 1.0)
    )


def _pushed(grid: Grid, letters: Sequence[Message]) -> list[str | None]:
    names: list[str | None] = list(grid.push_messages(letters)) if letters else []
    return names if len(names) == len(letters) else [None] * len(letters)


def _pulled(grid: Grid, names: Iterable[str]) -> list[tuple[str, Message]]:
    wanted = list(names)
    if not wanted:
        return []
    replies = [(reply.metadata.reply_to_message_id, reply) for reply in grid.pull_messages(wanted)]
    return [(name, reply) for name, reply in replies if name in wanted]


# --- rounds


@dataclass(frozen=True)
class Pace:
    """How long the server waits: for a round, before it asks a silent site again, for sites to come at the start."""

    round_timeout: float = 120.0
    resend_after: float = 20.0
    start_timeout: float = 120.0
    retries: int = 5


class Conducted(Protocol):
    """A server as it is conducted: a round, or one exchange of a round, is opened, answered and closed."""

    run: str

    @property
    def sites(self) -> int: ...
    @property
    def status(self) -> str: ...
    @property
    def finished(self) -> bool: ...
    @property
    def exchange(self) -> str: ...
    @property
    def asked(self) -> set[int]: ...
    @property
    def waiting(self) -> set[int]: ...
    @property
    def has_quorum(self) -> bool: ...
    @property
    def is_stuck(self) -> bool: ...
    def open_round(self, available: Collection[int]) -> dict[int, bytes]: ...
    def receive(self, site: int, reply: bytes) -> Verdict: ...
    def close_round(self) -> RoundRecord | None: ...
    def leave_round(self) -> bool: ...
    def took(self, site: int, letter: bytes, reply: bytes) -> bool: ...
    @property
    def why(self) -> str: ...


Kind = TypeVar("Kind", bound=Conducted)


class Rounds(Generic[Kind]):
    """The rounds of a run over Flower's grid: open, push, poll, close, and again where a quorum is missing."""

    def __init__(self, server: Kind, grid: Grid, pace: Pace, keys: Sequence[EllipticCurvePublicKey] | None) -> None:
        self.server, self.grid, self.pace = server, grid, pace
        self.directory = Directory(grid, server.run, server.sites, keys)
        self._open: dict[str, int] = {}  # messages without a reply, and whom they went to
        self._requests: dict[int, bytes] = {}
        self._sent: dict[int, float] = {}
        self._reasons: dict[int, str] = {}  # what the sites of the open round said; "" where they moved
        self._looked = 0.0  # when it last looked who is there

    def conduct(self, tell: Callable[[RoundRecord], None]) -> str:
        """Run until the plan is done ("finished"), the budget ("spent"), or too few sites answer ("stalled")."""
        if not self.server.finished:
            self._gather()
        while not self.server.finished:
            if not self._round():
                return self.server.status if self.server.finished else "spent" if self._all_spent else "stalled"
            record = self.server.close_round()
            if record is not None:
                tell(record)
        return self.server.status

    @property
    def told(self) -> dict[int, str]:
        """Which sites took no part in the open round, or could not, and why in a word."""
        told = {site: reason for site, reason in self._reasons.items() if reason}
        for site in (self.server.asked | self.directory.others.keys()) - self._reasons.keys():
            absent = "another run" if site in self.directory.others else "absent"
            told[site] = "no answer" if site in self.directory.available else absent
        if self.server.status == "lost":  # then those who said so were right
            told = {site: reason for site, reason in told.items() if reason != "stale"}
        return told

    @property
    def why(self) -> str:
        """Why the run is not finished: what the server says of itself, and which sites of the open round said what."""
        return "; ".join(words for words in (self.server.why, who_and_why(self.told)) if words)

    def part(self, letters: Mapping[int, bytes], seconds: float) -> set[int]:
        """Send a last letter to the sites that are there; which of them have taken it within so many seconds."""
        self._open, self._sent = {}, {}
        taken: set[int] = set()
        until, pause = time.monotonic() + seconds, _SOON
        while True:
            self.directory.refresh()  # where nothing was left to be run, nobody has said yet who it is
            there = self.directory.available & letters.keys()
            self._post({site: letters[site] for site in there - self._sent.keys()})
            for name, letter in _pulled(self.grid, self._open):
                site, said = self._open.pop(name), unpacked(letter)
                if said is not None and self.server.took(site, letters[site], said):
                    taken.add(site)
            if taken >= letters.keys() or time.monotonic() >= until:
                return taken
            if not self._open and self._sent and self._sent.keys() >= letters.keys():
                return taken  # all have answered
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE)

    def _gather(self) -> None:
        """Wait for the sites at the start; those who come later join the rounds after."""
        until = time.monotonic() + self.pace.start_timeout
        self.directory.refresh()
        while len(self.directory.available) < self.directory.sites and time.monotonic() < until:
            time.sleep(_PAUSE)
            self.directory.refresh()

    def _round(self) -> bool:
        """One round up to its quorum; False where it is missing after all retries."""
        tries, self._reasons = 0, {}
        while tries <= self.pace.retries and not self.server.finished:
            self._ask()
            self._poll(time.monotonic() + self.pace.round_timeout)
            if self.server.has_quorum:
                return True
            if self._is_hopeless:
                return False
            if not self.server.leave_round():
                tries += 1
        return False

    def _look(self) -> bool:
        """Look who is there, unless that was just now; whether it did. Rounds may be shorter than that."""
        if time.monotonic() - self._looked <= _LOOK:
            return False
        self.directory.refresh()
        self._looked = time.monotonic()
        return True

    def _ask(self) -> None:
        self._look()
        requests = self.server.open_round(self.directory.available)
        self._reasons = {site: reason for site, reason in self._reasons.items() if site not in requests}
        self._post(requests)

    def _poll(self, until: float) -> None:
        """Take answers until all are there, or time is up."""
        pause = _SOON
        while time.monotonic() < until:
            for name, letter in _pulled(self.grid, self._open):
                if name in self._open:
                    pause = _SOON
                    self._take(self._open.pop(name), unpacked(letter))
            if not self.server.waiting and (self.server.has_quorum or self._is_hopeless or self.server.is_stuck):
                return
            if self._look():
                self._remind()
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE)

    def _take(self, site: int, payload: bytes | None) -> None:
        if payload is None or payload == _FAILED:
            self._sent[site] = min(self._sent[site], time.monotonic() - self.pace.resend_after + _LOOK)  # again, soon
            return
        verdict = self.server.receive(site, payload)
        if verdict.again is not None:
            # Asked twice without its block, it may say twice that it has none: only the new request counts.
            self._open = {name: other for name, other in self._open.items() if other != site}
            self._post({site: verdict.again})
        elif verdict.status != "late":
            self._reasons[site] = verdict.reason

    def _remind(self) -> None:
        """Ask those who came, and again those who are silent: a site that was killed has lost the request.

        What it answers to the same request is the same bytes, however often it is asked.
        """
        there, waiting, now = self.directory.available, self.server.waiting, time.monotonic()
        if there & self.server.asked - waiting - self._reasons.keys():
            self._ask()
            return
        silent = [site for site in waiting & there if now - self._sent.get(site, 0.0) >= self.pace.resend_after]
        self._post({site: self._requests[site] for site in silent if site in self._requests})

    def _post(self, requests: Mapping[int, bytes]) -> None:
        group = self.server.exchange
        sites = [site for site in sorted(requests) if site in self.directory.node_of]
        letters = [
            _letter(requests[site], self.directory.node_of[site], MessageType.TRAIN, group, self.pace.round_timeout)
            for site in sites
        ]
        for site, name in zip(sites, _pushed(self.grid, letters), strict=True):
            self._requests[site], self._sent[site] = requests[site], time.monotonic()
            if name is not None:
                self._open[name] = site

    @property
    def _is_hopeless(self) -> bool:
        """Whether every site of the round has answered, and those who declined will not change their mind."""
        declined = [reason for reason in self._reasons.values() if reason]
        return self.server.asked <= self._reasons.keys() and all(reason in _FOR_GOOD for reason in declined)

    @property
    def _all_spent(self) -> bool:
        """Whether a round failed because sites have spent what they may."""
        declined = [reason for reason in self._reasons.values() if reason]
        return self._is_hopeless and bool(declined) and all(reason in _SPENT for reason in declined)


# --- the apps


def client_app(answer_of: Callable[[Context], Answer]) -> ClientApp:
    """A client app whose answers come from the site that the context belongs to."""
    app = ClientApp()

    def reply(message: Message, context: Context) -> Message:
        def found(payload: bytes) -> bytes:
            return answer_of(context)(payload)

        return Message(content=packed(guarded(found)(unpacked(message) or b"")), reply_to=message)

    app.query()(reply)
    app.train()(reply)
    return app


def server_app(conduct: Callable[[Grid, Context], None]) -> ServerApp:
    """A server app that runs a function."""
    app = ServerApp()
    app.main()(conduct)
    return app
