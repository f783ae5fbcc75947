"""Rooms use only rooms below them."""

from graphlib import CycleError, TopologicalSorter

import house
import pytest


def test_no_room_uses_one_that_uses_it():
    # plan -> privacy -> plan, or operators -> kernels -> operators: then neither can be read, or changed, alone
    rooms = house.rooms()
    assert {"plan", "operators", "kernels", "privacy", "problem", "rows", "estimators"} <= rooms.keys()
    assert {"operators", "schedules", "noise"} <= rooms["plan"]  # it finds imports at all
    assert "privacy" in rooms["methods"]
    tuple(TopologicalSorter(rooms).static_order())


def test_a_cycle_is_found_even_where_an_import_stands_in_a_function(tmp_path, monkeypatch):
    monkeypatch.setattr(house, "PACKAGE", tmp_path)
    (tmp_path / "above.py").write_text("from hushpoint.below import x\n")
    (tmp_path / "below.py").write_text("def f():\n    from hushpoint import above\n")
    with pytest.raises(CycleError):
        tuple(TopologicalSorter(house.rooms()).static_order())
    types_only = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from hushpoint import above\n"
    (tmp_path / "below.py").write_text(types_only)
    assert list(TopologicalSorter(house.rooms()).static_order()) == ["below", "above"]


def test_the_picture_is_that_of_the_code():
    assert house.drawn() == house.picture(), "python tests/house.py --update"
