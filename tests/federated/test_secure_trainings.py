"""Trainings by secure sums: the sums of sites are those of one holder, and what comes out is what a curator makes."""

from __future__ import annotations

import numpy as np
import pytest
from secure_federations import (
    carried,
    estimator,
    looked_at,
    plan_of,
    silent,
    starts,
    told_by,
    with_estimator,
    with_plan,
)

import hushpoint as hp
from hushpoint.engine import settle
from hushpoint.estimators import planner
from hushpoint.estimators.declared import finished
from hushpoint.estimators.training import Answer
from hushpoint.federated.secure.in_process import run_secure
from hushpoint.federated.secure.public import Course
from hushpoint.federated.secure.site import SiteData

METHODS = ("anchored_admm", "dp_sgd", "dp_fedavg")
KINDS = ("logistic", "linear", "lasso", "svc", "huber")


def no_noise(place, size):
    return None


def central_rows(setting, users):
    """All rows at one holder, in the order of the sites."""
    from hushpoint.estimators.declared import rows_of

    X, y, user_of = setting.whole
    declared = setting.covenant.training.declared
    asked = estimator("svc" if len(np.unique(y)) == 3 else "logistic" if y.dtype.kind == "U" else "linear")
    return SiteData(*rows_of(asked, declared, X, y, user_of if users else None))


# --- sums


@pytest.mark.parametrize(
    ("kind", "users", "wide"),
    [("logistic", False, False), ("linear", True, False), ("svc", False, True), ("lasso", True, True)],
    ids=["full metric", "users, full metric", "centred, diagonal metric, three classes", "users, diagonal metric, L1"],
)
def test_sums_over_sites_are_the_sum_of_one_holder_at_every_link_of_a_chain(kind, users, wide, monkeypatch):
    """Each site divides its own sum, rounding down: of n sites that loses at most n - 1 units, and nothing undivided.

    Would catch rows looked at otherwise (offset, model, metric), another site's weights, a cut of messages instead of
    sums, and a step of the server that is not the engine's.
    """
    if wide:
        monkeypatch.setattr(planner, "_LARGEST_FULL", 0)
    setting = with_estimator(kind, users=users, rounds=10, budget=hp.Budget(2.0, 1e-5))
    course, sites = Course(setting.covenant.training), len(setting.data)
    whole, seen = central_rows(setting, users), {}
    while course.link is not None:
        link = course.link
        operator, cut = link.plan.operator, 0
        central, parts = looked_at(link, whole), [looked_at(link, data) for data in setting.data]
        shared, blocks = operator.start()[0], starts(link, sites)
        for step in range(min(link.plan.steps, 3)):
            z = operator.release(shared)
            total = operator.move(
                central, slice(None), starts(link, 1)[0], z, link.plan.relaxation_at(step), None, None
            )[1]
            told, blocks = told_by(link, parts, blocks, z, step)
            lost = operator.cut(total) - sum(told)
            assert lost.min() >= 0
            assert lost.max() <= sites - 1
            cut = max(cut, int(np.abs(operator.cut(total)).max()))
            if np.array_equal(operator.cut(total), total):
                assert not lost.any()
            expected = settle(operator, shared, total, None, link.plan.relaxation_at(step), no_noise)[0]
            shared = operator.learned(shared, z, sum(told), link.plan.relaxation_at(step))
            scale = max(1.0, float(np.abs(expected).max()))
            np.testing.assert_allclose(shared, expected, rtol=0, atol=1e-6 * scale)
        assert cut > 1 << 10  # that much is being compared
        seen.setdefault(link.part, operator.name)
        point = operator.release(shared)
        course.go_on(Answer(operator.model(point), point))
    more = {"means"} if wide else set()
    more |= {"target"} if kind == "linear" else set()
    more |= set() if kind == "lasso" else {"calibration"}
    assert set(seen) == {"second moments", "length", "descent"} | more


@pytest.mark.parametrize("weights", ["rows", "items"])
@pytest.mark.parametrize("method", METHODS)
def test_steps_of_a_plan_are_those_of_the_engine(method, weights):
    """Noise-free steps: sites with blocks of their own go where the engine's go."""
    setting = with_plan(method, weights=weights)
    link = Course(setting.covenant.training).link
    operator, sites = link.plan.operator, len(setting.data)
    central, parts = operator.prepare(setting.whole.rows), [looked_at(link, data) for data in setting.data]
    shared, central_shared = operator.start()[0], operator.start()[0]
    central_blocks = np.zeros((sites, operator.block_size), dtype=np.int64)
    blocks = starts(link, sites)
    for step in range(4):
        z = operator.release(shared)
        np.testing.assert_allclose(z, operator.release(central_shared), rtol=1e-7, atol=1e-9)
        told, blocks = told_by(link, parts, blocks, z, step)
        shared = operator.learned(shared, z, sum(told), 0.5)
        central_blocks, total = operator.move(
            central, slice(None), central_blocks, operator.release(central_shared), 0.5, None, operator.multiplicity
        )
        central_shared = settle(operator, central_shared, total, None, 0.5, no_noise)[0]
    assert np.abs(z).max() > 1e-3


# --- from end to end


@pytest.mark.parametrize("method", METHODS)
def test_plans_from_end_to_end(method, monkeypatch):
    budget = hp.Budget(60.0, 1e-5)
    setting = with_plan(method, sites=3, steps=4, rows=20, budget=budget)
    result = run_secure(setting.covenant, setting.data, setting.keys, seed=1)
    assert len(result.rounds) == 4
    assert [record.answered for record in result.rounds] == [[0, 1, 2]] * 4
    check_costs(result, setting.covenant, spared=4 / 6)
    silent(monkeypatch)
    quiet = run_secure(setting.covenant, setting.data, setting.keys)
    exact = plan_of(method, setting.whole, 4, noise_std=0.0).run().model
    np.testing.assert_allclose(quiet.found.models[0], exact, atol=1e-6)
    assert np.abs(result.found.models[0] - exact).min() > 0


@pytest.mark.parametrize(("kind", "users"), [*((kind, False) for kind in KINDS), ("linear", True)])
def test_estimators_from_end_to_end(kind, users):
    """With a large budget the model is near that of a curator; rounds are as declared, costs as counted."""
    budget = hp.Budget(60.0, 1e-5)
    setting = with_estimator(kind, users=users, rounds=8, budget=budget, each=200)
    covenant = setting.covenant
    result = run_secure(covenant, setting.data, setting.keys, seed=1)
    X, y, _ = setting.whole
    fitted = finished(estimator(kind), covenant.training.declared, result.found, result.guarantee, len(result.rounds))
    models = covenant.training.declared.models
    assert models == (3 if kind == "svc" else 1)
    parts = 1 + 3 * 7 if kind == "svc" else 8  # second moments once, the rest for each model
    assert len(result.rounds) <= parts
    check_costs(result, covenant, spared=0.8)
    assert fitted.guarantee_ is result.guarantee
    curated = estimator(kind, epsilon=60.0, random_state=1).fit(X, y)
    assert fitted.score(X, y) > curated.score(X, y) - 0.05
    assert fitted.score(X, y) > 0.65
    assert fitted.predict(X).shape == y.shape


def check_costs(result, covenant, spared):
    """Sites have spent what the server counted, and that is the plan's share of the budget and not less."""
    whole = covenant.whole
    for site in result.sites:
        spent = site.spent()
        assert spent == result.server.spent
        assert spent.squared == pytest.approx(spared * whole.squared, rel=1e-3)
        assert len(site.store.ledger().of(covenant.run)) == len(result.rounds)
    assert result.guarantee.epsilon <= covenant.promise().epsilon <= covenant.budget.epsilon
    assert result.guarantee.delta == covenant.budget.delta
    assert result.guarantee.mu is None
    assert (result.guarantee.view, result.guarantee.unit) == ("messages", covenant.training.unit)
    assert result.server.status == "finished"


def test_a_seed_decides_the_noise_and_nothing_else_does():
    setting = with_plan("dp_sgd", sites=3, steps=2)
    once, again, other = (
        run_secure(setting.covenant, setting.data, setting.keys, seed=seed).found.models for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(once, again)
    assert (once != other).all()


def test_files_in_a_folder_say_the_same_as_memory(tmp_path):
    setting = with_plan("anchored_admm", sites=3, steps=2)
    kept = run_secure(setting.covenant, setting.data, setting.keys, seed=1, directory=tmp_path)
    held = run_secure(setting.covenant, setting.data, setting.keys, seed=1)
    np.testing.assert_array_equal(kept.found.models, held.found.models)
    assert kept.sites[0].spent() == held.sites[0].spent()
    secret = tmp_path / "sites" / "0000" / "round.secret"
    assert secret.stat().st_mode & 0o777 == 0o600


def test_of_a_second_run_nothing_of_the_first_one_is_in_the_way(tmp_path):
    """Blocks, open rounds and public results are of one run; the ledger is of all of them."""
    first, second = (with_plan("anchored_admm", sites=3, steps=2, run=run) for run in ("first", "second"))
    carrier = carried(first, place=tmp_path)
    for _ in range(8):  # into the second round, which is never ended
        carrier.exchange()
    carrier.server.store.close()
    fresh = run_secure(second.covenant, second.data, second.keys, seed=5)
    after = carried(second, place=tmp_path / "again")
    for site, old in zip(after.sites, carrier.sites, strict=True):
        site.store, site._seed = old.store, 5 + site.number
    after.run().check()
    np.testing.assert_array_equal(after.server.found.models, fresh.found.models)
    assert len(after.sites[0].store.ledger().entries) > len(after.sites[0].store.ledger().of("second"))
