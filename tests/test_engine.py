"""The engine: Algorithm 1 as written, resumed bit for bit, stopped only between steps; and plans as JSON."""

import dataclasses
import json
import os
import signal

import networkx as nx
import numpy as np
import pytest

import hushpoint as hp
from hushpoint.engine import RunFailed, State
from hushpoint.noise import Noise, seeded_source
from hushpoint.operators import FixedPoint, Gradient
from hushpoint.schedules import EveryBlock, OneBlock

ITEMS, FEATURES = 12, 4
methods = hp.methods


def build(loss="squared", regularizer=None, **extra):
    rng = np.random.default_rng(7)
    X = rng.normal(size=(3 * ITEMS, FEATURES))
    y = X @ np.array([1.0, -2.0, 0.0, 0.5]) + 0.1 * rng.normal(size=len(X))
    kind = {"row_norm": 2.0, "clip": 0.8, **extra}
    return hp.Problem(X, y > 0 if loss == "logistic" else y, loss, regularizer, **kind)


LASSO = hp.Problem(
    build().rows.features[:ITEMS], build().rows.targets[:ITEMS], "squared", hp.regularizers.L1(0.01), 2.0, clip=0.8
)
RIDGE = hp.Problem(LASSO.rows.features, LASSO.rows.targets, "squared", hp.regularizers.L2(0.05), 2.0, clip=0.8)
USERS = build("logistic", hp.regularizers.ElasticNet(0.01, 0.02), groups=np.arange(3 * ITEMS) % ITEMS, weights="rows")
DIFFERENCES = np.vstack([np.eye(FEATURES), np.diff(np.eye(FEATURES), axis=0)])  # the fused Lasso's A

# Every method with every schedule and place of noise: name -> (problem, steps -> plan).
PLANS = {
    "dp_sgd": (LASSO, lambda k: methods.dp_sgd(LASSO, k, 0.2, noise_std=0.1)),
    "dp_sgd poisson": (LASSO, lambda k: methods.dp_sgd(LASSO, k, 0.2, 0.4, noise_std=0.1)),
    "dp_sgd fixed": (LASSO, lambda k: methods.dp_sgd(LASSO, k, 0.2, sample_size=3, noise_std=0.1)),
    "dp_sgd users": (USERS, lambda k: methods.dp_sgd(USERS, k, 0.2, 0.5, noise_std=0.1)),
    "dp_cd": (LASSO, lambda k: methods.dp_cd(LASSO, k, noise_std=0.1)),
    "dp_fedavg": (LASSO, lambda k: methods.dp_fedavg(LASSO, k, 3, 0.2, 0.3, noise_std=0.1)),
    "dp_fedavg poisson": (
        USERS,
        lambda k: methods.dp_fedavg(USERS, k, 3, 0.2, 0.3, 0.8, sample_prob=0.5, noise_std=0.1),
    ),
    "dp_fedavg fixed": (USERS, lambda k: methods.dp_fedavg(USERS, k, 3, 0.2, 0.3, sample_size=4, noise_std=0.1)),
    "private": (LASSO, lambda k: methods.private_admm(LASSO, k, 2.0, noise_std=0.1)),
    "private users": (USERS, lambda k: methods.private_admm(USERS, k, 2.0, 0.7, noise_std=0.1, tolerance=1e-9)),
    "private fused": (
        RIDGE,
        lambda k: methods.private_admm(
            RIDGE, k, 2.0, noise_std=0.1, A=DIFFERENCES, penalty=hp.regularizers.L1(0.02), c=np.full(7, 0.01)
        ),
    ),
    "private B": (
        RIDGE,
        lambda k: methods.private_admm(
            RIDGE, k, 2.0, noise_std=0.1, B=-2 * np.eye(4), penalty=hp.regularizers.GroupL1(0.02, ((0, 1), (2, 3)))
        ),
    ),
    **{
        f"centralized {schedule}": (
            LASSO,
            lambda k, schedule=schedule: methods.centralized_admm(LASSO, k, 2.0, noise_std=0.1, schedule=schedule),
        )
        for schedule in ("all", "cyclic", "permuted", "single", 5)
    },
    "centralized residual": (
        LASSO,
        lambda k: methods.centralized_admm(LASSO, k, 2.0, noise_std=0.1, clip_residual=0.3),
    ),
    "centralized users": (USERS, lambda k: methods.centralized_admm(USERS, k, 2.0, noise_std=0.1, ridge_in_loss=False)),
    "federated": (LASSO, lambda k: methods.federated_admm(LASSO, k, 2.0, noise_std=0.1)),
    "federated fixed": (
        USERS,
        lambda k: methods.federated_admm(USERS, k, 2.0, 0.8, noise_std=0.1, sample_size=4, participation_cap=5),
    ),
    "federated poisson": (LASSO, lambda k: methods.federated_admm(LASSO, k, 2.0, noise_std=0.1, sample_prob=0.3)),
    "federated sum": (
        LASSO,
        lambda k: methods.federated_admm(LASSO, k, 2.0, noise="sum", noise_std=0.1, sample_prob=0.3, clip_residual=0.5),
    ),
    "decentralized": (LASSO, lambda k: methods.decentralized_admm(LASSO, k, 2.0, noise_std=0.1)),
    "decentralized ring": (
        LASSO,
        lambda k: methods.decentralized_admm(
            LASSO, k, 2.0, noise_std=0.1, graph=nx.cycle_graph(ITEMS), participation_cap=2
        ),
    ),
    "anchored": (LASSO, lambda k: methods.anchored_admm(LASSO, k, 2.0, noise_std=0.1)),
    "anchored poisson": (
        USERS,
        lambda k: methods.anchored_admm(USERS, k, 2.0, noise_std=0.1, sample_prob=0.4, radius=1.0),
    ),
    "anchored fixed": (LASSO, lambda k: methods.anchored_admm(LASSO, k, 2.0, noise_std=0.1, sample_size=4)),
    "stateless": (RIDGE, lambda k: methods.stateless_walk(RIDGE, k, 0.5, noise_std=0.1)),
    "stateless ring": (
        RIDGE,
        lambda k: methods.stateless_walk(
            RIDGE, k, 0.5, noise_std=0.1, graph=nx.cycle_graph(ITEMS), participation_cap=3
        ),
    ),
}
every_plan = pytest.mark.parametrize("name", PLANS)


def make(name, steps=20):
    return PLANS[name][1](steps)


def stop_at(last):
    return lambda step, model: step == last


def assert_same_state(one, two):
    for field in dataclasses.fields(State):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(two, field.name), err_msg=field.name)


class Shrink(FixedPoint):
    """R(u) = tau u: the smallest operator there is."""

    def __init__(self, size, tau=0.5):
        super().__init__(size)
        self.tau = tau

    def start(self):
        return np.ones(self.block_size), np.ones((1, self.block_size))

    def apply(self, point):
        return self.tau * point


def shrink_plan(**extra):
    return hp.Plan(Shrink(3), EveryBlock(1), extra.pop("noise", Noise(0.0)), **{"steps": 6, **extra})


# ---------------------------------------------------------------------------------------------- resuming


@every_plan
def test_a_resumed_run_is_the_run_that_was_not_interrupted(name):
    # noise drawn again or skipped, a walk that starts anew, an order redrawn, counts of participation lost
    whole = make(name, 20).run(seed=5)
    half = make(name, 10).run(seed=5)
    assert (whole.status, whole.state.steps, half.state.steps) == ("finished", 20, 10)
    assert not np.array_equal(whole.model, half.model)
    for plan in (make(name, 20), make(name, 10)):
        again = plan.run(state=half.state)
        np.testing.assert_array_equal(again.model, whole.model)
        # all but how often a model was given: once more than by the whole run
        assert again.state.models == whole.state.models + 1
        assert_same_state(
            dataclasses.replace(again.state, tail_start=0, models=0, watched=False),
            dataclasses.replace(whole.state, tail_start=0, models=0, watched=False),
        )


@every_plan
def test_a_state_survives_its_file(name, tmp_path):
    # position of the walk, participations, sums of the tail or the seed not written, or written with fewer digits
    plan = dataclasses.replace(make(name, 20), tail_average=0.8)
    whole = plan.run(seed=2**70 + 1)
    cut = plan.run(seed=2**70 + 1, callback=stop_at(13))
    path = tmp_path / "state.npz"
    cut.state.save(path)
    loaded = State.load(path)
    assert_same_state(loaded, cut.state)
    assert loaded.seed == 2**70 + 1
    assert loaded.tail_start == 4
    if plan.schedule.law in ("walk", "single", "cyclic", "permuted"):
        assert loaded.position >= 0
    assert loaded.participations.sum() > 0
    again = plan.run(state=loaded)
    np.testing.assert_array_equal(again.model, whole.model)
    assert_same_state(dataclasses.replace(again.state, models=1, watched=False), whole.state)
    assert [entry.name for entry in tmp_path.iterdir()] == ["state.npz"]


def test_a_state_without_seed_survives_its_file(tmp_path):
    # a secure run that comes back from its file with a seed would be reproducible
    state = make("centralized all").run(callback=stop_at(3)).state
    state.save(tmp_path / "state.npz")
    assert State.load(tmp_path / "state.npz").seed is None


@every_plan
def test_a_run_never_changes_the_state_it_was_given(name):
    # blocks or counts updated in place: continuing twice from one state would give two answers
    plan = dataclasses.replace(make(name, 10), tail_average=0.5)
    given = plan.run(seed=1, callback=stop_at(7)).state
    kept = given.copy()
    first = plan.run(state=given).model
    assert_same_state(given, kept)
    np.testing.assert_array_equal(plan.run(state=given).model, first)


def test_a_state_of_another_plan_is_refused():
    # blocks of one run moved on with the noise, the step or the data bounds of another, and accounted as either
    state = make("centralized all").run(seed=0, callback=stop_at(3)).state
    tighter = hp.Problem(LASSO.rows.features, LASSO.rows.targets, "squared", hp.regularizers.L1(0.01), 2.0, clip=0.4)
    others = [
        methods.centralized_admm(LASSO, 20, 2.5, noise_std=0.1),
        methods.centralized_admm(LASSO, 20, 2.0, noise_std=0.2),
        methods.centralized_admm(LASSO, 20, 2.0, 0.6, noise_std=0.1),
        methods.centralized_admm(LASSO, 20, 2.0, noise_std=0.1, schedule="cyclic"),
        methods.centralized_admm(LASSO, 20, 2.0, noise_std=0.1, clip_residual=1.0),
        methods.centralized_admm(tighter, 20, 2.0, noise_std=0.1),
        methods.federated_admm(LASSO, 20, 2.0, noise_std=0.1),
        methods.dp_sgd(LASSO, 20, 0.2, noise_std=0.1),
        shrink_plan(),
    ]
    for plan in others:
        with pytest.raises(ValueError, match="state belongs to another plan"):
            plan.run(state=state)
    assert make("centralized all", 7).run(state=state).state.steps == 7  # other steps are no other plan


def test_a_secure_run_goes_on_with_fresh_noise():
    # two continuations of one state that share their noise reveal the difference of the data
    plan = make("centralized all", 6)
    state = plan.run(callback=stop_at(3)).state
    assert not np.array_equal(plan.run(state=state).model, plan.run(state=state).model)
    assert not np.array_equal(plan.run().model, plan.run().model)


def test_noise_is_keyed_by_the_step_and_not_by_the_order_of_drawing():
    # a generator that is advanced: a resumed run would reuse its first draws
    plan = hp.Plan(Shrink(3), EveryBlock(1), Noise(1.0), steps=4, relaxation=1.0)
    source, u = seeded_source(9), np.ones(3)
    for step in range(4):
        u = 0.5 * u + source.normals("block", [0], step, 3, 1.0)[0]
    np.testing.assert_allclose(plan.run(seed=9).model, u, rtol=1e-13)


@pytest.mark.parametrize("again", [None, 8])
def test_no_block_moves_more_often_than_accounted_when_a_run_is_resumed(again):
    # an order that is drawn anew in the middle of a pass lets a block move twice where one move was accounted for
    plan = make("centralized permuted", ITEMS)
    for seed in range(5):
        cut = plan.run(seed=None if again is None else seed, callback=stop_at(ITEMS // 2))
        done = plan.run(seed=again, state=cut.state)
        assert done.state.participations.max() <= plan.schedule.most(done.state.steps)


# ---------------------------------------------------------------------------------------------- tail averages


@pytest.mark.parametrize(("fraction", "last"), [(1.0, 20), (0.5, 10), (0.3, 6), (0.01, 1)])
@pytest.mark.parametrize("name", ["dp_sgd poisson", "private fused", "centralized 5", "anchored", "decentralized ring"])
def test_the_tail_average_is_the_mean_of_the_last_models(name, fraction, last):
    # an average of zhat instead of the model, off by one step, or over the wrong end
    plan = dataclasses.replace(make(name, 20), tail_average=fraction)
    result = plan.run(seed=3, history="models")
    np.testing.assert_allclose(result.model, result.history["models"][-last:].mean(axis=0), rtol=1e-12, atol=1e-15)
    plain = make(name, 20).run(seed=3)
    np.testing.assert_array_equal(plain.model, result.history["models"][-1])
    np.testing.assert_array_equal(plain.state.shared, result.state.shared)


@pytest.mark.parametrize("cut", [4, 10, 15, 20])
def test_the_tail_average_survives_a_cut_anywhere(cut):
    # a sum that starts anew, or counts models twice, on resuming
    plan = dataclasses.replace(make("centralized 5", 20), tail_average=0.5)
    whole = plan.run(seed=3)
    first = plan.run(seed=3, callback=stop_at(cut))
    if cut > 10:
        models = make("centralized 5", 20).run(seed=3, history="models").history["models"]
        np.testing.assert_allclose(first.model, models[10:cut].mean(axis=0), rtol=1e-12)
    if cut < 20:
        np.testing.assert_array_equal(plan.run(state=first.state).model, whole.model)


@pytest.mark.parametrize("first_steps", [9, 10])
def test_a_tail_average_asked_for_on_resuming_holds_only_models_of_its_own(first_steps):
    # a sum that was never filled taken for one that was: the mean is then divided by one model too many
    plain = make("centralized all", first_steps).run(seed=3)
    plan = dataclasses.replace(make("centralized all", 2 * first_steps - 2), tail_average=0.5)
    result = plan.run(state=plain.state, history="models")
    np.testing.assert_allclose(result.model, result.history["models"][-(first_steps - 2) :].mean(axis=0), rtol=1e-12)


# ---------------------------------------------------------------------------------------------- what one sees of it


@every_plan
def test_callbacks_see_every_step_and_its_model(name):
    # a callback called before the step, or with zhat instead of the model
    seen = []
    result = make(name, 8).run(seed=4, history="models", callback=lambda step, model: seen.append((step, model.copy())))
    assert [step for step, _ in seen] == list(range(1, 9))
    np.testing.assert_array_equal([model for _, model in seen], result.history["models"])
    np.testing.assert_array_equal(result.history["step"], range(1, 9))
    np.testing.assert_array_equal(result.model, result.history["models"][-1])


def test_a_callback_can_stop_a_run():
    # a stop that loses the step it was called after, or that is reported as finished
    plan = make("centralized all", 20)
    result = plan.run(seed=4, callback=stop_at(6), history="models")
    assert (result.status, result.state.steps, len(result.history["models"])) == ("stopped", 6, 6)
    np.testing.assert_array_equal(result.model, make("centralized all", 6).run(seed=4).model)
    assert plan.run(seed=4, callback=lambda step, model: None).status == "finished"


def test_the_progress_bar_shows_steps_and_changes_nothing(capsys):
    # a bar that crashes on the first step, or that starts at 0 for a resumed run
    plan = make("centralized all", 20)
    shown = plan.run(seed=4, progress=True)
    assert "20/20" in capsys.readouterr().out
    np.testing.assert_array_equal(shown.model, plan.run(seed=4).model)
    assert capsys.readouterr().out == ""
    cut = plan.run(seed=4, callback=stop_at(12), progress=True)
    assert "12/20" in capsys.readouterr().out
    plan.run(state=cut.state, progress=True)
    assert "20/20" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["dp_sgd", "dp_cd", "private fused", "centralized users", "anchored poisson"])
def test_the_history_holds_the_objective_that_the_plan_minimises(name):
    # the objective of zhat instead of the model, of another step, or without the penalty g
    problem, plan = PLANS[name][0], make(name, 8)
    objective = plan.run(seed=4, history=True).history["objective"]
    models = plan.run(seed=4, history="models").history["models"]
    np.testing.assert_array_equal(objective, [plan.objective(model) for model in models])
    extra = [0.02 * np.abs(DIFFERENCES @ model - 0.01).sum() if name == "private fused" else 0.0 for model in models]
    np.testing.assert_allclose(objective, [problem.objective(m) + e for m, e in zip(models, extra, strict=True)])
    assert set(plan.run(seed=4).history) <= {"step"}


# ---------------------------------------------------------------------------------------------- Ctrl-C


def test_ctrl_c_ends_at_a_whole_step_and_the_run_can_go_on():
    # an interrupt in the middle of a step leaves blocks that moved and a mean that does not know
    plan, before = make("centralized 5", 20), signal.getsignal(signal.SIGINT)
    whole = plan.run(seed=6)
    assert signal.getsignal(signal.SIGINT) is before

    def press(step, model):
        if step == 8:
            os.kill(os.getpid(), signal.SIGINT)

    cut = plan.run(seed=6, callback=press)
    assert signal.getsignal(signal.SIGINT) is before
    assert cut.status == "interrupted"
    assert 8 <= cut.state.steps <= 9
    np.testing.assert_allclose(cut.state.shared, cut.state.blocks.mean(axis=0), rtol=1e-12)
    np.testing.assert_array_equal(cut.model, make("centralized 5", cut.state.steps).run(seed=6).model)
    again = plan.run(state=cut.state)
    assert again.status == "finished"
    np.testing.assert_array_equal(again.model, whole.model)


def test_a_second_ctrl_c_goes_through_at_once():
    # a run that cannot be ended at all
    def press(step, model):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        make("centralized all", 20).run(seed=6, callback=press)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_run_in_the_background_of_a_script_goes_on_ignoring_ctrl_c():
    # the Ctrl-C that is meant for the script ends a run that its shell has protected from it
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        result = make("centralized all", 5).run(
            seed=6, callback=lambda step, model: os.kill(os.getpid(), signal.SIGINT)
        )
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.status == "finished"


def test_a_step_that_fails_gives_back_the_state_before_it():
    # a failure on step 90 of 100 that loses everything, or that hands out a state of which half has moved
    plan = make("centralized all", 6)
    whole, solve = plan.run(seed=1, kernel="plain"), type(plan.operator).local
    for chunk, kept in ((ITEMS, 3), (5, None)):
        calls = []

        def local(self, data, chosen, *rest, calls=calls, fails=4 if kept else 3 * 3 + 2):
            calls.append(chosen)
            if len(calls) == fails:
                raise RuntimeError("no convergence")
            return solve(self, data, chosen, *rest)

        broken = make("centralized all", 6)
        broken.operator.chunk = chunk
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(broken.operator), "local", local)
            with pytest.raises(RunFailed, match="step 4: no convergence") as failure:
                broken.run(seed=1, kernel="plain")
        if kept is None:  # the first chunk of the step had moved already
            assert failure.value.state is None
        else:
            assert failure.value.state.steps == kept
            np.testing.assert_array_equal(plan.run(state=failure.value.state).model, whole.model)


# ---------------------------------------------------------------------------------------------- Algorithm 1


@every_plan
def test_a_constant_sequence_of_relaxations_is_the_constant(name):
    # a sequence that takes another path through the code, or another certificate
    plan = make(name, 6)
    listed = dataclasses.replace(plan, relaxation=[plan.relaxation] * 6)
    np.testing.assert_array_equal(listed.run(seed=1).model, plan.run(seed=1).model)
    assert listed.largest_relaxation == plan.largest_relaxation


@pytest.mark.parametrize("wrap", [list, tuple, np.array])
def test_relaxations_are_used_step_by_step(wrap):
    # the first, the last or the mean relaxation used throughout; one step late after resuming
    relaxation = wrap([0.1, 0.9, 0.4, 1.0, 0.25, 0.5])
    plan = shrink_plan(relaxation=relaxation, steps=6)
    models = plan.run(seed=0, history="models").history["models"]
    np.testing.assert_allclose(models[:, 0], np.cumprod([1 - value / 2 for value in relaxation]), rtol=1e-14)
    cut = plan.run(seed=0, callback=stop_at(3))
    np.testing.assert_array_equal(plan.run(state=cut.state).model, models[-1])
    assert plan.largest_relaxation == 1.0
    admm = methods.centralized_admm(LASSO, 3, 2.0, wrap([0.3, 0.6, 0.9]), noise_std=0.0)
    steps = [methods.centralized_admm(LASSO, 1, 2.0, value, noise_std=0.0) for value in (0.3, 0.6, 0.9)]
    u, zhat = np.zeros((ITEMS, FEATURES)), np.zeros(FEATURES)
    for value, single in zip((0.3, 0.6, 0.9), steps, strict=True):
        operator = single.operator
        u, messages = operator.local(operator.prepare(LASSO.rows), slice(None), u, operator.release(zhat), value, None)
        zhat = zhat + messages.mean(axis=0)
    np.testing.assert_allclose(admm.run(seed=0).state.shared, zhat, rtol=1e-13)


def test_step_sizes_are_used_step_by_step():
    # dp_sgd turns a sequence of step sizes into relaxations: a share of the wrong step, or of a mean
    problem = hp.Problem(LASSO.rows.features, LASSO.rows.targets, "squared", hp.regularizers.L1(0.01), 2.0)
    sizes, z = [0.3, 0.1, 0.2], np.zeros(FEATURES)
    models = methods.dp_sgd(problem, 3, sizes, noise_std=0.0).run(seed=0, history="models").history["models"]
    for size, model in zip(sizes, models, strict=True):
        z = z - size * problem.gradient(z)
        z = np.sign(z) * np.maximum(np.abs(z) - size * 0.01, 0)
        np.testing.assert_allclose(model, z, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("noise_std", [0.0, 0.7])
def test_errors_enter_as_e_of_algorithm_1(noise_std):
    # u + lambda (R(u) + e + eta - u): errors outside the relaxation, twice, or in place of the noise
    asked = []

    def errors(step, blocks, size):
        asked.append((step, list(blocks), size))
        return np.outer(blocks + 1.0, np.arange(size) + step + 1.0)

    plan = shrink_plan(noise=Noise(noise_std), relaxation=0.4, steps=3, errors=errors)
    u, source = np.ones(3), seeded_source(2)
    for step in range(3):
        eta = source.normals("block", [0], step, 3, noise_std)[0]
        u = u + 0.4 * (0.5 * u + np.arange(3) + step + 1.0 + eta - u)
    np.testing.assert_allclose(plan.run(seed=2).model, u, rtol=1e-13)
    assert asked == [(step, [0], 3) for step in range(3)]


@pytest.mark.parametrize("name", ["centralized all", "centralized 5", "centralized cyclic", "decentralized ring"])
def test_errors_reach_the_blocks_that_move_and_the_mean(name):
    # errors given to the blocks in the order of the sample instead of by their number, or to zhat only
    plain = make(name, 1)
    noisy = dataclasses.replace(plain, errors=lambda step, blocks, size: np.outer(blocks + 1.0, np.ones(size)))
    one, two = (plan.run(seed=3, kernel="plain").state for plan in (plain, noisy))
    moved = one.participations[:, None] * plain.relaxation * (np.arange(ITEMS) + 1.0)[:, None]
    np.testing.assert_allclose(two.blocks - one.blocks, np.broadcast_to(moved, two.blocks.shape), atol=1e-12)
    np.testing.assert_allclose(two.shared - one.shared, np.full(FEATURES, moved.sum() / ITEMS), atol=1e-12)


@pytest.mark.parametrize("name", ["dp_sgd", "dp_cd", "dp_fedavg", "anchored", "federated sum", "private", "stateless"])
def test_errors_are_used_or_refused(name):
    # errors that are accepted and then forgotten: a study of inexact steps would report exact ones
    def with_errors():
        return dataclasses.replace(make(name, 3), errors=lambda step, blocks, size: np.ones((len(blocks), size)))

    try:
        used = not np.array_equal(with_errors().run(seed=3).model, make(name, 3).run(seed=3).model)
        refused = ""
    except ValueError as error:
        used, refused = False, str(error)
    assert used or "errors" in refused


def test_noise_that_an_operator_would_ignore_is_refused():
    # a plan that states noise and runs without any
    with pytest.raises(ValueError, match="noise"):
        hp.Plan(Gradient(LASSO.facts, 0.1, ITEMS), EveryBlock(ITEMS), Noise(5.0, "block"), problem=LASSO)


@pytest.mark.parametrize("name", ["centralized all", "centralized users", "centralized 5", "anchored", "federated sum"])
def test_the_size_of_a_chunk_does_not_matter(name):
    # a chunk that is skipped, moved twice, or given the noise of another
    whole, pieces = make(name, 5), make(name, 5)
    pieces.operator.chunk = 3
    one, two = whole.run(seed=3), pieces.run(seed=3)
    np.testing.assert_allclose(two.state.blocks, one.state.blocks, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(two.model, one.model, rtol=1e-9, atol=1e-12)


# ---------------------------------------------------------------------------------------------- participation


@pytest.mark.parametrize("cap", [1, 3])
@pytest.mark.parametrize(
    "plan_with",
    [
        lambda cap: methods.federated_admm(LASSO, 30, 2.0, noise_std=0.1, participation_cap=cap),
        lambda cap: methods.federated_admm(LASSO, 30, 2.0, noise_std=0.1, sample_size=5, participation_cap=cap),
        lambda cap: methods.federated_admm(LASSO, 30, 2.0, noise_std=0.1, sample_prob=0.5, participation_cap=cap),
        lambda cap: methods.decentralized_admm(LASSO, 80, 2.0, noise_std=0.1, participation_cap=cap),
    ],
)
def test_nobody_takes_part_more_often_than_the_cap(plan_with, cap):
    # a cap that is accounted for and not kept; one that is counted anew when the run is resumed
    plan = plan_with(cap)
    free = dataclasses.replace(plan, schedule=dataclasses.replace(plan.schedule, cap=None))
    assert free.run(seed=1).state.participations.max() > cap  # the cap does bind
    cut = plan.run(seed=1, callback=stop_at(plan.steps // 2))
    done = plan.run(state=cut.state)
    assert done.state.participations.max() == plan.schedule.most(plan.steps) == cap
    worn = cut.state.participations == cap
    np.testing.assert_array_equal(done.state.blocks[worn], cut.state.blocks[worn])
    assert done.state.steps == plan.steps


@pytest.mark.parametrize("name", ["decentralized ring", "stateless ring"])
def test_the_token_walks_along_edges(name):
    # a token that jumps: the walk that runs is not the walk of the graph, nor the one that was accounted for
    plan, state, positions = make(name, 25), None, []
    for step in range(25):
        state = plan.run(seed=4, state=state, callback=stop_at(step + 1)).state
        positions.append(state.position)
    hops = np.diff(positions) % ITEMS
    assert set(hops) == {1, ITEMS - 1}
    assert plan.run(seed=4).state.position == positions[-1]


def test_a_stateless_user_at_its_cap_still_adds_noise():
    # a hop that adds no noise is counted as one that does: the guarantee of theory 4d counts it among the t hops
    plan = methods.stateless_walk(RIDGE, 60, 0.5, noise_std=0.1, participation_cap=1)
    result = plan.run(seed=1, history="models")
    assert result.state.participations.max() == 1
    assert np.abs(np.diff(result.history["models"], axis=0)).max(axis=1).min() > 0


# ---------------------------------------------------------------------------------------------- plans as JSON


@every_plan
def test_a_plan_survives_json_and_runs_as_before(name):
    # an argument that is not written is replaced by its default: another plan under the same name
    problem, plan = PLANS[name][0], make(name, 7)
    text = plan.to_json()
    again = hp.Plan.from_json(text)
    assert again.to_json() == text
    assert again.fingerprint() == plan.fingerprint()
    assert again.problem is None
    for field in ("schedule", "noise", "steps", "relaxation", "tail_average", "method", "parameters"):
        assert getattr(again, field) == getattr(plan, field), field
    assert again.facts.agree_with(plan.facts)
    one, two = plan.certificate, again.certificate
    assert (one.lipschitz, one.because) == (two.lipschitz, two.because)
    if again.facts.knows_rows:
        assert again.facts == plan.facts
        assert one.missing == two.missing
        assert one.sensitivity.keys() == two.sensitivity.keys()
    for key in two.sensitivity:
        np.testing.assert_array_equal(one.sensitivity[key], two.sensitivity[key])
    result = again.on(problem).run(seed=11)
    np.testing.assert_array_equal(result.model, plan.run(seed=11).model)
    with pytest.raises(ValueError, match=r"no rows.*plan\.on\("):
        again.run(seed=11)


def test_a_sequence_and_numpy_numbers_survive_json():
    # types that the JSON writer does not know
    plan = methods.centralized_admm(
        LASSO, np.int64(3), np.float32(2.0), np.array([0.3, 0.4, 0.5]), noise_std=np.float64(0.1), schedule=np.int64(4)
    )
    again = hp.Plan.from_json(plan.to_json()).on(LASSO)
    np.testing.assert_array_equal(again.run(seed=0).model, plan.run(seed=0).model)


def test_a_budget_survives_json():
    # a calibrated plan that is calibrated anew, or not at all, when it is read back
    budget = hp.Budget(epsilon=2.0, delta=1e-5, view="iterates", unit="record")
    plan = methods.private_admm(LASSO, 7, 2.0, budget=budget)
    again = hp.Plan.from_json(plan.to_json())
    assert again.budget == budget
    assert again.noise == plan.noise
    assert again.to_dict() == plan.to_dict()
    whole, cut = plan.run(seed=1), plan.run(seed=1, callback=stop_at(3))
    np.testing.assert_array_equal(again.on(LASSO).run(seed=1).model, whole.model)
    np.testing.assert_array_equal(again.on(LASSO).run(state=cut.state).model, whole.model)


@every_plan
def test_a_plan_holds_no_rows(name):
    # data, or the names of users, that travel with a plan that is meant to be public
    text = make(name, 3).to_json()
    rows = PLANS[name][0].rows
    for value in (*rows.features.ravel(), *rows.targets[np.abs(rows.targets) != 1], *rows.squared_norms):
        if value not in (4.0, 2.0):  # row_norm and its square are declared
            assert repr(float(value)) not in text
    assert set(json.loads(text)) == {"method", "facts", "parameters", "budget"}
    assert len(text) < 2000


def test_names_of_users_are_not_in_a_plan():
    # user ids are private
    X, y = LASSO.rows.features, LASSO.rows.targets
    problem = hp.Problem(X, y, groups=[f"patient-{i % 3}" for i in range(ITEMS)], clip=1.0)
    plan = methods.federated_admm(problem, 3, 1.0, noise_std=0.1)
    for text in (plan.to_json(), plan.fingerprint(), repr(plan), repr(problem)):
        assert "patient" not in text


def test_a_plan_is_bound_to_problems_with_its_facts_only():
    # a plan accounted for one bound and run on rows with another
    plan = hp.Plan.from_json(make("centralized all").to_json())
    X, y = LASSO.rows.features, LASSO.rows.targets
    with pytest.raises(ValueError, match="problem has other facts"):
        plan.on(hp.Problem(X, y, "squared", hp.regularizers.L1(0.01), 3.0, clip=0.8))
    with pytest.raises(ValueError, match="method is 'exec'"):
        hp.Plan.from_json(json.dumps({**plan.to_dict(), "method": "exec"}))


# ---------------------------------------------------------------------------------------------- one's own operator


def test_ones_own_operator_runs_and_says_that_it_has_no_certificate():
    # a researcher's operator that needs more than apply; a guarantee for an operator that promised nothing
    plan = shrink_plan(relaxation=0.5, steps=10)
    result = plan.run(seed=0, history="models")
    np.testing.assert_allclose(result.model, np.full(3, 0.75**10), rtol=1e-13)
    with pytest.raises(
        ValueError, match=r"no sensitivity for one record.*Shrink has no certificate.*Write certificate"
    ):
        plan.certificate.shift("record")
    assert plan.certificate.lipschitz is None
    with pytest.raises(ValueError, match=r"not made by a function of hushpoint\.methods"):
        plan.to_json()
    with pytest.raises(ValueError, match=r"history is True.*'models'"):
        plan.run(seed=0, history=True)
    cut = plan.run(seed=0, callback=stop_at(4))
    np.testing.assert_array_equal(plan.run(state=cut.state).model, result.model)


def test_ones_own_certificate_is_used():
    # the promise of the operator lost between Plan and Certificate
    class Certified(Shrink):
        def certificate(self, relaxation):
            return hp.Certificate(0.5, {"record": 2.0}, because="it halves")

    plan = hp.Plan(Certified(3), EveryBlock(1), Noise(1.0), steps=3)
    assert plan.certificate.shift("record") == 2.0
    assert plan.operator.step_lipschitz(0.5) == 0.75
    with pytest.raises(ValueError, match="no sensitivity for one user"):
        plan.certificate.shift("user")


def test_schedule_and_operator_must_agree():
    # blocks that no schedule ever moves
    with pytest.raises(ValueError, match=r"schedule is over 5 blocks and the operator has 1.*same number"):
        hp.Plan(Shrink(3), OneBlock(5), Noise(0.0))


# ---------------------------------------------------------------------------------------------- results


@every_plan
def test_a_result_holds_what_it_says(name):
    # fields that belong to another step
    plan = make(name, 5)
    result = plan.run(seed=0)
    assert result.status == "finished"
    assert result.plan is plan
    assert (result.state.steps, result.state.seed) == (5, 0)
    assert result.model.shape == (PLANS[name][0].facts.width,)
    operator = plan.operator
    np.testing.assert_array_equal(result.model, operator.model(operator.release(result.state.public)))
    assert result.state.participations.shape == (operator.blocks,)
    assert result.state.participations.max() <= plan.schedule.most(5)
    if plan.noise.place != "release":
        np.testing.assert_array_equal(result.state.public, result.state.shared)
    else:
        assert not np.array_equal(result.state.public, result.state.shared)
    assert "State(" not in repr(result)  # the private state is not printed
    assert result.guarantee is not None
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.model = None


@every_plan
def test_the_model_is_the_callers_own(name):
    # a model that is a window on the state: scaling it in place would change what a resumed run starts from
    plan = make(name, 3)
    result = plan.run(seed=0)
    for part in (result.state.shared, result.state.public, result.state.blocks):
        assert not np.shares_memory(result.model, part)


def test_a_model_changed_by_a_callback_does_not_change_the_run():
    # the same window, opened during the run
    def spoil(step, model):
        model *= 0

    plan = make("dp_sgd", 5)
    try:
        spoiled = plan.run(seed=0, callback=spoil).state
    except ValueError:  # refusing to write is fine too
        return
    np.testing.assert_array_equal(spoiled.shared, plan.run(seed=0).state.shared)


@every_plan
def test_seeds_decide_everything(name):
    # a draw from somewhere else than the one random source
    plan = make(name, 6)
    np.testing.assert_array_equal(plan.run(seed=1).model, plan.run(seed=1).model)
    assert not np.array_equal(plan.run(seed=1).model, plan.run(seed=2).model)
    np.testing.assert_array_equal(
        plan.run(seed=1, kernel="plain").state.participations, plan.run(seed=1).state.participations
    )
