"""Certificates are measured: on random pairs no promise is broken, and adversarial pairs come close to it.

Nothing here is drawn without a fixed seed: hypothesis is derandomised, so a test fails always or never. The bounds are
theorems, so the false-alarm rate is 0 up to rounding, for which ``SLACK`` is allowed.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hushpoint as hp
from hushpoint.certificates import Certificate
from hushpoint.losses import Absolute, Huber, Logistic, Quantile, SmoothedHinge, Squared
from hushpoint.operators import (
    AnchoredADMM,
    ConsensusADMM,
    CoordinateGradient,
    FixedPoint,
    GeneralADMM,
    Gradient,
    LionsMercier,
    Prox,
    ReflectedProx,
    StatelessProx,
    SummedADMM,
)
from hushpoint.operators.prox import ItemsProx, WholeProx
from hushpoint.regularizers import L1, L2, Ball, Box, ElasticNet, GroupL1, Ridged, Zero

SLACK = 1e-9
ROW_NORM = 1.5
ADJACENCIES = ("replace-one", "zero-out")

# name -> loss, clip. The squared loss is private only when truncated; the absolute loss has a kink: one-row items only.
SMOOTH = {
    "logistic": (Logistic(), None),
    "huber": (Huber(0.7), None),
    "squared, clipped": (Squared(), 0.8),
    "smoothed hinge": (SmoothedHinge(0.5), None),
    "quantile": (Quantile(0.8, smoothing=0.3), None),
    "logistic, clipped": (Logistic(), 0.4),
}
ONE_ROW = {**SMOOTH, "absolute": (Absolute(), None), "absolute, clipped": (Absolute(), 0.6)}
TWO_CLASS = ("logistic", "smoothed hinge", "logistic, clipped")

few = settings(derandomize=True, deadline=None, max_examples=40)
seeds = st.integers(0, 2**32 - 1)
gammas = st.floats(-2, 2).map(lambda exponent: 10.0**exponent)
ridges = st.sampled_from([0.0, 0.1, 2.0])
relaxations = st.floats(0.05, 1.0)


@dataclass
class World:
    """Rows, targets and the users they belong to; ``counts`` None where every item is one row."""

    X: Any
    y: Any
    counts: tuple[int, ...] | None
    name: str

    @property
    def items(self):
        return len(self.y) if self.counts is None else len(self.counts)

    def rows_of(self, item):
        if self.counts is None:
            return np.array([item])
        ends = np.cumsum(self.counts)
        return np.arange(ends[item] - self.counts[item], ends[item])

    def problem(self, weights="items", regularizer=None, row_norm=ROW_NORM):
        loss, clip = ONE_ROW[self.name]
        groups = None if self.counts is None else np.repeat(np.arange(len(self.counts)), self.counts)
        return hp.Problem(
            self.X, self.y, loss, regularizer, row_norm=row_norm, groups=groups, weights=weights, clip=clip
        )

    def changed(self, rows, X, y):
        world = World(self.X.copy(), self.y.copy(), self.counts, self.name)
        world.X[rows], world.y[rows] = X, y
        return world


def random_world(rng, name, users, width=3, items=4):
    counts = tuple(int(count) for count in rng.integers(1, 5, size=items)) if users else None
    total = sum(counts) if users else items
    X = rng.normal(size=(total, width)) * 10 ** rng.uniform(-1, 1, size=(total, 1))
    world = World(X, random_targets(rng, name, total), counts, name)
    return world


def random_targets(rng, name, size):
    if name in TWO_CLASS:
        return rng.choice([-1.0, 1.0], size=size)
    return rng.normal(size=size) * 10 ** rng.uniform(-1, 2, size=size)


def random_neighbour(rng, world, item, unit, adjacency):
    """A data set that differs in one item (user), or in one row of it (record)."""
    rows = world.rows_of(item)
    if unit == "record":
        rows = rng.choice(rows, size=1)
    if adjacency == "zero-out":  # a row of zeros: its loss is constant and its prox the identity
        return world.changed(rows, 0.0, world.y[rows])
    X = rng.normal(size=(len(rows), world.X.shape[1])) * 10
    return world.changed(rows, X, random_targets(rng, world.name, len(rows)))


def with_both_labels(world, item):
    """Two-class problems need both labels; the other items of both worlds get one each."""
    if world.name in TWO_CLASS:
        others = [other for other in range(world.items) if other != item]
        world.y[world.rows_of(others[0])[0]], world.y[world.rows_of(others[1])[0]] = -1.0, 1.0
    return world


def prepared(operator, problem):
    return operator.prepare(problem.rows)


def random_state(rng, *shape):
    return rng.normal(size=shape) * 10 ** rng.uniform(-1, 2)


def nearby(rng, state):
    """A second state, from very near to far away: kinks are found by near pairs, bounds by far ones."""
    return state + rng.normal(size=state.shape) * 10 ** rng.uniform(-3, 1.5)


def at_most(measured, bound, slack=SLACK):
    assert measured <= bound * (1 + SLACK) + slack, f"measured {measured:.12g}, promised {bound:.12g}"
    return measured / bound if bound else 0.0


# --- Contraction -----------------------------------------------------------------------------------------------------


def consensus_step(operator, data, blocks, relaxation):
    """One step in which every block moves, from blocks alone: zhat is their weighted mean."""
    z = operator.release(operator.facts.item_weights @ blocks)
    return operator.local(data, slice(None), blocks, z, relaxation, None)[0]


def weighted_norm(operator, blocks):
    return math.sqrt(operator.facts.item_weights @ (blocks**2).sum(axis=1))


PENALTIES = [Zero(), L1(0.3), L2(0.5), ElasticNet(0.1, 0.7), Ball(2.0), Box(-1.0, 2.0)]


@pytest.mark.parametrize("weights", ["items", "rows"])
@pytest.mark.parametrize("users", [False, True])
@given(seed=seeds, gamma=gammas, ridge=ridges, relaxation=relaxations, choice=st.integers(0, 100))
@few
def test_consensus_contracts_as_promised(users, weights, seed, gamma, ridge, relaxation, choice):
    # catches: a constant without the ridge, the plain norm where weights differ, 1 - lambda*tau for the step
    rng = np.random.default_rng(seed)
    kinds = SMOOTH if users else ONE_ROW
    name = list(kinds)[choice % len(kinds)]
    world = with_both_labels(random_world(rng, name, users), 0)
    problem = world.problem(weights if users else "items")
    tolerance = 1e-10 * gamma if users else None
    operator = ConsensusADMM(problem.facts, gamma, PENALTIES[choice % len(PENALTIES)], ridge, tolerance=tolerance)
    data = prepared(operator, problem)
    u = random_state(rng, world.items, 3)
    v = nearby(rng, u)
    apart = weighted_norm(operator, u - v)
    slack = SLACK + 4 * operator.tolerance
    for size, bound in ((1.0, operator.certificate(1.0).lipschitz), (relaxation, operator.step_lipschitz(relaxation))):
        moved = consensus_step(operator, data, u, size) - consensus_step(operator, data, v, size)
        at_most(weighted_norm(operator, moved), bound * apart, slack)


def random_constraint(rng, width, shape):
    """A, B, c of ``A x + B z = c``; None is the plain x = z."""
    if shape == "plain":
        return None, None, None
    rows = width + (2 if shape == "tall" else 0)
    A = rng.normal(size=(rows, width)) + 2 * np.eye(rows, width)
    if shape == "fused":
        A = np.vstack([np.eye(width), np.diff(np.eye(width), axis=0)])
        return A, None, None
    columns = 2 if shape == "tall" else width
    B = np.linalg.qr(rng.normal(size=(rows, columns)))[0] * rng.uniform(0.3, 3.0, size=columns)
    return A, B, rng.normal(size=rows)


@pytest.mark.parametrize("shape", ["plain", "square", "tall", "fused"])
@given(seed=seeds, gamma=gammas, ridge=ridges, relaxation=relaxations, choice=st.integers(0, 100))
@few
def test_general_admm_contracts_as_promised(shape, seed, gamma, ridge, relaxation, choice):
    # catches: smoothness divided by |A|^2 instead of w^2 (or the other way round), a contraction claimed for a tall A
    rng = np.random.default_rng(seed)
    name = list(SMOOTH)[choice % len(SMOOTH)]
    users = bool(choice % 2)
    world = with_both_labels(random_world(rng, name, users), 0)
    problem = world.problem("rows" if choice % 3 == 0 and users else "items")
    A, B, c = random_constraint(rng, 3, shape)
    penalty = PENALTIES[choice % len(PENALTIES)]
    operator = GeneralADMM(problem.facts, gamma, penalty, ridge, A, B, c, tolerance=1e-9 * gamma)
    data = prepared(operator, problem)
    u = random_state(rng, operator.block_size)
    v = nearby(rng, u)
    certificate = operator.certificate(relaxation)
    if shape in ("tall", "fused") and not isinstance(penalty, (L2, ElasticNet)):
        assert certificate.lipschitz == 1
    slack = SLACK + 4 * operator.tolerance
    for size, bound in ((1.0, certificate.lipschitz), (relaxation, operator.step_lipschitz(relaxation))):
        moved = general_step(operator, data, u, size) - general_step(operator, data, v, size)
        at_most(float(np.linalg.norm(moved)), bound * float(np.linalg.norm(u - v)), slack)


def general_step(operator, data, u, relaxation):
    return operator.local(data, slice(None), u[None, :], operator.release(u), relaxation, None)[0][0]


@pytest.mark.parametrize("users", [False, True])
@given(seed=seeds, step=gammas, strength=ridges, relaxation=relaxations, choice=st.integers(0, 100))
@few
def test_gradient_step_contracts_as_promised(users, seed, step, strength, relaxation, choice):
    # catches: smoothness of a sum instead of a mean, the relaxation left out of the step, the prox's factor left out
    rng = np.random.default_rng(seed)
    name = list(SMOOTH)[choice % len(SMOOTH)]
    world = with_both_labels(random_world(rng, name, users), 0)
    regularizer = [L2(strength), ElasticNet(0.1, strength), Zero(), L1(0.2)][choice % 4]
    problem = world.problem("rows" if users and choice % 3 == 0 else "items", regularizer)
    operator = Gradient(problem.facts, step, problem.items)
    z = random_state(rng, 3)
    other = nearby(rng, z)
    bound = operator.step_lipschitz(relaxation)
    assert bound == operator.certificate(relaxation).lipschitz
    moved = gradient_step(operator, problem, z, relaxation) - gradient_step(operator, problem, other, relaxation)
    at_most(float(np.linalg.norm(moved)), bound * float(np.linalg.norm(z - other)))


def gradient_step(operator, problem, z, relaxation):
    nothing = np.zeros((problem.items, 0))
    total = operator.move(problem.rows, slice(None), nothing, z, relaxation, None, operator.multiplicity)[1]
    return operator.combine(z, total, None, relaxation)


@pytest.mark.parametrize("users", [False, True])
@given(seed=seeds, gamma=gammas, ridge=ridges, relaxation=relaxations, choice=st.integers(0, 100))
@few
def test_stateless_hop_contracts_as_promised(users, seed, gamma, ridge, relaxation, choice):
    # catches: the stateful map's hop (which expands by 1 + 2 lambda/n) taken for the walk's, or the ridge forgotten
    rng = np.random.default_rng(seed)
    kinds = SMOOTH if users else ONE_ROW
    name = list(kinds)[choice % len(kinds)]
    world = with_both_labels(random_world(rng, name, users), 0)
    problem = world.problem(regularizer=L2(ridge))
    operator = StatelessProx(problem.facts, gamma, tolerance=1e-10 * gamma if users else None)
    data = prepared(operator, problem)
    z = random_state(rng, 3)
    other = nearby(rng, z)
    item = np.array([choice % world.items])
    slack = SLACK + 4 * operator.tolerance
    for size, bound in ((1.0, operator.certificate(1.0).lipschitz), (relaxation, operator.step_lipschitz(relaxation))):
        moved = stateless_hop(operator, data, item, z, size) - stateless_hop(operator, data, item, other, size)
        at_most(float(np.linalg.norm(moved)), bound * float(np.linalg.norm(z - other)), slack)


def stateless_hop(operator, data, item, z, relaxation):
    message = operator.local(data, item, np.zeros((1, 0)), z, relaxation, None)[1][0]
    return operator.combine(z, message, item, relaxation)


@dataclass(frozen=True)
class Diagonal:
    """``sum_j d_j x_j^2 / 2``: both constants are attained, each along one coordinate."""

    entries: tuple[float, ...]

    @property
    def strong_convexity(self):
        return min(self.entries)

    @property
    def smoothness(self):
        return max(self.entries)

    def prox(self, v, step):
        return v / (1 + step * np.array(self.entries))


FUNCTIONS = [
    Zero(),
    L1(0.4),
    L2(0.3),
    ElasticNet(0.2, 1.5),
    GroupL1(0.5, ((0, 2),)),
    Box(-0.5, 1.0),
    Ball(1.2),
    Ridged(Ball(1.2), 0.6),
    Diagonal((0.2, 1.0, 6.0)),
]


@given(
    seed=seeds,
    gamma=gammas,
    relaxation=relaxations,
    first=st.sampled_from(FUNCTIONS),
    second=st.sampled_from(FUNCTIONS),
)
@settings(few, max_examples=200)
def test_splitting_maps_contract_as_promised(seed, gamma, relaxation, first, second):
    # catches: 1/(1 + gamma m) for a reflection, a sum where the composition multiplies, gamma forgotten in a constant
    rng = np.random.default_rng(seed)
    u = random_state(rng, 3)
    v = nearby(rng, u)
    apart = float(np.linalg.norm(u - v))
    both = LionsMercier(first, second, gamma, 3)
    for one, bound in (
        (Prox(first, gamma), Prox(first, gamma).lipschitz),
        (ReflectedProx(first, gamma), ReflectedProx(first, gamma).lipschitz),
        (both.apply, both.certificate(relaxation).lipschitz),
        (lambda x: x + relaxation * (both.apply(x) - x), both.step_lipschitz(relaxation)),
    ):
        at_most(float(np.linalg.norm(one(u) - one(v))), bound * apart)


def test_splitting_constants_are_attained():
    # catches: constants that are true but idle (always 1): each end of the spectrum attains its own
    function, at = Diagonal((0.2, 1.0, 6.0)), np.zeros(3)
    low, high = np.eye(3)[0], np.eye(3)[2]
    for gamma, direction in ((0.1, low), (4.0, high)):
        reflected = ReflectedProx(function, gamma)
        assert np.linalg.norm(reflected(at + direction) - reflected(at)) == pytest.approx(
            reflected.lipschitz, rel=1e-12
        )
        assert reflected.lipschitz < 1
    prox = Prox(function, 0.5)
    assert np.linalg.norm(prox(low) - prox(at)) == pytest.approx(prox.lipschitz, rel=1e-12)
    both = LionsMercier(function, L2(1.0), 4.0, 3)
    relaxed = lambda x: x + 0.3 * (both.apply(x) - x)  # noqa: E731
    assert np.linalg.norm(both.apply(high) - both.apply(at)) == pytest.approx(
        both.certificate(0.3).lipschitz, rel=1e-12
    )
    # relaxed, the bound is attained where the reflections keep the sign of a direction: small gamma, low curvature
    both = LionsMercier(function, L2(1.0), 0.1, 3)
    assert np.linalg.norm(relaxed(low) - relaxed(at)) == pytest.approx(both.step_lipschitz(0.3), rel=1e-12)


def linear_world(name="huber", counts=None, items=4, width=3, far=1e6):
    """Numeric losses in their linear regime everywhere: no curvature, slopes at their bound."""
    total = items if counts is None else sum(counts)
    return World(np.tile(np.eye(width)[0] * ROW_NORM, (total, 1)), np.full(total, far), counts, name)


def test_consensus_contraction_is_attained():
    # catches: a constant that is larger than the map's (a final-model guarantee would be worse than need be)
    for far, gamma, ridge in ((1e6, 0.3, 0.5), (0.0, 10.0, 0.5)):  # no curvature at all; the full curvature
        world = linear_world(far=far)
        problem = world.problem()
        operator = ConsensusADMM(problem.facts, gamma, L1(0.1), ridge)
        data = prepared(operator, problem)
        u = np.zeros((4, 3))
        v = u + 1e-3 * np.array([1.0, -1.0, 1.0, -1.0])[:, None] * np.eye(3)[0]  # mean zero: z does not move
        moved = consensus_step(operator, data, u, 1.0) - consensus_step(operator, data, v, 1.0)
        bound = operator.certificate(1.0).lipschitz
        assert bound < 1
        assert np.linalg.norm(moved) / np.linalg.norm(u - v) == pytest.approx(bound, rel=1e-6)


@pytest.mark.parametrize(("far", "gamma", "end"), [(1e6, 0.3, -1), (0.0, 10.0, 0)])
def test_general_admm_contraction_is_attained(far, gamma, end):
    # catches: m/w^2 or beta/|A|^2 in the constant (it would be exceeded or idle); far targets: no curvature, m counts
    left, values, right = np.linalg.svd(np.array([[2.0, 0.3, 0.0], [0.0, 1.0, 0.2], [0.1, 0.0, 0.5]]))
    A = left @ np.diag(values) @ right
    direction = (
        right[0] if end == -1 else right[-1]
    )  # m/|A|^2 is attained at the largest value, beta/w^2 at the smallest
    X = np.tile(direction * ROW_NORM, (4, 1))
    problem = World(X, np.full(4, far), None, "huber").problem()
    operator = GeneralADMM(problem.facts, gamma, L2(1.0), 0.5, A, tolerance=1e-12)
    data = prepared(operator, problem)
    u = np.zeros(3)
    v = u + 1e-3 * (left[:, 0] if end == -1 else left[:, -1])
    ratio = np.linalg.norm(general_step(operator, data, u, 1.0) - general_step(operator, data, v, 1.0)) / 1e-3
    bound = operator.certificate(1.0).lipschitz
    assert bound < 0.9
    assert ratio == pytest.approx(bound, rel=1e-5)


@pytest.mark.parametrize("step", [0.05, 3.0])
def test_gradient_contraction_is_attained(step):
    # catches: beta of a sum, or g without the relaxation: one step has no curvature to see, the other too much of it
    problem = linear_world(far=1e6 if step < 1 else 0.0).problem(regularizer=L2(0.2))
    operator = Gradient(problem.facts, step, problem.items)
    z, other = np.zeros(3), 1e-3 * np.eye(3)[0]
    ratio = (
        np.linalg.norm(gradient_step(operator, problem, z, 0.7) - gradient_step(operator, problem, other, 0.7)) / 1e-3
    )
    assert ratio == pytest.approx(operator.step_lipschitz(0.7), rel=1e-9)


def test_one_block_of_a_non_expansive_map_expands():
    # catches: a Lipschitz constant claimed for partial schedules (theory 2; the paper's footnote says otherwise)
    problem = World(np.zeros((2, 1)), np.array([0.0, 1.0]), None, "huber").problem()  # f = 0
    operator = ConsensusADMM(problem.facts, 1.0, Zero())
    data = prepared(operator, problem)

    def one_block(blocks):
        z = operator.release(blocks.mean(axis=0))
        moved = blocks.copy()
        moved[:1] = operator.local(data, np.array([0]), blocks[:1], z, 0.5, None)[0]
        return moved

    matrix = np.stack([one_block(block.reshape(2, 1)).ravel() for block in np.eye(2)], axis=1)
    assert np.linalg.norm(matrix, 2) == pytest.approx(1.144, abs=5e-4)
    everyone = np.stack(
        [consensus_step(operator, data, block.reshape(2, 1), 0.5).ravel() for block in np.eye(2)], axis=1
    )
    assert np.linalg.norm(everyone, 2) <= operator.step_lipschitz(0.5) + 1e-12 == 1 + 1e-12
    # The engine moves one block exactly like this.
    plan = hp.methods.centralized_admm(problem, steps=1, gamma=1.0, noise_std=0.0, schedule="cyclic")
    begun = plan.run(seed=0).state
    start = np.array([[0.3], [-1.2]])
    state = dataclasses.replace(begun, blocks=start, shared=start.mean(axis=0), public=start.mean(axis=0), steps=0)
    np.testing.assert_allclose(plan.run(state=state).state.blocks, matrix @ start, atol=1e-15)


def test_coordinate_updates_claim_no_contraction():
    # catches: DP-CD accounted as if a coordinate step were non-expansive
    operator = CoordinateGradient(linear_world().problem().facts, 0.1)
    assert operator.step_lipschitz(1.0) is None
    assert operator.certificate(1.0).lipschitz is None
    assert any("not non-expansive" in reason for reason in operator.certificate(1.0).missing)
    # and rightly: f(x) = (x_1 + x_2)^2/2, the first coordinate only, at the usual step
    step = np.eye(2) - 1.0 * np.array([[1.0, 1.0], [0.0, 0.0]])
    assert np.linalg.norm(step, 2) > 1.3


def test_sampled_gradient_claims_no_contraction():
    # catches: the full-batch constant claimed for sampled steps, whose smoothness is that of the sample over q n
    problem = linear_world(far=0.0).problem()
    share = 0.25
    operator = Gradient(problem.facts, 0.8, share * problem.items)
    z, other = np.zeros(3), 1e-3 * np.eye(3)[0]
    ratio = (
        np.linalg.norm(gradient_step(operator, problem, z, 1.0) - gradient_step(operator, problem, other, 1.0)) / 1e-3
    )
    assert ratio > 2  # everyone in the sample, which has positive probability
    bound = operator.certificate(1.0).lipschitz
    assert bound is None or bound >= ratio * (1 - SLACK)


# --- Sensitivity of R at a block (noise in the blocks) ---------------------------------------------------------------


def block_shift(operator, problem, other, item, blocks, shared):
    """How far the noised quantity of a participating item differs between two worlds, at the same state."""
    z = operator.release(shared)
    chosen = np.array([item])
    one, two = (
        operator.local(prepared(operator, world), chosen, blocks[chosen].copy(), z, 1.0, None)[1]
        for world in (problem, other)
    )
    return float(np.linalg.norm(one - two))


@pytest.mark.parametrize("users", [False, True])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@given(seed=seeds, gamma=gammas, ridge=ridges, choice=st.integers(0, 10**4), coarse=st.booleans())
@few
def test_consensus_block_moves_no_more_than_promised(users, adjacency, seed, gamma, ridge, choice, coarse):
    # catches: 2 L gamma for 4 L gamma, a record's share not divided by (or divided twice by) n_i, tol halved or divided
    rng = np.random.default_rng(seed)
    kinds = SMOOTH if users else ONE_ROW
    name = list(kinds)[choice % len(kinds)]
    item = choice % 4
    world = with_both_labels(random_world(rng, name, users), item)
    unit = ("user", "record")[choice % 2]
    neighbour = random_neighbour(rng, world, item, unit, adjacency)
    problem, other = (one.problem("rows" if users and choice % 3 == 0 else "items") for one in (world, neighbour))
    assert problem.facts == other.facts
    tolerance = 0.05 * gamma if users and coarse else None
    operator = ConsensusADMM(problem.facts, gamma, L1(0.1), ridge, tolerance=tolerance)
    blocks, shared = random_state(rng, 4, 3), random_state(rng, 3)
    at_most(
        block_shift(operator, problem, other, item, blocks, shared),
        operator.certificate(1.0).shift(unit, adjacency, item),
    )


@pytest.mark.parametrize("users", [False, True])
@given(seed=seeds, gamma=gammas, bound=gammas, choice=st.integers(0, 10**4))
@few
def test_clipped_residual_moves_no_more_than_promised(users, seed, gamma, bound, choice):
    # catches: clip_residual promised at record level or as non-expansive; 2C for 4C
    rng = np.random.default_rng(seed)
    kinds = {**(SMOOTH if users else ONE_ROW)}
    name = list(kinds)[choice % len(kinds)]
    item = choice % 4
    world = with_both_labels(random_world(rng, name, users), item)
    neighbour = random_neighbour(rng, world, item, "user", "replace-one")
    problem, other = world.problem(), neighbour.problem()
    operator = ConsensusADMM(problem.facts, gamma, L1(0.1), 0.0, clip_residual=bound)
    certificate = operator.certificate(0.5)
    assert certificate.lipschitz is None
    assert operator.step_lipschitz(0.5) is None
    if users:
        with pytest.raises(ValueError, match="item as a whole"):
            certificate.shift("record")
    blocks, shared = random_state(rng, 4, 3), random_state(rng, 3)
    at_most(block_shift(operator, problem, other, item, blocks, shared), certificate.shift("user", item=item))
    # zero-out where messages are clipped: the message is 0, so R = u
    z = operator.release(shared)
    message = operator.local(prepared(operator, problem), np.array([item]), blocks[[item]], z, 1.0, None)[1]
    at_most(float(np.linalg.norm(message)), certificate.shift("user", "zero-out", item))


@pytest.mark.parametrize("shape", ["plain", "square", "tall", "fused"])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@given(seed=seeds, gamma=gammas, ridge=ridges, choice=st.integers(0, 10**4), coarse=st.booleans())
@few
def test_general_admm_moves_no_more_than_promised(shape, adjacency, seed, gamma, ridge, choice, coarse):
    # catches: |A|/w as printed, s not clipped to the singular values, weights by rows ignored, tol divided by n
    rng = np.random.default_rng(seed)
    name = list(SMOOTH)[choice % len(SMOOTH)]
    users = bool(choice % 2)
    item = choice % 4
    world = with_both_labels(random_world(rng, name, users), item)
    unit = ("user", "record")[choice // 2 % 2]
    neighbour = random_neighbour(rng, world, item, unit, adjacency)
    problem, other = (one.problem("rows" if users and choice % 3 == 0 else "items") for one in (world, neighbour))
    A, B, c = random_constraint(rng, 3, shape)
    tolerance = 0.02 * gamma if coarse else None
    operator = GeneralADMM(problem.facts, gamma, L1(0.1), ridge, A, B, c, tolerance)
    u = random_state(rng, operator.block_size)
    measured = np.linalg.norm(
        general_step(operator, prepared(operator, problem), u, 1.0)
        - general_step(operator, prepared(operator, other), u, 1.0)
    )
    at_most(float(measured), operator.certificate(1.0).shift(unit, adjacency, item))


@pytest.mark.parametrize("users", [False, True])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@given(seed=seeds, gamma=gammas, ridge=ridges, choice=st.integers(0, 10**4))
@few
def test_stateless_hop_moves_no_more_than_promised(users, adjacency, seed, gamma, ridge, choice):
    # catches: the ridge divided out of the sensitivity though it sits in r, or a record's share lost
    rng = np.random.default_rng(seed)
    kinds = SMOOTH if users else ONE_ROW
    name = list(kinds)[choice % len(kinds)]
    item = choice % 4
    world = with_both_labels(random_world(rng, name, users), item)
    unit = ("user", "record")[choice // 2 % 2]
    neighbour = random_neighbour(rng, world, item, unit, adjacency)
    problem, other = (one.problem(regularizer=L2(ridge)) for one in (world, neighbour))
    operator = StatelessProx(problem.facts, gamma)
    z, chosen = random_state(rng, 3), np.array([item])
    one, two = (stateless_hop(operator, prepared(operator, side), chosen, z, 1.0) for side in (problem, other))
    at_most(float(np.linalg.norm(one - two)), operator.certificate(1.0).shift(unit, adjacency, item))


# --- Sensitivity of the sum of messages ------------------------------------------------------------------------------


def sum_shift(operator, problem, other, blocks, z, relaxation):
    totals = [
        operator.move(prepared(operator, side), slice(None), blocks.copy(), z, relaxation, None, operator.multiplicity)[
            1
        ]
        for side in (problem, other)
    ]
    return float(np.linalg.norm(totals[0] - totals[1]))


@pytest.mark.parametrize("users", [False, True])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@given(seed=seeds, choice=st.integers(0, 10**4))
@few
def test_gradient_sum_moves_no_more_than_promised(users, adjacency, seed, choice):
    # catches: 2L for zero-out, L for replace-one, n w_i left out of the bound of the heaviest user
    rng = np.random.default_rng(seed)
    kinds = SMOOTH if users else ONE_ROW
    name = list(kinds)[choice % len(kinds)]
    item = choice % 4
    world = with_both_labels(random_world(rng, name, users), item)
    unit = ("user", "record")[choice // 2 % 2]
    neighbour = random_neighbour(rng, world, item, unit, adjacency)
    problem, other = (one.problem("rows" if users and choice % 3 else "items") for one in (world, neighbour))
    z = random_state(rng, 3)
    whole = Gradient(problem.facts, 0.1, problem.items)
    promised = whole.certificate(1.0).shift(unit, adjacency, item)
    at_most(sum_shift(whole, problem, other, np.zeros((4, 0)), z, 1.0), promised)
    single = CoordinateGradient(problem.facts, 0.1)
    promised = single.certificate(1.0).shift(unit, adjacency, item)
    for coordinate in range(3):
        one, two = (
            single.local(prepared(single, side), np.array([coordinate]), np.zeros((1, 0)), z, 1.0, None)[1]
            for side in (problem, other)
        )
        at_most(float(np.abs(one - two).max()), promised)


@pytest.mark.parametrize("weights", ["items", "rows"])
@given(seed=seeds, gamma=gammas, bound=gammas, relaxation=relaxations, choice=st.integers(0, 10**4))
@few
def test_summed_messages_move_no_more_than_promised(weights, seed, gamma, bound, relaxation, choice):
    # catches: the relaxation or the factor 2 of the message left out; a record-level claim
    rng = np.random.default_rng(seed)
    name = list(SMOOTH)[choice % len(SMOOTH)]
    item = choice % 4
    world = with_both_labels(random_world(rng, name, True), item)
    neighbour = random_neighbour(rng, world, item, "user", "replace-one")
    problem, other = world.problem(weights), neighbour.problem(weights)
    operator = SummedADMM(problem.facts, gamma, L1(0.1), 0.0, clip_residual=bound)
    certificate = operator.certificate(relaxation)
    assert certificate.lipschitz is None
    with pytest.raises(ValueError, match="not one record"):
        certificate.shift("record")
    blocks, z = random_state(rng, 4, 3), random_state(rng, 3)
    at_most(sum_shift(operator, problem, other, blocks, z, relaxation), certificate.shift("user", item=item))
    message = operator.local(prepared(operator, problem), np.array([item]), blocks[[item]], z, relaxation, None)[1]
    multiplicity = 1.0 if operator.multiplicity is None else operator.multiplicity[item]
    at_most(multiplicity * float(np.linalg.norm(message)), certificate.shift("user", "zero-out", item))


# --- Sensitivity of the anchored release, over rounds ----------------------------------------------------------------

ANCHORED_RELAXATIONS = [0.1, 0.35, 0.5, 0.6, 0.9, 1.0]


def anchored_gaps(operator, problem, other, item, relaxation, points, joins):
    """Largest gap of the mean of blocks over rounds with the same releases, and of the item's block to its centre."""
    sides = [prepared(operator, problem), prepared(operator, other)]
    shared, blocks = zip(*(operator.start() for _ in sides), strict=True)
    shared, blocks = list(shared), [block.copy() for block in blocks]
    centre = np.zeros(operator.block_size)  # the public start
    gap = gap_to_centre = 0.0
    weight = operator.facts.item_weights[item]
    for z, joined in zip(points, joins, strict=True):
        chosen = np.flatnonzero(joined)
        if chosen.size == 0:
            continue
        multiplicity = None if operator.multiplicity is None else operator.multiplicity[chosen]
        for k, data in enumerate(sides):
            blocks[k][chosen], total = operator.move(data, chosen, blocks[k][chosen], z, relaxation, None, multiplicity)
            shared[k] = operator.combine(shared[k], total, chosen, relaxation)
            np.testing.assert_allclose(shared[k], operator.facts.item_weights @ blocks[k], atol=1e-9)
        if joined[item]:
            centre = z
        gap = max(gap, float(np.linalg.norm(shared[0] - shared[1])))
        gap_to_centre = max(gap_to_centre, weight * float(np.linalg.norm(blocks[0][item] - centre)))
    return gap, gap_to_centre


@pytest.mark.parametrize("relaxation", ANCHORED_RELAXATIONS)
@pytest.mark.parametrize("unit", ["user", "record"])
@given(seed=seeds, gamma=gammas, choice=st.integers(0, 10**4), coarse=st.booleans())
@settings(few, max_examples=25)
def test_anchored_mean_moves_no_more_than_promised(unit, relaxation, seed, gamma, choice, coarse):
    # catches: states that drift apart over rounds (a one-round bound), clipping around the wrong centre, w_i lost
    rng = np.random.default_rng(seed)
    name = list(SMOOTH)[choice % len(SMOOTH)]
    item = choice % 4
    adjacency = ADJACENCIES[choice // 2 % 2] if unit == "record" else "replace-one"
    world = with_both_labels(random_world(rng, name, True), item)
    neighbour = random_neighbour(rng, world, item, unit, adjacency)
    problem, other = (one.problem("rows" if choice % 3 else "items") for one in (world, neighbour))
    radius = None if choice % 2 else gamma * 10 ** rng.uniform(-1, 1)
    operator = AnchoredADMM(problem.facts, gamma, L1(0.1), 0.0, radius, 0.02 * gamma if coarse else None)
    rounds = 8
    points = np.cumsum(rng.normal(size=(rounds, 3)) * gamma * 10 ** rng.uniform(-1, 0.5), axis=0)
    joins = rng.random((rounds, 4)) < rng.choice([0.3, 0.8, 1.0])
    gap, gap_to_centre = anchored_gaps(operator, problem, other, item, relaxation, points, joins)
    certificate = operator.certificate(relaxation)
    at_most(gap, certificate.shift(unit, adjacency, item))
    at_most(gap_to_centre, certificate.shift("user", "zero-out", item))
    assert certificate.lipschitz is None


@pytest.mark.parametrize("relaxation", ANCHORED_RELAXATIONS)
@given(seed=seeds, gamma=gammas, choice=st.integers(0, 10**4))
@settings(few, max_examples=15)
def test_anchored_records_move_no_more_than_promised(relaxation, seed, gamma, choice):
    # catches: the many-row bound (n_i = 1) where items are records, or a radius that does not hold a kinked loss
    rng = np.random.default_rng(seed)
    name = list(ONE_ROW)[choice % len(ONE_ROW)]
    item = choice % 4
    world = with_both_labels(random_world(rng, name, False), item)
    neighbour = random_neighbour(rng, world, item, "record", "replace-one")
    problem, other = world.problem(), neighbour.problem()
    operator = AnchoredADMM(problem.facts, gamma, L2(0.1))
    points = np.cumsum(rng.normal(size=(8, 3)) * gamma, axis=0)
    joins = rng.random((8, 4)) < 0.8
    gap, gap_to_centre = anchored_gaps(operator, problem, other, item, relaxation, points, joins)
    at_most(gap, operator.certificate(relaxation).shift("record", item=item))
    at_most(gap_to_centre, operator.certificate(relaxation).shift("record", "zero-out", item))


def test_anchored_block_never_clips_at_one_half():
    # catches: a default radius that is too small (it would bias the fixed point) or too large (it would cost privacy)
    world = linear_world(counts=(3, 3, 3, 3))
    problem = world.problem()
    operator = AnchoredADMM(problem.facts, 2.0, Zero())
    wide = AnchoredADMM(problem.facts, 2.0, Zero(), radius=1e9)
    z = np.array([1.0, -2.0, 0.5])
    blocks = random_state(np.random.default_rng(5), 4, 3)
    one, two = (each.local(prepared(each, problem), slice(None), blocks, z, 0.5, None)[0] for each in (operator, wide))
    np.testing.assert_allclose(one, two, atol=1e-5)  # both solved to 1e-6 L gamma/n_i
    assert np.linalg.norm(one - z, axis=1).max() == pytest.approx(operator.radius, rel=1e-5)


# --- Adversarial pairs -----------------------------------------------------------------------------------------------


def adversarial_pair(name, counts, unit, adjacency, item=1, direction=(0.0, 1.0, 0.0), items=4):
    """Two worlds whose gradients differ as much as can be, and a model at which they do.

    Numeric losses: one row with opposite, far targets. Two-class losses: at one model no two labels of the same row
    both have full slope, but two nearly opposite rows on the wrong side of it do.
    """
    width = len(direction)
    total = items if counts is None else sum(counts)
    direction = np.array(direction)
    if name in TWO_CLASS:
        across = np.eye(width)[0]
        tilt = 0.1
        one, two = (ROW_NORM * (tilt * across + sign * math.sqrt(1 - tilt**2) * direction) for sign in (1, -1))
        far = -3000.0 * across
        X = np.tile(one, (total, 1))
        y = np.ones(total)
        # both classes must exist: an item that is never the changed one gets the other label, same loss
        world = World(X, y, counts, name)
        last = world.rows_of(items - 1)
        X[last], y[last] = -one, -1.0
        targets = 1.0
    else:
        one, two, far = ROW_NORM * direction, ROW_NORM * direction, np.zeros(width)
        world = World(np.tile(one, (total, 1)), np.full(total, 1e7), counts, name)
        targets = -1e7
    rows = world.rows_of(item)
    rows = rows if unit == "user" else rows[:1]
    neighbour = world.changed(rows, 0.0 if adjacency == "zero-out" else two, targets)
    return world, neighbour, far


CLOSE = 0.95
ATTAINED = [name for name in ONE_ROW if name != "quantile"]  # its two slopes differ: L + (1 - level) at most, not 2 L


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("unit", ["user", "record"])
@pytest.mark.parametrize("counts", [None, (2, 5, 3, 1)])
@pytest.mark.parametrize("name", ATTAINED)
def test_adversarial_pairs_come_close_in_one_step(name, counts, unit, adjacency):
    # catches: certificates that are true but idle, so that the noise is larger than need be; and a test without power
    if counts is not None and name.startswith("absolute"):
        counts = (1, 1, 1, 1)  # a kink: items of one row
        with pytest.raises(ValueError, match="kink"):
            ConsensusADMM(World(np.ones((4, 3)), np.ones(4), counts, name).problem().facts, 1.0, Zero())
        counts = None
    world, neighbour, far = adversarial_pair(name, counts, unit, adjacency)
    gamma, item = 3.0, 1
    close = []
    for weights in ("items", "rows"):
        problem, other = (one.problem(weights) for one in (world, neighbour))
        assert problem.facts == other.facts
        state = np.tile(far, (4, 1))
        for ridge in (0.0, 0.4):
            # with a ridge the prox shrinks its point: start where it lands far out all the same
            operator = ConsensusADMM(problem.facts, gamma, Zero(), ridge)
            bound = operator.certificate(1.0).shift(unit, adjacency, item)
            close.append(at_most(block_shift(operator, problem, other, item, state, far), bound))
            if not math.isinf(problem.facts.loss.smoothness):
                operator = GeneralADMM(problem.facts, gamma, Zero(), ridge)
                sides = [general_step(operator, prepared(operator, side), far, 1.0) for side in (problem, other)]
                bound = operator.certificate(1.0).shift(unit, adjacency, item)
                close.append(at_most(float(np.linalg.norm(sides[0] - sides[1])), bound))
        operator = Gradient(problem.facts, 0.1, problem.items)
        bound = operator.certificate(1.0).shift(unit, adjacency, item)
        close.append(at_most(sum_shift(operator, problem, other, np.zeros((4, 0)), far, 1.0), bound))
        operator = CoordinateGradient(problem.facts, 0.1)
        one, two = (
            operator.local(prepared(operator, side), np.array([1]), np.zeros((1, 0)), far, 1.0, None)[1]
            for side in (problem, other)
        )
        bound = operator.certificate(1.0).shift(unit, adjacency, item)
        close.append(at_most(float(np.abs(one - two).max()), bound))
    problem, other = (one.problem(regularizer=L2(0.4)) for one in (world, neighbour))
    stateless = StatelessProx(problem.facts, gamma)
    one, two = (
        stateless_hop(stateless, prepared(stateless, side), np.array([item]), far, 1.0) for side in (problem, other)
    )
    bound = stateless.certificate(1.0).shift(unit, adjacency, item)
    close.append(at_most(float(np.linalg.norm(one - two)), bound))
    assert min(close) >= CLOSE, close


@pytest.mark.parametrize("ridge", [0.0, 0.05, 0.5, 30.0])
@pytest.mark.parametrize("shape", ["square", "tall", "fused"])
def test_adversarial_pairs_come_close_with_a_general_constraint(shape, ridge):
    # catches: 1/w where a ridge moves the worst singular value, |A|/w as printed
    A, B, c = random_constraint(np.random.default_rng(3), 3, shape)
    _, values, right = np.linalg.svd(A, full_matrices=False)
    gamma = 3.0
    close = []
    for direction in right:  # between two singular values the bound is for a value that A might have and has not
        world, neighbour, _ = adversarial_pair("huber", (2, 5, 3, 1), "record", "replace-one", direction=direction)
        problem, other = world.problem("rows"), neighbour.problem("rows")
        operator = GeneralADMM(problem.facts, gamma, L1(0.1), ridge, A, B, c)
        u = np.ones(operator.block_size)
        sides = [general_step(operator, prepared(operator, side), u, 1.0) for side in (problem, other)]
        bound = operator.certificate(1.0).shift("record", "replace-one", 1)
        close.append(at_most(float(np.linalg.norm(sides[0] - sides[1])), bound))
    at = math.sqrt(gamma * ridge)
    s = min(max(at, values[-1]), values[0])
    reachable = max(v / (v**2 + gamma * ridge) for v in values) / (s / (s**2 + gamma * ridge))
    assert max(close) >= CLOSE * reachable
    if at <= values[-1] or at >= values[0]:
        assert max(close) >= CLOSE


@pytest.mark.parametrize("weights", ["items", "rows"])
def test_adversarial_pairs_come_close_to_clipped_messages(weights):
    # catches: a clip at 2C or C/2, multiplicities forgotten
    world, neighbour, far = adversarial_pair("huber", (2, 5, 3, 1), "user", "replace-one")
    problem, other = world.problem(weights), neighbour.problem(weights)
    state = np.tile(far, (4, 1))
    kept = ConsensusADMM(problem.facts, 3.0, Zero(), 0.0, clip_residual=0.7)
    assert (
        at_most(block_shift(kept, problem, other, 1, state, far), kept.certificate(1.0).shift("user", item=1)) >= CLOSE
    )
    for relaxation in (0.3, 1.0):
        summed = SummedADMM(problem.facts, 3.0, Zero(), 0.0, clip_residual=0.7)
        bound = summed.certificate(relaxation).shift("user", item=1)
        assert at_most(sum_shift(summed, problem, other, state, far, relaxation), bound) >= CLOSE
        message = summed.local(prepared(summed, problem), np.array([1]), state[:1], far, relaxation, None)[1]
        multiplicity = 1.0 if summed.multiplicity is None else summed.multiplicity[1]
        bound = summed.certificate(relaxation).shift("user", "zero-out", 1)
        assert at_most(multiplicity * float(np.linalg.norm(message)), bound) >= CLOSE


@pytest.mark.parametrize("relaxation", ANCHORED_RELAXATIONS)
@pytest.mark.parametrize("weights", ["items", "rows"])
def test_adversarial_pairs_come_close_to_the_anchored_ball(weights, relaxation):
    # catches: a radius halved or doubled in the certificate, w_i left out; both worlds reach opposite ends of the ball
    world, neighbour, far = adversarial_pair("huber", (2, 5, 3, 1), "user", "replace-one")
    problem, other = world.problem(weights), neighbour.problem(weights)
    operator = AnchoredADMM(problem.facts, 3.0, Zero())
    points, joins = np.tile(far, (60, 1)), np.ones((60, 4), dtype=bool)
    gap, gap_to_centre = anchored_gaps(operator, problem, other, 1, relaxation, points, joins)
    certificate = operator.certificate(relaxation)
    assert at_most(gap, certificate.shift("user", item=1)) >= CLOSE
    assert at_most(gap_to_centre, certificate.shift("user", "zero-out", 1)) >= CLOSE


def test_a_hard_anchored_pair_exceeds_one_round_and_not_the_claim():
    # catches: the one-round bound 2 L gamma/n_i claimed for the state of a site: gaps of several rounds add up
    one_round, claim = turning_pair(directions=8, each=4, stiffness=50.0)
    assert one_round > 1.5
    assert claim <= 1 + SLACK


def turning_pair(directions, each, stiffness, relaxation=0.5, cycles=3):
    """Largest gap of a site's states, over the one-round bound and over the claim, for releases an adversary chooses.

    The changed row lies along e_1, its targets are +wall and -wall: its gradient differs by 2 L between the worlds
    while the model is between the walls, and not at all beyond. The other rows have curvature on one line each. A
    release puts the model on one line: what the states differ by along that line is kept, the rest is forgotten. So
    the gap can be turned, line by line, around 2 L gamma/n_i e_1 between the walls and around 0 beyond them: it grows.
    """
    angles = (np.arange(directions) + 0.5) * math.pi / directions
    lines = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    offsets = np.random.default_rng(1).uniform(-300, 300, size=directions)
    count, wall = directions * each + 1, 1e4
    gamma = stiffness * directions * count / (ROW_NORM**2 * (count - 1))
    e_1 = np.array([1.0, 0.0])
    X = ROW_NORM * np.vstack([e_1, np.repeat(lines, each, axis=0), e_1, e_1])
    y = ROW_NORM * np.concatenate([[wall], np.repeat(offsets, each), [0.0, 1.0]])
    world = World(X, y, (count, 1, 1), "huber")
    problem, other = world.problem("rows"), world.changed([0], X[0], -y[0]).problem("rows")
    operator = AnchoredADMM(problem.facts, gamma, Zero(), radius=1e9, tolerance=1e-9 * gamma)
    sides = [prepared(operator, side) for side in (problem, other)]
    blocks, largest = [np.zeros((1, 2)), np.zeros((1, 2))], 0.0
    features, targets, loss = X[:count], y[:count], problem.rows.loss
    for _ in range(cycles):
        for reach in (0.5 * wall, 3 * wall):
            for line, offset in zip(lines, offsets, strict=True):
                model = offset * line + reach / -line[1] * np.array([-line[1], line[0]])
                gradient = features.T @ loss.derivative(features @ model, targets) / count
                z = (model + gamma * gradient + blocks[0][0]) / 2  # so that prox(2 z - u) is this model in one world
                blocks = [
                    operator.local(side, np.array([0]), block, z, relaxation, None)[0]
                    for side, block in zip(sides, blocks, strict=True)
                ]
                largest = max(largest, float(np.linalg.norm(blocks[0] - blocks[1])))
    claim = operator.certificate(relaxation).shift("record", item=0) / problem.facts.item_weights[0]
    return largest / (2 * problem.facts.gradient_bound * gamma / count), largest / claim


# --- Inexact proxes --------------------------------------------------------------------------------------------------


@given(seed=seeds, gamma=gammas, ridge=ridges, choice=st.integers(0, 10**4), exponent=st.floats(-5, 0))
@settings(few, max_examples=80)
def test_inexact_proxes_are_within_their_tolerance(seed, gamma, ridge, choice, exponent):
    # catches: a stopping rule without gamma, w or the ridge: the sensitivity would be short of 4 tol
    rng = np.random.default_rng(seed)
    name = list(SMOOTH)[choice % len(SMOOTH)]
    problem = with_both_labels(random_world(rng, name, True), 0).problem()
    rows, weights = problem.rows, problem.row_weights
    guess = random_state(rng, 3)
    A = random_constraint(rng, 3, ("plain", "square", "tall")[choice % 3])[0]
    point = random_state(rng, 3 if A is None else len(A))
    tolerance, fine = gamma * 10.0**exponent, 1e-12 * (gamma + np.linalg.norm(point))
    rough, exact = (WholeProx(rows, weights, gamma, ridge, A, tol).solve(point, guess) for tol in (tolerance, fine))
    gap = rough - exact if A is None else A @ (rough - exact)
    assert np.linalg.norm(gap) <= tolerance + fine
    points = random_state(rng, 4, 3)
    fine = 1e-12 * (gamma + np.linalg.norm(points))
    rough, exact = (
        ItemsProx(rows, gamma, ridge, np.full(4, tol)).solve(slice(None), points.copy(), guess)
        for tol in (tolerance, fine)
    )
    assert np.linalg.norm(rough - exact, axis=1).max() <= tolerance + fine


def test_the_tolerance_is_part_of_the_sensitivity():
    # catches: a sensitivity without tol, or with tol divided by n: one world takes its guess at once, tol too far out,
    # and the other solves exactly; where the exact proxes differ as much as they can, that exceeds the exact bound
    gamma, tolerance, a = 2.0, 0.05, np.eye(3)[1]
    world, neighbour, _ = adversarial_pair("huber", (2, 5, 3, 1), "user", "replace-one")
    problem, other = world.problem(), neighbour.problem()
    reach = gamma * problem.facts.gradient_bound + 0.999 * tolerance
    operator, exact = (ConsensusADMM(problem.facts, gamma, Zero(), tolerance=tol) for tol in (tolerance, 1e-12))
    z, blocks = reach * a, np.tile(2 * reach * a, (4, 1))  # v = 2 z - u = 0, and z is the guess
    measured = block_shift(operator, problem, other, 1, blocks, z)
    at_most(measured, operator.certificate(1.0).shift("user", item=1))
    assert measured > exact.certificate(1.0).shift("user", item=1) + 1.9 * tolerance

    strength = 0.7  # the whole data set: z = u/(1 + gamma k) is the guess, v = 2 z - u
    operator, exact = (GeneralADMM(problem.facts, gamma, L2(strength), tolerance=tol) for tol in (tolerance, 1e-12))
    u = reach * (1 + gamma * strength) / (gamma * strength) * a
    sides = [general_step(operator, prepared(operator, side), u, 1.0) for side in (problem, other)]
    measured = float(np.linalg.norm(sides[0] - sides[1]))
    at_most(measured, operator.certificate(1.0).shift("user", item=1))
    assert measured > exact.certificate(1.0).shift("user", item=1) + 1.9 * tolerance


# --- What is missing, and malformed certificates ---------------------------------------------------------------------

BARE = {"rows": np.ones((4, 2)), "targets": np.array([1.0, -1.0, 1.0, -1.0])}
MAKERS = {
    "gradient": lambda facts: Gradient(facts, 0.1, facts.items),
    "coordinate": lambda facts: CoordinateGradient(facts, 0.1),
    "general": lambda facts: GeneralADMM(facts, 1.0, Zero()),
    "consensus": lambda facts: ConsensusADMM(facts, 1.0, Zero()),
    "anchored": lambda facts: AnchoredADMM(facts, 1.0, Zero()),
    "stateless": lambda facts: StatelessProx(facts, 1.0),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize(
    ("loss", "row_norm", "remedy"),
    [("squared", 1.0, "clip=C"), ("squared", None, "clip=C"), ("logistic", None, "row_norm=R")],
)
@pytest.mark.parametrize("groups", [None, [0, 0, 1, 1]])
def test_undeclared_bounds_give_no_sensitivity(make, loss, row_norm, remedy, groups):
    # catches: a sensitivity taken from the data, or from nothing; the message must say what to declare
    problem = hp.Problem(BARE["rows"], BARE["targets"], loss, row_norm=row_norm, groups=groups)
    certificate = make(problem.facts).certificate(0.5)
    assert not certificate.sensitivity
    for unit in ("user", "record"):
        for adjacency in ADJACENCIES:
            with pytest.raises(ValueError, match=remedy):
                certificate.shift(unit, adjacency)
    assert any(remedy in reason for reason in certificate.missing)


def test_declared_bounds_alone_make_the_certificate():
    # catches: a certificate that reads the data; two data sets with the same facts must be promised the same
    rng = np.random.default_rng(0)
    for make in MAKERS.values():
        problems = [
            hp.Problem(
                scale * rng.normal(size=(6, 2)), [-1.0, 1.0] * 3, "logistic", row_norm=2.0, groups=[0, 0, 0, 1, 1, 1]
            )
            for scale in (1e-3, 1e3)
        ]
        declared = hp.Problem.declared(2, 2, "logistic", row_norm=2.0, rows_per_item=3)
        one, two, three = (make(problem.facts).certificate(0.5) for problem in (*problems, declared))
        for other in (two, three):
            assert one.lipschitz == other.lipschitz
            assert {key: np.max(value) for key, value in one.sensitivity.items()} == {
                key: np.max(value) for key, value in other.sensitivity.items()
            }


def test_clipping_replaces_the_row_norm_where_it_is_smaller():
    # catches: L = clip even where the loss bounds the gradient lower, and the other way round; clip needs no row_norm
    facts = [
        hp.Problem.declared(4, 2, "logistic", row_norm=row_norm, clip=clip).facts
        for row_norm, clip in ((2.0, None), (2.0, 0.5), (2.0, 5.0), (None, 0.5))
    ]
    assert [ConsensusADMM(each, 1.0, Zero()).certificate(0.5).shift("record") for each in facts] == [8.0, 2.0, 8.0, 2.0]


def test_summed_messages_need_a_clip():
    # catches: noise on an unbounded sum
    operator = SummedADMM(linear_world().problem().facts, 1.0, Zero())
    with pytest.raises(ValueError, match="clip_residual=C"):
        operator.certificate(0.5).shift("user", "zero-out")


def test_an_anchored_radius_needs_no_gradient_bound():
    # catches: refusing what theory 3e allows, or promising records of a user a bound that only the ball gives
    facts = hp.Problem.declared(4, 2, "squared", rows_per_item=5).facts
    certificate = AnchoredADMM(facts, 1.0, Zero(), radius=0.3).certificate(0.5)
    assert certificate.shift("user") == pytest.approx(2 * 0.3 / 4)
    assert certificate.shift("user", "zero-out") == pytest.approx(0.3 / 4)
    with pytest.raises(ValueError, match="clip=C"):
        certificate.shift("record")
    with pytest.raises(ValueError, match="radius=r"):
        AnchoredADMM(facts, 1.0, Zero()).certificate(0.5).shift("user")


class Own(FixedPoint):
    """A newcomer's operator without a certificate."""

    def apply(self, point):
        return point


@pytest.mark.parametrize("operator", [Own(2), LionsMercier(L2(1.0), L2(2.0), 1.0, 2)])
def test_opaque_operators_promise_no_sensitivity(operator):
    # catches: a guarantee for an operator that never said anything about the data
    certificate = operator.certificate(0.5)
    assert not certificate.sensitivity
    assert certificate.missing
    with pytest.raises(ValueError, match="no sensitivity"):
        certificate.shift("record")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"lipschitz": -0.1}, "lipschitz is -0.1"),
        ({"lipschitz": math.inf}, "lipschitz is inf"),
        ({"lipschitz": math.nan}, "lipschitz is nan"),
        ({"lipschitz": 1.0, "sensitivity": {"person": 1.0}}, "sensitivity unit is 'person'"),
        ({"lipschitz": 1.0, "sensitivity": {("user", "add-one"): 1.0}}, "sensitivity adjacency is 'add-one'"),
        ({"lipschitz": 1.0, "sensitivity": {"user": -1.0}}, "user, replace-one is not a finite"),
        ({"lipschitz": 1.0, "sensitivity": {"user": math.inf}}, "user, replace-one is not a finite"),
        (
            {"lipschitz": 1.0, "sensitivity": {("record", "zero-out"): np.array([1.0, np.nan])}},
            "record, zero-out is not",
        ),
    ],
)
def test_malformed_certificates_are_refused(arguments, words):
    # catches: an infinite or negative promise that accounting would turn into a finite epsilon
    with pytest.raises(ValueError, match=words):
        Certificate(**arguments)


@pytest.mark.parametrize(("stated", "told"), [({"place": ("all",)}, "place"), ({"counts": "items"}, "counts")])
def test_malformed_theorems_are_refused(stated, told):
    # catches: laws passed where the place belongs, and a certificate that then speaks of nothing
    with pytest.raises(ValueError, match=told):
        hp.Theorem(**stated)


def test_certificates_answer_for_one_item_and_for_the_worst():
    # catches: the mean or the first item's bound given for the worst one; a unit key without an adjacency
    certificate = Certificate(
        1.0, {"user": np.array([1.0, 3.0, 2.0]), ("record", "zero-out"): 0.5}, because="so", missing="x"
    )
    assert certificate.shift("user") == 3.0
    assert [certificate.shift("user", item=item) for item in range(3)] == [1.0, 3.0, 2.0]
    assert certificate.shift("record", "zero-out", item=2) == 0.5
    assert certificate.because == ("so",)
    for unit, adjacency, words in (
        ("record", "replace-one", "no sensitivity for one record"),
        ("user", "zero-out", "zero-out"),
        ("person", "replace-one", "unit is 'person'"),
        ("user", "add-one", "adjacency is 'add-one'"),
    ):
        with pytest.raises(ValueError, match=words):
            certificate.shift(unit, adjacency)
    with pytest.raises(dataclasses.FrozenInstanceError):
        certificate.lipschitz = 0.5
