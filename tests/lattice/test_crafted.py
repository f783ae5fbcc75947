"""What happens with probability 2^-64 or less, made to happen: words chosen so that numbers tie.

Both programs are given the same words; what has to come out is what the exact rational comparison says.
"""

from __future__ import annotations

from fractions import Fraction

import numba
import numpy as np
import pytest

from hushpoint.lattice import gaussian, normal
from hushpoint.lattice.compiled import bits as compiled_bits
from hushpoint.lattice.compiled import gaussian as compiled_gaussian
from hushpoint.lattice.compiled import normal as compiled_normal
from hushpoint.lattice.compiled.uniform import product
from hushpoint.lattice.words import BATCH, Words

FIRST, FILLED, DESK = compiled_bits._WORDS, compiled_bits._FILLED, compiled_bits.DESK
KEY = np.zeros(8, dtype=np.uint32)
BASE = 2**64


@numba.njit
def _given(room, tape):
    """The bits of a tape: a stream that has been read once and has no more."""
    found = compiled_bits.opened(room, True, 0, 0, 0, BATCH)
    room[FILLED] = BATCH
    for k in range(BATCH):
        room[FIRST + k] = tape[k]
    return found


@numba.njit
def _compiled_normal(tape, scale):
    room = compiled_bits.room_for(KEY)
    found = compiled_normal.rounded_normal(_given(room, tape), scale)
    return found, compiled_bits.words_read(room)


@numba.njit
def _compiled_whole(tape):
    room = compiled_bits.room_for(KEY)
    found = compiled_normal.whole_part(_given(room, tape))
    return found, compiled_bits.words_read(room)


@numba.njit
def _compiled_accepted(tape, width, magnitude):
    room = compiled_bits.room_for(KEY)
    for k in range(width.size):
        room[DESK + k] = width[k]
    found = compiled_gaussian.accepted(_given(room, tape), magnitude)
    return found, compiled_bits.words_read(room)


@numba.njit
def _product(a, b):
    return product(a, b)


def both(words, scale):
    """The draw of both programs, and how many words it read."""
    tape = [*words, *[0] * (BATCH - len(words))]
    reader = iter(tape)
    slow = normal.rounded_normal(Words(reader), scale)
    fast, read = _compiled_normal(np.array(tape, dtype=np.uint64), np.uint64(scale))
    assert fast == slow
    assert read == BATCH - len(list(reader))
    return slow, read


def tossed(*coins):
    """The word from which these coins are taken."""
    return sum(coin << place for place, coin in enumerate(coins))


def digits_of(ratio, count):
    """The first digits of a ratio below 1."""
    found = []
    for _ in range(count):
        ratio *= BASE
        found.append(int(ratio))
        ratio -= int(ratio)
    return found


PLAIN = 0, tossed(0, 0)  # the whole part 0, accepted (the first coin ends the run), plus


def test_words_multiply_as_whole_numbers_do():
    rng = np.random.default_rng(0)
    edges = [0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1]
    drawn = [int(each) for each in rng.integers(0, 2**64, size=60, dtype=np.uint64)]
    for a in edges + drawn:
        for b in edges + drawn[:10]:
            high, low = _product(np.uint64(a), np.uint64(b))
            assert int(high) * BASE + int(low) == a * b


@pytest.mark.parametrize("scale", [1, 2, 3, 7, 1000, 2**24, 10**9 + 7, 3**25, 2**40 - 1, 2**40])
def test_a_rounding_that_a_word_does_not_decide(scale):
    # truncation, a comparison with the wrong half-way point, or one that ends after the first word
    rng = np.random.default_rng(scale)
    undecided = 0
    for under in {0, scale - 1, scale // 2, *(int(each) for each in rng.integers(0, scale, size=6))}:
        point = Fraction(2 * under + 1, 2 * scale)
        for known in (1, 2):
            digits = digits_of(point, known + 1)
            for last in {0, max(digits[-1] - 1, 0), digits[-1], min(digits[-1] + 1, BASE - 1), BASE - 1}:
                fraction = [*digits[:-1], last, 7]
                value = sum(Fraction(digit, BASE ** (k + 1)) for k, digit in enumerate(fraction))
                if value == point:
                    continue
                found, read = both([*PLAIN, *fraction], scale)
                assert found == (under if value < point else under + 1)
                undecided += read > 3
    assert undecided > 0 or scale & (scale - 1) == 0  # a half-way point of a power of two has one digit


@pytest.mark.parametrize("digits", [1, 2, 3])
@pytest.mark.parametrize("falls", [True, False])
def test_a_tie_in_a_run_is_decided_by_further_words(digits, falls):
    # a number that agrees with the fraction: if it is less, and another one too, the run is odd, and the try is over
    coins = tossed(1, 0, 0, 0) if falls else tossed(1, 0)
    tied = [word for k in range(digits) for word in (k + 5, k + 5)]
    decided = [4, 9, 1] if falls else [9, 4]
    again = [0, BASE // 4] if falls else []
    found, read = both([0, coins, *tied, *decided, *again], 1000)
    assert found == (250 if falls else 0)
    assert read == 2 + len(tied) + len(decided) + len(again)


@pytest.mark.parametrize("digits", [1, 2, 3])
@pytest.mark.parametrize("whole", [0, 1, 2, 8, 12, 17])
def test_a_whole_part_that_a_word_does_not_decide(whole, digits):
    # from 9 on all first words of the thresholds are equal: one comparison after the other has to go deeper
    known = [normal.CUMULATED[whole] >> 64 * k & BASE - 1 for k in (3, 2, 1, 0)]
    for last in {max(known[digits] - 1, 0), min(known[digits] + 1, BASE - 1)} - {known[digits]}:
        drawn = sum(word << 64 * (3 - k) for k, word in enumerate([*known[:digits], last]))
        due = sum(drawn >= each for each in normal.CUMULATED)
        tape = [*known[:digits], last, *[0] * (BATCH - digits - 1)]
        assert normal.whole_part(Words(iter(tape))) == due
        assert _compiled_whole(np.array(tape, dtype=np.uint64)) == (due, digits + 1)


def test_numbers_that_agree_in_all_their_words_are_an_error():
    # a coin, or a draw that is thrown away, would be a law of its own
    threshold = [normal.CUMULATED[0] >> 64 * k & BASE - 1 for k in (3, 2, 1, 0)]
    for words in ([0, tossed(1, 0, 0), *[3] * 8, 1], [*threshold, 1], [BASE - 1] * 5):
        with pytest.raises(ArithmeticError, match="agree in 256 bits"):
            both(words, 1000)
        tape = np.array([*words, *[0] * (BATCH - len(words))], dtype=np.uint64)
        with pytest.raises(ArithmeticError, match="agree in 256 bits"):
            _compiled_normal(tape, np.uint64(1000))
    point = [*PLAIN, *digits_of(Fraction(1, 6), 4)]
    with pytest.raises(ArithmeticError, match="agree in 256 bits"):
        both(point, 3)
    tape = np.array([*point, *[0] * (BATCH - len(point))], dtype=np.uint64)
    with pytest.raises(ArithmeticError, match="agree in 256 bits"):
        _compiled_normal(tape, np.uint64(3))


@pytest.mark.parametrize("scale", [1, 3, 2**40])
def test_a_sign_is_a_coin(scale):
    # scale x just below the last half-way point or above it
    words = [0, tossed(0, 1), BASE - 1]
    assert both(words, scale)[0] == -scale
    assert both([*PLAIN, 0], scale)[0] == 0


def accepts(words, width, magnitude):
    tape = [*words, *[0] * (BATCH - len(words))]
    reader = iter(tape)
    slow = gaussian.accepted(Words(reader), magnitude, width)
    array = np.array(tape, dtype=np.uint64)
    fast, read = _compiled_accepted(array, compiled_gaussian.coded(width), magnitude)
    assert fast == slow
    assert read == BATCH - len(list(reader))
    return slow


@pytest.mark.parametrize(
    "variance", [(1, 3), (3, 1), (7, 2), (2**48, 1), (2**80, 3), ((2**32 - 1) * 2**80 - 1, 2**32 - 1)]
)
def test_a_proposal_that_a_word_does_not_decide(variance):
    # limbs too few, a borrow forgotten: any x whose fraction is met digit by digit
    width = gaussian.Width.of(*variance)
    rng = np.random.default_rng(5)
    sides = 0
    for magnitude in {0, width.step, *(int(each * width.step) for each in rng.random(6) * 2)}:
        x = Fraction((magnitude * width.per - width.centre) ** 2, width.whole)
        if x >= 1:
            assert not accepts([tossed(1, 0)], width, magnitude)  # the first event of exp(-1) fails
            continue
        for known in (1, 2):
            digits = digits_of(x, known + 1)
            for last in {0, max(digits[-1] - 1, 0), digits[-1], min(digits[-1] + 1, BASE - 1)}:
                number = [*digits[:-1], last, BASE - 1]
                value = sum(Fraction(digit, BASE ** (k + 1)) for k, digit in enumerate(number))
                if value != x:
                    # below x the run has length 1, as the next number is larger: refused
                    assert accepts([*number, BASE - 1], width, magnitude) is (value > x)
                    sides += 1
    assert sides > 20 or variance == (1, 3)
