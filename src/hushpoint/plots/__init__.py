"""Figures of a study, each from a saved table: PNG and SVG, the same bytes from the same rows.

One look: colours that colour-blind readers tell apart (Okabe and Ito), a marker of its own for every method so that
greyscale is enough, solid lines and full markers for what is proved, dashed lines and open markers for what is only
published. A method has the same colour and marker in every figure. Needs matplotlib, the extra ``plots``.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from pathlib import Path

from hushpoint.plots import drawing
from hushpoint.plots.curves import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    SPARE,
    VERMILLION,
    Rows,
    Series,
    by_curve,
    checked,
    grouped,
    label_of,
    levels_in,
    most_usual,
    number_in,
    points_of,
    split_by_budget,
    styled,
)

__all__ = [
    "FIGURES",
    "accuracy",
    "as_published",
    "draw_all",
    "frontier",
    "gaps",
    "guarantees",
    "noise",
    "read_rows",
    "rounds",
]

Paths = tuple[Path, Path]

_ACCOUNTANTS = {
    "rdp": ("Rényi DP", ORANGE, "v"),
    "gdp": ("Gaussian DP", BLUE, "o"),
    "pld": ("privacy-loss distribution", SKY, "D"),
    "exact": ("exact, one pair", BLACK, "X"),
    "last_iterate": ("last-iterate bound", GREEN, "s"),
    "published": ("published, not proved", VERMILLION, "^"),
}
_ENOUGH = [("within 1%", 0.01)]
_SEEN = {"final": "final model", "iterates": "every iterate", "messages": "every message", "network": "by a peer"}
_OUTCOMES = {
    "objective_best_iterate": ("best iterate on the test set, as reported", VERMILLION, "^"),
    "objective_last": ("last iterate", BLUE, "o"),
}


def frontier(table: Rows, path_stem: str | Path) -> Paths:
    """Test objective against epsilon, one panel for each trust model.

    Rows without a finite epsilon are level lines. If one of them is the method ``zero``, the model that uses no data,
    the axis ends a little above it, and what is worse still is written at the edge.
    """
    rows = checked("frontier", table, "method", "epsilon", "objective_mean")
    private, others = split_by_budget(rows)
    levels = levels_in(others, "objective_mean")
    useless = [number_in(row, "objective_mean") for row in others if row["method"] == "zero"]
    with drawing.look():
        by_trust = styled(private, "epsilon", "objective_mean", "objective_std", by="trust")
        shown = [curve for part in by_trust.values() for curve in part]
        figure, axes = drawing.panels(len(by_trust), width=3.5 if len(by_trust) > 4 else None, height=3.6)
        drawing.frame(axes, shown, x="log", levels=levels, ceiling=2 * max(useless) if useless else math.inf)
        for ax, (trust, part) in zip(axes, by_trust.items(), strict=True):
            ax.set_title(drawing.sentence(trust))
            drawing.draw(ax, part, bars=True)
            drawing.level_lines(ax, levels, named=ax is axes[0])
            drawing.legend_below(ax)
        drawing.name_axes(axes, f"epsilon{drawing.at_delta(private)}", "test objective")
        drawing.note(
            figure, drawing.bars_say(rows), drawing.dashed_says(shown), drawing.adjacency_says(private), apart=shown
        )
        return drawing.saved(figure, path_stem)


def rounds(table: Rows, path_stem: str | Path) -> Paths:
    """Test objective against rounds and against numbers sent over the network, a line of panels for each epsilon."""
    rows = checked("rounds", table, "method", "epsilon", "round", "objective_mean")
    private, others = split_by_budget(rows)
    levels = levels_in(others, "objective_mean")
    sending = [row for row in private if number_in(row, "numbers_sent") > 0]
    sides = [("round", "rounds", private)]
    if sending:
        sides.append(("numbers_sent", "numbers sent over the network", sending))
    with drawing.look():
        budgets = list(grouped(private, "epsilon")) or [""]
        figure, axes = drawing.panels(len(budgets) * len(sides), columns=2 if sending else None)
        everything = styled(private, "round", "objective_mean", "objective_std")[""]
        drawing.frame_y(axes, everything, levels)
        for k, ax in enumerate(axes):
            epsilon, (column, title, own) = budgets[k // len(sides)], sides[k % len(sides)]
            part = [row for row in own if str(row["epsilon"]) == epsilon]
            curves = styled(part, column, "objective_mean", "objective_std", of=private)[""]
            drawing.frame_x([ax], curves)
            drawing.draw(ax, curves, last_bar=True)
            # Named where most room is: over the network every curve begins level, and ends on the right.
            drawing.level_lines(ax, levels, named=k == len(sides) - 1, falling=not sending)
            ax.set_title(drawing.epsilon_is(epsilon))
            ax.set_xlabel(title)
        drawing.name_axes(axes, None, "test objective")
        drawing.legend_outside(figure, axes)
        silent = sending and len(by_curve(sending)) < len(by_curve(private))
        drawing.note(
            figure,
            drawing.bars_say(rows, "Bars at the ends"),
            "Each round's own model; what is released may be the mean of the last rounds.",
            "Methods without a network are on the left only." if silent else "",
            drawing.dashed_says(everything),
        )
        return drawing.saved(figure, path_stem)


def guarantees(table: Rows, path_stem: str | Path) -> Paths:
    """The epsilon that each accountant gives for the same run: a panel for each method, or a line of marks.

    Lines of marks, where every method has one number of steps only.
    """
    rows = checked("guarantees", table, "method", "accountant", "steps", "epsilon")
    methods = list(grouped(rows, "method", "label").values())
    several = any(len({number_in(row, "steps") for row in part}) > 1 for part in methods)
    lost: list[str] = []
    parts: list[list[Series]] = []
    for k, part in enumerate(methods):
        curves, by_name = [], grouped(part, "accountant")
        for name in sorted(by_name, key=lambda name: [*_ACCOUNTANTS, name].index(name)):
            said, colour, marker = _ACCOUNTANTS.get(name, (name, GREY, "h"))
            published = name == "published" or by_name[name][0].get("basis") == "published"
            xs, ys, spreads = points_of(by_name[name], "steps", "epsilon")
            if len(xs) < len(by_name[name]):
                lost.append(f"{label_of(part[0])}, {said}")
            x, y = (xs, ys) if several else (ys, (float(k),) * len(ys))
            if several and by_name[name][0].get("view"):
                # Bounds about different things meet in one panel: each says what is seen.
                view = str(by_name[name][0]["view"])
                said = f"{said} ({_SEEN.get(view, view)})"
            curves.append(Series(said, colour, marker, published, x, y, spreads))
        parts.append(curves)
    shown = [curve for curves in parts for curve in curves]
    with drawing.look():
        if several:
            figure, axes = drawing.panels(len(methods), height=3.7)
            drawing.frame(axes, shown, x="log", y="log")
            for ax, part, curves in zip(axes, methods, parts, strict=True):
                ax.set_title(drawing.wrapped(drawing.sentence(label_of(part[0])), 34))
                drawing.draw(ax, curves, nested=True)
                drawing.legend_below(ax)
            drawing.name_axes(axes, "noisy steps", f"epsilon{drawing.at_delta(rows)}")
        else:
            figure, axes = drawing.panels(1, width=6.4, height=1.2 + 0.45 * len(methods))
            drawing.frame_x(axes, shown, "log")
            drawing.draw(axes[0], shown, line=False)
            names = [drawing.wrapped(label_of(part[0]), 30) for part in methods]
            axes[0].set_yticks(range(len(names)), names)
            axes[0].set_ylim(len(names) - 0.5, -0.5)
            axes[0].set_xlabel(f"epsilon{drawing.at_delta(rows)}")
            drawing.legend_outside(figure, axes)
        drawing.note(figure, f"Infinite or unknown, not drawn: {'; '.join(dict.fromkeys(lost))}." if lost else "")
        return drawing.saved(figure, path_stem)


def noise(table: Rows, path_stem: str | Path) -> Paths:
    """The noise that a budget asks for against the number of steps, one panel for each epsilon."""
    rows = checked("noise", table, "method", "epsilon", "steps", "noise_std")
    with drawing.look():
        by_budget = {
            epsilon: styled(part, "steps", "noise_std", of=rows)[""]
            for epsilon, part in grouped(rows, "epsilon").items()
        }
        shown = [curve for curves in by_budget.values() for curve in curves]
        figure, axes = drawing.panels(len(by_budget))
        drawing.frame(axes, shown, x="log", y="log")
        for ax, (epsilon, curves) in zip(axes, by_budget.items(), strict=True):
            ax.set_title(drawing.epsilon_is(epsilon))
            drawing.draw(ax, curves, nested=True)
        drawing.name_axes(axes, "noisy steps", "standard deviation of the noise")
        drawing.legend_outside(figure, axes)
        drawing.note(figure, drawing.dashed_says(shown), drawing.adjacency_says(rows))
        return drawing.saved(figure, path_stem)


def accuracy(table: Rows, path_stem: str | Path) -> Paths:
    """Test accuracy against epsilon, and against rounds at each epsilon for which several numbers of rounds were run.

    Against epsilon, of several numbers of rounds the one that most budgets have is shown, never the one that did best.
    """
    rows = checked("accuracy", table, "method", "epsilon", "accuracy_mean")
    private, others = split_by_budget(rows)
    levels = levels_in(others, "accuracy_mean")
    by_budget = [
        most_usual(own, same)
        for same in grouped(private, "method", "label").values()
        for own in grouped(same, "epsilon").values()
    ]
    followed = {
        epsilon: styled(part, "rounds", "accuracy_mean", "accuracy_std", of=private)[""]
        for epsilon, part in grouped(private, "epsilon").items()
        if any(len({number_in(row, "rounds") for row in own}) > 1 for own in grouped(part, "method", "label").values())
    }
    with drawing.look():
        first = styled(by_budget, "epsilon", "accuracy_mean", "accuracy_std", of=private)[""]
        shown = [*first, *(curve for curves in followed.values() for curve in curves)]
        figure, axes = drawing.panels(1 + len(followed))
        drawing.frame_y(axes, shown, levels, scale="linear")
        drawing.frame_x(axes[:1], first, "log")
        drawing.draw(axes[0], first, bars=True)
        axes[0].set_title(_lengths(by_budget))
        axes[0].set_xlabel(f"epsilon{drawing.at_delta(private)}")
        for ax, (epsilon, curves) in zip(axes[1:], followed.items(), strict=True):
            drawing.frame_x([ax], curves, "log")
            drawing.draw(ax, curves, bars=True)
            ax.set_title(drawing.epsilon_is(epsilon))
            ax.set_xlabel("rounds")
        for ax in axes:
            drawing.level_lines(ax, levels, named=ax is axes[0], falling=False)
        drawing.name_axes(axes, None, "test accuracy")
        drawing.legend_outside(figure, axes)
        drawing.note(figure, drawing.bars_say(rows), drawing.dashed_says(shown), apart=shown)
        return drawing.saved(figure, path_stem)


def gaps(table: Rows, path_stem: str | Path) -> Paths:
    """The gap to the least objective against rounds and against bytes, a column of panels for each epsilon."""
    rows = checked("gaps", table, "method", "epsilon", "rounds", "bytes", "gap_mean")
    rows, _ = split_by_budget(rows)
    budgets = grouped(rows, "epsilon") or {"": []}
    with drawing.look():
        figure, axes = drawing.panels(2 * len(budgets), columns=len(budgets), width=3.4)
        everything = styled(rows, "rounds", "gap_mean", "gap_std")[""]
        drawing.frame_y(axes, everything, _ENOUGH, scale="log")
        for k, ax in enumerate(axes):
            epsilon, part = list(budgets.items())[k % len(budgets)]
            column = ("rounds", "bytes")[k // len(budgets)]
            curves = styled(part, column, "gap_mean", "gap_std", of=rows)[""]
            drawing.frame_x([ax], styled(rows, column, "gap_mean")[""], "log")
            drawing.draw(ax, curves, bars=True)
            drawing.level_lines(ax, _ENOUGH, named=k == len(budgets) - 1, falling=False)
            ax.set_title(drawing.epsilon_is(epsilon))
            ax.set_xlabel({"rounds": "planned rounds", "bytes": "bytes, all rounds and users"}[column])
        drawing.name_axes(axes, None, "gap to the least objective, relative")
        drawing.legend_outside(figure, axes)
        drawing.note(figure, drawing.bars_say(rows))
        return drawing.saved(figure, path_stem)


def _lengths(rows: Rows) -> str:
    """The number of rounds that most rows have, and whether it is that of all."""
    lengths = [number_in(row, "rounds") for row in rows if math.isfinite(number_in(row, "rounds"))]
    if not lengths:
        return ""
    usual = max(lengths, key=lengths.count)
    return f"{usual:.0f} rounds" + ("" if set(lengths) == {usual} else ", or the method's own")


def as_published(table: Rows, path_stem: str | Path) -> Paths:
    """What the published recipe reports and what its last model gives; the epsilon it states and what is known of it.

    ``epsilon_at_least``, where there is one, is a lower bound on what it spends. The columns ``nonprivate`` and
    ``start``, where they are, give level lines.
    """
    rows = checked("as_published", table, "epsilon_stated", "epsilon_true")
    x = "epsilon_stated"
    outcomes = []
    for k, name in enumerate(c.removesuffix("_mean") for c in rows[0] if c.startswith("objective_") and "_mean" in c):
        said, colour, marker = _OUTCOMES.get(name, (name.removeprefix("objective_").replace("_", " "), *SPARE[k + 2]))
        points = points_of(rows, x, f"{name}_mean", f"{name}_std")
        outcomes.append(Series(said, colour, marker, name == "objective_best_iterate", *points))
    spent = [
        Series("proved of it, at most", BLACK, "X", False, *points_of(rows, x, "epsilon_true")),
        Series("shown, at least", PURPLE, "D", False, *points_of(rows, x, "epsilon_at_least")),
        Series("as stated", VERMILLION, "", True, *points_of(rows, x, x)),
    ]
    levels = [
        (said, number_in(rows[0], column))
        for column, said in (("nonprivate", "no privacy"), ("start", "start"))
        if math.isfinite(number_in(rows[0], column))
    ]
    with drawing.look():
        figure, axes = drawing.panels(2, height=3.6)
        drawing.frame(axes[:1], outcomes, x="log", levels=levels)
        drawing.draw(axes[0], outcomes, bars=True)
        drawing.level_lines(axes[0], levels, named=True)
        drawing.frame(axes[1:], spent, x="log", y="log")
        drawing.draw(axes[1], spent)
        drawing.at_the_top(axes[1], [number_in(r, x) for r in rows if number_in(r, "epsilon_true") == math.inf])
        axes[1].tick_params(labelleft=True)
        for ax, title in zip(axes, ("test objective", "epsilon"), strict=True):
            ax.set_xlabel("epsilon as stated")
            ax.set_ylabel(title)
            drawing.legend_below(ax)
        axes[0].set_title(drawing.wrapped(drawing.sentence(label_of(rows[0])), 44))
        drawing.note(figure, drawing.bars_say(rows), apart=outcomes)
        return drawing.saved(figure, path_stem)


FIGURES: dict[str, Callable[[Rows, str | Path], Paths]] = {
    "frontier": frontier,
    "rounds": rounds,
    "guarantees": guarantees,
    "noise": noise,
    "accuracy": accuracy,
    "gaps": gaps,
    "as_published": as_published,
    "as_published_baseline": as_published,
}


def draw_all(run_directory: str | Path) -> dict[str, Paths]:
    """Draw every table of a run that has a figure into its ``figures`` folder; tables without rows are left out."""
    run = Path(run_directory)
    drawn: dict[str, Paths] = {}
    for name, figure in FIGURES.items():
        table = run / "tables" / f"{name}.csv"
        rows = read_rows(table) if table.is_file() else []
        if rows:
            (run / "figures").mkdir(exist_ok=True)
            drawn[name] = figure(rows, run / "figures" / name)
    return drawn


def read_rows(path: str | Path) -> list[dict[str, str]]:
    """The rows of a saved table, all as text."""
    with Path(path).open(encoding="utf-8", newline="") as text:
        return list(csv.DictReader(text))
