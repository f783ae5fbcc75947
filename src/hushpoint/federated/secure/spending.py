"""What a site has spent in secure sums, by the lines of its ledger."""

from __future__ import annotations

from collections.abc import Iterable

from hushpoint.federated.ledger import Ledger, Participation, Vouched
from hushpoint.federated.secure.covenant import Covenant
from hushpoint.privacy.guarantee import Budget
from hushpoint.secure.claim import SecureClaim


def claimed(entries: Iterable[Participation], covenant: Covenant) -> SecureClaim:
    """The claim of all rounds in which a masked message of a run was made."""
    training = covenant.training
    total = SecureClaim(0.0, 0.0, 0.0, training.unit, training.adjacency, covenant.agreement.colluders)
    for entry in entries:
        assert entry.claim is not None  # a run has lines of one kind
        total = total.joined(SecureClaim(**entry.claim))
    return total


def within_limit(ledger: Ledger, price: SecureClaim, covenant: Covenant, limit: Budget) -> bool:
    """Whether all that the site ever spent, with one more round, is within its own limit.

    What has no bound for the same unit and adjacency may have been anything; a limit for others is no limit for this.
    """
    if limit.unit not in (None, price.unit) or limit.adjacency not in (None, price.adjacency):
        return False
    if ledger.has_unpriced:
        return False
    total, vouched = price, [one for one in ledger.vouched if one.count != 0 or one.claim is not None]
    kept: list[tuple[int, Participation | Vouched]] = [(1, entry) for entry in ledger.entries]
    for count, entry in [*kept, *((one.count or 0, one) for one in vouched)]:
        if entry.claim is not None:  # of what was vouched for, that of all of it
            one = SecureClaim(**entry.claim)
        else:
            mu = entry.mu.get(price.unit)
            if mu is None or price.adjacency != "replace-one":
                return False
            squared = count * mu**2 * (1 + 1e-12)
            one = SecureClaim(squared, 0.0, 0.0, price.unit, price.adjacency, price.colluders)
        if (one.unit, one.adjacency) != (price.unit, price.adjacency):
            return False
        total = total.joined(one)
    return total.epsilon(limit.delta) <= limit.epsilon
