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

from hushpoint.commands.federated_status import log_the_end

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
unit = "{unit}"  # whom it protects: {whom}

[secure]  # every release is a sum of which nobody sees the parts
colluders = 1  # so many sites may be in league with the server; 0: against the server and outsiders only
survivors = {count}  # the fewest sites that a round goes on with
rounds = 20  # at most, for the model of a class; learning ranges takes up to 4 more
spare = 2  # rounds that may fail

[sites]
{items} = {rows}  # the public number of {items} of each site

# [evaluation]  # figures of the model at the end, on rows that sites hold out: test = "..." in site.toml
# {items} = [...]  # the public number of held-out {items} of each site
# share = 0.05  # of the budget
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
    rows: Annotated[
        list[int],
        typer.Option("--rows", help="Rows of a site (users, if the schema names their column), once for each.", min=1),
    ],
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
    from hushpoint.federated.folder import Federation, Shape, require_no_users
    from hushpoint.federated.launch import write_app
    from hushpoint.federated.units import write_units
    from hushpoint.schema import toml_value

    if (schema is None) == (features is None):
        raise ValueError("give one of --schema FILE (tables) and --features N (NumPy data).")
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{str(folder)!r} is not empty. Choose another folder.")
    if len(rows) < 2:
        raise ValueError("there is one site only. Give --rows once for each of two sites or more.")
    text = f"features = {features}\n" if schema is None else _read(schema)
    shape = Shape(arrays=features or 0) if schema is None else Shape.read(schema)
    if local_noise:
        require_no_users(shape)
        local = {
            "folder": folder,
            "loss": "logistic" if shape.two_classes else "huber",
            "row_norm": f"{shape.row_norm:.6g}",
            "with_intercept": ", the intercept's 1 included",
            "rows": toml_value(rows),
        }
        agreed = _FEDERATION.format(**local)
    else:
        agreed = _SECURE.format(**_declared(folder, shape, rows))
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "schema.toml", text)
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
            f"  hushpoint federated plan {folder}\n"
            f"  hushpoint federated simulate {folder} --in-process   to try it with all data here, or in earnest\n"
            f"  hushpoint federated keys {folder}                    certificate and signing key of the server\n"
            f"Hand each site its folder of {folder / 'sites'}. There: hushpoint federated keys SITE_DIR,\n"
            f"and send request.json back. Here: hushpoint federated admit {folder} REQUEST..."
        )
        return
    for number in range(len(rows)):
        federation.new_site(number, federation.site(number, len(rows)))
    typer.echo(
        f"Wrote {folder}. Edit {folder / 'federation.toml'} and {folder / 'server.toml'}, then\n"
        f"  hushpoint federated simulate {folder} --in-process   to try it with all data here, or in earnest\n"
        f"  hushpoint federated keys {folder}                    certificate and signing key of the server\n"
        f"Hand each site its folder of {folder / 'sites'}. There: hushpoint federated keys SITE_DIR,\n"
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
        "whom": f"one user of the column {schema.groups!r}" if users else 'one "record", or a whole "site"',
        "count": len(rows),
        "items": "users" if users else "rows",
        "rows": toml_value(rows),
    }


def plan(
    folder: Folder,
    new_run: Annotated[
        bool, typer.Option("--new-run", help="Agree on another run though nothing has changed; run/ is moved away.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make the plan anew from federation.toml and schema.toml, and say what it promises.

    Example: hushpoint federated plan hospitals
    """
    from hushpoint.federated.folder import Federation
    from hushpoint.federated.terms import planned, spent, units

    federation = Federation(folder)
    if federation.is_secure:
        _tell_covenant(federation, as_json, new_run)
        return
    made, seed = federation.write_plan(new_run=new_run), federation.seed
    run = federation.agreed().run
    promises = [spent(made, planned(made), unit=unit, seed=seed) for unit in units(made)]
    if as_json:
        record = {"run": run, "plan": made.to_dict(), "promised": [p.to_dict() for p in promises]}
        typer.echo(json.dumps(record, indent=2))
        return
    typer.echo(f"Plan {run}: {made.method}, {made.steps} rounds, {made.operator.blocks} sites.")
    for promise in promises:
        typer.echo(f"- {promise}")


def _tell_covenant(federation: Any, as_json: bool, new_run: bool) -> None:
    from hushpoint.federated.secure.folder import SecureFederation, words_of

    covenant = SecureFederation(federation).write(new_run=new_run)
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
    replace: Annotated[
        bool, typer.Option("--replace", help="In the place of older keys, which are never taken again.")
    ] = False,
) -> None:
    """At the server: take the public keys that sites have sent.

    Example: hushpoint federated admit hospitals from-site-0.json from-site-1.json
    """
    from hushpoint.federated import members
    from hushpoint.federated.folder import Federation
    from hushpoint.federated.secure.folder import SecureFederation

    federation = Federation(folder)
    secure = SecureFederation(federation) if federation.is_secure else None
    for request in requests:
        site = members.admit(federation, request, replace=replace)
        typer.echo(f"Admitted the keys of site {site}.")
    missing = federation.missing_keys() if secure is None else secure.missing()
    then = "superlink" if secure is None else "plan"
    typer.echo(
        f"Still missing: site {', '.join(map(str, missing))}."
        if missing
        else f"All keys are here. Next: hushpoint federated {then} {folder}"
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
        typer.echo(f"Accepted. Next (again, where it is at work already): hushpoint federated site {folder}")


def keys(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the federation, or of a site.")],
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="A name or address that sites call the server by; the first is the one they use."),
    ] = None,
    days: Annotated[int, typer.Option(help="How long the certificate holds.", min=1)] = 365,
    own: Annotated[bool, typer.Option("--own", help="At a site, where it is the default.")] = False,
    for_sites: Annotated[
        bool,
        typer.Option("--for-sites", help="To try it out: also keys of the sites whose folders are here, made here."),
    ] = False,
) -> None:
    """Make the keys that are missing: at the server its certificate and signing key, at a site its own.

    Example: hushpoint federated keys hospitals --host federation.example.org
    """
    from hushpoint.federated.folder import Federation, Site, make_request
    from hushpoint.federated.secure.folder import SecureSiteFolder

    if not own and not (folder / "site.toml").is_file():
        federation = Federation(folder)
        moved = federation.call(host[0]) if host else False
        made = federation.make_keys(host or [], days, of_sites=for_sites)
        typer.echo(f"Made: {', '.join(made)}." if made else "Nothing was missing.")
        if "another certificate of the server" in made:
            typer.echo("Hand ca.crt to every site again, and restart the SuperLink: sites refuse other certificates.")
        if moved:
            typer.echo(
                f"Sites call the server at {federation.address}, and it listens at {federation.bind} (server.toml).\n"
                f"The site.toml in folders here say so; others have to write superlink = {federation.address!r}."
            )
        return
    here = Site(folder)
    if (folder / "plan.json").exists():
        request = make_request(folder, here.number)
    else:
        request = SecureSiteFolder(here).make_keys()
    typer.echo(f"Wrote keys that stay in {folder}. Send {request} to whoever runs the server.")


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
    """Print what a run cost, how it ended and where the model is; ``ends.ENDS`` has the exit codes."""
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
    if not as_json and log is None:
        model = place / "model.json"
        if ended.name == "finished":
            _say(f"The run is finished: {place / 'run.json'}" + (f". Note: {ended.words}." if ended.words else ""))
        else:
            left = f" The last public model is in {model}." if model.is_file() else " There is no model yet."
            typer.echo(f"Error: {ended.sentence}{left}", err=True)
    if ended.code:
        raise typer.Exit(ended.code)
