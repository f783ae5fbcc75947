"""The planner and the early-stopping model it rests on."""

from __future__ import annotations

import inspect
import itertools
import math

import numpy as np
import pytest

import hushpoint as hp
from hushpoint.estimators.early_stopping import bias, expected_excess, variance
from hushpoint.estimators.metric import Moments, choose_metric
from hushpoint.estimators.planner import plan_parameters

BUDGET = hp.Budget(1.0, 1e-5)


def tail_average_law(curvature: float, step: float, steps: int) -> tuple[float, float]:
    """Exact bias and variance of the tail average of ``x <- x - step (curvature (x - 1) + noise)``, by its weights."""
    factor = 1 - step * curvature
    tail = np.arange(steps // 2 + 1, steps + 1)
    # The noise of step j reaches the iterate k >= j with factor^(k - j).
    reach = [(factor ** (tail[tail >= j] - j)).sum() / len(tail) for j in range(1, steps + 1)]
    return float((factor**tail).mean()), float(step**2 * np.square(reach).sum())


@pytest.mark.parametrize("progress", [0.01, 0.3, 1.0, 4.0])
def test_bias_and_variance_are_those_of_many_small_steps(progress: float) -> None:
    # Catches a wrong weight of the noise before the tail, or an average over the wrong half.
    steps = 4000
    left, spread = tail_average_law(progress, 1 / steps, steps)  # time 1, curvature = progress
    assert bias(np.array([progress]))[0] == pytest.approx(left, rel=2e-3)
    # One step's noise has variance `steps` where noise = 1.
    assert variance(np.array([progress]))[0] == pytest.approx(spread * steps, rel=2e-3)


def test_the_limits_of_the_variance() -> None:
    assert variance(np.array([0.0]))[0] == pytest.approx(2 / 3, rel=1e-3)
    assert variance(np.array([1e4]))[0] == pytest.approx(2e-8, rel=1e-2)


def test_expected_excess_is_the_error_of_a_simulated_descent() -> None:
    random = np.random.default_rng(0)
    moments, signal = np.array([1.0, 0.1]), np.array([2.0, 0.5])
    steps, step, curvature, noise = 400, 0.02, 0.5, 0.02
    best = np.sqrt(signal / moments)
    models, tail = np.zeros((4000, 2)), np.zeros((4000, 2))
    for done in range(steps):
        kick = noise * np.sqrt(steps) * random.standard_normal(models.shape)
        models = models - step * (curvature * moments * (models - best) + kick)
        tail += models if done >= steps // 2 else 0
    measured = (((tail / (steps // 2) - best) ** 2 * moments).sum(axis=1)).mean()
    predicted = expected_excess(moments, signal, np.array([step * steps]), np.array([noise]), curvature)[0]
    assert measured == pytest.approx(predicted, rel=0.03)


def test_the_plan_has_no_way_to_see_data() -> None:
    assert not {"X", "y", "problem", "rows", "data"} & set(inspect.signature(plan_parameters).parameters)
    assert plan_parameters(1000, 20, BUDGET) == plan_parameters(1000, 20, BUDGET)


def test_shares_add_up_to_the_budget_and_never_over() -> None:
    for epsilon in (1e-3, 0.1, 1.0, 10.0):
        for penalty, features in itertools.product((None, "l2", "l1"), (20, 5000)):
            plan = plan_parameters(5000, features, hp.Budget(epsilon, 1e-6), penalty=penalty)
            parts = (plan.target_mu, plan.mean_mu, plan.moment_mu, plan.length_mu, plan.descent_mu, plan.calibration_mu)
            assert hp.privacy.gdp_epsilon(float(np.sqrt(np.square(parts).sum())), 1e-6) <= epsilon
            assert np.sqrt(np.square(parts).sum()) == pytest.approx(plan.mu, rel=1e-12)
            assert (plan.mean_mu > 0) is (plan.metric == "diagonal")
            assert (plan.calibration_mu > 0) is (penalty is None)


def test_nothing_is_paid_for_what_is_not_bought() -> None:
    # Catches: means bought where no constant could take them off the rows, or a scale learned against a penalty.
    assert plan_parameters(5000, 5000, BUDGET, fit_intercept=False).mean_share == 0
    assert plan_parameters(5000, 20, BUDGET).mean_share == 0
    assert plan_parameters(5000, 20, BUDGET, penalty="l2").calibration_share == 0
    for n in (10, 1000, 10**6):
        share = plan_parameters(n, 20, BUDGET).calibration_share
        assert 0.02 <= share <= 0.15


def test_more_budget_means_more_steps_and_finer_moments() -> None:
    plans = [plan_parameters(5000, 20, hp.Budget(epsilon, 1e-6)) for epsilon in (0.03, 0.3, 3.0)]
    assert [plan.steps for plan in plans] == sorted({plan.steps for plan in plans})
    assert [plan.moment_share for plan in plans] == sorted(plan.moment_share for plan in plans)


def test_replacing_somebody_costs_twice_what_leaving_out_costs() -> None:
    replaced = plan_parameters(5000, 20, BUDGET, adjacency="replace-one")
    left_out = plan_parameters(5000, 20, BUDGET, adjacency="zero-out")
    assert left_out.strength == pytest.approx(2 * replaced.strength)


def test_wide_models_and_l1_penalties_take_a_diagonal_metric() -> None:
    assert plan_parameters(1000, 50, BUDGET).metric == "full"
    assert plan_parameters(1000, 5000, BUDGET).metric == "diagonal"
    assert plan_parameters(1000, 50, BUDGET, penalty="l1").metric == "diagonal"
    assert plan_parameters(1000, 50, BUDGET, penalty="l2").metric == "full"


def test_the_plan_explains_itself() -> None:
    text = str(plan_parameters(32561, 108, BUDGET, adjacency="zero-out"))
    assert "noisy gradient steps on 32561 items and 109 coefficients" in text
    assert "no grid search" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0, "p": 3, "budget": BUDGET}, "n is 0"),
        ({"n": 10, "p": -1, "budget": BUDGET}, "p is -1"),
        ({"n": 10, "p": 3, "budget": "much"}, "budget is 'much'"),
        ({"n": 10, "p": 3, "budget": -1.0}, "budget is -1.0"),
        ({"n": 10, "p": 3, "budget": BUDGET, "loss": "absolute"}, "not smooth"),
        ({"n": 10, "p": 3, "budget": BUDGET, "penalty": "l0"}, "penalty is 'l0'"),
        ({"n": 10, "p": 3, "budget": BUDGET, "adjacency": "add"}, "adjacency is 'add'"),
    ],
)
def test_what_cannot_be_planned_is_said(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan_parameters(**arguments)  # type: ignore[arg-type]


def metric_of(spectrum: np.ndarray, noise_std: float, n: int = 100_000) -> tuple[np.ndarray, float]:
    plan = plan_parameters(n, len(spectrum), 1.0, fit_intercept=False, adjacency="zero-out")
    metric = choose_metric(Moments(np.diag(spectrum), noise_std, float(spectrum.sum())), plan)
    return np.linalg.eigvalsh(np.diag(spectrum) @ metric.matrix @ metric.matrix), metric.size


def test_a_well_known_spectrum_is_evened_out() -> None:
    spectrum = np.geomspace(1, 1e-3, 10)
    inside, size = metric_of(spectrum, 1e-7)
    assert inside.max() / inside.min() < 2  # a factor 1000 before
    assert size == pytest.approx(inside.sum(), rel=1e-2)


def test_a_spectrum_below_the_noise_changes_nothing() -> None:
    # Catches a metric that takes the eigenvalues of noise for those of data.
    random = np.random.default_rng(0)
    noise = random.standard_normal((20, 20)) * 10
    noise = (noise + noise.T) / 2
    plan = plan_parameters(1000, 20, 0.01, fit_intercept=False)
    metric = choose_metric(Moments(np.eye(20) / 20 + noise, 10.0, 1.0), plan)
    assert metric.scales.max() / metric.scales.min() < 1.6


def test_many_directions_are_looked_at_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches: a group that counts once, or a metric of the groups in place of the directions.
    spectrum = np.random.default_rng(0).lognormal(sigma=2.0, size=5000)
    spectrum /= spectrum.sum()
    for epsilon in (0.1, 3.0):
        plan = plan_parameters(50_000, 5000, hp.Budget(epsilon, 1e-6), penalty="l1", fit_intercept=False)
        moments = Moments(spectrum, 1e-5, 1.0)
        grouped = choose_metric(moments, plan)
        with monkeypatch.context() as patch:
            patch.setattr("hushpoint.estimators.metric._FEW_DIRECTIONS", 10**9)
            each = choose_metric(moments, plan)
        assert grouped.time == pytest.approx(each.time, rel=1e-6)
        assert grouped.steps == each.steps
        np.testing.assert_array_equal(grouped.scales, each.scales)


# --- steps that are short enough


def steepest(random: np.random.Generator, planted: bool, loss: str = "squared") -> tuple[float, int]:
    """Step size times the largest true second moment in a metric made of noisy moments, in units of 1/smoothness."""
    p, n = int(random.integers(2, 60)), int(10 ** random.uniform(2, 5))
    plan = plan_parameters(n, p, 10 ** random.uniform(-1.5, 1), loss=loss, fit_intercept=False, adjacency="zero-out")
    noise, length_noise = 1 / (n * plan.moment_mu), 1 / (n * plan.length_mu)
    spectrum = random.lognormal(sigma=random.uniform(0, 3), size=p)
    spectrum /= spectrum.sum()
    if planted:  # a direction with as much as can hide below the noise's own eigenvalues
        hidden = min(1.0, noise * math.sqrt(2 * p) * random.uniform(0.3, 1.0))
        spectrum *= (1 - hidden) * random.uniform(0.05, 1) / spectrum[1:].sum()
        spectrum[0] = hidden
    basis = np.linalg.qr(random.normal(size=(p, p)))[0]
    true = (basis * spectrum) @ basis.T
    drawn = noise * random.normal(size=(p, p))
    square = min(max(spectrum.sum() + length_noise * random.normal(), min(1 / 30, 2 * length_noise)), 1.0)
    metric = choose_metric(Moments(true + (drawn + drawn.T) / 2, noise, square, length_noise), plan)
    inside = metric.matrix @ true @ metric.matrix
    smoothness = hp.losses.resolve(loss).smoothness
    return metric.time / metric.steps * float(np.linalg.eigvalsh(inside)[-1]) * smoothness, metric.steps


@pytest.mark.parametrize("planted", [False, True], ids=["any spectrum", "a large direction unseen"])
def test_steps_are_short_enough_for_what_was_not_seen(planted: bool) -> None:
    # Catches: steps for the directions that were seen only, which go astray in the others: 2/smoothness is the edge.
    random = np.random.default_rng(0)
    found, steps = np.array([steepest(random, planted) for _ in range(300)]).T
    assert found.max() <= (3.5 if planted else 2.0)
    assert np.quantile(found, 0.98) <= 2.0
    assert steps.max() <= 200


def test_without_caution_steps_would_go_astray(monkeypatch: pytest.MonkeyPatch) -> None:
    # So that the test above can fail.
    monkeypatch.setattr("hushpoint.estimators.metric._curvature", lambda *given: 1.0)
    random = np.random.default_rng(0)
    assert max(steepest(random, True)[0] for _ in range(100)) > 5
