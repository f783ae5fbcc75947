"""Draws at addresses: Python and compiled code agree, no word is read twice, and nothing is drawn beyond an address."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from itertools import islice, product
from pathlib import Path

import numpy as np
import pytest

from hushpoint import lattice
from hushpoint._keyed import _secure_words, scratch
from hushpoint.lattice import draws, gaussian, normal
from hushpoint.lattice.compiled.gaussian import coded, fill_discrete_gaussians
from hushpoint.lattice.compiled.normal import fill_rounded_normals
from hushpoint.lattice.words import BATCH, STEPS, WORDS, Words, words_at
from hushpoint.noise import PLACES, Source, role_word, seeded_source

SOURCES = {
    "secure": lambda: Source(np.arange(8, dtype=np.uint32) * np.uint32(0x9E3779B9) + np.uint32(1)),
    "seeded": lambda: seeded_source(7),
}
both_sources = pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
SCALES = [1, 2, 3, 7, 1000, 2**24, 2**24 + 1, 2**40 - 1, 2**40]
VARIANCES = [(1, 3), (1, 1), (7, 2), (2**48, 1), (2**80, 3), (2**80, 1), ((2**32 - 1) * 2**80 - 1, 2**32 - 1)]


@pytest.fixture
def python_only(monkeypatch):
    monkeypatch.setattr(draws, "_drawn_in_python", 0)
    monkeypatch.setattr(draws, "FEW", 10**9)


def compiled(monkeypatch, draw, *arguments):
    with monkeypatch.context() as patch:
        patch.setattr(draws, "FEW", 0)
        return draw(*arguments)


@both_sources
@pytest.mark.parametrize("scale", SCALES)
def test_rounded_normals_compiled_are_those_of_python(make, scale, python_only, monkeypatch):
    # another order of words or coins, a wrong carry, a number read again: any of them changes integers
    arguments = lattice.rounded_normals, make(), "noise", [0, 5, 2**32 - 1], 9, 700, scale
    slow = arguments[0](*arguments[1:])
    np.testing.assert_array_equal(slow, compiled(monkeypatch, *arguments))
    assert slow.dtype == np.int64
    assert slow.shape == (3, 700)


@both_sources
def test_long_rows_are_drawn_in_parts_by_any_number_of_threads(make, python_only, monkeypatch):
    # a part at the address of another one, or of another item, would be the same noise twice
    monkeypatch.setattr(draws, "PART", 100)
    monkeypatch.setattr(draws, "_WORTH_SHARING", 1)
    arguments = lattice.rounded_normals, make(), "noise", [0, 5, 7], 9, 250, 2**24
    slow = arguments[0](*arguments[1:])
    for threads in ("1", "3"):
        monkeypatch.setenv("HUSHPOINT_THREADS", threads)
        np.testing.assert_array_equal(slow, compiled(monkeypatch, *arguments))
    assert len(np.unique(slow)) == slow.size
    np.testing.assert_array_equal(slow[:, :100], lattice.rounded_normals(make(), "noise", [0, 5, 7], 9, 100, 2**24))
    for shape in ((0, 250), (3, 0)):
        items, size = [0, 5, 7][: shape[0]], shape[1]
        assert lattice.rounded_normals(make(), "noise", items, 9, size, 2**24).shape == shape
        assert compiled(monkeypatch, lattice.rounded_normals, make(), "noise", items, 9, size, 2**24).shape == shape


@both_sources
@pytest.mark.parametrize("variance", VARIANCES)
def test_discrete_gaussians_compiled_are_those_of_python(make, variance, python_only, monkeypatch):
    arguments = lattice.discrete_gaussians, make(), "noise", [0, 5, 2**32 - 1], 9, 500, *variance
    np.testing.assert_array_equal(arguments[0](*arguments[1:]), compiled(monkeypatch, *arguments))


@both_sources
def test_many_addresses_agree_on_any_number_of_threads(make, python_only, monkeypatch):
    arguments = lattice.rounded_normals, make(), "noise", np.arange(1200), 3, 30, 2**24
    slow = arguments[0](*arguments[1:])
    for threads in ("1", "2"):
        monkeypatch.setenv("HUSHPOINT_THREADS", threads)
        np.testing.assert_array_equal(slow, compiled(monkeypatch, *arguments))
    assert np.unique(slow).size > slow.size - 50  # 36,000 of 2^24 scales: about 11 coincide by chance


@both_sources
def test_more_draws_go_on_where_fewer_ended(make, python_only, monkeypatch):
    # a stream that starts again at the end of its buffer
    few, many = (lattice.rounded_normals(make(), "noise", [4], 2, size, 2**40) for size in (60, 300))
    np.testing.assert_array_equal(few, many[:, :60])
    assert np.unique(many).size == 300
    np.testing.assert_array_equal(
        many, compiled(monkeypatch, lattice.rounded_normals, make(), "noise", [4], 2, 300, 2**40)
    )


@both_sources
def test_the_last_steps_are_drawn_too(make, python_only):
    # beyond what NumPy's generator of an address can count, only compiled code draws
    steps = (STEPS - 1, STEPS, STEPS + 1, 2**32 - 1)
    rows = [lattice.rounded_normals(make(), "a", [0], step, 20, 2**40)[0] for step in steps]
    assert np.unique(rows).size == 80


# --- Words -----------------------------------------------------------------------------------------------------------


@both_sources
def test_every_word_is_read_once_and_in_turn(make):
    # two draws that share a word; a word left out
    source, read = make(), []

    def noted():
        for value in words_at(source, "noise", 3, 1):
            read.append(value)
            yield value

    bits = Words(noted())
    slow = [normal.rounded_normal(bits, 1000) for _ in range(200)]
    assert read == list(islice(words_at(source, "noise", 3, 1), len(read)))
    assert len(set(read)) == len(read)
    out = np.empty((1, 200), dtype=np.int64)
    address = source.secure, source.key, role_word("noise"), np.array([3]), 1
    assert fill_rounded_normals(*address, WORDS, np.uint64(1000), out) == len(read)
    assert out[0].tolist() == slow


def test_coins_are_bits_of_words_of_their_own():
    bits = Words(iter([0b1011, 77, 2**64 - 1]))
    assert [bits.coin() for _ in range(5)] == [1, 1, 0, 1, 0]
    assert bits.word() == 77
    assert [bits.coin() for _ in range(60)] == [0] * 59 + [1]
    with pytest.raises(StopIteration):
        bits.word()


@both_sources
def test_words_are_those_of_the_keyed_stream(make):
    source = make()
    expected = source.stream("noise", 3, 8).bit_generator.random_raw(1000).tolist()
    assert list(islice(words_at(source, "noise", 3, 8), 1000)) == expected


@both_sources
def test_addresses_do_not_overlap(make, python_only):
    # also: rounded normals, discrete Gaussians and plain normals under the same names have words of their own
    source = make()
    seen = [
        word
        for role, item, step in product(("a", "b"), (0, 1, 2**32 - 1), (0, 1, STEPS - 1))
        for word in islice(words_at(source, role, item, step), 300)
    ]
    assert len(set(seen)) == len(seen)
    roles = {role_word(f"a, {kind}") for kind in ("rounded normals", "discrete Gaussians")} | {role_word("a")}
    assert len(roles) == 3
    one, two = (lattice.rounded_normals(source, "a", [0], step, 200, 2**40) for step in (0, 1))
    assert not set(one[0].tolist()) & set(two[0].tolist())


@both_sources
def test_a_stream_ends_rather_than_overrun(make):
    source, limit = make(), 2 * BATCH
    bits = Words(words_at(source, "noise", 0, 0, limit))
    with pytest.raises(OverflowError, match="Draw fewer numbers"):
        [normal.rounded_normal(bits, 3) for _ in range(1000)]
    out = np.empty((1, 1000), dtype=np.int64)
    address = source.secure, source.key, role_word("noise"), np.array([0]), 0
    with pytest.raises(OverflowError, match="Draw fewer numbers"):
        fill_rounded_normals(*address, limit, np.uint64(3), out)
    width = gaussian.Width.of(9, 1)
    with pytest.raises(OverflowError, match="Draw fewer numbers"):
        fill_discrete_gaussians(*address, limit, width.step, coded(width), out)


def test_the_words_of_an_address_are_as_many_as_are_counted():
    # the block after the last is the first again in compiled code, and the first of another role elsewhere
    source = SOURCES["secure"]()
    room = scratch(source.key)

    def words(first):
        _secure_words(role_word("noise"), 1, 2, first, room)
        return room[2].tolist()

    assert words(WORDS // 8) == words(0)
    assert not set(words(WORDS // 8 - 8)) & set(words(0))


# --- The entry -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0, -1, 2**40 + 1, 1.0, True, None])
def test_a_scale_out_of_range_is_refused(scale):
    with pytest.raises(ValueError, match=r"scale is .* from 1 to"):
        lattice.rounded_normals(seeded_source(0), "a", [0], 0, 1, scale)


@pytest.mark.parametrize("variance", [(0, 1), (1, 0), (-1, 1), (2**80 + 1, 1), (1, 2**32 + 1), (2.0, 1)])
def test_a_variance_out_of_range_is_refused(variance):
    with pytest.raises(ValueError, match=r"(numerator|denominator) is .*Pass"):
        lattice.discrete_gaussians(seeded_source(0), "a", [0], 0, 1, *variance)


def test_a_variance_is_taken_in_lowest_terms(python_only):
    one = lattice.discrete_gaussians(seeded_source(0), "a", [0], 0, 50, 7, 2)
    np.testing.assert_array_equal(one, lattice.discrete_gaussians(seeded_source(0), "a", [0], 0, 50, 7 * 2**40, 2**41))


@pytest.mark.parametrize(("items", "step"), [([-1], 0), ([2**32], 0), ([0], -1), ([0], 2**32)])
def test_an_address_out_of_range_is_refused(items, step):
    with pytest.raises(ValueError, match=r"(items|step) .*Pass"):
        lattice.rounded_normals(seeded_source(0), "a", items, step, 1, 3)


@pytest.mark.parametrize(
    ("named", "wrong"),
    [("items", {"items": [0.5]}), ("items", {"items": [[1, 2]]}), ("step", {"step": 1.5}), ("size", {"size": -1}),
     ("size", {"size": 2.5}), ("source", {"source": None})],
)  # fmt: skip
def test_what_is_no_address_is_refused_and_not_cut_to_one(named, wrong):
    # Catches: item 0.5 read as item 0, whose noise then comes twice
    asked = {"source": seeded_source(0), "role": "a", "items": [0], "step": 0, "size": 1, "scale": 3, **wrong}
    with pytest.raises(ValueError, match=f"{named}.*Pass"):
        lattice.rounded_normals(**asked)


def test_parts_of_rows_have_addresses_of_their_own():
    # Catches: two names with one word, in rows of up to eight million numbers. Words are 32 bits of a digest.
    roles = (*PLACES, "quantile search", "select-score")
    kinds = [f"{role}, {kind}" for role in roles for kind in ("rounded normals", "discrete Gaussians")]
    parts = [role_word(kind if k == 0 else f"{kind}, from {draws.PART * k} on") for kind in kinds for k in range(2048)]
    others = [role_word(role) for role in (*roles, "schedule", "order", "order again")]
    assert len({*parts, *others}) == len(parts) + len(others)


def test_parts_whose_words_would_be_one_get_others(monkeypatch):
    # Catches: the same noise twice in one row, or a row that is refused
    monkeypatch.setattr(draws, "role_word", lambda name: np.uint32(len(name) % 11))
    names, words = draws._parts("collisions of r", 500, 100)
    assert len(set(names)) == len(set(words)) == len(words) == 5


def test_a_small_release_compiles_nothing():
    code = (
        "import sys\nfrom hushpoint import lattice\nfrom hushpoint.noise import secure_source, seeded_source\n"
        "for source in (secure_source(), seeded_source(0)):\n"
        "    lattice.rounded_normals(source, 'a', [0, 1], 0, 50, 2**24)\n"
        "    lattice.discrete_gaussians(source, 'a', [0, 1], 0, 50, 2**48)\n"
        "assert 'numba' not in sys.modules\n"
        "lattice.rounded_normals(source, 'a', range(30), 0, 1000, 2**24)\n"
        "assert 'numba' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)


def test_nothing_to_draw():
    assert lattice.rounded_normals(seeded_source(0), "a", [], 0, 4, 3).shape == (0, 4)
    assert lattice.discrete_gaussians(seeded_source(0), "a", [0, 1], 0, 0, 3).shape == (2, 0)


def test_no_program_holds_a_number_that_is_not_whole():
    # a scale or a probability in floating point: the law of the integers would be another one
    files = sorted(Path(lattice.__file__).parent.rglob("*.py"))
    assert len(files) > 10
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            assert not isinstance(node, ast.Div), file
            assert not (isinstance(node, ast.Constant) and isinstance(node.value, float)), file
            assert not (isinstance(node, ast.Name) and node.id == "float"), file
            assert not (isinstance(node, ast.Attribute) and node.attr.startswith("float")), file
