"""The same plan run by a server and sites, whatever is lost, killed or forgotten on the way."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from federations import SITES, Federation, anchored, local, problem

import hushpoint as hp
from hushpoint import _files
from hushpoint.federated import Reply, ServerStore, SiteStore, decode, disk, encode, ledger, record, run_in_process


def plans(weights):
    data = problem(weights)
    return data, {
        "local, all": local(data),
        "local, fixed size and cap": local(data, sample_size=4, participation_cap=3),
        "local, Poisson": local(data, sample_prob=0.5),
        "local, clipped residual": local(data, clip_residual=0.4),
        "summed, Poisson": local(data, sample_prob=0.5, noise="sum", clip_residual=0.4),
        "anchored, all": anchored(data, tail_average=0.5),
        "anchored, fixed size": anchored(data, sample_size=4),
        "gradient, all": hp.methods.dp_sgd(data, 6, 0.3, noise_std=0.1),
        "gradient, Poisson": hp.methods.dp_sgd(data, 6, 0.3, sample_prob=0.5, noise_std=0.1),
        "averaging": hp.methods.dp_fedavg(data, 6, 3, 0.1, 1.0, noise_std=0.1),
    }


KINDS = tuple(plans("rows")[1])


@pytest.mark.parametrize("apart", [True, False], ids=["apart", "together"])
@pytest.mark.parametrize("weights", ["items", "rows"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_federation_computes_what_the_engine_computes(kind, weights, apart):
    data, made = plans(weights)
    plan = made[kind]
    result = run_in_process(plan, data, seed=11, apart=apart)
    np.testing.assert_allclose(result.model, plan.run(seed=11, kernel="plain").model, rtol=0, atol=1e-13)
    # Each answered request is a participation in the site's own ledger.
    counts = result.participations.tolist()
    assert counts == [sum(site in line.answered for line in result.rounds) for site in range(SITES)]
    assert counts == result.server.state.participations.tolist()


@pytest.mark.parametrize("make", [local, anchored])
def test_the_guarantee_is_the_plans_once_every_site_took_part_in_every_round(make):
    data = problem()
    plan = make(data)
    result = run_in_process(plan, data, seed=1)
    for said in result.guarantees:
        assert said.epsilon == pytest.approx(plan.guarantee(said.delta, unit=said.unit).epsilon, rel=1e-12)
        assert "not for release" in str(said)
    assert {said.unit for said in result.guarantees} == {"user", "record"}
    shorter = result.server.guarantees(site=0)
    assert shorter[0].epsilon <= result.guarantees[0].epsilon


def test_what_is_spent_grows_with_participations_only_where_the_noise_is_local():
    data = problem()
    quiet, loud = Federation(local(data), data), Federation(anchored(data), data)
    for federation, grows in ((quiet, False), (loud, True)):
        federation.round()
        first = [federation.server.guarantees(site)[0].epsilon for site in (0, 1, 2)]
        federation.server.quorum = 0.01
        federation.round(lambda site, reply: reply if site == 0 else None, available=[0, 1])
        spent = [federation.server.guarantees(site)[0].epsilon for site in (0, 1, 2)]
        assert spent[0] > first[0]
        assert spent[1] > first[1]  # its message was lost, but it may have left
        assert (spent[2] > first[2]) == grows  # it was away


class Killed(BaseException):
    """Stands for kill -9: nothing below it may clean up more than the operating system would."""


def _killer(monkeypatch, at, before):
    """Die before or after the n-th write to any disk."""
    count = 0

    def dying(write):
        def wrapped(*args, **options):
            nonlocal count
            count += 1
            if count == at and before:
                raise Killed
            done = write(*args, **options)
            if count == at:
                raise Killed
            return done

        return wrapped

    for module in (ledger, record):
        monkeypatch.setattr(module, "append_line", dying(disk.append_line))
        monkeypatch.setattr(module, "save_arrays", dying(_files.save_arrays))


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("make", [local, anchored], ids=["local", "anchored"])
def test_a_kill_at_any_write_of_anybody_changes_nothing(tmp_path, monkeypatch, make, before):
    """A server that drew sample or noise anew for a round that had left, or a site that moved twice, would show."""
    data = problem()
    plan = make(data, rounds=2, sample_size=4 if make is local else 3)
    writes = 0
    at = 1
    while True:
        folder = tmp_path / f"killed at {at}"
        federation = Federation(plan, data, folder)
        left = {}

        def carry(site, reply, left=left):
            said = decode(reply, Reply)
            if said.status == "moved":
                left.setdefault((site, said.round), set()).add(said.message.tobytes())
            return reply

        died = False
        with monkeypatch.context() as patch:
            _killer(patch, at, before)
            try:
                federation.run(carry)
            except Killed:
                died = True
        federation.forget_server()
        if not died:
            break
        model = federation.run(carry)
        np.testing.assert_allclose(model, plan.run(seed=5, kernel="plain").model, rtol=0, atol=1e-12)
        # One message a round and site, however often it was carried; each in the ledger, and none counted less.
        assert all(len(messages) == 1 for messages in left.values())
        for site in range(SITES):
            rounds = [entry.round for entry in federation.ledger(site).entries]
            sent = {round for who, round in left if who == site}
            assert sent <= set(rounds)
            assert len(rounds) - len(set(rounds)) <= 1
        lines = disk.read_lines(folder / "server" / "rounds.jsonl")
        assert [line["round"] for line in lines] == [1, 2]
        federation.forget_server()
        shutil.rmtree(folder)
        at, writes = at + 1, writes + 1
    assert writes > 20


def test_lost_messages_do_not_bend_the_fixed_point():
    """A site that kept a move which never arrived would pull the mean of the blocks away from what the server has."""
    data = problem(clip=None)
    rng = np.random.default_rng(0)
    for make in (local, anchored):
        options = {"radius": 50.0} if make is anchored else {}
        plan = make(data, rounds=150, noise_std=0.0, **options)
        federation = Federation(plan, data, quorum=0.3)
        model = federation.run(lambda site, reply: reply if rng.random() < 0.7 else None)
        best = hp.methods.private_admm(data, 400, 3.0, noise_std=0.0).run().model
        np.testing.assert_allclose(model, best, rtol=0, atol=1e-5)


@pytest.mark.parametrize("loss", ["state", "state of all", "server's last rounds"])
@pytest.mark.parametrize("make", [local, anchored], ids=["local", "anchored"])
def test_a_lost_state_is_noticed_restored_and_counted(tmp_path, make, loss):
    data = problem(clip=None)
    options = {"radius": 50.0} if make is anchored else {}
    plan = make(data, rounds=60, noise_std=0.0, **options)
    federation = Federation(plan, data, tmp_path, quorum=0.5)
    statuses = []

    def carry(site, reply):
        statuses.append(decode(reply, Reply).status)
        return reply

    for number in range(70):
        if federation.server.finished:
            break
        if number == 5:
            shutil.copy(tmp_path / "server" / "server.npz", tmp_path / "copy")
        if number == 10:
            if loss.startswith("state"):
                for site in range(SITES) if "all" in loss else [2]:
                    (tmp_path / str(site) / "state.npz").write_bytes(b"garbage")
            else:
                federation.forget_server()
                shutil.copy(tmp_path / "copy", tmp_path / "server" / "server.npz")
        if federation.round(carry) is None:
            assert federation.server.abandon_round()
    assert "anchor" in statuses
    best = hp.methods.private_admm(data, 400, 3.0, noise_std=0.0).run().model
    np.testing.assert_allclose(federation.server.model, best, rtol=0, atol=1e-5)
    # A server restored from an old copy goes on after the last round that was ever opened: all releases are counted.
    assert federation.server.state.rounds == 60
    assert federation.server.state.participations.max() == max(
        len(federation.ledger(site).entries) for site in range(SITES)
    )


def test_a_site_without_its_ledger_takes_no_part_until_a_person_vouches(tmp_path):
    data = problem()
    federation = Federation(local(data, rounds=12, participation_cap=6), data, tmp_path, quorum=0.5)
    federation.round()
    federation.round()
    lines = (tmp_path / "2" / "ledger.jsonl").read_text().splitlines()
    for damage in (lines[:1] + lines[2:], [lines[0], lines[1].replace('"round": 1', '"round": 9'), lines[2]], None):
        if damage is None:
            (tmp_path / "2" / "ledger.jsonl").unlink()
        else:
            (tmp_path / "2" / "ledger.jsonl").write_text("\n".join(damage) + "\n")
        assert federation.round().declined == {"2": "ledger"}
    with pytest.raises(ValueError, match="whole"):
        SiteStore.readmit(tmp_path / "1", 2)
    SiteStore.readmit(tmp_path / "2", 5)
    assert 2 in federation.round().answered
    # Five that were vouched for and one more: the cap of six.
    assert federation.server.state.participations[2] == 6
    with pytest.raises(ValueError, match="the run is spent"):
        federation.round()
    assert len(federation.ledger(2).entries) == 1


def test_a_trusted_server_counts_releases_so_a_lost_ledger_stops_nobody(tmp_path):
    data = problem()
    federation = Federation(anchored(data), data, tmp_path)
    federation.round()
    (tmp_path / "2" / "ledger.jsonl").write_text("garbage\n")
    assert 2 in federation.round().answered


def test_sites_come_late_and_go_early():
    data = problem()
    federation = Federation(local(data, rounds=4, sample_size=3), data)
    first = federation.round(available=[0, 1, 4])
    assert first.asked == [0, 1, 4]  # a sample of three of those who are there
    second = federation.round(available=[0, 1])
    assert second.asked == [0, 1]
    gradients = hp.methods.dp_sgd(data, 4, 0.3, sample_size=3, noise_std=0.1)
    sampled = Federation(gradients, data, quorum=0.01)
    drawn = gradients.schedule.draw(0, sampled.server._source, -1)
    # Where the secret sample amplifies, nobody takes the place of a site that is away.
    assert sampled.server._choose(available=[0, 1, 2]).tolist() == drawn.tolist()


def test_a_second_server_on_the_same_folder_and_another_plan_in_it_are_refused(tmp_path):
    data = problem()
    federation = Federation(local(data), data, tmp_path)
    federation.round()
    with pytest.raises(ValueError, match="another process"):
        ServerStore(tmp_path / "server").open(federation.plan, "x")
    federation.forget_server()
    with pytest.raises(ValueError, match="another plan"):
        Federation(local(data, noise_std=0.6), data, tmp_path).server  # noqa: B018
    (tmp_path / "server" / "server.npz").write_bytes(b"garbage")
    with pytest.raises(ValueError, match=r"server.npz.*copy"):
        federation.server  # noqa: B018
    (tmp_path / "server" / "server.npz").unlink()
    with pytest.raises(ValueError, match=r"server.npz.*copy"):
        federation.server  # noqa: B018


def test_bytes_of_a_round_are_the_numbers_and_little_more():
    data = problem()
    plan = anchored(data)
    line = Federation(plan, data).round()
    numbers = 8 * plan.operator.message_size * SITES
    assert numbers < line.bytes_down <= numbers + 512 * SITES
    assert numbers < line.bytes_up <= numbers + 512 * SITES


@pytest.mark.parametrize(
    "spoil",
    [
        lambda m: np.full_like(m, np.nan),
        lambda m: np.append(m, 1.0),
        lambda m: m[:-1],
        lambda m: np.zeros(0),
        lambda m: np.tile(m, 10_000),
        lambda m: m + 1e6,
        lambda m: np.full_like(m, 1e308),
    ],
    ids=["nan", "one more", "one less", "none", "over-long", "far", "overflowing"],
)
@pytest.mark.parametrize("kind", ["local, all", "summed, Poisson", "anchored, all", "gradient, all", "averaging"])
def test_a_message_that_cannot_be_one_is_refused_and_changes_nothing(kind, spoil):
    data, made = plans("rows")
    plan = made[kind]
    federation = Federation(plan, data, quorum=0.1)

    def carry(site, reply):
        said = decode(reply, Reply)
        if site != 2 or said.message is None:
            return reply
        fields = {name: getattr(said, name) for name in said.__dataclass_fields__}
        return encode(Reply(**{**fields, "message": spoil(said.message)}))

    spoiled = [federation.round(carry) for _ in range(3)]
    without = Federation(plan, data, quorum=0.1)
    for _ in range(3):
        without.round(lambda site, reply: None if site == 2 else reply)
    assert all("2" in line.refused for line in spoiled if 2 in line.asked)
    assert any(2 in line.asked for line in spoiled)
    np.testing.assert_array_equal(federation.server.model, without.server.model)
    assert np.isfinite(federation.server.model).all()


def test_a_refused_message_counts_for_its_site_and_its_next_one_is_welcome():
    data = problem()
    federation = Federation(local(data), data, quorum=0.5)
    federation.round(lambda site, reply: reply[:-9] if site == 2 else reply)
    assert federation.server.state.known.tolist() == [1, 1, 0, 1, 1, 1]
    assert 2 in federation.round().answered
    assert [entry.round for entry in federation.ledger(2).entries] == [1, 2]
    assert federation.server.state.participations[2] == 2
