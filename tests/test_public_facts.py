"""What a plan tells that leaves the house: facts that were declared, and nothing that moves with one user."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import hushpoint as hp

BUDGET = hp.Budget(1.0, 1e-6)
METHODS = {
    "private_admm": lambda p, **noise: hp.methods.private_admm(p, 3, 2.0, **noise),
    "dp_sgd": lambda p, **noise: hp.methods.dp_sgd(p, 3, 0.2, **noise),
    "dp_cd": lambda p, **noise: hp.methods.dp_cd(p, 3, **noise),
    "dp_fedavg": lambda p, **noise: hp.methods.dp_fedavg(p, 3, 2, 0.1, 1.0, **noise),
    "centralized_admm": lambda p, **noise: hp.methods.centralized_admm(p, 3, 2.0, **noise),
    "federated_admm": lambda p, **noise: hp.methods.federated_admm(p, 3, 2.0, sample_size=4, **noise),
    "summed": lambda p, **noise: hp.methods.federated_admm(p, 3, 2.0, noise="sum", clip_residual=1.0, **noise),
    "anchored_admm": lambda p, **noise: hp.methods.anchored_admm(p, 3, 2.0, **noise),
    "decentralized_admm": lambda p, **noise: hp.methods.decentralized_admm(p, 9, 2.0, **noise),
    "stateless_walk": lambda p, **noise: hp.methods.stateless_walk(p, 9, 2.0, **noise),
}


def users(extra=0, **facts):
    """Ten users with one to four rows; the last one has some more."""
    groups = np.concatenate([np.repeat(np.arange(10), np.arange(10) % 4 + 1), np.full(extra, 9)])
    X = np.random.default_rng(0).normal(size=(len(groups), 2))
    return hp.Problem(X, X[:, 0], "huber", row_norm=1.0, groups=groups, **facts)


@pytest.mark.parametrize("method", METHODS)
def test_what_a_plan_says_does_not_move_with_the_rows_of_one_user(method):
    # rows_per_item stood in the JSON, and the most rows of a user in the default tolerance, so in the printed guarantee
    few, many = (METHODS[method](users(extra), budget=BUDGET) for extra in (0, 40))
    assert few.to_json() == many.to_json()
    assert str(few.guarantee(1e-6)) == str(many.guarantee(1e-6))
    assert repr(few.facts) == repr(many.facts)
    assert json.loads(few.to_json())["facts"]["rows_per_item"] == "private"
    assert "counts as public" not in str(few.guarantee(1e-6))
    spent = [str(plan.run(seed=0).guarantee) for plan in (few, many)]
    assert spent[0] == spent[1]


@pytest.mark.parametrize("method", METHODS)
def test_a_plan_without_the_rows_of_users_accounts_and_runs(method, tmp_path):
    # a plan that cannot be read again because a fact stayed at home
    plan = METHODS[method](users(), budget=BUDGET)
    again = hp.Plan.from_json(plan.to_json())
    assert json.loads(again.to_json()) == json.loads(plan.to_json())
    assert again.guarantee(1e-6) == plan.guarantee(1e-6)
    with pytest.raises(ValueError, match=r"number of rows of each user|not one record of it"):
        again.guarantee(1e-6, unit="record")
    bound = again.on(users())
    np.testing.assert_array_equal(bound.run(seed=5).model, plan.run(seed=5).model)
    state = replace(plan, steps=plan.steps).run(seed=5).state
    assert state.fingerprint == bound.fingerprint()
    assert bound.budget == plan.budget
    with pytest.raises(ValueError, match="other facts"):
        again.on(hp.Problem(np.eye(10), np.arange(10.0), "huber", row_norm=1.0))
    with pytest.raises(ValueError, match="other facts"):
        again.on(users(weights="rows"))


@pytest.mark.parametrize(
    ("facts", "unit", "said"), [({}, "record", True), ({"weights": "rows"}, "user", True), ({}, "user", False)]
)
def test_a_guarantee_that_counts_rows_says_that_they_are_public(facts, unit, said):
    # a bound divided by n_i, or weighted by it, whose reader does not learn that n_i must not be a secret
    budget = hp.Budget(1.0, 1e-6, unit=unit)
    plan = hp.methods.dp_sgd(users(**facts), 3, 0.2, budget=budget)
    assert ("the number of rows of each user counts as public" in str(plan.guarantee(1e-6))) is said
    assert isinstance(json.loads(plan.to_json())["facts"]["rows_per_item"], list) is said
    assert hp.Plan.from_json(plan.to_json()).guarantee(1e-6) == plan.guarantee(1e-6)


def test_declared_rows_stay_in_the_plan():
    plan = hp.methods.dp_sgd(
        hp.Problem.declared(3, 2, "huber", row_norm=1.0, rows_per_item=[4, 5, 6]), 3, 0.2, budget=BUDGET
    )
    assert json.loads(plan.to_json())["facts"]["rows_per_item"] == [4, 5, 6]
    with pytest.raises(ValueError, match="rows_per_item is 'some'"):
        replace(plan.facts, rows_per_item="some")


# Releases; clip and number of steps are functions of noisy moments (test_training.py: what was released decides them).
NOISY = ("coef_", "intercept_", "coef_std_", "intercept_std_", "_errors", "best_score_", "n_iter_")
FROM_MOMENTS = re.compile(r"gradients clipped at|\d+ noisy steps")


def told(fitted):
    """Everything that a fitted estimator holds, in words and numbers, but for its noisy releases."""
    known = {}
    for name, value in vars(fitted).items():
        if isinstance(value, hp.Guarantee):
            value = [
                ground for ground in value.grounds if not re.match(r"gradients clipped at|\d+ noisy steps", ground)
            ]
        if name == "n_passes_":  # but for the steps, declared facts decide
            value -= fitted.n_iter_
        if name == "best_estimator_":
            value = told(value)
        if name not in NOISY:
            known[name] = value.tolist() if isinstance(value, np.ndarray) else repr(value)
    return known


@pytest.mark.parametrize("select", [False, True])
@pytest.mark.parametrize("kind", ["LogisticRegression", "LinearSVC", "LinearRegression", "Lasso", "HuberRegressor"])
def test_a_fitted_estimator_holds_nothing_that_moves_with_one_user(kind, select):
    # an attribute with a row count, a class count, a mean or a length of the data: it would be in every pickle
    make = getattr(hp, f"Private{kind}")
    settings = {"classes": [0, 1, 2]} if "classes" in make().get_params() else {"target_range": (-1, 1)}
    model = make(delta=1e-6, row_norm=1.0, random_state=0, **settings)
    if select:
        model = hp.PrivateSelect(model, {"alpha": [0.1]}, epsilon=1.0, delta=1e-6, random_state=0)
    held = []
    for extra in (0, 40):
        rows = users(extra).rows
        groups = np.repeat(np.arange(10), rows.counts)
        y = np.where(rows.targets > 0, 1, 0) if "classes" in settings else rows.targets * (1 + extra)
        y[-1] = 2 if extra and "classes" in settings else y[-1]
        held.append(told(model.fit(rows.features * (1 + extra), y, groups=groups)))
    assert held[0] == held[1]
    assert ("best_estimator_" if select else "n_features_in_") in held[0]
