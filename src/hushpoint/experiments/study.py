"""What every study shares: cells computed in worker processes and kept on disk one by one, tables, claims and report.

A cell is a function of JSON settings that returns JSON. Each finished cell is one file, written whole, with a
fingerprint of everything it depends on: an interrupted study goes on where it stopped, and a cell made by other
settings is computed again. Workers use one thread each, so that the numbers do not depend on how many there are.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import multiprocessing
import os
import shlex
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from hushpoint._checks import require_count
from hushpoint._files import write_json, write_text
from hushpoint._version import __version__

Record = dict[str, Any]
Task = Callable[[Record], Record]

FORMAT = 1  # raise it when the meaning of a cell changes without its settings changing
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True)
class Cell:
    """One piece of a study: a module-level function, the settings it is given, and about how long it takes."""

    name: str
    task: Task
    settings: Record
    weight: float = 1.0

    def fingerprint(self) -> str:
        """Everything the result depends on, in a few letters."""
        known = [FORMAT, __version__, f"{self.task.__module__}.{self.task.__qualname__}", self.settings]
        return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:32]


Follow = Callable[[Cell, Record], Iterable[Cell]]


class Interrupted(RuntimeError):
    """Ctrl-C: the finished cells are on disk."""


def run_cells(
    directory: Path, cells: Sequence[Cell], follow: Follow, *, weight: float, jobs: int, console: Console
) -> dict[str, Record]:
    """Compute the cells, and those that ``follow`` makes of each result; what is on disk already is read, not computed.

    ``weight`` is the weight of all cells, those to come included: what the remaining time is estimated from. Raises
    ``Interrupted`` on Ctrl-C.
    """
    require_count("jobs", jobs)
    folder = directory / "cells"
    folder.mkdir(parents=True, exist_ok=True)
    results: dict[str, Record] = {}
    waiting: list[Cell] = []
    started = time.monotonic()

    def take(new: Iterable[Cell]) -> None:
        """Sort new cells into those that are done, with all that follows from them, and those to compute."""
        stack = list(new)[::-1]
        while stack:
            cell = stack.pop()
            found = _read(folder, cell)
            if found is None:
                waiting.append(cell)
            else:
                results[cell.name] = found
                bar.advance(line, cell.weight)
                stack.extend(list(follow(cell, found))[::-1])

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    remaining = (TextColumn("left"), TimeRemainingColumn())
    with Progress(*columns, *remaining, console=console, transient=True, speed_estimate_period=600) as bar:
        line = bar.add_task("cells", total=weight)
        take(cells)
        _say_reused(directory, len(results), bool(waiting), console)
        if not waiting:
            return results
        before = said = bar.tasks[line].completed
        bar.reset(line, total=weight)  # what was read took no time: it must not count as speed
        bar.update(line, completed=before)
        with _pool(jobs) as pool:
            running: dict[Future[Record], Cell] = {}
            try:
                while waiting or running:
                    # The longest first: a long one at the end would leave a core idle.
                    waiting.sort(key=lambda cell: -cell.weight)
                    while waiting and len(running) < jobs:
                        cell = waiting.pop(0)
                        running[pool.submit(_timed, cell.task, cell.settings)] = cell
                    done, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        cell = running.pop(future)
                        result = future.result()
                        _write(folder, cell, result)
                        results[cell.name] = result["result"]
                        bar.update(line, description=cell.name)
                        bar.advance(line, cell.weight)
                        take(follow(cell, result["result"]))
                        done_now = bar.tasks[line].completed
                        if not console.is_terminal and done_now >= said + weight / 10:
                            said = done_now
                            left = (time.monotonic() - started) * (weight - done_now) / (done_now - before)
                            console.print(f"{done_now / weight:.0%} done, about {max(left, 0):.0f} s left.")
            except KeyboardInterrupt:
                raise Interrupted(f"{len(results)} cells are finished and kept") from None
            except BrokenProcessPool:
                raise ValueError(
                    f"a worker process died, perhaps for lack of memory. {len(results)} cells are finished and kept: "
                    "run the same command again, perhaps with --jobs 1."
                ) from None
    return results


def _say_reused(directory: Path, found: int, more: bool, console: Console) -> None:
    if found:
        rest = "the rest is computed" if more else "there is nothing to compute"
        console.print(
            f"{found} finished cells of an earlier run are used again, {rest}. To start over, delete {directory}.",
            soft_wrap=True, highlight=False,
        )  # fmt: skip


@contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Worker processes of one thread each, ended with the block however it ends."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))  # read by the libraries when a worker starts
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_start_worker)
    try:
        yield pool
        pool.shutdown()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        raise
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer


def _timed(task: Task, settings: Record) -> Record:
    started = time.process_time()
    result = task(settings)
    return {"result": result, "cpu_seconds": time.process_time() - started}


def _read(folder: Path, cell: Cell) -> Record | None:
    """The result of a cell, if it is on disk, whole, and made by the same settings."""
    try:
        record = json.loads((folder / f"{cell.name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(record, dict) or record.get("fingerprint") != cell.fingerprint():
        return None
    result: Record = record["result"]
    return result


def _write(folder: Path, cell: Cell, timed: Record) -> None:
    write_json(
        folder / f"{cell.name}.json",
        {"cell": cell.name, "fingerprint": cell.fingerprint(), "settings": cell.settings, **timed},
    )


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """A CSV file, whole or not at all; numbers with all their digits, so that the same numbers are the same bytes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell_text(row.get(name)) for name in columns])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text.getvalue(), force=True)


def _cell_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (dict, list)):
        return json.dumps(value, sort_keys=True)
    return repr(float(value)) if isinstance(value, float) else str(value)


def number(value: float, rounding: str = ROUND_HALF_EVEN) -> str:
    """A number as claims show it: three significant digits, as people write them."""
    if not value or not math.isfinite(value):
        return "infinite" if value == math.inf else f"{value:g}"
    # repr first: 0.3 is meant, not the binary fraction below or above it.
    short = Decimal(repr(float(value))).normalize(Context(prec=3, rounding=rounding))
    if 1e-6 <= abs(value) < 1e9:
        digits = max(0, 2 - short.adjusted())
        return f"{short:,.{digits}f}"
    digit, power = f"{short:.2e}".split("e")
    return f"{digit}e{int(power)}"


def at_most(value: float) -> str:
    """An upper bound, rounded up."""
    return number(value, ROUND_CEILING)


def at_least(value: float) -> str:
    """A lower bound, rounded down."""
    return number(value, ROUND_FLOOR)


def apart(value: float) -> str:
    """How far something is from what it is compared with, and on which side."""
    return f"{number(abs(value))} {'below' if value < 0 else 'above'}"


def spread(name: str, values: Any) -> Record:
    """Mean and standard deviation over runs, as columns of a table."""
    runs = np.asarray(values)
    return {f"{name}_mean": float(runs.mean()), f"{name}_std": float(runs.std(ddof=1 if len(runs) > 1 else 0))}


def in_batches(runs: int, batch: int) -> list[list[int]]:
    """The numbers of the runs, so many in one cell."""
    return [list(range(start, min(start + batch, runs))) for start in range(0, runs, batch)]


def joined(results: Mapping[str, Record], name: str, *lists: str) -> Record:
    """The result of a name's cells, one for each batch of runs, with some lists put together; empty without cells."""
    found: list[Record] = []
    while (title := f"{name}-{len(found)}") in results:
        found.append(results[title])
    return {**found[0], **{key: [value for one in found for value in one[key] or ()] for key in lists}} if found else {}


def json_number(value: float) -> float | str:
    """A number as a cell can keep it."""
    return value if math.isfinite(value) else "inf"


def table_of_methods(title: str, *columns: str, padding: int = 0, caption: str | None = None) -> Table:
    """An empty table for the terminal, one line for each method."""
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, padding), title_style="bold", caption=caption)
    table.add_column("method", overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


@dataclass
class Study:
    """One run of a study: its cells, its tables, what it says, and the ``run.json`` that holds it together.

    ``settings`` say what was run; ``options`` are those of its command, besides seed and place.
    """

    name: str
    title: str
    directory: Path
    settings: Record
    options: Mapping[str, Any]
    seed: int
    console: Console

    def __post_init__(self) -> None:
        self.record: Record = {
            "format": 1,
            "kind": "study",
            "name": self.name,
            "title": self.title,
            "command": self._command(),
            "seed": self.seed,
            "version": __version__,
            "quick": self.options["quick"],
            "finished": False,
            "settings": self.settings,
            "summary": [],
            "claims": [],
            "tables": {},
            "figures": {},
        }

    def _command(self) -> str:
        words = ["hushpoint", "reproduce", self.name]
        for option, value in self.options.items():
            if value:
                words += [f"--{option}"] if value is True else [f"--{option}", str(value)]
        return shlex.join([*words, "--seed", str(self.seed), "--out", str(self.directory)])

    def run(
        self, cells: Sequence[Cell], jobs: int, follow: Follow = lambda cell, result: (), later: float = 0.0
    ) -> dict[str, Record]:
        """Run the cells, or what is left of them; ``later`` is the weight of those that ``follow`` will make."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._write()
        weight = sum(cell.weight for cell in cells) + later
        return run_cells(self.directory, cells, follow, weight=weight, jobs=jobs, console=self.console)

    def save(self, name: str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
        """Write one table."""
        place = f"tables/{name}.csv"
        write_table(self.directory / place, columns, rows)
        self.record["tables"][name] = place

    def finish(self, summary: list[str], claims: list[str], shown: Table, brief: bool = False) -> Record:
        """Say what was found, draw the figures, write the report and ``run.json``, and say where everything is."""
        from hushpoint import plots, report

        self.record |= {"finished": True, "summary": summary, "claims": claims}
        self.console.print()
        if not brief:
            self._say("In detail:", claims)
        self.console.print(shown)
        self._say("In short:", summary)
        self._write()
        try:
            drawn = plots.draw_all(self.directory)
        except ValueError as error:  # matplotlib is an extra
            self.console.print(f"No figures: {error} Then run the same command again.")
        else:
            self.record["figures"] = {name: f"figures/{paths[1].name}" for name, paths in drawn.items()}
            self._write()
            for paths in drawn.values():
                self._tell(f"Figure  {paths[1]} (and .png)")
        self._tell(f"Tables  {self.directory / 'tables'}")
        self._tell(f"Report  {report.write(self.directory, force=True)}")
        return self.record

    def _write(self) -> None:
        write_json(self.directory / "run.json", self.record)

    def _say(self, title: str, sentences: Iterable[str]) -> None:
        self.console.print(title, style="bold")
        for sentence in sentences:
            self.console.print(Padding(f"- {sentence}", (0, 0, 0, 1)), highlight=False)
        self.console.print()

    def _tell(self, text: str) -> None:
        self.console.print(text, soft_wrap=True, highlight=False)
