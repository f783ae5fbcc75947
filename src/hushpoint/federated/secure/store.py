"""What a site keeps of a run with secure sums: its secrets of the open round, and what is public so far."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

from hushpoint._files import sync_folder
from hushpoint.federated.ledger import Ledger, MemoryStore, Participation, SiteStore
from hushpoint.secure.packing import pack, unpack

_STATE, _PUBLIC, _MODEL = "round.secret", "public.bin", "model.json"


@dataclass(frozen=True, repr=False)
class OpenRound:
    """The round that a site is in: of which run, what is asked, its secrets, and where the ledger stands by then.

    ``lasts`` is the last round of every run that the site began one of: what was begun and erased is over for it.
    """

    run: str
    question: bytes
    state: bytes
    check: str
    lasts: Mapping[str, int] = field(default_factory=dict)


class SecureStore:
    """Beside the ledger of a site: ``round.secret`` (mode 0600, in no backup), ``public.bin`` and ``model.json``.

    The state of the open round names the line of the ledger that it was made after, so that an old copy of the ledger
    beside a newer state is found out.
    """

    def __init__(self, site: SiteStore) -> None:
        self.site = site

    def held(self) -> AbstractContextManager[None]:
        """The folder for one process alone."""
        return self.site.held()

    def ledger(self) -> Ledger:
        """The ledger; ``Damaged`` where it is lost."""
        return self.site.ledger()

    def record(self, ledger: Ledger, entry: Participation) -> Ledger:
        """One more round in which a message may leave, on the disk when this returns."""
        return self.site.record(ledger, entry)

    def load(self, name: str) -> bytes | None:
        """What was kept under a name."""
        try:
            return (self.site.directory / name).read_bytes()
        except OSError:
            return None

    def keep(self, name: str, content: bytes, secret: bool = False) -> None:
        """Keep it in the place of what was there, on the disk when this returns."""
        place = self.site.directory / name
        draft = place.with_name(f"{name}.draft")
        draft.unlink(missing_ok=True)
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(place)
        sync_folder(place.parent)

    # --- by name

    def keep_round(self, kept: OpenRound) -> None:
        """The open round, with all its secrets."""
        lasts = json.dumps(dict(kept.lasts), sort_keys=True)
        self.keep(_STATE, pack("round", kept.run, kept.question, kept.state, kept.check, lasts), secret=True)

    def open_round(self) -> OpenRound | None:
        """What was kept of the last round; None where there never was one."""
        data = self.load(_STATE)
        if data is None:
            return None
        run, question, state, check, lasts = unpack("round", data, 5)
        return OpenRound(run.decode(), question, state, check.decode("ascii"), json.loads(lasts))

    def forget_round(self, run: str) -> None:
        """Erase the secrets of the last round, if it is of this run; where the ledger stood is kept."""
        kept = self.open_round()
        if kept is not None and kept.run == run:
            self.keep_round(replace(kept, question=b"", state=b""))

    def keep_public(self, data: bytes) -> None:
        """What is public so far."""
        self.keep(_PUBLIC, data)

    def public(self) -> bytes | None:
        """What was public when it was last sent."""
        return self.load(_PUBLIC)

    def keep_model(self, data: bytes) -> None:
        """The model that all trained."""
        self.keep(_MODEL, data)


class InMemory(SecureStore):
    """The same without a disk, for runs inside one process."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.kept: dict[str, bytes] = {}

    def held(self) -> AbstractContextManager[None]:
        return nullcontext()

    def load(self, name: str) -> bytes | None:
        return self.kept.get(name)

    def keep(self, name: str, content: bytes, secret: bool = False) -> None:
        self.kept[name] = content
