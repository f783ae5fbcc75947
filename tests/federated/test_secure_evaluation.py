"""Figures on held-out rows at the end of a training by secure sums: right, within the budget, and within their bounds.

Seeds are fixed; a correct program fails a statistical test with probability at most 1e-6.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from secure_federations import estimator, silent, table, with_estimator
from sklearn.metrics import log_loss, r2_score

import hushpoint as hp
from hushpoint.estimators.declared import finished, rows_of
from hushpoint.estimators.held_out import LOG_LOSS, HeldOut, log_loss_alone
from hushpoint.estimators.training import Answer
from hushpoint.federated.secure.covenant import Covenant, estimator_covenant
from hushpoint.federated.secure.in_process import agreement_of, run_secure
from hushpoint.federated.secure.public import Course
from hushpoint.federated.secure.site import SecureSite, SiteData
from hushpoint.federated.secure.store import InMemory
from hushpoint.noise import source_for
from hushpoint.report import write

EACH = (30, 20, 10)  # held-out rows of a site


def held_out(kind, *, users=False, budget=None, rounds=8, share=0.2, each=40):
    """A setting in which the model is judged at the end, and the held-out rows of all sites together."""
    setting = with_estimator(kind, users=users, rounds=rounds, each=each)
    declared = estimator(kind)
    agreement, keys = agreement_of(3, "judged")
    unit, counts = ("user", [each // 4] * 3) if users else ("record", [each] * 3)
    told = [count // 5 for count in EACH] if users else EACH
    covenant = estimator_covenant(
        agreement, declared, 2, counts, budget or hp.Budget(8.0, 1e-5), unit=unit, rounds=rounds, held_out=told,
        evaluation_share=share,
    )  # fmt: skip
    X, y, _, _ = table(kind, 1, sum(EACH), seed=5)
    site_of = np.repeat(np.arange(3), EACH)
    user_of = np.arange(sum(EACH)) // 5
    data = []
    for site in range(3):
        at = site_of == site
        groups = user_of[at] if users else None
        rows = rows_of(declared, covenant.training.declared, X[at], y[at], groups)
        mine = setting.data[site]
        data.append(replace(mine, held_out=SiteData(*rows)))
    return covenant, data, keys, (X, y)


def figures(covenant, found, louder=1.0):
    training = covenant.training
    return training.evaluation.figures(training.declared, found, 4.0, louder)


@pytest.mark.parametrize(("kind", "users"), [("logistic", False), ("svc", False), ("linear", True), ("huber", False)])
def test_without_noise_figures_are_those_of_the_model_on_the_held_out_rows(kind, users, monkeypatch):
    # catches: figures of training rows, another class or offset, a site or user that counts otherwise than agreed
    covenant, data, keys, (X, y) = held_out(kind, users=users)
    silent(monkeypatch)
    result = run_secure(covenant, data, keys, seed=1)
    told = figures(covenant, result.found, louder=1e-9)  # there is no noise to hide them
    made = finished(estimator(kind), covenant.training.declared, result.found, result.guarantee, len(result.rounds))
    if kind in ("logistic", "svc"):
        assert told["accuracy"].value == pytest.approx(made.score(X, y), abs=1e-3)
    else:
        assert told["r2"].value == pytest.approx(r2_score(y, np.clip(made.predict(X), -2, 2)), abs=2e-3)
        assert told["rmse"].value == pytest.approx(np.sqrt(np.mean((y - made.predict(X)) ** 2)), abs=5e-3)
    if kind == "logistic":
        assert told["log_loss"].value == pytest.approx(log_loss(y, made.predict_proba(X)), abs=1e-3)


def test_figures_cost_their_share_and_all_of_it_stays_within_the_budget():
    # catches: a release beside the budget; a training that leaves the figures nothing
    for share, rounds in ((0.05, 8), (0.5, 20)):
        covenant, data, keys, _ = held_out("logistic", share=share, rounds=rounds, budget=hp.Budget(1.0, 1e-5))
        training = covenant.training
        training_mu = training.declared.parameters.mu
        assert training.evaluation.mu**2 == pytest.approx(share * (training.evaluation.mu**2 + training_mu**2))
        result = run_secure(covenant, data, keys, seed=2)
        assert result.found.held_out is not None
        assert result.guarantee.epsilon <= 1.0
        last, before = result.rounds[-1].epsilon["record"], result.rounds[-2].epsilon["record"]
        assert last > before
        assert len(result.rounds) <= rounds + 1
        again = Covenant.from_json(covenant.to_json())
        assert again.digest == covenant.digest
        assert again.training.held_out == EACH


def test_rounds_that_were_lost_leave_a_model_without_figures():
    # catches: a run that ends as spent, without the model, where only its figures could not be paid for
    covenant = held_out("logistic")[0]
    course = Course(covenant.training)
    while course.link.part != "held out":
        course.go_on(_nothing(course.link))
    course.go_on(_nothing(course.link, size=0))
    assert course.link is None
    assert course.found.held_out is None
    assert figures(covenant, course.found) == {}


def _nothing(link, size=None):
    size = link.plan.operator.message_size if size is None else size
    return Answer(*(2 * [np.full(size, 0.1)]))


@pytest.mark.parametrize(
    ("loss", "models"), [("logistic", 1), ("smoothed_hinge", 3), ("squared", 1)], ids=["logistic", "classes", "numbers"]
)
@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
def test_one_held_out_row_moves_the_sum_by_no_more_than_is_paid_for(loss, models, adjacency):
    # catches: numbers that leave [0, 1], or weights whose squares add up to more than 1
    covenant = held_out("logistic")[0]
    declared = covenant.training.declared
    parameters = replace(declared.parameters, adjacency=adjacency)
    facts = replace(declared.facts, loss=hp.losses.resolve(loss))
    evaluation = covenant.training.evaluation
    _, plan = evaluation._plan(replace(declared, parameters=parameters, facts=facts, models=models))
    asked, rng, operator = HeldOut.of(facts.loss, models), np.random.default_rng(0), plan.operator
    bound, longest = plan.certificate.shift("record", adjacency), 0.0
    for size in (0.1, 1.0, 30.0, 1e6, 1e300):
        weights = rng.normal(size=(models, 3)) * size
        X = np.vstack([rng.normal(size=(60, 2)) * rng.choice([1e-9, 0.3, 1.0], size=(60, 1)), np.eye(2), -np.eye(2)])
        y = rng.integers(models, size=len(X)) if models > 1 else rng.choice([-1.0, 1.0, 0.2], size=len(X))
        y = np.sign(y) if loss == "logistic" else y
        problem = hp.Problem(X, np.sign(y - 0.5) if models > 1 else y, loss, row_norm=1.5)
        rows = replace(problem.rows, targets=y.astype(float))
        told = operator.local(operator.prepare(asked.look(weights, True, rows)), slice(None), None, None, 1.0, None)[1]
        sums = told * operator.unit
        moves = sums[:, None] - sums[None] if adjacency == "replace-one" else sums
        longest = max(longest, np.linalg.norm(moves, axis=-1).max())
    assert longest <= bound
    assert longest >= 0.9 * bound * (0.75 if loss == "squared" else 1.0)  # a squared error of nothing has a place too


def test_what_a_row_tells_is_the_same_to_the_bit_wherever_it_stands():
    # catches: a library's exponential, whose last digits depend on the place in the array
    margins = np.concatenate([np.random.default_rng(0).normal(size=997) * 20, [0.0, -0.0, 1e300, -1e300]])
    together = log_loss_alone(margins)
    assert together.tobytes() == np.array([log_loss_alone(np.array([one]))[0] for one in margins]).tobytes()
    known = np.abs(margins) < 600
    assert together[known] == pytest.approx(np.logaddexp(0, -margins[known]), rel=1e-14)
    assert together[~known] == pytest.approx([0.0, 600.0])  # beyond what is counted in any case
    assert LOG_LOSS < 600


@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (0.5, False), (math.sqrt(2), False)])
def test_the_noise_of_figures_is_as_stated(factor, passes):
    # catches: the deviation that people are told being another one than that of the noise
    covenant = held_out("logistic", rounds=6)[0]
    training = covenant.training
    asked, plan = training.evaluation._plan(training.declared)
    items = sum(EACH)
    drawn = plan.noise.drawn(source_for(3), "sum", 0, 2, range(4000)) * (factor * plan.noise.unit / items)
    stated = asked.noise(plan.noise.std / items)
    for column, name in enumerate(stated):
        share = dict(asked.shares)[name]
        deviation = np.std(drawn[:, column] / math.sqrt(share))
        within = bool(abs(deviation / stated[name] - 1) < 5.5 / math.sqrt(2 * 4000))
        assert within is passes


def test_a_site_without_its_held_out_rows_does_not_join():
    covenant, data, keys, _ = held_out("logistic")
    with pytest.raises(ValueError, match=r"site 0 has no held-out rows.*test ="):
        SecureSite(covenant, 0, replace(data[0], held_out=None), InMemory(), keys[0])
    with pytest.raises(ValueError, match="site 1 holds 30 held-out items and the covenant says 20"):
        SecureSite(covenant, 1, replace(data[1], held_out=data[0].held_out), InMemory(), keys[1])
    with pytest.raises(ValueError, match="held_out is '2 numbers'"):
        estimator_covenant(
            agreement_of(3, "x")[0], estimator("logistic"), 2, [40] * 3, hp.Budget(1.0, 1e-5), held_out=[10, 10]
        )


def test_agreed_in_a_folder_and_told_on_the_page(tmp_path):
    # catches: settings that are ignored, figures that nobody is told
    from test_secure_commands import SCHEMA, command, place_of

    (tmp_path / "s.toml").write_text(SCHEMA)
    place = tmp_path / "hospitals"
    command("init", place, "--rows", 300, "--rows", 200, "--schema", tmp_path / "s.toml")
    agreed = (place / "federation.toml").read_text().replace("epsilon = 1.0", "epsilon = 40.0")
    (place / "federation.toml").write_text(agreed + "\n[evaluation]\nrows = [80, 60]\nshare = 0.1\n")
    rng = np.random.default_rng(0)
    for site, counts in enumerate([(300, 80), (200, 60)]):
        for name, rows in zip(("data.csv", "test.csv"), counts, strict=True):
            age, ward = rng.integers(0, 101, rows), rng.choice(["a", "b"], rows)
            sick = np.where(age + rng.normal(0, 5, rows) > 50, "yes", "no")
            lines = [",".join(map(str, row)) for row in zip(age, ward, sick, strict=True)]
            (place_of(place, site) / name).write_text("age,ward,sick\n" + "\n".join(lines) + "\n")
    shown = command("simulate", place, "--in-process")
    told = json.loads((place / "simulation" / "run" / "run.json").read_text())["held_out"]
    assert told["items"] == 140
    accuracy = told["figures"]["accuracy"]
    assert accuracy["value"] > 0.7
    assert 0 < accuracy["noise_std"] < 0.02
    assert "On 140 held-out records, with noise: accuracy " in shown
    assert "On held-out rows" in write(place / "simulation" / "run").read_text()
