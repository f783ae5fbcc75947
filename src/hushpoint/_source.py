"""The random sources that noise is drawn from: every draw has an address."""

from __future__ import annotations

import hashlib
import operator
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushpoint._threads import share
from hushpoint._types import Array

_WORTH_SHARING = 1 << 17  # normals from which on threads pay


@dataclass(frozen=True)
class Source:
    """A random source in which every draw has an address: (role, item, step).

    Two processes that share a key agree on every draw, and a resumed run cannot draw the same noise for another step.
    ``secure_source`` takes the key from the operating system and reads ChaCha20; ``seeded_source`` is for experiments.
    """

    key: NDArray[np.uint32] = field(repr=False, compare=False)
    seed: int | None = None

    @property
    def secure(self) -> bool:
        """Whether the draws can be released: a key from the operating system, a cryptographic stream."""
        return self.seed is None

    def describe(self) -> str:
        """The source as a guarantee names it."""
        if self.secure:
            return "noise from the operating system's generator (ChaCha20)"
        return f"noise from the integer seed {self.seed}, for experiments and not for release"

    def stream(self, role: str, item: int = 0, step: int = 0) -> np.random.Generator:
        """The NumPy generator of one address."""
        address = role_word(role), word(item), word(step)
        if self.secure:
            from randomgen import ChaCha

            block = int(address[0]) << 32 | address[1] << 64 | address[2] << 96
            key = int.from_bytes(self.key.astype("<u4").tobytes(), "little")
            # randomgen counts 32-bit words, 16 a block
            return np.random.Generator(ChaCha(key=key, counter=16 * block, rounds=20))
        from hushpoint._keyed import start_sfc

        words = np.empty(4, dtype=np.uint64)
        start_sfc(self.key, address[0], *address[1:], words)
        bits = np.random.SFC64(0)
        bits.state = {**bits.state, "state": {"state": words}}
        return np.random.Generator(bits)

    def uniforms(self, role: str, item: int, step: int, size: int) -> Array:
        """The first ``size`` uniform numbers in [0, 1) of one address."""
        from hushpoint._keyed import fill_uniforms

        out = np.empty(size)
        fill_uniforms(self.secure, self.key, role_word(role), word(item), word(step), out)
        return out

    def normals(
        self, role: str, items: Sequence[int] | NDArray[Any], step: int, size: int, scale: float = 1.0
    ) -> Array:
        """``scale`` times the first ``size`` normals of each address (role, item, step), one row an item."""
        from hushpoint._keyed import fill_normals

        indices = np.asarray(items, dtype=np.int64)
        out = np.empty((len(indices), size))
        address = self.secure, self.key, role_word(role)
        when, factor = word(step), float(scale)

        def fill(start: int, stop: int) -> None:
            fill_normals(*address, indices[start:stop], when, factor, out[start:stop])

        # Each row has its own address, so it does not matter who draws it.
        share(fill, len(indices), worth=out.size >= _WORTH_SHARING)
        return out


def secure_source() -> Source:
    """A source for releases: 256 bits from the operating system."""
    return Source(np.frombuffer(secrets.token_bytes(32), dtype="<u4").astype(np.uint32))


def seeded_source(seed: int) -> Source:
    """A reproducible source for experiments; whoever knows the seed can take the noise away again."""
    try:
        number = -1 if isinstance(seed, bool) else operator.index(seed)
    except TypeError:
        raise ValueError(f"seed is {seed!r}. Pass a non-negative integer, or None for a secure source.") from None
    if number < 0:
        raise ValueError(f"seed is {seed}. Pass a non-negative integer, or None for a secure source.")
    return Source(np.random.SeedSequence(number).generate_state(8).astype(np.uint32), number)


def source_for(seed: int | None) -> Source:
    """``None``: secure. An integer: reproducible."""
    return secure_source() if seed is None else seeded_source(seed)


def word(number: int) -> int:
    """An item or a step as an address holds it; an error beyond 32 bits, where addresses would come again."""
    return int(np.uint32(number))


@lru_cache(maxsize=64)
def role_word(role: str) -> np.uint32:
    """The word of an address that stands for a role."""
    return np.uint32(int.from_bytes(hashlib.blake2b(role.encode(), digest_size=4).digest(), "little"))
