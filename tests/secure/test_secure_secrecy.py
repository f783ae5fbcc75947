"""What the server and colluders see tells nothing but the sum.

The tests can see a difference: they do once a bug is planted.
"""

import numpy as np
import pytest
from scipy import stats
from secure_rounds import Sites, answer, messages_for, played
from sklearn.linear_model import LogisticRegression

from hushpoint.secure import Refused, derivation, letters, site
from hushpoint.secure.letters import Advert, Present
from hushpoint.secure.masks import Masked
from hushpoint.secure.packing import unpack
from hushpoint.secure.primitives import ExchangeKey, opened
from hushpoint.secure.shares import SHARE, Weights
from hushpoint.secure.site_state import SiteRound

ROUNDS = 48


def masked_values(letter):
    """The numbers of a masked message."""
    return np.frombuffer(unpack("sum", unpack("masked", letter, 3)[1], 2)[0], dtype="<u8")


def is_uniform(numbers):
    """Chi-square of each of the eight bytes; false alarm 1e-7 each."""
    found = numbers.astype("<u8").view(np.uint8).reshape(-1, 8)
    return all(stats.chisquare(np.bincount(found[:, place], minlength=256)).pvalue > 1e-7 for place in range(8))


@pytest.mark.parametrize("bug", [None, "one byte of the masks is missing", "no masks", "masks of 63 bits"])
def test_a_sites_message_is_uniform_whatever_it_is(bug, monkeypatch):
    # also rejects planted biases: the test can fail
    clean = Masked._mask
    cut = {"one byte of the masks is missing": 0xFFFFFFFFFFFFFF00, "no masks": 0, "masks of 63 bits": (1 << 63) - 1}
    if bug:
        monkeypatch.setattr(Masked, "_mask", lambda self, key: clean(self, key) & np.uint64(cut[bug]))
    sites = Sites(3, 3)
    messages = np.full((3, 20_000), 12345, dtype=np.uint64)
    server, requests = played(sites, sites.terms(length=20_000), messages, until="masked")
    found = masked_values(sites.sites[1].mask(requests[1], lambda: messages[1]))
    if bug == "masks of 63 bits":  # sums of them are uniform again but for their last bits' carries: look at one alone
        one = Masked(messages[1])
        one.add(b"k" * 32)
        found = one.values
    assert is_uniform(found) is (bug is None)
    assert server.kind == "masked"


def test_the_same_message_is_masked_anew_in_every_round_and_by_every_site():
    # one mask for two rounds: the difference of two messages is plain
    sites, messages = Sites(3, 3), np.zeros((3, 3), dtype=np.uint64)
    seen = []
    for number in (1, 2, 3):
        server, requests = played(sites, sites.terms(number), messages, until="masked")
        sent = [answer(each, server.kind, requests[each.number], messages[0]) for each in sites.sites]
        seen += [tuple(masked_values(letter).tolist()) for letter in sent]
    numbers = [value for each in seen for value in each]
    assert len(set(numbers)) == len(numbers)


# --- two inputs with equal sums


@pytest.fixture
def unsigned(monkeypatch):
    """Signatures play no part here, and take most of the time."""
    monkeypatch.setattr(letters, "is_signed", lambda *_: True)
    for module in (letters, site):
        monkeypatch.setattr(module, "signature", lambda *_: bytes(64))


def view(trial, world, called_lost, threshold=None):
    """What server and colluder (site 3) can make of the messages of sites 0 and 1, whose inputs add up to 0.

    One site is called lost though its message is there: the server has both.
    """
    sites = Sites(4, 3, 1, seed=trial)
    if threshold is not None:
        object.__setattr__(sites.agreement, "threshold", threshold)
    value = (1 << 61) if world else (1 << 64) - (1 << 61)
    messages = np.array([[value], [(1 << 64) - value], [0], [0]], dtype=np.uint64)
    server, requests = played(sites, sites.terms(length=1), messages, until="masked")
    sent = {k: sites.sites[k].mask(requests[k], lambda k=k: messages[k]) for k in requests}
    colluding = {k: pair[1] for k, pair in sites.sites[3]._round.held.items()}
    for k in set(requests) - {called_lost}:
        server.take(sent[k])
    while server.kind != "reveal":
        for k, request in server.requests().items():
            server.take(answer(sites.sites[k], server.kind, request, messages[k]))
    secrets = server._secrets()
    found = []
    for target in (0, 1):
        values = Masked(masked_values(sent[target]))
        if target == called_lost:
            take_pairs(values, server, target, secrets[target])
            values.take(derivation.own_mask(server.terms, server._present, target, bytes(32)))  # a guess
        else:
            values.take(derivation.own_mask(server.terms, server._present, target, secrets[target]))
            shares = {3: colluding[target], **opened_by_the_lost(server, secrets, called_lost, target)}
            if len(shares) >= server.terms.agreement.shares:
                take_pairs(values, server, target, Weights(list(shares)).secret(list(shares.values())))
        found.append(values.values.view(np.int64)[0] / 2.0**63)
    return found


def take_pairs(values, server, target, secret):
    """Take off all masks that a site has in common with others, given its mask key."""
    key, present = ExchangeKey(secret), server._present
    for other in set(server._sharers) - {target}:
        shared = key.shared(present.by_site[other].mask)
        pair = derivation.pair_mask(server.terms, present, server._sharers, target, other, shared)
        (values.take if target < other else values.add)(pair)


def opened_by_the_lost(server, secrets, lost, target):
    """The share of the target's mask key that went to a lost site, if its mask key opens the envelope."""
    present = server._present
    about = derivation.about_envelope(server.terms, present, target, lost)
    shared = ExchangeKey(secrets[lost]).shared(present.by_site[target].transport)
    try:
        return {lost: opened(derivation.envelope(about, shared), server._envelopes[target][lost], about)[SHARE:]}
    except Refused:
        return {}


def accuracy(called_lost, threshold=None):
    """Of a classifier trained on one half of the rounds and tried on the other."""
    worlds = np.random.default_rng(0).integers(0, 2, ROUNDS)
    seen = np.array([view(trial, world, called_lost, threshold) for trial, world in enumerate(worlds)])
    half = ROUNDS // 2
    trained = LogisticRegression(C=100.0).fit(seen[:half], worlds[:half])
    return float((trained.predict(seen[half:]) == worlds[half:]).mean())


@pytest.mark.usefixtures("unsigned")
@pytest.mark.parametrize("called_lost", [0, 2])
def test_two_inputs_with_one_sum_cannot_be_told_apart(called_lost):
    # a blind classifier is right in all 24 cases with probability 6e-8
    assert accuracy(called_lost) < 1.0


@pytest.mark.usefixtures("unsigned")
def test_with_one_mask_only_they_can(monkeypatch):
    clean = derivation.own_mask
    monkeypatch.setattr(derivation, "own_mask", lambda terms, present, k, _: clean(terms, present, k, bytes(32)))
    assert accuracy(0) == 1.0


@pytest.mark.usefixtures("unsigned")
@pytest.mark.parametrize(("bug", "threshold", "told"), [(True, 2, True), (False, 2, False), (True, None, False)])
def test_with_shares_under_the_mask_key_and_a_small_threshold_they_can(monkeypatch, bug, threshold, told):
    # One of the two bugs alone tells nothing: with 2t > n + c, shares sent to the lost and those of colluders are
    # fewer than t. That one key opens no envelope has a test of its own (test_a_lost_sites_key_opens_no_envelope).
    def with_one_key(terms, *, mask, transport, seed, mixing):
        return SiteRound(terms, mask=mask, transport=mask, seed=seed, mixing=mixing)

    def unchecked(_, adverts):
        return Present(tuple(sorted(adverts, key=lambda advert: advert.site)))

    if bug:
        monkeypatch.setattr(site, "SiteRound", with_one_key)
        monkeypatch.setattr(Present, "of", staticmethod(unchecked))
    assert (accuracy(2, threshold) == 1.0) is told


def test_what_is_revealed_has_nothing_of_one_site_alone():
    # the keys in the open are those that were signed, and the only shares are those of one kind for each site
    sites, messages = Sites(5, 4), messages_for(5)
    server = played(sites, sites.terms(), messages, {"masked": {3}})
    secrets = server._secrets()
    for k in range(5):
        advert = Advert.read(server.terms, sites.sites[k].advertise(server.terms))
        is_key = ExchangeKey(secrets[k]).public == advert.mask
        is_seed = derivation.commitment(server.terms, k, secrets[k]) == advert.commitment
        assert (is_key, is_seed) == ((True, False) if k == 3 else (False, True))
