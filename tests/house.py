"""Which room of the package uses which: read from the imports, those inside functions too, those for types only not.

python tests/house.py             draws it
python tests/house.py --update    also rewrites the picture in CONTRIBUTING.md
"""

from __future__ import annotations

import ast
import sys
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "hushpoint"
PAGE = ROOT / "CONTRIBUTING.md"
FENCE = "```text\n"


def rooms() -> dict[str, set[str]]:
    """Every module or package directly in hushpoint, and those that it imports."""
    used: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).with_suffix("").parts[0]
        if room not in ("__init__", "_version"):
            used.setdefault(room, set()).update(_imported(ast.parse(path.read_text(encoding="utf-8"))) - {room})
    return {room: others & used.keys() for room, others in used.items()}


def _imported(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            found.update(name.name.split(".")[1] for name in node.names if name.name.startswith("hushpoint."))
        elif isinstance(node, ast.ImportFrom) and node.module == "hushpoint":
            found.update(name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hushpoint."):
            found.add(str(node.module).split(".")[1])
        found |= _imported(node)
    return found


def picture() -> str:
    """A line a storey, the lowest last: a room uses only rooms below it. Rooms of helpers are left out."""
    used = {room: {o for o in others if not o.startswith("_")} for room, others in rooms().items() if room[0] != "_"}
    height: dict[str, int] = {}
    for room in TopologicalSorter(used).static_order():
        height[room] = 1 + max((height[other] for other in used[room]), default=0)
    storeys = [sorted(room for room in height if height[room] == level) for level in range(max(height.values()), 0, -1)]
    return "\n".join("   ".join(storey) for storey in storeys) + "\n"


def drawn() -> str:
    """The picture as the page has it."""
    return PAGE.read_text(encoding="utf-8").split(FENCE, 1)[1].split("```", 1)[0]


if __name__ == "__main__":
    print(picture())
    if "--update" not in sys.argv:
        sys.exit()
    PAGE.write_text(PAGE.read_text(encoding="utf-8").replace(FENCE + drawn(), FENCE + picture(), 1), encoding="utf-8")
