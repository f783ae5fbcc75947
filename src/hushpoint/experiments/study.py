"""The machinery of a study: cells computed in worker processes, kept on disk one by one, and tables made from them.

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

from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

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
    directory: Path,
    cells: Sequence[Cell],
    follow: Follow,
    *,
    weight: float,
    jobs: int,
    console: Console,
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


def say(title: str, sentences: Iterable[str], console: Console) -> None:
    """Sentences as a list in the terminal."""
    console.print(title, style="bold")
    for sentence in sentences:
        console.print(Padding(f"- {sentence}", (0, 0, 0, 1)), highlight=False)
    console.print()


def finish(directory: Path, record: Record, console: Console) -> None:
    """Draw the figures, write the report, save ``run.json`` and say where everything is."""
    from hushpoint import plots, report

    write_json(directory / "run.json", record)
    try:
        drawn = plots.draw_all(directory)
    except ValueError as error:  # matplotlib is an extra
        console.print(f"No figures: {error} Then run the same command again.")
    else:
        record["figures"] = {name: f"figures/{paths[1].name}" for name, paths in drawn.items()}
        write_json(directory / "run.json", record)
        for paths in drawn.values():
            console.print(f"Figure  {paths[1]} (and .png)", soft_wrap=True, highlight=False)
    console.print(f"Tables  {directory / 'tables'}", soft_wrap=True, highlight=False)
    console.print(f"Report  {report.write(directory, force=True)}", soft_wrap=True, highlight=False)
