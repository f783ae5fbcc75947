"""What a peer learns of another from a model that walks from user to user.

The stateless walk: at every hop the user who holds the model z sends on ``T(z) + N(0, s^2 I)``, T non-expansive
and its own. Only T of user i changes between the two worlds, by at most ``shift`` at any point. Peer j sees the
model whenever it arrives; its own noise hides nothing from it. The next user is drawn by a Markov chain that does
not look at the data. Reveal the path. A contribution of i is hidden by the noises of the hops from its own on, up
to i's next contribution or j's next visit, whichever is first: t of them. Then

* what j sees, given the path, is mu-GDP with ``mu^2 = sum of mu_t^2`` over i's contributions, where
  ``mu_t^2 = (shift/s)^2/t``: the t noises each take over ``shift/t`` of the difference (shifted interpolation,
  Bok, Su and Altschuler 2024), nothing is left when the next contribution comes, and what happens between two
  visits of j composes with the rest, since j's sight of the model makes the two worlds meet again;
* the t are independent and alike, for the walk starts afresh whenever it is at i, so that the order-alpha moment
  of the path's mixture is a product.

Composing ``1/t`` with t counted up to j's visit and past i's own later contributions is false: the path (i, i, j)
has mu^2 = 2 and not 1.5 times ``(shift/s)^2``.

The paper's letters: ``shift = 4 lambda L gamma`` (replace-one; half for zero-out), ``s = lambda sigma``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from hushpoint._checks import require, require_count, require_inside
from hushpoint._types import Array
from hushpoint.privacy.gaussian import gdp_epsilon, rdp_epsilon, round_up

_LARGEST_TABLE = 50_000_000
_LONGEST_LAW = 4096  # a wait longer than this is charged as one this long
_WORK = 100_000_000  # multiplications to spend on the laws of a graph


# --- what one contribution costs


def hop_costs(
    shift_over_noise: float, lipschitz: float = 1.0, length: int = 1, *, drift_over_noise: float = 0.0
) -> Array:
    """Squared mu of one contribution hidden by t noises, for ``t = 1, ..., length``.

    ``(shift/s)^2/t`` for non-expansive hops; ``(shift/s)^2 c^(2(t-1)) (1-c^2)/(1-c^(2t))`` if every hop, of
    every user and at every time, is c-Lipschitz with c < 1. With hops that are only approximately solved,
    ``((shift + drift t)/s)^2/t`` whatever the Lipschitz constant. All are equalities for scalar linear hops.

    Parameters
    ----------
    shift_over_noise : float
        Largest move of one contribution between the two worlds, over the noise's standard deviation per hop.
    lipschitz : float
        Constant of *all* hops. A user at its cap who only adds noise is 1-Lipschitz: unless no user can reach
        its cap in this run, it is 1.
    length : int
        Number of t to return.
    drift_over_noise : float
        ``4 lambda tol / s``: how far two inexact hops from one point may lie apart, over the noise.
    """
    _check_costs(shift_over_noise, lipschitz, drift_over_noise)
    require_count("length", length, remedy="Pass a whole number of hops, at least 1.")
    return _costs(np.arange(1, int(length) + 1, dtype=np.float64), shift_over_noise, lipschitz, drift_over_noise)


def _check_costs(shift_over_noise: float, lipschitz: float, drift_over_noise: float) -> None:
    require(
        0 <= shift_over_noise < math.inf,
        "shift_over_noise",
        shift_over_noise,
        "Pass the sensitivity of one hop divided by its noise's standard deviation, at least 0 and finite.",
    )
    require(
        0 <= lipschitz <= 1,
        "lipschitz",
        lipschitz,
        "Hops must be non-expansive: pass a constant from 0 to 1, or use the local bound.",
    )
    require(
        0 <= drift_over_noise < math.inf, "drift_over_noise", drift_over_noise, "Pass a finite number of at least 0."
    )


def _costs(times: Array, shift: float, lipschitz: float, drift: float) -> Array:
    if drift > 0 or lipschitz == 1:
        costs = (shift + drift * times) ** 2 / times
    elif lipschitz == 0:
        costs = np.where(times == 1, shift**2, 0.0)
    else:
        log = 2 * math.log(lipschitz)
        costs = shift**2 * np.exp(log * (times - 1)) * (np.expm1(log) / np.expm1(log * times))
    return np.asarray(costs * (1 + 1e-14), dtype=np.float64)


# --- how many noises hide a contribution


@dataclass(frozen=True, eq=False)
class MeetingLaw:
    """Probabilities of the number t of noises that hide one contribution; one row for each possible observer.

    Bounds made from several rows hold for every one of them.

    Attributes
    ----------
    probabilities : array of shape (rows, length)
        Of ``t = 1, ..., length``.
    tail : array of shape (rows,)
        Of every larger t.
    pairs : tuple of (item, observers)
        Whom each row is about; empty when all users are alike.
    """

    probabilities: Array
    tail: Array
    pairs: tuple[tuple[int, tuple[int, ...]], ...] = ()

    @property
    def length(self) -> int:
        return int(self.probabilities.shape[1])


def meeting_times_complete(items: int, length: int, observers: int = 1) -> MeetingLaw:
    """Law of t when every hop goes to a user drawn uniformly from all, the present one included.

    Geometric: ``P(t) = p (1-p)^(t-1)`` with ``p = (1 + observers)/items``, the next contribution of i or the next
    visit of one of the observers, who collude and count as one.

    Parameters
    ----------
    items : int
        Number of users, at least 2.
    length : int
        Largest t kept apart; the rest is the tail.
    observers : int
        Number of colluding observers, fewer than items.
    """
    require_count("items", items, least=2, remedy="A walk needs at least two users: pass a whole number from 2.")
    require_count("length", length, remedy="Pass a whole number of hops, at least 1.")
    remedy = "Pass how many other users collude, at least 1 and fewer than items."
    require_count("observers", observers, most=items - 1, remedy=remedy)
    stop = (1 + observers) / items
    stay = 1 - stop
    powers = stay ** np.arange(length + 1, dtype=np.float64)  # 0^0 is 1
    return MeetingLaw((stop * powers[:-1])[None, :], powers[-1:])


def meeting_times_graph(graph: Any, item: int, observers: int | Iterable[int], length: int) -> MeetingLaw:
    """Law of t for a random walk on a graph: its first return to the item or visit to an observer, from the item.

    ``P(t)`` is the probability that, starting at the item, the walk is at the item or at an observer after t hops
    and not before. Each of those t hops adds one noise, the item's own being the first; the observer's is not
    among them. Exact, by t products with the transition matrix.

    Parameters
    ----------
    graph : networkx graph, or square array or sparse matrix
        An undirected graph is walked by going to a neighbour drawn uniformly, to itself only over a self-loop.
        A matrix holds the probabilities of going from its row to its column. Connected, at least two users.
    item : int
        The user whose contribution is hidden. Users are numbered 0, 1, ... in the sorted order of a graph's nodes.
    observers : int or iterable of int
        The user, or the colluding users, who look on.
    length : int
        Largest t kept apart; the rest is the tail.
    """
    transition = transition_matrix(graph)
    group = (observers,) if isinstance(observers, int | np.integer) else tuple(observers)
    _check_users(transition, item, group)
    require_count("length", length, remedy="Pass a whole number of hops, at least 1.")
    return _laws(transition, [int(item)], tuple(int(user) for user in group), int(length))


def worst_law(graph: Any, length: int, *, item: int | None = None) -> MeetingLaw:
    """The laws of t for every single observer, and for every item unless one is given: bounds hold for all.

    Which observer learns most depends on the noise and on alpha, so that the worst is found by `walk_rdp` and
    `walk_epsilon`, which take the largest over the rows at every alpha.

    Parameters
    ----------
    graph, length
        As for `meeting_times_graph`.
    item : int or None
        The user whose contribution is hidden; None for the worst one.
    """
    transition = transition_matrix(graph)
    users = transition.shape[0]
    require_count("length", length, remedy="Pass a whole number of hops, at least 1.")
    items = list(range(users)) if item is None else [_user("item", item, users)]
    require(
        len(items) * users * length <= _LARGEST_TABLE,
        "length",
        length,
        f"With {len(items)} items and {users} users that is too large a table: pass one item, or a length of at "
        f"most {max(1, _LARGEST_TABLE // (len(items) * users))} (what is beyond it is charged at its end).",
    )
    return _laws(transition, items, None, int(length))


def _laws(
    transition: sparse.csr_array, items: Sequence[int], observers: tuple[int, ...] | None, length: int
) -> MeetingLaw:
    """A row for each item and its group of observers, or for each item and every other user alone."""
    laws, tails = [], []
    pairs: list[tuple[int, tuple[int, ...]]] = []
    for item in items:
        others = [(user,) for user in range(transition.shape[0]) if user != item]
        groups = others if observers is None else [observers]
        law, tail = _first_meetings(transition, item, groups, length)
        laws.append(law)
        tails.append(tail)
        pairs += [(int(item), group) for group in groups]
    return MeetingLaw(np.concatenate(laws), np.concatenate(tails), tuple(pairs))


def _user(name: str, user: int, users: int) -> int:
    return require_count(name, user, least=0, most=users - 1, remedy=f"Pass a user from 0 to {users - 1}.")


def _check_users(transition: sparse.csr_array, item: int, observers: tuple[int, ...]) -> None:
    users = transition.shape[0]
    _user("item", item, users)
    require(len(observers) > 0, "len(observers)", 0, f"Pass one or more users from 0 to {users - 1}.")
    for user in observers:
        require(_user("observers", user, users) != item, "observers", user, "That is the item: pass other users.")


def _first_meetings(
    transition: sparse.csr_array, item: int, groups: Sequence[tuple[int, ...]], length: int
) -> tuple[Array, Array]:
    """Probability, for each group and t, of being first at the item or in the group after t hops from the item."""
    users = transition.shape[0]
    onward = transition.T.tocsr()
    stops = np.zeros((users, len(groups)))
    stops[item] = 1.0
    for column, group in enumerate(groups):
        stops[list(group), column] = 1.0
    law = np.empty((len(groups), length))
    walking = np.zeros_like(stops)
    walking[item] = 1.0
    for hop in range(length):
        walking = np.asarray(onward @ walking)
        law[:, hop] = np.einsum("ug,ug->g", walking, stops)
        walking *= 1 - stops
    return law, walking.sum(axis=0)


def transition_matrix(graph: Any) -> sparse.csr_array:
    """The transition probabilities of the walk on a graph, checked: see `meeting_times_graph`."""
    drawn = hasattr(graph, "adj") and hasattr(graph, "nodes")
    return _checked_chain(_graph_walk(graph) if drawn else _checked_matrix(graph))


def _checked_chain(transition: sparse.csr_array) -> sparse.csr_array:
    users = transition.shape[0]
    require(users >= 2, "graph", f"a graph of {users} user(s)", "A walk needs at least two users.")
    parts, _ = csgraph.connected_components(transition, directed=True, connection="strong")
    require(
        parts == 1,
        "graph",
        f"a graph of {parts} parts that the walk cannot leave or cannot reach",
        "Pass a connected graph: add edges between the parts, or run one walk on each.",
    )
    return transition


def _graph_walk(graph: Any) -> sparse.csr_array:
    require(
        not graph.is_directed() and not graph.is_multigraph(),
        "graph",
        type(graph).__name__,
        "Pass an undirected networkx.Graph, or the matrix of transition probabilities itself.",
    )
    try:
        nodes = sorted(graph.nodes)
    except TypeError:
        raise ValueError(
            f"graph is a {type(graph).__name__} whose nodes cannot be sorted. "
            "Number its nodes, for example with networkx.convert_node_labels_to_integers."
        ) from None
    place = {node: number for number, node in enumerate(nodes)}
    return _neighbour_walk([[place[other] for other in graph.adj[node]] for node in nodes])


def _neighbour_walk(neighbours: Sequence[Sequence[int]]) -> sparse.csr_array:
    """The walk to a neighbour drawn uniformly."""
    users = len(neighbours)
    lonely = [user for user, others in enumerate(neighbours) if not others]
    require(not lonely, "graph", f"a graph with the isolated users {lonely[:5]}", "Pass a connected graph.")
    degrees = np.array([len(others) for others in neighbours], dtype=np.int64)
    columns = np.array([other for others in neighbours for other in others], dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(degrees)])
    return sparse.csr_array((np.repeat(1.0 / degrees, degrees), columns, starts), shape=(users, users))


def _checked_matrix(matrix: Any) -> sparse.csr_array:
    if not hasattr(matrix, "tocsr"):
        matrix = np.asarray(matrix, dtype=np.float64)
        require(matrix.ndim == 2, "graph", f"an array of shape {matrix.shape}", "Pass a square matrix or a graph.")
    transition = sparse.csr_array(matrix, dtype=np.float64, copy=True)
    shape = transition.shape
    require(shape[0] == shape[1], "graph", f"a matrix of shape {shape}", "Pass a square matrix or a graph.")
    sums = np.asarray(transition.sum(axis=1)).ravel()
    stochastic = bool(np.all(transition.data >= 0) and np.all(np.abs(sums - 1) <= 1e-9))
    require(
        stochastic,
        "graph",
        "a matrix that is not one of transition probabilities",
        "Its entries must be at least 0 and each row must sum to 1: divide each row of an adjacency matrix by its sum.",
    )
    transition.eliminate_zeros()
    return transition


# --- the guarantee


def walk_rdp(
    alpha: float,
    contributions: int,
    shift_over_noise: float,
    law: MeetingLaw,
    *,
    lipschitz: float = 1.0,
    drift_over_noise: float = 0.0,
    published_model: bool = False,
    hops: int | None = None,
) -> float:
    """Renyi divergence of order alpha of what the observer sees, over all contributions of one user.

    ``K/(alpha-1) ln sum_t P(t) exp(alpha (alpha-1) mu_t^2/2)``, K the contributions and ``mu_t^2`` the
    `hop_costs`, for every alpha above 1; the largest over the rows of the law. A contribution that no one sees
    before the run ends costs nothing, so the run's length does not enter. If the final model is published too,
    the last contribution's window may be cut by the end of the run: it is charged apart, at the most that any t
    costs, and K - 1 remain. Rests on: a path drawn without looking at the data; every counted hop adding its
    noise; deterministic local solvers.

    Parameters
    ----------
    alpha : float
        Above 1.
    contributions : int
        The most times the user contributes, which it enforces itself. (A user at its cap still adds its noise and
        only leaves out its own step; a hop without noise does not count in t.)
    shift_over_noise, lipschitz, drift_over_noise
        As for `hop_costs`.
    law : MeetingLaw
        From `meeting_times_complete`, `meeting_times_graph` or `worst_law`.
    published_model : bool
        Whether the observer also sees the model at the end of the run.
    hops : int or None
        Number of hops of the run. Needed with a drift, for then a long wait may cost more than a short one.
    """
    require(1 < alpha < math.inf, "alpha", alpha, "Renyi orders are above 1: pass for example alpha=2.0.")
    divergences = _row_divergences(
        alpha, contributions, shift_over_noise, law, lipschitz, drift_over_noise, published_model, hops
    )
    return float(divergences.max())


def _row_divergences(
    alpha: float,
    contributions: int,
    shift: float,
    law: MeetingLaw,
    lipschitz: float,
    drift: float,
    published_model: bool,
    hops: int | None,
) -> Array:
    """`walk_rdp` for every row of the law."""
    _check_costs(shift, lipschitz, drift)
    require_count("contributions", contributions)
    if hops is not None:
        require_count("hops", hops)
    require(
        hops is not None or drift == 0,
        "hops",
        hops,
        "Inexact hops drift apart while they wait, so the length of the run is needed: pass hops.",
    )
    last = max(law.length, hops or 0)
    times = np.append(np.arange(1, law.length + 1, dtype=np.float64), law.length + 1.0)
    costs = _costs(times, shift, lipschitz, drift)
    longest = float(_costs(np.array([float(last)]), shift, lipschitz, drift)[0])
    costs[-1] = max(costs[-1], longest)  # (shift + drift t)^2/t is convex: its largest is at an end
    exponents = alpha * (alpha - 1) / 2 * costs
    probabilities = np.concatenate([law.probabilities, law.tail[:, None]], axis=1)
    counted = contributions - 1 if published_model else contributions
    total = counted * _log_mean_exp(probabilities, exponents) / (alpha - 1)
    if published_model:
        total = total + alpha / 2 * max(costs[0], longest)
    return np.asarray(total * (1 + 4e-12), dtype=np.float64)  # rounding, and rows left out as no worse


def _log_mean_exp(probabilities: Array, exponents: Array) -> Array:
    """``log sum_t P(t) exp(exponent_t)`` for every row, exponents being at least 0; never below 0."""
    top = float(exponents.max())
    if top < 30:
        return np.asarray(np.log1p(probabilities @ np.expm1(exponents)), dtype=np.float64)
    means = probabilities @ np.exp(exponents - top)
    logs = top + np.log(np.maximum(means, 1e-300))
    lost = means < 1e-280  # rows where the largest exponents cannot happen
    if lost.any():
        possible = np.where(probabilities[lost] > 0, exponents, -math.inf)
        tops = possible.max(axis=1)
        logs[lost] = tops + np.log((probabilities[lost] * np.exp(possible - tops[:, None])).sum(axis=1))
    return np.maximum(logs, 0.0)


def _undominated(law: MeetingLaw) -> MeetingLaw:
    """The rows that no other row precedes at every t: if waiting is never dearer, the worst is among them."""
    reached = np.cumsum(law.probabilities, axis=1)
    left = np.argsort(-reached.sum(axis=1), kind="stable")
    kept: list[int] = []
    while left.size > 0 and len(kept) < 1000:
        kept.append(int(left[0]))
        slower = np.all(reached[left] <= reached[left[0]] * (1 + 1e-12), axis=1)
        slower[0] = True
        left = left[~slower]
    rows = np.array([*kept, *left.tolist()])
    pairs = tuple(law.pairs[row] for row in rows) if law.pairs else ()
    return MeetingLaw(law.probabilities[rows], law.tail[rows], pairs)


@dataclass(frozen=True)
class WalkEpsilon:
    """An epsilon, which bound gave it ("walk" or "local"), and for whom the walk's bound is worst, if known."""

    epsilon: float
    bound: Literal["walk", "local"]
    item: int | None = None
    observers: tuple[int, ...] = ()


def walk_epsilon(
    delta: float,
    contributions: int,
    shift_over_noise: float,
    law: MeetingLaw,
    *,
    lipschitz: float = 1.0,
    drift_over_noise: float = 0.0,
    published_model: bool = False,
    hops: int | None = None,
) -> WalkEpsilon:
    """Epsilon at delta of what the observer sees: the smaller of the walk's bound and of the local one.

    The walk's is `walk_rdp` converted at its best alpha. The local one, ``mu = sqrt(K) (shift + drift)/s``, holds
    even against someone who sees every message. Both are proved. The walk's has no mu.

    Parameters
    ----------
    delta : float
        Between 0 and 1.
    contributions, shift_over_noise, law, lipschitz, drift_over_noise, published_model, hops
        As for `walk_rdp`.
    """
    require_inside("delta", delta, remedy="Pass a probability between 0 and 1, for example 1e-6.")
    if drift_over_noise == 0 and len(law.tail) > 1:
        law = _undominated(law)
    best = (math.inf, 2.0)

    def rows(alpha: float) -> Array:
        return _row_divergences(
            alpha, contributions, shift_over_noise, law, lipschitz, drift_over_noise, published_model, hops
        )

    def curve(alpha: float) -> float:
        nonlocal best
        value = float(rows(alpha).max())
        best = min(best, (value - math.log(delta * alpha) / (alpha - 1) + math.log1p(-1 / alpha), alpha))
        return value

    walk = rdp_epsilon(curve, delta)
    local_mu = round_up(math.sqrt(contributions) * (shift_over_noise + drift_over_noise), 1e-14)
    local = gdp_epsilon(local_mu, delta)
    if local <= walk:
        return WalkEpsilon(local, "local")
    if not law.pairs:
        return WalkEpsilon(walk, "walk")
    item, observers = law.pairs[int(np.argmax(rows(best[1])))]
    return WalkEpsilon(walk, "walk", item, observers)


def network_spend(
    shift_over_noise: float,
    drift_over_noise: float,
    lipschitz: float,
    contributions: int,
    items: int,
    neighbours: Sequence[Sequence[int]] | None,
    item: int | None,
    observers: Sequence[int] | None,
    hops: int | None = None,
    *,
    published_model: bool = True,
) -> Callable[[float], float]:
    """Epsilon as a function of delta for a walk described by its neighbour lists; see `walk_epsilon`.

    Parameters
    ----------
    shift_over_noise, drift_over_noise, contributions, hops, published_model
        As for `walk_rdp`; hops is needed with a drift.
    lipschitz : float
        Of a hop with its user's own step. Counts only if ``contributions``, the cap of every user, is at least
        ``hops``: a user who can reach its cap leaves out its step and then does not contract.
    items : int
        Number of users.
    neighbours : sequence of sequences of int, or None
        To whom each user may hand over, uniformly; None for all users, itself included.
    item : int or None
        The user whose contributions are hidden; None for the worst.
    observers : sequence of int, or None
        Users who collude; None for the worst single one.
    """
    group = None if observers is None else tuple(sorted({int(user) for user in observers} - {item}))
    require(group is None or len(group) > 0, "observers", observers, "Pass at least one user besides the item.")
    longest = _LONGEST_LAW if hops is None else min(hops, _LONGEST_LAW)
    if hops is None or contributions < hops:
        lipschitz = 1.0
    if neighbours is None:
        law = meeting_times_complete(items, longest, 1 if group is None else len(group))
    else:
        transition = _checked_chain(_neighbour_walk(neighbours))
        hidden = [user for user in range(items) if group is None or user not in group] if item is None else [item]
        require(len(hidden) > 0, "observers", observers, "Leave at least one user who does not collude.")
        for user in hidden:
            _check_users(transition, user, group or ((user + 1) % items,))
        work = transition.nnz * len(hidden) * (items if group is None else 1)
        law = _laws(transition, hidden, group, min(longest, max(64, _WORK // work)))

    def epsilon(delta: float) -> float:
        return walk_epsilon(
            delta,
            contributions,
            shift_over_noise,
            law,
            lipschitz=lipschitz,
            drift_over_noise=drift_over_noise,
            published_model=published_model,
            hops=hops,
        ).epsilon

    return epsilon
