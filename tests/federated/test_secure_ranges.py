"""Ranges learned by secure sums: what is counted, how far one item moves it, what is found, and what is made of it."""

from __future__ import annotations

import csv
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from secure_federations import Carrier, Setting, site_of

import hushpoint as hp
from hushpoint.estimators.training import Answer
from hushpoint.federated.folder import Shape
from hushpoint.federated.secure.covenant import Covenant
from hushpoint.federated.secure.folder import make_covenant
from hushpoint.federated.secure.in_process import agreement_of, run_secure
from hushpoint.federated.secure.learner import Learner
from hushpoint.federated.secure.ranges import RangeSearch, value_rows
from hushpoint.federated.secure.record import SecureServerStore
from hushpoint.federated.secure.server import SecureServer
from hushpoint.operators.lattice_counts import LatticeCounts
from hushpoint.preprocessing import TableEncoder
from hushpoint.preprocessing.few_rounds import ROUNDS, CellSearch
from hushpoint.problem import PRIVATE, Facts, Problem
from hushpoint.schema import Number, Schema
from hushpoint.tables.ranges import with_ranges
from hushpoint.tables.training import matrices

BUDGET = hp.Budget(epsilon=20.0, delta=1e-5)
COLUMNS = {"a": Number(-1e6, 1e6, learn=True), "b": Number(0.0, 1e9, missing="indicator", learn=True)}
NAN = math.nan


def facts_of(items, users=False, columns=2):
    """Public facts of raw columns."""
    declared = Problem.declared(items, columns, "logistic").facts
    return Facts.from_dict({**declared.to_dict(), "rows_per_item": PRIVATE if users else None})


def values_of(rows, seed=0):
    """Two columns of very different widths, the second with missing cells."""
    rng = np.random.default_rng(seed)
    wide = rng.lognormal(10 + 0.3 * seed, 1, rows)
    return np.column_stack([rng.normal(50 + 10 * seed, 15, rows), np.where(rng.random(rows) < 0.2, NAN, wide)])


def shares_counted(operator, values):
    """The shares of items in all cells, where every row is one."""
    facts = facts_of(len(values), columns=values.shape[1])
    rows = operator.prepare(value_rows(facts, values, None))
    return operator.told(rows, np.zeros((1, 0)), np.zeros(0), 1.0, None)[1] * operator.unit / len(values)


# --- what is counted


@pytest.mark.parametrize("users", [False, True], ids=["records", "users"])
def test_sums_over_sites_are_the_counts_at_one_holder_to_the_last_unit(users):
    """Cumulated, they are the weights of values at or below every public edge, by Python's own arithmetic.

    Would catch an edge on the wrong side, a missing value that is counted as a number, users that weigh by their rows,
    cells of one column in another one's place, and other edges than those of the search.
    """
    sites = [values_of(90 + 30 * k, k) for k in range(3)]
    groups = [np.random.default_rng(k).integers(0, 25, len(values)) + 100 * k for k, values in enumerate(sites)]
    items = sum(len(np.unique(one)) if users else len(one) for one in groups)
    facts, asked = facts_of(items, users), RangeSearch.of(COLUMNS, 3.0)
    links, rounds = asked.links(facts, "replace-one"), 0
    link = next(links)
    for _ in range(ROUNDS):
        operator, told = link.plan.operator, 0
        weight = 1 << operator.grid.shares
        expected = [[0] * size for size in operator.sizes]
        for values, group in zip(sites, groups, strict=True):
            rows = operator.prepare(value_rows(facts, values, group if users else None))
            told = told + operator.told(rows, np.zeros((1, 0)), np.zeros(0), 1.0, None)[1]
            for row, who in zip(values.tolist(), group.tolist(), strict=True):
                part = weight // int((group == who).sum()) if users else weight
                for column, value in enumerate(row):
                    edges = operator.edges[column].tolist()
                    cell = len(edges) + 1 if math.isnan(value) else sum(edge < value for edge in edges)
                    expected[column][cell] += part
        assert told.tolist() == [count for column in expected for count in column]
        shared = operator.learned(np.zeros(operator.message_size), np.zeros(0), told, 1.0)
        rounds += 1
        try:
            link = links.send(Answer(shared, shared))
        except StopIteration as end:
            (low, high), (lower, upper) = end.value
    assert rounds == ROUNDS
    a, b = np.concatenate(sites).T
    if not users:  # without noise: within one cell of the grid
        assert np.mean(a < low) <= 0.05 <= np.mean(a <= low * 1.01)
        assert np.nanmean(b < lower) <= 0.05 <= np.mean(b[~np.isnan(b)] <= lower * 1.01)
        assert np.mean(a < high * 0.99) <= 0.95 <= np.mean(a <= high)
        assert np.mean(b[~np.isnan(b)] <= upper) >= 0.95


# --- how far one item moves it

PLACES = (-math.inf, -1.0, 0.0, 0.5, 1.0, math.nextafter(1.0, 2.0), math.inf, NAN)


def small_operator(users, columns=2):
    return LatticeCounts(facts_of(3, users, columns), [np.array([0.0, 1.0])] * columns, [True, False][:columns])


def squared_moves(operator, users):
    """Over all that one item can be, beside two others: squared lengths of its term, and of what replacing it moves."""
    others = [[(0.5, 1.0)], [(NAN, -1.0), (1.0, 0.0)] if users else [(NAN, -1.0)]]
    rows = list(itertools.product(PLACES, repeat=2))
    few = [(-1.0, 2.0), (0.5, NAN), (NAN, NAN), (2.0, 0.5)]
    many = [list(one) for length in (2, 3) for one in itertools.combinations_with_replacement(few, length)]
    possible = [[row] for row in rows] + (many if users else [])

    def total(item):
        held = [*others, item]
        values = np.array([row for one in held for row in one])
        groups = np.repeat(np.arange(len(held)), [len(one) for one in held])
        prepared = operator.prepare(value_rows(operator.facts, values, groups if users else None))
        return operator.told(prepared, np.zeros((1, 0)), np.zeros(0), 1.0, None)[1]

    with_nothing = total([(NAN, NAN)])
    if operator.missing[0]:  # counted as missing there: taken off
        with_nothing = with_nothing - (np.arange(len(with_nothing)) == operator.sizes[0] - 1) * (
            1 << operator.grid.shares
        )
    terms = np.unique([total(item) - with_nothing for item in possible], axis=0).astype(object)
    replaced = max(int(((one - other) ** 2).sum()) for one in terms for other in terms)
    return max(int((term**2).sum()) for term in terms), replaced


def is_certified(operator, users):
    """Whether no neighbour is farther than the certificate says, and some are as far."""
    zeroed, replaced = squared_moves(operator, users)
    certificate, unit = operator.certificate(1.0), Fraction(operator.unit)
    held = True
    for adjacency, most in (("zero-out", zeroed), ("replace-one", replaced)):
        stated = Fraction(certificate.shift("user" if users else "record", adjacency)) ** 2
        held &= most * unit**2 <= stated <= most * unit**2 * (1 + Fraction(1, 10**12))
    return held


@pytest.mark.parametrize("users", [False, True], ids=["records", "users"])
def test_the_certificate_holds_for_all_neighbours_and_is_attained(users):
    """Values on edges, next to them, infinite and missing; users of one to three rows. Whole numbers: no tolerance."""
    assert is_certified(small_operator(users), users)
    assert is_certified(small_operator(users).coarser(7), users)


@pytest.mark.parametrize("bug", ["halved", "every row weighs the whole", "at or below every edge"])
def test_planted_bugs_are_seen(bug, monkeypatch):
    """The test above can fail: half the sensitivity, weights that are not shared out, and cells that overlap."""
    if bug == "halved":
        honest = LatticeCounts.moved
        monkeypatch.setattr(LatticeCounts, "moved", lambda self, adjacency: honest(self, adjacency) / 4)
    elif bug == "every row weighs the whole":
        whole = LatticeCounts.total

        def careless(self, rows, shares):
            return whole(self, rows, np.full_like(shares, 1 << self.grid.shares))

        monkeypatch.setattr(LatticeCounts, "total", careless)
    else:
        disjoint = LatticeCounts.total
        monkeypatch.setattr(LatticeCounts, "total", lambda self, *given: np.cumsum(disjoint(self, *given)))
    assert not is_certified(small_operator(True), True)


def test_the_noise_of_all_rounds_costs_their_share():
    """Distances and noise are whole numbers: 4 rounds of (D/S)^2 are mu^2, and not a thousandth less."""
    for users, adjacency in itertools.product((False, True), ("replace-one", "zero-out")):
        asked, facts = RangeSearch.of(COLUMNS, 0.01), facts_of(5000, users)
        plan = next(asked.links(facts, adjacency)).plan
        moved = Fraction(plan.operator.moved(adjacency))
        spent = ROUNDS * moved / plan.noise.scale**2
        assert Fraction(asked.mu) ** 2 * Fraction(999, 1000) <= spent <= Fraction(asked.mu) ** 2


# --- what is found


@pytest.mark.parametrize("seed", range(4))
def test_searches_end_where_about_so_many_values_are_below(seed):
    """Ranks are wrong by 7 * 3 deviations of the noise of a cell at the most (docs/preprocessing.md).

    False alarms: below 1e-9. Would catch quantiles of the others, noise that is larger than stated, shares of the
    wrong column, and rounds that go on in another cell than the one that was found.
    """
    values, mu = values_of(20_000, seed), 1.0
    asked, facts = RangeSearch.of(COLUMNS, mu), facts_of(len(values))
    links, rng = asked.links(facts, "replace-one"), np.random.default_rng(seed)
    link = next(links)
    try:
        while True:
            noise = rng.normal(size=link.plan.operator.message_size) * link.plan.noise.std / len(values)
            link = links.send(Answer(shares_counted(link.plan.operator, values) + noise, np.zeros(0)))
    except StopIteration as end:
        found = end.value
    wrong = 7 * 3 * math.sqrt(2 * len(COLUMNS) * ROUNDS) / mu / len(values)
    assert wrong < 0.01
    for column, (low, high), asked_for in zip(values.T, found, COLUMNS.values(), strict=True):
        known = column[~np.isnan(column)]
        assert abs(np.mean(known <= low) - 0.05) < wrong / 0.8 + 0.002
        assert abs(np.mean(known <= high) - 0.95) < wrong / 0.8 + 0.002
        assert high - low < 1e-3 * (asked_for.high - asked_for.low)


def test_noise_alone_leaves_a_range_within_the_bounds():
    """Whatever is released, the range is not empty and within what is public."""
    rng = np.random.default_rng(0)
    for missing in (False, True):
        search = CellSearch.of(-5.0, 1e12, (0.05, 0.95), missing)
        for _ in range(ROUNDS):
            search = search.after(1e3 * rng.normal(size=len(search.edges) + 1 + missing))
        low, high = search.found
        assert -5.0 <= low < high <= 1e12
    with pytest.raises(ValueError, match="cells"):
        search.after(np.zeros(3))


def test_features_and_the_length_of_rows_do_not_depend_on_ranges():
    """Or what all agreed on before would be of another problem afterwards."""
    schema = Schema({**COLUMNS, "c": Number(0, 1), "y": Number(0, 1)}, "y")
    coarse = TableEncoder(with_ranges(schema, [(-1e6, 1e6), (0, 1e9)])).fit()
    narrow = TableEncoder(with_ranges(schema, [(3.0, 4.0), (0, 1e-3)])).fit()
    assert list(coarse.get_feature_names_out()) == list(narrow.get_feature_names_out())
    assert (coarse.row_norm_, coarse.typical_row_norm_) == (narrow.row_norm_, narrow.typical_row_norm_)


# --- from end to end


def tables(place, users, rows=(240, 160, 200)):
    """A file for each of three sites whose values lie elsewhere."""
    rng = np.random.default_rng(1)
    for k, count in enumerate(rows):
        values = values_of(count, k)
        a, b = values.T
        score = (a - 60) / 15 + np.where(np.isnan(b), 0, np.log(np.where(np.isnan(b), 1, b)) - 10)
        y = np.where(score + 0.3 * rng.logistic(size=count) > 0, "yes", "no")
        cells = ["" if math.isnan(x) else repr(x) for x in b.tolist()]
        with (place / f"{k}.csv").open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow(["a", "b", "y", *(["who"] if users else [])])
            out.writerows(zip(a.tolist(), cells, y, *([np.arange(count) // 2] if users else []), strict=True))


def schema_of(users):
    """As a file has it."""
    record = {
        name: {"kind": "number", "low": one.low, "high": one.high, "learn": True} for name, one in COLUMNS.items()
    }
    record["b"]["missing"] = "indicator"
    record["y"] = {"kind": "category", "values": ["no", "yes"]}
    return Schema.from_dict({"target": "y", **({"groups": "who"} if users else {}), "columns": record})


def with_tables(place, users=False, *, secure=(), model=(), rows=(240, 160, 200)):
    """A setting of three sites with tables, made as from the files of a federation."""
    tables(place, users, rows)
    agreement, keys = agreement_of(3, "run")
    sites = {"users": [count // 2 for count in rows]} if users else {"rows": list(rows)}
    settings = {
        "model": {"name": "logistic", **dict(model)},
        "budget": {"epsilon": BUDGET.epsilon, "delta": BUDGET.delta},
        "sites": sites,
        "secure": {"rounds": 6, **dict(secure)},
    }
    covenant = make_covenant(settings, Shape(schema_of(users)), agreement.roster, "run")
    covenant = Covenant.from_json(covenant.to_json())
    data = [Learner.of(covenant.about, covenant.budget).data(covenant, place / f"{k}.csv") for k in range(3)]
    return Setting(covenant, data, keys)


@pytest.mark.parametrize("users", [False, True], ids=["records", "users"])
def test_a_schema_that_leaves_ranges_open_is_trained_across_sites(users, tmp_path):
    """The model has the learned ranges, sites encode with them, and all of it is within the budget.

    Would catch rows that stay encoded with the bounds, a model file with these, range rounds that are not paid for, and
    a covenant that loses the search on its way through a file.
    """
    setting = with_tables(tmp_path, users, rows=(480, 320, 400) if users else (240, 160, 200))
    covenant = setting.covenant
    result = run_secure(covenant, setting.data, setting.keys, seed=4)
    found, guarantee = result.found, result.guarantee
    assert found is not None
    assert len(result.rounds) == ROUNDS + 6
    assert guarantee.unit == ("user" if users else "record")
    assert guarantee.epsilon <= BUDGET.epsilon
    assert guarantee.delta <= BUDGET.delta
    spent, whole = result.server.spent.squared, covenant.whole.squared
    assert spent == pytest.approx(whole * 10 / 12, rel=1e-3)
    assert all(site.spent().squared <= spent * (1 + 1e-9) for site in result.sites)
    ranges = covenant.training.ranges.mu**2
    assert ranges == pytest.approx(0.1 * whole * 10 / 12, rel=1e-6)

    learner, place = Learner.of(covenant.about, covenant.budget), tmp_path / "model.json"
    learner.model(covenant, found, guarantee, len(result.rounds), {"run": covenant.name}).save(place)
    model = hp.tables.load_model(place)
    assert model.details["learned_ranges"] == ["a", "b"]
    for (low, high), name in zip(found.ranges, COLUMNS, strict=True):
        assert (model.schema.columns[name].low, model.schema.columns[name].high) == (low, high)
        assert not model.schema.columns[name].learn
    assert 0 < found.ranges[0][0] < 60 < found.ranges[0][1] < 200
    assert model.score(tmp_path / "0.csv").figures["accuracy"].value > 0.75
    narrow = with_ranges(schema_of(users), found.ranges)
    encoder = TableEncoder(narrow, row_norm=learner.encoder.row_norm).fit()
    for k, site in enumerate(result.sites):
        seen = site._encoded[1].rows
        X = matrices(tmp_path / f"{k}.csv", narrow, encoder)[0]
        order = np.argsort((np.arange(len(X)) // 2).astype(str), kind="stable") if users else slice(None)
        np.testing.assert_allclose(seen.features, X[order], rtol=1e-9)


def test_sites_and_a_server_that_start_again_go_on_with_what_was_learned(tmp_path):
    """Sites forget all that is not on their disks, in the middle of the ranges and after them; so does the server."""
    setting = with_tables(tmp_path)
    store = tmp_path / "run"
    carrier = Carrier(SecureServer(setting.covenant, SecureServerStore(store)), [site_of(setting, k) for k in range(3)])
    for _ in range(400):
        if carrier.server.finished:
            break
        if carrier.server._round is None and carrier.server.state.rounds in (2, 4, 7):
            carrier.server.store.close()
            carrier.server = SecureServer(setting.covenant, SecureServerStore(store))
            carrier.sites = [site_of(setting, k, site.store) for k, site in enumerate(carrier.sites)]
        carrier.exchange()
    carrier.server.store.close()
    assert carrier.server.status == "finished"
    carrier.check()
    assert len({site._encoded[0] for site in carrier.sites}) == 1
    assert carrier.sites[0]._encoded[0] == carrier.server.found.ranges


def test_without_ranges_there_is_no_model(tmp_path):
    """Failed rounds use up the budget: the run ends, spent, and never with the bounds in place of ranges."""
    setting = with_tables(tmp_path, secure={"spare": 0}, model={"range_share": 0.9})
    sites = [site_of(setting, k) for k in range(3)]
    carrier = Carrier(
        SecureServer(setting.covenant, SecureServerStore.in_memory()),
        sites,
        absent=lambda number, kind: {1} if kind == "masked" and number > 1 else (),
    ).run()
    assert carrier.server.status == "spent"
    assert carrier.server.found is None
    assert carrier.server.state.failed == ROUNDS - 1  # and one that did not fail
    carrier.check()


def test_what_cannot_learn_ranges_says_so(tmp_path):
    """Federations of a plan, shares that are none, sites without the columns, and targets."""
    schema = schema_of(False)
    with pytest.raises(ValueError, match=r"leaves the range of 'a', 'b' to be learned.*\[secure\]"):
        _ = Shape(schema).features
    with pytest.raises(ValueError, match="range_share is 1"):
        with_tables(tmp_path, model={"range_share": 1.0})
    setting = with_tables(tmp_path)
    rows = setting.data[0]
    with pytest.raises(ValueError, match="Pass their values"):
        site_of(Setting(setting.covenant, [type(rows)(rows.rows, rows.targets)], setting.keys), 0)
    wrong = [type(rows)(rows.rows, rows.targets, setting.data[1].values, rows.encoded)]
    with pytest.raises(ValueError, match="other items"):
        site_of(Setting(setting.covenant, wrong, setting.keys), 0)
