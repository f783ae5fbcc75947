"""A federation under all weathers, for long: python benchmarks/soak.py --sites 20 --rounds 200 --minutes 20 --seed 1

Everything is deployed on loopback, each site a process of its own. While rounds are done, sites are killed at random,
now and then the server's process and the SuperLink; some sites are behind a slow link (a proxy on loopback) that is
cut at random; the clocks of some are wrong, as far as Flower allows it, and at times further. The last rounds are calm.
Then it prints a table and checks: the optimum reached, every message in a ledger and no line more, memory flat.

Noise is from the operating system and so little that a wrong model would show. Wrong clocks need libfaketime
(``apt install libfaketime``; or --faketime); without it there are none. Needs Flower: pip install
'hushpoint[federated]'.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "federated"))

from chaos import (
    Chaos,
    check_all_are_back,
    check_blocks,
    check_counts,
    messages_that_left,
    optimum,
    plant,
    secrets_of,
    traces,
    whole,
)
from deployment import federation, model_of
from links import SlowLink
from sites import megabytes

from hushpoint.federated.disk import read_lines
from hushpoint.federated.folder import Site
from hushpoint.federated.note import read_note

METHOD = 'name = "federated_admm"\ngamma = 2.5\nrelaxation = 0.8\nnoise_std = 1e-9\ntolerance = 1e-9'
PACE = {"quorum": 0.5, "round_timeout": 8, "resend_after": 2, "start_timeout": 30, "retries": 100}
CALM = 30  # rounds at the end in which nothing happens, so that the optimum is reached
APART = 12  # rounds from one death of the server or the SuperLink to the next: after each all have to come back
STORMY = 0.75  # of the time at most
QUARTERS = (25, 50, 75, 100)
GROWTH, SLACK = 1.1, 5.0  # memory is flat if the second half of the rounds adds no tenth, but for some megabytes
FAKETIME = "/usr/lib/*/faketime/libfaketimeMT.so.1"
ALLOWED, TOO_FAR = (-240, -60, 3), (-1800, 900)  # seconds by which a clock is wrong; Flower allows 300 behind, 5 ahead


@dataclass
class Weather:
    """What happens to a deployment, at random, each thing a method; the first site is spared, to see its memory."""

    there: Chaos
    sites: int
    chance: random.Random
    faketime: Path | None
    pause: float  # seconds, from one thing to the next
    links: dict[int, SlowLink] = field(default_factory=dict)
    clocks: dict[int, int] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)
    apart: int = 0  # the round before which server and SuperLink are left alone
    numbers: list[int] = field(default_factory=list)  # of the processes of sites

    def settle(self, port: int) -> None:
        """Put every fourth site behind a slow link, and set the clocks of as many others wrong."""
        for number in range(1, self.sites, 4):
            self.links[number] = SlowLink(port, self.chance.uniform(0.05, 0.4))
            settings = self.there.place(number) / "site.toml"
            settings.write_text(settings.read_text().replace(f":{port}", f":{self.links[number].port}"))
        if self.faketime is not None:
            self.clocks = {number: self.chance.choice(ALLOWED) for number in range(2, self.sites, 4)}

    def start(self, number: int) -> None:
        """Start a site, with the clock that it has."""
        wrong = self.clocks.get(number)
        settings = {} if wrong is None else {
            "LD_PRELOAD": str(self.faketime), "FAKETIME": f"{wrong:+d}s", "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }  # fmt: skip
        self.there.site(number, **settings)
        self.numbers.append(self.there.processes[f"site{number:02d}"].pid)

    def tidy(self) -> None:
        """End the links, and take away what libfaketime leaves where its process is killed."""
        for link in self.links.values():
            link.close()
        for number in self.numbers:
            for name in (f"faketime_shm_{number}", f"sem.faketime_sem_{number}"):
                Path("/dev/shm", name).unlink(missing_ok=True)

    def strike(self, gently: bool) -> None:
        """Something happens, and is mended at once; ``gently`` it happens to sites alone."""
        names = ["kill_site"] * 7 + ["cut_link"] * 3 + ["set_clock"] * 3
        if not gently and self.there.rounds >= self.apart:
            names += ["kill_server"] * 2 + ["kill_superlink"]
        name = self.chance.choice(names)
        getattr(self, name)()

    def mend(self) -> None:
        """Start again whoever is dead or too far in another time."""
        for number in range(self.sites):
            if self.clocks.get(number) in TOO_FAR or self.there.processes[f"site{number:02d}"].poll() is not None:
                self._kill(number)
                self.clocks.pop(number, None)
                self.start(number)

    def _kill(self, number: int) -> None:
        self.there.kill_site(number)

    def kill_site(self) -> None:
        number = self.chance.randrange(1, self.sites)
        self._kill(number)
        self.done["sites killed"] += 1
        self.start(number)

    def cut_link(self) -> None:
        self.chance.choice(list(self.links.values())).cut()
        self.done["links cut"] += 1

    def set_clock(self) -> None:
        """A site is started again with another clock, which may be too far off for it to be taken."""
        if not self.clocks:
            return
        number = self.chance.choice(list(self.clocks))
        self._kill(number)
        self.clocks[number] = self.chance.choice([*ALLOWED, *TOO_FAR])
        self.done["sites killed, and started with another clock"] += 1
        self.start(number)

    def kill_server(self) -> None:
        self.apart = self.there.rounds + APART
        with suppress(ProcessLookupError):
            self.there.kill_server()
            self.done["server's process killed"] += 1

    def kill_superlink(self) -> None:
        self.apart = self.there.rounds + APART
        self.there.kill_superlink()
        self.done["SuperLink killed"] += 1
        self.there.superlink()


@dataclass
class Gauge:
    """The memory of the processes, in megabytes, each time that another quarter of the rounds is done."""

    there: Chaos
    rounds: int
    last: dict[str, float] = field(default_factory=dict)
    at: dict[int, dict[str, float]] = field(default_factory=dict)

    def look(self) -> None:
        """Look at all that are there."""
        for name, number in self._numbers().items():
            with suppress(OSError, ValueError, IndexError):  # it ended just now
                self.last[name] = megabytes(number)
        for quarter in QUARTERS:
            if self.there.rounds >= self.rounds * quarter / 100 and quarter not in self.at and len(self.last) == 3:
                self.at[quarter] = dict(self.last)

    def _numbers(self) -> dict[str, int]:
        run = self.there.folder / "run"
        notes = [read_note(run, path.name.split(".")[1]) for path in run.glob("note.*.json")]
        known = {name: self.there.processes[name].pid for name in ("superlink", "site00")}
        return {
            **known,
            **dict([("server", note.process) for note in notes if note is not None and note.is_alive][-1:]),
        }

    def check(self) -> None:
        """Nothing grows in the second half."""
        for name, before in self.at[50].items():
            after = self.at[100][name]
            assert after <= GROWTH * before + SLACK, f"{name}: {before:.0f} MB at half, {after:.0f} MB at the end"


def weather(there: Chaos, storm: Weather, gauge: Gauge, rounds: int, until: float) -> int:
    """Run to the end through a storm and a calm; how many rounds were stormy."""
    storm_until, calm = time.monotonic() + STORMY * (until - time.monotonic()), min(CALM, rounds // 2)
    stormy, strikes_at, last = -1, 0.0, 0.0
    there.superlink()
    for number in range(storm.sites):
        storm.start(number)
    for number in range(storm.sites):
        there.wait_for(f"site{number:02d}", "joined")
    print(f"{storm.sites} sites joined", flush=True)
    there.run()
    while time.monotonic() < until:
        time.sleep(0.5)
        gauge.look()
        code = there.processes["run"].poll()
        if code == 0:
            return stormy
        if code is not None:
            storm.done[f"runs that ended with code {code}, and were started again"] += 1
            there.run()
        if stormy < 0 and (there.rounds >= rounds - calm or time.monotonic() > storm_until):
            stormy = there.rounds
            print(f"calm from round {stormy} on", flush=True)
            storm.mend()
        elif stormy < 0 and there.rounds and time.monotonic() > strikes_at:
            storm.strike(gently=there.rounds > rounds / 2)
            strikes_at = time.monotonic() + storm.pause * storm.chance.uniform(0.5, 1.5)
        if time.monotonic() > last + 30:
            last = time.monotonic()
            print(f"round {there.rounds}: {dict(storm.done)}", flush=True)
    raise SystemExit(f"FAILED: {there.rounds} of {rounds} rounds were done in time\n{there.log('run')[-3000:]}")


def checked(checks: dict[str, Callable[[], object]]) -> bool:
    """Print what holds and what does not; whether all does."""
    good = True
    for name, check in checks.items():
        try:
            check()
            print(f"ok      {name}")
        except AssertionError as error:
            good = False
            print(f"FAILED  {name}: {error}")
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=20.0, help="an end to all of it")
    parser.add_argument("--pause", type=float, default=12.0, help="seconds from one thing that happens to the next")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faketime", type=Path, help=f"libfaketime; default: {FAKETIME}")
    parser.add_argument("--folder", type=Path, help="where to work, and leave all logs; default: a temporary folder")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    faketime = options.faketime or next(iter(sorted(Path("/").glob(FAKETIME[1:]))), None)
    chance = random.Random(options.seed)
    sizes = [chance.randrange(50, 90) for _ in range(options.sites)]
    with tempfile.TemporaryDirectory() as place:
        folder = federation(
            (options.folder or Path(place)) / "federation",
            sizes, f"{METHOD}\nrounds = {options.rounds}", testing="", **PACE,
        )  # fmt: skip
        plant(folder, 0)
        began = time.monotonic()
        with ExitStack() as ends:
            there = Chaos(folder, seconds=60 * options.minutes)
            storm = Weather(there, options.sites, chance, faketime, options.pause)
            ends.callback(storm.tidy)  # after the processes have ended
            ends.enter_context(there)
            storm.settle(int(Site(folder / "sites" / "00").address.rpartition(":")[2]))
            gauge = Gauge(there, options.rounds)
            stormy = weather(there, storm, gauge, options.rounds, there.until)
        seconds = time.monotonic() - began
        log = read_lines(folder / "run" / "rounds.jsonl")
        report(options, log, seconds, stormy, storm, gauge)
        if not checked(what_must_hold(folder, there.kills, log, gauge)):
            raise SystemExit("FAILED")


def report(
    options: argparse.Namespace, log: list[dict], seconds: float, stormy: int, storm: Weather, gauge: Gauge
) -> None:
    """Print what was done and seen."""
    each = np.array([line["seconds"] for line in log])
    answered = np.array([len(line["answered"]) for line in log])
    said = Counter(word for line in log for word in (*line["refused"].values(), *line["declined"].values()))
    slow = ", ".join(f"{2e3 * link.seconds:.0f}" for link in storm.links.values())
    none = "no libfaketime" if storm.faketime is None else "none in the calm"
    lines: dict[str, object] = {
        "sites, seed": f"{options.sites}, {options.seed}",
        "rounds done, of them in the storm": f"{len(log)}, {stormy}",
        "minutes": f"{seconds / 60:.1f}",
        **dict(sorted(storm.done.items())),
        "slow links, ms to the server and back": slow,
        "clocks wrong by, s": ", ".join(f"{wrong:+d}" for wrong in storm.clocks.values()) or none,
        "seconds a round: median, worst": f"{np.median(each):.2f}, {each.max():.2f}",
        "sites that answered a round: median, fewest": f"{np.median(answered):.0f}, {answered.min()}",
        "reasons of those that did not": dict(said),
    }
    for name in ("superlink", "server", "site00"):
        row = " ".join(f"{gauge.at[quarter][name]:.0f}" for quarter in QUARTERS if quarter in gauge.at)
        lines[f"MB of {name} at 25, 50, 75, 100% of the rounds"] = row
    for name, value in lines.items():
        print(f"{name:<55} {value}")


def what_must_hold(folder: Path, kills: Counter[int], log: list[dict], gauge: Gauge) -> dict[str, Callable[[], object]]:
    """By what it says, what is checked."""
    problem = whole(folder)

    def reached() -> None:
        best = problem.objective(optimum(problem))
        above = problem.objective(model_of(folder / "run")) - best
        apart = np.abs(model_of(folder / "run") - optimum(problem)).max()
        print(f"objective {best:.6f}, the model's is {above:.1e} above it; the models are {apart:.1e} apart")
        assert abs(above) <= 1e-6

    def equal() -> None:
        apart = Counter[str]()
        for number in range(len(list((folder / "sites").iterdir()))):
            place = folder / "sites" / f"{number:02d}"
            ledger, left = len(Site(place).store().ledger().entries), messages_that_left(place)
            taken = sum(number in line["answered"] for line in log)
            assert ledger >= taken, f"site {number}: {taken} messages were taken, {ledger} are in its ledger"
            assert number in kills or ledger == left, f"site {number}: {left} messages left, {ledger} in its ledger"
            apart["lines of ledgers"] += ledger
            apart["messages that left"] += left
            apart["taken by the server"] += taken
        print(", ".join(f"{name}: {count}" for name, count in apart.items()))

    def untold() -> None:
        found = traces(folder, secrets_of(folder / "sites" / "00"))
        assert found == {"sites/00/data.npz"}, found

    return {
        "the objective is within 1e-6 of the optimum": reached,
        "every message is in its ledger; a line more only where a kill came between": lambda: check_counts(
            folder, kills
        ),
        "no ledger has less than the server took; those never killed have what left": equal,
        "all are back": lambda: check_all_are_back(folder),
        "the blocks at the sites are those at the server": lambda: check_blocks(folder),
        "values planted in the data are in no other file": untold,
        "memory is flat": gauge.check,
    }


if __name__ == "__main__":
    main()
