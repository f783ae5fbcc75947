"""What is there to gain? Linear and additive models of scikit-learn, without privacy, on every data set.

python benchmarks/reference.py [--data DIRECTORY] [--group settled] [NAME ...]     # with adult.csv.gz, ...
"""

from __future__ import annotations

import argparse
import warnings
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from dataset import Array, DataSet
from datasets import load, names
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import cross_val_score

PENALTIES = (1.0, 10.0, 100.0)  # on coefficients of columns of deviation 1, beside a loss summed over the rows
KNOTS = (5, 10, 30)
CHOICE_ROWS = 8000  # cross validation looks at no more rows than these


class Reference(NamedTuple):
    """Scores on the test rows, accuracy in % or R2: of the best constant, a linear and an additive model."""

    constant: float
    linear: float
    additive: float


def reference(data: DataSet) -> Reference:
    """Penalty, and knots of the additive model, chosen by cross validation on the training rows."""
    if data.task == "classification":
        most = float(data.target[data.train].mean() > 0.5)
        constant = 100 * float((data.target[data.test] == most).mean())
    else:
        constant = 0.0
    return Reference(constant, _best(data, (0,)), _best(data, KNOTS))


def features(data: DataSet, knots: int) -> Array:
    """Numbers clipped to their ranges, 1 where one is missing, 1 for every category's level; deviation 1 in training.

    With ``knots``, a piecewise linear function of each number too, as hats around up to so many places.
    """
    parts = []
    for column, (low, high) in zip(data.numbers.T, data.ranges, strict=True):
        gone = np.isnan(column)
        column = column.clip(low, high)
        seen = column[data.train][~gone[data.train]]
        parts += [np.where(gone, seen.mean(), column)[:, None], gone[:, None].astype(float)]
        places = _places(seen, knots) if knots else []
        if len(places) > 2:  # on two the function is linear
            parts.append(np.where(gone[:, None], 0.0, _hats(column, places)))
    parts += [(values[:, None] == np.array(levels)).astype(float) for _, values, levels in data.categories]
    table = np.hstack(parts)
    table -= table[data.train].mean(0)
    spread = table[data.train].std(0)
    return table[:, spread > 0] / spread[spread > 0]


def _places(column: Array, knots: int) -> Array:
    """All values if they are few; else quantiles, half of the rows and half of the values that occur.

    The latter are for columns that are 0 in most rows, such as gains: all quantiles of the rows would be 0 there.
    """
    values = np.unique(column)
    if len(values) <= knots:
        return values
    return np.unique([np.quantile(part, np.linspace(0, 1, knots // 2 + 1)) for part in (column, values)])


def _hats(column: Array, knots: Array) -> Array:
    """For every knot the function that is 1 there, 0 at the others and linear in between."""
    return np.column_stack([np.interp(column, knots, unit) for unit in np.eye(len(knots))])


def _best(data: DataSet, knots: tuple[int, ...]) -> float:
    some = np.random.default_rng(1).permutation(data.train)[:CHOICE_ROWS]
    tables = {count: features(data, count) for count in knots}
    found = [(_validated(data, tables[count], some, penalty), count, penalty)
             for count, penalty in product(knots, PENALTIES)]  # fmt: skip
    _, count, penalty = max(found)
    model = _model(data, penalty).fit(tables[count][data.train], data.target[data.train])
    score = model.score(tables[count][data.test], data.target[data.test])
    return 100 * score if data.task == "classification" else score


def _validated(data: DataSet, table: Array, rows: NDArray[np.intp], penalty: float) -> float:
    """Of classifiers the log-likelihood is compared: it chooses more steadily than the accuracy does."""
    scoring = "neg_log_loss" if data.task == "classification" else "r2"
    penalty *= len(rows) * 2 / 3 / len(data.train)  # as strong beside fewer rows as it will be beside all
    return float(cross_val_score(_model(data, penalty), table[rows], data.target[rows], cv=3, scoring=scoring).mean())


def _model(data: DataSet, penalty: float) -> LogisticRegression | Ridge:
    return LogisticRegression(C=1 / penalty, max_iter=300) if data.task == "classification" else Ridge(penalty)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--data", type=Path, help="directory of Adult and California housing")
    parser.add_argument("--group", choices=["settled", "held out"])
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    print("Test accuracy in % or R2 without privacy.")
    print("| data set | group | task | n train + test | columns | constant | linear | additive | gain |")
    print("|---" * 9 + "|")
    for name in options.names or names(options.group, options.data):
        data = load(name, options.data)
        constant, linear, additive = reference(data)
        digits = 2 if data.task == "classification" else 3
        scores = " | ".join(f"{score:.{digits}f}" for score in (constant, linear, additive))
        rows = f"{len(data.train)} + {len(data.test)}"
        columns = f"{len(data.columns)} numbers, {len(data.categories)} categories"
        gain = f"{additive - linear:+.{digits}f}"
        print(f"| {name} | {data.group} | {data.task} | {rows} | {columns} | {scores} | {gain} |", flush=True)


if __name__ == "__main__":
    main()
