"""Words and coins of one address in compiled code, and room for four uniform numbers.

All of it is one array of words, the room, which functions know by its address in memory: counting arrays in and out
would take several times as long as the draws.
"""

from __future__ import annotations

import numpy as np
from numba import carray  # type: ignore[attr-defined]

from hushpoint._compiled import inner, loop
from hushpoint._keyed import _secure_words, _sfc, scratch, start_one
from hushpoint.lattice.compiled.memory import get, pointer, put
from hushpoint.lattice.uniform import TIED
from hushpoint.lattice.words import BATCH, DEEPEST, OVERRUN

_SECURE, _ROLE, _ITEM, _STEP, _LIMIT = range(5)  # the address, and how many words of it may be read
_READ, _FILLED, _LEFT, _HELD = range(5, 9)  # words read, words there were, coins left, the word that they are in
_KNOWN = 9  # digits known of each number
_DIGITS = _KNOWN + 4
_STATES = _DIGITS + 4 * DEEPEST  # eight of SFC64, four words each
_WORDS, _TABLE, _BLOCKS, DESK = (_STATES + 32 + k * BATCH for k in range(4))
_END = DESK + 64  # the desk is for those who work with wider numbers
_NONE, _ONE = np.uint64(0), np.uint64(1)


@inner
def _stream(bits):
    """The room of ``_keyed`` within this one."""
    return (
        carray(pointer(bits, _TABLE), (16, 8), np.uint32),
        carray(pointer(bits, _BLOCKS), (16, 8), np.uint32),
        carray(pointer(bits, _WORDS), (BATCH,), np.uint64),
        carray(pointer(bits, _STATES), (8, 4), np.uint64),
    )


@loop
def room_for(key):
    """Room to work in, which has to outlive the bits."""
    room = np.zeros(_END, dtype=np.uint64)
    table, whole = scratch(key)[0], _stream(np.uint64(room.ctypes.data))[0]
    for row in range(16):
        for lane in range(8):
            whole[row, lane] = table[row, lane]
    return room


@loop
def opened(room, secure, role, item, step, limit):
    """The bits of one address from its first word on; ``limit`` (a multiple of the batch) words at most."""
    room[_SECURE], room[_ROLE], room[_ITEM], room[_STEP], room[_LIMIT] = secure, role, item, step, limit
    for place in range(_READ, _DIGITS):
        room[place] = 0
    bits = np.uint64(room.ctypes.data)
    if not secure:
        start_one(np.uint32(role), np.int64(item), np.int64(step), _stream(bits))
    return bits


@inner
def words_read(room):
    """How many words of the address were read."""
    return np.int64(room[_READ])


@loop
def _refill(bits):
    if get(bits, _FILLED) >= get(bits, _LIMIT):
        raise OverflowError(OVERRUN)
    room = _stream(bits)
    if get(bits, _SECURE):
        first = np.int64(get(bits, _FILLED) >> np.uint64(3))
        item, step = np.int64(get(bits, _ITEM)), np.int64(get(bits, _STEP))
        _secure_words(np.uint32(get(bits, _ROLE)), item, step, first, room)
    else:
        words, state = room[2], room[3][0]
        a, b, c, count = state[0], state[1], state[2], state[3]
        for k in range(BATCH):
            words[k], a, b, c, count = _sfc(a, b, c, count)
        state[0], state[1], state[2], state[3] = a, b, c, count
    put(bits, _FILLED, get(bits, _FILLED) + np.uint64(BATCH))


@inner
def word(bits):
    """The next word."""
    read = get(bits, _READ)
    if read == get(bits, _FILLED):
        _refill(bits)
    put(bits, _READ, read + _ONE)
    return get(bits, _WORDS + np.int64(read & np.uint64(BATCH - 1)))


@inner
def coin(bits):
    """Whether the next coin is 1."""
    left, held = get(bits, _LEFT), get(bits, _HELD)
    if left == _NONE:
        held, left = word(bits), np.uint64(64)
    put(bits, _LEFT, left - _ONE)
    put(bits, _HELD, held >> _ONE)
    return held & _ONE != _NONE


@inner
def coins(bits, count):
    """So many coins at once, fewer than 64, the first one lowest."""
    size, left, held = np.uint64(count), get(bits, _LEFT), get(bits, _HELD)
    if size > left:
        following = word(bits)
        found = held | (following << left)
        put(bits, _HELD, following >> (size - left))
        put(bits, _LEFT, np.uint64(64) - size + left)
    else:
        found = held
        put(bits, _HELD, held >> size)
        put(bits, _LEFT, left - size)
    return found & ((_ONE << size) - _ONE)


@inner
def fresh(bits, number):
    """Make one of the uniform numbers a new one, of which no digit is known."""
    put(bits, _KNOWN + number, _NONE)


@inner
def digit(bits, number, place):
    """The digit of a uniform number at a place, drawn if it is not known."""
    where = _DIGITS + number * DEEPEST + place
    if np.uint64(place) == get(bits, _KNOWN + number):
        if place == DEEPEST:
            raise ArithmeticError(TIED)
        put(bits, where, word(bits))
        put(bits, _KNOWN + number, np.uint64(place) + _ONE)
    return get(bits, where)
