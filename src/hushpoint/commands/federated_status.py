"""Where a run stands, at the server and at a site: what ``hushpoint federated status`` says beside what is spent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from hushpoint.federated.folder import Site
    from hushpoint.federated.log import Log


# --- a site


def seen_of(site: Site, *, secure: bool) -> dict[str, Any]:
    """The last round, the state of the keys, the model, and the last words of the node."""
    from hushpoint.federated.check_site import key_state, run_of
    from hushpoint.federated.log import last_words

    model = site.folder / "model.json"
    return {
        "last_round": site.store().ledger().last_round(run_of(site, secure)),
        "keys": key_state(site, secure),
        "model": str(model) if model.is_file() else None,
        "said_last": last_words(site.folder / "node"),
    }


def tell_seen(found: dict[str, Any]) -> None:
    """The same for people."""
    from hushpoint.federated.log import in_words

    typer.echo(f"Last round: {found['last_round'] or 'none'}. Ledger: {found['ledger']}. Keys: {found['keys']}.")
    if found["model"]:
        typer.echo(f"Model: {found['model']}")
    last = found["said_last"]
    if last:
        typer.echo(f"Said last, at {last['time']}: {in_words(last)}")


def log_the_end(log: Log, site: Site, error: ValueError) -> None:
    """Why a site did not start, or ended, for a log that others may read: what a check finds, not what was raised."""
    from hushpoint.federated.check_site import check_site
    from hushpoint.federated.disk import Busy
    from hushpoint.federated.node import NotAdmitted
    from hushpoint.federated.reach import CODES

    if isinstance(error, Busy | NotAdmitted):  # of these the words are our own, and of no data
        code = str(error).partition(": ")[0]
        reason = "busy" if isinstance(error, Busy) else code if code in CODES else "not admitted"
        log.say("end", str(error), reason=reason)
        return
    problems = [line for line in check_site(site, offline=True) if line.state == "problem"]
    for line in problems:
        log.say("end", f"{line.words}. {line.remedy}".strip(), reason=line.what)
    if not problems:
        log.say("end", "the site ended; what it says without --log json tells more", reason="failed")


# --- the server


def tell_run(folder: Path, as_json: bool) -> None:
    """Where the run of a server stands."""
    from hushpoint.federated.folder import Federation

    federation = Federation(folder)
    found = {**run_standing(federation.run), "certificate": _certificate(federation.keys)}
    lines = [*_words(found), *filter(None, [found["certificate"]])]
    typer.echo(json.dumps(found, indent=2) if as_json else "\n".join(lines))


def _certificate(keys: Path) -> str:
    """What is wrong with the certificate of a server, or soon will be; empty where nothing is, or there is none."""
    from hushpoint.federated.check import RENEWAL, certificate_line
    from hushpoint.federated.log import now

    places = [keys / "ca.crt", keys / "server.crt"]
    line = certificate_line(places, now, RENEWAL)
    return f"{line.words}. {line.remedy}" if line.state == "problem" and places[1].is_file() else ""


def run_standing(place: Path) -> dict[str, Any]:
    """Status, round, who took part in the last exchange, who did not and why, what is spare and spent, the model."""
    from hushpoint.federated.watch import standing

    try:
        record = json.loads((place / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        record = {}
    now, model = standing(place), place / "model.json"
    spare = record["spare_rounds"] - record["failed_rounds"] if "spare_rounds" in record else None
    return {
        "run": now.get("run", record.get("run")),
        "status": now.get("status", record.get("status", "not begun")),
        "at_work": bool(now.get("alive")) and now.get("status") == "running",
        "round": now.get("round", record.get("rounds")),
        "planned_rounds": record.get("planned_rounds"),
        "exchange": now.get("exchange", ""),
        "attempt": now.get("attempt", 0),
        "answered": now.get("answered", []),
        "waiting": now.get("waiting", []),
        "trouble": now.get("trouble", {}),
        "last_round": now.get("last_round", {}),
        "spare_left": None if spare is None else max(spare, 0),
        "spent": record.get("spent", []),
        "model": str(model) if model.is_file() else None,
        "seen": now.get("time"),
    }


def _words(found: dict[str, Any]) -> list[str]:
    from hushpoint.federated.reasons import with_words

    if found["run"] is None:
        return ["No run was begun."]
    going = "" if found["status"] != "running" else ", at work" if found["at_work"] else ", and nobody is at work on it"
    of = f" of {found['planned_rounds']}" if found["planned_rounds"] else ""
    exchange = f", exchange {found['exchange']!r}" if found["exchange"] and found["status"] == "running" else ""
    lines = [f"Run {found['run']}: {found['status']}{going}. Round {found['round']}{of}{exchange}."]
    last = found["last_round"]
    if last:
        lines.append(f"Round {last['round']} ended at {last['at']}; {last['answered']} sites had answered.")
    if found["status"] == "running" or found["trouble"]:
        lines.append(f"Answered: {_sites(found['answered'])}. Waited for: {_sites(found['waiting'])}.")
    lines += [f"Site {site}: {with_words(reason)}." for site, reason in found["trouble"].items()]
    if found["spare_left"] is not None:
        lines.append(f"Room for failed rounds: {found['spare_left']} left.")
    lines += [f"- {guarantee['statement']}" for guarantee in found["spent"]]
    lines.append(f"Model: {found['model'] or 'none yet'}")
    return lines


def _sites(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers)) or "nobody"
