"""Texts that stand for pieces: the same in any process for the same piece, and different for different ones."""

import functools
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import hushpoint as hp
from hushpoint._described import described
from hushpoint.losses import Loss
from hushpoint.operators import GeneralADMM
from hushpoint.schedules import Schedule


def scaled_loss(scale):
    @dataclass(frozen=True)
    class Scaled(Loss):
        name: ClassVar[str] = "scaled"
        lipschitz: ClassVar[float] = scale

        def value(self, t, b):
            return scale * np.abs(t - b)

        def derivative(self, t, b):
            return scale * np.sign(t - b)

        def curvature(self, t, b):
            return np.zeros_like(t)

    return Scaled()


def schedule_of(k):
    class Mine(Schedule):
        def draw(self, step, source, position):
            return np.arange(k)

        def participations(self, steps):
            return steps

    return Mine(10)


class Slotted:
    __slots__ = ("number",)

    def __init__(self, number):
        self.number = number


@dataclass(init=False)
class WithMore:
    shown: int = 1

    def __init__(self, number):
        self.hidden = number


class Spoken:
    """A repr, and a call, that tell nothing of what it holds."""

    def __init__(self, number):
        self.number = number

    def __repr__(self):
        return "Spoken()"

    def __call__(self):
        return self.number


class Remembers:
    def __init__(self, number):
        self.number = number

    @functools.cached_property
    def twice(self):
        return 2 * self.number


@dataclass(frozen=True)
class Nested:
    inside: dict = field(default_factory=dict)


FACTS = hp.Problem.declared(9, 2, "huber", row_norm=1.0).facts
DIFFERENT = {
    "constants of a class": scaled_loss,
    "numbers in a closure": schedule_of,
    "slots": Slotted,
    "attributes that are no fields": WithMore,
    "a repr of its own": Spoken,
    "an attribute": Remembers,
    "a partial": lambda number: functools.partial(max, number),
    "a function": lambda number: lambda: number,
    "a default": lambda number: lambda x=number: x,
    "an object array": lambda number: np.array([None] * 1500 + [str(number)] + [None] * 1500, dtype=object),
    "a large array": lambda number: np.append(np.zeros(5000), number),
    "nested": lambda number: Nested({"a": [(Slotted(number), {1, number})]}),
    "an operator": lambda number: GeneralADMM(FACTS, 1.0, hp.regularizers.Zero(), 0.0, np.eye(2) * number),
    "a penalty": lambda number: GeneralADMM(FACTS, 1.0, hp.regularizers.L1(number)),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_different_pieces_have_different_texts(what):
    # two pieces with one text: a state goes on with other constants than it was accounted with
    make = DIFFERENT[what]
    assert described(make(1.5)) == described(make(1.5))
    assert described(make(1.5)) != described(make(2.5))


def test_what_is_only_remembered_does_not_count():
    # a plan that was looked at is another plan
    fresh, used = Remembers(1.0), Remembers(1.0)
    assert used.twice == 2.0
    assert described(fresh) == described(used)


def test_pieces_that_hold_each_other_end():
    one = Nested()
    one.inside["me"] = one
    assert "up]" in described(one)


def test_texts_are_the_same_in_another_process():
    # an address in a text: no state could be continued after a restart
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_described as t\n"
        "for make in t.DIFFERENT.values(): print(t.described(make(1.5)).replace('test_described', ''))"
    )
    folder = str(Path(__file__).parent)
    run = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == [described(make(1.5)).replace(__name__, "") for make in DIFFERENT.values()]


# --- what a state must agree on


def data():
    X = np.random.default_rng(0).normal(size=(30, 2))
    return X, X[:, 0]


def admm(**settings):
    given = {"gamma": 1.0, "noise_std": 0.5, **settings}
    return hp.methods.private_admm(hp.Problem(*data(), "huber", row_norm=1.0), 4, **given)


def summed(clip=1.0):
    problem = hp.Problem(*data(), "huber", row_norm=1.0)
    return hp.methods.federated_admm(problem, 4, 1.0, noise="sum", clip_residual=clip, noise_std=0.5)


def shifted(step, blocks, size):
    return np.ones((len(blocks), size))


@pytest.mark.parametrize(
    ("begun", "going_on"),
    [
        (admm(), replace(admm(), operator=admm(gamma=0.001).operator)),
        (admm(A=0.1 * np.eye(2)), admm(A=10 * np.eye(2))),
        (admm(penalty=hp.regularizers.L1(1.0)), admm(penalty=hp.regularizers.L1(0.5))),
        (summed(), replace(summed(), operator=summed(0.001).operator)),
        (replace(summed(), relaxation=1.0), replace(summed(), relaxation=0.01)),
        (replace(admm(), errors=shifted), admm()),
    ],
)
def test_a_state_goes_on_only_with_what_it_was_accounted_with(begun, going_on):
    # gamma, a clip, A, a relaxation or errors changed between two halves: all was accounted with the second
    with pytest.raises(ValueError, match="state belongs to another plan"):
        going_on.run(state=begun.run(seed=0).state)


def test_json_describes_the_plan_that_runs():
    # replace(plan, noise=...) was saved with the noise of before: read again, it promised 8.2 where the run spent 3.6e7
    plan = admm()
    for changed in (
        replace(plan, noise=hp.noise.Noise(0.001)),
        replace(plan, steps=1000),
        replace(plan, relaxation=0.1),
        replace(plan, tail_average=0.5),
        replace(plan, operator=admm(gamma=3.0).operator),
    ):
        with pytest.raises(ValueError, match="changed after private_admm made it"):
            changed.to_json()
    assert hp.Plan.from_json(plan.to_json()).guarantee(1e-6) == plan.guarantee(1e-6)


def test_a_plan_from_a_file_keeps_its_changes_when_it_is_bound():
    # on() made the plan anew from its parameters: other noise and other steps than were asked about
    users = hp.Problem(*data(), "huber", row_norm=1.0, groups=np.arange(30) // 3)
    loaded = hp.Plan.from_json(hp.methods.dp_sgd(users, 50, 0.1, noise_std=0.5).to_json())
    changed = replace(loaded, noise=hp.noise.Noise(50.0, "sum"), steps=5)
    bound = changed.on(users)
    assert (bound.noise, bound.steps, bound.budget) == (changed.noise, 5, changed.budget)
    assert bound.guarantee(1e-6) == changed.guarantee(1e-6)
    assert bound.run(seed=0).guarantee.mu == changed.guarantee(1e-6).mu


def test_a_callback_is_remembered_after_a_failure():
    # the callback saw eleven models, the run failed, and the run that went on said nothing of it
    problem = hp.Problem(*data(), "huber", hp.regularizers.L2(1.0), row_norm=1.0)
    plan = hp.methods.private_admm(problem, 4, 1.0, budget=hp.Budget(1.0, 1e-6, view="final"))
    state = plan.run(seed=0, callback=lambda step, model: None).state
    failed = replace(state, steps=2, models=0)  # as RunFailed hands it out
    assert "the callback, which was given every model, kept silent" in plan.run(state=failed).guarantee.assumptions
