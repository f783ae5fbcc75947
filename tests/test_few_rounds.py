"""Trainings in a declared number of rounds (docs/estimators.md): all plans together take no more, and lose little.

Seeds are fixed; a correct program fails a statistical test with probability at most 1e-6.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

import hushpoint as hp
from hushpoint._described import described
from hushpoint.estimators import base, few_rounds, planner, training
from hushpoint.estimators.metric import Moments, choose_metric
from hushpoint.estimators.penalty import Penalty
from hushpoint.estimators.planner import Parameters, plan_parameters
from hushpoint.estimators.training import Answer, Link
from hushpoint.estimators.walk import walked
from hushpoint.operators.gradient import Gradient
from hushpoint.privacy.guarantee import Adjacency
from hushpoint.problem import Problem

Array = NDArray[np.float64]
DELTA = 1e-6
KINDS: dict[str, dict[str, Any]] = {
    "logistic": {"loss": "logistic"},
    "squared": {"loss": "squared"},
    "no intercept": {"loss": "squared", "fit_intercept": False},
    "ridge": {"loss": "logistic", "penalty": "l2"},
    "lasso": {"loss": "squared", "penalty": "l1"},
}


def drawn(kind: str, people: int = 4000, seed: int = 0) -> tuple[Array, Array]:
    """Correlated features of one scale, and a target that is mostly a score."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(people, 6)) @ (np.eye(6) + 0.3)
    scores = X @ np.array([1.0, -0.8, 0.6, 0.0, 0.5, -0.4]) + 0.3
    if kind == "squared":
        return X, np.clip(0.2 * scores + 0.1 * rng.normal(size=people), -1, 1)
    return X, np.where(rng.random(people) < 1 / (1 + np.exp(-2 * scores)), 1.0, -1.0)


def trained(kind: str, rounds: int | None, epsilon: float = 1.0, seed: int = 1, **more: Any) -> training.Trained:
    options = {"fit_intercept": True, "penalty": None, **KINDS[kind]}
    X, y = drawn(options["loss"])
    budget = hp.Budget(epsilon, DELTA, adjacency=more.pop("adjacency", "replace-one"))
    plan = plan_parameters(*X.shape, budget, rounds=rounds, **options)
    problem = Problem(X, y, options["loss"], row_norm=6.0)
    penalty = {None: None, "l2": Penalty(l2=0.01), "l1": Penalty(automatic=True)}[options["penalty"]]
    return training.train(
        problem,
        [problem.rows.targets],
        plan,
        delta=DELTA,
        fit_intercept=options["fit_intercept"],
        penalty=penalty,
        seed=seed,
        **more,
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
def test_rounds_and_budget_are_never_exceeded(kind: str, adjacency: Adjacency) -> None:
    # Catches: a plan that is not counted, or steps that cost what one of them may.
    for rounds, epsilon in ((6, 0.1), (7, 8.0), (10, 1.0), (17, 3.0), (40, 8.0)):
        found = trained(kind, rounds, epsilon, adjacency=adjacency, lattice=rounds == 7)
        assert found.passes <= rounds
        assert found.guarantee.epsilon <= epsilon
        assert found.guarantee.epsilon == pytest.approx(epsilon, rel=1e-6)
        assert np.isfinite(found.models).all()


@pytest.mark.parametrize("wide", [False, True], ids=["full metric", "diagonal metric"])
def test_each_of_several_models_has_these_rounds(wide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if wide:
        monkeypatch.setattr(planner, "_LARGEST_FULL", 0)
    facts = Problem.declared(500, 4, "logistic", row_norm=1.0).facts
    for lattice in (False, True):
        plan = plan_parameters(500, 4, 1.0, rounds=12)
        links = training.chain(facts, plan, fit_intercept=True, models=3, lattice=lattice)
        _, passed = training.follow(links, lambda place, link: Answer(*(2 * [0.1 * np.ones(_size(link))])))
        shared = [link for link in passed if link.model is None]
        for model in range(3):
            own = [link for link in passed if link.model == model]
            assert sum(link.plan.steps for link in (*shared, *own)) <= 12
        spent = training.spent(passed, plan, DELTA)
        assert 1 - 1e-8 <= spent.mu <= 1  # type: ignore[operator]
        assert f"{plan.most_steps} noisy steps" in str(spent)
        assert "one budget for 3 models" in str(spent)


def _size(link: Link) -> int:
    return link.plan.operator.message_size


def test_too_few_rounds_are_refused_and_the_planner_stays_without_them() -> None:
    for rounds in (0, 5, 2.5):
        with pytest.raises(ValueError, match=rf"rounds is {rounds}"):
            plan_parameters(1000, 5, 1.0, rounds=rounds)  # type: ignore[arg-type]
    assert plan_parameters(1000, 5, 1.0, rounds=None) == plan_parameters(1000, 5, 1.0)
    assert plan_parameters(1000, 5, 1.0).rounds is None


def test_without_rounds_nothing_is_done_for_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """No number of this module is looked at: what it does is not done where nobody asked."""
    for name in [name for name in vars(few_rounds) if name.isupper() or callable(vars(few_rounds)[name])]:
        monkeypatch.setattr(few_rounds, name, None)
    found = trained("logistic", None)
    assert found.passes > 40
    with pytest.raises(TypeError):
        trained("logistic", 10)


@pytest.mark.parametrize("kind", ["logistic", "squared"])
@pytest.mark.parametrize("rounds", [10, 20])
def test_an_easy_problem_is_learned_in_few_rounds(kind: str, rounds: int) -> None:
    # Few steps without momentum, or a calibration from zero, are far off. Beside a share of 1 the noise is below 1%.
    X, y = drawn(kind, seed=9)

    def loss(model: Array) -> float:
        scores = X @ model[:-1] + model[-1]
        return float(np.mean((scores - y) ** 2 if kind == "squared" else np.log1p(np.exp(-y * scores))))

    free = trained(kind, None, 5.0).models[0]
    few = trained(kind, rounds, 5.0).models[0]
    nothing, best = loss(np.zeros(7)), loss(free)
    assert (nothing - loss(few)) / (nothing - best) > 0.98


def test_parameters_survive_json_and_a_chain_follows_from_them() -> None:
    """What sites are told: two of them make the same plans of the same words."""
    plan = plan_parameters(500, 4, hp.Budget(1.0, DELTA), rounds=11)
    told = Parameters(**json.loads(json.dumps(plan.to_dict())))
    assert told == plan
    assert told.rounds == 11
    facts = Problem.declared(500, 4, "logistic", row_norm=1.0).facts

    def answer(place: int, link: Link) -> Answer:
        return Answer(*(2 * [np.full(_size(link), 0.1 + 0.01 * place)]))

    ours, theirs = (training.follow(training.chain(facts, one, fit_intercept=True), answer)[1] for one in (plan, told))
    assert [described(link.plan) for link in ours] == [described(link.plan) for link in theirs]
    (descent,) = [link.plan for link in ours if link.part == "descent"]
    assert descent.operator.momentum == few_rounds.MOMENTUM
    without = replace(descent, operator=descent.operator.with_momentum(0.1))
    assert without.fingerprint() != descent.fingerprint()


def test_the_plan_says_how_many_rounds() -> None:
    text = str(plan_parameters(32561, 108, hp.Budget(1.0, DELTA), rounds=10))
    assert "At most 10 noisy sums per model" in text
    assert "8 gradient steps with momentum" in text


def test_a_walk_with_momentum_is_that_of_its_recursion() -> None:
    rng, curvatures = np.random.default_rng(0), np.array([0.0, 0.1, 0.6, 1.2])
    steps, step, noise, momentum = 9, 0.85, 0.2, 0.6
    facts = Problem.declared(10, 4, "squared", row_norm=1.0).facts
    operator = Gradient(facts, step, facts.items).with_momentum(momentum)
    shared, tail = np.zeros((20_000, 8)), np.zeros((20_000, 4))
    for done in range(steps):
        there = operator.looked_at(operator.release(shared))
        noisy = noise * math.sqrt(steps) * rng.normal(size=there.shape)
        shared = operator.combine(shared, facts.items * (curvatures * (there - 1) + noisy), None, 1.0)
        tail += operator.model(shared) / 3 * (done >= steps - 3)
    walk = walked(curvatures, step * steps, steps, 1 / 3, noise, momentum)
    assert tail.std(axis=0) == pytest.approx(walk.deviation, rel=0.03)
    assert 1 - tail.mean(axis=0) == pytest.approx(walk.left, abs=5 * walk.deviation.max() / math.sqrt(20_000))
    plain = walked(curvatures, step * steps, steps, 1 / 3, noise)
    assert not np.allclose(plain.deviation, walk.deviation, rtol=0.1)


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_error_bars_hold_in_few_rounds(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deviations are those of refits, and intervals, where there are any, cover: chance alone fails once in 10^6."""
    from test_error_bars import TRUE, covered_by, drawn, ends, made, too_few

    monkeypatch.setattr(base, "plan_parameters", partial(plan_parameters, rounds=14))
    X, y = drawn(kind, 1)
    fitted = [made(kind, seed).fit(X, y) for seed in range(30)]
    found = np.array([np.append(np.ravel(one.coef_), one.intercept_) for one in fitted])
    stated = np.array([np.append(np.ravel(one.coef_std_), one.intercept_std_) for one in fitted])
    ratio = (found.std(axis=0, ddof=1) / stated.mean(axis=0)) ** 2
    assert ratio.min() > stats.chi2.ppf(1e-7, 29) / 29
    assert ratio.max() < 3.2
    assert 0.65 < ratio.mean() < 1.5
    fits = [made(kind, seed).fit(*drawn(kind, seed)) for seed in range(30)]
    assert ends(fits[0].intervals()).shape == (len(TRUE), 2)
    assert not too_few(covered_by(fits))


def test_a_diagonal_metric_takes_all_rounds_and_spare_ones_go_into_the_calibration() -> None:
    assert trained("lasso", 20).passes == 20
    little, much = (plan_parameters(people, 20, 0.1, rounds=10) for people in (1000, 100_000))
    assert (little.most_steps, little.calibration_steps) == (4, 3)
    assert much.most_steps + much.calibration_steps + much.single_steps == 10
    assert much.calibration_steps == 1


def test_where_nothing_can_be_learned_models_are_no_worse_than_a_guess() -> None:
    """Catches noise that a calibration of few steps leaves as large as it finds it: R2 was -4 to -10."""
    scores = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(300, 40)) / 8
        y = np.clip(0.3 * rng.normal(size=300), -1, 1)
        plan = plan_parameters(*X.shape, hp.Budget(0.3, DELTA), loss="squared", rounds=10)
        problem = Problem(X, y, "squared", row_norm=1.0)
        options: dict[str, Any] = {"delta": DELTA, "fit_intercept": True, "seed": seed}
        model = training.train(problem, [problem.rows.targets], plan, **options).models[0]
        predicted = np.clip(X @ model[:-1] + model[-1], -1, 1)
        scores.append(1 - np.mean((predicted - y) ** 2) / np.var(y))
    assert np.median(scores) > -1.5


# --- the noise


@pytest.mark.parametrize("lattice", [False, True])
@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (0.8, False)])
def test_every_step_with_momentum_has_noise_of_its_own_and_as_much_as_is_accounted(
    lattice: bool, factor: float, passes: bool
) -> None:
    """Rows of zeros have no gradients, so what moves the model is noise: that of each step is found from its points.

    Catches a step without noise or with that of another, noise for one step where all are paid for, and momentum taken
    from anything but noisy points: then what is found is no longer white.
    """
    steps, width, draws = 8, 60, []
    rows = Problem(np.zeros((50, width)), np.ones(50), "squared", row_norm=1.0)
    plan = plan_parameters(50, width, 20.0, loss="squared", fit_intercept=False, rounds=12)

    def ask(place: int, link: Link) -> Answer:
        if link.part != "descent":
            return Answer(*(2 * [np.zeros(_size(link))]))
        assert link.plan.facts is not None
        bound = replace(link.plan, steps=steps).on(Problem.from_facts(link.plan.facts).with_rows(link.look(rows.rows)))
        for seed in range(10):
            points = [np.zeros(width), np.zeros(width)]
            for model in bound.run(seed=seed, history="models").history["models"]:
                begun = points[-1] + link.plan.operator.momentum * (points[-1] - points[-2])
                draws.append(factor * 50 * (begun - model) / link.plan.operator.step_size / link.plan.noise.std)
                points.append(model)
        return Answer(model, np.concatenate([model, model]))

    training.follow(training.chain(rows.facts, plan, fit_intercept=False, lattice=lattice), ask)
    found = np.array(draws).reshape(10, steps, width)
    squares = float((found**2).sum())
    assert bool(stats.chi2.ppf(1e-7, found.size) < squares < stats.chi2.isf(1e-7, found.size)) is passes
    lagged = float((found[:, 1:] * found[:, :-1]).sum() / math.sqrt(found[:, 1:].size))
    assert abs(lagged) < 5.5


# --- the metric


def test_squares_of_features_add_up_and_a_constant_is_known() -> None:
    # Catches noise that lifts all of them, and an intercept whose steps are made for the features.
    rng = np.random.default_rng(0)
    true = np.append(np.full(60, 0.05 / 60), 0.0625)
    for noise in (1e-9, 1e-4, 0.05):
        released = true + np.append(noise * rng.normal(size=60), 0.0)
        found = few_rounds.likely_squares(released, noise, float(true.sum()), 0.25)
        assert found[-1] == 0.0625
        assert found.min() > 0
        assert found[:-1].sum() == pytest.approx(0.05, rel=0.5)


def test_small_features_have_small_products() -> None:
    # Catches noise taken for products of rare categories: what is left of it has to be much less than what was there.
    rng = np.random.default_rng(0)
    squares = np.geomspace(1, 1e-3, 40)
    noise = 0.02 * rng.normal(size=(40, 40)) / math.sqrt(2)
    noise = np.triu(noise, 1) + np.triu(noise, 1).T + 0.02 * np.diag(rng.normal(size=40))
    known = np.maximum(squares + np.diag(noise), 0.01)
    found = few_rounds.shrunk_entries(np.diag(squares) + noise, known, 0.02)
    rare = slice(20, 40)
    assert np.abs(np.triu(found, 1)[rare, rare]).max() < 0.2 * np.abs(np.triu(noise, 1)[rare, rare]).max()
    assert np.linalg.norm(found - np.diag(squares), 2) < 0.8 * np.linalg.norm(noise, 2)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_steps_of_a_regression_are_short_enough_for_what_hides(loss: str) -> None:
    """A step times the largest true second moment stays near where momentum swings; a classifier forgives more."""
    longest = 0.0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        p, n = int(rng.integers(5, 60)), int(10 ** rng.uniform(3, 4.5))
        plan = plan_parameters(n, p, 10 ** rng.uniform(-1, 0.5), loss=loss, fit_intercept=False, rounds=10)
        spectrum = rng.lognormal(sigma=rng.uniform(0, 3), size=p)
        basis = np.linalg.qr(rng.normal(size=(p, p)))[0]
        true = basis * (spectrum / spectrum.sum()) @ basis.T
        std = 1 / (n * plan.moment_mu)
        noise = rng.normal(size=(p, p)) * std
        metric = choose_metric(Moments(true + (noise + noise.T) / 2, std, 1.0, std), plan)
        top = np.linalg.eigvalsh(metric.matrix @ true @ metric.matrix)[-1]
        longest = max(longest, top * metric.time / metric.steps / plan.largest_step)
        assert metric.steps <= plan.most_steps
    if loss == "squared":
        momentum = few_rounds.momentum(two_class=False)
        swings = 2 * (1 + momentum) / (1 + 2 * momentum)
        assert longest < 1.5 * swings
