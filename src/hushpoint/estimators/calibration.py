"""The last step of a training: scale and offset of a model's scores, two numbers that cost next to nothing.

A model that stopped early is too small, one that is mostly noise too large, and either way its offset stands beside the
wrong scores. Two numbers can be learned with a budget with which a model cannot.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from hushpoint._fixed import product, sparse_product
from hushpoint._types import Array
from hushpoint.estimators import few_rounds
from hushpoint.estimators.metric import Metric
from hushpoint.estimators.planner import Parameters
from hushpoint.problem import Facts
from hushpoint.regularizers import Zero
from hushpoint.rows import ArrayRows, Rows, SparseRows, bounded_rows

_CAP = 2.0  # scores, in deviations, beyond which all count alike
_WIDEST = 2.0  # times as much may scores vary as the moments say: beyond, steps are too long for them
_SHORTER = 2.5  # with scores at the cap throughout, or all twice as large as believed, the largest second moment is 5


@dataclass(frozen=True, eq=False)
class Calibration:
    """A new fit of one column, ``(score - mean)/deviation`` cut at ``cap``, and with an intercept a column of ones.

    ``mean`` and ``deviation`` are what the released moments say of the scores.
    """

    model: Array
    mean: float
    deviation: float
    intercept: bool
    step_size: float
    clip: float
    steps: int
    begin: Array | None = None
    cap: float = _CAP

    @staticmethod
    def of(
        model: Array,
        metric: Metric,
        constant: float,
        parameters: Parameters,
        *,
        curved: bool = False,
        trust: float = 1.0,
    ) -> Calibration:
        """The calibration of a model; ``curved`` where its scores are largely made of features that hardly vary.

        What such features say drowns in the noise of the moments, and scores that vary twice as much as believed would
        be cut like outliers: their scale would come out too large. So they are cut where the noise may carry them.
        ``trust`` is how much of the model is likely to be more than noise: in few steps, that is where it begins.
        """
        mean, deviation = metric.expected_scores(model, constant)
        if not (math.isfinite(mean) and 1e-100 < deviation < 1e100):  # no model to speak of
            mean, deviation = 0.0, 1.0
        # Nearly all of a row is two numbers of about 1, and its length sqrt(2).
        clip = math.sqrt(2) * (max(0.7, parameters.clip) if parameters.two_class else parameters.clip)
        step_size = parameters.largest_step / _SHORTER
        begin = None
        if parameters.rounds is not None:  # one step does not undo what is noise, nor does it get far from zero
            begin = trust * np.array([deviation, mean][: 1 + bool(constant)])
            step_size = few_rounds.calibration_step(parameters.calibration_steps) * parameters.largest_step
        wider = math.sqrt(1 + metric.hidden_square(model, constant) / deviation**2) if curved else 1.0
        # Rounded, since it is a public fact of a plan: two machines may differ in the last digits of a sum.
        cap = round(1024 * _CAP * min(_WIDEST, wider)) / 1024  # the first where the model is no number
        return Calibration(
            model, mean, deviation, bool(constant), step_size, clip, parameters.calibration_steps, begin, cap
        )

    def facts(self, facts: Facts) -> Facts:
        """What is public of the scores as rows."""
        longest = math.hypot(self.cap, 1.0) if self.intercept else self.cap
        return replace(facts, features=1 + self.intercept, regularizer=Zero(), row_norm=longest, clip=self.clip)

    def look(self, facts: Facts, rows: Rows) -> Rows:
        """Scores of rows, each to the bit a function of its own row and of public numbers."""
        scores = scores_alone(rows, self.model[: rows.store.width])
        offset = (self.model[-1] if self.intercept else 0.0) - self.mean
        scores = np.clip((scores + offset) / self.deviation, -self.cap, self.cap)
        table = np.column_stack([scores, np.ones(len(scores))]) if self.intercept else scores[:, None]
        return bounded_rows(facts, ArrayRows(table), rows.targets, rows.offsets)

    def applied(self, found: Array) -> Array:
        """The model with its new scale and offset; a scale below 0 would be noise."""
        scale = max(float(found[0]), 0.0) / self.deviation
        model = scale * self.model
        if self.intercept:
            model[-1] += found[1] - scale * self.mean
        return model


def scores_alone(rows: Rows, coefficients: Array) -> Array:
    """Inner products of rows and coefficients, each to the bit a function of its own row.

    What is no number counts as 0 in all rows: times a zero it would be one thing in a table, another in a sparse one.
    """
    coefficients = np.where(np.isfinite(coefficients), coefficients, 0.0)
    scores = np.empty(len(rows))
    for place, part in rows.store.chunks():
        if isinstance(part, SparseRows):
            scores[place] = sparse_product(part.matrix, coefficients)
        else:
            scores[place] = product(part[:], coefficients)
    return scores
