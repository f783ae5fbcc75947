"""What a site keeps on its own disk: how often it took part, where its block stands, and what it sent last."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from hushpoint._checks import require_count
from hushpoint._files import save_arrays, sync_folder, write_bytes, write_json
from hushpoint._types import Array
from hushpoint.federated.disk import Damaged, append_line, held, load_arrays, read_chain
from hushpoint.secure.packing import unpack

_BEHIND = "ledger.behind.json"


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


@dataclass(frozen=True)
class Vouched:
    """Participations that a person vouches for, since their lines were lost: in one run, at what cost each.

    With ``run`` "" they are of runs that nobody can name, and ``count`` None is a number that nobody knows: both count
    against a site's own limit alone, as if they had no bound. ``after`` is how many participations came before.
    """

    run: str
    count: int | None
    mu: dict[str, float | None] = field(default_factory=dict)
    claim: dict[str, Any] | None = None
    after: int = 0


@dataclass(frozen=True, eq=False)
class SiteState:
    """The block before and after the last move, and the message between them; ``point`` is what it answers.

    ``check`` is where the ledger stood when the move was made: one line short of it. ``request`` is the request that
    asked for it, in whole numbers: what proves to a server that lost its memory that the round was opened.
    """

    run: str
    round: int
    point: str
    block: Array
    base: Array
    message: Array
    check: str
    request: Any = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    mu: str = "{}"

    @property
    def line(self) -> Participation:
        """The line of the ledger that belongs to the move."""
        return Participation(self.run, self.round, self.point, json.loads(self.mu))


@dataclass(frozen=True)
class Ledger:
    """All participations of a site, in every run, and what a person vouched for where lines were lost.

    ``before`` is what was vouched for without a run, in ledgers of before runs were named: it counts in every one.
    ``checks`` are the checks of its lines, the opening one first. A ``lost`` one stands for a file that is damaged.
    """

    entries: tuple[Participation, ...] = ()
    before: int = 0
    checks: tuple[str, ...] = ("",)
    lost: bool = False
    vouched: tuple[Vouched, ...] = ()

    def of(self, run: str) -> tuple[Participation, ...]:
        """The participations in one run."""
        return tuple(entry for entry in self.entries if entry.run == run)

    def count(self, run: str) -> int:
        """How often the site took part in a run, what was vouched for included."""
        return self.before + len(self.of(run)) + sum(one.count or 0 for one in self.vouched if one.run == run)

    @property
    def total(self) -> int:
        """How often it took part in all runs, as far as anybody knows."""
        return self.before + len(self.entries) + sum(one.count or 0 for one in self.vouched)

    @property
    def has_unpriced(self) -> bool:
        """Whether there are participations of which nobody knows the cost."""
        return bool(self.before) or any(not one.run and one.count != 0 for one in self.vouched)

    def shows_last(self, run: str) -> bool:
        """Whether its lines show the last round of a run: not where others were lost and none has come since."""
        if not self.before and not self.vouched:
            return True
        lost_at = max((one.after for one in self.vouched), default=0)
        return any(entry.run == run for entry in self.entries[lost_at:])

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
    def readmit(
        cls,
        directory: str | Path,
        participations: int,
        run: str = "",
        *,
        mu: dict[str, float | None] | None = None,
        claim: dict[str, Any] | None = None,
        elsewhere: int | None = 0,
    ) -> SiteStore:
        """Go on where a ledger is lost or an old copy, with numbers of participations that a person vouches for.

        Parameters
        ----------
        directory : path
        participations : int
            How often the site has taken part in the run at most, lines that are left included.
        run : str
            Which run that is; "": nobody can name it, and the number counts against the site's own limit only.
        mu, claim
            What each participation, or all of them together, cost at most.
        elsewhere : int, optional
            How often it took part in other runs, beside what the ledger still says of them; None: nobody knows.
        """
        store = cls(directory)
        require_count("participations", participations, least=0)
        if elsewhere is not None:
            require_count("elsewhere", elsewhere, least=0)
        try:
            ledger = store.ledger()
        except Damaged:
            ledger = Ledger(lost=True)
        if not ledger.lost and not store.is_old(ledger):
            raise ValueError(f"the ledger in {str(directory)!r} is whole. It is never made anew.")
        known = ledger.count(run) + (store.missing_run(ledger) == run) if run else 0
        if participations < known:
            raise ValueError(
                f"participations is {participations}, and what is left of the ledger shows {known} in this run. Vouch "
                "for a number that includes these."
            )
        told = [Vouched(run, participations - (ledger.count(run) if run else 0), mu or {}, claim)]
        if run and elsewhere != 0:
            told.append(Vouched("", elsewhere))
        # Other runs of which lines are missing, or may be, are over for the site: nobody knows what is left of them.
        # Only whoever vouches for nothing at all, in no run, has spoken of them too.
        others = {store.missing_run(ledger)} if elsewhere == 0 else store._runs(ledger)
        if not run and participations == 0 == elsewhere:
            others = set()
        told += [Vouched(other, None) for other in sorted({one for one in others if one} - {run})]
        line = {"vouched": [asdict(one) for one in told]}
        store.directory.mkdir(parents=True, exist_ok=True)
        if not ledger.lost:  # its lines stay, and count
            append_line(store._ledger, {**line, "at": _now()}, ledger.checks[-1])
            store._set_aside()
            return store
        if store._ledger.exists():
            store._ledger.replace(store._ledger.with_name(f"ledger.lost.{_now().replace(':', '')}.jsonl"))
        store._set_aside()
        # In one line with its beginning: a ledger without it would say that nothing was spent.
        append_line(store._ledger, {"opened": _now(), "before": 0, **line}, "")
        sync_folder(store.directory)
        return store

    def _set_aside(self) -> None:
        """What belongs to lines that were lost: the server has the block too, and knows the rounds."""
        for name in ("state.npz", "messages.jsonl", _BEHIND):
            if (self.directory / name).exists():
                (self.directory / name).replace(self.directory / f"{name}.lost.{_now().replace(':', '')}")
        # The secrets of a secure sum name a line of the lost ledger, and no copy of them is ever kept.
        (self.directory / "round.secret").unlink(missing_ok=True)

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
        entries: list[Participation] = []
        vouched: list[Vouched] = []
        for line in lines:
            if "vouched" in line:
                vouched.extend(_vouched(one, len(entries)) for one in line["vouched"])
            elif line is not lines[0]:
                entries.append(_entry(line))
        return Ledger(tuple(entries), int(lines[0]["before"]), tuple(checks), vouched=tuple(vouched))

    def record(self, ledger: Ledger, entry: Participation) -> Ledger:
        """One more participation, on the disk when this returns."""
        check = append_line(self._ledger, {**asdict(entry), "at": _now()}, ledger.checks[-1])
        return replace(ledger, entries=(*ledger.entries, entry), checks=(*ledger.checks, check))

    def state(self, run: str) -> SiteState | None:
        """Where the block of a run stands; None where there is none, or it is damaged."""
        last = self.last()
        return last if last is not None and last.run == run else None

    def last(self) -> SiteState | None:
        """What was kept of the last move, of whatever run."""
        try:
            arrays: dict[str, Any] = load_arrays(self._state)
            for name in ("run", "point", "check", "mu"):
                if name in arrays:  # states of before costs were kept have no mu
                    arrays[name] = str(arrays[name])
            arrays["round"] = int(arrays["round"])
            return SiteState(**arrays)
        except (Damaged, TypeError, ValueError, KeyError):
            return None

    def pending(self, ledger: Ledger) -> Participation | None:
        """The line of a move that is kept and not in the ledger: it was killed between the two, or lost one line."""
        last = self.last()
        return None if last is None or ledger.lost or last.check != ledger.checks[-1] else last.line

    def _marks(self) -> list[tuple[str, str]]:
        """The runs of the last moves, and where the ledger stood then, by what is kept beside it."""
        last = self.last()
        marks = [] if last is None else [(last.run, last.check)]
        try:
            run, _, _, check, *_ = unpack("round", (self.directory / "round.secret").read_bytes())
            marks.append((run.decode("utf-8"), check.decode("ascii")))
        except (OSError, ValueError):
            pass
        return marks

    def _runs(self, ledger: Ledger) -> set[str]:
        """Every run that anything here speaks of."""
        return {entry.run for entry in ledger.entries} | {run for run, _ in self._marks()}

    def is_old(self, ledger: Ledger) -> bool:
        """Whether a ledger is an older copy than what is beside it, or than what the server has shown."""
        return self.missing_run(ledger) is not None

    def missing_run(self, ledger: Ledger) -> str | None:
        """The run of which a line is missing; None where none is known to be."""
        for run, check in self._marks():
            if check not in ("", *ledger.checks):
                return run
        try:
            seen = json.loads((self.directory / _BEHIND).read_text(encoding="utf-8"))
            run, number = str(seen["run"]), int(seen["round"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return run if ledger.last_round(run) < number else None

    def note_behind(self, run: str, number: int) -> None:
        """Keep that the server has a message of a round that the ledger knows nothing of."""
        write_json(self.directory / _BEHIND, {"run": run, "round": number})

    def keep_model(self, content: bytes) -> None:
        """Keep the model that all trained."""
        write_bytes(self.directory / "model.json", content)

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
        self.model = b""

    @contextmanager
    def held(self) -> Iterator[None]:
        yield

    def ledger(self) -> Ledger:
        return self._kept

    def record(self, ledger: Ledger, entry: Participation) -> Ledger:
        entries = (*ledger.entries, entry)
        self._kept = replace(ledger, entries=entries, checks=(*ledger.checks, str(len(entries))))
        return self._kept

    def last(self) -> SiteState | None:
        return self._last

    def missing_run(self, ledger: Ledger) -> str | None:
        last = self._last
        return None if last is None or last.check in ledger.checks else last.run

    def note_behind(self, run: str, number: int) -> None:
        pass

    def keep_model(self, content: bytes) -> None:
        self.model = content

    def save(self, state: SiteState) -> None:
        self._last = state

    def note(self, run: str, round: int, size: int, again: bool) -> None:
        self.sent.append(round)


def total_mu(ledger: Ledger, unit: str) -> float | None:
    """What all participations cost together, in every run; None where one of them has no bound that is known."""
    costs = [(1, entry.mu.get(unit)) for entry in ledger.entries]
    costs += [(one.count or 0, one.mu.get(unit)) for one in ledger.vouched if one.count != 0]
    squares = [count * cost**2 for count, cost in costs if cost is not None]
    if len(squares) < len(costs) or ledger.has_unpriced:
        return None
    return float(np.sqrt(np.sum(squares))) * (1 + 1e-12)


def _vouched(record: dict[str, Any], after: int) -> Vouched:
    try:
        return Vouched(record["run"], record["count"], record["mu"], record["claim"], after)
    except (KeyError, TypeError):
        raise Damaged("ledger.jsonl is damaged") from None


def _entry(line: dict[str, Any]) -> Participation:
    try:
        return Participation(line["run"], line["round"], line["point"], line["mu"], line.get("claim"))
    except KeyError:
        raise Damaged("ledger.jsonl is damaged") from None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
