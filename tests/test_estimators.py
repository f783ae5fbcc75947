"""Private estimators: what they claim, what they read, how good they are with defaults, and what they refuse."""

import inspect
import math
import re
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn import linear_model
from sklearn.metrics import roc_auc_score

import hushpoint as hp
from hushpoint.privacy import gdp_mu
from hushpoint.utility import plan_parameters

INF, NAN = math.inf, math.nan
Logistic, SVC = hp.PrivateLogisticRegression, hp.PrivateLinearSVC
Linear, Lasso, Huber = hp.PrivateLinearRegression, hp.PrivateLasso, hp.PrivateHuberRegressor
EVERY = pytest.mark.parametrize("kind", [Logistic, SVC, Linear, Lasso, Huber])
ROWS, FEATURES = 400, 5


def generated(seed=0, rows=ROWS, features=FEATURES, bias=0.0):
    """Features of unit variance, and the scores of a model of length 2."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, features))
    signal = rng.normal(size=features)
    return X, X @ (2 * signal / np.linalg.norm(signal)) + bias, rng


def labelled(seed=0, **shape):
    X, scores, rng = generated(seed, **shape)
    return X, (scores + rng.logistic(size=len(X)) > 0).astype(int)


def measured(seed=0, **shape):
    X, scores, rng = generated(seed, **shape)
    return X, scores + 0.5 * rng.normal(size=len(X))


def three_classes(seed=0, rows=ROWS):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 2))
    return X, np.argmax(X @ np.array([[3, -3, 0], [0, 1, -3]]) + rng.gumbel(size=(rows, 3)), axis=1)


def made(kind, epsilon=1.0, **extra):
    facts = {"delta": 1e-5, "row_norm": 5.0, "random_state": 0}
    if issubclass(kind, (Linear, Lasso, Huber)):
        facts["target_range"] = (-8.0, 8.0)
    return kind(epsilon, **{**facts, **extra})


def data_for(kind, seed=0, **shape):
    return labelled(seed, **shape) if kind in (Logistic, SVC) else measured(seed, **shape)


# What is claimed.


@EVERY
@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_the_budget_is_spent_and_not_exceeded(kind, adjacency, epsilon):
    model = made(kind, epsilon, adjacency=adjacency).fit(*data_for(kind))
    claimed = model.guarantee_
    assert 0.999 * epsilon <= claimed.epsilon <= epsilon
    assert claimed.mu <= gdp_mu(epsilon, 1e-5)
    assert (claimed.delta, claimed.adjacency, claimed.unit) == (1e-5, adjacency, "record")
    assert (claimed.view, claimed.basis) == ("iterates", "proved")


@pytest.mark.filterwarnings("ignore:Newton's method did not converge")  # without noise the best intercept is infinite
@pytest.mark.parametrize("kind", [Logistic, SVC])
@pytest.mark.parametrize("epsilon", [1.0, INF])
@pytest.mark.parametrize("classes", [(0, 1), (1, 0, 7), np.array([0, 1, 2, 3]), pd.Series([3, 1, 0])])
def test_a_declared_class_needs_no_member(kind, epsilon, classes):
    # the classes were those that happened to occur, and an absent one was an error: both tell about single people
    X, y = labelled()
    model = made(kind, epsilon, classes=classes).fit(X, np.zeros_like(y))
    assert model.classes_.tolist() == sorted(classes)
    assert model.coef_.shape == (1 if len(classes) == 2 else len(classes), FEATURES)
    assert np.isfinite(model.coef_).all()
    assert (model.predict(X) == 0).mean() > 0.9
    if kind is Logistic:
        np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)


@pytest.mark.parametrize("classes", [["no", "yes"], ["yes", "no", "maybe"]])
def test_a_label_outside_the_declared_classes_is_refused_without_quoting_it(classes):
    X, y = labelled()
    words = np.where(y == 1, "yes", "no").astype(object)
    assert made(Logistic, classes=classes).fit(X, words).classes_.tolist() == sorted(classes)
    words[3] = "canary"
    with pytest.raises(ValueError, match="labels that classes does not declare") as caught:
        made(Logistic, classes=classes).fit(X, words)
    assert "canary" not in str(caught.value)


def test_the_guarantee_says_that_classes_were_read_from_the_labels():
    X, y = labelled()
    told = "the set of classes was read from y and counts as public"
    assert told in str(made(Logistic).fit(X, y).guarantee_)
    assert told not in str(made(Logistic, classes=[0, 1]).fit(X, y).guarantee_)
    assert told not in str(made(Linear).fit(*measured()).guarantee_)


def test_several_classes_share_one_budget():
    X, y = three_classes()
    model = made(Logistic, 1.0).fit(X, y)
    assert model.coef_.shape == (3, 2)
    assert 0.999 <= model.guarantee_.epsilon <= 1.0
    assert "3 models" in str(model.guarantee_)
    # each descent spends 1/3 of what is left of mu^2: K full descents would be sqrt(3) of it
    plan = model.parameters_
    each = plan.descent_mu / math.sqrt(3), plan.calibration_mu / math.sqrt(3)
    spent = plan.moment_mu**2 + plan.length_mu**2 + 3 * (each[0] ** 2 + each[1] ** 2)
    assert model.guarantee_.mu == pytest.approx(math.sqrt(spent), rel=1e-9)
    assert model.n_iter_ >= 3 * plan.steps
    assert model.n_iter_ % 3 == 0


def test_the_plans_that_ran_cost_what_is_claimed(monkeypatch):
    # A guarantee computed beside the run could forget a model, or the noise could be that of a single one.
    seen, run = [], hp.Plan.run

    def recorded(plan, *arguments, **options):
        seen.append(plan)
        return run(plan, *arguments, **options)

    monkeypatch.setattr(hp.Plan, "run", recorded)
    model = made(Logistic, 1.0, lattice=False).fit(*three_classes())
    (moments, length), descents = seen[:2], seen[2:]  # noise is on sums; the last three are calibrations
    norm, constant = moments.facts.row_norm, moments.facts.row_norm / 4
    cost = sum(plan.steps * (2 * plan.facts.clip / plan.noise.std) ** 2 for plan in descents)
    cost += 2 * ((norm**2 + constant**2) / moments.noise.std) ** 2 + (norm**2 / length.noise.std) ** 2
    assert len(descents) == 3 + 3
    assert [plan.facts.row_norm is None for plan in descents] == [True] * 3 + [False] * 3
    cost = math.sqrt(cost)
    assert cost == pytest.approx(model.guarantee_.mu, rel=1e-9)
    assert model.guarantee_.mu <= gdp_mu(1.0, 1e-5)


@EVERY
def test_users_are_the_unit_with_groups(kind):
    X, y = data_for(kind)
    users = np.random.default_rng(0).integers(0, 90, size=ROWS)  # unequal numbers of rows
    model = made(kind).fit(X, y, groups=users)
    assert model.guarantee_.unit == "user"
    assert "one user" in str(model.guarantee_)
    assert model.parameters_.items == len(np.unique(users))
    assert 0.999 <= model.guarantee_.epsilon <= 1.0


@pytest.mark.parametrize("state", [7, np.int64(7), np.random.RandomState(7)])
def test_a_seed_is_not_for_release(state):
    model = made(Logistic, random_state=state).fit(*labelled())
    assert "not for release" in str(model.guarantee_)
    assert "operating system" not in str(model.guarantee_)


def test_without_a_seed_the_source_is_secure():
    X, y = labelled()
    one, other = (made(Logistic, random_state=None).fit(X, y) for _ in range(2))
    assert "operating system" in str(one.guarantee_)
    assert "not for release" not in str(one.guarantee_)
    assert not np.array_equal(one.coef_, other.coef_)


@EVERY
def test_a_seed_repeats_the_fit_and_another_does_not(kind):
    X, y = data_for(kind)
    first = made(kind).fit(X, y)
    np.testing.assert_array_equal(first.coef_, made(kind).fit(X, y).coef_)
    np.testing.assert_array_equal(first.intercept_, made(kind).fit(X, y).intercept_)
    assert not np.array_equal(first.coef_, made(kind, random_state=1).fit(X, y).coef_)


def test_models_of_several_classes_have_noise_of_their_own():
    # One seed for all models would add the same noise to each: on two equal tasks the models would be equal.
    X, _ = three_classes()
    y = np.arange(ROWS) % 3
    coef = made(Logistic, 0.1).fit(X * 0.0, y).coef_  # without features only the noise moves a coefficient
    assert len(np.unique(coef.round(12), axis=0)) == 3


def test_no_noise_is_no_guarantee():
    model = Logistic(INF).fit(*labelled())
    assert model.guarantee_.epsilon == INF
    assert "No guarantee" in str(model.guarantee_)
    assert model.parameters_ is None
    assert model.n_iter_ >= 1


# What is read.


@EVERY
def test_the_plan_is_the_same_for_data_of_one_shape(kind):
    X, y = data_for(kind)
    other, targets = data_for(kind, seed=1)
    plan = made(kind).fit(X, y).parameters_
    assert plan == made(kind, row_norm=0.01).fit(other**3 + 5, targets).parameters_
    assert plan == made(kind, random_state=9).fit(np.zeros_like(X), targets).parameters_
    assert plan != made(kind).fit(X[:-1], y[:-1]).parameters_


def test_the_planner_has_no_argument_for_data():
    # n, p and a budget: a new argument must be looked at
    assert list(inspect.signature(plan_parameters).parameters) == [
        *("n", "p", "budget", "loss", "penalty", "fit_intercept", "adjacency", "effective", "rounds")
    ]


@EVERY
def test_steps_and_passes_are_reported(kind):
    model = made(kind).fit(*data_for(kind))
    plan = model.parameters_
    assert plan.steps <= model.n_iter_ <= 200
    assert f"{model.n_iter_} noisy steps" in str(model.guarantee_)
    # Beside the steps: the second moments and the lengths, a regression's target, the means with a diagonal metric, 20
    # steps of a calibration, and a regression's residuals.
    others = (
        2
        + (plan.target_share > 0)
        + (plan.mean_share > 0)
        + 20 * (plan.calibration_share > 0)
        + (plan.residual_share > 0)
    )
    assert model.n_passes_ == model.n_iter_ + others
    assert str(plan.steps) in str(plan)


@EVERY
@pytest.mark.parametrize("epsilon", [3.0, INF])
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_rows_are_scaled_when_predicting_as_when_training(kind, epsilon, form):
    # a model of rows of length 0.1 was applied to rows thirty times as long: R2 of -3.5, log loss of 6
    X, y = data_for(kind)
    model = made(kind, epsilon, row_norm=0.1).fit(X, y)
    short = 0.1 * X / np.linalg.norm(X, axis=1)[:, None]
    by_hand = short @ np.atleast_2d(model.coef_).T + model.intercept_
    scores = model.decision_function if hasattr(model, "decision_function") else model.predict
    if hasattr(model, "target_range") and epsilon < INF:
        by_hand = np.clip(by_hand, *model.target_range)
    np.testing.assert_allclose(scores(form(X)), by_hand[:, 0], rtol=1e-6)
    model.row_norm = 1e6  # what counts is what training did
    np.testing.assert_allclose(scores(form(X)), by_hand[:, 0], rtol=1e-6)


@EVERY
def test_rows_beyond_the_norm_are_scaled_down_to_it(kind):
    # an outlier whose row is not scaled would move the model without limit
    X, y = data_for(kind)
    far = X.copy()
    far[0] *= 1e6
    cut = X.copy()
    cut[0] *= 1.5 / np.linalg.norm(X[0])
    short = np.linalg.norm(X, axis=1)[:, None]
    far[1:], cut[1:] = X[1:] / short[1:], X[1:] / short[1:]
    models = [made(kind, row_norm=1.5).fit(table, y) for table in (far, cut)]
    np.testing.assert_allclose(models[0].coef_, models[1].coef_, rtol=1e-6, atol=1e-9)


def test_targets_beyond_the_range_are_clipped_to_it():
    X, y = measured()
    far = np.where(y > 1, 1e9, np.where(y < -1, -1e9, y))
    models = [made(kind, target_range=(-1.0, 1.0)).fit(X, t) for kind in (Linear, Huber) for t in (far, y)]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)
    np.testing.assert_array_equal(models[2].coef_, models[3].coef_)


# Users.


def test_the_order_of_rows_does_not_matter_to_users():
    X, y = labelled()
    users = np.random.default_rng(1).integers(0, 90, size=ROWS)
    model = made(Logistic).fit(X, y, groups=users)
    for seed in range(2):
        order = np.random.default_rng(seed).permutation(ROWS)
        moved = made(Logistic).fit(X[order], y[order], groups=users[order])
        np.testing.assert_allclose(moved.coef_, model.coef_, rtol=1e-7)
        np.testing.assert_allclose(moved.intercept_, model.intercept_, rtol=1e-7)
    named = made(Logistic).fit(X, y, groups=pd.Series([f"user {user:03d}" for user in users]))
    np.testing.assert_allclose(named.coef_, model.coef_, rtol=1e-7)


@pytest.mark.parametrize("kind", [Logistic, SVC])
@pytest.mark.parametrize("epsilon", [50.0, INF])
def test_labels_stay_with_their_rows_for_every_class(kind, epsilon):
    # Rows are put next to those of their user: targets of the second and third class must move with them.
    X, y = three_classes(rows=900)
    users = np.random.default_rng(2).integers(0, 300, size=900)
    order = np.argsort(users, kind="stable")
    mixed = made(kind, epsilon).fit(X, y, groups=users)
    sorted_before = made(kind, epsilon).fit(X[order], y[order], groups=users[order])
    np.testing.assert_allclose(mixed.coef_, sorted_before.coef_, rtol=1e-7, atol=1e-9)
    alone = linear_model.LogisticRegression().fit(X, y).score(X, y)
    assert mixed.score(X, y) > alone - 0.05


@EVERY
def test_a_user_counts_once_however_many_rows(kind):
    # Repeating the rows of some users changes nothing: items are users, and each is the mean of its rows.
    X, y = data_for(kind)
    users = np.arange(ROWS) // 4
    times = np.where(users % 3 == 0, 5, 1)
    once = made(kind).fit(X, y, groups=users)
    often = made(kind).fit(np.repeat(X, times, axis=0), np.repeat(y, times), groups=np.repeat(users, times))
    # But for the shares of a user's rows, which are whole numbers of millionths.
    np.testing.assert_allclose(often.coef_, once.coef_, rtol=1e-3, atol=1e-3 * np.abs(once.coef_).max())
    assert often.parameters_ == once.parameters_


# How good, with defaults. The thresholds are a few times what is lost; a broken metric or scale loses far more.


def lost(kind, X, y, reference, seeds=3, **extra):
    """Mean loss of score against a fit without privacy."""
    best = reference.fit(X, y).score(X, y)
    return best - np.mean([made(kind, random_state=seed, **extra).fit(X, y).score(X, y) for seed in range(seeds)])


MANY = {"rows": 4000, "features": 8}


@pytest.mark.parametrize("kind", [Logistic, SVC])
def test_classifiers_are_accurate(kind):
    X, y = labelled(**MANY)
    assert lost(kind, X, y, linear_model.LogisticRegression()) < 0.01


@pytest.mark.parametrize("kind", [Logistic, SVC])
def test_shifted_features_do_not_ruin_accuracy(kind):
    X, y = labelled(**MANY)
    assert lost(kind, X / 4 + 1, y, linear_model.LogisticRegression(C=100)) < 0.015


@pytest.mark.parametrize("kind", [Logistic, SVC])
def test_features_on_different_scales_do_not_ruin_accuracy(kind):
    X, y = labelled(rows=20_000, features=8)
    X = X * 10.0 ** np.linspace(-2, 0, 8)
    assert lost(kind, X, y, linear_model.LogisticRegression(C=1e6, max_iter=1000), row_norm=2.0) < 0.01


@pytest.mark.parametrize("kind", [Logistic, SVC])
def test_imbalance_does_not_ruin_accuracy(kind):
    X, y = labelled(bias=-4.0, **MANY)
    assert 0.04 < y.mean() < 0.1
    best = linear_model.LogisticRegression().fit(X, y)
    models = [made(kind, random_state=seed).fit(X, y) for seed in range(3)]
    area = np.mean([roc_auc_score(y, model.decision_function(X)) for model in models])
    assert area > roc_auc_score(y, best.decision_function(X)) - 0.03
    assert np.mean([model.score(X, y) for model in models]) > best.score(X, y) - 0.02
    # without an intercept about half of all rows would be called positive
    assert all(model.intercept_[0] < -0.5 for model in models)


@pytest.mark.parametrize("kind", [Logistic, SVC])
def test_only_the_ratio_of_class_weights_matters(kind):
    # clip and steps are planned for weights of 1: with {0: 1, 1: 50} every member of class 1 was clipped, recall was 0
    X, y = labelled(rows=4000, bias=-4.0)
    large, small = (made(kind, 3.0, class_weight=w).fit(X, y) for w in ({0: 1, 1: 50}, {0: 0.02, 1: 1.0}))
    np.testing.assert_allclose(large.coef_, small.coef_, rtol=1e-9)
    assert large.predict(X)[y == 1].mean() > 0.8
    # beside a number for alpha they count as without noise, where the objective is scikit-learn's
    shrunk = [made(kind, 1e4, class_weight=w, alpha=0.1).fit(X, y).coef_ for w in ({1: 50.0}, {0: 0.02})]
    assert np.linalg.norm(shrunk[0]) > 1.5 * np.linalg.norm(shrunk[1])


def test_class_weights_move_the_border():
    X, y = labelled(bias=-2.0, **MANY)
    plain = made(Logistic, 3.0).fit(X, y).predict(X).mean()
    weighted = made(Logistic, 3.0, class_weight={1: 5.0}).fit(X, y).predict(X).mean()
    against = made(Logistic, 3.0, class_weight={0: 5.0}).fit(X, y).predict(X).mean()
    assert against + 0.05 < plain < weighted - 0.05


def test_weighted_losses_keep_their_promises():
    # the planner's step rests on smoothness: that of the base is too small by the larger weight
    margins = np.linspace(-5, 5, 2001)
    for base in (hp.losses.Logistic(), hp.losses.SmoothedHinge(0.5)):
        for negative, positive in ((1.0, 7.0), (7.0, 0.5)):
            loss = hp.losses.ClassWeighted(base, negative, positive)
            heavy = np.full(len(margins), 1.0 if positive > negative else -1.0)
            assert np.abs(loss.derivative(margins, heavy)).max() == pytest.approx(loss.lipschitz, rel=0.02)
            assert loss.curvature(margins, heavy).max() == pytest.approx(loss.smoothness, rel=0.02)
            assert loss.value(margins, -heavy) == pytest.approx(min(negative, positive) * base.value(margins, -heavy))


@pytest.mark.parametrize("kind", [Linear, Huber])
@pytest.mark.parametrize(("low", "high"), [(-10.0, 10.0), (1e6, 1.001e6), (-1e-4, 3e-4)])
def test_the_place_and_width_of_the_range_do_not_matter(kind, low, high):
    # targets not centred, or models not scaled back, would predict nonsense far from zero
    X, y = measured(**MANY)
    scaled = (low + high) / 2 + y * (high - low) / 20
    assert lost(kind, X, scaled, linear_model.LinearRegression(), target_range=(low, high)) < 0.02


def test_regression_without_intercept():
    X, y = measured(**MANY)
    reference = linear_model.LinearRegression(fit_intercept=False)
    assert lost(Linear, X, y, reference, target_range=(-10.0, 9.0), fit_intercept=False) < 0.03
    assert made(Linear, fit_intercept=False).fit(X, y).intercept_ == 0.0


def test_several_classes_are_accurate():
    X, y = three_classes(rows=6000)
    assert lost(Logistic, X, y, linear_model.LogisticRegression()) < 0.03


def test_a_huge_epsilon_is_close_to_no_privacy():
    # What is left is the bias of clipping and stopping: a wrong scale anywhere would be of another order.
    X, y = labelled(bias=1.0, **MANY)
    signs = 2 * y - 1

    def log_loss(model):
        return np.logaddexp(0, -signs * model.decision_function(X)).mean()

    assert log_loss(made(Logistic, 1e6).fit(X, y)) < 1.02 * log_loss(Logistic(INF, penalty=None).fit(X, y))
    ridge = {"penalty": "l2", "alpha": 0.05}
    compared = [(Logistic, ridge, X, y)]
    X, numbers = measured(bias=1.0, **MANY)
    regressions = ((Linear, {}), (Linear, ridge), (Lasso, {"alpha": 0.1}), (Huber, {"transition": 1.0}))
    compared += [(kind, extra, X, numbers) for kind, extra in regressions]
    for kind, extra, X, targets in compared:
        private, exact = made(kind, 1e6, **extra).fit(X, targets), kind(INF, **extra).fit(X, targets)
        np.testing.assert_allclose(private.coef_, exact.coef_, atol=0.05 * np.abs(exact.coef_).max())
        np.testing.assert_allclose(private.intercept_, exact.intercept_, rtol=0.05)
        if kind is not Logistic:
            squares = [np.square(model.predict(X) - targets).mean() for model in (private, exact)]
            assert squares[0] < 1.03 * squares[1]


@pytest.mark.parametrize("kind", [Linear, Lasso, Huber])
def test_private_predictions_stay_in_the_declared_range(kind):
    X, y = measured()
    model = made(kind, 5.0, target_range=(-1.0, 2.0)).fit(X, y)
    far = model.predict(100 * X)
    assert far.min() == -1.0
    assert far.max() == 2.0
    as_array = made(kind, 5.0, target_range=np.array([-1.0, 2.0])).fit(X, y)
    np.testing.assert_array_equal(as_array.predict(X), model.predict(X))


# Penalties.


@pytest.fixture(scope="module")
def few_matter():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(5000, 40))
    return X, X[:, :4] @ np.array([2.0, -2.0, 1.5, -1.0]) + 0.3 * rng.normal(size=5000)


def test_automatic_l1_keeps_what_matters(few_matter):
    X, y = few_matter
    for seed in range(2):
        # with this much noise the mean of the last models has hardly a zero: the support is the last one's
        lasso = made(Lasso, 3.0, target_range=(-7.0, 7.0), random_state=seed).fit(X, y)
        assert (lasso.coef_[4:] == 0).mean() > 0.75
        assert (lasso.coef_[:4] * [1, -1, 1, -1] > 0.4).all()
        assert lasso.score(X, y) > 0.85
        logistic = made(Logistic, 3.0, penalty="l1", random_state=seed).fit(X, y > 0)
        assert (logistic.coef_[0, 4:] == 0).mean() > 0.75
        assert (logistic.coef_[0, :4] * [1, -1, 1, -1] > 0.3).all()
    dense = made(Linear, 3.0, target_range=(-7.0, 7.0)).fit(X, y)
    assert (dense.coef_ != 0).all()


def test_a_strong_l1_leaves_nothing_but_the_intercept(few_matter):
    X, y = few_matter
    model = made(Lasso, 3.0, target_range=(-7.0, 13.0), alpha=10.0).fit(X, y + 3)
    np.testing.assert_array_equal(model.coef_, 0.0)
    assert model.intercept_ == pytest.approx(3.0, abs=0.5)  # it is not penalised
    assert (made(Lasso, 3.0, target_range=(-7.0, 7.0), alpha=1e-3).fit(X, y).coef_ != 0).sum() > 4


def test_l2_shrinks_as_much_as_without_privacy(few_matter):
    X, y = few_matter
    for alpha in (0.1, 1.0, 10.0):
        lengths = [
            np.linalg.norm(made(Linear, epsilon, penalty="l2", alpha=alpha).fit(X, y).coef_) for epsilon in (30.0, INF)
        ]
        assert lengths[0] == pytest.approx(lengths[1], rel=0.1)


def test_an_explicit_l1_is_in_units_of_the_target(few_matter):
    # alpha is beside a squared loss in the target's own units: scaling y and alpha alike scales the model
    X, y = few_matter
    small = made(Lasso, 30.0, target_range=(-7.0, 7.0), alpha=0.1).fit(X, y)
    large = made(Lasso, 30.0, target_range=(-700.0, 700.0), alpha=10.0).fit(X, 100 * y)
    np.testing.assert_allclose(large.coef_, 100 * small.coef_, rtol=1e-9)


# Sparse and dense.


@EVERY
def test_sparse_and_dense_give_one_model(kind):
    X, y = data_for(kind)
    X = np.where(np.random.default_rng(3).random(X.shape) < 0.5, X, 0.0)
    dense = made(kind).fit(X, y)
    for sparse in (scipy.sparse.csr_array(X), scipy.sparse.csc_matrix(X), scipy.sparse.coo_array(X)):
        model = made(kind).fit(sparse, y)
        np.testing.assert_allclose(model.coef_, dense.coef_, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(model.predict(sparse), dense.predict(X), rtol=1e-6, atol=1e-8)


def test_a_one_hot_table_becomes_sparse_and_gives_the_same_model(monkeypatch):
    rng = np.random.default_rng(4)
    table = np.hstack([np.eye(10)[rng.integers(0, 10, size=ROWS)], np.eye(8)[rng.integers(0, 8, size=ROWS)]])
    y = (table[:, 0] + table[:, 3] + table[:, 12] + 0.3 * rng.normal(size=ROWS) > 0.5).astype(int)
    converted = made(Logistic, row_norm=1.5).fit(table, y)
    monkeypatch.setattr("hushpoint.estimators.base._SPARSE_ENOUGH", 0.0)
    kept = made(Logistic, row_norm=1.5).fit(table, y)
    np.testing.assert_allclose(converted.coef_, kept.coef_, rtol=1e-6, atol=1e-8)
    np.testing.assert_array_equal(converted.predict(table), kept.predict(table))


def test_the_callers_arrays_are_not_changed():
    X, y = measured()
    kept = X.copy(), y.copy()
    made(Linear, row_norm=0.1, target_range=(-0.1, 0.1)).fit(X, y)
    np.testing.assert_array_equal(X, kept[0])
    np.testing.assert_array_equal(y, kept[1])


# What is refused. (what is wrong, the call, the argument, the value, the remedy): the last three are in the message.

X, Y = labelled(rows=60)
_, TARGETS = measured(rows=60)
THREE = np.arange(60) % 3


def with_missing(table):
    spoiled = table.copy()
    spoiled[3] = NAN
    return spoiled


def classifier(y=Y, table=X, groups=None, **arguments):
    return made(Logistic, **arguments).fit(table, y, groups=groups)


def regressor(y=TARGETS, kind=Linear, **arguments):
    return made(kind, **arguments).fit(X, y)


CASES = [
    ("epsilon 0", lambda: classifier(epsilon=0), "epsilon", "0", "positive number, or float('inf')"),
    ("epsilon negative", lambda: classifier(epsilon=-1.5), "epsilon", "-1.5", "positive"),
    ("epsilon NaN", lambda: regressor(epsilon=NAN), "epsilon", "nan", "positive"),
    ("epsilon -inf", lambda: regressor(epsilon=-INF), "epsilon", "-inf", "positive"),
    ("epsilon text", lambda: classifier(epsilon="1"), "epsilon", "'1'", "positive"),
    ("delta undeclared", lambda: classifier(delta=None), "delta", "not declared", "delta=1e-6"),
    ("delta 0", lambda: classifier(delta=0.0), "delta", "0.0", "in (0, 0.5)"),
    ("delta 1", lambda: classifier(delta=1.0), "delta", "1.0", "in (0, 0.5)"),
    ("delta above 1", lambda: regressor(delta=2), "delta", "2", "in (0, 0.5)"),
    ("delta NaN", lambda: regressor(delta=NAN), "delta", "nan", "in (0, 0.5)"),
    ("delta 1, no noise", lambda: classifier(epsilon=INF, delta=1.0), "delta", "1.0", "in (0, 0.5)"),
    ("norm undeclared", lambda: classifier(row_norm=None), "row_norm", "not declared", "row_norm=R"),
    ("norm undeclared, Lasso", lambda: regressor(kind=Lasso, row_norm=None), "row_norm", "not declared", "row_norm=R"),
    ("norm 0", lambda: classifier(row_norm=0), "row_norm", "0", "positive"),
    ("norm infinite", lambda: classifier(row_norm=INF), "row_norm", "inf", "positive"),
    ("range undeclared", lambda: regressor(target_range=None), "target_range", "not declared", "(low, high)"),
    ("range reversed", lambda: regressor(target_range=(3.0, -1.0)), "target_range", "(3, -1)", "low below high"),
    ("range empty", lambda: regressor(target_range=(1.0, 1.0)), "target_range", "(1, 1)", "low below high"),
    ("range infinite", lambda: regressor(target_range=(0.0, INF)), "target_range", "inf", "finite"),
    ("range a number", lambda: regressor(target_range=3.0), "target_range", "3.0", "pair"),
    ("range of three", lambda: regressor(target_range=(0, 1, 2)), "target_range", "tuple", "pair"),
    (
        "range reversed, no noise",
        lambda: regressor(kind=Huber, epsilon=INF, target_range=(3, -1)),
        *("target_range", "(3, -1)", "low below high"),
    ),
    ("penalty unknown", lambda: classifier(penalty="l3"), "penalty", "'l3'", "'elasticnet'"),
    ("alpha negative", lambda: classifier(alpha=-1.0), "alpha", "-1.0", "'auto'"),
    ("alpha unknown", lambda: classifier(alpha="Auto"), "alpha", "'Auto'", "'auto'"),
    ("alpha infinite", lambda: regressor(alpha=INF), "alpha", "inf", "'auto'"),
    ("share above 1", lambda: classifier(penalty="elasticnet", l1_ratio=1.5), "l1_ratio", "1.5", "[0, 1]"),
    ("share negative", lambda: classifier(l1_ratio=-0.5), "l1_ratio", "-0.5", "[0, 1]"),
    ("share NaN", lambda: regressor(l1_ratio=NAN), "l1_ratio", "nan", "[0, 1]"),
    ("share of a Lasso", lambda: regressor(kind=Lasso, l1_ratio=7), "l1_ratio", "7", "[0, 1]"),
    ("text share of a Lasso", lambda: regressor(kind=Lasso, l1_ratio="x"), "l1_ratio", "'x'", "[0, 1]"),
    ("adjacency unknown", lambda: classifier(adjacency="swap"), "adjacency", "'swap'", "'zero-out'"),
    ("intercept 1", lambda: classifier(fit_intercept=1), "fit_intercept", "1", "True or False"),
    ("progress text", lambda: classifier(progress="yes"), "progress", "'yes'", "True or False"),
    ("balanced", lambda: classifier(class_weight="balanced"), "class_weight", "'balanced'", "{0: 1.0, 1: 3.0}"),
    (
        "balanced, no noise",
        lambda: classifier(epsilon=INF, class_weight="balanced"),
        *("class_weight", "'balanced'", "declared"),
    ),
    ("weights as a list", lambda: classifier(class_weight=[1, 2]), "class_weight", "list", "dictionary"),
    ("unknown class", lambda: classifier(class_weight={7: 1.0}), "class_weight", "[7]", "Name classes of y"),
    ("one class", lambda: classifier(classes=[0]), "classes", "1 entries", "at least two"),
    ("a class twice", lambda: classifier(classes=[0, 1, 1]), "classes", "3 entries", "different"),
    ("classes of two kinds", lambda: classifier(classes=[0, "yes"]), "classes", "2 entries", "one kind"),
    ("classes as a word", lambda: classifier(classes="yes"), "classes", "str", "['no', 'yes']"),
    ("classes as a number", lambda: classifier(classes=2), "classes", "int", "['no', 'yes']"),
    ("negative weight", lambda: classifier(class_weight={0: -2}), "class_weight", "-2", "positive"),
    ("weights of three", lambda: classifier(THREE, class_weight={0: 2.0}), "class_weight", "more than two", "two"),
    ("one class", lambda: classifier(np.zeros(60)), "y", "one class", "at least two"),
    ("continuous labels", lambda: classifier(TARGETS), "label type", "continuous", "discrete"),
    ("missing features", lambda: classifier(table=with_missing(X)), "X", "NaN", "missing values"),
    ("missing targets", lambda: regressor(with_missing(TARGETS)), "y", "NaN", "contains"),
    ("one user", lambda: classifier(groups=np.zeros(60)), "groups", "one user", "at least two"),
    (
        "one user, three classes, no noise",
        lambda: classifier(THREE, epsilon=INF, groups=np.zeros(60)),
        *("groups", "one user", "at least two"),
    ),
    ("short groups", lambda: classifier(groups=np.zeros(6)), "groups", "(6,)", "one user id per row"),
    ("missing user", lambda: classifier(groups=with_missing(np.arange(60.0))), "groups", "NaN", "Give every row"),
    ("negative seed", lambda: classifier(random_state=-1), "seed", "-1", "non-negative"),
    ("width 0", lambda: made(SVC, width=0).fit(X, Y), "width", "0", "positive"),
    ("transition negative", lambda: regressor(kind=Huber, transition=-1.0), "transition", "-1.0", "positive"),
]


@pytest.mark.parametrize(
    ("call", "argument", "value", "remedy"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_refusals_name_argument_value_and_remedy(call, argument, value, remedy):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the message is what is tested)
        call()
    message = str(caught.value)
    for part in (argument, value, remedy):
        assert part in message
    # a measured number in a message would be somebody's
    entries = {f"{entry:.3f}" for entry in [*X.ravel(), *TARGETS]}
    assert entries.isdisjoint(re.findall(r"-?\d+\.\d{3}", message))


def test_nothing_is_checked_before_fit():
    for kind in (Logistic, SVC, Linear, Lasso, Huber):
        kind()
        kind(epsilon=-1.0, delta=7, row_norm="long", adjacency="none")


@pytest.mark.parametrize(
    "call",
    [
        lambda table: made(Logistic).fit(table, Y),
        lambda table: made(Logistic).fit(table.to_numpy(), Y),
        lambda table: made(Linear).fit(X, table["name"]),
        lambda table: made(Linear).fit(X, table["name"].to_numpy(dtype=str)),
        lambda table: made(Logistic).fit(X[:, :2], Y).predict(table.to_numpy()),
    ],
)
def test_text_is_refused_without_quoting_it(call):
    # NumPy's own message quotes the cell that it cannot read
    table = pd.DataFrame({"name": ["Alice"] * 60, "age": 30.0})
    with pytest.raises(ValueError, match="numbers") as caught:
        call(table)
    assert "Alice" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(("delta", "warns"), [(0.02, True), (1 / 60, True), (0.016, False)])
def test_a_delta_of_one_over_n_warns(delta, warns):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        classifier(delta=delta)
    assert [str(w.message)[:8] for w in caught] == (["delta is"] if warns else [])
    if warns:
        assert "60 records" in str(caught[0].message)
        assert caught[0].filename == __file__  # where made() calls fit, not inside the library


def test_a_delta_of_one_over_users_warns():
    with pytest.warns(UserWarning, match="20 users"):
        classifier(delta=0.06, groups=np.arange(60) % 20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classifier(delta=0.03, groups=np.arange(60) % 20)  # above one over the rows, which are not the people


@pytest.mark.parametrize("kind", [Linear, Lasso, Huber])
def test_a_constant_target_is_not_looked_at(kind):
    # to refuse or to treat it apart would tell that all are equal
    X, _ = measured(**MANY)
    model = made(kind, 10.0, target_range=(0.0, 10.0)).fit(X, np.full(len(X), 7.0))
    assert np.abs(model.predict(X) - 7).mean() < 0.3


@EVERY
def test_more_features_than_rows(kind):
    X, y = data_for(kind, rows=40, features=60)
    model = made(kind).fit(X, y)
    assert np.isfinite(model.coef_).all()
    assert model.guarantee_.epsilon <= 1.0
    made(kind, INF).fit(X, y)


@EVERY
def test_rows_of_zeros_and_constant_columns(kind):
    X, y = data_for(kind)
    X[:, 1], X[:, 2], X[::2] = 0.0, 3.0, 0.0
    assert np.isfinite(made(kind).fit(X, y).coef_).all()


def test_a_larger_budget_keeps_more_of_a_sparse_wide_model():
    # catches: a threshold of the automatic L1 penalty that grows with the clip until nothing passes it
    rng = np.random.default_rng(0)
    shares = np.minimum(1, 8 / np.arange(1, 1001))
    X = (rng.random((3000, 1000)) < shares) / 6.0
    scores = X[:, 8:40] @ rng.normal(size=32)
    y = rng.random(3000) < 1 / (1 + np.exp(-4 * (scores - scores.mean()) / scores.std()))
    found = []
    for epsilon in (1.0, 5.0, 20.0):
        model = hp.PrivateLogisticRegression(
            epsilon, 1e-4, 1.0, penalty="l1", adjacency="zero-out", classes=[False, True], random_state=0
        ).fit(X[:1000], y[:1000])
        assert 5 <= np.count_nonzero(model.coef_) < 1000
        found.append(model.score(X[1000:], y[1000:]))
    assert found[0] + 0.05 < found[1] < found[2] + 0.05
