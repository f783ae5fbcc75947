"""Figures about a model on a table, with noise: whole numbers that one row, or one user, moves by a known amount.

Released are sums over items of whole parts, each with noise of its own that pays with a share of the budget (proof:
docs/privacy.md, section 11):

- classes: how often the model is right, and how often the commonest class occurs;
- numbers, in units of the declared range: one minus the squared error, the target, and its squared distance from the
  middle of the range (in units of half of it). R2 and root mean squared errors are computed from these three.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hushpoint._types import Array
from hushpoint.estimators.merits import finest, whole_sum
from hushpoint.estimators.scoring import BoundedScore
from hushpoint.lattice import rounded_normals
from hushpoint.noise import Source
from hushpoint.schema import Number
from hushpoint.tables.figures import Figure
from hushpoint.tables.outcomes import Outcomes
from hushpoint.tables.scoring import ScoringModel

# Of mu squared. The baseline is there for comparison, and may be rougher than the score.
CLASS_SHARES = (0.75, 0.25)
NUMBER_SHARES = (0.7, 0.2, 0.1)

_CLASSES_RELEASED = "right answers counted with {:g} of the budget, the commonest class with {:g}".format(*CLASS_SHARES)
_NUMBERS_RELEASED = (
    "squared errors within the declared range summed with {:g} of the budget, targets with {:g}, their squares with "
    "{:g}"
).format(*NUMBER_SHARES)

_CLEAR = 4  # a variance of so many standard deviations of its noise can be divided by


@dataclass(frozen=True)
class Released:
    """A mean over items with noise of a known standard deviation, and what it spent."""

    mean: float
    std: float
    mu: float


def noisy_figures(
    model: ScoringModel, seen: Outcomes, mu: float, source: Source
) -> tuple[dict[str, Figure], list[float], str]:
    """Figures, the first of which is the score; the mu of each released number, together at most mu; what they are."""
    declared = model.declared_range
    if declared is not None:
        right, place, off_middle = _shared_out(number_merits(seen, declared), NUMBER_SHARES, seen, mu, source)
        spent = [right.mu, place.mu, off_middle.mu]
        return of_numbers(right, place, off_middle, declared.high - declared.low), spent, _NUMBERS_RELEASED
    score, baseline = _shared_out(class_merits(seen, model.classes or ()), CLASS_SHARES, seen, mu, source)
    figures = {"accuracy": Figure(score.mean, score.std), "baseline_accuracy": Figure(baseline.mean, baseline.std)}
    return figures, [score.mu, baseline.mu], _CLASSES_RELEASED


def class_merits(seen: Outcomes, classes: tuple[str, ...]) -> list[list[Array]]:
    """What each row adds to the numbers that are released, from 0 to 1: of several sums the largest one is released."""
    right = BoundedScore("accuracy").merits(seen.answers, seen.true)
    return [[right], [np.asarray(seen.true == name, dtype=np.float64) for name in classes]]


def number_merits(seen: Outcomes, declared: Number) -> list[list[Array]]:
    """The same of numbers: every one a function of its row alone, made of the four operations."""
    error = BoundedScore("neg_mean_squared_error", (declared.low, declared.high))
    place = np.clip((seen.true - declared.low) / (declared.high - declared.low), 0.0, 1.0)
    off_middle = np.clip(2 * place - 1, -1.0, 1.0)
    return [[error.merits(seen.answers, seen.true)], [place], [off_middle * off_middle]]


def _shared_out(
    asked: list[list[Array]], shares: tuple[float, ...], seen: Outcomes, mu: float, source: Source
) -> list[Released]:
    """Every number with its share of the budget and noise of its own."""
    parts = enumerate(zip(asked, shares, strict=True))
    return [_released(seen, merits, math.sqrt(share) * mu, source, place) for place, (merits, share) in parts]


def _released(seen: Outcomes, merits: list[Array], mu: float, source: Source, place: int) -> Released:
    """The largest of some sums, each of which one item moves by ``2^bits`` at most, and so the largest; made mu-GDP."""
    bits, scale = finest(mu)
    whole = max(whole_sum(each, seen.items, seen.counts, bits) for each in merits)
    noise = int(rounded_normals(source, "table-score", [0], place, 1, scale)[0, 0])
    one = len(seen.counts) << bits
    return Released((whole + noise) / one, math.sqrt(scale * scale + 1 / 12) / one, mu)


def of_numbers(right: Released, place: Released, off_middle: Released, width: float) -> dict[str, Figure]:
    """R2 and errors from what was released; their standard deviations are those of small noise."""
    error, shift = 1 - right.mean, place.mean - 0.5
    spread, spread_std = off_middle.mean / 4 - shift * shift, math.hypot(off_middle.std / 4, 2 * shift * place.std)
    score = Figure(None)
    if spread > _CLEAR * spread_std:
        share = error / spread
        score = Figure(min(1 - share, 1.0), math.hypot(right.std, share * spread_std) / spread)
    return {"r2": score, "rmse": _root(error, right.std, width), "baseline_rmse": _root(spread, spread_std, width)}


def _root(squared: float, std: float, unit: float) -> Figure:
    """The root of a noisy square, and half the distance of the roots one standard deviation to either side."""
    low, middle, high = (math.sqrt(max(squared + k * std, 0.0)) for k in (-1, 0, 1))
    return Figure(unit * middle, unit * (high - low) / 2)
