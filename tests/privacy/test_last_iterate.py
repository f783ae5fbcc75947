"""The last-iterate bound against exact linear-Gaussian runs."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushpoint.privacy.gaussian import compose_mu
from hushpoint.privacy.last_iterate import inexact_shift, last_iterate_mu

fixed = settings(derandomize=True, deadline=None, max_examples=200)


def exact_scalar_mu(ratio: float, lipschitz: float, steps: int) -> float:
    """Shift of the mean over standard deviation, step by step, for ``x <- c x + Delta + s N`` and s = 1."""
    with mp.workdps(50):
        c, mean, variance = mp.mpf(lipschitz), mp.mpf(0), mp.mpf(0)
        for _ in range(steps):
            mean, variance = c * mean + mp.mpf(ratio), c * c * variance + 1
        return float(mean / mp.sqrt(variance))


def exact_matrix_mu(maps: list[np.ndarray], shifts: list[np.ndarray]) -> float:
    """The same for ``x <- C_k x + d_k + N(0, I)`` in several dimensions."""
    size = len(shifts[0])
    mean, covariance = np.zeros(size), np.zeros((size, size))
    for linear, shift in zip(maps, shifts, strict=True):
        mean, covariance = linear @ mean + shift, linear @ covariance @ linear.T + np.eye(size)
    return math.sqrt(mean @ np.linalg.solve(covariance, mean))


@fixed
@given(st.floats(0, 1), st.integers(1, 60), st.floats(1e-3, 1e3))
def test_equals_the_scalar_linear_run(lipschitz: float, steps: int, ratio: float) -> None:
    # Catches: c^T for c^(2T), T off by one, a missing square root; and any rounding down.
    truth = exact_scalar_mu(ratio, lipschitz, steps)
    value = last_iterate_mu(ratio, lipschitz, steps)
    assert value == pytest.approx(truth, rel=1e-12)
    assert value >= truth * (1 - 1e-15)


@pytest.mark.parametrize("gap", [0.0, 1e-16, 1e-12, 1e-9, 1e-6, 1e-4])
def test_continuous_as_the_map_stops_contracting(gap: float) -> None:
    # Catches: 0/0 in (1-c^T)/(1-c) near c = 1, which loses every digit when computed as written.
    for steps in (1, 2, 50):
        value = last_iterate_mu(0.3, 1 - gap, steps)
        assert value == pytest.approx(exact_scalar_mu(0.3, 1 - gap, steps), rel=1e-13)
        assert value <= last_iterate_mu(0.3, 1.0, steps)


@pytest.mark.parametrize("steps", [1, 4, 10**6])
def test_non_expansive_is_composition(steps: int) -> None:
    # Catches: a bound that amplifies without contraction (false for a rotation or the identity).
    assert last_iterate_mu(0.2, 1.0, steps) == pytest.approx(0.2 * math.sqrt(steps), rel=1e-14)


def test_contraction_bounds_the_whole_run() -> None:
    # Catches: growth with T that contraction should have stopped, or a limit approached from above.
    limit = 0.2 * math.sqrt(1.9 / 0.1)
    values = [last_iterate_mu(0.2, 0.9, steps) for steps in (1, 2, 5, 10, 100, 10**9)]
    assert values == sorted(values)
    assert values[0] == 0.2
    assert values[-1] == pytest.approx(limit, rel=1e-14)


@fixed
@given(st.floats(0, 1), st.integers(0, 10**7), st.floats(0, 1e6))
def test_never_more_than_composition_never_less_than_one_step(c: float, steps: int, ratio: float) -> None:
    # Catches: a "better" bound that is worse than composing, or that forgets the last step.
    value = last_iterate_mu(ratio, c, steps)
    assert value <= compose_mu([ratio], repeats=steps) * (1 + 1e-14)
    assert value >= (ratio if steps else 0.0)


@pytest.mark.parametrize("seed", range(20))
def test_no_linear_run_exceeds_it(seed: int) -> None:
    # Catches: a claim that only holds for scalars or for equal maps (maps, shifts and data sets vary here).
    generator = np.random.default_rng(seed)
    size, steps, bound = 4, int(generator.integers(1, 12)), float(generator.uniform(0.2, 1.0))
    maps, shifts = [], []
    for _ in range(steps):
        linear = generator.normal(size=(size, size))
        maps.append(linear * bound * generator.uniform(0.8, 1) / np.linalg.norm(linear, 2))
        shift = generator.normal(size=size)
        shifts.append(0.7 * shift / np.linalg.norm(shift))
    assert exact_matrix_mu(maps, shifts) <= last_iterate_mu(0.7, bound, steps)
    aligned = [bound * np.eye(size)] * steps
    worst = exact_matrix_mu(aligned, [shifts[0]] * steps)
    assert worst == pytest.approx(last_iterate_mu(0.7, bound, steps), rel=1e-12)


@pytest.mark.parametrize("lipschitz", [1.0 + 1e-12, 2.0, -0.1, math.nan, math.inf])
def test_expansive_maps_are_refused(lipschitz: float) -> None:
    # Catches: tanh of a negative logarithm quietly giving a number for c > 1.
    with pytest.raises(ValueError, match="composition only"):
        last_iterate_mu(0.1, lipschitz, 10)


@pytest.mark.parametrize(("ratio", "steps"), [(-0.1, 3), (math.nan, 3), (0.1, -1), (0.1, 2.5), (0.1, math.inf)])
def test_bad_arguments_are_refused(ratio: float, steps: float) -> None:
    # Catches: half steps and nan coming out as a guarantee.
    with pytest.raises(ValueError, match=r"shift_over_noise is|steps is"):
        last_iterate_mu(ratio, 0.5, steps)  # type: ignore[arg-type]


def test_nothing_released_costs_nothing() -> None:
    # Catches: 0 * inf at the edges.
    assert last_iterate_mu(0.0, 1.0, 10**9) == last_iterate_mu(0.3, 0.5, 0) == 0
    assert last_iterate_mu(math.inf, 0.5, 3) == math.inf


def test_inexact_shift_adds_every_block() -> None:
    # Catches: forgetting the other blocks' errors, 2 lambda tol for 4, or tol divided by n.
    assert inexact_shift(2.0, 0.5, 0.1) == pytest.approx(2.2, rel=1e-14)
    assert inexact_shift(2.0, 0.5, 0.0, items=7) == pytest.approx(2.0, rel=1e-14)
    expected = math.sqrt(2.2**2 + 4 * 0.2**2)
    assert inexact_shift(2.0, 0.5, 0.1, items=5) == pytest.approx(expected, rel=1e-14)
    assert inexact_shift(2.0, 0.5, 0.1, items=5) >= expected


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((-1.0, 0.5, 0.1), "shift is"),
        ((1.0, 0.0, 0.1), "relaxation is"),
        ((1.0, 0.5, -0.1), "tolerance is"),
        ((1.0, 0.5, math.nan), "tolerance is"),
        ((1.0, 0.5, 0.1, 0), "items is"),
    ],
)
def test_bad_shifts_are_refused(arguments, name) -> None:  # type: ignore[no-untyped-def]
    # Catches: nan, or a negative error that takes from the shift, coming out as a bound.
    with pytest.raises(ValueError, match=name):
        inexact_shift(*arguments)
