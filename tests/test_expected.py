"""What epsilon is needed: an answer that agrees with models that were trained, rises with budget and people, and reads
no data."""

import json

import numpy as np
import pytest
import typer
from scipy.stats import multivariate_normal
from sklearn.linear_model import LinearRegression, LogisticRegression
from typer.testing import CliRunner

import hushpoint as hp
from hushpoint import cli
from hushpoint.commands import tabular
from hushpoint.estimators import assumed
from hushpoint.estimators import expected as of_estimators
from hushpoint.plots.expected import expected as draw
from hushpoint.tables import Boolean, Number, Schema, fit_model
from hushpoint.tables import expected as of_tables

expected = hp.utility.expected_accuracy


def generated(people, features, regression, condition=10.0):
    """Normal features of a known condition, cut to a box of rows, whose signal lies evenly in them."""
    rng = np.random.default_rng(0)
    spectrum = np.geomspace(1, 1 / condition, features)
    X = rng.standard_normal((people, features)) * np.sqrt(0.5 * spectrum / spectrum.sum())
    X /= np.maximum(1, np.linalg.norm(X, axis=1))[:, None]
    score = X @ (rng.choice([-1, 1], features) / np.sqrt(spectrum))
    score /= score.std()
    if regression:
        return X, np.clip(0.3 * (score + rng.standard_normal(people)) / np.sqrt(2), -1, 1)
    return X, (rng.random(people) < 1 / (1 + np.exp(-3 * score))).astype(int)


@pytest.mark.parametrize("regression", [False, True])
def test_models_score_what_was_expected_and_not_what_half_the_noise_would_give(regression):
    # catches: a factor 2 of the adjacency; noise, signal or calibration of the wrong size
    people, features, rows = 4000, 40, 8000
    X, y = generated(people + rows, features, regression)
    loss, make, more = "logistic", hp.PrivateLogisticRegression, {}
    if regression:
        loss, make, more = "squared", hp.PrivateLinearRegression, {"target_range": (-1, 1)}
    without = LinearRegression() if regression else LogisticRegression(C=100)
    guess = without.fit(X[:people], y[:people]).score(X[people:], y[people:])
    found = [
        make(epsilon=0.3, delta=1e-5, row_norm=1.0, adjacency="zero-out", random_state=seed, lattice=False, **more)
        .fit(X[:people], y[:people])
        .score(X[people:], y[people:])
        for seed in range(5)
    ]
    told, doubled = (
        expected(people, features, 0.3, delta=1e-5, guess=guess, loss=loss, adjacency=adjacency, condition=10)
        for adjacency in ("zero-out", "replace-one")
    )
    assert told.low[0] < np.mean(found) < told.high[0]
    assert np.mean(found) - doubled.expected[0] > 2 * abs(np.mean(found) - told.expected[0])


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_more_budget_and_more_people_never_hurt(loss):
    # catches: a score above what is possible or below what is free; a budget that makes it worse
    epsilons, options = (0.02, 0.2, 0.7, 2.0, 30.0), {"loss": loss, "delta": 1e-6, "condition": 10}
    several = np.array([expected(n, 20, epsilons, **options).expected for n in (300, 3000, 100_000)])
    assert (np.diff(several, axis=0) >= 0).all()
    assert (np.diff([expected(n, 1, 0.1, **options).expected[0] for n in (500, 1000, 2000)]) >= 0).all()
    found = expected(3000, 20, epsilons, **options)
    for column in (found.low, found.expected, found.high):
        assert (np.diff(column) >= 0).all()
    assert found.base_rate <= found.expected[0]
    assert found.expected[-1] <= found.guess
    assert found.expected[-1] > found.share(0.95)
    assert all(low <= middle <= high for low, middle, high in zip(found.low, found.expected, found.high, strict=True))
    hidden = expected(3000, 20, epsilons, adjacency="zero-out", **options)
    assert np.all(np.array(hidden.expected) >= found.expected)


def test_the_epsilon_that_is_needed():
    found = expected(5000, 20, guess=0.9, base_rate=0.6)
    needed = found.needed(0.85)
    again = expected(5000, 20, [needed / 2, needed, needed * 2], guess=0.9, base_rate=0.6).expected
    assert again[0] < 0.85 - 0.005 < again[1] + 0.005
    assert again[1] == pytest.approx(0.85, abs=0.015)  # between the epsilons that were looked at, by a straight line
    assert found.needed(0.85, surely=True) > needed
    assert found.needed(0.95) is None
    assert found.needed(0.6) == found.epsilons[0]
    assert f"needs epsilon = {found.needed(0.75):.2g}" in " ".join(str(found).split())
    assert json.loads(json.dumps(found.to_dict()))["measure"] == "accuracy"


def test_how_often_two_correlated_normals_agree():
    # catches: a branch of Owen's formula
    for cut in (0.0, 0.7, -0.4):
        for goes_with in (0.0, 0.3, 0.95):
            for threshold in (0.0, -1.2, 0.5, 3.0):
                law = multivariate_normal([0, 0], [[1, goes_with], [goes_with, 1]])
                both = law.cdf([cut, -threshold])  # above -cut and above the threshold, mirrored
                neither = 1 - law.cdf([cut, np.inf]) - law.cdf([np.inf, -threshold]) + both
                told = assumed.agreement(cut, np.array([goes_with]), np.array([threshold]))
                assert told[0] == pytest.approx(both + neither, abs=1e-4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"guess": 0.5}, "guess is 0.5"),
        ({"guess": 0.7, "base_rate": 0.8}, "above base_rate = 0.8"),
        ({"base_rate": 0.3}, "base_rate is 0.3"),
        ({"guess": 1.0, "loss": "squared"}, "guess is 1"),
        ({"base_rate": 0.5, "loss": "squared"}, "base_rate is 0.5. Leave it out"),
        ({"condition": 0.5}, "condition is 0.5"),
        ({"share": 0.0}, "share is 0"),
        ({"epsilons": []}, "epsilons is"),
        ({"epsilons": [1.0, -1.0]}, "epsilons is -1"),
        ({"adjacency": "both"}, "adjacency is 'both'"),
    ],
)
def test_what_cannot_be_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        expected(1000, 5, **options)


def test_the_picture_is_the_same_again(tmp_path):
    found = expected(2000, 10, [0.1, 1, 10], loss="squared", condition=1)
    first = [path.read_bytes() for path in draw(found, tmp_path / "a", chosen=1.0)]
    assert first == [path.read_bytes() for path in draw(found, tmp_path / "b", chosen=1.0)]
    with pytest.raises(ValueError, match="chosen is -1"):
        draw(found, tmp_path / "c", chosen=-1.0)


# --- in tables -------------------------------------------------------------------------------------------------------

COLUMNS = {"age": Number(0, 100), "ill": Boolean(), "cost": Number(0, 10)}


def table(seed, rows=600):
    rng = np.random.default_rng(seed)
    age = rng.uniform(0, 100, rows)
    return {"age": age, "ill": age + 20 * rng.standard_normal(rows) > 50, "cost": age / 10}


@pytest.mark.parametrize(
    ("target", "model"),
    [("ill", "logistic"), ("ill", "svc"), ("ill", "additive"), ("cost", "lasso"), ("cost", "huber")],
)
def test_of_a_model_nothing_but_its_plan_is_asked(target, model, monkeypatch):
    # catches: an answer that depends on a cell, or on the model
    monkeypatch.setattr(of_estimators, "EPSILONS", (0.3,))
    fits = [fit_model(table(seed), Schema(COLUMNS, target), epsilon=1, model=model, seed=seed) for seed in (0, 1)]
    assert fits[0].coefficients.tolist() != fits[1].coefficients.tolist()
    told = [of_tables.expected_of(one) for one in fits]
    assert told[0] == told[1]
    assert (told[0].n, told[0].epsilons) == (600, (0.3, 1.0))
    assert ("penalty is left out" in str(told[0])) == (model == "lasso")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, False),
        ({"alpha": 0.1}, True),
        ({"alpha": 0.0}, False),
        ({"penalty": None}, False),
        ({"penalty": "l1"}, True),
        ({"penalty": "elasticnet", "alpha": 0.0}, False),
    ],
)
def test_a_penalty_that_is_left_out_is_told(given, said, monkeypatch):
    # catches: an answer for a model without its penalty that does not say so
    monkeypatch.setattr(of_estimators, "EPSILONS", (0.3,))
    fitted = fit_model(table(0), Schema(COLUMNS, "ill"), epsilon=1, model="logistic", seed=0, **given)
    assert ("penalty is left out" in str(of_tables.expected_of(fitted))) == said


def test_what_learned_ranges_cost_is_missing(monkeypatch):
    # catches: the whole budget counted for the model
    monkeypatch.setattr(of_estimators, "EPSILONS", (0.3,))
    learned = {**COLUMNS, "age": Number(0, 100, learn=True)}
    plain, less = (
        of_tables.expected_of(
            fit_model(table(0), Schema(columns, "ill"), epsilon=1, delta=1e-4, range_share=0.5, seed=0, row_norm=1.0)
        )
        for columns in (COLUMNS, learned)
    )
    assert less.epsilons == plain.epsilons
    assert less.expected[0] < plain.expected[0]


def test_fit_draws_the_curve_and_says_what_is_wrong_before_it_spends(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(of_estimators, "EPSILONS", (0.1, 10.0))
    rows = {**table(0), "stage": np.array(["a", "b", "c"])[np.arange(600) % 3]}
    lines = [",".join(rows), *(",".join(map(str, row)) for row in zip(*rows.values(), strict=True))]
    (tmp_path / "d.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "s.toml").write_text(
        'target = "ill"\n[columns.age]\nkind = "number"\nlow = 0\nhigh = 100\n[columns.ill]\nkind = "boolean"\n'
        '[columns.cost]\nkind = "ignore"\n[columns.stage]\nkind = "category"\nvalues = ["a", "b", "c"]\n'
    )
    app = typer.Typer()
    app.command()(cli._plainly(tabular.fit))

    def run(line):
        given = f"d.csv --schema s.toml --epsilon 1 -o m.json {line}".split()
        return CliRunner(env={"COLUMNS": "120"}).invoke(app, given)

    for line, words in (
        ("--guess 0.9", "--guess and --base-rate are for the picture"),
        ("--curve c --guess 0.4", "guess is 0.4"),
        ("--curve c --target stage", "3 classes"),
        ("--base-rate 0.5", "--guess and --base-rate are for the picture"),
        ("--curve none/c", "no folder 'none'"),
    ):
        result = run(line)
        assert result.exit_code == 2, result.output
        assert words in " ".join(result.stderr.split())
        assert sorted(path.name for path in tmp_path.iterdir()) == ["d.csv", "s.toml"]
    told = run("--curve c.svg --guess 0.9 --base-rate 0.6 --seed 0").stdout
    assert "9 of 10 models" in told
    assert "Wrote c.png and c.svg." in told
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    told = json.loads(run("--curve e --force --json").stdout)
    assert told["expected"]["n"] == 600
    assert 1.0 in told["expected"]["epsilons"]
    assert (tmp_path / "e.svg").exists()
    assert run("--curve e.png --output other.json").exit_code == 2  # there is one already
