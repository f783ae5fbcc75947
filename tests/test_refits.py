"""Warnings where scikit-learn fits many times, and where a step in front learns from the rows."""

import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.decomposition import PCA
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.feature_selection import RFE, RFECV, SelectFromModel, SelectKBest, SequentialFeatureSelector
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import RANSACRegressor
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    HalvingGridSearchCV,
    RandomizedSearchCV,
    TunedThresholdClassifierCV,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
    permutation_test_score,
    validation_curve,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier, OutputCodeClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    PolynomialFeatures,
    StandardScaler,
)
from sklearn.random_projection import GaussianRandomProjection
from sklearn.semi_supervised import SelfTrainingClassifier

import hushpoint as hp
from hushpoint._refits import learning_steps
from hushpoint.preprocessing import PrivateRangeScaler, RangeScaler

N = 48
X = np.random.default_rng(0).uniform(-1, 1, size=(N, 3))
TWO, THREE = np.where(X[:, 0] > 0, "yes", "no"), np.digitize(X[:, 0], [-0.4, 0.4])
MODEL = hp.PrivateLogisticRegression(1.0, 1e-3, 2.0, random_state=0)
REGRESSOR = hp.PrivateLinearRegression(1.0, 1e-3, 2.0, target_range=(-1, 1), random_state=0)
GRID = {"alpha": [0.1, 1.0]}


def chooser():
    return hp.PrivateSelect(MODEL, GRID, epsilon=1.0, delta=1e-3, mean_candidates=1.5, random_state=0)


def heard(call):
    """What is warned of refits and of steps; other warnings are not ours."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(one.message) for one in caught if "guarantee_" in str(one.message)]


# The routine's name where it shares a process with the copy or the fit; else at least the module it lives in.
IN_WORKERS = {
    "OneVsRestClassifier": "sklearn.multiclass",
    "OneVsOneClassifier": "sklearn.multiclass",
    "OutputCodeClassifier": "sklearn.multiclass",
    "MultiOutputClassifier": "sklearn.multioutput",
}
ROUTINES = {
    "CalibratedClassifierCV": lambda jobs: CalibratedClassifierCV(MODEL, cv=2, n_jobs=jobs).fit(X, TWO),
    "BaggingClassifier": lambda jobs: BaggingClassifier(MODEL, 2, n_jobs=jobs, random_state=0).fit(X, TWO),
    "VotingClassifier": lambda jobs: VotingClassifier([("a", MODEL), ("b", MODEL)], n_jobs=jobs).fit(X, TWO),
    "StackingClassifier": lambda jobs: StackingClassifier([("a", MODEL)], cv=2, n_jobs=jobs).fit(X, TWO),
    "OneVsRestClassifier": lambda jobs: OneVsRestClassifier(MODEL, n_jobs=jobs).fit(X, THREE),
    "OneVsOneClassifier": lambda jobs: OneVsOneClassifier(MODEL, n_jobs=jobs).fit(X, THREE),
    "OutputCodeClassifier": lambda jobs: OutputCodeClassifier(MODEL, random_state=0, n_jobs=jobs).fit(X, THREE),
    "MultiOutputClassifier": lambda jobs: MultiOutputClassifier(MODEL, n_jobs=jobs).fit(X, np.c_[TWO, TWO]),
    "RFECV": lambda jobs: RFECV(MODEL, cv=2, n_jobs=jobs).fit(X, TWO),
    "SequentialFeatureSelector": lambda jobs: SequentialFeatureSelector(
        MODEL, n_features_to_select=1, cv=2, n_jobs=jobs
    ).fit(X, TWO),
    "GridSearchCV": lambda jobs: GridSearchCV(MODEL, GRID, cv=2, n_jobs=jobs).fit(X, TWO),
    "RandomizedSearchCV": lambda jobs: RandomizedSearchCV(MODEL, GRID, n_iter=1, cv=2, n_jobs=jobs).fit(X, TWO),
    "HalvingGridSearchCV": lambda jobs: HalvingGridSearchCV(MODEL, GRID, cv=2, n_jobs=jobs).fit(X, TWO),
    "TunedThresholdClassifierCV": lambda jobs: TunedThresholdClassifierCV(MODEL, cv=2, n_jobs=jobs).fit(X, TWO),
    "cross_val_score": lambda jobs: cross_val_score(make_pipeline(MODEL), X, TWO, cv=2, n_jobs=jobs),
    "cross_validate": lambda jobs: cross_validate(MODEL, X, TWO, cv=2, n_jobs=jobs),
    "cross_val_predict": lambda jobs: cross_val_predict(MODEL, X, TWO, cv=2, n_jobs=jobs),
    "learning_curve": lambda jobs: learning_curve(MODEL, X, TWO, cv=2, train_sizes=[0.9], n_jobs=jobs),
    "validation_curve": lambda jobs: validation_curve(
        MODEL, X, TWO, param_name="alpha", param_range=[0.1], cv=2, n_jobs=jobs
    ),
    "permutation_test_score": lambda jobs: permutation_test_score(MODEL, X, TWO, cv=2, n_permutations=1, n_jobs=jobs),
}
SERIAL = {
    "RFE": lambda: RFE(MODEL).fit(X, TWO),
    "SelectFromModel": lambda: SelectFromModel(MODEL).fit(X, TWO),
    "ClassifierChain": lambda: ClassifierChain(MODEL).fit(X, np.c_[TWO == "yes", TWO == "no"].astype(int)),
    "SelfTrainingClassifier": lambda: SelfTrainingClassifier(MODEL, max_iter=1).fit(
        X, np.where(np.arange(N) % 5 == 0, -1, TWO == "yes")
    ),
    "RANSACRegressor": lambda: RANSACRegressor(REGRESSOR, min_samples=20, max_trials=2, random_state=0).fit(X, X[:, 0]),
    "cross_val_score": lambda: cross_val_score(chooser(), X, TWO, cv=2),  # a selection accounts for one fit of its own
    "cross_validate": lambda: cross_validate(PrivateRangeScaler((-9, 9), delta=1e-3), X, scoring=lambda *_: 0.0, cv=2),
}


@pytest.mark.parametrize("name", ROUTINES)
def test_a_routine_that_fits_copies_is_named(name):
    # catches: a routine that nobody thought of, or whose frames have other names
    with pytest.warns(UserWarning, match=f"^{name} fits copies of PrivateLogisticRegression"):
        ROUTINES[name](1)


@pytest.mark.parametrize("name", ROUTINES)
def test_a_routine_is_heard_from_where_it_was_called_though_it_fits_elsewhere(name):
    # catches: a warning in a worker process, which reaches no filter and no log of the caller
    with parallel_config("loky"):
        told = heard(lambda: ROUTINES[name](2))
    assert told
    assert all(name in one or IN_WORKERS.get(name, name) in one for one in told), told[0]


@pytest.mark.parametrize("name", SERIAL)
def test_routines_without_workers_are_named(name):
    told = heard(SERIAL[name])
    assert told
    assert {one.partition(" fits copies")[0] for one in told} == {name}


@pytest.mark.parametrize("name", ["BaggingClassifier", "OneVsRestClassifier", "cross_val_score"])
def test_threads_are_heard_too(name):
    # catches: taking a thread for a process whose results will be unpickled
    with parallel_config("threading"):
        assert heard(lambda: ROUTINES[name](2))


def test_the_message_says_what_is_spent_and_what_to_do():
    told = heard(lambda: cross_val_score(MODEL, X, TWO, cv=2))[0]
    for part in (
        "every fit spends its whole epsilon",
        "a score made from private rows",
        "compose(",
        "hp.PrivateSelect",
    ):
        assert part in told


def test_a_selection_speaks_for_the_estimator_in_it():
    # catches: the inner estimator warning of the outer routine beside the selection that accounts for it
    told = heard(lambda: cross_val_score(chooser(), X, TWO, cv=2))
    assert all("copies of PrivateSelect," in one for one in told)


def test_the_place_of_the_warning_is_the_users_line():
    # catches: a stacklevel inside the libraries, whose "once per place" would show the first of a session only
    with pytest.warns(UserWarning, match="fits copies") as caught:
        ROUTINES["GridSearchCV"](1)
    assert {one.filename for one in caught} == {__file__}


def test_warnings_as_errors_do_not_break_workers():
    # catches: an exception in the thread that unpickles results, which kills the pool; run apart, as a pool may die
    code = """
import warnings, numpy as np, hushpoint as hp
from sklearn.multiclass import OneVsRestClassifier
X = np.random.default_rng(0).uniform(-1, 1, size=(48, 3))
y = np.digitize(X[:, 0], [-0.4, 0.4])
warnings.simplefilter("error", UserWarning)
model = OneVsRestClassifier(hp.PrivateLogisticRegression(1.0, 1e-3, 2.0, random_state=0), n_jobs=2).fit(X, y)
print(len(model.estimators_))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "3", done.stderr
    assert "fits copies of PrivateLogisticRegression" in done.stderr


def test_a_saved_model_does_not_warn_when_it_is_loaded():
    # catches: a mark that outlives the way home from a worker
    with parallel_config("loky"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bagged = BaggingClassifier(MODEL, 2, n_jobs=2, random_state=0).fit(X, TWO)
    stored = pickle.dumps(bagged)
    assert heard(lambda: pickle.loads(stored)) == []


# --- steps in front

HALVES = [("left", StandardScaler(), [0]), ("right", "passthrough", [1, 2])]


class Own(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X


class OwnThatSaysSo(Own):
    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (make_pipeline(StandardScaler(), MODEL), "StandardScaler in"),
        (make_pipeline(SimpleImputer(), PCA(2), MODEL), "SimpleImputer, PCA in"),
        (make_pipeline(SelectKBest(k=2), MODEL), "SelectKBest in"),
        (make_pipeline(make_pipeline(Normalizer(), MinMaxScaler()), make_pipeline(MODEL)), "MinMaxScaler in"),
        (make_pipeline(StandardScaler(), make_pipeline(Normalizer(), MODEL)), "StandardScaler in"),
        (make_pipeline(ColumnTransformer(HALVES), MODEL), "StandardScaler in"),
        (make_pipeline(ColumnTransformer([], remainder=MinMaxScaler()), MODEL), "MinMaxScaler in"),
        (make_pipeline(FeatureUnion([("a", PCA(1)), ("b", "passthrough")]), MODEL), "PCA in"),
        (make_pipeline(StandardScaler(), chooser()), "StandardScaler in front of PrivateSelect"),
        (make_pipeline(Own(), MODEL), "Own in"),
        (TransformedTargetRegressor(REGRESSOR, transformer=StandardScaler()), "StandardScaler in"),
    ],
)
def test_a_step_that_learns_in_front_is_named(model, named):
    # catches: the mean of everybody in every row, under a guarantee that says rows were prepared one by one
    y = X[:, 0] if isinstance(model, TransformedTargetRegressor) else TWO
    told = heard(lambda: clone(model).fit(X, y))
    assert len(told) == 1
    assert told[0].startswith(named)
    assert "hp.preprocessing" in told[0]


@pytest.mark.parametrize(
    ("step", "learns"),
    [
        (OneHotEncoder(), True),
        (OneHotEncoder(categories=[["a"]]), False),
        (OneHotEncoder(categories=[["a"]], min_frequency=3), True),  # counts how often a category occurs
        (RBFSampler(), False),
        (RBFSampler(gamma="scale"), True),  # one over the variance of the data
        (SimpleImputer(strategy="constant", fill_value=0), False),
        (SimpleImputer(strategy="constant", add_indicator=True), True),  # which columns have missing cells
        (SelectFromModel(REGRESSOR), False),
        (SelectFromModel(RANSACRegressor()), True),
        (PrivateRangeScaler(), False),
        (object(), True),
        (None, False),
    ],
)
def test_settings_decide_whether_a_step_learns(step, learns):
    assert bool(learning_steps(step)) is learns


# --- nothing to say


@pytest.mark.parametrize(
    "call",
    [
        lambda: clone(MODEL).fit(X, TWO),
        lambda: chooser().fit(X, TWO),
        lambda: clone(chooser()),
        lambda: clone(hp.PrivateLasso(epsilon=np.ones(3))),  # refused by fit, not by clone
        lambda: clone(GridSearchCV(MODEL, GRID)),
        lambda: make_pipeline(RangeScaler((-1, 1)), PolynomialFeatures(), "passthrough", Normalizer(), MODEL).fit(
            X, TWO
        ),
        lambda: make_pipeline(FunctionTransformer(np.tanh), GaussianRandomProjection(2), MODEL).fit(X, TWO),
        lambda: make_pipeline(FrozenEstimator(StandardScaler().fit(X)), OwnThatSaysSo(), MODEL).fit(X, TWO),
        lambda: make_pipeline(PrivateRangeScaler((-9, 9), delta=1e-3), MODEL).fit(X, TWO),
        lambda: TransformedTargetRegressor(REGRESSOR, func=np.sinh, inverse_func=np.arcsinh).fit(X, X[:, 0]),
        lambda: FixedThresholdClassifier(MODEL).fit(X, TWO),
        lambda: CalibratedClassifierCV(FrozenEstimator(clone(MODEL).fit(X, TWO))).fit(X, TWO),  # see docs/pitfalls.md
        lambda: pickle.loads(pickle.dumps(clone(MODEL).fit(X, TWO))),
        lambda: cross_val_score(make_pipeline(StandardScaler(), clone(MODEL).set_params(epsilon=np.inf)), X, TWO, cv=2),
        lambda: BaggingClassifier(clone(MODEL).set_params(epsilon=np.inf), 2, n_jobs=2).fit(X, TWO),
    ],
)
def test_one_fit_prepared_row_by_row_is_no_reason_to_warn(call):
    # catches: a warning that cries wolf, until nobody reads it
    assert heard(call) == []


@pytest.mark.parametrize(
    "call",
    [
        lambda: cross_val_score(MODEL, X, TWO, cv=3),
        lambda: GridSearchCV(MODEL, GRID, cv=3).fit(X, TWO),
        lambda: CalibratedClassifierCV(MODEL, cv=3).fit(X, TWO),
        lambda: BaggingClassifier(MODEL, n_estimators=4).fit(X, TWO),
        lambda: [cross_val_score(MODEL, X, TWO, cv=2) for _ in range(2)] and None,
    ],
)
def test_one_call_is_told_once(call):
    # a paragraph for every copy and every fit: 122 for a search over 12 candidates, and nobody reads any
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        twice = call() is None
    told = [warning for warning in caught if "fits copies of" in str(warning.message)]
    assert len(told) == (2 if twice else 1)


def test_a_step_in_front_is_told_once_in_a_search():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cross_val_score(make_pipeline(StandardScaler(), MODEL), X, TWO, cv=3)
    assert sorted("may learn" in str(warning.message) for warning in caught) == [False, True]
