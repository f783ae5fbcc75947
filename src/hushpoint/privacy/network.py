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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from hushpoint._checks import require, require_count, require_inside
from hushpoint._types import Array
from hushpoint.privacy.gaussian import gdp_epsilon, rdp_epsilon, round_up

_LONGEST_LAW = 4096  # a wait longer than this is charged as one this long
_WORK = 100_000_000  # multiplications to spend on the laws of a graph


# --- what one contribution costs


def hop_costs(times: Array, shift: float, lipschitz: float = 1.0, drift: float = 0.0) -> Array:
    """Squared mu of one contribution hidden by t noises, for every t in times.

    ``(shift/s)^2/t`` for non-expansive hops; ``(shift/s)^2 c^(2(t-1)) (1-c^2)/(1-c^(2t))`` if every hop, of
    every user and at every time, is c-Lipschitz with c < 1. With hops that are only approximately solved,
    ``((shift + drift t)/s)^2/t`` whatever the Lipschitz constant. All are equalities for scalar linear hops.

    Parameters
    ----------
    times : array
        Whole numbers from 1.
    shift : float
        Largest move of one contribution between the two worlds, over the noise's standard deviation per hop.
    lipschitz : float
        Constant of *all* hops. A user at its cap who only adds noise is 1-Lipschitz: unless no user can reach
        its cap in this run, it is 1.
    drift : float
        ``4 lambda tol / s``: how far two inexact hops from one point may lie apart, over the noise.
    """
    remedy = "Pass the sensitivity of one hop divided by its noise's standard deviation, at least 0 and finite."
    require(0 <= shift < math.inf, "shift_over_noise", shift, remedy)
    remedy = "Hops must be non-expansive: pass a constant from 0 to 1, or use the local bound."
    require(0 <= lipschitz <= 1, "lipschitz", lipschitz, remedy)
    require(0 <= drift < math.inf, "drift_over_noise", drift, "Pass a finite number of at least 0.")
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
    """

    probabilities: Array
    tail: Array

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


def meeting_times(
    transition: sparse.csr_array, items: Sequence[int], observers: tuple[int, ...] | None, length: int
) -> MeetingLaw:
    """Laws of t for a walk with these transitions: its first return to the item or visit to an observer, from the item.

    ``P(t)`` is the probability that, starting at the item, the walk is at the item or at an observer after t hops
    and not before. Each of those t hops adds one noise, the item's own being the first; the observer's is not
    among them. Exact, by t products with the transition matrix. One row for each item and its group of observers,
    or, where that is None, for each item and every other user alone: which observer learns most depends on the
    noise and on alpha, so that the worst is found by `SeenWalk.rdp`, which takes the largest over the rows.
    """
    laws, tails = [], []
    for item in items:
        others = [(user,) for user in range(transition.shape[0]) if user != item]
        law, tail = _first_meetings(transition, item, others if observers is None else [observers], length)
        laws.append(law)
        tails.append(tail)
    return MeetingLaw(np.concatenate(laws), np.concatenate(tails))


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


def neighbour_walk(neighbours: Sequence[Sequence[int]]) -> sparse.csr_array:
    """The transition probabilities of the walk to a neighbour drawn uniformly, on a connected graph."""
    users = len(neighbours)
    lonely = [user for user, others in enumerate(neighbours) if not others]
    require(not lonely, "graph", f"a graph with the isolated users {lonely[:5]}", "Pass a connected graph.")
    require(users >= 2, "graph", f"a graph of {users} user(s)", "A walk needs at least two users.")
    degrees = np.array([len(others) for others in neighbours], dtype=np.int64)
    columns = np.array([other for others in neighbours for other in others], dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(degrees)])
    transition = sparse.csr_array((np.repeat(1.0 / degrees, degrees), columns, starts), shape=(users, users))
    parts, _ = csgraph.connected_components(transition, directed=True, connection="strong")
    require(
        parts == 1,
        "graph",
        f"a graph of {parts} parts that the walk cannot leave or cannot reach",
        "Pass a connected graph: add edges between the parts, or run one walk on each.",
    )
    return transition


# --- the guarantee


@dataclass(frozen=True, eq=False)
class SeenWalk:
    """What the observer sees of a walk, over all contributions of one user.

    Rests on: a path drawn without looking at the data; every counted hop adding its noise; deterministic local
    solvers.

    Parameters
    ----------
    contributions : int
        The most times the user contributes, which it enforces itself. (A user at its cap still adds its noise and
        only leaves out its own step; a hop without noise does not count in t.)
    shift_over_noise, lipschitz, drift_over_noise : float
        As for `hop_costs`.
    law : MeetingLaw
        From `meeting_times_complete` or `meeting_times`.
    published_model : bool
        Whether the observer also sees the model at the end of the run.
    hops : int or None
        Number of hops of the run. Needed with a drift, for then a long wait may cost more than a short one.
    """

    contributions: int
    shift_over_noise: float
    law: MeetingLaw
    lipschitz: float = 1.0
    drift_over_noise: float = 0.0
    published_model: bool = False
    hops: int | None = None

    def __post_init__(self) -> None:
        require_count("contributions", self.contributions)
        if self.hops is not None:
            require_count("hops", self.hops)
        remedy = "Inexact hops drift apart while they wait, so the length of the run is needed: pass hops."
        require(self.hops is not None or self.drift_over_noise == 0, "hops", self.hops, remedy)

    def rdp(self, alpha: float) -> float:
        """Renyi divergence of order alpha, above 1.

        ``K/(alpha-1) ln sum_t P(t) exp(alpha (alpha-1) mu_t^2/2)``, K the contributions and ``mu_t^2`` the
        `hop_costs`; the largest over the rows of the law. A contribution that no one sees before the run ends costs
        nothing, so the run's length does not enter. If the final model is published too, the last contribution's
        window may be cut by the end of the run: it is charged apart, at the most that any t costs, and K - 1 remain.
        """
        require(1 < alpha < math.inf, "alpha", alpha, "Renyi orders are above 1: pass for example alpha=2.0.")
        length = self.law.length
        times = np.append(np.arange(1, length + 1, dtype=np.float64), [length + 1.0, max(length, self.hops or 0)])
        costs = hop_costs(times, self.shift_over_noise, self.lipschitz, self.drift_over_noise)
        costs, longest = costs[:-1], float(costs[-1])
        costs[-1] = max(costs[-1], longest)  # (shift + drift t)^2/t is convex: its largest is at an end
        exponents = alpha * (alpha - 1) / 2 * costs
        probabilities = np.concatenate([self.law.probabilities, self.law.tail[:, None]], axis=1)
        counted = self.contributions - 1 if self.published_model else self.contributions
        total = counted * _log_mean_exp(probabilities, exponents) / (alpha - 1)
        if self.published_model:
            total = total + alpha / 2 * max(costs[0], longest)
        return float((total * (1 + 4e-12)).max())  # rounding, and rows left out as no worse

    def epsilon(self, delta: float) -> float:
        """Epsilon at delta, between 0 and 1: the smaller of the walk's bound and of the local one.

        The walk's is `rdp` converted at its best alpha. The local one, ``mu = sqrt(K) (shift + drift)/s``, holds even
        against someone who sees every message. Both are proved. The walk's has no mu.
        """
        require_inside("delta", delta, remedy="Pass a probability between 0 and 1, for example 1e-6.")
        fewer = self.drift_over_noise == 0 and len(self.law.tail) > 1
        curve = replace(self, law=_undominated(self.law)).rdp if fewer else self.rdp
        local_mu = round_up(math.sqrt(self.contributions) * (self.shift_over_noise + self.drift_over_noise), 1e-14)
        return min(gdp_epsilon(local_mu, delta), rdp_epsilon(curve, delta))


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
    return MeetingLaw(law.probabilities[rows], law.tail[rows])


def network_spend(
    shift_over_noise: float,
    drift_over_noise: float,
    lipschitz: float,
    contributions: int,
    items: int,
    neighbours: Sequence[Sequence[int]] | None,
    item: int | None,
    observers: Sequence[int] | None,
    hops: int,
) -> Callable[[float], float]:
    """Epsilon as a function of delta for a walk described by its neighbour lists, its final model published.

    Parameters
    ----------
    shift_over_noise, drift_over_noise, contributions, hops
        As for `SeenWalk`.
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
    longest = min(hops, _LONGEST_LAW)
    if contributions < hops:
        lipschitz = 1.0
    if neighbours is None:
        law = meeting_times_complete(items, longest, 1 if group is None else len(group))
    else:
        transition = neighbour_walk(neighbours)
        hidden = [user for user in range(items) if group is None or user not in group] if item is None else [item]
        require(len(hidden) > 0, "observers", observers, "Leave at least one user who does not collude.")
        last = transition.shape[0] - 1
        for name, users in (("item", hidden), ("observers", group or ())):
            for user in users:
                require_count(name, user, least=0, most=last, remedy=f"Pass a user from 0 to {last}.")
        work = transition.nnz * len(hidden) * (items if group is None else 1)
        law = meeting_times(transition, hidden, group, min(longest, max(64, _WORK // work)))
    return SeenWalk(contributions, shift_over_noise, law, lipschitz, drift_over_noise, True, hops).epsilon
