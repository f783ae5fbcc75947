"""Every example of the pages runs, and prints what the page says.

How examples and outputs are marked, and how to bring outputs up to date, is in documents.py.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
import typer
from documents import PAGES, ROOT, Example, disagreement, examples, is_session, outputs, run, updated

import hushpoint as hp
from hushpoint import cli

ON_THEIR_OWN = [
    pytest.param(page, example, id=f"{page.name}:{example.line}")
    for page in PAGES
    if not is_session(page)
    for example in examples(page.read_text())
    if not example.skipped
]
COMMANDS = [
    pytest.param(line.removeprefix("$ "), id=f"{page.name}: {line.removeprefix('$ ')[:60]}")
    for page in PAGES
    for line in re.findall(r"^(?:\$ )?hushpoint .*", page.read_text(), flags=re.MULTILINE)
]


def page(name: str) -> str:
    return (ROOT / name).read_text()


# ---- examples and what they print


@pytest.mark.parametrize(("page", "example"), ON_THEIR_OWN)
def test_an_example_runs_on_its_own_and_prints_what_the_page_says(page, example, tmp_path, monkeypatch):
    # an example that was never run, or that the code has outgrown; a guarantee quoted from an older version
    if page.name == "secure.md":
        pytest.importorskip("cryptography", reason="needs the extra 'secure'")
    monkeypatch.chdir(tmp_path)
    wrong = disagreement(example, _named(page), run(example, str(page)))
    if wrong:
        pytest.fail(wrong, pytrace=False)


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES if is_session(page)])
def test_a_how_to_page_can_be_followed_to_its_end(page):
    # a step that needs a file which no step before it makes; a command that prints something else by now
    if page.name in ("howto-federated.md", "howto-local-noise.md"):
        pytest.importorskip("cryptography", reason="needs the extra 'federated'")
        pytest.importorskip("flwr", reason="Flower is not installed")
    wrong = [disagreement(example, _named(page), printed) for example, printed in outputs(page)]
    if any(wrong):
        pytest.fail("\n\n".join(filter(None, wrong)), pytrace=False)


def _named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_the_options_that_a_page_gives_it(command):
    # an option that was renamed, also of the commands that start servers or take minutes; nothing is run here
    words = shlex.split(command, comments=True)[1:]
    _parsed(words)
    with pytest.raises(click.UsageError):  # the test can fail
        _parsed([*words, "--no-such-option"])


def _parsed(words: list[str]) -> None:
    command = typer.main.get_command(cli.app)
    while isinstance(command, click.Group):
        command, words = command.commands[words[0]], words[1:]
    command.make_context(command.name, words)


def test_every_fence_is_understood():
    # an indented or unclosed fence would hide an example from all of the above
    for place in PAGES:
        text = place.read_text()
        fences = re.findall(r"^```(\w*)\n.*?^```$", text, flags=re.MULTILINE | re.DOTALL)
        assert text.count("```") == 2 * len(fences), place.name
        assert set(fences) <= {"", "python", "text", "toml"}, place.name
    assert len(ON_THEIR_OWN) >= 10


FAKE = """
```python
print("one", 0.123456789012)
```

```
one
  0.123456789
```

```python
print("noise", 0.123)
print("the end")
```

```text
noise ...
the beginning
```

```python
missing + 1
```

```
$ hushpoint --version
hushpoint 0.0
$ hushpoint no-such-command
```
"""


def test_the_test_itself_can_fail(tmp_path):
    # a comparer that says yes to everything, an error that is swallowed, an update that rewrites more than outputs
    right, wrong, raises, version, unknown = examples(FAKE)
    assert disagreement(right, "fake.md", run(right, "fake.md")) is None
    message = disagreement(wrong, "fake.md", run(wrong, "fake.md"))
    assert "noise 0.123\nthe end\n" in message
    assert "noise ...\nthe beginning\n" in message
    with pytest.raises(NameError, match="missing"):
        run(raises, "fake.md")
    assert hp.__version__ in disagreement(version, "fake.md", run(version, "fake.md"))
    with pytest.raises(RuntimeError, match="no-such-command"):
        run(unknown, "fake.md")
    place = tmp_path / "fake.md"
    place.write_text(FAKE[: FAKE.index("```python\nmissing")])
    assert updated(place) == place.read_text().replace("the beginning", "the end")


def test_a_namespace_is_not_shared():
    # an example that needs the variables of another one
    first, second = examples("```python\nx = 1\n```\n\n```python\nprint(x)\n```\n")
    run(first, "fake.md")
    with pytest.raises(NameError):
        run(second, "fake.md")


# ---- examples that promise more than their output


def test_the_fused_lasso_of_the_readme_is_sparse_and_piecewise_constant(tmp_path, monkeypatch):
    # "sparse and piecewise constant" said of coefficients that are neither. Not the luck of a seed: here the noise is
    # secure. The largest of the entries that should be 0 is 10 standard deviations below the threshold (100 runs).
    monkeypatch.chdir(tmp_path)
    (fused,) = (example for example in examples(page("README.md")) if "np.diff" in example.code)
    assert "seed=0" in fused.code
    for _ in range(3):
        printed = run(Example("python", fused.code.replace("seed=0", ""), fused.line), "README.md")
        pieces = [float(number) for number in re.search(r"pieces: \[(.*)\]", printed)[1].split()]
        assert pieces[:4] == pieces[8:] == [0.0] * 4
        assert len(set(pieces[4:8])) == 1
        assert 2 < pieces[4] < 3


def test_the_deployed_run_spends_what_the_simulated_one_does():
    # a table of rounds from an older accountant: it is not run here, but what it spends follows from the plan
    pytest.importorskip("cryptography", reason="needs the extra 'federated'")
    shown = {example.code: example for example in examples(page("docs/howto-local-noise.md"))}
    deployed = shown["hushpoint federated run hospitals"].printed
    spent = re.findall(r"^ +(\d+) .*  (\S+ \(user\), \S+ \(record\))$", deployed, re.M)
    simulated = next(
        printed
        for example, printed in outputs(ROOT / "docs/howto-local-noise.md")
        if example.code == "hushpoint federated simulate hospitals --in-process"
    )
    assert len(spent) == 3
    for number, epsilon in spent:
        assert re.search(rf"^ +{number} .*  {re.escape(epsilon)}$", simulated, re.M), (number, epsilon, simulated)
