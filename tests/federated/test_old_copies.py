"""What an old copy, or a file from outside, must not bring back: spent budget, statements that were true once."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest
from federations import Federation, asked, local, problem
from federations import said as said_by
from secure_federations import carried, first_question, said, site_of, with_plan

import hushpoint as hp
from hushpoint.federated import run_in_process
from hushpoint.federated.ledger import SiteStore
from hushpoint.federated.models import require_model
from hushpoint.federated.secure.record import SecureServerStore
from hushpoint.federated.secure.server import SecureServer
from hushpoint.federated.secure.spending import within_limit
from hushpoint.federated.secure.store import SecureStore
from hushpoint.tables.training import fit_model


def test_a_secure_server_from_an_old_copy_states_what_was_promised(tmp_path):
    # catches: rounds that its own log has and its state has not, which sites have counted
    setting = with_plan("dp_sgd", 3, steps=5, spare=4)
    carrier = carried(setting, place=tmp_path)
    while len(carrier.records) < 2:
        carrier.exchange()
    kept = (tmp_path / "run" / "server.npz").read_bytes()
    while len(carrier.records) < 4:
        carrier.exchange()
    carrier.server.store.close()
    (tmp_path / "run" / "server.npz").write_bytes(kept)
    again = type(carrier)(
        SecureServer(setting.covenant, SecureServerStore(tmp_path / "run")), carrier.sites, carrier.absent
    )
    again.run()
    assert again.server.status == "finished"
    assert again.server.state.failed == 2
    ledgers = max(site.spent().epsilon(setting.covenant.budget.delta) for site in carrier.sites)
    assert again.server.guarantee().epsilon == setting.covenant.promise().epsilon >= ledgers
    again.server.store.close()


def lost(site, run):
    """A ledger that was lost after a round of a run, with what else the site keeps."""
    store = site.store.site
    (store.directory / "ledger.jsonl").unlink()
    assert run in {name for name, _ in store._marks()}
    return store


@pytest.mark.parametrize("elsewhere", [0, None])
def test_a_covenant_whose_lines_were_lost_is_not_opened_by_vouching_for_another(tmp_path, elsewhere):
    # catches: the budget of the covenant before, spent twice because its ledger was lost in the next one
    first, second = with_plan("dp_sgd", 3, run="first"), with_plan("dp_sgd", 3, run="second")
    store = SecureStore(SiteStore.create(tmp_path))
    site = site_of(first, 0, store)
    assert said(site, "keys", 1, question=first_question(first.covenant).to_bytes()).status == "letter"
    directory = lost(site, first.covenant.run).directory
    claim = asdict(second.covenant.whole)
    SiteStore.readmit(directory, 0, second.covenant.run, claim=claim, elsewhere=elsewhere)
    for setting in (first, second):
        again = site_of(setting, 0, SecureStore(SiteStore(directory)))
        question = first_question(setting.covenant).to_bytes()
        assert said(again, "keys", 9, question=question).status == "declined"
    third = with_plan("dp_sgd", 3, run="third")
    fresh = site_of(third, 0, SecureStore(SiteStore(directory)))
    assert said(fresh, "keys", 1, question=first_question(third.covenant).to_bytes()).status == "letter"


def test_who_vouches_for_some_rounds_without_a_run_closes_those_that_are_known(tmp_path):
    # catches: a number that counts in no run, and a run whose budget begins anew beside it
    setting = with_plan("dp_sgd", 3)
    site = site_of(setting, 0, SecureStore(SiteStore.create(tmp_path)))
    question = first_question(setting.covenant).to_bytes()
    assert said(site, "keys", 1, question=question).status == "letter"
    SiteStore.readmit(lost(site, setting.covenant.run).directory, 2)
    again = site_of(setting, 0, SecureStore(SiteStore(tmp_path)))
    assert said(again, "keys", 9, question=question).status == "declined"


def test_what_a_closed_covenant_allows_counts_against_the_own_limit(tmp_path):
    # catches: "0 participations" read as nothing spent, where all that was allowed may have been
    setting = with_plan("dp_sgd", 3)
    store = SiteStore.create(tmp_path)
    (tmp_path / "ledger.jsonl").unlink()
    store = SiteStore.readmit(tmp_path, 0, "another", claim=asdict(setting.covenant.whole))
    whole = setting.covenant.whole
    limit = hp.Budget(setting.covenant.budget.epsilon, setting.covenant.budget.delta)
    assert not within_limit(store.ledger(), whole, setting.covenant, limit)


def test_a_local_run_whose_lines_were_lost_is_over(tmp_path):
    # catches: a cap that begins anew in the run whose lines were lost, since another one was vouched for
    data = problem()
    federation = Federation(local(data, rounds=4), data, tmp_path)
    assert said_by(federation.client(0), asked(federation.plan, 1)).status == "moved"
    run = federation.ledger(0).entries[0].run
    (tmp_path / "0" / "ledger.jsonl").unlink()
    SiteStore.readmit(tmp_path / "0", 0, "another run", mu={}, elsewhere=0)
    assert any(one.run == run and one.count is None for one in federation.ledger(0).vouched)
    assert said_by(federation.client(0), asked(federation.plan, 2)).reason == "cap"


def test_how_many_rows_users_have_stays_inside(tmp_path):
    # catches: a private count in the model file, or the least of them in a statement for a record
    shown = []
    for extra in (0, 1, 5):
        rng = np.random.default_rng(0)
        groups = np.concatenate([np.repeat(np.arange(4), 3), np.zeros(extra, int)])
        X, y = rng.normal(size=(len(groups), 2)), np.sign(rng.normal(size=len(groups)))
        data = hp.Problem(X, y, "logistic", row_norm=1.0, groups=groups)
        budget = hp.Budget(3.0, 1e-5, unit="user")
        plan = hp.methods.federated_admm(data, rounds=2, gamma=1.0, noise="clients", budget=budget)
        place = tmp_path / str(extra)
        run_in_process(plan, data, directory=place)
        model = json.loads((place / "run" / "model.json").read_text())
        run = json.loads((place / "run" / "run.json").read_text())
        shown.append((model["details"]["rows"], model["details"]["guarantees"], run["spent"], model["guarantee"]))
    assert shown[0] == shown[1] == shown[2]
    assert shown[0][0] is None


def test_a_model_does_not_say_itself_what_was_agreed_to_be_learned(tmp_path):
    # catches: another range, or classes the other way round, in a model that calls all its columns learned
    schema = {
        "target": "sick",
        "columns": {
            "age": {"kind": "number", "low": 0, "high": 100},
            "sick": {"kind": "category", "values": ["no", "yes"]},
        },
    }
    rng = np.random.default_rng(0)
    age = rng.integers(0, 101, 200)
    made = fit_model(
        {"age": age, "sick": np.where(age > 50, "yes", "no")}, hp.tables.Schema.from_dict(schema), epsilon=1.0
    )
    made.save(tmp_path / "m.json")
    record = json.loads((tmp_path / "m.json").read_text())
    record["details"]["federation"] = {"run": "r"}

    def taken(change, learned=()):
        other = json.loads(json.dumps(record))
        other["details"]["learned_ranges"] = ["age", "sick"]
        change(other)
        try:
            require_model(json.dumps(other).encode(), made.schema.to_dict(), "r", learned)
        except ValueError:
            return False
        return True

    def wider(other):
        other["schema"]["columns"]["age"]["high"] = 1000.0

    def turned(other):
        other["schema"]["columns"]["sick"]["values"].reverse()
        other["classes"].reverse()

    assert taken(lambda other: None)
    assert not taken(wider)
    assert taken(wider, learned=["age"])
    assert not taken(turned)
    assert not taken(turned, learned=["age"])
