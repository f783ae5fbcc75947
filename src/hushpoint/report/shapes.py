"""What each column of an additive model adds to its score, drawn with the noise in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from hushpoint._types import Array
from hushpoint.preprocessing.shapes import is_wide
from hushpoint.report.page import Html, element, escaped, folded, joined, number, table
from hushpoint.schema import Number

if TYPE_CHECKING:
    from hushpoint.tables.array_model import ArrayModel
    from hushpoint.tables.model_file import TableModel

_NOISE_COLOUR = "#A8A8A8"
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")  # of scores, as many as there is room for
_WIDTH, _HEIGHT, _OPEN = 320.0, 120.0, 12


def has_shapes(model: TableModel | ArrayModel) -> TypeGuard[TableModel]:
    """Whether there are shapes to draw, and few enough scores to tell apart."""
    if model.schema is None:
        return False
    shapes = model.deviations.shapes if model.deviations is not None else {}
    return set(shapes) == set(model.schema.features) and len(model.score_titles) <= len(_COLOURS)


def shapes(model: TableModel) -> list[Html]:
    """A picture for each column, those that stand out of their noise most first."""
    assert model.deviations is not None
    drawn = []
    for name, column in model.schema.features.items():
        values, curves = model.shape(name)
        curves = curves.reshape(len(values), -1)
        bands = 2 * model.deviations.shapes[name].reshape(len(values), -1)
        strength = float(np.nanmax(np.abs(curves) / np.maximum(bands, 1e-300)))
        drawn.append((strength, name, _picture(name, column, values, curves, bands, model.score_titles)))
    drawn.sort(key=lambda one: -one[0])
    said = (
        "What each column adds to the score, less its mean over what is declared. Bands, and lines through bars, are "
        "two deviations of the privacy noise to either side; where one holds zero, the column may add nothing there."
    )
    titles = ""
    if len(model.score_titles) > 1:
        named = zip(("blue", "orange", "green", "pink"), model.score_titles, strict=False)
        titles = "Towards " + ", ".join(f"{title} ({colour})" for colour, title in named) + "."
    parts = [element("p", said), *([element("p", titles)] if titles else [])]
    parts.append(joined(picture for _, _, picture in drawn[:_OPEN]))
    if len(drawn) > _OPEN:
        rest = joined(picture for _, _, picture in drawn[_OPEN:])
        parts.append(folded(f"The other {len(drawn) - _OPEN} columns", rest))
    return parts


def written(value: float, deviation: float) -> str:
    return f"{value:+.3f} ± {deviation:.3f}" if deviation > 0 else f"{value:+.3f}"


def bar(share: float, reach: float, sure: bool) -> Html:
    """A bar to the right for a positive coefficient, to the left for a negative one; the number stands beside it."""
    width = round(abs(share) * 98, 2)
    left = 100.0 if share >= 0 else round(100 - width, 2)
    colour = _NOISE_COLOUR if not sure else "#0072B2" if share >= 0 else "#D55E00"
    start, end = (round(100 + 98 * (share + side * reach), 2) for side in (-1, 1))
    line = f'<path d="M{start} 7H{end}" stroke="#808080" stroke-width="2" fill="none"/>' if reach else ""
    return Html(
        '<svg viewBox="0 0 200 14" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect x="{left}" y="2" width="{width}" height="10" fill="{colour}"/>{line}'
        '<rect x="99.5" y="0" width="1" height="14" fill="#808080"/></svg>'
    )


def _picture(name: str, column: Any, values: NDArray[Any], curves: Array, bands: Array, titles: list[str]) -> Html:
    if not isinstance(column, Number):
        return _bars(name, values, curves, bands, titles)
    low, high = float((curves - bands).min()), float((curves + bands).max())
    low, high = min(low, 0.0), max(high, 0.0)
    span = (high - low) or 1.0
    across = np.linspace(0, _WIDTH, len(values))
    parts = [f'<path d="M0 {_HEIGHT * high / span:.1f}H{_WIDTH:g}" stroke="#808080" fill="none"/>']
    for colour, curve, band in zip(_COLOURS, curves.T, bands.T, strict=False):
        up, down, middle = (_HEIGHT * (high - line) / span for line in (curve + band, curve - band, curve))
        edge = _line(across, up) + "L" + _line(across[::-1], down[::-1])[1:] + "Z"
        parts.append(f'<path d="{edge}" fill="{colour}" fill-opacity="0.25"/>')
        parts.append(f'<path d="{_line(across, middle)}" stroke="{colour}" stroke-width="2" fill="none"/>')
    drawing = Html(
        f'<svg viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" width="{_WIDTH:g}" height="{_HEIGHT:g}" role="img" '
        f'aria-label="{escaped(f"The shape of {name}")}">{"".join(parts)}</svg>'
    )
    bent = ", half of it for the first fiftieth" if is_wide(column.low, column.high) else ""
    said = f"from {number(column.low)} (left) to {number(column.high)}{bent}; up is {high:+.2f}, down {low:+.2f}"
    return element("figure", drawing, element("figcaption", element("strong", name), f": {said}"))


def _line(x: Array, y: Array) -> str:
    return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))


def _bars(name: str, values: NDArray[Any], curves: Array, bands: Array, titles: list[str]) -> Html:
    longest = float((np.abs(curves) + bands).max()) or 1.0
    order = np.argsort(-np.abs(curves / np.maximum(bands, 1e-300)).max(axis=1), kind="stable")
    rows = []
    for k in order:
        cells: list[Any] = [str(values[k])]
        for value, band in zip(curves[k], bands[k], strict=True):
            cells += [written(value, band / 2), bar(value / longest, band / longest, abs(value) >= band)]
        rows.append(cells)
    return table(name, (name, *(title for one in titles for title in (one, ""))), rows)
