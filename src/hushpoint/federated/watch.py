"""The rounds of a server as others see them: who answered, declined or is silent and why, in a log and in one file.

``run/events.jsonl`` has what happened, a line each; ``run/standing.json`` where the run stands now. Both are made of
what sites chose to send: words of a list, never how long anybody worked.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from hushpoint.federated.disk import read_lines
from hushpoint.federated.log import Log, now, stamp
from hushpoint.federated.processes import is_alive
from hushpoint.federated.reasons import words_of
from hushpoint.federated.server import RoundRecord, Verdict

EVENTS, STANDING = "events.jsonl", "standing.json"
_PAUSE = 0.5  # seconds between two writings of where it stands


class Present(Protocol):
    """Who is there, as ``flower.Directory`` knows it."""

    @property
    def available(self) -> set[int]: ...
    @property
    def others(self) -> Collection[int]: ...
    @property
    def refused(self) -> set[int]: ...


class Watched:
    """A server that does what it did, and is seen doing it. What is not named here is the server's own.

    Parameters
    ----------
    server
        A ``Server`` or a ``SecureServer``.
    place : Path
        The folder of the run.
    discreet : bool
        Who is asked is a secret that the guarantee counts on: then events name no site and no numbers of them.
    """

    def __init__(
        self, server: Any, place: Path, *, discreet: bool = False, clock: Callable[[], datetime] = now
    ) -> None:
        self._server, self._place, self._discreet, self._clock = server, place, discreet, clock
        self._log = Log("server", self._note, as_json=True, clock=clock)
        self._present: Present | None = None
        self._exchange, self._attempt = "", 0
        self._answered: set[int] = set()
        self._trouble: dict[int, str] = {}  # why a site did not take part in the open exchange
        self._known: dict[int, str] = {}  # what was said of each site last: a trouble is news once
        self._strangers = 0
        self._last_round: dict[str, Any] = {}
        self._due, self._written = False, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    def ask(self, present: Present) -> None:
        """Where to ask who is there."""
        self._present = present

    # --- what is watched

    @property
    def waiting(self) -> set[int]:
        """Sites that have not answered; whoever waits looks here several times a second."""
        self._write_if_due()
        return set(self._server.waiting)

    def open_round(self, available: Collection[int]) -> dict[int, bytes]:
        """Open it, and say who is missing."""
        requests: dict[int, bytes] = self._server.open_round(available)
        if self._server.exchange != self._exchange:
            self._exchange, self._attempt, self._answered, self._trouble = self._server.exchange, 0, set(), {}
        self._attempt += 1
        self._look(available)
        self._write()
        return requests

    def receive(self, site: int, reply: bytes) -> Verdict:
        """Take a reply, and say what became of it where it did not count."""
        verdict: Verdict = self._server.receive(site, reply)
        if verdict.status == "taken":
            self._answered.add(site)
            self._trouble.pop(site, None)
            self._known.pop(site, None)
        elif verdict.status in ("declined", "refused"):
            self._troubled(verdict.status, site, verdict.reason)
        self._due = True
        return verdict

    def close_round(self) -> RoundRecord | None:
        """Close it, and say who had a part."""
        silent = set(self._server.waiting)
        record: RoundRecord | None = self._server.close_round()
        for site in sorted(silent):
            self._troubled("silent", site, "no answer")
        if record is not None:
            self._tell_round(record)
        elif self._is_between:
            self._say("given up", "the round was given up; a new one is begun", reason="given up")
        self._write()
        return record

    def leave_round(self) -> bool:
        """Say who was silent, and leave it."""
        for site in sorted(self._server.waiting):
            self._troubled("silent", site, "no answer")
        left = bool(self._server.leave_round())
        if left or self._is_between:
            self._say("given up", "the round was given up; a new one is begun", reason="given up")
        else:
            self._say("again", "too few sites have answered; they are asked again", reason="quorum")
        self._write()
        return left

    def end(self, outcome: str, words: str = "") -> None:
        """Say how it ended."""
        self._log.say("end", words or f"the run is {outcome}", reason=outcome)
        self._write(outcome)

    # --- what is said

    @property
    def _round(self) -> int | None:
        number = self._exchange.partition(".")[0]
        return int(number) if number.isdigit() else None

    @property
    def _is_between(self) -> bool:
        """Whether a round of several exchanges was left before its end."""
        return str(self._server.exchange).endswith(".")

    def _say(self, event: str, words: str = "", **more: Any) -> None:
        self._log.say(event, words, round=self._round, **more)

    def _troubled(self, event: str, site: int, reason: str) -> None:
        self._trouble[site] = reason
        if self._known.get(site) == reason:
            return
        self._known[site] = reason
        if self._discreet:
            self._say(event, f"a site: {words_of(reason)}", reason=reason)
        else:
            self._say(event, f"site {site}: {words_of(reason)}", reason=reason, site=site)

    def _look(self, available: Collection[int]) -> None:
        """Who is not there, and why."""
        others = () if self._present is None else self._present.others
        for site in sorted(set(range(self._server.sites)) - set(available)):
            self._troubled("absent", site, "another run" if site in others else "absent")
        strangers = 0 if self._present is None else len(self._present.refused)
        if strangers > self._strangers:
            self._say("stranger", words_of("stranger"), reason="stranger")
        self._strangers = strangers

    def _tell_round(self, record: RoundRecord) -> None:
        self._last_round = {"round": record.round, "at": stamp(self._clock()), "answered": len(record.answered)}
        if self._discreet:
            self._log.say("round", "the round is over", round=record.round)
            return
        asked, answered = len(record.asked), len(record.answered)
        self._log.say(
            "round",
            f"{answered} of {asked} sites have answered",
            round=record.round,
            answered=record.answered,
            bytes_down=record.bytes_down,
            bytes_up=record.bytes_up,
        )

    def _note(self, line: str) -> None:
        """One more event. Nothing waits for the disk, and a full one ends no round: what counts is kept elsewhere."""
        with suppress(OSError), (self._place / EVENTS).open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    # --- where it stands

    def _write_if_due(self) -> None:
        if self._due and time.monotonic() - self._written >= _PAUSE:
            self._write()

    def _write(self, status: str = "") -> None:
        self._due, self._written = False, time.monotonic()
        record = {
            "time": stamp(self._clock()),
            "run": str(self._server.run),
            "process": os.getpid(),
            "status": status or str(self._server.status),
            "round": self._round,
            "exchange": self._exchange.partition(".")[2],
            "attempt": self._attempt,
            "answered": sorted(self._answered),
            "waiting": sorted(self._server.waiting),
            "trouble": {str(site): reason for site, reason in sorted(self._trouble.items())},
            "last_round": self._last_round,
        }
        with suppress(OSError):
            draft = self._place / f"{STANDING}.part"
            draft.unlink(missing_ok=True)
            draft.touch(0o600)  # it may tell who was asked
            draft.write_text(json.dumps(record) + "\n", encoding="utf-8")
            draft.replace(self._place / STANDING)


def standing(place: Path) -> dict[str, Any]:
    """Where a run stands, and whether its process is there; empty where none was begun."""
    try:
        found = json.loads((place / STANDING).read_text(encoding="utf-8"))
        found["alive"] = is_alive(found["process"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return dict(found)


def events(place: Path) -> list[dict[str, Any]]:
    """What happened in a run; empty where nothing was noted, or what was is damaged."""
    try:
        return read_lines(place / EVENTS)
    except (OSError, ValueError):
        return []
