"""The examples of the pages: README.md and docs/*.md, as they are found, run and brought up to date.

- A ``python`` block runs in a namespace of its own and in an empty directory. On a how-to page, whose steps build on
  each other's files, the directory is that of the page; every block still has its own imports.
- A plain block (or a ``text`` one) directly after it holds what it prints.
- In a plain block that starts with ``$ ``, such lines are commands, and the lines after one are what it prints. Those
  that start servers are not run. A command that asks the operating system for randomness gets the same bytes each
  time, so that a how-to page can show a whole session.
- ``...`` in an output stands for anything. Line breaks and blanks do not count, nor digits of a number past the sixth
  where more than seven decimals are printed.
- A ``toml`` block with a target is written to the last ``*.schema.toml`` that the page has named; any other one is a
  part of that file.

python tests/documents.py --update [PAGE...]    rewrites outputs that have changed, and touches nothing else
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import re
import secrets
import shlex
import subprocess
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from unittest.mock import patch

from typer.testing import CliRunner

from hushpoint import cli

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
STARTS_A_SERVER = ("federated superlink", "federated site", "federated run")
WIDTH = 120


@dataclass(frozen=True)
class Example:
    """A block or a command, and what the page says that it prints (None where it says nothing)."""

    language: str  # python, shell or toml
    code: str
    line: int
    printed: str | None = None
    span: tuple[int, int] = (0, 0)  # of what is printed, in the page
    file: str = ""  # of a toml block

    @property
    def skipped(self) -> bool:
        return self.language == "shell" and self.code.startswith(tuple(f"hushpoint {name}" for name in STARTS_A_SERVER))


def examples(text: str) -> list[Example]:
    """What a page shows, from top to bottom."""
    found: list[Example] = []
    end = 0
    for fence in re.finditer(r"^```(\w*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
        language, code, start = fence[1], fence[2], fence.start(2)
        line = text.count("\n", 0, start) + 1
        if language == "python":
            found.append(Example("python", code, line))
        elif language == "toml":
            found.append(Example("toml", code, line, file=_last_schema(text[:start])))
        elif language in ("", "text"):
            if code.startswith("$ "):
                found += _commands(code, start, line)
            elif found and found[-1].language == "python" and not text[end : fence.start()].strip():
                found[-1] = Example("python", found[-1].code, found[-1].line, code, fence.span(2))
        end = fence.end()
    return found


def _commands(code: str, start: int, line: int) -> Iterator[Example]:
    for part in re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", code, flags=re.MULTILINE):
        span = start + part.start(2), start + part.end(2)
        yield Example("shell", part[1], line + code.count("\n", 0, part.start()), part[2] or None, span)


def _last_schema(text: str) -> str:
    names = re.findall(r"[\w.-]+\.schema\.toml", text)
    return names[-1] if names else ""


def run(example: Example, page: str) -> str:
    """What an example prints, in the current directory; an error if it fails where the page does not say so."""
    if example.language == "python":
        return _run_python(example, page)
    if example.language == "shell":
        return _run_command(example, page)
    return _use_toml(example, page)


def _run_python(example: Example, page: str) -> str:
    printed = io.StringIO()
    in_place = "\n" * (example.line - 1) + example.code  # a traceback then has the line of the page
    with contextlib.redirect_stdout(printed):
        exec(compile(in_place, page, "exec"), {"__name__": "example"})
    return printed.getvalue()


def _run_command(example: Example, page: str) -> str:
    words = shlex.split(example.code, comments=True)
    if words[0] == "hushpoint":
        with patch.object(secrets, "token_bytes", Random(0).randbytes):
            told = CliRunner(env={"COLUMNS": "80"}).invoke(cli.app, words[1:])
        code, printed = told.exit_code, told.output
    else:
        ended = subprocess.run(example.code, shell=True, capture_output=True, text=True, check=False)
        code, printed = ended.returncode, ended.stdout + ended.stderr
    if code and not (example.printed or "").startswith("Error"):
        raise RuntimeError(f"{page}, line {example.line}: `{example.code}` ended with code {code}:\n{printed}")
    return printed


def _use_toml(example: Example, page: str) -> str:
    if not example.file:
        raise RuntimeError(f"{page}, line {example.line}: no *.schema.toml is named before this block")
    place = Path(example.file)
    if re.search(r"^target = ", example.code, flags=re.MULTILINE):
        place.write_text(example.code)
    elif plain(example.code) not in plain(place.read_text()):
        raise RuntimeError(f"{page}, line {example.line}: {place} has other lines:\n{place.read_text()}")
    return ""


def plain(text: str) -> str:
    """A text without line breaks and blanks in a row, its long numbers to six digits."""
    short = re.sub(r"\d+\.\d{8,}(?:e-?\d+)?", lambda number: f"{float(number[0]):.6g}", text)
    return " ".join(short.split())


def agrees(said: str, printed: str) -> bool:
    """Whether an output is what a page says, where ``...`` stands for anything."""
    pattern = ".*".join(re.escape(part.strip()) for part in plain(said).split("..."))
    return re.fullmatch(pattern, plain(printed)) is not None


def disagreement(example: Example, page: str, printed: str) -> str | None:
    """What to tell where a page is wrong, with both texts in full."""
    if example.printed is None or agrees(example.printed, printed):
        return None
    return (
        f"{page}, line {example.line}: the example prints\n\n{wrapped(printed)}\n"
        f"and the page says\n\n{example.printed}\n"
        f"If the page is what is out of date: python tests/documents.py --update {page}"
    )


def wrapped(printed: str) -> str:
    """An output as a page shows it: no line longer than the page, no blanks at the end of one."""
    lines = [line.rstrip() for line in printed.strip("\n").split("\n")]
    folded = [
        textwrap.fill(line, WIDTH, break_long_words=False, break_on_hyphens=False) if len(line) > WIDTH else line
        for line in lines
    ]
    return "\n".join(folded) + "\n"


def is_session(page: Path) -> bool:
    """Whether the steps of a page share a directory."""
    return page.name.startswith("howto-")


def outputs(page: Path) -> Iterator[tuple[Example, str]]:
    """Run the examples of a page one after the other, each where it belongs."""
    with contextlib.ExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory())
        for example in examples(page.read_text()):
            if example.skipped:
                continue
            with contextlib.ExitStack() as own:
                place = home if is_session(page) else own.enter_context(tempfile.TemporaryDirectory())
                own.enter_context(contextlib.chdir(place))
                printed = run(example, page.name)
            yield example, printed


def updated(page: Path) -> str:
    """The text of a page with what its examples print now."""
    text = page.read_text()
    changed = [
        (example.span, keeping_dots(example.printed, wrapped(printed)))
        for example, printed in outputs(page)
        if example.printed is not None and not agrees(example.printed, printed)
    ]
    for (start, end), printed in reversed(changed):
        text = text[:start] + printed + text[end:]
    return text


def keeping_dots(said: str, printed: str) -> str:
    """A new output with ``...`` where the old one had it: what is random stays left out."""
    old, new = said.split(), list(re.finditer(r"\S+", printed))
    pairs = difflib.SequenceMatcher(None, old, [word[0] for word in new], autojunk=False).get_opcodes()
    for kind, first, last, start, end in reversed(pairs):
        left_out = [word for word in old[first:last] if "..." in word]
        if kind != "replace" or not left_out:
            continue
        if last - first == end - start:  # word by word
            for word, match in reversed(list(zip(old[first:last], new[start:end], strict=True))):
                if "..." in word:
                    printed = printed[: match.start()] + word + printed[match.end() :]
        elif last - first == 1:
            printed = printed[: new[start].start()] + left_out[0] + printed[new[end - 1].end() :]
    return printed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, default=PAGES, help="all of them, if none is named")
    parser.add_argument("--update", action="store_true", required=True)
    for page in parser.parse_args().pages:
        text = updated(page)
        if text != page.read_text():
            page.write_text(text)
            print(f"{page.name} has new outputs")


if __name__ == "__main__":
    main()
