"""Messages as integers, shares, masks and packed bytes: the pieces that need no round."""

import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from hushpoint.noise import seeded_source
from hushpoint.secure import Encoding, Refused
from hushpoint.secure.packing import number, pack, packed_set, unpack, unpacked_set

STEP = 2.0**-20


def encoding(**changes):
    values = {"step": STEP, "bound": 1.0, "sensitivity": 2.0, "length": 3, "scale": 1 << 20, "sites": 5, "honest": 4}
    return Encoding(**{**values, **changes})


# --- encoding


def test_a_message_is_rounded_toward_zero():
    # to the nearest: half of the messages at the bound would be longer than K
    steps, sound = encoding().truncated(STEP * np.array([0.99, -1.99, 2.5]))
    assert sound
    assert steps.tolist() == [0, -1, 2]


@pytest.mark.parametrize(
    "message",
    [
        [np.nan, 0, 0],
        [0, np.inf, 0],
        [0, -np.inf, 0],
        [1e308, 1e308, -1e308],
        [0.8, 0.7, 0],
        [1 + 2 * STEP, 0, 0],
        [0, 0],
        [[0, 0, 0]],
        [2.0**42, 0, 0],
        [2.0**43, -(2.0**43), 0],
    ],
)
def test_a_message_that_is_too_long_or_not_finite_is_zero_and_said_to_be(message):
    # a length computed in numbers that overflow or wrap around
    steps, sound = encoding().truncated(np.array(message, dtype=float))
    assert not sound
    assert steps.tolist() == [0, 0, 0]
    words, sound = encoding(scale=0).encoded(np.array(message, dtype=float), seeded_source(0), 0, 1)
    assert not sound
    assert words.tolist() == [0, 0, 0]


def test_a_length_is_compared_in_whole_numbers():
    # K^2 = 2^112 + ...: doubles cannot tell one from the next
    wide = encoding(step=2.0**-56, bound=1.0, length=2, scale=0, sites=1, honest=1)
    on = np.array([1.0, 0.0])
    assert wide.truncated(on)[1]
    assert not wide.truncated(np.array([1.0, 2.0**-56]))[1]
    assert wide.limit == 1 << 56


def test_a_sum_of_messages_is_that_of_the_lattice():
    draws, plain = np.random.default_rng(0), encoding(scale=0)
    messages = draws.uniform(-0.57, 0.57, (5, 3))
    words = [plain.encoded(message, seeded_source(0), k, 1)[0] for k, message in enumerate(messages)]
    total = plain.decoded(np.sum(words, axis=0, dtype=np.uint64))
    np.testing.assert_array_equal(total, np.trunc(messages / STEP).sum(axis=0) * STEP)


def test_each_site_adds_its_part_of_the_noise_and_all_of_it_has_the_stated_variance():
    # noise of the whole variance at every site, of none, or the same at all sites and in all rounds; at 1.7 times the
    # variance the test fails as well. False alarm below 1e-6
    noisy = encoding(length=1000, scale=1 << 22, sensitivity=4.0)
    source = seeded_source(3)
    parts = [noisy.noise(source, site, 1) for site in range(4)]
    variance = (1 << 44) / 4
    for part in [*parts, noisy.noise(source, 0, 2)]:
        ratio = float((part.astype(float) ** 2).sum()) / variance
        assert stats.chi2(1000).ppf(2e-8) < ratio < stats.chi2(1000).ppf(1 - 2e-8)
        assert not stats.chi2(1000).ppf(2e-8) < 1.7 * ratio < stats.chi2(1000).ppf(1 - 2e-8)
    for one, other in itertools.combinations([*parts, noisy.noise(source, 0, 2)], 2):
        assert abs(stats.pearsonr(one, other)[0]) < 0.2
    message = np.zeros(1000)
    words, _ = noisy.encoded(message, source, 2, 1)
    np.testing.assert_array_equal(words.view(np.int64), parts[2])
    assert not noisy.decoded(words)[0] % STEP


@pytest.mark.parametrize(
    "change",
    [
        {"step": 1e-6},
        {"step": 0.0},
        {"step": 2.0**-9},
        {"length": 10**7},
        {"sensitivity": 1e-4},
        {"bound": 2.0**40},
        {"scale": (1 << 40) + 1},
        {"step": 2.0**-60, "scale": 0},
        {"step": 2.0**-59, "scale": 1 << 40, "sites": 2, "honest": 3},
        {"honest": 6},
        {"scale": -1},
    ],
)
def test_public_numbers_that_do_not_fit_are_refused(change):
    with pytest.raises(ValueError, match=r"^(step|scale|honest|sites|length) is "):
        encoding(**change)


def test_no_sum_can_wrap_around():
    # the largest bound that is taken leaves room for all sites and 40 standard deviations, in exact numbers
    low, high = 1.0, 2.0**45
    for _ in range(60):
        middle = (low + high) / 2
        try:
            encoding(bound=middle, scale=1 << 38)
            low = middle
        except ValueError:
            high = middle
    most = 5 * Fraction(low) * (1 << 20) + 40 * (1 << 38) * Fraction(math.sqrt(5 / 4))
    assert Fraction(999, 1000) < most / (1 << 62) <= 1 + Fraction(1, 10**12)


def test_the_distance_has_a_rounding_term_only_where_rounding_adds_one():
    # rows of a site summed first and rounded then: one row may move every number by one more
    assert encoding(whole=True).distance == 2.0 / STEP
    assert encoding().distance >= 2.0 / STEP + math.sqrt(3)
    assert encoding().distance == pytest.approx(2.0 / STEP + math.sqrt(3), rel=1e-12)
    draws = np.random.default_rng(0)
    worst = 0.0
    for _ in range(400):
        sums = draws.uniform(-50, 50, 16)
        move = draws.normal(size=16)
        move *= 2 / np.linalg.norm(move)
        worst = max(worst, float(np.linalg.norm(np.trunc(sums + move) - np.trunc(sums))))
    assert 2 < worst <= 2 + 4


# --- shares, masks, bytes


def test_shares_give_the_secret_from_any_so_many():
    pytest.importorskip("cryptography")
    from hushpoint.secure.shares import PRIME, SHARE, Weights, checked, split

    assert pow(3, PRIME - 1, PRIME) == 1
    assert pow(5, PRIME - 1, PRIME) == 1
    assert PRIME > 1 << 256
    draws = random.Random(0)
    for secret in (draws.randbytes(32), bytes(32), b"\xff" * 32):
        shares = split(secret, [0, 1, 4, 6, 99], 3, draws.randbytes)
        for chosen in itertools.permutations(shares, 3):
            assert Weights(chosen).secret([shares[k] for k in chosen]) == secret
        assert Weights([0, 1]).secret([shares[0], shares[1]]) != secret
        assert all(len(share) == SHARE for share in shares.values())
    whole = split(b"\1" * 32, range(100), 56, draws.randbytes)
    chosen = draws.sample(range(100), 56)
    assert Weights(chosen).secret([whole[k] for k in chosen]) == b"\1" * 32
    for bad in (b"", bytes(32), PRIME.to_bytes(33, "big")):
        with pytest.raises(Refused):
            checked(bad)


def test_fewer_shares_tell_nothing():
    # coefficients that are small, or 0: a share then is close to the secret. False alarm below 1e-6
    pytest.importorskip("cryptography")
    from hushpoint.secure.shares import PRIME, split

    draws = random.Random(1)
    for secret in (bytes(32), b"\xff" * 32):
        places = [
            int.from_bytes(split(secret, [0, 1, 2], 3, draws.randbytes)[k], "big") / PRIME
            for _ in range(400)
            for k in (0, 1)
        ]
        assert stats.kstest(places[::2], "uniform").pvalue > 1e-7
        assert stats.kstest(places[1::2], "uniform").pvalue > 1e-7
    small = [int.from_bytes(split(bytes(32), [0], 1, lambda count: bytes(count))[0], "big") / PRIME for _ in range(400)]
    assert stats.kstest(small, "uniform").pvalue < 1e-7


def test_a_mask_is_the_stream_of_rfc_8439_added_to_integers():
    pytest.importorskip("cryptography")
    from hushpoint.secure.masks import Masked, words

    zero = np.zeros(8, dtype=np.uint64)
    masked = Masked(zero)
    masked.add(bytes(32))
    first = bytes.fromhex("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7")  # A.1, test vector 1
    assert masked.values.tobytes()[:32] == first
    masked.take(b"k" * 32)
    masked.take(bytes(32))
    masked.add(b"k" * 32)
    np.testing.assert_array_equal(masked.values, zero)
    assert zero.sum() == 0
    with pytest.raises(ValueError, match="data is 7 bytes"):
        words(bytes(7), 1)


def test_packed_bytes_are_read_in_one_way():
    # lengths that can be moved between parts: two messages with one signature
    assert unpack("a", pack("a", b"1", "two", 3), 3) == [b"1", b"two", (3).to_bytes(8, "big")]
    assert number((7).to_bytes(8, "big")) == 7
    packs = [pack("a", b"bc"), pack("ab", b"c"), pack("a", b"b", b"c"), pack("a", b"", b"bc"), pack("a", b"bc", b"")]
    assert len(set(packs)) == 5
    whole = pack("a", b"1", b"22")
    for bad in (whole[:-1], whole + b"0", b"", b"\0\0\0\0", b"\xff" * 9, whole.replace(b"\0\0\0\3", b"\0\0\0\2", 1)):
        with pytest.raises(Refused):
            unpack("a", bad)
    with pytest.raises(Refused):
        unpack("b", whole)
    with pytest.raises(Refused):
        unpack("a", whole, 1)
    assert unpacked_set(packed_set([5, 1, 300])) == (1, 5, 300)
    for bad in (b"\0", b"\0\1\0\1", b"\0\2\0\1"):
        with pytest.raises(Refused):
            unpacked_set(bad)
