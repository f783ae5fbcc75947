"""Tables: their public schema, reading them, and models that are saved with everything needed to predict."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hushpoint.schema import Boolean, Category, Ignored, Number, Schema, load_schema
    from hushpoint.tables.draft import draft_schema
    from hushpoint.tables.model_file import TableModel, load_model
    from hushpoint.tables.reading import read_table
    from hushpoint.tables.training import fit_model

_HOMES = {
    "Boolean": "schema",
    "Category": "schema",
    "Ignored": "schema",
    "Number": "schema",
    "Schema": "schema",
    "TableModel": "tables.model_file",
    "draft_schema": "tables.draft",
    "fit_model": "tables.training",
    "load_model": "tables.model_file",
    "load_schema": "schema",
    "read_table": "tables.reading",
}

__all__ = [
    "Boolean",
    "Category",
    "Ignored",
    "Number",
    "Schema",
    "TableModel",
    "draft_schema",
    "fit_model",
    "load_model",
    "load_schema",
    "read_table",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"hushpoint.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'hushpoint.tables' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
