"""The page of a federated run: who took part, what travelled, what was spent, and by whom it is promised."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hushpoint.privacy.guarantee import Guarantee
from hushpoint.report import words
from hushpoint.report.page import Html, commands, document, element, joined, long_table, number, table, warning

Line = dict[str, Any]

_STATES = {
    "running": "is not finished: run it again to go on from its last round",
    "finished": "is finished",
    "stalled": "has stalled: too few sites answered; run it again to go on",
    "spent": "has ended: sites have spent what they may",
    "lost": "is lost: its last rounds were run by a server whose memory is gone, so they are counted and have no model",
}
_WHOSE = {"user": "A site as a whole", "record": "One record of a site"}


def federated_page(place: Path) -> str:
    """The page, from the folder of the server.

    How long a round took is left out, since no guarantee covers it: it may tell of data, or of who was asked. Who was
    asked is left out where the guarantee counts on its secrecy.
    """
    from hushpoint.federated.disk import read_lines

    folder = place if place.is_dir() else place.parent
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    lines = read_lines(folder / "rounds.jsonl")
    sites = run["plan"]["facts"]["items"]
    lead = (
        f"{run['name']} over {sites} sites, {run['rounds']} of {run['planned_rounds']} rounds: the run "
        f"{_STATES.get(run['status'], run['status'])}{' (' + run['why'] + ')' if run.get('why') else ''}."
    )
    return document(
        "A federated run",
        lead,
        [
            ("The guarantee", _guarantees(run)),
            ("The rounds", _rounds(run, lines)),
            ("The sites", _sites(run, lines)),
            ("What was run", [_plan(run)]),
            ("Run it again", [commands("hushpoint federated run DIRECTORY", f"hushpoint report {folder.name}")]),
        ],
    )


def _guarantees(run: Line) -> list[Html]:
    if run["trusted"] == "nobody":
        said = (
            "Nobody needs to be trusted: every site adds its noise before a message leaves, counts its own messages "
            "and stops at its own limit. The statements are for the site that took part most often."
        )
    else:
        said = (
            "The server is trusted: it sees the messages of the sites and adds the noise to what it releases. The "
            "statements are about everything that it has released."
        )
    parts: list[Html] = [element("p", said)]
    if run["secret_sample"]:
        parts.append(
            warning(
                "The sample is a secret.",
                "The guarantee counts on nobody knowing who took part in which round. This page leaves it out; the "
                "server's folder has it and is not for publication.",
            )
        )
    for spent, promised in zip(run["spent"], run["promised"], strict=True):
        now, end = Guarantee.from_dict(spent), Guarantee.from_dict(promised)
        parts.append(element("h3", _WHOSE.get(now.unit, now.unit) if len(run["spent"]) > 1 else "One site"))
        so_far, after_all = words.rounded_up(now.epsilon), words.rounded_up(end.epsilon)
        said = f"Spent so far: epsilon = {so_far}. After all planned rounds: {after_all}."
        parts += [element("p", said), words.plainly(now, "the run")]
    return parts


def _rounds(run: Line, lines: Sequence[Line]) -> list[Html]:
    if not lines:
        return [element("p", "No round was finished yet.")]
    secret = run["secret_sample"]
    units = list(lines[-1]["epsilon"])
    public = ["round", "objective", *(f"epsilon, {'site' if unit == 'user' else unit}" for unit in units)]
    header = public if secret else [*public, "asked", "answered", "attempts", "bytes down", "bytes up"]

    def cells(line: Line) -> list[Any]:
        spent = (number(line["epsilon"][unit]) for unit in units)
        shown: list[Any] = [str(line["round"]), number(line["objective"]), *spent]
        if not secret:
            shown += [str(len(line["asked"])), str(len(line["answered"])), str(line["attempts"])]
            shown += [f"{line['bytes_down']:,}", f"{line['bytes_up']:,}"]
        return shown

    listed = [cells(line) for line in lines[::-1]]
    parts = long_table("Rounds, the last one first", header, listed, "Earlier rounds", "The {} rounds before")
    if all(line["objective"] is None for line in lines):
        parts.append(element("p", "No public validation set was given, so no objective was logged."))
    return parts


def _sites(run: Line, lines: Sequence[Line]) -> list[Html]:
    rows = run["plan"]["facts"]["rows_per_item"]
    if run["secret_sample"]:
        return [element("p", "How often each site took part is a part of the secret.")]
    counts = run["participations"]
    trouble: dict[int, Counter[str]] = defaultdict(Counter)
    for line in lines:
        for site, reason in [*line["declined"].items(), *line["refused"].items()]:
            trouble[int(site)][reason] += 1
    listed = [
        [
            f"site {site}",
            "" if rows is None else f"{rows[site]:,}",
            str(count),
            "; ".join(f"{reason} ({times})" for reason, times in trouble[site].items()) or "none",
        ]
        for site, count in enumerate(counts)
    ]
    header = ["site", "rows", "participations", "declined or refused"]
    said = "Participations are what each site's own ledger says, plus requests that it may have answered in vain."
    return [element("p", said), *long_table("The sites", header, listed, "The other sites", "The other {} sites")]


def _plan(run: Line) -> Html:
    plan = run["plan"]
    facts = {name: value for name, value in plan["facts"].items() if name != "rows_per_item" and value is not None}
    rows = [("method", plan["method"])]
    rows += [(f"facts: {name.replace('_', ' ')}", _plain(value)) for name, value in sorted(facts.items())]
    rows += [(name.replace("_", " "), _plain(value)) for name, value in sorted(plan["parameters"].items())]
    rows += [("budget", _plain(plan["budget"]))] if plan["budget"] else []
    said = f"The plan that every site agreed to, by its digest {run['run']}:"
    return joined([element("p", said), table("The plan", ("what", "value"), rows)])


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(entry)}" for name, entry in value.items() if entry is not None)
    return number(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)
