"""A training as a chain of plans: whoever can run a plan can drive it, and its guarantee is that of its plans."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import hushpoint as hp
from hushpoint import noise
from hushpoint._described import described
from hushpoint.engine import drawn_by, settle
from hushpoint.estimators import planner, training
from hushpoint.estimators.penalty import Penalty
from hushpoint.estimators.planner import Parameters, plan_parameters
from hushpoint.estimators.training import Answer, Link
from hushpoint.noise import Source, source_for
from hushpoint.operators import Gradient, Means, MeanSquare, SecondMoments
from hushpoint.operators.lattice_gradient import LatticeGradient
from hushpoint.operators.lattice_moments import LatticeMeans, LatticeMeanSquare, LatticeMoments
from hushpoint.privacy.guarantee import Adjacency
from hushpoint.problem import PRIVATE, Problem

Array = NDArray[np.float64]
NORM, DELTA = 2.0, 1e-4


class Site:
    """Holds rows of some items, and follows the chain itself: it answers no plan but the one that it expects."""

    def __init__(self, problem: Problem, targets: Sequence[Array], links: training.Chain) -> None:
        self.rows, self.targets, self.links = problem.rows, targets, links
        self.link = next(links)

    def expects(self, link: Link) -> bool:
        ours, theirs = ((one.plan.fingerprint(), one.look, one.model) for one in (self.link, link))
        return described(ours) == described(theirs)

    def sum_at(self, z: Array) -> Array:
        rows, operator = self.link.look(self.rows), self.link.plan.operator
        if self.link.model is not None:
            rows = replace(rows, targets=self.targets[self.link.model])
        return operator.move(operator.prepare(rows), slice(None), np.zeros((rows.items, 0)), z, 1.0, None, None)[1]

    def hear(self, answer: Answer) -> None:
        with suppress(StopIteration):
            self.link = self.links.send(answer)


def federation(sites: list[Site], seed: int) -> Any:
    """A server that runs plans by adding the sums of its sites, and nothing else."""

    def ask(place: int, link: Link) -> Answer:
        plan, operator = link.plan, link.plan.operator
        source = source_for(training._seed_of(seed, place))
        shared, models = operator.start()[0], []
        assert all(site.expects(link) for site in sites)
        for step in range(plan.steps):
            total = sum(site.sum_at(operator.release(shared)) for site in sites)
            shared, _ = settle(operator, shared, total, None, plan.relaxation_at(step), drawn_by(plan, source, step))
            models.append(operator.model(operator.release(shared)))
        tail = 1 if plan.tail_average is None else max(1, round(plan.tail_average * plan.steps))
        answer = Answer(np.mean(models[-tail:], axis=0), operator.release(shared))
        for site in sites:
            site.hear(answer)
        return answer

    return ask


def parameters_for(problem: Problem, penalty: Any, adjacency: Adjacency = "replace-one") -> Parameters:
    return plan_parameters(
        problem.items, problem.features, 3.0, loss=problem.facts.loss, penalty=penalty, adjacency=adjacency
    )


@pytest.mark.parametrize("lattice", [False, True], ids=["real numbers", "lattice"])
@pytest.mark.parametrize("users", [False, True], ids=["records", "users"])
@pytest.mark.parametrize(
    ("penalty", "wide"),
    [(None, False), (None, True), ("l1", False)],
    ids=["full metric", "diagonal metric", "diagonal metric, L1"],
)
def test_two_sites_train_what_one_holder_of_all_rows_trains(
    penalty: Any, wide: bool, users: bool, lattice: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the lattice to the bit: sums of whole numbers do not depend on who adds them."""
    rng = np.random.default_rng(0)
    X, classes = rng.normal(loc=(1.0, 0.0, -0.5), size=(60, 3)), np.arange(60) % 3
    if wide:
        monkeypatch.setattr(planner, "_LARGEST_FULL", 0)
    owners = np.repeat(np.arange(20), 3) if users else None
    targets = [np.where(classes == one, 1.0, -1.0) for one in range(3)]
    problem = Problem(X, targets[0], "logistic", row_norm=NORM, groups=owners)
    plan, asked = parameters_for(problem, penalty), Penalty(automatic=penalty == "l1")

    def links() -> training.Chain:
        return training.chain(problem.facts, plan, fit_intercept=True, penalty=asked, models=3, lattice=lattice)

    sites = []
    for part in (slice(0, 24), slice(24, 60)):
        held = Problem(
            X[part], targets[0][part], "logistic", row_norm=NORM, groups=None if owners is None else owners[part]
        )
        sites.append(Site(held, [target[part] for target in targets], links()))
    found, passed = training.follow(links(), federation(sites, seed=7))
    models = found.models
    whole = training.train(
        problem, targets, plan, delta=DELTA, fit_intercept=True, penalty=asked, seed=7, lattice=lattice
    )
    np.testing.assert_allclose(models, whole.models, rtol=0 if lattice else 1e-7, atol=0 if lattice else 1e-9)
    assert ((models == 0) == (whole.models == 0)).all()
    assert training.spent(passed, plan, DELTA, source_for(7).describe()) == whole.guarantee
    kinds: tuple[type, ...] = (LatticeMeans, LatticeMoments, LatticeMeanSquare, LatticeGradient)
    kinds = kinds if lattice else (Means, SecondMoments, MeanSquare, Gradient)
    parts = [("means", kinds[0])] if wide or penalty == "l1" else []
    parts += [("second moments", kinds[1]), ("length", kinds[2]), *([("descent", kinds[3])] * 3)]
    parts += [("calibration", kinds[3])] * (0 if penalty == "l1" else 3)
    assert [(link.part, type(link.plan.operator)) for link in passed] == parts
    assert all(link.plan.problem is None for link in passed)  # facts only


def test_a_site_refuses_a_plan_that_does_not_follow_from_what_was_released() -> None:
    problem = Problem(np.eye(4), np.ones(4), "logistic", row_norm=NORM, classes=(-1.0, 1.0))
    plan = parameters_for(problem, None)
    site, other = (
        Site(problem, [np.ones(4)], training.chain(problem.facts, plan, fit_intercept=True)) for _ in range(2)
    )
    assert site.expects(other.link)
    for released in ((0.1, 0.1), (1.0, 2.0)):  # one has heard of longer rows than the other
        for one, value in zip((site, other), released, strict=True):
            one.hear(Answer(np.full(one.link.plan.operator.message_size, value), np.zeros(1)))
    assert not site.expects(other.link)


@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
@pytest.mark.parametrize("rows", [None, (3,) * 50, PRIVATE], ids=["records", "users", "users of private rows"])
@pytest.mark.parametrize("wide", [False, True], ids=["full metric", "diagonal metric"])
@pytest.mark.parametrize("models", [1, 3, 10])
def test_no_plan_states_more_than_its_share(
    models: int, wide: bool, rows: Any, adjacency: Adjacency, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor noticeably less: noise that is a thousandth smaller exceeds it."""
    if wide:
        monkeypatch.setattr(planner, "_LARGEST_FULL", 0)
    facts = replace(Problem.declared(50, 4, "logistic", row_norm=NORM).facts, rows_per_item=rows)
    for mu in (1e-3, 0.7, 30.0):
        plan = plan_parameters(50, 4, mu, adjacency=adjacency)
        shares = [*([plan.mean_mu] if wide else []), plan.moment_mu, plan.length_mu]
        shares += [plan.descent_mu / math.sqrt(models)] * models + [plan.calibration_mu / math.sqrt(models)] * models

        def ask(place: int, link: Link, shares: list[float] = shares) -> Answer:
            stated = link.plan.guarantee(DELTA, adjacency=adjacency).mu
            assert stated is not None
            assert link.mu == shares[place]
            # Whole steps of noise may be a little more: of the means, whose rows have 19 bits.
            assert shares[place] * (1 - (1e-4 if link.part == "means" else 1e-8)) <= stated <= shares[place]
            less = replace(link.plan, noise=replace(link.plan.noise, std=0.999 * link.plan.noise.std, unit=None))
            assert less.guarantee(DELTA, adjacency=adjacency).mu > shares[place]  # type: ignore[operator]
            return Answer(*(2 * [np.full(link.plan.operator.message_size, 0.1)]))

        links = training.chain(facts, plan, fit_intercept=True, models=models)
        _, passed = training.follow(links, ask)
        spent = training.spent(passed, plan, DELTA)
        assert len(passed) == len(shares)
        assert mu * (1 - 1e-8) <= spent.mu <= mu  # type: ignore[operator]
        assert (spent.unit, spent.adjacency, spent.view) == (facts.unit, adjacency, "iterates")


def test_a_plan_that_states_more_than_its_share_is_charged_what_it_states() -> None:
    problem = Problem.declared(50, 4, "logistic", row_norm=NORM)
    plan = plan_parameters(50, 4, 1.0)
    links = training.chain(problem.facts, plan, fit_intercept=True)
    _, passed = training.follow(links, lambda place, link: Answer(*(2 * [np.ones(link.plan.operator.message_size)])))
    for place, link in enumerate(passed):
        loud = replace(
            link, plan=replace(link.plan, noise=replace(link.plan.noise, std=link.plan.noise.std / 10, unit=None))
        )
        wrong = training.spent([*passed[:place], loud, *passed[place + 1 :]], plan, DELTA)
        others = sum(other.mu**2 for other in passed if other is not link)
        assert wrong.mu == pytest.approx(math.sqrt(others + (10 * link.mu) ** 2), rel=1e-9)


def test_no_two_releases_of_a_training_draw_from_one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, normals = [], noise.rounded_normals

    def watched(source: Source, role: str, items: Any, step: int, size: int, scale: int) -> Any:
        drawn.extend((source.key.tobytes(), role, int(item), step) for item in items)
        return normals(source, role, items, step, size, scale)

    monkeypatch.setattr(noise, "rounded_normals", watched)
    X, y = np.random.default_rng(1).normal(size=(30, 2)), np.arange(30) % 3
    model = hp.PrivateLogisticRegression(1.0, 1e-3, NORM, random_state=0).fit(X, y)
    calibrations = 3 * 20
    assert len(drawn) == len(set(drawn)) == 2 + model.n_iter_ + calibrations == model.n_passes_


def test_a_link_says_later_what_it_said_when_it_was_asked() -> None:
    """Would catch: a calibration that holds the models themselves, which its own answer changes."""
    problem = Problem(np.random.default_rng(2).normal(size=(30, 2)), np.ones(30), "squared", row_norm=NORM)
    plan = parameters_for(problem, None)
    said = []

    def ask(place: int, link: Link) -> Answer:
        said.append(described(link.look))
        return Answer(*(2 * [np.full(link.plan.operator.message_size, 0.3)]))

    links = training.chain(problem.facts, plan, fit_intercept=True, models=3)
    _, passed = training.follow(links, ask)
    assert [described(link.look) for link in passed] == said
