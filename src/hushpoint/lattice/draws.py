"""Draws at addresses: in plain Python while they are few, in compiled code when there are many. The same integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushpoint._checks import require, require_count
from hushpoint._source import Source, role_word, word
from hushpoint._threads import share
from hushpoint.lattice import gaussian, normal
from hushpoint.lattice.words import STEPS, WORDS, Bits, Words, words_at

Whole = NDArray[np.int64]
Items = Sequence[int] | NDArray[Any]

FEW = 30_000  # draws of one process in Python: 0.2 to 0.5 s, as long as compiled code takes to load (to compile: 7 s)
MOST = 1 << 80  # s^2
FINEST = 1 << 32  # denominator of s^2
_OPENING = 8  # draws that take as long in Python as it takes to open an address
_WORTH_SHARING = 1 << 13  # draws from which on threads pay
PART = 1 << 12  # draws of one address
_WORD = (1 << 32) - 1  # the largest item and step that an address holds
_drawn_in_python = 0


def rounded_normals(source: Source, role: str, items: Items, step: int, size: int, scale: int) -> Whole:
    """The first ``size`` draws of ``rint(scale Z)``, Z standard normal, of each address, one row per item.

    Drawn exactly: the law of the integers is the one of the formula, if the words of the source are uniform. Draws at
    one address with two scales are two roundings of the same normals.

    Parameters
    ----------
    source, role, items, step
        The addresses, as in ``Source.normals``. They are others than those of ``Source.normals`` under the same names.
    scale : int
        The standard deviation on the lattice, from 1 to 2^40.
    """
    scale = require_count("scale", scale, least=1, most=normal.WIDEST)

    def compiled(*address: Any) -> None:
        from hushpoint.lattice.compiled.normal import fill_rounded_normals

        *where, out = address
        fill_rounded_normals(*where, np.uint64(scale), out)

    def plain(bits: Bits) -> int:
        return normal.rounded_normal(bits, scale)

    return _drawn(source, f"{role}, rounded normals", items, step, size, plain, compiled)


def rounded_normals_of_steps(source: Source, role: str, item: int, first: int, count: int, scale: int) -> Whole:
    """The first draw of ``rint(scale Z)`` of each of ``count`` steps: what ``rounded_normals`` gives, step by step."""
    global _drawn_in_python
    word(first + count)
    if _drawn_in_python + (_OPENING + 1) * count <= FEW:
        drawn = [rounded_normals(source, role, (item,), first + k, 1, scale)[0, 0] for k in range(count)]
        return np.array(drawn, dtype=np.int64)
    from hushpoint.lattice.compiled.normal import fill_rounded_normals_of_steps

    scale = require_count("scale", scale, least=1, most=normal.WIDEST)
    out = np.empty(count, dtype=np.int64)
    address = source.secure, source.key, role_word(f"{role}, rounded normals"), int(_items((item,))[0]), first
    fill_rounded_normals_of_steps(*address, WORDS, np.uint64(scale), out)
    return out


def discrete_gaussians(
    source: Source, role: str, items: Items, step: int, size: int, numerator: int, denominator: int = 1
) -> Whole:
    """The first ``size`` draws of the discrete Gaussian ``P(k) ~ exp(-k^2/(2 s^2))`` of each address, one row per item.

    Drawn exactly: the law of the integers is the one of the formula, if the words of the source are uniform.

    Parameters
    ----------
    source, role, items, step
        The addresses, as in ``Source.normals``. They are others than those of ``Source.normals`` under the same names.
    numerator, denominator : int
        ``s^2``, at most 2^80; in lowest terms the denominator is at most 2^32.
    """
    width = gaussian.Width.of(*_variance(numerator, denominator))

    def compiled(*address: Any) -> None:
        from hushpoint.lattice.compiled.gaussian import coded, fill_discrete_gaussians

        *where, out = address
        fill_discrete_gaussians(*where, width.step, coded(width), out)

    def plain(bits: Bits) -> int:
        return gaussian.discrete_gaussian(bits, width)

    return _drawn(source, f"{role}, discrete Gaussians", items, step, size, plain, compiled)


def _variance(numerator: int, denominator: int) -> tuple[int, int]:
    numerator, denominator = require_count("numerator", numerator), require_count("denominator", denominator)
    common = gcd(numerator, denominator)
    numerator, denominator = numerator // common, denominator // common
    require(numerator <= MOST * denominator, "numerator", numerator, "Pass s^2 = numerator/denominator up to 2^80.")
    require(denominator <= FINEST, "denominator", denominator, "Pass s^2 in lowest terms with at most 2^32 below.")
    return numerator, denominator


def _items(items: Items) -> Whole:
    """Items as addresses hold them: others would be cut to those, and the same noise be drawn twice."""
    if type(items) is tuple and len(items) == 1 and type(items[0]) is int and 0 <= items[0] <= _WORD:
        return np.array(items, dtype=np.int64)  # the usual case, and quick
    indices = np.asarray(items)
    whole = indices.ndim == 1 and (indices.dtype.kind in "iu" or indices.size == 0)
    if not whole or (indices.size and not (indices.min() >= 0 and indices.max() <= _WORD)):
        raise ValueError("items are no list of whole numbers from 0 to 2^32 - 1. Pass such a list.")
    return indices.astype(np.int64)


@lru_cache(maxsize=64)
def _parts(role: str, size: int, part: int) -> tuple[list[str], list[Any]]:
    """The roles under which the parts of a row are drawn, and their words in an address, all different."""
    names: list[str] = []
    words: dict[Any, None] = {}  # in their order
    for first in range(0, size, part):
        name = f"{role}, from {first} on" if first else role
        while role_word(name) in words:  # words are 32 bits of a digest
            name += " again"
        names.append(name)
        words[role_word(name)] = None
    return names, list(words)


def _drawn(
    source: Source,
    role: str,
    items: Items,
    step: int,
    size: int,
    plain: Callable[[Bits], int],
    compiled: Callable[..., None],
) -> Whole:
    """Rows of draws; those beyond PART of a row are at addresses of their own, so that threads can share them."""
    global _drawn_in_python
    indices, when = _items(items), require_count("step", step, least=0, most=_WORD)
    rows, size = len(indices), require_count("size", size, least=0)
    if not isinstance(source, Source):
        raise ValueError(f"source is a {type(source).__name__}. Pass one of hushpoint.noise.source_for(None).")
    names, roles = _parts(role, size, PART)
    found = [np.empty((rows, min(PART, size - PART * k)), dtype=np.int64) for k in range(len(names))]
    effort = rows * (size + _OPENING * len(names))
    if _drawn_in_python + effort <= FEW and when < STEPS:
        _drawn_in_python += effort
        for name, part in zip(names, found, strict=True):
            for row, item in zip(part, indices.tolist(), strict=True):
                bits = Words(words_at(source, name, item, when))
                row[:] = [plain(bits) for _ in range(len(row))]
    elif rows:

        def fill(start: int, stop: int) -> None:
            for k in range(start // rows, -(-stop // rows)):
                place = slice(max(start - k * rows, 0), min(stop - k * rows, rows))
                compiled(source.secure, source.key, roles[k], indices[place], when, WORDS, found[k][place])

        # Each row of each part has its own address, so it does not matter who draws it.
        share(fill, rows * len(names), worth=rows * size >= _WORTH_SHARING)
    return found[0] if len(found) == 1 else np.concatenate([*found, np.empty((rows, 0), dtype=np.int64)], axis=1)
