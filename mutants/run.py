"""Plant privacy bugs in copies of the project, one at a time, and see that a test fails for each. Run: make mutants.

    make mutants ARGS="--list"                    the bugs, and what each would do
    make mutants ARGS="--only noise kernels"      some rooms, or some mutants by name

A bug is *caught* when a test that looks for it fails. It is an error if one *survives*, if its place in the source is
gone, if its tests cannot be run (*broken*), or if they do not end (*hung*).
"""

from __future__ import annotations

import argparse
import queue
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from mutants.catalogue import CATALOGUE
from mutants.mutant import Mutant
from mutants.tree import Outcome, Tree

ROOT = Path(__file__).resolve().parents[1]
WORKERS = 2
LIMIT = 300.0  # seconds for one mutant, some tens of times what its tests take

Task = TypeVar("Task")


def main(arguments: Sequence[str] | None = None, catalogue: Sequence[Mutant] = CATALOGUE, root: Path = ROOT) -> int:
    """Run the suite; 0 if every bug was caught."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", nargs="+", default=[], metavar="NAME|ROOM", help="mutants or rooms to run")
    options.add_argument("--list", action="store_true", help="say what there is, and run nothing")
    options.add_argument("--limit", type=float, default=LIMIT, help="seconds that the tests of one mutant may take")
    chosen = options.parse_args(arguments)
    unknown = set(chosen.only) - {known for mutant in catalogue for known in (mutant.name, mutant.room)}
    if unknown:
        options.error(f"--only names {', '.join(sorted(unknown))}, which is no mutant and no room.")
    mutants = [mutant for mutant in catalogue if not chosen.only or {mutant.name, mutant.room} & set(chosen.only)]
    if chosen.list:
        for mutant in mutants:
            print(f"{mutant.room:<15} {mutant.name:<44} {mutant.why}")
        return 0
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hushpoint-mutants-") as place:
        trees = [Tree(root, Path(place) / str(number)) for number in range(WORKERS)]
        if not _baseline(trees, mutants, chosen.limit):
            return 1
        # What has to be compiled takes longest, so it comes first.
        ordered = sorted(mutants, key=lambda mutant: not mutant.is_compiled)
        outcomes = _shared(trees, ordered, lambda tree, mutant: tree.judge(mutant, chosen.limit), _told)
    return _report(mutants, outcomes, time.monotonic() - start)


def _baseline(trees: list[Tree], mutants: Sequence[Mutant], limit: float) -> bool:
    """Whether all tests that are used pass without a bug; else a catch would mean nothing."""
    files: dict[str, list[str]] = {}
    for test in dict.fromkeys(test for mutant in mutants for test in mutant.tests):
        files.setdefault(test.split("::")[0], []).append(test)
    print(f"{len(mutants)} mutants, {len(files)} test files. First without any bug:", flush=True)
    outcomes = _shared(trees, list(files), lambda tree, file: tree.run(files[file], 10 * limit), _told)
    passed = all(outcome.verdict == "survived" for outcome in outcomes.values())
    print("Now the bugs, one at a time:" if passed else "Mend these first: they would catch any bug.", flush=True)
    return passed


def _shared(
    trees: list[Tree],
    tasks: Sequence[Task],
    work: Callable[[Tree, Task], Outcome],
    tell: Callable[[Any, Outcome], None],
) -> dict[Task, Outcome]:
    """Every task done by one of the trees, each on a thread of its own. Ctrl-C ends what runs."""
    waiting: queue.SimpleQueue[Task] = queue.SimpleQueue()
    for task in tasks:
        waiting.put(task)
    outcomes: dict[Task, Outcome] = {}
    stopped = threading.Event()
    # Python 3.11 takes a thread whose join was interrupted for ended, though it runs on: each says itself when it ends.
    ended: queue.SimpleQueue[Tree] = queue.SimpleQueue()

    def serve(tree: Tree) -> None:
        try:
            while not stopped.is_set():
                try:
                    task = waiting.get_nowait()
                except queue.Empty:
                    return
                outcomes[task] = work(tree, task)
                if not stopped.is_set():
                    tell(task, outcomes[task])
        finally:
            ended.put(tree)

    running = 0
    try:
        for tree in trees:
            threading.Thread(target=serve, args=(tree,)).start()
            running += 1
        while running:
            ended.get()
            running -= 1
    except KeyboardInterrupt:
        stopped.set()
        for tree in trees:
            tree.end()
        for _ in range(running):
            ended.get()
        raise
    return outcomes


def _told(task: Any, outcome: Outcome) -> None:
    """A line as soon as a mutant is judged, or a file of tests has run without one."""
    word, told = outcome.verdict, ""
    if isinstance(task, str):
        word, told = ("passed", "") if word == "survived" else ("FAILED", outcome.told)
    print(f"  {getattr(task, 'name', task):<48} {word:<9} {outcome.seconds:5.0f} s  {told}".rstrip(), flush=True)


def _report(mutants: Sequence[Mutant], outcomes: dict[Mutant, Outcome], seconds: float) -> int:
    """The table, the sum, and the exit code."""
    print(f"\n{'mutant':<44} {'room':<15} {'seconds':>7}  caught by")
    for mutant in mutants:
        outcome = outcomes[mutant]
        said = outcome.told if outcome.verdict == "caught" else f"{outcome.verdict.upper()} {outcome.told}"
        print(f"{mutant.name:<44} {mutant.room:<15} {outcome.seconds:7.0f}  {said}")
    found = Counter(outcome.verdict for outcome in outcomes.values())
    parts = [f"{found[verdict]} {verdict}" for verdict in ("caught", "survived", "hung", "broken")]
    rooms = len({mutant.room for mutant in mutants})
    print(f"\n{len(mutants)} privacy bugs in {rooms} rooms: {', '.join(parts)}. {seconds / 60:.1f} minutes.")
    return 0 if found["caught"] == len(mutants) else 1


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell that starts it in the background has Ctrl-C ignored
        signal.signal(number, signal.default_int_handler)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("Stopped.")
