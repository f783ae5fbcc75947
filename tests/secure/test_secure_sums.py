"""A round of secure sums opens the sum of those who are there, to the bit, or nothing."""

import subprocess
import sys

import numpy as np
import pytest
from secure_rounds import Sites, advertised, answer, messages_for, played

from hushpoint.secure import Refused, RoundFailed, Server
from hushpoint.secure.letters import KINDS


@pytest.mark.parametrize(
    ("n", "m", "c"), [(2, 2, 0), (3, 3, 1), (5, 4, 1), (5, 4, 2), (7, 6, 3), (8, 8, 1)], ids=lambda value: str(value)
)
@pytest.mark.parametrize("kind", ["nobody", *KINDS])
def test_a_sum_is_that_of_the_survivors_whoever_vanishes_and_when(n, m, c, kind):
    # a mask that is added where it should be taken; a vanished site's mask left in the sum; a sum of too few
    sites, messages = Sites(n, m, c, seed=n), messages_for(n)
    lost = set() if kind == "nobody" else set(range(n)[-(n - m) :] if n > m else [1])
    absent = {kind: lost}
    if kind in ("keys", "shares", "masked") and n == m and lost:
        with pytest.raises(RoundFailed, match="never opened with another set"):
            played(sites, sites.terms(), messages, absent)
        return
    server = played(sites, sites.terms(), messages, absent)
    if kind == "reveal" and n - len(lost) < sites.agreement.shares:
        with pytest.raises(RoundFailed):
            server.opened()
        return
    opened = server.opened()
    expected = set(range(n)) - (lost if kind in ("keys", "shares", "masked") else set())
    assert opened.survivors == tuple(sorted(expected))
    np.testing.assert_array_equal(opened.total, messages[list(opened.survivors)].sum(axis=0))


def test_random_drop_outs_at_every_exchange():
    # an index into the round's roster taken for a number of the whole roster
    draws, opened = np.random.default_rng(1), 0
    for trial in range(12):
        n = int(draws.integers(5, 10))
        sites, messages = Sites(n, n // 2 + 2, 1, seed=trial), messages_for(n, seed=trial)
        absent = {kind: set(draws.choice(n, size=draws.integers(0, 2), replace=False).tolist()) for kind in KINDS}
        try:
            server = played(sites, sites.terms(), messages, absent)
            found = server.opened()
        except RoundFailed:
            assert len(set().union(*absent.values())) > n - sites.agreement.survivors
            continue
        opened += 1
        gone = absent["keys"] | absent["shares"] | absent["masked"]
        assert set(found.survivors) == set(range(n)) - gone
        np.testing.assert_array_equal(found.total, messages[list(found.survivors)].sum(axis=0))
    assert opened >= 6


def test_where_nobody_may_be_missing_four_exchanges_are_enough():
    # survivors asked to sign what is settled already: a fifth exchange in every round of the default
    exchanges = {}
    for n, m in ((5, 5), (5, 4)):
        sites, count = Sites(n, m), 1
        server = advertised(sites, sites.terms())
        messages = messages_for(n)
        while server.kind != "reveal":
            count += 1
            for k, request in server.requests().items():
                server.take(answer(sites.sites[k], server.kind, request, messages[k]))
        np.testing.assert_array_equal(server.opened().total, messages.sum(axis=0))
        exchanges[m] = count
    assert exchanges == {5: 4, 4: 5}


def test_rounds_follow_each_other_with_fresh_keys_and_the_same_randomness_gives_the_same_bytes():
    sites, again, messages = Sites(4, 3), Sites(4, 3), messages_for(4)
    letters = []
    for number in (1, 2, 7):
        first, second = (played(each, each.terms(number), messages) for each in (sites, again))
        assert first.to_bytes() == second.to_bytes()
        np.testing.assert_array_equal(first.opened().total, messages.sum(axis=0))
        letters.append(first.to_bytes())
    assert len(set(letters)) == 3


def test_a_server_goes_on_from_the_state_it_kept_at_every_exchange():
    # kill -9 of the server after each write: letters that came later are sent again, the same bytes
    sites, messages = Sites(5, 4), messages_for(5)
    terms, states = sites.terms(), []
    server = Server(terms, states.append)
    for site in sites.sites:
        server.take(site.advertise(terms))
    while server.kind != "reveal":
        server.requests()
        server = Server.restored(states[-1], terms, states.append)
        for k, request in server.pending().items():
            if server.kind == "masked" and k == 2:
                continue
            answer(sites.sites[k], server.kind, request, messages[k])  # lost with the server
            assert k in server.waiting
            server.take(answer(sites.sites[k], server.kind, request, messages[k]))
    assert len(states) == 4
    server = Server.restored(server.to_bytes(), terms)
    np.testing.assert_array_equal(server.opened().total, messages[[0, 1, 3, 4]].sum(axis=0))
    with pytest.raises(ValueError, match="another round"):
        Server.restored(states[-1], sites.terms(2))


def test_a_site_that_lies_in_its_last_letter_is_left_out():
    # a forged share that spoils the sum without a word
    sites, messages = Sites(6, 5, 1, seed=3), messages_for(6)
    server = played(sites, sites.terms(), messages, {"masked": {5}})
    good = server.opened()
    shares = server._shares[1]
    server._shares[1] = [bytes(33)] * len(shares)
    np.testing.assert_array_equal(server.opened().total, good.total)
    for k in (0, 2):
        server._shares[k] = [bytes(33)] * len(shares)
    with pytest.raises(RoundFailed, match="fit no key"):
        server.opened()


def test_the_server_counts_a_site_once_and_takes_no_letter_out_of_turn():
    sites = Sites(4, 3)
    terms = sites.terms()
    server = advertised(sites, terms, {3})
    letter = sites.sites[0].advertise(terms)
    assert server.take(letter) == 0
    assert server.waiting == (3,)
    with pytest.raises(Refused, match="two different"):
        server.take(sites.site(0).advertise(terms))  # same signing key, other fresh keys
    requests = server.requests()
    with pytest.raises(Refused):
        server.take(sites.sites[3].advertise(terms))  # too late
    shares = sites.sites[0].share(requests[0])
    assert server.take(shares) == 0
    with pytest.raises(ValueError, match="not at its end"):
        server.opened()
    with pytest.raises(RoundFailed):
        server.requests()
    for k in (1, 2):
        server.take(sites.sites[k].share(requests[k]))
    assert server.requests().keys() == {0, 1, 2}
    with pytest.raises(Refused):
        server.take(shares)


def test_what_needs_no_cryptography_works_without_it():
    # the core pulls in an optional package, or its absence is a traceback of imports
    code = (
        "import sys; sys.modules['cryptography'] = None\n"
        "import hushpoint, hushpoint.secure as s\n"
        "s.Encoding, s.Agreement, s.calibrated, s.SecureClaim\n"
        "try: s.Site\n"
        "except ValueError as e: assert \"pip install 'hushpoint[secure]'\" in str(e)\n"
        "else: raise SystemExit('no error')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
