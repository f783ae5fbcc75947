"""Schemas that declare or refuse, drafts that declare nothing, tables read whole, models that survive their file."""

import csv
import gzip
import io
import json
import math
import os
import re
import threading
import tomllib

import numpy as np
import pandas as pd
import pytest

from hushpoint._files import written_whole
from hushpoint.cells import column_of, missing, numbers, texts
from hushpoint.privacy.guarantee import Guarantee
from hushpoint.tables import (
    Boolean,
    Category,
    Ignored,
    Number,
    Schema,
    TableModel,
    draft_schema,
    fit_model,
    load_model,
    load_schema,
    read_table,
)
from hushpoint.tables.ranges import split_budget
from hushpoint.tables.reading import read_chunks

GOOD = """
target = "ill"
groups = "person"
missing_values = ["", "?"]

[columns.age]
kind = "number"
low = 0
high = 120

[columns."job, main"]
kind = "category"
values = ["a \\"quoted\\" one", "b", 3]
unseen = "ignore"
missing = "indicator"

[columns.smoker]
kind = "boolean"
missing = "indicator"

[columns.note]
kind = "ignore"

[columns.ill]
kind = "category"
values = ["no", "yes"]
"""


@pytest.fixture
def write(tmp_path):
    """Write a file and return its path."""

    def written(name, text):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return written


# --- schema ----------------------------------------------------------------------------------------------------------


def test_a_schema_is_what_its_file_says(write):
    schema = load_schema(write("s.toml", GOOD))
    assert schema.columns["age"] == Number(0, 120)
    assert schema.columns["job, main"] == Category(('a "quoted" one', "b", "3"), "ignore", "indicator")
    assert schema.columns["smoker"] == Boolean("indicator")
    assert list(schema.features) == ["age", "job, main", "smoker"]
    assert (schema.task, schema.classes, schema.groups) == ("classification", ("no", "yes"), "person")
    assert schema.with_roles(target="age").task == "regression"
    assert schema.with_roles(target="smoker").classes == ("false", "true")


def test_a_schema_survives_toml_and_json(write):
    # catches: a writer that does not quote, loses the order of the features or the type of a bound
    odd = Schema(
        {
            'quote " and \\ back': Number(-1e-7, 1e300),
            "new\nline": Category(("tab\t", "del\x7f", "ünï", "", "[x]")),
            "": Boolean("indicator"),
            "a.b": Ignored(),
            "c": Number(0, 2**53, "indicator", learn=True),
        },
        target="c",
        missing_values=("", '"'),
    )
    for schema in (odd, load_schema(write("s.toml", GOOD))):
        again = load_schema(write("again.toml", schema.to_toml()))
        assert again == schema
        assert list(again.columns) == list(schema.columns)
        assert load_schema(write("again.json", json.dumps(schema.to_dict()))) == schema


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("low = 0\n", "", "column 'age' is a number and does not declare low"),
        ("low = 0\nhigh = 120", "", "column 'age' is a number and does not declare low and high. Write the range"),
        ("low = 0", "low = 120", "column 'age' has low = 120"),
        ("low = 0", "low = -inf", "column 'age' has low = -inf"),
        ("low = 0", 'low = "0"', "column 'age' has low = '0'"),
        ("low = 0", "low = false", "column 'age' has low = False"),
        ('values = ["no", "yes"]', "", "column 'ill' is a category and does not declare values"),
        ('values = ["no", "yes"]', "values = []", "column 'ill' has no values"),
        ('values = ["no", "yes"]', 'values = ["no", "no"]', "one of them twice"),
        ('values = ["no", "yes"]', 'values = "no"', "not a list"),
        ("low = 0", "low = 0\nlearn = 1", "column 'age' has learn = 1"),
        ('kind = "boolean"', "", "column 'smoker' has no kind"),
        ('kind = "boolean"', 'kind = "bool"', "kind 'bool'. Choose one of: number, category, boolean, ignore"),
        ('kind = "boolean"', 'kind = "boolean"\nlow = 1', "column 'smoker' has the setting 'low'. A boolean takes"),
        ('unseen = "ignore"', 'unseen = "drop"', "unseen = 'drop'"),
        ('missing = "indicator"', 'missing = "mean"', "missing = 'mean'"),
        ('target = "ill"', 'target = "illness"', "target is 'illness', which is no declared column"),
        ('target = "ill"', 'target = "note"', "target 'note' is of kind 'ignore'"),
        ('target = "ill"', 'target = "person"', "no declared column"),
        ('target = "ill"', "target = 3", "target is 3"),
        ('target = "ill"', 'taget = "ill"', "'taget' is not a setting"),
        ('target = "ill"', "format = 9", "format is 9"),
        ('["", "?"]', '"?"', "missing_values"),
        ("[columns.age]", "[columns.age", "no valid TOML"),
    ],
)
def test_a_schema_that_declares_too_little_is_refused_by_name(write, old, new, told):
    # catches: a typo that silently declares nothing, a range that bounds nothing
    assert old in GOOD
    with pytest.raises(ValueError, match=r"s\.toml") as caught:
        load_schema(write("s.toml", GOOD.replace(old, new, 1)))
    assert told in str(caught.value)


def test_every_fault_is_told_at_once(write):
    with pytest.raises(ValueError, match="'age'") as caught:
        load_schema(write("s.toml", GOOD.replace("low = 0\n", "").replace('values = ["no", "yes"]', "")))
    assert "- column 'age'" in str(caught.value)
    assert "- column 'ill'" in str(caught.value)


def test_a_schema_without_features_or_target():
    with pytest.raises(ValueError, match="no column is left"):
        Schema({"a": Ignored(), "b": Number(0, 1)}, target="b")
    with pytest.raises(ValueError, match="no target"):
        Schema({"a": Number(0, 1)}).task  # noqa: B018
    with pytest.raises(ValueError, match="there are no columns"):
        Schema.from_dict({"target": "a"})
    with pytest.raises(ValueError, match=r"cannot be read.*hushpoint schema"):
        load_schema("no/such/file.toml")


# --- drafts ----------------------------------------------------------------------------------------------------------

DATA = """age, job,smoker,visits,name,ill,weight
17,clerk,yes,0,Ann,no,70.5
90,?,no,3,Bob,yes,
41,nurse,no,1,Cyd,no,81
"""


def test_a_draft_declares_nothing_that_was_read_from_the_data(write):
    # catches: the range of the data declared as public because nobody looked
    text = draft_schema(write("d.csv", DATA), target="ill")
    with pytest.raises(ValueError, match="has no kind") as caught:
        load_schema(write("d.toml", text))
    for name in ("age", "job", "smoker", "visits", "name", "ill", "weight"):
        assert f"column {name!r}" in str(caught.value)
    for line in text.splitlines():
        if any(seen in line for seen in ("17", "clerk", "81", "kind", "missing", "boolean")):
            assert line.startswith("#")


ODD = ["", "NA", "?", " ", "yes", "no", "0", "1", "17", "-3.5", "1e400", "nan", "clerk", "nurse", 'a "b', "\\",
       "\n", "\t", "\x07", "\x7f", "\u2028", "# low = 3", "low = 3", "]", "[columns.z]", "'", "ü",
       "x" * 300]  # fmt: skip


def random_record(rng, width):
    return [str(rng.choice(ODD)) if rng.random() < 0.5 else f"cell {rng.integers(10**6)}" for _ in range(width)]


def random_column(rng, rows):
    """Cells of one sort, so that a single other one changes what the draft would guess."""
    whole = ["3", "4"], ["yes", "no"], ["0", "1"], [""], ["a", "b", "c"], [f"word {k}" for k in range(50)]
    return [str(cell) for cell in rng.choice(whole[rng.integers(len(whole))], rows)]


def test_one_record_changes_only_comments_of_a_draft(write):
    # catches: a kind, a policy for missing cells or a list of missing values that one person's row decides
    rng, differed = np.random.default_rng(3), 0
    header = ["a", 'b "quoted"', "c.d", "e"]
    for _ in range(60):
        columns = [random_column(rng, 70) for _ in header]
        other = [list(column) for column in columns]
        for column, cell in zip(other, random_record(rng, len(header)), strict=True):
            column[0] = cell
        roles = {"target": "e", "groups": "a"} if rng.random() < 0.5 else {}
        drafts = [draft_schema(dict(zip(header, table, strict=True)), **roles) for table in (columns, other)]
        declared = [tomllib.loads(draft) for draft in drafts]
        assert declared[0] == declared[1]
        assert list(declared[0]["columns"]) == header
        differed += drafts[0] != drafts[1]
        text = io.StringIO(newline="")
        csv.writer(text).writerows([header, *zip(*other, strict=True)])
        assert tomllib.loads(draft_schema(write("d.csv", text.getvalue()), **roles)) == declared[0]
    assert differed > 40  # the records did matter to the comments


def confirmed(draft):
    """A draft whose suggestions a person found to be public."""
    return re.sub(r"^# (?=(kind|low|high|values|missing|missing_values) = )", "", draft, flags=re.MULTILINE)


def test_a_confirmed_draft_is_a_schema(write):
    # catches: a draft that is not TOML once the suggestions are confirmed, or that guesses kinds wrongly
    text = draft_schema(write("d.csv", DATA), target="ill")
    schema = load_schema(write("d.toml", confirmed(text)))
    assert schema.columns["age"] == Number(17, 90)
    assert schema.columns["job"] == Category(("clerk", "nurse"), missing="indicator")
    assert schema.columns["smoker"] == Boolean()
    assert schema.columns["ill"] == Category(("no", "yes"))  # the target keeps its words
    assert schema.columns["visits"] == Number(0, 3)
    assert schema.columns["weight"] == Number(70.5, 81, "indicator")
    assert schema.missing_values == ("", "?")


def test_a_draft_leaves_out_names_and_knows_the_roles(write):
    many = "id,name,x\n" + "".join(f"{i},person {i},1.5\n" for i in range(60))
    text = draft_schema(write("d.csv", many), groups="id")
    assert 'groups = "id"' in text
    assert '[columns.id]\nkind = "ignore"' in text
    assert '[columns.name]\n# kind = "ignore"' in text
    assert "person" not in text
    assert "59" not in text
    for role in ("target", "groups"):
        with pytest.raises(ValueError, match=f"{role} is 'z'. Name one of the columns: 'id', 'name', 'x'"):
            draft_schema(write("d.csv", many), **{role: "z"})
    frame = pd.DataFrame({"a": [1.5, None], "b": [True, False], "c": [None, None], "d": ["x", "y"]})
    drafted = draft_schema(frame)
    assert "# low = 1.5" in drafted
    assert '[columns.b]\n# kind = "boolean"' in drafted
    assert '[columns.c]\n# kind = "ignore"' in drafted
    assert '# values = ["x", "y"]' in drafted


# --- reading ---------------------------------------------------------------------------------------------------------


def test_files_are_read_alike(write):
    expected = {"a": ["1", "", "x;y"], "b": ["2", "3", "z"]}
    for name, text in {
        "plain.csv": 'a,b\n1,2\n,3\n"x;y",z\n',
        "marked.csv": "\ufeffa , b\r\n1, 2 \r\n\r\n,3\r\nx;y,z\r\n",
        "semicolon.csv": 'a;b\n1;2\n;3\n"x;y";z',
        "tab.csv": "a\tb\n1\t2\n\t3\nx;y\tz\n",
    }.items():
        assert read_table(write(name, text)) == expected
        assert read_table(write(name + ".gz", gzip.compress(text.encode()))) == expected


def test_parts_make_the_whole_and_blank_lines_keep_their_place(write):
    # catches: a row lost between two parts; predictions that are one row off
    path = write("long.csv", "a,b\n" + "".join(f"{i},{-i}\n" for i in range(25)))
    parts = list(read_chunks(path, size=10))
    assert [len(part["a"]) for part in parts] == [10, 10, 5]
    assert [cell for part in parts for cell in part["b"]] == [str(-i) for i in range(25)]
    assert read_table(write("one.csv", "a\n1\n\n2\n")) == {"a": ["1", "", "2"]}


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("empty.csv", "", "no header"),
        ("rows.csv", "a,b\n", "no rows"),
        ("twice.csv", "a,a\n1,2\n", "a name twice"),
        ("nameless.csv", "a,\n1,2\n", "without a name"),
        ("ragged.csv", "a,b\n1,2\nsecret\n", "row 2 of 'ragged.csv' has 1 cells and the header 2"),
        ("latin.csv", "a,b\nsecr\xe9t,2\n".encode("latin-1"), "UTF-8"),
        ("null.csv", b"\x1f\x8b secret", "UTF-8"),
        ("cut.csv.gz", gzip.compress(b"a,b\n" + b"secret,2\n" * 999, mtime=0)[:-20], "not a whole"),
        ("not.csv.gz", b"secret", "not a whole"),
        ("bent.csv.gz", gzip.compress(b"a,b\n" + b"secret,2\n" * 999, mtime=0)[:15] + b"secret" * 50, "not a whole"),
        ("bad.parquet", b"secret", "arquet"),
    ],
)
def test_a_broken_file_is_told_without_its_cells(write, name, content, told):
    with pytest.raises(ValueError, match=told) as caught:
        read_table(write(name, content))
    assert "secr" not in str(caught.value)
    with pytest.raises(ValueError, match="no file"):
        read_table("no/such.csv")


def test_long_whole_numbers_of_parquet_keep_their_digits_beside_a_missing_cell(write, monkeypatch):
    # catches: users or categories 2^53 and 2^53 + 1 that become one, since pandas reads a column with a null as floats
    ids = [2**53, 2**53 + 1, None, 2**63 - 1]
    cells = {"id": pd.array(ids, "Int64"), "size": pd.array([1e300, 2.5, None, 0.0], "Float64")}
    cells["few"] = pd.array([1, 2, None, 3], "Int64")

    def read_parquet(place, columns=None, dtype_backend=None):  # as pandas does it by pyarrow, which is not needed here
        frame = pd.DataFrame(cells)[columns or list(cells)]
        return frame if dtype_backend == "numpy_nullable" else frame.astype("float64")

    monkeypatch.setattr(pd, "read_parquet", read_parquet)
    table = read_table(write("a.parquet", b""))
    assert list(table.columns) == ["id", "size", "few"]
    assert texts(column_of(table, "id"))[:2] == [str(2**53), str(2**53 + 1)]
    assert texts(column_of(table, "id"))[3] == str(2**63 - 1)
    for name, missing_one in (("id", 2), ("size", 2), ("few", 2)):
        assert np.flatnonzero(missing(column_of(table, name), ())).tolist() == [missing_one]
    assert table["size"].dtype == table["few"].dtype == np.float64
    np.testing.assert_array_equal(numbers(column_of(table, "id"), ()), [2.0**53, 2.0**53, np.nan, 2.0**63])


# --- writing ---------------------------------------------------------------------------------------------------------


class Boom(Exception):
    pass


def half(path, **options):
    with written_whole(path, **options) as text:
        text.write("half")
        text.flush()
        raise Boom


def test_a_failure_in_the_middle_leaves_nothing_or_the_old_file(tmp_path):
    # catches: half a model that a later command would read; drafts left lying about
    path = tmp_path / "model.json"
    with pytest.raises(Boom):
        half(path)
    assert os.listdir(tmp_path) == []
    path.write_text("old")
    with pytest.raises(Boom):
        half(path, force=True)
    assert os.listdir(tmp_path) == ["model.json"]
    assert path.read_text() == "old"


@pytest.mark.parametrize("links", [True, False])
def test_an_existing_file_is_never_replaced_without_force(tmp_path, monkeypatch, links):
    # catches: checking first and writing later, with another process in between
    if not links:

        def refuse(*known):
            raise OSError("no links here")

        monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "out"
    with pytest.raises(ValueError, match="exists"), written_whole(path):
        path.write_text("theirs")  # made in the meantime
    assert path.read_text() == "theirs"
    with pytest.raises(ValueError, match="--force"), written_whole(path):
        raise AssertionError("must refuse before anything is written")
    with written_whole(path, force=True) as text:
        text.write("mine")
    assert path.read_text() == "mine"
    fresh = tmp_path / "fresh"
    with written_whole(fresh) as text:
        text.write("new")
        assert not fresh.exists()
    assert fresh.read_text() == "new"
    assert sorted(os.listdir(tmp_path)) == ["fresh", "out"]
    with pytest.raises(ValueError, match="no folder"), written_whole(tmp_path / "no" / "x"):
        pass
    with pytest.raises(ValueError, match="is a folder"), written_whole(tmp_path, force=True):
        pass


def test_of_many_writers_one_wins(tmp_path):
    path, outcomes = tmp_path / "out", []
    barrier = threading.Barrier(8)

    def attempt(number):
        try:
            with written_whole(path) as text:
                text.write(str(number) * 1000)
                barrier.wait()
            outcomes.append(number)
        except ValueError:
            pass

    threads = [threading.Thread(target=attempt, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 1
    assert path.read_text() == str(outcomes[0]) * 1000
    assert os.listdir(tmp_path) == ["out"]


# --- model files -----------------------------------------------------------------------------------------------------

CLAIM = Guarantee(1.0, 1e-5, 0.25, "record", "replace-one", "iterates", "proved", "3a", ("rows are short",), source="s")
SIMPLE = Schema({"x": Number(-1, 1), "f": Category(("a", "b")), "y": Category(("no", "yes"))}, target="y")
AS_IT_IS = {"scale": "columns", "row_norm": None}
MODEL = TableModel(
    "logistic", SIMPLE, np.array([[2.0, 1 / 3, -0.1]]), np.array([0.5]), ("no", "yes"), CLAIM, AS_IT_IS, {"rows": 9}
)
NEW = {"x": [1.0, -1.0], "f": ["a", "b"]}
MARGINS = np.array([2 + 1 / 3 + 0.5, -2 - 0.1 + 0.5])


def test_a_model_survives_its_file(tmp_path):
    # catches: rounded coefficients, classes in another order, a guarantee that changes its words
    MODEL.save(tmp_path / "m.json")
    again = load_model(tmp_path / "m.json")
    assert again.guarantee == CLAIM
    assert again.schema == SIMPLE
    assert np.array_equal(again.coefficients, MODEL.coefficients)
    assert again.to_dict() == MODEL.to_dict()
    for model in (MODEL, again):
        assert model.predict(NEW).tolist() == ["yes", "no"]
        assert model.decision_function(NEW) == pytest.approx(MARGINS)
        assert model.predict_proba(pd.DataFrame(NEW))[:, 1] == pytest.approx(1 / (1 + np.exp(-MARGINS)))
    unbounded = Guarantee(math.inf, 1e-5, math.inf, "record", "replace-one", "iterates", "proved", "3a", ("no noise",))
    record = MODEL.to_dict() | {"guarantee": unbounded.to_dict()}
    (tmp_path / "inf.json").write_text(json.dumps(record))
    assert load_model(tmp_path / "inf.json").guarantee == unbounded
    with pytest.raises(ValueError, match="exists"):
        MODEL.save(tmp_path / "m.json")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format": "else"}, "no model that hushpoint fit, or a federation, wrote"),
        ({"format_version": 1}, r"format version 1 .* Train it again: hushpoint fit"),
        ({"encoding": {"scale": "columns"}}, r"incomplete or changed \('row_norm'\)"),
        ({"coefficients": [[1.0]]}, "1 coefficients and the schema 3"),
        ({"coefficients": [[1.0, 2.0, math.nan]]}, "not finite"),
        ({"features": ["x", "f=b", "f=a"]}, "other features"),
        ({"model": "tree"}, "model is 'tree'"),
        ({"model": "huber"}, "do not belong"),
        ({"classes": None}, "do not belong"),
        ({"classes": ["a", "b", "c"]}, "do not belong"),
        ({"model": "linear", "classes": None}, "do not belong"),
        ({"guarantee": None}, "incomplete or changed"),
        ({"schema": {"columns": {"x": {"kind": "number"}}}}, "does not declare"),
    ],
)
def test_a_changed_model_file_is_refused(write, change, told):
    # catches: coefficients applied to other features than those they were trained for
    with pytest.raises(ValueError, match=told):
        load_model(write("m.json", json.dumps(MODEL.to_dict() | change)))
    gone = {key: value for key, value in MODEL.to_dict().items() if key != "intercept"}
    with pytest.raises(ValueError, match="intercept"):
        load_model(write("m.json", json.dumps(gone)))
    with pytest.raises(ValueError, match="no valid JSON"):
        load_model(write("m.json", '{"format": '))
    with pytest.raises(ValueError, match="cannot be read"):
        load_model("no/such.json")


def test_a_model_file_has_nothing_of_the_data_but_its_coefficients():
    # catches: counts of classes, means or ranges that were seen, published beside the model without noise
    rng = np.random.default_rng(0)
    found = []
    for shift in (0.0, 0.5):
        x = np.clip(rng.normal(size=300) + shift, -1, 1)
        table = {"x": x.tolist(), "f": rng.choice(["a", "b"], 300, p=[0.8 - shift, 0.2 + shift]).tolist()}
        table["y"] = np.where(x > rng.normal(size=300) - shift, "yes", "no").tolist()
        record = fit_model(table, SIMPLE, epsilon=1.0, delta=1e-5, seed=1).to_dict()
        record["guarantee"].pop("statement")
        private = (
            "coefficients",
            "intercept",
            "deviations",
        )  # and the clip, which follows from the private second moments
        record["guarantee"]["assumptions"] = [a for a in record["guarantee"]["assumptions"] if "clipped" not in a]
        found.append({name: value for name, value in record.items() if name not in private})
    assert found[0] == found[1]


def test_a_budget_too_small_to_share_is_named() -> None:
    # Catches: "epsilon is 0.0", a number that nobody passed
    with pytest.raises(ValueError, match=r"epsilon is 1e-09 with delta 1e-06.*Pass a larger epsilon"):
        split_budget(1e-9, 1e-6, 0.1)
