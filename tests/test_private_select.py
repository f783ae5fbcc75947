"""Choosing among candidates privately: what a fit releases, how it splits, and what it refuses."""

from __future__ import annotations

import functools
import itertools
import math
import pickle
import warnings
from collections import Counter
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from oracles.run_counts import pmf
from scipy import stats
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError

import hushpoint as hp
from hushpoint.estimators.scoring import BoundedScore
from hushpoint.estimators.selection import PrivateSelect
from hushpoint.noise import seeded_source
from hushpoint.privacy import Guarantee, gaussian
from hushpoint.privacy.selection import DISTRIBUTIONS, run_count, selection_epsilon, selection_mu

gdp_epsilon, gdp_mu = functools.cache(gaussian.gdp_epsilon), functools.cache(gaussian.gdp_mu)


class Stub(BaseEstimator):
    """The contract of the library's estimators, with a mean of the rows, made noisy, for a model."""

    seen: ClassVar[list[Any]] = []  # what was fitted on and predicted, for the tests of the split

    def __init__(
        self, epsilon=1.0, delta=None, row_norm=1.0, sign=1, adjacency="replace-one", random_state=None, classes=None
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.row_norm = row_norm
        self.sign = sign
        self.adjacency = adjacency
        self.random_state = random_state
        self.classes = classes

    overspend = 1.0

    def fit(self, X, y, groups=None):
        X = X.toarray() if scipy.sparse.issparse(X) else np.asarray(X, dtype=float)
        Stub.seen.append(("fit", X[:, 0].copy(), None if groups is None else np.asarray(groups), self.sign))
        self.budget_of_run = self.epsilon, self.delta
        mu = gdp_mu(self.epsilon, self.delta) * self.overspend
        self.n_features_in_ = X.shape[1]
        bound = self.row_norm / np.maximum(np.linalg.norm(X, axis=1), self.row_norm)
        source = seeded_source(self.random_state) if self.random_state is not None else None
        draws = np.random.default_rng() if source is None else source.stream("stub")
        centred = self.encode(y)
        noise = draws.normal(size=X.shape[1]) * 2 * self.row_norm / (mu * len(X))
        self.coef_ = self.sign * ((X * bound[:, None] * centred[:, None]).mean(axis=0) + noise)
        unit = "record" if groups is None else "user"
        epsilon = gdp_epsilon(mu, self.delta)
        self.guarantee_ = Guarantee(
            epsilon, self.delta, mu, unit, self.adjacency, "iterates", "proved", "3a", ("stub",)
        )
        return self

    def margins(self, X):
        X = X.toarray() if scipy.sparse.issparse(X) else np.asarray(X, dtype=float)
        Stub.seen.append(("predict", X[:, 0].copy()))
        return X @ self.coef_


class StubClassifier(ClassifierMixin, Stub):
    def encode(self, y):
        self.classes_ = np.array(["no", "yes"])
        return np.where(np.asarray(y) == "yes", 1.0, -1.0)

    def decision_function(self, X):
        return self.margins(X)

    def predict(self, X):
        return self.classes_[(self.margins(X) > 0).astype(int)]


class Constant(StubClassifier):
    def predict(self, X):
        return np.full(X.shape[0], "yes")


class StubRegressor(RegressorMixin, Stub):
    def __init__(
        self,
        epsilon=1.0,
        delta=None,
        row_norm=1.0,
        sign=1,
        target_range=None,
        adjacency="replace-one",
        random_state=None,
    ):
        super().__init__(epsilon, delta, row_norm, sign, adjacency, random_state)
        self.target_range = target_range

    def encode(self, y):
        return np.clip(y, *self.target_range)

    def predict(self, X):
        return self.margins(X)


def labelled(rows: int = 2000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(seed).normal(size=(rows, 3))
    return X, np.where(X[:, 0] > 0, "yes", "no")


def select(estimator: Any = None, candidates: Any = None, **changes: Any) -> PrivateSelect:
    settings: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "random_state": 3, "mean_candidates": 6.0, **changes}
    return PrivateSelect(estimator or StubClassifier(), candidates or {"sign": [1, -1]}, **settings)


@pytest.fixture(autouse=True)
def _forget() -> None:
    Stub.seen.clear()


# --- the class set


def outcomes_over_all_splits(y: list[int], held: int, **settings: Any) -> dict[tuple[int, ...], float]:
    """The law of the published classes over every way to hold rows out, by enumeration; an error is an outcome too.

    People of one class are alike, so ways that hold out the same classes are one, and count as many times as they are.
    """
    X = np.column_stack([np.array(y) - 1.0, np.ones(len(y))])
    model = hp.PrivateLogisticRegression(row_norm=1.5, fit_intercept=False, **settings)
    select = PrivateSelect(model, {"alpha": [0.1]}, epsilon=0.1, delta=0.01, mean_candidates=2, random_state=0)
    law: dict[tuple[int, ...], float] = {}
    splits = list(itertools.combinations(range(len(y)), held))
    ways = {tuple(sorted(y[k] for k in out)): out for out in splits}
    counts = Counter(tuple(sorted(y[k] for k in out)) for out in splits)
    for classes, out in ways.items():
        kept = np.setdiff1d(np.arange(len(y)), out)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PrivateSelect, "_split", lambda self, items, source, k=kept, o=out: (k, np.array(o)))
            try:
                outcome = tuple(clone(select).fit(X, np.array(y)).classes_.tolist())
            except ValueError:
                outcome = ()
        law[outcome] = law.get(outcome, 0.0) + counts[classes] / len(splits)
    return law


@pytest.mark.filterwarnings("ignore:delta is")
@pytest.mark.parametrize("settings", [{}, {"classes": [0, 1, 2]}, {"classes": [0, 1, 2, 3]}])
def test_the_classes_of_the_best_model_do_not_depend_on_who_was_held_out(settings: dict[str, Any]) -> None:
    # each run took the classes of its own part: with two people of class 2, or one, the published model had two
    # classes with probability 1/28 against 1/4, far beyond what epsilon 0.1 allows
    expected = {tuple(settings.get("classes", [0, 1, 2])): pytest.approx(1.0)}
    for labels in ([0, 1, 0, 1, 0, 1, 2, 2], [0, 1, 0, 1, 0, 1, 0, 2]):
        assert outcomes_over_all_splits(labels, 2, **settings) == expected


@pytest.mark.filterwarnings("ignore:delta is")
def test_two_classes_and_their_weights_do_not_depend_on_who_was_held_out() -> None:
    # a part with one class only, or without a class that class_weight names, stopped the fit
    settings = {"class_weight": {0: 1.0, 1: 3.0}}
    assert outcomes_over_all_splits([0, 0, 0, 0, 0, 1], 1, **settings) == {(0, 1): pytest.approx(1.0)}


def test_the_guarantee_says_where_the_classes_are_from() -> None:
    X, y = labelled(200)
    read, declared = (select(StubClassifier(classes=c)).fit(X, y).guarantee_ for c in (None, ["no", "yes"]))
    assert "the set of classes was read from y and counts as public" in str(read)
    assert "classes" not in str(declared)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_declared_labels_of_any_kind_are_no_event() -> None:
    # scikit-learn takes a label of 2.5 for a number: with such a person in the training part the fit failed
    X, y = labelled(60)
    numbers = np.where(y == "yes", 1.0, 0.0)
    numbers[0] = 2.5
    model = hp.PrivateLogisticRegression(row_norm=3.0, classes=[0.0, 1.0, 2.5])
    for seed in range(6):
        search = PrivateSelect(model, {"alpha": [0.1]}, epsilon=1.0, delta=1e-6, random_state=seed)
        assert search.fit(X, numbers).classes_.tolist() == [0.0, 1.0, 2.5]


def test_a_fault_in_the_targets_does_not_show_by_its_part() -> None:
    # a text, or NaN, among the targets: quoted when held out, another error when trained on
    X, y = np.eye(20), np.arange(20.0).astype(object)
    for fault in ("canary", float("nan")):
        told = set()
        for place in range(0, 20, 4):
            bad = y.copy()
            bad[place] = fault
            with pytest.raises(ValueError, match="y") as caught:
                select(StubRegressor(target_range=(0.0, 20.0))).fit(X, bad)
            told.add(str(caught.value))
        assert len(told) == 1
        assert "canary" not in told.pop()


def test_no_warning_and_no_bar_counts_the_runs(capsys: pytest.CaptureFixture[str]) -> None:
    # a warning about delta in every run, or a bar of every run's own: as many as runs
    X, y = labelled(60)
    model = hp.PrivateLogisticRegression(row_norm=3.0, progress=True, classes=["no", "yes"])
    for seed in range(4):
        search = PrivateSelect(model, {"alpha": [0.1]}, epsilon=1.0, delta=0.1, mean_candidates=4, random_state=seed)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            search.fit(X, y)
        assert len(caught) == 1
        assert search.best_estimator_.progress is True
    assert capsys.readouterr() == ("", "")
    with pytest.raises(ValueError, match="candidates contain 'progress'"):
        PrivateSelect(model, {"progress": [True]}, epsilon=1.0, delta=1e-6).fit(X, y)


def test_a_senseless_candidate_is_refused_whether_it_is_drawn_or_not() -> None:
    # a fit that fails now and then, after other runs have read the data
    model = hp.PrivateLogisticRegression(row_norm=3.0)
    for seed in range(4):
        search = PrivateSelect(model, {"row_norm": [1.0] * 9 + [-2.0]}, epsilon=1.0, delta=1e-6, random_state=seed)
        with pytest.raises(ValueError, match=r"row_norm is -2\.0"):
            search.fit(*labelled(60))


def test_a_refit_of_the_best_model_says_again_where_its_classes_are_from() -> None:
    # classes= filled in from y made a refit call them declared
    X, y = labelled(60)
    search = PrivateSelect(hp.PrivateLogisticRegression(row_norm=3.0), {"alpha": [0.1]}, epsilon=1.0, delta=1e-6)
    best = search.fit(X, y).best_estimator_
    assert best.classes is None
    assert "read from y" in str(clone(best).fit(X, y).guarantee_)


# --- what is released


def test_finds_the_good_candidate_and_states_what_the_choice_cost() -> None:
    X, y = labelled()
    fitted = select(mean_candidates=20.0, distribution="geometric", random_state=5).fit(X, y)
    assert fitted.best_params_ == {"sign": 1}
    assert fitted.score(X, y) > 0.9
    assert abs(fitted.best_score_ - fitted.score(X, y)) < 0.2
    g = fitted.guarantee_
    assert 0.99 * 2.0 < g.epsilon <= 2.0
    assert (g.delta, g.mu, g.unit, g.adjacency, g.view, g.basis) == (
        1e-6,
        None,
        "record",
        "replace-one",
        "iterates",
        "proved",
    )
    assert g.epsilon == selection_epsilon(fitted.run_mu_, 1e-6, 20.0, "geometric")
    assert "docs/selection.md" in str(g)
    assert "integer seed" in str(g)
    assert "stub" in g.assumptions


def test_the_best_model_does_not_carry_the_guarantee_of_one_run() -> None:
    # Catches: best_estimator_.guarantee_ telling the naive epsilon, which test_selection shows to be false.
    fitted = select().fit(*labelled())
    best = fitted.best_estimator_
    assert best.guarantee_ == fitted.guarantee_
    assert fitted.guarantee_.epsilon > gdp_epsilon(fitted.run_mu_, 1e-6)
    assert (best.epsilon, best.delta) == (2.0, 1e-6)
    assert "epsilon=2.0" in repr(best)


def test_nothing_about_other_runs_is_kept() -> None:
    # Catches: n_runs_, cv_results_ and the like; the theorem covers the best run only.
    fitted = select(progress=True).fit(*labelled())
    kept = {name for name in vars(fitted) if name not in fitted.get_params(deep=False)}
    assert kept == {"best_estimator_", "best_params_", "best_score_", "guarantee_", "distribution_", "run_mu_"}


def test_progress_shows_no_count(capsys: pytest.CaptureFixture[str]) -> None:
    select(progress=True, mean_candidates=40.0).fit(*labelled(200))
    shown = "".join(capsys.readouterr())
    assert not any(letter.isdigit() for letter in shown)


def test_secure_by_default() -> None:
    fitted = select(random_state=None).fit(*labelled(300))
    assert "operating system" in str(fitted.guarantee_)
    again = select(random_state=None).fit(*labelled(300))
    assert fitted.best_score_ != again.best_score_


def test_a_seed_repeats_the_fit_and_runs_differ_within_it() -> None:
    # Catches: every run with the same noise, which would make the runs one run.
    X, y = labelled(300)
    scores = [select(random_state=8, mean_candidates=30.0).fit(X, y).best_score_ for _ in range(2)]
    assert scores[0] == scores[1]
    coefs = []
    original = StubClassifier.fit

    def spy(self, *arguments, **named):
        fitted = original(self, *arguments, **named)
        coefs.append((self.random_state, *fitted.coef_ * self.sign))
        return fitted

    StubClassifier.fit = spy
    try:
        select(random_state=8, mean_candidates=30.0).fit(X, y)
    finally:
        StubClassifier.fit = original
    assert len(coefs) > 3
    assert len(set(coefs)) == len(coefs)


@pytest.mark.parametrize("distribution", ["geometric", "poisson"])
@pytest.mark.parametrize("lattice", [True, False])
def test_released_score_has_the_law_of_the_best_of_k_noisy_scores(distribution: str, lattice: bool) -> None:
    # Every prediction is right, so a run's score is 1 + noise of std 1/(held mu), and the best of K has the law
    # f(Phi(.)). False alarm 1e-6; half the noise, or one run only, is caught.
    X, y = np.zeros((40, 1)), np.full(40, "yes")
    settings = {"mean_candidates": 4.0, "distribution": distribution, "validation": 0.5, "lattice": lattice}
    model = select(Constant(classes=["no", "yes"]), **settings)
    drawn = np.array([model.set_params(random_state=seed).fit(X, y).best_score_ for seed in range(300)])
    law = run_count(4.0, distribution)
    chances = np.array([pmf(law, k) for k in range(1, 200)])

    def cdf(std: float, first_only: bool = False) -> Any:
        powers = chances * 0 + np.eye(1, len(chances))[0] if first_only else chances
        return lambda x: np.polynomial.polynomial.polyval(stats.norm.cdf((x - 1) / std), np.append(0.0, powers))

    std = 1 / (20 * model.run_mu_)
    assert stats.kstest(drawn, cdf(std)).pvalue > 1e-6
    assert stats.kstest(drawn, cdf(std / 2)).pvalue < 1e-6
    assert stats.kstest(drawn, cdf(std, first_only=True)).pvalue < 1e-6


# --- the split


def test_parts_are_disjoint_and_the_same_for_every_run() -> None:
    # Catches: scoring on training rows, where a run would spend both budgets, and parts that follow the labels.
    X, y = labelled(100)
    X[:, 0] = np.arange(100)
    select(mean_candidates=30.0, validation=0.3).fit(X, y)
    trained = {frozenset(entry[1]) for entry in Stub.seen if entry[0] == "fit"}
    scored = {frozenset(entry[1]) for entry in Stub.seen if entry[0] == "predict"}
    assert len(trained) == len(scored) == 1
    (train,), (held,) = trained, scored
    assert train.isdisjoint(held)
    assert train | held == set(range(100))
    assert len(held) == 30

    Stub.seen.clear()
    select(mean_candidates=30.0, validation=0.3).fit(X, y[::-1].copy())
    assert {frozenset(entry[1]) for entry in Stub.seen if entry[0] == "fit"} == trained


def test_users_are_never_divided() -> None:
    X, y = labelled(120)
    X[:, 0] = np.repeat(np.arange(40), 3)
    names = np.array([f"user {k}" for k in X[:, 0]])
    fitted = select(validation=0.25).fit(X, y, groups=names)
    train = set(Stub.seen[0][1])
    held = {value for entry in Stub.seen if entry[0] == "predict" for value in entry[1]}
    assert train.isdisjoint(held)
    assert len(held) == 10
    assert set(Stub.seen[0][2]) == {f"user {k}" for k in train}
    assert fitted.guarantee_.unit == "user"


@pytest.mark.parametrize("lattice", [True, False])
def test_users_count_once_in_the_score(lattice: bool) -> None:
    # One user with 50 wrong rows among 10: as many rows must not move the score by more than one user.
    model = select(validation=0.5, epsilon=200.0, mean_candidates=1.0, lattice=lattice)
    rows = [1] * 19 + [50]
    groups = np.repeat(np.arange(20), rows)
    y = np.where(groups == 19, "no", "yes")
    scores = []
    for seed in range(6):
        model.set_params(estimator=Constant(classes=["no", "yes"]), random_state=seed).fit(
            np.zeros((len(y), 1)), y, groups=groups
        )
        scores.append(model.best_score_)
    assert min(scores) > 0.8  # 9 of 10 users right; by rows it would be 9 of 59
    assert any(score < 0.95 for score in scores)


@pytest.mark.parametrize("lattice", [True, False])
def test_the_noise_of_a_score_is_for_one_user_of_those_held_out(lattice: bool) -> None:
    # Catches: noise for one row among all held-out rows, where a user may have all of theirs changed. False alarm 1e-6.
    model = select(Constant(classes=("no", "yes")), validation=0.5, mean_candidates=1.0, lattice=lattice)
    groups = np.repeat(np.arange(40), 5)
    X, y = np.zeros((200, 1)), np.full(200, "yes")
    scores = [model.set_params(random_state=seed).fit(X, y, groups=groups).best_score_ for seed in range(100)]
    total = float(((np.array(scores) - 1) ** 2).sum()) * (20 * model.run_mu_) ** 2
    assert stats.chi2.ppf(5e-7, 100) < total < stats.chi2.isf(5e-7, 100)


def test_public_validation_is_exact_and_leaves_all_rows_for_training() -> None:
    X, y = labelled(400)
    public = labelled(50, seed=1)
    fitted = select(public_validation=public, scoring="balanced_accuracy", mean_candidates=15.0).fit(X, y)
    assert all(len(entry[1]) == 400 for entry in Stub.seen if entry[0] == "fit")
    from sklearn.metrics import balanced_accuracy_score

    assert fitted.best_score_ == balanced_accuracy_score(public[1], fitted.predict(public[0]))
    assert fitted.best_params_ == {"sign": 1}
    assert "scores on public rows" in fitted.guarantee_.assumptions


# --- what the numbers are


class Whole(StubClassifier):
    """A stub that says what numbers its fits are made of: of whole ones only for a sign of 1."""

    says: ClassVar[bool | None] = None  # None: the truth

    def _in_whole_numbers(self):
        return self.sign == 1 if self.says is None else self.says

    def fit(self, X, y, groups=None):
        super().fit(X, y, groups)
        self.guarantee_ = replace(self.guarantee_, arithmetic="whole" if self.sign == 1 else "real")
        return self


class Boasting(Whole):
    says = True


def arithmetic(estimator: Any, candidates: Any = None, **settings: Any) -> str:
    X, y = labelled(80)
    return select(estimator, candidates, mean_candidates=2.0, **settings).fit(X, y).guarantee_.arithmetic


def test_a_claim_about_the_program_needs_whole_fits_of_every_candidate_and_whole_scores() -> None:
    # Catches: a claim read off the best run, or off the runs made, which tells of the others and of how many there were
    public = {"public_validation": labelled(20, seed=1)}
    assert arithmetic(Whole(), {"sign": [1]}, **public) == "whole"
    assert arithmetic(Whole(), {"sign": [1]}, lattice=False, **public) == "real"
    assert arithmetic(StubClassifier(), {"sign": [1]}, **public) == "real"
    assert arithmetic(Whole(), {"sign": [1]}) == "real"  # predictions of a stranger, of all rows at once
    assert {arithmetic(Whole(), {"sign": [1, -1]}, random_state=seed, **public) for seed in range(8)} == {"real"}
    with pytest.raises(ValueError, match="Boasting promised"):
        arithmetic(Boasting(), {"sign": [-1]}, **public)


class Descendant(hp.PrivateLogisticRegression):
    def predict(self, X):
        return super().predict(X)


def test_scores_of_the_library_s_own_models_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches: scores by a product of matrices, a descendant with a predict of its own that is not asked for it
    own = {"estimator": hp.PrivateLogisticRegression(row_norm=3.0), "candidates": {"alpha": [0.1]}}
    assert arithmetic(**own) == "whole"
    assert arithmetic(**own, lattice=False) == "real"
    assert arithmetic(hp.PrivateLogisticRegression(row_norm=3.0, lattice=False), {"alpha": [0.1]}) == "real"
    assert arithmetic(hp.PrivateLogisticRegression(row_norm=3.0), {"lattice": [True, False]}) == "real"
    assert arithmetic(Descendant(row_norm=3.0), {"alpha": [0.1]}) == "real"
    asked = []
    monkeypatch.setattr(Descendant, "predict", lambda self, X: asked.append(1) or np.full(len(X), "no"))
    assert arithmetic(Descendant(row_norm=3.0), {"alpha": [0.1]}) == "real"
    assert asked
    monkeypatch.setattr(hp.PrivateLogisticRegression, "predict", None)  # is not what scores are made of
    assert arithmetic(**own) == "whole"


@pytest.mark.parametrize("two_class", [True, False])
def test_selections_among_additive_models_are_whole_but_for_admm(two_class: bool) -> None:
    # Catches: curves that do not say what they are made of, steps of ADMM that pass for whole numbers
    kind: Any = hp.PrivateAdditiveClassifier if two_class else hp.PrivateAdditiveRegressor
    own: dict[str, Any] = {"ranges": (-3, 3)} | ({} if two_class else {"target_range": (-1, 1)})
    X, y = labelled(80)

    def said(candidates: Any, **more: Any) -> str:
        search = select(kind(**own, **more), candidates, mean_candidates=2.0)
        return search.fit(X, y if two_class else X[:, 0] / 3).guarantee_.arithmetic

    assert said({"missing": [()]}) == "whole"
    assert said({"lattice": [True, False]}) == "real"
    if two_class:
        assert said({"missing": [()]}, constrained_by="admm") == "whole"  # nothing is monotone
        assert said({"missing": [()]}, constrained_by="admm", monotone={0: 1}) == "real"


def test_a_prediction_of_an_additive_model_is_to_the_bit_a_function_of_its_row() -> None:
    # Catches: noisy scores by predictions that depend on which rows they are made with
    X, _ = labelled(400)
    model = hp.PrivateAdditiveRegressor(
        epsilon=8.0, delta=1e-4, ranges=(-3, 3), target_range=(-1, 1), random_state=0
    ).fit(X, X[:, 0] / 3)
    whole = model._predict_alone(X)
    assert model.encoder_.waves > 0
    np.testing.assert_allclose(whole, model.predict(X), rtol=1e-9, atol=1e-12)
    for rows in (slice(7, 8), slice(3, 200, 2), np.random.default_rng(0).permutation(400)):
        np.testing.assert_array_equal(model._predict_alone(X[rows]), whole[rows])


@pytest.mark.parametrize("lattice", [True, False])
def test_the_number_of_runs_has_the_accounted_law(lattice: bool) -> None:
    # Catches: a fit that draws its runs from another law than the one it is charged for. False alarm 1e-6.
    X, y = np.zeros((40, 1)), np.full(40, "yes")
    model = select(Constant(classes=["no", "yes"]), mean_candidates=4.0, distribution="geometric", lattice=lattice)
    made = []
    for seed in range(300):
        Stub.seen.clear()
        model.set_params(random_state=seed).fit(X, y)
        made.append(sum(entry[0] == "fit" for entry in Stub.seen))
    due = 300 * np.array([*(0.25 * 0.75**k for k in range(9)), 0.75**9])
    seen = np.bincount(np.minimum(made, 10), minlength=11)[1:]
    assert stats.chisquare(seen, due).pvalue > 1e-6
    assert stats.chisquare(seen[::-1], due).pvalue < 1e-6


# --- regressors


@pytest.mark.parametrize(
    ("scoring", "unit"), [(None, 2), ("neg_mean_squared_error", 2), ("neg_mean_absolute_error", 1)]
)
def test_regression_scores_are_bounded_and_in_the_units_of_the_target(scoring: str | None, unit: int) -> None:
    X = np.random.default_rng(0).normal(size=(1000, 2))
    y = 3 * X[:, 0]
    estimator = StubRegressor(target_range=(-5, 5))
    chosen = select(estimator, scoring=scoring, epsilon=50.0, distribution="geometric", mean_candidates=12.0)
    chosen.fit(X, y)
    error = np.abs(np.clip(chosen.predict(X), -5, 5) - np.clip(y, -5, 5))
    assert chosen.best_params_ == {"sign": 1}
    assert chosen.best_score_ == pytest.approx(-np.mean(error**unit), abs=1.0)
    assert is_regressor(chosen)

    score = BoundedScore(scoring or "neg_mean_squared_error", (-5.0, 5.0))
    merits = score.merits(np.array([1e300, -math.inf, math.nan, 5.0]), np.ones(4))
    assert np.all((merits >= 0) & (merits <= 1))
    assert merits[2] == 0


def test_an_undeclared_target_range_is_refused() -> None:
    with pytest.raises(ValueError, match="target_range is not declared"):
        select(StubRegressor()).fit(*labelled(50))
    with pytest.raises(ValueError, match="candidates contain 'target_range'"):
        select(StubRegressor(target_range=(0, 1)), {"target_range": [(0, 1), (0, 2)]}).fit(*labelled(50))


# --- what is set, and what is refused


@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.05, 1e-9), (1.0, 1e-2), (0.02, 0.3)])
def test_a_run_never_spends_more_than_its_part(adjacency: str, epsilon: float, delta: float) -> None:
    # Large deltas are where the epsilon of a run would round to 0.
    fitted = select(adjacency=adjacency, epsilon=epsilon, delta=delta, distribution="logarithmic").fit(*labelled(60))
    spent = gdp_mu(*fitted.best_estimator_.budget_of_run)
    allowed = selection_mu(epsilon, delta, 6.0, "logarithmic")
    assert 0.999 * allowed < spent <= allowed
    assert fitted.best_estimator_.adjacency == fitted.guarantee_.adjacency == adjacency
    assert fitted.guarantee_.epsilon <= epsilon


def test_auto_takes_the_law_that_allows_most() -> None:
    fitted = select().fit(*labelled(60))
    assert fitted.run_mu_ == max(selection_mu(2.0, 1e-6, 6.0, name) for name in DISTRIBUTIONS)
    assert fitted.run_mu_ == selection_mu(2.0, 1e-6, 6.0, fitted.distribution_)


class Overspending(StubClassifier):
    overspend = 1.01


class WithoutMu(StubClassifier):
    def fit(self, X, y, groups=None):
        super().fit(X, y, groups)
        self.guarantee_ = replace(self.guarantee_, mu=None)
        return self


class WrongUnit(StubClassifier):
    def fit(self, X, y, groups=None):
        return super().fit(X, y, np.arange(len(y)))


class Published(StubClassifier):
    def fit(self, X, y, groups=None):
        super().fit(X, y, groups)
        self.guarantee_ = replace(self.guarantee_, basis="published")
        return self


class NotPrivate(ClassifierMixin, BaseEstimator):
    def __init__(self, sign=1):
        self.sign = sign


class OwnClasses(StubClassifier):
    """Takes its classes from the rows it is given: a part of them may lack one."""

    def __init__(self, epsilon=1.0, delta=None, row_norm=1.0, sign=1, adjacency="replace-one", random_state=None):
        super().__init__(epsilon, delta, row_norm, sign, adjacency, random_state)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: select(Overspending()), "Overspending spent mu"),
        (lambda: select(WithoutMu()), "no guarantee_ with a mu"),
        (lambda: select(WrongUnit()), "guarantee for one user"),
        (lambda: select(Published()), "gives a published guarantee"),
        (lambda: select(NotPrivate()), "no parameter epsilon"),
        (lambda: select(OwnClasses()), "no parameter classes"),
        (lambda: select(StubClassifier(classes=["no", "maybe"])), "labels that classes does not declare"),
        (lambda: select(candidates={"classes": [["no", "yes"]]}), "candidates contain 'classes'"),
        (lambda: select(Stub()), "neither a classifier nor a regressor"),
        (lambda: select(candidates={"epsilon": [1.0, 2.0]}), "candidates contain 'epsilon'"),
        (lambda: select(candidates=[{"sign": 1}, {"random_state": 2}]), "candidates contain 'random_state'"),
        (lambda: select(candidates={"delta": [1e-5]}), "candidates contain 'delta'"),
        (lambda: select(candidates={"adjacency": ["zero-out"]}), "candidates contain 'adjacency'"),
        (lambda: select(candidates={"strength": [1.0]}), "candidates contain 'strength'"),
        (lambda: select(candidates=[1, 2]), "candidates is a list"),
        (lambda: select().set_params(candidates=[]), "candidates is a list"),
        (lambda: select(delta=None), "delta is not declared"),
        (lambda: select(delta=0.0), "delta is 0.0"),
        (lambda: select(epsilon=0.0), "epsilon is 0.0"),
        (lambda: select(epsilon=1e-9), "too little for any choice"),
        (lambda: select(mean_candidates=0.5), "mean_candidates is 0.5"),
        (lambda: select(mean_candidates=1e9), "mean_candidates is"),
        (lambda: select(distribution="fixed"), "distribution is 'fixed'"),
        (lambda: select(adjacency="add-remove"), "adjacency is 'add-remove'"),
        (lambda: select(validation=1.0), "validation is 1"),
        (lambda: select(validation=0.999), "leaves nothing"),
        (lambda: select(scoring="roc_auc"), "scoring is 'roc_auc'"),
        (lambda: select(scoring=lambda *_: 1.0), "scoring is a function"),
        (lambda: select(public_validation=np.zeros(3)), "public_validation is a ndarray"),
        (lambda: select(progress=1), "progress is 1"),
        (lambda: select(lattice=1), "lattice is 1"),
        (lambda: select(random_state=-1), "seed is -1"),
    ],
)
def test_errors_say_what_to_do(model: Any, message: str) -> None:
    chosen = model()
    with pytest.raises(ValueError, match=message):
        chosen.fit(*labelled(50))
    assert not hasattr(chosen, "best_estimator_")


# --- a scikit-learn estimator


def test_clone_parameters_and_pickle() -> None:
    X, y = labelled(200)
    model = select(StubClassifier(row_norm=2.0))
    assert model.get_params(deep=True)["estimator__row_norm"] == 2.0
    model.set_params(estimator__row_norm=3.0, epsilon=1.5)
    copied = clone(model)
    assert copied.get_params()["estimator__row_norm"] == 3.0
    assert copied.estimator is not model.estimator
    fitted = model.fit(X, y)
    assert not hasattr(clone(fitted), "guarantee_")
    restored = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(restored.predict(X), fitted.predict(X))
    assert restored.guarantee_ == fitted.guarantee_
    assert model.estimator.delta is None  # the estimator that was passed in is left alone


def test_delegates_what_the_best_model_has() -> None:
    X, y = labelled(200)
    model = select()
    assert is_classifier(model)
    assert not hasattr(model, "classes_")
    assert not hasattr(model, "predict_proba")
    with pytest.raises(NotFittedError):
        model.predict(X)
    model.fit(X, y)
    assert np.array_equal(model.decision_function(X), model.best_estimator_.decision_function(X))
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.n_features_in_ == 3
    assert model.score(X, y) == np.mean(model.predict(X) == y)


def test_frames_and_sparse_rows() -> None:
    X, y = labelled(200)
    plain = select().fit(X, y)
    frame = select().fit(pd.DataFrame(X, columns=["a", "b", "c"]), pd.Series(y))
    sparse = select().fit(scipy.sparse.csr_array(X), y)
    assert plain.best_score_ == frame.best_score_ == sparse.best_score_


# --- with the library's own runs


class AdmmClassifier(ClassifierMixin, BaseEstimator):
    """A calibrated plan behind the estimator's contract."""

    def __init__(self, epsilon=1.0, delta=None, ridge=0.01, adjacency="replace-one", random_state=None, classes=None):
        self.epsilon = epsilon
        self.delta = delta
        self.ridge = ridge
        self.adjacency = adjacency
        self.random_state = random_state
        self.classes = classes

    def fit(self, X, y, groups=None):
        ridge = hp.regularizers.L2(self.ridge)
        problem = hp.Problem(X, y, "logistic", ridge, row_norm=3.0, groups=groups, classes=self.classes)
        budget = hp.Budget(self.epsilon, self.delta, adjacency=self.adjacency)
        result = hp.methods.private_admm(problem, steps=10, gamma=5.0, budget=budget).run(seed=self.random_state)
        self.classes_, self.coef_, self.guarantee_ = problem.classes, result.model, result.guarantee
        return self

    def predict(self, X):
        return np.asarray(self.classes_)[(X @ self.coef_ > 0).astype(int)]


@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
@pytest.mark.parametrize("users", [False, True])
def test_calibrated_plans_spend_their_part_and_no_more(adjacency: str, users: bool) -> None:
    X, y = labelled(1500)
    groups = np.arange(1500) // 3 if users else None
    fitted = select(AdmmClassifier(), {"ridge": [1e-3, 1.0]}, epsilon=4.0, adjacency=adjacency).fit(X, y, groups=groups)
    assert fitted.guarantee_.epsilon <= 4.0
    assert fitted.guarantee_.unit == ("user" if users else "record")
    assert fitted.guarantee_.section.startswith("3a")
    assert fitted.score(X, y) > 0.8


def test_logistic_regression_end_to_end() -> None:
    estimators = pytest.importorskip("hushpoint.estimators")
    X, y = labelled(3000)
    model = estimators.PrivateLogisticRegression(row_norm=3.0)
    fitted = PrivateSelect(
        model, {"alpha": [1e-3, 10.0]}, epsilon=4.0, delta=1e-6, distribution="geometric", random_state=1
    ).fit(X, y)
    assert fitted.guarantee_.epsilon <= 4.0
    assert fitted.best_params_ == {"alpha": 1e-3}
    assert fitted.score(X, y) > 0.85
    assert fitted.predict_proba(X[:5]).shape == (5, 2)
    # the plan of the best run read as if its budget were all that was spent
    assert "a share of epsilon = 4 at delta = 1e-06 in all" in str(fitted.best_estimator_.parameters_)
    assert fitted.best_estimator_.parameters_.mu < fitted.run_mu_
    assert pickle.loads(pickle.dumps(fitted)).guarantee_ == fitted.guarantee_
