"""Generated tables of stated laws: what a sum of one-column shapes can gain over a linear model, and where nothing.

Every law draws its columns and a signal, a sum of shapes unless it says otherwise. ``classes`` and ``values`` make a
target of the signal: labels with log-odds of a given spread and a given share of ones, or numbers of variance 1 of
which a given share is signal, the rest normal noise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from dataset import Array, Category, Range, Table
from scipy.optimize import brentq
from scipy.special import expit


class Drawn(NamedTuple):
    """Columns and the signal in them."""

    columns: dict[str, Range]
    numbers: Array
    categories: list[Category]
    signal: Array


Law = Callable[[np.random.Generator, int], Drawn]


def classes(law: Law, people: int, seed: int, spread: float = 3.0, share: float = 0.5) -> Table:
    """Labels: P(1) = expit(spread * standardised signal + shift), the shift such that ``share`` of them are 1."""
    random = np.random.default_rng(seed)
    columns, numbers, categories, signal = law(random, people)
    margin = spread * _standardised(signal)
    shift = brentq(lambda shift: expit(margin + shift).mean() - share, -50, 50)
    return Table(columns, numbers, categories, (random.random(people) < expit(margin + shift)).astype(float))


def values(law: Law, people: int, seed: int, explained: float = 0.7) -> Table:
    """Numbers: sqrt(explained) * standardised signal + sqrt(1 - explained) * a standard normal; range [-4, 4]."""
    random = np.random.default_rng(seed)
    columns, numbers, categories, signal = law(random, people)
    noise = random.standard_normal(people)
    target = np.sqrt(explained) * _standardised(signal) + np.sqrt(1 - explained) * noise
    return Table(columns, numbers, categories, target, (-4.0, 4.0))


def waves(random: np.random.Generator, people: int, turns: tuple[float, ...], idle: int = 1) -> Drawn:
    """Columns uniform on [0, 100], each with a sine of so many ``turns`` over it, phases at random; some without."""
    numbers = random.uniform(0, 100, (people, len(turns) + idle))
    phases = random.uniform(0, 2 * np.pi, len(turns))
    signal = np.sin(2 * np.pi * np.array(turns) * numbers[:, : len(turns)] / 100 + phases).sum(1)
    return Drawn(_named(numbers, (0, 100)), numbers, [], signal)


def valleys(random: np.random.Generator, people: int, columns: int = 4) -> Drawn:
    """Normal columns around 50, deviation 15, range [0, 100]: each a parabola, lowest at 40 to 60, and a slope."""
    numbers = random.normal(50, 15, (people, columns))
    lowest = random.uniform(40, 60, columns)
    signal = (((numbers - lowest) / 15) ** 2).sum(1) + numbers @ random.normal(0, 1, columns) / 15
    return Drawn(_named(numbers, (0, 100)), numbers, [], signal)


def bumps(random: np.random.Generator, people: int, columns: int = 5, width: float = 0.1) -> Drawn:
    """Columns uniform on [-1, 1], in each a Gaussian bump of a ``width``, up or down, somewhere in [-0.7, 0.7]."""
    numbers = random.uniform(-1, 1, (people, columns))
    centres, signs = random.uniform(-0.7, 0.7, columns), random.choice([-1.0, 1.0], columns)
    signal = np.exp(-(((numbers - centres) / width) ** 2) / 2) @ signs
    return Drawn(_named(numbers, (-1, 1)), numbers, [], signal)


def steps(random: np.random.Generator, people: int, columns: int = 4) -> Drawn:
    """Columns uniform on [0, 10] with three thresholds each, at which the signal jumps by a normal height."""
    numbers = random.uniform(0, 10, (people, columns))
    thresholds, heights = random.uniform(1, 9, (columns, 3)), random.standard_normal((columns, 3))
    signal = ((numbers[:, :, None] > thresholds) * heights).sum((1, 2))
    return Drawn(_named(numbers, (0, 10)), numbers, [], signal)


def linear(random: np.random.Generator, people: int, columns: int = 8) -> Drawn:
    """Nothing to gain: normal columns, neighbours correlated by 0.5, and a linear signal; range three deviations."""
    noise = random.standard_normal((people, columns + 1))
    numbers = (noise[:, 1:] + noise[:, :-1]) / np.sqrt(2)
    return Drawn(_named(numbers, (-3, 3)), numbers, [], numbers @ random.standard_normal(columns))


def incomes(random: np.random.Generator, people: int, top: float = 1e6) -> Drawn:
    """Log-normal income (median 30,000) and debt (median 5,000, a third have none), ranges from 0 to ``top``, and age.

    The signal: log(income + 1000), minus half of log(debt + 1000), both standardised, and a valley in age.
    """
    income = 30_000 * np.exp(random.normal(0, 0.9, people))
    debt = 5000 * np.exp(random.normal(0, 1.2, people)) * (random.random(people) < 2 / 3)
    age = random.uniform(18, 90, people)
    signal = _standardised(np.log(income + 1000)) - 0.5 * _standardised(np.log(debt + 1000))
    signal += 0.5 * _standardised((age - 50) ** 2)
    columns = {"income": (0.0, top), "debt": (0.0, top), "age": (18.0, 90.0)}
    return Drawn(columns, np.column_stack([income, debt, age]), [], signal)


def mixed(random: np.random.Generator, people: int, levels: tuple[int, ...] = (3, 8, 20)) -> Drawn:
    """Half of the variance from categories with frequent and rare levels, half from four numbers on [0, 1].

    Of the numbers two are waves, one is linear and one does nothing; a level's effect is normal.
    """
    categories, effect = [], np.zeros(people)
    for number, count in enumerate(levels):
        level = random.choice(count, people, p=random.dirichlet(np.full(count, 1.0)))
        effect += _standardised(random.standard_normal(count)[level])
        words = [f"level {index}" for index in range(count)]
        categories.append(Category(f"category {number}", np.array(words)[level], words))
    numbers = random.random((people, 4))
    shapes = np.sin(2 * np.pi * numbers[:, 0]) + np.cos(3 * np.pi * numbers[:, 1]) + 2 * numbers[:, 2]
    return Drawn(_named(numbers, (0, 1)), numbers, categories, _standardised(effect) + _standardised(shapes))


def missing(random: np.random.Generator, people: int, gone: float = 0.4) -> Drawn:
    """Six waves of one turn on [0, 1]; cells go missing independently, and in half of the columns that tells something.

    There a missing cell's signal is 1 instead of the wave's value, in the others it is 0.
    """
    numbers = random.random((people, 6))
    lost = random.random((people, 6)) < gone
    shapes = np.sin(2 * np.pi * numbers + random.uniform(0, 2 * np.pi, 6))
    signal = np.where(lost, np.arange(6) % 2, shapes).sum(1)
    return Drawn(_named(numbers, (0, 1)), np.where(lost, np.nan, numbers), [], signal)


def crowd(random: np.random.Generator, people: int, columns: int = 40, useful: int = 4) -> Drawn:
    """Many columns uniform on [-1, 1]; the last ``useful`` carry a valley, |x|, and a slope, the rest nothing."""
    numbers = random.uniform(-1, 1, (people, columns))
    last = numbers[:, -useful:]
    signal = np.abs(last).sum(1) + last @ random.choice([-0.3, 0.3], useful)
    return Drawn(_named(numbers, (-1, 1)), numbers, [], signal)


def pairs(random: np.random.Generator, people: int) -> Drawn:
    """Not a sum: the product of two columns carries half of the variance, a wave in a third and a slope the rest."""
    numbers = random.uniform(-1, 1, (people, 4))
    sums = _standardised(np.sin(np.pi * numbers[:, 2] + 1)) + _standardised(numbers[:, 3])
    return Drawn(
        _named(numbers, (-1, 1)), numbers, [], _standardised(numbers[:, 0] * numbers[:, 1]) + _standardised(sums)
    )


def _named(numbers: Array, bounds: Range) -> dict[str, Range]:
    return {f"x{column}": bounds for column in range(numbers.shape[1])}


def _standardised(column: Array) -> Array:
    return (column - column.mean()) / column.std()
