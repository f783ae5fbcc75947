"""Runs to report on, made without running anything, and hostile on purpose: every text tries to become markup."""

import json

import numpy as np

from hushpoint.privacy.guarantee import Guarantee
from hushpoint.tables import Schema, TableModel, fit_model

HOSTILE = "<script>window.owned=1</script>\"'><img src=x onerror=window.owned=2>&amp;"
SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="200" height="100" viewBox="0 0 200 100">'
    '<rect width="200" height="100" fill="#0072B2"/></svg>'
)


def guarantee(**changes):
    known = {
        "epsilon": 1.99999, "delta": 1e-5, "mu": 0.5, "unit": "record", "adjacency": "replace-one",
        "view": "iterates", "basis": "proved", "section": "3a", "assumptions": ("rows scaled to norm <= 1",),
        "source": "noise from the operating system's generator (ChaCha20)",
    }  # fmt: skip
    return Guarantee(**{**known, **changes})


def model(classes=("no", "yes"), name="age", seed=None, values=("a", "b"), **changes):
    schema = Schema.from_dict(
        {
            "target": "ill",
            "columns": {
                name: {"kind": "number", "low": 0, "high": 100},
                "job": {"kind": "category", "values": list(values)},
                "ill": {"kind": "category", "values": list(classes)},
            },
        }
    )
    lines = 1 if len(classes) == 2 else len(classes)
    coefficients = np.arange(1.0, 1 + lines * (1 + len(values))).reshape(lines, -1) * (-1) ** np.arange(1 + len(values))
    details = {
        "rows": 1500, "users": None, "steps": 65, "learned_ranges": [],
        "parameters": {"epsilon": 2.0, "random_state": seed, "penalty": "l2", "alpha": "auto"}, "plan": {"clip": 0.6},
    }  # fmt: skip
    encoding = {"scale": "columns", "row_norm": 1.9}
    return TableModel(
        "logistic", schema, coefficients, np.zeros(lines), tuple(classes), guarantee(**changes), encoding, details
    )


def additive_model():
    """An additive model of 400 people, with declared shapes, long names and more categories than fit a screen."""
    rng = np.random.default_rng(0)
    towns, jobs = [f"town number {k}" for k in range(20)], [f"job {k}" for k in range(8)]
    columns = {
        "age": {"kind": "number", "low": 0, "high": 100, "monotone": "increasing", "steps": 4},
        "weight": {"kind": "number", "low": 0, "high": 100, "steps": [25, 50]},
        "job": {"kind": "category", "values": jobs, "monotone": "decreasing"},
        "town{}": {"kind": "category", "values": towns},
        "ill": {"kind": "category", "values": ["no", "yes"]},
    }
    table = {
        "age": rng.uniform(0, 100, 400), "weight": rng.uniform(0, 100, 400), "job": rng.choice(jobs, 400),
        "town{}": rng.choice(towns, 400), "ill": rng.choice(["no", "yes"], 400),
    }  # fmt: skip
    schema = Schema.from_dict({"target": "ill", "columns": columns})
    return fit_model(table, schema, epsilon=10.0, delta=1e-4, model="additive", seed=0)


def study(place, text="", drawn=("frontier", "noise"), **changes):
    """A study's directory; ``text`` is put into everything that holds words."""
    (place / "tables").mkdir(parents=True)
    (place / "figures").mkdir()
    header = "method,label,trust,view,unit,basis,adjacency,epsilon,delta,objective_mean,objective_std,runs"
    quoted = '"' + f"ADMM {text}".replace('"', '""') + '"'
    lines = [
        header,
        "nonprivate,not private,,,,,,inf,,0.0056,0.0001,10",
        *(
            f"private_admm,{quoted},curator,iterates,record,proved,zero-out,{e},1e-06,{0.1 / e},0.001,10"
            for e in (1, 10)
        ),
        "federated_admm_published,old,aggregator,final,record,published,replace-one,1,1e-06,0.02,0.001,10",
    ]
    (place / "tables" / "frontier.csv").write_text("\n".join(lines) + "\n")
    noises = [f"m,l,1,{k},{k / 3!r}" for k in range(1000)]
    (place / "tables" / "noise.csv").write_text("\n".join(["method,label,epsilon,steps,noise_std", *noises]) + "\n")
    for name in drawn:
        (place / "figures" / f"{name}.svg").write_text(SVG)
    run = {
        "format": 1, "kind": "study", "name": "lasso", "title": f"The Lasso {text}", "seed": 0, "version": "9.9.9",
        "command": f"hushpoint reproduce lasso --seed 0 {text}", "quick": False, "finished": True,
        "settings": {"items": 1000, "delta": 1e-6, "grids": {f"admm {text}": {"steps": [5, 10]}}, "note": text},
        "claims": [f"At epsilon = 1 nothing is better. {text}"],
        "tables": {name: f"tables/{name}.csv" for name in ("frontier", "noise")},
        "figures": {name: f"figures/{name}.svg" for name in ("frontier", "noise")},
    }  # fmt: skip
    (place / "run.json").write_text(json.dumps({**run, **changes}))
    return place
