"""The study of communication: rounds and bytes until the objective is within 1% of the optimum, by the same budget.

Users hold many rows each, with truths of their own; one user is protected. Noise is calibrated to the planned number
of rounds, so a method does not reach 1% on the way: the study looks for the fewest planned rounds whose released model
has a mean gap of at most 1%. For every number of rounds every method is tuned anew over as many settings, on separate
data of the same law; what is reported comes from data that no setting has seen.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from operator import itemgetter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hushpoint import engine
from hushpoint.experiments.communication_gaps import GAPS, budget_is, gap_rows, gap_table, secure_summary, size_of
from hushpoint.experiments.communication_methods import (
    ADJACENCY,
    DELTA,
    ESTIMATOR,
    ESTIMATOR_LABEL,
    FEWEST_ROUNDS,
    METHODS,
    TAILS,
    Plans,
    Sample,
    Size,
    draw,
    estimator_training,
    round_trip,
    sent_bytes,
)  # fmt: skip
from hushpoint.experiments.contenders import SECURE
from hushpoint.experiments.secure_bytes import EXCHANGES, round_bytes
from hushpoint.experiments.secure_sums import SecureTerms
from hushpoint.experiments.seeds import derived
from hushpoint.experiments.study import Cell, Record, Study, number, spread, table_of_methods
from hushpoint.experiments.tuning import Settings, choices, require_equal_effort, say_grids
from hushpoint.plan import Plan

TITLE = "Rounds and bytes to 1% of the non-private objective: private ADMM, DP-FedAvg and DP-FedSGD"
TARGET = 0.01  # of the non-private objective
_AGAIN = 6  # one setting in so many is tried on all tuning data, after one try each
_PATIENCE, _PROGRESS = 4, 0.8  # a search goes on if one of the last so many gaps is so much of the least before them

COLUMNS = (
    "method", "label", "trust", "view", "unit", "adjacency", "epsilon", "delta", "share", "rounds", "bytes", "numbers",
    "gap_mean", "gap_std", "runs", "noise_std", "parameters",
)  # fmt: skip
SEARCH = ("method", "epsilon", "share", "rounds", "bytes", "tuning_gap", "gap_mean", "gap_std", "place", "parameters")


# --- cells


def search(settings: Record) -> Record:
    """The planned numbers of rounds in turn, until the tuned setting of one has a mean gap of at most the target.

    A search far from its target is given up when more rounds have ceased to help.
    """
    tried: list[Record] = []
    target = settings["target"]
    for rounds in settings["rounds"]:
        tried.append(entry := _entry(settings, rounds))
        if entry.get("gap_mean", math.inf) <= target or _hopeless(tried, target):
            break
    return {"tried": tried}


def curve(settings: Record) -> Record:
    """The numbers of rounds that a search has left out, for the gap against rounds."""
    return {"tried": [_entry(settings, rounds) for rounds in settings["rounds"]]}


def estimator(settings: Record) -> Record:
    """The estimator by secure sums with so many rounds at the most: nothing is tuned, so no data but these are seen."""
    size, seed, epsilon = Size(**settings["size"]), settings["seed"], settings["epsilon"]
    tried = []
    for rounds in settings["rounds"]:
        training = estimator_training(size, epsilon, rounds)
        gaps, used, sent = [], [], []
        for run in range(settings["runs"]):
            sample = draw(size, derived(seed, "data", run))
            noise_seed = derived(seed, "noise", ESTIMATOR, epsilon, rounds, run)
            model, links, count = training.run(sample.problem(), noise_seed)
            gaps.append(sample.gap(model))
            used.append(sum(link.plan.steps for link in links))
            sent.append(count)
        entry = {"rounds": rounds, "rounds_used": max(used), "bytes": max(sent), "numbers": None, "view": "messages"}
        tried.append({**entry, **spread("gap", gaps), "gaps": gaps})
    return {"tried": tried}


def _entry(settings: Record, rounds: int) -> Record:
    """What the tuned setting of a method comes to in so many rounds."""
    size = Size(**settings["size"])
    plans = Plans(settings["method"], size, rounds, settings["share"], settings["epsilon"])
    entry = {"rounds": rounds, **_tuned(settings, rounds, plans)}
    if entry["place"] is not None:
        entry["parameters"] = settings["grid"][entry["place"]]
        entry |= _evaluated(settings, rounds, plans, entry["parameters"])
    return entry


def _hopeless(tried: Sequence[Record], target: float) -> bool:
    gaps = [math.inf if entry["place"] is None else entry["tuning_gap"] for entry in tried]
    if len(gaps) <= _PATIENCE or min(gaps) <= 2 * target:
        return False
    return min(gaps[-_PATIENCE:]) > _PROGRESS * min(gaps[:-_PATIENCE])


def _gap(plan: Plan, sample: Sample, seed: int) -> float:
    assert plan.facts is not None
    # The engine itself: Plan.run would account for every run anew.
    return sample.gap(engine.run(plan.on(sample.problem(plan.facts.clip)), seed=seed).model)


def _tuned(settings: Record, rounds: int, plans: Plans) -> Record:
    """The place of the best setting on tuning data: all are tried on the first sample, the best of them on the rest."""
    grid, seed = settings["grid"], settings["seed"]

    def gap(place: int, run: int) -> float:
        sample = draw(Size(**settings["size"]), derived(seed, "tuning data", run))
        noise_seed = derived(seed, "tuning noise", settings["method"], rounds, run)
        return _gap(plans.plan(grid[place]), sample, noise_seed)

    first = [gap(place, 0) for place in range(len(grid))]
    some = sorted(range(len(grid)), key=first.__getitem__)[: max(1, len(grid) // _AGAIN)]
    more = range(1, settings["tuning_runs"])
    means = {k: math.fsum([first[k], *(gap(k, run) for run in more)]) / settings["tuning_runs"] for k in some}
    best = min(some, key=means.__getitem__)
    found = math.isfinite(means[best])
    return {"place": best if found else None, "tuning_gap": means[best] if found else None}


def _evaluated(settings: Record, rounds: int, plans: Plans, choice: Settings) -> Record:
    """Runs of the chosen setting, each on data of its own."""
    seed, epsilon = settings["seed"], settings["epsilon"]
    plan = plans.plan(choice)
    guarantee = plans.guarantee(plan)
    if epsilon is not None and guarantee.epsilon > epsilon:
        raise RuntimeError(f"the noise of {plan.method} at {rounds} rounds exceeds its budget.")
    name = settings["method"], epsilon or 0.0, settings["share"], rounds
    gaps = [
        _gap(plan, draw(Size(**settings["size"]), derived(seed, "data", run)), derived(seed, "noise", *name, run))
        for run in range(settings["runs"])
    ]
    found = {"noise_std": plan.parameters["noise_std"], "view": guarantee.view}
    messages = rounds * plan.schedule.most_at_once * plan.schedule.probability
    size = Size(**settings["size"])
    sent = {
        "bytes": sent_bytes(settings["method"], size, plan, messages),
        "numbers": round(messages * 2 * size.features),
    }
    return {**spread("gap", gaps), "gaps": gaps, **found, **sent}


# --- the study


@dataclass(frozen=True)
class Scale:
    """How large a study is. An epsilon of None is a run without noise."""

    size: Size = field(default_factory=Size)
    epsilons: tuple[float | None, ...] = (None, 100.0, 10.0, 3.0, 1.0)
    shares: tuple[float, ...] = (1.0, 0.2)
    rounds: tuple[int, ...] = (1, 2, 3, 4, 6, 9, 14, 20, 30)
    runs: int = 5
    tuning_runs: int = 3
    methods: tuple[str, ...] = tuple(METHODS)
    tails: tuple[float | None, ...] = TAILS
    followed: tuple[str, ...] = ("anchored_admm", "secure_anchored", "dp_fedsgd")
    shown: tuple[float, ...] = (10.0, 3.0, 1.0)  # the budgets at which the followed methods try every number of rounds

    def settings_of(self, method: str) -> list[Settings]:
        """The grid of a method."""
        return [choice for choice in METHODS[method].grid if choice["tail"] in self.tails]

    def searches(self) -> Iterable[tuple[str, float | None, float]]:
        """Every method, budget and share of the users; by secure sums all take part, and only where there is noise."""
        for name, epsilon, share in itertools.product(self.methods, self.epsilons, self.shares):
            if not METHODS[name].secure or (epsilon is not None and share == 1):
                yield name, epsilon, share

    @property
    def estimated(self) -> list[int]:
        """The numbers of rounds in which the estimator can do anything."""
        return [rounds for rounds in self.rounds if rounds >= FEWEST_ROUNDS]


FULL = Scale()
QUICK = Scale(
    size=Size(users=100, fewest=10, most=20, features=10), epsilons=(None, 10.0, 3.0), rounds=(1, 2, 4, 8, 16),
    runs=3, tuning_runs=2, tails=(None,), shown=(10.0, 3.0),
)  # fmt: skip


def run_communication(
    directory: Path, *, scale: Scale | None = None, quick: bool = False, seed: int = 0, jobs: int = 2,
    console: Console | None = None,
) -> Record:  # fmt: skip
    """Run the study, or what is left of it, and write its tables, sentences and report into a directory."""
    console = console or Console()
    scale = scale or (QUICK if quick else FULL)
    effort = require_equal_effort({name: scale.settings_of(name) for name in scale.methods})
    _say_what(scale, effort, console)
    common = {
        "size": asdict(scale.size), "seed": seed, "delta": DELTA, "target": TARGET, "rounds": list(scale.rounds),
        "runs": scale.runs, "tuning_runs": scale.tuning_runs,
    }  # fmt: skip
    cells = [
        Cell(
            f"search-{name}-{_word(epsilon)}-{share:g}", search,
            {**common, "method": name, "epsilon": epsilon, "share": share, "grid": scale.settings_of(name)},
            _weight(name, share),
        )
        for name, epsilon, share in scale.searches()
    ]  # fmt: skip
    cells += [
        Cell(f"estimator-{epsilon:g}", estimator, {**common, "epsilon": epsilon, "rounds": scale.estimated}, 0.2)
        for epsilon in scale.epsilons if epsilon is not None
    ]  # fmt: skip
    study = Study("communication", TITLE, directory, _settings(scale, effort), {"quick": quick}, seed, console)
    results = study.run(cells, jobs, partial(_rest, scale), later=0.5 * len(scale.followed) * len(scale.shown))
    tried = _tried(scale, results)
    rows = _rows(tried, scale.runs)
    gaps = gap_rows([*tried, *_followed(scale, results)], (*scale.followed, ESTIMATOR), scale.shown, scale.runs)
    study.save("communication", COLUMNS, rows)
    study.save("search", SEARCH, tried)
    study.save("gaps", GAPS, gaps)
    console.print(gap_table(gaps))
    summary = [*_summary(rows), *secure_summary(rows, gaps, scale.size.users)]
    return study.finish(summary, _claims(rows), _terminal_table(scale, rows))


def _rest(scale: Scale, cell: Cell, result: Record) -> Iterable[Cell]:
    """What a search left out, for the methods that are followed."""
    settings = cell.settings
    if cell.task is not search or settings["method"] not in scale.followed:
        return
    left = [rounds for rounds in scale.rounds if rounds not in {entry["rounds"] for entry in result["tried"]}]
    if settings["epsilon"] in scale.shown and settings["share"] == 1 and left:
        yield Cell(cell.name.replace("search", "curve"), curve, {**settings, "rounds": left}, 1.0)


def _weight(name: str, share: float) -> float:
    """About how long a search takes, for the remaining time."""
    slow = {"dp_fedsgd": 0.3, "dp_sgd_rows": 0.15}
    return slow.get(name, 1.0) * (0.2 + share)


def _word(epsilon: float | None) -> str:
    return "none" if epsilon is None else f"{epsilon:g}"


def _settings(scale: Scale, effort: int) -> Record:
    terms = SecureTerms(scale.size.users)
    return {
        **asdict(scale.size),
        "epsilons": [_word(epsilon) for epsilon in scale.epsilons],
        "delta": DELTA,
        "adjacency": ADJACENCY,
        "unit": "user",
        "shares_of_users_a_round": list(scale.shares),
        "rounds_tried": list(scale.rounds),
        "bytes_of_a_request_and_its_reply": {
            name: round_trip(name, scale.size.features) for name in scale.methods if not METHODS[name].secure
        },
        "secure_sums": {"sites": terms.sites, "survivors": terms.sites, "colluders": terms.colluders}
        | {"spare": terms.spare, "bytes_of_a_round": round_bytes(terms, scale.size.features, scale.size.features)},
        "runs": scale.runs,
        "tuning_runs": scale.tuning_runs,
        "settings_tuned_over": effort,
        "grids": {name: choices(scale.settings_of(name)) for name in scale.methods},
    }


# --- tables and sentences


def _tried(scale: Scale, results: dict[str, Record]) -> list[Record]:
    """Every number of rounds that was tried."""
    rows: list[Record] = []
    for name, epsilon, share in scale.searches():
        found = results[f"search-{name}-{_word(epsilon)}-{share:g}"]
        rows += _entries(name, epsilon, share, found["tried"])
    for epsilon in scale.epsilons:
        if epsilon is not None:
            rows += _entries(ESTIMATOR, epsilon, 1.0, results[f"estimator-{epsilon:g}"]["tried"])
    return rows


def _followed(scale: Scale, results: dict[str, Record]) -> list[Record]:
    """What was tried beyond the searches."""
    rows: list[Record] = []
    for name, epsilon in itertools.product(scale.followed, scale.shown):
        if found := results.get(f"curve-{name}-{epsilon:g}-1"):
            rows += _entries(name, epsilon, 1.0, found["tried"])
    return rows


def _entries(name: str, epsilon: float | None, share: float, tried: Iterable[Record]) -> list[Record]:
    """The entries of a cell as rows of a table."""
    label, trust = (ESTIMATOR_LABEL, SECURE) if name == ESTIMATOR else (METHODS[name].label, METHODS[name].trust)
    about = {"method": name, "label": label, "trust": trust, "share": share}
    return [{**about, "epsilon": math.inf if epsilon is None else epsilon, **entry} for entry in tried]


def _rows(tried: Sequence[Record], runs: int) -> list[Record]:
    """For every method, budget and share the first number of rounds that was enough, or the nearest miss."""
    rows: list[Record] = []
    about = {"unit": "user", "adjacency": ADJACENCY, "delta": DELTA, "runs": runs}
    for _, search in itertools.groupby(tried, key=itemgetter("method", "epsilon", "share")):
        own = [row for row in search if "gap_mean" in row]
        enough = [row for row in own if row["gap_mean"] <= TARGET]
        if enough:
            rows.append({**enough[0], **about})
        elif own:
            near = min(own, key=itemgetter("gap_mean"))
            rows.append({**near, **about, "rounds": None, "bytes": None, "numbers": None})
    return rows


def _fewest(rows: Iterable[Record]) -> tuple[Record, Record] | None:
    """The row with the fewest rounds and the one with the fewest bytes, if any was enough."""
    enough = [row for row in rows if row["rounds"] is not None]
    if not enough:
        return None
    return min(enough, key=itemgetter("rounds", "bytes")), min(enough, key=itemgetter("bytes"))


def _claims(rows: Sequence[Record]) -> list[str]:
    """Every method at every budget."""
    said = []
    for epsilon in dict.fromkeys(row["epsilon"] for row in rows):
        for name in (*METHODS, ESTIMATOR):
            own = [row for row in rows if (row["method"], row["epsilon"]) == (name, epsilon)]
            if not own:
                continue
            fewest = _fewest(own)
            if fewest is None:
                near = min(own, key=itemgetter("gap_mean"))
                said.append(f"{budget_is(epsilon)} {near['label']} does not get there: {_percent(near)} at best.")
                continue
            quick, small = fewest
            text = f"{budget_is(epsilon)} {quick['label']} needs {_rounds(quick)}, {size_of(quick['bytes'])}, for"
            text += f" {_percent(quick)} (std {number(100 * quick['gap_std'])}%)"
            if small is not quick:
                text += f"; in bytes it needs least with {_rounds(small)}, {size_of(small['bytes'])}"
            said.append(text + ".")
    return said


def _summary(rows: Sequence[Record]) -> list[str]:
    """Who is ahead at each budget, and who never arrives."""
    said = []
    for epsilon in dict.fromkeys(row["epsilon"] for row in rows):
        here = [row for row in rows if row["epsilon"] == epsilon]
        fewest = _fewest(here)
        if fewest is None:
            said.append(f"{budget_is(epsilon)} no method gets within 1%.")
            continue
        quick, small = fewest
        lost = [label for label in dict.fromkeys(row["label"] for row in here) if _lost(here, label)]
        text = (
            f"{budget_is(epsilon)} the fewest rounds, {quick['rounds']}, are those of {_equals(here, quick, 'rounds')}"
        )
        text += f"; the fewest bytes, {size_of(small['bytes'])}, those of {_equals(here, small, 'bytes')}"
        text += f" ({_rounds(small)})"
        said.append(text + (f". Not within 1%: {', '.join(lost)}." if lost else "."))
    return said


def _equals(here: Sequence[Record], best: Record, what: str) -> str:
    return " and ".join(dict.fromkeys(row["label"] for row in here if row[what] == best[what]))


def _lost(here: Sequence[Record], label: str) -> bool:
    return all(row["rounds"] is None for row in here if row["label"] == label)


def _rounds(row: Record) -> str:
    people = "all users" if row["share"] == 1 else f"{row['share']:.0%} of the users"
    return f"{row['rounds']} round{'' if row['rounds'] == 1 else 's'} with {people}"


def _percent(row: Record) -> str:
    return f"{number(100 * row['gap_mean'])}% above the optimum"


def _say_what(scale: Scale, effort: int, console: Console) -> None:
    size, terms = scale.size, SecureTerms(scale.size.users)
    rounds, shares = ", ".join(map(str, scale.rounds)), " or ".join(f"{share:.0%}" for share in scale.shares)
    sizes = " or ".join(
        map(str, sorted({round_trip(name, size.features) for name in scale.methods if not METHODS[name].secure}))
    )
    console.print(
        f"{size.users} users with {size.fewest} to {size.most} rows of {size.features} features, logistic loss. One "
        f"user is protected ({ADJACENCY}, delta = {DELTA:g}). Wanted: the fewest planned rounds out of {rounds} with a "
        f"mean gap of at most {TARGET:.0%} over {scale.runs} draws of the data, with {shares} of the users a round. A "
        f"request and its reply take {sizes} bytes, of which {2 * 8 * size.features} are numbers. For every number of "
        f"rounds each method is tuned over {effort} settings on separate data: each on one draw, the best "
        f"{max(1, effort // _AGAIN)} on {scale.tuning_runs}. A search is given up where, "
        f"on the tuning data, it is over {2 * TARGET:.0%} and {_PATIENCE} more numbers of rounds have not brought it "
        f"down by {1 - _PROGRESS:.0%}. By secure sums every user is a site, all of them take part, {terms.colluders} "
        f"of them may collude with the server, and there is room for {terms.spare} rounds that fail; a round takes "
        f"{size_of(round_bytes(terms, size.features, size.features))} in {EXCHANGES} exchanges. Tuned over every "
        "combination of:",
        highlight=False,
    )
    say_grids(console, {METHODS[name].label: scale.settings_of(name) for name in scale.methods})


def _terminal_table(scale: Scale, rows: Sequence[Record]) -> Table:
    """A line a method, a column a budget: fewest rounds, fewest bytes."""
    table = table_of_methods(
        "Fewest rounds, and fewest bytes, to 1% of the non-private objective",
        *("no noise" if epsilon is None else f"eps {epsilon:g}" for epsilon in scale.epsilons),
        padding=1,
        caption="never: the lowest mean gap in any of the rounds tried",
    )
    shown = {name: (METHODS[name].label, METHODS[name].trust) for name in scale.methods}
    for name, (label, trust) in {**shown, ESTIMATOR: (ESTIMATOR_LABEL, SECURE)}.items():
        cells = []
        for epsilon in scale.epsilons:
            level = math.inf if epsilon is None else epsilon
            own = [row for row in rows if (row["method"], row["epsilon"]) == (name, level)]
            if not own:
                cells.append("")
            elif fewest := _fewest(own):
                cells.append(f"{fewest[0]['rounds']}\n{size_of(fewest[1]['bytes'])}")
            else:
                least = min(row["gap_mean"] for row in own)
                cells.append(f"never\n({number(100 * least)}%)")
        table.add_row(f"{label}\n({trust})", *cells)
    return table
