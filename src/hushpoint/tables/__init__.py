"""Tables: their public schema, reading them, and models that are saved with everything needed to predict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hushpoint._on_demand import on_demand

if TYPE_CHECKING:
    from hushpoint.schema import Boolean, Category, Ignored, Number, Schema, load_schema
    from hushpoint.tables.draft import draft_schema
    from hushpoint.tables.evaluation import Evaluation
    from hushpoint.tables.figures import Figure
    from hushpoint.tables.model_file import TableModel, load_model
    from hushpoint.tables.reading import read_table
    from hushpoint.tables.training import fit_model

__all__ = ["Boolean", "Category", "Evaluation", "Figure", "Ignored", "Number", "Schema", "TableModel"]
__all__ += ["draft_schema", "fit_model", "load_model", "load_schema", "read_table"]

__getattr__, __dir__ = on_demand(
    __name__,
    __all__,
    {
        "hushpoint.schema": ["Boolean", "Category", "Ignored", "Number", "Schema", "load_schema"],
        "hushpoint.tables.draft": ["draft_schema"],
        "hushpoint.tables.evaluation": ["Evaluation"],
        "hushpoint.tables.figures": ["Figure"],
        "hushpoint.tables.model_file": ["TableModel", "load_model"],
        "hushpoint.tables.reading": ["read_table"],
        "hushpoint.tables.training": ["fit_model"],
    },
)
