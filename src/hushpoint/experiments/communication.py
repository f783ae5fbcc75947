"""The study of communication: rounds and bytes until the objective is within 1% of the optimum, by the same budget.

Users hold many rows each, with truths of their own; one user is protected. Noise is calibrated to the planned number
of rounds, so a method does not reach 1% on the way: the study looks for the fewest planned rounds whose released model
has a mean gap of at most 1%. For every number of rounds every method is tuned anew over as many settings, on separate
data of the same law; what is reported comes from data that no setting has seen.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache, partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.optimize import minimize

from hushpoint import engine, methods
from hushpoint._types import Array, Indices
from hushpoint.experiments.contenders import AGGREGATOR, NOBODY
from hushpoint.experiments.seeds import derived
from hushpoint.experiments.study import Cell, Record, Study, number, spread, table_of_methods
from hushpoint.experiments.tuning import Settings, choices, product, require_equal_effort, say_grids
from hushpoint.plan import Plan
from hushpoint.privacy.guarantee import Adjacency, Budget
from hushpoint.problem import Problem
from hushpoint.regularizers import L2

ADJACENCY: Adjacency = "zero-out"  # which the amplification of secret samples needs
DELTA = 1e-5
TITLE = "Rounds and bytes to 1% of the non-private objective: private ADMM, DP-FedAvg and DP-FedSGD"
TARGET = 0.01  # of the non-private objective
_ROW_NORM, _RIDGE = 1.5, 1e-3
_AGAIN = 6  # one setting in so many is tried on all tuning data, after one try each
_PATIENCE, _PROGRESS = 4, 0.8  # a search goes on if one of the last so many gaps is so much of the least before them

COLUMNS = (
    "method", "label", "trust", "view", "unit", "adjacency", "epsilon", "delta", "share", "rounds", "bytes", "numbers",
    "gap_mean", "gap_std", "runs", "noise_std", "parameters",
)  # fmt: skip
SEARCH = ("method", "epsilon", "share", "rounds", "bytes", "tuning_gap", "gap_mean", "gap_std", "place", "parameters")


# --- data


@dataclass(frozen=True)
class Size:
    """How many users, with how many rows each (uniformly from a range), of how many features."""

    users: int = 300
    fewest: int = 20
    most: int = 30
    features: int = 20


@dataclass(frozen=True, eq=False)
class Sample:
    """The rows of all users."""

    rows: Array
    labels: NDArray[np.bool_]
    owners: Indices

    def problem(self, clip: float | None = None) -> Problem:
        """Users as items; ``clip`` is for methods that clip rows."""
        if clip not in self._problems:
            self._problems[clip] = Problem(
                self.rows, self.labels, "logistic", L2(_RIDGE), _ROW_NORM, self.owners, clip=clip
            )
        return self._problems[clip]

    @cached_property
    def _problems(self) -> dict[float | None, Problem]:
        return {}

    @cached_property
    def best(self) -> float:
        """The least objective."""
        problem = self.problem()

        def value_and_slope(z: Array) -> tuple[float, Array]:
            return problem.objective(z), problem.gradient(z) + _RIDGE * z

        return float(minimize(value_and_slope, np.zeros(problem.features), jac=True, tol=1e-9).fun)

    def gap(self, model: Array) -> float:
        """How far the objective of a model is above the least one, relative to it; infinite for what is no model."""
        objective = self.problem().objective(model) if np.isfinite(model).all() else math.inf
        return objective / self.best - 1 if math.isfinite(objective) else math.inf


@lru_cache(maxsize=32)
def draw(size: Size, seed: int) -> Sample:
    """Users whose rows and truths differ: features of falling size around means of the user's own.

    How many rows each has is the same in every draw, as it is public.
    """
    rng = np.random.default_rng(seed)
    owners = np.repeat(np.arange(size.users), size.fewest + np.arange(size.users) % (size.most + 1 - size.fewest))
    scales = (1.0 + np.arange(size.features)) ** -0.5
    scales /= np.linalg.norm(scales)
    means = 0.5 * scales * rng.normal(size=(size.users, size.features))
    rows = means[owners] + scales * rng.normal(size=(len(owners), size.features))
    truths = rng.choice([-3.0, 3.0], size=size.features) + 1.5 * rng.normal(size=(size.users, size.features))
    chances = 1 / (1 + np.exp(-np.einsum("ij,ij->i", rows, truths[owners])))
    return Sample(rows, rng.random(len(owners)) < chances, owners)


# --- methods

Make = Callable[[Sample, int, float, Settings, dict[str, Any]], Plan]


@dataclass(frozen=True)
class Method:
    """One line of the table: how a plan is made of a setting, and the settings that are tried."""

    label: str
    trust: str
    make: Make
    grid: tuple[Settings, ...]


def _anchored(sample: Sample, rounds: int, share: float, choice: Settings, level: dict[str, Any]) -> Plan:
    gamma = choice["gamma"]
    return methods.anchored_admm(
        sample.problem(), rounds, gamma, choice["relaxation"], sample_prob=share, radius=gamma * choice["clip"],
        tail_average=choice["tail"], **level,
    )  # fmt: skip


def _local(sample: Sample, rounds: int, share: float, choice: Settings, level: dict[str, Any]) -> Plan:
    gamma = choice["gamma"]
    some: dict[str, Any] = {}
    if share < 1:  # no sample is secret here: only a cap bounds how often a user takes part
        size = max(1, round(share * sample.problem().items))
        some = {"sample_size": size, "participation_cap": min(rounds, math.ceil(1.5 * share * rounds))}
    return methods.federated_admm(
        sample.problem(), rounds, gamma, choice["relaxation"], clip_residual=gamma * choice["clip"],
        tail_average=choice["tail"], **some, **level,
    )  # fmt: skip


def _averaging(sample: Sample, rounds: int, share: float, choice: Settings, level: dict[str, Any]) -> Plan:
    step, local_steps = choice["step"], choice.get("local_steps", 1)
    return methods.dp_fedavg(
        sample.problem(), rounds, local_steps, step, local_steps * step * choice["clip"], sample_prob=share,
        tail_average=choice["tail"], **level,
    )  # fmt: skip


def _rows_clipped(sample: Sample, rounds: int, share: float, choice: Settings, level: dict[str, Any]) -> Plan:
    problem = sample.problem(choice["clip"])
    return methods.dp_sgd(problem, rounds, choice["step"], sample_prob=share, tail_average=choice["tail"], **level)


_TAIL = (None, 0.5)
_CLIP = (0.03, 0.1, 0.3)  # of a user's gradient
_ADMM = tuple(product(gamma=(20.0, 60.0, 200.0, 600.0), clip=_CLIP, relaxation=(0.5, 0.9), tail=_TAIL))
_STEPS = (3.0, 6.0, 10.0, 16.0, 25.0, 40.0, 60.0, 100.0)
METHODS = {
    "anchored_admm": Method("anchored ADMM", AGGREGATOR, _anchored, _ADMM),
    "dp_fedavg": Method(
        "DP-FedAvg", AGGREGATOR, _averaging,
        tuple(product(step=(4.0, 8.0, 16.0, 32.0), local_steps=(4, 12), clip=_CLIP, tail=_TAIL)),
    ),
    "dp_fedsgd": Method(
        "DP-FedSGD", AGGREGATOR, _averaging, tuple(product(step=_STEPS, clip=_CLIP, tail=_TAIL)),
    ),
    "dp_sgd_rows": Method(
        "DP-SGD over users (rows clipped)", AGGREGATOR, _rows_clipped,
        tuple(product(step=_STEPS, clip=(0.1, 0.3, 1.0), tail=_TAIL)),
    ),
    "federated_admm_local": Method("federated ADMM (local noise)", NOBODY, _local, _ADMM),
}  # fmt: skip


def level(epsilon: float) -> dict[str, Any]:
    """What the budget says about noise."""
    return {"budget": Budget(epsilon, DELTA, adjacency=ADJACENCY, unit="user")}


class Plans:
    """Plans of a method at one budget, number of rounds and share, with noise in proportion to the bound of a message.

    Settings differ in nothing else that the accountant looks at, so that it is asked once for all of them. Plans of one
    sample are good for every other one, since all have the same facts.
    """

    def __init__(self, method: str, size: Size, rounds: int, share: float, epsilon: float | None) -> None:
        self._make = partial(METHODS[method].make, draw(size, 0), rounds, share)
        self._ratio = 0.0
        if epsilon is not None:
            first = self._make(METHODS[method].grid[0], level(epsilon))
            self._ratio = first.noise.std / first.certificate.shift("user", ADJACENCY) * (1 + 1e-9)

    def plan(self, choice: Settings) -> Plan:
        """The plan of a setting."""
        unit = self._make(choice, {"noise_std": 1.0})
        wanted = self._ratio * unit.certificate.shift("user", ADJACENCY)
        return self._make(choice, {"noise_std": wanted / unit.noise.std})


# --- cells


def search(settings: Record) -> Record:
    """The planned numbers of rounds in turn, until the tuned setting of one has a mean gap of at most the target.

    A search far from its target is given up when more rounds have ceased to help.
    """
    tried: list[Record] = []
    size, target = Size(**settings["size"]), settings["target"]
    for rounds in settings["rounds"]:
        plans = Plans(settings["method"], size, rounds, settings["share"], settings["epsilon"])
        entry = {"rounds": rounds, **_tuned(settings, rounds, plans)}
        if entry["place"] is not None:
            entry["parameters"] = settings["grid"][entry["place"]]
            entry |= _evaluated(settings, rounds, plans.plan(entry["parameters"]))
        tried.append(entry)
        if entry.get("gap_mean", math.inf) <= target or _hopeless(tried, target):
            break
    return {"tried": tried}


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


def _evaluated(settings: Record, rounds: int, plan: Plan) -> Record:
    """Runs of the chosen setting, each on data of its own."""
    seed, epsilon = settings["seed"], settings["epsilon"]
    guarantee = plan.guarantee(DELTA, adjacency=ADJACENCY, unit="user")
    if epsilon is not None and guarantee.epsilon > epsilon:
        raise RuntimeError(f"the noise of {plan.method} at {rounds} rounds exceeds its budget.")
    name = settings["method"], epsilon or 0.0, settings["share"], rounds
    gaps = [
        _gap(plan, draw(Size(**settings["size"]), derived(seed, "data", run)), derived(seed, "noise", *name, run))
        for run in range(settings["runs"])
    ]
    found = {"noise_std": plan.parameters["noise_std"], "view": guarantee.view}
    expected = plan.schedule.most_at_once * plan.schedule.probability
    return {**spread("gap", gaps), "gaps": gaps, **found, "messages": rounds * expected}


@lru_cache
def round_trip(method: str, features: int) -> int:
    """Bytes of a request and its reply, measured in a small federation of the same method and features (unsigned)."""
    from hushpoint.federated import run_in_process

    sample, about = draw(Size(users=12, features=features), 0), METHODS[method]
    plan = about.make(sample, 3, 1.0, about.grid[0], {"noise_std": 0.1})
    last = run_in_process(plan, sample.problem(plan.facts.clip if plan.facts else None), seed=0).rounds[-1]
    return math.ceil((last.bytes_down + last.bytes_up) / len(last.answered))


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
    tails: tuple[float | None, ...] = _TAIL

    def settings_of(self, method: str) -> list[Settings]:
        """The grid of a method."""
        return [choice for choice in METHODS[method].grid if choice["tail"] in self.tails]

    def searches(self) -> Iterable[tuple[str, float | None, float]]:
        """Every method, budget and share of the users."""
        return itertools.product(self.methods, self.epsilons, self.shares)


FULL = Scale()
QUICK = Scale(
    size=Size(users=100, fewest=10, most=20, features=10), epsilons=(None, 10.0, 3.0), rounds=(1, 2, 4, 8, 16),
    runs=3, tuning_runs=2, tails=(None,),
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
    study = Study("communication", TITLE, directory, _settings(scale, effort), {"quick": quick}, seed, console)
    tried = _tried(scale, study.run(cells, jobs))
    rows = _rows(tried, scale.runs)
    study.save("communication", COLUMNS, rows)
    study.save("search", SEARCH, tried)
    return study.finish(_summary(rows), _claims(rows), _terminal_table(scale, rows))


def _weight(name: str, share: float) -> float:
    """About how long a search takes, for the remaining time."""
    slow = {"dp_fedsgd": 0.3, "dp_sgd_rows": 0.15}
    return slow.get(name, 1.0) * (0.2 + share)


def _word(epsilon: float | None) -> str:
    return "none" if epsilon is None else f"{epsilon:g}"


def _settings(scale: Scale, effort: int) -> Record:
    return {
        **asdict(scale.size),
        "epsilons": [_word(epsilon) for epsilon in scale.epsilons],
        "delta": DELTA,
        "adjacency": ADJACENCY,
        "unit": "user",
        "shares_of_users_a_round": list(scale.shares),
        "rounds_tried": list(scale.rounds),
        "bytes_of_a_request_and_its_reply": {name: round_trip(name, scale.size.features) for name in scale.methods},
        "runs": scale.runs,
        "tuning_runs": scale.tuning_runs,
        "settings_tuned_over": effort,
        "grids": {name: choices(scale.settings_of(name)) for name in scale.methods},
    }


# --- tables and sentences


def _tried(scale: Scale, results: dict[str, Record]) -> list[Record]:
    """Every number of rounds that was tried."""
    rows: list[Record] = []
    features = scale.size.features
    for name, epsilon, share in scale.searches():
        about = {"method": name, "label": METHODS[name].label, "trust": METHODS[name].trust, "share": share}
        about["epsilon"] = math.inf if epsilon is None else epsilon
        for entry in results[f"search-{name}-{_word(epsilon)}-{share:g}"]["tried"]:
            row = {**about, **entry}
            if "messages" in entry:
                row["bytes"] = round(entry["messages"] * round_trip(name, features))
                row["numbers"] = round(entry["messages"] * 2 * features)
            rows.append(row)
    return rows


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
        for name in METHODS:
            own = [row for row in rows if (row["method"], row["epsilon"]) == (name, epsilon)]
            if not own:
                continue
            fewest = _fewest(own)
            if fewest is None:
                near = min(own, key=itemgetter("gap_mean"))
                said.append(f"{_budget(epsilon)} {near['label']} does not get there: {_percent(near)} at best.")
                continue
            quick, small = fewest
            text = f"{_budget(epsilon)} {quick['label']} needs {_rounds(quick)}, {_size(quick['bytes'])}, for"
            text += f" {_percent(quick)} (std {number(100 * quick['gap_std'])}%)"
            if small is not quick:
                text += f"; in bytes it needs least with {_rounds(small)}, {_size(small['bytes'])}"
            said.append(text + ".")
    return said


def _summary(rows: Sequence[Record]) -> list[str]:
    """Who is ahead at each budget, and who never arrives."""
    said = []
    for epsilon in dict.fromkeys(row["epsilon"] for row in rows):
        here = [row for row in rows if row["epsilon"] == epsilon]
        fewest = _fewest(here)
        if fewest is None:
            said.append(f"{_budget(epsilon)} no method gets within 1%.")
            continue
        quick, small = fewest
        lost = [label for label in dict.fromkeys(row["label"] for row in here) if _lost(here, label)]
        text = f"{_budget(epsilon)} the fewest rounds, {quick['rounds']}, are those of {_equals(here, quick, 'rounds')}"
        text += f"; the fewest bytes, {_size(small['bytes'])}, those of {_equals(here, small, 'bytes')}"
        text += f" ({_rounds(small)})"
        said.append(text + (f". Not within 1%: {', '.join(lost)}." if lost else "."))
    return said


def _equals(here: Sequence[Record], best: Record, what: str) -> str:
    return " and ".join(dict.fromkeys(row["label"] for row in here if row[what] == best[what]))


def _lost(here: Sequence[Record], label: str) -> bool:
    return all(row["rounds"] is None for row in here if row["label"] == label)


def _budget(epsilon: float) -> str:
    return "Without noise" if math.isinf(epsilon) else f"At epsilon = {epsilon:g}"


def _rounds(row: Record) -> str:
    people = "all users" if row["share"] == 1 else f"{row['share']:.0%} of the users"
    return f"{row['rounds']} round{'' if row['rounds'] == 1 else 's'} with {people}"


def _percent(row: Record) -> str:
    return f"{number(100 * row['gap_mean'])}% above the optimum"


def _size(count: float) -> str:
    return f"{number(count / 1e6)} MB" if count >= 1e6 else f"{number(count / 1e3)} kB"


def _say_what(scale: Scale, effort: int, console: Console) -> None:
    size = scale.size
    rounds, shares = ", ".join(map(str, scale.rounds)), " or ".join(f"{share:.0%}" for share in scale.shares)
    sizes = " or ".join(map(str, sorted({round_trip(name, size.features) for name in scale.methods})))
    console.print(
        f"{size.users} users with {size.fewest} to {size.most} rows of {size.features} features, logistic loss. One "
        f"user is protected ({ADJACENCY}, delta = {DELTA:g}). Wanted: the fewest planned rounds out of {rounds} with a "
        f"mean gap of at most {TARGET:.0%} over {scale.runs} draws of the data, with {shares} of the users a round. A "
        f"request and its reply take {sizes} bytes, of which {2 * 8 * size.features} are numbers. For every number of "
        f"rounds each method is tuned over {effort} settings on separate data: each on one draw, the best "
        f"{max(1, effort // _AGAIN)} on {scale.tuning_runs}. A search is given up where, "
        f"on the tuning data, it is over {2 * TARGET:.0%} and {_PATIENCE} more numbers of rounds have not brought it "
        f"down by {1 - _PROGRESS:.0%}. Tuned over every combination of:",
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
    for name in scale.methods:
        cells = []
        for epsilon in scale.epsilons:
            level = math.inf if epsilon is None else epsilon
            own = [row for row in rows if (row["method"], row["epsilon"]) == (name, level)]
            if fewest := _fewest(own):
                cells.append(f"{fewest[0]['rounds']}\n{_size(fewest[1]['bytes'])}")
            else:
                least = min((row["gap_mean"] for row in own), default=math.inf)
                cells.append(f"never\n({number(100 * least)}%)")
        table.add_row(f"{METHODS[name].label}\n({METHODS[name].trust})", *cells)
    return table
