"""The adapter to Flower on a grid of functions: silence, late joiners, refusals, and what never leaves."""

import itertools
import warnings

import federations
import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'hushpoint[federated]'")

from flwr.app import Error, Message
from flwr.supercore.task_identity import TaskIdentity

import hushpoint as hp
from hushpoint.federated import Client, MemoryStore, Server, ServerStore, flower, keys, plan_digest
from hushpoint.federated.flower import Directory, Pace, Rounds, guarded, hello_reply, is_hello, packed, unpacked
from hushpoint.federated.wire import Refused, Reply, Request, decode, encode

SITES = federations.SITES
PACE = Pace(round_timeout=30.0, resend_after=5.0, start_timeout=10.0, retries=1)


@pytest.fixture(autouse=True)
def a_run_that_messages_belong_to(monkeypatch):
    for name, value in (("_task_id", 1), ("_run_id", 1), ("_node_id", 1)):
        monkeypatch.setattr(TaskIdentity, name, value)


class Clock:
    """Time that passes when someone sleeps, or asks for it: the same on every machine, and nobody waits."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        self.now += 1e-3
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(flower, "time", made)
    return made


class Post:
    """A grid whose nodes are functions; ``lose`` says which messages to which site never arrive."""

    def __init__(self, answers, lose=lambda site, count: False):
        self.answers, self.lose = answers, lose
        self.online = {100 + site for site in answers}
        self.names, self.replies = itertools.count(), {}
        self.requests = {site: [] for site in answers}

    def get_node_ids(self):
        return sorted(self.online)

    def push_messages(self, messages):
        names = []
        for message in messages:
            name = f"m{next(self.names)}"
            names.append(name)
            node, payload = message.metadata.dst_node_id, unpacked(message)
            site = node - 100
            message.metadata.__dict__["_message_id"] = name
            if not is_hello(payload):
                self.requests[site].append(payload)
                if self.lose(site, len(self.requests[site])):
                    continue
            if node not in self.online:
                self.replies[name] = Message(Error(code=5, reason="node unavailable"), reply_to=message)
                continue
            said = self.answers[site](payload)
            if said is not None:
                self.replies[name] = Message(content=packed(said), reply_to=message)
        return names

    def pull_messages(self, names):
        return [self.replies.pop(name) for name in list(names) if name in self.replies]


def federated(plan=None, own=None, registered=None, limit=None, **options):
    """A server, and the answers of sites that sign where there are keys."""
    data = federations.problem()
    plan = federations.local(data, rounds=3) if plan is None else plan
    signing = keys.new_key() if own else None
    server = Server(
        plan,
        ServerStore.in_memory(),
        seed=5,
        own_key=signing,
        site_keys=None if own is None else [key.public_key() for key in registered or own],
        **options,
    )
    clients = [
        Client(
            plan,
            site,
            data.rows.take(np.array([site])),
            MemoryStore(),
            seed=5,
            limit=limit,
            own_key=None if own is None else own[site],
            server_key=None if signing is None else signing.public_key(),
        )
        for site in range(SITES)
    ]
    return server, {site: answers(clients[site], None if own is None else own[site]) for site in range(SITES)}


def answers(client, key=None):
    run = plan_digest(client.plan)
    return lambda payload: hello_reply(payload, client.site, run, key) if is_hello(payload) else client.answer(payload)


def conducted(server, post, pace=PACE, site_keys=None):
    records = []
    outcome = Rounds(server, post, pace, site_keys).conduct(records.append)
    return outcome, records


def reference():
    plan = federations.local(federations.problem(), rounds=3)
    return plan.on(federations.problem()).run(seed=5).model


def test_a_run_over_a_grid_is_the_run_in_process():
    server, sites = federated()
    outcome, records = conducted(server, Post(sites))
    assert outcome == "finished"
    assert [record.answered for record in records] == [list(range(SITES))] * 3
    np.testing.assert_allclose(server.model, reference(), atol=1e-12)


def test_a_lost_request_is_sent_again_and_is_the_same_bytes():
    server, sites = federated()
    post = Post(sites, lose=lambda site, count: site == 2 and count == 2)
    outcome, records = conducted(server, post)
    assert outcome == "finished"
    assert post.requests[2][1] == post.requests[2][2]
    assert [record.attempts for record in records] == [1, 1, 1]
    np.testing.assert_allclose(server.model, reference(), atol=1e-12)


def test_a_round_goes_on_with_a_quorum_and_stalls_without_one(clock):
    silent = {"lose": lambda site, count: site == 4}
    server, sites = federated(quorum=0.8)
    outcome, records = conducted(server, Post(sites, **silent))
    assert outcome == "finished"
    assert all(record.answered == [0, 1, 2, 3, 5] for record in records)
    server, sites = federated(quorum=1.0)
    began = clock.now
    outcome, records = conducted(server, Post(sites, **silent))
    assert (outcome, records) == ("stalled", [])
    assert clock.now - began >= (PACE.retries + 1) * PACE.round_timeout


def test_a_site_that_was_asked_twice_may_say_twice_that_it_lost_its_block():
    # Were the second time held against it, a message would leave, be counted and be lost.
    server, sites = federated(quorum=0.8)
    honest, post = sites[2], Post(sites)

    def forgetful(payload):
        asked = None if is_hello(payload) else decode(payload, Request)
        if asked is None or asked.round != 2 or asked.block is not None:
            return honest(payload)
        return encode(Reply(asked.run, 2, 2, asked.name, "anchor", participations=1, last_round=1))

    sites[2] = forgetful
    pull = post.pull_messages
    post.pull_messages = lambda names: [] if len(post.requests[2]) == 2 else pull(names)  # slow, so it is asked again
    outcome, records = conducted(server, post)
    assert outcome == "finished"
    assert len(post.requests[2]) == 5  # round 2: twice without its block, once with it
    assert [record.answered for record in records] == [list(range(SITES))] * 3
    np.testing.assert_allclose(server.model, reference(), atol=1e-12)


def test_a_stalled_run_goes_on_when_the_sites_are_back():
    server, sites = federated(quorum=1.0)
    assert conducted(server, Post(sites, lose=lambda site, count: site == 4))[0] == "stalled"
    assert conducted(server, Post(sites))[0] == "finished"
    np.testing.assert_allclose(server.model, reference(), atol=1e-12)


def test_a_late_joiner_is_asked_in_the_round_that_waits_for_it(clock):
    server, sites = federated(quorum=1.0)
    post = Post(sites)
    post.online -= {103}
    rounds = Rounds(server, post, Pace(round_timeout=100.0, start_timeout=0.5), None)
    looks, look = itertools.count(), Directory.refresh

    def refresh(directory):
        if next(looks) == 15:
            post.online.add(103)
        look(directory)

    rounds.directory.refresh = lambda: refresh(rounds.directory)
    began = clock.now
    assert rounds.conduct(lambda record: None) == "finished"
    assert 10 < clock.now - began < 30  # it waited, and did not sit out the timeout
    np.testing.assert_allclose(server.model, reference(), atol=1e-12)


def test_a_site_that_comes_back_is_asked_though_rounds_are_short(monkeypatch):
    monkeypatch.setattr(flower, "_LOOK", 0.0)
    plan = federations.local(federations.problem(), rounds=12)
    server, sites = federated(plan, quorum=0.8)
    post, records = Post(sites), []

    def tell(record):
        records.append(record)
        if len(records) == 3:
            post.online.remove(103)
        if len(records) == 6:
            post.online.add(103)

    assert Rounds(server, post, PACE, None).conduct(tell) == "finished"
    assert [3 in record.answered for record in records] == [True] * 3 + [False] * 3 + [True] * 6


def test_a_run_ends_as_spent_when_all_sites_have_spent_their_limit(clock):
    one = federations.local(federations.problem(), rounds=1).guarantee(1e-5, unit="user")
    once = hp.Budget(1.2 * one.epsilon, 1e-5)  # too little for two
    server, sites = federated(limit=once)
    began = clock.now
    outcome, records = conducted(server, Post(sites))
    assert (outcome, len(records)) == ("spent", 1)
    assert clock.now - began < 10  # it does not wait for sites that have said their last word


def test_a_node_that_claims_another_site_is_not_believed():
    # were it believed, the block of that site would be sent to it
    own = [keys.new_key() for _ in range(SITES)]
    server, sites = federated(own=own)
    liar = sites[1]
    sites[1] = lambda payload: (
        hello_reply(payload, 0, plan_digest(server.plan), own[1]) if is_hello(payload) else liar(payload)
    )
    rounds = Rounds(server, Post(sites), PACE, [key.public_key() for key in own])
    rounds.directory.refresh()
    assert rounds.directory.node_of == {0: 100, 2: 102, 3: 103, 4: 104, 5: 105}
    assert rounds.directory.refused == {101}


def test_a_site_that_could_not_start_is_asked_again():
    # catches: one failure at the start, and a node that nobody asks for anything ever after
    server, sites = federated()
    failures, sound = iter([True]), sites[1]
    sites[1] = guarded(lambda payload: b"%d" % (1 // 0) if next(failures, False) else sound(payload))
    rounds = Rounds(server, Post(sites), PACE, None)
    rounds.directory.patience = 0.0
    for _ in range(3):
        rounds.directory.refresh()
    assert rounds.directory.refused == set()
    assert 1 in rounds.directory.available


def test_an_answer_to_hello_does_not_serve_twice():
    key = keys.new_key()
    first, second = b"hushpoint hello 1\nfirst", b"hushpoint hello 1\nsecond"
    said = hello_reply(first, 2, "run", key)
    registered = [key.public_key()] * 3
    assert flower.read_hello(first, said, 3, registered) == (2, "run")
    with pytest.raises(Refused):
        flower.read_hello(second, said, 3, registered)
    for broken in (b"", b"\xff\xff", said[:-1], b"\x02\x00{}", said[:2] + said[2:].replace(b"2", b"7", 1)):
        with pytest.raises(Refused):
            flower.read_hello(first, broken, 3, registered)


def test_signed_messages_of_another_key_count_for_nothing():
    own = [keys.new_key() for _ in range(SITES)]
    registered = [*own[:5], keys.new_key()]
    server, sites = federated(own=own, registered=registered, quorum=0.8)
    outcome, records = conducted(server, Post(sites), site_keys=[key.public_key() for key in registered])
    assert outcome == "finished"
    assert all(5 not in record.answered for record in records)


def test_the_text_of_an_exception_or_a_warning_never_leaves(recwarn):
    def failing(payload):
        warnings.warn("patient 4711", stacklevel=1)
        raise RuntimeError("patient 4711")

    assert b"4711" not in guarded(failing)(b"anything")
    assert not recwarn.list


def test_a_client_that_fails_is_asked_again_and_not_counted():
    server, sites = federated(quorum=0.8)
    broken = sites[3]
    sites[3] = guarded(lambda payload: broken(payload) if is_hello(payload) else 1 / 0)
    outcome, records = conducted(server, Post(sites))
    assert outcome == "finished"
    assert all(3 not in record.answered for record in records)
