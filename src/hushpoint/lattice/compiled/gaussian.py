"""The discrete Gaussian in compiled code: what ``lattice.gaussian`` and ``lattice.bernoulli`` say, in their order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hushpoint._compiled import inner, loop
from hushpoint.lattice.compiled.bits import DESK, coin, digit, fresh, opened, room_for, words_read
from hushpoint.lattice.compiled.memory import get, put
from hushpoint.lattice.compiled.uniform import below, less, whole_below
from hushpoint.lattice.compiled.wide import at_least, difference, limbs, times, write
from hushpoint.lattice.gaussian import FAR, FARTHEST, Width

# Limbs of |y|, of what a unit of it counts, and of x: |y| < 2^61, per < 2^73, |y| per < 2^134, x's two parts < 2^268.
_MAGNITUDE, _PER, _SIDE = 2, 3, 5
_SQUARE = 2 * _SIDE
_SHIFTED = _SQUARE + 2  # and a word more
_AT_PER = DESK
_AT_CENTRE = _AT_PER + _PER
_AT_WHOLE = _AT_CENTRE + _SIDE
_WIDTH = _PER + _SIDE + _SHIFTED
_AT_WORD = DESK + _WIDTH
_AT_SIDE = _AT_WORD + _MAGNITUDE
_AT_LEFT = _AT_SIDE + _SIDE
_AT_TAKEN = _AT_LEFT + _SHIFTED


def coded(width: Width) -> NDArray[np.uint64]:
    """A width for compiled code, without its step: what the desk begins with."""
    return np.concatenate([limbs(width.per, _PER), limbs(width.centre, _SIDE), limbs(width.whole, _SHIFTED)])


@inner
def half(bits):
    """True with probability ``exp(-1/2)``."""
    last, run = 0, 0
    fresh(bits, last)
    while coin(bits):
        if run > 0:
            fresh(bits, 1 - last)
            if not less(bits, 1 - last, last):
                break
            last = 1 - last
        run += 1
    return run % 2 == 0


@inner
def one(bits):
    """True with probability ``exp(-1)``."""
    return half(bits) and half(bits)


@inner
def _falling(bits):
    """Whether the run of numbers from number 0 on has odd length: the first of them is in it."""
    last, run = 0, 1
    while True:
        fresh(bits, 1 - last)
        if not less(bits, 1 - last, last):
            return run % 2 == 0
        last = 1 - last
        run += 1


@inner
def ratio(bits, numerator, denominator):
    """True with probability ``exp(-numerator/denominator)``."""
    fresh(bits, 0)
    return not below(bits, 0, np.uint64(numerator), np.uint64(denominator)) or _falling(bits)


@inner
def _below_wide(bits):
    """Whether number 0 is less than what is left of x over a whole unit; what is left is used up."""
    place = 0
    while True:
        write(bits, _AT_WORD, digit(bits, 0, place))
        times(bits, _AT_WHOLE, _SQUARE, _AT_WORD, 2, _AT_TAKEN)
        for k in range(_SHIFTED - 1, 1, -1):
            put(bits, _AT_LEFT + k, get(bits, _AT_LEFT + k - 2))
        write(bits, _AT_LEFT, np.uint64(0))
        if at_least(bits, _AT_TAKEN, _AT_LEFT, _SHIFTED):
            return False
        difference(bits, _AT_LEFT, _AT_TAKEN, _SHIFTED, _AT_LEFT)
        if at_least(bits, _AT_LEFT, _AT_WHOLE, _SHIFTED):
            return True
        place += 1


@inner
def laplace(bits, step):
    """The magnitude and whether the sign is minus; -1 where it is rejected."""
    rest = whole_below(bits, step)
    if not ratio(bits, rest, step):
        return -1, False
    whole = 0
    while one(bits):
        whole += 1
        if whole == FARTHEST:
            raise ArithmeticError(FAR)
    magnitude = rest + step * whole
    negative = coin(bits)
    return (-1 if negative and magnitude == 0 else magnitude), negative


@inner
def accepted(bits, magnitude):
    """True with probability ``exp(-x)``."""
    write(bits, _AT_WORD, np.uint64(magnitude))
    times(bits, _AT_WORD, _MAGNITUDE, _AT_PER, _PER, _AT_SIDE)
    if at_least(bits, _AT_SIDE, _AT_CENTRE, _SIDE):
        difference(bits, _AT_SIDE, _AT_CENTRE, _SIDE, _AT_SIDE)
    else:
        difference(bits, _AT_CENTRE, _AT_SIDE, _SIDE, _AT_SIDE)
    times(bits, _AT_SIDE, _SIDE, _AT_SIDE, _SIDE, _AT_LEFT)
    write(bits, _AT_LEFT + _SQUARE, np.uint64(0))
    while at_least(bits, _AT_LEFT, _AT_WHOLE, _SHIFTED):
        if not one(bits):
            return False
        difference(bits, _AT_LEFT, _AT_WHOLE, _SHIFTED, _AT_LEFT)
    fresh(bits, 0)
    return not _below_wide(bits) or _falling(bits)


@inner
def discrete_gaussian(bits, step):
    """One draw; ``step`` is the scale of the Laplace law."""
    while True:
        magnitude, negative = laplace(bits, step)
        if magnitude >= 0 and accepted(bits, magnitude):
            return -magnitude if negative else magnitude


@loop
def fill_discrete_gaussians(secure, key, role, items, step, limit, laplace_step, width, out):
    """Fill row k of ``out`` with the first draws of the address (role, items[k], step); returns the words read."""
    room = room_for(key)
    for k in range(_WIDTH):
        room[DESK + k] = width[k]
    read = 0
    for row in range(out.shape[0]):
        bits = opened(room, secure, role, items[row], step, limit)
        for k in range(out.shape[1]):
            out[row, k] = discrete_gaussian(bits, laplace_step)
        read += words_read(room)
    return read
