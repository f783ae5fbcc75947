"""Means asked for once (operators/moments.py): what a message is, what it claims, and for whom there is no claim."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse

from hushpoint.noise import Noise
from hushpoint.operators import Means, MeanSquare, SecondMoments
from hushpoint.plan import Plan
from hushpoint.problem import Problem
from hushpoint.schedules import EveryBlock, PoissonSample

NORM, CONSTANT = 2.0, 0.5
OWNERS = np.array([0, 0, 0, 1, 2, 2, 3, 4])


def some_problem(store: str = "dense", users: bool = False) -> Problem:
    X = np.random.default_rng(0).normal(size=(8, 3)) * (np.arange(8)[:, None] % 3)
    tables = {"dense": X, "sparse": scipy.sparse.csr_array(X), "single precision": X.astype(np.float32)}
    return Problem(tables[store], np.zeros(8), row_norm=NORM, groups=OWNERS if users else None)


def item_matrices(problem: Problem, constant: float) -> list[np.ndarray]:
    """The mean of ``a a'`` over the rows of each item, written down."""
    rows = problem.rows
    X = rows.store[:]
    X = np.column_stack([X, np.full(len(X), constant)]) if constant else X
    owners = np.repeat(np.arange(rows.items), rows.counts)
    return [np.mean([np.outer(a, a) for a in X[owners == item]], axis=0) for item in range(rows.items)]


def messages(operator, problem: Problem) -> np.ndarray:
    blocks = np.zeros((problem.items, 0))
    return operator.local(problem.rows, slice(None), blocks, np.zeros(operator.message_size), 1.0, None)[1]


SHAPES = [
    (store, users, constant, diagonal)
    for store in ("dense", "sparse", "single precision")
    for users in (False, True)
    for constant in (0.0, CONSTANT)
    for diagonal in (False, True)
]


@pytest.mark.parametrize(("store", "users", "constant", "diagonal"), SHAPES)
def test_the_answer_is_the_mean_over_items(store: str, users: bool, constant: float, diagonal: bool) -> None:
    problem = some_problem(store, users)
    operator = SecondMoments(problem.facts, constant, diagonal)
    plan = Plan(operator, EveryBlock(problem.items), Noise(0.0, "sum"), 1, 1.0, facts=problem.facts)
    released = plan.on(problem).run(seed=0).model
    expected = np.mean(item_matrices(problem, constant), axis=0)
    np.testing.assert_allclose(
        operator.matrix(released), np.diag(expected) if diagonal else expected, rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(messages(operator, problem).mean(axis=0), released, rtol=1e-9, atol=1e-12)
    square = MeanSquare(problem.facts)
    lengths = [np.trace(one) for one in item_matrices(problem, 0.0)]
    np.testing.assert_allclose(messages(square, problem)[:, 0], lengths, rtol=1e-6, atol=1e-12)
    beside = [one[-1, :-1] for one in item_matrices(problem, 1.0)]  # a constant times a row is its mean
    np.testing.assert_allclose(messages(Means(problem.facts), problem), beside, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("users", [False, True])
def test_distances_of_messages_are_those_of_matrices(users: bool) -> None:
    """Would catch: products counted once where the Frobenius norm counts them twice, or the public entry inside."""
    problem = some_problem(users=users)
    told = messages(SecondMoments(problem.facts, CONSTANT), problem)
    matrices = item_matrices(problem, CONSTANT)
    assert told.shape == (problem.items, 4 * 5 // 2 - 1)
    for one, mine in zip(told, matrices, strict=True):
        assert np.linalg.norm(one) ** 2 == pytest.approx(np.linalg.norm(mine) ** 2 - CONSTANT**4, abs=1e-12)
        for other, theirs in zip(told, matrices, strict=True):
            assert np.linalg.norm(one - other) == pytest.approx(np.linalg.norm(mine - theirs), abs=1e-12)


def test_the_public_entry_is_put_back() -> None:
    facts = some_problem().facts
    assert SecondMoments(facts, CONSTANT).matrix(np.ones(9))[-1, -1] == CONSTANT**2
    assert SecondMoments(facts, CONSTANT, diagonal=True).matrix(np.ones(3)).tolist() == [1, 1, 1, CONSTANT**2]
    assert SecondMoments(facts).matrix(np.ones(6))[-1, -1] == 1  # without a constant the last feature is private


def test_accounting_reads_the_certificate() -> None:
    facts = some_problem().facts
    plan = Plan(SecondMoments(facts, CONSTANT), EveryBlock(8), Noise(3.0, "sum"), 4, 1.0, facts=facts)
    stated = plan.guarantee(1e-5, adjacency="zero-out")
    assert stated.mu == pytest.approx(2 * math.sqrt(NORM**4 + 2 * NORM**2 * CONSTANT**2) / 3)
    assert "the unit's term in the mean is 0" in str(stated)
    assert plan.guarantee(1e-5).mu == pytest.approx(2 * math.sqrt(2) * (NORM**2 + CONSTANT**2) / 3)
    plan = Plan(Means(facts), EveryBlock(8), Noise(3.0, "sum"), 4, 1.0, facts=facts)
    stated = plan.guarantee(1e-5, adjacency="zero-out")
    assert stated.mu == pytest.approx(2 * NORM / 3)
    assert "the unit's term in the mean is 0" in str(stated)
    assert plan.guarantee(1e-5).mu == pytest.approx(4 * NORM / 3)


class Doubled(SecondMoments):
    def total(self, rows, row_weights):
        return 2 * super().total(rows, row_weights)


class LongRows(MeanSquare):
    def total(self, rows, row_weights):
        return np.array([row_weights @ rows.squared_norms**4])


class DoubledMeans(Means):
    def total(self, rows, row_weights):
        return 2 * super().total(rows, row_weights)


@pytest.mark.parametrize("kind", [Doubled, DoubledMeans, LongRows])
def test_a_subclass_inherits_no_claim(kind: type) -> None:
    certificate = kind(some_problem().facts).certificate(1.0)
    assert not certificate.sensitivity
    with pytest.raises(ValueError, match=f"{kind.__name__} has no certificate"):
        certificate.shift("record")


@pytest.mark.parametrize("kind", [Means, SecondMoments, MeanSquare])
def test_what_is_not_proved_is_not_claimed(kind: type) -> None:
    undeclared = Problem.declared(8, 3).facts
    with pytest.raises(ValueError, match="row_norm is not declared"):
        kind(undeclared).certificate(1.0).shift("record")
    with pytest.raises(ValueError, match="no sensitivity for one record"):
        kind(some_problem(users=True).facts).certificate(1.0).shift("record")
    with pytest.raises(ValueError, match="works with 'all' only"):
        Plan(kind(some_problem().facts), PoissonSample(8, 0.5), Noise(1.0, "sum"), 1, 1.0)
