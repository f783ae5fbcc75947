"""The studies on the command line: run one, or what is left of it, and print what it shows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

Out = Annotated[Path, typer.Option(help="Where to write; an interrupted study there is continued.")]
Quick = Annotated[bool, typer.Option("--quick", help="A smaller version, in one to two minutes on two cores.")]
Seed = Annotated[int, typer.Option(help="Seed of data, tuning and noise.", min=0)]
Jobs = Annotated[int, typer.Option(help="Worker processes.", min=1)]

_NEXT = """
What next:
  {page}
      the figures, what the guarantees mean, and all numbers, in a browser
  {command} reproduce lasso --as-published
      the whole study, in about ten minutes; docs/study.md says what it shows
  {command} schema TABLE.csv
      the first step to a private model of your own table: docs/howto-tables.md"""


@contextmanager
def _resumable() -> Iterator[None]:
    """Say how to go on where a study is interrupted."""
    from hushpoint.experiments.study import Interrupted

    try:
        yield
    except Interrupted as stopped:
        typer.echo(f"Interrupted: {stopped}. Run the same command again to go on.", err=True)
        raise typer.Exit(130) from None


def lasso(
    out: Out = Path("runs/lasso"),
    quick: Quick = False,
    seed: Seed = 0,
    as_published: Annotated[
        bool, typer.Option("--as-published", help="Also run the recipe behind the paper's figure, mistakes and all.")
    ] = False,
    jobs: Jobs = 2,
) -> None:
    """The paper's Lasso: every method by the same budget, adjacency, accountant and tuning effort.

    About ten minutes on two cores; an interrupted run goes on where it stopped.

    Example: hushpoint reproduce lasso --quick --out runs/quick
    """
    from hushpoint.experiments.lasso import run_lasso

    with _resumable():
        run_lasso(out, quick=quick, as_published=as_published, seed=seed, jobs=jobs)


def demo(out: Out = Path("runs/demo"), seed: Seed = 0, jobs: Jobs = 2) -> None:
    """Compare every method on the paper's Lasso in about a minute: a table, figures and a page to read.

    The quick version of 'hushpoint reproduce lasso --as-published'. Example: hushpoint demo
    """
    from hushpoint.experiments.lasso import run_lasso

    with _resumable():
        run_lasso(out, quick=True, as_published=True, seed=seed, jobs=jobs, brief=True)
    command = "hushpoint" if Path(sys.argv[0]).is_absolute() else sys.argv[0]  # from make: .venv/bin/hushpoint
    typer.echo(_NEXT.format(page=out / "report.html", command=command))


def logistic(
    data: Annotated[Path, typer.Option(help="A table: .csv, .csv.gz or .parquet, for example Adult.")],
    out: Out = Path("runs/logistic"),
    target: Annotated[str | None, typer.Option(help="The column to predict; default: the schema's.")] = None,
    schema: Annotated[
        Path | None, typer.Option(help="The declared columns and ranges (.toml or .json); built in for Adult.")
    ] = None,
    quick: Quick = False,
    seed: Seed = 0,
    jobs: Jobs = 2,
) -> None:
    """Logistic loss on a table of yours: accuracy against epsilon and against rounds.

    About ten minutes on two cores for Adult (45,000 rows); an interrupted run goes on where it stopped.

    Example: hushpoint reproduce logistic --data adult.csv.gz
    """
    from hushpoint.experiments.logistic import run_logistic

    with _resumable():
        run_logistic(out, data, target=target, schema=schema, quick=quick, seed=seed, jobs=jobs)


def communication(out: Out = Path("runs/communication"), quick: Quick = False, seed: Seed = 0, jobs: Jobs = 2) -> None:
    """Rounds and bytes to 1% of the non-private objective: ADMM, DP-FedAvg and DP-FedSGD by the same user-level budget.

    Example: hushpoint reproduce communication --quick
    """
    from hushpoint.experiments.communication import run_communication

    with _resumable():
        run_communication(out, quick=quick, seed=seed, jobs=jobs)
