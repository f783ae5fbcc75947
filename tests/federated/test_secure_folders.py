"""The folder of a federation with secure sums: what can be agreed on, and what a simulation goes on with."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from deployment import command
from test_secure_commands import SCHEMA, failing, place_of

ROWS = (120, 100)


def learned(tmp_path):
    """A schema in which the range of a column is to be learned."""
    path = tmp_path / "learn.toml"
    path.write_text(SCHEMA.replace("high = 100\n", "high = 100\nlearn = true\n"))
    return path


def made(tmp_path, *options, schema=None):
    """A folder with tables at its sites."""
    if schema is None:
        schema = tmp_path / "s.toml"
        schema.write_text(SCHEMA)
    place = tmp_path / "hospitals"
    sizes = [option for count in ROWS for option in ("--rows", count)]
    command("init", place, *sizes, "--schema", schema, *options)
    rng = np.random.default_rng(0)
    for site, rows in enumerate(ROWS):
        age, ward = rng.integers(0, 101, rows), rng.choice(["a", "b"], rows)
        sick = np.where(age > 50, "yes", "no")
        lines = [",".join(map(str, row)) for row in zip(age, ward, sick, strict=True)]
        (place_of(place, site) / "data.csv").write_text("age,ward,sick\n" + "\n".join(lines) + "\n")
    edit(place, "rounds = 20", "rounds = 6")
    return place


def edit(place, old, new, name="federation.toml"):
    text = (place / name).read_text()
    assert old in text
    (place / name).write_text(text.replace(old, new))


def test_ranges_that_are_to_be_learned_are_no_obstacle_to_begin(tmp_path):
    # catches: a folder that cannot be made for the schemas that only federations with secure sums can train
    place = made(tmp_path, schema=learned(tmp_path))
    command("simulate", place, "--in-process")
    assert json.loads((place / "simulation" / "run" / "run.json").read_text())["status"] == "finished"


def test_a_folder_that_cannot_be_made_is_not_half_made(tmp_path):
    sizes = ("--rows", 10, "--rows", 10)
    assert "learned" in failing("init", tmp_path / "a", *sizes, "--schema", learned(tmp_path), "--local-noise")
    assert "one site only" in failing("init", tmp_path / "b", "--rows", 10, "--features", 3)
    assert not (tmp_path / "a").exists()
    assert not (tmp_path / "b").exists()


def test_a_simulation_of_another_agreement_is_not_taken_for_this_one(tmp_path):
    # catches: yesterday's model, told as today's
    place = made(tmp_path)
    command("simulate", place, "--in-process")
    before = (place / "simulation" / "run" / "run.json").read_bytes()
    assert "finished" in command("simulate", place, "--in-process")  # the same agreement: it is there
    edit(place, 'name = "logistic"', 'name = "svc"')
    assert "simulation of another agreement. Remove it, or write elsewhere: --out" in failing(
        "simulate", place, "--in-process"
    )
    assert (place / "simulation" / "run" / "run.json").read_bytes() == before
    command("simulate", place, "--in-process", "--out", tmp_path / "other")
    assert json.loads((tmp_path / "other" / "run" / "run.json").read_text())["name"] == "svc"


def test_what_was_wrong_with_a_simulation_can_be_put_right(tmp_path):
    # catches: a copy that stays as it was when the first try failed
    place = made(tmp_path)
    data = place_of(place, 1) / "data.csv"
    kept = data.read_bytes()
    data.unlink()
    assert str(data) in failing("simulate", place, "--in-process")  # the file that people know
    data.write_bytes(kept.replace(b"yes", b"perhaps", 1))
    assert "site 1: " in failing("simulate", place, "--in-process")
    data.write_bytes(kept)
    assert "finished" in command("simulate", place, "--in-process")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('name = "logistic"', 'name = "linear"', r"wants one of 'logistic', 'svc'"),
        ("rows = [120, 100]  # the public", "# the public", "users = "),
        ('unit = "record"', 'unit = "user"', "Name the column that says whose row each is"),
        ("delta = 1e-05", "delta = 0.1", "and there are 220 records"),
        ('name = "logistic"', 'loss = "logistic"\nclip = 1.0\nrow_norm = 2.0', "rounds is in"),
    ],
)
def test_what_cannot_be_agreed_on_says_what_can(tmp_path, old, new, words):
    import re

    place = made(tmp_path)
    edit(place, old, new)
    assert re.search(words, " ".join(failing("simulate", place, "--in-process").split()))


def test_a_method_names_what_it_takes(tmp_path):
    place = made(tmp_path)
    model = '[model]\nloss = "logistic"\nclip = 1.0\nrow_norm = 2.0\n'
    rest = f'[budget]\nepsilon = 20.0\ndelta = 1e-3\nunit = "site"\n[secure]\n[sites]\nrows = {list(ROWS)}\n'
    (place / "federation.toml").write_text(f'{model}[method]\nname = "dp_fedavg"\nrounds = 2\n{rest}')
    said = " ".join(failing("simulate", place, "--in-process").split())
    assert "dp_fedavg, which takes rounds, local_steps, local_step_size, clip_update" in said
    (place / "federation.toml").write_text(f'{model}[method]\nname = "dp_sgd"\nsteps = 2\nstep_size = 0.1\n{rest}')
    assert "each site counts as one user" in " ".join(command("simulate", place, "--in-process").split())
    shutil.rmtree(place)
