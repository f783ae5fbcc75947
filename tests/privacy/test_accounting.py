"""What the accountant says of every plan: by hand, in every view, and where it must refuse."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hushpoint as hp
from hushpoint import Certificate, Plan, Problem, methods, noise, operators, regularizers, schedules
from hushpoint.privacy import gdp_delta, gdp_epsilon, last_iterate
from hushpoint.privacy.subsampling import poisson_epsilon

DELTA = 1e-5
COUNTS = (1, 2, 5)
L, GAMMA, STD, STEPS = 0.5, 2.0, 4.0, 9
RECORDS = Problem.declared(3, 2, "logistic", row_norm=1.0, clip=L)
USERS = Problem.declared(3, 2, "logistic", row_norm=1.0, clip=L, rows_per_item=COUNTS)
BY_ROWS = Problem.declared(3, 2, "logistic", row_norm=1.0, clip=L, rows_per_item=COUNTS, weights="rows")
VIEWS = ("final", "iterates", "messages", "network")

Make = Callable[..., Plan]
METHODS: dict[str, Make] = {
    "dp_sgd": lambda p, **o: methods.dp_sgd(p, STEPS, 0.1, **{"noise_std": STD, **o}),
    "dp_sgd poisson": lambda p, **o: methods.dp_sgd(p, STEPS, 0.1, 0.5, **{"noise_std": STD, **o}),
    "dp_sgd fixed": lambda p, **o: methods.dp_sgd(p, STEPS, 0.1, sample_size=2, **{"noise_std": STD, **o}),
    "dp_cd": lambda p, **o: methods.dp_cd(p, STEPS, 0.1, **{"noise_std": STD, **o}),
    "fedavg": lambda p, **o: methods.dp_fedavg(p, STEPS, 3, 0.4, 0.2, **{"noise_std": STD, **o}),
    "fedavg poisson": lambda p, **o: methods.dp_fedavg(
        p, STEPS, 3, 0.4, 0.2, sample_prob=0.5, **{"noise_std": STD, **o}
    ),
    "fedavg fixed": lambda p, **o: methods.dp_fedavg(p, STEPS, 3, 0.4, 0.2, sample_size=2, **{"noise_std": STD, **o}),
    "private_admm": lambda p, **o: methods.private_admm(p, STEPS, GAMMA, **{"noise_std": STD, **o}),
    "centralized": lambda p, **o: methods.centralized_admm(p, STEPS, GAMMA, **{"noise_std": STD, **o}),
    "cyclic": lambda p, **o: methods.centralized_admm(p, STEPS, GAMMA, schedule="cyclic", **{"noise_std": STD, **o}),
    "federated": lambda p, **o: methods.federated_admm(p, STEPS, GAMMA, sample_size=2, **{"noise_std": STD, **o}),
    "federated sum": lambda p, **o: methods.federated_admm(
        p, STEPS, GAMMA, noise="sum", clip_residual=1.5, **{"noise_std": STD, **o}
    ),
    "federated sum poisson": lambda p, **o: methods.federated_admm(
        p, STEPS, GAMMA, noise="sum", clip_residual=1.5, sample_prob=0.5, **{"noise_std": STD, **o}
    ),
    "decentralized": lambda p, **o: methods.decentralized_admm(p, STEPS, GAMMA, **{"noise_std": STD, **o}),
    "anchored": lambda p, **o: methods.anchored_admm(p, STEPS, GAMMA, **{"noise_std": STD, **o}),
    "stateless walk": lambda p, **o: methods.stateless_walk(p, STEPS, GAMMA, **{"noise_std": STD, **o}),
}


def with_rows(problem: Problem, seed: int = 0) -> Problem:
    """The declared problem with data."""
    facts, rng = problem.facts, np.random.default_rng(seed)
    return Problem(
        rng.normal(size=(facts.rows, facts.features)),
        rng.permutation(np.arange(facts.rows) % 2) if facts.loss.name == "logistic" else rng.normal(size=facts.rows),
        facts.loss,
        facts.regularizer,
        facts.row_norm,
        None if facts.rows_per_item is None else np.repeat(np.arange(facts.items), facts.rows_per_item),
        facts.weights,
        facts.clip,
        classes=(0, 1) if facts.loss.name == "logistic" else None,
    )


# --- defaults, and every combination


@pytest.mark.parametrize(
    ("name", "view", "adjacency"),
    [
        ("dp_sgd", "iterates", "replace-one"),
        ("dp_sgd poisson", "iterates", "zero-out"),
        ("dp_sgd fixed", "iterates", "replace-one"),
        ("dp_cd", "iterates", "replace-one"),
        ("fedavg", "iterates", "replace-one"),
        ("fedavg poisson", "iterates", "zero-out"),
        ("fedavg fixed", "iterates", "replace-one"),
        ("private_admm", "iterates", "replace-one"),
        ("centralized", "iterates", "replace-one"),
        ("cyclic", "iterates", "replace-one"),
        ("federated", "messages", "replace-one"),
        ("federated sum", "iterates", "zero-out"),
        ("federated sum poisson", "iterates", "zero-out"),
        ("decentralized", "messages", "replace-one"),
        ("anchored", "iterates", "replace-one"),
        ("stateless walk", "messages", "replace-one"),
    ],
)
def test_defaults_are_those_of_the_design(name: str, view: str, adjacency: str) -> None:
    # Catches: a default that quietly answers an easier question than the one users rely on.
    plan = METHODS[name](RECORDS)
    assert (plan.default_view, plan.default_adjacency, plan.default_unit) == (view, adjacency, "record")
    assert METHODS[name](USERS).default_unit == "user"
    plain, asked = plan.guarantee(DELTA), plan.guarantee(DELTA, view=view, adjacency=adjacency, unit="record")  # type: ignore[arg-type]
    assert plain == asked
    assert plain.basis == "proved"
    assert VIEWS.index(plain.view) >= VIEWS.index(view)


@pytest.mark.parametrize("problem", [RECORDS, USERS, BY_ROWS], ids=["records", "users", "by rows"])
@pytest.mark.parametrize("name", METHODS)
def test_every_question_has_an_answer_or_a_reason(name: str, problem: Problem) -> None:
    # Catches: a KeyError, a nan or a silent 0 where nobody wrote a rule. And the order of the views.
    if name == "stateless walk" and problem is BY_ROWS:
        with pytest.raises(ValueError, match="weights"):
            METHODS[name](problem)
        return
    plan = METHODS[name](problem)
    for adjacency in ("replace-one", "zero-out"):
        for unit in ("user", "record"):
            spent = {}
            for view in VIEWS:
                try:
                    claim = plan.guarantee(DELTA, view=view, adjacency=adjacency, unit=unit)  # type: ignore[arg-type]
                except ValueError as error:
                    reason = str(error)
                else:
                    spent[view] = claim.epsilon
                    assert claim.epsilon > 0
                    assert claim.unit == unit
                    assert claim.adjacency == adjacency
                    assert claim.assumptions
                    reason = ""
                    wider = VIEWS.index(claim.view) >= VIEWS.index(view) or view == "network"
                    assert wider
                    assert claim.view == view or any("wider view" in text for text in claim.assumptions)
                if view == "network" and name not in ("decentralized", "stateless walk"):
                    assert "nobody has that view" in reason
                elif unit == "record" and problem is not RECORDS and "sum" in name and view != "messages":
                    assert "not one record of it" in reason
                else:
                    assert not reason
            order = [spent[view] for view in ("final", "iterates", "messages") if view in spent]
            assert order == sorted(order)
            assert spent.get("network", 0.0) <= spent.get("messages", math.inf)
            noisy_messages = name in (
                "private_admm",
                "centralized",
                "cyclic",
                "federated",
                "decentralized",
                "stateless walk",
            )
            assert math.isinf(spent.get("messages", math.inf)) is not noisy_messages


def test_unknown_combinations_are_errors() -> None:
    # Catches: a guess for a plan that somebody put together and no theorem speaks of.
    consensus = methods.centralized_admm(RECORDS, 3, 1.0, noise_std=1.0).operator
    with pytest.raises(ValueError, match="release"):
        Plan(consensus, schedules.EveryBlock(3), noise.Noise(1.0, "release"), facts=RECORDS.facts).guarantee(DELTA)
    gradient = methods.dp_sgd(RECORDS, 3, 1.0, noise_std=1.0)
    with pytest.raises(ValueError, match=r"no privacy theorem.*'cyclic'"):
        replace(gradient, schedule=schedules.Cyclic(3)).guarantee(DELTA)
    with pytest.raises(ValueError, match="view is 'everything'"):
        gradient.guarantee(DELTA, view="everything")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="adjacency is 'add-one'"):
        gradient.guarantee(DELTA, adjacency="add-one")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unit is 'household'"):
        gradient.guarantee(DELTA, unit="household")  # type: ignore[arg-type]
    for delta in (0.0, 1.0, -1e-5, math.nan):
        with pytest.raises(ValueError, match="delta is"):
            gradient.guarantee(delta)


# --- by hand


def tolerance(problem: Problem, plan: Plan) -> float:
    return float(getattr(plan.operator, "tolerance", 0.0))


BETA = 0.25  # logistic, rows no longer than 1
SITE = 2 * L * GAMMA * math.sqrt(1 + GAMMA * BETA)  # theory 3e, times 1/n_i

# (method, problem, unit, adjacency, item) -> per-step mu times STD, without tolerance; None: the worst item
BY_HAND: list[tuple[str, Problem, str, str, int | None, float]] = [
    ("private_admm", RECORDS, "record", "replace-one", None, 4 * L * GAMMA / 3),
    ("private_admm", RECORDS, "record", "zero-out", None, 2 * L * GAMMA / 3),
    ("private_admm", USERS, "user", "replace-one", None, 4 * L * GAMMA / 3),
    ("private_admm", USERS, "record", "replace-one", 2, 4 * L * GAMMA / 15),
    ("private_admm", USERS, "record", "replace-one", None, 4 * L * GAMMA / 3),
    ("private_admm", BY_ROWS, "user", "replace-one", None, 4 * L * GAMMA * 5 / 8),
    ("private_admm", BY_ROWS, "user", "replace-one", 1, 4 * L * GAMMA * 2 / 8),
    ("private_admm", BY_ROWS, "record", "replace-one", None, 4 * L * GAMMA / 8),
    ("private_admm", BY_ROWS, "record", "zero-out", 0, 2 * L * GAMMA / 8),
    ("centralized", RECORDS, "record", "replace-one", None, 4 * L * GAMMA),
    ("federated", USERS, "user", "replace-one", None, 4 * L * GAMMA),
    ("federated", USERS, "record", "replace-one", 2, 4 * L * GAMMA / 5),
    ("federated", USERS, "record", "zero-out", 1, 2 * L * GAMMA / 2),
    ("federated", BY_ROWS, "user", "replace-one", 0, 4 * L * GAMMA),
    ("decentralized", USERS, "user", "zero-out", None, 2 * L * GAMMA),
    ("stateless walk", USERS, "record", "replace-one", 2, 4 * L * GAMMA / 5),
    ("anchored", RECORDS, "record", "replace-one", None, 2 * L * GAMMA / 3),
    ("anchored", RECORDS, "record", "zero-out", None, L * GAMMA / 3),
    ("anchored", BY_ROWS, "user", "replace-one", None, 2 * L * GAMMA * 5 / 8),
    ("anchored", BY_ROWS, "user", "zero-out", 1, L * GAMMA * 2 / 8),
    ("anchored", BY_ROWS, "record", "replace-one", 2, SITE / 8),
    ("anchored", BY_ROWS, "record", "replace-one", 0, 2 * L * GAMMA / 8),  # one row: the ball is smaller
    ("anchored", BY_ROWS, "record", "zero-out", 2, SITE / 2 / 8),
    ("dp_sgd", RECORDS, "record", "replace-one", None, 2 * L / 3),
    ("dp_sgd", RECORDS, "record", "zero-out", None, L / 3),
    ("dp_sgd", BY_ROWS, "user", "replace-one", None, 2 * L * 5 / 8),
    ("dp_sgd", BY_ROWS, "record", "replace-one", None, 2 * L / 8),
    ("dp_sgd", USERS, "record", "replace-one", 2, 2 * L / 15),
    ("dp_sgd poisson", USERS, "record", "replace-one", 2, 2 * L / (0.5 * 15)),  # no amplification
    ("dp_sgd poisson", USERS, "record", "zero-out", 2, L / (0.5 * 15)),
    ("dp_sgd fixed", USERS, "record", "replace-one", 2, 2 * L / (5 * 2)),
    ("dp_cd", BY_ROWS, "record", "zero-out", None, L / 8),
    ("fedavg", RECORDS, "record", "replace-one", None, 2 * 0.2 / 3),
    ("fedavg", RECORDS, "record", "zero-out", None, 0.2 / 3),
    ("fedavg", BY_ROWS, "user", "replace-one", None, 2 * 0.2 * 5 / 8),
    ("fedavg", BY_ROWS, "user", "zero-out", 1, 0.2 * 2 / 8),
    ("fedavg", USERS, "record", "replace-one", 0, 2 * 0.2 / 3),
    ("fedavg", USERS, "record", "replace-one", 2, 2 * 3 * 0.4 * L / 15),  # 2 K g L/n_i, below twice the clip
    ("fedavg", USERS, "record", "zero-out", 1, 3 * 0.4 * L / 6),
    ("fedavg poisson", USERS, "record", "replace-one", 2, 2 * 3 * 0.4 * L / (0.5 * 15)),  # no amplification
    ("fedavg fixed", USERS, "record", "zero-out", 2, 3 * 0.4 * L / (2 * 5)),
    ("federated sum", RECORDS, "record", "zero-out", None, 2 * 0.5 * 1.5),
    ("federated sum", RECORDS, "record", "replace-one", None, 4 * 0.5 * 1.5),
    ("federated sum", BY_ROWS, "user", "zero-out", None, 2 * 0.5 * 1.5 * 3 * 5 / 8),
]


@pytest.mark.parametrize(("name", "problem", "unit", "adjacency", "item", "shift"), BY_HAND)
def test_claims_by_hand(name: str, problem: Problem, unit: Any, adjacency: Any, item: int | None, shift: float) -> None:
    # Catches: a factor 2, a weight, a row count, or tolerance halved with the adjacency. Theory 3, worked by hand.
    plan = METHODS[name](problem)
    claim = plan.guarantee(DELTA, view="iterates", adjacency=adjacency, unit=unit, item=item)
    slack = 0.0 if name.startswith(("anchored", "federated sum")) else 4 * tolerance(problem, plan)
    expected = math.sqrt(STEPS) * (shift + slack) / STD
    assert claim.mu == pytest.approx(expected, rel=1e-5 if name == "anchored" else 1e-12)
    assert claim.mu is not None
    assert claim.mu >= expected * (1 - 1e-12)
    assert claim.epsilon == gdp_epsilon(claim.mu, DELTA)


def test_sampled_claims_are_those_of_the_sampled_gaussian() -> None:
    # Catches: noise on the mean taken for noise on the sum, n for q n, or the replace-one bound under zero-out.
    plan = METHODS["dp_sgd poisson"](RECORDS)
    claim = plan.guarantee(DELTA)
    assert claim.epsilon == poisson_epsilon(STD * 0.5 * 3 / L, 0.5, STEPS, DELTA, "zero-out")
    assert claim.mu is None
    assert claim.adjacency == "zero-out"
    summed = METHODS["federated sum poisson"](RECORDS).guarantee(DELTA)
    assert summed.epsilon == poisson_epsilon(STD / (2 * 0.5 * 1.5), 0.5, STEPS, DELTA, "zero-out")
    full = METHODS["dp_sgd"](RECORDS).guarantee(DELTA, adjacency="zero-out")
    smaller = METHODS["dp_sgd poisson"](RECORDS, noise_std=STD / 0.5).guarantee(DELTA)  # the same noise on the sum
    assert smaller.epsilon < full.epsilon


def test_amplification_is_not_given_to_records_of_sampled_users_nor_under_a_cap() -> None:
    # Catches: a user's secret coin used for its records as well; or a cap that makes rounds depend on each other.
    claim = METHODS["dp_sgd poisson"](USERS).guarantee(DELTA, unit="record")
    assert claim.mu is not None
    assert any("no amplification" in text for text in claim.assumptions)
    capped = METHODS["federated sum poisson"](RECORDS, participation_cap=2).guarantee(DELTA)
    assert capped.mu == pytest.approx(math.sqrt(2) * 2 * 0.5 * 1.5 / STD, rel=1e-12)
    assert any("no amplification" in text for text in capped.assumptions)


def test_samples_of_fixed_size_count_the_longest_message() -> None:
    # Catches: amplification by a light item's own bound. Who fills its place pulls 50 times as hard, so that an
    # observer sees whether it was drawn: given that, 20 steps are a mixture over how often.
    counts, steps, delta = [1] + [50] * 39, 20, 1e-3
    problem = Problem.declared(40, 1, "squared", row_norm=1.0, clip=1.0, rows_per_item=counts, weights="rows")
    plan = methods.dp_sgd(problem, steps, 0.1, sample_size=1, noise_std=0.05)
    ratio = 2 * 40 / sum(counts) / plan.noise.std
    times = np.arange(1, steps + 1)
    chances = [math.comb(steps, k) * 0.025**k * 0.975 ** (steps - k) for k in times]
    claim = plan.guarantee(delta, item=0)
    true_delta = sum(c * gdp_delta(ratio * math.sqrt(k), claim.epsilon) for c, k in zip(chances, times, strict=True))
    assert true_delta <= delta
    assert claim.epsilon <= plan.guarantee(delta).epsilon


# --- the last iterate and its conditions


RIDGED = Problem.declared(3, 2, "logistic", regularizers.L2(0.5), row_norm=1.0)
RIDGED_ROWS = Problem.declared(3, 2, "logistic", regularizers.L2(0.5), 1.0, None, COUNTS, "rows")
RIDGED_USERS = Problem.declared(3, 2, "logistic", regularizers.L2(0.5), 1.0, None, COUNTS)


@pytest.mark.parametrize("name", ["dp_sgd", "private_admm", "centralized"])
def test_last_iterate_where_every_condition_holds(name: str) -> None:
    # Catches: the theorem never used, or used with another constant than the operator's.
    options = {"ridge_in_loss": True} if name == "centralized" else {}
    plan = METHODS[name](RIDGED, **options)
    claim, wider = plan.guarantee(DELTA, view="final"), plan.guarantee(DELTA, view="iterates")
    rate = plan.operator.step_lipschitz(1.0 if name == "dp_sgd" else 0.5)
    assert rate is not None
    assert rate < 1
    assert wider.mu is not None
    assert claim.mu == pytest.approx(last_iterate.last_iterate_mu(wider.mu / 3, rate, STEPS), rel=1e-12)
    assert (claim.view, claim.section) == ("final", "4b")
    assert claim.mu is not None
    assert claim.mu < wider.mu


BROKEN: dict[str, tuple[Plan, str]] = {
    "per-step relaxation": (
        METHODS["private_admm"](RIDGED, relaxation=[0.5] * 8 + [0.4]),
        "relaxation is not constant",
    ),
    "per-step size": (methods.dp_sgd(RIDGED, 2, [0.1, 0.2], noise_std=STD), "relaxation is not constant"),
    "step too large": (methods.dp_sgd(RECORDS, STEPS, 40.0, noise_std=STD), "above 1"),
    "no row norm": (
        methods.dp_sgd(Problem.declared(3, 2, "squared", regularizers.L2(0.5), clip=L), STEPS, 0.1, noise_std=STD),
        "row_norm",
    ),
    "clip_residual": (
        METHODS["centralized"](RIDGED, ridge_in_loss=True, clip_residual=1.0),
        "clip_residual",
    ),
    "rows weights": (METHODS["centralized"](RIDGED_ROWS, ridge_in_loss=True), "unequal weights"),
    "cap": (
        methods.federated_admm(RIDGED, STEPS, GAMMA, noise_std=STD, ridge_in_loss=True, participation_cap=4),
        "participation cap",
    ),
    "one block a step": (METHODS["cyclic"](RIDGED, ridge_in_loss=True), "no theorem of its own"),
    "sampled blocks": (METHODS["federated"](RIDGED, ridge_in_loss=True), "no theorem of its own"),
    "sampled items": (METHODS["dp_sgd fixed"](RIDGED), "no theorem of its own"),
    "one coordinate": (METHODS["dp_cd"](RIDGED), "no theorem of its own"),
    "updates as a whole": (METHODS["fedavg"](RIDGED), "not non-expansive"),
    "fresh noise": (METHODS["anchored"](RIDGED), "no theorem of its own"),
    "noise on the sum": (METHODS["federated sum"](RIDGED), "no theorem of its own"),
    "walk": (METHODS["stateless walk"](RIDGED), "no theorem of its own"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_condition_falls_back_to_the_wider_view(case: str) -> None:
    # Catches: shifted interpolation applied where a step is not a contraction with isotropic noise on everything.
    plan, reason = BROKEN[case]
    final = plan.guarantee(DELTA, view="final")
    wider = plan.guarantee(DELTA, view=final.view)
    assert final.view != "final"
    assert final.epsilon == wider.epsilon
    assert any("wider view" in text for text in final.assumptions)
    assert any(reason in text for text in final.assumptions)


@pytest.mark.parametrize("name", ["dp_sgd", "private_admm", "centralized"])
def test_tail_averages_are_free_for_iterates_and_refused_for_the_final_view(name: str) -> None:
    # Catches: a mean of many iterates released under a bound for the last one.
    plan, averaged = METHODS[name](RIDGED), METHODS[name](RIDGED, tail_average=0.5)
    with pytest.raises(ValueError, match=r"tail average.*iterates"):
        averaged.guarantee(DELTA, view="final")
    assert averaged.guarantee(DELTA, view="iterates") == plan.guarantee(DELTA, view="iterates")


def test_final_view_bounds_any_number_of_steps() -> None:
    # Catches: growth with T of a contraction, which would make long runs look unaffordable.
    mus = [
        methods.private_admm(RIDGED, steps, GAMMA, noise_std=STD).guarantee(DELTA, "final").mu for steps in (50, 5000)
    ]
    assert mus[0] == pytest.approx(mus[1], rel=1e-3)


def test_callbacks_that_stop_a_run_see_more_than_its_last_iterate() -> None:
    # Catches: a data-dependent stop (theory 4b excludes it) accounted by the last-iterate bound, at once or later on.
    plan = methods.private_admm(with_rows(RIDGED), 40, GAMMA, budget=hp.Budget(1.0, DELTA, view="final"))
    finished = plan.run(seed=0).guarantee
    assert finished is not None
    assert finished.epsilon == plan.guarantee(DELTA).epsilon
    stopped = plan.run(seed=0, callback=lambda step, model: step >= 20 and model[0] > -1e9)
    assert stopped.status == "stopped"
    assert stopped.guarantee is not None
    assert stopped.guarantee.epsilon >= replace(plan, steps=20).guarantee(DELTA, view="iterates").epsilon
    # Continued, two models have been handed out: the one it stopped at, and the last one.
    resumed = plan.run(state=stopped.state)
    half = replace(plan, steps=20).guarantee(DELTA, view="final")
    assert resumed.guarantee is not None
    assert resumed.guarantee.epsilon >= hp.privacy.compose(half, half).epsilon


# --- tolerance


def test_tolerance_enters_the_sensitivity() -> None:
    # Catches: an inexact prox accounted as exact; tol divided by n; tol halved under zero-out.
    exact, tol = 4 * L * GAMMA / 3, 0.05
    plan = methods.private_admm(RECORDS, 1, GAMMA, noise_std=STD, tolerance=tol)
    assert plan.guarantee(DELTA).mu == pytest.approx((exact + 4 * tol) / STD, rel=1e-12)
    half = plan.guarantee(DELTA, adjacency="zero-out").mu
    assert half == pytest.approx((exact / 2 + 4 * tol) / STD, rel=1e-12)
    local = methods.federated_admm(USERS, 1, GAMMA, noise_std=STD, tolerance=tol)
    assert local.guarantee(DELTA, unit="record", item=2).mu == pytest.approx(
        (4 * L * GAMMA / 5 + 4 * tol) / STD, rel=1e-12
    )


def test_tolerance_of_every_block_enters_the_final_view() -> None:
    # Catches: only the changed item's solver being inexact, when all n of them are.
    plan = methods.centralized_admm(RIDGED_USERS, STEPS, GAMMA, noise_std=STD, tolerance=0.05, ridge_in_loss=True)
    shift = 4 * GAMMA / (1 + GAMMA * 0.5)
    ratio = math.sqrt((shift + 0.2) ** 2 + 2 * 0.2**2) / STD
    rate = plan.operator.step_lipschitz(0.5)
    assert rate is not None
    claim = plan.guarantee(DELTA, view="final")
    assert claim.mu == pytest.approx(last_iterate.last_iterate_mu(ratio, rate, STEPS), rel=1e-12)
    assert any("0.05" in text for text in claim.assumptions)


def test_tolerance_enters_the_network_view() -> None:
    # Catches: a walk of users with several rows that has no network guarantee, or one without the drift.
    loose = methods.stateless_walk(USERS, 20, GAMMA, noise_std=STD, tolerance=0.05).guarantee(DELTA, view="network")
    tight = methods.stateless_walk(USERS, 20, GAMMA, noise_std=STD, tolerance=1e-9).guarantee(DELTA, view="network")
    assert tight.epsilon < loose.epsilon < math.inf


# --- caps


def test_a_cap_on_coordinates_is_no_cap_on_people() -> None:
    # Catches: participations of coordinates taken for those of items, each of which is asked in every step.
    plan = methods.dp_cd(RECORDS, 30, noise_std=STD)
    capped = replace(plan, schedule=replace(plan.schedule, cap=2))
    assert capped.guarantee(DELTA).mu == plan.guarantee(DELTA).mu


@pytest.mark.parametrize("method", [methods.federated_admm, methods.decentralized_admm, methods.stateless_walk])
def test_caps_are_claimed_and_kept(method: Make) -> None:
    # Catches: a smaller claim for a cap that nobody enforces, or a resumed run that starts to count again.
    problem = with_rows(RECORDS)
    plan = method(problem, 12, GAMMA, noise_std=STD, participation_cap=2)
    claim = plan.guarantee(DELTA)
    assert claim.mu == pytest.approx(math.sqrt(2) * 4 * L * GAMMA / STD, rel=1e-12)
    assert any("at most 2 participations" in text for text in claim.assumptions)
    first = plan.run(seed=1)
    second = plan.run(seed=2, state=first.state)
    assert second.state.steps == 24
    assert second.state.participations.max() == 2
    assert second.guarantee is not None
    assert second.guarantee.mu == claim.mu


def test_cyclic_schedules_count_passes() -> None:
    # Catches: every step charged to everybody, or the last incomplete pass left out.
    for steps, passes in ((3, 1), (4, 2), (9, 3)):
        plan = methods.centralized_admm(RECORDS, steps, GAMMA, noise_std=STD, schedule="cyclic")
        assert plan.guarantee(DELTA).mu == pytest.approx(math.sqrt(passes) * 4 * L * GAMMA / STD, rel=1e-12)


def test_a_capped_walk_does_not_contract_at_resting_users() -> None:
    # Catches: the ridge's contraction credited to users at their cap, who only add noise (network.hop_costs says so).
    # Users 0 - 1 - 2 on a path; the hub 1 is at its cap after K of its visits, and then each contribution of 0 that 2
    # sees next is hidden by two noises. With the path revealed delta is a mean over paths of Gaussian deltas.
    cap, visits, delta, ratio = 40, 90, 1e-3, 0.5
    problem = Problem.declared(3, 1, "squared", regularizers.L2(1.0), row_norm=1e-3, clip=1.0)
    plan = methods.stateless_walk(
        problem, 2 * visits, 1.0, 1.0, graph=[[1], [0, 2], [1]], noise_std=2 / ratio, participation_cap=cap
    )
    claim = plan.guarantee(delta, view="network", item=0, observers=[2])
    at_first = np.random.default_rng(0).random((20_000, visits)) < 0.5  # leaves: user 0, else user 2
    counted = at_first & (np.cumsum(at_first, axis=1) <= cap)
    seen_next = counted[:, :-1] & ~at_first[:, 1:] & (np.arange(1, visits) > cap)
    windows, paths = np.unique(seen_next.sum(axis=1), return_counts=True)
    true_delta = sum(
        share * gdp_delta(ratio * math.sqrt(count / 2), claim.epsilon)
        for count, share in zip(windows, paths / paths.sum(), strict=True)
    )
    assert true_delta <= delta


# --- composition


@pytest.mark.parametrize("name", [name for name in METHODS if name.split()[-1] not in ("poisson", "fixed", "cyclic")])
def test_all_steps_at_once_are_single_steps_composed(name: str) -> None:
    # Catches: T for sqrt(T), a step lost or counted twice.
    plan = METHODS[name](RECORDS)
    single = replace(plan, steps=1).guarantee(DELTA)
    together = hp.privacy.compose(*[single] * STEPS)
    claim = plan.guarantee(DELTA)
    assert together.mu == pytest.approx(claim.mu, rel=1e-12)
    assert together.epsilon == pytest.approx(claim.epsilon, rel=1e-9)


# --- published bounds


LARGE = Problem.declared(100, 2, "logistic", row_norm=1.0)


PUBLISHED: dict[str, tuple[Plan, Any]] = {
    "centralized": (methods.centralized_admm(LARGE, 5, 1.0, noise_std=50.0), "final"),
    "federated": (methods.federated_admm(LARGE, 5, 1.0, noise_std=50.0, sample_size=10), "final"),
    "decentralized": (methods.decentralized_admm(LARGE, 5, 1.0, noise_std=50.0), "network"),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_bounds_only_on_request_and_marked(name: str) -> None:
    # Catches: a bound known to fail handed out as a guarantee.
    plan, view = PUBLISHED[name]
    proved, printed = plan.guarantee(DELTA, view=view), plan.guarantee(DELTA, view=view, allow_published=True)
    assert (proved.basis, printed.basis) == ("proved", "published")
    assert printed.epsilon < proved.epsilon
    assert printed.mu is None
    assert "known to fail" in str(printed)
    assert "erratum" in printed.section
    messages = plan.guarantee(DELTA, view="messages", allow_published=True)
    assert messages.basis == "proved"


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_bounds_never_answer_for_a_narrower_view(name: str) -> None:
    # Catches: asked about who sees every iterate, an answer about who sees only the final model.
    claim = PUBLISHED[name][0].guarantee(DELTA, view="iterates", allow_published=True)
    assert VIEWS.index(claim.view) >= VIEWS.index("iterates")


def test_published_bounds_are_of_the_papers_own_algorithms() -> None:
    # Catches: the theorem on Algorithm 2 quoted for a walk, about whose final model the paper says no such thing.
    walk = PUBLISHED["decentralized"][0]
    for view in ("final", "iterates"):
        claim = walk.guarantee(DELTA, view=view, allow_published=True)  # type: ignore[arg-type]
        assert (claim.basis, claim.view) == ("proved", "messages")


# --- what is missing


CLIPPED_MESSAGES = ("federated sum", "federated sum poisson", "fedavg", "fedavg poisson", "fedavg fixed")


@pytest.mark.parametrize("name", [name for name in METHODS if name not in CLIPPED_MESSAGES])
def test_unclipped_squared_loss_has_no_guarantee_and_still_runs(name: str) -> None:
    # Catches: an infinite Lipschitz constant that became a number; and a run refused where only the claim is.
    problem = with_rows(Problem.declared(3, 2, "squared", row_norm=1.0))
    plan = METHODS[name](problem)
    with pytest.raises(ValueError, match="clip=C"):
        plan.guarantee(DELTA)
    with pytest.raises(ValueError, match="clip=C"):
        METHODS[name](problem, noise_std=None, budget=hp.Budget(1.0, DELTA))
    claim = plan.run(seed=0).guarantee
    assert claim is not None
    assert claim.epsilon == math.inf
    assert claim.delta == pytest.approx(3**-1.1)
    assert "clip=C" in str(claim)


def test_undeclared_row_norm_is_named() -> None:
    # Catches: a bound on the rows read off the data.
    problem = Problem(np.eye(3), [0, 1, 1], "logistic")
    plan = methods.private_admm(problem, 2, 1.0, noise_std=1.0)
    with pytest.raises(ValueError, match="row_norm is not declared"):
        plan.guarantee(DELTA)
    result = plan.run(seed=0)
    assert result.guarantee is not None
    assert "row_norm is not declared" in str(result.guarantee)


@pytest.mark.parametrize("name", METHODS)
def test_no_noise_is_no_guarantee(name: str) -> None:
    # Catches: a division by 0, or epsilon = 0 for a run without noise.
    plan = METHODS[name](with_rows(RECORDS), noise_std=0.0)
    for claim in (plan.guarantee(DELTA), plan.run(seed=0).guarantee):
        assert claim is not None
        assert claim.epsilon == math.inf
        assert "no noise" in str(claim)


def test_errors_are_refused() -> None:
    # Catches: data smuggled in through e of Algorithm 1 and accounted as if it were not there.
    plan = METHODS["private_admm"](with_rows(RECORDS))
    shifted = replace(plan, errors=lambda step, blocks, size: np.ones((len(blocks), size)))
    with pytest.raises(ValueError, match="errors is given"):
        shifted.guarantee(DELTA)
    claim = shifted.run(seed=0).guarantee
    assert claim is not None
    assert claim.epsilon == math.inf
    assert "errors" in str(claim)


def test_items_are_selected_and_checked() -> None:
    # Catches: the worst item's answer for everybody, or the wrong item's.
    plan = METHODS["dp_sgd"](BY_ROWS)
    mus = [plan.guarantee(DELTA, item=item).mu for item in range(3)]
    assert mus == pytest.approx([3 * 2 * L * count / 8 / STD for count in COUNTS], rel=1e-12)
    assert plan.guarantee(DELTA).mu == mus[2]
    for item in (-1, 3):
        with pytest.raises(ValueError, match=f"item is {item}"):
            plan.guarantee(DELTA, item=item)


@pytest.mark.parametrize("name", METHODS)
def test_declared_problems_account_like_real_ones(name: str) -> None:
    # Catches: a claim that changes with the data, which would itself be a leak.
    declared = METHODS[name](USERS).guarantee(DELTA)
    assert declared == METHODS[name](with_rows(USERS, 1)).guarantee(DELTA)
    assert declared == METHODS[name](with_rows(USERS, 2)).guarantee(DELTA)


# --- what a run spent


def test_resumed_runs_are_accounted_in_total() -> None:
    # Catches: a second half accounted alone.
    problem = with_rows(RECORDS)
    plan = METHODS["private_admm"](problem)
    first = plan.run(seed=0)
    second = plan.run(state=first.state)
    longer = replace(plan, steps=2 * STEPS).guarantee(3**-1.1)
    assert first.guarantee is not None
    assert second.guarantee is not None
    assert first.guarantee.mu == pytest.approx(plan.guarantee(DELTA).mu)
    assert second.guarantee.mu == longer.mu
    assert second.guarantee.epsilon == longer.epsilon
    assert "18 noisy steps" in str(second.guarantee)


def test_runs_cut_short_are_accounted_as_planned() -> None:
    # Catches: a loss that depends on when the data made somebody stop, which is no guarantee; or a resumed run
    # charged twice for the steps that were cut off.
    plan = METHODS["private_admm"](with_rows(RECORDS))
    stopped = plan.run(seed=0, callback=lambda step, model: step == 3)

    def press(step: int, model: np.ndarray) -> None:
        if step == 2:
            signal.raise_signal(signal.SIGINT)

    interrupted = plan.run(seed=0, callback=press)
    assert (stopped.status, interrupted.status) == ("stopped", "interrupted")
    for result in (stopped, interrupted):
        assert result.state.steps == 3
        rest = plan.run(state=result.state)
        assert rest.state.steps == STEPS
        for claim in (result.guarantee, rest.guarantee):
            assert claim is not None
            assert claim.mu == plan.guarantee(DELTA).mu
        twice = plan.run(state=rest.state).guarantee
        assert twice is not None
        assert twice.mu == replace(plan, steps=2 * STEPS).guarantee(DELTA).mu


def test_a_spent_budget_is_not_spent_again() -> None:
    # Catches: twice the steps on one budget.
    problem = with_rows(RECORDS)
    plan = methods.private_admm(problem, 4, GAMMA, budget=hp.Budget(1.0, DELTA))
    done = plan.run(seed=0)
    assert done.guarantee is not None
    assert done.guarantee.epsilon <= 1.0
    with pytest.raises(ValueError, match="it is spent"):
        plan.run(state=done.state)


def test_the_random_source_is_named() -> None:
    # Catches: an experiment's model published as if its noise were secret.
    plan = METHODS["private_admm"](with_rows(RECORDS))
    assert "not for release" in str(plan.run(seed=3).guarantee)
    assert "operating system" in str(plan.run().guarantee)


# --- operators of one's own


class Halve(operators.FixedPoint):
    """``R(u) = u/2 + data``, the data between -1/4 and 1/4."""

    def __init__(self, certified: bool = True, sensitivity: Any = None) -> None:
        super().__init__(2)
        self.certified, self.sensitivity = certified, {"record": 0.5} if sensitivity is None else sensitivity

    def apply(self, point: np.ndarray) -> np.ndarray:
        return point / 2 + 0.25

    def certificate(self, relaxation: float) -> Certificate:
        if not self.certified:
            return super().certificate(relaxation)
        return Certificate(0.5, self.sensitivity, because="the data is between -1/4 and 1/4")


def own_plan(operator: Halve, **options: Any) -> Plan:
    return Plan(operator, schedules.EveryBlock(1), noise.Noise(2.0), **{"steps": 7, **options})


def test_own_operator_is_accounted_by_composition_and_last_iterate() -> None:
    # Catches: a certificate that is not read, or a rate of R taken for that of the relaxed step.
    plan = own_plan(Halve())
    composed, final = plan.guarantee(DELTA), plan.guarantee(DELTA, view="final")
    assert composed.mu == pytest.approx(math.sqrt(7) * 0.25, rel=1e-12)
    assert composed.view == "iterates"
    assert final.mu == pytest.approx(last_iterate.last_iterate_mu(0.25, 0.75, 7), rel=1e-12)
    assert final.view == "final"
    assert "the data is between" in str(final)
    with pytest.raises(ValueError, match=r"one record \(zero-out\)"):
        plan.guarantee(DELTA, adjacency="zero-out")
    with pytest.raises(ValueError, match="one user"):
        plan.guarantee(DELTA, unit="user")


def test_own_operator_without_certificate_is_refused_and_runs() -> None:
    # Catches: an unproved operator with a guarantee.
    plan = own_plan(Halve(certified=False))
    with pytest.raises(ValueError, match="Halve has no certificate"):
        plan.guarantee(DELTA)
    claim = plan.run(seed=0).guarantee
    assert claim is not None
    assert claim.epsilon == math.inf
    assert "certificate" in str(claim)


def test_own_operator_that_expands_gets_composition_only() -> None:
    # Catches: a bound for contractions applied to c > 1.
    plan = own_plan(Halve())
    plan.operator.certificate = lambda relaxation: Certificate(1.5, {"record": 0.5})  # type: ignore[method-assign]
    claim = plan.guarantee(DELTA, view="final")
    assert claim.view == "iterates"
    assert claim.mu == pytest.approx(math.sqrt(7) * 0.25, rel=1e-12)


# --- the network view


def test_network_view_answers_for_peers_and_colluders() -> None:
    # Catches: colluders counted as one peer, or amplification that fails to grow with the network.
    plan = methods.stateless_walk(LARGE, 60, GAMMA, noise_std=30.0)
    one = plan.guarantee(DELTA, view="network")
    several = plan.guarantee(DELTA, view="network", observers=list(range(1, 40)), item=0)
    local = plan.guarantee(DELTA)
    assert one.epsilon < several.epsilon <= local.epsilon
    assert one.section == "4d"
    assert one.mu is None
    few = Problem.declared(4, 2, "logistic", row_norm=1.0)
    assert one.epsilon < methods.stateless_walk(few, 60, GAMMA, noise_std=30.0).guarantee(DELTA, view="network").epsilon
    with pytest.raises(ValueError, match="observers"):
        plan.guarantee(DELTA, view="network", item=3, observers=[3])


def test_network_view_refuses_tail_averages() -> None:
    # Catches: a mean over the walk published under a bound for its last model: where hops contract, the mean holds
    # every contribution and the last model only the last one.
    plan = methods.stateless_walk(RIDGED, 40, GAMMA, noise_std=30.0, tail_average=1.0)
    with pytest.raises(ValueError, match="tail average"):
        plan.guarantee(DELTA, view="network")
    assert plan.guarantee(DELTA).mu is not None


def test_network_view_of_stateful_walks_is_the_local_bound() -> None:
    # Catches: amplification for Algorithm 4, whose blocks persist (erratum 7).
    plan = methods.decentralized_admm(LARGE, 60, GAMMA, noise_std=30.0)
    claim = plan.guarantee(DELTA, view="network")
    assert claim.epsilon == plan.guarantee(DELTA, view="messages").epsilon
    assert claim.view == "messages"
