"""How large the residuals of a regression are: one private number, for its intervals."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hushpoint._types import Array
from hushpoint.estimators.calibration import scores_alone
from hushpoint.operators.lattice_moments import LatticeMeanSquare
from hushpoint.operators.moments import MeanSquare
from hushpoint.problem import Facts
from hushpoint.regularizers import Zero
from hushpoint.rows import ArrayRows, Rows


@dataclass(frozen=True, eq=False)
class Residuals:
    """Residuals of a released model as rows of one entry, none counted larger than ``cap``.

    ``model`` has its intercept last, if there is one, and is for targets less ``offset``.
    """

    model: Array
    offset: float
    cap: float
    intercept: bool

    def facts(self, facts: Facts) -> Facts:
        """What is public of residuals as rows."""
        return replace(facts, features=1, regularizer=Zero(), row_norm=self.cap, clip=None)

    def operator(self, facts: Facts, lattice: bool) -> LatticeMeanSquare | MeanSquare:
        """Their mean square."""
        return (LatticeMeanSquare if lattice else MeanSquare)(self.facts(facts))

    def look(self, rows: Rows) -> Rows:
        """Residuals of rows, each to the bit a function of its own row and of public numbers."""
        scores = scores_alone(rows, self.model[: rows.store.width])
        scores += self.model[-1] if self.intercept else 0.0
        # What is no number counts as the largest, in all rows and however they are stored.
        scores = scores if np.isfinite(self.model).all() else np.full(len(rows), np.nan)
        sizes = np.fmin(np.abs(rows.targets - self.offset - scores), self.cap)[:, None]
        return replace(rows, store=ArrayRows(sizes), squared_norms=sizes[:, 0] ** 2, limits=None)
