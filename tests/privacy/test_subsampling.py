"""Sampled Gaussian sums, against integrals and convolutions that share no code with the library."""

from __future__ import annotations

import itertools
import math
import time

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import fft, integrate, stats

from hushpoint.privacy import privacy_loss
from hushpoint.privacy.gaussian import gdp_epsilon
from hushpoint.privacy.subsampling import (
    fixed_size_epsilon,
    fixed_size_rdp,
    poisson_epsilon,
    poisson_noise,
    poisson_rdp,
    poisson_rdp_epsilon,
)

Mixture = list[tuple[float, float]]  # weights and means


def density(mixture, noise, x):
    normal = noise * math.sqrt(2 * math.pi)
    return sum(weight * np.exp(-(((x - mean) / noise) ** 2) / 2) / normal for weight, mean in mixture)


def hockey_stick(first, second, noise, epsilon):
    """The integral of ``[first - e^epsilon second]_+`` over the line."""
    x = np.linspace(-12 * noise - 3, 12 * noise + 3, 300_001)
    return float(
        integrate.trapezoid(np.maximum(0, density(first, noise, x) - math.exp(epsilon) * density(second, noise, x)), x)
    )


def poisson_pairs(prob, adjacency):
    silent, up, down = (1 - prob, 0.0), (prob, 1.0), (prob, -1.0)
    if adjacency == "replace-one":
        return [([silent, up], [silent, down])]
    return [([silent, up], [(1.0, 0.0)]), ([(1.0, 0.0)], [silent, up])]


def renyi(first, second, noise, alpha):
    """Renyi divergence of two mixtures by quadrature."""
    x = np.linspace(-20 * noise - 3, 20 * noise + 3 + 2 * alpha, 40_001)
    with np.errstate(divide="ignore"):
        log_first, log_second = np.log(density(first, noise, x)), np.log(density(second, noise, x))
    usable = (log_first > -600) & (log_second > -600)
    exponent = alpha * log_first[usable] + (1 - alpha) * log_second[usable]
    return float(np.logaddexp.reduce(exponent) + math.log(x[1] - x[0])) / (alpha - 1)


def composed_delta_bracket(first, second, noise, steps, epsilon, width):
    """delta of ``steps`` repetitions from below and from above: losses rounded down and up, then convolved."""
    edges = np.linspace(-10 * noise - 2, 10 * noise + 2, 100_001)
    masses = np.diff(sum(weight * stats.norm.cdf(edges, mean, noise) for weight, mean in first))
    losses = np.log(density(first, noise, edges)) - np.log(density(second, noise, edges))
    bounds = (np.minimum(losses[1:], losses[:-1]), np.maximum(losses[1:], losses[:-1]))
    results = []
    for rounding, values in zip((np.floor, np.ceil), bounds, strict=True):
        places = rounding(values / width).astype(int)
        step = np.bincount(places - places.min(), weights=masses)
        size = fft.next_fast_len(steps * step.size, real=True)
        total = fft.irfft(fft.rfft(step, size) ** steps, size)
        at = (steps * places.min() + np.arange(size)) * width
        results.append(float(total @ np.maximum(0.0, -np.expm1(np.minimum(epsilon - at, 1.0)))))
    return results


def their_law(noise, prob, steps, adjacency, epsilon):
    """dp-accounting's own discretisation and composition of the same pairs, to be read near epsilon at 1e-6."""
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    relation = "ADD_OR_REMOVE_ONE" if adjacency == "zero-out" else "REPLACE_ONE"
    tilt = 2 * math.log(1e6) / epsilon  # about the best one for a Gaussian loss
    return from_gaussian_mechanism(
        noise,
        sampling_prob=prob,
        neighboring_relation=NeighboringRelation[relation],
        value_discretization_interval=privacy_loss._grid_width(steps, tilt, epsilon, privacy_loss.ACCURACY),
    ).self_compose(steps)


# --- one step and several


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
@pytest.mark.parametrize(("noise", "prob"), [(0.4, 0.2), (1.0, 0.05), (1.0, 0.9), (4.0, 0.5)])
def test_one_step_is_the_hockey_stick_divergence(noise, prob, adjacency):
    # catches a wrong pair, a wrong direction (only one of add and remove) and a bound doubled or halved
    for epsilon in (0.0, 0.1, 1.0, 3.0):
        exact = max(hockey_stick(*pair, noise, epsilon) for pair in poisson_pairs(prob, adjacency))
        if exact > 1e-9:
            value = poisson_epsilon(noise, prob, 1, exact * (1 - 1e-9) - 1e-14, adjacency)
            assert value == pytest.approx(epsilon, abs=1e-5)
            assert value >= epsilon * (1 - 1e-12)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
@pytest.mark.parametrize(("noise", "prob", "steps"), [(0.7, 0.1, 3), (1.0, 0.3, 8), (3.0, 0.5, 8)])
def test_several_steps_lie_between_convolutions_rounded_down_and_up(noise, prob, steps, adjacency):
    # catches composition errors, optimistic rounding, folded tails, and directions maximised before composing
    for epsilon in (0.3, 1.5):
        brackets = [
            composed_delta_bracket(*pair, noise, steps, epsilon, 5e-4) for pair in poisson_pairs(prob, adjacency)
        ]
        low, high = (max(bracket[side] for bracket in brackets) for side in (0, 1))
        assert poisson_epsilon(noise, prob, steps, low, adjacency) >= epsilon
        assert poisson_epsilon(noise, prob, steps, high * 1.002, adjacency) <= epsilon
        middle = math.sqrt(low * high)  # rounding down and up err alike: three digits and more
        assert poisson_epsilon(noise, prob, steps, middle, adjacency) == pytest.approx(epsilon, rel=1e-3)


@pytest.mark.parametrize("steps", [1, 2, 30, 3000])
@pytest.mark.parametrize("delta", [1e-3, 1e-7, 1e-12, 1e-25])
def test_sampling_everyone_composes_to_the_gaussian(steps, delta):
    # catches any value below the truth, where the truth is known: rounding that is relative to 1 and not to delta
    # fails here at 1e-12, the tilted transform does not
    for mu in (0.01, 1.0, 6.0):
        profile = privacy_loss.remove_profile(mu / math.sqrt(steps), 1.0)
        exact = gdp_epsilon(mu, delta)
        value = privacy_loss.composed_epsilon(profile, steps, delta)
        assert exact * (1 - 1e-12) <= value <= exact * (1 + 3e-4) + 1e-12


def test_sample_prob_one_is_exact():
    # catches sqrt(steps) misplaced, and a replace-one that forgets its factor 2
    assert poisson_epsilon(5.0, 1.0, 100, 1e-6) == pytest.approx(gdp_epsilon(2.0, 1e-6), rel=1e-12)
    assert poisson_epsilon(5.0, 1.0, 100, 1e-6, "replace-one") == pytest.approx(gdp_epsilon(4.0, 1e-6), rel=1e-12)
    for adjacency in ("zero-out", "replace-one"):
        noise = poisson_noise(1.0, 1e-6, 1.0, 50, adjacency)
        assert poisson_epsilon(noise, 1.0, 50, 1e-6, adjacency) <= 1.0
        assert poisson_epsilon(noise * 0.9999, 1.0, 50, 1e-6, adjacency) > 1.0


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
@pytest.mark.parametrize(("noise", "prob", "steps"), [(1.0, 0.01, 500), (0.6, 0.002, 100), (8.0, 0.4, 200)])
def test_dp_accounting_agrees_where_it_is_accurate(noise, prob, steps, adjacency):
    # catches a mistake shared by the engine and the convolutions above: this one is written by others
    ours = poisson_epsilon(noise, prob, steps, 1e-6, adjacency)
    theirs = their_law(noise, prob, steps, adjacency, ours).get_epsilon_for_delta(1e-6)
    assert ours == pytest.approx(theirs, rel=5e-4)


def test_small_deltas_are_why_the_composition_is_our_own():
    # catches a return to an untilted transform: at delta = 1e-12 it rounds below the exact value, which is known here
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    exact = gdp_epsilon(1.0, 1e-12)  # ten thousand releases of noise 100
    theirs = from_gaussian_mechanism(100.0, value_discretization_interval=1e-4).self_compose(10_000)
    assert theirs.get_epsilon_for_delta(1e-12) < exact * (1 - 5e-4)
    ours = privacy_loss.composed_epsilon(privacy_loss.remove_profile(0.01, 1.0), 10_000, 1e-12)
    assert exact <= ours <= exact * (1 + 1e-3)


def test_many_steps_at_once_are_one_step_at_a_time():
    # catches a self-composition that counts a step twice or not at all
    epsilon = poisson_epsilon(1.0, 0.05, 6, 1e-5)
    step = their_law(1.0, 0.05, 1, "zero-out", epsilon / 20)
    total = step
    for _ in range(5):
        total = total.compose(step)
    assert total.get_epsilon_for_delta(1e-5) == pytest.approx(epsilon, rel=1e-3)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    noise=st.floats(0.4, 20),
    prob=st.floats(0.001, 0.9),
    steps=st.integers(1, 300),
    log_delta=st.floats(-28, -5),
    adjacency=st.sampled_from(["zero-out", "replace-one"]),
)
def test_more_noise_fewer_samples_and_fewer_steps_cost_less(noise, prob, steps, log_delta, adjacency):
    # catches grids or tilts that go wrong somewhere in between: epsilon must move the right way by any step
    delta = math.exp(log_delta)
    epsilon = poisson_epsilon(noise, prob, steps, delta, adjacency)
    room = 1 + 3e-4
    assert poisson_epsilon(1.05 * noise, prob, steps, delta, adjacency) <= epsilon * room + 1e-9
    assert poisson_epsilon(noise, 0.95 * prob, steps, delta, adjacency) <= epsilon * room + 1e-9
    assert epsilon <= poisson_epsilon(noise, prob, steps + 1, delta, adjacency) * room + 1e-9
    assert epsilon <= poisson_epsilon(noise, prob, steps, delta / 2, adjacency) * room + 1e-9
    if adjacency == "zero-out":
        assert epsilon <= poisson_epsilon(noise, prob, steps, delta, "replace-one") * room + 1e-9


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
def test_hopeless_noise_is_called_hopeless(adjacency):
    # catches underflow taken for privacy: with so little noise every sampling of the item shows, 60 times of 200,
    # each with a loss near 1/(2 * 0.05^2) = 200
    epsilon = poisson_epsilon(0.05, 0.3, 200, 0.3, adjacency)
    assert epsilon > 50 * 190
    assert poisson_epsilon(0.05, 0.3, 200, 0.99, adjacency) > 5000


def test_an_item_hardly_ever_sampled_is_safe_without_much_noise():
    # catches a grid that cannot see that two worlds differ only when the item is sampled at all
    assert poisson_epsilon(0.05, 1e-8, 100, 1e-5) == 0
    assert poisson_epsilon(0.05, 1e-8, 100, 1.001e-6) <= 1.0


def test_antipodal_pair_dominates_every_direction():
    # catches a replace-one pair that is not the worst: messages at any angle and of any length, in the plane
    noise, prob = 0.8, 0.3
    axis = np.linspace(-5.6, 5.6, 401)
    plane = np.stack(np.meshgrid(axis, axis, indexing="ij"))
    cell = (axis[1] - axis[0]) ** 2

    def mixed(message):
        squares = [((plane - np.reshape(mean, (2, 1, 1))) ** 2).sum(axis=0) for mean in ((0.0, 0.0), message)]
        first, second = (np.exp(-square / (2 * noise**2)) / (2 * math.pi * noise**2) for square in squares)
        return (1 - prob) * first + prob * second

    rng = np.random.default_rng(3)
    angles, lengths = rng.uniform(0, 2 * math.pi, 20), rng.uniform(0, 1, 20) ** 0.3
    messages = [length * np.array([math.cos(t), math.sin(t)]) for t, length in zip(angles, lengths, strict=True)]
    pairs = [*itertools.pairwise(messages), (np.array([1.0, 0.0]), np.array([-1.0, 0.0]))]
    for epsilon in (0.0, 0.4, 1.5):
        bound = privacy_loss.antipodal_profile(1 / noise, prob).delta(epsilon)
        values = [np.maximum(mixed(v) - math.exp(epsilon) * mixed(w), 0).sum() * cell for v, w in pairs]
        assert max(values) <= bound * (1 + 5e-4)
        assert values[-1] == pytest.approx(bound, rel=1e-3)
    # and zero-out's number is no bound for replace-one
    remove = privacy_loss.remove_profile(1 / noise, prob)
    assert values[-1] > 1.2 * max(remove.delta(1.5), remove.reversed().delta(1.5))


# --- calibration


GRID = [
    (0.01, 1e-12, 0.5, 3000),
    (0.01, 1e-5, 0.001, 1),
    (0.1, 1e-8, 0.02, 10),
    (1.0, 1e-5, 0.02, 300),
    (8.0, 1e-12, 0.001, 300),
    (50.0, 1e-5, 0.5, 1),
    (50.0, 1e-8, 0.02, 3000),
]


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
@pytest.mark.parametrize(("epsilon", "delta", "prob", "steps"), GRID)
def test_calibration_never_exceeds_its_budget_and_wastes_little(epsilon, delta, prob, steps, adjacency):
    # catches a two-sided tolerance, and a coarse search that is never made fine
    noise = poisson_noise(epsilon, delta, prob, steps, adjacency)
    assert epsilon * 0.999 <= poisson_epsilon(noise, prob, steps, delta, adjacency) <= epsilon
    assert poisson_epsilon(0.999 * noise, prob, steps, delta, adjacency) > epsilon


@pytest.mark.parametrize("case", [(1.0, 1e-12, 0.001, 3000, "zero-out"), (1.0, 1e-5, 0.001, 3000, "replace-one")])
def test_the_slowest_calibrations_are_fast(case):
    # catches a search that falls back to halving its bracket: these two take under 1 s, others much less
    began = time.process_time()
    noise = poisson_noise(*case)
    assert time.process_time() - began < 6
    epsilon, delta, prob, steps, adjacency = case
    assert 0.999 * epsilon <= poisson_epsilon(noise, prob, steps, delta, adjacency) <= epsilon


# --- Renyi


@pytest.mark.parametrize(("noise", "prob"), [(0.5, 0.01), (1.0, 0.3), (5.0, 0.001)])
@pytest.mark.parametrize("alpha", [1.05, 1.7, 2, 3.5, 12, 31.5])
def test_rdp_is_the_moment_of_the_mixture(noise, prob, alpha):
    # catches a binomial sum that is one term short and a quadrature that misses the far mode
    mpmath.mp.dps = 30
    s, q, a = mpmath.mpf(noise), mpmath.mpf(prob), mpmath.mpf(alpha)

    def integrand(x):
        return mpmath.npdf(x, 0, s) * (1 - q + q * mpmath.exp((2 * x - 1) / (2 * s**2))) ** a

    points = [-14 * s, -4 * s, 0, alpha / 4, alpha / 2, 3 * alpha / 4, alpha, alpha + 5 * s, alpha + 14 * s]
    exact = float(mpmath.log(mpmath.quad(integrand, sorted(points))) / (a - 1))
    value = poisson_rdp(noise, prob, alpha)
    assert value == pytest.approx(exact, rel=1e-7)
    assert value >= exact


def test_rdp_takes_the_larger_direction():
    # catches the add direction reported for both: it is smaller
    for noise, prob, alpha in itertools.product((0.7, 3.0), (0.1, 0.6), (1.5, 4.0)):
        (up, down) = poisson_pairs(prob, "zero-out")
        larger, smaller = renyi(*up, noise, alpha), renyi(*down, noise, alpha)
        assert smaller < larger <= poisson_rdp(noise, prob, alpha) * (1 + 1e-6)
        assert poisson_rdp(noise, prob, alpha) <= alpha / (2 * noise**2)


def test_chords_are_above_the_curve():
    # catches an interpolation of rdp itself, which is not convex in the order
    assert poisson_rdp(2.0, 0.1, 40.5) >= poisson_rdp(2.0, 0.1, 40)
    left, right = (order * poisson_rdp(2.0, 0.1, order + 1) for order in (39, 40))
    assert 39.5 * poisson_rdp(2.0, 0.1, 40.5) == pytest.approx((left + right) / 2, rel=1e-8)
    assert poisson_rdp(2.0, 0.1, 2e5) == pytest.approx(2e5 / 8)


@pytest.mark.parametrize(
    ("noise", "prob", "steps"), [(1.0, 0.01, 1000), (4.0, 0.2, 50), (0.5, 0.05, 4), (30.0, 0.5, 900)]
)
def test_the_profile_is_never_above_renyi(noise, prob, steps):
    # catches either of the two: composed losses are tight, Renyi only bounds them
    for delta in (1e-5, 1e-10):
        assert poisson_epsilon(noise, prob, steps, delta) <= poisson_rdp_epsilon(noise, prob, steps, delta)


# --- samples of a fixed size


def fixed_size_mixture(values, size):
    subsets = list(itertools.combinations(values, size))
    return [(1 / len(subsets), float(sum(subset))) for subset in subsets]


SMALL_DATA = [
    ((1, 1, 1, 1), 1),
    ((1, -1, -1, -1), 1),
    ((1, -1, -1, -1), 2),
    ((1, 1, -1), 1),
    ((1, 1, -1, 1, -1), 2),
    ((1, 0.5, -0.2, 0.1), 3),
]


@pytest.mark.parametrize("replacement", [-1.0, 0.0])
@pytest.mark.parametrize(("values", "size"), SMALL_DATA)
def test_fixed_size_bounds_cover_exact_small_cases(values, size, replacement):
    # catches noise/bound in place of noise/(2 bound), and zero-out's number halved
    first = fixed_size_mixture(values, size)
    second = fixed_size_mixture((replacement, *values[1:]), size)
    for noise in (0.8, 3.0):
        for alpha in (2, 3, 7, 2.5):
            exact = max(renyi(first, second, noise, alpha), renyi(second, first, noise, alpha))
            assert exact <= fixed_size_rdp(noise, size, len(values), alpha) * (1 + 1e-9)
        for epsilon in (0.05, 0.5):
            exact = max(hockey_stick(*pair, noise, epsilon) for pair in ((first, second), (second, first)))
            if exact > 1e-12:
                for method in ("renyi", "profile"):
                    claimed = fixed_size_epsilon(noise, size, len(values), 1, exact, method)
                    assert claimed >= epsilon * (1 - 1e-6)


def test_fixed_size_sampling_attains_its_profile():
    # catches a profile that is far from any real case: item 1 against the others at -1 is exactly it
    first, second = fixed_size_mixture((1, -1, -1, -1), 1), fixed_size_mixture((-1, -1, -1, -1), 1)
    delta = hockey_stick(first, second, 1.5, 0.4)
    assert fixed_size_epsilon(1.5, 1, 4, 1, delta, "profile") == pytest.approx(0.4, rel=1e-4)


def test_zero_out_with_a_fixed_size_is_not_half():
    # catches the bound halved for zero-out: the item that fills the empty place moves the sum as well
    first, second = fixed_size_mixture((1, -1, -1, -1), 1), fixed_size_mixture((0, -1, -1, -1), 1)
    delta = hockey_stick(first, second, 1.5, 0.3)
    halved = fixed_size_epsilon(3.0, 1, 4, 1, delta, "profile")
    assert halved < 0.25
    assert fixed_size_epsilon(1.5, 1, 4, 1, delta, "profile") >= 0.3


@pytest.mark.parametrize(("first", "second"), [((1, -1, -1, -1), (-1, -1, -1, -1)), ((1, 1, -1, -1), (-1, 1, -1, -1))])
def test_fixed_size_profile_covers_compositions(first, second):
    # catches the two directions composed apart and then maximised, which is less than composing the larger profile
    worlds = fixed_size_mixture(first, 1), fixed_size_mixture(second, 1)
    for pair in (worlds, worlds[::-1]):
        low, _ = composed_delta_bracket(*pair, 2.0, 4, 0.5, 5e-4)
        assert fixed_size_epsilon(2.0, 1, 4, 4, low, "profile") >= 0.5
        assert fixed_size_epsilon(2.0, 1, 4, 4, low, "renyi") >= 0.5


def test_fixed_size_is_wang_balle_kasiviswanathan_and_never_worse_than_no_sampling():
    # catches a term of Theorem 9 dropped, and a Renyi bound above the unsampled Gaussian's
    noise, part = 6.0, 0.05
    rdp = {j: j * 2 / noise**2 for j in (2, 3, 4)}
    terms = part**2 * 6 * min(4 * math.expm1(rdp[2]), 2 * math.exp(rdp[2]))
    terms += 2 * part**3 * 4 * math.exp(2 * rdp[3]) + 2 * part**4 * math.exp(3 * rdp[4])
    assert fixed_size_rdp(noise, 5, 100, 4) == pytest.approx(math.log1p(terms) / 3, rel=1e-8)
    unsampled = gdp_epsilon(2 * math.sqrt(10) / 3.0, 1e-6)
    assert fixed_size_epsilon(3.0, 90, 100, 10, 1e-6) <= unsampled * (1 + 1e-12)
    assert fixed_size_epsilon(3.0, 100, 100, 10, 1e-6) == pytest.approx(unsampled, rel=1e-12)
    sampled = [fixed_size_epsilon(3.0, 5, 500, 10, 1e-6, method) for method in ("renyi", "profile")]
    assert sampled[1] < 0.8 * sampled[0] < 0.5 * unsampled


# --- arguments


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: poisson_epsilon(0.0, 0.1, 1, 1e-6), "noise_multiplier"),
        (lambda: poisson_epsilon(1.0, 0.0, 1, 1e-6), "sample_prob"),
        (lambda: poisson_epsilon(1.0, 1.1, 1, 1e-6), "sample_prob"),
        (lambda: poisson_epsilon(1.0, 0.1, 1.5, 1e-6), "steps"),
        (lambda: poisson_epsilon(1.0, 0.1, 0, 1e-6), "steps"),
        (lambda: poisson_epsilon(1.0, 0.1, 1, 0.0), "delta"),
        (lambda: poisson_epsilon(1.0, 0.1, 1, 1e-6, "swap"), "adjacency"),
        (lambda: poisson_noise(0.0, 1e-6, 0.1, 1), "epsilon"),
        (lambda: poisson_noise(1.0, 0.2, 0.1, 1), "delta"),
        (lambda: poisson_rdp(1.0, 0.1, 1.0), "alpha"),
        (lambda: fixed_size_epsilon(1.0, 5, 4, 1, 1e-6), "sample_size"),
        (lambda: fixed_size_epsilon(1.0, 0, 4, 1, 1e-6), "sample_size"),
        (lambda: fixed_size_epsilon(1.0, 2, 4, 1, 1e-6, "best"), "method"),
        (lambda: fixed_size_rdp(1.0, 2, 4, 1.0), "alpha"),
    ],
)
def test_arguments_are_checked_by_name(call, argument):
    # catches an error that does not say which argument to change
    with pytest.raises(ValueError, match=argument):
        call()


@pytest.mark.parametrize("multiplier", [1e-1, 1e-2, 1e-3, 1e-5, 1e-8])
def test_next_to_no_noise_has_a_large_epsilon_and_no_error(multiplier):
    # catches: the exponential of a loss of thousands, which is no number
    plain = gdp_epsilon(math.sqrt(5) / multiplier, 1e-5)
    assert 0.3 * plain / 5 < poisson_epsilon(multiplier, 0.4, 5, 1e-5) <= plain * (1 + 1e-9)
    assert fixed_size_epsilon(multiplier, 2, 5, 5, 1e-5, method="profile") <= 4.1 * plain
