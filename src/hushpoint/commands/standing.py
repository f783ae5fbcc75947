"""What a site has spent by its own ledger, in which state that is, and how it goes on where lines were lost."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from hushpoint.commands.federated import AsJson, EitherFolder, SiteFolder
from hushpoint.commands.federated_status import seen_of, tell_run, tell_seen


def status(folder: EitherFolder, as_json: AsJson = False) -> None:
    """Say what a site has spent, by its own ledger, and in which state that is; or where the run of a server stands.

    Example: hushpoint federated status hospitals/sites/03
    """
    from hushpoint.federated.folder import Site, is_secure

    if (folder / "federation.toml").is_file():
        tell_run(folder, as_json)
        return
    here, secure = Site(folder), is_secure(folder)
    record = _secure_record(here) if secure else _record(here)
    _tell({**record, **seen_of(here, secure=secure)}, as_json)


def _tell(record: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(record, indent=2))
        return
    elsewhere = " (and elsewhere an unknown number of times)" if record["unpriced"] else ""
    typer.echo(
        f"Site {record['site']} took part {record['participations']} times in run {record['run']}, "
        f"{record['in_all_runs']} times in all{elsewhere}."
    )
    for guarantee in record["spent"]:
        typer.echo(f"- {guarantee['statement']}")
    if record["said"]:
        typer.echo(record["said"])
    if record["ledger"] != "whole":
        typer.echo(f"{record['ledger']}: {record['words']}.")
    tell_seen(record)


def _counts(name: str, standing: Any, number: int) -> dict[str, Any]:
    ledger = standing.ledger
    return {
        "site": number,
        "run": name,
        "ledger": standing.name,
        "words": standing.words,
        "participations": ledger.count(name),
        "in_all_runs": ledger.total,
        "vouched_for": ledger.before + sum(one.count or 0 for one in ledger.vouched),
        "unpriced": ledger.has_unpriced,
        "spent": [],
        "said": "",
    }


def _record(here: Any) -> dict[str, Any]:
    from hushpoint.federated.standing import standing_of
    from hushpoint.federated.terms import spent, trust, units

    agreed, number = here.agreed(), here.number
    local = trust(agreed.plan) == "nobody"
    standing = _known(standing_of(here.store()), here.folder)
    record = _counts(agreed.run, standing, number)
    if local:
        plan, count = agreed.plan, record["participations"]
        record["spent"] = [spent(plan, count, unit=unit, site=number, seed=here.seed).to_dict() for unit in units(plan)]
    else:
        record["said"] = (
            "The noise of this method is the server's, and so is the statement of what is spent: ask for run.json."
        )
    return record


def _secure_record(here: Any) -> dict[str, Any]:
    from hushpoint.federated.secure.folder import SecureSiteFolder
    from hushpoint.federated.secure.spending import claimed
    from hushpoint.federated.standing import standing_of

    covenant = SecureSiteFolder(here).covenant()
    standing = _known(standing_of(here.store(), covenant.run), here.folder)
    record = _counts(covenant.run, standing, here.number)
    entries = standing.ledger.of(covenant.run) if standing.ledger is not None else ()
    so_far = claimed(entries, covenant).epsilon(covenant.budget.delta)
    told = "all of it" if standing.name == "closed" else f"epsilon = {so_far:.4g}"
    said = f"Counted so far: {told}. When rounds stop is the server's choice, so what holds is what was promised."
    promised = [covenant.promise().to_dict()]
    found = {"run": covenant.name, "rounds": len(entries), "counted_so_far": so_far, "promised": promised}
    return {**record, **found, "spent": promised, "said": said}


def _known(standing: Any, folder: Any) -> Any:
    """The state of a ledger by which something can be said; an error with the way out otherwise."""
    if standing.counts:
        return standing
    raise ValueError(f"{standing.name}: {standing.words}: hushpoint federated readmit {folder} --participations N")


def readmit(
    folder: SiteFolder,
    participations: Annotated[
        int,
        typer.Option(
            help="How often the site has taken part in this run, at most, lines that are left included: a number that "
            "you vouch for.",
            min=0,
        ),
    ],
    elsewhere: Annotated[
        int | None,
        typer.Option(
            help="How often in other runs, beside what the ledger still says; default: unknown, and then a limit in "
            "site.toml lets the site take no further part.",
            min=0,
        ),
    ] = None,
) -> None:
    """Go on where a ledger was lost or is an old copy, with numbers that a person vouches for.

    With secure sums the site takes no further part in the covenant, and goes on with the next.

    Example: hushpoint federated readmit hospitals/sites/03 --participations 20 --elsewhere 0
    """
    from hushpoint.federated.folder import Site, is_secure
    from hushpoint.federated.ledger import SiteStore
    from hushpoint.federated.secure.folder import SecureSiteFolder
    from hushpoint.federated.terms import participation_mu

    here = Site(folder)
    if is_secure(folder):
        covenant = SecureSiteFolder(here).covenant()
        # Whatever was sent: more than the covenant allows never was.
        SiteStore.readmit(folder, participations, covenant.run, claim=asdict(covenant.whole), elsewhere=elsewhere)
        typer.echo(
            f"The ledger in {folder} counts all that this covenant allows as spent. A ledger that may be an old copy "
            "counts as lost: the site takes no further part in this covenant, and goes on with the next one "
            "(hushpoint federated plan DIR --new-run, where the server is)."
        )
    else:
        agreed, number = here.agreed(), here.number
        mu = {unit: participation_mu(agreed.plan, unit, number) for unit in ("user", "record")}
        SiteStore.readmit(folder, participations, agreed.run, mu=mu, elsewhere=elsewhere)
        typer.echo(
            f"The ledger in {folder} counts {participations} participations in run {agreed.run}, vouched for by you. "
            f"Next: hushpoint federated site {folder}"
        )
    if elsewhere is None:
        typer.echo(
            "How often it took part in other runs was not said: while site.toml has a [limit], it takes no part."
        )
