"""hushpoint schema, fit and predict, as a user types them: from a table to predictions, and what may go wrong."""

import csv
import io
import json
import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from hushpoint import cli
from hushpoint.commands import tabular
from hushpoint.preprocessing import TableEncoder
from hushpoint.tables import fit_model, load_model, model_file

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
    for command in (tabular.schema, tabular.fit, tabular.predict):
        made.command()(cli._plainly(command))
    return made


@pytest.fixture
def run(app, tmp_path, monkeypatch):
    """Run a command in an empty folder that has the table and its schema; returns the result."""
    monkeypatch.chdir(tmp_path)
    people().to_csv("data.csv", index=False)
    people(1, 300).to_csv("new.csv", index=False)
    (tmp_path / "s.toml").write_text(SCHEMA)

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
        "Largest coefficients",
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
    assert "1,500 rows of 500 users" in told
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


@pytest.mark.parametrize(
    ("target", "kind"),
    [("ill", "logistic"), ("stage", "logistic"), ("stage", "svc"), ("age", "linear"), ("age", "huber")],
)
def test_a_saved_model_predicts_what_its_estimator_predicts(run, monkeypatch, target, kind):
    # catches: formulas in the model file that are not those of the estimator
    kept = []
    make = model_file.estimator_class

    def keeping(name):
        return lambda **options: kept.append(make(name)(**options)) or kept[-1]

    monkeypatch.setattr("hushpoint.tables.training.estimator_class", keeping)
    run(f"{STRONG} --target {target} --model {kind}")
    model, estimator, new = load_model("m.json"), kept[-1], people(1, 300)
    X = TableEncoder(model.schema).fit().transform(new)
    assert np.array_equal(model.predict(new), estimator.predict(X))
    if kind == "logistic":
        assert np.array_equal(model.predict_proba(new), estimator.predict_proba(X))
    if model.classes is not None:
        assert np.array_equal(model.decision_function(new), estimator.decision_function(X))


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
    assert [line.split()[0] for line in commands] == ["schema", "fit", "fit", "predict"]
    draft, refused, fit, predict = commands
    assert run(draft).stdout in page
    assert run(refused, code=2).stderr in page
    part, whole = re.findall(r"^```toml\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    assert part in Path("clinic.schema.toml").read_text()
    Path("clinic.schema.toml").write_text(whole)
    first, told = run(fit).stdout.splitlines()[0], page.splitlines()
    assert any(re.sub(r"\d+ steps", "", line) == re.sub(r"\d+ steps", "", first) for line in told)
    Path("new.csv").write_text("".join(Path("clinic.csv").read_text().splitlines(keepends=True)[:4]))
    assert len(run(predict).stdout.splitlines()) == 4
    Path("new.csv").write_text(Path("new.csv").read_text().replace("east", "elsewhere"))
    assert run(predict, code=2).stderr in page
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
        (changed("smoker", SECRET), "column 'smoker' has cells that are not true or false"),
        (changed("ill", SECRET), "target 'ill' has missing cells or classes that are not declared"),
        (changed("ill", None), "target 'ill' has missing cells or classes that are not declared"),
        (lambda frame: frame.assign(ill="no"), "target 'ill' does not have every declared class"),
        (lambda frame: frame.assign(extra=SECRET), "the schema does not declare 'extra'"),
        (lambda frame: frame.drop(columns=["age", "job"]), "the table lacks 'age', 'job'"),
        (lambda frame: frame.drop(columns="ill"), "the table lacks 'ill'"),
        (lambda frame: frame[:0], "has a header and no rows"),
    ],
)
def test_tables_that_do_not_fit_the_schema_are_told_by_column(run, change, told):
    # catches: a silent repair, a traceback, a message that quotes a cell (checked in every run)
    change(people()).to_csv("data.csv", index=False)
    assert told in error_of(run(FIT, code=2))
    assert not os.path.exists("m.json")


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
        (f"{FIT} --delta 2", "delta is 2"),
        (FIT.replace("--epsilon 5", "--epsilon -1"), "epsilon is -1"),
        (f"{FIT} --penalty l3", "penalty is 'l3'"),
        (f"{FIT} --target age --model lasso --penalty l1", "penalty was given and a lasso model has none"),
        ("schema data.csv --target none", "target is 'none'. Name one of the columns"),
        ("predict s.toml new.csv", "model 's.toml' is no valid JSON"),
        ("predict m.json new.csv", "model 'm.json' cannot be read"),
    ],
)
def test_wrong_arguments_are_named(run, line, told):
    assert told in error_of(run(line, code=2))


def test_only_logistic_models_have_probabilities(run):
    run(f"{FIT} --model svc")
    assert "has no probabilities" in error_of(run("predict m.json new.csv --proba", code=2))


@pytest.mark.parametrize("name", ["schema", "fit", "predict"])
def test_every_command_explains_itself(run, name):
    told = re.sub(r"\x1b\[[0-9;]*m", "", run(f"{name} --help").stdout)
    assert "Example: hushpoint" in told
    assert "--output" in told
