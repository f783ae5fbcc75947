"""Why a site took no part, in words: one list for the logs, for both kinds of federation and for both sides."""

from __future__ import annotations

_READMIT = "restore the newest copy of ledger.jsonl; if there is none: hushpoint federated readmit"

WORDS = {
    "refused": "the request was not from the server of this federation, not for this site, or not as a round wants it",
    "plan": "the request was of another plan, schema or run than was agreed: compare the agreements, and versions",
    "another run": "another plan, schema or run was agreed to there: compare the agreements, and agree anew",
    "stale": "the round is over for the site: the server was restored from an old copy",
    "over": "the round is over for the site, or it lost the secrets of it: the next round goes on",
    "cap": "the site has taken part as often as was agreed",
    "limit": "one more round would be beyond the site's own [limit], or what it spent elsewhere is not known",
    "ledger": f"the ledger is lost, so nobody knows what was spent: {_READMIT}",
    "old-ledger": f"the ledger is an old copy: messages have left that it does not know of: {_READMIT}",
    "closed": "the ledger was lost, or an old copy, in this covenant: the site goes on with the next one",
    "away": "the site is outside its hours (window in site.toml)",
    "busy": "another process is at work in the folder of the site: end one of them",
    "disk": "the site cannot write what it has to keep: its disk is full, or its folder is closed",
    "failed": "the site could not compute its answer: hushpoint federated check says more, at the site",
    "signature or form": "what came is not signed with the site's key, or is no message",
    "no answer": "it was asked, and has not answered",
    "absent": "no node of it is there: is it started, and does it reach the server?",
    "stranger": "a node says that it is a site, and has not its key",
}


def words_of(reason: str) -> str:
    """A reason for people; what is no word of the list speaks for itself."""
    return WORDS.get(reason, reason)


def with_words(reason: str) -> str:
    """A reason and what it means."""
    words = words_of(reason)
    return reason if words == reason else f"{reason} ({words})"
