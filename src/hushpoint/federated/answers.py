"""The messages that have come in a round, one by one from sites, or all at once where sites are in this process."""

from __future__ import annotations

import numpy as np

from hushpoint._types import Array, Indices


class Answers:
    """The message of each site that has answered, like ``nothing``, which is that of nobody."""

    def __init__(self, nothing: Array) -> None:
        self._nothing = nothing
        self._single: dict[int, Array] = {}
        self._sites, self._rows = np.zeros(0, dtype=np.int64), np.zeros((0, len(nothing)), dtype=nothing.dtype)

    def __len__(self) -> int:
        return len(self._single) + len(self._sites)

    @property
    def sites(self) -> set[int]:
        """Who has answered."""
        return {*self._single, *self._sites.tolist()}

    def put(self, site: int, message: Array) -> None:
        """Keep the message of a site."""
        self._single[site] = message

    def put_all(self, sites: Indices, messages: Array) -> None:
        """Keep the messages of sites, one row each; no other answers are expected."""
        self._sites, self._rows = sites, messages

    def stacked(self) -> tuple[Indices, Array]:
        """The sites in rising order and their messages, one row each."""
        if not self._single:
            return self._sites, self._rows
        sites = sorted(self._single)
        rows = np.array([self._single[site] for site in sites], dtype=self._nothing.dtype)
        return np.array(sites, dtype=np.int64), rows
