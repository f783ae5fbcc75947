"""Why a site did not take part, in words: one list for the logs, for both kinds of federation and for both sides."""

from __future__ import annotations

_READMIT = "restore the newest copy, or vouch for a number: hushpoint federated readmit"

WORDS = {
    "refused": "the message is not from the server of this federation, not for this site, or not as a round wants it",
    "plan": "it agreed to another plan, schema or covenant: compare fingerprints and versions, then agree anew",
    "stale": "its round is over for this site: the server was restored from an old copy",
    "over": "its round is over for this site, or the site has lost the secrets of it: another round will do",
    "cap": "the agreement allows this site no further round",
    "limit": "one more round would be beyond the site's own [limit]",
    "ledger": f"its ledger is lost, damaged or an old copy, so nobody knows what it has spent: {_READMIT}",
    "away": "it is outside its hours (window in site.toml)",
    "busy": "another process is at work in the folder of the site",
    "disk": "the site cannot write what it has to keep: its disk is full, or its folder closed",
    "failed": "the site could not compute its answer: hushpoint federated check says more, at the site",
    "signature or form": "what came is not signed with the site's key, or is no message",
    "no answer": "it was asked and has not answered",
    "silent": "it was asked and has not answered",
    "absent": "no node of this site is there: is it started, and does it reach the server?",
    "stranger": "a node calls itself a site and does not have its key",
}


def words_of(reason: str) -> str:
    """A reason for people; what is no word of the list says itself."""
    return WORDS.get(reason, reason)


def with_words(reason: str) -> str:
    """A reason and what it means."""
    words = words_of(reason)
    return reason if words == reason else f"{reason} ({words})"
