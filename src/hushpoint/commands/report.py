"""The page of a run, from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    run: Annotated[Path, typer.Argument(help="The directory of a study or of a federated run, or a model's file.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where to write; default: report.html in the directory, or MODEL.html."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the output file if it exists.")] = False,
) -> None:
    """Write one HTML page about a study or a model: the guarantee in plain words, figures, how to run it again.

    Example: hushpoint report model.json -o model.html
    """
    from hushpoint.report import write

    typer.echo(f"Wrote {write(run, output, force)}.")
