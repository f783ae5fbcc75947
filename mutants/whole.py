"""Bugs in messages of whole numbers: their bounds, their sums, and what they may depend on."""

from __future__ import annotations

from functools import partial

from mutants.mutant import Mutant

_OPERATORS = "src/hushpoint/operators"
_KERNELS = "src/hushpoint/kernels"

_gradient = partial(Mutant, room="whole numbers", tests=("tests/lattice/test_gradient.py",))
_centred = partial(Mutant, room="whole numbers", tests=("tests/lattice/test_centred.py",))
_sites = partial(Mutant, room="whole numbers", tests=("tests/lattice/test_sites.py",))
_coordinates = partial(Mutant, room="whole numbers", tests=("tests/lattice/test_coordinates.py",))
_counts = partial(Mutant, room="whole numbers", tests=("tests/lattice/test_counts.py",))

BUGS = [
    _gradient(
        name="moments-rounded-to-nearest",
        file=f"{_OPERATORS}/lattice_moments.py",
        old="return np.trunc(np.ldexp(part[:], -self.coarse)) if self.coarse else part[:]",
        new="return np.rint(np.ldexp(part[:], -self.coarse)) if self.coarse else part[:]",
        why="rows of the coarser grid are longer than the bound on the moments allows",
    ),
    _gradient(
        name="shares-of-a-user-rounded-up",
        file=f"{_OPERATORS}/lattice_moments.py",
        old="shares = (1 << self.grid.shares) // rows.counts",
        new="shares = -(-(1 << self.grid.shares) // rows.counts)",
        why="a user with three rows weighs more in the moments than one with one",
    ),
    _gradient(
        name="root-of-two-rounded-up",
        file=f"{_OPERATORS}/lattice_moments.py",
        old="_ON_DIAGONAL, _OFF_DIAGONAL = 29, 41",
        new="_ON_DIAGONAL, _OFF_DIAGONAL = 29, 42",
        why="a message of moments is longer than its Frobenius norm says",
    ),
    _gradient(
        name="bound-in-floating-point",
        file=f"{_OPERATORS}/lattice_gradient.py",
        old="limits = slope_limits(squared, counts, self.longest)",
        new="limits = np.ceil(self.facts.gradient_bound * 2.0**grid.fine / np.maximum(counts * squared**0.5, 0.5))",
        why="messages are cut at a bound computed in floating point, above the one that is accounted",
    ),
    _gradient(
        name="slopes-limited-to-the-nearest",
        file="src/hushpoint/rows/integer.py",
        old="np.floor(longest / np.maximum(lengths, 0.5) * (1 - 2.0**-48))",
        new="np.rint(longest / np.maximum(lengths, 0.5))",
        why="a slope at its limit makes a message longer than K",
    ),
    _gradient(
        name="rows-of-a-user-not-counted",
        file=f"{_OPERATORS}/lattice_gradient.py",
        old="""        if self.facts.weights == "items":
            counts = np.repeat(rows.counts, rows.counts).astype(np.float64)
        limits""",
        new="""        limits""",
        why="a user with a hundred rows sends a message of a hundred times K",
    ),
    _gradient(
        name="slope-of-its-place",
        file=f"{_KERNELS}/integers.py",
        old="out[k] = (out[k] + margin) * unit",
        new="out[k] = (out[k] + margin) * (unit if k % 8 else unit * (1 + 2.0**-50))",
        why="what a row sends depends on where it stands, and so on how many rows stand before it",
    ),
    _gradient(
        name="carried-too-late",
        file=f"{_KERNELS}/integers.py",
        old="if held + _BLOCK > flush:",
        new="if held + _BLOCK > 64 * flush:",
        why="partial sums beyond 2^53 round, and in an order that other rows decide",
    ),
    _gradient(
        name="long-rows-kept",
        file="src/hushpoint/rows/integer.py",
        old="            _erase(whole, ~allowed)\n",
        new="",
        why="a row beyond its declared length is in all sums",
    ),
    _gradient(
        name="turned-length-of-the-row-itself",
        file=f"{_OPERATORS}/lattice_gradient.py",
        old="squared = integers.squared if grid.turn is None else grid.turn.squared_lengths(integers)",
        new="squared = integers.squared",
        why="messages are cut by the length of a row, not by the length that it has in the metric",
    ),
    _gradient(
        name="cut-for-free",
        file=f"{_OPERATORS}/lattice_gradient.py",
        old="slack = cut_slack(self.message_size, self.unit) if self.grid.shift else 0.0\n        table",
        new="slack = 0.0\n        table",
        why="rounding down a sum moves neighbours apart, which nobody accounted for",
    ),
    _gradient(
        name="length-of-a-tiny-point",
        file=f"{_KERNELS}/integers.py",
        old="    power = -math.frexp(largest)[1]\n",
        new="    power = 0\n",
        why="squares that vanish make a point too long: inner products round, in an order that other rows decide",
    ),
    _gradient(
        name="a-point-that-is-no-number",
        file=f"{_KERNELS}/integers.py",
        old="if not size < math.inf:  # NaN too",
        new="if size == math.inf:",
        why="a point with NaN is read as one that is longer than 33 bits: inner products round",
    ),
    _sites(
        name="rows-in-the-order-of-memory",
        file=f"{_KERNELS}/table.py",
        old="return np.ascontiguousarray(table) if isinstance(table, np.ndarray) else table",
        new="return table",
        why="one long row of a user changes the last digits of all others' messages",
    ),
    Mutant(
        name="coins-finer-than-they-are",
        room="whole numbers",
        file="src/hushpoint/schedules.py",
        old="return math.ceil(Fraction(self.prob) * COINS) / COINS",
        new="return self.prob",
        tests=("tests/test_schedules.py",),
        why="a probability below the finest coin is accounted, and eleven times as many are sampled",
    ),
    Mutant(
        name="ties-decided-by-place",
        room="whole numbers",
        file="src/hushpoint/schedules.py",
        old="self.size - 1]) == self.size:",
        new="self.size - 1]) >= self.size:",
        tests=("tests/test_schedules.py",),
        why="a sample of fixed size is no uniform one",
    ),
    _gradient(
        name="limbs-without-a-carry",
        file="src/hushpoint/rows/turn.py",
        old="found = (found + products[:, k]) >> LIMB",
        new="found = products[:, k] >> LIMB",
        why="the sum in the metric is no sum of bounded messages any more",
    ),
    _centred(
        name="column-of-the-wrong-sign",
        file="src/hushpoint/rows/turn.py",
        old="highs, lows = highs + column * high[-1], lows + column * low[-1]",
        new="highs, lows = highs - column * high[-1], lows - column * low[-1]",
        why="messages are moved away from the rows whose lengths they were cut by",
    ),
    _centred(
        name="lengths-without-slack",
        file="src/hushpoint/rows/turn.py",
        old="slack = 2 * (width + 16) * 2.0**-52 * (found + constant_part)",
        new="slack = 0.0",
        why="a row close to the centre counts as shorter than it is, and its message is longer than K",
    ),
    _centred(
        name="lengths-before-the-centre",
        file="src/hushpoint/rows/turn.py",
        old="            if self.column is not None:\n                # |d a",
        new="            if self.column is None:\n                # |d a",
        why="messages are cut by the lengths of rows that were not centred",
    ),
    _centred(
        name="means-of-users-cut-too-late",
        file=f"{_OPERATORS}/lattice_moments.py",
        old="most = _EXACT >> (self.degree * (BITS - self.coarse) + 1)",
        new="most = _EXACT",
        why="partial sums beyond 2^53 round, and in an order that other rows decide",
    ),
    _gradient(
        name="lattice-means-moved-half-as-far",
        file=f"{_OPERATORS}/lattice_moments.py",
        old='return (1 if adjacency == "zero-out" else 4) * longest * (1 << self.grid.shares) ** 2',
        new='return (1 if adjacency == "zero-out" else 2) * longest * (1 << self.grid.shares) ** 2',
        why="a row is replaced by its opposite, and the means have less noise than that asks for",
        tests=("tests/privacy/test_training.py",),
    ),
    Mutant(
        name="noise-rounded-from-floating-point",
        room="whole numbers",
        file="src/hushpoint/noise.py",
        old="return rounded_normals(source, place, items, step, size, self.scale)",
        new='return (source.normals(place, items, step, size, float(self.scale)) + 0.5).astype("int64")',
        tests=("tests/lattice/test_gradient.py", "tests/lattice/test_attack.py"),
        why="noise has the law of a floating-point program and is rounded toward 0: not the law that was proved",
    ),
    Mutant(
        name="lattice-noise-scaled-by-a-float",
        room="whole numbers",
        file="src/hushpoint/noise.py",
        old="return rounded_normals(source, place, items, step, size, self.scale)",
        new="return rounded_normals(source, place, items, step, size, 1) * self.scale",
        tests=("tests/lattice/test_gradient.py", "tests/lattice/test_attack.py"),
        why="noise is a multiple of its scale: what is left after division by it are the data",
    ),
    _sites(
        name="messages-of-sites-rounded-to-nearest",
        file=f"{_KERNELS}/fixed_rows.py",
        old="""        vector[j] = np.trunc(vector[j] * factor)
    if not dot(vector, vector) <= most * most * (1.0 - slack):""",
        new="""        vector[j] = np.rint(vector[j] * factor)
    if not dot(vector, vector) <= 4 * most * most:""",
        why="a message at its bound is longer than it after rounding",
    ),
    _sites(
        name="one-row-of-a-site-claimed-alone",
        file=f"{_OPERATORS}/lattice_blocks.py",
        old='table |= {("record", "replace-one"): 2 * whole, ("record", "zero-out"): 2 * whole}',
        new='table |= {("record", "replace-one"): 2 * whole, ("record", "zero-out"): whole}',
        why="a row that is zeroed may turn a whole block around, and half of that is claimed",
    ),
    _sites(
        name="long-integers-from-a-stranger",
        file=f"{_OPERATORS}/lattice_blocks.py",
        old="return is_whole_within([sent + kept - here for sent, kept, here in parts], self.most)",
        new="return is_whole_within([sent for sent, kept, here in parts], 2 * self.most)",
        why="a site's block leaves its ball, and one release tells more than was accounted",
    ),
    _coordinates(
        name="coordinate-messages-without-their-limit",
        file=f"{_OPERATORS}/lattice_coordinate.py",
        old="(rows.targets, shares, slope_limits(integers.squared, counts, self.longest))",
        new="(rows.targets, shares, np.full(len(rows), 2.0**50))",
        why="one record decides a coordinate",
    ),
    _counts(
        name="counts-of-users-rounded-up",
        file="src/hushpoint/preprocessing/counts.py",
        old="weights[order] = np.repeat(heaviest // counts, counts)",
        new="weights[order] = np.repeat(-(-heaviest // counts), counts)",
        why="a user with many rows weighs more in a private range than any other",
    ),
    _counts(
        name="quantile-of-the-larger-side",
        file="src/hushpoint/preprocessing/counts.py",
        old="return sum((max(q, self.one - q) * self.heaviest) ** 2 for q in found)",
        new="return sum((min(q, self.one - q) * self.heaviest) ** 2 for q in found)",
        why="the noise of a range is for its smaller tail",
    ),
    _counts(
        name="whole-scale-rounded-down",
        file="src/hushpoint/privacy/whole.py",
        old="return isqrt((squared * below**2 - 1) // above**2) + 1",
        new="return max(1, isqrt(squared * below**2 // above**2))",
        why="every search and score spends a little more than its share",
    ),
]
