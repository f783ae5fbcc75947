"""Many sites and one server, deployed on loopback: python benchmarks/sites.py --sites 100 --rounds 5

The SuperLink and the server are processes of their own; the nodes of all sites are threads of one more, so that a
hundred fit on a small machine. A trusted server adds the noise. Printed are seconds a round; what the SuperLink and a
site cost while nobody asks anything; and the memory of one site in a process of its own. Needs Flower: pip install
'hushpoint[federated]'.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "federated"))

METHOD = 'name = "anchored_admm"\nrounds = {rounds}\ngamma = 2.0\nnoise_std = 0.05'
TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds(process: int) -> float:
    """What a process has used so far, with those that it has started; only Linux tells."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return (int(fields[11]) + int(fields[12])) / TICKS + sum(processor_seconds(int(child)) for child in children)


def megabytes(process: int) -> float:
    """The memory that a process holds."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def serve(folders: list[Path]) -> None:
    """The nodes of many sites as threads of this process, until it is told to end."""
    from hushpoint.federated.apps import site_answer
    from hushpoint.federated.folder import Site
    from hushpoint.federated.node import SiteNode

    nodes, joined = [], []
    for folder in folders:
        site = Site(folder)

        def tell(words: str, name: str = folder.name) -> None:
            if words == "joined":
                joined.append(name)
            if words != "answered":
                print(name, words, flush=True)

        nodes.append(SiteNode(site.address, folder / "ca.crt", site.own_key(), site_answer(site), folder, tell, 300.0))

    def end(*_: object) -> None:
        for node in nodes:
            node.stop.set()

    signal.signal(signal.SIGTERM, end)
    threads = [threading.Thread(target=node.serve) for node in nodes]
    for thread in threads:
        thread.start()
    while len(joined) < len(nodes):
        time.sleep(0.2)
    print("all joined", flush=True)
    for thread in threads:
        thread.join()


def agreed(folder: Path, sites: int, rounds: int) -> Path:
    """A federation with secure sums whose sites have all accepted."""
    from deployment import FEATURES, command, free_port, site_data

    rows = (40,) * sites
    options = [option for count in rows for option in ("--rows", count)]
    command("init", folder, *options, "--features", FEATURES, "--address", f"127.0.0.1:{free_port()}")
    (folder / "federation.toml").write_text(
        f'[model]\nname = "linear"\nrow_norm = 3.0\ntarget_range = [-4.0, 4.0]\n[budget]\n'
        "epsilon = 20.0\ndelta = 1e-5\n"
        f"[secure]\nrounds = {rounds}\n[sites]\nrows = {list(rows)}\n"
    )
    places = sorted((folder / "sites").iterdir())
    command("keys", folder)
    for place, (X, y) in zip(places, site_data(rows), strict=True):
        np.savez(place / "data.npz", X=X, y=y)
        (place / "site.toml").write_text((place / "site.toml").read_text().replace("data.csv", "data.npz"))
        command("keys", place, "--own")
    command("admit", folder, *(place / "request.json" for place in places))
    fingerprint = json.loads(command("plan", folder, "--json"))["fingerprint"]
    for place in places:
        command("accept", place, "--fingerprint", fingerprint)
    return folder


def idle(there, names: dict[str, int], seconds: float) -> None:
    """Print what processes cost while nothing is asked, by the number of sites in each."""
    before = {name: processor_seconds(there.processes[name].pid) for name in names}
    time.sleep(seconds)
    for name, sites in names.items():
        process = there.processes[name].pid
        share = 100 * (processor_seconds(process) - before[name]) / seconds
        each = f", {share / sites:.3f}% a site" if sites else ""
        print(f"idle for {seconds:g} s, {name}: {share:.2f}% of a core{each}; {megabytes(process):.0f} MB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--idle", type=float, default=60.0, help="seconds in which nothing is asked")
    parser.add_argument("--seconds", type=float, default=600.0, help="an end to all of it")
    parser.add_argument("--secure", action="store_true", help="secure sums: four exchanges a round")
    parser.add_argument("--serve", nargs="*", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve)
        return
    from deployment import Deployment, federation

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "federation"
        if arguments.secure:
            agreed(folder, arguments.sites, arguments.rounds)
        else:
            method, pace = METHOD.format(rounds=arguments.rounds), {"round_timeout": 120, "resend_after": 60}
            federation(folder, rows=(10,) * arguments.sites, method=method, **pace)
        folders = sorted((folder / "sites").iterdir())
        with Deployment(folder, arguments.seconds) as there:
            there.superlink()
            there.wait_for("superlink", "sites may join")
            began = time.monotonic()
            program = (sys.executable, __file__, "--serve")
            there.start("nodes", *folders[1:], program=program)
            there.site(0)
            there.wait_for("site00" if arguments.sites <= 100 else "site000", "joined")
            there.wait_for("nodes", "all joined")
            print(f"{arguments.sites} sites joined in {time.monotonic() - began:.1f} s", flush=True)
            site = next(name for name in there.processes if name.startswith("site"))
            if arguments.idle:
                time.sleep(10)
                idle(there, {"superlink": 0, "nodes": arguments.sites - 1, site: 1}, arguments.idle)
            before = {name: processor_seconds(there.processes[name].pid) for name in ("superlink", "nodes")}
            there.run()
            code = there.wait("run")
            if code:
                raise SystemExit(there.log("run") + (folder / "flower" / "run.log").read_text())
            used = {name: processor_seconds(there.processes[name].pid) - before[name] for name in before}
        records = [json.loads(line) for line in (folder / "run" / "rounds.jsonl").read_text().splitlines()]
        for record in records:
            print(f"round {record['round']}: {len(record['answered'])} answered, {record['seconds']:.2f} s")
        each = np.array([record["seconds"] for record in records])
        print(f"{arguments.sites} sites: median {np.median(each):.2f} s a round, worst {each.max():.2f} s, code {code}")
        for name, seconds in used.items():
            print(f"processor time of {name} in the run: {seconds / len(records):.2f} s a round")


if __name__ == "__main__":
    main()
