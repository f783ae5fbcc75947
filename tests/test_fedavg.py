"""DP-FedAvg: gradient descent where it must be, bounded messages on random and chosen neighbours, honest claims."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import hushpoint as hp
from hushpoint import Budget, Plan, Problem, methods
from hushpoint.operators import LocalSteps
from hushpoint.privacy import audit, gdp_epsilon
from hushpoint.privacy.auditor import strongest_canary
from hushpoint.privacy.subsampling import fixed_size_epsilon, poisson_epsilon
from hushpoint.regularizers import L1, L2, ElasticNet
from hushpoint.rows import Rows
from hushpoint.schedules import PoissonSample

Array = NDArray[np.float64]

DELTA = 1e-5
UNCLIPPED = 1e6
COUNTS = (1, 2, 5, 3, 9)
SAMPLES: dict[str, dict[str, Any]] = {"all": {}, "poisson": {"sample_prob": 0.5}, "fixed": {"sample_size": 2}}


def users(
    loss: str = "squared", regularizer: Any = None, seed: int = 0, sparse: bool = False, **options: Any
) -> Problem:
    """Users with one row to nine, each with a truth of its own."""
    rng = np.random.default_rng(seed)
    owners = np.repeat(np.arange(len(COUNTS)), COUNTS)
    X = rng.normal(size=(len(owners), 4)) / 2
    score = (X * (np.array([1.0, -2.0, 0.0, 0.5]) + rng.normal(size=(len(COUNTS), 4))[owners])).sum(axis=1)
    y = (score > np.median(score)) if loss == "logistic" else score + 0.1 * rng.normal(size=len(owners))
    kind = {"groups": owners, "row_norm": 1.5, **options}
    if loss == "logistic":
        kind["classes"] = (False, True)  # declared: a plan from a file knows nothing of labels that were read
    return Problem(scipy.sparse.csr_array(X) if sparse else X, y, loss, regularizer, **kind)


def one_row_each(regularizer: Any = None) -> Problem:
    rows = users().rows
    return Problem(rows.features, rows.targets, "huber", regularizer, row_norm=1.5)


# --- one local step is gradient descent


@pytest.mark.parametrize("server_step", [1.0, 0.3])
@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
@pytest.mark.parametrize(
    "problem",
    [
        users(regularizer=L2(0.3)),
        users("logistic", ElasticNet(0.01, 0.2), weights="rows", clip=0.4),
        users(regularizer=L1(0.05), fit_intercept=True),
        one_row_each(L2(0.1)),
    ],
    ids=["ridge", "rows weights", "intercept", "records"],
)
def test_one_local_step_is_proximal_gradient_descent(problem: Problem, sample: Any, server_step: float) -> None:
    # Catches: a prox with another step than the gradient's, the server's step lost in either, a mean over who came
    # instead of who was expected, weights or the truncation lost.
    averaged = methods.dp_fedavg(problem, 30, 1, 0.5, UNCLIPPED, server_step, noise_std=0.0, **sample)
    descent = methods.dp_sgd(problem, 30, 0.5 * server_step, noise_std=0.0, **sample)
    models = [plan.run(seed=4, history="models", kernel="plain").history["models"] for plan in (averaged, descent)]
    assert np.abs(models[1][-1]).max() > 0.1
    np.testing.assert_allclose(models[0], models[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
@pytest.mark.parametrize("unit", ["user", "record"])
def test_one_local_step_costs_what_gradient_descent_costs(unit: Any, adjacency: Any, sample: Any) -> None:
    # Catches: a bound in other units than the noise; g counted twice; a record's share lost or shared twice.
    problem = users("logistic", weights="rows", clip=0.4)
    averaged = methods.dp_fedavg(problem, 7, 1, 0.5, 0.5 * 0.4, noise_std=0.5 * 0.6, **sample)
    descent = methods.dp_sgd(problem, 7, 0.5, noise_std=0.6, **sample)
    one, two = (plan.guarantee(DELTA, "iterates", adjacency, unit) for plan in (averaged, descent))
    assert one.epsilon == pytest.approx(two.epsilon, rel=1e-9)


def test_the_noise_is_on_the_mean_update() -> None:
    # Catches: noise scaled by n where the sum is divided by q n, or by the local step.
    quiet, loud = (
        methods.dp_fedavg(users(), 1, 3, 0.2, 1.0, 0.5, sample_prob=0.5, noise_std=std).run(seed=2).model
        for std in (0.0, 0.7)
    )
    plan = methods.dp_fedavg(users(), 1, 3, 0.2, 1.0, 0.5, sample_prob=0.5, noise_std=0.7)
    assert plan.noise == hp.noise.Noise(0.7 * 2.5, "sum")
    draw = hp.noise.seeded_source(2).normals("sum", [0], 0, 4, 0.7)[0]
    np.testing.assert_allclose(loud - quiet, 0.5 * draw, atol=1e-12)


# --- where it ends


def optimum(problem: Problem) -> float:
    plan = methods.dp_sgd(problem, 3000, 0.9, noise_std=0.0)
    return problem.objective(plan.run(seed=0).model)


def final(problem: Problem, rounds: int, local_steps: int, size: float, **options: Any) -> float:
    plan = methods.dp_fedavg(problem, rounds, local_steps, size, UNCLIPPED, noise_std=0.0, **options)
    return problem.objective(plan.run(seed=0).model)


@pytest.mark.parametrize("regularizer", [None, L1(0.05), L2(0.1)], ids=["none", "lasso", "ridge"])
def test_where_it_settles(regularizer: Any) -> None:
    # Catches: a prox whose step leaves the local steps or the server's step out (its fixed point is elsewhere, however
    # small the steps), and a claim that more local steps have no price.
    problem = users(regularizer=regularizer)
    best = optimum(problem)
    assert final(problem, 1500, 1, 0.9) == pytest.approx(best, rel=1e-8)
    assert final(problem, 3000, 1, 0.9, server_step=0.5) == pytest.approx(best, rel=1e-8)
    coarse, fine = (final(problem, round(300 / size), 5, size) / best - 1 for size in (0.5, 0.05))
    assert coarse > 5e-4  # users pull apart
    assert -1e-9 < fine < coarse / 10


def test_users_that_agree_need_fewer_rounds() -> None:
    # Catches: local steps that start anew from the public point each time, so that only the last of them counts.
    rng = np.random.default_rng(1)
    X = rng.normal(size=(6, 4)) / 2
    y = X @ [1.0, -2.0, 0.5, 0.3] + 0.1 * rng.normal(size=6)
    problem = Problem(np.tile(X, (3, 1)), np.tile(y, 3), groups=np.repeat(np.arange(3), 6))
    best = optimum(problem)
    assert final(problem, 300, 20, 0.9) == pytest.approx(best, rel=1e-8)
    same = methods.dp_sgd(problem, 40, 0.9, noise_std=0.0).run(seed=0).model  # 40 steps in 2 rounds
    plan = methods.dp_fedavg(problem, 2, 20, 0.9, UNCLIPPED, noise_std=0.0)
    np.testing.assert_allclose(plan.run(seed=0).model, same, atol=1e-12)


# --- what a message may be


def messages(operator: LocalSteps, rows: Rows, z: Array, chosen: Any = slice(None)) -> Array:
    count = len(np.arange(rows.items)[chosen])
    return operator.local(rows, chosen, np.zeros((count, 0)), z, 1.0, None)[1]


@pytest.mark.parametrize("kind", [{}, {"sparse": True}, {"weights": "rows"}], ids=["plain", "sparse", "rows"])
def test_a_client_alone_sends_what_it_would_among_others(kind: dict[str, Any]) -> None:
    # Catches: rows of neighbours in a user's sum, row counts of all items used for one, an offset that starts at 0.
    problem = users("logistic", clip=0.5, **kind)
    operator = LocalSteps(problem.facts, 4, 0.8, 0.3, problem.items)
    z = np.array([0.3, -1.0, 0.2, 0.7])
    together = messages(operator, problem.rows, z)
    assert together.shape == (5, 4)
    for item in range(5):
        alone = problem.rows.take(np.array([item]))
        assert alone.items == 1
        for chosen in (slice(None), np.array([0])):
            np.testing.assert_allclose(messages(operator, alone, z, chosen)[0], together[item], atol=1e-14)
    picked = messages(operator, problem.rows, z, np.array([3, 1]))
    np.testing.assert_allclose(picked, together[[3, 1]], atol=1e-14)


def test_chunks_and_many_points_change_nothing() -> None:
    # Catches: a chunk left out or counted with another's multiplicity; one point used for all runs of an audit.
    problem = users("logistic", weights="rows", clip=0.5)
    plan = methods.dp_fedavg(problem, 5, 3, 0.8, 0.3, noise_std=0.2)
    whole = plan.run(seed=1).model
    plan.operator.chunk = 2
    np.testing.assert_allclose(plan.run(seed=1).model, whole, atol=1e-13)
    operator = LocalSteps(problem.facts, 3, 0.8, 0.3, problem.items)
    points = np.random.default_rng(0).normal(size=(5, 4))
    at_own = operator.local(problem.rows, np.arange(5), np.zeros((5, 0)), points, 1.0, None)[1]
    for item in range(5):
        np.testing.assert_allclose(at_own[item], messages(operator, problem.rows, points[item])[item], atol=1e-14)


def test_steps_that_diverge_stay_within_the_clip() -> None:
    # Catches: inf - inf = nan in one user's update, which would be everybody's model.
    problem = users()
    operator = LocalSteps(problem.facts, 2000, 50.0, 0.3, problem.items)
    sent = messages(operator, problem.rows, np.ones(4))
    assert np.isfinite(sent).all()
    assert np.linalg.norm(sent, axis=1).max() <= 0.3 * (1 + 1e-12)
    plan = methods.dp_fedavg(problem, 3, 2000, 50.0, 0.3, noise_std=0.1)
    assert np.isfinite(plan.run(seed=0).model).all()


NAMES = {"logistic": None, "huber": None, "squared": 0.8, "logistic clipped": 0.4}


def random_world(
    rng: np.random.Generator, name: str, one_row: bool, weights: Any
) -> tuple[Array, Array, dict[str, Any]]:
    counts = np.ones(4, dtype=int) if one_row else rng.integers(1, 6, size=4)
    size = int(counts.sum())
    groups = None if one_row else np.repeat(np.arange(4), counts)
    X = rng.normal(size=(size, 3)) * 10 ** rng.uniform(-1, 1, size=(size, 1))
    loss = name.split()[0]
    options = {"loss": loss, "groups": groups, "weights": weights, "row_norm": 1.5, "clip": NAMES[name]}
    return X, random_targets(rng, loss, size), options


def random_targets(rng: np.random.Generator, loss: str, size: int) -> Array:
    if loss != "logistic":
        return rng.normal(size=size) * 10 ** rng.uniform(-1, 2, size=size)
    return np.where(np.arange(size) % 2, 1.0, -1.0)


@pytest.mark.parametrize("unit", ["user", "record"])
@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
@given(
    seed=st.integers(0, 2**32 - 1),
    local_steps=st.integers(1, 12),
    size=st.floats(-2, 1).map(lambda exponent: 10.0**exponent),
    bound=st.floats(-2, 2).map(lambda exponent: 10.0**exponent),
    name=st.sampled_from(sorted(NAMES)),
    one_row=st.booleans(),
    by_rows=st.booleans(),
)
@settings(derandomize=True, deadline=None, max_examples=60)
def test_the_sum_moves_no_more_than_promised(
    adjacency: Any, unit: Any, seed: int, local_steps: int, size: float, bound: float, name: str, one_row: bool,
    by_rows: bool,
) -> None:  # fmt: skip
    # Catches: L where 2 L is due, a clip at 2C, n w_i left out, the record's smaller bound claimed for long steps or
    # for a zero-out that leaves the other rows in place.
    rng = np.random.default_rng(seed)
    item = seed % 4
    X, y, options = random_world(rng, name, one_row, "rows" if by_rows else "items")
    owner = np.arange(4) if one_row else options["groups"]
    changed = np.flatnonzero(owner == item)
    changed = changed if unit == "user" else changed[:1]
    X2, y2 = X.copy(), y.copy()
    X2[changed] = 0.0 if adjacency == "zero-out" else rng.normal(size=(len(changed), 3)) * 10
    if adjacency == "replace-one":
        y2[changed] = -y[changed] * 3 if options["loss"] != "logistic" else -y[changed]
    assume(options["loss"] != "logistic" or len(set(y2)) == 2)
    worlds = [Problem(X, y, **options), Problem(X2, y2, **options)]
    operator = LocalSteps(worlds[0].facts, local_steps, size, bound, 4)
    z = rng.normal(size=3) * 10 ** rng.uniform(-1, 2)
    totals = [
        operator.move(world.rows, slice(None), np.zeros((4, 0)), z, 1.0, None, operator.multiplicity)[1]
        for world in worlds
    ]
    promised = operator.certificate(1.0).shift(unit, adjacency, item)
    assert np.linalg.norm(totals[0] - totals[1]) <= promised * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize("weights", ["items", "rows"])
@pytest.mark.parametrize(("bound", "reaches"), [(0.7, 0.7), (UNCLIPPED, 4 * 0.3 * 1.0)], ids=["clip", "steps"])
def test_chosen_users_attain_the_bound(weights: Any, bound: float, reaches: float) -> None:
    # Catches: a certificate with a factor to spare, so that the noise is larger than need be; a test without power.
    base = users(clip=1.0, weights=weights)
    pair = strongest_canary(base, 4, unit="user")
    operator = LocalSteps(base.facts, 4, 0.3, bound, 5)
    sent = [messages(operator, world.rows, np.zeros(4)) for world in pair]
    count = 5 * base.facts.item_weights[4]
    gap = count * np.linalg.norm(sent[0][4] - sent[1][4])
    certificate = operator.certificate(1.0)
    assert gap == pytest.approx(2 * reaches * count, rel=1e-9)
    assert certificate.shift("user", "replace-one", 4) == pytest.approx(gap, rel=1e-9)
    assert certificate.shift("user", "zero-out", 4) == pytest.approx(gap / 2, rel=1e-9)
    one_row = strongest_canary(base, 4, unit="record")
    sent = [messages(operator, world.rows, np.zeros(4)) for world in one_row]
    gap = count * np.linalg.norm(sent[0][4] - sent[1][4])
    promised = certificate.shift("record", "replace-one", 4)
    assert gap <= promised * (1 + 1e-9)
    if bound == UNCLIPPED:
        assert promised == pytest.approx(2 * reaches * count / 9, rel=1e-9)
        assert gap >= 0.4 * promised


def test_the_smaller_bound_of_a_record_needs_steps_that_do_not_expand() -> None:
    # Catches: the share of a row claimed for steps above 2/beta, where it is false: shown by a pair that breaks it.
    rows, size, local_steps = 100, 20.0, 4
    X, y = np.ones((rows + 1, 1)), np.tile([1.0, -1.0], 51)[: rows + 1]
    groups = np.r_[np.zeros(rows, dtype=int), 1]
    other = y.copy()
    other[0] = -1.0
    worlds = [Problem(X, labels, "logistic", row_norm=1.0, groups=groups) for labels in (y, other)]
    operator = LocalSteps(worlds[0].facts, local_steps, size, 1e3, 2)
    one, two = (messages(operator, world.rows, np.full(1, 0.01))[0] for world in worlds)
    share = 2 * local_steps * size / rows
    assert np.abs(one - two)[0] > 1.5 * share
    assert operator.certificate(1.0).shift("record", "replace-one", 0) == 2 * local_steps * size
    short = LocalSteps(worlds[0].facts, local_steps, 8.0, 1e3, 2)  # exactly 2/beta
    assert short.certificate(1.0).shift("record", "replace-one", 0) == pytest.approx(share * 8 / size)


def test_a_clip_alone_is_enough_for_users() -> None:
    # Catches: a demand for row_norm where nothing needs it; a record's share where nothing bounds a row.
    bare = users(row_norm=None)
    certificate = LocalSteps(bare.facts, 3, 0.5, 0.2, 5).certificate(1.0)
    assert certificate.shift("user") == pytest.approx(0.4)
    assert certificate.shift("user", "zero-out") == pytest.approx(0.2)
    assert certificate.shift("record", "zero-out") == pytest.approx(0.4)
    assert certificate.lipschitz is None


# --- what is claimed

CROWD = users(clip=1.0, weights="rows")


def crowd_plan(noise_std: float, **options: Any) -> Plan:
    return methods.dp_fedavg(CROWD, 3, 4, 0.5, 0.4, noise_std=noise_std, **options)


class Unclipped(LocalSteps):
    """DP-FedAvg whose author clipped each local step, and not the update."""

    certificate = LocalSteps.certificate

    def local(self, data: Any, chosen: Any, block: Any, z: Any, relaxation: float, kick: Any) -> Any:
        loose = LocalSteps(self.facts, self.local_steps, self.local_step_size, UNCLIPPED, self.sampled)
        return loose.local(data, chosen, block, z, relaxation, kick)


@pytest.mark.parametrize(("broken", "caught"), [(False, False), (True, True)])
def test_an_update_that_is_not_clipped_is_caught(broken: bool, caught: bool) -> None:
    # Catches: an audit without power, or a false alarm. Alarm rate 1e-6, the auditor's default.
    at_one = crowd_plan(1.0).guarantee(DELTA, "iterates", "replace-one").mu
    assert at_one is not None
    plan = crowd_plan(at_one / 1.5)
    if broken:
        plan = replace(plan, operator=Unclipped(CROWD.facts, 4, 0.5, 0.4, 5))
    report = audit(plan, CROWD, runs=2000, view="iterates", adjacency="replace-one")
    assert report.claimed.mu == pytest.approx(1.5, rel=1e-6)
    assert report.caught is caught
    assert report.mu_lower > 0.6 * 1.5


def test_claims_by_hand() -> None:
    # Catches: the local steps or the server's step counted as releases; another sample than the one that is drawn.
    problem = Problem.declared(40, 3, "logistic", row_norm=1.0, rows_per_item=10)
    plan = methods.dp_fedavg(problem, 9, 5, 0.5, 0.3, 2.0, noise_std=0.05)
    claim = plan.guarantee(DELTA)
    assert (claim.unit, claim.adjacency, claim.view, claim.section) == ("user", "replace-one", "iterates", "3g")
    assert claim.mu == pytest.approx(3 * 2 * 0.3 / (40 * 0.05), rel=1e-12)
    assert claim.epsilon == gdp_epsilon(claim.mu, DELTA)
    record = plan.guarantee(DELTA, unit="record")
    assert record.mu == pytest.approx(3 * 2 * 5 * 0.5 / 10 / (40 * 0.05), rel=1e-12)  # 2 K g L/n_i, below 2 C
    secret = methods.dp_fedavg(problem, 9, 5, 0.5, 0.3, sample_prob=0.2, noise_std=0.05).guarantee(DELTA)
    chance = PoissonSample(40, 0.2).chance  # of coins of 53 bits
    assert secret.epsilon == poisson_epsilon(0.05 * 8 / 0.3, chance, 9, DELTA, "zero-out")
    assert any("the item's message is 0" in text for text in secret.assumptions)
    fixed = methods.dp_fedavg(problem, 9, 5, 0.5, 0.3, sample_size=8, noise_std=0.05).guarantee(DELTA)
    assert fixed.epsilon <= fixed_size_epsilon(0.05 * 8 / 0.3, 8, 40, 9, DELTA, method="profile")
    for option in ({"sample_prob": 0.2}, {"sample_size": 8}):
        plan = methods.dp_fedavg(problem, 9, 5, 0.5, 0.3, noise_std=0.05, **option)
        claim = plan.guarantee(DELTA, unit="record", adjacency="replace-one")
        assert claim.mu == pytest.approx(3 * 2 * 0.25 / (8 * 0.05), rel=1e-12)  # who is sampled counts as seen
    assert math.isinf(plan.guarantee(DELTA, view="messages").epsilon)
    last = plan.guarantee(DELTA, view="final")
    assert last.view == "iterates"


@pytest.mark.parametrize("sample", [{}, {"sample_prob": 0.1}, {"sample_size": 20}], ids=["all", "poisson", "fixed"])
@pytest.mark.parametrize("epsilon", [0.3, 3.0])
@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
def test_budgets_are_met_and_not_wasted(sample: dict[str, Any], epsilon: float, adjacency: Any) -> None:
    # Catches: noise calibrated on the mean and added to the sum, or calibrated for one local step.
    problem = Problem.declared(200, 3, "logistic", row_norm=1.0, rows_per_item=10, weights="rows")
    budget = Budget(epsilon, 1e-6, adjacency=adjacency, unit="user")
    plan = methods.dp_fedavg(problem, 20, 5, 0.5, 0.3, budget=budget, **sample)
    assert 0.999 * epsilon <= plan.guarantee(1e-6).epsilon <= epsilon
    bare = methods.dp_fedavg(problem, 20, 5, 0.5, 0.3, noise_std=plan.parameters["noise_std"], **sample)
    assert bare.noise == plan.noise


# --- as a plan


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_plans_survive_json(sample: dict[str, Any]) -> None:
    # Catches: a parameter that is not saved, which another site would fill with its default.
    problem = users("logistic", L2(0.1), clip=0.5, weights="rows")
    plan = methods.dp_fedavg(problem, 6, 3, 0.7, 0.2, 0.9, budget=Budget(2.0, 1e-5), tail_average=0.5, **sample)
    back = Plan.from_json(plan.to_json())
    assert back.to_dict() == plan.to_dict()
    assert back.fingerprint() == plan.fingerprint()
    assert back.guarantee(1e-5) == plan.guarantee(1e-5)
    np.testing.assert_array_equal(back.on(problem).run(seed=3).model, plan.run(seed=3).model)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"local_steps": 0}, "local_steps is 0"),
        ({"local_steps": 2.5}, "local_steps is 2.5"),
        ({"local_step_size": -1.0}, "local_step_size is -1.0"),
        ({"clip_update": math.inf}, "clip_update is inf"),
        ({"server_step": 0.0}, "server_step is 0.0"),
        ({"sample_prob": 0.5, "sample_size": 2}, "Pass one of them"),
        ({"rounds": 0}, "rounds is 0"),
    ],
)
def test_nonsense_is_refused(change: dict[str, Any], words: str) -> None:
    call = {"rounds": 3, "local_steps": 2, "local_step_size": 0.5, "clip_update": 0.3, "noise_std": 0.1}
    with pytest.raises(ValueError, match=words):
        methods.dp_fedavg(users(), **{**call, **change})
