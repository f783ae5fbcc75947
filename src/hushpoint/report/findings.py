"""The page of a study's directory (``hushpoint reproduce``)."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hushpoint.plots import read_rows
from hushpoint.report.page import Html, commands, document, element, figure, folded, number, table, warning
from hushpoint.report.words import LIMITS, WATCHERS, guess_bound, percent, rounded_up

FORMAT = 1
_LONGEST = 300  # rows of a table that a page holds
_KINDS = {".svg": "image/svg+xml", ".png": "image/png"}
_FIGURES = {
    "frontier": (
        "Privacy against utility",
        "Test objective (lower is better) against the budget epsilon (smaller is more private), by whom one trusts.",
    ),
    "rounds": (
        "Convergence",
        "Test objective against rounds, and against how many numbers were sent over the network, at fixed budgets: "
        "each round's own model, where the frontier may show the mean of the last half of the rounds.",
    ),
    "guarantees": (
        "What the accountants say",
        "The epsilon of the same runs by each way of accounting. A published line below the exact loss claims more "
        "privacy than there is.",
    ),
    "noise": (
        "The price of steps",
        "The noise that a budget asks for, against the number of noisy steps, with step size or gamma = 1. Each method "
        "adds it in another place, so compare slopes rather than heights.",
    ),
    "accuracy": ("Accuracy", "Test accuracy (higher is better) against the budget epsilon and against rounds."),
    "gaps": (
        "Rounds and bytes",
        "How far the objective is above the least one (lower is better), against planned rounds and against the bytes "
        "of all of them, with all users in every round.",
    ),
    "as_published": (
        "The published recipe",
        "Left: what the recipe behind the paper's figure reports and what its last model gives. Right: the epsilon it "
        "states, what is proved of it, and what it spends at least where that is known.",
    ),
    "as_published_baseline": ("The published baseline", "The same for the DP-SGD that the paper compares with."),
}


def study_page(directory: Path) -> str:
    """The page, from run.json, the tables and the figures."""
    run = _run(directory)
    tables = {name: _inside(directory, place, "table") for name, place in run.get("tables", {}).items()}
    rows = {name: _rows(name, place) for name, place in tables.items() if place.is_file()}
    lead = (
        f"The study {run.get('name', directory.name)!r}, run with seed {run.get('seed')} and Hushpoint "
        f"{run.get('version')}."
    )
    return document(
        str(run.get("title") or f"The study {run.get('name', '')}"),
        lead,
        [
            ("What it shows", [*_cautions(run), *_claims(run)]),
            ("Figures", _figures(directory, run, rows)),
            ("What the guarantees mean", _guarantees(run, rows.get("frontier", []) or rows.get("accuracy", []))),
            ("What was run", [table("The settings", ("setting", "value"), _flat(run.get("settings") or {}))]),
            ("All numbers", list(_all_rows(run, rows))),
            ("Run it again", _again(run)),
        ],
    )


def _run(directory: Path) -> dict[str, Any]:
    run = json.loads((directory / "run.json").read_text(encoding="utf-8"))
    if run.get("format") != FORMAT:
        raise ValueError(
            f"{str(directory)!r} has format {run.get('format')!r}, and this Hushpoint reads format {FORMAT}. "
            "Use the Hushpoint that made it, or run the study again."
        )
    return dict(run)


def _rows(name: str, place: Path) -> list[dict[str, str]]:
    try:
        return read_rows(place)
    except (OSError, ValueError, csv.Error):
        raise ValueError(f"the table {name!r} cannot be read as a CSV file. Run the study again.") from None


def _inside(directory: Path, place: Any, what: str) -> Path:
    """A file of the run; a run.json from elsewhere must not put other files of this machine on a page."""
    path = (directory / str(place)).resolve()
    if not path.is_relative_to(directory.resolve()):
        raise ValueError(f"run.json names the {what} {str(place)!r}, which is outside the run. The file was changed.")
    return path


def _cautions(run: Mapping[str, Any]) -> Iterator[Html]:
    if not run.get("finished", True):
        yield warning("Not finished.", "This run was interrupted: what follows comes from the cells that were done.")
    if run.get("quick"):
        yield warning("A quick version.", "Smaller grids and fewer repetitions than the full study.")


def _claims(run: Mapping[str, Any]) -> list[Html]:
    summary, claims = run.get("summary") or [], run.get("claims") or []
    if not summary and not claims:
        return [element("p", "The study made no claims.")]
    short, all_of_them = (element("ul", *(element("li", claim) for claim in part)) for part in (summary, claims))
    if not summary:
        return [all_of_them]
    return [short, folded(f"In detail ({len(claims)} sentences)", all_of_them)] if claims else [short]


def _guarantees(run: Mapping[str, Any], frontier: Sequence[Mapping[str, str]]) -> list[Html]:
    settings = run.get("settings") or {}
    said = (
        "A private method adds random noise so that its outcome says little about any one contribution. Epsilon "
        "measures how little: change one contribution, and the odds of any outcome change by at most a factor "
        "e^epsilon, but for a probability delta. Smaller is more private."
    )
    parts = [element("p", said), element("p", LIMITS)]
    budgets = sorted({(float(r["epsilon"]), _delta(r, settings)) for r in frontier if _finite(r.get("epsilon"))})
    if budgets:
        said = (
            "Suppose that someone knows all other data and must say which of two equally likely cases holds for one "
            "contribution. Without the outcome they are right half of the time. With it, at most:"
        )
        lines = [(number(epsilon), number(delta), percent(guess_bound(epsilon, delta))) for epsilon, delta in budgets]
        header = ("epsilon", "delta", "right at most")
        parts += [element("p", said), table("How often a guess can be right", header, lines)]
    seen: dict[tuple[str, ...], None] = {}
    for row in frontier:
        if _finite(row.get("epsilon")):
            view = WATCHERS.get(row.get("view", ""), row.get("view", ""))
            basis = "published, not proved" if row.get("basis") == "published" else row.get("basis", "")
            about = (row.get("label") or row.get("method", ""), row.get("trust", ""), view)
            seen[(*about, row.get("unit", ""), row.get("adjacency", ""), basis)] = None
    if seen:
        titles = ("method", "trust", "holds against", "protects one", "adjacency", "basis")
        said = (
            "Replace-one: one contribution exchanged for any other. Zero-out: one contribution counts for nothing. "
            "Published, not proved: the paper says so, and cases are known in which it does not hold. Noise in a "
            "study comes from a seed, so that it can be run again; a model for release must use none."
        )
        parts += [table("What each method's epsilon is about", titles, seen), element("p", said)]
    return parts


def _figures(directory: Path, run: Mapping[str, Any], rows: Mapping[str, list[dict[str, str]]]) -> list[Html]:
    parts: list[Html] = []
    for name, place in run.get("figures", {}).items():
        title, caption = _FIGURES.get(name, (name.replace("_", " "), ""))
        parts.append(element("h3", title))
        path = _inside(directory, place, "figure")
        if path.suffix not in _KINDS:
            raise ValueError(f"run.json names the figure {str(place)!r}. Figures are .svg or .png files.")
        if path.is_file():
            alternative = f"{title}. {caption} The numbers are in the table {name} below."
            parts.append(figure(_KINDS[path.suffix], path.read_bytes(), alternative, caption))
        else:
            parts.append(warning("Not drawn.", f"The file {place} is not there. Run the study again to draw it."))
        if name == "frontier" and rows.get("frontier"):
            parts.append(_summary(rows["frontier"]))
    return parts or [element("p", "The run has no figures.")]


def _summary(frontier: Sequence[Mapping[str, str]]) -> Html:
    """The frontier as a grid: methods down, budgets across."""
    budgets = sorted({float(row["epsilon"]) for row in frontier if _finite(row.get("epsilon"))})
    lines: dict[str, dict[float, str]] = {}
    for row in frontier:
        name = row.get("label") or row.get("method", "")
        if row.get("basis") == "published":
            name += " (published, not proved)"
        cell = _short(row["objective_mean"], 3) if _finite(row.get("objective_mean")) else ""
        if cell and _finite(row.get("objective_std")):
            cell += f" ± {_short(row['objective_std'], 1)}"
        where = [float(row["epsilon"])] if _finite(row.get("epsilon")) else budgets  # no budget: the same everywhere
        for epsilon in where:
            lines.setdefault(name, {})[epsilon] = cell
    header = ["method", *(f"eps {number(epsilon)}" for epsilon in budgets)]
    cells = ([name, *(known.get(epsilon, "") for epsilon in budgets)] for name, known in lines.items())
    return table("Test objective, mean ± standard deviation (lower is better), by epsilon", header, cells)


def _short(text: str, digits: int) -> str:
    """A number with a few digits, a large one without a power of ten."""
    value = float(text)
    return f"{float(f'{value:.{digits}g}'):,.0f}" if abs(value) >= 100 else f"{value:.{digits}g}"


def _flat(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in record.items():
        title = f"{prefix}{str(name).replace('_', ' ')}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{title}: ")
        elif isinstance(value, list):
            entries = (json.dumps(entry) if isinstance(entry, (list, dict)) else number(entry) for entry in value)
            yield title, ", ".join(entries)
        else:
            yield title, "none" if value is None else number(value)


def _all_rows(run: Mapping[str, Any], rows: Mapping[str, list[dict[str, str]]]) -> Iterator[Html]:
    for name, lines in rows.items():
        if not lines:
            continue
        header, shown = list(lines[0]), lines[:_LONGEST]
        caption = f"{run['tables'][name]}: {len(lines):,} rows"
        if len(shown) < len(lines):
            caption += f", of which the first {len(shown):,} are here"
        cells = ([_shown(column, line.get(column)) for column in header] for line in shown)
        yield folded(f"{name.replace('_', ' ')} ({len(lines):,} rows)", table(caption, header, cells))


def _shown(column: str, text: str | None) -> str:
    """A cell; a bound must not look smaller than it is."""
    bound = column.startswith(("epsilon", "delta")) and _finite(text)
    return rounded_up(float(text)) if bound and text is not None else number(text)


def _again(run: Mapping[str, Any]) -> list[Html]:
    said = f"With Hushpoint {run.get('version')} this command gives the same tables, byte for byte:"
    return [element("p", said), commands(str(run.get("command", "")))]


def _delta(row: Mapping[str, str], settings: Mapping[str, Any]) -> float:
    given = row.get("delta")
    if _finite(given):
        return float(str(given))
    return float(settings["delta"]) if _finite(settings.get("delta")) else 0.0


def _finite(text: Any) -> bool:
    try:
        return math.isfinite(float(text))
    except (TypeError, ValueError):
        return False
