"""What it costs to publish the best of a random, secret number of private runs. Proofs: docs/selection.md.

One run is mu-GDP and returns a model with a score. ``K`` runs are made, ``K`` drawn from a fixed law, and only the best
one is published. With ``f`` the generating function of ``K``, write ``w(s) = f'(1-s)/f'(1)``, ``s`` standing for the
chance that a run scores better; in the other world that chance is at most ``s+ = Phi(Phi^-1(s) + mu)``. Then

    delta(epsilon) <= E[K] sum_j p_j delta_mu(epsilon - u_j),

where the curve of the points ``(w(s+), w(s))`` has a concave hull, from (0, 0) to (1, 1), whose segments rise by
``p_j`` with the slope ``exp(u_j)``. It is never above the Renyi bounds of Papernot and Steinke (2022). The curve is
replaced by corners outside of it, so every number errs to the safe side.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy import optimize, special

from hushpoint._checks import require, require_choice
from hushpoint._types import Array
from hushpoint.lattice.words import Bits
from hushpoint.privacy import inversion
from hushpoint.privacy.gaussian import gaussian_rdp, gdp_delta, gdp_epsilon, gdp_mu, round_up

Distribution = Literal["geometric", "logarithmic", "poisson"]
DISTRIBUTIONS: tuple[Distribution, ...] = ("geometric", "logarithmic", "poisson")

_MOST_RUNS = {"geometric": 1e6, "logarithmic": 1e6, "poisson": 300.0}  # far below underflow of the weights
_DEEP = 40.0  # the curve is resolved finely down to a weight of exp(-40)
_PAD = 1e-12  # covers the rounding of normal tails, weights and slopes


@dataclass(frozen=True)
class RunCount:
    """Law of the number of runs: it is drawn from, and accounted for, by the same object.

    Parameters
    ----------
    distribution : {"geometric", "logarithmic", "poisson"}
        ``P(K = k)`` proportional to ``(1-g)^k``, to ``(1-g)^k / k``, or to ``m^k / k!``, each for ``k >= 1``: at least
        one run is always made. The first two are the truncated negative binomial laws with eta = 1 and eta = 0.
    parameter : float
        ``g`` in (0, 1], or ``m >= 0``. ``g = 1`` and ``m = 0`` mean exactly one run. `run_count` finds it for a mean.
    """

    distribution: Distribution
    parameter: float

    def __post_init__(self) -> None:
        require_choice("distribution", self.distribution, DISTRIBUTIONS)
        if self.distribution == "poisson":
            require(0 <= self.parameter < math.inf, "parameter", self.parameter, "Pass a rate of at least 0.")
        else:
            require(0 < self.parameter <= 1, "parameter", self.parameter, "Pass a probability in (0, 1].")

    @property
    def power(self) -> int:
        """``1 + eta`` of a negative binomial law."""
        return 2 if self.distribution == "geometric" else 1

    @property
    def one_run(self) -> bool:
        """Whether there is always exactly one run."""
        return self.parameter == (0 if self.distribution == "poisson" else 1)

    @property
    def log_inverse(self) -> float:
        """``ln(1/g)``."""
        return -math.log1p(self.parameter - 1) if self.parameter > 0.5 else -math.log(self.parameter)

    @property
    def mean(self) -> float:
        """``E[K] = f'(1)``."""
        if self.one_run:
            return 1.0
        if self.distribution == "geometric":
            return 1 / self.parameter
        if self.distribution == "logarithmic":
            return (1 - self.parameter) / (self.parameter * self.log_inverse)
        return self.parameter / -math.expm1(-self.parameter)

    @property
    def depth(self) -> float:
        """``-ln w(1)``: how much less a run counts that every other run would beat."""
        return self.parameter if self.distribution == "poisson" else self.power * self.log_inverse

    def weight(self, beaten: Array) -> Array:
        """``w(s) = f'(1-s)/f'(1)``, for the chance ``s`` that a run is beaten by another one."""
        if self.distribution == "poisson":
            return np.exp(-self.parameter * beaten)
        return np.asarray((1 + (1 / self.parameter - 1) * beaten) ** float(-self.power))

    def beaten_at(self, depth: Array) -> Array:
        """The chance ``s`` with ``-ln w(s) = depth``."""
        if self.distribution == "poisson":
            return np.minimum(1.0, depth / self.parameter)
        return np.minimum(1.0, np.expm1(depth / self.power) / (1 / self.parameter - 1))

    def chance_of_trying(self, fraction: float) -> float:
        """Probability ``1 - f(1 - fraction)`` that some run uses one of the best ``fraction`` of the candidates."""
        require(0 <= fraction <= 1, "fraction", fraction, "Pass a part of the candidates, from 0 to 1.")
        missed = 1 - fraction
        if self.one_run:
            return float(fraction)
        if self.distribution == "poisson":
            return math.expm1(-self.parameter * fraction) / math.expm1(-self.parameter)
        if self.distribution == "geometric":
            return fraction / (1 - (1 - self.parameter) * missed)
        return 1 + math.log1p(-(1 - self.parameter) * missed) / self.log_inverse

    def drawn_exactly(self, bits: Bits) -> int:
        """One draw of ``K`` from the law of the formula, by whole numbers and decimals. It must stay secret."""
        if self.one_run:
            return 1
        if self.distribution == "geometric":
            whole = inversion.exactly(1.0)
        elif self.distribution == "logarithmic":
            whole = inversion.log_inverse(self.parameter)
        else:
            whole = inversion.exp_less_one(self.parameter)
        return inversion.least_count(self._terms(), whole, bits.word)

    def _terms(self) -> Iterator[inversion.Between]:
        """``P(K = k)``, ``k >= 1``, times what `drawn_exactly` divides by."""
        parameter = inversion.exactly(self.parameter)
        ratio = parameter if self.distribution == "poisson" else inversion.rest_of(self.parameter)
        power = parameter if self.distribution == "geometric" else ratio  # the first term
        for k in itertools.count(1):
            yield inversion.over(power, k) if self.distribution == "logarithmic" else power
            power = inversion.times(power, ratio)
            if self.distribution == "poisson":
                power = inversion.over(power, k + 1)

    def draw(self, generator: np.random.Generator) -> int:
        """One draw of ``K``, in floating-point numbers. It must stay secret: only the best run is accounted for."""
        if self.one_run:
            return 1
        if self.distribution == "geometric":
            return int(generator.geometric(self.parameter))
        if self.distribution == "logarithmic":
            return int(generator.logseries(1 - self.parameter))
        # The first arrival of a Poisson process, given that it comes before time 1, and then the arrivals after it.
        later = self.parameter + math.log1p(generator.random() * math.expm1(-self.parameter))
        return 1 + int(generator.poisson(max(0.0, later)))


def run_count(mean_candidates: float, distribution: Distribution) -> RunCount:
    """The law of the number of runs with a given mean, from 1 to a million (to 300 for "poisson")."""
    require_choice("distribution", distribution, DISTRIBUTIONS)
    most = _MOST_RUNS[distribution]
    require(
        1 <= mean_candidates <= most,
        "mean_candidates",
        mean_candidates,
        f"Pass the number of runs to expect, from 1 to {most:g} for this distribution, for example 10.",
    )
    mean = float(mean_candidates)
    if distribution == "geometric":
        return RunCount("geometric", 1 / mean)
    if mean == 1:
        return RunCount(distribution, 0.0 if distribution == "poisson" else 1.0)
    if distribution == "poisson":
        return RunCount("poisson", _root(lambda rate: rate / -math.expm1(-rate) - mean, mean))
    return RunCount("logarithmic", math.exp(-_root(lambda depth: math.expm1(depth) / depth - mean, 40.0)))


def _root(rising: Callable[[float], float], high: float) -> float:
    return float(optimize.brentq(rising, 1e-15, high, xtol=1e-300, rtol=1e-14))


# --- the bound


@lru_cache(maxsize=64)
def _shifts(mu: float, law: RunCount) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The ``u_j`` and ``p_j`` of the bound; the largest shift comes last."""
    if law.one_run:
        return (0.0,), (1.0,)
    beaten_b, beaten_a = _corners(mu, law)
    high = law.weight(beaten_b) * (1 + _PAD)
    low = law.weight(beaten_a) * (1 - _PAD)
    largest = float(np.max(np.log(high) - np.log(low))) + _PAD
    # The support function psi(k) = max(high - k low, 0) of the hull is convex: chords between nodes are above it.
    nodes = np.exp(np.linspace(0.0, largest, 65 + min(math.ceil(largest / 0.04), 500)))
    psi = np.array([float(np.max(high - node * low)) for node in nodes[:-1]] + [0.0])
    psi = np.maximum(psi, 0.0)
    slopes = np.diff(psi, prepend=1 + _PAD) / np.diff(nodes, prepend=0.0)
    turns = np.maximum(np.append(slopes[1:], 0.0) - slopes, 0.0)
    return tuple(np.log(nodes).tolist()), tuple((nodes * turns).tolist())


def _corners(mu: float, law: RunCount) -> tuple[Array, Array]:
    """Per cell of the curve the least ``s`` and the largest ``s+``: the corner that is above and left of all of it."""
    depth = law.depth
    cells = int(min(max(depth / (1e-3 * mu), 1e4), 5e4))  # both weights change by at most depth/cells within a cell
    fine = np.linspace(0.0, min(depth, _DEEP), cells)
    coarse = np.linspace(min(depth, _DEEP), depth, cells // 4 if depth > _DEEP else 1)
    ends = special.ndtri(law.beaten_at(np.concatenate([fine, coarse])))
    points = np.unique(np.concatenate([[-math.inf], ends, ends - mu, [math.inf]]))
    return special.ndtr(points[:-1]), special.ndtr(points[1:] + mu)


def _delta(mu: float, epsilon: float) -> float:
    """``gdp_delta`` for epsilon of either sign."""
    if epsilon >= 0:
        return gdp_delta(mu, epsilon)
    return min(1.0, -math.expm1(epsilon) + math.exp(epsilon) * gdp_delta(mu, -epsilon))


def _best_delta(mu: float, epsilon: float, law: RunCount) -> float:
    shifts, parts = _shifts(mu, law)
    if law.one_run:
        return gdp_delta(mu, epsilon)
    total = math.fsum(part * _delta(mu, epsilon - shift) for shift, part in zip(shifts, parts, strict=True) if part > 0)
    return min(1.0, law.mean * total * (1 + 1e-10) + math.nextafter(0.0, 1.0))


def selection_epsilon(
    mu: float, delta: float, mean_candidates: float, distribution: Distribution = "geometric"
) -> float:
    """Epsilon at delta of publishing the best of a random, secret number of mu-GDP runs, rounded up.

    Each run returns a model and a score, and is mu-GDP with both. The number of runs, all other models and all other
    scores stay secret. docs/selection.md, theorem 1.

    Parameters
    ----------
    mu : float
        What one run spends, its score included: at least 0.
    delta : float
        Probability from 0 to 1; 0 gives infinity unless mu is 0.
    mean_candidates : float
        Expected number of runs, from 1 (always exactly one run) to a million (to 300 for "poisson").
    distribution : {"geometric", "logarithmic", "poisson"}
        Law of the number of runs, see `RunCount`; "poisson" is conditioned on at least one run.
    """
    law = run_count(mean_candidates, distribution)
    single = gdp_epsilon(mu, delta)  # checks both
    if mu == 0 or delta == 1 or math.isinf(single) or law.one_run:
        return single
    return _least_epsilon(float(mu), float(delta), law)


@lru_cache(maxsize=256)
def _least_epsilon(mu: float, delta: float, law: RunCount) -> float:
    high = gdp_epsilon(mu, delta / (law.mean * (1 + 1e-9))) + _shifts(mu, law)[0][-1]
    low = 0.0
    if math.isinf(high) or _best_delta(mu, low, law) <= delta:
        return high if math.isinf(high) else low
    while _best_delta(mu, high, law) > delta:
        high *= 1 + 1e-9
    while high - low > 1e-12 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if _best_delta(mu, middle, law) <= delta else (middle, high)
    return high


def selection_mu(
    epsilon: float, delta: float, mean_candidates: float, distribution: Distribution | Literal["auto"] = "geometric"
) -> float:
    """Largest mu that one run may spend so that publishing the best of them is (epsilon, delta)-DP, rounded down.

    The answer always satisfies ``selection_epsilon(mu, delta, ...) <= epsilon``. For an epsilon below about 1e-3 it can
    be 0, which no run can meet. ``distribution="auto"`` is that of `best_distribution`; parameters as in
    `selection_epsilon`.
    """
    if distribution == "auto":
        distribution = best_distribution(epsilon, delta, mean_candidates)
    law = run_count(mean_candidates, distribution)
    most = gdp_mu(epsilon, delta)
    if most == 0 or math.isinf(most) or law.one_run:
        return most
    return _largest_mu(float(epsilon), float(delta), law)


@lru_cache(maxsize=256)
def _largest_mu(epsilon: float, delta: float, law: RunCount) -> float:
    def excess(log_mu: float) -> float:
        return math.log(_best_delta(math.exp(log_mu), epsilon, law) / delta)

    log_mu = math.log(gdp_mu(epsilon, delta))
    above, step = None, 0.5
    while excess(log_mu) > 0:
        if step > 10:
            return 0.0
        above, log_mu = log_mu, log_mu - step
        step *= 2
    if above is not None:
        log_mu = float(optimize.brentq(excess, log_mu, above, xtol=1e-8))
    mu, step = math.exp(log_mu), 1e-7
    while _best_delta(mu, epsilon, law) > delta or _least_epsilon(mu, delta, law) > epsilon:
        mu *= 1 - step
        step *= 2
    return mu


def best_distribution(epsilon: float, delta: float, mean_candidates: float) -> Distribution:
    """The law of the number of runs that lets one run spend most. It looks at no data."""
    usable = [name for name in DISTRIBUTIONS if not mean_candidates > _MOST_RUNS[name]] or DISTRIBUTIONS
    return max(usable, key=lambda name: selection_mu(epsilon, delta, mean_candidates, name))


def selection_rdp(mu: float, alpha: float, mean_candidates: float, distribution: Distribution) -> float:
    """Renyi divergence of order alpha of publishing the best run, by Papernot and Steinke (2022), rounded up.

    Theorem 2 there for "geometric" and "logarithmic", theorem 6 for "poisson" (here conditioned on at least one run),
    for mu-GDP runs. For comparison: what `rdp_epsilon` makes of this curve is not below the theorem
    behind `selection_epsilon`.
    """
    law = run_count(mean_candidates, distribution)
    spent = gaussian_rdp(mu, alpha)
    price = math.log(law.mean) / (alpha - 1)
    if mu == 0 or law.one_run:
        return spent
    if distribution == "poisson":
        hat = gdp_delta(mu, math.log1p(1 / (alpha - 1)) * (1 - 1e-15))
        return round_up(spent + law.parameter * hat + price, 4e-15)
    order = max(1.0, math.sqrt(2 * law.log_inverse) / mu)  # the best b of the theorem
    chosen = law.power * ((order - 1) * mu * mu / 2 + law.log_inverse / order)
    return round_up(spent + chosen + price, 4e-15)
