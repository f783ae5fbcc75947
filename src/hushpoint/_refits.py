"""Warnings where scikit-learn goes round a guarantee: routines that fit many times, and steps that learn in front.

A guarantee is for one fit on rows that were prepared without looking at each other. A search, a cross-validation or an
ensemble fits again and again and nobody adds up; a ``StandardScaler`` in front puts the mean of everybody into every
row. Neither is an error, since who composes all fits, or has public rows, may do both. What no warning can see is
listed in docs/pitfalls.md.

Who calls is read off the stack, in three places, so that worker processes do not hide it:

* in ``fit``, where routine and fit share a process;
* when a copy is made (``clone``): most routines copy where they were called and send the copy to a worker;
* when a model that was fitted in a worker arrives in the process that started the worker.
"""

from __future__ import annotations

import math
import multiprocessing
import numbers
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NamedTuple, Self

from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags

# Where scikit-learn fits copies of an estimator, and how to call it if only a helper function is on the stack.
_REFITTERS = {
    "sklearn.model_selection": "a routine of sklearn.model_selection (such as cross_val_score)",
    "sklearn.calibration": "CalibratedClassifierCV",
    "sklearn.ensemble": "an estimator of sklearn.ensemble (such as VotingClassifier)",
    "sklearn.multiclass": "an estimator of sklearn.multiclass (such as OneVsRestClassifier)",
    "sklearn.multioutput": "an estimator of sklearn.multioutput (such as MultiOutputClassifier)",
    "sklearn.feature_selection": "a selector of sklearn.feature_selection (such as RFE)",
    "sklearn.semi_supervised": "SelfTrainingClassifier",
    "sklearn.impute": "IterativeImputer",
    "sklearn.linear_model._ransac": "RANSACRegressor",
}
_FITS_ONCE = ("FixedThresholdClassifier",)
_FITS = ("fit", "fit_predict", "fit_transform", "_fit")

# Transformers of scikit-learn that have a fit and learn nothing of entries, or nothing with these settings.
_LEARNS_NOTHING: dict[str, Callable[[Any], bool]] = {
    "FunctionTransformer": lambda step: True,  # a function of each row, if it is one: its code cannot be read
    "FrozenEstimator": lambda step: True,  # was fitted before, elsewhere
    "PolynomialFeatures": lambda step: True,  # the number of columns
    "GaussianRandomProjection": lambda step: True,  # the shape
    "SparseRandomProjection": lambda step: True,  # the shape
    "PolynomialCountSketch": lambda step: True,  # the number of columns
    "SkewedChi2Sampler": lambda step: True,  # the number of columns
    "RBFSampler": lambda step: step.gamma != "scale",  # "scale" is the variance of the data
    "OneHotEncoder": lambda step: _is_declared(step) and step.min_frequency is None and step.max_categories is None,
    "OrdinalEncoder": lambda step: _is_declared(step) and step.min_frequency is None and step.max_categories is None,
    "SimpleImputer": lambda step: step.strategy == "constant" and not step.add_indicator,
    "SplineTransformer": lambda step: not isinstance(step.knots, str),
    "SelectFromModel": lambda step: not learning_steps(step.estimator),  # what a private model tells is private
}


class _Refit(NamedTuple):
    """A routine on the stack that fits copies, whether it was called in this very thread, and its frame."""

    routine: str
    called_here: bool
    frame: FrameType

    def is_news(self, what: str) -> bool:
        """Whether this call has not been told yet, by its frame: scikit-learn makes Python forget what was shown."""
        name = f"hushpoint told of {what}"  # no name that code can have
        if name in self.frame.f_locals:
            return False
        self.frame.f_locals[name] = True
        return True


class TellsOfRefits:
    """Mixin of estimators with an epsilon: ``fit`` calls ``_tell_of_refits``, copies and arrivals tell themselves.

    Stands before scikit-learn's classes, whose ``clone`` and pickling it extends.
    """

    epsilon: float
    _refitted: tuple[str, int]  # by what, and which process is to be told; -1 where it was told already

    def _tell_of_refits(self) -> None:
        """Warn if a routine that fits many times, or a step that learns in front, stands above this fit."""
        if self._spends_nothing():
            return
        found = _refit(self)
        if found is not None and (found.called_here or multiprocessing.parent_process() is None):
            if found.is_news(f"refits of {type(self).__name__}"):
                warnings.warn(self._about_refits(found.routine), UserWarning, stacklevel=_level_of_user())
        elif found is not None and not hasattr(self, "_refitted"):  # a worker's warning reaches nobody: told on arrival
            self._refitted = found.routine, os.getppid()
        steps = _steps_in_front(self)
        if steps and (found is None or found.is_news(f"steps in front of {type(self).__name__}")):
            warnings.warn(self._about_steps(steps), UserWarning, stacklevel=_level_of_user())

    def __sklearn_clone__(self) -> Self:
        copied: Self = super().__sklearn_clone__()  # type: ignore[misc]
        found = None if self._spends_nothing() else _refit(self)
        if found is not None and found.called_here:
            copied._refitted = found.routine, -1
            if found.is_news(f"refits of {type(self).__name__}"):
                warnings.warn(self._about_refits(found.routine), UserWarning, stacklevel=_level_of_user())
        return copied

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        routine, home = state.get("_refitted", ("", -1))
        if home == os.getpid():
            del state["_refitted"]
        super().__setstate__(state)  # type: ignore[misc]
        if home == os.getpid():
            _tell_from_any_thread(self._about_refits(routine))

    def _spends_nothing(self) -> bool:
        # a copy may hold any epsilon: it is checked in fit
        return isinstance(self.epsilon, numbers.Real) and self.epsilon == math.inf

    def _about_refits(self, routine: str) -> str:
        name = type(self).__name__
        return (
            f"{routine} fits copies of {name}, and every fit spends its whole epsilon: the guarantee_ of one covers "
            "neither the others nor a choice or a score made from private rows without noise. Account for every fit "
            "with hp.privacy.compose(...), or choose settings with hp.PrivateSelect, which accounts for all its runs."
        )

    def _about_steps(self, steps: list[str]) -> str:
        who = f"{', '.join(steps)} in front of {type(self).__name__}"
        return (
            f"{who} may learn from the private rows without noise, which the guarantee_ does not cover. Use declared "
            "ranges and categories (hp.preprocessing), or fit on public rows first and wrap in FrozenEstimator. "
            "A transformer of your own that learns nothing says so by the tag requires_fit=False."
        )


def learning_steps(step: Any) -> list[str]:
    """Names of the transformers in a step of a pipeline that learn from the rows they are fitted on."""
    if step is None or isinstance(step, str):  # "passthrough", "drop"
        return []
    parts: list[Any] | None = None
    if isinstance(step, Pipeline):
        parts = [part for _, part in step.steps]
    elif isinstance(step, FeatureUnion):
        parts = [part for _, part in step.transformer_list]
    elif isinstance(step, ColumnTransformer):
        parts = [*(part for _, part, _ in step.transformers), step.remainder]
    if parts is not None:
        return list(dict.fromkeys(name for part in parts for name in learning_steps(part)))
    return [] if _learns_nothing(step) else [type(step).__name__]


def _learns_nothing(step: Any) -> bool:
    package, name = type(step).__module__.partition(".")[0], type(step).__name__
    if package == "hushpoint":  # learns nothing, or has a guarantee_ of its own
        return True
    if package == "sklearn" and name in _LEARNS_NOTHING:
        return _LEARNS_NOTHING[name](step)
    return hasattr(step, "__sklearn_tags__") and not get_tags(step).requires_fit


def _is_declared(encoder: Any) -> bool:
    return not isinstance(encoder.categories, str)


def _refit(estimator: TellsOfRefits) -> _Refit | None:
    """The outermost routine above that fits copies of this estimator and does not account for them."""
    found: _Refit | None = None
    for frame, module in _above(estimator):
        words = next((_REFITTERS[key] for key in _REFITTERS if f"{module}.".startswith(f"{key}.")), None)
        if words is None:
            if found is not None and module == "sklearn.utils.parallel":  # what is below may be a task of a worker
                found = found._replace(called_here=False)
            continue
        owner, function = frame.f_locals.get("self", frame.f_locals.get("ensemble")), frame.f_code.co_name
        if isinstance(owner, BaseEstimator):
            if type(owner).__name__ not in _FITS_ONCE:
                found = _Refit(type(owner).__name__, True, frame)
        elif function[0] not in "_<":  # a public function, not a helper nor a comprehension
            found = _Refit(function, True, frame)
        elif found is None:
            found = _Refit(words, False, frame)
    return found


def _steps_in_front(estimator: TellsOfRefits) -> list[str]:
    """Names of the steps that learn, of all pipelines above."""
    names: dict[str, None] = {}
    seen: list[Any] = []
    for frame, _ in _above(estimator):
        owner = frame.f_locals.get("self") if frame.f_code.co_name in _FITS else None
        if any(owner is one for one in seen):
            continue
        if isinstance(owner, Pipeline):
            seen.append(owner)
            before = frame.f_locals.get("step_idx", len(owner.steps) - 1)
            names.update(dict.fromkeys(learning_steps(Pipeline(owner.steps[:before]))))
        elif isinstance(owner, TransformedTargetRegressor):
            names.update(dict.fromkeys(learning_steps(owner.transformer)))
    return list(names)


def _above(estimator: TellsOfRefits) -> Iterator[tuple[FrameType, str]]:
    """Frames from the call of an estimator outwards, up to another one, such as PrivateSelect, that answers for it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith("hushpoint."):
            owner = frame.f_locals.get("self")
            if isinstance(owner, TellsOfRefits) and owner is not estimator:
                return
        yield frame, module
        frame = frame.f_back


def _level_of_user() -> int:
    """The stacklevel, for the function that calls this, of the first frame outside of the libraries."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None:
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] not in ("hushpoint", "sklearn", "joblib"):
            break
        level, frame = level + 1, frame.f_back
    return level


def _tell_from_any_thread(text: str) -> None:
    """Warn where an error would stop joblib's own threads: a filter that makes errors of warnings gets it in print."""
    try:
        warnings.warn(text, UserWarning, stacklevel=3)
    except UserWarning:
        print(f"UserWarning: {text}", file=sys.stderr)
