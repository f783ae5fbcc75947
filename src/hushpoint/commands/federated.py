"""Federated training from the command line: agree, hand out keys, start the server and the sites, run."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from hushpoint.commands.federated_status import log_the_end, standing_of, tell_run, tell_standing

if TYPE_CHECKING:
    from hushpoint.federated.folder import Outcome
    from hushpoint.federated.log import Log

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the federation.")]
EitherFolder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the federation, or of one site.")]
SiteFolder = Annotated[Path, typer.Argument(metavar="SITE_DIR", help="The folder of one site.")]
LogAs = Annotated[str, typer.Option("--log", click_type=click.Choice(["words", "json"]), help="How to log.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_SECURE = """\
# What all sites agree on. When every site's keys are here: hushpoint federated plan {folder}

[model]
name = "{model}"  # {others}
{declared}
[budget]
epsilon = 1.0
delta = {delta}
unit = "{unit}"  # whom it protects: one "record", one "user" of the schema's groups column, or a whole "site"

[secure]  # every release is a sum of which nobody sees the parts
colluders = 1  # so many sites may be in league with the server; 0: against the server and outsiders only
survivors = {count}  # the fewest sites that a round goes on with
rounds = 20  # deployed, each takes some seconds
spare = 2  # rounds that may fail

[sites]
{items} = {rows}  # the public number of {items} of each site
"""

_FEDERATION = """\
# What all sites agree on. After a change: hushpoint federated plan {folder}

[model]
loss = "{loss}"
regularizer = {{l2 = 0.01}}  # or {{l1 = 0.01}}, both, {{}} for none
row_norm = {row_norm}  # longer rows are scaled down to this{with_intercept}
clip = 1.0  # bound on the gradient of a row
fit_intercept = true
weights = "rows"  # whether sites count by their rows, or equally ("items")

[method]
name = "federated_admm"  # noise at the sites, nobody is trusted; "anchored_admm": noise at a trusted server
rounds = 10
gamma = 20.0

[budget]  # or noise_std under [method]
epsilon = 1.0
delta = 1e-5
unit = "record"  # whom it protects: one "record" of a site, or the whole site as a "user"

[sites]
rows = {rows}  # the public number of rows of each site
"""

_ENDS = {
    "stalled": "stalled",
    "unfinished": "is unfinished",
    "died": "died",
    "refused": "was refused",
    "lost": "is lost",
}
_LOST = "sites know of later rounds than this server does; they are counted, and their model is not here"

_SERVER = """\
# How the server behaves; sites need not agree to this.
address = "{address}"  # where sites call it; to change it: hushpoint federated keys {folder} --host NAME
{bind}  # where it listens on this machine, for example "0.0.0.0:9092" for all addresses
quorum = 1.0  # share of the sites asked that must answer for a round to count
round_timeout = 120  # seconds
resend_after = 20  # seconds after which a silent site is asked again
start_timeout = 120  # seconds to wait for sites at the start
retries = 5  # rounds without a quorum are tried so often again
# plugins = ["package.module"]  # modules whose losses and regularisers federation.toml may name
# validation = "public.csv"  # public rows whose objective is shown after each round
# health = 9464  # /healthz and /metrics on this port of this machine, or "host:port"; only what is public in a run
"""


def init(
    folder: Folder,
    rows: Annotated[list[int], typer.Option("--rows", help="Rows of a site, once for each.", min=1)],
    schema: Annotated[
        Path | None, typer.Option(help="The schema of the sites' tables (hushpoint schema drafts one).")
    ] = None,
    features: Annotated[int | None, typer.Option(help="Number of features, for NumPy data.", min=1)] = None,
    address: Annotated[str, typer.Option(help="Where sites will call the server.")] = "127.0.0.1:9092",
    bind: Annotated[
        str | None, typer.Option(help="Where it listens on its machine, if elsewhere: 0.0.0.0:9092 for everywhere.")
    ] = None,
    local_noise: Annotated[
        bool,
        typer.Option("--local-noise", help="In place of secure sums: ADMM in which every site hides its own messages."),
    ] = False,
) -> None:
    """Make the folder of a federation: what is agreed on, a folder for each site, the Flower app.

    Example: hushpoint federated init hospitals --rows 1200 --rows 800 --schema patients.schema.toml
    """
    from hushpoint._files import write_text
    from hushpoint.federated.folder import Federation, Shape
    from hushpoint.federated.launch import write_app
    from hushpoint.federated.units import write_units
    from hushpoint.schema import toml_value

    if (schema is None) == (features is None):
        raise ValueError("give one of --schema FILE (tables) and --features N (NumPy data).")
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{str(folder)!r} is not empty. Choose another folder.")
    text = f"features = {features}\n" if schema is None else _read(schema)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "schema.toml", text)
    shape = Shape.read(folder / "schema.toml")
    local = {
        "folder": folder,
        "loss": "logistic" if shape.two_classes else "huber",
        "row_norm": f"{shape.row_norm:.6g}",
        "with_intercept": ", the intercept's 1 included",
        "rows": toml_value(rows),
    }
    agreed = _FEDERATION.format(**local) if local_noise else _SECURE.format(**_declared(folder, shape, rows))
    write_text(folder / "federation.toml", agreed)
    listens = '# bind = "..."' if bind is None else f"bind = {toml_value(bind)}"
    write_text(folder / "server.toml", _SERVER.format(address=address, bind=listens, folder=folder))
    federation = Federation(folder)
    write_app(federation)
    write_units(folder)
    if local_noise:
        federation.write_plan()
        typer.echo(
            f"Wrote {folder}. Edit {folder / 'federation.toml'} and {folder / 'server.toml'}, then\n"
            f"  hushpoint federated plan {folder}\n  hushpoint federated keys {folder}"
        )
        return
    for number in range(len(rows)):
        federation.new_site(number, federation.site(number, len(rows)))
    typer.echo(
        f"Wrote {folder}. Edit {folder / 'federation.toml'} and {folder / 'server.toml'}, then\n"
        f"  hushpoint federated simulate {folder} --in-process   to try it with all data here, or in earnest\n"
        f"  hushpoint federated keys {folder}                    certificate and signing key of the server\n"
        f"Hand each site its folder of {folder / 'sites'}. There: hushpoint federated keys SITE_DIR --own,\n"
        f"and send request.json back. Here: hushpoint federated admit {folder} REQUEST..., when all are in\n"
        f"hushpoint federated plan {folder}, and hand covenant.json out. There: hushpoint federated accept SITE_DIR."
    )


def _declared(folder: Path, shape: Any, rows: list[int]) -> dict[str, Any]:
    """What the agreement of a federation with secure sums says at first."""
    from hushpoint.schema import toml_value

    schema = shape.schema
    classes = schema is not None and schema.task == "classification"
    users = schema is not None and schema.groups is not None
    declared = "" if schema is not None else "row_norm = 1.0  # longer rows are scaled down to it\n"
    declared += (
        "" if schema is not None else "target_range = [-1.0, 1.0]  # or, for a logistic model, classes = [0, 1]\n"
    )
    return {
        "folder": folder,
        "model": "logistic" if classes else "linear",
        "others": 'or "svc"' if classes else 'or "lasso", "huber"' if schema else 'or "lasso", "huber", "logistic"',
        "declared": declared,
        "delta": f"{min(1e-5, 0.1 / sum(rows)):.0e}",
        "unit": "user" if users else "record",
        "count": len(rows),
        "items": "users" if users else "rows",
        "rows": toml_value(rows),
    }


def plan(folder: Folder, as_json: AsJson = False) -> None:
    """Make the plan anew from federation.toml and schema.toml, and say what it promises.

    Example: hushpoint federated plan hospitals
    """
    from hushpoint.federated.folder import Federation
    from hushpoint.federated.terms import plan_digest, planned, spent, units

    federation = Federation(folder)
    if federation.is_secure:
        _tell_covenant(federation, as_json)
        return
    made, seed = federation.write_plan(), federation.seed
    promises = [spent(made, planned(made), unit=unit, seed=seed) for unit in units(made)]
    if as_json:
        record = {"run": plan_digest(made), "plan": made.to_dict(), "promised": [p.to_dict() for p in promises]}
        typer.echo(json.dumps(record, indent=2))
        return
    typer.echo(f"Plan {plan_digest(made)}: {made.method}, {made.steps} rounds, {made.operator.blocks} sites.")
    for promise in promises:
        typer.echo(f"- {promise}")


def _tell_covenant(federation: Any, as_json: bool) -> None:
    from hushpoint.federated.secure.folder import SecureFederation, words_of

    covenant = SecureFederation(federation).write()
    if as_json:
        typer.echo(json.dumps({"fingerprint": covenant.fingerprint, "covenant": json.loads(covenant.to_json())}))
        return
    typer.echo(words_of(covenant))
    typer.echo(
        "Hand covenant.json to every site. Its people compare the fingerprint with the others', by telephone or by\n"
        "any way that this server has no hand in, and accept it: hushpoint federated accept SITE_DIR "
        "--fingerprint '...'"
    )


def admit(
    folder: Folder,
    requests: Annotated[list[Path], typer.Argument(metavar="REQUEST...", help="The request.json of a site, or more.")],
) -> None:
    """At the server: take the public keys that sites have sent.

    Example: hushpoint federated admit hospitals from-site-0.json from-site-1.json
    """
    from hushpoint.federated.folder import Federation
    from hushpoint.federated.secure.folder import SecureFederation

    secure = SecureFederation(Federation(folder))
    for request in requests:
        typer.echo(f"Admitted the keys of site {secure.admit(request)}.")
    missing = secure.missing()
    typer.echo(
        f"Still missing: site {', '.join(map(str, missing))}."
        if missing
        else f"All keys are here. Next: hushpoint federated plan {folder}"
    )


def accept(
    folder: SiteFolder,
    fingerprint: Annotated[
        str | None, typer.Option(help="The fingerprint, once it was compared with the other sites.")
    ] = None,
) -> None:
    """At a site: say what the covenant promises and asks, and accept it with its fingerprint.

    Example: hushpoint federated accept hospitals/sites/03 --fingerprint "41d0 77aa ..."
    """
    from hushpoint.federated.folder import Site
    from hushpoint.federated.secure.folder import SecureSiteFolder, words_of

    covenant = SecureSiteFolder(Site(folder)).accept(fingerprint)
    typer.echo(words_of(covenant))
    if fingerprint is None:
        typer.echo("Not accepted yet: compare the fingerprint with the other sites, then give it with --fingerprint.")
    else:
        typer.echo(f"Accepted. Next: hushpoint federated site {folder}")


def keys(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the federation, or of a site (--own).")],
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="A name or address that sites call the server by; the first is the one they use."),
    ] = None,
    days: Annotated[int, typer.Option(help="How long the certificate holds.", min=1)] = 365,
    own: Annotated[
        bool, typer.Option("--own", help="At a site: make its key there, so that nobody else ever has it.")
    ] = False,
) -> None:
    """Make the keys that are missing: certificate and signing key of the server, a key for each site.

    Example: hushpoint federated keys hospitals --host federation.example.org
    """
    from hushpoint.federated.folder import Federation, Site, make_site_key
    from hushpoint.federated.secure.folder import SecureSiteFolder

    if own:
        if (folder / "plan.json").exists():
            make_site_key(folder)
            typer.echo(
                f"Wrote {folder / 'site.key'}. Send {folder / 'site.pub'} to whoever runs the server: it goes to "
                "roster/."
            )
            return
        request = SecureSiteFolder(Site(folder)).make_keys()
        typer.echo(f"Wrote keys that stay in {folder}. Send {request} to whoever runs the server.")
        return
    federation = Federation(folder)
    moved = federation.call(host[0]) if host else False
    made = federation.make_keys(host or [], days)
    typer.echo(f"Made: {', '.join(made)}." if made else "Nothing was missing.")
    if "another certificate of the server" in made:
        typer.echo("Hand ca.crt to every site again, and restart the SuperLink: sites refuse any other certificate.")
    if moved:
        typer.echo(
            f"Sites call the server at {federation.address}, and it listens at {federation.bind} (server.toml). The\n"
            f"site.toml in folders that are here say so; in those that are not: superlink = {federation.address!r}."
        )


def superlink(folder: Folder, log: LogAs = "words") -> None:
    """Start Flower's SuperLink with TLS and known sites only, and keep it running.

    Example: hushpoint federated superlink hospitals
    """
    from hushpoint.federated.folder import Federation
    from hushpoint.federated.launch import serve_superlink
    from hushpoint.federated.log import Log, note_who_is_turned_away

    lines = Log("superlink", partial(print, file=sys.stdout, flush=True), as_json=log == "json")
    note_who_is_turned_away(lines)
    with redirect_stdout(sys.stderr) if lines.as_json else nullcontext():  # what Flower says is no JSON
        serve_superlink(Federation(folder), lines.node)


def site(
    folder: SiteFolder,
    patience: Annotated[
        float, typer.Option(help="Seconds to wait for a server that does not admit the site.", min=0.0)
    ] = 25.0,
    stock: Annotated[
        bool,
        typer.Option("--stock", help="Use Flower's own flower-supernode, which runs any program the server sends it."),
    ] = False,
    log: LogAs = "words",
) -> None:
    """Join the federation as a site and answer the server; ends on Ctrl-C.

    Example: hushpoint federated site hospitals/sites/03
    """
    from hushpoint.federated.folder import Site, is_secure

    here = Site(folder)
    if stock and is_secure(folder):
        raise ValueError(
            "stock is given: a program that the server sends could read the secrets of secure sums. Drop it."
        )
    if stock:
        from hushpoint.federated.launch import become_supernode

        here.client()  # what is wrong with the data or the keys is said here
        become_supernode(here)
    from hushpoint.federated.apps import site_answer
    from hushpoint.federated.log import Log
    from hushpoint.federated.node import SiteNode

    lines = Log(f"site {here.number}", _say, as_json=log == "json", place=folder / "node")
    try:
        answer = site_answer(here, log=lines)
        node = SiteNode(here.address, folder / "ca.crt", here.own_key(), answer, folder, lines.node, patience)
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, lambda *_: node.stop.set())
        lines.say("started", f"site {here.number}: {here.address}")
        node.serve()
    except ValueError as error:  # written by us; of the data it says what is wrong with it, which no log is to have
        if not lines.as_json:
            raise
        log_the_end(lines, here, error)
        raise typer.Exit(2) from None
    except Exception as error:  # its text may quote data, and what is printed may be kept in a log
        raise ValueError(f"the site failed with a {type(error).__name__}. Start it again.") from None


def run(
    folder: Folder,
    timeout: Annotated[float | None, typer.Option(help="Stop watching after so many seconds.", min=0.0)] = None,
    as_json: AsJson = False,
    log: LogAs = "words",
) -> None:
    """Run the plan on the sites that have joined, or go on with it, and show its rounds.

    Example: hushpoint federated run hospitals
    """
    from hushpoint.federated import launch
    from hushpoint.federated.folder import Federation

    federation = Federation(folder)
    from hushpoint.federated.log import Log

    lines = Log("server", _say, as_json=True) if log == "json" else None
    hear = None if lines is None else lines.pass_on_but_the_end
    ended = launch.run(federation, _shown(as_json or lines is not None), timeout, hear)
    _conclude(ended, federation.run, as_json, lines)


def simulate(
    folder: Folder,
    out: Annotated[Path | None, typer.Option(help="Where to write; default: DIR/simulation.")] = None,
    in_process: Annotated[bool, typer.Option("--in-process", help="Without Flower.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run the plan with all sites on this machine, with Flower's simulation engine, or without Flower.

    Example: hushpoint federated simulate hospitals
    """
    from hushpoint.federated import launch
    from hushpoint.federated.folder import Federation

    federation, place = Federation(folder), out or folder / "simulation"
    if in_process:
        ended = launch.simulate_in_process(federation, place, _shown(as_json))
    else:
        ended = launch.simulate(federation, place, (lambda words: None) if as_json else _say)
    _conclude(ended, place / "run", as_json)


def status(folder: EitherFolder, as_json: AsJson = False) -> None:
    """Say what a site has spent by its own ledger, or where the run of a server stands.

    Example: hushpoint federated status hospitals/sites/03
    """
    from hushpoint.federated.disk import Damaged
    from hushpoint.federated.folder import Site, is_secure
    from hushpoint.federated.terms import plan_digest, spent, trust, units

    if (folder / "federation.toml").is_file():
        tell_run(folder, as_json)
        return
    here = Site(folder)
    if is_secure(folder):
        _secure_status(here, as_json)
        return
    agreed, number = here.plan(), here.number
    name = plan_digest(agreed)
    try:
        ledger = here.store().ledger()
    except Damaged:
        raise ValueError(
            f"the ledger in {str(folder)!r} is lost or damaged: nobody knows what this site has spent. Restore it "
            f"from a copy, or vouch for a number: hushpoint federated readmit {folder} --participations N"
        ) from None
    count, local = ledger.count(name), trust(agreed) == "nobody"
    said = [spent(agreed, count, unit=unit, site=number, seed=here.seed) for unit in units(agreed)] if local else []
    if as_json:
        record = {
            "site": number,
            "run": name,
            "participations": count,
            "in_all_runs": ledger.before + len(ledger.entries),
            "vouched_for": ledger.before,
            "spent": [guarantee.to_dict() for guarantee in said],
            **standing_of(here, secure=False),
        }
        typer.echo(json.dumps(record, indent=2))
        return
    typer.echo(
        f"Site {number} took part {count} times in run {name}, {ledger.before + len(ledger.entries)} times in all."
    )
    for guarantee in said:
        typer.echo(f"- {guarantee}")
    if not local:
        typer.echo(
            "The noise of this method is the server's, and so is the statement of what is spent: ask for run.json."
        )
    tell_standing(here, secure=False)


def _secure_status(here: Any, as_json: bool) -> None:
    from hushpoint.federated.disk import Damaged
    from hushpoint.federated.secure.folder import SecureSiteFolder
    from hushpoint.federated.secure.spending import claimed

    covenant = SecureSiteFolder(here).covenant()
    try:
        ledger = here.store().ledger()
    except Damaged:
        raise ValueError(f"the ledger in {str(here.folder)!r} is lost or damaged. Restore it from a copy.") from None
    entries = ledger.of(covenant.run)
    counted, promise = claimed(entries, covenant), covenant.promise()
    so_far = counted.epsilon(covenant.budget.delta)
    if as_json:
        record = {
            "site": here.number, "run": covenant.name, "rounds": len(entries), "counted_so_far": so_far,
            "promised": [promise.to_dict()],
        }  # fmt: skip
        record |= {"in_all_runs": ledger.before + len(ledger.entries), **standing_of(here, secure=True)}
        typer.echo(json.dumps(record, indent=2))
        return
    typer.echo(
        f"Site {here.number} took part in {len(entries)} rounds of run {covenant.name}, in "
        f"{ledger.before + len(ledger.entries)} in all. Counted so far: epsilon = {so_far:.4g}.\nWhen rounds stop is "
        f"the server's choice, so what holds is what was promised:\n- {promise}"
    )
    tell_standing(here, secure=True)


def readmit(
    folder: SiteFolder,
    participations: Annotated[
        int, typer.Option(help="How often the site has taken part, at most: a number that you vouch for.", min=0)
    ],
) -> None:
    """Open a new ledger where one was lost, with a number of participations that a person vouches for.

    Example: hushpoint federated readmit hospitals/sites/03 --participations 20
    """
    from hushpoint.federated.ledger import SiteStore

    SiteStore.readmit(folder, participations)
    typer.echo(f"Opened a new ledger in {folder}, with {participations} participations vouched for.")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error.strerror}.") from None


def _say(words: str) -> None:
    print(words, flush=True)


def _shown(as_json: bool) -> Callable[[Mapping[str, Any]], None]:
    from hushpoint.federated.table import headline, line_of

    if as_json:
        return lambda record: None
    _say(headline())
    return lambda record: _say(line_of(record))


def _conclude(ended: Outcome, place: Path, as_json: bool, log: Log | None = None) -> None:
    """Print what a run cost and where the model is; a code other than 0 unless it came to its end."""
    if log is not None:
        log.say("end", ended.words or f"the run is {ended.name}", reason=ended.name)
    try:
        record = json.loads((place / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        record = {}
    if as_json:
        typer.echo(json.dumps({"outcome": ended.name, "words": ended.words, **record}, indent=2))
    elif log is None:
        for guarantee in record.get("spent", []):
            _say(f"- {guarantee['statement']}")
        if told := record.get("held_out"):
            from hushpoint.tables.figures import Figure, in_words

            figures = {name: Figure(**figure) for name, figure in told["figures"].items()}
            said = ", ".join(f"{words} {value}" for words, value in in_words(figures, "hidden by the noise"))
            _say(f"On {told['items']:,} held-out {told['unit']}s, with noise: {said}.")
    if ended.name in ("finished", "spent"):
        if not as_json and log is None:
            _say(f"The run is {ended.name}: {place / 'run.json'}")
        return
    if not as_json and log is None:
        remedy = " Run the same command again to go on." if ended.name in ("stalled", "died") else ""
        words = (ended.words or (_LOST if ended.name == "lost" else "too few sites answered")).rstrip(".")
        typer.echo(f"Error: the run {_ENDS[ended.name]}: {words}.{remedy}", err=True)
    raise typer.Exit(3 if ended.name in ("stalled", "unfinished") else 1)
