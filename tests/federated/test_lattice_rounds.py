"""Federations on the lattice: integers on the wire and on disk, and the engine's model to the bit."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest
from federations import FEATURES, SITES, Federation, anchored, asked, problem, said

import hushpoint as hp
from hushpoint.federated import MemoryStore, Refused, Reply, Request, decode, encode, run_in_process
from hushpoint.federated.wire import digest


def averaged(data, rounds=6, noise_std=0.1, **options):
    return hp.methods.dp_fedavg(data, rounds, 3, 0.1, 1.0, noise_std=noise_std, **options)


MAKE = {"anchored": anchored, "averaged": averaged}
SAMPLES = {"all": {}, "poisson": {"sample_prob": 0.6}, "fixed": {"sample_size": 4}}


def on_lattice(kind, data, **options):
    return MAKE[kind](data, lattice=True, **options)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("weights", ["items", "rows"])
@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("kind", MAKE)
def test_a_federation_computes_what_the_engine_computes_to_the_bit(kind, sample, weights, loss):
    # Catches: integers that travel as doubles, multiplicities as doubles, a block that starts as one.
    data = problem(weights, loss)
    plan = on_lattice(kind, data, tail_average=0.5, **SAMPLES[sample])
    result, alone = run_in_process(plan, data, seed=11, apart=True), plan.run(seed=11)
    np.testing.assert_array_equal(result.model, alone.model)
    np.testing.assert_array_equal(result.server.state.shared, alone.state.shared)
    np.testing.assert_array_equal(result.server.state.blocks, alone.state.blocks)
    assert np.abs(result.model).max() > 0.01
    assert all(claim.arithmetic == "whole" for claim in result.guarantees)
    assert result.guarantees[0].epsilon <= plan.guarantee(result.guarantees[0].delta, unit="user").epsilon * (1 + 1e-12)


@pytest.mark.parametrize("kind", MAKE)
def test_items_of_one_row_and_rows_in_single_precision_are_the_engines_too(kind):
    # Catches: a site that multiplies its rows by their factors in another order than the whole table does.
    rng = np.random.default_rng(2)
    X, y = (5 * rng.normal(size=(9, 5))).astype(np.float32), rng.normal(size=9)
    data = hp.Problem(X, y, row_norm=2.0, clip=1.0)
    plan = on_lattice(kind, data)
    np.testing.assert_array_equal(run_in_process(plan, data, seed=1, apart=True).model, plan.run(seed=1).model)


@pytest.mark.parametrize("kind", MAKE)
def test_what_was_on_disk_is_the_same_integers(tmp_path, kind):
    # Catches: a state of server or site that comes back as doubles; a block restored from another kind of bytes.
    data = problem()
    plan = on_lattice(kind, data)
    federation = Federation(plan, data, tmp_path, seed=5)
    while not federation.server.finished:
        federation.round()
        federation.forget_server()
        state = federation.server.state
        assert state.blocks.dtype == plan.operator.start()[1].dtype
        if state.rounds == 2:
            (tmp_path / "3" / "state.npz").write_bytes(b"garbage")  # it asks for its block
    np.testing.assert_array_equal(federation.server.model, plan.run(seed=5).model)
    kept = federation.store(1).state(federation.server.state.run)
    assert kept.message.dtype == np.int64
    shutil.rmtree(tmp_path / "server")


def _changed(reply, **fields):
    return encode(dataclasses.replace(decode(reply, Reply), **fields))


@pytest.mark.parametrize("kind", MAKE)
def test_a_reply_of_another_kind_than_the_plans_is_refused(kind):
    # Catches: floating-point numbers in an exact sum (their last digits are the site's to choose), or integers in one
    # of real numbers.
    data = problem()
    for lattice, other in ((True, np.float64), (False, np.int64)):
        federation = Federation(MAKE[kind](data, lattice=lattice), data, quorum=0.5)

        def carry(site, reply, other=other):
            return _changed(reply, message=decode(reply, Reply).message.astype(other)) if site == 1 else reply

        line = federation.round(carry)
        assert line.refused == {"1": "numbers of another kind than the plan's"}
        assert 1 not in line.answered


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("value", [2**31, -(2**31), 2**62, -(2**63)])
def test_a_message_longer_than_the_bound_is_refused(kind, value):
    # Catches: a length computed in 64 bits, which wraps, or with a tolerance.
    data = problem()
    federation = Federation(on_lattice(kind, data), data, quorum=0.5)
    message = np.zeros(FEATURES, dtype=np.int64)
    message[2] = value
    line = federation.round(lambda site, reply: _changed(reply, message=message) if site == 1 else reply)
    assert line.refused == {"1": "longer than the method allows"}


def test_the_longest_message_is_taken_and_one_step_more_is_not():
    # Catches: a bound that is one off on either side.
    data = problem()
    plan = on_lattice("averaged", data)
    for steps, refused in ((plan.operator.most, {}), (plan.operator.most + 1, {"1": "longer than the method allows"})):
        federation = Federation(plan, data, quorum=0.5)
        message = np.array([0, steps, 0, 0], dtype=np.int64)
        line = federation.round(lambda site, reply, m=message: _changed(reply, message=m) if site == 1 else reply)
        assert line.refused == refused


@pytest.mark.parametrize("block", [np.zeros(FEATURES), np.full(FEATURES, np.nan), np.full(FEATURES, 2**61)])
def test_a_site_takes_no_block_that_is_not_one_of_the_plans(block):
    # Catches: NaN cast to some integer, a block so far away that differences wrap.
    data = problem()
    plan = on_lattice("anchored", data)
    client = Federation(plan, data).client(0)
    request = asked(plan, 2, known=1, copy="?", block=block)
    assert said(client, request).status == "anchor"
    fine = asked(plan, 2, known=1, copy="?", block=np.arange(FEATURES))
    answer = said(client, fine)
    assert answer.status == "moved"
    assert answer.message.dtype == np.int64


def test_a_site_declines_points_of_integers_or_too_far_away():
    data = problem()
    plan = on_lattice("anchored", data)
    store = MemoryStore()
    federation = Federation(plan, data)
    federation.memory[0] = store
    client = federation.client(0)
    for point in (np.zeros(FEATURES, dtype=np.int64), np.full(FEATURES, 2 * plan.operator.reach())):
        assert said(client, asked(plan, 1, point=point)).reason == "refused"
    assert store.ledger().entries == ()


def test_a_public_point_without_room_for_a_sum_is_told_by_the_server():
    data = problem()
    federation = Federation(on_lattice("anchored", data, noise_std=0.0), data)
    federation.server.state.public = np.full(FEATURES, 2**62)
    with pytest.raises(ValueError, match="64 bits"):
        federation.server.open_round(range(SITES))


@pytest.mark.parametrize("noise_std", [1e3, 1e8])
def test_more_noise_than_the_finest_lattice_has_is_on_a_coarser_one(noise_std):
    # Catches: a coarser lattice at the engine only.
    data = problem()
    plan = on_lattice("averaged", data, noise_std=noise_std)
    np.testing.assert_array_equal(run_in_process(plan, data, seed=3, apart=True).model, plan.run(seed=3).model)
    assert plan.noise.scale <= 2**40


# --- the wire


def test_integers_travel_as_they_are_and_doubles_as_they_did():
    # Catches: integers above 2^53 that lose their last digits; a header that old readers of doubles do not know.
    whole = np.array([2**62 + 1, -(2**53) - 1, 0], dtype=np.int64)
    request = Request("run", 1, 0, "", 1, "", np.array([0.5, np.pi, 1e-300]), whole)
    back = decode(encode(request), Request)
    assert (back.block.dtype, back.point.dtype) == (np.int64, np.float64)
    assert back.block.tolist() == whole.tolist()
    assert back.point.tolist() == request.point.tolist()
    plain = encode(dataclasses.replace(request, block=whole.astype(np.float64)))
    assert b"whole" not in plain
    assert digest(whole) != digest(whole.astype(np.float64))
    assert len(encode(request)) - len(plain) < 40


@pytest.mark.parametrize("names", [["point"], "message", ["message", "point"], None, 3, {}])
def test_a_header_that_misnames_its_integers_is_no_record(names):
    reply = Reply("run", 1, 0, "", "moved", message=np.arange(3))
    data = encode(reply)
    start = len(b"hushpoint federated 1\n")
    size = int.from_bytes(data[start : start + 4], "little")
    header, body = json.loads(data[start + 8 : start + 8 + size]), data[start + 8 + size :]
    text = json.dumps({**header, "whole": names}).encode()
    crafted = data[:start] + len(text).to_bytes(4, "little") + len(body).to_bytes(4, "little") + text + body
    with pytest.raises(Refused):
        decode(crafted, Reply)
