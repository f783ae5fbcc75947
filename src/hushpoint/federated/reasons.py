"""Why a site took no part, in words: those of ``ends``, and what a server sees besides."""

from __future__ import annotations

from hushpoint.federated.ends import REASONS

WORDS = {
    **{reason: why.at_server for reason, why in REASONS.items()},
    "signature or form": "sends what is not signed with its key, or is no message",
    "stranger": "a node says that it is a site, and has not its key",
}


def words_of(reason: str) -> str:
    """A reason as the server says it of a site; what is no word of the list speaks for itself."""
    return WORDS.get(reason, reason)


def at_site(reason: str) -> str:
    """A reason for the people of the site, with the way out."""
    known = REASONS.get(reason)
    return known.at_site if known is not None and known.at_site else words_of(reason)


def with_words(reason: str) -> str:
    """A reason and what it means."""
    words = words_of(reason)
    return reason if words == reason else f"{reason} ({words})"
