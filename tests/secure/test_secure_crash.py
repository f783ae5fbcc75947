"""A site that is killed at any write: what left stays what it was, and nothing leaves that is not on the disk."""

import numpy as np
import pytest
from secure_rounds import Sites, advertised, answer, messages_for, played

from hushpoint.secure import Refused, Site
from hushpoint.secure.packing import unpack
from hushpoint.secure.site_state import SiteRound

KINDS = ["keys", "shares", "masked", "survivors", "reveal"]


class Killed(Exception):
    """kill -9 in the middle of a write."""


class Disk:
    """One file; the write of a given number is the last one, done or not."""

    def __init__(self, dies_at=None, done=True):
        self.state, self.writes, self.dies_at, self.done = None, 0, dies_at, done

    def keep(self, state):
        self.writes += 1
        dies = self.writes == self.dies_at
        if not dies or self.done:
            self.state = state
        if dies:
            raise Killed


@pytest.mark.parametrize("done", [True, False], ids=["after", "before"])
@pytest.mark.parametrize("write", range(1, 6))
def test_a_site_killed_at_a_write_goes_on_with_the_same_bytes_or_fresh_ones_that_never_left(write, done):
    # a letter that leaves before it is stored: after the kill another one is made, with the same keys
    sites, messages, disk = Sites(5, 4), messages_for(5), Disk(write, done)
    terms, drawn = sites.terms(), []

    def message():
        drawn.append(1)
        return messages[1]

    def asked(site, kind, request):
        if kind == "keys":
            return site.advertise(terms)
        return site.mask(request, message) if kind == "masked" else answer(site, kind, request, messages[1])

    site = Site(sites.agreement, 1, sites.signing[1], disk.keep, random=sites.random[1])
    server = advertised(sites, terms, {1})
    requests, kills = {1: b""}, 0
    while True:
        kind = server.kind
        try:
            letter = asked(site, kind, requests[1])
        except Killed:
            kills += 1
            with pytest.raises(Refused):  # were the process to live on, it would take no further part
                asked(site, kind, requests[1])
            if disk.state is None:
                site = Site(sites.agreement, 1, sites.signing[1], disk.keep, random=sites.random[1])
            else:
                site = Site.restored(disk.state, sites.agreement, sites.signing[1], disk.keep, random=sites.random[1])
            letter = asked(site, kind, requests[1])
        assert asked(site, kind, requests[1]) == letter
        again = Site.restored(disk.state, sites.agreement, sites.signing[1], disk.keep)
        assert asked(again, kind, requests[1]) == letter  # the next kill finds it on the disk
        server.take(letter)
        for k, request in requests.items():
            if k != 1:
                server.take(answer(sites.sites[k], kind, request, messages[k]))
        if kind == "reveal":
            break
        requests = server.requests()
    assert kills == 1
    assert len(drawn) == (2 if write == 3 and not done else 1)  # each draw is a line in the ledger
    np.testing.assert_array_equal(server.opened().total, messages.sum(axis=0))


@pytest.mark.parametrize("kind", KINDS)
def test_a_site_without_its_rounds_state_takes_no_further_part(kind):
    # keys included: a second pair of keys for the same round, or a second signature
    sites, messages = Sites(5, 4), messages_for(5)
    terms = sites.terms(3)
    last = 3  # from the ledger, whose line is written when the round begins
    if kind == "keys":
        sites.sites[2].advertise(terms)
        with pytest.raises(Refused, match="not above"):
            sites.site(2, last=last).advertise(terms)
        return
    server, requests = played(sites, terms, messages, until=kind)
    lost = sites.site(2, last=last)
    with pytest.raises(Refused, match="no state"):
        answer(lost, kind, requests[2], messages[2])
    with pytest.raises(Refused, match="not above"):
        lost.advertise(terms)
    assert lost.advertise(sites.terms(4))
    assert server.kind == kind


def test_a_copy_from_before_the_last_round_of_the_ledger_is_old():
    sites, messages = Sites(3, 3), messages_for(3)
    played(sites, sites.terms(1), messages)
    old = sites.kept[0][1]
    played(sites, sites.terms(2), messages)
    site = sites.restored(0, old, last=2)
    with pytest.raises(Refused, match="no state"):
        site.share(b"")
    for number in (1, 2):
        with pytest.raises(Refused, match="not above"):
            site.advertise(sites.terms(number))
    assert site.advertise(sites.terms(3))


def test_a_state_is_of_one_agreement_and_one_key():
    sites, others = Sites(3, 3), Sites(3, 3, run="another")
    sites.sites[0].advertise(sites.terms())
    state = sites.kept[0][-1]
    with pytest.raises(ValueError, match="another agreement"):
        others.restored(0, state)
    with pytest.raises(ValueError, match="signing is"):
        Site.restored(state, sites.agreement, sites.signing[1], print)
    for place in range(0, len(state), 37):
        with pytest.raises(Refused):
            sites.restored(0, state[:place])


def test_a_state_is_whole():
    # a field that is lost at a restart, at any exchange
    sites, messages = Sites(5, 4), messages_for(5)
    played(sites, sites.terms(), messages, {"masked": {4}})
    for k in range(4):
        assert len(sites.kept[k]) == 5
        for state in sites.kept[k]:
            assert sites.restored(k, state).to_bytes() == state


def secrets_at(sites, k, number):
    """All 32 and 33 bytes that are secret in the state after so many letters."""
    held = SiteRound.from_bytes(unpack("site", sites.kept[k][number - 1], 4)[3], sites.agreement)
    plain = {held.mask, held.transport, held.seed, held.mixing, *held.opening.values()} - {b""}
    return plain | {share for pair in held.held.values() for share in pair}


def test_secrets_are_erased_as_soon_as_they_are_not_needed():
    # keys or shares that lie on the disk after the round, for whoever comes later
    sites, messages = Sites(5, 4), messages_for(5)
    server = played(sites, sites.terms(), messages, {"masked": {4}})
    known = server.to_bytes()
    ever = set().union(*(secrets_at(sites, 0, number) for number in range(1, 6)))
    assert len(ever) == 4 + 4 + 2 * 5
    assert [len(secrets_at(sites, 0, number)) for number in range(1, 6)] == [4, 2 + 4 + 2, 10, 10, 0]
    for secret in ever:
        assert secret not in sites.kept[0][-1] or secret in known  # shares that were revealed, and no others
    assert b"".join(sorted(ever)) not in known
    sites.sites[4].end()  # a site whose round failed
    assert not any(secret in sites.kept[4][-1] for secret in secrets_at(sites, 4, 2))
    sites.sites[0].advertise(sites.terms(2))
    assert not any(secret in sites.kept[0][-1] for secret in ever)


def test_a_site_prints_no_secret():
    sites = Sites(3, 3)
    sites.sites[0].advertise(sites.terms())
    held = sites.sites[0]._round
    assert held.seed.hex() not in repr(held)
    assert repr(held.seed) not in repr(held) + repr(sites.sites[0])
