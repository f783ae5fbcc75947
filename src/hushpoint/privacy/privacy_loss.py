"""Privacy-loss distributions of one step, and their composition.

One step's pair is replaced by the discrete pair on a grid of losses whose privacy
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

import numpy as np
from scipy import fft, special

from hushpoint._types import Array
from hushpoint.privacy.gaussian import round_up

ACCURACY = 1e-4  # part of epsilon that the grid of losses may cost
ROUGH = 2e-3  # the same while calibration is still far from its answer
_SLACK = 1e-7  # part of delta given to each truncation, and to rounding
_FOLDED = 1e-17  # part of the tilted law that the Fourier transform may fold over, on either side
_MOST_CELLS = 2**21
_WIDEST = 300.0  # of a cell of the grid, in nats: e^loss must be a number
_FEW_CELLS = 2**10
_LONG_WINDOW = 2**19
_LONGEST_WINDOW = 2**23
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
class Profile:
    """One step's pair: ``delta(e^loss)`` for losses of at least 0, and ``delta - (1 - e^loss)`` below 0.

    The second is the same curve without the part that every pair has, which would drown it in rounding.
    """

    above: Callable[[Array], Array]
    below: Callable[[Array], Array]
    floor: float = -math.inf  # no loss is smaller
    ceiling: float = math.inf  # no loss is larger

    def reversed(self) -> Profile:
        """The profile of the pair with its two worlds exchanged."""
        return Profile(
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


def remove_profile(mu: float, prob: float) -> Profile:
    """``(1-q) N(0) + q N(mu)`` against ``N(0)``: ``q`` times the Gaussian profile at the unsampled loss."""

    floor = math.log1p(-prob) if prob < 1 else -math.inf

    def below(loss: Array) -> Array:
        behind = _unsampled_loss(loss, prob)
        return np.where(loss > floor, prob * np.exp(behind) * _gaussian_profile(mu, -behind), 0.0)

    return Profile(lambda loss: prob * _gaussian_profile(mu, _unsampled_loss(loss, prob)), below, floor)


def antipodal_profile(mu: float, prob: float) -> Profile:
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

    return Profile(above, lambda loss: np.exp(loss) * above(-loss))


def two_way_profile(mu: float, prob: float) -> Profile:
    """The larger of the remove pair's profile and its reverse: the first above 0, the second below."""
    above = remove_profile(mu, prob).above
    return Profile(above, lambda loss: np.exp(loss) * above(-loss))


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


def _discretise(profile: Profile, width: float, low: float, high: float) -> _Step:
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


def _grid_width(steps: int, tilt: float, epsilon: float, accuracy: float) -> float:
    """The width at which the chords cost at most this part of epsilon.

    Splitting a loss between grid points a width apart multiplies ``E exp(tilt * loss)`` by at most about
    ``1 + tilt (1 + tilt) width^2/8``, which moves epsilon by ``steps (1 + tilt) width^2/8``.
    """
    return math.sqrt(8 * accuracy * epsilon / (steps * (1 + tilt)))


def _single_epsilon(profile: Profile, delta: float) -> float:
    """Epsilon at delta of one step, from its exact profile."""
    goal = delta / (1 + _SLACK)
    if profile.delta(0.0) <= goal:
        return 0.0
    low, high = 0.0, _reach(profile.above, goal)
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if profile.delta(middle) <= goal else (middle, high)
    return high


def composed_epsilon(
    profile: Profile, steps: int, delta: float, accuracy: float = ACCURACY, enough: float = 0.0
) -> float:
    """Epsilon at delta of ``steps`` adaptive repetitions of a step with this profile, rounded up.

    Answers below ``enough`` need not be accurate: there any bound will do.
    """
    if steps == 1:
        return _single_epsilon(profile, delta)
    low, high = profile.span(_SLACK * delta / steps, 1e-14 / steps)
    if (high - low) / _FEW_CELLS > _WIDEST:
        return math.inf  # with next to no noise; the bound without amplification, which callers have, is as good

    def renyi_epsilon(tilt: float, log_moment: float) -> float:  # the tilt is the Renyi order less one
        return (steps * log_moment - math.log(delta) - math.log1p(tilt)) / tilt - math.log1p(1 / tilt)

    step = _discretise(profile, (high - low) / _FEW_CELLS, low, high)
    result, tilt = round_up(steps * profile.ceiling), None
    for _ in range(5):
        tilt = _best_tilt(step, renyi_epsilon, tilt)
        near = max(renyi_epsilon(tilt, step.log_moment(tilt)), 0.0)
        result = min(result, _compose(step, steps, tilt, math.log(delta)).epsilon(delta, near))
        scale = max(result, 0.1 / tilt)  # below that a relative error of epsilon means nothing
        width = _grid_width(steps, tilt, scale, accuracy)
        if step.width <= 1.1 * width or result <= enough:
            break
        # a finer grid, which begins where losses stop mattering under the tilt
        start = max(low, (step.log_moment(tilt) + math.log(_SLACK / steps)) / tilt)
        step = _discretise(profile, max(width, (high - start) / _MOST_CELLS), start, high)
    return result
