"""Figures: the table's numbers, all of them, in a look that needs no colour, in files that a rerun gives again."""

import hashlib
import itertools
import math
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

import hushpoint as hp
from hushpoint import plots
from hushpoint.plots import curves, drawing

SOURCE = str(Path(hp.__file__).parents[1])
METHODS = [
    ("private_admm", "one-block ADMM", "trusted curator", "proved"),
    ("dp_gd", "DP-GD", "trusted curator", "proved"),
    ("federated_admm_local", "federated ADMM, local noise", "nobody trusted", "proved"),
    ("federated_admm_published", "federated ADMM, as published", "nobody trusted", "published"),
]
EPSILONS = ("0.1", "1.0", "10.0")


def frontier():
    rows = [
        {
            "method": method, "label": label, "trust": trust, "view": "iterates", "basis": basis,
            "adjacency": "zero-out", "epsilon": epsilon, "delta": "1e-06",
            "objective_mean": repr(0.006 + 0.001 * (k + 1) / float(epsilon)), "objective_std": "0.0005", "runs": "10",
        }
        for k, (method, label, trust, basis) in enumerate(METHODS)
        for epsilon in EPSILONS
    ]  # fmt: skip
    best = {"method": "nonprivate", "label": "no privacy", "epsilon": "inf", "objective_mean": "0.006"}
    return [{**dict.fromkeys(rows[0], ""), **best}, *rows]


def rounds():
    return [
        {
            "method": method, "label": label, "trust": trust, "epsilon": "1.0", "round": str(k),
            "numbers_sent": "0" if trust == "trusted curator" else str(640 * k),
            "objective_mean": repr(0.006 + 0.02 / (1 + k)), "objective_std": "0.001", "runs": "10",
        }
        for method, label, trust, _ in METHODS[:3]
        for k in range(4)
    ]  # fmt: skip


def guarantees():
    return [
        {
            "method": "private_admm", "label": "one-block ADMM", "accountant": name,
            "basis": "published" if name == "published" else "proved", "steps": str(steps),
            "epsilon": repr(factor * math.sqrt(steps)), "delta": "1e-06",
        }
        for name, factor in (("gdp", 1.0), ("rdp", 1.2), ("exact", 0.9), ("published", 0.1))
        for steps in (1, 10, 100)
    ]  # fmt: skip


def noise():
    return [
        {"method": method, "label": label, "epsilon": "1.0", "steps": str(steps), "noise_std": repr(k + steps**0.5)}
        for k, (method, label, _, _) in enumerate(METHODS[:3])
        for steps in (1, 10, 100)
    ]


def accuracy():
    return [
        {
            "method": method, "label": label, "trust": trust, "epsilon": epsilon, "rounds": str(length),
            "accuracy_mean": repr(0.7 + 0.01 * k + 0.001 * length), "accuracy_std": "0.01", "runs": "5",
        }
        for k, (method, label, trust, _) in enumerate(METHODS[:2])
        for epsilon in EPSILONS
        for length in ((20,) if epsilon != "1.0" else (5, 20, 80))
    ]  # fmt: skip


def as_published():
    return [
        {
            "epsilon_stated": epsilon, "epsilon_true": "inf" if epsilon == "0.1" else repr(100 * float(epsilon)),
            "objective_best_iterate_mean": "0.01", "objective_best_iterate_std": "0.001",
            "objective_last_mean": "0.02", "objective_last_std": "0.03", "nonprivate": "0.006", "start": "0.03",
        }
        for epsilon in EPSILONS
    ]  # fmt: skip


def gaps():
    return [
        {
            "method": method, "label": label, "trust": trust, "epsilon": epsilon, "rounds": str(length),
            "bytes": str(length * 10 ** (5 + k)), "gap_mean": repr(0.1 * (k + 1) / length), "gap_std": "0.002",
            "runs": "5",
        }
        for k, (method, label, trust, _) in enumerate(METHODS[:3])
        for epsilon in EPSILONS
        for length in (2, 6, 20)
    ]  # fmt: skip


TABLES = {f.__name__: f for f in (frontier, rounds, guarantees, noise, accuracy, gaps, as_published)}


@pytest.fixture
def seen(monkeypatch, tmp_path):
    """Draw a table and return the figure, which is not saved."""

    def drawn(name, rows):
        caught = []
        with monkeypatch.context() as patch:
            patch.setattr(drawing, "saved", lambda figure, stem: caught.append(figure) or (stem, stem))
            plots.FIGURES[name](rows, tmp_path / name)
        return caught[0]

    return drawn


def lines_of(ax):
    """The curves of an axis by label: x, y."""
    handles, labels = ax.get_legend_handles_labels()
    lines = [handle.lines[0] if hasattr(handle, "lines") else handle for handle in handles]
    return dict(zip((" ".join(label.split()) for label in labels), lines, strict=True))


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TABLES)
def test_every_figure_is_two_files_and_the_same_bytes_again(name, tmp_path, monkeypatch):
    # catches: a date, a random id or the reader's own settings in the files; too few dots for print
    before = dict(matplotlib.rcParams)
    first = [path.read_bytes() for path in plots.FIGURES[name](TABLES[name](), tmp_path / "a.b")]
    assert sorted(os.listdir(tmp_path)) == ["a.b.png", "a.b.svg"]  # no draft is left, the stem is kept whole
    assert dict(matplotlib.rcParams) == before
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "red", "svg.hashsalt": None, "savefig.dpi": 10}):
        again = [path.read_bytes() for path in plots.FIGURES[name](iter(TABLES[name]()), tmp_path / "c")]
    assert first == again
    png, svg = first
    assert png.startswith(b"\x89PNG")
    place = png.index(b"pHYs")
    assert int.from_bytes(png[place + 4 : place + 8]) >= 150 / 0.0254
    assert ET.fromstring(svg).tag.endswith("svg")
    for secret in (b"<dc:date>", b"Matplotlib v", b"Software"):
        assert secret not in png + svg


def test_another_process_draws_the_same_bytes_without_pyplot(tmp_path):
    # catches: an order that depends on hashes; the global state of pyplot, which needs a display on some machines
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_plots as t; from hushpoint import plots\n"
        "plots.noise(t.noise(), sys.argv[2]); print('matplotlib.pyplot' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": SOURCE, "PYTHONHASHSEED": "77", "MPLBACKEND": "TkAgg"}
    arguments = [sys.executable, "-c", code, str(Path(__file__).parent), str(tmp_path / "other")]
    told = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=True).stdout
    assert told.split() == ["False"]
    for path in plots.noise(noise(), tmp_path / "own"):
        other = tmp_path / f"other{path.suffix}"
        assert hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(other.read_bytes()).digest()


def test_a_failure_leaves_the_old_figure(tmp_path, monkeypatch):
    # catches: half a file under the name of a figure
    old = plots.noise(noise(), tmp_path / "n")[0].read_bytes()
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk")))
    with pytest.raises(OSError, match="disk"):
        plots.noise(noise()[:3], tmp_path / "n")
    assert (tmp_path / "n.png").read_bytes() == old
    assert sorted(os.listdir(tmp_path)) == ["n.png", "n.svg"]


def test_draw_all_draws_the_tables_that_exist(tmp_path):
    # catches: a table that is forgotten; an empty one that stops the others
    (tmp_path / "tables").mkdir()
    for name, rows in (("noise", noise()), ("guarantees", guarantees()), ("rounds", [])):
        header = list(TABLES[name]()[0])
        lines = [",".join(header), *(",".join(f'"{row[column]}"' for column in header) for row in rows)]
        (tmp_path / "tables" / f"{name}.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "tables" / "unknown.csv").write_text("a\n1\n")
    drawn = plots.draw_all(tmp_path)
    assert sorted(drawn) == ["guarantees", "noise"]
    assert drawn["noise"] == (tmp_path / "figures/noise.png", tmp_path / "figures/noise.svg")
    assert all(path.stat().st_size > 1000 for paths in drawn.values() for path in paths)


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_the_frontier_shows_the_numbers_of_its_table(seen):
    # catches: rows in another order, a mean under another label, bars of another length, a lost level line
    rows = frontier()
    figure = seen("frontier", rows[::-1])
    curator, nobody = sorted(figure.axes, key=lambda ax: "Nobody" in ax.get_title(loc="left"))
    assert curator.get_title(loc="left") == "Trusted curator"
    line = lines_of(curator)["DP-GD"]
    expected = [float(row["objective_mean"]) for row in rows if row["method"] == "dp_gd"]
    assert line.get_ydata() == pytest.approx(expected)
    assert line.get_xdata() == pytest.approx([0.1, 1, 10], rel=0.1)  # set apart sideways, a little
    assert curator.get_xscale() == "log"
    (_, _, (bars,)) = next(c for c in curator.containers if c.lines[0] is line)
    ends = np.array([segment[:, 1] for segment in bars.get_segments()])
    assert ends[:, 1] - ends[:, 0] == pytest.approx([0.001] * 3)
    for ax in (curator, nobody):
        levels = [line for line in ax.lines if len(line.get_xdata()) == 2 and list(line.get_ydata()) == [0.006] * 2]
        assert len(levels) == 1
    named = [text.get_text() for ax in figure.axes for text in ax.texts]
    assert named.count("no privacy") == 1


def test_published_is_dashed_and_open_and_said(seen):
    # catches: a bound that does not hold, drawn like one that does
    figure = seen("frontier", frontier())
    looks = {name: line for ax in figure.axes for name, line in lines_of(ax).items()}
    published = looks.pop("federated ADMM, as published")
    assert (published.get_linestyle(), published.get_markerfacecolor()) == ("--", "white")
    for line in looks.values():
        assert line.get_linestyle() == "-"
        assert line.get_markerfacecolor() != "white"
    assert "Dashed: published, not proved." in figure.texts[-1].get_text()
    assert "standard deviation of 10 runs" in " ".join(figure.texts[-1].get_text().split())


def test_every_curve_has_its_own_marker_and_colours_stay_with_methods():
    # catches: two methods that look alike in greyscale; a method that changes colour between figures
    rows = [{**row, "basis": ""} for row in frontier() if row["method"] != "federated_admm_published"]
    rows += [{**rows[1], "method": f"new_{k}", "label": f"new {k}"} for k in range(6)]
    drawn = curves.styled(rows[1:], "epsilon", "objective_mean")[""]
    assert len(drawn) == 9
    for one, other in itertools.combinations(drawn, 2):
        assert one.marker != other.marker
    alone = curves.styled(noise(), "steps", "noise_std")[""]
    same = {curve.label: (curve.colour, curve.marker) for curve in drawn}
    for curve in alone:
        assert same[curve.label] == (curve.colour, curve.marker)
    assert len({look[1] for look in curves.METHODS.values()}) == len(curves.METHODS) - 1  # one is published


def test_another_adjacency_is_named(seen):
    # catches: half the noise sold as a better method
    rows = [{**row, "adjacency": "replace-one"} if row["method"] == "dp_gd" else row for row in frontier()]
    figure = seen("frontier", rows)
    names = [name for ax in figure.axes for name in lines_of(ax)]
    assert "DP-GD (replace-one)" in names
    assert "one-block ADMM" in names
    assert "Adjacency: zero-out where no other is named." in " ".join(figure.texts[-1].get_text().split())


def test_worse_than_useless_is_written_at_the_edge(seen):
    # catches: one wild point that flattens the figure, or that disappears without a word
    zero = {**frontier()[0], "method": "zero", "label": "the model 0", "objective_mean": "0.03"}
    rows = [zero, *frontier()]
    wild = next(row for row in rows if row["method"] == "dp_gd")
    wild["objective_mean"] = "1.7"
    figure = seen("frontier", rows)
    assert all(ax.get_ylim()[1] < 0.1 for ax in figure.axes)
    assert [text.get_text() for ax in figure.axes for text in ax.texts if "↑" in text.get_text()] == ["↑1.7"]
    line = lines_of(next(ax for ax in figure.axes if "DP-GD" in lines_of(ax)))["DP-GD"]
    (_, _, (bars,)) = next(c for ax in figure.axes for c in ax.containers if c.lines[0] is line)
    assert np.ptp(bars.get_segments()[0][:, 1]) == 0  # a bar without its point would mislead


def test_rounds_shows_silent_methods_on_the_left_only(seen):
    # catches: zero numbers on a log axis; a method that is lost
    left, right = seen("rounds", rounds()).axes
    assert set(lines_of(left)) == {"one-block ADMM", "DP-GD", "federated ADMM, local noise"}
    assert set(lines_of(right)) == {"federated ADMM, local noise"}
    assert list(lines_of(right)["federated ADMM, local noise"].get_xdata()) == [640, 1280, 1920]
    assert (left.get_xlabel(), right.get_xlabel()) == ("rounds", "numbers sent over the network")


def test_zero_has_no_place_on_a_log_axis(seen):
    # catches: a line that falls out of the figure; other points shifted with it
    rows = [
        {**row, "epsilon_at_least": bound} for row, bound in zip(as_published(), ("0.0", "0.5", "7.0"), strict=True)
    ]
    line = lines_of(seen("as_published", rows).axes[1])["shown, at least"]
    assert line.get_xydata().tolist() == [[1, 0.5], [10, 7]]


def test_guarantees_names_what_it_cannot_draw(seen):
    # catches: an infinite epsilon that looks like a missing one, or like none
    rows = guarantees()
    rows[0]["epsilon"] = "inf"
    figure = seen("guarantees", rows)
    assert list(lines_of(figure.axes[0])["Gaussian DP"].get_xdata()) == [10, 100]
    assert "not drawn: one-block ADMM, Gaussian DP." in " ".join(figure.texts[-1].get_text().split())
    single = seen("guarantees", [row for row in guarantees() if row["steps"] == "10"])
    assert [label.get_text() for label in single.axes[0].get_yticklabels()] == ["one-block ADMM"]
    assert lines_of(single.axes[0])["Rényi DP"].get_xdata() == pytest.approx([1.2 * 10**0.5])


def test_bounds_about_different_things_say_so(seen):
    # catches: a bound for one viewer next to one for another, as if the accountant made the difference
    rows = [{**row, "view": "final" if row["accountant"] == "exact" else "iterates"} for row in guarantees()]
    (ax,) = seen("guarantees", rows).axes
    assert {"Gaussian DP (every iterate)", "exact, one pair (final model)"} < set(lines_of(ax))


def test_accuracy_never_picks_the_best_rounds(seen):
    # catches: choosing on the test set; the longest run of one budget among shorter ones of the others
    first, second = seen("accuracy", accuracy()).axes
    assert lines_of(first)["DP-GD"].get_ydata() == pytest.approx([0.73] * 3)
    assert lines_of(second)["DP-GD"].get_xdata() == pytest.approx([5, 20, 80], rel=0.1)
    assert second.get_title(loc="left") == "epsilon = 1"
    assert first.get_title(loc="left") == "20 rounds"


def test_gaps_are_shown_against_rounds_and_against_bytes(seen):
    # catches: one budget's curves in another's panel, rounds taken for bytes
    axes = seen("gaps", gaps()).axes
    assert len(axes) == 2 * len(EPSILONS)
    label = METHODS[1][1]
    for ax, scale in ((axes[0], 1), (axes[len(EPSILONS)], 10**6)):
        line = lines_of(ax)[label]
        assert line.get_xdata() == pytest.approx([2 * scale, 6 * scale, 20 * scale], rel=0.1)
        assert line.get_ydata() == pytest.approx([0.1, 0.2 / 6, 0.01])


def test_as_published_marks_infinite_losses_at_the_top(seen):
    # catches: an infinite epsilon that is left out of the figure about it
    left, right = seen("as_published", as_published()).axes
    marks = lines_of(right)["proved of it: nothing (infinite)"]
    assert list(marks.get_xdata()) == [0.1]
    assert list(marks.get_ydata()) == [right.get_ylim()[1]]
    assert list(lines_of(right)["proved of it, at most"].get_ydata()) == [100, 1000]
    assert lines_of(left)["last iterate"].get_ydata() == pytest.approx([0.02] * 3)


@pytest.mark.parametrize("name", TABLES)
def test_nothing_overlaps_and_no_point_is_cut_off(name, seen):
    # catches: a legend on the data, a note on a legend, a point outside the axes
    figure = seen(name, TABLES[name]())
    with drawing.look():
        drawing._place(figure)
        boxes = [ax.get_window_extent() for ax in figure.axes]
        legends = [*figure.legends, *(ax.get_legend() for ax in figure.axes if ax.get_legend())]
        assert legends
        words = [legend.get_window_extent() for legend in legends] + [text.get_window_extent() for text in figure.texts]
        words += [ax.xaxis.label.get_window_extent() for ax in figure.axes if ax.get_xlabel()]
        for one, other in itertools.combinations([*boxes, *words], 2):
            assert (
                min(one.x1, other.x1) - max(one.x0, other.x0) < 1 or min(one.y1, other.y1) - max(one.y0, other.y0) < 1
            )
        for ax in figure.axes:
            (left, right), (low, high) = ax.get_xlim(), sorted(ax.get_ylim())
            for line in lines_of(ax).values():
                assert all(left <= x <= right for x in line.get_xdata())
                assert all(low <= y <= high for y in line.get_ydata())
            labels = [text.get_window_extent() for text in ax.get_xticklabels() if text.get_text()]
            for one, other in itertools.pairwise(sorted(labels, key=lambda box: box.x0)):
                assert one.x1 <= other.x0


# --- tables as they come ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TABLES)
def test_missing_infinite_and_lonely_values_are_drawn(name, seen):
    # catches: a log of zero, an empty axis, a bar of unknown length, one budget without a width, a label like $x_{
    full = TABLES[name]()
    numeric = [c for c in full[0] if re.search("epsilon|_mean|_std|round|steps|sent", c)]
    messy = [dict(row) for row in full]
    for k, row in enumerate(messy):
        row[numeric[k % len(numeric)]] = ("", "nan", "inf", None, "0.0", "-1.0")[k % 6]
        if "label" in row:
            row["label"] = f"{row['label']} $x_{{ <b> & \\frac"
    hopeless = [{**row, **dict.fromkeys((c for c in numeric if "epsilon" not in c), "")} for row in full]
    for rows in (messy, full[-1:], hopeless):
        figure = seen(name, rows)
        with drawing.look():
            drawing._place(figure)  # draws everything, to nowhere
            assert np.isfinite(figure.get_tightbbox().extents).all()
            for ax in figure.axes:
                assert np.isfinite([*ax.get_xlim(), *ax.get_ylim()]).all()


def test_numbers_may_be_numbers(tmp_path, seen):
    # catches: code that only reads text
    rows = [{**row, "steps": int(row["steps"]), "noise_std": float(row["noise_std"])} for row in noise()]
    text, numbers = seen("noise", noise()), seen("noise", rows)
    for name, line in lines_of(text.axes[0]).items():
        assert np.array_equal(line.get_xydata(), lines_of(numbers.axes[0])[name].get_xydata())


def test_refusals_say_what_is_wrong(tmp_path, monkeypatch):
    # catches: a KeyError deep inside; a bare ImportError
    with pytest.raises(ValueError, match=r"'noise' has no rows\. Run the study"):
        plots.noise([], tmp_path / "n")
    with pytest.raises(ValueError, match="lacks the columns noise_std"):
        plots.noise([{"method": "m", "epsilon": 1, "steps": 2}], tmp_path / "n")
    with pytest.raises(ValueError, match="'noise_std' holds 'many'"):
        plots.noise([{**noise()[0], "noise_std": "many"}], tmp_path / "n")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ValueError, match=r"need matplotlib.*hushpoint\[plots\]"):
        plots.noise(noise(), tmp_path / "n")
    assert os.listdir(tmp_path) == []


def test_the_overlap_test_can_fail():
    figure = Figure(layout="constrained")
    ax = figure.subplots()
    ax.plot([0, 1], [0, 1], label="inside")
    legend = ax.legend(loc="center")
    figure.draw_without_rendering()
    one, other = ax.get_window_extent(), legend.get_window_extent()
    assert min(one.x1, other.x1) - max(one.x0, other.x0) > 1
    assert min(one.y1, other.y1) - max(one.y0, other.y0) > 1
