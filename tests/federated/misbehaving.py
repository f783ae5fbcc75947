"""A site that misbehaves, as a process of its own: ``python misbehaving.py SITE_DIR TAP DEED,DEED,... [OPTIONS]``

It does one deed in each round that it moves in, and is honest after the last. Whatever it answers goes to the file TAP
as well.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

SENDS = {
    "nan": lambda message: np.full_like(message, np.nan),
    "short": lambda message: message[:-1],
    "wide": lambda message: np.concatenate([message, np.zeros(1000)]),
    "long": lambda message: 1e9 * (message + 1.0),
}
DIES = {  # where in the writing of a move it kills itself: after the method of its store with this name
    "dies-saved": "save",
    "dies-recorded": "record",
    "dies-noted": "note",
}
DEEDS = ("honest", *SENDS, "forged", "raises", *DIES, "dies-sending")


def round_of(arguments):
    """The round that a method of a store is called for: with a state, a ledger and its entry, or a run and a round."""
    first, *rest = arguments
    return first.round if hasattr(first, "round") else getattr(rest[0], "round", rest[0])


def misbehave(folder: Path, tap: Path, deeds: list[str]) -> None:
    """Change the code of the site in this process."""
    from flwr.proto.fleet_pb2 import PushMessagesRequest

    from hushpoint.federated import SiteStore, client, letters, node

    rounds: list[int] = []
    sending: list[str] = []

    def deed(round: int) -> str:
        if round not in rounds:
            rounds.append(round)
        return dict(enumerate(deeds)).get(rounds.index(round), "honest")

    encode, move, answer = client.encode, client.Client._move, client.Client.answer

    def encoded(record, key=None):
        if getattr(record, "status", "") != "moved":
            return encode(record, key)
        what = deed(record.round)
        sending[:] = [what]
        if what in SENDS:
            record = replace(record, message=SENDS[what](record.message))
        data = encode(record, key)
        if what == "forged":  # on the way, by someone without the key
            middle = data.index(record.message.tobytes()) + 1
            data = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        return data

    def moved(self, asked, base):
        if deed(asked.round) == "raises":
            words = f"cannot go on with {np.load(folder / 'data.npz')['X'].tolist()}"
            warnings.warn(words, stacklevel=1)
            raise ValueError(words)
        return move(self, asked, base)

    def answered(self, request):
        reply = answer(self, request)
        with tap.open("ab") as file:
            file.write(reply)
        return reply

    def deadly(name, method):
        def written(self, *arguments):
            result = method(self, *arguments)
            if DIES.get(deed(round_of(arguments))) == name:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return written

    give = node.give

    def given(link, place, reply):
        if sending == ["dies-sending"]:  # announced to the SuperLink, and not yet there
            heads, trees, _ = letters._deflated([reply])
            told = PushMessagesRequest(node=place, messages_list=heads, message_object_trees=trees)
            link.PushMessages(told)
            os.kill(os.getpid(), signal.SIGKILL)
        give(link, place, reply)

    node.give = given
    client.encode, client.Client._move, client.Client.answer = encoded, moved, answered
    for name in DIES.values():
        setattr(SiteStore, name, deadly(name, getattr(SiteStore, name)))


if __name__ == "__main__":
    place, tapped, todo, options = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3].split(","), sys.argv[4:]
    assert set(todo) <= set(DEEDS), todo
    misbehave(place, tapped, todo)
    from hushpoint.cli import app

    app(["federated", "site", str(place), *options])
