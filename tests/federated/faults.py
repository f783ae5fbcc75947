"""A small federation on disk whose parts a fault changes, and what both sides say then: for test_faults.py.

To add a row to docs/faults.md write a function in fault_cases.py, or in a file like it that test_faults.py imports,
with ``@fault("what goes wrong")``: it takes a ``Bench``, does what goes wrong, runs, and gives what was ``seen``. Then
``python tests/federated/test_faults.py --update`` rewrites the page.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import federations
import numpy as np

from hushpoint.federated import Client, Server, ServerStore, SiteStore
from hushpoint.federated.agreed import Agreed
from hushpoint.federated.ends import Outcome

SITES = federations.SITES
ROUNDS = 4


@dataclass(frozen=True)
class Seen:
    """One row: what the site and the server say, what is spent, and how it goes on."""

    site: str
    server: str
    spent: str
    then: str


@dataclass(frozen=True)
class Fault:
    """What goes wrong, and a function that lets it happen."""

    name: str
    happens: Callable[[Bench], Seen]


FAULTS: list[Fault] = []


def fault(name: str) -> Callable[[Callable[[Bench], Seen]], Callable[[Bench], Seen]]:
    """Another row of the table."""

    def kept(happens: Callable[[Bench], Seen]) -> Callable[[Bench], Seen]:
        FAULTS.append(Fault(name, happens))
        return happens

    return kept


class Clock:
    """Time that passes when someone sleeps, or asks for it: nobody waits."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        self.now += 1e-3
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Post:
    """A grid whose nodes are functions from bytes to bytes, or to None for silence."""

    def __init__(self, answers: dict[int, Callable[[bytes], bytes | None]]) -> None:
        self.answers, self.names, self.replies = answers, itertools.count(), {}

    def get_node_ids(self) -> list[int]:
        return [100 + site for site in self.answers]

    def push_messages(self, messages: Any) -> list[str]:
        from flwr.app import Message

        from hushpoint.federated.flower import packed, unpacked

        names = []
        for message in messages:
            names.append(f"m{next(self.names)}")
            message.metadata.__dict__["_message_id"] = names[-1]
            said = self.answers[message.metadata.dst_node_id - 100](unpacked(message))
            if said is not None:
                self.replies[names[-1]] = Message(content=packed(said), reply_to=message)
        return names

    def pull_messages(self, names: Any) -> list[Any]:
        return [self.replies.pop(name) for name in list(names) if name in self.replies]


@dataclass
class Bench:
    """Six sites and a server on disk, the plan that they agreed to, and all that was said."""

    place: Path
    quorum: float = 1.0
    make: Callable[..., Any] = federations.local
    rounds: int = ROUNDS
    options: dict[int, dict[str, Any]] = field(default_factory=dict)  # of single sites
    keys: dict[Any, Any] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)  # by the sites, to their own people
    altered: dict[int, Callable[[bytes], bytes | None]] = field(default_factory=dict)  # what sites send in its place
    absent: set[int] = field(default_factory=set)
    agreed_of: dict[int, Agreed] = field(default_factory=dict)
    outcome: Outcome = field(default_factory=lambda: Outcome("stalled"))
    server: Any = None

    def __post_init__(self) -> None:
        from hushpoint.federated import keys

        self.data = federations.problem()
        self.plan = self.make(self.data, rounds=self.rounds)
        self.agreed = Agreed(self.plan, None, "a run")
        self.keys = {name: keys.new_key() for name in ("server", *range(SITES))}
        for site in range(SITES):
            SiteStore.create(self.folder(site))

    def folder(self, site: int) -> Path:
        return self.place / f"site{site}"

    @property
    def run_folder(self) -> Path:
        return self.place / "run"

    def store(self, site: int) -> SiteStore:
        return SiteStore(self.folder(site))

    def copy(self, what: Path) -> Callable[[], None]:
        """Keep a copy of a file or folder; what is returned puts it back."""
        kept = self.place / f"copy of {what.name}"
        (shutil.copytree if what.is_dir() else shutil.copy)(what, kept)

        def back() -> None:
            if kept.is_dir():
                shutil.rmtree(what)
                shutil.copytree(kept, what)
            else:
                shutil.copy(kept, what)

        return back

    def client(self, site: int) -> Client:
        """The site as it is started."""
        return Client(
            self.plan, site, self.data.rows.take(np.array([site])), self.store(site), seed=5,
            own_key=self.keys[site], server_key=self.keys["server"].public_key(),
            agreed=self.agreed_of.get(site, self.agreed), tell=self.said.append, **self.options.get(site, {}),
        )  # fmt: skip

    def answers(self, site: int) -> Callable[[bytes], bytes | None]:
        from hushpoint.federated.apps import answering
        from hushpoint.federated.flower import is_hello

        client, changed = self.client(site), self.altered.get(site, lambda reply: reply)
        answer = answering(client, client.agreed.run, site, self.keys[site], self.said.append)
        return lambda payload: answer(payload) if is_hello(payload) else changed(answer(payload))

    def run(self, stop_after: int | None = None) -> Outcome:
        """The run, or the next of it, from what is on the disks; as if killed after so many rounds in all."""
        from hushpoint.federated.apps import finish
        from hushpoint.federated.flower import Pace, Rounds

        class Killed(BaseException):
            pass

        def tell(record: Any) -> None:
            if record.round == stop_after:
                raise Killed

        public = [self.keys[site].public_key() for site in range(SITES)]
        store = ServerStore(self.run_folder)
        self.server = Server(
            self.plan, store, seed=5, quorum=self.quorum, own_key=self.keys["server"], site_keys=public,
            agreed=self.agreed,
        )  # fmt: skip
        post = Post({site: self.answers(site) for site in range(SITES) if site not in self.absent})
        pace = Pace(round_timeout=30.0, resend_after=5.0, start_timeout=10.0, retries=1)
        try:
            self.outcome = finish(Rounds(self.server, post, pace, public), store, tell)
        except Killed:
            pass
        finally:
            store.close()
        return self.outcome

    def spent(self, site: int) -> str:
        """What a site has counted, and what the server has."""
        try:
            own = str(self.store(site).ledger().count(self.agreed.run))
        except ValueError:
            own = "unknown"
        return f"site {site}: {own} by its ledger, {int(self.server.state.accounted[site])} by the server"

    def seen(self, site: int, then: str, spent: str | None = None) -> Seen:
        """The row: what was said so far. Say first what goes wrong, then how it goes on once that is shown."""
        return Seen(
            " / ".join(dict.fromkeys(word for word in self.said if not word.startswith("the run is"))) or "nothing",
            self.words(site),
            self.spent(site) if spent is None else spent,
            then,
        )

    def words(self, site: int) -> str:
        """What the server says: at the end, and of a site in the rounds before."""
        from hushpoint.federated.disk import read_lines

        lines = read_lines(self.run_folder / "rounds.jsonl")
        notes = [{**line["declined"], **line["refused"]}.get(str(site)) for line in lines]
        told = [f"in its table: site {site}: {note}" for note in dict.fromkeys(notes) if note]
        code = f"`run` ends with code {self.outcome.code}"
        ended = f"{code}: finished" if self.outcome.name == "finished" else f"{code}: {self.outcome.sentence}"
        noted = f" ({self.outcome.words})" if self.outcome.name == "finished" and self.outcome.words else ""
        return "; ".join([*told, ended + noted])
