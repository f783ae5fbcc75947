"""The page of a model that ``hushpoint fit`` wrote."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpoint.report import words
from hushpoint.report.page import Html, commands, document, element, folded, joined, long_table, number, table
from hushpoint.report.shapes import bar, has_shapes, shapes, written

if TYPE_CHECKING:
    from hushpoint.schema import Schema
    from hushpoint.tables.array_model import ArrayModel
    from hushpoint.tables.model_file import TableModel
    from hushpoint.tables.scoring import ScoringModel

_BARRED = 4  # columns of scores up to which there is room for bars


def model_page(path: Path) -> str:
    """The page, from the model's file."""
    from hushpoint.tables.model_file import load_model

    model = load_model(path)
    lead = (
        f"A {model.kind} model, trained on {model.trained_on} with differential privacy: "
        f"epsilon = {words.rounded_up(model.guarantee.epsilon)} for one {model.guarantee.unit}."
    )
    declared = [] if model.schema is None else [_schema(model.schema, model.details)]
    drawn = [("The shapes", shapes(model))] if has_shapes(model) else []
    return document(
        f"A private model of {model.target}",
        lead,
        [
            ("The guarantee", [words.plainly(model.guarantee)]),
            *drawn,
            ("The model", _coefficients(model)),
            ("What was run", [_training(model), *declared]),
            ("Use it, run it again", _usage(model, path.name)),
        ],
    )


def _coefficients(model: TableModel | ArrayModel) -> list[Html]:
    from hushpoint.tables.model_file import TOLD_FROM_NOISE

    values, z, noise = np.atleast_2d(model.coefficients), model.z_values, model.deviations
    known = z is not None and noise is not None
    spread = np.atleast_2d(noise.coefficients) if known and noise is not None else np.zeros_like(values)
    told = np.ones(values.shape, dtype=bool) if z is None else np.abs(np.atleast_2d(z)) >= TOLD_FROM_NOISE
    longest = float((np.abs(values) + 2 * spread).max()) or 1.0
    titles, names = model.score_titles, model.feature_names
    barred = len(titles) <= _BARRED
    lines = []
    for j in model.ranking:
        cells: list[Any] = []
        for value, deviation, sure in zip(values[:, j], spread[:, j], told[:, j], strict=True):
            cells.append(written(value, deviation))
            cells += [bar(value / longest, 2 * deviation / longest, sure)] if barred else []
        lines.append([names[j] if told[:, j].any() else f"{names[j]} (noise)", *cells])
    header = ["feature", *(title for name in titles for title in ([name, ""] if barred else [name]))]
    deviations = np.atleast_1d(noise.intercept) if known and noise is not None else np.zeros(len(titles))
    foot: list[Any] = ["(intercept)"]
    for value, deviation in zip(np.atleast_1d(model.intercept), deviations, strict=True):
        foot += [written(value, deviation), ""] if barred else [written(value, deviation)]
    said = (
        "A score is the intercept plus, over all features, coefficient times feature. Features are what the table's "
        "columns become: numbers scaled by their declared range (in an additive model with waves, name~k), and one "
        "indicator for each category. "
    )
    said += (
        "Noise is part of every coefficient: ± is its deviation, the line through a bar two of them to either side. "
        "Features are in the order of how far they stand out; grey bars, less than two deviations long, may be noise."
        if known
        else "Noise is part of every coefficient, so small ones mean little."
    )
    caption = "Coefficients, those that stand out of the noise first" if known else "Coefficients, largest first"
    rest, title = ("The other coefficients" if known else "The smaller coefficients"), "The other {} coefficients"
    return [element("p", said), *long_table(caption, header, lines, rest, title, foot=[foot])]


def _training(model: TableModel | ArrayModel) -> Html:
    details = model.details
    rows: list[tuple[str, Any]] = [
        ("trained by", _trainer(model)),
        ("trained on", model.trained_on),
        ("features", str(len(model.feature_names))),
        ("noisy steps", str(details.get("steps", ""))),
        ("rows scaled to length", number(model.declared_norm)),
        ("ranges learned privately", ", ".join(details.get("learned_ranges") or []) or "none"),
        ("noise", model.guarantee.source or ""),
    ]
    settings = [
        (f"{group}: {name.replace('_', ' ')}", _plain(name, value))
        for group in ("parameters", "plan")
        for name, value in sorted((details.get(group) or {}).items())
    ]
    training = table("The training", ("what", "value"), [row for row in rows if row[1] != ""])
    every = table("Parameters", ("what", "value"), settings)
    return joined([training, folded("Every parameter, and the plan that was made of them", every)])


def _trainer(model: TableModel | ArrayModel) -> str:
    from hushpoint.tables.model_file import ESTIMATORS

    run = model.details.get("federation")
    if run is not None:
        rounds = f"{run['rounds']} of {run['planned_rounds']}" if "planned_rounds" in run else f"{run['rounds']}"
        return f"a federation of {run['sites']} sites: {run['method']}, {rounds} rounds ({run['status']})"
    return "" if model.schema is None else ESTIMATORS[model.schema.task][model.kind]


def _schema(schema: Schema, details: Mapping[str, Any]) -> Html:
    rows = []
    for name, column in schema.to_dict()["columns"].items():
        role = "target" if name == schema.target else column["kind"]
        if "values" in column:
            declared = ", ".join(map(str, column["values"]))
        elif "low" in column:
            declared = f"{number(column['low'])} to {number(column['high'])}"
        else:
            declared = ""
        rows.append((name, role, declared, "" if column["kind"] == "ignore" else column.get("missing", "")))
    said = "Every bound comes from this schema. The guarantee needs it to be public knowledge, not read off the data."
    if details.get("learned_ranges"):
        said = "Bounds were declared in this schema, or learned privately where the guarantee includes it."
    columns = table("The declared columns", ("column", "kind", "declared", "missing cells"), rows)
    return Html(element("h3", "The schema") + element("p", said) + columns)


def _usage(model: TableModel | ArrayModel, name: str) -> list[Html]:
    if model.schema is None or model.details.get("federation") is not None:
        table = "NEW.csv" if model.schema is not None else "NEW.npz"
        return [
            element("p", "Predict for new rows of the same columns:"),
            commands(shlex.join(["hushpoint", "predict", name, table, "-o", "predictions.csv"])),
            element("p", "It was trained where its sites are, and a new run spends anew. Where the server is:"),
            commands("hushpoint federated plan DIRECTORY --new-run"),
        ]
    return _usage_of_table(model, model.schema, name)


def _usage_of_table(model: ScoringModel, schema: Schema, name: str) -> list[Html]:
    seed = (model.details.get("parameters") or {}).get("random_state")
    again = (
        "With the same data, schema and seed the same model comes out."
        if seed is not None
        else "The noise came from the operating system, so training again gives another model and spends as much "
        "again: the two guarantees then add up."
    )
    fit = ["hushpoint", "fit", "DATA.csv", "--schema", "SCHEMA.toml", "--target", str(schema.target)]
    fit += ["--model", model.kind, "--epsilon", number(_asked(model)), "--delta", repr(model.guarantee.delta)]
    if schema.groups is not None:
        fit += ["--groups", str(schema.groups)]
    if model.guarantee.adjacency != "replace-one":
        fit += ["--adjacency", model.guarantee.adjacency]
    given = model.details.get("parameters") or {}
    if "penalty" in given:
        fit += ["--penalty", str(given["penalty"] or "none").lower()]
    if isinstance(given.get("alpha"), (int, float)):
        fit += ["--alpha", repr(given["alpha"])]
    fit += ["--row-norm", repr(model.declared_norm)] if model.declared_norm is not None else []
    fit += ["--seed", str(seed)] if seed is not None else []
    return [
        element("p", "Predict for new rows of the same columns:"),
        commands(shlex.join(["hushpoint", "predict", name, "NEW.csv", "-o", "predictions.csv"])),
        element("p", "Train a model like this one (DATA.csv and SCHEMA.toml are your table and its schema). ", again),
        commands(shlex.join([*fit, "-o", "new_model.json"])),
    ]


def _asked(model: ScoringModel) -> float:
    """The budget that was asked for; where ranges were learned, the estimator had only a part of it."""
    given = (model.details.get("parameters") or {}).get("epsilon")
    learned = model.details.get("learned_ranges")
    return float(given) if given is not None and not learned else model.guarantee.epsilon


def _plain(name: str, value: Any) -> str:
    if name in ("epsilon", "delta") and isinstance(value, float):
        return words.rounded_up(value)
    return "none" if value is None else number(value) if isinstance(value, (int, float)) else str(value)
