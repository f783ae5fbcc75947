"""What a site keeps on its own disk: how often it took part, where its block stands, and what it sent last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from hushpoint._checks import require_count
from hushpoint._files import save_arrays, sync_folder
from hushpoint._types import Array
from hushpoint.federated.disk import Damaged, append_line, held, load_arrays, read_chain


@dataclass(frozen=True)
class Participation:
    """One use of the site's data: a message was made ready to leave. ``mu`` is its cost by unit (None: no bound).

    A message into a secure sum costs a ``claim`` instead: its parts by name, as ``SecureClaim`` has them.
    """

    run: str
    round: int
    point: str
    mu: dict[str, float | None] = field(default_factory=dict)
    claim: dict[str, Any] | None = None


@dataclass(frozen=True, eq=False)
class SiteState:
    """The block before and after the last move, and the message between them; ``point`` is what it answers.

    ``check`` is where the ledger stood when the move was made: one line short of it.
    """

    run: str
    round: int
    point: str
    block: Array
    base: Array
    message: Array
    check: str


@dataclass(frozen=True)
class Ledger:
    """All participations of a site, in every run; ``before`` is a number a person vouched for when one was lost.

    ``checks`` are the checks of its lines, the opening one first. A ``lost`` one stands for a file that is damaged.
    """

    entries: tuple[Participation, ...] = ()
    before: int = 0
    checks: tuple[str, ...] = ("",)
    lost: bool = False

    def of(self, run: str) -> tuple[Participation, ...]:
        """The participations in one run."""
        return tuple(entry for entry in self.entries if entry.run == run)

    def count(self, run: str) -> int:
        """How often the site took part in a run; what was vouched for counts in every run."""
        return self.before + len(self.of(run))

    def last_round(self, run: str) -> int:
        """The last round of a run that the site took part in, 0 for none."""
        return max((entry.round for entry in self.of(run)), default=0)


class SiteStore:
    """The folder of a site: ``ledger.jsonl``, ``state.npz`` and ``messages.jsonl`` (what left, for people to read).

    The order of writing is what makes a kill harmless: a message is in the state before it is in the ledger, and in the
    ledger before it leaves. The ledger is made once, by ``create``: where it is missing later it was lost, and nobody
    knows what the site has spent.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)

    @classmethod
    def create(cls, directory: str | Path, before: int = 0) -> SiteStore:
        """A folder with an empty ledger. ``before``: participations that are known of from elsewhere."""
        store = cls(directory)
        require_count("before", before, least=0)
        store.directory.mkdir(parents=True, exist_ok=True)
        used = [name for name in ("ledger.jsonl", "state.npz", "messages.jsonl") if (store.directory / name).exists()]
        if used:
            raise ValueError(
                f"{str(store.directory)!r} has {' and '.join(used)}: the site has taken part already, and its ledger "
                "is never made anew. Restore it from a copy, or vouch for a number: hushpoint federated readmit."
            )
        append_line(store._ledger, {"opened": _now(), "before": before}, "")
        sync_folder(store.directory)
        return store

    @classmethod
    def readmit(cls, directory: str | Path, participations: int) -> SiteStore:
        """A new ledger in the place of a lost one, with a number of participations that a person vouches for."""
        store = cls(directory)
        try:
            store.ledger()
        except Damaged:
            pass
        else:
            raise ValueError(f"the ledger in {str(directory)!r} is whole. It is never made anew.")
        store.directory.mkdir(parents=True, exist_ok=True)
        if store._ledger.exists():
            store._ledger.replace(store._ledger.with_name(f"ledger.lost.{_now().replace(':', '')}.jsonl"))
        for name in ("state.npz", "messages.jsonl"):  # the server has the block too; the new ledger knows no rounds
            if (store.directory / name).exists():
                (store.directory / name).replace(store.directory / f"{name}.lost.{_now().replace(':', '')}")
        # The secrets of a secure sum name a line of the lost ledger, and no copy of them is ever kept.
        (store.directory / "round.secret").unlink(missing_ok=True)
        return cls.create(directory, participations)

    @property
    def _ledger(self) -> Path:
        return self.directory / "ledger.jsonl"

    @property
    def _state(self) -> Path:
        return self.directory / "state.npz"

    @contextmanager
    def held(self) -> Iterator[None]:
        """The folder for one process alone."""
        with held(self.directory):
            yield

    def ledger(self) -> Ledger:
        """The ledger; ``Damaged`` where it is lost."""
        lines, checks = read_chain(self._ledger)
        if not lines or "before" not in lines[0]:
            raise Damaged("ledger.jsonl has no beginning")
        return Ledger(tuple(_entry(line) for line in lines[1:]), int(lines[0]["before"]), tuple(checks))

    def record(self, ledger: Ledger, entry: Participation) -> Ledger:
        """One more participation, on the disk when this returns."""
        check = append_line(self._ledger, {**asdict(entry), "at": _now()}, ledger.checks[-1])
        return Ledger((*ledger.entries, entry), ledger.before, (*ledger.checks, check))

    def state(self, run: str) -> SiteState | None:
        """Where the block of a run stands; None where there is none, or it is damaged."""
        try:
            arrays: dict[str, Any] = load_arrays(self._state)
            for name in ("run", "point", "check"):
                arrays[name] = str(arrays[name])
            arrays["round"] = int(arrays["round"])
            state = SiteState(**arrays)
        except (Damaged, TypeError, ValueError, KeyError):
            return None
        return state if state.run == run else None

    def save(self, state: SiteState) -> None:
        """Keep a state in the place of the one before."""
        save_arrays(self._state, {name: getattr(state, name) for name in state.__dataclass_fields__})

    def note(self, run: str, round: int, size: int, again: bool) -> None:
        """Note that a message leaves."""
        record = {"run": run, "round": round, "bytes": size, "again": again, "at": _now()}
        append_line(self.directory / "messages.jsonl", record)


class MemoryStore(SiteStore):
    """The same without a disk, for runs inside one process."""

    def __init__(self) -> None:
        self._kept, self._last = Ledger(), None  # type: tuple[Ledger, SiteState | None]
        self.sent: list[int] = []

    @contextmanager
    def held(self) -> Iterator[None]:
        yield

    def ledger(self) -> Ledger:
        return self._kept

    def record(self, ledger: Ledger, entry: Participation) -> Ledger:
        entries = (*ledger.entries, entry)
        self._kept = replace(ledger, entries=entries, checks=(*ledger.checks, str(len(entries))))
        return self._kept

    def state(self, run: str) -> SiteState | None:
        return self._last if self._last is not None and self._last.run == run else None

    def save(self, state: SiteState) -> None:
        self._last = state

    def note(self, run: str, round: int, size: int, again: bool) -> None:
        self.sent.append(round)


def total_mu(entries: Sequence[Participation], unit: str) -> float | None:
    """What all participations cost together, in every run; None where one of them had no bound."""
    costs = [entry.mu.get(unit) for entry in entries]
    known = [cost for cost in costs if cost is not None]
    return float(np.sqrt(np.sum(np.square(known)))) * (1 + 1e-12) if len(known) == len(costs) else None


def _entry(line: dict[str, Any]) -> Participation:
    try:
        return Participation(line["run"], line["round"], line["point"], line["mu"], line.get("claim"))
    except KeyError:
        raise Damaged("ledger.jsonl is damaged") from None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
