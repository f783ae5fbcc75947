"""No error and no warning of a function that was given data quotes an entry of it."""

import re
import traceback
import warnings
from datetime import date, datetime

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning, NotFittedError

import hushpoint as hp
from hushpoint import preprocessing
from hushpoint._silence import silent_about

FLOAT, WORD, INTEGER, DAY = 73579513.25, "canary-Zq9", 918273645, date(1987, 11, 23)
# As repr, str, numpy and pandas print them, and what scientific notation leaves of them.
CANARIES = ("73579513", "7.3579", "canary-Zq", "918273645", "9.1827", "918_273", "1987")
ROWS = 6
RNG = np.random.default_rng(0)
TABLE = RNG.uniform(-1, 1, size=(ROWS, 3))
TARGET = RNG.uniform(-1, 1, size=ROWS)
LABELS = np.array(["no", "yes"] * 3)
USERS = np.array([0, 0, 1, 1, 2, 2])
FACTS = {"epsilon": 1.0, "delta": 1e-3, "row_norm": 1.0, "random_state": 0}
RANGED = {**FACTS, "target_range": (-1.0, 1.0)}
CLASSIFIERS = [hp.PrivateLogisticRegression(**FACTS), hp.PrivateLinearSVC(**FACTS)]
REGRESSORS = [kind(**RANGED) for kind in (hp.PrivateLinearRegression, hp.PrivateLasso, hp.PrivateHuberRegressor)]


class Odd:
    """Something whose every conversion fails, and says what it holds."""

    def __init__(self):
        self.shape = (ROWS, 3)

    def __repr__(self):
        return WORD

    def __len__(self):
        return ROWS

    def __array__(self, *args, **kwargs):
        raise RuntimeError(f"cannot convert {WORD} and {FLOAT}")

    def __getitem__(self, index):
        raise KeyError(WORD)


def spoilt(value, dtype=object):
    table = TABLE.astype(dtype)
    table[2, 1] = value
    return table


def objects(values):
    array = np.empty(len(values), dtype=object)
    for place, value in enumerate(values):
        array[place] = value
    return array


def frame(**columns):
    return pd.DataFrame({"a": TABLE[:, 0], "b": TABLE[:, 1], "c": TABLE[:, 2]}).assign(**columns)


ENTRIES = [FLOAT, WORD, INTEGER, DAY, np.inf, np.nan, None, FLOAT + 1j, 10**400, -(2**63), b"canary-Zq9", {WORD: FLOAT}]
ENTRIES += [[WORD, FLOAT], pd.NA, pd.NaT, np.datetime64("1987-11-23"), datetime(1987, 11, 23), True, Odd(), {WORD}]
ENTRIES += [np.array([FLOAT, INTEGER]), pd.Timestamp("1987-11-23"), 1e300, ""]

RECORD = np.array([(FLOAT, WORD)] * ROWS, dtype=[("a", "f8"), ("b", "U10")])
WHOLE = [
    *(lambda value=value: value for value in ENTRIES),
    lambda: np.array(FLOAT),
    lambda: np.array(WORD),
    lambda: np.array(INTEGER),
    lambda: np.array(None),
    lambda: [FLOAT] * ROWS,
    lambda: [WORD] * ROWS,
    lambda: [[FLOAT]] * ROWS,
    lambda: [[FLOAT, 1.0], [WORD]] * 3,
    lambda: [[FLOAT], [FLOAT, 2.0, 3.0]] * 3,
    lambda: np.full((ROWS, 3, 2), FLOAT),
    lambda: np.full((2, ROWS, 3), INTEGER),
    lambda: np.full((ROWS, 3), FLOAT + 1j),
    lambda: np.full((ROWS, 3), WORD),
    lambda: np.full((ROWS, 3), b"canary-Zq9"),
    lambda: np.full((ROWS, 3), "1987-11-23", dtype="datetime64[D]"),
    lambda: np.full((ROWS, 3), INTEGER, dtype="timedelta64[s]"),
    lambda: np.full((ROWS, 3), 10**30, dtype=object),
    lambda: np.full((ROWS, 3), INTEGER, dtype=np.longdouble) ** 400,
    lambda: np.full(ROWS, INTEGER) + np.arange(ROWS),
    lambda: np.full((ROWS, 1), INTEGER),
    lambda: np.full((ROWS - 1, 3), FLOAT),
    lambda: np.full((0, 3), FLOAT),
    lambda: np.full((ROWS, 0), FLOAT),
    lambda: np.full(ROWS + 2, WORD),
    lambda: np.ma.masked_equal(np.full((ROWS, 3), FLOAT), FLOAT),
    lambda: np.matrix(np.full((ROWS, 3), FLOAT)),
    lambda: RECORD,
    lambda: RECORD.view(np.recarray),
    lambda: (value for value in [FLOAT] * ROWS),
    lambda: iter([WORD] * ROWS),
    lambda: {WORD: [FLOAT] * ROWS},
    lambda: {FLOAT: WORD},
    lambda: {FLOAT, INTEGER},
    lambda: [{WORD: FLOAT}] * ROWS,
    lambda: [WORD, FLOAT, INTEGER, None, DAY, 1],
    lambda: [WORD, 1] * 3,
    lambda: WORD * 3,
    lambda: range(INTEGER, INTEGER + ROWS),
    lambda: memoryview(np.full(ROWS, FLOAT)),
    lambda: bytearray(b"canary-Zq9"),
    lambda: frame(a=WORD),
    lambda: frame(a=[WORD, FLOAT] * 3),
    lambda: frame(a=pd.Categorical([WORD, "x"] * 3)),
    lambda: frame(a=pd.Categorical([INTEGER, 1] * 3)),
    lambda: frame(a=pd.array([INTEGER, pd.NA] * 3, dtype="Int64")),
    lambda: frame(a=pd.array([WORD, pd.NA] * 3, dtype="string")),
    lambda: frame(a=pd.to_datetime(["1987-11-23"] * ROWS)),
    lambda: frame(a=pd.arrays.SparseArray([FLOAT] * ROWS)),
    lambda: frame(a=[[FLOAT]] * ROWS),
    lambda: frame(a=FLOAT + 1j),
    lambda: frame(a=np.inf, b=FLOAT),
    lambda: frame()[["a", "b"]].assign(b=FLOAT),
    lambda: frame(a=FLOAT).set_axis(["a", "a", "b"], axis=1),
    lambda: frame(a=FLOAT).set_axis(["a", 1, "b"], axis=1),
    lambda: frame(a=FLOAT).set_axis(pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)]), axis=1),
    lambda: pd.Series([FLOAT] * ROWS),
    lambda: pd.Series([WORD, FLOAT] * 3, index=[WORD] * ROWS),
    lambda: pd.Series(pd.Categorical([WORD] * ROWS)),
    lambda: pd.Series([INTEGER, pd.NA] * 3, dtype="Int64"),
    lambda: pd.Index([WORD] * ROWS),
    lambda: pd.interval_range(INTEGER, periods=ROWS),
    lambda: scipy.sparse.csr_array(np.full((ROWS, 3), FLOAT)),
    lambda: scipy.sparse.csr_array(np.full((ROWS, 3), FLOAT + 1j)),
    lambda: scipy.sparse.coo_array(np.full((ROWS, 3), np.inf)),
    lambda: scipy.sparse.dok_array(np.full((ROWS, 1), INTEGER)),
    lambda: scipy.sparse.lil_array(np.full((2, 3), FLOAT)),
    lambda: scipy.sparse.csr_array(np.full(ROWS, FLOAT)),
    lambda: clone(CLASSIFIERS[0]),
    lambda: object,
    lambda: print,
]
tables = st.one_of(
    st.just(lambda: TABLE),
    st.sampled_from(WHOLE),
    st.sampled_from(ENTRIES).map(lambda value: lambda: spoilt(value)),
    st.sampled_from([FLOAT, np.nan, np.inf, -np.inf, 1e300]).map(lambda value: lambda: spoilt(value, np.float64)),
    st.sampled_from([FLOAT, WORD, INTEGER, None]).map(lambda value: lambda: spoilt(value).tolist()),
)


def vectors(good):
    mixed = st.lists(st.sampled_from([*ENTRIES, 0, 1, "a", "b"]), min_size=ROWS - 1, max_size=ROWS + 1)
    several = [
        [INTEGER, FLOAT, 1, 2, 3, 4],
        [[WORD]] * ROWS,
        [[FLOAT, 1.0]] * ROWS,
        np.array([WORD, FLOAT] * 3, dtype=object),
        np.array([INTEGER, None] * 3, dtype=object),
        np.array([FLOAT, np.nan] * 3),
        np.array([FLOAT, np.inf] * 3),
        pd.DataFrame({"y": [WORD, "b"] * 3}),
        pd.DataFrame({"y": [FLOAT, INTEGER] * 3}),
    ]
    return st.one_of(
        st.just(lambda: good),
        st.sampled_from(WHOLE),
        st.sampled_from(several).map(lambda value: lambda: value),
        mixed.map(lambda values: lambda: values),
        mixed.map(lambda values: lambda: objects(values)),
        mixed.map(lambda values: lambda: pd.Series(objects(values))),
    )


def words_of(error):
    """All that prints with an error, and its chain, without the source lines of the frames."""
    chain = [error, error.__cause__, error.__context__]
    told = traceback.TracebackException.from_exception(error)
    frames = "".join(line for part in told.format() for line in part.splitlines(True) if not line.startswith("    "))
    return "\n".join([frames, *(f"{one} {one!r} {one.args!r}" for one in chain if one is not None)])


def reveals(call):
    """Canaries in what a call says: its error, or its warnings."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        said = ""
        try:
            call()
        except Exception as error:
            said = words_of(error)
    said += "\n".join(str(one.message) for one in heard)
    return [canary for canary in CANARIES if canary in said], said


def silently(call):
    found, said = reveals(call)
    assert not found, said


bounded = settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)


@bounded
@given(st.sampled_from(CLASSIFIERS), tables, vectors(LABELS), vectors(USERS))
def test_classifiers_fit_silently(model, X, y, groups):
    silently(lambda: clone(model).fit(X(), y(), groups=groups()))
    silently(lambda: clone(model).fit(X(), y()))
    silently(lambda: clone(model).fit(TABLE, LABELS, groups=groups()))


@bounded
@given(st.sampled_from(REGRESSORS), tables, vectors(TARGET), vectors(USERS))
def test_regressors_fit_silently(model, X, y, groups):
    silently(lambda: clone(model).fit(X(), y(), groups=groups()))
    silently(lambda: clone(model).fit(TABLE, y()))


FITTED = [
    *(clone(model).fit(TABLE, LABELS) for model in CLASSIFIERS),
    *(clone(model).fit(TABLE, TARGET) for model in REGRESSORS),
]


@bounded
@given(st.sampled_from(FITTED), tables, vectors(LABELS))
def test_models_predict_and_score_silently(model, X, y):
    for name in ("predict", "decision_function", "predict_proba", "predict_log_proba"):
        if hasattr(model, name):
            silently(lambda name=name: getattr(model, name)(X()))
    silently(lambda: model.score(X(), y()))
    silently(lambda: model.score(TABLE, y()))
    silently(lambda: model.score(TABLE, LABELS, sample_weight=y()))


def chooser(model):
    return hp.PrivateSelect(
        model, {"alpha": [0.1]}, epsilon=2.0, delta=1e-3, mean_candidates=1.1, validation=0.2, random_state=0
    )


CHOSEN = chooser(CLASSIFIERS[0]).fit(TABLE, LABELS)


@settings(bounded, max_examples=100)
@given(st.sampled_from([CLASSIFIERS[0], REGRESSORS[0]]), tables, vectors(LABELS), vectors(USERS))
def test_a_selection_is_silent(model, X, y, groups):
    silently(lambda: chooser(model).fit(X(), y(), groups=groups()))
    silently(lambda: chooser(model).fit(TABLE, y()))
    silently(lambda: CHOSEN.predict(X()))
    silently(lambda: CHOSEN.score(X(), y()))


@bounded
@given(st.sampled_from(["squared", "logistic", "huber"]), tables, vectors(TARGET), vectors(USERS))
def test_a_problem_is_silent(loss, X, y, groups):
    silently(lambda: hp.Problem(X(), y(), loss, groups=groups()))
    silently(lambda: hp.Problem(TABLE, y(), loss, row_norm=1.0))
    silently(lambda: hp.Problem(X(), TARGET, groups=groups(), fit_intercept=True))


SCHEMA = {
    "columns": {
        "a": {"kind": "number", "low": -1.0, "high": 1.0},
        "b": {"kind": "category", "values": ["x", "y"]},
        "c": {"kind": "boolean"},
    }
}
TRANSFORMERS = [
    preprocessing.RangeScaler((-1.0, 1.0)),
    preprocessing.RangeScaler({"a": (-1, 1), "b": (-1, 1), "c": (-1, 1)}),
    preprocessing.PrivateRangeScaler((-1.0, 1.0), delta=1e-3, random_state=0),
    preprocessing.RowNormalizer(),
    preprocessing.DeclaredOneHot([["x", "y"], [0, 1], [None, "z"]]),
    preprocessing.DeclaredOneHot([["x", "y"], [0, 1], [None, "z"]], unseen="ignore"),
    preprocessing.TableEncoder(SCHEMA),
]


@bounded
@given(st.sampled_from(TRANSFORMERS), tables, vectors(USERS))
def test_transformers_are_silent(transformer, X, groups):
    silently(lambda: clone(transformer).fit_transform(X()))
    if isinstance(transformer, preprocessing.PrivateRangeScaler):
        silently(lambda: clone(transformer).fit(TABLE, groups=groups()))
    fitted = clone(transformer)
    try:
        fitted.fit(frame())
    except ValueError:  # the encoder's schema is for another table
        return
    silently(lambda: fitted.transform(X()))


@bounded
@given(tables, vectors(TARGET), vectors(USERS))
def test_private_estimates_are_silent(X, values, groups):
    spend = {"epsilon": 1.0, "delta": 1e-3, "seed": 0, "rounds": 4}
    silently(lambda: preprocessing.private_quantile(values(), 0.5, -1.0, 1.0, groups=groups(), **spend))
    silently(lambda: preprocessing.private_ranges(X(), (-1.0, 1.0), groups=groups(), **spend))
    silently(lambda: preprocessing.private_row_norm(X(), 2.0, groups=groups(), **spend))


@pytest.mark.parametrize("alone", [FLOAT, WORD, INTEGER, DAY, np.array(FLOAT)], ids=str)
def test_an_entry_alone_is_not_quoted_either(alone):
    # catches: a message of ours that shows an argument because it is a number, where the number is somebody's
    for estimator in (*CLASSIFIERS, *REGRESSORS, chooser(CLASSIFIERS[0])):
        y = LABELS if hasattr(estimator, "predict_proba") or hasattr(estimator, "class_weight") else TARGET
        silently(lambda estimator=estimator, y=y: clone(estimator).fit(alone, y))
        silently(lambda estimator=estimator: clone(estimator).fit(TABLE, alone))
        silently(lambda estimator=estimator, y=y: clone(estimator).fit(TABLE, y, groups=alone))
    for model in FITTED:
        silently(lambda model=model: model.predict(alone))
        silently(lambda model=model: model.score(TABLE, alone))
    for transformer in TRANSFORMERS:
        silently(lambda transformer=transformer: clone(transformer).fit(alone))
        silently(lambda transformer=transformer: clone(transformer).fit_transform(alone))
    for loss in ("squared", "logistic"):
        silently(lambda loss=loss: hp.Problem(alone, TARGET, loss))
        silently(lambda loss=loss: hp.Problem(TABLE, alone, loss))
        silently(lambda loss=loss: hp.Problem(TABLE, TARGET > 0, loss, groups=alone))


def test_the_canaries_would_be_seen():
    # catches: a search for canaries that no message could fail
    assert reveals(lambda: float(WORD))[0] == ["canary-Zq"]
    assert "73579513" in reveals(lambda: np.array([1.0]).reshape(2, int(FLOAT)))[0]
    assert reveals(lambda: warnings.warn(f"{INTEGER}", UserWarning, stacklevel=1))[0] == ["918273645"]


# --- what is said instead


def said_by(call, kind=ValueError):
    with pytest.raises(kind) as caught:
        call()
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    return str(caught.value)


def test_known_forms_are_said_in_full_and_others_by_kind_and_place():
    # catches: an allow-list so narrow that a wrong shape reads as a mystery, and an unknown text that passes
    model = hp.PrivateLogisticRegression(**FACTS)
    fitted = clone(model).fit(frame(), LABELS)
    assert "Expected 2D array, got 1D array instead. Reshape your data" in said_by(lambda: model.fit(TARGET, LABELS))
    assert "inconsistent numbers of samples: [6, 5]" in said_by(lambda: model.fit(TABLE, LABELS[1:]))
    assert "expecting 3 features" in said_by(lambda: FITTED[0].predict(TABLE[:, :2]))
    assert "- other" in said_by(lambda: fitted.predict(frame().rename(columns={"a": "other"})))
    assert "text where numbers are needed" in said_by(lambda: model.fit(frame(a=WORD), LABELS))
    assert "not fitted yet" in said_by(lambda: clone(model).predict(TABLE), NotFittedError)
    assert "unexpected keyword argument 'weights'" in said_by(lambda: model.fit(TABLE, LABELS, weights=1), TypeError)
    assert "Unknown label type: continuous" in said_by(lambda: model.fit(TABLE, TARGET))
    withheld = said_by(lambda: model.fit(Odd(), LABELS))
    assert re.search(r"X, y or groups cannot be used: RuntimeError in test_quoted_entries, .*Pass finite", withheld)


def test_our_own_errors_pass_and_those_of_calls_in_our_code_do_not():
    # catches: telling the two apart by the file alone, where int(entry) is as much "ours" as a raise
    source = """
def raises(value):
    raise LookupError("our own words")

def calls(value):
    return int(value)

def hands_on(value):
    try:
        return int(value)
    except ValueError:
        raise
"""
    ours = {"__name__": "hushpoint.somewhere"}
    exec(compile(source, "somewhere.py", "exec"), ours)
    assert said_by(lambda: silent_about("value")(ours["raises"])(WORD), LookupError) == "our own words"
    for name in ("calls", "hands_on"):
        assert "cannot be used: ValueError in hushpoint.somewhere" in said_by(
            lambda name=name: silent_about("value")(ours[name])(WORD)
        )


def test_own_warnings_as_errors_pass():
    # catches: a user's filter "error" that turns our words about delta into a riddle about X
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match=r"delta is 0\.4"):
            hp.PrivateLogisticRegression(**{**FACTS, "delta": 0.4}).fit(TABLE, LABELS)


def test_many_classes_are_no_reason_to_warn():
    # catches: "The number of unique classes is greater than 50% of the number of samples", which is a count of y
    X, y = RNG.uniform(size=(30, 2)), np.arange(30) // 2 * 2
    y[:5] = [101, 103, 105, 107, 109]
    model = hp.PrivateLogisticRegression(**FACTS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, y).score(X, y)
        with pytest.raises(ValueError, match="Unknown label type"):  # and not "invalid value encountered in cast"
            model.fit(X, np.where(y > 20, 1e300, 1.0))


@pytest.mark.parametrize("made", [lambda y: y[:, None], lambda y: pd.DataFrame({"y": y})], ids=["array", "frame"])
@pytest.mark.parametrize("model", [CLASSIFIERS[0], REGRESSORS[0]], ids=["classifier", "regressor"])
def test_a_column_of_targets_is_taken_as_a_vector(model, made):
    # catches: predictions compared with a column, which makes a table of n x n comparisons out of n scores
    X = RNG.uniform(-1, 1, size=(60, 2))
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    plain = chooser(model).fit(X, y)
    with pytest.warns(DataConversionWarning, match="column-vector y"):
        column = chooser(model).fit(X, made(y))
    assert column.best_score_ == plain.best_score_
    np.testing.assert_array_equal(column.best_estimator_.coef_, plain.best_estimator_.coef_)


# --- declared numbers at the ends of what a float holds


@pytest.mark.parametrize("declared", [(-1e308, 1e308), (0.0, 1e308), (0.0, 5e-324), (-np.inf, 1.0)])
def test_a_range_whose_width_is_no_safe_number_is_refused(declared):
    # catches: a width that overflows, or half of one that is 0: targets of NaN, and a model of NaN
    model = hp.PrivateLinearRegression(**{**RANGED, "target_range": declared})
    for made in (model, chooser(model)):
        assert "target_range is (" in said_by(lambda made=made: made.fit(TABLE, TARGET))


@pytest.mark.parametrize("epsilon", [1e100, 1e300])
def test_a_huge_epsilon_is_refused_by_name(epsilon):
    # catches: "mu is -3.7e+282", and an OverflowError of the conversion told as if it were about the data
    assert "epsilon is 1e+" in said_by(lambda: clone(CLASSIFIERS[0]).set_params(epsilon=epsilon).fit(TABLE, LABELS))
    assert "epsilon is 1e+" in said_by(lambda: chooser(CLASSIFIERS[0]).set_params(epsilon=epsilon).fit(TABLE, LABELS))


# --- the auditor and the oracle


SQUARED = hp.Problem(TABLE, TARGET, "squared", hp.regularizers.L2(0.1), row_norm=1.0, clip=1.0)
DECLARED = hp.Problem.declared(ROWS, 3, "squared", hp.regularizers.L2(0.1), row_norm=1.0, clip=1.0)
PLAN = hp.methods.private_admm(SQUARED, 2, 1.0, noise_std=0.1)
audit, exact_mu = hp.privacy.audit, hp.privacy.exact_mu


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: audit(PLAN, None), r"problem is None\. Pass the data"),
        (lambda: audit(PLAN, TABLE), r"problem is a ndarray of shape \(6, 3\)"),
        (lambda: audit(PLAN, None, SQUARED), "problem is None"),
        (lambda: audit(PLAN, SQUARED, TABLE), "neighbour is a ndarray"),
        (lambda: audit(PLAN, DECLARED), "problem has no rows"),
        (lambda: audit(PLAN, SQUARED, DECLARED), "neighbour has no rows"),
        (lambda: audit(None, SQUARED), "plan is None"),
        (lambda: audit(PLAN, SQUARED, claimed_plan=CLASSIFIERS[0]), "claimed_plan is a PrivateLogisticRegression"),
        (lambda: audit(PLAN, SQUARED, confidence="sure"), "confidence is 'sure'"),
        (lambda: audit(PLAN, SQUARED, confidence=1), "confidence is 1"),
        (lambda: audit(PLAN, SQUARED, seed=None), "seed is None"),
        (lambda: audit(PLAN, SQUARED, sampler=3), "sampler is 3"),
        (lambda: exact_mu(PLAN, None), "problem is None"),
        (lambda: exact_mu(None, SQUARED), "plan is None"),
        (lambda: exact_mu(PLAN, hp.Problem(TABLE[:, :2], TARGET, "squared", row_norm=1.0, clip=1.0)), "other items or"),
        (lambda: exact_mu(PLAN, SQUARED, item=1.5), r"item is 1\.5"),
        (lambda: exact_mu(PLAN, SQUARED, unit="person"), "unit is 'person'"),
        (lambda: exact_mu(PLAN, SQUARED, label_shift="far"), "label_shift is 'far'"),
        (lambda: exact_mu(PLAN, SQUARED, label_shift=[1.0, 2.0]), r"label_shift has shape \(2,\)"),
    ],
)
def test_an_audit_of_the_wrong_thing_says_which_argument(call, told):
    # catches: 'NoneType' object has no attribute 'facts'
    with pytest.raises(ValueError, match=told):
        call()
