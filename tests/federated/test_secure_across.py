"""An estimator fitted across sites in one call: what its own ``fit`` refuses is refused here."""

from __future__ import annotations

import pandas as pd
import pytest
from secure_federations import estimator, table

import hushpoint as hp
from hushpoint.federated.secure import fit_across

KINDS = ("logistic", "svc", "linear", "huber")


def sites(kind, groups=False, count=3, each=60):
    X, y, site_of, user_of = table(kind, count, each)
    columns = (X, y, user_of) if groups else (X, y)
    return [tuple(column[site_of == site] for column in columns) for site in range(count)], X, y


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("groups", [False, True])
def test_what_comes_out_predicts(kind, groups):
    parts, X, y = sites(kind, groups)
    fitted = fit_across(estimator(kind, epsilon=60.0), parts, rounds=10)
    assert fitted.score(X, y) > (0.7 if kind == "svc" else 0.85)
    assert fitted.guarantee_.epsilon <= 60.0
    assert fitted.guarantee_.unit == ("user" if groups else "record")


def test_a_seed_is_for_experiments_and_is_heard():
    # catches: a random_state that is ignored
    parts, *_ = sites("linear")
    one, same, other = (fit_across(estimator("linear", random_state=seed), parts, rounds=8) for seed in (1, 1, 2))
    assert one.coef_.tolist() == same.coef_.tolist() != other.coef_.tolist()
    assert "seed" in str(one.guarantee_)


def test_columns_are_those_of_all_sites():
    # catches: tables whose columns are in another order at one site
    parts, *_ = sites("linear")
    frames = [(pd.DataFrame(X, columns=["a", "b"]), y) for X, y in parts]
    fitted = fit_across(estimator("linear", epsilon=60.0), frames, rounds=8)
    assert fitted.feature_names_in_.tolist() == ["a", "b"]
    frames[1] = (frames[1][0][["b", "a"]], frames[1][1])
    with pytest.raises(ValueError, match="sites have columns of other names, or in another order"):
        fit_across(estimator("linear"), frames)


@pytest.mark.parametrize(
    ("make", "change", "words"),
    [
        (lambda: estimator("logistic", classes=["no", "maybe"]), None, "labels that classes does not declare"),
        (lambda: estimator("logistic", classes=None), None, "classes are not declared"),
        (lambda: estimator("logistic", delta=0.01), None, r"delta is 0\.01 and there are 180 records"),
        (lambda: estimator("linear"), None, "could not convert|not numbers|numeric"),
        (lambda: estimator("logistic"), lambda X, y: (X[:0], y[:0]), "site 1 of sites has no rows"),
        (lambda: estimator("logistic"), lambda X, y: (X, y, y), "sites has entries of different kinds"),
        (lambda: hp.PrivateAdditiveClassifier(epsilon=1.0, delta=1e-5), None, "is a PrivateAdditiveClassifier"),
        (lambda: 3, None, "estimator is a int"),
    ],
)
def test_what_fit_refuses_is_refused_in_words(make, change, words):
    parts, *_ = sites("logistic")
    if change is not None:
        parts[1] = change(*parts[1])
    with pytest.raises(ValueError, match=words):
        fit_across(make(), parts)


def test_users_are_at_one_site():
    parts, *_ = sites("linear", groups=True)
    parts[1] = (*parts[1][:2], parts[0][2])
    with pytest.raises(ValueError, match="All rows of a user have to be at one site"):
        fit_across(estimator("linear"), parts)
