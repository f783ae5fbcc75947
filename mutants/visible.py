"""Bugs in what is seen of a federation: logs, metrics and checks that tell of the data, or of who was asked."""

from __future__ import annotations

from functools import partial

from mutants.mutant import Mutant

_HERE = "src/hushpoint/federated"

_seen = partial(Mutant, room="what is seen", tests=("tests/federated/test_visible.py",))
_checked = partial(Mutant, room="what is seen", tests=("tests/federated/test_check.py",))

BUGS = [
    _seen(
        name="answer-at-the-time-it-was-ready",
        file=f"{_HERE}/log.py",
        old='self.say("answered", round=round_number or None, at=asked)',
        new='self.say("answered", round=round_number or None)',
        why="the log tells how long a site worked on its data",
    ),
    _seen(
        name="metrics-of-a-secret-sample",
        file=f"{_HERE}/health.py",
        old='if record.get("secret_sample", True):',
        new='if record.get("secret_sample") == "else":',
        why="how many were asked is what the guarantee counts on nobody knowing",
    ),
    _seen(
        name="events-of-a-secret-sample",
        file=f"{_HERE}/watch.py",
        old='self._say(event, f"a site: {words_of(reason)}", reason=reason)',
        new='self._say(event, f"site {site}: {words_of(reason)}", reason=reason, site=site)',
        why="who declined was asked",
    ),
    _seen(
        name="error-on-the-endpoint",
        file=f"{_HERE}/health.py",
        old='code, text = 500, "failed\\n"',
        new="import traceback\n\n            code, text = 500, traceback.format_exc()",
        why="the text of an error goes to whoever asks",
    ),
    _seen(
        name="start-error-in-the-log",
        file="src/hushpoint/commands/federated_status.py",
        old="for line in problems:\n        log.say(",
        new='log.say("end", str(error), reason="failed")\n    for line in problems:\n        log.say(',
        why="what is wrong with the data is said in full, names and numbers of it, in a log that others read",
    ),
    _checked(
        name="check-repeats-an-error",
        file=f"{_HERE}/check.py",
        old="if not data:\n            words, _, remedy = str(error)",
        new="if True:\n            words, _, remedy = str(error)",
        why="the text of an error quotes the data, and a check is sent to whoever helps",
    ),
    _checked(
        name="check-counts-rows",
        file=f"{_HERE}/check_site.py",
        old='raise Wrong(f"it has another number of {what} than the {agreed} agreed on", _AS_AGREED)',
        new='raise Wrong(f"it has {found} {what} and {agreed} were agreed on", _AS_AGREED)',
        why="how many rows a site really has is not for others",
    ),
]
