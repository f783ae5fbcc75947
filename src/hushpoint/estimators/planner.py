"""The planner: how to train a linear model under a budget, from public facts alone."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from hushpoint import losses
from hushpoint._checks import require_choice, require_count, require_positive, shown
from hushpoint.certificates import ADJACENCIES
from hushpoint.estimators import few_rounds
from hushpoint.losses import Loss
from hushpoint.operators.gradient import Gradient
from hushpoint.privacy.gaussian import gdp_mu
from hushpoint.privacy.guarantee import Adjacency, Budget
from hushpoint.problem import Facts
from hushpoint.regularizers import Zero

MetricKind = Literal["full", "diagonal"]

# A full metric costs p^2 numbers and p^3 operations, once.
_LARGEST_FULL = 1000
_LENGTH_SHARE = 0.02
_MEAN_SHARE = 0.035
_MEASURING = 100.0  # n mu that suffices for mean and spread of a target, to a few hundredths of its range
_CALIBRATING = 30.0  # n mu that suffices to calibrate: two numbers, to about a fifth
_RESIDUALS = 45.0  # n mu that suffices for the mean square of residuals, to about a tenth
_LEAST_FOR_RESIDUALS, _MOST_FOR_RESIDUALS = 0.002, 0.02
_MOST_STEPS = 200  # passes over the data; steps that would need more are shortened in all, and stop earlier
_CALIBRATION_STEPS = 20
_FEWEST_ROUNDS = 6
_SPARE = 1 - 1e-9  # rounding must not carry the sum of the shares over the budget


@dataclass(frozen=True)
class Parameters:
    """How an estimator trains: noisy gradient descent in a metric that is itself learned privately.

    Everything here follows from public facts, so two data sets of one shape have one plan. What depends on the data
    (the metric, and with it the clip and the step in the units of the data) is computed from private releases.

    Parameters
    ----------
    items, width : int
        People (or records), and length of the model, the intercept included.
    mu : float
        The whole budget in Gaussian DP.
    two_class : bool
        Whether targets are classes.
    strength : float
        ``n mu / p``: budget, people and model size in one number.
    metric : {"full", "diagonal"}
        Whether all second moments of the features are released, or only those of single features.
    target_share : float
        Share of ``mu^2`` that buys mean and mean square of a regression's target. With a penalty none: it would stand
        beside a loss that is clipped harder than the user knows.
    mean_share, moment_share, length_share : float
        Shares of ``mu^2`` that buy the means of the features (with a diagonal metric: in a full one their direction is
        one like others), their second moments and the mean squared length of the rows.
    calibration_share : float
        Share of ``mu^2`` for a last fit of two numbers, the scale and the offset of the model's scores: what stopped
        early is too small, what is noise too large. With a penalty the scale is the user's wish.
    residual_share : float
        Share of ``mu^2`` for the mean square of a regression's residuals, which its intervals need. With a penalty or
        a diagonal metric none: there are no intervals then; nor where so little would not tell.
    constant : float
        The feature of the intercept, in units of ``row_norm``.
    steps : int
        At least so many; more where the moments leave room for directions in which long steps would go astray. With
        ``rounds``, so many.
    tail_average : float
        The model is the mean over this last fraction of the steps.
    clip : float
        Bound on a row's gradient, in units of the typical row length in the metric.
    spread_clip : float
        A regression's clip in units of the spread of its target, if that is less.
    largest_step : float
        Largest step size where the largest second moment in the metric is 1.
    caution, crowding : float
        How much of what the moments did not show steps are made short for: a share of the most that can hide in one
        direction of a full metric; in a diagonal one, of this power of the rows' squared length.
    curvature, signal : float
        Guesses of the loss's second derivative and of the variance of good predictions, which fix how far the
        metric departs from the plain one and how early to stop.
    share_of : Budget, optional
        What was spent in all, where this fit is one of several that were accounted for together.
    rounds : int, optional
        The most noisy sums that are released for one model, over all plans of its chain. None: as many as there are.
    """

    items: int
    width: int
    mu: float
    adjacency: Adjacency
    two_class: bool
    strength: float
    metric: MetricKind
    target_share: float
    mean_share: float
    moment_share: float
    length_share: float
    calibration_share: float
    residual_share: float
    constant: float
    steps: int
    tail_average: float
    clip: float
    spread_clip: float
    largest_step: float
    caution: float
    crowding: float
    curvature: float
    signal: float
    share_of: Budget | None = None
    rounds: int | None = None

    @property
    def single_steps(self) -> int:
        """Plans of one step each: what is released beside descent and calibration."""
        shares = (self.target_share, self.mean_share, self.moment_share, self.length_share, self.residual_share)
        return sum(share > 0 for share in shares)

    @property
    def calibration_steps(self) -> int:
        """Of one model."""
        if not self.calibration_share:
            return 0
        if self.rounds is None:
            return _CALIBRATION_STEPS
        left = self.rounds - self.single_steps - self._steps_worth_having
        return min(max(left, 1), few_rounds.CALIBRATION_STEPS)

    @property
    def most_steps(self) -> int:
        """Of one model's descent."""
        if self.rounds is None:
            return _MOST_STEPS
        return min(self.rounds - self.single_steps - self.calibration_steps, self._steps_worth_having)

    @property
    def rounds_taken(self) -> int:
        """How many noisy sums one model takes at most."""
        return self.single_steps + self.most_steps + self.calibration_steps

    @property
    def _steps_worth_having(self) -> int:
        """A diagonal metric leaves directions between the coordinates that only more steps reach."""
        return few_rounds.worth_having(self.strength, self.two_class) if self.metric == "full" else _MOST_STEPS

    @property
    def target_mu(self) -> float:
        """What mean and spread of the target may cost."""
        return self.mu * math.sqrt(self.target_share)

    @property
    def mean_mu(self) -> float:
        """What the means may cost."""
        return self.mu * math.sqrt(self.mean_share)

    @property
    def moment_mu(self) -> float:
        """What the second moments may cost."""
        return self.mu * math.sqrt(self.moment_share)

    @property
    def length_mu(self) -> float:
        """What the mean squared length may cost."""
        return self.mu * math.sqrt(self.length_share)

    @property
    def descent_mu(self) -> float:
        """What all the noisy gradient steps together may cost."""
        others = self.target_share + self.mean_share + self.moment_share + self.length_share + self.calibration_share
        return self.mu * math.sqrt(1 - others - self.residual_share)

    def for_targets(self, spread: float) -> Parameters:
        """The same for targets of which it is known how far they spread."""
        # With little budget a weak signal is the safe guess, with much of it a strong one.
        guess = max(2.0, self.strength / 20) * spread**2
        return replace(self, clip=min(self.clip, self.spread_clip * spread), signal=min(self.signal, guess))

    @property
    def calibration_mu(self) -> float:
        """What calibrating all models together may cost."""
        return self.mu * math.sqrt(self.calibration_share)

    @property
    def residual_mu(self) -> float:
        """What the mean square of the residuals may cost."""
        return self.mu * math.sqrt(self.residual_share)

    def to_dict(self) -> dict[str, Any]:
        """The parameters as JSON can hold them."""
        return asdict(self)

    def __str__(self) -> str:
        what = "all products of two features" if self.metric == "full" else "the square of each feature"
        whole = self.share_of
        share = "" if whole is None else f", a share of epsilon = {whole.epsilon:g} at delta = {whole.delta:g} in all"
        strong = "little" if self.strength < 5 else "some" if self.strength < 50 else "much"
        centred = f"{self.mean_share:.1%} buys the features' means, which are taken off; " if self.mean_share else ""
        last = f"{self.calibration_share:.1%} sets the model's scale and offset at the end; "
        last = last if self.calibration_share else ""
        last += f"{self.residual_share:.2%} tells how large residuals are; " if self.residual_share else ""
        counted = f"{self.steps} or more noisy gradient steps"
        if self.rounds is not None:
            counted = f"At most {self.rounds} noisy sums per model in all: {self.steps} gradient steps with momentum"
        return (
            f"{counted} on {self.items} items and {self.width} coefficients, averaged "
            f"over the last {self.tail_average:.0%}. The budget is mu = {self.mu:.4g} ({self.adjacency}){share}; "
            f"n mu / p = {self.strength:.3g}, which buys {strong} detail. {self.moment_share:.1%} of it (in mu^2) goes "
            f"into the means of {what}, from which the steps take their metric, so that features on different scales "
            f"and correlated ones are learned at one pace; {self.length_share:.0%} into the typical length of a row; "
            f"{centred}{last}the rest goes into the steps. Gradients are clipped at {self.clip:.2g} of that length. "
            "The smaller the budget, the shorter the walk from zero: stopping early takes the place of a penalty, and "
            "no grid search is needed."
        )


def plan_parameters(
    n: int,
    p: int,
    budget: Budget | float,
    *,
    loss: str | Loss = "logistic",
    penalty: Literal["l2", "l1", "elasticnet"] | None = None,
    fit_intercept: bool = True,
    adjacency: Adjacency | None = None,
    effective: float | None = None,
    rounds: int | None = None,
) -> Parameters:
    """Choose how to train from public facts alone: no data is touched.

    Parameters
    ----------
    n : int
        Number of items: records, or users.
    p : int
        Number of features, without the intercept.
    budget : Budget or float
        What may be spent; a number is a Gaussian-DP mu.
    loss : str or Loss
    penalty : {"l2", "l1", "elasticnet"}, optional
        L1 penalties need a metric that treats each feature by itself.
    fit_intercept : bool
    adjacency : {"replace-one", "zero-out"}, optional
        Default: the budget's, else replace-one.
    effective : float, optional
        What the features count as where many are small by construction, like the waves of an additive model: the sum
        of their largest squares. Default: p.
    rounds : int, optional
        The most noisy sums that may be released for one model, over all plans of the training: what is paid with where
        every sum is a round among sites. With several classes, the steps of all their models can share rounds. Default:
        as many as serve the model best.
    """
    items, features = require_count("n", n), require_count("p", p)
    if penalty is not None:
        require_choice("penalty", penalty, ("l2", "l1", "elasticnet"))
    if isinstance(budget, Budget):
        mu = gdp_mu(budget.epsilon, budget.delta)
        adjacency = adjacency or budget.adjacency
    elif isinstance(budget, (int, float)) and not isinstance(budget, bool):
        mu = require_positive("budget", budget, remedy="Pass hp.Budget(epsilon, delta), or a positive mu.")
    else:
        raise ValueError(f"budget is {shown(budget)}. Pass hp.Budget(epsilon, delta), or a positive mu.")
    chosen: Adjacency = adjacency or "replace-one"
    require_choice("adjacency", chosen, ADJACENCIES)
    chosen_loss = losses.resolve(loss)
    smoothness = chosen_loss.smoothness
    if not math.isfinite(smoothness):
        raise ValueError(
            f"loss is {chosen_loss.name!r}, which is not smooth: gradient steps need a smooth loss. "
            "Use 'huber' for 'absolute', 'smoothed_hinge' for a hinge, or private_admm for others."
        )
    width = features + bool(fit_intercept)
    mu *= _SPARE
    whole = items * mu / clips_moved(chosen)
    counted = features if effective is None else require_positive("effective", effective)
    strength = whole / (counted + bool(fit_intercept))
    if rounds is not None and require_count("rounds", rounds) < _FEWEST_ROUNDS:
        raise ValueError(
            f"rounds is {rounds}, and moments, lengths, steps and calibration need {_FEWEST_ROUNDS}. Pass rounds="
            f"{_FEWEST_ROUNDS} or more, best 10 or more, or leave rounds out."
        )
    two_class = chosen_loss.labels == "two-class"
    full = width <= _LARGEST_FULL and penalty in (None, "l2")
    residual = max((_RESIDUALS / whole) ** 2, _LEAST_FOR_RESIDUALS)
    if two_class or penalty is not None or not full or effective is not None or residual > _MOST_FOR_RESIDUALS:
        residual = 0.0  # there would be no intervals
    moment_share, length_share = _between(0.01, strength / 200, 0.2), _LENGTH_SHARE
    if rounds is not None and full:
        moment_share = few_rounds.moment_share(strength)
        if few_rounds.lengths_are_known(whole * math.sqrt(moment_share), width):
            length_share = 0.0
    # These laws were fitted on generated problems (benchmarks/planner.py): conditioning from 1 to 10^4, 2 to 5000
    # records per feature, label noise, imbalance, one-hot tables. None is delicate: a factor 2 costs 0.1 to 0.3 points.
    # With much budget slow directions are worth waiting for; with next to none only the first steps are.
    slowest = min(strength**-0.7, strength**2 / 8)
    plan = Parameters(
        items=items,
        width=width,
        mu=mu,
        adjacency=chosen,
        two_class=two_class,
        strength=strength,
        metric="full" if full else "diagonal",
        target_share=0.0 if two_class or penalty is not None else _between(0.01, (_MEASURING / whole) ** 2, 0.05),
        mean_share=0.0 if full or not fit_intercept else _MEAN_SHARE,
        moment_share=moment_share,
        length_share=length_share,
        calibration_share=_between(0.02, (_CALIBRATING / whole) ** 2, 0.15) if penalty is None else 0.0,
        residual_share=residual,
        constant=0.25,
        steps=int(_between(10, 10 * math.sqrt(strength), 150)),
        tail_average=0.5 if rounds is None else few_rounds.TAIL,
        # A small clip keeps the noise small, a large one the probabilities honest.
        clip=_between(0.2, 0.2 * strength**0.3, 1.0) if two_class else 0.5,
        spread_clip=_between(0.6, 0.6 * (strength / 20) ** 0.28, 1.5),
        # The curvature of a fitted logistic model is below its bound nearly everywhere.
        largest_step=(1.0 if chosen_loss.is_quadratic else 1.5) / smoothness,
        # Two-class losses forgive steps that are too long: their slopes are bounded, and clipped well below the bound.
        caution=0.3 if two_class or not full else 0.5,
        crowding=0.5 if two_class else 1.0,
        curvature=smoothness * (_between(0.04, slowest, 0.5) if two_class else _between(0.1, slowest, 0.5)),
        signal=6.0 if two_class else 0.3,
        rounds=rounds,
    )
    return plan if rounds is None else replace(plan, steps=plan.most_steps)


def plan_waves(n: int, columns: int, budget: Budget, *, two_class: bool) -> int:
    """How many waves a number of an additive model is to have: from public facts alone, like all of a plan.

    Each wave is one more thing to learn of every column. With ``s = n mu/(columns + 1)`` there are 1, 3 or 7 from 6, 30
    and 120 on; a regression pays for noise in R2, and starts later: from 25, 80 and 240 on.
    """
    strength = n * gdp_mu(budget.epsilon, budget.delta) / (columns + 1) / clips_moved(budget.adjacency or "replace-one")
    thresholds = (6, 30, 120) if two_class else (25, 80, 240)
    return (0, 1, 3, 7)[sum(strength >= threshold for threshold in thresholds)]


def clips_moved(adjacency: Adjacency) -> float:
    """How many clip lengths one item moves a sum of gradients, by their certificate."""
    one = Facts(1, 1, losses.Squared(), Zero(), clip=1.0)
    return Gradient(one, 1.0, 1).certificate(1.0).shift(one.unit, adjacency)


def _between(low: float, value: float, high: float) -> float:
    return min(max(value, low), high)
