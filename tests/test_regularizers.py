"""Regularisers: every prox is a true minimiser, every constant a true bound, every sum exact or refused."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushpoint.regularizers import (
    L1,
    L2,
    Ball,
    Box,
    Boxed,
    ElasticNet,
    GroupL1,
    Regularizer,
    Ridged,
    WithoutIntercept,
    Zero,
)

fixed = settings(derandomize=True, deadline=None, max_examples=30)


@dataclass(frozen=True)
class NonNegative(Regularizer):
    """A newcomer's regulariser: two methods."""

    def value(self, z):
        return np.where(np.any(z < 0, axis=-1), np.inf, 0.0)

    def prox(self, v, step):
        return np.maximum(v, 0.0)


# All act on models of three coordinates.
BUILT_IN = [
    Zero(),
    L1(0.7),
    L1(0.0),
    L2(1.3),
    ElasticNet(0.4, 0.9),
    ElasticNet(0.0, 0.9),
    ElasticNet((0.4, 0.0, 1.1), 0.9),
    ElasticNet(0.4, (0.9, 0.0, 2.0)),
    ElasticNet((0.4, 0.0, 1.1), (0.9, 0.2, 0.0)),
    GroupL1(0.5, ((0, 2),)),
    GroupL1(0.5, ((2,), (0, 1))),
    Box(-0.5, 1.0),
    Box((-1.0, 0.2, -np.inf), (1.0, 0.4, 0.3)),
    Ball(1.2),
    Ridged(Ball(1.2), 0.8),
    Ridged(GroupL1(0.5, ((0, 1, 2),)), 0.8),
    Ridged(L2(0.5), 0.8),
    Boxed(L1(0.7), Box(0.1, 1.0)),
    Boxed(ElasticNet(0.4, 0.9), Box((-1.0, 0.2, -3.0), 0.5)),
    WithoutIntercept(L1(0.7)),
    WithoutIntercept(L2(0.7)),
    WithoutIntercept(GroupL1(0.5, ((0, 1),))),
    WithoutIntercept(Box((-0.2, 0.3), (0.1, 0.5))),
]
SUMS = [
    (L1(0.3), L1(0.4)),
    (L2(0.3), L2(0.4)),
    (L1(0.3), L2(0.4)),
    (ElasticNet(0.3, 0.1), L1(0.4)),
    (ElasticNet(0.3, 0.1), ElasticNet(0.2, 0.5)),
    (Zero(), GroupL1(0.5, ((0, 1),))),
    (Ball(0.8), L2(0.4)),
    (GroupL1(0.5, ((0, 1),)), L2(0.4)),
    (NonNegative(), L2(0.4)),
    (Ridged(Ball(0.8), 0.3), L2(0.4)),
    (L1(0.3), Box(-0.2, 0.6)),
    (L2(0.3), Box(-0.2, 0.6)),
    (ElasticNet(0.3, 0.5), Box((-1.0, 0.1, -0.3), 0.6)),
    (Box(-0.2, 0.6), Box((-1.0, 0.1, -0.3), 0.4)),
    (Boxed(L1(0.3), Box(-0.2, 0.6)), Box(-0.1, 0.5)),
    (Boxed(L1(0.3), Box(-0.2, 0.6)), ElasticNet(0.1, 0.5)),
    (Ridged(Boxed(L1(0.3), Box(-0.2, 0.6)), 0.2), L1(0.2)),
    (WithoutIntercept(L1(0.3)), Box((-0.1, -0.2, -0.3), 0.5)),
    (WithoutIntercept(L2(0.3)), L2(0.4)),
]
EVERY = [*BUILT_IN, NonNegative(), *[one + two for one, two in SUMS]]
every = pytest.mark.parametrize("regularizer", EVERY, ids=repr)
every_separable = pytest.mark.parametrize("regularizer", [r for r in EVERY if r.separable], ids=repr)


def brute_force_prox(value, v, step):
    """Minimise ``value(z) + |z - v|^2 / (2 step)`` in R^3 by a grid that closes in on its best point."""
    centre, width = np.zeros(3), 2.0 * (np.linalg.norm(v) + 1.0)
    grid = np.stack(np.meshgrid(*[np.linspace(-1.0, 1.0, 11)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    best = np.inf
    for _ in range(110):
        points = centre + width * grid
        objective = value(points) + np.sum((points - v) ** 2, axis=-1) / (2 * step)
        lowest = int(np.argmin(objective))
        if objective[lowest] < best:
            best, centre = objective[lowest], points[lowest]
        width *= 0.8
    return centre, best


def objective(value, z, v, step):
    return value(z) + np.sum((z - v) ** 2) / (2 * step)


# --- prox ---------------------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("step", [0.01, 0.6, 40.0])
def test_prox_satisfies_the_subgradient_inequality(regularizer, step):
    # z is the prox of v exactly if (v - z)/step is a subgradient at z. A threshold off by a factor, a missing
    # sqrt(len(g)), a prox of the wrong step all break it at some w, near or far.
    rng = np.random.default_rng(0)
    for v in 2.0 * rng.normal(size=(20, 3)):
        z = regularizer.prox(v, step)
        here = regularizer.value(z)
        assert np.isfinite(here)
        scale = np.array([1e-3, 1e-1, 1.0, 10.0])[:, None, None]
        w = z + scale * rng.normal(size=(4, 60, 3)) * (rng.random((4, 60, 3)) < 0.5)
        w = np.concatenate([w.reshape(-1, 3), regularizer.prox(w.reshape(-1, 3), 1e-9)])  # feasible ones too
        there = regularizer.value(w)
        assert np.isfinite(there).any()
        slack = 1e-9 * (1.0 + np.abs(here)) / step
        assert np.all(there >= here + (w - z) @ ((v - z) / step) - slack)


@pytest.mark.parametrize("regularizer", BUILT_IN, ids=repr)
def test_prox_agrees_with_brute_force(regularizer):
    v, step = np.array([1.4, -0.3, 0.8]), 0.7
    z, best = brute_force_prox(regularizer.value, v, step)
    ours = regularizer.prox(v, step)
    assert objective(regularizer.value, ours, v, step) <= best + 1e-11  # the slack of a constraint
    assert np.allclose(ours, z, rtol=0, atol=2e-3)  # how near the search itself gets


@pytest.mark.parametrize(("one", "two"), SUMS, ids=repr)
def test_prox_of_a_sum_agrees_with_brute_force(one, two):
    # The prox of a sum is not the composition of the proxes in general: each rule must prove itself.
    v, step = np.array([1.1, -0.4, 0.7]), 0.8

    def value(z):
        return one.value(z) + two.value(z)

    z, best = brute_force_prox(value, v, step)
    for both in (one + two, two + one):
        ours = both.prox(v, step)
        assert objective(value, ours, v, step) <= best + 1e-11  # the slack of a constraint
        assert np.allclose(ours, z, rtol=0, atol=2e-3)


@pytest.mark.parametrize("step", [0.1, 1.0, 7.0])
def test_moreau_identity(step):
    # prox_{s r}(v) + s prox_{r*/s}(v/s) = v, with the conjugates known: box for L1, ball for the group norm.
    v = 3.0 * np.random.default_rng(1).normal(size=(50, 4))
    assert np.allclose(L1(0.6).prox(v, step) + step * Box(-0.6, 0.6).prox(v / step, 1.0), v, atol=1e-14)
    group = GroupL1(0.6, ((0, 1, 2, 3),))
    assert np.allclose(group.prox(v, step) + step * Ball(0.6 * 2.0).prox(v / step, 1.0), v, atol=1e-14)


@every
@fixed
@given(
    v=st.lists(st.floats(-20, 20), min_size=3, max_size=3),
    w=st.lists(st.floats(-20, 20), min_size=3, max_size=3),
    step=st.floats(1e-3, 1e3),
)
def test_prox_is_firmly_non_expansive(regularizer, v, w, step):
    # The whole theory rests on this, and on the strong convexity that a regulariser declares.
    v, w = np.array(v), np.array(w)
    gap = regularizer.prox(v, step) - regularizer.prox(w, step)
    strength = 1.0 + step * regularizer.strong_convexity
    assert strength * gap @ gap <= gap @ (v - w) + 1e-10 * (1.0 + step)


@every
def test_batches_are_treated_row_by_row_and_inputs_left_alone(regularizer):
    # Blocks arrive as an n x p array: a norm over the wrong axis mixes people.
    v = np.random.default_rng(2).normal(size=(4, 5, 3))
    before = v.copy()
    z = regularizer.prox(v, 0.6)
    assert np.array_equal(v, before)
    z[0, 0, 0] += 1.0
    assert np.array_equal(v, before)
    z[0, 0, 0] -= 1.0
    rows = np.array([[regularizer.prox(row, 0.6) for row in block] for block in v])
    assert np.allclose(z, rows, rtol=0, atol=1e-15)
    values = regularizer.value(z)
    assert values.shape == (4, 5)
    assert np.allclose(values, [[regularizer.value(row) for row in block] for block in z])


@every_separable
def test_a_step_per_coordinate(regularizer):
    # DP-CD and diagonal scalings use them: a coordinate must not feel the steps of the others.
    v, steps = np.array([1.4, -2.3, 0.8]), np.array([0.2, 0.9, 5.0])
    apart = [regularizer.prox(v, step)[i] for i, step in enumerate(steps)]
    assert np.allclose(regularizer.prox(v, steps), apart, rtol=0, atol=1e-15)
    twice = regularizer.prox(np.stack([v, -v]), steps)
    assert np.allclose(twice[1], regularizer.prox(-v, steps), rtol=0, atol=1e-15)


@every_separable
def test_the_prox_of_one_coordinate_is_that_entry_of_the_prox(regularizer):
    # Bounds per coordinate and the free intercept need the index, not only the value.
    v, steps = np.array([1.4, -2.3, 0.8]), np.array([0.2, 0.9, 5.0])
    whole = regularizer.prox(v, steps)
    for i in range(3):
        one = regularizer.prox_coordinate(v[i], steps[i], i, size=3)
        assert np.shape(one) == ()
        assert np.isclose(one, whole[i], rtol=0, atol=1e-15)
    some = np.array([2, 0])
    assert np.allclose(regularizer.prox_coordinate(v[some], steps[some], some, size=3), whole[some], atol=1e-15)
    column = some[:, None]
    assert np.array_equal(regularizer.prox_coordinate(v[column], steps[column], column, size=3), whole[column])
    last = np.array([-1, 0])
    assert np.allclose(regularizer.prox_coordinate(v[last], steps[last], last, size=3), whole[last], atol=1e-15)


def test_the_intercept_is_free():
    v = np.array([0.1, -0.2, 100.0])
    regularizer = WithoutIntercept(Boxed(L1(5.0), Box(-1.0, 1.0)))
    assert np.array_equal(regularizer.prox(v, 3.0), [0.0, 0.0, 100.0])
    assert regularizer.value(np.array([0.1, 0.1, 100.0])) == 5.0 * 0.2
    assert regularizer.quadratic() == (regularizer, 0.0)


def test_zeros_are_exact_and_projections_feasible():
    # Sparse models must be sparse, and a projected point must count as inside although it is rounded.
    rng = np.random.default_rng(3)
    v = rng.normal(size=(200, 7))
    assert np.all(L1(10.0).prox(v, 1.0) == 0.0)
    assert np.all(GroupL1(10.0, (tuple(range(7)),)).prox(v, 1.0) == 0.0)
    for constraint in (Ball(0.1), Box(-1 / 3, 0.1), Ball(1e-6), Box(-1e6 / 3, -1e5 / 7)):
        assert np.all(constraint.value(constraint.prox(v, 1.0)) == 0.0)
    assert np.array_equal(Ball(2.0).prox(np.zeros(3), 1.0), np.zeros(3))
    assert np.array_equal(GroupL1(1.0, ((0, 1),)).prox(np.zeros(3), 1.0), np.zeros(3))


@pytest.mark.parametrize("outside", [1.1, -0.6])
def test_constraints_are_infinite_outside(outside):
    z = np.array([0.0, outside, 0.0])
    assert Box(-0.5, 1.0).value(z) == np.inf
    assert Ball(0.5).value(z) == np.inf
    assert Box(-0.5, (1.0, 2.0, 1.0)).value(np.array([0.0, 1.1, 0.0])) == 0.0


# --- constants ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("regularizer", "strong_convexity", "smoothness", "separable"),
    [
        (Zero(), 0.0, 0.0, True),
        (L1(0.7), 0.0, np.inf, True),
        (L1(0.0), 0.0, 0.0, True),
        (L2(1.3), 1.3, 1.3, True),
        (ElasticNet(0.4, 0.9), 0.9, np.inf, True),
        (ElasticNet(0.0, 0.9), 0.9, 0.9, True),
        (GroupL1(0.5, ((0, 2),)), 0.0, np.inf, False),
        (GroupL1(0.5, ()), 0.0, 0.0, False),
        (Box(-0.5, 1.0), 0.0, np.inf, True),
        (Ball(1.2), 0.0, np.inf, False),
        (Ridged(Ball(1.2), 0.8), 0.8, np.inf, False),
        (Ridged(L2(0.5), 0.8), 1.3, 1.3, True),
        (Boxed(ElasticNet(0.4, 0.9), Box(0.0, 1.0)), 0.9, np.inf, True),
        (WithoutIntercept(L2(0.7)), 0.0, 0.7, True),  # flat along the intercept
        (NonNegative(), 0.0, np.inf, False),
    ],
)
def test_constants_by_hand(regularizer, strong_convexity, smoothness, separable):
    assert regularizer.strong_convexity == pytest.approx(strong_convexity)
    assert regularizer.smoothness == pytest.approx(smoothness)
    assert regularizer.separable is separable


@every
def test_constants_are_true_bounds(regularizer):
    # Midpoint gaps lie between strong_convexity/8 and smoothness/8 times the squared distance: an overstated
    # strong convexity would be a contraction, and a privacy guarantee, that does not exist.
    rng = np.random.default_rng(4)
    x, y = (regularizer.prox(2.0 * rng.normal(size=(4000, 3)), 1e-3) for _ in range(2))
    gap = (regularizer.value(x) + regularizer.value(y)) / 2 - regularizer.value((x + y) / 2)
    squared = np.sum((x - y) ** 2, axis=-1)
    assert np.all(gap >= regularizer.strong_convexity / 8 * squared - 1e-12)
    if np.isfinite(regularizer.smoothness):
        assert np.all(gap <= regularizer.smoothness / 8 * squared + 1e-12)


@every
def test_the_quadratic_part_splits_off(regularizer):
    # The ridge moves into the strongly convex term of the guarantee: lost or counted twice, both are wrong.
    rest, ridge = regularizer.quadratic()
    z = regularizer.prox(np.random.default_rng(5).normal(size=(50, 3)), 0.1)
    assert np.allclose(rest.value(z) + ridge / 2 * np.sum(z**2, axis=-1), regularizer.value(z), rtol=1e-13)
    assert rest.quadratic() == (rest, 0.0)


@pytest.mark.parametrize(
    ("regularizer", "rest", "ridge"),
    [
        (Zero(), Zero(), 0.0),
        (L1(0.7), L1(0.7), 0.0),
        (L2(1.3), Zero(), 1.3),
        (ElasticNet(0.4, 0.9), L1(0.4), 0.9),
        (Ridged(Ball(1.0), 0.8), Ball(1.0), 0.8),
        (Ridged(Boxed(L2(0.5), Box(0.0, 1.0)), 0.25), Box(0.0, 1.0), 0.75),
    ],
)
def test_quadratic_parts_by_hand(regularizer, rest, ridge):
    assert regularizer.quadratic() == (rest, ridge)


# --- sums ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("total", "expected"),
    [
        (Zero() + Ball(1.0), Ball(1.0)),
        (Ball(1.0) + Zero(), Ball(1.0)),
        (L1(0.5) + L1(0.25), L1(0.75)),
        (L2(0.5) + L2(0.25), L2(0.75)),
        (L1(0.5) + L2(0.25), ElasticNet(0.5, 0.25)),
        (L2(0.25) + L1(0.5), ElasticNet(0.5, 0.25)),
        (ElasticNet(0.5, 0.25) + ElasticNet(0.5, 0.5), ElasticNet(1.0, 0.75)),
        (Ball(1.0) + L2(0.5), Ridged(Ball(1.0), 0.5)),
        (L2(0.5) + Ridged(Ball(1.0), 0.5), Ridged(Ball(1.0), 1.0)),
        (L1(0.5) + Box(0.0, 1.0), Boxed(L1(0.5), Box(0.0, 1.0))),
        (Box(0.0, 1.0) + ElasticNet(0.5, 0.25), Boxed(ElasticNet(0.5, 0.25), Box(0.0, 1.0))),
        (Box(0.0, 1.0) + Box((-1.0, 0.5), 2.0), Box((0.0, 0.5), 1.0)),
    ],
)
def test_sums_take_their_simplest_form(total, expected):
    assert total == expected


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (Ball(1.0), L1(0.1)),
        (GroupL1(0.1, ((0, 1),)), L1(0.1)),
        (GroupL1(0.1, ((0, 1),)), Box(0.0, 1.0)),
        (Ball(1.0), ElasticNet(0.1, 0.1)),
        (NonNegative(), L1(0.1)),
        (WithoutIntercept(L1(0.1)), L1(0.1)),
        (Boxed(L1(0.1), Box(0.0, 1.0)), WithoutIntercept(L1(0.1))),
    ],
)
def test_sums_without_a_prox_are_refused(one, two):
    # Adding thresholds or composing proxes here would be a prox of something else, without anyone noticing.
    for this, that in ((one, two), (two, one)):
        names = f"{type(this).__name__} \\+ {type(that).__name__} .*anything \\+ L2.*separable \\+ Box"
        with pytest.raises(TypeError, match=names):
            this + that


def test_only_regularizers_add_up():
    with pytest.raises(TypeError, match="unsupported operand"):
        L1(0.1) + 1.0


# --- JSON, errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("regularizer", BUILT_IN, ids=repr)
def test_json_round_trip(regularizer):
    # Through text: tuples come back as lists and infinite bounds are not JSON.
    text = json.dumps(regularizer.to_dict(), allow_nan=False)
    back = Regularizer.from_dict(json.loads(text))
    assert back == regularizer
    assert hash(back) == hash(regularizer)


def test_arrays_are_accepted_as_bounds():
    box = Box(np.array([0.0, 1.0]), np.float32(2.0))
    assert box == Box((0.0, 1.0), 2.0)
    assert GroupL1(np.float64(1.0), [np.array([0, 1])]) == GroupL1(1.0, ((0, 1),))


class Impostor(L1):
    """Inherits a name that is not its own."""


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: L1(-0.1), ValueError, r"strength is -0\.1"),
        (lambda: L1(np.inf), ValueError, "strength is inf"),
        (lambda: L2(np.nan), ValueError, "strength is nan"),
        (lambda: L2("much"), ValueError, "strength is 'much'"),
        (lambda: ElasticNet(-1.0, 0.0), ValueError, r"l1 is -1\.0"),
        (lambda: ElasticNet(0.0, -1.0), ValueError, r"l2 is -1\.0"),
        (lambda: ElasticNet((0.0, -1.0), 0.0), ValueError, "l1 has an entry below 0"),
        (lambda: ElasticNet(0.0, (1.0, np.inf)), ValueError, "l2 has an entry below 0, or not finite"),
        (lambda: ElasticNet((), 1.0), ValueError, "l1 has an entry below 0, or not finite, or none"),
        (lambda: ElasticNet(((1.0, 2.0),), 1.0), ValueError, r"l1 is \(\(1\.0, 2\.0\),\)"),
        (lambda: ElasticNet((1.0, 2.0), 1.0).prox(np.zeros(3), 1.0), ValueError, "l1 has 2 entries for a model of 3"),
        (lambda: ElasticNet(1.0, (1.0,)).value(np.zeros(3)), ValueError, "l2 has 1 entries for a model of 3"),
        (lambda: ElasticNet((1.0, 2.0), 1.0).prox_coordinate(0.0, 1.0, 2), ValueError, "index has an entry outside"),
        (lambda: ElasticNet((1.0, 2.0), 1.0) + L1(0.1), TypeError, r"ElasticNet \+ L1"),
        (lambda: GroupL1(1.0, ((0, 1), (1, 2))), ValueError, r"groups is \(\(0, 1\), \(1, 2\)\).*one group"),
        (lambda: GroupL1(1.0, ((0, 0),)), ValueError, "one group at most"),
        (lambda: GroupL1(1.0, ((-1,),)), ValueError, "groups is -1"),
        (lambda: GroupL1(1.0, ((),)), ValueError, "empty groups"),
        (lambda: GroupL1(1.0, (0, 1)), ValueError, r"groups is \(0, 1\).*tuple of tuples"),
        (lambda: GroupL1(-1.0, ((0,),)), ValueError, r"strength is -1\.0"),
        (lambda: GroupL1(1.0, ((0, 5),)).prox(np.zeros(3), 1.0), ValueError, "coordinate 5 of a model that has 3"),
        (lambda: Box(1.0, 0.0), ValueError, r"low is 1\.0 and high is 0\.0"),
        (lambda: Box((0.0, 2.0), 1.0), ValueError, r"low is \(0\.0, 2\.0\)"),
        (lambda: Box(np.nan, 1.0), ValueError, "low is nan"),
        (lambda: Box(np.inf, np.inf), ValueError, "finite point"),
        (lambda: Box("a", 1.0), ValueError, "low is 'a'"),
        (lambda: Box((0.0, 0.0), (1.0, 1.0, 1.0)), ValueError, "low has 2 entries and high has 3"),
        (lambda: Box((0.0, 0.0), 1.0).prox(np.zeros(3), 1.0), ValueError, "low has 2 entries for a model of 3"),
        (lambda: Box((0.0, 0.0), 1.0).prox_coordinate(0.0, 1.0, 2), ValueError, "index has an entry outside"),
        (
            lambda: Box((0.0, 0.0), 1.0).prox_coordinate(np.zeros((2, 1)), 1.0, np.arange(2)),
            ValueError,
            r"index has shape \(2,\) and v has shape \(2, 1\)",
        ),
        (lambda: Box(0.0, 1.0) + Box(2.0, 3.0), ValueError, r"low is 2\.0 and high is 1\.0"),
        (lambda: Ball(0.0), ValueError, r"radius is 0\.0"),
        (lambda: Ball(np.inf), ValueError, "radius is inf"),
        (lambda: Ridged(L1(1.0), -1.0), ValueError, r"strength is -1\.0"),
        (lambda: Ridged("l1", 1.0), TypeError, "base is a str"),
        (lambda: Boxed(Ball(1.0), Box(0.0, 1.0)), ValueError, "base is a Ball.*not separable"),
        (lambda: Boxed(L1(1.0), L1(1.0)), TypeError, "box is a L1"),
        (lambda: WithoutIntercept(None), TypeError, "base is a NoneType"),
        (lambda: WithoutIntercept(L1(1.0)).prox_coordinate(0.0, 1.0, 0), ValueError, "size is not given"),
        (lambda: Ball(1.0).prox_coordinate(0.0, 1.0, 0), ValueError, "Ball is not separable"),
        (lambda: NonNegative().to_dict(), ValueError, "NonNegative.*JSON"),
        (lambda: Ridged(NonNegative(), 1.0).to_dict(), ValueError, "NonNegative.*JSON"),
        (lambda: Impostor(1.0).to_dict(), ValueError, "Impostor.*JSON"),
        (lambda: Regularizer.from_dict({"name": "l3"}), ValueError, r"name is 'l3'.*'l1'"),
        (lambda: Regularizer.from_dict({"name": "l1"}), ValueError, r"l1 .*\[\].*\['strength'\]"),
        (lambda: Regularizer.from_dict({"name": "zero", "strength": 1.0}), ValueError, r"zero.*\['strength'\]"),
    ],
)
def test_errors_name_argument_value_and_remedy(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("regularizer", BUILT_IN, ids=repr)
@pytest.mark.parametrize("step", [0.0, -1.0, np.nan, np.inf])
def test_a_bad_step_is_refused(regularizer, step):
    # A negative step flips the prox into an expansion.
    with pytest.raises(ValueError, match="step must be positive and finite"):
        regularizer.prox(np.ones(3), step)


@pytest.mark.parametrize("regularizer", [r for r in BUILT_IN if not r.separable], ids=repr)
def test_a_step_per_coordinate_needs_a_separable_regularizer(regularizer):
    # The Euclidean projection is not the answer in a scaled norm.
    with pytest.raises(ValueError, match="not separable"):
        regularizer.prox(np.ones(3), np.array([1.0, 2.0, 3.0]))
