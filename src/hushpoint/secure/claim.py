"""What secure sums promise: Gaussian differential privacy up to a slack, and noise for a budget (docs/secure.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from scipy import special

from hushpoint._checks import require, require_choice, require_count
from hushpoint.certificates import ADJACENCIES, UNITS
from hushpoint.lattice import WIDEST
from hushpoint.privacy.gaussian import gdp_delta, gdp_epsilon, gdp_mu
from hushpoint.privacy.guarantee import Adjacency, Budget, Guarantee, Unit
from hushpoint.secure.agreement import Agreement
from hushpoint.secure.encoding import FINENESS, Encoding

TAIL = 12.0  # standard deviations within which the laws are compared; beyond: 4e-33 a number
_SPREAD = 1e-3  # part of epsilon that the slack may be
_FINE = 1 << 16  # steps that are aimed at where there is room, in place of FINENESS
_LARGEST_EXPONENT = 700.0


@dataclass(frozen=True)
class SecureClaim:
    """What is seen of one site in all its rounds is ``(eps + 2a, e^a (delta + (1 + e^eps) b))``-DP for every eps.

    ``delta`` is that of mu-GDP at eps. This is no Gaussian privacy: squared mu, a and b add up over releases, each
    chosen in view of the earlier ones, and are converted once.

    Parameters
    ----------
    squared : float
        mu squared.
    spread, missed : float
        a: how far the law of the noise is from a rounded normal, in logarithms. b: the chance of being farther out than
        that was shown.
    unit, adjacency
        Who is protected.
    colluders : int
        Against how many sites together with the server; 0: the server and outsiders only.
    is_whole : bool
        Whether the distances are those of whole numbers, checked by the program.
    """

    squared: float
    spread: float
    missed: float
    unit: Unit
    adjacency: Adjacency
    colluders: int
    is_whole: bool = True

    def __post_init__(self) -> None:
        for name in ("squared", "spread", "missed"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "Pass a number of at least 0.")
        require_choice("unit", self.unit, UNITS)
        require_choice("adjacency", self.adjacency, ADJACENCIES)
        require_count("colluders", self.colluders, least=0)

    @classmethod
    def of_rounds(
        cls,
        encoding: Encoding,
        agreement: Agreement,
        rounds: int,
        *,
        unit: Unit,
        adjacency: Adjacency,
        tail: float = TAIL,
    ) -> SecureClaim:
        """The claim for so many rounds in which the site let a masked message leave, by its own ledger.

        Any ``tail`` of standard deviations gives a bound.
        """
        agreed = len(agreement.roster), agreement.honest
        if (encoding.sites, encoding.honest) != agreed:
            raise ValueError(
                f"encoding is for {encoding.sites} sites and {encoding.honest} honest survivors, and the agreement has "
                f"{agreed[0]} and {agreed[1]}. Make the encoding for this agreement."
            )
        colluders = agreement.colluders
        rounds = require_count("rounds", rounds, least=0)
        require(tail >= 2, "tail", tail, "Pass 2 or more.")
        scale, honest = encoding.scale, encoding.honest
        if scale == 0 or 4 * scale**2 < honest:  # a share of the noise below half a step: nothing is shown
            return cls(math.inf if rounds else 0.0, 0.0, 0.0, unit, adjacency, colluders)
        numbers = rounds * encoding.length
        shared = 10 * encoding.sites * _up(math.exp(-(math.pi**2) * scale**2 / honest))
        spread = numbers * (shared + max(1.0, tail**2) / (24 * scale**2))
        missed = 2 * numbers * _up(float(special.ndtr(1 / scale - tail)))
        squared = rounds * (encoding.distance / scale) ** 2
        none = 0.0 if rounds == 0 else 1.0
        parts = (_up(squared) * none, _up(spread) * none, _up(missed) * none)
        return cls(*parts, unit, adjacency, colluders, encoding.whole)

    @classmethod
    def of_guarantee(cls, guarantee: Guarantee, colluders: int) -> SecureClaim:
        """A proved Gaussian guarantee about the same people, to be joined with others: no slack.

        It has to hold against an untrusted server, as the others do.
        """
        if guarantee.mu is None or guarantee.basis != "proved":
            raise ValueError(
                "guarantee is not a proved one with a mu. Add its epsilon and delta to those of the others: "
                "hp.privacy.compose(guarantee, claim.guarantee(delta))."
            )
        if guarantee.view != "messages" or (guarantee.item, guarantee.observers) != (None, None):
            raise ValueError(
                "guarantee does not hold against an untrusted server for everybody. Join guarantees of the view "
                "'messages' for the worst item."
            )
        return cls(
            _up(guarantee.mu**2),
            0.0,
            0.0,
            guarantee.unit,
            guarantee.adjacency,
            colluders,
            guarantee.arithmetic == "whole" or guarantee.mu == 0,
        )

    def joined(self, *others: SecureClaim) -> SecureClaim:
        """One claim for all releases: the parts add up, and it holds against the fewest colluders of any."""
        total = self
        for other in others:
            if (other.unit, other.adjacency) != (self.unit, self.adjacency):
                raise ValueError(
                    f"claims are for one {self.unit} ({self.adjacency}) and one {other.unit} ({other.adjacency}). "
                    "Join claims of the same unit and adjacency."
                )
            total = replace(
                total,
                squared=_sum(total.squared, other.squared),
                spread=_sum(total.spread, other.spread),
                missed=_sum(total.missed, other.missed),
                colluders=min(total.colluders, other.colluders),
                is_whole=total.is_whole and other.is_whole,
            )
        return total

    @property
    def _mu(self) -> float:
        return _up(math.sqrt(self.squared)) if self.squared else 0.0

    def delta(self, epsilon: float) -> float:
        """A delta for this epsilon, rounded up."""
        inner = self._inner(epsilon)
        require(inner >= 0, "epsilon", epsilon, f"Pass {2 * self.spread:g}, the slack, or more.")
        return self._delta(inner)

    def epsilon(self, delta: float) -> float:
        """The least epsilon found for this delta, infinity if there is none; ``delta(epsilon)`` is never above it."""
        require(0 <= delta <= 1, "delta", delta, "Pass a probability from 0 to 1, for example 1e-6.")
        room = delta * math.exp(-self.spread)
        inner = 0.0
        for _ in range(60):  # from below: what b costs rises with epsilon
            following = gdp_epsilon(self._mu, max(0.0, room - self._far(inner)))
            if math.isinf(following) or following <= inner:
                break
            inner = following
        for lift in (0.0, 1e-12, 1e-9, 1e-6, 1e-3):
            outer = inner * (1 + lift) + (_up(2 * self.spread) + lift if self.spread else 0.0)
            if math.isfinite(following) and self._inner(outer) >= 0 and self.delta(outer) <= delta:
                return outer
        return math.inf

    def guarantee(self, delta: float) -> Guarantee:
        """The claim as a sentence. Its ``mu`` is None: read at another delta it must be converted again."""
        whom = f"{self.colluders} of the agreed sites" if self.colluders else "no site: its own noise is known to it"
        assumptions = (
            f"at most {whom} in league with the server" if self.colluders else f"the server is in league with {whom}",
            "computationally: X25519, HKDF, ChaCha20 and Ed25519 hold, and all sites know each other's signing keys",
            "the site counts each round in which a masked message left",
            "noise from every honest survivor, drawn exactly",
        )
        arithmetic = "whole" if self.is_whole else "real"
        return Guarantee(
            self.epsilon(delta),
            delta,
            None,
            self.unit,
            self.adjacency,
            "messages",
            "proved",
            "12",
            assumptions,
            arithmetic=arithmetic,  # type: ignore[arg-type]
        )

    def _inner(self, epsilon: float) -> float:
        """The epsilon of the Gaussian, ``epsilon - 2a`` rounded down."""
        return epsilon if self.spread == 0 else math.nextafter(epsilon - _up(2 * self.spread), -math.inf)

    def _far(self, inner: float) -> float:
        return 0.0 if self.missed == 0 else (1 + _exp(inner)) * self.missed

    def _delta(self, inner: float) -> float:
        found = gdp_delta(self._mu, inner) + self._far(inner)
        return min(1.0, found if self.spread == self.missed == 0 else _up(_exp(self.spread) * found))


def calibrated(
    budget: Budget,
    agreement: Agreement,
    *,
    bound: float,
    sensitivity: float,
    length: int,
    rounds: int,
    spare: int = 2,
    whole: bool = False,
) -> Encoding:
    """The encoding with the least noise for a budget: ``rounds``, and ``spare`` ones for rounds that fail.

    ``Encoding`` has the parameters. Steps are fine where there is room, so that rounding costs next to nothing.
    """
    total = require_count("rounds", rounds) + require_count("spare", spare, least=0)
    mu = gdp_mu(budget.epsilon, budget.delta)
    trouble = None
    for fineness in range(_FINE.bit_length() - 1, FINENESS.bit_length() - 2, -1):
        step = 2.0 ** math.floor(math.log2(sensitivity / (2**fineness * math.sqrt(length))))
        try:
            plain = Encoding(step, bound, sensitivity, length, 0, len(agreement.roster), agreement.honest, whole)
            return _least(plain, agreement, mu, total, budget)
        except ValueError as error:
            trouble = trouble or error
    assert trouble is not None
    raise trouble


def _least(plain: Encoding, agreement: Agreement, mu: float, rounds: int, budget: Budget) -> Encoding:
    """The least scale that is within the budget, but for a millionth."""

    def at(scale: int) -> Encoding:
        return replace(plain, scale=scale)

    def claimed(scale: int) -> SecureClaim:
        return SecureClaim.of_rounds(at(scale), agreement, rounds, unit="user", adjacency="zero-out")

    def is_within(scale: int) -> bool:
        claim = claimed(scale)
        return 2 * claim.spread < budget.epsilon and claim.delta(budget.epsilon) <= budget.delta

    low = max(1, math.floor(math.sqrt(rounds) * plain.distance / mu * (1 - 1e-9)))
    high, lift = low, 1e-6
    while not is_within(high):
        low, high, lift = high, math.floor(high * (1 + lift)) + 1, 2 * lift
        require(high <= WIDEST, "epsilon", budget.epsilon, "So much noise does not fit. Choose a larger one.")
    while high - low > max(1, low >> 20):
        middle = (low + high) // 2
        low, high = (low, middle) if is_within(middle) else (middle, high)
    require(
        claimed(high).spread <= _SPREAD * budget.epsilon,
        "length",
        plain.length,
        "So many numbers and rounds leave too much slack.",
    )
    return at(high)


def _up(value: float) -> float:
    """Past the rounding of the few operations that made it; 0 was perhaps an underflow."""
    return math.nextafter(value * (1 + 1e-12), math.inf)


def _sum(one: float, other: float) -> float:
    return one + other if one == 0 or other == 0 else math.nextafter(one + other, math.inf)


def _exp(value: float) -> float:
    """The exponential, infinite beyond what numbers hold."""
    return _up(math.exp(value)) if 0 < value < _LARGEST_EXPONENT else 1.0 if value <= 0 else math.inf
