"""What epsilon is needed: the score that a private model is expected to have, from public facts and a guess."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any

import numpy as np

from hushpoint import losses
from hushpoint._checks import require, require_choice, require_count, require_fraction, require_positive
from hushpoint._types import Array
from hushpoint.certificates import ADJACENCIES
from hushpoint.estimators.assumed import Assumed, Target, agreement, outcome, scores
from hushpoint.estimators.planner import plan_parameters
from hushpoint.losses import Loss
from hushpoint.privacy.gaussian import gdp_mu
from hushpoint.privacy.guarantee import Adjacency, checked_delta

EPSILONS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)

_CONDITIONS = (1.0, 10.0, 100.0, 1000.0)
_AROUND = 4.0  # how far a guess of the condition may be off
_WITHIN = (0.05, 0.95)
_WIDER = 1.25  # for what the formulas miss (benchmarks/expected.py)


@dataclass(frozen=True)
class ExpectedAccuracy:
    """Expected test scores at several epsilons: no data was touched.

    ``measure`` is "accuracy" or "R2"; ``guess`` the score without privacy that all of this rests on, ``base_rate`` that
    of a model that knows nothing. Nine of ten models are expected between ``low`` and ``high``: over the noise, and
    over what is not known of the data. ``remark`` says what was left out, if anything was.
    """

    n: int
    p: int
    delta: float
    adjacency: Adjacency
    measure: str
    guess: float
    base_rate: float
    epsilons: tuple[float, ...]
    expected: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    remark: str = field(default="", kw_only=True)

    def needed(self, score: float, *, surely: bool = False) -> float | None:
        """The least epsilon at which this score is expected; None where none of those looked at is enough.

        Parameters
        ----------
        score : float
        surely : bool
            Ask it of ``low``.
        """
        reached = np.maximum.accumulate(self.low if surely else self.expected)
        above = np.flatnonzero(reached >= score)
        if not above.size:
            return None
        k = int(above[0])
        if k == 0:
            return self.epsilons[0]
        part = (score - reached[k - 1]) / (reached[k] - reached[k - 1])
        return float(self.epsilons[k - 1] * (self.epsilons[k] / self.epsilons[k - 1]) ** part)

    def share(self, share: float) -> float:
        """The score with this share of what the guess has above the base rate."""
        return self.base_rate + share * (self.guess - self.base_rate)

    def rows(self) -> list[dict[str, float]]:
        """One dictionary per epsilon."""
        columns = zip(self.epsilons, self.expected, self.low, self.high, strict=True)
        return [dict(zip(("epsilon", "expected", "low", "high"), row, strict=True)) for row in columns]

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON can hold it."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"epsilon   {self.measure:<10}9 of 10 models"]
        for row in self.rows():
            lines.append(f"{row['epsilon']:<10g}{row['expected']:<10.3f}{row['low']:.3f} to {row['high']:.3f}")
        answers = [f"{share:.0%} of the gain ({self.share(share):.3f}) {self._answer(share)}" for share in (0.5, 0.9)]
        words = (
            f"Of {self.guess:g} without privacy, a guess, and {self.base_rate:g} for a model that knows nothing: "
            f"{' and '.join(answers)}. {self.n} people, {self.p} features, delta = {self.delta:.2g}, {self.adjacency}. "
            f"{self.remark}"
        )
        return "\n".join(lines) + "\n" + textwrap.fill(words, 100, break_on_hyphens=False)

    def _answer(self, share: float) -> str:
        needed = self.needed(self.share(share))
        if needed is None:
            return f"needs more than epsilon = {self.epsilons[-1]:g}"
        return f"needs {'at most ' if needed == self.epsilons[0] else ''}epsilon = {needed:.2g}"


def expected_accuracy(
    n: int,
    p: int,
    epsilons: float | Sequence[float] = EPSILONS,
    *,
    guess: float | None = None,
    base_rate: float | None = None,
    delta: float | None = None,
    adjacency: Adjacency = "replace-one",
    loss: str | Loss = "logistic",
    condition: float | None = None,
    effective: float | None = None,
    share: float = 1.0,
) -> ExpectedAccuracy:
    """What an estimator with its defaults is expected to score, from public facts and a guess: no data is touched.

    Without a penalty: what one keeps from a model is not part of it.

    Parameters
    ----------
    n : int
        Number of items: records, or users.
    p : int
        Number of features as the estimator gets them, categories one-hot.
    epsilons : float or sequence of floats
    guess : float, optional
        The score without privacy: accuracy of two classes, or R2. Not from the data that is to be protected: from
        experience, or from public data like it. Default: 0.85 or 0.5.
    base_rate : float, optional
        The share of the more frequent of two classes. Default: 0.5. Numbers have none: there R2 is 0 for the mean.
    delta : float, optional
        Default: ``n**-1.1``.
    adjacency : {"replace-one", "zero-out"}
    loss : str or Loss
        "logistic", "smoothed_hinge", "squared", "huber" or another that `plan_parameters` takes.
    condition : float, optional
        A guess of the largest second moment of the features over the smallest, along principal directions. Default: it
        may be anything from 1 to 1000, and the spread says so.
    effective : float, optional
        As in `plan_parameters`.
    share : float
        Share of the budget (of mu squared) that is left for the model.

    Returns
    -------
    ExpectedAccuracy
        ``print`` shows a table and says which epsilon is needed; ``needed(score)`` does so for a score.
    """
    people, features = require_count("n", n), require_count("p", p)
    asked = [epsilons] if isinstance(epsilons, (int, float)) else list(epsilons)
    budgets = sorted({require_positive("epsilons", epsilon) for epsilon in asked})
    require(bool(budgets), "epsilons", epsilons, "Pass one epsilon at least.")
    require_choice("adjacency", adjacency, ADJACENCIES)
    delta = people**-1.1 if delta is None else checked_delta(delta)
    chosen = losses.resolve(loss)
    target = assumed_target(chosen, guess, base_rate)
    share = math.sqrt(require_fraction("share", share))
    data = assumed_data(condition)
    found = []
    for epsilon in budgets:
        mu = share * gdp_mu(epsilon, delta)
        plan = plan_parameters(people, features, mu, loss=chosen, adjacency=adjacency, effective=effective)
        found.append(np.concatenate([scores(outcome(plan, chosen, one, target), one, target) for one in data]))
    best, nothing = target.score, target.base_rate
    table = np.array(found)
    middle = np.maximum(table, nothing).mean(axis=1)  # a few useless models must not hide the others
    low, high = (middle + _WIDER * (np.quantile(table, q, axis=1) - middle) for q in _WITHIN)
    columns = ((middle, nothing), (np.minimum(low, middle), nothing - 1), (np.maximum(high, middle), nothing))
    return ExpectedAccuracy(
        people, features, float(delta), adjacency, "accuracy" if target.two_class else "R2", best, nothing,
        tuple(budgets), *(_rising(column, least, best) for column, least in columns),
    )  # fmt: skip


def assumed_target(loss: Loss, guess: float | None, base_rate: float | None) -> Target:
    """The target that goes with a guess."""
    if loss.labels != "two-class":
        remedy = f"Leave it out: it is for two classes, and the loss is {loss.name!r}. R2 is 0 for a constant."
        require(base_rate is None, "base_rate", base_rate, remedy)
        guess = 0.5 if guess is None else guess
        require(0 < guess < 1, "guess", guess, "Pass the R2 of a model without privacy, above 0 and below 1.")
        return Target(False, 0.5, math.sqrt(guess), guess)
    base_rate = 0.5 if base_rate is None else base_rate
    require(0.5 <= base_rate < 1, "base_rate", base_rate, "Pass the share of the more frequent class, 0.5 or more.")
    guess = max(0.85, (1 + base_rate) / 2) if guess is None else guess
    remedy = f"Pass the accuracy of a model without privacy, above base_rate = {base_rate:g} and below 1."
    require(base_rate < guess < 1, "guess", guess, remedy)
    low, high = 1e-4, 1 - 1e-9
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if _best_agreement(base_rate, middle) >= guess else (middle, high)
    return Target(True, base_rate, high, guess)


def assumed_data(condition: float | None) -> list[Assumed]:
    """What the data may be like, each as likely as the others."""
    conditions: Sequence[float] = _CONDITIONS
    if condition is not None:
        require(condition >= 1, "condition", condition, "Pass the ratio of two second moments, 1 or more.")
        conditions = (max(1.0, condition / _AROUND), condition, condition * _AROUND)
    looks = ((0.8, 0.5), (0.3, 0.25))
    return [Assumed(*pair, *look) for pair, look in product(product(conditions, (0.0, 1.0)), looks)]


def _best_agreement(most: float, goes_with: float) -> float:
    cut = Target(True, most, goes_with, 0.0).cut
    return float(agreement(cut, np.array([goes_with]), np.array([-cut / goes_with]))[0])


def _rising(column: Array, least: float, most: float) -> tuple[float, ...]:
    """With a larger budget one can always do what one did with a smaller."""
    return tuple(np.clip(np.maximum.accumulate(column), least, most).tolist())
