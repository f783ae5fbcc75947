"""What a site does by itself, whatever the server says: caps, limits, signatures, silence."""

from __future__ import annotations

import warnings
from datetime import datetime, time

import numpy as np
import pytest
from federations import FEATURES, Federation, anchored, asked, local, problem, said
from scipy import stats

import hushpoint as hp
from hushpoint.federated import (
    Client,
    MemoryStore,
    Reply,
    Request,
    Server,
    ServerStore,
    Window,
    decode,
    encode,
    plan_digest,
    site_rows,
)


def test_the_cap_holds_against_a_server_that_asks_for_ever():
    data = problem()
    plan = local(data, rounds=50, participation_cap=3)
    federation = Federation(plan, data)
    client = federation.client(0)
    rng = np.random.default_rng(0)
    replies = [said(client, asked(plan, n, point=rng.normal(size=FEATURES))) for n in range(1, 51)]
    assert [reply.status for reply in replies[:3]] == ["moved"] * 3
    assert {reply.reason for reply in replies[3:]} == {"cap"}
    assert len(federation.ledger(0).entries) == 3


def test_the_limit_of_a_site_holds_over_several_plans():
    data = problem()
    limit = hp.Budget(epsilon=8.0, delta=1e-6, unit="record")
    federation = Federation(local(data, rounds=100, noise_std=4.0), data)
    others = [federation.plan, local(data, rounds=100, noise_std=6.0)]
    entries = 0
    for plan in others:
        client = Client(plan, 0, data.rows.take(np.array([0])), federation.store(0), seed=1, limit=limit)
        statuses = [said(client, asked(plan, n, known=0)).reason for n in range(1, 100)]
        assert statuses[-1] == "limit"
        entries += statuses.count("")
    costs = np.array([entry.mu["record"] for entry in federation.ledger(0).entries])
    assert len(costs) == entries > 2
    assert hp.privacy.gdp_epsilon(float(np.sqrt((costs**2).sum())), limit.delta) <= limit.epsilon
    one_more = np.sqrt((costs**2).sum() + costs[-1] ** 2)
    assert hp.privacy.gdp_epsilon(float(one_more), limit.delta) > limit.epsilon
    with pytest.raises(ValueError, match="limit is given"):
        Client(anchored(data), 0, data.rows.take(np.array([0])), MemoryStore(), limit=limit)


def test_a_site_agrees_to_one_plan_and_one_order_of_rounds():
    data = problem()
    plan = local(data, rounds=6)
    client = Federation(plan, data).client(0)
    less_noise = local(data, rounds=6, noise_std=1e-9)
    assert said(client, asked(less_noise, 1)).reason == "plan"
    assert said(client, asked(plan, 7)).reason == "plan"
    assert said(client, asked(plan, 0)).reason == "plan"
    assert said(client, asked(plan, 1, site=1)).reason == "refused"
    first = said(client, asked(plan, 3))
    assert said(client, asked(plan, 2)).reason == "stale"
    assert said(client, asked(plan, 3, point=np.ones(FEATURES))).reason == "stale"
    again = said(client, asked(plan, 3))
    assert again.message.tobytes() == first.message.tobytes()
    assert len(client.store.ledger().entries) == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300, 1e15])
def test_a_point_that_no_move_can_be_computed_from_is_declined_before_the_data_is_touched(bad):
    data = problem()
    plan = local(data)
    client = Federation(plan, data).client(0)
    point = np.zeros(FEATURES)
    point[1] = bad
    assert said(client, asked(plan, 1, point=point)).reason == "refused"
    assert said(client, asked(plan, 1, point=np.zeros(FEATURES + 1))).reason == "refused"
    assert client.store.ledger().entries == ()


def test_whatever_the_bytes_an_answer_comes_and_nothing_is_spent():
    data = problem()
    plan = local(data)
    client = Federation(plan, data).client(0)
    good = asked(plan, 1)
    rng = np.random.default_rng(0)
    for n in range(300):
        spoiled = bytearray(good)
        for _ in range(1 + n % 3):
            spoiled[rng.integers(len(good) - 8 * FEATURES)] = rng.integers(256)  # anywhere but in the numbers
        if bytes(spoiled) != good:
            assert said(client, bytes(spoiled)).status != "moved" or b'"known":0' not in spoiled
    for junk in (b"", b"hushpoint", good[:-1], good + bytes(600), None, 3):
        assert said(client, junk).reason == "refused"


def test_no_word_of_an_error_and_no_number_of_the_data_leaves(monkeypatch):
    data = problem()
    plan = local(data)
    client = Federation(plan, data).client(0)

    def fail(*args):
        raise RuntimeError(f"row {data.rows.targets[0]} is odd")

    monkeypatch.setattr(type(plan.operator), "local", fail)
    reply = client.answer(asked(plan, 1))
    assert decode(reply, Reply).reason == "failed"
    assert b"row" not in reply
    assert b"odd" not in reply
    assert client.store.ledger().entries == ()


def test_a_warning_while_a_site_moves_is_not_heard(monkeypatch, recwarn):
    """Warnings go to logs, which others read, and may quote rows."""
    data = problem()
    plan = local(data)
    client = Federation(plan, data).client(0)
    honest = type(plan.operator).local

    def warning(*arguments):
        warnings.warn("patient 4711", stacklevel=1)
        return honest(*arguments)

    monkeypatch.setattr(type(plan.operator), "local", warning)
    assert said(client, asked(plan, 1)).status == "moved"
    assert not recwarn.list


def test_what_a_site_sends_without_a_seed_is_never_the_same_noise():
    """Two sites' worth of the same request, and the same round computed again after its state was lost."""
    data = problem()
    plan = local(data)
    rows = data.rows.take(np.array([0]))
    messages = []
    for _ in range(2):
        client = Client(plan, 0, rows, MemoryStore())
        for _ in range(2):
            messages.append(said(client, asked(plan, 1)).message)
            client.store._last = None  # the state is lost, the ledger is not
        assert len(client.store.ledger().entries) == 2
    assert len({message.tobytes() for message in messages}) == 4


def test_the_noise_of_a_message_is_the_plans():
    """False alarm 1e-7; half the noise, or noise that is not relaxed, is caught with certainty."""
    data = problem()
    plan = local(data, noise_std=0.7)
    rows = data.rows.take(np.array([0]))
    exact = said(
        Client(local(data, noise_std=0.0), 0, rows, MemoryStore()), asked(local(data, noise_std=0.0), 1)
    ).message
    draws = np.array([said(Client(plan, 0, rows, MemoryStore()), asked(plan, 1)).message - exact for _ in range(300)])
    total = float(((draws / (0.5 * 0.7)) ** 2).sum())
    assert stats.chi2.isf(1 - 5e-8, draws.size) < total < stats.chi2.isf(5e-8, draws.size)


def test_hours():
    night = Window.parse("22:00-06:00")
    assert [night.has(datetime(2030, 1, 1, hour)) for hour in (5, 6, 12, 22, 23)] == [True, False, False, True, True]
    assert Window(time(9), time(17)).has(datetime(2030, 1, 1, 9))
    with pytest.raises(ValueError, match="22:00-06:00"):
        Window.parse("at night")
    data = problem()
    plan = local(data)
    client = Federation(plan, data).client(0, window=night, clock=lambda: datetime(2030, 1, 1, 12))
    assert said(client, asked(plan, 1)).reason == "away"


def test_rows_of_a_site_are_checked_against_the_public_facts():
    data = problem(loss="logistic", clip=None)
    plan = local(data)
    counts = data.facts.row_counts
    X, y = np.ones((counts[0], FEATURES)), np.ones(counts[0])
    assert site_rows(plan, 0, X, y).items == 1  # one class only, and no offence
    with pytest.raises(ValueError, match=f"{counts[0] - 1} rows and the plan says {counts[0]}"):
        site_rows(plan, 0, X[1:], y[1:])
    with pytest.raises(ValueError, match="features"):
        site_rows(plan, 0, X[:, 1:], y)
    with pytest.raises(ValueError, match="-1 and 1"):
        site_rows(plan, 0, X, 2 * y)
    with pytest.raises(ValueError, match="site is 6"):
        site_rows(plan, 6, X, y)
    with pytest.raises(ValueError, match="site_rows"):
        Client(plan, 1, data.rows, MemoryStore())
    walk = hp.methods.decentralized_admm(data, 5, 1.0, noise_std=0.1)
    with pytest.raises(ValueError, match="rounds between a server and its sites"):
        Client(walk, 0, data.rows.take(np.array([0])), MemoryStore())


class TestSignatures:
    @pytest.fixture
    def keys(self):
        ec = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ec", reason="needs the extra 'federated'")
        return [ec.generate_private_key(ec.SECP256R1()) for _ in range(3)]

    @pytest.fixture
    def parts(self, keys):
        data = problem()
        plan = local(data)
        server_key, *_ = keys
        sites = [keys[1], keys[2], *[keys[1]] * 4]
        public = [key.public_key() for key in sites]
        server = Server(plan, ServerStore.in_memory(), seed=1, own_key=server_key, site_keys=public)
        client = Client(
            plan, 0, data.rows.take(np.array([0])), MemoryStore(), seed=1, server_key=server_key.public_key(),
            own_key=keys[1],
        )  # fmt: skip
        return server, client

    def test_both_sides_know_each_other(self, parts):
        server, client = parts
        request = server.open_round(range(6))[0]
        assert server.receive(0, client.answer(request)).status == "taken"
        assert len(request) <= 8 * FEATURES + 512

    def test_a_request_that_was_touched_or_is_not_the_servers_moves_nobody(self, parts, keys):
        server, client = parts
        request = server.open_round(range(6))[0]
        for place in range(len(request)):
            touched = bytearray(request)
            touched[place] ^= 1
            assert decode(client.answer(bytes(touched)), Reply).reason == "refused"
        record = decode(request, Request)
        for forged in (encode(record), encode(record, keys[1])):
            assert decode(client.answer(forged), Reply).reason == "refused"
        assert client.store.ledger().entries == ()

    def test_a_reply_that_was_touched_or_is_another_sites_is_refused(self, parts, keys):
        server, client = parts
        reply = client.answer(server.open_round(range(6))[0])
        for place in range(len(reply)):
            server.open_round(range(6))
            touched = bytearray(reply)
            touched[place] ^= 1
            assert server.receive(0, bytes(touched)).status == "refused"
        server.open_round(range(6))
        record = decode(reply, Reply)
        for forged in (encode(record), encode(record, keys[2])):
            server.open_round(range(6))
            assert server.receive(0, forged).status == "refused"
        server.open_round(range(6))
        assert server.receive(1, reply).status == "refused"
        server.open_round(range(6))
        assert server.receive(0, reply).status == "taken"
        assert server.receive(0, reply).status == "late"  # once is enough

    def test_an_old_reply_is_late(self, parts):
        server, client = parts
        server.quorum = 0.1
        reply = client.answer(server.open_round(range(6))[0])
        server.receive(0, reply)
        server.close_round()
        server.open_round(range(6))
        assert server.receive(0, reply).status == "late"


def test_a_plan_has_the_same_name_after_it_was_written_and_read():
    data = problem()
    plan = hp.methods.federated_admm(data, 5, 1.5, budget=hp.Budget(epsilon=5.0, delta=1e-6, unit="record"))
    assert plan_digest(hp.Plan.from_json(plan.to_json())) == plan_digest(plan)


def test_no_more_messages_leave_than_the_plan_has_rounds_though_states_are_lost():
    """A round that is computed again counts again: without a cap the rounds of the plan are the site's allowance."""
    data = problem()
    plan = local(data, rounds=2)
    client = Federation(plan, data).client(0)
    replies = []
    for number in (1, 1, 2):
        replies.append(said(client, asked(plan, number)))
        client.store._last = None  # the state is lost, the ledger is not
    assert [(reply.status, reply.reason) for reply in replies] == [("moved", ""), ("moved", ""), ("declined", "cap")]
    assert len(client.store.ledger().entries) == 2


def test_a_site_keeps_its_cap_where_the_noise_is_the_servers():
    """A trusted server that has lost count must not get one message more than the plan is accounted for."""
    data = problem()
    plan = hp.methods.federated_admm(
        data, 6, 1.5, noise="sum", noise_std=0.5, clip_residual=1.0, sample_prob=0.5, participation_cap=2
    )
    client = Federation(plan, data).client(0)
    reasons = [said(client, asked(plan, number)).reason for number in range(1, 7)]
    assert reasons == ["", "", "cap", "cap", "cap", "cap"]
