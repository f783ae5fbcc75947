"""How much each extra installs: python benchmarks/sizes.py

Megabytes of hushpoint's dependencies, as they are installed beside it, without what Python compiles at first use: those
of the package alone and those that come with an extra. A package that is not installed is named, and counts as nothing.
"""

from __future__ import annotations

import argparse
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

EXTRAS = ("", "secure", "federated", "simulation")


def needed(name: str, extras: frozenset[str], found: dict[str, set[str]], missing: set[str]) -> None:
    """Collect a package and all that it needs with these extras."""
    name = canonicalize_name(name)
    if name in found and extras <= found[name]:
        return
    try:
        package = distribution(name)
    except PackageNotFoundError:
        missing.add(name)
        return
    found.setdefault(name, set()).update(extras)
    for line in package.requires or []:
        wanted = Requirement(line)
        if wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in (extras or {""})):
            needed(wanted.name, frozenset(wanted.extras), found, missing)


def megabytes(name: str) -> float:
    """What a package holds on the disk."""
    files = distribution(name).files or []
    return sum(file.size or 0 for file in files if file.suffix != ".pyc") / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--largest", type=int, default=6, help="how many packages are named")
    arguments = parser.parse_args()
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extra in EXTRAS:
        found: dict[str, set[str]] = {}
        missing: set[str] = set()
        for line in [*project["dependencies"], *project["optional-dependencies"].get(extra, ())]:
            needed(Requirement(line).name, frozenset(Requirement(line).extras), found, missing)
        sizes = {name: megabytes(name) for name in found}
        largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[: arguments.largest]
        named = ", ".join(f"{name} {sizes[name]:.0f}" for name in largest)
        lacking = f"; not installed: {', '.join(sorted(missing))}" if missing else ""
        title = f"hushpoint[{extra}]" if extra else "hushpoint"
        print(f"{title}: {sum(sizes.values()):.0f} MB in {len(sizes)} packages ({named}, ...){lacking}")


if __name__ == "__main__":
    main()
