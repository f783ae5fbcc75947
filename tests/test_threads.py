"""Threads: whoever does a part, the result is the same, and errors come through."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import hushpoint as hp
from hushpoint._threads import ahead, share, threads
from hushpoint.kernels import rows as compiled_rows
from hushpoint.kernels import shortcut
from hushpoint.noise import Source, seeded_source

RNG = np.random.default_rng(11)


@pytest.mark.parametrize("count", [1, 2, 7, 1000])
@pytest.mark.parametrize("workers", ["1", "2", "5"])
def test_every_part_is_done_once(monkeypatch, count, workers):
    # Catches: bounds that overlap or leave a gap.
    monkeypatch.setenv("HUSHPOINT_THREADS", workers)
    done = np.zeros(count, dtype=int)

    def work(start, stop):
        done[start:stop] += 1

    share(work, count)
    assert (done == 1).all()


def test_several_threads_take_part(monkeypatch):
    # Catches: parts that all run on one thread.
    monkeypatch.setenv("HUSHPOINT_THREADS", "3")
    seen, all_are_here = set(), threading.Event()

    def work(start, stop):
        seen.add(threading.get_ident())
        if len(seen) == 3:
            all_are_here.set()
        assert all_are_here.wait(60), "a thread never came"

    share(work, 12)
    assert len(seen) == 3
    monkeypatch.setenv("HUSHPOINT_THREADS", "none of them")
    assert threads() >= 1


def test_an_error_in_a_part_is_raised(monkeypatch):
    # Catches: a failed part that nobody notices.
    monkeypatch.setenv("HUSHPOINT_THREADS", "2")

    def work(start, stop):
        if start <= 6 < stop:
            raise RuntimeError("part 6")

    with pytest.raises(RuntimeError, match="part 6"):
        share(work, 8)
    with pytest.raises(RuntimeError, match="part 6"):
        list(ahead(lambda k: work(k, k + 1), range(8)))


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_work_ahead_keeps_its_order(monkeypatch, workers, count):
    # Catches: results handed to the wrong item.
    monkeypatch.setenv("HUSHPOINT_THREADS", workers)
    assert list(ahead(lambda k: k * k, range(count))) == [(k, k * k) for k in range(count)]


@pytest.mark.parametrize("make", [lambda: seeded_source(3), lambda: Source(np.arange(8, dtype=np.uint32))])
def test_draws_do_not_depend_on_the_number_of_threads(monkeypatch, make):
    # Catches: an address that depends on who draws.
    source, drawn = make(), []
    for workers in ("1", "2", "3"):
        monkeypatch.setenv("HUSHPOINT_THREADS", workers)
        drawn.append(source.normals("block", np.arange(1500), 4, 100, 2.0))
    np.testing.assert_array_equal(drawn[0], drawn[1])
    np.testing.assert_array_equal(drawn[0], drawn[2])
    np.testing.assert_array_equal(drawn[0][1234], source.normals("block", [1234], 4, 100, 2.0)[0])


def problem(items, users=False):
    X = RNG.normal(size=(items, 3))
    y = X @ np.array([1.0, -1.0, 0.5]) + RNG.normal(size=items)
    groups = np.arange(items) // 2 if users else None
    return hp.Problem(X, y, regularizer=hp.regularizers.L1(0.01), row_norm=1.0, clip=0.5, groups=groups)


PLANS = {
    "shortcut": lambda p: hp.methods.centralized_admm(p, 4, 1.0, noise_std=0.3),
    "rounds": lambda p: hp.methods.federated_admm(p, 4, 1.0, sample_prob=0.7, noise_std=0.3),
    "clipped": lambda p: hp.methods.federated_admm(p, 4, 1.0, noise_std=0.3, clip_residual=0.1),
}


@pytest.mark.parametrize("kind", PLANS)
def test_models_do_not_depend_on_the_number_of_threads(monkeypatch, kind):
    # Catches: sums of parts added in the order in which threads finish; draws that depend on who makes them.
    monkeypatch.setattr(shortcut, "_WORTH_SHARING", 1)
    monkeypatch.setattr(compiled_rows, "_WORTH_SHARING", 1)
    plan = PLANS[kind](problem(40_000))
    models = []
    for workers in ("1", "2", "3"):
        monkeypatch.setenv("HUSHPOINT_THREADS", workers)
        models.append(plan.run(seed=1).model)
    np.testing.assert_array_equal(models[0], models[1])
    np.testing.assert_array_equal(models[0], models[2])


@pytest.mark.parametrize("kind", ["shortcut", "rounds"])
def test_the_loop_on_threads_is_the_loop_on_one(monkeypatch, kind):
    # Catches: a step of the shared loop that uses another address, relaxation or public point.
    plan = PLANS[kind](problem(20_000))
    together = plan.run(seed=1)
    for module in (shortcut, compiled_rows):
        monkeypatch.setattr(module, "_WORTH_SHARING", 1)
    shared = plan.run(seed=1)
    np.testing.assert_allclose(shared.model, together.model, rtol=0, atol=1e-12)
    np.testing.assert_allclose(shared.state.blocks, together.state.blocks, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(shared.state.participations, together.state.participations)
