"""The auditor: quiet about true claims, loud about planted bugs; and its runs are the engine's runs.

Every audit here calls a true claim violated with probability at most 1e-6, its stated confidence; all together about
5e-5. Seeds are fixed, so a test that passes goes on passing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hushpoint import Budget, Plan, Problem, methods, regularizers
from hushpoint.operators import GeneralADMM
from hushpoint.privacy import audit, gdp_epsilon
from hushpoint.privacy.auditor import strongest_canary
from hushpoint.privacy.replicas import released_models
from hushpoint.rows import ArrayRows

STEPS, RUNS = 3, 2000


def pulled(items: int, features: int = 2, **options: Any) -> Problem:
    """Rows whose truncated losses are linear wherever a run goes: the case in which claims are nearly attained."""
    X = np.random.default_rng(5).normal(size=(items, features)) * 0.3
    return Problem(X, np.full(items, 1e6), row_norm=1.0, clip=1.0, **options)


def crowd(items: int = 4) -> Problem:
    """Users with three rows to one; the first, who becomes the canary, is the heaviest."""
    rng = np.random.default_rng(6)
    counts = 3 - np.arange(items) % 3
    X, owners = rng.normal(size=(counts.sum(), 2)) * 0.3, np.repeat(np.arange(items), counts)
    return Problem(X, np.full(len(owners), 1e6), row_norm=1.0, clip=1.0, groups=owners, weights="rows")


Make = Callable[[float], Plan]
LINE, FOUR, ONE = pulled(4, 1), pulled(4), pulled(1)
CROWD = crowd()
# method -> plan for a noise, and the least part of the claim that the auditor has to find at 2000 runs
CASES: dict[str, tuple[Make, str, float]] = {
    "dp_sgd": (lambda s: methods.dp_sgd(FOUR, STEPS, 0.1, noise_std=s), "final", 0.6),
    "dp_sgd users": (lambda s: methods.dp_sgd(CROWD, STEPS, 0.1, noise_std=s), "iterates", 0.6),
    "dp_cd": (lambda s: methods.dp_cd(LINE, STEPS, 0.1, noise_std=s), "final", 0.3),
    "dp_fedavg": (lambda s: methods.dp_fedavg(CROWD, STEPS, 3, 0.1, 0.2, noise_std=s), "iterates", 0.6),
    "private_admm": (lambda s: methods.private_admm(FOUR, STEPS, 1.0, noise_std=s), "final", 0.6),
    "private_admm ridge": (
        lambda s: methods.private_admm(
            pulled(4, regularizer=regularizers.L2(0.5)), STEPS, 1.0, noise_std=s, ridge_in_loss=False
        ),
        "final",
        0.5,
    ),
    "centralized_admm": (lambda s: methods.centralized_admm(ONE, STEPS, 1.0, noise_std=s), "final", 0.6),
    "centralized cyclic": (
        lambda s: methods.centralized_admm(FOUR, 8, 1.0, noise_std=s, schedule="cyclic"),
        "iterates",
        0.6,
    ),
    "federated_admm": (lambda s: methods.federated_admm(ONE, STEPS, 1.0, noise_std=s), "iterates", 0.6),
    "federated sampled": (
        lambda s: methods.federated_admm(CROWD, STEPS, 1.0, noise_std=s, sample_size=2, participation_cap=2),
        "final",
        0.0,
    ),
    "federated sum": (
        lambda s: methods.federated_admm(FOUR, 1, 1.0, noise_std=s, noise="sum", clip_residual=1.0),
        "final",
        0.6,
    ),
    "decentralized_admm": (lambda s: methods.decentralized_admm(ONE, STEPS, 1.0, noise_std=s), "final", 0.6),
    "anchored_admm": (lambda s: methods.anchored_admm(FOUR, STEPS, 1.0, noise_std=s), "iterates", 0.6),
    "anchored users": (lambda s: methods.anchored_admm(CROWD, STEPS, 1.0, 0.9, noise_std=s), "iterates", 0.0),
    "stateless_walk": (lambda s: methods.stateless_walk(ONE, STEPS, 1.0, noise_std=s), "final", 0.6),
}


def claimed_at(name: str, mu: float) -> Plan:
    """The plan whose claim is mu."""
    make, view, _ = CASES[name]
    at_one = make(1.0).guarantee(1e-5, view=view, adjacency="replace-one").mu  # type: ignore[arg-type]
    assert at_one is not None
    return make(at_one / mu)


def audited(name: str, plan: Plan, **options: Any) -> Any:
    assert plan.problem is not None
    runs = 600 if name == "dp_cd" else RUNS  # dp_cd has no replicas and runs one by one
    return audit(plan, plan.problem, runs=runs, view=CASES[name][1], adjacency="replace-one", **options)


@pytest.mark.parametrize("name", CASES)
def test_quiet_about_true_claims(name: str, record_property: Callable[[str, object], None]) -> None:
    # Catches: an auditor that cries wolf, or one that is quiet because it finds nothing.
    report = audited(name, claimed_at(name, 1.5))
    part = report.mu_lower / report.claimed.mu
    record_property("power", part)
    print(f"{name}: found {part:.2f} of the claim")
    assert not report.caught
    assert report.claimed.mu == pytest.approx(1.5, rel=1e-6)
    assert CASES[name][2] <= part <= 1
    assert report.epsilon_lower <= report.claimed.epsilon
    assert "Consistent" in str(report)


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name][2] > 0])
def test_catches_noise_halved(name: str) -> None:
    # Catches: an auditor without power.
    plan = claimed_at(name, 1.5)
    quiet = replace(plan, noise=replace(plan.noise, std=plan.noise.std / 2))
    report = audited(name, quiet, claimed_plan=plan)
    assert report.caught
    assert "violated" in str(report)


def test_one_epsilon_at_a_small_delta_would_not_catch_it() -> None:
    # Catches: a return to the usual audit, which compares one epsilon at delta = 1e-5: with 10,000 runs it is blind to
    # halved noise (theory 7), where the curve sees it at once.
    plan = claimed_at("private_admm", 1.5)
    quiet = replace(plan, noise=replace(plan.noise, std=plan.noise.std / 2))
    report = audit(quiet, FOUR, runs=10_000, claimed_plan=plan)
    assert report.epsilon_lower < report.claimed.epsilon < gdp_epsilon(3.0, 1e-5)
    assert report.caught
    assert report.mu_lower > 1.5


class Forgetful(GeneralADMM):
    """General ADMM whose author forgot that x enters R twice."""

    def certificate(self, relaxation: float) -> Any:
        honest = super().certificate(relaxation)
        return replace(honest, sensitivity={key: np.asarray(s) / 2 for key, s in honest.sensitivity.items()})


def test_catches_a_forgotten_factor_two() -> None:
    # Catches: a certificate that nobody measures.
    plan = claimed_at("private_admm", 3.0)
    assert isinstance(plan.operator, GeneralADMM)
    forgetful = replace(plan, operator=Forgetful(FOUR.facts, 1.0, plan.operator.penalty))
    report = audit(forgetful, FOUR, runs=RUNS)
    assert report.claimed.mu == pytest.approx(1.5, rel=1e-6)
    assert report.caught


def descend(problem: Problem, plan: Plan, seed: int, fresh: bool) -> np.ndarray:
    """Noisy gradient descent written anew: all its iterates. Not fresh: one noise for all steps."""
    rng, rows = np.random.default_rng(seed), problem.rows
    z, seen = np.zeros(rows.features.shape[1]), []
    noise_std = plan.parameters["noise_std"]
    noise = rng.normal(scale=noise_std, size=z.size)
    for _ in range(plan.steps):
        slopes = rows.row_loss.derivative(rows.margins(z), rows.targets)
        z = z - plan.parameters["step_size"] * (rows.features.T @ slopes / len(rows) + noise)
        noise = rng.normal(scale=noise_std, size=z.size) if fresh else noise
        seen.append(z)
    return np.concatenate(seen)


@pytest.mark.parametrize(("fresh", "caught"), [(True, False), (False, True)])
def test_catches_noise_drawn_once_and_reused(fresh: bool, caught: bool) -> None:
    # Catches: a stream restarted at every step. The same noise cancels in second differences of the iterates, which
    # show that one record pulled the other way after the first step.
    X, y = np.ones((20, 1)), np.full(20, 1e6)
    one, two = (Problem(X, np.where(np.arange(20) == 0, first, y), row_norm=1.0, clip=1.0) for first in (0.0, 1e6))
    plan = methods.dp_sgd(one, 4, 5.0, noise_std=2 * 2 / 20 / 1.5)

    def release(world: Problem, seed: int) -> np.ndarray:
        return descend(world, plan, seed, fresh)

    report = audit(plan, one, two, RUNS, view="iterates", sampler=release)
    assert report.claimed.mu == pytest.approx(1.5)
    assert report.caught is caught


@pytest.mark.parametrize(("leaks", "caught"), [(False, False), (True, True)])
def test_catches_state_that_leaks_without_noise(leaks: bool, caught: bool) -> None:
    # Catches: a log line, a checkpoint or a metric with a mean of the private blocks next to the released models.
    plan = claimed_at("anchored_admm", 1.5)

    def release(world: Problem, seed: int) -> np.ndarray:
        result = plan.on(world).run(seed=seed, history="models", kernel="plain")
        leak = result.state.blocks.mean(axis=0)[:1]
        return np.concatenate([*result.history["models"], leak if leaks else np.zeros(1)])

    report = audit(plan, FOUR, runs=1000, view="iterates", sampler=release)
    assert report.caught is caught


def test_catches_sampling_that_is_not_secret_enough() -> None:
    # Catches: a Poisson claim for a run in which the canary always takes part. Claims without mu, by their curve.
    sampled = methods.dp_sgd(FOUR, STEPS, 0.1, 0.25, noise_std=0.7)
    full = methods.dp_sgd(FOUR, STEPS, 0.1, noise_std=0.7 * 0.25)  # the same noise on the sum
    canary, absent = zero_out_pair(FOUR)
    honest = audit(sampled, canary, absent, RUNS)
    assert honest.claimed.mu is None
    assert honest.claimed.adjacency == "zero-out"
    assert not honest.caught
    # The full run divides by n, the sampled one by q n: the same release up to a known factor.
    assert audit(full, canary, absent, RUNS, claimed_plan=sampled).caught


def zero_out_pair(problem: Problem) -> tuple[Problem, Problem]:
    """The canary, and the same without it: a row of zeros has no gradient."""
    canary, _ = strongest_canary(problem)
    rows = canary.rows
    features, norms, limits = rows.features.copy(), rows.squared_norms.copy(), rows.limits
    features[0], norms[0] = 0.0, 0.0
    assert limits is not None
    limits = limits.copy()
    limits[0] = math.inf
    return canary, canary.with_rows(replace(rows, store=ArrayRows(features), squared_norms=norms, limits=limits))


@pytest.mark.parametrize("sample_prob", [1.0, 0.9])
def test_quiet_about_true_zero_out_claims(sample_prob: float) -> None:
    # Catches: a pair that differs by a replacement used against a claim about zero-out, which is half as large.
    plan = methods.dp_sgd(FOUR, STEPS, 0.1, sample_prob, noise_std=0.25)
    report = audit(plan, FOUR, runs=RUNS, adjacency="zero-out")
    assert report.claimed.adjacency == "zero-out"
    assert not report.caught


def test_quiet_about_true_record_claims() -> None:
    # Catches: a canary that changes a whole user used against a claim about one of its records.
    plan = methods.private_admm(CROWD, STEPS, 1.0, budget=Budget(6.0, 1e-5, unit="record"))
    report = audit(plan, CROWD, runs=RUNS)
    assert report.claimed.unit == "record"
    assert not report.caught


# --- the statistics


def test_confidence_is_honest() -> None:
    # Catches: 24 thresholds tried and the best one reported as if it were the only one. 100 audits of an exact
    # Gaussian pair at confidence 0.9: more than 24 alarms would happen with probability 1e-5 if the rate were 0.1.
    plan = claimed_at("private_admm", 1.5)

    def normal(world: Problem, seed: int) -> np.ndarray:
        return np.random.default_rng(seed).normal(size=1) + (1.5 if world is other else 0.0)

    one, other = strongest_canary(FOUR)
    alarms = sum(audit(plan, one, other, 200, confidence=0.9, seed=seed, sampler=normal).caught for seed in range(100))
    assert alarms <= 24


def test_more_runs_find_more() -> None:
    # Catches: a bound that does not tighten, or that overshoots the truth as it does.
    plan = claimed_at("private_admm", 1.5)
    found = [audit(plan, FOUR, runs=runs).mu_lower for runs in (200, 1000, 8000)]
    assert found[0] < found[1] < found[2] < 1.5
    assert found[2] > 1.1


@pytest.mark.parametrize("loss", ["squared", "logistic", "huber", "smoothed_hinge"])
def test_canaries_are_neighbours_within_the_facts(loss: str) -> None:
    # Catches: a canary longer than rows may be, or a pair that differs in two items.
    rng = np.random.default_rng(2)
    labels = rng.integers(2, size=9) if loss in ("logistic", "smoothed_hinge") else rng.normal(size=9)
    clip = 0.7 if loss == "squared" else None
    problem = Problem(rng.normal(size=(9, 3)), labels, loss, row_norm=2.0, clip=clip, groups=np.repeat([0, 1, 2], 3))
    for item in (0, 2):
        one, other = strongest_canary(problem, item)
        mine = np.arange(9) // 3 == item
        assert one.facts == other.facts == problem.facts
        assert np.array_equal(one.rows.features[~mine], problem.rows.features[~mine])
        assert np.array_equal(one.rows.targets[~mine], other.rows.targets[~mine])
        assert np.array_equal(one.rows.features, other.rows.features)
        assert np.linalg.norm(one.rows.features, axis=1).max() <= 2.0 * (1 + 1e-12)
        gradients = [w.rows.row_loss.derivative(w.rows.margins(np.zeros(3)), w.rows.targets) for w in (one, other)]
        pull = 2.0 * (gradients[1] - gradients[0])[mine]
        assert np.allclose(np.abs(pull), pull[0] * np.sign(pull[0]))
        if loss != "logistic":  # whose slope at 0 is half of what it can be
            assert abs(pull[0]) == pytest.approx(2 * problem.facts.gradient_bound)


def test_bad_audits_are_refused() -> None:
    # Catches: ten runs reported as an audit.
    plan = claimed_at("private_admm", 1.5)
    with pytest.raises(ValueError, match="runs"):
        audit(plan, FOUR, runs=10)
    with pytest.raises(ValueError, match="confidence"):
        audit(plan, FOUR, runs=200, confidence=1.0)
    with pytest.raises(ValueError, match="view"):
        audit(plan, FOUR, runs=200, view="messages")


# --- many runs at once


REPLICAS: dict[str, Plan] = {
    **{name: CASES[name][0](0.7) for name in CASES},
    "dp_sgd poisson": methods.dp_sgd(CROWD, 4, 0.1, 0.5, noise_std=0.7),
    "dp_sgd sizes": methods.dp_sgd(FOUR, 4, [0.4, 0.3, 0.2, 0.1], noise_std=0.7),
    "dp_fedavg poisson": methods.dp_fedavg(CROWD, 4, 3, 0.1, 0.2, 0.7, sample_prob=0.5, noise_std=0.7),
    "anchored sampled": methods.anchored_admm(CROWD, 4, 1.0, sample_prob=0.5, noise_std=0.7),
    "sum sampled": methods.federated_admm(
        CROWD, 4, 1.0, noise="sum", clip_residual=0.5, sample_prob=0.5, noise_std=0.7
    ),
    "walk capped": methods.stateless_walk(FOUR, 8, 1.0, participation_cap=2, noise_std=0.7),
    "walk on a path": methods.decentralized_admm(
        FOUR, 8, 1.0, graph=[[1], [0, 2], [1, 3], [2]], participation_cap=2, noise_std=0.7
    ),
    "permuted": methods.centralized_admm(
        FOUR, 6, 1.0, [0.9, 0.8, 0.7, 0.6, 0.5, 0.4], schedule="permuted", noise_std=0.7
    ),
    "single": methods.centralized_admm(CROWD, 6, 1.0, schedule="single", noise_std=0.7),
    "with A": methods.private_admm(FOUR, 4, 1.0, noise_std=0.7, A=[[1.0, 0.5], [0.0, 2.0], [1.0, 1.0]]),
    "no noise": methods.federated_admm(FOUR, 3, 1.0, noise_std=0.0),
    "tail average": methods.private_admm(FOUR, 6, 1.0, noise_std=0.7, tail_average=0.5),
}


@pytest.mark.parametrize("name", REPLICAS)
def test_replicas_are_the_engines_runs(name: str) -> None:
    # Catches: an audit of a program that nobody runs.
    plan, seeds = REPLICAS[name], [3, 11, 2**45]
    finals, paths = released_models(plan, seeds, every_step=False), released_models(plan, seeds, every_step=True)
    for seed, final, path in zip(seeds, finals, paths, strict=True):
        result = plan.run(seed=seed, history="models", kernel="plain")
        scale = max(1.0, float(np.abs(result.history["models"]).max()))
        assert np.allclose(path, np.concatenate(result.history["models"]), rtol=0, atol=1e-6 * scale)
        assert np.allclose(final, result.model, rtol=0, atol=1e-6 * scale)


def test_ten_thousand_runs_take_less_than_a_minute() -> None:
    # Catches: an audit that loops over runs. A small federated problem, both data sets.
    rng = np.random.default_rng(0)
    problem = Problem(rng.normal(size=(10, 3)), rng.integers(2, size=10), "logistic", row_norm=1.0)
    plan = methods.federated_admm(problem, 5, 1.0, noise_std=3.0, sample_size=4)
    start = time.process_time()  # of all threads together, and not of others that use the machine
    report = audit(plan, problem, runs=10_000)
    elapsed = time.process_time() - start
    print(f"10,000 runs on each side: {elapsed:.1f} s")
    assert not report.caught
    assert elapsed < 60
