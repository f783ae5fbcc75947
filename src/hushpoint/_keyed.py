"""Compiled random numbers keyed by (role, item, step): every draw has an address, so that it can be drawn anywhere.

The stream of one address is ChaCha20 with the address as its nonce. A secure source reads that stream itself; a
seeded source (experiments) uses its first 192 bits to start SFC64, which is about four times faster. Normals come
from the ziggurat of Marsaglia and Tsang with 256 layers. ``noise.Source.stream`` gives the same bits as a NumPy
``Generator``; this module exists because building one generator object costs more than the noise of a block.
"""

from __future__ import annotations

import math

import numba as nb
import numpy as np

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
_BUFFER = 64  # words drawn at a time: a power of two, and a multiple of the eight of one ChaCha block


@nb.njit(cache=True, inline="always")
def _quarter(a, b, c, d):
    a = np.uint32(a + b)
    d = np.uint32(d ^ a)
    d = np.uint32((d << np.uint32(16)) | (d >> np.uint32(16)))
    c = np.uint32(c + d)
    b = np.uint32(b ^ c)
    b = np.uint32((b << np.uint32(12)) | (b >> np.uint32(20)))
    a = np.uint32(a + b)
    d = np.uint32(d ^ a)
    d = np.uint32((d << np.uint32(8)) | (d >> np.uint32(24)))
    c = np.uint32(c + d)
    b = np.uint32(b ^ c)
    b = np.uint32((b << np.uint32(7)) | (b >> np.uint32(25)))
    return a, b, c, d


@nb.njit(cache=True)
def _chacha20_block(key, n0, n1, n2, n3, out):
    """Write the eight 64-bit words of one block; n0 is the block counter, n1..n3 the nonce."""
    c0, c1, c2, c3 = (
        np.uint32(0x61707865),
        np.uint32(0x3320646E),
        np.uint32(0x79622D32),
        np.uint32(0x6B206574),
    )
    k0, k1, k2, k3, k4, k5, k6, k7 = key[0], key[1], key[2], key[3], key[4], key[5], key[6], key[7]
    x0, x1, x2, x3 = c0, c1, c2, c3
    x4, x5, x6, x7, x8, x9, x10, x11 = k0, k1, k2, k3, k4, k5, k6, k7
    x12, x13, x14, x15 = n0, n1, n2, n3
    for _ in range(10):
        x0, x4, x8, x12 = _quarter(x0, x4, x8, x12)
        x1, x5, x9, x13 = _quarter(x1, x5, x9, x13)
        x2, x6, x10, x14 = _quarter(x2, x6, x10, x14)
        x3, x7, x11, x15 = _quarter(x3, x7, x11, x15)
        x0, x5, x10, x15 = _quarter(x0, x5, x10, x15)
        x1, x6, x11, x12 = _quarter(x1, x6, x11, x12)
        x2, x7, x8, x13 = _quarter(x2, x7, x8, x13)
        x3, x4, x9, x14 = _quarter(x3, x4, x9, x14)
    out[0] = _word(np.uint32(x0 + c0), np.uint32(x1 + c1))
    out[1] = _word(np.uint32(x2 + c2), np.uint32(x3 + c3))
    out[2] = _word(np.uint32(x4 + k0), np.uint32(x5 + k1))
    out[3] = _word(np.uint32(x6 + k2), np.uint32(x7 + k3))
    out[4] = _word(np.uint32(x8 + k4), np.uint32(x9 + k5))
    out[5] = _word(np.uint32(x10 + k6), np.uint32(x11 + k7))
    out[6] = _word(np.uint32(x12 + n0), np.uint32(x13 + n1))
    out[7] = _word(np.uint32(x14 + n2), np.uint32(x15 + n3))


@nb.njit(cache=True, inline="always")
def _word(low, high):
    return np.uint64(low) | (np.uint64(high) << np.uint64(32))


@nb.njit(cache=True)
def _refill(secure, key, role, item, step, state, block, words):
    """Fill ``words`` with the next 64-bit words of one address."""
    if secure:
        for k in range(0, words.size, 8):
            _chacha20_block(key, np.uint32(block + k // 8), role, item, step, words[k : k + 8])
        return
    a, b, c, count = state[0], state[1], state[2], state[3]
    for k in range(words.size):
        words[k] = result = a + b + count
        count += np.uint64(1)
        a = b ^ (b >> np.uint64(11))
        b = c + (c << np.uint64(3))
        c = ((c << np.uint64(24)) | (c >> np.uint64(40))) + result
    state[0], state[1], state[2], state[3] = a, b, c, count


@nb.njit(cache=True)
def start_sfc(key, role, item, step, state, scratch):
    """Set ``state`` to the SFC64 state of one address, already mixed; ``scratch`` holds twelve words or more."""
    _chacha20_block(key, np.uint32(0), role, item, step, scratch[:8])
    state[0], state[1], state[2], state[3] = scratch[0], scratch[1], scratch[2], np.uint64(1)
    _refill(False, key, role, item, step, state, 0, scratch[:12])


@nb.njit(cache=True)
def _tail(secure, key, role, item, step, state, words, position):
    """A normal beyond _EDGE, and where the reading stands after it."""
    while True:
        x, position = _unit(secure, key, role, item, step, state, words, position)
        y, position = _unit(secure, key, role, item, step, state, words, position)
        x, y = -math.log1p(-x) / _EDGE, -math.log1p(-y)
        if y + y > x * x:
            return _EDGE + x, position


@nb.njit(cache=True)
def _unit(secure, key, role, item, step, state, words, position):
    """A uniform number in [0, 1), and where the reading stands after it."""
    index = position & (_BUFFER - 1)
    if index == 0:
        _refill(secure, key, role, item, step, state, position >> 3, words)
    return np.float64(words[index] >> np.uint64(11)) * (1.0 / 9007199254740992.0), position + 1


@nb.njit(cache=True)
def fill_uniforms(secure, key, role, item, step, out):
    """Fill ``out`` with the first uniform numbers in [0, 1) of one address."""
    state = np.empty(4, dtype=np.uint64)
    words = np.empty(_BUFFER, dtype=np.uint64)
    if not secure:
        start_sfc(key, role, item, step, state, words)
    position = 0
    for k in range(out.size):
        out[k], position = _unit(secure, key, role, item, step, state, words, position)


@nb.njit(cache=True)
def fill_normals(secure, key, role, items, step, scale, out):
    """Fill row k of ``out`` with ``scale`` times the first normals of the address (role, items[k], step)."""
    state = np.empty(4, dtype=np.uint64)
    words = np.empty(_BUFFER, dtype=np.uint64)
    for row in range(out.shape[0]):
        item = np.uint32(items[row])
        position = 0  # words read of this address
        if not secure:
            start_sfc(key, role, item, step, state, words)
        for column in range(out.shape[1]):
            while True:
                index = position & (_BUFFER - 1)
                if index == 0:
                    _refill(secure, key, role, item, step, state, position >> 3, words)
                word = words[index]
                position += 1
                layer = np.int64(word & np.uint64(0xFF))
                negative = (word >> np.uint64(8)) & np.uint64(1)
                magnitude = (word >> np.uint64(9)) & np.uint64(0x000FFFFFFFFFFFFF)
                value = np.float64(magnitude) * _WIDTH[layer]
                if magnitude < _ACCEPT[layer]:
                    break
                if layer == 0:
                    value, position = _tail(secure, key, role, item, step, state, words, position)
                    negative = (magnitude >> np.uint64(8)) & np.uint64(1)
                    break
                level, position = _unit(secure, key, role, item, step, state, words, position)
                if (_HEIGHT[layer - 1] - _HEIGHT[layer]) * level + _HEIGHT[layer] < math.exp(-0.5 * value * value):
                    break
            out[row, column] = -scale * value if negative else scale * value
