"""The picture of what epsilon is needed: expected scores against epsilon, with their range."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushpoint._checks import require_positive
from hushpoint.plots import drawing
from hushpoint.plots.curves import BLUE, VERMILLION, Series

if TYPE_CHECKING:
    from hushpoint.estimators.expected import ExpectedAccuracy

_NAMES = {"accuracy": "expected test accuracy", "R2": "expected test R2"}


def expected(found: ExpectedAccuracy, path_stem: str | Path, *, chosen: float | None = None) -> tuple[Path, Path]:
    """Draw ``hp.utility.expected_accuracy`` against epsilon: the curve, nine models of ten, and what bounds it.

    Parameters
    ----------
    found : ExpectedAccuracy
    path_stem : path
        Written are a PNG and an SVG of this name.
    chosen : float, optional
        An epsilon to mark.
    """
    curve = Series("expected", BLUE, "o", False, found.epsilons, found.expected)
    edges = [Series("", BLUE, "", False, found.epsilons, side) for side in (found.low, found.high)]
    if chosen is not None:
        edges.append(Series("", BLUE, "", False, (require_positive("chosen", chosen),), found.expected[:1]))
    levels = [(f"without privacy, a guess: {found.guess:.3g}", found.guess)]
    levels.append((f"a model that knows nothing: {found.base_rate:.3g}", found.base_rate))
    with drawing.look():
        figure, axes = drawing.panels(1, height=3.6)
        ax = axes[0]
        drawing.frame_x(axes, [curve, *edges], "log")
        drawing.frame_y(axes, [curve, *edges], levels, scale="linear")
        bottom, top = ax.get_ylim()
        ax.set_ylim(bottom, top + 0.08 * (top - bottom))  # a name has room above the highest line
        drawing.draw(ax, [curve])
        ax.fill_between(
            found.epsilons, found.low, found.high, color=BLUE, alpha=0.18, linewidth=0, label="9 of 10 models"
        )
        if chosen is not None:
            _mark(ax, chosen)
        drawing.level_lines(ax, levels, named=True, falling=False)
        drawing.name_axes(
            axes, f"epsilon (delta = {drawing.short(float(f'{found.delta:.2g}'))})", _NAMES[found.measure]
        )
        drawing.legend_outside(figure, axes)
        drawing.note(
            figure,
            f"{found.n} people, {found.p} features, {found.adjacency}.",
            "From public facts and a guess; no data was read.",
        )
        return drawing.saved(figure, path_stem)


def _mark(ax: Any, chosen: float) -> None:
    ax.axvline(chosen, color=VERMILLION, linewidth=1.2, zorder=2, label=f"chosen: epsilon = {drawing.short(chosen)}")
