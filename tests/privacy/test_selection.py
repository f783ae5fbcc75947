"""Publishing the best of a random number of runs: the bound against exact laws of the best run, and the law of K."""

from __future__ import annotations

import functools
import itertools
import math
from decimal import Context, Decimal

import numpy as np
import pytest
from oracles.run_counts import pmf
from scipy import integrate, optimize, special, stats

from hushpoint.lattice.words import Words, words_at
from hushpoint.noise import seeded_source
from hushpoint.privacy import gdp_delta, gdp_epsilon, gdp_mu, inversion
from hushpoint.privacy import selection as sel
from hushpoint.privacy.gaussian import rdp_epsilon
from hushpoint.privacy.selection import (
    DISTRIBUTIONS,
    RunCount,
    best_distribution,
    run_count,
    selection_epsilon,
    selection_mu,
    selection_rdp,
)

MUS = (0.05, 0.3, 1.0, 2.5)
MEANS = (1.3, 4.0, 25.0)
CASES = list(itertools.product(DISTRIBUTIONS, MEANS, MUS))


def selection_delta(mu: float, epsilon: float, mean: float, distribution: str = "geometric") -> float:
    return sel._best_delta(mu, epsilon, run_count(mean, distribution))


# --- exact oracles: mechanisms of finitely many outputs


def terms(law: RunCount) -> np.ndarray:
    """P(K = 1), P(K = 2), ... until nothing is left."""
    chances = np.array([pmf(law, count) for count in range(1, 50 + math.ceil(200 * law.mean))])
    return chances[: np.flatnonzero(chances > 1e-17)[-1] + 1]


def best_of(law: RunCount, worst_to_best: np.ndarray) -> np.ndarray:
    """Law of the best of K draws: P(best is at most i) = E[P(draw is at most i)^K], from the probabilities of K.

    The differences of that polynomial are divided differences times the cells' own probabilities, so that cells of
    probability 1e-30 keep all their digits.
    """
    upto = np.minimum(1.0, np.cumsum(worst_to_best))
    below = np.concatenate([[0.0], upto[:-1]])
    value, divided = np.zeros_like(upto), np.zeros_like(upto)
    for term in [*terms(law)[::-1], 0.0]:
        divided = upto * divided + value
        value = below * value + term
    return worst_to_best * divided


def gaussian_cells(mu: float, cells: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """N(mu, 1) and N(0, 1) seen through cells: a mu-GDP pair, whatever score the cells are given."""
    ends = np.concatenate([[-math.inf], np.linspace(-6.0, 6.0 + mu, cells - 1), [math.inf]])
    return cell_chances(ends - mu), cell_chances(ends)


def cell_chances(ends: np.ndarray) -> np.ndarray:
    """Standard normal probabilities between the ends, each from the tail that keeps its digits."""
    left, right = ends[:-1], ends[1:]
    return np.where(left > 0, special.ndtr(-left) - special.ndtr(-right), special.ndtr(right) - special.ndtr(left))


def orders(cells: int) -> list[np.ndarray]:
    """Scores for the cells, worst first: along the loss, against it, at random, and the attack of docs/selection.md."""
    rising = np.arange(cells)
    generator = np.random.default_rng(0)
    attacks = [np.roll(rising, -cut) for cut in (cells // 8, cells // 4, 3 * cells // 8, cells // 2)]
    return [rising, rising[::-1], generator.permutation(cells), *attacks]


def exact_delta(first: np.ndarray, second: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(first - math.exp(epsilon) * second, 0).sum())


@functools.cache
def exact_pairs(distribution: str, mean: float, mu: float) -> list[tuple[np.ndarray, np.ndarray]]:
    """The best run in both worlds, for every order and for both roles of the worlds."""
    law = run_count(mean, distribution)
    high, low = gaussian_cells(mu)
    pairs = []
    for order in orders(len(high)):
        here, there = best_of(law, high[order]), best_of(law, low[order])
        pairs += [(here, there), (there, here)]
    return pairs


@pytest.mark.parametrize(("distribution", "mean", "mu"), CASES)
def test_bound_holds_on_exact_laws(distribution: str, mean: float, mu: float) -> None:
    # Catches: a shift, a weight or the factor E[K] that is too small in one of the two directions.
    for epsilon in (0.0, 0.3 * mu, mu, 3 * mu, 5 * mu + mu**2):
        claimed = selection_delta(mu, epsilon, mean, distribution)
        for here, there in exact_pairs(distribution, mean, mu):
            assert exact_delta(here, there, epsilon) <= claimed * (1 + 1e-9)


@pytest.mark.parametrize(("distribution", "mean", "mu"), CASES)
def test_published_renyi_bounds_hold_on_exact_laws(distribution: str, mean: float, mu: float) -> None:
    # Catches: (1 + eta) forgotten, the wrong b, delta hat at the wrong epsilon.
    for alpha in (1.5, 2.0, 6.0):
        claimed = selection_rdp(mu, alpha, mean, distribution)
        for here, there in exact_pairs(distribution, mean, mu):
            exact = math.log(np.sum(here**alpha * there ** (1 - alpha))) / (alpha - 1)
            assert exact <= claimed * (1 + 1e-9)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_noisy_score_alone(distribution: str) -> None:
    # The score itself is the release: density phi(x - mu) f'(Phi(x - mu)), integrated, not summed over cells.
    mu, mean = 0.7, 6.0
    law = run_count(mean, distribution)
    chances = terms(law) * np.arange(1, len(terms(law)) + 1)

    def density(x: np.ndarray, shift: float) -> np.ndarray:
        return stats.norm.pdf(x - shift) * np.polynomial.polynomial.polyval(special.ndtr(x - shift), chances)

    points = np.linspace(-9, 10, 20_001)
    assert integrate.trapezoid(density(points, 0.0), points) == pytest.approx(1, rel=1e-6)
    for epsilon, (one, other) in itertools.product((0.2, 1.0, 2.0), ((mu, 0.0), (0.0, mu))):
        gap = np.maximum(0, density(points, one) - math.exp(epsilon) * density(points, other))
        assert 0 < integrate.trapezoid(gap, points) <= selection_delta(mu, epsilon, mean, distribution)


def attack_epsilon(mu: float, delta: float, law: RunCount) -> float:
    """The largest exact epsilon over one family of scores: outputs that speak against the world are ranked first."""
    high, low = gaussian_cells(mu, 900)
    found = 0.0
    for cut in range(50, 500, 50):
        order = np.roll(np.arange(len(high)), -cut)
        here, there = best_of(law, high[order]), best_of(law, low[order])
        found = max(found, optimize.brentq(lambda e, p=here, q=there: exact_delta(p, q, e) - delta, 0, 60))
    return found


@pytest.mark.parametrize(("distribution", "mean", "mu"), [("geometric", 10, 1.0), ("logarithmic", 10, 0.3)])
def test_bound_is_nearly_attained_and_the_naive_claim_is_broken(distribution: str, mean: float, mu: float) -> None:
    # Catches: a bound that is sound because it is useless; and every shortcut below is shown to be false.
    delta = 1e-6
    law = run_count(mean, distribution)
    exact = attack_epsilon(mu, delta, law)
    claimed = selection_epsilon(mu, delta, mean, distribution)
    assert 0.98 * claimed <= exact <= claimed

    assert gdp_epsilon(mu, delta) < 0.8 * exact  # "one run was spent"
    assert gdp_epsilon(mu, delta / mean) < 0.95 * exact  # the factor E[K] without the shift
    shifts, parts = sel._shifts(mu, law)

    def without_mean(epsilon: float) -> float:
        return sum(p * sel._delta(mu, epsilon - u) for u, p in zip(shifts, parts, strict=True)) - delta

    assert optimize.brentq(without_mean, 0, 60) < 0.97 * exact  # the shift without the factor E[K]


@pytest.mark.parametrize(("distribution", "mean", "mu"), CASES)
def test_hull_is_outside_of_the_curve(distribution: str, mean: float, mu: float) -> None:
    # Catches: a grid that misses the maximum between its points, or corners on the wrong side.
    law = run_count(mean, distribution)
    shifts, parts = (np.array(part) for part in sel._shifts(mu, law))
    beaten = special.ndtr(np.linspace(-12, 12, 99_991))
    curve, other = law.weight(beaten), law.weight(special.ndtr(special.ndtri(beaten) + mu))
    for slope in np.exp(np.linspace(-1, shifts[-1] * 1.01, 37)):
        claimed = np.sum(parts * np.maximum(0, 1 - slope * np.exp(-shifts)))
        true = max(0.0, float(np.max(curve - slope * other)))
        assert true <= claimed * (1 + 1e-11) + 1e-15
        assert slope < 1 or claimed <= true + 2e-3  # and not far outside, where it matters


@pytest.mark.parametrize(("distribution", "mean", "mu"), [*CASES, ("poisson", 100.0, 0.3)])
def test_every_point_of_the_curve_is_inside_of_its_corner(distribution: str, mean: float, mu: float) -> None:
    # Catches: points of the curve in place of corners, which miss what lies between them.
    least, most = sel._corners(mu, run_count(mean, distribution))
    points = np.random.default_rng(0).uniform(-9, 9, 5000)
    cell = np.searchsorted(least, special.ndtr(points), side="right") - 1
    assert least[0] == 0
    assert most[-1] == 1
    assert np.all(special.ndtr(points + mu) <= most[cell] * (1 + 1e-12))
    assert np.any(special.ndtr(points + mu) > np.append(0, most)[cell] * (1 + 1e-6))


# --- the bound beside others, and its inverses


@pytest.mark.parametrize(("distribution", "mean", "mu"), CASES)
def test_never_above_the_published_bounds(distribution: str, mean: float, mu: float) -> None:
    for delta in (1e-3, 1e-6, 1e-10):
        ours = selection_epsilon(mu, delta, mean, distribution)
        published = rdp_epsilon(lambda alpha: selection_rdp(mu, alpha, mean, distribution), delta)
        assert gdp_epsilon(mu, delta) <= ours <= published * (1 + 1e-2)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_one_run_costs_one_run(distribution: str) -> None:
    assert selection_epsilon(0.7, 1e-5, 1, distribution) == gdp_epsilon(0.7, 1e-5)
    assert selection_mu(1.0, 1e-5, 1, distribution) == gdp_mu(1.0, 1e-5)
    assert selection_delta(0.7, 1.0, 1, distribution) == gdp_delta(0.7, 1.0)
    assert selection_epsilon(0.7, 1e-5, 1.0001, distribution) == pytest.approx(gdp_epsilon(0.7, 1e-5), rel=1e-3)


BUDGETS = [(0.05, 1e-5, 10), (1.0, 1e-6, 3.5), (1.0, 1e-6, 10), (8.0, 1e-9, 40)]


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize(("epsilon", "delta", "mean"), BUDGETS)
def test_allowed_mu_is_within_the_budget_and_no_larger_one_is(
    distribution: str, epsilon: float, delta: float, mean: float
) -> None:
    # Catches: a two-sided tolerance, and a budget left unspent.
    mu = selection_mu(epsilon, delta, mean, distribution)
    assert selection_epsilon(mu, delta, mean, distribution) <= epsilon
    assert selection_delta(mu, epsilon, mean, distribution) <= delta
    assert selection_epsilon(1.001 * mu, delta, mean, distribution) > epsilon
    assert selection_delta(mu, selection_epsilon(mu, delta, mean, distribution), mean, distribution) <= delta


def test_auto_is_the_law_that_allows_most() -> None:
    allowed = {name: selection_mu(1.0, 1e-6, 10, name) for name in DISTRIBUTIONS}
    best = best_distribution(1.0, 1e-6, 10)
    assert allowed[best] == max(allowed.values()) == selection_mu(1.0, 1e-6, 10, "auto")
    assert best_distribution(1.0, 1e-6, 5000) in ("geometric", "logarithmic")  # out of range for "poisson"


def test_edges() -> None:
    assert selection_epsilon(0.0, 1e-6, 10) == 0
    assert selection_epsilon(0.5, 0.0, 10) == selection_epsilon(math.inf, 1e-6, 10) == math.inf
    assert selection_epsilon(0.5, 1.0, 10) == 0
    assert selection_epsilon(0.01, 0.5, 10) == 0
    assert selection_mu(math.inf, 1e-6, 10) == math.inf
    assert selection_mu(1.0, 0.0, 10) == 0
    assert selection_mu(1e-6, 1e-12, 10) < 1e-6
    assert selection_delta(3.0, 0.0, 10) == 1
    assert math.isfinite(selection_epsilon(1.0, 1e-6, 1e6, "logarithmic"))
    assert math.isfinite(selection_epsilon(1.0, 1e-6, 300, "poisson"))
    assert selection_epsilon(40.0, 1e-6, 10, "geometric") > gdp_epsilon(40.0, 1e-6)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: selection_epsilon(-1.0, 1e-6, 10), "mu is -1.0"),
        (lambda: selection_epsilon(1.0, 2.0, 10), "delta is 2.0"),
        (lambda: selection_epsilon(1.0, 1e-6, 0.5), "mean_candidates is 0.5"),
        (lambda: selection_epsilon(1.0, 1e-6, math.nan), "mean_candidates is nan"),
        (lambda: selection_epsilon(1.0, 1e-6, 301, "poisson"), "mean_candidates is 301"),
        (lambda: selection_mu(-1.0, 1e-6, 10), "epsilon is -1.0"),
        (lambda: selection_epsilon(1.0, 1e-6, 10, "uniform"), "distribution is 'uniform'"),
        (lambda: RunCount("geometric", 0.0), "parameter is 0.0"),
        (lambda: RunCount("poisson", -1.0), "parameter is -1.0"),
        (lambda: run_count(3, "geometric").chance_of_trying(1.5), "fraction is 1.5"),
    ],
)
def test_errors_name_the_argument(call, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        call()


# --- the law of the number of runs


@pytest.mark.parametrize(("distribution", "mean"), list(itertools.product(DISTRIBUTIONS, (1.0, 1.01, 3.0, 30.0))))
def test_mean_weight_and_chance_follow_from_the_probabilities(distribution: str, mean: float) -> None:
    # Catches: eta off by one, a Poisson law that can be 0, a mean that is not the one asked for.
    law = run_count(mean, distribution)
    chances = terms(law)
    counts = np.arange(1, len(chances) + 1)
    assert pmf(law, 0) == 0
    assert chances.sum() == pytest.approx(1, rel=1e-9)
    assert law.mean == pytest.approx(mean, rel=1e-9)
    assert chances @ counts == pytest.approx(mean, rel=1e-7)
    for beaten in (0.0, 0.03, 0.5, 1.0):
        slope = np.sum(chances * counts * (1 - beaten) ** (counts - 1.0))
        assert law.weight(np.array([beaten]))[0] == pytest.approx(slope / mean, rel=1e-6)
        assert law.chance_of_trying(beaten) == pytest.approx(1 - chances @ (1 - beaten) ** counts, rel=1e-6, abs=1e-9)


def chi_square_p(drawn: np.ndarray, law: RunCount) -> float:
    """p-value of draws of K against its probabilities, rare values pooled."""
    edges = [k for k in range(1, 400) if pmf(law, k) * len(drawn) >= 20]
    expected = [pmf(law, k) * len(drawn) for k in edges]
    seen = [int(np.sum(drawn == k)) for k in edges]
    rest = len(drawn) - sum(expected)
    if rest > 20:
        expected, seen = [*expected, rest], [*seen, len(drawn) - sum(seen)]
    scale = sum(seen) / sum(expected)
    return float(stats.chisquare(seen, np.array(expected) * scale).pvalue)


@pytest.mark.parametrize(("distribution", "mean"), list(itertools.product(DISTRIBUTIONS, (1.2, 8.0))))
@pytest.mark.parametrize("exactly", [True, False])
def test_drawn_counts_have_the_accounted_law(distribution: str, mean: float, exactly: bool) -> None:
    # Fixed seed; false alarm 1e-6. Power: a law with 20% more runs beyond the first, or another law, is rejected: with
    # p-values about 1e-20 or less, so of the larger counts, which take long to draw, fewer are enough.
    law = run_count(mean, distribution)
    size = 30_000 if mean < 2 else 20_000
    generator = np.random.default_rng(7)
    bits = Words(words_at(seeded_source(7), "test", 0, 0))
    drawn = np.array([law.drawn_exactly(bits) if exactly else law.draw(generator) for _ in range(size)])
    assert drawn.min() >= 1
    assert chi_square_p(drawn, law) > 1e-6
    assert chi_square_p(drawn, run_count(1 + 1.2 * (mean - 1), distribution)) < 1e-6
    for other in DISTRIBUTIONS:
        if other != distribution and mean > 2:
            assert chi_square_p(drawn, run_count(mean, other)) < 1e-6


def test_one_run_is_always_one_run() -> None:
    generator = np.random.default_rng(0)
    assert {run_count(1, name).draw(generator) for name in DISTRIBUTIONS for _ in range(50)} == {1}
    assert {run_count(1, name).drawn_exactly(Crafted(0)) for name in DISTRIBUTIONS} == {1}


# --- the same, exactly


class Crafted:
    """The words of a uniform number of 256 bits that the test chooses."""

    width, deepest = 64, 4

    def __init__(self, bits: int) -> None:
        self.left = [bits >> shift & (1 << 64) - 1 for shift in (192, 128, 64, 0)]

    def word(self) -> int:
        return self.left.pop(0)

    def coin(self) -> int:
        raise AssertionError("no coins are tossed")


WIDE = Context(400)


def chance_up_to(law: RunCount, count: int) -> Decimal:
    """``P(K <= count)`` to 400 digits, by the formulas of docs/selection.md."""
    g, total = Decimal(law.parameter), Decimal(0)
    for k in range(1, count + 1):
        if law.distribution == "poisson":
            term = WIDE.divide(WIDE.power(g, k), Decimal(math.factorial(k)))
        else:
            term = WIDE.power(WIDE.subtract(Decimal(1), g), k)
        total = WIDE.add(total, WIDE.divide(term, Decimal(k)) if law.distribution == "logarithmic" else term)
    if law.distribution == "geometric":
        return WIDE.divide(WIDE.multiply(total, g), WIDE.subtract(Decimal(1), g))
    if law.distribution == "logarithmic":
        return WIDE.divide(total, WIDE.ln(g).copy_negate())
    return WIDE.divide(total, WIDE.subtract(WIDE.exp(g), Decimal(1)))


@pytest.mark.parametrize(("distribution", "mean"), list(itertools.product(DISTRIBUTIONS, (1 + 1e-12, 1.2, 8.0, 290.0))))
def test_exact_draws_change_where_the_law_does(distribution: str, mean: float) -> None:
    # Catches: a first term or a normaliser that is off, decimals that lose digits (28 is what operators keep): a
    # uniform number 2^-250 beside a value of the distribution function must be on its right side.
    law = run_count(mean, distribution)
    seen = 0
    for count in (1, 2, 3, 50, 300):
        edge = int(WIDE.multiply(chance_up_to(law, count), Decimal(1 << 256)))
        if 64 <= edge < (1 << 256) - 64:  # fifty runs may be all but certain, one run all but impossible
            assert law.drawn_exactly(Crafted(edge - 64)) <= count
            assert law.drawn_exactly(Crafted(edge + 64)) > count
            seen += 1
    assert seen >= 2


def test_what_the_bits_do_not_decide_is_an_error_and_never_a_guess() -> None:
    law = run_count(8.0, "logarithmic")
    edge = int(WIDE.multiply(chance_up_to(law, 3), Decimal(1 << 256)))
    with pytest.raises(ArithmeticError, match="do not release"):
        law.drawn_exactly(Crafted(edge))
    # one half is a number of 256 bits: U = 1/2 and more is not below it, and that is decided
    half = RunCount("geometric", 0.5)
    assert [half.drawn_exactly(Crafted((1 << 255) + k)) for k in (-1, 0, 1)] == [1, 2, 2]


@pytest.mark.parametrize("number", [1e-300, 1e-8, 0.3, 0.5, 1 - 2**-53])
def test_decimals_lie_on_both_sides_of_the_truth(number: float) -> None:
    # Catches: rounding to nearest, or in the default context, where a bound is claimed.
    for (low, high), truth in (
        (inversion.log_inverse(number), WIDE.ln(Decimal(number)).copy_negate()),
        (inversion.exp_less_one(number), WIDE.subtract(WIDE.exp(Decimal(number)), Decimal(1))),
        (inversion.rest_of(number), WIDE.subtract(Decimal(1), Decimal(number))),
        (inversion.over(inversion.exactly(number), 7), WIDE.divide(Decimal(number), Decimal(7))),
    ):
        assert low <= truth <= high
        assert WIDE.subtract(high, low) <= Decimal("1e-115") * max(truth, 1)
