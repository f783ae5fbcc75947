"""Exactness: the programs themselves, run on all random choices, have the probabilities of the formula.

Layer by layer. Comparisons, whole numbers and the rounding: on all strings of digits, bit by bit. Events and draws:
bit by bit as far as that goes (every bound must hold), and with comparisons as choices to less than 1e-4 missing.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import enumeration
import mpmath
import pytest
from enumeration import ONE, ZERO, Number, accepted, outcomes, polynomials, symbol

from hushpoint.lattice import bernoulli, gaussian, normal, uniform
from hushpoint.lattice.gaussian import Width
from hushpoint.lattice.uniform import Uniform

mpmath.mp.dps = 40
WIDTHS = pytest.mark.parametrize("width", [1, 2, 3])


def exactly(value):
    """A number of 40 digits: far closer to the truth than any bound here."""
    return Fraction(mpmath.nstr(value, 38))


def decay(numerator, denominator=1):
    return exactly(mpmath.exp(-mpmath.mpf(numerator) / denominator))


def rounded_law(k, scale):
    return exactly(mpmath.ncdf((k + mpmath.mpf(0.5)) / scale) - mpmath.ncdf((k - mpmath.mpf(0.5)) / scale))


def gaussian_law(k, numerator, denominator):
    weight = [mpmath.exp(-mpmath.mpf(j * j * denominator) / (2 * numerator)) for j in range(-60, 61)]
    return exactly(weight[60 + k] / sum(weight))


def span(number):
    """The numbers that begin with the digits known."""
    units = ONE
    value = ZERO
    for digit in number.digits:
        units /= 2**number.bits.width
        value += digit * units
    return value, value + units


# --- Comparisons and roundings, on all strings of digits -------------------------------------------------------------


@WIDTHS
def test_a_comparison_is_that_of_the_numbers(width):
    # ties broken by a coin, or by the order of the arguments
    def compared(bits):
        one, other = Uniform(bits), Uniform(bits)
        found = uniform.less(one, other)
        (low, high), (bottom, top) = span(one), span(other)
        assert high <= bottom if found else top <= low
        return found

    found, missing = outcomes(compared, width, 2.0**-16)
    assert found[True] == found[False]
    assert missing < 0.02


@WIDTHS
@pytest.mark.parametrize("ratio", [(0, 1), (1, 3), (1, 2), (5, 7), (3, 8), (12, 13), (1, 1)])
def test_a_comparison_with_a_ratio_is_exact(width, ratio):
    def compared(bits):
        number = Uniform(bits)
        found = uniform.below(number, *ratio)
        low, high = span(number)
        assert high <= Fraction(*ratio) if found else low >= Fraction(*ratio)
        return found

    found, missing = outcomes(compared, width, 2.0**-40)
    assert found[True] <= Fraction(*ratio) <= found[True] + missing
    assert missing < 1e-9


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 11])
def test_whole_numbers_are_all_as_likely(count):
    found, missing = outcomes(lambda bits: uniform.whole_below(bits, count), 1, 2.0**-13)
    assert set(found) == set(range(count))
    assert len(set(found.values())) == 1  # to the last bit, at whatever depth it is cut off
    assert missing < 0.05


@WIDTHS
@pytest.mark.parametrize("scale", [1, 2, 3, 5, 8, 12])
def test_the_rounding_is_that_of_the_number(width, scale):
    # truncation, a half-way point that is off by one, a digit too few
    def rounded(bits):
        number = Uniform(bits)
        found = normal.nearest(number, scale)
        low, high = span(number)
        assert scale * low >= found - Fraction(1, 2)
        assert scale * high <= found + Fraction(1, 2)
        return found

    found, missing = outcomes(rounded, width, 2.0**-30)
    assert missing < 1e-6
    assert set(found) == set(range(scale + 1))
    assert found[0] <= Fraction(1, 2 * scale) <= found[0] + missing


# --- Events and draws, bit by bit ------------------------------------------------------------------------------------


def check(found, missing, truth):
    """Every bound holds, and there is nothing else."""
    for outcome, mass in found.items():
        assert mass <= truth(outcome) <= mass + missing


@WIDTHS
def test_half_is_exact_bit_by_bit(width):
    before = {True: ZERO, False: ZERO}
    for depth in (10, 14, 18):
        found, missing = outcomes(bernoulli.half, width, 2.0**-depth)
        check(found, missing, lambda yes: decay(1, 2) if yes else 1 - decay(1, 2))
        assert all(found[side] > before[side] for side in before)
        before = found
    assert missing < 0.02


def test_a_tie_broken_by_a_coin_is_seen(monkeypatch):
    # the power of the test above
    def coined(one, other):
        a, b = one.digit(0), other.digit(0)
        return bool(one.bits.coin()) if a == b else a < b

    monkeypatch.setattr(bernoulli, "less", coined)
    found, missing = outcomes(bernoulli.half, 1, 2.0**-18)
    assert not found[True] <= decay(1, 2) <= found[True] + missing


def whole_law(k):
    return exactly(mpmath.exp(-mpmath.mpf(k * k) / 2) / mpmath.nsum(lambda j: mpmath.exp(-j * j / 2), [0, mpmath.inf]))


@WIDTHS
def test_the_whole_part_is_exact_bit_by_bit(width):
    # a threshold that is off in any of the bits that are read, a comparison the wrong way round
    found, missing = outcomes(normal.whole_part, width, 2.0**-40)
    check(found, missing, whole_law)
    assert missing < 1e-10
    assert set(found) >= set(range(7))


def test_the_thresholds_are_right_to_the_last_bit():
    with mpmath.workdps(150):
        total = mpmath.nsum(lambda j: mpmath.exp(-j * j / 2), [0, mpmath.inf])
        for k, known in enumerate(normal.CUMULATED):
            true = mpmath.fsum(mpmath.exp(-mpmath.mpf(j * j) / 2) for j in range(k + 1)) / total
            assert mpmath.floor(true * 2**256) == known
    assert normal.CUMULATED[-2] < normal.CUMULATED[-1] == 2**256 - 1


@pytest.mark.parametrize("scale", [1, 3])
def test_rounded_normals_bit_by_bit(scale):
    # the whole try, its parts joined as they are; what is missing is large here, but no bound may fail
    found, missing = outcomes(lambda bits: normal.attempt(bits, scale), 1, 2.0**-13)
    for k, (low, high) in accepted(found, missing).items():
        assert low <= rounded_law(k, scale) <= high
    assert missing < 0.6


@pytest.mark.parametrize("variance", [(1, 1), (3, 1)])
def test_discrete_gaussians_bit_by_bit(variance):
    found, missing = outcomes(lambda bits: gaussian.attempt(bits, Width.of(*variance)), 1, 2.0**-14)
    for k, (low, high) in accepted(found, missing).items():
        assert low <= gaussian_law(k, *variance) <= high
    assert missing < 0.45


# --- Events and draws to the end, comparisons as choices -------------------------------------------------------------


@pytest.fixture
def ordered(monkeypatch):
    """Comparisons are choices with their exact probabilities; so is a whole number."""
    for module in (bernoulli, normal):
        for name in ("Uniform", "less", "below"):
            monkeypatch.setattr(module, name, getattr(enumeration, name, Number))
    monkeypatch.setattr(gaussian, "whole_below", lambda bits, count: bits.one_of(count))
    # all of 0 .. count - 2 take the same way
    monkeypatch.setattr(
        normal, "whole_below", lambda bits, count: 0 if bits.event(*2 * [Fraction(count - 1, count)]) else count - 1
    )


def event_of(program):
    """An event that was enumerated, as one choice."""
    found, missing = outcomes(program, 1, 1e-14)
    assert missing < 1e-12
    return found[True], found[True] + missing


def test_events_are_exact(ordered):
    for program, (numerator, denominator) in {
        bernoulli.half: (1, 2),
        bernoulli.one: (1, 1),
        (lambda bits: bernoulli.ratio(bits, 0, 5)): (0, 5),
        (lambda bits: bernoulli.ratio(bits, 3, 7)): (3, 7),
        (lambda bits: bernoulli.ratio(bits, 7, 7)): (1, 1),
    }.items():
        low, high = event_of(program)
        assert low <= decay(numerator, denominator) <= high


@pytest.fixture
def composed(request, monkeypatch):
    """Events, whole parts and factors that were enumerated on their own are choices of a try."""
    parts, _ = outcomes(normal.whole_part, 3, 2.0**-60)  # digit by digit, while comparisons are still those of digits
    request.getfixturevalue("ordered")
    single, known = event_of(bernoulli.one), factors()
    whole = [([parts[k]], ZERO, ONE) for k in range(6)]

    def factor(bits, whole, fraction):
        return bool(bits.choice([(known[whole][side], ZERO, ONE) for side in (False, True)]))

    monkeypatch.setattr(normal, "whole_part", lambda bits: bits.choice(whole))
    monkeypatch.setattr(normal, "factor", factor)
    monkeypatch.setattr(normal, "Uniform", symbol)
    monkeypatch.setattr(gaussian, "one", lambda bits: bits.event(*single))


@cache
def factors():
    """What a factor is as a function of x, for every whole part that is not too improbable."""
    return [polynomials(lambda bits, k=k: normal.factor(bits, k, symbol(bits)), 1, 1e-8 * 10**k) for k in range(6)]


@pytest.mark.parametrize("whole", [0, 1, 2, 3])
def test_the_factor_of_a_try_is_exact(ordered, whole):
    # a test left out of the run, or of another probability; k factors in place of k + 1
    found = polynomials(lambda bits: normal.factor(bits, whole, symbol(bits)), 1, 1e-8)

    def at(side, x):
        return sum(each * x**k for k, each in enumerate(found[side]))

    for x in (Fraction(1, 9), Fraction(1, 2), Fraction(8, 9)):
        truth = decay(x.numerator * (2 * whole * x.denominator + x.numerator), x.denominator**2 * (2 * whole + 2))
        assert at(True, x) <= truth <= 1 - at(False, x)
        assert 1 - at(True, x) - at(False, x) < 1e-4


@pytest.mark.parametrize("scale", [1, 2, 3, 5])
def test_rounded_normals_are_exact(composed, scale):
    # a wrong count of factors, a lost sign, truncation, a scale that is off
    found, missing = outcomes(lambda bits: normal.attempt(bits, scale), 2, 1e-7)
    assert missing < 1e-4
    bounds = accepted(found, missing)
    assert set(bounds) >= set(range(-3 * scale, 3 * scale + 1))
    for k, (low, high) in bounds.items():
        assert low <= rounded_law(k, scale) <= high
        assert high - low < 3e-4
    assert accepted(*outcomes(lambda bits: normal.attempt(bits, scale), 2, 1e-3))[0][0] < bounds[0][0]  # increasing


@pytest.mark.parametrize("variance", [(1, 3), (1, 1), (3, 1), (7, 2), (27, 4)])
def test_discrete_gaussians_are_exact(composed, variance):
    # zero with two signs, the wrong scale of the proposals, whole units of x not paid for
    found, missing = outcomes(lambda bits: gaussian.attempt(bits, Width.of(*variance)), 1, 1e-8)
    assert missing < 1e-4
    bounds = accepted(found, missing)
    assert len(bounds) >= 5
    for k, (low, high) in bounds.items():
        assert low <= gaussian_law(k, *variance) <= high
    half_as_wide = Fraction(*variance) / 4
    assert not bounds[0][0] <= gaussian_law(0, half_as_wide.numerator, half_as_wide.denominator) <= bounds[0][1]


def test_a_sign_lost_at_zero_is_seen(composed, monkeypatch):
    # the power of the tests above: -0 thrown away where it belongs, and kept where it does not
    honest = normal.attempt

    def losing(bits):
        found = honest(bits, 3)
        return None if found == 0 and bits.coin() else found

    found, missing = outcomes(losing, 2, 1e-7)
    low, high = accepted(found, missing)[0]
    assert not low <= rounded_law(0, 3) <= high
    proposals = gaussian.laplace
    monkeypatch.setattr(gaussian, "laplace", lambda bits, step: proposals(bits, step) or 0)
    found, missing = outcomes(lambda bits: gaussian.attempt(bits, Width.of(3, 1)), 1, 1e-7)
    low, high = accepted(found, missing)[0]
    assert not low <= gaussian_law(0, 3, 1) <= high
