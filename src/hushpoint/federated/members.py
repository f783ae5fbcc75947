"""Who comes and goes: sites join and leave, keys are revoked and replaced.

Each of these changes what all agree on, so that no run goes on with it: the next one is of a new agreement. A site's
number is its place in the agreement. Where one leaves, keys, folders and numbers of those after it move together.
"""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hushpoint._checks import require_count
from hushpoint._files import write_text
from hushpoint.federated.disk import held
from hushpoint.federated.folder import Federation, Site, make_request, read_request, set_in, table
from hushpoint.federated.secure.folder import SecureFederation, SecureSiteFolder, sums_of
from hushpoint.schema import toml_value

_WITHDRAWN = ("revoked", "replaced")  # keys in these folders of the roster are never taken again
_LISTS = {"sites": ("rows", "users", "names"), "evaluation": ("rows", "users")}  # each has an entry for each site


# --- at the server


def join(federation: Federation, items: int | None, name: str | None = None, held_out: int | None = None) -> int:
    """Make room for one more site, at the end, and a folder for it. Its number.

    Parameters
    ----------
    items : int, optional
        The public number of its rows, or of its users, where ``[sites]`` has those of the others.
    name : str, optional
        What it is called, where sites have names.
    held_out : int, optional
        The public number of its held-out rows or users, where ``[evaluation]`` has those of the others.
    """
    count, settings = federation.count, copy.deepcopy(federation.settings())
    sites = table(settings, "sites")
    if name is not None and not federation.is_secure:
        raise ValueError("name is given: names are of federations with secure sums. Leave it out.")
    if name is not None and "names" not in sites:
        sites["names"] = [f"site {k}" for k in range(count)]
    if name is not None and name in sites["names"]:
        raise ValueError(f"name is {name!r}, which another site has. Choose another one.")
    given: dict[str, dict[str, Any]] = {
        "sites": {"rows": items, "users": items, "names": name},
        "evaluation": {"rows": held_out, "users": held_out},
    }
    for where, entries in _lists(settings, count):
        for known in entries:
            value = given[where][known]
            if value is None:
                option = "--name" if known == "names" else "--rows" if where == "sites" else "--held-out"
                raise ValueError(f"[{where}] has {known} of each site. Give that of the new one: {option}.")
            table(settings, where)[known].append(value)
    for option, value, where in (("rows", items, "sites"), ("held_out", held_out, "evaluation")):
        if value is not None and not {"rows", "users"} & set(settings.get(where, {})):
            raise ValueError(f"{option} is given and [{where}] has no rows or users. Leave it out.")
    text = _resized(federation, settings, count, count + 1)
    folder, roster = federation.site(count, count + 1), federation.roster(count, count + 1)
    for place in (folder, roster, roster.with_suffix(".sums")):
        if place.exists():  # of somebody else, whose ledger or key the new site would take for its own
            raise ValueError(f"{str(place)!r} exists, and there is no site {count}. Move it away first.")
    _require_idle(federation)
    for site in range(count):  # names of files are longer from 101 sites on
        _move(federation, (site, count), (site, count + 1))
    federation.new_site(count, folder)
    federation.hand_keys_to(folder)
    write_text(federation.folder / "federation.toml", text, force=True)
    return count


def leave(federation: Federation, site: int) -> Path:
    """Take a site out. The numbers of those after it are one less from then on. Where its folder and keys are now."""
    count, settings = federation.count, copy.deepcopy(federation.settings())
    require_count("site", site, least=0, most=count - 1)
    if count <= 2:
        raise ValueError("there are two sites, and one alone is no federation. Let another one join first.")
    for where, entries in _lists(settings, count):
        for known in entries:
            del table(settings, where)[known][site]
    text = _resized(federation, settings, count, count - 1)
    _require_idle(federation)
    number = federation.site(site, count).name
    place = _free(federation.folder / "left", number)
    for path in (federation.roster(site, count), federation.roster(site, count).with_suffix(".sums")):
        _rename(path, place / path.name)
    _rename(federation.site(site, count), place / number)
    for other in range(count):  # rising: the place of each is free by then
        if other != site:
            _move(federation, (other, count), (other - (other > site), count - 1))
    # Last: until then a key is missing, without which there is no agreement.
    write_text(federation.folder / "federation.toml", text, force=True)
    return place


def revoke(federation: Federation, site: int) -> None:
    """Withdraw the keys of a site: there is no run and no agreement until it has sent others, or has left."""
    count = federation.count
    require_count("site", site, least=0, most=count - 1)
    if not _withdraw(federation, site, "revoked"):
        raise ValueError(f"there are no keys of site {site} in {str(federation.folder / 'roster')!r} to revoke.")


def admit(federation: Federation, request: Path, *, replace: bool = False) -> int:
    """Take the public keys of a site from the file that it sent; with ``replace`` in the place of older ones."""
    record = read_request(request)
    count = federation.count
    require_count("site", record["site"], least=0, most=count - 1)
    found = _Keys.of_request(federation, record, request)
    for where in _WITHDRAWN:
        for path in sorted((federation.folder / "roster" / where).glob("*.*")):
            if found.has(path):
                raise ValueError(
                    f"{str(request)!r} has a key that was {where}: {path.relative_to(federation.folder)}. The site "
                    "makes others: hushpoint federated rotate SITE_DIR."
                )
    for site in range(count):
        place = federation.roster(site, count)
        if site != record["site"] and (found.has(place) or found.has(place.with_suffix(".sums"))):
            raise ValueError(
                f"{str(request)!r} says that it is of site {record['site']} and has a key of site {site}. Correct "
                "site in site.toml, or make new keys: hushpoint federated rotate SITE_DIR."
            )
    place = federation.roster(record["site"], count)
    if replace and not found.are(place):
        _withdraw(federation, record["site"], "replaced")
    return (
        SecureFederation(federation).admit(request)
        if federation.is_secure
        else federation.admit_key(record["site"], record["key"])
    )


class _Keys:
    """The keys of a request, compared as keys: the same one may be written in more than one way."""

    def __init__(self, key: Any, sums: bytes | None) -> None:
        self._key, self._sums = key, sums

    @classmethod
    def of_request(cls, federation: Federation, record: Mapping[str, Any], request: Path) -> _Keys:
        from hushpoint.federated.keys import read_public

        sums = sums_of(record, request) if federation.is_secure else None
        return cls(read_public(record["key"].encode(), request), sums)

    def has(self, path: Path) -> bool:
        """Whether one of them is in a file of the roster."""
        from hushpoint.federated.keys import load_public

        if not path.is_file():
            return False
        if path.suffix == ".sums":
            return self._sums is not None and bytes.fromhex(path.read_text(encoding="ascii")) == self._sums
        return bool(load_public(path) == self._key)

    def are(self, place: Path) -> bool:
        """Whether all of them are those of a site in the roster."""
        return self.has(place) and (self._sums is None or self.has(place.with_suffix(".sums")))


def _lists(settings: Mapping[str, Any], count: int) -> list[tuple[str, list[str]]]:
    """The tables with an entry for each site, and which those are; an error where one disagrees with the others."""
    found = []
    for where, known in _LISTS.items():
        entries = [name for name in known if name in table(settings, where)]
        for name in entries:
            value = table(settings, where)[name]
            if not isinstance(value, list) or len(value) != count:
                raise ValueError(f"{name} in [{where}] is {value!r}, and there are {count} sites. Write one for each.")
        if {"rows", "users"} <= set(entries):
            raise ValueError(f"[{where}] has rows and users. Leave out those that the agreement does not count.")
        found.append((where, entries))
    return found


def _resized(federation: Federation, settings: dict[str, Any], before: int, after: int) -> str:
    """``federation.toml`` with these settings, for so many sites; its comments and its layout stay."""
    sites, secure = table(settings, "sites"), table(settings, "secure")
    if "count" in sites:
        sites["count"] = after
    if secure.get("survivors") == before:  # nobody may be away: so it stays
        secure["survivors"] = after
    if secure.get("survivors", 0) > after:
        raise ValueError(f"survivors in [secure] is {secure['survivors']}, and there are {before} sites. Correct it.")
    text = (federation.folder / "federation.toml").read_text(encoding="utf-8")
    was, by_hand = tomllib.loads(text), []
    for where in ("sites", "evaluation", "secure"):
        for name, value in settings.get(where, {}).items():
            if was[where].get(name) != value:
                text = _with(text, where, name, toml_value(value))
                by_hand.append(f"{name} = {toml_value(value)} in [{where}]")
    try:
        written = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        written = {}
    if written != settings:
        raise ValueError(f"federation.toml is not written as expected. Put on one line: {'; '.join(by_hand)}.")
    return text


def _with(text: str, where: str, name: str, value: str) -> str:
    """A setting of a table, changed where it is or added at the top. Whether that went well is seen by reading."""
    parts = re.split(rf"^(\[{where}\][^\n]*\n)", text, maxsplit=1, flags=re.MULTILINE)
    if len(parts) != 3:
        return text
    head, title, rest = parts
    following = re.search(r"^\[", rest, flags=re.MULTILINE)
    end = len(rest) if following is None else following.start()
    said = re.compile(rf"^({name}\s*=[ \t]*)(\[[^\]]*\]|[^#\n\[]*?)([ \t]*(?:#[^\n]*)?)$", flags=re.MULTILINE)
    inside, changed = said.subn(lambda found: found[1] + value + found[3], rest[:end], count=1)
    return head + title + ("" if changed else f"{name} = {value}\n") + inside + rest[end:]


def _require_idle(federation: Federation) -> None:
    """Refuse to move keys and folders under a server that is at work."""
    if federation.run.is_dir():
        with held(federation.run):
            pass


def _withdraw(federation: Federation, site: int, where: str) -> bool:
    """Move the keys of a site out of the roster; whether there were any. The first is that by which it may join."""
    here = federation.roster(site, federation.count)
    paths = [path for path in (here, here.with_suffix(".sums")) if path.is_file()]
    folder = here.parent / where
    stem = next(
        stem
        for stem in (here.stem, *(f"{here.stem}.{n}" for n in range(2, 100_000)))
        if not any((folder / f"{stem}{path.suffix}").exists() for path in paths)
    )
    for path in paths:
        _rename(path, folder / f"{stem}{path.suffix}")
    return bool(paths)


def _move(federation: Federation, old: tuple[int, int], new: tuple[int, int]) -> None:
    """Give a site another number of so many: its keys, its folder if that is here, and the number in its settings."""
    for suffix in (".pub", ".sums"):
        _rename(federation.roster(*old).with_suffix(suffix), federation.roster(*new).with_suffix(suffix))
    folder = federation.site(*new)
    _rename(federation.site(*old), folder)
    if (folder / "site.toml").is_file() and Site(folder).number != new[0]:
        set_in(folder / "site.toml", "site", new[0])


def _rename(old: Path, new: Path) -> None:
    if old == new or not old.exists():
        return
    if new.exists():
        raise ValueError(f"{str(new)!r} exists, where {str(old)!r} is to be. Move it away first.")
    new.parent.mkdir(parents=True, exist_ok=True)
    old.rename(new)


def _free(folder: Path, name: str) -> Path:
    """A place of that name that nobody has taken."""
    names = (name, *(f"{name}.{n}" for n in range(2, 100_000)))
    return next(folder / one for one in names if not (folder / one).exists())


# --- at a site


def renew_keys(site: Site) -> Path:
    """New keys of a site in the place of its own, which are kept as ``*.old``, and a request to admit them."""
    folder = site.folder
    number, secure = site.number, not (folder / "plan.json").exists()
    if not any((folder / name).exists() for name in ("site.key", "sums.key")):
        raise ValueError(f"{str(folder)!r} has no keys to renew. Make them: hushpoint federated keys {folder}")
    for name in ("site.key", "sums.key", "site.pub", "request.json"):
        if (folder / name).exists():
            _rename(folder / name, _free(folder, f"{name}.old"))
    for path in folder.glob("*.key.old*"):
        path.chmod(0o600)
    return SecureSiteFolder(site).make_keys() if secure else make_request(folder, number)
