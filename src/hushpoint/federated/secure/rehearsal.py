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


def rehearsal(federation: Federation, place: Path) -> Federation:
    """A copy of a federation whose sites have keys and have accepted; the data stays where it is.

    A covenant of this copy is for trying out: whoever has the folder has all keys.
    """
    folder = place / "federation"
    copy = Federation(folder)
    if (folder / "covenant.json").exists():
        return copy
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("federation.toml", "schema.toml", "server.toml"):
        shutil.copy(federation.folder / name, folder / name)
    count, secure = federation.count, SecureFederation(copy)
    for site in range(count):
        here = copy.site(site, count)
        copy.new_site(site, here)
        settings = federation.site(site, count) / "site.toml"
        if settings.exists():
            shutil.copy(settings, here / "site.toml")
        said = Site(here).settings()
        for given in (str(said.get("data", "data.csv")), str(said.get("test", "test.csv"))):
            data = (federation.site(site, count) / given).resolve()
            if data.exists():
                (here / given).symlink_to(data)
        secure.admit(SecureSiteFolder(Site(here)).make_keys())
    copy.make_keys([], 365)
    fingerprint = secure.write().fingerprint
    for site in range(count):
        SecureSiteFolder(Site(copy.site(site, count))).accept(fingerprint)
    return copy


def rehearse(federation: Federation, place: Path, tell: Callable[[dict[str, Any]], None]) -> Outcome:
    """Run such a copy inside this process."""
    secure = SecureFederation(federation)
    covenant, store = secure.covenant(), SecureServerStore(place / "run")
    folders = [SecureSiteFolder(Site(federation.site(site, federation.count))) for site in range(federation.count)]
    sites = [each.secure_site(store=site_store(place, number)) for number, each in enumerate(folders)]
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
