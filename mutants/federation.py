"""Bugs in a federation: what a site sends, what it counts, what a server believes and releases."""

from __future__ import annotations

from functools import partial

from mutants.mutant import Mutant

_HERE = "src/hushpoint/federated"

_federation = partial(
    Mutant,
    room="federation",
    tests=(
        "tests/federated/test_site.py",
        "tests/federated/test_federated_privacy.py",
        "tests/federated/test_adversity.py",
        "tests/federated/test_rounds.py",
        "tests/federated/test_post.py",
    ),
)

_ends = partial(Mutant, room="federation", tests=("tests/federated/test_ends.py", "tests/federated/test_faults.py"))

BUGS = [
    _federation(
        name="counted-after-it-left",
        file=f"{_HERE}/client.py",
        old="return self._moved(asked, self._recorded(ledger, state), state), False",
        new="return self._moved(asked, ledger, state), False",
        why="a message leaves before it is in the ledger: a kill in between, and it is not counted",
    ),
    _federation(
        name="second-message-of-a-round-uncounted",
        file=f"{_HERE}/client.py",
        old="        if ledger.lost:\n            return ledger\n",
        new="        if ledger.lost or ledger.last_round(self._run) == state.round:\n            return ledger\n",
        why="a round computed again has fresh noise, and is another message about the same people",
    ),
    _federation(
        name="message-computed-again",
        file=f"{_HERE}/client.py",
        old="if state is not None and (state.round, state.point) == (asked.round, asked.name):",
        new="if state is not None and (state.round, state.point) == (asked.round, asked):",
        why="asking again and again averages the noise away",
    ),
    _federation(
        name="site-cap-one-too-late",
        file=f"{_HERE}/client.py",
        old="if self.plan.schedule.cap is not None and count >= self.plan.schedule.cap:\n",
        new="if self.plan.schedule.cap is not None and count > self.plan.schedule.cap:\n",
        why="with noise at the server nobody else keeps a site's cap",
    ),
    _federation(
        name="site-allowance-one-too-late",
        file=f"{_HERE}/client.py",
        old="if self._own_noise and count >= self.plan.schedule.most(self.plan.steps):",
        new="if self._own_noise and count > self.plan.schedule.most(self.plan.steps):",
        why="a server that asks for ever gets one message more than is charged",
    ),
    _federation(
        name="site-limit-one-too-late",
        file=f"{_HERE}/client.py",
        old="mu = math.sqrt(earlier**2 + each**2) * (1 + 1e-12)",
        new="mu = math.sqrt(earlier**2 + 0 * each**2) * (1 + 1e-12)",
        why="the message that exceeds the site's own budget is sent",
    ),
    _federation(
        name="limit-prices-the-unknown",
        file=f"{_HERE}/ledger.py",
        old="if len(squares) < len(costs) or ledger.has_unpriced:",
        new="if len(squares) < len(costs):",
        why="what was spent before the ledger was lost is free",
    ),
    _federation(
        name="far-points-not-declined",
        file=f"{_HERE}/client.py",
        old="return float(np.linalg.norm(vector)) <= self._reach",
        new="return float(np.linalg.norm(vector)) <= math.inf",
        why="far away rounding, or a failing prox, tells of the data",
    ),
    _federation(
        name="another-plan-is-answered",
        file=f"{_HERE}/client.py",
        old="if asked.run != self._run or not 1 <= asked.round <= self.plan.steps:",
        new="if not 1 <= asked.round <= self.plan.steps:",
        why="a server with a plan of its own is answered, and counted under the agreed one",
    ),
    _federation(
        name="site-seeded-by-default",
        file=f"{_HERE}/client.py",
        old="source_for(self._seed)",
        new="source_for(self._seed or 0)",
        why="the server can draw the site's noise again and take it away",
    ),
    _federation(
        name="site-noise-halved",
        file=f"{_HERE}/client.py",
        old="kick = plan.noise.drawn(source_for(self._seed),",
        new="kick = type(plan.noise)(plan.noise.std / 2, plan.noise.place).drawn(source_for(self._seed),",
        why="half the noise that is charged",
    ),
    _federation(
        name="failed-prox-is-told",
        file=f"{_HERE}/client.py",
        old="continue  # to say",
        new="raise  # to say",
        why="that a prox failed tells of the data, and costs nothing",
    ),
    _federation(
        name="warnings-quote-data",
        file=f"{_HERE}/client.py",
        old='warnings.simplefilter("ignore")',
        new='warnings.simplefilter("always")',
        why="a warning in a log may quote data",
    ),
    _federation(
        name="state-unknown-to-the-ledger",
        file=f"{_HERE}/ledger.py",
        old='            if check not in ("", *ledger.checks):\n',
        new="            if check and not ledger.checks:\n",
        why="a ledger restored from an old copy forgets what was sent since",
    ),
    _federation(
        name="old-ledger-believed",
        file=f"{_HERE}/client.py",
        old="if self._own_noise and began_here and asked.known > ledger.last_round(self._run):",
        new="if self._own_noise and began_here and asked.known > self.plan.steps:",
        why="the server has a message that the ledger knows nothing of",
    ),
    _federation(
        name="vouched-for-another-run",
        file=f"{_HERE}/ledger.py",
        old="for one in self.vouched if one.run == run)",
        new="for one in self.vouched if one.run != run)",
        why="what a person vouched for in a run is not counted there",
    ),
    _ends(
        name="one-site-ends-a-run",
        file=f"{_HERE}/server.py",
        old="self._ahead = max(self._ahead, self._proven(site, said), self._claimed_by_most())",
        new="self._ahead = max(self._ahead, said.last_round)",
        why="one site that says it knows of a later round ends the run for all",
    ),
    _ends(
        name="schema-not-agreed-on",
        file=f"{_HERE}/agreed.py",
        old="return _digest([self.encoder, None if self.shape is None else self.shape.to_dict()])",
        new="return _digest([self.encoder])",
        why="one site has the classes the other way round, and a model of nonsense is released",
    ),
    _ends(
        name="model-of-anybody-kept",
        file=f"{_HERE}/farewell.py",
        old="if not verify(key, data[end:], data[:end]):",
        new="if not data[end:]:",
        why="a site keeps, and uses, a model that the server never made",
    ),
    _ends(
        name="secret-sample-named-at-the-end",
        file=f"{_HERE}/record.py",
        old='"why": "" if sample_is_secret(plan) else why,',
        new='"why": why,',
        why="who was asked is told, and the guarantee counts on nobody knowing",
    ),
    _ends(
        name="vouched-for-fewer-than-known",
        file=f"{_HERE}/ledger.py",
        old="        if participations < known:\n",
        new="        if participations < 0 * known:\n",
        why="a person vouches for fewer messages than the ledger itself shows",
    ),
    _ends(
        name="line-of-another-run-forgotten",
        file=f"{_HERE}/client.py",
        old="if pending is not None:",
        new="if pending is not None and pending.run == self._run:",
        why="the last message of the run before is not counted against the site's limit",
    ),
    _federation(
        name="ledger-forgets-what-was-vouched-for",
        file=f"{_HERE}/ledger.py",
        old='int(lines[0]["before"]), tuple(checks), vouched',
        new="0, tuple(checks), vouched",
        why="the count starts at 0 again after a restart",
    ),
    _federation(
        name="ledger-loses-its-first-line",
        file=f"{_HERE}/ledger.py",
        old="            elif line is not lines[0]:\n",
        new="            elif line is not lines[0] and line is not lines[1]:\n",
        why="one participation is forgotten at every restart",
    ),
    _federation(
        name="ledger-made-anew",
        file=f"{_HERE}/ledger.py",
        old="        if used:\n",
        new="        if used and before:\n",
        why="a site that has taken part begins to count at 0 again",
    ),
    _federation(
        name="changed-ledger-believed",
        file=f"{_HERE}/disk.py",
        old="if found != check:",
        new="if not found:",
        why="lines that were changed or left out are not noticed",
    ),
    _federation(
        name="participation-at-half-price",
        file=f"{_HERE}/terms.py",
        old='plan.certificate.shift(unit, "replace-one", site) / plan.noise.std',
        new='plan.certificate.shift(unit, "zero-out", site) / plan.noise.std',
        why="the ledger of a site says less than a curious server learns",
    ),
    _federation(
        name="federated-root-of-T-lost",
        file=f"{_HERE}/terms.py",
        old="mu = compose_mu([said.mu], count)",
        new="mu = compose_mu([said.mu])",
        why="many messages are charged as one",
    ),
    _federation(
        name="lost-messages-uncounted",
        file=f"{_HERE}/record.py",
        old="return np.asarray(np.maximum(self.participations, self.taken) + self.unheard)",
        new="return np.asarray(np.maximum(self.participations, self.taken))",
        why="a message that was lost on the way has left all the same",
    ),
    _federation(
        name="secret-sample-published",
        file=f"{_HERE}/record.py",
        old='"participations": None if sample_is_secret(plan) else state.accounted.tolist(),',
        new='"participations": state.accounted.tolist(),',
        why="amplification needs the sample to stay secret",
    ),
    _federation(
        name="forgotten-rounds-uncounted",
        file=f"{_HERE}/record.py",
        old='state.skip_to(logged[-1]["round"], steps)',
        new="state.skip_to(state.rounds, steps)",
        why="a server restored from an old copy releases rounds a second time",
    ),
    _federation(
        name="signature-not-checked",
        file=f"{_HERE}/wire.py",
        old="if not verify(key, signature, content):",
        new="if not signature and not verify(key, signature, content):",
        why="anyone can ask a site in the server's name",
    ),
    _federation(
        name="length-of-messages-not-checked",
        file=f"{_HERE}/server.py",
        old='return "" if able and is_within(message, _LONGEST) else',
        new='return "" if able or is_within(message, _LONGEST) else',
        why="a site that lies moves the sum as far as it likes",
    ),
    _federation(
        name="server-sum-noise-missing",
        file=f"{_HERE}/server.py",
        old="drawn = drawn_by(plan, self._source, step)",
        new="drawn = lambda place, size: None if place == 'sum' else drawn_by(plan, self._source, step)(place, size)",
        why="the sum is released as it is",
    ),
    _federation(
        name="anchored-release-reuses-noise",
        file=f"{_HERE}/server.py",
        old="drawn = drawn_by(plan, self._source, step)",
        new="drawn = drawn_by(plan, self._source, 0)",
        why="the difference of two releases has no noise",
    ),
    _federation(
        name="released-before-it-is-kept",
        file=f"{_HERE}/server.py",
        old="self.store.save(state)\n        self.store.log(state.last_record)",
        new="self.store.log(state.last_record)\n        self.store.save(state)",
        why="a kill in between, and the round is released twice with different noise",
    ),
    _federation(
        name="asked-before-it-is-counted",
        file=f"{_HERE}/server.py",
        old="        for site in sites:\n"
        "            state.unheard[site] = max(1, state.unheard[site] + (not state.asked[site]))\n"
        "            state.asked[site] = True\n        self.store.save(state)\n",
        new="        self.store.save(state)\n        for site in sites:\n"
        "            state.unheard[site] = max(1, state.unheard[site] + (not state.asked[site]))\n"
        "            state.asked[site] = True\n",
        why="a message that left and was lost is not counted by a server that was killed meanwhile",
    ),
    _federation(
        name="server-cap-one-too-late",
        file=f"{_HERE}/server.py",
        old="return np.asarray(np.maximum(self.state.participations, self.state.taken) < cap)",
        new="return np.asarray(np.maximum(self.state.participations, self.state.taken) <= cap)",
        why="on a sum the cap is the server's to keep",
    ),
    _federation(
        name="absent-sites-replaced-in-a-secret-sample",
        file=f"{_HERE}/server.py",
        old="if plan.operator.block_size and not there[chosen].all():",
        new="if not there[chosen].all():",
        why="who is away decides who is sampled, which the theorem does not cover",
    ),
]
