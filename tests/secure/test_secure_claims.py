"""What is promised is never less than the exact loss, for laws that are written down in full; nor much more.

A law here is that of the sum of the honest survivors' noises, as the server and the colluders have it after taking the
colluders' parts away.
"""

import math

import numpy as np
import pytest

import hushpoint as hp
from hushpoint.privacy import compose, gdp_delta, gdp_epsilon
from hushpoint.secure import Agreement, Encoding, Roster, SecureClaim, calibrated

EPSILONS = (0.05, 0.3, 1.0, 2.0, 4.0)


def encoding(scale, distance, *, length=1, sites=4, honest=2):
    """An encoding of so small numbers as no round would have."""
    found = Encoding(2.0**-30, 1.0, 2.0, length, 0, sites, honest, whole=True)
    for name, value in (("scale", scale), ("step", 1.0), ("sensitivity", float(distance))):
        object.__setattr__(found, name, value)
    return found


def claim(scale, distance, rounds=1, *, tail=12.0, length=1, sites=4, honest=2):
    return SecureClaim.of_rounds(
        encoding(scale, distance, length=length, sites=sites, honest=honest),
        agreement(sites, sites, sites - honest),
        rounds,
        unit="user",
        adjacency="replace-one",
        tail=tail,
    )


def agreement(n=8, m=8, c=1):
    return Agreement("run", Roster(tuple((str(k), bytes([k]) * 32) for k in range(n))), m, c)


def discrete_gaussian(variance, width):
    ks = np.arange(-width, width + 1)
    weights = np.exp(-(ks**2) / (2 * variance))
    return weights / weights.sum()


def noise_of(count, scale, shared_by):
    """The law of the sum of so many sites' noises, each of variance ``scale^2 / shared_by``."""
    one = discrete_gaussian(scale**2 / shared_by, math.ceil(14 * scale) + 20)
    law = one
    for _ in range(count - 1):
        law = np.convolve(law, one)
    return law


def exact_delta(law, moves, epsilon):
    """Of independent numbers, each moved by its own whole number of steps: all outcomes, both directions."""
    width = max(map(abs, moves))
    worst = 0.0
    for sign in (1, -1):
        first, second = np.ones(1), np.ones(1)
        for move in moves:
            padded = np.pad(law, width)
            first = np.multiply.outer(first, padded).ravel()
            second = np.multiply.outer(second, np.roll(padded, sign * move)).ravel()
        worst = max(worst, float(np.maximum(first - math.exp(epsilon) * second, 0).sum()))
    return worst


def best_claimed(epsilon, *numbers, **options):
    """The least delta over tails, each of which gives a bound."""
    claims = (claim(*numbers, tail=tail, **options) for tail in (2.0, 3.0, 4.0, 6.0, 8.0, 12.0))
    return min((each.delta(epsilon) for each in claims if 2 * each.spread <= epsilon), default=1.0)


# --- against laws that are enumerated


@pytest.mark.parametrize("honest", [1, 2, 3])
@pytest.mark.parametrize(("scale", "distance"), [(2, 1), (2, 3), (3, 5), (8, 4), (30, 30), (100, 60)])
def test_no_claim_is_below_the_exact_delta(scale, distance, honest):
    # a lost term of the slack; noise of the wrong variance
    law = noise_of(honest, scale, honest)
    for epsilon in EPSILONS:
        claimed = best_claimed(epsilon, scale, distance, honest=honest)
        assert exact_delta(law, [distance], epsilon) <= claimed


@pytest.mark.parametrize("moves", [[2, 2], [4, 0], [3, 1]])
def test_no_claim_is_below_the_exact_delta_in_two_numbers_or_rounds(moves):
    law, scale = noise_of(2, 12, 2), 12
    for epsilon in EPSILONS:
        exact = exact_delta(law, moves, epsilon)
        assert exact <= best_claimed(epsilon, scale, math.hypot(*moves), length=2)
        apart = [claim(scale, abs(move), tail=4.0) for move in moves]
        if epsilon >= 2 * apart[0].joined(apart[1]).spread:
            assert exact <= apart[0].joined(apart[1]).delta(epsilon)
    joined = claim(scale, 2).joined(claim(scale, 2))
    assert joined.delta(2.0) == pytest.approx(claim(scale, 2, 2).delta(2.0), rel=1e-9)


def test_the_slack_is_real():
    # a claim of plain mu-GDP: the discrete Gaussian of S = 2 tells more, by some percents
    law = discrete_gaussian(4.0, 60)
    ratios = [exact_delta(law, [1], eps) / gdp_delta(0.5, eps) for eps in np.linspace(0.01, 1.5, 60)]
    assert 1.05 < max(ratios) < 1.2
    assert best_claimed(1.5, 2, 1, honest=1) >= exact_delta(law, [1], 1.5)


@pytest.mark.parametrize(
    "bug", ["shared by n", "dropped by a survivor", "rounding forgotten", "colluder's own left in"]
)
def test_planted_bugs_exceed_the_claim(bug):
    # the same comparison with noise shared by n instead of m - c, with one part missing, with a row that moves every
    # number of a rounded sum by one more than was counted: each is above the claim by more than a percent
    scale, distance, sites, honest, length = 40, 24, 4, 2, 1
    moved, shared, count = distance, honest, honest
    if bug == "shared by n":
        shared = sites
    elif bug == "dropped by a survivor":
        count -= 1
    elif bug == "rounding forgotten":
        moved = distance + 1
    else:
        shared = honest + 1  # c was counted among those who protect
    for epsilon in (0.3, 1.0):
        claimed = claim(scale, distance, sites=sites, honest=honest, length=length).delta(epsilon)
        sound = exact_delta(noise_of(honest, scale, honest), [distance], epsilon)
        assert sound <= claimed
        assert exact_delta(noise_of(count, scale, shared), [moved], epsilon) > 1.01 * claimed


def test_no_noise_and_noise_below_half_a_step_promise_nothing():
    assert math.isinf(claim(0, 1).epsilon(1e-6))
    assert math.isinf(claim(1, 1, honest=5, sites=9).epsilon(1e-6))
    assert claim(0, 1).delta(3.0) == 1.0
    assert claim(0, 1, 0).epsilon(1e-6) == 0.0


# --- arithmetic of claims


def wide(rounds=20, **changes):
    return claim(1 << 24, 1 << 21, rounds, length=1000, sites=100, honest=90, **changes)


def test_at_the_scale_of_a_real_round_the_slack_is_nothing():
    found = wide()
    assert found.spread < 1e-9
    assert found.missed < 1e-27
    assert found.epsilon(1e-6) == pytest.approx(gdp_epsilon(math.sqrt(20) / 8, 1e-6), rel=1e-7)


@pytest.mark.parametrize("spread", [0.0, 1e-9, 1e-3])
@pytest.mark.parametrize("missed", [0.0, 1e-30, 1e-12, 1e-9])
@pytest.mark.parametrize("squared", [0.0, 1e-6, 0.2, 9.0, 1e4])
def test_an_epsilon_keeps_its_delta_and_a_smaller_one_does_not(squared, spread, missed):
    found = SecureClaim(squared, spread, missed, "user", "replace-one", 1)
    for delta in (1e-5, 1e-8):
        epsilon = found.epsilon(delta)
        if math.isinf(epsilon):
            assert (1 + math.exp(min(700.0, gdp_epsilon(math.sqrt(squared), delta)))) * missed >= delta * 0.1
            continue
        assert found.delta(epsilon) <= delta
        if epsilon > 2 * spread + 1e-6:
            below = epsilon * (1 - 2e-3) - 1e-6
            assert below < 2 * spread or found.delta(below) > delta


def test_far_away_epsilons_cost_what_was_missed():
    # (1 + e^eps) b rises with epsilon: the delta of a large epsilon may be larger than that of a small one
    found = SecureClaim(0.01, 0.0, 1e-12, "user", "replace-one", 1)
    assert found.delta(20.0) > found.delta(2.0)
    assert found.delta(1000.0) == 1.0
    assert SecureClaim(0.01, 0.0, 0.0, "user", "replace-one", 1).delta(1000.0) < 1e-200
    with pytest.raises(ValueError, match="epsilon is "):
        SecureClaim(0.01, 1.0, 0.0, "user", "replace-one", 1).delta(1.9)


def test_claims_of_several_plans_add_up_and_are_converted_once():
    # epsilons and deltas added: far more than the parts together
    one, two = wide(5), wide(15)
    joined = one.joined(two)
    assert joined.squared == pytest.approx(wide(20).squared, rel=1e-9)
    assert joined.epsilon(1e-6) == pytest.approx(wide(20).epsilon(1e-6), rel=1e-9)
    assert joined.epsilon(1e-6) < 0.9 * compose(one.guarantee(5e-7), two.guarantee(5e-7)).epsilon
    assert joined.spread >= one.spread + two.spread
    assert joined.missed >= one.missed + two.missed
    with pytest.raises(ValueError, match="same unit"):
        one.joined(SecureClaim(0.1, 0.0, 0.0, "record", "replace-one", 1))
    weaker = SecureClaim(0.1, 0.0, 0.0, "user", "replace-one", 0, is_whole=False)
    assert one.joined(weaker).colluders == 0
    assert not one.joined(weaker).is_whole


def test_a_proved_gaussian_guarantee_joins_without_slack():
    spent = hp.Guarantee(1.0, 1e-6, 0.2, "user", "replace-one", "messages", "proved", "11", arithmetic="whole")
    joined = wide().joined(SecureClaim.of_guarantee(spent, 1))
    assert joined.squared == pytest.approx(wide().squared + 0.04, rel=1e-9)
    assert (joined.spread, joined.missed) == (wide().spread, wide().missed)
    for change in ({"mu": None}, {"basis": "published"}, {"view": "iterates"}, {"item": 3}):
        bad = hp.Guarantee.from_dict({**spent.to_dict(), **change})
        with pytest.raises(ValueError, match=r"not a proved one with a mu|against an untrusted server"):
            SecureClaim.of_guarantee(bad, 1)


def test_a_claim_is_for_the_agreement_whose_honest_survivors_share_the_noise():
    # more colluders than the noise was made for
    for other in (agreement(8, 8, 2), agreement(8, 7, 1), agreement(9, 8, 1)):
        made = encoding(1 << 20, 1 << 20, sites=8, honest=7)
        with pytest.raises(ValueError, match="Make the encoding for this agreement"):
            SecureClaim.of_rounds(made, other, 1, unit="user", adjacency="zero-out")


def test_the_sentence_says_against_whom_and_has_no_mu():
    # a guarantee that another accountant composes as if it were Gaussian
    said = wide().guarantee(1e-6)
    assert said.mu is None
    assert said.epsilon == wide().epsilon(1e-6)
    text = str(said)
    for words in ("at most 10 of the agreed sites", "computationally", "section 12", "untrusted server included"):
        assert words in text
    trusting = SecureClaim(0.01, 0.0, 0.0, "record", "zero-out", 0, is_whole=False).guarantee(1e-6)
    assert "no site" in str(trusting)
    assert trusting.arithmetic == "real"
    assert hp.Guarantee.from_dict(said.to_dict()) == said


# --- noise for a budget


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 10.0])
@pytest.mark.parametrize(("length", "whole"), [(1, True), (30, False), (5000, True)])
@pytest.mark.parametrize("rounds", [1, 40])
def test_calibrated_noise_is_within_the_budget_and_less_is_not(epsilon, length, whole, rounds):
    # spare rounds that are not paid for; a scale that is rounded down
    budget = hp.Budget(epsilon, 1e-6)
    options = {"bound": 0.5, "sensitivity": 1.0 if whole else 0.01, "length": length, "whole": whole}
    found = calibrated(budget, agreement(), rounds=rounds, spare=2, **options)

    def at(scale, rounds):
        less = Encoding(found.step, found.bound, found.sensitivity, length, scale, 8, 7, whole)
        return SecureClaim.of_rounds(less, agreement(), rounds, unit="user", adjacency="replace-one")

    assert at(found.scale, rounds + 2).delta(epsilon) <= 1e-6
    assert at(found.scale, rounds + 2).epsilon(1e-6) <= epsilon
    assert at(found.scale, rounds + 2).spread <= epsilon / 1000
    assert at(math.floor(found.scale * 0.9999), rounds + 2).delta(epsilon) > 1e-6
    assert at(found.scale, rounds + 3).delta(epsilon) > 1e-6
    assert found.honest == 7
    assert found.sensitivity / found.step >= 2**10 * math.sqrt(length)


def test_calibration_takes_coarser_steps_for_longer_messages_and_says_when_there_are_none():
    budget = hp.Budget(1.0, 1e-6)
    fine = calibrated(budget, agreement(), bound=1.0, sensitivity=1.0, length=10, rounds=5)
    coarse = calibrated(budget, agreement(), bound=2.0**41, sensitivity=1.0, length=10, rounds=5)
    assert coarse.step > fine.step
    with pytest.raises(ValueError, match="wrap around"):
        calibrated(budget, agreement(), bound=2.0**60, sensitivity=1.0, length=10, rounds=5)
