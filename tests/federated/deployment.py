"""Federations on disk and deployed on loopback, for the tests: every process is one that the test started and ends."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from hushpoint.cli import app

HUSHPOINT = str(Path(sys.executable).with_name("hushpoint"))
FEATURES = 4


def command(*arguments, code=0):
    """Run a command in this process; what it printed."""
    result = CliRunner().invoke(app, ["federated", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output


def free_port():
    """A port that nobody listens on."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return door.getsockname()[1]


def site_data(rows, seed=0):
    """Rows of each site, and targets that a linear model explains but for some noise."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=FEATURES)
    tables = [rng.normal(size=(count, FEATURES)) / 2 for count in rows]
    return [(X, X @ truth + 0.3 + 0.1 * rng.normal(size=len(X))) for X in tables]


def federation(
    folder,
    rows=(8, 11, 9),
    method='name = "federated_admm"\nrounds = 4\ngamma = 2.0\nnoise_std = 0.05',
    model="",
    testing="[testing]\nseed = 7",
    with_keys=True,
    **pace,
):
    """A federation with data at every site and keys for all, made with the commands that people use."""
    address = f"127.0.0.1:{free_port()}"
    options = [option for count in rows for option in ("--rows", count)]
    command("init", folder, *options, "--features", FEATURES, "--address", address)
    model = model or 'loss = "squared"\nregularizer = {l2 = 0.01}\nrow_norm = 2.0\nclip = 2.0\nweights = "rows"'
    (folder / "federation.toml").write_text(
        f"[model]\nfit_intercept = true\n{model}\n[method]\n{method}\n[sites]\nrows = {list(rows)}\n{testing}\n"
    )
    settings = {"quorum": 1.0, "round_timeout": 60, "resend_after": 10, "start_timeout": 90, "retries": 2, **pace}
    lines = [f'address = "{address}"', *(f"{name} = {value}" for name, value in settings.items())]
    (folder / "server.toml").write_text("\n".join([*lines, 'validation = "public.npz"']) + "\n")
    data = site_data(rows)
    for site, (X, y) in enumerate(data):
        place = folder / "sites" / f"{site:02d}"
        np.savez(place / "data.npz", X=X, y=y)
        text = (place / "site.toml").read_text().replace("data.csv", "data.npz")
        (place / "site.toml").write_text(f"{text}\n{testing}\n")
    X, y = (np.concatenate(parts) for parts in zip(*data, strict=True))
    np.savez(folder / "public.npz", X=X, y=y)
    command("plan", folder)
    if with_keys:
        command("keys", folder)
    return folder


def model_of(place):
    """The model that a run wrote."""
    return np.array(json.loads((place / "model.json").read_text())["model"])


class Deployment:
    """A SuperLink and its sites on loopback, each a process of its own. Use as a context: it ends what it started."""

    def __init__(self, folder):
        self.folder, self.processes = Path(folder), {}

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for name in list(self.processes):
            self.stop(name)

    def log(self, name):
        """What a process said."""
        place = self.folder / f"{name}.log"
        return place.read_text(errors="replace") if place.exists() else ""

    def start(self, name, *arguments, program=(HUSHPOINT, "federated")):
        """Start a command under a name."""
        settings = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*program, *map(str, arguments)],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=settings,
                start_new_session=True,
            )
        return self.processes[name]

    def superlink(self):
        """Start the SuperLink, and wait until sites may join."""
        self.start("superlink", "superlink", self.folder)
        self.wait_for("superlink", "sites may join")

    def site(self, number, *options, wait=True):
        """Start a site."""
        name = f"site{number:02d}"
        before = self.log(name).count("joined")
        self.start(name, "site", self.folder / "sites" / f"{number:02d}", *options)
        if wait:
            self.wait_for(name, "joined", before + 1)

    def wait_for(self, name, words, times=1, seconds=90.0):
        """Wait until a process has said something so often."""
        until = time.monotonic() + seconds
        while self.log(name).count(words) < times:
            assert self.processes[name].poll() is None, f"{name} ended:\n{self.log(name)}"
            assert time.monotonic() < until, f"{name} has not said {words!r} in {seconds} s:\n{self.log(name)}"
            time.sleep(0.1)

    def wait(self, name, seconds):
        """Wait until a process ends; its code."""
        return self.processes[name].wait(timeout=seconds)

    def stop(self, name, kill=False):
        """End a process; with ``kill`` so that it cannot tidy up."""
        process = self.processes.pop(name)
        if process.poll() is None:
            process.kill() if kill else process.terminate()
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=15)
