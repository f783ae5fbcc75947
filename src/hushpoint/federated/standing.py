"""What state the ledger of a site is in: a name, a message for its people, and the way out."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hushpoint.federated.disk import Damaged
from hushpoint.federated.ledger import Ledger, SiteStore


@dataclass(frozen=True)
class Standing:
    """The state of a ledger by its name in ``STATES``; the ledger itself unless it is lost."""

    name: str
    ledger: Ledger | None

    @property
    def words(self) -> str:
        """What it means and what is to be done."""
        return STATES[self.name]

    @property
    def counts(self) -> bool:
        """Whether what the site has spent is known by its ledger."""
        return self.name in ("whole", "vouched", "closed")


STATES = {
    "whole": "the ledger is whole",
    "vouched": "the ledger is whole; a person vouched for a part of what it counts",
    "lost": "the ledger is lost or damaged: nobody knows what this site has spent, and it takes no part. Restore the "
    "newest copy of ledger.jsonl, or go on with a number that you vouch for",
    "old-ledger": "the ledger is an old copy: messages have left that it does not know of, and the site takes no part. "
    "Restore the newest copy of ledger.jsonl, or go on with a number that you vouch for",
    "closed": "the ledger was lost, or was an old copy, in this covenant: the site takes no further part in it, and "
    "goes on with the next one",
}


def standing_of(store: SiteStore, closed_run: str = "") -> Standing:
    """The state of a ledger. ``closed_run``: a run of secure sums, which what was vouched for in it closes."""
    try:
        ledger = store.ledger()
    except Damaged:
        return Standing("lost", None)
    if store.is_old(ledger):
        return Standing("old-ledger", ledger)
    if (pending := store.pending(ledger)) is not None:
        ledger = replace(ledger, entries=(*ledger.entries, pending))
    if closed_run and any(one.run == closed_run for one in ledger.vouched):
        return Standing("closed", ledger)
    return Standing("vouched" if ledger.vouched or ledger.before else "whole", ledger)
