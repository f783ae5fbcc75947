"""A site or a server that is killed at any write, or restored from old files: nothing leaves uncounted, or twice."""

from __future__ import annotations

import shutil
from functools import partial

import numpy as np
import pytest
from secure_federations import (
    BUDGET,
    Carrier,
    carried,
    first_question,
    said,
    site_of,
    with_estimator,
    with_plan,
)

from hushpoint.federated.disk import append_line
from hushpoint.federated.in_process import site_store
from hushpoint.federated.secure.outcome import write_model
from hushpoint.federated.secure.record import SecureServerStore
from hushpoint.federated.secure.server import SecureServer
from hushpoint.federated.secure.store import SecureStore
from hushpoint.federated.secure.wire import decode_ask, decode_said

VICTIM = 1


class Killed(BaseException):
    """kill -9 at a write."""


class Deadly:
    """Writes of a store, one of which is the last: not done, half done, or done."""

    def __init__(self, dies_at=None, how="before"):
        self.writes, self.dies_at, self.how = 0, dies_at, how

    def write(self, done, half):
        self.writes += 1
        dies = self.writes == self.dies_at
        if dies and self.how == "half":
            half()
        if not dies or self.how == "after":
            found = done()
        if dies:
            raise Killed
        return found

    def on_site(self, store):
        keep, record = store.keep, store.record

        def half_kept(name, content):
            (store.site.directory / f"{name}.draft").write_bytes(content[: len(content) // 2])

        def half_recorded():
            with (store.site.directory / "ledger.jsonl").open("ab") as file:
                file.write(b'{"at": "2026-')

        store.keep = lambda name, content, secret=False: self.write(
            partial(keep, name, content, secret), partial(half_kept, name, content)
        )
        store.record = lambda ledger, entry: self.write(partial(record, ledger, entry), half_recorded)
        return store

    def on_server(self, store):
        save, log = store.save, store.log

        def half_logged():
            with (store.directory / "rounds.jsonl").open("ab") as file:
                file.write(b'{"answered"')

        store.save = lambda state: self.write(partial(save, state), lambda: None)
        store.log = lambda record: self.write(partial(log, record), half_logged)
        return store


def played(setting, place, deadly, *, at="site", most=200):
    """A run in which one process is killed once; it starts again from its disk, and asks or answers again."""
    carrier = carried(setting, place=place)
    kills = []

    def restarted_site():
        kills.append(1)
        return site_of(setting, VICTIM, SecureStore(site_store(place, VICTIM)), seed=77)  # its noise is fresh

    def answer(site, request):
        try:
            return carrier.sites[site].answer(request)
        except Killed:
            carrier.sites[VICTIM] = restarted_site()
            return carrier.sites[VICTIM].answer(request)

    carrier.answer = answer
    if at == "site":
        deadly.on_site(carrier.sites[VICTIM].store)
    else:
        deadly.on_server(carrier.server.store)
    for _ in range(most):
        if carrier.server.finished:
            break
        try:
            carrier.exchange()
        except Killed:
            kills.append(1)
            carrier.server.store.close()
            carrier.server = SecureServer(setting.covenant, SecureServerStore(place / "run"))
    assert carrier.server.finished
    carrier.server.store.close()
    carrier.check()
    return carrier, len(kills)


def writes_of(setting, place, at):
    """How many there are in a run without kills."""
    deadly = Deadly()
    carrier, kills = played(setting, place, deadly, at=at)
    assert kills == 0
    assert carrier.server.status == "finished"
    return deadly.writes


@pytest.mark.parametrize("how", ["before", "half", "after"])
@pytest.mark.parametrize("survivors", [3, 4], ids=["one may be missing", "all are needed"])
def test_a_site_killed_at_any_write(survivors, how, tmp_path):
    """Two rounds of a method with blocks, four sites. Where nobody may be missing, one round is lost at the most."""
    setting = with_plan("anchored_admm", sites=4, steps=2, survivors=survivors)
    count = writes_of(setting, tmp_path / "plain", "site")
    assert count >= 2 * 6
    for dies_at in range(1, count + 1):
        carrier, kills = played(setting, tmp_path / str(dies_at), Deadly(dies_at, how))
        assert kills == 1
        assert carrier.server.status == "finished"
        assert np.isfinite(carrier.server.found.models).all()
        assert carrier.server.state.failed <= (1 if survivors == 4 else 0)
        assert len(carrier.records) == 2
        used = len(carrier.sites[VICTIM].store.ledger().entries)
        assert used <= 2 + carrier.server.state.failed


@pytest.mark.parametrize("how", ["before", "half", "after"])
def test_a_server_killed_at_any_write(how, tmp_path):
    """It goes on with the exchange that was open. Where only its log was cut, no more is lost than a line of that."""
    setting = with_plan("dp_sgd", sites=3, steps=2)
    count = writes_of(setting, tmp_path / "plain", "server")
    assert count >= 2 * 5
    exact = played(setting, tmp_path / "exact", Deadly(), at="server")[0].server.found.models
    for dies_at in range(1, count + 1):
        carrier, kills = played(setting, tmp_path / str(dies_at), Deadly(dies_at, how), at="server")
        assert kills == 1
        assert carrier.server.status == "finished"
        assert carrier.server.state.failed == 0
        if how != "before":  # a round whose number was not kept has other noise
            assert carrier.server.spent.squared == carrier.sites[0].spent().squared
        if carrier.server.state.rounds == 2:
            np.testing.assert_array_equal(carrier.server.found.models, exact)


def test_a_server_killed_between_the_plans_of_a_training(tmp_path):
    setting = with_estimator("linear", rounds=6)
    count = writes_of(setting, tmp_path / "plain", "server")
    exact = played(setting, tmp_path / "exact", Deadly(), at="server")[0].server.found.models
    for dies_at in range(4, count, 5):
        carrier, kills = played(setting, tmp_path / str(dies_at), Deadly(dies_at, "after"), at="server")
        assert kills == 1
        np.testing.assert_array_equal(carrier.server.found.models, exact)


# --- old copies


class Copies:
    """Copies of a site's folder, one after each exchange."""

    def __init__(self, setting, place, exchanges):
        self.setting, self.place = setting, place
        self.carrier = carried(setting, place=place)
        self.folder = site_store(place, VICTIM).directory
        self.asked, self.kept, self.replies = [], [], []
        self.carrier.answer = self.answer
        for _ in range(exchanges):
            self.carrier.exchange()
            kept = place / f"copy {len(self.kept)}"
            shutil.copytree(self.folder, kept)
            self.kept.append(kept)

    def answer(self, site, request):
        reply = self.carrier.sites[site].answer(request)
        if site == VICTIM:
            self.asked.append(request)
            self.replies.append(reply)
        return reply

    def restored(self, number, *names):
        """The site with some of its files, or all, as they were after an exchange."""
        for path in self.kept[number].iterdir() if not names else [self.kept[number] / name for name in names]:
            shutil.copy(path, self.folder / path.name)
        return site_of(self.setting, VICTIM, SecureStore(site_store(self.place, VICTIM)), seed=99)


KINDS = ["keys", "shares", "masked", "survivors", "reveal"]


@pytest.fixture
def copies(tmp_path):
    """Nine exchanges: one round, and all but the last exchange of the second one."""
    found = Copies(with_plan("anchored_admm", sites=4, steps=3, survivors=3), tmp_path, 9)
    assert [decode_ask(request).kind for request in found.asked] == [*KINDS, *KINDS[:4]]
    return found


def test_an_old_ledger_beside_newer_secrets_is_found_out(copies):
    """Whatever is asked then: the ledger counts as lost."""
    for number in range(7):  # up to the last exchange before the message of round 2
        site = copies.restored(number, "ledger.jsonl")
        assert said(site, "keys", 9, question=first_question(site.covenant).to_bytes()).reason == "old-ledger"
        assert said(site, "reveal", 2).reason == "old-ledger"
    site = copies.restored(8, "ledger.jsonl")
    assert said(site, "keys", 9, question=first_question(site.covenant).to_bytes()).status == "letter"


def test_an_old_ledger_is_found_out_after_the_run_too(tmp_path):
    """The secrets are erased at the end; where the ledger stood is not."""
    copies = Copies(with_plan("dp_sgd", sites=3, steps=3), tmp_path, 4)
    carrier = copies.carrier.run()
    model = write_model(carrier.server, None, tmp_path / "model.json")
    for letters in (carrier.server.farewell(b"the model"), carrier.server.farewell(model)):
        for site, request in letters.items():
            carrier.sites[site].answer(request)
    folder = copies.folder
    assert (folder / "model.json").read_bytes() == model  # and not what is no model of this run
    kept = (folder / "round.secret").read_bytes()
    assert len(kept) < 100
    site = copies.restored(0, "ledger.jsonl")
    assert said(site, "keys", 9, question=first_question(site.covenant).to_bytes()).reason == "old-ledger"


@pytest.mark.parametrize("number", range(9))
def test_old_secrets_send_no_second_letter(copies, number):
    """What was asked since is asked again: the same bytes come, or none, and no line is written."""
    site = copies.restored(number, "round.secret", *(["block.secret"] if number > 1 else []))
    for request, reply in zip(copies.asked, copies.replies, strict=True):
        again = decode_said(site.answer(request))
        assert again.letter in (b"", decode_said(reply).letter), again.kind
    assert [entry.round for entry in site.store.ledger().entries] == [1, 2]


def test_a_site_killed_between_line_and_letter_sends_none(tmp_path):
    """The line counts, and its round is over: nobody can tell it from an old copy of the secrets."""
    copies = Copies(with_plan("dp_sgd", sites=4, steps=3, survivors=3), tmp_path, 2)
    request = copies.carrier.server.open_round(range(4))[VICTIM]
    site = copies.restored(1)
    deadly = Deadly(2, "before")
    deadly.on_site(site.store)
    with pytest.raises(Killed):
        site.answer(request)
    again = copies.restored(1, "public.bin")
    assert [entry.round for entry in again.store.ledger().entries] == [1]
    assert said(again, "masked", 1, payload=decode_ask(request).payload).reason == "over"
    assert [entry.round for entry in again.store.ledger().entries] == [1]
    assert said(again, "keys", 2, question=first_question(again.covenant).to_bytes()).status == "letter"


def test_lines_that_were_cut_off_count_as_a_killed_writers(tmp_path):
    """A ledger with the beginning of a line is that without it."""
    copies = Copies(with_plan("dp_sgd", sites=3, steps=3), tmp_path, 4)
    with (copies.folder / "ledger.jsonl").open("ab") as file:
        file.write(b'{"run"')
    site = site_of(copies.setting, VICTIM, SecureStore(site_store(tmp_path, VICTIM)))
    assert said(site, "keys", 2, question=first_question(site.covenant).to_bytes()).status == "letter"
    append_line(copies.folder / "ledger.jsonl", {"run": "made up"}, "another check")
    assert said(site, "keys", 3, question=first_question(site.covenant).to_bytes()).reason == "ledger"


def test_two_processes_of_one_site(tmp_path):
    setting = with_plan("dp_sgd", sites=3, budget=BUDGET)
    store = SecureStore(site_store(tmp_path, 0))
    site, other = site_of(setting, 0, store), SecureStore(site_store(tmp_path, 0))
    question = first_question(setting.covenant).to_bytes()
    with other.held():
        assert said(site, "keys", 1, question=question).reason == "busy"
    assert said(site, "keys", 1, question=question).status == "letter"


def test_a_server_from_an_old_copy_asks_rounds_that_are_over(tmp_path):
    """Sites say so, and it goes on with the next round that nobody has seen."""
    setting = with_plan("dp_sgd", sites=3, steps=3)
    carrier = carried(setting, place=tmp_path)
    for _ in range(3):
        carrier.exchange()
    shutil.copytree(tmp_path / "run", tmp_path / "old")
    for _ in range(4):
        carrier.exchange()
    carrier.server.store.close()
    shutil.rmtree(tmp_path / "run")
    shutil.copytree(tmp_path / "old", tmp_path / "run")
    again = Carrier(SecureServer(setting.covenant, SecureServerStore(tmp_path / "run")), carrier.sites)
    again.left = carrier.left
    again.run()
    for letters in again.left.values():
        assert len(letters) == 1
    assert again.server.status == "finished"
    assert again.sites[0].spent().squared <= setting.covenant.whole.squared
