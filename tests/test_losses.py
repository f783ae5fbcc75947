"""Losses: the prox is certified, the constants are true, and truncation is clipping (theory 3c)."""

import json
from dataclasses import dataclass
from typing import ClassVar

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from hushpoint import losses
from hushpoint.losses import Absolute, Huber, Logistic, Loss, Quantile, SmoothedHinge, Squared, Truncated

fixed = settings(derandomize=True, deadline=None, max_examples=30)


@dataclass(frozen=True)
class LogCosh(Loss):
    """A newcomer's loss: three methods and two constants."""

    name: ClassVar[str] = "log_cosh of these tests"
    lipschitz: ClassVar[float] = 1.0
    smoothness: ClassVar[float] = 1.0

    def value(self, t, b):
        return np.logaddexp(t - b, b - t) - np.log(2.0)

    def derivative(self, t, b):
        return np.tanh(t - b)

    def curvature(self, t, b):
        return 1.0 - np.tanh(t - b) ** 2


@dataclass(frozen=True)
class Linear(Loss):
    """``3 t``: its derivative is never within a limit below 3."""

    lipschitz: ClassVar[float] = 3.0

    def value(self, t, b):
        return 3.0 * t + 0.0 * b

    def derivative(self, t, b):
        return np.full(np.broadcast_shapes(np.shape(t), np.shape(b)), 3.0)

    def curvature(self, t, b):
        return np.zeros(np.broadcast_shapes(np.shape(t), np.shape(b)))


class PlainLogistic(Logistic):
    """Logistic without its own starting point and shared work: only what a newcomer writes."""

    _slopes = Loss._slopes
    _prox_start = Loss._prox_start
    inverse_derivative = Loss.inverse_derivative


class PlainAbsolute(Absolute):
    """Absolute without its closed forms: the general solver on a derivative that jumps."""

    prox = Loss.prox
    inverse_derivative = Loss.inverse_derivative


BUILT_IN = [
    Squared(),
    Logistic(),
    Huber(),
    Huber(0.1),
    SmoothedHinge(),
    SmoothedHinge(2.0),
    Absolute(),
    Quantile(),
    Quantile(0.9),
    Quantile(0.1, smoothing=0.3),
]
LOSSES = [*BUILT_IN, LogCosh(), PlainLogistic(), PlainAbsolute()]
TRUNCATED = [loss.truncated(0.3) for loss in LOSSES]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=repr)
every_truncated = pytest.mark.parametrize("loss", TRUNCATED, ids=repr)
every_loss_and_truncated = pytest.mark.parametrize("loss", LOSSES + TRUNCATED, ids=repr)


def targets(loss, size, seed=0):
    rng = np.random.default_rng(seed)
    return rng.choice([-1.0, 1.0], size) if loss.labels == "two-class" else rng.normal(0.0, 2.0, size)


def extremes():
    """Every sign and size of margin from 1e-6 to 1e6 with every prox step from 1e-8 to 1e8."""
    sizes = 10.0 ** np.linspace(-6, 6, 37)
    margins = np.concatenate([-sizes, [0.0], sizes])
    v, scale = np.meshgrid(margins, 10.0 ** np.linspace(-8, 8, 33))
    return v.ravel(), scale.ravel()


def certified(loss, t, v, b, scale, tolerance):
    """Whether the solution of ``t - v + scale phi'(t) = 0`` lies within tolerance; exact, also at kinks.

    The left side increases strictly, so the solution is where its sign changes.
    """
    below = t - tolerance - v + scale * loss.derivative(t - tolerance, b)
    above = t + tolerance - v + scale * loss.derivative(t + tolerance, b)
    return (below <= 0) & (above >= 0)


# --- prox ---------------------------------------------------------------------------------------------------


@every_loss_and_truncated
def test_prox_meets_its_optimality_condition_at_extreme_scales(loss):
    # Newton that cycles or stops early on the flat far side of the logistic, a wrong branch of a closed form,
    # or an absolute tolerance at |v| = 1e6 would all break this.
    v, scale = extremes()
    b = targets(loss, v.size)
    t = loss.prox(v, b, scale)
    tolerance = 1e-12 * (1.0 + np.abs(v) + np.abs(t))
    assert np.all(certified(loss, t, v, b, scale, tolerance))
    assert not np.any(certified(loss, t + 3 * tolerance, v, b, scale, tolerance))


def logistic_prox_in_high_precision(v, b, scale):
    with mpmath.workdps(50):
        v, b, scale = mpmath.mpf(v), mpmath.mpf(b), mpmath.mpf(scale)
        low, high = sorted([v, v + b * scale])
        for _ in range(140):
            middle = (low + high) / 2
            if middle - v - scale * b / (1 + mpmath.exp(b * middle)) < 0:
                low = middle
            else:
                high = middle
        return float((low + high) / 2)


@pytest.mark.parametrize("loss", [Logistic(), PlainLogistic()], ids=repr)
def test_logistic_prox_agrees_with_fifty_digits(loss):
    # The optimality test shares the loss's own derivative; this one shares nothing with it.
    rng = np.random.default_rng(1)
    v = rng.choice([-1.0, 1.0], 120) * 10.0 ** rng.uniform(-3, 6, 120)
    scale = 10.0 ** rng.uniform(-8, 8, 120)
    v[:30], scale[:30] = 3 * rng.normal(size=30), 10.0 ** rng.uniform(-2, 2, 30)
    b = targets(loss, 120)
    exact = np.array([logistic_prox_in_high_precision(*entry) for entry in zip(v, b, scale, strict=True)])
    assert np.all(np.abs(loss.prox(v, b, scale) - exact) <= 1e-12 * (1.0 + np.abs(v)))


@every_loss_and_truncated
def test_prox_broadcasts_and_leaves_the_centre_where_the_scale_is_zero(loss):
    # A row of zeros has scale 0: 0/0 or 0*inf in a closed form would put nan into the model.
    v = np.linspace(-3.0, 3.0, 7)[:, None]
    b = targets(loss, 4)
    scale = np.array([0.0, 0.5, 2.0, 0.0])
    t = loss.prox(v, b, scale)
    assert t.shape == (7, 4)
    assert np.array_equal(t[:, [0, 3]], np.broadcast_to(v, (7, 2)))
    one_by_one = [[float(loss.prox(v[i], b[j], scale[j])[0]) for j in range(4)] for i in range(7)]
    assert np.allclose(t, one_by_one, rtol=0, atol=1e-12)


def test_prox_does_not_depend_on_the_length_of_the_array():
    # The solver works chunk by chunk and drops finished entries: an off-by-one there mixes up rows.
    rng = np.random.default_rng(2)
    size = 2 * losses._CHUNK + 17
    v, b = 5 * rng.normal(size=size), targets(Logistic(), size)
    scale = 10.0 ** rng.uniform(-3, 3, size)
    backwards = Logistic().prox(v[::-1], b[::-1], scale[::-1])[::-1]
    assert np.allclose(Logistic().prox(v, b, scale), backwards, rtol=0, atol=1e-11)
    picked = rng.integers(size, size=50)
    alone = [float(Logistic().prox(v[[i]], b[[i]], scale[[i]])[0]) for i in picked]
    assert np.allclose(Logistic().prox(v, b, scale)[picked], alone, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("kind", "most"), [(Logistic, 10), (PlainLogistic, 30)])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 17.0, 30.0, 100.0, 1e4, 1e8])
def test_logistic_prox_takes_few_steps(kind, most, scale):
    # From a poor start Newton creeps one unit a step for large scales, and cycles for those around 20 until
    # nothing but bisection is left: 87 steps.
    evaluations = []

    class Counting(kind):
        def _slopes(self, t, b):
            evaluations.append(t.size)
            return super()._slopes(t, b)

    v = 3 * np.random.default_rng(3).normal(size=4000)
    Counting().prox(v, targets(Logistic(), 4000), scale)
    assert 0 < len(evaluations) <= most


@pytest.mark.parametrize("wrong", [0.0, np.nan, 1e12, -1e-3])
def test_prox_is_right_even_if_the_curvature_is_wrong(wrong):
    # Stopping on a small Newton step trusts the curvature: with 1e12 it would stop at once, far away.
    class Wrong(LogCosh):
        def curvature(self, t, b):
            return np.full(np.broadcast_shapes(np.shape(t), np.shape(b)), wrong)

    v, scale = extremes()
    b = targets(LogCosh(), v.size)
    with np.errstate(all="ignore"):
        t = Wrong().prox(v, b, scale)
    assert np.all(certified(LogCosh(), t, v, b, scale, 1e-12 * (1.0 + np.abs(v) + np.abs(t))))


def test_prox_of_nan_is_nan_and_spares_the_neighbours():
    # A nan that never counts as converged would loop to the end, or spread through a shared stopping rule.
    t = Logistic().prox(np.array([0.5, np.nan, -2.0]), np.array([1.0, 1.0, -1.0]), 3.0)
    assert np.isnan(t[1])
    assert np.allclose(t[[0, 2]], Logistic().prox(np.array([0.5, -2.0]), np.array([1.0, -1.0]), 3.0))


@every_loss_and_truncated
@fixed
@given(
    v=st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=2),
    target=st.floats(-10, 10),
    scale=st.floats(1e-6, 1e6),
)
def test_prox_is_firmly_non_expansive(loss, v, target, scale):
    # |Tv - Tw|^2 <= (Tv - Tw)(v - w): in one dimension, increasing and never faster than the centre.
    b = np.copysign(1.0, target) if loss.labels == "two-class" else target
    v = np.sort(np.array(v))
    moved = np.diff(loss.prox(v, np.full(2, b), scale))[0]
    slack = 1e-11 * (1.0 + np.abs(v).max())
    assert -slack <= moved <= np.diff(v)[0] + slack


# --- value, derivative, curvature ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "t", "b", "value", "slope"),
    [
        (Squared(), 3.0, 1.0, 2.0, 2.0),
        (Logistic(), 0.0, 1.0, np.log(2.0), -0.5),
        (Logistic(), -800.0, 1.0, 800.0, -1.0),  # exp(800) overflows
        (Logistic(), -800.0, -1.0, 0.0, 0.0),
        (Huber(2.0), 1.0, 0.0, 0.5, 1.0),
        (Huber(2.0), -5.0, 0.0, 8.0, -2.0),
        (SmoothedHinge(0.5), 1.2, 1.0, 0.0, 0.0),
        (SmoothedHinge(0.5), 0.75, 1.0, 0.0625, -0.5),
        (SmoothedHinge(0.5), -1.0, 1.0, 1.75, -1.0),
        (SmoothedHinge(0.5), 1.0, -1.0, 1.75, 1.0),
        (Absolute(), 1.0, 4.0, 3.0, -1.0),
        (Absolute(), 4.0, 4.0, 0.0, 0.0),
        (Quantile(0.9), 0.0, 1.0, 0.9, -0.9),  # below the target: level times the residual
        (Quantile(0.9), 1.0, 0.0, 0.1, 0.1),
        (Quantile(0.9, smoothing=0.5), 0.0, 1.0, 0.9 - 0.25 * 0.81, -0.9),
        (Quantile(0.9, smoothing=0.5), 0.02, 0.0, 0.0004, 0.04),
    ],
)
def test_values_by_hand(loss, t, b, value, slope):
    # Consistent derivatives would not notice a loss of the wrong sign, label or side of the quantile.
    assert np.isclose(loss.value(np.array(t), np.array(b)), value, rtol=1e-14, atol=1e-15)
    assert np.isclose(loss.derivative(np.array(t), np.array(b)), slope, rtol=1e-14, atol=1e-15)


@every_loss_and_truncated
@fixed
@given(t=st.floats(-30, 30), target=st.floats(-5, 5), width=st.sampled_from([1e-4, 1e-2, 1.0]))
def test_value_is_convex_and_has_this_derivative(loss, t, target, width):
    # The slope of every chord lies between the derivatives at its ends: true at kinks too, and false for a
    # derivative of another function, a concave piece, or pieces that do not join.
    b = np.copysign(1.0, target) if loss.labels == "two-class" else target
    ends = np.array([t - width, t + width])
    value, slope = loss.value(ends, np.full(2, b)), loss.derivative(ends, np.full(2, b))
    chord = (value[1] - value[0]) / (ends[1] - ends[0])
    slack = 1e-13 * (1.0 + np.abs(value).max()) / width
    assert slope[0] - slack <= chord <= slope[1] + slack


@every_loss_and_truncated
def test_curvature_is_the_derivative_of_the_derivative(loss):
    # A curvature of the wrong size slows every Newton solver down without making anything visibly wrong.
    t = np.linspace(-8.0, 8.0, 4001) + 1e-4 * np.pi
    b = targets(loss, t.size, seed=4)
    h = 1e-5
    difference = (loss.derivative(t + h, b) - loss.derivative(t - h, b)) / (2 * h)
    before, at, after = (loss.curvature(t + shift, b) for shift in (-h, 0.0, h))
    smooth = (np.abs(after - before) < 1e-3) & (difference < 1e3)  # away from kinks of the derivative
    assert smooth.mean() > 0.98
    assert np.allclose(difference[smooth], at[smooth], rtol=0, atol=1e-6)


@every_loss_and_truncated
def test_constants_are_never_exceeded_and_attained(loss):
    # A Lipschitz constant too small is a privacy bug; one too large, noise for nothing.
    t = np.concatenate([np.linspace(-60.0, 60.0, 120001), [-1e4, 1e4]])
    t.sort()
    for b in (-1.0, 1.0):
        slope = loss.derivative(t, np.full(t.size, b))
        steepness = np.diff(slope) / np.diff(t)
        assert np.abs(slope).max() <= loss.lipschitz * (1 + 1e-12)
        assert steepness.max() <= loss.smoothness * (1 + 1e-9) + 1e-9
        assert steepness.min() >= loss.strong_convexity * (1 - 1e-9) - 1e-12
        if np.isfinite(loss.lipschitz):
            assert np.abs(slope).max() >= 0.999 * loss.lipschitz
        else:
            assert np.abs(slope).max() > 9e3
        if not isinstance(loss, Truncated):  # cutting the logistic below 1/2 removes its steepest point
            assert steepness.max() >= min(0.99 * loss.smoothness, 100.0)  # infinite: it jumps


# --- inverse derivative -------------------------------------------------------------------------------------


@every_loss_and_truncated
def test_inverse_derivative_inverts(loss):
    # The truncated value is anchored there: off by a little, the pieces of the loss do not join.
    slope = np.linspace(-1.6, 1.6, 331)
    b = targets(loss, slope.size, seed=5)
    t = loss.inverse_derivative(slope, b)
    finite = np.isfinite(t)
    shift = 1e-9 * (1.0 + np.abs(t[finite]))
    below = loss.derivative(t[finite] - shift, b[finite])
    above = loss.derivative(t[finite] + shift, b[finite])
    assert np.all((below <= slope[finite] + 1e-12) & (above >= slope[finite] - 1e-12))
    far = np.full(slope.size, 1e30)
    assert np.all(loss.derivative(far, b)[t == np.inf] <= slope[t == np.inf])
    assert np.all(loss.derivative(-far, b)[t == -np.inf] >= slope[t == -np.inf])
    # Unattained means infinite, not the end of the search.
    assert np.all(np.isinf(t[np.abs(slope) > loss.lipschitz + 1e-9]))


# --- truncation ---------------------------------------------------------------------------------------------


@every_truncated
def test_truncated_agrees_with_its_base_within_the_limit(loss):
    # Equal derivatives leave the constant free; a jump of the objective between steps would show it.
    t = np.linspace(-6.0, 6.0, 2001)
    b = targets(loss, t.size, seed=6)
    slope = loss.base.derivative(t, b)
    within = np.abs(slope) <= 0.3
    assert np.array_equal(loss.derivative(t, b), np.clip(slope, -0.3, 0.3))
    assert np.allclose(loss.value(t, b)[within], loss.base.value(t, b)[within], rtol=0, atol=1e-12)
    assert np.all(loss.value(t, b) <= loss.base.value(t, b) + 1e-12)


def test_squared_truncated_is_huber():
    t, scale = extremes()
    b = targets(Squared(), t.size)
    truncated, huber = Squared().truncated(1.345), Huber(1.345)
    assert np.allclose(truncated.value(t, b), huber.value(t, b), rtol=1e-13)
    assert np.array_equal(truncated.derivative(t, b), huber.derivative(t, b))
    assert np.allclose(truncated.prox(t, b, scale), huber.prox(t, b, scale), rtol=1e-13, atol=1e-13)
    assert truncated.lipschitz == huber.lipschitz
    assert truncated.strong_convexity == 0.0  # the 1 of the squared loss does not survive its linear tails


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("seed", range(4))
def test_prox_of_the_truncated_row_is_the_clipped_prox_displacement(loss, seed):
    # Theory 3c. The left side is found without any prox of ours: a root along the row, then certified in R^p
    # by the gradient of the strongly convex objective, whose norm bounds the distance to the solution.
    rng = np.random.default_rng(seed)
    row, v = rng.normal(size=5), rng.normal(size=5) * 4
    b = np.array(targets(loss, 1, seed)[0])
    gamma, clip = 10.0 ** rng.uniform(-1, 1.5), 0.4 * np.linalg.norm(row) * rng.uniform(0.2, 1.0)

    def clipped_gradient(x):
        gradient = float(loss.derivative(np.array(row @ x), b)) * row
        return gradient * min(1.0, clip / max(np.linalg.norm(gradient), 1e-300))

    def along_row(amount):
        x = v + amount * row
        return float(row @ (x - v + gamma * clipped_gradient(x)))

    reach = 1.01 * gamma * clip / np.linalg.norm(row)
    solved = v + brentq(along_row, -reach, reach, xtol=1e-15, rtol=1e-15) * row
    if np.isfinite(loss.smoothness):
        assert np.linalg.norm(solved - v + gamma * clipped_gradient(solved)) < 1e-11

    squared = row @ row
    plain = v + row * (float(loss.prox(np.array(row @ v), b, gamma * squared)) - row @ v) / squared
    move = plain - v
    clipped = v + move * min(1.0, gamma * clip / max(np.linalg.norm(move), 1e-300))
    assert np.allclose(clipped, solved, rtol=0, atol=1e-11)

    truncated = loss.truncated(clip / np.linalg.norm(row))
    ours = v + row * (float(truncated.prox(np.array(row @ v), b, gamma * squared)) - row @ v) / squared
    assert np.allclose(ours, solved, rtol=0, atol=1e-11)


def test_clipping_to_the_wrong_length_would_be_seen():
    # The identity above is empty if nothing is ever clipped, and blind if clip and gamma clip agree.
    loss, row, v, gamma, clip = Squared(), np.array([1.0, 2.0]), np.array([9.0, 4.0]), 3.0, 0.5
    squared = row @ row
    truncated = loss.truncated(clip / np.sqrt(squared))
    moved = row * (truncated.prox(np.array(row @ v), np.array(0.0), gamma * squared) - row @ v) / squared
    assert np.isclose(np.linalg.norm(moved), gamma * clip, rtol=1e-14)


def test_truncated_takes_a_limit_per_row():
    # C / |a| is infinite for a row of zeros, whose prox step is 0: 0 * inf must not reach the model.
    limit = np.array([0.5, np.inf, 0.1])
    loss = Squared().truncated(limit)
    v, b, scale = np.array([4.0, 4.0, -4.0]), np.zeros(3), np.array([2.0, 0.0, 1.0])
    assert np.allclose(loss.derivative(v, b), [0.5, 4.0, -0.1])
    assert np.allclose(loss.value(v, b), [0.5 * 4 - 0.125, 8.0, 0.1 * 4 - 0.005])
    assert np.allclose(loss.curvature(v, b), [0.0, 1.0, 0.0])
    assert np.allclose(loss.prox(v, b, scale), [3.0, 4.0, -3.9])
    assert loss.lipschitz == np.inf
    assert loss.truncated(7.0).lipschitz == 7.0
    limit[0] = 99.0
    assert np.allclose(loss.derivative(v, b)[0], 0.5)  # a later change of the caller's array is not ours


def test_truncating_twice_takes_the_smaller_limit():
    twice = Squared().truncated(0.5).truncated(np.array([0.2, 3.0]))
    assert isinstance(twice.base, Squared)
    assert np.array_equal(twice.limit, [0.2, 0.5])


def test_an_infinite_limit_changes_nothing():
    loss = Squared().truncated(np.inf)
    t, b = np.linspace(-5, 5, 11), np.zeros(11)
    assert loss.strong_convexity == 1.0
    assert loss.lipschitz == np.inf
    assert np.array_equal(loss.value(t, b), Squared().value(t, b))
    assert np.array_equal(loss.prox(t, b, 2.0), Squared().prox(t, b, 2.0))


def test_truncating_a_derivative_that_is_never_within_the_limit():
    # A linear loss attains the sensitivity bounds, so it is what the oracles use; no point of it is kept.
    loss, t = Linear().truncated(1.0), np.array([-2.0, 0.0, 5.0])
    assert np.array_equal(loss.value(t, np.zeros(3)), t)
    assert np.array_equal(loss.prox(t, np.zeros(3), 2.0), t - 2.0)


# --- names, JSON, errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["squared", "logistic", "huber", "smoothed_hinge", "absolute", "quantile"])
def test_names_resolve(name):
    loss = losses.resolve(name)
    assert loss.name == name
    assert losses.resolve(loss) is loss
    assert (loss.labels == "two-class") is (name in ("logistic", "smoothed_hinge"))


@pytest.mark.parametrize("loss", BUILT_IN, ids=repr)
def test_json_round_trip(loss):
    # A parameter left out would come back as its default: Huber(0.1) as Huber(1.345), a plan with another L.
    text = json.dumps(loss.to_dict(), allow_nan=False)
    assert Loss.from_dict(json.loads(text)) == loss
    assert loss.to_dict()["name"] == loss.name


def test_numpy_parameters_become_json_numbers():
    assert json.dumps(Huber(np.float32(0.5)).to_dict()) == '{"name": "huber", "transition": 0.5}'


class Impostor(Huber):
    """Inherits a name that is not its own."""


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: losses.resolve("hinge"), ValueError, r"'hinge'.*'squared'.*'smoothed_hinge'.*'quantile'"),
        (lambda: losses.resolve(3), ValueError, r"loss is a int.*'squared'"),
        (lambda: Huber(0.0), ValueError, r"transition is 0\.0"),
        (lambda: Huber(np.nan), ValueError, "transition is nan"),
        (lambda: Huber("wide"), ValueError, "transition is 'wide'"),
        (lambda: SmoothedHinge(-1.0), ValueError, r"width is -1\.0"),
        (lambda: SmoothedHinge(np.inf), ValueError, "width is inf"),
        (lambda: Quantile(1.0), ValueError, r"level is 1\.0.*between 0 and 1"),
        (lambda: Quantile(0.0), ValueError, r"level is 0\.0.*between 0 and 1"),
        (lambda: Quantile(0.5, -0.1), ValueError, r"smoothing is -0\.1"),
        (lambda: Squared().truncated(0.0), ValueError, r"limit must be positive and is 0\.0.*np\.inf"),
        (lambda: Squared().truncated(np.nan), ValueError, "limit must be positive and is nan"),
        (lambda: Squared().truncated(1.0).truncated(-1.0), ValueError, r"limit must be positive and is -1\.0"),
        (lambda: Squared().truncated(1.0).to_dict(), ValueError, "Truncated.*JSON.*base"),
        (lambda: Linear().to_dict(), ValueError, "Linear.*JSON"),
        (lambda: Impostor().to_dict(), ValueError, "Impostor.*JSON"),
        (lambda: Loss.from_dict({"name": "hinge"}), ValueError, r"name is 'hinge'.*'squared'"),
        (lambda: Loss.from_dict({"transition": 1.0}), ValueError, "name is None"),
        (
            lambda: Loss.from_dict({"name": "huber", "delta": 1.0}),
            ValueError,
            r"huber.*\['delta'\].*\['transition'\]",
        ),
    ],
)
def test_errors_name_argument_value_and_remedy(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("loss", [*LOSSES, Squared().truncated(1.0)], ids=repr)
@pytest.mark.parametrize("bad", [-0.25, np.nan, np.inf])
def test_a_bad_scale_is_refused_without_quoting_the_rows(loss, bad):
    # gamma |a|^2 is data: a message that quotes it would publish the length of somebody's row.
    with pytest.raises(ValueError, match="scale has a negative, infinite or nan entry") as caught:
        loss.prox(np.zeros(2), np.ones(2), np.array([0.7734, bad]))
    assert "0.7734" not in str(caught.value)
    assert "-0.25" not in str(caught.value)


def test_bad_limits_are_refused_without_quoting_the_rows():
    with pytest.raises(ValueError, match=r"limit must be positive and is of shape \(2,\)") as caught:
        Truncated(Squared(), np.array([0.7734, -0.25]))
    assert "0.7734" not in str(caught.value)
    assert "0.25" not in str(caught.value)


def test_losses_are_immutable():
    with pytest.raises(AttributeError, match="transition"):
        Huber().transition = 2.0
