"""What a malicious server, colluders and forgers try, and what an honest site answers: nothing.

After each refusal the round goes on as if nothing had happened, where it can, and no second secret is out.
"""

import numpy as np
import pytest
from secure_rounds import POINT, Sites, advertised, answer, messages_for, played

from hushpoint.secure import Agreement, Refused, Roster, RoundFailed, Server, Terms, derivation
from hushpoint.secure.letters import Advert, Present, packed_signatures, survivors_body, verify, written
from hushpoint.secure.masks import Masked
from hushpoint.secure.packing import pack, packed_set, unpack
from hushpoint.secure.primitives import ExchangeKey
from hushpoint.secure.shares import SHARE, Weights

OTHER = b"another".ljust(32)


def letters_of(request):
    return unpack("adverts", request)


def revealed(letter):
    """The shares in a last letter."""
    (joined,) = unpack("shares", unpack("reveal", letter, 3)[1], 1)
    return [joined[k : k + SHARE] for k in range(0, len(joined), SHARE)]


def goes_on(sites, server, requests, messages):
    """The rest of a round, from open requests to the sum."""
    while True:
        for k, request in requests.items():
            server.take(answer(sites.sites[k], server.kind, request, messages[k]))
        if server.kind == "reveal":
            return server.opened()
        requests = server.requests()


# --- the terms of the round


@pytest.mark.parametrize("change", [{"plan": OTHER}, {"point": OTHER}, {"length": 4}, {"number": 2}])
def test_one_site_that_is_given_other_terms_shares_nothing(change):
    # another plan, point or round for one site: the others' keys do not hold for its terms, nor its keys for theirs
    sites = Sites(4, 3)
    terms, other = sites.terms(), sites.terms(**change)
    odd = sites.sites[3].advertise(other)
    server = advertised(sites, terms, {3})
    with pytest.raises(Refused, match="not signed"):
        server.take(odd)
    request = server.requests()[0]
    with pytest.raises(Refused, match="not signed"):
        sites.sites[3].share(pack("adverts", *letters_of(request), odd))
    with pytest.raises(Refused, match="not signed"):
        sites.sites[0].share(pack("adverts", *letters_of(request), odd))
    messages = messages_for(4)
    assert goes_on(sites, server, server.pending(), messages).survivors == (0, 1, 2)


@pytest.mark.parametrize("change", [{"plan": OTHER}, {"point": OTHER}])
def test_a_site_begins_a_round_once(change):
    sites = Sites(3, 3)
    site, terms = sites.sites[0], sites.terms(5)
    first = site.advertise(terms)
    assert site.advertise(terms) == first
    with pytest.raises(Refused, match="another request"):
        site.advertise(sites.terms(5, **change))
    for number in (1, 4):
        with pytest.raises(Refused, match="not above the last one"):
            site.advertise(sites.terms(number))
    site.end()
    with pytest.raises(Refused, match="not above"):
        site.advertise(terms)


def test_a_smaller_roster_or_threshold_is_another_agreement():
    # the server tells one site of fewer sites, of a smaller threshold or of fewer colluders
    sites = Sites(7, 6, 2)
    whole = sites.agreement
    smaller = Roster(whole.roster.sites[:5])
    assert smaller.fingerprint != whole.roster.fingerprint
    others = [
        Agreement("run", smaller, 4, 2),
        Agreement("run", whole.roster, 6, 1),
        Agreement("run", whole.roster, 6, 2, 6),
        Agreement("run", whole.roster, 5, 2),
        Agreement("another run", whole.roster, 6, 2),
    ]
    for other in others:
        assert other.digest != whole.digest
        with pytest.raises(ValueError, match="another agreement"):
            sites.sites[0].advertise(Terms(other, 1, bytes(32), POINT, 3))
    # a round of fewer than m sites of the whole roster
    server = advertised(sites, sites.terms(), {5, 6})
    with pytest.raises(RoundFailed):
        server.requests()
    letters = [sites.sites[k].advertise(sites.terms()) for k in range(5)]
    with pytest.raises(Refused, match="5 sites are in the round"):
        sites.sites[0].share(pack("adverts", *letters))


@pytest.mark.parametrize(
    ("n", "m", "c", "t"), [(5, 3, 1, None), (5, 4, 1, 3), (4, 4, 4, None), (3, 3, 3, None), (5, 5, 1, 6), (4, 2, 0, 2)]
)
def test_numbers_with_which_two_sets_could_be_opened_are_refused(n, m, c, t):
    roster = Roster(tuple((str(k), bytes([k]) * 32) for k in range(n)))
    with pytest.raises(ValueError, match=r"^(survivors|colluders|threshold) is "):
        Agreement("run", roster, m, c, t)


@pytest.mark.parametrize(
    ("n", "c", "t"), [(3, 1, 3), (5, 1, 4), (5, 2, 4), (20, 6, 14), (100, 10, 56), (2, 0, 2), (4, 0, 3)]
)
def test_the_default_threshold_is_the_least_one(n, c, t):
    roster = Roster(tuple((str(k), k.to_bytes(32, "big")) for k in range(n)))
    found = Agreement("run", roster, n, c)
    assert found.threshold == t
    assert found.honest == n - c
    with pytest.raises(ValueError, match="threshold"):
        Agreement("run", roster, n, c, t - 1)


@pytest.mark.parametrize(
    "sites",
    [
        (("a", bytes(32)),),
        (("a", bytes(32)), ("a", b"1" * 32)),
        (("a", bytes(32)), ("b", bytes(32))),
        (("a", bytes(32)), ("b", bytes(31))),
    ],
)
def test_a_roster_has_different_sites_with_keys_of_their_own(sites):
    with pytest.raises(ValueError, match="sites is "):
        Roster(sites)


# --- keys


def keys_in_round(sites, terms):
    server = advertised(sites, terms)
    return server, letters_of(server.requests()[0])


def test_forged_replayed_copied_and_invented_keys_are_refused():
    sites, before = Sites(4, 3), Sites(4, 3, seed=0)
    terms = sites.terms(2)
    old = [site.advertise(sites.terms(1)) for site in before.sites]
    _, letters = keys_in_round(sites, terms)
    victim, others = sites.sites[0], letters[:3]
    forger = sites.signing[3]
    advert = Advert.read(terms, letters[3])
    copied = Advert(3, Advert.read(terms, letters[1]).mask, advert.transport, advert.commitment)
    equal = Advert(3, advert.mask, advert.mask, advert.commitment)
    forgeries = {
        "a replay": old[3],
        "an invented site": written("keys", terms, 4, advert.body, forger),
        "a number far away": written("keys", terms, 2**40, advert.body, forger),
        "in the name of another": written("keys", terms, 1, advert.body, forger),
        "a copied key": written("keys", terms, 3, copied.body, forger),
        "one key for both uses": written("keys", terms, 3, equal.body, forger),
        "another kind": written("reveal", terms, 3, advert.body, forger),
        "a short key": written("keys", terms, 3, pack("advert", b"1", b"2", b"3"), forger),
        "twice": letters[1],
        "a second of one site": written(
            "keys", terms, 1, Advert(1, *[b"4" * 32] * 2, b"5" * 32).body, sites.signing[1]
        ),
    }
    for letter in forgeries.values():
        with pytest.raises(Refused):
            victim.share(pack("adverts", *others, letter))
    with pytest.raises(Refused, match="own keys"):
        victim.share(pack("adverts", *letters[1:]))
    zero = Advert(3, bytes(32), advert.transport, advert.commitment)  # a point of small order: a known shared secret
    low = Advert(3, advert.mask, bytes(32), advert.commitment)
    with pytest.raises(Refused, match="X25519"):
        victim.share(pack("adverts", *others, written("keys", terms, 3, low.body, forger)))
    assert victim.share(pack("adverts", *others, written("keys", terms, 3, zero.body, forger)))


def test_a_mask_key_of_small_order_stops_the_round_before_a_message_leaves():
    sites = Sites(4, 3)
    terms, bad = sites.terms(), sites.signing[3]
    server, letters = keys_in_round(sites, terms)
    advert = Advert.read(terms, letters[3])
    weak = written("keys", terms, 3, Advert(3, bytes(32), advert.transport, advert.commitment).body, bad)
    server = Server(terms)
    for letter in [*letters[:3], weak]:
        server.take(letter)
    for k, request in server.requests().items():
        if k != 3:
            server.take(sites.sites[k].share(request))
    request = server.requests()[0]
    assert sites.sites[0].mask(request, lambda: messages_for(1)[0])  # site 3 did not share: its key is not used
    assert len(sites.kept[0]) == 3


# --- shares


def test_swapped_replayed_and_changed_envelopes_are_refused_and_no_message_leaves():
    sites, messages = Sites(4, 4), messages_for(4)
    server, requests = played(sites, sites.terms(), messages, until="masked")
    packed, joined = unpack("deliveries", requests[0], 2)
    size = len(joined) // 3
    mine = [joined[k * size : (k + 1) * size] for k in range(3)]
    (other,) = (unpack("deliveries", requests[1], 2)[1][:size],)  # from site 0 to site 1

    def unsent():
        pytest.fail("a message was asked for")

    wrong = [
        (packed, mine[1] + mine[0] + mine[2]),
        (packed, other + mine[1] + mine[2]),
        (packed, mine[0] + mine[1]),
        (packed_set([0, 1, 2]), mine[0] + mine[1]),  # fewer sharers than are needed
        (packed_set([1, 2, 3]), joined),
        (packed_set([0, 1, 2, 7]), joined),
        (b"\0\0\0\0" + packed[4:], joined),
    ]
    for each in wrong:
        with pytest.raises(Refused):
            sites.sites[0].mask(pack("deliveries", *each), unsent)
    draws = np.random.default_rng(0)
    for place in [*draws.integers(0, len(joined), 40), 0, size - 1, size - 16]:
        changed = bytearray(joined)
        changed[place] ^= 1 << int(draws.integers(8))
        with pytest.raises(Refused, match="envelope"):
            sites.sites[0].mask(pack("deliveries", packed, bytes(changed)), unsent)
    np.testing.assert_array_equal(goes_on(sites, server, requests, messages).total, messages.sum(axis=0))


def test_shares_of_another_round_do_not_open():
    sites, messages = Sites(3, 3), messages_for(3)
    _, old = played(sites, sites.terms(1), messages, until="masked")
    _, new = played(sites, sites.terms(2), messages, until="masked")
    with pytest.raises(Refused, match="envelope"):
        sites.sites[0].mask(old[0], lambda: messages[0])
    assert sites.sites[0].mask(new[0], lambda: messages[0])


# --- survivors


def at_survivors(n=5, m=4, c=1):
    sites, messages = Sites(n, m, c), messages_for(n)
    server, requests = played(sites, sites.terms(), messages, until="survivors")
    return sites, server, requests, messages


def naming(sites):
    return pack("survivors", packed_set(sites))


def test_a_site_signs_one_set_of_survivors_a_round():
    sites, _, requests, _ = at_survivors()
    site = sites.sites[0]
    for wrong in ([0, 1, 2], [1, 2, 3, 4], [0, 1, 2, 7], [0, 0, 1, 2]):
        with pytest.raises(Refused):
            site.sign(pack("survivors", b"".join(k.to_bytes(2, "big") for k in wrong)))
    signed = site.sign(naming([0, 1, 2, 3]))
    assert site.sign(naming([0, 1, 2, 3])) == signed
    with pytest.raises(Refused, match="another request"):
        site.sign(requests[0])
    fresh = sites.restored(0, sites.kept[0][-1])
    with pytest.raises(Refused, match="another request"):
        fresh.sign(requests[0])


def test_a_set_that_was_signed_with_the_message_cannot_be_replaced():
    sites, messages = Sites(3, 3), messages_for(3)
    server, requests = played(sites, sites.terms(), messages, until="reveal")
    site = sites.sites[0]
    with pytest.raises(Refused):
        site.sign(naming([0, 1]))
    assert site.sign(naming([0, 1, 2]))
    assert goes_on(sites, server, requests, messages).survivors == (0, 1, 2)


def test_a_site_that_did_not_send_its_message_signs_nothing():
    sites, messages = Sites(5, 4), messages_for(5)
    played(sites, sites.terms(), messages, {"masked": {4}}, until="survivors")
    with pytest.raises(Refused, match="'masked' letter"):
        sites.sites[4].sign(naming(range(5)))
    with pytest.raises(Refused, match="no set of survivors"):
        sites.sites[4].reveal(packed_signatures({}))


def signatures_of(sites, server, survivors, signers):
    """Signatures of a set by whoever signs it: a colluder signs anything."""
    body = survivors_body(server._present, server._sharers, survivors)
    letters = {k: written("survivors", server.terms, k, body, sites.signing[k]) for k in signers}
    return {k: unpack("survivors", letter, 3)[2] for k, letter in letters.items()}


def test_nothing_is_revealed_without_enough_signatures_of_the_same_set():
    sites, server, requests, messages = at_survivors()
    site, everyone = sites.sites[0], range(5)
    with pytest.raises(Refused, match="no set"):
        site.reveal(packed_signatures(signatures_of(sites, server, everyone, range(4))))
    for k in everyone:
        server.take(sites.sites[k].sign(requests[k]))
    good = signatures_of(sites, server, everyone, range(4))
    others = signatures_of(sites, server, [0, 1, 2, 3], range(4))
    rounds = Sites(5, 4)
    later, _ = played(rounds, rounds.terms(2), messages, until="survivors")
    wrong = [
        {},
        {k: good[k] for k in range(3)},
        others,
        {**good, 1: others[1]},
        {**good, 1: good[2]},
        {0: good[0], 1: good[1], 2: good[2], 9: good[3]},
        {k: bytes(64) for k in range(4)},
        signatures_of(rounds, later, everyone, range(4)),
    ]
    for each in wrong:
        with pytest.raises(Refused):
            site.reveal(packed_signatures(each))
    twice = pack("signatures", packed_set([0, 1, 2]) + packed_set([2]), b"".join(good[k] for k in (0, 1, 2, 2)))
    with pytest.raises(Refused):
        site.reveal(twice)
    np.testing.assert_array_equal(goes_on(sites, server, server.requests(), messages).total, messages.sum(axis=0))


def test_a_round_is_opened_once_and_one_kind_of_share_leaves():
    # the server first has the sum of all, then names a site as lost and asks for its mask key
    sites, server, requests, _messages = at_survivors()
    for k in range(5):
        server.take(sites.sites[k].sign(requests[k]))
    site, request = sites.sites[0], server.requests()[0]
    letter = site.reveal(request)
    assert site.reveal(request) == letter
    fewer = signatures_of(sites, server, [0, 1, 2, 3], range(4))
    with pytest.raises(Refused, match="another request"):
        site.reveal(packed_signatures(fewer))
    assert len(revealed(letter)) == 5  # one share for each sharer, and no more


@pytest.mark.parametrize("lost", [[], [4]])
def test_a_share_is_of_the_seed_for_survivors_and_of_the_mask_key_for_the_lost(lost):
    sites, messages = Sites(5, 4), messages_for(5)
    server = played(sites, sites.terms(), messages, {"masked": lost})
    keys = {k: Advert.read(server.terms, sites.sites[k].advertise(server.terms)) for k in range(5)}
    weights = Weights([0, 1, 2, 3])
    for k in range(5):
        secret = weights.secret([server._shares[j][k] for j in range(4)])
        if k in lost:
            assert ExchangeKey(secret).public == keys[k].mask
        else:
            assert derivation.commitment(server.terms, k, secret) == keys[k].commitment


def opens_twice(n, m, c, t, twice):
    """Whether a server with c colluders and some sites that sign anything has two sets of signatures for one round."""
    signers = set(range(c + twice))  # these sign whatever they are asked to
    honest = list(range(c + twice, n))
    half = len(honest) // 2
    first, second = set(honest[:half]), set(honest[half:])
    return len(first | signers) >= t and len(second | signers) >= t


@pytest.mark.parametrize(("n", "c"), [(5, 1), (7, 2), (8, 1), (20, 6)])
def test_two_openings_need_more_who_sign_twice_than_were_agreed(n, c):
    # a threshold of half of the sites; a site that went on from an old copy of its state counts as one of the c
    t = Sites(n, n, c).agreement.shares
    assert not opens_twice(n, n, c, t, 0)
    tight = 2 * t == n + c + 1
    assert opens_twice(n, n, c, t, 1) is tight
    assert not opens_twice(n, n, c, Sites(n, n, c + 1).agreement.shares, 1)
    assert opens_twice(n, n, c, t - 1, 0) is (2 * (t - 1) <= n + c)


# --- bytes


def test_a_letter_with_one_changed_bit_is_refused_wherever_it_is():
    # a part of a letter that no signature covers
    sites, messages = Sites(3, 3), messages_for(3)
    terms = sites.terms()
    draws = np.random.default_rng(5)
    server = Server(terms)
    requests = dict.fromkeys(range(3), b"")
    while True:
        for k in requests:
            site, kind = sites.sites[k], server.kind
            letter = site.advertise(terms) if kind == "keys" else answer(site, kind, requests[k], messages[k])
            for place in [0, 5, len(letter) - 1, *draws.integers(0, len(letter), 20).tolist()]:
                changed = bytearray(letter)
                changed[place] ^= 1 << int(draws.integers(8))
                for bad in (bytes(changed), letter[:place], letter + b"\0"):
                    with pytest.raises(Refused):
                        server.take(bad)
            server.take(letter)
        if server.kind == "reveal":
            break
        requests = server.requests()
    np.testing.assert_array_equal(server.opened().total, messages.sum(axis=0))


@pytest.mark.parametrize("kind", ["shares", "masked", "survivors", "reveal"])
def test_a_request_with_changed_bytes_changes_nothing(kind):
    # a site that is left half changed by a request it refuses, or that answers it
    sites, messages = Sites(5, 4), messages_for(5)
    server, requests = played(sites, sites.terms(), messages, until=kind)
    site, draws = sites.sites[2], np.random.default_rng(7)
    before = site.to_bytes()
    for _ in range(15):
        changed = bytearray(requests[2])
        changed[int(draws.integers(len(changed)))] ^= 1 << int(draws.integers(8))
        for bad in (bytes(changed), bytes(changed[:-1])):
            if kind == "survivors" and bad == naming([0, 1, 2, 3]):
                continue
            with pytest.raises(Refused):
                answer(site, kind, bad, messages[2])
            assert site.to_bytes() == before
    assert goes_on(sites, server, requests, messages).survivors == (0, 1, 2, 3, 4)


def test_exchanges_out_of_order_are_refused():
    sites, messages = Sites(3, 3), messages_for(3)
    site = sites.sites[0]
    for call in (
        lambda: site.share(pack("adverts")),
        lambda: site.mask(pack("deliveries", b"", b""), lambda: messages[0]),
        lambda: site.sign(naming([0, 1, 2])),
        lambda: site.reveal(packed_signatures({})),
    ):
        with pytest.raises(Refused, match="no state"):
            call()
    site.advertise(sites.terms())
    with pytest.raises(Refused, match="'shares' letter"):
        site.mask(pack("deliveries", b"", b""), lambda: messages[0])


# --- what keys are bound to


def test_every_key_differs_by_run_round_plan_point_roster_sites_and_use():
    # a derivation that forgets one of them: the same mask in two rounds, an envelope for another receiver
    sites = Sites(4, 4)
    others = [
        sites.terms(),
        sites.terms(2),
        sites.terms(plan=OTHER),
        sites.terms(point=OTHER),
        sites.terms(length=4),
        Terms(Sites(4, 4, run="other").agreement, 1, b"plan".ljust(32), POINT, 3),
        Terms(Sites(4, 4, 2).agreement, 1, b"plan".ljust(32), POINT, 3),
    ]
    adverts = [Advert(k, bytes([k]) * 32, bytes([k + 10]) * 32, bytes(32)) for k in range(4)]
    rosters = [
        Present(tuple(adverts)),
        Present(tuple(adverts[:3])),
        Present((*adverts[:3], Advert(3, *[b"x" * 32] * 3))),
    ]
    found, secret, count = set(), b"s" * 32, 0
    for terms in others:
        for present in rosters:
            keys = [derivation.own_mask(terms, present, k, secret) for k in (0, 1)]
            keys += [
                derivation.pair_mask(terms, present, who, 0, k, secret) for k in (1, 2) for who in (range(3), range(4))
            ]
            abouts = [derivation.about_envelope(terms, present, *pair) for pair in ((0, 1), (1, 0), (0, 2))]
            keys += [derivation.envelope(about, secret) for about in abouts]
            keys += [derivation.polynomials(terms, present, k, secret) for k in (0, 1)]
            found.update(keys)
            count += len(keys)
        said = [derivation.commitment(terms, k, secret) for k in (0, 1)]
        found.update(said)
        count += 2
    assert len(found) == count
    one, other = (derivation.pair_mask(others[0], rosters[0], range(4), *pair, secret) for pair in ((2, 1), (1, 2)))
    assert one == other


def test_a_signature_of_one_kind_is_none_of_another():
    sites = Sites(3, 3)
    terms = sites.terms()
    signed = unpack("keys", written("keys", terms, 0, b"body", sites.signing[0]), 3)[2]
    verify("keys", terms, 0, b"body", signed)
    for kind, each, site, body in [
        ("shares", terms, 0, b"body"),
        ("keys", sites.terms(2), 0, b"body"),
        ("keys", terms, 1, b"body"),
        ("keys", terms, 0, b"Body"),
    ]:
        with pytest.raises(Refused):
            verify(kind, each, site, body, signed)


def test_a_lost_sites_key_opens_no_envelope():
    # shares under the mask key: once that is revealed, so are the shares that were sent to the lost site, and by it
    sites, messages = Sites(5, 4), messages_for(5)
    server = played(sites, sites.terms(), messages, {"masked": {4}})
    key = ExchangeKey(server._secrets()[4])
    present = server._present
    assert key.public == present.by_site[4].mask
    for other in range(4):
        about = derivation.about_envelope(server.terms, present, other, 4)
        for public in (present.by_site[other].transport, present.by_site[other].mask):
            with pytest.raises(Refused):
                derivation_opened(derivation.envelope(about, key.shared(public)), server, other, about)


def derivation_opened(key, server, sender, about):
    from hushpoint.secure.primitives import opened

    return opened(key, server._envelopes[sender][4], about)


def test_a_masked_message_stays_masked_when_its_site_is_called_lost():
    # the server has the message, says it has not, and is given the key of the pairwise masks
    sites, messages = Sites(5, 4), messages_for(5)
    server, requests = played(sites, sites.terms(), messages, until="masked")
    letters = {k: sites.sites[k].mask(requests[k], lambda k=k: messages[k]) for k in requests}
    for k in range(4):
        server.take(letters[k])
    goes_on(sites, server, server.requests(), messages)
    secrets, present = server._secrets(), server._present
    values, _ = unpack("sum", unpack("masked", letters[4], 3)[1], 2)
    found = Masked(np.frombuffer(values, dtype="<u8"))
    key = ExchangeKey(secrets[4])
    for other in range(4):
        pair = derivation.pair_mask(server.terms, present, range(5), other, 4, key.shared(present.by_site[other].mask))
        found.add(pair)
    assert not np.any(found.values == messages[4])
    found.take(derivation.own_mask(server.terms, present, 4, seed_of(sites, 4)))
    np.testing.assert_array_equal(found.values, messages[4])  # only with the seed, which nobody revealed


def seed_of(sites, k):
    """From the first state that a site kept: only it has that."""
    from hushpoint.secure.site_state import SiteRound

    return SiteRound.from_bytes(unpack("site", sites.kept[k][0], 4)[3], sites.agreement).seed


def test_sites_that_are_told_of_different_sharers_mask_for_different_sums():
    # two lists of sharers for one round: sums over parts of the sites whose masks cancel
    sites, messages = Sites(5, 4), messages_for(5)
    server, requests = played(sites, sites.terms(), messages, until="masked")
    packed, joined = unpack("deliveries", requests[0], 2)
    size = len(joined) // 4
    fewer = pack("deliveries", packed_set([0, 1, 2, 3]), joined[: 3 * size])
    letters = [sites.sites[0].mask(fewer, lambda: messages[0])]
    letters += [sites.sites[k].mask(requests[k], lambda k=k: messages[k]) for k in range(1, 5)]
    for letter in letters:
        server.take(letter)
    requests = server.requests()
    with pytest.raises(Refused, match="not sites of this round"):
        sites.sites[0].sign(requests[0])
    for k in range(1, 5):
        server.take(sites.sites[k].sign(requests[k]))
    for k, request in server.requests().items():
        if k:
            server.take(sites.sites[k].reveal(request))
    differences = server.opened().total - messages.sum(axis=0)
    assert np.count_nonzero(differences) == 3  # of no use to anybody
    assert packed != packed_set([0, 1, 2, 3])


def test_one_site_that_signs_twice_opens_no_second_set():
    # a site restored from an old copy of its state, and of its ledger, beside a colluder: the other sites stand firm
    sites, server, requests, _ = at_survivors()
    old = sites.restored(1, sites.kept[1][2])
    for k in range(5):
        server.take(sites.sites[k].sign(requests[k]))
    request = server.requests()[2]
    fewer = [0, 1, 2, 3]
    twice = unpack("survivors", old.sign(naming(fewer)), 3)[2]  # nobody can keep it from doing so
    others = {**signatures_of(sites, server, fewer, [0]), 1: twice}
    assert len(others) < sites.agreement.shares
    with pytest.raises(Refused, match="another request"):
        sites.sites[2].sign(naming(fewer))
    for site in (old, *sites.sites[2:]):
        with pytest.raises(Refused):
            site.reveal(packed_signatures(others))
    assert sites.sites[2].reveal(request)
