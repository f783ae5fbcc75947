"""hushpoint schema, fit, predict and evaluate, as a user types them: the whole way, and what may go wrong."""

import csv
import io
import json
import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from hushpoint import cli, report
from hushpoint.commands import evaluation, tabular
from hushpoint.preprocessing import TableEncoder
from hushpoint.schema import LEAVE_OUT, ONLY_IF_PUBLIC
from hushpoint.tables import Boolean, Number, Schema, draft_schema, fit_model, load_model, model_file

ROWS = 1500
SECRET = "zebra-4711"  # in the data, and nowhere else
SCHEMA = """
target = "ill"
[columns.age]
kind = "number"
low = 0
high = 100
[columns.weight]
kind = "number"
low = 30
high = 150
missing = "indicator"
[columns.job]
kind = "category"
values = ["nurse", "clerk", "other"]
[columns.smoker]
kind = "boolean"
[columns.stage]
kind = "category"
values = ["low", "middle", "high"]
[columns.person]
kind = "ignore"
[columns.ill]
kind = "category"
values = ["no", "yes"]
"""


def people(seed=0, rows=ROWS):
    """A table in which smoking old nurses are ill."""
    rng = np.random.default_rng(seed)
    age, job = rng.integers(18, 91, rows), rng.choice(["nurse", "clerk", "other"], rows)
    smoker, weight = rng.random(rows) < 0.4, rng.normal(80, 12, rows).round(1)
    score = (age - 55) / 8 + 3.0 * smoker + 2.0 * (job == "nurse") - 2
    return pd.DataFrame(
        {
            "age": age,
            "weight": np.where(rng.random(rows) < 0.1, np.nan, weight),
            "job": job,
            "smoker": np.where(smoker, "yes", "no"),
            "stage": np.array(["low", "middle", "high"])[np.digitize(score, [-2, 2])],
            "person": [f"{SECRET}-{i // 3}" for i in range(rows)],
            "ill": np.where(score > 0, "yes", "no"),
        }
    )


@pytest.fixture(scope="module")
def app():
    made = typer.Typer()
    for command in (tabular.schema, tabular.fit, tabular.predict, evaluation.evaluate):
        made.command()(cli._plainly(command))
    return made


@pytest.fixture
def run(app, tmp_path, monkeypatch):
    """Run a command in an empty folder that has the table and its schema; returns the result."""
    monkeypatch.chdir(tmp_path)
    people().to_csv("data.csv", index=False)
    people(1, 300).to_csv("new.csv", index=False)
    (tmp_path / "s.toml").write_text(SCHEMA)
    (tmp_path / "empty.csv").touch()
    (tmp_path / "folder").mkdir()

    def invoked(line, code=0):
        result = CliRunner(env={"COLUMNS": "120"}).invoke(app, line.split())
        told = result.output + result.stderr
        assert result.exit_code == code, told
        assert "Traceback" not in told
        assert SECRET not in told
        return result

    return invoked


FIT = "fit data.csv --schema s.toml --epsilon 5 -o m.json"
STRONG = FIT.replace("--epsilon 5", "--epsilon 50 --seed 1")


def error_of(result):
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    return " ".join(result.stderr.split())


# --- the whole way ---------------------------------------------------------------------------------------------------


def test_from_a_table_to_predictions(run):
    # catches: any link of the chain; rows in another order; classes swapped
    run("schema data.csv --target ill -o draft.toml")
    refused = error_of(run("fit data.csv --schema draft.toml --epsilon 1 -o m.json", code=2))
    for name in ("age", "weight", "job", "stage", "ill"):
        assert f"column {name!r}" in refused
    assert not os.path.exists("m.json")
    told = run(STRONG).stdout
    for part in (
        "logistic model of 'ill': 1,500 rows",
        "epsilon = 50",
        "for one record",
        "Clearest coefficients",
        "age",
    ):
        assert part in told
    run("predict m.json new.csv -o p.csv --proba")
    with open("p.csv", newline="") as file:
        lines = list(csv.reader(file))
    assert lines[0] == ["prediction", "probability of no", "probability of yes"]
    truth = people(1, 300)["ill"]
    found = [line[0] for line in lines[1:]]
    assert len(found) == 300
    assert np.mean(truth.to_numpy() == found) > 0.9
    shares = np.array([line[1:] for line in lines[1:]], dtype=float)
    assert shares.sum(axis=1) == pytest.approx(np.ones(300))
    assert [("no", "yes")[k] for k in shares.argmax(axis=1)] == found
    # the same in Python, from a data frame
    model = load_model("m.json")
    assert model.predict(people(1, 300)).tolist() == found
    assert model.predict_proba(people(1, 300)) == pytest.approx(shares)


def test_without_an_output_predictions_and_drafts_are_printed(run):
    assert run("schema data.csv").stdout.startswith("# A draft from data.csv.")
    run(STRONG)
    printed = run("predict m.json new.csv").stdout
    run("predict m.json new.csv -o p.csv")
    with open("p.csv") as file:
        assert file.read() == printed
    assert len(list(csv.reader(io.StringIO(printed)))) == 301


def test_json_is_json_and_says_what_was_spent(run):
    record = json.loads(run(f"{FIT} --delta 1e-6 --json").stdout)
    assert record["guarantee"]["delta"] == 1e-6
    assert 0 < record["guarantee"]["epsilon"] <= 5
    assert record["guarantee"]["statement"] == str(load_model("m.json").guarantee)
    assert record["features"][:3] == ["age", "weight", "weight (missing)"]
    assert record["details"]["rows"] == ROWS
    assert np.shape(record["coefficients"]) == (1, len(record["features"]))


def test_the_default_delta_is_told(run):
    # catches: a delta that nobody chose and nobody sees
    told = " ".join(run(FIT).stdout.split())
    assert "delta was not given: it is the number of rows to the power -1.1" in told
    assert load_model("m.json").guarantee.delta == pytest.approx(ROWS**-1.1)
    assert "delta was not given" not in run(f"{FIT} --delta 1e-6 --force").stdout


def test_users_are_protected_when_the_groups_are_named(run):
    # catches: a guarantee for one row given to people with three; ids that end in the model file
    told = run(f"{FIT} --groups person").stdout
    model = load_model("m.json")
    assert (model.guarantee.unit, model.details["users"]) == ("user", ROWS // 3)
    assert model.guarantee.delta == pytest.approx((ROWS // 3) ** -1.1)
    assert "model of 'ill': 500 users, " in told
    assert "1,500" not in told
    with open("m.json") as file:
        assert SECRET not in file.read()


def test_coarse_ranges_are_learned_within_the_budget(run, tmp_path):
    # catches: a range that costs nothing; a budget overspent; bounds of the data that are exact in the model file
    coarse = SCHEMA.replace("low = 0\nhigh = 100", "low = -1e6\nhigh = 1e6\nlearn = true")
    (tmp_path / "coarse.toml").write_text(coarse)
    told = " ".join(run(STRONG.replace("s.toml", "coarse.toml")).stdout.split())
    assert "2 releases composed" in told
    model = load_model("m.json")
    assert 50 * 0.999 <= model.guarantee.epsilon <= 50
    assert model.details["learned_ranges"] == ["age"]
    assert not model.schema.to_learn
    age = model.schema.columns["age"]
    assert (age.low, age.high) == pytest.approx(np.quantile(people()["age"], [0.05, 0.95]), abs=3)
    found = run("predict m.json new.csv").stdout.split()[1:]
    assert np.mean(people(1, 300)["ill"].to_numpy() == found) > 0.9
    again = f"{STRONG} --force".replace("s.toml", "coarse.toml")
    assert "range_share is 1.5" in error_of(run(f"{again} --range-share 1.5", code=2))
    assert "target 'age' has learn = true" in error_of(run(f"{again} --target age", code=2))
    by_user = json.loads(run(f"{again} --groups person --delta 1e-6 --adjacency zero-out --json").stdout)["guarantee"]
    assert (by_user["unit"], by_user["adjacency"], by_user["delta"]) == ("user", "zero-out", 1e-6)
    assert by_user["epsilon"] <= 50


def test_how_good_a_model_is_and_whose_privacy_that_concerns(run):
    # catches: an exact score that looks like a release; a score for one row given to people with three
    run(STRONG)
    model, new = load_model("m.json"), people(1, 300)
    hits = model.predict(new) == new["ill"].to_numpy()
    told = " ".join(run("evaluate m.json new.csv").stdout.split())
    assert f"logistic model of 'ill' on new.csv: 300 rows. accuracy {hits.mean():.4f} accuracy of always" in told
    assert "exact figures about the rows of new.csv: share them only if those people's data may be shared" in told
    assert "epsilon =" not in told
    noisy = " ".join(run("evaluate m.json new.csv --epsilon 5 --groups person").stdout.split())
    assert "on new.csv: 100 users, each counted once" in noisy
    assert "300" not in noisy
    assert "for one user (replace-one)" in noisy
    assert "delta was not given: it is the number of users to the power -1.1" in noisy
    assert "exact figures" not in noisy
    record = json.loads(run("evaluate m.json new.csv --epsilon 5 --delta 1e-4 --adjacency zero-out --json").stdout)
    assert (record["guarantee"]["delta"], record["guarantee"]["adjacency"]) == (1e-4, "zero-out")
    assert record["guarantee"]["epsilon"] <= 5
    score = record["figures"]["accuracy"]
    assert abs(score["value"] - hits.mean()) < 6 * score["noise_std"]
    assert (record["file"], record["rows"], list(record["figures"])) == (
        "m.json", 300, ["accuracy", "baseline_accuracy"],
    )  # fmt: skip
    exact = json.loads(run("evaluate m.json new.csv --json").stdout)
    assert exact["guarantee"] is None
    assert "share them only if" in exact["privacy"]


def test_a_score_is_refused_by_name(run):
    # catches: a traceback, a message with an entry (checked in every run), a score of the first part of a table
    run(STRONG)
    assert "delta is 1e-06 and epsilon is not given" in error_of(run("evaluate m.json new.csv --delta 1e-6", code=2))
    assert "delta is 0.1 and there are 300 records" in error_of(
        run("evaluate m.json new.csv --epsilon 1 --delta 0.1", code=2)
    )
    assert "model 'no.json' cannot be read" in error_of(run("evaluate no.json new.csv", code=2))
    assert "there is no file 'no.csv'" in error_of(run("evaluate m.json no.csv", code=2))
    changed("ill", SECRET, row=299)(people(1, 300)).to_csv("new.csv", index=False)
    for line in ("evaluate m.json new.csv", "evaluate m.json new.csv --epsilon 1"):
        assert "target 'ill' has missing cells or classes" in error_of(run(line, code=2))
    people(1, 300).drop(columns="ill").to_csv("new.csv", index=False)
    assert "the table lacks 'ill'. To be scored it needs" in error_of(run("evaluate m.json new.csv", code=2))
    assert "Example: hushpoint evaluate" in run("evaluate --help").stdout


# --- what is in a model and what is not ------------------------------------------------------------------------------


def public_part(model, asked=()):
    """A model without its noisy releases: coefficients, learned ranges, clip and steps, which follow noisy moments."""
    masked = [re.sub(r"clipped at \S+|\d+ noisy steps", "", said) for said in model.guarantee.assumptions]
    columns = {n: Number(0, 1) if n in asked else column for n, column in model.schema.columns.items()}
    return replace(
        model,
        schema=replace(model.schema, columns=columns),
        coefficients=np.zeros_like(model.coefficients),
        intercept=np.zeros_like(model.intercept),
        deviations=None,
        guarantee=replace(model.guarantee, assumptions=tuple(masked)),
        details={**model.details, "steps": 0},
    )


def assert_same(one, two, where="model"):
    """Equal in every field; floats but for the rounding that a noisy release may cause."""
    if isinstance(one, dict):
        assert list(one) == list(two), where
        for key in one:
            assert_same(one[key], two[key], f"{where}.{key}")
    elif isinstance(one, list):
        assert len(one) == len(two), where
        for index, (a, b) in enumerate(zip(one, two, strict=True)):
            assert_same(a, b, f"{where}[{index}]")
    else:
        assert one == (pytest.approx(two, rel=1e-12) if isinstance(two, float) else two), where


@pytest.mark.parametrize(
    "options",
    ["", "--target stage --model svc", "--target age --model huber", "--delta 1e-6 --adjacency zero-out", "learn"],
)
def test_one_user_moves_nothing_but_noisy_releases(run, tmp_path, options):
    # catches: an exact count, range, class or category of the data anywhere in what is printed, saved or reported
    asked = ()
    if options == "learn":
        options, asked = "", ("age",)
        (tmp_path / "s.toml").write_text(SCHEMA.replace("low = 0\nhigh = 100", "low = 0\nhigh = 1e4\nlearn = true"))
    table, texts = people(), []
    mine = table["person"] == table["person"][0]
    one = table[mine].assign(age=99, weight=np.nan, job="other", ill="yes", stage="high", smoker="no")
    for k, data in enumerate((table, pd.concat([one] * 7 + [table[~mine]]))):
        data.to_csv("data.csv", index=False)
        line = f"{FIT} --seed 1 --groups person --force {options}"
        printed = run(line).stdout.partition("Clearest coefficients")[0]
        as_json = json.loads(run(f"{line} --json").stdout)
        public = public_part(load_model("m.json"), asked)
        public.save(f"public{k}.json")
        page = report.write(f"public{k}.json", f"{k}.html").read_text().replace(f"public{k}.json", "")
        assert {**as_json["details"], "steps": 0} == public.details
        texts.append((re.sub(r"clipped\s+at\s+\S+|\d+\s+(noisy\s+)?steps", "", printed).split(), page))
        assert f"{len(data):,}" not in printed + page
    assert_same(*(json.loads(Path(f"public{k}.json").read_text()) for k in range(2)))
    assert texts[0] == texts[1]


def test_rows_are_counted_where_each_is_an_item(run):
    run(FIT)
    details = load_model("m.json").details
    assert (details["rows"], details["users"]) == (ROWS, None)


@pytest.mark.parametrize(("target", "kind"), [("ill", "logistic"), ("stage", "svc"), ("age", "linear")])
@pytest.mark.parametrize("row_norm", [0.05, 50.0])
def test_rows_are_scaled_in_predictions_as_in_training(run, monkeypatch, target, kind, row_norm):
    # catches: rows scaled down in training only, which are far too long for the coefficients afterwards; scaled twice
    kept, make = [], model_file.estimator_class
    monkeypatch.setattr(
        "hushpoint.tables.training.estimator_class",
        lambda name, task: lambda **options: kept.append(make(name, task)(**options)) or kept[-1],
    )
    run(f"{STRONG} --target {target} --model {kind} --row-norm {row_norm}".replace("--epsilon 50", "--epsilon 500"))
    model, new = load_model("m.json"), people(1, 300)
    assert model.encoding["row_norm"] == row_norm
    X = TableEncoder(model.schema).fit().transform(new)
    X *= np.minimum(1, row_norm / np.linalg.norm(X, axis=1))[:, None]
    scores = np.squeeze(X @ np.atleast_2d(kept[-1].coef_).T + kept[-1].intercept_)
    assert model.decision_function(new) == pytest.approx(scores, rel=1e-9, abs=1e-9)
    assert_alike(model.predict(new), kept[-1].predict(X))
    truth = new[target].to_numpy()
    if kind == "linear":
        assert 1 - np.mean((truth - model.predict(new)) ** 2) / np.var(truth) > 0
    else:
        assert np.mean(model.predict(new) == truth) > 0.6
    if kind == "logistic":
        chances = model.predict_proba(new)[np.arange(300), (truth == "yes").astype(int)]
        assert -np.log(chances).mean() < math.log(2)


@pytest.mark.parametrize("kind", ["logistic", "svc"])
@pytest.mark.parametrize(("target", "gone"), [("ill", ["yes"]), ("stage", ["middle"]), ("stage", ["low", "high"])])
def test_a_declared_class_without_a_member_is_a_class(run, kind, target, gone):
    # catches: an error, or a list of classes, that tells whether somebody of a rare class is in the table
    table = people()
    left = next(name for name in ("no", "low", "middle") if name in set(table[target]) - set(gone))
    table[target] = table[target].where(~table[target].isin(gone), left)
    table.to_csv("data.csv", index=False)
    run(f"{STRONG} --target {target} --model {kind}")
    model = load_model("m.json")
    declared = ("no", "yes") if target == "ill" else ("high", "low", "middle")
    assert model.classes == declared
    found = run("predict m.json new.csv" + " --proba" * (kind == "logistic")).stdout.splitlines()[1:]
    assert {line.split(",")[0] for line in found} <= set(declared) - set(gone)
    if kind == "logistic":
        assert model.predict_proba(people(1, 300)).sum(axis=1) == pytest.approx(np.ones(300))


def test_a_number_is_predicted_inside_a_declared_range(run):
    run(f"{STRONG} --target age --model huber".replace("--epsilon 50", "--epsilon 200"))
    model = load_model("m.json")
    assert (model.kind, model.schema.target, model.classes) == ("huber", "age", None)
    assert model.details["parameters"]["target_range"] == [0, 100]
    numbers = [float(line) for line in run("predict m.json new.csv").stdout.split()[1:]]
    assert np.corrcoef(numbers, people(1, 300)["age"])[0, 1] > 0.5


@pytest.mark.parametrize("kind", ["logistic", "svc"])
def test_three_classes(run, kind):
    # catches: coefficients of one class only; classes in the schema's order where the model has its own
    run(f"{STRONG} --target stage --model {kind}".replace("--epsilon 50", "--epsilon 500"))
    model = load_model("m.json")
    assert model.classes == ("high", "low", "middle")
    assert model.coefficients.shape == (3, len(model.feature_names))
    found = run("predict m.json new.csv").stdout.split()[1:]
    truth = people(1, 300)["stage"].to_numpy()
    assert np.mean(truth == found) > np.mean(truth == pd.Series(truth).mode()[0]) + 0.1
    if kind == "logistic":
        assert model.predict_proba(people(1, 300)).sum(axis=1) == pytest.approx(np.ones(300))


def assert_alike(one, two):
    """The same classes, or the same numbers but for rounding."""
    assert one.tolist() == (pytest.approx(two) if one.dtype.kind == "f" else two.tolist())


@pytest.mark.parametrize(
    ("target", "kind"),
    [("ill", "logistic"), ("stage", "logistic"), ("stage", "svc"), ("age", "linear"), ("age", "huber")],
)
def test_a_saved_model_predicts_what_its_estimator_predicts(run, monkeypatch, target, kind):
    # catches: formulas in the model file that are not those of the estimator
    kept = []
    make = model_file.estimator_class

    def keeping(name, task):
        return lambda **options: kept.append(make(name, task)(**options)) or kept[-1]

    monkeypatch.setattr("hushpoint.tables.training.estimator_class", keeping)
    run(f"{STRONG} --target {target} --model {kind}")
    model, estimator, new = load_model("m.json"), kept[-1], people(1, 300)
    X = TableEncoder(model.schema).fit().transform(new)
    assert_alike(model.predict(new), estimator.predict(X))
    if kind == "logistic":
        assert model.predict_proba(new) == pytest.approx(estimator.predict_proba(X), abs=1e-12)
    if model.classes is not None:
        assert model.decision_function(new) == pytest.approx(estimator.decision_function(X), rel=1e-12, abs=1e-12)


def test_files_and_frames_give_the_same_model(run):
    # catches: a reader that changes what it reads; parts that are not put together in order
    run(STRONG)
    by_file = load_model("m.json")
    people().to_csv("data.csv.gz", index=False)
    for data in ("data.csv.gz", people(), {name: column.tolist() for name, column in people().items()}):
        again = fit_model(data, "s.toml", epsilon=50, seed=1)
        assert np.array_equal(again.coefficients, by_file.coefficients)
    assert list(by_file.schema.features) == ["age", "weight", "job", "smoker", "stage"]


def test_the_same_seed_gives_the_same_model_and_no_seed_another(run):
    run(f"{FIT} --seed 3")
    run(f"{FIT.replace('m.json', 'n.json')} --seed 3")
    run(FIT.replace("m.json", "o.json"))
    seeded, again, secure = (load_model(name) for name in ("m.json", "n.json", "o.json"))
    assert np.array_equal(seeded.coefficients, again.coefficients)
    assert not np.array_equal(seeded.coefficients, secure.coefficients)
    assert "not for release" in str(seeded.guarantee)
    assert "operating system" in str(secure.guarantee)


def test_options_reach_the_estimator(run):
    run(f"{FIT} --penalty l1 --alpha 0.01 --adjacency zero-out")
    parameters = load_model("m.json").details["parameters"]
    assert (parameters["penalty"], parameters["alpha"], parameters["adjacency"]) == ("l1", 0.01, "zero-out")
    run(f"{FIT} --penalty none --force")
    assert load_model("m.json").details["parameters"]["penalty"] is None


def test_the_how_to_page_is_true(run):
    # catches: a page that was never run, or that the code has outgrown
    page = (Path(__file__).parents[1] / "docs" / "howto-tables.md").read_text()
    make, use = re.findall(r"^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    exec(compile(make, "docs/howto-tables.md", "exec"), {})
    commands = re.findall(r"^\$ hushpoint (.*)$", page, flags=re.MULTILINE)
    assert [line.split()[0] for line in commands] == ["schema", "fit", "fit", "predict", "predict", *["evaluate"] * 2]
    draft, refused, fit, predict, odd, exact, noisy = commands
    assert run(draft).stdout in page
    assert run(refused, code=2).stderr in page
    part, whole = re.findall(r"^```toml\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    assert part in Path("clinic.schema.toml").read_text()
    Path("clinic.schema.toml").write_text(whole)
    first, told = run(fit).stdout.splitlines()[0], page.splitlines()
    assert any(re.sub(r"\d+ steps", "", line) == re.sub(r"\d+ steps", "", first) for line in told)
    Path("new.csv").write_text("".join(Path("clinic.csv").read_text().splitlines(keepends=True)[:4]))
    assert len(run(predict).stdout.splitlines()) == 4
    Path("odd.csv").write_text(Path("new.csv").read_text().replace("east", "elsewhere"))
    assert run(odd, code=2).stderr in page
    assert "share them only if those" in run(exact).stdout
    assert "for one user (replace-one)" in " ".join(run(noisy).stdout.split())
    exec(compile(use, "docs/howto-tables.md", "exec"), {})


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line", ["schema data.csv -o old", FIT.replace("m.json", "old"), "predict m.json new.csv -o old"]
)
def test_nothing_is_overwritten_without_force(run, tmp_path, monkeypatch, line):
    # catches: a model that cost privacy replaced by a typo; the budget spent before the refusal
    run(FIT)
    (tmp_path / "old").write_text("precious")

    def never(*known, **options):
        raise AssertionError("refuse before the data is read")

    with monkeypatch.context() as patched:
        patched.setattr("hushpoint.tables.reading.read_chunks", never)
        patched.setattr("hushpoint.tables.training.read_chunks", never)
        patched.setattr("hushpoint.tables.draft.read_chunks", never)
        assert "'old' exists" in error_of(run(line, code=2))
        assert "no folder" in error_of(run(line.replace("-o old", "-o no/such"), code=2))
    assert (tmp_path / "old").read_text() == "precious"
    run(f"{line} --force")
    assert (tmp_path / "old").read_text() != "precious"


def test_a_failure_while_saving_leaves_no_file(run, tmp_path, monkeypatch):
    # catches: half a model under its final name
    before = sorted(os.listdir(tmp_path))

    def broken(record, file, **options):
        file.write('{"format": "hushpoint')
        file.flush()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(model_file.json, "dump", broken)
    assert "No space left on device" in error_of(run(FIT, code=2))
    assert sorted(os.listdir(tmp_path)) == before


def test_a_bad_row_at_the_end_leaves_no_predictions(run, tmp_path, monkeypatch):
    # catches: predictions for the first part of a table, which look complete
    run(STRONG)
    monkeypatch.setattr("hushpoint.tables.reading.read_chunks.__defaults__", (100,))
    with open("new.csv", "a") as file:
        file.write(f"44,80,{SECRET},no,low,p,no\n")
    before = sorted(os.listdir(tmp_path))
    for line in ("predict m.json new.csv -o p.csv", "predict m.json new.csv"):
        assert "column 'job' has categories that are not declared" in error_of(run(line, code=2))
    assert sorted(os.listdir(tmp_path)) == before


# --- data that does not fit ------------------------------------------------------------------------------------------


def changed(name, value, row=5):
    """A change of one cell."""
    return lambda frame: frame.assign(**{name: [value if i == row else v for i, v in enumerate(frame[name])]})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (changed("age", SECRET), "column 'age' has cells that are not numbers"),
        (changed("age", None), "column 'age' has missing cells"),
        (changed("age", "nan"), "column 'age' has missing cells"),
        (changed("job", SECRET), "column 'job' has categories that are not declared"),
        (changed("job", None), "column 'job' has missing cells"),
        (changed("smoker", SECRET), "column 'smoker' has cells that are not yes/no, true/false or 1/0"),
        (changed("ill", SECRET), "target 'ill' has missing cells or classes that are not declared"),
        (changed("ill", None), "target 'ill' has missing cells or classes that are not declared"),
        (lambda frame: frame.assign(extra=SECRET), "the schema does not declare 'extra'"),
        (lambda frame: frame.drop(columns=["age", "job"]), "the table lacks 'age', 'job'"),
        (lambda frame: frame.drop(columns="ill"), "the table lacks 'ill'"),
        (lambda frame: frame[:0], "has a header and no rows"),
        (lambda frame: frame[:1], "there is one record only"),
    ],
)
def test_tables_that_do_not_fit_the_schema_are_told_by_column(run, change, told):
    # catches: a silent repair, a traceback, a message that quotes a cell (checked in every run)
    change(people()).to_csv("data.csv", index=False)
    assert told in error_of(run(FIT, code=2))
    assert not os.path.exists("m.json")


@pytest.mark.parametrize("name", ["age", "job", "smoker", "ill"])
@pytest.mark.parametrize("cell", [SECRET, None])
def test_a_remedy_says_what_a_changed_schema_tells(run, name, cell):
    # catches: advice that makes one person's odd cell a published fact
    changed(name, cell)(people()).to_csv("data.csv", index=False)
    assert error_of(run(FIT, code=2)).endswith(ONLY_IF_PUBLIC)
    if name == "age":
        changed(name, None)(people()).to_csv("data.csv", index=False)
        assert error_of(run(f"{FIT} --target age", code=2)).endswith(LEAVE_OUT)


@pytest.mark.parametrize("table", [pd.Series([SECRET]), np.array([[SECRET]]), [SECRET], {"age": [10**400]}])
def test_what_is_no_table_is_told_without_its_cells(table):
    # catches: a KeyError whose key is a cell; a number that is too large
    schema = Schema({"age": Number(0, 1), "ill": Boolean()}, target="ill")
    for use in (lambda: fit_model(table, schema, epsilon=1), lambda: TableEncoder(schema).fit().transform(table)):
        with pytest.raises(ValueError, match=r"table|not numbers") as caught:
            use()
        assert SECRET not in str(caught.value)
    if not isinstance(table, dict):
        with pytest.raises(ValueError, match="the table is a"):
            draft_schema(table)


def test_extra_columns_do_not_disturb_predictions_and_missing_ones_are_named(run):
    run(STRONG)
    expected = run("predict m.json new.csv").stdout
    frame = people(1, 300)
    frame["extra"] = SECRET
    frame[frame.columns[::-1]].to_csv("new.csv", index=False)
    assert run("predict m.json new.csv").stdout == expected
    frame.drop(columns=["age", "smoker"]).to_csv("new.csv", index=False)
    assert "the table lacks 'age', 'smoker'" in error_of(run("predict m.json new.csv", code=2))
    frame.assign(age=np.nan).to_csv("new.csv", index=False)
    assert "column 'age' has missing cells" in error_of(run("predict m.json new.csv", code=2))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (FIT.replace("data.csv", "no.csv"), "there is no file 'no.csv'"),
        (FIT.replace("s.toml", "no.toml"), "schema 'no.toml' cannot be read"),
        (f"{FIT} --target age --model logistic", "the target 'age' is a number. Choose one of: linear, lasso, huber"),
        (f"{FIT} --model lasso", "the target 'ill' is a category. Choose one of: logistic, svc"),
        (f"{FIT} --target none", "target is 'none', which is no declared column"),
        (f"{FIT} --groups nobody", "the table lacks 'nobody'"),
        *((f"{FIT} --delta {delta}", f"delta is {delta}") for delta in ("0.0", "0.5", "1.0", "-1.0", "nan", "inf")),
        (f"{FIT} --delta 0.1", "delta is 0.1 and there are 1500 records. Pass a delta well below 1/1500"),
        (f"{FIT} --delta 0.002 --groups person", "delta is 0.002 and there are 500 users"),
        *(
            (FIT.replace("--epsilon 5", f"--epsilon {epsilon}"), f"epsilon is {epsilon}")
            for epsilon in ("0.0", "-1.0", "nan", "inf", "1e+100", "1e+300")
        ),
        (FIT.replace("data.csv", "empty.csv"), "'empty.csv' has no header"),
        ("schema empty.csv", "'empty.csv' has no header"),
        (FIT.replace("data.csv", "folder"), "there is no file 'folder'"),
        (FIT.replace("m.json", "folder"), "'folder' is a folder. Name a file"),
        ("schema data.csv -o folder --force", "'folder' is a folder. Name a file"),
        (f"{FIT} --penalty l3", "penalty is 'l3'"),
        (f"{FIT} --target age --model lasso --penalty l1", "penalty was given and a lasso model has none"),
        ("schema data.csv --target none", "target is 'none'. Name one of the columns"),
        ("predict s.toml new.csv", "model 's.toml' is no valid JSON"),
        ("predict m.json new.csv", "model 'm.json' cannot be read"),
    ],
)
def test_wrong_arguments_are_named(run, line, told):
    # catches: a traceback, a warning where the budget is spent for nothing, a message about an inner number
    assert told in error_of(run(line, code=2))
    assert not os.path.exists("m.json")


@pytest.mark.parametrize("line", ["account", "calibrate --epsilon 1"])
def test_a_delta_that_allows_everything_is_refused_without_data_too(line):
    # catches: "epsilon = 0" for a delta at which anything is private
    asked = f"{line} private_admm steps=20 gamma=10 --items 1000 --row-norm 1 ".split()
    asked += ["noise_std=0.3"] if line == "account" else []
    for delta in ("0.1", "0.001"):
        result = CliRunner().invoke(cli.app, [*asked, "--delta", delta])
        assert (result.exit_code, result.stdout) == (2, "")
        assert f"delta is {delta} and there are 1000 records" in result.stderr
    assert CliRunner().invoke(cli.app, [*asked, "--delta", "1e-4"]).exit_code == 0


@pytest.mark.parametrize("written", ["true", "True"])
def test_truths_are_read_as_json_and_as_python_write_them(written):
    # catches: "lattice is 'True'. Pass True or False."
    asked = f"account dp_sgd steps=3 step_size=1 noise_std=0.3 lattice={written} --items 1000 --row-norm 1".split()
    told = CliRunner().invoke(cli.app, asked)
    assert told.exit_code == 0, told.stderr
    assert "to the last bit" in " ".join(told.stdout.split())


@pytest.mark.parametrize(("line", "meant"), [("ft", "fit"), ("federated ru", "run"), ("reproduce lass", "lasso")])
def test_a_mistyped_command_is_guessed_once(line, meant):
    # catches: typer and click that each add the same hint
    told = CliRunner().invoke(cli.app, line.split()).stderr
    assert told.count(f"Did you mean '{meant}'?") == told.count("Did you mean") == 1


# --- a standard output that fails ------------------------------------------------------------------------------------


def shell(line, stdout):
    """The command as its own process."""
    command = [sys.executable, "-c", "from hushpoint.cli import main; main()", *line.split()]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)


PRINTING = [f"{FIT} --force", f"{FIT} --force --json", "predict old.json new.csv", "schema data.csv", "--version"]
PRINTING += ["evaluate old.json new.csv"]


@pytest.mark.parametrize("line", PRINTING)
def test_a_reader_who_has_seen_enough_ends_the_command_quietly(run, line):
    # catches: a traceback, or the interpreter's own complaint when it ends, behind "| head"
    run(FIT.replace("m.json", "old.json"))
    reading, writing = os.pipe()
    os.close(reading)
    result = shell(line, writing)
    os.close(writing)
    assert (result.returncode, result.stderr) == (1, "")
    assert os.path.exists("m.json") == line.startswith("fit")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("line", PRINTING)
def test_a_full_disk_is_told_in_one_line(run, line):
    # catches: a traceback; a model that cost privacy and is lost, or that nobody knows to be there
    run(FIT.replace("m.json", "old.json"))
    with open("/dev/full", "w") as full:
        result = shell(line, full)
    assert result.returncode == 2
    fitted = line.startswith("fit")
    said = "m.json was written, but its summary cannot" if fitted else "the output cannot"
    assert result.stderr == f"Error: {said} be printed: No space left on device.\n"
    assert os.path.exists("m.json") == fitted
    if fitted:
        load_model("m.json")


def test_only_logistic_models_have_probabilities(run):
    run(f"{FIT} --model svc")
    assert "has no probabilities" in error_of(run("predict m.json new.csv --proba", code=2))


@pytest.mark.parametrize("name", ["schema", "fit", "predict"])
def test_every_command_explains_itself(run, name):
    told = re.sub(r"\x1b\[[0-9;]*m", "", run(f"{name} --help").stdout)
    assert "Example: hushpoint" in told
    assert "--output" in told
