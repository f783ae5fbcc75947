"""The stateless walk: what a peer learns, against exact linear-Gaussian views and simulated walks."""

from __future__ import annotations

import itertools
import math

import networkx as nx
import numpy as np
import pytest
from scipy import sparse, stats

from hushpoint.privacy.gaussian import gdp_epsilon
from hushpoint.privacy.network import (
    MeetingLaw,
    SeenWalk,
    _undominated,
    hop_costs,
    meeting_times,
    meeting_times_complete,
    neighbour_walk,
    network_spend,
)

ITEM, OBSERVER = 0, 1


def first_costs(shift, lipschitz, length, **drift):
    """The costs of t = 1, ..., length."""
    return hop_costs(np.arange(1.0, length + 1), shift, lipschitz, **drift)


def lists_of(graph):
    return [sorted(graph.adj[node]) for node in range(len(graph))]


def law_of(graph, item, observers, length):
    """The law for one item and its observers, on a graph or a matrix of transition probabilities."""
    chain = neighbour_walk(lists_of(graph)) if isinstance(graph, nx.Graph) else sparse.csr_array(graph)
    return meeting_times(chain, [item], observers if isinstance(observers, tuple) else (observers,), length)


def worst_law(graph, length):
    """A row for every pair of users."""
    return meeting_times(neighbour_walk(lists_of(graph)), range(len(graph)), None, length)


def walk_rdp(alpha, *walk, **settings):
    return SeenWalk(*walk, **settings).rdp(alpha)


def walk_epsilon(delta, *walk, **settings):
    return SeenWalk(*walk, **settings).epsilon(delta)


def exact_path_cost(path, slopes, *, cap=None, published=False, observers=(OBSERVER,), shift=1.0, drift=0.0):
    """mu^2 of the observers' view of a scalar linear walk along a path, noise 1, worst shifts in one direction.

    A hop of user u is ``z -> slopes[u] z``; the item's also moves by ``shift`` in one of the worlds. Whoever
    looks knows its own noise, so that at its visit the state is known and both mean and variance start anew.
    """
    cost, mean, variance, done = 0.0, 0.0, 0.0, 0
    for user in path:
        if user in observers:
            cost += mean**2 / variance if variance > 0 else 0.0
            mean, variance = 0.0, 0.0
            continue
        contributes = user == ITEM and (cap is None or done < cap)
        slope = 1.0 if user == ITEM and not contributes else slopes[user]
        differs = contributes or mean != 0
        mean = slope * mean + (shift if contributes else 0.0) + (drift if differs else 0.0)
        variance = slope**2 * variance + 1.0
        done += contributes
    if published and variance > 0:
        cost += mean**2 / variance
    return cost


def exact_rdp(alpha, users, hops, slopes, shift=1.0, transition=None, **settings):
    """Renyi divergence of the view with the path revealed: every path weighed, starting anywhere uniformly."""
    logs = []
    for path in itertools.product(range(users), repeat=hops):
        chance = 1 / users
        for here, there in itertools.pairwise(path):
            chance *= 1 / users if transition is None else transition[here, there]
        if chance > 0:
            cost = shift**2 * exact_path_cost(path, slopes, **settings)
            logs.append(math.log(chance) + alpha * (alpha - 1) * cost / 2)
    return float(np.logaddexp.reduce(logs)) / (alpha - 1)


# --- costs


@pytest.mark.parametrize("slope", [0.0, 0.3, 0.9, 0.999999999, 1.0])
def test_hop_costs_are_those_of_a_scalar_linear_walk(slope):
    # catches c^(2t) for c^(2(t-1)), a geometric sum that is one term short, and cancellation as c tends to 1
    costs = first_costs(0.7, slope, 40)
    for t in (1, 2, 3, 10, 40):
        variance = sum(slope ** (2 * k) for k in range(t))
        exact = (0.7 * slope ** (t - 1)) ** 2 / variance
        assert costs[t - 1] == pytest.approx(exact, rel=1e-9)
        assert costs[t - 1] >= exact * (1 - 1e-13)


def test_drift_adds_to_every_hop_of_the_window():
    # catches a tolerance counted once per contribution: the exact mean after t hops moved by shift + t * drift
    costs = first_costs(1.0, 1.0, 12, drift=0.05)
    for t in range(1, 13):
        path = (ITEM, *[2] * (t - 1), OBSERVER)
        exact = exact_path_cost(path, [1.0, 1.0, 1.0], drift=0.05)
        assert costs[t - 1] == pytest.approx(exact, rel=1e-12)


def test_a_user_at_its_cap_spoils_contraction():
    # catches lipschitz < 1 used where capped users only add noise: their hop is 1-Lipschitz and exceeds the cost
    slopes = [0.5, 0.5, 1.0]  # user 2 is at its cap
    exact = exact_path_cost((ITEM, 2, OBSERVER), slopes)
    assert exact > 2 * first_costs(1.0, 0.5, 2)[1]
    assert exact <= first_costs(1.0, 1.0, 2)[1]


# --- the law of t


@pytest.mark.parametrize("observers", [1, 3])
def test_complete_graph_is_geometric(observers):
    # catches 1/n for 2/n, and t counted from 0
    law = meeting_times_complete(10, 200, observers)
    stop = (1 + observers) / 10
    np.testing.assert_allclose(law.probabilities[0], stats.geom(stop).pmf(np.arange(1, 201)), rtol=1e-10)
    assert law.probabilities.sum() + law.tail.sum() == pytest.approx(1, abs=1e-12)
    group = tuple(range(1, 1 + observers))
    matrix = law_of(np.full((10, 10), 0.1), ITEM, group, 200)
    np.testing.assert_allclose(matrix.probabilities, law.probabilities, rtol=1e-10)
    np.testing.assert_allclose(matrix.tail, law.tail, rtol=1e-8)


@pytest.mark.parametrize("truth", [True, False])
def test_law_matches_simulated_walks(truth):
    # catches a law that forgets to stop at the item itself; the wrong law must be rejected, the right one not
    graph = nx.cycle_graph(7)
    graph.add_edge(0, 3)
    law = law_of(graph, ITEM, 2, 60)
    assert law.probabilities.sum() + law.tail.sum() == pytest.approx(1, abs=1e-12)
    rng = np.random.default_rng(7)
    neighbours = lists_of(graph)
    walks = 20_000
    at, times, waiting = np.zeros(walks, dtype=int), np.zeros(walks, dtype=int), np.ones(walks, dtype=bool)
    table = np.array([np.resize(row, 6) for row in neighbours])  # degrees 2 and 3 both divide 6
    stops = (ITEM, 2) if truth else (2,)
    for hop in range(1, 400):
        at = table[at, rng.integers(0, 6, walks)]
        met = waiting & np.isin(at, stops)
        times[met] = hop
        waiting &= ~met
    kept = 8
    counts = np.append(np.bincount(np.minimum(times, kept + 1), minlength=kept + 2)[1 : kept + 1], 0)
    counts[-1] = walks - counts.sum()
    expected = walks * np.append(law.probabilities[0, :kept], 1 - law.probabilities[0, :kept].sum())
    possible = expected > 0
    assert counts[~possible].sum() == 0 or not truth
    statistic = float(((counts - expected)[possible] ** 2 / expected[possible]).sum())
    p_value = stats.chi2(int(possible.sum()) - 1).sf(statistic)
    assert bool(p_value > 1e-6) is truth


@pytest.mark.parametrize(
    ("lists", "words"),
    [
        ([[1], [0], [3], [2]], "connected"),
        ([[], [], []], "connected"),
        ([[0]], "at least two"),
        ([[0], [0, 1]], "connected"),
    ],
)
def test_graphs_that_cannot_be_walked_are_refused(lists, words):
    # catches laws of chains that never meet again
    with pytest.raises(ValueError, match=words):
        neighbour_walk(lists)


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: network_spend(0.3, 0.0, 1.0, 5, 4, lists_of(nx.cycle_graph(4)), 4, (1,), 5), "item"),
        (lambda: network_spend(0.3, 0.0, 1.0, 5, 4, lists_of(nx.cycle_graph(4)), 0, (1, 4), 5), "observers"),
        (lambda: network_spend(0.3, 0.0, 1.0, 5, 4, lists_of(nx.cycle_graph(4)), 0, (0,), 5), "observers"),
        (lambda: network_spend(0.3, 0.0, 1.0, 5, 4, lists_of(nx.cycle_graph(4)), None, range(4), 5), "observers"),
        (lambda: meeting_times_complete(4, 0), "length"),
        (lambda: meeting_times_complete(1, 5), "items"),
        (lambda: meeting_times_complete(4, 5, 4), "observers"),
        (lambda: first_costs(1.0, 1.1, 3), "lipschitz"),
        (lambda: first_costs(-1.0, 1.0, 3), "shift_over_noise"),
        (lambda: walk_rdp(1.0, 1, 1.0, meeting_times_complete(4, 5)), "alpha"),
        (lambda: walk_rdp(2.0, 0, 1.0, meeting_times_complete(4, 5)), "contributions"),
        (lambda: walk_rdp(2.0, 1, 1.0, meeting_times_complete(4, 5), drift_over_noise=0.1), "hops"),
        (lambda: walk_epsilon(0.0, 1, 1.0, meeting_times_complete(4, 5)), "delta"),
    ],
)
def test_arguments_are_checked_by_name(call, argument):
    # catches an error that does not say which argument to change
    with pytest.raises(ValueError, match=argument):
        call()


# --- the bound against exact views


def test_two_contributions_before_a_visit_cost_two():
    # catches 1/t composed over windows that overlap, which gives 1.5 for the path (i, i, j)
    assert exact_path_cost((ITEM, ITEM, OBSERVER), [1.0, 1.0, 1.0]) == pytest.approx(2.0)
    windows = first_costs(1.0, 1.0, 1)[0] + first_costs(1.0, 1.0, 1)[0]
    assert windows == pytest.approx(2.0)
    assert first_costs(1.0, 1.0, 2)[1] + first_costs(1.0, 1.0, 2)[0] == pytest.approx(1.5)


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("cap", [1, 2, 6])
def test_bound_covers_every_path_of_a_small_walk(cap, published):
    # catches any window, cap or published last window that is charged too little, on complete and other graphs
    rng = np.random.default_rng(cap)
    slopes = [[1.0, 1.0, 1.0], *rng.uniform(-1, 1, (2, 3)).tolist(), [1.0, 1.0, 0.0]]
    chain = rng.dirichlet(np.ones(3), 3)
    laws = {
        None: meeting_times_complete(3, 80),
        "chain": law_of(chain, ITEM, OBSERVER, 80),
    }
    for alpha, slope, (name, law) in itertools.product((1.1, 3.0, 30.0), slopes, laws.items()):
        matrix = None if name is None else chain
        exact = exact_rdp(alpha, 3, 6, slope, 0.6, matrix, cap=cap, published=published)
        assert walk_rdp(alpha, cap, 0.6, law, published_model=published) >= exact


def test_bound_is_nearly_attained():
    # catches a bound that is safe only because it is far too large: one contribution, seen after a geometric time
    law = meeting_times_complete(3, 80)
    exact = exact_rdp(2.0, 3, 9, [0.0, 0.0, 1.0], 0.3, cap=1)
    assert exact <= walk_rdp(2.0, 1, 0.3, law) <= 1.6 * exact


def test_contracting_walks_are_covered_and_cheaper():
    # catches the c < 1 formula applied with one power of c too many
    law = meeting_times_complete(3, 80)
    for alpha in (1.5, 10.0):
        exact = exact_rdp(alpha, 3, 6, [0.6, 0.6, 0.6], 0.8)
        bound = walk_rdp(alpha, 6, 0.8, law, lipschitz=0.6)
        assert exact <= bound < walk_rdp(alpha, 6, 0.8, law)


def overlapping_windows_rdp(alpha, users, hops, shift):
    """The false bound: each contribution hidden by all noises up to the observer's next visit."""
    logs = []
    for path in itertools.product(range(users), repeat=hops):
        visits = [hop for hop, user in enumerate(path) if user == OBSERVER]
        cost = 0.0
        for hop, user in enumerate(path):
            seen = [visit for visit in visits if visit > hop]
            if user == ITEM and seen:
                cost += 1 / (seen[0] - hop)
        logs.append(alpha * (alpha - 1) * shift**2 * cost / 2 - hops * math.log(users))
    return float(np.logaddexp.reduce(logs)) / (alpha - 1)


def test_windows_that_overlap_are_not_a_bound():
    # shows that the comparison above has power: without the stop at the item's next contribution it fails
    exact = exact_rdp(20.0, 3, 6, [1.0, 1.0, 1.0], 1.0)
    assert overlapping_windows_rdp(20.0, 3, 6, 1.0) < 0.9 * exact
    assert walk_rdp(20.0, 6, 1.0, meeting_times_complete(3, 80)) >= exact


def test_drift_is_covered():
    # catches tolerances ignored after the item's own hop, in seen and in published windows
    law = meeting_times_complete(3, 6)
    for published in (False, True):
        exact = exact_rdp(3.0, 3, 6, [1.0, 1.0, 1.0], published=published, drift=0.4)
        settings = {"drift_over_noise": 0.4, "hops": 6, "published_model": published}
        assert walk_rdp(3.0, 6, 1.0, law, **settings) >= exact
    assert walk_rdp(3.0, 6, 1.0, law, published_model=True) < exact


@pytest.mark.parametrize("drift", [0.0, 0.3])
def test_a_short_table_is_charged_more_not_less(drift):
    # catches a tail that is dropped, or charged at the cost of its shortest wait although waiting costs more
    long = meeting_times_complete(30, 300)
    short = meeting_times_complete(30, 4)
    settings = {"drift_over_noise": drift, "hops": 300}
    for alpha in (1.2, 2.0, 8.0):
        assert walk_rdp(alpha, 3, 0.5, short, **settings) >= walk_rdp(alpha, 3, 0.5, long, **settings)


def test_tiny_costs_keep_their_digits():
    # catches log(sum of probabilities near 1), which is off by 1e-16 and more than the answer
    law = meeting_times_complete(100, 2000)
    mean = float(law.probabilities[0] @ first_costs(1e-9, 1.0, 2000))
    assert walk_rdp(2.0, 1, 1e-9, law) == pytest.approx(mean, rel=1e-6)


def test_huge_orders_with_impossible_short_windows():
    # catches an underflow to log(0): on a cycle of four t = 1 is impossible for the user opposite
    law = law_of(nx.cycle_graph(4), 0, 2, 20)
    assert law.probabilities[0, 0] == 0
    assert walk_rdp(1000.0, 1, 1.0, law) == pytest.approx(1000 / 2 / 2, rel=1e-3)


# --- who is worst, and epsilon


def test_colluders_learn_more():
    # catches colluders counted as one user
    lone, pair = (walk_rdp(4.0, 5, 0.5, meeting_times_complete(20, 400, k)) for k in (1, 2))
    assert pair > 1.2 * lone
    graph = nx.cycle_graph(9)
    lone, pair = (walk_rdp(4.0, 5, 0.5, law_of(graph, 0, who, 400)) for who in (4, (4, 5)))
    assert pair > lone


def test_worst_law_is_the_largest_over_all_pairs():
    # catches an observer or an item left out
    graph = nx.lollipop_graph(4, 3)
    law = worst_law(graph, 50)
    every = {(i, j): walk_rdp(3.0, 2, 0.4, law_of(graph, i, j, 50)) for i, j in itertools.permutations(range(7), 2)}
    assert walk_rdp(3.0, 2, 0.4, law) == pytest.approx(max(every.values()), rel=1e-12)
    one = meeting_times(neighbour_walk(lists_of(graph)), [2], None, 50)
    best = max(value for (i, _), value in every.items() if i == 2)
    assert walk_rdp(3.0, 2, 0.4, one) == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize(("items", "hidden"), [(2, False), (200, True)])
def test_epsilon_is_never_above_the_local_one(items, hidden):
    # catches the Renyi conversion reported where the local Gaussian bound is smaller
    law = meeting_times_complete(items, 2000)
    found = walk_epsilon(1e-6, 10, 0.5, law)
    local = gdp_epsilon(math.sqrt(10) * 0.5, 1e-6)
    assert (found < 0.99 * local) is hidden
    assert found <= local * (1 + 1e-12)
    published = walk_epsilon(1e-6, 10, 0.5, law, published_model=True)
    assert found <= published <= local * (1 + 1e-12)


def test_more_users_hide_better():
    # catches a law that does not depend on n, which would be the local bound in disguise
    values = [walk_epsilon(1e-6, 10, 0.5, meeting_times_complete(n, 5000)) for n in (10, 100, 1000)]
    assert values[0] > 1.5 * values[1] > 2 * values[2]


def test_spend_by_neighbour_lists_agrees():
    # catches neighbour lists walked otherwise than the graph they come from
    graph = nx.random_regular_graph(12, 24, seed=1)
    lists = lists_of(graph)

    def expected(law):
        found = walk_epsilon(1e-6, 50, 0.3, law, published_model=True, hops=40)
        assert found < 0.99 * gdp_epsilon(math.sqrt(50) * 0.3, 1e-6)
        return pytest.approx(found, rel=1e-9)

    assert network_spend(0.3, 0.0, 1.0, 50, 24, lists, None, None, 40)(1e-6) == expected(worst_law(graph, 40))
    pair = law_of(graph, 0, (2, 3), 40)
    assert network_spend(0.3, 0.0, 1.0, 50, 24, lists, 0, (2, 3), 40)(1e-6) == expected(pair)
    complete = meeting_times_complete(24, 40)
    assert network_spend(0.3, 0.0, 1.0, 50, 24, None, None, None, 40)(1e-6) == expected(complete)


def test_leaving_out_milder_observers_changes_nothing():
    # catches a row dropped although it is worst at some alpha
    graph = nx.lollipop_graph(5, 4)
    law = worst_law(graph, 60)
    fewer = _undominated(law)
    assert 1 <= len(fewer.tail) < len(law.tail)
    for alpha, shift in itertools.product((1.1, 2.0, 10.0, 500.0), (0.05, 0.5, 3.0)):
        assert walk_rdp(alpha, 3, shift, fewer) == pytest.approx(walk_rdp(alpha, 3, shift, law), rel=1e-11)


def test_laws_of_one_row_and_of_many_agree():
    # catches rows mixed up when several observers are kept at once
    graph = nx.path_graph(5)
    many = meeting_times(neighbour_walk(lists_of(graph)), [1], None, 30)
    for row, observer in enumerate((0, 2, 3, 4)):
        alone = law_of(graph, 1, observer, 30)
        assert isinstance(alone, MeetingLaw)
        np.testing.assert_allclose(many.probabilities[row], alone.probabilities[0], atol=1e-15)
        assert many.tail[row] == pytest.approx(alone.tail[0], abs=1e-15)


def test_spend_does_not_trust_contraction_where_caps_can_bind():
    # catches a contraction factor passed on although users at their cap only add noise
    capped, contracting = (network_spend(0.3, 0.0, 0.5, 50, 24, None, None, None, hops)(1e-6) for hops in (90, 50))
    plain = network_spend(0.3, 0.0, 1.0, 50, 24, None, None, None, 90)(1e-6)
    assert capped == plain > contracting


def test_spend_on_a_larger_graph_is_quick_and_covers_every_pair():
    # catches a table cut short to save time whose tail is then forgotten
    graph = nx.random_regular_graph(4, 60, seed=2)
    lists = lists_of(graph)
    spent = network_spend(0.2, 0.0, 1.0, 30, 60, lists, None, None, 5000)(1e-6)
    for item, observer in ((0, 1), (0, lists[0][0]), (17, lists[17][2])):
        law = law_of(graph, item, observer, 3000)
        assert walk_epsilon(1e-6, 30, 0.2, law, published_model=True) <= spent * (1 + 1e-9)
