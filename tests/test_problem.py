"""Problem: what the data become, what is public about them, and what is minimised."""

import json
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import hushpoint as hp
from hushpoint.problem import Facts

SPARSE = [f"{kind}_{form}" for kind in ("csr", "csc", "coo") for form in ("array", "matrix")]


def table(rows=30, features=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, features))
    X[rng.random(X.shape) < 0.4] = 0.0
    X[3] = 0.0  # a row without any entry
    return X, X @ rng.normal(size=features) + rng.normal(size=rows)


def other_form(X, form):
    if form in SPARSE:
        return getattr(scipy.sparse, form)(X)
    if form == "duplicates":  # every entry stored as two halves, in unsorted order
        whole = scipy.sparse.coo_array(X)
        rows, columns = whole.coords
        order = np.argsort(np.concatenate([rows, rows]), kind="stable")
        data = np.concatenate([whole.data, whole.data])[order] / 2
        counts = np.concatenate([[0], np.cumsum(2 * np.bincount(rows, minlength=len(X)))])
        return scipy.sparse.csr_array((data, np.concatenate([columns, columns])[order], counts), shape=X.shape)
    return {
        "frame": lambda: pd.DataFrame(X, index=np.arange(len(X))[::-1]),
        "mixed frame": lambda: pd.DataFrame({f"c{j}": X[:, j].astype(object if j % 2 else float) for j in range(5)}),
        "list": X.tolist,
        "fortran": lambda: np.asfortranarray(X),
        "strided": lambda: np.repeat(X, 2, axis=1)[:, ::2],
    }[form]()


# ---------------------------------------------------------------------------------------------- the same data


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("form", [*SPARSE, "duplicates", "frame", "mixed frame", "list", "fortran", "strided"])
def test_every_form_of_the_same_data_is_the_same_problem(form, intercept):
    # a sparse path that scales, groups or appends the constant otherwise than the dense one; an index of a frame used
    # as an order; entries that a sparse matrix stores twice counted once
    X, y = table()
    groups = np.arange(len(y)) % 7
    model = np.random.default_rng(1).normal(size=5 + intercept)
    extra = {"row_norm": 1.5, "clip": 0.7, "groups": groups, "fit_intercept": intercept}
    plain = hp.Problem(X, y, "squared", hp.regularizers.L1(0.1), **extra)
    other = hp.Problem(other_form(X, form), pd.Series(y), "squared", hp.regularizers.L1(0.1), **extra)
    assert other.facts == plain.facts
    assert other.objective(model) == pytest.approx(plain.objective(model), rel=1e-13)
    np.testing.assert_allclose(other.gradient(model), plain.gradient(model), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(other.rows.squared_norms, plain.rows.squared_norms, rtol=1e-13)


@pytest.mark.parametrize("form", ["csr_array", "csc_matrix", "coo_array", "duplicates"])
@pytest.mark.parametrize(("users", "row_norm"), [(False, 1.0), (False, 50.0), (True, 1.0)])
def test_every_method_runs_alike_on_sparse_and_dense_rows(form, users, row_norm):
    # the operators have a sparse branch each: one that forgets a row without entries, or an entry stored twice
    X, y = table()
    groups = np.arange(len(y)) % 7 if users else None
    problems = [
        hp.Problem(data, y > 0, "logistic", hp.regularizers.ElasticNet(0.01, 0.02), row_norm=row_norm, groups=groups)
        for data in (X, other_form(X, form))
    ]
    for make in (
        lambda problem: hp.methods.dp_sgd(problem, 6, 0.5, 0.5, noise_std=0.1),
        lambda problem: hp.methods.dp_cd(problem, 6, noise_std=0.1),
        lambda problem: hp.methods.private_admm(problem, 6, 1.0, noise_std=0.1),
        lambda problem: hp.methods.centralized_admm(problem, 6, 1.0, noise_std=0.1),
        lambda problem: hp.methods.federated_admm(problem, 6, 1.0, noise_std=0.1, sample_size=3),
    ):
        dense, sparse = (make(problem).run(seed=3).model for problem in problems)
        np.testing.assert_allclose(sparse, dense, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("form", [*SPARSE, "duplicates", "dense"])
def test_the_callers_data_are_never_changed(form):
    # scaling, sorting or summing in place what the caller still uses
    X, y = table()
    data = X if form == "dense" else other_form(X, form)
    parts = ("data", "indices", "indptr") if hasattr(data, "indptr") else ("data",) if form != "dense" else ()
    before = [np.array(getattr(data, part)) for part in parts] or [X.copy()]
    problem = hp.Problem(data, y, row_norm=0.5, clip=1.0, groups=np.arange(len(y))[::-1] // 3, fit_intercept=True)
    hp.methods.centralized_admm(problem, 3, 1.0, noise_std=0.5).run(seed=0)
    for part, kept in zip([getattr(data, part) for part in parts] or [X], before, strict=True):
        np.testing.assert_array_equal(part, kept)


def test_dense_rows_are_not_copied_when_nothing_is_scaled():
    # a needless copy doubles the memory of a large data set
    X, y = table()
    X = X / np.linalg.norm(X, axis=1).max()
    for row_norm in (None, 1.0 + 1e-9, 3.0):
        assert np.shares_memory(hp.Problem(X, y, row_norm=row_norm).rows.features, X)
    scaled = hp.Problem(X, y, row_norm=0.5)
    assert not np.shares_memory(scaled.rows.features, X)  # the test can fail


# ---------------------------------------------------------------------------------------------- row norm, intercept


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.sampled_from([1e-3, 0.3, 1.0, 7.0]), st.booleans(), st.booleans())
def test_only_longer_rows_are_scaled_and_no_row_is_longer_than_declared(seed, row_norm, sparse, intercept):
    # a row that sticks out by rounding, or a short row that is stretched, breaks the sensitivity that was declared
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(8, 6)) * 10.0 ** rng.integers(-4, 4, size=(8, 1))
    X[2] = 0.0
    problem = hp.Problem(
        scipy.sparse.csr_array(X) if sparse else X, X[:, 0], row_norm=row_norm, fit_intercept=intercept
    )
    rows = problem.rows.features.toarray() if sparse else problem.rows.features
    whole = np.hstack([X, np.ones((8, 1))]) if intercept else X
    for row, given_row in zip(rows, whole, strict=True):
        assert sum(Fraction(v) ** 2 for v in row.tolist()) <= Fraction(row_norm) ** 2  # exact arithmetic
        if np.linalg.norm(given_row) < row_norm * (1 - 1e-12):
            np.testing.assert_array_equal(row, given_row)
        else:
            np.testing.assert_allclose(row, given_row * (row_norm / np.linalg.norm(given_row)), rtol=1e-14)


def test_no_row_is_scaled_when_the_bound_is_undeclared():
    # a default bound that nobody declared
    X, y = table()
    np.testing.assert_array_equal(hp.Problem(1000 * X, y).rows.features, 1000 * X)
    assert hp.Problem(X, y).facts.row_norm is None


def test_the_intercept_is_the_last_feature_inside_the_bound_and_unpenalised():
    # a constant appended after scaling leaves the bound; a penalised intercept is biased towards 0
    X, y = table()
    strong = hp.Problem(X, y, "squared", hp.regularizers.L1(0.3), row_norm=1.2, fit_intercept=True)
    assert strong.facts.width == 6
    assert strong.facts.features == 5
    constant = strong.rows.features[:, -1]
    lengths = np.sqrt((X**2).sum(axis=1) + 1)
    np.testing.assert_allclose(constant, np.minimum(1.0, 1.2 / lengths), rtol=1e-14)
    assert np.linalg.norm(strong.rows.features, axis=1).max() <= 1.2
    free = hp.Problem(X, y, "squared", None, row_norm=1.2, fit_intercept=True)
    model = np.array([0.5, -0.5, 1.0, 0.0, 0.0, 100.0])
    assert strong.objective(model) - free.objective(model) == pytest.approx(0.3 * 2.0, rel=1e-9)
    np.testing.assert_array_equal(strong.split(model)[0], model[:-1])
    assert strong.split(model)[1] == 100.0
    assert hp.Problem(X, y).split(model[:-1])[1] == 0.0


def test_the_intercept_takes_the_mean_and_a_huge_penalty_leaves_it_free():
    # an intercept that is regularised, or placed first, cannot be the mean of the targets
    X, y = table()
    problem = hp.Problem(X, y + 3, "squared", hp.regularizers.L1(1e3), fit_intercept=True)
    model = hp.methods.private_admm(problem, 200, 1.0, noise_std=0.0).run(seed=0).model
    np.testing.assert_allclose(model, [0, 0, 0, 0, 0, np.mean(y + 3)], atol=1e-9)


@pytest.mark.parametrize("regularizer", [None, hp.regularizers.L1(0.05), hp.regularizers.ElasticNet(0.02, 0.1)])
@pytest.mark.parametrize(
    "make",
    [
        lambda problem: hp.methods.dp_sgd(problem, 2000, 0.4, noise_std=0.0),
        lambda problem: hp.methods.dp_cd(problem, 4000, 0.4, noise_std=0.0),
        lambda problem: hp.methods.private_admm(problem, 400, 2.0, noise_std=0.0),
        lambda problem: hp.methods.centralized_admm(problem, 1500, 2.0, noise_std=0.0),
        lambda problem: hp.methods.anchored_admm(problem, 1500, 2.0, noise_std=0.0, radius=100.0),
    ],
    ids=["dp_sgd", "dp_cd", "private", "centralized", "anchored"],
)
def test_every_method_leaves_the_intercept_free(make, regularizer):
    # a method with a prox of its own for coordinates, or for a ridge moved into the loss that takes it along
    X, y = table()
    problem = hp.Problem(X, y + 3, "squared", regularizer, row_norm=2.0, fit_intercept=True)
    model = make(problem).run(seed=0).model
    assert abs(problem.gradient(model)[-1]) < 1e-6  # only the loss acts on it


# ---------------------------------------------------------------------------------------------- labels


@pytest.mark.parametrize(
    ("negative", "positive"),
    [("no", "yes"), (False, True), (0, 1), (-1, 1), (-1.0, 1.0), (1, 2), (3.5, 7.25), ("-1", "1")],
)
@pytest.mark.parametrize("loss", ["logistic", "smoothed_hinge"])
@pytest.mark.parametrize("wrap", [np.array, list, pd.Series, lambda y: pd.Series(y, dtype=object), "column"])
def test_any_two_labels_are_minus_and_plus_one(negative, positive, loss, wrap):
    # 0/1 labels that enter the loss as they are; the two classes swapped for strings
    X, y = table()
    labels = [positive if value > 0 else negative for value in y]
    data = np.array(labels)[:, None] if wrap == "column" else wrap(labels)
    problem = hp.Problem(X, data, loss)
    np.testing.assert_array_equal(problem.rows.targets, np.where(y > 0, 1.0, -1.0))
    assert list(problem.classes) == [negative, positive]


def test_declared_labels_need_no_member_and_are_not_read():
    # the two labels were whatever y held: one of them alone was an error, other words another problem
    problem = hp.Problem(np.eye(3), ["no", "no", "no"], "logistic", classes=("yes", "no"))
    assert list(problem.classes) == ["no", "yes"]
    assert problem.rows.targets.tolist() == [-1, -1, -1]
    with pytest.raises(ValueError, match="labels that classes does not declare") as caught:
        hp.Problem(np.eye(3), ["no", "canary", "no"], "logistic", classes=("yes", "no"))
    assert "canary" not in str(caught.value)
    with pytest.raises(ValueError, match="classes declares 3 classes"):
        hp.Problem(np.eye(3), [0, 1, 2], "logistic", classes=(0, 1, 2))
    with pytest.raises(ValueError, match="classes is given and the squared loss takes numbers"):
        hp.Problem(np.eye(3), [0, 1, 2], classes=(0, 1))


def test_a_run_says_where_its_labels_are_from():
    told = "the set of classes was read from y and counts as public"
    for classes, said in ((None, True), ((0, 1), False)):
        problem = hp.Problem(np.eye(4), [0, 1, 0, 1], "logistic", row_norm=1.0, classes=classes)
        result = hp.methods.private_admm(problem, 2, 1.0, noise_std=1.0).run(seed=0)
        assert (told in str(result.guarantee)) is said


def test_numeric_targets_are_taken_as_they_are():
    # a regression target of two values encoded as classes
    X, y = table()
    for target in (y, np.where(y > 0, 1, 0), pd.Series(y), y[:, None].tolist(), (y > 0), y.astype(object)):
        problem = hp.Problem(X, target, "squared")
        np.testing.assert_array_equal(problem.rows.targets, np.asarray(target, dtype=float).reshape(-1))
        assert problem.classes is None


# ---------------------------------------------------------------------------------------------- groups and objective


NAMES = np.array(["u", "zoe", "ann", "bob"])[[0, 1, 1, 2, 0, 3, 3, 3, 3, 2] * 3]


def explicit_objective(X, y, names, model, weights, row_loss):
    """The definition, one row at a time."""
    total, everyone = 0.0, sorted(set(names))
    for name in everyone:
        members = [j for j in range(len(y)) if names[j] == name]
        mean = sum(row_loss(X[j], y[j], model) for j in members) / len(members)
        total += mean * (1 / len(everyone) if weights == "items" else len(members) / len(y))
    return total


def squared(row, target, model):
    return (row @ model - target) ** 2 / 2


def logistic(row, target, model):
    return math.log1p(math.exp(-target * float(row @ model)))


@pytest.mark.parametrize("weights", ["items", "rows"])
@pytest.mark.parametrize(("loss", "row_loss"), [("squared", squared), ("logistic", logistic)])
def test_objective_is_the_weighted_mean_over_users_of_the_mean_over_their_rows(weights, loss, row_loss):
    # sum instead of mean inside a user; the two kinds of weights confused; rows given to the wrong user
    X, y = table()
    y = y if loss == "squared" else np.sign(y)
    names, model = NAMES, np.random.default_rng(2).normal(size=5)
    problem = hp.Problem(X, y, loss, hp.regularizers.L2(0.4), groups=names, weights=weights)
    wanted = explicit_objective(X, y, names, model, weights, row_loss)
    assert problem.objective(model) == pytest.approx(wanted + 0.2 * (model @ model), rel=1e-13)
    assert problem.row_weights.sum() == pytest.approx(1, rel=1e-14)
    assert list(problem.users) == sorted(set(names))
    assert problem.facts.rows_per_item == tuple(int((names == name).sum()) for name in sorted(set(names)))


def test_without_groups_the_objective_is_the_plain_mean():
    # weights that do not sum to one
    X, y = table()
    model = np.ones(5)
    for weights in ("items", "rows"):
        got = hp.Problem(X, y, "squared", weights=weights).objective(model)
        assert got == pytest.approx(np.mean((X @ model - y) ** 2) / 2, rel=1e-14)


@pytest.mark.parametrize("weights", ["items", "rows"])
def test_groups_may_come_in_any_order(weights):
    # rows assumed to be sorted by user
    X, y = table()
    names, model = NAMES, np.random.default_rng(2).normal(size=5)
    order = np.random.default_rng(3).permutation(len(y))
    one = hp.Problem(X, y, groups=names, weights=weights, clip=1.0)
    two = hp.Problem(X[order], y[order], groups=pd.Series(names[order]), weights=weights, clip=1.0)
    assert one.facts == two.facts
    assert two.objective(model) == pytest.approx(one.objective(model), rel=1e-13)
    np.testing.assert_allclose(two.gradient(model), one.gradient(model), rtol=1e-11)
    runs = [hp.methods.centralized_admm(problem, 5, 1.0, noise_std=0.3).run(seed=1).model for problem in (one, two)]
    np.testing.assert_allclose(runs[0], runs[1], rtol=1e-7, atol=1e-9)


def test_taking_some_users_takes_their_rows():
    # offsets that are off by one show as rows of the neighbour
    X, y = table()
    names = NAMES
    problem = hp.Problem(X, y, groups=names)
    chosen = np.array([3, 0])
    part = problem.rows.take(chosen)
    wanted = np.concatenate([np.flatnonzero(names == problem.users[user]) for user in chosen])
    np.testing.assert_array_equal(part.features, X[wanted])
    np.testing.assert_array_equal(part.targets, y[wanted])
    np.testing.assert_array_equal(part.counts, [(names == problem.users[user]).sum() for user in chosen])


# ---------------------------------------------------------------------------------------------- clip


def truncated(phi, slope_of, a, b, model, clip):
    """Integrate the clipped slope from the minimiser of the loss: the definition of the truncated loss."""
    t = float(a @ model)
    length = np.linalg.norm(a)
    limit = clip / length if length > 0 else math.inf
    grid = np.linspace(b, t, 20001)
    middle = (grid[1:] + grid[:-1]) / 2
    slopes = np.clip(slope_of(middle, b), -limit, limit)
    return phi(b, b) + float((slopes * np.diff(grid)).sum())


def test_clip_is_the_truncated_loss():
    # clipping that rescales gradients without being the gradient of anything; the slope compared with clip
    X, y = table()
    model = np.random.default_rng(5).normal(size=5) * 2
    problem = hp.Problem(X, y, "squared", clip=0.8, row_norm=2.0)
    rows = problem.rows.features
    wanted = np.mean(
        [
            truncated(lambda t, b: (t - b) ** 2 / 2, lambda t, b: t - b, a, b, model, 0.8)
            for a, b in zip(rows, y, strict=True)
        ]
    )
    assert problem.objective(model) == pytest.approx(wanted, rel=1e-6)
    gradients = rows * (rows @ model - y)[:, None]
    lengths = np.linalg.norm(gradients, axis=1, keepdims=True)
    assert (lengths > 0.8).any()
    assert (lengths < 0.8).any()
    clipped = gradients * np.minimum(1, 0.8 / np.where(lengths > 0, lengths, 1))
    np.testing.assert_allclose(problem.gradient(model), clipped.mean(axis=0), rtol=1e-12)


def test_a_clip_that_is_never_reached_changes_nothing():
    # the truncation off by a constant, so that objectives with and without clip cannot be compared
    X, y = table()
    model = np.ones(5)
    for loss, target in (("squared", y), ("logistic", y > 0), ("huber", y)):
        loose, none = hp.Problem(X, target, loss, clip=1e6), hp.Problem(X, target, loss)
        assert loose.objective(model) == pytest.approx(none.objective(model), rel=1e-13)
        np.testing.assert_allclose(loose.gradient(model), none.gradient(model), rtol=1e-13)


@settings(max_examples=30)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["squared", "logistic", "huber", "smoothed_hinge", hp.losses.Quantile(0.3, 0.5)]),
    st.sampled_from([None, 0.4]),
    st.sampled_from(["items", "rows"]),
    st.booleans(),
)
def test_gradient_is_the_derivative_of_the_objective(seed, loss, clip, weights, intercept):
    # value and slope of a loss, or of its truncation, that do not belong together
    X, y = table(seed=seed)
    kind = hp.losses.resolve(loss)
    target = y > 0 if kind.labels == "two-class" else y
    problem = hp.Problem(
        X, target, kind, clip=clip, groups=NAMES, weights=weights, row_norm=2.0, fit_intercept=intercept
    )
    model = np.random.default_rng(seed + 1).normal(size=problem.facts.width)
    step = 1e-6
    slopes = [
        (problem.objective(model + step * e) - problem.objective(model - step * e)) / (2 * step)
        for e in np.eye(len(model))
    ]
    np.testing.assert_allclose(problem.gradient(model), slopes, atol=2e-6)


# ---------------------------------------------------------------------------------------------- facts


@pytest.mark.parametrize(
    ("loss", "row_norm", "clip", "bound", "smoothness"),
    [
        ("squared", None, None, math.inf, math.inf),
        ("squared", 2.0, None, math.inf, 4.0),
        ("squared", None, 0.7, 0.7, math.inf),
        ("squared", 2.0, 0.7, 0.7, 4.0),
        ("logistic", None, None, math.inf, math.inf),
        ("logistic", 2.0, None, 2.0, 1.0),
        ("logistic", 2.0, 0.5, 0.5, 1.0),
        ("logistic", 2.0, 5.0, 2.0, 1.0),
        (hp.losses.Huber(1.5), 2.0, None, 3.0, 4.0),
        ("absolute", 3.0, None, 3.0, math.inf),
    ],
)
def test_bounds_come_from_what_is_declared_alone(loss, row_norm, clip, bound, smoothness):
    # a bound measured on the data is itself a leak; a factor row_norm forgotten or squared is a wrong guarantee
    facts = hp.Problem.declared(items=10, features=3, loss=loss, row_norm=row_norm, clip=clip).facts
    assert facts.gradient_bound == pytest.approx(bound)
    assert facts.smoothness == pytest.approx(smoothness)
    assert bool(facts.missing) is math.isinf(bound)
    X, y = table(10, 3)
    target = y > 0 if facts.loss.labels == "two-class" else y
    assert hp.Problem(X, target, loss, row_norm=row_norm, clip=clip).facts == facts


def test_every_gradient_and_curvature_is_within_the_facts():
    # facts that promise less than what the rows do
    X, y = table()
    for loss, target in (("logistic", y > 0), ("huber", y), ("squared", y)):
        problem = hp.Problem(5 * X, target, loss, row_norm=1.5, clip=0.9, fit_intercept=True)
        rows = problem.rows
        margins = rows.margins(np.random.default_rng(0).normal(size=6) * 10)
        lengths = np.abs(rows.row_loss.derivative(margins, rows.targets)) * np.sqrt(rows.squared_norms)
        curvature = rows.row_loss.curvature(margins, rows.targets) * rows.squared_norms
        assert lengths.max() <= problem.facts.gradient_bound * (1 + 1e-12)
        assert curvature.max() <= problem.facts.smoothness * (1 + 1e-12)


def test_units_and_item_weights():
    # users accounted as records, or weights that do not follow the rows
    X, y = table()
    records = hp.Problem(X, y).facts
    assert (records.unit, records.items, records.rows) == ("record", 30, 30)
    np.testing.assert_allclose(records.item_weights, 1 / 30)
    users = hp.Problem(X, y, groups=NAMES).facts
    assert (users.unit, users.items, users.rows) == ("user", 4, 30)
    np.testing.assert_allclose(users.item_weights, 1 / 4)
    by_rows = hp.Problem(X, y, groups=NAMES, weights="rows").facts
    np.testing.assert_allclose(by_rows.item_weights, np.array(by_rows.rows_per_item) / 30)
    alone = hp.Problem(X, y, groups=np.arange(30)).facts  # one row each, and still users
    assert alone.unit == "user"


def test_missing_names_what_to_declare():
    # a guarantee that is refused without saying why
    assert "row_norm=" in hp.Problem.declared(5, 2, "logistic").facts.missing[0]
    assert "clip=" in hp.Problem.declared(5, 2, "squared", row_norm=1.0).facts.missing[0]


def test_a_declared_problem_plans_and_refuses_to_run():
    # rows made up for a problem that has none
    declared = hp.Problem.declared(
        items=4, features=5, loss="logistic", row_norm=1.0, rows_per_item=[6, 6, 12, 6], weights="rows"
    )
    assert not declared.has_rows
    assert "facts only" in repr(declared)
    plan = hp.methods.centralized_admm(declared, 3, 1.0, noise_std=0.1)
    assert plan.certificate.shift("user") > 0
    with pytest.raises(ValueError, match=r"no rows.*declared.*plan\.on\(Problem"):
        plan.run(seed=0)
    for use in (declared.objective, declared.gradient):
        with pytest.raises(ValueError, match=r"declared.*no rows.*Problem\(X, y"):
            use(np.zeros(5))
    X, y = table()
    real = hp.Problem(X, y > 0, "logistic", row_norm=1.0, groups=NAMES, weights="rows")
    assert real.facts.rows_per_item != declared.facts.rows_per_item
    with pytest.raises(ValueError, match="other facts"):
        plan.on(real)
    same = hp.Problem.declared(5, 3, "logistic", rows_per_item=4)
    assert same.facts.rows_per_item == (4,) * 5


@pytest.mark.parametrize(
    "facts",
    [
        Facts(3, 2, hp.losses.Squared(), hp.regularizers.Zero()),
        Facts(3, 2, hp.losses.Huber(0.5), hp.regularizers.ElasticNet(0.1, 0.2), 2.0, 0.3, (1, 5, 2), "rows", False),
        hp.Problem.declared(4, 2, "logistic", hp.regularizers.L1(0.1), 1, 0.25, fit_intercept=True).facts,
        hp.Problem.declared(4, 3, "squared", hp.regularizers.GroupL1(1.0, ((0, 2),)), rows_per_item=[1, 2, 3, 4]).facts,
        hp.Problem.declared(4, 3, hp.losses.Quantile(0.9, 0.1), hp.regularizers.Box(-math.inf, 1.0)).facts,
    ],
)
def test_facts_survive_json(facts):
    # a fact lost on the way makes another guarantee
    record = json.loads(json.dumps(facts.to_dict()))
    again = Facts.from_dict(record)
    assert again == facts
    assert again.gradient_bound == facts.gradient_bound
    assert hp.Problem.from_facts(again).facts == facts


def test_facts_of_numpy_numbers_survive_json():
    # bounds computed with NumPy are of types that the JSON writer does not know
    facts = hp.Problem.declared(
        np.int64(4),
        np.int32(2),
        "huber",
        row_norm=np.int64(2),
        clip=np.float32(0.5),
        rows_per_item=np.array([1, 2, 3, 4]),
    ).facts
    assert Facts.from_dict(json.loads(json.dumps(facts.to_dict()))) == facts
