"""Masks over the integers modulo 2^64: streams of ChaCha20, added to a sum or taken away from it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hushpoint.secure.primitives import keystream

Words = NDArray[np.uint64]


class Masked:
    """A vector modulo 2^64 that masks are put on and taken off, through one buffer."""

    def __init__(self, values: Words) -> None:
        self.values = np.array(values, dtype="<u8")
        self._zeros = bytes(self.values.nbytes)
        self._bytes = bytearray(self.values.nbytes)
        self._stream = np.frombuffer(self._bytes, dtype="<u8")

    def add(self, key: bytes) -> None:
        """Put the mask of a key on."""
        self.values += self._mask(key)

    def take(self, key: bytes) -> None:
        """Take the mask of a key off."""
        self.values -= self._mask(key)

    def _mask(self, key: bytes) -> Words:
        keystream(key).update_into(self._zeros, self._bytes)
        return self._stream


def words(data: bytes, length: int) -> Words:
    """The vector that bytes hold."""
    if len(data) != 8 * length:
        raise ValueError(f"data is {len(data)} bytes. Pass 8 for each of {length} numbers.")
    return np.frombuffer(data, dtype="<u8").astype(np.uint64)
