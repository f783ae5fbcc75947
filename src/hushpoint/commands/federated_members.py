"""Who comes and goes, from the command line: sites join and leave, keys and certificates are revoked and renewed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hushpoint.commands.federated import EitherFolder, Folder

SiteNumber = Annotated[int, typer.Argument(metavar="SITE", help="The number of the site.", min=0)]


def join(
    folder: Folder,
    rows: Annotated[
        int | None, typer.Option("--rows", help="Its public number of rows (users, where [sites] has users).", min=1)
    ] = None,
    name: Annotated[str | None, typer.Option(help="What it is called, where sites have names.")] = None,
    held_out: Annotated[
        int | None, typer.Option(help="Its public number of held-out rows or users, for [evaluation].", min=1)
    ] = None,
) -> None:
    """At the server: make room for one more site, and a folder for it.

    Example: hushpoint federated join hospitals --rows 900
    """
    from hushpoint.federated import members
    from hushpoint.federated.folder import Federation

    federation = Federation(folder)
    site = members.join(federation, rows, name, held_out)
    place = federation.site(site, federation.count)
    typer.echo(
        f"Site {site} may join: hand it {place}. There: hushpoint federated keys SITE_DIR, and send request.json\n"
        f"back. Here: hushpoint federated admit {folder} REQUEST.\n{_then(federation.is_secure, folder)}"
    )


def leave(folder: Folder, site: SiteNumber) -> None:
    """At the server: take a site out of the agreement; the numbers of those after it are one less from then on.

    Example: hushpoint federated leave hospitals 1
    """
    from hushpoint.federated import members
    from hushpoint.federated.folder import Federation

    federation = Federation(folder)
    place = members.leave(federation, site)
    typer.echo(f"Site {site} has left. What was here of it is in {place}.")
    for other in range(site, federation.count):
        typer.echo(f"Site {other + 1} is site {other} now: its site.toml has to say site = {other}.")
    typer.echo(
        "The site.toml in folders here say so; others have to be changed where the sites are.\n"
        f"{_then(federation.is_secure, folder)}"
    )


def revoke(folder: Folder, site: SiteNumber) -> None:
    """At the server: withdraw the keys of a site, until it has sent others.

    Example: hushpoint federated revoke hospitals 1
    """
    from hushpoint.federated import members
    from hushpoint.federated.folder import Federation

    federation = Federation(folder)
    members.revoke(federation, site)
    typer.echo(
        f"The keys of site {site} are revoked, and are in {folder / 'roster' / 'revoked'}.\n"
        "A SuperLink that runs still knows them: end it now. It starts again when the site has made new keys\n"
        f"(there: hushpoint federated rotate SITE_DIR; here: hushpoint federated admit {folder} REQUEST),\n"
        f"or has left (hushpoint federated leave {folder} {site}).\n"
        f"{_then(federation.is_secure, folder, keys_only=True)}"
    )


def rotate(
    folder: EitherFolder,
    days: Annotated[int, typer.Option(help="At the server: how long the new certificate holds.", min=1)] = 365,
) -> None:
    """At a site: make new keys. At the server: make a new certificate.

    Example: hushpoint federated rotate hospitals
    """
    from hushpoint.federated.folder import Federation, Site, is_secure

    if (folder / "site.toml").is_file():
        from hushpoint.federated.members import renew_keys

        request = renew_keys(Site(folder))
        again = "accept the new covenant, and start the node again" if is_secure(folder) else "start the node again"
        typer.echo(
            f"Wrote new keys that stay in {folder}; the old ones are there as *.old. Send {request} to whoever runs\n"
            f"the server, who admits it with --replace. Then {again}."
        )
        return
    if not (folder / "federation.toml").is_file():
        raise ValueError(f"{str(folder)!r} has neither site.toml nor federation.toml. Name the folder of either side.")
    Federation(folder).renew_certificate(days)
    typer.echo(
        f"Made another certificate of the server, for {days} days.\n"
        f"Hand {folder / 'keys' / 'ca.crt'} to every site again, and restart the SuperLink, then the\n"
        "nodes: sites refuse other certificates. The agreement stays."
    )


def _then(secure: bool, folder: Path, *, keys_only: bool = False) -> str:
    """How all come to the agreement that this makes necessary."""
    if keys_only and not secure:
        return "The plan stays: it is agreed on with sites, whatever their keys."
    handed = (
        "covenant.json out, which every site accepts"
        if secure
        else "plan.json, schema.toml and agreement.json to every site"
    )
    return (
        f"Then another run is to be agreed on: hushpoint federated plan {folder} --new-run, and hand {handed}.\n"
        "Restart the SuperLink. A run that was not finished ends here; what it spent stays counted at the sites."
    )
