"""The look of every figure: panels, lines, axes, words, and files that are the same bytes again."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushpoint._files import write_bytes
from hushpoint.plots.curves import BLACK, GREY, Row, Series, number_in, usual_adjacency
from hushpoint.privacy.guarantee import _up as rounded_up

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Paths = tuple[Path, Path]
Levels = Sequence[tuple[str, float]]

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


@contextmanager
def look() -> Iterator[None]:
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


def panels(
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


def draw(
    ax: Axes, curves: Sequence[Series], *, bars: bool = False, last_bar: bool = False, nested: bool = False,
    line: bool = True,
) -> None:  # fmt: skip
    """Curves on axes that have their limits: with a bar at every point or only at the last, or with none.

    Bars are set apart sideways, and ``nested`` curves are the thinner the later they come, so that none hides another.
    """
    apart = _sideways(curves) if bars else 1.0
    for k, given in enumerate(curves):
        curve = given.above_zero(ax.get_xscale() == "log", ax.get_yscale() == "log")
        if not curve:
            continue
        style: dict[str, Any] = {
            "color": curve.colour,
            "marker": curve.marker,
            "linestyle": ("--" if curve.published else "-") if line else "none",
            "markerfacecolor": "white" if curve.published else curve.colour,
            "markeredgecolor": curve.colour if curve.published else "white",  # marks on top of each other stay apart
            "markeredgewidth": 1.2 if curve.published else 0.6,
            "label": wrapped(curve.label, 40),
            "zorder": 3,
        }
        if len(curve.x) > 9:  # a few marks are enough to know a curve, at places of its own
            style["markevery"] = (k % 3, max(1, len(curve.x) // 7))
        if nested:
            style["linewidth"], style["markersize"] = max(1.2, 3.2 - 0.6 * k), max(4.5, 7.5 - 0.9 * k)
        xs = [x * apart ** (k - (len(curves) - 1) / 2) for x in curve.x]
        if bars and any(curve.spread):
            top = ax.get_ylim()[1]  # what is above it is written at the edge, without a bar
            spread = [wide if y <= top else 0.0 for y, wide in zip(curve.y, curve.spread, strict=True)]
            ax.errorbar(xs, curve.y, yerr=spread, elinewidth=0.9, capsize=2.2, **style)
        else:
            ax.plot(xs, curve.y, **style)
        if last_bar and any(curve.spread[-1:]):
            ax.errorbar(
                xs[-1:], curve.y[-1:], yerr=curve.spread[-1:], color=curve.colour, elinewidth=0.9, capsize=2.2, zorder=3
            )
        _beyond(ax, curve, xs)


def _sideways(curves: Sequence[Series]) -> float:
    """The factor between the places of neighbouring curves at one x of a log axis: a little of the axis."""
    known = [x for curve in curves for x in curve.x if x > 0]
    if len(curves) < 2 or not known:
        return 1.0
    step = min(0.012, 0.03 / (len(curves) - 1))
    return float(10 ** (step * max(math.log10(max(known) / min(known)), 0.5)))


def _beyond(ax: Axes, curve: Series, xs: Sequence[float]) -> None:
    """Write what is above the axis at its edge."""
    (left, right), top = ax.get_xlim(), ax.get_ylim()[1]
    for x, y in zip(xs, curve.y, strict=True):
        if y > top:
            # To the left, since such curves come down on the right; not where that would leave the axes.
            room = math.log(x / left) > 0.2 * math.log(right / left) if left > 0 else x - left > 0.2 * (right - left)
            _write(
                ax, f"↑{short(float(f'{y:.2g}'))}", (x, 1.0), ("data", "axes fraction"), (-3 if room else 4, -1),
                va="top", ha="right" if room else "center", color=curve.colour, fontsize=7.5,
            )  # fmt: skip


def _write(ax: Axes, text: str, place: Any, of: Any, offset: tuple[float, float], **style: Any) -> None:
    """Words on top of everything, with a white edge."""
    from matplotlib.patheffects import withStroke

    edge = [withStroke(linewidth=2.5, foreground="white")]
    ax.annotate(
        text, place, xycoords=of, xytext=offset, textcoords="offset points", zorder=5, path_effects=edge, **style
    )


def at_the_top(ax: Axes, xs: Sequence[float]) -> None:
    """Infinite values: triangles at the upper edge."""
    if xs:
        top = ax.get_ylim()[1]
        ax.plot(xs, [top] * len(xs), "^", color=BLACK, clip_on=False, label="proved of it: nothing (infinite)")


def level_lines(ax: Axes, levels: Levels, *, named: bool, falling: bool = True) -> None:
    """Level lines, named where curves leave room: falling ones do at the lower left and at the upper right."""
    low, high = ax.get_ylim()
    for name, value in levels:
        ax.axhline(value, color=GREY, linewidth=1.0, linestyle=(0, (1, 1.5)), zorder=2)
        if named:
            log = ax.get_yscale() == "log"
            share = math.log(value / low) / math.log(high / low) if log else (value - low) / (high - low)
            right, edge = (share > 0.5) == falling, share > 0.9
            _write(
                ax, name, (0.985 if right else 0.015, value), ("axes fraction", "data"), (0, -2.5 if edge else 2.5),
                ha="right" if right else "left", va="top" if edge else "baseline", color=GREY, fontsize=8,
            )  # fmt: skip


def frame(
    axes: Sequence[Axes], curves: Sequence[Series], *, x: str | None = None, y: str | None = None,
    levels: Levels = (), ceiling: float = math.inf,
) -> None:  # fmt: skip
    """The same limits for all panels, so that they compare."""
    frame_x(axes, curves, x)
    frame_y(axes, curves, levels, scale=y, ceiling=ceiling)


def frame_x(axes: Sequence[Axes], curves: Sequence[Series], scale: str | None = None) -> None:
    """Limits of x; without a scale, log where values differ a hundredfold."""
    values = [x for curve in curves for x in curve.x]
    for ax in axes:
        _limits(ax, "x", values, scale or ("log" if _span([x for x in values if x > 0]) > 100 else "linear"))


def frame_y(
    axes: Sequence[Axes], curves: Sequence[Series], levels: Levels = (), *, scale: str | None = None,
    ceiling: float = math.inf,
) -> None:  # fmt: skip
    """Limits of y that hold bars and level lines; without a scale, log where values differ more than fourfold."""
    known = [y for curve in curves for y in curve.y] + [value for _, value in levels]
    scale = scale or ("log" if _span([min(y, ceiling) for y in known]) > 4 else "linear")
    ends = list(known)
    for curve in curves:
        for y, spread in zip(curve.y, curve.spread or (0.0,) * len(curve.y), strict=True):
            # On a log axis a bar may reach below zero: it then leaves at the bottom and does not set the limit.
            ends += [y + spread, y - spread if scale == "linear" or y - spread > y / 4 else y]
    for ax in axes:
        _limits(ax, "y", [min(end, ceiling) for end in ends], scale)
        place = ax.get_subplotspec()
        if place is not None and not place.is_first_col():
            ax.tick_params(labelleft=False)


def _span(values: Sequence[float]) -> float:
    """How many times the smallest the largest is; 1 where not all are positive."""
    return max(values) / min(values) if values and min(values) > 0 else 1.0


def _limits(ax: Axes, which: str, values: Sequence[float], scale: str) -> None:
    axis: Axis = getattr(ax, f"{which}axis")
    known = [value for value in values if scale == "linear" or value > 0]
    if not known:
        ax.text(0.5, 0.5, "no finite values", transform=ax.transAxes, ha="center", color=GREY)
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
    axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axis.set_minor_formatter(NullFormatter())


def name_axes(axes: Sequence[Axes], x: str | None, y: str) -> None:
    """Names of the axes; y at the left edge only."""
    for ax in axes:
        place = ax.get_subplotspec()
        if x is not None:
            ax.set_xlabel(x)
        if place is None or place.is_first_col():
            ax.set_ylabel(y)


def legend_below(ax: Axes) -> None:
    if ax.get_legend_handles_labels()[1]:
        from matplotlib.transforms import ScaledTranslation

        figure = ax.get_figure(root=True)
        assert figure is not None
        below = ax.transAxes + ScaledTranslation(0, -0.5, figure.dpi_scale_trans)  # inches: the name of the axis
        ax.legend(
            loc="upper left", bbox_to_anchor=(-0.02, 0.0), bbox_transform=below, borderaxespad=0, handlelength=2.8
        )


def legend_outside(figure: Figure, axes: Sequence[Axes]) -> None:
    """One legend for all panels, below what the layout placed: saving makes room for it."""
    named: dict[str, Any] = {}
    for ax in axes:
        handles, labels = ax.get_legend_handles_labels()
        for handle, label in zip(handles, labels, strict=True):
            named.setdefault(label, handle)
    if named:
        columns = min(len(named), max(1, int(figure.get_figwidth() // 2.7)))
        figure.legend(
            list(named.values()), list(named), ncols=columns, handlelength=2.8,
            loc="upper center", bbox_to_anchor=(0.5, 0.0), borderaxespad=0.4,
        )  # fmt: skip


def note(figure: Figure, *sentences: str, apart: Sequence[Series] = ()) -> None:
    """What a reader must know, below everything else."""
    said = [sentence for sentence in sentences if sentence]
    if len(apart) > 1 and any(any(curve.spread) for curve in apart):
        said.append("Marks are set apart sideways so that none hides another.")
    if said:
        _place(figure)
        bottoms = [legend.get_window_extent().y0 for legend in figure.legends]
        low = min([0.0, *bottoms]) / figure.bbox.height
        text = wrapped(" ".join(said), int(figure.get_figwidth() * 16))
        figure.text(0.5, low - 0.012, text, fontsize=7.5, color=GREY, ha="center", va="top")


def _place(figure: Figure) -> None:
    """Settle the layout, once for both files."""
    if figure.get_layout_engine() is not None:
        figure.draw_without_rendering()
        figure.set_layout_engine(None)


def wrapped(text: str, width: int) -> str:
    return textwrap.fill(text, width, break_on_hyphens=False)


def short(value: float) -> str:
    """A number as short as can be: 1e-6, 0.05, 20, 10k, 3M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if 10 * size <= abs(value) < 1e4 * size or (abs(value) == size == 1e6):
            return f"{value / size:g}{letter}"
    return f"{value:g}".replace("e-0", "e-").replace("e+0", "e")


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def epsilon_is(value: Any) -> str:
    return f"epsilon = {short(float(value))}" if value not in ("", None) else ""


def at_delta(rows: Sequence[Row]) -> str:
    deltas = {number_in(row, "delta") for row in rows if math.isfinite(number_in(row, "delta"))}
    return f" (delta = {short(float(rounded_up(deltas.pop())))})" if len(deltas) == 1 else ""


def bars_say(rows: Sequence[Row], what: str = "Bars") -> str:
    rows = [row for row in rows if any(number_in(row, name) > 0 for name in row if name.endswith("_std"))]
    if not rows:
        return ""
    runs = sorted({int(number_in(row, "runs")) for row in rows if math.isfinite(number_in(row, "runs"))})
    of = "" if not runs else f" of {runs[0]} runs" if len(runs) == 1 else f" of {runs[0]} to {runs[-1]} runs"
    return f"{what}: one standard deviation{of}."


def adjacency_says(rows: Sequence[Row]) -> str:
    """A comparison across adjacencies must say so."""
    several = len({row.get("adjacency") for row in rows if row.get("adjacency")}) > 1
    return f"Adjacency: {usual_adjacency(rows)} where no other is named." if several else ""


def dashed_says(curves: Sequence[Series]) -> str:
    return "Dashed: published, not proved." if any(curve.published for curve in curves) else ""


def saved(figure: Figure, path_stem: str | Path) -> Paths:
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
        write_bytes(place, content.getvalue())
        paths.append(place)
    return paths[0], paths[1]
