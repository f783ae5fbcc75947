"""The law of the noise, as it reaches the state of a run, with power against wrong factors and reused draws.

Statistical tests run on fixed seeds and accept at p > 1e-6: a correct implementation with another seed fails one of
them with probability 1e-6 each. Every one of them is shown to reject (p < 1e-6) a planted bug on the same seed.
"""

import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from randomgen import ChaCha
from scipy import stats

import hushpoint as hp
from hushpoint import methods
from hushpoint._keyed import _EDGE, _secure_words, scratch
from hushpoint.noise import Noise, Source, secure_source, seeded_source, source_for
from hushpoint.operators import FixedPoint, Operator
from hushpoint.schedules import Cyclic, EveryBlock, FixedSample

FALSE_ALARM = 1e-6


def fixed_secure_source():
    """The cryptographic stream with a key that is not secret, so that the test is the same every time."""
    return Source(np.arange(8, dtype=np.uint32) * np.uint32(0x9E3779B9) + np.uint32(1))


SOURCES = {"secure": fixed_secure_source, "seeded": lambda: seeded_source(7)}
both_sources = pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)


def two_sided(law, value):
    return float(2 * min(law.cdf(value), law.sf(value), 0.5))


def variance_p(draws, std):
    """Two-sided chi-square p-value for independent normals of this standard deviation."""
    draws = np.ravel(draws)
    return two_sided(stats.chi2(draws.size), float((draws**2).sum()) / std**2)


def correlation_p(one, two):
    """Two-sided p-value for no correlation; exact for normals, given one side."""
    one, two = np.ravel(one), np.ravel(two)
    return two_sided(stats.norm(), float(one @ two) / math.sqrt(float(one @ one)) / two.std())


# --- Noise in the blocks, through the engine -------------------------------------------------------------------------


class Still(Operator):
    """R = identity over many blocks: what changes is noise."""

    name = "still"
    needs_rows = False

    def __init__(self, blocks, size):
        self.blocks, self.block_size, self.message_size = blocks, size, size

    def start(self):
        return np.zeros(self.block_size), np.zeros((self.blocks, self.block_size))

    def local(self, data, chosen, block, z, relaxation, kick):
        message = np.zeros_like(block) if kick is None else relaxation * kick
        return block + message, message

    def combine(self, shared, total, chosen, relaxation):
        return shared + total / self.blocks

    def certificate(self, relaxation):
        return hp.Certificate(1.0)


class StillPoint(FixedPoint):
    """R = identity, written as a newcomer would."""

    def apply(self, point):
        return point


def silent_problem(items, width, users=False, **options):
    """Rows of zeros: every prox is the identity, every gradient 0."""
    rows = 3 * items if users else items
    groups = np.repeat(np.arange(items), 3) if users else None
    return hp.Problem(np.zeros((rows, width)), np.arange(rows) * 1.0, "huber", row_norm=1.0, groups=groups, **options)


def states_of(plan, steps, seed):
    """The state after every step: the plan has one step, and is continued."""
    states = [plan.run(seed=seed, kernel="plain").state]
    while len(states) < steps:
        states.append(plan.run(state=states[-1], kernel="plain").state)
    return states


def moves_of(plan, steps, seed):
    """What each step added to the blocks beyond the relaxed map, shape (steps, blocks, size), and who moved."""
    states = states_of(plan, steps, seed)
    before = np.stack([np.zeros_like(states[0].blocks)] + [state.blocks for state in states[:-1]])
    shared = np.stack([np.zeros_like(states[0].shared)] + [state.shared for state in states[:-1]])
    moves = np.stack([state.blocks for state in states]) - before
    if isinstance(plan.operator, (Still, StillPoint)) or plan.method == "private_admm":
        return moves, np.ones(moves.shape[:2], dtype=bool)
    counts = np.stack([state.participations for state in states])
    moved = np.diff(counts, axis=0, prepend=0) > 0
    drift = plan.relaxation * 2 * (shared[:, None, :] - before)  # consensus with f = 0: R_i = 2 z - u_i
    return (moves - drift) * moved[:, :, None], moved


def walked_moves(plan, steps, seed):
    states = states_of(plan, steps, seed)
    shared = np.stack([np.zeros_like(states[0].shared)] + [state.shared for state in states])
    return np.diff(shared, axis=0)[:, None, :], np.ones((steps, 1), dtype=bool)


def block_plan(kind, noise_std, relaxation):
    noise = {"noise_std": noise_std, "relaxation": relaxation, "gamma": 2.0}
    if kind == "own operator":
        return hp.Plan(Still(200, 4), EveryBlock(200), Noise(noise_std), steps=1, relaxation=relaxation)
    if kind == "own fixed point":
        return hp.Plan(StillPoint(800), EveryBlock(1), Noise(noise_std), steps=1, relaxation=relaxation)
    if kind == "general":
        return methods.private_admm(silent_problem(5, 400), 1, **noise)
    if kind == "general, tall A":  # as many coordinates of noise as A has rows
        A = np.vstack([np.eye(40), np.diff(np.eye(40), axis=0)])
        return methods.private_admm(silent_problem(5, 40), 1, A=A, B=A, penalty=hp.regularizers.Zero(), **noise)
    if kind == "centralized":
        return methods.centralized_admm(silent_problem(200, 4), 1, **noise)
    if kind == "centralized, users":
        return methods.centralized_admm(silent_problem(40, 4, users=True), 1, **noise)
    if kind == "centralized, cyclic":
        return methods.centralized_admm(silent_problem(8, 20), 1, schedule="cyclic", **noise)
    if kind == "federated":
        return methods.federated_admm(silent_problem(60, 4), 1, sample_prob=0.5, **noise)
    if kind == "decentralized":
        return methods.decentralized_admm(silent_problem(6, 20), 1, **noise)
    return methods.stateless_walk(silent_problem(6, 20), 1, **noise)


KINDS = [
    "own operator",
    "own fixed point",
    "general",
    "centralized",
    "centralized, users",
    "centralized, cyclic",
    "federated",
    "decentralized",
    "stateless",
]


def block_noise(kind, noise_std, relaxation, steps=50, seed=11):
    read = walked_moves if kind == "stateless" else moves_of
    return read(block_plan(kind, noise_std, relaxation), steps, seed)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (0.5, False), (2.0, False)])
def test_block_noise_has_the_accounted_variance(kind, factor, passes):
    # lambda * eta reaches u: forgetting lambda, or applying it twice, is a privacy bug
    sigma, relaxation = 3.0, 0.5
    moves, moved = block_noise(kind, sigma * factor, relaxation)
    assert (variance_p(moves[moved], relaxation * sigma) > FALSE_ALARM) is passes
    if factor == 1:
        assert variance_p(moves[moved], sigma) < FALSE_ALARM  # as if lambda were forgotten
        assert variance_p(moves[moved], relaxation**2 * sigma) < FALSE_ALARM  # as if it were applied twice
        assert not moves[~moved].any()  # who does not move draws nothing
    # and with the relaxation off by the factor instead of sigma
    if factor < 2:
        moves, moved = block_noise(kind, sigma, relaxation * factor)
        assert (variance_p(moves[moved], relaxation * sigma) > FALSE_ALARM) is passes


def test_block_noise_lives_in_every_row_of_a_tall_constraint():
    # catches: noise of the model's size where A has more rows: directions of u without noise are not private
    plan = block_plan("general, tall A", 3.0, 0.5)
    states = states_of(plan, 30, seed=11)
    moves = states[0].blocks  # from u = 0: z = x = 0, so R(0) = 0
    assert moves.shape == (1, 79)
    assert variance_p(moves, 1.5) > FALSE_ALARM
    first_steps = np.stack([plan.run(seed=seed).state.blocks[0] for seed in range(200)])
    assert variance_p(first_steps, 1.5) > FALSE_ALARM
    eigenvalues = np.linalg.eigvalsh(np.cov(first_steps.T))
    assert eigenvalues.min() > 0.1 * 1.5**2  # Marchenko-Pastur at 79/200: (1 - 0.63)^2 = 0.14; a missing direction: 0


def independence_p(moves):
    """The least p-value between neighbouring blocks, steps, coordinates, and steps far apart (Bonferroni: times 4)."""
    pairs = [
        (moves[:, 1:], moves[:, :-1]),
        (moves[1:], moves[:-1]),
        (moves[:, :, 1:], moves[:, :, :-1]),
        (moves[len(moves) // 2 :], moves[: len(moves) - len(moves) // 2]),
    ]
    return 4 * min(correlation_p(one, two) for one, two in pairs if one.size)


def test_block_noise_is_independent_across_blocks_steps_and_coordinates():
    # catches: noise drawn once and reused (the difference of two releases would reveal the data)
    moves, _ = block_noise("centralized", 3.0, 0.5)
    assert independence_p(moves) > FALSE_ALARM
    blocks = moves.reshape(50, -1)
    pooled = np.cov(moves.transpose(1, 0, 2).reshape(200, -1).T)  # 200 coordinates seen by 200 blocks
    assert np.abs(pooled - np.diag(np.diag(pooled))).max() < 0.5 * 1.5**2  # 7 standard errors of 20,000 pairs
    assert np.unique(np.round(blocks, 12)).size == blocks.size  # no draw occurs twice


@pytest.mark.parametrize("forgets", ["step", "item"])
def test_the_independence_test_sees_reused_noise(forgets, monkeypatch):
    # the power of the test above: an address without its step, or without its item, through the same engine
    honest = Source.normals

    def reusing(self, role, items, step, size, scale=1.0):
        if forgets == "step":
            return honest(self, role, items, 0, size, scale)
        return honest(self, role, np.zeros_like(items), step, size, scale)

    monkeypatch.setattr(Source, "normals", reusing)
    moves, _ = block_noise("centralized", 3.0, 0.5)
    assert variance_p(moves[:1, :1], 1.5) > FALSE_ALARM  # each draw alone looks right
    assert independence_p(moves) < FALSE_ALARM


def test_block_noise_is_what_the_message_carries():
    # catches: a client that adds one draw to its state and sends another: zhat must be the mean of the noisy blocks
    states = states_of(block_plan("federated", 3.0, 0.5), 20, seed=3)
    for state in states:
        np.testing.assert_allclose(state.shared, state.blocks.mean(axis=0), atol=1e-12)


# --- Noise on the sum ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", [{}, {"sample_prob": 0.25}, {"sample_size": 5}], ids=["full", "poisson", "fixed"])
@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (0.5, False), (2.0, False)])
def test_gradient_noise_has_the_accounted_variance(sample, factor, passes):
    # catches: noise on the sum not divided like the sum, std taken for a variance, the step size applied twice
    std, step = 0.7, 0.2
    problem = silent_problem(40, 100)
    plan = methods.dp_sgd(problem, 40, step, noise_std=std * factor, **sample)
    models = np.array(plan.run(seed=5, history="models").history["models"])
    moves = np.diff(models, axis=0, prepend=0)
    assert (variance_p(moves, step * std) > FALSE_ALARM) is passes
    if passes:
        assert independence_p(moves[:, None, :]) > FALSE_ALARM
        assert independence_p(np.tile(moves[:1], (40, 1))[:, None, :]) < FALSE_ALARM  # one draw reused


@pytest.mark.parametrize(
    ("sample", "expected"), [({}, 40.0), ({"sample_prob": 0.25}, 10.0), ({"sample_size": 8}, 8.0)], ids=["n", "qn", "m"]
)
def test_gradient_noise_is_on_the_scale_of_the_sum(sample, expected):
    # catches: noise scaled by n where the sum is divided by q n: the noise multiplier would be off by q
    problem = hp.Problem(np.ones((40, 1)), np.full(40, 1e6), "huber", row_norm=1.0)  # every gradient is -transition
    plan = methods.dp_sgd(problem, 200, 1.0, noise_std=0.3, **sample)
    assert plan.noise == Noise(0.3 * expected, "sum")
    quiet = methods.dp_sgd(problem, 200, 1.0, noise_std=0.0, **sample)
    loud, still = (np.array(each.run(seed=5, history="models").history["models"])[:, 0] for each in (plan, quiet))
    still = np.diff(still, prepend=0.0)
    noise = np.diff(loud, prepend=0.0) - still  # same seed, same samples
    one_item = problem.facts.gradient_bound / expected  # what one person moves the model by
    np.testing.assert_allclose(still / one_item, np.round(still / one_item), atol=1e-6)  # whole numbers of people
    assert np.round(still / one_item).mean() == pytest.approx(expected, rel=0.2)
    multiplier = noise / one_item * problem.facts.gradient_bound
    assert variance_p(multiplier, 0.3 * expected) > FALSE_ALARM
    assert variance_p(multiplier, 0.3 * expected / 2) < FALSE_ALARM


@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (0.5, False), (2.0, False)])
def test_noise_on_the_sum_of_messages_has_the_accounted_variance(factor, passes):
    # catches: noise in the blocks as well, noise scaled by the relaxation or by n (theory 3f: std on the sum)
    std = 2.0
    problem = silent_problem(30, 50)
    plan = methods.federated_admm(
        problem, 1, 1.0, sample_prob=0.5, noise="sum", noise_std=std * factor, clip_residual=1.0, relaxation=0.5
    )
    states = states_of(plan, 40, seed=8)
    shared = np.stack([state.shared for state in states])
    blocks = np.stack([state.blocks.sum(axis=0) for state in states])
    noise = np.diff(30 * shared - blocks, axis=0, prepend=0)
    assert (variance_p(noise, std) > FALSE_ALARM) is passes
    assert independence_p(noise[:, None, :]) > FALSE_ALARM
    assert not states[0].blocks.any()  # from u = z = 0 with f = 0 nothing moves a block but noise, and none is there


# --- Noise on each release -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", ["items", "rows"])
@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (0.5, False), (2.0, False)])
def test_release_noise_has_the_accounted_variance(weights, factor, passes):
    # catches: noise scaled by the relaxation or by n, or drawn once; theory 3e: N(0, s^2) on the mean, fresh each time
    std = 1.7
    problem = silent_problem(10, 50, users=True, weights=weights)
    plan = methods.anchored_admm(problem, 1, 1.0, sample_prob=0.5, noise_std=std * factor)
    states = states_of(plan, 40, seed=8)
    noise = np.stack([state.public - state.shared for state in states])
    assert (variance_p(noise, std) > FALSE_ALARM) is passes
    assert independence_p(noise[:, None, :]) > FALSE_ALARM
    assert independence_p(np.tile(noise[:1], (40, 1))[:, None, :]) < FALSE_ALARM


def test_release_noise_is_kept_nowhere():
    # catches: noise that accumulates in the mean of the blocks (it would drift, as in 3f)
    rng = np.random.default_rng(0)
    problem = hp.Problem(
        rng.normal(size=(30, 4)), rng.normal(size=30), "huber", row_norm=1.0, groups=np.arange(30) // 3
    )
    plan = methods.anchored_admm(problem, 1, 1.0, noise_std=5.0)
    for state in states_of(plan, 30, seed=8):
        np.testing.assert_allclose(state.shared, state.blocks.mean(axis=0), atol=1e-10)
        # a participant's block lies around the last release, not around a sum of them
        assert np.abs(state.public).max() < 10 * 5.0
    # the model is the prox of the last release, noise included
    result = plan.run(seed=8)
    np.testing.assert_array_equal(result.model, plan.operator.release(result.state.public))


# --- DP-CD -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["plain", "auto"])
def test_coordinate_descent_draws_one_normal_for_the_moved_coordinate(monkeypatch, kernel):
    # catches: noise on all coordinates (wasted), or on the wrong one, or the noise of a vector's first entry reused
    asked = []
    honest = Source.normals

    def watched(self, role, items, step, size, scale=1.0):
        asked.append((role, tuple(items), step, size, scale))
        return honest(self, role, items, step, size, scale)

    monkeypatch.setattr(Source, "normals", watched)
    std, step, n = 0.4, 0.25, 10
    plan = methods.dp_cd(silent_problem(n, 6), 3000, step, noise_std=std)
    result = plan.run(seed=2, history="models", kernel=kernel)
    moves = np.diff(np.array(result.history["models"]), axis=0, prepend=0)
    assert ((moves != 0).sum(axis=1) == 1).all()
    if kernel == "plain":  # compiled code draws for itself
        assert asked == [("sum", (0,), k, 1, std * n) for k in range(3000)]
    draws = moves[moves != 0]
    assert variance_p(draws, step * std) > FALSE_ALARM
    assert variance_p(draws, step * std * 2) < FALSE_ALARM
    assert variance_p(draws, step * std / 2) < FALSE_ALARM
    assert correlation_p(draws[1:], draws[:-1]) > FALSE_ALARM
    np.testing.assert_array_equal(result.state.participations, (moves != 0).sum(axis=0))


# --- Draws have addresses --------------------------------------------------------------------------------------------

ADDRESSES = [
    ("block", 0, 0),
    ("block", 1, 0),
    ("block", 0, 1),
    ("block", 1, 1),
    ("sum", 0, 0),
    ("release", 0, 0),
    ("schedule", 0, 0),
    ("order", 0, 0),
    ("block", 256, 0),
    ("block", 0, 256),
    ("block", 2**31, 5),
    ("block", 2**32 - 1, 2**28 - 1),
]


@both_sources
@pytest.mark.parametrize("address", ADDRESSES)
def test_compiled_normals_are_those_of_the_numpy_stream(make, address):
    # catches: a client in another process (NumPy) and the compiled loop that disagree on the noise of an address
    role, item, step = address
    source = make()
    compiled = source.normals(role, [item], step, 1000)[0]
    plain = source.stream(role, item, step).standard_normal(1000)
    np.testing.assert_allclose(compiled, plain, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(source.normals(role, [item], step, 1000, 2.5)[0], 2.5 * plain, rtol=1e-12)


@both_sources
def test_long_streams_agree_too(make):
    # catches: a buffer or a block counter that goes wrong after the first refill, or in the tail of the ziggurat
    source = make()
    compiled = source.normals("block", [3], 9, 400_000)[0]
    plain = source.stream("block", 3, 9).standard_normal(400_000)
    np.testing.assert_allclose(compiled, plain, rtol=1e-12, atol=1e-12)
    assert (np.abs(plain) > _EDGE).sum() > 50  # the tail is among them


@both_sources
def test_compiled_uniforms_are_those_of_the_numpy_stream(make):
    # catches: a sampled round that two processes disagree on
    source = make()
    for role, item, step in ADDRESSES:
        np.testing.assert_array_equal(
            source.uniforms(role, item, step, 200), source.stream(role, item, step).random(200)
        )


@both_sources
def test_different_addresses_give_different_draws(make):
    # catches: an address folded (role + item, item xor step, 16 bits): the same noise twice is no noise
    source = make()
    streams = np.stack([source.normals(role, [item], step, 64)[0] for role, item, step in ADDRESSES])
    assert np.unique(streams).size == streams.size  # nor does one stream run into another
    grid = np.stack([source.normals("block", np.arange(64), step, 2) for step in range(64)])
    assert np.unique(grid).size == grid.size
    for axis in (0, 1):
        one, two = np.take(grid, range(1, 64), axis), np.take(grid, range(63), axis)
        assert correlation_p(one, two) > FALSE_ALARM
        assert correlation_p(one, one) < FALSE_ALARM


@both_sources
@pytest.mark.parametrize(("item", "step"), [(0, 2**32), (2**32, 0), (0, -1), (-1, 0)])
def test_addresses_beyond_32_bits_are_refused(make, item, step):
    # catches: a step or an item cut to 32 bits, so that after 2^32 steps the noise of the first comes again
    source = make()
    with pytest.raises(OverflowError):
        source.stream("block", item, step)
    with pytest.raises(OverflowError):
        source.uniforms("schedule", item, step, 1)
    if item == 0:
        with pytest.raises(OverflowError):
            source.normals("block", [item], step, 1)


@both_sources
def test_the_order_of_items_does_not_matter(make):
    # catches: draws by position: a chunk, a sample or another process would draw other noise for the same item
    source = make()
    items = np.array([5, 0, 17, 3])
    table = source.normals("block", items, 4, 7)
    np.testing.assert_array_equal(source.normals("block", items[::-1], 4, 7), table[::-1])
    np.testing.assert_array_equal(source.normals("block", [17], 4, 7)[0], table[2])
    np.testing.assert_array_equal(source.normals("block", np.arange(20), 4, 7)[items], table)
    np.testing.assert_array_equal(source.normals("block", items, 4, 3), table[:, :3])


def test_chacha20_block_is_that_of_rfc_8439():
    # catches: a cipher that is nearly ChaCha20 (RFC 8439, section 2.3.2)
    key = np.frombuffer(bytes(range(32)), dtype="<u4").astype(np.uint32)
    nonce = np.frombuffer(bytes.fromhex("000000090000004a00000000"), dtype="<u4").astype(np.uint32)
    room = scratch(key)
    _secure_words(nonce[0], int(nonce[1]), int(nonce[2]), 1, room)
    expected = (
        "e4e7f110 15593bd1 1fdd0f50 c47120a3 c7f4d1c7 0368c033 9aaa2204 4e6cd4c3 "
        "466482d2 09aa9f07 05d7c214 a2028bd9 d19c12b5 b94e16de e883d0cb 4e3c50a2"
    )
    words = [int(word, 16) for word in expected.split()]
    assert room[2][:8].tolist() == [words[2 * k] | words[2 * k + 1] << 32 for k in range(8)]


def test_chacha20_blocks_are_those_of_randomgen():
    # catches: a counter or nonce in the wrong word, so that two addresses share a block
    rng = np.random.default_rng(4)
    for _ in range(20):
        key = rng.integers(2**32, size=8, dtype=np.uint32)
        words = rng.integers(2**32, size=4, dtype=np.uint32)
        words[0] >>= np.uint32(1)  # the eight blocks below share their other words
        words[3] >>= np.uint32(4)  # randomgen counts words of 32 bits, 16 a block, in 128 bits
        room = scratch(key)
        _secure_words(words[1], int(words[2]), int(words[3]), int(words[0]), room)
        counter = sum(int(word) << 32 * place for place, word in enumerate(words))
        other = ChaCha(key=int.from_bytes(key.tobytes(), "little"), counter=16 * counter, rounds=20)
        assert room[2].tolist() == other.random_raw(64).tolist()


# --- The normals are normal ------------------------------------------------------------------------------------------


def normality_p(draws):
    """The least p-value of several tests of the standard normal law (Bonferroni: times their number)."""
    n = draws.size
    exact = [1, 0, 1, 0, 3, 0, 15, 0, 105, 0, 945, 0, 10395, 0, 135135, 0, 2027025]
    power, moments = np.ones(n), []
    for k in range(1, 9):
        power *= draws
        moments.append((power.mean() - exact[k]) / math.sqrt((exact[2 * k] - exact[k] ** 2) / n))
    edges = stats.norm.ppf(np.linspace(0, 1, 1001))
    counts = np.histogram(draws, bins=edges)[0]
    p_values = [
        stats.kstest(draws, "norm", method="asymp").pvalue,
        stats.chisquare(counts).pvalue,
        1 - stats.chisquare(counts).pvalue,
        *(two_sided(stats.norm(), moment) for moment in moments),
    ]
    return len(p_values) * min(p_values)


@both_sources
def test_ziggurat_normals_are_normal(make):
    # catches: a wrong table entry, layer, sign bit or acceptance rule
    draws = make().normals("block", np.arange(1000), 0, 1000).ravel()
    assert normality_p(draws) > FALSE_ALARM
    assert normality_p(1.005 * draws) < FALSE_ALARM
    assert normality_p(draws + 0.01) < FALSE_ALARM
    wedge = np.where((np.abs(draws) > 1.0) & (np.abs(draws) < 1.02), 0.99 * draws, draws)  # one bad layer
    assert normality_p(wedge) < FALSE_ALARM


def tail_p(tail, total):
    """p-value of the number, the sides, the mean and the law of draws beyond the last layer (Bonferroni: times 4)."""
    size = np.abs(tail)
    share = 2 * stats.norm.sf(_EDGE)
    mean = stats.norm.pdf(_EDGE) / stats.norm.sf(_EDGE)
    variance = 1 + _EDGE * mean - mean**2
    uniform = stats.norm.sf(size) / stats.norm.sf(_EDGE)
    return 4 * min(
        two_sided(stats.binom(total, share), size.size),
        two_sided(stats.binom(size.size, 0.5), int((tail > 0).sum())),
        two_sided(stats.norm(), (size.mean() - mean) / math.sqrt(variance / size.size)),
        stats.kstest(uniform, "uniform", method="asymp").pvalue,
    )


@both_sources
def test_ziggurat_tails_are_normal(make):
    # catches: tails cut off at the last layer (a bounded noise is not private), one-sided, or exponential
    source, parts = make(), []
    total = 0
    for step in range(20):
        draws = source.normals("block", np.arange(100), step, 20_000)
        parts.append(draws[np.abs(draws) > _EDGE])
        total += draws.size
    tail = np.concatenate(parts)
    assert tail.size > 9000
    assert np.abs(tail).max() > 5.0  # 40 million draws: 23 expected beyond 5
    assert tail_p(tail, total) > FALSE_ALARM
    rng = np.random.default_rng(0)
    exponential = np.sign(tail) * (_EDGE + rng.exponential(1 / _EDGE, size=tail.size))  # the rejection step forgotten
    assert tail_p(exponential, total) < FALSE_ALARM
    assert tail_p(tail[::2], total) < FALSE_ALARM
    assert tail_p(np.abs(tail), total) < FALSE_ALARM


# --- Seeds, and secure runs ------------------------------------------------------------------------------------------


def small_plan(noise_std=1.0):
    rng = np.random.default_rng(0)
    problem = hp.Problem(rng.normal(size=(12, 3)), rng.normal(size=12), "huber", row_norm=1.0)
    return methods.federated_admm(problem, 6, 1.0, sample_size=4, noise_std=noise_std)


def test_seeded_runs_are_reproducible():
    # catches: hidden global state; and a seed that is not used at all
    plan = small_plan()
    one, two, other = (plan.run(seed=seed) for seed in (5, 5, 6))
    np.testing.assert_array_equal(one.model, two.model)
    np.testing.assert_array_equal(one.state.blocks, two.state.blocks)
    assert not np.isclose(one.model, other.model).any()
    np.random.seed(0)  # noqa: NPY002 (a seed of NumPy's global generator must not matter)
    np.testing.assert_array_equal(plan.run(seed=5).model, one.model)


def test_secure_runs_differ():
    # catches: a default seed: noise that anyone can take away again
    plan = small_plan()
    models = np.stack([plan.run().model for _ in range(4)])
    assert np.unique(models).size == models.size
    assert plan.run().state.seed is None
    keys = [tuple(secure_source().key) for _ in range(50)]
    assert len(set(keys)) == 50
    assert all(0 < np.mean([bin(int(word)).count("1") for word in key]) < 32 for key in keys)
    np.random.seed(0)  # noqa: NPY002
    first = plan.run().model
    np.random.seed(0)  # noqa: NPY002
    assert not np.isclose(plan.run().model, first).any()


def test_a_key_has_256_bits():
    # catches: a key stretched from 32 or 128 random bits, which can be guessed (false alarm 50 * 28 / 2^32 = 3e-7)
    assert all(len(set(secure_source().key.tolist())) == 8 for _ in range(50))


def test_a_secure_run_goes_on_with_fresh_noise():
    # catches: a key kept in the state (it would have to be kept secret for ever), or the same noise after resuming
    plan = small_plan()
    state = plan.run().state
    assert not np.isclose(plan.run(state=state).model, plan.run(state=state).model).any()


def test_a_seeded_run_goes_on_where_it_stopped():
    # catches: a resumed run that draws the noise of its first steps again
    plan = small_plan()
    whole = plan.run(seed=5)
    half = plan.run(seed=5, callback=lambda step, model: step == 3)
    assert (half.status, half.state.steps) == ("stopped", 3)
    rest = plan.run(state=half.state)
    np.testing.assert_array_equal(rest.model, whole.model)
    again = plan.run(state=whole.state)  # six more steps: other addresses, other noise
    assert again.state.steps == 12
    longer = source_for(5)
    assert not np.isclose(longer.normals("block", [0], 0, 3), longer.normals("block", [0], 6, 3)).any()


@pytest.mark.parametrize("seed", [-1, 1.5, "7", [1], np.float64(3.0)])
def test_bad_seeds_are_refused(seed):
    # catches: a seed that is silently rounded or hashed
    with pytest.raises(ValueError, match=r"seed is .*non-negative integer, or None"):
        source_for(seed)
    with pytest.raises(ValueError, match="seed is"):
        small_plan().run(seed=seed)


def test_large_and_numpy_seeds_are_used_whole():
    # catches: seeds cut to 31 or 32 bits
    seeds = [0, 1, 2**31, 2**32, 2**32 + 1, 2**64 + 1, 2**200]
    draws = np.stack([seeded_source(seed).normals("block", [0], 0, 4)[0] for seed in seeds])
    assert np.unique(draws).size == draws.size
    np.testing.assert_array_equal(seeded_source(np.int64(1)).normals("block", [0], 0, 4)[0], draws[1])


def test_sources_say_what_they_are():
    # catches: an experiment's noise described as fit for release, or a key that is printed
    secure, seeded = secure_source(), seeded_source(12)
    assert secure.secure
    assert not seeded.secure
    assert "operating system" in secure.describe()
    assert "12" in seeded.describe()
    assert "not for release" in seeded.describe()
    assert str(int(secure.key[0])) not in repr(secure)


CHILD = """
import json, sys
import numpy as np
import hushpoint as hp
from hushpoint.noise import seeded_source, Source
source = seeded_source(7)
secure = Source(np.arange(8, dtype=np.uint32))
rng = np.random.default_rng(0)
problem = hp.Problem(rng.normal(size=(12, 3)), rng.normal(size=12), "huber", row_norm=1.0)
plan = hp.methods.federated_admm(problem, 6, 1.0, sample_size=4, noise_std=1.0)
print(json.dumps([
    [value.hex() for value in source.normals("block", [3, 1], 2, 5).ravel()],
    [value.hex() for value in secure.normals("sum", [0], 2, 5).ravel()],
    source.stream("schedule", 0, 4).integers(1000, size=5).tolist(),
    [value.hex() for value in plan.run(seed=5).model],
]))
"""


def test_two_processes_with_one_seed_agree():
    # catches: addresses by Python's hash(), which differs between processes
    outputs = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", CHILD], env=environment, capture_output=True, text=True, check=True, timeout=120
        )
        outputs.append(json.loads(done.stdout))
    assert outputs[0] == outputs[1]
    here = [value.hex() for value in seeded_source(7).normals("block", [3, 1], 2, 5).ravel()]
    assert outputs[0][0] == here
    assert outputs[0][3] == [value.hex() for value in small_plan().run(seed=5).model]


# --- The noise object, and where noise cannot go ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"std": -1.0}, "std is -1.0"),
        ({"std": math.nan}, "std is nan"),
        ({"std": math.inf}, "std is inf"),
        ({"std": "1 m"}, "std is '1 m'"),
        ({"std": 1.0, "place": "blocks"}, "place is 'blocks'"),
    ],
)
def test_malformed_noise_is_refused(arguments, words):
    # catches: nan noise, which compares false with every bound and hides everything
    with pytest.raises(ValueError, match=words):
        Noise(**arguments)


@pytest.mark.parametrize("place", ["block", "sum", "release"])
@pytest.mark.parametrize("kind", ["gradient", "coordinate", "general", "consensus", "anchored", "stateless"])
def test_no_operator_drops_the_noise_of_a_plan(kind, place):
    # catches: a plan that says Noise(5, "block") and runs without any noise: refuse it, or add it
    problem = silent_problem(4, 3)
    operators = hp.operators
    zero = hp.regularizers.Zero()
    operator, schedule = {
        "gradient": lambda: (operators.Gradient(problem.facts, 1.0, 4.0), EveryBlock(4)),
        "coordinate": lambda: (operators.CoordinateGradient(problem.facts, 1.0), Cyclic(3)),
        "general": lambda: (operators.GeneralADMM(problem.facts, 1.0, zero), EveryBlock(1)),
        "consensus": lambda: (operators.ConsensusADMM(problem.facts, 1.0, zero), EveryBlock(4)),
        "anchored": lambda: (operators.AnchoredADMM(problem.facts, 1.0, zero), FixedSample(4, 3)),
        "stateless": lambda: (operators.StatelessProx(problem.facts, 1.0), Cyclic(4)),
    }[kind]()
    try:
        plan = hp.Plan(operator, schedule, Noise(5.0, place), steps=3, problem=problem)
        model = plan.run(seed=1).model
    except ValueError:
        return
    assert np.abs(model).max() > 0.1
