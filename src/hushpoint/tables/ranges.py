"""Ranges of columns of which only coarse bounds are public, learned with a part of the budget."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from hushpoint._checks import require_inside
from hushpoint.privacy.gaussian import gdp_epsilon, gdp_mu
from hushpoint.privacy.guarantee import Adjacency, Guarantee, compose
from hushpoint.schema import Column, Schema

RANGE_SHARE = 0.1  # of a budget, unless one is named


def split_budget(epsilon: float, delta: float, share: float) -> tuple[float, float]:
    """mu for the ranges and epsilon for the training, which compose to the budget: shares of mu squared."""
    require_inside("range_share", share, remedy="Pass the ranges' share of the budget, between 0 and 1.")
    # A little less than allowed: the epsilon of the training is rounded up and turned into a mu once more.
    mu = gdp_mu(epsilon, delta) * (1 - 1e-9)
    left = gdp_epsilon(math.sqrt(1 - share) * mu, delta)
    if left == 0:
        raise ValueError(
            f"epsilon is {epsilon:g} with delta {delta:g}, of which learning ranges leaves the training 0. Pass "
            "a larger epsilon or a smaller delta, or declare all ranges (without learn = true)."
        )
    return math.sqrt(share) * mu, left


def learned_ranges(
    values: Any, schema: Schema, users: Any, mu: float, delta: float, adjacency: Adjacency, seed: int | None
) -> tuple[Schema, Guarantee]:
    """The schema with a narrower range for every column that asks for one, and what finding them cost."""
    from hushpoint.preprocessing.quantiles import private_ranges

    asked = schema.to_learn
    bounds = [(column.low, column.high) for column in asked.values()]
    found, guarantee = private_ranges(values, bounds, mu=mu, delta=delta, adjacency=adjacency, groups=users, seed=seed)
    return with_ranges(schema, found), guarantee


def with_ranges(schema: Schema, ranges: Iterable[Sequence[float]]) -> Schema:
    """The schema with these ranges for the columns that ask for one, in their order; an empty one is left as it was."""
    columns: dict[str, Column] = dict(schema.columns)
    for (name, column), (low, high) in zip(schema.to_learn.items(), ranges, strict=True):
        narrower = (float(low), float(high)) if low < high else (column.low, column.high)
        columns[name] = replace(column, low=narrower[0], high=narrower[1], learn=False)
    return replace(schema, columns=columns)


def together(ranges: Guarantee, training: Guarantee, epsilon: float) -> Guarantee:
    """One guarantee for the ranges and the model, within the budget."""
    both = compose(ranges, training)
    if both.epsilon > epsilon or both.delta > max(ranges.delta, training.delta):
        raise ValueError(
            "learning ranges shares a Gaussian budget, and the training's guarantee is not Gaussian. Declare the "
            "ranges (without learn), or choose adjacency replace-one."
        )
    return both
