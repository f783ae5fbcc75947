"""Look before anything is spent: ``hushpoint federated check``."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Annotated

import typer

_WIDTH = 120


def check(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the federation, or of one site.")],
    offline: Annotated[bool, typer.Option("--offline", help="Open no connection.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look for what would go wrong, at a site or at the server, before anything is spent; code 1 where something would.

    Example: hushpoint federated check hospitals/sites/03
    """
    from hushpoint.federated.check_server import check_server
    from hushpoint.federated.check_site import check_site
    from hushpoint.federated.folder import Federation, Site

    if (folder / "site.toml").is_file():
        lines = check_site(Site(folder), offline=offline)
    elif (folder / "federation.toml").is_file():
        lines = check_server(Federation(folder), offline=offline)
    else:
        raise ValueError(f"{str(folder)!r} has neither site.toml nor federation.toml. Name the folder of either side.")
    problems = sum(line.state == "problem" for line in lines)
    if as_json:
        typer.echo(json.dumps({"problems": problems, "lines": [line.to_dict() for line in lines]}, indent=2))
    else:
        for line in lines:
            typer.echo(_row(line.what, line.state, line.words))
            if line.remedy:
                typer.echo(_row("", "", f"-> {line.remedy}"))
        typer.echo("Nothing is in the way." if not problems else f"{problems} to put right.")
    if problems:
        raise typer.Exit(1)


def _row(what: str, state: str, words: str) -> str:
    start = f"{what:<12} {state:<8} "
    return textwrap.fill(
        words, _WIDTH, initial_indent=start, subsequent_indent=" " * len(start), break_on_hyphens=False
    )
