"""Small federations with secure sums, and a carrier of letters that loses them as a test asks it to."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="needs the extra 'secure'")

import hushpoint as hp
from hushpoint.estimators.declared import rows_of
from hushpoint.federated.in_process import site_store
from hushpoint.federated.secure.covenant import Covenant, estimator_covenant, plan_covenant
from hushpoint.federated.secure.in_process import agreement_of
from hushpoint.federated.secure.price import encoding_of
from hushpoint.federated.secure.public import Course, Public
from hushpoint.federated.secure.record import SecureServerStore
from hushpoint.federated.secure.server import SecureServer
from hushpoint.federated.secure.site import SecureSite, SiteData
from hushpoint.federated.secure.store import InMemory, SecureStore
from hushpoint.federated.secure.wire import Ask, Question, Said, decode_ask, decode_said, encode
from hushpoint.secure import Server, Terms
from hushpoint.secure.encoding import Encoding
from hushpoint.secure.packing import unpack

BUDGET = hp.Budget(epsilon=8.0, delta=1e-5)


# --- what is trained


@dataclass(frozen=True)
class Setting:
    """A covenant, the rows and the private keys of its sites, and whatever the sites' rows are together."""

    covenant: Covenant
    data: list[SiteData]
    keys: list[bytes]
    whole: Any = None


def problem(sites=4, rows=6, features=3, *, weights="rows", loss="huber", seed=0, regularizer=None):
    """Sites of a few rows, each with its own shift and a row more than the one before."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(sites), rows + np.arange(sites))
    X = rng.normal(size=(len(groups), features)) + 0.5 * rng.normal(size=(sites, features))[groups]
    y = X @ rng.normal(size=features) + 0.1 * rng.normal(size=len(groups))
    y = np.sign(y) if loss == "logistic" else y
    ridge = hp.regularizers.L2(0.05) if regularizer is None else regularizer
    return hp.Problem(X, y, loss, regularizer=ridge, row_norm=3.0, groups=groups, weights=weights)


def plan_of(method, whole, steps=3, **noise):
    """A plan of one of the methods that sites take part in, on whole numbers."""
    noise = noise or {"budget": hp.Budget(8.0, 1e-5, unit="user")}
    if method == "anchored_admm":
        return hp.methods.anchored_admm(whole, rounds=steps, gamma=2.0, lattice=True, **noise)
    if method == "dp_sgd":
        return hp.methods.dp_sgd(whole, steps=steps, step_size=0.3, lattice=True, **noise)
    return hp.methods.dp_fedavg(
        whole, rounds=steps, local_steps=2, local_step_size=0.2, clip_update=1.0, lattice=True, **noise
    )


def with_plan(method="dp_sgd", sites=4, *, steps=3, survivors=None, budget=BUDGET, spare=2, run="run", **options):
    """A setting in which one plan is run."""
    whole = problem(sites, **options)
    agreement, keys = agreement_of(sites, run, survivors=survivors)
    covenant = plan_covenant(agreement, plan_of(method, whole, steps), budget, spare=spare)
    data = [SiteData(whole.rows.take(np.array([site]))) for site in range(sites)]
    return Setting(covenant, data, keys, whole)


def table(kind, sites=3, each=40, seed=0):
    """Features, targets, and which rows are whose site's and whose user's; easy to predict."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(sites * each, 2))
    score = X @ np.array([1.0, -0.6])
    if kind == "svc":
        y: Any = np.array(["a", "b", "c"])[np.digitize(score, [-0.3, 0.3])]
    else:
        y = np.where(score > 0, "yes", "no") if kind == "logistic" else score
    return X, y, np.repeat(np.arange(sites), each), np.arange(sites * each) // 4


def estimator(kind, **options):
    """An estimator with everything declared."""
    declared = {"epsilon": 8.0, "delta": 1e-5, "row_norm": 1.5, **options}
    if kind == "logistic":
        return hp.PrivateLogisticRegression(**{"classes": ["no", "yes"], **declared})
    if kind == "svc":
        return hp.PrivateLinearSVC(**{"classes": ["a", "b", "c"], **declared})
    make = {"linear": hp.PrivateLinearRegression, "lasso": hp.PrivateLasso, "huber": hp.PrivateHuberRegressor}[kind]
    return make(target_range=(-2.0, 2.0), **declared)


def with_estimator(
    kind="logistic", sites=3, *, users=False, rounds=8, survivors=None, budget=BUDGET, spare=2, run="run", each=40,
    **options,
):  # fmt: skip
    """A setting in which an estimator is trained."""
    X, y, site_of, user_of = table(kind, sites, each)
    declared = estimator(kind, **options)
    agreement, keys = agreement_of(sites, run, survivors=survivors)
    counts = [each // 4 if users else each] * sites
    unit = "user" if users else "record"
    covenant = estimator_covenant(agreement, declared, 2, counts, budget, unit=unit, rounds=rounds, spare=spare)
    data = []
    for site in range(sites):
        at = site_of == site
        groups = user_of[at] if users else None
        data.append(SiteData(*rows_of(declared, covenant.training.declared, X[at], y[at], groups)))
    return Setting(covenant, data, keys, (X, y, user_of))


# --- who runs it


def site_of(setting, number, store=None, **options):
    """A site with a store of its own."""
    store = InMemory() if store is None else store
    covenant = options.pop("covenant", setting.covenant)
    return SecureSite(
        covenant, number, setting.data[number], store, setting.keys[number], **{"seed": number, **options}
    )


@dataclass
class Carrier:
    """Carries requests and replies, and remembers which masked letters left.

    ``absent`` says for a round and an exchange which sites do not answer.
    """

    server: SecureServer
    sites: list[Any]
    absent: Callable[[int, str], Collection[int]] = lambda number, kind: ()
    left: dict[tuple[int, int], set[bytes]] = field(default_factory=dict)
    declined: list[str] = field(default_factory=list)
    records: list[Any] = field(default_factory=list)
    answer: Callable[[int, bytes], bytes] | None = None

    def exchange(self):
        """One exchange of letters, closed or given up."""
        everyone = range(len(self.sites))
        waiting = self.server.open_round(everyone)
        while waiting:
            again = {}
            for site, request in waiting.items():
                asked = decode_ask(request)
                if site in self.absent(asked.round, asked.kind):
                    continue
                reply = self.sites[site].answer(request) if self.answer is None else self.answer(site, request)
                self.watch(site, reply)
                verdict = self.server.receive(site, reply)
                if verdict.again is not None:
                    again[site] = verdict.again
            waiting = again
        if not self.server.has_quorum:
            self.server.abandon_round()
            return
        record = self.server.close_round()
        if record is not None:
            self.records.append(record)

    def watch(self, site, reply):
        """Note a masked letter, or why there is none."""
        said = decode_said(reply)
        if said.status == "declined":
            self.declined.append(said.reason)
        elif said.kind == "masked":
            self.left.setdefault((site, said.round), set()).add(said.letter)

    def run(self, most=400):
        """Exchanges until the end."""
        for _ in range(most):
            if self.server.finished:
                return self
            self.exchange()
        raise AssertionError("the run does not end")

    def check(self):
        """No masked message is uncounted, and none is in two letters."""
        for (site, number), letters in self.left.items():
            assert len(letters) == 1, f"site {site} sent {len(letters)} masked letters in round {number}"
            counted = {entry.round for entry in self.sites[site].store.ledger().of(self.server.covenant.run)}
            assert number in counted, f"site {site} did not count round {number}"
        for site in self.sites:
            assert site.spent().squared <= self.server.spent.squared * (1 + 1e-9)
            assert site.spent().squared <= self.server.covenant.whole.squared


def carried(setting, *, place: Path | None = None, **options):
    """A carrier with a server and sites, in memory or on the disk."""
    store = SecureServerStore.in_memory() if place is None else SecureServerStore(place / "run")
    sites = [
        site_of(setting, k, None if place is None else SecureStore(site_store(place, k)))
        for k in range(setting.covenant.sites)
    ]
    return Carrier(SecureServer(setting.covenant, store), sites, **options)


# --- a server that asks what it likes


def said(site, kind, number, *, question=b"", public=b"", payload=b"", run=None, to=None, key=None) -> Said:
    """What a site says to a request of one's own making."""
    run = site.covenant.run if run is None else run
    ask = Ask(run, site.number if to is None else to, number, kind, question, public, payload)
    return decode_said(site.answer(encode(ask, key)))


def first_question(covenant, **changes) -> Question:
    """What the first round of a covenant asks."""
    course = Course(covenant.training)
    plan = course.link.plan
    point = np.asarray(plan.operator.release(plan.operator.start()[0]), dtype=np.float64)
    return replace(Question(0, 0, plan.noise.scale, Public().digest, point), **changes)


def forced_round(covenant, sites, number, question) -> tuple[Any, dict[int, Said]]:
    """A round that a server of one's own asks for; the opened sum, or None and what the sites said last."""
    length = Course(covenant.training).link.plan.operator.message_size
    terms = Terms(covenant.agreement, number, question.plan_digest(covenant.digest), question.point_digest, length)
    server, requests = Server(terms), dict.fromkeys(range(covenant.sites), b"")
    while True:
        kind = server.kind
        asked = question.to_bytes() if kind == "keys" else b""
        heard = {k: said(sites[k], kind, number, question=asked, payload=request) for k, request in requests.items()}
        if any(one.status != "letter" for one in heard.values()):
            return None, heard
        for one in heard.values():
            server.take(one.letter)
        if kind == "reveal":
            return server.opened().total.view(np.int64), heard
        requests = server.requests()


# --- what an observer of everything computes


def encoding(covenant, link) -> Encoding:
    """How the sums of a plan are encoded."""
    training = covenant.training
    return encoding_of(link.plan, covenant.agreement, training.unit, training.adjacency)


def looked_at(link, data, number=0):
    """The rows of a site as a plan wants them."""
    rows = link.look(data.rows)
    if link.model is not None and data.targets is not None:
        rows = replace(rows, targets=data.targets[link.model] - link.offset)
    return link.plan.operator.prepare(rows)


def told_by(link, prepared, blocks, z, step=0):
    """What each site tells of its rows without noise, and its block afterwards."""
    operator = link.plan.operator
    found, moved = [], []
    for site, data in enumerate(prepared):
        times = None if operator.multiplicity is None else operator.multiplicity[[site]]
        block, told = operator.told(data, blocks[site], z, link.plan.relaxation_at(step), times)
        found.append(np.asarray(told, dtype=np.int64))
        moved.append(block)
    return found, moved


def starts(link, sites):
    """The public blocks of the sites."""
    return [np.zeros((1, link.plan.operator.block_size), dtype=np.int64) for _ in range(sites)]


def silent(monkeypatch):
    """No noise at all: what sums are made of can then be seen."""
    monkeypatch.setattr(Encoding, "noise", lambda self, *address: np.zeros(self.length, dtype=np.int64))


def copied(record, **changes):
    """A JSON record with some values in other places: keys are paths with dots."""
    found = copy.deepcopy(record)
    for path, value in changes.items():
        *way, last = path.split(".")
        place = found
        for name in way:
            place = place[int(name) if isinstance(place, list) else name]
        place[int(last) if isinstance(place, list) else last] = value
    return found


__all__ = [name for name in dir() if not name.startswith("_")] + ["unpack"]
