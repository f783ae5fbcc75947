"""Whole numbers wider than a word in compiled code: 32-bit limbs at places of a room, the lowest first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hushpoint._compiled import inner
from hushpoint.lattice.compiled.memory import get, put

_LOW = np.uint64(0xFFFFFFFF)
_LIMB = np.uint64(32)


def limbs(number: int, count: int) -> NDArray[np.uint64]:
    """A whole number as ``count`` limbs; an error if it has more."""
    return np.frombuffer(number.to_bytes(4 * count, "little"), dtype="<u4").astype(np.uint64)


@inner
def write(bits, place, word):
    """A word as two limbs."""
    put(bits, place, word & _LOW)
    put(bits, place + 1, word >> _LIMB)


@inner
def times(bits, a, size_a, b, size_b, out):
    """``out = a b``, which has as many limbs as both together."""
    for k in range(size_b):
        put(bits, out + k, np.uint64(0))
    for i in range(size_a):
        carried, factor = np.uint64(0), get(bits, a + i)
        for j in range(size_b):
            carried += factor * get(bits, b + j) + get(bits, out + i + j)
            put(bits, out + i + j, carried & _LOW)
            carried >>= _LIMB
        put(bits, out + i + size_b, carried)


@inner
def at_least(bits, a, b, size):
    """Whether ``a >= b``."""
    for k in range(size - 1, -1, -1):
        one, other = get(bits, a + k), get(bits, b + k)
        if one != other:
            return one > other
    return True


@inner
def difference(bits, a, b, size, out):
    """``out = a - b`` where ``a >= b``; it may be either of them."""
    borrowed = np.uint64(0)
    for k in range(size):
        one, taken = get(bits, a + k), get(bits, b + k) + borrowed
        borrowed = np.uint64(one < taken)
        put(bits, out + k, (one - taken) & _LOW)
