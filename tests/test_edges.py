"""Numbers at the edge of what floats hold, plans at the edge of what was accounted: one record must not break out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

import hushpoint as hp
from hushpoint.operators import Gradient

DELTA = 1e-5


def flat(value: float, target: float, width: int = 1) -> tuple[np.ndarray, np.ndarray]:
    X, y = np.full((10, width), 0.5), np.zeros(10)
    X[0], y[0] = value, target
    return X, y


CLIPPED = {
    "dp_sgd": lambda p: hp.methods.dp_sgd(p, 1, 1.0, noise_std=1.0),
    "dp_cd": lambda p: hp.methods.dp_cd(p, 1, 1.0, noise_std=1.0),
    "dp_fedavg": lambda p: hp.methods.dp_fedavg(p, 1, 3, 1.0, 1.0, noise_std=1.0),
    "private_admm": lambda p: hp.methods.private_admm(p, 1, 1.0, noise_std=1.0),
    "centralized_admm": lambda p: hp.methods.centralized_admm(p, 2, 1.0, noise_std=1.0),
    "anchored_admm": lambda p: hp.methods.anchored_admm(p, 2, 1.0, noise_std=1.0),
}


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("value", [1e-320, 1e-170, 1e-160, 1e-130, 1e200])
@pytest.mark.parametrize("method", CLIPPED)
def test_a_row_whose_square_is_no_number_stays_within_its_clip(method, value, sparse):
    # Catches: |a|^2 that underflows, so that the slope limit C/|a| is infinite and the row escapes; or overflows.
    X, y = flat(value, 1e200)
    plain = hp.Problem(*flat(0.0, 0.0), clip=1.0)
    problem = hp.Problem(csr_array(X) if sparse else X, y, clip=1.0)
    with_row, without = (CLIPPED[method](p).run(seed=1, kernel="plain").model for p in (problem, plain))
    assert np.isfinite(with_row).all()
    assert np.abs(with_row - without).max() <= 2.0  # one row moves a mean gradient by 0.1, a prox by gamma at most
    assert np.isfinite(CLIPPED[method](problem).run(seed=1).model).all()


@pytest.mark.parametrize("kind", ["anchored", "sum", "clients"])
def test_a_message_that_overflows_is_cut_like_any_other(kind):
    # Catches: inf * 0 = nan in the clip: one record turned the released model into nan.
    X, y = flat(0.0, 1e308, width=2)
    X[0, 0] = 1e-3
    problem = hp.Problem(X, y, "squared", row_norm=1.0)
    plan = {
        "anchored": lambda: hp.methods.anchored_admm(problem, 2, 100.0, noise_std=1.0, radius=1.0),
        "sum": lambda: hp.methods.federated_admm(problem, 2, 100.0, noise="sum", clip_residual=1.0, noise_std=1.0),
        "clients": lambda: hp.methods.federated_admm(problem, 2, 100.0, clip_residual=1.0, noise_std=1.0),
    }[kind]()
    assert np.isfinite(plan.run(seed=1).model).all()


def test_models_published_on_the_way_lose_the_network_view():
    # Catches: a walk stopped and resumed a hundred times, a model each time, accounted as if only the last were seen.
    rng = np.random.default_rng(0)
    problem = hp.Problem(rng.normal(size=(50, 2)), rng.integers(0, 2, 50), "logistic", row_norm=1.0)
    budget = hp.Budget(1.0, 1e-6, view="network")
    plan = hp.methods.stateless_walk(problem, 100, 0.5, participation_cap=5, budget=budget)
    assert plan.run(seed=1).guarantee.view == "network"
    stopped = plan.run(seed=1, callback=lambda step, model: step == 3)
    assert stopped.guarantee.view == "messages"
    resumed = plan.run(state=stopped.state)
    assert resumed.guarantee.view == "messages"
    assert resumed.guarantee.epsilon > budget.epsilon


def test_a_plan_refuses_a_problem_with_other_facts_than_its_operator():
    # Catches: an operator certified for clipped rows that runs on rows without a bound.
    X, y = flat(0.3, 5.0)
    tight, loose = hp.Problem(X, y, clip=1.0, row_norm=1.0), hp.Problem(X, y, row_norm=1.0)
    operator = Gradient(tight.facts, 0.1, 10)
    plan = hp.Plan(operator, hp.schedules.EveryBlock(10), hp.noise.Noise(1.0, "sum"), steps=3)
    with pytest.raises(ValueError, match="other facts"):
        plan.on(loose)
    with pytest.raises(ValueError, match="other facts"):
        replace(plan, facts=tight.facts, problem=loose)


def test_a_state_is_not_continued_under_another_certificate():
    # Catches: steps done with a clip of 100 accounted by a plan whose clip is 1.
    X, y = flat(0.3, 5.0)

    def plan(clip):
        problem = hp.Problem(X, y, clip=clip, row_norm=1.0)
        operator = Gradient(problem.facts, 0.1, 10)
        return hp.Plan(
            operator, hp.schedules.EveryBlock(10), hp.noise.Noise(1.0, "sum"), steps=3, relaxation=1.0, problem=problem
        )

    state = plan(100.0).run(seed=0).state
    with pytest.raises(ValueError, match="another plan"):
        plan(1.0).run(state=state)


def test_observers_belong_to_the_network_view():
    # Catches: a sentence about certain peers for a viewer who sees everything; peers that do not exist.
    problem = hp.Problem.declared(20, 2, "logistic", row_norm=1.0)
    with pytest.raises(ValueError, match="observers"):
        hp.methods.dp_sgd(problem, 2, 1.0, noise_std=1.0).guarantee(DELTA, observers=[3])
    walk = hp.methods.stateless_walk(problem, 9, 1.0, noise_std=1.0)
    with pytest.raises(ValueError, match="observers is 99"):
        walk.guarantee(DELTA, view="network", observers=[99])
