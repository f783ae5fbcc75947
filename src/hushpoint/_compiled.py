"""How compiled functions are compiled: once for all runs, without Python's lock, and anew when any of them changes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numba as nb

_njit: Any = nb.njit  # its types leave out some of the options below
_LOOP = {"cache": True, "nogil": True, "error_model": "numpy"}  # a division by zero gives infinity, and no branch
_INNER = {**_LOOP, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def loop(function: Callable[..., Any]) -> Any:
    """A compiled function that Python calls."""
    return _stamped(_njit(**_LOOP)(function))


def inner(function: Callable[..., Any]) -> Any:
    """A compiled function that only compiled ones call: faster to compile."""
    return _stamped(_njit(**_INNER)(function))


def inner_sum(function: Callable[..., Any]) -> Any:
    """The same for sums, which may be reordered: that lets them use vectors. NaN and infinity stay what they are."""
    return _stamped(_njit(**_INNER, fastmath={"reassoc", "contract", "nsz"})(function))


def _stamped(function: Any) -> Any:
    """Tie the cached code of a function to all sources of compiled code.

    Compiled code holds a copy of whatever it calls, but numba compares only the file of the function itself: a
    correction in one file would not reach the cached loops of another.
    """
    file: Any = getattr(getattr(function, "_cache", None), "_cache_file", None)
    if hasattr(file, "_source_stamp"):
        file._source_stamp = sources()
    return function


@lru_cache(maxsize=1)
def sources() -> str:
    """A digest of the sources of all compiled code."""
    here = Path(__file__).parent
    digest = hashlib.blake2b()
    beside = (here / f"_{name}.py" for name in ("codes", "compiled", "fixed", "keyed"))
    rooms = [*(here / "kernels").glob("*.py"), *(here / "lattice").rglob("*.py")]
    for path in sorted([*beside, *rooms]):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()
