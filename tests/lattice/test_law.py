"""The law of the draws, of compiled code at full width, with power against bugs of law.

Statistical tests run on a fixed key and accept at p > 1e-6: a correct implementation with another key fails one of them
with probability 1e-6 each. Each of them is shown to reject (p < 1e-6) a planted bug.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from hushpoint import lattice
from hushpoint.lattice import draws
from hushpoint.noise import Source

FALSE_ALARM = 1e-6
SOURCE = Source(np.arange(8, dtype=np.uint32) * np.uint32(0x9E3779B9) + np.uint32(1))
ROWS, EACH = 64, 1 << 14  # a million draws


@pytest.fixture(autouse=True)
def compiled_code(monkeypatch):
    monkeypatch.setattr(draws, "FEW", 0)


def rounded(scale, step=0):
    return np.ravel(lattice.rounded_normals(SOURCE, "law", range(ROWS), step, EACH, scale))


def discrete(numerator, denominator=1, step=0):
    return np.ravel(lattice.discrete_gaussians(SOURCE, "law", range(ROWS), step, EACH, numerator, denominator))


def rounded_law(k, scale):
    return stats.norm.cdf((k + 0.5) / scale) - stats.norm.cdf((k - 0.5) / scale)


def gaussian_law(k, variance):
    every = np.arange(-int(60 * variance**0.5) - 60, int(60 * variance**0.5) + 61)
    return np.exp(-(k**2) / (2 * variance)) / np.exp(-(every**2) / (2 * variance)).sum()


def chi_square_p(drawn, law):
    """Cells of single integers, or of several where there are many; the two tails are a cell each."""
    reach = int(np.abs(drawn).max())
    values = np.arange(-reach, reach + 1)
    expected = law(values) * drawn.size
    counts = np.bincount(drawn + reach, minlength=values.size)
    cells = np.minimum(np.cumsum(expected) // max(50.0, drawn.size / 400), 10**6)
    _, cells = np.unique(cells, return_inverse=True)
    expected = np.append(np.bincount(cells, expected), drawn.size - expected.sum())
    counts = np.append(np.bincount(cells, counts), 0)
    expected[-2] += expected[-1]  # beyond the reach
    keep = expected[:-1] >= 20
    seen = np.append(counts[:-1][keep], counts[:-1][~keep].sum())
    due = np.append(expected[:-1][keep], expected[:-1][~keep].sum())
    if due[-1] < 20:
        seen, due = np.append(seen[:-2], seen[-2:].sum()), np.append(due[:-2], due[-2:].sum())
    return float(stats.chi2.sf(((seen - due) ** 2 / due).sum(), due.size - 1))


@pytest.mark.parametrize("scale", [1, 2, 3, 7, 1000])
def test_rounded_normals_have_their_law(scale):
    drawn = rounded(scale)
    assert chi_square_p(drawn, lambda k: rounded_law(k, scale)) > FALSE_ALARM


def test_the_law_of_rounded_normals_is_tested_with_power():
    # truncation in place of rounding; half of the zeros lost; signs that are not independent of the rest
    def p_of(drawn):
        return chi_square_p(drawn, lambda k: rounded_law(k, 3))

    fine = rounded(3 << 20)
    truncated = np.trunc(fine / (1 << 20)).astype(np.int64)
    assert p_of(truncated) < FALSE_ALARM
    assert p_of(np.rint(fine / (1 << 20)).astype(np.int64)) > FALSE_ALARM  # a finer lattice, rounded, nearly is the law
    drawn = rounded(3)
    coins = np.random.default_rng(0).random(drawn.size) < 0.5
    assert p_of(drawn[(drawn != 0) | coins]) < FALSE_ALARM
    assert p_of(np.where(drawn == 1, 1, drawn * np.where(drawn % 2, 1, -1)) + (drawn == -1) * 2) < FALSE_ALARM


@pytest.mark.parametrize("variance", [(1, 3), (1, 1), (9, 1), (99, 2), (10**6, 1)])
def test_discrete_gaussians_have_their_law(variance):
    drawn = discrete(*variance)
    assert chi_square_p(drawn, lambda k: gaussian_law(k, variance[0] / variance[1])) > FALSE_ALARM


def test_the_law_of_discrete_gaussians_is_tested_with_power():
    # zeros twice as often; the law of rounded normals taken for it: at s = 1 they differ by 4% at 0
    drawn = discrete(1)
    assert chi_square_p(np.append(drawn, drawn[drawn == 0]), lambda k: gaussian_law(k, 1.0)) < FALSE_ALARM
    assert chi_square_p(rounded(1), lambda k: gaussian_law(k, 1.0)) < FALSE_ALARM
    assert chi_square_p(drawn, lambda k: rounded_law(k, 1)) < FALSE_ALARM


def tails_p(drawn, scale):
    """The least two-sided p-value of the counts beyond 2, 3, 4 and 4.5 on either side (Bonferroni: times 8)."""
    found = []
    for reach in (2, 3, 4, 4.5):
        law = stats.binom(drawn.size, stats.norm.sf(reach))
        for count in ((drawn > reach * scale).sum(), (drawn < -reach * scale).sum()):
            found.append(2 * min(law.cdf(count), law.sf(count - 1)))
    return 8 * min(found)


WIDE = {
    "rounded, 2^24": (lambda: rounded(2**24), 2.0**24),
    "rounded, 2^40": (lambda: rounded(2**40), 2.0**40),
    "discrete, 2^24": (lambda: discrete(2**48), 2.0**24),
    "discrete, 2^40": (lambda: discrete(2**80), 2.0**40),
    "discrete, 2^40/sqrt(3)": (lambda: discrete(2**80, 3), 2.0**40 / 3**0.5),
}


@pytest.mark.parametrize(("make", "scale"), WIDE.values(), ids=WIDE)
def test_wide_draws_have_their_law(make, scale):
    drawn = make()
    assert stats.kstest(drawn / scale, "norm").pvalue > FALSE_ALARM
    assert tails_p(drawn, scale) > FALSE_ALARM
    low = drawn % 1024  # the lowest bits are uniform, as nearly as can be
    assert stats.chisquare(np.bincount(low, minlength=1024)).pvalue > FALSE_ALARM
    # with power: a scale that is off by 2%, a tail cut off, low bits lost
    assert stats.kstest(drawn / scale * 1.02, "norm").pvalue < FALSE_ALARM
    assert tails_p(drawn[np.abs(drawn) < 4 * scale], scale) < FALSE_ALARM
    assert stats.chisquare(np.bincount(drawn // 2 * 2 % 1024, minlength=1024)).pvalue < FALSE_ALARM


@pytest.mark.parametrize("scale", [999, 1001])
def test_the_scale_is_right_to_a_thousandth(scale):
    # 32 million draws: a thousandth is 8 standard errors of the variance
    squares = sum(float((rounded(scale, step).astype(float) ** 2).sum()) for step in range(32))
    count = 32 * ROWS * EACH

    def is_right(claimed):
        variance = claimed**2 + 1 / 12  # of a normal and of the rounding, which is all but independent of it
        sigmas = (squares / count / variance - 1) / (2 / count) ** 0.5
        return bool(2 * stats.norm.sf(abs(sigmas)) > FALSE_ALARM)

    assert is_right(scale)
    assert not is_right(1000)
