"""A deployed federation to kill things in, and what must hold afterwards."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
from deployment import LIMIT, Deployment

import hushpoint as hp
from hushpoint.federated.disk import read_lines
from hushpoint.federated.folder import Federation, Site
from hushpoint.federated.launch import _stacked

MISBEHAVING = Path(__file__).with_name("misbehaving.py")
FEATURE, LABEL = 12345.678912, -6543.8675309  # planted in the data of a site, to be found nowhere else


class Chaos(Deployment):
    """A deployment whose processes are killed; it counts how often each site was."""

    def __init__(self, folder, **limit):
        super().__init__(folder, **limit)
        self.kills = Counter()
        self._begun = {}  # processes that those of the test have started, and when: Flower's, in groups of their own

    def __exit__(self, *error):
        try:
            super().__exit__(*error)
        finally:
            for process in self.processes.values():  # where ending one of them failed
                process.kill()
            for number, since in self._begun.items():
                if _since(number) == since:
                    os.kill(number, signal.SIGKILL)

    def stop(self, name, kill=False):
        """End a process, and keep in mind what it has started."""
        self._begun.update(_descendants(self.processes[name].pid))
        super().stop(name, kill)

    def place(self, number):
        """The folder of a site."""
        return self.folder / "sites" / f"{number:02d}"

    def misbehaving(self, number, *deeds):
        """Start a site that does these deeds, one a round, and is honest after them."""
        name = f"site{number:02d}"
        arguments = [self.place(number), self.folder / f"{name}.tap", ",".join(deeds), "--patience", LIMIT]
        self.start(name, *arguments, program=(sys.executable, str(MISBEHAVING)))

    def dies(self, number):
        """Wait until a site has killed itself."""
        assert self.wait(f"site{number:02d}") == -signal.SIGKILL, self.log(f"site{number:02d}")
        self.kills[number] += 1

    def kill_site(self, number):
        """Kill a site, if it is there."""
        self.stop(f"site{number:02d}", kill=True)
        self.kills[number] += 1

    def kill_superlink(self):
        """Kill the SuperLink alone; what it had started has to notice."""
        self.stop("superlink", kill=True)

    def kill_server(self):
        """Kill the process that Flower runs the server in, as soon as there is one."""
        notes = (self.folder / "run").glob
        self.wait_until(lambda: any(notes("note.*.json")), "a server has started", "run")
        os.kill(json.loads(next(notes("note.*.json")).read_text())["process"], signal.SIGKILL)

    @property
    def records(self):
        """The rounds that are done."""
        return read_lines(self.folder / "run" / "rounds.jsonl")

    @property
    def rounds(self):
        """How many rounds are done."""
        return len(self.records)

    def wait_for_round(self, is_it=lambda record: True):
        """Wait until a round is done that the caller wants to see."""
        self.wait_until(lambda: any(map(is_it, self.records)), "the round was done", "run")

    def wait_for_a_message(self, number):
        """Wait until a site has answered a round that is not done."""
        sent = self.place(number) / "messages.jsonl"
        self.wait_until(lambda: any(line["round"] > self.rounds for line in read_lines(sent)), "it moved", "run")


def _since(number):
    """When a process began; None where there is none."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None


def _descendants(number):
    """The processes that one has started, they in turn, and so on, and when each began; only Linux tells."""
    parents = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[int(place.name)] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
    found = {number}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return {child: _since(child) for child in found - {number}}


# --- what must hold


def plant(folder, number):
    """Put the feature and the label that are to be found nowhere else into the data of a site."""
    path = folder / "sites" / f"{number:02d}" / "data.npz"
    with np.load(path) as found:
        X, y = found["X"].copy(), found["y"].copy()
    X[3, 1:3], y[3] = (FEATURE, FEATURE / 2), LABEL
    np.savez(path, X=X, y=y)


def messages_that_left(place):
    """By the log of the site itself: those sent for the first time, and those whose first time a kill kept silent."""
    firsts = Counter()
    for line in read_lines(place / "messages.jsonl"):
        firsts[line["round"]] += not line["again"]
    return sum(max(count, 1) for count in firsts.values())


def check_counts(folder, kills):
    """No message that left is uncounted, by its site or by the server; nor is one counted that was never made."""
    accounted = json.loads((folder / "run" / "run.json").read_text())["participations"]
    last = read_lines(folder / "run" / "rounds.jsonl")[-1]
    for number, by_server in enumerate(accounted):
        place = folder / "sites" / f"{number:02d}"
        ledger, left = len(Site(place).store().ledger().entries), messages_that_left(place)
        assert left <= ledger <= left + kills[number], f"site {number}: {left} messages left, {ledger} in its ledger"
        assert by_server >= ledger, f"site {number}: {ledger} in its ledger, {by_server} accounted by the server"
        if number in last["answered"] or last["declined"].get(str(number)) == "cap":
            assert by_server == ledger, f"site {number}: {ledger} in its ledger, {by_server} accounted by the server"


def whole(folder):
    """The problem of all rows together."""
    federation = Federation(folder)
    rows = _stacked([Site(place).rows() for place in sorted((folder / "sites").iterdir())])
    return hp.Problem.from_facts(federation.plan().facts).with_rows(rows)


def optimum(problem):
    """The minimiser of its objective."""
    return hp.methods.private_admm(problem, 1000, 3.0, noise_std=0.0, tolerance=1e-12).run().model


def check_all_are_back(folder):
    """Whatever happened to a site, in the end it takes part again, if it may."""
    last = read_lines(folder / "run" / "rounds.jsonl")[-1]
    spent = {int(site) for site, reason in last["declined"].items() if reason == "cap"}  # a message of it was lost
    assert set(last["asked"]) == {*last["answered"], *spent}, last


def check_blocks(folder):
    """The server's sum is that of its copies, and a site that answered last has the block that the server has."""
    plan = Federation(folder).plan()
    last = read_lines(folder / "run" / "rounds.jsonl")[-1]["answered"]
    with np.load(folder / "run" / "server.npz") as server:
        weights = plan.facts.item_weights
        np.testing.assert_allclose(server["shared"], weights @ server["blocks"], rtol=0, atol=1e-12)
        for number in last:
            state = Site(folder / "sites" / f"{number:02d}").store().state(str(server["run"]))
            np.testing.assert_array_equal(state.block, server["blocks"][number])


def secrets_of(place):
    """What was planted in the data of a site, in every way that it may be written; also the row that is made of it."""
    rows = Site(place).rows()
    scaled = rows.features[int(np.argmax(rows.targets == LABEL)), 1]
    texts = [
        rb"(?<![0-9.])12345\.6", rb"1\.2345678", rb"123456789",
        rb"(?<![0-9.])6543\.8", rb"6\.5438675", rb"65438675",
        re.escape(repr(float(scaled))[:11].encode()),
    ]  # fmt: skip
    numbers = [np.array(value, dtype=kind).tobytes() for value in (FEATURE, LABEL, scaled) for kind in ("<f8", ">f8")]
    return re.compile(b"|".join([*texts, *map(re.escape, numbers)]), re.DOTALL)


def traces(folder, secrets):
    """Files in which something is found that was planted, by their names."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)) for path in files if secrets.search(path.read_bytes())}
