"""Monotone columns and steps of additive models: shapes, budgets, and what a neighbour can see."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import LinearConstraint, minimize

import hushpoint as hp
from hushpoint.estimators import training
from hushpoint.estimators.constraints import WAYS, Cone, MappedCone, cone_of
from hushpoint.preprocessing import TableEncoder, shapes
from hushpoint.problem import Problem
from hushpoint.schema import Boolean, Category, Number, Schema, load_schema
from hushpoint.tables import fit_model, load_model

INF = math.inf
DECLARED: dict[str, Any] = {
    "ranges": {"age": (0, 100), "income": (0, 1e6), "bmi": (10, 50)},
    "categories": {"stage": ["I", "II", "III", "IV"]},
    "missing": ["age", "stage"],
    "delta": 1e-6,
}
DIRECTIONS = {"age": +1, "income": -1, "stage": +1}


def people(n: int, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """A table whose shapes turn back where the constraints forbid it, so that every constraint is felt."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {"age": rng.uniform(0, 100, n), "income": 30_000 * rng.lognormal(0, 1, n), "bmi": rng.uniform(10, 50, n)}
    )
    table["stage"] = rng.choice(["I", "II", "III", "IV"], n)
    score = np.sin(table["age"] / 12) + table["age"] / 50 + 0.3 * np.log(table["income"]) * (table["income"] > 3e4)
    score = score + 0.05 * (table["bmi"] - 30) + table["stage"].map({"I": 0, "II": 1, "III": 0.2, "IV": 1.5})
    table.loc[::7, "age"] = np.nan
    score = np.where(table["age"].isna(), -2.0, score) - 2.0
    labels = rng.random(n) < 1 / (1 + np.exp(-score))
    return table, np.where(labels, "yes", "no"), np.clip(score + rng.normal(0, 0.5, n), -6, 6)


def falls(model: Any, name: str, direction: int, values: Any = None) -> float:
    """The largest fall of a shape against its direction."""
    return float(-np.diff(direction * model.shape(name, values)[1]).min())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("epsilon", [0.1, 3.0])
def test_shapes_are_monotone_everywhere(way: Any, epsilon: float) -> None:
    """At 10,001 places of the range: catches conditions at some places only, and a calibration that turns the sign."""
    table, labels, _ = people(1500)
    model = hp.PrivateAdditiveClassifier(
        epsilon=epsilon, monotone=DIRECTIONS, constrained_by=way, random_state=0, **DECLARED
    ).fit(table, labels)
    assert falls(model, "age", +1, np.linspace(-5, 110, 10_001)) <= 1e-12
    assert falls(model, "income", -1, np.linspace(0, 2e6, 10_001)) <= 1e-12
    assert falls(model, "stage", +1) <= 1e-12
    many = table.head(1).loc[np.zeros(2001, dtype=int)].assign(age=np.linspace(0, 100, 2001))
    assert np.diff(model.decision_function(many)).min() >= -1e-12
    assert model.guarantee_.epsilon == pytest.approx(epsilon, rel=1e-6)
    assert model.guarantee_.epsilon <= epsilon


def test_without_a_constraint_the_shapes_of_this_table_turn_back() -> None:
    """The test above would see a constraint that is lost."""
    table, _, targets = people(2500)
    free = hp.PrivateAdditiveRegressor(epsilon=3.0, target_range=(-6, 6), random_state=0, **DECLARED)
    free.fit(table, targets)
    assert falls(free, "age", +1) > 0.001
    assert falls(free, "income", -1) > 0.001
    assert falls(free, "stage", +1) > 0.1
    for way in WAYS:
        bound = hp.PrivateAdditiveRegressor(
            epsilon=3.0, target_range=(-6, 6), monotone=DIRECTIONS, constrained_by=way, random_state=0, **DECLARED
        ).fit(table, targets)
        assert bound.shape("bmi")[1][-1] > 0.2  # what is free is learned as before
        assert bound.score(table, targets) > 0.4 * free.score(table, targets)  # of a law against it
        assert bound.shape("age", [np.nan])[1][0] < bound.shape("age")[1].min()  # missing values are free


def test_the_fit_without_noise_is_the_best_within_the_constraints() -> None:
    """Against a solver of quadratic programs; catches a projection in place of a constrained fit."""
    table, labels, targets = people(400)
    model = hp.PrivateAdditiveRegressor(epsilon=INF, monotone=DIRECTIONS, **DECLARED).fit(table, targets)
    columns = {name: table[name].to_numpy() for name in table}
    rows = np.column_stack([model.encoder_.transform(columns), np.ones(len(table))])
    cone = cone_of(model.encoder_)
    assert cone is not None
    conditions = cone.conditions(rows.shape[1])

    def loss(model: np.ndarray) -> float:
        return float(np.square(rows @ model - targets).mean() / 2)

    ours = np.append(model.coef_, model.intercept_)
    best = minimize(
        loss,
        np.zeros(rows.shape[1]),
        jac=lambda w: rows.T @ (rows @ w - targets) / len(rows),
        constraints=LinearConstraint(conditions, 0, INF),
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-14},
    )
    assert loss(ours) <= best.fun + 1e-7
    assert (conditions @ ours).min() >= -1e-12
    classes = hp.PrivateAdditiveClassifier(epsilon=INF, monotone=DIRECTIONS, **DECLARED).fit(table, labels)
    assert falls(classes, "age", +1) <= 1e-12


def test_the_nearest_model_meets_the_conditions_of_optimality() -> None:
    """The step is a combination of conditions that hold with equality, with weights that are not negative."""
    rng = np.random.default_rng(0)
    encoder = TableEncoder(Schema({"a": Number(0, 1, monotone="increasing"), "b": Number(0, 1)}), waves=7).fit()
    cone = cone_of(encoder)
    assert cone is not None
    width = len(encoder.get_feature_names_out()) + 1
    conditions = cone.conditions(width)
    for _ in range(20):
        root, model = rng.normal(size=(width, width)), rng.normal(size=width)
        found = cone.nearest(model, root)
        assert (conditions @ found).min() >= -1e-12
        step = np.linalg.solve(root, found - model)
        tight = np.abs(conditions @ found) < 1e-7 * np.abs(found).max()
        weights = np.linalg.lstsq((conditions[tight] @ root).T, step, rcond=None)[0]
        np.testing.assert_allclose(weights @ (conditions[tight] @ root), step, atol=1e-6 * np.abs(step).max())
        assert weights.min(initial=0.0) >= -1e-6 * np.abs(weights).max(initial=0.0)
        mapped = MappedCone(cone, root)
        np.testing.assert_allclose(root @ mapped.prox(np.linalg.solve(root, model), 1.0), found, atol=1e-6)
    inside = cone.nearest(np.append(np.eye(width - 1)[0], 0.0), np.ones(width))
    np.testing.assert_array_equal(inside, np.append(np.eye(width - 1)[0], 0.0))


# What a neighbour can see.


@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
def test_admm_steps_move_by_no_more_than_their_certificate(adjacency: Any) -> None:
    """Two tables that differ in one row, the same point: A x differs by less than the noise was made for."""
    worlds, plan, look, mu = descent_link("admm", adjacency)
    operator, sizes = plan.operator, []
    bound = operator.certificate(plan.relaxation).shift("record", adjacency)
    assert plan.guarantee(1e-6, view="iterates", adjacency=adjacency).mu <= mu
    assert plan.guarantee(1e-6, view="iterates", adjacency=adjacency).mu == pytest.approx(mu, rel=1e-9)
    rng = np.random.default_rng(1)
    for scale in (0.0, 0.1, 1.0, 10.0):
        u = scale * rng.normal(size=operator.block_size)
        released = operator.release(u)
        messages = []
        for world, rows in enumerate(worlds):
            mapped = look(rows)
            if adjacency == "zero-out" and world:  # the first row's loss is cut to nothing
                limits = mapped.limits.copy()
                limits[0] = 1e-12
                mapped = replace(mapped, limits=limits)
            data = operator.prepare(mapped)
            message = operator.local(data, slice(None), u, released, 1.0, None)[1]
            messages.append(message)
        sizes.append(np.linalg.norm(messages[0] - messages[1]))
    assert max(sizes) <= bound
    assert max(sizes) > 0.4 * bound  # noise of a third would be seen


def descent_link(way: Any, adjacency: Any) -> Any:
    """The descent of a small training, and rows of two tables that differ in their first row."""
    rng = np.random.default_rng(0)
    encoder = TableEncoder(Schema({"a": Number(0, 1, monotone="increasing")}), waves=3).fit()
    X = encoder.transform({"a": rng.random(60)})
    X[0] = encoder.transform({"a": np.array([1.0])})
    y = np.where(rng.random(60) < 0.5, 1.0, -1.0)
    y[0] = 1.0
    other = y.copy()
    other[0] = -1.0
    norm = encoder.row_norm_
    one, two = (Problem(X, targets, "logistic", row_norm=norm, classes=(-1.0, 1.0)) for targets in (y, other))
    budget = hp.Budget(1.0, 1e-6, adjacency=adjacency)
    plan = hp.utility.plan_parameters(60, X.shape[1], budget, fit_intercept=True)
    links = training.chain(one.facts, plan, fit_intercept=True, cone=cone_of(encoder, way))
    link = next(links)
    while link.part != "descent":
        facts = link.plan.facts
        assert facts is not None
        result = link.plan.on(Problem.from_facts(facts).with_rows(link.look(one.rows))).run(seed=1)
        link = links.send(training.Answer(result.model, link.plan.operator.release(result.state.public)))
    return (one.rows, two.rows), link.plan, link.look, link.mu


def test_a_descent_within_constraints_costs_what_one_without_costs() -> None:
    """Its prox reads no row: certificate, noise and lattice are those of the free descent."""
    free, bound = (descent_link(way, "replace-one")[1] for way in ("projection", "descent"))
    assert bound.noise == free.noise
    assert bound.steps == free.steps
    assert isinstance(bound.operator.facts.regularizer, MappedCone)
    table, labels, _ = people(300)
    stated = [
        str(hp.PrivateAdditiveClassifier(monotone=m, random_state=0, **DECLARED).fit(table, labels).guarantee_)
        for m in (None, DIRECTIONS)
    ]
    assert all("Holds for the program to the last bit" in text for text in stated)


def test_admm_says_that_its_guarantee_is_in_floating_point() -> None:
    table, labels, _ = people(300)
    model = hp.PrivateAdditiveClassifier(monotone=DIRECTIONS, constrained_by="admm", random_state=0, **DECLARED)
    told = str(model.fit(table, labels).guarantee_)
    assert "Holds for the program to the last bit" not in told
    assert "proxes are solved to" in told
    assert "no prox fails, which very long rows could make it do" in told
    assert "row_norm" not in told  # which is declared


# Steps.


@pytest.mark.parametrize("steps", [2, 5, (25.0, 40.0, 65.0)])
@pytest.mark.parametrize("waves", [0, 1, 7])
def test_steps_are_constant_between_cuts(steps: Any, waves: int) -> None:
    encoder = TableEncoder(Schema({"age": Number(0, 100, steps=steps)}), waves=waves).fit()
    ages = np.linspace(-3, 105, 5001)
    rows = encoder.transform({"age": ages})
    cuts = np.linspace(0, 100, steps + 1)[1:-1] if isinstance(steps, int) else np.array(steps)
    piece = np.searchsorted(cuts, ages, side="right")
    assert len(np.unique(rows, axis=0)) == len(cuts) + 1
    for at in range(len(cuts) + 1):
        assert np.ptp(rows[piece == at], axis=0).max() == 0
    assert np.linalg.norm(rows, axis=1).max() <= encoder.row_norm_ * (1 + 1e-14)
    assert rows.shape[1] == 1 + min(waves, len(cuts) - 1)
    assert np.linalg.matrix_rank(np.column_stack([rows, np.ones(len(rows))])) == rows.shape[1] + 1


def test_a_model_with_steps_jumps_where_it_may() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 100, (6000, 2))
    y = np.clip(1.0 * (X[:, 0] > 40) + 0.01 * X[:, 1] + 0.3 * rng.normal(size=6000), -2, 4)
    model = hp.PrivateAdditiveRegressor(
        epsilon=1.0, delta=1e-6, ranges=(0, 100), target_range=(-2, 4), steps={0: [25, 40, 65]}, random_state=0,
        monotone={0: +1},
    ).fit(X, y)  # fmt: skip
    shape = model.shape(0, [10, 24, 25, 39.9, 40, 64, 65, 100])[1]
    assert np.diff(shape)[[0, 2, 4, 6]].tolist() == [0, 0, 0, 0]
    assert shape[4] - shape[3] > 0.6
    assert np.diff(shape).min() >= 0


def test_an_entry_of_a_straight_piece_does_not_depend_on_where_it_stands() -> None:
    """As of waves: the last bit of an entry is a function of the cell."""
    values = np.random.default_rng(0).uniform(-0.2, 1.2, 997)
    for options in ({"straight": True}, {"steps": 7}):
        whole = shapes.encoded(values, 0.0, 1.0, 7, **options)
        for start in range(1, 9):
            np.testing.assert_array_equal(shapes.encoded(values[start:], 0.0, 1.0, 7, **options), whole[start:])
        for part in (values > 0.3, values < 0.6):  # nor on what other values there are
            np.testing.assert_array_equal(shapes.encoded(values[part], 0.0, 1.0, 7, **options), whole[part])
        assert np.square(whole).sum(axis=1).max() <= shapes.squared_length(7) * (1 + 1e-14)


# What is asked of whoever declares.


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"monotone": {"weight": 1}}, "monotone names 'weight'"),
        ({"monotone": {"age": "up"}}, "monotone of column 'age' is 'up'"),
        ({"monotone": {"age": True}}, "monotone of column 'age'"),
        ({"steps": {"stage": 3}}, "steps names 'stage', which is a category"),
        ({"steps": {"age": 1}}, "column 'age' has steps = 1"),
        ({"steps": {"age": [40, 25]}}, "ascending order"),
        ({"steps": {"age": [40, 200]}}, "between low and high"),
        ({"steps": {"age": "many"}}, "steps of column 'age'"),
        ({"constrained_by": "wish"}, "constrained_by is 'wish'"),
    ],
)
def test_wrong_declarations_are_refused(changed: dict[str, Any], message: str) -> None:
    table, labels, _ = people(60)
    with pytest.raises(ValueError, match=message):
        hp.PrivateAdditiveClassifier(**{**DECLARED, **changed}).fit(table, labels)


def test_more_than_two_classes_are_refused() -> None:
    table, _, targets = people(90)
    classes = np.digitize(targets, [-1, 1])
    with pytest.raises(ValueError, match=r"constraints, and 3 classes"):
        hp.PrivateAdditiveClassifier(monotone=DIRECTIONS, **DECLARED).fit(table, classes)


SCHEMA = """
target = "ill"
[columns.age]
kind = "number"
low = 0
high = 100
monotone = "increasing"
steps = [25, 40, 65]
[columns.smokes]
kind = "boolean"
monotone = "increasing"
[columns.stage]
kind = "category"
values = ["I", "II", "III"]
monotone = "decreasing"
[columns.ill]
kind = "boolean"
"""


def test_a_schema_declares_shapes(tmp_path: Any) -> None:
    """From TOML to a saved model and back; a boolean's direction is the sign of its coefficient."""
    path = tmp_path / "ill.schema.toml"
    path.write_text(SCHEMA, encoding="utf-8")
    schema = load_schema(path)
    assert Schema.from_dict(schema.to_dict()) == schema
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.uniform(0, 100, 900), "smokes": rng.random(900) < 0.5})
    table["stage"] = rng.choice(["I", "II", "III"], 900)
    table["ill"] = rng.random(900) < 0.3 + 0.4 * ~table["smokes"]  # against the declaration
    model = fit_model(table, schema, epsilon=1.0, delta=1e-6, model="additive", seed=0)
    model.save(tmp_path / "model.json")
    again = load_model(tmp_path / "model.json")
    np.testing.assert_array_equal(again.decision_function(table), model.decision_function(table))
    assert 0 <= np.diff(again.shape("smokes")[1])[0] < 0.1  # of steps within the cone: about 0, never below
    assert np.diff(again.shape("stage")[1]).max() <= 1e-12
    assert np.diff(again.shape("age")[1]).min() >= -1e-12
    with pytest.raises(ValueError, match="column 'age' declares monotone, which a logistic model does not keep"):
        fit_model(table, schema, epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"kind": "boolean", "monotone": "up"}, "column 'x' has monotone = 'up'"),
        ({"kind": "number", "low": 0, "high": 1, "steps": 0}, "column 'x' has steps = 0"),
        ({"kind": "number", "low": 0, "high": 1, "steps": 4, "learn": True}, "steps and learn"),
    ],
)
def test_faults_of_a_schema_name_the_column(column: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Schema.from_dict({"columns": {"x": column}})


def test_a_cone_is_what_the_schema_says() -> None:
    schema = Schema(
        {
            "one": Category(("a",), monotone="increasing"),
            "yes": Boolean(monotone="decreasing", missing="indicator"),
            "free": Number(0, 1),
        }
    )
    cone = cone_of(TableEncoder(schema, waves=3).fit())
    assert isinstance(cone, Cone)
    assert [(block.places.tolist(), block.rows.tolist()) for block in cone.blocks] == [([1], [[-1.0]])]
    assert cone_of(TableEncoder(Schema({"free": Number(0, 1)}), waves=3).fit()) is None


@pytest.mark.parametrize(("epsilon", "waves"), [(0.3, 1), (1.0, 3)])
def test_a_table_is_trained_on_the_features_that_it_predicts_with(epsilon: float, waves: int) -> None:
    """Catches steps and monotone curves cut out of those of more waves, which are others."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({name: rng.uniform(size=1500) for name in "abc"})
    answers = np.where(table["a"] + np.sin(6 * table["b"]) + 0.3 * rng.normal(size=1500) > 0.8, "yes", "no")
    columns = {"a": Number(0.0, 1.0, steps=10), "b": Number(0.0, 1.0), "c": Number(0.0, 1.0, monotone="increasing")}
    schema = Schema({**columns, "y": Category(("no", "yes"))}, target="y")
    model = fit_model(table.assign(y=answers), schema, epsilon=epsilon, delta=1e-4, model="additive", seed=3)
    same = hp.PrivateAdditiveClassifier(
        epsilon, 1e-4, ranges=(0, 1), steps={"a": 10}, monotone={"c": 1}, classes=["no", "yes"], random_state=3
    ).fit(table, answers)
    assert model.encoding["waves"] == waves
    np.testing.assert_array_equal(model.coefficients, same.coef_)
