"""Bugs in secure sums: what sites sign, reveal and repeat, what keys are bound to, and what is promised."""

from __future__ import annotations

from functools import partial

from mutants.mutant import Mutant

_HERE = "src/hushpoint/secure"

_attacked = partial(Mutant, room="secure sums", tests=("tests/secure/test_secure_attacks.py",))
_claimed = partial(Mutant, room="secure sums", tests=("tests/secure/test_secure_claims.py",))
_killed = partial(Mutant, room="secure sums", tests=("tests/secure/test_secure_crash.py",))
_encoded = partial(Mutant, room="secure sums", tests=("tests/secure/test_secure_encoding.py",))

BUGS = [
    _attacked(
        name="half-the-sites-are-enough",
        file=f"{_HERE}/agreement.py",
        old="return (sites + colluders) // 2 + 1",
        new="return sites // 2 + 1",
        why="with the colluders' signatures two sets of one round are opened: their difference is one site's message",
    ),
    _attacked(
        name="another-request-another-letter",
        file=f"{_HERE}/site.py",
        old="        if kind in held.letters:\n",
        new="        if kind in held.letters and held.letters[kind][0] == asked:\n",
        why="two letters of one kind in a round: other keys, two sets of survivors",
    ),
    _attacked(
        name="one-signature-too-few",
        file=f"{_HERE}/site.py",
        old="        if len(signatures) < needed or not",
        new="        if len(signatures) < needed - 1 or not",
        why="shares leave for a set that too few survivors signed",
    ),
    _attacked(
        name="signatures-of-survivors-not-read",
        file=f"{_HERE}/site.py",
        old='            verify("survivors", held.terms, site, body, signatures[site])',
        new="            pass",
        why="the server makes up a set of survivors",
    ),
    _attacked(
        name="both-kinds-of-shares",
        file=f"{_HERE}/site.py",
        old="            shares = [held.held[site][site not in arrived] for site in held.sharers]",
        new="            shares = [share for site in held.sharers for share in held.held[site]]",
        why="seed and mask key of every site are given: its message is plain",
    ),
    _attacked(
        name="round-not-above-the-last",
        file=f"{_HERE}/site.py",
        old="        if terms.round <= self.last:",
        new="        if terms.round < self.last:",
        why="a round that was erased is run again with the same number: nothing says that it was opened before",
    ),
    _attacked(
        name="fewer-survivors-than-agreed",
        file=f"{_HERE}/site.py",
        old="        if len(sites) < fewest:",
        new="        if not sites:",
        why="sums of fewer sites than share the noise are opened",
    ),
    _attacked(
        name="pair-masks-the-same-in-every-round",
        file=f"{_HERE}/derivation.py",
        old='pack("pair mask", terms.context, present.digest, packed_set(sharers), low, high)',
        new='pack("pair mask", low, high)',
        why="the difference of two messages is plain to whoever knows the keys are not fresh",
    ),
    _attacked(
        name="envelopes-for-anyone",
        file=f"{_HERE}/derivation.py",
        old='pack("envelope", terms.context, present.digest, sender, receiver, ENVELOPE)',
        new='pack("envelope", terms.context, present.digest, *sorted((sender, receiver)), ENVELOPE)',
        why="two envelopes under one key and nonce: the difference of the shares in them is plain",
    ),
    _attacked(
        name="terms-without-the-point",
        file=f"{_HERE}/agreement.py",
        old="self.plan, self.point, self.length))",
        new="self.plan, self.length))",
        why="one site is given another point than the others, and the difference tells of it",
    ),
    _attacked(
        name="letters-of-any-kind",
        file=f"{_HERE}/letters.py",
        old="return pack(_TAG, kind, terms.context, site, body)",
        new="return pack(_TAG, terms.context, site, body)",
        why="a signature under one statement is shown for another",
    ),
    _killed(
        name="letters-leave-before-they-are-kept",
        file=f"{_HERE}/site.py",
        old="            self._keep(self.to_bytes())\n        except BaseException:",
        new="            pass\n        except BaseException:",
        why="a site that was killed answers again with the same keys, and signs twice",
    ),
    _killed(
        name="a-failed-write-is-forgotten",
        file=f"{_HERE}/site.py",
        old="            self._round = None  # what is in memory may not be on the disk\n",
        new="",
        why="a letter leaves that is not on the disk",
    ),
    _killed(
        name="shares-kept-after-the-round",
        file=f"{_HERE}/site.py",
        old="            held.held.clear()\n",
        new="",
        why="shares of the other kind lie on the disk for whoever comes later",
    ),
    _killed(
        name="old-copies-go-on",
        file=f"{_HERE}/site.py",
        old="        if held and number(before) >= last:",
        new="        if held:",
        why="a site restored from an old copy signs a round twice",
    ),
    _claimed(
        name="slack-added-once",
        file=f"{_HERE}/claim.py",
        old="return epsilon if self.spread == 0 else math.nextafter(epsilon - _up(2 * self.spread), -math.inf)",
        new="return epsilon",
        why="the discrete Gaussian is taken for a rounded normal: small noise tells more than is said",
    ),
    _claimed(
        name="spare-rounds-not-paid",
        file=f"{_HERE}/claim.py",
        old='total = require_count("rounds", rounds) + require_count("spare", spare, least=0)',
        new='total = require_count("rounds", rounds) + 0 * require_count("spare", spare, least=0)',
        why="rounds that fail are spent, and the budget does not know of them",
    ),
    _encoded(
        name="noise-shared-by-too-many",
        file=f"{_HERE}/encoding.py",
        old="return discrete_gaussians(*address, self.scale**2, self.honest)",
        new="return discrete_gaussians(*address, self.scale**2, self.honest + 1)",
        why="colluders take their part of the noise away, and too little is left",
    ),
    _encoded(
        name="rounding-term-forgotten",
        file=f"{_HERE}/encoding.py",
        old="        if self.whole:\n            return moved",
        new="        if self.length:\n            return moved",
        why="one row moves every number of a rounded sum by up to one more step",
    ),
    _encoded(
        name="messages-of-any-length",
        file=f"{_HERE}/encoding.py",
        old="        return squared <= self.limit**2",
        new="        return squared <= 2 * self.limit**2",
        why="one person moves the sum by more than the noise hides",
    ),
]
