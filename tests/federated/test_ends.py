"""How runs end and go on, by their commands: models for people, names of runs, exit codes, ledgers that were lost."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat

import numpy as np
import pytest
from deployment import FEATURES, command, federation, ran, site_data
from federations import Federation as Small
from federations import anchored, local, problem
from test_federated_commands import SCHEMA, TABLES, change, failing

import hushpoint as hp
from hushpoint.federated import Reply, Request, Server, ServerStore, SiteStore, decode, encode, run_in_process
from hushpoint.federated import agreed as agreements
from hushpoint.federated.disk import append_line
from hushpoint.federated.ends import ENDS, REASONS, Outcome, who_and_why
from hushpoint.federated.folder import Federation, Site
from hushpoint.federated.ledger import Ledger, Vouched, total_mu
from hushpoint.federated.record import ServerState, run_record
from hushpoint.federated.wire import REASONS as WORDS
from hushpoint.preprocessing import version
from hushpoint.tables.model_file import load_model


@pytest.fixture
def hospitals(tmp_path):
    """Two sites with tables."""
    (tmp_path / "schema.toml").write_text(SCHEMA)
    place = tmp_path / "hospitals"
    command("init", place, "--local-noise", "--rows", 3, "--rows", 2, "--schema", tmp_path / "schema.toml")
    for site, table in enumerate(TABLES):
        (place / "sites" / f"{site:02d}" / "data.csv").write_text(table)
    return place


@pytest.fixture
def folder(tmp_path):
    return federation(tmp_path / "federation", with_keys=False)


def site(folder, number=0):
    return folder / "sites" / f"{number:02d}"


# --- models


def test_the_model_of_tables_predicts_as_it_was_trained(hospitals, tmp_path):
    # catches: coefficients in another order, the wrong class of two, rows that are scaled in training only
    change(hospitals / "federation.toml", "epsilon = 1.0", "epsilon = 1e6")
    agreed = (hospitals / "federation.toml").read_text()
    (hospitals / "federation.toml").write_text(re.sub("row_norm = [0-9.]+", "row_norm = 1.2", agreed))  # short of all
    command("plan", hospitals)
    command("simulate", hospitals, "--in-process")
    run = hospitals / "simulation" / "run"
    model, vector = load_model(run / "model.json"), model_vector(hospitals)
    assert model.classes == ("no", "yes")
    X, _ = Site(site(hospitals)).shape().load(site(hospitals) / "data.csv")
    rows = np.column_stack([X, np.ones(len(X))])
    rows *= np.minimum(1, 1.2 / np.linalg.norm(rows, axis=1))[:, None]  # as in training, the constant included
    table = {"age": np.array([30, 70, 50]), "ward": np.array(["a", "b", "c"])}
    np.testing.assert_allclose(model.decision_function(table), rows @ vector, rtol=1e-12)
    np.testing.assert_allclose(model.decision_alone(table), rows @ vector, rtol=1e-12)
    assert model.predict_proba(table).shape == (3, 2)
    (tmp_path / "new.csv").write_text(TABLES[0])
    assert "accuracy" in ran("evaluate", run / "model.json", tmp_path / "new.csv")
    handed = hospitals / "simulation" / "sites" / "0001" / "model.json"
    assert handed.read_bytes() == (run / "model.json").read_bytes()
    page = ran("report", handed, "-o", tmp_path / "page.html")
    assert page
    assert "a federation of 2 sites: federated_admm, 10 of 10 rounds" in (tmp_path / "page.html").read_text()
    ran("report", run, "-o", tmp_path / "run.html")


def model_vector(place):
    """The model that the engine makes of the same plan, without the federation's files."""
    with np.load(place / "simulation" / "run" / "server.npz") as state:
        operator = Federation(place).plan().operator
        return operator.model(operator.release(state["public"]))


def test_a_model_of_arrays_predicts_from_arrays(folder, tmp_path):
    command("simulate", folder, "--in-process")
    model = folder / "simulation" / "sites" / "0000" / "model.json"
    X, y = site_data((8, 11, 9))[1]
    np.savez(tmp_path / "new.npz", X=X, y=y)
    np.save(tmp_path / "new.npy", np.column_stack([X, y]))
    said = [ran("predict", model, tmp_path / name) for name in ("new.npz", "new.npy")]
    assert said[0] == said[1]
    predicted = np.array(said[0].split()[1:], dtype=float)
    assert np.corrcoef(predicted, y)[0, 1] > 0.9
    assert "R2" in ran("evaluate", model, tmp_path / "new.npz")
    assert "declares no range of y" in ran("evaluate", model, tmp_path / "new.npz", "--epsilon", 1, code=2)
    assert "Pass a .npz file" in ran("predict", model, tmp_path / "new.csv", code=2)
    np.savez(tmp_path / "wide.npz", X=np.zeros((2, FEATURES + 1)))
    assert "features = 4" in ran("predict", model, tmp_path / "wide.npz", code=2)
    ran("report", model, "-o", tmp_path / "page.html")
    assert "federated_admm" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("loss", ["squared", "logistic", "huber"])
@pytest.mark.parametrize("make", [local, anchored])
def test_every_round_leaves_the_last_public_model(tmp_path, make, loss):
    data = problem(loss=loss)
    federation = Small(make(data), data, tmp_path)
    assert federation.server.model_file() is None  # the public start is no model
    for number in (1, 2):
        federation.round()
        kept = load_model(tmp_path / "server" / "model.json")
        assert kept.details["federation"]["rounds"] == number
        vector = federation.server.model
        scores = kept.decision_function(np.eye(4) / 2)
        np.testing.assert_allclose(scores, vector / 2 + (kept.intercept if kept.classes is None else 0))
        assert kept.has_probabilities is (loss == "logistic")


# --- what is agreed on


def test_what_changes_the_meaning_of_a_number_changes_the_name_of_the_run(hospitals, monkeypatch):
    # catches: a schema that is not hashed, or hashed with its columns sorted
    here = Site(site(hospitals))
    names = {here.agreed().run}
    schema = (hospitals / "schema.toml").read_text()
    age, ward = schema[schema.index("[columns.age]") : schema.index("[columns.ward]")], "[columns.ward]"
    for other in (
        schema.replace('["no", "yes"]', '["yes", "no"]'),
        schema.replace("high = 100", "high = 101"),
        schema.replace(age, "").replace("[columns.sick]", age + "[columns.sick]"),
        schema.replace('["a", "b", "c"]', '["b", "a", "c"]'),
    ):
        assert other != schema
        assert ward in other
        (site(hospitals) / "schema.toml").write_text(other)
        with pytest.raises(ValueError, match=r"schema.toml in .* is not the schema of its agreement.json"):
            here.client(signed=False)
        (hospitals / "schema.toml").write_text(other)
        command("plan", hospitals)
        names.add(here.agreed().run)
    assert len(names) == 5
    monkeypatch.setattr(agreements, "VERSION", version.VERSION + 1)
    monkeypatch.setattr(agreements.Agreed.__init__, "__defaults__", (None, "", version.VERSION + 1))
    with pytest.raises(ValueError, match="makes other numbers of a table"):
        here.agreed()


def test_a_run_that_goes_on_is_the_same_and_a_new_one_is_another(folder):
    command("simulate", folder, "--in-process", "--out", folder)
    first = Federation(folder).agreed()
    command("plan", folder)
    assert Federation(folder).agreed().run == first.run  # nothing has changed
    command("plan", folder, "--new-run")
    second = Federation(folder).agreed()
    assert (second.run != first.run, second.plan.to_dict()) == (True, first.plan.to_dict())
    assert json.loads((folder / "run.1" / "run.json").read_text())["run"] == first.run
    assert Site(site(folder)).agreed().run == second.run


def test_users_that_a_plan_would_not_protect_are_refused(tmp_path):
    # catches: groups that are read and ignored
    (tmp_path / "s.toml").write_text('groups = "patient"\n' + SCHEMA)
    place = tmp_path / "hospitals"
    said = failing("init", place, "--local-noise", "--rows", 3, "--schema", tmp_path / "s.toml")
    assert "schema.toml has groups = 'patient'" in said
    assert not place.exists()
    (tmp_path / "t.toml").write_text(SCHEMA)
    command("init", place, "--local-noise", "--rows", 3, "--schema", tmp_path / "t.toml")
    (place / "schema.toml").write_text('groups = "patient"\n' + SCHEMA)
    assert "groups = 'patient'" in failing("plan", place)


def test_state_is_for_its_owner_alone(tmp_path):
    # catches: a block or a ledger that other users of the machine can read
    old = os.umask(0o022)
    try:
        data = problem()
        run_in_process(anchored(data, rounds=1), data, directory=tmp_path)
    finally:
        os.umask(old)
    private = [tmp_path / "run" / "server.npz", tmp_path / "run" / "rounds.jsonl"]
    private += [tmp_path / "sites" / "0000" / name for name in ("state.npz", "ledger.jsonl", "messages.jsonl")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}


# --- ends


def test_every_word_has_a_meaning_and_every_end_a_code():
    assert set(WORDS) - {""} <= set(REASONS)
    from hushpoint.federated.secure.wire import REASONS as OF_SUMS

    assert set(OF_SUMS) - {""} <= set(REASONS)
    assert {name: end.code for name, end in ENDS.items()} == {
        "finished": 0, "died": 1, "refused": 1, "stalled": 3, "unfinished": 3, "spent": 4, "lost": 5,
    }  # fmt: skip
    assert who_and_why({2: "limit", 0: "", 4: "limit", 1: "nan"}) == (
        "site 1 sent what is no answer (nan); each of sites 2, 4 has spent its own limit (limit)"
    )
    for name in ENDS:
        assert Outcome(name).sentence.count(".") >= 1
    page = (os.path.dirname(__file__), "..", "..", "docs", "howto-local-noise.md")
    text = open(os.path.join(*page), encoding="utf-8").read()  # noqa: SIM115
    for name, end in ENDS.items():
        assert f"| `{name}` | {end.code} |" in text


def test_more_than_half_are_believed_without_a_proof(tmp_path):
    # A server that lost everything, and sites that lost the states by which they could show it.
    data = problem()
    federation = Small(anchored(data, rounds=8), data, tmp_path)
    for _ in range(3):
        federation.round()
    federation.forget_server()
    shutil.rmtree(tmp_path / "server")
    for number in range(6):
        (tmp_path / str(number) / "state.npz").unlink()
    assert federation.round() is None
    assert federation.server.abandon_round()
    assert federation.server.state.rounds == 3


def test_a_site_that_is_asked_alone_ends_nothing_by_its_word():
    # catches: "more than half of those asked" in a sample of one
    data = problem()
    federation = Small(local(data, rounds=8, sample_size=1), data)

    def lie(site, reply):
        answer = decode(reply, Reply)
        fields = {name: getattr(answer, name) for name in answer.__dataclass_fields__}
        return encode(Reply(**{**fields, "status": "declined", "reason": "stale", "last_round": 8, "message": None}))

    assert federation.round(lie) is None
    assert not federation.server.abandon_round()
    assert federation.server.status == "running"


def test_a_state_of_before_says_which_round_its_point_is_of(tmp_path):
    data = problem()
    federation = Small(anchored(data), data, tmp_path)
    federation.round()
    federation.forget_server()
    with np.load(tmp_path / "server" / "server.npz") as kept:
        before = {name: kept[name] for name in kept.files if name != "released"}
    np.savez(tmp_path / "server" / "server.npz", **before)
    assert federation.server.state.released == 1
    assert isinstance(federation.server.state, ServerState)


# --- ledgers


def test_what_is_vouched_for_counts_where_it_belongs(tmp_path):
    # catches: a number for one run that is counted in all, or in none
    store = SiteStore.create(tmp_path)
    (tmp_path / "ledger.jsonl").unlink()
    SiteStore.readmit(tmp_path, 4, "one", mu={"record": 0.5}, elsewhere=0)
    ledger = store.ledger()
    assert (ledger.count("one"), ledger.count("other"), ledger.total) == (4, 0, 4)
    assert total_mu(ledger, "record") == pytest.approx(1.0)
    assert total_mu(ledger, "user") is None  # no bound is known
    for elsewhere in (None, 3):
        (tmp_path / "ledger.jsonl").unlink()
        SiteStore.readmit(tmp_path, 4, "one", mu={"record": 0.5}, elsewhere=elsewhere)
        assert store.ledger().count("other") == 0
        assert total_mu(store.ledger(), "record") is None
    assert total_mu(Ledger(vouched=(Vouched("", 0),)), "record") == 0.0


def test_ledgers_of_before_are_read_as_they_were_meant(tmp_path):
    # catches: a number of before runs were named that is forgotten; it was meant for every run
    store = SiteStore.create(tmp_path)
    (tmp_path / "ledger.jsonl").unlink()
    check = append_line(tmp_path / "ledger.jsonl", {"opened": "2026", "before": 3}, "")
    old = {"run": "one", "round": 1, "point": "x", "mu": {"record": 0.5}, "at": "2026"}
    append_line(tmp_path / "ledger.jsonl", old, check)
    ledger = store.ledger()
    assert (ledger.count("one"), ledger.count("other"), ledger.vouched) == (4, 3, ())
    assert total_mu(ledger, "record") is None


@pytest.mark.parametrize("lines", [1, 2])
def test_lines_of_another_run_are_missed_too(tmp_path, lines):
    # catches: a ledger whose last lines, of a run before, were lost with nobody noticing
    data = problem()
    first, second = Small(local(data, noise_std=0.5), data, tmp_path), local(data, noise_std=0.6)
    copy = (tmp_path / "0" / "ledger.jsonl").read_bytes()
    for _ in range(lines):
        first.round()
    (tmp_path / "0" / "ledger.jsonl").write_bytes(copy)
    federation = Small(second, data, tmp_path, quorum=0.5)
    federation._server = Server(second, ServerStore.in_memory(), quorum=0.5)
    # One line can be written again from the state, with its cost; of more nobody knows.
    assert federation.round().declined == ({} if lines == 1 else {"0": "old-ledger"})
    if lines == 1:
        ledger = federation.ledger(0)
        assert [entry.run for entry in ledger.entries] == [first.server.run, federation.server.run]
        assert total_mu(ledger, "record") == pytest.approx(np.hypot(*(one.mu["record"] for one in ledger.entries)))


def test_a_lost_and_an_old_ledger_by_the_commands(folder):
    here, client = site(folder), Site(site(folder)).client(signed=False)
    federated = Federation(folder).agreed()
    point = np.zeros(federated.plan.operator.message_size)
    copy = (here / "ledger.jsonl").read_bytes()
    for number in (1, 2):
        client.answer(encode(Request(federated.run, number, 0, "", 0, "", point)))
    assert "whole" in failing("readmit", here, "--participations", 5)
    newest = (here / "ledger.jsonl").read_bytes()
    (here / "ledger.jsonl").write_bytes(copy)
    assert "old-ledger: the ledger is an old copy" in failing("status", here)
    assert "shows 1 in this run" in failing("readmit", here, "--participations", 0)
    (here / "ledger.jsonl").write_bytes(newest)  # the newest copy is the first way out
    assert "took part 2 times" in command("status", here)
    (here / "ledger.jsonl").write_bytes(copy)
    assert "vouched for by you" in command("readmit", here, "--participations", 3)
    said = json.loads(command("status", here, "--json"))
    assert (said["ledger"], said["participations"], said["unpriced"]) == ("vouched", 3, True)
    assert said["spent"][1]["mu"] == pytest.approx(np.sqrt(3) * client._mu["record"])
    (here / "ledger.jsonl").unlink()
    assert "lost: the ledger is lost or damaged" in failing("status", here)
    command("readmit", here, "--participations", 3, "--elsewhere", 0)
    assert json.loads(command("status", here, "--json"))["unpriced"] is False


def test_who_was_asked_of_a_secret_sample_is_in_no_file_for_publication(tmp_path):
    # catches: an end that names the sites of a sample which the guarantee takes to be a secret
    data = problem()
    for plan, kept in (
        (hp.methods.dp_sgd(data, 4, 0.3, sample_prob=0.5, noise_std=0.5), ""),
        (anchored(data), "site 3"),
    ):
        server = Server(plan, ServerStore.in_memory(), seed=1)
        assert run_record(server, "stalled", "site 3")["why"] == kept


def test_a_model_of_arrays_by_secure_sums_predicts_too(tmp_path):
    pytest.importorskip("cryptography", reason="needs the extra 'secure'")
    from test_secure_commands import ROWS, arrays

    folder = arrays(tmp_path / "f")
    command("simulate", folder, "--in-process")
    X, y = site_data(ROWS)[0]
    np.savez(tmp_path / "new.npz", X=X, y=y)
    said = ran("predict", folder / "simulation" / "sites" / "0001" / "model.json", tmp_path / "new.npz")
    predicted = np.array(said.split()[1:], dtype=float)
    assert np.abs(predicted).max() <= 4.0  # the declared range
    assert np.corrcoef(predicted, y)[0, 1] > 0.5
    ran("report", folder / "simulation" / "run" / "model.json", "-o", tmp_path / "page.html")
    assert "secure sums" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("kind", ["linear", "svc"])
def test_secure_sums_leave_a_model_as_soon_as_there_is_one(kind):
    # catches: an end in the middle of a descent, whose public points are lost with it
    pytest.importorskip("cryptography", reason="needs the extra 'secure'")
    from secure_federations import carried, with_estimator

    carrier = carried(with_estimator(kind, rounds=10))
    server, had = carrier.server, {}
    while not server.finished:
        carrier.exchange()
        part = None if server._course.link is None else server._course.link.part
        had.setdefault(part, []).append(server.so_far is not None)
    assert not any(had["second moments"])
    if kind == "linear":
        assert had["descent"][-1]
        assert all(had["calibration"])
    else:  # one class of three has no coefficients before its own descent
        assert not had["descent"][0]
    assert had[None] == [True]
    np.testing.assert_array_equal(server.so_far.models, server.found.models)
