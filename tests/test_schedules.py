"""Who moves: the law of every schedule, with power against a planted bias, and the caps that a run enforces.

Statistical tests run on fixed seeds and accept at p > 1e-6: a correct implementation with another seed fails one of
them with probability 1e-6 each. Every one of them is shown to reject (p < 1e-6) a planted bug of the same size.
"""

import itertools
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from scipy import stats

import hushpoint as hp
from hushpoint import methods
from hushpoint.noise import Noise, secure_source, seeded_source
from hushpoint.operators import Operator
from hushpoint.schedules import (
    Cyclic,
    EveryBlock,
    FixedSample,
    OneBlock,
    Permuted,
    PoissonSample,
    Schedule,
    Walk,
    walk_on,
)

FALSE_ALARM = 1e-6


def drawn(schedule, steps, seed=1, source=None):
    """The choices of every step, the position handed on as the engine does."""
    source = source or seeded_source(seed)
    position, choices = -1, []
    for step in range(steps):
        chosen = schedule.draw(step, source, position)
        chosen = np.arange(schedule.blocks) if chosen is None else chosen
        position = int(chosen[-1]) if len(chosen) else position
        choices.append(chosen)
    return choices


def table_of(schedule, steps, seed=1):
    """Who moves when, as 0 and 1, shape (steps, blocks)."""
    table = np.zeros((steps, schedule.blocks))
    for step, chosen in enumerate(drawn(schedule, steps, seed)):
        table[step, chosen] = 1
    return table


def uniform_p(counts, weights=None):
    expected = None if weights is None else np.sum(counts) * np.asarray(weights) / np.sum(weights)
    return float(stats.chisquare(counts, expected).pvalue)


def uncorrelated_p(one, two):
    """Two-sided p-value for no correlation between two long series."""
    one, two = np.ravel(one) - np.mean(one), np.ravel(two) - np.mean(two)
    score = float(one @ two) / np.sqrt(float(one @ one) * float(two @ two)) * np.sqrt(one.size)
    return float(2 * stats.norm.sf(abs(score)))


def binomial_p(successes, trials, prob):
    law = stats.binom(trials, prob)
    return float(2 * min(law.cdf(successes), law.sf(successes - 1), 0.5))


EXAMPLES = [
    EveryBlock(7),
    Cyclic(7),
    Permuted(7),
    OneBlock(7),
    PoissonSample(7, 0.3),
    FixedSample(7, 3),
    Walk(7),
    walk_on(nx.cycle_graph(7), 7),
]
named = pytest.mark.parametrize("schedule", EXAMPLES, ids=lambda one: f"{type(one).__name__}-{one.blocks}")


# --- What every schedule must do -------------------------------------------------------------------------------------


@named
def test_choices_are_blocks_at_most_once_a_step(schedule):
    # catches: a block that moves twice in a step (its noise would be drawn once), or an index out of range
    for chosen in drawn(schedule, 200):
        assert len(set(chosen.tolist())) == len(chosen)
        assert ((chosen >= 0) & (chosen < 7)).all()


@named
@pytest.mark.parametrize("steps", [1, 6, 7, 8, 50])
def test_participations_are_never_exceeded(schedule, steps):
    # catches: a bound that is smaller than what the schedule can do: the guarantee would count too few participations
    for seed in range(20):
        assert table_of(schedule, steps, seed).sum(axis=0).max() <= schedule.participations(steps)
    assert schedule.most(steps) == schedule.participations(steps)
    capped = type(schedule)(**{**schedule.__dict__, "cap": 3})
    assert capped.most(steps) == min(3, schedule.participations(steps))


@named
def test_participations_are_attained_where_they_are_deterministic(schedule):
    # catches: a bound that counts every step for a schedule that visits each block once a pass (much noise for nothing)
    if isinstance(schedule, (EveryBlock, Cyclic, Permuted)):
        for steps in (1, 7, 8, 13):
            assert table_of(schedule, steps).sum(axis=0).max() == schedule.participations(steps)


@named
def test_choices_depend_on_seed_and_step_alone(schedule):
    # catches: hidden state: a resumed run, or another process, would not draw the same samples
    forward = drawn(schedule, 20, seed=4)
    for one, two in zip(forward, drawn(schedule, 20, seed=4), strict=True):
        np.testing.assert_array_equal(one, two)
    position = -1 if len(forward[8]) == 0 else int(forward[8][-1])
    alone = schedule.draw(9, seeded_source(4), position)
    np.testing.assert_array_equal(np.arange(7) if alone is None else alone, forward[9])
    if not isinstance(schedule, (EveryBlock, Cyclic)):
        different = drawn(schedule, 20, seed=5)
        assert any(not np.array_equal(one, two) for one, two in zip(forward, different, strict=True))
        secret = [drawn(schedule, 20, source=secure_source()) for _ in range(2)]
        assert any(not np.array_equal(one, two) for one, two in zip(*secret, strict=True))


# --- The law of each -------------------------------------------------------------------------------------------------


def test_every_block_moves_all():
    # catches: a full-participation schedule that leaves someone out
    assert EveryBlock(5).draw(3, seeded_source(0), 2) is None
    assert table_of(EveryBlock(5), 4).all()


def test_cyclic_keeps_its_order():
    # catches: an order that restarts, or depends on the seed
    assert [int(chosen[0]) for chosen in drawn(Cyclic(4), 10)] == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]


def test_permuted_visits_all_once_a_pass_in_a_fresh_order():
    # catches: one permutation for all passes; a pass that misses a block; orders that are not uniform
    passes = np.concatenate(drawn(Permuted(4), 4 * 6000)).reshape(-1, 4)
    assert (np.sort(passes, axis=1) == np.arange(4)).all()
    orders = dict.fromkeys(itertools.permutations(range(4)), 0)
    for order in map(tuple, passes.tolist()):
        orders[order] += 1
    assert uniform_p(list(orders.values())) > FALSE_ALARM
    assert uniform_p([100, *list(orders.values())[1:]]) < FALSE_ALARM  # one order drawn too seldom
    same = int((passes[1:] == passes[:-1]).all(axis=1).sum())
    assert binomial_p(same, len(passes) - 1, 1 / 24) > FALSE_ALARM
    assert binomial_p(len(passes) - 1, len(passes) - 1, 1 / 24) < FALSE_ALARM  # one order for all passes


def test_one_block_is_uniform_and_independent():
    # catches: a block that is drawn more often than accounted, or draws that depend on the step before
    choices = np.concatenate(drawn(OneBlock(10), 20_000))
    assert uniform_p(np.bincount(choices, minlength=10)) > FALSE_ALARM
    biased = np.random.default_rng(0).choice(10, size=20_000, p=[0.12] + [0.88 / 9] * 9)
    assert uniform_p(np.bincount(biased, minlength=10)) < FALSE_ALARM
    pairs = np.bincount(10 * choices[1:] + choices[:-1], minlength=100)
    assert uniform_p(pairs) > FALSE_ALARM
    sticky = np.where(np.random.default_rng(0).random(19_999) < 0.05, choices[:-1], choices[1:])
    assert uniform_p(np.bincount(10 * sticky + choices[:-1], minlength=100)) < FALSE_ALARM


@pytest.mark.parametrize("prob", [0.05, 0.5, 0.9])
def test_poisson_inclusions_have_their_probability_and_are_independent(prob):
    # catches: sample sizes that are fixed (amplification would be false), one coin for all, coins kept over steps
    steps, blocks = 4000, 12
    table = table_of(PoissonSample(blocks, prob), steps)
    for block in range(blocks):
        assert binomial_p(table[:, block].sum(), steps, prob) > FALSE_ALARM / blocks
    assert binomial_p(table.sum(), table.size, prob) > FALSE_ALARM
    assert binomial_p(table.sum(), table.size, 0.9 * prob) < FALSE_ALARM  # a sampling rate that is 10% off
    sizes = np.bincount(table.sum(axis=1).astype(int), minlength=blocks + 1)
    law = stats.binom(blocks, prob).pmf(np.arange(blocks + 1))
    common = law * steps > 5
    rest = np.array([sizes[~common].sum()]), np.array([law[~common].sum()])
    assert uniform_p(np.concatenate([sizes[common], rest[0]]), np.concatenate([law[common], rest[1]])) > FALSE_ALARM
    fixed = np.full(steps, round(blocks * prob))
    sizes = np.bincount(fixed, minlength=blocks + 1)
    assert uniform_p(np.concatenate([sizes[common], [0]]), np.concatenate([law[common], rest[1]])) < FALSE_ALARM
    assert uncorrelated_p(table[:, 1:], table[:, :-1]) > FALSE_ALARM
    assert uncorrelated_p(table[1:], table[:-1]) > FALSE_ALARM
    together = np.repeat(table[:, :1], blocks, axis=1)
    assert uncorrelated_p(together[:, 1:], together[:, :-1]) < FALSE_ALARM


def test_poisson_with_probability_one_takes_all():
    # catches: a comparison that loses an item with probability 2^-53, or always
    assert table_of(PoissonSample(9, 1.0), 50).all()


@pytest.mark.parametrize("size", [1, 3, 7])
def test_fixed_samples_are_uniform_subsets(size):
    # catches: sampling with replacement, a size that is off, subsets that are not equally likely
    steps, blocks = 7000, 7
    table = table_of(FixedSample(blocks, size), steps)
    assert (table.sum(axis=1) == size).all()
    subsets = dict.fromkeys(itertools.combinations(range(blocks), size), 0)
    for chosen in drawn(FixedSample(blocks, size), steps):
        subsets[tuple(sorted(chosen.tolist()))] += 1
    if size < blocks:
        counts = list(subsets.values())
        assert uniform_p(counts) > FALSE_ALARM
        # one block twice as likely as the others to be left out
        skewed = [count * (0.8 if 0 in subset else 1.1) for subset, count in subsets.items()]
        assert uniform_p(skewed) < FALSE_ALARM
        assert uncorrelated_p(table[1:], table[:-1]) > FALSE_ALARM


def test_the_complete_walk_is_uniform_with_the_holder_included():
    # catches: a walk that never stays (the geometric law of theory 4d needs the holder among the next)
    walk = np.concatenate(drawn(walk_on("complete", 6), 18_000))
    pairs = np.bincount(6 * walk[1:] + walk[:-1], minlength=36)
    assert uniform_p(pairs) > FALSE_ALARM
    assert binomial_p(int((walk[1:] == walk[:-1]).sum()), len(walk) - 1, 1 / 6) > FALSE_ALARM
    assert binomial_p(0, len(walk) - 1, 1 / 6) < FALSE_ALARM  # never stays


def test_the_walk_on_a_graph_follows_edges_to_uniform_neighbours():
    # catches: a jump where there is no edge; neighbours by sorted position; a stationary law instead of a walk
    graph = nx.Graph([("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e")])
    schedule = walk_on(graph, 5)
    number = {name: place for place, name in enumerate("abcde")}
    edges = {(number[one], number[two]) for one, two in graph.edges} | {
        (number[two], number[one]) for one, two in graph.edges
    }
    walk = np.concatenate(drawn(schedule, 20_000)).tolist()
    steps = list(itertools.pairwise(walk))
    assert set(steps) == edges
    for holder, name in enumerate("abcde"):
        counts = [steps.count((holder, number[other])) for other in sorted(graph.adj[name])]
        if len(counts) > 1:
            assert uniform_p(counts) > FALSE_ALARM
            assert uniform_p([2 * counts[0], *counts[1:]]) < FALSE_ALARM
    # in the long run a user is visited in proportion to its degree (a margin: visits are not independent)
    share = np.bincount(walk) / len(walk)
    degrees = np.array([2, 2, 3, 2, 1])
    np.testing.assert_allclose(share, degrees / degrees.sum(), atol=0.02)


def test_equal_numbers_at_the_cut_of_a_fixed_sample_are_drawn_again():
    # Catches: the block that stands first being taken, which is no uniform subset
    class Tied:
        def uniforms(self, role, item, step, size):
            assert (role, step, size) == ("schedule", 3, 4)
            return np.array([[0.5, 0.25, 0.5, 0.75], [0.25, 0.5, 0.3, 0.125]][item])

    assert FixedSample(4, 1).draw(3, Tied(), -1).tolist() == [1]  # no tie at the cut of the first numbers
    assert FixedSample(4, 2).draw(3, Tied(), -1).tolist() == [0, 3]
    assert FixedSample(4, 3).draw(3, Tied(), -1).tolist() == [0, 1, 2]
    assert FixedSample(4, 2).among(np.array([True, True, False, True]), 3, Tied()).tolist() == [0, 3]


@pytest.mark.parametrize("prob", [1e-17, 1e-16, 2.3e-16, 1e-9, 0.1, 0.3, 0.5, 1 - 2.0**-53, 1.0])
def test_a_poisson_sample_is_accounted_with_the_chance_that_its_coins_have(prob):
    # Catches: a probability below the finest coin: 11 times as many are sampled as 1e-17 says
    schedule = PoissonSample(3, prob)
    numbers = 2**53
    below = int(Fraction(prob) * numbers)  # coins show k/2^53; those below prob count
    below += below < Fraction(prob) * numbers
    assert schedule.chance == Fraction(below, numbers) >= Fraction(prob)
    assert schedule.probability == prob


def test_the_first_holder_is_uniform():
    # catches: a walk that always starts at user 0, whose participations are then more than accounted
    graph = walk_on(nx.path_graph(5), 5)
    starts = [int(graph.draw(0, seeded_source(seed), -1)[0]) for seed in range(3000)]
    assert uniform_p(np.bincount(starts, minlength=5)) > FALSE_ALARM
    assert uniform_p([3000, 0, 0, 0, 0]) < FALSE_ALARM


def test_graphs_are_read_by_sorted_nodes_and_by_lists():
    # catches: nodes in the order of insertion, so that user i is not node i
    graph = nx.Graph()
    graph.add_nodes_from([3, 1, 2, 0])
    graph.add_edges_from([(0, 1), (1, 2), (2, 3)])
    assert walk_on(graph, 4).neighbours == ((1,), (0, 2), (1, 3), (2,))
    assert walk_on([[1], [0, 2], [1, 3], [2]], 4) == walk_on(graph, 4)
    loop = nx.Graph([(0, 1), (1, 1)])
    assert walk_on(loop, 2).neighbours == ((1,), (0, 1))


@pytest.mark.parametrize(
    ("graph", "users", "words"),
    [
        ("star", 4, "graph is 'star'"),
        (nx.DiGraph([(0, 1), (1, 0)]), 2, "directed"),
        (nx.path_graph(3), 4, "3 nodes for 4 users"),
        (nx.Graph([(0, 1), (2, 3)]), 4, "not connected"),
        (nx.empty_graph(2), 2, "not connected"),
        (7, 4, "graph is a int"),
        (nx.Graph([(0, "a")]), 2, "different kinds"),
        ([[1, 2], [2], [1]], 3, "one way"),
        ([[1], [5]], 2, "nowhere"),
        ([[1], [0, -1]], 2, "nowhere"),
        ([["b"], ["a"]], 2, "user numbers"),
        ([[1], [0], []], 3, "not connected"),
    ],
)
def test_graphs_that_cannot_be_walked_are_refused(graph, users, words):
    # catches: a token that is stuck, or a user that is never reached, found out at step one thousand
    with pytest.raises(ValueError, match=words):
        walk_on(graph, users)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: EveryBlock(0), "blocks is 0"),
        (lambda: OneBlock(2.5), "blocks is 2.5"),
        (lambda: Cyclic(3, cap=0), "cap is 0"),
        (lambda: Permuted(3, cap=1.5), "cap is 1.5"),
        (lambda: PoissonSample(3, 0.0), "sample_prob is 0.0"),
        (lambda: PoissonSample(3, 1.1), "sample_prob is 1.1"),
        (lambda: FixedSample(3, 4), "sample_size is 4"),
        (lambda: FixedSample(3, 0), "sample_size is 0"),
        (lambda: hp.Plan(Counting(3), EveryBlock(4), Noise(1.0)), "over 4 blocks and the operator has 3"),
    ],
)
def test_malformed_schedules_are_refused(make, words):
    # catches: a sample larger than n, a cap of nothing, a schedule over other blocks than the operator's
    with pytest.raises(ValueError, match=words):
        make()


# --- Caps, as the engine enforces them -------------------------------------------------------------------------------


class Counting(Operator):
    """Each move adds 1 to a block: the block counts its own participations."""

    name = "counting"
    needs_rows = False
    block_size = message_size = 1

    def __init__(self, blocks):
        self.blocks = blocks

    def start(self):
        return np.zeros(1), np.zeros((self.blocks, 1))

    def local(self, data, chosen, block, z, relaxation, kick):
        return block + 1, np.ones_like(block)

    def combine(self, shared, total, chosen, relaxation):
        return shared + total

    def certificate(self, relaxation):
        return hp.Certificate(None)


def capped(schedule, cap):
    return type(schedule)(**{**schedule.__dict__, "cap": cap})


@named
def test_the_engine_counts_participations(schedule):
    # catches: a count that the run reports and that is not what happened
    result = hp.Plan(Counting(7), schedule, Noise(0.0), steps=40).run(seed=3)
    np.testing.assert_array_equal(result.state.blocks[:, 0], table_of(schedule, 40, seed=3).sum(axis=0))
    np.testing.assert_array_equal(result.state.participations, result.state.blocks[:, 0])
    assert result.state.shared[0] == result.state.blocks.sum()


@named
@pytest.mark.parametrize("cap", [1, 3])
def test_the_engine_enforces_the_cap(schedule, cap):
    # catches: a cap that is accounted and not enforced: K_i would be larger than the guarantee says
    result = hp.Plan(Counting(7), capped(schedule, cap), Noise(0.0), steps=60).run(seed=3)
    free = table_of(schedule, 60, seed=3).sum(axis=0)
    np.testing.assert_array_equal(result.state.participations, np.minimum(free, cap))
    np.testing.assert_array_equal(result.state.blocks[:, 0], np.minimum(free, cap))  # the block does not change after
    assert result.state.shared[0] == np.minimum(free, cap).sum()  # nor does it send
    assert result.state.participations.max() <= capped(schedule, cap).most(60)


@named
def test_the_cap_holds_over_resumed_runs(schedule):
    # catches: counts that start again with every run
    plan = hp.Plan(Counting(7), capped(schedule, 2), Noise(0.0), steps=15)
    state = plan.run(seed=3).state
    for _ in range(4):
        state = plan.run(state=state).state
    assert state.steps == 75
    assert state.participations.max() <= 2
    np.testing.assert_array_equal(state.blocks[:, 0], state.participations)


def capped_methods():
    rng = np.random.default_rng(0)
    problem = hp.Problem(rng.normal(size=(6, 3)), rng.normal(size=6), "huber", row_norm=1.0)
    common = {"gamma": 1.0, "noise_std": 1.0, "participation_cap": 2}
    return {
        "federated, poisson": methods.federated_admm(problem, 1, sample_prob=0.6, **common),
        "federated, fixed": methods.federated_admm(problem, 1, sample_size=3, **common),
        "federated, all": methods.federated_admm(problem, 1, **common),
        "decentralized": methods.decentralized_admm(problem, 1, **common),
        "decentralized, ring": methods.decentralized_admm(problem, 1, graph=nx.cycle_graph(6), **common),
    }


@pytest.mark.parametrize("kind", capped_methods())
def test_blocks_are_frozen_at_their_cap(kind):
    # catches: a capped user that still answers, adds noise to its block, or moves zhat
    plan = capped_methods()[kind]
    state = plan.run(seed=3).state
    for _ in range(40):
        after = plan.run(state=state).state
        frozen = state.participations >= 2
        np.testing.assert_array_equal(after.blocks[frozen], state.blocks[frozen])
        np.testing.assert_array_equal(after.participations[frozen], state.participations[frozen])
        np.testing.assert_allclose(after.shared, after.blocks.mean(axis=0), atol=1e-12)
        state = after
    assert (state.participations == 2).all()


def test_a_capped_walker_still_walks():
    # catches: a token that stays where it is once its holder has reached the cap
    graph = nx.path_graph(3)
    plan = hp.Plan(Counting(3), walk_on(graph, 3, cap=1), Noise(0.0), steps=1)
    state = plan.run(seed=0).state
    positions = [state.position]
    for _ in range(30):
        state = plan.run(state=state).state
        positions.append(state.position)
    assert set(positions) == {0, 1, 2}
    assert all(abs(one - two) == 1 for one, two in itertools.pairwise(positions))
    np.testing.assert_array_equal(state.participations, [1, 1, 1])


def test_a_capped_stateless_user_adds_noise_and_leaves_its_prox_out():
    # catches: silent hops (theory 4d: they do not count in t, so the law of t that is accounted would be false)
    problem = hp.Problem(np.eye(3), np.full(3, 1e6), "huber", row_norm=1.0)
    plan = methods.stateless_walk(problem, 60, 1.0, noise_std=0.01, participation_cap=2)
    result = plan.run(seed=3, history="models")
    moves = np.diff(np.array(result.history["models"]), axis=0, prepend=0)
    assert (np.abs(moves).max(axis=1) > 0).all()  # every hop has its noise
    assert (np.abs(moves).max(axis=1) > 0.5).sum() == 6  # and 3 users contribute twice each
    np.testing.assert_array_equal(result.state.participations, [2, 2, 2])


def test_schedules_are_frozen_facts():
    # catches: a plan whose schedule is changed after it was accounted
    for schedule in EXAMPLES:
        assert isinstance(schedule, Schedule)
        with pytest.raises(AttributeError):
            schedule.cap = 5
