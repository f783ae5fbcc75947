"""Nothing that a site says holds an entry of its data: not its replies, not its errors, whatever it is handed."""

from __future__ import annotations

import gzip
import json
import warnings

import numpy as np
import pytest
import scipy.sparse
from federations import Federation, anchored, asked, local, problem

import hushpoint as hp
from hushpoint.federated import Client, MemoryStore, Reply, decode, plan_digest, site_rows, wire
from hushpoint.federated.folder import Shape
from hushpoint.problem import item_rows

NUMBER, TEXT = 73579513.25, "canary-Zq9"  # planted in the data, to be found nowhere else
TRACES = ("73579513", "7.3579513", "canary", "Zq9")


def words_of(work):
    """What a call says when it fails, with all that led to it, and in warnings."""
    told: list[str] = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            work()
        except Exception as error:
            found: BaseException | None = error
            while found is not None:
                told.append(f"{type(found).__name__}: {found}")
                found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)
    return "\n".join([*told, *(str(warning.message) for warning in warned)])


def silent(said):
    return not any(trace in said for trace in TRACES)


# --- tables

KINDS = {
    "category": 'kind = "category"\nvalues = ["no", "yes"]',
    "boolean": 'kind = "boolean"',
    "number": 'kind = "number"\nlow = 0\nhigh = 1',
}
SCHEMA = """\
target = "sick"
[columns.age]
kind = "number"
low = 0
high = 100
[columns.ward]
kind = "category"
values = ["a", "b", "c"]
[columns.well]
kind = "boolean"
[columns.sick]
"""
TABLE = (
    ("age", "ward", "well", "sick"), ("30", "a", "yes", "0"), ("70", "b", "no", "1"), ("50", "c", "1", "1"),
)  # fmt: skip
CELLS = (
    str(NUMBER), TEXT, f'"{TEXT}', f"'{NUMBER}", "", f"{TEXT}\0", f"{NUMBER},,", "nan", "inf", f"-{NUMBER}e400",
    f"{TEXT};{NUMBER}", f"é{TEXT}", f"{TEXT}\n{NUMBER}", f"1_0{NUMBER}",
)  # fmt: skip


def spoiled(rng):
    """A table with cells put in, changed or left out below its header, without the header, cut, or of broken bytes."""
    table = [list(row) for row in TABLE]
    for _ in range(rng.integers(1, 4)):
        row = table[rng.integers(1, len(table))]
        place, cell = rng.integers(len(row)), CELLS[rng.integers(len(CELLS))]
        row[place : place + rng.integers(2)] = [cell] if rng.random() < 0.8 else []
    lines = [",".join(row) for row in table]
    data = bytearray("\n".join(lines[rng.random() < 0.1 :]).encode())
    if rng.random() < 0.2:
        data[rng.integers(len(data))] = rng.integers(256)
    return bytes(data)


@pytest.mark.parametrize("kind", KINDS)
def test_no_fault_of_a_table_is_named_by_its_cells(tmp_path, kind):
    (tmp_path / "schema.toml").write_text(SCHEMA + KINDS[kind])
    shape, rng = Shape.read(tmp_path / "schema.toml"), np.random.default_rng(0)
    faults = set()
    for n in range(400):
        data = spoiled(rng)
        place = tmp_path / ("data.csv.gz" if n % 10 == 0 else "data.csv")
        place.write_bytes(gzip.compress(data)[: -rng.integers(1, 30)] if n % 10 == 0 else data)
        said = words_of(lambda place=place: shape.load(place))
        assert silent(said), said
        faults.add(said.partition(".")[0])
    assert len(faults) > 10  # else there was little to be silent about


FEATURES = {
    "text": [[1, 2], [TEXT, 3], [4, 5]],
    "objects": np.array([[1, 2], [TEXT, 3], [4, NUMBER]], dtype=object),
    "ragged": [[NUMBER], [1, 2], [3, 4]],
    "deep": np.full((3, 2, 1), NUMBER),
    "complex": np.full((3, 2), NUMBER + 1j),
    "not a number": [[NUMBER, np.nan]] * 3,
    "infinite, sparse": scipy.sparse.csr_array([[NUMBER, np.inf]] * 3),
    "bytes": np.full((3, 2), TEXT.encode()),
    "too large": [[73579513 * 10**400, 1]] * 3,
    "a dictionary": {"first": [NUMBER] * 3, "second": [TEXT] * 3},
    "narrow": np.full((3, 1), NUMBER),
    "short": np.full((2, 2), NUMBER),
}
TARGETS = {
    "text": [1, TEXT, 2],
    "objects": np.array([None, TEXT, NUMBER], dtype=object),
    "ragged": [[NUMBER], 1, 2],
    "wide": np.full((3, 2), NUMBER),
    "not a number": [NUMBER, np.nan, 1],
    "long": [NUMBER] * 5,
    "complex": [NUMBER + 1j] * 3,
    "bytes": [TEXT.encode()] * 3,
    "too large": [73579513 * 10**400, 1, 1],
    "a dictionary": {"first": NUMBER},
}


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("reader", ["site_rows", "item_rows"])
def test_no_fault_of_arrays_is_named_by_their_entries(loss, reader):
    # catches: an exception of NumPy, whose text quotes what it could not convert, let through
    facts = hp.Problem.declared(2, 2, loss, row_norm=1.0, clip=1.0, rows_per_item=[3, 3]).facts
    plan = hp.methods.federated_admm(hp.Problem.from_facts(facts), 3, 1.0, noise_std=0.5)
    calls = {f"X: {name}": (X, np.ones(3)) for name, X in FEATURES.items()}
    calls |= {f"y: {name}": (np.ones((3, 2)), y) for name, y in TARGETS.items()}
    for name, (X, y) in calls.items():
        said = words_of(lambda X=X, y=y: site_rows(plan, 0, X, y) if reader == "site_rows" else item_rows(facts, X, y))
        assert said or (reader, name) in (("item_rows", "X: narrow"),), f"{name} is no fault"
        assert silent(said), f"{name}: {said}"


# --- replies

EXTREMES = (0.0, -0.0, 5e-324, 1e-300, 1e-160, 1.0, NUMBER, 1e150, 1.7e308, -1.7e308)
PLANS = {
    "noise at the sites": lambda data: hp.methods.federated_admm(data, 3, 1.5, noise_std=0.5),
    "clipped residuals": lambda data: hp.methods.federated_admm(data, 3, 1.5, noise_std=0.5, clip_residual=0.3),
    "anchored": lambda data: hp.methods.anchored_admm(data, 3, 1.5, noise_std=0.5),
    "summed": lambda data: hp.methods.federated_admm(data, 3, 1.5, noise_std=0.5, noise="sum", clip_residual=0.3),
    "gradients": lambda data: hp.methods.dp_sgd(data, 3, 0.3, noise_std=0.5),
    "several local steps": lambda data: hp.methods.dp_fedavg(data, 3, 2, 0.3, 1.0, noise_std=0.5),
}


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("loss", ["squared", "logistic", "huber"])
def test_whatever_the_rows_a_site_moves(name, loss):
    # catches: a word that one table calls forth and another does not; it would cost nothing and not be counted
    ridge = hp.regularizers.L2(0.05)
    data = hp.Problem.declared(2, 3, loss, ridge, row_norm=1.0, clip=1.0, rows_per_item=[4, 4], fit_intercept=True)
    plan, rng = PLANS[name](data), np.random.default_rng(1)
    for _ in range(6):
        y = rng.choice((-1.0, 1.0) if loss == "logistic" else EXTREMES, size=4)
        client = Client(plan, 0, site_rows(plan, 0, rng.choice(EXTREMES, size=(4, 3)), y), MemoryStore(), seed=1)
        for round in (1, 2, 3):
            reply = decode(client.answer(asked(plan, round, point=rng.normal(size=plan.operator.message_size))), Reply)
            assert (reply.status, reply.participations) == ("moved", round)


def planted(make):
    """A site in whose rows the number is, and what its replies must not hold."""
    data = problem()
    data.rows.features[:, 1] = data.rows.targets[:] = NUMBER
    plan = make(data, rounds=50)
    return plan, Federation(plan, data).client(0), np.float64(NUMBER).tobytes()


def raw(header, body):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return wire._MAGIC + wire._LENGTHS.pack(len(text), len(body)) + text + body


@pytest.mark.parametrize("make", [local, anchored])
def test_whatever_is_asked_an_answer_comes_and_holds_no_entry(make):
    plan, client, number = planted(make)
    width = plan.operator.message_size
    header = {
        "run": plan_digest(plan), "round": 1, "site": 0, "token": "", "known": 0, "copy": "", "kind": "Request",
        "vectors": {"point": width},
    }  # fmt: skip
    odd = (None, True, -1, 1.5, 2**31, 2**40, "", TEXT, "\ud800", [], {}, {"point": width, "block": width})
    vectors = (0.0, 1.0, 3e7, 1e200, np.nan, np.inf)
    requests = [raw({**header, name: value}, np.zeros(width).tobytes()) for name in header for value in odd]
    requests += [raw({**header, "round": n + 1}, np.full(width, value).tobytes()) for n, value in enumerate(vectors)]
    requests += [raw(text, b"") for text in (b"[" * 500, b'{"a":' * 90, b"nul", b"{}", b"\xff")]
    said = set()
    for request in requests:
        reply = client.answer(request)
        said.add(decode(reply, Reply).reason)
        assert number not in reply
        assert silent(reply.decode("latin-1"))
    assert said >= {"", "refused", "plan", "stale"}
