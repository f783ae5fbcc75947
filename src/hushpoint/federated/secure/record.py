"""What the server of a federation with secure sums keeps on its disk. None of it is anybody's secret."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpoint._files import save_arrays, write_json
from hushpoint.federated.disk import Damaged, append_line, held, load_arrays, read_lines
from hushpoint.federated.secure.covenant import Covenant

if TYPE_CHECKING:
    from hushpoint.federated.secure.server import SecureServer, SecureState

_STATE, _LOG, _AGREED = "server.npz", "rounds.jsonl", "covenant.json"


class SecureServerStore:
    """The folder of a run: ``server.npz``, ``rounds.jsonl`` and ``covenant.json``."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self._lock = ExitStack()

    @staticmethod
    def in_memory() -> SecureServerStore:
        """A store without a disk, for runs inside one process."""
        return _InMemory()

    def open(self, covenant: Covenant) -> None:
        """Take the folder for this process, and refuse one that belongs to another covenant."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._lock.close()
        self._lock.enter_context(held(self.directory))
        place = self.directory / _AGREED
        if not place.exists():
            place.write_text(covenant.to_json(), encoding="utf-8")
        elif Covenant.from_json(place.read_text(encoding="utf-8")).digest != covenant.digest:
            self.close()
            raise ValueError(
                f"{str(self.directory)!r} holds a run of another covenant. Choose another folder: what was spent there "
                "stays counted there."
            )

    def close(self) -> None:
        """Let go of the folder."""
        self._lock.close()

    def load(self) -> SecureState | None:
        """The state that was saved last; None where the run has not begun."""
        from hushpoint.federated.secure.server import SecureState

        place = self.directory / _STATE
        if not place.exists():
            if (self.directory / _LOG).exists():
                raise ValueError(
                    f"{str(place)!r} is missing though rounds were run. Restore it from a copy, or agree anew."
                )
            return None
        try:
            arrays: dict[str, Any] = load_arrays(place)
            words = json.loads(arrays.pop("words").tobytes())
            named = {name: arrays[name].tobytes() for name in ("public", "question", "round_state")}
            return self._as_logged(SecureState(**{**arrays, **named, **words}))
        except (Damaged, KeyError, TypeError, ValueError):
            raise ValueError(f"{str(place)!r} is damaged. Restore it from a copy, or agree anew.") from None

    def _as_logged(self, state: SecureState) -> SecureState:
        """The state, unless the log has later rounds: then it is an old copy, and what those rounds cost has failed."""
        last = max((int(line["round"]) for line in read_lines(self.directory / _LOG)), default=0)
        if last <= state.rounds:
            return state
        return replace(
            state, rounds=last, failed=state.failed + last - state.rounds, question=b"", round_state=b"", is_out=False
        )

    def save(self, state: SecureState) -> None:
        """Keep a state, on the disk when this returns."""
        fields = {name: getattr(state, name) for name in state.__dataclass_fields__}
        arrays = {name: fields.pop(name) for name in ("shared", "point", "tail_sum")}
        arrays |= {name: _bytes(fields.pop(name)) for name in ("public", "question", "round_state")}
        save_arrays(self.directory / _STATE, {**arrays, "words": _bytes(json.dumps(fields).encode())})

    def log(self, record: Mapping[str, Any]) -> None:
        """One more line of the log."""
        append_line(self.directory / _LOG, record)

    def tell(self, server: SecureServer, status: str, why: str = "") -> None:
        """Write what the run is and where it stands, for people and for ``hushpoint report``."""
        from hushpoint.federated.secure.outcome import run_record

        write_json(self.directory / "run.json", run_record(server, status, why))


class _InMemory(SecureServerStore):
    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def open(self, covenant: Covenant) -> None:
        pass

    def close(self) -> None:
        pass

    def load(self) -> None:
        return None

    def save(self, state: SecureState) -> None:
        pass

    def log(self, record: Mapping[str, Any]) -> None:
        self.records.append(dict(record))

    def tell(self, server: SecureServer, status: str, why: str = "") -> None:
        pass


def _bytes(data: bytes) -> Any:
    return np.frombuffer(data, dtype=np.uint8)
