"""A copy of the project in which bugs are planted, one at a time, and the tests that look for them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mutants.mutant import Mutant

PARTS = ("src", "tests", "docs", "examples", "pyproject.toml", "README.md", "CONTRIBUTING.md")  # what tests read
Verdict = Literal["caught", "survived", "hung", "broken"]


@dataclass(frozen=True)
class Outcome:
    """What became of one run of tests: which failed first, or what pytest said last."""

    verdict: Verdict
    seconds: float
    told: str


def planted(text: str, mutant: Mutant) -> str:
    """The text of a file with the bug in it; an error unless there is exactly one place for it."""
    found = text.count(mutant.old)
    if found != 1:
        raise ValueError(f"its old text occurs {found} times in {mutant.file}. Choose a text that occurs once.")
    if mutant.new == mutant.old:
        raise ValueError("its new text is its old one. Plant a bug.")
    return text.replace(mutant.old, mutant.new)


class Tree:
    """One copy of the project, kept from mutant to mutant so that compiled code is not compiled again.

    Times of files are copied with them and put back after each mutant, so that the bytecode beside them stays valid;
    the cache of compiled code goes by the text of its sources. A mutant of those gets a cache of its own, since it
    would drive out the one beside them.
    """

    def __init__(self, root: Path, place: Path) -> None:
        self.place = place
        self._running: subprocess.Popen[str] | None = None
        self._ended = threading.Event()
        for part in PARTS:
            if (root / part).is_dir():
                shutil.copytree(root / part, place / part)
            elif (root / part).exists():
                shutil.copy2(root / part, place / part)

    def judge(self, mutant: Mutant, limit: float) -> Outcome:
        """Plant the bug, run its tests, and take it out again."""
        with tempfile.TemporaryDirectory(dir=self.place, prefix="compiled.") as cache:
            try:
                with self._bug(mutant):
                    return self.run(mutant.tests, limit, {"NUMBA_CACHE_DIR": cache} if mutant.is_compiled else {})
            except (OSError, ValueError) as error:
                return Outcome("broken", 0.0, str(error))

    def run(self, tests: Sequence[str], limit: float, changes: dict[str, str] | None = None) -> Outcome:
        """Run some tests until one fails."""
        options = ["-x", "-q", "-rfE", "-p", "no:cacheprovider", "--timeout=0", "--tb=no", "--color=no"]
        command = [sys.executable, "-m", "pytest", *options, *tests]
        start = time.monotonic()
        # A session of its own: what the tests start ends with them.
        self._running = subprocess.Popen(
            command, cwd=self.place, env=self._environment() | (changes or {}), text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        if self._ended.is_set():
            self.end()
        try:
            said, _ = self._running.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            return Outcome("hung", time.monotonic() - start, f"no end after {limit:g} s")
        finally:
            self._kill()
        return _outcome(self._running.returncode, said, time.monotonic() - start)

    def end(self) -> None:
        """End what is running, now and for good."""
        self._ended.set()
        self._kill()

    def _kill(self) -> None:
        if self._running is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._running.pid, signal.SIGKILL)
            self._running.wait()

    @contextmanager
    def _bug(self, mutant: Mutant) -> Iterator[None]:
        path = self.place / mutant.file
        before, times = path.read_bytes(), path.stat()
        path.write_text(planted(before.decode("utf-8"), mutant), encoding="utf-8")
        try:
            yield
        finally:
            path.write_bytes(before)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def _environment(self) -> dict[str, str]:
        """One thread of linear algebra, this copy's source, and no bytecode of a bug left behind."""
        alone = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
        return {**os.environ, **alone, "PYTHONPATH": str(self.place / "src"), "PYTHONDONTWRITEBYTECODE": "1"}


def _outcome(code: int, said: str, seconds: float) -> Outcome:
    """Only a test that failed counts: a file that cannot be imported, or a test that is not there, shows nothing."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    failed = [line.split(" - ")[0].split(maxsplit=1)[1] for line in lines if line.startswith(("FAILED ", "ERROR "))]
    if code == 0:
        return Outcome("survived", seconds, "")
    if code == 1 and failed and all("::" in test for test in failed):
        return Outcome("caught", seconds, failed[0])
    return Outcome("broken", seconds, f"pytest ended with {code}: {lines[-1] if lines else 'without a word'}")
