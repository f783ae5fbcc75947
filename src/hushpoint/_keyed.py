"""Compiled random numbers keyed by (role, item, step): every draw has an address, so that it can be drawn anywhere.

The stream of one address is ChaCha20 with the address as its nonce. A secure source reads that stream itself; a
seeded source (experiments) uses its first 192 bits to start SFC64, which is about four times faster. Normals come
from the ziggurat of Marsaglia and Tsang with 256 layers. ``noise.Source.stream`` gives the same bits as a NumPy
``Generator``; this module exists because building one generator object costs more than the noise of a block.
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from hushpoint._compiled import inner, loop

_LAYERS = 256
_EDGE = 3.6541528853610088  # where the tail begins
_AREA = _EDGE * math.exp(-0.5 * _EDGE**2) + math.sqrt(math.pi / 2) * math.erfc(_EDGE / math.sqrt(2))  # of every layer
_MANTISSA = float(1 << 52)


def _ziggurat_tables() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    accept = np.zeros(_LAYERS, dtype=np.uint64)
    width = np.zeros(_LAYERS)
    height = np.zeros(_LAYERS)
    x = previous = _EDGE
    base = _AREA / math.exp(-0.5 * x * x)
    accept[0], accept[1] = np.uint64(int(x / base * _MANTISSA)), 0
    width[0], width[-1] = base / _MANTISSA, x / _MANTISSA
    height[0], height[-1] = 1.0, math.exp(-0.5 * x * x)
    for layer in range(_LAYERS - 2, 0, -1):
        x = math.sqrt(-2.0 * math.log(_AREA / x + math.exp(-0.5 * x * x)))
        accept[layer + 1] = np.uint64(int(x / previous * _MANTISSA))
        previous = x
        height[layer] = math.exp(-0.5 * x * x)
        width[layer] = x / _MANTISSA
    return accept, width, height


_ACCEPT, _WIDTH, _HEIGHT = _ziggurat_tables()
_LANES = 8  # ChaCha blocks computed side by side: what a vector register of 256 bits holds
_BUFFER = 8 * _LANES  # words of so many blocks
_CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)  # "expand 32-byte k"
_VECTOR = ir.VectorType(ir.IntType(32), _LANES)


@intrinsic
def _eight_blocks(typing_context, table, blocks):
    """ChaCha20 of the eight columns of ``table``, into ``blocks``.

    Written as vector instructions, because eight blocks side by side cost little more than one: the compiler does not
    find that by itself.
    """

    def codegen(context, builder, signature, arguments):
        def rows(number):
            array = context.make_array(signature.args[number])(context, builder, arguments[number])
            start = builder.bitcast(array.data, _VECTOR.as_pointer())
            return [builder.gep(start, [ir.Constant(ir.IntType(64), row)]) for row in range(16)]

        def turn(value, by):
            up, down = (ir.Constant(_VECTOR, [shift] * _LANES) for shift in (by, 32 - by))
            return builder.or_(builder.shl(value, up), builder.lshr(value, down))

        def quarter(x, a, b, c, d):
            for one, other, third, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                x[one] = builder.add(x[one], x[other])
                x[third] = turn(builder.xor(x[third], x[one]), by)

        first = [builder.load(place, align=4) for place in rows(0)]
        places = [cgutils.alloca_once_value(builder, value) for value in first]
        with cgutils.for_range(builder, ir.Constant(ir.IntType(64), 10)):
            x = [builder.load(place) for place in places]
            for k in range(4):
                quarter(x, k, 4 + k, 8 + k, 12 + k)
            for k in range(4):
                quarter(x, k, 4 + (k + 1) % 4, 8 + (k + 2) % 4, 12 + (k + 3) % 4)
            for place, value in zip(places, x, strict=True):
                builder.store(value, place)
        for target, place, value in zip(rows(1), places, first, strict=True):
            builder.store(builder.add(builder.load(place), value), target, align=4)
        return context.get_dummy_value()

    return types.void(table, blocks), codegen


@loop
def scratch(key):
    """Room to work in: the table of eight blocks (constants and key in place), blocks, words, and SFC64 states."""
    table = np.empty((16, _LANES), dtype=np.uint32)
    for lane in range(_LANES):
        table[0, lane], table[1, lane], table[2, lane], table[3, lane] = _CONSTANTS
        for k in range(8):
            table[4 + k, lane] = key[k]
    blocks, words = np.empty((16, _LANES), dtype=np.uint32), np.empty(_BUFFER, dtype=np.uint64)
    return table, blocks, words, np.empty((_LANES, 4), dtype=np.uint64)


@inner
def _word(low, high):
    return np.uint64(low) | (np.uint64(high) << np.uint64(32))


@loop
def _secure_words(role, item, step, first, room):
    """The words of eight blocks of one address, from block ``first`` on."""
    table, blocks, words, _ = room
    for lane in range(_LANES):
        table[12, lane], table[13, lane], table[14, lane], table[15, lane] = first + lane, role, item, step
    _eight_blocks(table, blocks)  # type: ignore[call-arg]
    for lane in range(_LANES):
        for k in range(8):
            words[8 * lane + k] = _word(blocks[2 * k, lane], blocks[2 * k + 1, lane])


@inner
def _sfc(a, b, c, count):
    """The next word of SFC64, and its state after it."""
    word = a + b + count
    rotated = (c << np.uint64(24)) | (c >> np.uint64(40))
    return word, b ^ (b >> np.uint64(11)), c + (c << np.uint64(3)), rotated + word, count + np.uint64(1)


@inner
def start_eight(role, items, steps, room):
    """The SFC64 states of the addresses (role, items[k], steps[k]), eight at most, mixed as NumPy does."""
    table, blocks, _, states = room
    for k in range(_LANES):
        j = min(k, items.size - 1)
        table[12, k], table[13, k], table[14, k], table[15, k] = 0, role, items[j], steps[j]
    _eight_blocks(table, blocks)  # type: ignore[call-arg]
    for k in range(items.size):
        a, b = _word(blocks[0, k], blocks[1, k]), _word(blocks[2, k], blocks[3, k])
        c, count = _word(blocks[4, k], blocks[5, k]), np.uint64(1)
        for _ in range(12):
            _, a, b, c, count = _sfc(a, b, c, count)
        states[k, 0], states[k, 1], states[k, 2], states[k, 3] = a, b, c, count


@inner
def start_one(role, item, step, room):
    """The SFC64 state of one address."""
    where = np.empty(2, dtype=np.int64)
    where[0], where[1] = item, step
    start_eight(role, where[:1], where[1:], room)
    return room[3][0]


@inner
def _as_unit(word):
    return np.float64(np.int64(word >> np.uint64(11))) * (1.0 / 9007199254740992.0)


@inner
def _sign(word):
    """1 or -1, by a bit of the word, without a branch: the bit is a coin toss."""
    return 1.0 - 2.0 * np.float64(np.int64((word >> np.uint64(8)) & np.uint64(1)))


@inner
def _split(word):
    """Layer, sign, magnitude and value of a draw of the ziggurat."""
    layer = np.int64(word & np.uint64(0xFF))
    magnitude = (word >> np.uint64(9)) & np.uint64(0x000FFFFFFFFFFFFF)
    return layer, _sign(word), magnitude, np.float64(np.int64(magnitude)) * _WIDTH[layer]


@inner
def _below_curve(layer, value, level):
    return (_HEIGHT[layer - 1] - _HEIGHT[layer]) * level + _HEIGHT[layer] < math.exp(-0.5 * value * value)


@inner
def seeded_normals(state, scale, out):
    """Fill ``out`` with ``scale`` times the next normals of an SFC64 state, which moves on."""
    a, b, c, count = state[0], state[1], state[2], state[3]
    for k in range(out.size):
        while True:
            word, a, b, c, count = _sfc(a, b, c, count)
            layer, sign, magnitude, value = _split(word)
            if magnitude < _ACCEPT[layer]:
                break
            if layer == 0:
                while True:
                    one, a, b, c, count = _sfc(a, b, c, count)
                    two, a, b, c, count = _sfc(a, b, c, count)
                    x, y = -math.log1p(-_as_unit(one)) / _EDGE, -math.log1p(-_as_unit(two))
                    if y + y > x * x:
                        break
                value, sign = _EDGE + x, _sign(magnitude)
                break
            word, a, b, c, count = _sfc(a, b, c, count)
            if _below_curve(layer, value, _as_unit(word)):
                break
        out[k] = sign * (scale * value)
    state[0], state[1], state[2], state[3] = a, b, c, count


@inner
def secure_normals(role, item, step, scale, out, room):
    """Fill ``out`` with ``scale`` times the first normals of one address, read from ChaCha20 itself."""
    words = room[2]
    position = 0  # the next word to read
    kept, seen = 0, 0  # normals done; words that the current try has read
    layer, sign, magnitude, value = _split(np.uint64(0))
    x = 0.0
    while kept < out.size:
        place = position & (_BUFFER - 1)
        if place == 0:
            _secure_words(role, item, step, position >> 3, room)
        word = words[place]
        position += 1
        if seen == 0:
            layer, sign, magnitude, value = _split(word)
            accepted = magnitude < _ACCEPT[layer]
            seen = 1
        elif layer != 0:
            accepted = _below_curve(layer, value, _as_unit(word))
            seen = 0 if not accepted else seen
        elif seen == 1:
            x = -math.log1p(-_as_unit(word)) / _EDGE
            accepted = False
            seen = 2
        else:
            y = -math.log1p(-_as_unit(word))
            accepted = y + y > x * x
            value, sign = _EDGE + x, _sign(magnitude)
            seen = 1
        if accepted:
            out[kept] = sign * (scale * value)
            kept += 1
            seen = 0


@inner
def normals_at(secure, role, item, step, scale, out, room):
    """Fill ``out`` with ``scale`` times the first normals of the address (role, item, step)."""
    if secure:
        secure_normals(role, item, step, scale, out, room)
    else:
        seeded_normals(start_one(role, item, step, room), scale, out)


@inner
def uniforms_at(secure, role, item, step, out, room):
    """Fill ``out`` with the first uniform numbers in [0, 1) of one address."""
    if secure:
        for k in range(out.size):
            place = k & (_BUFFER - 1)
            if place == 0:
                _secure_words(role, item, step, k >> 3, room)
            out[k] = _as_unit(room[2][place])
        return
    state = start_one(role, item, step, room)
    a, b, c, count = state[0], state[1], state[2], state[3]
    for k in range(out.size):
        word, a, b, c, count = _sfc(a, b, c, count)
        out[k] = _as_unit(word)


@loop
def start_sfc(key, role, item, step, state):
    """Set ``state`` to the SFC64 state of one address."""
    found = start_one(role, item, step, scratch(key))
    for k in range(4):
        state[k] = found[k]


@loop
def fill_uniforms(secure, key, role, item, step, out):
    """Fill ``out`` with the first uniform numbers in [0, 1) of one address."""
    uniforms_at(secure, role, item, step, out, scratch(key))


@loop
def fill_normals(secure, key, role, items, step, scale, out):
    """Fill row k of ``out`` with ``scale`` times the first normals of the address (role, items[k], step)."""
    room = scratch(key)
    steps = np.empty(_LANES, dtype=np.int64)
    for k in range(_LANES):
        steps[k] = step
    for row in range(0, out.shape[0], _LANES):
        part = items[row : row + _LANES]
        if not secure:
            start_eight(role, part, steps, room)
        for k in range(part.size):
            if secure:
                secure_normals(role, part[k], step, scale, out[row + k], room)
            else:
                seeded_normals(room[3][k], scale, out[row + k])


@inner
def first_uniforms(secure, role, items, steps, out, room):
    """The first uniform number of each of the addresses (role, items[k], steps[k]), eight at most."""
    start_eight(role, items, steps, room)
    _, blocks, _, states = room
    for k in range(out.size):
        if secure:
            out[k] = _as_unit(_word(blocks[0, k], blocks[1, k]))
        else:
            out[k] = _as_unit(_sfc(states[k, 0], states[k, 1], states[k, 2], states[k, 3])[0])
