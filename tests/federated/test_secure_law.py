"""What a secure release is: the sum of one holder, with as much noise as is promised whoever colludes, in every round.

Statistical checks have false-alarm rates of at most 1e-6 each.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from secure_federations import (
    Carrier,
    SiteData,
    carried,
    encoding,
    looked_at,
    plan_of,
    problem,
    starts,
    told_by,
)

import hushpoint as hp
from hushpoint.engine import drawn_by, settle
from hushpoint.federated.secure.covenant import plan_covenant
from hushpoint.federated.secure.in_process import agreement_of
from hushpoint.federated.secure.public import Course
from hushpoint.federated.secure.server import SecureServer
from hushpoint.federated.secure.store import SecureStore
from hushpoint.noise import Noise, source_for
from hushpoint.secure.encoding import Encoding

ALARM = 1e-6


def wide(method, features, sites=5, survivors=4, steps=4):
    """A plan with many numbers a message."""
    from secure_federations import Setting

    whole = problem(sites, features=features)
    agreement, keys = agreement_of(sites, "run", survivors=survivors)
    covenant = plan_covenant(agreement, plan_of(method, whole, steps), hp.Budget(8.0, 1e-5))
    return Setting(covenant, [SiteData(whole.rows.take(np.array([k]))) for k in range(sites)], keys, whole)


def noises(code, seeds, sites):
    """Sums of what sites add, one row a seed, in steps."""
    return np.array([sum(code.noise(source_for(seed), site, 1) for site in range(sites)) for seed in range(seeds)])


# --- the law of one release


@pytest.mark.parametrize("method", ["anchored_admm", "dp_sgd", "dp_fedavg"])
def test_a_release_has_the_law_of_a_curator_with_as_much_noise(method):
    """Means and covariances of one release over 300 seeds; all five sites' noise is on the sum, of variance 5 S^2/3.

    Noise shared by all sites, in place of the three honest ones of any four survivors, has 3/5 of that variance: the
    ratio of 12,000 squares is then more than twenty deviations away.
    """
    setting, seeds = wide(method, 40), 300
    link = Course(setting.covenant.training).link
    plan, operator, sites = link.plan, link.plan.operator, len(setting.data)
    code, relaxation = encoding(setting.covenant, link), link.plan.relaxation_at(0)
    code = replace(code, scale=code.scale // 2)  # so that as much as all sites add is a noise of the lattice
    shared = operator.start()[0]
    z = operator.release(shared)
    told, _ = told_by(link, [looked_at(link, data) for data in setting.data], starts(link, sites), z)
    secure = np.array([
        operator.release(operator.learned(shared, z, sum(told) + noise, relaxation))
        for noise in noises(code, seeds, sites)
    ])  # fmt: skip
    std = plan.noise.unit * round(code.scale * np.sqrt(sites / code.honest))
    noisy = replace(plan, noise=Noise(std, plan.noise.place, plan.noise.unit))
    data, blocks = operator.prepare(setting.whole.rows), np.zeros((sites, operator.block_size), dtype=np.int64)
    total = operator.move(data, slice(None), blocks, z, relaxation, None, operator.multiplicity)[1]
    central = np.array([
        operator.release(settle(operator, shared, total, None, relaxation, drawn_by(noisy, source_for(k), 0))[1])
        for k in range(10_000, 10_000 + seeds)
    ])  # fmt: skip
    assert same_means(secure, central)
    assert same_spread(secure, central)
    assert not correlated(secure)
    exact = operator.release(operator.learned(shared, z, sum(told), relaxation))
    for honest, passes in ((code.honest, True), (sites, False)):
        other = replace(code, honest=honest)
        made = exact + (secure - exact) * np.sqrt(code.honest / other.honest)  # as if so many had shared the noise
        assert same_spread(made, central) is passes
    assert not same_means(secure + 0.7 * secure.std(), central)


def same_means(one, other):
    """Whether no coordinate's mean differs by more than chance allows."""
    error = np.sqrt(one.var(axis=0, ddof=1) / len(one) + other.var(axis=0, ddof=1) / len(other))
    z = np.abs(one.mean(axis=0) - other.mean(axis=0)) / error
    return bool(z.max() < stats.norm.isf(ALARM / 2 / len(z) / 2))  # another 2 for t in place of normal tails


def same_spread(one, other):
    """Whether the squares of both, all coordinates together, have one ratio that chance allows."""
    count = one[0].size * (len(one) - 1)
    scale = other.std(axis=0, ddof=1)  # equal in law for all coordinates but for the prox
    ratio = float(((one - one.mean(axis=0)) ** 2).sum() / ((other - other.mean(axis=0)) ** 2).sum())
    assert scale.max() < 1.6 * scale.min()  # so that the squares count about equally
    return bool(
        stats.f.ppf(ALARM / 2, count * 0.8, count * 0.8) < ratio < stats.f.isf(ALARM / 2, count * 0.8, count * 0.8)
    )


def correlated(one):
    """Whether two coordinates go together more than chance allows."""
    found = np.corrcoef(one.T)[np.triu_indices(one.shape[1], 1)]
    found = np.clip(found, -1 + 1e-12, 1 - 1e-12)
    return bool(np.abs(np.arctanh(found)).max() > stats.norm.isf(ALARM / 2 / len(found)) / np.sqrt(len(one) - 3))


@pytest.mark.parametrize("colluders", [0, 1, 2])
def test_what_colluders_cannot_take_away_is_the_noise_that_is_claimed(colluders):
    """With the fewest survivors and the colluders' noise taken off, variance S^2 is left: no less, and no more."""
    agreement, _ = agreement_of(5, "run", survivors=4, colluders=colluders)
    code = Encoding(1.0, 2.0**40, 2.0**20, 64, 10**6, 5, agreement.honest, whole=True)
    left = noises(code, 200, agreement.survivors - colluders)
    count = left.size
    inside = stats.chi2.ppf(ALARM / 2, count), stats.chi2.isf(ALARM / 2, count)
    squares = float((left / code.scale).ravel() @ (left / code.scale).ravel())
    assert inside[0] < squares < inside[1]
    shared_by_more = squares * agreement.honest / (agreement.honest + 1)
    assert not inside[0] < shared_by_more


# --- an audit of a run, by someone who sees everything


def audit(carrier, setting):
    """What is wrong with a run: too little noise on its sums, or a message that no ledger has.

    The auditor has the data: taken off an opened sum, they leave the noise. It should have the variance that all
    survivors' parts have together; less is an alarm once in 10^6 runs.
    """
    counted = [{entry.round for entry in site.store.ledger().of(setting.covenant.run)} for site in carrier.sites]
    found = {"uncounted" for site, number in carrier.left if number not in counted[site]}
    squares = np.concatenate(carrier.noise)
    if float(squares.sum()) < stats.chi2.ppf(ALARM, squares.size):
        found.add("noise")
    return found


class Watched(Carrier):
    """A carrier that takes the data off every sum."""

    def exchange(self):
        self.noise = getattr(self, "noise", [])
        course, state = self.server._course, self.server.state
        link, z, step = course.link, state.point.copy(), state.steps
        super().exchange()
        if state.steps == step and course.link is link:
            return
        code, sites = encoding(self.server.covenant, link), len(self.sites)
        self.prepared = getattr(self, "prepared", None) or [looked_at(link, site._data) for site in self.sites]
        told, _ = told_by(link, self.prepared, starts(link, sites), z, step)
        quiet = link.plan.operator.learned(z, z, sum(told), link.plan.relaxation_at(step))
        step_size = link.plan.operator.step_size * link.plan.relaxation_at(step)
        ridge = 1 + 0.05 * step_size
        point = state.point if course.link is not None else self.server.found.models[0]
        noise = (link.plan.operator.release(quiet) - point) * ridge / (step_size * link.plan.operator.unit)
        counted = link.plan.operator.counted / link.plan.operator.sampled
        spread = code.scale * np.sqrt(sites / code.honest)
        self.noise.append((noise / counted / spread) ** 2)


def watched(setting):
    carrier = carried(setting)
    return Watched(carrier.server, carrier.sites)


def test_an_honest_run_passes_the_audit():
    setting = wide("dp_sgd", 500, sites=4)
    carrier = watched(setting).run()
    assert isinstance(carrier.server, SecureServer)
    assert len(carrier.noise) == 4
    assert audit(carrier, setting) == set()
    squares = np.concatenate(carrier.noise)
    assert squares.sum() < stats.chi2.isf(ALARM, squares.size)


def noise_left_out_at_one_site(monkeypatch):
    drawn = Encoding.noise
    monkeypatch.setattr(
        Encoding, "noise", lambda self, source, site, number: drawn(self, source, site, number) * (site != 2)
    )


def noise_shared_by_all_sites(monkeypatch):
    drawn = Encoding.noise
    monkeypatch.setattr(Encoding, "noise", lambda self, *address: drawn(replace(self, honest=self.sites), *address))


def the_same_noise_in_every_round(monkeypatch):
    drawn = Encoding.noise
    monkeypatch.setattr(Encoding, "noise", lambda self, source, site, number: drawn(self, source_for(3), site, 1))


def a_forgotten_line(monkeypatch):
    record = SecureStore.record
    monkeypatch.setattr(
        SecureStore,
        "record",
        lambda self, ledger, entry: ledger if entry.round == 2 else record(self, ledger, entry),
    )


@pytest.mark.parametrize(
    ("bug", "alarm"),
    [
        (noise_left_out_at_one_site, "noise"),
        (noise_shared_by_all_sites, "noise"),
        (a_forgotten_line, "uncounted"),
    ],
)
def test_the_audit_sees_a_planted_bug(bug, alarm, monkeypatch):
    bug(monkeypatch)
    setting = wide("dp_sgd", 500, sites=4)
    carrier = watched(setting).run()
    assert audit(carrier, setting) == {alarm}


def test_noise_is_fresh_in_every_round_and_at_every_site(monkeypatch):
    """Noise of two rounds at one site, and of two sites in one round, has nothing in common; also seen when planted."""

    def alike(setting):
        drawn = {}
        original = Encoding.noise

        def kept(self, source, site, number):
            drawn[site, number] = found = original(self, source, site, number)
            return found

        with monkeypatch.context() as patched:
            patched.setattr(Encoding, "noise", kept)
            carrier = carried(setting).run()
            carrier.check()
        several = np.array([drawn[key] for key in sorted(drawn)], dtype=float)
        assert len(several) == 3 * 4
        return correlated(several.T)

    setting = wide("dp_sgd", 300, sites=3, survivors=3)
    assert not alike(setting)
    the_same_noise_in_every_round(monkeypatch)
    assert alike(setting)
