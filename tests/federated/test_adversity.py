"""Servers and sites that lie, disks restored from old copies: nothing is learned or spent without being counted."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest
from federations import FEATURES, SITES, Federation, anchored, asked, local, problem, said

import hushpoint as hp
from hushpoint.federated import (
    Client,
    MemoryStore,
    Reply,
    SiteStore,
    decode,
    disk,
    encode,
    plan_digest,
    run_in_process,
    spent,
)
from hushpoint.federated import ledger as ledger_module
from hushpoint.operators import consensus
from hushpoint.operators.newton import ProxNotSolved

# --- a server that wants to know


@pytest.mark.parametrize(
    ("row_norm", "gamma", "rows"), [(3.0, 1.5, 4), (10.0, 30.0, 4), (30.0, 30.0, 20), (100.0, 1.0, 4)]
)
def test_no_point_that_a_site_accepts_makes_a_prox_fail(monkeypatch, row_norm, gamma, rows):
    """A failure would be a free oracle. Points at the edge of what is accepted, made for this very data."""
    rng = np.random.default_rng(0)
    width = 12
    X, y = row_norm / 4 * rng.normal(size=(2 * rows, width)), rng.normal(size=2 * rows)
    groups = np.repeat([0, 1], rows)
    data = hp.Problem(X, y, regularizer=hp.regularizers.L2(0.05), row_norm=row_norm, clip=1.0, groups=groups)
    plan = hp.methods.federated_admm(data, 100, gamma, noise_std=0.5)
    site = data.rows.take(np.array([0]))
    failures = []

    class Watched(consensus.ZeroProx):
        def solve(self, chosen, points, guess):
            failures.append(points)
            return super().solve(chosen, points, guess)

    monkeypatch.setattr(consensus, "ZeroProx", Watched)
    reach = plan.operator.reach()
    null = np.linalg.svd(np.asarray(site.features))[2][min(rows, width - 1) :]
    for trial in range(40):
        direction = null.T @ rng.normal(size=len(null)) if trial % 2 else rng.normal(size=width)
        edge = direction * (0.999 * reach / np.linalg.norm(direction))
        client = Client(plan, 0, site, MemoryStore())
        client.store.record(client.store.ledger(), ledger_module.Participation(plan_digest(plan), 1, "x"))
        assert said(client, asked(plan, 2, known=1, point=edge, block=-edge)).status == "moved"
    assert failures == []


@pytest.mark.parametrize("error", [ProxNotSolved, np.linalg.LinAlgError, FloatingPointError, ValueError])
def test_a_prox_that_fails_all_the_same_is_a_move_that_counts(monkeypatch, error):
    # catches: a word, which costs nothing and is not counted, where another data set would have moved
    data = problem()
    plan = local(data)
    client = Federation(plan, data).client(0)

    def fail(*args):
        raise error("a secret")

    monkeypatch.setattr(type(client._data), "solve", fail)
    reply = said(client, asked(plan, 1))
    assert reply.status == "moved"
    assert reply.participations == 1
    assert np.isfinite(reply.message).all()


def test_a_plan_without_room_for_rounding_is_refused_when_the_site_starts():
    rng = np.random.default_rng(0)
    data = hp.Problem(
        rng.normal(size=(4000, 2)), rng.normal(size=4000), row_norm=1e4, clip=1.0, groups=np.repeat([0, 1], 2000)
    )
    with pytest.raises(ValueError, match=r"tolerance="):
        Client(hp.methods.federated_admm(data, 5, 1.0, noise_std=1.0), 0, data.rows.take(np.array([0])), MemoryStore())


# --- disks that come from a copy


def test_a_message_computed_again_counts_even_if_the_site_is_killed_before_it_writes_so(tmp_path, monkeypatch):
    data = problem()
    plan = local(data)
    federation = Federation(plan, data, tmp_path, seed=None)
    request = asked(plan, 1)
    first = said(federation.client(0), request).message
    (tmp_path / "0" / "state.npz").unlink()

    class Killed(BaseException):
        pass

    def kill(*args):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(SiteStore, "record", kill)
        with pytest.raises(Killed):
            federation.client(0).answer(request)
    second = said(federation.client(0), request)
    assert second.message.tobytes() != first.tobytes()
    assert len(federation.ledger(0).entries) == second.participations == 2


def test_a_site_restored_from_an_old_copy_notices_and_takes_no_part(tmp_path):
    data = problem()
    federation = Federation(local(data, rounds=12, participation_cap=6), data, tmp_path, quorum=0.5)
    federation.round()
    shutil.copytree(tmp_path / "2", tmp_path / "copy")
    for _ in range(3):
        federation.round()
    shutil.rmtree(tmp_path / "2")
    shutil.copytree(tmp_path / "copy", tmp_path / "2")
    assert federation.round().declined == {"2": "old-ledger"}
    assert federation.server.state.accounted[2] >= 4  # the messages that were taken are not forgotten


def test_an_old_ledger_beside_a_new_state_is_noticed_though_the_server_says_nothing(tmp_path):
    """A server that claims to have no message must not get one that a restored ledger no longer counts."""
    data = problem()
    plan = local(data)
    client = Federation(plan, data, tmp_path).client(0)
    ledger = tmp_path / "0" / "ledger.jsonl"
    said(client, asked(plan, 1))
    copy = ledger.read_bytes()
    for number in (2, 3):
        assert said(client, asked(plan, number)).status == "moved"
    ledger.write_bytes(copy)
    assert said(client, asked(plan, 4)).reason == "old-ledger"


@pytest.mark.parametrize("damage", ["a line left out", "a cost changed"])
def test_a_changed_ledger_is_noticed_without_a_state_to_compare_it_with(tmp_path, damage):
    """Its lines are chained by checks: what was spent cannot be talked down, nor lost unnoticed."""
    data = problem()
    plan = local(data)
    client = Federation(plan, data, tmp_path).client(0)
    for number in (1, 2, 3):
        assert said(client, asked(plan, number)).status == "moved"
    (tmp_path / "0" / "state.npz").unlink()
    ledger = tmp_path / "0" / "ledger.jsonl"
    lines = ledger.read_text().splitlines()
    cost = re.search(r'"record": ([0-9.]+)', lines[2]).group(1)
    changed = [*lines[:2], *lines[3:]] if damage == "a line left out" else [x.replace(cost, "0.1") for x in lines]
    ledger.write_text("\n".join(changed) + "\n")
    assert said(client, asked(plan, 4)).reason == "ledger"
    ledger.write_text("\n".join(lines) + "\n")
    assert said(client, asked(plan, 4)).reason == ""


def test_a_server_killed_after_it_asked_knows_that_messages_may_have_left(tmp_path):
    """Who was asked is on the disk before anybody is asked: an answer that was lost with the server counts."""
    data = problem()
    federation = Federation(local(data), data, tmp_path)
    federation.server.open_round([0, 1])
    federation.forget_server()
    assert federation.server.state.accounted.tolist() == [1, 1, 0, 0, 0, 0]


def test_a_ledger_is_not_made_anew_over_the_traces_of_an_old_one(tmp_path):
    data = problem()
    federation = Federation(local(data), data, tmp_path)
    federation.round()
    (tmp_path / "1" / "ledger.jsonl").unlink()
    with pytest.raises(ValueError, match="taken part already"):
        SiteStore.create(tmp_path / "1")
    (tmp_path / "1" / "state.npz").unlink()
    with pytest.raises(ValueError, match="taken part already"):
        SiteStore.create(tmp_path / "1")


def test_a_run_with_a_trusted_server_does_not_mend_the_ledger_that_local_runs_need(tmp_path):
    data = problem()
    federation = Federation(local(data, rounds=3), data, tmp_path / "local")
    federation.run()
    (tmp_path / "local" / "0" / "ledger.jsonl").write_text("garbage\n")
    rows = data.rows.take(np.array([0]))
    store = SiteStore(tmp_path / "local" / "0")
    trusted = anchored(data)
    assert said(Client(trusted, 0, rows, store), asked(trusted, 1)).status == "moved"
    assert said(Client(federation.plan, 0, rows, store), asked(federation.plan, 3)).reason == "ledger"


@pytest.mark.parametrize("share", [1.0, 0.34], ids=["everyone", "a sample"])
@pytest.mark.parametrize("copied", ["state", "folder"])
def test_a_server_restored_from_an_old_copy_counts_every_release(tmp_path, copied, share):
    """With its log, by the log; without, by the sites. The noise of a round that was released is never drawn again."""
    data = problem()
    size = max(2, round(share * SITES))
    plan = anchored(data, rounds=14, sample_size=size)
    federation = Federation(plan, data, tmp_path, seed=None)
    releases = set()

    def play(rounds):
        for _ in range(rounds):
            if federation.server.finished:
                return
            if federation.round() is None:
                assert federation.server.abandon_round()
            else:
                releases.add(federation.server.state.public.tobytes())

    play(2)
    shutil.copytree(tmp_path / "server", tmp_path / "copy")
    play(4)
    federation.forget_server()
    if copied == "folder":
        shutil.rmtree(tmp_path / "server")
        shutil.copytree(tmp_path / "copy", tmp_path / "server")
    else:
        shutil.copy(tmp_path / "copy" / "server.npz", tmp_path / "server" / "server.npz")
        assert federation.server.state.rounds == 6
    play(14)
    missed = 0 if copied == "state" or share == 1.0 else 2  # a sample of others than then may not know of a round
    assert len(releases) <= federation.server.state.rounds + missed
    assert federation.server.status in ("finished", "lost")


def test_a_server_that_lost_everything_does_not_call_the_start_a_model(tmp_path):
    data = problem()
    federation = Federation(anchored(data, rounds=3, tail_average=0.5), data, tmp_path)
    federation.run()
    federation.forget_server()
    shutil.rmtree(tmp_path / "server")
    assert federation.round() is None
    assert federation.server.abandon_round()
    assert federation.server.status == "lost"
    assert federation.server.guarantees()[0].epsilon == pytest.approx(spent(federation.plan, 3).epsilon)
    assert not (tmp_path / "server" / "model.json").exists()
    assert json.loads((tmp_path / "server" / "run.json").read_text())["status"] == "lost"


def test_a_tail_average_is_of_the_rounds_that_were_run(tmp_path):
    data = problem(clip=None)
    plan = anchored(data, rounds=40, noise_std=0.0, radius=50.0, tail_average=0.5)
    federation = Federation(plan, data, tmp_path)
    for _ in range(25):
        federation.round()
    federation.forget_server()
    path = tmp_path / "server" / "rounds.jsonl"
    path.write_text(path.read_text().replace('"round": 25', '"round": 30'))  # five more were logged than are known of
    model = federation.run()
    best = hp.methods.private_admm(data, 400, 3.0, noise_std=0.0).run().model
    np.testing.assert_allclose(model, best, atol=0.05)


def test_what_was_killed_before_it_was_told_is_told_later(tmp_path, monkeypatch):
    data = problem()
    federation = Federation(anchored(data, rounds=2), data, tmp_path)
    federation.round()

    class Killed(BaseException):
        pass

    def kill(*args):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(federation.server.store, "tell", kill)
        with pytest.raises(Killed):
            federation.round()
    federation.forget_server()
    assert federation.server.finished
    assert json.loads((tmp_path / "server" / "run.json").read_text())["rounds"] == 2
    assert (tmp_path / "server" / "model.json").exists()
    assert [line["round"] for line in disk.read_lines(tmp_path / "server" / "rounds.jsonl")] == [1, 2]


# --- sites that lie


@pytest.mark.parametrize("value", ["1, 2", [0.0] * FEATURES, 3, {}])
def test_a_vector_in_the_header_is_no_vector(value):
    data = problem()
    federation = Federation(local(data), data, quorum=0.5)

    def carry(site, reply):
        if site != 1:
            return reply
        start = len(b"hushpoint federated 1\n") + 8
        header = json.loads(reply[start : reply.index(b"}}", start) + 2] if b"}}" in reply else b"{}")
        header.update({"message": value, "vectors": {}})
        text = json.dumps(header).encode()
        return b"hushpoint federated 1\n" + len(text).to_bytes(4, "little") + (0).to_bytes(4, "little") + text

    line = federation.round(carry)
    assert "1" in line.refused
    assert federation.server.receive(SITES, b"").status == "refused"
    assert federation.server.receive(-1, b"").status == "refused"


@pytest.mark.parametrize("huge", [1.7e308, 1e200])
def test_huge_numbers_do_not_pass_where_nothing_bounds_a_message(huge):
    data = problem(clip=None)
    federation = Federation(local(data, noise_std=0.0), data, quorum=0.5)

    def carry(site, reply):
        answer = decode(reply, Reply)
        fields = {name: getattr(answer, name) for name in answer.__dataclass_fields__}
        return encode(Reply(**{**fields, "message": np.full(FEATURES, huge)})) if site == 1 else reply

    assert "1" in federation.round(carry).refused
    assert np.isfinite(federation.server.model).all()


def test_a_site_that_claims_rounds_that_do_not_exist_is_refused():
    data = problem()
    federation = Federation(local(data), data, quorum=0.5)

    def carry(site, reply):
        answer = decode(reply, Reply)
        fields = {name: getattr(answer, name) for name in answer.__dataclass_fields__}
        lie = {"status": "declined", "reason": "stale", "last_round": 2**32 - 1, "message": None}
        return encode(Reply(**{**fields, **lie})) if site == 1 else reply

    line = federation.round(carry)
    assert "1" in line.refused
    assert federation.server.state.rounds == 1


def test_a_cap_on_a_sum_is_the_servers_to_keep(tmp_path):
    data = problem()
    plan = local(data, rounds=10, noise="sum", clip_residual=0.4, participation_cap=3)
    federation = Federation(plan, data, tmp_path, quorum=0.5)
    answered = 0
    for _ in range(10):
        if federation.server.finished:
            break
        (tmp_path / "2" / "ledger.jsonl").write_text("garbage\n")
        answered += 2 in federation.round().answered
    assert answered == 3


def test_a_message_that_left_and_was_lost_is_counted_after_an_anchor_too(tmp_path):
    data = problem()
    federation = Federation(local(data), data, tmp_path, quorum=0.5)
    federation.round()
    (tmp_path / "2" / "state.npz").write_bytes(b"garbage")

    def carry(site, reply):
        return None if site == 2 and decode(reply, Reply).status == "moved" else reply

    federation.round(carry)
    assert len(federation.ledger(2).entries) == federation.server.state.accounted[2] == 2


# --- words


def test_statements_name_the_count_and_the_source_that_they_are_for(tmp_path):
    data = problem()
    plan = local(data, participation_cap=4)
    assert spent(plan, 50).mu == pytest.approx(np.sqrt(50) * spent(plan, 1).mu)
    assert "50 participations" in str(spent(plan, 50))
    assert "at most" not in str(spent(plan, 50))
    seeded = run_in_process(plan, data, seed=3, directory=tmp_path / "seeded")
    run = json.loads((tmp_path / "seeded" / "run" / "run.json").read_text())
    assert all("not for release" in line["source"] for line in [*run["spent"], *run["promised"]])
    assert all("not for release" in str(guarantee) for guarantee in seeded.guarantees)
    secure = run_in_process(plan, data)
    assert all("drawn by each site itself" in str(guarantee) for guarantee in secure.guarantees)


def test_what_is_published_of_a_secret_sample_names_nobody(tmp_path):
    data = problem()
    plan = hp.methods.dp_sgd(data, 4, 0.3, sample_prob=0.5, noise_std=0.5)
    run_in_process(plan, data, seed=1, directory=tmp_path)
    for name in ("run.json", "model.json"):
        record = json.loads((tmp_path / "run" / name).read_text())
        assert record.get("participations") is None
        assert not {"asked", "answered", "bytes_up"} & set(record)


def test_a_limit_does_not_price_what_nobody_knows(tmp_path):
    data = problem()
    plan = local(data, rounds=50, noise_std=20.0)
    store = SiteStore.create(tmp_path / "site", before=3)
    limit = hp.Budget(epsilon=50.0, delta=1e-6)
    client = Client(plan, 0, data.rows.take(np.array([0])), store, limit=limit)
    assert said(client, asked(plan, 4)).reason == "limit"
