"""A federation in which everything is killed at random: python benchmarks/chaos.py --sites 6 --minutes 5 --seed 1

Sites, the server and the SuperLink are killed, states damaged, nonsense sent, at random times; then all are left in
peace until the run ends. What must hold is checked as in tests/federated/test_chaos.py. Needs Flower: pip install
'hushpoint[federated]'.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "federated"))

CALM = 30  # rounds at the end in which nothing happens, so that the optimum is reached
METHOD = 'name = "federated_admm"\ngamma = 2.5\nrelaxation = 0.8\nnoise_std = 1e-9\ntolerance = 1e-9'
PACE = {"quorum": 0.5, "round_timeout": 8, "resend_after": 2, "start_timeout": 60, "retries": 20}


class Storm:
    """What happens to a deployment, at random, each thing a method."""

    def __init__(self, there, sites: int, chance: random.Random) -> None:
        self.there, self.sites, self.chance, self.done = there, sites, chance, Counter()

    def strike(self) -> None:
        """Something happens, and is mended at once."""
        names = ["kill_site"] * 6 + ["damage_state"] * 2 + ["lie"] * 4 + ["kill_server", "kill_superlink"]
        name = self.chance.choice(names)
        getattr(self, name)()
        self.done[name] += 1
        if self.there.processes["run"].poll() is not None:
            self.there.run()

    def mend(self) -> None:
        """Start again, honest, whoever is dead or lies."""
        for number in range(self.sites):
            if self._is_there(number):
                self.there.stop(f"site{number:02d}")
            self.there.site(number)

    def _is_there(self, number: int) -> bool:
        return self.there.processes[f"site{number:02d}"].poll() is None

    def _killed(self) -> int:
        number = self.chance.randrange(self.sites)
        if self._is_there(number):
            self.there.kill_site(number)
        else:
            self.there.kills[number] += 1  # it killed itself
        return number

    def kill_site(self) -> None:
        self.there.site(self._killed())

    def damage_state(self) -> None:
        number = self._killed()
        state = self.there.place(number) / "state.npz"
        if state.exists():
            state.write_bytes(state.read_bytes()[: self.chance.randrange(200)])
        self.there.site(number)

    def lie(self) -> None:
        from misbehaving import DEEDS

        self.there.misbehaving(self._killed(), *self.chance.sample(DEEDS, 3))

    def kill_server(self) -> None:
        self.there.kill_server()
        self.there.wait("run")

    def kill_superlink(self) -> None:
        self.there.kill_superlink()
        self.there.superlink()
        self.there.wait("run")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, default=6)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long things are killed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where to work, and leave all logs; default: a temporary folder")
    options = parser.parse_args()
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

    from hushpoint.federated.disk import read_lines

    chance = random.Random(options.seed)
    sizes = [chance.randrange(50, 90) for _ in range(options.sites)]
    rounds = CALM + round(10 * options.minutes)
    with tempfile.TemporaryDirectory() as place:
        folder = federation(
            (options.folder or Path(place)) / "federation", sizes, f"{METHOD}\nrounds = {rounds}", testing="", **PACE
        )
        plant(folder, 0)
        with Chaos(folder, seconds=60 * options.minutes + 30 * rounds + 600) as there:
            storm, began = Storm(there, options.sites, chance), time.monotonic()
            there.superlink()
            for number in range(options.sites):
                there.site(number)
            there.run()
            while time.monotonic() - began < 60 * options.minutes and there.rounds < rounds - CALM:
                time.sleep(chance.uniform(1.0, 10.0))
                storm.strike()
            stormy = there.rounds
            storm.mend()
            code = there.wait("run")
            assert code == 0, there.log("run")
            seconds = time.monotonic() - began
        check_all_are_back(folder)
        check_counts(folder, there.kills)
        check_blocks(folder)
        found = traces(folder, secrets_of(folder / "sites" / "00"))
        error = float(np.abs(model_of(folder / "run") - optimum(whole(folder))).max())
        log = read_lines(folder / "run" / "rounds.jsonl")
        left = [messages_that_left(folder / "sites" / f"{number:02d}") for number in range(options.sites)]
        accounted = json.loads((folder / "run" / "run.json").read_text())["participations"]
    said = Counter(word for line in log for word in (*line["refused"].values(), *line["declined"].values()))
    print(f"{options.sites} sites, seed {options.seed}: {len(log)} rounds in {seconds:.0f} s, {stormy} of them stormy.")
    print(f"Done: {', '.join(f'{name} {count}' for name, count in sorted(storm.done.items()))}.")
    print(f"Sites were killed {there.kills.total()} times: {dict(sorted(there.kills.items()))}.")
    print(f"Messages that were not taken: {dict(said)}.")
    print(f"Messages that left, by site: {left}; participations accounted by the server: {accounted}.")
    print(f"Model: {error:.1e} from the optimum. Planted values found in: {', '.join(sorted(found))}.")
    if error > 1e-6 or found != {"sites/00/data.npz"}:
        raise SystemExit("FAILED")


if __name__ == "__main__":
    main()
