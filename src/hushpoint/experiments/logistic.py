"""The second study: logistic loss on a table given by its path, accuracy against epsilon and against rounds.

The rows are split three ways at random: a part that is taken to be public, on which every method is tuned over as many
settings (with the noise that the private part's size asks for), the private part that the guarantees are about, and a
test part that is looked at once. (A column ``split`` with the value ``test`` decides the last, where there is one.)
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from hushpoint import methods
from hushpoint._types import Array, Indices
from hushpoint.estimators.planner import plan_parameters
from hushpoint.estimators.training import train
from hushpoint.experiments import adult
from hushpoint.experiments.claims import GRADIENT
from hushpoint.experiments.contenders import AGGREGATOR, CURATOR, SHARE
from hushpoint.experiments.seeds import derived
from hushpoint.experiments.study import Cell, Record, Study, spread, table_of_methods
from hushpoint.experiments.tuning import Settings, choices, product, tuned
from hushpoint.plan import Plan
from hushpoint.privacy.guarantee import Adjacency, Budget
from hushpoint.problem import Problem
from hushpoint.regularizers import L2
from hushpoint.schema import Category, Schema, load_schema
from hushpoint.tables.reading import read_table

ADJACENCY: Adjacency = "zero-out"
_RIDGE = 1e-5
_TUNING_RUNS = 3
_PUBLIC, _TEST = 0.2, 0.25  # of the training rows, and of all rows where the table has no split of its own
COLUMNS = (
    "method", "label", "trust", "view", "unit", "basis", "adjacency", "epsilon", "delta", "rounds", "accuracy_mean",
    "accuracy_std", "runs", "noise_std", "parameters",
)  # fmt: skip


@dataclass(frozen=True)
class Scale:
    """How large a study is."""

    epsilons: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0, 3.0)
    rounds: tuple[int, ...] = (5, 20, 80)
    runs: int = 5
    grid: tuple[Settings, ...] = tuple(product(size=tuple(2.0**k for k in range(9)), clip=(1.0, 0.3)))


FULL = Scale()
_FEW = tuple(product(size=(2.0, 4.0, 16.0, 32.0, 64.0, 128.0), clip=(1.0, 0.3)))
QUICK = Scale(epsilons=(0.1, 1.0), rounds=(5, 20), runs=3, grid=_FEW)


@dataclass(frozen=True)
class Parts:
    """The encoded rows: public ones to train and to check on, private ones, and the test."""

    public: tuple[Array, Array]
    check: tuple[Array, Array]
    private: tuple[Array, Array]
    test: tuple[Array, Array]
    row_norm: float


@lru_cache(maxsize=2)
def _parts(path: str, schema_json: str, seed: int) -> Parts:
    from hushpoint.preprocessing import TableEncoder

    schema, table = Schema.from_dict(json.loads(schema_json)), read_table(path)
    encoder = TableEncoder(schema).fit()
    features = np.asarray(encoder.transform(table), dtype=np.float64)
    assert schema.target is not None
    labels = np.array([str(value) for value in table[schema.target]])
    unknown = set(labels.tolist()) - set(schema.classes)
    if unknown or len(schema.classes) != 2:
        raise ValueError(f"target {schema.target!r} must have exactly two declared classes, and no other cell.")
    targets = (labels == schema.classes[1]).astype(float)
    rng = np.random.default_rng(derived(seed, "split"))
    order = rng.permutation(len(targets))
    if "split" in table:
        held_out = np.array([str(value) == "test" for value in table["split"]])[order]
    else:
        held_out = np.arange(len(order)) < _TEST * len(order)
    rest, test = order[~held_out], order[held_out]
    public, private = np.split(rest, [int(_PUBLIC * len(rest))])
    public, check = np.split(public, [int(0.6 * len(public))])

    def part(rows: Indices) -> tuple[Array, Array]:
        return features[rows], targets[rows]

    # The constant of the intercept is part of a row's length.
    return Parts(part(public), part(check), part(private), part(test), math.hypot(encoder.typical_row_norm_, 1.0))


# --- methods


@dataclass(frozen=True)
class _Method:
    label: str
    trust: str
    make: Callable[..., Plan] | None


METHODS = {
    "dp_gd": _Method("DP-GD (full batch)", CURATOR, methods.dp_sgd),
    "dp_sgd_sampled": _Method("DP-SGD (10% sampled)", CURATOR, partial(methods.dp_sgd, sample_prob=SHARE)),
    "private_admm": _Method("one-block ADMM (Alg. 5)", CURATOR, methods.private_admm),
    "anchored_admm": _Method("anchored ADMM", AGGREGATOR, methods.anchored_admm),
    "estimator": _Method("PrivateLogisticRegression (untuned)", CURATOR, None),
    "estimator_rounds": _Method("PrivateLogisticRegression (untuned, rounds declared)", CURATOR, None),
}
_FEWEST_ROUNDS = 6  # of an estimator


def _accuracy(model: Array, rows: tuple[Array, Array]) -> float:
    return float(np.mean((rows[0] @ model[:-1] + model[-1] > 0) == (rows[1] > 0)))


def _plan(settings: Record, choice: Settings, parts: Parts, rows: tuple[Array, Array], noise: float | None) -> Plan:
    """The plan of a setting, on some rows, with the private part's noise."""
    make = METHODS[settings["method"]].make
    assert make is not None
    level: dict[str, Any] = {"noise_std": noise}
    if noise is None:
        level = {"budget": Budget(settings["epsilon"], settings["delta"], adjacency=ADJACENCY)}
    # Sizes are in units of the steepest curve a row can have.
    reach = choice["size"] * 100 / parts.row_norm**2
    problem = Problem(
        *rows, "logistic", L2(_RIDGE), parts.row_norm, clip=choice["clip"] * parts.row_norm, fit_intercept=True
    )
    return make(problem, settings["rounds"], reach / settings["rounds"], **level)


# --- cells


def tuning(settings: Record) -> Record:
    """The best setting at one epsilon and number of rounds, on public rows with the private part's noise."""
    parts = _parts(settings["path"], settings["schema"], settings["seed"])
    seeds = [derived(settings["seed"], "tuning noise", run) for run in range(settings["tuning_runs"])]

    def score(choice: Settings) -> list[float]:
        noise = _plan(settings, choice, parts, parts.private, None).parameters["noise_std"]
        plan = _plan(settings, choice, parts, parts.public, noise)
        return [1 - _accuracy(plan.run(seed=seed).model, parts.check) for seed in seeds]

    return tuned(settings["grid"], score)


def evaluation(settings: Record) -> Record:
    """Runs of the chosen setting on the private rows, judged on the test rows."""
    parts = _parts(settings["path"], settings["schema"], settings["seed"])
    plan = _plan(settings, settings["parameters"], parts, parts.private, None)
    scores = [_accuracy(plan.run(seed=_noise_seed(settings, run)).model, parts.test) for run in range(settings["runs"])]
    guarantee = plan.guarantee(settings["delta"], None, ADJACENCY)
    noise_std = plan.parameters["noise_std"]
    return {"accuracies": scores, "guarantee": guarantee.to_dict(), "noise_std": noise_std, "rounds": plan.steps}


def estimator(settings: Record) -> Record:
    """The estimator with its defaults: it looks at no public rows."""
    from hushpoint.estimators import PrivateLogisticRegression

    parts = _parts(settings["path"], settings["schema"], settings["seed"])
    scores, model = [], None
    for run in range(settings["runs"]):
        model = PrivateLogisticRegression(
            epsilon=settings["epsilon"], delta=settings["delta"], row_norm=parts.row_norm, adjacency=ADJACENCY,
            random_state=_noise_seed(settings, run),
        ).fit(*parts.private)  # fmt: skip
        scores.append(float(model.score(*parts.test)))
    assert model is not None
    rounds = int(np.max(model.n_iter_))
    return {"accuracies": scores, "guarantee": model.guarantee_.to_dict(), "noise_std": None, "rounds": rounds}


def estimator_in_rounds(settings: Record) -> Record:
    """The estimator's chain of plans with so many noisy sums at the most, the other choices its own."""
    parts = _parts(settings["path"], settings["schema"], settings["seed"])
    problem = Problem(*parts.private, "logistic", row_norm=parts.row_norm)
    budget = Budget(settings["epsilon"], settings["delta"], adjacency=ADJACENCY)
    parameters = plan_parameters(problem.items, problem.features, budget, rounds=settings["rounds"])
    scores, guarantee = [], None
    for run in range(settings["runs"]):
        trained = train(
            problem, [problem.rows.targets], parameters, delta=budget.delta, fit_intercept=True,
            seed=_noise_seed(settings, run),
        )  # fmt: skip
        scores.append(_accuracy(trained.models[0], parts.test))
        guarantee = trained.guarantee
    assert guarantee is not None
    return {
        "accuracies": scores,
        "guarantee": guarantee.to_dict(),
        "noise_std": None,
        "rounds": settings["rounds"],
    }


def references(settings: Record) -> Record:
    """Accuracy without privacy on the private rows, and of always saying the more frequent class."""
    from sklearn.linear_model import LogisticRegression

    parts = _parts(settings["path"], settings["schema"], settings["seed"])
    rows = parts.private
    fit = LogisticRegression(C=1 / (len(rows[1]) * _RIDGE), max_iter=2000).fit(*rows)
    share = float(rows[1].mean())
    usual = float(np.mean(parts.test[1] == (1.0 if share > 0.5 else 0.0)))
    return {"nonprivate": float(fit.score(*parts.test)), "constant": usual, "private_rows": len(rows[1])}


def _noise_seed(settings: Record, run: int) -> int:
    name = settings["method"], settings["epsilon"], settings["rounds"] or 0, run
    return derived(settings["seed"], "noise", *name) % 2**31  # what scikit-learn takes for a random state


# --- the study


def run_logistic(
    directory: Path, data: Path, *, target: str | None = None, schema: Path | None = None, scale: Scale | None = None,
    quick: bool = False, seed: int = 0, jobs: int = 2, console: Console | None = None,
) -> Record:  # fmt: skip
    """Run the study on a table, or what is left of it, and write tables, claims, figures and report."""
    console = console or Console()
    scale = scale or (QUICK if quick else FULL)
    known = _schema_of(data, schema, target)
    common: Record = {"path": str(data.resolve()), "schema": json.dumps(known.to_dict()), "seed": seed}
    common["data"] = _digest(data)
    grid = list(scale.grid)

    def follow(cell: Cell, result: Record) -> Iterable[Cell]:
        if cell.task is references:
            # delta is public: it comes from the public number of rows
            delta = result["private_rows"] ** -1.1
            for epsilon in scale.epsilons:
                base: Record = {**common, "epsilon": epsilon, "delta": delta}
                own = {**base, "method": "estimator", "rounds": None, "runs": scale.runs}
                yield Cell(f"runs-estimator-{epsilon:g}", estimator, own, 2.0 * scale.runs)
                for rounds in _lengths("estimator_rounds", scale):
                    settings = {**base, "method": "estimator_rounds", "rounds": rounds, "runs": scale.runs}
                    title = f"runs-estimator_rounds-{epsilon:g}-{rounds}"
                    yield Cell(title, estimator_in_rounds, settings, 0.5 * scale.runs)
                for name in METHODS:
                    for rounds in scale.rounds if METHODS[name].make else ():
                        settings = {**base, "method": name, "rounds": rounds, "grid": grid, "tuning_runs": _TUNING_RUNS}
                        title = f"tuning-{name}-{epsilon:g}-{rounds}"
                        yield Cell(title, tuning, settings, _cost(name, rounds) * len(grid) * _TUNING_RUNS / 8)
        elif cell.task is tuning and result["chosen"] is not None:
            kept = {key: value for key, value in cell.settings.items() if key not in ("grid", "tuning_runs")}
            settings = {**kept, "parameters": result["chosen"], "runs": scale.runs}
            cost = _cost(kept["method"], kept["rounds"]) * scale.runs
            yield Cell(cell.name.replace("tuning", "runs"), evaluation, settings, cost)

    one = sum(
        _cost(name, rounds) * (len(grid) * _TUNING_RUNS / 8 + scale.runs)
        for name in METHODS if METHODS[name].make for rounds in scale.rounds
    )  # fmt: skip
    settings: Record = {
        "data": data.name,
        "data_sha256": common["data"],
        "target": known.target,
        "epsilons": list(scale.epsilons),
        "rounds": list(scale.rounds),
        "runs": scale.runs,
        "adjacency": ADJACENCY,
        "settings_tuned_over": len(grid),
        "grid": choices(grid),
        "tuning_runs": _TUNING_RUNS,
    }
    title = f"Private logistic regression on {data.name}: accuracy against epsilon and rounds"
    options = {"data": data, "target": target, "schema": schema, "quick": quick}
    study = Study("logistic", title, directory, settings, options, seed, console)
    sizes, clips = (", ".join(f"{v:g}" for v in sorted({choice[key] for choice in grid})) for key in ("size", "clip"))
    console.print(
        f"Logistic loss on {data.name}. Every method but the estimator is tuned over {len(grid)} settings, "
        f"{_TUNING_RUNS} runs each, for every epsilon and number of rounds, on rows taken to be public: size {sizes}; "
        f"clip {clips} row norms.",
        highlight=False,
    )
    first = Cell("references", references, common, 2.0)
    results = study.run([first], jobs, follow, later=len(scale.epsilons) * (one + 2.0 * scale.runs))
    study.settings["delta"] = results["references"]["private_rows"] ** -1.1
    rows = _rows(scale, results)
    study.save("accuracy", COLUMNS, rows)
    return study.finish(_summary(rows), _claims(rows), _terminal_table(rows))


def _cost(name: str, rounds: int) -> float:
    """About how many seconds a run takes, for the remaining time."""
    return 0.1 + rounds * {"private_admm": 0.08, "anchored_admm": 0.05}.get(name, 0.01)


def _schema_of(data: Path, schema: Path | None, target: str | None) -> Schema:
    if schema is not None:
        known = load_schema(schema).with_roles(target)
    else:
        columns = list(read_table(data))
        if not adult.is_adult(columns):
            raise ValueError(
                f"{data.name!r} has no built-in schema (only Adult has). Write one with 'hushpoint schema', complete "
                "it, and pass --schema FILE: ranges must be declared, never read from the data."
            )
        known = adult.schema(columns).with_roles(target)
    if not isinstance(known.target_column, Category) or known.to_learn or known.groups:
        raise ValueError("the study needs a category as target, no column with learn = true, and no groups.")
    return known


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _lengths(name: str, scale: Scale) -> Sequence[int | None]:
    """The numbers of rounds of a method; None: its own choice."""
    if name == "estimator":
        return (None,)
    return [rounds for rounds in scale.rounds if METHODS[name].make or rounds >= _FEWEST_ROUNDS]


def _rows(scale: Scale, results: dict[str, Record]) -> list[Record]:
    known = results["references"]
    rows: list[Record] = [
        {"method": "nonprivate", "label": "no privacy (scikit-learn)", "trust": "", "epsilon": math.inf}
        | {"accuracy_mean": known["nonprivate"], "accuracy_std": 0.0, "runs": 1},
        {"method": "constant", "label": "the more frequent class", "trust": "", "epsilon": None}
        | {"accuracy_mean": known["constant"], "accuracy_std": 0.0, "runs": 1},
    ]
    for name, method in METHODS.items():
        for epsilon in scale.epsilons:
            for rounds in _lengths(name, scale):
                title = f"{name}-{epsilon:g}" + ("" if rounds is None else f"-{rounds}")
                result = results.get(f"runs-{title}")
                if result is None:
                    continue
                row = {"method": name, "label": method.label, "trust": method.trust, **result["guarantee"]}
                row |= {"epsilon": epsilon, "rounds": result["rounds"], "noise_std": result["noise_std"]}
                row |= {**spread("accuracy", result["accuracies"]), "runs": len(result["accuracies"])}
                chosen = results[f"tuning-{title}"]["chosen"] if method.make else {}
                rows.append({**row, "parameters": chosen})
    return rows


def _claims(rows: Sequence[Record]) -> list[str]:
    """Who is ahead at each epsilon and number of rounds: rounds are compared as they are, not the best of them."""
    said = []
    settings = sorted(
        {(row["epsilon"], row["rounds"]) for row in rows if row["method"] in METHODS and row["parameters"]}
    )
    level = next(row for row in rows if row["method"] == "nonprivate")
    for epsilon, rounds in settings:
        here = [row for row in rows if row.get("parameters") and (row["epsilon"], row["rounds"]) == (epsilon, rounds)]
        here.sort(key=lambda row: -row["accuracy_mean"])
        best, *others = here
        text = (
            f"At epsilon = {epsilon:g} and {rounds} rounds {best['label']} is right on {_percent(best)}% of the test "
            f"rows (without privacy: {_percent(level)}%)"
        )
        if others:
            text += "; " + ", ".join(f"{row['label']} on {_percent(row)}%" for row in others)
        said.append(text + ".")
    for row in rows:
        if row["method"] in ("estimator", "estimator_rounds"):
            said.append(
                f"At epsilon = {row['epsilon']:g} {row['label']} is right on {_percent(row)}%: {row['rounds']} rounds."
            )
    return said


def _summary(rows: Sequence[Record]) -> list[str]:
    """What the study shows, in a few sentences."""
    level, usual = (next(row for row in rows if row["method"] == name) for name in ("nonprivate", "constant"))
    said = [
        f"Without privacy logistic regression is right on {_percent(level)}% of the test rows, the more frequent class "
        f"on {_percent(usual)}%."
    ]
    own = [row for row in rows if row["method"] == "estimator"]
    grid = [row for row in rows if row.get("parameters")]
    if own:
        listed = ", ".join(f"{_percent(row)}% at {row['epsilon']:g}" for row in own[1:])
        said.append(
            f"{own[0]['label']}, which plans its rounds from public facts, is right on {_percent(own[0])}% at epsilon "
            f"= {own[0]['epsilon']:g}" + (f", {listed}." if listed else ".")
        )
        beaten = [
            row for row in own
            if row["accuracy_mean"] > max(r["accuracy_mean"] for r in grid if r["epsilon"] == row["epsilon"])
        ]  # fmt: skip
        said.append(
            f"Its mean is above that of every tuned method, whatever the number of rounds, at {len(beaten)} of "
            f"{len(own)} budgets."
        )
    said += _few_rounds(rows, own)
    for rounds in sorted({row["rounds"] for row in grid}):
        leads = []
        for epsilon in sorted({row["epsilon"] for row in grid}):
            here = [row for row in grid if (row["rounds"], row["epsilon"]) == (rounds, epsilon)]
            admm, gradient = (
                max((row["accuracy_mean"] for row in here if (row["method"] in GRADIENT) is wanted), default=math.nan)
                for wanted in (False, True)
            )
            leads.append(100 * (admm - gradient))
        said.append(
            f"With {rounds} rounds the best ADMM leads the best of DP-GD and DP-SGD at {sum(x > 0 for x in leads)} of "
            f"{len(leads)} budgets: by {min(leads):+.2f} to {max(leads):+.2f} points."
        )
    return said


def _few_rounds(rows: Sequence[Record], free: Sequence[Record]) -> list[str]:
    """The estimator with rounds declared, beside its own choice of them."""
    said = []
    chosen = {row["epsilon"]: row for row in free}
    declared = [row for row in rows if row["method"] == "estimator_rounds" and row["epsilon"] in chosen]
    for rounds in sorted({row["rounds"] for row in declared}):
        own = [row for row in declared if row["rounds"] == rounds]
        gaps = [100 * (row["accuracy_mean"] - chosen[row["epsilon"]]["accuracy_mean"]) for row in own]
        listed = ", ".join(f"{_percent(row)}% at {row['epsilon']:g}" for row in own[1:])
        said.append(
            f"With at most {rounds} rounds declared it is right on {_percent(own[0])}% at epsilon = "
            f"{own[0]['epsilon']:g}" + (f", {listed}" if listed else "") + f": {min(gaps):+.2f} to {max(gaps):+.2f} "
            "points beside its own choice."
        )
    return said


def _percent(row: Record) -> str:
    return f"{100 * row['accuracy_mean']:.2f}"


def _terminal_table(rows: Sequence[Record]) -> Table:
    epsilons = sorted({row["epsilon"] for row in rows if row["method"] in METHODS})
    budgets = (f"eps {epsilon:g}" for epsilon in epsilons)
    table = table_of_methods("Accuracy on the test rows, in %: mean (std)", "rounds", *budgets)
    for row in rows[:2]:
        table.add_row(row["label"], "", *[_percent(row)] * len(epsilons))
    for name in dict.fromkeys(row["method"] for row in rows[2:]):
        own = [row for row in rows if row["method"] == name]
        lengths: list[int | None] = [None] if name == "estimator" else sorted({row["rounds"] for row in own})
        for rounds in lengths:
            found = {row["epsilon"]: row for row in own if rounds in (None, row["rounds"])}
            shown = [f"{_percent(found[e])}\n({100 * found[e]['accuracy_std']:.2f})" for e in epsilons]
            table.add_row(own[0]["label"], "" if rounds is None else str(rounds), *shown)
    return table
