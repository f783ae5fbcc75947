"""What a model answers for the rows of a table, beside what is true of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushpoint import cells
from hushpoint._types import Array, Indices
from hushpoint.tables.model_file import TableModel
from hushpoint.tables.reading import read_chunks
from hushpoint.tables.training import declared_targets, users_of


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Of each row the truth, the model's score and its answer, and whose row it is. All of it is private.

    Targets and answers are names of classes, or numbers inside the declared range. ``items`` numbers the rows, or the
    users; item i has ``counts[i]`` rows.
    """

    true: NDArray[Any]
    scores: Array
    answers: NDArray[Any]
    items: Indices
    counts: Indices

    @property
    def weights(self) -> Array:
        """What each row counts, so that every item counts as much as any other."""
        return 1.0 / self.counts[self.items]


def outcomes_of(model: TableModel, data: Any, groups: str | None) -> Outcomes:
    """Read a table part by part; of its cells nothing is kept but targets, users and the model's answers."""
    true, scores, users = [], [], []
    for chunk in read_chunks(data) if isinstance(data, (str, Path)) else [data]:
        _require_columns(model, groups, chunk)
        true.append(declared_targets(model.schema, chunk))
        if not len(true[-1]):
            raise ValueError("the table has no rows. Pass at least one.")
        scores.append(model.decision_alone(chunk))
        if groups is not None:
            users.append(users_of(groups, model.schema, chunk))
        if len(true[-1]) != len(scores[-1]) or (users and len(users[-1]) != len(scores[-1])):
            raise ValueError("the columns of the table have different lengths. Pass one value per row in each.")
    found = np.concatenate(scores)
    items = np.unique(np.concatenate(users), return_inverse=True)[1] if users else np.arange(len(found))
    return Outcomes(np.concatenate(true), found, model.answers(found), items, np.bincount(items))


def _require_columns(model: TableModel, groups: str | None, table: Any) -> None:
    names, schema = cells.names_of(table), model.schema
    if groups is not None and groups == schema.target:
        raise ValueError(f"groups is {groups!r}, which is the target. Name the column that says whose row it is.")
    absent = [name for name in (*schema.features, schema.target, groups) if name is not None and name not in names]
    if absent:
        raise ValueError(
            f"the table lacks {', '.join(map(repr, absent))}. To be scored it needs every feature of the model, the "
            "target, and the column that says whose row it is where the model or you name one."
        )
