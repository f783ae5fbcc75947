"""However rows are stored (double or single precision, sparse, on disk), they are the same rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

import hushpoint as hp
from hushpoint.kernels import passes as compiled_passes
from hushpoint.kernels import whole
from hushpoint.kernels.passes import passes_over
from hushpoint.kernels.whole import RememberingADMM, approach
from hushpoint.operators import admm, prox
from hushpoint.operators.newton import ProxNotSolved, conjugate_gradients
from hushpoint.operators.prox import WholeProx
from hushpoint.rows.streamed import StreamedRows, is_on_disk

RNG = np.random.default_rng(5)
ROWS, WIDTH = 61, 5
X = (RNG.normal(size=(ROWS, WIDTH)) * np.exp(RNG.normal(size=(ROWS, 1)))).astype(np.float32)
X[np.abs(X) < 0.3] = 0.0
X[7] = 0.0
Y = X.astype(float) @ RNG.normal(size=WIDTH) + RNG.normal(size=ROWS)
CLASSES = np.where(np.median(Y) < Y, 1, -1)

LOSSES = {
    "squared": (hp.losses.Squared(), Y),
    "logistic": (hp.losses.Logistic(), CLASSES),
    "huber": (hp.losses.Huber(0.7), Y),
    "smoothed hinge": (hp.losses.SmoothedHinge(0.4), CLASSES),
    "quantile": (hp.losses.Quantile(0.3, 0.2), Y),
}
every_loss = pytest.mark.parametrize("loss", LOSSES)
clips = pytest.mark.parametrize("clip", [None, 0.3])


def on_disk(folder: Path, table: np.ndarray, fortran: bool = False) -> np.ndarray:
    np.save(folder / "rows.npy", np.asfortranarray(table) if fortran else table)
    return np.load(folder / "rows.npy", mmap_mode="r")


def stored(kind: str, folder: Path) -> object:
    return {
        "single": lambda: X,
        "sparse": lambda: csr_array(X.astype(float)),
        "disk": lambda: on_disk(folder, X.astype(float)),
        "disk, single": lambda: on_disk(folder, X),
        "disk, columns": lambda: on_disk(folder, X.astype(float), fortran=True),
    }[kind]()


few_kinds = pytest.mark.parametrize("kind", ["single", "sparse", "disk"])
kinds = pytest.mark.parametrize("kind", ["single", "sparse", "disk", "disk, single", "disk, columns"])


def problem(table: object, loss: str = "logistic", clip: float | None = None, **options: object) -> hp.Problem:
    function, targets = LOSSES[loss]
    return hp.Problem(table, targets, function, row_norm=1.5, clip=clip, **options)


METHODS = {
    "private": lambda p: hp.methods.private_admm(p, 6, 2.0, noise_std=0.3, tolerance=1e-9),
    "all": lambda p: hp.methods.centralized_admm(p, 6, 2.0, noise_std=0.3),
    "rounds": lambda p: hp.methods.federated_admm(p, 6, 2.0, noise_std=0.3, sample_size=9),
    "clipped": lambda p: hp.methods.federated_admm(p, 6, 2.0, noise_std=0.3, clip_residual=0.2),
    "walk": lambda p: hp.methods.decentralized_admm(p, 40, 2.0, noise_std=0.3),
    "gradient": lambda p: hp.methods.dp_sgd(p, 10, 1.0, noise_std=0.1),
    "sampled gradient": lambda p: hp.methods.dp_sgd(p, 10, 1.0, 0.3, noise_std=0.1),
    "coordinates": lambda p: hp.methods.dp_cd(p, 30, noise_std=0.1),
    "local steps": lambda p: hp.methods.dp_fedavg(p, 6, 3, 0.5, 0.3, noise_std=0.1),
    "sampled local steps": lambda p: hp.methods.dp_fedavg(p, 6, 3, 0.5, 0.3, sample_size=9, noise_std=0.1),
    "anchored": lambda p: hp.methods.anchored_admm(p, 6, 2.0, noise_std=0.3, sample_prob=0.5),
}


@few_kinds
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kernel", ["auto", "plain"])
def test_every_method_takes_every_storage(kind, method, kernel, tmp_path):
    # Catches: rows that are not scaled, arithmetic in single precision, a chunk that is left out.
    plan, other = METHODS[method](problem(X.astype(float))), METHODS[method](problem(stored(kind, tmp_path)))
    expected, found = plan.run(seed=3, kernel=kernel), other.run(seed=3, kernel=kernel)
    np.testing.assert_allclose(found.model, expected.model, rtol=0, atol=1e-8 if method == "private" else 1e-12)
    assert found.guarantee == expected.guarantee


@pytest.mark.parametrize("kind", ["single", "sparse"])
def test_users_take_every_storage(kind, tmp_path):
    # Catches: rows of users read in the order of the file instead of theirs.
    groups = np.arange(ROWS) // 4
    plans = (
        hp.methods.federated_admm(problem(table, groups=groups), 5, 2.0, noise_std=0.3, tolerance=1e-10)
        for table in (X.astype(float), stored(kind, tmp_path))
    )
    one, other = (plan.run(seed=3).model for plan in plans)
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-9)


def test_single_precision_is_kept_and_the_bound_holds():
    # Catches: a copy in double precision; rows that are longer than the bound after rounding to single precision.
    data = problem(X)
    assert isinstance(data.rows.features, StreamedRows)
    assert data.rows.features.table.dtype == np.float32
    assert data.rows.features.table is X or data.rows.features.table.base is X
    lengths = np.linalg.norm(data.rows.features[:], axis=1)
    assert lengths.max() <= 1.5
    assert (lengths > 1.4).sum() > 5  # some rows were longer
    np.testing.assert_allclose(data.rows.squared_norms, lengths**2, rtol=1e-12)
    constant = problem(X, fit_intercept=True)
    np.testing.assert_allclose(
        np.asarray(constant.rows.features), problem(X.astype(float), fit_intercept=True).rows.features, rtol=1e-15
    )
    shuffled = RNG.permutation(ROWS) // 3
    one, other = (problem(table, groups=shuffled).rows for table in (X, X.astype(float)))
    np.testing.assert_allclose(np.asarray(one.features), other.features, rtol=1e-15)


def test_what_a_file_cannot_do_is_said(tmp_path):
    # Catches: a silent copy of a file into memory.
    table = on_disk(tmp_path, X)
    with pytest.raises(ValueError, match="column of ones"):
        problem(table, fit_intercept=True)
    with pytest.raises(ValueError, match="rows of each user together"):
        problem(table, groups=np.arange(ROWS)[::-1] // 2)
    assert is_on_disk(table[3:]) and not is_on_disk(np.array(table))  # noqa: PT018
    broken = X.copy()
    broken[50, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        problem(on_disk(tmp_path, broken))


def test_streamed_rows_stand_in_for_an_array():
    # Catches: factors of other rows, or columns mixed up with rows.
    factors = RNG.random(ROWS)
    rows, full = StreamedRows(X, factors), X.astype(float) * factors[:, None]
    for index in (slice(3, 9), np.array([5, 1, 5]), 4, np.arange(ROWS) % 2 == 0):
        np.testing.assert_allclose(rows[index], full[index])
    vector, table = RNG.normal(size=WIDTH), RNG.normal(size=(ROWS, 2))
    np.testing.assert_allclose(rows @ vector, full @ vector)
    np.testing.assert_allclose(rows.pull(table), full.T @ table)
    np.testing.assert_allclose(rows.pull_columns(np.array([3, 1]), table), full[:, [3, 1]].T @ table)
    np.testing.assert_allclose(rows.times(2.0), 2 * full)
    np.testing.assert_allclose(np.asarray(rows), full)


# --- Passes -----------------------------------------------------------------------------------------------------------


@kinds
@every_loss
@clips
@pytest.mark.parametrize("known", [True, False])
def test_passes_are_the_sums_they_say(kind, loss, clip, known, tmp_path, monkeypatch):
    # Catches: a group left out, a slope that is not cut, a weight used once too often, losses by NumPy that differ.
    if not known:
        monkeypatch.setattr(type(LOSSES[loss][0]), "code", None)
    monkeypatch.setattr(compiled_passes, "_NUMBERS", 40)  # several groups and chunks
    monkeypatch.setattr(compiled_passes, "_WORTH_SHARING", 1)
    rows = problem(stored(kind, tmp_path), loss, clip).rows
    features = rows.store[:]
    x, v, weights = RNG.normal(size=WIDTH), RNG.normal(size=WIDTH), RNG.random(ROWS)
    kept = np.empty(ROWS)
    passes = passes_over(rows)
    found = passes.gradient(x, weights, kept)
    margins = features @ x
    np.testing.assert_allclose(found, features.T @ (weights * rows.row_loss.derivative(margins, rows.targets)))
    np.testing.assert_allclose(kept, weights * rows.row_loss.curvature(margins, rows.targets))
    hessian = features.T @ (kept[:, None] * features)
    np.testing.assert_allclose(passes.hessian(kept), hessian, atol=1e-12)
    np.testing.assert_allclose(passes.hessian_times(kept, v), hessian @ v, atol=1e-12)
    np.testing.assert_array_equal(passes.gradient(x, weights), found)


# --- A prox that remembers --------------------------------------------------------------------------------------------


def remembering(loss: str, clip: float | None, steps: int = 12, **options: object) -> hp.Plan:
    data = problem(X.astype(float), loss, clip, regularizer=hp.regularizers.ElasticNet(0.01, 0.05))
    return hp.methods.private_admm(data, steps, 3.0, noise_std=0.4, tolerance=1e-9, **options)


@every_loss
@clips
@pytest.mark.parametrize("ridge_in_loss", [True, False])
def test_a_prox_that_remembers_gives_the_plain_models(loss, clip, ridge_in_loss, monkeypatch):
    # Catches: a start or a factor of another problem that is taken for a solution; noise at other addresses.
    plan = remembering(loss, clip, ridge_in_loss=ridge_in_loss)
    kernel = plan.operator.kernel(plan)
    assert (kernel is None) is (loss == "squared" and clip is None)
    plain = plan.run(seed=1, kernel="plain")
    for most, patience in ((40, 8), (1, 8), (3, 0)):  # given up at once; a new Hessian at every step
        monkeypatch.setattr(whole, "_MOST", most)
        monkeypatch.setattr(whole, "_PATIENCE", patience)
        fast = plan.run(seed=1)
        np.testing.assert_allclose(fast.model, plain.model, rtol=0, atol=1e-8)
        assert fast.guarantee == plain.guarantee


@every_loss
def test_what_it_remembers_is_certified(loss):
    # Catches: a stopping rule that is weaker than what the guarantee states.
    plan = remembering(loss, 0.3)
    kernel = plan.operator.kernel(plan)
    data = kernel.prepare(plan.problem.rows)
    rows, gamma, ridge = plan.problem.rows, 3.0, 0.05
    for scale in (0.1, 1.0, 30.0, 0.01):
        v = scale * RNG.normal(size=WIDTH)
        x = data.solve(v[None, :], np.zeros(WIDTH))[0]
        slopes = rows.row_loss.derivative(rows.features @ x, rows.targets)
        gradient = rows.features.T @ slopes / ROWS + ridge * x + (x - v) / gamma
        assert gamma * np.linalg.norm(gradient) / (1 + gamma * ridge) <= 1e-9 * (1 + 1e-4)


def test_a_prox_that_remembers_resumes_bit_for_bit(tmp_path):
    # Catches: a start or a factor that is forgotten, or kept from another run.
    plan = remembering("logistic", None, steps=20)
    plan_whole = plan.run(seed=1)
    for step in (1, 2, 7, 13):
        cut = plan.run(seed=1, callback=lambda at, model, step=step: at == step)
        cut.state.save(tmp_path / "state.npz")
        resumed = plan.run(state=hp.engine.State.load(tmp_path / "state.npz"))
        np.testing.assert_array_equal(resumed.model, plan_whole.model)
        np.testing.assert_array_equal(resumed.state.blocks, plan_whole.state.blocks)
    with pytest.raises(ValueError, match="remembering"):
        plan.run(state=cut.state, kernel="plain")


def test_no_memory_where_its_conditions_fail():
    # Catches: a kernel for a constraint that it does not know.
    data = problem(X.astype(float))
    plain = hp.methods.private_admm(data, 3, 1.0, noise_std=1.0)
    assert isinstance(plain.operator.kernel(plain), RememberingADMM)
    general = hp.methods.private_admm(data, 3, 1.0, noise_std=1.0, A=2 * np.eye(WIDTH))
    assert general.operator.kernel(general) is None


# --- Many features ----------------------------------------------------------------------------------------------------


@every_loss
@clips
@pytest.mark.parametrize("sparse", [False, True])
def test_without_a_hessian_the_prox_is_the_same(loss, clip, sparse, monkeypatch):
    # Catches: a product with another Hessian, or conjugate gradients that stop too early for the tolerance.
    table = csr_array(X.astype(float)) if sparse else X.astype(float)
    data = problem(table, loss, clip)
    v = 3 * RNG.normal(size=WIDTH)
    one = WholeProx(data.rows, data.row_weights, 20.0, 0.01, None, 1e-9).solve(v, np.zeros(WIDTH))
    for module in (prox, admm):
        monkeypatch.setattr(module, "LARGE", WIDTH - 1)
    large = WholeProx(data.rows, data.row_weights, 20.0, 0.01, None, 1e-9)
    assert large.large
    monkeypatch.setattr(compiled_passes.Passes, "hessian", None)  # it must not be formed
    np.testing.assert_allclose(large.solve(v, np.zeros(WIDTH)), one, rtol=0, atol=3e-9)
    many = large.solve(np.stack([v, 2 * v]), np.zeros(WIDTH))
    np.testing.assert_allclose(many[0], one, rtol=0, atol=3e-9)
    plan = hp.methods.private_admm(data, 4, 20.0, noise_std=0.1)
    model = plan.run(seed=1).model
    monkeypatch.undo()
    np.testing.assert_allclose(plan.run(seed=1).model, model, rtol=0, atol=1e-4 * 20 / ROWS)


def test_ten_thousand_sparse_features():
    # Catches: a square matrix of the features, or a dense copy of the rows (400 MB each).
    table = csr_array(np.where(RNG.random((300, 10_000)) < 0.005, 1.0, 0.0))
    labels = np.where(RNG.random(300) < 0.5, 1, 0)
    data = hp.Problem(table, labels, "logistic", row_norm=1.0)
    result = hp.methods.private_admm(data, 3, 50.0, noise_std=0.1).run(seed=0)
    assert np.isfinite(result.model).all()


def test_conjugate_gradients_reach_the_floor():
    # Catches: a direction that is no descent, or the right-hand side returned as if it were the solution.
    square = RNG.normal(size=(30, 30))
    matrix = square @ square.T + np.eye(30)
    right = RNG.normal(size=30)
    found = conjugate_gradients(lambda v: matrix @ v, right, 0.0)
    assert np.linalg.norm(matrix @ found - right) <= 1.001e-2 * np.linalg.norm(right)
    assert found @ right > 0
    np.testing.assert_array_equal(conjugate_gradients(lambda v: matrix @ v, right, 1e9), right)


def test_approach_says_when_it_gives_up():
    # Catches: an unsolved point that is taken for a solution.
    matrix = np.diag([1.0, 50.0, 3000.0])
    goal = np.ones(3)
    found, taken, solved = approach(lambda x: matrix @ (x - goal), np.zeros(3), 1e-10, lambda g: g, 60)
    assert solved and taken <= 60  # noqa: PT018
    np.testing.assert_allclose(found, goal, atol=1e-9)
    _, taken, solved = approach(lambda x: matrix @ (x - goal), np.zeros(3), 1e-10, lambda g: g, 4)
    assert not solved and taken == 4  # noqa: PT018
    data = problem(X.astype(float))
    impossible = WholeProx(data.rows, data.row_weights, 3.0, 0.0, None, 1e-300)
    with pytest.raises(ProxNotSolved):
        impossible.solve(np.full(WIDTH, 9.0), np.ones(WIDTH))


# --- More data than memory --------------------------------------------------------------------------------------------

STREAM = """
import json, sys
import numpy as np
import hushpoint as hp

def anonymous():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))

def run(path, method):
    X = np.load(path, mmap_mode="r")
    y = np.arange(len(X)) % 2
    before = anonymous()
    peak = before
    def watch(step, model):
        global top
        top = max(top, anonymous())
    problem = hp.Problem(X, y, "logistic", row_norm=1.0)
    plans = {
        "private": lambda: hp.methods.private_admm(problem, 2, 10.0, noise_std=0.1),
        "gradient": lambda: hp.methods.dp_sgd(problem, 2, 1.0, noise_std=0.1),
    }
    plans[method]().run(seed=0, callback=watch)
    return top - before

top = 0
run(sys.argv[1], sys.argv[3])  # compiles
top = 0
print(json.dumps(run(sys.argv[2], sys.argv[3])))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize("method", ["private", "gradient"])
def test_a_file_is_not_copied_into_memory(tmp_path, method):
    # Catches: any copy of the features, or a dozen numbers a row. The file has 64 MB, rows of 100 numbers.
    small, large = tmp_path / "small.npy", tmp_path / "large.npy"
    np.save(small, RNG.random((200, 100)))
    np.save(large, RNG.random((80_000, 100)))
    source = str(Path(hp.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-c", STREAM, str(small), str(large), method],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) < 25e6
