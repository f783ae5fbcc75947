"""Estimators as scikit-learn sees them: its own checks, its solutions without privacy, its tools around them."""

import math
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from scipy.special import expit
from sklearn import linear_model
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

import hushpoint as hp
from hushpoint.estimators import nonprivate

INF = math.inf
CLASSIFIERS = (hp.PrivateLogisticRegression, hp.PrivateLinearSVC)
REGRESSORS = (hp.PrivateLinearRegression, hp.PrivateLasso, hp.PrivateHuberRegressor)


def every_estimator(**facts):
    targets = {"target_range": (-10.0, 10.0)}
    return [kind(**facts) for kind in CLASSIFIERS] + [kind(**facts, **targets) for kind in REGRESSORS]


def why_it_fails(estimator):
    if "class_weight" not in estimator.get_params():
        return {}
    return {"check_class_weight_classifiers": "it asks for weights of three classes; ours work with two, and say so"}


@parametrize_with_checks(
    [
        *every_estimator(epsilon=INF, delta=1e-6, row_norm=1e3, random_state=0),
        *every_estimator(epsilon=1e4, delta=1e-6, row_norm=10.0, random_state=0),
    ],
    expected_failed_checks=why_it_fails,
)
def test_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


# Without privacy: the same objective, so the same solution.

N = 300
RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(N, 6)) * np.array([1, 2, 0.5, 1, 3, 1]) + np.array([0, 1, 0, 0, -2, 0])
SPARSE = scipy.sparse.csr_array(np.where(RNG.random((N, 6)) < 0.3, TABLE, 0.0))
SIGNAL = RNG.normal(size=6)
FEATURES = {"dense": TABLE, "sparse": SPARSE}
LABELS = {kind: np.where(X @ SIGNAL + 2 * RNG.logistic(size=N) > 0, "yes", "no") for kind, X in FEATURES.items()}
NUMBERS = {kind: X @ SIGNAL + RNG.normal(size=N) for kind, X in FEATURES.items()}
THREE = np.argmax(TABLE @ RNG.normal(size=(6, 3)) + 2 * RNG.gumbel(size=(N, 3)), axis=1)
both_kinds = pytest.mark.parametrize("kind", ["dense", "sparse"])
both_intercepts = pytest.mark.parametrize("fit_intercept", [True, False])


def agree(ours, theirs, X, y, within=1e-6):
    ours.fit(X, y), theirs.fit(X, y)
    assert np.shape(ours.coef_) == np.shape(theirs.coef_)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=within, rtol=0)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=within, rtol=0)
    if hasattr(ours, "classes_"):
        np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    else:
        np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=1e-5, rtol=0)


def logistic(alpha, l1_ratio=0.0, **extra):
    solver = "saga" if l1_ratio else "newton-cholesky"
    strength = INF if alpha == 0 else 1 / (N * alpha)
    return linear_model.LogisticRegression(
        C=strength, l1_ratio=l1_ratio, solver=solver, tol=1e-12, max_iter=200_000, **extra
    )


@both_kinds
@both_intercepts
@pytest.mark.parametrize(
    ("penalty", "alpha", "l1_ratio"),
    [
        *(("l2", alpha, 0.0) for alpha in (1e-4, 1e-2, 1.0)),
        *(("l1", alpha, 1.0) for alpha in (1e-3, 1e-2)),
        ("elasticnet", 2e-2, 0.3),
        (None, 0.0, 0.0),
    ],
)
def test_logistic_without_noise_is_scikit_learns(penalty, alpha, l1_ratio, fit_intercept, kind):
    ours = hp.PrivateLogisticRegression(
        INF, penalty=penalty, alpha=alpha, l1_ratio=l1_ratio, fit_intercept=fit_intercept
    )
    theirs = logistic(alpha, l1_ratio, fit_intercept=fit_intercept)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # saga may stop at its limit within 1e-12 and 1e-6
        agree(ours, theirs, FEATURES[kind], LABELS[kind])
    np.testing.assert_allclose(
        ours.predict_proba(FEATURES[kind]), theirs.predict_proba(FEATURES[kind]), atol=1e-6, rtol=0
    )


def test_logistic_defaults_are_scikit_learns_defaults():
    agree(hp.PrivateLogisticRegression(INF), logistic(1 / N), TABLE, LABELS["dense"])


@both_intercepts
@pytest.mark.parametrize(("penalty", "alpha", "l1_ratio"), [("l2", 0.01, 0.0), (None, 0.0, 0.0), ("l1", 0.01, 1.0)])
def test_three_classes_without_noise_are_multinomial(penalty, alpha, l1_ratio, fit_intercept):
    ours = hp.PrivateLogisticRegression(INF, penalty=penalty, alpha=alpha, fit_intercept=fit_intercept)
    theirs = logistic(alpha, l1_ratio, fit_intercept=fit_intercept)
    agree(ours, theirs, TABLE, THREE)
    np.testing.assert_allclose(ours.predict_proba(TABLE), theirs.predict_proba(TABLE), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("penalty", "l1_ratio"), [("l2", 0.0), ("l1", 1.0)])
@pytest.mark.parametrize("weights", [{"no": 1.0, "yes": 3.0}, {"no": 5.0}])
def test_class_weights_without_noise_are_scikit_learns(weights, penalty, l1_ratio):
    ours = hp.PrivateLogisticRegression(INF, penalty=penalty, alpha=0.01, class_weight=weights)
    agree(ours, logistic(0.01, l1_ratio, class_weight=weights), TABLE, LABELS["dense"])


@both_kinds
@both_intercepts
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (hp.PrivateLinearRegression(), linear_model.LinearRegression(tol=1e-12)),
        *(
            (hp.PrivateLinearRegression(penalty="l2", alpha=alpha), linear_model.Ridge(N * alpha))
            for alpha in (1e-3, 0.1, 1.0)
        ),
        (hp.PrivateLinearRegression(penalty="l2"), linear_model.Ridge()),
        *((hp.PrivateLasso(alpha=alpha), linear_model.Lasso(alpha)) for alpha in (1e-3, 0.01, 0.1)),
        (hp.PrivateLasso(), linear_model.Lasso()),
        *(
            (hp.PrivateLasso(alpha=0.05, l1_ratio=ratio), linear_model.ElasticNet(0.05, l1_ratio=ratio))
            for ratio in (0.3, 0.7)
        ),
        (hp.PrivateLinearRegression(penalty="l1", alpha=0.05), linear_model.Lasso(0.05)),
        (
            hp.PrivateLinearRegression(penalty="elasticnet", alpha=0.05, l1_ratio=0.4),
            linear_model.ElasticNet(0.05, l1_ratio=0.4),
        ),
    ],
)
def test_least_squares_without_noise_are_scikit_learns(ours, theirs, fit_intercept, kind):
    theirs = clone(theirs).set_params(tol=1e-12, fit_intercept=fit_intercept)
    if "max_iter" in theirs.get_params() and theirs.max_iter is not None:
        theirs.set_params(max_iter=100_000)
    ours = clone(ours).set_params(epsilon=INF, fit_intercept=fit_intercept)
    agree(ours, theirs, FEATURES[kind], NUMBERS[kind])


def test_a_lasso_without_l1_is_a_ridge():
    agree(hp.PrivateLasso(INF, alpha=0.1, l1_ratio=0), linear_model.Ridge(N * 0.1, tol=1e-12), TABLE, NUMBERS["dense"])


def test_declared_range_changes_nothing_without_noise():
    # a clipped target, or one left in units of the range, would change the model
    free = hp.PrivateLinearRegression(INF).fit(TABLE, NUMBERS["dense"])
    bounded = hp.PrivateLinearRegression(INF, target_range=(-0.5, 0.25), delta=1e-3).fit(TABLE, NUMBERS["dense"])
    np.testing.assert_array_equal(free.coef_, bounded.coef_)
    np.testing.assert_array_equal(free.predict(TABLE), bounded.predict(TABLE))


def test_users_weigh_equally_without_noise():
    users = np.sort(RNG.integers(0, 60, size=N))
    weights = 1 / np.bincount(users)[users]
    ours = hp.PrivateLogisticRegression(INF, penalty=None).fit(TABLE, LABELS["dense"], groups=users)
    theirs = logistic(0.0).fit(TABLE, LABELS["dense"], sample_weight=weights / weights.mean())
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
    assert ours.guarantee_.unit == "user"
    mixed = RNG.permutation(N)
    multi = hp.PrivateLogisticRegression(INF, alpha=0.01).fit(TABLE[mixed], THREE[mixed], groups=users[mixed])
    theirs = logistic(0.01).fit(TABLE, THREE, sample_weight=weights / weights.mean())
    np.testing.assert_allclose(multi.coef_, theirs.coef_, atol=1e-6)


# Losses that scikit-learn does not have: the gradient at the solution, beside the subgradient of the penalty.


def distance_from_optimum(estimator, loss, X, targets):
    """Largest entry of the objective's shortest subgradient, in units of the features."""
    coef = estimator.coef_.ravel()
    slopes = loss.derivative(X @ coef + estimator.intercept_, targets) / len(X)
    share = {None: 0.0, "l2": 0.0, "l1": 1.0, "elasticnet": estimator.l1_ratio}[estimator.penalty]
    strength = estimator.alpha if estimator.penalty else 0.0
    smooth = X.T @ slopes + strength * (1 - share) * coef
    l1 = strength * share
    rest = np.where(coef != 0, np.abs(smooth + l1 * np.sign(coef)), np.maximum(np.abs(smooth) - l1, 0.0))
    return max((rest / np.abs(X).mean(axis=0)).max(), abs(slopes.sum()) if estimator.fit_intercept else 0.0)


HINGE, HUBER = hp.losses.SmoothedHinge(0.5), hp.losses.Huber(0.7)


@pytest.mark.parametrize("scale", [0.0, 1.0, 2.0])
@both_kinds
@pytest.mark.parametrize(("penalty", "alpha"), [(None, 0.0), ("l2", 0.01), ("l1", 0.02), ("elasticnet", 0.02)])
@pytest.mark.parametrize(
    ("estimator", "loss"),
    [
        (hp.PrivateHuberRegressor(transition=0.7), HUBER),
        (hp.PrivateHuberRegressor(transition=0.7, fit_intercept=False), HUBER),
        (hp.PrivateLinearSVC(width=0.5), HINGE),
        (hp.PrivateLinearSVC(width=0.5, class_weight={1.0: 3.0}), hp.losses.ClassWeighted(HINGE, 1.0, 3.0)),
        (
            hp.PrivateLogisticRegression(class_weight={1.0: 3.0}),
            hp.losses.ClassWeighted(hp.losses.Logistic(), 1.0, 3.0),
        ),
    ],
)
def test_other_losses_without_noise_are_at_the_optimum(estimator, loss, penalty, alpha, kind, scale):
    # features from 10^-scale to 10^scale: first-order solvers stop far from the optimum
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 5)) * 10 ** np.linspace(-scale, scale, 5)
    if estimator.fit_intercept:
        X = X + 10**scale
    margins = (X - X.mean(axis=0)) @ (rng.normal(size=5) / X.std(axis=0))
    targets = margins + rng.standard_t(2, size=400) / 2
    targets = targets if isinstance(estimator, hp.PrivateHuberRegressor) else np.where(targets > 0, 1.0, -1.0)
    estimator = clone(estimator).set_params(epsilon=INF, penalty=penalty, alpha=alpha)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it converges, and says nothing
        estimator.fit(X if kind == "dense" else scipy.sparse.csr_array(X), targets)
    assert distance_from_optimum(estimator, loss, X, targets) < 1e-8


def test_hubers_transition_follows_the_declared_range():
    rng = np.random.default_rng(2)
    y = TABLE @ SIGNAL + rng.standard_t(2, size=N)
    for facts, transition in (({}, 1.345), ({"target_range": (-5.0, 20.0)}, 2.5)):
        fitted = hp.PrivateHuberRegressor(INF, **facts).fit(TABLE, y)
        assert distance_from_optimum(fitted, hp.losses.Huber(transition), TABLE, y) < 1e-8


def test_a_solver_that_is_stopped_says_so(monkeypatch):
    monkeypatch.setattr(nonprivate, "_NEWTON_STEPS", 1)
    with pytest.warns(UserWarning, match="did not converge"):
        hp.PrivateLinearSVC(INF).fit(TABLE, LABELS["dense"])


def test_a_one_hot_table_without_penalty_is_no_reason_to_warn():
    table = np.eye(4)[RNG.integers(0, 4, size=N)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = hp.PrivateLogisticRegression(INF, penalty=None).fit(table, LABELS["dense"])
    shares = [np.mean(LABELS["dense"][table[:, column] == 1] == "yes") for column in range(4)]
    np.testing.assert_allclose(model.predict_proba(np.eye(4))[:, 1], shares, atol=1e-5)


# Around them.

SHORT = TABLE / 10
FACTS = {"epsilon": 5.0, "delta": 1e-5, "row_norm": 1.0, "random_state": 0}


@pytest.mark.parametrize("estimator", every_estimator(**FACTS), ids=lambda estimator: type(estimator).__name__)
def test_clone_pickle_and_set_params(estimator):
    y = LABELS["dense"] if hasattr(estimator, "class_weight") else NUMBERS["dense"]
    fitted = estimator.fit(SHORT, y)
    copied = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copied.predict(SHORT), fitted.predict(SHORT))
    assert copied.guarantee_ == fitted.guarantee_
    assert copied.parameters_ == fitted.parameters_
    fresh = clone(fitted)
    assert not hasattr(fresh, "coef_")
    assert fresh.get_params() == fitted.get_params()
    np.testing.assert_array_equal(fresh.fit(SHORT, y).coef_, fitted.coef_)
    changed = clone(fitted).set_params(epsilon=2.0).fit(SHORT, y)
    assert changed.guarantee_.epsilon == pytest.approx(2.0, rel=1e-3)
    assert not np.array_equal(changed.coef_, fitted.coef_)


def test_data_frames_give_their_names():
    names = [f"column {index}" for index in range(6)]
    frame = pd.DataFrame(SHORT, columns=names)
    model = hp.PrivateLogisticRegression(**FACTS).fit(frame, pd.Series(LABELS["dense"]))
    assert model.feature_names_in_.tolist() == names
    assert model.n_features_in_ == 6
    np.testing.assert_array_equal(model.coef_, hp.PrivateLogisticRegression(**FACTS).fit(SHORT, LABELS["dense"]).coef_)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[names[::-1]])


def test_pipelines_fit_once_and_cross_validation_says_that_it_does_not():
    model = make_pipeline(FunctionTransformer(np.tanh), hp.PrivateLogisticRegression(**FACTS))
    with pytest.warns(UserWarning, match="cross_val_score fits copies"):
        scores = cross_val_score(model, SHORT, LABELS["dense"], cv=3)
    assert scores.shape == (3,)
    assert scores.mean() > 0.6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.fit(SHORT, LABELS["dense"])[-1].guarantee_.epsilon <= 5.0


@pytest.mark.parametrize(
    "search",
    [
        lambda model: GridSearchCV(model, {"alpha": [0.01, 0.1]}, cv=2),
        lambda model: RandomizedSearchCV(model, {"alpha": [0.01, 0.1]}, n_iter=1, cv=2),
        lambda model: GridSearchCV(make_pipeline(model), {"privatelogisticregression__alpha": [0.1]}, cv=2),
    ],
)
def test_a_search_warns_and_names_the_right_way(search):
    with pytest.warns(UserWarning, match="PrivateSelect"):
        search(hp.PrivateLogisticRegression(**FACTS)).fit(SHORT, LABELS["dense"])


def test_probabilities_are_those_of_the_scores():
    binary = hp.PrivateLogisticRegression(**FACTS).fit(SHORT, LABELS["dense"])
    upper = expit(binary.decision_function(SHORT))
    np.testing.assert_allclose(binary.predict_proba(SHORT), np.column_stack([1 - upper, upper]), rtol=1e-12)
    np.testing.assert_array_equal(binary.predict(SHORT), np.where(upper > 0.5, "yes", "no"))
    several = hp.PrivateLogisticRegression(**FACTS).fit(SHORT, THREE)
    assert several.decision_function(SHORT).shape == (N, 3)
    each = expit(several.decision_function(SHORT))
    probabilities = several.predict_proba(SHORT)
    np.testing.assert_allclose(probabilities, each / each.sum(axis=1, keepdims=True), rtol=1e-12)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(several.classes_[probabilities.argmax(axis=1)], several.predict(SHORT))
    np.testing.assert_allclose(np.exp(several.predict_log_proba(SHORT)), probabilities, rtol=1e-12)
    far = several.predict_proba(SHORT * 1e6)  # every model certain that it is not its class
    np.testing.assert_allclose(far.sum(axis=1), 1.0)
