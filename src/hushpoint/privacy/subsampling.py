"""Privacy of Gaussian sums over a secret random sample: Poisson samples and samples of a fixed size.

One step releases ``sum over the sampled items of message_i + N(0, s^2 I)``, every message of norm at most
``bound``; ``noise_multiplier = s / bound`` throughout. Who is sampled is drawn afresh at every step, from coins
that do not depend on the data, and is never revealed. Later messages may depend on everything released before.

The pairs that dominate one step, in units of ``bound`` (q the probability of being sampled):

    zero-out      (1-q) N(0, s^2) + q N(1, s^2)   against   N(0, s^2),               and the reverse
    replace-one   (1-q) N(0, s^2) + q N(1, s^2)   against   (1-q) N(0, s^2) + q N(-1, s^2)

*Why they dominate.* Reveal the other items' coins: the divergence is jointly convex, so the worst revealed case
is a bound. What is left is ``P = (1-q) N(0) + q N(v)`` against ``Q = (1-q) N(0) + q N(w)`` with
``|v|, |w| <= 1`` in any dimension. For ``a = e^epsilon >= 1``, with ``k = (a-1)(1-q)/q`` and Z standard normal,

    [P - a Q]_+  integrates to  q E [1 - k exp(X - |v|^2/2s^2) - a exp(Y - |v-w|^2/2s^2)]_+,
    X = -<v, Z>/s,  Y = <w-v, Z>/s.

The bracket is a convex function of a sum of two terms, one increasing in X and one increasing in Y: it is
supermodular in (X, Y), so its mean grows with their correlation (Slepian) and is largest when -v and w-v point
the same way. On a line its derivative in ``|v|/s`` is k times a normal density, in ``|v-w|/s`` it is a times
one: it grows with both lengths, which are at most 1 and 2. Both are attained at v = 1, w = -1. For a < 1 swap P
and Q. Zero-out, w = 0, is on a line from the start: either direction grows with ``|v|``. A message that depends on
state the item keeps to itself is a mixture of messages, and joint convexity covers it. Dominating pairs compose,
adaptively too (Zhu, Dong and Wang 2022).

*How the numbers stay sound.* One step's pair is replaced by the discrete pair on a grid of losses whose privacy
profile interpolates the true one from above (Doroshenko, Ghazi, Kamath, Kumar and Manurangsi 2022). Its masses
are second differences of the profile, taken from whichever end keeps their relative accuracy. Compositions are
convolved by one Fourier transform of the exponentially tilted masses, with the tilt that puts the centre of the
composed law at the epsilon in question: rounding is then relative to delta itself and not to 1, which matters
below delta = 1e-10. What is cut off counts as lost privacy, a bound on the transform's rounding is added to every
mass, and what the transform folds over only adds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import fft, special

from hushpoint.privacy.gaussian import gdp_delta, gdp_epsilon, gdp_mu, rdp_epsilon, require, round_up

Array = NDArray[np.float64]
Adjacency = Literal["zero-out", "replace-one"]
FixedSizeMethod = Literal["renyi", "profile"]

BASIS: dict[Adjacency, Literal["proved", "published"]] = {"zero-out": "proved", "replace-one": "proved"}
"""How each Poisson bound is known; the proof is this module's description."""

_ACCURACY = 1e-4  # part of epsilon that the grid of losses may cost
_ROUGH = 2e-3  # the same while calibration is still far from its answer
_SLACK = 1e-7  # part of delta given to each truncation, and to rounding
_FOLDED = 1e-17  # part of the tilted law that the Fourier transform may fold over, on either side
_MOST_CELLS = 2**21
_FEW_CELLS = 2**10
_LONG_WINDOW = 2**19
_LONGEST_WINDOW = 2**23
_LARGEST_ORDER = 1e4  # Renyi orders above it are charged as if unsampled
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(4)


# --- the privacy profile of one step


def _mills(x: Array) -> Array:
    """Upper tail of the standard normal divided by its density; for x above -20."""
    return math.sqrt(math.pi / 2) * special.erfcx(x / math.sqrt(2))


def _density(x: Array) -> Array:
    return np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


def _gaussian_profile(mu: float, loss: Array) -> Array:
    """delta of mu-GDP at every loss, of either sign: ``Phi(-a) - e^loss Phi(-a-mu)``, ``a = loss/mu - mu/2``.

    Relative accuracy near 1e-14 for losses above 0, where ``e^loss phi(a + mu) = phi(a)`` takes the
    exponential away and, for small mu, the difference of Mills ratios is the integral of ``1 - x mills(x)``.
    """
    low = loss / mu - mu / 2
    near = np.maximum(low, -6.0)
    if mu < 0.2:
        points = near[:, None] + 0.5 * mu * (1 + _NODES)
        rise = 0.5 * mu * ((1 - points * _mills(points)) @ _WEIGHTS)
    else:
        rise = _mills(near) - _mills(near + mu)
    high = low + mu
    second = np.where(
        high > -6,
        _density(low) * _mills(np.maximum(high, -6.0)),
        np.exp(np.minimum(loss, 0)) * special.ndtr(-high),
    )
    return np.where(low > -6, _density(near) * rise, special.ndtr(-low) - second)


def _unsampled_loss(loss: Array, prob: float) -> Array:
    """``log(1 + (e^loss - 1)/prob)``: the loss of the unsampled mechanism behind a loss of the sampled one."""
    small = np.log1p(np.maximum(np.expm1(np.minimum(loss, 40.0)) / prob, -1 + 1e-15))
    large = loss - math.log(prob) + np.log1p(-(1 - prob) * np.exp(-np.maximum(loss, 0.0)))
    return np.where(loss > 40, large, small)


@dataclass(frozen=True)
class _Profile:
    """One step's pair: ``delta(e^loss)`` for losses of at least 0, and ``delta - (1 - e^loss)`` below 0.

    The second is the same curve without the part that every pair has, which would drown it in rounding.
    """

    above: Callable[[Array], Array]
    below: Callable[[Array], Array]
    floor: float = -math.inf  # no loss is smaller
    ceiling: float = math.inf  # no loss is larger

    def reversed(self) -> _Profile:
        """The profile of the pair with its two worlds exchanged."""
        return _Profile(
            above=lambda loss: np.exp(np.minimum(loss, 700.0)) * self.below(-loss),
            below=lambda loss: np.exp(loss) * self.above(-loss),
            floor=-self.ceiling,
            ceiling=-self.floor,
        )

    def delta(self, epsilon: float) -> float:
        return float(self.above(np.array([epsilon]))[0])

    def span(self, mass_above: float, mass_below: float) -> tuple[float, float]:
        """Losses between which the profile keeps all but these masses."""
        return -_reach(lambda loss: self.below(-loss), mass_below), _reach(self.above, mass_above)


def _reach(curve: Callable[[Array], Array], mass: float) -> float:
    """A loss, within a per cent of the least one, at which a decreasing curve is at most ``mass``."""
    points = np.geomspace(1e-15, 1e12, 100)
    for _ in range(3):
        first = int(np.argmax(curve(points) <= mass))
        points = np.geomspace(points[max(first - 1, 0)], points[first], 12)
    return float(points[-1])


def _remove_profile(mu: float, prob: float) -> _Profile:
    """``(1-q) N(0) + q N(mu)`` against ``N(0)``: ``q`` times the Gaussian profile at the unsampled loss."""

    floor = math.log1p(-prob) if prob < 1 else -math.inf

    def below(loss: Array) -> Array:
        behind = _unsampled_loss(loss, prob)
        return np.where(loss > floor, prob * np.exp(behind) * _gaussian_profile(mu, -behind), 0.0)

    return _Profile(lambda loss: prob * _gaussian_profile(mu, _unsampled_loss(loss, prob)), below, floor)


def _antipodal_profile(mu: float, prob: float) -> _Profile:
    """``(1-q) N(0) + q N(mu)`` against ``(1-q) N(0) + q N(-mu)``, of unit variance."""
    log_ratio = mu * mu / 2 + math.log1p(-prob) - math.log(prob)

    def above(loss: Array) -> Array:
        half = np.maximum(loss, 1e-300) / 2
        log_sinh = half + np.log(-np.expm1(-2 * half)) - math.log(2)
        log_argument = log_ratio + log_sinh
        arcsinh = np.where(
            log_argument > 20, log_argument + math.log(2), np.arcsinh(np.exp(np.minimum(log_argument, 20)))
        )
        at = (arcsinh + half) / mu  # the point where the loss is `loss`
        tail = np.exp(loss + special.log_ndtr(-at)) - special.ndtr(-at)
        tail = np.where(loss < 30, np.expm1(np.minimum(loss, 30)) * special.ndtr(-at), tail)
        far = np.where(
            loss < 30,
            np.exp(np.minimum(loss, 30)) * special.ndtr(-at - mu),
            np.exp(loss + special.log_ndtr(-at - mu)),
        )
        return np.maximum(prob * (special.ndtr(mu - at) - far) - (1 - prob) * tail, 0.0)

    return _Profile(above, lambda loss: np.exp(loss) * above(-loss))


def _two_way_profile(mu: float, prob: float) -> _Profile:
    """The larger of the remove pair's profile and its reverse: the first above 0, the second below."""
    above = _remove_profile(mu, prob).above
    return _Profile(above, lambda loss: np.exp(loss) * above(-loss))


# --- composition


@dataclass(frozen=True)
class _Step:
    """One step's privacy loss on the grid ``first * width, (first+1) * width, ...``, and as infinite."""

    masses: Array
    first: int
    width: float
    infinite: float

    @property
    def losses(self) -> Array:
        return np.arange(self.first, self.first + self.masses.size, dtype=np.float64) * self.width

    def log_moment(self, tilt: float) -> float:
        """``log E exp(tilt * loss)`` over the finite losses."""
        exponents = tilt * self.losses
        top = float(exponents.max())
        return top + math.log(float(self.masses @ np.exp(exponents - top)))


def _discretise(profile: _Profile, width: float, low: float, high: float) -> _Step:
    """The pair on a grid whose profile is the chord, in ``e^loss``, between the true profile's grid points."""
    first, last = min(math.floor(low / width), 0) - 1, math.ceil(high / width) + 1
    below = profile.below(np.arange(first, 0, dtype=np.float64) * width)
    above = profile.above(np.arange(0, last + 1, dtype=np.float64) * width)
    below = np.append(below, above[0])  # at loss 0 the two agree
    step, growth = math.expm1(width), math.exp(width)
    falls_below, falls_above = np.diff(below), np.diff(above)
    bottom = falls_below[0] / step - below[0]
    middle_below = (falls_below[1:] - growth * falls_below[:-1]) / step
    zero = 1 + (falls_above[0] - growth * (above[0] - below[-2])) / step
    middle_above = (falls_above[1:] - growth * falls_above[:-1]) / step
    top = -falls_above[-1] * growth / step
    masses = np.maximum(np.concatenate([[bottom], middle_below, [zero], middle_above, [top]]), 0.0)
    held = np.flatnonzero(masses)
    return _Step(masses[held[0] : held[-1] + 1], first + int(held[0]), width, float(above[-1]))


def _best_tilt(step: _Step, objective: Callable[[float, float], float], near: float | None = None) -> float:
    """About the positive tilt that minimises ``objective(tilt, log_moment(tilt))``; any tilt is sound."""

    def best(grid: Array) -> float:
        return float(grid[int(np.argmin([objective(tilt, step.log_moment(tilt)) for tilt in grid]))])

    if near is not None:
        return best(np.geomspace(near / 2, near * 2, 7))
    return best(np.geomspace(0.7, 1.4, 5) * best(np.geomspace(1e-3, 1e6, 28)))


@dataclass(frozen=True)
class _Composed:
    """The loss of many steps: ``masses * exp(log_scale - tilt * losses)``, and ``infinite`` besides."""

    losses: Array
    masses: Array
    tilt: float
    log_scale: float
    infinite: float

    def delta(self, epsilon: float) -> float:
        counted = self.losses > epsilon
        losses = self.losses[counted]
        chances = self.masses[counted] * np.exp(np.minimum(self.log_scale - self.tilt * losses, 700.0))
        part = float(chances @ -np.expm1(epsilon - losses))
        return min(1.0, (1 + _SLACK) * (part + self.infinite))

    def epsilon(self, delta: float, near: float) -> float:
        """Smallest epsilon of at least 0 that meets delta, given one from above that is ``near``."""
        left = delta / (1 + _SLACK) - self.infinite
        if left <= 0:
            return math.inf
        start = int(np.searchsorted(self.losses, near - min(200 / self.tilt, 300.0)))
        away = self.losses[start:] - near
        plain = self.masses[start:] * np.exp(-self.tilt * away)
        sums = np.cumsum(plain[::-1])[::-1]
        damped = np.cumsum((plain * np.exp(-away))[::-1])[::-1]
        goal = math.exp(min(math.log(left) - self.log_scale + self.tilt * near, 700.0))
        # at the k-th loss the terms from k+1 on count; the k-th itself counts for nothing
        first = int(np.argmax(np.append(sums - np.exp(np.minimum(away, 700.0)) * damped, 0.0) <= goal))
        if first == away.size:
            return math.inf
        if first == 0:  # much below what was expected
            return self._epsilon_below(delta, float(self.losses[start]))
        low, high = float(away[first - 1]), float(away[first])
        ratio = (float(sums[first]) - goal) / max(float(damped[first]), 1e-300)
        return max(0.0, near + min(max(math.log(max(ratio, 1e-300)), low), high))

    def _epsilon_below(self, delta: float, high: float) -> float:
        """The same by halving an interval from 0 up to a loss that is known to meet delta."""
        if high <= 0 or self.delta(0.0) <= delta:
            return 0.0
        low = 0.0
        while high - low > 1e-6 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if self.delta(middle) <= delta else (middle, high)
        return high


def _window(step: _Step, steps: int, tilt: float, log_delta: float) -> tuple[int, int]:
    """Grid points between which the composed loss has all but negligible parts of its law and its tilted law.

    Chernoff bounds. Above the window the probability itself is at most ``_SLACK`` of delta; the tilted law has
    at most ``_FOLDED`` on either side, for what lies outside is folded to where it may weigh more.
    """
    log_moment, losses = step.log_moment(tilt), step.losses
    tilted = step.masses * np.exp(tilt * losses - log_moment)
    spread = math.sqrt(steps * float(tilted @ (losses - tilted @ losses) ** 2))
    steepest = 8 / max(spread, step.width)
    # rare large losses need a gentle exponent, the bulk of the law a steep one
    upward = np.geomspace(min(1 / max(losses[-1], step.width), steepest / 2), steepest, 8)
    rises = [(shift, steps * (step.log_moment(tilt + shift) - log_moment)) for shift in upward]
    downward = steepest * np.array([0.125, 0.25, 0.5, 1])
    falls = [(shift, steps * (step.log_moment(tilt - shift) - log_moment)) for shift in downward]
    cut = log_delta + math.log(_SLACK)
    lost = min((steps * log_moment + rise - cut) / (tilt + shift) for shift, rise in rises)
    upper = max(lost, min((rise - math.log(_FOLDED)) / shift for shift, rise in rises))
    lower = max((math.log(_FOLDED) - fall) / shift for shift, fall in falls)
    first, last = steps * step.first, steps * (step.first + losses.size - 1)
    return max(math.floor(lower / step.width), first), min(math.ceil(upper / step.width), last)


def _compose(step: _Step, steps: int, tilt: float, log_delta: float) -> _Composed:
    """Convolve a step with itself under the tilt, or under a smaller one if that makes a long window shorter."""
    start, stop = _window(step, steps, tilt, log_delta)
    for smaller in (0.7 * tilt, 0.5 * tilt, 0.35 * tilt):
        if stop - start < _LONG_WINDOW:
            break
        other = _window(step, steps, smaller, log_delta)
        if other[1] - other[0] < stop - start:
            (start, stop), tilt = other, smaller
    if stop - start > _LONGEST_WINDOW:
        return _Composed(np.zeros(1), np.ones(1), tilt, 0.0, 1.0)  # all is lost, as far as can be told
    log_moment = step.log_moment(tilt)
    tilted = step.masses * np.exp(tilt * step.losses - log_moment)
    size = fft.next_fast_len(stop - start + 1, real=True)
    folded = np.zeros(size)
    for piece in range(0, tilted.size, size):
        part = tilted[piece : piece + size]
        folded[: part.size] += part
    spectrum = fft.rfft(folded)
    law = fft.irfft(spectrum**steps, size)
    # a coefficient is off by some 1e-15 of the law's length, and its power by the rounding of its angle
    sizes = np.abs(spectrum)
    first_order = 1e-15 * float(np.linalg.norm(folded)) * float(np.sum(sizes ** (steps - 1)))
    rounding = 2 * steps * (first_order + 5e-16 * float(np.sum(sizes**steps))) / size
    law = np.roll(law, -((start - steps * step.first) % size))[: stop - start + 1]
    return _Composed(
        losses=np.arange(start, stop + 1, dtype=np.float64) * step.width,
        masses=np.maximum(law, 0.0) + rounding,
        tilt=tilt,
        log_scale=steps * log_moment,
        infinite=-math.expm1(steps * math.log1p(-step.infinite)) + _SLACK * math.exp(log_delta),
    )


def _renyi_epsilon(steps: int, delta: float) -> Callable[[float, float], float]:
    """Epsilon at delta of a log moment at a tilt (the Renyi order less one): what the best tilt minimises."""

    def objective(tilt: float, log_moment: float) -> float:
        return (steps * log_moment - math.log(delta) - math.log1p(tilt)) / tilt - math.log1p(1 / tilt)

    return objective


def _chernoff_log_delta(steps: int, epsilon: float) -> Callable[[float, float], float]:
    """Log delta at epsilon of a log moment at a tilt."""

    def objective(tilt: float, log_moment: float) -> float:
        return steps * log_moment - tilt * epsilon - math.log1p(tilt) - tilt * math.log1p(1 / tilt)

    return objective


def _grid_width(steps: int, tilt: float, epsilon: float, accuracy: float) -> float:
    """The width at which the chords cost at most this part of epsilon.

    Splitting a loss between grid points a width apart multiplies ``E exp(tilt * loss)`` by at most about
    ``1 + tilt (1 + tilt) width^2/8``, which moves epsilon by ``steps (1 + tilt) width^2/8``.
    """
    return math.sqrt(8 * accuracy * epsilon / (steps * (1 + tilt)))


def _single_epsilon(profile: _Profile, delta: float) -> float:
    """Epsilon at delta of one step, from its exact profile."""
    goal = delta / (1 + _SLACK)
    if profile.delta(0.0) <= goal:
        return 0.0
    low, high = 0.0, _reach(profile.above, goal)
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if profile.delta(middle) <= goal else (middle, high)
    return high


def _composed_epsilon(
    profile: _Profile, steps: int, delta: float, accuracy: float = _ACCURACY, enough: float = 0.0
) -> float:
    """Epsilon at delta of ``steps`` adaptive repetitions of a step with this profile, rounded up.

    Answers below ``enough`` need not be accurate: there any bound will do.
    """
    if steps == 1:
        return _single_epsilon(profile, delta)
    low, high = profile.span(_SLACK * delta / steps, 1e-14 / steps)
    objective = _renyi_epsilon(steps, delta)
    step = _discretise(profile, (high - low) / _FEW_CELLS, low, high)
    result, tilt = round_up(steps * profile.ceiling), None
    for _ in range(5):
        tilt = _best_tilt(step, objective, tilt)
        near = max(objective(tilt, step.log_moment(tilt)), 0.0)
        result = min(result, _compose(step, steps, tilt, math.log(delta)).epsilon(delta, near))
        scale = max(result, 0.1 / tilt)  # below that a relative error of epsilon means nothing
        width = _grid_width(steps, tilt, scale, accuracy)
        if step.width <= 1.1 * width or result <= enough:
            break
        step = _refine(profile, step, steps, tilt, width, low, high)
    return result


def _refine(profile: _Profile, step: _Step, steps: int, tilt: float, width: float, low: float, high: float) -> _Step:
    """The step on a finer grid that begins where losses stop mattering under the tilt."""
    low = max(low, (step.log_moment(tilt) + math.log(_SLACK / steps)) / tilt)
    return _discretise(profile, max(width, (high - low) / _MOST_CELLS), low, high)


def _composed_delta(profile: _Profile, steps: int, epsilon: float) -> float:
    """Delta at epsilon of ``steps`` adaptive repetitions of a step with this profile, rounded up."""
    if steps == 1:
        return min(1.0, (1 + _SLACK) * profile.delta(epsilon))
    if epsilon >= round_up(steps * profile.ceiling):
        return 0.0
    objective = _chernoff_log_delta(steps, epsilon)
    result, log_guess = 1.0, math.log(1e-12)
    for _ in range(6):
        low, high = profile.span(_SLACK * math.exp(log_guess) / steps, 1e-14 / steps)
        step = _discretise(profile, (high - low) / _FEW_CELLS, low, high)
        tilt = _best_tilt(step, objective)
        for _ in range(2):  # the coarse grid may misjudge the tilt
            tilt = _best_tilt(step, objective, tilt)
            width = _grid_width(steps, tilt, max(epsilon, 0.1 / tilt), _ACCURACY)
            if step.width > width:
                step = _refine(profile, step, steps, tilt, width, low, high)
        result = min(result, _compose(step, steps, tilt, log_guess).delta(epsilon))
        if result > 0.5 * math.exp(log_guess) or log_guess < -680:
            break
        # what was cut off may be most of it: cut off less
        log_guess = max(min(objective(tilt, step.log_moment(tilt)), 2 * log_guess), -690.0)
    return result


# --- Poisson samples


def _check_step(noise_multiplier: float, sample_prob: float, steps: int) -> None:
    require(
        0 < noise_multiplier < math.inf,
        "noise_multiplier",
        noise_multiplier,
        "Pass the standard deviation of the noise on the sum divided by the bound on one message, above 0.",
    )
    _check_sampling(sample_prob, steps)


def _check_sampling(sample_prob: float, steps: int) -> None:
    require(0 < sample_prob <= 1, "sample_prob", sample_prob, "Pass a probability above 0, at most 1.")
    _check_steps(steps)


def _check_steps(steps: int) -> None:
    whole = not isinstance(steps, bool) and isinstance(steps, int | np.integer) and steps >= 1
    require(whole, "steps", steps, "Pass a whole number of at least 1.")


def _check_delta(delta: float) -> None:
    require(0 < delta < 1, "delta", delta, "Pass a probability between 0 and 1, for example 1e-6.")


def _check_adjacency(adjacency: str) -> None:
    require(adjacency in ("zero-out", "replace-one"), "adjacency", adjacency, "Choose 'zero-out' or 'replace-one'.")


def _shift(adjacency: Adjacency) -> int:
    """How far one item can move the sum when it is sampled, in units of the bound."""
    return 1 if adjacency == "zero-out" else 2


def _ever_sampled(sample_prob: float, steps: int) -> float:
    """Probability that one item is in at least one of the samples, rounded up."""
    return round_up(-math.expm1(steps * math.log1p(-sample_prob)), 1e-12)


def _poisson_profiles(noise_multiplier: float, sample_prob: float, adjacency: Adjacency) -> list[_Profile]:
    if adjacency == "replace-one":
        return [_antipodal_profile(1 / noise_multiplier, sample_prob)]
    remove = _remove_profile(1 / noise_multiplier, sample_prob)
    return [remove, remove.reversed()]


def poisson_epsilon(
    noise_multiplier: float,
    sample_prob: float,
    steps: int,
    delta: float,
    adjacency: Adjacency = "zero-out",
) -> float:
    """Epsilon at delta of Gaussian sums over secret Poisson samples, released one after the other.

    Every item is in a step's sample with probability ``sample_prob``, independently of all else and never
    revealed; a step releases the sum of the sampled messages, each of norm at most ``bound``, plus
    ``N(0, (noise_multiplier * bound)^2 I)``. Then the ``steps`` releases together are (epsilon, delta)-DP for one
    item's presence (zero-out) or value (replace-one). Proved; rounded up, by about 1e-4 of epsilon.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise on the *sum* divided by the norm bound of one message.
    sample_prob : float
        Probability of being sampled; 1 is the Gaussian mechanism, answered exactly.
    steps : int
        Number of releases.
    delta : float
        Between 0 and 1. Below 1e-15 the bound stays one but may be looser.
    adjacency : "zero-out" or "replace-one"
    """
    _check_step(noise_multiplier, sample_prob, steps)
    _check_delta(delta)
    _check_adjacency(adjacency)
    return _poisson_epsilon(noise_multiplier, sample_prob, int(steps), delta, adjacency, _ACCURACY)


def _poisson_epsilon(
    noise_multiplier: float, sample_prob: float, steps: int, delta: float, adjacency: Adjacency, accuracy: float
) -> float:
    unsampled = gdp_epsilon(round_up(_shift(adjacency) * math.sqrt(steps) / noise_multiplier), delta)
    if sample_prob == 1 or unsampled == 0:
        return unsampled
    if _ever_sampled(sample_prob, steps) <= delta:
        return 0.0  # the two worlds differ only if the item is ever sampled
    epsilon = 0.0
    for profile in _poisson_profiles(noise_multiplier, sample_prob, adjacency):
        epsilon = max(epsilon, _composed_epsilon(profile, steps, delta, accuracy, epsilon))
    return min(unsampled, epsilon)


def poisson_delta(
    noise_multiplier: float,
    sample_prob: float,
    steps: int,
    epsilon: float,
    adjacency: Adjacency = "zero-out",
) -> float:
    """Delta at epsilon of Gaussian sums over secret Poisson samples; the setting is `poisson_epsilon`'s.

    Rounded up, to what an epsilon about 1e-4 of itself smaller would need.

    Parameters
    ----------
    noise_multiplier, sample_prob, steps, adjacency
        As for `poisson_epsilon`.
    epsilon : float
        At least 0.
    """
    _check_step(noise_multiplier, sample_prob, steps)
    _check_adjacency(adjacency)
    require(0 <= epsilon < math.inf, "epsilon", epsilon, "Pass a finite number of at least 0.")
    unsampled = gdp_delta(round_up(_shift(adjacency) * math.sqrt(steps) / noise_multiplier), epsilon)
    if sample_prob == 1:
        return unsampled
    profiles = _poisson_profiles(noise_multiplier, sample_prob, adjacency)
    sampled = max(_composed_delta(profile, int(steps), epsilon) for profile in profiles)
    return min(unsampled, sampled, _ever_sampled(sample_prob, steps))


def poisson_noise(
    epsilon: float,
    delta: float,
    sample_prob: float,
    steps: int,
    adjacency: Adjacency = "zero-out",
) -> float:
    """Noise multiplier that spends a budget on Gaussian sums over secret Poisson samples.

    The result meets ``poisson_epsilon(result, sample_prob, steps, delta, adjacency) <= epsilon``, and leaves at
    most 0.1% of epsilon unspent.

    Parameters
    ----------
    epsilon, delta : float
        The budget: epsilon above 0, delta between 0 and 1.
    sample_prob, steps, adjacency
        As for `poisson_epsilon`.
    """
    require(0 < epsilon < math.inf, "epsilon", epsilon, "Pass a positive number, for example 1.0.")
    _check_delta(delta)
    _check_sampling(sample_prob, steps)
    _check_adjacency(adjacency)
    shift, total = _shift(adjacency), gdp_mu(epsilon, delta)
    if sample_prob == 1:
        multiplier = shift * math.sqrt(steps) / total
        while gdp_epsilon(round_up(shift * math.sqrt(steps) / multiplier), delta) > epsilon:
            multiplier = round_up(multiplier)
        return multiplier
    ever = _ever_sampled(sample_prob, steps)
    require(
        ever > delta,
        "delta",
        delta,
        f"An item is sampled at all with probability {ever:.3g}, so no noise would meet this budget on paper and "
        "expose whoever is sampled. Pass a delta well below that.",
    )

    def evaluate(multiplier: float, accuracy: float) -> float:
        return _poisson_epsilon(multiplier, sample_prob, int(steps), delta, adjacency, accuracy)

    # the central limit: mu = shift * q * sqrt(steps (exp(1/multiplier^2) - 1))
    guess = 1 / math.sqrt(math.log1p((total / (shift * sample_prob)) ** 2 / steps))
    rough, slope = _solve_multiplier(lambda noise: evaluate(noise, _ROUGH), epsilon, guess, -1.0, 0.004)
    return _solve_multiplier(lambda noise: evaluate(noise, _ACCURACY), epsilon, rough, slope, 0.0004)[0]


def _solve_multiplier(
    evaluate: Callable[[float], float], epsilon: float, guess: float, slope: float, waste: float
) -> tuple[float, float]:
    """A multiplier whose evaluated epsilon, falling in it, is at most epsilon and short of it by ``waste`` at most.

    Secant steps on logarithms inside a bracket, halving the bracket whenever one would leave it. Begins with a
    guess of the multiplier and of the slope, and returns both.
    """
    low, high = -math.inf, math.inf  # log multipliers that spend too much, and that do not
    at = math.log(guess)
    previous: tuple[float, float] | None = None
    for _ in range(80):
        spent = evaluate(math.exp(at))
        excess = math.log(spent / epsilon) if 0 < spent < math.inf else math.copysign(math.inf, spent - epsilon)
        if -waste <= excess <= 0:
            return math.exp(at), slope
        low, high = (at, high) if excess > 0 else (low, at)
        if previous is not None and math.isfinite(excess):
            slope = min((excess - previous[1]) / (at - previous[0]), -0.05)
        previous = (at, excess) if math.isfinite(excess) else None
        following = at + min(max(-(excess + 0.4 * waste) / slope, -1.0), 1.0)
        if not low < following < high:
            following = (low + high) / 2
        if high - low < 1e-6:
            break
        at = following
    return math.exp(high), slope


def poisson_pld(
    noise_multiplier: float,
    sample_prob: float,
    steps: int,
    *,
    adjacency: Adjacency = "zero-out",
    delta: float = 1e-6,
    target_epsilon: float | None = None,
) -> Any:
    """The privacy-loss distribution as an object of dp-accounting, to compose with mechanisms of its own.

    dp-accounting's own discretisation and composition of the same pairs. Its Fourier transform is not tilted:
    its rounding is relative to 1, so that at a delta below 1e-10 its epsilon may come out too small (by 1% at
    1e-12 and ten thousand steps). Use `poisson_epsilon` for the numbers of a guarantee.

    Parameters
    ----------
    noise_multiplier, sample_prob, steps, adjacency
        As for `poisson_epsilon`.
    delta, target_epsilon : float
        Where the distribution will be read; the grid is scaled to them. Without ``target_epsilon`` it is
        `poisson_epsilon` at this delta.
    """
    _check_step(noise_multiplier, sample_prob, steps)
    _check_delta(delta)
    _check_adjacency(adjacency)
    from dp_accounting import NeighboringRelation  # slow to import, and rarely needed
    from dp_accounting.pld import privacy_loss_distribution

    epsilon = target_epsilon
    if epsilon is None:
        epsilon = poisson_epsilon(noise_multiplier, sample_prob, steps, delta, adjacency)
    require(0 < epsilon < math.inf, "target_epsilon", epsilon, "Pass the epsilon, above 0, to be read off.")
    tilt = 2 * math.log(1 / delta) / epsilon  # about the best one for a Gaussian loss
    relations = {"zero-out": "ADD_OR_REMOVE_ONE", "replace-one": "REPLACE_ONE"}
    step = privacy_loss_distribution.from_gaussian_mechanism(
        noise_multiplier,
        sampling_prob=sample_prob,
        neighboring_relation=NeighboringRelation[relations[adjacency]],
        value_discretization_interval=_grid_width(int(steps), tilt, epsilon, _ACCURACY),
        pessimistic_estimate=True,
    )
    return step.self_compose(int(steps))


# --- Renyi divergences beside it


def poisson_rdp(noise_multiplier: float, sample_prob: float, alpha: float) -> float:
    """Renyi divergence of order alpha of one Poisson-sampled Gaussian sum, zero-out.

    ``log A(alpha) / (alpha - 1)`` with ``A = E_{x ~ N(0, s^2)} (1-q + q exp((2x-1)/(2 s^2)))^alpha``, s the
    noise multiplier: the larger of the two directions (Mironov, Talwar and Zhang 2019, Theorem 5). Whole orders
    by the binomial sum, orders below 32 by a trapezoidal rule that is accurate to rounding, others by the
    chord of the convex function ``(alpha - 1) rdp(alpha)``, which is a bound. Never above the unsampled
    ``alpha/(2 s^2)``, which stands in for orders above 10,000.
    """
    _check_step(noise_multiplier, sample_prob, 1)
    require(1 < alpha < math.inf, "alpha", alpha, "Renyi orders are above 1: pass for example alpha=2.0.")
    unsampled = round_up(alpha / (2 * noise_multiplier**2))
    if sample_prob == 1 or alpha > _LARGEST_ORDER:
        return unsampled
    return min(unsampled, _at_any_order(lambda order: _poisson_log_moment(noise_multiplier, sample_prob, order), alpha))


def _at_any_order(log_moment: Callable[[float], float | None], alpha: float) -> float:
    """``log_moment(alpha)/(alpha-1)`` rounded up, by the chord between whole orders where it is not known."""
    value = log_moment(alpha)
    if value is None:
        below, above = float(math.floor(alpha)), float(math.floor(alpha) + 1)
        left, right = log_moment(below) if below > 1 else 0.0, log_moment(above)
        assert left is not None
        assert right is not None
        value = left + (alpha - below) * (right - left)
    return round_up(max(value, 0.0) / (alpha - 1), 1e-9)


def _poisson_log_moment(noise: float, prob: float, alpha: float) -> float | None:
    """``log A(alpha)``, or None at orders that are neither whole nor small.

    From ``A - 1``, which keeps its digits however small: the first two terms of the binomial sum make up the 1,
    and under the integral ``1 + alpha (m - 1)`` does, m the mixture's ratio, of mean 1, to the plain normal.
    """
    if alpha == math.floor(alpha):
        count = np.arange(2.0, alpha + 1)
        rise = count * (count - 1) / (2 * noise**2)
        terms = (
            _log_binomial(alpha, count)
            + count * math.log(prob)
            + (alpha - count) * math.log1p(-prob)
            + rise
            + np.log(-np.expm1(-rise))
        )
        return float(np.logaddexp(0.0, special.logsumexp(terms)))
    width = noise * min(0.25, 0.5 * noise)
    size = (alpha + 26 * noise) / width
    if alpha > 32 or size > 1e6:
        return None
    points = np.arange(math.ceil(size), dtype=np.float64) * width - 13 * noise
    ratio = np.logaddexp(math.log1p(-prob), math.log(prob) + (points - 0.5) / noise**2)
    small = np.minimum(ratio, 20 / alpha)
    excess = np.log(np.maximum(np.expm1(alpha * small) - alpha * np.expm1(small), 1e-300))
    large = np.maximum(ratio, 20 / alpha)
    beyond = alpha * large + np.log1p((alpha - 1) * np.exp(-alpha * large) - alpha * np.exp((1 - alpha) * large))
    density = -0.5 * (points / noise) ** 2 - math.log(noise * math.sqrt(2 * math.pi))
    total = special.logsumexp(np.where(ratio < 20 / alpha, excess, beyond) + density) + math.log(width)
    return float(np.logaddexp(0.0, total))


def _log_binomial(total: float, chosen: Array) -> Array:
    whole: Array = special.gammaln(total + 1) - special.gammaln(chosen + 1) - special.gammaln(total - chosen + 1)
    return whole


def poisson_rdp_epsilon(noise_multiplier: float, sample_prob: float, steps: int, delta: float) -> float:
    """Epsilon at delta, zero-out, through `poisson_rdp`: for comparison, never below `poisson_epsilon`'s truth."""
    _check_step(noise_multiplier, sample_prob, steps)
    _check_delta(delta)
    return rdp_epsilon(lambda alpha: steps * poisson_rdp(noise_multiplier, sample_prob, alpha), delta)


# --- samples of a fixed size


def _check_sample(sample_size: int, items: int) -> None:
    whole = all(isinstance(count, int | np.integer) and not isinstance(count, bool) for count in (sample_size, items))
    require(
        whole and 1 <= sample_size <= items,
        "sample_size of items",
        f"{sample_size} of {items}",
        "Pass whole numbers, at least one item in the sample and no more than there are.",
    )


def fixed_size_rdp(noise_multiplier: float, sample_size: int, items: int, alpha: float) -> float:
    """Renyi divergence of order alpha of one Gaussian sum over a uniform sample of fixed size.

    The sample of ``sample_size`` items is drawn without replacement and never revealed; ``gamma`` is its part of
    the items. With ``eps(j) = 2 j / noise_multiplier^2`` the divergence of the unsampled sum, in which a
    replaced message moves by twice its bound, at whole orders

        1/(alpha-1) log(1 + gamma^2 C(alpha,2) min(4 (e^eps(2) - 1), 2 e^eps(2))
                          + 2 sum_{j=3}^alpha gamma^j C(alpha,j) e^((j-1) eps(j)))

    (Wang, Balle and Kasiviswanathan 2019, Theorem 9, a Gaussian's divergence of infinite order being infinite);
    between them the chord of ``(alpha - 1) rdp`` (their Corollary 10); never above ``eps(alpha)``. Replace-one, at
    the level of whole items, for messages that do not depend on state kept by the items. The same number holds
    for zero-out and is not to be halved there: the item that fills the place of an unsampled one moves too.
    """
    _check_step(noise_multiplier, 1.0, 1)
    _check_sample(sample_size, items)
    require(1 < alpha < math.inf, "alpha", alpha, "Renyi orders are above 1: pass for example alpha=2.0.")
    unsampled = round_up(2 * alpha / noise_multiplier**2)
    if sample_size == items or alpha > _LARGEST_ORDER:
        return unsampled
    part = sample_size / items
    return min(unsampled, _at_any_order(lambda order: _fixed_size_log_moment(noise_multiplier, part, order), alpha))


def _fixed_size_log_moment(noise: float, part: float, alpha: float) -> float | None:
    if alpha != math.floor(alpha):
        return None
    order = np.arange(2.0, alpha + 1)
    terms = math.log(2) + order * (order - 1) * 2 / noise**2  # (j-1) eps(j)
    pair = 4 / noise**2  # eps(2)
    terms[0] = min(math.log(4) + pair + math.log(-math.expm1(-pair)), math.log(2) + pair)
    terms += order * math.log(part) + _log_binomial(alpha, order)
    return float(np.logaddexp(0.0, special.logsumexp(terms)))


def fixed_size_epsilon(
    noise_multiplier: float,
    sample_size: int,
    items: int,
    steps: int,
    delta: float,
    method: FixedSizeMethod = "renyi",
) -> float:
    """Epsilon at delta of Gaussian sums over secret samples of a fixed size; the setting is `fixed_size_rdp`'s.

    ``"renyi"``: the smaller of `fixed_size_rdp` converted and of no amplification at all,
    ``mu = 2 sqrt(steps)/noise_multiplier``. ``"profile"``: composition of the profile

        max(H((1-g) N(0) + g N(2) || N(0)), H(N(0) || (1-g) N(0) + g N(2))),  g = sample_size/items,

    of noise ``noise_multiplier``, which dominates one step (Zhu, Dong and Wang 2022; the argument of this module's
    description with ``|v| <= 2``, v and w being measured from the item that fills the place) and is never larger
    than the unsampled one: much smaller numbers, by the same means as `poisson_epsilon`. Both hold for
    replace-one and zero-out, at the level of whole items, without state kept by the items.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise on the *sum* divided by the norm bound of one message.
    sample_size, items : int
        Size of every sample, and public number of items.
    steps : int
        Number of releases, each with its own sample.
    delta : float
        Between 0 and 1.
    method : "renyi" or "profile"
    """
    _check_step(noise_multiplier, 1.0, steps)
    _check_sample(sample_size, items)
    _check_delta(delta)
    require(method in ("renyi", "profile"), "method", method, "Choose 'renyi' or 'profile'.")
    unsampled = gdp_epsilon(round_up(2 * math.sqrt(steps) / noise_multiplier), delta)
    if sample_size == items or unsampled == 0:
        return unsampled
    if method == "profile":
        profile = _two_way_profile(2 / noise_multiplier, sample_size / items)
        return min(unsampled, _composed_epsilon(profile, int(steps), delta))
    sampled = rdp_epsilon(lambda alpha: steps * fixed_size_rdp(noise_multiplier, sample_size, items, alpha), delta)
    return min(unsampled, sampled)
