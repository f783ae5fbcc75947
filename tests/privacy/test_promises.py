"""The sensitivity oracle: it finds nothing wrong with our operators, and catches promises that are false."""

from dataclasses import replace

import numpy as np
import pytest

import hushpoint as hp
from hushpoint.certificates import Certificate, Theorem
from hushpoint.operators import Gradient
from hushpoint.privacy import broken_promises

N, P = 12, 3
GROUPS = np.arange(N) // 3


def worlds(groups=None, loss="huber", weights="items", unit="user", **facts):
    """Two problems that differ in item 1, or in the first row of it: features and labels turned round, and longer."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(N, P)), 3 * rng.normal(size=N)
    mine = np.array([1]) if groups is None else np.flatnonzero(groups == 1)
    mine = mine[:1] if unit == "record" else mine
    other, label = X.copy(), y.copy()
    other[mine], label[mine] = 5 * X[mine][:, ::-1], -9 * y[mine]
    facts = {"row_norm": 1.5, "groups": groups, "weights": weights, **facts}
    return [hp.Problem(*data, loss, hp.regularizers.L2(0.1), **facts) for data in ((X, y), (other, label))]


METHODS = {
    "private_admm": lambda p: hp.methods.private_admm(p, 5, 2.0, noise_std=1.0),
    "dp_sgd": lambda p: hp.methods.dp_sgd(p, 5, 0.5, noise_std=1.0),
    "dp_sgd sampled": lambda p: hp.methods.dp_sgd(p, 5, 0.5, 0.3, noise_std=1.0),
    "dp_sgd of fixed size": lambda p: hp.methods.dp_sgd(p, 5, 0.5, sample_size=2, noise_std=1.0),
    "dp_cd": lambda p: hp.methods.dp_cd(p, 5, noise_std=1.0),
    "dp_fedavg": lambda p: hp.methods.dp_fedavg(p, 5, 3, 0.2, 0.4, noise_std=1.0),
    "centralized_admm": lambda p: hp.methods.centralized_admm(p, 5, 2.0, noise_std=1.0),
    "federated_admm, noise on the sum": lambda p: hp.methods.federated_admm(
        p, 5, 2.0, 0.8, noise="sum", clip_residual=0.5, sample_prob=0.3, noise_std=1.0
    ),
    "anchored_admm": lambda p: hp.methods.anchored_admm(p, 5, 2.0, noise_std=1.0),
    "stateless_walk": lambda p: hp.methods.stateless_walk(p, 5, 2.0, noise_std=1.0),
}


@pytest.mark.parametrize("unit", ["user", "record"])
@pytest.mark.parametrize("groups", [None, GROUPS], ids=["rows", "users"])
@pytest.mark.parametrize("method", METHODS)
def test_no_promise_of_ours_is_broken(method, groups, unit):
    # a certificate of one of our operators that is too small, or an oracle that cries wolf
    here, there = worlds(groups, unit=unit)
    plan = METHODS[method](here)
    assert broken_promises(plan, plan.on(there), 1, unit=unit, trials=10) == []


def test_weights_by_rows_keep_their_promises():
    here, there = worlds(np.array([0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2]), weights="rows")
    for method in ("dp_sgd sampled", "dp_fedavg", "anchored_admm", "centralized_admm", "private_admm"):
        plan = METHODS[method](here)
        assert broken_promises(plan, plan.on(there), 1, trials=10) == []


class TooSmall(Gradient):
    """The factor 2 of replace-one is lost."""

    def certificate(self, relaxation):
        honest = super().certificate(relaxation)
        table = {key: bound / 2 for key, bound in honest.sensitivity.items() if key[1] == "replace-one"}
        return replace(honest, sensitivity=table)


class OverHeads(Gradient):
    """Divides by the number of items that came, which tells it."""

    def combine(self, shared, total, chosen, relaxation):
        count = self.blocks if chosen is None else max(1, len(chosen))
        return super().combine(shared, total * self.sampled / count, chosen, relaxation)


class Normalised(Gradient):
    """Each message relative to the longest of the sample: short enough, and not its own."""

    def local(self, data, chosen, block, z, relaxation, kick):
        block, messages = super().local(data, chosen, block, z, relaxation, kick)
        return block, messages / max(1.0, np.linalg.norm(messages, axis=1).max())

    def move(self, data, chosen, block, z, relaxation, kick, multiplicity):
        block, messages = self.local(data, chosen, block, z, relaxation, kick)
        return block, messages.sum(axis=0)


class TwoSums(Gradient):
    """What is noised is not the sum of the messages that were bounded."""

    def move(self, *arguments):
        block, total = super().move(*arguments)
        return block, 1.2 * total


class Steep(Gradient):
    """Calls a step that moves points apart a contraction."""

    def step_lipschitz(self, relaxation):
        return 0.01


class Lengthened(hp.operators.SummedADMM):
    """Sampling amplifies, but messages are twice as long as stated."""

    def certificate(self, relaxation):
        honest = super().certificate(relaxation)
        return replace(honest, sensitivity={key: bound / 2 for key, bound in honest.sensitivity.items()})


class Kept(hp.operators.SummedADMM):
    """Claims that a sample of fixed size hides users who keep a block."""

    def certificate(self, relaxation):
        honest = super().certificate(relaxation)
        return replace(honest, theorem=replace(honest.theorem, amplified_by=("poisson", "fixed")))


class Walker(hp.operators.ConsensusADMM):
    """Claims to be a token, and keeps blocks."""

    def certificate(self, relaxation):
        return replace(super().certificate(relaxation), theorem=Theorem("3b", ("all", "walk"), walks=True))


FALSE = {
    TooSmall: "above the sensitivity",
    OverHeads: "depends on who was in the sample, or on how many",
    Normalised: "depends on who else is in the sample",
    TwoSums: "is not the sum of the messages",
    Steep: "above its Lipschitz constant",
    Lengthened: "longer in the sum",
    Kept: "whose block is kept",
    Walker: "there are blocks",
}


@pytest.mark.parametrize("kind", FALSE, ids=[kind.__name__ for kind in FALSE])
def test_a_false_promise_is_caught(kind):
    # an operator from outside that buys amplification, or a smaller epsilon, by what it says of itself
    here, there = worlds()
    if issubclass(kind, Gradient):
        plan = METHODS["dp_sgd sampled"](here)
        false = kind(here.facts, 0.5, plan.operator.sampled if kind is not Steep else N)
    else:
        summed = issubclass(kind, hp.operators.SummedADMM)
        plan = METHODS["federated_admm, noise on the sum" if summed else "centralized_admm"](here)
        false = kind(here.facts, 2.0, hp.regularizers.Zero(), 0.1, 0.5 if summed else None)
    lying = replace(plan, operator=false)
    assert any(FALSE[kind] in told for told in broken_promises(lying, lying.on(there), 1))


def test_a_free_string_buys_nothing():
    # before, family = "gradient" in the body of a class made the accountant amplify by sampling
    class Claims(hp.operators.FixedPoint):
        family, places = "gradient", ("sum",)

        def __init__(self, blocks):
            super().__init__(P)
            self.blocks = blocks

        def apply(self, point):
            return point / 2

        def certificate(self, relaxation):
            return Certificate(1.0, {("record", a): 1.0 for a in ("replace-one", "zero-out")})

    plan = hp.Plan(Claims(N), hp.schedules.PoissonSample(N, 0.01), hp.noise.Noise(5.0, "sum"), steps=10)
    with pytest.raises(ValueError, match="no privacy theorem"):
        plan.guarantee(1e-6)
    every = replace(plan, schedule=hp.schedules.EveryBlock(N)).guarantee(1e-6)
    assert every.mu == pytest.approx(np.sqrt(10) / 5)
    assert "the certificate that Claims states of itself" in str(every)
