"""What a server keeps on its disk: the state of the run, the log of its rounds, and what the run is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hushpoint._files import save_arrays, write_bytes, write_json
from hushpoint._types import Array, Indices
from hushpoint._version import __version__
from hushpoint.federated.disk import Damaged, append_line, held, load_arrays, read_lines
from hushpoint.federated.terms import planned, sample_is_secret, trust, units
from hushpoint.plan import Plan

if TYPE_CHECKING:
    from hushpoint.federated.server import Server


@dataclass
class ServerState:
    """Where a run stands. With a trusted server the blocks are private: never publish the state.

    Of each site, ``known`` is the round of its last message that was taken, ``participations`` how often it took part
    by its own ledger, ``unheard`` how often it was asked since then without an answer (a message may have left and been
    lost), ``taken`` how many messages of it were taken. ``chosen`` is who takes part in the open round (None: no round
    is open), ``asked`` who was asked already, ``token`` the name of this opening of it. ``released`` is the round that
    ``public`` is of: fewer than ``rounds`` where some were run in a life that is forgotten.
    """

    run: str
    shared: Array
    public: Array
    blocks: Array
    known: Indices
    participations: Indices
    unheard: Indices
    taken: Indices
    asked: NDArray[np.bool_]
    rounds: int = 0
    chosen: Indices | None = None
    token: str = ""
    lost: bool = False
    released: int = 0
    tail_sum: Array = field(default_factory=lambda: np.zeros(0))
    tail_count: int = 0
    last_record: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def start(plan: Plan, run: str) -> ServerState:
        """The public start."""
        shared, blocks = plan.operator.start()
        nobody = np.zeros(plan.operator.blocks, dtype=np.int64)
        counts: dict[str, Any] = {name: nobody.copy() for name in ("known", "participations", "unheard", "taken")}
        return ServerState(run, shared, shared.copy(), blocks, asked=nobody.astype(np.bool_), **counts)

    def end_round(self, rounds: int) -> None:
        """No round is open, and so many are over."""
        self.rounds, self.chosen, self.asked[:] = rounds, None, False

    def skip_to(self, rounds: int, steps: int) -> None:
        """Count rounds of the plan's that were run in a life that is forgotten; their last model is not here."""
        self.end_round(rounds)
        self.lost = rounds >= steps

    @property
    def accounted(self) -> Indices:
        """How often each site took part at most; never less than the messages that were taken of it."""
        return np.asarray(np.maximum(self.participations, self.taken) + self.unheard)


class ServerStore:
    """The folder of a server: ``server.npz`` (private), ``rounds.jsonl``, ``run.json`` and ``model.json``."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self._lock = ExitStack()

    @staticmethod
    def in_memory() -> ServerStore:
        """A store without a disk, for runs inside one process."""
        return _InMemory()

    def open(self, plan: Plan, run: str) -> None:
        """Take the folder for this process, and refuse one that belongs to another plan."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._lock.close()
        self._lock.enter_context(held(self.directory))
        try:
            known = json.loads((self.directory / "run.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return
        if known.get("run") != run:
            self.close()
            raise ValueError(
                f"{str(self.directory)!r} holds a run of another plan. Choose another folder: what was spent there "
                "stays counted there."
            )

    def close(self) -> None:
        """Let go of the folder."""
        self._lock.close()

    def load(self, run: str, steps: int) -> ServerState | None:
        """The state that was saved last; None where the run has not begun."""
        place = self.directory / "server.npz"
        if not place.exists():
            if (self.directory / "rounds.jsonl").exists():
                raise ValueError(
                    f"{str(place)!r} is missing though rounds were run. Restore it from a copy; an older one will do, "
                    "as long as rounds.jsonl stays as it is."
                )
            return None
        try:
            arrays: dict[str, Any] = load_arrays(place)
        except Damaged:
            raise ValueError(
                f"{str(place)!r} is damaged. Restore it from a copy; an older one will do, as long as rounds.jsonl "
                "stays as it is."
            ) from None
        if str(arrays["run"]) != run:
            raise ValueError(f"{str(place)!r} is of another plan. Choose another folder.")
        chosen = arrays.pop("chosen")
        record = json.loads(str(arrays.pop("last_record")))
        numbers: dict[str, Any] = {name: int(arrays.pop(name)) for name in ("rounds", "tail_count")}
        numbers["released"] = int(arrays.pop("released", numbers["rounds"]))  # files of before it was kept have none
        numbers |= {"lost": bool(arrays.pop("lost")), "token": str(arrays.pop("token"))}
        is_open = bool(arrays.pop("is_open"))
        state = ServerState(**{**arrays, "run": run}, **numbers, chosen=chosen if is_open else None, last_record=record)
        logged = read_lines(self.directory / "rounds.jsonl")
        if record and (not logged or logged[-1]["round"] < record["round"]):
            self.log(record)  # it was killed between the two
        if logged and logged[-1]["round"] > state.rounds:  # an old copy: the rounds since then were released
            state.skip_to(logged[-1]["round"], steps)
        return state

    def save(self, state: ServerState) -> None:
        """Keep a state, on the disk when this returns."""
        arrays: dict[str, Any] = {name: getattr(state, name) for name in state.__dataclass_fields__}
        arrays["is_open"] = state.chosen is not None
        arrays["chosen"] = np.zeros(0, dtype=np.int64) if state.chosen is None else state.chosen
        arrays["last_record"] = json.dumps(state.last_record)
        save_arrays(self.directory / "server.npz", arrays)

    def log(self, record: Mapping[str, Any]) -> None:
        """One more line of the log."""
        append_line(self.directory / "rounds.jsonl", record)

    def tell(self, server: Server, status: str | None = None, why: str = "") -> None:
        """Write what the run is, where it stands and its last public model, for people and ``hushpoint report``."""
        write_json(self.directory / "run.json", run_record(server, status, why))
        model = server.model_file(status)
        if model is not None:
            from hushpoint.federated.models import model_bytes

            write_bytes(self.directory / "model.json", model_bytes(model))


class _InMemory(ServerStore):
    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def open(self, plan: Plan, run: str) -> None:
        pass

    def close(self) -> None:
        pass

    def load(self, run: str, steps: int) -> None:
        return None

    def save(self, state: ServerState) -> None:
        pass

    def log(self, record: Mapping[str, Any]) -> None:
        self.records.append(dict(record))

    def tell(self, server: Server, status: str | None = None, why: str = "") -> None:
        pass


def run_record(server: Server, status: str | None = None, why: str = "") -> dict[str, Any]:
    """A run as ``run.json`` holds it; ``status`` says how it ended where the server alone cannot know."""
    plan, state = server.plan, server.state
    promised = [server.statement(planned(plan), unit) for unit in units(plan)]
    return {
        "format": 1,
        "kind": "federated",
        "name": plan.method,
        "version": __version__,
        "run": state.run,
        "status": status or server.status,
        "why": "" if sample_is_secret(plan) else why,  # it may name who was asked
        "trusted": trust(plan),
        "secret_sample": sample_is_secret(plan),
        "rounds": state.rounds,
        "planned_rounds": plan.steps,
        "participations": None if sample_is_secret(plan) else state.accounted.tolist(),
        "spent": [guarantee.to_dict() for guarantee in server.guarantees()],
        "promised": [guarantee.to_dict() for guarantee in promised],
        "plan": plan.to_dict(),
    }
