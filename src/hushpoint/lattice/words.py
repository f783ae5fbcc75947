"""The words of one address, in turn, and coins: what the samplers read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from hushpoint._source import Source

WORDS = 1 << 35  # of an address: 2^32 blocks of ChaCha20, 8 words each; the block after them is the first one again
BATCH = 64
STEPS = 1 << 28  # steps that ``Source.stream`` can address: it counts 32-bit words, 16 a block, in 128 bits
# A uniform number ends after so many digits. A comparison that reads them all has met 256 equal bits, which happens
# with probability 2^-256: less than anyone can tell the stream of a 256-bit key from true randomness. It is an error
# then, never a coin; up to it every answer is the exact one.
DEEPEST = 4
OVERRUN = "an address has given all of its words. Draw fewer numbers of one address, or more items."


class Bits(Protocol):
    """Where a program's randomness comes from: words of ``width`` bits, and fair coins, all independent."""

    width: int
    deepest: int

    def word(self) -> int:
        """The next word."""

    def coin(self) -> int:
        """0 or 1, as likely."""


class Words:
    """Bits from a stream of words of 64: whole words in turn, and coins from words kept for them, lowest bit first."""

    width = 64
    deepest = DEEPEST

    def __init__(self, stream: Iterator[int]) -> None:
        self._stream = stream
        self._held, self._left = 0, 0

    def word(self) -> int:
        """The next word; an error where there is none left."""
        return next(self._stream)

    def coin(self) -> int:
        """The next bit of the word that coins are taken from."""
        if self._left == 0:
            self._held, self._left = self.word(), 64
        bit = self._held & 1
        self._held >>= 1
        self._left -= 1
        return bit


def words_at(source: Source, role: str, item: int, step: int, limit: int = WORDS) -> Iterator[int]:
    """The words of one address of a step below ``STEPS``, without any compiling; an error after the last."""
    stream = Source(source.key).stream(role, item, step).bit_generator
    if not source.secure:
        start = stream.random_raw(3)
        stream = np.random.SFC64(0)
        stream.state = {**stream.state, "state": {"state": np.append(start, np.uint64(1))}}
        stream.random_raw(12)
    for _ in range(0, limit, BATCH):
        yield from stream.random_raw(BATCH).tolist()
    raise OverflowError(OVERRUN)
