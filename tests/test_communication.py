"""The study of communication: fair, resumable, and what it prints is what it found."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from hushpoint import methods
from hushpoint.commands import reproduce as commands
from hushpoint.experiments import communication, study
from hushpoint.experiments.communication import Scale
from hushpoint.experiments.communication_gaps import secure_summary
from hushpoint.experiments.communication_methods import (
    ADJACENCY,
    DELTA,
    ESTIMATOR,
    METHODS,
    Plans,
    Sample,
    Size,
    draw,
    level,
    round_trip,
)
from hushpoint.experiments.contenders import SECURE
from hushpoint.experiments.tuning import require_equal_effort
from hushpoint.federated import run_in_process
from hushpoint.plots import read_rows

SMALL = Size(users=30, fewest=3, most=6, features=4)
TINY = Scale(
    size=SMALL, epsilons=(None, 1.0), shares=(1.0, 0.5), rounds=(1, 8), runs=2, tuning_runs=2, tails=(None,),
    followed=("secure_anchored", "dp_fedsgd"), shown=(1.0,),
)  # fmt: skip


def quiet() -> Console:
    return Console(file=io.StringIO(), width=200)


def settings_of(scale: Scale, method: str, epsilon: float | None, share: float = 1.0) -> dict[str, Any]:
    return {
        "size": asdict(scale.size), "seed": 3, "delta": DELTA, "target": 0.01, "rounds": list(scale.rounds),
        "runs": scale.runs, "tuning_runs": scale.tuning_runs, "method": method, "epsilon": epsilon, "share": share,
        "grid": scale.settings_of(method),
    }  # fmt: skip


@contextmanager
def one_thread(jobs: int) -> Iterator[ThreadPoolExecutor]:
    """Instead of worker processes, whose start takes longer than these cells; test_study has those."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture(scope="module", autouse=True)
def _no_processes() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "_pool", one_thread)
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    directory = tmp_path_factory.mktemp("study") / "run"
    console = quiet()
    communication.run_communication(directory, scale=TINY, seed=3, jobs=2, console=console)
    assert isinstance(console.file, io.StringIO)
    return directory, console.file.getvalue()


# --- the comparison is fair


@pytest.mark.parametrize("scale", [communication.FULL, communication.QUICK], ids=["full", "quick"])
def test_every_method_has_as_many_settings(scale: Scale) -> None:
    # Catches: a baseline with a smaller grid, or the same setting twice in it.
    grids = {name: scale.settings_of(name) for name in scale.methods}
    assert require_equal_effort(grids) >= 24
    for grid in grids.values():
        assert len({json.dumps(choice) for choice in grid}) == len(grid)


TRUSTED = [name for name, about in METHODS.items() if not about.secure]


@pytest.mark.parametrize("method", TRUSTED)
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_every_method_is_calibrated_to_the_same_user_level_budget(method: str, share: float) -> None:
    # Catches: one method at record level, under another adjacency, or with noise taken from another setting's bound.
    sample, about = draw(SMALL, 0), METHODS[method]
    plans = Plans(method, SMALL, 6, share, 2.0)
    for choice in (about.grid[0], about.grid[-1], about.grid[len(about.grid) // 2]):
        own, plan = about.make(sample, 6, share, choice, level(2.0)), plans.plan(choice)
        spent = plan.guarantee(DELTA, adjacency=ADJACENCY)
        assert (spent.unit, spent.adjacency, spent.basis) == ("user", ADJACENCY, "proved")
        assert spent.view == ("messages" if method == "federated_admm_local" else "iterates")
        assert 0.999 * 2.0 <= spent.epsilon <= 2.0
        assert plan.noise.std == pytest.approx(own.noise.std, rel=1e-3)


def test_the_best_is_the_optimum() -> None:
    # Catches: a reference that is not the optimum, so that gaps are too small.
    sample = draw(SMALL, 1)
    problem = sample.problem()
    plan = methods.dp_sgd(problem, 3000, 8.0, noise_std=0.0)
    assert sample.best == pytest.approx(problem.objective(plan.run(seed=0).model), rel=1e-9)
    assert draw(SMALL, 2).problem().facts == problem.facts  # so that a plan is one for every draw


def test_tuning_and_evaluation_share_no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches: a setting chosen by the data it is judged on.
    drawn: dict[str, set[int]] = {"tuning": set(), "evaluation": set()}
    for part in drawn:

        def watched(size: Size, seed: int, part: str = part) -> Sample:
            drawn[part].add(seed)
            return draw(size, seed)

        settings = settings_of(TINY, "dp_fedsgd", None)
        plans = Plans("dp_fedsgd", SMALL, 2, 1.0, None)
        monkeypatch.setattr(communication, "draw", watched)
        if part == "tuning":
            communication._tuned(settings, 2, plans)
        else:
            communication._evaluated(settings, 2, plans, settings["grid"][0])
        monkeypatch.undo()
    assert len(drawn["tuning"]) == len(drawn["evaluation"]) == 2
    assert not drawn["tuning"] & drawn["evaluation"]


# --- the search


@pytest.mark.parametrize(
    ("tuned", "judged", "looked_at"),
    [
        ([0.5, 0.02, 0.005, 0.001], [0.5, 0.02, 0.009, 0.001], 3),  # stops at the first that is enough
        ([0.5, 0.02, 0.005, 0.02], [0.5, 0.02, 0.011, 0.02], 4),  # what tuning saw is not what counts
        ([0.1, 0.2, 0.09, 0.2, 0.2, 0.001], [0.1, 0.2, 0.09, 0.2, 0.2, 0.001], 5),  # four that did not help
        ([0.1, 0.2, 0.07, 0.2, 0.2, 0.001], [0.1, 0.2, 0.07, 0.2, 0.2, 0.001], 6),  # one of them did
        ([0.015, 0.2, 0.2, 0.2, 0.2, 0.001], [0.015, 0.2, 0.2, 0.2, 0.2, 0.001], 6),  # so close it goes on
    ],
)
def test_the_search_ends_where_it_should(
    tuned: list[float], judged: list[float], looked_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Catches: the best number of rounds instead of the first, tuning data that decide, giving up too early.
    monkeypatch.setattr(
        communication, "_tuned", lambda settings, rounds, plans: {"place": 0, "tuning_gap": tuned[rounds - 1]}
    )
    monkeypatch.setattr(
        communication, "_evaluated", lambda settings, rounds, plans, choice: {"gap_mean": judged[rounds - 1]}
    )
    settings = {**settings_of(TINY, "dp_fedsgd", 1.0), "rounds": list(range(1, len(tuned) + 1))}
    assert [entry["rounds"] for entry in communication.search(settings)["tried"]] == list(range(1, looked_at + 1))


def test_what_is_no_model_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches: a setting that diverged reported with a gap, or chosen because nan compares as it likes.
    sample, settings = draw(SMALL, 0), settings_of(TINY, "dp_fedsgd", None)
    with np.errstate(over="ignore"):
        assert sample.gap(np.full(4, math.nan)) == sample.gap(np.full(4, 1e200)) == math.inf
    monkeypatch.setattr(Sample, "gap", lambda sample, model: math.inf)
    nothing = {"place": None, "tuning_gap": None}
    assert communication.search(settings)["tried"] == [{"rounds": rounds, **nothing} for rounds in TINY.rounds]


# --- what is written


def test_the_tables_say_what_was_found(finished: tuple[Path, str]) -> None:
    # Catches: a budget that is lost on the way, a miss reported as a hit, bytes of another number of rounds.
    directory, printed = finished
    rows, tried = (read_rows(directory / "tables" / f"{name}.csv") for name in ("communication", "search"))
    assert {(row["method"], row["epsilon"], row["share"]) for row in rows} == {
        (name, epsilon, share) for name in TRUSTED for epsilon in ("inf", "1.0") for share in ("1.0", "0.5")
    } | {(name, "1.0", "1.0") for name in ("secure_anchored", ESTIMATOR)}
    for row in rows:
        own = [t for t in tried if all(t[key] == row[key] for key in ("method", "epsilon", "share"))]
        gaps = {int(t["rounds"]): float(t["gap_mean"]) for t in own}
        if row["rounds"]:
            first = min(rounds for rounds, gap in gaps.items() if gap <= 0.01)
            assert int(row["rounds"]) == first == max(gaps)
            assert float(row["gap_mean"]) == gaps[first] <= 0.01
            if row["trust"] == SECURE:
                continue  # their bytes have a test of their own
            people = 30 * float(row["share"])
            assert int(row["numbers"]) == first * people * 2 * 4
            overhead = int(row["bytes"]) - 8 * int(row["numbers"])
            assert 0 < overhead <= first * people * 2 * 512
        else:
            assert float(row["gap_mean"]) == min(gaps.values()) > 0.01
            assert row["bytes"] == ""
        assert (row["unit"], row["adjacency"]) == ("user", "zero-out")
    reached = {row["method"] for row in rows if row["epsilon"] == "inf" and row["rounds"]}
    assert {"anchored_admm", "federated_admm_local"} <= reached
    local = [row for row in rows if row["method"] == "federated_admm_local" and row["epsilon"] == "1.0"]
    assert not any(row["rounds"] for row in local)  # thirty users with noise of their own at epsilon = 1
    assert "never" in printed
    assert "local_steps 4, 12" in printed
    record = json.loads((directory / "run.json").read_text())
    assert record["finished"]
    assert record["settings"]["settings_tuned_over"] == 24
    assert [
        said for said in record["summary"] if said.startswith("With nobody trusted, by secure sums of all 30 users")
    ]
    assert any("federated ADMM (local noise) does not get there" in claim for claim in record["claims"])
    assert record["summary"][0].startswith("Without noise")
    assert (directory / "report.html").is_file()


def test_the_gaps_are_those_of_every_number_of_rounds(finished: tuple[Path, str]) -> None:
    # Catches: a curve that ends where a search did, another setting than the search's, rounds that were not taken.
    gaps, tried = (read_rows(finished[0] / "tables" / f"{name}.csv") for name in ("gaps", "search"))
    found = {(row["method"], int(row["rounds"])): row for row in gaps}
    assert set(found) == {(name, rounds) for name in TINY.followed for rounds in TINY.rounds} | {(ESTIMATOR, 8)}
    for row in tried:
        if row["method"] in TINY.followed and (row["epsilon"], row["share"]) == ("1.0", "1.0"):
            assert found[row["method"], int(row["rounds"])]["gap_mean"] == row["gap_mean"]
    trusted, secure = (int(found[name, 8]["bytes"]) for name in TINY.followed[::-1])
    assert secure > 10 * trusted  # all letters of all exchanges
    assert int(found[ESTIMATOR, 8]["rounds_used"]) <= 8
    assert f"{100 * float(found[ESTIMATOR, 8]['gap_mean']):.3g}"[:3] in finished[1]


def test_what_secure_sums_cost_is_said_as_it_is() -> None:
    # Catches: a miss told as a hit, the numbers of the trusted method, another share of the users.
    about = {"label": "A", "share": 1.0, "epsilon": 3.0, "gap_mean": 0.004}
    rows = [
        {**about, "method": "anchored_admm", "rounds": 2, "bytes": 4e5},
        {**about, "method": "anchored_admm", "share": 0.2, "rounds": 1, "bytes": 1e5},
        {**about, "method": "secure_anchored", "rounds": 3, "bytes": 9e7},
    ]
    (said,) = secure_summary(rows, [], 30)
    assert said.endswith("A comes within 1% in 3 rounds and 90.0 MB instead of 2 rounds and 400 kB at epsilon = 3.")
    rows[-1] |= {"rounds": None, "gap_mean": 0.021}
    (said,) = secure_summary(rows, [], 30)
    assert "no number of rounds (2.10% at best) instead of 2 rounds" in said


@pytest.mark.parametrize("method", TRUSTED)
def test_bytes_are_those_of_a_federation(method: str) -> None:
    # Catches: bytes that nobody ever sent; a method that the federation does not run as the study did.
    sample, about = draw(SMALL, 0), METHODS[method]
    plan = about.make(sample, 2, 0.5, about.grid[-1], {"noise_std": 0.1})
    assert plan.facts is not None
    problem = sample.problem(plan.facts.clip)
    run = run_in_process(plan, problem, seed=5)
    messages = sum(len(record.answered) for record in run.rounds)
    sent = sum(record.bytes_down + record.bytes_up for record in run.rounds)
    assert messages > 0
    assert sent / messages == pytest.approx(round_trip(method, 4), abs=8)
    np.testing.assert_allclose(run.model, plan.run(seed=5).model, atol=1e-8)


def test_an_interrupted_study_goes_on_to_the_same_bytes(
    finished: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Catches: draws that depend on the worker or on the order, and cells that are computed twice.
    written: list[str] = []
    keep = study._write

    def write(folder: Path, cell: study.Cell, result: study.Record) -> None:
        keep(folder, cell, result)
        written.append(cell.name)
        if len(written) == 2:
            raise KeyboardInterrupt

    scale = replace(TINY, methods=("dp_sgd_rows", "dp_fedsgd"))
    monkeypatch.setattr(study, "_write", write)
    with pytest.raises(study.Interrupted):
        communication.run_communication(tmp_path, scale=scale, seed=3, jobs=1, console=quiet())
    communication.run_communication(tmp_path, scale=scale, seed=3, jobs=1, console=quiet())
    assert len(written) == len(set(written)) == 9
    for name in ("communication", "search"):
        both = [read_rows(folder / "tables" / f"{name}.csv") for folder in (tmp_path, finished[0])]
        assert both[0] == [row for method in (*scale.methods, ESTIMATOR) for row in both[1] if row["method"] == method]


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches: options that do not arrive.
    asked: dict[str, Any] = {}
    monkeypatch.setattr(communication, "run_communication", lambda out, **options: asked.update(out=out, **options))
    commands.communication(tmp_path, quick=True, seed=7, jobs=1)
    assert asked == {"out": tmp_path, "quick": True, "seed": 7, "jobs": 1}
