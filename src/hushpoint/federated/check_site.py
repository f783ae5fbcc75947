"""A site before it takes part: settings, keys, agreement, ledger, data, disk, clock, and the way to the server."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from hushpoint.federated.check import (
    Line,
    Unknown,
    Wrong,
    certificate_line,
    folder_line,
    looked,
    own_clock,
    secret_file,
    versions_line,
)
from hushpoint.federated.client import Window
from hushpoint.federated.disk import Damaged
from hushpoint.federated.folder import Shape, Site, is_secure
from hushpoint.federated.log import now
from hushpoint.federated.reach import Reached, Trouble, reach
from hushpoint.federated.secure.folder import SecureSiteFolder
from hushpoint.federated.secure.store import SecureStore
from hushpoint.federated.terms import plan_digest
from hushpoint.schema import Ignored, Number, Schema

_NEW_CA = "Ask whoever runs the server for a new ca.crt."
_AS_AGREED = "Correct the data, or agree anew."
_RESTORE = "Restore the newest copy of ledger.jsonl; if there is none: hushpoint federated readmit."


def check_site(site: Site, *, offline: bool = False, clock: Callable[[], datetime] = now) -> list[Line]:
    """Every look at a site; ``offline`` leaves the server alone."""
    folder = site.folder
    secure = is_secure(folder) or (folder / "sums.key").is_file()  # there may be no covenant yet
    found: Reached | Trouble | None = None if offline else _reached(site, clock)
    held_out = [looked("held-out", lambda: _held_out(site), data=True)] if _has_held_out(site, secure) else []
    return [
        looked("settings", lambda: _settings(site)),
        versions_line(),
        looked("keys", lambda: _keys(site, secure)),
        looked("agreement", lambda: _agreement(site, secure)),
        looked("ledger", lambda: _ledger(site, secure)),
        looked("data", lambda: _data(site, secure), data=True),
        *held_out,
        folder_line(folder),
        certificate_line([folder / "ca.crt"], clock, _NEW_CA),
        looked("server", lambda: _server(site, found)),
        looked("clock", lambda: _clock(site, found, clock)),
    ]


def _settings(site: Site) -> str:
    settings = site.settings()
    number, limit = site.number, site.limit
    if "window" in settings:
        Window.parse(str(settings["window"]))
    if site.seed is not None:
        raise Wrong("[testing] has a seed: anyone can compute the noise", "Remove it, unless this is a test.")
    return f"site {number}{'' if limit is None else ', with a limit of its own'}"


def _keys(site: Site, secure: bool) -> str:
    from hushpoint.federated.keys import load_private, load_public

    secret_file(site.folder / "site.key")
    key = load_private(site.folder / "site.key").public_key()
    public = site.folder / "site.pub"
    if public.exists() and load_public(public) != key:
        raise Wrong("site.pub is not of site.key", "Send the one that is, or make both anew.")
    load_public(site.folder / "server.pub")
    if secure:
        secret_file(site.folder / "sums.key")
        SecureSiteFolder(site).signing()
    return "there, for this user alone, and matching"


def _agreement(site: Site, secure: bool) -> str:
    if secure:
        return f"covenant {SecureSiteFolder(site).accepted().fingerprint} is accepted; it has this site's key"
    return f"plan {plan_digest(site.plan())}; compare it with the server's"


def _ledger(site: Site, secure: bool) -> str:
    state = ledger_state(site, secure)
    if state != "whole":
        raise Wrong(f"the ledger is {state}, so nobody knows what was spent", _RESTORE)
    return "whole"


def ledger_state(site: Site, secure: bool) -> str:
    """ "whole", "lost" (missing or damaged) or "an old copy" (the site has done more than it says)."""
    store = site.store()
    try:
        ledger = store.ledger()
    except Damaged:
        return "lost"
    if secure:
        kept = SecureStore(store).open_round()
        return "an old copy" if kept is not None and kept.check not in ledger.checks else "whole"
    state = store.state(plan_digest(site.plan()))
    return "an old copy" if state is not None and state.check not in ledger.checks else "whole"


def run_of(site: Site, secure: bool) -> str:
    """The run that the site agreed to, as its ledger names it."""
    return SecureSiteFolder(site).covenant().run if secure else plan_digest(site.plan())


def key_state(site: Site, secure: bool) -> str:
    """Whether the keys are as they have to be, in words."""
    return looked("keys", lambda: _keys(site, secure)).words


# --- the data


def _data(site: Site, secure: bool) -> str:
    try:
        shape, rows, users = _wanted_by_covenant(site) if secure else _wanted_by_plan(site)
    except ValueError:
        raise Unknown("what it has to be is not agreed on yet") from None
    _look_at(site, "data", shape, rows, users)
    if secure:  # the rest of what a start asks of it
        SecureSiteFolder(site).secure_site()
    else:
        site.client(signed=False)
    said = "" if rows is None else f", and {rows} rows as agreed"
    return f"as the schema says{said if users is None else f', and {users} users as agreed'}"


def _look_at(site: Site, name: str, shape: Shape, rows: int | None, users: int | None) -> None:
    path = site.folder / str(site.settings().get(name, f"{name}.csv"))
    if not path.is_file():
        raise Wrong("there is no file of the name that site.toml gives", f'Put it there, or correct {name} = "...".')
    if shape.schema is not None:
        look_at_table(shape.schema, path, rows, users)
    else:
        look_at_arrays(shape, path, rows)


def _has_held_out(site: Site, secure: bool) -> bool:
    """Whether the covenant asks for figures on held-out rows."""
    try:
        return secure and bool(SecureSiteFolder(site).accepted().training.held_out)
    except ValueError:
        return False


def _held_out(site: Site) -> str:
    covenant = SecureSiteFolder(site).accepted()
    shape, count = Shape.from_dict(covenant.about["schema"]), covenant.training.held_out[site.number]
    by_row = covenant.training.unit == "record"
    by_user = not by_row and covenant.about.get("unit") != "site"
    _look_at(site, "test", shape, count if by_row else None, count if by_user else None)
    return "as the schema says, and as many as agreed"


Wanted = tuple[Shape, int | None, int | None]  # the data's shape, and how many rows or users are agreed on, if any


def _wanted_by_plan(site: Site) -> Wanted:
    facts = site.plan().facts
    assert facts is not None
    return (
        Shape.read(site.folder / "schema.toml"),
        int(facts.row_counts[site.number]) if facts.knows_rows else None,
        None,
    )


def _wanted_by_covenant(site: Site) -> Wanted:
    covenant = SecureSiteFolder(site).accepted()
    training, shape = covenant.training, Shape.from_dict(covenant.about["schema"])
    count = covenant.items[site.number]
    if training.sites_are_items:
        return shape, count if training.facts.knows_rows else None, None
    if covenant.about.get("unit") == "site":
        return shape, None, None
    return (shape, count, None) if training.unit == "record" else (shape, None, count)


def look_at_arrays(shape: Shape, path: Path, rows: int | None) -> None:
    """Whether NumPy data has the shape that was agreed on."""
    try:
        X, _ = shape.load(path)
    except ValueError:
        words = f"it is no NumPy data with {shape.features} features and a target for each row"
        raise Wrong(words, "Save X and y with np.savez, as docs/howto-local-noise.md says.") from None
    _require_count(len(X), rows, "rows")


def look_at_table(schema: Schema, path: Path, rows: int | None, users: int | None) -> None:
    """Whether a table has the declared columns, cells as declared, and as many rows or users as agreed."""
    from hushpoint.tables.reading import read_chunks
    from hushpoint.tables.training import users_of

    faulty: set[str] = set()
    count, people = 0, set[Any]()
    try:
        for chunk in read_chunks(path):
            _require_columns(schema, chunk)
            faulty |= {name for name in _asked(schema) if not _reads(schema, name, chunk)}
            count += len(chunk[next(iter(_asked(schema)))])
            if users is not None and schema.groups is not None:
                people |= set(users_of(schema.groups, schema, chunk).tolist())
    except Wrong:
        raise
    except Exception:  # its text may quote what is in the file
        words = "it cannot be read as a table"
        raise Wrong(words, "Save it as CSV in UTF-8 with a header, or as Parquet.") from None
    if faulty:
        names = ", ".join(repr(name) for name in schema.columns if name in faulty)
        raise Wrong(f"cells of {names} are not as the schema declares them", _AS_AGREED)
    _require_count(count, rows, "rows")
    _require_count(len(people), users, "users")


def _require_count(found: int, agreed: int | None, what: str) -> None:
    if agreed is not None and found != agreed:
        raise Wrong(f"it has another number of {what} than the {agreed} agreed on", _AS_AGREED)


def _asked(schema: Schema) -> list[str]:
    """The columns that are read."""
    return [
        name for name, column in schema.columns.items() if not isinstance(column, Ignored) and name != schema.groups
    ]


def _require_columns(schema: Schema, chunk: Mapping[str, Any]) -> None:
    from hushpoint import cells

    names = cells.names_of(chunk)
    absent = [name for name in (*_asked(schema), schema.groups) if name is not None and name not in names]
    if absent:
        raise Wrong(f"the table lacks {', '.join(map(repr, absent))}", "Name the columns in its first line.")
    if any(name not in schema.columns and name != schema.groups for name in names):
        # Their names are not repeated: in a table without a header they are cells.
        raise Wrong(
            "the table has columns that the schema does not declare", 'Remove them, or declare kind = "ignore".'
        )


def _reads(schema: Schema, name: str, chunk: Mapping[str, Any]) -> bool:
    """Whether the cells of a column are as declared."""
    from hushpoint.preprocessing import TableEncoder
    from hushpoint.tables.training import declared_targets

    try:
        if name == schema.target:
            declared_targets(schema, chunk)
        else:
            column = schema.columns[name]
            if isinstance(column, Number):
                column = dataclasses.replace(column, learn=False)
            alone = Schema({name: column}, missing_values=schema.missing_values)
            TableEncoder(alone).fit().transform({name: chunk[name]})
    except ValueError:
        return False
    return True


# --- the server


def _reached(site: Site, clock: Callable[[], datetime]) -> Reached | Trouble | None:
    try:
        return reach(site.address, site.folder / "ca.crt", clock=clock)
    except (ValueError, OSError):  # no address: the settings say so
        return None


def _server(site: Site, found: Reached | Trouble | None) -> str:
    if found is None:
        raise Unknown("it was not asked")
    if isinstance(found, Trouble) and found.code != "clock":
        raise Wrong(f"{found.code}: {found.words}", found.remedy)
    return f"{site.address} answers, with a certificate of this federation"


def _clock(site: Site, found: Reached | Trouble | None, clock: Callable[[], datetime]) -> str:
    own_clock([site.folder / name for name in ("ca.crt", "ledger.jsonl")], clock)
    if isinstance(found, Trouble) and found.code == "clock":
        raise Wrong(found.words, found.remedy)
    if not isinstance(found, Reached) or found.ahead is None:
        raise Unknown("the server's was not seen")
    return "within what the server allows"
