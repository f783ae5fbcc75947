"""Why a site took no part, in words: one list for the logs, for both kinds of federation and for both sides."""

from __future__ import annotations

from hushpoint.federated.ends import REASONS

WORDS = {
    **{reason: why.at_site or f"the site {why.at_server}" for reason, why in REASONS.items()},
    "signature or form": "what came is not signed with the site's key, or is no message",
    "stranger": "a node says that it is a site, and has not its key",
}


def words_of(reason: str) -> str:
    """A reason for people; what is no word of the list speaks for itself."""
    return WORDS.get(reason, reason)


def with_words(reason: str) -> str:
    """A reason and what it means."""
    words = words_of(reason)
    return reason if words == reason else f"{reason} ({words})"
