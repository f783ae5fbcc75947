"""Sentences about a table, flattering or not, each with the numbers it rests on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hushpoint.experiments.study import apart, number

Row = Mapping[str, Any]

GRADIENT = ("dp_gd", "dp_sgd_sampled")


def lasso_claims(frontier: Sequence[Row], labels: Mapping[str, str]) -> list[str]:
    """Who wins at each epsilon and by how much, who does worse than knowing nothing, and what was only published."""
    zero = next(row for row in frontier if row["method"] == "zero")
    private = [row for row in frontier if row["method"] in labels]
    proved = [row for row in private if row["basis"] == "proved"]
    said = []
    for epsilon in sorted({row["epsilon"] for row in proved}):
        here = sorted((row for row in proved if row["epsilon"] == epsilon), key=lambda row: row["excess_mean"])
        said.append(_winner(epsilon, here))
        said += _admm_against_gradients(epsilon, here)
        worse = [row for row in here if row["excess_mean"] >= zero["excess_mean"]]
        if worse:
            named = ", ".join(f"{row['label']} ({number(row['excess_mean'])})" for row in worse)
            said.append(
                f"At epsilon = {epsilon:g} no better than the model 0, which uses no data and is "
                f"{number(zero['excess_mean'])} above the optimum: {named}."
            )
    for row in private:
        if row["basis"] == "published":
            said.append(
                f"At a published epsilon = {row['epsilon']:g}, {row['label']} is {apart(row['excess_mean'])} "
                f"the optimum, but what is proved of that run is epsilon = {number(float(row['epsilon_proved']))}."
            )
    return said


def _winner(epsilon: float, here: Sequence[Row]) -> str:
    best, *others = here
    text = (
        f"At epsilon = {epsilon:g} {best['label']} has the lowest test objective, {number(best['objective_mean'])}, "
        f"{apart(best['excess_mean'])} the non-private optimum"
    )
    if not others:
        return text + "."
    second = others[0]
    return (
        f"{text}; {second['label']} is {number(second['excess_mean'] - best['excess_mean'])} above it"
        f"{_doubt(best, second)}."
    )


def _admm_against_gradients(epsilon: float, here: Sequence[Row]) -> list[str]:
    gradient = [row for row in here if row["method"] in GRADIENT]
    admm = [row for row in here if row["method"] not in GRADIENT and row["trust"].startswith("trusted")]
    if not gradient or not admm:
        return []
    ours, theirs = admm[0], gradient[0]
    gap = ours["excess_mean"] - theirs["excess_mean"]
    verb = "loses to" if gap > 0 else "beats"
    return [
        f"At epsilon = {epsilon:g} the best private ADMM with a trusted party, {ours['label']} "
        f"({apart(ours['excess_mean'])} the optimum), {verb} the best gradient method, {theirs['label']} "
        f"({apart(theirs['excess_mean'])} it), by {number(abs(gap))}{_doubt(ours, theirs)}."
    ]


def _doubt(one: Row, other: Row) -> str:
    """A warning where a difference is within two standard errors."""
    error = math.sqrt(one["excess_std"] ** 2 / one["runs"] + other["excess_std"] ** 2 / other["runs"])
    close = abs(one["excess_mean"] - other["excess_mean"]) <= 2 * error
    return ", which is within two standard errors" if close else ""
