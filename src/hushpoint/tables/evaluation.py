"""How good a model is on a table: exactly, for the holder of the table, or with noise and a guarantee."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hushpoint._checks import require_choice
from hushpoint._silence import silent_about
from hushpoint.certificates import ADJACENCIES
from hushpoint.noise import source_for
from hushpoint.privacy.gaussian import compose_mu, gdp_epsilon, gdp_mu
from hushpoint.privacy.guarantee import Adjacency, Guarantee, Unit, checked_delta, checked_epsilon
from hushpoint.tables.budget import settled_delta
from hushpoint.tables.figures import Figure, exact_figures, in_words
from hushpoint.tables.model_file import TableModel
from hushpoint.tables.outcomes import Outcomes, outcomes_of
from hushpoint.tables.scoring import ScoringModel


@dataclass(frozen=True)
class Evaluation:
    """Figures about a model on a table, and whose privacy they concern.

    Parameters
    ----------
    figures : mapping of str to Figure
        "accuracy", "baseline_accuracy" and, without noise, "log_loss" and "roc_auc"; or "r2", "rmse" and
        "baseline_rmse". The baseline is the best constant answer, known in hindsight.
    items : int
        How many rows, or users: the public n.
    unit : {"record", "user"}
    table, model : str
        What was scored on what, in words.
    guarantee : Guarantee, optional
        For one row of the table, or one user. None: the figures are exact.
    """

    figures: Mapping[str, Figure]
    items: int
    unit: Unit
    table: str
    model: str
    guarantee: Guarantee | None = None

    @property
    def score(self) -> float | None:
        """Accuracy, or R2; None where there is none, or where noise hides it."""
        return next(iter(self.figures.values())).value

    @property
    def privacy(self) -> str:
        """Whose privacy the figures concern, in a sentence or a guarantee."""
        if self.guarantee is not None:
            return str(self.guarantee)
        return (
            f"These are exact figures about the rows of {self.table}: share them only if those people's data may be "
            "shared. With an epsilon they are released with noise and a guarantee."
        )

    def __str__(self) -> str:
        whose = f"{self.items:,} users, each counted once, by the mean over their rows"
        head = f"{self.model} on {self.table}: {whose if self.unit == 'user' else f'{self.items:,} rows'}."
        absent = "not defined for this table" if self.guarantee is None else "hidden by the noise"
        lines = in_words(self.figures, absent)
        width = max(len(words) for words, _ in lines)
        table = [f"  {words:<{width}}  {told}" for words, told in lines]
        noise = [] if self.guarantee is None else ["", "After ± stands the standard deviation of the noise."]
        return "\n".join([head, "", *table, *noise, "", self.privacy])

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON can hold them."""
        return {
            "model": self.model,
            "table": self.table,
            "users" if self.unit == "user" else "rows": self.items,
            "figures": {name: asdict(figure) for name, figure in self.figures.items()},
            "guarantee": None if self.guarantee is None else self.guarantee.to_dict(),
            "privacy": self.privacy,
        }


@silent_about("the table")
@np.errstate(all="ignore")  # a warning of an overflow would tell of an entry
def evaluate(
    model: TableModel,
    data: Any,
    epsilon: float | None,
    delta: float | None,
    groups: str | None,
    adjacency: Adjacency | None,
    seed: int | None,
) -> Evaluation:
    """``TableModel.score``."""
    check_budget(epsilon, delta, adjacency, seed)
    groups = groups or model.schema.groups
    table = Path(data).name if isinstance(data, (str, Path)) else "the table"
    unit: Unit = "record" if groups is None else "user"
    return scored(model, outcomes_of(model, data, groups), table, unit, epsilon, delta, adjacency, seed)


def scored(
    model: ScoringModel,
    seen: Outcomes,
    table: str,
    unit: Unit,
    epsilon: float | None,
    delta: float | None,
    adjacency: Adjacency | None,
    seed: int | None,
) -> Evaluation:
    """The figures of what a model answered, exact or with noise."""
    items = len(seen.counts)
    told = items, unit, table, f"{model.kind} model of {model.target!r}"
    if epsilon is None:
        return Evaluation(exact_figures(model, seen), *told)
    from hushpoint.tables.noisy_figures import noisy_figures

    delta, source = settled_delta(delta, items, unit), source_for(seed)
    # A little less than allowed: the parts are rounded up when they are put together again.
    figures, spent, released = noisy_figures(model, seen, gdp_mu(epsilon, delta) * (1 - 1e-9), source)
    mu = compose_mu(spent)
    guarantee = Guarantee(
        gdp_epsilon(mu, delta), delta, mu, unit, adjacency or "replace-one", "iterates", "proved", "11", (released,),
        source=source.describe(), arithmetic="whole",
    )  # fmt: skip
    return Evaluation(figures, *told, guarantee)


def check_budget(epsilon: float | None, delta: float | None, adjacency: str | None, seed: int | None) -> None:
    """Everything that can be refused before a long table is read."""
    if epsilon is not None:
        checked_epsilon(epsilon)
        if delta is not None:
            checked_delta(delta)
        if adjacency is not None:
            require_choice("adjacency", adjacency, ADJACENCIES)
        source_for(seed)
        return
    for name, value in (("delta", delta), ("adjacency", adjacency), ("seed", seed)):
        if value is not None:
            raise ValueError(
                f"{name} is {value!r} and epsilon is not given, without which there is no noise and no guarantee. Pass "
                f"an epsilon, or leave out {name} for exact figures."
            )
