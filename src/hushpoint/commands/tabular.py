"""From a table on the command line to a private model, and from the model to predictions."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from hushpoint.commands.curve import BaseRateOption, CurveOption, GuessOption, asked_for
from hushpoint.commands.printing import give_up_printing, is_unprintable

if TYPE_CHECKING:
    from hushpoint.tables.model_file import TableModel
    from hushpoint.tables.scoring import ScoringModel

Table = Annotated[Path, typer.Argument(help="A table: .csv, .csv.gz or .parquet.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the output file if it exists.")]
TargetOption = Annotated[str | None, typer.Option(help="The column to predict.")]
GroupsOption = Annotated[
    str | None, typer.Option(help="The column that says whose row it is; users are then protected, not records.")
]

_SHOWN = 10  # coefficients in the summary


def schema(
    data: Table,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where to write; default: print it.")] = None,
    target: TargetOption = None,
    groups: GroupsOption = None,
    force: Force = False,
) -> None:
    """Draft the schema of a table, to be completed by hand with what is publicly known.

    Example: hushpoint schema data.csv --target income -o data.schema.toml
    """
    from hushpoint._files import require_free, write_text
    from hushpoint.tables.draft import draft_schema

    if output is not None:
        require_free(output, force)
    text = draft_schema(data, target, groups)
    if output is None:
        typer.echo(text, nl=False)
        return
    write_text(output, text, force)
    typer.echo(
        f"Wrote {output}. It is a draft and private: correct its comments to what is publicly known, take each # away, "
        f"then run\n  hushpoint fit {data} --schema {output} --epsilon 1 -o model.json"
    )


def fit(
    data: Table,
    *,
    schema: Annotated[Path, typer.Option(help="The schema, completed: .toml or .json.")],
    epsilon: Annotated[float, typer.Option(help="The epsilon that may be spent.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the model (JSON).")],
    target: TargetOption = None,
    delta: Annotated[float | None, typer.Option(help="The delta; default: n**-1.1, n rows or users.")] = None,
    model: Annotated[
        str | None, typer.Option(help="logistic or svc; linear, lasso or huber; additive. Default: by the target.")
    ] = None,
    penalty: Annotated[str | None, typer.Option(help="l2, l1, elasticnet or none.")] = None,
    alpha: Annotated[
        float | None, typer.Option(help="Strength of the penalty; default: chosen without the data.")
    ] = None,
    adjacency: Annotated[str | None, typer.Option(help="replace-one or zero-out.")] = None,
    groups: GroupsOption = None,
    row_norm: Annotated[
        float | None, typer.Option(help="Longer rows are scaled down to this; default: from the schema.")
    ] = None,
    range_share: Annotated[
        float, typer.Option(help="Share of the budget for columns with learn = true; unused without them.")
    ] = 0.1,
    seed: Annotated[int | None, typer.Option(help="For experiments; a model to release needs none.", min=0)] = None,
    curve: CurveOption = None,
    guess: GuessOption = None,
    base_rate: BaseRateOption = 0.5,
    force: Force = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train a private model of a table.

    Example: hushpoint fit data.csv --schema data.schema.toml --target income --epsilon 1 -o model.json
    """
    from hushpoint._files import require_free
    from hushpoint.tables.training import fit_model

    require_free(output, force)  # before the budget is spent
    asked = asked_for(curve, schema, target, guess, base_rate, force)
    fitted = fit_model(
        data, schema, epsilon=epsilon, delta=delta, model=model, target=target, groups=groups, row_norm=row_norm,
        range_share=range_share, seed=seed, penalty=penalty, alpha=alpha, adjacency=adjacency,
    )  # fmt: skip
    fitted.save(output, force)
    found = asked.drawn(fitted) if asked else None
    try:
        if as_json:
            _print_json(fitted, output, {"expected": found.to_dict()} if found else {})
        else:
            _summarise(fitted, output, delta is None)
            if asked and found:
                typer.echo(f"\n{found}\nWrote {' and '.join(map(str, asked.files))}.")
        sys.stdout.flush()
    except OSError as error:
        if isinstance(error, BrokenPipeError) or not is_unprintable(error):
            raise
        give_up_printing()
        raise ValueError(f"{output} was written, but its summary cannot be printed: {error.strerror}.") from None


def predict(
    model: Annotated[Path, typer.Argument(help="A model that hushpoint fit or a federation wrote.")],
    data: Table,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where to write; default: print.")] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Add the probability of every class.")] = False,
    force: Force = False,
) -> None:
    """Predict the target for the rows of a table: a CSV with one line a row, in the same order.

    A model of arrays takes a .npz file with X, or a .npy file.

    Example: hushpoint predict model.json new.csv -o predictions.csv
    """
    from hushpoint._files import require_free
    from hushpoint.tables.model_file import load_model

    if output is not None:
        require_free(output, force)
    fitted = load_model(model)
    if proba and not fitted.has_probabilities:
        raise ValueError(f"{fitted.no_probabilities}. Leave out --proba.")
    # Everything is predicted before a line is printed: an error in the last row must not follow half an answer.
    parts = [_predicted(fitted, chunk, proba) for chunk in fitted.parts(data)]
    header = ["prediction", *(f"probability of {name}" for name in (fitted.classes or ()) if proba)]
    with _opened(output, force) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        for part in parts:
            writer.writerows(part)


def _predicted(fitted: ScoringModel, chunk: Any, proba: bool) -> list[list[Any]]:
    columns = [fitted.predict(chunk).tolist()]
    if proba:
        columns += fitted.predict_proba(chunk).T.tolist()
    return [list(row) for row in zip(*columns, strict=True)]


@contextmanager
def _opened(output: Path | None, force: bool) -> Iterator[IO[str]]:
    from hushpoint._files import written_whole

    if output is None:
        yield sys.stdout
    else:
        with written_whole(output, force) as file:
            yield file


def _print_json(fitted: TableModel, output: Path, more: dict[str, Any]) -> None:
    record = fitted.to_dict()
    shown = {key: record[key] for key in ("model", "features", "coefficients", "intercept", "classes", "details")}
    shown["deviations"] = record.get("deviations")
    typer.echo(json.dumps({"output": str(output), **shown, "guarantee": record["guarantee"], **more}, indent=2))


def _summarise(fitted: TableModel, output: Path, default_delta: bool) -> None:
    """What may be said aloud about the model: nothing here was computed from the rows but the model itself."""
    import numpy as np
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    from hushpoint.tables.model_file import TOLD_FROM_NOISE

    details, console = fitted.details, Console(highlight=False, markup=False)
    console.print(
        f"{fitted.kind} model of {fitted.schema.target!r}: {fitted.trained_on}, "
        f"{len(fitted.schema.features)} columns, {len(fitted.feature_names)} features, {details['steps']} steps, "
        f"row norm {fitted.encoding['row_norm']:.4g}.",
        soft_wrap=True,
    )
    console.print()
    console.print(str(fitted.guarantee), soft_wrap=False)
    if default_delta:
        base = "users" if details["users"] is not None else "rows"
        console.print(f"delta was not given: it is the number of {base} to the power -1.1.")
    order, coefficients = fitted.ranking, np.atleast_2d(fitted.coefficients)
    noise, z = fitted.deviations, fitted.z_values
    what = "Largest coefficients" if z is None else "Clearest coefficients"
    shown = order[:_SHOWN]
    grid = Grid(box=SIMPLE_HEAD, title=f"{what} ({len(shown)} of {coefficients.shape[1]})")
    grid.add_column("feature", overflow="fold")
    for title in fitted.score_titles:
        grid.add_column(Text(title), justify="right")

    def cells(values: Any, deviations: Any) -> list[str]:
        known = z is not None and deviations is not None
        return (
            [f"{v:+.3f} ± {d:.3f}" for v, d in zip(values, deviations, strict=True)]
            if known
            else [f"{v:+.3f}" for v in values]
        )

    spread = None if noise is None else np.atleast_2d(noise.coefficients)
    for j in shown:
        told = z is None or np.abs(np.atleast_2d(z)[:, j]).max() >= TOLD_FROM_NOISE
        name = fitted.feature_names[j] if told else f"{fitted.feature_names[j]} (noise)"
        of_it = cells(coefficients[:, j], None if spread is None else spread[:, j])
        grid.add_row(Text(name), *of_it, style=None if told else "dim")
    of_it = cells(np.atleast_1d(fitted.intercept), None if noise is None else np.atleast_1d(noise.intercept))
    grid.add_row(Text("(intercept)"), *of_it)
    console.print()
    console.print(grid)
    if z is not None:
        console.print(
            "± is the deviation that the privacy noise gives a coefficient; (noise) marks those of less than two."
        )
    console.print(f"Wrote {output}.", soft_wrap=True)
