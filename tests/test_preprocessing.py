"""Declared preprocessing learns nothing; private estimates have the noise, the sensitivity and the accuracy they claim.

Statistical tests run on fixed seeds, accept at p > 1e-6, and are shown to reject a planted bug.
"""

import math
import pickle
import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from hushpoint.noise import source_for
from hushpoint.preprocessing import (
    DeclaredOneHot,
    PrivateRangeScaler,
    RangeScaler,
    RowNormalizer,
    TableEncoder,
    counts,
    private_quantile,
    private_ranges,
    private_row_norm,
    quantiles,
)
from hushpoint.preprocessing.counts import WholeShares
from hushpoint.privacy import compose, gdp_epsilon, gdp_mu
from hushpoint.rows import StreamedRows, store
from hushpoint.tables import Boolean, Category, Ignored, Number, Schema

FALSE_ALARM = 1e-6
SECRET = 8675.309  # a value that no message may repeat


@parametrize_with_checks(
    [RangeScaler((0, 1)), RowNormalizer(), PrivateRangeScaler((-1e3, 1e3), delta=1e-5, random_state=0)]
)
def test_the_scalers_are_scikit_learn_transformers(estimator, check):
    # catches: a parameter changed at construction, names or shapes not checked at transform
    check(estimator)


# --- RangeScaler -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranges", [[(0, 10), (-1, 1)], {"b": (-1, 1), "a": (0, 10)}, np.array([[0, 10], [-1, 1]])])
def test_ranges_are_clipped_and_mapped(ranges):
    # catches: a dictionary read in its own order, values outside the range that leave the output range
    frame = pd.DataFrame({"a": [0.0, 5.0, 10.0, 99.0], "b": [-7.0, 0.0, 0.5, 1.0]})
    scaler = RangeScaler(ranges).fit(frame)
    assert np.array_equal(scaler.transform(frame), [[-1, -1], [0, 0], [1, 0.5], [1, 1]])
    assert np.array_equal(scaler.set_params(output=(0, 1)).transform(frame)[0], [0, 0])
    assert list(scaler.get_feature_names_out()) == ["a", "b"]


def test_one_range_serves_all_columns():
    assert np.array_equal(RangeScaler((0, 4)).fit_transform([[1.0, 8.0, 2.0]]), [[-0.5, 1.0, 0.0]])


def test_declared_transformers_learn_nothing_from_the_data():
    # catches: a min-max scaler in disguise
    rng = np.random.default_rng(0)
    one, two, new = rng.normal(size=(3, 20, 2)) * np.array([1.0, 50.0, 3.0])[:, None, None]
    for made in (RangeScaler((-3, 3)), RowNormalizer(0.7)):
        assert np.array_equal(clone(made).fit(one).transform(new), clone(made).fit(two).transform(new))


def test_rounding_never_leaves_the_output_range():
    # catches: 1 + 1e-16, which is longer than the declared norm
    rng = np.random.default_rng(1)
    for low, width in rng.normal(size=(200, 2)) * 1e3:
        high = low + abs(width)
        out = RangeScaler((low, high)).fit_transform([[low], [high], [low + 0.3 * (high - low)]])
        assert np.abs(out).max() <= 1


@pytest.mark.parametrize(
    ("ranges", "told"),
    [
        (None, "ranges is not declared"),
        ((3, 3), "low below high"),
        ((0, math.inf), "finite"),
        ((0, math.nan), "finite"),
        ((True, False), "ranges"),
        ("01", "ranges"),
        ([(0, 1)], "1 pairs and X has 2 columns"),
        ({"a": (0, 1)}, "does not declare 'b'"),
        ({"a": (0, 1), "b": (0, 1), "c": (0, 1)}, "'c', which X does not have"),
        ([(0, 1), (5, 2)], "column 'b' is \\(5, 2\\)"),
    ],
)
def test_an_undeclared_range_is_an_error_that_says_what_to_declare(ranges, told):
    with pytest.raises(ValueError, match=told) as caught:
        RangeScaler(ranges).fit(pd.DataFrame({"a": [SECRET], "b": [1.0]}))
    assert str(SECRET) not in str(caught.value)


def test_names_need_a_data_frame_and_numbers_need_to_be_numbers():
    with pytest.raises(ValueError, match="no column names"):
        RangeScaler({"a": (0, 1)}).fit([[1.0]])


@pytest.mark.parametrize(
    "bad", [[["8675.309 x"]], [SECRET], SECRET, [[SECRET + 1j]], [[[SECRET]]], [[SECRET, np.nan]], [[8675 * 10**400]]]
)
def test_no_message_repeats_a_cell(bad):
    # catches: scikit-learn's own words, which quote the cell that is no number or the whole one-dimensional array
    for made in (RangeScaler((0, 1)), RowNormalizer()):
        with pytest.raises((TypeError, ValueError), match=r"X|Complex|array|argument") as caught:
            made.fit(bad)
        assert "8675" not in str(caught.value)


@pytest.mark.parametrize("bad", [pd.Series(["8675"]), {"a": ["8675"]}, ["8675"], "8675"])
def test_what_is_no_table_has_no_categories(bad):
    # catches: an index or key error of NumPy or pandas, whose key may be a cell
    with pytest.raises(ValueError, match="dimension") as caught:
        DeclaredOneHot([["a"]]).fit(bad)
    assert "8675" not in str(caught.value)


# --- DeclaredOneHot --------------------------------------------------------------------------------------------------


def test_categories_are_those_declared():
    # catches: categories learned from the data, whose absence would tell who is not in it
    frame = pd.DataFrame({"sex": ["f", "m", "f"], "grade": [3, 1, 3]})
    made = DeclaredOneHot({"grade": [1, 2, 3], "sex": ["m", "f"]}).fit(frame)
    assert made.transform(frame).tolist() == [[0, 1, 0, 0, 1], [1, 0, 1, 0, 0], [0, 1, 0, 0, 1]]
    assert list(made.get_feature_names_out()) == ["sex_m", "sex_f", "grade_1", "grade_2", "grade_3"]
    sparse = clone(made).set_params(sparse_output=True).fit_transform(frame)
    assert scipy.sparse.issparse(sparse)
    assert np.array_equal(sparse.toarray(), made.transform(frame))
    assert made.row_norm_ == math.sqrt(2)
    assert np.array_equal(pickle.loads(pickle.dumps(made)).transform(frame), made.transform(frame))


def test_unseen_and_missing_categories():
    # catches: a message that quotes the unseen value; NaN, None and NA treated differently
    frame = pd.DataFrame({"illness": ["flu", "secret", None]})
    with pytest.raises(ValueError, match="column 'illness'") as caught:
        DeclaredOneHot([["flu", "cold"]]).fit_transform(frame)
    assert "secret" not in str(caught.value)
    ignoring = DeclaredOneHot([["flu", None]], unseen="ignore").fit(frame)
    assert ignoring.transform(frame).tolist() == [[1, 0], [0, 0], [0, 1]]
    for spelling in (math.nan, pd.NA, None):
        assert ignoring.transform(pd.DataFrame({"illness": np.array([spelling], dtype=object)})).tolist() == [[0, 1]]
    assert DeclaredOneHot([[1.0, None]]).fit_transform([[1.0], [math.nan]]).tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("categories", "told"),
    [
        (None, "categories is not declared"),
        ([["a"], ["b"]], "2 entries and X has 1 columns"),
        (["ab"], "Pass a list"),
        ([[]], "at least one"),
        ([["a", "a"]], "twice"),
        ({"y": ["a"]}, "names the columns"),
    ],
)
def test_undeclared_categories_are_errors(categories, told):
    with pytest.raises(ValueError, match=told):
        DeclaredOneHot(categories).fit(pd.DataFrame({"x": ["a"]}))
    with pytest.raises(NotFittedError):
        DeclaredOneHot([["a"]]).transform([["a"]])


# --- RowNormalizer ---------------------------------------------------------------------------------------------------


def test_long_rows_are_shortened_and_short_ones_kept():
    # catches: normalising every row, which throws away lengths; rows at the edge of floats that escape
    X = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [1e300, 1e300], [1e-320, 0.0]])
    out = RowNormalizer(2.0).fit_transform(X)
    lengths = np.hypot(out[:, 0], out[:, 1])
    assert lengths.max() <= 2.0
    assert lengths[[0, 3]] == pytest.approx([2.0, 2.0])
    assert np.array_equal(out[1:3], X[1:3])
    sparse = RowNormalizer(2.0).fit_transform(scipy.sparse.csr_array(X))
    assert np.array_equal(sparse.toarray(), out)
    assert X[0, 0] == 3.0  # the caller's table is not changed


# --- TableEncoder ----------------------------------------------------------------------------------------------------

SCHEMA = Schema(
    {
        "age": Number(0, 100, missing="indicator"),
        "income": Number(-10, 30),
        "job": Category(("a", "b", "1"), unseen="ignore", missing="indicator"),
        "smoker": Boolean(missing="indicator"),
        "note": Ignored(),
        "ill": Category(("no", "yes")),
        "id": Ignored(),
    },
    target="ill",
    groups="id",
    missing_values=("", "NA"),
)
TABLE = {
    "age": ["25", "NA", "200"],
    "income": ["10", "30", "-inf"],
    "job": ["1", "zzz", ""],
    "smoker": ["Yes", "", "0"],
}
NAMES = ["age", "age (missing)", "income", "job=a", "job=b", "job=1", "job (missing)", "smoker", "smoker (missing)"]
ENCODED = [[-0.5, 0, 0, 0, 0, 1, 0, 1, 0], [0, 1, 1, 0, 0, 0, 0, 0, 1], [1, 0, -1, 0, 0, 0, 1, -1, 0]]


def test_a_table_is_encoded_as_declared():
    # catches: a block off by one, a missing number that keeps a value, infinity that is not clipped
    encoder = TableEncoder(SCHEMA).fit(TABLE)
    assert encoder.transform(TABLE).tolist() == ENCODED
    assert list(encoder.get_feature_names_out()) == NAMES
    assert encoder.row_norm_ == 2.0  # four columns
    assert clone(encoder).set_params(sparse_output=True).fit().transform(TABLE).toarray().tolist() == ENCODED
    assert pickle.loads(pickle.dumps(encoder)).transform(TABLE).tolist() == ENCODED
    assert TableEncoder(SCHEMA.to_dict()).fit().transform(TABLE).tolist() == ENCODED


def test_texts_and_typed_columns_are_encoded_alike():
    # catches: 1.0 that is not the category 1, NaN and None that are not missing
    frame = pd.DataFrame(
        {
            "age": pd.array([25, None, 200], dtype="Int64"),
            "income": [10.0, 30.0, -math.inf],
            "job": np.array([1.0, "zzz", None], dtype=object),
            "smoker": np.array([True, None, False], dtype=object),
        }
    )
    assert TableEncoder(SCHEMA).fit_transform(frame).tolist() == ENCODED
    assert TableEncoder(SCHEMA).set_output(transform="pandas").fit_transform(frame).columns.tolist() == NAMES


def random_table(rng, rows):
    return {
        "age": rng.choice(["", "0", "100", "-5", "1e400", "50.0"], rows).tolist(),
        "income": (rng.standard_cauchy(rows) * 100).tolist(),
        "job": rng.choice(["a", "b", "1", "other", ""], rows).tolist(),
        "smoker": rng.choice(["true", "FALSE", "NA"], rows).tolist(),
    }


@pytest.mark.parametrize("options", [{}, {"scale": "unit"}, {"row_norm": 1.3}, {"scale": "unit", "row_norm": 0.4}])
@pytest.mark.parametrize("sparse_output", [False, True])
def test_the_declared_row_norm_holds_for_every_row_and_is_attained(options, sparse_output):
    # catches: a bound that forgets a column (too small: not private) or counts features instead (too large: noise)
    encoder = TableEncoder(SCHEMA, sparse_output=sparse_output, **options).fit()
    table = random_table(np.random.default_rng(2), 2000)
    X = encoder.transform(table)
    X = X.toarray() if sparse_output else X
    lengths = np.linalg.norm(X, axis=1)
    assert lengths.max() <= encoder.row_norm_ * (1 + 1e-15)
    assert lengths.max() >= encoder.row_norm_ * (1 - 1e-15)
    # every row by itself, as privacy needs: no row depends on another
    alone = encoder.transform({name: cells[7:8] for name, cells in table.items()})
    assert np.array_equal((alone.toarray() if sparse_output else alone)[0], X[7])


def test_unit_scale_is_the_same_table_divided_by_its_bound():
    table = random_table(np.random.default_rng(3), 50)
    plain, unit = (TableEncoder(SCHEMA, scale=scale).fit() for scale in ("columns", "unit"))
    assert unit.row_norm_ == 1.0
    # two numbers, a category and a boolean: 1/3 + 1/3 + 1 + 1
    assert plain.typical_row_norm_ == pytest.approx(math.sqrt(8 / 3))
    assert unit.typical_row_norm_ == pytest.approx(math.sqrt(8 / 3) / 2)
    assert TableEncoder(SCHEMA, row_norm=0.3).fit().typical_row_norm_ == 0.3
    assert np.allclose(unit.transform(table) * plain.row_norm_, plain.transform(table), rtol=1e-15)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"income": ["", "1", "2"]}, "column 'income' has missing cells"),
        ({"income": ["secret", "1", "2"]}, "column 'income' has cells that are not numbers"),
        ({"smoker": ["secret", "1", "0"]}, "column 'smoker' has cells that are not yes/no"),
        ({"income": None}, "lacks 'income'"),
        ({"income": ["1"]}, "different lengths"),
    ],
)
def test_bad_cells_are_named_by_column_and_not_by_value(change, told):
    table = {name: cells for name, cells in {**TABLE, **change}.items() if cells is not None}
    with pytest.raises(ValueError, match=told) as caught:
        TableEncoder(SCHEMA).fit().transform(table)
    assert "secret" not in str(caught.value)
    strict = Schema({"job": Category(("a",))})
    with pytest.raises(ValueError, match="column 'job' has categories that are not declared") as caught:
        TableEncoder(strict).fit().transform({"job": ["secret"]})
    assert "secret" not in str(caught.value)


def test_an_encoder_needs_a_schema_and_columns_with_names():
    with pytest.raises(ValueError, match="load_schema"):
        TableEncoder().fit()
    with pytest.raises(ValueError, match="names"):
        TableEncoder(SCHEMA).fit(np.zeros((2, 4)))
    with pytest.raises(ValueError, match="the range of 'x' to be learned"):
        TableEncoder(Schema({"x": Number(-1e9, 1e9, learn=True)})).fit()
    with pytest.raises(NotFittedError):
        TableEncoder(SCHEMA).transform(TABLE)


# --- private quantiles: sensitivity ----------------------------------------------------------------------------------


def statistic(values, users, threshold, quantile):
    """S(threshold) as docs/preprocessing.md writes it, user by user."""
    total = 0.0
    for user in np.unique(users):
        own = values[users == user]
        known = own[~np.isnan(own)]
        total += ((known <= threshold).sum() - quantile * len(known)) / len(own)
    return total


def test_the_statistic_is_the_one_that_was_proved():
    # catches: missing values that count, users that count by their rows, "<" for "<="
    rng = np.random.default_rng(4)
    values = rng.integers(0, 5, 60).astype(float)
    values[rng.random(60) < 0.2] = np.nan
    users = rng.integers(0, 9, 60)
    for groups in (None, users):
        shares = quantiles._Shares(values, quantiles._user_weights(groups, 60))
        for threshold in (-1.0, 0.0, 2.0, 2.5, 4.0):
            told = statistic(values, np.arange(60) if groups is None else users, threshold, 0.3)
            assert shares.statistic(threshold, 0.3) == pytest.approx(told, abs=1e-12)


@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("asked", [(0.5,), (0.05, 0.95), (0.1, 0.9, 0.3)])
def test_the_worst_neighbour_moves_the_counts_as_far_as_claimed(adjacency, grouped, asked):
    # catches: a claim that is too small (not private), or so large that noise is wasted
    rng = np.random.default_rng(5)
    claim, worst = quantiles.sensitivity(asked, adjacency), 0.0
    users = np.repeat(np.arange(5), 3) if grouped else np.arange(15)
    thresholds = rng.permutation(np.linspace(-0.5, 0.5, len(asked)))  # in any order: noise may cross the searches
    for trial in range(400):
        values = rng.choice([-1.0, 1.0, 0.0, np.nan], 15)
        other = values.copy()
        mine = users == 0
        # zero-out: the slot stays and counts nothing; replace-one: anything at all
        other[mine] = np.nan if adjacency == "zero-out" else rng.choice([-1.0, 1.0, 0.0, np.nan], mine.sum())
        if trial == 0 and adjacency == "replace-one":
            values[mine], other[mine] = -1.0, 1.0
        both = []
        for data in (values, other):
            shares = quantiles._Shares(data, quantiles._user_weights(users if grouped else None, 15))
            both.append([shares.statistic(t, q) for t, q in zip(thresholds, asked, strict=True)])
        worst = max(worst, float(np.linalg.norm(np.subtract(*both))))
    assert worst <= claim * (1 + 1e-12)
    # attained exactly, except that one value cannot lie on the far side of all thresholds at once under zero-out
    assert worst >= claim * (1 - 1e-12) if adjacency == "replace-one" or len(asked) == 1 else worst >= 0.7 * claim


# --- private quantiles: noise ----------------------------------------------------------------------------------------


WHOLE = 1000  # parts of one: noise of 2.5 is 2,500 of them, whose rounding no test here can see


def released_noise(std, rounds=40, searches=200, seed=3, factor=1.0, lattice=True):
    """What a search adds to its counts, on data without any value: every statistic is 0."""
    missing = np.full(3, np.nan)
    nothing = WholeShares(missing, None, WHOLE) if lattice else quantiles._Shares(missing, None)
    grids = [quantiles.Grid(0.0, 1.0, 1e-9, rounds)] * searches
    size = round(std * factor * WHOLE) if lattice else std * factor
    asked = [WHOLE // 2 if lattice else 0.5] * searches
    counted = quantiles._Counted([nothing] * searches, asked, size, lattice)
    released = quantiles.search(counted, grids, source_for(seed))[1]
    return released / WHOLE if lattice else released


def two_sided(law, value):
    return float(2 * min(law.cdf(value), law.sf(value), 0.5))


@pytest.mark.parametrize("lattice", [True, False])
@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (0.5, False), (1.2, False), (math.sqrt(2), False)])
def test_every_count_has_fresh_normal_noise_of_the_calibrated_size(factor, passes, lattice):
    # catches: noise halved, or a variance used as a standard deviation
    noise = released_noise(2.5, factor=factor, lattice=lattice)
    p_value = two_sided(stats.chi2(noise.size), float((noise**2).sum()) / 2.5**2)
    assert (p_value > FALSE_ALARM) is passes
    p_value = float(stats.kstest(noise.ravel(), stats.norm(scale=2.5).cdf).pvalue)  # the whole law, not its size only
    assert (p_value > FALSE_ALARM) is passes


@pytest.mark.parametrize("lattice", [True, False])
def test_noise_is_not_used_twice(lattice):
    # catches: one draw for all rounds or all searches, which a difference of two counts takes away
    noise = released_noise(1.0, lattice=lattice)
    for one, two in ((noise[:-1], noise[1:]), (noise[:, :-1], noise[:, 1:])):
        correlation = float((one * two).sum() / math.sqrt((one**2).sum() * (two**2).sum()))
        assert two_sided(stats.norm(scale=1 / math.sqrt(one.size)), correlation) > FALSE_ALARM
    repeated = np.repeat(noise[:1], 40, axis=0)
    correlation = float((repeated[:-1] * repeated[1:]).sum() / (repeated[:-1] ** 2).sum())
    assert two_sided(stats.norm(scale=1 / math.sqrt(repeated[1:].size)), correlation) < FALSE_ALARM
    assert not np.array_equal(*(released_noise(1.0, seed=None, lattice=lattice) for _ in range(2)))


def audited(monkeypatch, factor, adjacency="replace-one", runs=3000, mu=1.5, lattice=True):
    """A lower bound, at confidence 1 - 1e-6, on the mu of one-round searches on two neighbouring data sets."""
    if factor != 1.0:
        honest, scale = quantiles.sensitivity, counts.whole_scale
        monkeypatch.setattr(quantiles, "sensitivity", lambda *known: factor * honest(*known))
        monkeypatch.setattr(counts, "whole_scale", lambda squared, mu: scale(round(factor**2 * squared), mu))
    worlds = [np.array([0.0, 0.0, 1.0, 1.0, x]) for x in (0.0, 1.0 if adjacency == "replace-one" else np.nan)]
    options = {"mu": mu, "delta": 1e-6, "adjacency": adjacency, "rounds": 1, "lattice": lattice}
    lows = [
        sum(
            private_quantile(world, 0.5, 0.0, 1.0, seed=seed + 10**6 * k, **options).value < 1.0 for seed in range(runs)
        )
        for k, world in enumerate(worlds)
    ]
    # the release is a threshold of the noisy count: exact binomial bounds on its two error rates
    positive = stats.beta.ppf(FALSE_ALARM / 2, lows[0], runs - lows[0] + 1)
    negative = stats.beta.ppf(1 - FALSE_ALARM / 2, lows[1] + 1, runs - lows[1])
    return float(stats.norm.ppf(positive) - stats.norm.ppf(negative))


@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
@pytest.mark.parametrize(("factor", "caught"), [(1.0, False), (0.5, True)])
@pytest.mark.parametrize("lattice", [True, False])
def test_an_attacker_who_sees_the_answers_learns_what_is_claimed_and_no_more(
    monkeypatch, adjacency, factor, caught, lattice
):
    # catches: halved noise, end to end through the public function
    found = audited(monkeypatch, factor, adjacency, lattice=lattice)
    assert (found > 1.5) is caught
    assert found > 0.7 * 1.5 / factor  # the audit has power


# --- private quantiles: what they return -----------------------------------------------------------------------------


@pytest.mark.parametrize("quantile", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("bounds", [(-1e6, 1e6), (0.0, 1e4)])
def test_quantiles_are_as_accurate_as_stated(quantile, bounds):
    # catches: a search that walks to a wrong side, a grid too coarse, noise far above its bound
    values = np.random.default_rng(6).lognormal(3, 1, 4000)
    mu, rounds = 0.5, 16
    allowed = math.sqrt(rounds) / mu * math.sqrt(2 * math.log(rounds / FALSE_ALARM))
    assert allowed < 0.02 * 4000 + 10
    for seed in range(10):
        found = private_quantile(values, quantile, *bounds, mu=mu, delta=1e-6, seed=seed).value
        rank = (values <= found).sum() - quantile * 4000
        cell = 0.002 * found  # 2^16 cells over about 41 units of asinh
        slack = (np.abs(values - found) <= cell).sum()
        assert abs(rank) <= allowed + slack
    assert found == pytest.approx(np.quantile(values, quantile), rel=0.25)


def test_without_noise_the_search_finds_the_quantile():
    # catches: an off-by-one in the bisection, hidden by noise elsewhere
    values = np.random.default_rng(7).normal(size=999)
    for quantile in (0.01, 0.37, 0.5, 0.99):
        found = private_quantile(values, quantile, -10, 10, mu=1e9, delta=1e-6, seed=0, rounds=40).value
        assert found == pytest.approx(np.quantile(values, quantile, method="inverted_cdf"), abs=1e-6)
    assert private_quantile([5.0], 0.5, 0, 1, mu=1e9, delta=1e-6, seed=0).value == 1.0  # outside: the bound
    assert private_quantile([-5.0], 0.5, 0, 1, mu=1e9, delta=1e-6, seed=0, rounds=50).value == pytest.approx(0)


def test_missing_values_count_nowhere_and_users_count_once():
    # catches: NaN counted as large; one user with many rows who decides alone
    values = np.array([1.0, 2.0, 3.0] + [np.nan] * 50)
    assert private_quantile(values, 0.5, 0, 10, mu=1e9, delta=1e-6, seed=0).value == pytest.approx(2, rel=1e-2)
    loud, users = np.array([1.0, 2.0, 3.0] + [9.0] * 50), [0, 1, 2] + [3] * 50
    given = {"mu": 1e9, "delta": 1e-6, "seed": 0}
    assert private_quantile(loud, 0.5, 0, 10, **given).value == pytest.approx(9, rel=1e-2)
    assert private_quantile(loud, 0.7, 0, 10, groups=users, **given).value == pytest.approx(3, rel=1e-2)


def test_the_guarantee_is_the_budget_and_composes():
    # catches: an epsilon above what was asked, a mu that does not belong to it, rows called users
    value, guarantee = private_quantile(np.arange(50.0), 0.5, 0, 50, epsilon=0.7, delta=1e-6, seed=1)
    assert 0 < value <= 50
    assert guarantee.mu == gdp_mu(0.7, 1e-6)
    assert 0.7 * (1 - 1e-9) < guarantee.epsilon <= 0.7
    assert (guarantee.unit, guarantee.adjacency, guarantee.basis) == ("record", "replace-one", "proved")
    assert "docs/preprocessing.md" in str(guarantee)
    assert "not for release" in str(guarantee)
    both = compose(guarantee, guarantee)
    assert both.mu == pytest.approx(guarantee.mu * math.sqrt(2))
    assert both.epsilon == gdp_epsilon(both.mu, 1e-6)
    options = {"mu": 1.0, "delta": 1e-6, "groups": np.arange(50) // 2, "adjacency": "zero-out"}
    users = private_quantile(np.arange(50.0), 0.5, 0, 50, **options).guarantee
    assert (users.unit, users.adjacency, users.mu) == ("user", "zero-out", 1.0)
    assert "operating system" in str(users)


@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
@pytest.mark.parametrize("columns", [1, 4])
@pytest.mark.parametrize("lattice", [True, False])
def test_the_noise_pays_for_every_column_quantile_and_round(monkeypatch, adjacency, columns, lattice):
    # catches: columns or rounds that are not paid for
    seen = []
    honest = quantiles.search
    monkeypatch.setattr(quantiles, "search", lambda *known: seen.append(known[0]) or honest(*known))
    X = np.random.default_rng(8).normal(size=(30, columns))
    asked = {"quantiles": (0.2, 0.8), "mu": 0.5, "delta": 1e-6, "adjacency": adjacency, "rounds": 9, "seed": 0}
    private_ranges(X, (-9, 9), **asked, lattice=lattice)
    moved = 1.0 if adjacency == "replace-one" else 0.8
    needed = moved * math.sqrt(2 * columns) * math.sqrt(9) / 0.5
    std = seen[0].std / seen[0].columns[0].one if lattice else seen[0].std
    assert seen[0].whole is lattice
    assert needed * (1 - 1e-9) <= std <= needed * (1 + 1e-9)  # 0.2 is not a whole number of parts


def test_ranges_are_found_and_never_empty():
    # catches: columns mixed up, a constant column whose range has no width, crossed searches
    rng = np.random.default_rng(9)
    frame = pd.DataFrame({"a": rng.uniform(0, 1, 5000), "b": rng.normal(500, 10, 5000), "c": np.full(5000, 3.0)})
    found = private_ranges(frame, {"b": (0, 1e6), "a": (-1e6, 1e6), "c": (-1e6, 1e6)}, mu=1.0, delta=1e-6, seed=1)
    assert found.value[:2] == pytest.approx(np.quantile(frame.to_numpy()[:, :2], [0.05, 0.95], axis=0).T, rel=0.2)
    assert found.value[2] == pytest.approx([3, 3], rel=0.01)
    assert (found.value[:, 0] < found.value[:, 1]).all()
    for seed in range(30):  # far more noise than data: anything may come out but an empty range
        noisy = private_ranges(frame[:20], (-1e6, 1e6), mu=0.01, delta=1e-6, seed=seed).value
        assert (noisy[:, 0] < noisy[:, 1]).all()
        assert np.abs(noisy).max() <= 1e6


def test_a_row_norm_is_kept_by_the_stated_share_of_rows():
    X = np.random.default_rng(10).normal(size=(3000, 5))
    lengths = np.linalg.norm(X, axis=1)
    for table in (X, scipy.sparse.csr_array(X)):
        found = private_row_norm(table, 1e4, quantile=0.8, mu=1.0, delta=1e-6, seed=2)
        assert (lengths <= found.value).mean() == pytest.approx(0.8, abs=0.02)
    assert private_row_norm(np.full((9, 2), 1e200), 5.0, mu=1e9, delta=1e-6, seed=0).value == 5.0


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16])
@pytest.mark.parametrize("groups", [None, np.arange(3000) % 700])
def test_a_row_norm_is_the_same_from_memory_from_disk_and_in_single_precision(tmp_path, monkeypatch, dtype, groups):
    # catches: tables on disk or in single precision refused, read whole, or rounded differently
    X = (np.random.default_rng(10).normal(size=(3000, 5)) * 1000).astype(dtype)
    np.save(tmp_path / "X.npy", X)
    asked = {"largest": 1e6, "quantile": 0.8, "mu": 1.0, "delta": 1e-6, "groups": groups, "seed": 2}
    expected = private_row_norm(X.astype(np.float64), **asked).value
    assert private_row_norm(X, **asked).value == expected
    sizes, honest = [], StreamedRows.take
    monkeypatch.setattr(store, "_NUMBERS", 2000)  # 400 rows at a time
    monkeypatch.setattr(StreamedRows, "take", lambda rows, at: sizes.append(at.stop - at.start) or honest(rows, at))
    assert private_row_norm(np.load(tmp_path / "X.npy", mmap_mode="r"), **asked).value == expected
    assert sizes == 2 * [*[400] * 7, 200]  # are they numbers, and how long


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"mu": None}, "neither epsilon nor mu"),
        ({"epsilon": 1.0}, "both epsilon and mu"),
        ({"mu": 0.0}, "mu is 0.0"),
        ({"mu": math.inf}, "mu is inf"),
        ({"mu": None, "epsilon": math.inf}, "epsilon is inf"),
        ({"delta": 0.0}, "delta is 0.0"),
        ({"quantile": 1.0}, "quantile is 1.0"),
        ({"quantile": 0}, "quantile is 0"),
        ({"low": 1.0, "high": 1.0}, "low below high"),
        ({"high": math.inf}, "finite"),
        ({"rounds": 0}, "rounds is 0"),
        ({"rounds": 60}, "rounds is 60"),
        ({"smallest": 0.0}, "smallest is 0.0"),
        ({"adjacency": "add-one"}, "adjacency"),
        ({"values": [[SECRET]]}, "values has shape"),
        ({"values": ["secret"]}, "not numbers"),
        ({"values": []}, "values has shape"),
        ({"groups": [1]}, "groups"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_arguments_are_named(change, told):
    arguments = {"values": [SECRET, 1.0], "quantile": 0.5, "low": 0.0, "high": 1.0, "mu": 1.0, "delta": 1e-6} | change
    with pytest.raises(ValueError, match=told) as caught:
        private_quantile(**arguments)
    assert str(SECRET) not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_the_document_s_example_runs(capsys):
    # catches: an example that was never run, or that the code has outgrown
    page = (Path(__file__).parents[1] / "docs" / "preprocessing.md").read_text()
    for block in re.findall(r"^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL):
        exec(compile(block, "docs/preprocessing.md", "exec"), {})
    assert "epsilon = 0.1" in capsys.readouterr().out


# --- PrivateRangeScaler ----------------------------------------------------------------------------------------------


def test_a_private_scaler_learns_ranges_once_and_says_what_it_spent():
    # catches: a transform that reads the new data, a guarantee that survives cloning
    rng = np.random.default_rng(11)
    X = np.column_stack([rng.uniform(0, 100, 4000), rng.uniform(-1, 1, 4000)])
    scaler = PrivateRangeScaler((-1e6, 1e6), epsilon=1.0, delta=1e-6, random_state=0)
    with pytest.raises(NotFittedError):
        scaler.transform(X)
    pipeline = make_pipeline(scaler, RowNormalizer(1.0)).fit(X)
    fitted = pipeline[0]
    assert fitted.ranges_ == pytest.approx(np.array([[5.0, 95.0], [-0.9, 0.9]]), abs=3, rel=0.1)
    assert fitted.guarantee_.epsilon <= 1.0
    assert np.abs(fitted.transform(X)).max() == 1.0
    assert np.linalg.norm(pipeline.transform(X * 50), axis=1).max() <= 1.0
    assert not hasattr(clone(fitted), "guarantee_")
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).transform(X), fitted.transform(X))
    assert np.isnan(fitted.transform([[np.nan, 0.0]])[0, 0])
    by_user = clone(fitted).fit(X, groups=np.arange(4000) // 4)
    assert by_user.guarantee_.unit == "user"


def test_a_private_scaler_needs_declared_bounds_and_delta():
    with pytest.raises(ValueError, match="bounds is not declared"):
        PrivateRangeScaler(delta=1e-6).fit([[1.0]])
    with pytest.raises(ValueError, match="delta is not declared"):
        PrivateRangeScaler((0, 1)).fit([[1.0]])


def test_no_warning_tells_of_an_entry_beyond_the_range_of_numbers() -> None:
    # Catches: "overflow encountered in cast", which comes exactly if somebody's value is beyond 1.8e308
    values = np.array([[1.0], [2.0], [3.0]], dtype=np.longdouble) * np.longdouble(10) ** 400
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        private_ranges(values, [(0.0, 1.0)], mu=1.0, delta=1e-6)
        with pytest.raises(ValueError, match="infinite"):
            private_row_norm(values, 10.0, mu=1.0, delta=1e-6)
