"""The sensitivity oracle: it finds nothing wrong with our operators, and catches promises that are false."""

import copy
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
    if (unit, "replace-one") not in plan.certificate.sensitivity:
        pytest.skip("nothing is promised of one row")
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

    certificate = Gradient.certificate

    def combine(self, shared, total, chosen, relaxation):
        count = self.blocks if chosen is None else max(1, len(chosen))
        return super().combine(shared, total * self.sampled / count, chosen, relaxation)


class Normalised(Gradient):
    """Each message relative to the longest of the sample: short enough, and not its own."""

    certificate = Gradient.certificate

    def local(self, data, chosen, block, z, relaxation, kick):
        block, messages = super().local(data, chosen, block, z, relaxation, kick)
        return block, messages / max(1.0, np.linalg.norm(messages, axis=1).max())

    def move(self, data, chosen, block, z, relaxation, kick, multiplicity):
        block, messages = self.local(data, chosen, block, z, relaxation, kick)
        return block, messages.sum(axis=0)


class TwoSums(Gradient):
    """What is noised is not the sum of the messages that were bounded."""

    certificate = Gradient.certificate

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
        return replace(super().certificate(relaxation), theorem=Theorem("3b", laws=("all", "walk"), walks=True))


class Reader(Gradient):
    """Reads the data once more, after the noise."""

    certificate = Gradient.certificate
    secret = 0.0

    def prepare(self, rows):
        self.secret = float(rows.targets.sum())
        return rows

    def model(self, z):
        return z + self.secret


class Everybody(hp.operators.FixedPoint):
    """Calls a step that reads everybody one in which only those pay who move."""

    places = ("sum",)
    needs_rows = True

    def __init__(self, facts, *ignored):
        super().__init__(P)
        self.facts, self.blocks, self.block_size = facts, facts.items, 0

    def start(self):
        return np.zeros(P), np.zeros((self.blocks, 0))

    def apply(self, point):
        return point

    def prepare(self, rows):
        return np.clip(rows.targets, -1.0, 1.0).sum()

    def local(self, data, chosen, block, z, relaxation, kick):
        return block, np.full((len(block), P), data / self.blocks)

    def certificate(self, relaxation):
        stated = {("record", a): 2 * np.sqrt(P) for a in ("replace-one", "zero-out")}
        return Certificate(None, stated, theorem=Theorem("1", "sum", ("all", "poisson"), "participations"))


class Shrinking(Gradient):
    """True at the largest relaxation, and too small below it."""

    def certificate(self, relaxation):
        honest = super().certificate(relaxation)
        return replace(honest, sensitivity={key: bound * relaxation for key, bound in honest.sensitivity.items()})


FALSE = {
    TooSmall: "beyond the stated sensitivity",
    Reader: "model depends on the data, after the noise",
    Everybody: "takes no part",
    Shrinking: "beyond the stated sensitivity",
    OverHeads: "depends on who was in the sample, or on how many",
    Normalised: "depends on who else is in the sample",
    TwoSums: "is not the sum of the messages",
    Steep: "beyond its Lipschitz constant",
    Lengthened: "longer in the sum",
    Kept: "whose block is kept",
    Walker: "there are blocks",
}


@pytest.mark.parametrize("kind", FALSE, ids=[kind.__name__ for kind in FALSE])
def test_a_false_promise_is_caught(kind):
    # an operator from outside that buys amplification, or a smaller epsilon, by what it says of itself
    here, there = worlds()
    if issubclass(kind, (Gradient, Everybody)):
        plan = METHODS["dp_sgd sampled"](here)
        plan = replace(plan, relaxation=(1.0, 0.5, 0.5, 0.5, 0.5)) if kind is Shrinking else plan
        false = kind(here.facts, 0.5, plan.operator.sampled if kind is not Steep else N)
    else:
        summed = issubclass(kind, hp.operators.SummedADMM)
        plan = METHODS["federated_admm, noise on the sum" if summed else "centralized_admm"](here)
        false = kind(here.facts, 2.0, hp.regularizers.Zero(), 0.1, 0.5 if summed else None)
    lying = replace(plan, operator=false)
    other = replace(lying, operator=copy.copy(false)).on(there)  # what one of them remembers, the other does not
    assert any(FALSE[kind] in told for told in broken_promises(lying, other, 1))


def test_zero_out_is_measured_too():
    # half of the sensitivity that zero-out really has, and nobody looked
    class Half(TooSmall):
        def certificate(self, relaxation):
            honest = Gradient.certificate(self, relaxation)
            table = {key: bound / 2 if key[1] == "zero-out" else bound for key, bound in honest.sensitivity.items()}
            return replace(honest, sensitivity=table)

    X, y = np.eye(N, P) + 1.0, 100.0 * np.ones(N)
    here = hp.Problem(X, y, "huber", row_norm=1.5)
    X = X.copy()
    X[1] = 0.0  # a row of zeros has no gradient
    plan = METHODS["dp_sgd"](here)
    lying, gone = replace(plan, operator=Half(here.facts, 0.5, N)), hp.Problem(X, y, "huber", row_norm=1.5)
    assert broken_promises(plan, plan.on(gone), 1, adjacency="zero-out") == []
    told = broken_promises(lying, lying.on(gone), 1, adjacency="zero-out")
    assert any("one record (zero-out)" in sentence for sentence in told)
    assert not any("one record" in sentence for sentence in broken_promises(lying, lying.on(gone), 1))


def test_what_is_not_promised_cannot_be_checked():
    plan = METHODS["federated_admm, noise on the sum"](worlds(GROUPS)[0])
    with pytest.raises(ValueError, match="no sensitivity for one record"):
        broken_promises(plan, plan, 1, unit="record")


# --- what an attack on the accountant bought, and no longer buys


def test_a_changed_step_does_not_keep_the_promises_of_its_parent():
    # a subclass that doubles every message was accounted as its parent
    class Doubled(Gradient):
        def local(self, *arguments):
            block, messages = super().local(*arguments)
            return block, 2 * messages

        def move(self, *arguments):
            block, total = super().move(*arguments)
            return block, 2 * total

    class Named(Doubled):
        """Derives from one that changed it."""

    class Vouched(Doubled):
        certificate = Gradient.certificate

    plan = METHODS["dp_sgd"](worlds()[0])
    for kind in (Doubled, Named):
        with pytest.raises(ValueError, match="Doubled changes local, move and states no certificate"):
            replace(plan, operator=kind(plan.facts, 0.5, N)).guarantee(1e-6)
    vouched = replace(plan, operator=Vouched(plan.facts, 0.5, N)).guarantee(1e-6)
    assert "the certificate that Vouched states of itself" in str(vouched)


def test_a_certificate_speaks_of_one_place():
    # GeneralADMM with noise on the release: mu 1.41 was claimed where the points alone have 20.7
    class Fresh(hp.operators.GeneralADMM):
        places = ("release",)
        certificate = hp.operators.GeneralADMM.certificate

    plan = METHODS["private_admm"](worlds()[0])
    moved = hp.noise.Noise(1.0, "release")
    fresh = replace(plan, operator=Fresh(plan.facts, 2.0, hp.regularizers.Zero()), noise=moved)
    with pytest.raises(ValueError, match="speaks of noise on the block"):
        fresh.guarantee(1e-6)
    plan.operator.places = ("release",)
    with pytest.raises(ValueError, match="speaks of noise on the block"):
        replace(plan, noise=moved).guarantee(1e-6)


def test_the_final_model_is_less_than_all_models_only_where_noise_covers_what_is_kept():
    # an operator that keeps its last noisy sums: mu 1.1 was claimed for its model, which shows them all (7.07)
    class Keeps(hp.operators.FixedPoint):
        places = ("sum",)

        def __init__(self):
            super().__init__(1)
            self.message_size, self.block_size, self.needs_rows = 1, 0, False

        def start(self):
            return np.zeros(50), np.zeros((1, 0))

        def apply(self, point):
            return point

        def local(self, data, chosen, block, z, relaxation, kick):
            return block, np.ones((1, 1))

        def combine(self, shared, total, chosen, relaxation):
            return np.append(0.1 * shared[1:], total)

        def step_lipschitz(self, relaxation):
            return 0.1

        def certificate(self, relaxation):
            return Certificate(0.1, {"record": 2.0}, theorem=Theorem("1", "sum"))

    plan = hp.Plan(Keeps(), hp.schedules.EveryBlock(1), hp.noise.Noise(2.0, "sum"), steps=50, relaxation=1.0)
    assert plan.guarantee(1e-6, view="final").mu == pytest.approx(np.sqrt(50))


def test_noise_of_another_law_has_no_guarantee():
    # uniform noise of the same deviation was accounted as Gaussian
    class Uniform(hp.noise.Noise):
        def drawn(self, source, place, step, size, items=(0,)):
            return None if place != self.place else np.zeros((len(items), size))

    plan = METHODS["dp_sgd"](worlds()[0])
    with pytest.raises(ValueError, match="noise is a Uniform"):
        replace(plan, noise=Uniform(plan.noise.std, "sum")).guarantee(1e-6)


def test_a_rule_from_outside_is_not_called_proved():
    class Mine(hp.operators.ConsensusADMM):
        pass

    plan = METHODS["centralized_admm"](worlds()[0])
    mine = replace(plan, operator=Mine(plan.facts, 2.0, hp.regularizers.Zero(), 0.1))
    assert mine.guarantee(1e-6).basis == "proved"  # it has changed nothing
    hp.privacy.register_rule(
        Mine, lambda q: hp.privacy.gaussian_spend(q, 0.5, "99z", "so I say", "iterates"), "iterates"
    )
    stated = mine.guarantee(1e-6)
    assert (stated.basis, stated.mu) == ("stated", 0.5)
    assert "Stated by whoever registered the rule" in str(stated)
    assert "99z" not in str(stated)
    assert "so I say" in str(stated)
    assert hp.privacy.compose(stated, plan.guarantee(1e-6)).basis == "stated"
    wider = mine.guarantee(1e-6, view="final")
    assert wider.view == "iterates"
    hp.privacy.register_rule(Mine, lambda question: 0.5, "iterates")
    with pytest.raises(ValueError, match="Let it return a Spend"):
        mine.guarantee(1e-6)


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
            bound = {("record", a): 1.0 for a in ("replace-one", "zero-out")}
            return Certificate(1.0, bound, theorem=Theorem(place="sum"))

    plan = hp.Plan(Claims(N), hp.schedules.PoissonSample(N, 0.01), hp.noise.Noise(5.0, "sum"), steps=10)
    with pytest.raises(ValueError, match="no privacy theorem"):
        plan.guarantee(1e-6)
    every = replace(plan, schedule=hp.schedules.EveryBlock(N)).guarantee(1e-6)
    assert every.mu == pytest.approx(np.sqrt(10) / 5)
    assert "the certificate that Claims states of itself" in str(every)
