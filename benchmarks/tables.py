"""Real tables for the benchmarks, given by a directory: Adult and California housing."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Array = NDArray[np.float64]

ADULT_RANGES = {  # the codebook's
    "age": (17, 90),
    "fnlwgt": (12285, 1490400),
    "education_num": (1, 16),
    "capital_gain": (0, 99999),
    "capital_loss": (0, 4356),
    "hours_per_week": (1, 99),
}
ADULT_CATEGORIES = (
    "workclass",
    "education",
    "marital_status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "native_country",
)


class Split(NamedTuple):
    """Rows to train on and rows to test on."""

    train: Array
    train_targets: Array
    test: Array
    test_targets: Array


def unit_rows(table: Array) -> Array:
    """Rows longer than 1 scaled down to 1."""
    return table / np.maximum(1, np.linalg.norm(table, axis=1))[:, None]


def adult(directory: Path) -> Split:
    """One-hot and min-max with the codebook's ranges, 108 columns, rows scaled to norm <= 1; the official split."""
    data = pd.read_csv(directory / "adult.csv.gz", keep_default_na=False)
    columns = [
        ((data[name].to_numpy(float) - low) / (high - low)).clip(0, 1)[:, None]
        for name, (low, high) in ADULT_RANGES.items()
    ]
    for name in ADULT_CATEGORIES:
        values = np.array(sorted(data[name].unique()))
        columns.append((data[name].to_numpy()[:, None] == values).astype(float))
    table = unit_rows(np.hstack(columns))
    labels = data["income"].str.startswith(">").to_numpy().astype(float)
    train = (data["split"] == "train").to_numpy()
    return Split(table[train], labels[train], table[~train], labels[~train])


def california(directory: Path, split: int) -> Split:
    """Scikit-learn's 8 features, z-scored, and a constant, all over 3, rows scaled to norm <= 1, target in [-1, 1]."""
    data = pd.read_csv(directory / "california_housing.csv.gz")
    homes = data["households"]
    table = np.column_stack(
        [
            data["median_income"],
            data["housing_median_age"],
            data["total_rooms"] / homes,
            data["total_bedrooms"] / homes,
            data["population"],
            data["population"] / homes,
            data["latitude"],
            data["longitude"],
        ]
    ).astype(float)
    table = unit_rows(np.column_stack([(table - table.mean(0)) / table.std(0), np.ones(len(table))]) / 3)
    value = data["median_house_value"].to_numpy(float)
    value = 2 * (value - value.min()) / (value.max() - value.min()) - 1
    order = np.random.default_rng(split).permutation(len(table))
    train, test = order[: int(0.8 * len(order))], order[int(0.8 * len(order)) :]
    return Split(table[train], value[train], table[test], value[test])
