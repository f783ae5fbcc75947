"""What all sites of a federation with secure sums agree to: nothing of it can be changed unseen."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from secure_federations import BUDGET, copied, plan_of, problem, with_estimator, with_plan

import hushpoint as hp
from hushpoint.federated.secure.covenant import Covenant, plan_covenant
from hushpoint.federated.secure.in_process import agreement_of
from hushpoint.federated.secure.price import fits, share_of, whole_budget
from hushpoint.federated.secure.public import Course
from hushpoint.privacy.gaussian import gdp_mu
from hushpoint.secure.claim import SecureClaim


@pytest.fixture(scope="module")
def covenants():
    return {
        "estimator": with_estimator("logistic").covenant,
        "users": with_estimator("linear", users=True).covenant,
        **{method: with_plan(method).covenant for method in ("anchored_admm", "dp_sgd", "dp_fedavg")},
        "items": with_plan("anchored_admm", weights="items").covenant,
    }


@pytest.mark.parametrize("kind", ["estimator", "users", "anchored_admm", "dp_sgd", "dp_fedavg", "items"])
def test_a_covenant_survives_its_file(kind, covenants):
    covenant = covenants[kind]
    again = Covenant.from_json(covenant.to_json())
    assert again.digest == covenant.digest
    assert again.to_json() == covenant.to_json()
    assert again.fingerprint == covenant.fingerprint
    for one, other in zip(first_plans(again), first_plans(covenant), strict=True):
        assert one == other


def first_plans(covenant):
    """What sites and server derive from it."""
    link = Course(covenant.training).link
    return link.part, link.plan.fingerprint(), link.plan.noise, link.plan.steps, covenant.promise()


def paths(record, way=()):
    """All places of a JSON record that hold a value."""
    if isinstance(record, dict):
        for name, value in record.items():
            yield from paths(value, (*way, name))
    elif isinstance(record, list):
        for place, value in enumerate(record):
            yield from paths(value, (*way, place))
    else:
        yield way


def changed(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 1.5 + 0.125
    if isinstance(value, str) and len(value) == 64:  # a key
        return value[:-1] + ("0" if value[-1] != "0" else "1")
    return f"{value}x" if isinstance(value, str) else 7


@pytest.mark.parametrize("kind", ["estimator", "users", "anchored_admm"])
def test_every_field_is_in_the_digest(kind, covenants):
    """A changed field makes another covenant, or none; the digest is of the whole file."""
    covenant = covenants[kind]
    record, seen = json.loads(covenant.to_json()), 0
    for way in paths(record):
        name = ".".join(map(str, way))
        value = record
        for part in way:
            value = value[part]
        try:
            other = Covenant.from_json(json.dumps(copied(record, **{name: changed(value)})))
        except (ValueError, TypeError, KeyError, RuntimeError):
            continue  # such a covenant does not exist
        assert other.digest != covenant.digest, name
        seen += 1
    assert seen > 20


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("whole.squared", 100.0),  # more than the budget says
        ("whole.spread", 1.0),
        ("whole.missed", 1e-3),
        ("whole.squared", math.inf),
        ("whole.unit", "user"),  # of other people than the training
        ("whole.adjacency", "zero-out"),
        ("budget.epsilon", 0.01),  # less than what is let happen
        ("budget.delta", 1e-12),
        ("items.0", 41),
        ("items.0", 0),
        ("colluders", 3),  # nobody honest is left
        ("whole.colluders", 2),  # against more of them than noise is shared for
        ("whole.colluders", 0),
        ("threshold", 2),
        ("kind", "sums"),
        ("format", 1),
    ],
)
def test_a_covenant_that_promises_more_than_it_keeps_is_none(path, value, covenants):
    record = json.loads(covenants["estimator"].to_json())
    with pytest.raises(ValueError, match=r"\w"):
        Covenant.from_json(json.dumps(copied(record, **{path: value})))


def test_a_plan_is_for_as_many_rows_as_sites_are_said_to_have(covenants):
    record = json.loads(covenants["dp_sgd"].to_json())
    with pytest.raises(ValueError, match="items"):
        Covenant.from_json(json.dumps(copied(record, **{"items.0": record["items"][0] + 1})))


def test_how_many_rows_a_site_has_is_in_a_covenant_only_where_it_is_public(covenants):
    """Weights by rows make it public; where sites weigh equally it was read from the data, and does not leave."""
    in_a_row = re.compile(r"6,\s+7,\s+8,\s+9\b")
    assert covenants["anchored_admm"].items == (6, 7, 8, 9)
    assert in_a_row.search(covenants["anchored_admm"].to_json())
    assert covenants["items"].items == (1, 1, 1, 1)
    assert not in_a_row.search(covenants["items"].to_json())


def test_no_covenant_is_made_of_other_text():
    for text in ("", "{}", "[]", "null", '{"kind": "secure sums"}', '{"kind": "secure sums", "format": 2}'):
        with pytest.raises(ValueError, match="no covenant"):
            Covenant.from_json(text)
    with pytest.raises(ValueError, match="format 1 and this version of hushpoint reads 2"):
        Covenant.from_json('{"kind": "secure sums", "format": 1}')


# --- what may be spent


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 3.0, 30.0, 100.0])
def test_the_whole_budget_is_within_the_budget_and_nearly_all_of_it(epsilon, delta):
    budget = hp.Budget(epsilon, delta)
    whole = whole_budget(budget, "record", "replace-one", 1)
    assert whole.delta(epsilon) <= delta
    assert whole.epsilon(delta) <= epsilon
    assert math.sqrt(whole.squared) > 0.999 * gdp_mu(epsilon, delta)
    more = replace(whole, squared=whole.squared * 1.01)
    assert more.delta(epsilon) > delta


def test_planned_and_spare_rounds_are_within_the_whole_and_one_more_is_not():
    whole = whole_budget(BUDGET, "user", "replace-one", 1)
    for rounds, spare in ((1, 0), (20, 2), (7, 3)):
        each = share_of(whole, rounds, spare) ** 2 / rounds
        assert (rounds + spare) * each <= whole.squared < (rounds + spare + 1) * each


@pytest.mark.parametrize("epsilon", [0.1, 8.0, 60.0, 100.0])
@pytest.mark.parametrize("kind", ["lasso", "svc"])
def test_planned_rounds_fit_at_any_epsilon(kind, epsilon):
    """The slack of a release with few steps of noise, as of means, was too much for what large budgets keep of it."""
    from secure_federations import encoding

    from hushpoint.federated.secure.price import round_price

    covenant = with_estimator(kind, budget=hp.Budget(epsilon, 1e-6)).covenant
    link = Course(covenant.training).link
    training = covenant.training
    assert fits(
        round_price(encoding(covenant, link), covenant.agreement, training.unit, training.adjacency), covenant.whole
    )


def test_claims_fit_part_by_part_and_for_the_same_people():
    whole = SecureClaim(1.0, 1e-3, 1e-9, "user", "replace-one", 1)
    assert fits(whole, whole)
    for name in ("squared", "spread", "missed"):
        assert not fits(replace(whole, **{name: getattr(whole, name) * (1 + 1e-12)}), whole)
    assert not fits(replace(whole, unit="record"), whole)
    assert not fits(replace(whole, adjacency="zero-out"), whole)


def test_plans_that_secure_sums_cannot_run_are_refused_by_name():
    agreement, _ = agreement_of(4, "run")
    whole = problem()
    sampled = hp.methods.dp_sgd(whole, steps=2, step_size=0.1, sample_prob=0.5, noise_std=1.0, lattice=True)
    with pytest.raises(ValueError, match="all sites in every round"):
        plan_covenant(agreement, sampled, BUDGET)
    real = hp.methods.anchored_admm(whole, rounds=2, gamma=1.0, noise_std=1.0)
    with pytest.raises(ValueError, match="lattice=True"):
        plan_covenant(agreement, real, BUDGET)
    with pytest.raises(ValueError, match="epsilon"):
        plan_covenant(agreement, plan_of("dp_sgd", whole), hp.Budget(101.0, 1e-5))


def test_a_covenant_from_outside_names_a_method_whose_messages_are_what_is_paid_for(covenants):
    # catches: one coordinate of a gradient in the certificate, the sum of all of them in the message
    record = json.loads(covenants["dp_sgd"].to_json())
    whole = problem(4)
    one = hp.methods.dp_cd(whole, steps=3, step_size=0.1, lattice=True, budget=replace(BUDGET, unit="user"))
    sampled = hp.methods.dp_sgd(whole, steps=3, step_size=0.1, sample_prob=0.5, noise_std=1.0, lattice=True)
    for plan in (one, sampled):
        with pytest.raises(ValueError, match="Secure sums take anchored_admm, dp_sgd, dp_fedavg with all sites"):
            Covenant.from_json(json.dumps(copied(record, **{"training.plan": plan.to_dict()})))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("estimator", ["rows scaled to norm <= 1.5", "the set of classes is declared"]),
        ("users", ["rows scaled to norm <= 1.5", "all rows of a user are at one site"]),
        ("dp_sgd", ["rows scaled to norm <= 3"]),
        ("anchored_admm", ["of the public point, in whole numbers"]),
    ],
)
def test_a_promise_names_what_it_rests_on(kind, words, covenants):
    promise = " ".join(str(covenants[kind].promise()).split())
    assert all(word in promise for word in words)
    assert "at most 1 of the agreed sites in league with the server" in promise


def test_the_noise_of_a_plan_is_for_the_budget_whatever_the_plan_was_made_with():
    agreement, _ = agreement_of(4, "run")
    plans = [plan_of("dp_sgd", problem(), noise_std=std) for std in (0.0, 1e-3, 1e3)]
    stds = [Course(plan_covenant(agreement, plan, BUDGET).training).link.plan.noise.std for plan in plans]
    np.testing.assert_allclose(stds, stds[0], rtol=1e-6)


def test_room_for_spare_rounds_is_for_rounds_that_are_taken():
    """With little budget a training takes fewer rounds than it may, and each costs more of it."""
    covenant = with_estimator("logistic", rounds=20, budget=hp.Budget(0.1, 1e-5)).covenant
    parameters = covenant.training.declared.parameters
    taken = parameters.rounds_taken
    assert taken < 12
    room = 1 - parameters.mu**2 / covenant.whole.squared
    assert room * (1 + 1e-6) > covenant.spare * parameters.mu**2 / covenant.whole.squared / taken
