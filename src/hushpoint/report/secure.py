"""The page of a run with secure sums: what was trained, what is promised and spent, and how its rounds went."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hushpoint.privacy.guarantee import Guarantee
from hushpoint.report import words
from hushpoint.report.page import Html, commands, document, element, long_table, number, table

Line = dict[str, Any]

_STATES = {
    "running": "is not finished: run it again to go on from its last round",
    "stalled": "has stalled: too few sites answered; run it again to go on",
    "finished": "is finished",
    "spent": "has ended: failed rounds used up what the sites allow, or sites what they may spend",
}


def secure_page(place: Path) -> str:
    """The page, from the folder of the run. Times are left out, since no guarantee covers them."""
    from hushpoint.federated.disk import read_lines

    folder = place if place.is_dir() else place.parent
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    lines = read_lines(folder / "rounds.jsonl")
    lead = (
        f"{run['name']} over {len(run['sites'])} sites, {run['rounds']} rounds of which {run['failed_rounds']} failed "
        f"after messages may have left: the run {_STATES.get(run['status'], run['status'])}"
        f"{' (' + run['why'] + ')' if run.get('why') else ''}."
    )
    return document(
        "A federated run in which nobody is trusted",
        lead,
        [
            ("The guarantee", _guarantee(run)),
            *_figures(run),
            ("The rounds", _rounds(lines)),
            ("The sites", _sites(run, lines)),
            ("What was agreed", [_agreed(run)]),
            _next(run["status"], folder.name),
        ],
    )


def _next(status: str, folder: str) -> tuple[str, list[Html]]:
    if status == "finished":
        return "Use it", [
            commands(f"hushpoint predict {folder}/model.json NEW.csv", f"hushpoint report {folder}/model.json")
        ]
    return "Go on with it", [commands("hushpoint federated run DIRECTORY", f"hushpoint report {folder}")]


def _guarantee(run: Line) -> list[Html]:
    said = (
        "Every release was a sum of which nobody saw the parts: the server learned the sites' sums with noise that the "
        "sites drew themselves, each its share. The statement is for a site that took part in every round; each site "
        "counts its own rounds and stops at what was agreed."
    )
    now, end = (Guarantee.from_dict(run[name][0]) for name in ("spent", "promised"))
    spent = (
        f"Spent so far: epsilon = {words.rounded_up(now.epsilon)}. Promised: at most {words.rounded_up(end.epsilon)}."
    )
    return [element("p", said), element("p", spent), words.plainly(now, "the run")]


def _figures(run: Line) -> list[tuple[str, list[Html]]]:
    from hushpoint.tables.figures import Figure, in_words

    told = run.get("held_out")
    if not told:
        return []
    figures = in_words({name: Figure(**figure) for name, figure in told["figures"].items()}, "hidden by the noise")
    said = (
        f"Means over {told['items']:,} {told['unit']}s that no training saw, summed in secret like every release; "
        "after ± stands the standard deviation of the noise. They are within the guarantee above."
    )
    return [("How good it is", [element("p", said), table("On held-out rows", ("what", "value"), figures)])]


def _rounds(lines: Sequence[Line]) -> list[Html]:
    if not lines:
        return [element("p", "No round was finished yet.")]
    header = ["round", "epsilon", "in the sum", "bytes down", "bytes up"]
    listed = [
        [
            str(line["round"]),
            ", ".join(number(value) for value in line["epsilon"].values()),
            f"{len(line['answered'])} of {len(line['asked'])}",
            f"{line['bytes_down']:,}",
            f"{line['bytes_up']:,}",
        ]
        for line in lines[::-1]
    ]
    said = "A round with nobody in the sum was given up. Epsilon is what was spent by then."
    return [
        element("p", said),
        *long_table("Rounds, the last one first", header, listed, "Earlier rounds", "The {} rounds before"),
    ]


def _sites(run: Line, lines: Sequence[Line]) -> list[Html]:
    trouble: dict[str, Counter[str]] = {str(site): Counter() for site in range(len(run["sites"]))}
    for line in lines:
        for site, reason in [*line["declined"].items(), *line["refused"].items()]:
            trouble.setdefault(site, Counter())[reason] += 1
    listed = [
        [
            name,
            str(sum(site in line["answered"] for line in lines)),
            "; ".join(f"{reason} ({times})" for reason, times in trouble[str(site)].items()) or "none",
        ]
        for site, name in enumerate(run["sites"])
    ]
    return long_table(
        "The sites", ["site", "in so many sums", "declined or refused"], listed, "The others", "The other {} sites"
    )


def _agreed(run: Line) -> Html:
    facts = run["facts"]
    rows = [
        ("model or method", run["name"]),
        ("items", f"{facts['items']:,}"),
        ("features", str(facts["features"])),
        ("sites that may collude with the server", str(run["colluders"])),
        ("fewest sites in a sum", str(run["survivors"])),
        ("room for failed rounds", str(run["spare_rounds"])),
        ("fingerprint of the covenant", run["fingerprint"]),
    ]
    return table("The covenant that every site accepted", ("what", "value"), rows)
