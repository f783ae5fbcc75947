"""The paper's bounds as printed, worked by hand, and the counterexamples to them."""

from __future__ import annotations

import functools
import math
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from oracles import printed as published

from hushpoint.privacy.gaussian import gaussian_rdp, rdp_epsilon

RUN = {"alpha": 3.0, "loss_lipschitz": 0.5, "gamma": 0.8, "noise_std": 5.0}
TRADE = {
    "alpha": 4.0,
    "epsilon": 0.25,
    "loss_lipschitz": 0.5,
    "gamma": 3.0,
    "items": 100,
    "dimension": 9,
    "contraction": 0.5,
}


def test_printed_values_by_hand() -> None:
    # Catches: a wrong power or a lost constant, with which no table of the paper can be reproduced.
    # alpha K (L gamma / sigma)^2 = 3 * 10 * 0.08^2 = 0.192
    assert published.centralized_admm_rdp(**RUN, steps=10, items=100) == pytest.approx(8 * 0.192 / 1e4)
    assert published.federated_local_rdp(**RUN, participations=10) == pytest.approx(8 * 0.192)
    central = published.federated_central_rdp(**RUN, steps=10, items=100, sample_size=10)
    assert central == pytest.approx(16 * 0.192 / 1e4)
    network = published.network_rdp(**RUN, participations=10, items=100)
    assert network == pytest.approx(8 * 0.192 * math.log(100) / 100)
    general = published.general_admm_rdp(**RUN, steps=10, items=100, operator_norm=2.0, smallest_singular_value=0.5)
    assert general == pytest.approx(8 * 0.192 / 1e4 * 16)


def test_corrected_values_by_hand() -> None:
    # Catches: a correction that is itself off by a factor, or rounded down.
    assert published.corrected_centralized_admm_rdp(**RUN, steps=10) == pytest.approx(8 * 0.192)
    assert published.corrected_federated_central_rdp(**RUN, participations=10) >= 8 * 0.192
    network = published.corrected_network_rdp(**RUN, participations=10, items=100)
    assert network == pytest.approx(16 * 0.192 * math.log(100) / 99)
    general = published.corrected_general_admm_rdp(
        **RUN, steps=10, items=100, operator_norm=2.0, smallest_singular_value=0.5
    )
    assert general == pytest.approx(8 * 0.192 / 1e4 * 4)
    ridge = published.corrected_general_admm_rdp(**RUN, steps=10, items=100, strong_convexity=2.5)
    assert ridge == pytest.approx(8 * 0.192 / 1e4 / 9)  # (1 + gamma m)^2 = 9


def test_printed_sensitivities_by_hand() -> None:
    # Catches: forgetting relaxation, or the factor 2 between |A(x - x')| and the shift of u.
    step = {"loss_lipschitz": 0.5, "gamma": 4.0, "relaxation": 0.25}
    assert published.consensus_sensitivity(**step, items=10) == pytest.approx(0.2)
    assert published.corrected_consensus_sensitivity(**step) == pytest.approx(2.0)
    wide = {"operator_norm": 3.0, "smallest_singular_value": 2.0}
    assert published.general_sensitivity(**step, **wide, items=10) == pytest.approx(0.3)
    assert published.corrected_general_sensitivity(**step, **wide, items=10) == pytest.approx(0.1)


def test_conversion_of_the_paper() -> None:
    # Catches: ln(delta) for ln(1/delta), alpha for alpha - 1.
    assert published.rdp_to_dp(0.5, 5.0, math.exp(-8)) == pytest.approx(2.5)
    curve = functools.partial(gaussian_rdp, 0.7)
    best = min(published.rdp_to_dp(curve(alpha), alpha, 1e-5) for alpha in np.linspace(1.5, 30, 2000))
    assert rdp_epsilon(curve, 1e-5, "paper") == pytest.approx(best, rel=1e-5)


def run_linear_consensus(items: int, steps: int, relaxation: float, noise_std: float) -> tuple[Any, Any]:
    """Law of the consensus blocks (one feature, no regulariser, f_i = g_i x): response to g and covariance."""
    mean_matrix = np.full((items, items), 1 / items)
    # x = 2z - u - gamma g and u <- u + 2 lambda (x - z) + lambda eta, with gamma = 1
    linear = np.eye(items) + 2 * relaxation * (mean_matrix - np.eye(items))
    response, covariance = np.zeros((items, items)), np.zeros((items, items))
    for _ in range(steps):
        response = linear @ response - 2 * relaxation * np.eye(items)
        covariance = linear @ covariance @ linear.T + (relaxation * noise_std) ** 2 * np.eye(items)
    return response, covariance


@pytest.mark.parametrize(("items", "steps"), [(2, 1), (10, 4), (50, 9)])
def test_erratum_1_centralized_bound_is_n_times_too_small(items: int, steps: int) -> None:
    # Catches: anyone putting 1/n^2 back. Linear losses, only the final mean released: exactly n times the print.
    response, covariance = run_linear_consensus(items, steps, relaxation=0.5, noise_std=2.0)
    shift = 2 * response[:, 0].mean()  # L = 1: the changed slope goes from -1 to 1
    truth = gaussian_rdp(abs(shift) / math.sqrt(covariance.mean()), 3.0)
    bound = {"alpha": 3.0, "steps": steps, "loss_lipschitz": 1.0, "gamma": 1.0, "noise_std": 2.0}
    assert truth == pytest.approx(items * published.centralized_admm_rdp(**bound, items=items))
    assert truth <= published.corrected_centralized_admm_rdp(**bound)


def general_step_shift(matrix: np.ndarray, gamma: float, relaxation: float, ridge: float, items: int) -> float:
    """Largest ``2 lambda |A (x - x')|`` over directions of a changed linear loss (L = 1), by direct solves."""
    hessian = matrix.T @ matrix / gamma + ridge * np.eye(matrix.shape[1])
    moved = matrix @ np.linalg.solve(hessian, np.eye(matrix.shape[1])) * 2 / items
    return 2 * relaxation * float(np.linalg.norm(moved, 2))


def test_erratum_2_small_operator() -> None:
    # Catches: |A|/w put back for 1/w. A = 0.1 I: the measured shift is 10 times the printed bound.
    step = {"loss_lipschitz": 1.0, "gamma": 0.7, "relaxation": 0.5, "items": 20}
    size = {"operator_norm": 0.1, "smallest_singular_value": 0.1}
    measured = general_step_shift(0.1 * np.eye(3), 0.7, 0.5, 0.0, 20)
    assert measured == pytest.approx(10 * published.general_sensitivity(**step, **size))
    ours = published.corrected_general_sensitivity(**step, **size)
    assert ours * (1 - 1e-12) <= measured <= ours


@pytest.mark.parametrize("seed", range(10))
def test_corrected_sensitivity_covers_every_operator(seed: int) -> None:
    # Catches: sqrt(gamma m) clipped to the wrong interval; and it is attained when a singular value is there.
    generator = np.random.default_rng(seed)
    matrix = generator.normal(size=(6, 3)) * 10 ** generator.uniform(-1, 1)
    gamma, ridge = 10 ** generator.uniform(-1, 1), float(generator.choice([0.0, 0.3, 5.0]))
    values = np.linalg.svd(matrix, compute_uv=False)
    bound = functools.partial(
        published.corrected_general_sensitivity,
        loss_lipschitz=1.0,
        gamma=gamma,
        relaxation=0.4,
        items=7,
        strong_convexity=ridge,
    )
    measured = general_step_shift(matrix, gamma, 0.4, ridge, 7)
    assert measured <= bound(operator_norm=values[0], smallest_singular_value=values[-1]) * (1 + 1e-12)
    alone = general_step_shift(values[0] * np.eye(2), gamma, 0.4, ridge, 7)
    assert alone == pytest.approx(bound(operator_norm=values[0], smallest_singular_value=values[0]))


def exact_subsampled_rdp(alpha: int, sampling_prob: float, noise_std: float) -> float:
    """Renyi divergence of the Poisson-sampled Gaussian from the plain one, by its binomial sum."""
    with mp.workdps(60):
        q, s = mp.mpf(sampling_prob), mp.mpf(noise_std)
        terms = (
            mp.binomial(alpha, k) * (1 - q) ** (alpha - k) * q**k * mp.exp(k * (k - 1) / (2 * s**2))
            for k in range(alpha + 1)
        )
        return float(mp.log(mp.fsum(terms)) / (alpha - 1))


def test_erratum_6_a_ceiling_on_alpha_is_missing() -> None:
    # Catches: the printed lemma used as a guarantee: it is 40,000 times too small inside its own conditions.
    case = {"alpha": 260.0, "sampling_prob": 3.7e-4, "noise_std": 4.0}
    assert published.subsampling_alpha_limit(**case) == pytest.approx(340, abs=2)
    ratio = exact_subsampled_rdp(260, 3.7e-4, 4.0) / published.subsampled_gaussian_rdp(**case)
    assert 3.5e4 < ratio < 5e4
    (violation,) = published.corrected_subsampling_violations(**case)
    assert "M s^2/2 - ln(s^2)" in violation
    with pytest.raises(ValueError, match="Lower alpha"):
        published.corrected_subsampled_gaussian_rdp(**case)


def test_erratum_6_noise_is_in_units_of_the_sensitivity() -> None:
    # Catches: sigma = 4 accepted with sensitivity 40, where the noise is a tenth of what is hidden.
    case = {"alpha": 2.0, "sampling_prob": 0.1, "noise_std": 4.0, "sensitivity": 40.0}
    printed = published.subsampled_gaussian_rdp(**case)
    assert exact_subsampled_rdp(2, 0.1, 0.1) > 10 * printed
    assert any("below 4" in text for text in published.corrected_subsampling_violations(**case))


@pytest.mark.parametrize("noise_std", [4.0, 6.0, 20.0])
@pytest.mark.parametrize("sampling_prob", [1e-4, 0.01, 0.2])
def test_corrected_subsampling_holds_where_it_is_allowed(noise_std: float, sampling_prob: float) -> None:
    # Catches: conditions still too wide, or so narrow that nothing is left.
    case = {"sampling_prob": sampling_prob, "noise_std": noise_std}
    allowed = [
        alpha
        for alpha in (2, 3, 5, 8, 13, 21, 34, 55, 89)
        if not published.corrected_subsampling_violations(alpha=float(alpha), **case)
    ]
    assert allowed
    for alpha in allowed:
        bound = published.corrected_subsampled_gaussian_rdp(alpha=float(alpha), **case)
        assert exact_subsampled_rdp(alpha, sampling_prob, noise_std) <= bound


def test_erratum_7_network_arithmetic() -> None:
    # Catches: 8 put back for 16, ln(n)/n for ln(n)/(n-1): the proof's own steps done in full give the corrected one.
    items, alpha, noise_std = 20, 2.0, 2 * math.sqrt(2) * math.sqrt(2.0)
    run = {"alpha": alpha, "participations": 1, "loss_lipschitz": 1.0, "gamma": 1.0, "noise_std": noise_std}
    hops = range(1, 2000)
    law = [(1 - 1 / items) ** (t - 1) / items for t in hops]
    costs = [published.federated_local_rdp(**run) / t for t in hops]
    mixed = published.weak_convexity_rdp(costs, np.divide(law, sum(law)).tolist(), alpha=alpha)
    assert mixed == pytest.approx(published.corrected_network_rdp(**run, items=items), rel=1e-9)
    assert mixed > 2 * published.network_rdp(**run, items=items)
    with pytest.raises(ValueError, match="noise_std is"):
        published.corrected_network_rdp(**{**run, "noise_std": noise_std * 0.99}, items=items)
    published.network_rdp(**{**run, "noise_std": noise_std * 0.99}, items=items)  # the print allows it


@pytest.mark.parametrize(("items", "larger"), [(2, True), (3, True), (4, False), (100, False)])
def test_corrected_network_against_the_local_bound(items: int, larger: bool) -> None:
    # Catches: the docstring's claim about small networks going stale.
    local = published.federated_local_rdp(**RUN, participations=3)
    assert (published.corrected_network_rdp(**RUN, participations=3, items=items) > local) is larger


def test_weak_convexity_on_gaussian_mixtures() -> None:
    # Catches: the factor 1 + c dropped, and the condition not checked.
    value = published.weak_convexity_rdp([0.1, 0.3], [0.25, 0.75], alpha=2.0, slack=0.5)
    assert value == pytest.approx(1.5 * 0.25)
    with pytest.raises(ValueError, match="max"):
        published.weak_convexity_rdp([0.1, 0.6], [0.25, 0.75], alpha=2.0, slack=0.5)
    with pytest.raises(ValueError, match="probabilities"):
        published.weak_convexity_rdp([0.1, 0.3], [0.25, 0.7], alpha=2.0)


def test_amplification_by_iteration_by_hand() -> None:
    # Catches: allotments spent before they are earned, or left over at the end.
    even = published.amplification_by_iteration_rdp([3.0, 0.0, 0.0], [1.0] * 3, [2.0] * 3, alpha=4.0)
    assert even == pytest.approx(4 * 3 / 8)  # a third of the loss of one step, 4 * 9 / 8
    with pytest.raises(ValueError, match=r"sum\(allotments\[:1\]\) is 1.0"):
        published.amplification_by_iteration_rdp([0.0, 2.0], [1.0, 1.0], [1.0, 1.0], alpha=4.0)
    with pytest.raises(ValueError, match=r"sum\(allotments\) is 1.0"):
        published.amplification_by_iteration_rdp([2.0, 0.0], [1.0, 0.0], [1.0, 1.0], alpha=4.0)


def test_utility_bound_by_hand() -> None:
    # Catches: k for k+1, sqrt(q) and q^3 swapped.
    value = published.utility_bound(
        steps=2,
        contraction=0.5,
        block_prob=0.25,
        dimension=4,
        noise_std=1.0,
        initial_distance_squared=10.0,
        error_std=1.0,
    )
    assert value == pytest.approx((1 - 1 / 256) ** 2 * 10 + 8 * (3 / 0.25 + 5 / 0.125**3))
    with pytest.raises(ValueError, match="Printed condition: noise_std"):
        published.utility_bound(
            steps=2,
            contraction=0.5,
            block_prob=1.0,
            dimension=4,
            noise_std=0.7,
            initial_distance_squared=1.0,
        )


@pytest.mark.parametrize("contraction", [0.0, 0.3, 0.9, 0.999])
@pytest.mark.parametrize("block_prob", [0.1, 1.0])
def test_learning_rate_range_is_where_the_rate_is_in_0_1(contraction: float, block_prob: float) -> None:
    # Catches: a mistyped interval. Its ends are where the proof's chi is 1 and 0.
    settings = {"contraction": contraction, "block_prob": block_prob, "dimension": 5, "noise_std": 2.0}
    low, high = published.learning_rate_range(**settings)
    noise, b = 2.0 * math.sqrt(5 / block_prob), math.sqrt(1 - block_prob * (1 - contraction))

    def chi(rate: float) -> float:
        return 1 + rate * (noise - (1 - b * b)) - rate**2 * noise * (1 - b)

    assert chi(low) == pytest.approx(1, abs=1e-8 * noise * low)
    assert chi(high) == pytest.approx(0, abs=1e-8 * noise * high)
    assert low < published.proof_relaxation(**settings) < high


def test_erratum_8_proof_relaxation_is_above_1() -> None:
    # Catches: the proof's relaxation offered as a setting.
    settings = {"block_prob": 1.0, "dimension": 10, "noise_std": 1.0}
    assert published.proof_relaxation(contraction=0.5, **settings) > 1
    assert published.learning_rate_range(contraction=0.5, **settings)[0] > 1


def test_tradeoffs_by_hand() -> None:
    # Catches: a wrong root or power in a rate. sqrt(p alpha / eps) L gamma = 12 * 1.5 = 18.
    assert published.centralized_tradeoff(**TRADE) == pytest.approx(0.18 / 0.5 + 0.18**2 / 0.125)
    federated = published.federated_tradeoff(**TRADE, sampling_fraction=0.16)
    assert federated == pytest.approx(0.18 / (0.4 * 0.5) + (0.18 / 0.16) ** 2 / 0.125)
    assert published.decentralized_tradeoff(**TRADE) == pytest.approx(1.8 / 0.5 + 1.8**2 / 0.125)


@pytest.mark.parametrize(
    ("power", "lost"),
    [
        pytest.param(1.0, 2.0, id="decentralized: q = 1/n, n^2 lost"),
        pytest.param(0.5, 0.5, id="federated: q = 1/sqrt(n), r^-1 lost"),
    ],
)
def test_tradeoffs_lose_powers_of_n_on_the_way(power: float, lost: float) -> None:
    # Catches: the slips in the corollaries going unnoticed. Put the printed sigma^2 into the printed theorem
    # (tau fixed, one step, ln n left out) and compare how the quadratic term grows with n.
    def derived(items: int) -> float:
        return TRADE["alpha"] * TRADE["dimension"] / (TRADE["epsilon"] * items**2) * items ** (3 * power)

    def printed(items: int) -> float:
        run = {**TRADE, "items": items, "contraction": 1 - 1e-9}  # the quadratic term alone matters
        if power == 1.0:
            return published.decentralized_tradeoff(**run)
        return published.federated_tradeoff(**run, sampling_fraction=items**-power)

    growth = math.log(derived(10**6) / derived(10**4)) - math.log(printed(10**6) / printed(10**4))
    assert growth / math.log(100) == pytest.approx(lost, abs=1e-3)


NETWORK = {**RUN, "participations": 1, "items": 10}
CENTRAL = {**RUN, "steps": 1, "items": 100, "sample_size": 10}


@pytest.mark.parametrize(
    ("function", "arguments", "name"),
    [
        (published.network_rdp, {**NETWORK, "noise_std": 0.8 * math.sqrt(6)}, "noise_std is"),
        (published.network_rdp, {**NETWORK, "items": 1}, "items is 1"),
        (published.federated_central_rdp, {**CENTRAL, "sample_size": 20}, "sample_size is 20"),
        (published.federated_central_rdp, {**CENTRAL, "noise_std": 3.9}, "noise_std is 3.9"),
        (published.federated_central_rdp, {**CENTRAL, "alpha": 200.0}, "alpha is 200.0"),
        (published.centralized_admm_rdp, {**RUN, "steps": 1, "items": 5, "alpha": 1.0}, "alpha is 1.0"),
        (published.centralized_admm_rdp, {**RUN, "steps": 0, "items": 5}, "steps is 0"),
        (published.federated_local_rdp, {**RUN, "participations": 1.5}, "participations is 1.5"),
        (published.federated_local_rdp, {**RUN, "participations": 1, "gamma": math.inf}, "gamma is inf"),
        (published.subsampled_gaussian_rdp, {"alpha": 2.0, "sampling_prob": 0.2, "noise_std": 5.0}, "below 1/5"),
        (published.subsampled_gaussian_rdp, {"alpha": 2.0, "sampling_prob": 0.1, "noise_std": 3.0}, "least 4"),
        (published.federated_tradeoff, {**TRADE, "sampling_fraction": 0.2}, "sampling_fraction is 0.2"),
        (published.centralized_tradeoff, {**TRADE, "contraction": 1.0}, "contraction is 1.0"),
        (published.rdp_to_dp, {"epsilon": 1.0, "alpha": 2.0, "delta": 0.0}, "delta is 0.0"),
        (
            published.general_admm_rdp,
            {**RUN, "steps": 1, "items": 5, "smallest_singular_value": 0.0},
            "smallest_singular_value is 0.0",
        ),
        (
            published.general_admm_rdp,
            {**RUN, "steps": 1, "items": 5, "smallest_singular_value": 2.0},
            "smallest_singular_value is 2.0",
        ),
        (
            published.learning_rate_range,
            {"contraction": 0.1, "block_prob": 1.0, "dimension": 1, "noise_std": 0.5},
            "noise_std is 0.5",
        ),
    ],
)
def test_printed_preconditions_are_enforced(function: Any, arguments: dict[str, Any], name: str) -> None:
    # Catches: a bound quoted outside the conditions it was printed with.
    with pytest.raises(ValueError, match=name):
        function(**arguments)
