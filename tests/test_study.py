"""The study: it resumes bit for bit, reuses nothing stale, does not cripple the baseline and says what it found."""

from __future__ import annotations

import io
import json
import math
import re
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from rich.console import Console
from scipy.stats import binom, norm
from study_tables import markdown_table, read_numbers

from hushpoint import methods
from hushpoint.commands import reproduce as commands
from hushpoint.experiments import claims, contenders, frontier_table, lasso, logistic, published_recipe, study
from hushpoint.experiments.contenders import CONTENDERS, Size, draw
from hushpoint.experiments.published_recipe import Recipe
from hushpoint.experiments.tuning import require_equal_effort, tuned
from hushpoint.plots import read_rows
from hushpoint.privacy import gdp_mu
from hushpoint.privacy.guarantee import Budget
from hushpoint.problem import Problem
from hushpoint.regularizers import L1

Array = NDArray[np.float64]

SMALL = Size(items=60, features=6, support=2, test_rows=80, rows_per_user=2, sites=4)
RECIPE = Recipe(rows=100, features=6, support=2, sample=10, rounds=30, runs=2, epsilons=(0.5, 5.0))
TINY = lasso.Scale(
    size=SMALL,
    epsilons=(1.0, 10.0),
    followed=(1.0,),
    runs=3,
    batch=2,
    tuning_runs=1,
    grid="quick",
    most_settings=2,
    steps=(1, 10),
    recipe=RECIPE,
)


def quiet() -> Console:
    return Console(file=io.StringIO(), width=200)


@pytest.fixture(autouse=True)
def _no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures and pages have tests of their own."""
    monkeypatch.setattr("hushpoint.plots.draw_all", lambda directory: {})
    monkeypatch.setattr("hushpoint.report.write", lambda directory, **options: directory / "report.html", raising=False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("study") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hushpoint.plots.draw_all", lambda directory: {})
        patch.setattr("hushpoint.report.write", lambda directory, **options: directory / "report.html", raising=False)
        lasso.run_lasso(directory, scale=TINY, as_published=True, seed=3, jobs=2, console=quiet())
    return directory


def tables_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((directory / "tables").iterdir())}


# --- resume and reuse


def test_an_interrupted_study_goes_on_to_the_same_bytes(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One worker instead of two, cut off after some cells, one cell half written: a seed that depends on the worker or
    # the order, or a cell read though it is broken, would show.
    directory, written = tmp_path / "run", []
    keep = study._write

    def write(folder: Path, cell: study.Cell, result: study.Record) -> None:
        keep(folder, cell, result)
        written.append(cell.name)
        if len(written) == 12:
            raise KeyboardInterrupt

    monkeypatch.setattr(study, "_write", write)
    with pytest.raises(study.Interrupted, match="cells are finished"):
        lasso.run_lasso(directory, scale=TINY, as_published=True, seed=3, jobs=1, console=quiet())
    assert len(list((directory / "cells").iterdir())) == 12
    assert not json.loads((directory / "run.json").read_text())["finished"]
    broken = directory / "cells" / f"{written[3]}.json"
    broken.write_text(broken.read_text()[:50])
    monkeypatch.setattr(study, "_write", lambda *cell: (written.append(cell[1].name), keep(*cell))[1])
    first = set(written)
    lasso.run_lasso(directory, scale=TINY, as_published=True, seed=3, jobs=1, console=quiet())
    assert tables_of(directory) == tables_of(finished)
    assert (
        json.loads((directory / "run.json").read_text())["claims"]
        == (json.loads((finished / "run.json").read_text())["claims"])
    )
    again = written[12:]
    assert set(again) & first == {written[3]}


def _double(settings: study.Record) -> study.Record:
    return {"value": 2 * settings["x"]}


def test_a_cell_of_other_settings_is_not_reused(tmp_path: Path) -> None:
    folder = tmp_path / "cells"
    folder.mkdir()
    cell = study.Cell("one", _double, {"x": 1})
    study._write(folder, cell, {"result": {"value": 2}, "cpu_seconds": 0.0})
    assert study._read(folder, cell) == {"value": 2}
    assert study._read(folder, replace(cell, settings={"x": 3})) is None
    assert study._read(folder, replace(cell, task=lasso.tuning)) is None


def test_a_larger_study_computes_only_what_is_new(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The seed, the grid, the data size and the chosen parameters all enter the fingerprint of the cells they change.
    asked: list[str] = []

    def cells_of(scale: lasso.Scale, seed: int) -> set[str]:
        asked.clear()

        def stop(folder: Path, cell: study.Cell) -> None:
            if (found := read(finished / "cells", cell)) is None:
                asked.append(cell.name)
            return found

        monkeypatch.setattr(study, "_read", stop)
        monkeypatch.setattr(study, "_pool", lambda jobs: (_ for _ in ()).throw(KeyError))
        with pytest.raises((KeyError, TypeError, AttributeError)):
            lasso.run_lasso(tmp_path / "other", scale=scale, as_published=True, seed=seed, console=quiet())
        return set(asked)

    read = study._read
    assert "regularisation" in cells_of(TINY, 4)
    wider = cells_of(replace(TINY, most_settings=3), 3)
    assert wider
    assert all(name.startswith("tuning-") for name in wider)
    more = cells_of(replace(TINY, runs=4), 3)
    assert more == {"references", *(f"runs-{name}-{e:g}-1" for name in CONTENDERS for e in TINY.epsilons)}


# --- guarantees and tuning


def test_every_cell_keeps_its_epsilon(finished: Path) -> None:
    cells = [json.loads(path.read_text()) for path in (finished / "cells").glob("runs-*.json")]
    assert {cell["settings"]["method"] for cell in cells} == set(CONTENDERS)
    for cell in cells:
        stated, guarantee = cell["settings"]["epsilon"], cell["result"]["guarantee"]
        assert guarantee["epsilon"] <= stated
        assert guarantee["delta"] == lasso.DELTA
        published = cell["settings"]["method"] == "federated_admm_published"
        assert guarantee["basis"] == ("published" if published else "proved")
        assert guarantee["adjacency"] == ("replace-one" if published else "zero-out")
        if not published:
            assert guarantee["epsilon"] >= 0.99 * stated  # noise that is not needed would cripple a method


@pytest.mark.parametrize("grid", ["full", "quick"])
def test_every_method_has_as_many_settings(grid: str) -> None:
    scale = replace(lasso.FULL, grid=grid)
    assert require_equal_effort({name: scale.settings_of(name) for name in CONTENDERS}) == (
        48 if grid == "full" else 16
    )
    with pytest.raises(ValueError, match="same number"):
        require_equal_effort({"a": [{}], "b": [{}, {}]})


def test_tuning_takes_the_best_and_never_what_has_no_guarantee() -> None:
    grid = [{"k": k} for k in range(4)]
    scores = {0: [3.0, 1.0], 1: [1.0, 1.5], 2: [], 3: [0.0, math.nan]}
    assert tuned(grid, lambda choice: scores[choice["k"]])["chosen"] == {"k": 1}
    assert tuned(grid, lambda choice: [])["chosen"] is None


def test_tuning_sees_neither_the_training_nor_the_test_rows() -> None:
    seeds = {
        name: [lasso.derived(0, name, run) for run in range(10)] for name in ("data", "tuning data", "regularisation")
    }
    assert len({seed for group in seeds.values() for seed in group}) == 30


# --- the baseline is not crippled


def plain_dp_gd(
    rows: Array, targets: Array, strength: float, steps: int, step: float, clip: float, noise: float,
    rng: np.random.Generator,
) -> Array:  # fmt: skip
    """Noisy proximal gradient descent as anybody would write it."""
    z = np.zeros(rows.shape[1])
    for _ in range(steps):
        gradients = rows * (rows @ z - targets)[:, None]
        lengths = np.linalg.norm(gradients, axis=1)
        gradients *= np.minimum(1, clip / np.maximum(lengths, 1e-300))[:, None]
        z = z - step * (gradients.mean(axis=0) + noise * rng.normal(size=z.shape))
        z = np.sign(z) * np.maximum(np.abs(z) - step * strength, 0)
    return z


@pytest.mark.parametrize("epsilon", [0.3, 2.0, 10.0])
@pytest.mark.parametrize("planted", [1.0, 2.0])
def test_dp_gd_matches_a_plain_implementation(epsilon: float, planted: float) -> None:
    size = Size(items=200, features=10, support=3, test_rows=300, rows_per_user=1)
    sample, strength, delta, runs = draw(size, 11), 1e-3, 1e-6, 150
    choice = {"steps": 20, "reach": 60.0, "clip": 0.15, "tail": None}
    plan = CONTENDERS["dp_gd"].plan(sample, strength, choice, epsilon, delta)
    test = sample.test(strength)
    ours = np.array([test.objective(plan.run(seed=run).model) for run in range(runs)])
    noise = planted * 0.15 * math.sqrt(20) / (200 * gdp_mu(epsilon, delta))
    rng = np.random.default_rng(5)
    theirs = np.array(
        [
            test.objective(plain_dp_gd(sample.rows, sample.targets, strength, 20, 3.0, 0.15, noise, rng))
            for _ in range(runs)
        ]
    )
    # Logarithms: at small epsilon the objective is close to a multiple of the noise's square.
    a, b = np.log(ours), np.log(theirs)
    z = abs(a.mean() - b.mean()) / math.sqrt(a.var(ddof=1) / runs + b.var(ddof=1) / runs)
    assert bool(z < norm.isf(1e-6 / 2)) is (planted == 1.0)


# --- the published recipe


def test_the_published_recipe_spends_more_than_it_states(finished: Path) -> None:
    rows = read_rows(finished / "tables" / "as_published.csv")
    assert [float(row["epsilon_stated"]) for row in rows] == [0.5, 5.0]
    assert all(float(row["epsilon_true"]) > float(row["epsilon_stated"]) for row in rows)
    assert all(
        float(row["objective_best_iterate_mean"]) <= float(row["objective_last_mean"]) for row in rows
    )  # the best of many looks at the test set


def test_the_recipes_true_epsilon_at_full_size() -> None:
    # As stated, epsilon = 5: even a lower bound, from one round, is far above; as stated, 0.01: the formula for a
    # variance makes the baseline's noise larger than needed, and that is said too.
    recipe = Recipe()
    noise = recipe.noise_std(recipe.admm_clip, 5.0, 1e-6)
    least, most = (
        published_recipe.least_epsilon(recipe, noise, 1e-6),
        published_recipe.true_epsilon(recipe, "admm", noise, 1e-6),
    )
    assert 5 < least < most
    for epsilon in recipe.epsilons:
        noise = recipe.noise_std(recipe.admm_clip, epsilon, 1e-6)
        assert published_recipe.true_epsilon(recipe, "admm", noise, 1e-6) > epsilon
    noise = recipe.noise_std(recipe.sgd_clip, 0.01, 1e-6)
    assert published_recipe.true_epsilon(recipe, "sgd", noise, 1e-6) < 0.01


def test_the_lower_bound_is_one() -> None:
    # The law of the sum along the user's row, where nobody else is drawn twice: what its best threshold tells apart.
    recipe = replace(Recipe(), rows=50, features=2, sample=10)
    delta, shift = 1e-3, 2 * recipe.admm_relaxation * recipe.admm_clip
    times = np.arange(recipe.sample + 1)
    weights = binom.pmf(times, recipe.sample, 1 / recipe.users)
    for noise in (0.05, 0.1, 0.2, 0.4):
        spread = recipe.admm_relaxation * noise * math.sqrt(recipe.sample)
        edges = np.linspace(0, shift, 400)[:, None]
        seen, missed = (norm.sf((edges - sign * shift * times) / spread) @ weights for sign in (1, -1))
        true = np.log(np.maximum(seen - delta, 1e-300) / missed).max()
        least = published_recipe.least_epsilon(recipe, noise, delta)
        assert 0 <= least < true
        assert least > 0.5 * true or noise > 0.1  # and not an empty one


# --- what is said


def test_claims_have_the_numbers_of_the_table(finished: Path) -> None:
    run = json.loads((finished / "run.json").read_text())
    rows = read_rows(finished / "tables" / "frontier.csv")
    proved = [row for row in rows if row["basis"] == "proved"]
    for epsilon in TINY.epsilons:
        here = sorted(
            (row for row in proved if float(row["epsilon"]) == epsilon), key=lambda row: float(row["excess_mean"])
        )
        best, second = here[0], here[1]
        claim = next(c for c in run["claims"] if c.startswith(f"At epsilon = {epsilon:g} "))
        assert f"{best['label']} has the lowest" in claim or f"the lowest, {best['label']}, is" in claim
        assert study.number(abs(float(best["excess_mean"]))) in claim
        if "has the lowest" in claim:
            gap = float(second["excess_mean"]) - float(best["excess_mean"])
            assert all(study.number(value) in claim for value in (float(best["objective_mean"]), gap))
    zero = next(row for row in rows if row["method"] == "zero")
    for row in proved:
        worse = [c for c in run["claims"] if c.startswith(f"At epsilon = {float(row['epsilon']):g} no better")]
        named = any(f" {row['label']}, {study.number(float(row['excess_mean']))}" in c for c in worse)
        assert named == (float(row["excess_mean"]) >= float(zero["excess_mean"]))


def invented(gaps: list[float], epsilon: float = 1.0, **methods: tuple[str, float]) -> claims.Frontier:
    """A frontier: the model 0 at 1, ``dp_gd`` at 0.5 and ``anchored_admm`` above it by a gap in each run."""
    values = {"zero": [1.0 + 0.3 * k for k in range(len(gaps))]}
    values["dp_gd"] = [value - 0.5 for value in values["zero"]]
    values["anchored_admm"] = [value + gap for value, gap in zip(values["dp_gd"], gaps, strict=True)]
    rows: list[study.Record] = []
    for name, own in values.items():
        mean = sum(own) / len(own)
        row: study.Record = {"method": name, "label": name, "trust": "trusted curator", "basis": "proved"}
        row |= {"epsilon": epsilon, "objective_mean": mean, "excess_mean": mean, "runs": len(own)}
        rows.append(row if name != "zero" else {**row, "basis": None, "epsilon": None})
    epsilons = {row["method"]: row["epsilon"] for row in rows}
    runs = [
        {"method": n, "epsilon": epsilons[n], "run": k, "objective": v}
        for n, own in values.items()
        for k, v in enumerate(own)
    ]
    return claims.Frontier(rows, runs)


@pytest.mark.parametrize(
    ("gaps", "said"),
    [
        ([0.1, 0.11, 0.09, 0.1], "the gradient methods at epsilon = 1 (by 0.100)"),
        ([-0.1, -0.11, -0.09, -0.1], "ADMM leads at epsilon = 1 (by 0.100), the gradient methods nowhere"),
        ([0.3, -0.3, 0.2, -0.1], "ADMM leads nowhere, the gradient methods nowhere"),
    ],
)
def test_a_lead_is_judged_on_the_same_data(gaps: list[float], said: str) -> None:
    # Catches: the spread of the data, the same for both, taken for doubt about their difference; a lost sign; a loss
    # that is not told.
    (sentence,) = [s for s in claims.lasso_summary(invented(gaps)) if s.startswith("With someone trusted")]
    assert said in sentence
    assert ("a higher one at epsilon = 1" in sentence) == (sum(gaps) >= 0)


def test_the_way_to_the_optimum_is_told_as_it_is() -> None:
    # Catches: a gain of nothing sold as one, and the other way round.
    (way,) = [s for s in claims.lasso_summary(invented([0.1, 0.1, 0.1])) if "from the model 0" in s]
    assert "the best of 2 methods goes from the model 0, which uses no data, towards" in way
    assert way.endswith("optimum: 38% of the way at epsilon = 1.")
    flat = invented([0.1, 0.1])
    flat.zero = {**flat.zero, "excess_mean": 0.1}  # now everything is worse than nothing
    assert any(s.endswith("nowhere at epsilon = 1 and below.") for s in claims.lasso_summary(flat))


def test_numbers_are_written_for_people_and_bounds_to_the_safe_side() -> None:
    assert [study.number(v) for v in (0.0189369, 0.00001234, 12.345, 46438.0, 0.0, -0.5, math.inf)] == [
        "0.0189", "0.0000123", "12.3", "46,400", "0", "-0.500", "infinite",
    ]  # fmt: skip
    assert (study.at_most(46438.0), study.at_most(0.3), study.at_most(0.1172)) == ("46,500", "0.300", "0.118")
    assert (study.at_least(278.9), study.at_least(2.0)) == ("278", "2.00")
    assert study.number(1.234e-9) == "1.23e-9"


def test_the_table_fits_a_terminal_and_holds_the_frontier(finished: Path) -> None:
    # Catches: numbers cut off by a narrow terminal, another unit, a mean under another budget.
    rows = read_numbers(read_rows(finished / "tables" / "frontier.csv"))
    wide = [{**row, "epsilon": epsilon} for row in rows if row["basis"] for epsilon in lasso.FULL.epsilons]
    console = Console(file=io.StringIO(), width=80)
    console.print(frontier_table.terminal_table([*rows[:2], *wide]))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    markdown = markdown_table(rows)
    for row in rows:
        if row["basis"]:
            line = next(line for line in markdown.splitlines() if line.startswith(f"| {row['label']}"))
            cell = line.split("|")[2 + TINY.epsilons.index(row["epsilon"])].replace("*", "").split()[0]
            assert cell == ">" or float(cell) == pytest.approx(1000 * row["excess_mean"], rel=0.01, abs=0.005)


def test_a_second_run_says_that_nothing_is_left(finished: Path) -> None:
    console = Console(file=io.StringIO(), width=200)
    lasso.run_lasso(finished, scale=TINY, as_published=True, seed=3, brief=True, console=console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "there is nothing to compute" in text
    assert "In short:" in text
    assert "In detail:" not in text


def test_without_a_terminal_progress_is_told_in_lines(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=200)
    cells = [study.Cell(f"cell {k}", _double, {"x": k}) for k in range(4)]
    results = study.run_cells(tmp_path, cells, lambda cell, result: (), weight=4.0, jobs=1, console=console)
    assert results["cell 3"] == {"value": 6}
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert text.startswith("25% done, about ")
    assert text.rstrip().endswith("100% done, about 0 s left.")


def test_run_json_and_tables_are_as_agreed(finished: Path) -> None:
    run = json.loads((finished / "run.json").read_text())
    assert (run["format"], run["kind"], run["name"], run["finished"]) == (1, "study", "lasso", True)
    assert all((finished / path).is_file() for path in run["tables"].values())
    assert {"frontier", "rounds", "guarantees", "noise", "as_published"} <= set(run["tables"])
    rounds = read_rows(finished / "tables" / "rounds.csv")
    assert {row["method"] for row in rounds} == {"nonprivate", "zero", *CONTENDERS}
    last = {row["method"]: float(row["numbers_sent"]) for row in rounds[2:]}
    assert last["dp_gd"] == 0
    # 20 rounds, 6 of 60 users, 6 numbers there and 6 back
    assert last["federated_admm_local"] == 20 * 6 * 12


def test_proved_guarantees_are_never_below_the_exact_loss(finished: Path) -> None:
    rows = read_rows(finished / "tables" / "guarantees.csv")
    table = {(row["method"], row["accountant"], int(row["steps"])): float(row["epsilon"]) for row in rows}
    for method, claimed in (("dp_gd", "last_iterate"), ("private_admm", "last_iterate"), ("centralized_admm", "gdp")):
        for steps in TINY.steps:
            assert table[method, "exact", steps] <= table[method, claimed, steps] * (1 + 1e-9)
    assert all(table["centralized_admm", "published", s] < table["centralized_admm", "exact", s] for s in TINY.steps)


# --- the second study


def small_table(path: Path, rows: int = 400) -> tuple[Path, Path]:
    rng = np.random.default_rng(2)
    age, town = rng.uniform(20, 80, size=rows), rng.integers(2, size=rows)
    label = (age / 20 + town + rng.normal(size=rows)) > 3.2
    lines = [
        f"{a:.3f},{'north' if t else 'south'},{'yes' if b else 'no'}" for a, t, b in zip(age, town, label, strict=True)
    ]
    path.mkdir(exist_ok=True)
    data, schema = path / "people.csv", path / "people.toml"
    data.write_text("\n".join(["age,town,answer", *lines]) + "\n")
    schema.write_text(
        'target = "answer"\n[columns.age]\nkind = "number"\nlow = 18\nhigh = 90\n'
        '[columns.town]\nkind = "category"\nvalues = ["north", "south"]\n'
        '[columns.answer]\nkind = "category"\nvalues = ["no", "yes"]\n'
    )
    return data, schema


def test_logistic_study_on_a_table(tmp_path: Path) -> None:
    data, schema = small_table(tmp_path / "in")
    grid = tuple({"size": size, "clip": 1.0} for size in (1.0, 8.0))
    scale = logistic.Scale(epsilons=(20.0,), rounds=(3, 6), runs=2, grid=grid)
    out = tmp_path / "run"
    run = logistic.run_logistic(out, data, schema=schema, scale=scale, console=quiet())
    rows = read_rows(out / "tables" / "accuracy.csv")
    assert {row["method"] for row in rows} == {"nonprivate", "constant", *logistic.METHODS}
    for row in rows[2:]:
        assert row["adjacency"] == "zero-out"
        assert f"{100 * float(row['accuracy_mean']):.2f}" in " ".join(run["claims"])
    gd = [float(row["accuracy_mean"]) for row in rows if row["method"] == "dp_gd"]
    assert max(gd) > float(rows[1]["accuracy_mean"]) + 0.05  # it learns something
    # Another table at the same path: no cell may be reused.
    made = {json.loads(path.read_text())["settings"]["data"] for path in (out / "cells").iterdir()}
    assert made == {logistic._digest(data)}
    data.write_text(data.read_text().replace("yes", "no", 5))
    assert logistic._digest(data) not in made


def test_a_table_without_declared_ranges_is_refused(tmp_path: Path) -> None:
    data, _ = small_table(tmp_path / "in", rows=20)
    with pytest.raises(ValueError, match="--schema"):
        logistic.run_logistic(tmp_path / "run", data, console=quiet())


def test_the_command_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import typer

    def stopped(*args: object, **options: object) -> None:
        raise study.Interrupted("5 cells are finished and kept")

    monkeypatch.setattr(lasso, "run_lasso", stopped)
    with pytest.raises(typer.Exit) as left:
        commands.lasso(tmp_path)
    assert left.value.exit_code == 130


def test_the_demo_is_the_quick_study_and_says_what_is_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, object] = {}
    monkeypatch.setattr(lasso, "run_lasso", lambda out, **options: asked.update(out=out, **options))
    commands.demo(tmp_path / "demo", 5, 1)
    assert asked == {"out": tmp_path / "demo", "quick": True, "as_published": True, "seed": 5, "jobs": 1, "brief": True}
    told = capsys.readouterr().out
    assert str(tmp_path / "demo" / "report.html") in told
    for document in re.findall(r"docs/\S+\.md", told):
        assert (Path(__file__).parents[1] / document).is_file()


def test_the_same_reach_is_the_same_distance() -> None:
    # One full-batch gradient step and one prox step of the same length agree to first order: the shared grid is fair.
    sample = draw(SMALL, 0)
    problem = Problem(sample.rows, sample.targets, regularizer=L1(1e-4), row_norm=1.0, clip=0.15)
    step = methods.dp_sgd(problem, 1, 1e-3, noise_std=0.0).run(seed=0).model
    prox = methods.private_admm(problem, 1, 1e-3, noise_std=0.0).run(seed=0).model
    assert prox == pytest.approx(step, rel=1e-2, abs=1e-9)


def test_sizes_survive_the_way_to_a_worker() -> None:
    assert Size(**json.loads(json.dumps(asdict(SMALL)))) == SMALL
    budget = Budget(1.0, 1e-6, adjacency=contenders.ADJACENCY)
    assert contenders._walk_noise(60, 1, budget) > 0
