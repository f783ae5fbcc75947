"""What goes wrong in a federation with secure sums, a row of docs/faults.md each."""

from __future__ import annotations

import shutil
from dataclasses import asdict, replace

from faults import Bench, Seen, fault
from secure_federations import Carrier, carried, first_question, said, site_of, with_plan

from hushpoint.federated.ends import Outcome, who_and_why
from hushpoint.federated.in_process import site_store
from hushpoint.federated.ledger import SiteStore
from hushpoint.federated.secure.outcome import write_model
from hushpoint.federated.secure.store import SecureStore
from hushpoint.federated.standing import standing_of


def started(bench: Bench) -> tuple[Carrier, SiteStore]:
    """Three sites with secure sums on the disk, and the store of the one that something happens to."""
    return carried(with_plan("dp_sgd", sites=3, steps=3), place=bench.place), site_store(bench.place, 0)


def asked_anew(carrier: Carrier, store: SiteStore, bench: Bench, **changes) -> str:
    """What the site, started again, says to the keys of a round that is to come; "" where it sends a letter."""
    setting = with_plan("dp_sgd", sites=3, steps=3, **changes)
    site = site_of(setting, 0, SecureStore(store), tell=bench.said.append)
    question = first_question(setting.covenant).to_bytes()
    return str(said(site, "keys", 9, question=question).reason)


def row(bench: Bench, server: str, spent: str, then: str) -> Seen:
    return Seen(" / ".join(dict.fromkeys(bench.said)) or "nothing", server, spent, then)


@fault("secure sums: a site's ledger was restored from an old copy")
def old_ledger(bench: Bench) -> Seen:
    carrier, store = started(bench)
    covenant, ledger = carrier.server.covenant, store.directory / "ledger.jsonl"
    while not carrier.records:
        carrier.exchange()
    shutil.copy(ledger, bench.place / "copy")
    while len(carrier.records) < 2:
        carrier.exchange()
    shutil.copy(bench.place / "copy", ledger)
    assert asked_anew(carrier, store, bench) == "old-ledger"
    SiteStore.readmit(store.directory, 2, covenant.run, claim=asdict(covenant.whole), elsewhere=0)
    assert standing_of(store, covenant.run).name == "closed"
    assert asked_anew(carrier, store, bench) == "closed"
    # In a covenant of another name it takes part again.
    assert asked_anew(carrier, store, bench, run="the next") == ""
    return row(
        bench,
        f"the round waits, then: {who_and_why({0: 'old-ledger'})}; after `readmit`: {who_and_why({0: 'closed'})}",
        "all that the covenant allows",
        "it counts as lost: a site that went on from it would be one of those that collude. `readmit`, and agree on "
        "another covenant (`plan --new-run`)",
    )


@fault("secure sums: rounds fail until nothing more may be spent, before the first sum")
def spent_without_a_model(bench: Bench) -> Seen:
    setting = with_plan("dp_sgd", sites=3, steps=3)
    carrier = carried(setting, place=bench.place, absent=lambda number, kind: {1} if kind == "reveal" else ()).run()
    server = carrier.server
    assert server.status == "spent"
    assert write_model(server, None, bench.place / "model.json") == b""
    ended = Outcome("spent", server.why)
    return row(
        bench,
        f"`run` ends with code {ended.code}: {server.why}",
        f"all that the covenant allows, in {server.state.failed} rounds",
        "there was no public point, so there is no model; more needs another covenant",
    )


@fault("secure sums: too few sites answer, after some sums")
def stalled_with_a_model(bench: Bench) -> Seen:
    carrier, _ = started(bench)
    while len(carrier.records) < 2:
        carrier.exchange()
    model = write_model(carrier.server, None, bench.place / "model.json", "stalled")
    assert b'"status": "stalled"' in model
    ended = Outcome("stalled", who_and_why({1: "absent"}))
    carrier.run()
    assert carrier.server.status == "finished"
    return row(
        bench,
        f"`run` ends with code {ended.code}: {ended.sentence}",
        "the rounds that were answered",
        "the last public point is in `run/model.json` as a model; `run` goes on",
    )


@fault("secure sums: a model is handed over that is of another run or schema")
def forged_model(bench: Bench) -> Seen:
    setting, store = with_plan("dp_sgd", sites=3, steps=3), site_store(bench.place, 0)
    carrier = carried(setting, place=bench.place).run()
    model = write_model(carrier.server, None, bench.place / "model.json")
    other = replace(carrier.server.covenant, spare=1)
    site = site_of(setting, 0, SecureStore(store), tell=bench.said.append)
    for content in (b"{}", model.replace(carrier.server.covenant.name.encode(), other.name.encode())):
        assert said(site, "end", 0, payload=content).reason == "model"
        assert not (store.directory / "model.json").exists()
    assert said(site, "end", 0, payload=model).status == "letter"
    assert (store.directory / "model.json").read_bytes() == model
    return row(
        bench, "that the site did not take the model", "nothing more", "the site keeps the model that it had, or none"
    )
