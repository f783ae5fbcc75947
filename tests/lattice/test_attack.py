"""The attack on floating-point noise (Mironov 2012), and how it fails against whole numbers.

A release x + s Z in floating point keeps bits of x: it is a rounded sum, which only few numbers are for a given x. An
observer who knows two candidates for x looks at the last bits.
"""

from __future__ import annotations

import numpy as np

import hushpoint as hp
from hushpoint.noise import Noise, seeded_source

RUNS = 400
SUMS = (0.0, 1.0)  # of two neighbours, in units of the sensitivity


def scaled_normals(std: float) -> np.ndarray:
    """Releases of the sum 0 carry noise as it is: tiny numbers keep all their bits, which no sum with 1 could have."""
    noise = Noise(std, "sum")
    return np.array([noise.drawn(seeded_source(run), "sum", 0, 1)[0, 0] for run in range(RUNS)])  # type: ignore[index]


def on_the_grid_of(released: np.ndarray, sum_of_messages: float) -> np.ndarray:
    """Whether a release is a rounded sum of this number and some noise."""
    return (released - sum_of_messages) + sum_of_messages == released


def test_the_last_bits_of_a_continuous_release_tell_neighbours_apart() -> None:
    """1 + noise is a multiple of 2^-53, whatever the noise; 0 + noise is mostly none, and then the sum was 0."""
    drawn = scaled_normals(0.25)
    zero, one = SUMS[0] + drawn, SUMS[1] + drawn
    grid = 2.0**-53
    looks_like_one = [np.mean((world / grid) % 1 == 0) for world in (zero, one)]
    assert looks_like_one[1] == 1.0
    assert looks_like_one[0] < 0.5
    assert np.mean(on_the_grid_of(one, 1.0)) == 1.0


def test_the_same_test_sees_nothing_on_the_lattice() -> None:
    noise = Noise(0.25, "sum", 2.0**-30)
    drawn = np.array([noise.drawn(seeded_source(run), "sum", 0, 1)[0, 0] for run in range(RUNS)])  # type: ignore[index]
    zero, one = ((int(total * 2**30) + drawn) * 2.0**-30 for total in SUMS)
    for test in (lambda world: np.mean((world * 2**30) % 1 == 0), lambda world: np.mean(on_the_grid_of(world, 1.0))):
        assert test(zero) == test(one) == 1.0


def test_released_models_of_both_kinds() -> None:
    """The same on a run: the mean gradient of neighbours whose sums are 0 and 1, read off the first iterate."""
    worlds = []
    for target in (0.0, -1.0):
        problem = hp.Problem(np.array([[1.0], [0.0]]), np.array([target, 0.0]), "huber", row_norm=1.0)
        for lattice in (False, True):
            plan = hp.methods.dp_sgd(problem, 1, 2.0, noise_std=0.125, lattice=lattice)
            worlds.append(np.array([plan.run(seed=seed).model[0] for seed in range(RUNS)]))
    real_zero, whole_zero, real_one, whole_one = worlds
    grid = 2.0**-53
    assert np.mean((real_one / grid) % 1 == 0) == 1.0
    assert np.mean((real_zero / grid) % 1 == 0) < 0.5
    for unit in (grid, 2.0**-38):
        assert np.mean((whole_one / unit) % 1 == 0) == np.mean((whole_zero / unit) % 1 == 0) == 1.0
