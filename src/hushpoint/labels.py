"""Labels: which classes there are, declared before the data is read or else read off ``y`` and then public."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from hushpoint._types import Array

READ_FROM_LABELS = "the set of classes was read from y and counts as public"


def class_set(labels: NDArray[Any], declared: Any = None) -> NDArray[Any]:
    """The declared classes, sorted, once every label is known to be one of them; without any, those of the labels.

    No message repeats a label.
    """
    if declared is None:
        return _classes_of(labels)
    classes = declared_classes(declared)
    if not _members(labels) <= set(classes.tolist()):
        raise ValueError(
            "y has labels that classes does not declare. Declare every class that can occur, because that is known "
            "and not because this y has it, or leave those rows out."
        )
    return classes


def declared_classes(declared: Any) -> NDArray[Any]:
    """Declared classes, sorted: at least two different ones, all words or all numbers."""
    remedy = "Pass at least two different classes of one kind, for example classes=['no', 'yes']."
    if declared is None:
        raise ValueError(f"classes are not declared. {remedy}")
    if isinstance(declared, (str, bytes, dict)):
        raise ValueError(f"classes is a {type(declared).__name__}. {remedy}")
    try:
        listed = np.asarray(declared).tolist() if hasattr(declared, "dtype") else list(declared)
    except TypeError:
        raise ValueError(f"classes is a {type(declared).__name__}. {remedy}") from None
    words = all(isinstance(one, str) for one in listed)
    finite = all(isinstance(one, (numbers.Real, np.bool_)) and math.isfinite(one) for one in listed)
    if not (words or finite) or len(set(listed)) != len(listed) or len(listed) < 2:
        raise ValueError(f"classes has {len(listed)} entries: too few, one twice, or of different kinds. {remedy}")
    return np.unique(np.array(listed))


def signs(labels: NDArray[Any], positive: Any) -> Array:
    """1 where a label is the positive class, -1 elsewhere."""
    return np.where(labels == positive, 1.0, -1.0)


def probabilities(scores: Array) -> Array:
    """Of two classes, or of several from each one's score against the rest, made to sum to 1."""
    each = expit(scores)
    if each.ndim == 1:
        return np.column_stack([1 - each, each])
    each = np.maximum(each, np.finfo(np.float64).tiny)
    return np.asarray(each / each.sum(axis=1, keepdims=True))


def has_missing(values: NDArray[Any]) -> bool:
    """Whether an array of any kind has NaN, NaT, None or pandas' NA among its entries."""
    if values.dtype.kind == "O":
        return any(value is None or type(value).__name__ == "NAType" or value != value for value in values)
    return bool((values != values).any())


def _members(labels: NDArray[Any]) -> set[Any]:
    try:
        return set(labels.tolist())
    except TypeError:
        raise ValueError("y has labels that are neither words nor numbers. Pass one word or number a row.") from None


def _classes_of(labels: NDArray[Any]) -> NDArray[Any]:
    try:
        return np.unique(labels)
    except TypeError:
        raise ValueError("y mixes labels of different kinds. Pass labels of one kind.") from None
