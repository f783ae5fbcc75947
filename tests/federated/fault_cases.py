"""What goes wrong in a federation with noise at the sites, a row of docs/faults.md each, in the order of the page."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from datetime import datetime
from unittest.mock import patch

import numpy as np
import pytest
from faults import ROUNDS, Bench, Seen, fault

import hushpoint as hp
from hushpoint.federated import Reply, Request, SiteStore, Window, decode, encode
from hushpoint.federated.agreed import Agreed
from hushpoint.federated.disk import held
from hushpoint.federated.shape import Shape
from hushpoint.schema import Schema


def lied(bench: Bench, site: int, **changes):
    """The site's own signature under a reply that it changed."""

    def told(reply: bytes) -> bytes:
        if not reply.startswith(b"hushpoint federated"):
            return reply
        answer = decode(reply, Reply)
        fields = {name: getattr(answer, name) for name in answer.__dataclass_fields__}
        return encode(Reply(**{**fields, **changes}), bench.keys[site])

    return told


def goes_on(bench: Bench) -> None:
    """Another `run`, after which all is done."""
    assert bench.run().name == "finished", bench.outcome
    assert bench.server.state.rounds == bench.rounds


@fault("a site's schema has the classes in another order")
def classes_turned(bench: Bench) -> Seen:
    columns = {"a": {"kind": "number", "low": 0, "high": 1}, "b": {"kind": "category", "values": ["no", "yes"]}}
    schema = {"target": "b", "columns": columns}
    turned = {"target": "b", "columns": {**columns, "b": {"kind": "category", "values": ["yes", "no"]}}}
    bench.agreed, other = (Agreed(bench.plan, Shape(Schema.from_dict(one)), "a run") for one in (schema, turned))
    bench.agreed_of[2] = other
    bench.run()
    assert bench.outcome.name == "stalled"
    assert bench.server.state.rounds == 0
    bench.agreed_of.clear()
    return bench.seen(
        2,
        "nothing is trained on nonsense; with the right schema it goes on. (Where schema.toml alone was changed, "
        "`federated site` refuses to start and names the file.)",
    )


@fault("a site was handed another plan")
def another_plan(bench: Bench) -> Seen:
    other = bench.make(bench.data, rounds=ROUNDS, noise_std=0.6)
    bench.agreed_of[1] = Agreed(other, None, "a run")
    bench.quorum = 0.8
    bench.run()
    assert bench.outcome.name == "finished"
    return bench.seen(1, "the quorum finished without it; a site takes part once it has the agreed plan")


@fault("a site is not there")
def absent(bench: Bench) -> Seen:
    bench.absent = {3}
    bench.run()
    seen = bench.seen(3, "with a smaller `quorum` the others go on without it; else start it, and `run` again")
    bench.absent = set()
    goes_on(bench)
    return seen


@fault("a site is there and silent")
def silent(bench: Bench) -> Seen:
    bench.altered[3] = lambda reply: None
    bench.run()
    seen = bench.seen(3, "the same bytes are asked for again; what it has counted stays counted, and `run` goes on")
    bench.altered.clear()
    goes_on(bench)
    return seen


@fault("a site sends what is no finite number")
def nonsense(bench: Bench) -> Seen:
    bench.quorum = 0.8

    def spoil(reply: bytes) -> bytes:
        if not reply.startswith(b"hushpoint federated") or decode(reply, Reply).message is None:
            return reply
        return lied(bench, 1, message=np.full(federations_width(bench), np.nan))(reply)

    bench.altered[1] = spoil
    bench.run()
    assert bench.outcome.name == "finished"
    return bench.seen(1, "each message is refused and counted; the quorum finished without it")


def federations_width(bench: Bench) -> int:
    return int(bench.plan.operator.message_size)


@fault("a site says that it took part in a later round than there is, to end the run")
def liar(bench: Bench) -> Seen:
    bench.quorum = 0.8
    bench.altered[1] = lied(bench, 1, status="declined", reason="stale", last_round=ROUNDS, message=None)
    bench.run()
    assert bench.outcome.name == "finished"
    assert bench.server.state.released == ROUNDS
    return bench.seen(1, "without the server's own signature on such a request it is one site's word: not believed")


@fault("the same, where all sites are needed")
def liar_that_is_needed(bench: Bench) -> Seen:
    bench.altered[1] = lied(bench, 1, status="declined", reason="stale", last_round=ROUNDS, message=None)
    bench.run()
    assert bench.outcome.name == "stalled"
    seen = bench.seen(1, "nothing is lost: it goes on as soon as the site answers")
    bench.altered.clear()
    goes_on(bench)
    return seen


@fault("a site has spent its own `[limit]`, and all are needed")
def limit(bench: Bench) -> Seen:
    once = bench.plan.guarantee(1e-5, unit="user", view="messages").epsilon / 2
    bench.options[4] = {"limit": hp.Budget(once, 1e-5, unit="user")}
    bench.run()
    assert bench.outcome.name == "spent"
    assert json.loads((bench.run_folder / "model.json").read_text())["details"]["federation"]["rounds"] >= 1
    return bench.seen(4, "the model of the last round is in `run/model.json` and at every site")


@fault("the same, and the others are a quorum")
def limit_with_quorum(bench: Bench) -> Seen:
    bench.quorum = 0.8
    once = bench.plan.guarantee(1e-5, unit="user", view="messages").epsilon / 2
    bench.options[4] = {"limit": hp.Budget(once, 1e-5, unit="user")}
    bench.run()
    assert bench.outcome.name == "finished"
    return bench.seen(4, "the others finish")


@fault("all sites have taken part as often as was agreed, before the last round")
def capped(bench: Bench) -> Seen:
    bench.plan = bench.make(bench.data, rounds=ROUNDS, participation_cap=2)
    bench.agreed = Agreed(bench.plan, None, "a run")
    bench.run()
    assert bench.outcome.name == "spent"
    assert bench.server.state.released == 2
    return bench.seen(0, "the model of round 2 stands; more rounds need a new agreement")


@fault("a site's ledger is lost or damaged")
def lost_ledger(bench: Bench) -> Seen:
    bench.run(stop_after=2)
    ledger = bench.folder(2) / "ledger.jsonl"
    ledger.write_bytes(b"garbage\n")
    bench.run()
    assert bench.outcome.name == "stalled"
    seen = bench.seen(
        2, "restore the newest copy, or `readmit` with a number that a person vouches for: it counts in this run"
    )
    SiteStore.readmit(bench.folder(2), 2, bench.agreed.run)
    goes_on(bench)
    assert bench.store(2).ledger().count(bench.agreed.run) == ROUNDS
    return seen


@fault("a site's ledger was restored from an old copy")
def old_ledger(bench: Bench) -> Seen:
    bench.run(stop_after=1)
    back = bench.copy(bench.folder(2) / "ledger.jsonl")
    bench.run(stop_after=3)
    back()
    bench.run()
    assert bench.outcome.name == "stalled"
    seen = bench.seen(2, "restore the newest copy, or `readmit`; a number below what is known is refused")
    with pytest.raises(ValueError, match="shows 2"):  # fewer than the ledger and its state show
        SiteStore.readmit(bench.folder(2), 1, bench.agreed.run)
    SiteStore.readmit(bench.folder(2), 3, bench.agreed.run)
    goes_on(bench)
    assert bench.store(2).ledger().count(bench.agreed.run) == ROUNDS
    return seen


@fault("the whole folder of a site was restored from an old copy")
def old_folder(bench: Bench) -> Seen:
    bench.run(stop_after=1)
    back = bench.copy(bench.folder(2))
    bench.run(stop_after=3)
    back()
    bench.run()
    assert bench.outcome.name == "stalled"
    seen = bench.seen(2, "the server has a message that this ledger knows nothing of: as with an old ledger")
    SiteStore.readmit(bench.folder(2), 3, bench.agreed.run)
    goes_on(bench)
    assert bench.store(2).ledger().count(bench.agreed.run) == ROUNDS
    return seen


@fault("a site was readmitted, and nobody knows what it spent in other runs, and it has a `[limit]`")
def unpriced(bench: Bench) -> Seen:
    (bench.folder(2) / "ledger.jsonl").unlink()
    SiteStore.readmit(bench.folder(2), 0, bench.agreed.run, elsewhere=None)
    bench.options[2] = {"limit": hp.Budget(1e6, 1e-5, unit="user")}
    bench.run()
    assert bench.outcome.name == "spent"
    seen = bench.seen(2, "what nobody can price is within no limit: take `[limit]` away, which is the site's to decide")
    bench.options.clear()
    goes_on(bench)
    return seen


@fault("a site lost its state, not its ledger")
def lost_state(bench: Bench) -> Seen:
    bench.run(stop_after=2)
    (bench.folder(2) / "state.npz").write_bytes(b"garbage")
    bench.run()
    assert bench.outcome.name == "finished"
    return bench.seen(2, "it asks the server for its block and goes on")


@fault("a site's disk is full")
def full_disk(bench: Bench) -> Seen:
    save = SiteStore.save

    def full(store: SiteStore, state) -> None:
        if store.directory == bench.folder(2):
            raise OSError(errno.ENOSPC, "No space left on device")
        save(store, state)

    with patch.object(SiteStore, "save", full):
        bench.run()
    assert bench.outcome.name == "stalled"
    seen = bench.seen(2, "nothing leaves that was not written; with room on the disk it goes on")
    goes_on(bench)
    return seen


@fault("a site is asked outside its hours")
def away(bench: Bench) -> Seen:
    bench.options[2] = {"window": Window.parse("22:00-06:00"), "clock": lambda: datetime(2030, 1, 1, 12)}
    bench.run()
    assert bench.outcome.name == "stalled"
    seen = bench.seen(2, "`run` again in its hours, or a smaller `quorum`")
    bench.options.clear()
    goes_on(bench)
    return seen


@fault("two processes of one site")
def twice(bench: Bench) -> Seen:
    with held(bench.folder(2)):
        bench.run()
    assert bench.outcome.name == "stalled"
    seen = bench.seen(2, "one of them answers, the other never: end one")
    goes_on(bench)
    return seen


@fault("a site has the public key of another server")
def other_server(bench: Bench) -> Seen:
    other = bench.keys[0]
    client = bench.client

    def deceived(site: int):
        found = client(site)
        if site == 2:
            found._server_key = other.public_key()
        return found

    bench.client = deceived  # type: ignore[method-assign]
    bench.run()
    assert bench.outcome.name == "stalled"
    return bench.seen(2, "it answers nothing, and nothing is spent; hand it the right `server.pub`")


@fault("the server's folder was restored from an old copy, its log as well")
def old_server(bench: Bench) -> Seen:
    bench.run(stop_after=1)
    back = bench.copy(bench.run_folder)
    bench.run(stop_after=3)
    back()
    bench.run()
    assert bench.outcome.name == "finished"
    assert bench.server.state.rounds == ROUNDS
    return bench.seen(
        2, "sites show the requests that this server has signed: it leaves the rounds that they know, and counts them"
    )


@fault("the same after the last round")
def old_server_at_the_end(bench: Bench) -> Seen:
    bench.run(stop_after=2)
    back = bench.copy(bench.run_folder)
    bench.run()
    back()
    bench.run()
    assert bench.outcome.name == "lost"
    told = json.loads((bench.run_folder / "model.json").read_text())["details"]["federation"]
    assert (told["rounds"], told["status"]) == (2, "lost")
    return bench.seen(
        2, "the model of the round that is known stays in `run/model.json`, and at the sites that of the last"
    )


@fault("a site was away when the model was handed out")
def late(bench: Bench) -> Seen:
    bench.run(stop_after=ROUNDS)
    bench.absent = {5}
    bench.run()
    assert bench.outcome.name == "finished"
    assert not (bench.folder(5) / "model.json").exists()
    seen = bench.seen(5, "`run` again when it is there: it spends nothing and hands the model on")
    bench.absent = set()
    bench.run()
    assert (bench.folder(5) / "model.json").read_bytes() == (bench.run_folder / "model.json").read_bytes()
    return seen


@fault("a model is handed over that the server did not sign, or of another run or schema")
def forged_model(bench: Bench) -> Seen:
    bench.run()
    other = replace(bench.server.agreed, nonce="another run")
    for agreed, key in ((bench.agreed, bench.keys[3]), (other, bench.keys["server"])):
        (bench.folder(2) / "model.json").unlink(missing_ok=True)
        bench.server.agreed, bench.server.run, bench.server._own_key = agreed, agreed.run, key
        reply = bench.client(2).answer(bench.server.farewell("finished")[2])
        assert b"not taken" in reply
        assert not (bench.folder(2) / "model.json").exists()
    return bench.seen(2, "the site keeps the model that it had, or none")


@fault("a server asks for a round of another run of the same plan")
def another_run(bench: Bench) -> Seen:
    bench.run()
    before = bench.store(2).ledger().count(bench.agreed.run)
    other = replace(bench.agreed, nonce="another run")
    point = np.zeros(federations_width(bench))
    request = encode(Request(other.run, 1, 2, "", 0, "", point), bench.keys["server"])
    assert decode(bench.client(2).answer(request), Reply).reason == "plan"
    assert bench.store(2).ledger().count(bench.agreed.run) == before
    return bench.seen(
        2, "a nonce is in the name of the run, so each run is agreed on; one that goes on is the same run"
    )
