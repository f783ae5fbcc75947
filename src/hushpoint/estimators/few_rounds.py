"""A descent in few rounds: a metric that makes more of noisy moments, and steps with momentum.

Both are computed from what was released, so they cost nothing (docs/privacy.md, section 8). In few steps a walk gets
along only where the features are nearly white, so directions that drown in the noise of the moments are told apart by
the squares of single features, which do not.
"""

from __future__ import annotations

import math

import numpy as np

from hushpoint._threads import one_thread
from hushpoint._types import Array

# These were settled on Adult and on generated problems (benchmarks/rounds.py). None is delicate: a factor 1.5 costs 0.1
# to 0.3 points, but for the steps of a regression, which go astray when they are longer.
MOMENTUM = 0.6  # of classifiers
REGRESSION_MOMENTUM = 0.75  # R2 asks for slow directions too
STEP = 0.85  # of the largest step
STABLE = 2.0  # times as much as a step is made for, a direction may have by a cautious bound
TAIL = 0.3  # of the steps, which are few, are averaged
CALIBRATION_STEPS = 3  # at most, where rounds are left; one for two numbers that are nearly right as they stand
_ONLY_STEP, _ONE_OF_SEVERAL = 0.8, 0.5  # of the largest step
_MOST_MOMENTS = 0.3  # of mu^2: what is not seen of the moments cannot be waited for
_STRONG = 55.0  # n mu / p at which moments would get all of it
_STEPS_WORTH, _LEAST_STEPS = 2.3, 4  # times the root of n mu / p: more steps learn more noise than signal
_REGRESSION_WORTH = 4.0  # the same of regressions
_RIDGE, _RIDGE_POWER = 16.0, -1.5  # in mean squares of a direction, by n mu / p
_LEAST_RIDGE, _MOST_RIDGE = 0.003, 3.0
_LEAST_SECOND = 0.002  # of the mean square of a direction: nothing is taken for less
_ABOVE_NOISE = 1.1  # an eigenvalue counts as seen if it exceeds the largest one of pure noise by a tenth
_KNOWN = 0.02  # of row_norm^2
_FEW_HIDDEN = 0.25  # of the directions
_OFF_BY = 0.05  # of the squares, products may be off for other reasons than noise


def momentum(two_class: bool) -> float:
    """With how much momentum steps are taken."""
    return MOMENTUM if two_class else REGRESSION_MOMENTUM


def worth_having(strength: float, two_class: bool) -> int:
    """How many steps of a descent serve a model, however many there could be."""
    worth = _STEPS_WORTH if two_class else _REGRESSION_WORTH
    return max(_LEAST_STEPS, round(worth * math.sqrt(strength)))


def likely_squares(released: Array, noise_std: float, total: float, constant: float) -> Array:
    """Mean squares of features that sum up to about ``total``, by noisy ones.

    What they differ by is made smaller by as much of it as is likely to be noise. The last is known where it is that of
    a constant.
    """
    found = released.copy()
    noisy = slice(0, len(found) - bool(constant))
    mean = (total - constant**2) / max(len(found[noisy]), 1)
    apart = found[noisy] - mean
    spread = float((apart**2).mean())
    apart *= max(0.0, 1 - noise_std**2 / spread) if spread else 0.0
    found[noisy] = np.maximum(mean + apart, min(noise_std / 2, mean))
    return found


def shrunk_entries(matrix: Array, squares: Array, noise_std: float) -> Array:
    """Noisy second moments, those off the diagonal made smaller by as much of them as is likely to be noise.

    Two features with small squares have a small product, whatever the noise says: how far products come up to those
    squares is learned from all of them, those that the noise says most of counting most. ``noise_std`` is that of the
    diagonal, on which ``squares`` are.
    """
    off = ~np.eye(len(matrix), dtype=bool)
    noise = noise_std**2 / 2  # of a product
    most = np.outer(squares, squares)
    trust = most / (noise + _OFF_BY * most) ** 2
    share = float((trust * (matrix**2 - noise))[off].sum() / max((trust * most)[off].sum(), 1e-300))
    share = min(max(share, 1e-4), 1.0)
    found = matrix * np.where(off, share * most / (share * most + noise), 1.0)
    np.fill_diagonal(found, squares)
    return np.asarray(found)


def told_apart(matrix: Array, noise_std: float, total: float, constant: float) -> tuple[Array, Array, float]:
    """Second moments, their directions, and how large noise alone may be.

    What exceeds the noise is seen. The rest is told apart entry by entry, or if few directions hide, shared by them.

    Parameters
    ----------
    matrix : array
        As released.
    noise_std : float
        Of an entry of the diagonal.
    total : float
        Mean square of the rows, constant included.
    constant : float
        The last entry of every row; 0: there is none.
    """
    width = len(matrix)
    least, edge = _LEAST_SECOND * total / width, noise_std * math.sqrt(2 * width)
    with one_thread():
        values, vectors = np.linalg.eigh(matrix)
        hidden = values <= _ABOVE_NOISE * edge
        # Noise lifts an eigenvalue m of the truth to m + edge^2/(4 m).
        seen = np.where(hidden, 0.0, (values + np.sqrt(np.maximum(values**2 - edge**2, 0.0))) / 2)
        if hidden.sum() < _FEW_HIDDEN * width:
            left = max(total - float(seen.sum()), 0.0) / max(int(hidden.sum()), 1)
            return np.maximum(np.where(hidden, left, seen), least), vectors, edge
        large = (vectors * seen) @ vectors.T
        squares = likely_squares(np.diag(matrix), noise_std, total, constant) - np.diag(large)
        hidden_part = shrunk_entries(matrix - large, np.maximum(squares, least), noise_std)
        values, vectors = np.linalg.eigh(large + hidden_part)
    return np.maximum(values, least), vectors, edge


def calibration_step(steps: int) -> float:
    """How long a step of a calibration is, in largest steps."""
    return _ONLY_STEP if steps == 1 else _ONE_OF_SEVERAL


def moment_share(strength: float) -> float:
    """The share of the budget for second moments."""
    return min(max(0.01, strength / _STRONG), _MOST_MOMENTS)


def lengths_are_known(whole: float, width: int) -> bool:
    """Whether the sum of the second moments, of n mu spent on them, says how long rows are, in units of row_norm."""
    return math.sqrt(width) / whole < _KNOWN


def ridge(strength: float, total: float, width: int) -> float:
    """What is added to every second moment before it is evened out."""
    return min(max(_RIDGE * math.pow(strength, _RIDGE_POWER), _LEAST_RIDGE), _MOST_RIDGE) * total / width
