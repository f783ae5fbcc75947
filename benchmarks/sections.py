"""The sections of the benchmark: each returns a title, the names of its columns, and its rows."""

from __future__ import annotations

import time
from collections.abc import Callable

import limits
import numpy as np
import plain
from scipy.special import expit
from timing import exponent, in_turn, ratio, shown

import hushpoint as hp
from hushpoint import engine
from hushpoint.experiments.data import synthetic_lasso

STRENGTH, GAMMA, RELAXATION, SIGMA = 1e-3, 6.0, 0.5, 0.5
Section = tuple[str, list[str], list[list[str]]]


def _lasso(items: int, features: int) -> tuple[hp.Problem, np.ndarray, np.ndarray]:
    X, y, _ = synthetic_lasso(items, features)
    return hp.Problem(X, y, regularizer=hp.regularizers.L1(STRENGTH), row_norm=1.0, clip=1.0), X, y


def _run(plan: hp.Plan, seed: int | None) -> Callable[[], object]:
    return lambda: engine.run(plan, seed=seed)


def loops(repeats: int) -> Section:
    """Hushpoint beside a plain loop over records, and beside the limit."""
    problem, X, y = _lasso(800, 64)
    rng = np.random.default_rng(0)
    u, zhat, z = np.zeros((800, 64)), np.zeros(64), np.zeros(64)
    settings = (GAMMA, RELAXATION, SIGMA, STRENGTH, rng)
    whole, some, one = (limits.reader(np.zeros(size)) for size in (800 * 64, 3 * 100 * 64, 3 * 64))
    cases = [
        (
            "centralized_admm step, 800 x 64",
            (lambda: plain.centralized_step(X, y, u, *settings), 1),
            hp.methods.centralized_admm(problem, 1000, GAMMA, RELAXATION, noise_std=SIGMA),
            (864, whole, 1),
        ),
        (
            "federated_admm round, 100 of 800 users",
            (lambda: plain.federated_round(X, y, u, zhat, 100, *settings), 1),
            hp.methods.federated_admm(problem, 500, GAMMA, RELAXATION, sample_size=100, noise_std=SIGMA),
            (6400, some, 1),
        ),
        (
            "decentralized_admm hop",
            (lambda: [plain.hop(X, y, u, zhat, *settings) for _ in range(200)], 200),
            hp.methods.decentralized_admm(problem, 20_000, GAMMA, RELAXATION, noise_std=SIGMA),
            (64 * 100, one, 100),
        ),
        (
            "dp_sgd step, all records",
            (lambda: plain.gradient_step(X, y, z, 1.0, 0.01, STRENGTH, rng), 1),
            hp.methods.dp_sgd(problem, 500, 1.0, noise_std=0.01),
            (64, whole, 1),
        ),
    ]
    rows = []
    for name, loop, plan, (normals, read, units) in cases:
        engine.run(plan, seed=0)  # compiles
        draw = limits.drawer(normals)
        times = in_turn(
            {
                "plain": loop,
                "seeded": (_run(plan, 1), plan.steps),
                "secure": (_run(plan, None), plan.steps),
                "limit": (lambda draw=draw, read=read: _several(draw, read), 100 * units),
            },
            repeats,
        )
        fast = times["seeded"]
        rows.append(
            [
                name, shown(times["plain"]), shown(fast), ratio(times["plain"], fast), shown(times["secure"]),
                ratio(times["plain"], times["secure"]), ratio(fast, times["limit"]),
            ]
        )  # fmt: skip
    columns = ["what", "plain loop", "seeded", "plain/seeded", "secure", "plain/secure", "seeded/limit"]
    return "Beside a plain loop over records (Lasso, n = 800, p = 64)", columns, rows


def _several(draw: Callable[[], object], read: Callable[[], object]) -> None:
    for _ in range(100):
        draw()
        read()


def million(repeats: int) -> Section:
    """A million records: how far from the limit, and from NumPy's generator."""
    n, p = 1_000_000, 50
    rng = np.random.default_rng(0)
    X = rng.random((n, p))
    X *= 0.1
    problem = hp.Problem(X, rng.random(n), regularizer=hp.regularizers.L1(STRENGTH), row_norm=1.0, clip=1.0)
    admm = hp.methods.centralized_admm(problem, 5, GAMMA, RELAXATION, noise_std=SIGMA)
    sgd = hp.methods.dp_sgd(problem, 5, 1.0, noise_std=0.01)
    rows = []
    for name, plan, normals in (("centralized_admm step", admm, n + p), ("dp_sgd step, all records", sgd, p)):
        engine.run(plan, seed=0)
        draw, read = limits.drawer(normals), limits.reader(X)
        times = in_turn({"limit": (lambda draw=draw, read=read: (draw(), read()), 1)}, repeats)
        times["seeded"] = np.array([_step_seconds(plan) for _ in range(repeats)])
        rows.append(
            [
                f"{name}, 10^6 x 50",
                shown(times["seeded"]),
                shown(times["limit"]),
                ratio(times["seeded"], times["limit"]),
            ]
        )
    return (
        "A million records beside the limit (draw the normals, read the data once)",
        ["what", "seeded", "limit", "seeded/limit"],
        rows,
    )


def _step_seconds(plan: hp.Plan) -> float:
    """Time of one step, without what a run prepares before its first."""
    ticks: list[float] = []
    engine.run(plan, seed=1, callback=lambda step, model: ticks.append(time.perf_counter()))
    return float(np.median(np.diff(ticks)))


def users(repeats: int) -> Section:
    """139 users of 22 to 251 rows: a round beside one batched Newton solve on padded arrays."""
    rng = np.random.default_rng(0)
    counts = rng.integers(22, 252, size=139)
    X = rng.normal(size=(counts.sum(), 28)) / np.sqrt(28)
    y = X @ rng.normal(size=28) * 3 + rng.logistic(size=len(X)) > 0
    problem = hp.Problem(X, y, "logistic", row_norm=1.0, groups=np.repeat(np.arange(139), counts))
    plan = hp.methods.federated_admm(problem, 10, 5.0, noise_std=0.1)
    state = engine.run(plan, seed=0).state
    z = plan.operator.release(state.public)
    solve = _batched_newton(problem.rows, 5.0, plan.operator.tolerance)
    times = in_turn(
        {"round": (lambda: engine.run(plan, state=state), 10), "batched": (lambda: solve(2 * z - state.blocks, z), 1)},
        repeats,
    )
    row = [
        "federated_admm round, all of 139 users",
        shown(times["round"]),
        shown(times["batched"]),
        ratio(times["round"], times["batched"]),
    ]
    return (
        "Users with 22 to 251 rows, logistic, p = 28",
        ["what", "round", "one batched Newton solve", "round/solve"],
        [row],
    )


def _batched_newton(rows, gamma: float, tolerance: float) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    counts, length = rows.counts, rows.counts.max()
    inside = np.arange(length) < counts[:, None]
    X, y = np.zeros((*inside.shape, rows.features.shape[1])), np.ones(inside.shape)
    X[inside], y[inside] = rows.features, rows.targets
    weights = inside / counts[:, None]

    def solve(points: np.ndarray, start: np.ndarray) -> np.ndarray:
        x = np.broadcast_to(start, points.shape)
        while True:
            share = expit(-y * np.matmul(X, x[:, :, None])[:, :, 0])
            gradient = np.matmul((-y * share * weights)[:, None, :], X)[:, 0] + (x - points) / gamma
            if gamma * np.linalg.norm(gradient, axis=1).max() <= tolerance:
                return x
            hessian = np.matmul(X.transpose(0, 2, 1), X * (weights * share * (1 - share))[:, :, None])
            hessian += np.eye(X.shape[2]) / gamma
            x = x - np.linalg.solve(hessian, gradient[:, :, None])[:, :, 0]

    return solve


def growth(repeats: int) -> Section:
    """How the time of a step grows, with the fitted exponent."""
    curves = [
        ("centralized_admm step, in records", [16_000, 64_000, 256_000, 1_024_000], lambda n: _central(n, 50)),
        ("centralized_admm step, in features", [50, 100, 200, 400], lambda p: _central(20_000, p)),
        ("federated_admm round of all users, in users", [4_000, 16_000, 64_000, 256_000], _federated),
        ("decentralized_admm, in hops", [10_000, 40_000, 160_000, 640_000], _walk),
        ("private_admm step, in records", [64_000, 256_000, 1_024_000], _whole),
        ("dp_sgd step, in records", [64_000, 256_000, 1_024_000], lambda n: _gradient(n)),
        ("centralized_admm, in steps", [2_500, 10_000, 40_000, 160_000], _steps),
    ]
    rows = []
    for name, sizes, make in curves:
        plans = {size: make(size) for size in sizes}
        for plan, _ in plans.values():
            engine.run(plan, seed=0)
        times = in_turn({str(size): (_run(plan, 1), units) for size, (plan, units) in plans.items()}, repeats)
        fastest = [float(times[str(size)].min()) for size in sizes]
        listed = ", ".join(f"{size}: {shown(times[str(size)]).split(' (')[0]}" for size in sizes)
        rows.append([name, listed, f"{exponent(sizes, fastest):.2f}"])
    return "Growth (exponent fitted to the fastest of the repeats)", ["what", "sizes and times", "exponent"], rows


def _central(n: int, p: int) -> tuple[hp.Plan, int]:
    return hp.methods.centralized_admm(_lasso(n, p)[0], 20, GAMMA, RELAXATION, noise_std=SIGMA), 20


def _federated(n: int) -> tuple[hp.Plan, int]:
    plan = hp.methods.federated_admm(_lasso(n, 64)[0], 5, GAMMA, RELAXATION, noise_std=SIGMA, participation_cap=5)
    return plan, 5


def _walk(hops: int) -> tuple[hp.Plan, int]:
    return hp.methods.decentralized_admm(_lasso(800, 64)[0], hops, GAMMA, RELAXATION, noise_std=SIGMA), 1


def _whole(n: int) -> tuple[hp.Plan, int]:
    X, y, _ = synthetic_lasso(n, 50)
    problem = hp.Problem(X, y > np.median(y), "logistic", row_norm=1.0)
    return hp.methods.private_admm(problem, 5, 10.0, noise_std=0.1), 5


def _gradient(n: int) -> tuple[hp.Plan, int]:
    return hp.methods.dp_sgd(_lasso(n, 50)[0], 20, 1.0, noise_std=0.01), 20


def _steps(steps: int) -> tuple[hp.Plan, int]:
    return hp.methods.centralized_admm(_lasso(800, 64)[0], steps, GAMMA, RELAXATION, noise_std=SIGMA), 1


def draws(repeats: int) -> Section:
    """The generators: seeded and secure, beside NumPy's."""
    from hushpoint.lattice import discrete_gaussians, rounded_normals
    from hushpoint.noise import source_for

    rows, items, step = [], np.arange(1000), [0]
    seeded, secure = source_for(0), source_for(None)

    def work(source):
        step[0] += 1
        return source.normals("bench", items, step[0], 1000)

    def whole(draw, source, size):
        step[0] += 1
        return draw(source, "bench", items, step[0], 1000, size)

    for draw, size in ((rounded_normals, 1 << 24), (discrete_gaussians, 1 << 48)):
        whole(draw, secure, size)  # compiles
    times = in_turn(
        {
            "NumPy, SFC64": (limits.numpy_drawer(1_000_000), 1_000_000),
            "seeded, keyed SFC64": (lambda: work(seeded), 1_000_000),
            "secure, ChaCha20": (lambda: work(secure), 1_000_000),
            "rint(2^24 Z), seeded": (lambda: whole(rounded_normals, seeded, 1 << 24), 1_000_000),
            "rint(2^24 Z), secure": (lambda: whole(rounded_normals, secure, 1 << 24), 1_000_000),
            "discrete Gaussian, s = 2^24, secure": (lambda: whole(discrete_gaussians, secure, 1 << 48), 1_000_000),
        },
        repeats,
    )
    for name, seconds in times.items():
        rows.append([name, f"{1e9 * np.median(seconds):.2f} ns ({1e9 * seconds.min():.2f}-{1e9 * seconds.max():.2f})"])
    return "A million normals, in addresses of a thousand (keyed: on all threads)", ["generator", "time of one"], rows


def imports(repeats: int) -> Section:
    """``import hushpoint``, and the first run of a method in a new process."""
    import subprocess
    import sys

    first = (
        "import time; t = time.perf_counter(); import hushpoint as hp; a = time.perf_counter(); import numpy as np;"
        "p = hp.Problem(np.eye(9), np.arange(9.0), row_norm=1.0, clip=1.0);"
        "hp.methods.centralized_admm(p, 5, 1.0, noise_std=1.0).run(seed=0); print(a - t, time.perf_counter() - a)"
    )
    found = []
    for _ in range(repeats):
        done = subprocess.run([sys.executable, "-c", first], capture_output=True, text=True, check=True)
        found.append([float(part) for part in done.stdout.split()])
    one, other = np.array(found).T
    return "A new process (compiled code comes from the cache)", ["what", "time"], [
        ["import hushpoint", shown(one)], ["first run of centralized_admm", shown(other)],
    ]  # fmt: skip
