"""Counts and scores in whole numbers: what one item moves, what the noise is, and that places do not matter.

Statistical tests run on fixed seeds and accept at p > 1e-6; each is shown to reject (p < 1e-6) a planted bug.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse
from scipy import stats

import hushpoint as hp
from hushpoint.estimators import merits
from hushpoint.estimators.scoring import BoundedScore
from hushpoint.lattice import WIDEST
from hushpoint.noise import seeded_source
from hushpoint.preprocessing import PrivateRangeScaler, private_quantile, private_ranges, private_row_norm, quantiles
from hushpoint.preprocessing.counts import Parts, WholeShares, finest_parts, whole_weights
from hushpoint.privacy.whole import whole_scale
from hushpoint.rows import ArrayRows, Store

FALSE_ALARM = 1e-6
ODD = np.array([np.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, -5e-324, 1e-310, 1.0, -1.0, 1.7e308, -1.7e308])


# --- noise


@pytest.mark.parametrize(
    "mu", [5e-324, 1e-12, 0.1, 1 / 3, 0.9999999999999999, 1.0, 1.0000000000000002, 17.3, 1e9, 1e308]
)
@pytest.mark.parametrize("squared", [1, 2, 3, 16 << 60, 2**200 + 1])
def test_the_scale_is_the_least_that_pays(mu, squared):
    # catches: a scale rounded to nearest or computed in floats, which is too small in the last digit
    scale = whole_scale(squared, mu)
    assert squared <= Fraction(mu) ** 2 * scale**2
    assert scale == 1 or squared > Fraction(mu) ** 2 * (scale - 1) ** 2


@pytest.mark.parametrize(("items", "users"), list(itertools.product([1, 1000, 10**7, 1 << 41], [False, True])))
@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
@pytest.mark.parametrize("mu", [1e-5, 0.01, 1.0, 1e6])
def test_sums_and_noise_fit_into_a_word_and_pay_for_every_round(items, users, adjacency, mu):
    # catches: sums that wrap around, noise beyond what is drawn exactly, rounds that are not paid for
    asked, rounds = [0.05, 0.95, 0.05, 0.95], 16
    parts, scale = finest_parts(items, users, asked, adjacency, rounds, mu)
    assert items * parts.one * parts.heaviest < 1 << 62
    assert 1 <= scale <= WIDEST
    # rounds and searches by hand, without the class that the code asks
    moved = [parts.one if adjacency == "replace-one" else max(q := parts.quantile(a), parts.one - q) for a in asked]
    assert rounds * sum((one * parts.heaviest) ** 2 for one in moved) <= Fraction(mu) ** 2 * scale**2
    assert (parts.heaviest > 1) is users
    assert parts.one >= 1 << 10
    assert mu < 1e-4 or items > 10**7 or abs(parts.quantile(0.05) / parts.one - 0.05) < 1e-4


@pytest.mark.parametrize(("items", "mu"), [(10, 1e-300), (1 << 60, 1.0), (10, 0.0)])
def test_what_has_no_room_is_refused(items, mu):
    with pytest.raises(ValueError, match="lattice=False"):
        finest_parts(items, False, [0.5], "replace-one", 16, mu)


@pytest.mark.parametrize("share", [1e-300, 1e-12, 0.3, 1 - 1e-16])
def test_a_quantile_is_never_nothing_and_never_everything(share):
    # catches: a search for the quantile 0, which ends at the lower bound whatever the data
    found = Parts(1 << 16, 1).quantile(share)
    assert 0 < found < 1 << 16
    assert abs(Fraction(found, 1 << 16) - Fraction(share)) <= Fraction(1, 1 << 16)


# --- what one item moves


def total(values, users, threshold, quantile, parts):
    """S(threshold) as docs/preprocessing.md writes it, user by user, in Python's numbers."""
    result = 0
    for user in set(users):
        own = [float(x) for x, who in zip(values, users, strict=True) if who == user]
        weight = parts.heaviest // len(own)
        known = [x for x in own if not math.isnan(x)]
        result += weight * (parts.one * sum(x <= threshold for x in known) - quantile * len(known))
    return result


def shares(values, users, parts):
    weights = None
    if users is not None:
        order, found = quantiles._users(users, len(values))
        weights = whole_weights(order, found, parts.heaviest)
    return WholeShares(np.asarray(values, dtype=np.float64), weights, parts.one)


@pytest.mark.parametrize("grouped", [False, True])
def test_the_whole_statistic_is_the_one_that_was_proved(grouped):
    # catches: missing values that count, "<" for "<=", -0.0 above 0.0, weights whose sum exceeds a user's share
    rng = np.random.default_rng(0)
    parts = Parts(1 << 12, 1 << 10 if grouped else 1)
    for _ in range(30):
        values = rng.choice(ODD, 40)
        users = rng.integers(0, 7, 40) if grouped else np.arange(40)
        counted = shares(values, users if grouped else None, parts)
        for threshold in (-1e300, -5e-324, -0.0, 0.0, 5e-324, 1.0, 1e300):
            found = counted.statistic(threshold, 1234)
            assert isinstance(found, int)
            assert found == total(values, users.tolist(), threshold, 1234, parts)


@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
@pytest.mark.parametrize("rows", [0, 1, 3, 64])
@pytest.mark.parametrize("asked", [(0.5,), (0.05, 0.95), (0.1, 0.9, 0.3)])
def test_no_neighbour_moves_the_counts_further_than_claimed(adjacency, rows, asked):
    # catches: a claim that is too small, in whole numbers and without any tolerance. 0 rows: records, no users
    rng = np.random.default_rng(1)
    parts = Parts(1 << 16, 1 << 6 if rows else 1)
    sizes = [max(rows, 1), 2, 5, 1]
    users = np.repeat(np.arange(4), sizes) if rows else None
    length, mine = (sum(sizes), sizes[0]) if rows else (9, 1)
    claim, worst = parts.squared_sensitivity(asked, adjacency), 0
    for trial in range(300):
        values = rng.choice(ODD, length)
        other = values.copy()
        other[:mine] = np.nan if adjacency == "zero-out" else rng.choice(ODD, mine)
        if trial == 0:
            values[:mine], other[:mine] = -math.inf, np.nan if adjacency == "zero-out" else math.inf
        thresholds = rng.choice([-1.0, -0.0, 0.0, 5e-324, 1.0], len(asked))
        before, after = (shares(one, users, parts) for one in (values, other))
        found = [parts.quantile(q) for q in asked]
        moves = [before.statistic(t, q) - after.statistic(t, q) for t, q in zip(thresholds, found, strict=True)]
        worst = max(worst, sum(move * move for move in moves))
    assert worst <= claim
    if rows in (0, 1, 64) and (adjacency == "replace-one" or len(asked) == 1):  # else weights lose up to 1/64
        assert worst == claim


def test_users_of_more_rows_than_parts_weigh_nothing_and_never_more_than_one():
    # catches: a weight rounded up, with which many rows are more than a user's share
    sizes = np.array([1, 2, 3, 1000, 1024, 1025, 5000])
    order = np.random.default_rng(2).permutation(sizes.sum())
    weights = whole_weights(order, sizes, 1 << 10)
    sums = np.add.reduceat(weights[order], np.concatenate([[0], np.cumsum(sizes)[:-1]]))
    assert sums.tolist() == [1024, 1024, 1023, 1000, 1024, 0, 0]


# --- places


@pytest.mark.parametrize("grouped", [False, True])
def test_the_order_of_the_rows_does_not_matter(grouped, monkeypatch):
    # catches: sums whose bits depend on the order, users mixed up when rows are moved. All counts, not only the answer
    released, honest = [], quantiles.search

    def spy(*known):
        found = honest(*known)
        released.append(found[1])
        return found

    monkeypatch.setattr(quantiles, "search", spy)
    rng = np.random.default_rng(3)
    values, users = rng.choice(np.append(ODD, rng.normal(size=300)), 2000), rng.integers(0, 90, 2000)
    order = rng.permutation(2000)
    spend = {"mu": 0.5, "delta": 1e-6, "seed": 4}
    for at in (slice(None), order):
        private_quantile(values[at], 0.3, -5, 5, groups=users[at] if grouped else None, **spend)
    assert released[0].dtype == np.int64
    assert np.array_equal(*released)


@pytest.mark.parametrize("width", [1, 3, 8, 57])
def test_lengths_of_rows_do_not_depend_on_storage_or_place(width, monkeypatch):
    # catches: lengths summed by a library, whose last bits change with the shape of the table
    seen, honest = [], quantiles._in_whole_numbers
    monkeypatch.setattr(
        quantiles, "_in_whole_numbers", lambda columns, *rest: seen.append(columns[0]) or honest(columns, *rest)
    )
    rng = np.random.default_rng(5)
    X = rng.normal(size=(300, width)) * (rng.random((300, width)) < 0.7)
    order = rng.permutation(300)
    spend = {"mu": 0.5, "delta": 1e-6, "seed": 4}
    for table in (X, np.asfortranarray(X), scipy.sparse.csr_array(X), scipy.sparse.csc_matrix(X), X[order]):
        assert private_row_norm(table, 50.0, **spend).guarantee.arithmetic == "whole"
    for found in seen[1:4]:
        assert np.array_equal(found, seen[0])
    assert np.array_equal(seen[4], seen[0][order])
    private_row_norm(X[17:18], 50.0, **spend)
    assert seen[5][0] == seen[0][17]


class Elsewhere(Store):
    """Rows of which only their owner knows how they come about."""

    def __init__(self, table):
        self.table = table

    @property
    def shape(self):
        return self.table.shape

    def take(self, index):
        return ArrayRows(self.table[index])


def test_the_guarantee_says_what_the_numbers_are():
    # catches: a claim about the program where floating-point noise was drawn, or of rows that nobody knows
    X, spend = np.random.default_rng(6).normal(size=(50, 2)), {"mu": 0.5, "delta": 1e-6, "seed": 4}
    for lattice, told in ((True, "whole"), (False, "real")):
        found = [
            private_quantile(X[:, 0], 0.5, -5, 5, lattice=lattice, **spend).guarantee,
            private_ranges(X, (-5, 5), lattice=lattice, **spend).guarantee,
            private_row_norm(X, 5.0, lattice=lattice, **spend).guarantee,
            PrivateRangeScaler((-5, 5), delta=1e-6, random_state=0, lattice=lattice).fit(X).guarantee_,
        ]
        assert {one.arithmetic for one in found} == {told}
        assert all(("floating-point" in str(one)) is not lattice for one in found)
        assert hp.privacy.compose(*found).arithmetic == told
    assert private_row_norm(Elsewhere(X), 5.0, **spend).guarantee.arithmetic == "real"
    with pytest.raises(ValueError, match="lattice is 1"):
        private_quantile(X[:, 0], 0.5, -5, 5, lattice=1, **spend)
    with pytest.raises(TypeError):
        PrivateRangeScaler((-5, 5), 0.1, 1e-6, (0.1, 0.9), "replace-one", (-1, 1), 16, None, 0, False)


# --- scores


def scored(bounded, predicted, true, owners=None, mu=0.7, seed=0, runs=1):
    class Known:
        def predict(self, X):
            return predicted

    score = bounded.on(np.zeros((len(true), 1)), true, owners, mu)
    return np.array([score(Known(), seeded_source(seed), run) for run in range(runs)])


def without_noise(*_known):
    return np.zeros((1, 1), dtype=np.int64)


@pytest.mark.parametrize("name", ["accuracy", "neg_mean_squared_error", "neg_mean_absolute_error"])
@pytest.mark.parametrize("rows", [1, 3, 200])
def test_no_neighbour_moves_a_score_further_than_claimed(monkeypatch, name, rows):
    # catches: a merit beyond 1 or below 0, a user who counts by rows; exact, in whole numbers
    monkeypatch.setattr(merits, "rounded_normals", without_noise)
    rng = np.random.default_rng(7)
    bounded = BoundedScore(name, None if name == "accuracy" else (-1.0, 2.0))
    owners = np.repeat(np.arange(6), [rows, 1, 4, 2, 1, 9])
    ends, worst = ODD[1:] if name != "accuracy" else np.array([0.0, 1.0]), 0.0
    for trial in range(200):
        predicted = rng.choice(ODD if name != "accuracy" else ends, len(owners))
        true = rng.choice(ends, len(owners))
        other, answer = true.copy(), predicted.copy()
        other[:rows], answer[:rows] = rng.choice(ends, rows), rng.choice(ends, rows)
        if trial == 0:
            low, high = (0.0, 1.0) if name == "accuracy" else (-1.0, 2.0)
            true[:rows] = predicted[:rows] = other[:rows] = low
            answer[:rows] = high
        with np.errstate(all="ignore"):
            both = [scored(bounded, p, t, owners)[0] * 6 * 2**20 for p, t in ((predicted, true), (answer, other))]
        assert all(0 <= one <= 6 * 2**20 and one.is_integer() for one in both)
        worst = max(worst, abs(both[0] - both[1]))
    assert worst == 2**20


@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (0.5, False), (1.3, False)])
def test_a_score_has_noise_of_the_calibrated_size(factor, passes):
    # catches: noise halved, or for one row of a user. 4 users of 50 rows; false alarm 1e-6
    true, owners = np.ones(200), np.repeat(np.arange(4), 50)
    found = scored(BoundedScore("accuracy"), true, true, owners, mu=0.7, runs=500) - 1
    law = stats.chi2(500)
    value = float((found**2).sum()) * (4 * 0.7 * factor) ** 2
    assert (float(2 * min(law.cdf(value), law.sf(value))) > FALSE_ALARM) is passes


def test_a_score_with_little_to_spend_is_coarser_and_still_pays():
    # catches: noise wider than what is drawn exactly, or cut to it
    for mu in (1e-12, 1e-9, 1e-5, 0.1, 100.0):
        bits, scale = merits.finest(mu)
        assert scale <= WIDEST
        assert 4**bits <= Fraction(mu) ** 2 * scale**2
    with pytest.raises(ValueError, match="larger epsilon"):
        merits.finest(1e-13)


# --- predictions


def cancelling(rows, width, seed=8):
    """Rows whose sums depend on the order: large entries in pairs that cancel, and small ones."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, width))
    half = width // 3
    large = 1e15 * rng.normal(size=(rows, half))
    X[:, :half], X[:, -half:] = large, -large
    return X


def fixed_sums(X, models):
    """Entry j goes to lane j mod 8, lanes are added in pairs: in Python's numbers."""
    out = np.empty((len(X), len(models)))
    for (i, row), (k, model) in itertools.product(enumerate(X.tolist()), enumerate(models.tolist())):
        lanes = [0.0] * 8
        for j, (x, w) in enumerate(zip(row, model, strict=True)):
            lanes[j % 8] += x * w
        a, b, c, d, e, f, g, h = lanes
        out[i, k] = ((a + b) + (c + d)) + ((e + f) + (g + h))
    return out


@pytest.mark.parametrize("classes", [2, 3])
def test_predictions_for_scores_are_functions_of_one_row_each(classes):
    # catches: a product of matrices, whose bits depend on the other rows; dense and sparse rows that differ
    X = cancelling(200, 40)
    y = np.arange(200) % classes
    model = hp.PrivateLogisticRegression(epsilon=1.0, delta=1e-6, row_norm=1e18, random_state=0).fit(X, y)
    model.coef_ = np.ones((1 if classes == 2 else classes, 40)) * np.arange(1, model.coef_.shape[0] + 1)[:, None]
    model.intercept_ = np.zeros(len(model.coef_))
    whole = model._scores(X, alone=True)
    assert np.array_equal(whole, fixed_sums(X, model.coef_))
    assert np.array_equal(model._scores(scipy.sparse.csr_array(X), alone=True), whole)
    assert np.array_equal(model._scores(np.asfortranarray(X)[::-1], alone=True), whole[::-1])
    for i in (0, 7, 199):
        assert np.array_equal(model._scores(X[i : i + 1], alone=True)[0], whole[i])
    expected = (whole[:, 0] > 0).astype(int) if classes == 2 else whole.argmax(axis=1)
    assert np.array_equal(model._predict_alone(X), expected)
    assert set(expected) >= {0, 1}


def test_predictions_for_scores_are_those_of_predict():
    # catches: a model without its intercept, its range or its row norm
    rng = np.random.default_rng(9)
    X = rng.normal(size=(400, 5))
    given = {"delta": 1e-6, "row_norm": 2.0, "random_state": 0}
    labels = np.array(["a", "b", "c"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    for y in (labels, np.where(labels == "a", "a", "b")):
        for kind in (hp.PrivateLogisticRegression, hp.estimators.PrivateLinearSVC):
            model = kind(epsilon=20.0, **given).fit(X, y)
            assert len(set(model.predict(X))) > 1
            assert np.array_equal(model._predict_alone(X), model.predict(X))
    model = hp.estimators.PrivateLinearRegression(epsilon=20.0, target_range=(2.0, 3.0), **given).fit(X, 2.5 + X[:, 0])
    assert model._predict_alone(X) == pytest.approx(model.predict(X), rel=1e-12)
    assert {2.0, 3.0} <= set(model._predict_alone(X).tolist())
