"""How good a model file is on a table, on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hushpoint.commands.tabular import GroupsOption, Table


def evaluate(
    model: Annotated[Path, typer.Argument(help="A model that hushpoint fit or a federation wrote.")],
    data: Table,
    epsilon: Annotated[float | None, typer.Option(help="The epsilon that the score may spend; default: exact.")] = None,
    delta: Annotated[float | None, typer.Option(help="The delta; default: n**-1.1, n rows or users.")] = None,
    groups: GroupsOption = None,
    adjacency: Annotated[str | None, typer.Option(help="replace-one or zero-out.")] = None,
    seed: Annotated[int | None, typer.Option(help="For experiments; a score to release needs none.", min=0)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say how good a model is on a table with the target: exactly, or with noise and a guarantee.

    Example: hushpoint evaluate model.json test.csv --epsilon 1
    """
    from hushpoint.tables.model_file import load_model

    found = load_model(model).score(
        data, epsilon=epsilon, delta=delta, groups=groups, adjacency=adjacency, seed=seed,  # type: ignore[arg-type]
    )  # fmt: skip
    if as_json:
        typer.echo(json.dumps({"file": str(model), **found.to_dict()}, indent=2))
        return
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    console.print(str(found))
    if epsilon is not None and delta is None:
        base = "users" if found.unit == "user" else "rows"
        console.print(f"delta was not given: it is the number of {base} to the power -1.1.")
