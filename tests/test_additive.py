"""Additive models: the basis, the encoder's bound, the estimators as scikit-learn sees them, what waves are worth."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import hushpoint as hp
from hushpoint.estimators.planner import plan_waves
from hushpoint.preprocessing import TableEncoder, shapes
from hushpoint.schema import Category, Number, Schema
from hushpoint.tables import fit_model, load_model

INF = math.inf


# The basis.


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.0, 5.0), (17.0, 90.0)])
def test_waves_are_cosines_of_the_place_in_the_range(low: float, high: float) -> None:
    """Catches a wrong frequency, sign or height."""
    values = np.linspace(low, high, 1001)
    u = (values - low) / (high - low)
    expected = [2 * u - 1] + [0.35 * (k / 2) ** -1.5 * np.cos(np.pi * k * u) for k in range(2, 9)]
    np.testing.assert_allclose(shapes.encoded(values, low, high, 7), np.column_stack(expected), atol=1e-13)


def test_an_entry_does_not_depend_on_where_it_stands() -> None:
    """Catches a transcendental function whose last bit differs between the lanes of a vector and the rest."""
    values = np.random.default_rng(0).uniform(-0.2, 1.2, 997)
    whole = shapes.encoded(values, 0.0, 1.0, 7)
    for start in range(1, 9):
        np.testing.assert_array_equal(shapes.encoded(values[start:], 0.0, 1.0, 7), whole[start:])
    for row in range(0, 997, 97):
        np.testing.assert_array_equal(shapes.encoded(values[[row]], 0.0, 1.0, 7)[0], whole[row])


@pytest.mark.parametrize("waves", range(8))
def test_no_number_is_longer_than_said(waves: int) -> None:
    for low, high in ((0.0, 1.0), (0.0, 1e6), (1e-3, 2.0)):
        encoded = shapes.encoded(np.linspace(low - 1, high * 1.1, 20_001), low, high, waves)
        assert np.square(encoded).sum(axis=1).max() <= shapes.squared_length(waves) * (1 + 1e-14)


@pytest.mark.parametrize(
    ("low", "high", "wide"),
    [(0, 99_999, True), (3, 35_682, True), (0, 120, False), (-5, 1e5, False), (500, 1e5, False)],
)
def test_wide_ranges_from_zero_are_bent(low: float, high: float, wide: bool) -> None:
    places = shapes.positions(np.linspace(low, high, 1001), low, high)
    assert shapes.is_wide(low, high) == wide
    assert places[0] == 0
    assert places[-1] == 1
    assert (np.diff(places) > 0).all()
    assert (places[500] > 0.9) == wide


# The encoder.

SCHEMA = Schema(
    {
        "age": Number(0, 100, missing="indicator"),
        "income": Number(0, 1e6),
        "town": Category(("here", "there"), missing="indicator"),
    }
)
CELLS = {
    "age": np.array([0.0, 50.0, np.nan, 100.0, 120.0]),
    "income": np.array([0.0, 1e3, 5e5, 1e6, -1.0]),
    "town": np.array(["here", "there", "", "here", "there"], dtype=object),
}


@pytest.mark.parametrize("waves", [0, 1, 3, 7])
@pytest.mark.parametrize("scale", ["columns", "unit"])
def test_encoded_rows_are_within_their_bound(waves: int, scale: Any) -> None:
    encoder = TableEncoder(SCHEMA, waves=waves, scale=scale).fit()
    rows = encoder.transform(CELLS)
    assert rows.shape == (5, len(encoder.get_feature_names_out()))
    assert np.linalg.norm(rows, axis=1).max() <= encoder.row_norm_ * (1 + 1e-14)
    assert encoder.typical_row_norm_ <= encoder.row_norm_
    sparse = TableEncoder(SCHEMA, waves=waves, scale=scale, sparse_output=True).fit().transform(CELLS)
    np.testing.assert_array_equal(sparse.toarray(), rows)


def test_a_missing_number_has_its_level_and_no_waves() -> None:
    encoder = TableEncoder(SCHEMA, waves=3).fit()
    names = encoder.get_feature_names_out().tolist()
    assert names[:5] == ["age", "age~2", "age~3", "age~4", "age (missing)"]
    row = dict(zip(names, encoder.transform(CELLS)[2], strict=True))
    assert row["age (missing)"] == 1
    assert not any(row[name] for name in names[:4])
    assert [list(place) for place in encoder.wave_places()] == [[1, 2, 3], [6, 7, 8]]
    assert encoder.effective_width_ == pytest.approx(2 * shapes.squared_length(3) + 1 + 3)


@pytest.mark.parametrize("waves", [-1, 8, 1.0, "many"])
def test_a_wrong_number_of_waves_is_refused(waves: Any) -> None:
    with pytest.raises(ValueError, match=r"waves is .* Pass a whole number from 0 to 7"):
        TableEncoder(SCHEMA, waves=waves).fit()


# How many waves: public facts alone.


def test_the_waves_follow_from_public_facts() -> None:
    budget = hp.Budget(1.0, 1e-6, adjacency="zero-out")
    counts = [plan_waves(n, 9, budget, two_class=True) for n in (100, 1000, 3000, 10_000)]
    assert counts == [0, 1, 3, 7]
    halved = hp.Budget(1.0, 1e-6, adjacency="replace-one")  # costs what half of the people would
    assert plan_waves(10_000, 9, halved, two_class=True) == plan_waves(5000, 9, budget, two_class=True)
    assert plan_waves(3000, 9, budget, two_class=False) <= plan_waves(3000, 9, budget, two_class=True)


# The estimators.


def every_estimator(epsilon: float) -> list[Any]:
    facts: dict[str, Any] = {"epsilon": epsilon, "delta": 1e-6, "ranges": (-10.0, 10.0), "random_state": 0}
    return [
        hp.PrivateAdditiveClassifier(**facts),
        hp.PrivateAdditiveRegressor(target_range=(-10.0, 10.0), **facts),
    ]


@parametrize_with_checks([*every_estimator(INF), *every_estimator(1e4)])
def test_the_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def waves(n: int, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Three numbers, of which one is noise, and a category: classes and targets that no line predicts."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"a": rng.uniform(0, 10, n), "b": rng.uniform(-1, 1, n), "c": rng.uniform(0, 1, n)})
    table["kind"] = rng.choice(["x", "y", "z"], n)
    score = 2 * np.cos(table["a"] * 0.6) + 3 * (table["b"] ** 2 - 0.33) + (table["kind"] == "z")
    labels = rng.random(n) < 1 / (1 + np.exp(-1.5 * score.to_numpy()))
    return table, np.where(labels, "yes", "no"), np.clip(score.to_numpy() + rng.normal(0, 0.5, n), -5, 5)


DECLARED: dict[str, Any] = {
    "ranges": {"a": (0, 10), "b": (-1, 1), "c": (0, 1)},
    "categories": {"kind": ["x", "y", "z"]},
    "delta": 1e-6,
}


def test_curves_are_learned_where_lines_learn_nothing() -> None:
    """Catches waves that do not reach the model, and a bent or shifted encoding at predict."""
    table, labels, targets = waves(12_000)
    train, test = slice(0, 9000), slice(9000, None)
    classifier = hp.PrivateAdditiveClassifier(epsilon=1.0, random_state=0, **DECLARED)
    assert classifier.fit(table[train], labels[train]).score(table[test], labels[test]) > 0.74
    regressor = hp.PrivateAdditiveRegressor(epsilon=1.0, target_range=(-5, 5), random_state=0, **DECLARED)
    assert regressor.fit(table[train], targets[train]).score(table[test], targets[test]) > 0.75
    exact = hp.PrivateAdditiveRegressor(epsilon=INF, **DECLARED).fit(table[train], targets[train])
    assert exact.score(table[test], targets[test]) > 0.85


def test_shapes_are_those_of_the_law_and_nothing_is_nothing() -> None:
    """The curve of a column correlates with its law; that of a column without influence is flat."""
    table, _, targets = waves(12_000)
    model = hp.PrivateAdditiveRegressor(epsilon=1.0, target_range=(-5, 5), random_state=1, **DECLARED).fit(
        table, targets
    )
    places, curve = model.shape("a")
    assert places[0] == 0
    assert places[-1] == 10
    assert abs(curve.mean()) < 1e-9
    assert np.corrcoef(curve, np.cos(places * 0.6))[0, 1] > 0.98
    assert np.ptp(model.shape(2)[1]) < 0.15 * np.ptp(curve)
    levels, steps = model.shape("kind")
    assert list(levels) == ["x", "y", "z"]
    assert steps[2] - max(steps[:2]) > 0.5
    np.testing.assert_allclose(model.shape("a", [0.0, 5.0])[1], curve[[0, 50]], atol=1e-12)


def test_contributions_add_up_to_the_score() -> None:
    table, labels, _ = waves(2000)
    model = hp.PrivateAdditiveClassifier(epsilon=1.0, random_state=0, **DECLARED).fit(table, labels)
    parts = sum(model.shape(name, table[name].to_numpy())[1] for name in table)
    np.testing.assert_allclose(np.diff(model.decision_function(table) - parts), 0, atol=1e-9)


def test_columns_by_name_and_by_place_are_the_same() -> None:
    table, labels, _ = waves(1500)
    by_name = hp.PrivateAdditiveClassifier(epsilon=1.0, random_state=0, **DECLARED).fit(table, labels)
    by_place = hp.PrivateAdditiveClassifier(
        epsilon=1.0,
        delta=1e-6,
        ranges=[(0, 10), (-1, 1), (0, 1), None],
        categories={3: ["x", "y", "z"]},
        random_state=0,
    ).fit(table.to_numpy(), labels)
    np.testing.assert_array_equal(by_name.coef_, by_place.coef_)
    assert list(by_place.predict(table.to_numpy())) == list(by_name.predict(table))


def test_users_are_protected_where_groups_are_given() -> None:
    table, labels, _ = waves(1500)
    users = np.repeat(np.arange(500), 3)
    model = hp.PrivateAdditiveClassifier(epsilon=1.0, random_state=0, **DECLARED).fit(table, labels, groups=users)
    assert model.guarantee_.unit == "user"
    assert model.parameters_ is not None
    assert model.parameters_.items == 500


def test_missing_numbers_are_a_level_of_their_own() -> None:
    table, _, targets = waves(6000)
    table.loc[::3, "c"] = np.nan
    targets[::3] += 2
    facts = {**DECLARED, "epsilon": 1.0, "target_range": (-5, 7), "random_state": 0}
    with pytest.raises(ValueError, match="column 'c' has missing cells"):
        hp.PrivateAdditiveRegressor(**facts).fit(table, targets)
    model = hp.PrivateAdditiveRegressor(missing=["c"], **facts).fit(table, targets)
    missing = model.shape("c", [np.nan])[1][0]
    assert missing - model.shape("c")[1].max() > 1.0


def test_waves_and_plan_are_the_same_for_all_tables_of_one_shape() -> None:
    """Catches anything of the encoding that is read off the data."""
    table, labels, _ = waves(1500)
    other = pd.DataFrame({name: column.to_numpy()[::-1] for name, column in table.items()})
    other["a"] = 0.0
    fits = [hp.PrivateAdditiveClassifier(epsilon=1.0, random_state=0, **DECLARED) for _ in range(2)]
    one, two = fits[0].fit(table, labels), fits[1].fit(other, labels)
    assert one.encoder_.waves == two.encoder_.waves
    assert str(one.parameters_) == str(two.parameters_)
    assert one.guarantee_.mu == two.guarantee_.mu


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ranges": None}, "ranges is not declared"),
        ({"ranges": {"a": (0, 10), "b": (-1, 1)}}, "declare nothing of 'c'"),
        ({"ranges": {"a": (0, 10), "b": (-1, 1), "c": (0, 1), "d": (0, 1)}}, "ranges names 'd'"),
        ({"ranges": [(0, 1)]}, "X has 4 columns"),
        ({"ranges": {"a": (10, 0), "b": (-1, 1), "c": (0, 1)}}, "low below high"),
        ({"categories": {"kind": ["x", "y"]}}, "categories that are not declared"),
        ({"missing": ["nobody"]}, "missing names 'nobody'"),
        ({"delta": None}, "delta is not declared"),
        ({"epsilon": -1.0}, "epsilon is -1"),
        ({"adjacency": "add-remove"}, "adjacency is 'add-remove'"),
    ],
)
def test_what_is_not_declared_is_asked_for(changed: dict[str, Any], message: str) -> None:
    table, labels, _ = waves(300)
    with pytest.raises(ValueError, match=message):
        hp.PrivateAdditiveClassifier(**{**DECLARED, "epsilon": 1.0, **changed}).fit(table, labels)


# Tables.


def test_a_table_model_is_the_estimator() -> None:
    table, labels, _ = waves(3000)
    schema = Schema(
        {
            "a": Number(0, 10),
            "b": Number(-1, 1),
            "c": Number(0, 1),
            "kind": Category(("x", "y", "z")),
            "answer": Category(("no", "yes")),
        },
        target="answer",
    )
    model = fit_model(table.assign(answer=labels), schema, epsilon=1.0, delta=1e-6, model="additive", seed=3)
    same = hp.PrivateAdditiveClassifier(epsilon=1.0, classes=["no", "yes"], random_state=3, **DECLARED).fit(
        table, labels
    )
    np.testing.assert_array_equal(model.coefficients, same.coef_)
    assert model.guarantee == same.guarantee_
    assert model.has_probabilities
    np.testing.assert_allclose(model.predict_proba(table), same.predict_proba(table), atol=1e-12)
    np.testing.assert_allclose(model.shape("a")[1], same.shape("a")[1], atol=1e-12)


def test_an_additive_model_is_read_back(tmp_path: Any) -> None:
    table, _, targets = waves(2000)
    schema = Schema(
        {
            "a": Number(0, 10),
            "b": Number(-1, 1),
            "y": Number(-5, 5),
            "c": Number(0, 1),
            "kind": Category(("x", "y", "z")),
        },
        target="y",
    )
    model = fit_model(table.assign(y=targets), schema, epsilon=2.0, model="additive", seed=3)
    model.save(tmp_path / "model.json")
    again = load_model(tmp_path / "model.json")
    assert again.encoding["waves"] == model.encoding["waves"] > 0
    assert not again.has_probabilities
    np.testing.assert_array_equal(again.predict(table), model.predict(table))


def test_clones_and_parameters() -> None:
    model = hp.PrivateAdditiveRegressor(ranges={"a": (0, 1)}, target_range=(0, 1))
    assert clone(model).get_params() == model.get_params()


# As one of several candidates, in wide tables, with names that meet.


@pytest.mark.filterwarnings("always:delta is")
def test_a_selection_tells_of_itself_only(recwarn: pytest.WarningsRecorder) -> None:
    """Catches one warning a run, which counts the secret runs, and a linear model inside that tells one run's cost."""
    X = np.random.default_rng(0).uniform(size=(40, 2))
    model = hp.PrivateAdditiveClassifier(ranges=(0, 1))
    search = hp.PrivateSelect(model, {"missing": [()]}, epsilon=3.0, delta=0.2, mean_candidates=6, random_state=0)
    best = search.fit(X, X[:, 0] > 0.5).best_estimator_
    assert len(recwarn) == 1
    for told in (best, best.linear_):
        assert told.guarantee_ == search.guarantee_
        assert (told.epsilon, told.delta) == (3.0, 0.2)
        assert told.parameters_.share_of == hp.Budget(3.0, 0.2)


@pytest.mark.parametrize(
    ("wrong", "told"), [({"missing": [(), (9,)]}, "missing names 9"), ({"ranges": [(0, 1), None]}, "ranges")]
)
def test_a_wrong_candidate_is_refused_whether_it_is_drawn_or_not(wrong: dict[str, Any], told: str) -> None:
    X = np.random.default_rng(0).uniform(size=(40, 2))
    model = hp.PrivateAdditiveClassifier(ranges=(0, 1))
    for seed in range(8):
        search = hp.PrivateSelect(model, wrong, epsilon=3.0, delta=0.01, mean_candidates=1, random_state=seed)
        with pytest.raises(ValueError, match=told):
            search.fit(X, X[:, 0] > 0.5)


def test_a_long_row_has_the_same_bits_alone() -> None:
    """Catches a library's sum of more than 8192 squares, which goes in another order where there is one row only."""
    schema = Schema({f"x{k}": Number(0.0, 1.0) for k in range(8200)})
    encoder = TableEncoder(schema, row_norm=20.0, waves=0).fit()
    rows = np.random.default_rng(0).uniform(size=(3, 8200))
    together = encoder.transform({name: rows[:, k] for k, name in enumerate(schema.features)})
    for one in range(3):
        alone = encoder.transform({name: rows[one : one + 1, k] for k, name in enumerate(schema.features)})
        np.testing.assert_array_equal(alone[0], together[one])


def test_features_of_one_name_are_refused() -> None:
    schema = Schema({"a": Number(0.0, 1.0), "a~3": Number(0.0, 1.0)})
    TableEncoder(schema, waves=1).fit()
    with pytest.raises(ValueError, match="two features are called 'a~3'"):
        TableEncoder(schema, waves=2).fit()


def test_a_declared_row_norm_scales_rows_alike_when_trained_and_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches rows that are scaled with waves that they lose afterwards."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.uniform(size=200), "b": rng.uniform(size=200)})
    table["y"] = np.where(table["a"] > 0.5, "yes", "no")
    schema = Schema({"a": Number(0.0, 1.0), "b": Number(0.0, 1.0), "y": Category(("no", "yes"))}, target="y")
    trained: list[Any] = []
    fit = hp.PrivateLogisticRegression.fit

    def watched(self: Any, X: Any, y: Any, groups: Any = None) -> Any:
        trained.append(X)
        return fit(self, X, y, groups)

    monkeypatch.setattr(hp.PrivateLogisticRegression, "fit", watched)
    model = fit_model(table, schema, epsilon=0.3, delta=1e-3, model="additive", row_norm=0.8, seed=0)
    assert model.encoding["waves"] < 7
    known = Schema({name: schema.columns[name] for name in ("a", "b")})
    predicted = TableEncoder(known, row_norm=0.8, waves=model.encoding["waves"]).fit().transform(table)
    scaled = trained[0] * np.minimum(1.0, 0.8 / np.linalg.norm(trained[0], axis=1))[:, None]
    np.testing.assert_allclose(predicted, scaled, rtol=1e-12)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"missing": "a"}, "missing is 'a'. Pass a list"),
        ({"missing": None}, "missing is None. Pass a list"),
        ({"monotone": [1, 0, 0]}, "monotone is a list"),
        ({"steps": 5}, "steps is 5. Pass a dictionary"),
        ({"categories": {"kind": "xyz"}}, "categories of column 'kind' is 'xyz'"),
        ({"categories": None}, "declare nothing of 'kind'"),
        ({"categories": {"kind": ["x"], "a": ["1"]}}, "both name 'a'"),
    ],
)
def test_mistakes_in_what_is_declared_are_named(changed: dict[str, Any], told: str) -> None:
    """Before a cell is looked at: an error of a library would say neither which argument it is nor what to do."""
    table, labels, _ = waves(300)
    ranges = {"a": (0, 10), "b": (-1, 1), "c": (0, 1)}
    with pytest.raises(ValueError, match=re.escape(told)):
        hp.PrivateAdditiveClassifier(**{**DECLARED, "epsilon": 1.0, "ranges": ranges, **changed}).fit(table, labels)
    with pytest.raises(ValueError, match="two columns called 'a'"):
        hp.PrivateAdditiveClassifier(**DECLARED).fit(pd.concat([table, table[["a"]]], axis=1), labels)


def test_a_bent_range_is_looked_at_where_its_axis_has_places() -> None:
    places = shapes.places(0.0, 1e6, 101)
    np.testing.assert_allclose(shapes.positions(places, 0.0, 1e6), np.linspace(0, 1, 101), atol=1e-12)
    np.testing.assert_allclose(shapes.places(-1.0, 3.0, 5), [-1, 0, 1, 2, 3])
