"""mu-GDP against high-precision arithmetic, and the promises that accounting and calibration rest on."""

from __future__ import annotations

import functools
import itertools
import math
import time

import mpmath as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushpoint.privacy.gaussian import (
    ORDERS,
    compose_mu,
    gaussian_rdp,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
    rdp_epsilon,
)

EPSILONS = [0.01, 0.1, 0.5, 1.0, 3.0, 10.0, 50.0]
DELTAS = [0.3, 1e-2, 1e-5, 1e-12, 1e-30]
fixed = settings(derandomize=True, deadline=None, max_examples=200)


def exact_delta(mu: float, epsilon: float) -> mp.mpf:
    """delta from its definition, with enough digits for the cancellation."""
    with mp.workdps(60 + int(epsilon)):
        big_mu, big_epsilon = mp.mpf(mu), mp.mpf(epsilon)
        top = big_mu / 2 - big_epsilon / big_mu
        upper, lower = mp.erfc(-top / mp.sqrt(2)) / 2, mp.erfc((big_mu - top) / mp.sqrt(2)) / 2
        return upper - mp.exp(big_epsilon) * lower


@pytest.mark.parametrize(("epsilon", "delta"), list(itertools.product(EPSILONS, DELTAS)))
def test_delta_is_exact_and_rounded_up(epsilon: float, delta: float) -> None:
    # Catches: Phi(a) - exp(epsilon) Phi(b) in plain floats (all digits lost for small delta), or rounding down.
    mu = gdp_mu(epsilon, delta)
    for factor in (0.9, 1.0, 1.1):
        truth = exact_delta(mu * factor, epsilon)
        value = mp.mpf(gdp_delta(mu * factor, epsilon))
        assert truth <= value <= truth * (1 + mp.mpf("1e-10"))


MUS = [1e-12, 1e-6, 1e-3, 0.03, 0.3, 3.0, 30.0, 44.0]
TOPS = [-36.5, -20.0, -10.01, -9.99, -5.0, -1.0, 0.0, 0.99, 1.01, 6.0]
BRANCHES = [(mu, mu * (mu / 2 - top)) for mu in MUS for top in TOPS if 0 <= mu * (mu / 2 - top) <= 1000]


@pytest.mark.parametrize(("mu", "epsilon"), BRANCHES)
def test_delta_on_both_sides_of_every_branch(mu: float, epsilon: float) -> None:
    # Catches: a wrong switch between difference, quadrature and continued fraction; deltas down to 1e-300.
    truth = exact_delta(mu, epsilon)
    assert truth <= mp.mpf(gdp_delta(mu, epsilon)) <= mp.mpf(min(1, truth * (1 + mp.mpf("1e-11"))))


def test_delta_at_the_edges() -> None:
    # Catches: 0/0, inf - inf, underflow rounded down to "no leak at all".
    assert gdp_delta(0.0, 0.0) == gdp_delta(0.0, 5.0) == 0
    assert gdp_delta(math.inf, 3.0) == gdp_delta(1e9, 0.0) == 1
    assert gdp_delta(1.0, math.inf) == 0
    assert 0 < gdp_delta(1e-3, 1.0) < 1e-300
    assert 0 < gdp_delta(1e-310, 1e3) < 1e-300
    assert gdp_delta(2.0, 0.0) == pytest.approx(math.erf(1 / math.sqrt(2)), rel=1e-11)


@fixed
@given(st.floats(1e-6, 1e3), st.floats(0, 1e3), st.floats(1e-7, 10))
def test_delta_is_monotone(mu: float, epsilon: float, step: float) -> None:
    # Catches: a jump where two branches meet, which would break root finding.
    assert gdp_delta(mu, epsilon * (1 + step)) <= gdp_delta(mu, epsilon) <= gdp_delta(mu * (1 + step), epsilon)


@pytest.mark.parametrize(("epsilon", "delta"), list(itertools.product(EPSILONS, DELTAS)))
def test_epsilon_against_high_precision(epsilon: float, delta: float) -> None:
    # Catches: an epsilon below the truth, however little, and one that is more than 1e-9 above it.
    mu = gdp_mu(epsilon, delta)
    value = gdp_epsilon(mu, delta)
    assert exact_delta(mu, value) <= delta
    assert exact_delta(mu, value * (1 - 1e-9)) > delta


@fixed
@given(st.floats(-8, 5), st.floats(-299, -1e-3))
def test_epsilon_is_safe_and_tight(log_mu: float, log_delta: float) -> None:
    # Catches: two-sided tolerance in the root finder, which may exceed the budget.
    mu, delta = 10**log_mu, 10**log_delta
    epsilon = gdp_epsilon(mu, delta)
    assert gdp_delta(mu, epsilon) <= delta
    if epsilon > 1e-3 * mu:  # nearer 0 the answer is limited by the 1e-12 of delta, not by the root finder
        assert gdp_delta(mu, epsilon * (1 - 1e-9)) > delta


@fixed
@given(st.one_of(st.just(0.0), st.floats(-6, 3).map(lambda x: 10**x)), st.floats(-299, -1e-3))
def test_mu_is_safe_and_tight(epsilon: float, log_delta: float) -> None:
    # Catches: calibration to a mu that overspends, or that wastes more than 1e-9 of the budget.
    delta = 10**log_delta
    mu = gdp_mu(epsilon, delta)
    assert gdp_delta(mu, epsilon) <= delta < gdp_delta(mu * (1 + 1e-9), epsilon)
    assert gdp_epsilon(mu, delta) <= epsilon


@fixed
@given(st.floats(-3, 3), st.floats(-30, -2))
def test_mu_and_epsilon_are_inverse(log_epsilon: float, log_delta: float) -> None:
    # Catches: the two root finders solving different equations.
    epsilon, delta = 10**log_epsilon, 10**log_delta
    assert gdp_epsilon(gdp_mu(epsilon, delta), delta) == pytest.approx(epsilon, rel=1e-8)


def test_inverses_at_the_edges() -> None:
    # Catches: a finite promise where none can be made, or an endless search.
    assert gdp_epsilon(0.0, 0.0) == gdp_epsilon(0.0, 0.1) == gdp_epsilon(3.0, 1.0) == 0
    assert gdp_epsilon(1e-9, 0.0) == gdp_epsilon(math.inf, 0.5) == gdp_epsilon(1e200, 0.5) == math.inf
    assert gdp_epsilon(0.01, 0.1) == 0
    assert gdp_mu(1.0, 0.0) == 0
    assert gdp_mu(1.0, 1.0) == gdp_mu(math.inf, 1e-5) == math.inf
    for mu in (1e6, 1e20):  # at such sizes epsilon/mu itself is rounded: the answer must lean to the safe side
        assert mu * mu / 2 < gdp_epsilon(mu, 1e-6) < mu * mu / 2 * (1 + 1e-5)
    assert gdp_delta(gdp_mu(3.0, 1 - 1e-16), 3.0) <= 1 - 1e-16


@pytest.mark.parametrize("mu", [0.01, 0.5, 3.0])
@pytest.mark.parametrize("count", [1, 7, 1000])
def test_composing_at_once_is_composing_one_at_a_time(mu: float, count: int) -> None:
    # Catches: a count that is ignored, or squared.
    one_by_one = functools.reduce(lambda spent, new: compose_mu([spent, new]), [mu] * count)
    assert compose_mu([mu] * count) == pytest.approx(one_by_one, rel=1e-11)
    assert compose_mu([mu], repeats=count) == pytest.approx(mu * math.sqrt(count), rel=1e-14)
    assert compose_mu([mu], repeats=count) >= mu * math.sqrt(count)


def test_composition_at_the_edges() -> None:
    # Catches: overflow and underflow of mu^2, and generators consumed by the check.
    assert compose_mu([]) == compose_mu([0.0, 0.0]) == compose_mu([1.0], repeats=0) == 0
    assert compose_mu([3e200, 4e200]) == pytest.approx(5e200)
    assert compose_mu([3e-200, 4e-200]) == pytest.approx(5e-200)
    assert compose_mu(mu for mu in (3.0, 4.0)) == pytest.approx(5.0)
    assert compose_mu([1.0, math.inf]) == math.inf
    assert compose_mu([0.0, 0.3]) == 0.3


@fixed
@given(st.floats(-8, 3), st.floats(-50, -0.01), st.sampled_from(["paper", "improved"]))
def test_gdp_is_never_worse_than_rdp(log_mu: float, log_delta: float, conversion: str) -> None:
    # Catches: a Renyi conversion that promises more than is true (the exact answer is a lower bound for it).
    mu, delta = 10**log_mu, 10**log_delta
    by_rdp = rdp_epsilon(lambda alpha: gaussian_rdp(mu, alpha), delta, conversion)  # type: ignore[arg-type]
    assert gdp_epsilon(mu, delta) <= by_rdp


@fixed
@given(st.floats(-6, 3), st.floats(-30, -0.01))
def test_paper_conversion_reaches_its_closed_form(log_mu: float, log_delta: float) -> None:
    # Catches: an order search that stops at the edge of its grid; mu^2/2 + mu sqrt(2 ln(1/delta)) is the optimum.
    mu, delta = 10**log_mu, 10**log_delta
    optimum = mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta))
    found = rdp_epsilon(lambda alpha: gaussian_rdp(mu, alpha), delta, "paper")
    assert optimum * (1 - 1e-14) <= found <= optimum * (1 + 1e-9)
    assert rdp_epsilon(lambda alpha: gaussian_rdp(mu, alpha), delta) <= found


def test_rdp_table_uses_only_its_orders() -> None:
    # Catches: interpolation between orders, which is not a bound, and swapped orders and values.
    table = ([2.0, 4.0], [1.0, 3.0])
    assert rdp_epsilon(table, 1e-3, "paper") == pytest.approx(3 + math.log(1e3) / 3)
    improved = 3 + math.log(0.75) - math.log(4e-3) / 3
    assert rdp_epsilon(table, 1e-3) == pytest.approx(improved)
    curve = ORDERS, [gaussian_rdp(1.0, alpha) for alpha in ORDERS]
    assert rdp_epsilon(curve, 1e-5) >= rdp_epsilon(lambda alpha: gaussian_rdp(1.0, alpha), 1e-5)


def test_rdp_conversion_at_the_edges() -> None:
    # Catches: a negative epsilon, log(0), and infinite divergences winning or poisoning the minimum.
    assert rdp_epsilon(lambda alpha: 1e-9 * alpha, 0.9) == 0
    assert rdp_epsilon(lambda alpha: alpha, 0.0) == math.inf
    assert rdp_epsilon(lambda alpha: alpha, 1.0) == 0
    assert rdp_epsilon(lambda alpha: math.inf, 1e-5) == math.inf
    assert rdp_epsilon(([2.0, math.inf], [math.inf, 0.7]), 1e-5) == 0.7
    assert rdp_epsilon(([2.0, math.inf], [0.1, 0.7]), 0.0) == 0.7
    bounded = rdp_epsilon(lambda alpha: alpha if alpha <= 3 else math.inf, 1e-5, "paper")
    assert bounded == pytest.approx(3 + math.log(1e5) / 2, rel=1e-5)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: gdp_delta(-1.0, 1.0), "mu is -1.0"),
        (lambda: gdp_delta(math.nan, 1.0), "mu is nan"),
        (lambda: gdp_delta(1.0, -0.1), "epsilon is -0.1"),
        (lambda: gdp_epsilon(1.0, 1.5), "delta is 1.5"),
        (lambda: gdp_mu(math.nan, 0.1), "epsilon is nan"),
        (lambda: compose_mu([1.0, -2.0]), "mu is -2.0"),
        (lambda: compose_mu([1.0], repeats=-1), "repeats is -1"),
        (lambda: gaussian_rdp(1.0, 1.0), "alpha is 1.0"),
        (lambda: rdp_epsilon(([2.0], []), 0.1), "1 orders and 0 values"),
        (lambda: rdp_epsilon(([2.0], [math.nan]), 0.1), "rdp at alpha = 2.0 is nan"),
        (lambda: rdp_epsilon(([2.0], [1.0]), 0.1, "best"), "conversion is 'best'"),  # type: ignore[arg-type]
    ],
)
def test_bad_arguments_are_named(call, name) -> None:  # type: ignore[no-untyped-def]
    # Catches: nan slipping through comparisons and coming out as a guarantee.
    with pytest.raises(ValueError, match=name.replace("(", r"\(")):
        call()


def test_calls_are_fast_enough_to_calibrate() -> None:
    # Catches: a root finder that takes hundreds of evaluations (calibration makes tens of calls).
    start = time.process_time()  # which others that use the machine do not lengthen
    for k in range(100):
        gdp_epsilon(0.01 * (k + 1), 1e-6)
        gdp_mu(0.1 * (k + 1), 1e-6)
    assert (time.process_time() - start) / 200 < 5e-3
