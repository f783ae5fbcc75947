"""Kernels: the same models as the plain loop where they share its draws, the same law where they draw less."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from scipy import stats
from scipy.sparse import csr_array

import hushpoint as hp
from hushpoint.kernels import draw
from hushpoint.kernels.coordinates import CompiledCoordinates
from hushpoint.kernels.draw import _cut
from hushpoint.kernels.rows import CompiledRounds, CompiledWalk
from hushpoint.kernels.shortcut import STRETCH, ConsensusShortcut
from hushpoint.noise import Source

FALSE_ALARM = 1e-6
ITEMS, FEATURES = 24, 4
RNG = np.random.default_rng(3)
X = RNG.normal(size=(ITEMS, FEATURES)) * np.exp(RNG.normal(size=(ITEMS, 1)))
X[5] = 0.0  # a row of zeros: its prox is the identity
Y = X @ RNG.normal(size=FEATURES) + RNG.normal(size=ITEMS)
CLASSES = np.where(np.median(Y) < Y, 1, 0)

LOSSES = {
    "squared": (hp.losses.Squared(), Y),
    "logistic": (hp.losses.Logistic(), CLASSES),
    "huber": (hp.losses.Huber(0.7), Y),
    "smoothed hinge": (hp.losses.SmoothedHinge(0.4), CLASSES),
    "absolute": (hp.losses.Absolute(), Y),
    "quantile": (hp.losses.Quantile(0.3, 0.2), Y),
}
PENALTIES = {
    "none": (None, False),
    "L1 and intercept": (hp.regularizers.L1(0.02), True),
    "elastic net": (hp.regularizers.ElasticNet(0.02, 0.1), False),
    "L2": (hp.regularizers.L2(0.1), False),
}
every_loss = pytest.mark.parametrize("loss", LOSSES)
every_penalty = pytest.mark.parametrize("penalty", PENALTIES)
clips = pytest.mark.parametrize("clip", [None, 0.3])


def problem(loss: str, penalty: str, clip: float | None) -> hp.Problem:
    function, targets = LOSSES[loss]
    regularizer, intercept = PENALTIES[penalty]
    return hp.Problem(X, targets, function, regularizer, row_norm=2.0, clip=clip, fit_intercept=intercept)


@every_loss
@every_penalty
@clips
@pytest.mark.parametrize("graph", ["complete", nx.cycle_graph(ITEMS)], ids=["complete", "ring"])
@pytest.mark.parametrize("ridge_in_loss", [False, True])
def test_the_compiled_walk_is_the_plain_walk(loss, penalty, clip, graph, ridge_in_loss):
    # Catches: another prox, a forgotten relaxation, noise at another address, a cap or a neighbour list read wrongly.
    plan = hp.methods.decentralized_admm(
        problem(loss, penalty, clip), 150, 1.7, 0.6, graph=graph, noise_std=0.4, participation_cap=9,
        ridge_in_loss=ridge_in_loss,
    )  # fmt: skip
    assert isinstance(plan.operator.kernel(plan), CompiledWalk)
    fast, slow = plan.run(seed=4), plan.run(seed=4, kernel="plain")
    np.testing.assert_allclose(fast.model, slow.model, rtol=0, atol=1e-9)
    np.testing.assert_allclose(fast.state.blocks, slow.state.blocks, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(fast.state.participations, slow.state.participations)
    assert (fast.state.position, fast.state.steps) == (slow.state.position, slow.state.steps)


SAMPLED = {
    "fixed": {"sample_size": 5},
    "poisson": {"sample_prob": 0.3},
    "capped": {"participation_cap": 3},
}


@every_loss
@every_penalty
@clips
@pytest.mark.parametrize("sampling", SAMPLED)
def test_compiled_rounds_are_the_plain_rounds(loss, penalty, clip, sampling):
    # Catches: the same for rounds; users of one round that see each other's messages.
    plan = hp.methods.federated_admm(problem(loss, penalty, clip), 30, 1.7, 0.6, noise_std=0.4, **SAMPLED[sampling])
    assert isinstance(plan.operator.kernel(plan), CompiledRounds)
    fast, slow = plan.run(seed=4), plan.run(seed=4, kernel="plain")
    np.testing.assert_allclose(fast.model, slow.model, rtol=0, atol=1e-9)
    np.testing.assert_allclose(fast.state.blocks, slow.state.blocks, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(fast.state.participations, slow.state.participations)


@pytest.mark.parametrize("make", [
    lambda p: hp.methods.federated_admm(p, 30, 1.7, 0.6, noise_std=0.4, sample_size=5),
    lambda p: hp.methods.decentralized_admm(p, 150, 1.7, 0.6, noise_std=0.4),
    lambda p: hp.methods.centralized_admm(p, 25, 1.7, 0.6, noise_std=0.0),
])  # fmt: skip
@every_loss
def test_sparse_rows_are_the_same_rows(make, loss):
    # Catches: indices of a CSR row read wrongly, or a row of zeros that has no entries.
    function, targets = LOSSES[loss]
    thin = np.where(np.abs(X) > 0.5, X, 0.0)
    dense, sparse = (hp.Problem(rows, targets, function, row_norm=2.0, clip=0.3) for rows in (thin, csr_array(thin)))
    fast, slow = make(sparse).run(seed=4), make(dense).run(seed=4)
    np.testing.assert_allclose(fast.model, slow.model, rtol=0, atol=1e-9)
    plain = make(sparse).run(seed=4, kernel="plain")
    np.testing.assert_allclose(fast.model, plain.model, rtol=0, atol=1e-9)


def test_compiled_subsets_are_the_smallest_coins():
    # Catches: a subset of another size, or one that the place of equal coins decides.
    rng = np.random.default_rng(0)
    for _ in range(300):
        coins = rng.random(rng.integers(1, 60))
        if rng.random() < 0.5:
            coins = np.floor(coins * 32) / 32  # many ties
        size = int(rng.integers(1, coins.size + 1))
        threshold, ordered = _cut(coins, size), np.sort(coins)
        if size < coins.size and ordered[size - 1] == ordered[size]:
            assert threshold == -1
        else:
            assert np.count_nonzero(coins < threshold) == size
    assert _cut(np.array([1 - 2.0**-53, 1 - 2.0**-52, 0.0]), 2) == 1 - 2.0**-53


def test_equal_coins_at_the_cut_are_drawn_again_as_the_schedule_does(monkeypatch):
    # Catches: a loop that draws the same coins again and again, or members of another subset than the plain loop's
    tables = [[0.5, 0.25, 0.5, 0.75], [0.25, 0.5, 0.3, 0.125]]

    def drawn(secure, role, item, step, coins, room):
        coins[:] = tables[item]

    class Tied:
        def uniforms(self, role, item, step, size):
            return np.array(tables[item])

    monkeypatch.setattr(draw, "uniforms_at", drawn)
    for size in (1, 2, 3):
        schedule, members = hp.schedules.FixedSample(4, size), np.empty(4, dtype=np.int64)
        code = draw.coded_schedule(schedule)
        count, _ = draw.draw_members.py_func(True, code, 3, np.zeros(4, dtype=np.int64), members, np.empty(4), None)
        assert members[:count].tolist() == schedule.draw(3, Tied(), -1).tolist()


def test_steps_beyond_the_addresses_are_refused():
    # Catches: noise that comes again after 2^32 steps.
    for make in (
        lambda p: hp.methods.decentralized_admm(p, 10, 1.0, noise_std=1.0),
        lambda p: hp.methods.federated_admm(p, 10, 1.0, noise_std=1.0, sample_size=2),
        lambda p: hp.methods.centralized_admm(p, 10, 1.0, noise_std=1.0),
    ):
        plan = make(problem("huber", "L2", None))
        state = replace(plan.run(seed=0).state, steps=2**32 - 5, planned=2**32 - 5)
        with pytest.raises(OverflowError):
            plan.run(state=state)


@pytest.mark.parametrize("schedule", ["cyclic", "permuted", "single", 3])
def test_compiled_schedules_are_the_plain_ones(schedule):
    # Catches: a schedule drawn at other addresses, or a pass that visits a block twice.
    plan = hp.methods.centralized_admm(problem("logistic", "L2", None), 60, 1.0, noise_std=0.3, schedule=schedule)
    fast, slow = plan.run(seed=7), plan.run(seed=7, kernel="plain")
    np.testing.assert_allclose(fast.model, slow.model, rtol=0, atol=1e-10)
    np.testing.assert_array_equal(fast.state.participations, slow.state.participations)


def test_the_compiled_walk_takes_relaxations_step_by_step_and_resumes():
    # Catches: the first relaxation used for all hops; a resumed run that starts its addresses anew.
    relaxations = np.linspace(0.2, 1.0, 90)
    plan = hp.methods.decentralized_admm(problem("logistic", "L2", None), 90, 1.0, relaxations, noise_std=0.2)
    whole = plan.run(seed=1)
    np.testing.assert_allclose(whole.model, plan.run(seed=1, kernel="plain").model, atol=1e-10)
    cut = plan.run(seed=1, callback=lambda step, model: step == 37)
    np.testing.assert_array_equal(plan.run(state=cut.state).model, whole.model)
    # Its states are those of the plain loop: either continues the other's.
    np.testing.assert_allclose(plan.run(state=cut.state, kernel="plain").model, whole.model, atol=1e-10)


@pytest.mark.parametrize("loss", ["logistic", "huber"])
def test_the_shortcut_for_a_loss_that_only_numpy_knows_is_the_compiled_one(monkeypatch, loss):
    # Catches: two versions of a step that drift apart, in arithmetic or in where they draw.
    plan = hp.methods.centralized_admm(problem(loss, "L1 and intercept", 0.3), 12, 1.7, 0.6, noise_std=0.5)
    compiled = plan.run(seed=3)
    monkeypatch.setattr(type(plan.facts.loss), "code", None)
    np.testing.assert_allclose(plan.run(seed=3).model, compiled.model, rtol=0, atol=1e-10)
    monkeypatch.undo()
    monkeypatch.setattr(type(plan.operator.penalty), "code", None)
    np.testing.assert_allclose(plan.run(seed=3).model, compiled.model, rtol=0, atol=1e-12)


def without_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs without a seed read the cryptographic stream: here with a key that is the same every time."""
    key = np.arange(1, 9, dtype=np.uint32)
    monkeypatch.setattr("hushpoint.engine.source_for", lambda seed: Source(key))


SECURE = {
    "rounds": lambda p: hp.methods.federated_admm(p, 20, 1.7, 0.6, noise_std=0.4, sample_size=5),
    "everyone": lambda p: hp.methods.federated_admm(p, 20, 1.7, 0.6, noise_std=0.4, participation_cap=9),
    "walk": lambda p: hp.methods.decentralized_admm(p, 100, 1.7, 0.6, noise_std=0.4),
    "coordinates": lambda p: hp.methods.dp_cd(p, 60, noise_std=0.2),
}


@pytest.mark.parametrize("make", SECURE.values(), ids=SECURE)
def test_secure_kernels_draw_what_the_plain_loop_draws(monkeypatch, make):
    # Catches: noise that is halved, or used for several steps, in runs in earnest only: other tests have a seed.
    without_a_seed(monkeypatch)
    plan = make(problem("logistic", "L2", 0.3))
    assert plan.operator.kernel(plan) is not None
    fast, slow = plan.run(), plan.run(kernel="plain")
    np.testing.assert_allclose(fast.model, slow.model, rtol=0, atol=1e-9)


@pytest.mark.parametrize("secure", [False, True])
def test_rows_of_a_long_table_have_noise_of_their_own(monkeypatch, secure):
    # Catches: every stretch of rows with the noise of the first one. NumPy draws them all at once.
    if secure:
        without_a_seed(monkeypatch)
    rng = np.random.default_rng(1)
    rows = 2 * STRETCH + 100
    data = hp.Problem(rng.normal(size=(rows, 3)), rng.normal(size=rows), "huber", row_norm=1.0)
    plan = hp.methods.centralized_admm(data, 3, 1.7, 0.6, noise_std=0.5)
    compiled = plan.run(seed=3)
    monkeypatch.setattr(type(plan.facts.loss), "code", None)
    np.testing.assert_allclose(plan.run(seed=3).model, compiled.model, rtol=0, atol=1e-10)


@every_loss
@every_penalty
@clips
@pytest.mark.parametrize("ridge_in_loss", [False, True])
def test_the_shortcut_without_noise_is_the_plain_loop(loss, penalty, clip, ridge_in_loss):
    # Catches: any error in the algebra of t_i and of the mean.
    plan = hp.methods.centralized_admm(
        problem(loss, penalty, clip), 25, 1.7, 0.6, noise_std=0.0, ridge_in_loss=ridge_in_loss
    )
    assert isinstance(plan.operator.kernel(plan), ConsensusShortcut)
    np.testing.assert_allclose(plan.run().model, plan.run(kernel="plain").model, rtol=0, atol=1e-10)


def moments_agree(one: np.ndarray, two: np.ndarray) -> float:
    """Smallest p-value, corrected for their number, of all means, variances and covariances of two samples."""
    runs = len(one)
    scores = [(one.mean(0) - two.mean(0)) / np.sqrt((one.var(0) + two.var(0)) / runs)]
    products = [(part - part.mean(0))[:, :, None] * (part - part.mean(0))[:, None, :] for part in (one, two)]
    gap = products[0].mean(0) - products[1].mean(0)
    scores.append((gap / np.sqrt((products[0].var(0) + products[1].var(0)) / runs)).ravel())
    together = np.concatenate(scores)
    return float(min(1.0, 2 * stats.norm.sf(np.abs(together).max()) * together.size))


def released(plan: hp.Plan, runs: int, kernel: str) -> np.ndarray:
    return np.stack([plan.run(seed=s, history="models", kernel=kernel).history["models"].ravel() for s in range(runs)])


@pytest.mark.parametrize("sparse", [False, True])
def test_the_shortcut_has_the_law_of_the_plain_loop(sparse):
    # Catches: F missing or factored wrongly, g not shared between t_i and the mean, noise scaled by lambda twice or
    # never. False alarm below 1e-6; power shown on the same runs with the noise 20% too large.
    rows = X[:7, :3] / np.maximum(1, np.linalg.norm(X[:7, :3], axis=1))[:, None]
    data = hp.Problem(csr_array(rows) if sparse else rows, Y[:7], clip=0.5, row_norm=1.0)
    plan = hp.methods.centralized_admm(data, 3, 2.0, 0.7, noise_std=1.0)
    runs = 1500
    fast, slow = released(plan, runs, "auto"), released(plan, runs, "plain")
    assert moments_agree(fast, slow) > FALSE_ALARM
    column = stats.ks_2samp(fast[:, -1], slow[:, -1]).pvalue
    assert column > FALSE_ALARM
    louder = released(replace(plan, noise=hp.noise.Noise(1.2)), runs, "auto")
    assert moments_agree(louder, slow) < FALSE_ALARM


def test_the_shortcut_resumes_itself_and_refuses_the_plain_loop():
    # Catches: t_i taken for blocks by the plain loop.
    plan = hp.methods.centralized_admm(problem("squared", "L2", 0.3), 20, 1.0, noise_std=0.5)
    whole = plan.run(seed=2)
    cut = plan.run(seed=2, callback=lambda step, model: step == 8)
    np.testing.assert_array_equal(plan.run(state=cut.state).model, whole.model)
    with pytest.raises(ValueError, match="shortcut"):
        plan.run(state=cut.state, kernel="plain")
    plain = plan.run(seed=2, kernel="plain", callback=lambda step, model: step == 8)
    assert plan.run(state=plain.state).state.kernel == "plain"


@pytest.mark.parametrize(
    "make",
    [
        lambda p: hp.methods.centralized_admm(p, 3, 1.0, noise_std=1.0, clip_residual=1.0),
        lambda p: hp.methods.federated_admm(p, 3, 1.0, noise="sum", noise_std=1.0, clip_residual=1.0),
        lambda p: hp.methods.anchored_admm(p, 3, 1.0, noise_std=1.0),
        lambda p: hp.methods.decentralized_admm(p, 3, 1.0, noise_std=1.0, clip_residual=1.0),
    ],
)
def test_no_kernel_where_its_conditions_fail(make):
    # Catches: a shortcut taken where clipping, caps or partial participation make it wrong.
    plan = make(problem("huber", "L2", None))
    assert plan.operator.kernel(plan) is None


def test_users_with_several_rows_take_the_plain_loop():
    # Catches: the one-row algebra applied to users.
    users = hp.Problem(X, Y, row_norm=1.0, clip=1.0, groups=np.arange(ITEMS) // 2)
    for plan in (
        hp.methods.centralized_admm(users, 3, 1.0, noise_std=1.0),
        hp.methods.decentralized_admm(users, 3, 1.0, noise_std=1.0),
    ):
        assert plan.operator.kernel(plan) is None


@every_loss
@every_penalty
@clips
@pytest.mark.parametrize("sparse", [False, True])
def test_compiled_coordinates_are_the_plain_ones(loss, penalty, clip, sparse):
    # Catches: inner products that miss an update, a column read wrongly, a penalty on the intercept, other draws.
    function, targets = LOSSES[loss]
    regularizer, intercept = PENALTIES[penalty]
    thin = np.where(np.abs(X) > 0.5, X, 0.0)
    rows = csr_array(thin) if sparse else X
    data = hp.Problem(rows, targets, function, regularizer, row_norm=2.0, clip=clip, fit_intercept=intercept)
    plan = hp.methods.dp_cd(data, 203, step_size=0.3, noise_std=0.05)
    assert isinstance(plan.operator.kernel(plan), CompiledCoordinates)
    fast, slow = plan.run(seed=4), plan.run(seed=4, kernel="plain")
    np.testing.assert_allclose(fast.model, slow.model, rtol=0, atol=1e-11)
    np.testing.assert_allclose(fast.state.blocks[:, 0], data.rows.margins(fast.model), rtol=0, atol=1e-11)
    np.testing.assert_array_equal(fast.state.participations, slow.state.participations)
    assert fast.state.position == slow.state.position


@pytest.mark.parametrize("weights", ["items", "rows"])
def test_compiled_coordinates_take_users_steps_and_resume(weights):
    # Catches: rows that are not weighed by their user; one step size for all; a resumed run with other inner products.
    users = hp.Problem(X, CLASSES, "logistic", row_norm=1.0, groups=np.arange(ITEMS) ** 2 // 60, weights=weights)
    plan = hp.methods.dp_cd(users, 90, step_size=np.linspace(0.1, 2.0, 90), noise_std=0.02)
    whole = plan.run(seed=1)
    np.testing.assert_allclose(whole.model, plan.run(seed=1, kernel="plain").model, atol=1e-12)
    cut = plan.run(seed=1, callback=lambda step, model: step == 37)
    np.testing.assert_array_equal(plan.run(state=cut.state).model, whole.model)
    with pytest.raises(ValueError, match="coordinates"):
        plan.run(state=cut.state, kernel="plain")
    assert whole.guarantee.epsilon == plan.run(seed=1, kernel="plain").guarantee.epsilon


def test_compiled_coordinates_in_a_circle_and_where_there_are_none():
    # Catches: a cyclic schedule drawn at random; a kernel where its conditions fail.
    plan = hp.methods.dp_cd(problem("huber", "L2", None), 50, step_size=0.2, noise_std=0.1)
    around = replace(plan, schedule=hp.schedules.Cyclic(FEATURES))
    np.testing.assert_allclose(around.run(seed=2).model, around.run(seed=2, kernel="plain").model, atol=1e-12)
    for schedule in (hp.schedules.Permuted(FEATURES), hp.schedules.OneBlock(FEATURES, cap=3)):
        other = replace(plan, schedule=schedule)
        assert other.operator.kernel(other) is None
    box = hp.Problem(X, Y, "huber", hp.regularizers.Box(-1.0, 1.0), row_norm=1.0)
    boxed = hp.methods.dp_cd(box, 5, noise_std=0.1)
    assert boxed.operator.kernel(boxed) is None


def test_a_change_in_any_compiled_file_reaches_all_cached_loops(tmp_path):
    # Catches: numba's cache, which looks at one file only, serving loops that hold the old copy of a corrected prox.
    package = tmp_path / "src" / "hushpoint"
    shutil.copytree(Path(hp.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    program = (
        "import numpy as np; from hushpoint.kernels.users import _inner_products as f;"
        "rows = np.eye(2, 3), np.zeros(2), np.zeros(2), np.array([0, 2]);"
        "out = np.zeros(4); f(rows, np.array([0, 4]), 0, 1, 3, out);"
        "print(out.sum(), sum(f.stats.cache_hits.values()))"
    )

    def run():
        environment = {**os.environ, "PYTHONPATH": str(package.parent), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    assert run() == ["2.0", "0"]
    assert run() == ["2.0", "1"]
    table = package / "kernels" / "table.py"
    table.write_text(table.read_text().replace("total[j] += weight * row[j]", "total[j] += 3.0 * weight * row[j]"))
    assert run() == ["6.0", "0"]
