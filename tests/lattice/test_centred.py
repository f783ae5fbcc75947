"""Means of whole numbers, and rows centred by them: exact sums, lengths rounded up, messages within their bound."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import hushpoint as hp
from hushpoint.estimators import planner
from hushpoint.estimators.metric import Metric, Moments, believed_centre
from hushpoint.operators import lattice_moments
from hushpoint.operators.lattice_gradient import GradientGrid, LatticeGradient
from hushpoint.operators.lattice_moments import LatticeMeans
from hushpoint.problem import Problem
from hushpoint.rows import ArrayRows, Mapped, RowGrid, SparseRows, Turn, integer_rows
from hushpoint.rows.turn import DIAGONAL_BITS

NORM = 2.0
CONSTANT = 0.5


def some_rows(rng: np.random.Generator, count: int, width: int) -> Any:
    """Rows of every kind, none longer than declared: ordinary, zero, tiny, along an axis, sparse."""
    rows = rng.normal(size=(count, width))
    kind = rng.integers(6, size=count)
    rows[kind == 1] = 0.0
    rows[kind == 2] *= 1e-130
    rows[kind == 3] = -np.eye(width)[0]
    rows[kind == 4] *= rng.random((int((kind == 4).sum()), width)) < 0.4
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows * np.where(lengths > 0, NORM * rng.random((count, 1)) ** 0.2 / np.maximum(lengths, 1e-150), 0.0)


# --- means


def mean_total(operator: LatticeMeans, problem: Problem) -> list[int]:
    rows = operator.prepare(problem.rows)
    found = operator.move(rows, slice(None), np.zeros((problem.items, 0)), np.zeros(1), 1.0, None, None)[1]
    assert found.dtype == np.int64
    return [int(entry) for entry in found]


@pytest.mark.parametrize("users", [False, True], ids=["records", "users"])
def test_means_are_those_of_pythons_integers(users: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the store, the order and the chunks. Would catch: a partial sum that rounds, rows that are not cut."""
    rng = np.random.default_rng(0)
    X, owners = some_rows(rng, 200, 6), np.sort(rng.integers(40, size=200)) if users else None
    np.save(tmp_path / "rows.npy", X)

    def made(features: Any, groups: Any = owners) -> Problem:
        return Problem(features, np.zeros(200), row_norm=NORM, groups=groups)

    whole = made(X)
    operator = LatticeMeans(whole.facts, CONSTANT)
    grid, rows = operator.grid, operator.prepare(whole.rows)
    shares = np.repeat((1 << grid.shares) // rows.counts, rows.counts)
    expected = [0] * 6
    for row, share in zip(rows.store[:], shares, strict=True):
        for j, entry in enumerate(row):
            expected[j] += int(share) * math.trunc(entry / 2**grid.coarse)
    assert any(expected)
    assert mean_total(operator, whole) == expected
    order = rng.permutation(200)
    for features, groups in (
        (X[order], None if owners is None else owners[order]),
        (scipy.sparse.csr_array(X), owners),
        (np.load(tmp_path / "rows.npy", mmap_mode="r"), owners),
    ):
        assert mean_total(operator, made(features, groups)) == expected
    monkeypatch.setattr(lattice_moments, "_CHUNK", 7)
    assert mean_total(operator, whole) == expected
    assert mean_total(operator, made(scipy.sparse.csr_array(X))) == expected


@pytest.mark.parametrize("items", [2, 10**5, 10**12])
@pytest.mark.parametrize("rows", [None, "private"], ids=["records", "users"])
def test_sums_of_means_fit_into_64_bits(items: int, rows: Any) -> None:
    """Of as many items as there may be, each with the longest row and all its shares; and chunks of them into 53."""
    facts = Problem.declared(items, 3, row_norm=NORM).facts
    object.__setattr__(facts, "rows_per_item", rows)
    operator = LatticeMeans(facts, CONSTANT)
    grid = operator.grid
    longest = math.isqrt(grid.rows.most >> (2 * grid.coarse)) + 1
    assert items * (longest << grid.shares) <= 1 << 62
    shares = np.full(40_000, 1 << grid.shares)
    for place in grid.chunks(shares):
        assert sum(map(int, shares[place])) * longest <= 1 << 53


def test_the_answer_is_the_mean() -> None:
    problem = Problem(some_rows(np.random.default_rng(1), 50, 4), np.zeros(50), row_norm=NORM)
    operator = LatticeMeans(problem.facts, CONSTANT)
    found = operator.combine(np.zeros(4), np.array(mean_total(operator, problem)), None, 1.0)
    np.testing.assert_allclose(found, problem.rows.store[:].mean(axis=0), atol=1e-5)


def test_means_are_believed_where_noise_alone_would_hardly_reach() -> None:
    rng = np.random.default_rng(2)
    assert np.count_nonzero(believed_centre(rng.normal(size=10_000), 1.0)) <= 3
    believed = believed_centre(np.array([0.0, 10.0, -10.0, 0.5]), 1.0)
    np.testing.assert_array_equal(believed, [0.0, 10.0, -10.0, 0.0])


# --- a matrix with a column


def turns(rng: np.random.Generator, width: int) -> list[Turn]:
    """Of ordinary and extreme scales, with columns of all sizes; entries up to the last bit."""
    found = []
    for spread, column in ((0, 1.0), (0, 40.0), (6, 1.0), (6, 1e-6), (12, 1.0)):
        weights = 10.0 ** rng.uniform(-spread / 2, spread / 2, size=width + 1)
        moved = np.append(column / math.sqrt(width) * rng.normal(size=width) * weights[:-1], 0.0)
        found.append(Turn.of(weights * 10.0 ** rng.integers(-30, 30), moved))
        found.append(Turn.of(weights, moved))
    full = np.full(width + 1, 1 - 2.0**-40)
    return [*found, Turn.of(full, np.append(full[:-1], 0.0)), Turn.of(full, np.append(-full[:-1], 0.0))]


def test_a_turned_and_centred_sum_is_that_of_pythons_integers() -> None:
    """Would catch: the column of a wrong sign, a carry between the halves that is lost, an overflow."""
    rng = np.random.default_rng(0)
    extremes = np.array([0, 1, -1, (1 << 31) - 1, 1 << 31, -(1 << 31), (1 << 61) - 1, -(1 << 61), 1 << 60])
    for width in (1, 4, 30):
        for turn in turns(rng, width):
            assert turn.column is not None
            assert max(np.abs(turn.matrix).max(), np.abs(turn.column).max()) <= 1 << (DIAGONAL_BITS - 1)
            for total in (
                rng.integers(-(1 << 61), 1 << 61, size=width + 1),
                rng.choice(extremes, size=width + 1),
                np.full(width + 1, -(1 << 61)),
                np.append(np.full(width, (1 << 61) - 1), -(1 << 61)),
            ):
                for shift in (31, 40, 61):
                    exact = [
                        (int(d) * int(t) + int(h) * int(total[-1])) >> shift
                        for d, h, t in zip(turn.matrix, turn.column, total, strict=True)
                    ]
                    assert [int(entry) for entry in turn.shifted(total, shift)] == exact


def test_a_point_seen_from_the_rows() -> None:
    """Inner products of rows with it are those of the turned rows with the point: would catch a wrong transpose."""
    rng = np.random.default_rng(1)
    for turn in turns(rng, 4):
        assert turn.column is not None
        matrix = np.diag(turn.matrix)
        matrix[:, -1] += turn.column
        row, z = rng.integers(-1000, 1000, size=5).astype(float), rng.normal(size=5)
        parts = np.abs(matrix) @ np.abs(row) @ np.abs(z)
        assert abs(turn.back(z) @ row * 2.0**turn.exponent - (matrix @ row) @ z) <= 1e-12 * parts


def exact_square(turn: Turn, row: Any, constant: int) -> int:
    assert turn.column is not None
    last = int(turn.matrix[-1]) * constant
    inside = [
        int(d) * int(a) + int(h) * constant for d, h, a in zip(turn.matrix[:-1], turn.column[:-1], row, strict=True)
    ]
    return sum(entry**2 for entry in inside) + last**2


def near_centre(turn: Turn, grid: RowGrid) -> Any:
    """The row of whole numbers that is closest to the centre: after it is taken off, next to nothing is left."""
    assert turn.column is not None
    with np.errstate(divide="ignore", invalid="ignore"):
        row = np.nan_to_num(np.rint(-turn.column[:-1] * grid.constant / turn.matrix[:-1]), posinf=0, neginf=0)
    return row if row @ row <= grid.most else np.floor(row * math.sqrt(grid.most / (row @ row)) * 0.999)


@pytest.mark.parametrize("width", [1, 5, 700])
def test_centred_lengths_are_rounded_up_and_hardly(width: int) -> None:
    """Would catch: lengths of rows that are not centred, slack that is missing where terms cancel."""
    rng, grid = np.random.default_rng(width), RowGrid.of(NORM, CONSTANT)
    unit = 2.0**-grid.exponent
    beyond = 0
    for turn in turns(rng, width):
        # Without what the constant adds by itself, so that it hides no rounding.
        for last in (turn.matrix[-1], 0.0):
            bare = Turn(np.append(turn.matrix[:-1], last), turn.exponent, turn.column)
            rows = some_rows(rng, 40, width)
            rows[:20] = near_centre(bare, grid) * unit
            rows[5:20] += rng.integers(-2, 3, size=(15, width)) * unit  # a step or two beside it
            rows[:20] *= np.minimum(1, NORM * (1 - 1e-9) / np.maximum(np.linalg.norm(rows[:20], axis=1), 1e-9))[:, None]
            integers = integer_rows(ArrayRows(rows), grid)
            found = bare.squared_lengths(integers)
            for row, length in zip(integers[:], found, strict=True):
                exact = exact_square(bare, row, grid.constant)
                assert Fraction(float(length)) >= exact
                parts = exact_square(Turn(bare.matrix, 0, 0 * bare.matrix), row, grid.constant)
                parts += exact_square(bare, 0 * row, grid.constant)
                assert length <= exact * (1 + 1e-6) + 1e-12 * parts
                beyond += parts > 1e6 * exact
    assert beyond >= 10  # rows where nearly all cancels were among them


def test_centred_lengths_have_the_same_bits_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that depended on storage or place would be a message that depends on other rows."""
    rng, grid = np.random.default_rng(3), RowGrid.of(NORM, CONSTANT)
    X = some_rows(rng, 300, 37) * (rng.random((300, 37)) < 0.3)
    np.save(tmp_path / "rows.npy", X)
    order = rng.permutation(300)
    from hushpoint.rows.streamed import StreamedRows

    different = []
    for turn in turns(rng, 37):
        whole = turn.squared_lengths(integer_rows(ArrayRows(X), grid))
        different.append(len(np.unique(whole)))
        streamed = StreamedRows(np.load(tmp_path / "rows.npy", mmap_mode="r"))
        for store in (SparseRows(scipy.sparse.csr_array(X)), streamed):
            np.testing.assert_array_equal(turn.squared_lengths(integer_rows(store, grid)), whole)
        np.testing.assert_array_equal(turn.squared_lengths(integer_rows(ArrayRows(X[order]), grid)), whole[order])
        with monkeypatch.context() as patch:
            patch.setattr("hushpoint.rows.store._NUMBERS", 64)
            np.testing.assert_array_equal(turn.squared_lengths(integer_rows(ArrayRows(X.copy()), grid)), whole)
    assert np.median(different) > 100


# --- gradients of centred rows


@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("users", [False, True], ids=["records", "users"])
def test_no_item_of_centred_rows_sends_more_than_k(loss: str, users: bool) -> None:
    """In integers, after the turn. Would catch: limits by lengths that are not centred, or centred the wrong way."""
    reached = 0.0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = some_rows(rng, 60, 5)
        centre = X.mean(axis=0) if seed % 2 else NORM * 0.5 * rng.normal(size=5)
        X[:10] = centre * min(1.0, 0.99 * NORM / np.linalg.norm(centre))
        owners = np.sort(rng.integers(15, size=60)) if users else None
        problem = Problem(X, np.where(rng.random(60) < 0.5, 1.0, -1.0), loss, row_norm=NORM, groups=owners)
        scales = 10.0 ** rng.uniform(-2, 2, size=6)
        column = np.append(-scales[:-1] * centre / CONSTANT, 0.0)
        facts = Problem.declared(problem.items, 6, loss, clip=0.01 if seed < 3 else 0.7).facts
        object.__setattr__(facts, "rows_per_item", problem.facts.rows_per_item)
        operator = LatticeGradient(
            facts, 1.0, problem.items, GradientGrid.turned(facts, NORM, CONSTANT, scales, column)
        )
        turn, rows = operator.grid.turn, operator.prepare(problem.rows)
        assert turn is not None
        assert turn.column is not None
        for scale in (0.0, 1.0, 1e6):
            point = scale * rng.normal(size=6)
            sent = operator.local(rows, slice(None), np.zeros((problem.items, 0)), point, 1.0, None)[1]
            for message in sent:
                turned = [
                    int(d) * int(m) + int(h) * int(message[-1])
                    for d, h, m in zip(turn.matrix, turn.column, message, strict=True)
                ]
                length = sum(entry**2 for entry in turned)
                assert length <= int(operator.longest) ** 2
                reached = max(reached, math.sqrt(length) / operator.longest)
    assert reached > 0.999  # so that it can fail


def test_mapped_rows_with_a_centre_are_a_dense_copy() -> None:
    """Would catch: a centre that is not mapped, not counted by the weights, or lengths that cancel to less."""
    rng = np.random.default_rng(4)
    X = some_rows(rng, 50, 6)
    centre = 0.4 * rng.normal(size=6)
    X[:5] = centre
    X[5:10] = centre * (1 + 1e-15)
    for spread in (0, 3, 8):
        scales = 10.0 ** rng.uniform(-spread / 2, spread / 2, size=7)
        scales[-1] = scales.min()
        metric = Metric(None, scales, scales, 1.0, 1.0, 1, Moments(scales, 0.0, 1.0, centre=centre))
        table = np.column_stack([X - centre, np.full(50, 1e-9)]) * scales
        for store in (ArrayRows(X), SparseRows(scipy.sparse.csr_array(X))):
            mapped = Mapped(store, 1e-9, metric)
            np.testing.assert_array_equal(mapped[:], table)
            points, weights = rng.normal(size=(7, 2)), rng.normal(size=(50, 2))
            size = scales.max()
            np.testing.assert_allclose(mapped @ points, table @ points, atol=1e-13 * size)
            np.testing.assert_allclose(mapped @ points[:, 0], table @ points[:, 0], atol=1e-13 * size)
            np.testing.assert_allclose(mapped.pull(weights), table.T @ weights, atol=1e-12 * size)
            np.testing.assert_allclose(mapped.pull(weights[:, 0]), table.T @ weights[:, 0], atol=1e-12 * size)
            lengths = (table**2).sum(axis=1)
            assert (mapped.squared_norms() >= lengths).all()
            np.testing.assert_allclose(mapped.squared_norms(), lengths, rtol=1e-6, atol=1e-10 * size**2)


# --- whole fits


def test_a_centred_model_does_not_depend_on_place_or_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the bit, with a diagonal metric, means and calibrations, and for users too."""
    monkeypatch.setattr(planner, "_LARGEST_FULL", 0)
    rng = np.random.default_rng(5)
    X = (rng.normal(size=(2000, 7)) + 1) * (rng.random((2000, 7)) < 0.6)
    y = np.where(X[:, 0] + rng.normal(size=2000) > 0.6, 1, 0) + np.where(X[:, 1] > 2, 1, 0)
    order = rng.permutation(2000)

    def fitted(features: Any, labels: Any, groups: Any = None) -> Any:
        model = hp.PrivateLogisticRegression(3.0, 1e-4, NORM, random_state=3, classes=[0, 1, 2])
        model.fit(features, labels, groups=groups)
        assert model.parameters_.mean_share > 0
        assert model.parameters_.calibration_share > 0
        return np.column_stack([model.coef_, model.intercept_])

    for groups in (None, np.arange(2000) // 3):
        whole = fitted(X, y, groups)
        ordered = None if groups is None else groups[order]
        if groups is None:  # within a user rows add up in their order, which is part of the data
            np.testing.assert_array_equal(fitted(X[order], y[order], ordered), whole)
        np.testing.assert_array_equal(fitted(scipy.sparse.csr_array(X), y, groups), whole)
        with monkeypatch.context() as patch:
            patch.setattr("hushpoint.rows.store._NUMBERS", 1 << 8)
            patch.setenv("HUSHPOINT_THREADS", "1")
            np.testing.assert_array_equal(fitted(X.copy(), y, groups), whole)
