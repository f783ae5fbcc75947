"""The command line."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import click
import typer

from hushpoint._checks import require_choice
from hushpoint._version import __version__
from hushpoint.commands import (
    evaluation,
    federated,
    federated_check,
    federated_members,
    report,
    reproduce,
    standing,
    tabular,
)
from hushpoint.commands.printing import give_up_printing, is_unprintable

app = typer.Typer(
    add_completion=False,
    suggest_commands=not hasattr(click.exceptions, "NoSuchCommand"),  # where click suggests itself, once is enough
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # the values of variables may be people's data
    help="Private optimisation as noisy fixed-point iteration, with guarantees that hold.",
)

Method = Annotated[str, typer.Argument(help="A function of hushpoint.methods, for example private_admm.")]
Parameters = Annotated[
    list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Its arguments, for example steps=20 gamma=10.")
]
Items = Annotated[int, typer.Option(help="Number of items: records, or users.")]
Features = Annotated[int, typer.Option(help="Number of features.")]
Loss = Annotated[str, typer.Option(help="squared, logistic, huber, smoothed_hinge, absolute or quantile.")]
RowNorm = Annotated[float | None, typer.Option(help="Declared bound on the length of a row.")]
Clip = Annotated[float | None, typer.Option(help="Bound on the gradient of a row (truncated loss).")]
Ridge = Annotated[float, typer.Option(help="Strength of an L2 regulariser.")]
RowsPerUser = Annotated[int | None, typer.Option(help="Rows of each user, if items are users.")]
Delta = Annotated[float, typer.Option(help="The delta of (epsilon, delta).")]
View = Annotated[str | None, typer.Option(help="final, iterates, messages or network.")]
Adjacency = Annotated[str | None, typer.Option(help="replace-one or zero-out.")]
Unit = Annotated[str | None, typer.Option(help="user or record.")]
Published = Annotated[bool, typer.Option("--allow-published", help="Accept bounds of the paper that are not proved.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _plainly(command: Callable[..., None]) -> Callable[..., None]:
    """Show a ValueError as the sentence it is, without a traceback."""

    @wraps(command)
    def wrapped(*args: Any, **options: Any) -> None:
        try:
            command(*args, **options)
        except ValueError as error:
            typer.echo(f"Error: {error}", err=True)
            raise typer.Exit(2) from None

    return wrapped


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hushpoint {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Private optimisation as noisy fixed-point iteration, with guarantees that hold."""


_studies = typer.Typer(no_args_is_help=True, help="Run a study, or what is left of it, and print what it shows.")
_federated = typer.Typer(no_args_is_help=True, help="Train across sites that keep their data, on Flower or in process.")
app.add_typer(_studies, name="reproduce")
app.add_typer(_federated, name="federated")
for _family, _commands in (
    (_studies, (reproduce.lasso, reproduce.logistic, reproduce.communication)),
    (_federated, (federated.init, federated.keys, federated.admit, federated.plan, federated.accept)),
    (_federated, (federated_check.check, federated.superlink, federated.site)),
    (_federated, (federated.run, federated.simulate, standing.status, standing.readmit)),
    (_federated, (federated_members.join, federated_members.leave)),
    (_federated, (federated_members.rotate, federated_members.revoke)),
    (app, (tabular.schema, tabular.fit, tabular.predict, evaluation.evaluate, report.report, reproduce.demo)),
):
    for _command in _commands:
        _family.command()(_plainly(_command))


@app.command()
@_plainly
def account(
    method: Method,
    parameters: Parameters = None,
    *,
    items: Items,
    features: Features = 1,
    loss: Loss = "logistic",
    row_norm: RowNorm = None,
    clip: Clip = None,
    ridge: Ridge = 0.0,
    rows_per_user: RowsPerUser = None,
    delta: Delta = 1e-5,
    view: View = None,
    adjacency: Adjacency = None,
    unit: Unit = None,
    allow_published: Published = False,
    as_json: AsJson = False,
) -> None:
    """Say what a viewer learns from a run, without any data.

    Example: hushpoint account private_admm steps=20 gamma=10 noise_std=0.3 --items 1000 --row-norm 1
    """
    problem = _declared(items, features, loss, row_norm, clip, ridge, rows_per_user, delta)
    plan = _make(method, problem, _parsed(parameters))
    guarantee = plan.guarantee(delta, view, adjacency, unit, allow_published=allow_published)
    typer.echo(json.dumps(guarantee.to_dict(), indent=2) if as_json else str(guarantee))


@app.command()
@_plainly
def calibrate(
    method: Method,
    parameters: Parameters = None,
    *,
    epsilon: Annotated[float, typer.Option(help="The epsilon that may be spent.")],
    items: Items,
    features: Features = 1,
    loss: Loss = "logistic",
    row_norm: RowNorm = None,
    clip: Clip = None,
    ridge: Ridge = 0.0,
    rows_per_user: RowsPerUser = None,
    delta: Delta = 1e-5,
    view: View = None,
    adjacency: Adjacency = None,
    unit: Unit = None,
    as_json: AsJson = False,
) -> None:
    """Find the noise that a budget asks for, without any data.

    Example: hushpoint calibrate private_admm steps=20 gamma=10 --epsilon 1 --items 1000 --row-norm 1
    """
    from hushpoint.privacy.guarantee import Budget

    problem = _declared(items, features, loss, row_norm, clip, ridge, rows_per_user, delta)
    budget = Budget(epsilon, delta, view, adjacency, unit)  # type: ignore[arg-type]
    plan = _make(method, problem, {**_parsed(parameters), "budget": budget})
    guarantee, noise_std = plan.guarantee(delta), plan.parameters["noise_std"]
    if as_json:
        typer.echo(json.dumps({"noise_std": noise_std, "guarantee": guarantee.to_dict()}, indent=2))
    else:
        typer.echo(f"noise_std = {noise_std!r}\n{guarantee}")


def _declared(
    items: int, features: int, loss: str, row_norm: float | None, clip: float | None, ridge: float,
    rows_per_user: int | None, delta: float,
) -> Any:  # fmt: skip
    """The problem, for which the delta must be small enough."""
    from hushpoint.problem import Problem
    from hushpoint.regularizers import L2
    from hushpoint.tables.budget import settled_delta

    penalty = L2(ridge) if ridge else None
    problem = Problem.declared(
        items, features, loss, penalty, row_norm=row_norm, clip=clip, rows_per_item=rows_per_user
    )
    settled_delta(delta, items, problem.facts.unit)
    return problem


def _make(method: str, problem: Any, arguments: dict[str, Any]) -> Any:
    from hushpoint import methods

    require_choice("method", method, methods.__all__)
    try:
        return getattr(methods, method)(problem, **arguments)
    except TypeError as error:
        raise ValueError(f"{error}. Pass its arguments as NAME=VALUE.") from None


def _parsed(parameters: list[str] | None) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for entry in parameters or []:
        name, equals, text = entry.partition("=")
        if not equals:
            raise ValueError(f"parameter is {entry!r}. Write NAME=VALUE, for example steps=20.")
        arguments[name] = _value(text)
    return arguments


def _value(text: str) -> Any:
    """A number (also ".3"), list, truth (also as Python writes it) or text."""
    if text in ("True", "False"):
        return text == "True"
    for read in (json.loads, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def main() -> None:
    """Entry point of ``hushpoint``."""
    if sys.stdout is None:  # closed by the caller, who wants to see nothing
        sys.stdout = io.StringIO()
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # a failure can still be told here; later the interpreter would tell it in its own words
    except OSError as error:
        if not is_unprintable(error):
            raise
        give_up_printing()
        if isinstance(error, BrokenPipeError):  # the reader has seen enough
            sys.exit(1)
        typer.echo(f"Error: the output cannot be printed: {error.strerror}.", err=True)
        sys.exit(2)
