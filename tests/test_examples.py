"""The scripts of ``examples/``: pieces from outside the package, from plan to guarantee, run, JSON and federation."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hushpoint as hp

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def loaded(name):
    """An example as a module, once: its pieces register."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def recipe(name):
    """The lines between the two marks of an example, blank ones left out."""
    text = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    between = text.split("# recipe\n", 1)[1].split("# end of the recipe", 1)[0]
    return [line for line in between.splitlines() if line.strip()]


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_an_example_runs_as_a_script(path, tmp_path):
    # an example that needs what only the tests have set up
    done = subprocess.run([sys.executable, str(path)], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "Proved (docs/privacy.md" in done.stdout or "Stated by whoever registered" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["own_loss", "own_regularizer"])
def test_a_piece_from_outside_goes_all_the_way(name):
    # by name from JSON, and among sites, the model is the one of the run at hand
    plan, model, saved, federated = loaded(name).main()
    assert plan.guarantee(1e-5, unit="record").epsilon == pytest.approx(1.0, rel=1e-3)
    assert "declares of itself" in str(plan.guarantee(1e-5))
    np.testing.assert_array_equal(saved, model)
    np.testing.assert_allclose(federated, model, rtol=0, atol=1e-10)
    truth = np.array([1.0, -1.0, 0.5, 0.0]) if name == "own_loss" else np.array([1.0, 0.0, 0.5, 0.0])
    assert np.abs(model - truth).max() < 0.2  # it learns what it should


@pytest.mark.parametrize("name", ["own_loss", "own_regularizer", "own_schedule"])
def test_who_has_not_imported_it_is_told_what_to_import(name):
    # a name that nobody knows, and no word of where it comes from
    text = loaded(name).main()[0].to_json()
    ask = "import sys, hushpoint as hp\nhp.Plan.from_json(sys.stdin.read())"
    told = subprocess.run([sys.executable, "-c", ask], input=text, capture_output=True, text=True, timeout=300).stderr
    assert f"of the module {name!r}" in told
    assert "plugins" in told


def test_a_schedule_from_outside_is_counted_and_saved():
    plan, model, saved = loaded("own_schedule").main()
    assert json.loads(plan.to_json())["schedule"] == {
        "name": "shifts", "module": "own_schedule", "blocks": 12, "cap": None, "shifts": 3,
    }  # fmt: skip
    np.testing.assert_array_equal(saved, model)
    assert plan.run(seed=0).state.participations.tolist() == [10] * 12
    every = hp.methods.federated_admm(plan.problem, 30, 2.0, noise_std=0.2).guarantee(1e-5, unit="record")
    assert plan.guarantee(1e-5, unit="record").mu == pytest.approx(every.mu / np.sqrt(3), rel=1e-9)  # a third as often


def test_an_operator_from_outside_is_accounted_by_its_rule():
    example = loaded("own_operator")
    plan, model = example.main()
    shifts = [12.0 * 0.7**step for step in range(8)]
    assert plan.guarantee(1e-6).mu == pytest.approx(np.linalg.norm(shifts) / 60.0, rel=1e-12)
    assert "rule registered for it" in str(plan.guarantee(1e-6))
    assert np.abs(model - [3.0, -2.0, 1.0]).max() < 0.2
    assert plan.guarantee(1e-6, view="final").view == "iterates"  # who sees less is told what holds for who sees more
    with pytest.raises(ValueError, match="nobody has that view"):
        plan.guarantee(1e-6, view="messages")  # the rule says nothing of it

    class Derived(example.ClippedMean):
        """Another class: the rule of its parent is not its own."""

    from dataclasses import replace

    derived = replace(plan, operator=Derived(plan.facts, 6.0)).guarantee(1e-6)
    assert derived.mu == pytest.approx(np.sqrt(8) * 12.0 / 60.0, rel=1e-9)  # composition of the largest step


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((hp.operators.Gradient, print, "iterates"), "whose rules are proved"),
        (("Gradient", print, "iterates"), "Pass the class"),
        ((type("Mine", (hp.operators.Gradient,), {}), print, "everybody"), "views"),
    ],
)
def test_rules_cannot_be_registered_for_anything(arguments, told):
    with pytest.raises(ValueError, match=told):
        hp.privacy.register_rule(*arguments)


def test_the_line_counts_of_the_page_are_those_of_the_examples():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    stated = dict(re.findall(r"\[examples/(\w+)\.py\]\(examples/\w+\.py\) \| (\d+) \|", page))
    assert {name: int(count) for name, count in stated.items()} == {
        path.stem: len(recipe(path.stem)) for path in EXAMPLES
    }
