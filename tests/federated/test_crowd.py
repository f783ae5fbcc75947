"""All sites of a process at once: the same rounds as sites one by one, in a small part of the time."""

import time

import federations
import numpy as np
import pytest
from test_lattice_rounds import on_lattice
from test_rounds import KINDS, plans

import hushpoint as hp
from hushpoint.federated import Reply, encode, run_in_process
from hushpoint.federated.crowd import Crowd
from hushpoint.federated.wire import encoded_size

CAPPED = {"participation_cap": 2}


def both(plan, data, **options):
    return [run_in_process(plan, data, apart=apart, **options) for apart in (True, False)]


@pytest.mark.parametrize("weights", ["items", "rows"])
@pytest.mark.parametrize("kind", [*KINDS, "lattice", "capped"])
def test_sites_together_are_the_sites_one_by_one(kind, weights):
    # Catches: noise of another site, blocks that are not kept, a cap or a weight that is forgotten, bytes made up.
    if kind == "lattice":
        data = federations.problem(weights)
        plan = on_lattice("anchored", data)
    elif kind == "capped":
        data = federations.problem(weights)
        plan = federations.local(data, rounds=6, **CAPPED)
    else:
        data, made = plans(weights)
        plan = made[kind]
    one_by_one, together = both(plan, data, seed=3)
    np.testing.assert_allclose(together.model, one_by_one.model, rtol=0, atol=1e-13)
    np.testing.assert_array_equal(together.participations, one_by_one.participations)
    for mine, theirs in zip(together.rounds, one_by_one.rounds, strict=True):
        assert {**vars(mine), "seconds": 0} == {**vars(theirs), "seconds": 0}
    assert together.server.status == one_by_one.server.status


def test_a_site_whose_numbers_fail_sends_a_move_without_its_data_and_spoils_no_others(monkeypatch):
    # Catches: a failure that names the site by its silence, and one that takes the data of all from the round.
    data = federations.problem()
    plan = federations.local(data, rounds=1)
    local = type(plan.operator).local

    def fails(self, prepared, chosen, block, z, relaxation, kick):
        sites = np.arange(self.blocks)[chosen]
        if 2 in sites and prepared is not crowd._bare:
            raise ArithmeticError("a solver that does not converge")
        return local(self, prepared, chosen, block, z, relaxation, kick)

    point = np.full(federations.FEATURES, 0.5)
    everyone = np.arange(federations.SITES)
    _, whole = Crowd(plan, data.rows, 1).move(everyone, 0, point)
    crowd = Crowd(plan, data.rows, 1)
    monkeypatch.setattr(type(plan.operator), "local", fails)
    moved, messages = crowd.move(everyone, 0, point)
    np.testing.assert_array_equal(moved, everyone)
    others = everyone != 2
    np.testing.assert_allclose(messages[others], whole[others], rtol=0, atol=1e-13)
    assert np.abs(messages[2] - whole[2]).max() > 1e-3


@pytest.mark.parametrize(("options", "most"), [(CAPPED, 2), ({}, 3)])
def test_a_site_moves_as_often_as_its_terms_allow_whoever_asks(options, most):
    # Catches: a cap that only the server keeps.
    data = federations.problem()
    crowd = Crowd(federations.local(data, rounds=3, **options), data.rows, 1)
    everyone, point = np.arange(federations.SITES), np.zeros(federations.FEATURES)
    moved = [len(crowd.move(everyone, 0, point)[0]) for _ in range(5)]
    assert moved == [federations.SITES] * most + [0] * (5 - most)
    assert (crowd.participations == most).all()


@pytest.mark.parametrize("far", [np.inf, np.nan, 1e200])
def test_no_site_moves_from_a_point_out_of_reach(far):
    data = federations.problem()
    crowd = Crowd(federations.local(data), data.rows, 1)
    moved, _ = crowd.move(np.arange(federations.SITES), 0, np.full(federations.FEATURES, far))
    assert len(moved) == 0 == crowd.participations.sum()


def test_sizes_of_many_records_are_those_of_each():
    numbers = np.array([0, 9, 10, 99, 100, 12345])
    record = Reply("run", 3, 0, "point", "moved", participations=0, last_round=3, message=np.ones(4))
    each = [
        Reply("run", 3, int(n), "point", "moved", participations=int(n) + 1, last_round=3, message=np.ones(4))
        for n in numbers
    ]
    assert encoded_size(record, site=numbers, participations=numbers + 1) == sum(len(encode(one)) for one in each)


def test_thousands_of_users_do_not_take_a_multiple_of_what_their_moves_take():
    # Sites one by one took 1000 times what the plan does; benchmarks/crowd.py prints what it is now.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 5)) / 4
    data = hp.Problem(X, X @ rng.normal(size=5), row_norm=1.0, clip=2.0)
    plan = hp.methods.anchored_admm(data, rounds=10, gamma=2.0, noise_std=0.1)

    def seconds(run):
        run()
        began = time.process_time()
        run()
        return time.process_time() - began

    alone = seconds(lambda: plan.run(seed=1, kernel="plain"))
    assert seconds(lambda: run_in_process(plan, data, seed=1)) < 25 * max(alone, 0.01)
