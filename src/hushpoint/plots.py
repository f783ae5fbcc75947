"""Figures of a study, each from a saved table: PNG and SVG, the same bytes from the same rows.

One look: colours that colour-blind readers tell apart (Okabe and Ito), a marker of its own for every method so that
greyscale is enough, solid lines and full markers for what is proved, dashed lines and open markers for what is only
published. A method has the same colour and marker in every figure. Needs matplotlib, the extra ``plots``.
"""

from __future__ import annotations

import csv
import io
import math
import os
import secrets
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Row = Mapping[str, Any]
Rows = Iterable[Row]
Paths = tuple[Path, Path]

_DPI = 200
_LOOK: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same letters on every machine
    "font.size": 9.0,
    "axes.labelsize": 9.0,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 6.0,
    "lines.markeredgewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "text.parse_math": False,  # a label may hold a dollar sign
    "svg.fonttype": "path",
    "svg.hashsalt": "hushpoint",  # otherwise every file has names of its own inside
    "path.simplify": False,
}
_BLACK, _ORANGE, _SKY, _GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
_BLUE, _VERMILLION, _PURPLE, _GREY = "#0072B2", "#D55E00", "#CC79A7", "#595959"
_SPARE = [
    (_BLUE, "o"), (_VERMILLION, "^"), (_GREEN, "s"), (_PURPLE, "D"), (_ORANGE, "P"), (_BLACK, "X"), (_SKY, "v"),
    (_GREY, "h"), (_BLUE, "<"), (_VERMILLION, ">"), (_GREEN, "*"), (_PURPLE, "p"), (_ORANGE, "d"), (_BLACK, "8"),
]  # fmt: skip
_METHODS = {
    "private_admm": (_BLUE, "o"),
    "anchored_admm": (_GREEN, "s"),
    "federated_admm_local": (_VERMILLION, "^"),
    "federated_admm_published": (_VERMILLION, "^"),
    "decentralized_walk": (_PURPLE, "D"),
    "local_users": (_SKY, "v"),
    "dp_sgd_sampled": (_ORANGE, "P"),
    "dp_gd": (_BLACK, "X"),
}
_ACCOUNTANTS = {
    "rdp": ("Rényi DP", _ORANGE, "v"),
    "gdp": ("Gaussian DP", _BLUE, "o"),
    "pld": ("privacy-loss distribution", _SKY, "D"),
    "exact": ("exact loss of one pair of data sets", _BLACK, "X"),
    "last_iterate": ("last iterate only", _GREEN, "s"),
    "published": ("published, not proved", _VERMILLION, "^"),
}


@dataclass(frozen=True)
class _Series:
    """One curve: where it goes, and how it looks."""

    label: str
    colour: str
    marker: str
    published: bool
    x: tuple[float, ...]
    y: tuple[float, ...]
    spread: tuple[float, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.x)


# --- the figures ------------------------------------------------------------------------------------------------------


def frontier(table: Rows, path_stem: str | Path) -> Paths:
    """Test objective against epsilon, one panel for each trust model; rows without a finite epsilon are level lines."""
    rows = _checked("frontier", table, "method", "epsilon", "objective_mean")
    private, levels = _split(rows)
    with _look():
        panels = _grouped(private, "trust") or {"": []}
        figure, axes = _panels(len(panels), height=3.6)
        drawn = _styled(private, "epsilon", "objective_mean", "objective_std", by="trust")
        shown = [s for panel in drawn.values() for s in panel]
        log = _wide([*_ys(shown), *(_number(r, "objective_mean") for r in levels)])
        for ax, (trust, panel) in zip(axes, drawn.items(), strict=True):
            ax.set_title(_sentence(trust))
            _draw(ax, panel, bars=True)
            _levels(ax, levels, "objective_mean", name_them=ax is axes[0])
        _frame(axes, shown, x="log", y="log" if log else "linear", levels=_finite(levels, "objective_mean"))
        _name(axes, f"epsilon{_at_delta(private)}", "test objective")
        for ax in axes:
            _legend_below(ax)
        _note(figure, _bars_say(rows), _dashed_says(shown), _adjacency_says(private))
        return _saved(figure, path_stem)


def rounds(table: Rows, path_stem: str | Path) -> Paths:
    """Test objective against rounds and against numbers sent over the network, a line of panels for each epsilon."""
    rows = _checked("rounds", table, "method", "epsilon", "round", "objective_mean")
    private, levels = _split(rows)
    budgets = _grouped(private, "epsilon") or {"": []}
    talking = [row for row in private if _number(row, "numbers_sent") > 0]
    with _look():
        figure, axes = _panels(len(budgets) * (2 if talking else 1), columns=2 if talking else None)
        step = 2 if talking else 1
        for k, (epsilon, part) in enumerate(budgets.items()):
            curves = _styled(part, "round", "objective_mean", "objective_std", of=private)[""]
            _draw(axes[k * step], curves, band=True)
            _frame_x([axes[k * step]], [x for s in curves for x in s.x], "log" if _long(curves) else "linear")
            axes[k * step].set_title(_epsilon_is(epsilon))
            if talking:
                heard = [row for row in part if _number(row, "numbers_sent") > 0]
                sent = _styled(heard, "numbers_sent", "objective_mean", "objective_std", of=private)[""]
                _draw(axes[k * step + 1], sent, band=True)
                _frame_x([axes[k * step + 1]], [x for s in sent for x in s.x], "log")
                axes[k * step + 1].set_title(_epsilon_is(epsilon))
        shown = _styled(private, "round", "objective_mean", "objective_std")[""]
        for ax in axes:
            _levels(ax, levels, "objective_mean", name_them=ax is axes[0])
        known = _finite(levels, "objective_mean")
        _frame_y(axes, shown, "log" if _wide([*_ys(shown), *known]) else "linear", known)
        _name(axes[::step], "rounds", "test objective")
        if talking:
            _name(axes[1::step], "numbers sent over the network", "")
        _legend_outside(figure, axes)
        silent = talking and {_identity(r) for r in private} - {_identity(r) for r in talking}
        quiet = "Methods without a network are on the left only." if silent else ""
        _note(figure, _bars_say(rows, "Bands"), quiet)
        return _saved(figure, path_stem)


def guarantees(table: Rows, path_stem: str | Path) -> Paths:
    """The epsilon that each accountant gives for the same run, one panel for each method."""
    rows = _checked("guarantees", table, "method", "accountant", "steps", "epsilon")
    with _look():
        panels = _grouped(rows, "method", "label")
        several = any(len({_number(r, "steps") for r in part}) > 1 for part in panels.values())
        figure, axes = _panels(len(panels)) if several else _panels(1, width=6.4, height=1.2 + 0.45 * len(panels))
        shown: list[_Series] = []
        lost: list[str] = []
        for k, part in enumerate(panels.values()):
            curves = []
            by_name = _grouped(part, "accountant")
            for name in sorted(by_name, key=lambda name: list(_ACCOUNTANTS).index(name) if name in _ACCOUNTANTS else 9):
                own = by_name[name]
                said, colour, marker = _ACCOUNTANTS.get(name, (name, _GREY, "h"))
                published = name == "published" or any(row.get("basis") == "published" for row in own)
                points = sorted(_points(own, "steps", "epsilon"))
                if len(points) < len(own):
                    lost.append(f"{_label(own[0])}, {said}")
                xs, ys = tuple(x for x, *_ in points), tuple(y for _, y, _ in points)
                if not several:
                    xs, ys = ys, (float(k),) * len(ys)
                curves.append(_Series(said, colour, marker, published, xs, ys))
            ax = axes[k] if several else axes[0]
            if several:
                ax.set_title(_wrapped(_label(part[0]), 34))
            _draw(ax, curves, nested=several, line=several)
            shown += curves
        if several:
            _frame(axes, shown, x="log", y="log")
            _name(axes, "noisy steps", f"epsilon{_at_delta(rows)}")
        else:
            _frame_x(axes, [x for s in shown for x in s.x], "log")
            axes[0].set_yticks(range(len(panels)), [_wrapped(_label(part[0]), 30) for part in panels.values()])
            axes[0].set_ylim(len(panels) - 0.5, -0.5)
            axes[0].set_xlabel(f"epsilon{_at_delta(rows)}")
        _legend_outside(figure, axes)
        _note(figure, f"Infinite or unknown, not drawn: {'; '.join(dict.fromkeys(lost))}." if lost else "")
        return _saved(figure, path_stem)


def noise(table: Rows, path_stem: str | Path) -> Paths:
    """The noise that a budget asks for against the number of steps, one panel for each epsilon."""
    rows = _checked("noise", table, "method", "epsilon", "steps", "noise_std")
    with _look():
        panels = _grouped(rows, "epsilon")
        figure, axes = _panels(len(panels))
        shown: list[_Series] = []
        for ax, (epsilon, part) in zip(axes, panels.items(), strict=True):
            curves = _styled(part, "steps", "noise_std", of=rows)[""]
            ax.set_title(_epsilon_is(epsilon))
            _draw(ax, curves)
            shown += curves
        _frame(axes, shown, x="log", y="log")
        _name(axes, "noisy steps", "standard deviation of the noise")
        _legend_outside(figure, axes)
        _note(figure, _dashed_says(shown))
        return _saved(figure, path_stem)


def accuracy(table: Rows, path_stem: str | Path) -> Paths:
    """Test accuracy against epsilon, and against rounds at each epsilon for which several numbers of rounds were run.

    Against epsilon, of several numbers of rounds the one that most budgets have is shown, never the one that did best.
    """
    rows = _checked("accuracy", table, "method", "epsilon", "accuracy_mean")
    private, levels = _split(rows)
    by_budget = [
        _most_usual(own, _grouped(same, "rounds"))
        for same in _grouped(private, "method", "label").values()
        for own in _grouped(same, "epsilon").values()
    ]
    followed = {
        epsilon: part
        for epsilon, part in _grouped(private, "epsilon").items()
        if any(len({_number(r, "rounds") for r in own}) > 1 for own in _grouped(part, "method", "label").values())
    }
    with _look():
        figure, axes = _panels(1 + len(followed))
        first = _styled(by_budget, "epsilon", "accuracy_mean", "accuracy_std", of=private)[""]
        _draw(axes[0], first, bars=True)
        _frame_x(axes[:1], [x for s in first for x in s.x], "log")
        axes[0].set_xlabel(f"epsilon{_at_delta(private)}")
        shown = list(first)
        for ax, (epsilon, part) in zip(axes[1:], followed.items(), strict=True):
            curves = _styled(part, "rounds", "accuracy_mean", "accuracy_std", of=private)[""]
            _draw(ax, curves, bars=True)
            _frame_x([ax], [x for s in curves for x in s.x], "log")
            ax.set_title(_epsilon_is(epsilon))
            ax.set_xlabel("rounds")
            shown += curves
        for ax in axes:
            _levels(ax, levels, "accuracy_mean", name_them=ax is axes[0])
        _frame_y(axes, shown, "linear", _finite(levels, "accuracy_mean"))
        axes[0].set_ylabel("test accuracy")
        _legend_outside(figure, axes)
        _note(figure, _bars_say(rows), _dashed_says(shown))
        return _saved(figure, path_stem)


def as_published(table: Rows, path_stem: str | Path) -> Paths:
    """What the published recipe reports and what its last model gives, and the epsilon it states and really spends."""
    rows = _checked("as_published", table, "epsilon_stated", "epsilon_true")
    rows.sort(key=lambda row: _number(row, "epsilon_stated"))
    outcomes = [name.removesuffix("_mean") for name in rows[0] if name.startswith("objective_") and "_mean" in name]
    known = {"objective_best_iterate": ("best iterate on the test set, as reported", _VERMILLION, "^")}
    known["objective_last"] = ("last iterate", _BLUE, "o")
    with _look():
        figure, axes = _panels(2, height=3.6)
        curves = []
        for k, name in enumerate(outcomes):
            said, colour, marker = known.get(name, (name.removeprefix("objective_").replace("_", " "), *_SPARE[k + 2]))
            points = _points(rows, "epsilon_stated", f"{name}_mean", f"{name}_std")
            curves.append(_Series(said, colour, marker, name == "objective_best_iterate", *_columns(points)))
        _draw(axes[0], curves, bars=True)
        _frame(axes[:1], curves, x="log", y="log" if _wide(_ys(curves)) else "linear")
        _name(axes[:1], "epsilon as stated", "test objective")
        points = _points(rows, "epsilon_stated", "epsilon_true")
        spent = _Series("spent by the recipe", _BLACK, "X", False, *_columns(points))
        stated = [x for x in (_number(row, "epsilon_stated") for row in rows) if math.isfinite(x) and x > 0]
        promise = _Series("as stated", _VERMILLION, "", True, tuple(stated), tuple(stated))
        _draw(axes[1], [spent, promise])
        _frame(axes[1:], [spent, promise], x="log", y="log")
        endless = [_number(r, "epsilon_stated") for r in rows if _number(r, "epsilon_true") == math.inf]
        if endless:
            top = axes[1].get_ylim()[1]
            axes[1].plot(endless, [top] * len(endless), "^", color=_BLACK, clip_on=False, label="infinite")
        _name(axes[1:], "epsilon as stated", "epsilon")
        for ax in axes:
            _legend_below(ax)
        _note(figure, _bars_say(rows))
        return _saved(figure, path_stem)


FIGURES: dict[str, Callable[[Rows, str | Path], Paths]] = {
    "frontier": frontier,
    "rounds": rounds,
    "guarantees": guarantees,
    "noise": noise,
    "accuracy": accuracy,
    "as_published": as_published,
}


def draw_all(run_directory: str | Path) -> dict[str, Paths]:
    """Draw every table of a run that has a figure into its ``figures`` folder; tables without rows are left out."""
    run = Path(run_directory)
    drawn: dict[str, Paths] = {}
    for name, draw in FIGURES.items():
        table = run / "tables" / f"{name}.csv"
        rows = read_rows(table) if table.is_file() else []
        if rows:
            (run / "figures").mkdir(exist_ok=True)
            drawn[name] = draw(rows, run / "figures" / name)
    return drawn


def read_rows(path: str | Path) -> list[dict[str, str]]:
    """The rows of a saved table, all as text."""
    with Path(path).open(encoding="utf-8", newline="") as text:
        return list(csv.DictReader(text))


# --- from rows to curves ----------------------------------------------------------------------------------------------


def _checked(name: str, table: Rows, *columns: str) -> list[Row]:
    rows = list(table)
    if not rows:
        raise ValueError(f"the table {name!r} has no rows. Run the study first.")
    absent = [column for column in columns if column not in rows[0]]
    if absent:
        raise ValueError(f"the table {name!r} lacks the columns {', '.join(absent)}. It has: {', '.join(rows[0])}.")
    return rows


def _number(row: Row, column: str) -> float:
    """A cell as a number; an empty or absent one is not a number."""
    value = row.get(column)
    if value is None or value in ("", "None"):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"the column {column!r} holds {value!r}. It should hold numbers.") from None


def _split(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Rows with a budget, and those without one, to compare with."""
    private = [row for row in rows if math.isfinite(_number(row, "epsilon"))]
    return private, [row for row in rows if not math.isfinite(_number(row, "epsilon"))]


def _grouped(rows: Sequence[Row], *columns: str) -> dict[Any, list[Row]]:
    """Rows by the text of some columns, in the order in which they come; numbers in their own."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        key = tuple(str(row.get(column) or "") for column in columns)
        groups.setdefault(key if len(key) > 1 else key[0], []).append(row)
    if columns == ("epsilon",):
        groups = dict(sorted(groups.items(), key=lambda entry: _number(entry[1][0], "epsilon")))
    return groups


def _identity(row: Row) -> tuple[str, ...]:
    """What makes a curve one: the method, and what its guarantee is about."""
    return tuple(str(row.get(name) or "") for name in ("method", "label", "basis", "trust", "view", "adjacency"))


def _label(row: Row) -> str:
    return str(row.get("label") or row.get("method") or "")


def _published(row: Row) -> bool:
    return row.get("basis") == "published" or str(row.get("method")).endswith("_published")


def _styled(
    rows: Sequence[Row], x: str, y: str, spread: str = "", *, by: str = "", of: Sequence[Row] | None = None
) -> dict[str, list[_Series]]:
    """The curves of a table, by the text of one column; colours and markers as for the whole table ``of``."""
    looks: dict[tuple[str, ...], _Series] = {}
    taken: set[tuple[str, str, bool]] = set()
    everything = rows if of is None else of
    usual = _usual_adjacency(everything)
    for row in everything:
        key = _identity(row)
        if key not in looks:
            published = _published(row)
            spare = [_METHODS[row["method"]]] if row["method"] in _METHODS else []
            reserved = {(*look, False) for name, look in _METHODS.items() if name in {r["method"] for r in everything}}
            spare += [look for look in _SPARE if (*look, False) not in reserved]
            colour, marker = next((look for look in spare if (*look, published) not in taken), _SPARE[0])
            taken.add((colour, marker, published))
            other = row.get("adjacency") not in (None, "", usual)
            label = _label(row) + (f" ({row['adjacency']})" if other else "")
            looks[key] = _Series(label, colour, marker, published, (), ())
    curves: dict[str, list[_Series]] = {name: [] for name in _grouped(rows, by)} if by else {"": []}
    owned: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        owned.setdefault(_identity(row), []).append(row)
    for key, own in owned.items():
        xs, ys, spreads = _columns(_points(own, x, y, spread))
        curves.setdefault(str(own[0].get(by) or "") if by else "", []).append(
            replace(looks[key], x=xs, y=ys, spread=spreads)
        )
    return curves or {"": []}


def _points(rows: Sequence[Row], x: str, y: str, spread: str = "") -> list[tuple[float, float, float]]:
    """Finite points in order; an unknown spread is 0."""
    points = []
    for row in rows:
        where, what = _number(row, x), _number(row, y)
        wide = _number(row, spread) if spread else 0.0
        if math.isfinite(where) and math.isfinite(what):
            points.append((where, what, wide if math.isfinite(wide) else 0.0))
    return sorted(points)


def _most_usual(rows: Sequence[Row], everywhere: Mapping[Any, Sequence[Row]]) -> Row:
    """Of the rows of one method and budget, that with the rounds which most budgets have; of equals the longest."""
    return max(rows, key=lambda row: (len(everywhere[str(row.get("rounds") or "")]), _number(row, "rounds")))


def _usual_adjacency(rows: Sequence[Row]) -> str:
    named = [str(row["adjacency"]) for row in rows if row.get("adjacency")]
    return max(dict.fromkeys(named), key=named.count) if named else ""


def _columns(points: Sequence[tuple[float, float, float]]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(point[k] for point in points) for k in range(3))


def _ys(curves: Sequence[_Series]) -> list[float]:
    return [y for curve in curves for y in curve.y]


def _finite(rows: Sequence[Row], column: str) -> list[float]:
    return [value for row in rows if math.isfinite(value := _number(row, column))]


# --- axes and lines ---------------------------------------------------------------------------------------------------


@contextmanager
def _look() -> Iterator[None]:
    """The look of every figure, whatever the reader's own settings of matplotlib are."""
    try:
        import matplotlib
    except ImportError:
        raise ValueError("figures need matplotlib. Install it: pip install 'hushpoint[plots]'.") from None

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        for setting, value in _LOOK.items():
            matplotlib.rcParams[setting] = value  # type: ignore[index]
        yield


def _panels(
    count: int, *, columns: int | None = None, width: float | None = None, height: float = 2.7
) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    columns = columns or {1: 1, 2: 2, 4: 2}.get(count, 3)
    lines = -(-count // columns)
    wide = width or {1: 5.6, 2: 3.9, 3: 3.2}[columns]
    figure = Figure(figsize=(wide * columns, height * lines), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False)
    axes = [ax for line in grid for ax in line]
    for ax in axes[count:]:
        ax.remove()
    return figure, axes[:count]


def _draw(
    ax: Axes,
    curves: Sequence[_Series],
    *,
    bars: bool = False,
    band: bool = False,
    nested: bool = False,
    line: bool = True,
) -> None:
    for k, curve in enumerate(curves):
        if not curve:
            continue
        look: dict[str, Any] = {
            "color": curve.colour,
            "marker": curve.marker,
            "linestyle": ("--" if curve.published else "-") if line else "none",
            "markerfacecolor": "white" if curve.published else curve.colour,
            "markeredgecolor": curve.colour if curve.published else "white",  # marks on top of each other stay apart
            "markeredgewidth": 1.2 if curve.published else 0.6,
            "label": _wrapped(curve.label, 38),
            "zorder": 3,
        }
        if len(curve.x) > 9:  # a few marks are enough to know a curve, at places of its own
            look["markevery"] = (k % 3, max(1, len(curve.x) // 7))
        if nested:  # curves that coincide show as stripes
            look["linewidth"], look["markersize"] = max(1.2, 3.2 - 0.6 * k), max(4.5, 7.5 - 0.9 * k)
        spread = curve.spread if any(curve.spread) else None
        if bars and spread is not None:
            ax.errorbar(curve.x, curve.y, yerr=spread, elinewidth=0.9, capsize=2.2, **look)
        else:
            ax.plot(curve.x, curve.y, **look)
        if band and spread is not None:
            low = [y - s for y, s in zip(curve.y, spread, strict=True)]
            high = [y + s for y, s in zip(curve.y, spread, strict=True)]
            ax.fill_between(curve.x, low, high, color=curve.colour, alpha=0.13, linewidth=0)


def _levels(ax: Axes, rows: Sequence[Row], column: str, *, name_them: bool) -> None:
    """Level lines, named where the first panel has room: at the left, where the curves are far from the optimum."""
    for row in rows:
        value = _number(row, column)
        if math.isfinite(value):
            ax.axhline(value, color=_GREY, linewidth=1.0, linestyle=(0, (1, 1.5)), zorder=2)
            if name_them:
                ax.annotate(
                    _label(row), (0.015, value), xycoords=("axes fraction", "data"), xytext=(0, 2.5),
                    textcoords="offset points", color=_GREY, fontsize=8,
                )  # fmt: skip


def _frame(axes: Sequence[Axes], curves: Sequence[_Series], *, x: str, y: str, levels: Sequence[float] = ()) -> None:
    """The same limits for all panels, so that they compare."""
    _frame_x(axes, [value for curve in curves for value in curve.x], x)
    _frame_y(axes, curves, y, levels)


def _frame_x(axes: Sequence[Axes], values: Sequence[float], scale: str) -> None:
    for ax in axes:
        _limits(ax, "x", values, scale)


def _frame_y(axes: Sequence[Axes], curves: Sequence[_Series], scale: str, levels: Sequence[float] = ()) -> None:
    ends = list(levels)
    for curve in curves:
        spreads = curve.spread or (0.0,) * len(curve.y)
        for y, spread in zip(curve.y, spreads, strict=True):
            # On a log axis a bar may reach below zero: it then leaves at the bottom and does not set the limit.
            ends += [y, y + spread, y - spread if scale == "linear" or y - spread > y / 4 else y]
    for k, ax in enumerate(axes):
        _limits(ax, "y", ends, scale)
        place = ax.get_subplotspec()
        if k and place is not None and not place.is_first_col():
            ax.tick_params(labelleft=False)


def _limits(ax: Axes, which: str, values: Sequence[float], scale: str) -> None:
    axis: Axis = getattr(ax, f"{which}axis")
    known = [value for value in values if scale == "linear" or value > 0]
    if not known:
        ax.text(0.5, 0.5, "no finite values", transform=ax.transAxes, ha="center", color=_GREY)
        return
    low, high = min(known), max(known)
    if scale == "log":
        getattr(ax, f"set_{which}scale")("log")
        room = (high / low) ** 0.05 if high > low else 2.0
        getattr(ax, f"set_{which}lim")(low / room, high * room)
        _label_decades(axis, math.log10(high / low))
    else:
        reach = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
        getattr(ax, f"set_{which}lim")(low - reach, high + reach)


def _label_decades(axis: Axis, decades: float) -> None:
    """Plain numbers on a log axis: every decade, and 2 and 5 between them where there are few."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    steps = (1.0, 2.0, 5.0) if decades < 1.7 else (1.0,)
    axis.set_major_locator(LogLocator(subs=steps, numticks=7 if decades >= 1.7 else 12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _shown(value)))
    axis.set_minor_formatter(NullFormatter())


def _wide(values: Sequence[float]) -> bool:
    """Whether values are positive and differ enough for a log axis."""
    known = [value for value in values if math.isfinite(value)]
    return bool(known) and min(known) > 0 and max(known) / min(known) > 4


def _long(curves: Sequence[_Series]) -> bool:
    known = [x for curve in curves for x in curve.x if x > 0]
    return bool(known) and max(known) / min(known) > 100


# --- words ------------------------------------------------------------------------------------------------------------


def _name(axes: Sequence[Axes], x: str, y: str) -> None:
    for k, ax in enumerate(axes):
        place = ax.get_subplotspec()
        ax.set_xlabel(x)
        if k == 0 or (place is not None and place.is_first_col()):
            ax.set_ylabel(y)


def _legend_below(ax: Axes) -> None:
    if ax.get_legend_handles_labels()[1]:
        ax.legend(loc="upper left", bbox_to_anchor=(-0.02, -0.2), borderaxespad=0.0, handlelength=2.8)


def _legend_outside(figure: Figure, axes: Sequence[Axes]) -> None:
    """One legend for all panels, below what the layout placed: saving makes room for it."""
    named: dict[str, Any] = {}
    for ax in axes:
        handles, labels = ax.get_legend_handles_labels()
        for handle, label in zip(handles, labels, strict=True):
            named.setdefault(label, handle)
    if named:
        columns = min(len(named), max(1, int(figure.get_figwidth() // 3.0)))
        figure.legend(
            list(named.values()), list(named), ncols=columns, handlelength=2.8,
            loc="upper center", bbox_to_anchor=(0.5, 0.0), borderaxespad=0.4,
        )  # fmt: skip


def _note(figure: Figure, *sentences: str) -> None:
    """What a reader must know, below everything else."""
    said = " ".join(sentence for sentence in sentences if sentence)
    if said:
        _place(figure)
        bottoms = [legend.get_window_extent().y0 for legend in figure.legends]
        low = min([0.0, *bottoms]) / figure.bbox.height
        wide = int(figure.get_figwidth() * 16)
        figure.text(0.5, low - 0.012, _wrapped(said, wide), fontsize=7.5, color=_GREY, ha="center", va="top")


def _place(figure: Figure) -> None:
    """Settle the layout, once for both files."""
    if figure.get_layout_engine() is not None:
        figure.draw_without_rendering()
        figure.set_layout_engine(None)


def _wrapped(text: str, width: int) -> str:
    return textwrap.fill(text, width, break_on_hyphens=False)


def _shown(value: float) -> str:
    """A number as short as can be: 1e-6, 0.05, 20, 10k, 3M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if 10 * size <= abs(value) < 1e4 * size or (abs(value) == size == 1e6):
            return f"{value / size:g}{letter}"
    return f"{value:g}".replace("e-0", "e-").replace("e+0", "e")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _epsilon_is(value: Any) -> str:
    return f"epsilon = {_shown(float(value))}" if value not in ("", None) else ""


def _at_delta(rows: Sequence[Row]) -> str:
    deltas = {_number(row, "delta") for row in rows if math.isfinite(_number(row, "delta"))}
    return f" (delta = {_shown(deltas.pop())})" if len(deltas) == 1 else ""


def _bars_say(rows: Sequence[Row], what: str = "Bars") -> str:
    rows = [row for row in rows if any(_number(row, name) > 0 for name in row if name.endswith("_std"))]
    if not rows:
        return ""
    runs = sorted({int(_number(row, "runs")) for row in rows if math.isfinite(_number(row, "runs"))})
    of = "" if not runs else f" of {runs[0]} runs" if len(runs) == 1 else f" of {runs[0]} to {runs[-1]} runs"
    return f"{what}: one standard deviation{of}."


def _adjacency_says(rows: Sequence[Row]) -> str:
    """A comparison across adjacencies must say so."""
    several = len({row.get("adjacency") for row in rows if row.get("adjacency")}) > 1
    return f"Adjacency: {_usual_adjacency(rows)} where no other is named." if several else ""


def _dashed_says(curves: Sequence[_Series]) -> str:
    return "Dashed: published, not proved." if any(curve.published for curve in curves) else ""


def _saved(figure: Figure, path_stem: str | Path) -> Paths:
    """Both files, each there whole or not at all, without dates or versions inside."""
    stem = Path(path_stem)
    _place(figure)
    box = figure.get_tightbbox().padded(0.08)
    kinds: dict[str, dict[str, Any]] = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
    paths = []
    for kind, metadata in kinds.items():
        content = io.BytesIO()
        figure.savefig(content, format=kind, dpi=_DPI, metadata=metadata, bbox_inches=box)
        place = stem.with_name(f"{stem.name}.{kind}")
        draft = stem.with_name(f".{stem.name}.{secrets.token_hex(4)}.part")
        try:
            draft.write_bytes(content.getvalue())
            os.replace(draft, place)
        finally:
            draft.unlink(missing_ok=True)
        paths.append(place)
    return paths[0], paths[1]
