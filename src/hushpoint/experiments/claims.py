"""Sentences about the study's tables, flattering or not, each with the numbers it rests on.

Methods are compared on the same data, run by run: a standard error is that of the mean of their differences.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from scipy.stats import t as student

from hushpoint.experiments.contenders import AGGREGATOR, CURATOR, PEERS
from hushpoint.experiments.study import apart, at_least, at_most, number

Row = Mapping[str, Any]

GRADIENT = ("dp_gd", "dp_sgd_sampled")
TRUSTED = (CURATOR, AGGREGATOR)
SECURED = (("secure_anchored", "anchored_admm"), ("secure_dp_gd", "dp_gd"), ("secure_third", "anchored_admm"))
"""Methods by secure sums, and the same ones with someone trusted."""
_SURE = 2.0  # standard errors


class Frontier:
    """The rows of the frontier and the single runs behind them."""

    def __init__(self, rows: Sequence[Row], runs: Iterable[Row]) -> None:
        self.zero = next(row for row in rows if row["method"] == "zero")
        self.proved = [row for row in rows if row.get("basis") == "proved"]
        self.published = [row for row in rows if row.get("basis") == "published"]
        self.epsilons = sorted({row["epsilon"] for row in self.proved})
        self._runs: dict[tuple[str, Any], list[float]] = {}
        for row in runs:
            self._runs.setdefault((row["method"], row["epsilon"]), []).append(row["objective"])

    def at(self, epsilon: float, *trust: str) -> list[Row]:
        """The proved rows of a budget, the best first."""
        here = [row for row in self.proved if row["epsilon"] == epsilon and (not trust or row["trust"] in trust)]
        return sorted(here, key=lambda row: row["excess_mean"])

    def clear(self, one: Row, other: Row) -> bool:
        """Whether two methods differ by more than two standard errors of their difference on the same data."""
        gap, error = self.difference(one, other)
        return abs(gap) > _SURE * error

    def difference(self, one: Row, other: Row) -> tuple[float, float]:
        """By how much the first method is above the second, run by run on the same data, and the standard error."""
        first, second = (self._runs[row["method"], row["epsilon"]] for row in (one, other))
        gaps = [a - b for a, b in zip(first, second, strict=True)]
        return fmean(gaps), stdev(gaps) / math.sqrt(len(gaps)) if len(gaps) > 1 else math.inf

    def pairs(self, one: str, other: str) -> list[tuple[Row, Row]]:
        """The rows of two methods at each budget that both have."""
        found = {(row["method"], row["epsilon"]): row for row in self.proved}
        both = [(found.get((one, epsilon)), found.get((other, epsilon))) for epsilon in self.epsilons]
        return [(first, second) for first, second in both if first is not None and second is not None]

    def useful(self, row: Row) -> bool:
        """Whether a method clearly does better than the model 0."""
        return bool(row["excess_mean"] < self.zero["excess_mean"] and self.clear(row, self.zero))


# --- in detail


def lasso_claims(frontier: Frontier) -> list[str]:
    """Who is ahead at each epsilon and by how much, who does no better than knowing nothing, and what was published."""
    zero, said = frontier.zero, []
    for epsilon in frontier.epsilons:
        here = frontier.at(epsilon)
        said.append(_first(frontier, epsilon, here))
        said += _admm_against_gradients(frontier, epsilon)
        worse = [row for row in here if row["excess_mean"] >= zero["excess_mean"]]
        if worse:
            named = "; ".join(f"{row['label']}, {number(row['excess_mean'])}" for row in worse)
            said.append(
                f"At epsilon = {epsilon:g} no better than the model 0, which uses no data and is "
                f"{number(zero['excess_mean'])} above the optimum, are: {named}."
            )
    for one, other in SECURED:
        said += _secure_duel(frontier, one, other)
    for row in frontier.published:
        said.append(
            f"At a published epsilon = {row['epsilon']:g}, {row['label']} is {apart(row['excess_mean'])} the optimum, "
            f"and the epsilon that is proved of that run is {at_most(float(row['epsilon_proved']))}."
        )
    return said


def _first(frontier: Frontier, epsilon: float, here: Sequence[Row]) -> str:
    best, *others = here
    if not any(frontier.useful(row) for row in here):
        return (
            f"At epsilon = {epsilon:g} no method is better than the model 0 by more than two standard errors; the "
            f"lowest, {best['label']}, is {apart(best['excess_mean'])} the optimum."
        )
    text = (
        f"At epsilon = {epsilon:g} {best['label']} has the lowest test objective, {number(best['objective_mean'])}, "
        f"{apart(best['excess_mean'])} the optimum"
    )
    if not others:
        return text + "."
    second = others[0]
    gap = number(second["excess_mean"] - best["excess_mean"])
    return f"{text}; next comes {second['label']}, {gap} higher, {_sure(frontier, best, second)}."


def _admm_against_gradients(frontier: Frontier, epsilon: float) -> list[str]:
    both = _best_of_both(frontier, epsilon)
    if both is None:
        return []
    ours, theirs = both
    gap = ours["excess_mean"] - theirs["excess_mean"]
    verb = "loses to" if gap > 0 else "beats"
    return [
        f"At epsilon = {epsilon:g} the best ADMM with someone trusted, {ours['label']}, {verb} the best gradient "
        f"method, {theirs['label']}, by {number(abs(gap))}, {_sure(frontier, ours, theirs)}: they are "
        f"{apart(ours['excess_mean'])} and {apart(theirs['excess_mean'])} the optimum."
    ]


def _best_of_both(frontier: Frontier, epsilon: float) -> tuple[Row, Row] | None:
    """The best ADMM and the best gradient method with someone trusted, where both were run."""
    here = frontier.at(epsilon, *TRUSTED)
    admm, gradient = ([row for row in here if (row["method"] in GRADIENT) is wanted] for wanted in (False, True))
    return (admm[0], gradient[0]) if admm and gradient else None


def _sure(frontier: Frontier, one: Row, other: Row) -> str:
    return "more than two standard errors" if frontier.clear(one, other) else "within two standard errors"


def edge_claims(rows: Sequence[Row], grids: Mapping[str, Mapping[str, Sequence[float]]]) -> list[str]:
    """Where tuning chose the largest reach or gamma of a grid: a wider grid might have had a better one."""
    said = []
    for method, grid in grids.items():
        own = [row for row in rows if row["method"] == method]
        size = "reach" if "reach" in grid else "gamma"
        at_end = [row for row in own if row["parameters"][size] == max(grid[size])]
        if at_end:
            where = _listed([f"{row['epsilon']:g}" for row in at_end])
            said.append(
                f"At epsilon = {where} {own[0]['label']} was tuned to the "
                f"largest {size} of its grid, {max(grid[size]):g}: a larger one might do better."
            )
    return said


# --- in short


def lasso_summary(frontier: Frontier, recipe: Sequence[Row] = (), prices: Sequence[Row] = ()) -> list[str]:
    """What the study shows, in a few sentences; ``prices`` are the rows of the table of secure sums."""
    said = [
        *_way(
            frontier, "With a trusted curator or aggregator", lambda row: row["trust"] in TRUSTED,
            start="the model 0, which uses no data,",
        ),
        *_secure(frontier, prices),
        *_way(frontier, "Among peers, with no other party", lambda row: row["trust"] == PEERS),
        *_way(
            frontier, "With nobody trusted, noise of its own at each user and one record per user",
            lambda row: row["method"] in ("federated_admm_local", "decentralized_admm"),
        ),
        *_way(
            frontier, "With nobody trusted, noise of its own at each of a few sites",
            lambda row: row["method"] == "local_sites",
        ),
    ]  # fmt: skip
    return [*said, *_duel(frontier), *_as_calibrated(frontier), *_recipe(recipe)]


def _way(frontier: Frontier, title: str, wanted: Callable[[Row], bool], start: str = "the model 0") -> list[str]:
    """How much of the way from the model 0 to the optimum the best of some methods goes, at each epsilon."""
    labels: dict[str, None] = {}
    gained: list[str] = []
    first, nothing = math.inf, []
    for epsilon in frontier.epsilons:
        here = [row for row in frontier.at(epsilon) if wanted(row)]
        labels.update(dict.fromkeys(row["label"] for row in here))
        if not here:
            continue
        share = 1 - here[0]["excess_mean"] / frontier.zero["excess_mean"]
        if share < 0.005 or not frontier.useful(here[0]):
            nothing.append(epsilon)
        else:
            first = min(first, epsilon)
            part = "all" if share >= 0.995 else f"{100 * share:.0f}%"
            gained.append(f"{part} at {epsilon:g}" if gained else f"{part} of the way at epsilon = {epsilon:g}")
    if not labels:
        return []
    who = f"the {next(iter(labels))}" if len(labels) == 1 else f"the best of {len(labels)} methods"
    said = f"{title}, {who} goes from {start} towards the non-private optimum: "
    if not gained:
        return [f"{said}nowhere at epsilon = {max(nothing):g} and below."]
    later = [f"{epsilon:g}" for epsilon in nothing if epsilon > first]
    where = [f"below {first:g}"] if len(later) < len(nothing) else []
    where += [f"at {_listed(later)}"] if later else []
    return [said + _listed(gained) + (f"; nowhere {_listed(where)}" if where else "") + "."]


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + f" and {words[-1]}"


def _secure_duel(frontier: Frontier, one: str, other: str) -> list[str]:
    """A method by secure sums against the same one with someone trusted, run by run on the same data."""
    pairs = frontier.pairs(one, other)
    if not pairs:
        return []
    gaps = [(f"{first['epsilon']:g}", frontier.difference(first, second)[0]) for first, second in pairs]
    apart_at = [
        f"{epsilon} ({number(abs(gap))} {'above' if gap > 0 else 'below'})"
        for (epsilon, gap), pair in zip(gaps, pairs, strict=True) if frontier.clear(*pair)
    ]  # fmt: skip
    said = (
        f"{_capital(pairs[0][0]['label'])} against {pairs[0][1]['label']} with a {pairs[0][1]['trust']}, run by run on "
        f"the same data: within two standard errors at {len(pairs) - len(apart_at)} of {len(pairs)} budgets"
    )
    if apart_at:
        said += f", and beyond them at epsilon = {_listed(apart_at)}; by chance alone {_by_chance(pairs)} would be"
    return [f"{said}; the mean differences are {_signed([gap for _, gap in gaps])}."]


def _by_chance(pairs: Sequence[tuple[Row, Row]]) -> str:
    """How many of so many means of differences without any cause are beyond two of their standard errors."""
    return f"{sum(2 * student.sf(_SURE, max(row['runs'] - 1, 1)) for row, _ in pairs):.1f} of {len(pairs)}"


def _signed(gaps: Sequence[float]) -> str:
    """From the least to the largest."""
    least, most = (f"{'+' if gap > 0 else '-' if gap < 0 else ''}{number(abs(gap))}" for gap in (min(gaps), max(gaps)))
    return f"from {least} to {most}"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _secure_prices(prices: Sequence[Row]) -> list[str]:
    """What secure sums cost in noise."""
    if not prices:
        return []
    first = prices[0]
    rounds = " or ".join(f"{count:g}" for count in sorted({row["rounds"] for row in prices}))
    parts = []
    for colluders in sorted({row["colluders"] for row in prices}):
        ratios = [row["noise_ratio"] for row in prices if row["colluders"] == colluders]
        low, high = f"{min(ratios):.3f}", f"{max(ratios):.3f}"
        times = low if low == high else f"{low} to {high}"
        parts.append(f"{times} times as large where {colluders:g} of {first['sites']:,.0f} sites may collude")
    return [f"The noise is {_listed(parts)} ({rounds} rounds and room for {first['spare']:g} that fail)."]


def _secure(frontier: Frontier, prices: Sequence[Row]) -> list[str]:
    """What comes of it if nobody is trusted and sums are secure, and what that costs, in one paragraph."""
    way = _way(
        frontier, "With nobody trusted and secure sums",
        lambda row: row["method"] in ("secure_anchored", "secure_dp_gd"),
    )  # fmt: skip
    return [" ".join([*way, *_secure_duel(frontier, *SECURED[0]), *_secure_prices(prices)])] if way else []


def _duel(frontier: Frontier) -> list[str]:
    """The best ADMM against the best gradient method, both with someone trusted."""
    duels = []
    for epsilon in frontier.epsilons:
        if both := _best_of_both(frontier, epsilon):
            duels.append((f"{epsilon:g}", both[1]["excess_mean"] - both[0]["excess_mean"], frontier.clear(*both)))
    if not duels:
        return []
    wins = [f"{epsilon} (by {number(gap)})" for epsilon, gap, clear in duels if gap > 0 and clear]
    losses = [f"{epsilon} (by {number(-gap)})" for epsilon, gap, clear in duels if gap <= 0 and clear]
    behind = [f"{epsilon} (by {number(-gap)})" for epsilon, gap, _ in duels if gap <= 0]
    known = {row["method"] for row in frontier.proved if row["trust"] in TRUSTED} - set(GRADIENT)
    said = (
        f"With someone trusted, the best of {len(known)} ADMMs has a lower mean than the best of DP-GD and DP-SGD at "
        f"{len(duels) - len(behind)} of {len(duels)} budgets"
    )
    said += f", and a higher one at epsilon = {_listed(behind)}" if behind else ""
    said += ". By more than two standard errors ADMM leads "
    said += f"at epsilon = {_listed(wins)}" if wins else "nowhere"
    said += (
        f", and the gradient methods at epsilon = {_listed(losses)}." if losses else ", the gradient methods nowhere."
    )
    # Of eight differences by chance alone, one beyond two standard errors is no surprise.
    return [said + (" On this evidence neither is better." if len(wins) + len(losses) <= 1 else "")]


def _as_calibrated(frontier: Frontier) -> list[str]:
    """What noise by the printed central bound buys and costs, at the budget nearest 1."""
    if not frontier.published:
        return []
    row = min(frontier.published, key=lambda row: abs(math.log(row["epsilon"])))
    best = frontier.at(row["epsilon"], *TRUSTED)
    versus = f" ({best[0]['label']}, with a guarantee that holds: {number(best[0]['excess_mean'])})" if best else ""
    return [
        f"With noise by the paper's central bound, which does not hold, federated ADMM at epsilon = {row['epsilon']:g} "
        f"is {apart(row['excess_mean'])} the optimum{versus}, and the epsilon proved of its runs is "
        f"{at_most(float(row['epsilon_proved']))}."
    ]


def _recipe(rows: Sequence[Row]) -> list[str]:
    """What the recipe behind the paper's figure spends and gives at the largest epsilon that it states."""
    said = []
    for method, who in (("admm_as_published", "federated ADMM"), ("sgd_as_published", "DP-SGD")):
        own = sorted((row for row in rows if row["method"] == method), key=lambda row: row["epsilon_stated"])
        if not own:
            continue
        top, least = own[-1], own[-1]["epsilon_at_least"]
        text = (
            f"In the recipe behind the paper's figure, where {who} states epsilon = {top['epsilon_stated']:g}, the "
            f"epsilon proved is {at_most(float(top['epsilon_true']))} against whoever sees the {top['view']}"
        )
        if least:
            text += f", and even against whoever sees only each round's sum it is at least {at_least(float(least))}"
        text += (
            f"; its last model has a test objective of {number(top['objective_last_mean'])} (without privacy: "
            f"{number(top['nonprivate'])})"
        )
        useless = [row["objective_last_mean"] >= row["start"] for row in own]
        first_good = useless.index(False) if False in useless else len(own)
        if first_good:
            stated = own[first_good - 1]["epsilon_stated"]
            text += f"; where it states {stated:.3g} or less it ends worse than it started"
        said.append(text + ".")
    return said
