"""Pieces that are found again by name: what a class states about itself, and how an instance becomes JSON and back."""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, ClassVar, Self

from hushpoint._checks import shown
from hushpoint._described import described, held, is_ours


class Named(ABC):
    """What losses, regularisers and their like have in common. A direct subclass is a kind, with names of its own.

    A dataclass of a kind that states ``name`` in its body can be saved; its fields are its parameters. One that states
    none, or inherits one, runs and cannot be saved. What a kind lists in ``_exact`` holds for the code of the one class
    that states it: a subclass, which may override methods, starts again from the kind's own default; what it lists in
    ``_code`` likewise for classes from outside.
    """

    name: ClassVar[str] = "user-defined"
    _exact: ClassVar[tuple[str, ...]] = ()
    _code: ClassVar[tuple[str, ...]] = ()
    _kind: ClassVar[type[Named]]
    _known: ClassVar[dict[str, type[Named]]]
    _met: ClassVar[type[Named]]  # the class itself, once it has been looked at

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._met = cls
        if Named in cls.__bases__:
            cls._kind, cls._known = cls, {}
            return
        outside = cls.__module__.partition(".")[0] != "hushpoint"
        for claim in (*cls._kind._exact, *(cls._kind._code if outside else ())):
            if claim not in vars(cls):
                setattr(cls, claim, vars(cls._kind)[claim])
        name = vars(cls).get("name")
        if isinstance(name, str):
            taken = cls._known.get(name, cls)
            if (taken.__module__, taken.__qualname__) != (cls.__module__, cls.__qualname__):
                raise ValueError(
                    f"name is {name!r} in {cls.__module__}.{cls.__qualname__}, and {taken.__module__}."
                    f"{taken.__qualname__} has it already. State another name in the class that is yours."
                )
            cls._known[name] = cls

    def __new__(cls, *args: Any, **options: Any) -> Self:
        if cls._met is not cls:  # else it would keep claims of its parents
            raise TypeError(f"a base of {cls.__name__} has an __init_subclass__ that does not call super(). Let it.")
        return super().__new__(cls)

    @classmethod
    def origin(cls) -> str | None:
        """The module to import for this piece; None for those of this package."""
        return None if is_ours(cls) else cls.__module__

    @property
    def inside(self) -> list[Named]:
        """The pieces that this one stands around."""
        return [part for part in held(self).values() if isinstance(part, Named)]

    def own_words(self) -> tuple[str, ...]:
        """Whose word a guarantee takes that rests on this piece and those inside; none for those of this package."""
        own = () if self.origin() is None else (f"the constants that {type(self).__name__} declares of itself",)
        return (*own, *(word for part in self.inside for word in part.own_words()))

    def to_dict(self) -> dict[str, Any]:
        """Name and parameters, ready for JSON, and the module where it is not of this package."""
        kind: Any = type(self)
        parts = _parts(kind) if "__dataclass_fields__" in vars(kind) else {"name": None}
        if kind not in self._known.values() or {"name", "module"} & set(parts):
            raise ValueError(
                f"{_word(kind)} is a {kind.__name__}, which runs and cannot be written to JSON: that takes a name of "
                'its own, name = "..." in the body of its class, and @dataclass above it without a field called so.'
            )
        module = {} if kind.origin() is None else {"module": kind.origin()}
        record = {"name": kind.name, **module, **{key: _plain(key, getattr(self, key)) for key in parts}}
        if described(kind.from_dict(record)) != described(self):
            raise ValueError(
                f"{_word(kind)} is a {kind.__name__} that holds more than its fields say, so it cannot be written to "
                "JSON. Make every parameter a field."
            )
        return record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """The piece that ``to_dict`` wrote. It imports nothing: whoever reads chooses which modules to trust."""
        given = {key: _read(cls, value) for key, value in record.items()}
        name, module = given.pop("name", None), given.pop("module", None)
        kind: Any = cls._known.get(f"{name}")
        if kind is None or module not in (None, kind.origin()):
            here = f"no {_word(cls)} that is known" if kind is None else f"a {_word(cls)} of {kind.__module__} here"
            told = cls.names() if module is None else _of(module)
            raise ValueError(f"name is {shown(name)}, which is {here}. {told}")
        parts = _parts(kind)
        needed = {key for key, part in parts.items() if part.default is part.default_factory is MISSING}
        if not needed <= set(given) <= set(parts):
            raise ValueError(f"The record of {name} has the parameters {sorted(given)}. Pass {list(parts)}.")
        piece: Self = kind(**given)
        return piece

    @classmethod
    def names(cls) -> str:
        """The names that are known, as a sentence."""
        return (
            f"The names are {', '.join(map(repr, cls._known))}; those of another module are known once it is imported, "
            "in a federation by plugins = [...] in site.toml and server.toml."
        )


def _word(kind: type[Named]) -> str:
    return kind._kind.__name__.lower()


def _parts(kind: Any) -> dict[str, Field[Any]]:
    """The parameters that a class is made with."""
    return {part.name: part for part in fields(kind) if part.init} if is_dataclass(kind) else {}


def _of(module: Any) -> str:
    if module == "__main__":
        return "The record means one that a script or notebook defined. Define it in a module that both import."
    return (
        f"The record means one of the module {shown(module)}. Import that first, if you trust it; in a federation by "
        f"plugins = [{shown(module)}] in site.toml or server.toml."
    )


def _plain(parameter: str, value: Any) -> Any:
    """A parameter as JSON can hold it."""
    if isinstance(value, Named):
        return value.to_dict()
    if isinstance(value, (tuple, list)):
        return [_plain(parameter, entry) for entry in value]
    if isinstance(value, float) and math.isinf(value):
        return str(value)  # JSON has no infinity
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ValueError(f"{parameter} is {shown(value)}, which cannot be written to JSON. Use numbers, words or tuples.")


def _read(kind: type[Named], value: Any) -> Any:
    """The parameter of a piece of this kind that ``_plain`` wrote."""
    if isinstance(value, Mapping):
        return kind._kind.from_dict(value)
    if isinstance(value, list):
        return tuple(_read(kind, entry) for entry in value)
    return float(value) if value in ("inf", "-inf") else value
