"""Every store of rows answers every question as plain NumPy does; one from outside the package is as good as ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

import hushpoint as hp
from hushpoint.kernels import passes
from hushpoint.noise import Noise
from hushpoint.operators.gradient import Gradient
from hushpoint.rows import ArrayRows, Mapped, Rows, SparseRows, Store, StreamedRows, checked, scaled_to, sparse, store
from hushpoint.rows import mapped as mapping
from hushpoint.schedules import EveryBlock

Array = NDArray[np.float64]

RNG = np.random.default_rng(3)
ROWS, WIDTH = 53, 6
X = np.round(RNG.normal(size=(ROWS, WIDTH)) * np.exp(RNG.normal(size=(ROWS, 1))), 3).astype(np.float32).astype(float)
X[np.abs(X) < 0.3] = 0.0
X[7] = 0.0
Y = np.where(X @ RNG.normal(size=WIDTH) + RNG.normal(size=ROWS) > 0, 1, -1)


class Parts(Store):
    """Rows in a list of arrays: the two answers that a store must give, and no other."""

    def __init__(self, table: Array, size: int = 11) -> None:
        self.parts = [table[start : start + size] for start in range(0, len(table), size)]
        self.most = 0  # rows that were asked for at once

    @property
    def shape(self) -> tuple[int, int]:
        return sum(map(len, self.parts)), self.parts[0].shape[1]

    def take(self, index: Any) -> Store:
        rows = np.arange(len(self))[index]
        self.most = max(self.most, len(rows))
        return ArrayRows(np.stack([self.parts[row // len(self.parts[0])][row % len(self.parts[0])] for row in rows]))


def metric(full: bool) -> Any:
    """A symmetric W, or its diagonal."""
    scales = np.linspace(0.5, 2.0, WIDTH)
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(WIDTH, WIDTH)))[0] if full else None
    matrix = scales if basis is None else basis * scales @ basis.T
    return SimpleNamespace(basis=basis, scales=scales, matrix=matrix, centre=None)


def mapped(make: Callable[[Array], Any], full: bool, constant: float, centred: bool = False) -> tuple[Store, Array]:
    """Rows in a metric, and the same written down."""
    inner, turned = X[:, : WIDTH - bool(constant)], metric(full)
    centre = np.linspace(-1.0, 2.0, WIDTH - bool(constant)) if centred else 0.0
    if centred:
        turned.centre = centre
    table = np.column_stack([inner - centre, np.full(ROWS, constant)]) if constant else X
    return Mapped(checked(make(inner)), constant, turned), table @ (turned.matrix if full else np.diag(turned.matrix))


def on_disk(folder: Path) -> Store:
    np.save(folder / "rows.npy", X)
    return checked(np.load(folder / "rows.npy", mmap_mode="r"))


FACTORS = np.linspace(0.5, 1.5, ROWS)
KINDS: dict[str, Callable[[Path], tuple[Store, Array]]] = {
    "array": lambda folder: (checked(X), X),
    "sparse": lambda folder: (checked(csr_array(X)), X),
    "single": lambda folder: (checked(X.astype(np.float32)), X),
    "disk": lambda folder: (on_disk(folder), X),
    "streamed, scaled": lambda folder: (checked(X.astype(np.float32)).scaled(FACTORS), FACTORS[:, None] * X),
    "mapped": lambda folder: mapped(np.asarray, full=True, constant=0.0),
    "mapped, constant": lambda folder: mapped(np.asarray, full=True, constant=0.7),
    "mapped, sparse": lambda folder: mapped(csr_array, full=True, constant=0.7),
    "mapped, diagonal": lambda folder: mapped(np.asarray, full=False, constant=0.0),
    "mapped, diagonal, sparse": lambda folder: mapped(csr_array, full=False, constant=0.7),
    "mapped, centred": lambda folder: mapped(np.asarray, full=False, constant=0.7, centred=True),
    "mapped, centred, sparse": lambda folder: mapped(csr_array, full=False, constant=0.7, centred=True),
    "outside": lambda folder: (checked(Parts(X)), X),
    "outside, scaled": lambda folder: (checked(Parts(X)).scaled(FACTORS), FACTORS[:, None] * X),
}
kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(autouse=True)
def _several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_NUMBERS", 60)
    monkeypatch.setattr(passes, "_NUMBERS", 60)
    for module in (store, sparse, mapping):
        monkeypatch.setattr(module, "CHUNK", 17)


def same(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-10, atol=1e-12)


@kinds
def test_every_store_answers_alike(kind: str, tmp_path: Path) -> None:
    # Catches: a chunk left out or counted twice, factors of other rows, a constant forgotten, rows for columns.
    rows, table = KINDS[kind](tmp_path)
    rng = np.random.default_rng(1)
    v, many = rng.normal(size=WIDTH), rng.normal(size=(WIDTH, WIDTH))
    weights, columns, points = rng.random(ROWS), rng.normal(size=(ROWS, WIDTH)), rng.normal(size=(ROWS, WIDTH))
    assert rows.shape == table.shape
    assert (len(rows), rows.width, rows.finite()) == (ROWS, WIDTH, True)
    assert np.asarray(rows).dtype == np.float64
    same(rows, table)
    for index in (slice(5, 40), np.array([9, 2, 9, 50]), np.arange(ROWS) % 3 == 0):
        same(rows[index], table[index])
        same(rows.take(index), table[index])
    same(np.vstack([part[:] for _, part in rows.chunks(10)]), table)
    assert [place.start for place, _ in rows.chunks(10)] == [0, 10, 20, 30, 40, 50]
    same(rows @ v, table @ v)
    same(rows @ many, table @ many)
    same(rows.pull(weights), table.T @ weights)
    same(rows.pull(columns), table.T @ columns)
    products = table.T @ (weights[:, None] * table)
    same(rows.gram(weights, 13), products)
    same(rows.second_moments(weights), products)
    same(rows.second_means(weights), np.diag(products))
    same(rows.squared_norms(), (table**2).sum(axis=1))
    same(rows.largest(), np.abs(table).max(axis=1))
    same(rows.scaled(weights), weights[:, None] * table)
    same(rows.scaled(weights) @ many, weights[:, None] * (table @ many))
    same(rows.scaled(weights).pull(columns), table.T @ (weights[:, None] * columns))
    same(rows.times(weights[:, None]), weights[:, None] * table)
    same(rows.times(points), points * table)
    same(rows.squares(), table**2)
    same(rows.dots(points), (table * points).sum(axis=1))
    same(rows.summed_dots(points), (table * points).sum(axis=1))
    moved = points.copy()
    rows.add_to(moved, weights)
    same(moved, points + weights[:, None] * table)
    for chosen in (np.array([4]), np.array([3, 0]), slice(1, 4)):
        same(rows.pull_columns(chosen, weights), table[:, chosen].T @ weights)
        same(rows.by_columns().pull_columns(chosen, weights), table[:, chosen].T @ weights)
    same(rows.by_columns() @ v, table @ v)
    entries, places, starts = rows.column_arrays()
    for j in range(WIDTH):
        column, span = np.zeros(ROWS), slice(starts[j], starts[j + 1])
        column[places[span] if len(places) else slice(None)] = entries[span]
        same(column, table[:, j])
    if not rows.sparse:
        assert rows.stored == ROWS * WIDTH


@pytest.mark.parametrize("kind", ["array", "sparse", "single"])
def test_a_constant_and_an_order_are_given_to_every_store_that_can(kind: str, tmp_path: Path) -> None:
    # Catches: a constant that is no last column of ones; rows of another user.
    rows, table = KINDS[kind](tmp_path)
    order = np.random.default_rng(2).permutation(ROWS)
    same(rows.with_constant(), np.column_stack([table, np.ones(ROWS)]))
    same(rows.ordered(order), table[order])


def test_a_store_that_cannot_says_so_and_is_not_copied() -> None:
    # Catches: a silent copy into memory of rows that may not fit there; the message repeats nothing of the rows.
    rows = Parts(X)
    with pytest.raises(ValueError, match=r"X is a Parts and fit_intercept is True\. Give its rows a last column"):
        hp.Problem(rows, Y, "logistic", fit_intercept=True)
    with pytest.raises(ValueError, match=r"X is a Parts and groups is not sorted\. Keep the rows of each user"):
        hp.Problem(rows, Y, "logistic", groups=np.arange(ROWS)[::-1] // 3)
    with pytest.raises(ValueError, match="X has NaN or infinite entries"):
        hp.Problem(Parts(np.where(X[3, 2] == X, np.nan, X)), Y, "logistic")


def test_a_kind_of_ours_has_no_subclasses() -> None:
    # Catches: a subclass that changes its rows and inherits products, or compiled code, that know nothing of it.
    for kind in (ArrayRows, SparseRows, StreamedRows, Mapped):
        with pytest.raises(TypeError, match=f"Halved derives from {kind.__name__}. Derive from Store"):
            type("Halved", (kind,), {})
    assert Parts(X).arrays is None
    assert issubclass(type("More", (Parts,), {}), Parts)


def test_rows_are_in_double_precision_whatever_they_are_made_of() -> None:
    # Catches: lengths of rows in single precision, beyond what the bound on them allows for rounding.
    assert ArrayRows(X.astype(np.float32)).array.dtype == np.float64  # type: ignore[arg-type]
    assert SparseRows(csr_array(X.astype(np.float32))).squared_norms().dtype == np.float64
    assert ArrayRows(X).plain is X


@pytest.mark.parametrize("row_norm", [None, 0.8])
def test_the_bound_holds_for_every_store(row_norm: float | None, tmp_path: Path) -> None:
    # Catches: rows of one kind that escape the bound, or whose stated length is not theirs.
    table = X.copy()
    table[3], table[4], table[5] = 1e30, 1e-30, 2.0
    expected = hp.Problem(table, Y, "logistic", row_norm=row_norm, clip=0.5).rows
    np.save(tmp_path / "rows.npy", table)
    for form in (csr_array(table), Parts(table), np.load(tmp_path / "rows.npy", mmap_mode="r")):
        rows = hp.Problem(form, Y, "logistic", row_norm=row_norm, clip=0.5).rows
        np.testing.assert_allclose(rows.store[:], expected.store[:], rtol=1e-12)
        np.testing.assert_allclose(rows.squared_norms, expected.squared_norms, rtol=1e-12)
        np.testing.assert_allclose(rows.limits, expected.limits, rtol=1e-12)
        if row_norm is not None:
            assert np.linalg.norm(rows.store[:], axis=1).max() <= row_norm
    if row_norm is not None:
        np.testing.assert_array_equal(scaled_to(table, row_norm), expected.features)
        np.testing.assert_allclose(scaled_to(csr_array(table), row_norm).toarray(), expected.features, rtol=1e-12)


# --- A store from outside the package ---------------------------------------------------------------------------------

GROUPS = np.arange(ROWS) // 4
METHODS: dict[str, Callable[[hp.Problem], hp.Plan]] = {
    "dp_sgd": lambda p: hp.methods.dp_sgd(p, 8, 1.0, noise_std=0.1),
    "dp_sgd, sampled": lambda p: hp.methods.dp_sgd(p, 8, 1.0, 0.3, noise_std=0.1),
    "dp_cd": lambda p: hp.methods.dp_cd(p, 20, noise_std=0.1),
    "dp_fedavg": lambda p: hp.methods.dp_fedavg(p, 4, 3, 0.5, 0.3, noise_std=0.1),
    "private_admm": lambda p: hp.methods.private_admm(p, 5, 2.0, noise_std=0.3, tolerance=1e-9),
    "centralized_admm": lambda p: hp.methods.centralized_admm(p, 5, 2.0, noise_std=0.3, tolerance=1e-10),
    "federated_admm": lambda p: hp.methods.federated_admm(
        p, 5, 2.0, noise_std=0.3, sample_size=5, tolerance=1e-10
    ),
    "decentralized_admm": lambda p: hp.methods.decentralized_admm(p, 30, 2.0, noise_std=0.3, tolerance=1e-10),
}  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("users", [False, True])
@pytest.mark.parametrize("kernel", ["auto", "plain"])
def test_a_store_from_outside_runs_in_every_method(method: str, users: bool, kernel: Any) -> None:
    # Catches: a method that asks what kind of store it has.
    def run(rows: Any) -> Any:
        problem = hp.Problem(rows, Y, "logistic", row_norm=1.5, clip=0.4, groups=GROUPS if users else None)
        return METHODS[method](problem).run(seed=2, kernel=kernel)

    expected, found = run(X), run(Parts(X))
    np.testing.assert_allclose(found.model, expected.model, rtol=0, atol=1e-7 if "admm" in method else 1e-12)
    named = "Parts, which gives the same rows whatever it is asked"  # whose word it takes, a guarantee says
    assert named in found.guarantee.assumptions
    kept = tuple(ground for ground in found.guarantee.assumptions if ground != named)
    assert replace(found.guarantee, assumptions=kept) == expected.guarantee


def test_full_batches_of_a_store_from_outside_go_chunk_by_chunk() -> None:
    # Catches: rows of a store that are all read into memory by methods that need only sums over them.
    rows = Parts(X)
    problem = hp.Problem(rows, Y, "logistic", row_norm=1.5)
    hp.methods.dp_sgd(problem, 3, 1.0, noise_std=0.1).run(seed=1)
    hp.methods.private_admm(problem, 3, 2.0, noise_std=0.1).run(seed=1)
    problem.objective(np.zeros(WIDTH))
    assert rows.most <= 60 // WIDTH


def estimator_like(rows: Store, full: bool) -> hp.Plan:
    """Noisy gradient descent in a metric with a constant, as the estimators do it."""
    turned = Mapped(rows, 0.5, metric(full))
    squared = turned.squared_norms()
    facts = replace(hp.Problem.declared(ROWS, WIDTH, "logistic").facts, clip=0.6)
    with np.errstate(divide="ignore"):
        data = Rows(turned, Y.astype(float), facts.loss, squared, 0.6 / np.sqrt(squared))
    plan = hp.Plan(
        Gradient(facts, 0.4, ROWS), EveryBlock(ROWS), Noise(0.3, "sum"), steps=9, relaxation=1.0, facts=facts
    )
    return plan.on(hp.Problem.from_facts(facts).with_rows(data))


@pytest.mark.parametrize("full", [False, True])
def test_a_store_from_outside_descends_in_a_metric(full: bool) -> None:
    # Catches: products in a metric that need an array or a sparse matrix inside.
    inner = X[:, :-1]
    models = [
        estimator_like(hp.Problem(form, Y, "logistic", row_norm=1.5).rows.store, full).run(seed=4).model
        for form in (inner, csr_array(inner), inner.astype(np.float32), Parts(inner))
    ]
    for model in models[1:]:
        np.testing.assert_allclose(model, models[0], rtol=0, atol=1e-12)
    assert np.abs(models[0]).max() > 0


# --- stores that an attack passed


@pytest.mark.parametrize("kernel", ["auto", "plain"])
def test_a_sparse_store_holds_each_entry_once_and_by_rows(kernel: Any) -> None:
    # duplicates were lost in one product and not in another, and a CSC matrix was read as CSR: rows beyond the bound
    entries = np.array([2.0, 2.0, 1.0, 2.0, 3.0, 1.0]), np.array([0, 0, 1, 0, 1, 2]), np.array([0, 2, 4, 6])
    doubled, truth = csr_array(entries, shape=(3, 3)), np.array([[4.0, 0.0, 0.0], [2.0, 1.0, 0.0], [0.0, 3.0, 1.0]])

    def models(rows: Any) -> list[Array]:
        # no row is scaled, which would put the matrix in order
        problem = hp.Problem(rows, np.array([1.0, -1.0, 2.0]), "huber", row_norm=5.0)
        made = (
            hp.methods.dp_sgd(problem, 3, 0.3, noise_std=0.1),
            hp.methods.centralized_admm(problem, 3, 2.0, noise_std=0.1),
        )
        return [plan.run(seed=1, kernel=kernel).model for plan in made]

    for given in (doubled, doubled.tocsc(), doubled.tocoo(), csr_array(truth).tocsc()):
        np.testing.assert_array_equal(SparseRows(given)[:], truth)
        for found, expected in zip(models(SparseRows(given)), models(truth), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert doubled.nnz == 6  # the caller's matrix is as it was


def test_no_store_of_ours_has_a_subclass():
    class Quiet:
        def __init_subclass__(cls, **options):
            pass

    class Mine(Quiet, SparseRows):
        """Keeps the parent from noticing."""

    with pytest.raises(TypeError, match="Derive from Store"):
        Mine(csr_array(np.eye(2)))


def test_a_guarantee_names_a_store_from_outside():
    class Chunked(Store):
        def __init__(self, table):
            self.table = table

        @property
        def shape(self):
            return self.table.shape

        def take(self, index):
            return ArrayRows(self.table[index])

    class Wrong(Chunked):
        def take(self, index):
            return self.table[index]

    X, y = np.random.default_rng(0).normal(size=(6, 2)), np.zeros(6)
    text = str(
        hp.methods.dp_sgd(hp.Problem(Chunked(X), y, "huber", row_norm=1.0), 2, 0.1, noise_std=1.0).guarantee(1e-5)
    )
    assert "Chunked, which gives the same rows whatever it is asked" in text
    assert "whatever it is asked" not in str(
        hp.methods.dp_sgd(hp.Problem(X, y, "huber", row_norm=1.0), 2, 0.1, noise_std=1.0).guarantee(1e-5)
    )
    with pytest.raises(ValueError, match="Let it give ArrayRows"):
        hp.Problem(Wrong(X), y, "huber", row_norm=1.0)
