"""What may be said about a run: a guarantee, and the budget one asks for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Any, Literal, get_args

from hushpoint._checks import require_choice, require_positive
from hushpoint.certificates import ADJACENCIES, UNITS
from hushpoint.privacy.gaussian import LARGEST_EPSILON, SMALLEST_DELTA, compose_mu, gdp_epsilon

View = Literal["final", "iterates", "messages", "network"]
Adjacency = Literal["replace-one", "zero-out"]
Unit = Literal["user", "record"]
Basis = Literal["proved", "stated", "published"]

VIEWS = ("final", "iterates", "messages", "network")

_WATCHERS = {
    "final": "anyone who sees only the final model",
    "iterates": "anyone who sees every iterate and the final model",
    "messages": "anyone who sees every message, an untrusted server included",
    "network": "any other peer, who sees the token only when it arrives",
}

Arithmetic = Literal["real", "whole"]

# Theorems about real numbers hold for the program where it adds whole numbers and draws them exactly; elsewhere
# floating-point numbers stand for real ones. A finite guarantee says which.
_NUMBERS = {
    "real": "for real numbers; floating-point ones stand for them (section 5).",
    "whole": "for the program to the last bit: whole numbers, summed exactly, noise drawn exactly (section 11).",
}


@dataclass(frozen=True)
class Guarantee:
    """A differential-privacy statement: (epsilon, delta) for one unit, against one viewer, and what it rests on.

    ``mu`` is the Gaussian-DP parameter where the loss is Gaussian, else None. ``basis`` is "proved" (docs/privacy.md,
    ``section``), "stated" (by a rule from outside) or "published" (the paper says so, and it fails in cases). ``item``
    is set where the statement is about one item only, ``observers`` where it is about certain colluding peers only.
    ``source`` says where the noise of a run came from. ``arithmetic`` is "whole" where the statement is about the
    program itself, "real" where it is about the real numbers that floating-point ones stand for.
    """

    epsilon: float
    delta: float
    mu: float | None
    unit: Unit
    adjacency: Adjacency
    view: View
    basis: Basis
    section: str
    assumptions: tuple[str, ...] = ()
    item: int | None = None
    observers: tuple[int, ...] | None = None
    source: str | None = None
    arithmetic: Arithmetic = "real"

    def __str__(self) -> str:
        whom = f"one {self.unit}" if self.item is None else f"one {self.unit}, of item {self.item} only,"
        watcher = _WATCHERS[self.view]
        if self.observers is not None:
            watcher = (
                f"the peers {', '.join(map(str, self.observers))} together, who see the token only when it arrives"
            )
        if math.isinf(self.epsilon):
            said = f"No guarantee (epsilon = infinity) for {whom} ({self.adjacency})"
        else:
            said = f"epsilon = {_up(self.epsilon)} at delta = {_up(self.delta)} for {whom} ({self.adjacency})"
        where = f"Proved (docs/privacy.md, section {self.section})."
        if self.basis == "published":
            where = f"Published, not proved and known to fail in cases (docs/errata.md, {self.section})."
        elif self.basis == "stated":
            where = "Stated by whoever registered the rule, not proved here."
        if math.isinf(self.epsilon):
            return f"{said}, against {watcher}." + (
                f" Because: {', '.join(self.assumptions)}." if self.assumptions else ""
            )
        reasons = f" Rests on: {', '.join(self.grounds)}." if self.grounds else ""
        held = "Holds" if self.basis == "proved" else "Meant"
        numbers = "" if self.mu == 0 else f" {held} {_NUMBERS[self.arithmetic]}"  # nothing was released
        return f"{said}, against {watcher}. {where}{reasons}{numbers}"

    @property
    def grounds(self) -> tuple[str, ...]:
        """All that the statement rests on: assumptions, and the random source."""
        return self.assumptions if self.source is None else (*self.assumptions, self.source)

    def to_dict(self) -> dict[str, Any]:
        """The guarantee as JSON can hold it; infinity is the text "inf"."""
        record = asdict(self)
        record["assumptions"] = list(self.assumptions)
        record["observers"] = None if self.observers is None else list(self.observers)
        for name in ("epsilon", "mu"):
            if record[name] is not None and math.isinf(record[name]):
                record[name] = "inf"
        record["statement"] = str(self)
        return record

    @staticmethod
    def from_dict(record: Mapping[str, Any]) -> Guarantee:
        """The guarantee that ``to_dict`` wrote."""
        known = {key: value for key, value in record.items() if key != "statement"}
        for name in ("epsilon", "mu"):
            known[name] = math.inf if known[name] == "inf" else known[name]
        known["assumptions"] = tuple(known["assumptions"])
        known["observers"] = None if known["observers"] is None else tuple(known["observers"])
        return Guarantee(**known)


@dataclass(frozen=True)
class Budget:
    """What a run may spend; what is left None takes the default of the method."""

    epsilon: float
    delta: float
    view: View | None = None
    adjacency: Adjacency | None = None
    unit: Unit | None = None

    def __post_init__(self) -> None:
        checked_epsilon(self.epsilon)
        checked_delta(self.delta)
        for name, choices in (("view", VIEWS), ("adjacency", ADJACENCIES), ("unit", UNITS)):
            if getattr(self, name) is not None:
                require_choice(name, getattr(self, name), choices)

    def to_dict(self) -> dict[str, Any]:
        """The budget as JSON can hold it."""
        return asdict(self)


def compose(*guarantees: Guarantee) -> Guarantee:
    """One guarantee for several releases about the same people, each possibly chosen in view of the others.

    Gaussian ones compose as ``sqrt(sum mu^2)`` and are read at the largest delta; otherwise epsilons and deltas add.
    Everything is rounded up. Unit and adjacency must agree; the view is the narrowest one (a guarantee against a viewer
    holds against whoever sees less, not more) and the basis the weakest.
    """
    if not guarantees:
        raise ValueError("compose was given no guarantee. Pass at least one.")
    for one in guarantees:
        if not isinstance(one, Guarantee):
            raise ValueError(f"compose was given a {type(one).__name__}. Pass guarantees one by one: compose(*list).")
    first = guarantees[0]
    for other in guarantees[1:]:
        if (other.item, other.observers) != (first.item, first.observers):
            raise ValueError(
                f"guarantees are for item {first.item} and item {other.item}, or for other observers. "
                "Compose guarantees for the worst item (item=None) or for the same one."
            )
        if (other.unit, other.adjacency) != (first.unit, first.adjacency):
            raise ValueError(
                f"guarantees are for one {first.unit} ({first.adjacency}) and one {other.unit} ({other.adjacency}). "
                "Compose guarantees of the same unit and adjacency."
            )
    gaussian = [g.mu for g in guarantees if g.mu is not None]
    rest = [g for g in guarantees if g.mu is None]
    mu = compose_mu(gaussian) if gaussian else 0.0
    delta = max([g.delta for g in guarantees if g.mu is not None], default=0.0)
    epsilon = gdp_epsilon(mu, delta) if gaussian else 0.0
    view = "network" if {g.view for g in guarantees} == {"network"} else _narrowest(guarantees)
    return Guarantee(
        _total([epsilon, *(g.epsilon for g in rest)]),
        min(1.0, _total([delta, *(g.delta for g in rest)])),
        None if rest else mu,
        first.unit,
        first.adjacency,
        view,
        max((g.basis for g in guarantees), key=get_args(Basis).index),
        "the published part" if any(g.basis == "published" for g in guarantees) else "1",
        (f"{len(guarantees)} releases composed", *dict.fromkeys(a for g in guarantees for a in g.assumptions)),
        first.item,
        first.observers,
        "; ".join(dict.fromkeys(g.source for g in guarantees if g.source)) or None,
        "whole" if all(g.arithmetic == "whole" for g in guarantees) else "real",
    )


def checked_epsilon(epsilon: float) -> float:
    """A positive epsilon, no larger than conversions can tell from infinity."""
    number = require_positive("epsilon", epsilon)
    if number > LARGEST_EPSILON:
        raise ValueError(
            f"epsilon is {epsilon!r}, which protects nobody. Pass a number up to {LARGEST_EPSILON:g}; without privacy, "
            "noise_std=0 in a method or epsilon=float('inf') in an estimator."
        )
    return number


def checked_delta(delta: float) -> float:
    """A delta in (0, 1/2): from there on, publishing one of two people at random would count as private."""
    if not (isinstance(delta, (int, float)) and SMALLEST_DELTA <= delta < 0.5):
        raise ValueError(f"delta is {delta!r}. Pass a number in (0, 0.5), well below one over the number of people.")
    return float(delta)


def _total(parts: list[float]) -> float:
    """A sum, rounded up where it has to be rounded."""
    total = math.fsum(parts)
    short = math.isfinite(total) and Fraction(total) < sum(map(Fraction, parts))
    return math.nextafter(total, math.inf) if short else total


def _narrowest(guarantees: tuple[Guarantee, ...]) -> View:
    views = {g.view for g in guarantees}
    for view in ("final", "iterates", "messages"):
        if view in views:
            if "network" in views:
                raise ValueError("guarantees of the network view compose only with each other. Ask for 'messages'.")
            return view
    return "network"


def _up(value: float) -> str:
    """Four significant digits, rounded up."""
    # repr first: 0.3 is meant, not the binary fraction below or above it.
    rounded = Decimal(repr(float(value))).normalize(Context(prec=4, rounding=ROUND_CEILING))
    return f"{float(rounded):.4g}"
