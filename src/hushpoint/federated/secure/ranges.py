"""Narrower ranges of columns of which only coarse bounds are public, learned in rounds before a training."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushpoint._types import Array
from hushpoint.estimators.training import Answer, Chain, Found, Link, Ranges
from hushpoint.federated.secure.price import priced
from hushpoint.noise import Noise
from hushpoint.operators.lattice_counts import LatticeCounts
from hushpoint.plan import Plan
from hushpoint.preprocessing.few_rounds import ROUNDS, CellSearch
from hushpoint.privacy.guarantee import Adjacency
from hushpoint.problem import Facts
from hushpoint.regularizers import Zero
from hushpoint.rows import ArrayRows, Rows
from hushpoint.schedules import EveryBlock
from hushpoint.schema import Number

_QUANTILES = (0.05, 0.95)  # as a search at one holder (preprocessing.private_ranges)


@dataclass(frozen=True)
class RangeSearch:
    """What is searched, all columns in the same rounds, and what all of these together may cost.

    Parameters
    ----------
    names : tuple of str
        The columns.
    bounds : tuple of pairs
        Public bounds of each, however coarse.
    missing : tuple of bool
        Whether cells of a column may be missing.
    mu : float
    """

    names: tuple[str, ...]
    bounds: Ranges
    missing: tuple[bool, ...]
    mu: float

    @staticmethod
    def of(columns: Mapping[str, Number], mu: float) -> RangeSearch:
        """For columns of a schema."""
        bounds = tuple((float(column.low), float(column.high)) for column in columns.values())
        return RangeSearch(tuple(columns), bounds, tuple(one.missing == "indicator" for one in columns.values()), mu)

    def links(self, facts: Facts, adjacency: Adjacency) -> Generator[Link, Answer, Ranges]:
        """The plans, one of a single step for each round; returns what is found."""
        columns = replace(facts, features=len(self.names), regularizer=Zero(), row_norm=None, clip=None)
        share = self.mu / math.sqrt(ROUNDS)
        asked = zip(self.bounds, self.missing, strict=True)
        searches = [CellSearch.of(low, high, _QUANTILES, absent) for (low, high), absent in asked]
        for _ in range(ROUNDS):
            operator = LatticeCounts(columns, [search.edges for search in searches], self.missing)
            plan = Plan(operator, EveryBlock(facts.items), Noise(0.0, "sum"), 1, relaxation=1.0, facts=columns)
            answer = yield Link("ranges", priced(plan, share, facts.unit, adjacency), share, _as_they_are)
            ends = np.concatenate([[0], np.cumsum(operator.sizes)])
            shares = [answer.model[start:end] for start, end in pairwise(ends)]
            searches = [search.after(part) for search, part in zip(searches, shares, strict=True)]
        return tuple(search.found for search in searches)

    def to_dict(self) -> dict[str, Any]:
        """The search as JSON can hold it."""
        return asdict(self)

    @staticmethod
    def from_dict(record: Mapping[str, Any]) -> RangeSearch:
        """What ``to_dict`` gave."""
        bounds = tuple((float(low), float(high)) for low, high in record["bounds"])
        return RangeSearch(tuple(record["names"]), bounds, tuple(record["missing"]), record["mu"])


def after_ranges(links: Chain, ranges: Ranges) -> Chain:
    """A chain whose rows are encoded with learned ranges."""
    link = next(links)
    while True:
        answer = yield replace(link, ranges=ranges)
        try:
            link = links.send(answer)
        except StopIteration as end:
            found: Found = end.value
            return replace(found, ranges=ranges)


def value_rows(facts: Facts, values: Array, users: NDArray[Any] | None) -> Rows:
    """The columns of a site as they are, NaN where missing, item by item."""
    from hushpoint.problem import _checked_groups

    order, offsets = np.arange(len(values)), None
    if users is not None:
        order, _, counts = _checked_groups(users, len(values))
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    nothing = np.zeros(len(values))
    return Rows(ArrayRows(values[order]), nothing, facts.loss, nothing, offsets=offsets)


def _as_they_are(rows: Rows) -> Rows:
    return rows
