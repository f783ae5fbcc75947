"""DP-FedAvg and anchored ADMM on the lattice: messages are the item's own to the bit, bounded and summed exactly."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import scipy.sparse

import hushpoint as hp
from hushpoint import Budget, Plan, Problem, methods
from hushpoint.kernels import lattice_blocks, lattice_steps
from hushpoint.kernels.fixed_rows import fixed_table
from hushpoint.operators.lattice_blocks import LatticeBlocks
from hushpoint.operators.lattice_steps import LatticeSteps
from hushpoint.operators.whole import most_steps, unit_for
from hushpoint.rows import ArrayRows, Mapped, Store

WIDTH = 11  # no multiple of the lanes or of a tile
LOSSES = {"logistic": {}, "squared": {"clip": 0.7}, "huber": {}, "smoothed_hinge": {}}


def table(items=30, seed=0, loss="logistic"):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(items, WIDTH)) * 10 ** rng.uniform(-2, 1, size=(items, 1))
    X[rng.random(X.shape) < 0.4] = 0.0
    y = rng.normal(size=items)
    return X, np.where(y > 0, 1.0, -1.0) if loss in ("logistic", "smoothed_hinge") else y


def one_row_each(X, y, loss="logistic", **facts):
    return Problem(X, y, loss, row_norm=2.0, **{**LOSSES[loss], **facts})


def users(counts=(3, 1, 14, 6, 25, 11, 2), seed=1, loss="logistic", **facts):
    """Users with fewer rows than features, as many, and more."""
    X, y = table(sum(counts), seed, loss)
    return one_row_each(X, y, loss, groups=np.repeat(np.arange(len(counts)), counts), **facts)


def steps_on(problem, **options):
    operator = LatticeSteps(problem.facts, 3, 0.8, options.pop("clip_update", 0.3), problem.items)
    return operator, np.zeros((problem.items, 0), dtype=np.int64)


def blocks_on(problem, **options):
    operator = LatticeBlocks(problem.facts, 1.3, problem.regularizer, 0.0, options.pop("radius", 0.2))
    return operator, np.random.default_rng(5).integers(-(2**28), 2**28, size=(problem.items, problem.facts.width))


MAKE = {"steps": steps_on, "blocks": blocks_on}


def fine(make):
    """The same on a lattice so fine that the last digits of what is rounded show; blocks are where they were."""

    def made(problem, **options):
        operator, block = make(problem, **options)
        other = copy.copy(operator)
        other.unit, other.most = operator.unit * 2.0**-20, operator.most * 2**20
        return other, block * 2**20

    return made


Z = np.random.default_rng(9).normal(size=WIDTH)


def sent(make, problem, chosen=slice(None), block=None, **options):
    """The messages of the chosen items."""
    operator, blocks = make(problem, **options)
    kept = (blocks if block is None else block)[chosen]
    return operator.local(operator.prepare(problem.rows), chosen, kept, Z, 0.7, None)[1]


# --- the condition: to the bit a function of the item's own rows, its block, and what is public


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", MAKE)
def test_a_row_sends_the_same_bits_wherever_it_stands_and_however_it_is_stored(kind, loss, tmp_path):
    # Catches: inner products by BLAS or in tiles, factors of rows multiplied in after the sum, sparse sums in the order
    # of entries: all of them differ in the last digits, which truncation does not always hide.
    X, y = table(loss=loss)
    make, order = fine(MAKE[kind]), np.random.default_rng(3).permutation(len(X))
    problem = one_row_each(X, y, loss)
    together = sent(make, problem)
    assert together.dtype == np.int64
    assert np.abs(together).max() > 2**20
    block = make(problem)[1]
    np.testing.assert_array_equal(
        sent(make, one_row_each(X[order], y[order], loss), block=block[order]), together[order]
    )
    for item in (0, 7, 29):
        alone = problem.with_rows(problem.rows.take(np.array([item])))
        operator = make(problem)[0]
        data = operator.prepare(alone.rows)
        np.testing.assert_array_equal(
            operator.local(data, slice(0, 1), block[[item]], Z, 0.7, None)[1][0], together[item]
        )
    picked = np.array([17, 2, 2, 9])
    np.testing.assert_array_equal(sent(make, problem, picked), together[picked])
    np.save(tmp_path / "X.npy", X)
    stored = {
        "sparse": scipy.sparse.csr_array(X),
        "mapped": np.load(tmp_path / "X.npy", mmap_mode="r"),
        "columns": np.asfortranarray(X),
    }
    for name, other in stored.items():
        np.testing.assert_array_equal(sent(make, one_row_each(other, y, loss)), together, err_msg=name)
    single = X.astype(np.float32)
    np.testing.assert_array_equal(
        sent(make, one_row_each(single, y, loss)), sent(make, one_row_each(single.astype(np.float64), y, loss))
    )


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", MAKE)
def test_a_user_of_several_rows_sends_the_same_bits_among_any_others(kind, loss):
    # Catches: scratch arrays of another user read, tiles that begin before the user's first row, a system whose size
    # is that of the longest user.
    make, counts = fine(MAKE[kind]), np.array([3, 1, 14, 6, 25, 11, 2])
    problem = users(loss=loss)
    operator, block = make(problem)
    together = sent(make, problem)
    assert np.abs(together).max(axis=1).min() > 2**10  # everyone has something to say
    data = operator.prepare(problem.rows)
    for item in range(7):
        alone = operator.prepare(problem.rows.take(np.array([item])))
        for rows, chosen in ((alone, slice(0, 1)), (data, np.array([item]))):
            moved = operator.local(rows, chosen, block[[item]], Z, 0.7, None)[1][0]
            np.testing.assert_array_equal(moved, together[item])
    X, y = table(counts.sum(), 1, loss)
    order = np.array([4, 6, 0, 2, 5, 3, 1])
    rows = np.concatenate([np.flatnonzero(np.repeat(np.arange(7), counts) == item) for item in order])
    other = one_row_each(X[rows], y[rows], loss, groups=np.repeat(np.arange(7), counts[order]))
    np.testing.assert_array_equal(sent(make, other, block=block[order]), together[order])
    stored = (scipy.sparse.csr_array(X), X.astype(np.float32)) if kind == "steps" else ()
    for store in stored:
        dense = store.toarray() if scipy.sparse.issparse(store) else store.astype(np.float64)
        groups = np.repeat(np.arange(7), counts)
        np.testing.assert_array_equal(
            sent(make, one_row_each(store, y, loss, groups=groups)),
            sent(make, one_row_each(dense, y, loss, groups=groups)),
        )


@pytest.mark.parametrize("threads", ["1", "2", "5"])
@pytest.mark.parametrize("weights", ["items", "rows"])
@pytest.mark.parametrize("kind", MAKE)
def test_threads_and_chunks_change_no_bit_of_a_run(kind, weights, threads, monkeypatch):
    # Catches: a part left out or added twice, a multiplicity of another part, sums that are rounded.
    monkeypatch.setattr(lattice_steps, "_WORTH_SHARING", 0)
    monkeypatch.setattr(lattice_blocks, "_WORTH_SHARING", 0)
    problem = users(weights=weights)
    plan = plan_of(kind, problem, 0.05)
    monkeypatch.setenv("HUSHPOINT_THREADS", "1")
    whole = plan.run(seed=3).state
    monkeypatch.setenv("HUSHPOINT_THREADS", threads)
    plan.operator.chunk = 2
    parts = plan.run(seed=3).state
    np.testing.assert_array_equal(parts.shared, whole.shared)
    np.testing.assert_array_equal(parts.blocks, whole.blocks)
    # By hand: the sum of what each sends, in Python's integers.
    operator, block = MAKE[kind](problem)
    messages = sent(MAKE[kind], problem).astype(object)
    counts = operator.multiplicity
    total = operator.move(operator.prepare(problem.rows), slice(None), block, Z, 0.7, None, counts)[1]
    by_hand = (messages if counts is None else messages * counts[:, None]).sum(axis=0)
    assert total.tolist() == by_hand.tolist()
    assert (counts is None) == (weights == "items")


class Mine(Store):
    """Rows of every other column of a table: views that are not in C order."""

    def __init__(self, wide):
        self.wide = wide

    @property
    def shape(self):
        return len(self.wide), self.wide.shape[1] // 2

    def take(self, index):
        return ArrayRows(self.wide[index][:, ::2])


@pytest.mark.parametrize("kind", MAKE)
def test_a_long_row_of_another_user_does_not_change_how_rows_are_summed(kind):
    # Catches: code for another order of memory, which sums in another order, once one row of anybody is scaled
    rng = np.random.default_rng(1)
    counts = rng.integers(1, 80, size=200)
    wide = rng.normal(size=(counts.sum(), 2 * WIDTH))
    wide *= 1.9 * rng.random((len(wide), 1)) / np.linalg.norm(wide[:, ::2], axis=1, keepdims=True)
    longer = wide.copy()
    longer[-1] = 10.0
    y = np.where(rng.random(len(wide)) < 0.5, 1.0, -1.0)
    make, owners = fine(MAKE[kind]), np.repeat(np.arange(200), counts)
    worlds = [Problem(Mine(one), y, "logistic", row_norm=2.0, groups=owners) for one in (wide, longer)]
    one, other = (sent(make, world, radius=0.9, clip_update=0.9) for world in worlds)
    np.testing.assert_array_equal(one[:-1], other[:-1])
    assert (one[-1] != other[-1]).any()


def test_rows_in_other_coordinates_are_refused():
    # Catches: rows made by one product of all of them, whose last digits are not their own.
    class Metric:
        scales, basis, matrix = np.ones(3), None, np.ones(3)

    mapped = Mapped(ArrayRows(np.ones((4, 3))), 0.0, Metric())
    for store in (mapped, mapped.scaled(np.ones(4))):
        with pytest.raises(ValueError, match="lattice=False"):
            fixed_table(store)
    assert fixed_table(ArrayRows(np.ones((4, 3)))).shape == (4, 3)


# --- the bound, in integers, whatever the rows

NEIGHBOURS = {
    "huge": (1e300, 1.0),
    "largest": (np.finfo(float).max, 1.0),
    "denormal": (5e-324, 1.0),
    "short": (1e-170, 1.0),
    "zero": (0.0, 1.0),
    "huge target": (1.0, 1e300),
    "large target": (1.0, 1e13),
    "aligned": (None, 1e6),
}


def exact_length(vector):
    return sum(int(entry) ** 2 for entry in vector)


@pytest.mark.parametrize("row_norm", [None, 2.0])
@pytest.mark.parametrize("bound", [0.3, 1e-3, 1 + 2**-52, 1e9, 2.0**-20])
@pytest.mark.parametrize("kind", MAKE)
def test_no_neighbour_is_longer_than_the_bound(kind, bound, row_norm):
    # Catches: a clip in floating-point numbers whose rounding exceeds the whole bound, rounding to nearest in place of
    # toward 0, NaN or overflow that passes the comparison.
    problem_of = {"steps": {"clip_update": bound}, "blocks": {"radius": bound}}[kind]
    most = 0
    for scale, target in NEIGHBOURS.values():
        X, y = table(12, 4, "squared")
        X[:6], y[:6] = (Z if scale is None else scale * np.sign(X[:6])), target
        X[6:] *= 1e6
        X[10:] = np.eye(WIDTH)[:2] * 1e6  # one coordinate: truncation hides nothing
        for groups in (None, np.repeat(np.arange(4), 3)):
            problem = Problem(X, y, "squared", row_norm=row_norm, groups=groups)
            operator, block = MAKE[kind](problem, **problem_of)
            with np.errstate(all="ignore"):
                moved, messages = operator.local(operator.prepare(problem.rows), slice(None), block, Z, 0.7, None)
            anchored = moved - operator.anchor(Z) if kind == "blocks" else messages
            lengths = [exact_length(row) for row in anchored]
            assert max(lengths) <= operator.most**2
            most = max(most, max(lengths) / operator.most**2)
            for message, kept in zip(messages, block, strict=True):
                assert operator.is_plausible(message, kept, Z, 0.7, 0.0)
            certificate = operator.certificate(0.7)
            assert certificate.shift("user", "zero-out") == operator.most * operator.unit <= bound
            assert certificate.shift("user", "replace-one") == 2 * operator.most * operator.unit
    assert most > 0.999  # the bound is reached, else this test could not fail


@pytest.mark.parametrize("kind", MAKE)
def test_one_step_more_than_the_bound_is_not_plausible(kind):
    # Catches: a comparison with a tolerance, or one in 64 bits that wraps.
    problem = one_row_each(*table())
    operator, block = MAKE[kind](problem)
    base = operator.anchor(Z) - block[0] if kind == "blocks" else np.zeros(WIDTH, dtype=np.int64)
    for offset, able in (
        (operator.most, True),
        (operator.most + 1, False),
        (-operator.most - 1, False),
        (2**62, False),
    ):
        message = base.copy()
        message[3] += offset
        assert operator.is_plausible(message, block[0], Z, 0.7, 0.0) is able


def test_numbers_that_are_none_become_nothing():
    # Catches: NaN or infinity turned into some integer, which C leaves to the processor.
    for bad in (math.nan, math.inf, -math.inf, 1e200):
        rows = np.full((2, 3), bad)
        rows[1] = [0.6, -0.3, 0.0]
        lattice_blocks._make_all_whole(rows, 0.25, 3.0)
        np.testing.assert_array_equal(rows, [[0, 0, 0], [2, -1, 0]])
    problem = users()
    operator = LatticeSteps(problem.facts, 2000, 1e200, 0.3, problem.items)
    with np.errstate(all="ignore"):
        messages = operator.local(operator.prepare(problem.rows), slice(None), np.zeros((7, 0)), Z, 1.0, None)[1]
    assert max(exact_length(row) for row in messages) <= operator.most**2


def test_a_user_whose_prox_is_not_solved_moves_as_one_without_data_and_alone():
    # Catches: one user's failure that shows in the moves of others, or as an error that tells of the data.
    problem = users()
    operator, block = blocks_on(problem)
    data = operator.prepare(problem.rows)
    before = operator.local(data, slice(None), block, Z, 0.7, None)[0]
    data._proxes._tolerance = data._proxes._tolerance.copy()
    data._proxes._tolerance[2] = -1.0  # never met
    after = operator.local(data, slice(None), block, Z, 0.7, None)[0]
    idle = operator.local(operator.without_data(), slice(None), block, Z, 0.7, None)[0]
    others = np.arange(7) != 2
    np.testing.assert_array_equal(after[others], before[others])
    np.testing.assert_array_equal(after[2], idle[2])
    assert (before[2] != idle[2]).any()


# --- as plans


def plan_of(kind, problem, noise_std=None, **options):
    options = {"lattice": True, **options}
    if kind == "steps":
        return methods.dp_fedavg(problem, 8, 3, 0.4, 0.3, noise_std=noise_std, **options)
    return methods.anchored_admm(problem, 8, 1.3, noise_std=noise_std, **options)


SAMPLES = {"all": {}, "poisson": {"sample_prob": 0.5}, "fixed": {"sample_size": 3}}


@pytest.mark.parametrize("weights", ["items", "rows"])
@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("kind", MAKE)
def test_without_noise_it_is_the_method_in_real_numbers(kind, sample, weights):
    # Catches: a unit or a number of rows left out of what is made of the sum, a block rounded away from its point.
    problem = users(weights=weights, regularizer=hp.regularizers.ElasticNet(0.01, 0.05))
    clipped = users(weights=weights, loss="squared")
    for data in (problem, clipped, one_row_each(*table()), one_row_each(*table(loss="squared"), "squared")):
        lattice, real = (
            plan_of(kind, data, 0.0, lattice=on, tail_average=0.5, **SAMPLES[sample]) for on in (True, False)
        )
        model = real.run(seed=2).model
        assert np.abs(model).max() > 0.01
        np.testing.assert_allclose(lattice.run(seed=2).model, model, atol=1e-6)


@pytest.mark.parametrize("weights", ["items", "rows"])
@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (0.8, False), (1.25, False)])
def test_the_noise_on_the_mean_is_what_was_asked_for(kind, weights, factor, passes):
    # Catches: noise on the sum that is divided by another number than the sum, or counted twice.
    problem = users(weights=weights)
    plan = plan_of(kind, problem, 50.0 * factor)
    quiet = plan_of(kind, problem, 0.0)
    gaps = []
    for seed in range(60):
        one, other = (p.run(seed=seed, history="models").history["models"][0] for p in (plan, quiet))
        gaps.append(one - other)
    measured = np.std(gaps)
    assert bool(abs(measured / 50.0 - 1) < 0.1) is passes  # 660 draws: 3.6 standard errors


@pytest.mark.parametrize("weights", ["items", "rows"])
@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("kind", MAKE)
def test_claims_are_those_of_real_numbers_and_about_the_program(kind, sample, weights):
    # Catches: a sensitivity in units, without its factor 2, or of the mean where the noise is on the sum; a bound for
    # the last iterate, which rounding breaks.
    problem = users(weights=weights)
    lattice, real = (plan_of(kind, problem, 0.2, lattice=on, **SAMPLES[sample]) for on in (True, False))
    for adjacency in ("zero-out", "replace-one"):
        asked = {"delta": 1e-5, "adjacency": adjacency, "unit": "user"}
        ours, theirs = lattice.guarantee(**asked), real.guarantee(**asked)
        assert ours.epsilon == pytest.approx(theirs.epsilon, rel=1e-6)
        assert ours.epsilon <= theirs.epsilon * (1 + 1e-9)
        assert (ours.arithmetic, theirs.arithmetic) == ("whole", "real")
        assert "floating-point" not in str(ours)
    assert lattice.guarantee(1e-5, view="final").view == "iterates"
    record = lattice.guarantee(1e-5, unit="record", adjacency="replace-one")
    user = lattice.guarantee(1e-5, unit="user", adjacency="replace-one")
    assert record.epsilon >= user.epsilon * (1 - 1e-12) or sample != "all"
    promised = lattice.certificate
    for adjacency in ("zero-out", "replace-one"):  # a user without one row may send anything at all
        assert promised.shift("record", adjacency) == promised.shift("user", "replace-one")
    assert lattice.operator.step_lipschitz(0.5) is None


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("epsilon", [1e-4, 0.5, 8.0])
def test_budgets_are_met_and_plans_survive_json(kind, sample, epsilon):
    # Catches: noise rounded down to the lattice, a coarser lattice that a reader of the plan does not find.
    problem = users(weights="rows" if kind == "steps" else "items")
    budget = Budget(epsilon, 1e-6, unit="user")
    plan = plan_of(kind, problem, budget=budget, **SAMPLES[sample])
    assert plan.parameters["lattice"] is True
    spent = plan.guarantee(1e-6).epsilon
    assert 0.99 * epsilon <= spent <= epsilon
    assert 1 <= plan.noise.scale <= 2**40
    back = Plan.from_json(plan.to_json())
    assert back.to_dict() == plan.to_dict()
    assert (back.noise, back.operator.unit, back.operator.most) == (plan.noise, plan.operator.unit, plan.operator.most)
    assert back.fingerprint() == plan.fingerprint()
    if epsilon > 0.1:
        np.testing.assert_array_equal(back.on(problem).run(seed=3).model, plan.run(seed=3).model)


@pytest.mark.parametrize("kind", MAKE)
def test_a_run_that_was_saved_goes_on(kind, tmp_path):
    # Catches: integers of a state written or read as floating-point numbers.
    plan = plan_of(kind, users(), 0.1)
    half = plan.run(seed=4, callback=lambda step, model: step == 3).state
    half.save(tmp_path / "state.npz")
    again = type(half).load(tmp_path / "state.npz")
    assert again.shared.dtype == half.shared.dtype
    assert again.blocks.dtype == half.blocks.dtype
    np.testing.assert_array_equal(plan.run(state=again).model, plan.run(seed=4).model)


@pytest.mark.parametrize("kind", MAKE)
def test_replicas_of_a_run_are_the_run(kind):
    # Catches: sums in floating-point numbers, or one point for all runs, where an audit runs many at once.
    from hushpoint.privacy.replicas import released_models

    for problem in (users(weights="rows"), one_row_each(*table())):
        plan = plan_of(kind, problem, 0.1, sample_prob=0.6)
        models = released_models(plan, [3, 4], every_step=False)
        for seed, model in zip((3, 4), models, strict=True):
            np.testing.assert_allclose(model, plan.run(seed=seed).model, rtol=0, atol=1e-14)


class Own(hp.losses.Logistic):
    """A loss with a derivative of its own, which compiled code does not know."""

    name = "own"

    def derivative(self, margin, target):
        return 0.5 * super().derivative(margin, target)


@pytest.mark.parametrize("kind", MAKE)
def test_what_stands_in_the_way_is_named(kind):
    # Catches: a plan that silently leaves the lattice it was asked for, or takes one that it cannot keep to.
    with pytest.raises(ValueError, match="lattice is True and budget is for one record of a user"):
        plan_of(kind, users(), budget=Budget(1.0, 1e-5, unit="record"))
    with pytest.raises(ValueError, match="lattice is 1"):
        plan_of(kind, users(), 0.1, lattice=1)
    X, y = table()
    foreign = Problem(X, y, Own(), row_norm=1.0)
    with pytest.raises(ValueError, match=r"loss is 'own', which has no compiled form\. .* or pass lattice=False"):
        plan_of(kind, foreign, 0.1)
    assert plan_of(kind, foreign, 0.1, lattice=None).operator.unit is None
    off = plan_of(kind, users(), 0.1, lattice=False)
    assert off.operator.unit is None
    assert plan_of(kind, users(), 0.1, lattice=None).parameters["lattice"] is False
    assert Plan.from_json(off.to_json()).operator.unit is None
    with pytest.raises(ValueError, match="not linear"):
        plan_of(kind, users(), 0.1).operator.unclipped()


def test_blocks_without_a_bound_are_refused_and_a_radius_is_one():
    X, y = table(loss="squared")
    bare = Problem(X, y)
    with pytest.raises(ValueError, match=r"nothing bounds a block\. Pass radius=r"):
        plan_of("blocks", bare, 0.1)
    assert plan_of("blocks", bare, 0.1, radius=0.2).guarantee(1e-5).arithmetic == "whole"
    assert plan_of("steps", bare, 0.1).guarantee(1e-5).arithmetic == "whole"


def test_a_public_point_too_far_away_is_refused_before_any_block_moves():
    # Catches: sums of blocks that wrap around, which would be another model and no error.
    problem = users()
    operator, block = blocks_on(problem)
    data, far = operator.prepare(problem.rows), np.zeros(WIDTH)
    far[4] = operator._farthest * operator.unit
    operator.local(data, slice(None), block, far, 0.5, None)
    assert problem.items * (operator._farthest + operator.most) < 2**62
    for value in (2 * far[4], -2 * far[4], math.inf, math.nan, 1e300):
        far[4] = value
        with pytest.raises(RuntimeError, match="64 bits"):
            operator.local(data, slice(None), block, far, 0.5, None)
    assert operator.reach() < operator._farthest * operator.unit


@pytest.mark.parametrize("spare", [1, 18])
@pytest.mark.parametrize("messages", [1, 1000, 10**7, 2**31])
@pytest.mark.parametrize("bound", [1e-300, 3e-5, 1.0, 7.3, 1e300])
def test_the_lattice_is_fine_and_its_sums_fit(messages, bound, spare):
    # Catches: an exponent that is one off on either side.
    unit = unit_for(bound, messages, spare)
    if bound < 1e-270:
        with pytest.raises(ValueError, match="less than one unit"):
            most_steps("radius", bound, unit, messages)
        return
    most = most_steps("radius", bound, unit, messages)
    assert most * unit <= bound < (most + 1) * unit
    assert messages * most * 2**spare < 2**62
    assert most >= 2**11
    with pytest.raises(ValueError, match="64 bits"):
        most_steps("radius", bound, unit / 2**40, 2**40)


@pytest.mark.parametrize("kind", MAKE)
def test_a_coarser_lattice_has_the_same_bound_in_fewer_steps(kind):
    operator = MAKE[kind](users())[0]
    other = operator.coarser(5)
    assert other.unit == 32 * operator.unit
    assert other.most == operator.most // 32
    assert operator.unit == copy.copy(operator).unit
    with pytest.raises(ValueError, match="less than one unit"):
        operator.coarser(40)
