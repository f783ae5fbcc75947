"""A federation with secure sums on one machine, to try out: all sites' keys are made here, and thrown away."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hushpoint.federated.folder import Federation, Outcome, Site
from hushpoint.federated.in_process import site_store
from hushpoint.federated.secure.folder import SecureFederation, SecureSiteFolder
from hushpoint.federated.secure.outcome import write_model
from hushpoint.federated.secure.record import SecureServerStore
from hushpoint.federated.secure.run import run_to_end
from hushpoint.federated.secure.server import SecureServer
from hushpoint.federated.secure.site import SecureSite

_AGREED = ("federation.toml", "schema.toml")


def rehearsal(federation: Federation, place: Path) -> Federation:
    """A copy of a federation whose sites have keys and have accepted; the data stays where it is.

    A covenant of this copy is for trying out: whoever has the folder has all keys.
    """
    folder = place / "federation"
    copy = Federation(folder)
    if not (folder / "covenant.json").exists():  # one that was given up half made
        shutil.rmtree(folder, ignore_errors=True)  # links to data are not followed
    elif _said(copy) != _said(federation):
        raise ValueError(
            f"{str(place)!r} holds a simulation of another agreement. Remove it, or write elsewhere: --out PLACE"
        )
    count, secure = federation.count, SecureFederation(copy)
    is_new = not folder.exists()
    if is_new:
        folder.mkdir(parents=True)
        for name in ("federation.toml", "schema.toml", "server.toml"):
            shutil.copy(federation.folder / name, folder / name)
    for site in range(count):
        here, there = copy.site(site, count), federation.site(site, count)
        if is_new:
            copy.new_site(site, here)
        if (there / "site.toml").exists():
            shutil.copy(there / "site.toml", here / "site.toml")
        said = Site(here).settings()
        data, test = str(said.get("data", "data.csv")), str(said.get("test", "test.csv"))
        if not (there / data).exists():
            raise ValueError(f'there is no file {str(there / data)!r}. Name the data in site.toml: data = "...".')
        for name in (data, test):
            (here / name).unlink(missing_ok=True)
            if (there / name).exists():
                (here / name).symlink_to((there / name).resolve())
        if is_new:
            secure.admit(SecureSiteFolder(Site(here)).make_keys())
    if is_new:
        copy.make_keys([], 365)
    fingerprint = secure.write().fingerprint
    for site in range(count):
        SecureSiteFolder(Site(copy.site(site, count))).accept(fingerprint)
    return copy


def _said(federation: Federation) -> tuple[str, str]:
    """What all agree on."""
    return tuple((federation.folder / name).read_text(encoding="utf-8") for name in _AGREED)  # type: ignore[return-value]


def rehearse(federation: Federation, place: Path, tell: Callable[[dict[str, Any]], None]) -> Outcome:
    """Run such a copy inside this process."""
    secure = SecureFederation(federation)
    covenant, store = secure.covenant(), SecureServerStore(place / "run")
    folders = [SecureSiteFolder(Site(federation.site(site, federation.count))) for site in range(federation.count)]
    sites = [_started(number, each, place) for number, each in enumerate(folders)]
    try:
        server = SecureServer(covenant, store, own_key=federation.own_key(), site_keys=secure.site_keys())
        run_to_end(server, sites, lambda record: tell(vars(record)))
        model = write_model(server, secure.learner(covenant), place / "run" / "model.json")
        store.tell(server, server.status, server.why)
        for site, letter in server.farewell(model).items():
            sites[site].answer(letter)
    finally:
        store.close()
    return Outcome(server.status, server.why)


def _started(number: int, folder: SecureSiteFolder, place: Path) -> SecureSite:
    try:
        return folder.secure_site(store=site_store(place, number))
    except ValueError as error:
        raise ValueError(f"site {number}: {error}") from None
