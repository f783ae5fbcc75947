"""Bugs in lattice noise: the samplers in plain Python, which are enumerated, and those in compiled code."""

from __future__ import annotations

from functools import partial

from mutants.mutant import Mutant

_HERE = "src/hushpoint/lattice"

_enumerated = partial(Mutant, room="lattice", tests=("tests/lattice/test_enumeration.py",))
_compiled = partial(Mutant, room="lattice", tests=("tests/lattice/test_crafted.py", "tests/lattice/test_draws.py"))

BUGS = [
    _enumerated(
        name="truncated-for-rounded",
        file=f"{_HERE}/normal.py",
        old="return under if below(fraction, 2 * under + 1, 2 * scale) else under + 1",
        new="return under",
        why="noise is smaller than accounted by half a step on average, and 0 comes too often",
    ),
    _enumerated(
        name="lattice-scale-plus-one",
        file=f"{_HERE}/normal.py",
        old="magnitude = whole * scale + nearest(fraction, scale)",
        new="magnitude = whole * (scale + 1) + nearest(fraction, scale)",
        why="gaps in the law of the noise: a sum that falls into one tells the data",
    ),
    _enumerated(
        name="a-factor-too-few",
        file=f"{_HERE}/normal.py",
        old="for _ in range(whole + 1):",
        new="for _ in range(max(whole, 1)):",
        why="the noise is no normal beyond its standard deviation",
    ),
    _enumerated(
        name="a-bit-of-the-thresholds-flipped",
        file=f"{_HERE}/normal.py",
        old="found.append(least)",
        new="found.append(least ^ 1 << 100 if least + 1 < 1 << KNOWN else least)",
        why="the law of the whole part is off by 2^-156, where a law of 256 bits is claimed",
    ),
    _enumerated(
        name="lattice-sign-lost",
        file=f"{_HERE}/normal.py",
        old="return -magnitude if bits.coin() else magnitude",
        new="return -magnitude if bits.coin() and whole else magnitude",
        why="small noise is never negative",
    ),
    _enumerated(
        name="tie-is-not-less",
        file=f"{_HERE}/uniform.py",
        old="        if a != b:\n            return a < b\n        place += 1",
        new="        return a < b",
        why="ties are decided by the order of the arguments: no exact law any more",
    ),
    _enumerated(
        name="half-run-off-by-one",
        file=f"{_HERE}/bernoulli.py",
        old="last, run = Uniform(bits), 0\n    while bits.coin():",
        new="last, run = Uniform(bits), 1\n    while bits.coin():",
        why="events of probability exp(-1/2) become their opposite",
    ),
    _enumerated(
        name="zero-has-two-signs",
        file=f"{_HERE}/gaussian.py",
        old="return -magnitude if magnitude else None",
        new="return -magnitude",
        why="the discrete Gaussian is 0 nearly twice as often as it should be",
    ),
    _enumerated(
        name="units-of-x-not-paid",
        file=f"{_HERE}/gaussian.py",
        old="        if not one(bits):\n            return False\n        left -= width.whole",
        new="        left -= width.whole",
        why="the tails of the discrete Gaussian are those of a Laplace law",
    ),
    _compiled(
        name="a-word-read-by-two-draws",
        file=f"{_HERE}/compiled/bits.py",
        old="put(bits, _READ, read + _ONE)",
        new="put(bits, _READ, read + _ONE - np.uint64(read & np.uint64(63) == np.uint64(63)))",
        why="the last word of each batch is used again: draws depend on each other",
    ),
    _compiled(
        name="blocks-not-counted",
        file=f"{_HERE}/compiled/bits.py",
        old="first = np.int64(get(bits, _FILLED) >> np.uint64(3))",
        new="first = np.int64(0)",
        why="the noise of an address repeats itself after 64 words",
    ),
    _compiled(
        name="undecided-rounding-taken-for-down",
        file=f"{_HERE}/compiled/uniform.py",
        old="if over != np.uint64(0) or rest >= denominator:",
        new="if over != np.uint64(0) or rest >= np.uint64(0):",
        why="a number within 2^-64 of a half-way point is rounded without looking further",
    ),
    _compiled(
        name="limb-borrow-lost",
        file=f"{_HERE}/compiled/wide.py",
        old="borrowed = np.uint64(one < taken)",
        new="borrowed = np.uint64(0)",
        why="wide discrete Gaussians are accepted with another probability",
    ),
    _compiled(
        name="address-overrun",
        file=f"{_HERE}/compiled/bits.py",
        old="        raise OverflowError(OVERRUN)",
        new="        put(bits, _FILLED, _NONE)",
        why="after the last word of an address its first ones come again",
    ),
]
