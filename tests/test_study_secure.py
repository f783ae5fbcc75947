"""Secure sums in the studies: noise, slack, spare rounds and bytes are those of a federation."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2

import hushpoint as hp
from hushpoint.experiments import claims, lasso, secure_sums
from hushpoint.experiments.communication_methods import ADJACENCY, DELTA, Size, draw, estimator_training
from hushpoint.experiments.contenders import CONTENDERS, a_third
from hushpoint.experiments.contenders import Size as LassoSize
from hushpoint.experiments.contenders import draw as draw_lasso
from hushpoint.experiments.secure_bytes import plan_bytes
from hushpoint.experiments.secure_sums import SecureTerms
from hushpoint.federated.secure.covenant import estimator_covenant, plan_covenant
from hushpoint.federated.secure.in_process import agreement_of, run_secure
from hushpoint.federated.secure.site import SiteData
from hushpoint.noise import source_for
from hushpoint.plan import Plan
from hushpoint.privacy import gdp_mu
from hushpoint.problem import Problem
from hushpoint.secure.claim import SecureClaim

USERS = Size(users=6, fewest=3, most=6, features=3)
BUDGET = hp.Budget(2.0, DELTA, adjacency=ADJACENCY, unit="user")


def silent(rounds: int = 3) -> Plan:
    problem = draw(USERS, 0).problem()
    return hp.methods.anchored_admm(problem, rounds, 20.0, radius=2.0, noise_std=0.0, lattice=True)


def sites_of(problem: Problem) -> list[SiteData]:
    """Each user at a site of its own."""
    sample, facts = draw(USERS, 0), problem.facts
    held = []
    for user in range(USERS.users):
        own = sample.owners == user
        rows = Problem(
            sample.rows[own], sample.labels[own], facts.loss, facts.regularizer, facts.row_norm,
            np.zeros(int(own.sum()), dtype=int), classes=(False, True),
        ).rows  # fmt: skip
        held.append(SiteData(rows))
    return held


# --- noise


def fits_variance(draws: np.ndarray, variance: float) -> bool:
    """Whether the variance of independent draws is so much: false alarms at 1e-6."""
    share = chi2.cdf(float((draws.astype(float) ** 2).sum()) / variance, draws.size)
    return bool(5e-7 < share < 1 - 5e-7)


@pytest.mark.parametrize("colluders", [1, 3])
def test_the_noise_of_a_run_is_what_all_sites_add(colluders: int) -> None:
    # Catches: noise shared by n instead of n - c (the shares would be too small), or only the honest ones drawn.
    terms = SecureTerms(6, colluders)
    plan = terms.planned(silent(), BUDGET)
    honest, scale, size = 6 - colluders, plan.noise.scale, 4000
    drawn = plan.noise.drawn(source_for(3), "release", 0, size)
    assert drawn is not None
    encoding = secure_sums.encoding_of(plan, terms.agreement, "user", ADJACENCY)
    many = np.concatenate([sum(encoding.noise(source_for(4), s, k) for s in range(6)) for k in range(1, size // 3)])
    for found in (drawn, many):
        assert fits_variance(found, scale**2 * 6 / honest)
        assert not fits_variance(found, scale**2)
    # Colluders take theirs away: what is left has the deviation that the claim is about.
    shift = plan.certificate.shift("user", ADJACENCY)
    needed = shift * math.sqrt(3 + terms.spare) / gdp_mu(BUDGET.epsilon, BUDGET.delta)
    assert needed < scale * plan.operator.unit < 1.001 * needed


def test_slack_and_spare_rounds_are_in_the_price(monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches: a budget without the slack of shared noise, noise for the planned rounds alone, a claim for fewer.
    terms = SecureTerms(6)
    plan = terms.planned(silent(), BUDGET)
    claim = terms.claim(plan, "user", ADJACENCY)
    one = terms.joined([(plan, 1)], "user", ADJACENCY)
    assert claim.squared == pytest.approx(5 * one.squared, rel=1e-9)
    assert claim.spread > 0
    assert claim.missed > 0
    assert claim.squared < gdp_mu(BUDGET.epsilon, BUDGET.delta) ** 2
    assert 0.999 * BUDGET.epsilon < terms.guarantee(plan).epsilon <= BUDGET.epsilon
    assert SecureTerms(6, spare=0).planned(silent(), BUDGET).noise.std < 0.78 * plan.noise.std
    with monkeypatch.context() as patch:
        patch.setattr(secure_sums, "share_of", lambda whole, rounds, spare: math.sqrt(whole.squared))
        with pytest.raises(RuntimeError, match="more than the budget"):
            terms.planned(silent(), BUDGET)
    with monkeypatch.context() as patch:
        mu = gdp_mu(BUDGET.epsilon, BUDGET.delta)
        tight = SecureClaim(mu**2, 0.0, 0.0, "user", ADJACENCY, 1)
        patch.setattr(secure_sums, "whole_budget", lambda *asked: tight)
        with pytest.raises(RuntimeError, match="more than the budget"):
            terms.planned(silent(), BUDGET)


def test_a_federation_would_set_the_same_noise() -> None:
    # Catches: a study that prices otherwise than the covenant that sites accept.
    agreement, _ = agreement_of(6, "run")
    covenant = plan_covenant(agreement, silent(), BUDGET)
    link = next(covenant.training.links())
    ours = SecureTerms(6).planned(silent(), BUDGET)
    assert ours.noise.std == link.plan.noise.std
    assert ours.noise.unit == link.plan.noise.unit


@pytest.mark.parametrize("name", ["secure_anchored", "secure_dp_gd", "secure_third"])
def test_methods_of_the_lasso_study_are_within_their_budget(name: str) -> None:
    # Catches: a panel "nobody trusted" whose guarantee is one against readers of iterates, or against fewer sites.
    sample = draw_lasso(LassoSize(items=30, features=4, support=2, test_rows=10, rows_per_user=1, sites=3), 0)
    contender = CONTENDERS[name]
    plan = contender.plan(sample, 1e-3, contender.full[0], 1.0, 1e-6)
    told = contender.guarantee(plan, 1e-6)
    assert (told.view, told.unit, told.adjacency, told.basis) == ("messages", "record", "zero-out", "proved")
    assert told.mu is None
    assert 0.999 < told.epsilon <= 1.0
    assert f"at most {10 if name == 'secure_third' else 1} of the agreed sites" in " ".join(told.assumptions)
    assert a_third(30).colluders == 10


# --- bytes


@pytest.mark.parametrize("colluders", [1, 2])
def test_bytes_are_those_of_the_protocol(colluders: int) -> None:
    # Catches: bytes of a trusted round, an exchange or a way that was left out, signatures for another threshold.
    agreement, keys = agreement_of(6, 32 * "a", colluders=colluders)
    plan = silent(2)
    covenant = plan_covenant(agreement, plan, BUDGET)
    run = run_secure(covenant, sites_of(draw(USERS, 0).problem()), keys, seed=1)
    sent = sum(record.bytes_down + record.bytes_up for record in run.rounds)
    assert plan_bytes(plan, SecureTerms(6, colluders)) == sent
    assert sent > 10 * 2 * 6 * 2 * 8 * 3  # ten times the numbers of a round trip


def test_the_estimator_is_the_one_of_a_federation() -> None:
    # Catches: plans, steps, noise or bytes of another chain; results that are not told to the sites.
    training = estimator_training(USERS, 20.0, 6)
    sample = draw(USERS, 0)
    model, links, sent = training.run(sample.problem(), 5)
    agreement, keys = agreement_of(6, 32 * "a")
    budget = training.budget
    covenant = estimator_covenant(
        agreement, training.estimator, 3, [1] * 6, hp.Budget(budget.epsilon, budget.delta), unit="user", rounds=6
    )
    assert covenant.training == training.covenant(sample.problem()).training
    assert covenant.whole == training.covenant(sample.problem()).whole
    run = run_secure(covenant, sites_of(sample.problem()), keys, seed=1)
    assert sent == sum(record.bytes_down + record.bytes_up for record in run.rounds)
    assert sum(link.plan.steps for link in links) == len(run.rounds)
    assert run.found is not None
    assert model.shape == run.found.models[0].shape
    assert all(link.plan.noise.std > 0 for link in links)


def test_without_noise_the_estimator_finds_the_optimum() -> None:
    # Catches: rows, targets or a penalty that are not those of the objective.
    size = Size(users=40, fewest=10, most=12, features=3)
    sample = draw(size, 2)
    model, _, _ = estimator_training(size, 100.0, 30).run(sample.problem(), 0)
    assert sample.gap(model) < 0.2
    assert sample.gap(-model) > 0.5


# --- what is said


def frontier_of(gaps: list[float]) -> claims.Frontier:
    """Anchored ADMM at 0.1 above an optimum that differs from run to run, and by secure sums so much above it."""
    values = {"zero": [1.0 + 0.3 * k for k in range(len(gaps))]}
    values["anchored_admm"] = [value - 0.9 for value in values["zero"]]
    values["secure_anchored"] = [value + gap for value, gap in zip(values["anchored_admm"], gaps, strict=True)]
    trusts = {"anchored_admm": "trusted aggregator", "secure_anchored": "nobody trusted, secure sums"}
    rows, runs = [], []
    for name, own in values.items():
        epsilon = None if name == "zero" else 1.0
        basis = None if name == "zero" else "proved"
        mean = sum(own) / len(own)
        rows.append(
            {"method": name, "label": name, "trust": trusts.get(name, ""), "basis": basis, "epsilon": epsilon}
            | {"objective_mean": mean, "excess_mean": mean - sum(values["zero"]) / len(own) + 1, "runs": len(own)}
        )
        runs += [{"method": name, "epsilon": epsilon, "run": k, "objective": value} for k, value in enumerate(own)]
    return claims.Frontier(rows, runs)


@pytest.mark.parametrize(
    ("gaps", "said"),
    [
        ([0.01, -0.01, 0.02, -0.01], "within two standard errors at 1 of 1 budgets; the mean differences"),
        (
            [0.05, 0.06, 0.05, 0.06],
            "at 0 of 1 budgets, and beyond them at epsilon = 1 (0.0550 above); by chance alone 0.1 of 1",
        ),
        ([-0.05, -0.06, -0.05, -0.06], "at 0 of 1 budgets, and beyond them at epsilon = 1 (0.0550 below)"),
    ],
)
def test_a_cost_of_secure_sums_is_judged_on_the_same_data(gaps: list[float], said: str) -> None:
    # Catches: the spread of the data taken for doubt about the difference, a lost sign, a loss that is not told.
    prices = [
        {"rounds": rounds, "colluders": colluders, "sites": 1000, "spare": 2, "noise_ratio": ratio}
        for rounds, colluders, ratio in ((30, 1, 1.034), (100, 1, 1.011), (30, 333, 1.265))
    ]
    (paragraph,) = [s for s in claims.lasso_summary(frontier_of(gaps), (), prices) if "secure sums" in s]
    assert said in paragraph
    assert "1.011 to 1.034 times as large where 1 of 1,000 sites may collude and 1.265 times" in paragraph
    assert "(30 or 100 rounds and room for 2 that fail)" in paragraph


def test_the_noise_that_is_told_is_that_of_all_sites() -> None:
    # Catches: the price of spare rounds, or of the colluders' shares, left out of what the study says.
    size = LassoSize(items=100, features=4, support=2, test_rows=10, rows_per_user=1, sites=4)
    scale = replace(lasso.FULL, size=size, epsilons=(1.0,), methods=("secure_anchored", "secure_third"))
    rows = {(row["method"], row["rounds"]): row["noise_ratio"] for row in lasso._secure_prices(scale)}
    for name, honest in (("secure_anchored", 99), ("secure_third", 67)):
        for rounds in (30, 100):
            expected = math.sqrt((rounds + 2) / rounds * 100 / honest)
            assert expected < rows[name, rounds] < 1.001 * expected
