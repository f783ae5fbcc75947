"""What is looked at before anything is spent: each fault is found, in words that repeat nothing of the data."""

import errno
import json
import os
import re
import shutil
import socket
import ssl
import struct
import threading
from collections import namedtuple
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import numpy as np
import pytest
from deployment import command, federation, free_port
from test_federated_commands import SCHEMA, change

pytest.importorskip("cryptography", reason="needs the extra 'federated'")
pytest.importorskip("flwr", reason="Flower is not installed")

from test_secure_commands import agreed, arrays

from hushpoint.federated import SiteStore, check, keys, reach
from hushpoint.federated.check_server import check_server
from hushpoint.federated.check_site import check_site
from hushpoint.federated.folder import Federation, Site
from hushpoint.federated.ledger import Participation
from hushpoint.federated.node import NotAdmitted, SiteNode
from hushpoint.federated.reach import Reached, Trouble

SITE = ["settings", "versions", "keys", "agreement", "ledger", "data", "disk", "certificate", "server", "clock"]
SERVER = ["settings", "versions", "keys", "roster", "agreement", "run", "disk", "certificate", "clock"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A federation of each kind, whole: one with noise at the sites and tables, one with secure sums and arrays."""
    place = tmp_path_factory.mktemp("made")
    (place / "schema.toml").write_text(SCHEMA)
    address = f"127.0.0.1:{free_port()}"
    options = ("--rows", 3, "--rows", 2, "--schema", place / "schema.toml", "--address", address)
    command("init", place / "local", "--local-noise", *options)
    for site, table in enumerate(("age,ward,sick\n30,a,no\n70,b,yes\n50,c,no\n", "age,ward,sick\n20,a,no\n25,b,no\n")):
        (place / "local" / "sites" / f"{site:02d}" / "data.csv").write_text(table)
    command("keys", place / "local", "--for-sites")
    agreed(arrays(place / "secure"))
    return place


@pytest.fixture(params=["local", "secure"])
def whole(made, tmp_path, request):
    """A copy of one of them."""
    return shutil.copytree(made / request.param, tmp_path / request.param)


@pytest.fixture
def local(made, tmp_path):
    return shutil.copytree(made / "local", tmp_path / "local")


@pytest.fixture
def secure(made, tmp_path):
    return shutil.copytree(made / "secure", tmp_path / "secure")


def site_of(folder, number=0):
    return Site(folder / "sites" / f"{number:02d}")


def found(lines):
    """What is wrong, by line."""
    return {line.what: f"{line.words}. {line.remedy}" for line in lines if line.state == "problem"}


def test_nothing_is_in_the_way_of_what_is_whole(whole):
    # catches: a check that cries wolf, or that leaves something behind
    place = site_of(whole)
    before = {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()}
    lines = check_site(place, offline=True)
    assert [line.what for line in lines] == SITE
    assert found(lines) == {}
    assert {line.what for line in lines if line.state == "unknown"} == {"server", "clock"}
    lines = check_server(Federation(whole))
    assert [line.what for line in lines] == [*SERVER, "address"]
    assert found(lines) == {}
    assert "is free for the SuperLink" in lines[-1].words
    assert before == {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()}
    assert "Nothing is in the way." in command("check", whole, "--offline")
    assert json.loads(command("check", place.folder, "--offline", "--json"))["problems"] == 0


def test_the_command_says_what_is_wrong_and_ends_with_a_code(local):
    (local / "sites" / "00" / "data.csv").unlink()
    said = command("check", local / "sites" / "00", "--offline", code=1)
    assert "data         problem  there is no file" in said
    assert "-> Put it there" in said
    assert "1 to put right." in said
    record = json.loads(command("check", local / "sites" / "00", "--offline", "--json", code=1))
    assert record["problems"] == 1
    assert [line["what"] for line in record["lines"] if line["state"] == "problem"] == ["data"]
    assert "neither site.toml nor federation.toml" in command("check", local / "keys", code=2)


# --- faults of a site


def _ledger_behind(place):
    """As after an old copy was restored: the state was made after a line that the ledger has not."""
    store = SiteStore(place.folder)
    before = (place.folder / "ledger.jsonl").read_bytes()
    ledger = store.record(store.ledger(), Participation("x", 1, "p", {}))
    from hushpoint.federated.ledger import SiteState
    from hushpoint.federated.terms import plan_digest

    nothing = np.zeros(1)
    store.save(SiteState(plan_digest(place.plan()), 2, "p", nothing, nothing, nothing, ledger.checks[-1]))
    (place.folder / "ledger.jsonl").write_bytes(before)


def _other_key(place):
    (place.folder / "site.pub").unlink()
    keys.save_public(place.folder / "site.pub", keys.new_key().public_key())


def _append(name, text):
    return lambda place: (place.folder / name).write_text((place.folder / name).read_text() + text)


def _write(name, text):
    return lambda place: (place.folder / name).write_text(text)


def _remove(name):
    return lambda place: (place.folder / name).unlink()


@pytest.mark.parametrize(
    ("break_it", "what", "words"),
    [
        (_remove("data.csv"), "data", "there is no file"),
        (_append("data.csv", "41,a,yes\n"), "data", "another number of rows than the 3 agreed on"),
        (_append("data.csv", "41,a\n"), "data", "cannot be read as a table"),
        (_write("data.csv", "age,sick\n4711,no\n"), "data", "lacks 'ward'"),
        (_write("data.csv", "age,ward,sick,name\n30,a,no,4711\n"), "data", "columns that the schema does not declare"),
        (_write("data.csv", "age,ward,sick\n30,4711,no\n70,b,maybe\n50,c,no\n"), "data", "cells of 'ward', 'sick'"),
        (_write("data.csv", "age,ward,sick\n4711x,a,no\n70,b,no\n50,c,no\n"), "data", "cells of 'age' are not"),
        (lambda place: (place.folder / "data.csv").write_bytes(b"\xff\xfe4711"), "data", "cannot be read as a table"),
        (_remove("plan.json"), "agreement", "cannot be read"),
        (_remove("ledger.jsonl"), "ledger", "is lost"),
        (_append("ledger.jsonl", '{"round": 3}\n'), "ledger", "is lost"),
        (_ledger_behind, "ledger", "is an old copy"),
        (lambda place: os.chmod(place.folder / "site.key", 0o640), "keys", "site.key can be read by others"),
        (_remove("site.key"), "keys", "there is no site.key"),
        (_other_key, "keys", "site.pub is not of site.key"),
        (_remove("server.pub"), "keys", "holds no key"),
        (_append("site.toml", '\nwindow = "noon"\n'), "settings", "window is 'noon'"),
        (_append("site.toml", "\n[testing]\nseed = 3\n"), "settings", "anyone can compute the noise"),
        (_remove("ca.crt"), "certificate", "holds no certificate"),
    ],
)
def test_a_fault_of_a_site_is_named_with_its_remedy(local, break_it, what, words):
    place = site_of(local)
    break_it(place)
    wrong = found(check_site(place, offline=True))
    assert words in wrong[what]
    assert wrong[what].rstrip(". ").count(".") >= 1  # a remedy comes with it
    assert not any("4711" in said or "41," in said for said in wrong.values())


@pytest.mark.parametrize(
    ("break_it", "what", "words"),
    [
        (lambda place: os.chmod(place.folder / "sums.key", 0o644), "keys", "sums.key can be read by others"),
        (_remove("accepted.json"), "agreement", "nobody has accepted it"),
        (_remove("covenant.json"), "agreement", "covenant.json"),
        (_write("sums.key", "ab" * 32), "agreement", "another key for site 0"),
        (
            lambda place: np.savez(place.folder / "data.npz", X=np.full((40, 3), 4711.0), y=np.zeros(40)),
            "data",
            "no NumPy data with 4 features",
        ),
        (
            lambda place: np.savez(place.folder / "data.npz", X=np.full((39, 4), 4711.0), y=np.zeros(39)),
            "data",
            "than the 40 agreed on",
        ),
        (
            lambda place: np.savez(place.folder / "data.npz", X=np.full((40, 4), np.nan), y=np.zeros(40)),
            "data",
            "cannot be used as the agreement says",
        ),
        (_write("data.npz", "4711"), "data", "no NumPy data"),
    ],
)
def test_a_fault_of_a_site_with_secure_sums_is_named_with_its_remedy(secure, break_it, what, words):
    place = site_of(secure)
    break_it(place)
    wrong = found(check_site(place, offline=True))
    assert words in wrong[what]
    assert not any("4711" in said or "39" in said for said in wrong.values())


def test_an_old_ledger_beside_secrets_of_a_later_round_is_found(secure):
    from hushpoint.federated.secure.store import OpenRound, SecureStore

    place = site_of(secure)
    store = SecureStore(place.store())
    store.keep_round(OpenRound("run", b"", b"", place.store().ledger().checks[-1]))
    assert "ledger" not in found(check_site(place, offline=True))
    store.keep_round(OpenRound("run", b"", b"", "another line"))
    assert "is an old copy" in found(check_site(place, offline=True))["ledger"]


# --- faults of a server


def _same_key_twice(folder):
    shutil.copy(folder / "roster" / "00.pub", folder / "roster" / "01.pub")


def _another_run(folder):
    (folder / "run").mkdir()
    (folder / "run" / "run.json").write_text('{"run": "another", "status": "running"}')


def _other_names(folder):
    for name in ("server.key", "server.crt", "ca.crt"):
        (folder / "keys" / name).unlink()
    keys.make_certificates(folder / "keys", ["elsewhere.example.org"])


@pytest.mark.parametrize(
    ("break_it", "what", "words"),
    [
        (lambda folder: os.chmod(folder / "keys" / "signing.key", 0o604), "keys", "signing.key can be read by others"),
        (lambda folder: (folder / "keys" / "server.key").unlink(), "keys", "there is no server.key"),
        (_other_names, "keys", "server.crt is not for '127.0.0.1'"),
        (lambda folder: (folder / "roster" / "01.pub").unlink(), "roster", "1"),
        (_same_key_twice, "roster", "two sites have the same key"),
        (lambda folder: change(folder / "schema.toml", "high = 100", "high = 90"), "agreement", "has changed since"),
        (lambda folder: (folder / "sites/01/plan.json").unlink(), "agreement", "plan.json"),
        (lambda folder: change(folder / "server.toml", "# health = 9464", 'health = "here"'), "settings", "health"),
        (
            lambda folder: change(folder / "server.toml", "resend_after = 20", "resend_after = 999"),
            "settings",
            "longer",
        ),
        (lambda folder: change(folder / "server.toml", "127.0.0.1:", "192.0.2.7:"), "address", "192.0.2.7"),
        (lambda folder: change(folder / "server.toml", "# validation", "validation"), "settings", "there is no file"),
        (_another_run, "run", "holds a run of another agreement"),
    ],
)
def test_a_fault_of_a_server_is_named(local, monkeypatch, break_it, what, words):
    monkeypatch.setattr(reach.socket, "create_connection", _refused)  # no packet leaves for addresses of examples
    break_it(local)
    assert words in found(check_server(Federation(local)))[what]


def test_another_plan_in_the_folder_of_a_site_is_found(local, tmp_path):
    other = federation(tmp_path / "other", with_keys=False)
    shutil.copy(other / "plan.json", local / "sites" / "01" / "plan.json")
    assert "01" in found(check_server(Federation(local)))["agreement"]


def test_a_changed_roster_is_another_covenant(secure):
    change(secure / "federation.toml", "epsilon = 20.0", "epsilon = 19.0")
    assert "has changed since covenant.json was made" in found(check_server(Federation(secure)))["agreement"]


# --- disks, dates, clocks


def test_a_full_disk_is_found_before_it_matters(whole, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(check.shutil, "disk_usage", lambda place: usage(10**12, 10**12 - 10**6, 10**6))
    for lines in (check_site(site_of(whole), offline=True), check_server(Federation(whole), offline=True)):
        assert "less than 100 MB left" in found(lines)["disk"]
    monkeypatch.undo()

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert "No space left" in found(check_site(site_of(whole), offline=True))["disk"]
    assert not list(whole.rglob(".check.*"))


@pytest.mark.parametrize(
    ("later", "words"),
    [
        (timedelta(days=400), "expired on"),
        (timedelta(days=360), "expires on"),
        (timedelta(days=-1), "is valid from"),
    ],
)
def test_certificates_are_looked_at_by_the_clock(whole, later, words):
    def clock():
        return datetime.now(UTC) + later

    for lines in (
        check_site(site_of(whole), offline=True, clock=clock),
        check_server(Federation(whole), offline=True, clock=clock),
    ):
        assert words in found(lines)["certificate"]
        assert ("clock" in found(lines)) is (later < timedelta(0))  # what was written here is of the future


# --- the way to the server


class Listener:
    """A server on loopback that answers whatever it is asked with one status, by a clock of its own."""

    def __init__(self, folder, status="403 Forbidden", late=timedelta(0), greet=None):
        self.folder, self.status, self.late, self.greet = folder, status, late, greet
        self.door = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.door.getsockname()[1]}"
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(folder / "server.crt", folder / "server.key")
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                line, _ = self.door.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(line,), daemon=True).start()

    def _answer(self, line):
        try:
            if self.greet is not None:
                self.greet(line)
                return
            with self.context.wrap_socket(line, server_side=True) as secret:
                secret.recv(65536)
                date = format_datetime(datetime.now(UTC) - self.late, usegmt=True)
                secret.sendall(f"HTTP/1.1 {self.status}\r\ndate: {date}\r\ncontent-length: 0\r\n\r\n".encode())
        except OSError:
            pass


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    place = tmp_path_factory.mktemp("certificates")
    keys.make_certificates(place, ["127.0.0.1"])
    return place


@contextmanager
def listening(folder, **options):
    there = Listener(folder, **options)
    try:
        yield there
    finally:
        there.door.shutdown(socket.SHUT_RDWR)  # which wakes who waits at it
        there.door.close()


@pytest.mark.parametrize(
    ("late", "words"),
    [
        (0, None),
        (200, "s ahead of the server's"),  # Flower admits nobody from the future
        (-200, None),
        (-400, "s behind the server's"),
    ],
)
def test_clocks_that_differ_too_much_are_found(certificates, late, words):
    with listening(certificates, late=timedelta(seconds=late)) as there:
        seen = reach.reach(there.address, certificates / "ca.crt")
    if words is None:
        assert isinstance(seen, Reached)
        assert abs(seen.ahead - late) <= 3
    else:
        assert seen.code == "clock"
        told = re.fullmatch(rf"this machine's clock is (\d+) {words}", seen.words)
        assert abs(int(told[1]) - abs(late)) <= 3


def test_a_certificate_that_is_foreign_expired_or_of_another_name_is_found(certificates, tmp_path, monkeypatch):
    def seen(folder, authority):
        with listening(folder) as there:
            return reach.reach(there.address, authority / "ca.crt")

    for name in ("other", "old", "new", "named"):
        (tmp_path / name).mkdir()
    keys.make_certificates(tmp_path / "other", ["127.0.0.1"])
    assert "ca.crt did not sign" in seen(certificates, tmp_path / "other").words
    keys.make_certificates(tmp_path / "named", ["federation.example.org"])
    assert "not for this address" in seen(tmp_path / "named", tmp_path / "named").words
    for name, shift, words in (("old", -400, "has expired"), ("new", 3, "not valid yet")):
        clock = namedtuple("clock", "now")(lambda zone, shift=shift: datetime.now(zone) + timedelta(days=shift))
        monkeypatch.setattr(keys, "datetime", clock)
        keys.make_certificates(tmp_path / name, ["127.0.0.1"])
        monkeypatch.undo()
        trouble = seen(tmp_path / name, tmp_path / name)
        assert (trouble.code, words in trouble.words) == ("certificate", True)


def _refused(*address, **options):
    raise ConnectionRefusedError


def _nameless(*address, **options):
    raise socket.gaierror(socket.EAI_NONAME, "")


def _no_way(*address, **options):
    raise OSError(errno.EHOSTUNREACH, "")


def _reset(line):
    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.close()


@pytest.mark.parametrize("hangs_up", [_reset, lambda line: line.recv(65536) and line.close()])
def test_a_proxy_whose_server_is_not_started_is_no_wrong_address(certificates, hangs_up):
    # catches: "no TLS: correct the address" each time that the SuperLink behind a proxy is started again
    with listening(certificates, greet=hangs_up) as there:
        trouble = reach.reach(there.address, certificates / "ca.crt")
    assert (trouble.code, "Is the SuperLink started?" in trouble.remedy) == ("unreachable", True)


def test_a_server_that_is_not_there_is_told_from_one_that_is_another(certificates, monkeypatch):
    authority = certificates / "ca.crt"
    with listening(certificates, greet=lambda line: line.sendall(b"220 mail\r\n") or line.close()) as there:
        assert reach.reach(there.address, authority).code == "no TLS"
    with listening(certificates, greet=lambda line: threading.Event().wait(3.0)) as there:
        assert "does not answer" in reach.reach(there.address, authority, timeout=0.2).words
    assert "nobody listens" in reach.reach(there.address, authority).words  # it is closed by now
    assert reach.reach(there.address, certificates / "server.key").code == "certificate"
    for fault, words in ((_nameless, "no host called 'far.example'"), (_no_way, "no way to far.example:1")):
        monkeypatch.setattr(reach.socket, "create_connection", fault)
        trouble = reach.reach("far.example:1", authority)
        assert isinstance(trouble, Trouble)
        assert trouble.code == "unreachable"
        assert words in trouble.words
        assert trouble.code in reach.CODES


def test_a_site_sees_its_server_and_the_clock_there(local, certificates):
    place = site_of(local)
    shutil.copy(certificates / "ca.crt", place.folder / "ca.crt")
    text, before = (place.folder / "site.toml").read_text(), place.address
    for late, clock in ((0, "ok"), (4000, "problem")):
        with listening(certificates, late=timedelta(seconds=late)) as there:
            (place.folder / "site.toml").write_text(text.replace(before, there.address))
            lines = {line.what: line for line in check_site(place)}
        assert lines["server"].state == "ok"
        assert lines["clock"].state == clock
    lines = {line.what: line for line in check_site(place)}
    assert "nobody listens" in lines["server"].words
    assert lines["clock"].state == "unknown"


@pytest.mark.parametrize(
    ("status", "late", "was_there", "words"),
    [
        ("401 Unauthorized", 3600, False, "clock is 3"),
        ("412 Precondition Failed", 0, False, "its key is not registered there"),
        ("412 Precondition Failed", 0, True, "another process is there as this site"),
    ],
)
def test_a_node_that_is_not_admitted_says_why(certificates, tmp_path, status, late, was_there, words):
    # A copy of a folder that was at work elsewhere takes nobody's place: its first life may not be over.
    if was_there:
        (tmp_path / "node").mkdir()
        (tmp_path / "node" / "number").write_text("7 elsewhere /srv/site")
    said = []
    with listening(certificates, status=status, late=timedelta(seconds=late)) as there:
        node = SiteNode(
            there.address, certificates / "ca.crt", keys.new_key(), bytes, tmp_path, said.append, patience=0.0
        )
        with pytest.raises(NotAdmitted, match=words):
            node.serve()


def test_an_expired_certificate_ends_a_node_with_its_reason(local, tmp_path, monkeypatch):
    clock = namedtuple("clock", "now")(lambda zone: datetime.now(zone) - timedelta(days=400))
    monkeypatch.setattr(keys, "datetime", clock)
    keys.make_certificates(tmp_path, ["127.0.0.1"])
    monkeypatch.undo()
    place = site_of(local)
    shutil.copy(tmp_path / "ca.crt", place.folder / "ca.crt")
    with listening(tmp_path) as there:
        change(place.folder / "site.toml", place.address, there.address)
        lines = command("site", place.folder, "--log", "json", code=2).splitlines()
        assert "has expired" in command("site", place.folder, code=2)
    end = json.loads(lines[-1])
    assert (end["event"], end["reason"]) == ("end", "certificate")


def test_a_node_waits_for_a_server_and_says_what_is_in_the_way(certificates, tmp_path):
    node = SiteNode("127.0.0.1:1", certificates / "ca.crt", keys.new_key(), bytes, tmp_path, lambda words: told(words))
    said = []

    def told(words):
        said.append(words)
        node.stop.set()

    node.serve()
    assert said[0].startswith("unreachable: nobody listens at 127.0.0.1:1")


def test_a_certificate_is_renewed_as_the_page_says(local, tmp_path):
    # catches: a renewal that needs the key that was thrown away, or makes sites believe another server
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    assert "hushpoint federated rotate hospitals\n" in page
    before = {name: (local / "keys" / name).read_bytes() for name in ("server.crt", "signing.key", "ca.crt")}
    shutil.copy(local / "keys" / "ca.crt", tmp_path / "ca.crt")
    assert "Made another certificate of the server" in command("rotate", local)
    assert (local / "keys" / "signing.key").read_bytes() == before["signing.key"]
    assert (local / "keys" / "ca.crt").read_bytes() != before["ca.crt"]
    assert found(check_server(Federation(local))) == {}
    with listening(local / "keys") as there:
        trouble = reach.reach(there.address, tmp_path / "ca.crt")
        assert isinstance(reach.reach(there.address, local / "keys" / "ca.crt"), Reached)
    assert "ca.crt did not sign" in trouble.words
