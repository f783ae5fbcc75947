"""Pieces as texts: the same for the same piece with the same numbers, in any process."""

from __future__ import annotations

import functools
import hashlib
import sys
import types
from collections.abc import Mapping
from typing import Any

import numpy as np

_PLAIN = (int, float, str, bool, type(None))
"""What stands for itself. It is asked for first: there are as many numbers as a model has coordinates."""


def described(piece: Any) -> str:
    """The kind of a piece and all that it holds, whoever wrote it: what two pieces share only if they are alike.

    A piece of this package is its class and what its instance holds; one from outside also its code, for two classes
    made in one function have one name. What cannot be looked into stands for itself by its ``repr``, which may hold for
    one process only. A piece that stands for more than it holds says what it is by a method ``identity``.
    """
    return _told(piece, ())


def _told(piece: Any, inside: tuple[int, ...]) -> str:
    if type(piece) in _PLAIN:
        return repr(piece)
    if id(piece) in inside:
        return f"[{len(inside) - inside.index(id(piece))} up]"

    around = (*inside, id(piece))

    def tell(part: Any) -> str:
        return repr(part) if type(part) in _PLAIN else _told(part, around)

    if isinstance(piece, np.ndarray):
        if piece.dtype.hasobject:
            return f"array({piece.shape}, {tell(piece.tolist())})"
        content = hashlib.sha256(np.ascontiguousarray(piece).tobytes()).hexdigest()
        return f"array({piece.dtype.str}, {piece.shape}, {content})"
    if isinstance(piece, Mapping):
        return "{" + ", ".join(sorted(f"{tell(key)}: {tell(value)}" for key, value in piece.items())) + "}"
    if isinstance(piece, (list, tuple)):
        return "[" + ", ".join(map(tell, piece)) + "]"
    if isinstance(piece, (set, frozenset)):
        return "{" + ", ".join(sorted(map(tell, piece))) + "}"
    if isinstance(piece, functools.partial):
        return f"partial{tell((piece.func, piece.args, piece.keywords))}"
    if isinstance(piece, property):
        return f"property{tell((piece.fget,))}"
    if isinstance(piece, (staticmethod, classmethod, types.MethodType)):
        return f"{type(piece).__name__}{tell((piece.__func__, getattr(piece, '__self__', None)))}"
    if isinstance(piece, functools.cached_property):
        return f"cached{tell((piece.func,))}"
    if isinstance(piece, types.FunctionType):
        return _function(piece, tell)
    if isinstance(piece, type):
        return _class(piece, tell)
    if not (_slots(type(piece)) or hasattr(piece, "__dict__")) or isinstance(piece, types.ModuleType):
        return repr(piece)
    return f"{tell(type(piece))}{tell(piece.identity() if hasattr(piece, 'identity') else held(piece))}"


def held(piece: Any) -> dict[str, Any]:
    """What an instance holds, without what it only remembers."""
    kind = type(piece)
    inside = {name: getattr(piece, name) for name in _slots(kind) if hasattr(piece, name)}
    for name, value in getattr(piece, "__dict__", {}).items():
        if not _is_remembered(kind, name):
            inside[name] = value
    return inside


def _is_remembered(kind: type, name: str) -> bool:
    """Whether what an instance has under a name is the answer of a cached property."""
    for base in kind.__mro__:
        if name in base.__dict__:
            return isinstance(base.__dict__[name], functools.cached_property)
    return False


def _slots(kind: type) -> list[str]:
    """The slots of a class and of those that it derives from."""
    given = [base.__dict__["__slots__"] for base in kind.__mro__ if "__slots__" in base.__dict__]
    names = [name for listed in given for name in ([listed] if isinstance(listed, str) else listed)]
    return [name for name in names if name not in ("__dict__", "__weakref__")]


def _class(kind: type, tell: Any) -> str:
    """A class by its name; one from outside also by what its body holds, constants and code."""
    name = f"{kind.__module__}.{kind.__qualname__}"
    if is_ours(kind) or kind.__module__.partition(".")[0] in ("builtins", "abc", "numpy", "typing"):
        return name
    own = {key: value for key, value in vars(kind).items() if not _is_machinery(key, value)}
    return f"{name}({tell(own)}, {tell(list(kind.__bases__))})"


def is_ours(kind: type) -> bool:
    """Whether a class is of this package: the one that a module of it has under its name."""
    real = getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is kind
    return real and kind.__module__.partition(".")[0] == "hushpoint"


def _is_machinery(key: str, value: Any) -> bool:
    made = ("__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__abstractmethods__", "_abc_impl")
    dataclass = ("__dataclass_fields__", "__dataclass_params__", "__match_args__", "__static_attributes__")
    return key in (*made, *dataclass, "__firstlineno__") or isinstance(
        value, (types.GetSetDescriptorType, types.MemberDescriptorType)
    )


def _function(function: types.FunctionType, tell: Any) -> str:
    cells = [cell.cell_contents for cell in function.__closure__ or () if cell is not None]
    return f"function({_code(function.__code__)}, {tell([function.__defaults__, function.__kwdefaults__, cells])})"


def _code(code: types.CodeType) -> str:
    constants = [_code(part) if isinstance(part, types.CodeType) else repr(part) for part in code.co_consts]
    return hashlib.sha256(repr((code.co_code, constants, code.co_names)).encode()).hexdigest()
