"""Choosing among settings of a private estimator, with the choice paid for. Proofs: docs/selection.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier, is_regressor
from sklearn.model_selection import ParameterGrid
from sklearn.utils import _safe_indexing, check_consistent_length, column_or_1d, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _num_samples, check_is_fitted

from hushpoint._checks import require_choice, require_flag, require_positive, shown, warn_of_large_delta
from hushpoint._refits import TellsOfRefits
from hushpoint._silence import silent_about
from hushpoint._types import Indices
from hushpoint.certificates import ADJACENCIES
from hushpoint.estimators.merits import predicts_alone
from hushpoint.estimators.scoring import checked_score
from hushpoint.labels import READ_FROM_LABELS, class_set
from hushpoint.lattice.words import Words, words_at
from hushpoint.noise import Source, source_for
from hushpoint.privacy.gaussian import gdp_delta, gdp_epsilon
from hushpoint.privacy.guarantee import Adjacency, Arithmetic, Budget, Guarantee, checked_delta, checked_epsilon
from hushpoint.privacy.selection import (
    DISTRIBUTIONS,
    Distribution,
    RunCount,
    best_distribution,
    run_count,
    selection_epsilon,
    selection_mu,
)

_OWN = ("epsilon", "delta", "adjacency", "random_state")  # parameters of the estimator that are set here


def _delegated(name: str) -> Callable[[Any], bool]:
    def exists(self: PrivateSelect) -> bool:
        getattr(self.best_estimator_ if hasattr(self, "best_estimator_") else self.estimator, name)
        return True

    return exists


@dataclass(eq=False, repr=False)
class PrivateSelect(TellsOfRefits, MetaEstimatorMixin, BaseEstimator):
    """Fit a private estimator with randomly drawn settings a random number of times, and keep the best by score.

    The whole of ``fit`` is (epsilon, delta)-DP for what it leaves behind: the best model, its settings, its noisy score
    (docs/selection.md). The number of runs, the other models and their scores are neither kept nor covered: who sees
    them, or the running time of ``fit``, sees more than the guarantee speaks of.

    Each run draws one candidate uniformly at random, with replacement, trains it on one part of the items and scores it
    on the others with Gaussian noise. The parts are drawn by place in the data, without looking at it, and are the same
    for all runs. An item is in one part only, so a run spends the larger of what training and scoring spend, not both.
    A part has no class set of its own: every run of a classifier gets the estimator's declared ``classes``, or those of
    the whole y, which then count as public.

    Parameters
    ----------
    estimator : estimator
        Has the parameters ``epsilon``, ``delta``, ``adjacency`` and ``random_state``, which are set here, and after
        ``fit`` a ``guarantee_`` with a ``mu``, as `PrivateLogisticRegression` and its siblings. A classifier also has
        ``classes``.
    candidates : dict or list of dicts
        Lists of values by parameter name (their grid), or the candidates themselves. Anything but the four parameters
        above; a declared bound such as ``row_norm`` is fine.
    epsilon : float
        What ``fit`` may spend in all.
    delta : float
        Must be declared: well below one over the number of people.
    mean_candidates : float
        Expected number of runs. It costs privacy slowly, see `hushpoint.privacy.selection.selection_mu`.
    distribution : {"auto", "geometric", "logarithmic", "poisson"}
        Law of the number of runs, always at least one. "auto": the one that lets each run spend most, chosen without
        data; it tends to be "logarithmic", which more often makes few runs.
    validation : float
        Part of the items (users, with groups) that are held out for scores.
    scoring : str, callable or None
        On held-out private rows "accuracy" (classifiers), "neg_mean_squared_error" (regressors, the default) or
        "neg_mean_absolute_error"; errors are bounded by the estimator's ``target_range``. On public rows anything that
        scikit-learn accepts.
    public_validation : (X, y), optional
        Public rows to score on: no noise, no cost, and all private rows are for training.
    adjacency : {"replace-one", "zero-out"}
    random_state : int or None
        None: the secure source. An integer is for experiments, and the guarantee says so.
    progress : bool
        Show that something is going on. Never how many runs there were.
    lattice : bool
        Scores are sums of whole numbers with noise that is drawn exactly, and so is the number of runs. If the fits are
        in whole numbers too, the guarantee is about the program. False: floating-point numbers stand for real ones.

    Attributes
    ----------
    best_estimator_, best_params_, best_score_
        The best run; its ``epsilon``, ``delta`` and ``guarantee_`` are those of the selection, not of one run.
    guarantee_ : Guarantee
    distribution_ : str
    run_mu_ : float
        The Gaussian-DP number of one run. Like ``distribution_`` it follows from the budget alone.
    """

    estimator: Any
    candidates: Any
    _: KW_ONLY
    epsilon: float
    delta: float | None = None
    mean_candidates: float = 10
    distribution: Distribution | Literal["auto"] = "auto"
    validation: float = 0.2
    scoring: Any = None
    public_validation: Any = None
    adjacency: Adjacency = "replace-one"
    random_state: int | None = None
    progress: bool = False
    lattice: bool = True

    @silent_about("X, y or groups")
    def fit(self, X: Any, y: Any, groups: ArrayLike | None = None) -> PrivateSelect:
        """Run, score, and keep the best.

        With ``groups`` (a user for each row) users are split, scored as the mean over their rows, and protected whole.
        """
        settings = self._checked_candidates()
        lattice = require_flag("lattice", self.lattice)
        chosen_score = checked_score(self.estimator, self.scoring, self.public_validation, lattice)
        arithmetic = self._arithmetic(settings)
        delta, distribution, mu = self._checked_budget()
        self._tell_of_refits()
        source = source_for(self.random_state)
        y = self._targets(column_or_1d(y, warn=True))
        check_consistent_length(X, y, groups)
        own = {**self._run_budget(delta, mu), **self._class_set(y), **self._quiet()}
        users = None if groups is None else np.unique(column_or_1d(groups), return_inverse=True)[1]
        items = _num_samples(X) if users is None else int(users.max()) + 1
        warn_of_large_delta(delta, items, "record" if users is None else "user", stacklevel=3)
        for one in settings:
            if hasattr(candidate := clone(self.estimator).set_params(**one), "_check_columns"):
                candidate._check_columns(X)
        train, held_out = self._split(items, source)
        rows, held_rows = (train, held_out) if users is None else (_rows(users, train), _rows(users, held_out))
        training: dict[str, Any] = {"X": _safe_indexing(X, rows), "y": _safe_indexing(y, rows)}
        if groups is not None:
            training["groups"] = _safe_indexing(np.asarray(groups), rows)
        owners = None if users is None else users[held_rows]
        score = chosen_score.on(_safe_indexing(X, held_rows), _safe_indexing(y, held_rows), owners, mu)

        law = run_count(self.mean_candidates, distribution)
        best: tuple[float, Any, dict[str, Any]] | None = None
        with _working(self.progress):
            for run in range(_number_of_runs(law, source, lattice)):
                # Runs are alike and independent whatever the law of this draw is, and it is the same in both worlds.
                # It is uniform too: NumPy draws bounded integers again until they fit.
                chosen = settings[int(source.stream("select-candidate", 0, run).integers(len(settings)))]
                seed = None if source.secure else int(source.stream("select-seed", 0, run).integers(1 << 62))
                model = clone(self.estimator)
                model._one_of_several = True
                model.set_params(**clone(chosen, safe=False), **own, random_state=seed).fit(**training)
                self._check_run(model, mu, groups is not None, arithmetic)
                value = score(model, source, run)
                if best is None or value > best[0]:
                    best = value, model, chosen
        assert best is not None  # every law makes at least one run
        value, model, chosen = best
        self.guarantee_ = self._guarantee(model.guarantee_, delta, distribution, mu, source, arithmetic)
        self.best_estimator_, self.best_params_ = self._restated(model), dict(chosen)
        self.best_score_ = chosen_score.in_units(value)
        self.distribution_, self.run_mu_ = distribution, mu
        return self

    def _targets(self, y: NDArray[Any]) -> NDArray[Any]:
        """The targets of all rows, checked as one: a fault must not show by the part that it is in."""
        if not is_regressor(self.estimator):
            return y
        numbers = y.astype(np.float64)
        if not np.isfinite(numbers).all():
            raise ValueError("y has NaN or infinite entries. Remove those rows before training.")
        return numbers

    def _quiet(self) -> dict[str, Any]:
        """No bar of a run's own: there would be as many as runs."""
        return {"progress": False} if "progress" in self.estimator.get_params() else {}

    def _class_set(self, y: NDArray[Any]) -> dict[str, Any]:
        """The classes of every run: declared, or those of the whole y. A part of the rows may lack one of them."""
        if not is_classifier(self.estimator):
            return {}
        classes = class_set(y, self.estimator.get_params()["classes"])
        if len(classes) < 2:
            raise ValueError("y has one class only. Declare the classes that can occur: classes= of the estimator.")
        return {"classes": classes}

    def _restated(self, model: Any) -> Any:
        """The best run with the cost of the whole selection in place of its own, which would be too small."""
        whole = Budget(float(self.epsilon), float(self.delta))  # type: ignore[arg-type]
        given = self.estimator.get_params()
        back = {name: given[name] for name in ("classes", "progress") if name in given}
        model.set_params(epsilon=whole.epsilon, delta=whole.delta, **back)
        del model._one_of_several
        model.guarantee_ = self.guarantee_
        if hasattr(model, "_restate"):  # what an estimator holds beside its parameters and guarantee
            model._restate(whole, self.guarantee_)
        return model

    # --- checks that need no data

    def _checked_candidates(self) -> list[dict[str, Any]]:
        known = self.estimator.get_params()
        own = (*_OWN, "classes") if is_classifier(self.estimator) else _OWN
        set_here = (*own, "progress")
        missing = [name for name in own if name not in known]
        if missing:
            raise ValueError(
                f"estimator is a {type(self.estimator).__name__}, which has no parameter {missing[0]}. Pass a private "
                f"estimator with {', '.join(own)}, such as PrivateLogisticRegression."
            )
        if isinstance(self.candidates, Mapping):
            settings = list(ParameterGrid(dict(self.candidates)))
        else:
            settings = list(self.candidates)
        if not settings or not all(isinstance(one, Mapping) for one in settings):
            raise ValueError(
                f"candidates is {shown(self.candidates)}. Pass lists of values by parameter name, for example "
                "{'alpha': [0.01, 0.1, 1.0]}, or a non-empty list of dicts."
            )
        ranged = self.public_validation is None and is_regressor(self.estimator)
        for name in dict.fromkeys(name for one in settings for name in one):
            last = str(name).rpartition("__")[2]
            if last in set_here:
                raise ValueError(f"candidates contain {name!r}, which PrivateSelect sets itself. Leave it out.")
            if ranged and last == "target_range":
                raise ValueError(
                    "candidates contain 'target_range'. Scores need one range: declare it in the estimator."
                )
            if name not in known:
                raise ValueError(f"candidates contain {name!r}, which {type(self.estimator).__name__} does not have.")
        for one in settings:  # all of them, before the data is touched: not only those that happen to be drawn
            check = getattr(clone(self.estimator).set_params(**one), "_check_parameters", None)
            if check is not None:
                check()
        return [dict(one) for one in settings]

    def _checked_budget(self) -> tuple[float, Distribution, float]:
        epsilon = checked_epsilon(self.epsilon)
        if self.delta is None:
            raise ValueError(
                "delta is not declared. Pass a number well below one over the number of people, like 1e-6."
            )
        delta = checked_delta(self.delta)
        require_choice("adjacency", self.adjacency, ADJACENCIES)
        require_choice("distribution", self.distribution, ("auto", *DISTRIBUTIONS))
        require_flag("progress", self.progress)
        mean = require_positive("mean_candidates", self.mean_candidates)
        distribution = best_distribution(epsilon, delta, mean) if self.distribution == "auto" else self.distribution
        mu = selection_mu(epsilon, delta, mean, distribution)
        if mu == 0:
            raise ValueError(
                f"epsilon is {epsilon:g}, too little for any choice among candidates. Choose a larger one."
            )
        return delta, distribution, mu

    # --- one run

    def _split(self, items: int, source: Source) -> tuple[Indices, Indices]:
        """Places of the items to train on and of those to score on; which item is where depends on its place only."""
        if self.public_validation is not None:
            return np.arange(items), np.arange(0)
        fraction = require_positive("validation", self.validation, remedy="Pass a number between 0 and 1.")
        if fraction >= 1:
            raise ValueError(f"validation is {fraction:g}. Pass a number between 0 and 1.")
        held = max(1, round(fraction * items))
        if held >= items:
            raise ValueError(f"validation is {fraction:g}, which leaves nothing of {items} items to train on.")
        order = source.stream("select-split").permutation(items)
        return np.sort(order[held:]), np.sort(order[:held])

    def _run_budget(self, delta: float, mu: float) -> dict[str, Any]:
        """Parameters with which the estimator spends mu, or a billionth less."""
        own_delta = min(delta, gdp_delta(mu, mu))  # at a larger delta the epsilon of mu may be 0
        epsilon = gdp_epsilon(mu * (1 - 1e-9), own_delta)
        return {"epsilon": epsilon, "delta": own_delta, "adjacency": self.adjacency}

    def _arithmetic(self, settings: list[dict[str, Any]]) -> Arithmetic:
        """What numbers are in a run, whichever candidate it draws: from that of the runs made, others could be told."""
        if not self.lattice or not (self.public_validation is not None or predicts_alone(self.estimator)):
            return "real"
        says = [getattr(clone(self.estimator).set_params(**one), "_in_whole_numbers", None) for one in settings]
        return "whole" if all(say is not None and say() for say in says) else "real"

    def _check_run(self, model: Any, mu: float, grouped: bool, arithmetic: Arithmetic) -> None:
        """What the estimator promises for one run must be what the selection is accounted with."""
        promised = getattr(model, "guarantee_", None)
        name = type(model).__name__
        if not isinstance(promised, Guarantee) or promised.mu is None:
            raise ValueError(f"{name} has no guarantee_ with a mu after fit. PrivateSelect needs Gaussian-DP runs.")
        if not promised.mu <= mu:
            raise ValueError(f"{name} spent mu = {promised.mu:g} where {mu:g} was allowed. It ignores its epsilon.")
        if arithmetic == "whole" and promised.arithmetic != "whole":
            raise ValueError(
                f"{name} promised a fit in whole numbers, and its guarantee_ is not one. Pass lattice=False."
            )
        unit = "user" if grouped else "record"
        wanted = (unit, self.adjacency, "proved", None, None)
        if (promised.unit, promised.adjacency, promised.basis, promised.item, promised.observers) != wanted:
            raise ValueError(
                f"{name} gives a {promised.basis} guarantee for one {promised.unit} ({promised.adjacency}). "
                f"A proved one for any {unit} ({self.adjacency}) is needed."
            )

    def _guarantee(
        self,
        one_run: Guarantee,
        delta: float,
        distribution: Distribution,
        mu: float,
        source: Source,
        arithmetic: Arithmetic,
    ) -> Guarantee:
        assumptions = (
            *one_run.assumptions,
            f"the best of a secret number of runs ({distribution}, {float(self.mean_candidates):g} expected)",
            "noisy scores on held-out rows" if self.public_validation is None else "scores on public rows",
            "nothing known of the other runs nor of how many there were",
            *self._public_classes(),
        )
        epsilon = selection_epsilon(mu, delta, self.mean_candidates, distribution)
        whom = one_run.unit, one_run.adjacency, one_run.view
        section = f"{one_run.section}, then docs/selection.md"
        told = source.describe()
        return Guarantee(
            epsilon, delta, None, *whom, "proved", section, assumptions, source=told, arithmetic=arithmetic
        )

    def _public_classes(self) -> tuple[str, ...]:
        read = is_classifier(self.estimator) and self.estimator.get_params()["classes"] is None
        return (READ_FROM_LABELS,) if read else ()

    # --- the best model

    @available_if(_delegated("predict"))
    @silent_about("X")
    def predict(self, X: Any) -> Any:
        """Predictions of the best model."""
        check_is_fitted(self)
        return self.best_estimator_.predict(X)

    @available_if(_delegated("predict_proba"))
    @silent_about("X")
    def predict_proba(self, X: Any) -> Any:
        """Class probabilities of the best model."""
        check_is_fitted(self)
        return self.best_estimator_.predict_proba(X)

    @available_if(_delegated("decision_function"))
    @silent_about("X")
    def decision_function(self, X: Any) -> Any:
        """Decision values of the best model."""
        check_is_fitted(self)
        return self.best_estimator_.decision_function(X)

    @available_if(_delegated("score"))
    @silent_about("X or y")
    def score(self, X: Any, y: Any) -> float:
        """Score of the best model, without noise: not private for the rows it is given."""
        check_is_fitted(self)
        return float(self.best_estimator_.score(X, y))

    @property
    def classes_(self) -> Any:
        """Class labels."""
        return self._fitted().classes_

    @property
    def n_features_in_(self) -> int:
        """Number of features seen in ``fit``."""
        return int(self._fitted().n_features_in_)

    def _fitted(self) -> Any:
        if not hasattr(self, "best_estimator_"):  # hasattr(self, "classes_") must be False, not an error
            raise AttributeError("PrivateSelect is not fitted yet. Call fit first.")
        return self.best_estimator_

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.target_tags.required = True
        return tags


def _number_of_runs(law: RunCount, source: Source, exactly: bool) -> int:
    if exactly:
        return law.drawn_exactly(Words(words_at(source, "select-count", 0, 0)))
    return law.draw(source.stream("select-count"))


def _rows(users: Indices, chosen: Indices) -> Indices:
    """Places of the rows of the chosen users."""
    return np.flatnonzero(np.isin(users, chosen))


@contextmanager
def _working(show: bool) -> Iterator[None]:
    """A sign of life that does not count the runs."""
    if not show:
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status("Choosing among candidates"):
        yield
