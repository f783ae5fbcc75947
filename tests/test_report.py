"""The HTML page: true words about the guarantee, no markup from data, no network, the same bytes again."""

import html.parser
import json
import math
import os
import re

import numpy as np
import pytest
import typer
from reporting import HOSTILE, SVG, additive_model, guarantee, model, study
from scipy.stats import norm
from typer.testing import CliRunner

from hushpoint import cli, report
from hushpoint.commands.report import report as report_command
from hushpoint.privacy import gdp_delta
from hushpoint.report import words

VOID = {"meta", "link", "img"}


class Page(html.parser.HTMLParser):
    """A page as a browser reads it: its text, its elements, and whether they nest."""

    def __init__(self, place):
        super().__init__(convert_charrefs=True)
        self.elements, self.words, self.open = [], [], []
        self.source = place.read_text(encoding="utf-8")
        self.feed(self.source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())

    def all(self, name):
        return [attributes for tag, attributes in self.elements if tag == name]


def page_of(run, **options):
    return Page(report.write(run, **options))


@pytest.fixture
def saved(tmp_path):
    """Save a model and return its place."""

    def made(**options):
        place = tmp_path / "m.json"
        model(**options).save(place, force=True)
        return place

    return made


# --- words about privacy ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 3.0, 20.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.01])
def test_no_guess_does_better_than_we_say_and_one_does_as_well(epsilon, delta):
    # catches: a page that promises more than (epsilon, delta), or needlessly less; false negatives by brute force
    said = words.guess_bound(epsilon, delta)
    false = np.linspace(0, 1, 200_001)
    true = np.minimum(np.minimum(1, math.exp(epsilon) * false + delta), 1 - math.exp(-epsilon) * (1 - delta - false))
    best = ((true + 1 - false) / 2).max()  # the whole region that (epsilon, delta) allows
    assert best <= said + 1e-12
    assert said <= best + 1e-5


@pytest.mark.parametrize("mu", [0.01, 0.5, 2.0, 6.0])
def test_a_gaussian_loss_is_said_as_exactly_as_it_is_known(mu):
    # catches: mu instead of mu/2, which would be too weak, or mu/4, too strong
    exact = norm.cdf(mu / 2)  # the best test of N(0,1) against N(mu,1), half of the time each
    assert words.guess_bound(50.0, 1e-9, mu) == pytest.approx(exact)
    for epsilon in (0.1, 1.0, 3.0):
        assert words.guess_bound(epsilon, gdp_delta(mu, epsilon)) >= exact - 1e-12


def test_shares_are_rounded_up():
    # catches: a bound that looks smaller than it is
    assert [words.percent(x) for x in (0.5, 0.62401, 0.624, 0.9991, 0.99999, 1.0)] == [
        "50.0%", "62.5%", "62.4%", "100%", "100%", "100%",
    ]  # fmt: skip
    assert words.rounded_up(0.123401) == "0.1235"
    assert words.rounded_up(math.inf) == "infinite"


def test_the_plain_words_and_the_statement(saved):
    # catches: another unit, adjacency, number or viewer in the words than in the guarantee
    text = page_of(saved()).text
    assert str(guarantee()) in text
    assert f"at most {words.percent(norm.cdf(0.25))} of the time" in text
    assert "exchange one record for any other" in text
    assert "someone who sees the model after every step" in text
    assert "epsilon = 2 for one record" in text  # 1.99999 rounded up
    assert "Not for release" not in text
    changed = page_of(saved(unit="user", adjacency="zero-out", view="messages"), force=True).text
    assert "let all the data of one user count for nothing" in changed
    assert "even the server itself" in changed


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epsilon": math.inf, "mu": math.inf}, "There is no guarantee"),
        ({"basis": "published", "mu": None}, "Not proved."),
        ({"source": "noise from the integer seed 3, for experiments and not for release"}, "Not for release."),
        ({"epsilon": 50.0, "mu": 9.0}, "almost no protection"),
        ({"item": 4}, "one participant, or certain watchers, only"),
    ],
)
def test_weak_guarantees_are_called_weak(saved, changes, said):
    # catches: a page that reassures where it must warn
    assert said in page_of(saved(**changes)).text
    assert said not in page_of(saved(), force=True).text


# --- pages ------------------------------------------------------------------------------------------------------------


def test_a_model_has_its_coefficients_schema_and_commands(saved):
    # catches: a coefficient under another feature; a sign lost; a command without its options
    page = page_of(saved())
    assert re.search(r"age \+1\.000 .*job=b \+3\.000|job=b \+3\.000 .*age \+1\.000", page.text)
    assert "job=a -2.000" in page.text
    assert "towards yes" in page.text
    assert "0 to 100" in page.text
    assert "hushpoint predict m.json NEW.csv" in page.text
    assert "--epsilon 2 --delta 1e-05" in page.text
    assert "--seed" not in page.text
    assert "another model" in page.text
    seeded = page_of(saved(seed=7), force=True).text
    assert "--seed 7" in seeded
    assert "the same model comes out" in seeded


def test_a_model_of_several_classes_and_many_features(saved):
    # catches: columns in another order; a page of a thousand open rows
    page = page_of(saved(classes=("low", "mid", "high"), values=tuple(f"v{k:03}" for k in range(100))))
    assert "feature low mid high" in page.text
    assert "The other 61 coefficients" in page.text
    assert "v099" in page.text


def test_a_study_has_claims_guarantees_figures_numbers_and_its_command(tmp_path):
    # catches: a part that is missing; a table that does not say that it was cut
    page = page_of(study(tmp_path / "run"))
    for said in (
        "At epsilon = 1 nothing is better.",
        "hushpoint reproduce lasso --seed 0",
        "Hushpoint 9.9.9",
        "grids: admm : steps 5, 10",
        "published, not proved",
        "0.1 ± 0.001",
        "1,000 rows, of which the first 300 are here",
        "1 1e-06 73.2%",
    ):
        assert said in page.text, said
    assert [image["src"][:26] for image in page.all("img")] == ["data:image/svg+xml;base64,"] * 2
    assert all(len(image["alt"]) > 40 for image in page.all("img"))
    assert "Not finished" not in page.text
    assert "quick version" not in page.text


def test_unfinished_quick_and_figureless_runs_say_so(tmp_path):
    # catches: half a study that looks whole
    page = page_of(study(tmp_path / "run", drawn=("noise",), finished=False, quick=True, claims=[]))
    for said in ("Not finished.", "A quick version.", "The study made no claims.", "figures/frontier.svg is not there"):
        assert said in page.text
    bare = page_of(study(tmp_path / "bare", tables={}, figures={}, settings={}))
    assert "The run has no figures." in bare.text


def test_tables_are_tables(tmp_path):
    # catches: tables that a screen reader cannot tell, and headings without a scope
    page = page_of(study(tmp_path / "run"))
    captions = page.all("caption")
    assert len(captions) == len(page.all("table")) > 4
    assert all(heading.get("scope") in ("col", "row") for heading in page.all("th"))
    anchors = {a["href"] for a in page.all("a")}
    assert anchors == {f"#{title['id']}" for title in page.all("h2")}
    assert page.all("html") == [{"lang": "en"}]


def test_declared_shapes_and_folded_categories(tmp_path):
    # catches: a monotone shape or steps that the page does not tell of, forty categories that nobody can scroll past
    place = tmp_path / "a.json"
    additive_model().save(place)
    page = page_of(place)
    assert "declared: only increasing" in page.text
    assert "declared: steps at 25, 50" in page.text
    assert "job (declared: only decreasing)" in page.text
    assert "age number 0 to 100; only increasing; 4 equal steps error" in page.text
    assert "The other 12 values of town{}" in page.text
    assert page.text.count("job 7") == page.text.count("job 1") > 0


# --- safety -----------------------------------------------------------------------------------------------------------


def hostile_pages(tmp_path):
    place = tmp_path / "hostile.json"
    model(classes=("no", HOSTILE), name=HOSTILE, values=(HOSTILE, "b"), assumptions=(HOSTILE,)).save(place)
    return report.write(place), report.write(study(tmp_path / "run", HOSTILE))


def test_no_text_becomes_markup(tmp_path):
    # catches: a feature, label, claim, setting or title that runs in the reader's browser
    for place in hostile_pages(tmp_path):
        page = Page(place)
        assert page.text.count("window.owned=1") > 3  # it is there, as text
        assert " ".join(HOSTILE.split()) in page.text
        allowed = {
            "html", "head", "meta", "link", "title", "style", "body", "main", "h1", "h2", "h3", "p", "nav", "ul", "li",
            "a", "section", "blockquote", "div", "table", "caption", "thead", "tbody", "tr", "th", "td", "small", "svg",
            "rect", "path", "details", "summary", "pre", "code", "footer", "strong", "figure", "img", "figcaption",
            "span",
        }  # fmt: skip
        assert {tag for tag, _ in page.elements} <= allowed
        for _, attributes in page.elements:
            assert not any(name.startswith("on") for name in attributes)


def test_nothing_comes_from_elsewhere(tmp_path):
    # catches: a font, script, image or link that tells a server who reads the page
    for place in hostile_pages(tmp_path):
        page = Page(place)
        for _, attributes in page.elements:
            assert attributes.get("src", "data:").startswith("data:")
            assert attributes.get("href", "#").startswith(("#", "data:,"))
            assert "style" not in attributes
        assert "url(" not in page.source
        assert "@import" not in page.source
        (policy,) = [m["content"] for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "script-src" not in policy


def test_the_same_run_gives_the_same_bytes_wherever_it_lies(tmp_path):
    # catches: a date, a machine's path, an order by hash
    first = report.write(study(tmp_path / "one"))
    second = report.write(study(tmp_path / "two"), tmp_path / "elsewhere.html")
    assert first == tmp_path / "one" / "report.html"
    assert first.read_bytes() == second.read_bytes()
    assert str(tmp_path) not in first.read_text()


def test_only_files_of_the_run_are_shown(tmp_path):
    # catches: a run.json from a stranger that puts a private file on a page
    (tmp_path / "secret.svg").write_text(SVG.replace("#0072B2", "#secret"))
    linked = study(tmp_path / "linked")
    (linked / "figures" / "noise.svg").unlink()
    (linked / "figures" / "noise.svg").symlink_to(tmp_path / "secret.svg")
    with pytest.raises(ValueError, match="outside the run"):
        report.write(linked)
    for k, changes in enumerate(
        (
            {"figures": {"frontier": "../secret.svg"}},
            {"figures": {"frontier": str(tmp_path / "secret.svg")}},
            {"tables": {"frontier": "../secret.svg"}},
        )
    ):
        with pytest.raises(ValueError, match="outside the run"):
            report.write(study(tmp_path / f"run{k}", **changes))
        assert not (tmp_path / f"run{k}" / "report.html").exists()
    with pytest.raises(ValueError, match=r"Figures are \.svg or \.png"):
        report.write(study(tmp_path / "other", figures={"f": "run.json"}))


def test_pages_are_written_whole_and_never_over_others(tmp_path, monkeypatch):
    # catches: an old page lost to a new run, or to a run that fails half way
    run = study(tmp_path / "run")
    place = report.write(run)
    old = place.read_bytes()
    place.write_bytes(old + b"<!-- mine -->")
    with pytest.raises(ValueError, match=r"exists\..*--force"):
        report.write(run)
    assert place.read_bytes().endswith(b"<!-- mine -->")
    assert report.write(run, force=True) == place
    assert place.read_bytes() == old
    (run / "tables" / "frontier.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="table 'frontier' cannot be read"):
        report.write(run, force=True)
    assert place.read_bytes() == old
    assert sorted(os.listdir(run)) == ["figures", "report.html", "run.json", "tables"]
    with pytest.raises(ValueError, match="no folder"):
        report.write(run, tmp_path / "absent" / "r.html")


@pytest.mark.parametrize("content", ["[1]", "{}", '{"kind": "party"}', '{"kind": 3}'])
def test_what_is_no_run_is_refused(tmp_path, content):
    # catches: a KeyError; a page about nothing
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(ValueError, match="no study, no federated run and no model"):
        report.write(tmp_path / "x.json")
    assert os.listdir(tmp_path) == ["x.json"]


def test_broken_runs_are_refused(tmp_path, saved):
    # catches: a traceback instead of a sentence
    with pytest.raises(ValueError, match="cannot be read"):
        report.write(tmp_path / "absent")
    with pytest.raises(ValueError, match="cannot be read"):
        report.write(tmp_path)  # a folder without run.json
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(ValueError, match="no valid JSON"):
        report.write(tmp_path / "x.json")
    with pytest.raises(ValueError, match="has format 2"):
        report.write(study(tmp_path / "run", format=2))
    place = saved()
    record = json.loads(place.read_text())
    place.write_text(json.dumps({**record, "features": ["other"]}))
    with pytest.raises(ValueError, match="was changed"):
        report.write(place)


def test_the_command(tmp_path, saved):
    # catches: an option that is not handed on; a traceback for a user
    app = typer.Typer()
    app.command()(cli._plainly(report_command))
    place = saved()
    run = CliRunner().invoke(app, [str(place)])
    assert run.exit_code == 0
    assert run.output.split() == ["Wrote", f"{place.with_suffix('.html')}."]
    again = CliRunner().invoke(app, [str(place)])
    assert again.exit_code == 2
    assert again.stderr.startswith("Error: ")
    assert CliRunner().invoke(app, [str(place), "--force"]).exit_code == 0
    assert CliRunner().invoke(app, [str(place), "-o", str(tmp_path / "o.html")]).exit_code == 0
    assert (tmp_path / "o.html").read_bytes() == place.with_suffix(".html").read_bytes()
