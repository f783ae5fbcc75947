"""Coordinate descent on the lattice: sums are Python's integers, neighbours stay within K, and nothing moves a bit."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.sparse import csr_array

import hushpoint as hp
from hushpoint._compiled import loop
from hushpoint._fixed import slope
from hushpoint.kernels.lattice_coordinates import LatticeCoordinates, fitting, gridded
from hushpoint.lattice import draws, rounded_normals
from hushpoint.noise import Source, seeded_source
from hushpoint.operators.lattice_coordinate import LatticeCoordinateGradient
from hushpoint.operators.lattice_gradient import GradientGrid

RNG = np.random.default_rng(5)
ROWS, FEATURES = 90, 6
X = RNG.normal(size=(ROWS, FEATURES)) * RNG.choice([0.01, 0.4, 3.0], size=(ROWS, 1))
X[np.abs(X) < 0.1 * np.abs(X).max(axis=1, keepdims=True)] = 0.0
Y = RNG.normal(size=ROWS) * 3
CLASSES = np.where(RNG.random(ROWS) < 0.4, 1.0, -1.0)
USERS = np.arange(ROWS) ** 2 // 300
POINTS = [np.zeros(FEATURES), RNG.normal(size=FEATURES), 1e5 * RNG.normal(size=FEATURES)]

LOSSES = {
    "squared": (hp.losses.Squared(), Y),
    "huber": (hp.losses.Huber(0.7), Y),
    "absolute": (hp.losses.Absolute(), Y),
    "hinge": (hp.losses.SmoothedHinge(), CLASSES),
    "logistic": (hp.losses.Logistic(), CLASSES),
    "weighted": (hp.losses.ClassWeighted(hp.losses.Logistic(), 0.3, 1.7), CLASSES),
}
PENALTIES = {
    "none": (None, False),
    "L1": (hp.regularizers.L1(0.02), False),
    "L2": (hp.regularizers.L2(0.1), True),
    "both": (hp.regularizers.ElasticNet(0.01, 0.1), True),
}
every_loss = pytest.mark.parametrize("loss", LOSSES)
every_kind = pytest.mark.parametrize("kind", ["records", "items", "rows"])
CHANGES = {
    "huge": (np.full(FEATURES, 1e300), 1.0),
    "negative": (np.array([-1e9, 1.0, 0, 0, 0, 0]), -1.0),
    "denormal": (np.full(FEATURES, 5e-324), 1.0),
    "zero": (np.zeros(FEATURES), 1.0),
    "tiny": (np.array([0, 0, 1e-7, 0, 0, 0]), -1.0),
    "dense": (np.full(FEATURES, 0.4), 1.0),
}


def problem(loss="logistic", kind="records", rows=X, targets=None, users=USERS, **options):
    function, given = LOSSES[loss]
    groups = {} if kind == "records" else {"groups": users, "weights": kind}
    facts = {"row_norm": 1.5, "clip": 1.0} | options
    return hp.Problem(rows, given if targets is None else targets, function, **groups, **facts)


def lattice_plan(data, steps=1, step_size=1.0, **options):
    return hp.methods.dp_cd(data, steps, step_size, lattice=True, **({"noise_std": 0.0} | options))


def shared(operator, w):
    """A public point, on the grid that it fits."""
    return np.append(w, fitting(np.asarray(w, dtype=float), operator.finest, operator.coarsest))


def sums(operator, rows, z):
    return operator.local(operator.prepare(rows), slice(None), np.zeros((FEATURES, 0)), z, 1.0, None)[1][:, 0]


@loop
def _slope(loss, margin, target):
    return slope(loss, margin, target)


def python_messages(data, operator, z):
    """What each item sends about all coordinates, in Python's integers; slopes are cut where the code cuts them."""
    limits = operator.prepare(data.rows)[1][2].astype(int).tolist()
    facts, exponent, k = data.facts, operator.grid.rows.exponent, int(z[-1])
    code, (negative, positive) = facts.loss.slope_code
    table, offsets = np.asarray(data.rows.store[:]), data.rows.offsets
    point = [round(Fraction(float(w)) * Fraction(2) ** k) for w in z[:-1]]
    found = []
    for item in range(data.rows.items):
        members = [item] if offsets is None else range(offsets[item], offsets[item + 1])
        count = len(members) if facts.weights == "items" else 1
        message = [0] * len(point)
        for i in members:
            row = [math.trunc(Fraction(a) * Fraction(2) ** exponent) for a in table[i].tolist()]
            q = sum(a * a for a in row)
            if q == 0 or q > 2**38:
                continue
            margin = float(
                Fraction(sum(a * w for a, w in zip(row, point, strict=True))) / Fraction(2) ** (exponent + k)
            )
            weight = positive if data.rows.targets[i] > 0 else negative
            value = _slope(code, margin, data.rows.targets[i]) * (weight * 2.0**operator.grid.slope_exponent / count)
            largest = math.isqrt(int(operator.longest) ** 2 // (count**2 * q))
            assert largest - 2 - (largest >> 46) <= limits[i] <= largest  # the code's is a little smaller, never larger
            whole = max(-limits[i], min(limits[i], round(value)))
            message = [total + whole * a for total, a in zip(message, row, strict=True)]
        found.append(message)
    return found


@every_loss
@every_kind
@pytest.mark.parametrize("point", range(3))
def test_sums_are_those_of_python_and_messages_within_the_bound(loss, kind, point):
    # a product that is rounded, a block whose sum leaves 53 bits, a limit that forgets the rows of a user, a row twice
    data = problem(loss, kind)
    operator = lattice_plan(data).operator
    z = shared(operator, POINTS[point])
    messages = python_messages(data, operator, z)
    expected = [sum(column) for column in zip(*messages, strict=True)]
    assert sums(operator, data.rows, z).tolist() == expected
    counts = data.facts.row_counts if kind == "rows" else np.ones(data.items, dtype=int)
    for message, count in zip(messages, counts.tolist(), strict=True):
        assert sum(v * v for v in message) <= (int(operator.longest) * count) ** 2


@every_loss
@every_kind
@pytest.mark.parametrize("change", CHANGES)
def test_neighbours_move_the_sum_by_what_their_item_sends_and_no_further_than_promised(loss, kind, change):
    # a bound on the wrong row, a message that depends on other rows or on its place, an overflow
    row, target = CHANGES[change]
    item, owners = (17, np.arange(ROWS)) if kind == "records" else (4, USERS)
    mine = owners == item
    rows, targets = X.copy(), LOSSES[loss][1].copy()
    rows[mine], targets[mine] = row, target * (1.0 if loss in ("logistic", "weighted", "hinge") else 1e200)
    one, other = problem(loss, kind), problem(loss, kind, csr_array(rows), targets)
    operator = lattice_plan(one).operator
    bound = int(operator.longest) * int(one.facts.row_counts[item] if kind == "rows" else 1)
    for point in POINTS:
        z = shared(operator, point)
        (before, own), (after, changed) = (
            (sums(operator, p.rows, z), sums(operator, p.rows.take(np.array([item])), z)) for p in (one, other)
        )
        np.testing.assert_array_equal(before - own, after - changed)
        for alone in (own.tolist(), changed.tolist()):
            assert sum(v * v for v in alone) <= bound**2
        assert operator.certificate(1.0).shift("user", item=item) >= 2 * bound * 2.0**-operator.grid.fine


def test_a_user_of_any_size_sends_no_more_than_another():
    # slopes that are not divided by the rows of their user; a row of a user that counts as a whole one
    many = np.repeat(np.array([[1.5, 0, 0, 0, 0, 0]]), ROWS, axis=0)
    for count in (1, 2, 30, ROWS - 1):
        users = np.where(np.arange(ROWS) < count, 0, 1)
        data = problem("logistic", "items", many, CLASSES * 0 + 1, users, classes=(-1.0, 1.0))
        operator = lattice_plan(data).operator
        z = shared(operator, [-1e4] + [0] * 5)  # every slope at its limit
        alone = sums(operator, data.rows.take(np.array([0])), z)
        assert 0.999 * operator.longest < abs(alone[0]) <= operator.longest
        one_row = sums(operator, data.rows.pick(np.array([0])), z)  # as an item of its own: the scale of the check
        assert abs(one_row[0]) <= operator.longest


def test_sums_of_many_long_messages_are_exact():
    # a sum in double precision that leaves 53 bits
    count = 20_000
    rows = np.random.default_rng(1).normal(size=(count, 2))
    data = hp.Problem(rows, np.where(rows[:, 0] > 0, 1, -1), "logistic", row_norm=1.0, groups=np.arange(count))
    operator = lattice_plan(data).operator
    z = np.append([-50.0, 0.3], operator.finest)
    parts = [data.rows.take(np.arange(start, start + 100)) for start in range(0, count, 100)]
    local = [operator.local(operator.prepare(part), slice(None), np.zeros((2, 0)), z, 1.0, None)[1] for part in parts]
    whole = operator.local(operator.prepare(data.rows), slice(None), np.zeros((2, 0)), z, 1.0, None)[1]
    assert abs(whole[0, 0]) > 2**56
    assert whole[:, 0].tolist() == [sum(int(part[j, 0]) for part in local) for j in range(2)]


@every_kind
def test_the_certificate_is_k_steps(kind):
    # a bound in real numbers where the code checks whole ones, n times 1/n, a lost step of the cut
    data = problem("logistic", kind)
    operator = lattice_plan(data).operator
    step, counts = 2.0**-operator.grid.fine, data.facts.row_counts.astype(float)
    shift, certificate = operator.longest * step, operator.certificate(1.0)
    assert operator.longest == math.floor(Fraction(data.facts.gradient_bound) / Fraction(step))
    assert operator.counted * int(operator.longest) < 2**62
    per_item = counts if kind == "rows" else np.ones(data.items)
    np.testing.assert_array_equal(certificate.sensitivity["user", "replace-one"], 2 * shift * per_item)
    np.testing.assert_array_equal(certificate.sensitivity["user", "zero-out"], shift * per_item)
    np.testing.assert_allclose(certificate.sensitivity["record", "zero-out"], shift * per_item / counts, rtol=1e-15)
    coarse = operator.coarser(9)
    assert coarse.unit == 512 * operator.unit
    for whom, bound in coarse.certificate(1.0).sensitivity.items():
        least = certificate.sensitivity[whom] + coarse.unit
        assert np.all(bound >= least)
        assert np.all(bound <= least * (1 + 1e-14))
    assert not certificate.theorem.forgets
    assert certificate.lipschitz is None


def test_a_coarser_sum_is_the_sum_rounded_down():
    data = problem()
    operator = lattice_plan(data).operator
    total = np.array([5, -5, 2**60, -1])
    assert operator.coarser(2).cut(total).tolist() == [1, -2, 2**58, -1]
    assert operator.coarser(30).cut(total).tolist() == [0, -1, 2**30, -1]
    with pytest.raises(ValueError, match=r"less than one unit.*lattice=False"):
        operator.coarser(60)
    assert operator.cut(total).tolist() == total.tolist()


@every_loss
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("noise", [0.01, 2e4])  # the second needs a coarser lattice
def test_the_loop_and_the_kernel_are_the_same_bits(loss, penalty, noise):
    # inner products that miss an update, a penalty on the intercept, other draws, a cut that only one of them does
    regularizer, intercept = PENALTIES[penalty]
    for rows in (X, csr_array(X)):
        data = problem(loss, rows=rows, regularizer=regularizer, fit_intercept=intercept)
        plan = lattice_plan(data, 83, np.linspace(0.1, 2.0, 83), noise_std=noise)
        assert isinstance(plan.operator.kernel(plan), LatticeCoordinates)
        assert (plan.operator.grid.shift > 0) is (noise > 1)
        fast, slow = plan.run(seed=4), plan.run(seed=4, kernel="plain")
        assert np.isfinite(fast.model).all()
        assert np.abs(fast.model).max() > 0
        np.testing.assert_array_equal(fast.state.shared, slow.state.shared)
        np.testing.assert_array_equal(fast.state.participations, slow.state.participations)
        assert fast.state.position == slow.state.position


@pytest.mark.parametrize("kind", ["items", "rows"])
def test_a_run_resumes_and_takes_users(kind):
    # a resumed run with other inner products or another grid; a state that the plain loop takes for its own
    plan = lattice_plan(problem("logistic", kind), 90, 2.0, noise_std=0.05)
    whole = plan.run(seed=1)
    np.testing.assert_array_equal(whole.model, plan.run(seed=1, kernel="plain").model)
    for stop in (1, 37):
        cut = plan.run(seed=1, callback=lambda step, model, stop=stop: step == stop)
        np.testing.assert_array_equal(plan.run(state=cut.state).model, whole.model)
    with pytest.raises(ValueError, match="lattice coordinates"):
        plan.run(state=cut.state, kernel="plain")


@pytest.mark.parametrize("sparse", [False, True])
def test_inner_products_stay_exact_while_the_model_outgrows_its_grid(sparse):
    # inner products of the old grid, a rounded update, a grid that grows finer again, vectors beyond 2^33
    data = problem("huber", rows=csr_array(X) if sparse else X)
    plan = lattice_plan(data, 400, 3000.0, noise_std=1.0)
    operator, result = plan.operator, plan.run(seed=2)
    np.testing.assert_array_equal(result.state.shared, plan.run(seed=2, kernel="plain").state.shared)
    assert result.state.shared[-1] <= operator.finest - 16
    k, exponent = int(result.state.shared[-1]), operator.grid.rows.exponent
    point = [round(Fraction(float(w)) * Fraction(2) ** k) for w in result.model]
    assert sum(w * w for w in point) <= 2**66
    table = [[math.trunc(Fraction(a) * Fraction(2) ** exponent) for a in row] for row in data.rows.store[:].tolist()]
    expected = [sum(a * w for a, w in zip(row, point, strict=True)) for row in table]
    assert [int(m) for m in result.state.blocks[:, 0]] == expected


def test_a_grid_is_as_fine_as_the_model_allows():
    # a length that is measured too short, a coordinate that is too far, a number that is none
    grid = np.empty(4)
    edge = np.array([2.0**33, 0, 0, 0])
    assert fitting(edge, 0, -480) == 0
    assert fitting(edge + np.array([0, 17.0, 0, 0]), 0, -480) == -8
    assert fitting(np.full(4, 2.0**32), 0, -480) == 0
    assert fitting(np.full(4, 2.0**32 + 1), 0, -480) == -8
    assert fitting(np.array([2.0**70, 0, 0, 0]), 0, -480) == -40
    for bad in (math.nan, math.inf, -(2.0**900)):
        assert fitting(np.array([1.0, bad, 0, 0]), 0, -480) == -480
        gridded(np.array([2.0**481, bad, 0, 0]), -480, grid)
        assert not grid.any()
    gridded(np.array([2.5, -3.5, 0.4, -(2.0**20)]), 0, grid)
    assert grid.tolist() == [2, -4, 0, -(2**20)]


def test_a_model_that_is_no_number_is_read_as_zero_and_messages_keep_their_bound():
    data = problem("squared")
    operator = lattice_plan(data).operator
    at_zero = sums(operator, data.rows, shared(operator, np.zeros(FEATURES)))
    for bad in (math.nan, math.inf, 1e300):
        np.testing.assert_array_equal(sums(operator, data.rows, shared(operator, np.full(FEATURES, bad))), at_zero)
    plan = lattice_plan(data, 12, 1e200, noise_std=1.0)
    np.testing.assert_array_equal(plan.run(seed=0).state.shared, plan.run(seed=0, kernel="plain").state.shared)


def test_storage_place_and_threads_do_not_move_a_bit(tmp_path, monkeypatch):
    # sums in another order, rows cut in another way, a message that depends on its place
    np.save(tmp_path / "rows.npy", X)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    order = np.random.default_rng(0).permutation(ROWS)
    thin = X.astype(np.float32)
    for loss, (_, targets) in LOSSES.items():
        expected = lattice_plan(problem(loss), 120, 1.0, noise_std=0.01).run(seed=9).state.shared
        for rows, given in ((csr_array(X), targets), (mapped, targets), (X[order], targets[order])):
            for threads in ("1", "2"):
                monkeypatch.setenv("HUSHPOINT_THREADS", threads)
                found = lattice_plan(problem(loss, rows=rows, targets=given), 120, 1.0, noise_std=0.01).run(seed=9)
                np.testing.assert_array_equal(found.state.shared, expected)
        narrow, wide = (
            lattice_plan(problem(loss, rows=r), 60, 1.0, noise_std=0.01) for r in (thin, thin.astype(float))
        )
        np.testing.assert_array_equal(narrow.run(seed=9).state.shared, wide.run(seed=9).state.shared)


def test_empty_sparse_rows_send_nothing():
    # compiled code that takes a matrix without entries for a full one
    data = problem("logistic", rows=csr_array((ROWS, FEATURES)))
    plan = lattice_plan(data, 30, 1.0)
    assert not plan.run(seed=0).model.any()


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("few", [0, 10**9])
def test_noise_of_many_steps_is_that_of_each(secure, few, monkeypatch):
    # another address: noise that comes twice, or is not the one that the plain loop draws
    source = Source(np.arange(8, dtype=np.uint32)) if secure else seeded_source(3)
    monkeypatch.setattr(draws, "_drawn_in_python", 0)
    monkeypatch.setattr(draws, "FEW", few)
    for first in (0, 2**28 - 3):  # plain Python knows steps below 2^28
        found = draws.rounded_normals_of_steps(source, "sum", 0, first, 40, 12345)
        expected = [rounded_normals(source, "sum", [0], first + k, 1, 12345)[0, 0] for k in range(40)]
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == np.int64
    assert len(set(found.tolist())) == 40
    with pytest.raises(ValueError, match="scale"):
        draws.rounded_normals_of_steps(source, "sum", 0, 0, 3, 2**40 + 1)


@every_kind
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 30.0])
def test_a_calibrated_plan_is_within_its_budget_saves_and_says_what_its_numbers_are(kind, epsilon):
    # noise that is no whole number of steps or too little, a plan that is another one after loading
    data = problem("logistic", kind)
    plan = lattice_plan(data, 500, 1.0, noise_std=None, budget=hp.Budget(epsilon, 1e-6))
    assert isinstance(plan.operator, LatticeCoordinateGradient)
    assert plan.noise.unit == plan.operator.unit
    assert 1 <= plan.noise.scale <= 2**40
    guarantee = plan.guarantee(1e-6)
    assert 0.999 * epsilon < guarantee.epsilon <= epsilon
    assert guarantee.arithmetic == "whole"
    again = hp.Plan.from_json(plan.to_json())
    assert again.to_dict() == plan.to_dict()
    assert again.noise == plan.noise
    assert again.guarantee(1e-6).epsilon == guarantee.epsilon
    bound = again.on(data)
    assert bound.fingerprint() == plan.fingerprint()
    np.testing.assert_array_equal(bound.run(seed=5).model, plan.run(seed=5).model)
    real = hp.methods.dp_cd(data, 500, 1.0, budget=hp.Budget(epsilon, 1e-6), lattice=False)
    assert real.parameters["lattice"] is False
    assert plan.noise.std / plan.operator.counted == pytest.approx(real.noise.std / data.items, rel=1e-6)


@every_loss
@every_kind
def test_without_noise_it_goes_where_coordinate_descent_goes(loss, kind):
    # a wrong power of two anywhere, weights of users or classes forgotten, a step of the wrong size
    data = problem(loss, kind, regularizer=hp.regularizers.L2(0.05))
    ours, real = (hp.methods.dp_cd(data, 600, 0.5, noise_std=0.0, lattice=on).run(seed=1).model for on in (True, False))
    assert np.abs(real).max() > 0.05
    np.testing.assert_allclose(ours, real, rtol=0, atol=(3e-2 if loss == "absolute" else 1e-4) * np.abs(real).max())


def test_box_constraints_take_the_plain_loop_and_hold():
    # a model that is rounded out of its constraint
    data = problem("huber", regularizer=hp.regularizers.Box(0.1, 0.3))
    plan = lattice_plan(data, 40, 1.0, noise_std=0.1)
    assert plan.operator.kernel(plan) is None
    model = plan.run(seed=0).model
    assert ((model >= 0.1) | (model == 0)).all()
    assert (model <= 0.3).all()


@pytest.mark.parametrize(
    ("data", "named", "remedy"),
    [
        (hp.Problem(X, CLASSES, "logistic", clip=1.0), "row_norm", "Pass row_norm=R"),
        (hp.Problem(X, Y, "squared", row_norm=1.0), "squared", "clip=C"),
    ],
)
def test_what_stands_in_the_way_is_named(data, named, remedy):
    with pytest.raises(ValueError, match=f"(?s)lattice is True.*{named}.*{remedy}.*lattice=False"):
        lattice_plan(data)
    assert hp.methods.dp_cd(data, 1, 1.0, noise_std=0.0).parameters["lattice"] is False


def test_the_bound_on_sums_counts_all_items():
    # sums that overflow where there are very many items
    for items in (1, 2**20 + 1, 10**9, 10**12):
        facts = hp.Problem.declared(items, 3, "logistic", row_norm=3.0).facts
        operator = LatticeCoordinateGradient(facts, 1.0, GradientGrid.of(facts))
        assert items * int(operator.longest) < 2**62
        assert operator.longest * 2.0**-operator.grid.fine <= facts.gradient_bound
        assert int(operator.longest) < 2**45  # what a block of the kernel rests on
