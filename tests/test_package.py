"""The package as one meets it: its version, its import, its names and its types."""

import importlib
import importlib.resources
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import hushpoint as hp
from hushpoint import cli

ROOT = Path(__file__).parents[1]
SOURCE = str(Path(hp.__file__).parents[1])
HOMES = ["hushpoint", *(f"hushpoint.{room}" for room in ("methods", "operators", "preprocessing", "privacy"))]


def python(code, *arguments):
    """Run code in a fresh interpreter that finds the package under test."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([SOURCE, os.environ.get("PYTHONPATH", "")])}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_the_command_prints_its_version():
    # an entry point that points nowhere, or a version kept in two places
    script = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["hushpoint"]
    assert script == "hushpoint.cli:main"
    assert python("from hushpoint.cli import main; main()", "--version").strip() == f"hushpoint {hp.__version__}"
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.?(dev|a|b|rc)\d+)?", hp.__version__)


def test_every_command_explains_itself():
    # a command whose options crash before its help is shown
    runner = CliRunner()
    told = runner.invoke(cli.app, ["--help"])
    assert told.exit_code == 0
    names = [command.name or command.callback.__name__ for command in cli.app.registered_commands]
    assert "demo" in names
    for name in names:
        assert name in told.output
        assert runner.invoke(cli.app, [name, "--help"]).exit_code == 0
    assert runner.invoke(cli.app, ["no-such-command"]).exit_code != 0


def test_import_is_light():
    # importing scikit-learn, numba or the accountant costs seconds that a user of one function should not pay
    heavy = ("sklearn", "numba", "dp_accounting", "matplotlib", "networkx", "pandas", "flwr", "scipy")
    code = "import json, sys, hushpoint; print(json.dumps([name for name in sys.argv[1:] if name in sys.modules]))"
    assert json.loads(python(code, *heavy)) == []
    assert json.loads(python(code, *heavy, "hushpoint")) == ["hushpoint"]  # the test can fail


def test_a_plan_is_made_without_the_compiler():
    # accounting and planning need no compiled loop; numba alone takes longer to import than they take to run
    code = (
        "import json, sys, hushpoint as hp\n"
        "plan = hp.methods.private_admm(hp.Problem.declared(9, 2, clip=1.0), 3, 1.0, noise_std=1.0)\n"
        "hp.Plan.from_json(plan.to_json())\n"
        "print(json.dumps([name for name in ('sklearn', 'numba', 'matplotlib', 'networkx') if name in sys.modules]))"
    )
    assert json.loads(python(code)) == []


@pytest.mark.parametrize("module", HOMES)
def test_every_name_that_is_announced_exists(module):
    # a name in __all__ that was renamed, or whose home module was
    home = importlib.import_module(module)
    assert len(set(home.__all__)) == len(home.__all__)
    for name in home.__all__:
        assert getattr(home, name) is not None
    assert set(home.__all__) <= set(dir(home))


def test_unknown_names_are_attribute_errors():
    # hasattr and copy need an AttributeError, not a KeyError
    assert not hasattr(hp, "no_such_name")
    with pytest.raises(AttributeError, match="no_such_name"):
        hp.no_such_name  # noqa: B018


def test_types_are_packaged():
    # without py.typed a type checker ignores every annotation
    assert (importlib.resources.files("hushpoint") / "py.typed").is_file()
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["packages"] == ["src/hushpoint"]
    assert "exclude" not in wheel
