"""Files that replace others: the old one or the new one is there at any moment, and nothing beside it."""

import os

import numpy as np
import pytest

from hushpoint import _files
from hushpoint.engine import State


def state(steps: int) -> State:
    point = np.arange(3.0)
    return State(point, point, np.zeros((2, 3)), np.zeros(2, dtype=np.int64), "plan", steps=steps)


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize(
    "write",
    [
        lambda path, round_: _files.write_text(path, f"{round_}", force=True),
        lambda path, round_: _files.write_json(path, {"round": round_}),
        lambda path, round_: _files.write_bytes(path, bytes([round_])),
        lambda path, round_: _files.save_arrays(path, {"round": np.array(round_)}),
        lambda path, round_: state(round_).save(path),
    ],
    ids=["text", "json", "bytes", "arrays", "state"],
)
def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch, write, call):
    # Catches: writing over the old file, moving a file that is not on the disk yet, a draft left behind.
    path = tmp_path / "file"
    write(path, 1)
    before, order = path.read_bytes(), []

    def failing(*args):
        order.append(call)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing)
        with pytest.raises((OSError, ValueError), match="No space"):
            write(path, 2)
    assert order == [call]
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    write(path, 2)
    assert path.read_bytes() != before
