"""Bugs in federations with secure sums: what a site answers, counts and keeps, and what noise it adds."""

from __future__ import annotations

from functools import partial

from mutants.mutant import Mutant

_HERE = "src/hushpoint/federated/secure"

_refused = partial(Mutant, room="secure federations", tests=("tests/federated/test_secure_refusals.py",))
_killed = partial(Mutant, room="secure federations", tests=("tests/federated/test_secure_kills.py",))
_lost = partial(Mutant, room="secure federations", tests=("tests/federated/test_secure_losses.py",))
_law = partial(Mutant, room="secure federations", tests=("tests/federated/test_secure_law.py",))
_agreed = partial(Mutant, room="secure federations", tests=("tests/federated/test_secure_covenants.py",))
_trained = partial(Mutant, room="secure federations", tests=("tests/federated/test_secure_trainings.py",))
_judged = partial(Mutant, room="secure federations", tests=("tests/federated/test_secure_evaluation.py",))

BUGS = [
    _judged(
        name="figures-beside-the-budget",
        file=f"{_HERE}/covenant.py",
        old="math.sqrt(share) * mu), math.sqrt(1 - share) * mu\n        if to_learn",
        new="math.sqrt(share) * mu), mu\n        if to_learn",
        why="what held-out rows tell is not paid for by the training",
    ),
    _judged(
        name="noise-of-figures-understated",
        file="src/hushpoint/estimators/held_out.py",
        old="return {merit: std / math.sqrt(share) for merit",
        new="return {merit: std for merit",
        why="people take noise for what the model is worth",
    ),
    _refused(
        name="no-line-in-the-ledger",
        file=f"{_HERE}/site.py",
        old="self._check = self.store.record(ledger, entry).checks[-1]",
        new="self._check = ledger.checks[-1]",
        why="masked messages leave, and nothing says so",
    ),
    _refused(
        name="cap-is-not-looked-at-again",
        file=f"{_HERE}/site.py",
        old="        self._require_willing(ledger, price)\n        told",
        new="        told",
        why="what was counted between keys and message is forgotten",
    ),
    _refused(
        name="cap-twice-as-high",
        file=f"{_HERE}/price.py",
        old="spent.squared <= whole.squared and",
        new="spent.squared <= 2 * whole.squared and",
        why="a server asks again until twice the budget is spent",
    ),
    _refused(
        name="own-limit-ignored",
        file=f"{_HERE}/site.py",
        old="if self.limit is not None and not within_limit(",
        new="if self.limit is None and not within_limit(",
        why="covenant after covenant takes its budget",
    ),
    _refused(
        name="limit-for-others-counts-for-this",
        file=f"{_HERE}/spending.py",
        old="    if limit.unit not in (None, price.unit) or",
        new="    if False and limit.unit not in (None, price.unit) or",
        why="a limit for users lets through what is counted for records",
    ),
    _refused(
        name="keys-again-after-the-end",
        file=f"{_HERE}/site.py",
        old="keep, last=max(last, lasts.get(run, 0)))",
        new="keep, last=last)",
        why="a site without its round's state writes other keys for the same round",
    ),
    _agreed(
        name="any-method-from-outside",
        file=f"{_HERE}/trainings.py",
        old='if self.plan.method not in WITH_PLANS or self.plan.schedule.law != "all":',
        new="if False:",
        why="coordinate descent sends the sum of all coordinates under the bound of one",
    ),
    _agreed(
        name="promise-against-others-than-agreed",
        file=f"{_HERE}/covenant.py",
        old="self.whole.colluders == colluders,",
        new="self.whole.colluders >= colluders,",
        why="noise is for fewer colluders than the promise names",
    ),
    Mutant(
        name="lost-covenant-opened-by-another",
        room="secure federations",
        tests=("tests/federated/test_old_copies.py",),
        file="src/hushpoint/federated/ledger.py",
        old="told += [Vouched(other, None) for",
        new="[Vouched(other, None) for",
        why="a covenant whose lines were lost has all its budget again",
    ),
    Mutant(
        name="later-rounds-of-the-log-forgotten",
        room="secure federations",
        tests=("tests/federated/test_old_copies.py",),
        file=f"{_HERE}/record.py",
        old="        if last <= state.rounds:\n",
        new="        if True:\n",
        why="a server from an old copy states less than sites have counted",
    ),
    Mutant(
        name="rows-of-users-in-a-federations-model",
        room="secure federations",
        tests=("tests/federated/test_old_copies.py",),
        file="src/hushpoint/federated/models.py",
        old='"rows": facts.rows if public.knows_rows else None,',
        new='"rows": facts.rows if facts.knows_rows else None,',
        why="a model file tells how many rows users have",
    ),
    Mutant(
        name="model-says-what-was-learned",
        room="secure federations",
        tests=("tests/federated/test_old_copies.py",),
        file="src/hushpoint/federated/models.py",
        old="if not _same(found, schema, learned):",
        new='if not _same(found, schema, model.details.get("learned_ranges") or ()):',
        why="whoever hands the model over changes what its numbers mean",
    ),
    _refused(
        name="what-has-no-bound-costs-nothing",
        file=f"{_HERE}/spending.py",
        old='            if mu is None or price.adjacency != "replace-one":\n                return False',
        new='            if mu is None or price.adjacency != "replace-one":\n                continue',
        why="earlier releases that were of other people, or had no bound, count as none",
    ),
    _refused(
        name="vouched-for-ledgers-are-new-ones",
        file=f"{_HERE}/site.py",
        old="        if ledger.before or not fits(",
        new="        if not fits(",
        why="a site that lost its ledger spends the whole budget once more",
    ),
    _refused(
        name="the-server-says-how-much-noise",
        file=f"{_HERE}/site.py",
        old="if abs(question.scale - own.scale) > max(1.0, _SAME * own.scale):",
        new="if question.scale > 2 * own.scale:",
        why="one round with little noise spends the budget that was meant for all",
    ),
    _refused(
        name="points-of-any-length",
        file=f"{_HERE}/site.py",
        old="if float(np.linalg.norm(point)) > plan.operator.reach():",
        new="if point.size == 0:",
        why="sums of blocks overflow, and a site says that it failed",
    ),
    _refused(
        name="any-metric",
        file=f"{_HERE}/public.py",
        old="if found.steps != own.steps or not all(_is_close(one, other) for one, other in pairs):",
        new="if found.steps != own.steps:",
        why="the server turns the rows as it likes, and sites no longer know what they add",
    ),
    _refused(
        name="the-metric-may-be-missing",
        file=f"{_HERE}/public.py",
        old="own if self._sent is None else self._sent.agreed(own)",
        new="own if self._sent is None or self._sent.metric is None else self._sent.agreed(own)",
        why="sites on several machines add up sums in different metrics",
    ),
    _refused(
        name="any-number-of-rows",
        file=f"{_HERE}/site.py",
        old="    elif alone and facts.knows_rows:",
        new="    elif not alone and facts.knows_rows:",
        why="a site with fewer rows than agreed gives each of them more weight than its guarantee says",
    ),
    _refused(
        name="rows-without-users",
        file=f"{_HERE}/site.py",
        old='if facts.unit == "user" and rows.offsets is None:',
        new='if facts.unit == "user" and not len(rows):',
        why="each row is taken for a user, who is promised more than is kept",
    ),
    _refused(
        name="unsigned-requests",
        file=f"{_HERE}/wire.py",
        old="        if not verify(key, signature, body):",
        new="        if signature and not verify(key, signature, body):",
        why="anyone may spend the budget",
    ),
    _refused(
        name="requests-for-others",
        file=f"{_HERE}/site.py",
        old="            if asked.site != self.number:",
        new="            if asked.site >= self.covenant.sites:",
        why="a request that the server signed for one site is shown to another",
    ),
    _refused(
        name="noise-is-not-in-the-question",
        file=f"{_HERE}/wire.py",
        old='pack("plan", covenant, self.public, self.place, self.step, self.scale)',
        new='pack("plan", covenant, self.public, self.place, self.step)',
        why="sites of one round are told of different noise",
    ),
    _refused(
        name="covenant-is-not-in-the-terms",
        file=f"{_HERE}/wire.py",
        old='pack("plan", covenant, self.public, self.place, self.step, self.scale)',
        new='pack("plan", self.public, self.place, self.step, self.scale)',
        why="sites that agreed to different things add up",
    ),
    _killed(
        name="a-line-without-its-letter",
        file=f"{_HERE}/site.py",
        old="        if ledger.last_round(self.covenant.run) >= round_number:",
        new="        if ledger.last_round(self.covenant.run) > round_number:",
        why="from an old copy of its secrets a site masks another message under the same masks",
    ),
    _killed(
        name="an-old-ledger-goes-on",
        file=f"{_HERE}/site.py",
        old="        if kept is not None and kept.check not in ledger.checks:",
        new="        if kept is not None and not ledger.checks:",
        why="what was spent since the copy was made is spent again",
    ),
    _killed(
        name="where-the-ledger-stood-is-erased",
        file=f"{_HERE}/store.py",
        old='            self.keep_round(replace(kept, question=b"", state=b""))',
        new="            (self.site.directory / _STATE).unlink()",
        why="after a run an old copy of the ledger is taken for whole",
    ),
    _lost(
        name="messages-of-failed-rounds-are-free",
        file=f"{_HERE}/server.py",
        old='_LEAVING = ("masked", "survivors", "reveal")',
        new='_LEAVING = ("reveal",)',
        why="the guarantee that is printed leaves out rounds in which messages left",
    ),
    _law(
        name="no-noise-in-the-message",
        file=f"{_HERE}/site.py",
        old="return told.view(np.uint64) + noise.view(np.uint64)",
        new="return told.view(np.uint64) + 0 * noise.view(np.uint64)",
        why="the sum is opened as it is",
    ),
    _law(
        name="the-same-noise-every-round",
        file=f"{_HERE}/site.py",
        old="noise = encoding.noise(source_for(self._seed), self.number, round_number)",
        new="noise = encoding.noise(source_for(self._seed), self.number, 0)",
        why="two rounds subtracted have no noise",
    ),
    _law(
        name="noise-of-all-sites-is-counted-on",
        file="src/hushpoint/secure/agreement.py",
        old="return self.survivors - self.colluders",
        new="return len(self.roster)",
        why="colluders and those that are away take noise with them that was relied on",
    ),
    _agreed(
        name="a-whole-beyond-its-budget",
        file=f"{_HERE}/covenant.py",
        old="promised = self.whole.delta(self.budget.epsilon) <= self.budget.delta",
        new="promised = self.budget.delta > 0",
        why="people accept an epsilon that sites do not hold to",
    ),
    _agreed(
        name="parts-of-a-claim-that-nobody-caps",
        file=f"{_HERE}/price.py",
        old=" and spent.spread <= whole.spread and spent.missed <= whole.missed",
        new="",
        why="the slack of shared noise may grow without end",
    ),
    _agreed(
        name="whoever-is-protected",
        file=f"{_HERE}/price.py",
        old="return within and (spent.unit, spent.adjacency) == (whole.unit, whole.adjacency)",
        new="return within",
        why="a promise to users is kept to their single rows",
    ),
    _trained(
        name="noise-for-one-step",
        file=f"{_HERE}/price.py",
        old="plan.certificate.shift(*whose) * math.sqrt(plan.steps) / mu",
        new="plan.certificate.shift(*whose) / mu",
        why="the first step costs what all of them should",
    ),
    _trained(
        name="blocks-in-place-of-moves",
        file="src/hushpoint/operators/lattice_blocks.py",
        old="        away = moved - self.anchor(z)  #",
        new="        away = moved - block  #",
        why="a message is as long as a block has gone since its last one, and nothing bounds that",
    ),
]
