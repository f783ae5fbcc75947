"""How a run ends, in words and with a code, and what a site that takes no part says: who, why, and the way out.

The tables of docs/howto-local-noise.md and docs/howto-federated.md are these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_SAID = {"unfinished": "is unfinished", "refused": "was refused", "lost": "is lost", "spent": "is spent"}


@dataclass(frozen=True)
class Outcome:
    """How a run ended: one of ``ENDS``, and who or what was the reason."""

    name: str
    words: str = ""

    @property
    def code(self) -> int:
        """The exit code of the command."""
        return ENDS[self.name].code

    @property
    def sentence(self) -> str:
        """How it ended, who or what was the reason, and how it goes on."""
        end = ENDS[self.name]
        why = (self.words or end.means).rstrip(".")
        way_on = f" {end.way_on}." if end.way_on else ""
        return f"the run {_SAID.get(self.name, self.name)}: {why}.{way_on}"


@dataclass(frozen=True)
class End:
    """A way in which a run ends: its exit code, what it means, and how it goes on."""

    code: int
    means: str
    way_on: str = ""


LOST = "sites know of later rounds than this server does; they are counted, and their model is not here"
FAILED = "failed rounds have used up what the sites allow"
_AGAIN = "Run the same command again to go on"

ENDS = {
    "finished": End(0, "all rounds of the plan are done"),
    "died": End(1, "the server's process ended without a word", _AGAIN),
    "refused": End(1, "something is wrong with the folder of the federation", "See to what the message names"),
    "stalled": End(3, "fewer sites answered than a round needs", "See to the sites that are named, then run it again"),
    "unfinished": End(3, "it goes on at the server, and is no longer watched", _AGAIN),
    "spent": End(
        4,
        "sites that a round needs have spent what they may",
        "The model of the last round stands; more needs a new agreement, or a larger [limit] at the site",
    ),
    "lost": End(
        5,
        LOST,
        "Restore the newest run folder, or begin another run: hushpoint federated plan DIR --new-run",
    ),
}


@dataclass(frozen=True)
class Why:
    """Why a site takes no part: as the server says it of a site, and to the people of the site itself."""

    at_server: str
    at_site: str
    is_spent: bool = False  # it has spent what it may
    is_lasting: bool = False  # it does not pass by itself


REASONS = {
    "refused": Why(
        "could not read the request, or it was not signed by the server that it knows",
        "a request was not from the server that this site knows. Compare server.pub with whoever runs the server",
    ),
    "plan": Why(
        "agreed to another plan, schema or run",
        "the server asks for another plan, schema or run than this site agreed to. Compare the agreements, and take "
        "the new one only if it is wanted",
        is_lasting=True,
    ),
    "stale": Why(
        "has taken part in a later round than this server knows of, and shows no request of this server that says so",
        "the server asks for a round that is over here: it was restored from an old copy. Whoever runs it restores the "
        "newest one, or begins another run",
    ),
    "over": Why(
        "has lost the secrets of the round, or it is over there",
        "the secrets of the round are not here: the round will be given up, and the next one goes on",
    ),
    "cap": Why(
        "has taken part as often as was agreed",
        "this site has taken part as often as was agreed. Nothing is to be done",
        is_spent=True,
        is_lasting=True,
    ),
    "limit": Why(
        "has spent its own limit",
        "one more round would exceed [limit] in site.toml, or what was spent elsewhere is not known",
        is_spent=True,
        is_lasting=True,
    ),
    "ledger": Why(
        "has lost its ledger, so nobody knows what it has spent",
        "the ledger is lost or damaged. Restore the newest copy of ledger.jsonl; if there is none: "
        "hushpoint federated readmit",
        is_lasting=True,
    ),
    "old-ledger": Why(
        "has an old copy of its ledger",
        "the ledger is an old copy: messages have left that it does not know of. Restore the newest copy of "
        "ledger.jsonl; if there is none: hushpoint federated readmit",
        is_lasting=True,
    ),
    "closed": Why(
        "lost its ledger in this covenant, so that only a new one goes on with it",
        "the ledger was lost, or was an old copy, in this covenant: whatever was sent cannot be known. This site goes "
        "on with the next covenant",
        is_lasting=True,
    ),
    "model": Why(
        "was handed a model that is not the server's, or not of its run and schema",
        "a model was handed over that the server did not sign, or of another run or schema: not taken",
    ),
    "away": Why("is outside its hours", "a request came outside the window in site.toml"),
    "busy": Why("is at work in another process", "another process is at work in this folder. End one of them"),
    "disk": Why(
        "cannot write what it has to keep, so nothing left",
        "what has to be kept cannot be written: the disk is full, or the folder is closed. Nothing was sent",
    ),
    "failed": Why("could not compute its answer", "the answer could not be computed: look at the data"),
    "no answer": Why("did not answer", ""),
    "absent": Why("is not there", ""),
    "another run": Why("is there, and agreed to another plan, schema or run", ""),
}


def spent_reasons() -> tuple[str, ...]:
    """Reasons of a site that has spent what it may."""
    return tuple(reason for reason, why in REASONS.items() if why.is_spent)


def lasting_reasons() -> tuple[str, ...]:
    """Reasons that do not pass by themselves."""
    return tuple(reason for reason, why in REASONS.items() if why.is_lasting)


def who_and_why(reasons: Mapping[int, str]) -> str:
    """Which sites took no part and why, in a sentence; empty where all did."""
    sites_of: dict[str, list[int]] = {}
    for site, reason in sorted(reasons.items()):
        if reason:
            sites_of.setdefault(reason, []).append(site)
    return "; ".join(f"{_named(sites)} {_told(reason)}" for reason, sites in sites_of.items())


def _named(sites: list[int]) -> str:
    return f"site {sites[0]}" if len(sites) == 1 else f"each of sites {', '.join(map(str, sites))}"


def _told(reason: str) -> str:
    known = REASONS.get(reason)
    return f"{known.at_server} ({reason})" if known else f"sent what is no answer ({reason})"


def told_at_site(reason: str) -> str:
    """What the people of a site are told when it declines, with the way out."""
    known = REASONS.get(reason)
    return f"declined ({reason}): {known.at_site if known and known.at_site else 'see the documentation'}."
