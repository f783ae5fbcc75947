"""Bugs in what pieces from outside are believed: certificates, schedules, losses, stores, rules, plugins."""

from __future__ import annotations

from functools import partial

from mutants.mutant import Mutant

_HERE = "src/hushpoint"

_pieces = partial(
    Mutant,
    room="pieces",
    tests=(
        "tests/privacy/test_promises.py",
        "tests/test_named.py",
        "tests/test_own_pieces.py",
        "tests/rows/test_stores.py",
        "tests/test_examples.py",
    ),
)

BUGS = [
    _pieces(
        name="certificate-of-another-place",
        file=f"{_HERE}/privacy/accounting.py",
        old="if law not in theorem.laws or plan.noise.place != theorem.place:",
        new="if law not in theorem.laws:",
        why="the sensitivity of a block is taken for that of a release",
    ),
    _pieces(
        name="final-view-of-a-state-that-remembers",
        file=f"{_HERE}/privacy/accounting.py",
        old='if law == "all" and theorem.forgets else rule',
        new='if law == "all" else rule',
        why="the model shows all noisy sums, and is charged for the last",
    ),
    _pieces(
        name="changed-step-with-the-parents-certificate",
        file=f"{_HERE}/operators/base.py",
        old="if changed and stated.sensitivity and not is_ours(kind):",
        new="if not changed and stated.sensitivity and not is_ours(kind):",
        why="messages are twice as long as the certificate that was inherited says",
    ),
    _pieces(
        name="noise-of-any-law",
        file=f"{_HERE}/privacy/accounting.py",
        old="if not is_ours(type(plan.noise)):",
        new="if False:",
        why="uniform noise is accounted as Gaussian",
    ),
    _pieces(
        name="rule-of-a-stranger-called-proved",
        file=f"{_HERE}/privacy/accounting.py",
        old='return replace(spend, basis="stated")',
        new="return spend",
        why="a claim that nobody has checked is printed as a theorem",
    ),
    _pieces(
        name="claims-inherited",
        file=f"{_HERE}/_named.py",
        old="            if claim not in vars(cls):",
        new="            if claim not in dir(cls):",
        why="a subclass with another slope runs the compiled code of its parent",
    ),
    _pieces(
        name="closed-forms-inherited",
        file=f"{_HERE}/losses.py",
        old='_code = ("prox", "inverse_derivative", "_slopes")',
        new='_code = ("inverse_derivative", "_slopes")',
        why="ADMM moves by the prox of another loss than the one whose constants are declared",
    ),
    _pieces(
        name="mixin-keeps-the-claims",
        file=f"{_HERE}/_named.py",
        old="if cls._met is not cls:",
        new="if False:",
        why="everybody is drawn, and accounted as a Poisson sample",
    ),
    _pieces(
        name="parameters-beside-the-record",
        file=f"{_HERE}/_named.py",
        old="if described(kind.from_dict(record)) != described(self):",
        new="if False:",
        why="two losses of other constants are one plan, under one digest",
    ),
    _pieces(
        name="sparse-duplicates-scaled-one-by-one",
        file=f"{_HERE}/rows/sparse.py",
        old='if matrix.format != "csr" or not matrix.has_canonical_format:',
        new='if matrix.format != "csr":',
        why="a row of equal entries escapes the bound on its length",
    ),
    _pieces(
        name="sparse-columns-read-as-rows",
        file=f"{_HERE}/rows/sparse.py",
        old='if matrix.format != "csr" or not matrix.has_canonical_format:',
        new="if not matrix.has_canonical_format:",
        why="compiled code reads the columns of a table as its rows",
    ),
    _pieces(
        name="store-believed-in-silence",
        file=f"{_HERE}/problem.py",
        old="kind = None if self._rows is None else self._rows.store.from_outside",
        new="kind = None",
        why="the guarantee rests on answers of a store and does not say so",
    ),
    _pieces(
        name="coordinates-counted-as-people",
        file=f"{_HERE}/operators/gradient.py",
        old='ONE_COORDINATE = Theorem("3g", "sum", ("single",))',
        new='ONE_COORDINATE = Theorem("3g", "sum", ("single",), "participations")',
        tests=("tests/privacy/test_accounting.py", "tests/privacy/test_promises.py"),
        why="a cap on how often a coordinate moves is taken for one on how often people are asked",
    ),
    _pieces(
        name="plugins-of-another-party",
        file=f"{_HERE}/federated/folder.py",
        old='set(self.settings().get("plugins", [])):',
        new='set(self.settings().get("plugins", _modules(plan.to_dict()))):',
        tests=("tests/federated/test_federated_commands.py",),
        why="a site runs code that it never chose",
    ),
]
