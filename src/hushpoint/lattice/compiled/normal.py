"""``rint(S Z)`` in compiled code: what ``lattice.normal`` says, in its order."""

from __future__ import annotations

import numpy as np

from hushpoint._compiled import inner, loop
from hushpoint.lattice.compiled.bits import coin, digit, fresh, opened, room_for, words_read
from hushpoint.lattice.compiled.uniform import below, less, product, whole_below
from hushpoint.lattice.normal import CUMULATED

_FRACTION, _OTHER = 2, 3  # numbers 0 and 1 are those of runs


# The digits of the thresholds, one row each.
_CUMULATED = np.array([[each >> 64 * k & (1 << 64) - 1 for k in (3, 2, 1, 0)] for each in CUMULATED], dtype=np.uint64)


@inner
def _beneath(bits, number, whole):
    place = 0
    while True:
        drawn, known = digit(bits, number, place), _CUMULATED[whole, place]
        if drawn != known:
            return drawn < known
        place += 1


@inner
def whole_part(bits):
    """k with probability in proportion to ``exp(-k^2/2)``."""
    fresh(bits, 0)
    first, whole = digit(bits, 0, 0), 0
    while first > _CUMULATED[whole, 0]:
        whole += 1
    while first == _CUMULATED[whole, 0] and not _beneath(bits, 0, whole):
        whole += 1
    return whole


@inner
def factor(bits, whole):
    """True with probability ``exp(-x (2k + x)/(2k + 2))``."""
    last, following, run = _FRACTION, 0, 0
    while True:
        outright = whole_below(bits, whole + 1) < whole
        if not outright and not coin(bits):
            break
        fresh(bits, following)
        if not less(bits, following, last):
            break
        if not outright:
            fresh(bits, _OTHER)
            if not less(bits, _OTHER, _FRACTION):
                break
        last, following = following, 1 - following
        run += 1
    return run % 2 == 0


@inner
def nearest(bits, scale):
    """The whole number nearest to ``scale * x``; the first digit leaves one half-way point, since 2 scale < 2^64."""
    under, _ = product(digit(bits, _FRACTION, 0), scale)
    if below(bits, _FRACTION, np.uint64(2) * under + np.uint64(1), np.uint64(2) * scale):
        return np.int64(under)
    return np.int64(under) + 1


@inner
def rounded_normal(bits, scale):
    """One draw."""
    while True:
        whole = whole_part(bits)
        fresh(bits, _FRACTION)
        kept = True
        for _ in range(whole + 1):
            if not factor(bits, whole):
                kept = False
                break
        if kept:
            magnitude = whole * np.int64(scale) + nearest(bits, scale)
            return -magnitude if coin(bits) else magnitude


@loop
def fill_rounded_normals(secure, key, role, items, step, limit, scale, out):
    """Fill row k of ``out`` with the first draws of the address (role, items[k], step); returns the words read."""
    room = room_for(key)
    read = 0
    for row in range(out.shape[0]):
        bits = opened(room, secure, role, items[row], step, limit)
        for k in range(out.shape[1]):
            out[row, k] = rounded_normal(bits, scale)
        read += words_read(room)
    return read


@loop
def fill_rounded_normals_of_steps(secure, key, role, item, first, limit, scale, out):
    """Fill in the first draw of each of the addresses (role, item, first), (role, item, first + 1) and so on."""
    room = room_for(key)
    for k in range(out.size):
        out[k] = rounded_normal(opened(room, secure, role, item, first + k, limit), scale)
