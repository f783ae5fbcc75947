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
from hushpoint.federated.folder import Federation

HUSHPOINT = str(Path(sys.executable).with_name("hushpoint"))
FEATURES = 4
LIMIT = 1200  # seconds for all that a deployment is waited for: only to end a hang, ten times what it needs and more


def ran(*arguments, code=0):
    """Run a command of any kind in this process; what it printed."""
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == code, result.output
    return result.output


def command(*arguments, code=0):
    """Run a command of the federation in this process; what it printed."""
    return ran("federated", *arguments, code=code)


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
    command("init", folder, "--local-noise", *options, "--features", FEATURES, "--address", address)
    model = model or 'loss = "squared"\nregularizer = {l2 = 0.01}\nrow_norm = 2.0\nclip = 2.0\nweights = "rows"'
    (folder / "federation.toml").write_text(
        f"[model]\nfit_intercept = true\n{model}\n[method]\n{method}\n[sites]\nrows = {list(rows)}\n{testing}\n"
    )
    settle(folder, **pace)
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
        command("keys", folder, "--for-sites")
    return folder


def settle(folder, **pace):
    """Say how long the server waits, and for how many, from its next start on: so long that only a hang meets it."""
    address = Federation(folder).address
    settings = {"quorum": 1.0, "round_timeout": 300, "resend_after": 120, "start_timeout": 300, "retries": 100, **pace}
    lines = [f'address = "{address}"', *(f"{name} = {value}" for name, value in settings.items())]
    (folder / "server.toml").write_text("\n".join([*lines, 'validation = "public.npz"']) + "\n")


def model_of(place):
    """The model that a run wrote."""
    model = json.loads((place / "model.json").read_text())
    intercept = np.atleast_1d(model["intercept"])
    return np.concatenate([np.ravel(model["coefficients"]), intercept])


class Deployment:
    """A SuperLink and its sites on loopback, each a process of its own. Use as a context: it ends what it started.

    Whatever is waited for is waited for until it happens, or until so many ``seconds`` have passed for all of it.
    """

    def __init__(self, folder, seconds=LIMIT):
        self.folder, self.processes = Path(folder), {}
        self._before = {}  # how long the log was when a process began that shares it with an earlier one
        self.until = time.monotonic() + seconds

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for name in list(self.processes):
            self.stop(name)

    def log(self, name):
        """What a process said."""
        place = self.folder / f"{name}.log"
        return place.read_text(errors="replace") if place.exists() else ""

    def start(self, name, *arguments, program=(HUSHPOINT, "federated"), **settings):
        """Start a command under a name, with these variables in its environment."""
        settings = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "200", **settings}
        self._before[name] = len(self.log(name))
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
        """Start the SuperLink. Sites may be started at once, since they wait for it; a run may not."""
        self.start("superlink", "superlink", self.folder)

    def site(self, number, *options, **settings):
        """Start a site, with these variables in its environment."""
        place = self.folder / "sites" / f"{number:02d}"
        self.start(f"site{number:02d}", "site", place, "--patience", LIMIT, *options, **settings)

    def run(self):
        """Start the run, or go on with it, as soon as there is a SuperLink."""
        self.wait_for("superlink", "sites may join")
        self.start("run", "run", self.folder)

    def wait_until(self, happened, what, name):
        """Wait until something has happened that a process is to do."""
        while True:
            alive = self.processes[name].poll() is None
            if happened():
                return
            assert alive, f"{name} ended before {what}:\n{self.log(name)}"
            assert time.monotonic() < self.until, f"out of time before {what}:\n{self.log(name)}"
            time.sleep(0.05)

    def wait_for(self, name, words):
        """Wait until a process has said something, since it began."""
        self.wait_until(lambda: words in self.log(name)[self._before[name] :], f"it said {words!r}", name)

    def wait(self, name):
        """Wait until a process ends; its code."""
        return self.processes[name].wait(timeout=max(0.0, self.until - time.monotonic()))

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
