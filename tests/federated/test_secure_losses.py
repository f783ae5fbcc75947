"""Rounds that sites vanish from: opened with the survivors or given up, counted either way, and the run has an end."""

from __future__ import annotations

import numpy as np
import pytest
from secure_federations import (
    carried,
    looked_at,
    silent,
    starts,
    told_by,
    with_estimator,
    with_plan,
)

from hushpoint.federated.secure.public import Course

KINDS = ["keys", "shares", "masked", "survivors", "reveal"]
COUNTED = ("masked", "survivors", "reveal")  # by then a masked message may have left


def missing(sites, at, kind):
    """Sites that do not answer in one exchange of one round."""
    return lambda number, now: sites if (number, now) == (at, kind) else ()


@pytest.mark.parametrize("method", ["anchored_admm", "dp_sgd"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_site_that_vanishes_once(kind, method):
    """Three of four sites are enough: no round is lost, and the site takes part again in the next one."""
    setting = with_plan(method, sites=4, steps=3, survivors=3)
    carrier = carried(setting, absent=missing({2}, 2, kind)).run()
    carrier.check()
    assert carrier.server.status == "finished"
    assert carrier.server.state.failed == 0
    arrived = [0, 1, 3] if kind in ("keys", "shares", "masked") else [0, 1, 2, 3]
    assert [record.answered for record in carrier.records] == [[0, 1, 2, 3], arrived, [0, 1, 2, 3]]
    away = 2 if kind in ("keys", "shares", "masked") else 3
    assert [len(site.store.ledger().entries) for site in carrier.sites] == [3, 3, away, 3]
    assert carrier.server.spent == carrier.sites[0].spent()


@pytest.mark.parametrize("kind", KINDS)
def test_two_sites_that_vanish(kind):
    """Too few are left: the round is given up, what may have left counts, and the run goes on with a new round."""
    setting = with_plan("dp_sgd", sites=4, steps=3, survivors=3)
    carrier = carried(setting, absent=missing({1, 2}, 2, kind)).run()
    carrier.check()
    assert carrier.server.status == "finished"
    assert len(carrier.records) == 3
    lost = int(kind in COUNTED)
    assert carrier.server.state.failed == lost
    assert carrier.server.state.rounds == 4
    assert carrier.server.spent.squared == pytest.approx(setting.covenant.whole.squared * (3 + lost) / 5, rel=1e-6)
    assert [record.round for record in carrier.records] == [1, 3, 4]
    assert len(carrier.sites[0].store.ledger().entries) == 3 + lost
    assert carrier.server.guarantee().epsilon <= setting.covenant.budget.epsilon


@pytest.mark.parametrize("weights", ["rows", "items"])
@pytest.mark.parametrize("method", ["anchored_admm", "dp_sgd", "dp_fedavg"])
def test_what_is_divided_by_is_the_weight_of_the_survivors(method, weights, monkeypatch):
    """Without noise a step with survivors is the step of a federation that never had the others."""
    silent(monkeypatch)
    setting = with_plan(method, sites=4, steps=1, survivors=3, weights=weights)
    carrier = carried(setting, absent=lambda number, kind: {0}).run()
    assert carrier.records[0].answered == [1, 2, 3]
    link = Course(setting.covenant.training).link
    operator = link.plan.operator
    shared = operator.start()[0]
    z = operator.release(shared)
    told, _ = told_by(link, [looked_at(link, data) for data in setting.data], starts(link, 4), z)
    facts = setting.whole.facts
    share = (facts.row_counts[1:].sum() / facts.rows) if weights == "rows" else 3 / 4
    total = np.sum(told[1:], axis=0) / share
    expected = operator.release(operator.learned(shared, z, total, link.plan.relaxation_at(0)))
    np.testing.assert_allclose(carrier.server.found.models[0], expected, rtol=1e-12)
    everyone = np.sum(told, axis=0)
    assert np.abs(total - everyone).max() > 1e-3 * np.abs(everyone).max()  # it matters who was there


def test_estimators_divide_by_the_items_of_the_survivors(monkeypatch):
    """Means over the rows of those who answered, where sites have rows of their own number."""
    silent(monkeypatch)
    setting = with_estimator("linear", sites=4, survivors=3, rounds=6)
    carrier = carried(setting, absent=lambda number, kind: {3})
    while not carrier.server.state.steps and not carrier.server._course.answers:
        carrier.exchange()
    link = Course(setting.covenant.training).link
    told, _ = told_by(link, [looked_at(link, data) for data in setting.data], starts(link, 4), np.zeros(3))
    released = carrier.server._course.answers[0].last
    items = setting.covenant.items
    mean = np.sum(told[:3], axis=0) * link.plan.operator.unit / sum(items[:3])
    np.testing.assert_allclose(released, mean, rtol=1e-9)


# --- spares


def test_a_descent_ends_early_where_spares_are_used_up():
    """Five rounds are paid for. Three are lost: the plan makes do with two of its three steps."""
    setting = with_plan("dp_sgd", sites=3, steps=3)
    carrier = carried(setting, absent=lambda number, kind: {1} if number <= 3 and kind == "reveal" else ())
    carrier.run()
    carrier.check()
    assert carrier.server.status == "finished"
    assert carrier.server.state.failed == 3
    assert len(carrier.records) == 2
    assert np.isfinite(carrier.server.found.models).all()
    assert carrier.server.spent.squared == pytest.approx(setting.covenant.whole.squared, rel=1e-6)
    assert carrier.server.guarantee().epsilon <= setting.covenant.budget.epsilon


def test_a_run_in_which_nothing_was_opened_is_spent_and_says_so():
    setting = with_plan("dp_sgd", sites=3, steps=3)
    carrier = carried(setting, absent=lambda number, kind: {1} if kind == "reveal" else ()).run()
    carrier.check()
    assert carrier.server.status == "spent"
    assert carrier.server.found is None
    assert carrier.server.state.failed == 5
    with pytest.raises(ValueError, match="the run is spent"):
        carrier.exchange()
    assert carrier.server.guarantee().epsilon <= setting.covenant.budget.epsilon


@pytest.mark.parametrize("lost", [1, 2, 3, 4, 5, 8])
def test_an_estimator_makes_do_with_what_lost_rounds_leave(lost):
    """Rounds of the descent are lost: steps, then none; what comes after the descent keeps its share."""
    setting = with_estimator("linear", rounds=10)
    failures = set()

    def absent(number, kind):
        if kind == "reveal" and carrier.server._link.part == "descent" and len(failures) < lost:
            failures.add(number)
        return {1} if kind == "reveal" and number in failures else ()

    carrier = carried(setting, absent=absent)
    carrier.run()
    carrier.check()
    assert carrier.server.state.failed == len(failures)
    if carrier.server.found is None:
        assert carrier.server.status == "spent"
        assert lost == 8
    else:
        assert carrier.server.status == "finished"
        assert np.isfinite(carrier.server.found.models).all()
        answers = carrier.server._course.answers
        assert len(answers) == 5  # target, second moments, length, descent, calibration
        assert answers[-1].model.size == 2  # the calibration was kept back for
    assert carrier.server.spent.squared <= setting.covenant.whole.squared
    assert carrier.server.guarantee().epsilon <= setting.covenant.budget.epsilon


def test_a_calibration_that_cannot_be_paid_for_is_left_out():
    """Its rounds are lost: the model is the one of the descent, and sites follow the chain past it."""
    setting = with_estimator("linear", rounds=10, spare=1)

    def absent(number, kind):
        return {1} if kind == "reveal" and carrier.server._link.part == "calibration" else ()

    carrier = carried(setting, absent=absent)
    carrier.run()
    carrier.check()
    assert carrier.server.status == "finished"
    assert carrier.server.state.failed >= 1
    assert carrier.server._course.answers[-1].model.size == 0
    assert np.isfinite(carrier.server.found.models).all()
    descent = carrier.server._course.answers[-2].model
    assert descent.any()


def test_sites_that_hold_no_more_than_the_fewest_wait_for_everyone():
    """All four are needed: each that vanishes costs the round."""
    setting = with_plan("anchored_admm", sites=4, steps=2, spare=3)
    for number, kind in enumerate(("keys", "shares", "masked"), start=1):
        carrier = carried(setting, absent=missing({3}, number, kind)).run()
        carrier.check()
        assert carrier.server.status == "finished"
        assert carrier.server.state.failed == (1 if kind == "masked" and number <= 2 else 0)


def test_the_noise_after_a_sum_of_survivors_is_no_less(monkeypatch):
    """Three of four sites: their noise has variance 3 S^2/2 here, and is divided by their weight."""
    setting = with_plan("dp_sgd", sites=4, steps=1, survivors=3, features=400)
    noisy = carried(setting, absent=lambda number, kind: {0}).run().server.found.models[0]
    silent(monkeypatch)
    quiet = carried(setting, absent=lambda number, kind: {0}).run().server.found.models[0]
    link = Course(setting.covenant.training).link
    facts, operator = setting.whole.facts, link.plan.operator
    step = operator.step_size * link.plan.relaxation_at(0)
    share = facts.row_counts[1:].sum() / facts.rows
    noise = (
        (noisy - quiet) * (1 + 0.05 * step) / (step * operator.counted / operator.sampled) * share / link.plan.noise.std
    )
    variance = float(noise @ noise) / 400
    assert 1.5 * (1 - 5 * np.sqrt(2 / 400)) < variance < 1.5 * (1 + 5 * np.sqrt(2 / 400))  # five deviations: 6e-7
