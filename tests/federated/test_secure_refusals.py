"""What a site of a federation with secure sums does not answer, whoever asks, and what it counts of what it does."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import datetime

import numpy as np
import pytest
from secure_federations import (
    BUDGET,
    carried,
    first_question,
    forced_round,
    said,
    site_of,
    with_estimator,
    with_plan,
)

import hushpoint as hp
from hushpoint.federated.client import Window
from hushpoint.federated.keys import new_key
from hushpoint.federated.ledger import Participation, SiteStore
from hushpoint.federated.secure.price import encoding_of, round_price
from hushpoint.federated.secure.public import Course, Public
from hushpoint.federated.secure.site import SecureSite, SiteData
from hushpoint.federated.secure.store import SecureStore
from hushpoint.federated.secure.wire import END, Ask, Question, decode_ask, decode_said, encode
from hushpoint.secure.claim import SecureClaim


@pytest.fixture(scope="module")
def setting():
    return with_plan("dp_sgd", sites=3, steps=3)


def price_of(covenant, scale=None):
    training, agreement = covenant.training, covenant.agreement
    plan = Course(training).link.plan
    code = encoding_of(plan, agreement, training.unit, training.adjacency)
    code = code if scale is None else replace(code, scale=scale)
    return round_price(code, agreement, training.unit, training.adjacency)


def begun(site, number=1, question=None, **options):
    """What a site says when a round is begun."""
    question = first_question(site.covenant) if question is None else question
    return said(site, "keys", number, question=question.to_bytes(), **options)


# --- the cap


def test_a_site_answers_exactly_as_many_rounds_as_the_covenant_allows(setting):
    """A server that asks the same question again and again learns as much as was agreed, and is told why not more.

    Would catch a price that is not what the ledger adds up, a cap that is off by one, and a cap of somebody else's.
    """
    covenant = setting.covenant
    sites, question = [site_of(setting, k) for k in range(3)], first_question(covenant)
    price, number = price_of(covenant), 0
    while True:
        number += 1
        total, heard = forced_round(covenant, sites, number, question)
        if total is None:
            break
        spent = sites[0].spent()
        entries = sites[0].store.ledger().of(covenant.run)
        assert [entry.round for entry in entries] == list(range(1, number + 1))
        assert all(SecureClaim(**entry.claim) == price for entry in entries)
        assert spent.squared == pytest.approx(number * price.squared, rel=1e-12)
        assert spent.squared >= number * price.squared
        assert (spent.spread, spent.missed) == pytest.approx((number * price.spread, number * price.missed), rel=1e-12)
    assert {one.reason for one in heard.values()} == {"cap"}
    assert number - 1 == int(covenant.whole.squared / price.squared) == 5  # three planned, two spare
    assert sites[0].spent().delta(BUDGET.epsilon) <= BUDGET.delta
    assert begun(sites[0], number + 7).reason == "cap"


def test_the_cap_is_looked_at_again_when_the_message_leaves(setting):
    """Between keys and message something else may have been counted."""
    sites, question = [site_of(setting, k) for k in range(3)], first_question(setting.covenant)
    for number in (1, 2, 3, 4):
        assert forced_round(setting.covenant, sites, number, question)[0] is not None
    answer = sites[1].answer

    def meanwhile(request):
        if decode_ask(request).kind == "masked":
            fill(sites[1], setting.covenant.run, 1)
        return answer(request)

    sites[1].answer = meanwhile
    total, heard = forced_round(setting.covenant, sites, 5, question)
    assert total is None
    assert {k: one.reason for k, one in heard.items()} == {0: "", 1: "cap", 2: ""}
    assert [entry.round for entry in sites[1].store.ledger().entries] == [1, 2, 3, 4, 1]


def fill(site, run, number):
    """One more line, made elsewhere."""
    price = price_of(site.covenant)
    site.store.record(site.store.ledger(), Participation(run, number, "", {}, asdict(price)))


def test_what_other_runs_cost_is_no_matter_of_the_covenant_but_of_the_own_limit(setting):
    price = price_of(setting.covenant)
    room = replace(price, squared=3.5 * price.squared, spread=4 * price.spread, missed=4 * price.missed)
    limit = hp.Budget(room.epsilon(1e-5), 1e-5)
    free, held = site_of(setting, 0), site_of(setting, 0, limit=limit)
    for site in (free, held):
        fill(site, "another run", 1)
        fill(site, "another run", 2)
        assert begun(site).status == "letter"
        fill(site, setting.covenant.run, 1)
    assert begun(free, 2).status == "letter"
    assert begun(held, 2).reason == "limit"  # four rounds, and room for three and a half


@pytest.mark.parametrize("cost", [{"user": 0.1}, {"user": None}, {"record": 0.1}])
def test_rounds_with_noise_of_ones_own_count_within_the_limit(setting, cost):
    """What has no bound for the same people may have been anything."""
    site = site_of(setting, 0, limit=hp.Budget(50.0, 1e-5))
    site.store.record(site.store.ledger(), Participation("plain", 1, "", cost))
    assert begun(site).reason == ("" if cost == {"user": 0.1} else "limit")
    poor = site_of(setting, 0, limit=hp.Budget(0.01, 1e-5))
    assert begun(poor).reason == "limit"


def test_a_limit_for_other_people_or_neighbours_lets_nothing_through():
    # catches: the epsilon of a record, or of a row left out, held against a limit for users, or for replaced ones
    for adjacency in ("replace-one", "zero-out"):
        setting = with_estimator("logistic", adjacency=adjacency)
        limits = {
            "": [{}, {"unit": "record"}, {"adjacency": adjacency}],
            "limit": [{"unit": "user"}, {"adjacency": "zero-out" if adjacency == "replace-one" else "replace-one"}],
        }
        for reason, whose in limits.items():
            for one in whose:
                assert begun(site_of(setting, 0, limit=hp.Budget(50.0, 1e-5, **one))).reason == reason


def test_hours(setting):
    hour = [3]
    site = site_of(setting, 0, window=Window.parse("22:00-06:00"), clock=lambda: datetime(2026, 1, 1, hour[0]))
    assert begun(site).status == "letter"
    hour[0] = 12
    assert begun(site, 2).reason == "away"
    assert begun(site, 1).status == "letter"  # the same bytes again cost nothing


# --- the ledger


def test_a_ledger_that_somebody_vouched_for_is_worth_no_round(setting, tmp_path):
    store = SecureStore(SiteStore.create(tmp_path / "site", before=1))
    site = site_of(setting, 0, store)
    assert begun(site).reason == "cap"
    fresh = site_of(setting, 0, SecureStore(SiteStore.create(tmp_path / "fresh")))
    assert begun(fresh).status == "letter"


def test_a_lost_ledger_ends_it_until_somebody_vouches_for_nothing_spent(setting, tmp_path):
    store = SecureStore(SiteStore.create(tmp_path))
    site = site_of(setting, 0, store)
    assert begun(site).status == "letter"
    whole = (tmp_path / "ledger.jsonl").read_bytes()
    for damaged in (b"", whole[:-9], whole.replace(b"0", b"1")):
        (tmp_path / "ledger.jsonl").write_bytes(damaged)
        assert begun(site, 2).reason == "ledger"
    (tmp_path / "ledger.jsonl").unlink()
    assert begun(site, 2).reason == "ledger"
    SiteStore.readmit(tmp_path, 0)
    assert not (tmp_path / "round.secret").exists()
    assert begun(site, 2).status == "letter"


# --- other questions


def test_another_covenant_is_another_run(setting):
    """The digest of the covenant is in the terms of every round: letters under different ones fit no sum."""
    covenant = setting.covenant
    other = replace(covenant, spare=covenant.spare + 1)
    sites = [site_of(setting, k, covenant=other if k == 2 else covenant) for k in range(3)]
    with pytest.raises(ValueError, match="not signed by site 2 for this round, plan"):
        forced_round(covenant, sites, 1, first_question(covenant))
    assert all(not site.store.ledger().entries for site in sites)
    assert said(sites[0], "keys", 1, question=first_question(covenant).to_bytes(), run="other").reason == "plan"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"place": 1}, ""),  # earlier results are missing: the site asks for them
        ({"step": 3}, "plan"),
        ({"step": 1 << 40}, "plan"),
        ({"scale": 0}, "plan"),
        ({"scale": 2}, "plan"),
        ({"public": bytes(32)}, ""),
        ({"point": np.zeros(4)}, "refused"),
        ({"point": np.zeros(0)}, "refused"),
        ({"point": np.full(3, np.nan)}, "refused"),
        ({"point": np.array([0.0, np.inf, 0.0])}, "refused"),
    ],
)
def test_questions_that_do_not_follow_from_what_is_public(setting, changes, reason):
    site = site_of(setting, 0)
    answer = begun(site, question=first_question(setting.covenant, **changes))
    assert answer.reason == reason
    assert answer.status == ("declined" if reason else "history")
    assert answer.letter == b""
    assert site.store.open_round() is None


def test_the_noise_is_the_plans_up_to_what_two_machines_differ_in():
    covenant = with_plan("dp_sgd", sites=3).covenant
    setting = with_plan("dp_sgd", sites=3)
    scale = first_question(covenant).scale
    near, far = scale + max(1, int(scale * 5e-10)), scale - int(scale * 2e-9)
    for other, status in ((near, "letter"), (2 * scale - near, "letter"), (far, "declined"), (scale // 2, "declined")):
        site = site_of(setting, 0)
        answer = begun(site, question=first_question(site.covenant, scale=other))
        assert answer.status == status
        assert answer.reason == ("" if status == "letter" else "plan")


def test_less_noise_within_what_machines_differ_in_costs_more():
    """The price is that of the noise that was asked for."""
    setting = with_plan("dp_sgd", sites=3)
    sites = [site_of(setting, k) for k in range(3)]
    question = first_question(setting.covenant)
    less = replace(question, scale=question.scale - int(question.scale * 5e-10))
    assert forced_round(setting.covenant, sites, 1, less)[0] is not None
    assert sites[0].spent() == price_of(setting.covenant, less.scale)
    assert sites[0].spent().squared > price_of(setting.covenant).squared


def test_a_point_beyond_the_reach_of_whole_numbers():
    setting = with_plan("anchored_admm", sites=3)
    site, other = site_of(setting, 0), site_of(setting, 1)
    reach = Course(setting.covenant.training).link.plan.operator.reach()
    near, far = np.array([0.99 * reach, 0.0, 0.0]), np.array([1.01 * reach, 0.0, 0.0])
    assert begun(site, question=first_question(setting.covenant, point=near)).status == "letter"
    assert begun(other, question=first_question(setting.covenant, point=far)).reason == "refused"
    assert begun(other, question=first_question(setting.covenant, point=np.full(3, 1e300))).reason == "refused"


def test_one_question_a_round(setting):
    """Keys of a round are for one question: another point, noise or step under the same number is refused."""
    site, question = site_of(setting, 0), first_question(setting.covenant)
    letter = begun(site, 5, question).letter
    assert begun(site, 5, question).letter == letter
    for changes in ({"point": np.ones(3)}, {"step": 1}, {"scale": question.scale + 1}):
        assert begun(site, 5, replace(question, **changes)).reason == "refused"
    for number in (1, 4):
        assert begun(site, number, question).reason == "refused"
    assert begun(site, 6, question).letter != letter
    assert begun(site, 5, question).reason == "refused"


def test_a_round_whose_secrets_are_gone_is_over(setting):
    """Keys are written once for a round, also where a server ends the run in it, or another run takes its place."""
    site = site_of(setting, 0)
    assert begun(site, 3).status == "letter"
    assert said(site, END, 3).status == "letter"
    assert begun(site, 3).reason == "refused"
    assert begun(site, 4).status == "letter"
    other = with_plan("dp_fedavg", sites=3, run="another")
    beside = SecureSite(other.covenant, 0, other.data[0], site.store, other.keys[0])
    assert said(beside, END, 0).status == "letter"  # of a run without a round here: it ends no other's
    assert said(site, "shares", 4, payload=b"").reason == "refused"  # the round is open: what was sent is no letter
    assert begun(beside).status == "letter"
    assert begun(site, 4).reason == "refused"
    assert begun(site, 5).status == "letter"


def test_requests_for_others_and_of_others(setting):
    site = site_of(setting, 0)
    assert begun(site, to=1).reason == "refused"
    for request in (b"", b"ask", bytes(100), encode(Ask("run", 0, 1, "keys"))[:-1]):
        assert decode_said(site.answer(request)).reason == "refused"
    for kind in ("shares", "masked", "survivors", "reveal"):
        assert said(site, kind, 1).reason == "over"
    server, stranger = new_key(), new_key()
    signed = site_of(setting, 0, server_key=server.public_key(), own_key=new_key())
    assert begun(signed).reason == "refused"  # not signed
    assert begun(signed, key=stranger).reason == "refused"
    assert begun(signed, key=server).status == "letter"


def test_a_site_takes_part_with_as_many_rows_as_agreed(setting):
    """The bound for a row, and the weight of a site, rest on how many rows it has."""
    rows = setting.data[1].rows
    few = replace(rows.pick(slice(0, 3)), offsets=np.array([0, 3]))
    for other in (few, setting.data[2].rows, setting.data[0].rows):
        with pytest.raises(ValueError, match="rows and the covenant says"):
            site_of(replace(setting, data=[SiteData(other)] * 3), 1)
    records, users = with_estimator("linear"), with_estimator("linear", users=True)
    for covenant, data in ((records, users), (users, records)):
        with pytest.raises(ValueError, match=r"rows|items|name no users"):
            site_of(replace(covenant, data=data.data), 0)


# --- what follows from public results


@pytest.fixture(scope="module")
def descent():
    """A run at the first step of its descent: the setting, the public results, and the question."""
    setting = with_estimator("linear", rounds=6)
    carrier = carried(setting)
    while carrier.server._link.part != "descent":
        carrier.exchange()
    request = carrier.server.open_round(range(3))[0]
    asked = decode_ask(request)
    return setting, asked.public, Question.from_bytes(asked.question), carrier.server._course


def with_metric(public, course, **changes):
    """The public results with another metric."""
    assert Public(tuple(course.answers), course.metric).to_bytes() == public
    return Public(tuple(course.answers), replace(course.metric, **changes)).to_bytes()


def asked_with(setting, public, question, number=3):
    site = site_of(setting, 0)
    question = replace(question, public=Public.digest_of(public))
    return site, said(site, "keys", number, question=question.to_bytes(), public=public)


@pytest.mark.parametrize("field", ["scales", "seconds", "size", "time"])
@pytest.mark.parametrize(("by", "status"), [(1e-6, "declined"), (1e-12, "letter")])
def test_a_metric_is_the_one_that_follows_but_for_its_last_digits(descent, field, by, status):
    setting, public, question, course = descent
    other = with_metric(public, course, **{field: getattr(course.metric, field) * (1 + by)})
    site, answer = asked_with(setting, other, question)
    assert answer.status == status
    assert answer.reason == ("refused" if status == "declined" else "")
    if status == "letter":  # and then all go by the same bytes
        np.testing.assert_array_equal(site._course[1].public.to_bytes(), other)


def test_other_metrics(descent):
    setting, public, question, course = descent
    own = course.metric
    for changes in ({"steps": own.steps + 1}, {"basis": None}, {"scales": own.scales * np.nan}, {"size": np.inf}):
        _, answer = asked_with(setting, with_metric(public, course, **changes), question)
        assert answer.status == "declined"
        assert answer.letter == b""
    _, answer = asked_with(setting, Public(tuple(course.answers), None).to_bytes(), question)
    assert answer.reason == "refused"  # the metric is missing
    _, answer = asked_with(setting, public, question)
    assert answer.status == "letter"


def test_earlier_results_are_those_of_the_question(descent):
    """Public results count by their digest: others are asked for, and change nothing of an open round."""
    setting, public, question, course = descent
    first = course.answers[0]
    other = Public((replace(first, model=first.model + 1e-3), *course.answers[1:]), course.metric).to_bytes()
    site = site_of(setting, 0)
    assert said(site, "keys", 1, question=question.to_bytes(), public=other).status == "history"
    assert said(site, "keys", 1, question=question.to_bytes()).status == "history"
    assert said(site, "keys", 1, question=question.to_bytes(), public=public).status == "letter"
    assert said(site, "keys", 1, question=question.to_bytes(), public=other).status == "letter"  # the same bytes
    restarted = site_of(setting, 0, site.store)
    assert said(restarted, "keys", 2, question=question.to_bytes()).status == "history"
    short = Public(tuple(course.answers[:-1]), course.metric).to_bytes()
    assert asked_with(setting, short, question)[1].reason == "plan"  # the place is another plan's
    empty = Public((replace(first, model=np.zeros(0)), *course.answers[1:]), course.metric).to_bytes()
    assert asked_with(setting, empty, question)[1].status == "declined"


def test_a_site_that_lost_public_results_is_told_them_again():
    """Also when the letter that had them was lost: the server sends them whenever a site says that it lacks them."""
    lost = set()

    def losing(site, request):
        asked = decode_ask(request)
        if site == 1 and asked.public and asked.round not in lost:
            lost.add(asked.round)
            return b""  # what arrives is no letter
        if site == 2 and asked.kind == "keys":
            carrier.sites[2].store.kept.pop("public.bin", None)
            carrier.sites[2]._course = None
        return carrier.sites[site].answer(request)

    carrier = carried(with_estimator("linear", rounds=6))
    while not carrier.server.finished:
        waiting = carrier.server.open_round(range(3))
        while waiting:
            verdicts = {site: carrier.server.receive(site, losing(site, asked)) for site, asked in waiting.items()}
            waiting = {site: verdict.again for site, verdict in verdicts.items() if verdict.again is not None}
        if carrier.server.has_quorum:
            carrier.server.close_round()
    assert len(lost) >= 3
    assert (
        carrier.server.state.rounds == carrier.server.state.failed + len(carrier.sites[0].store.ledger().entries) == 6
    )
