"""What happens, a line each: words for people, or JSON for machines. Nothing in it depends on anybody's data.

A line has a time, who says it, what happened, the round and the reason. It has no text of an exception, no number of
rows, and no time that would tell how long a site worked: what a site answers has the time at which it was asked.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hushpoint.federated.reach import CODES
from hushpoint.federated.reasons import at_site, words_of

Tell = Callable[[str], None]
LAST_WORDS = "last.json"


def now() -> datetime:
    """The time."""
    return datetime.now(UTC)


def stamp(moment: datetime) -> str:
    """A time as logs have it: to the second, in UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Log:
    """Lines of one party.

    Parameters
    ----------
    who : str
        "site 3", "server" or "superlink".
    tell : callable
        Prints a line.
    as_json : bool
        JSON, or words.
    place : Path, optional
        A folder for the last thing that was said, which ``hushpoint federated status`` shows.
    clock : callable
        What the time is.
    """

    def __init__(
        self,
        who: str,
        tell: Tell,
        *,
        as_json: bool = False,
        place: Path | None = None,
        clock: Callable[[], datetime] = now,
    ) -> None:
        self.who, self.as_json, self.clock = who, as_json, clock
        self._tell, self._place = tell, place
        self._last: dict[str, Any] = {}

    def say(
        self,
        event: str,
        words: str = "",
        *,
        round: int | None = None,
        reason: str = "",
        at: datetime | None = None,
        **more: Any,
    ) -> None:
        """One line, unless it is the last one again."""
        said = {"who": self.who, "event": event, "round": round, "reason": reason, "words": words, **more}
        if said == self._last:
            return
        self._last = said
        self.pass_on({"time": stamp(at or self.clock()), **said})

    def pass_on(self, line: Mapping[str, Any]) -> None:
        """A line that is made already."""
        with suppress(OSError, ValueError):  # a closed pipe or a full disk ends no round
            self._tell(json.dumps(line) if self.as_json else in_words(line))
        if self._place is not None:
            _keep(self._place / LAST_WORDS, line)

    def pass_on_but_the_end(self, line: Mapping[str, Any]) -> None:
        """The same, but for how it ended, which is said by whoever waited for it."""
        if line.get("event") != "end":
            self.pass_on(line)

    def told(self, words: str) -> None:
        """What the site says of itself; why it declined is said with its round, by ``answered``."""
        if not words.startswith("declined ("):
            self.say("run", words)

    def greeted(self, theirs: str, own: str) -> None:
        """A server asked who the site is; it may be at work on another run than the site agreed to."""
        if theirs and theirs != own:
            named = theirs if theirs.isalnum() and len(theirs) <= 64 else "another"  # the server chose these letters
            words = (
                f"the server's run is {named} and this site was started with {own}. If a newer agreement is in its "
                "folder, start it again"
            )
            self.say("trouble", words, reason="another run")

    def answered(self, round_number: int, status: str, reason: str, asked: datetime) -> None:
        """What the site answered, with the time at which it was asked."""
        if status == "declined":
            self.say("declined", at_site(reason), round=round_number or None, reason=reason, at=asked)
        else:
            self.say("answered", round=round_number or None, at=asked)

    def node(self, words: str) -> None:
        """What the node of a site says; what it has found out begins with the name of the trouble."""
        code, _, rest = words.partition(": ")
        if words == "answered":  # said with its round, by ``answered``
            return
        if code in CODES:
            self.say("trouble", rest, reason=code)
        else:
            self.say("node", words)


class _TurnedAway(logging.Handler):
    """Flower's own word on nodes that it does not admit, without the keys that it quotes."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        words = str(record.msg)
        if "Attempted to register SuperNode" not in words:
            return
        if "could not be activated" in words:
            self._log.say(
                "turned away", "a site that is there came once more, or was killed a moment ago", reason="duplicate"
            )
        else:
            self._log.say(
                "turned away",
                "a node came whose key is not known: is it in the roster? At the start that takes a moment",
                reason="unknown key",
            )


def note_who_is_turned_away(log: Log) -> None:
    """Say at the SuperLink who is not admitted, and why."""
    logging.getLogger("flwr").addHandler(_TurnedAway(log))


def in_words(line: Mapping[str, Any]) -> str:
    """A line for people."""
    round_number, reason = line.get("round"), line.get("reason", "")
    words = line.get("words") or words_of(reason) or line["event"]
    start = "" if round_number is None else f"round {round_number}: "
    return f"{start}{reason}: {words}" if reason and words != reason else f"{start}{words}"


def last_words(folder: Path) -> dict[str, Any] | None:
    """What a site's node said last, if anything."""
    try:
        found = json.loads((folder / LAST_WORDS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _keep(place: Path, line: Mapping[str, Any]) -> None:
    """Keep a line without waiting for the disk. A disk that is full is no reason to fall silent."""
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        draft = place.with_suffix(".part")
        draft.unlink(missing_ok=True)
        draft.touch(0o600)
        draft.write_text(json.dumps(line) + "\n", encoding="utf-8")
        draft.replace(place)
