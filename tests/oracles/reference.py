"""High-precision optima, written without a line of hushpoint: what a run without noise must reach.

``optimum`` minimises ``sum_j w_j phi(a_j.z, b_j) + sum_k l1_k |z_k| + l2_k/2 z_k^2`` and certifies the result by the
optimality condition. It finds the support with accelerated proximal gradient steps and then solves on it by Newton's
method. ``test_convergence`` checks it against scikit-learn where scikit-learn is precise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.optimize
from scipy.special import expit, logit

HUBER = 1.345  # where the Huber loss turns linear, unless said otherwise


def table(rows, features, seed):
    """Rows of length about 1."""
    return np.random.default_rng(seed).normal(size=(rows, features)) / np.sqrt(features)


def numbers(X, seed, noise=0.3, outliers=0):
    """Targets of a sparse linear model; some may be far off."""
    rng = np.random.default_rng([seed, 1])
    truth = np.zeros(X.shape[1])
    truth[: min(5, X.shape[1])] = [3.0, -2.0, 1.5, 2.5, -1.0][: min(5, X.shape[1])]
    y = X @ truth + noise * rng.normal(size=len(X))
    y[:outliers] += 8.0
    return y


def labels(X, seed):
    """Labels 0 and 1 of a noisy linear model; both occur."""
    score = numbers(X, seed, noise=1.0)
    return (score > np.median(score)).astype(int)


def unequal_groups(rows, sizes, seed):
    """User ids for rows in mixed order: user k has ``sizes[k]`` of them."""
    assert sum(sizes) == rows
    return np.random.default_rng([seed, 2]).permutation(np.repeat(np.arange(len(sizes)), sizes))


def row_weights(rows, groups=None, weights="items"):
    """Weight of each row in the objective, in the order of the rows."""
    if groups is None or weights == "rows":
        return np.full(rows, 1 / rows)
    _, owner, counts = np.unique(groups, return_inverse=True, return_counts=True)
    return 1 / (len(counts) * counts[owner])


@dataclass(frozen=True)
class Scalar:
    """A loss of one margin; ``limit`` cuts its slope (None: not cut, otherwise one per row)."""

    kind: str
    limit: np.ndarray | None = None
    transition: float = HUBER

    def _bend(self, t):
        """Slopes of the squared and Huber losses turn constant here."""
        bend = np.full(t.shape, np.inf if self.kind == "squared" else self.transition)
        return bend if self.limit is None else np.minimum(bend, self.limit)

    def _cut(self, margin):
        """The logistic loss goes on as a straight line below this margin."""
        if self.limit is None:
            return np.full(margin.shape, -np.inf)
        with np.errstate(divide="ignore"):
            return np.where(self.limit < 1, -logit(np.minimum(self.limit, 1.0)), -np.inf)

    def value(self, t, b):
        if self.kind == "logistic":
            margin = b * t
            cut = self._cut(margin)
            on_curve = np.maximum(margin, cut)
            # expit(-cut) is the slope of the line; where there is no line, margin - on_curve is 0
            return np.logaddexp(0, -on_curve) - expit(-on_curve) * (margin - on_curve)
        r, bend = np.abs(t - b), self._bend(t)
        with np.errstate(invalid="ignore"):
            return np.where(r <= bend, r**2 / 2, bend * r - bend**2 / 2)

    def slope(self, t, b):
        if self.kind == "logistic":
            margin = b * t
            return -b * expit(-np.maximum(margin, self._cut(margin)))
        bend = self._bend(t)
        return np.clip(t - b, -bend, bend)

    def curvature(self, t, b):
        if self.kind == "logistic":
            margin = b * t
            return np.where(margin >= self._cut(margin), expit(margin) * expit(-margin), 0.0)
        return (np.abs(t - b) <= self._bend(t)).astype(float)


@dataclass(frozen=True)
class Objective:
    """``sum_j w_j phi(a_j.z, b_j) + sum_k l1_k |z_k| + l2_k/2 z_k^2``; targets of two classes are -1 and +1."""

    X: np.ndarray
    y: np.ndarray
    loss: Scalar
    weights: np.ndarray
    l1: np.ndarray
    l2: np.ndarray

    def __call__(self, z):
        smooth = self.weights @ self.loss.value(self.X @ z, self.y) + self.l2 @ z**2 / 2
        return float(smooth + self.l1 @ np.abs(z))

    def gradient(self, z):
        """Of all but the l1 part."""
        return self.X.T @ (self.weights * self.loss.slope(self.X @ z, self.y)) + self.l2 * z

    def hessian(self, z):
        scaled = self.X * (self.weights * self.loss.curvature(self.X @ z, self.y))[:, None]
        return self.X.T @ scaled + np.diag(self.l2)

    def optimality(self, z):
        """Length of the shortest subgradient, per coordinate at most."""
        gradient = self.gradient(z)
        moving = np.abs(gradient + self.l1 * np.sign(z))
        resting = np.maximum(np.abs(gradient) - self.l1, 0)
        return float(np.where(z != 0, moving, resting).max())


def objective(X, y, loss="squared", weights=None, l1=0.0, l2=0.0, clip=None, intercept=False, row_norm=None):
    """The objective of a problem, from its data; a penalty leaves the intercept (the last coordinate) out."""
    X = np.asarray(X, dtype=float)
    if intercept:
        X = np.hstack([X, np.ones((len(X), 1))])
    if row_norm is not None:
        X = X / np.maximum(1, np.linalg.norm(X, axis=1) / row_norm)[:, None]
    y = np.asarray(y)
    y = np.where(y == y.max(), 1.0, -1.0) if loss == "logistic" else y.astype(float)
    limit = None if clip is None else clip / np.linalg.norm(X, axis=1)
    strengths = [np.broadcast_to(np.asarray(k, dtype=float), X.shape[1]).copy() for k in (l1, l2)]
    if intercept:
        for strength in strengths:
            strength[-1] = 0
    weights = np.full(len(X), 1 / len(X)) if weights is None else weights
    return Objective(X, y, Scalar(loss, limit), weights, *strengths)


def optimum(target: Objective, precision=1e-13):
    """The minimiser, certified: no coordinate of the shortest subgradient exceeds ``precision``."""
    z = np.zeros(target.X.shape[1])
    bound = np.linalg.norm(target.X.T * np.sqrt(target.weights), 2) ** 2 + target.l2.max()
    for _ in range(40):
        z = _accelerated(target, z, 1 / bound, 500)
        polished = _newton_on_support(target, z, precision)
        if target.optimality(polished) <= precision:
            return polished
    raise AssertionError(f"the reference solver stopped at an optimality of {target.optimality(z):.1e}")


def _accelerated(target, z, step, iterations):
    ahead, weight = z.copy(), 1.0
    for _ in range(iterations):
        moved = ahead - step * target.gradient(ahead)
        new = np.sign(moved) * np.maximum(np.abs(moved) - step * target.l1, 0)
        if (ahead - new) @ (new - z) > 0:  # momentum points uphill: restart
            weight = 1.0
        next_weight = (1 + np.sqrt(1 + 4 * weight**2)) / 2
        ahead = new + (weight - 1) / next_weight * (new - z)
        z, weight = new, next_weight
    return z


def _newton_on_support(target, z, precision):
    support = (z != 0) | (target.l1 == 0)
    signs, best = np.sign(z), z
    for _ in range(60):
        gradient = (target.gradient(z) + target.l1 * signs)[support]
        direction = np.linalg.lstsq(target.hessian(z)[np.ix_(support, support)], gradient, rcond=1e-13)[0]
        trial = z.copy()
        trial[support] -= direction
        if (np.sign(trial) * signs < 0).any() or not np.isfinite(trial).all():
            return best
        z = trial
        if target.optimality(z) < target.optimality(best):
            best = z
        if target.optimality(best) <= precision / 10:
            break
    return best


def analysis_lasso(X, y, A, strength):
    """Minimise ``|X x - y|^2/(2 n) + strength |A x|_1`` for X of full column rank, by the dual.

    The dual, ``min |A's - q|_{H^-1}`` over ``|s| <= strength``, is least squares in a box: an active-set method solves
    it to rounding. Returns the primal point and the duality gap.
    """
    H, q = X.T @ X / len(y), X.T @ y / len(y)
    half = np.linalg.cholesky(np.linalg.inv(H)).T  # |half v|^2 = v' H^-1 v
    dual = scipy.optimize.lsq_linear(half @ A.T, half @ q, (-strength, strength), method="bvls", tol=1e-16).x
    x = np.linalg.solve(H, q - A.T @ dual)
    # f(x) = x'Hx/2 - q'x and its conjugate at -A's
    primal = x @ H @ x / 2 - q @ x + strength * np.abs(A @ x).sum()
    lower = -(A.T @ dual - q) @ np.linalg.solve(H, A.T @ dual - q) / 2
    return x, primal - lower
