"""What a federation claims is never less than what is lost, whatever the server or the disk does: exact numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from federations import FEATURES, anchored, local, problem

import hushpoint as hp
from hushpoint.federated import Client, MemoryStore, Reply, Request, decode, encode, plan_digest, spent
from hushpoint.federated.ledger import total_mu
from hushpoint.federated.wire import digest


def worlds(data, site, changed):
    """The rows of a site, and the same with one row's label, or all of them, moved as far as clipping lets it count."""
    rows = data.rows.take(np.array([site]))
    other = rows.targets.copy()
    other[changed] = np.where(rows.targets[changed] > 0, -50.0, 50.0)
    first = rows.targets.copy()
    first[changed] = np.sign(rows.targets[changed]) * 50.0
    return replace(rows, targets=first), replace(rows, targets=other)


def ask(plan, site, round, known, point, held, block=None):
    return encode(Request(plan_digest(plan), round, site, "", known, digest(held), point, block))


@pytest.mark.parametrize("unit", ["user", "record"])
def test_the_ledger_of_a_site_never_says_less_than_a_curious_server_learns(unit):
    """The server chooses point and block as it likes. Given both, messages are normal, so the loss is exact.

    A mu that is halved in the ledger, or a message that is not counted, fails here: the worst server found attains most
    of the claim.
    """
    data = problem(weights="items", clip=1.0)
    site = 0
    changed = slice(None) if unit == "user" else slice(0, 1)
    quiet, noisy = local(data, rounds=12, noise_std=0.0), local(data, rounds=12, noise_std=0.7)
    rng = np.random.default_rng(3)
    attained = []
    for scale in (0.0, 0.1, 1.0, 10.0):
        stores = [MemoryStore(), MemoryStore()]
        exact = [
            Client(quiet, site, rows, store) for rows, store in zip(worlds(data, site, changed), stores, strict=True)
        ]
        counted = Client(noisy, site, worlds(data, site, changed)[0], MemoryStore())
        lost = 0.0
        for round in range(1, 13):
            point, block = scale * rng.normal(size=FEATURES), scale * rng.normal(size=FEATURES)
            known = round - 1
            request = ask(quiet, site, round, known, point, block, block)
            messages = [decode(client.answer(request), Reply).message for client in exact]
            lost += float(((messages[0] - messages[1]) ** 2).sum())
            reply = decode(counted.answer(ask(noisy, site, round, known, point, block, block)), Reply)
            assert reply.participations == round
        exact_loss = math.sqrt(lost) / (0.5 * noisy.noise.std)
        claimed = total_mu(counted.store.ledger(), unit)
        assert claimed is not None
        assert exact_loss <= claimed
        attained.append(exact_loss / claimed)
    assert max(attained) > 0.5


@pytest.mark.parametrize("unit", ["user", "record"])
def test_two_worlds_of_a_site_stay_as_close_as_certified_through_losses_and_restarts(unit):
    """The blocks that the trusted server holds, on the same public points, while messages and states are lost."""
    data = problem(weights="rows", clip=1.0)
    site = 1
    plan = anchored(data, rounds=60, noise_std=0.1)
    bound = plan.certificate.shift(unit, "replace-one", site)
    changed = slice(None) if unit == "user" else slice(0, 1)
    weight = data.facts.item_weights[site]
    rng = np.random.default_rng(8)
    farthest = 0.0
    for _ in range(5):
        clients = [Client(plan, site, rows, MemoryStore()) for rows in worlds(data, site, changed)]
        held, known, point = [np.zeros(FEATURES), np.zeros(FEATURES)], 0, np.zeros(FEATURES)
        for round in range(1, 61):
            point = 0.9 * point + 0.3 * rng.normal(size=FEATURES)
            arrives, forgets = rng.random() < 0.7, rng.random() < 0.2
            replies = []
            for client, block in zip(clients, held, strict=True):
                if forgets:
                    client.store._last = None
                reply = decode(client.answer(ask(plan, site, round, known, point, block)), Reply)
                if reply.status == "anchor":
                    reply = decode(client.answer(ask(plan, site, round, known, point, block, block)), Reply)
                replies.append(reply.message)
            if arrives:
                held = [block + message for block, message in zip(held, replies, strict=True)]
                known = round
                assert all(np.linalg.norm(block - point) <= plan.operator.radius * (1 + 1e-9) for block in held)
            farthest = max(farthest, weight * float(np.linalg.norm(held[0] - held[1])))
            assert farthest <= bound
    assert farthest > (0.4 if unit == "user" else 0.05) * bound


def test_a_secret_sample_is_named_as_a_condition():
    data = problem()
    sampled = hp.methods.dp_sgd(data, 5, 0.3, sample_prob=0.5, noise_std=0.5)
    everyone = hp.methods.dp_sgd(data, 5, 0.3, noise_std=0.5)
    assert "stays secret" in str(spent(sampled, 5))
    assert "stays secret" not in str(spent(everyone, 5))
    assert "does not depend on anyone's data" in str(spent(everyone, 5))
    assert spent(everyone, 0).epsilon == 0
    assert math.isinf(spent(local(data, noise_std=0.0), 3).epsilon)
