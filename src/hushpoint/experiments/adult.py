"""The Adult census table's public codebook, as a schema: nothing here was read from the rows."""

from __future__ import annotations

from hushpoint.schema import Category, Column, Ignored, Number, Schema

_RANGES = {
    "age": (17, 90),
    "fnlwgt": (12285, 1490400),
    "education_num": (1, 16),
    "capital_gain": (0, 99999),
    "capital_loss": (0, 4356),
    "hours_per_week": (1, 99),
}
_WORDS = {
    "workclass": ("Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked"),
    "education": (
        "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th 12th Masters 1st-4th 10th "
        "Doctorate 5th-6th Preschool"
    ),
    "marital_status": (
        "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent Married-AF-spouse"
    ),
    "occupation": (
        "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty Handlers-cleaners "
        "Machine-op-inspct Adm-clerical Farming-fishing Transport-moving Priv-house-serv Protective-serv Armed-Forces"
    ),
    "relationship": "Wife Own-child Husband Not-in-family Other-relative Unmarried",
    "race": "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black",
    "sex": "Female Male",
    "native_country": (
        "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) India Japan Greece South "
        "China Cuba Iran Honduras Philippines Italy Poland Jamaica Vietnam Mexico Portugal Ireland France "
        "Dominican-Republic Laos Ecuador Taiwan Haiti Columbia Hungary Guatemala Nicaragua Scotland Thailand "
        "Yugoslavia El-Salvador Trinadad&Tobago Peru Hong Holand-Netherlands"
    ),
}


def is_adult(columns: list[str]) -> bool:
    """Whether a table has the columns of Adult."""
    return {*_RANGES, *_WORDS, "income"} <= set(columns)


def schema(columns: list[str]) -> Schema:
    """The schema of Adult; columns that it does not know, such as the official split, are ignored."""
    known: dict[str, Column] = {name: Number(low, high) for name, (low, high) in _RANGES.items()}
    known |= {name: Category(tuple(words.split()), missing="indicator") for name, words in _WORDS.items()}
    known["income"] = Category(("<=50K", ">50K"))
    order = {name: known.get(name, Ignored()) for name in columns}
    return Schema(order, target="income", missing_values=("?", ""))
