"""Errors and warnings that never quote an entry of the data.

Libraries below us repeat what they were given: "could not convert string to float: 'flu'", "Expected 2D array, got 1D
array instead: array=[...]". Whoever reads a log would read people's data. So an error leaves a function that was given
data in one of three ways only: it is our own, raised by a ``raise`` of this package, whose messages hold names, shapes
and kinds; its text has a known form that quotes no entry; or its text is withheld and one sentence takes its place.
"""

from __future__ import annotations

import dis
import functools
import re
from collections.abc import Callable
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
T = TypeVar("T")

_RAISE = dis.opmap["RAISE_VARARGS"]
_SHAPE = r"\([\d, ]*\)"
_KIND = r"<class '[\w.]+'>"

# Texts that hold names of arguments, classes and columns, shapes and counts. Only these pass as they are.
_PASS = (
    r"This \w+ instance is not fitted yet\. [^\n]*",
    r"(This )?\w+( estimator)? requires y to be passed, but the target y is None\.?",
    r"X has \d+ features, but \w+ is expecting \d+ features as input\.?",
    rf"Found array with \d+ (sample|feature)\(s\) \(shape={_SHAPE}\) while a minimum of \d+ is required( by \w+)?\.",
    r"Found array with dim \d+, while dim <= 2 is required( by \w+)?\.",
    rf"Expected 2D input, got input with shape {_SHAPE}\.\n[^\n]*",
    rf"Expected a 2-dimensional container but got {_KIND} instead\. Pass a DataFrame [^\n]*",
    rf"Expected sequence or array-like, got {_KIND}",
    rf"y should be a 1d array, got an array of shape {_SHAPE} instead\.",
    r"Found input variables with inconsistent numbers of samples: \[[\d, ]*\]",
    r"The feature names should match those that were passed during fit\.\n.*",
    r"Feature names are only supported if all input features have string names, [^\n]*",
    r"Sparse data was passed( for \w+)?, but dense data is required\. [^\n]*",
    r"np\.matrix is not supported\. [^\n]*",
    r"Only sparse matrices with 32-bit integer indices are accepted\. [^\n]*",
    r"dtype='numeric' is not compatible with arrays of bytes/strings\. ?[^\n]*",
    r"Support for labels represented as bytes is not supported\. [^\n]*",
    r"You appear to be using a legacy multi-label data representation\. [^\n]*",
    r"(float|int|bool|complex)\(\) argument must be a string.* number, not '\w+'",
    r"Classification metrics can't handle a mix of [a-z-]+ and [a-z-]+ targets",
    r"(continuous|multiclass|multilabel|unknown)[a-z-]* is not supported",
    r"Mix of label input types \(string and number\)",
    r"y_true and y_pred have different number of output \(\d+!=\d+\)",
    rf"sample_weight\.shape == {_SHAPE}, expected {_SHAPE}!",
    r"Sample weights must be 1D array or scalar[^\n]*",
    r"[\w.]+\(\) (got an unexpected keyword argument|missing \d+ required|takes \d+ positional|got multiple)[^\n]*",
    rf"Unable to allocate [\d.]+ \w+ for an array with shape {_SHAPE} and data type \w+",
    r"(overflow|underflow|invalid value|divide by zero) encountered in \w+",
    # about a public argument only
    r"The 'scoring' parameter of check_scoring must be .*",
    r"Parameter (grid|array) .*",
    r"Invalid parameter '\w+' for estimator .*",
)

# Texts that quote entries, or go on too long, and what is said instead; {} stands for the arguments.
_SAY = (
    (r"Expected 2D array, got (1D|scalar) array instead:.*", "Expected 2D array, got {1} array instead. {remedy}"),
    (r"Complex data not supported\b.*", "Complex data not supported. Pass real numbers."),
    (r"Input (\w+ )?contains NaN\b.*", "Input {1}contains NaN. Impute missing values or leave out those rows."),
    (
        r"Input (\w+ )?contains infinity or a value too large for dtype\('(\w+)'\).*",
        "Input {1}contains infinity or a value too large for {2}. Clip such values or leave out those rows.",
    ),
    (
        r"could not convert string to .*",
        "{arguments} has text where numbers are needed. Encode it first, for example with hp.preprocessing.",
    ),
    (
        r"(Python )?int too (large|big) to convert.*",
        "{arguments} has whole numbers too large for floating point. Pass finite numbers.",
    ),
    (r"setting an array element with a sequence\b.*", "{arguments} has rows of different lengths. {remedy}"),
    (r"Input should have at least 1 dimension\b.*", "{arguments} is a single number. {remedy}"),
    (r"Singleton array .* cannot be considered a valid collection\.", "{arguments} is a single number. {remedy}"),
    (
        r"'<' not supported between instances of .*",
        "{arguments} mixes entries of different kinds. Pass entries of one kind.",
    ),
    (
        r".* cannot be used to seed a numpy\.random\.RandomState instance",
        "random_state is no seed. Pass a whole number, a RandomState or None.",
    ),
)
_REMEDY = (
    "Reshape your data: a table has one row per item and one column per feature, other arguments one entry per row."
)


def silent_about(arguments: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function so that no error of it, nor what an error grew out of, quotes its ``arguments``."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def silent(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                if _is_ours(error):
                    error.__cause__ = error.__context__ = None
                    raise
                told = _without_entries(error, arguments)
            raise told from None  # outside of the handler: the original is not even its context

        return silent

    return decorate


def validated(estimator: Any, *arguments: Any, **options: Any) -> Any:
    """What scikit-learn's ``validate_data`` gives; an "overflow encountered in cast" would tell of an entry."""
    from sklearn.utils.validation import validate_data  # here: a Problem does without scikit-learn

    with np.errstate(all="ignore"):
        return validate_data(estimator, *arguments, **options)


def require_labels(y: Any) -> None:
    """Labels of classes. Unlike scikit-learn's check it does not warn when there are many."""
    from sklearn.utils.multiclass import type_of_target

    with np.errstate(all="ignore"):
        kind = type_of_target(y, input_name="y")
    if kind not in ("binary", "multiclass"):
        raise ValueError(f"Unknown label type: {kind}. Pass discrete labels, such as words or whole numbers.")


def _is_ours(error: Exception) -> bool:
    """Whether a ``raise`` of this package raised it, or a filter that turns our own warnings into errors."""
    last = _last(error.__traceback__)
    if last is None or not _module(last).startswith("hushpoint"):
        return False
    # A call of NumPy or of Python itself that fails has our frame last too, but does not stand at a raise.
    return last.tb_frame.f_code.co_code[last.tb_lasti] == _RAISE or isinstance(error, UserWarning)


def _without_entries(error: Exception, arguments: str) -> Exception:
    text, kind = str(error), _kind(error)
    if any(re.fullmatch(pattern, text, re.DOTALL) for pattern in _PASS):
        return kind(text)
    for pattern, say in _SAY:
        found = re.fullmatch(pattern, text, re.DOTALL)
        if found:
            groups = [group or "" for group in found.groups()]
            return kind(say.format("", *groups, arguments=arguments, remedy=_REMEDY))
    last = _last(error.__traceback__)
    where = "Python" if last is None else _module(last)
    return ValueError(
        f"{arguments} cannot be used: {type(error).__name__} in {where}, whose words are withheld because they may "
        f"quote entries. Pass finite numbers, or labels and users of one kind. {_REMEDY}"
    )


def _kind(error: Exception) -> type[Exception]:
    """What is raised in its place: few kinds, none of which keeps more than a text."""
    if type(error).__name__ == "NotFittedError":
        return type(error)
    return next((kind for kind in (MemoryError, RuntimeWarning, TypeError) if isinstance(error, kind)), ValueError)


def _last(traceback: TracebackType | None) -> TracebackType | None:
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback


def _module(traceback: TracebackType) -> str:
    return str(traceback.tb_frame.f_globals.get("__name__", "an unnamed module"))
