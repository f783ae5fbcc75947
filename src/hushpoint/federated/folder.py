"""The folder of a federation and the folders of its sites: what is agreed on, who has which files, and the data.

``federation.toml`` and ``schema.toml`` say what all agree on; ``plan.json`` is made from both. ``sites/NN`` is all that
one site gets: its own copy of the plan, which are its terms, its key, its ledger, and where its data is.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushpoint import losses, methods, regularizers
from hushpoint._checks import require, require_choice, require_count, require_kind, require_positive
from hushpoint._files import write_text
from hushpoint.federated.agreed import Agreed, drawn_nonce, read_agreed
from hushpoint.federated.client import Client, Window, site_rows
from hushpoint.federated.disk import held
from hushpoint.federated.ends import Outcome
from hushpoint.federated.ledger import SiteStore
from hushpoint.federated.shape import Shape, toml_settings
from hushpoint.federated.terms import require_federated
from hushpoint.plan import Plan
from hushpoint.privacy.guarantee import Budget
from hushpoint.problem import Problem, item_rows
from hushpoint.regularizers import Regularizer
from hushpoint.rows import Rows
from hushpoint.schema import toml_value

__all__ = ["Federation", "Outcome", "Shape", "Site", "make_plan", "only", "table", "toml_budget", "toml_settings"]

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

    from hushpoint.federated.flower import Pace


_METHODS = ("federated_admm", "anchored_admm", "dp_fedavg", "dp_sgd")
_WAITS = ("round_timeout", "resend_after", "start_timeout")
_ADDRESS = "127.0.0.1:9092"
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # who listens on all addresses is called here by this one


# --- reading settings


def only(table: Mapping[str, Any], where: str, known: tuple[str, ...]) -> None:
    """Refuse settings that are not known in a place."""
    unknown = [name for name in table if name not in known]
    if unknown:
        raise ValueError(f"{where} has {', '.join(map(repr, unknown))}. It takes: {', '.join(known)}.")


def table(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    """One table of the settings, empty if there is none."""
    found = settings.get(name, {})
    return require_kind(name, found, dict, remedy=f"Write [{name}] and its settings under it.")


def _seed(settings: Mapping[str, Any]) -> int | None:
    """The seed of a test; everyone must name it in their own file, and guarantees then say that it is no release."""
    testing = table(settings, "testing")
    only(testing, "[testing]", ("seed",))
    return None if "seed" not in testing else require_count("seed", testing["seed"], least=0)


def _modules(record: Any) -> set[str]:
    """The modules that the named pieces of a record come from, those of this package left out."""
    if isinstance(record, Mapping):
        own = {record["module"]} if isinstance(record.get("module"), str) else set()
        return own.union(*map(_modules, record.values()))
    return set().union(*map(_modules, record)) if isinstance(record, list) else set()


def _import_plugins(settings: Mapping[str, Any], where: str) -> None:
    """Import the modules that whoever wrote the settings trusts: the names in a plan never do."""
    plugins = settings.get("plugins", [])
    remedy = 'Write plugins = ["package.module"], with modules that are installed beside hushpoint.'
    if not (isinstance(plugins, list) and all(isinstance(module, str) for module in plugins)):
        raise ValueError(f"plugins in {where} is {plugins!r}. {remedy}")
    for module in plugins:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ValueError(
                f"plugins in {where} has {module!r}, which cannot be imported: {error}. {remedy}"
            ) from None


def is_secure(folder: Path) -> bool:
    """Whether a folder, of a federation or of a site, is of one with secure sums."""
    if (folder / "covenant.json").is_file():
        return True
    place = folder / "federation.toml"
    return place.is_file() and "secure" in toml_settings(place)


# --- what all agree on


def make_plan(federation: Mapping[str, Any], shape: Shape) -> Plan:
    """The plan that ``federation.toml`` and ``schema.toml`` describe."""
    only(federation, "federation.toml", ("model", "method", "budget", "sites", "testing", "secure"))
    model, method, sites = (dict(table(federation, name)) for name in ("model", "method", "sites"))
    only(model, "[model]", ("loss", "regularizer", "row_norm", "clip", "fit_intercept", "weights"))
    only(sites, "[sites]", ("count", "rows"))
    require_no_users(shape)
    rows = sites.get("rows")
    if rows is None and "count" not in sites:
        raise ValueError(
            "[sites] has neither rows nor users nor count. Write rows = [120, 80, 100], the public size of each site; "
            "where users are protected, users = [...]."
        )
    count = len(rows) if rows is not None else require_count("count", sites["count"])
    if sites.get("count", count) != count:
        raise ValueError(f"[sites] has count = {sites['count']} and {count} entries in rows. Make them agree.")
    loss = model.get("loss", "logistic" if shape.two_classes else "squared")
    chosen = losses.Loss.from_dict(loss) if isinstance(loss, dict) else losses.resolve(loss)
    if shape.two_classes != (chosen.labels == "two-class") and shape.schema is not None:
        kind = "two classes" if shape.two_classes else "a number"
        raise ValueError(f"loss is {chosen.name!r} and the target of schema.toml is {kind}. Choose another loss.")
    problem = Problem.declared(
        count,
        shape.features,
        chosen,
        _regularizer(model.get("regularizer", {})),
        row_norm=model.get("row_norm"),
        clip=model.get("clip"),
        rows_per_item=rows,
        weights=model.get("weights", "items"),
        fit_intercept=model.get("fit_intercept", False),
    )
    name = method.pop("name", None)
    require_choice("name in [method]", name, _METHODS)
    if "budget" in federation:
        method["budget"] = _budget(table(federation, "budget"), "[budget]")
    try:
        plan: Plan = getattr(methods, name)(problem, **method)
    except TypeError as error:
        raise ValueError(
            f"[method] does not suit {name}, which takes {_options_of(name)}: {_own_words(error)}."
        ) from None
    require_federated(plan)
    return Plan.from_json(plan.to_json())


def require_no_users(shape: Shape) -> None:
    """Refuse users that a plan would not protect: its items are the sites, and its records their rows."""
    if shape.schema is not None and shape.schema.groups:
        raise ValueError(
            f"schema.toml has groups = {shape.schema.groups!r}, and a plan whose items are sites protects a site as a "
            "whole or one row, never the rows of one such user together. Train a model by secure sums ([secure], and a "
            'name in [model]), or take groups away and declare that column with kind = "ignore".'
        )


def _options_of(name: str) -> str:
    """What a method takes, the problem and the budget aside."""
    taken = signature(getattr(methods, name)).parameters.values()
    needed = [one.name for one in taken if one.default is one.empty and one.name != "problem"]
    others = [one.name for one in taken if one.default is not one.empty and one.name != "budget"]
    return f"{', '.join(needed)} (and, if wanted, {', '.join(others)})"


def _own_words(error: TypeError) -> str:
    """What Python says of a call, without the call."""
    return str(error).partition("() ")[2] or str(error)


def _regularizer(record: Any) -> Regularizer | None:
    """``{l2 = 0.01}``, ``{l1 = 0.1}``, both, ``{}`` for none, or the record of any other with its name."""
    require_kind("regularizer", record, dict, remedy="Write for example regularizer = {l2 = 0.01}.")
    if "name" in record:
        return Regularizer.from_dict(record)
    only(record, "regularizer", ("l1", "l2"))
    l1, l2 = (require_positive(name, record[name]) if name in record else 0.0 for name in ("l1", "l2"))
    if l1 and l2:
        return regularizers.ElasticNet(l1, l2)
    return regularizers.L1(l1) if l1 else regularizers.L2(l2) if l2 else None


def toml_budget(settings: Mapping[str, Any]) -> Budget:
    """The budget in ``[budget]``."""
    return _budget(table(settings, "budget"), "[budget]")


def _budget(table: Mapping[str, Any], where: str) -> Budget:
    only(table, where, ("epsilon", "delta", "view", "adjacency", "unit"))
    if not {"epsilon", "delta"} <= set(table):
        raise ValueError(f"{where} needs epsilon and delta.")
    return Budget(**table)


# --- the folder of whoever runs the server


@dataclass(frozen=True)
class Federation:
    """The folder that ``hushpoint federated init`` makes."""

    folder: Path

    @property
    def keys(self) -> Path:
        """Certificate, key and signing key of the server."""
        return self.folder / "keys"

    @property
    def run(self) -> Path:
        """The state and the log of the run."""
        return self.folder / "run"

    @property
    def flower(self) -> Path:
        """What Flower keeps: its home, its database, its logs."""
        return self.folder / "flower"

    @property
    def app(self) -> Path:
        """The app that Flower is handed: two files, so that nothing else of the folder goes into it."""
        return self.folder / "app"

    def settings(self) -> dict[str, Any]:
        """``federation.toml``."""
        return toml_settings(self.folder / "federation.toml")

    def shape(self) -> Shape:
        """``schema.toml``."""
        return Shape.read(self.folder / "schema.toml")

    @property
    def is_secure(self) -> bool:
        """Whether messages are summed without anybody seeing them: sites then make their own keys."""
        return "secure" in self.settings()

    @property
    def count(self) -> int:
        """How many sites there are."""
        sites = table(self.settings(), "sites")
        for name in ("rows", "users"):
            if name in sites:
                return len(sites[name])
        if "count" not in sites:
            raise ValueError(
                "[sites] has neither rows nor users nor count. Write rows = [120, 80, 100], the public size of each "
                "site; where users are protected, users = [...]."
            )
        return require_count("count in [sites]", sites["count"])

    @property
    def seed(self) -> int | None:
        """The seed of a test, None in earnest."""
        return _seed(self.settings())

    def write_plan(self, *, new_run: bool = False) -> Plan:
        """Make ``plan.json`` anew, and hand it with the schema to the sites whose folders are here.

        Where nothing has changed it is the same run, unless ``new_run``.
        """
        _import_plugins(self.server(), "server.toml")
        plan, shape = make_plan(self.settings(), self.shape()), self.shape()
        agreed = Agreed(plan, shape, drawn_nonce())
        if not new_run and (before := self._agreed_before(plan, shape)) is not None:
            agreed = before
        if new_run:  # only now: what cannot be agreed on moves nothing
            self.put_run_away()
        self._require_no_other_run(agreed.run)
        schema = (self.folder / "schema.toml").read_text(encoding="utf-8")
        for folder in (self.folder, *self._made_sites(plan.operator.blocks)):
            _write(folder / "plan.json", plan.to_json() + "\n")
            if folder != self.folder:
                _write(folder / "schema.toml", schema)
            agreed.write(folder)
        _write(self.folder / "plan.made", self.agreement_digest() + "\n")
        return plan

    def _made_sites(self, count: int) -> list[Path]:
        """The folders of the sites that are here; made where there are none."""
        folders = [self.site(site, count) for site in range(count)]
        for site, folder in enumerate(folders):
            if not folder.exists():
                self.new_site(site, folder)
        return folders

    def _agreed_before(self, plan: Plan, shape: Shape) -> Agreed | None:
        """What was agreed on when the plan was made last, if it is the same."""
        try:
            return read_agreed(self.folder, plan, shape)
        except ValueError:
            return None

    def _require_no_other_run(self, run: str) -> None:
        try:
            begun = json.loads((self.run / "run.json").read_text(encoding="utf-8"))["run"]
        except (OSError, ValueError, KeyError, TypeError):
            return
        if begun != run:
            raise ValueError(
                f"{str(self.run)!r} holds a run of the plan as it was. Agree on another one, which moves that away: "
                f"hushpoint federated plan {self.folder} --new-run. What was spent stays counted in the ledgers of the "
                "sites."
            )

    def put_run_away(self) -> None:
        """Move the folder of a run aside: another one of the same plan is agreed on."""
        if (self.run / "run.json").exists() or (self.run / "server.npz").exists():
            number = next(n for n in range(1, 10_000) if not self.run.with_name(f"run.{n}").exists())
            with held(self.run):  # not under a server that is at work
                self.run.rename(self.run.with_name(f"run.{number}"))

    def agreed(self) -> Agreed:
        """The plan, the schema and the name of the run."""
        return read_agreed(self.folder, self.plan(), self.shape())

    def plan(self) -> Plan:
        """The plan; an error where ``federation.toml`` or ``schema.toml`` say something else by now."""
        _import_plugins(self.server(), "server.toml")
        plan = _read_plan(self.folder / "plan.json")
        made = self.folder / "plan.made"
        # The files are compared, not plans made of them: another machine may calibrate to another last digit.
        if not made.is_file() or made.read_text(encoding="ascii").strip() != self.agreement_digest():
            raise ValueError(
                "federation.toml or schema.toml has changed since plan.json was made. Undo that, or make it anew: "
                f"hushpoint federated plan {self.folder}"
            )
        return plan

    def agreement_digest(self) -> str:
        """What ``federation.toml`` and ``schema.toml`` say, whatever their comments and layout."""
        said = json.dumps(self.settings(), sort_keys=True) + json.dumps(toml_settings(self.folder / "schema.toml"))
        return hashlib.sha256(said.encode()).hexdigest()  # the order of columns has a meaning

    def site(self, site: int, count: int) -> Path:
        """The folder of a site."""
        return self.folder / "sites" / _number(site, count)

    def roster(self, site: int, count: int) -> Path:
        """The public key of a site."""
        return self.folder / "roster" / f"{_number(site, count)}.pub"

    def new_site(self, site: int, folder: Path) -> None:
        """A folder for a site, with the ledger that is made once."""
        SiteStore.create(folder)
        seed = self.seed
        lines = [
            f"site = {site}",
            f"superlink = {toml_value(self.address)}",
            "# The data, relative to this file: .csv, .csv.gz, .parquet, .npz (X, y) or .npy (y in the last column).",
            'data = "data.csv"',
            '# test = "test.csv"  # held-out rows, where [evaluation] asks for figures on them',
            '# window = "22:00-06:00"  # hours in which this site takes part, by its own clock',
            '# plugins = ["package.module"]  # modules of your choice whose losses and regularisers the plan may name',
            "# [limit]  # what this site will spend in all runs together, whatever the plan allows",
            "# epsilon = 1.0",
            "# delta = 1e-5",
        ]
        if seed is not None:
            lines += ["", "[testing]  # noise that anyone can compute: never with data of people", f"seed = {seed}"]
        _write(folder / "site.toml", "\n".join(lines) + "\n")

    # --- the server

    def server(self) -> dict[str, Any]:
        """``server.toml``."""
        settings = toml_settings(self.folder / "server.toml")
        known = ("address", "bind", "quorum", *_WAITS, "retries", "validation", "delta", "plugins", "health")
        only(settings, "server.toml", known)
        return settings

    @property
    def address(self) -> str:
        """Where sites find the server."""
        return _host_and_port("address", self.server().get("address", _ADDRESS))

    @property
    def bind(self) -> str:
        """Where the server listens on this machine: where sites find it, unless it says otherwise."""
        return _host_and_port("bind", self.server().get("bind", self.address))

    @property
    def here(self) -> str:
        """The server as this machine calls it."""
        host, _, port = self.bind.rpartition(":")
        return f"{_LOOPBACK.get(host, host)}:{port}"

    def call(self, host: str) -> bool:
        """Have sites call the server by this name from now on; whether that is news.

        ``server.toml`` and the ``site.toml`` of sites whose folders are here are changed. A server that only this
        machine could reach then listens on all its addresses.
        """
        before, bind = self.address, self.bind
        old, _, port = before.rpartition(":")
        named = f"[{host}]" if ":" in host else host
        address = f"{named}:{port}"
        if address == before:
            return False
        if _is_loopback(old) and not _is_loopback(named) and bind == before:
            bind = f"0.0.0.0:{port}"
        if _is_loopback(named) and "bind" not in self.server():
            bind = address
        set_in(self.folder / "server.toml", "address", address)
        if bind != address:
            set_in(self.folder / "server.toml", "bind", bind)
        for folder in sorted((self.folder / "sites").glob("*/site.toml")):
            set_in(folder, "superlink", address)
        return True

    def pace(self) -> Pace:
        """How long the server waits."""
        from hushpoint.federated.flower import Pace

        settings = self.server()
        given = {name: require_positive(name, value) for name, value in settings.items() if name in _WAITS}
        retries = settings.get("retries", Pace.retries)
        return Pace(**given, retries=require_count("retries", retries, least=0))

    def server_options(self) -> dict[str, Any]:
        """Quorum, seed, delta and public validation data, as ``Server`` takes them."""
        settings = self.server()
        options: dict[str, Any] = {"quorum": settings.get("quorum", 1.0), "seed": self.seed}
        if "delta" in settings:
            options["delta"] = settings["delta"]
        if "validation" in settings:
            options["validation"] = self._validation(self.folder / str(settings["validation"]))
        return options

    def _validation(self, path: Path) -> Problem:
        """Public rows, each of the same weight."""
        facts = self.plan().facts
        assert facts is not None
        X, y = self.shape().load(path)
        each = replace(facts, items=len(y), rows_per_item=None, weights="items")
        return Problem.from_facts(each).with_rows(item_rows(each, X, y))

    def own_key(self) -> EllipticCurvePrivateKey:
        """The key that the server signs its requests with."""
        from hushpoint.federated.keys import load_private

        return load_private(self.keys / "signing.key")

    def site_keys(self, count: int) -> list[EllipticCurvePublicKey]:
        """The public keys of all sites."""
        from hushpoint.federated.keys import load_public

        if absent := self.missing_keys():
            raise ValueError(
                f"the keys of site {', '.join(map(str, absent))} are missing. Each site makes its own (hushpoint "
                "federated keys SITE_DIR) and sends request.json; admit it: "
                f"hushpoint federated admit {self.folder} request.json"
            )
        return [load_public(self.roster(site, count)) for site in range(count)]

    def admit_key(self, site: int, key: str) -> int:
        """Take the public key of a site; another one than was taken before is refused."""
        place = self.roster(require_count("site", site, least=0, most=self.count - 1), self.count)
        if place.exists() and place.read_text(encoding="ascii") != key:
            raise another_key(place)
        _write(place, key)
        return site

    def missing_keys(self) -> list[int]:
        """Sites whose public keys are not here yet."""
        count = self.count
        return [site for site in range(count) if not self.roster(site, count).is_file()]

    def make_keys(self, hosts: list[str], days: int, *, of_sites: bool = False) -> list[str]:
        """Whatever keys of the server are missing, and with ``of_sites`` those of sites whose folders are here.

        Keys of sites are made here to try a federation out: whoever has this folder then has them too. Names what was
        made.
        """
        from hushpoint.federated import keys

        count, made = self.count, []
        host = self.address.rpartition(":")[0].strip("[]")
        names = dict.fromkeys([*hosts, *([] if host in ("0.0.0.0", "::") else [host]), "127.0.0.1", "localhost"])
        certificate = self.keys / "server.crt"
        if not certificate.exists():
            keys.make_certificates(self.keys, list(names), days)
            made.append("certificate of the server")
        elif not keys.hosts_of(certificate) >= set(hosts):
            self._another_certificate(names, days)
            made.append("another certificate of the server")
        if not (self.keys / "signing.key").exists():
            key = keys.new_key()
            keys.save_private(self.keys / "signing.key", key)
            keys.save_public(self.keys / "signing.pub", key.public_key())
            made.append("signing key of the server")
        for site in range(count):
            folder = self.site(site, count)
            if of_sites and not self.is_secure and not self.roster(site, count).exists():
                keys.save_public(self.roster(site, count), make_site_key(folder).public_key())
                made.append(f"key of site {site}")
            self.hand_keys_to(folder)
        return made

    def renew_certificate(self, days: int) -> None:
        """Another certificate of the server, for the same names, from another authority: sites need its ``ca.crt``."""
        if not (self.keys / "server.crt").is_file():
            raise ValueError(f"there is no certificate to renew. Make it: hushpoint federated keys {self.folder}")
        self._another_certificate((), days)
        for site in range(count := self.count):
            self.hand_keys_to(self.site(site, count))

    def _another_certificate(self, names: Iterable[str], days: int) -> None:
        from hushpoint.federated import keys

        require_count("days", days)
        hosts = sorted({*names, *keys.hosts_of(self.keys / "server.crt")})
        for name in ("ca.crt", "server.crt", "server.key"):
            (self.keys / name).replace(self.keys / f"{name}.old")
        keys.make_certificates(self.keys, hosts, days)

    def hand_keys_to(self, folder: Path) -> None:
        """Put what a site needs of the server's public keys into its folder, if that is here and they are."""
        for name, own in (("ca.crt", "ca.crt"), ("server.pub", "signing.pub")):
            if folder.exists() and (self.keys / own).is_file():
                _write(folder / name, (self.keys / own).read_text(encoding="ascii"))


def another_key(place: Path) -> ValueError:
    """What is said where a key would be replaced that nobody has asked to replace."""
    return ValueError(
        f"{str(place)!r} has another key. If the site has made new ones, admit them with --replace: a change is a new "
        "agreement."
    )


def make_site_key(folder: Path) -> EllipticCurvePrivateKey:
    """A key for a site, made where the site is; its public half goes to the roster of the server."""
    from hushpoint.federated import keys

    key = keys.new_key()
    keys.save_private(folder / "site.key", key)
    (folder / "site.pub").unlink(missing_ok=True)
    keys.save_public(folder / "site.pub", key.public_key())
    return key


def make_request(folder: Path, site: int) -> Path:
    """A key for a site, made where the site is, and the request by which the server admits it."""
    from hushpoint.federated import keys

    key = make_site_key(folder)
    _write(folder / "request.json", json.dumps({"site": site, "key": keys.public_text(key.public_key())}) + "\n")
    return folder / "request.json"


def read_request(path: Path) -> dict[str, Any]:
    """What a site has sent: which one it is, and its public keys."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if not (type(record["site"]) is int and isinstance(record["key"], str)):
            raise ValueError
        return dict(record)
    except (OSError, ValueError, KeyError, TypeError):
        raise ValueError(
            f"{str(path)!r} is no request of a site. A site makes it with: hushpoint federated keys SITE_DIR"
        ) from None


# --- the folder of a site


@dataclass(frozen=True)
class Site:
    """The folder of one site: all it needs, and nothing of the others."""

    folder: Path

    def settings(self) -> dict[str, Any]:
        """``site.toml``."""
        settings = toml_settings(self.folder / "site.toml")
        only(settings, "site.toml", ("site", "superlink", "data", "test", "window", "plugins", "limit", "testing"))
        return settings

    @property
    def number(self) -> int:
        """Which site of the plan it is."""
        return require_count("site", self.settings().get("site"), least=0)

    @property
    def address(self) -> str:
        """Where the server is."""
        return str(self.settings().get("superlink", _ADDRESS))

    @property
    def limit(self) -> Budget | None:
        """What the site will spend in all."""
        settings = self.settings()
        return _budget(table(settings, "limit"), "[limit]") if "limit" in settings else None

    @property
    def seed(self) -> int | None:
        """The seed of a test, None in earnest."""
        return _seed(self.settings())

    def plan(self) -> Plan:
        """The plan that the site agreed to: its own copy."""
        _import_plugins(self.settings(), "site.toml")
        plan = _read_plan(self.folder / "plan.json")
        # In a simulation one process holds all parties: what another one has imported is not this site's choice.
        if unlisted := _modules(plan.to_dict()) - set(self.settings().get("plugins", [])):
            raise ValueError(
                f"the plan of {str(self.folder)!r} has pieces of {', '.join(map(repr, sorted(unlisted)))}, which "
                "plugins in its site.toml does not list. Add them there, if you trust them."
            )
        return plan

    def shape(self) -> Shape:
        """What its data look like: its own copy of the schema."""
        return Shape.read(self.folder / "schema.toml")

    def agreed(self) -> Agreed:
        """The plan, the schema and the name of the run, all three as they are used here."""
        return read_agreed(self.folder, self.plan(), self.shape())

    def store(self) -> SiteStore:
        """The ledger and the state."""
        return SiteStore(self.folder)

    def own_key(self) -> EllipticCurvePrivateKey:
        """The key that the site signs with, and that the server's registry knows."""
        from hushpoint.federated.keys import load_private

        return load_private(self.folder / "site.key")

    def rows(self) -> Rows:
        """The data, scaled and clipped as the plan says."""
        X, y = self.shape().load(self.folder / str(self.settings().get("data", "data.csv")))
        return site_rows(self.plan(), self.number, X, y)

    def client(
        self, *, signed: bool = True, store: SiteStore | None = None, tell: Callable[[str], None] | None = None
    ) -> Client:
        """The client of this site, with its data."""
        from hushpoint.federated.keys import load_public

        settings, agreed = self.settings(), self.agreed()
        window = settings.get("window")
        return Client(
            agreed.plan,
            self.number,
            self.rows(),
            self.store() if store is None else store,
            seed=self.seed,
            limit=self.limit,
            server_key=load_public(self.folder / "server.pub") if signed else None,
            own_key=self.own_key() if signed else None,
            window=None if window is None else Window.parse(str(window)),
            agreed=agreed,
            tell=tell,
        )


def _is_loopback(host: str) -> bool:
    return host.startswith("127.") or host in ("localhost", "[::1]")


def set_in(path: Path, name: str, value: str | int) -> None:
    """Change a setting at the top of a TOML file, or add it there; whatever else is in the file stays."""
    text, line = path.read_text(encoding="utf-8"), f"{name} = {toml_value(value)}"
    tables = re.search(r"^\[", text, flags=re.MULTILINE)
    head, rest = (text, "") if tables is None else (text[: tables.start()], text[tables.start() :])
    said = re.compile(rf"^{name}\s*=\s*(\"[^\"\n]*\"|'[^'\n]*'|\d+)", flags=re.MULTILINE)
    head = said.sub(lambda _: line, head, count=1) if said.search(head) else f"{line}\n{head}"
    _write(path, head + rest)


def _host_and_port(name: str, value: Any) -> str:
    host, _, port = str(value).rpartition(":")
    require(bool(host) and port.isdigit(), name, value, f"Write host:port, for example {_ADDRESS}.")
    return str(value)


def _number(site: int, count: int) -> str:
    return f"{site:0{max(2, len(str(count - 1)))}d}"


def _read_plan(path: Path) -> Plan:
    try:
        return Plan.from_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(
            f"{str(path)!r} cannot be read: {error.strerror}. Make it: hushpoint federated plan."
        ) from None
    except (json.JSONDecodeError, KeyError, TypeError):
        raise ValueError(f"{str(path)!r} is no plan. Make it anew: hushpoint federated plan.") from None


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text, force=True)
