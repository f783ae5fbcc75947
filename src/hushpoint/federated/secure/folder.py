"""The folders of a federation with secure sums: agree, exchange keys that sites made themselves, accept, take part.

``federation.toml`` with a table ``[secure]`` and ``schema.toml`` say what is wanted. ``covenant.json`` is made of them
and of the sites' keys, once all of these are there; a site takes part only in the covenant that its people accepted.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushpoint._checks import require_choice, require_count
from hushpoint._files import write_json, write_text
from hushpoint.federated.client import Window, site_rows
from hushpoint.federated.folder import (
    Federation,
    Shape,
    Site,
    another_key,
    make_plan,
    only,
    read_request,
    table,
    toml_budget,
)
from hushpoint.federated.ledger import SiteStore
from hushpoint.federated.secure.covenant import ROUNDS, SPARE, Covenant, estimator_covenant, plan_covenant
from hushpoint.federated.secure.learner import KINDS, UNITS, Learner
from hushpoint.federated.secure.site import SecureSite, SiteData
from hushpoint.federated.secure.store import SecureStore
from hushpoint.federated.secure.trainings import PlanTraining
from hushpoint.privacy.guarantee import Budget
from hushpoint.schema import ENCODING
from hushpoint.secure.agreement import Agreement, Roster

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

_TABLES = ("model", "method", "budget", "sites", "secure", "evaluation")
_SECURE = ("colluders", "survivors", "threshold", "rounds", "spare")


def make_covenant(settings: Mapping[str, Any], shape: Shape, roster: Roster, run: str) -> Covenant:
    """The covenant that ``federation.toml`` and ``schema.toml`` describe, for sites with these keys."""
    only(settings, "federation.toml", _TABLES)
    secure, model, sites = (dict(table(settings, name)) for name in ("secure", "model", "sites"))
    only(secure, "[secure]", _SECURE)
    count, spare = len(roster), secure.get("spare", SPARE)
    agreement = Agreement(
        run, roster, secure.get("survivors", count), secure.get("colluders", 1), secure.get("threshold")
    )
    about: dict[str, Any] = {"schema": shape.to_dict(), "model": model, "encoder": ENCODING}
    if "name" not in model:
        if "evaluation" in settings:
            raise ValueError("[evaluation] is of models with a name: a plan has none to evaluate. Leave it out.")
        if "rounds" in secure:
            raise ValueError("rounds is in [secure], and a plan has its own in [method]. Write it there.")
        method, spoken = {"lattice": True, **table(settings, "method")}, dict(table(settings, "budget"))
        if spoken.get("unit") == "site":  # which is one item of the plan
            about["unit"], spoken["unit"] = "site", "user"
        plan = make_plan({**settings, "method": method, "budget": spoken}, shape)
        return plan_covenant(agreement, plan, toml_budget({"budget": spoken}), spare=spare, about=about)
    require_choice("name in [model]", model["name"], KINDS)
    if "method" in settings:
        raise ValueError("[method] is given and [model] has a name: an estimator is trained, and needs no method.")
    spoken = dict(table(settings, "budget"))
    unit = spoken.pop("unit", "user" if shape.schema is not None and shape.schema.groups else "record")
    require_choice("unit in [budget]", unit, UNITS)
    if shape.schema is not None and (unit == "user") != bool(shape.schema.groups):
        if shape.schema.groups:
            has = f'groups = {shape.schema.groups!r}. Write unit = "user", or take groups out of the schema'
        else:
            has = 'no groups. Name the column that says whose row each is, or write unit = "record"'
        raise ValueError(f"unit in [budget] is {unit!r} and schema.toml has {has}.")
    adjacency = spoken.pop("adjacency", None)
    if adjacency is not None:
        model["adjacency"] = adjacency
    about["unit"] = unit
    budget = toml_budget({"budget": spoken})
    learner = Learner.of(about, budget)
    rounds = secure.get("rounds", ROUNDS)
    return estimator_covenant(
        agreement,
        learner.estimator,
        learner.features(about),
        _items(sites, unit, count),
        Budget(budget.epsilon, budget.delta),
        unit="record" if unit == "record" else "user",
        rounds=rounds,
        spare=spare,
        to_learn=learner.to_learn,
        range_share=learner.range_share,
        **_evaluation(settings, unit, count),
        about=about,
    )


def _evaluation(settings: Mapping[str, Any], unit: str, count: int) -> dict[str, Any]:
    """What ``[evaluation]`` says, as ``estimator_covenant`` takes it."""
    if "evaluation" not in settings:
        return {}
    asked = dict(table(settings, "evaluation"))
    only(asked, "[evaluation]", ("rows", "users", "share"))
    share = {"evaluation_share": asked.pop("share")} if "share" in asked else {}
    return {"held_out": _items(asked, unit, count, "[evaluation]"), **share}


def _items(sites: Mapping[str, Any], unit: str, count: int, where: str = "[sites]") -> list[int]:
    """How many items each site has, all public."""
    if unit == "site":
        return [1] * count
    name = "rows" if unit == "record" else "users"
    given = sites.get(name)
    if not isinstance(given, list) or len(given) != count:
        raise ValueError(f"{where} needs {name} = [...], the public number of {name} of each of {count} sites.")
    return [require_count(name, one) for one in given]


def sums_of(record: Mapping[str, Any], request: Path) -> bytes:
    """The public key for secure sums in the request of a site."""
    try:
        sums = bytes.fromhex(record["sums"])
        if len(sums) != 32:
            raise ValueError
        return sums
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{str(request)!r} is no request with a key for secure sums.") from None


@dataclass(frozen=True)
class SecureFederation:
    """The folder of whoever runs the server."""

    base: Federation

    @property
    def place(self) -> Path:
        """Of the covenant."""
        return self.base.folder / "covenant.json"

    def names(self) -> list[str]:
        """What the sites are called: "site 0" and so on, unless names are declared."""
        sites, count = table(self.base.settings(), "sites"), self.base.count
        names = sites.get("names", [f"site {k}" for k in range(count)])
        if not isinstance(names, list) or len(names) != count:
            raise ValueError(f"names in [sites] is {names!r}. Write one for each of {count} sites.")
        return [str(name) for name in names]

    def missing(self) -> list[int]:
        """Sites whose keys are not here yet."""
        count = self.base.count
        return [site for site in range(count) if not self._sum_key(site).is_file()]

    def admit(self, request: Path) -> int:
        """Take the public keys of a site from the file that it sent. Which site it is."""
        record = read_request(request)
        sums = sums_of(record, request)
        place, text = self._sum_key(record["site"]), sums.hex() + "\n"
        if place.exists() and place.read_text(encoding="ascii") != text:
            raise another_key(place)
        site = self.base.admit_key(record["site"], record["key"])
        write_text(place, text, force=True)
        return site

    def roster(self) -> Roster:
        """Names and keys of all sites; an error that names those whose keys are missing."""
        if absent := self.missing():
            raise ValueError(
                f"the keys of site {', '.join(map(str, absent))} are missing. Each site makes its own (hushpoint "
                "federated keys SITE_DIR) and sends request.json; admit it: "
                f"hushpoint federated admit {self.base.folder} request.json"
            )
        keys = [bytes.fromhex(self._sum_key(site).read_text(encoding="ascii")) for site in range(self.base.count)]
        return Roster(tuple(zip(self.names(), keys, strict=True)))

    def write(self, *, new_run: bool = False) -> Covenant:
        """Make ``covenant.json``, unless nothing has changed, and hand it to the sites whose folders are here."""
        settings, shape, roster = self.base.settings(), self.base.shape(), self.roster()
        if not new_run and self.place.is_file() and self.is_as_made():
            covenant = self.covenant()
        else:
            if not new_run and (self.base.run / "server.npz").exists():
                raise ValueError(
                    f"{str(self.base.run)!r} holds a run of the covenant as it was. Agree on another run, which moves "
                    f"that one away: hushpoint federated plan {self.base.folder} --new-run. What was spent stays "
                    "counted in the ledgers of the sites."
                )
            covenant = make_covenant(settings, shape, roster, secrets.token_hex(16))
            if new_run:  # only now: what cannot be agreed on moves nothing
                self.base.put_run_away()
            write_text(self.place, covenant.to_json(), force=True)
            write_text(self._made, self._now() + "\n", force=True)
        for site in range(self.base.count):
            folder = self.base.site(site, self.base.count)
            if folder.exists():
                write_text(folder / "covenant.json", covenant.to_json(), force=True)
        return covenant

    @property
    def _made(self) -> Path:
        return self.base.folder / "covenant.made"

    def _now(self) -> str:
        """What the covenant would be made of now."""
        return self.base.agreement_digest() + self.roster().digest.hex()

    def is_as_made(self) -> bool:
        """Whether the covenant was made of the agreement and the keys that are here now."""
        return self._made.is_file() and self._made.read_text(encoding="ascii").strip() == self._now()

    def covenant(self) -> Covenant:
        """The covenant as it was made."""
        return read_covenant(self.place)

    def current(self) -> Covenant:
        """The covenant, if it is of the agreement, the sites and the keys that are here now."""
        covenant = self.covenant()
        if covenant.agreement.roster == self.roster() and not self.is_as_made():
            raise ValueError(
                "federation.toml or schema.toml has changed since covenant.json was made. Undo that, or agree anew: "
                f"hushpoint federated plan {self.base.folder} --new-run, and let every site accept it."
            )
        if covenant.agreement.roster != self.roster():
            raise ValueError(
                "sites or their keys have changed since covenant.json was made. Agree anew: hushpoint federated plan "
                f"{self.base.folder} --new-run, and let every site accept it."
            )
        return covenant

    def site_keys(self) -> list[EllipticCurvePublicKey]:
        """With which the sites sign their replies."""
        return self.base.site_keys(self.base.count)

    def learner(self, covenant: Covenant) -> Learner | None:
        """The model that is trained; None where it is a plan."""
        return None if isinstance(covenant.training, PlanTraining) else Learner.of(covenant.about, covenant.budget)

    def _sum_key(self, site: int) -> Path:
        return self.base.roster(site, self.base.count).with_suffix(".sums")


@dataclass(frozen=True)
class SecureSiteFolder:
    """The folder of one site."""

    base: Site

    def make_keys(self) -> Path:
        """Keys that never leave this folder, and the request with their public halves."""
        from hushpoint.federated import keys
        from hushpoint.federated.folder import make_site_key
        from hushpoint.secure.primitives import signing_public

        folder = self.base.folder
        secret = folder / "sums.key"
        if secret.exists() or (folder / "site.key").exists():
            raise ValueError(f"{str(folder)!r} has keys. Move them away first: keys are never replaced.")
        key = make_site_key(folder)
        handle = os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        drawn = os.urandom(32)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(drawn.hex() + "\n")
        request = {
            "site": self.base.number,
            "key": keys.public_text(key.public_key()),
            "sums": signing_public(drawn).hex(),
        }
        write_json(folder / "request.json", request)
        return folder / "request.json"

    def signing(self) -> bytes:
        """The private key of the site's letters."""
        place = self.base.folder / "sums.key"
        try:
            found = bytes.fromhex(place.read_text(encoding="ascii"))
        except (OSError, ValueError):
            raise ValueError(
                f"{str(place)!r} holds no key. Make it here: hushpoint federated keys {self.base.folder}"
            ) from None
        if os.name == "posix" and place.stat().st_mode & 0o077:
            raise ValueError(f"{str(place)!r} can be read by others. Close it: chmod 600 {place}")
        return found

    def covenant(self) -> Covenant:
        """The covenant that was handed to the site, accepted or not."""
        return read_covenant(self.base.folder / "covenant.json")

    def accept(self, fingerprint: str | None) -> Covenant:
        """Accept the covenant, given the fingerprint that the sites have compared; an error if it is another one."""
        covenant = self.covenant()
        self._require_own(covenant)
        if fingerprint is not None:
            if fingerprint.replace(" ", "").lower() != covenant.fingerprint.replace(" ", ""):
                raise ValueError(
                    f"the fingerprint of this covenant is {covenant.fingerprint!r}, not the one that was given. Do not "
                    "accept it: ask the others what they were sent."
                )
            record = {"covenant": covenant.digest.hex(), "at": datetime.now(UTC).isoformat(timespec="seconds")}
            write_json(self.base.folder / "accepted.json", record)
        return covenant

    def accepted(self) -> Covenant:
        """The covenant, if it is the one that was accepted."""
        covenant, folder = self.covenant(), self.base.folder
        try:
            digest = json.loads((folder / "accepted.json").read_text(encoding="utf-8"))["covenant"]
        except (OSError, ValueError, KeyError, TypeError):
            digest = ""
        made_for = covenant.about.get("encoder", ENCODING)
        if made_for != ENCODING:
            raise ValueError(
                f"the covenant in {str(folder)!r} was made by a version of hushpoint that makes other numbers of a "
                f"table ({made_for}, and this one {ENCODING}). Install the version that the others have."
            )
        if digest != covenant.digest.hex():
            other = "another covenant was accepted before" if digest else "nobody has accepted it"
            raise ValueError(
                f"the covenant in {str(folder)!r} is not accepted here ({other}). Compare its fingerprint with the "
                f"other sites, then: hushpoint federated accept {folder} --fingerprint '...'"
            )
        self._require_own(covenant)
        return covenant

    def _require_own(self, covenant: Covenant) -> None:
        from hushpoint.secure.primitives import signing_public

        number, own = self.base.number, signing_public(self.signing())
        places = [place for place, (_, key) in enumerate(covenant.agreement.roster.sites) if key == own]
        if places and places != [number]:
            raise ValueError(
                f"in this covenant this site has the number {places[0]}, and site.toml says {number}: sites before it "
                f"have left. Write site = {places[0]} in {str(self.base.folder / 'site.toml')!r}."
            )
        if not places:
            raise ValueError(
                f"the covenant has another key for site {number} than {str(self.base.folder / 'sums.key')!r}. Send "
                "request.json to whoever runs the server, and do not accept a covenant with a key that is not yours."
            )

    def data(self, covenant: Covenant) -> SiteData:
        """The rows, as the plans of the covenant ask for them."""
        base, training = self.base, covenant.training
        path = base.folder / str(base.settings().get("data", "data.csv"))
        if not path.is_file():
            raise ValueError(f'there is no file {str(path)!r}. Name the data in site.toml: data = "...".')
        if isinstance(training, PlanTraining):
            X, y = Shape.from_dict(covenant.about["schema"]).load(path)
            return SiteData(site_rows(training.plan, base.number, X, y))
        test = base.folder / str(base.settings().get("test", "test.csv"))
        if training.held_out and not test.is_file():
            raise ValueError(f'there is no file {str(test)!r} with held-out rows. Name it in site.toml: test = "...".')
        return Learner.of(covenant.about, covenant.budget).data(covenant, path, test)

    def secure_site(self, *, store: SiteStore | None = None, tell: Callable[[str], None] | None = None) -> SecureSite:
        """The site with its data, for the covenant that its people accepted."""
        from hushpoint.federated.keys import load_public

        base, covenant = self.base, self.accepted()
        window = base.settings().get("window")
        return SecureSite(
            covenant,
            base.number,
            self.data(covenant),
            SecureStore(base.store() if store is None else store),
            self.signing(),
            limit=base.limit,
            server_key=load_public(base.folder / "server.pub"),
            own_key=base.own_key(),
            window=None if window is None else Window.parse(str(window)),
            tell=tell,
        )


def read_covenant(path: Path) -> Covenant:
    """The covenant in a file."""
    try:
        return Covenant.from_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(
            f"{str(path)!r} cannot be read: {error.strerror}. It is made where the server is (hushpoint federated "
            "plan DIR), and every site keeps its own copy in its folder."
        ) from None


def words_of(covenant: Covenant) -> str:
    """A covenant for people: what is trained, for whom, against whom, in how many rounds."""
    agreement, training = covenant.agreement, covenant.training
    facts = training.facts
    names = ", ".join(name for name, _ in agreement.roster.sites)
    what = training.plan.method if isinstance(training, PlanTraining) else covenant.about["model"]["name"]
    away = covenant.sites - agreement.survivors
    waits = "waits for all sites" if away == 0 else f"goes on without up to {away} sites"
    models = training.models
    each = f" for each of {models} models" if models > 1 else ""
    return (
        f"{what} over {covenant.sites} sites ({names}), {facts.items} items, {facts.features} features\n"
        f"at most {training.rounds} rounds{each}, each of which {waits}; {agreement.colluders} of the sites may\n"
        f"collude with the server; room for {covenant.spare} failed rounds\n{covenant.promise()}\n"
        f"fingerprint  {covenant.fingerprint}"
    )
