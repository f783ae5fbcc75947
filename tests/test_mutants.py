"""The mutation suite itself: its runner on a tiny package, and a catalogue that fits the source of today."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from mutants.catalogue import CATALOGUE  # noqa: E402
from mutants.mutant import Mutant  # noqa: E402
from mutants.run import main  # noqa: E402
from mutants.tree import Tree, planted  # noqa: E402

SOURCE = """
UNUSED = 3
def noisy(value):
    return value + 1.0
"""
TESTS = """
import os, time
from tiny import noisy
def test_noise_is_added():
    assert noisy(0.0) == 1.0
def test_noise_ends():
    if noisy(0.0) > 8:
        open(os.environ.get("TOLD", os.devnull), "w").write(str(os.getpid()))
        time.sleep(600)
"""


def bug(name, old, new, tests=("tests/test_tiny.py",), room="tiny"):
    return Mutant(name, room, "src/tiny/__init__.py", old, new, tests, "a test of the suite")


HALVED = bug("halved", "+ 1.0", "+ 0.5")
HANGS = bug("hangs", "+ 1.0", "+ 9.0", tests=("tests/test_tiny.py::test_noise_ends",), room="slow")
TINY = [
    HALVED,
    bug("unnoticed", "UNUSED = 3", "UNUSED = 4"),
    bug("gone", "no such text", "anything"),
    bug("unimportable", "def noisy", "def renamed"),
    bug("untested", "+ 1.0", "+ 0.5", tests=("tests/test_tiny.py::test_that_is_not_there",), room="absent"),
    HANGS,
]


@pytest.fixture
def tiny(tmp_path):
    """A project of one function and two tests."""
    for path, text in (("src/tiny/__init__.py", SOURCE), ("tests/test_tiny.py", TESTS)):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def verdicts(printed):
    """The last column of the table by mutant."""
    table = printed.partition("caught by\n")[2].partition("\n\n")[0]
    return {line.split()[0]: line.split(maxsplit=3)[3] for line in table.splitlines()}


def test_only_a_test_that_fails_is_a_catch(tiny, capsys):
    # a suite that calls an import error, or a mutant that no longer applies, a bug that was found
    assert main(["--only", "tiny"], TINY, tiny) == 1
    printed = capsys.readouterr().out
    found = verdicts(printed)
    assert found["halved"] == "tests/test_tiny.py::test_noise_is_added"
    assert found["unnoticed"].startswith("SURVIVED")
    assert found["gone"].startswith("BROKEN its old text occurs 0 times in src/tiny/__init__.py")
    assert found["unimportable"].startswith("BROKEN")
    assert "4 privacy bugs in 1 rooms: 1 caught, 1 survived, 0 hung, 2 broken." in printed
    assert main(["--only", "halved"], TINY, tiny) == 0
    assert (tiny / "src/tiny/__init__.py").read_text() == SOURCE  # only copies are touched


def test_tests_that_do_not_end_or_are_not_there_are_no_catch(tiny, capsys):
    # a time limit that counts as a failed test; a selection that selects nothing
    assert main(["--only", "slow", "--limit", "4"], TINY, tiny) == 1
    assert verdicts(capsys.readouterr().out)["hangs"].startswith("HUNG")
    assert main(["--only", "absent"], TINY, tiny) == 1
    assert "Mend these first" in capsys.readouterr().out


def test_without_a_bug_the_tests_must_pass(tiny, capsys):
    # a test that fails anyway catches every bug
    (tiny / "tests/test_tiny.py").write_text(TESTS.replace("== 1.0", "== 2.0"))
    assert main(["--only", "halved"], TINY, tiny) == 1
    assert "caught by" not in capsys.readouterr().out


def test_a_file_is_as_before_after_its_bug(tiny, tmp_path):
    # a second bug planted on top of the first; or new times, after which bytecode and compiled code are made anew
    tree = Tree(tiny, tmp_path / "copy")
    place = tree.place / HALVED.file
    before = place.read_bytes(), place.stat().st_mtime_ns
    for mutant in (HALVED, TINY[2]):
        tree.judge(mutant, 60)
        assert (place.read_bytes(), place.stat().st_mtime_ns) == before
    assert not list(tree.place.glob("compiled.*"))


def test_ctrl_c_leaves_nothing_behind(tiny, tmp_path):
    # tests that run on after the suite was stopped, and copies of the project in /tmp
    temporary, told = tmp_path / "temporary", tmp_path / "told"
    temporary.mkdir()
    # A shell that runs the tests in the background has Ctrl-C ignored.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(Path(__file__).parent)!r}]\n"
    code += f"from pathlib import Path; from test_mutants import HANGS, main; main([], [HANGS], Path({str(tiny)!r}))"
    environment = {**os.environ, "TMPDIR": str(temporary), "TOLD": str(told)}
    suite = subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.DEVNULL)
    _wait(lambda: told.exists() and told.read_text(), 120)
    suite.send_signal(signal.SIGINT)
    assert suite.wait(60) != 0
    _wait(lambda: not _is_alive(int(told.read_text())), 60)
    assert list(temporary.iterdir()) == []


def _wait(done, seconds):
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


def _is_alive(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_list_names_every_bug_and_what_it_would_do(capsys):
    assert main(["--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(CATALOGUE)
    with pytest.raises(SystemExit):
        main(["--only", "no-such-mutant"])


@pytest.mark.parametrize("mutant", CATALOGUE, ids=lambda mutant: mutant.name)
def test_every_bug_has_its_place_and_its_tests(mutant):
    # a catalogue that rots: source or tests that have moved on; a bug that is a syntax error
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    compile(planted(text, mutant), mutant.file, "exec")
    assert mutant.tests
    for test in mutant.tests:
        file, _, name = test.partition("::")
        tests = (ROOT / file).read_text(encoding="utf-8")
        assert not name or re.search(rf"def {re.escape(name.rpartition('::')[2].partition('[')[0])}\(", tests)


def test_the_catalogue_is_large_and_its_names_are_names():
    names = [mutant.name for mutant in CATALOGUE]
    assert len(set(names)) == len(names) >= 45
    assert not set(names) & {mutant.room for mutant in CATALOGUE}
    assert all(mutant.why and len(mutant.name) <= 44 for mutant in CATALOGUE)


def test_the_document_counts_the_bugs():
    # a number in docs/privacy.md that the catalogue has outgrown
    text = " ".join((ROOT / "docs" / "privacy.md").read_text(encoding="utf-8").split())
    rooms = len({mutant.room for mutant in CATALOGUE})
    assert f"{len(CATALOGUE)} privacy bugs are planted in copies of the source, one at a time, in {rooms} rooms" in text
