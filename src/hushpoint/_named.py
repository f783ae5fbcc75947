"""Pieces that are found again by name: what a class states about itself, and how an instance becomes JSON and back."""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, ClassVar, Self

from hushpoint._checks import shown
from hushpoint._described import held, is_ours


class Named(ABC):
    """What losses, regularisers and their like have in common. A direct subclass is a kind, with names of its own.

    A dataclass of a kind that states ``name`` in its body can be saved; its fields are its parameters. One that states
    none, or inherits one, runs and cannot be saved. What a kind lists in ``_exact`` holds for the code of the one class
    that states it: a subclass, which may override methods, starts again from the kind's own default.
    """

    name: ClassVar[str] = "user-defined"
    _exact: ClassVar[tuple[str, ...]] = ()
    _kind: ClassVar[type[Named]]
    _known: ClassVar[dict[str, type[Named]]]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if Named in cls.__bases__:
            cls._kind, cls._known = cls, {}
            return
        for claim in cls._kind._exact:
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

    @classmethod
    def origin(cls) -> str | None:
        """The module to import for this piece; None for those of this package."""
        return None if is_ours(cls) else cls.__module__

    @property
    def inside(self) -> list[Named]:
        """The pieces that this one stands around."""
        return [part for part in held(self).values() if isinstance(part, Named)]

    def to_dict(self) -> dict[str, Any]:
        """Name and parameters, ready for JSON, and the module where it is not of this package."""
        kind = type(self)
        if kind not in self._known.values():
            raise ValueError(
                f"{_word(kind)} is a {kind.__name__}, which runs and cannot be written to JSON: no name leads back to "
                'it. State name = "..." in the body of its class.'
            )
        origin = kind.origin()
        parameters = {part.name: _plain(part.name, getattr(self, part.name)) for part in _parts(kind)}
        return {"name": kind.name, **({} if origin is None else {"module": origin}), **parameters}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """The piece that ``to_dict`` wrote. It imports nothing: whoever reads chooses which modules to trust."""
        given = {key: cls._read(value) for key, value in record.items()}
        name, module = given.pop("name", None), given.pop("module", None)
        kind: Any = cls._known.get(f"{name}")
        if kind is None or module not in (None, kind.origin()):
            raise ValueError(f"name is {shown(name)}, which is {_unknown(cls, kind, module)}")
        parts = _parts(kind)
        needed = {part.name for part in parts if part.default is part.default_factory is MISSING}
        known = [part.name for part in parts]
        if not needed <= set(given) <= set(known):
            raise ValueError(f"The record of {name} has the parameters {sorted(given)}. Pass {known}.")
        piece: Self = kind(**given)
        return piece

    @classmethod
    def names(cls) -> str:
        """The names that are known, as a sentence."""
        return (
            f"The names are {', '.join(map(repr, cls._known))}; those of another module are known once it is imported, "
            "in a federation by plugins = [...] in site.toml and server.toml."
        )

    @classmethod
    def _read(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return cls._kind.from_dict(value)
        if isinstance(value, list):
            return tuple(map(cls._read, value))
        return float(value) if value in ("inf", "-inf") else value


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


def _word(kind: type[Named]) -> str:
    return kind._kind.__name__.lower()


def _parts(kind: type[Named]) -> list[Field[Any]]:
    """The parameters that a class is made with."""
    made_of: Any = kind
    if "__dataclass_fields__" not in vars(kind):
        raise ValueError(
            f"{_word(kind)} is a {kind.__name__}, which runs and cannot be written to JSON: it is no dataclass, whose "
            "fields would be its parameters. Write @dataclass(frozen=True) above its class."
        )
    return [part for part in fields(made_of) if part.init]


def _unknown(asked: type[Named], found: type[Named] | None, module: Any) -> str:
    """Why a record leads nowhere, and what to do."""
    word = _word(asked)
    if module is None:
        return f"no {word} that is known. {asked.names()}"
    if found is not None:
        return (
            f"a {word} of {found.__module__!r} here and one of {shown(module)} in the record. Import only the module "
            "that the record means: another one may compute something else under the same name."
        )
    if module == "__main__":
        return f"a {word} that a script or notebook defined for itself. Define it in a module that is imported by both."
    return (
        f"a {word} of the module {shown(module)}, which is not imported. Import it first, if you trust it; in a "
        f"federation by plugins = [{shown(module)}] in site.toml or server.toml."
    )
