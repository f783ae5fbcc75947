"""Pieces from outside: the docstrings' own loss, regulariser and schedule, from plan to guarantee to run."""

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.optimize import minimize

import hushpoint as hp
from hushpoint import losses, regularizers, schedules
from hushpoint.engine import State
from hushpoint.federated import run_in_process
from hushpoint.losses import Loss
from hushpoint.regularizers import Regularizer
from hushpoint.schedules import Schedule

N, P = 60, 3


def from_docstring(text, name, **known):
    """The class that an indented example of a docstring defines."""
    lines = text.split("::\n", 1)[1].splitlines()
    indent = next(len(line) - len(line.lstrip()) for line in lines if line.strip())
    block = [line[indent:] for line in lines if not line.strip() or line.startswith(" " * indent)]
    namespace = {"np": np, "dataclass": dataclass, "__name__": "somewhere_else", **known}
    exec("\n".join(block), namespace)
    return namespace[name]


class_var = {"ClassVar": __import__("typing").ClassVar}
LogCosh = from_docstring(losses.__doc__, "LogCosh", Loss=Loss, **class_var)
NonNegative = from_docstring(regularizers.__doc__, "NonNegative", Regularizer=Regularizer)
EveryOther = from_docstring(schedules.Schedule.__doc__, "EveryOther", Schedule=Schedule)


class Wrapped(Loss):
    """Neither a dataclass nor named: logistic loss of a margin times a number that it keeps."""

    labels = "two-class"

    def __init__(self, scale):
        self.scale, self.inner = scale, hp.losses.Logistic()

    @property
    def lipschitz(self):
        return self.scale

    @property
    def smoothness(self):
        return self.scale**2 / 4

    def value(self, t, b):
        return self.inner.value(self.scale * t, b)

    def derivative(self, t, b):
        return self.scale * self.inner.derivative(self.scale * t, b)

    def curvature(self, t, b):
        return self.scale**2 * self.inner.curvature(self.scale * t, b)


def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, P))
    return X, X @ np.array([1.0, -1.0, 0.5]) + rng.normal(size=N)


def problem(loss, regularizer=None, two_classes=False, **facts):
    X, y = data()
    return hp.Problem(X, np.sign(y) if two_classes else y, loss, regularizer, row_norm=2.0, **facts)


METHODS = {
    "private_admm": lambda p, **noise: hp.methods.private_admm(p, 200, 20.0, **noise),
    "dp_sgd": lambda p, **noise: hp.methods.dp_sgd(p, 600, 0.2, **noise),
    "dp_sgd sampled": lambda p, **noise: hp.methods.dp_sgd(p, 600, 0.2, 0.5, **noise),
    "centralized_admm": lambda p, **noise: hp.methods.centralized_admm(p, 600, 1.0, **noise),
    "federated_admm": lambda p, **noise: hp.methods.federated_admm(p, 900, 1.0, sample_size=40, **noise),
    "decentralized_admm": lambda p, **noise: hp.methods.decentralized_admm(p, 60_000, 1.0, **noise),
    "anchored_admm": lambda p, **noise: hp.methods.anchored_admm(p, 600, 1.0, **noise),
    "stateless_walk": lambda p, **noise: hp.methods.stateless_walk(p, 20, 0.05, **noise),
}
ADMM_AND_GRADIENT = [name for name in METHODS if name not in ("stateless_walk", "decentralized_admm")]


def reference(p):
    """The minimiser, by a solver that knows nothing of proxes; constraints by bounds."""
    bounds = [(0, None)] * P if type(p.regularizer).__name__ == "NonNegative" else None
    smooth = lambda z: p.objective(np.maximum(z, 0.0) if bounds else z)  # noqa: E731
    return minimize(smooth, np.full(P, 0.1), method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-15, "gtol": 1e-9}).x


PIECES = {
    "own loss": lambda: problem(LogCosh()),
    "own loss, clipped": lambda: problem(LogCosh(), clip=0.7),
    "own loss without a name": lambda: problem(Wrapped(1.5), hp.regularizers.L2(0.1), two_classes=True),
    "own regulariser": lambda: problem("huber", NonNegative()),
    "class weights around a named loss": lambda: problem(
        hp.losses.ClassWeighted(hp.losses.Logistic(), 1.0, 3.0), hp.regularizers.L2(0.1), two_classes=True
    ),
    "class weights around an own loss": lambda: problem(
        hp.losses.ClassWeighted(Wrapped(1.5), 0.5, 1.0), hp.regularizers.L2(0.1), two_classes=True
    ),
}


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("method", ADMM_AND_GRADIENT)
def test_own_pieces_reach_their_optimum(piece, method):
    # the state's fingerprint insisted on JSON, so that none of these could run at all
    given = PIECES[piece]()
    if method == "dp_sgd sampled":
        assert np.isfinite(METHODS[method](given, noise_std=0.01).run(seed=0).model).all()
        return
    model = METHODS[method](given, noise_std=0.0).run(seed=0).model
    np.testing.assert_allclose(model, reference(given), atol=2e-4)


@pytest.mark.parametrize("piece", [name for name in PIECES if name != "own regulariser"])
@pytest.mark.parametrize("method", METHODS)
def test_own_losses_have_the_guarantee_of_their_constants(piece, method):
    # a guarantee from a table of named losses, or none; the twin is a named loss with the same constants
    given = PIECES[piece]()
    facts = given.facts
    if method == "stateless_walk" and facts.regularizer.strong_convexity:
        given = problem(facts.loss, two_classes=facts.loss.labels == "two-class", clip=facts.clip)
        facts = given.facts
    twin = hp.Problem.declared(
        N, P, hp.losses.Huber(facts.loss.lipschitz), facts.regularizer, row_norm=2.0, clip=facts.clip
    )
    plan, known = (METHODS[method](p, noise_std=3.0) for p in (given, twin))
    stated = plan.guarantee(1e-6)
    assert 0 < stated.epsilon < np.inf
    assert stated.epsilon == pytest.approx(known.guarantee(1e-6).epsilon, rel=1e-9)
    short = replace(plan, steps=3)
    spent = short.run(seed=1).guarantee
    assert spent.epsilon == short.guarantee(spent.delta).epsilon


def test_an_own_penalty_of_general_admm():
    # parameters of a method were made JSON before anything ran
    given = problem("huber")
    plan = hp.methods.private_admm(given, 300, 20.0, noise_std=0.0, penalty=NonNegative())
    np.testing.assert_allclose(plan.run(seed=0).model, reference(problem("huber", NonNegative())), atol=1e-4)
    with pytest.raises(ValueError, match="NonNegative, which runs and cannot be written to JSON"):
        plan.to_json()
    named = hp.methods.private_admm(given, 3, 20.0, noise_std=1.0, penalty=hp.regularizers.L1(0.1))
    assert hp.Plan.from_json(named.to_json()).to_json() == named.to_json()


SAVED = ("own loss", "own loss, clipped", "class weights around a named loss")


@pytest.mark.parametrize("piece", [name for name in PIECES if name not in SAVED])
def test_a_plan_with_an_own_piece_says_that_it_cannot_be_saved(piece):
    plan = METHODS["dp_sgd"](PIECES[piece](), noise_std=1.0)
    with pytest.raises(ValueError, match="which runs and cannot be written to JSON"):
        plan.to_json()


@pytest.mark.parametrize("piece", SAVED)
@pytest.mark.parametrize("method", ["private_admm", "dp_sgd", "federated_admm", "anchored_admm"])
def test_a_plan_with_a_piece_that_has_a_name_comes_back(piece, method):
    # a parameter that is not written, or a piece that comes back as another one: another model, another guarantee
    given = PIECES[piece]()
    plan = METHODS[method](given, noise_std=3.0)
    back = hp.Plan.from_json(plan.to_json())
    assert back.facts.loss == given.facts.loss
    assert back.on(given).guarantee(1e-6) == plan.guarantee(1e-6)
    ran = (replace(made, steps=4).run(seed=3).model for made in (plan, back.on(given)))
    np.testing.assert_array_equal(*ran)


def test_an_own_loss_goes_by_its_name():
    # a table of names that only this package can write to
    assert problem("log_cosh").facts == problem(LogCosh()).facts
    assert json.loads(METHODS["dp_sgd"](problem("log_cosh"), noise_std=1.0).to_json())["facts"]["loss"] == {
        "name": "log_cosh",
        "module": "somewhere_else",
    }


@pytest.mark.parametrize("method", ["federated_admm", "anchored_admm", "dp_sgd"])
def test_an_own_loss_in_a_federation(method):
    # sites agree on a plan by its JSON: a loss from outside had none
    given = problem(LogCosh(), groups=np.arange(N) // 6)
    plan = {
        "federated_admm": lambda: hp.methods.federated_admm(given, 5, 1.0, noise_std=0.1),
        "anchored_admm": lambda: hp.methods.anchored_admm(given, 5, 1.0, noise_std=0.1),
        "dp_sgd": lambda: hp.methods.dp_sgd(given, 5, 0.2, noise_std=0.1),
    }[method]()
    result = run_in_process(plan, given, seed=2)
    np.testing.assert_allclose(result.model, plan.run(seed=2).model, rtol=1e-9)
    assert "the constants that LogCosh declares of itself" in str(result.guarantees[0])


@pytest.mark.parametrize("piece", PIECES)
def test_a_state_goes_on_with_the_same_piece_only(piece, tmp_path):
    # a fingerprint that forgets the piece, or its numbers, lets a run go on with another loss than was accounted
    plan = METHODS["dp_sgd"](PIECES[piece](), noise_std=0.1)
    whole = replace(plan, steps=6).run(seed=3)
    replace(plan, steps=3).run(seed=3).state.save(tmp_path / "half.npz")
    rest = METHODS["dp_sgd"](PIECES[piece](), noise_std=0.1)  # as another process would build it
    result = replace(rest, steps=6).run(state=State.load(tmp_path / "half.npz"))
    np.testing.assert_array_equal(result.model, whole.model)
    for other in (problem("huber"), problem(Wrapped(1.6), hp.regularizers.L2(0.1), two_classes=True)):
        with pytest.raises(ValueError, match="state belongs to another plan"):
            METHODS["dp_sgd"](other, noise_std=0.1).run(state=State.load(tmp_path / "half.npz"))


# --- a schedule of one's own


def with_schedule(schedule, method="centralized_admm", noise_std=40.0, steps=10, **facts):
    plan = METHODS[method](problem("huber", **facts), noise_std=noise_std)
    return replace(plan, schedule=schedule, steps=steps)


@pytest.mark.parametrize("method", ["centralized_admm", "federated_admm", "anchored_admm"])
def test_an_own_schedule_runs_and_has_the_guarantee_of_whoever_takes_part(method):
    # no row in the table for a schedule that the theorem does not need to know
    quiet = with_schedule(EveryOther(N), method, noise_std=0.0, steps=1500)
    np.testing.assert_allclose(quiet.run(seed=0).model, reference(problem("huber")), atol=1e-4)
    plan = with_schedule(EveryOther(N), method)
    result = plan.run(seed=0)
    assert result.state.participations.tolist() == [5] * N
    stated = plan.guarantee(1e-6)
    everyone = replace(plan, schedule=hp.schedules.EveryBlock(N), steps=10 if method == "anchored_admm" else 5)
    assert stated.mu == pytest.approx(everyone.guarantee(1e-6, view=stated.view).mu)
    assert "who takes part is drawn without a look at the data" in stated.assumptions
    assert plan.guarantee(1e-6, view="final").mu == stated.mu
    with pytest.raises(ValueError, match="EveryOther, which runs and cannot be written to JSON"):
        plan.to_json()


def test_an_own_schedule_is_held_to_what_it_states():
    # a bound on participations that only the accountant knows of
    class Greedy(EveryOther):
        def draw(self, step, source, position):
            return np.arange(self.blocks)

    plan = with_schedule(Greedy(N))
    assert plan.run(seed=0).state.participations.max() == 5 == plan.schedule.most(10)
    assert replace(plan, steps=3).run(seed=0).state.participations.max() == 2
    assert with_schedule(Greedy(N, cap=1)).run(seed=0).state.participations.max() == 1


def test_participations_that_fall_with_more_steps_are_refused():
    # ten moves in ten steps, then a plan for twenty that states one: the run was accounted with one
    class Falling(EveryOther):
        def draw(self, step, source, position):
            return np.arange(self.blocks)

        def participations(self, steps):
            return 1 if steps >= 20 else steps

    begun = with_schedule(Falling(N)).run(seed=0).state
    assert begun.participations.max() == 10
    with pytest.raises(ValueError, match="has moved more often already"):
        with_schedule(Falling(N)).run(state=begun)
    stopped = with_schedule(Falling(N), steps=100).run(seed=0, callback=lambda step, model: True).state
    going_on = with_schedule(Falling(N)).run(state=stopped)
    assert going_on.state.participations.max() == 1  # the hundred steps that were planned allow one


@pytest.mark.parametrize("trick", ["a field", "its module", "set afterwards", "a property", "no schedule at all"])
def test_a_sampling_cannot_be_claimed(trick):
    # everybody moves and the accountant believes in a secret Poisson sample of one in a hundred
    class Everybody(hp.schedules.PoissonSample):
        def draw(self, step, source, position):
            return np.arange(self.blocks)

    class Duck:
        blocks, cap, sampling = N, None, "cyclic"

    plan = METHODS["dp_sgd sampled"](problem("huber"), noise_std=1.0)
    if trick == "no schedule at all":
        with pytest.raises(ValueError, match="schedule is a Duck"):
            replace(plan, schedule=Duck())
        return
    body = {
        "a field": {"__annotations__": {"sampling": str}, "sampling": "poisson"},
        "its module": {"__module__": "hushpoint.schedules"},
        "set afterwards": {},
        "a property": {"sampling": property(lambda self: "poisson")},
    }[trick]
    kind = type("PoissonSample", (Everybody,), body)
    if trick == "a field":
        kind = dataclass(frozen=True)(kind)
    if trick == "set afterwards":
        kind.sampling = "poisson"
    with pytest.raises(ValueError, match="no privacy theorem"):
        replace(plan, schedule=kind(N, prob=0.01)).guarantee(1e-6)


@pytest.mark.parametrize("base", ["EveryBlock", "PoissonSample", "FixedSample", "OneBlock", "Walk"])
def test_an_own_schedule_cannot_borrow_a_theorem(base):
    # a subclass of a Poisson sample that draws otherwise got the amplification of the Poisson sample, and one of
    # EveryBlock the last-iterate bound and the kernel that moves everybody
    kind = getattr(hp.schedules, base)

    class Mine(kind):
        law = "poisson"

        def draw(self, step, source, position):
            return np.array([0])

    plan = with_schedule(Mine(N))
    assert plan.schedule.law == "own"
    assert plan.run(seed=0).state.participations.tolist() == [10] + [0] * (N - 1)
    assert "no last-iterate bound" not in str(plan.guarantee(1e-6, view="final"))
    assert plan.guarantee(1e-6, view="final").view == "messages"
    sampled = replace(METHODS["dp_sgd sampled"](problem("huber"), noise_std=1.0), schedule=Mine(N))
    with pytest.raises(ValueError, match="no privacy theorem"):
        sampled.guarantee(1e-6)


@pytest.mark.parametrize(
    ("drawn", "told"),
    [([0, 0], "twice"), ([-1], "numbers from 0"), ([N], "numbers from 0"), ([0.5], "numbers from 0"), (3, "numbers")],
)
def test_what_an_own_schedule_draws_is_checked(drawn, told):
    # a block named twice sends its message twice: the sum moves by twice the stated bound
    class Odd(EveryOther):
        def draw(self, step, source, position):
            return drawn

    with pytest.raises(ValueError, match=told):
        with_schedule(Odd(N)).run(seed=0)


def test_the_examples_are_those_of_the_docstrings():
    # the test would pass on anything if the examples were not found
    assert {kind.__module__ for kind in (LogCosh, NonNegative, EveryOther)} == {"somewhere_else"}
    assert json.loads(json.dumps(LogCosh().name)) == "log_cosh"


@pytest.mark.parametrize("piece", PIECES)
def test_a_guarantee_says_whose_constants_it_takes_at_their_word(piece):
    # "proved", with a Lipschitz constant that nobody but the loss itself vouches for, and not a word about it
    text = str(METHODS["dp_sgd"](PIECES[piece](), noise_std=1.0).guarantee(1e-6))
    own = {"own loss": "LogCosh", "own loss, clipped": "LogCosh", "own regulariser": "NonNegative"}
    own |= {"own loss without a name": "Wrapped", "class weights around an own loss": "Wrapped"}
    assert (f"the constants that {own.get(piece)} declares of itself" in text) is (piece in own)
    assert ("declares of itself" in text) is (piece in own)


def test_a_penalty_of_ones_own_is_named_too():
    # its constants make the final view smaller, and the guarantee did not say whose they are
    plan = hp.methods.private_admm(problem("huber"), 5, 2.0, noise_std=1.0, penalty=NonNegative())
    assert "the constants that NonNegative declares of itself" in str(plan.guarantee(1e-6))
