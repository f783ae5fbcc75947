"""The paper's study, honestly: private ADMM and DP-SGD on one Lasso, by the same budget, accountant and tuning effort.

Every method is tuned, for every epsilon, over a grid of as many settings, on separate data of the same law (which costs
no privacy); the test set is looked at once, with the last model (or the tail average, where that setting won), never
with the best. Every run draws its own training and test data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from hushpoint.experiments import accountants, published_recipe
from hushpoint.experiments.claims import Frontier, edge_claims, lasso_claims, lasso_summary
from hushpoint.experiments.contenders import ADJACENCY, CONTENDERS, SHARE, Contender, Size, draw
from hushpoint.experiments.frontier_table import terminal_table
from hushpoint.experiments.published_recipe import Recipe
from hushpoint.experiments.secure_bytes import round_bytes
from hushpoint.experiments.seeds import derived
from hushpoint.experiments.study import Cell, Record, Study, in_batches, joined, json_number, spread
from hushpoint.experiments.tuning import Settings, choices, require_equal_effort, say_grids, tuned
from hushpoint.privacy.guarantee import Budget
from hushpoint.problem import Problem

DELTA = 1e-6

FRONTIER = (
    "method", "label", "trust", "view", "unit", "basis", "adjacency", "epsilon", "delta", "objective_mean",
    "objective_std", "excess_mean", "excess_std", "runs", "rounds", "noise_std", "epsilon_proved", "parameters",
)  # fmt: skip
ROUNDS = (
    "method", "label", "trust", "basis", "epsilon", "round", "numbers_sent", "objective_mean", "objective_std", "runs",
)  # fmt: skip
RUNS = ("method", "epsilon", "run", "objective")
SECURE = ("method", "label", "epsilon", "rounds", "sites", "colluders", "spare", "noise_ratio")
TUNING = ("method", "epsilon", "place", "validation_objective", "chosen", "parameters")
TITLE = "Private ADMM and DP-SGD on the paper's Lasso, by the same budget, accountant and tuning effort"


@dataclass(frozen=True)
class Scale:
    """How large a study is."""

    size: Size = field(default_factory=Size)
    epsilons: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 20.0)
    followed: tuple[float, ...] = (1.0, 10.0)  # where the way to the model is recorded
    runs: int = 10
    batch: int = 5  # runs in one cell
    tuning_runs: int = 3
    grid: str = "full"
    most_settings: int | None = None
    methods: tuple[str, ...] = tuple(CONTENDERS)
    steps: tuple[int, ...] = (1, 3, 10, 30, 100, 300, 1000)  # of the tables about guarantees and noise
    recipe: Recipe = field(default_factory=Recipe)

    def settings_of(self, method: str) -> list[Settings]:
        """The grid of a method."""
        grid: Sequence[Settings] = getattr(CONTENDERS[method], self.grid)
        return list(grid[: self.most_settings])


FULL = Scale()
QUICK = Scale(
    epsilons=(0.1, 1.0, 5.0, 20.0), followed=(1.0,), runs=5, tuning_runs=2, grid="quick",
    recipe=Recipe(runs=2, epsilons=(0.01, 0.1, 1.0, 5.0)),
)  # fmt: skip


# --- cells: each a function of JSON settings, run in a worker


def regularisation(settings: Record) -> Record:
    """The strength of the L1 penalty, by cross-validation with scikit-learn on data of its own."""
    from sklearn.linear_model import LassoCV

    sample = draw(Size(**settings["size"]), derived(settings["seed"], "regularisation"))
    search = LassoCV(fit_intercept=False, cv=5, alphas=100).fit(sample.rows, sample.targets)
    return {"strength": float(search.alpha_)}


def tuning(settings: Record) -> Record:
    """The best setting of a method at one epsilon on separate data."""
    contender, seed = CONTENDERS[settings["method"]], settings["seed"]
    size, strength = Size(**settings["size"]), settings["strength"]
    samples = [draw(size, derived(seed, "tuning data", run)) for run in range(settings["runs"])]

    def score(choice: Settings) -> list[float]:
        try:
            plan = contender.plan(samples[0], strength, choice, settings["epsilon"], settings["delta"])
        except ValueError:
            return []  # no noise gives this setting the guarantee
        scores = []
        for run, sample in enumerate(samples):
            bound = plan.on(contender.problem(sample, strength, choice["clip"]))
            model = bound.run(seed=derived(seed, "tuning noise", run)).model
            scores.append(sample.test(strength).objective(model))
        return scores

    return {**tuned(settings["grid"], score), "grid": settings["grid"]}


def evaluation(settings: Record) -> Record:
    """Runs of the chosen setting, each on its own data, judged on its own test set; and the guarantee they had."""
    contender, choice, strength = CONTENDERS[settings["method"]], settings["parameters"], settings["strength"]
    size, seed = Size(**settings["size"]), settings["seed"]
    objectives, ways, plan = [], [], None
    for run in settings["runs"]:
        sample = draw(size, derived(seed, "data", run))
        if plan is None:
            plan = contender.plan(sample, strength, choice, settings["epsilon"], settings["delta"])
        plan = plan.on(contender.problem(sample, strength, choice["clip"]))
        test = sample.test(strength)
        points = _milestones(plan.steps) if settings["follow"] else []
        way: list[float] = []

        def look(step: int, model: Any, points: Any = frozenset(points), test: Any = test, way: Any = way) -> None:
            if step in points:
                way.append(test.objective(model))

        noise_seed = derived(seed, "noise", settings["method"], settings["epsilon"], run)
        result = plan.run(seed=noise_seed, callback=look if points else None)
        objectives.append(test.objective(result.model))
        ways.append(way)
    assert plan is not None
    record: Record = {
        "objectives": objectives,
        "ways": ways if settings["follow"] else None,
        "points": _milestones(plan.steps),
        "numbers_sent": contender.sent(plan) * size.features,
        "rounds": plan.steps,
        "noise_std": plan.parameters["noise_std"],
    }
    if contender.published:
        stated = plan.guarantee(settings["delta"], "final", "replace-one", allow_published=True)
        proved = plan.guarantee(settings["delta"], "messages", "replace-one")
        return {**record, "guarantee": stated.to_dict(), "epsilon_proved": json_number(proved.epsilon)}
    guarantee = contender.guarantee(plan, settings["delta"])
    return {**record, "guarantee": guarantee.to_dict(), "epsilon_proved": guarantee.epsilon}


def references(settings: Record) -> Record:
    """What can be had without privacy, and without data, on the same training and test sets."""
    from sklearn.linear_model import Lasso

    best, nothing = [], []
    for run in settings["runs"]:
        sample = draw(Size(**settings["size"]), derived(settings["seed"], "data", run))
        strength, test = settings["strength"], sample.test(settings["strength"])
        fit = Lasso(alpha=strength, fit_intercept=False, tol=1e-12, max_iter=100_000).fit(sample.rows, sample.targets)
        best.append(test.objective(fit.coef_))
        nothing.append(test.objective(np.zeros(sample.size.features)))
    return {"nonprivate": best, "zero": nothing}


def _milestones(steps: int, most: int = 24) -> list[int]:
    return sorted({round(step) for step in np.geomspace(1, steps, most)})


# --- the study


def run_lasso(
    directory: Path, *, scale: Scale | None = None, quick: bool = False, as_published: bool = False, seed: int = 0,
    jobs: int = 2, brief: bool = False, console: Console | None = None,
) -> Record:  # fmt: skip
    """Run the study, or what is left of it, and write its tables, claims, figures and report into a directory.

    ``brief`` prints the table and what it shows in short; the grids and all claims are in the report then.
    """
    console = console or Console()
    scale = scale or (QUICK if quick else FULL)
    effort = require_equal_effort({name: scale.settings_of(name) for name in scale.methods})
    _say_what(scale, effort, console)
    if not brief:
        console.print("Tuned over every combination of:")
        say_grids(console, {CONTENDERS[name].label: scale.settings_of(name) for name in scale.methods})
    common = {"size": asdict(scale.size), "seed": seed, "delta": DELTA}
    first = Cell("regularisation", regularisation, {"size": common["size"], "seed": seed}, 0.2)

    def follow(cell: Cell, result: Record) -> Iterable[Cell]:
        if cell.task is regularisation:
            strength = result["strength"]
            settings = {**common, "strength": strength, "runs": list(range(scale.runs))}
            yield Cell("references", references, settings, 0.2)
            for name in scale.methods:
                for epsilon in scale.epsilons:
                    options = {"method": name, "epsilon": epsilon, "strength": strength, "runs": scale.tuning_runs}
                    settings = {**common, **options, "grid": scale.settings_of(name)}
                    yield Cell(f"tuning-{name}-{epsilon:g}", tuning, settings, _weight(scale, name, tuning=True))
        elif cell.task is tuning and result["chosen"] is not None:
            name, epsilon = cell.settings["method"], cell.settings["epsilon"]
            for number_of_batch, runs in enumerate(in_batches(scale.runs, scale.batch)):
                options = {"method": name, "epsilon": epsilon, "strength": cell.settings["strength"], "runs": runs}
                settings = {**common, **options, "parameters": result["chosen"], "follow": epsilon in scale.followed}
                title = f"runs-{name}-{epsilon:g}-{number_of_batch}"
                yield Cell(title, evaluation, settings, _weight(scale, name) * len(runs))

    cells = [first, *accountants.cells(scale.size, scale.steps, scale.epsilons, DELTA)]
    if as_published:
        cells += published_recipe.cells(scale.recipe, scale.batch, seed, DELTA)
    one = sum(_weight(scale, name, tuning=True) + scale.runs * _weight(scale, name) for name in scale.methods)
    options = {"quick": quick, "as-published": as_published}
    study = Study("lasso", TITLE, directory, _settings(scale, effort), options, seed, console)
    results = study.run(cells, jobs, follow, later=0.2 + one * len(scale.epsilons))

    study.settings["strength"] = results["regularisation"]["strength"]
    done = _done(scale, results)
    frontier, runs = _frontier(done, results), _runs(done, results["references"])
    study.save("frontier", FRONTIER, frontier)
    study.save("rounds", ROUNDS, [*frontier[:2], *_rounds(scale, done)])
    study.save("runs", RUNS, runs)
    study.save("tuning", TUNING, _tuning(scale, results))
    prices = _secure_prices(scale)
    study.save("secure", SECURE, prices)
    for name, (columns, rows) in accountants.tables(results).items():
        study.save(name, columns, rows)
    recipe_rows: list[Record] = []
    if as_published:
        for name, rows in published_recipe.tables(results, scale.recipe, DELTA).items():
            study.save(name, published_recipe.COLUMNS, rows)
            recipe_rows += rows
    shown = Frontier(frontier, runs)
    claims = lasso_claims(shown) + edge_claims(frontier, study.settings["grids"])
    claims += published_recipe.claims(recipe_rows)
    return study.finish(lasso_summary(shown, recipe_rows, prices), claims, terminal_table(frontier), brief)


def _weight(scale: Scale, name: str, *, tuning: bool = False) -> float:
    """About how many seconds a run, or a whole tuning, takes: for the remaining time only."""
    slow = {
        "secure_dp_gd": 0.06,
        "decentralized_walk": 0.35,
        "decentralized_admm": 0.15,
        "local_users": 0.3,
        "local_sites": 0.25,
    }
    one = slow.get(name, 0.05)
    return one * len(scale.settings_of(name)) * scale.tuning_runs if tuning else one


def _terms(scale: Scale, name: str) -> Record:
    """What the sites of a method agree on, and the bytes of a round of theirs."""
    make, size = CONTENDERS[name].secure, scale.size
    assert make is not None
    terms = make(size.items)
    sent = round_bytes(terms, size.features, size.features)
    agreed = {"sites": terms.sites, "survivors": terms.sites, "colluders": terms.colluders, "spare": terms.spare}
    return {**agreed, "bytes_of_a_round": sent}


def _settings(scale: Scale, effort: int) -> Record:
    return {
        **asdict(scale.size),
        "epsilons": list(scale.epsilons),
        "delta": DELTA,
        "adjacency": ADJACENCY,
        "share_of_users_a_round": SHARE,
        "secure_sums": {name: _terms(scale, name) for name in scale.methods if CONTENDERS[name].secure},
        "runs": scale.runs,
        "tuning_runs": scale.tuning_runs,
        "tail": "the last share of the rounds whose mean is the model; rounds.csv shows each round's own model",
        "settings_tuned_over": effort,
        "grids": {name: choices(scale.settings_of(name)) for name in scale.methods},
    }


# --- tables


Done = dict[tuple[str, float], Record]  # what was found for a method and an epsilon


def _done(scale: Scale, results: dict[str, Record]) -> Done:
    found = {
        (name, epsilon): joined(results, f"runs-{name}-{epsilon:g}", "objectives", "ways")
        for name in scale.methods for epsilon in scale.epsilons
    }  # fmt: skip
    return {key: record for key, record in found.items() if record}


def _frontier(done: Done, results: dict[str, Record]) -> list[Record]:
    best, nothing = results["references"]["nonprivate"], results["references"]["zero"]
    rows: list[Record] = [
        {"method": "nonprivate", "label": "no privacy (scikit-learn)", "trust": "", "epsilon": math.inf}
        | _spread(best, best),
        {"method": "zero", "label": "the model 0 (no data used)", "trust": "", "epsilon": None}
        | _spread(nothing, best),
    ]
    for (name, epsilon), found in done.items():
        chosen = results[f"tuning-{name}-{epsilon:g}"]["chosen"]
        row = {**_identity(name), **found["guarantee"], **found, "epsilon": epsilon, "parameters": chosen}
        rows.append({**row, **_spread(found["objectives"], best)})
    return rows


def _spread(objectives: list[float], best: list[float]) -> Record:
    excess = np.array(objectives) - np.array(best)
    return {**spread("objective", objectives), **spread("excess", excess), "runs": len(excess)}


def _runs(done: Done, references: Record) -> list[Record]:
    """Every single run; run k of every method had the same data."""
    known: list[tuple[str, float | None, list[float]]] = [
        ("nonprivate", math.inf, references["nonprivate"]),
        ("zero", None, references["zero"]),
        *((name, epsilon, found["objectives"]) for (name, epsilon), found in done.items()),
    ]
    return [
        {"method": name, "epsilon": epsilon, "run": run, "objective": objective}
        for name, epsilon, objectives in known
        for run, objective in enumerate(objectives)
    ]


def _rounds(scale: Scale, done: Done) -> list[Record]:
    rows: list[Record] = []
    for (name, epsilon), found in done.items():
        if epsilon not in scale.followed:
            continue
        for step, objectives in zip(found["points"], np.transpose(found["ways"]), strict=True):
            row = {**_identity(name), "basis": found["guarantee"]["basis"], "epsilon": epsilon, "round": step}
            row |= {"numbers_sent": step * found["numbers_sent"], **spread("objective", objectives)}
            rows.append({**row, "runs": len(objectives)})
    return rows


def _tuning(scale: Scale, results: dict[str, Record]) -> list[Record]:
    rows: list[Record] = []
    for name in scale.methods:
        for epsilon in scale.epsilons:
            result = results[f"tuning-{name}-{epsilon:g}"]
            for place, (mean, parameters) in enumerate(zip(result["means"], result["grid"], strict=True)):
                row = {"method": name, "epsilon": epsilon, "place": place, "validation_objective": mean}
                rows.append({**row, "chosen": place == result.get("place"), "parameters": parameters})
    return rows


def _secure_prices(scale: Scale) -> list[Record]:
    """The noise on a secure sum beside that of a trusted aggregator with the same rounds."""
    own = [name for name in scale.methods if CONTENDERS[name].secure and "rounds" in scale.settings_of(name)[0]]
    rounds = {name: {choice["rounds"]: choice for choice in scale.settings_of(name)} for name in own}
    return [
        _secure_price(scale.size, CONTENDERS[name], epsilon, choice)
        for name in own for epsilon in scale.epsilons for choice in rounds[name].values()
    ]  # fmt: skip


def _secure_price(size: Size, contender: Contender, epsilon: float, choice: Settings) -> Record:
    assert contender.secure is not None
    terms = contender.secure(size.items)
    problem = Problem.declared(size.items, size.features, row_norm=1.0, clip=choice["clip"])
    budget = Budget(epsilon, DELTA, adjacency=ADJACENCY)
    trusted = contender.make(problem, choice, {"budget": budget, "lattice": True})
    secure = terms.planned(contender.make(problem, choice, {"noise_std": 0.0, "lattice": True}), budget)
    return {
        "method": contender.name, "label": contender.label, "epsilon": epsilon, "rounds": choice["rounds"],
        "sites": terms.sites, "colluders": terms.colluders, "spare": terms.spare,
        "noise_ratio": terms.std(secure) / trusted.noise.std,
    }  # fmt: skip


def _identity(name: str) -> Record:
    return {"method": name, "label": CONTENDERS[name].label, "trust": CONTENDERS[name].trust}


def _say_what(scale: Scale, effort: int, console: Console) -> None:
    size = scale.size
    console.print(
        f"The Lasso of the paper: {size.items:,} records, {size.features} features, {size.support} of them in use. "
        f"{len(scale.methods)} methods at {len(scale.epsilons)} budgets (delta = {DELTA:g}, {ADJACENCY}). Every method "
        f"is tuned for every budget over {effort} settings, {scale.tuning_runs} runs each, on separate data, and then "
        f"run {scale.runs} times.",
        highlight=False,
    )
