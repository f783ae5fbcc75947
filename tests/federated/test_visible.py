"""What is seen of a run, at a site and at the server: logs, status, metrics. Faults have words there, data has none."""

import errno
import json
import logging
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from deployment import command, federation, free_port
from federations import SITES, anchored, local, problem
from federations import Federation as Small
from test_silence import NUMBER, TEXT, silent

import hushpoint as hp
from hushpoint.federated import Client, SiteStore, health, wire
from hushpoint.federated.folder import Federation, Site
from hushpoint.federated.log import Log, last_words, note_who_is_turned_away
from hushpoint.federated.reach import CODES
from hushpoint.federated.reasons import WORDS, at_site
from hushpoint.federated.server import RoundRecord
from hushpoint.federated.units import SERVER, SITE
from hushpoint.federated.watch import STANDING, Watched, events, standing


@dataclass
class Present:
    """Who is there, as a test wants it."""

    available: set = field(default_factory=set)
    others: dict = field(default_factory=dict)
    refused: set = field(default_factory=set)


def noon(minutes=0):
    return datetime(2026, 1, 1, 12, tzinfo=UTC) + timedelta(minutes=minutes)


# --- lines


def test_every_reason_of_a_site_has_words():
    # a new reason without words would be a bare word in every log
    secure_wire = pytest.importorskip("hushpoint.federated.secure.wire", exc_type=ImportError)
    assert {*wire.REASONS, *secure_wire.REASONS} - {""} <= WORDS.keys()


def test_a_line_has_time_round_and_reason_and_is_said_once():
    lines = []
    log = Log("site 3", lines.append, as_json=True, clock=noon)
    for _ in range(3):
        log.answered(4, "declined", "limit", noon(-7))
    log.answered(5, "moved", "", noon(-6))
    log.node("joined")
    log.node("answered")  # said already, with its round
    log.node("clock: this machine's clock is 9 s ahead of the server's. Set both (NTP).")
    first, second, third, fourth = map(json.loads, lines)
    assert first == {
        "time": "2026-01-01T11:53:00Z",  # when it was asked: how long an answer took is nobody's
        "who": "site 3",
        "event": "declined",
        "round": 4,
        "reason": "limit",
        "words": at_site("limit"),
    }
    assert (second["event"], second["round"], second["time"]) == ("answered", 5, "2026-01-01T11:54:00Z")
    assert (third["event"], third["words"], third["round"]) == ("node", "joined", None)
    assert (fourth["reason"], fourth["words"][:14]) == ("clock", "this machine's")


def test_words_are_for_people():
    lines = []
    log = Log("site 3", lines.append)
    log.answered(4, "declined", "ledger", noon())
    log.answered(5, "moved", "", noon())
    log.greeted("f" * 32, "0" * 32)
    log.greeted("\x1b[2Jclear\nround 9: declined", "0" * 32)  # letters that a server chose
    assert lines[0].startswith("round 4: ledger: the ledger is lost")
    assert lines[1] == "round 5: answered"
    assert "f" * 32 in lines[2]
    assert "\x1b" not in lines[3]
    assert "run is another and this site was started with" in lines[3]


def test_a_log_that_cannot_be_written_ends_nothing(tmp_path):
    def closed(line):
        raise BrokenPipeError

    Log("site 3", closed, place=tmp_path / "node").node("joined")
    assert last_words(tmp_path / "node")["words"] == "joined"
    (tmp_path / "file").write_text("")
    Log("site 3", closed, place=tmp_path / "file").node("joined")


# --- a site


@pytest.fixture
def folder(tmp_path):
    pytest.importorskip("cryptography", reason="needs the extra 'federated'")
    pytest.importorskip("flwr", reason="Flower is not installed")
    return federation(tmp_path / "federation", testing="")


def server_of(folder):
    from hushpoint.federated import Server, ServerStore

    here = Federation(folder)
    agreed, keys = here.agreed(), here.site_keys(3)
    return Server(agreed.plan, ServerStore(here.run), own_key=here.own_key(), site_keys=keys, agreed=agreed)


def site_log(folder, number=0):
    from hushpoint.federated.apps import site_answer

    site, lines = Site(folder / "sites" / f"{number:02d}"), []
    log = Log(f"site {number}", lambda line: lines.append(json.loads(line)), as_json=True, place=site.folder / "node")
    return site_answer(site, log=log), lines


def test_a_site_says_what_it_answered_and_keeps_its_last_words(folder):
    from hushpoint.federated.flower import hello

    answer, lines = site_log(folder)
    answer(hello(Federation(folder).agreed().run))
    assert lines == []  # the same run: nothing to say
    answer(hello("0" * 32))
    assert (lines[0]["event"], lines[0]["reason"]) == ("trouble", "another run")
    request = server_of(folder).open_round(range(3))[0]
    answer(request)
    answer(request[:-3])
    assert [(line["event"], line["round"], line["reason"]) for line in lines[1:]] == [
        ("answered", 1, ""),
        ("declined", None, "refused"),
    ]
    said = command("status", folder / "sites" / "00")
    assert "Last round: 1. Ledger: whole. Keys: there" in said
    assert "refused: a request was not from the server" in said
    record = json.loads(command("status", folder / "sites" / "00", "--json"))
    assert record["said_last"] == lines[-1]
    assert (record["last_round"], record["ledger"], record["model"]) == (1, "whole", None)


def test_a_full_disk_is_a_reason_and_nothing_has_left(folder, monkeypatch):
    # catches: "failed", which says nothing; a message that left and is in no ledger
    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    answer, lines = site_log(folder)
    request = server_of(folder).open_round(range(3))[0]
    for name in ("save", "record"):
        monkeypatch.setattr(SiteStore, name, full)
        reply = wire.decode(answer(request), wire.Reply)
        assert (reply.status, reply.reason, reply.message) == ("declined", "disk", None)
        monkeypatch.undo()
    assert lines[-1]["reason"] == "disk"
    assert wire.decode(answer(request), wire.Reply).status == "moved"
    assert len(Site(folder / "sites" / "00").store().ledger().entries) == 1


def test_a_full_disk_is_a_reason_with_secure_sums_too(monkeypatch):
    secure = pytest.importorskip("secure_federations", reason="needs the extra 'secure'", exc_type=ImportError)
    setting = secure.with_plan("dp_sgd", sites=3, steps=1)
    runs = secure.carried(setting)

    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(secure.InMemory, "keep_round", full)
    runs.exchange()
    assert set(runs.declined) == {"disk"}
    monkeypatch.undo()
    runs.run().check()


def test_a_site_that_cannot_start_says_why_and_repeats_nothing(folder):
    place = folder / "sites" / "00"
    np.savez(place / "data.npz", X=np.full((5, 4), NUMBER), y=np.zeros(5))
    line = json.loads(command("site", place, "--log", "json", code=2))
    assert (line["event"], line["reason"]) == ("end", "data")
    assert "another number of rows than the 8 agreed on" in line["words"]
    assert "holds 5 rows" in command("site", place, code=2)  # for its people alone


def test_the_superlink_says_whom_it_turned_away_without_their_keys():
    lines = []
    note_who_is_turned_away(Log("superlink", lambda line: lines.append(json.loads(line)), as_json=True))
    flower = logging.getLogger("flwr")
    level = flower.level
    flower.setLevel(logging.ERROR)  # a simulation in this process has silenced it
    try:
        for why in (
            "No SuperNode found with the given public key.",
            "SuperNode with node ID 7 could not be activated.",
        ):
            flower.error(
                f"[ApiError:2004] Attempted to register SuperNode with public key: b'{TEXT}', exception: {why}"
            )
        flower.error(TEXT)
    finally:
        flower.removeHandler(flower.handlers[-1])
        flower.setLevel(level)
    assert [line["reason"] for line in lines] == ["unknown key", "duplicate"]
    assert all(map(silent, map(json.dumps, lines)))


# --- the server


def watched(server, place, **options):
    present = Present()
    seen = Watched(server, place, clock=noon, **options)
    seen.ask(present)
    return seen, present


class Falling:
    """A federation whose rounds are watched, and that a test lets fail as it likes."""

    def __init__(self, plan, data, place, **options):
        self.there = Small(plan, data, place, seed=None)
        self.seen, self.present = watched(self.there.server, place / "server", **options)

    def attempt(self, reply_of=lambda site, reply: reply, available=range(SITES)):
        """One opening of the round; whether it was closed."""
        for site, request in self.seen.open_round(available).items():
            reply = reply_of(site, self.there.client(site).answer(request))
            if reply is not None:
                self.seen.receive(site, reply)
        if self.seen.has_quorum:
            self.seen.close_round()
            return True
        self.seen.leave_round()
        return False


def told(place):
    return [(one["event"], one["round"], one.get("site"), one["reason"]) for one in events(place / "server")]


def test_who_declined_was_silent_or_absent_is_told_once_and_stands_in_one_file(tmp_path):
    data = problem()
    run = Falling(local(data, rounds=3), data, tmp_path)
    run.present.others[5] = 77
    (tmp_path / "1" / "ledger.jsonl").unlink()

    def lost(site, reply):
        return None if site == 2 else reply[:-1] if site == 3 else reply

    for _ in range(2):  # what was told once is no news
        assert not run.attempt(lost, available=[0, 1, 2, 3])
    assert told(tmp_path) == [
        ("absent", 1, 4, "absent"),
        ("absent", 1, 5, "another run"),
        ("declined", 1, 1, "ledger"),
        ("refused", 1, 3, "signature or form"),
        ("silent", 1, 2, "no answer"),
        ("again", 1, None, "quorum"),
    ]
    record = standing(tmp_path / "server")
    assert (record["round"], record["status"], record["alive"], record["attempt"]) == (1, "running", True, 2)
    assert record["answered"] == [0]
    assert record["trouble"] == {
        "1": "ledger", "2": "no answer", "3": "signature or form", "4": "absent", "5": "another run",
    }  # fmt: skip


def test_the_status_of_a_server_names_them(folder):
    from hushpoint.federated.keys import new_key

    assert "No run was begun." in command("status", folder)
    seen, present = watched(server_of(folder), folder / "run")
    present.others[2] = 7
    requests = seen.open_round([0, 1])
    seen.receive(0, site_log(folder)[0](requests[0]))
    seen.receive(1, wire.encode(wire.Reply("x", 1, 1, "p", "declined", "limit"), new_key()))
    assert seen.waiting == set()  # and what is due is written when somebody looks
    seen._written = 0.0
    assert seen.waiting == set()
    said = command("status", folder)
    assert f"Run {seen.run}: running, at work. Round 1." in said
    assert "Answered: 0. Waited for: nobody." in said
    assert "Site 1: signature or form (" in said
    assert f"Site 2: another run ({WORDS['another run']})." in said
    assert "Model: none yet" in said
    record = json.loads(command("status", folder, "--json"))
    assert (record["status"], record["at_work"], record["answered"], record["model"]) == ("running", True, [0], None)
    place = folder / "run" / STANDING
    place.write_text(json.dumps({**json.loads(place.read_text()), "process": 2**22 + 1}))
    assert "nobody is at work on it" in command("status", folder)


def test_rounds_and_the_end_are_told(tmp_path):
    data = problem()
    run = Falling(anchored(data, rounds=2), data, tmp_path)
    assert run.attempt()
    assert run.attempt()
    run.seen.end("finished")
    first, second, end = events(tmp_path / "server")
    assert (first["event"], first["round"], first["answered"]) == ("round", 1, list(range(SITES)))
    assert second["words"] == "6 of 6 sites have answered"
    assert (end["event"], end["reason"]) == ("end", "finished")
    assert not any("second" in key or "objective" in key for key in first)  # how long it took tells of who worked
    assert standing(tmp_path / "server")["last_round"] == {"round": 2, "at": "2026-01-01T12:00:00Z", "answered": 6}


def test_a_secret_sample_is_not_in_the_events(tmp_path):
    data = problem()
    plan = hp.methods.dp_sgd(data, 3, 0.3, sample_prob=0.5, noise_std=0.5)
    run = Falling(plan, data, tmp_path, discreet=True)
    run.attempt(lambda site, reply: reply[:-1])
    run.attempt()
    for one in events(tmp_path / "server"):
        assert not {"site", "answered", "bytes_down", "bytes_up"} & one.keys()
        assert "site " not in one["words"].replace("a site: ", "")


def test_a_round_with_secure_sums_that_is_given_up_is_told(tmp_path):
    secure = pytest.importorskip("secure_federations", reason="needs the extra 'secure'", exc_type=ImportError)
    runs = secure.carried(secure.with_plan("dp_sgd", sites=3, steps=2))
    seen, _ = watched(runs.server, tmp_path)
    silent_one = {1}
    for _ in range(40):
        if seen.finished:
            break
        for site, request in seen.open_round(range(3)).items():
            if "masked" in seen.exchange and site in silent_one:
                continue
            seen.receive(site, runs.sites[site].answer(request))
        if seen.has_quorum:
            seen.close_round()
        else:
            silent_one.clear()
            seen.leave_round()
    seen.end(seen.status)
    kinds = [(one["event"], one["round"]) for one in events(tmp_path)]
    assert kinds == [("silent", 1), ("given up", 1), ("round", 2), ("round", 3), ("end", None)]


def test_a_full_disk_at_the_server_ends_no_round_for_the_sake_of_a_log(tmp_path):
    data = problem()
    run = Falling(local(data, rounds=2), data, tmp_path)
    run.seen._place = tmp_path / "nowhere"
    assert run.attempt()


# --- metrics


@pytest.fixture
def ran(tmp_path):
    """The folder of a run with two rounds of six sites."""
    data = problem()
    run = Falling(local(data, rounds=2), data, tmp_path)
    run.attempt()
    run.attempt()
    return tmp_path / "server"


def numbers(text):
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[0] != "#"}


def test_metrics_are_those_of_the_run_and_nothing_else(ran):
    log = [json.loads(line) for line in (ran / "rounds.jsonl").read_text().splitlines()]
    age = (ran / "rounds.jsonl").stat().st_mtime + 61.5
    shown = health.metrics(ran, SITES, 1e9, clock=lambda: age)
    assert numbers(shown) == {
        "hushpoint_sites": 6,
        "hushpoint_certificate_expires_timestamp_seconds": 1e9,
        'hushpoint_run_status{status="finished"}': 1,
        "hushpoint_rounds_total": 2,
        "hushpoint_rounds_planned": 2,
        "hushpoint_sites_answered": 6,
        'hushpoint_bytes_total{direction="down"}': sum(one["bytes_down"] for one in log),
        'hushpoint_bytes_total{direction="up"}': sum(one["bytes_up"] for one in log),
        "hushpoint_last_round_age_seconds": 61,
    }
    for name in {line.split("{")[0].split(" ")[0] for line in shown.splitlines() if line[0] != "#"}:
        assert f"# TYPE {name} " in shown
    # As long as nothing says that the sample is no secret, nobody is told how many answered.
    nothing = {"hushpoint_sites": 6, 'hushpoint_run_status{status="not begun"}': 1}
    assert numbers(health.metrics(ran / "nowhere", 6)) == nothing
    (ran / "run.json").unlink()
    assert numbers(health.metrics(ran, 6)) == nothing


def test_the_page_of_operations_has_every_metric_and_every_trouble(ran):
    # a metric that was renamed, a reason that nobody who reads a log finds
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    shown = health.metrics(ran, SITES, 1e9)
    secure = json.loads((ran / "run.json").read_text()) | {"failed_rounds": 1}
    (ran / "run.json").write_text(json.dumps(secure))
    names = {line.split()[2] for line in (shown + health.metrics(ran, SITES)).splitlines() if line.startswith("# TYPE")}
    assert len(names) == 9
    assert names == set(re.findall(r"hushpoint_\w+", page))
    told = set(re.findall(r"`([\w -]+)`", page.split("| reason |")[1].split("\n\n")[0]))
    assert {*CODES, *WORDS} - told == {"refused", "failed", "closed", "stranger", "model"}


def test_where_the_sample_is_secret_metrics_say_nothing_of_it(tmp_path):
    data = problem()
    run = Falling(hp.methods.dp_sgd(data, 3, 0.3, sample_prob=0.5, noise_std=0.5), data, tmp_path, discreet=True)
    run.attempt()
    shown = numbers(health.metrics(tmp_path / "server", SITES))
    assert shown == {"hushpoint_sites": 6, 'hushpoint_run_status{status="running"}': 1}


def fetched(server, page):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_address[1]}{page}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_the_endpoint_has_two_pages_and_repeats_no_error():
    wrong = []

    def broken():
        raise ValueError(TEXT)

    server = health.serve(("127.0.0.1", 0), lambda: "a 1\n", lambda: wrong)
    other = health.serve(("127.0.0.1", 0), broken, broken)
    try:
        assert fetched(server, "/metrics") == (200, "a 1\n")
        assert fetched(server, "/healthz") == (200, "ok\n")
        wrong.append("certificate")
        assert fetched(server, "/healthz") == (503, "certificate\n")
        assert fetched(server, "/run/server.npz")[0] == fetched(server, "/../keys/signing.key")[0] == 404
        assert fetched(other, "/metrics") == (500, "failed\n")
        with pytest.raises(ValueError, match="where nobody can listen now"):
            health.serve(server.server_address, str, list)
    finally:
        server.shutdown()
        other.shutdown()


def test_it_is_off_unless_it_is_asked_for_and_then_for_this_machine(folder):
    assert health.watch_over(Federation(folder)) is None
    assert health.health_address(9464) == ("127.0.0.1", 9464)
    assert health.health_address("[::1]:80") == ("::1", 80)
    for wrong in (True, 0, 70000, "9464", "host:"):
        with pytest.raises(ValueError, match=r"health in server\.toml"):
            health.health_address(wrong)
    port = free_port()
    with (folder / "server.toml").open("a") as file:
        file.write(f"health = {port}\n")
    server = health.watch_over(Federation(folder))
    try:
        assert server.server_address == ("127.0.0.1", port)
        code, shown = fetched(server, "/metrics")
        assert (code, numbers(shown)["hushpoint_sites"]) == (200, 3)
        assert fetched(server, "/healthz") == (200, "ok\n")
    finally:
        server.shutdown()


# --- no data anywhere


TABLES = (f"x,y,{TEXT}\n1,1,1\n", f"x,y\n{TEXT},{NUMBER}\n", f"{NUMBER},{TEXT}\n1,1\n", f"x,y\n{TEXT}\n")
COLUMN = '[columns.{name}]\nkind = "number"\nlow = 0\nhigh = 1\n'


def test_no_line_no_metric_and_no_check_holds_an_entry_of_the_data(folder, tmp_path, monkeypatch, capfd):
    """Canaries in the data of every site, which fail it in every way that is known; all that is seen is searched."""
    for place, rows in zip(sorted((folder / "sites").iterdir()), (8, 11, 9), strict=True):
        np.savez(place / "data.npz", X=np.full((rows, 4), NUMBER), y=np.full(rows, -NUMBER))
    seen, _ = watched(server_of(folder), folder / "run")
    requests = seen.open_round(range(3))

    def quoting(self, asked, base):
        raise ValueError(f"{self._data} {NUMBER} {TEXT}")

    whole, failing = site_log(folder, 0), site_log(folder, 1)
    seen.receive(0, whole[0](requests[0]))
    monkeypatch.setattr(Client, "_move", quoting)
    seen.receive(1, failing[0](requests[1]))
    monkeypatch.undo()
    seen.leave_round()
    assert (whole[1][0]["event"], failing[1][0]["reason"]) == ("answered", "failed")
    shown = [json.dumps(line) for line in (*whole[1], *failing[1])]

    (tmp_path / "schema.toml").write_text('target = "y"\n' + "".join(COLUMN.format(name=name) for name in "xy"))
    tables = tmp_path / "tables"
    command("init", tables, "--local-noise", "--rows", 1, "--rows", 1, "--schema", tmp_path / "schema.toml")
    place = tables / "sites" / "01"
    for table in TABLES:
        (place / "data.csv").write_text(table)
        shown.append(command("check", place, "--offline", code=1))
        shown.append(command("check", place, "--offline", "--json", code=1))
        shown.append(command("site", place, "--log", "json", code=2))
        assert "table" in shown[-1] or "cells of" in shown[-1]
    (place / "data.csv").write_text(TABLES[0])
    assert TEXT in command("site", place, code=2)  # what its own people are told; so there is something to be found

    shown += [command("status", folder), command("status", folder, "--json"), command("check", folder)]
    for number in range(2):
        here = folder / "sites" / f"{number:02d}"
        shown += [command("status", here), command("status", here, "--json"), command("check", here, "--offline")]
        shown.append((here / "node" / "last.json").read_text())
    shown += [health.metrics(folder / "run", 3), *map(json.dumps, events(folder / "run"))]
    shown += [(folder / "run" / STANDING).read_text(), *capfd.readouterr()]
    assert len(shown) > 30
    assert [text for text in shown if not silent(text)] == []


# --- units of systemd


def test_init_writes_units_that_systemd_accepts(tmp_path):
    place = tmp_path / "a b%"
    command("init", place, "--rows", 3, "--rows", 2, "--features", 2)
    server, site = place / "systemd" / SERVER, place / "systemd" / SITE
    start = next(line for line in server.read_text().splitlines() if line.startswith("ExecStart="))
    assert start.endswith(f'federated superlink "{tmp_path}/a b%%" --log json')
    assert "federated site" in site.read_text()
    assert "UMask=0077" in server.read_text()
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not there")
    for unit in (server, site):
        done = subprocess.run([program, "verify", str(unit)], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
    server.write_text(server.read_text().replace("[Service]", "[Service]\nReadWritePaths=relative"))
    done = subprocess.run([program, "verify", str(server)], capture_output=True, text=True, timeout=60)
    assert "not absolute" in done.stderr  # it would say so


def test_an_event_has_nothing_of_a_record_that_tells_how_long_anybody_worked():
    # What a record has beside these is a duration, or comes of the model: a new field has to be thought about.
    shown = {"round", "asked", "answered", "declined", "refused", "attempts", "bytes_down", "bytes_up"}
    assert set(RoundRecord.__dataclass_fields__) - shown == {"seconds", "objective", "epsilon"}
