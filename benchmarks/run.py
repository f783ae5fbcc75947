"""Hushpoint beside a plain loop, its peers and the machine's limit, in one run: ratios, with their spread.

Run with ``make bench``. Seconds depend on the machine; only the ratios mean anything.

    make bench ARGS="--only loops users"           some sections
    make bench ARGS="--data adult.csv.gz"          with Adult (or HUSHPOINT_ADULT=path), Opacus and diffprivlib
    make bench ARGS="--stream --write docs/performance.md"
"""

from __future__ import annotations

import argparse
import os
import platform
from pathlib import Path

import sections
import whole
from rich import box
from rich.console import Console
from rich.table import Table

from hushpoint._threads import threads

ALL = {
    "loops": sections.loops, "million": sections.million, "users": sections.users, "lattice": whole.section,
    "growth": sections.growth, "draws": sections.draws, "imports": sections.imports,
}  # fmt: skip
BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", nargs="*", choices=ALL, default=list(ALL), help="sections to run")
    options.add_argument("--repeats", type=int, default=7)
    options.add_argument("--data", default=os.environ.get("HUSHPOINT_ADULT"), help="adult.csv.gz: adds the peers")
    options.add_argument("--no-peers", action="store_true", help="Adult without Opacus and diffprivlib")
    options.add_argument("--stream", action="store_true", help="4 GB on disk, in a temporary directory")
    options.add_argument("--write", type=Path, help="a Markdown file that gets these tables, each in its place")
    chosen = options.parse_args()
    found = [ALL[name](chosen.repeats) for name in chosen.only]
    if chosen.data:
        import adult

        found.append(adult.section(chosen.data, min(chosen.repeats, 3), not chosen.no_peers))
    if chosen.stream:
        import stream

        found.append(stream.section())
    console = Console(width=160)
    for title, columns, rows in found:
        table = Table(*columns, title=title, title_justify="left", box=box.SIMPLE_HEAD)
        for row in rows:
            table.add_row(*row)
        console.print(table)
    console.print(f"Median of {chosen.repeats} repeats (from the fastest to the slowest). {_machine()}")
    if chosen.write:
        _write(chosen.write, found, chosen.repeats)


def _machine() -> str:
    return f"Python {platform.python_version()}, {platform.machine()}, {threads()} threads."


def _write(path: Path, found: list[sections.Section], repeats: int) -> None:
    """Put tables between the marks of a Markdown file: in the place of those of the same title, or behind them all."""
    text = path.read_text()
    if BEGIN not in text or END not in text:
        raise SystemExit(f"{path} has no lines {BEGIN} and {END} to write between.")
    before, rest = text.split(BEGIN)
    there, after = rest.split(END)
    tables = {part.splitlines()[0]: part for part in there.split("\n### ")[1:]}
    told = f"Median of {repeats} repeats (from the fastest to the slowest). {_machine()}"
    for title, columns, rows in found:
        lines = [title, "", "| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
        tables[title] = "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows), "", told, ""])
    path.write_text(
        before + BEGIN + "".join(f"\n\n### {part.strip()}" for part in tables.values()) + "\n\n" + END + after
    )


if __name__ == "__main__":
    main()
